#include "tcusim.cuh"
using namespace nvcuda;

// scan_ragged_simt: 16x16x16, f16 to f32   not in the paper
extern "C" __global__ void
__launch_bounds__(32, tcu::residents(28))
scan_ragged_simt(const half* __restrict__ in, const long long* __restrict__ offsets, float* __restrict__ out, const long long length, const long long segments)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half x_all[1][1040];
    const tcu::Shared<half> x = {x_all[warp]};
    __shared__ __align__(32) half y_all[1][1040];
    const tcu::Shared<half> y = {y_all[warp]};
    __shared__ __align__(32) long long piece_begin_all[1][16];
    const tcu::Shared<long long> piece_begin = {piece_begin_all[warp]};
    __shared__ __align__(32) long long piece_end_all[1][16];
    const tcu::Shared<long long> piece_end = {piece_end_all[warp]};
    __shared__ __align__(32) int piece_place_all[1][16];
    const tcu::Shared<int> piece_place = {piece_place_all[warp]};
    tcu::Found piece_found;

    // 1  piece <- Locate(offsets, chunks of 64 from number 16*block)  16 ranges
    tcu::locate<64>(offsets, segments, 16*block, 16, &piece_begin[0], &piece_end[0], &piece_place[0], piece_found, length);

    // 2  if any of piece has more than 1 element
    if (piece_found.longest > 1) {

        // 2.1  x[65*row + col] <- in[piece[row] + col]  16x64
        tcu::move<16, 64, 1, 16>(lane,
            [=](auto, int row, int col) { return (piece_begin[row] + col < piece_end[row] ? in[piece_begin[row] + col] : tcu::convert<half>(0.0f)); },
            [=](auto, int row, int col, auto& held) { x[65*row + col] = held; });

        // 2.2  sync warp
        __syncwarp();

        // 2.3  y[65*row + col] <- x[65*row + col] + x[-1 + 65*row + col where 0 < col]  16x64
        tcu::move<16, 64, 1, 16>(lane,
            [=](auto, int row, int col) { return tcu::add(x[65*row + col], (0 < col ? x[65*row + col - 1] : tcu::convert<half>(0.0f))); },
            [=](auto, int row, int col, auto& held) { y[65*row + col] = held; });

        // 2.4  sync warp
        __syncwarp();

        // 2.5  x[65*row + col] <- y[65*row + col] + y[-2 + 65*row + col where 1 < col]  16x64
        tcu::move<16, 64, 1, 16>(lane,
            [=](auto, int row, int col) { return tcu::add(y[65*row + col], (1 < col ? y[65*row + col - 2] : tcu::convert<half>(0.0f))); },
            [=](auto, int row, int col, auto& held) { x[65*row + col] = held; });

        // 2.6  sync warp
        __syncwarp();

        // 2.7  y[65*row + col] <- x[65*row + col] + x[-4 + 65*row + col where 3 < col]  16x64
        tcu::move<16, 64, 1, 16>(lane,
            [=](auto, int row, int col) { return tcu::add(x[65*row + col], (3 < col ? x[65*row + col - 4] : tcu::convert<half>(0.0f))); },
            [=](auto, int row, int col, auto& held) { y[65*row + col] = held; });

        // 2.8  sync warp
        __syncwarp();

        // 2.9  x[65*row + col] <- y[65*row + col] + y[-8 + 65*row + col where 7 < col]  16x64
        tcu::move<16, 64, 1, 16>(lane,
            [=](auto, int row, int col) { return tcu::add(y[65*row + col], (7 < col ? y[65*row + col - 8] : tcu::convert<half>(0.0f))); },
            [=](auto, int row, int col, auto& held) { x[65*row + col] = held; });

        // 2.10  sync warp
        __syncwarp();

        // 2.11  y[65*row + col] <- x[65*row + col] + x[-16 + 65*row + col where 15 < col]  16x64
        tcu::move<16, 64, 1, 16>(lane,
            [=](auto, int row, int col) { return tcu::add(x[65*row + col], (15 < col ? x[65*row + col - 16] : tcu::convert<half>(0.0f))); },
            [=](auto, int row, int col, auto& held) { y[65*row + col] = held; });

        // 2.12  sync warp
        __syncwarp();

        // 2.13  x[65*row + col] <- y[65*row + col] + y[-32 + 65*row + col where 31 < col]  16x64
        tcu::move<16, 64, 1, 16>(lane,
            [=](auto, int row, int col) { return tcu::add(y[65*row + col], (31 < col ? y[65*row + col - 32] : tcu::convert<half>(0.0f))); },
            [=](auto, int row, int col, auto& held) { x[65*row + col] = held; });

        // 2.14  sync warp
        __syncwarp();

        // 2.15  out[piece[row] + col] <- x[65*row + col]  16x64
        if (piece_found.close) {
            tcu::scatter_elements<16, 64>(out + piece_begin[0], &piece_place[0], piece_found.shortest,
                [=](int row, int col) { return tcu::convert<float>(x[65*row + col]); });
        }
        else {
            tcu::move_tested<16, 64>(lane,
                [=](auto, int row, int col) { return x[65*row + col]; },
                [=](auto, int row, int col, auto& held) { if (piece_begin[row] + col < piece_end[row]) out[piece_begin[row] + col] = tcu::convert<float>(held); });
        }
    }
    else {

        // 2.16  x[row] <- in[piece[row]]  16x1
        tcu::move<16, 1>(lane,
            [=](auto, int row, int col) { return (piece_begin[row] + 0 < piece_end[row] ? in[piece_begin[row] + 0] : tcu::convert<half>(0.0f)); },
            [=](auto, int row, int col, auto& held) { x[row] = held; });

        // 2.17  sync warp
        __syncwarp();

        // 2.18  out[piece[row]] <- x[row]  16x1
        if (piece_found.close) {
            tcu::scatter_elements<16, 1>(out + piece_begin[0], &piece_place[0], piece_found.shortest,
                [=](int row, int col) { return tcu::convert<float>(x[row]); });
        }
        else {
            tcu::move_tested<16, 1>(lane,
                [=](auto, int row, int col) { return x[row]; },
                [=](auto, int row, int col, auto& held) { if (piece_begin[row] + 0 < piece_end[row]) out[piece_begin[row] + 0] = tcu::convert<float>(held); });
        }
    }
}
