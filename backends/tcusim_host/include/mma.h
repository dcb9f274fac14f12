// nvcuda::wmma for the host: fragments that are truly spread over the lanes, and the four
// operations on them. Any M, N, K whose tiles are whole multiples of 32 elements will do.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32;
}

// How an element type is numbered, and what it is in memory.
template <class T>
struct Element;
#define TCUSIM_ELEMENT(T, TYPE, STORED)                          \
    template <>                                                  \
    struct Element<T> {                                          \
        using stored = STORED;                                   \
        static constexpr tcusim::Type type = tcusim::Type::TYPE; \
    };
TCUSIM_ELEMENT(half, f16, half)
TCUSIM_ELEMENT(__nv_bfloat16, bf16, __nv_bfloat16)
TCUSIM_ELEMENT(precision::tf32, tf32, float)
TCUSIM_ELEMENT(float, f32, float)
TCUSIM_ELEMENT(double, f64, double)
TCUSIM_ELEMENT(signed char, s8, signed char)
TCUSIM_ELEMENT(unsigned char, u8, unsigned char)
TCUSIM_ELEMENT(int, s32, int)
#undef TCUSIM_ELEMENT

// Rows and columns of a tile by its use.
template <class Use, int M, int N, int K>
struct Tile;
template <int M, int N, int K>
struct Tile<matrix_a, M, N, K> {
    static constexpr int rows = M, cols = K;
};
template <int M, int N, int K>
struct Tile<matrix_b, M, N, K> {
    static constexpr int rows = K, cols = N;
};
template <int M, int N, int K>
struct Tile<accumulator, M, N, K> {
    static constexpr int rows = M, cols = N;
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    using element_type = typename Element<T>::stored;
    static constexpr int rows = Tile<Use, M, N, K>::rows;
    static constexpr int cols = Tile<Use, M, N, K>::cols;
    static_assert(rows * cols % tcusim::kLanes == 0 && rows * cols <= tcusim::kMaxTile);
    static constexpr int num_elements = rows * cols / tcusim::kLanes;
    element_type x[num_elements];
    // So that the use of a fragment that nothing set shows.
    fragment() { tcusim::leave_unwritten(x, Element<T>::type, num_elements); }
};

// What a register holds of an element that was loaded: tf32 is cut to 10 fraction bits.
template <class T>
inline typename Element<T>::stored as_loaded(typename Element<T>::stored x) {
    if constexpr (Element<T>::type == tcusim::Type::tf32) {
        return x == x ? __uint_as_float(__float_as_uint(x) & 0xFFFFE000u) : x;
    } else {
        return x;
    }
}

template <class Use, int M, int N, int K, class T, class Layout>
inline void fill_fragment(
    fragment<Use, M, N, K, T, Layout>& f, typename Element<T>::stored value
) {
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = as_loaded<T>(value);
}

// The tiles of the mma.sync shapes are loaded element by element and need no alignment.
template <int M, int N, class T>
inline void require_aligned(const T* p, unsigned int ldm, int line) {
    // WMMA has m8n8 for doubles alone.
    if (N == 8 && (M == 16 || (M == 8 && sizeof(T) < 8))) return;
    tcusim::require_aligned(p, static_cast<unsigned long long>(ldm) * sizeof(T), line);
}

// Visits the elements that the running lane owns: touch(slot, row, column).
template <int ROWS, int COLS, class Touch>
inline void each_own_element(Touch touch) {
    const int lane = tcusim::current_lane();
    for (int slot = 0; slot < ROWS * COLS / tcusim::kLanes; ++slot) {
        const int element = tcusim::element_of(lane, slot);
        touch(slot, element / COLS, element % COLS);
    }
}

template <class Use, int M, int N, int K, class T, class Layout>
inline void load_tile(
    fragment<Use, M, N, K, T, Layout>& f,
    const typename Element<T>::stored* p,
    unsigned int ldm,
    bool by_rows,
    int line
) {
    using F = fragment<Use, M, N, K, T, Layout>;
    require_aligned<M, N>(p, ldm, line);
    const long long row_stride = by_rows ? ldm : 1;
    const long long col_stride = by_rows ? 1 : ldm;
    const bool first = tcusim::touches_memory_first();
    if (!first) tcusim::wait_for_warp(tcusim::Wait::load, line);
    each_own_element<F::rows, F::cols>([&](int slot, int row, int col) {
        f.x[slot] = as_loaded<T>(p[row * row_stride + col * col_stride]);
    });
    if (first) tcusim::wait_for_warp(tcusim::Wait::load, line);
}

template <class Use, int M, int N, int K, class T>
inline void load_matrix_sync(
    fragment<Use, M, N, K, T, row_major>& f,
    const typename Element<T>::stored* p,
    unsigned int ldm,
    int line = __builtin_LINE()
) {
    load_tile(f, p, ldm, true, line);
}

template <class Use, int M, int N, int K, class T>
inline void load_matrix_sync(
    fragment<Use, M, N, K, T, col_major>& f,
    const typename Element<T>::stored* p,
    unsigned int ldm,
    int line = __builtin_LINE()
) {
    load_tile(f, p, ldm, false, line);
}

template <int M, int N, int K, class T>
inline void load_matrix_sync(
    fragment<accumulator, M, N, K, T>& f,
    const typename Element<T>::stored* p,
    unsigned int ldm,
    layout_t layout,
    int line = __builtin_LINE()
) {
    load_tile(f, p, ldm, layout == mem_row_major, line);
}

template <int M, int N, int K, class T>
inline void store_matrix_sync(
    T* p,
    const fragment<accumulator, M, N, K, T>& f,
    unsigned int ldm,
    layout_t layout,
    int line = __builtin_LINE()
) {
    require_aligned<M, N>(p, ldm, line);
    const long long row_stride = layout == mem_row_major ? ldm : 1;
    const long long col_stride = layout == mem_row_major ? 1 : ldm;
    const bool first = tcusim::touches_memory_first();
    if (!first) tcusim::wait_for_warp(tcusim::Wait::store, line);
    each_own_element<M, N>([&](int slot, int row, int col) {
        p[row * row_stride + col * col_stride] = f.x[slot];
    });
    if (first) tcusim::wait_for_warp(tcusim::Wait::store, line);
}

template <int M, int N, int K, class T, class LayoutA, class LayoutB, class Acc>
inline void mma_sync(
    fragment<accumulator, M, N, K, Acc>& d,
    const fragment<matrix_a, M, N, K, T, LayoutA>& a,
    const fragment<matrix_b, M, N, K, T, LayoutB>& b,
    const fragment<accumulator, M, N, K, Acc>& c,
    int line = __builtin_LINE()
) {
    const tcusim::Mma shape = {M, N, K, Element<T>::type, Element<Acc>::type};
    tcusim::mma(shape, d.x, a.x, b.x, c.x, line);
}

}  // namespace nvcuda::wmma
