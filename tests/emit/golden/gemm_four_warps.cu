#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include "tcusim.cuh"
using namespace nvcuda;

// gemm: 16x16x16, f16 to f32   [DAKKAK19] section 2, C = A.B + C
extern "C" __global__ void
__launch_bounds__(128)
gemm(const half* __restrict__ a, const half* __restrict__ b, half* __restrict__ out, const long long rows)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x / 2;
    const int block_col = blockIdx.x % 2;
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
    if (tcu::is_multiple(a, 16) && tcu::is_multiple(b, 16) && 32*block + 8*warp + 7 < rows) {
        tcu::Vector<half, 8> held0[1];
        tcu::Vector<half, 8> held1[1];
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            held0[0] = tcu::load<8, tcu::Aligned>(&a[4096*block + 1024*warp + 128*row + col]);
        }
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            held1[0] = tcu::load<8, tcu::Aligned>(&b[32*block_col + 512*warp + 64*row + col]);
        }
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::store<tcu::Aligned>(&a0_s[320*warp + 40*row + col], held0[0]);
        }
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::store<tcu::Aligned>(&b0_s[320*warp + 40*row + col], held1[0]);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::Vector<half, 8> held = tcu::load<8>(&a[4096*block + 1024*warp + 128*row + col], [&](int at) { return 32*block + 8*warp + row < rows; });
            tcu::store<tcu::Aligned>(&a0_s[320*warp + 40*row + col], held);
        }
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::Vector<half, 8> held = tcu::load<8>(&b[32*block_col + 512*warp + 64*row + col]);
            tcu::store<tcu::Aligned>(&b0_s[320*warp + 40*row + col], held);
        }
    }

    // 4  sync block
    __syncthreads();

    // 5  a1_s[320*warp + 40*row + col] <- a[4096*block + 1024*warp + 32 + 128*row + col where 32*block + row + 8*warp < rows]  8x32
    if (tcu::is_multiple(a, 16) && 32*block + 8*warp + 7 < rows) {
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8, tcu::Aligned>(&a1_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 32]);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8>(&a1_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 32], [&](int at) { return 32*block + 8*warp + row < rows; });
        }
    }

    // 6  b1_s[320*warp + 40*row + col] <- b[32*block_col + 512*warp + 2048 + 64*row + col]  8x32
    if (tcu::is_multiple(b, 16)) {
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8, tcu::Aligned>(&b1_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 2048]);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8>(&b1_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 2048]);
        }
    }

    // 7  if warp < 2
    if (warp < 2) {

        // 7.1  A0 <- LoadTile(a0_s[0 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a0_s[0], 40);

        // 7.2  B0 <- LoadTile(b0_s[16*warp ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b0_s[16*warp], 40);
    }
    else {

        // 7.3  A0 <- LoadTile(a0_s[640 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a0_s[640], 40);

        // 7.4  B0 <- LoadTile(b0_s[16*warp - 32 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b0_s[16*warp - 32], 40);
    }

    // 8  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 9  if warp < 2
    if (warp < 2) {

        // 9.1  A0 <- LoadTile(a0_s[16 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a0_s[16], 40);

        // 9.2  B0 <- LoadTile(b0_s[16*warp + 640 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b0_s[16*warp + 640], 40);
    }
    else {

        // 9.3  A0 <- LoadTile(a0_s[656 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a0_s[656], 40);

        // 9.4  B0 <- LoadTile(b0_s[16*warp + 608 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b0_s[16*warp + 608], 40);
    }

    // 10  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 11  sync block
    tcu::wait_for_copies();
    __syncthreads();

    // 12  a0_s[320*warp + 40*row + col] <- a[4096*block + 1024*warp + 64 + 128*row + col where 32*block + row + 8*warp < rows]  8x32
    if (tcu::is_multiple(a, 16) && 32*block + 8*warp + 7 < rows) {
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8, tcu::Aligned>(&a0_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 64]);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8>(&a0_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 64], [&](int at) { return 32*block + 8*warp + row < rows; });
        }
    }

    // 13  b0_s[320*warp + 40*row + col] <- b[32*block_col + 512*warp + 4096 + 64*row + col]  8x32
    if (tcu::is_multiple(b, 16)) {
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8, tcu::Aligned>(&b0_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 4096]);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8>(&b0_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 4096]);
        }
    }

    // 14  if warp < 2
    if (warp < 2) {

        // 14.1  A0 <- LoadTile(a1_s[0 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a1_s[0], 40);

        // 14.2  B0 <- LoadTile(b1_s[16*warp ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b1_s[16*warp], 40);
    }
    else {

        // 14.3  A0 <- LoadTile(a1_s[640 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a1_s[640], 40);

        // 14.4  B0 <- LoadTile(b1_s[16*warp - 32 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b1_s[16*warp - 32], 40);
    }

    // 15  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 16  if warp < 2
    if (warp < 2) {

        // 16.1  A0 <- LoadTile(a1_s[16 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a1_s[16], 40);

        // 16.2  B0 <- LoadTile(b1_s[16*warp + 640 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b1_s[16*warp + 640], 40);
    }
    else {

        // 16.3  A0 <- LoadTile(a1_s[656 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a1_s[656], 40);

        // 16.4  B0 <- LoadTile(b1_s[16*warp + 608 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b1_s[16*warp + 608], 40);
    }

    // 17  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 18  sync block
    tcu::wait_for_copies();
    __syncthreads();

    // 19  a1_s[320*warp + 40*row + col] <- a[4096*block + 1024*warp + 96 + 128*row + col where 32*block + row + 8*warp < rows]  8x32
    if (tcu::is_multiple(a, 16) && 32*block + 8*warp + 7 < rows) {
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8, tcu::Aligned>(&a1_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 96]);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8>(&a1_s[320*warp + 40*row + col], &a[4096*block + 1024*warp + 128*row + col + 96], [&](int at) { return 32*block + 8*warp + row < rows; });
        }
    }

    // 20  b1_s[320*warp + 40*row + col] <- b[32*block_col + 512*warp + 6144 + 64*row + col]  8x32
    if (tcu::is_multiple(b, 16)) {
        {
            const int e = lane;
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8, tcu::Aligned>(&b1_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 6144]);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = e / 4;
            const int col = 8*(e % 4);
            tcu::copy_async<8>(&b1_s[320*warp + 40*row + col], &b[32*block_col + 512*warp + 64*row + col + 6144]);
        }
    }

    // 21  if warp < 2
    if (warp < 2) {

        // 21.1  A0 <- LoadTile(a0_s[0 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a0_s[0], 40);

        // 21.2  B0 <- LoadTile(b0_s[16*warp ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b0_s[16*warp], 40);
    }
    else {

        // 21.3  A0 <- LoadTile(a0_s[640 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a0_s[640], 40);

        // 21.4  B0 <- LoadTile(b0_s[16*warp - 32 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b0_s[16*warp - 32], 40);
    }

    // 22  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 23  if warp < 2
    if (warp < 2) {

        // 23.1  A0 <- LoadTile(a0_s[16 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a0_s[16], 40);

        // 23.2  B0 <- LoadTile(b0_s[16*warp + 640 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b0_s[16*warp + 640], 40);
    }
    else {

        // 23.3  A0 <- LoadTile(a0_s[656 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a0_s[656], 40);

        // 23.4  B0 <- LoadTile(b0_s[16*warp + 608 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b0_s[16*warp + 608], 40);
    }

    // 24  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 25  sync block
    tcu::wait_for_copies();
    __syncthreads();

    // 26  if warp < 2
    if (warp < 2) {

        // 26.1  A0 <- LoadTile(a1_s[0 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a1_s[0], 40);

        // 26.2  B0 <- LoadTile(b1_s[16*warp ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b1_s[16*warp], 40);
    }
    else {

        // 26.3  A0 <- LoadTile(a1_s[640 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a1_s[640], 40);

        // 26.4  B0 <- LoadTile(b1_s[16*warp - 32 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b1_s[16*warp - 32], 40);
    }

    // 27  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 28  if warp < 2
    if (warp < 2) {

        // 28.1  A0 <- LoadTile(a1_s[16 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a1_s[16], 40);

        // 28.2  B0 <- LoadTile(b1_s[16*warp + 640 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b1_s[16*warp + 640], 40);
    }
    else {

        // 28.3  A0 <- LoadTile(a1_s[656 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(A0, &a1_s[656], 40);

        // 28.4  B0 <- LoadTile(b1_s[16*warp + 608 ... +616], rowmajor, stride=40)
        wmma::load_matrix_sync(B0, &b1_s[16*warp + 608], 40);
    }

    // 29  C <- A0.B0 + C
    wmma::mma_sync(C, A0, B0, C);

    // 30  if warp < 2
    if (warp < 2) {

        // 30.1  StoreTile(s_C[0 ... +256], rowmajor, stride=16) <- C
        wmma::store_matrix_sync(&s_C[0], C, 16, wmma::mem_row_major);

        // 30.2  sync warp
        __syncwarp();

        // 30.3  out[2048*block + 32*block_col + 16*warp + 64*row + col where 32*block + row < rows] <- s_C[16*row + col]  16x16
        if (tcu::is_multiple(out, 8) && 32*block + 15 < rows) {
            {
                tcu::Vector<float, 4> held[2];
                #pragma unroll
                for (int nth = 0; nth < 2; ++nth) {
                    const int e = lane + 32*nth;
                    const int row = e / 4;
                    const int col = 4*(e % 4);
                    held[nth] = tcu::load<4, tcu::Aligned>(&s_C[16*row + col]);
                }
                #pragma unroll
                for (int nth = 0; nth < 2; ++nth) {
                    const int e = lane + 32*nth;
                    const int row = e / 4;
                    const int col = 4*(e % 4);
                    tcu::store<tcu::Aligned>(&out[2048*block + 32*block_col + 16*warp + 64*row + col], tcu::convert<half>(held[nth]));
                }
            }
        }
        else {
            #pragma unroll 1
            for (int e = lane; e < 64; e += 32) {
                const int row = e / 4;
                const int col = 4*(e % 4);
                tcu::Vector<float, 4> held = tcu::load<4, tcu::Aligned>(&s_C[16*row + col]);
                tcu::store(&out[2048*block + 32*block_col + 16*warp + 64*row + col], tcu::convert<half>(held), [&](int at) { return 32*block + row < rows; });
            }
        }
    }
    else {

        // 30.4  StoreTile(s_C[0 ... +256], rowmajor, stride=16) <- C
        wmma::store_matrix_sync(&s_C[0], C, 16, wmma::mem_row_major);

        // 30.5  sync warp
        __syncwarp();

        // 30.6  out[2048*block + 32*block_col + 16*warp + 992 + 64*row + col where 32*block + row + 16 < rows] <- s_C[16*row + col]  16x16
        if (tcu::is_multiple(out, 8) && 32*block + 31 < rows) {
            {
                tcu::Vector<float, 4> held[2];
                #pragma unroll
                for (int nth = 0; nth < 2; ++nth) {
                    const int e = lane + 32*nth;
                    const int row = e / 4;
                    const int col = 4*(e % 4);
                    held[nth] = tcu::load<4, tcu::Aligned>(&s_C[16*row + col]);
                }
                #pragma unroll
                for (int nth = 0; nth < 2; ++nth) {
                    const int e = lane + 32*nth;
                    const int row = e / 4;
                    const int col = 4*(e % 4);
                    tcu::store<tcu::Aligned>(&out[2048*block + 32*block_col + 16*warp + 64*row + col + 992], tcu::convert<half>(held[nth]));
                }
            }
        }
        else {
            #pragma unroll 1
            for (int e = lane; e < 64; e += 32) {
                const int row = e / 4;
                const int col = 4*(e % 4);
                tcu::Vector<float, 4> held = tcu::load<4, tcu::Aligned>(&s_C[16*row + col]);
                tcu::store(&out[2048*block + 32*block_col + 16*warp + 64*row + col + 992], tcu::convert<half>(held), [&](int at) { return 32*block + row + 16 < rows; });
            }
        }
    }
}
