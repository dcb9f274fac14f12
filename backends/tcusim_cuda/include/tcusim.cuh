// What emitted kernels need beyond CUDA's own headers: conversions and additions that round once,
// exact splitting, status words, vectors of elements, and fragments for the mma.sync shapes, in the
// manner of nvcuda::wmma.
// The same text is compiled by NVRTC for a GPU and by a C++ compiler for the host backend.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

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
__device__ inline double add(double x, double y) {
    // A double keeps the NaN of one operand, and a compiler may exchange them: one NaN for all.
    const double sum = __dadd_rn(x, y);
    return sum == sum ? sum : __longlong_as_double(0xFFF8000000000000LL);
}
__device__ inline int add(int x, int y) {
    return static_cast<int>(static_cast<unsigned int>(x) + static_cast<unsigned int>(y));
}
__device__ inline long long add(long long x, long long y) {
    return static_cast<long long>(
        static_cast<unsigned long long>(x) + static_cast<unsigned long long>(y));
}

// What a Map does with floats. Nothing of it is contracted, and subnormal numbers are kept.
__device__ inline float times(float x, float y) { return __fmul_rn(x, y); }
__device__ inline float over(float x, float y) { return __fdiv_rn(x, y); }
__device__ inline float root(float x) { return __fsqrt_rn(x); }

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
// Parts of a half. Beside a number whose last bit is 1, a float has no bits left for a fraction.
__device__ inline half only_whole(half x) {
    constexpr float ones = 12582912.0f;
    return convert<half>(__fadd_rn(__fadd_rn(convert<float>(x), ones), -ones));
}
__device__ inline half only_fraction(half x) {
    const float whole = convert<float>(only_whole(x));
    return convert<half>(is_finite(x) ? __fadd_rn(convert<float>(x), -whole) : 0.0f);
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

// The number of blocks that started before this one. All threads call it, and none runs ahead.
__device__ inline long long take_ticket(unsigned long long* count) {
    __shared__ unsigned long long ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(count, 1ull);
    __syncthreads();
    return static_cast<long long>(ticket);
}

template <class T>
__device__ inline unsigned int low_bits(T x) {
    unsigned int bits = 0;
    memcpy(&bits, &x, sizeof(T) < 4 ? sizeof(T) : 4);
    return bits;
}

// Values that come with their flag: a flagged word of 64 bits holds 32 bits of a value and a 1
// above them. It is stored and loaded whole, so whoever sees the flag sees the bits, and no fence
// is needed. A value of 64 bits has two words.
template <class T>
struct Status {
    unsigned long long* words;
    static constexpr unsigned long long flag = 1ull << 32;

    // What lies at a place, flagged or empty. Several such loads are in flight together.
    using Word = unsigned long long;
    __device__ static Word empty() { return 0; }
    __device__ Word try_load(long long place) const { return load_word(place); }

    __device__ void store(long long place, T value) const { store_word(place, low_bits(value)); }
    // The value, once its flag is there; `seen` is what try_load returned.
    __device__ T wait(long long place, Word seen) const {
        const unsigned int bits = wait_word(place, seen);
        T value;
        memcpy(&value, &bits, sizeof(T));
        return value;
    }

    __device__ void store_word(long long place, unsigned int bits) const {
        *static_cast<volatile Word*>(words + place) = flag | bits;
    }
    __device__ Word load_word(long long place) const {
        return *static_cast<const volatile Word*>(words + place);
    }
    __device__ unsigned int wait_word(long long place, Word seen) const {
        while (!(seen & flag)) {
            TCUSIM_UNPUBLISHED();
            seen = load_word(place);
        }
        return static_cast<unsigned int>(seen);
    }
};
template <>
__device__ inline void Status<double>::store(long long place, double value) const {
    const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(value));
    store_word(2 * place, static_cast<unsigned int>(bits));
    store_word(2 * place + 1, static_cast<unsigned int>(bits >> 32));
}
// Of two words the first one is looked at.
template <>
__device__ inline unsigned long long Status<double>::try_load(long long place) const {
    return load_word(2 * place);
}
template <>
__device__ inline double Status<double>::wait(long long place, Word seen) const {
    const unsigned long long low = wait_word(2 * place, seen);
    const unsigned long long high = wait_word(2 * place + 1, load_word(2 * place + 1));
    return __longlong_as_double(static_cast<long long>(high << 32 | low));
}

// --- Segments of unequal length -----------------------------------------------------------------

// How many whole LENGTHs an offset is. Offsets are not negative; those that are would not be right.
template <long long LENGTH>
__device__ inline long long whole_in(long long offset) {
    if constexpr ((LENGTH & (LENGTH - 1)) == 0) {
        int bits = 0;
        for (long long rest = LENGTH; rest > 1; rest /= 2) ++bits;
        return offset >> bits;
    } else {
        return offset / LENGTH;
    }
}
// Where the data of segment i begin, as chunks of these lengths leave them; see Segments in
// program/grammar.py.
template <long long... LENGTHS>
__device__ inline long long position(long long offset, long long i) {
    ((offset = whole_in<LENGTHS>(offset) + i), ...);
    return offset;
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
    // Whether all ranges that have elements are at least `margin` from both ends of the data, and an
    // int can count their elements.
    bool inner = false;
    // Whether each range begins where the one before ends, so that they are one piece of memory, of
    // less than 2**16 elements.
    bool follow = false;
    // The most elements of a range.
    int longest = 0;
};
constexpr int margin = 32;

// Where a range begins in the piece that it is part of, and how many elements it has: `places` holds
// both, in 16 bits each, if ranges follow each other.
__device__ inline int start_of(int place) { return place & 0xFFFF; }
__device__ inline int count_of(int place) {
    return static_cast<int>(static_cast<unsigned int>(place) >> 16);
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
    const int lane = threadIdx.x % 32;
    constexpr long long length = LENGTH > 0 ? LENGTH : 1;
    constexpr int far_away = 1 << 30;
    static_assert(LENGTH < 1 << 20, "32 chunks are told apart in 32 bits");
    const bool by_search = LENGTH > 0 && segments > 0;
    // A segment's first number is higher than that of the one before.
    const auto number_of = [](long long offset, long long i) {
        return position<LEVELS..., length>(offset, i);
    };
    // A distance in 32 bits, as long as it is no more than that.
    const auto near = [](long long distance) {
        distance = distance < far_away ? distance : far_away;
        return static_cast<int>(distance > -far_away ? distance : -far_away);
    };
    // The last segment that has begun by number `first` is from low to high - 1.
    long long low = 0;
    if (by_search) {
        long long high = segments;
        if (found.last >= 0 && found.last < first) {
            low = found.segment;
            high = first - found.last < segments - low ? low + 1 + (first - found.last) : segments;
        }
        while (high - low > 2) {
            // Each lane looks at a part; one finds that the segment is in its own.
            const long long step = (high - low + 31) / 32;
            const long long here = low + lane * step;
            const long long next = here + step;
            const bool after = here < high && (lane == 0 || number_of(offsets[here], here) <= first);
            const bool beyond = next < high && number_of(offsets[next], next) <= first;
            low += step * last_of(lanes_with(after && !beyond));
            high = low + step < high ? low + step : high;
        }
    }
    // What was known of the ranges before, other lanes have read.
    __syncwarp();
    long long origin = 0;
    long long last_end = 0;
    bool outer = false;
    bool apart = false;
    int longest = 0;
    #pragma unroll 1
    for (int base = 0; base < count; base += 32) {
        const int taken = count - base < 32 ? count - base : 32;
        const long long here = first + base;
        // Places are counted from one near which all ranges lie, if they follow each other.
        long long zero = 0;
        int begin = 0;
        int end = 0;
        long long from = 0;
        long long to = 0;
        if (by_search) {
            // The lane's number is that of segment low or of one of the next 32: each lane reads where
            // one of these begins, and all learn which numbers these begin with.
            const long long next = low + 1 + lane < segments ? low + 1 + lane : segments;
            const long long own = offsets[next];
            const long long start = offsets[low];
            const int begun_before = near(here - number_of(start, low));
            zero = position<LEVELS...>(start, low) + begun_before * length;
            const int far = low + 1 + lane < segments ? near(number_of(own, next) - here) : 32;
            const bool begins_here = far < 32 && (far >= 0 || lane == 0);
            const unsigned int begun = any_bits(begins_here ? 1u << (far > 0 ? far : 0) : 0u);
            const int i = __popc(begun & ((2u << lane) - 1));
            const int place = near(position<LEVELS...>(own, next) - zero);
            const int start_of_own = __shfl_sync(0xFFFFFFFFu, place, (i + 31) % 32);
            const int number = __shfl_sync(0xFFFFFFFFu, far, (i + 31) % 32);
            int limit = __shfl_sync(0xFFFFFFFFu, place, i % 32);
            if (i == 32) {
                const long long after = low + 33 < segments ? low + 33 : segments;
                limit = near(position<LEVELS...>(offsets[after], after) - zero);
            }
            const int before = lane - (i == 0 ? 0 : number);
            begin = (i == 0 ? 0 : start_of_own) + before * static_cast<int>(length);
            // Before the first chunk, or beyond its segment's last, there is none.
            const bool is_one = before + (i == 0 ? begun_before : 0) >= 0 && begin < limit;
            begin = is_one ? begin : limit;
            end = begin + static_cast<int>(length) < limit ? begin + static_cast<int>(length) : limit;
            low += __shfl_sync(0xFFFFFFFFu, i, taken - 1);
        } else {
            const long long i = here + lane < segments ? here + lane : segments - 1;
            to = segments > 0 ? position<LEVELS...>(offsets[i + 1], i + 1) : 0;
            from = here + lane < segments ? position<LEVELS...>(offsets[i], i) : to;
            zero = __shfl_sync(0xFFFFFFFFu, from, 0);
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
            apart |= begin != earlier || end - piece >= 1 << 16;
            const bool near_an_end = begin < bottom + margin || end > top - margin;
            outer |= end >= far_away || (begin < end && near_an_end);
            longest = end - begin > longest ? end - begin : longest;
            begins[base + lane] = from;
            ends[base + lane] = to;
            const unsigned int elements = static_cast<unsigned int>(end - begin) << 16;
            places[base + lane] = static_cast<int>(elements | (begin - piece & 0xFFFF));
        }
        if (count > 32) last_end = zero + __shfl_sync(0xFFFFFFFFu, end, taken - 1);
    }
    found.inner = !__any_sync(0xFFFFFFFFu, outer);
    found.follow = !__any_sync(0xFFFFFFFFu, apart);
    found.longest = most_of(longest);
    found.last = first + count - 1;
    found.segment = low;
    __syncwarp();
}

// --- Shared memory --------------------------------------------------------------------------------

// A buffer in shared memory. An index is scaled to bytes here, by one multiplication, since ptxas
// 12.4 to 13.5 goes wrong from sm_90 on where it does so itself: of three addresses a + 4*(c*row),
// b + 4*(d*row) and e + 2*(f*row), the last becomes e + 4*(f*row).
template <class T>
struct Shared {
    T* begin;

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

// V elements in registers; V * sizeof(T) is a power of two.
template <class T, int V>
struct Vector {
    static constexpr int bytes = V * sizeof(T);
    // What one instruction can move of it.
    static constexpr int access = bytes < 16 ? bytes : 16;
    alignas(access) T x[V];
};

// Where a vector lies: at a multiple of its access, as in shared memory, or anywhere. An array that
// a user passes may begin at any element, so the widest access that does is found as it runs.
struct Aligned {};
struct Anywhere {};

// For a vector that is in bounds whatever the symbols are.
struct Always {
    __device__ constexpr bool operator()(int) const { return true; }
};

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
__device__ inline void move(T* to, const T* from, const void* address, Anywhere where) {
    // After 16 bytes 4 are tried, then elements: more cases would make more code, seldom run.
    constexpr int less = BYTES > 4 ? 4 : 1;
    if constexpr (BYTES <= static_cast<int>(sizeof(T))) {
        move_by<sizeof(T), T, V>(to, from);
    } else if (is_multiple(address, BYTES)) {
        move_by<BYTES, T, V>(to, from);
    } else {
        move<less, T, V>(to, from, address, where);
    }
}
template <int BYTES, class T, int V>
__device__ inline void move(T* to, const T* from, const void*, Aligned) {
    move_by<BYTES, T, V>(to, from);
}

// Reads the vector at p, zeros where out of bounds. inside(i) says whether element i is in bounds:
// bounds are affine, so if they hold at both ends they do between.
template <int V, class Where = Anywhere, class T, class Inside = Always>
__device__ inline Vector<T, V> load(const T* p, Inside inside = {}) {
    Vector<T, V> vector;
    if (inside(0) && inside(V - 1)) {
        move<Vector<T, V>::access, T, V>(vector.x, p, p, Where());
        return vector;
    }
    #pragma unroll
    for (int i = 0; i < V; ++i) vector.x[i] = inside(i) ? p[i] : convert<T>(0.0f);
    return vector;
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
        // Move what is wanted to the beginning: by two words, by one, and by bits.
        #pragma unroll
        for (int i = 0; i < 2 * words - 2; ++i) w[i] = skew & 8 ? w[i + 2] : w[i];
        #pragma unroll
        for (int i = 0; words > 1 && i < words + 1; ++i) w[i] = skew & 4 ? w[i + 1] : w[i];
        #pragma unroll
        for (int i = 0; i < words; ++i) {
            const unsigned long long pair = static_cast<unsigned long long>(w[i + 1]) << 32 | w[i];
            w[i] = static_cast<unsigned int>(pair >> 8 * (skew % 4));
        }
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
__device__ inline Piece<V, T> piece(const T* p, long long rest) {
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
        move<Vector<T, V>::access, T, V>(p, vector.x, p, Where());
        return;
    }
    #pragma unroll
    for (int i = 0; i < V; ++i) {
        if (inside(i)) p[i] = vector.x[i];
    }
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

template <int V>
__device__ inline Vector<float, V> take(const float* from) {
    Vector<float, V> vector;
    #pragma unroll
    for (int i = 0; i < V; ++i) vector.x[i] = from[i];
    return vector;
}
template <int V>
__device__ inline void put(float* to, const Vector<float, V>& vector) {
    #pragma unroll
    for (int i = 0; i < V; ++i) to[i] = vector.x[i];
}

// The sum of a row of which L neighbouring lanes hold E elements each, in all of these lanes.
// Neighbours are added in pairs, then neighbouring pairs: x + 0 makes 0 of -0. A long row has
// several such PIECES, one after the other.
template <int E, int L, int PIECES = 1>
__device__ inline float sum_of_row(float (&x)[E * PIECES]) {
    #pragma unroll
    for (int i = 0; i < E * PIECES; ++i) x[i] = add(x[i], 0.0f);
    #pragma unroll
    for (int apart = 1; apart < E; apart *= 2) {
        #pragma unroll
        for (int i = 0; i < E * PIECES; i += 2 * apart) x[i] = add(x[i], x[i + apart]);
    }
    #pragma unroll
    for (int apart = 1; apart < L; apart *= 2) {
        #pragma unroll
        for (int i = 0; i < E * PIECES; i += E) {
            // a + b is b + a, so both lanes of a pair find the same.
            x[i] = add(x[i], __shfl_xor_sync(0xFFFFFFFFu, x[i], apart));
        }
    }
    #pragma unroll
    for (int apart = E; apart < E * PIECES; apart *= 2) {
        #pragma unroll
        for (int i = 0; i < E * PIECES; i += 2 * apart) x[i] = add(x[i], x[i + apart]);
    }
    return x[0];
}

// Prefix sums of such a row, in place, by the same pairs; returns the row's sum. In each pair the
// sum of what comes first is added to all of what comes second: to the right of it, or in REVERSE to
// its left. EXCLUSIVE ones are those of the element before.
template <int E, int L, bool REVERSE, bool EXCLUSIVE>
__device__ inline float prefix_sums(float (&x)[E]) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    constexpr int last = REVERSE ? 0 : E - 1;
    #pragma unroll
    for (int i = 0; i < E; ++i) x[i] = add(x[i], 0.0f);
    #pragma unroll
    for (int apart = 1; apart < E; apart *= 2) {
        #pragma unroll
        for (int i = 0; i < E; ++i) {
            const int pair = i / (2 * apart) * (2 * apart);
            const bool is_second = (i - pair >= apart) != REVERSE;
            if (is_second) x[i] = add(x[REVERSE ? pair + apart : pair + apart - 1], x[i]);
        }
    }
    #pragma unroll
    for (int apart = 1; apart < L; apart *= 2) {
        const int pair = lane & ~(2 * apart - 1);
        const int source = REVERSE ? pair + apart : pair + apart - 1;
        const float first = __shfl_sync(0xFFFFFFFFu, x[last], source);
        if (((lane & apart) != 0) != REVERSE) {
            #pragma unroll
            for (int i = 0; i < E; ++i) x[i] = add(first, x[i]);
        }
    }
    const int end = (lane & ~(L - 1)) | (REVERSE ? 0 : L - 1);
    const float sum = L == 1 ? x[last] : __shfl_sync(0xFFFFFFFFu, x[last], end);
    if constexpr (EXCLUSIVE) {
        const int before = REVERSE ? lane + 1 : lane - 1;
        const bool is_first = lane % L == (REVERSE ? L - 1 : 0);
        float carry = 0.0f;
        if constexpr (L > 1) carry = __shfl_sync(0xFFFFFFFFu, x[last], before & 31);
        if (is_first) carry = 0.0f;
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

template <int V>
__device__ inline Vector<float, V> over(const Vector<float, V>& x, const Vector<float, V>& y) {
    Vector<float, V> ratio;
    #pragma unroll
    for (int i = 0; i < V; ++i) ratio.x[i] = over(x.x[i], y.x[i]);
    return ratio;
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

template <int V>
__device__ inline Vector<half, V> only_whole(Vector<half, V> x) {
    #pragma unroll
    for (int i = 0; i < V; ++i) x.x[i] = only_whole(x.x[i]);
    return x;
}

template <int V>
__device__ inline Vector<half, V> only_fraction(Vector<half, V> x) {
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

// Copies COUNT ranges of at most WIDTH elements to rows in shared memory that lie APART, with zeros
// behind them up to WIDTH. from: where the first range begins; the vectors that hold its first and the
// last one's end must be in the array. They are read in whole vectors to where the rows will be, and
// then put in place.
template <int COUNT, int WIDTH, int APART, class T>
__device__ inline void gather_rows(T* to, const T* from, const int* places) {
    constexpr int size = sizeof(T), placed = 8 / size, per = WIDTH / placed;
    constexpr int reads = ((COUNT * WIDTH * size + 30) / 16 + 31) / 32;
    constexpr int units = COUNT * per, turns = (units + 31) / 32;
    static_assert(WIDTH % placed == 0 && APART % placed == 0, "rows are whole units");
    static_assert((COUNT * APART - (COUNT + 1) * WIDTH) * size >= 27, "what is read finds room");
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int skew = static_cast<int>(reinterpret_cast<unsigned long long>(from) & 15);
    const int last = places[COUNT - 1];
    const int bytes = skew + (start_of(last) + count_of(last)) * size;
    const auto* source = reinterpret_cast<const Words<16>*>(reinterpret_cast<const char*>(from) - skew);
    auto* piece = reinterpret_cast<Words<16>*>(to);
    Words<16> held[reads];
    #pragma unroll
    for (int nth = 0; nth < reads; ++nth) {
        const int e = lane + 32 * nth;
        if (16 * e < bytes) held[nth] = source[e];
    }
    #pragma unroll
    for (int nth = 0; nth < reads; ++nth) {
        const int e = lane + 32 * nth;
        if (16 * e < bytes) piece[e] = held[nth];
    }
    __syncwarp();
    const auto* bytes_of_piece = reinterpret_cast<const char*>(to);
    Words<8> unit[turns];
    #pragma unroll
    for (int nth = 0; nth < turns; ++nth) {
        const int e = lane + 32 * nth;
        if (units % 32 && e >= units) continue;
        const int place = places[e / per], col = placed * (e % per);
        const int at = start_of(place) * size + (col * size + skew);
        const auto* w = reinterpret_cast<const unsigned int*>(bytes_of_piece + (at & ~3));
        const unsigned int shift = 8 * at;
        const unsigned int middle = w[1];
        const int bits = 8 * size * (count_of(place) - col);
        unit[nth].w[0] = __funnelshift_r(w[0], middle, shift) & low_bits(bits);
        unit[nth].w[1] = __funnelshift_r(middle, w[2], shift) & low_bits(bits - 32);
    }
    __syncwarp();
    #pragma unroll
    for (int nth = 0; nth < turns; ++nth) {
        const int e = lane + 32 * nth;
        if (units % 32 && e >= units) continue;
        *reinterpret_cast<Words<8>*>(to + e / per * APART + placed * (e % per)) = unit[nth];
    }
}

// The same of elements that are whole words, one by one: what lies around the ranges is not read.
template <int COUNT, int WIDTH, int APART, class T>
__device__ inline void gather_elements(T* to, const T* from, const int* places, int longest) {
    constexpr int units = COUNT * WIDTH, turns = (units + 31) / 32, held = turns < 16 ? turns : 16;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (COUNT > 1 && longest <= 1) {
        // Few elements, and zeros behind them.
        #pragma unroll 8
        for (int e = lane; e < units; e += 32) {
            if (e % WIDTH > 0) to[e / WIDTH * APART + e % WIDTH] = convert<T>(0.0f);
        }
        for (int row = lane; row < COUNT; row += 32) {
            const int place = places[row];
            to[row * APART] = count_of(place) > 0 ? from[start_of(place)] : convert<T>(0.0f);
        }
        return;
    }
    constexpr int unrolled = turns <= 2 * held ? turns : 1;
    #pragma unroll unrolled
    for (int first = 0; first < turns; first += held) {
        T x[held];
        #pragma unroll
        for (int nth = 0; nth < held; ++nth) {
            const int e = lane + 32 * (first + nth);
            x[nth] = convert<T>(0.0f);
            if (e >= units) continue;
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

// Writes the values of COUNT rows of WIDTH to ranges that follow each other, as many as each has. to:
// where the first range begins.
template <int COUNT, int WIDTH, class T, class Value>
__device__ inline void scatter_elements(T* to, const int* places, int longest, Value value) {
    constexpr int units = COUNT * WIDTH, turns = (units + 31) / 32;
    const int lane = static_cast<int>(threadIdx.x % 32);
    if (COUNT > 1 && longest <= 1) {
        for (int row = lane; row < COUNT; row += 32) {
            const T x = value(row, 0);
            if (count_of(places[row]) > 0) to[start_of(places[row])] = x;
        }
        return;
    }
    #pragma unroll 8
    for (int nth = 0; nth < turns; ++nth) {
        const int e = lane + 32 * nth;
        if (units % 32 && e >= units) continue;
        const int row = e / WIDTH, col = e % WIDTH, place = places[row];
        const T x = value(row, col);
        if (col < count_of(place)) to[start_of(place) + col] = x;
    }
}

// Puts four elements of two bytes, two to a word, where they lie in a row at `place`, as many as it
// has: those before the first whole word, the words, and those behind them, without branches.
template <class T>
__device__ inline void put_in_place(
    T* stage, int place, int col, int skew, const unsigned int (&w)[2]
) {
    const int rest = count_of(place) - col, count = rest < 4 ? rest : 4;
    const unsigned int at = 2 * (start_of(place) + (col + skew));
    const unsigned int shift = 8 * at & 16;
    const int before = at >> 1 & 1, left = count - before;
    char* const p = reinterpret_cast<char*>(stage) + at;
    const auto half_of = [](unsigned int word) { return static_cast<unsigned short>(word); };
    if (before && count > 0) *reinterpret_cast<unsigned short*>(p) = half_of(w[0]);
    if (left >= 2) {
        *reinterpret_cast<unsigned int*>(p + 2 * before) = __funnelshift_r(w[0], w[1], shift);
    }
    if (left >= 4) *reinterpret_cast<unsigned int*>(p + 4) = w[1];
    if (left > 0 && left % 2 == 1) {
        const unsigned int word = (count > 2 ? w[1] : w[0]) >> shift;
        *reinterpret_cast<unsigned short*>(p + 2 * count - 2) = half_of(word);
    }
}

// The same of elements of two bytes, four of which are a value: they are put together in `stage`, in
// shared memory, as they will lie, and written in whole vectors.
template <int COUNT, int WIDTH, class T, class Value>
__device__ inline void scatter_rows(T* to, const int* places, T* stage, Value value) {
    constexpr int placed = 4, per = WIDTH / placed, units = COUNT * per, turns = (units + 31) / 32;
    constexpr int vector = 16 / sizeof(T);
    constexpr int writes = (COUNT * WIDTH / vector + 31) / 32;
    static_assert(sizeof(T) == 2 && WIDTH % placed == 0, "pairs are words");
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int skew = static_cast<int>(reinterpret_cast<unsigned long long>(to) % 16 / sizeof(T));
    // Several are found before the first is put in place: memory answers them together.
    constexpr int held = turns < 4 ? turns : 4;
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
            const int e = lane + 32 * (first + nth);
            if ((units % 32 || turns % held) && e >= units) continue;
            put_in_place(stage, at_row[nth], placed * (e % per), skew, w[nth]);
        }
    }
    __syncwarp();
    const int last = places[COUNT - 1];
    const int end = skew + start_of(last) + count_of(last);
    T* const from = to - skew;
    const int begin = skew > 0 ? 1 : 0;
    #pragma unroll
    for (int nth = 0; nth < writes; ++nth) {
        const int e = begin + lane + 32 * nth;
        if (e < end / vector) {
            reinterpret_cast<Words<16>*>(from)[e] = reinterpret_cast<const Words<16>*>(stage)[e];
        }
    }
    // What is left of the first vector, and of the last one.
    const int at = lane < vector ? lane : end / vector * vector + lane % vector;
    const bool left = lane < vector ? begin > 0 : lane < 2 * vector;
    if (left && at >= skew && at < end) from[at] = stage[at];
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
    __device__ inline void load_in(                                                                \
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
    __device__ inline void load_in(                                                                \
        TAG space, Sums64& tile, const double* p, unsigned int ldm, wmma::layout_t layout          \
    ) {                                                                                            \
        if (layout == wmma::mem_row_major) TCUSIM_SUMS(SPACE, TAG, PLACE, "row");                  \
        else TCUSIM_SUMS(SPACE, TAG, PLACE, "col");                                                \
    }                                                                                              \
    __device__ inline void store_in(                                                               \
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

#define TCUSIM_MMA(K, AB, ACC, CODE)                                                         \
    template <class LayoutA, class LayoutB>                                                  \
    __device__ inline void mma_sync(                                                         \
        fragment<accumulator, 16, 8, K, ACC>& d,                                             \
        const fragment<matrix_a, 16, 8, K, AB, LayoutA>& fa,                                 \
        const fragment<matrix_b, 16, 8, K, AB, LayoutB>& fb,                                 \
        const fragment<accumulator, 16, 8, K, ACC>& fc                                       \
    ) {                                                                                      \
        const unsigned int* a = words(fa);                                                   \
        const unsigned int* b = words(fb);                                                   \
        const unsigned int* c = words(fc);                                                   \
        unsigned int r[4];                                                                   \
        CODE;                                                                                \
        for (int i = 0; i < (int)(sizeof(fc.x) / 4); ++i) words(d)[i] = r[i];                \
    }

// Four words of A, two of B; the accumulator has four words (f32) or two (f16).
#define TCUSIM_4_2_4(NAME)                                                                   \
    asm volatile(NAME " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"           \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),         \
                   "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]))
#define TCUSIM_4_2_2(NAME)                                                                   \
    asm volatile(NAME " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%8,%9};"                           \
                 : "=r"(r[0]), "=r"(r[1])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),         \
                   "r"(c[0]), "r"(c[1]))
#define TCUSIM_2_1_4(NAME)                                                                   \
    asm volatile(NAME " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"                       \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]), "r"(c[2]),         \
                   "r"(c[3]))
#define TCUSIM_2_1_2(NAME)                                                                   \
    asm volatile(NAME " {%0,%1}, {%2,%3}, {%4}, {%5,%6};"                                    \
                 : "=r"(r[0]), "=r"(r[1])                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(c[0]), "r"(c[1]))

#if __CUDA_ARCH__ >= 750
TCUSIM_MMA(8, half, float, TCUSIM_2_1_4("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"))
TCUSIM_MMA(8, half, half, TCUSIM_2_1_2("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"))
#endif
#if __CUDA_ARCH__ >= 800
TCUSIM_MMA(16, half, float, TCUSIM_4_2_4("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"))
TCUSIM_MMA(16, half, half, TCUSIM_4_2_2("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"))
TCUSIM_MMA(
    8, __nv_bfloat16, float, TCUSIM_2_1_4("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32")
)
TCUSIM_MMA(
    16, __nv_bfloat16, float, TCUSIM_4_2_4("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
)
TCUSIM_MMA(8, tf32, float, TCUSIM_4_2_4("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"))
#endif

}  // namespace tcu
#endif
