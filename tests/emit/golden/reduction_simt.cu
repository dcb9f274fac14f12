#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include "tcusim.cuh"
using namespace nvcuda;

// reduction_simt: 16x16x16, f16 to f32   not in the paper
extern "C" __global__ void
__launch_bounds__(32)
reduction_simt(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half values_all[1][256];
    const tcu::Shared<half> values = {values_all[warp]};

    // 1  values[row] <- in[256*block + row where 256*block + row < length]  256x1
    if (tcu::is_multiple(in, 16) && 256*block + 255 < length) {
        {
            const int e = lane;
            const int row = 8*e;
            tcu::Vector<half, 8> held = tcu::load<8, tcu::Aligned>(&in[256*block + row]);
            tcu::store<tcu::Aligned>(&values[row], held);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = 8*e;
            tcu::Vector<half, 8> held = tcu::load<8>(&in[256*block + row], [&](int at) { return 256*block + row + at < length; });
            tcu::store<tcu::Aligned>(&values[row], held);
        }
    }

    // 2  sync warp
    __syncwarp();

    // 3  values[2*row] <- values[2*row] + values[1 + 2*row]  128x1
    {
        half held[4];
        #pragma unroll
        for (int nth = 0; nth < 4; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(values[2*row], values[2*row + 1]);
        }
        #pragma unroll
        for (int nth = 0; nth < 4; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            values[2*row] = held[nth];
        }
    }

    // 4  sync warp
    __syncwarp();

    // 5  values[4*row] <- values[4*row] + values[2 + 4*row]  64x1
    {
        half held[2];
        #pragma unroll
        for (int nth = 0; nth < 2; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            held[nth] = tcu::add(values[4*row], values[4*row + 2]);
        }
        #pragma unroll
        for (int nth = 0; nth < 2; ++nth) {
            const int e = lane + 32*nth;
            const int row = e;
            values[4*row] = held[nth];
        }
    }

    // 6  sync warp
    __syncwarp();

    // 7  values[8*row] <- values[8*row] + values[4 + 8*row]  32x1
    {
        const int e = lane;
        const int row = e;
        values[8*row] = tcu::add(values[8*row], values[8*row + 4]);
    }

    // 8  sync warp
    __syncwarp();

    // 9  values[16*row] <- values[16*row] + values[8 + 16*row]  16x1
    if (const int e = lane; e < 16) {
        const int row = e;
        values[16*row] = tcu::add(values[16*row], values[16*row + 8]);
    }

    // 10  sync warp
    __syncwarp();

    // 11  values[32*row] <- values[32*row] + values[16 + 32*row]  8x1
    if (const int e = lane; e < 8) {
        const int row = e;
        values[32*row] = tcu::add(values[32*row], values[32*row + 16]);
    }

    // 12  sync warp
    __syncwarp();

    // 13  values[64*row] <- values[64*row] + values[32 + 64*row]  4x1
    if (const int e = lane; e < 4) {
        const int row = e;
        values[64*row] = tcu::add(values[64*row], values[64*row + 32]);
    }

    // 14  sync warp
    __syncwarp();

    // 15  values[128*row] <- values[128*row] + values[64 + 128*row]  2x1
    if (const int e = lane; e < 2) {
        const int row = e;
        values[128*row] = tcu::add(values[128*row], values[128*row + 64]);
    }

    // 16  sync warp
    __syncwarp();

    // 17  values[0] <- values[0] + values[128]  1x1
    if (const int e = lane; e < 1) {
        values[0] = tcu::add(values[0], values[128]);
    }

    // 18  sync warp
    __syncwarp();

    // 19  out[block where 256*block + 256*col < length] <- values[0]  1x1
    if (const int e = lane; e < 1) {
        if (256*block < length) out[block] = tcu::convert<float>(values[0]);
    }
}
