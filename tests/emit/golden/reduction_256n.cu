#include "tcusim.cuh"
using namespace nvcuda;

// reduction_256n: 16x16x16, f16 to f32   [DAKKAK19] section 4.1, Figure 7
extern "C" __global__ void
__launch_bounds__(32)
reduction_256n(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) float s_V_all[1][256];
    const tcu::Shared<float> s_V = {s_V_all[warp]};
    __shared__ __align__(32) half t_X_all[1][256];
    const tcu::Shared<half> t_X = {t_X_all[warp]};
    __shared__ __align__(32) float s_R_all[1][256];
    const tcu::Shared<float> s_R = {s_R_all[warp]};
    __shared__ __align__(32) half c_P_all[256];
    const tcu::Shared<half> c_P = {c_P_all};
    __shared__ __align__(32) half c_P1_all[256];
    const tcu::Shared<half> c_P1 = {c_P1_all};
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> V, R;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> A, P1;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::col_major> X;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_P[e] = (e / 16) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_P1[e] = (e / 16) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  P <- ones in row 0
    wmma::load_matrix_sync(P, &c_P[0], 16);

    // 2  V <- 0
    wmma::fill_fragment(V, 0.0f);

    // 3  for i <- 0; i < 4; i <- i + 1
    #pragma unroll
    for (int i = 0; i < 4; ++i) {

        // 3.1  A <- LoadTile(in[1024*block + 256*i ... +256], colmajor, stride=16)
        wmma::load_matrix_sync(A, &in[1024*block + 256*i], 16);

        // 3.2  V <- P.A + V
        wmma::mma_sync(V, P, A, V);
    }

    // 4  StoreTile(s_V[0 ... +256], colmajor, stride=16) <- V
    wmma::store_matrix_sync(&s_V[0], V, 16, wmma::mem_col_major);

    // 5  P1 <- ones in column 0
    wmma::load_matrix_sync(P1, &c_P1[0], 16);

    // 6  R <- 0
    wmma::fill_fragment(R, 0.0f);

    // 7  sync warp
    __syncwarp();

    // 8  t_X[row + 16*col] <- f16(s_V[row + 16*col])  16x16
    tcu::move<16, 16, 4, 2, true>(lane,
        [=](auto, int row, int col) { return tcu::load<4, tcu::Aligned>(&s_V[row + 16*col]); },
        [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_X[row + 16*col], tcu::convert<half>(held)); });

    // 9  sync warp
    __syncwarp();

    // 10  X <- LoadTile(t_X[0 ... +256], colmajor, stride=16)
    wmma::load_matrix_sync(X, &t_X[0], 16);

    // 11  R <- X.P1 + R
    wmma::mma_sync(R, X, P1, R);

    // 12  StoreTile(s_R[0 ... +256], colmajor, stride=16) <- R
    wmma::store_matrix_sync(&s_R[0], R, 16, wmma::mem_col_major);

    // 13  sync warp
    __syncwarp();

    // 14  out[block] <- s_R[0]  1x1
    tcu::move<1, 1>(lane,
        [=](auto, int row, int col) { return s_R[0]; },
        [=](auto, int row, int col, auto& held) { out[block] = held; });
}
