"""How a warp's lanes go over the rectangles of a Copy or a Split: chunk by chunk, and when.

A chunk is as many neighbouring elements as one instruction moves. Its size is decided here, for
all the rectangles of a step; where the address of an array is known only at run time, the
templates of `tcusim.cuh` see what it allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tcusim.machine import format_of
from tcusim.program.grammar import (
    BufferRole,
    Copy,
    Loop,
    Mma,
    Program,
    Space,
    Step,
    Sync,
    View,
    When,
    walk,
)
from tcusim_cuda.text import lanes_go_down

__all__ = ["LANES", "Chunks", "Later", "aligned", "chunks_of", "copies_later", "repeats"]

LANES = 32
# The widest access of a lane. A chunk is that many bytes of the widest type of its step, not of the
# narrowest: the lanes of a warp then read and write without gaps, each bank of shared memory once.
CHUNK_BYTES = 16
# What a lane holds in registers of a rectangle, so that its loads are in flight together: 32 of the
# 128 registers that a thread has where 16 warps share a multiprocessor.
HELD_BYTES = 128
MOST_HELD = 16
# What cp.async copies. Source: PTX ISA, "cp.async".
ASYNC_BYTES = (4, 8, 16)


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of a rectangle: `size` neighbours in a column if `down`, else in a row."""

    rows: int
    cols: int
    size: int
    down: bool

    @property
    def inner(self) -> int:
        """Elements in the direction in which chunks extend."""
        return self.rows if self.down else self.cols

    @property
    def count(self) -> int:
        """Chunks of the rectangle."""
        return self.rows * self.cols // self.size

    @property
    def turns(self) -> int:
        """How often a lane takes a chunk."""
        return -(-self.count // LANES)

    def together(self, itemsize: int) -> int:
        """Return how many chunks, of a type of so many bytes, a lane holds at a time."""
        return max(1, min(self.turns, MOST_HELD, HELD_BYTES // (self.size * itemsize)))


def chunks_of(program: Program, written: Sequence[View], read: Sequence[View]) -> Chunks:
    """Return the chunks of a step that reads and writes these rectangles, all of one extent."""
    first = written[0]
    down = lanes_go_down(first, read[0])
    if min(first.rows, first.cols) == 1:
        down = first.cols == 1
    views = (*written, *read)
    known = known_steps(program)
    size = CHUNK_BYTES // max(format_of(view.buffer.dtype).itemsize for view in views)
    while size > 1:
        fits = (first.rows if down else first.cols) % size == 0
        fits = fits and all(_in_chunks(view, size, down, known) for view in written)
        if fits and all(repeats(v, down) or _in_chunks(v, size, down, known) for v in read):
            break
        size //= 2
    whole = Chunks(first.rows, first.cols, size, down)
    # Smaller chunks for more lanes, while it takes each lane no more turns.
    while size > 1:
        size //= 2
        smaller = Chunks(first.rows, first.cols, size, down)
        if smaller.turns > whole.turns:
            break
        whole = smaller
    return whole


def repeats(view: View, down: bool) -> bool:
    """Return whether all elements of a chunk are one element of memory, in bounds or not."""
    inner, stride = ("row", view.row_stride) if down else ("col", view.col_stride)
    return stride == 0 and view.ranges is None and not any(_excess(view, inner))


def known_steps(program: Program) -> frozenset[str]:
    """Return the symbols that count by ones: places in the grid and the tile, and loops.

    Others, such as scalars, are numbers that only the launch tells.
    """
    loops = {step.var for _, step in walk(program.steps) if isinstance(step, Loop)}
    return frozenset({"block", "block_col", "warp", "row", "col"} | loops)


def aligned(program: Program, view: View) -> bool:
    """Return whether chunks are as aligned as their buffer: none depends on what a user passes."""
    return view.offset.symbols <= known_steps(program)


def _in_chunks(view: View, size: int, down: bool, known: frozenset[str]) -> bool:
    """Return whether neighbours lie side by side, and chunks at multiples of one access.

    What only the launch tells does not count: it may be a multiple, and is the same for all lanes,
    which then see what they can move at a time. But where lanes, or blocks, are known to differ,
    smaller chunks without gaps between the lanes are better than large ones piece by piece.
    """
    inner, stride = ("row", view.row_stride) if down else ("col", view.col_stride)
    # Lines begin anywhere, each line elsewhere.
    if stride != 1 or view.ranges is not None:
        return False
    itemsize = format_of(view.buffer.dtype).itemsize
    access = min(CHUNK_BYTES, size * itemsize)
    outer, extent = ("col", view.cols) if down else ("row", view.rows)
    counted = known - {inner} - ({outer} if extent == 1 else set())
    steps = [factor for name, factor in view.address.terms if name in counted]
    return all(step * itemsize % access == 0 for step in (*steps, view.address.const))


def _excess(view: View, symbol: str) -> list[int]:
    """Return how fast each bound's excess grows along a symbol."""
    return [(bound.lhs - bound.rhs).coefficient(symbol) for bound in view.bounds]


# --- Copies that nobody waits for at once ---------------------------------------------------------


@dataclass(slots=True)
class Later:
    """Paths of the copies that are only started, and of the barriers before which they finish.

    Every step sees what a Copy wrote to shared memory only after a Sync: that is the grammar, and
    `verify` refuses a read, or another write, of the same elements before one (`synced_shared`).
    So it is enough that a lane waits for its copies before the next Sync, whichever comes: no step
    between can tell. Before the copy starts, a Sync has followed what earlier steps read there.

    It pays where the warp multiplies in between: that is a software pipeline. Otherwise ordinary
    loads are better, since the compiler may issue them early.
    """

    program: Program
    copies: set[str] = field(default_factory=set)
    waits: set[str] = field(default_factory=set)
    _arrivals: dict[str, set[str]] = field(default_factory=dict)

    def find(self) -> Later:
        """Follow the steps, and fill in `copies` and `waits`."""
        self._all_of(self.program.steps, "", {})
        self.waits = {path for path, arrived in self._arrivals.items() if arrived & self.copies}
        return self

    def _all_of(
        self, steps: tuple[Step, ...], prefix: str, pending: dict[str, bool], first: int = 1
    ) -> dict[str, bool]:
        """Return the copies pending after these steps, each with whether an Mma came since."""
        for number, step in enumerate(steps, start=first):
            path = f"{prefix}{number}"
            match step:
                case Copy() if copies_later(self.program, step):
                    pending = {path: False, **pending}
                case Mma():
                    pending = dict.fromkeys(pending, True)
                case Sync():
                    self._arrivals.setdefault(path, set()).update(pending)
                    self.copies.update(copy for copy, worked in pending.items() if worked)
                    pending = {}
                case Loop(body=body):
                    # Another pass may find what the one before has left, and none may run at all.
                    for _ in range(2):
                        after = self._all_of(body, f"{path}.", pending)
                        pending = _either(pending, after)
                case When(body=body, otherwise=otherwise):
                    taken = self._all_of(body, f"{path}.", pending)
                    other = self._all_of(otherwise, f"{path}.", pending, len(body) + 1)
                    pending = _either(taken, other)
                case _:
                    pass
        return pending


def _either(one: dict[str, bool], two: dict[str, bool]) -> dict[str, bool]:
    return {path: one.get(path, False) or two.get(path, False) for path in {**one, **two}}


def copies_later(program: Program, step: Copy) -> bool:
    """Return whether a Copy can be started and finished later: an input to shared memory, as is.

    An output may be written meanwhile, so it is copied at once.
    """
    dst, src = step.dst, step.src
    if step.plus is not None or dst.bounds or dst.buffer.space is Space.GLOBAL:
        return False
    if src.ranges is not None:
        return False
    if src.buffer.role is not BufferRole.INPUT or src.buffer.dtype != dst.buffer.dtype:
        return False
    chunks = chunks_of(program, (dst,), (src,))
    size = chunks.size * format_of(dst.buffer.dtype).itemsize
    return size in ASYNC_BYTES and not repeats(src, chunks.down) and aligned(program, dst)
