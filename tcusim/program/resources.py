"""The shared memory of a block of a program on a GPU.

In addition to the program's buffers it contains constant matrices, the source of non-uniform
constant fragments, and the bounds of ranges. The emitter declares all of these; plans need the
total earlier, to choose block sizes that fit a GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from tcusim.machine import format_of
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.grammar import (
    Assign,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Load,
    Loop,
    Pattern,
    PatternKind,
    Program,
    Ranges,
    Role,
    Space,
    View,
)
from tcusim.program.walk import sites, span


class SharedMemory:
    """The shared memory of a program, buffer by buffer.

    layouts: of every operand fragment, by name. tables: of constants. buffers: all buffers; buffers
    of space WARP are allocated once for each warp. lanes: whether the lanes multiply in place of an
    instruction, and so share their operands.
    """

    def __init__(self, program: Program, *, lanes: bool = False) -> None:
        self.program = program
        self.layouts = _layouts(program)
        self.tables = Tables(program, self.layouts)
        own = [_operands_buffer(program)] if lanes else []
        self.buffers = [*program.scratch, *self.tables.buffers, *_range_buffers(program), *own]

    @property
    def nbytes(self) -> int:
        """Bytes of a block's buffers."""
        return sum(map(self.bytes_of, self.buffers))

    @property
    def needed(self) -> int:
        """Bytes that a GPU needs for a block: buffers, and the block index if taken from a counter.

        The index precedes the buffers; several buffers begin at a multiple of 128 bytes.
        """
        return self.nbytes + (128 if self.program.status else 0)

    def bytes_of(self, buffer: Buffer) -> int:
        """Return the bytes of a block for a buffer."""
        copies = self.program.warps if buffer.space is Space.WARP else 1
        return copies * self.elements_of(buffer) * format_of(buffer.dtype).itemsize

    def elements_of(self, buffer: Buffer) -> int:
        """Return a buffer's elements, padded so that each warp's part is aligned."""
        size = buffer.size.evaluate({})
        unit = TILE_BYTES // format_of(buffer.dtype).itemsize
        return -(-size // unit) * unit


@dataclass(frozen=True, slots=True)
class Table:
    """A constant matrix in shared memory; larger than the tile if its offset moves over it."""

    pattern: Pattern
    dtype: str
    layout: str
    rows: int
    cols: int
    tile: tuple[int, int]
    highest: int

    @property
    def ldm(self) -> int:
        """Elements from one row (column, if col_major) to the next; aligned for WMMA."""
        inner = self.cols if self.layout == "row_major" else self.rows
        unit = TILE_BYTES // format_of(self.dtype).itemsize
        return -(-inner // unit) * unit

    @property
    def size(self) -> int:
        """Elements of the whole table."""
        return self.ldm * (self.rows if self.layout == "row_major" else self.cols)

    def view(self, buffer: Buffer, offset: Index) -> View:
        """Return the tile of the table for an offset: a window that the offset slides."""
        strides = (self.ldm, 1) if self.layout == "row_major" else (1, self.ldm)
        start = (Index.of(self.highest) - offset) * self.ldm if self.slides else Index()
        return View.strided(buffer, start, *self.tile, *strides)

    @property
    def slides(self) -> bool:
        """Whether the tile is a window of the table."""
        return (self.rows, self.cols) != self.tile


class Tables:
    """The tables of a program's constants, one for each distinct constant."""

    def __init__(self, program: Program, layouts: Mapping[str, str]) -> None:
        self._tables: dict[str, Table] = {}
        self._names: dict[tuple[str, Pattern], str] = {}
        steps = [site.step for site in sites(program)]
        loops = {step.var: step.count.constant for step in steps if isinstance(step, Loop)}
        box = {name: (0, count - 1) for name, count in loops.items() if count}
        for step in steps:
            match step:
                case Const(frag, pattern) if not pattern.uniform:
                    table = _table(frag, pattern, layouts[frag.name], box)
                    same = [name for name, other in self._tables.items() if other == table]
                    name = same[0] if same else self._fresh(f"c_{frag.name}")
                    self._tables[name] = table
                    self._names[frag.name, pattern] = name

    @property
    def filled(self) -> dict[str, Table]:
        """Tables that a block fills once, at the start."""
        return {n: t for n, t in self._tables.items() if not t.pattern.offset.terms}

    @property
    def buffers(self) -> list[Buffer]:
        """Shared memory for the tables: one for the block, or one for each warp if warps differ."""
        return [self.buffer(name) for name in self._tables]

    def buffer(self, name: str) -> Buffer:
        """Return the shared memory of one table."""
        table = self._tables[name]
        space = Space.SHARED if name in self.filled else Space.WARP
        dtype = "f32" if table.dtype == "tf32" else table.dtype
        return Buffer(name, dtype, Extent.of(table.size), BufferRole.SCRATCH, space)

    def of(self, frag: Frag, pattern: Pattern) -> tuple[str, Table]:
        """Return the table for a constant, and its name."""
        name = self._names[frag.name, pattern]
        return name, self._tables[name]

    def _fresh(self, name: str) -> str:
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        return next(one for one in itertools.chain([name], numbered) if one not in self._tables)


def _table(frag: Frag, pattern: Pattern, layout: str, box: Mapping[str, tuple[int, int]]) -> Table:
    """Return the table of a constant; `box` has the values of the loops of constant count."""
    rows, cols = tile = (frag.rows, frag.cols)
    offset = pattern.offset
    along = {PatternKind.ROW: "row_major", PatternKind.COL: "col_major"}.get(pattern.kind)
    slides = offset.terms and not pattern.size and along == layout
    if not slides or not offset.symbols <= box.keys():
        return Table(pattern, frag.dtype, layout, rows, cols, tile, 0)
    # One line of ones, with enough zeros around it for every offset: a window slides over it.
    low, high = span(offset, box)
    fixed = Pattern(pattern.kind, Index.of(high))
    if layout == "row_major":
        rows += high - low
    else:
        cols += high - low
    return Table(fixed, frag.dtype, layout, rows, cols, tile, high)


def _layouts(program: Program) -> dict[str, str]:
    """Return the layout of every operand fragment, from its loads or its constant."""
    loaded: dict[str, str] = {}
    constant: dict[str, str] = {}
    for site in sites(program):
        match site.step:
            case Load(Frag(name, role)) as load if role is not Role.ACC:
                loaded[name] = load.src.layout or "row_major"
            case Const(Frag(name, role), pattern) if role is not Role.ACC:
                column = pattern.kind is PatternKind.COL
                constant.setdefault(name, "col_major" if column else "row_major")
    return constant | loaded


# The buffer with the operands of lanes that multiply.
OPERANDS = "tile_operands"


def _operands_buffer(program: Program) -> Buffer:
    """Return shared memory for the operands of one product of each warp."""
    shape, dtype = program.shape, "f32" if program.ab == "tf32" else program.ab
    size = Extent.of((shape.m + shape.n) * shape.k)
    return Buffer(OPERANDS, dtype, size, BufferRole.SCRATCH, Space.WARP)


def _range_buffers(program: Program) -> list[Buffer]:
    """Return shared memory for the range bounds of each warp.

    Both bounds are 32-bit offsets from the start of the first range.
    """
    found = {
        ranges.name: ranges.count
        for site in sites(program)
        for ranges in site.touched.ranges_written
    }
    steps = [site.step for site in sites(program)]
    copies = [step for step in steps if isinstance(step, Assign) and is_staged(step)]
    stages = {
        step.dst.ranges.name: stage_of(step.dst.ranges, step.dst.buffer.dtype, step.dst)
        for step in copies
        if step.dst.ranges is not None
    }
    return [
        *(
            Buffer(f"{name}_{what}", dtype, Extent.of(count), BufferRole.SCRATCH, Space.WARP)
            for name, count in found.items()
            for what, dtype in (("begin", "s64"), ("end", "s64"), ("place", "s32"))
        ),
        *stages.values(),
    ]


# Number of 2-byte elements staged at a time before they are written to ranges.
STAGED = 4
_STAGED_BYTES = 2


def is_staged(step: Assign) -> bool:
    """Return whether an Assign to ranges stages its output in shared memory."""
    dst = step.dst
    if dst.ranges is None or format_of(dst.buffer.dtype).itemsize != _STAGED_BYTES:
        return False
    return (dst.rows * dst.cols // dst.ranges.count) % STAGED == 0


def stage_of(ranges: Ranges, dtype: str, view: View | None = None) -> Buffer:
    """Return the staging buffer in shared memory: one view of ranges, preceded by a vector."""
    size = 0 if view is None else view.rows * view.cols + TILE_BYTES
    return Buffer(f"{ranges.name}_stage", dtype, Extent.of(size), BufferRole.SCRATCH, Space.WARP)
