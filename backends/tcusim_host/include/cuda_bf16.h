// `__nv_bfloat16` and its conversions, as far as emitted kernels use them.
#pragma once
#include "host_language.h"

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : bits(tcusim_narrow<8, 7>(x)) {}
    // A shift, which keeps the NaN.
    explicit operator float() const { return __uint_as_float(static_cast<unsigned int>(bits) << 16); }
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) {
    return tcusim_bits<__nv_bfloat16>(x);
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __double2bfloat16(double x) {
    return __ushort_as_bfloat16(tcusim_narrow<8, 7>(x));
}
inline float __bfloat162float(__nv_bfloat16 x) { return static_cast<float>(x); }

struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
