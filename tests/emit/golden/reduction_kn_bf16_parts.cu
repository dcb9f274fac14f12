#include "tcusim.cuh"
using namespace nvcuda;

// reduction_kn: 16x16x16, bf16 to f32   [DAKKAK19] section 4.1, Figure 8
extern "C" __global__ void
__launch_bounds__(32)
reduction_kn(const float* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) __nv_bfloat16 t_A0_all[1][256];
    const tcu::Shared<__nv_bfloat16> t_A0 = {t_A0_all[warp]};
    __shared__ __align__(32) __nv_bfloat16 t_A1_all[1][256];
    const tcu::Shared<__nv_bfloat16> t_A1 = {t_A1_all[warp]};
    __shared__ __align__(32) __nv_bfloat16 t_A2_all[1][256];
    const tcu::Shared<__nv_bfloat16> t_A2 = {t_A2_all[warp]};
    __shared__ __align__(32) float s_V_all[1][256];
    const tcu::Shared<float> s_V = {s_V_all[warp]};
    __shared__ __align__(32) __nv_bfloat16 c_P_all[256];
    const tcu::Shared<__nv_bfloat16> c_P = {c_P_all};
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> P;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> V;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> A0, A1, A2;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_P[e] = (e / 16) == 0 ? tcu::convert<__nv_bfloat16>(1.0f) : tcu::convert<__nv_bfloat16>(0.0f);
    __syncthreads();

    // 1  P <- ones in row 0
    wmma::load_matrix_sync(P, &c_P[0], 16);

    // 2  V <- 0
    wmma::fill_fragment(V, 0.0f);

    // 3  for i <- 0; i < 4; i <- i + 1
    #pragma unroll
    for (int i = 0; i < 4; ++i) {

        // 3.1  t_A0[row + 16*col], t_A1[row + 16*col], t_A2[row + 16*col] <- split(in[1024*block + 16*i + row + 64*col])  16x16
        tcu::move<16, 16, 4, 2, true>(lane, tcu::is_multiple(in, 16),
            [=](auto fast, int row, int col) { return tcu::load<4>(fast, &in[1024*block + 16*i + row + 64*col]); },
            [=](auto, int row, int col, auto& held) { const auto part_0 = tcu::take_part<__nv_bfloat16, true>(held); tcu::store<tcu::Aligned>(&t_A0[row + 16*col], part_0); const auto part_1 = tcu::take_part<__nv_bfloat16, false>(held); tcu::store<tcu::Aligned>(&t_A1[row + 16*col], part_1); const auto part_2 = tcu::take_part<__nv_bfloat16, false>(held); tcu::store<tcu::Aligned>(&t_A2[row + 16*col], part_2); });

        // 3.2  sync warp
        __syncwarp();

        // 3.3  A0 <- LoadTile(t_A0[0 ... +256], colmajor, stride=16)
        tcu::load_tile<tcu::InShared>(A0, &t_A0[0], 16);

        // 3.4  A1 <- LoadTile(t_A1[0 ... +256], colmajor, stride=16)
        tcu::load_tile<tcu::InShared>(A1, &t_A1[0], 16);

        // 3.5  A2 <- LoadTile(t_A2[0 ... +256], colmajor, stride=16)
        tcu::load_tile<tcu::InShared>(A2, &t_A2[0], 16);

        // 3.6  V <- P.A0 + V
        wmma::mma_sync(V, P, A0, V);

        // 3.7  V <- P.A1 + V
        wmma::mma_sync(V, P, A1, V);

        // 3.8  V <- P.A2 + V
        wmma::mma_sync(V, P, A2, V);

        // 3.9  sync warp
        __syncwarp();
    }

    // 4  StoreTile(s_V[0 ... +256], colmajor, stride=16) <- V
    wmma::store_matrix_sync(&s_V[0], V, 16, wmma::mem_col_major);

    // 5  sync warp
    __syncwarp();

    // 6  out[16*block + col] <- s_V[16*col]  1x16
    tcu::move<1, 16>(lane,
        [=](auto, int row, int col) { return s_V[16*col]; },
        [=](auto, int row, int col, auto& held) { out[16*block + col] = held; });
}
