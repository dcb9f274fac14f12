#include "tcusim.cuh"
using namespace nvcuda;

// scan_k: 16x16x8, tf32 to f32   [DAKKAK19] section 5.1, segment size 16
extern "C" __global__ void
__launch_bounds__(32)
scan_k(const float* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) float s_R_all[1][256];
    const tcu::Shared<float> s_R = {s_R_all[warp]};
    __shared__ __align__(32) float c_U_all[128];
    const tcu::Shared<float> c_U = {c_U_all};
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> U;
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> A;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> R;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 128; e += blockDim.x) c_U[e] = (e / 16) <= (e % 16) ? 1.0f : 0.0f;
    __syncthreads();

    // 1  U <- 1 where row <= col
    wmma::load_matrix_sync(U, &c_U[0], 16);

    // 2  A <- LoadTile(in[128*block ... +128], rowmajor, stride=8)
    tcu::load_tile<tcu::InGlobal>(A, &in[128*block], 8);

    // 3  R <- 0
    wmma::fill_fragment(R, 0.0f);

    // 4  R <- A.U + R
    wmma::mma_sync(R, A, U, R);

    // 5  StoreTile(s_R[0 ... +256], rowmajor, stride=16) <- R
    wmma::store_matrix_sync(&s_R[0], R, 16, wmma::mem_row_major);

    // 6  sync warp
    __syncwarp();

    // 7  out[128*block + 8*row + col] <- s_R[16*row + col]  16x8
    tcu::move<16, 8, 4>(lane, tcu::is_multiple(out, 16),
        [=](auto, int row, int col) { return tcu::load<4, tcu::Aligned>(&s_R[16*row + col]); },
        [=](auto fast, int row, int col, auto& held) { tcu::store(fast, &out[128*block + 8*row + col], held); });
}
