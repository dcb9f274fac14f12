// What a tapped kernel has besides: each chosen warp writes down what every step left, as a list of
// records in global memory. tapped.py emits the calls, taps.py reads the records.
#pragma once
#include "tcusim.cuh"

// What is called at every step is there once: a kernel of many steps would else take minutes to
// compile.
#ifdef TCUSIM_HOST
#define TCUSIM_ONCE inline
#else
#define TCUSIM_ONCE __noinline__
#endif

namespace tcu {

template <class T>
__device__ inline T small_number(int x) {
    if constexpr (sizeof(T) == 1) {
        // Its bits: few floats of a byte are integers.
        const unsigned char bits = static_cast<unsigned char>(x);
        T value;
        memcpy(&value, &bits, 1);
        return value;
    } else {
        return convert<T>(static_cast<float>(x));
    }
}
template <>
__device__ inline int small_number<int>(int x) {
    return x;
}

// Fills a part of a buffer with what unwritten memory holds on the simulator.
template <class T>
__device__ inline void poison(
    const Shared<T>& buffer, int size, unsigned long long bits, int first, int stride
) {
    T value;
    memcpy(&value, &bits, sizeof(T));
    #pragma unroll 1
    for (int e = first; e < size; e += stride) buffer[e] = value;
}

// The records of one warp, all of whose lanes call together. A warp that was not chosen has none.
//
// choice: how many warps are chosen, the words of 32 bits that each one has, the most steps that
// are kept of each, and the warps' numbers in the grid, ascending. A warp's words begin with how
// many steps it ran and how many words are used; records follow, each a head (its number, and the
// bytes of what it holds) and its content, in units of 32 bytes, as WMMA wants tiles aligned.
struct Tap {
    static constexpr unsigned int unit = 8;

    unsigned int* words;
    unsigned int size, most, used, steps;
    bool full;
    // Where the record that was begun last goes on; null if it is not kept.
    unsigned char* to;

    __device__ TCUSIM_ONCE Tap(const long long* choice, int* all, long long warp)
        : words(nullptr), size(static_cast<unsigned int>(choice[1])),
          most(static_cast<unsigned int>(choice[2])), used(unit), steps(0), full(false), to(nullptr) {
        const long long* const chosen = choice + 3;
        long long low = 0;
        long long high = choice[0];
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (chosen[middle] < warp) low = middle + 1;
            else high = middle;
        }
        if (low == choice[0] || chosen[low] != warp) return;
        words = reinterpret_cast<unsigned int*>(all) + low * size;
        if (threadIdx.x % 32 == 0) {
            words[0] = steps;
            words[1] = used;
        }
    }

    __device__ TCUSIM_ONCE void begin(int number, int bytes) {
        const unsigned int taken = unit + (bytes + 4 * unit - 1) / (4 * unit) * unit;
        to = nullptr;
        full = full || size - used < taken;
        if (full) return;
        unsigned int* const head = words + used;
        used += taken;
        to = reinterpret_cast<unsigned char*>(head + unit);
        if (threadIdx.x % 32 == 0) {
            head[0] = number;
            head[1] = bytes;
            words[1] = used;
        }
    }

    template <class T>
    __device__ void put(int index, T value) {
        reinterpret_cast<T*>(to)[index] = value;
    }

    // Begins the record of a step that has just run.
    __device__ TCUSIM_ONCE void step(int number, int bytes) {
        if (!words) return;
        ++steps;
        if (threadIdx.x % 32 == 0) words[0] = steps;
        full = full || steps > most;
        begin(number, bytes);
    }

    // Records which branch data decide on.
    __device__ TCUSIM_ONCE void branch(int number, bool taken) {
        if (!words) return;
        begin(number, 4);
        if (to && threadIdx.x % 32 == 0) put<int>(0, taken);
    }

    // Records a fragment, or those that a tile is made of: what each lane holds, by its own count.
    template <class F>
    __device__ void fragment(int number, const F& f) {
        if (!words) return;
        step(number, 32 * f.num_elements * sizeof(f.x[0]));
        if (to) hold(f, 0);
    }
    template <class F, int COUNT>
    __device__ void fragment(int number, const F (&f)[COUNT]) {
        if (!words) return;
        step(number, COUNT * 32 * f[0].num_elements * sizeof(f[0].x[0]));
        if (!to) return;
        #pragma unroll
        for (int i = 0; i < COUNT; ++i) hold(f[i], i * 32 * f[0].num_elements);
    }
    template <class F>
    __device__ void hold(const F& f, int start) {
        #pragma unroll
        for (int i = 0; i < f.num_elements; ++i) put(start + 32 * i + threadIdx.x % 32, f.x[i]);
    }

    // Adds a rectangle of memory to the record, row by row. Each lane reads what it wrote itself:
    // vectors of V elements, which run down columns or along rows.
    template <class T, int ROWS, int COLS, int V, bool DOWN, class Read>
    __device__ void view(Read read) {
        if (!to) return;
        #pragma unroll 1
        for (int e = threadIdx.x % 32; e < ROWS * COLS / V; e += 32) {
            #pragma unroll 1
            for (int n = V * e; n < V * e + V; ++n) {
                const int row = DOWN ? n % ROWS : n / COLS;
                const int col = DOWN ? n / ROWS : n % COLS;
                put<T>(row * COLS + col, static_cast<T>(read(row, col)));
            }
        }
        to += ROWS * COLS * sizeof(T);
    }

    // Records which elements of a tile the lanes hold, by loading numbers into a fragment. A
    // number is more than some types can hold: it is loaded digit by digit, to the base 128, in two
    // digits, or in three if there are more elements.
    template <class F, class T, class Load>
    __device__ void places(int number, int room, int count, Load load) {
        if (!words) return;
        begin(room, count * sizeof(T));
        T* const numbers = reinterpret_cast<T*>(to);
        F f;
        const int digits = count > 128 * 128 ? 3 : 2;
        begin(number, digits * 32 * f.num_elements * sizeof(f.x[0]));
        if (!to) return;
        #pragma unroll 1
        for (int digit = 0, power = 1; digit < digits; ++digit, power *= 128) {
            __syncwarp();
            #pragma unroll 1
            for (int e = threadIdx.x % 32; e < count; e += 32) {
                numbers[e] = small_number<T>(e / power % 128);
            }
            __syncwarp();
            load(f, numbers);
            hold(f, digit * 32 * f.num_elements);
        }
    }

    // Lets a lane see what others stored of a tile, and what it copies itself.
    __device__ void settle() {
        if (words) __syncwarp();
    }
    __device__ void arrive() {
        if (words) wait_for_copies();
    }
    // Keeps the block together until shared memory has been recorded.
    __device__ void rejoin() { __syncthreads(); }
};

}  // namespace tcu
