#include "tcusim.cuh"
using namespace nvcuda;

// reduction_256: 16x16x16, f16 to f16   [DAKKAK19] section 4.1, Algorithm 2
extern "C" __global__ void
__launch_bounds__(32)
reduction_256(const half* __restrict__ in, half* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half s_V_all[1][256];
    const tcu::Shared<half> s_V = {s_V_all[warp]};
    __shared__ __align__(32) half s_R_all[1][256];
    const tcu::Shared<half> s_R = {s_R_all[warp]};
    __shared__ __align__(32) half c_P_all[256];
    const tcu::Shared<half> c_P = {c_P_all};
    __shared__ __align__(32) half c_P1_all[256];
    const tcu::Shared<half> c_P1 = {c_P1_all};
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P;
    wmma::fragment<wmma::accumulator, 16, 16, 16, half> V, R;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> A, P1;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::col_major> X;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_P[e] = (e / 16) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_P1[e] = (e / 16) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  P <- ones in row 0
    wmma::load_matrix_sync(P, &c_P[0], 16);

    // 2  V <- 0
    wmma::fill_fragment(V, tcu::convert<half>(0.0f));

    // 3  A <- LoadTile(in[256*block ... +256], colmajor, stride=16)
    wmma::load_matrix_sync(A, &in[256*block], 16);

    // 4  V <- P.A + V
    wmma::mma_sync(V, P, A, V);

    // 5  StoreTile(s_V[0 ... +256], colmajor, stride=16) <- V
    wmma::store_matrix_sync(&s_V[0], V, 16, wmma::mem_col_major);

    // 6  P1 <- ones in column 0
    wmma::load_matrix_sync(P1, &c_P1[0], 16);

    // 7  R <- 0
    wmma::fill_fragment(R, tcu::convert<half>(0.0f));

    // 8  sync warp
    __syncwarp();

    // 9  X <- LoadTile(s_V[0 ... +256], colmajor, stride=16)
    wmma::load_matrix_sync(X, &s_V[0], 16);

    // 10  R <- X.P1 + R
    wmma::mma_sync(R, X, P1, R);

    // 11  StoreTile(s_R[0 ... +256], colmajor, stride=16) <- R
    wmma::store_matrix_sync(&s_R[0], R, 16, wmma::mem_col_major);

    // 12  sync warp
    __syncwarp();

    // 13  out[block] <- s_R[0]  1x1
    tcu::move<1, 1>(lane,
        [=](auto, int row, int col) { return s_R[0]; },
        [=](auto, int row, int col, auto& held) { out[block] = held; });
}
