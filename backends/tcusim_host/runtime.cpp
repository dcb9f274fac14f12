// Runs a grid of CUDA threads on one OS thread: a fiber a lane, switched at barriers only.
//
// Lanes run in an order drawn by lot, each up to its next barrier, so that a missing barrier lets
// a lane see what another has not written yet. In each block, shared memory is unwritten anew. When no lane can run and not all have returned, the launch fails with a report.
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "host_entry.h"
#include "host_language.h"
#include "host_numerics.h"

#if !defined(__x86_64__)
#define TCUSIM_UCONTEXT 1
#endif

#ifdef TCUSIM_UCONTEXT
#include <ucontext.h>
#endif

dim3 threadIdx;
dim3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace tcusim {

// What a failed launch says; the fields are those of run.py.
struct Report {
    int32_t failure;
    int32_t line;
    int64_t block;
    int32_t thread;
    int32_t output;
    int64_t element;
    int64_t writer;
    int32_t returned[kMaxThreads];
    int32_t waits[kMaxThreads];
    int32_t lines[kMaxThreads];
};

// Elements that nothing has written: bytes of each one, and its bits; as in run.py.
struct Unwritten {
    uint64_t bits;
    int64_t itemsize;
};

// A shared array of a block, or of each of its warps; the fields are those of run.py.
struct SharedArray {
    Unwritten unwritten;
    int64_t count;
    int32_t of_warps;
    uint32_t begun;  // a bit for each warp, or one for the block, that has begun to use it
};

// An output whose writers are watched; the fields are those of run.py.
struct Output {
    const char* start;
    int64_t bytes;
    int64_t itemsize;
    int64_t* writers;  // of each element, the warp of the grid that wrote it; -1 where none has
};

namespace {

// --- Fibers -----------------------------------------------------------------------------------

void run_lane();

#ifdef TCUSIM_UCONTEXT

using Context = ucontext_t;

void prepare(Context& context, char* stack, size_t size) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    context.uc_link = nullptr;
    makecontext(&context, run_lane, 0);
}

void switch_to(Context& from, Context& to) { swapcontext(&from, &to); }

#else

// The stack pointer; the registers that a call must preserve are on the stack.
using Context = void*;

extern "C" void tcusim_switch(void** from, void* to);
asm(R"(
    .text
    .globl tcusim_switch
    .hidden tcusim_switch
    .type tcusim_switch, @function
tcusim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size tcusim_switch, .-tcusim_switch
)");

// Leaves on the stack what tcusim_switch pops: six registers, then where to go. The stack is then
// 8 bytes off a multiple of 16, as after a call.
void prepare(Context& context, char* stack, size_t size) {
    void** top = reinterpret_cast<void**>(stack + size);
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void*>(run_lane);
    for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
    context = top - 8;
}

void switch_to(Context& from, Context& to) { tcusim_switch(&from, to); }

#endif

// --- State of the launch ------------------------------------------------------------------------

struct Operands {
    Mma shape;
    void* d;
    const void* a;
    const void* b;
    const void* c;
};

// A copy that a lane has started and that has not happened yet.
struct Pending {
    void* to;
    const void* from;
    int bytes;
    int group;
};

// A list that grows. std::vector would have each library linked to libstdc++, which takes longer
// than to compile a small kernel.
class Copies {
  public:
    const Pending& operator[](int index) const { return first_[index]; }
    int count() const { return count_; }

    void add(const Pending& copy) {
        if (count_ == room_) {
            room_ = 2 * room_ + 16;
            first_ = static_cast<Pending*>(std::realloc(first_, room_ * sizeof(Pending)));
            if (first_ == nullptr) std::abort();
        }
        first_[count_++] = copy;
    }

    void remove_first(int removed) {
        count_ -= removed;
        // Of no copies, there is no address either.
        if (count_ > 0) std::memmove(first_, first_ + removed, count_ * sizeof(Pending));
    }

  private:
    Pending* first_ = nullptr;
    int count_ = 0;
    int room_ = 0;
};

struct Lane {
    Context context;
    Wait wait;
    int line;
    bool returned;
    Operands operands;
    Copies copies;
    int groups;  // of copies that it has ended
    int arrays;  // of shared memory that it has begun to use
};

struct Warp {
    uint32_t ready;  // a bit for each lane that can run
    int waiting;     // lanes that wait for the warp
    int rank;
};

constexpr size_t kStackBytes = 128 * 1024;

Lane lanes[kMaxThreads];
Warp warps[kMaxThreads / kLanes];
Context scheduler;
int thread_count;
int warp_count;
int waiting_for_block;
int current;
uint64_t random_state;
void (*kernel_entry)(void**);
void** kernel_arguments;
Numerics numerics;
const Unwritten* unwritten_of;  // each Type
SharedArray* arrays;
int array_count;
const Output* outputs;
int output_count;
Report* report;

// Touched once, so that the OS thread has its copy of this library's thread-local memory.
thread_local volatile char anchor;

uint32_t random_bits() {
    // Marsaglia's xorshift64*.
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return static_cast<uint32_t>((random_state * 0x2545F4914F6CDD1Dull) >> 32);
}

void seed_random(uint64_t seed, uint64_t block) {
    random_state = (seed * 0x9E3779B97F4A7C15ull) ^ (block + 1) * 0xD1B54A32D192ED03ull;
    if (random_state == 0) random_state = 1;
    for (int i = 0; i < 4; ++i) random_bits();
}

// A set bit of a mask that is not zero: the first one from a random place on.
int pick(uint32_t mask) {
    const int start = static_cast<int>(random_bits() % 32);
    const uint32_t rotated = start ? (mask >> start) | (mask << (32 - start)) : mask;
    return (__builtin_ctz(rotated) + start) % 32;
}

void leave() { switch_to(lanes[current].context, scheduler); }

void fail(Failure why, int line) {
    report->failure = static_cast<int32_t>(why);
    report->line = line;
    report->block = blockIdx.x;
    report->thread = current;
}

// Stops the launch: the lane never runs again.
void stop(Failure why, int line) {
    fail(why, line);
    leave();
}

void run_lane() {
    kernel_entry(kernel_arguments);
    lanes[current].returned = true;
    leave();
}

void release(int warp) {
    for (int i = 0; i < kLanes; ++i) lanes[warp * kLanes + i].wait = Wait::nothing;
    warps[warp].waiting = 0;
    warps[warp].ready = ~0u;
}

bool all_wait_for(int warp, Wait what) {
    for (int i = 0; i < kLanes; ++i) {
        if (lanes[warp * kLanes + i].wait != what) return false;
    }
    return true;
}

bool same(const Mma& x, const Mma& y) {
    return x.m == y.m && x.n == y.n && x.k == y.k && x.ab == y.ab && x.acc == y.acc;
}

// --- Writes to outputs ---------------------------------------------------------------------------

// Says of the first element that two warps write which it is.
void note_two_writers(int output, int64_t element, int64_t writer) {
    const bool later = output == report->output ? element >= report->element
                                                : output > report->output;
    if (report->output >= 0 && later) return;
    report->output = output;
    report->element = element;
    report->writer = writer;
    report->block = blockIdx.x;
    report->thread = current;
}

// Notes who writes an element of an output.
void watch_write(const void* place, int64_t bytes) {
    for (int number = 0; number < output_count; ++number) {
        const Output& output = outputs[number];
        const int64_t first = static_cast<const char*>(place) - output.start;
        if (first < 0 || first + bytes > output.bytes) continue;
        const int64_t warp = static_cast<int64_t>(blockIdx.x) * warp_count + current / kLanes;
        for (int64_t e = first / output.itemsize; e * output.itemsize < first + bytes; ++e) {
            int64_t& writer = output.writers[e];
            if (writer != -1 && writer != warp) note_two_writers(number, e, writer);
            writer = warp;
        }
    }
}

// --- mma_sync -----------------------------------------------------------------------------------

size_t bytes_of(Type type) {
    switch (type) {
        case Type::s8:
        case Type::u8:
            return 1;
        case Type::f16:
        case Type::bf16:
            return 2;
        case Type::f64:
            return 8;
        default:
            return 4;
    }
}

constexpr size_t kTileBytes = kMaxTile * 8;
alignas(64) char tile_a[kTileBytes];
alignas(64) char tile_b[kTileBytes];
alignas(64) char tile_c[kTileBytes];
alignas(64) char tile_d[kTileBytes];

template <class Registers>
void gather(char* tile, int elements, size_t size, Registers registers) {
    for (int e = 0; e < elements; ++e) {
        const char* x = static_cast<const char*>(registers(owner_of(e)));
        std::memcpy(tile + e * size, x + slot_of(e) * size, size);
    }
}

void multiply_for_warp(int warp) {
    const Lane* own = lanes + warp * kLanes;
    const Mma& shape = own->operands.shape;
    const size_t ab = bytes_of(shape.ab);
    const size_t acc = bytes_of(shape.acc);
    gather(tile_a, shape.m * shape.k, ab, [&](int i) { return own[i].operands.a; });
    gather(tile_b, shape.k * shape.n, ab, [&](int i) { return own[i].operands.b; });
    gather(tile_c, shape.m * shape.n, acc, [&](int i) { return own[i].operands.c; });
    multiply(shape, numerics, tile_d, tile_a, tile_b, tile_c);
    for (int e = 0; e < shape.m * shape.n; ++e) {
        char* x = static_cast<char*>(own[owner_of(e)].operands.d);
        std::memcpy(x + slot_of(e) * acc, tile_d + e * acc, acc);
    }
}

bool same_mma(int warp) {
    const Lane* own = lanes + warp * kLanes;
    for (int i = 1; i < kLanes; ++i) {
        if (!same(own[i].operands.shape, own[0].operands.shape)) return false;
    }
    return true;
}

// --- Shared memory ------------------------------------------------------------------------------

struct Region {
    char* start;
    size_t size;
};

// Finds the thread-local memory of the shared library that holds `anchor`: its shared arrays.
int find_region(dl_phdr_info* info, size_t, void* result) {
    const uintptr_t here = reinterpret_cast<uintptr_t>(&find_region);
    const ElfW(Phdr)* tls = nullptr;
    bool ours = false;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && here >= start && here < start + part.p_memsz) ours = true;
        if (part.p_type == PT_TLS) tls = &part;
    }
    if (!ours || tls == nullptr) return 0;
    *static_cast<Region*>(result) = {static_cast<char*>(info->dlpi_tls_data), tls->p_memsz};
    return 1;
}

Region shared_memory() {
    anchor = 0;
    Region region = {nullptr, 0};
    dl_iterate_phdr(find_region, &region);
    return region;
}

void fill(void* memory, const Unwritten& element, int64_t count) {
    char* const bytes = static_cast<char*>(memory);
    const int64_t size = count * element.itemsize;
    std::memcpy(bytes, &element.bits, element.itemsize);
    // Twice as much each time.
    for (int64_t done = element.itemsize; done < size; done *= 2) {
        std::memcpy(bytes + done, bytes, done < size - done ? done : size - done);
    }
}

// --- One block ----------------------------------------------------------------------------------

void start_block(char* stacks, size_t stride) {
    waiting_for_block = 0;
    for (int i = 0; i < thread_count; ++i) {
        lanes[i].wait = Wait::nothing;
        lanes[i].returned = false;
        lanes[i].copies.remove_first(lanes[i].copies.count());
        lanes[i].groups = 0;
        lanes[i].arrays = 0;
        prepare(lanes[i].context, stacks + i * stride + stride - kStackBytes, kStackBytes);
    }
    for (int i = 0; i < array_count; ++i) arrays[i].begun = 0;
    for (int w = 0; w < warp_count; ++w) warps[w] = {~0u, 0, w};
    for (int w = warp_count - 1; w > 0; --w) {
        const int other = static_cast<int>(random_bits() % (w + 1));
        const int rank = warps[w].rank;
        warps[w].rank = warps[other].rank;
        warps[other].rank = rank;
    }
}

// The warp whose lane runs next: any that can, or always the one of the lowest rank, which lets
// one warp run far ahead of the others. -1 if none can run.
int next_warp(bool by_rank) {
    int best = -1;
    int count = 0;
    for (int w = 0; w < warp_count; ++w) {
        if (warps[w].ready == 0) continue;
        ++count;
        const bool better = by_rank ? best < 0 || warps[w].rank < warps[best].rank
                                    : random_bits() % count == 0;
        if (better) best = w;
    }
    return best;
}

bool all_returned() {
    for (int i = 0; i < thread_count; ++i) {
        if (!lanes[i].returned) return false;
    }
    return true;
}

void report_deadlock() {
    fail(Failure::deadlock, 0);
    for (int i = 0; i < thread_count; ++i) {
        report->returned[i] = lanes[i].returned;
        report->waits[i] = static_cast<int32_t>(lanes[i].wait);
        report->lines[i] = lanes[i].line;
    }
}

bool run_block(char* stacks, size_t stride) {
    start_block(stacks, stride);
    const bool by_rank = random_bits() & 1;
    for (int warp = next_warp(by_rank); warp >= 0; warp = next_warp(by_rank)) {
        const int lane = pick(warps[warp].ready);
        warps[warp].ready &= ~(1u << lane);
        current = warp * kLanes + lane;
        threadIdx.x = current;
        switch_to(scheduler, lanes[current].context);
        if (report->failure != 0) return false;
    }
    if (all_returned()) return true;
    report_deadlock();
    return false;
}

}  // namespace

// --- What the headers ask for -------------------------------------------------------------------

int current_lane() { return current % kLanes; }

void leave_unwritten(void* memory, Type type, int count) {
    fill(memory, unwritten_of[static_cast<int>(type)], count);
}

void begin_shared(void* start) {
    const int number = lanes[current].arrays++;
    // A text that was written by hand may have more arrays than are known.
    if (number >= array_count) return;
    SharedArray& array = arrays[number];
    const uint32_t mine = array.of_warps ? 1u << current / kLanes : 1u;
    if (array.begun & mine) return;
    array.begun |= mine;
    fill(start, array.unwritten, array.count);
}

bool touches_memory_first() { return random_bits() & 1; }

void wait_for_warp(Wait what, int line) {
    const int warp = current / kLanes;
    lanes[current].wait = what;
    lanes[current].line = line;
    if (++warps[warp].waiting == kLanes && all_wait_for(warp, what)) release(warp);
    leave();
}

void wait_for_block(int line) {
    lanes[current].wait = Wait::syncthreads;
    lanes[current].line = line;
    if (++waiting_for_block == thread_count) {
        waiting_for_block = 0;
        for (int w = 0; w < warp_count; ++w) release(w);
    }
    leave();
}

void require_aligned(const void* tile, unsigned long long ldm_bytes, int line) {
    if (reinterpret_cast<uintptr_t>(tile) % 32 != 0) stop(Failure::pointer_alignment, line);
    if (ldm_bytes % 16 != 0) stop(Failure::ldm_alignment, line);
}

void wait_for_status(int line) { stop(Failure::unpublished, line); }

void require_multiple(const void* address, int bytes) {
    if (reinterpret_cast<uintptr_t>(address) % bytes != 0) stop(Failure::vector_alignment, 0);
}

void start_copy(void* shared, const void* global, int bytes) {
    require_multiple(shared, bytes);
    if (random_bits() & 1) {
        std::memcpy(shared, global, bytes);
    } else {
        lanes[current].copies.add({shared, global, bytes, lanes[current].groups});
    }
}

void commit_copies() { ++lanes[current].groups; }

void wait_for_copies(int unfinished) {
    Lane& lane = lanes[current];
    // What a wait for all finishes need not be in a group that has ended.
    const int end = unfinished > 0 ? lane.groups - unfinished : lane.groups + 1;
    int done = 0;
    for (; done < lane.copies.count() && lane.copies[done].group < end; ++done) {
        const Pending& copy = lane.copies[done];
        std::memcpy(copy.to, copy.from, copy.bytes);
    }
    lane.copies.remove_first(done);
}

void mma(const Mma& shape, void* d, const void* a, const void* b, const void* c, int line) {
    const bool known = static_cast<int32_t>(shape.ab) == numerics.ab &&
                       static_cast<int32_t>(shape.acc) == numerics.acc;
    if (!known) stop(Failure::wrong_types, line);
    const int warp = current / kLanes;
    Lane& lane = lanes[current];
    lane.wait = Wait::mma;
    lane.line = line;
    lane.operands = {shape, d, a, b, c};
    if (++warps[warp].waiting == kLanes && all_wait_for(warp, Wait::mma) && same_mma(warp)) {
        multiply_for_warp(warp);
        release(warp);
    }
    leave();
}

}  // namespace tcusim

// Runs a kernel of this library; returns 0, or a Failure of which the report says more.
// entry: calls the kernel. order: the numbers of the blocks, in the order in which they run.
extern "C" __attribute__((visibility("default"))) int tcusim_launch(
    void (*entry)(void**),
    void** arguments,
    const int64_t* order,
    int64_t blocks,
    int32_t threads,
    uint64_t seed,
    const tcusim::Unwritten* unwritten,
    tcusim::SharedArray* shared_arrays,
    int32_t shared_count,
    const tcusim::Output* watched,
    int32_t watched_count,
    const tcusim::Numerics* how,
    tcusim::Report* report
) {
    using namespace tcusim;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    // A page that nobody may touch lies below each stack.
    const size_t stride = kStackBytes + page;
    const size_t size = stride * threads;
    void* stacks = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) return -1;
    for (int i = 0; i < threads; ++i) {
        mprotect(static_cast<char*>(stacks) + i * stride, page, PROT_NONE);
    }
    kernel_entry = entry;
    kernel_arguments = arguments;
    numerics = *how;
    unwritten_of = unwritten;
    arrays = shared_arrays;
    array_count = shared_count;
    outputs = watched;
    output_count = watched_count;
    tcusim::report = report;
    report->failure = 0;
    report->output = -1;
    thread_count = threads;
    warp_count = threads / kLanes;
    blockDim = {static_cast<unsigned int>(threads), 1, 1};
    gridDim = {static_cast<unsigned int>(blocks), 1, 1};
    const Region shared = shared_memory();
    for (int64_t i = 0; i < blocks; ++i) {
        blockIdx.x = static_cast<unsigned int>(order[i]);
        seed_random(seed, static_cast<uint64_t>(order[i]));
        // What is no array of a program's is NaN, of any float type.
        std::memset(shared.start, 0xFF, shared.size);
        if (!run_block(static_cast<char*>(stacks), stride)) break;
        if (report->output >= 0) {
            report->failure = static_cast<int32_t>(Failure::two_writers);
            break;
        }
    }
    munmap(stacks, size);
    return report->failure;
}

// What code that is compiled with -fsanitize=thread calls at each access: here, to watch writes.
extern "C" {
#define TCUSIM_ACCESS(BYTES)                                                               \
    void __tsan_read##BYTES(void*) {}                                                      \
    void __tsan_unaligned_read##BYTES(void*) {}                                            \
    void __tsan_write##BYTES(void* place) { tcusim::watch_write(place, BYTES); }           \
    void __tsan_unaligned_write##BYTES(void* place) { tcusim::watch_write(place, BYTES); }
TCUSIM_ACCESS(1)
TCUSIM_ACCESS(2)
TCUSIM_ACCESS(4)
TCUSIM_ACCESS(8)
TCUSIM_ACCESS(16)
#undef TCUSIM_ACCESS
void __tsan_read_range(void*, size_t) {}
void __tsan_write_range(void* place, size_t bytes) { tcusim::watch_write(place, bytes); }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
