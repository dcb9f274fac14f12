// What emitted kernels need beyond CUDA's own headers: conversions and additions that round once,
// exact splitting, status words, vectors of elements, and fragments for mma.sync shapes, in the
// manner of nvcuda::wmma.
// The same text is compiled by NVRTC for a GPU and by a C++ compiler for the host backend.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#ifdef __CUDACC__
// A kernel of fragments alone has no use for its lane.
#pragma nv_diag_suppress 177
#endif

// A block may wait on a GPU; on the host, where blocks run one after the other, that is an error.
#ifndef TCUSIM_UNPUBLISHED
#define TCUSIM_UNPUBLISHED()
#endif

namespace tcu {

// The blocks that are to share a multiprocessor. Before sm_80 a tile of WMMA takes twice as many
// registers, and the compiler decides.
#if !defined(TCUSIM_HOST) && __CUDA_ARCH__ >= 800
constexpr int residents(int blocks) { return blocks; }
#else
constexpr int residents(int) { return 1; }
#endif

// The thread's number, which the compiler cannot know it has asked for before: places that follow
// from it are computed anew, where they are rarely needed, and take no registers until then.
__device__ inline int thread_anew() {
#ifdef TCUSIM_HOST
    return threadIdx.x;
#else
    int number;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
    return number;
#endif
}

// --- Conversions: each rounds to nearest even, once --------------------------------------------

template <class To, class From>
struct Convert {
    __device__ static To run(From x) { return static_cast<To>(x); }
};
template <class Same>
struct Convert<Same, Same> {
    __device__ static Same run(Same x) { return x; }
};
template <>
struct Convert<half, float> {
    __device__ static half run(float x) { return __float2half_rn(x); }
};
template <>
struct Convert<float, half> {
    __device__ static float run(half x) { return __half2float(x); }
};
template <>
struct Convert<half, double> {
    __device__ static half run(double x) { return __double2half(x); }
};
template <>
struct Convert<double, half> {
    __device__ static double run(half x) { return static_cast<double>(__half2float(x)); }
};
template <>
struct Convert<__nv_bfloat16, float> {
    // Two at a time: the instruction for one has a quarter of the throughput.
    __device__ static __nv_bfloat16 run(float x) { return __floats2bfloat162_rn(x, x).x; }
};
template <>
struct Convert<float, __nv_bfloat16> {
    __device__ static float run(__nv_bfloat16 x) { return __bfloat162float(x); }
};
template <>
struct Convert<__nv_bfloat16, double> {
    __device__ static __nv_bfloat16 run(double x) { return __double2bfloat16(x); }
};
template <>
struct Convert<double, __nv_bfloat16> {
    __device__ static double run(__nv_bfloat16 x) {
        return static_cast<double>(__bfloat162float(x));
    }
};
// Through float: each of the two 16-bit types is exact in it, so there is one rounding.
template <>
struct Convert<half, __nv_bfloat16> {
    __device__ static half run(__nv_bfloat16 x) { return __float2half_rn(__bfloat162float(x)); }
};
template <>
struct Convert<__nv_bfloat16, half> {
    __device__ static __nv_bfloat16 run(half x) { return __float2bfloat16_rn(__half2float(x)); }
};

template <class One, class Other>
struct Same {
    static constexpr bool value = false;
};
template <class One>
struct Same<One, One> {
    static constexpr bool value = true;
};

template <class To, class From>
__device__ inline To convert(From x) {
    return Convert<To, From>::run(x);
}

// --- Additions: each rounds to nearest even, and is never contracted into an fma ----------------

__device__ inline half add(half x, half y) { return __hadd_rn(x, y); }
__device__ inline __nv_bfloat16 add(__nv_bfloat16 x, __nv_bfloat16 y) {
    return __float2bfloat16_rn(__fadd_rn(__bfloat162float(x), __bfloat162float(y)));
}
__device__ inline float add(float x, float y) { return __fadd_rn(x, y); }
// A double keeps the NaN of one operand, and a compiler may exchange them: one NaN for all.
__device__ inline float with_one_nan(float x) { return x; }
__device__ inline double with_one_nan(double x) {
    return x == x ? x : __longlong_as_double(0xFFF8000000000000LL);
}
// A sum whose NaN may be any: for several additions, of which the last makes it one.
__device__ inline float add_any(float x, float y) { return __fadd_rn(x, y); }
__device__ inline double add_any(double x, double y) { return __dadd_rn(x, y); }
__device__ inline double add(double x, double y) { return with_one_nan(add_any(x, y)); }
__device__ inline int add(int x, int y) {
    return static_cast<int>(static_cast<unsigned int>(x) + static_cast<unsigned int>(y));
}
__device__ inline long long add(long long x, long long y) {
    return static_cast<long long>(
        static_cast<unsigned long long>(x) + static_cast<unsigned long long>(y));
}

// Operations of formulas. None is contracted, and subnormal numbers are kept.
__device__ inline float times(float x, float y) { return __fmul_rn(x, y); }
__device__ inline float over(float x, float y) { return __fdiv_rn(x, y); }
__device__ inline float root(float x) { return __fsqrt_rn(x); }
// NaN if either is, as arithmetic writes it; +0 is above -0.
__device__ inline float maximum(float x, float y) {
    if (x < y || y < x) return x < y ? y : x;
    return x == y && x != 0.0f ? x : __fadd_rn(x, y);
}

// Rounds to odd: if bits are lost, the last one that is kept is set.
__device__ inline double add_to_odd(double x, double y) {
    const double sum = add(x, y);
    const double part = __dadd_rn(sum, -x);
    const double error = __dadd_rn(__dadd_rn(x, -__dadd_rn(sum, -part)), __dadd_rn(y, -part));
    const long long bits = __double_as_longlong(sum);
    // The error of a sum that is not finite is NaN.
    if ((bits & 1) != 0 || !(error < 0.0 || error > 0.0)) return sum;
    return __longlong_as_double(bits + ((error > 0.0) == (sum > 0.0) ? 1 : -1));
}

// --- Infinities and NaN --------------------------------------------------------------------------

__device__ inline bool is_finite(double x) { return x - x == 0.0; }
__device__ inline bool is_finite(float x) {
#if defined(TCUSIM_HOST)
    return x - x == 0.0f;
#else
    // One instruction.
    return fabsf(x) < __int_as_float(0x7F800000);
#endif
}
template <class T>
__device__ inline bool is_finite(T x) {
    return is_finite(convert<float>(x));
}
template <class T>
__device__ inline T only_finite(T x) {
    return is_finite(x) ? x : convert<T>(0.0f);
}
template <class T>
__device__ inline T only_not_finite(T x) {
    return is_finite(x) ? convert<T>(0.0f) : x;
}
// Parts of a number. Beside one whose last bit is 1, a float has no bits left for a fraction.
__device__ inline half only_whole(half x) {
    constexpr float ones = 12582912.0f;
    return convert<half>(__fadd_rn(__fadd_rn(convert<float>(x), ones), -ones));
}
__device__ inline half only_fraction(half x) {
    const float whole = convert<float>(only_whole(x));
    return convert<half>(is_finite(x) ? __fadd_rn(convert<float>(x), -whole) : 0.0f);
}
__device__ inline float only_whole(float x) { return __fadd_rn(rint(x), 0.0f); }
__device__ inline float only_fraction(float x) {
    return is_finite(x) ? __fadd_rn(x, -only_whole(x)) : 0.0f;
}
__device__ inline double only_whole(double x) { return with_one_nan(__dadd_rn(rint(x), 0.0)); }
__device__ inline double only_fraction(double x) {
    return is_finite(x) ? __dadd_rn(x, -only_whole(x)) : 0.0;
}
__device__ inline __nv_bfloat16 only_whole(__nv_bfloat16 x) {
    return convert<__nv_bfloat16>(only_whole(convert<float>(x)));
}
__device__ inline __nv_bfloat16 only_fraction(__nv_bfloat16 x) {
    return convert<__nv_bfloat16>(only_fraction(convert<float>(x)));
}

// --- Splitting ----------------------------------------------------------------------------------

// What remains of a number after its leading part, exactly. An infinity or NaN is the first part;
// nothing is left of it.
template <bool FIRST, class Narrow, class Wide>
__device__ inline Wide rest_of(Wide x, Narrow part) {
    const Wide taken = convert<Wide>(part);
    return !FIRST || is_finite(taken) ? add(x, -taken) : Wide(0);
}

// Takes the leading part of `rest` that a narrow type can hold, and leaves what remains.
// FIRST: nothing has been taken yet, so that it may be infinite or NaN.
template <class Narrow, bool FIRST, class Wide>
__device__ inline Narrow take_part(Wide& rest) {
    const Narrow part = convert<Narrow>(rest);
    rest = rest_of<FIRST>(rest, part);
    return part;
}

// --- Blocks that run one below the other, in bands of so many rows of the grid -------------------

// How many rows the band of a block has: the last one may have fewer.
template <int COLUMNS, int ROWS>
__device__ inline int rows_of_band(unsigned int number, long long blocks) {
    const long long rest = blocks - static_cast<long long>(number / (COLUMNS * ROWS)) * ROWS;
    return rest < ROWS ? static_cast<int>(rest) : ROWS;
}
template <int COLUMNS, int ROWS>
__device__ inline long long row_in_bands(unsigned int number, long long blocks) {
    const int rows = rows_of_band<COLUMNS, ROWS>(number, blocks);
    const int within = number % (COLUMNS * ROWS);
    return static_cast<long long>(number / (COLUMNS * ROWS)) * ROWS + within % rows;
}
template <int COLUMNS, int ROWS>
__device__ inline int col_in_bands(unsigned int number, long long blocks) {
    const int within = number % (COLUMNS * ROWS);
    return within / rows_of_band<COLUMNS, ROWS>(number, blocks);
}

// --- Status words: values that blocks of one launch give to later ones ---------------------------

// What a block takes when it starts. number: how many blocks of its launch started before it.
// launch: the launch's own number among those on the same memory, from 1 on.
struct Ticket {
    long long number;
    unsigned int launch;
};

// All threads call it, and none runs ahead. The lower 32 bits of `count` are tickets taken in this
// launch, the upper ones launches that have ended: all are 0 when the memory is new, and nobody
// clears them afterwards. Whoever takes the last ticket readies the count for the next launch on
// this memory, whose blocks start when this one has ended.
__device__ inline Ticket take_ticket(unsigned long long* count) {
    __shared__ unsigned long long taken;
    if (threadIdx.x == 0) {
        const unsigned long long before = atomicAdd(count, 1ull);
        taken = before;
        const bool last = static_cast<unsigned int>(before) == gridDim.x - 1;
        if (last) atomicAdd(count, (1ull << 32) - gridDim.x);
    }
    __syncthreads();
    return {static_cast<unsigned int>(taken), static_cast<unsigned int>(taken >> 32) + 1u};
}

template <class T>
__device__ inline unsigned int low_bits(T x) {
    unsigned int bits = 0;
    memcpy(&bits, &x, sizeof(T) < 4 ? sizeof(T) : 4);
    return bits;
}

// Values that come with their flag: a flagged word of 64 bits holds 32 bits of a value, and above
// them the number of the launch that published it. It is stored and loaded whole, so whoever sees
// the flag sees the bits, and no fence is needed. A value of 64 bits has two words.
//
// What earlier launches left is not cleared: it has their numbers. After 2**32 launches these begin
// again, which does no harm: each launch on this memory publishes the words that blocks await, so
// that what lies there is of the launch before, whose number is another.
template <class T>
struct Status {
    unsigned long long* words;
    unsigned int launch;

    // What lies at a place, of this launch or not. Several such loads are in flight together.
    using Word = unsigned long long;
    __device__ static Word empty() { return 0; }
    // Of two words the first one is looked at.
    __device__ Word try_load(long long place) const { return load_word(WORDS * place); }

    __device__ void store(long long place, T value) const {
        store_word(WORDS * place, low_bits(value));
        if constexpr (WORDS == 2) {
            Word bits;
            memcpy(&bits, &value, sizeof(T));
            store_word(2 * place + 1, static_cast<unsigned int>(bits >> 32));
        }
    }
    // The value, once its flag is there; `seen` is what try_load returned.
    __device__ T wait(long long place, Word seen) const {
        Word bits = wait_word(WORDS * place, seen);
        if constexpr (WORDS == 2) {
            const Word high = wait_word(2 * place + 1, load_word(2 * place + 1));
            bits |= high << 32;
        }
        T value;
        memcpy(&value, &bits, sizeof(T));
        return value;
    }

    static constexpr int WORDS = sizeof(T) == 8 ? 2 : 1;

    __device__ void store_word(long long place, unsigned int bits) const {
        *static_cast<volatile Word*>(words + place) = static_cast<Word>(launch) << 32 | bits;
    }
    __device__ Word load_word(long long place) const {
        return *static_cast<const volatile Word*>(words + place);
    }
    __device__ unsigned int wait_word(long long place, Word seen) const {
        while (static_cast<unsigned int>(seen >> 32) != launch) {
            TCUSIM_UNPUBLISHED();
            seen = load_word(place);
        }
        return static_cast<unsigned int>(seen);
    }
};

// --- Segments of unequal length -----------------------------------------------------------------

// How many whole LENGTHs an offset is. Offsets are not negative; those that are would not be right.
template <long long LENGTH, class Int>
__device__ inline Int whole_in(Int offset) {
    if constexpr ((LENGTH & (LENGTH - 1)) == 0) {
        int bits = 0;
        for (long long rest = LENGTH; rest > 1; rest /= 2) ++bits;
        return offset >> bits;
    } else {
        return offset / static_cast<Int>(LENGTH);
    }
}
// Where the data of segment i begin, as chunks of these lengths leave them; see Segments in
// program/grammar.py.
template <long long... LENGTHS, class Int>
__device__ inline Int position(Int offset, Int i) {
    ((offset = whole_in<LENGTHS>(offset) + i), ...);
    return offset;
}

// How many values a segment of so many elements has, when chunks of these lengths have been summed.
template <long long... LENGTHS, class Int>
__device__ inline Int values_of(Int elements) {
    ((elements = whole_in<LENGTHS>(elements + static_cast<Int>(LENGTHS - 1))), ...);
    return elements;
}

// The bits that any lane of the warp has.
__device__ inline unsigned int any_bits(unsigned int mine) {
#if !defined(TCUSIM_HOST) && __CUDA_ARCH__ >= 800
    return __reduce_or_sync(0xFFFFFFFFu, mine);
#else
    #pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) mine |= __shfl_xor_sync(0xFFFFFFFFu, mine, apart);
    return mine;
#endif
}
// The largest number that a lane of the warp has.
__device__ inline int most_of(int mine) {
#if !defined(TCUSIM_HOST) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xFFFFFFFFu, mine);
#else
    #pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
        const int other = __shfl_xor_sync(0xFFFFFFFFu, mine, apart);
        mine = other > mine ? other : mine;
    }
    return mine;
#endif
}
// A bit for each lane for which it holds; and the last such lane, 0 if there is none.
__device__ inline unsigned int lanes_with(bool mine) { return __ballot_sync(0xFFFFFFFFu, mine); }
__device__ inline int last_of(unsigned int lanes) { return lanes ? 31 - __clz(lanes) : 0; }

// What the lanes of a warp know of the ranges that they have found.
struct Found {
    // The number of the last chunk, -1 before the first search, and its segment: a search that goes on
    // from there has little to look at.
    long long last = -1;
    long long segment = 0;
    // Whether some range has elements, all that have are at least `margin` from both ends of the data,
    // and an int can count them.
    bool inner = false;
    // Whether all ranges are in one piece of memory of less than 2**16 elements, from the first one on;
    // and if so, whether each begins where the one before ends.
    bool close = false;
    bool follow = false;
    // The most elements of a range; and the fewest, or 0 if they do not follow each other.
    int longest = 0;
    int shortest = 0;
    // Where the chunk behind the last one begins, and the number of the first chunk from there on that
    // is not a whole one of the same segment.
    long long next = 0;
    long long whole_until = 0;
    // Whether offsets, numbers and places have 30 bits.
    bool narrow = false;
};
constexpr int margin = 32;

// Where a range begins in the piece that it is part of, and how many elements it has: `places` holds
// both, in 16 bits each, if ranges are close to each other.
__device__ inline int start_of(int place) { return place & 0xFFFF; }
__device__ inline int count_of(int place) {
    return static_cast<int>(static_cast<unsigned int>(place) >> 16);
}

// The same as locate, of chunks that have to be searched for. Int: int where 30 bits hold what there is,
// for which a GPU takes half the instructions; then places are counted from the first element.
template <class Int, long long LENGTH, long long... LEVELS>
__device__ inline void locate_anew(
    const long long* offsets,
    Int segments,
    Int first,
    int count,
    long long* begins,
    long long* ends,
    int* places,
    Found& found,
    Int most
) {
    const int lane = threadIdx.x % 32;
    constexpr Int length = LENGTH > 0 ? LENGTH : 1;
    constexpr int far_away = 1 << 30;
    constexpr bool is_wide = sizeof(Int) > 4;
    static_assert(LENGTH < 1 << 20, "32 chunks are told apart in 32 bits");
    const bool by_search = LENGTH > 0 && segments > 0;
    // Right offsets are what they are; others must overflow no sum.
    const auto offset_of = [&](Int i) {
        return static_cast<Int>(is_wide ? offsets[i] : offsets[i] & (far_away - 1));
    };
    // A segment's first number is higher than that of the one before.
    const auto number_of = [](Int offset, Int i) { return position<LEVELS..., length>(offset, i); };
    // A distance in 32 bits, as long as it is no more than that.
    const auto near = [](Int distance) {
        if constexpr (!is_wide) return distance;
        distance = distance < far_away ? distance : far_away;
        return static_cast<int>(distance > -far_away ? distance : -far_away);
    };
    const auto chunks = [](int count) {
        return static_cast<int>(static_cast<unsigned int>(count) * static_cast<unsigned int>(length));
    };
    // The last segment that has begun by number `first` is from low to high - 1.
    Int low = 0;
    if (by_search) {
        Int high = segments;
        const Int apart = static_cast<Int>(first - found.last);
        if (found.last >= 0 && apart > 0) {
            low = static_cast<Int>(found.segment);
            high = apart < segments - low ? low + 1 + apart : segments;
        }
        while (high - low > 2) {
            // Each lane looks at a part; one finds that the segment is in its own.
            const Int step = (high - low + 31) / 32;
            const Int here = low + lane * step;
            const Int next = here + step;
            const bool after = here < high && (lane == 0 || number_of(offset_of(here), here) <= first);
            const bool beyond = next < high && number_of(offset_of(next), next) <= first;
            low += step * last_of(lanes_with(after && !beyond));
            high = low + step < high ? low + step : high;
        }
    }
    // What was known of the ranges before, other lanes have read.
    __syncwarp();
    Int origin = 0;
    Int last_end = 0;
    bool outer = false;
    bool gap = false;
    bool far = false;
    int longest = 0;
    int shortest = far_away;
    Int following = 0;
    int whole = 0;
    #pragma unroll 1
    for (int base = 0; base < count; base += 32) {
        const int taken = count - base < 32 ? count - base : 32;
        const Int here = first + base;
        // Places are counted from one near which all ranges lie, if they are close to each other.
        Int zero = 0;
        int begin = 0;
        int end = 0;
        Int from = 0;
        Int to = 0;
        if (by_search) {
            // The lane's number is that of segment low or of one of the next 32: each lane reads where
            // one of these begins and ends, and all learn which numbers these begin with.
            const Int next = low + 1 + lane < segments ? low + 1 + lane : segments;
            const Int own = offset_of(next);
            const Int own_end = offset_of(next < segments ? next + 1 : segments);
            const Int start = offset_of(low);
            const Int start_end = offset_of(low + 1);
            const int begun_before = near(here - number_of(start, low));
            const Int start_place = position<LEVELS...>(start, low);
            if constexpr (is_wide) zero = start_place + begun_before * length;
            const int first_place = is_wide ? 0 : static_cast<int>(start_place) + chunks(begun_before);
            const int first_of_own = low + 1 + lane < segments ? near(number_of(own, next) - here) : 32;
            const bool begins_here = first_of_own < 32 && (first_of_own >= 0 || lane == 0);
            const unsigned int mine = begins_here ? 1u << (first_of_own > 0 ? first_of_own : 0) : 0u;
            const int i = __popc(any_bits(mine) & ((2u << lane) - 1));
            const Int own_place = position<LEVELS...>(own, next) - zero;
            const int own_limit = near(own_place + values_of<LEVELS...>(own_end - own));
            const int start_of_own = __shfl_sync(0xFFFFFFFFu, near(own_place), (i + 31) % 32);
            const int number = __shfl_sync(0xFFFFFFFFu, first_of_own, (i + 31) % 32);
            int limit = __shfl_sync(0xFFFFFFFFu, own_limit, (i + 31) % 32);
            if (i == 0) limit = near(start_place + values_of<LEVELS...>(start_end - start) - zero);
            const int before = lane - (i == 0 ? 0 : number);
            begin = (i == 0 ? first_place : start_of_own) + chunks(before);
            // Before the first chunk, or beyond its segment's last, there is none.
            const bool is_one = before + (i == 0 ? begun_before : 0) >= 0 && begin < limit;
            begin = is_one ? begin : limit;
            end = begin + static_cast<int>(length) < limit ? begin + static_cast<int>(length) : limit;
            low += __shfl_sync(0xFFFFFFFFu, i, taken - 1);
            // Behind the last one its segment goes on, as long as there are data.
            const int behind = __shfl_sync(0xFFFFFFFFu, begin, taken - 1) + static_cast<int>(length);
            const int segment_end = __shfl_sync(0xFFFFFFFFu, limit, taken - 1);
            const int data_end = near(most - zero);
            const int rest = (segment_end < data_end ? segment_end : data_end) - behind;
            following = zero + behind;
            whole = following >= 0 && rest > 0 ? rest / static_cast<int>(length) : 0;
        } else {
            const Int i = here + lane < segments ? here + lane : segments - 1;
            if (segments > 0) {
                const Int start = offset_of(i);
                from = position<LEVELS...>(start, i);
                to = from + values_of<LEVELS...>(offset_of(i + 1) - start);
            }
            if (here + lane >= segments) from = to;
            if constexpr (is_wide) zero = __shfl_sync(0xFFFFFFFFu, from, 0);
            begin = near(from - zero);
            end = near(to - zero);
        }
        // Ranges are clipped to the data.
        const int bottom = near(-zero);
        const int top = near(most - zero);
        end = end < top ? end : top;
        begin = begin > bottom ? begin : bottom;
        begin = begin < end ? begin : end;
        if (by_search) {
            from = zero + begin;
            to = zero + end;
        } else {
            to = to < most ? to : most;
            from = from > 0 ? from : 0;
            from = from < to ? from : to;
        }
        // Where the piece of all ranges begins, and where the range before ends.
        int piece = __shfl_sync(0xFFFFFFFFu, begin, 0);
        int last = piece;
        if (base > 0) {
            piece = near(origin - zero);
            last = near(last_end - zero);
        } else if (count > 32) {
            origin = zero + piece;
        }
        int earlier = __shfl_sync(0xFFFFFFFFu, end, (lane + 31) % 32);
        if (lane == 0) earlier = last;
        if (lane < taken) {
            gap |= begin != earlier;
            far |= begin < piece || end - piece >= 1 << 16;
            const bool near_an_end = begin < bottom + margin || end > top - margin;
            outer |= end >= far_away || (begin < end && near_an_end);
            longest = end - begin > longest ? end - begin : longest;
            shortest = end - begin < shortest ? end - begin : shortest;
            begins[base + lane] = from;
            ends[base + lane] = to;
            const unsigned int elements = static_cast<unsigned int>(end - begin) << 16;
            places[base + lane] = static_cast<int>(elements | (begin - piece & 0xFFFF));
        }
        if (count > 32) last_end = zero + __shfl_sync(0xFFFFFFFFu, end, taken - 1);
    }
    found.longest = most_of(longest);
    found.inner = found.longest > 0 && !__any_sync(0xFFFFFFFFu, outer);
    found.close = !__any_sync(0xFFFFFFFFu, far);
    found.follow = found.close && !__any_sync(0xFFFFFFFFu, gap);
    found.shortest = found.follow ? -most_of(-shortest) : 0;
    found.last = first + count - 1;
    found.segment = low;
    found.next = following;
    found.whole_until = first + count + whole;
    __syncwarp();
}

// Where chunks `first` to first + count - 1 of the segments begin and end, found by the lanes of a
// warp together; LENGTH 0 takes whole segments. No chunk reaches beyond `most` elements, nor before
// the first, whatever the offsets are.
template <long long LENGTH, long long... LEVELS>
__device__ inline void locate(
    const long long* offsets,
    long long segments,
    long long first,
    int count,
    long long* begins,
    long long* ends,
    int* places,
    Found& found,
    long long most = 0x7fffffffffffffffLL
) {
    constexpr int length = LENGTH;
    const bool goes_on = LENGTH > 0 && 32 * LENGTH < 1 << 16 && count <= 32 && found.last >= 0 &&
        first == found.last + 1 && first + count <= found.whole_until;
    if (!goes_on) {
        if (found.last < 0) {
            // Offsets are of elements, of which there may be more than there are data of a level.
            found.narrow = most < 1 << 30 && segments < 1 << 29 && offsets[segments] < 1 << 30;
        }
        if (found.narrow) {
            locate_anew<int, LENGTH, LEVELS...>(
                offsets, static_cast<int>(segments), static_cast<int>(first), count,
                begins, ends, places, found, static_cast<int>(most)
            );
        } else {
            locate_anew<long long, LENGTH, LEVELS...>(
                offsets, segments, first, count, begins, ends, places, found, most
            );
        }
        return;
    }
    // Fast chunks of the segment in which the last ones were. What was known of these, other lanes
    // have read.
    __syncwarp();
    const int lane = threadIdx.x % 32;
    if (lane < count) {
        const long long from = found.next + lane * length;
        begins[lane] = from;
        ends[lane] = from + length;
        places[lane] = length << 16 | lane * length;
    }
    found.inner = found.next >= margin && found.next + count * length <= most - margin;
    found.close = found.follow = true;
    found.longest = found.shortest = length;
    found.last = first + count - 1;
    found.next += count * length;
    __syncwarp();
}

// --- Shared memory --------------------------------------------------------------------------------

// A buffer in shared memory. An index is scaled to bytes here, by one multiplication, since ptxas
// 12.4 to 13.5 goes wrong from sm_90 on where it does so itself: of three addresses a + 4*(c*row),
// b + 4*(d*row) and e + 2*(f*row), the last becomes e + 4*(f*row).
template <class T>
struct Shared {
    T* begin;

#ifdef TCUSIM_HOST
    Shared(T* first) : begin(first) { tcusim::begin_shared(first); }
#endif

    template <class Int>
    __device__ T& operator[](Int index) const {
        char* const bytes = reinterpret_cast<char*>(begin);
        return *reinterpret_cast<T*>(bytes + index * static_cast<Int>(sizeof(T)));
    }
};

// The same number, of whose bits the compiler knows nothing.
__device__ inline int unknown(int x) {
#ifndef TCUSIM_HOST
    asm("" : "+r"(x));
#endif
    return x;
}
__device__ inline long long unknown(long long x) {
#ifndef TCUSIM_HOST
    asm("" : "+l"(x));
#endif
    return x;
}

// --- Vectors: neighbouring elements that one lane moves together ---------------------------------

template <int BYTES>
struct alignas(BYTES) Words {
    unsigned int w[BYTES / 4];
};
template <>
struct Words<2> {
    unsigned short w;
};
template <>
struct Words<1> {
    unsigned char w;
};

// V elements in registers; V * sizeof(T) is a power of two. They are copied by words: the compiler
// would copy them one by one, and take 16-bit elements apart.
template <class T, int V>
struct Vector {
    static constexpr int bytes = V * sizeof(T);
    // What one instruction can move of it.
    static constexpr int access = bytes < 16 ? bytes : 16;
    alignas(access) T x[V];

    Vector() = default;
    __device__ Vector(const Vector& other) { *this = other; }
    __device__ Vector& operator=(const Vector& other) {
        constexpr int word = bytes < 4 ? bytes : 4;
        #pragma unroll
        for (int i = 0; i < bytes / word; ++i) {
            reinterpret_cast<Words<word>*>(x)[i] = reinterpret_cast<const Words<word>*>(other.x)[i];
        }
        return *this;
    }
};

// Where a vector lies: at a multiple of its access, as in shared memory, or anywhere. An array that
// a user passes may begin at any element, so the widest access that does is found as it runs.
struct Aligned {};
struct Anywhere {};
// Anywhere in global memory.
struct Global : Anywhere {};

// For a vector that is in bounds whatever the symbols are.
struct Always {
    __device__ constexpr bool operator()(int) const { return true; }
};

__device__ inline bool is_multiple(const void* p, int bytes) {
    return reinterpret_cast<unsigned long long>(p) % bytes == 0;
}

template <class Where>
__device__ inline bool lies(const void* p, int bytes);
template <>
__device__ inline bool lies<Aligned>(const void*, int) {
    return true;
}
template <>
__device__ inline bool lies<Anywhere>(const void* p, int bytes) {
    return is_multiple(p, bytes);
}

// Moves a vector by accesses of so many bytes, all of which must begin at multiples of them.
template <int BYTES, class T, int V>
__device__ inline void move_by(T* to, const T* from) {
#ifdef TCUSIM_HOST
    tcusim::require_multiple(to, BYTES);
    tcusim::require_multiple(from, BYTES);
#endif
    #pragma unroll
    for (int i = 0; i < Vector<T, V>::bytes / BYTES; ++i) {
        reinterpret_cast<Words<BYTES>*>(to)[i] = reinterpret_cast<const Words<BYTES>*>(from)[i];
    }
}

// Moves a vector between memory and registers: `address` is the one of the two that is in memory.
template <int BYTES, class T, int V>
__device__ inline void access(T* to, const T* from, const void* address, Anywhere where) {
    // After 16 bytes 4 are tried, then elements: more cases would make more code, seldom run.
    constexpr int less = BYTES > 4 ? 4 : 1;
    if constexpr (BYTES <= static_cast<int>(sizeof(T))) {
        move_by<sizeof(T), T, V>(to, from);
    } else if (is_multiple(address, BYTES)) {
        move_by<BYTES, T, V>(to, from);
    } else {
        access<less, T, V>(to, from, address, where);
    }
}
template <int BYTES, class T, int V>
__device__ inline void access(T* to, const T* from, const void*, Aligned) {
    move_by<BYTES, T, V>(to, from);
}

// Reads the vector at p, zeros where out of bounds. inside(i) says whether element i is in bounds:
// bounds are affine, so if they hold at both ends they do between.
template <int V, class Where = Anywhere, class T, class Inside = Always>
__device__ inline Vector<T, V> load(const T* p, Inside inside = {}) {
    Vector<T, V> vector;
    if (inside(0) && inside(V - 1)) {
        access<Vector<T, V>::access, T, V>(vector.x, p, p, Where());
    } else {
        #pragma unroll
        for (int i = 0; i < V; ++i) vector.x[i] = inside(i) ? p[i] : convert<T>(0.0f);
    }
    return vector;
}

// Moves the bytes of words from number `skew` on to the beginning of the first half of them: by two
// words, by one, and by bits.
template <int N>
__device__ inline void begin_at(int skew, unsigned int (&w)[N]) {
    #pragma unroll
    for (int i = 0; i < N - 2; ++i) w[i] = skew & 8 ? w[i + 2] : w[i];
    #pragma unroll
    for (int i = 0; N > 2 && i < N / 2 + 1; ++i) w[i] = skew & 4 ? w[i + 1] : w[i];
    #pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        const unsigned long long pair = static_cast<unsigned long long>(w[i + 1]) << 32 | w[i];
        w[i] = static_cast<unsigned int>(pair >> 8 * (skew % 4));
    }
}

// V elements of a row that begins anywhere, of which `rest` are there: read from the one or two
// aligned vectors that hold them, which must be in the array.
template <int V, class T>
struct Piece {
    static constexpr int bytes = Vector<T, V>::bytes;
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "what one access can read");
    static constexpr int words = bytes / 4;

    const T* p;
    // Elements, and bytes before them in the first vector.
    int count, skew;

    __device__ Piece(const T* p, int rest) : p(p), count(rest < V ? rest : V) {
        skew = static_cast<int>(reinterpret_cast<unsigned long long>(p) & (bytes - 1));
    }

    struct Parts {
        Words<bytes> one, two;
    };
    __device__ Parts load() const {
        const auto* from = reinterpret_cast<const Words<bytes>*>(
            reinterpret_cast<const char*>(p) - static_cast<unsigned int>(skew)
        );
        Parts parts = {};
        if (count > 0) parts.one = from[0];
        if (count > 0 && count * static_cast<int>(sizeof(T)) + skew > bytes) parts.two = from[1];
        return parts;
    }

    // The elements, and zeros behind them.
    __device__ Vector<T, V> join(const Parts& parts) const {
        unsigned int w[2 * words];
        #pragma unroll
        for (int i = 0; i < words; ++i) {
            w[i] = parts.one.w[i];
            w[words + i] = parts.two.w[i];
        }
        begin_at(skew, w);
        if (count < V) {
            #pragma unroll
            for (int i = 0; i < words; ++i) {
                const int bits = 8 * (count * static_cast<int>(sizeof(T)) - 4 * i);
                w[i] = bits >= 32 ? w[i] : bits <= 0 ? 0 : w[i] & ((1u << bits) - 1);
            }
        }
        Vector<T, V> vector;
        memcpy(vector.x, w, bytes);
        return vector;
    }
};
template <int V, class T>
__device__ inline Piece<V, T> piece(const T* p, long long rest = V) {
    return Piece<V, T>(p, static_cast<int>(rest));
}
// The same, one element at a time.
template <int V, class T>
__device__ inline Vector<T, V> gather(const T* p, long long rest) {
    Vector<T, V> vector;
    #pragma unroll
    for (int i = 0; i < V; ++i) vector.x[i] = i < rest ? p[i] : convert<T>(0.0f);
    return vector;
}

// Writes the vector at p, where in bounds.
template <class Where = Anywhere, class T, int V, class Inside = Always>
__device__ inline void store(T* p, const Vector<T, V>& vector, Inside inside = {}) {
    if (inside(0) && inside(V - 1)) {
        access<Vector<T, V>::access, T, V>(p, vector.x, p, Where());
    } else {
        #pragma unroll
        for (int i = 0; i < V; ++i) {
            if (inside(i)) p[i] = vector.x[i];
        }
    }
}

// Writes a vector that is in bounds and aligned.
template <class T, int V, class Where>
__device__ inline void store_aligned(T* p, const Vector<T, V>& vector, Where) {
    store<Aligned>(p, vector);
}
// nvcc splits a store of 16 bytes into four of 4 bytes if its address has terms of 64 bits: PTX keeps
// it whole.
template <class T, int V>
__device__ inline void store_aligned(T* p, const Vector<T, V>& vector, Global) {
#ifndef TCUSIM_HOST
    if constexpr (Vector<T, V>::access == 16) {
        const auto* from = reinterpret_cast<const Words<16>*>(vector.x);
        #pragma unroll
        for (int i = 0; i < Vector<T, V>::bytes / 16; ++i) {
            const unsigned int(&w)[4] = from[i].w;
            asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                         :
                         : "l"(__cvta_generic_to_global(p) + 16 * i), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                         : "memory");
        }
        return;
    }
#endif
    store<Aligned>(p, vector);
}

template <int V, class T>
__device__ inline Vector<T, V> repeat(T x) {
    Vector<T, V> vector;
    #pragma unroll
    for (int i = 0; i < V; ++i) vector.x[i] = x;
    return vector;
}

template <class To, class From, int V>
__device__ inline Vector<To, V> convert(const Vector<From, V>& from) {
    Vector<To, V> to;
    if constexpr (V % 2 == 0 && Same<To, __nv_bfloat16>::value && Same<From, float>::value) {
        #pragma unroll
        for (int i = 0; i < V; i += 2) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(from.x[i], from.x[i + 1]);
            to.x[i] = pair.x;
            to.x[i + 1] = pair.y;
        }
    } else {
        #pragma unroll
        for (int i = 0; i < V; ++i) to.x[i] = convert<To>(from.x[i]);
    }
    return to;
}

template <int V, class T>
__device__ inline Vector<T, V> take(const T* from) {
    Vector<T, V> vector;
    #pragma unroll
    for (int i = 0; i < V; ++i) vector.x[i] = from[i];
    return vector;
}
template <int V, class T>
__device__ inline void put(T* to, const Vector<T, V>& vector) {
    #pragma unroll
    for (int i = 0; i < V; ++i) to[i] = vector.x[i];
}
template <class T>
__device__ inline void put(T* to, T x) {
    *to = x;
}
// A vector, or one element.
template <int V, class T>
__device__ inline auto vector_of(const T* from) {
    if constexpr (V == 1) return *from;
    else return take<V>(from);
}

// Writes the E elements that each lane holds to shared memory, V at a time, from an aligned place on;
// those of neighbouring lanes follow each other. Lanes whose places are in the same banks write their
// vectors in different orders: by exchanges in registers, since these have no changing index. The
// elements are elsewhere afterwards.
template <int V, class T, int E>
__device__ inline void store_in_turn(T* to, T (&x)[E]) {
    constexpr int bytes = E * static_cast<int>(sizeof(T));
    // Lanes that fill all banks, 128 bytes; and vectors that do.
    constexpr int lanes = bytes < 128 ? 128 / bytes : 1;
    constexpr int turns = E / V < 8 ? E / V : 8;
    const int turn = static_cast<int>(threadIdx.x % 32) / lanes % turns;
    #pragma unroll
    for (int bit = 1; bit < turns; bit *= 2) {
        const bool exchanged = (turn & bit) != 0;
        #pragma unroll
        for (int i = 0; i < E; ++i) {
            if ((i / V & bit) != 0) continue;
            const T one = x[i], other = x[i + bit * V];
            x[i] = exchanged ? other : one;
            x[i + bit * V] = exchanged ? one : other;
        }
    }
    #pragma unroll
    for (int i = 0; i < E / V; ++i) store<Aligned>(to + (i ^ turn) * V, take<V>(x + i * V));
}

// The sum of a row of which L neighbouring lanes hold E elements each, in all of these lanes.
// Neighbours are added in pairs, then neighbouring pairs: x + 0 makes 0 of -0, which is all that
// elements of -0 come to. A long row has several such PIECES, one after the other.
template <int E, int L, int PIECES = 1, class T>
__device__ inline T sum_of_row(T (&x)[E * PIECES]) {
    #pragma unroll
    for (int apart = 1; apart < E; apart *= 2) {
        #pragma unroll
        for (int i = 0; i < E * PIECES; i += 2 * apart) x[i] = add_any(x[i], x[i + apart]);
    }
    #pragma unroll
    for (int apart = 1; apart < L; apart *= 2) {
        #pragma unroll
        for (int i = 0; i < E * PIECES; i += E) {
            // a + b is b + a, so both lanes of a pair find the same.
            x[i] = add_any(x[i], __shfl_xor_sync(0xFFFFFFFFu, x[i], apart));
        }
    }
    #pragma unroll
    for (int apart = E; apart < E * PIECES; apart *= 2) {
        #pragma unroll
        for (int i = 0; i < E * PIECES; i += 2 * apart) x[i] = add_any(x[i], x[i + apart]);
    }
    return with_one_nan(add_any(x[0], T(0)));
}

// Prefix sums of such a row, in place, by the same pairs; returns the row's sum. In each pair the
// sum of what comes first is added to all of what comes second: to the right of it, or in REVERSE to
// its left. EXCLUSIVE ones are those of the element before.
template <int E, int L, bool REVERSE, bool EXCLUSIVE, class T>
__device__ inline T prefix_sums(T (&x)[E]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int last = REVERSE ? 0 : E - 1;
    #pragma unroll
    for (int i = 0; i < E; ++i) x[i] = add_any(x[i], T(0));
    #pragma unroll
    for (int apart = 1; apart < E; apart *= 2) {
        #pragma unroll
        for (int i = 0; i < E; ++i) {
            const int pair = i / (2 * apart) * (2 * apart);
            const bool is_second = (i - pair >= apart) != REVERSE;
            if (is_second) x[i] = add_any(x[REVERSE ? pair + apart : pair + apart - 1], x[i]);
        }
    }
    #pragma unroll
    for (int apart = 1; apart < L; apart *= 2) {
        const int pair = lane & ~(2 * apart - 1);
        const int source = REVERSE ? pair + apart : pair + apart - 1;
        const T first = __shfl_sync(0xFFFFFFFFu, x[last], source);
        if (((lane & apart) != 0) != REVERSE) {
            #pragma unroll
            for (int i = 0; i < E; ++i) x[i] = add_any(first, x[i]);
        }
    }
    const int end = (lane & ~(L - 1)) | (REVERSE ? 0 : L - 1);
    T sum = L == 1 ? x[last] : __shfl_sync(0xFFFFFFFFu, x[last], end);
    if (!(sum == sum)) {
        // A prefix is NaN only where the sum is.
        sum = with_one_nan(sum);
        #pragma unroll
        for (int i = 0; i < E; ++i) x[i] = with_one_nan(x[i]);
    }
    if constexpr (EXCLUSIVE) {
        const int before = REVERSE ? lane + 1 : lane - 1;
        const bool is_first = lane % L == (REVERSE ? L - 1 : 0);
        T carry = 0;
        if constexpr (L > 1) carry = __shfl_sync(0xFFFFFFFFu, x[last], before & 31);
        if (is_first) carry = 0;
        #pragma unroll
        for (int i = 0; i < E; ++i) {
            const int at = REVERSE ? i : E - 1 - i;
            const int from = REVERSE ? at + 1 : at - 1;
            x[at] = i == E - 1 ? carry : x[from];
        }
    }
    return sum;
}

template <class T, int V>
__device__ inline Vector<T, V> add(const Vector<T, V>& x, const Vector<T, V>& y) {
    Vector<T, V> sum;
    #pragma unroll
    for (int i = 0; i < V; ++i) sum.x[i] = add(x.x[i], y.x[i]);
    return sum;
}

template <int V>
__device__ inline Vector<float, V> times(const Vector<float, V>& x, const Vector<float, V>& y) {
    Vector<float, V> product;
    #pragma unroll
    for (int i = 0; i < V; ++i) product.x[i] = times(x.x[i], y.x[i]);
    return product;
}

template <class T>
__device__ inline T square(const T& x) {
    return times(x, x);
}

template <int V>
__device__ inline Vector<float, V> over(const Vector<float, V>& x, const Vector<float, V>& y) {
    Vector<float, V> ratio;
    #pragma unroll
    for (int i = 0; i < V; ++i) ratio.x[i] = over(x.x[i], y.x[i]);
    return ratio;
}

template <int V>
__device__ inline Vector<float, V> maximum(const Vector<float, V>& x, const Vector<float, V>& y) {
    Vector<float, V> most;
    #pragma unroll
    for (int i = 0; i < V; ++i) most.x[i] = maximum(x.x[i], y.x[i]);
    return most;
}

template <int V>
__device__ inline Vector<float, V> root(const Vector<float, V>& x) {
    Vector<float, V> roots;
    #pragma unroll
    for (int i = 0; i < V; ++i) roots.x[i] = root(x.x[i]);
    return roots;
}

template <class T, int V>
__device__ inline Vector<T, V> only_finite(Vector<T, V> x) {
    #pragma unroll
    for (int i = 0; i < V; ++i) x.x[i] = only_finite(x.x[i]);
    return x;
}

template <class T, int V>
__device__ inline Vector<T, V> only_not_finite(Vector<T, V> x) {
    #pragma unroll
    for (int i = 0; i < V; ++i) x.x[i] = only_not_finite(x.x[i]);
    return x;
}

template <class T, int V>
__device__ inline Vector<T, V> only_whole(Vector<T, V> x) {
    #pragma unroll
    for (int i = 0; i < V; ++i) x.x[i] = only_whole(x.x[i]);
    return x;
}

template <class T, int V>
__device__ inline Vector<T, V> only_fraction(Vector<T, V> x) {
    #pragma unroll
    for (int i = 0; i < V; ++i) x.x[i] = only_fraction(x.x[i]);
    return x;
}

template <int V>
__device__ inline Vector<double, V> add_to_odd(const Vector<double, V>& x, const Vector<double, V>& y) {
    Vector<double, V> sum;
    #pragma unroll
    for (int i = 0; i < V; ++i) sum.x[i] = add_to_odd(x.x[i], y.x[i]);
    return sum;
}

template <class Narrow, bool FIRST, class Wide, int V>
__device__ inline Vector<Narrow, V> take_part(Vector<Wide, V>& rest) {
    const Vector<Narrow, V> part = convert<Narrow>(rest);
    #pragma unroll
    for (int i = 0; i < V; ++i) rest.x[i] = rest_of<FIRST>(rest.x[i], part.x[i]);
    return part;
}

// --- Movers: the lanes of a warp share the rectangle of a step -----------------------------------

// A mover calls lambdas that read or write one vector, at (row, col). If the whole rectangle is in
// bounds and aligned, their first argument is Fast: nothing is tested between the loads, which are
// in flight together. Otherwise it is Tested, and each vector is tested by itself.
struct Fast {
    static constexpr bool value = true;
    __device__ constexpr operator bool() const { return true; }
};
struct Tested {
    static constexpr bool value = false;
    __device__ constexpr operator bool() const { return false; }
};

template <int V, class Where = Anywhere, class Path, class T, class Inside = Always>
__device__ inline Vector<T, V> load(Path, const T* p, Inside inside = {}) {
    if constexpr (Path::value) return load<V, Aligned>(p);
    else return load<V, Where>(p, inside);
}
template <class Where = Global, class Path, class T, int V, class Inside = Always>
__device__ inline void store(Path, T* p, const Vector<T, V>& vector, Inside inside = {}) {
    if constexpr (Path::value) store_aligned(p, vector, Where());
    else store<Where>(p, vector, inside);
}

// Vectors that begin anywhere, read from the aligned ones around them: `parts` are these if all are
// in the array, and `join` makes the vector of them. Else `parts` is the vector itself. The rest of
// a range, or a test of each element, limits what is read.
template <int V, class Path, class T>
__device__ inline auto parts(Path, const T* p, long long rest) {
    if constexpr (Path::value) return piece<V>(p, rest).load();
    else return gather<V>(p, rest);
}
template <int V, class Path, class T, class Inside>
__device__ inline auto parts(Path, const T* p, Inside inside) {
    if constexpr (Path::value) return piece<V>(p).load();
    else return load<V>(p, inside);
}
template <int V, class Path, class T, class Parts>
__device__ inline Vector<T, V> join(Path, const Parts& parts, const T* p, long long rest = V) {
    if constexpr (Path::value) return piece<V>(p, rest).join(parts);
    else return parts;
}

// The vectors of a rectangle: of V neighbours in a row, or DOWN a column. A lane holds at most HELD
// of them in registers. Lambdas are passed by value, and capture by value: by reference, nvcc does not
// see that an input is read only, nor which addresses are a constant apart.
template <int ROWS, int COLS, int V = 1, int HELD = 1, bool DOWN = false>
struct Rectangle {
    static constexpr int vectors = ROWS * COLS / V;
    // The vectors of a lane; and groups of about one size, which are in registers together.
    static constexpr int count = (vectors + 31) / 32, times = 1;
    static constexpr int groups = (count + HELD - 1) / HELD;
    static constexpr int held = (count + groups - 1) / groups;

    // The place of vector e, and the call of a lambda for it, in some iteration.
    __device__ static int along(int e) {
        constexpr int inner = (DOWN ? ROWS : COLS) / V;
        return (DOWN ? COLS : ROWS) == 1 ? V * e : V * (e % inner);
    }
    __device__ static int across(int e) {
        constexpr int inner = (DOWN ? ROWS : COLS) / V;
        return (DOWN ? COLS : ROWS) == 1 ? 0 : e / inner;
    }
    __device__ static int row(int e) { return DOWN ? along(e) : across(e); }
    __device__ static int col(int e) { return DOWN ? across(e) : along(e); }
    template <class Call, class Path, class... Held>
    __device__ static auto call(int, int e, const Call& call, Path path, Held&... held) {
        return call(path, row(e), col(e), held...);
    }
    // Whether there is a vector e, one of N of each lane.
    __device__ static bool has(int e, int N = count) {
        return vectors % (32 * N) == 0 || e < vectors;
    }
};
// Loops of up to so many iterations are unrolled, so that their loads are in flight together.
template <int ITERATIONS>
constexpr int unrolled = ITERATIONS < 16 ? ITERATIONS : 16;

// Calls one(Fast(), row, col) for each vector of a lane.
template <int ROWS, int COLS, int V = 1, int HELD = 1, bool DOWN = false, class One>
__device__ inline void each(int lane, One one) {
    using Place = Rectangle<ROWS, COLS, V, HELD, DOWN>;
    #pragma unroll unrolled<Place::count>
    for (int nth = 0; nth < Place::count; ++nth) {
        const int e = lane + 32 * nth;
        if (Place::has(e)) Place::call(0, e, one, Fast());
    }
}
template <int ROWS, int COLS, int V = 1, int HELD = 1, bool DOWN = false, class One>
__device__ inline void each(int lane, bool whole, One one) {
    using Place = Rectangle<ROWS, COLS, V, HELD, DOWN>;
    if (whole) {
        each<ROWS, COLS, V, HELD, DOWN>(lane, one);
        return;
    }
    #pragma unroll 1
    for (int e = lane; e < Place::vectors; e += 32) Place::call(0, e, one, Tested());
}
// Whether it holds for an element of the rectangle.
template <int ROWS, int COLS, int V = 1, int HELD = 1, bool DOWN = false, class Test>
__device__ inline bool any(int lane, Test test) {
    bool found = false;
    each<ROWS, COLS, V, HELD, DOWN>(lane, [&](Fast, int row, int col) { found |= test(row, col); });
    return __any_sync(0xFFFFFFFFu, found);
}

// A part of a move: N vectors of a lane, the first of which is number e. All reads come before the
// first write, so that memory answers them together. That is legal: a step reads no element that
// another lane writes.
template <class Place, int N, class Get, class Put>
__device__ inline void move_group(int e, const Get& get, const Put& put) {
    decltype(get(Fast(), 0, 0)) held[N];
    #pragma unroll
    for (int nth = 0; nth < N; ++nth) {
        const int at = e + 32 * nth;
        if (Place::has(at, N)) held[nth] = Place::call(0, at, get, Fast());
    }
    #pragma unroll
    for (int nth = 0; nth < N; ++nth) {
        const int at = e + 32 * nth;
        if (Place::has(at, N)) Place::call(0, at, put, Fast(), held[nth]);
    }
}
// Moves a rectangle: get(path, row, col) reads a vector, and put(path, row, col, held) writes it.
template <int ROWS, int COLS, int V = 1, int HELD = 1, bool DOWN = false, class Get, class Put>
__device__ inline void move(int lane, Get get, Put put) {
    using Place = Rectangle<ROWS, COLS, V, HELD, DOWN>;
    constexpr int held = Place::held, end = 32 * held * Place::groups;
    // Known bits of the lane make divisions shifts before the call is inlined.
    lane &= 31;
    if constexpr (Place::count == 1) {
        if (!Place::has(lane)) return;
        auto one = Place::call(0, lane, get, Fast());
        Place::call(0, lane, put, Fast(), one);
    } else if constexpr (Place::groups <= 2) {
        // So few groups are unrolled as well: where each is, is then known.
        #pragma unroll
        for (int first = 0; first < end; first += 32 * held) {
            move_group<Place, held>(lane + first, get, put);
        }
    } else {
        for (int first = 0; first < end; first += 32 * held) {
            move_group<Place, held>(lane + first, get, put);
        }
    }
}
// The same with a test of each vector.
template <int ROWS, int COLS, int V = 1, int HELD = 1, bool DOWN = false, class Get, class Put>
__device__ inline void move_tested(int lane, Get get, Put put) {
    using Place = Rectangle<ROWS, COLS, V, HELD, DOWN>;
    #pragma unroll 1
    for (int e = lane; e < Place::vectors; e += 32) {
        auto held = Place::call(0, e, get, Tested());
        Place::call(0, e, put, Tested(), held);
    }
}
// whole: whether all vectors are in bounds and aligned.
template <int ROWS, int COLS, int V = 1, int HELD = 1, bool DOWN = false, class Get, class Put>
__device__ inline void move(int lane, bool whole, Get get, Put put) {
    if (whole) move<ROWS, COLS, V, HELD, DOWN>(lane, get, put);
    else move_tested<ROWS, COLS, V, HELD, DOWN>(lane, get, put);
}

// Steps that are moved together, after one test: all their reads come before the first write. It
// takes the rectangle of each, and then `get` and `put` of each. A step in a loop is Repeated, and
// the loop's variable comes before the row.
template <int TIMES, class Once>
struct Repeated {
    static constexpr int times = TIMES, count = Once::count;

    __device__ static bool has(int e) { return Once::has(e); }
    template <class Call, class Path, class... Held>
    __device__ static auto call(int time, int e, const Call& call, Path path, Held&... held) {
        return call(path, time, Once::row(e), Once::col(e), held...);
    }
};

template <class Place, class... Places, class Get, class Put, class... Others>
__device__ inline void move_at_once(int lane, Get get, Put put, Others... others) {
    decltype(Place::call(0, 0, get, Fast())) held[Place::times][Place::count];
    #pragma unroll
    for (int time = 0; time < Place::times; ++time) {
        #pragma unroll
        for (int nth = 0; nth < Place::count; ++nth) {
            const int e = lane + 32 * nth;
            if (Place::has(e)) held[time][nth] = Place::call(time, e, get, Fast());
        }
    }
    if constexpr (sizeof...(Places) > 0) move_at_once<Places...>(lane, others...);
    #pragma unroll
    for (int time = 0; time < Place::times; ++time) {
        #pragma unroll
        for (int nth = 0; nth < Place::count; ++nth) {
            const int e = lane + 32 * nth;
            if (Place::has(e)) Place::call(time, e, put, Fast(), held[time][nth]);
        }
    }
}
template <class Place, class... Places, class Get, class Put, class... Others>
__device__ inline void move_in_turn(int lane, Get get, Put put, Others... others) {
    #pragma unroll 1
    for (int time = 0; time < Place::times; ++time) {
        #pragma unroll 1
        for (int nth = 0; nth < Place::count; ++nth) {
            const int e = lane + 32 * nth;
            if (!Place::has(e)) continue;
            auto held = Place::call(time, e, get, Tested());
            Place::call(time, e, put, Tested(), held);
        }
    }
    if constexpr (sizeof...(Places) > 0) move_in_turn<Places...>(lane, others...);
}
template <class... Places, class... Lambdas>
__device__ inline void move_together(int lane, bool whole, Lambdas... lambdas) {
    if (whole) move_at_once<Places...>(lane, lambdas...);
    else move_in_turn<Places...>(lane, lambdas...);
}

// Writes the vectors of a rectangle, which follow each other from `to` on, wherever that is.
// A lane puts what it writes, an aligned vector, together of its own vector and of the one before,
// which another lane has. The ends are written by elements. All lanes of the warp call it.
template <int ROWS, int COLS, int V, class T, class Get>
__device__ inline void store_run(T* to, Get get) {
    using Place = Rectangle<ROWS, COLS, V>;
    constexpr int COUNT = Place::vectors;
    constexpr int bytes = V * static_cast<int>(sizeof(T)), words = bytes / 4;
    const int lane = static_cast<int>(threadIdx.x % 32);
    // Bytes and elements between an aligned place and `to`.
    const int skew = static_cast<int>(reinterpret_cast<unsigned long long>(to) & (bytes - 1));
    const int behind = skew / static_cast<int>(sizeof(T));
    unsigned int last[words] = {};
    #pragma unroll
    for (int first = 0; first < COUNT; first += 32) {
        const int e = first + lane;
        const bool here = COUNT % 32 == 0 || e < COUNT;
        Vector<T, V> own = {};
        if (here) own = Place::call(0, e, get, Fast());
        // The vector before, and the own one.
        unsigned int w[2 * words];
        memcpy(w + words, own.x, bytes);
        #pragma unroll
        for (int i = 0; i < words; ++i) {
            const unsigned int earlier = __shfl_sync(0xFFFFFFFFu, w[words + i], (lane + 31) % 32);
            w[i] = lane == 0 ? last[i] : earlier;
            last[i] = earlier;
        }
        if (skew > 0) begin_at(bytes - skew, w);
        Vector<T, V> joined = own;
        if (skew > 0) memcpy(joined.x, w, bytes);
        if (here && (e > 0 || skew == 0)) store<Aligned>(to - behind + e * V, joined);
        #pragma unroll
        for (int i = 0; i < V; ++i) {
            if (skew > 0 && e == 0 && i < V - behind) to[i] = own.x[i];
            if (e == COUNT - 1 && i >= V - behind) to[e * V + i] = own.x[i];
        }
    }
}

// --- Sums of rows: neighbouring lanes share a row ------------------------------------------------

template <class T>
struct Scalar {
    using type = T;
};
template <class T, int V>
struct Scalar<Vector<T, V>> {
    using type = T;
};

// ROWS of COLS elements. LANES have a row at a time, EACH that many neighbours of it: of a long row
// in several PIECES. HELD: rows of a lane that are read before the first is added up.
template <int ROWS, int COLS, int V, int EACH, int LANES, int HELD, int PIECES = 1>
struct RowsOfLanes {
    using OneByOne = RowsOfLanes<ROWS, COLS, V, EACH, LANES, 1, PIECES>;
    static constexpr int vector = V, held = HELD;
    static constexpr int at_once = 32 / LANES, turns = (ROWS + at_once - 1) / at_once;
    static constexpr int elements = EACH * PIECES;
    static constexpr bool fill_rows = COLS == elements * LANES;
    static constexpr bool fill_lanes = ROWS % (at_once * HELD) == 0;

    __device__ static int row(int lane, int turn) { return turn * at_once + lane / LANES; }
    __device__ static bool has_row(int row) { return fill_lanes || row < ROWS; }
    // The column of element e of a lane, and whether the lane has it.
    __device__ static int col(int lane, int e) {
        if constexpr (PIECES == 1) return lane % LANES * EACH + e;
        return e / EACH * (32 * EACH) + lane * EACH + e % EACH;
    }
    __device__ static bool has(bool here, int col) { return here && (fill_rows || col < COLS); }
};

// Reads rows, and calls add(path, row, here, x) for each: for a lane's elements, zeros past its end.
template <class Rows, class Path, class Get, class Add>
__device__ inline void add_group(Path path, int lane, int first, const Get& get, const Add& add) {
    constexpr int count = Rows::elements, held = Rows::held;
    typename Scalar<decltype(get(path, 0, 0))>::type x[held][count];
    #pragma unroll
    for (int nth = 0; nth < held; ++nth) {
        const int row = Rows::row(lane, first + nth);
        const bool here = Rows::has_row(row);
        #pragma unroll
        for (int e = 0; !(Rows::fill_rows && Rows::fill_lanes) && e < count; ++e) x[nth][e] = 0;
        #pragma unroll
        for (int e = 0; e < count; e += Rows::vector) {
            const int col = Rows::col(lane, e);
            if (Rows::has(here, col)) put(x[nth] + e, get(path, row, col));
        }
    }
    #pragma unroll
    for (int nth = 0; nth < held; ++nth) {
        const int row = Rows::row(lane, first + nth);
        add(path, row, Rows::has_row(row), x[nth]);
    }
}
template <class Rows, class Path, class Get, class Add>
__device__ inline void add_rows(Path path, int lane, const Get& get, const Add& add) {
    constexpr bool few = Rows::turns * Rows::elements <= 16 && Path::value;
    constexpr int times = few ? (Rows::turns + Rows::held - 1) / Rows::held : 1;
    #pragma unroll times
    for (int first = 0; first < Rows::turns; first += Rows::held) {
        add_group<Rows>(path, lane, first, get, add);
    }
}
// whole: whether all rows are in bounds and aligned; else they are read one by one, with tests.
template <class Rows, class Get, class Add>
__device__ inline void add_rows(bool whole, int lane, const Get& get, const Add& add) {
    if (whole) add_rows<Rows>(Fast(), lane, get, add);
    else add_rows<typename Rows::OneByOne>(Tested(), lane, get, add);
}

struct NoTotal {
    template <class T>
    __device__ void operator()(int, T) const {}
};

// Calls total(row, sum) for each row of what get(path, row, col) gives.
template <
    int ROWS, int COLS, int V, int EACH, int LANES, int HELD, int PIECES = 1, class Path, class Get,
    class Total>
__device__ inline void sum_rows(int lane, Path whole, Get get, Total total) {
    using Rows = RowsOfLanes<ROWS, COLS, V, EACH, LANES, HELD, PIECES>;
    add_rows<Rows>(whole, lane, get, [=](auto, int row, bool here, auto& x) {
        const auto sum = sum_of_row<EACH, LANES, PIECES>(x);
        if (here && lane % LANES == 0) total(row, sum);
    });
}

// Calls put(path, row, col, vector) for the prefix sums of each row, TO of them at a time.
template <
    int ROWS, int COLS, int V, int EACH, int LANES, int HELD, int TO, bool REVERSE, bool EXCLUSIVE,
    class Path, class Get, class Put, class Total = NoTotal>
__device__ inline void scan_rows(int lane, Path whole, Get get, Put put, Total total = {}) {
    using Rows = RowsOfLanes<ROWS, COLS, V, EACH, LANES, HELD>;
    add_rows<Rows>(whole, lane, get, [=](auto path, int row, bool here, auto& x) {
        const auto sum = prefix_sums<EACH, LANES, REVERSE, EXCLUSIVE>(x);
        #pragma unroll
        for (int e = 0; e < EACH; e += TO) {
            const int col = Rows::col(lane, e);
            auto held = vector_of<TO>(x + e);
            if (Rows::has(here, col)) put(path, row, col, held);
        }
        if (here && lane % LANES == 0) total(row, sum);
    });
}
// The same to rows in shared memory that the lanes fill, the first element at to(row, col).
template <
    int ROWS, int COLS, int V, int EACH, int LANES, int HELD, int TO, bool REVERSE, bool EXCLUSIVE,
    class Path, class Get, class To, class Total = NoTotal>
__device__ inline void scan_rows_in_turn(int lane, Path whole, Get get, To to, Total total = {}) {
    using Rows = RowsOfLanes<ROWS, COLS, V, EACH, LANES, HELD>;
    add_rows<Rows>(whole, lane, get, [=](auto, int row, bool here, auto& x) {
        const auto sum = prefix_sums<EACH, LANES, REVERSE, EXCLUSIVE>(x);
        if (here) store_in_turn<TO>(to(row, lane % LANES * EACH), x);
        if (here && lane % LANES == 0) total(row, sum);
    });
}

// --- Narrow rows, of which a lane takes as many as begin at a word together ----------------------

// How a lane goes over N rows of S elements that follow each other: `rows` of them, in words, and as
// many such units at a time as have some 16 words.
template <int S, int N, class T>
struct Narrow {
    static constexpr int per = sizeof(T) < 4 ? 4 / sizeof(T) : 1;
    static constexpr int rows = S % per ? per : 1;
    static constexpr int units = N / rows;
    static constexpr int turns = (units + 31) / 32;
    static constexpr int words = rows * S / per;
    static constexpr int most = words < 16 ? 16 / words : 1;
    static constexpr int held = turns < most ? turns : most;
    static_assert(N % rows == 0, "rows that begin at a word come together");
};

// Copies N rows of S elements that follow each other to rows that lie APART, with zeros behind them
// up to WIDTH.
template <int S, int WIDTH, int APART, int N, class T>
__device__ inline void spread_rows(T* to, const T* from, int lane) {
    using Lanes = Narrow<S, N, T>;
    constexpr int rows = Lanes::rows, vector = WIDTH % 8 || APART % 8 ? 4 : 8;
    #pragma unroll
    for (int first = 0; first < Lanes::turns; first += Lanes::held) {
        T held[Lanes::held][rows * S];
        #pragma unroll
        for (int nth = 0; nth < Lanes::held; ++nth) {
            const int unit = lane + 32 * (first + nth);
            if (Lanes::units % 32 && unit >= Lanes::units) continue;
            if (first + nth >= Lanes::turns) continue;
            #pragma unroll
            for (int i = 0; i < rows * S; i += Lanes::per) {
                const auto word = load<Lanes::per, Aligned>(from + unit * (rows * S) + i);
                #pragma unroll
                for (int e = 0; e < Lanes::per; ++e) held[nth][i + e] = word.x[e];
            }
        }
        #pragma unroll
        for (int nth = 0; nth < Lanes::held; ++nth) {
            const int unit = lane + 32 * (first + nth);
            if (Lanes::units % 32 && unit >= Lanes::units) continue;
            if (first + nth >= Lanes::turns) continue;
            #pragma unroll
            for (int row = 0; row < rows; ++row) {
                #pragma unroll
                for (int col = 0; col < WIDTH; col += vector) {
                    Vector<T, vector> part;
                    #pragma unroll
                    for (int e = 0; e < vector; ++e) {
                        part.x[e] = col + e < S ? held[nth][row * S + (col + e) % S] : convert<T>(0.0f);
                    }
                    store<Aligned>(to + (unit * rows + row) * APART + col, part);
                }
            }
        }
    }
}

// --- Ranges that follow each other: one piece of memory ------------------------------------------

// The lowest bits of a word: none, some or all.
__device__ inline unsigned int low_bits(int count) {
    return __funnelshift_lc(0xFFFFFFFFu, 0, count > 0 ? count : 0);
}

// Two vectors that follow each other.
template <int WORDS>
struct Pair {
    unsigned int w[2 * WORDS];
    __device__ void read(const Words<4 * WORDS>& low, const Words<4 * WORDS>& high) {
        #pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            w[i] = low.w[i];
            w[WORDS + i] = high.w[i];
        }
    }
};

// The words of one vector out of two, from byte `at` of the first one on.
template <int WORDS>
__device__ inline Words<4 * WORDS> words_from(const Pair<WORDS>& pair, int at) {
    static_assert(WORDS == 2 || WORDS == 4, "vectors of 8 or 16 bytes");
    unsigned int far[WORDS + 2];
    #pragma unroll
    for (int i = 0; i < WORDS + 2; ++i) {
        far[i] = WORDS > 2 && at & 8 ? pair.w[(i + 2) % (2 * WORDS)] : pair.w[i];
    }
    unsigned int near[WORDS + 1];
    #pragma unroll
    for (int i = 0; i < WORDS + 1; ++i) near[i] = at & 4 ? far[i + 1] : far[i];
    Words<4 * WORDS> found;
    #pragma unroll
    for (int i = 0; i < WORDS; ++i) found.w[i] = __funnelshift_r(near[i], near[i + 1], 8 * at);
    return found;
}

template <int N>
struct Number {
    static constexpr int value = N;
};

// Calls move(get) for what begins at byte `at` of a vector, the same in all lanes: get(pair) returns
// the words from there on.
template <int WORDS, class Move>
__device__ inline void moved_by(int at, Move move) {
    const auto from = [&](auto skipped) {
        move([&](const Pair<WORDS>& pair) {
            constexpr int first = decltype(skipped)::value;
            Words<4 * WORDS> found;
            #pragma unroll
            for (int i = 0; i < WORDS; ++i) {
                const unsigned int low = pair.w[first + i];
                const unsigned int high = pair.w[(first + i + 1) % (2 * WORDS)];
                found.w[i] = __funnelshift_r(low, high, 8 * at);
            }
            return found;
        });
    };
    if (at < 4) {
        from(Number<0>());
    } else if (WORDS == 2 || at < 8) {
        from(Number<1>());
    } else if (at < 12) {
        from(Number<WORDS == 2 ? 0 : 2>());
    } else {
        from(Number<WORDS == 2 ? 0 : 3>());
    }
}

// Copies COUNT ranges of at most WIDTH elements to rows in shared memory that lie APART, with zeros
// behind them up to WIDTH. from: where the first range begins; the vectors of 16 bytes around each
// range's elements must be in the array. shortest: of what was found.
template <int COUNT, int WIDTH, int APART, class T>
__device__ inline void gather_rows(T* to, const T* from, const int* places, int shortest) {
    constexpr int size = sizeof(T), bytes = WIDTH * size % 16 || APART * size % 16 ? 8 : 16;
    constexpr int words = bytes / 4, placed = bytes / size, per = WIDTH / placed;
    constexpr int units = COUNT * per, turns = (units + 31) / 32, held = turns < 4 ? turns : 4;
    static_assert(WIDTH % placed == 0 && APART % placed == 0, "rows are whole units");
    using Unit = Words<bytes>;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int skew = static_cast<int>(reinterpret_cast<unsigned long long>(from) % bytes);
    const Unit* const source = reinterpret_cast<const Unit*>(reinterpret_cast<const char*>(from) - skew);
    // Several are read before the first is written: memory answers them together.
    const auto in_turns = [&](auto read, auto unit_of) {
        #pragma unroll
        for (int first = 0; first < turns; first += held) {
            Pair<words> pairs[held];
            #pragma unroll
            for (int nth = 0; nth < held; ++nth) {
                const int e = lane + 32 * (first + nth);
                if ((units % 32 || turns % held) && e >= units) continue;
                read(nth, e, pairs[nth]);
            }
            #pragma unroll
            for (int nth = 0; nth < held; ++nth) {
                const int e = lane + 32 * (first + nth);
                if ((units % 32 || turns % held) && e >= units) continue;
                const Unit unit = unit_of(nth, pairs[nth]);
                *reinterpret_cast<Unit*>(to + e / per * APART + placed * (e % per)) = unit;
            }
        }
    };
    const auto read_at = [&](int at, Pair<words>& pair) {
        const Unit low = source[at], high = source[at + 1];
        pair.read(low, high);
    };
    if (shortest >= WIDTH) {
        moved_by<words>(skew, [&](auto get) {
            in_turns(
                [&](int, int e, Pair<words>& pair) { read_at(e, pair); },
                [&](int, const Pair<words>& pair) { return get(pair); }
            );
        });
        return;
    }
    int at[held];
    int rest[held];
    in_turns(
        [&](int nth, int e, Pair<words>& pair) {
            const int place = places[e / per], col = placed * (e % per);
            rest[nth] = count_of(place) - col;
            at[nth] = rest[nth] > 0 ? skew + (start_of(place) + col) * size : skew;
            read_at(at[nth] / bytes, pair);
        },
        [&](int nth, const Pair<words>& pair) {
            Unit unit = words_from<words>(pair, at[nth]);
            #pragma unroll
            for (int i = 0; i < words; ++i) unit.w[i] &= low_bits(8 * (size * rest[nth] - 4 * i));
            return unit;
        }
    );
}

// The same of elements that are whole words, one by one: what lies around the ranges is not read.
template <int COUNT, int WIDTH, int APART, class T>
__device__ inline void gather_elements(T* to, const T* from, const int* places, int shortest) {
    constexpr int units = COUNT * WIDTH, turns = (units + 31) / 32, held = turns < 16 ? turns : 16;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const bool whole = shortest >= WIDTH;
    constexpr int unrolled = turns <= 2 * held ? turns : 1;
    #pragma unroll unrolled
    for (int first = 0; first < turns; first += held) {
        T x[held];
        #pragma unroll
        for (int nth = 0; nth < held; ++nth) {
            const int e = lane + 32 * (first + nth);
            x[nth] = convert<T>(0.0f);
            if (e >= units) continue;
            if (whole) {
                x[nth] = from[e];
                continue;
            }
            const int place = places[e / WIDTH], col = e % WIDTH;
            if (col < count_of(place)) x[nth] = from[start_of(place) + col];
        }
        #pragma unroll
        for (int nth = 0; nth < held; ++nth) {
            const int e = lane + 32 * (first + nth);
            if (e < units) to[e / WIDTH * APART + e % WIDTH] = x[nth];
        }
    }
}

// Writes the values of COUNT rows of WIDTH to ranges close to each other, as many as each has. to:
// where the first range begins. shortest: of what was found.
template <int COUNT, int WIDTH, class T, class Value>
__device__ inline void scatter_elements(T* to, const int* places, int shortest, Value value) {
    constexpr int units = COUNT * WIDTH, turns = (units + 31) / 32;
    const int lane = static_cast<int>(threadIdx.x % 32);
    const bool whole = shortest >= WIDTH;
    #pragma unroll 8
    for (int nth = 0; nth < turns; ++nth) {
        const int e = lane + 32 * nth;
        if (units % 32 && e >= units) continue;
        const int row = e / WIDTH, col = e % WIDTH;
        const T x = value(row, col);
        if (whole) {
            to[e] = x;
            continue;
        }
        const int place = places[row];
        if (col < count_of(place)) to[start_of(place) + col] = x;
    }
}

// Puts four elements of two bytes, two to a word, where they lie in `stage`, as many as there are, and
// perhaps one more: whole words, from the first one that begins among them on. at: a place in bytes.
template <class T>
__device__ inline void put_words(T* stage, int at, int count, const unsigned int (&w)[2]) {
    const int skipped = at >> 1 & 1, shift = 16 * skipped;
    auto* const words = reinterpret_cast<unsigned int*>(stage) + (at >> 2);
    if (!skipped && count > 0) words[0] = w[0];
    if (count > 2 - skipped) words[1] = __funnelshift_l(w[0], w[1], shift);
    if (skipped && count > 3) words[2] = w[1] >> 16;
}

// The same of elements of two bytes, four of which are a value: they are put together in `stage`, in
// shared memory, as they will lie, and written in whole vectors. Ranges must follow each other.
template <int COUNT, int WIDTH, class T, class Value>
__device__ inline void scatter_rows(
    T* to, const int* places, int shortest, T* stage, Value value
) {
    constexpr int placed = 4, per = WIDTH / placed, units = COUNT * per, turns = (units + 31) / 32;
    constexpr int vector = 16 / sizeof(T);
    constexpr int writes = (COUNT * WIDTH / vector + 31) / 32;
    static_assert(sizeof(T) == 2 && WIDTH % placed == 0, "pairs are words");
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int skew = static_cast<int>(reinterpret_cast<unsigned long long>(to) % 16 / sizeof(T));
    T* const from = to - skew;
    const auto* const vectors = reinterpret_cast<const Words<16>*>(stage);
    // Elements `skew` to `end` from the vector on in which the first one is; `staged` of them are
    // missing at the front of the stage.
    const auto write = [&](int end, int staged, auto vector_of) {
        __syncwarp();
        const int begin = skew > 0 ? 1 : 0;
        #pragma unroll
        for (int nth = 0; nth < writes; ++nth) {
            const int e = begin + lane + 32 * nth;
            if (e < end / vector) reinterpret_cast<Words<16>*>(from)[e] = vector_of(e);
        }
        // What is left of the first vector, and of the last one.
        const int at = lane < vector ? lane : end / vector * vector + lane % vector;
        const bool left = lane < vector ? begin > 0 : lane < 2 * vector;
        if (left && at >= skew && at < end) from[at] = stage[at - staged];
    };
    if (shortest >= WIDTH && COUNT * WIDTH % (2 * placed) == 0) {
        // Fast rows are staged as they are, and moved as they leave.
        constexpr int pairs = units / 2, rounds = (pairs + 31) / 32;
        #pragma unroll
        for (int nth = 0; nth < rounds; ++nth) {
            const int e = lane + 32 * nth;
            if (pairs % 32 && e >= pairs) continue;
            Words<16> unit;
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                const Vector<T, placed> x = value((2 * e + i) / per, placed * ((2 * e + i) % per));
                memcpy(unit.w + 2 * i, x.x, 8);
            }
            reinterpret_cast<Words<16>*>(stage)[e] = unit;
        }
        const int end = skew + COUNT * WIDTH;
        if (skew == 0) {
            write(end, 0, [&](int e) { return vectors[e]; });
            return;
        }
        moved_by<4>(16 - 2 * skew, [&](auto get) {
            write(end, skew, [&](int e) {
                Pair<4> pair;
                const Words<16> low = vectors[e - 1], high = vectors[e];
                pair.read(low, high);
                return get(pair);
            });
        });
        return;
    }
    // Several are found before the first is put in place: memory answers them together.
    constexpr int held = turns < 4 ? turns : 4;
    // A word's second half may be the first element of others: those are put there behind the words.
    unsigned short begins[turns];
    int begins_at[turns];
    #pragma unroll
    for (int first = 0; first < turns; first += held) {
        unsigned int w[held][2];
        int at_row[held];
        #pragma unroll
        for (int nth = 0; nth < held; ++nth) {
            const int e = lane + 32 * (first + nth);
            if ((units % 32 || turns % held) && e >= units) continue;
            const Vector<T, placed> x = value(e / per, placed * (e % per));
            memcpy(w[nth], x.x, 8);
            at_row[nth] = places[e / per];
        }
        #pragma unroll
        for (int nth = 0; nth < held; ++nth) {
            const int e = lane + 32 * (first + nth), col = placed * (e % per);
            if (first + nth >= turns) continue;
            begins_at[first + nth] = 0;
            if (units % 32 && e >= units) continue;
            const int place = at_row[nth], count = count_of(place) - col;
            const int at = 2 * (start_of(place) + (col + skew));
            put_words(stage, at, count, w[nth]);
            begins[first + nth] = static_cast<unsigned short>(w[nth][0]);
            begins_at[first + nth] = count > 0 ? at : 0;
        }
    }
    __syncwarp();
    #pragma unroll
    for (int nth = 0; nth < turns; ++nth) {
        if (begins_at[nth] & 2) {
            *reinterpret_cast<unsigned short*>(stage + begins_at[nth] / 2) = begins[nth];
        }
    }
    const int last = places[COUNT - 1];
    write(skew + start_of(last) + count_of(last), 0, [&](int e) { return vectors[e]; });
}

// --- Copies that a lane starts and does not wait for ---------------------------------------------

// Starts a copy of 4, 8 or 16 bytes from global to shared memory. Source: PTX ISA, "cp.async".
template <int BYTES>
__device__ inline void start_copy(void* shared, const void* global) {
#if defined(TCUSIM_HOST)
    tcusim::start_copy(shared, global, BYTES);
#elif __CUDA_ARCH__ >= 800
    const unsigned int to = static_cast<unsigned int>(__cvta_generic_to_shared(shared));
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(BYTES)
                     : "memory");
    }
#endif
}

// Copies a vector to an aligned place in shared memory, zeros where out of bounds. It is there
// after wait_for_copies(): before sm_80, and where the vector is not whole and aligned, at once.
template <int V, class Where = Anywhere, class T, class Inside = Always>
__device__ inline void copy_async(T* shared, const T* global, Inside inside = {}) {
    constexpr int bytes = Vector<T, V>::bytes;
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "what cp.async can copy");
#if defined(TCUSIM_HOST) || __CUDA_ARCH__ >= 800
    if (inside(0) && inside(V - 1) && lies<Where>(global, bytes)) {
        start_copy<bytes>(shared, global);
        return;
    }
#endif
    store<Aligned>(shared, load<V, Where>(global, inside));
}

template <int V, class Path, class T, class Inside = Always>
__device__ inline void copy_async(Path, T* shared, const T* global, Inside inside = {}) {
    if constexpr (Path::value) copy_async<V, Aligned>(shared, global);
    else copy_async<V>(shared, global, inside);
}

// The same of a vector that is aligned, and either all there or not at all.
template <int V, class T>
__device__ inline void copy_whole_async(T* shared, const T* global, bool there = true) {
    constexpr int bytes = Vector<T, V>::bytes;
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "what cp.async can copy");
#if defined(TCUSIM_HOST)
    alignas(16) static const char zeros[16] = {};
    start_copy<bytes>(shared, there ? static_cast<const void*>(global) : zeros);
#elif __CUDA_ARCH__ >= 800
    // What is not read is zero.
    const unsigned int to = static_cast<unsigned int>(__cvta_generic_to_shared(shared));
    const int read = there ? bytes : 0;
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
                     "r"(read)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
                     "n"(bytes), "r"(read)
                     : "memory");
    }
#else
    store<Aligned>(shared, load<V, Aligned>(global, [=](int) { return there; }));
#endif
}

struct AllThere {
    __device__ constexpr bool operator()(int, int) const { return true; }
};
// Copies a rectangle by such vectors. A lane's vectors are TO and FROM elements apart: to(row, col)
// and from(row, col) are asked for the first one, there(row, col) for each.
template <
    int ROWS, int COLS, int V, long long TO, long long FROM, bool DOWN = false, class To, class From,
    class There = AllThere>
__device__ inline void copy_async_apart(int lane, To to, From from, There there = {}) {
    constexpr int inner = (DOWN ? ROWS : COLS) / V, turn = 32 / inner;
    const int along = V * (lane % inner), across = lane / inner;
    const int row = DOWN ? along : across, col = DOWN ? across : along;
    #pragma unroll
    for (int nth = 0; nth < Rectangle<ROWS, COLS, V>::count; ++nth) {
        const bool is_there = there(DOWN ? row : row + turn * nth, DOWN ? col + turn * nth : col);
        copy_whole_async<V>(to(row, col) + TO * nth, from(row, col) + FROM * nth, is_there);
    }
}

// Ends a group of copies: those that this lane has started since it ended the one before.
__device__ inline void commit_copies() {
#if defined(TCUSIM_HOST)
    tcusim::commit_copies();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for the copies that this lane has started, but for those of the latest groups.
template <int UNFINISHED = 0>
__device__ inline void wait_for_copies() {
#if defined(TCUSIM_HOST)
    tcusim::wait_for_copies(UNFINISHED);
#elif __CUDA_ARCH__ >= 800
    if constexpr (UNFINISHED == 0) {
        asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
        asm volatile("cp.async.wait_group %0;" ::"n"(UNFINISHED) : "memory");
    }
#endif
}

// Has L2 read `count` elements from a place on, those that the array of `size` has. Nobody waits.
// Source: PTX ISA, "prefetch". Measured on sm_90 alone, and elsewhere left out.
template <class T>
__device__ inline void fetch(const T* p, long long first, int count, long long size) {
#if !defined(TCUSIM_HOST) && __CUDA_ARCH__ >= 900
    constexpr int line = 128 / sizeof(T);
    for (int e = threadIdx.x * line; e < count; e += blockDim.x * line) {
        const long long place = first + e;
        if (0 <= place && place < size) asm volatile("prefetch.global.L2 [%0];" ::"l"(p + place));
    }
#endif
}

// --- Accumulators that wait in memory --------------------------------------------------------------

// A fragment in the thread's own memory, not in its registers: for totals to which only the end of a
// long chain adds, where both would not fit. The compiler would move some of them all the time.
template <class Fragment>
struct Kept {
    static constexpr int num_elements = Fragment::num_elements;
    volatile typename Fragment::element_type x[num_elements];
#ifdef TCUSIM_HOST
    Kept() {
        const Fragment unset;
        for (int i = 0; i < num_elements; ++i) x[i] = unset.x[i];
    }
#endif
};
template <class Fragment, class T>
__device__ inline void fill_fragment(Kept<Fragment>& f, T value) {
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = value;
}
template <class Fragment, class T, class Layout>
__device__ inline void load_matrix_sync(
    Kept<Fragment>& f, const T* p, unsigned int ldm, Layout layout
) {
    Fragment loaded;
    nvcuda::wmma::load_matrix_sync(loaded, p, ldm, layout);
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = loaded.x[i];
}
template <class Fragment, class T, class Layout>
__device__ inline void store_matrix_sync(
    T* p, const Kept<Fragment>& f, unsigned int ldm, Layout layout
) {
    Fragment stored;
    for (int i = 0; i < f.num_elements; ++i) stored.x[i] = f.x[i];
    nvcuda::wmma::store_matrix_sync(p, stored, ldm, layout);
}

// --- Tiles of the types that came with sm_80 -----------------------------------------------------
//
// nvcc 12 and 13 do not see where WMMA's tiles of these types are, and use generic accesses: of
// bf16, four that an LDSM does at once. PTX names the space (PTX ISA, "wmma.load", "wmma.store").

struct InShared {};
struct InGlobal {};

#if defined(TCUSIM_HOST)
template <class Space, class Fragment, class T, class... Layout>
inline void load_tile(Fragment& tile, const T* p, unsigned int ldm, Layout... layout) {
    nvcuda::wmma::load_matrix_sync(tile, p, ldm, layout...);
}
template <class Space, class Fragment, class T, class Layout>
inline void store_tile(T* p, const Fragment& tile, unsigned int ldm, Layout layout) {
    nvcuda::wmma::store_matrix_sync(p, tile, ldm, layout);
}
#elif __CUDA_ARCH__ >= 800
namespace wmma = nvcuda::wmma;

// How an assembly line names a place: by 32 bits in shared memory, by 64 in global memory.
__device__ inline unsigned int place_of(InShared, const void* p) {
    return static_cast<unsigned int>(__cvta_generic_to_shared(p));
}
__device__ inline unsigned long long place_of(InGlobal, const void* p) {
    return __cvta_generic_to_global(p);
}

#define TCUSIM_LOAD_IN(SPACE, TAG, PLACE, ROLE, OP, M, N, K, T, KIND, LAYOUT, MAJOR, STORAGE, LINE) \
    __device__ void load_in(                                                                \
        TAG space, wmma::fragment<wmma::ROLE, M, N, K, T, wmma::MAJOR>& tile, const STORAGE* p,    \
        unsigned int ldm                                                                           \
    ) {                                                                                            \
        LINE("wmma.load." OP ".sync.aligned." LAYOUT ".m" #M "n" #N "k" #K "." SPACE "." KIND, PLACE); \
    }
#define TCUSIM_LOADS(...)                                                                          \
    TCUSIM_LOAD_SPACES("row", row_major, __VA_ARGS__)                                              \
    TCUSIM_LOAD_SPACES("col", col_major, __VA_ARGS__)
#define TCUSIM_LOAD_SPACES(LAYOUT, MAJOR, ROLE, OP, M, N, K, T, KIND, STORAGE, LINE)               \
    TCUSIM_LOAD_IN(                                                                                \
        "shared", InShared, "r", ROLE, OP, M, N, K, T, KIND, LAYOUT, MAJOR, STORAGE, LINE      \
    )                                                                                              \
    TCUSIM_LOAD_IN(                                                                                \
        "global", InGlobal, "l", ROLE, OP, M, N, K, T, KIND, LAYOUT, MAJOR, STORAGE, LINE      \
    )
#define TCUSIM_WORDS unsigned int* r = reinterpret_cast<unsigned int*>(tile.x)
#define TCUSIM_LOAD_2(NAME, PLACE)                                                                 \
    TCUSIM_WORDS;                                                                                  \
    asm volatile(NAME " {%0,%1}, [%2], %3;"                                                        \
                 : "=r"(r[0]), "=r"(r[1])                                                          \
                 : PLACE(place_of(space, p)), "r"(ldm) : "memory")
#define TCUSIM_LOAD_4(NAME, PLACE)                                                                 \
    TCUSIM_WORDS;                                                                                  \
    asm volatile(NAME " {%0,%1,%2,%3}, [%4], %5;"                                                  \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                                  \
                 : PLACE(place_of(space, p)), "r"(ldm) : "memory")
#define TCUSIM_LOAD_8(NAME, PLACE)                                                                 \
    TCUSIM_WORDS;                                                                                  \
    asm volatile(NAME " {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"                                      \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]),         \
                   "=r"(r[6]), "=r"(r[7])                                                          \
                 : PLACE(place_of(space, p)), "r"(ldm) : "memory")
#define TCUSIM_LOAD_D(NAME, PLACE)                                                                 \
    asm volatile(NAME " {%0}, [%1], %2;"                                                           \
                 : "=d"(tile.x[0]) : PLACE(place_of(space, p)), "r"(ldm) : "memory")

TCUSIM_LOADS(matrix_a, "a", 16, 16, 16, __nv_bfloat16, "bf16", __nv_bfloat16, TCUSIM_LOAD_4)
TCUSIM_LOADS(matrix_b, "b", 16, 16, 16, __nv_bfloat16, "bf16", __nv_bfloat16, TCUSIM_LOAD_4)
TCUSIM_LOADS(matrix_a, "a", 32, 8, 16, __nv_bfloat16, "bf16", __nv_bfloat16, TCUSIM_LOAD_8)
TCUSIM_LOADS(matrix_b, "b", 32, 8, 16, __nv_bfloat16, "bf16", __nv_bfloat16, TCUSIM_LOAD_2)
TCUSIM_LOADS(matrix_a, "a", 8, 32, 16, __nv_bfloat16, "bf16", __nv_bfloat16, TCUSIM_LOAD_2)
TCUSIM_LOADS(matrix_b, "b", 8, 32, 16, __nv_bfloat16, "bf16", __nv_bfloat16, TCUSIM_LOAD_8)
TCUSIM_LOADS(matrix_a, "a", 16, 16, 8, wmma::precision::tf32, "tf32", float, TCUSIM_LOAD_4)
TCUSIM_LOADS(matrix_b, "b", 16, 16, 8, wmma::precision::tf32, "tf32", float, TCUSIM_LOAD_4)
TCUSIM_LOADS(matrix_a, "a", 8, 8, 4, double, "f64", double, TCUSIM_LOAD_D)
TCUSIM_LOADS(matrix_b, "b", 8, 8, 4, double, "f64", double, TCUSIM_LOAD_D)

using Sums64 = wmma::fragment<wmma::accumulator, 8, 8, 4, double>;
#define TCUSIM_SUMS(SPACE, TAG, PLACE, LAYOUT)                                                     \
    asm volatile("wmma.load.c.sync.aligned." LAYOUT ".m8n8k4." SPACE ".f64 {%0,%1}, [%2], %3;"     \
                 : "=d"(tile.x[0]), "=d"(tile.x[1])                                                \
                 : PLACE(place_of(space, p)), "r"(ldm) : "memory")
#define TCUSIM_STORE(SPACE, TAG, PLACE, LAYOUT)                                                    \
    asm volatile("wmma.store.d.sync.aligned." LAYOUT ".m8n8k4." SPACE ".f64 [%0], {%1,%2}, %3;"    \
                 ::PLACE(place_of(space, p)), "d"(tile.x[0]), "d"(tile.x[1]), "r"(ldm) : "memory")
#define TCUSIM_SUMS_IN(SPACE, TAG, PLACE)                                                          \
    __device__ void load_in(                                                                \
        TAG space, Sums64& tile, const double* p, unsigned int ldm, wmma::layout_t layout          \
    ) {                                                                                            \
        if (layout == wmma::mem_row_major) TCUSIM_SUMS(SPACE, TAG, PLACE, "row");                  \
        else TCUSIM_SUMS(SPACE, TAG, PLACE, "col");                                                \
    }                                                                                              \
    __device__ void store_in(                                                               \
        TAG space, double* p, const Sums64& tile, unsigned int ldm, wmma::layout_t layout          \
    ) {                                                                                            \
        if (layout == wmma::mem_row_major) TCUSIM_STORE(SPACE, TAG, PLACE, "row");                 \
        else TCUSIM_STORE(SPACE, TAG, PLACE, "col");                                               \
    }
TCUSIM_SUMS_IN("shared", InShared, "r")
TCUSIM_SUMS_IN("global", InGlobal, "l")

template <class Space, class Fragment, class T, class... Layout>
__device__ inline void load_tile(Fragment& tile, const T* p, unsigned int ldm, Layout... layout) {
    load_in(Space(), tile, p, ldm, layout...);
}
template <class Space, class Fragment, class T, class Layout>
__device__ inline void store_tile(T* p, const Fragment& tile, unsigned int ldm, Layout layout) {
    store_in(Space(), p, tile, ldm, layout);
}
#endif

// --- The mma.sync shapes m16n8k16 and m16n8k8 ----------------------------------------------------

#ifdef TCUSIM_HOST
}  // namespace tcu
#include "tcusim_host.h"
#else

using nvcuda::wmma::accumulator;
using nvcuda::wmma::col_major;
using nvcuda::wmma::layout_t;
using nvcuda::wmma::matrix_a;
using nvcuda::wmma::matrix_b;
using nvcuda::wmma::mem_row_major;
using nvcuda::wmma::row_major;
#if __CUDA_ARCH__ >= 800
using tf32 = nvcuda::wmma::precision::tf32;
#else
// Before sm_80 there is no such type: a name that the templates below may mention.
struct tf32;
#endif

// The type of an element in memory and in a register.
template <class T>
struct Stored {
    using type = T;
};
template <>
struct Stored<tf32> {
    using type = float;
};

// Where element x[i] of a lane stands in its tile: g = lane / 4, t = lane % 4.
// Source: PTX ISA, "Matrix Fragments for mma.m16n8k8" and "mma.m16n8k16".
// A pair of 16-bit elements shares a register and neighbouring columns of A (rows of B); a tf32
// element fills a register, and its neighbour is 4 on.
template <class Use, int K, class T>
struct Place;
template <int K, class T>
struct Place<matrix_a, K, T> {
    static constexpr int count = K / 2;
    __device__ static int row(int g, int, int i) { return g + 8 * (i / 2 % 2); }
    __device__ static int col(int, int t, int i) { return 2 * t + i % 2 + 8 * (i / 4); }
};
template <int K, class T>
struct Place<matrix_b, K, T> {
    static constexpr int count = K / 4;
    __device__ static int row(int, int t, int i) { return 2 * t + i % 2 + 8 * (i / 2); }
    __device__ static int col(int g, int, int) { return g; }
};
template <int K>
struct Place<matrix_a, K, tf32> {
    static constexpr int count = K / 2;
    __device__ static int row(int g, int, int i) { return g + 8 * (i % 2); }
    __device__ static int col(int, int t, int i) { return t + 4 * (i / 2); }
};
template <int K>
struct Place<matrix_b, K, tf32> {
    static constexpr int count = K / 4;
    __device__ static int row(int, int t, int i) { return t + 4 * i; }
    __device__ static int col(int g, int, int) { return g; }
};
template <int K, class T>
struct Place<accumulator, K, T> {
    static constexpr int count = 4;
    __device__ static int row(int g, int, int i) { return g + 8 * (i / 2); }
    __device__ static int col(int, int t, int i) { return 2 * t + i % 2; }
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    static_assert(M == 16 && N == 8 && (K == 8 || K == 16), "mma.sync shapes only");
    using element_type = typename Stored<T>::type;
    static constexpr int num_elements = Place<Use, K, T>::count;
    // A register holds 32 bits; mma.sync takes whole registers.
    alignas(4) element_type x[num_elements];
};

template <class Use, int K, class T, class Layout>
__device__ inline void fill_fragment(
    fragment<Use, 16, 8, K, T, Layout>& f, typename Stored<T>::type value
) {
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = value;
}

template <class Use, int K, class T, class Layout>
__device__ inline void load_with(
    fragment<Use, 16, 8, K, T, Layout>& f,
    const typename Stored<T>::type* p,
    int row_stride,
    int col_stride
) {
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
    for (int i = 0; i < f.num_elements; ++i) {
        const int row = Place<Use, K, T>::row(g, t, i);
        const int col = Place<Use, K, T>::col(g, t, i);
        f.x[i] = p[row * row_stride + col * col_stride];
    }
}

template <class Use, int K, class T>
__device__ inline void load_matrix_sync(
    fragment<Use, 16, 8, K, T, row_major>& f, const typename Stored<T>::type* p, unsigned int ldm
) {
    load_with(f, p, ldm, 1);
}

template <class Use, int K, class T>
__device__ inline void load_matrix_sync(
    fragment<Use, 16, 8, K, T, col_major>& f, const typename Stored<T>::type* p, unsigned int ldm
) {
    load_with(f, p, 1, ldm);
}

template <int K, class T>
__device__ inline void load_matrix_sync(
    fragment<accumulator, 16, 8, K, T>& f, const T* p, unsigned int ldm, layout_t layout
) {
    load_with(f, p, layout == mem_row_major ? ldm : 1, layout == mem_row_major ? 1 : ldm);
}

template <int K, class T>
__device__ inline void store_matrix_sync(
    T* p, const fragment<accumulator, 16, 8, K, T>& f, unsigned int ldm, layout_t layout
) {
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
    for (int i = 0; i < f.num_elements; ++i) {
        const int row = Place<accumulator, K, T>::row(g, t, i);
        const int col = Place<accumulator, K, T>::col(g, t, i);
        p[layout == mem_row_major ? row * ldm + col : col * ldm + row] = f.x[i];
    }
}

// Registers of a fragment, as mma.sync wants them.
template <class F>
__device__ inline const unsigned int* words(const F& f) {
    return reinterpret_cast<const unsigned int*>(f.x);
}
template <class F>
__device__ inline unsigned int* words(F& f) {
    return reinterpret_cast<unsigned int*>(f.x);
}

#define TCUSIM_MMA(M, N, K, AB, ACC, CODE)                                                   \
    template <class LayoutA, class LayoutB>                                                  \
    __device__ void mma_sync(                                                                \
        fragment<accumulator, M, N, K, ACC>& d,                                              \
        const fragment<matrix_a, M, N, K, AB, LayoutA>& fa,                                  \
        const fragment<matrix_b, M, N, K, AB, LayoutB>& fb,                                  \
        const fragment<accumulator, M, N, K, ACC>& fc                                        \
    ) {                                                                                      \
        const unsigned int* a = words(fa);                                                   \
        const unsigned int* b = words(fb);                                                   \
        const unsigned int* c = words(fc);                                                   \
        unsigned int r[8];                                                                   \
        CODE;                                                                                \
        for (int i = 0; i < (int)(sizeof(fc.x) / 4); ++i) words(d)[i] = r[i];                \
    }

// Words of A, of B and of the accumulator.
#define TCUSIM_4_2_4(NAME)                                                                   \
    asm volatile("mma.sync.aligned." NAME " {%0,%1,%2,%3}, {%4,%5,%6,%7}, "                  \
                      "{%8,%9}, {%10,%11,%12,%13};"                                          \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),         \
                   "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]))
#define TCUSIM_4_2_2(NAME)                                                                   \
    asm volatile("mma.sync.aligned." NAME " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};"       \
                 : "=r"(r[0]), "=r"(r[1])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),         \
                   "r"(c[0]), "r"(c[1]))
#define TCUSIM_2_1_4(NAME)                                                                   \
    asm volatile("mma.sync.aligned." NAME " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"   \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]),         \
                   "r"(c[3]))
#define TCUSIM_2_1_2(NAME)                                                                   \
    asm volatile("mma.sync.aligned." NAME " {%0,%1}, {%2,%3}, {%4}, {%5,%6};"                \
                 : "=r"(r[0]), "=r"(r[1])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]))
#define TCUSIM_2_2_8(NAME)                                                                   \
    asm volatile("mma.sync.aligned." NAME " {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, {%10,%11}, " \
                      "{%12,%13,%14,%15,%16,%17,%18,%19};"                                   \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]),   \
                   "=r"(r[6]), "=r"(r[7])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),         \
                   "r"(c[2]), "r"(c[3]), "r"(c[4]), "r"(c[5]), "r"(c[6]), "r"(c[7]))
#define TCUSIM_2_2_4(NAME)                                                                   \
    asm volatile("mma.sync.aligned." NAME " {%0,%1,%2,%3}, {%4,%5}, {%6,%7}, "               \
                      "{%8,%9,%10,%11};"                                                     \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),         \
                   "r"(c[2]), "r"(c[3]))

#if __CUDA_ARCH__ >= 750
TCUSIM_MMA(16, 8, 8, half, float, TCUSIM_2_1_4("m16n8k8.row.col.f32.f16.f16.f32"))
TCUSIM_MMA(16, 8, 8, half, half, TCUSIM_2_1_2("m16n8k8.row.col.f16.f16.f16.f16"))
#endif
#if __CUDA_ARCH__ >= 800
TCUSIM_MMA(16, 8, 16, half, float, TCUSIM_4_2_4("m16n8k16.row.col.f32.f16.f16.f32"))
TCUSIM_MMA(16, 8, 16, half, half, TCUSIM_4_2_2("m16n8k16.row.col.f16.f16.f16.f16"))
TCUSIM_MMA(16, 8, 8, __nv_bfloat16, float, TCUSIM_2_1_4("m16n8k8.row.col.f32.bf16.bf16.f32"))
TCUSIM_MMA(16, 8, 16, __nv_bfloat16, float, TCUSIM_4_2_4("m16n8k16.row.col.f32.bf16.bf16.f32"))
TCUSIM_MMA(16, 8, 8, tf32, float, TCUSIM_4_2_4("m16n8k8.row.col.f32.tf32.tf32.f32"))
#endif

// --- The mma.sync shape m8n8k4, Volta's ----------------------------------------------------------

// The instruction multiplies four tiles, each in eight lanes: four of the lower half of the warp and
// four of the upper. Here all four are the same tile.
// Source: PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type".
template <class Use, class T>
struct PlaceOf4;
template <class T>
struct PlaceOf4<matrix_a, T> {
    static constexpr int count = 4;
    __device__ static int row(int lane, int) { return lane % 4 + lane / 16 * 4; }
    __device__ static int col(int, int i) { return i; }
};
template <class T>
struct PlaceOf4<matrix_b, T> {
    static constexpr int count = 4;
    __device__ static int row(int, int i) { return i; }
    __device__ static int col(int lane, int) { return lane % 4 + lane / 16 * 4; }
};
template <>
struct PlaceOf4<accumulator, half> {
    static constexpr int count = 8;
    __device__ static int row(int lane, int) { return lane % 4 + lane / 16 * 4; }
    __device__ static int col(int, int i) { return i; }
};
template <>
struct PlaceOf4<accumulator, float> {
    static constexpr int count = 8;
    __device__ static int row(int lane, int i) { return lane % 2 + (i & 2) + lane / 16 * 4; }
    __device__ static int col(int lane, int i) { return (lane & 2) + (i & 4) + i % 2; }
};

template <class Use, class T, class Layout>
struct fragment<Use, 8, 8, 4, T, Layout> {
    using element_type = T;
    static constexpr int num_elements = PlaceOf4<Use, T>::count;
    alignas(4) T x[num_elements];
};

template <class Use, class T, class Layout>
__device__ inline void fill_fragment(fragment<Use, 8, 8, 4, T, Layout>& f, T value) {
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = value;
}

template <class Use, class T, class Layout>
__device__ inline void load_with(
    fragment<Use, 8, 8, 4, T, Layout>& f, const T* p, int row_stride, int col_stride
) {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < f.num_elements; ++i) {
        const int row = PlaceOf4<Use, T>::row(lane, i);
        const int col = PlaceOf4<Use, T>::col(lane, i);
        f.x[i] = p[row * row_stride + col * col_stride];
    }
}

template <class Use, class T>
__device__ inline void load_matrix_sync(
    fragment<Use, 8, 8, 4, T, row_major>& f, const T* p, unsigned int ldm
) {
    load_with(f, p, ldm, 1);
}
template <class Use, class T>
__device__ inline void load_matrix_sync(
    fragment<Use, 8, 8, 4, T, col_major>& f, const T* p, unsigned int ldm
) {
    load_with(f, p, 1, ldm);
}
template <class T>
__device__ inline void load_matrix_sync(
    fragment<accumulator, 8, 8, 4, T>& f, const T* p, unsigned int ldm, layout_t layout
) {
    load_with(f, p, layout == mem_row_major ? ldm : 1, layout == mem_row_major ? 1 : ldm);
}

template <class T>
__device__ inline void store_matrix_sync(
    T* p, const fragment<accumulator, 8, 8, 4, T>& f, unsigned int ldm, layout_t layout
) {
    const int lane = threadIdx.x % 32;
    // One of the four.
    if (lane & 12) return;
    for (int i = 0; i < f.num_elements; ++i) {
        const int row = PlaceOf4<accumulator, T>::row(lane, i);
        const int col = PlaceOf4<accumulator, T>::col(lane, i);
        p[layout == mem_row_major ? row * ldm + col : col * ldm + row] = f.x[i];
    }
}

TCUSIM_MMA(8, 8, 4, half, float, TCUSIM_2_2_8("m8n8k4.row.col.f32.f16.f16.f32"))
TCUSIM_MMA(8, 8, 4, half, half, TCUSIM_2_2_4("m8n8k4.row.col.f16.f16.f16.f16"))

}  // namespace tcu
#endif
