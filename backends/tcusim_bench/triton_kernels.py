# mypy: ignore-errors
# pyright: basic, reportMissingImports=false, reportIndexIssue=false
"""The peer "Triton" of the benchmark: sums and scans written by hand.

Triton reads a kernel's source from its file, so they have their own, and it imports Triton.
"""

import torch
import triton
import triton.language as tl


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


@triton.jit
def scan_piece(data, before, out, pieces: tl.constexpr, step: tl.constexpr):
    """Scan a piece of `step` elements, of which a segment has `pieces`, behind those before it."""
    piece = tl.program_id(0).to(tl.int64)
    place = piece * step + tl.arange(0, step)
    sums = tl.cumsum(tl.load(data + place).to(tl.float32), axis=0)
    sums += tl.load(before + piece - 1, mask=piece % pieces > 0, other=0.0)
    tl.store(out + place, sums.to(out.dtype.element_ty))


# Elements of the sums of pieces that one program takes at a time.
_SUMS = 4096


def sum_pieces(data, out, size, piece, warps):
    """Sum segments that are long: their pieces, then the sums of these."""
    sums = torch.empty(data.numel() // piece, dtype=torch.float32, device=data.device)
    sum_rows[(sums.numel(),)](data, sums, piece, 1, piece, num_warps=warps)
    pieces = size // piece
    sum_rows[(sums.numel() // pieces,)](sums, out, pieces, 1, min(pieces, _SUMS), num_warps=4)


def scan_pieces(data, out, size, piece, warps):
    """Scan segments that are long: sum their pieces, scan the sums, and scan the pieces."""
    sums = torch.empty(data.numel() // piece, dtype=torch.float32, device=data.device)
    before = torch.empty_like(sums)
    sum_rows[(sums.numel(),)](data, sums, piece, 1, piece, num_warps=warps)
    pieces = size // piece
    scan_panel[(sums.numel() // pieces,)](sums, before, pieces, 1, min(pieces, _SUMS), num_warps=4)
    scan_piece[(sums.numel(),)](data, before, out, pieces, piece, num_warps=warps)
