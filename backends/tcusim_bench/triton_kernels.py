# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
"""The peer "Triton" of the benchmark: sums and scans written by hand.

Triton reads a kernel's source from its file, so they have one of their own, which imports Triton.
"""

import triton
import triton.language as tl

__all__ = ["scan_panel", "sum_rows", "triton"]


@triton.jit
def sum_rows(data, out, size: tl.constexpr, rows: tl.constexpr, step: tl.constexpr):
    """Sum `rows` segments of `size` elements, `step` of each at a time, in f32."""
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    place = data + row[:, None] * size + tl.arange(0, step)[None, :]
    total = tl.zeros((rows, step), tl.float32)
    for start in range(0, size, step):
        total += tl.load(place + start).to(tl.float32)
    tl.store(out + row, tl.sum(total, axis=1))


@triton.jit
def scan_panel(data, out, size: tl.constexpr, rows: tl.constexpr, step: tl.constexpr):
    """Scan `rows` segments of `size` elements, `step` of each at a time, in f32."""
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    place = row[:, None] * size + tl.arange(0, step)[None, :]
    carry = tl.zeros((rows,), tl.float32)
    for start in range(0, size, step):
        values = tl.load(data + place + start).to(tl.float32)
        sums = tl.cumsum(values, axis=1) + carry[:, None]
        tl.store(out + place + start, sums.to(out.dtype.element_ty))
        carry += tl.sum(values, axis=1)
