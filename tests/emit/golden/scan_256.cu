#include "tcusim.cuh"
using namespace nvcuda;

// scan_256: 16x16x16, f16 to f32   [DAKKAK19] section 5.1, segment size 256
extern "C" __global__ void
__launch_bounds__(32)
scan_256(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) float s_LA_all[1][256];
    const tcu::Shared<float> s_LA = {s_LA_all[warp]};
    __shared__ __align__(32) half t_X_all[1][256];
    const tcu::Shared<half> t_X = {t_X_all[warp]};
    __shared__ __align__(32) half c_U_all[256];
    const tcu::Shared<half> c_U = {c_U_all};
    __shared__ __align__(32) half c_L_all[256];
    const tcu::Shared<half> c_L = {c_L_all};
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> U, J, B;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> L, A, X;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> S, AU, Z, LA, R;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_U[e] = (e / 16) <= (e % 16) ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_L[e] = (e % 16) <= (e / 16) + -1 ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  U <- 1 where row <= col
    wmma::load_matrix_sync(U, &c_U[0], 16);

    // 2  L <- 1 where col <= row - 1
    wmma::load_matrix_sync(L, &c_L[0], 16);

    // 3  J <- 1
    wmma::fill_fragment(J, tcu::convert<half>(1.0f));

    // 4  S <- 0
    wmma::fill_fragment(S, 0.0f);

    // 5  A <- LoadTile(in[256*block ... +256], rowmajor, stride=16)
    wmma::load_matrix_sync(A, &in[256*block], 16);

    // 6  AU <- A.U + S
    wmma::mma_sync(AU, A, U, S);

    // 7  B <- LoadTile(in[256*block ... +256], rowmajor, stride=16)
    wmma::load_matrix_sync(B, &in[256*block], 16);

    // 8  Z <- 0
    wmma::fill_fragment(Z, 0.0f);

    // 9  LA <- L.B + Z
    wmma::mma_sync(LA, L, B, Z);

    // 10  StoreTile(s_LA[0 ... +256], rowmajor, stride=16) <- LA
    wmma::store_matrix_sync(&s_LA[0], LA, 16, wmma::mem_row_major);

    // 11  sync warp
    __syncwarp();

    // 12  t_X[16*row + col] <- f16(s_LA[16*row + col])  16x16
    tcu::move<16, 16, 4, 2>(lane,
        [=](auto, int row, int col) { return tcu::load<4, tcu::Aligned>(&s_LA[16*row + col]); },
        [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_X[16*row + col], tcu::convert<half>(held)); });

    // 13  sync warp
    __syncwarp();

    // 14  X <- LoadTile(t_X[0 ... +256], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &t_X[0], 16);

    // 15  R <- X.J + AU
    wmma::mma_sync(R, X, J, AU);

    // 16  StoreTile(out[256*block ... +256], rowmajor, stride=16) <- R
    wmma::store_matrix_sync(&out[256*block], R, 16, wmma::mem_row_major);
}
