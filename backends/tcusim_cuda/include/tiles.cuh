// Tiles of any size and of any element type: fragments in the manner of nvcuda::wmma, whose products
// the lanes compute by the rule that the kernel's text gives.
#pragma once
#include "tcusim.cuh"
#include "tcusim_rule.h"

namespace tcu {

// --- Element types that CUDA does not have -------------------------------------------------------

// The bits of one element, in as many bytes as it takes in memory. Format: its `format()` and Word.
template <class Format>
struct Coded {
    typename Format::Word bits;
};

// The double of an element: each of these types is exact in it. The NaN is that of a float.
template <class Format>
__device__ inline double decoded(Coded<Format> x) {
    const tcusim_format format = Format::format();
    const tcusim_number number = tcusim_decode(&format, x.bits, 0);
    if (number.what == TCUSIM_NAN) return static_cast<double>(__int_as_float(0x7FFFFFFF));
    const long long field = 1023 + number.exponent - format.fraction_bits;
    double size = static_cast<double>(number.significand) * __longlong_as_double(field << 52);
    if (number.what == TCUSIM_INFINITE) size = __longlong_as_double(0x7FF0000000000000LL);
    return number.sign ? -size : size;
}

// The nearest element. Beyond the largest one is infinity; NaN, if there is none; else the largest.
template <class Format>
__device__ inline Coded<Format> coded(double x) {
    const tcusim_format format = Format::format();
    const unsigned int sign = 1u << (format.bits - 1);
    const bool has_infinity = format.infinity < sign;
    // The NaN is the bits of -0, or those after the largest number and the infinity, if any are left.
    const bool has_minus_zero = format.nan > sign;
    const unsigned int after = static_cast<unsigned int>(format.largest) + (has_infinity ? 2 : 1);
    const unsigned int nan = has_minus_zero ? after : sign;
    const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(x));
    const unsigned long long fraction = bits & 0x000FFFFFFFFFFFFFull;
    const int field = static_cast<int>(bits >> 52 & 0x7FF);
    const unsigned int mine = bits >> 63 ? sign : 0;
    unsigned int size = ~0u;
    if (field != 0x7FF) {
        // A subnormal double is far below half of the smallest element.
        const unsigned long long whole = field ? fraction | 0x0010000000000000ull : 0;
        size = whole == 0 ? 0 : static_cast<unsigned int>(tcusim_round(
            &format, 0, whole, field - 1075, 0, format.fraction_bits, TCUSIM_RNE, 1
        ));
        // Without subnormal elements the smallest one's neighbour is zero.
        if (format.flushed && field < 1023 + format.emin) {
            size = field >= 1022 + format.emin && fraction ? 1u << format.fraction_bits : 0;
        }
    }
    if (size <= format.largest) {
        return {static_cast<typename Format::Word>(size || has_minus_zero ? mine | size : 0)};
    }
    const bool invalid = field == 0x7FF && fraction != 0;
    if (!invalid && has_infinity) return {static_cast<typename Format::Word>(mine | format.infinity)};
    if (!has_minus_zero || after < sign) return {static_cast<typename Format::Word>(nan)};
    return {static_cast<typename Format::Word>(mine | format.largest)};
}

template <class Format, class From>
struct Convert<Coded<Format>, From> {
    __device__ static Coded<Format> run(From x) {
        return coded<Format>(convert<double>(x));
    }
};
template <class To, class Format>
struct Convert<To, Coded<Format>> {
    __device__ static To run(Coded<Format> x) { return convert<To>(decoded(x)); }
};
template <class Format, class Other>
struct Convert<Coded<Format>, Coded<Other>> {
    __device__ static Coded<Format> run(Coded<Other> x) { return coded<Format>(decoded(x)); }
};
template <class Format>
struct Convert<Coded<Format>, Coded<Format>> {
    __device__ static Coded<Format> run(Coded<Format> x) { return x; }
};

// --- Tiles ---------------------------------------------------------------------------------------

template <class Use, int M, int N, int K>
struct Sides;
template <int M, int N, int K>
struct Sides<nvcuda::wmma::matrix_a, M, N, K> {
    static constexpr int rows = M, cols = K;
};
template <int M, int N, int K>
struct Sides<nvcuda::wmma::matrix_b, M, N, K> {
    static constexpr int rows = K, cols = N;
};
template <int M, int N, int K>
struct Sides<nvcuda::wmma::accumulator, M, N, K> {
    static constexpr int rows = M, cols = N;
};

// Element e of a tile, row by row, is in x[e / 32] of a lane, and not of lane e % 32, which takes
// element e where lanes go over a tile: a missing barrier between the two then shows. Lanes past the
// end have the last element as well, with which they do as its owner does, but for storing it.
template <class Use, int M, int N, int K, class T, class Layout = void>
struct Tile {
    using element_type = T;
    static constexpr int rows = Sides<Use, M, N, K>::rows;
    static constexpr int cols = Sides<Use, M, N, K>::cols;
    static constexpr int size = rows * cols;
    static constexpr int num_elements = (size + 31) / 32;
    T x[num_elements];

    // The number of x[slot], which may be past the end.
    __device__ static int number_of(int slot) {
        const int shift = 1 + slot * 5 % 31;
        return slot * 32 + (static_cast<int>(threadIdx.x % 32) + 32 - shift) % 32;
    }
};

template <class Use, int M, int N, int K, class T, class Layout>
__device__ inline void fill_fragment(Tile<Use, M, N, K, T, Layout>& tile, T value) {
    for (int slot = 0; slot < tile.num_elements; ++slot) tile.x[slot] = value;
}

// Calls act(slot, row, col, owned) for each element of a lane. Those of a large tile are in local
// memory: written out, they would take all registers, and be spilled there one by one.
template <class Any, class Act>
__device__ inline void each_own(Act act) {
    #pragma unroll (Any::num_elements <= 8 ? Any::num_elements : 1)
    for (int slot = 0; slot < Any::num_elements; ++slot) {
        const int number = Any::number_of(slot);
        const bool owned = number < Any::size;
        const int element = owned ? number : Any::size - 1;
        act(slot, element / Any::cols, element % Any::cols, owned);
    }
}

template <class Any, class T>
__device__ inline void load_apart(Any& tile, const T* p, long long down, long long across) {
    each_own<Any>([&](int slot, int row, int col, bool) {
        tile.x[slot] = p[row * down + col * across];
    });
    // No lane of the warp may write there while another still reads.
    __syncwarp();
}

template <class Use, int M, int N, int K, class T>
__device__ inline void load_matrix_sync(
    Tile<Use, M, N, K, T, nvcuda::wmma::row_major>& tile, const T* p, unsigned int ldm
) {
    load_apart(tile, p, ldm, 1);
}
template <class Use, int M, int N, int K, class T>
__device__ inline void load_matrix_sync(
    Tile<Use, M, N, K, T, nvcuda::wmma::col_major>& tile, const T* p, unsigned int ldm
) {
    load_apart(tile, p, 1, ldm);
}
template <int M, int N, int K, class T>
__device__ inline void load_matrix_sync(
    Tile<nvcuda::wmma::accumulator, M, N, K, T>& tile, const T* p, unsigned int ldm,
    nvcuda::wmma::layout_t layout
) {
    const bool by_rows = layout == nvcuda::wmma::mem_row_major;
    load_apart(tile, p, by_rows ? ldm : 1, by_rows ? 1 : ldm);
}

template <int M, int N, int K, class T>
__device__ inline void store_matrix_sync(
    T* p, const Tile<nvcuda::wmma::accumulator, M, N, K, T>& tile, unsigned int ldm,
    nvcuda::wmma::layout_t layout
) {
    const bool by_rows = layout == nvcuda::wmma::mem_row_major;
    const long long down = by_rows ? ldm : 1, across = by_rows ? 1 : ldm;
    using Any = Tile<nvcuda::wmma::accumulator, M, N, K, T>;
    each_own<Any>([&](int slot, int row, int col, bool owned) {
        if (owned) p[row * down + col * across] = tile.x[slot];
    });
    __syncwarp();
}

// --- Products ------------------------------------------------------------------------------------

template <int BYTES>
struct Bits;
template <>
struct Bits<1> {
    using type = unsigned char;
};
template <>
struct Bits<2> {
    using type = unsigned short;
};
template <>
struct Bits<4> {
    using type = unsigned int;
};
template <>
struct Bits<8> {
    using type = unsigned long long;
};
template <class T>
using BitsOf = typename Bits<sizeof(T)>::type;

// One output: c + a.b of K products, each operand contiguous. A kernel has it once, since it is long.
#ifdef TCUSIM_HOST
}  // namespace tcu
namespace tcusim {
// In the runtime, which is compiled once, and well.
tcusim_u64 dot(const tcusim_rule& rule, int k, const void* a, const void* b, tcusim_u64 c);
}  // namespace tcusim
namespace tcu {
template <class Rule, int K>
inline tcusim_u64 dot(const void* a, const void* b, tcusim_u64 c) {
    constexpr tcusim_rule rule = Rule::rule();
    return tcusim::dot(rule, K, a, b, c);
}
#else
template <class Rule, int K>
__device__ __noinline__ tcusim_u64 dot(const void* a, const void* b, tcusim_u64 c) {
    constexpr tcusim_rule rule = Rule::rule();
    return tcusim_rule_dot(&rule, K, a, 1, b, 1, c, nullptr, 0, nullptr, 0);
}
#endif

// d = a.b + c by Rule::rule(). operands: shared memory of the warp for all elements of a and b. Each
// lane computes its own elements of d.
template <class Rule, int M, int N, int K, class T, class LayoutA, class LayoutB, class Acc>
__device__ inline void multiply(
    Tile<nvcuda::wmma::accumulator, M, N, K, Acc>& d,
    const Tile<nvcuda::wmma::matrix_a, M, N, K, T, LayoutA>& a,
    const Tile<nvcuda::wmma::matrix_b, M, N, K, T, LayoutB>& b,
    const Tile<nvcuda::wmma::accumulator, M, N, K, Acc>& c,
    T* operands
) {
    using A = Tile<nvcuda::wmma::matrix_a, M, N, K, T, LayoutA>;
    using B = Tile<nvcuda::wmma::matrix_b, M, N, K, T, LayoutB>;
    using D = Tile<nvcuda::wmma::accumulator, M, N, K, Acc>;
    // By rows of a and by columns of b.
    T* const left = operands;
    T* const right = operands + M * K;
    each_own<A>([&](int slot, int row, int col, bool owned) {
        if (owned) left[row * K + col] = a.x[slot];
    });
    each_own<B>([&](int slot, int row, int col, bool owned) {
        if (owned) right[col * K + row] = b.x[slot];
    });
    __syncwarp();
    each_own<D>([&](int slot, int row, int col, bool) {
        BitsOf<Acc> bits;
        memcpy(&bits, &c.x[slot], sizeof(bits));
        bits = static_cast<BitsOf<Acc>>(dot<Rule, K>(left + row * K, right + col * K, bits));
        memcpy(&d.x[slot], &bits, sizeof(bits));
    });
    __syncwarp();
}

}  // namespace tcu
