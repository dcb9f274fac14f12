#include "tcusim.cuh"
using namespace nvcuda;

// scan_256n: 16x16x16, f16 to f32   [DAKKAK19] section 5.1, Algorithm 6
extern "C" __global__ void
__launch_bounds__(64)
scan_256n(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half t_A_all[2][256];
    const tcu::Shared<half> t_A = {t_A_all[warp]};
    __shared__ __align__(32) half t_B_all[2][256];
    const tcu::Shared<half> t_B = {t_B_all[warp]};
    __shared__ __align__(32) float s_LA_all[2][256];
    const tcu::Shared<float> s_LA = {s_LA_all[warp]};
    __shared__ __align__(32) half t_X_all[2][256];
    const tcu::Shared<half> t_X = {t_X_all[warp]};
    __shared__ __align__(32) float s_R_all[2][256];
    const tcu::Shared<float> s_R = {s_R_all[warp]};
    __shared__ __align__(32) float s_last_all[2][256];
    const tcu::Shared<float> s_last = {s_last_all[warp]};
    __shared__ __align__(32) float t_S_all[2][256];
    const tcu::Shared<float> t_S = {t_S_all[warp]};
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

    // 5  for i <- 0; i < 2; i <- i + 1
    #pragma unroll
    for (int i = 0; i < 2; ++i) {

        // 5.1  t_A[16*row + col] <- in[600*block + 256*i + 300*warp + 16*row + col where col + 256*i + 16*row < 300 and 600*block + col + 256*i + 16*row + 300*warp < length]  16x16
        tcu::move<16, 16, 4, 2>(lane, tcu::is_multiple(in, 8) && 256*i + 255 < 300 && 600*block + 300*warp + 256*i + 255 < length,
            [=](auto fast, int row, int col) { return tcu::load<4>(fast, &in[600*block + 300*warp + 256*i + 16*row + col], [=](int at) { return 256*i + 16*row + col + at < 300 && 600*block + 300*warp + 256*i + 16*row + col + at < length; }); },
            [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_A[16*row + col], held); });

        // 5.2  sync warp
        __syncwarp();

        // 5.3  A <- LoadTile(t_A[0 ... +256], rowmajor, stride=16)
        wmma::load_matrix_sync(A, &t_A[0], 16);

        // 5.4  AU <- A.U + S
        wmma::mma_sync(AU, A, U, S);

        // 5.5  t_B[16*row + col] <- in[600*block + 256*i + 300*warp + 16*row + col where col + 256*i + 16*row < 300 and 600*block + col + 256*i + 16*row + 300*warp < length]  16x16
        tcu::move<16, 16, 4, 2>(lane, tcu::is_multiple(in, 8) && 256*i + 255 < 300 && 600*block + 300*warp + 256*i + 255 < length,
            [=](auto fast, int row, int col) { return tcu::load<4>(fast, &in[600*block + 300*warp + 256*i + 16*row + col], [=](int at) { return 256*i + 16*row + col + at < 300 && 600*block + 300*warp + 256*i + 16*row + col + at < length; }); },
            [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_B[16*row + col], held); });

        // 5.6  sync warp
        __syncwarp();

        // 5.7  B <- LoadTile(t_B[0 ... +256], rowmajor, stride=16)
        wmma::load_matrix_sync(B, &t_B[0], 16);

        // 5.8  Z <- 0
        wmma::fill_fragment(Z, 0.0f);

        // 5.9  LA <- L.B + Z
        wmma::mma_sync(LA, L, B, Z);

        // 5.10  StoreTile(s_LA[0 ... +256], rowmajor, stride=16) <- LA
        wmma::store_matrix_sync(&s_LA[0], LA, 16, wmma::mem_row_major);

        // 5.11  sync warp
        __syncwarp();

        // 5.12  t_X[16*row + col] <- f16(s_LA[16*row + col])  16x16
        tcu::move<16, 16, 4, 2>(lane,
            [=](auto, int row, int col) { return tcu::load<4, tcu::Aligned>(&s_LA[16*row + col]); },
            [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_X[16*row + col], tcu::convert<half>(held)); });

        // 5.13  sync warp
        __syncwarp();

        // 5.14  X <- LoadTile(t_X[0 ... +256], rowmajor, stride=16)
        wmma::load_matrix_sync(X, &t_X[0], 16);

        // 5.15  R <- X.J + AU
        wmma::mma_sync(R, X, J, AU);

        // 5.16  StoreTile(s_R[0 ... +256], rowmajor, stride=16) <- R
        wmma::store_matrix_sync(&s_R[0], R, 16, wmma::mem_row_major);

        // 5.17  sync warp
        __syncwarp();

        // 5.18  out[600*block + 256*i + 300*warp + 16*row + col where col + 256*i + 16*row < 300 and 600*block + col + 256*i + 16*row + 300*warp < length] <- s_R[16*row + col]  16x16
        tcu::move<16, 16, 4, 2>(lane, tcu::is_multiple(out, 16) && 256*i + 255 < 300 && 600*block + 300*warp + 256*i + 255 < length,
            [=](auto, int row, int col) { return tcu::load<4, tcu::Aligned>(&s_R[16*row + col]); },
            [=](auto fast, int row, int col, auto& held) { tcu::store(fast, &out[600*block + 300*warp + 256*i + 16*row + col], held, [=](int at) { return 256*i + 16*row + col + at < 300 && 600*block + 300*warp + 256*i + 16*row + col + at < length; }); });

        // 5.19  StoreTile(s_last[0 ... +256], rowmajor, stride=16) <- R
        wmma::store_matrix_sync(&s_last[0], R, 16, wmma::mem_row_major);

        // 5.20  sync warp
        __syncwarp();

        // 5.21  t_S[16*row + col] <- s_last[255]  16x16
        tcu::move<16, 16, 4, 2>(lane,
            [=](auto, int row, int col) { return tcu::repeat<4>(s_last[255]); },
            [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_S[16*row + col], held); });

        // 5.22  sync warp
        __syncwarp();

        // 5.23  S <- LoadTile(t_S[0 ... +256], rowmajor, stride=16)
        wmma::load_matrix_sync(S, &t_S[0], 16, wmma::mem_row_major);
    }
}
