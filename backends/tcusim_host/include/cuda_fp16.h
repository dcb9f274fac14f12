// `half` and its conversions, as far as emitted kernels use them.
#pragma once
#include "host_language.h"

struct half {
    unsigned short bits;
    half() = default;
    half(float x) : bits(tcusim_narrow<5, 10>(x)) {}
    // Explicit, so that half + half, which CUDA rounds to half, is not a float sum here.
    explicit operator float() const { return tcusim_widen(bits); }
};
using __half = half;

inline half __ushort_as_half(unsigned short x) { return tcusim_bits<half>(x); }
inline unsigned short __half_as_ushort(half x) { return x.bits; }
inline half __float2half_rn(float x) { return half(x); }
inline half __float2half(float x) { return half(x); }
inline half __double2half(double x) { return __ushort_as_half(tcusim_narrow<5, 10>(x)); }
inline float __half2float(half x) { return static_cast<float>(x); }
// The sum of two halves needs rounding in float only where that rounding cannot change the half.
inline half __hadd_rn(half x, half y) { return half(__half2float(x) + __half2float(y)); }
