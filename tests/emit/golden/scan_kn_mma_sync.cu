#include "tcusim.cuh"
using namespace nvcuda;

// scan_kn: 16x8x16, f16 to f32   [DAKKAK19] section 5.1, Algorithm 5
extern "C" __global__ void
__launch_bounds__(32)
scan_kn(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) float s_last_all[1][128];
    const tcu::Shared<float> s_last = {s_last_all[warp]};
    __shared__ __align__(32) float t_S_all[1][128];
    const tcu::Shared<float> t_S = {t_S_all[warp]};
    __shared__ __align__(32) half c_U0_all[256];
    const tcu::Shared<half> c_U0 = {c_U0_all};
    __shared__ __align__(32) half c_U1_all[256];
    const tcu::Shared<half> c_U1 = {c_U1_all};
    tcu::fragment<wmma::matrix_b, 16, 8, 16, half, wmma::row_major> U0, U1;
    tcu::fragment<wmma::accumulator, 16, 8, 16, float> S, R0, R1;
    tcu::fragment<wmma::matrix_a, 16, 8, 16, half, wmma::row_major> A;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_U0[e] = (e / 16) <= (e % 16) ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_U1[e] = (e / 16) <= (e % 16) + 8 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  U0 <- 1 where row <= col
    tcu::load_matrix_sync(U0, &c_U0[0], 16);

    // 2  U1 <- 1 where row <= col + 8
    tcu::load_matrix_sync(U1, &c_U1[0], 16);

    // 3  S <- 0
    tcu::fill_fragment(S, 0.0f);

    // 4  for i <- 0; i < 4; i <- i + 1
    #pragma unroll
    for (int i = 0; i < 4; ++i) {

        // 4.1  A <- LoadTile(in[1024*block + 16*i ... +976], rowmajor, stride=64)
        tcu::load_matrix_sync(A, &in[1024*block + 16*i], 64);

        // 4.2  R0 <- A.U0 + S
        tcu::mma_sync(R0, A, U0, S);

        // 4.3  R1 <- A.U1 + S
        tcu::mma_sync(R1, A, U1, S);

        // 4.4  StoreTile(out[1024*block + 16*i ... +968], rowmajor, stride=64) <- R0
        tcu::store_matrix_sync(&out[1024*block + 16*i], R0, 64, wmma::mem_row_major);

        // 4.5  StoreTile(out[1024*block + 16*i + 8 ... +968], rowmajor, stride=64) <- R1
        tcu::store_matrix_sync(&out[1024*block + 16*i + 8], R1, 64, wmma::mem_row_major);

        // 4.6  StoreTile(s_last[0 ... +128], rowmajor, stride=8) <- R1
        tcu::store_matrix_sync(&s_last[0], R1, 8, wmma::mem_row_major);

        // 4.7  sync warp
        __syncwarp();

        // 4.8  t_S[8*row + col] <- s_last[7 + 8*row]  16x8
        tcu::move<16, 8, 4>(lane,
            [=](auto, int row, int col) { return tcu::repeat<4>(s_last[8*row + 7]); },
            [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_S[8*row + col], held); });

        // 4.9  sync warp
        __syncwarp();

        // 4.10  S <- LoadTile(t_S[0 ... +128], rowmajor, stride=8)
        tcu::load_matrix_sync(S, &t_S[0], 8, wmma::mem_row_major);
    }
}
