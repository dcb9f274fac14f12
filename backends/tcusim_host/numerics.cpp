// d = a.b + c in the arithmetic of one row of tcusim.numerics, one output after the other.
//
// It is written with integers and from the description of the hardware, not from the simulator's
// NumPy code, so that the two check each other. Source: tcusim/machine/rules.py, class Fused.
#include <bit>
#include <cmath>
#include <cstring>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "host_runtime.h"

namespace tcusim {
namespace {

// The exponent that stands for a zero: below that of every number, even twice added.
constexpr int kZeroExponent = -100000;

struct Format {
    int fraction_bits;
    int emin;
    double largest;
};

Format format_of(Type type) {
    switch (type) {
        case Type::f16:
            return {10, -14, 65504.0};
        case Type::bf16:
            return {7, -126, 0x1.FEp127};
        case Type::tf32:
            return {10, -126, 0x1.FFCp127};
        default:
            return {23, -126, 0x1.FFFFFEp127};
    }
}

template <class T>
T element(const void* tile, int index) {
    T result;
    std::memcpy(&result, static_cast<const char*>(tile) + index * sizeof(T), sizeof(T));
    return result;
}

double value_at(const void* tile, int index, Type type) {
    switch (type) {
        case Type::f16:
            return __half2float(element<half>(tile, index));
        case Type::bf16:
            return __bfloat162float(element<__nv_bfloat16>(tile, index));
        case Type::f64:
            return element<double>(tile, index);
        default:
            return element<float>(tile, index);
    }
}

// Writes a value that the type holds; NaN becomes the type's given bits, and f64 keeps its own.
void put(void* tile, int index, Type type, double value, uint32_t nan_f32, uint16_t nan_f16) {
    char* place = static_cast<char*>(tile);
    if (type == Type::f16) {
        const uint16_t bits = value == value ? tcusim_narrow<5, 10>(value) : nan_f16;
        std::memcpy(place + index * 2, &bits, 2);
    } else if (type == Type::f32) {
        const float number = value == value ? static_cast<float>(value) : __uint_as_float(nan_f32);
        std::memcpy(place + index * 4, &number, 4);
    } else {
        std::memcpy(place + index * 8, &value, 8);
    }
}

// --- The fused step -----------------------------------------------------------------------------

// A number as significand * 2^(exponent - fraction_bits of its type).
struct Parts {
    int exponent;
    int64_t significand;
};

Parts split(double value, const Format& format) {
    const uint64_t bits = tcusim_bits<uint64_t>(value);
    const uint64_t magnitude = bits & 0x7FFFFFFFFFFFFFFFull;
    if (magnitude == 0) return {kZeroExponent, 0};
    int exponent = static_cast<int>(magnitude >> 52) - 1023;
    int cut = 52 - format.fraction_bits;
    // A subnormal keeps the least exponent, and a significand below 1.
    if (exponent < format.emin) {
        cut += format.emin - exponent;
        exponent = format.emin;
    }
    const uint64_t whole = (magnitude & 0x000FFFFFFFFFFFFFull) | 0x0010000000000000ull;
    const int64_t significand = static_cast<int64_t>(whole >> cut);
    return {exponent, bits >> 63 ? -significand : significand};
}

// Returns significand * 2^shift as an integer: cut toward zero, or rounded to nearest even.
int64_t scale(int64_t significand, int shift, bool to_nearest) {
    if (shift >= 0) return significand * (int64_t{1} << shift);
    const int cut = -shift;
    if (cut > 62) return 0;
    const uint64_t magnitude = static_cast<uint64_t>(significand < 0 ? -significand : significand);
    uint64_t kept = magnitude >> cut;
    if (to_nearest) {
        const uint64_t rest = magnitude - (kept << cut);
        const uint64_t tie = uint64_t{1} << (cut - 1);
        if (rest > tie || (rest == tie && (kept & 1))) ++kept;
    }
    const int64_t result = static_cast<int64_t>(kept);
    return significand < 0 ? -result : result;
}

// Rounds total * 2^unit once to the accumulator's type; beyond its range is infinity, zero is +0.
double round_total(int64_t total, int unit, const Format& acc, const Numerics& how) {
    if (total == 0) return 0.0;
    const uint64_t magnitude = static_cast<uint64_t>(total < 0 ? -total : total);
    const int leading = 63 - __builtin_clzll(magnitude) + unit;
    const int lowest = (leading > acc.emin ? leading : acc.emin) - how.output_fraction_bits;
    // Where the total has no bits below the lowest one, nothing is rounded.
    const bool exact = lowest <= unit;
    const int64_t kept = exact ? total : scale(total, unit - lowest, how.round_output);
    const double result = std::ldexp(static_cast<double>(kept), exact ? unit : lowest);
    if (how.flush_outputs && std::fabs(result) < std::ldexp(1.0, acc.emin)) return 0.0;
    if (std::fabs(result) > acc.largest) return result < 0 ? -INFINITY : INFINITY;
    return result + 0.0;
}

// One tile's operands: rows of a and columns of b are contiguous.
struct Operand {
    int exponent[kMaxTile];
    int64_t significand[kMaxTile];
    double value[kMaxTile];
    bool special[kMaxTile];
};

Operand left;
Operand right;

double flushed(double value, const Format& format, const Numerics& how) {
    if (how.flush_inputs && std::fabs(value) < std::ldexp(1.0, format.emin)) return 0.0;
    return value;
}

void decode(Operand& operand, int index, double value, const Format& format, const Numerics& how) {
    value = flushed(value, format, how);
    const bool special = !std::isfinite(value);
    const Parts parts = special ? Parts{kZeroExponent, 0} : split(value, format);
    operand.exponent[index] = parts.exponent;
    operand.significand[index] = parts.significand;
    operand.value[index] = value;
    operand.special[index] = special;
}

bool any_special(int a, int b, int count) {
    for (int i = 0; i < count; ++i) {
        if (left.special[a + i] || right.special[b + i]) return true;
    }
    return false;
}

// The sum where an infinity or a NaN takes part: finite terms have no say.
double special_sum(int a, int b, int count, double c) {
    bool plus = c == INFINITY;
    bool minus = c == -INFINITY;
    bool invalid = c != c;
    for (int i = 0; i < count; ++i) {
        const double product = left.value[a + i] * right.value[b + i];
        plus = plus || product == INFINITY;
        minus = minus || product == -INFINITY;
        invalid = invalid || product != product;
    }
    if (invalid || (plus && minus)) return NAN;
    return plus ? INFINITY : -INFINITY;
}

// Sums `count` products, from a and b on, and c.
double fused_step(
    int a, int b, int count, double c, const Format& ab, const Format& acc, const Numerics& how
) {
    if (!std::isfinite(c) || any_special(a, b, count)) return special_sum(a, b, count, c);
    const Parts addend = split(c, acc);
    int top = addend.exponent;
    for (int i = 0; i < count; ++i) {
        const int exponent = left.exponent[a + i] + right.exponent[b + i];
        top = exponent > top ? exponent : top;
    }
    if (how.has_exponent_floor && top < how.exponent_floor) top = how.exponent_floor;
    // Only zeros.
    if (top <= kZeroExponent / 2) return 0.0;
    const int unit = top - how.fraction_bits;
    const bool to_nearest = how.round_alignment;
    int64_t total = scale(addend.significand, addend.exponent - acc.fraction_bits - unit, to_nearest);
    for (int i = 0; i < count; ++i) {
        const int64_t product = left.significand[a + i] * right.significand[b + i];
        const int exponent = left.exponent[a + i] + right.exponent[b + i];
        total += scale(product, exponent - 2 * ab.fraction_bits - unit, to_nearest);
    }
    return round_total(total, unit, acc, how);
}

// The IEEE sum of two values of the accumulator's type.
double added_after(double sum, double c, Type type, const Format& acc, const Numerics& how) {
    const float total = static_cast<float>(sum) + static_cast<float>(c);
    const double rounded = type == Type::f16 ? __half2float(half(total)) : total;
    if (how.flush_outputs && std::fabs(rounded) < std::ldexp(1.0, acc.emin)) return 0.0;
    return rounded;
}

void multiply_fused(
    const Mma& shape, const Numerics& how, void* d, const void* a, const void* b, const void* c
) {
    const Format ab = format_of(shape.ab);
    const Format acc = format_of(shape.acc);
    for (int i = 0; i < shape.m * shape.k; ++i) {
        decode(left, i, value_at(a, i, shape.ab), ab, how);
    }
    for (int k = 0; k < shape.k; ++k) {
        for (int j = 0; j < shape.n; ++j) {
            const double value = value_at(b, k * shape.n + j, shape.ab);
            decode(right, j * shape.k + k, value, ab, how);
        }
    }
    for (int output = 0; output < shape.m * shape.n; ++output) {
        const int row = output / shape.n * shape.k;
        const int column = output % shape.n * shape.k;
        double sum = value_at(c, output, shape.acc);
        for (int k = 0; k < shape.k; k += how.length) {
            const int count = shape.k - k < how.length ? shape.k - k : how.length;
            sum = flushed(sum, acc, how);
            const double joined = how.c_joins_after ? 0.0 : sum;
            const double step = fused_step(row + k, column + k, count, joined, ab, acc, how);
            sum = how.c_joins_after ? added_after(step, sum, shape.acc, acc, how) : step;
        }
        put(d, output, shape.acc, sum, 0x7FFFFFFFu, 0x7FFF);
    }
}

// --- One multiply-add after another -------------------------------------------------------------

// The nearest half of a*b + c, for halves: the sum is exact in units of 2^-48.
double fma_half(double a, double b, double c) {
    if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(c)) {
        return __half2float(__double2half(a * b + c));
    }
    const __int128 product =
        static_cast<__int128>(std::ldexp(a, 24)) * static_cast<__int128>(std::ldexp(b, 24));
    const __int128 total = product + static_cast<__int128>(std::ldexp(c, 24)) * (1 << 24);
    // The signs of the zeros decide, as they do in double.
    if (total == 0) return a * b + c;
    unsigned __int128 magnitude = total < 0 ? -total : total;
    int exponent = -48;
    // To at most 53 bits; a one that is lost leaves its mark in the last bit.
    while (magnitude >> 53) {
        magnitude = (magnitude >> 1) | (magnitude & 1);
        ++exponent;
    }
    const double value = std::ldexp(static_cast<double>(static_cast<uint64_t>(magnitude)), exponent);
    return __half2float(__double2half(total < 0 ? -value : value));
}

// Of several NaN, b's comes first, then c's, then a's, as an H200 shows.
double fma_double(double a, double b, double c) {
    if (b != b) return tcusim_quiet(b);
    if (c != c) return tcusim_quiet(c);
    if (a != a) return tcusim_quiet(a);
    const double result = std::fma(a, b, c);
    return result == result ? result : std::bit_cast<double>(tcusim_invalid_f64);
}

double fma_as(Type acc, double a, double b, double c) {
    if (acc == Type::f64) return fma_double(a, b, c);
    if (acc == Type::f16) return fma_half(a, b, c);
    return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
}

void multiply_sequential(
    const Mma& shape, void* d, const void* a, const void* b, const void* c
) {
    for (int output = 0; output < shape.m * shape.n; ++output) {
        const int row = output / shape.n;
        const int column = output % shape.n;
        double sum = value_at(c, output, shape.acc);
        for (int k = 0; k < shape.k; ++k) {
            const double x = value_at(a, row * shape.k + k, shape.ab);
            const double y = value_at(b, k * shape.n + column, shape.ab);
            sum = fma_as(shape.acc, x, y, sum);
        }
        put(d, output, shape.acc, sum, 0x7FC00000u, 0x7E00);
    }
}

// --- Integers -----------------------------------------------------------------------------------

int integer_at(const void* tile, int index, Type type) {
    if (type == Type::s8) return element<signed char>(tile, index);
    return element<unsigned char>(tile, index);
}

void multiply_integer(const Mma& shape, void* d, const void* a, const void* b, const void* c) {
    for (int output = 0; output < shape.m * shape.n; ++output) {
        const int row = output / shape.n;
        const int column = output % shape.n;
        // Unsigned, because an s32 accumulator wraps.
        uint32_t sum = element<uint32_t>(c, output);
        for (int k = 0; k < shape.k; ++k) {
            const int x = integer_at(a, row * shape.k + k, shape.ab);
            const int y = integer_at(b, k * shape.n + column, shape.ab);
            sum += static_cast<uint32_t>(x * y);
        }
        std::memcpy(static_cast<char*>(d) + output * sizeof(sum), &sum, sizeof(sum));
    }
}

}  // namespace

void multiply(
    const Mma& shape, const Numerics& how, void* d, const void* a, const void* b, const void* c
) {
    switch (how.kind) {
        case Numerics::fused:
            return multiply_fused(shape, how, d, a, b, c);
        case Numerics::sequential:
            return multiply_sequential(shape, d, a, b, c);
        default:
            return multiply_integer(shape, d, a, b, c);
    }
}

}  // namespace tcusim

// Multiplies one tile, row-major, without a kernel: for tests.
extern "C" __attribute__((visibility("default"))) void tcusim_multiply(
    int32_t m,
    int32_t n,
    int32_t k,
    const tcusim::Numerics* how,
    void* d,
    const void* a,
    const void* b,
    const void* c
) {
    const tcusim::Mma shape = {
        m, n, k, static_cast<tcusim::Type>(how->ab), static_cast<tcusim::Type>(how->acc)
    };
    tcusim::multiply(shape, *how, d, a, b, c);
}
