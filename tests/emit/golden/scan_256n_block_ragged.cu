#include "tcusim.cuh"
using namespace nvcuda;

// scan_256n_block: 16x16x16, f16 to f32   [DAKKAK19] section 5.2, Algorithm 7, corrected
extern "C" __global__ void
__launch_bounds__(128)
scan_256n_block(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half t_A_all[4][256];
    const tcu::Shared<half> t_A = {t_A_all[warp]};
    __shared__ __align__(32) float s_V_all[4][256];
    const tcu::Shared<float> s_V = {s_V_all[warp]};
    __shared__ __align__(32) float x_all[4][16];
    const tcu::Shared<float> x = {x_all[warp]};
    __shared__ __align__(32) float y_all[4][16];
    const tcu::Shared<float> y = {y_all[warp]};
    __shared__ __align__(32) float t_C_all[4][256];
    const tcu::Shared<float> t_C = {t_C_all[warp]};
    __shared__ __align__(32) float s_R_all[4][256];
    const tcu::Shared<float> s_R = {s_R_all[warp]};
    __shared__ __align__(32) float totals_all[8];
    const tcu::Shared<float> totals = {totals_all};
    __shared__ __align__(32) float prtls_all[8];
    const tcu::Shared<float> prtls = {prtls_all};
    __shared__ __align__(32) float prtls1_all[8];
    const tcu::Shared<float> prtls1 = {prtls1_all};
    __shared__ __align__(32) float prtls2_all[8];
    const tcu::Shared<float> prtls2 = {prtls2_all};
    __shared__ __align__(32) float s_S_all[256];
    const tcu::Shared<float> s_S = {s_S_all};
    __shared__ __align__(32) float t_S_all[256];
    const tcu::Shared<float> t_S = {t_S_all};
    __shared__ __align__(32) half c_U_all[256];
    const tcu::Shared<half> c_U = {c_U_all};
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> U, J;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> Z, S, AU, V, C, R;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> A;

    // Constant matrices, made once a block.
    for (int e = threadIdx.x; e < 256; e += blockDim.x) c_U[e] = (e / 16) <= (e % 16) ? tcu::convert<half>(1.0f) : tcu::convert<half>(0.0f);
    __syncthreads();

    // 1  U <- 1 where row <= col
    wmma::load_matrix_sync(U, &c_U[0], 16);

    // 2  J <- 1
    wmma::fill_fragment(J, tcu::convert<half>(1.0f));

    // 3  Z <- 0
    wmma::fill_fragment(Z, 0.0f);

    // 4  S <- 0
    wmma::fill_fragment(S, 0.0f);

    // 5  for i <- 0; i < 2; i <- i + 1
    #pragma unroll
    for (int i = 0; i < 2; ++i) {

        // 5.1  if 1024*i + 256*warp + 255 < 2000 and 2000*block + 1024*i + 256*warp + 255 < length
        if (256*warp + 1024*i + 255 < 2000 && 2000*block + 256*warp + 1024*i + 255 < length) {

            // 5.1.1  A <- LoadTile(in[2000*block + 1024*i + 256*warp ... +256], rowmajor, stride=16)
            wmma::load_matrix_sync(A, &in[2000*block + 256*warp + 1024*i], 16);
        }
        else {

            // 5.1.2  t_A[16*row + col] <- in[2000*block + 1024*i + 256*warp + 16*row + col where col + 1024*i + 16*row + 256*warp < 2000 and 2000*block + col + 1024*i + 16*row + 256*warp < length]  16x16
            tcu::move<16, 16, 8>(lane, 256*warp + 1024*i + 255 < 2000 && 2000*block + 256*warp + 1024*i + 255 < length,
                [=](auto fast, int row, int col) { return tcu::load<8, tcu::Aligned>(fast, &in[2000*block + 256*warp + 1024*i + 16*row + col], [=](int at) { return 256*warp + 1024*i + 16*row + col + at < 2000 && 2000*block + 256*warp + 1024*i + 16*row + col + at < length; }); },
                [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_A[16*row + col], held); });

            // 5.1.3  sync warp
            __syncwarp();

            // 5.1.4  A <- LoadTile(t_A[0 ... +256], rowmajor, stride=16)
            wmma::load_matrix_sync(A, &t_A[0], 16);
        }

        // 5.2  AU <- 0
        wmma::fill_fragment(AU, 0.0f);

        // 5.3  AU <- A.U + AU
        wmma::mma_sync(AU, A, U, AU);

        // 5.4  V <- 0
        wmma::fill_fragment(V, 0.0f);

        // 5.5  V <- A.J + V
        wmma::mma_sync(V, A, J, V);

        // 5.6  StoreTile(s_V[0 ... +256], rowmajor, stride=16) <- V
        wmma::store_matrix_sync(&s_V[0], V, 16, wmma::mem_row_major);

        // 5.7  sync warp
        __syncwarp();

        // 5.8  x[row] <- s_V[16*row]  16x1
        tcu::move<16, 1>(lane,
            [=](auto, int row, int col) { return s_V[16*row]; },
            [=](auto, int row, int col, auto& held) { x[row] = held; });

        // 5.9  sync warp
        __syncwarp();

        // 5.10  y[row] <- x[row] + x[-1 + row where 0 < row]  16x1
        tcu::move<16, 1>(lane,
            [=](auto, int row, int col) { return tcu::add(x[row], (0 < row ? x[row - 1] : 0.0f)); },
            [=](auto, int row, int col, auto& held) { y[row] = held; });

        // 5.11  sync warp
        __syncwarp();

        // 5.12  x[row] <- y[row] + y[-2 + row where 1 < row]  16x1
        tcu::move<16, 1>(lane,
            [=](auto, int row, int col) { return tcu::add(y[row], (1 < row ? y[row - 2] : 0.0f)); },
            [=](auto, int row, int col, auto& held) { x[row] = held; });

        // 5.13  sync warp
        __syncwarp();

        // 5.14  y[row] <- x[row] + x[-4 + row where 3 < row]  16x1
        tcu::move<16, 1>(lane,
            [=](auto, int row, int col) { return tcu::add(x[row], (3 < row ? x[row - 4] : 0.0f)); },
            [=](auto, int row, int col, auto& held) { y[row] = held; });

        // 5.15  sync warp
        __syncwarp();

        // 5.16  x[row] <- y[row] + y[-8 + row where 7 < row]  16x1
        tcu::move<16, 1>(lane,
            [=](auto, int row, int col) { return tcu::add(y[row], (7 < row ? y[row - 8] : 0.0f)); },
            [=](auto, int row, int col, auto& held) { x[row] = held; });

        // 5.17  sync warp
        __syncwarp();

        // 5.18  t_C[16*row + col] <- x[-1 + row where 0 < row]  16x16
        tcu::move<16, 16, 1, 8>(lane,
            [=](auto, int row, int col) { return (0 < row ? x[row - 1] : 0.0f); },
            [=](auto, int row, int col, auto& held) { t_C[16*row + col] = held; });

        // 5.19  sync warp
        __syncwarp();

        // 5.20  C <- LoadTile(t_C[0 ... +256], rowmajor, stride=16)
        wmma::load_matrix_sync(C, &t_C[0], 16, wmma::mem_row_major);

        // 5.21  C <- C + Z  (rounded)
        for (int e = 0; e < C.num_elements; ++e) C.x[e] = tcu::add(C.x[e], Z.x[e]);

        // 5.22  R <- AU + C  (rounded)
        for (int e = 0; e < R.num_elements; ++e) R.x[e] = tcu::add(AU.x[e], C.x[e]);

        // 5.23  StoreTile(s_R[0 ... +256], rowmajor, stride=16) <- R
        wmma::store_matrix_sync(&s_R[0], R, 16, wmma::mem_row_major);

        // 5.24  sync warp
        __syncwarp();

        // 5.25  totals[warp] <- s_R[255]  1x1
        tcu::move<1, 1>(lane,
            [=](auto, int row, int col) { return s_R[255]; },
            [=](auto, int row, int col, auto& held) { totals[warp] = held; });

        // 5.26  sync block
        __syncthreads();

        // 5.27  if warp < 1
        if (warp < 1) {

            // 5.27.1  prtls1[col] <- totals[col] + totals[-1 + col where 0 < col]  1x4
            tcu::move<1, 4>(lane,
                [=](auto, int row, int col) { return tcu::add(totals[col], (0 < col ? totals[col - 1] : 0.0f)); },
                [=](auto, int row, int col, auto& held) { prtls1[col] = held; });

            // 5.27.2  sync warp
            __syncwarp();

            // 5.27.3  prtls2[col] <- prtls1[col] + prtls1[-2 + col where 1 < col]  1x4
            tcu::move<1, 4>(lane,
                [=](auto, int row, int col) { return tcu::add(prtls1[col], (1 < col ? prtls1[col - 2] : 0.0f)); },
                [=](auto, int row, int col, auto& held) { prtls2[col] = held; });

            // 5.27.4  StoreTile(s_S[0 ... +256], rowmajor, stride=16) <- S
            wmma::store_matrix_sync(&s_S[0], S, 16, wmma::mem_row_major);

            // 5.27.5  sync warp
            __syncwarp();

            // 5.27.6  prtls[col] <- prtls2[-1 + col where 0 < col] + s_S[0]  1x4
            tcu::move<1, 4>(lane,
                [=](auto, int row, int col) { return tcu::add((0 < col ? prtls2[col - 1] : 0.0f), s_S[0]); },
                [=](auto, int row, int col, auto& held) { prtls[col] = held; });

            // 5.27.7  sync warp
            __syncwarp();

            // 5.27.8  t_S[16*row + col] <- prtls[3] + totals[3]  16x16
            tcu::move<16, 16, 4, 2>(lane,
                [=](auto, int row, int col) { return tcu::add(tcu::repeat<4>(prtls[3]), tcu::repeat<4>(totals[3])); },
                [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&t_S[16*row + col], held); });

            // 5.27.9  sync warp
            __syncwarp();

            // 5.27.10  S <- LoadTile(t_S[0 ... +256], rowmajor, stride=16)
            wmma::load_matrix_sync(S, &t_S[0], 16, wmma::mem_row_major);
        }

        // 5.28  sync block
        __syncthreads();

        // 5.29  out[2000*block + 1024*i + 256*warp + 16*row + col where col + 1024*i + 16*row + 256*warp < 2000 and 2000*block + col + 1024*i + 16*row + 256*warp < length] <- s_R[16*row + col] + prtls[warp]  16x16
        tcu::move<16, 16, 4, 2>(lane, tcu::is_multiple(out, 16) && 256*warp + 1024*i + 255 < 2000 && 2000*block + 256*warp + 1024*i + 255 < length,
            [=](auto, int row, int col) { return tcu::add(tcu::load<4, tcu::Aligned>(&s_R[16*row + col]), tcu::repeat<4>(prtls[warp])); },
            [=](auto fast, int row, int col, auto& held) { tcu::store(fast, &out[2000*block + 256*warp + 1024*i + 16*row + col], held, [=](int at) { return 256*warp + 1024*i + 16*row + col + at < 2000 && 2000*block + 256*warp + 1024*i + 16*row + col + at < length; }); });
    }
}
