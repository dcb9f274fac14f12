#include "tcusim.cuh"
using namespace nvcuda;

// gemm: 16x16x16, f16 to f32   [DAKKAK19] section 2, C = A.B + C
extern "C" __global__ void
__launch_bounds__(128)
gemm(const half* __restrict__ a, const half* __restrict__ b, half* __restrict__ out, const long long rows)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warp_row = warp / 2;
    const int warp_col = warp % 2;
    const long long block = tcu::row_in_bands<2, 8>(blockIdx.x, (rows + 31) / 32);
    const int block_col = tcu::col_in_bands<2, 8>(blockIdx.x, (rows + 31) / 32);
    __shared__ __align__(32) half a0_s_all[1280];
    const tcu::Shared<half> a0_s = {a0_s_all};
    __shared__ __align__(32) half a1_s_all[1280];
    const tcu::Shared<half> a1_s = {a1_s_all};
    __shared__ __align__(32) half b0_s_all[1280];
    const tcu::Shared<half> b0_s = {b0_s_all};
    __shared__ __align__(32) half b1_s_all[1280];
    const tcu::Shared<half> b1_s = {b1_s_all};
    __shared__ __align__(32) float s_C_all[4][256];
    const tcu::Shared<float> s_C = {s_C_all[warp]};
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> C;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> A0;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> B0;

    // 1  C <- 0
    wmma::fill_fragment(C, 0.0f);

    // 2  a0_s[320*warp + 40*row + col] <- a[4096*block + 1024*warp + 128*row + col where 32*block + row + 8*warp < rows]  8x32

    // 3  b0_s[320*warp + 40*row + col] <- b[32*block_col + 512*warp + 64*row + col]  8x32
    tcu::move_together<
        tcu::Rectangle<8, 32, 8>, tcu::Rectangle<8, 32, 8>>(
        lane, 32*block + 8*warp + 7 < rows,
        [=](auto fast, int row, int col) { return tcu::load<8, tcu::Aligned>(fast, &a[4096*block + 1024*warp + 128*row + col], [=](int at) { return 32*block + 8*warp + row < rows; }); },
        [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&a0_s[320*warp + 40*row + col], held); },
        [=](auto, int row, int col) { return tcu::load<8, tcu::Aligned>(&b[32*block_col + 512*warp + 64*row + col]); },
        [=](auto, int row, int col, auto& held) { tcu::store<tcu::Aligned>(&b0_s[320*warp + 40*row + col], held); });

    // 4  sync block
    __syncthreads();

    // 5  A0 <- LoadTile(a0_s[640*warp_row ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(A0, &a0_s[640*warp_row], 40);

    // 6  B0 <- LoadTile(b0_s[16*warp_col ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(B0, &b0_s[16*warp_col], 40);

    // 7  a1_s[320*warp + 40*row + col] <- a[4096*block + 1024*warp + 32 + 128*row + col where 32*block + row + 8*warp < rows]  8x32
    tcu::each<8, 32, 8>(lane,
        [=](auto, int row, int col) { tcu::copy_whole_async<8>(&a1_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 32], 32*block + 8*warp + row < rows); });

    // 8  b1_s[320*warp + 40*row + col] <- b[32*block_col + 512*warp + 2048 + 64*row + col]  8x32
    tcu::each<8, 32, 8>(lane,
        [=](auto, int row, int col) { tcu::copy_whole_async<8>(&b1_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 2048]); });

    // 9  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 10  A0 <- LoadTile(a0_s[640*warp_row + 16 ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(A0, &a0_s[640*warp_row + 16], 40);

    // 11  B0 <- LoadTile(b0_s[16*warp_col + 640 ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(B0, &b0_s[16*warp_col + 640], 40);

    // 12  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 13  sync block
    tcu::wait_for_copies();
    __syncthreads();

    // 14  A0 <- LoadTile(a1_s[640*warp_row ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(A0, &a1_s[640*warp_row], 40);

    // 15  B0 <- LoadTile(b1_s[16*warp_col ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(B0, &b1_s[16*warp_col], 40);

    // 16  a0_s[320*warp + 40*row + col] <- a[4096*block + 1024*warp + 64 + 128*row + col where 32*block + row + 8*warp < rows]  8x32
    tcu::each<8, 32, 8>(lane,
        [=](auto, int row, int col) { tcu::copy_whole_async<8>(&a0_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 64], 32*block + 8*warp + row < rows); });

    // 17  b0_s[320*warp + 40*row + col] <- b[32*block_col + 512*warp + 4096 + 64*row + col]  8x32
    tcu::each<8, 32, 8>(lane,
        [=](auto, int row, int col) { tcu::copy_whole_async<8>(&b0_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 4096]); });

    // 18  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 19  A0 <- LoadTile(a1_s[640*warp_row + 16 ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(A0, &a1_s[640*warp_row + 16], 40);

    // 20  B0 <- LoadTile(b1_s[16*warp_col + 640 ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(B0, &b1_s[16*warp_col + 640], 40);

    // 21  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 22  sync block
    tcu::wait_for_copies();
    __syncthreads();

    // 23  A0 <- LoadTile(a0_s[640*warp_row ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(A0, &a0_s[640*warp_row], 40);

    // 24  B0 <- LoadTile(b0_s[16*warp_col ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(B0, &b0_s[16*warp_col], 40);

    // 25  a1_s[320*warp + 40*row + col] <- a[4096*block + 1024*warp + 96 + 128*row + col where 32*block + row + 8*warp < rows]  8x32
    tcu::each<8, 32, 8>(lane,
        [=](auto, int row, int col) { tcu::copy_whole_async<8>(&a1_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 96], 32*block + 8*warp + row < rows); });

    // 26  b1_s[320*warp + 40*row + col] <- b[32*block_col + 512*warp + 6144 + 64*row + col]  8x32
    tcu::each<8, 32, 8>(lane,
        [=](auto, int row, int col) { tcu::copy_whole_async<8>(&b1_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 6144]); });

    // 27  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 28  A0 <- LoadTile(a0_s[640*warp_row + 16 ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(A0, &a0_s[640*warp_row + 16], 40);

    // 29  B0 <- LoadTile(b0_s[16*warp_col + 640 ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(B0, &b0_s[16*warp_col + 640], 40);

    // 30  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 31  sync block
    tcu::wait_for_copies();
    __syncthreads();

    // 32  A0 <- LoadTile(a1_s[640*warp_row ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(A0, &a1_s[640*warp_row], 40);

    // 33  B0 <- LoadTile(b1_s[16*warp_col ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(B0, &b1_s[16*warp_col], 40);

    // 34  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 35  A0 <- LoadTile(a1_s[640*warp_row + 16 ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(A0, &a1_s[640*warp_row + 16], 40);

    // 36  B0 <- LoadTile(b1_s[16*warp_col + 640 ... +616], rowmajor, stride=40)
    wmma::load_matrix_sync(B0, &b1_s[16*warp_col + 640], 40);

    // 37  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 38  StoreTile(s_C[0 ... +256], rowmajor, stride=16) <- C
    wmma::store_matrix_sync(&s_C[0], C, 16, wmma::mem_row_major);

    // 39  sync warp
    __syncwarp();

    // 40  out[2048*block + 32*block_col + 16*warp_col + 1024*warp_row + 64*row + col where 32*block + row + 16*warp_row < rows] <- f16(s_C[16*row + col])  16x16
    tcu::move<16, 16, 4, 2>(lane, tcu::is_multiple(out, 8) && 32*block + 16*warp_row + 15 < rows,
        [=](auto, int row, int col) { return tcu::load<4, tcu::Aligned>(&s_C[16*row + col]); },
        [=](auto fast, int row, int col, auto& held) { tcu::store(fast, &out[2048*block + 32*block_col + 1024*warp_row + 16*warp_col + 64*row + col], tcu::convert<half>(held), [=](int at) { return 32*block + 16*warp_row + row < rows; }); });
}
