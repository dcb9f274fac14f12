"""Record the results of single tensor-core instructions on this machine's H100 or H200.

Usage: ``python record_instructions.py FILE``, with NumPy, CuPy and nvcc. FILE gets, for each case
``FAMILY_TYPE_RESULT_OPERANDS_ACCUMULATOR``, the bits of A (tiles, m, k), B (tiles, k, n), C and D
(tiles, m, n), D = A B + C, 8-bit floats as float16: FAMILY is "sync" (one mma.sync m16n8) or "wg"
(two wgmma m64n8, one after the other on one accumulator, so that k is twice theirs).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]

# Bits of an element, and those of its exponent.
TYPES = {
    "e4m3": (8, 0x78), "e5m2": (8, 0x7C), "f16": (16, 0x7C00), "bf16": (16, 0x7F80),
    "tf32": (32, 0x7F800000),
}  # fmt: skip
INSTRUCTIONS = (
    "sync_e4m3_f32", "sync_e5m2_f32", "sync_e4m3_f16", "sync_e5m2_f16", "sync_bf16_f32",
    "sync_tf32_f32", "wg_tf32_f32", "wg_e4m3_f32", "wg_e5m2_f32", "wg_e4m3_f16", "wg_e5m2_f16",
    "wg_bf16_f32", "wg_f16_f32", "wg_f16_f16",
)  # fmt: skip
# Every operand type fills rows of 32 bytes, so that one layout serves all: [PTX], and of B in
# shared memory, two core matrices of 8 rows of 16 bytes.
KERNEL = """
extern "C" __global__ void {name}(
    const unsigned* a, const unsigned* b, const unsigned* c, unsigned* d
) {{
    int lane = threadIdx.x, block = blockIdx.x, count = {registers};
    c += (block * blockDim.x + lane) * count;
    d += (block * blockDim.x + lane) * count;
    unsigned r[4] = {{c[0], c[1], count > 2 ? c[2] : 0, count > 2 ? c[3] : 0}};
    {body}
    for (int i = 0; i < count; ++i) d[i] = r[i];
}}
"""
SYNC = """
    a += (block * 32 + lane) * 4;
    b += (block * 32 + lane) * 2;
    asm volatile("mma.sync.aligned.{shape}.row.col.{acc}.{ab}.{ab}.{acc} "
                 "{d}, {{%4,%5,%6,%7}}, {{%8,%9}}, {d};"
                 : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
"""
WGMMA = """
    __shared__ __align__(1024) unsigned tile[2][64];
    tile[lane / 64][lane % 64] = b[block * 128 + lane];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long at[2];
    for (int i = 0; i < 2; ++i) {{
        unsigned start = (unsigned)__cvta_generic_to_shared(tile[i]);
        at[i] = start >> 4 | 128ull >> 4 << 16 | 128ull >> 4 << 32;
    }}
    const unsigned* x = a + (block * 256 + lane) * 4;
    const unsigned* y = x + 512;
    asm volatile("wgmma.fence.sync.aligned;"
                 "wgmma.mma_async.sync.aligned.{shape}.{acc}.{ab}.{ab} "
                 "{d}, {{%4,%5,%6,%7}}, %12, 1, 1, 1{tail};"
                 "wgmma.mma_async.sync.aligned.{shape}.{acc}.{ab}.{ab} "
                 "{d}, {{%8,%9,%10,%11}}, %13, 1, 1, 1{tail};"
                 "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
                 : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "r"(y[2]),
                   "r"(y[3]), "l"(at[0]), "l"(at[1]) : "memory");
"""

LANE = np.arange(32)
G, T = LANE >> 2, LANE & 3


def source() -> str:
    """Return a kernel for each instruction."""
    texts = []
    for name in INSTRUCTIONS:
        family, ab, acc = name.split("_")
        registers = 4 if acc == "f32" else 2
        shape = f"m{16 if family == 'sync' else 64}n8k{256 // TYPES[ab][0]}"
        d = "{" + ",".join(f"%{i}" for i in range(registers)) + "}"
        tail = ", 0" if TYPES[ab][0] == 16 else ""
        body = (SYNC if family == "sync" else WGMMA).format(
            shape=shape, ab=ab, acc=acc, d=d, tail=tail
        )
        if acc == "f32":
            body = body.replace('"+r"(r[', '"+f"(((float*)r)[')
        texts.append(KERNEL.format(name=name, registers=registers, body=body))
    return "".join(texts)


def operands(rng: np.random.Generator, ab: str, kind: str, shape: tuple[int, ...]) -> Bits:
    """Draw bits of a kind: near 1, any finite ones ("wide"), or any at all ("special")."""
    size, exponent = TYPES[ab]
    dtype = np.dtype(f"u{size // 8}")
    bits = rng.integers(0, 2**size, shape, dtype=np.uint64).astype(dtype)
    if kind == "normal" and size > 8:
        single = rng.standard_normal(shape).astype(np.float32)
        bits = single.astype(np.float16).view(np.uint16) if ab == "f16" else single.view(np.uint32)
        bits = bits >> 16 if ab == "bf16" else bits
    elif kind == "normal":
        low, high = (0x20, 0x50) if ab == "e4m3" else (0x30, 0x48)
        bits = rng.integers(low, high, shape) | rng.integers(0, 2, shape) << 7
    elif kind == "wide":
        # The upper half of the largest exponent's values is Inf and NaN, or NaN in e4m3.
        bits[(bits & exponent) == exponent] ^= dtype.type(exponent & -exponent)
    return (bits.astype(dtype) & (0xFFFF_E000 if ab == "tf32" else 2**size - 1)).astype(dtype)


def factors(
    rng: np.random.Generator, ab: str, kind: str, sizes: tuple[int, int, int]
) -> tuple[Bits, Bits]:
    """Draw A and B; of kind "zerohuge", every second product is a huge number times zero."""
    tiles, m, k = sizes
    if kind != "zerohuge":
        return operands(rng, ab, kind, (tiles, m, k)), operands(rng, ab, kind, (tiles, k, 8))
    a, b = (rng.standard_normal(s) * 2.0**-14 for s in ((tiles, m, k), (tiles, k, 8)))
    a[:, :, 1::2], b[:, 1::2] = 2.0**60, 0.0
    first, second = (x.astype(np.float32).view(np.uint32) & 0xFFFF_E000 for x in (a, b))
    if ab == "bf16":
        return (first >> 16).astype(np.uint16), (second >> 16).astype(np.uint16)
    return first, second


def words(x: Bits) -> Bits:
    return np.ascontiguousarray(x).view(np.uint32)


def lanes_of_a(a: Bits) -> Bits:
    """Return the registers of (warps, 16, k) as (warps, 32, 4)."""
    w = words(a)
    return np.stack([w[:, G, T], w[:, G + 8, T], w[:, G, T + 4], w[:, G + 8, T + 4]], -1)


def lanes_of_b(b: Bits) -> Bits:
    """Return the registers of (warps, k, 8) as (warps, 32, 2)."""
    w = words(b.transpose(0, 2, 1))
    return np.stack([w[:, G, T], w[:, G, T + 4]], -1)


def core_matrices(b: Bits) -> Bits:
    """Return (tiles, k, 8) as (tiles, 64) words, as wgmma finds it in shared memory."""
    w = words(b.transpose(0, 2, 1)).reshape(-1, 8, 2, 4)
    return np.ascontiguousarray(w.transpose(0, 2, 1, 3)).reshape(-1, 64)


def lanes_of_c(c: Bits) -> Bits:
    """Return the registers of (warps, 16, 8); float16 numbers lie two in one."""
    parts = [c[:, G, 2 * T], c[:, G, 2 * T + 1], c[:, G + 8, 2 * T], c[:, G + 8, 2 * T + 1]]
    wide = np.stack(parts, -1)
    return wide if c.dtype == np.uint32 else words(wide).reshape(*wide.shape[:2], 2)


def from_lanes(registers: Bits, acc: str) -> Bits:
    """Return the matrices (warps, 16, 8) of the registers from `lanes_of_c`."""
    parts = registers if acc == "f32" else np.ascontiguousarray(registers).view(np.uint16)
    c = np.zeros((len(parts), 16, 8), parts.dtype)
    for i, (row, column) in enumerate(((G, 2 * T), (G, 2 * T + 1), (G + 8, 2 * T))):
        c[:, row, column] = parts[..., i]
    c[:, G + 8, 2 * T + 1] = parts[..., 3]
    return c


def cases(rng: np.random.Generator) -> Iterator[tuple[str, str, Bits, Bits, Bits]]:
    """Yield a case's name, its instruction, A, B and C."""
    for name in INSTRUCTIONS:
        family, ab, acc = name.split("_")
        tiles, m, k = (
            (4, 16, 256 // TYPES[ab][0]) if family == "sync" else (1, 64, 512 // TYPES[ab][0])
        )
        for kind in ("normal", "wide", "zerohuge", "special"):
            if kind == "zerohuge" and ab not in ("bf16", "tf32"):
                continue
            for addend in ("zero", "normal") if kind == "wide" else ("normal",):
                a, b = factors(rng, ab, kind, (tiles, m, k))
                c = rng.standard_normal((tiles, m, 8)) * 2.0 ** rng.integers(-12, 6, (tiles, m, 8))
                c = (c * (addend != "zero")).astype(np.float32 if acc == "f32" else np.float16)
                yield f"{name}_{kind}_{addend}", name, a, b, c.view(f"u{c.itemsize}")


def run(function: Any, name: str, a: Bits, b: Bits, c: Bits) -> Bits:
    """Return D of one case."""
    import cupy

    family, _, acc = name.split("_")
    registers, threads = lanes_of_c(c.reshape(-1, 16, 8)), 32
    if family == "sync":
        left, right = lanes_of_a(a), lanes_of_b(b)
    else:
        half, threads = a.shape[2] // 2, 128
        halves = np.stack([a[:, :, :half], a[:, :, half:]], 1)
        left = lanes_of_a(halves.reshape(-1, 16, half))
        right = core_matrices(np.stack([b[:, :half], b[:, half:]], 1).reshape(-1, half, 8))
    d = cupy.zeros(registers.shape, np.uint32)
    inputs = [cupy.asarray(np.ascontiguousarray(x)) for x in (left, right, registers)]
    function((len(a),), (threads,), (*inputs, d))
    return from_lanes(cupy.asnumpy(d), acc).reshape(c.shape)


def stored(bits: Bits, ab: str) -> Bits:
    """Return 8-bit floats as the bits of float16, exactly; others as they are."""
    if ab not in ("e4m3", "e5m2"):
        return bits
    wide = bits.astype(np.uint16)
    if ab == "e5m2":
        return wide << 8
    # The fields of e4m3 read as float16 are 2**-8 times the number.
    half = ((wide & 0x80) << 8 | (wide & 0x7F) << 7).view(np.float16) * np.float16(256)
    return np.where((wide & 0x7F) == 0x7F, np.float16(np.nan), half).view(np.uint16)


def main(target: Path) -> None:
    """Compile, run and write all cases."""
    import cupy

    arrays: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = Path(folder, "one.cu"), Path(folder, "one.cubin")
        text.write_text(source())
        subprocess.run(["nvcc", "-cubin", "-arch=sm_90a", "-o", cubin, text], check=True)
        module = cupy.RawModule(path=str(cubin))
        for case, name, a, b, c in cases(np.random.default_rng(20261122)):
            d = run(module.get_function(name), name, a, b, c)
            ab = name.split("_")[1]
            parts = (stored(a, ab), stored(b, ab), c, d)
            arrays |= {f"{case}_{part}": x for part, x in zip("ABCD", parts, strict=True)}
    np.savez_compressed(target, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
