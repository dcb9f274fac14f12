#include "tcusim.cuh"
using namespace nvcuda;

// reduction_t: 32x32x32, f16 to f32   [DAKKAK19] section 4.1, Algorithm 2
extern "C" __global__ void
__launch_bounds__(32)
reduction_t(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) float s_V_all[1][1024];
    const tcu::Shared<float> s_V = {s_V_all[warp]};
    __shared__ __align__(32) half t_X_all[1][1024];
    const tcu::Shared<half> t_X = {t_X_all[warp]};
    __shared__ __align__(32) float s_R_all[1][1024];
    const tcu::Shared<float> s_R = {s_R_all[warp]};
    __shared__ __align__(32) half c_P_all[1024];
    const tcu::Shared<half> c_P = {c_P_all};
    __shared__ __align__(32) half c_P1_all[1024];
    const tcu::Shared<half> c_P1 = {c_P1_all};
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P[4];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> V[4], R[4];
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> A[4], P1[4];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::col_major> X[4];

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 1024; e += blockDim.x) c_P[e] = (e / 32) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    for (int e = threadIdx.x; e < 1024; e += blockDim.x) c_P1[e] = (e / 32) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  P <- ones in row 0
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::load_matrix_sync(P[f], &c_P[0] + f / 2 * 16 * 32 + f % 2 * 16 * 1, 32);
    }

    // 2  V <- 0
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::fill_fragment(V[f], 0.0f);
    }

    // 3  A <- LoadTile(in[1024*block ... +1024], colmajor, stride=32)
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::load_matrix_sync(A[f], &in[1024*block] + f / 2 * 16 * 1 + f % 2 * 16 * 32, 32);
    }

    // 4  V <- P.A + V
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::mma_sync(V[f], P[f / 2 * 2], A[f % 2], V[f]);
        #pragma unroll
        for (int k = 1; k < 2; ++k) {
            wmma::mma_sync(V[f], P[f / 2 * 2 + k], A[f % 2 + k * 2], V[f]);
        }
    }

    // 5  StoreTile(s_V[0 ... +1024], colmajor, stride=32) <- V
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::store_matrix_sync(&s_V[0] + f / 2 * 16 * 1 + f % 2 * 16 * 32, V[f], 32, wmma::mem_col_major);
    }

    // 6  P1 <- ones in column 0
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::load_matrix_sync(P1[f], &c_P1[0] + f / 2 * 16 * 1 + f % 2 * 16 * 32, 32);
    }

    // 7  R <- 0
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::fill_fragment(R[f], 0.0f);
    }

    // 8  sync warp
    __syncwarp();

    // 9  t_X[row + 32*col] <- f16(s_V[row + 32*col])  32x32
    tcu::move<32, 32, 4, 8, true>(lane,
        [=](auto, int row, int col) { return tcu::load<4, tcu::Aligned>(&s_V[row + 32*col]); },
        [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_X[row + 32*col], tcu::convert<half>(held)); });

    // 10  sync warp
    __syncwarp();

    // 11  X <- LoadTile(t_X[0 ... +1024], colmajor, stride=32)
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::load_matrix_sync(X[f], &t_X[0] + f / 2 * 16 * 1 + f % 2 * 16 * 32, 32);
    }

    // 12  R <- X.P1 + R
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::mma_sync(R[f], X[f / 2 * 2], P1[f % 2], R[f]);
        #pragma unroll
        for (int k = 1; k < 2; ++k) {
            wmma::mma_sync(R[f], X[f / 2 * 2 + k], P1[f % 2 + k * 2], R[f]);
        }
    }

    // 13  StoreTile(s_R[0 ... +1024], colmajor, stride=32) <- R
    #pragma unroll
    for (int f = 0; f < 4; ++f) {
        wmma::store_matrix_sync(&s_R[0] + f / 2 * 16 * 1 + f % 2 * 16 * 32, R[f], 32, wmma::mem_col_major);
    }

    // 14  sync warp
    __syncwarp();

    // 15  out[block] <- s_R[0]  1x1
    tcu::move<1, 1>(lane,
        [=](auto, int row, int col) { return s_R[0]; },
        [=](auto, int row, int col, auto& held) { out[block] = held; });
}
