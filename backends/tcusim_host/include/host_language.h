// The words of CUDA C++ that emitted kernels use, for a C++ compiler.
#pragma once
#include "host_runtime.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// In a function this is one array for all fibers of the thread, and it may follow `extern`.
#define __shared__ thread_local

struct dim3 {
    unsigned int x, y, z;
};

extern dim3 threadIdx;
extern dim3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

// The line of the kernel's text is kept, to say where a lane waits.
inline void __syncwarp(unsigned int = 0xFFFFFFFFu, int line = __builtin_LINE()) {
    tcusim::wait_for_warp(tcusim::Wait::syncwarp, line);
}
inline void __syncthreads(int line = __builtin_LINE()) { tcusim::wait_for_block(line); }

// Whether any lane of the warp says so.
inline int __any_sync(unsigned int, int mine, int line = __builtin_LINE()) {
    thread_local int votes[32];
    int& vote = votes[threadIdx.x / 32];
    vote = 0;
    __syncwarp(0xFFFFFFFFu, line);
    if (mine) vote = 1;
    __syncwarp(0xFFFFFFFFu, line);
    const int any = vote;
    __syncwarp(0xFFFFFFFFu, line);
    return any;
}

// What another lane of the warp holds.
template <class T>
inline T __shfl_sync(unsigned int, T mine, int lane, int line = __builtin_LINE()) {
    thread_local T held[32][32];
    T(&own)[32] = held[threadIdx.x / 32];
    own[threadIdx.x % 32] = mine;
    __syncwarp(0xFFFFFFFFu, line);
    const T found = own[lane % 32];
    __syncwarp(0xFFFFFFFFu, line);
    return found;
}
template <class T>
inline T __shfl_xor_sync(unsigned int, T mine, int apart, int line = __builtin_LINE()) {
    return __shfl_sync(0xFFFFFFFFu, mine, static_cast<int>(threadIdx.x % 32) ^ apart, line);
}
// A bit for each lane that says so.
inline unsigned int __ballot_sync(unsigned int, int mine, int line = __builtin_LINE()) {
    unsigned int bits = mine ? 1u << threadIdx.x % 32 : 0;
    for (int apart = 1; apart < 32; apart *= 2) {
        bits |= __shfl_xor_sync(0xFFFFFFFFu, bits, apart, line);
    }
    return bits;
}

inline int __popc(unsigned int bits) { return __builtin_popcount(bits); }
inline int __clz(unsigned int bits) { return bits ? __builtin_clz(bits) : 32; }
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int bits) {
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<unsigned int>(both << bits % 32 >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int bits) {
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<unsigned int>(both >> bits % 32);
}
inline unsigned int __funnelshift_lc(unsigned int low, unsigned int high, unsigned int bits) {
    const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<unsigned int>(both << (bits < 32 ? bits : 32) >> 32);
}

extern "C" void* memcpy(void*, const void*, __SIZE_TYPE__) noexcept;

// Lanes and blocks run one after the other.
inline unsigned long long atomicAdd(unsigned long long* place, unsigned long long value) {
    const unsigned long long old = *place;
    *place = old + value;
    return old;
}

#define TCUSIM_UNPUBLISHED() tcusim::wait_for_status(__LINE__)

// --- Bits -------------------------------------------------------------------------------------

template <class To, class From>
inline To tcusim_bits(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    __builtin_memcpy(&result, &x, sizeof(result));
    return result;
}

inline unsigned int __float_as_uint(float x) { return tcusim_bits<unsigned int>(x); }
inline int __float_as_int(float x) { return tcusim_bits<int>(x); }
inline float __uint_as_float(unsigned int x) { return tcusim_bits<float>(x); }
inline float __int_as_float(int x) { return tcusim_bits<float>(x); }
inline long long __double_as_longlong(double x) { return tcusim_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return tcusim_bits<double>(x); }

// --- Additions, rounded to nearest even ---------------------------------------------------------

// A GPU's float arithmetic writes this NaN, whatever NaN came in.
inline float tcusim_canonical(float x) { return x == x ? x : __uint_as_float(0x7FFFFFFFu); }

inline float __fadd_rn(float x, float y) { return tcusim_canonical(x + y); }
// An invalid operation on doubles gives this NaN; a NaN that comes in is kept, made quiet.
constexpr uint64_t tcusim_invalid_f64 = 0xFFF8000000000000u;
inline double tcusim_quiet(double x) {
    return tcusim_bits<double>(tcusim_bits<uint64_t>(x) | 0x0008000000000000u);
}
inline float __fmul_rn(float x, float y) { return tcusim_canonical(x * y); }
inline float __fdiv_rn(float x, float y) { return tcusim_canonical(x / y); }
inline float __fsqrt_rn(float x) { return tcusim_canonical(__builtin_sqrtf(x)); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double rint(double x) { return __builtin_rint(x); }
inline float rint(float x) { return __builtin_rintf(x); }

// --- 16-bit floats ------------------------------------------------------------------------------

// Rounds to nearest even into a float of 1 + EXPONENT + FRACTION = 16 bits; NaN is 0x7FFF.
template <int EXPONENT, int FRACTION>
inline unsigned short tcusim_narrow(double x) {
    constexpr int bias = (1 << (EXPONENT - 1)) - 1;
    constexpr int emin = 1 - bias;
    const uint64_t bits = tcusim_bits<uint64_t>(x);
    const uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFull;
    const unsigned int sign = static_cast<unsigned int>(bits >> 63) << 15;
    if (magnitude > 0x7FF0000000000000ull) return 0x7FFF;
    const int exponent = static_cast<int>(magnitude >> 52) - 1023;
    if (exponent > bias) return sign | (((1u << EXPONENT) - 1) << FRACTION);
    // Below half of the smallest subnormal.
    if (exponent < emin - FRACTION - 1) return sign;
    const uint64_t significand = (magnitude & 0x000FFFFFFFFFFFFFull) | 0x0010000000000000ull;
    const bool subnormal = exponent < emin;
    const int cut = 52 - FRACTION + (subnormal ? emin - exponent : 0);
    uint64_t kept = significand >> cut;
    const uint64_t rest = significand & ((1ull << cut) - 1);
    const uint64_t tie = 1ull << (cut - 1);
    if (rest > tie || (rest == tie && (kept & 1))) ++kept;
    // The hidden bit adds 1 to the exponent field, and so does a carry, up to infinity.
    const unsigned int field = subnormal ? 0 : static_cast<unsigned int>(exponent + bias - 1);
    return static_cast<unsigned short>(sign | ((field << FRACTION) + static_cast<unsigned int>(kept)));
}

// Returns the value of a half, which a float holds exactly; NaN as a GPU's conversion writes it.
inline float tcusim_widen(unsigned short bits) {
    const unsigned int sign = static_cast<unsigned int>(bits & 0x8000u) << 16;
    const unsigned int field = (bits >> 10) & 0x1Fu;
    const unsigned int fraction = bits & 0x3FFu;
    if (field == 0x1F && fraction != 0) return __uint_as_float(0x7FFFFFFFu);
    if (field == 0x1F) return __uint_as_float(sign | 0x7F800000u);
    if (field == 0) {
        const float value = static_cast<float>(fraction) * 0x1p-24f;  // subnormal
        return sign ? -value : value;
    }
    return __uint_as_float(sign | ((field + 127 - 15) << 23) | (fraction << 13));
}
