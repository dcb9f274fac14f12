#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
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
    __shared__ __align__(32) half x_s[368];
    __shared__ __align__(32) half a0_s_of[2][2304];
    half* const a0_s = a0_s_of[warp];
    __shared__ __align__(32) half a1_s_of[2][2304];
    half* const a1_s = a1_s_of[warp];
    __shared__ __align__(32) float s_C_of[2][256];
    float* const s_C = s_C_of[warp];
    wmma::fragment<wmma::accumulator, 8, 32, 16, float> C;
    wmma::fragment<wmma::matrix_a, 8, 32, 16, half, wmma::row_major> X;
    wmma::fragment<wmma::matrix_b, 8, 32, 16, half, wmma::col_major> A0;

    // 1  C <- 0
    wmma::fill_fragment(C, 0.0f);

    // 2  sync block
    __syncthreads();

    // 3  x_s[192*warp + row + 16*col where col + 12*warp < 23] <- b[192*warp + row + 16*col < 256 where col + 12*warp < 23]  16x12
    for (int e = lane; e < 192; e += 32) {
        const int row = e % 16;
        const int col = e / 16;
        if (12*warp + col < 23) x_s[192*warp + row + 16*col] = (192*warp + row + 16*col < 256 && 12*warp + col < 23 ? b[192*warp + row + 16*col] : tcu::convert<half>(0.0f));
    }

    // 4  a0_s[row + 72*col] <- a[16384*block + 8192*warp + row + 256*col where 64*block + col + 32*warp < rows]  64x32
    for (int e = lane; e < 2048; e += 32) {
        const int row = e % 64;
        const int col = e / 64;
        a0_s[row + 72*col] = (64*block + 32*warp + col < rows ? a[16384*block + 8192*warp + row + 256*col] : tcu::convert<half>(0.0f));
    }

    // 5  sync block
    __syncthreads();

    // 6  a1_s[row + 72*col] <- a[16384*block + 8192*warp + 64 + row + 256*col where 64*block + col + 32*warp < rows]  64x32
    for (int e = lane; e < 2048; e += 32) {
        const int row = e % 64;
        const int col = e / 64;
        a1_s[row + 72*col] = (64*block + 32*warp + col < rows ? a[16384*block + 8192*warp + row + 256*col + 64] : tcu::convert<half>(0.0f));
    }

    // 7  X <- LoadTile(x_s[0 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s, 16);

    // 8  A0 <- LoadTile(a0_s[0 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a0_s, 72);

    // 9  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 10  X <- LoadTile(x_s[16 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 16, 16);

    // 11  A0 <- LoadTile(a0_s[16 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a0_s + 16, 72);

    // 12  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 13  X <- LoadTile(x_s[32 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 32, 16);

    // 14  A0 <- LoadTile(a0_s[32 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a0_s + 32, 72);

    // 15  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 16  X <- LoadTile(x_s[48 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 48, 16);

    // 17  A0 <- LoadTile(a0_s[48 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a0_s + 48, 72);

    // 18  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 19  sync warp
    __syncwarp();

    // 20  a0_s[row + 72*col] <- a[16384*block + 8192*warp + 128 + row + 256*col where 64*block + col + 32*warp < rows]  64x32
    for (int e = lane; e < 2048; e += 32) {
        const int row = e % 64;
        const int col = e / 64;
        a0_s[row + 72*col] = (64*block + 32*warp + col < rows ? a[16384*block + 8192*warp + row + 256*col + 128] : tcu::convert<half>(0.0f));
    }

    // 21  X <- LoadTile(x_s[64 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 64, 16);

    // 22  A0 <- LoadTile(a1_s[0 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a1_s, 72);

    // 23  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 24  X <- LoadTile(x_s[80 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 80, 16);

    // 25  A0 <- LoadTile(a1_s[16 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a1_s + 16, 72);

    // 26  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 27  X <- LoadTile(x_s[96 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 96, 16);

    // 28  A0 <- LoadTile(a1_s[32 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a1_s + 32, 72);

    // 29  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 30  X <- LoadTile(x_s[112 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 112, 16);

    // 31  A0 <- LoadTile(a1_s[48 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a1_s + 48, 72);

    // 32  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 33  sync warp
    __syncwarp();

    // 34  a1_s[row + 72*col] <- a[16384*block + 8192*warp + 192 + row + 256*col where 64*block + col + 32*warp < rows]  64x32
    for (int e = lane; e < 2048; e += 32) {
        const int row = e % 64;
        const int col = e / 64;
        a1_s[row + 72*col] = (64*block + 32*warp + col < rows ? a[16384*block + 8192*warp + row + 256*col + 192] : tcu::convert<half>(0.0f));
    }

    // 35  X <- LoadTile(x_s[128 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 128, 16);

    // 36  A0 <- LoadTile(a0_s[0 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a0_s, 72);

    // 37  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 38  X <- LoadTile(x_s[144 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 144, 16);

    // 39  A0 <- LoadTile(a0_s[16 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a0_s + 16, 72);

    // 40  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 41  X <- LoadTile(x_s[160 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 160, 16);

    // 42  A0 <- LoadTile(a0_s[32 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a0_s + 32, 72);

    // 43  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 44  X <- LoadTile(x_s[176 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 176, 16);

    // 45  A0 <- LoadTile(a0_s[48 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a0_s + 48, 72);

    // 46  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 47  X <- LoadTile(x_s[192 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 192, 16);

    // 48  sync warp
    __syncwarp();

    // 49  A0 <- LoadTile(a1_s[0 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a1_s, 72);

    // 50  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 51  X <- LoadTile(x_s[208 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 208, 16);

    // 52  A0 <- LoadTile(a1_s[16 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a1_s + 16, 72);

    // 53  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 54  X <- LoadTile(x_s[224 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 224, 16);

    // 55  A0 <- LoadTile(a1_s[32 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a1_s + 32, 72);

    // 56  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 57  X <- LoadTile(x_s[240 ... +128], rowmajor, stride=16)
    wmma::load_matrix_sync(X, x_s + 240, 16);

    // 58  A0 <- LoadTile(a1_s[48 ... +2248], colmajor, stride=72)
    wmma::load_matrix_sync(A0, a1_s + 48, 72);

    // 59  C <- X.A0 + C
    wmma::mma_sync(C, X, A0, C);

    // 60  StoreTile(s_C[0 ... +256], colmajor, stride=8) <- C
    wmma::store_matrix_sync(s_C, C, 8, wmma::mem_col_major);

    // 61  sync warp
    __syncwarp();

    // 62  out[64*block + 32*warp + col where 64*block + col + 32*warp < rows] <- s_C[8*col]  1x32
    for (int e = lane; e < 32; e += 32) {
        const int col = e;
        if (64*block + 32*warp + col < rows) out[64*block + 32*warp + col] = s_C[8*col];
    }
}
