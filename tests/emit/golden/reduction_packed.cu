#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include "tcusim.cuh"
using namespace nvcuda;

// reduction_packed: 16x16x16, f16 to f32   not in the paper
extern "C" __global__ void
__launch_bounds__(32)
reduction_packed(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half c_Pj_all[496];
    const tcu::Shared<half> c_Pj = {c_Pj_all};
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> V;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> Pj;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> A;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 496; e += blockDim.x) c_Pj[e] = (e / 16) == 15 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  V <- 0
    wmma::fill_fragment(V, 0.0f);

    // 2  for j <- 0; j < 16; j <- j + 1
    #pragma unroll
    for (int j = 0; j < 16; ++j) {

        // 2.1  Pj <- ones in row j
        wmma::load_matrix_sync(Pj, &c_Pj[-16*j + 240], 16);

        // 2.2  A <- LoadTile(in[4096*block + 256*j ... +256], colmajor, stride=16)
        wmma::load_matrix_sync(A, &in[4096*block + 256*j], 16);

        // 2.3  V <- Pj.A + V
        wmma::mma_sync(V, Pj, A, V);
    }

    // 3  StoreTile(out[256*block ... +256], rowmajor, stride=16) <- V
    wmma::store_matrix_sync(&out[256*block], V, 16, wmma::mem_row_major);
}
