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
    __shared__ __align__(32) half values_of[1][256];
    half* const values = values_of[warp];

    // 1  values[row] <- in[256*block + row where 256*block + row < length]  256x1
    if (tcu::is_multiple(in + 256*block, 16) && 256*block + 255 < length) {
        {
            const int e = lane;
            const int row = 8*e;
            tcu::Vector<half, 8> held = tcu::load<8, tcu::Aligned>(in + (256*block + row));
            tcu::store<tcu::Aligned>(values + row, held);
        }
    }
    else {
        #pragma unroll 1
        for (int e = lane; e < 32; e += 32) {
            const int row = 8*e;
            tcu::Vector<half, 8> held = tcu::load<8>(in + (256*block + row), [&](int at) { return 256*block + row + at < length; });
            tcu::store<tcu::Aligned>(values + row, held);
        }
    }

    // 2  sync warp
    __syncwarp();

    // 3  values[row] <- values[row] + values[128 + row]  128x1
    {
        const int e = lane;
        const int row = 4*e;
        tcu::Vector<half, 4> held = tcu::add(tcu::load<4, tcu::Aligned>(values + row), tcu::load<4, tcu::Aligned>(values + (row + 128)));
        tcu::store<tcu::Aligned>(values + row, held);
    }

    // 4  sync warp
    __syncwarp();

    // 5  values[row] <- values[row] + values[64 + row]  64x1
    {
        const int e = lane;
        const int row = 2*e;
        tcu::Vector<half, 2> held = tcu::add(tcu::load<2, tcu::Aligned>(values + row), tcu::load<2, tcu::Aligned>(values + (row + 64)));
        tcu::store<tcu::Aligned>(values + row, held);
    }

    // 6  sync warp
    __syncwarp();

    // 7  values[row] <- values[row] + values[32 + row]  32x1
    {
        const int e = lane;
        const int row = e;
        values[row] = tcu::add(values[row], values[row + 32]);
    }

    // 8  sync warp
    __syncwarp();

    // 9  values[row] <- values[row] + values[16 + row]  16x1
    if (const int e = lane; e < 16) {
        const int row = e;
        values[row] = tcu::add(values[row], values[row + 16]);
    }

    // 10  sync warp
    __syncwarp();

    // 11  values[row] <- values[row] + values[8 + row]  8x1
    if (const int e = lane; e < 8) {
        const int row = e;
        values[row] = tcu::add(values[row], values[row + 8]);
    }

    // 12  sync warp
    __syncwarp();

    // 13  values[row] <- values[row] + values[4 + row]  4x1
    if (const int e = lane; e < 4) {
        const int row = e;
        values[row] = tcu::add(values[row], values[row + 4]);
    }

    // 14  sync warp
    __syncwarp();

    // 15  values[row] <- values[row] + values[2 + row]  2x1
    if (const int e = lane; e < 2) {
        const int row = e;
        values[row] = tcu::add(values[row], values[row + 2]);
    }

    // 16  sync warp
    __syncwarp();

    // 17  values[0] <- values[0] + values[1]  1x1
    if (const int e = lane; e < 1) {
        values[0] = tcu::add(values[0], values[1]);
    }

    // 18  sync warp
    __syncwarp();

    // 19  out[block where 256*block + 256*col < length] <- values[0]  1x1
    if (const int e = lane; e < 1) {
        if (256*block < length) out[block] = tcu::convert<float>(values[0]);
    }
}
