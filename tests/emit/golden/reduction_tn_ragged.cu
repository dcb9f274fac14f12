#include "tcusim.cuh"
using namespace nvcuda;

// reduction_tn: 16x16x16, f16 to f32   [DAKKAK19] section 4.1, Figure 7
extern "C" __global__ void
__launch_bounds__(32)
reduction_tn(const half* __restrict__ in, half* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half t_A_all[1][256];
    const tcu::Shared<half> t_A = {t_A_all[warp]};
    __shared__ __align__(32) float s_V_all[1][256];
    const tcu::Shared<float> s_V = {s_V_all[warp]};
    __shared__ __align__(32) half c_P_all[256];
    const tcu::Shared<half> c_P = {c_P_all};
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> V;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> A;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_P[e] = (e / 16) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  P <- ones in row 0
    wmma::load_matrix_sync(P, &c_P[0], 16);

    // 2  V <- 0
    wmma::fill_fragment(V, 0.0f);

    // 3  for i <- 0; i < 4; i <- i + 1
    #pragma unroll
    for (int i = 0; i < 4; ++i) {

        // 3.1  t_A[row + 16*col] <- in[1000*block + 256*i + row + 16*col where 16*col + 256*i + row < 1000 and 1000*block + 16*col + 256*i + row < length]  16x16
        tcu::move<16, 16, 8, 1, true>(lane, tcu::is_multiple(in, 16) && 256*i + 255 < 1000 && 1000*block + 256*i + 255 < length,
            [=](auto fast, int row, int col) { return tcu::load<8>(fast, &in[1000*block + 256*i + row + 16*col], [=](int at) { return 256*i + row + 16*col + at < 1000 && 1000*block + 256*i + row + 16*col + at < length; }); },
            [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_A[row + 16*col], held); });

        // 3.2  sync warp
        __syncwarp();

        // 3.3  A <- LoadTile(t_A[0 ... +256], colmajor, stride=16)
        wmma::load_matrix_sync(A, &t_A[0], 16);

        // 3.4  V <- P.A + V
        wmma::mma_sync(V, P, A, V);

        // 3.5  sync warp
        __syncwarp();
    }

    // 4  StoreTile(s_V[0 ... +256], colmajor, stride=16) <- V
    wmma::store_matrix_sync(&s_V[0], V, 16, wmma::mem_col_major);

    // 5  sync warp
    __syncwarp();

    // 6  s_V[16*col] <- s_V[16*col] + s_V[128 + 16*col]  1x8
    tcu::move<1, 8>(lane,
        [=](auto, int row, int col) { return tcu::add(s_V[16*col], s_V[16*col + 128]); },
        [=](auto, int row, int col, auto& held) { s_V[16*col] = held; });

    // 7  sync warp
    __syncwarp();

    // 8  s_V[16*col] <- s_V[16*col] + s_V[64 + 16*col]  1x4
    tcu::move<1, 4>(lane,
        [=](auto, int row, int col) { return tcu::add(s_V[16*col], s_V[16*col + 64]); },
        [=](auto, int row, int col, auto& held) { s_V[16*col] = held; });

    // 9  sync warp
    __syncwarp();

    // 10  s_V[16*col] <- s_V[16*col] + s_V[32 + 16*col]  1x2
    tcu::move<1, 2>(lane,
        [=](auto, int row, int col) { return tcu::add(s_V[16*col], s_V[16*col + 32]); },
        [=](auto, int row, int col, auto& held) { s_V[16*col] = held; });

    // 11  sync warp
    __syncwarp();

    // 12  s_V[0] <- s_V[0] + s_V[16]  1x1
    tcu::move<1, 1>(lane,
        [=](auto, int row, int col) { return tcu::add(s_V[0], s_V[16]); },
        [=](auto, int row, int col, auto& held) { s_V[0] = held; });

    // 13  sync warp
    __syncwarp();

    // 14  out[block where 1000*block + 1000*col < length] <- f16(s_V[0])  1x1
    tcu::move<1, 1>(lane,
        [=](auto, int row, int col) { return s_V[0]; },
        [=](auto, int row, int col, auto& held) { if (1000*block < length) out[block] = tcu::convert<half>(held); });
}
