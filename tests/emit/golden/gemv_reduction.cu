#include "tcusim.cuh"
using namespace nvcuda;

// gemv_reduction: 8x32x16, f16 to f32   not in the paper
extern "C" __global__ void
__launch_bounds__(64)
gemv_reduction(const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ out, const long long rows)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half a0_s_all[2][2304];
    const tcu::Shared<half> a0_s = {a0_s_all[warp]};
    __shared__ __align__(32) half a1_s_all[2][2304];
    const tcu::Shared<half> a1_s = {a1_s_all[warp]};
    __shared__ __align__(32) half x_s_all[368];
    const tcu::Shared<half> x_s = {x_s_all};
    __shared__ __align__(32) float s_C_all[2][256];
    const tcu::Shared<float> s_C = {s_C_all[warp]};
    wmma::fragment<wmma::accumulator, 8, 32, 16, float> C;
    wmma::fragment<wmma::matrix_a, 8, 32, 16, half, wmma::row_major> X;
    wmma::fragment<wmma::matrix_b, 8, 32, 16, half, wmma::col_major> A0;

    // 1  C <- 0
    wmma::fill_fragment(C, 0.0f);

    // 2  x_s[192*warp + row + 16*col where col + 12*warp < 23] <- b[192*warp + row + 16*col < 256 where col + 12*warp < 23]  16x12

    // 3  a0_s[row + 72*col] <- a[16384*block + 8192*warp + row + 256*col where 64*block + col + 32*warp < rows]  64x32
    tcu::move_together<
        tcu::Rectangle<16, 12, 8, 1, true>, tcu::Rectangle<64, 32, 8, 1, true>>(
        lane, tcu::is_multiple(b, 16) && 12*warp + 11 < 23 && 192*warp + 191 < 256 && 64*block + 32*warp + 31 < rows,
        [=](auto fast, int row, int col) { return tcu::load<8>(fast, &b[192*warp + row + 16*col], [=](int at) { return 192*warp + row + 16*col + at < 256 && 12*warp + col < 23; }); },
        [=](auto fast, int row, int col, auto& held) { tcu::store<tcu::Aligned>(fast, &x_s[192*warp + row + 16*col], held, [=](int at) { return 12*warp + col < 23; }); },
        [=](auto fast, int row, int col) { return tcu::load<8, tcu::Aligned>(fast, &a[16384*block + 8192*warp + row + 256*col], [=](int at) { return 64*block + 32*warp + col < rows; }); },
        [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&a0_s[row + 72*col], held); });

    // 4  sync block
    __syncthreads();

    // 5  a1_s[row + 72*col] <- a[16384*block + 8192*warp + 64 + row + 256*col where 64*block + col + 32*warp < rows]  64x32
    tcu::copy_async_apart<64, 32, 8, 288, 1024, true>(lane,
        [=](int row, int col) { return &a1_s[tcu::unknown(row + 72*col)]; },
        [=](int row, int col) { return &a[tcu::unknown(16384*block + 8192*warp + row + 256*col)] + 64; },
        [=](int row, int col) { return 64*block + 32*warp + col < rows; });

    // 6  X <- LoadTile(x_s[0 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[0], 16);

    // 7  A0 <- LoadTile(a0_s[0 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a0_s[0], 72);

    // 8  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 9  X <- LoadTile(x_s[16 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[16], 16);

    // 10  A0 <- LoadTile(a0_s[16 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a0_s[16], 72);

    // 11  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 12  X <- LoadTile(x_s[32 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[32], 16);

    // 13  A0 <- LoadTile(a0_s[32 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a0_s[32], 72);

    // 14  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 15  X <- LoadTile(x_s[48 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[48], 16);

    // 16  A0 <- LoadTile(a0_s[48 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a0_s[48], 72);

    // 17  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 18  sync warp
    tcu::wait_for_copies();
    __syncwarp();

    // 19  a0_s[row + 72*col] <- a[16384*block + 8192*warp + 128 + row + 256*col where 64*block + col + 32*warp < rows]  64x32
    tcu::copy_async_apart<64, 32, 8, 288, 1024, true>(lane,
        [=](int row, int col) { return &a0_s[tcu::unknown(row + 72*col)]; },
        [=](int row, int col) { return &a[tcu::unknown(16384*block + 8192*warp + row + 256*col)] + 128; },
        [=](int row, int col) { return 64*block + 32*warp + col < rows; });

    // 20  X <- LoadTile(x_s[64 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[64], 16);

    // 21  A0 <- LoadTile(a1_s[0 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a1_s[0], 72);

    // 22  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 23  X <- LoadTile(x_s[80 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[80], 16);

    // 24  A0 <- LoadTile(a1_s[16 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a1_s[16], 72);

    // 25  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 26  X <- LoadTile(x_s[96 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[96], 16);

    // 27  A0 <- LoadTile(a1_s[32 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a1_s[32], 72);

    // 28  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 29  X <- LoadTile(x_s[112 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[112], 16);

    // 30  A0 <- LoadTile(a1_s[48 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a1_s[48], 72);

    // 31  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 32  sync warp
    tcu::wait_for_copies();
    __syncwarp();

    // 33  a1_s[row + 72*col] <- a[16384*block + 8192*warp + 192 + row + 256*col where 64*block + col + 32*warp < rows]  64x32
    tcu::copy_async_apart<64, 32, 8, 288, 1024, true>(lane,
        [=](int row, int col) { return &a1_s[tcu::unknown(row + 72*col)]; },
        [=](int row, int col) { return &a[tcu::unknown(16384*block + 8192*warp + row + 256*col)] + 192; },
        [=](int row, int col) { return 64*block + 32*warp + col < rows; });

    // 34  X <- LoadTile(x_s[128 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[128], 16);

    // 35  A0 <- LoadTile(a0_s[0 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a0_s[0], 72);

    // 36  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 37  X <- LoadTile(x_s[144 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[144], 16);

    // 38  A0 <- LoadTile(a0_s[16 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a0_s[16], 72);

    // 39  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 40  X <- LoadTile(x_s[160 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[160], 16);

    // 41  A0 <- LoadTile(a0_s[32 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a0_s[32], 72);

    // 42  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 43  X <- LoadTile(x_s[176 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[176], 16);

    // 44  A0 <- LoadTile(a0_s[48 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a0_s[48], 72);

    // 45  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 46  X <- LoadTile(x_s[192 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[192], 16);

    // 47  sync warp
    tcu::wait_for_copies();
    __syncwarp();

    // 48  A0 <- LoadTile(a1_s[0 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a1_s[0], 72);

    // 49  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 50  X <- LoadTile(x_s[208 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[208], 16);

    // 51  A0 <- LoadTile(a1_s[16 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a1_s[16], 72);

    // 52  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 53  X <- LoadTile(x_s[224 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[224], 16);

    // 54  A0 <- LoadTile(a1_s[32 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a1_s[32], 72);

    // 55  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 56  X <- LoadTile(x_s[240 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, &x_s[240], 16);

    // 57  A0 <- LoadTile(a1_s[48 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, &a1_s[48], 72);

    // 58  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 59  StoreTile(s_C[0 ... +256], colmajor, stride=8) <- C
    wmma::store_matrix_sync(&s_C[0], C, 8, wmma::mem_col_major);

    // 60  sync warp
    __syncwarp();

    // 61  out[64*block + 32*warp + col where 64*block + col + 32*warp < rows] <- s_C[8*col]  1x32
    tcu::move<1, 32>(lane,
        [=](auto, int row, int col) { return s_C[8*col]; },
        [=](auto, int row, int col, auto& held) { if (64*block + 32*warp + col < rows) out[64*block + 32*warp + col] = held; });
}
