#include "tcusim.cuh"
using namespace nvcuda;

// reduction_16n_coalesced: 16x16x16, f16 to f32   [DAKKAK19] section 4.1, Algorithm 3, corrected
extern "C" __global__ void
__launch_bounds__(32)
reduction_16n_coalesced(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half partials_all[1][256];
    const tcu::Shared<half> partials = {partials_all[warp]};
    __shared__ __align__(32) half t_A_all[1][256];
    const tcu::Shared<half> t_A = {t_A_all[warp]};
    __shared__ __align__(32) float s_V_all[1][256];
    const tcu::Shared<float> s_V = {s_V_all[warp]};
    __shared__ __align__(32) float s_R_all[1][256];
    const tcu::Shared<float> s_R = {s_R_all[warp]};
    __shared__ __align__(32) half c_P_all[256];
    const tcu::Shared<half> c_P = {c_P_all};
    __shared__ __align__(32) half c_P1_all[256];
    const tcu::Shared<half> c_P1 = {c_P1_all};
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P, X;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> V, R;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> A, P1;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_P[e] = (e / 16) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_P1[e] = (e / 16) == 0 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  P <- ones in row 0
    wmma::load_matrix_sync(P, &c_P[0], 16);

    // 2  for s <- 0; s < 16; s <- s + 1
    #pragma unroll
    for (int s = 0; s < 16; ++s) {

        // 2.1  V <- 0
        wmma::fill_fragment(V, 0.0f);

        // 2.2  t_A[row + 16*col] <- in[1024*block + 64*s + row + 16*col where 16*col + row < 64]  16x16
        tcu::move<16, 16, 8, 1, true>(lane, tcu::is_multiple(in, 16) && 255 < 64,
            [=](auto fast, int row, int col) { return tcu::load<8>(fast, &in[1024*block + 64*s + row + 16*col], [=](int at) { return row + 16*col + at < 64; }); },
            [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_A[row + 16*col], held); });

        // 2.3  sync warp
        __syncwarp();

        // 2.4  A <- LoadTile(t_A[0 ... +256], colmajor, stride=16)
        wmma::load_matrix_sync(A, &t_A[0], 16);

        // 2.5  V <- P.A + V
        wmma::mma_sync(V, P, A, V);

        // 2.6  StoreTile(s_V[0 ... +256], colmajor, stride=16) <- V
        wmma::store_matrix_sync(&s_V[0], V, 16, wmma::mem_col_major);

        // 2.7  sync warp
        __syncwarp();

        // 2.8  partials[16*s + col] <- f16(s_V[16*col])  1x16
        tcu::move<1, 16>(lane,
            [=](auto, int row, int col) { return s_V[16*col]; },
            [=](auto, int row, int col, auto& held) { partials[16*s + col] = tcu::convert<half>(held); });
    }

    // 3  P1 <- ones in column 0
    wmma::load_matrix_sync(P1, &c_P1[0], 16);

    // 4  R <- 0
    wmma::fill_fragment(R, 0.0f);

    // 5  sync warp
    __syncwarp();

    // 6  X <- LoadTile(partials[0 ... +256], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &partials[0], 16);

    // 7  R <- X.P1 + R
    wmma::mma_sync(R, X, P1, R);

    // 8  StoreTile(s_R[0 ... +256], colmajor, stride=16) <- R
    wmma::store_matrix_sync(&s_R[0], R, 16, wmma::mem_col_major);

    // 9  sync warp
    __syncwarp();

    // 10  out[16*block + row] <- s_R[row]  16x1
    tcu::move<16, 1>(lane,
        [=](auto, int row, int col) { return s_R[row]; },
        [=](auto, int row, int col, auto& held) { out[16*block + row] = held; });
}
