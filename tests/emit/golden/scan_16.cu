#include "tcusim.cuh"
using namespace nvcuda;

// scan_16: 16x16x16, f16 to f32   [DAKKAK19] section 5.1, segment size 16
extern "C" __global__ void
__launch_bounds__(32)
scan_16(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half c_U_all[256];
    const tcu::Shared<half> c_U = {c_U_all};
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> U;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> A;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> R;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_U[e] = (e / 16) <= (e % 16) ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  U <- 1 where row <= col
    wmma::load_matrix_sync(U, &c_U[0], 16);

    // 2  A <- LoadTile(in[256*block ... +256], rowmajor, stride=16)
    wmma::load_matrix_sync(A, &in[256*block], 16);

    // 3  R <- 0
    wmma::fill_fragment(R, 0.0f);

    // 4  R <- A.U + R
    wmma::mma_sync(R, A, U, R);

    // 5  StoreTile(out[256*block ... +256], rowmajor, stride=16) <- R
    wmma::store_matrix_sync(&out[256*block], R, 16, wmma::mem_row_major);
}
