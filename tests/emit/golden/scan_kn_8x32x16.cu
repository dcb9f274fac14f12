#include "tcusim.cuh"
using namespace nvcuda;

// scan_kn: 8x32x16, f16 to f32   [DAKKAK19] section 5.1, Algorithm 5
extern "C" __global__ void
__launch_bounds__(32)
scan_kn(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) float s_last_all[1][256];
    const tcu::Shared<float> s_last = {s_last_all[warp]};
    __shared__ __align__(32) float t_S_all[1][256];
    const tcu::Shared<float> t_S = {t_S_all[warp]};
    __shared__ __align__(32) half c_U0_all[128];
    const tcu::Shared<half> c_U0 = {c_U0_all};
    __shared__ __align__(32) half c_U1_all[128];
    const tcu::Shared<half> c_U1 = {c_U1_all};
    wmma::fragment<wmma::matrix_a, 8, 32, 16, half, wmma::row_major> U0, U1;
    wmma::fragment<wmma::accumulator, 8, 32, 16, float> S, R0, R1;
    wmma::fragment<wmma::matrix_b, 8, 32, 16, half, wmma::col_major> A;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 128; e += blockDim.x) c_U0[e] = (e % 16) <= (e / 16) ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    for (int e = threadIdx.x; e < 128; e += blockDim.x) c_U1[e] = (e % 16) <= (e / 16) + 8 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  U0 <- 1 where col <= row
    wmma::load_matrix_sync(U0, &c_U0[0], 16);

    // 2  U1 <- 1 where col <= row + 8
    wmma::load_matrix_sync(U1, &c_U1[0], 16);

    // 3  S <- 0
    wmma::fill_fragment(S, 0.0f);

    // 4  for i <- 0; i < 4; i <- i + 1
    #pragma unroll
    for (int i = 0; i < 4; ++i) {

        // 4.1  A <- LoadTile(in[2048*block + 16*i ... +2000], colmajor, stride=64)
        wmma::load_matrix_sync(A, &in[2048*block + 16*i], 64);

        // 4.2  R0 <- U0.A + S
        wmma::mma_sync(R0, U0, A, S);

        // 4.3  R1 <- U1.A + S
        wmma::mma_sync(R1, U1, A, S);

        // 4.4  StoreTile(out[2048*block + 16*i ... +1992], colmajor, stride=64) <- R0
        wmma::store_matrix_sync(&out[2048*block + 16*i], R0, 64, wmma::mem_col_major);

        // 4.5  StoreTile(out[2048*block + 16*i + 8 ... +1992], colmajor, stride=64) <- R1
        wmma::store_matrix_sync(&out[2048*block + 16*i + 8], R1, 64, wmma::mem_col_major);

        // 4.6  StoreTile(s_last[0 ... +256], colmajor, stride=8) <- R1
        wmma::store_matrix_sync(&s_last[0], R1, 8, wmma::mem_col_major);

        // 4.7  sync warp
        __syncwarp();

        // 4.8  t_S[row + 8*col] <- s_last[7 + 8*col]  8x32
        tcu::move<8, 32, 4, 2, true>(lane,
            [=](auto, int row, int col) { return tcu::repeat<4>(s_last[8*col + 7]); },
            [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_S[row + 8*col], held); });

        // 4.9  sync warp
        __syncwarp();

        // 4.10  S <- LoadTile(t_S[0 ... +256], colmajor, stride=8)
        wmma::load_matrix_sync(S, &t_S[0], 8, wmma::mem_col_major);
    }
}
