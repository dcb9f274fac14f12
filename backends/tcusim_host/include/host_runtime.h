// What the host's CUDA headers ask of the runtime. No standard library beyond <cstdint>: these
// lines are compiled again with every kernel.
#pragma once
#include <cstdint>

namespace tcusim {

// The element types, numbered as in run.py.
enum class Type : int { f16, bf16, tf32, f32, f64, s8, u8, s32 };

// What a lane is doing, numbered as in run.py.
enum class Wait : int { nothing, syncwarp, syncthreads, load, store, mma };

// Why a launch failed, numbered as in run.py.
enum class Failure : int {
    none,
    deadlock,
    pointer_alignment,
    ldm_alignment,
    wrong_types,
    unpublished,
    vector_alignment,
    two_writers,
};

constexpr int kLanes = 32;
constexpr int kMaxThreads = 1024;
// Elements of the largest tile.
constexpr int kMaxTile = 8192;

// One mma_sync: sizes and element types.
struct Mma {
    int m, n, k;
    Type ab, acc;
};

// Where element number p = row * columns + column of a tile lives: in x[slot] of one lane. This is
// no GPU's layout: a kernel may not know the layout. It is never lane p % 32, the lane that takes
// element p in a loop over a tile, so that a missing barrier between the two shows.
constexpr int slot_of(int element) { return element / kLanes; }
constexpr int shift_of(int slot) { return 1 + slot * 5 % (kLanes - 1); }
constexpr int owner_of(int element) { return (element + shift_of(slot_of(element))) % kLanes; }
constexpr int element_of(int lane, int slot) {
    return slot * kLanes + (lane + kLanes - shift_of(slot)) % kLanes;
}

// The lane within its warp that runs now.
int current_lane();

// Fills memory with elements as the simulator has them where nothing was written.
void leave_unwritten(void* memory, Type type, int count);

// Says where the next shared array of the kernel begins, in the order of its text. The first lane of
// those that share it leaves it unwritten.
void begin_shared(void* start);

// Waits until all lanes of the warp, or all threads of the block, wait for the same thing.
void wait_for_warp(Wait what, int line);
void wait_for_block(int line);

// Whether a load or store touches memory before the lane waits for its warp, or after: CUDA
// promises neither, so it is decided by lot.
bool touches_memory_first();

// Stops the launch unless a WMMA tile begins at a multiple of 32 bytes with rows 16 bytes apart.
void require_aligned(const void* tile, unsigned long long ldm_bytes, int line);

// Stops the launch: a block waits for a status word that no block before it has published.
void wait_for_status(int line);
// Stops the launch unless an access of several elements begins at a multiple of its bytes.
void require_multiple(const void* address, int bytes);

// Copies at once, or when the lane asks for it: CUDA promises neither, so it is decided by lot. What
// the lane never asks for may never come.
void start_copy(void* shared, const void* global, int bytes);
void commit_copies();
void wait_for_copies(int unfinished);

// Waits for the warp; the lane that comes last multiplies for all.
void mma(const Mma& shape, void* d, const void* a, const void* b, const void* c, int line);

}  // namespace tcusim
