/* d = a.b + c for one output, by a rule of tcusim: the arithmetic of a matrix unit, bit by bit.
 *
 * Valid as C99, C++ and CUDA (nvcc, NVRTC). It needs no library, and computes with integers alone.
 * It is written from the descriptions in tcusim/machine/rules.py and not from the simulator's NumPy
 * code, so that the two check each other. A rule is data, which tcusim/machine/rule_row.py makes.
 * Where a tcusim_rule is a constant, a compiler leaves out the parts that the rule has not.
 */
#ifndef TCUSIM_RULE_H
#define TCUSIM_RULE_H

#if defined(__CUDACC_RTC__)
typedef short tcusim_i16;
typedef int tcusim_i32;
typedef long long tcusim_i64;
typedef unsigned long long tcusim_u64;
#else
#include <stdint.h>
typedef int16_t tcusim_i16;
typedef int32_t tcusim_i32;
typedef int64_t tcusim_i64;
typedef uint64_t tcusim_u64;
#endif
typedef unsigned char tcusim_u8;

#if defined(__CUDACC__)
#define TCUSIM_RULE_FUNCTION static __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define TCUSIM_RULE_FUNCTION static __inline__ __attribute__((unused))
#define TCUSIM_RULE_INLINED static __inline__ __attribute__((unused, always_inline))
#else
#define TCUSIM_RULE_FUNCTION static inline
#endif
/* For functions that are compiled once for each constant that they are given. */
#if !defined(TCUSIM_RULE_INLINED)
#define TCUSIM_RULE_INLINED TCUSIM_RULE_FUNCTION
#endif

/* --- A rule as data --------------------------------------------------------------------------- */

/* Of an exponent: there is none. */
#define TCUSIM_NONE (-1000000)
/* The exponent of a zero, below that of every number even if another is added. */
#define TCUSIM_OF_ZERO (-16000)
#define TCUSIM_IS_NOTHING(exponent) ((exponent) < -8000)

enum { TCUSIM_FLOAT, TCUSIM_SIGNED, TCUSIM_UNSIGNED };
enum { TCUSIM_FUSED, TCUSIM_SEQUENTIAL, TCUSIM_EXACT, TCUSIM_INTEGER };
/* Roundings; TCUSIM_STICKY is for the alignment alone. */
enum { TCUSIM_RNE, TCUSIM_RNA, TCUSIM_RZ, TCUSIM_RD, TCUSIM_ODD, TCUSIM_STICKY };
enum { TCUSIM_C_IN_SUM, TCUSIM_C_AFTER, TCUSIM_C_LATE };
enum { TCUSIM_OF_OPERANDS, TCUSIM_UPPER, TCUSIM_OF_PRODUCTS, TCUSIM_OF_SCALES };
enum { TCUSIM_CHAIN, TCUSIM_APART, TCUSIM_TREE };
enum { TCUSIM_WRAP, TCUSIM_SATURATE, TCUSIM_SYMMETRIC };
enum { TCUSIM_NO_SCALES, TCUSIM_UE8M0, TCUSIM_UE4M3 };

/* The most passes of a rule. */
#define TCUSIM_PASSES 16

/* An element type. An encoding is the low bits of an element: sign, exponent, fraction. A magnitude,
 * an encoding without its sign, is a number up to `largest`, or `infinity`, or else a NaN; `nan` is
 * one as well. Of an encoding that the type lacks every bit is set. */
typedef struct tcusim_format {
    tcusim_i32 kind;          /* TCUSIM_FLOAT, TCUSIM_SIGNED or TCUSIM_UNSIGNED */
    tcusim_i32 bytes;         /* of an element in memory: 1, 2, 4 or 8 */
    tcusim_i32 bits;          /* of an encoding */
    tcusim_i32 fraction_bits; /* of an encoding */
    tcusim_i32 bias;          /* of the exponent field */
    tcusim_i32 emin;          /* least exponent of a normal number; above 1 - bias in wider elements */
    tcusim_i32 aligned_emin;  /* least exponent in an alignment: emin, or that of registers */
    tcusim_i32 unread;        /* low fraction bits that the type has not, and nobody reads */
    tcusim_i32 flushed;       /* whether the bits of subnormal numbers are zeros */
    tcusim_u64 largest, infinity, nan;
} tcusim_format;

/* The parameters of a rule, named as in rules.py. Counts that it has not are 0. */
typedef struct tcusim_rule {
    tcusim_format a, b, c; /* c: of the accumulator; its nan is the one that the unit writes */
    tcusim_i32 kind;       /* TCUSIM_FUSED, TCUSIM_SEQUENTIAL, TCUSIM_EXACT or TCUSIM_INTEGER */
    tcusim_i32 keeps_nan;  /* whether a NaN that is given keeps its bits: f64 alone */
    tcusim_i32 length;     /* 0: all products */
    tcusim_i32 sums;
    tcusim_i32 output; /* rounding of a step, or of each operation */
    tcusim_i32 flush_inputs, flush_outputs;
    /* Fused steps. */
    tcusim_i32 fraction_bits;
    tcusim_i32 output_fraction_bits;
    tcusim_i32 alignment;
    tcusim_i32 c_joins; /* TCUSIM_C_IN_SUM, TCUSIM_C_AFTER or TCUSIM_C_LATE */
    tcusim_i32 late_sum_bits, late_c_bits, late_alignment;
    tcusim_i32 late_floor; /* or TCUSIM_NONE */
    tcusim_i32 late_reach;
    tcusim_i32 exponent_floor; /* or TCUSIM_NONE */
    tcusim_i32 register_halves;
    tcusim_i32 exponents; /* TCUSIM_OF_OPERANDS, TCUSIM_UPPER, TCUSIM_OF_PRODUCTS, TCUSIM_OF_SCALES */
    tcusim_i32 addition;
    tcusim_i32 product_overflows;
    tcusim_i32 signed_zeros;
    tcusim_i32 presum;
    tcusim_i32 scale_type; /* TCUSIM_NO_SCALES, TCUSIM_UE8M0 or TCUSIM_UE4M3 */
    tcusim_i32 block;      /* products that share a scale */
    /* Sequential sums. */
    tcusim_i32 order; /* TCUSIM_CHAIN, TCUSIM_APART or TCUSIM_TREE */
    tcusim_i32 has_sum_type;
    tcusim_format sum_type; /* of the operations before c is added, if it has one */
    /* Integers. */
    tcusim_i32 sum_bits;
    tcusim_i32 overflow; /* TCUSIM_WRAP, TCUSIM_SATURATE or TCUSIM_SYMMETRIC */
    /* Passes over the operands' bits: those of the significand, or of the magnitude, in each. */
    tcusim_i32 passes;
    tcusim_u64 pass_a[TCUSIM_PASSES], pass_b[TCUSIM_PASSES];
} tcusim_rule;

/* --- Numbers ---------------------------------------------------------------------------------- */

enum { TCUSIM_FINITE, TCUSIM_INFINITE, TCUSIM_NAN };

/* A decoded element: significand * 2^unit, and the exponent that an alignment takes. Of an integer
 * the significand is its two's complement, of a NaN it is the bits. */
typedef struct tcusim_number {
    tcusim_u64 significand;
    tcusim_i16 unit, exponent;
    tcusim_u8 sign, what;
} tcusim_number;

/* A row of a or a column of b: elements in memory, or decoded ones where `numbers` is not null. */
typedef struct tcusim_operand {
    const tcusim_format* format;
    tcusim_i32 flush;
    const void* elements;
    const tcusim_number* numbers;
    tcusim_i64 stride;
    /* Its scales, one for each block of products. */
    const tcusim_u8* scales;
    tcusim_i64 scale_stride;
    /* The bits of a pass; 0 for all. */
    tcusim_u64 mask;
} tcusim_operand;

TCUSIM_RULE_INLINED tcusim_i32 tcusim_larger(tcusim_i32 x, tcusim_i32 y) { return x > y ? x : y; }
TCUSIM_RULE_FUNCTION tcusim_i32 tcusim_less(tcusim_i32 x, tcusim_i32 y) { return x < y ? x : y; }

/* The ones below a bit: 0 to 63. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_below(tcusim_i32 bit) { return ((tcusim_u64)1 << bit) - 1; }

/* The number of the leading bit of a number above 0. */
TCUSIM_RULE_INLINED tcusim_i32 tcusim_leading(tcusim_u64 x) {
#if defined(__CUDA_ARCH__)
    return 63 - __clzll((long long)x);
#elif defined(__GNUC__)
    return 63 - __builtin_clzll(x);
#else
    tcusim_i32 bit = 0, step;
    for (step = 32; step; step /= 2) {
        if (x >> step) {
            x >>= step;
            bit += step;
        }
    }
    return bit;
#endif
}

TCUSIM_RULE_INLINED tcusim_u64 tcusim_element(const void* elements, tcusim_i64 at, tcusim_i32 bytes) {
#if defined(__CUDACC__)
    switch (bytes) {
        case 1: return ((const unsigned char*)elements)[at];
        case 2: return ((const unsigned short*)elements)[at];
        case 4: return ((const unsigned int*)elements)[at];
        default: return ((const unsigned long long*)elements)[at];
    }
#else
    /* By bytes: the type of the elements is the caller's affair. */
    const unsigned short one = 1;
    const int little = *(const unsigned char*)&one;
    const unsigned char* from = (const unsigned char*)elements + at * bytes;
    tcusim_u64 result = 0;
    switch (bytes) {
#define TCUSIM_BYTE(I, N) ((tcusim_u64)from[I] << 8 * (little ? I : N - 1 - I))
        case 1: return from[0];
        case 2: return TCUSIM_BYTE(0, 2) | TCUSIM_BYTE(1, 2);
        case 4: return TCUSIM_BYTE(0, 4) | TCUSIM_BYTE(1, 4) | TCUSIM_BYTE(2, 4) | TCUSIM_BYTE(3, 4);
        default:
            result = TCUSIM_BYTE(0, 8) | TCUSIM_BYTE(1, 8) | TCUSIM_BYTE(2, 8) | TCUSIM_BYTE(3, 8);
            return result | TCUSIM_BYTE(4, 8) | TCUSIM_BYTE(5, 8) | TCUSIM_BYTE(6, 8) | TCUSIM_BYTE(7, 8);
#undef TCUSIM_BYTE
    }
#endif
}

/* Decodes an element; flush: whether a subnormal number counts as a zero of its sign. */
TCUSIM_RULE_FUNCTION tcusim_number tcusim_decode(const tcusim_format* f, tcusim_u64 bits, tcusim_i32 flush) {
    const tcusim_u64 top = (tcusim_u64)1 << (f->bits - 1);
    const tcusim_i32 fraction_bits = f->fraction_bits - f->unread;
    tcusim_number x;
    tcusim_u64 magnitude, field;
    tcusim_i32 unit, exponent;
    bits &= top | (top - 1);
    x.unit = 0;
    x.exponent = TCUSIM_OF_ZERO;
    x.sign = 0;
    x.what = TCUSIM_FINITE;
    if (f->kind != TCUSIM_FLOAT) {
        x.significand = f->kind == TCUSIM_SIGNED ? (bits ^ top) - top : bits;
        return x;
    }
    magnitude = bits & (top - 1);
    x.sign = (tcusim_u8)(bits != magnitude);
    x.significand = bits;
    if ((magnitude > f->largest && magnitude != f->infinity) || bits == f->nan) {
        x.what = TCUSIM_NAN;
        return x;
    }
    if (magnitude == f->infinity) {
        x.what = TCUSIM_INFINITE;
        return x;
    }
    field = magnitude >> f->fraction_bits;
    x.significand = (magnitude & tcusim_below(f->fraction_bits)) >> f->unread;
    unit = (tcusim_i32)(field ? field : 1) - f->bias - fraction_bits;
    if (field) x.significand |= (tcusim_u64)1 << fraction_bits;
    if (x.significand == 0) return x;
    exponent = unit + tcusim_leading(x.significand);
    if ((flush || f->flushed) && exponent < f->emin) {
        x.significand = 0;
        return x;
    }
    x.unit = (tcusim_i16)unit;
    x.exponent = (tcusim_i16)tcusim_larger(exponent, f->aligned_emin);
    return x;
}

/* The part of a number that a pass takes. */
TCUSIM_RULE_FUNCTION tcusim_number tcusim_masked(const tcusim_format* f, tcusim_number part, tcusim_u64 mask) {
    if (f->kind != TCUSIM_FLOAT) {
        const tcusim_i64 whole = (tcusim_i64)part.significand;
        const tcusim_u64 magnitude = (whole < 0 ? (tcusim_u64)-whole : (tcusim_u64)whole) & mask;
        part.significand = whole < 0 ? ~magnitude + 1 : magnitude;
        return part;
    }
    if (part.what == TCUSIM_FINITE && part.significand) {
        tcusim_i32 exponent = tcusim_larger(part.unit + tcusim_leading(part.significand), f->emin);
        /* The bits count from the type's own last place, which a subnormal in a wider element has not. */
        part.significand &= mask << (exponent - (f->fraction_bits - f->unread) - part.unit);
        part.exponent = TCUSIM_OF_ZERO;
        if (part.significand == 0) return part;
        exponent = part.unit + tcusim_leading(part.significand);
        part.exponent = (tcusim_i16)tcusim_larger(exponent, f->aligned_emin);
    }
    return part;
}

/* Returns an element, or the part of it that a pass takes. */
TCUSIM_RULE_INLINED tcusim_number tcusim_at(const tcusim_operand* x, tcusim_i32 i) {
    tcusim_number part;
    if (x->numbers) {
        part = x->numbers[i * x->stride];
    } else {
        part = tcusim_decode(x->format, tcusim_element(x->elements, i * x->stride, x->format->bytes), x->flush);
    }
    return x->mask ? tcusim_masked(x->format, part, x->mask) : part;
}

/* Returns an operand from a product on, of which a pass takes these bits. */
TCUSIM_RULE_FUNCTION tcusim_operand tcusim_part(const tcusim_operand* x, tcusim_i32 first, tcusim_u64 mask) {
    tcusim_operand part = *x;
    if (x->numbers) {
        part.numbers += first * x->stride;
    } else {
        part.elements = (const unsigned char*)x->elements + first * x->stride * x->format->bytes;
    }
    part.mask = mask;
    return part;
}

/* --- Infinities and NaN ------------------------------------------------------------------------ */

enum { TCUSIM_PLUS = 1, TCUSIM_MINUS = 2, TCUSIM_INVALID = 4 };

/* What a number says in a sum beside which no finite one counts; 0 for a finite one. */
TCUSIM_RULE_FUNCTION tcusim_i32 tcusim_special(tcusim_number x) {
    if (x.what == TCUSIM_NAN) return TCUSIM_INVALID;
    if (x.what == TCUSIM_FINITE) return 0;
    return x.sign ? TCUSIM_MINUS : TCUSIM_PLUS;
}

TCUSIM_RULE_FUNCTION tcusim_i32 tcusim_special_product(tcusim_number x, tcusim_number y) {
    if (x.what == TCUSIM_FINITE && y.what == TCUSIM_FINITE) return 0;
    if (x.what == TCUSIM_NAN || y.what == TCUSIM_NAN) return TCUSIM_INVALID;
    if (x.significand == 0 || y.significand == 0) return TCUSIM_INVALID;
    return x.sign != y.sign ? TCUSIM_MINUS : TCUSIM_PLUS;
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_signed(const tcusim_format* f, tcusim_i32 sign, tcusim_u64 magnitude) {
    return magnitude | (sign ? (tcusim_u64)1 << (f->bits - 1) : 0);
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_special_sum(const tcusim_format* f, tcusim_i32 special) {
    if (special != TCUSIM_PLUS && special != TCUSIM_MINUS) return f->nan;
    return tcusim_signed(f, special == TCUSIM_MINUS, f->infinity);
}

/* --- Rounding --------------------------------------------------------------------------------- */

/* Rounds magnitude / 2^cut to an integer; the magnitude is below 2^63. *lost: whether there is a
 * little more of the magnitude; becomes whether anything was lost. */
TCUSIM_RULE_INLINED tcusim_u64 tcusim_cut(
    tcusim_u64 magnitude, tcusim_i32 cut, tcusim_i32 sign, tcusim_i32 rounding, tcusim_i32* lost
) {
    /* Cuts are hard to foresee: no branch depends on them, save for the rare ones of all bits. */
    const tcusim_i32 up = tcusim_larger(-cut, 0), down = tcusim_larger(cut, 0);
    const tcusim_u64 moved = cut > 63 ? magnitude != 0 : magnitude << up;
    const tcusim_i32 shift = cut > 63 ? 2 : down;
    const tcusim_u64 kept = moved >> shift;
    const tcusim_u64 half = moved << 1 >> shift & 1;
    const tcusim_i32 inexact = *lost | (kept << shift != moved);
    switch (rounding) {
        case TCUSIM_RNE: {
            const tcusim_u64 rest = (moved << 1 & (((tcusim_u64)1 << shift) - 1)) != 0;
            const tcusim_u64 more = rest | (tcusim_u64)*lost | (kept & 1);
            *lost = inexact;
            return kept + (half & more);
        }
        case TCUSIM_RNA: *lost = inexact; return kept + half;
        case TCUSIM_RD: *lost = inexact; return kept + (tcusim_u64)(sign & inexact);
        case TCUSIM_ODD: *lost = inexact; return kept | (tcusim_u64)inexact;
        default: *lost = inexact; return kept;
    }
}

/* Returns a number of 2^-cut as an integer, rounded by an alignment; *lost as well if it lost a bit. */
TCUSIM_RULE_INLINED tcusim_i64 tcusim_aligned(
    tcusim_i32 sign, tcusim_u64 magnitude, tcusim_i32 cut, tcusim_i32 alignment, tcusim_i32* lost
) {
    const tcusim_u64 flip = 0 - (tcusim_u64)sign;
    tcusim_i32 here = 0;
    const tcusim_u64 kept = tcusim_cut(magnitude, cut, sign, alignment, &here);
    *lost |= here;
    return (tcusim_i64)((kept ^ flip) - flip);
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_magnitude(tcusim_i64 x) {
    return x < 0 ? 0 - (tcusim_u64)x : (tcusim_u64)x;
}

/* Encodes a magnitude above 0 times 2^unit, rounded once to so many fraction bits. lost: as of
 * tcusim_cut. ieee: whether an overflow depends on the rounding; else it is infinite. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_round(
    const tcusim_format* f,
    tcusim_i32 sign,
    tcusim_u64 magnitude,
    tcusim_i32 unit,
    tcusim_i32 lost,
    tcusim_i32 fraction_bits,
    tcusim_i32 rounding,
    tcusim_i32 ieee
) {
    const tcusim_i32 leading = tcusim_leading(magnitude) + unit;
    const tcusim_i32 exponent = tcusim_larger(leading, f->emin);
    const tcusim_i32 emax = (tcusim_i32)(f->largest >> f->fraction_bits) - f->bias;
    const tcusim_i32 spare = f->fraction_bits - fraction_bits;
    tcusim_u64 result = f->largest + 1;
    if (exponent <= emax) {
        result = tcusim_cut(magnitude, exponent - fraction_bits - unit, sign, rounding, &lost) << spare;
        /* The hidden bit of a normal number adds 1 to the field, and so does a carry. */
        result += (tcusim_u64)(exponent - f->emin) << f->fraction_bits;
    }
    if (result > f->largest) {
        const tcusim_i32 directed = rounding == TCUSIM_RZ || rounding == TCUSIM_RD;
        const tcusim_i32 away = !directed || (rounding == TCUSIM_RD && sign);
        result = !ieee || away ? f->infinity : f->largest;
    }
    return tcusim_signed(f, sign, result);
}

/* Whether an encoding is that of a zero or of a subnormal number. */
TCUSIM_RULE_FUNCTION tcusim_i32 tcusim_is_small(const tcusim_format* f, tcusim_u64 bits) {
    return (bits & tcusim_below(f->bits - 1)) >> f->fraction_bits == 0;
}

/* --- Sums of two terms, rounded once ----------------------------------------------------------- */

/* (high * 2^64 + low) * 2^unit; or an infinity or a NaN. */
typedef struct tcusim_term {
    tcusim_u64 high, low;
    tcusim_i32 unit, sign, special;
} tcusim_term;

TCUSIM_RULE_FUNCTION tcusim_term tcusim_term_of(tcusim_number x) {
    tcusim_term term;
    term.high = 0;
    term.low = x.significand;
    term.unit = x.unit;
    term.sign = x.sign;
    term.special = tcusim_special(x);
    return term;
}

TCUSIM_RULE_FUNCTION tcusim_term tcusim_product(const tcusim_operand* a, const tcusim_operand* b, tcusim_i32 i) {
    const tcusim_number x = tcusim_at(a, i), y = tcusim_at(b, i);
    const tcusim_u64 half = 0xFFFFFFFFu;
    const tcusim_u64 low = (x.significand & half) * (y.significand & half);
    const tcusim_u64 one = (x.significand >> 32) * (y.significand & half);
    const tcusim_u64 two = (x.significand & half) * (y.significand >> 32);
    const tcusim_u64 middle = (low >> 32) + (one & half) + (two & half);
    tcusim_term term;
    term.high = (x.significand >> 32) * (y.significand >> 32) + (one >> 32) + (two >> 32) + (middle >> 32);
    term.low = middle << 32 | (low & half);
    term.unit = x.unit + y.unit;
    term.sign = x.sign ^ y.sign;
    term.special = tcusim_special_product(x, y);
    return term;
}

/* Moves the leading bit of a term above 0 to bit 126; returns its exponent. */
TCUSIM_RULE_FUNCTION tcusim_i32 tcusim_normalise(tcusim_term* x) {
    const tcusim_i32 leading = x->high ? 64 + tcusim_leading(x->high) : tcusim_leading(x->low);
    tcusim_i32 shift = 126 - leading;
    x->unit -= shift;
    if (shift < 0) {
        /* No sum of two is so large. */
        x->low = x->low >> 1 | x->high << 63;
        x->high >>= 1;
        return x->unit + 126;
    }
    if (shift >= 64) {
        x->high = x->low;
        x->low = 0;
        shift -= 64;
    }
    if (shift) {
        x->high = x->high << shift | x->low >> (64 - shift);
        x->low <<= shift;
    }
    return x->unit + 126;
}

/* Rounds x + y to the accumulator's type. ieee: zeros and overflows as in IEEE 754 for a rounding;
 * else as in rounding to nearest. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_add(
    const tcusim_format* f, tcusim_term x, tcusim_term y, tcusim_i32 rounding, tcusim_i32 ieee
) {
    const tcusim_i32 down = ieee && rounding == TCUSIM_RD;
    const tcusim_i32 zero_sign = down ? x.sign | y.sign : x.sign & y.sign;
    const tcusim_i32 no_x = !(x.high | x.low), no_y = !(y.high | y.low);
    if (x.special | y.special) return tcusim_special_sum(f, x.special | y.special);
    if (no_x && no_y) return tcusim_signed(f, zero_sign, 0);
    if (no_x) x = y;
    if (no_x || no_y) {
        tcusim_normalise(&x);
    } else {
        const tcusim_i32 apart = tcusim_normalise(&x) - tcusim_normalise(&y);
        tcusim_i32 shift = apart < 0 ? -apart : apart;
        tcusim_u64 jam = 0;
        if (apart < 0) {
            const tcusim_term larger = y;
            y = x;
            x = larger;
        }
        /* At most 106 bits of a term count: what is lost below is marked in the last bit. */
        if (shift >= 128) {
            y.high = 0;
            y.low = 1;
        } else {
            if (shift >= 64) {
                jam = y.low != 0;
                y.low = y.high;
                y.high = 0;
                shift -= 64;
            }
            if (shift) {
                jam |= (y.low & tcusim_below(shift)) != 0;
                y.low = y.low >> shift | y.high << (64 - shift);
                y.high >>= shift;
            }
            y.low |= jam;
        }
        if (x.sign == y.sign) {
            const tcusim_u64 low = x.low + y.low;
            x.high += y.high + (low < y.low);
            x.low = low;
        } else {
            if (x.high < y.high || (x.high == y.high && x.low < y.low)) {
                const tcusim_term larger = y;
                y.high = x.high;
                y.low = x.low;
                x.high = larger.high;
                x.low = larger.low;
                x.sign = larger.sign;
            }
            x.high -= y.high + (x.low < y.low);
            x.low -= y.low;
            if (!(x.high | x.low)) return tcusim_signed(f, down, 0);
        }
        tcusim_normalise(&x);
    }
    return tcusim_round(f, x.sign, x.high, x.unit + 64, x.low != 0, f->fraction_bits, rounding, ieee);
}

/* --- Fused steps ------------------------------------------------------------------------------ */

/* A sum of terms: whole * 2^unit, aligned to 2^top, which is TCUSIM_NONE if all terms are zero.
 * lost: whether a term lost a bit, and that counts. special, beyond: what infinities and NaN say, and products that
 * are beyond the accumulator's range. */
typedef struct tcusim_sum {
    tcusim_i64 whole;
    tcusim_i32 unit, top, lost, special, beyond;
} tcusim_sum;

/* The products first, first + step, ... of a fused step that ends before `end`: all of them, or those
 * in the lower (half 0) or upper (1) halves of registers. */
typedef struct tcusim_range {
    tcusim_i32 first, end, step, half;
} tcusim_range;

TCUSIM_RULE_INLINED tcusim_i32 tcusim_has(tcusim_range r, tcusim_i32 i) {
    return r.half < 0 || ((i - r.first) >> 1 & 1) == r.half;
}

/* A product of finite numbers as significand * 2^unit, with the exponent that the alignment takes. */
typedef struct tcusim_pair {
    tcusim_u64 significand;
    tcusim_i32 unit, exponent, sign;
} tcusim_pair;

TCUSIM_RULE_INLINED tcusim_pair tcusim_pair_of(tcusim_i32 exponents, tcusim_number x, tcusim_number y) {
    tcusim_pair p;
    p.significand = x.significand * y.significand;
    p.exponent = x.exponent + y.exponent;
    p.unit = x.unit + y.unit;
    p.sign = x.sign ^ y.sign;
    if (exponents == TCUSIM_UPPER) ++p.exponent;
    if (exponents == TCUSIM_OF_PRODUCTS && p.significand) p.exponent = p.unit + tcusim_leading(p.significand);
    return p;
}

/* Returns an element; decoded: whether it is known that it lies there as a number, all of it. */
TCUSIM_RULE_INLINED tcusim_number tcusim_get(const tcusim_operand* x, tcusim_i32 i, tcusim_i32 decoded) {
    return decoded ? x->numbers[i * x->stride] : tcusim_at(x, i);
}

/* Sums some products and c, if there is one, each cut to bits below the largest exponent. */
TCUSIM_RULE_INLINED tcusim_sum tcusim_sum_as(
    const tcusim_rule* rule, const tcusim_operand* a, const tcusim_operand* b, tcusim_range r, const tcusim_number* c,
    tcusim_i32 alignment, tcusim_i32 exponents, tcusim_i32 decoded
) {
    tcusim_sum sum;
    tcusim_i64 whole = 0;
    tcusim_i32 i, special = 0, top = rule->exponent_floor, lost = 0;
    sum.whole = 0;
    sum.lost = 0;
    sum.special = 0;
    sum.beyond = 0;
    if (c) {
        sum.special = tcusim_special(*c);
        top = tcusim_larger(top, c->exponent);
    }
    for (i = r.first; i < r.end; i += r.step) {
        if (tcusim_has(r, i)) {
            const tcusim_number x = tcusim_get(a, i, decoded), y = tcusim_get(b, i, decoded);
            special |= x.what | y.what;
            top = tcusim_larger(top, tcusim_pair_of(exponents, x, y).exponent);
        }
    }
    for (i = r.first; special && i < r.end; i += r.step) {
        if (tcusim_has(r, i)) sum.special |= tcusim_special_product(tcusim_get(a, i, decoded), tcusim_get(b, i, decoded));
    }
    sum.top = top;
    sum.unit = top - rule->fraction_bits;
    if (sum.special || TCUSIM_IS_NOTHING(sum.top)) return sum;
    if (rule->product_overflows) {
        const tcusim_i32 emax = (tcusim_i32)(rule->c.largest >> rule->c.fraction_bits) - rule->c.bias;
        for (i = r.first; i < r.end; i += r.step) {
            if (tcusim_has(r, i)) {
                const tcusim_pair p = tcusim_pair_of(exponents, tcusim_get(a, i, decoded), tcusim_get(b, i, decoded));
                if (p.significand == 0 || p.unit + tcusim_leading(p.significand) <= emax) continue;
                sum.beyond |= p.sign ? TCUSIM_MINUS : TCUSIM_PLUS;
            }
        }
    }
    if (c) whole = tcusim_aligned(c->sign, c->significand, sum.unit - c->unit, alignment, &lost);
    for (i = r.first; i < r.end; i += r.step) {
        if (tcusim_has(r, i)) {
            const tcusim_pair p = tcusim_pair_of(exponents, tcusim_get(a, i, decoded), tcusim_get(b, i, decoded));
            whole += tcusim_aligned(p.sign, p.significand, sum.unit - p.unit, alignment, &lost);
        }
    }
    sum.whole = whole;
    /* It counts with a sticky bit alone. */
    sum.lost = alignment == TCUSIM_STICKY && lost;
    return sum;
}

TCUSIM_RULE_FUNCTION tcusim_sum tcusim_sum_of(
    const tcusim_rule* rule, const tcusim_operand* a, const tcusim_operand* b, tcusim_range r, const tcusim_number* c
) {
#if !defined(__CUDACC__)
    /* Most units', of whole tiles. */
    if (r.half < 0 && a->numbers && b->numbers && !(a->mask | b->mask) && rule->alignment == TCUSIM_RZ &&
        rule->exponents == TCUSIM_OF_OPERANDS) {
        r.half = -1;
        return tcusim_sum_as(rule, a, b, r, c, TCUSIM_RZ, TCUSIM_OF_OPERANDS, 1);
    }
#endif
    return tcusim_sum_as(rule, a, b, r, c, rule->alignment, rule->exponents, 0);
}

/* The scale of a product, 1 without an array of scales. */
TCUSIM_RULE_FUNCTION tcusim_number tcusim_scale_of(const tcusim_rule* rule, const tcusim_operand* x, tcusim_i32 i) {
    const tcusim_i32 one = rule->scale_type == TCUSIM_UE4M3 ? 7 << 3 : 127;
    const tcusim_i32 bits = x->scales ? x->scales[i / rule->block * x->scale_stride] : one;
    tcusim_i32 exponent = bits - 127;
    tcusim_number scale;
    scale.sign = 0;
    scale.significand = 8;
    scale.what = (tcusim_u8)(bits == 0xFF ? TCUSIM_NAN : TCUSIM_FINITE);
    if (rule->scale_type == TCUSIM_UE4M3) {
        const tcusim_i32 field = bits >> 3 & 15;
        exponent = (field ? field : 1) - 7;
        scale.significand = (tcusim_u64)((field ? 8 : 0) + (bits & 7));
        scale.what = (tcusim_u8)((bits & 0x7F) == 0x7F ? TCUSIM_NAN : TCUSIM_FINITE);
    }
    scale.unit = (tcusim_i16)(exponent - 3);
    scale.exponent = (tcusim_i16)exponent;
    return scale;
}

/* Sums c and products with block scales: groups of `presum` products are summed exactly, scaled and
 * cut. pass 0 finds the largest exponent, pass 1 sums. */
TCUSIM_RULE_FUNCTION tcusim_sum tcusim_scaled_sum(
    const tcusim_rule* rule, const tcusim_operand* a, const tcusim_operand* b, tcusim_range r, const tcusim_number* c
) {
    const tcusim_i32 lowest = rule->a.emin - rule->a.fraction_bits + rule->a.unread + rule->b.emin -
                              rule->b.fraction_bits + rule->b.unread;
    tcusim_sum sum;
    tcusim_i32 first, i, pass, lost = 0;
    sum.whole = 0;
    sum.lost = 0;
    sum.special = tcusim_special(*c);
    sum.beyond = 0;
    sum.top = rule->exponent_floor;
    sum.top = tcusim_larger(sum.top, c->exponent);
    for (pass = 0; pass < 2; ++pass) {
        sum.unit = sum.top - rule->fraction_bits;
        if (pass) {
            const tcusim_i32 cut = sum.unit - c->unit;
            if (sum.special || TCUSIM_IS_NOTHING(sum.top)) return sum;
            sum.whole = tcusim_aligned(c->sign, c->significand, cut, rule->alignment, &lost);
        }
        for (first = r.first; first < r.end; first += rule->presum) {
            const tcusim_number x = tcusim_scale_of(rule, a, first), y = tcusim_scale_of(rule, b, first);
            const tcusim_u64 scale = x.significand * y.significand;
            tcusim_i32 unit = x.unit + y.unit, exponent = x.exponent + y.exponent, special = 0;
            tcusim_i64 group = 0;
            for (i = first; i < tcusim_less(first + rule->presum, r.end); ++i) {
                const tcusim_number u = tcusim_at(a, i), v = tcusim_at(b, i);
                const tcusim_pair p = tcusim_pair_of(rule->exponents, u, v);
                /* One product has a unit of its own; several are counted in the least of the type. */
                const tcusim_i32 raised = rule->presum == 1 ? 0 : p.unit - lowest;
                const tcusim_i64 whole =
                    (tcusim_i64)(raised < 0 ? p.significand >> -raised : p.significand << raised);
                special |= tcusim_special_product(u, v);
                if (special) continue;
                group += p.sign ? -whole : whole;
                if (rule->presum == 1) unit += p.unit;
                if (rule->exponents == TCUSIM_OF_OPERANDS) exponent += p.exponent;
            }
            if (rule->presum != 1) unit += lowest;
            if (special && scale == 0) special = TCUSIM_INVALID;
            if (x.what | y.what) special = TCUSIM_INVALID;
            sum.special |= special;
            if (special || scale == 0 || (rule->exponents == TCUSIM_OF_OPERANDS && group == 0)) continue;
            if (pass == 0) {
                sum.top = tcusim_larger(sum.top, exponent);
            } else {
                const tcusim_u64 magnitude = tcusim_magnitude(group) * scale;
                sum.whole += tcusim_aligned(group < 0, magnitude, sum.unit - unit, rule->alignment, &lost);
            }
        }
    }
    return sum;
}

/* Sums products i modulo `sums` apart, then cuts the sums to the largest of their exponents. */
TCUSIM_RULE_FUNCTION tcusim_sum tcusim_sum_of_sums(
    const tcusim_rule* rule, const tcusim_operand* a, const tcusim_operand* b, tcusim_range r, const tcusim_number* c
) {
    const tcusim_i32 alignment = rule->c_joins == TCUSIM_C_LATE ? rule->late_alignment : rule->alignment;
    const tcusim_i32 sums = tcusim_less(rule->sums, r.end - r.first);
    tcusim_sum total;
    tcusim_i32 pass, i, lost = 0;
    total.whole = 0;
    total.lost = 0;
    total.special = 0;
    total.beyond = 0;
    total.top = TCUSIM_NONE;
    total.unit = TCUSIM_NONE;
    /* Sums are not kept: there may be many. */
    for (pass = 0; pass < 2; ++pass) {
        total.unit = total.top - rule->fraction_bits;
        for (i = 0; i < sums; ++i) {
            tcusim_range part = r;
            tcusim_sum sum;
            part.first = r.first + i;
            part.step = rule->sums;
            sum = tcusim_sum_of(rule, a, b, part, i == 0 ? c : 0);
            if (pass == 0) {
                total.top = tcusim_larger(total.top, sum.top);
                total.special |= sum.special;
                total.beyond |= sum.beyond;
            } else if (sum.whole) {
                const tcusim_u64 magnitude = tcusim_magnitude(sum.whole);
                total.whole += tcusim_aligned(sum.whole < 0, magnitude, total.unit - sum.unit, alignment, &lost);
            }
        }
    }
    return total;
}

/* Adds c to the sum of products, each cut to bits of its own below the larger of two exponents. */
TCUSIM_RULE_FUNCTION tcusim_sum tcusim_join_late(const tcusim_rule* rule, tcusim_sum sum, tcusim_number c) {
    const tcusim_i32 bits = tcusim_larger(rule->late_sum_bits, rule->late_c_bits);
    tcusim_sum total = sum;
    tcusim_i32 lost = 0;
    total.special |= tcusim_special(c);
    if (total.special) return total;
    if (rule->late_reach && c.exponent + rule->late_reach < sum.top) c.significand = 0;
    total.top = tcusim_larger(total.top, c.exponent);
    total.top = tcusim_larger(total.top, rule->late_floor);
    total.unit = total.top - bits;
    total.whole = 0;
    if (sum.whole) {
        const tcusim_i32 cut = total.top - rule->late_sum_bits - sum.unit;
        total.whole = tcusim_aligned(sum.whole < 0, tcusim_magnitude(sum.whole), cut, rule->late_alignment, &lost) *
                      ((tcusim_i64)1 << (bits - rule->late_sum_bits));
    }
    if (c.significand) {
        const tcusim_i32 cut = total.top - rule->late_c_bits - c.unit;
        total.whole += tcusim_aligned(c.sign, c.significand, cut, rule->late_alignment, &lost) *
                       ((tcusim_i64)1 << (bits - rule->late_c_bits));
    }
    return total;
}

/* Does one fused step; c: as encoded, or zero where it is added after. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_fused_step(
    const tcusim_rule* rule, const tcusim_operand* a, const tcusim_operand* b, tcusim_range r, tcusim_u64 c
) {
    const tcusim_format* f = &rule->c;
    const tcusim_number addend = tcusim_decode(f, c, rule->flush_inputs);
    const tcusim_number* joined = rule->c_joins == TCUSIM_C_LATE ? 0 : &addend;
    tcusim_sum sum;
    tcusim_u64 d;
    tcusim_i32 sign;
    if (rule->block) {
        sum = tcusim_scaled_sum(rule, a, b, r, &addend);
    } else if (rule->sums > 1) {
        sum = tcusim_sum_of_sums(rule, a, b, r, joined);
    } else {
        sum = tcusim_sum_of(rule, a, b, r, joined);
    }
    if (rule->c_joins == TCUSIM_C_LATE) sum = tcusim_join_late(rule, sum, addend);
    if (sum.special) return tcusim_special_sum(f, sum.special);
    if (sum.beyond) return tcusim_special_sum(f, sum.beyond);
    if (sum.whole == 0) return 0;
    sign = sum.whole < 0;
    d = tcusim_round(
        f, sign, tcusim_magnitude(sum.whole), sum.unit, sum.lost,
        rule->output_fraction_bits, rule->output, 0
    );
    if (rule->flush_outputs && tcusim_is_small(f, d)) d = tcusim_signed(f, sign, 0);
    if (!rule->signed_zeros && d == tcusim_signed(f, 1, 0)) d = 0;
    return d;
}

/* Adds c to a rounded sum in the accumulator's type. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_add_after(const tcusim_rule* rule, tcusim_u64 d, tcusim_u64 c) {
    const tcusim_format* f = &rule->c;
    const tcusim_number x = tcusim_decode(f, d, 0), y = tcusim_decode(f, c, rule->flush_inputs);
    tcusim_term addend = tcusim_term_of(y);
    /* A flushed c is +0. */
    if (rule->flush_inputs && y.what == TCUSIM_FINITE && y.significand == 0) addend.sign = 0;
    d = tcusim_add(f, tcusim_term_of(x), addend, rule->addition, 0);
    return rule->flush_outputs && tcusim_is_small(f, d) ? 0 : d;
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_fused_dot(
    const tcusim_rule* rule, tcusim_i32 k, const tcusim_operand* a, const tcusim_operand* b, tcusim_u64 c
) {
    const tcusim_i32 halves = rule->register_halves ? 2 : 1;
    const tcusim_i32 length = rule->length * halves;
    tcusim_i32 half;
    tcusim_range r;
    r.step = 1;
    for (r.first = 0; r.first < k; r.first += length) {
        tcusim_u64 d = rule->c_joins == TCUSIM_C_AFTER ? 0 : c;
        r.end = length < k - r.first ? r.first + length : k;
        for (half = 0; half < halves; ++half) {
            r.half = rule->register_halves ? half : -1;
            /* The second half may be empty. */
            if (half && r.end - r.first <= 2) break;
            d = tcusim_fused_step(rule, a, b, r, d);
        }
        c = rule->c_joins == TCUSIM_C_AFTER ? tcusim_add_after(rule, d, c) : d;
    }
    return tcusim_decode(&rule->c, c, 0).what == TCUSIM_NAN ? rule->c.nan : c;
}

/* --- Sequential sums -------------------------------------------------------------------------- */

/* Adds a term to an encoding of a type, which the result has, too. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_operation(
    const tcusim_rule* rule, const tcusim_format* f, tcusim_term x, tcusim_u64 y
) {
    const tcusim_term addend = tcusim_term_of(tcusim_decode(f, y, 0));
    const tcusim_u64 d = tcusim_add(f, x, addend, rule->output, 1);
    if (rule->flush_outputs && tcusim_is_small(f, d)) return d >> (f->bits - 1) << (f->bits - 1);
    return d;
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_plus(
    const tcusim_rule* rule, const tcusim_format* f, tcusim_u64 x, tcusim_u64 y
) {
    return tcusim_operation(rule, f, tcusim_term_of(tcusim_decode(f, x, 0)), y);
}

/* The NaN of a.b + c: of several given, b's comes first, then c's, then a's, as an H200 shows. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_given_nan(
    const tcusim_rule* rule, tcusim_number a, tcusim_number b, tcusim_number c
) {
    const tcusim_u64 quiet = (tcusim_u64)1 << (rule->c.fraction_bits - 1);
    if (b.what == TCUSIM_NAN) return b.significand | quiet;
    if (c.what == TCUSIM_NAN) return c.significand | quiet;
    if (a.what == TCUSIM_NAN) return a.significand | quiet;
    return rule->c.nan;
}

/* Adds every `step`th product to c, one after another. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_chain(
    const tcusim_rule* rule, const tcusim_format* f, const tcusim_operand* a, const tcusim_operand* b,
    tcusim_i32 first, tcusim_i32 end, tcusim_i32 step, tcusim_u64 c
) {
    tcusim_i32 i;
    for (i = first; i < end; i += step) {
        const tcusim_u64 d = tcusim_operation(rule, f, tcusim_product(a, b, i), c);
        if (rule->keeps_nan && tcusim_decode(&rule->c, d, 0).what == TCUSIM_NAN) {
            c = tcusim_given_nan(rule, tcusim_at(a, i), tcusim_at(b, i), tcusim_decode(&rule->c, c, 0));
        } else {
            c = d;
        }
    }
    return c;
}

/* Sums the rounded products pairwise: those of the first half, and those of the second. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_tree(
    const tcusim_rule* rule, const tcusim_format* f, const tcusim_operand* a, const tcusim_operand* b,
    tcusim_i32 first, tcusim_i32 end
) {
    /* The sums whose other half is yet to come, one for each level. */
    tcusim_u64 waiting[32];
    tcusim_i32 i, count = 0;
    for (i = first; i < end; ++i) {
        tcusim_i32 low = first, size = end - first, halves = 0;
        const tcusim_term product = tcusim_product(a, b, i);
        tcusim_u64 sum = tcusim_operation(rule, f, product, tcusim_signed(f, product.sign, 0));
        /* How many second halves end with this product. */
        while (size > 1) {
            const tcusim_i32 half = size / 2;
            if (i < low + half) {
                size = half;
                halves = 0;
            } else {
                low += half;
                size -= half;
                ++halves;
            }
        }
        for (; halves; --halves) sum = tcusim_plus(rule, f, waiting[--count], sum);
        waiting[count++] = sum;
    }
    return waiting[0];
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_sequential_dot(
    const tcusim_rule* rule, tcusim_i32 k, const tcusim_operand* a, const tcusim_operand* b, tcusim_u64 c
) {
    const tcusim_i32 length = rule->length ? rule->length : k;
    const tcusim_format* f = rule->has_sum_type ? &rule->sum_type : &rule->c;
    tcusim_i32 first, i;
    if (rule->flush_inputs && tcusim_is_small(&rule->c, c)) c = c >> (rule->c.bits - 1) << (rule->c.bits - 1);
    for (first = 0; first < k; first += length) {
        const tcusim_i32 end = length < k - first ? first + length : k;
        tcusim_u64 total;
        if (rule->order == TCUSIM_CHAIN && rule->sums == 1) {
            c = tcusim_chain(rule, &rule->c, a, b, first, end, 1, c);
            continue;
        }
        if (rule->order == TCUSIM_TREE) {
            total = tcusim_tree(rule, f, a, b, first, end);
        } else {
            total = tcusim_chain(rule, f, a, b, first, end, rule->sums, 0);
            for (i = 1; i < tcusim_less(rule->sums, end - first); ++i) {
                total = tcusim_plus(rule, f, total, tcusim_chain(rule, f, a, b, first + i, end, rule->sums, 0));
            }
        }
        c = tcusim_operation(rule, &rule->c, tcusim_term_of(tcusim_decode(f, total, 0)), c);
    }
    if (!rule->keeps_nan && tcusim_decode(&rule->c, c, 0).what == TCUSIM_NAN) return rule->c.nan;
    return c;
}

/* --- Exact sums ------------------------------------------------------------------------------- */

/* Digits of 32 bits for every sum of products of float64, from 2^-2252 to 2^(2048 + 32). */
#define TCUSIM_DIGITS 140

/* Adds a term to digits, which count from 2^lowest and may be beyond 32 bits. */
TCUSIM_RULE_FUNCTION void tcusim_accumulate(tcusim_i64* digits, tcusim_i32 lowest, tcusim_term x) {
    const tcusim_i32 place = x.unit - lowest, shift = place % 32;
    tcusim_i64* at = digits + place / 32;
    const tcusim_u64 half = 0xFFFFFFFFu;
    tcusim_u64 parts[4], carry = 0;
    tcusim_i32 i;
    parts[0] = x.low & half;
    parts[1] = x.low >> 32;
    parts[2] = x.high & half;
    parts[3] = x.high >> 32;
    for (i = 0; i < 5; ++i) {
        const tcusim_u64 moved = (i < 4 ? parts[i] << shift : 0) | carry;
        const tcusim_i64 digit = (tcusim_i64)(moved & half);
        carry = moved >> 32;
        /* Above the leading bit there may be no digits. */
        if (digit) at[i] += x.sign ? -digit : digit;
    }
}

/* Adds a group of products to a term exactly, and rounds once. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_exact_sum(
    const tcusim_rule* rule, const tcusim_operand* a, const tcusim_operand* b, tcusim_range r, tcusim_term term
) {
    const tcusim_format *fa = &rule->a, *fb = &rule->b, *fc = &rule->c;
    const tcusim_i32 of_products =
        fa->emin + fb->emin - 2 * (fa->fraction_bits - fa->unread + fb->fraction_bits - fb->unread);
    const tcusim_i32 lowest = tcusim_less(of_products, fc->emin - fc->fraction_bits);
    const tcusim_i32 emax = (tcusim_i32)(fa->largest >> fa->fraction_bits) - fa->bias + 1 +
                            (tcusim_i32)(fb->largest >> fb->fraction_bits) - fb->bias + 1;
    const tcusim_i32 highest = tcusim_larger(emax, (tcusim_i32)(fc->largest >> fc->fraction_bits) - fc->bias + 1);
    /* With the carries of 2^31 products, and a sign. */
    const tcusim_i32 count = (highest - lowest + 32) / 32 + 1;
    tcusim_i64 digits[TCUSIM_DIGITS];
    tcusim_i32 i, special = term.special, negative, lost = 0;
    tcusim_i64 carry = 0;
    tcusim_u64 magnitude;
    for (i = 0; i < count; ++i) digits[i] = 0;
    if (!special) tcusim_accumulate(digits, lowest, term);
    for (i = r.first; i < r.end; ++i) {
        term = tcusim_product(a, b, i);
        special |= term.special;
        if (!special) tcusim_accumulate(digits, lowest, term);
    }
    if (special) return tcusim_special_sum(fc, special);
    for (negative = 0;; negative = 1) {
        for (i = 0, carry = 0; i < count; ++i) {
            const tcusim_i64 digit = (negative ? -digits[i] : digits[i]) + carry;
            digits[i] = (tcusim_i64)((tcusim_u64)digit & 0xFFFFFFFFu);
            /* Rounded down. */
            carry = (digit - digits[i]) / ((tcusim_i64)1 << 32);
        }
        if (negative || carry >= 0) break;
    }
    for (i = count - 1; i > 1 && digits[i] == 0; --i) {
    }
    /* Three digits have 64 bits below the leading one, or there are no more. */
    magnitude = (tcusim_u64)digits[i] << 32 | (tcusim_u64)digits[i - 1];
    if (magnitude == 0) return 0;
    if (i > 1) {
        /* The leading bit goes to bit 62: a digit has 32. */
        const tcusim_i32 shift = 62 - tcusim_leading(magnitude);
        const tcusim_u64 below = (tcusim_u64)digits[i - 2];
        const tcusim_u64 rest = shift < 0 ? magnitude << 32 | below : below << shift;
        tcusim_i32 j;
        magnitude = shift < 0 ? magnitude >> 1 : magnitude << shift | rest >> 32;
        lost = shift < 0 ? (rest & 0x1FFFFFFFFu) != 0 : (rest & 0xFFFFFFFFu) != 0;
        for (j = 0; j < i - 2; ++j) lost |= digits[j] != 0;
        return tcusim_round(
            fc, negative, magnitude, lowest + 32 * (i - 1) - shift, lost, fc->fraction_bits, TCUSIM_RNE, 1
        );
    }
    if (magnitude >> 63) {
        lost = (tcusim_i32)(magnitude & 1);
        return tcusim_round(fc, negative, magnitude >> 1, lowest + 1, lost, fc->fraction_bits, TCUSIM_RNE, 1);
    }
    return tcusim_round(fc, negative, magnitude, lowest, 0, fc->fraction_bits, TCUSIM_RNE, 1);
}

/* Whether a term and every product of a group are -0. */
TCUSIM_RULE_FUNCTION tcusim_i32 tcusim_negative_zeros(
    const tcusim_operand* a, const tcusim_operand* b, tcusim_range r, tcusim_term x
) {
    tcusim_i32 i;
    if (x.special || !x.sign || x.high | x.low) return 0;
    for (i = r.first; i < r.end; ++i) {
        x = tcusim_product(a, b, i);
        if (x.special || !x.sign || x.high | x.low) return 0;
    }
    return 1;
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_exact_dot(
    const tcusim_rule* rule, tcusim_i32 k, const tcusim_operand* a, const tcusim_operand* b, tcusim_u64 c
) {
    const tcusim_i32 length = rule->length ? rule->length : k;
    tcusim_range r;
    r.step = 1;
    r.half = -1;
    for (r.first = 0; r.first < k; r.first += length) {
        tcusim_term addend = tcusim_term_of(tcusim_decode(&rule->c, c, 0));
        const tcusim_i32 joined = rule->c_joins == TCUSIM_C_IN_SUM;
        const tcusim_u64 minus = tcusim_signed(&rule->c, 1, 0);
        const tcusim_term first = joined ? addend : tcusim_term_of(tcusim_decode(&rule->c, minus, 0));
        tcusim_u64 sum;
        r.end = length < k - r.first ? r.first + length : k;
        sum = tcusim_negative_zeros(a, b, r, first) ? minus : tcusim_exact_sum(rule, a, b, r, first);
        if (joined) {
            c = sum;
        } else {
            c = tcusim_add(&rule->c, tcusim_term_of(tcusim_decode(&rule->c, sum, 0)), addend, TCUSIM_RNE, 1);
        }
    }
    return tcusim_decode(&rule->c, c, 0).what == TCUSIM_NAN ? rule->c.nan : c;
}

/* --- Integers --------------------------------------------------------------------------------- */

/* An integer modulo 2^bits, in two's complement. */
TCUSIM_RULE_FUNCTION tcusim_i64 tcusim_wrapped(tcusim_i64 x, tcusim_i32 bits) {
    const tcusim_u64 top = (tcusim_u64)1 << (bits - 1);
    return (tcusim_i64)((((tcusim_u64)x & (top | (top - 1))) ^ top) - top);
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_integer_dot(
    const tcusim_rule* rule, tcusim_i32 k, const tcusim_operand* a, const tcusim_operand* b, tcusim_u64 c
) {
    const tcusim_i32 bits = rule->c.bits, length = rule->length ? rule->length : k;
    const tcusim_i64 most = (tcusim_i64)tcusim_below(bits - 1);
    const tcusim_i64 least = -most - (rule->overflow == TCUSIM_SATURATE);
    tcusim_i64 sum = (tcusim_i64)tcusim_decode(&rule->c, c, 0).significand;
    tcusim_i32 first, i;
    for (first = 0; first < k; first += length) {
        const tcusim_i32 end = length < k - first ? first + length : k;
        tcusim_i64 group = 0;
        for (i = first; i < end; ++i) {
            group += (tcusim_i64)tcusim_at(a, i).significand * (tcusim_i64)tcusim_at(b, i).significand;
        }
        sum += tcusim_wrapped(group, rule->sum_bits);
        if (rule->overflow == TCUSIM_WRAP) {
            sum = tcusim_wrapped(sum, bits);
        } else {
            sum = sum > most ? most : sum < least ? least : sum;
        }
    }
    return (tcusim_u64)sum & (tcusim_below(bits - 1) << 1 | 1);
}

/* --- One output, and one tile ------------------------------------------------------------------ */

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_one_pass(
    const tcusim_rule* rule, tcusim_i32 k, const tcusim_operand* a, const tcusim_operand* b, tcusim_u64 c
) {
    switch (rule->kind) {
        case TCUSIM_FUSED: return tcusim_fused_dot(rule, k, a, b, c);
        case TCUSIM_SEQUENTIAL: return tcusim_sequential_dot(rule, k, a, b, c);
        case TCUSIM_EXACT: return tcusim_exact_dot(rule, k, a, b, c);
        default: return tcusim_integer_dot(rule, k, a, b, c);
    }
}

TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_dot_of(
    const tcusim_rule* rule, tcusim_i32 k, const tcusim_operand* a, const tcusim_operand* b, tcusim_u64 c
) {
    /* Without passes all products are one group, in one pass over all bits. */
    const tcusim_i32 length = rule->passes && rule->length ? rule->length : k;
    tcusim_i32 first, i;
    for (first = 0; first < k; first += length) {
        const tcusim_i32 count = length < k - first ? length : k - first;
        tcusim_operand left = tcusim_part(a, first, 0), right = tcusim_part(b, first, 0);
        tcusim_i32 parts = rule->passes != 0;
        for (i = 0; parts && i < count; ++i) {
            parts = tcusim_at(&left, i).what == TCUSIM_FINITE && tcusim_at(&right, i).what == TCUSIM_FINITE;
        }
        for (i = 0; i < (parts ? rule->passes : 1); ++i) {
            left.mask = parts ? rule->pass_a[i] : 0;
            right.mask = parts ? rule->pass_b[i] : 0;
            c = tcusim_one_pass(rule, count, &left, &right, c);
        }
    }
    return c;
}

/* Returns c + a.b of k products as encoded bits.
 *
 * a, b: elements, which follow each other at a stride, counted in elements. c: encoded bits. scales:
 * of the blocks of `rule->block` products, as bytes at a stride of their own; null for scales of 1. */
TCUSIM_RULE_FUNCTION tcusim_u64 tcusim_rule_dot(
    const tcusim_rule* rule,
    tcusim_i32 k,
    const void* a,
    tcusim_i64 a_stride,
    const void* b,
    tcusim_i64 b_stride,
    tcusim_u64 c,
    const tcusim_u8* a_scales,
    tcusim_i64 a_scale_stride,
    const tcusim_u8* b_scales,
    tcusim_i64 b_scale_stride
) {
    const tcusim_operand left = {&rule->a, rule->flush_inputs, a, 0, a_stride, a_scales, a_scale_stride, 0};
    const tcusim_operand right = {&rule->b, rule->flush_inputs, b, 0, b_stride, b_scales, b_scale_stride, 0};
    return tcusim_dot_of(rule, k, &left, &right, c);
}

/* Writes d = a.b + c of one tile, all row-major: a (m, k), b (k, n), c and d (m, n), which may be the
 * same; scales (m, k / block) and (k / block, n), or null for 1. scratch: room for (m + n) * k numbers. */
TCUSIM_RULE_FUNCTION void tcusim_rule_tile(
    const tcusim_rule* rule,
    tcusim_i32 m,
    tcusim_i32 n,
    tcusim_i32 k,
    void* d,
    const void* a,
    const void* b,
    const void* c,
    const tcusim_u8* a_scales,
    const tcusim_u8* b_scales,
    tcusim_number* scratch
) {
    const tcusim_i32 blocks = rule->block ? k / rule->block : 0, bytes = rule->c.bytes;
    tcusim_number *rows = scratch, *columns = scratch + (tcusim_i64)m * k;
    tcusim_operand left = {&rule->a, 0, 0, 0, 1, 0, 1, 0};
    tcusim_operand right = {&rule->b, 0, 0, 0, 1, 0, 0, 0};
    tcusim_i64 i, j, at;
    right.scale_stride = n;
    for (at = 0; at < (tcusim_i64)m * k; ++at) {
        rows[at] = tcusim_decode(&rule->a, tcusim_element(a, at, rule->a.bytes), rule->flush_inputs);
    }
    for (j = 0; j < n; ++j) {
        for (i = 0; i < k; ++i) {
            columns[j * k + i] = tcusim_decode(&rule->b, tcusim_element(b, i * n + j, rule->b.bytes), rule->flush_inputs);
        }
    }
    for (i = 0; i < m; ++i) {
        for (j = 0; j < n; ++j) {
            unsigned char* to = (unsigned char*)d + (i * n + j) * bytes;
            tcusim_u64 result;
            tcusim_i32 byte;
            left.numbers = rows + i * k;
            right.numbers = columns + j * k;
            if (a_scales) left.scales = a_scales + i * blocks;
            if (b_scales) right.scales = b_scales + j;
            result = tcusim_dot_of(rule, k, &left, &right, tcusim_element(c, i * n + j, bytes));
            for (byte = 0; byte < bytes; ++byte) to[byte] = (unsigned char)(result >> 8 * byte);
        }
    }
}

#endif
