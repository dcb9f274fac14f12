"""The work of a block of a program: accesses, products, barriers, and the time of one alone.

A block in the middle of the grid is followed, step by step, with the addresses that it really has.
Of a long loop some rounds are followed, and the last one stands for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, TypeAlias

import numpy as np

from tcusim.errors import Unsupported
from tcusim.judge.cost.accesses import (
    SECTOR,
    Access,
    access_of,
    alone_in_line,
    spread_rows,
    tile_pass,
)
from tcusim.machine import format_of
from tcusim.program.grammar import (
    PARTS,
    Add,
    Assign,
    Await,
    Buffer,
    BufferRole,
    Const,
    Formula,
    Frag,
    Load,
    Locate,
    Loop,
    Mma,
    Numbered,
    Operation,
    Prefix,
    Program,
    Publish,
    Scope,
    Space,
    Step,
    Store,
    Sync,
    Value,
    View,
    When,
    accesses,
    numbered,
    views_of,
    walk,
)
from tcusim.program.lanes import (
    LANES,
    WORD_BYTES,
    Rows,
    Transfer,
    Where,
    is_in_type_of_memory,
    known_steps,
    moved_of,
    narrow_rows,
    rows_of,
    transfer_of,
)
from tcusim.program.resources import SharedMemory
from tcusim.program.walk import Ints, Mask, Placement

__all__ = ["Latencies", "Work", "work_of"]

_Elementwise: TypeAlias = Assign | Publish | Await

# Rounds of a loop that are followed.
_FOLLOWED: Final = 3
# Bytes that a lane holds of what it has loaded and not yet stored: 64 registers.
_HELD_BYTES: Final = 256
# Warps of a block whose addresses are looked at.
_LOOKED_AT: Final = 4


@dataclass(frozen=True, slots=True)
class Latencies:
    """Cycles until a result is there.

    load: of global memory, wherever the data are. shared: of shared memory. mma, add: of a product
    and of an addition. barrier: of a block's. word: of a status word. pace: from one instruction of
    a warp to its next. page, entries, missed: the bytes of a page, the pages that a core's TLB has,
    and the latency of a load from another page; 0 if they are not known. resident, apart: the
    blocks of a core at once, and the distance of their indices. products: the
    machine's instructions for a product.
    """

    load: float
    shared: float
    mma: float
    add: float
    barrier: float
    word: float
    pace: float = 1.0
    interval: float = 0.0
    units: float = 1.0
    fetch: float = 0.0
    matrices: bool = True
    page: int = 0
    entries: float = 0.0
    missed: float = 0.0
    resident: int = 1
    apart: int = 1
    products: float = 1.0


@dataclass(slots=True)
class Work:
    """The work of one block, all its warps together, or of all blocks.

    Attributes
    ----------
    instructions : float
        Of warps.
    mma, additions : float
        Steps on tiles.
    sectors_read, sectors_written : float
        Of 32 bytes of global memory: those of one access, of 32 lanes or of a tile, counted once.
    lines : float
        Turns of a core's load-store path for global memory: one for each line of 128 bytes that an
        instruction touches, and another for each of which a single sector moves.
    packets : float
        Of 32 bytes to the second-level cache: of each store instruction, one for each line and one
        for each sector.
    passes : float
        Turns through the banks of shared memory.
    shared_bytes : float
        That these move. 128 times the passes is more where banks conflict, or lanes are idle.
    words : float
        Status words that are written or awaited.
    awaited : float
        Of these, those that are awaited.
    block_barriers : float
        Barriers of the block.
    span, queued_span : float
        Cycles of a block that has a core for itself, with memory idle, and busy all the time.
    in_flight : float
        The most bytes of global memory that a warp waits for at a time.
    rows_read, rows_written : float
        Rows of memory that its accesses open, where one access opens several.
    far_rows : float
        The most of them that one access opens.
    code : float
        Instructions of the block's code, each counted once.
    """

    instructions: float = 0.0
    mma: float = 0.0
    additions: float = 0.0
    sectors_read: float = 0.0
    sectors_written: float = 0.0
    lines: float = 0.0
    packets: float = 0.0
    passes: float = 0.0
    shared_bytes: float = 0.0
    words: float = 0.0
    awaited: float = 0.0
    block_barriers: float = 0.0
    span: float = 0.0
    queued_span: float = 0.0
    in_flight: float = 0.0
    rows_read: float = 0.0
    rows_written: float = 0.0
    far_rows: float = 0.0
    code: float = 0.0

    def times(self, count: float) -> Work:
        """Return the work of so many; what is of one block or of one warp stays."""
        own = ("span", "queued_span", "in_flight", "far_rows", "code")
        return Work(
            **{
                one.name: getattr(self, one.name) * (1 if one.name in own else count)
                for one in fields(self)
            }
        )


def work_of(
    program: Program,
    scalars: Mapping[str, int],
    latencies: Latencies,
    overhead: float,
    block: int | None = None,
    queueing: float = 1.0,
) -> Work:
    """Return the work of a block, by default one in the middle of the grid.

    overhead: instructions for each access of a warp besides the access itself. queueing: the time
    of a load while memory is busy, in its latencies.
    """
    blocks = program.grid(scalars)
    number = blocks // 2 if block is None else block
    seen: list[Access] = []
    found = _Walk(program, scalars, latencies, overhead, number, record=seen.append).work()
    found.queued_span = found.span
    if queueing > 1:
        # This walk makes the same accesses, one after the other.
        load = queueing * latencies.load
        # Translation does not wait for the memory that is busy.
        missed = latencies.missed and latencies.missed + load - latencies.load
        queued = replace(latencies, load=load, missed=missed)
        again = _Walk(program, scalars, queued, overhead, number, replay=iter(seen))
        found.queued_span = again.work().span
    return found


# Of an operation of a formula: 1, but for those that are short programs, to be rounded correctly,
# and for parts, which are taken on the way.
_INSTRUCTIONS: Final = {
    Operation.OVER: 10.0,
    Operation.ROOT: 10.0,
    Operation.SPLIT: 0.0,
    **dict.fromkeys(PARTS, 0.0),
}


def _instructions(value: Value) -> float:
    """Return the instructions for the operations of one element."""
    operations = value.operations if isinstance(value, Formula) else ()
    return sum(_INSTRUCTIONS.get(one, 1.0) for one in operations)


def _arithmetic(step: _Elementwise) -> float:
    """Return the instructions of a warp for the elements themselves: additions and conversions.

    Two neighbours of two bytes are converted together.
    """
    each = 0.0
    if isinstance(step, Assign):
        value = step.value
        each += _instructions(value)
        if not is_in_type_of_memory(value):
            return each * step.dst.rows * step.dst.cols / LANES
        for view in step.dsts:
            if view.buffer.dtype != views_of(value)[0].buffer.dtype:
                each += 0.5 if format_of(view.buffer.dtype).itemsize == 2 else 1.0
    return each * step.dst.rows * step.dst.cols / LANES


def _additions(step: Prefix, rows: Rows) -> float:
    """Return the instructions of a warp for the additions of rows, and for the shuffles between."""
    each, between = rows.each * rows.pieces, rows.lanes.bit_length() - 1
    alone = each.bit_length() - 1
    if step.sums_alone:
        of_lane = 2.0 * each - 1 + 2 * between
    else:
        # Half of a pair is added to in each round; between lanes all that a lane holds.
        of_lane = each + each * alone / 2 + between * (2 + each)
    of_lane += each * _instructions(step.value)
    return of_lane * rows.turns


def _own_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Yield the steps, and those of branches, but not those of loops among them."""
    for step in steps:
        if isinstance(step, When):
            yield from _own_steps((*step.body, *step.otherwise))
        elif not isinstance(step, Loop):
            yield step


def _views_together(program: Program) -> dict[View, tuple[View, ...]]:
    """Return, by rectangle of the arrays, those that the innermost loop around it accesses."""
    found: dict[View, tuple[View, ...]] = {}
    for _, loop in walk(program.steps):
        if isinstance(loop, Loop):
            views = tuple(
                view
                for step in _own_steps(loop.body)
                for view in accesses(step).views
                if view.buffer.space is Space.GLOBAL
                and view.buffer.role is not BufferRole.STATUS
                and view.ranges is None
            )
            found.update((view, views) for view in views)
    return found


class _Walk:
    """Follows one block."""

    def __init__(
        self,
        program: Program,
        scalars: Mapping[str, int],
        latencies: Latencies,
        overhead: float,
        block: int,
        record: Callable[[Access], None] | None = None,
        replay: Iterator[Access] | None = None,
    ) -> None:
        self.program, self.scalars, self.latencies = program, scalars, latencies
        self.overhead, self.record, self.replay = overhead, record, replay
        self.total = Work()
        warps = np.arange(program.warps, dtype=np.int64)
        self.all = Placement.of_warps(program, scalars, block * program.warps + warps)
        # The warps of the core's other blocks, and by rectangle the part of loads that miss.
        self.block, self.blocks = block, program.grid(scalars)
        self.misses: dict[View, float] = {}
        self.beside = _views_together(program) if latencies.missed else {}
        # When the pages of earlier stores are translated.
        self.translated = 0.0
        self._known = known_steps(program)
        self._first = {
            name: int(value[0])
            for name, value in self.all.symbols.items()
            if isinstance(value, np.ndarray)
        }
        # The warps that run a step, and the iterations that it stands for.
        self.who: Mask = np.ones(program.warps, bool)
        self.times = 1.0
        # Whether the code that is followed is new: not in the later iterations of a loop.
        self.new = True
        # The clock of the warp that does most, and when things are there.
        self.now = 0.0
        # When the matrix units take the next product, and the path from the cache the next bytes.
        self.units = self.path = 0.0
        # When the round of a loop, or the branch, began that is being followed.
        self.region = 0.0
        # The sectors that the first-level cache has of that time, by buffer.
        self.brought: dict[str, Ints] = {}
        self.ready: dict[str, float] = {}
        # Of each shared buffer the stretches that were written, and when they are there.
        self.stored: dict[str, dict[tuple[int, int], float]] = {}
        self.coming: list[tuple[float, float]] = []

    def work(self) -> Work:
        """Return the work of the block."""
        self._make_tables()
        self._steps(tuple(numbered(self.program.steps)), self.who)
        self.total.span = max([self.now, *self.ready.values(), *self._every()])
        return self.total

    def _every(self) -> Iterator[float]:
        return (when for several in self.stored.values() for when in several.values())

    def _make_tables(self) -> None:
        """Let the block write its constant matrices, element by element, before all else."""
        tables = SharedMemory(self.program).tables
        sizes = [table.size for table in tables.filled.values()]
        if sizes:
            accesses_of_warps = sum(-(-size // LANES) for size in sizes)
            each = accesses_of_warps / self.program.warps
            self._issue(each * (1.0 + self.overhead), float(self.program.warps))
            self.total.passes += accesses_of_warps
            self.total.block_barriers += 1
            self.now += self.latencies.barrier

    # --- Control -----------------------------------------------------------------------------

    @property
    def warps(self) -> float:
        """The warps that run the current step, over all its iterations."""
        return float(self.who.sum()) * self.times

    def _steps(self, steps: tuple[Numbered, ...], who: Mask, weight: float = 1.0) -> None:
        """Follow steps in some warps, each for so many iterations."""
        if not who.any():
            return
        outside = self.who, self.times
        self.who, self.times = who, self.times * weight
        for _, step in steps:
            match step:
                case Loop():
                    self._loop(step)
                case When():
                    self._when(step)
                case _:
                    self._leaf(step)
        self.who, self.times = outside

    def _loop(self, loop: Loop) -> None:
        count = loop.count.evaluate(self.scalars)
        body = tuple(numbered(loop.body))
        followed = min(count, _FOLLOWED)
        begins, new = self.now, self.new
        for i in range(followed):
            self.new = new and not i
            # The last one that is followed stands for those behind it.
            weight = count - followed + 1 if i == followed - 1 else 1
            begins = self.region = self.now
            self.brought.clear()
            self.all.symbols[loop.var] = i if i < followed - 1 else count // 2
            self._steps(body, self.who, weight)
        self.new = new
        more = (count - followed) * (self.now - begins)
        if more > 0:
            self.now += more
            self.units += more
            self.path += more
            self.translated += more
            self.ready = {name: when + more for name, when in self.ready.items()}
            self.stored = {
                name: {where: when + more for where, when in several.items()}
                for name, several in self.stored.items()
            }
            self.coming = [(when + more, size) for when, size in self.coming]
        self.all.symbols.pop(loop.var, None)

    def _when(self, step: When) -> None:
        who, taken = self.who, self.all.holds(step.bounds)
        if step.not_finite is not None:
            # Data are finite, as a rule: the warp looks, and takes the other branch.
            over = self._alone(step.not_finite)
            self._wait(self._when_there(step.not_finite))
            self.who = who & taken
            self._read(step.not_finite, over)
            self.who = who
            self._wait(self.now + self.latencies.shared)
            taken = taken & False
        begin = self.region = self.now
        self._steps(tuple(numbered(step.body)), who & taken)
        self._steps(tuple(numbered(step.otherwise)), who & ~taken)
        if not (who & taken)[0] and not (who & ~taken)[0]:
            self.now = begin

    # --- Leaves ------------------------------------------------------------------------------

    def _leaf(self, step: object) -> None:
        late, warps = self.latencies, self.warps
        match step:
            case Const(dst, pattern):
                self._issue(2.0, warps)
                self.ready[dst.name] = self.now + (0 if pattern.uniform else late.shared)
            case Load(dst):
                src = step.src
                self._wait(self._when_there(src))
                access = self._tile(src, dst, written=False)
                self._arrives(dst.name, src, access)
            case Mma(d, a, b, c):
                self._wait(max(self.ready.get(frag.name, 0.0) for frag in (a, b, c)))
                self._issue(1.0, warps)
                self.total.mma += warps
                self.total.code += self.new * (late.products - 1.0)
                shared = max(1.0, float(self.who.sum()) / late.units)
                self.units = max(self.units, self.now) + late.interval * shared
                self.ready[d.name] = max(self.now, self.units - late.interval) + late.mma
            case Add(d, a, b):
                self._wait(max(self.ready.get(frag.name, 0.0) for frag in (a, b)))
                each = -(-d.rows * d.cols // LANES)
                self._issue(float(each), warps)
                self.total.additions += warps
                self.ready[d.name] = self.now + late.add
            case Store(dst, src):
                self._wait(self.ready.get(src.name, 0.0))
                self._tile(dst, src, written=True)
                self._written(dst)
            case Assign() | Publish() | Await():
                self._move(step)
            case Prefix():
                self._add_rows(step)
            case Sync(scope):
                self._issue(1.0, warps)
                if scope is Scope.BLOCK:
                    self.total.block_barriers += self.times
                    self.now += late.barrier
            case Locate():
                raise Unsupported(
                    f"{self.program.name}: segments of unequal length are found in the data's "
                    f"offsets, which the program does not tell. Ask for segments of one size."
                )

    def _move(self, step: _Elementwise) -> None:
        narrow = narrow_rows(step) if isinstance(step, Assign) else None
        if isinstance(step, Assign) and step.src is not None and narrow is not None:
            reads, writes = spread_rows(narrow)
            self._wait(self._when_there(step.src))
            self._count(step.src, reads, written=False)
            self._wait(self.now + self.latencies.shared)
            # Every register of what is written is put together from two.
            self._issue(writes.nbytes / (LANES * 4), self.warps)
            self._count(step.dst, writes, written=True)
            self._written(step.dst)
            return
        touched = accesses(step)
        read = moved_of(step.value) if isinstance(step, Assign) else touched.views_read
        over = transfer_of(self.program, touched.views_written, read, known=self._known)
        self._pass(step, (over, over), read, _arithmetic(step))

    def _add_rows(self, step: Prefix) -> None:
        rows = rows_of(self.program, step, frozenset(), self._known)
        self._pass(step, (rows.how, rows.to), (step.src,), _additions(step, rows))

    def _pass(
        self,
        step: _Elementwise | Prefix,
        transfers: tuple[Transfer, Transfer],
        moved: Sequence[View],
        arithmetic: float,
    ) -> None:
        """Read by one transfer, compute, and write by another, or by that of the result.

        moved: the rectangles that the first transfer reads; each lane reads any other by itself.
        """
        touched, arrives = accesses(step), self.now
        over, to = transfers
        places = dict(zip(moved, over.where[-len(moved) :], strict=True))
        for view in touched.views_read:
            self._wait(self._when_there(view))
            access = self._read(view, over)
            if places.get(view) is Where.SHIFTED:
                self._shift(access, over.vector * format_of(view.buffer.dtype).itemsize)
            arrives = max(arrives, self._when_read(view))
            if view.buffer.space is Space.GLOBAL:
                self._hold(access.nbytes, arrives)
                if self.latencies.fetch and not isinstance(step, Await):
                    nbytes = SECTOR * access.sectors * float(self.who.sum())
                    self.path = max(self.path, arrives) + self.latencies.fetch * nbytes
        here = not any(view.buffer.space is Space.GLOBAL for view in touched.views_read)
        staged = all(view.buffer.space is not Space.GLOBAL for view in touched.views_written)
        if self.latencies.fetch and staged and not here:
            arrives = max(arrives, self.path)
        if here or isinstance(step, Await) or (self.latencies.fetch and staged):
            self._wait(arrives)
        self._issue(arithmetic, self.warps)
        for view in touched.views_written:
            alike = (view.rows, view.cols) == (to.rows, to.cols)
            of_view = to if alike else self._alone(view)
            self._read(view, of_view, written=True)
            self._written(view, max(self.now, arrives))

    # --- Accesses ----------------------------------------------------------------------------

    def _alone(self, view: View) -> Transfer:
        """Return the transfer of one rectangle."""
        return transfer_of(self.program, (view,), (view,), known=self._known)

    def _read(self, view: View, over: Transfer, *, written: bool = False) -> Access:
        access = self._made(lambda: access_of(view, over, self._some(), written=written))
        return self._count(view, access, written=written)

    def _made(self, make: Callable[[], Access]) -> Access:
        """Return an access, that of an earlier walk if there was one."""
        if self.replay is not None:
            return next(self.replay)
        access = make()
        if self.record is not None:
            self.record(access)
        return access

    def _shift(self, access: Access, nbytes: int) -> None:
        """Put vectors of so many bytes together from two aligned ones each (`tcu::words_from`)."""
        words = nbytes // WORD_BYTES
        selected = 3 * words + 3
        self._issue(access.instructions * (1.0 + self.overhead + selected), self.warps)

    def _tile(self, view: View, frag: Frag, *, written: bool) -> Access:
        matrices = self.latencies.matrices
        access = self._made(lambda: tile_pass(view, frag, self._some(), matrices=matrices))
        return self._count(view, access, written=written)

    def _some(self) -> Placement:
        """Return some of the warps, whose addresses stand for those of all."""
        every = np.flatnonzero(self.who)
        some: Ints = every[np.unique(np.linspace(0, every.size - 1, _LOOKED_AT).astype(int))]
        picked = {
            name: value[some] if isinstance(value, np.ndarray) else value
            for name, value in self.all.symbols.items()
        }
        return Placement(some.size, picked)

    def _count(self, view: View, access: Access, *, written: bool) -> Access:
        total, warps = self.total, self.warps
        self._issue(access.instructions * (1.0 + self.overhead), warps)
        if view.buffer.role is BufferRole.STATUS:
            total.words += warps * view.rows * view.cols
            total.awaited += 0 if written else warps * view.rows * view.cols
        elif view.buffer.space is Space.GLOBAL:
            total.lines += warps * access.lines
            opened = access.rows if access.rows > 1 else 0.0
            total.far_rows = max(total.far_rows, opened)
            if written:
                self._translate(view)
                total.lines += warps * access.alone
                total.packets += warps * (access.lines + access.each)
                total.sectors_written += warps * access.sectors
                total.rows_written += warps * opened
            else:
                part, alone = self._missed(view, access)
                missed = warps * part
                total.lines += warps * alone
                total.sectors_read += missed * access.sectors
                total.rows_read += missed * opened
        else:
            total.passes += warps * access.lines
            total.shared_bytes += warps * access.nbytes
        return access

    def _missed(self, view: View, access: Access) -> tuple[float, float]:
        """Return the part of the sectors that no earlier step of the round has read.

        And how many of these are the only ones of their lines.
        """
        if access.which is None or not access.which.size:
            return 1.0, access.alone
        name = view.buffer.name
        had = self.brought.get(name)
        new = access.which if had is None else np.setdiff1d(access.which, had)
        self.brought[name] = access.which if had is None else np.union1d(had, access.which)
        alone = alone_in_line(new) * access.sectors / access.which.size if access.alone else 0.0
        return new.size / access.which.size, alone

    # --- The clock ---------------------------------------------------------------------------

    def _issue(self, instructions: float, warps: float) -> None:
        self.total.instructions += instructions * warps
        self.total.code += self.new * instructions
        self.now += instructions * self.latencies.pace

    def _wait(self, until: float) -> None:
        self.now = max(self.now, until)
        self.coming = [(when, size) for when, size in self.coming if when > self.now]

    def _hold(self, nbytes: float, arrives: float) -> None:
        """Keep what a lane loads in registers, and wait first where there are no more of them."""
        each = nbytes / LANES
        while self.coming and sum(size for _, size in self.coming) + each > _HELD_BYTES:
            self._wait(min(when for when, _ in self.coming))
        rounds = max(0, int(-(-each // _HELD_BYTES)) - 1)
        self.now += rounds * self.latencies.load
        self.coming.append((arrives + rounds * self.latencies.load, min(each, _HELD_BYTES)))
        self.total.in_flight = max(
            self.total.in_flight, LANES * sum(size for _, size in self.coming)
        )

    def _when_read(self, view: View) -> float:
        """Return when what is read now is there.

        Inputs do not change, so that a compiler issues their loads as early as the loop's round or
        the branch begins, as far as there are registers.
        """
        if view.buffer.role is BufferRole.INPUT:
            return max(self.now, max(self.region, self.translated) + self._load(view))
        return self.now + self._latency(view.buffer)

    def _load(self, view: View) -> float:
        """Return the latency of a load of a rectangle of an input.

        It waits for the slowest of its pages. Of the pages that the blocks of a core access at
        once, the TLB has as many as it has entries.
        """
        late = self.latencies
        if not late.missed:
            return late.load
        if view not in self.misses:
            self.misses[view] = self._missing(view)
        return late.load + self.misses[view] * (late.missed - late.load)

    def _translate(self, view: View) -> None:
        """Translate the pages of a store: in order, so that later loads wait for those it lacks."""
        missed = self._load(view) - self.latencies.load
        self.translated = max(self.translated, self.now + missed)

    def _missing(self, view: View) -> float:
        """Return the part of the loads of a rectangle of which a page is not in the TLB."""
        late, warps = self.latencies, self.program.warps
        # Blocks start in order, so that a core has some at equal distances.
        of_core = (self.block + late.apart * np.arange(late.resident)) % self.blocks
        indices = (of_core[:, None] * warps + np.arange(warps)).ravel()
        places = Placement.of_warps(self.program, self.scalars, indices)
        loops = {
            name: value
            for name, value in self.all.symbols.items()
            if not isinstance(value, np.ndarray)
        }
        places = Placement(places.count, {**loops, **places.symbols})

        def pages(one: View) -> Ints:
            return places.addresses(one) * format_of(one.buffer.dtype).itemsize // late.page

        beside = self.beside.get(view, (view,))
        count = sum(
            np.unique(
                np.concatenate([pages(one).ravel() for one in beside if one.buffer == buffer])
            ).size
            for buffer in {one.buffer for one in beside}
        )
        if count <= late.entries:
            return 0.0
        own = np.broadcast_to(pages(view), (places.count, view.rows, view.cols))[0]
        return float(1 - (late.entries / count) ** np.unique(own).size)

    def _latency(self, buffer: Buffer) -> float:
        if buffer.role is BufferRole.STATUS:
            return self.latencies.word
        return self.latencies.load if buffer.space is Space.GLOBAL else self.latencies.shared

    def _when_there(self, view: View) -> float:
        """Return when what a rectangle of shared memory holds is there."""
        low, high = self._stretch(view)
        several = self.stored.get(view.buffer.name, {})
        return max(
            (when for (begin, end), when in several.items() if begin <= high and low <= end),
            default=0.0,
        )

    def _stretch(self, view: View) -> tuple[int, int]:
        """Return the first and the last place of a rectangle, of the first warp."""
        begin = view.offset.evaluate({**self.all.symbols, **self._first})
        down, across = (view.rows - 1) * view.row_stride, (view.cols - 1) * view.col_stride
        return begin + min(0, down, across), begin + down + across

    def _arrives(self, name: str, view: View, access: Access) -> None:
        when = self._when_read(view)
        self.ready[name] = when
        if view.buffer.space is Space.GLOBAL:
            self.coming.append((when, 0.0))
            waiting = {name: w for name, w in self.ready.items() if w > self.now}
            self.total.in_flight = max(self.total.in_flight, access.nbytes * len(waiting))

    def _written(self, view: View, when: float | None = None) -> None:
        if view.buffer.space is not Space.GLOBAL:
            several = self.stored.setdefault(view.buffer.name, {})
            several[self._stretch(view)] = self.now if when is None else when
