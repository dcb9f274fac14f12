#include "tcusim.cuh"
using namespace nvcuda;

// reduction_16: 16x16x16, f16 to f32   [DAKKAK19] section 4.1, Algorithm 1
extern "C" __global__ void
__launch_bounds__(32)
reduction_16(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
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

    // 3  A <- LoadTile(in[256*block ... +256], colmajor, stride=16)
    wmma::load_matrix_sync(A, &in[256*block], 16);

    // 4  V <- P.A + V
    wmma::mma_sync(V, P, A, V);

    // 5  StoreTile(s_V[0 ... +256], colmajor, stride=16) <- V
    wmma::store_matrix_sync(&s_V[0], V, 16, wmma::mem_col_major);

    // 6  sync warp
    __syncwarp();

    // 7  out[16*block + col] <- s_V[16*col]  1x16
    tcu::move<1, 16>(lane,
        [=](auto, int row, int col) { return s_V[16*col]; },
        [=](auto, int row, int col, auto& held) { out[16*block + col] = held; });
}
