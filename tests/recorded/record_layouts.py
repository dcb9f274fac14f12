"""Record the lane of each element of a fragment, on this machine's GPU.

Usage: ``python tests/recorded/record_layouts.py --out FILE``, with NumPy, CuPy and nvcc; a source
tree of tcusim is enough. FILE gets int16 arrays of two kinds, for every row of the table of shapes
that the GPU has (of b1 and 4-bit integers too):

``wmma_TYPE_SHAPE_OPERAND_ORDER`` (32 lanes, elements of a lane): the number, row * columns +
column, of the element that `wmma::load_matrix_sync` puts into ``fragment.x[i]`` of a lane. TYPE is
the element type of OPERAND, which is a, b or c; ORDER, row or col, is how the matrix lies in
memory. Every bit of the number is a matrix of zeros and ones, so that every type can hold it.

``mma_TYPE_ACCUMULATOR_SHAPE_ORDERS_PART`` (tries, 32 lanes, elements of a lane): small random
numbers in the registers of one `mma.sync`, PART a, b and c, and its results, PART d. They tell
whether a layout is right: matrices made of a, b, c and d by it have D = A B + C.

``about`` names the GPU, the driver and the compiler.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tcusim.machine.shapes import Operands, shapes  # noqa: E402

Numbers = NDArray[Any]

LANES = 32
TRIES = 4
# Bytes of a lane's part of a fragment, at most.
SLOT = 64
# By element type: its bits, its name in C++, and the type behind a pointer to it.
TYPES = {
    "f16": (16, "half", "half"),
    "bf16": (16, "__nv_bfloat16", "__nv_bfloat16"),
    "tf32": (32, "wmma::precision::tf32", "float"),
    "f32": (32, "float", "float"),
    "f64": (64, "double", "double"),
    "s8": (8, "signed char", "signed char"),
    "u8": (8, "unsigned char", "unsigned char"),
    "s4": (4, "wmma::experimental::precision::s4", "void"),
    "u4": (4, "wmma::experimental::precision::u4", "void"),
    "b1": (1, "wmma::experimental::precision::b1", "void"),
    "s32": (32, "int", "int"),
    "e4m3": (8, "", ""),
    "e5m2": (8, "", ""),
}  # fmt: skip
WMMA = """
extern "C" __global__ void {name}(
    const unsigned char* matrix, unsigned char* out, int* size
) {{
    wmma::fragment<wmma::{use}, {m}, {n}, {k}, {type}{order}> f;
    const void* here = matrix + blockIdx.x * {bytes};
    wmma::load_matrix_sync(f, (const {pointer}*)here, {ldm}{memory});
    const unsigned char* x = (const unsigned char*)f.x;
    out += (blockIdx.x * 32 + threadIdx.x) * {slot};
    static_assert(sizeof(f.x) <= {slot}, "a fragment needs a larger slot");
    for (int i = 0; i < sizeof(f.x); ++i) out[i] = x[i];
    *size = sizeof(f.x);
}}
"""
MMA = """
extern "C" __global__ void {name}(
    const {word}* a, const {word}* b, const {sum}* c, {sum}* d
) {{
    int lane = blockIdx.x * 32 + threadIdx.x;
    a += lane * {na}; b += lane * {nb}; c += lane * {nc}; d += lane * {nc};
    {sum} r[{nc}];
    for (int i = 0; i < {nc}; ++i) r[i] = c[i];
    asm volatile("mma.sync.aligned.{ptx} {d}, {a}, {b}, {d};" : {outputs} : {inputs});
    for (int i = 0; i < {nc}; ++i) d[i] = r[i];
}}
"""


@dataclass(frozen=True)
class Load:
    """A `load_matrix_sync`: element type, shape, operand (a, b or c) and order in memory."""

    dtype: str
    shape: tuple[int, int, int]
    operand: str
    order: str

    @property
    def name(self) -> str:
        return f"wmma_{self.dtype}_{_text(self.shape)}_{self.operand}_{self.order}"

    @property
    def sizes(self) -> tuple[int, int]:
        m, n, k = self.shape
        return {"a": (m, k), "b": (k, n), "c": (m, n)}[self.operand]

    def source(self) -> str:
        """Return a kernel: its block p loads matrix p."""
        bits, kind, pointer = TYPES[self.dtype]
        rows, cols = self.sizes
        whole = f"wmma::{self.order}_major"
        return WMMA.format(
            name=self.name,
            use={"a": "matrix_a", "b": "matrix_b", "c": "accumulator"}[self.operand],
            **dict(zip("mnk", self.shape, strict=True)),
            type=kind,
            order="" if self.operand == "c" else f", {whole}",
            bytes=rows * cols * bits // 8,
            slot=SLOT,
            pointer=pointer,
            ldm=cols if self.order == "row" else rows,
            memory=f", wmma::mem_{self.order}_major" if self.operand == "c" else "",
        )

    def run(self, function: Any) -> Numbers:
        """Return the number of each lane's elements."""
        rows, cols = self.sizes
        count = (rows * cols - 1).bit_length()
        number = np.arange(rows * cols).reshape(rows, cols)
        planes = np.stack([number >> bit & 1 for bit in range(count)])
        if self.order == "col":
            planes = planes.transpose(0, 2, 1)
        import cupy

        content = cupy.asarray(packed(planes.reshape(count, -1), self.dtype))
        held = cupy.zeros((count, LANES, SLOT), np.uint8)
        size = cupy.zeros(1, np.int32)
        function((count,), (LANES,), (content, held, size))
        values = unpacked(cupy.asnumpy(held)[:, :, : int(size[0])], self.dtype)
        return np.asarray(sum(plane << bit for bit, plane in enumerate(values)), np.int16)


@dataclass(frozen=True)
class Multiply:
    """An `mma.sync`: types, shape, and the orders of a and b."""

    row: Operands
    shape: tuple[int, int, int]
    orders: tuple[str, str]

    @property
    def name(self) -> str:
        orders = "".join(order[0] for order in self.orders)
        return f"mma_{self.row.ab}_{self.row.acc}_{_text(self.shape)}_{orders}"

    def counts(self) -> tuple[int, int, int]:
        """Return the number of a lane's elements of a, b and c; a warp may hold several tiles."""
        m, n, k = self.shape
        tiles = 4 if (m, n, k, self.row.ab) == (8, 8, 4, "f16") else 1
        return m * k * tiles // LANES, k * n * tiles // LANES, m * n * tiles // LANES

    def source(self) -> str:
        """Return a kernel: each of its blocks multiplies once."""
        row, (m, n, k) = self.row, self.shape
        wide = row.ab == "f64"
        bits = (TYPES[row.ab][0], TYPES[row.ab][0], TYPES[row.acc][0])
        registers = [
            count * size // (64 if wide else 32)
            for count, size in zip(self.counts(), bits, strict=True)
        ]
        na, nb, nc = registers
        numbers = iter(range(na + nb + nc))
        d, a, b = (
            "{" + ", ".join(f"%{next(numbers)}" for _ in range(count)) + "}"
            for count in (nc, na, nb)
        )
        word = "double" if wide else "unsigned"
        total = {"f64": "double", "f32": "float", "f16": "unsigned", "s32": "int"}[row.acc]
        letter = {"double": "d", "float": "f", "unsigned": "r", "int": "r"}
        types = f"{row.acc}.{row.ab}.{row.ab}.{row.acc}"
        end = ".xor.popc" if row.ab == "b1" else ""
        return MMA.format(
            name=self.name,
            word=word,
            sum=total,
            na=na,
            nb=nb,
            nc=nc,
            a=a,
            b=b,
            d=d,
            ptx=f"m{m}n{n}k{k}.{'.'.join(self.orders)}.{types}{end}",
            outputs=", ".join(f'"+{letter[total]}"(r[{i}])' for i in range(nc)),
            inputs=", ".join(
                f'"{letter[word]}"({name}[{i}])'
                for name, count in (("a", na), ("b", nb))
                for i in range(count)
            ),
        )

    def run(self, function: Any, rng: np.random.Generator) -> dict[str, Numbers]:
        """Return the numbers in the lanes, by part."""
        ab, acc = self.row.ab, self.row.acc
        low, high = (0, 1) if ab == "b1" else (0, 2) if ab.startswith("u") else (-2, 2)
        parts = {
            name: rng.integers(low, high + 1, (TRIES, LANES, count), dtype=np.int64)
            for name, count in zip("abc", self.counts(), strict=True)
        }
        kinds = {"a": ab, "b": ab, "c": acc}
        import cupy

        inputs = [cupy.asarray(packed(parts[name], kinds[name])) for name in "abc"]
        held = cupy.zeros_like(inputs[2])
        function((TRIES,), (LANES,), (*inputs, held))
        parts["d"] = unpacked(cupy.asnumpy(held), acc)
        return {f"{self.name}_{name}": part.astype(np.int16) for name, part in parts.items()}


def _text(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))


def packed(values: Numbers, dtype: str) -> Numbers:
    """Return integers as the bytes of elements, contiguous in the last axis.

    Elements of less than a byte lie with the first in the lowest bits [PTX].
    """
    bits = TYPES[dtype][0]
    if dtype in ("f16", "f32", "tf32", "f64", "s32"):
        kind = {"f16": np.float16, "f64": np.float64, "s32": np.int32}.get(dtype, np.float32)
        return np.ascontiguousarray(values.astype(kind)).view(np.uint8)
    if dtype == "bf16":
        single = np.ascontiguousarray(values.astype(np.float32)).view(np.uint32)
        return np.ascontiguousarray((single >> 16).astype(np.uint16)).view(np.uint8)
    if dtype in ("e4m3", "e5m2"):
        one = 0x38 if dtype == "e4m3" else 0x3C
        code = np.array([0, one, 0x40])[abs(values)] | (values < 0) << 7
        return np.asarray(code.astype(np.uint8))
    code = (values & (1 << bits) - 1).astype(np.uint8)
    many = code.reshape(*code.shape[:-1], -1, 8 // bits)
    return np.asarray((many << np.arange(0, 8, bits)).sum(-1).astype(np.uint8))


def unpacked(content: Numbers, dtype: str) -> Numbers:
    """Return the numbers, or bits, of these bytes."""
    bits = TYPES[dtype][0]
    content = np.ascontiguousarray(content)
    if dtype in ("f16", "f32", "tf32", "f64", "s32"):
        kind = {"f16": np.float16, "f64": np.float64, "s32": np.int32}.get(dtype, np.float32)
        return np.asarray(content.view(kind).astype(np.int64))
    if dtype == "bf16":
        single = content.view(np.uint16).astype(np.uint32) << 16
        return np.asarray(single.view(np.float32).astype(np.int64))
    many = content[..., None] >> np.arange(0, 8, bits) & (1 << bits) - 1
    return np.asarray(many.reshape(*content.shape[:-1], -1).astype(np.int64))


def loads(sm: int) -> Iterator[Load]:
    """Yield each load once: shapes of one size and type share accumulators."""
    found: dict[Load, None] = {}
    for shape in shapes():
        for row in shape.operands:
            if row.family != "wmma" or row.min_sm > sm:
                continue
            sizes = (shape.m, shape.n, shape.k)
            below_a_byte = TYPES[row.ab][0] < 8
            for operand, order in (("a", "row"), ("a", "col"), ("b", "row"), ("b", "col")):
                if not below_a_byte or (operand, order) in (("a", "row"), ("b", "col")):
                    found[Load(row.ab, sizes, operand, order)] = None
            for order in ("row", "col"):
                found[Load(row.acc, sizes, "c", order)] = None
    yield from found


def products(sm: int) -> Iterator[Multiply]:
    """Yield every mma.sync; that of Volta takes both orders of both operands."""
    for shape in shapes():
        for row in shape.operands:
            if row.family != "mma.sync" or row.min_sm > sm:
                continue
            sizes = (shape.m, shape.n, shape.k)
            orders = [("row", "col")]
            if sizes == (8, 8, 4) and row.ab == "f16":
                orders = [(a, b) for a in ("row", "col") for b in ("row", "col")]
            yield from (Multiply(row, sizes, pair) for pair in orders)


def source(sm: int) -> str:
    """Return all kernels."""
    head = "#include <mma.h>\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    kernels = [load.source() for load in loads(sm)] + [product.source() for product in products(sm)]
    return head + "using namespace nvcuda;\n" + "".join(kernels)


def main(target: Path) -> None:
    """Compile, run and write all cases."""
    import cupy

    device = cupy.cuda.Device()
    sm = int(device.compute_capability)
    arrays: dict[str, Any] = {}
    rng = np.random.default_rng(20261122)
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = Path(folder, "one.cu"), Path(folder, "one.cubin")
        text.write_text(source(sm))
        # The 4-bit and 1-bit fragments are deprecated, and the compiler says so each time.
        options = ("-w", "-std=c++17", "-cubin", f"-arch=sm_{sm}")
        subprocess.run(["nvcc", *options, "-o", cubin, text], check=True)
        module = cupy.RawModule(path=str(cubin))
        for load in loads(sm):
            arrays[load.name] = load.run(module.get_function(load.name))
        for product in products(sm):
            arrays |= product.run(module.get_function(product.name), rng)
    gpu = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    version = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True)
    driver = cupy.cuda.runtime.driverGetVersion()
    about = f"{gpu}, sm_{sm}, CUDA driver {driver}, {version.stdout.strip().splitlines()[-1]}"
    np.savez_compressed(target, about=np.array(about), **arrays)
    print(f"{target}: {len(arrays)} arrays, {about}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    main(parser.parse_args().out)
