"""The sectors, lines and banks of memory that a warp's accesses to a rectangle take.

`tcusim.program.lanes` has the vectors. Nothing here depends on a machine but its granularity, which
all GPUs since Volta share [CPG, compute capabilities 7.x to 9.0].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tcusim.machine import format_of
from tcusim.program.grammar import BufferRole, Frag, Role, Space, View
from tcusim.program.lanes import LANES, STATUS_BYTES, WORD_BYTES, NarrowRows, Transfer
from tcusim.program.walk import Ints, Placement

__all__ = [
    "BANKS",
    "FETCH",
    "LINE",
    "SECTOR",
    "Access",
    "access_of",
    "alone_in_line",
    "spread_rows",
    "tile_pass",
]

SECTOR: Final = 32
LINE: Final = 128
# A row of a pseudo channel of HBM2 [JESD235], and what the cache fetches of it at a time [JIA18].
ROW: Final = 1024
FETCH: Final = 64
BANKS: Final = 32
# What a lane loads of a tile for an mma: registers of 32 bits, eight rows of 16 bytes at a time.
_TILE_ROW: Final = 16


@dataclass(frozen=True, slots=True)
class Access:
    """The cost of a warp's accesses to one rectangle, averaged over the sampled warps.

    instructions: of the warp. sectors: of 32 bytes of global memory; of reads, those of all
    instructions together. lines: of 128 bytes, each instruction's by themselves; of shared memory,
    passes through the banks. nbytes: of the elements that are in bounds. which: of reads of global
    memory, each warp's sectors as numbers; rows: the rows of memory that these lie in. each: the
    sectors of each instruction by themselves. alone: sectors that are the only ones of their lines.
    """

    instructions: float
    sectors: float
    lines: float
    nbytes: float
    which: Ints | None = None
    rows: float = 0.0
    each: float = 0.0
    alone: float = 0.0


def access_of(view: View, over: Transfer, places: Placement, *, written: bool = False) -> Access:
    """Return the accesses to a rectangle by the warps at these places."""
    itemsize = format_of(view.buffer.dtype).itemsize
    if view.buffer.role is BufferRole.STATUS:
        itemsize = STATUS_BYTES
    first, inside = _vectors(view, over, places)
    count = first.shape[0]
    size = over.vector * itemsize if _moves(view, over.down) else itemsize
    nbytes = float(inside.sum()) * size / count
    begins = first * itemsize
    issued = float(inside.reshape(count, -1, LANES).any(axis=2).sum()) / count
    if view.buffer.space is Space.GLOBAL:
        # What one instruction reads and another needs, the first-level cache has; writes pass it.
        which = _units(begins, inside, size, SECTOR, of=first.shape[1])
        each = _units(begins, inside, size, SECTOR) if written else which
        sectors, lines = each.size / count, _units(begins, inside, size, LINE).size / count
        rows = _units(begins, inside, size, ROW, of=first.shape[1]).size / count
        if written:
            alone = alone_in_line(which) / count
            return Access(issued, sectors, lines, nbytes, None, rows, sectors, alone)
        # The other sectors of a line are in the next copy.
        return Access(issued, sectors, lines, nbytes, which, rows)
    return Access(issued, 0.0, _bank_passes(begins, inside, size) / count, nbytes)


def _moves(view: View, down: bool) -> bool:
    """Return whether a vector is several elements of memory, not one repeated."""
    return (view.row_stride if down else view.col_stride) != 0 or view.ranges is not None


def _vectors(view: View, over: Transfer, places: Placement) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the first element of each lane's vectors, and which are there: (W, n * 32) each."""
    count = places.count
    shape = (count, view.rows, view.cols)
    where = np.broadcast_to(places.addresses(view), shape)
    inside = np.broadcast_to(places.inside(view), shape)
    if over.down:
        where, inside = where.swapaxes(1, 2), inside.swapaxes(1, 2)
    flat = where.reshape(count, -1)[:, :: over.vector]
    there = inside.reshape(count, -1, over.vector).any(axis=2)
    missing = -flat.shape[1] % LANES
    return (
        np.pad(flat, ((0, 0), (0, missing))),
        np.pad(there, ((0, 0), (0, missing))),
    )


def _units(begins: Ints, inside: NDArray[np.bool_], size: int, unit: int, of: int = LANES) -> Ints:
    """Return the units of memory that accesses touch, each instruction's, of 32, by themselves.

    of: accesses that are counted together instead.
    """
    flat, there = begins.ravel(), inside.ravel()
    number = (np.arange(flat.size, dtype=np.int64) // of)[there]
    units = [(flat[there] + offset) // unit for offset in {0, size - 1}]
    return np.unique(np.concatenate([number * _FAR + one for one in units]))


def alone_in_line(sectors: Ints) -> int:
    """Return the number of sectors that are alone in their lines."""
    return int((np.unique(sectors // (LINE // SECTOR), return_counts=True)[1] == 1).sum())


# More than any address, so that a pair of a number and an address is one number.
_FAR: Final = 2**44


def _bank_passes(begins: Ints, inside: NDArray[np.bool_], size: int) -> float:
    """Return the turns that shared memory takes: in one, each of its 32 banks gives one word.

    A warp's access of more than 128 bytes is split into parts of so many lanes as take 128 bytes.
    """
    lanes = min(LANES, LINE // size)
    flat, there = begins.ravel(), inside.ravel()
    if not there.any():
        return 0.0
    part = (np.arange(flat.size, dtype=np.int64) // lanes)[there]
    words = [(flat[there] + offset) // WORD_BYTES for offset in range(0, size, WORD_BYTES)]
    once = np.unique(np.concatenate([part * _FAR + one for one in words]))
    bank = once // _FAR * BANKS + once % _FAR % BANKS
    taken = np.bincount(bank, minlength=(int(part.max()) + 1) * BANKS)
    return float(taken.reshape(-1, BANKS).max(axis=1).sum())


def spread_rows(rows: NarrowRows) -> tuple[Access, Access]:
    """Return the reads and the writes of narrow rows of two-byte elements that are put apart.

    A lane takes two of them: it reads words, and writes vectors.
    """
    vector = 8 if rows.width % 8 == rows.apart % 8 == 0 else 4
    lanes = np.arange(rows.count // 2, dtype=np.int64)
    begins = [2 * (row * rows.apart + np.arange(0, rows.width, vector)) for row in (0, 1)]
    return (
        _by_words(lanes * 4 * rows.inside, 4, 4 * np.arange(rows.inside)),
        _by_words(lanes * 4 * rows.apart, 2 * vector, np.concatenate(begins)),
    )


def _by_words(begins: Ints, size: int, offsets: Ints) -> Access:
    """Return accesses of so many bytes by lanes that begin at these places, at each offset."""
    missing = -begins.size % LANES
    there = np.pad(np.ones(begins.size, bool), (0, missing))
    at = np.pad(begins, (0, missing))
    passes = sum(_bank_passes(at + offset, there, size) for offset in offsets)
    instructions = offsets.size * (at.size // LANES)
    return Access(float(instructions), 0.0, passes, float(begins.size * offsets.size * size))


def tile_pass(view: View, frag: Frag, places: Placement, *, matrices: bool = True) -> Access:
    """Return the accesses of a warp that loads or stores a tile, by the layout of fragments.

    Lane 4g + t holds, of each group of eight lines of a tile, neighbours of line g: 4 bytes of
    them of an operand, two of an accumulator [PTX, mma.m16n8k16]. Lines are rows of a and of
    accumulators, columns of b. Operands of two bytes come from shared memory by eight lines of 16
    bytes at a time, whichever way they lie (ldmatrix). matrices: whether the machine has that
    instruction; Volta's lanes load each element of an operand twice [RAIHAN19].
    """
    itemsize = format_of(frag.dtype).itemsize
    where = np.broadcast_to(places.addresses(view), (places.count, view.rows, view.cols)) * itemsize
    if frag.role is Role.B:
        where = where.swapaxes(1, 2)
    side_by_side = (view.layout == "col_major") == (frag.role is Role.B)
    nbytes = float(view.rows * view.cols * itemsize)
    shared = view.buffer.space is not Space.GLOBAL
    if shared and itemsize == 2 and frag.role is not Role.ACC:
        rows = where if side_by_side else where.swapaxes(1, 2)
        begins = _grouped(rows, _TILE_ROW // itemsize)[..., :1]
        size = _TILE_ROW
    else:
        each = 2 if frag.role is Role.ACC else max(1, WORD_BYTES // itemsize)
        begins = _grouped(where, 4 * each).reshape(places.count, -1, 8, 4, each)
        # What does not lie side by side moves element by element.
        begins = begins[..., :1] if side_by_side else begins
        size = itemsize * (each if side_by_side else 1)
        begins = begins.transpose(0, 1, 4, 2, 3)
    flat = begins.reshape(places.count, -1)
    instructions = max(1, flat.shape[1] * size // (LANES * min(size, _TILE_ROW)))
    there = np.ones(flat.shape, bool)
    twice = 1 if matrices or frag.role is Role.ACC else 2
    if shared:
        passes = twice * _bank_passes(flat, there, size) / places.count
        return Access(twice * instructions, 0.0, passes, twice * nbytes)
    # The first-level cache has what one instruction asks for and another has brought.
    which = _units(flat, there, size, SECTOR, of=flat.shape[1])
    lines = _units(flat, there, size, LINE).size / places.count
    opened = _units(flat, there, size, ROW, of=flat.shape[1]).size / places.count
    sectors = which.size / places.count
    by_instruction = _units(flat, there, size, SECTOR).size / places.count
    alone = alone_in_line(which) / places.count
    issued = twice * instructions
    return Access(issued, sectors, lines, nbytes, which, opened, by_instruction, alone)


def _grouped(lines: Ints, along: int) -> Ints:
    """Return a tile's places by groups of eight lines and of so many neighbours: (W, n, 8, along).

    What a tile has too few of is repeated, as lanes do.
    """
    count, down, across = lines.shape
    lines = np.pad(lines, ((0, 0), (0, -down % 8), (0, -across % along)), mode="edge")
    _, down, across = lines.shape
    split = lines.reshape(count, down // 8, 8, across // along, along)
    return split.transpose(0, 1, 3, 2, 4).reshape(count, -1, 8, along)
