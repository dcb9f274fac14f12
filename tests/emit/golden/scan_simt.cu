#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include "tcusim.cuh"
using namespace nvcuda;

// scan_simt: 16x16x16, f16 to f32   not in the paper
extern "C" __global__ void
__launch_bounds__(32)
scan_simt(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half x_all[1][256];
    const tcu::Shared<half> x = {x_all[warp]};
    __shared__ __align__(32) half y_all[1][256];
    const tcu::Shared<half> y = {y_all[warp]};

    // 1  x[col] <- in[256*block + col where 256*block + col < length]  1x256
    if (tcu::is_multiple(in, 16) && 256*block + 255 < length) {
        {
            const int e = lane;
            const int col = 8*e;
            tcu::Vector<half, 8> held = tcu::load<8, tcu::Aligned>(&in[256*block + col]);
            tcu::store<tcu::Aligned>(&x[col], held);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int col = 8*e;
            tcu::Vector<half, 8> held = tcu::load<8>(&in[256*block + col], [&](int at) { return 256*block + col + at < length; });
            tcu::store<tcu::Aligned>(&x[col], held);
        }
    }

    // 2  sync warp
    __syncwarp();

    // 3  y[row] <- x[row] + x[-1 + row where 0 < row]  256x1
    {
        half held[8];
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(x[row], (0 < row ? x[row - 1] : tcu::convert<half>(0.0f)));
        }
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            y[row] = held[nth];
        }
    }

    // 4  sync warp
    __syncwarp();

    // 5  x[row] <- y[row] + y[-2 + row where 1 < row]  256x1
    {
        half held[8];
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(y[row], (1 < row ? y[row - 2] : tcu::convert<half>(0.0f)));
        }
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            x[row] = held[nth];
        }
    }

    // 6  sync warp
    __syncwarp();

    // 7  y[row] <- x[row] + x[-4 + row where 3 < row]  256x1
    {
        half held[8];
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(x[row], (3 < row ? x[row - 4] : tcu::convert<half>(0.0f)));
        }
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            y[row] = held[nth];
        }
    }

    // 8  sync warp
    __syncwarp();

    // 9  x[row] <- y[row] + y[-8 + row where 7 < row]  256x1
    {
        half held[8];
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(y[row], (7 < row ? y[row - 8] : tcu::convert<half>(0.0f)));
        }
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            x[row] = held[nth];
        }
    }

    // 10  sync warp
    __syncwarp();

    // 11  y[row] <- x[row] + x[-16 + row where 15 < row]  256x1
    {
        half held[8];
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(x[row], (15 < row ? x[row - 16] : tcu::convert<half>(0.0f)));
        }
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            y[row] = held[nth];
        }
    }

    // 12  sync warp
    __syncwarp();

    // 13  x[row] <- y[row] + y[-32 + row where 31 < row]  256x1
    {
        half held[8];
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(y[row], (31 < row ? y[row - 32] : tcu::convert<half>(0.0f)));
        }
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            x[row] = held[nth];
        }
    }

    // 14  sync warp
    __syncwarp();

    // 15  y[row] <- x[row] + x[-64 + row where 63 < row]  256x1
    {
        half held[8];
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(x[row], (63 < row ? x[row - 64] : tcu::convert<half>(0.0f)));
        }
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            y[row] = held[nth];
        }
    }

    // 16  sync warp
    __syncwarp();

    // 17  x[row] <- y[row] + y[-128 + row where 127 < row]  256x1
    {
        half held[8];
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(y[row], (127 < row ? y[row - 128] : tcu::convert<half>(0.0f)));
        }
        #pragma unroll
        for (int nth = 0; nth < 8; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            x[row] = held[nth];
        }
    }

    // 18  sync warp
    __syncwarp();

    // 19  out[256*block + col where 256*block + col < length] <- x[col]  1x256
    if (tcu::is_multiple(out, 16) && 256*block + 255 < length) {
        {
            tcu::Vector<half, 4> held[2];
            #pragma unroll
            for (int nth = 0; nth < 2; ++nth) {
                const int e = lane + 32*nth;
                const int col = 4*e;
                held[nth] = tcu::load<4, tcu::Aligned>(&x[col]);
            }
            #pragma unroll
            for (int nth = 0; nth < 2; ++nth) {
                const int e = lane + 32*nth;
                const int col = 4*e;
                tcu::store<tcu::Aligned>(&out[256*block + col], tcu::convert<float>(held[nth]));
            }
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 64; e += 32) {
            const int col = 4*e;
            tcu::Vector<half, 4> held = tcu::load<4, tcu::Aligned>(&x[col]);
            tcu::store(&out[256*block + col], tcu::convert<float>(held), [&](int at) { return 256*block + col + at < length; });
        }
    }
}
