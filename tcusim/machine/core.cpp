// Fused steps on numbers of 4 bytes, as fused_narrow.py has them, several outputs at a time.
//
// An output is c[i][j][v] = c + sum over t of a[t][i][v] * b[t][j][v]. Lanes v are tiles, or the
// columns of one tile. What does not fit is named in odd[v], by the same tests as there, and is
// computed by others: its numbers here mean nothing. No sum may be contracted, and integers wrap.
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "include/tcusim_rule.h"

namespace {

#if defined(__AVX512F__)
constexpr int WIDE = 16;
#elif defined(__AVX2__)
constexpr int WIDE = 8;
#else
constexpr int WIDE = 4;
#endif

struct How {
    int32_t length;         // terms of a step
    int32_t fraction_bits;  // that are kept below the largest exponent
    int32_t rounding;       // 0: toward zero to 24 bits, 1: to nearest, 2: to nearest in acc_bits
    int32_t acc_bits;       // fraction bits of the result
    int32_t may_vanish;     // whether a product of powers may be too small for a float32
    float ab_low, acc_low;  // 2**emin of the types; 0 if that is a float32's
    float floor;            // the least power of a step; 0 if there is none
    float acc_least, acc_largest;
};

constexpr float LEAST = 0x1p-80f, MOST = 0x1p90f;
constexpr int32_t FIELD = 0x7F800000;

template <int V> struct Lane {
    typedef float F __attribute__((vector_size(4 * V)));
    typedef int32_t I __attribute__((vector_size(4 * V)));
};

template <int V> inline typename Lane<V>::F loaded(const float* from) {
    typename Lane<V>::F x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

// Halves as float32, exactly: their exponents differ by 112.
inline float widened(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, bits = (uint32_t)(half & 0x7FFFu) << 13;
    float scaled;
    std::memcpy(&scaled, &bits, sizeof scaled);
    scaled *= 0x1p112f;
    uint32_t found;
    std::memcpy(&found, &scaled, sizeof found);
    // Infinities and NaN have an exponent of their own.
    found = sign | ((half & 0x7C00u) == 0x7C00u ? bits | (uint32_t)FIELD : found);
    std::memcpy(&scaled, &found, sizeof scaled);
    return scaled;
}

template <class F> inline F larger(F x, F y) { return x > y ? x : y; }

// 2**exponent of each value, 0 of zeros; subnormals have that of `low`, or 0 if there is none.
template <int V> inline typename Lane<V>::F powers(typename Lane<V>::F x, float low) {
    typedef typename Lane<V>::F F;
    typedef typename Lane<V>::I I;
    F power = (F)((I)x & (I{} + FIELD));
    if (low > 0) power = x == F{} ? F{} : larger(power, F{} + low);
    return power;
}

// Integers as float32: toward zero, or to nearest; `odd` sets the last bit where something is lost.
template <int V>
inline typename Lane<V>::F as_float(typename Lane<V>::I total, bool nearest, bool odd) {
    typedef typename Lane<V>::F F;
    typedef typename Lane<V>::I I;
    const F x = __builtin_convertvector(total, F);
    if (nearest) return x;
    const I again = __builtin_convertvector(x, I);
    I bits = (I)x + ((again < 0 ? -again : again) > (total < 0 ? -total : total));
    if (odd) bits |= (again != total) & 1;
    return (F)bits;
}

template <int V>
inline typename Lane<V>::F rounded(typename Lane<V>::I total, typename Lane<V>::F unit, const How& h) {
    typedef typename Lane<V>::F F;
    typedef typename Lane<V>::I I;
    if (h.rounding != 2) return as_float<V>(total, h.rounding == 1, false) * unit;
    const F nearly = as_float<V>(total, false, true) * unit;
    const float step = (float)1 / (float)(1 << h.acc_bits);
    const F quantum = larger((F)((I)nearly & (I{} + FIELD)), F{} + h.acc_least) * step;
    const F magic = F{} + 0x1.8p23f;
    const F whole = (nearly / quantum + magic - magic) * quantum;
    const F infinite = F{} + __builtin_inff();
    F result = whole > F{} + h.acc_largest ? infinite : whole;
    result = whole < F{} - h.acc_largest ? -infinite : result;
    return result + 0.0f;
}

// The left operand of V outputs. largest: of the products' powers. sum: of the products, each cut.
// Terms are taken in two chains, which a processor follows side by side; their order is all one.

// A row of numbers that are the same in all lanes, or each lane's own, with their powers.
template <int V, bool SAME>
struct Numbers {
    typedef typename Lane<V>::F F;
    typedef typename Lane<V>::I I;
    const float *a, *pa;

    static F at(const float* from, int64_t t) {
        return SAME ? F{} + from[t] : loaded<V>(from + t * V);
    }
    F largest(F top, const float* pb, int64_t, int64_t first, int64_t end) const {
        F other = {};
        int64_t t = first;
        for (; t + 1 < end; t += 2) {
            top = larger(top, at(pa, t) * loaded<V>(pb + t * V));
            other = larger(other, at(pa, t + 1) * loaded<V>(pb + (t + 1) * V));
        }
        if (t < end) top = larger(top, at(pa, t) * loaded<V>(pb + t * V));
        return larger(top, other);
    }
    I sum(F scale, const float* b, int64_t, int64_t first, int64_t end) const {
        I total = {}, other = {};
        int64_t t = first;
        for (; t + 1 < end; t += 2) {
            total += __builtin_convertvector(at(a, t) * loaded<V>(b + t * V) * scale, I);
            other += __builtin_convertvector(at(a, t + 1) * loaded<V>(b + (t + 1) * V) * scale, I);
        }
        if (t < end) total += __builtin_convertvector(at(a, t) * loaded<V>(b + t * V) * scale, I);
        return total + other;
    }
};

// A row of zeros and ones, the same in all lanes: where its ones are, and how many of them come
// before the end of each step.
template <int V>
struct Ones {
    typedef typename Lane<V>::F F;
    typedef typename Lane<V>::I I;
    const int32_t *terms, *ends;

    F largest(F top, const float* pb, int64_t step, int64_t, int64_t) const {
        F other = {};
        int32_t n = ends[step];
        const int32_t end = ends[step + 1];
        for (; n + 1 < end; n += 2) {
            top = larger(top, loaded<V>(pb + terms[n] * V));
            other = larger(other, loaded<V>(pb + terms[n + 1] * V));
        }
        if (n < end) top = larger(top, loaded<V>(pb + terms[n] * V));
        return larger(top, other);
    }
    I sum(F scale, const float* b, int64_t step, int64_t, int64_t) const {
        I total = {}, other = {};
        int32_t n = ends[step];
        const int32_t end = ends[step + 1];
        for (; n + 1 < end; n += 2) {
            total += __builtin_convertvector(loaded<V>(b + terms[n] * V) * scale, I);
            other += __builtin_convertvector(loaded<V>(b + terms[n + 1] * V) * scale, I);
        }
        if (n < end) total += __builtin_convertvector(loaded<V>(b + terms[n] * V) * scale, I);
        return total + other;
    }
};

// All steps of V outputs: the left operand is that of their row, b begins at the terms of a column.
// odd: not 0 in lanes that must be computed by others.
template <int V, class Left>
inline void output(const Left& left, const float* b, const float* pb, float* c,
                   typename Lane<V>::I& odd, int64_t k, const How& h) {
    typedef typename Lane<V>::F F;
    typedef typename Lane<V>::I I;
    const F one = F{} + 1.0f, least = F{} + LEAST, most = F{} + MOST;
    const I per_unit = I{} + ((h.fraction_bits + 254) << 23);
    const float per = 1.0f / (float)(1 << h.fraction_bits);
    const int64_t room = (int64_t(1) << 31) - (int64_t(1) << (h.fraction_bits + 1)) - 256;
    const bool may_overflow = (int64_t(h.length) << (h.fraction_bits + 2)) > room;
    I strange = {};
    F sums = loaded<V>(c);
    for (int64_t first = 0, step = 0; first < k; first += h.length, ++step) {
        const int64_t end = first + h.length < k ? first + h.length : k;
        F top = left.largest(powers<V>(sums, h.acc_low), pb, step, first, end);
        if (h.may_vanish) strange |= top == F{};
        if (h.floor > 0) top = larger(top, F{} + h.floor);
        const I nothing = top == F{};
        strange |= nothing & (sums != F{});
        top = nothing ? one : top;
        const I within = (top >= least) & (top <= most);
        strange |= ~within;
        top = within ? top : one;
        const F scale = (F)(per_unit - (I)top);
        I total = left.sum(scale, b, step, first, end);
        if (may_overflow) strange |= (total < 0 ? -total : total) >= (I{} + (int32_t)room);
        total += __builtin_convertvector(sums * scale, I);
        sums = rounded<V>(total, top * per, h);
    }
    std::memcpy(c, &sums, sizeof sums);
    odd |= strange;
}

// Copies V lanes of an operand [term][row][lane], and names lanes with a number that has no power.
template <int V>
void pack(const float* x, int64_t lanes, int64_t k, int64_t count, float low, float* values, float* powers_of, uint8_t* odd) {
    typedef typename Lane<V>::F F;
    typedef typename Lane<V>::I I;
    I strange = {};
    for (int64_t t = 0; t < k; ++t)
        for (int64_t row = 0; row < count; ++row) {
            const F value = loaded<V>(x + (t * count + row) * lanes);
            const F power = powers<V>(value, low);
            strange |= ((I)power == (I{} + FIELD)) | ((power == F{}) & (value != F{}));
            std::memcpy(values + (row * k + t) * V, &value, sizeof value);
            std::memcpy(powers_of + (row * k + t) * V, &power, sizeof power);
        }
    for (int lane = 0; lane < V; ++lane) odd[lane] |= strange[lane] != 0;
}

struct Sizes {
    int64_t k, m, n, lanes, a_lanes;
};

// An operand of zeros and ones, row by row: terms[row * k + ...] and ends[row * (steps + 1) + ...],
// as `Ones` takes them. Empty if it has other numbers.
struct Pattern {
    std::vector<int32_t> terms, ends;
    int64_t steps = 0;

    Pattern(const float* x, int64_t rows, int64_t k, int32_t length) {
        for (int64_t place = 0; place < rows * k; ++place)
            if (x[place] != 0.0f && x[place] != 1.0f) return;
        steps = (k + length - 1) / length;
        terms.resize(rows * k);
        ends.assign(rows * (steps + 1), 0);
        for (int64_t row = 0; row < rows; ++row) {
            int32_t count = 0;
            for (int64_t t = 0; t < k; ++t) {
                if (x[row * k + t] != 0.0f) terms[row * k + count++] = (int32_t)t;
                ends[row * (steps + 1) + t / length + 1] = count;
            }
        }
    }
};

template <int V>
void some_lanes(const float* a, const float* b, float* c, uint8_t* odd, float* scratch, const Sizes& size,
                int64_t v, const float* same, const Pattern* pattern, const How& h) {
    const int64_t left = size.k * size.m * V, right = size.k * size.n * V;
    float *A = scratch, *PA = A + left, *B = PA + left, *PB = B + right;
    uint8_t strange[V] = {};
    if (!same) pack<V>(a + v, size.lanes, size.k, size.m, h.ab_low, A, PA, strange);
    pack<V>(b + v, size.lanes, size.k, size.n, h.ab_low, B, PB, strange);
    const float* powers_of_same = same + size.k * size.m;
    typename Lane<V>::I marks = {};
    for (int64_t i = 0; i < size.m; ++i)
        for (int64_t j = 0; j < size.n; ++j) {
            float* sums = c + (i * size.n + j) * size.lanes + v;
            const float *column = B + j * size.k * V, *of_column = PB + j * size.k * V;
            const int64_t row = i * size.k;
            if (pattern)
                output<V>(Ones<V>{pattern->terms.data() + row, pattern->ends.data() + i * (pattern->steps + 1)}, column, of_column, sums, marks, size.k, h);
            else if (same)
                output<V>(Numbers<V, true>{same + row, powers_of_same + row}, column, of_column, sums, marks, size.k, h);
            else
                output<V>(Numbers<V, false>{A + row * V, PA + row * V}, column, of_column, sums, marks, size.k, h);
        }
    for (int lane = 0; lane < V; ++lane) odd[v + lane] |= strange[lane] | (marks[lane] != 0);
}

typedef uint16_t Halves __attribute__((vector_size(2 * WIDE)));

// Exchanges rows and columns of WIDE x WIDE halves, by blocks of half the size each time.
template <int SIZE = WIDE / 2>
inline void transpose(Halves* x) {
    Halves low, high;
    for (int lane = 0; lane < WIDE; ++lane) {
        low[lane] = (uint16_t)(lane & SIZE ? WIDE + lane - SIZE : lane);
        high[lane] = (uint16_t)(lane & SIZE ? WIDE + lane : lane + SIZE);
    }
    for (int row = 0; row < WIDE; ++row)
        if (!(row & SIZE)) {
            const Halves one = x[row], two = x[row + SIZE];
            x[row] = __builtin_shuffle(one, two, low);
            x[row + SIZE] = __builtin_shuffle(one, two, high);
        }
    if constexpr (SIZE > 1) transpose<SIZE / 2>(x);
}

}  // namespace

// a: [k][m][a_lanes], where a_lanes is `lanes`, or 1 if all lanes have the same; b: [k][n][lanes];
// c: [m][n][lanes]. scratch: room for 2 * 16 * k * (m + n) + 2 * k * m numbers.
extern "C" void tcusim_steps(const float* a, const float* b, float* c, uint8_t* odd, float* scratch,
                             int64_t k, int64_t m, int64_t n, int64_t lanes, int64_t a_lanes,
                             const How* how) {
    const Sizes size = {k, m, n, lanes, a_lanes};
    const float* same = nullptr;
    std::optional<Pattern> ones;
    if (a_lanes == 1 && lanes > 1) {
        uint8_t strange[1] = {};
        pack<1>(a, 1, k, m, how->ab_low, scratch, scratch + k * m, strange);
        if (strange[0]) std::memset(odd, 1, lanes);
        same = scratch;
        scratch += 2 * k * m;
        ones.emplace(same, m, k, how->length);
    }
    const Pattern* pattern = ones && ones->steps ? &*ones : nullptr;
    int64_t v = 0;
    for (; v + WIDE <= lanes; v += WIDE) some_lanes<WIDE>(a, b, c, odd, scratch, size, v, same, pattern, *how);
    for (; v < lanes; ++v) some_lanes<1>(a, b, c, odd, scratch, size, v, same, pattern, *how);
}

// Tiles one after the other, a: [tiles][m][k], b: [tiles][k][n], c: [tiles][m][n]; an operand whose
// step is 0 serves all tiles. Lanes are the columns of a tile, and odd[tile] names it. scratch: as
// for tcusim_steps with m rows and one column.
extern "C" void tcusim_tiles(const float* a, const float* b, float* c, uint8_t* odd, float* scratch,
                             int64_t tiles, int64_t a_step, int64_t b_step, int64_t k, int64_t m,
                             int64_t n, const How* how) {
    float* powers_of_a = scratch;
    float* rest = scratch + m * k;
    for (int64_t tile = 0; tile < tiles; ++tile) {
        const float *left = a + tile * a_step, *right = b + tile * b_step;
        float* sums = c + tile * m * n;
        uint8_t strange = 0;
        if (tile == 0 || a_step) {
            // Row by row it is packed already; only its powers are to be found.
            int64_t place = 0;
            for (; place + WIDE <= m * k; place += WIDE) {
                const Lane<WIDE>::F value = loaded<WIDE>(left + place);
                const Lane<WIDE>::F power = powers<WIDE>(value, how->ab_low);
                std::memcpy(powers_of_a + place, &power, sizeof power);
            }
            for (; place < m * k; ++place) powers_of_a[place] = powers<1>(loaded<1>(left + place), how->ab_low)[0];
        }
        for (int64_t place = 0; place < m * k; ++place)
            strange |= powers_of_a[place] == __builtin_inff() || (powers_of_a[place] == 0.0f && left[place] != 0.0f);
        int64_t v = 0;
        uint8_t lanes[WIDE] = {};
        const auto some = [&](auto width) {
            constexpr int V = decltype(width)::value;
            float *B = rest, *PB = rest + k * V;
            pack<V>(right + v, n, k, 1, how->ab_low, B, PB, lanes);
            typename Lane<V>::I marks = {};
            for (int64_t i = 0; i < m; ++i)
                output<V>(Numbers<V, true>{left + i * k, powers_of_a + i * k}, B, PB, sums + i * n + v, marks, k, *how);
            for (int lane = 0; lane < V; ++lane) lanes[lane] |= marks[lane] != 0;
        };
        for (; v + WIDE <= n; v += WIDE) some(std::integral_constant<int, WIDE>{});
        if constexpr (WIDE > 8)
            for (; v + 8 <= n; v += 8) some(std::integral_constant<int, 8>{});
        for (; v + 4 <= n; v += 4) some(std::integral_constant<int, 4>{});
        for (; v < n; ++v) some(std::integral_constant<int, 1>{});
        for (int lane = 0; lane < WIDE; ++lane) strange |= lanes[lane];
        odd[tile] |= strange;
    }
}

// Halves as float32, in the same order.
extern "C" void tcusim_widen(const uint16_t* x, float* y, int64_t count) {
    for (int64_t i = 0; i < count; ++i) y[i] = widened(x[i]);
}

// Few tiles, in arrays that stay where they are; one_a: an operand of one tile serves all, half_a:
// it has halves. scratch: room for the operands in float32, and for tcusim_tiles.
struct Work {
    const void *a, *b;
    float* c;
    uint8_t* odd;
    float* scratch;
    int64_t tiles, k, m, n;
    int32_t one_a, one_b, half_a, half_b;
    How how;
};

// Adds a.b to c; returns whether some tile is odd.
extern "C" int32_t tcusim_few(const Work* work) {
    const Work& w = *work;
    const int64_t size_a = w.m * w.k, size_b = w.k * w.n;
    const int64_t all_a = w.one_a ? size_a : w.tiles * size_a, all_b = w.one_b ? size_b : w.tiles * size_b;
    const float *a = (const float*)w.a, *b = (const float*)w.b;
    float* scratch = w.scratch;
    if (w.half_a) {
        tcusim_widen((const uint16_t*)w.a, scratch, all_a);
        a = scratch;
        scratch += all_a;
    }
    if (w.half_b) {
        tcusim_widen((const uint16_t*)w.b, scratch, all_b);
        b = scratch;
        scratch += all_b;
    }
    std::memset(w.odd, 0, w.tiles);
    tcusim_tiles(a, b, w.c, w.odd, scratch, w.tiles, w.one_a ? 0 : size_a, w.one_b ? 0 : size_b, w.k, w.m, w.n, &w.how);
    uint8_t any = 0;
    for (int64_t tile = 0; tile < w.tiles; ++tile) any |= w.odd[tile];
    return any;
}

// Halves of tiles [tile][row][term] as float32 with the tiles last, [term][row][tile].
extern "C" void tcusim_lanes(const uint16_t* x, float* y, int64_t tiles, int64_t rows, int64_t k) {
    if (k % WIDE == 0 && tiles % WIDE == 0) {
        for (int64_t first = 0; first < tiles; first += WIDE)
            for (int64_t row = 0; row < rows; ++row)
                for (int64_t term = 0; term < k; term += WIDE) {
                    Halves square[WIDE];
                    for (int lane = 0; lane < WIDE; ++lane)
                        std::memcpy(square + lane, x + ((first + lane) * rows + row) * k + term, sizeof *square);
                    transpose(square);
                    uint16_t halves[WIDE * WIDE];
                    float floats[WIDE * WIDE];
                    std::memcpy(halves, square, sizeof halves);
                    tcusim_widen(halves, floats, WIDE * WIDE);
                    for (int t = 0; t < WIDE; ++t)
                        std::memcpy(y + ((term + t) * rows + row) * tiles + first, floats + t * WIDE, sizeof(float) * WIDE);
                }
        return;
    }
    // Blocks of a line of each of some tiles: what is read and written stays in the first cache.
    constexpr int64_t TILES = 64, LINE = 32;
    const int64_t size = rows * k;
    for (int64_t some = 0; some < tiles; some += TILES)
        for (int64_t line = 0; line < size; line += LINE)
            for (int64_t first = some; first < tiles && first < some + TILES; first += WIDE) {
                const int64_t lanes = tiles - first < WIDE ? tiles - first : WIDE;
                for (int64_t place = line; place < size && place < line + LINE; ++place) {
                    const uint16_t* from = x + first * size + place;
                    float* to = y + (place % k * rows + place / k) * tiles + first;
                    if (lanes < WIDE) {
                        for (int64_t lane = 0; lane < lanes; ++lane) to[lane] = widened(from[lane * size]);
                        continue;
                    }
                    uint16_t halves[WIDE];
                    float floats[WIDE];
                    for (int lane = 0; lane < WIDE; ++lane) halves[lane] = from[lane * size];
                    for (int lane = 0; lane < WIDE; ++lane) floats[lane] = widened(halves[lane]);
                    std::memcpy(to, floats, sizeof floats);
                }
            }
}

// --- Every other rule ---------------------------------------------------------------------------

// Tiles one after the other, as tcusim_rule_tile has them; the steps from one to the next are bytes,
// 0 of an operand that serves all.
extern "C" void tcusim_by_rule(const tcusim_rule* rule, int64_t tiles, int64_t m, int64_t n, int64_t k, void* d,
                               const void* a, const void* b, const void* c, int64_t a_step, int64_t b_step,
                               int64_t c_step) {
    std::vector<tcusim_number> scratch((m + n) * k);
    for (int64_t tile = 0; tile < tiles; ++tile)
        tcusim_rule_tile(rule, (int32_t)m, (int32_t)n, (int32_t)k, (char*)d + tile * m * n * rule->c.bytes,
                         (const char*)a + tile * a_step, (const char*)b + tile * b_step,
                         (const char*)c + tile * c_step, nullptr, nullptr, scratch.data());
}
