"""The kernels of `tcusim microbench`, as CUDA C++: one text for each probe, which compiles alone.

Every timed kernel takes its number of rounds as an argument, so that no loop is known when it is
compiled, and stores its results under a condition that never holds, so that nothing is
optimized away. Times of a warp are two of `clock64`, of its first lane, before and after.
"""

from __future__ import annotations

from typing import Final

from tcusim.machine import format_of
from tcusim.machine.shapes import MmaShape
from tcusim_cuda.emit import FRAGMENT_TYPES
from tcusim_cuda.text import C_TYPES

__all__ = [
    "A_ROUND",
    "BARRIER",
    "BESIDE",
    "CLOCK",
    "EMPTY",
    "FLAGS",
    "LOADED",
    "LOADED_TEXT",
    "LOADS",
    "READ_BYTES",
    "READ_ONLY",
    "READ_THREADS",
    "READ_WIDTHS",
    "SHARED",
    "SHARED_THREADS",
    "SHUFFLE",
    "WMMA_TYPES",
    "WRITE_WIDTHS",
    "mma_text",
]

# Instructions of one kind in a round of a loop: enough that the loop itself costs nothing.
A_ROUND: Final = 16
# Accumulators of a warp, for independent products.
BESIDE: Final = 4
# Threads of the largest block that reads shared memory: more have too few registers for a round.
SHARED_THREADS: Final = 512

_HEAD: Final = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
typedef unsigned int u32;
typedef unsigned long long u64;
#define KERNEL extern "C" __global__ void
__device__ inline long long now() { return clock64(); }
__device__ inline void told(long long* times, long long start, long long stop)
{
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) { times[2 * warp] = start; times[2 * warp + 1] = stop; }
}
"""

# --- Products -----------------------------------------------------------------------------------

# The types of WMMA without its experimental part.
WMMA_TYPES: Final = ("f16", "bf16", "tf32", "f64", "s8", "u8")

_MMA: Final = """
template <int CHAINS>
__device__ inline void multiply(long long* times, u32* sink, int rounds, u32 seed)
{{
    {operands}
    {accumulator} d[CHAINS];
    {begin}
    const long long start = now();
    for (int i = 0; i < rounds; ++i) {{
        #pragma unroll
        for (int j = 0; j < {unroll} / CHAINS; ++j) {{
            #pragma unroll
            for (int c = 0; c < CHAINS; ++c) {{ {product} }}
        }}
    }}
    const long long stop = now();
    told(times, start, stop);
    {end}
}}
KERNEL chain(long long* times, u32* sink, int rounds, u32 seed)
{{ multiply<1>(times, sink, rounds, seed); }}
KERNEL beside(long long* times, u32* sink, int rounds, u32 seed)
{{ multiply<{chains}>(times, sink, rounds, seed); }}
"""


def mma_text(shape: MmaShape, ab: str, acc: str, family: str) -> str:
    """Return kernels `chain` and `beside`: products that wait for each other, and that do not.

    A round has `A_ROUND` products.
    """
    parts = _wmma(shape, ab, acc) if family == "wmma" else _mma_sync(shape, ab, acc)
    return _HEAD + _MMA.format(unroll=A_ROUND, chains=BESIDE, **parts)


def _wmma(shape: MmaShape, ab: str, acc: str) -> dict[str, str]:
    sizes, kind = f"{shape.m}, {shape.n}, {shape.k}", FRAGMENT_TYPES[ab]
    one = f"static_cast<{C_TYPES[ab]}>(static_cast<float>(seed))"
    zero = f"static_cast<{C_TYPES[acc]}>(0.0f)"
    return {
        "operands": (
            f"wmma::fragment<wmma::matrix_a, {sizes}, {kind}, wmma::row_major> a;\n"
            f"    wmma::fragment<wmma::matrix_b, {sizes}, {kind}, wmma::col_major> b;\n"
            f"    wmma::fill_fragment(a, {one});\n"
            f"    wmma::fill_fragment(b, {one});"
        ),
        "accumulator": f"wmma::fragment<wmma::accumulator, {sizes}, {C_TYPES[acc]}>",
        "begin": f"for (int c = 0; c < CHAINS; ++c) wmma::fill_fragment(d[c], {zero});",
        "product": "wmma::mma_sync(d[c], a, b, d[c]);",
        "end": (
            "float all = 0;\n"
            "    for (int c = 0; c < CHAINS; ++c)\n"
            "        for (int e = 0; e < d[c].num_elements; ++e) "
            "all += static_cast<float>(d[c].x[e]);\n"
            "    if (all == 12345.0f) sink[0] = 1;"
        ),
    }


def _mma_sync(shape: MmaShape, ab: str, acc: str) -> dict[str, str]:
    """Return the parts of a text with the instruction itself, on registers that hold the seed."""
    # A double has registers of its own kind, any other type those of 32 bits.
    width, kind, at = (64, "double", "d") if ab == "f64" else (32, "u32", "r")
    bits, acc_bits = 8 * format_of(ab).itemsize, 8 * format_of(acc).itemsize
    a = shape.m * shape.k * bits // (32 * width)
    b = shape.k * shape.n * bits // (32 * width)
    d = shape.m * shape.n * acc_bits // (32 * width)
    name = f"mma.sync.aligned.{shape.ptx}.row.col.{acc}.{ab}.{ab}.{acc}"

    def numbered(first: int, count: int) -> str:
        return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"

    places = ", ".join([numbered(0, d), numbered(d, a), numbered(d + a, b), numbered(0, d)])
    outputs = ", ".join(f'"+{at}"(d[c].x[{i}])' for i in range(d))
    # Where a GPU has no such instruction, several stand for it; some would be done once for all.
    changing = "a[0] += 1; " if ab in ("e4m3", "e5m2") else ""
    inputs = ", ".join(
        f'"{at}"({which}[{i}])' for which, count in (("a", a), ("b", b)) for i in range(count)
    )
    return {
        "operands": (
            f"struct Tile {{ {kind} x[{d}]; }};\n"
            f"    {kind} a[{a}], b[{b}];\n"
            f"    for (int i = 0; i < {a}; ++i) a[i] = seed;\n"
            f"    for (int i = 0; i < {b}; ++i) b[i] = seed;"
        ),
        "accumulator": "Tile",
        "begin": (
            f"for (int c = 0; c < CHAINS; ++c) for (int i = 0; i < {d}; ++i) d[c].x[i] = seed;"
        ),
        "product": f'{changing}asm volatile("{name} {places};" : {outputs} : {inputs});',
        "end": (
            f"{kind} all = 0;\n"
            f"    for (int c = 0; c < CHAINS; ++c) for (int i = 0; i < {d}; ++i) "
            "all += d[c].x[i];\n"
            "    if (all == 12345) sink[0] = 1;"
        ),
    }


# --- Lanes and barriers ---------------------------------------------------------------------------


def _loop(body: str, name: str, setup: str, end: str, threads: int = 0) -> str:
    """Return a kernel that times a loop; `body` is one round, in which `j` counts the copies.

    threads: of a block, at most, where a thread has to do with few registers.
    """
    bounds = f"__launch_bounds__({threads}, 1) " if threads else ""
    return f"""
KERNEL {bounds}{name}(long long* times, u32* sink, int rounds, u32 seed)
{{
    {setup}
    const long long start = now();
    for (int i = 0; i < rounds; ++i) {{
        #pragma unroll
        for (int j = 0; j < {A_ROUND}; ++j) {{ {body} }}
    }}
    const long long stop = now();
    told(times, start, stop);
    {end}
}}
"""


_STORED: Final = "if (x == 12345u) sink[0] = x;"

SHUFFLE: Final = (
    _HEAD
    + _loop(
        "x = __shfl_xor_sync(0xffffffffu, x, 1);",
        "shuffle_chain",
        "u32 x = seed + threadIdx.x;",
        _STORED,
    )
    + _loop(
        f"x[j % {BESIDE}] = __shfl_xor_sync(0xffffffffu, x[j % {BESIDE}], 1);",
        "shuffle_beside",
        f"u32 x[{BESIDE}];\n"
        f"    for (int c = 0; c < {BESIDE}; ++c) x[c] = seed + threadIdx.x * (c + 1);",
        "if ((x[0] ^ x[1] ^ x[2] ^ x[3]) == 12345u) sink[0] = 1;",
    )
    + _loop(
        "x = __fadd_rn(x, one);",
        "add_chain",
        "float x = seed, one = __uint_as_float(seed + threadIdx.x);",
        "if (x == 12345.0f) sink[0] = 1;",
    )
    + _loop(
        "x = __shfl_xor_sync(0xffffffffu, x, 1) + x;",
        "shuffle_add_chain",
        "float x = seed + threadIdx.x;",
        "if (x == 12345.0f) sink[0] = 1;",
    )
)

BARRIER: Final = (
    _HEAD
    + _loop("__syncthreads();", "block_barrier", "u32 x = seed;", _STORED)
    + _loop("__syncwarp(); x = x * 3 + 1; __syncwarp();", "warp_barrier", "u32 x = seed;", _STORED)
)

# --- Shared memory ------------------------------------------------------------------------------


def _shared_width(words: int) -> str:
    """Return a kernel whose lanes read neighbouring vectors of 32-bit words."""
    to = ", ".join(f'"=r"(v[{i}])' for i in range(words))
    names = "{" + ", ".join(f"%{i}" for i in range(words)) + "}" if words > 1 else "%0"
    kind = f".v{words}.u32" if words > 1 else ".u32"
    body = (
        f'u32 v[{words}]; asm volatile("ld.volatile.shared{kind} {names}, [%{words}];" : {to} '
        f': "r"(at + {4 * words * 32} * (j % 4))); x ^= v[0];'
    )
    setup = (
        "__shared__ __align__(16) u32 s[2048 + 512];\n"
        "    for (int e = threadIdx.x; e < 2560; e += blockDim.x) s[e] = seed;\n"
        "    __syncthreads();\n"
        f"    const u32 at = (u32)__cvta_generic_to_shared(s) + {4 * words} * (threadIdx.x % 32);\n"
        "    u32 x = 0;"
    )
    return _loop(body, f"shared_read_{4 * words}", setup, _STORED, SHARED_THREADS)


def _shared_strided(stride: int) -> str:
    """Return a kernel whose lanes read words that lie `stride` words apart."""
    body = (
        'u32 v; asm volatile("ld.volatile.shared.u32 %0, [%1];" '
        ': "=r"(v) : "r"(at + 4 * (j % 4))); x ^= v;'
    )
    setup = (
        "__shared__ __align__(16) u32 s[1024 + 32];\n"
        "    for (int e = threadIdx.x; e < 1056; e += blockDim.x) s[e] = seed;\n"
        "    __syncthreads();\n"
        f"    const u32 at = (u32)__cvta_generic_to_shared(s) + {4 * stride} * (threadIdx.x % 32);"
        "\n    u32 x = 0;"
    )
    return _loop(body, f"shared_stride_{stride}", setup, _STORED, SHARED_THREADS)


_SHARED_HALVES: Final = _loop(
    'unsigned short v; asm volatile("ld.volatile.shared.u16 %0, [%1];" '
    ': "=h"(v) : "r"(at + 64 * (j % 4)));'
    " x ^= v;",
    "shared_read_2",
    "__shared__ __align__(16) u32 s[1024];\n"
    "    for (int e = threadIdx.x; e < 1024; e += blockDim.x) s[e] = seed;\n"
    "    __syncthreads();\n"
    "    const u32 at = (u32)__cvta_generic_to_shared(s) + 2 * (threadIdx.x % 32);\n"
    "    u32 x = 0;",
    _STORED,
    SHARED_THREADS,
)

_SHARED_CHASE: Final = _loop(
    'asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(x) : "r"(x));',
    "shared_chase",
    "__shared__ u32 s[32];\n"
    "    const u32 own = (u32)__cvta_generic_to_shared(&s[threadIdx.x % 32]);\n"
    "    s[threadIdx.x % 32] = own;\n"
    "    __syncwarp();\n"
    "    u32 x = own;",
    _STORED,
)

SHARED: Final = "".join(
    [
        _HEAD,
        _SHARED_CHASE,
        _SHARED_HALVES,
        *(_shared_width(words) for words in (1, 2, 4)),
        *(_shared_strided(stride) for stride in (1, 2, 4, 32)),
    ]
)

# --- Global memory ------------------------------------------------------------------------------

READ_THREADS: Final = 256
_READ_LOADS: Final = 8
# Each thread has eight loads of 16 bytes in flight; the store keeps them from being left out.
READ_ONLY: Final = f"""
extern "C" __global__ void read_only(const uint4* data, unsigned int* never)
{{
    const long long first = blockIdx.x * {READ_THREADS * _READ_LOADS}ll + threadIdx.x;
    unsigned int all = 0;
    #pragma unroll
    for (int k = 0; k < {_READ_LOADS}; ++k) {{
        const uint4 v = data[first + k * {READ_THREADS}];
        all ^= v.x ^ v.y ^ v.z ^ v.w;
    }}
    if (all == 0x12345678u) never[0] = all;
}}
"""
READ_BYTES: Final = 16 * READ_THREADS * _READ_LOADS

# A chain of addresses through `lines` lines of 128 bytes, by steps of `step` lines; and one lane
# that follows it. The second level of the cache serves loads with .cg.
LOADS: Final = (
    _HEAD
    + """
KERNEL link(u64* data, u64 lines, u64 step)
{
    const u64 line = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    if (line < lines) data[16 * line] = (u64)(data + 16 * ((line + step) % lines));
}
KERNEL follow(long long* times, u32* sink, int rounds, const u64* data)
{
    u64 at = (u64)data;
    const long long start = now();
    for (int i = 0; i < rounds; ++i)
        asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(at) : "l"(at));
    const long long stop = now();
    told(times, start, stop);
    if (at == 12345u) sink[0] = 1;
}
"""
)


def _loaded(loads: int) -> str:
    """Return a kernel whose threads hold `loads` loads of 16 bytes at a time, and no more."""
    return f"""
KERNEL loaded_{loads}(const uint4* data, u32* sink, u64 vectors)
{{
    const u64 threads = gridDim.x * (u64)blockDim.x;
    u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    u32 all = 0;
    for (; at + {loads - 1} * threads < vectors; at += {loads} * threads) {{
        uint4 v[{loads}];
        #pragma unroll
        for (int k = 0; k < {loads}; ++k)
            asm volatile("ld.global.cg.v4.u32 {{%0, %1, %2, %3}}, [%4];"
                : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w)
                : "l"(data + at + k * threads));
        #pragma unroll
        for (int k = 0; k < {loads}; ++k) all ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }}
    if (all == 0x12345678u) sink[0] = 1;
}}
KERNEL again_{loads}(const uint4* data, u32* sink, u64 vectors, int rounds)
{{
    const u64 threads = gridDim.x * (u64)blockDim.x;
    const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    u32 all = 0;
    for (int i = 0; i < rounds; ++i)
        for (u64 at = first; at + {loads - 1} * threads < vectors; at += {loads} * threads) {{
            uint4 v[{loads}];
            #pragma unroll
            for (int k = 0; k < {loads}; ++k)
                asm volatile("ld.global.cg.v4.u32 {{%0, %1, %2, %3}}, [%4];"
                    : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w)
                    : "l"(data + at + k * threads));
            #pragma unroll
            for (int k = 0; k < {loads}; ++k) all ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
        }}
    if (all == 0x12345678u) sink[0] = 1;
}}
"""


# How many loads a thread holds, in the kernels `loaded_N`, which read an array once, and `again_N`,
# which do so several times.
LOADED: Final = (1, 2, 4, 8)
LOADED_TEXT: Final = _HEAD + "".join(map(_loaded, LOADED))

# Words that lanes read and write in streams: their types by bytes.
_WORDS: Final = {2: "unsigned short", 4: "u32", 8: "uint2", 16: "uint4"}


def _read_width(size: int) -> str:
    kind = _WORDS[size]
    # A number that the words can make, or all of it would be left out.
    never = "0x1234u" if size == 2 else "0x12345678u"
    take = {8: "v[k].x ^ v[k].y", 16: "v[k].x ^ v[k].y ^ v[k].z ^ v[k].w"}.get(size, "v[k]")
    return f"""
KERNEL read_{size}(const {kind}* __restrict__ data, u32* sink, u64 count)
{{
    const u64 first = blockIdx.x * (u64)(8 * blockDim.x) + threadIdx.x;
    if (first + 7 * blockDim.x >= count) return;
    {kind} v[8];
    u32 all = 0;
    #pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = data[first + k * blockDim.x];
    #pragma unroll
    for (int k = 0; k < 8; ++k) all ^= {take};
    if (all == {never}) sink[0] = 1;
}}
"""


def _write_width(size: int) -> str:
    kind = _WORDS[size]
    made = {8: "make_uint2(seed, seed)", 16: "make_uint4(seed, seed, seed, seed)"}.get(size, "seed")
    return f"""
KERNEL write_{size}({kind}* data, u32 seed, u64 count)
{{
    const u64 first = blockIdx.x * (u64)(8 * blockDim.x) + threadIdx.x;
    if (first + 7 * blockDim.x >= count) return;
    #pragma unroll
    for (int k = 0; k < 8; ++k) data[first + k * blockDim.x] = {made};
}}
"""


# Kernels `read_N` and `write_N`, whose lanes move neighbouring words of N bytes, eight each.
READ_WIDTHS: Final = _HEAD + "".join(map(_read_width, _WORDS))
WRITE_WIDTHS: Final = _HEAD + "".join(map(_write_width, _WORDS))

# --- Launches and blocks --------------------------------------------------------------------------

EMPTY: Final = _HEAD + "KERNEL empty(u32* sink) {}\n"

# Two blocks answer each other through a word in the second-level cache. Neither waits for ever.
FLAGS: Final = (
    _HEAD
    + """
KERNEL answer(long long* times, u32* flag, int rounds)
{
    const u32 me = blockIdx.x;
    volatile u32* word = flag;
    const long long start = now();
    for (u32 i = 0; i < (u32)rounds; ++i) {
        int polls = 0;
        while (*word != 2 * i + me) if (++polls > 1000000) return;
        *word = 2 * i + me + 1;
    }
    const long long stop = now();
    told(times, start, stop);
}
"""
)

# How many cycles pass in how many nanoseconds, while all cores multiply.
CLOCK: Final = (
    _HEAD
    + """
__device__ inline long long nanoseconds()
{
    long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
KERNEL ticks(long long* found, u32* sink, int rounds, u32 seed)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> d[4];
    wmma::fill_fragment(a, __float2half(seed * (threadIdx.x % 7) * 0.1f));
    wmma::fill_fragment(b, __float2half(seed * 0.01f));
    for (int c = 0; c < 4; ++c) wmma::fill_fragment(d[c], 0.0f);
    const long long t0 = nanoseconds(), c0 = now();
    for (int i = 0; i < rounds; ++i)
        for (int c = 0; c < 4; ++c) wmma::mma_sync(d[c], a, b, d[c]);
    const long long c1 = now(), t1 = nanoseconds();
    if (threadIdx.x == 0) { found[2 * blockIdx.x] = c1 - c0; found[2 * blockIdx.x + 1] = t1 - t0; }
    float all = 0;
    for (int c = 0; c < 4; ++c) for (int e = 0; e < 8; ++e) all += d[c].x[e];
    if (all == 12345.0f) sink[0] = 1;
}
"""
)
