#include "tcusim.cuh"
using namespace nvcuda;

// reduction_single_pass: 16x16x16, f16 to f32   [DAKKAK19] section 4.3, in one launch
extern "C" __global__ void
__launch_bounds__(64, tcu::residents(16))
reduction_single_pass(const half* __restrict__ in, float* __restrict__ out, unsigned long long* __restrict__ workspace, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    __shared__ __align__(32) float totals_all[2][64];
    const tcu::Shared<float> totals = {totals_all[warp]};
    __shared__ __align__(32) float found_all[2][8];
    const tcu::Shared<float> found = {found_all[warp]};
    __shared__ __align__(32) float partials_all[8];
    const tcu::Shared<float> partials = {partials_all};
    __shared__ __align__(32) float group_all[8];
    const tcu::Shared<float> group = {group_all};
    __shared__ __align__(32) float few_all[256];
    const tcu::Shared<float> few = {few_all};
    __shared__ __align__(32) float running_all[8];
    const tcu::Shared<float> running = {running_all};
    const tcu::Ticket ticket = tcu::take_ticket(workspace);
    const long long block = ticket.number / 4;
    const int block_col = ticket.number % 4;
    const tcu::Status<float> sums_of_blocks = {workspace + 16, ticket.launch};
    const tcu::Status<float> sums_of_groups = {workspace + 16 + ((4*length + 163835) / 32768), ticket.launch};
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> J;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> Z, S;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> A0, A1, A2, A3, A4, A5, A6, A7;

    // 1  J <- 1
    wmma::fill_fragment(J, tcu::convert<half>(1.0f));

    // 2  Z <- 0
    wmma::fill_fragment(Z, 0.0f);

    // 3  for i <- 0; i < 2; i <- i + 1
    #pragma unroll
    for (int i = 0; i < 2; ++i) {

        // 3.1  A0 <- LoadTile(in[32768*block + 8192*block_col + 2048*i + 4096*warp ... +496], colmajor, stride=32)
        wmma::load_matrix_sync(A0, &in[32768*block + 8192*block_col + 4096*warp + 2048*i], 32);

        // 3.2  A1 <- LoadTile(in[32768*block + 8192*block_col + 2048*i + 4096*warp + 16 ... +496], colmajor, stride=32)
        wmma::load_matrix_sync(A1, &in[32768*block + 8192*block_col + 4096*warp + 2048*i + 16], 32);

        // 3.3  A2 <- LoadTile(in[32768*block + 8192*block_col + 2048*i + 4096*warp + 512 ... +496], colmajor, stride=32)
        wmma::load_matrix_sync(A2, &in[32768*block + 8192*block_col + 4096*warp + 2048*i + 512], 32);

        // 3.4  A3 <- LoadTile(in[32768*block + 8192*block_col + 2048*i + 4096*warp + 528 ... +496], colmajor, stride=32)
        wmma::load_matrix_sync(A3, &in[32768*block + 8192*block_col + 4096*warp + 2048*i + 528], 32);

        // 3.5  A4 <- LoadTile(in[32768*block + 8192*block_col + 2048*i + 4096*warp + 1024 ... +496], colmajor, stride=32)
        wmma::load_matrix_sync(A4, &in[32768*block + 8192*block_col + 4096*warp + 2048*i + 1024], 32);

        // 3.6  A5 <- LoadTile(in[32768*block + 8192*block_col + 2048*i + 4096*warp + 1040 ... +496], colmajor, stride=32)
        wmma::load_matrix_sync(A5, &in[32768*block + 8192*block_col + 4096*warp + 2048*i + 1040], 32);

        // 3.7  A6 <- LoadTile(in[32768*block + 8192*block_col + 2048*i + 4096*warp + 1536 ... +496], colmajor, stride=32)
        wmma::load_matrix_sync(A6, &in[32768*block + 8192*block_col + 4096*warp + 2048*i + 1536], 32);

        // 3.8  A7 <- LoadTile(in[32768*block + 8192*block_col + 2048*i + 4096*warp + 1552 ... +496], colmajor, stride=32)
        wmma::load_matrix_sync(A7, &in[32768*block + 8192*block_col + 4096*warp + 2048*i + 1552], 32);

        // 3.9  S <- J.A0 + Z
        wmma::mma_sync(S, J, A0, Z);

        // 3.10  S <- J.A1 + S
        wmma::mma_sync(S, J, A1, S);

        // 3.11  StoreTile(totals[0 ... +16], rowmajor, stride=0) <- S
        wmma::store_matrix_sync(&totals[0], S, 0, wmma::mem_row_major);

        // 3.12  S <- J.A2 + Z
        wmma::mma_sync(S, J, A2, Z);

        // 3.13  S <- J.A3 + S
        wmma::mma_sync(S, J, A3, S);

        // 3.14  StoreTile(totals[16 ... +16], rowmajor, stride=0) <- S
        wmma::store_matrix_sync(&totals[16], S, 0, wmma::mem_row_major);

        // 3.15  S <- J.A4 + Z
        wmma::mma_sync(S, J, A4, Z);

        // 3.16  S <- J.A5 + S
        wmma::mma_sync(S, J, A5, S);

        // 3.17  StoreTile(totals[32 ... +16], rowmajor, stride=0) <- S
        wmma::store_matrix_sync(&totals[32], S, 0, wmma::mem_row_major);

        // 3.18  S <- J.A6 + Z
        wmma::mma_sync(S, J, A6, Z);

        // 3.19  S <- J.A7 + S
        wmma::mma_sync(S, J, A7, S);

        // 3.20  StoreTile(totals[48 ... +16], rowmajor, stride=0) <- S
        wmma::store_matrix_sync(&totals[48], S, 0, wmma::mem_row_major);

        // 3.21  sync warp
        __syncwarp();

        // 3.22  totals[2*col] <- totals[2*col] + totals[1 + 2*col]  1x32
        tcu::move<1, 32>(lane,
            [=](auto, int row, int col) { return tcu::add(totals[2*col], totals[2*col + 1]); },
            [=](auto, int row, int col, auto& held) { totals[2*col] = held; });

        // 3.23  sync warp
        __syncwarp();

        // 3.24  totals[4*col] <- totals[4*col] + totals[2 + 4*col]  1x16
        tcu::move<1, 16>(lane,
            [=](auto, int row, int col) { return tcu::add(totals[4*col], totals[4*col + 2]); },
            [=](auto, int row, int col, auto& held) { totals[4*col] = held; });

        // 3.25  sync warp
        __syncwarp();

        // 3.26  totals[8*col] <- totals[8*col] + totals[4 + 8*col]  1x8
        tcu::move<1, 8>(lane,
            [=](auto, int row, int col) { return tcu::add(totals[8*col], totals[8*col + 4]); },
            [=](auto, int row, int col, auto& held) { totals[8*col] = held; });

        // 3.27  sync warp
        __syncwarp();

        // 3.28  totals[16*col] <- totals[16*col] + totals[8 + 16*col]  1x4
        tcu::move<1, 4>(lane,
            [=](auto, int row, int col) { return tcu::add(totals[16*col], totals[16*col + 8]); },
            [=](auto, int row, int col, auto& held) { totals[16*col] = held; });

        // 3.29  sync warp
        __syncwarp();

        // 3.30  totals[32*col] <- totals[32*col] + totals[16 + 32*col]  1x2
        tcu::move<1, 2>(lane,
            [=](auto, int row, int col) { return tcu::add(totals[32*col], totals[32*col + 16]); },
            [=](auto, int row, int col, auto& held) { totals[32*col] = held; });

        // 3.31  sync warp
        __syncwarp();

        // 3.32  totals[0] <- totals[0] + totals[32]  1x1
        tcu::move<1, 1>(lane,
            [=](auto, int row, int col) { return tcu::add(totals[0], totals[32]); },
            [=](auto, int row, int col, auto& held) { totals[0] = held; });

        // 3.33  sync warp
        __syncwarp();

        // 3.34  found[i] <- totals[0]  1x1
        tcu::move<1, 1>(lane,
            [=](auto, int row, int col) { return totals[0]; },
            [=](auto, int row, int col, auto& held) { found[i] = held; });

        // 3.35  sync warp
        __syncwarp();
    }

    // 4  found[0] <- found[0] + found[1]  1x1
    tcu::move<1, 1>(lane,
        [=](auto, int row, int col) { return tcu::add(found[0], found[1]); },
        [=](auto, int row, int col, auto& held) { found[0] = held; });

    // 5  sync warp
    __syncwarp();

    // 6  partials[warp] <- found[0]  1x1
    tcu::move<1, 1>(lane,
        [=](auto, int row, int col) { return found[0]; },
        [=](auto, int row, int col, auto& held) { partials[warp] = held; });

    // 7  sync block
    __syncthreads();

    // 8  if warp < 1
    if (warp < 1) {

        // 8.1  partials[0] <- partials[0] + partials[1]  1x1
        tcu::move<1, 1>(lane,
            [=](auto, int row, int col) { return tcu::add(partials[0], partials[1]); },
            [=](auto, int row, int col, auto& held) { partials[0] = held; });
    }

    // 9  if warp < 1
    if (warp < 1) {

        // 9.1  sync warp
        __syncwarp();

        // 9.2  publish sums_of_blocks[4*block + block_col] <- partials[0]  1x1
        tcu::each<1, 1>(lane,
            [=](auto, int row, int col) { sums_of_blocks.store(4*block + block_col, partials[0]); });
    }

    // 10  if warp < 1
    if (warp < 1) {

        // 10.1  if 2 < block_col
        if (2 < block_col) {

            // 10.1.1  await group[row] <- sums_of_blocks[4*block + row]  3x1
            tcu::move<3, 1>(lane,
                [=](auto, int row, int col) { return sums_of_blocks.try_load(4*block + row); },
                [=](auto, int row, int col, auto& held) { group[row] = sums_of_blocks.wait(4*block + row, held); });

            // 10.1.2  sync warp
            __syncwarp();

            // 10.1.3  group[3] <- partials[0]  1x1
            tcu::move<1, 1>(lane,
                [=](auto, int row, int col) { return partials[0]; },
                [=](auto, int row, int col, auto& held) { group[3] = held; });

            // 10.1.4  sync warp
            __syncwarp();

            // 10.1.5  group[2*row] <- group[2*row] + group[1 + 2*row]  2x1
            tcu::move<2, 1>(lane,
                [=](auto, int row, int col) { return tcu::add(group[2*row], group[2*row + 1]); },
                [=](auto, int row, int col, auto& held) { group[2*row] = held; });

            // 10.1.6  sync warp
            __syncwarp();

            // 10.1.7  group[0] <- group[0] + group[2]  1x1
            tcu::move<1, 1>(lane,
                [=](auto, int row, int col) { return tcu::add(group[0], group[2]); },
                [=](auto, int row, int col, auto& held) { group[0] = held; });

            // 10.1.8  sync warp
            __syncwarp();

            // 10.1.9  publish sums_of_groups[block] <- group[0]  1x1
            tcu::each<1, 1>(lane,
                [=](auto, int row, int col) { sums_of_groups.store(block, group[0]); });

            // 10.1.10  if length < 32768*block + 32769
            if (length < 32768*block + 32769) {

                // 10.1.10.1  running[0] <- few[0 where 1 < 0]  1x1
                tcu::move<1, 1>(lane,
                    [=](auto, int row, int col) { return 0.0f; },
                    [=](auto, int row, int col, auto& held) { running[0] = held; });

                // 10.1.10.2  sync warp
                __syncwarp();

                // 10.1.10.3  for i <- 0; i < ceil(length / 8388608); i <- i + 1
                for (long long i = 0; i < (length + 8388607) / 8388608; ++i) {

                    // 10.1.10.3.1  await few[row] <- sums_of_groups[256*i + row where 256*i + row < block]  256x1
                    tcu::move<256, 1, 1, 8>(lane, 256*i + 255 < block,
                        [=](auto, int row, int col) { return (256*i + row < block ? sums_of_groups.try_load(256*i + row) : sums_of_groups.empty()); },
                        [=](auto, int row, int col, auto& held) { few[row] = (256*i + row < block ? sums_of_groups.wait(256*i + row, held) : 0.0f); });

                    // 10.1.10.3.2  sync warp
                    __syncwarp();

                    // 10.1.10.3.3  few[row] <- few[row] + group[0 where 256*i + row < block + 1 and block < 256*i + row + 1]  256x1
                    tcu::move<256, 1, 1, 8>(lane, 256*i + 255 < block + 1 && block < 256*i + 1,
                        [=](auto fast, int row, int col) { return tcu::add(few[row], (fast || (256*i + row < block + 1 && block < 256*i + row + 1) ? group[0] : 0.0f)); },
                        [=](auto, int row, int col, auto& held) { few[row] = held; });

                    // 10.1.10.3.4  sync warp
                    __syncwarp();

                    // 10.1.10.3.5  few[2*row] <- few[2*row] + few[1 + 2*row]  128x1
                    tcu::move<128, 1, 1, 4>(lane,
                        [=](auto, int row, int col) { return tcu::add(few[2*row], few[2*row + 1]); },
                        [=](auto, int row, int col, auto& held) { few[2*row] = held; });

                    // 10.1.10.3.6  sync warp
                    __syncwarp();

                    // 10.1.10.3.7  few[4*row] <- few[4*row] + few[2 + 4*row]  64x1
                    tcu::move<64, 1, 1, 2>(lane,
                        [=](auto, int row, int col) { return tcu::add(few[4*row], few[4*row + 2]); },
                        [=](auto, int row, int col, auto& held) { few[4*row] = held; });

                    // 10.1.10.3.8  sync warp
                    __syncwarp();

                    // 10.1.10.3.9  few[8*row] <- few[8*row] + few[4 + 8*row]  32x1
                    tcu::move<32, 1>(lane,
                        [=](auto, int row, int col) { return tcu::add(few[8*row], few[8*row + 4]); },
                        [=](auto, int row, int col, auto& held) { few[8*row] = held; });

                    // 10.1.10.3.10  sync warp
                    __syncwarp();

                    // 10.1.10.3.11  few[16*row] <- few[16*row] + few[8 + 16*row]  16x1
                    tcu::move<16, 1>(lane,
                        [=](auto, int row, int col) { return tcu::add(few[16*row], few[16*row + 8]); },
                        [=](auto, int row, int col, auto& held) { few[16*row] = held; });

                    // 10.1.10.3.12  sync warp
                    __syncwarp();

                    // 10.1.10.3.13  few[32*row] <- few[32*row] + few[16 + 32*row]  8x1
                    tcu::move<8, 1>(lane,
                        [=](auto, int row, int col) { return tcu::add(few[32*row], few[32*row + 16]); },
                        [=](auto, int row, int col, auto& held) { few[32*row] = held; });

                    // 10.1.10.3.14  sync warp
                    __syncwarp();

                    // 10.1.10.3.15  few[64*row] <- few[64*row] + few[32 + 64*row]  4x1
                    tcu::move<4, 1>(lane,
                        [=](auto, int row, int col) { return tcu::add(few[64*row], few[64*row + 32]); },
                        [=](auto, int row, int col, auto& held) { few[64*row] = held; });

                    // 10.1.10.3.16  sync warp
                    __syncwarp();

                    // 10.1.10.3.17  few[128*row] <- few[128*row] + few[64 + 128*row]  2x1
                    tcu::move<2, 1>(lane,
                        [=](auto, int row, int col) { return tcu::add(few[128*row], few[128*row + 64]); },
                        [=](auto, int row, int col, auto& held) { few[128*row] = held; });

                    // 10.1.10.3.18  sync warp
                    __syncwarp();

                    // 10.1.10.3.19  few[0] <- few[0] + few[128]  1x1
                    tcu::move<1, 1>(lane,
                        [=](auto, int row, int col) { return tcu::add(few[0], few[128]); },
                        [=](auto, int row, int col, auto& held) { few[0] = held; });

                    // 10.1.10.3.20  sync warp
                    __syncwarp();

                    // 10.1.10.3.21  running[0] <- running[0] + few[0]  1x1
                    tcu::move<1, 1>(lane,
                        [=](auto, int row, int col) { return tcu::add(running[0], few[0]); },
                        [=](auto, int row, int col, auto& held) { running[0] = held; });

                    // 10.1.10.3.22  sync warp
                    __syncwarp();
                }

                // 10.1.10.4  out[0] <- running[0]  1x1
                tcu::move<1, 1>(lane,
                    [=](auto, int row, int col) { return running[0]; },
                    [=](auto, int row, int col, auto& held) { out[0] = held; });
            }
        }
    }
}
