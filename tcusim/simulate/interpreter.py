"""The one interpreter: runs a step program on NumPy arrays, vectorised over the warps of a grid.

It is a generator. Each leaf step is one event, after its effect; the caller sees the fragments and
the memory of every warp at that moment. The stepper, the counters and `run` are all watchers of
these events.

All warps run in lockstep, which would hide races. A write to shared memory therefore becomes
visible only after the `Sync` that a GPU needs: to the writing warp after a warp barrier, to other
warps after a block barrier. Unwritten shared memory and outputs contain NaN (integers: bytes of
0x80).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from html import escape
from typing import Any, NamedTuple, NoReturn, assert_never

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms.options import as_size
from tcusim.errors import InputError, VerifyError, require_flags
from tcusim.machine import (
    Values,
    as_values,
    canonical_nan,
    format_of,
    from_values,
    round_values,
    split_values,
)
from tcusim.machine.formats import unwritten_values
from tcusim.machine.sequential import round_to_odd, two_sum
from tcusim.machine.values import multiplier_of
from tcusim.markup import shown
from tcusim.program.bind import require_inputs, rule_of
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
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
    Operation,
    Pattern,
    PatternKind,
    Prefix,
    Program,
    Publish,
    Ranges,
    Scope,
    Space,
    Step,
    Store,
    Sync,
    Value,
    View,
    When,
    accesses,
    type_of,
    walk,
)
from tcusim.program.printer import line
from tcusim.program.walk import Ints, Mask, Placement, order_of_blocks, require_order
from tcusim.simulate.schedule import Fork, Leaf, Schedule, prepared, warps_of
from tcusim.simulate.windows import Elements, OutOfBounds, memory_of_warps, pitch_of_warps
from tcusim.table import Table

# Warps interpreted together: few enough that a step's temporaries fit in a CPU cache.
WARPS_AT_ONCE = 1024

# More than any block index.
_NOBODY = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Event:
    """One leaf step that has just run.

    Attributes
    ----------
    path : str
        The path of the step in the listing, such as ``"7.2"``.
    step : Step
        The step.
    loops : mapping of str to int
        The loop variables.
    warps : array of int
        Indices in the grid of the warps that ran it; others had branched away.
    state : State
        Fragments and memory after the step. It changes when the iteration goes on.
    """

    path: str
    step: Step
    loops: Mapping[str, int]
    warps: Ints
    state: State

    def _repr_html_(self) -> str:
        """Show the step, and the current value of the fragment it wrote in its first warp."""
        loops = "".join(f", {name} = {value}" for name, value in self.loops.items())
        first = int(self.warps[0])
        head = (
            f"<strong>{escape(self.path + loops)}</strong> <code>{escape(line(self.step))}</code>"
        )
        parts = [f"<p>{head} in {self.warps.size} warp{'s' * (self.warps.size != 1)}</p>"]
        for frag in accesses(self.step).frags_written:
            tile = self.state.tile(frag, first)
            rows = [[str(row), *(f"{float(x):.5g}" for x in tile[row])] for row in range(len(tile))]
            parts.append(f'<p class="quiet">{escape(frag.name)} of warp {first}</p>')
            parts.append(Table(rows=rows).html(kind="numbers"))
        return shown(*parts)


def interpret(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    arch: str = "hopper",
    warps_at_once: int = WARPS_AT_ONCE,
    check: bool = True,
    block_order: str = "ascending",
    seed: int = 0,
) -> Iterator[Event]:
    """Run a program step by step with the arithmetic of `arch`; yield an event after each step.

    Parameters
    ----------
    program : Program
        It is verified first, unless `check` is False.
    inputs : mapping of str to array
        One flat array for each of the program's inputs, of the input's element type.
    arch : str
        An architecture or the name of a GPU; see `tcusim.machine.arches`.
    warps_at_once : int
        Large grids are run in batches of about this many warps, so each step then gives one
        event for each batch.
    check : bool
        False runs a program that `verify` rejects, to show the effect of a missing barrier, or of
        two warps that write one element. An access outside a buffer is still an error, and so is
        waiting for an unpublished word.
    block_order : {"ascending", "descending", "shuffled"}
        The execution order of blocks: the bits of a correct program do not depend on it. Orders
        other than the first run blocks one at a time. Blocks of a program with status words are
        numbered by start, so their order is always ascending.
    seed : int
        Seed of the shuffled order.

    Yields
    ------
    Event
        The step that has just run, for the warps that ran it together.

    Raises
    ------
    InputError
        If the inputs do not fit the program, `warps_at_once` is no integer of at least 1, or
        `check` is neither True nor False.
    VerifyError
        If the program breaks a rule.
    """
    require_flags(check=check)
    as_size("warps_at_once", warps_at_once)
    state = State(program, inputs, arch, check=check)
    state.records_writers = True
    yield from state.run(warps_at_once, block_order, seed)


def run_numpy(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    arch: str = "hopper",
    watch: Callable[[Event], object] | None = None,
    check: bool = True,
    block_order: str = "ascending",
    seed: int = 0,
) -> dict[str, NDArray[Any]]:
    """Run a program on the simulator; return its outputs as flat arrays by name.

    `watch` is called with every event; the other parameters and the errors are as for `interpret`.
    """
    state = State(program, inputs, arch, check=check)
    if watch is None:
        state.finish(block_order, seed)
    else:
        for event in state.run(WARPS_AT_ONCE, block_order, seed):
            watch(event)
    return state.outputs()


class State:
    """The state of all warps of a batch: fragments, shared and global memory."""

    def __init__(
        self, program: Program, inputs: Mapping[str, Any], arch: str, *, check: bool = True
    ) -> None:
        require_inputs(program, inputs)
        found = verify(program) if check else None
        self.program = program
        self.check = check
        # No recording is needed if each element is proved to have exactly one writing warp.
        left = found.unproven.keys() - found.limited if found else set()
        self.records_writers = not left.isdisjoint(("one_writer", "outputs_written"))
        self.arch = arch
        self.rule = rule_of(program, arch)
        self.multiplier = None if self.rule is None else multiplier_of(self.rule)
        arrays = {name: _flat(name, array) for name, array in inputs.items()}
        self._prepared = prepared(program, tuple([(name, a.size) for name, a in arrays.items()]))
        self.scalars = self._prepared.scalars
        self.memory = {
            buffer.name: np.ascontiguousarray(
                as_values(arrays[buffer.name], buffer.dtype, name=buffer.name)
            )
            for buffer in program.inputs
        }
        for buffer in (*program.outputs, *program.status):
            size = self._prepared.sizes[buffer.name]
            self.memory[buffer.name] = unwritten_values((size,), buffer.dtype)
        # The index of the block that published each element; none yet.
        self._publishers = self._of_each(program.status, _NOBODY)
        self._fragments: dict[str, Values] = {}
        self._shared: dict[str, Values] = {}
        # Memory in its contiguous layout: one array for all warps.
        self._lying: dict[str, Values] = {}
        self._pending: list[_Write] = []
        self._unshared: list[_Write] = []
        self._begin(self._prepared.idle)

    @cached_property
    def writers(self) -> dict[str, Ints]:
        """For each output, the warp of the grid that wrote each element, or -1.

        Recorded by `interpret`, and by `run_numpy` if `verify` could not prove a single writer.
        """
        return self._of_each(self.program.outputs, -1)

    def _of_each(self, buffers: tuple[Buffer, ...], number: int) -> dict[str, Ints]:
        return {one.name: np.full(self.memory[one.name].size, number) for one in buffers}

    # --- Queries by watchers ----------------------------------------------------------------

    def fragment(self, frag: Frag | str, warps: Ints | None = None) -> Values:
        """Return the tiles (W, rows, cols) of these warps of the batch; default all."""
        tiles = self._fragments[frag if isinstance(frag, str) else frag.name]
        places = self._places(warps)
        shape = (len(places), *tiles.shape[1:])
        return np.broadcast_to(tiles, shape) if len(tiles) == 1 else tiles[places]

    def ranges(self, ranges: Ranges, warps: Ints | None = None) -> Ints:
        """Return the bounds of these warps' ranges: (W, 2, count)."""
        return np.stack(self._placement.ranges[ranges.name], axis=1)[self._places(warps)]

    def read(self, view: View, warps: Ints | None = None) -> Values:
        """Return a view's values for these warps: (W, rows, cols), zeros if out of bounds."""
        elements = self._find(view, self._places(warps))
        return np.broadcast_to(self._gather(view, elements), elements.shape)

    def valid(self, view: View, warps: Ints | None = None) -> Mask:
        """Return a mask of the view's bounds: (W, rows, cols)."""
        places = self._places(warps)
        return _in_each(self._placement.inside(view, places), places)

    def places(self, view: View, warps: Ints | None = None) -> Ints:
        """Return the index of each element in its buffer, in bounds or not: (W, rows, cols)."""
        places = self._places(warps)
        return _in_each(self._placement.addresses(view, places), places)

    def look(self, view: View, warp: Ints) -> tuple[Values, Ints, Mask]:
        """Return `read`, `places` and `valid` of one warp, each (rows, cols), at the cost of one.

        The values may be the memory itself, which changes.
        """
        places = self._places(warp)
        index, mask = self._found_for(view, places)
        values = self._at(view, places, index, mask)[0]
        return values, *self._whereabouts(view, places, index, mask)

    def where(self, view: View, warp: Ints) -> tuple[Ints, Mask]:
        """Return only the places and the mask of `look`."""
        places = self._places(warp)
        return self._whereabouts(view, places, *self._found_for(view, places))

    def _whereabouts(
        self, view: View, places: Ints, index: Ints, mask: Mask | None
    ) -> tuple[Ints, Mask]:
        shape = view.rows, view.cols
        if mask is None:
            return _broadcast(index[0], shape), everywhere(shape)
        index = self._placement.addresses(view, places)
        return _broadcast(index[0], shape), _broadcast(mask[0], shape)

    def _found_for(self, view: View, place: Ints) -> tuple[Ints, Mask | None]:
        """Return the indices of a view's elements in one warp, 0 if out of bounds, and the mask.

        They are cached for a view of the step that has just run.
        """
        elements = self._leaf.found.get(id(view))
        if elements is not None:
            places = elements.places
            at = 0 if places.size == 1 else int(np.searchsorted(places, place[0]))
            if at < places.size and places[at] == place[0]:
                return elements.of_one(at)
        return self._find(view, place).of_one(0)

    def tile(self, frag: Frag, warp: int) -> Values:
        """Return the tile of one warp of the batch; it may be read-only."""
        held = self._fragments[frag.name]
        # A tile that is equal in all warps is stored once.
        return np.asarray(held[self._place(warp) % len(held)])

    def held(self, warp: int) -> tuple[dict[str, Values], dict[str, Values]]:
        """Return a warp's view of the state: its fragments by name, and its shared memory.

        They are the live arrays, which change.
        """
        place = self._place(warp)
        tiles = {
            name: held[place if len(held) > 1 else 0] for name, held in self._fragments.items()
        }
        return tiles, self.shared(warp)

    def shared(self, warp: int) -> dict[str, Values]:
        """Return the shared memory visible to a warp of the batch: the live arrays."""
        place = self._place(warp)
        return {name: shared[place] for name, shared in self._shared.items()}

    def outputs(self) -> dict[str, NDArray[Any]]:
        """Return the outputs as flat arrays, as far as they have been written."""
        return {
            buffer.name: from_values(self.memory[buffer.name], buffer.dtype)
            for buffer in self.program.outputs
        }

    # --- The run -----------------------------------------------------------------------------

    def run(
        self, warps_at_once: int, block_order: str = "ascending", seed: int = 0
    ) -> Iterator[Event]:
        """Run every block of the grid, in batches; see `interpret`."""
        for leaves in self._batches_of_leaves(warps_at_once, block_order, seed):
            for leaf in leaves:
                with np.errstate(all="ignore"):
                    self._step(leaf)
                yield Event(leaf.path, leaf.step, leaf.loops, leaf.warps, self)
        self._require_written()

    def finish(self, block_order: str = "ascending", seed: int = 0) -> None:
        """Run every block of the grid, as `run` does, without watchers."""
        with np.errstate(all="ignore"):
            for leaves in self._batches_of_leaves(WARPS_AT_ONCE, block_order, seed):
                for leaf in leaves:
                    self._step(leaf)
        self._require_written()

    def _require_written(self) -> None:
        """Require that a launch with blocks has written all elements of its outputs."""
        if not (self.check and self.records_writers):
            return
        if any(isinstance(step, Locate) for _, step in walk(self.program.steps)):
            # Elements may belong to no segment.
            return
        for buffer in self.program.outputs:
            missing = np.flatnonzero(self.writers[buffer.name] == -1)
            if missing.size and not buffer.partial and self._prepared.grid:
                raise VerifyError(
                    "outputs_written",
                    self.program.name,
                    "",
                    "",
                    f"nothing has written {buffer.name}[{missing[0]}] ({missing.size} such "
                    f"elements; scalars: {self.scalars}). Correct the offsets and bounds of what "
                    f"writes {buffer.name!r}, or its size, or declare it as partial.",
                )

    def batches(
        self, warps_at_once: int = WARPS_AT_ONCE, block_order: str = "ascending", seed: int = 0
    ) -> list[Ints]:
        """Return the indices of the blocks that run together, batch after batch."""
        program = self.program
        order = order_of_blocks(self._prepared.grid, block_order, seed)
        # Other orders run blocks one at a time: in lockstep there would be no order.
        batch = self._prepared.blocks_at_once(warps_at_once) if block_order == "ascending" else 1
        if program.status:
            order = np.sort(order)
            batch = program.columns if self._publish_first() else 1
        return [order[first : first + batch] for first in range(0, order.size, batch)]

    def _batches_of_leaves(
        self, warps_at_once: int, block_order: str, seed: int
    ) -> Iterator[Iterable[Leaf]]:
        """Begin each batch in turn, and yield its steps."""
        require_order(block_order, seed)
        if block_order == "ascending" and self._prepared.fits(warps_at_once):
            self._begin(self._prepared.schedule(self._prepared.single_batch, 1))
            yield self._leaves()
            return
        batches = self.batches(warps_at_once, block_order, seed)
        # Blocks in another order do not recur.
        runs_again = block_order == "ascending" or bool(self.program.status)
        for blocks in batches:
            warps = warps_of(self.program, blocks)
            if runs_again:
                self._begin(self._prepared.schedule(warps, len(batches)))
            else:
                self._begin(self._prepared.schedule_of(self.program.steps, warps))
            yield self._leaves()

    def _publish_first(self) -> bool:
        """Whether the blocks of each row publish before they await each other.

        Only then may they run in lockstep: on a GPU, a block may wait for one that still runs.
        """
        columns = self.program.columns
        steps = _with_status(self.program.steps)
        for first in range(0, self._prepared.grid, columns):
            warps = warps_of(self.program, np.arange(first, first + columns))
            self._begin(self._prepared.schedule_of(steps, warps))
            awaited = {name: known < 0 for name, known in self._publishers.items()}
            for leaf in self._leaves():
                step, self._leaf = leaf.step, leaf
                assert isinstance(step, Publish | Await)
                view = step.src if isinstance(step, Await) else step.dst
                used = self._elements(view).kept
                if isinstance(step, Await):
                    awaited[view.buffer.name][used] = True
                elif awaited[view.buffer.name][used].any():
                    return False
        return True

    def _begin(self, schedule: Schedule) -> None:
        """Set up a batch of warps, with fresh registers and poisoned shared memory."""
        self._schedule = schedule
        self.warps = schedule.warps
        # The current step, or the latest.
        self._leaf = schedule.start
        self._loops = self._leaf.loops
        self._places_of_warps = schedule.placement(self._loops)
        self._fragments = {}
        self._pending = []
        self._unshared = []
        self._lying = dict(self.memory)
        for buffer in self.program.scratch:
            name, size = buffer.name, self._prepared.sizes[buffer.name]
            self._lying[name], self._shared[name] = memory_of_warps(
                self.warps.size, size, buffer.dtype
            )

    def _leaves(self) -> Iterable[Leaf]:
        """Return the leaf steps of the batch in execution order, with branches on data resolved."""
        return self._schedule.leaves or self._chosen(self._schedule.nodes())

    def _chosen(self, nodes: Iterable[Leaf | Fork]) -> Iterator[Leaf]:
        for node in nodes:
            if not isinstance(node, Fork):
                yield node
                continue
            self._leaf = node
            holds = self._taken(node)
            for taken, there in ((True, node.places[holds]), (False, node.places[~holds])):
                if there.size:
                    yield from self._chosen(node.branch(there, taken=taken))

    def _taken(self, fork: Fork) -> Mask:
        """Return a mask of the fork's warps that run the body."""
        step, holds = fork.step, fork.holds
        assert isinstance(step, When)
        if step.not_finite is not None:
            holds = holds & ~np.isfinite(self._gather(step.not_finite)).all((1, 2))
        if step.longer is not None:
            begin, end = (found[fork.places] for found in self._placement.ranges[step.longer.name])
            holds = holds & (end - begin > 1).any(1)
        return holds

    @property
    def _placement(self) -> Placement:
        """The placement of the batch's warps, in the loops of the current step."""
        if self._leaf.loops is not self._loops:
            self._loops = self._leaf.loops
            self._places_of_warps.symbols = {**self._schedule.symbols, **self._loops}
        return self._places_of_warps

    def _step(self, leaf: Leaf) -> None:  # noqa: C901 - one case for each step
        """Run one leaf step."""
        self._leaf = leaf
        match step := leaf.step:
            case Const(dst, pattern):
                self._put(dst, self._constant(pattern, dst))
            case Load(dst, value):
                values = self._value(value)
                self._put(dst, as_values(values, "tf32") if dst.dtype == "tf32" else values)
            case Mma(d, a, b, c):
                left, right, addend = self._tiles(a), self._tiles(b), self._tiles(c)
                assert self.multiplier is not None
                self._put(d, self.multiplier.tiles(left, right, addend))
            case Add(d, a, b):
                one, two = self._tiles(a), self._tiles(b)
                self._put(d, add_values(one, two, d.dtype))
            case Store(dst, src):
                self._scatter(dst, self._tiles(src))
            case Assign(value=value):
                self._assign(step.dsts, value)
            case Prefix(dst, value, totals):
                values = convert_values(self._value(value), type_of(value), dst.buffer.dtype)
                sums, whole = prefix_sums(values, reverse=step.reverse, exclusive=step.exclusive)
                self._scatter(dst, whole if step.sums_alone else sums)
                if totals is not None:
                    self._scatter(totals, whole)
            case Publish(dst, src):
                self._publish(dst, self._gather(src))
            case Await(dst, src):
                self._require_published(src)
                self._scatter(dst, self._gather(src))
            case Locate(dst):
                self._put_ranges(dst, self._located(step))
            case Sync(scope):
                self._sync(scope)
            case Loop() | When():
                raise AssertionError("control steps are run by _leaves")
            case _:
                assert_never(step)

    def _assign(self, dsts: Sequence[View], value: Value) -> None:
        dtype = dsts[0].buffer.dtype
        if isinstance(value, Formula) and value.operation is Operation.SPLIT:
            parts = split_values(self._value(value.terms[0]), dtype, len(dsts))
        else:
            parts = (convert_values(self._value(value), type_of(value), dtype),)
        for view, part in zip(dsts, parts, strict=True):
            self._scatter(view, part)

    def _value(self, value: Value) -> Values:
        """Return a value in the warps of the step, in its own type; each rectangle is read once."""
        if isinstance(value, View):
            return self._gather(value)
        return self._computed(value, [])

    def _computed(self, value: Value, read: list[tuple[View, Values]]) -> Values:
        match value:
            case View():
                # To hash a rectangle takes longer than to compare it to the few others.
                for view, values in read:
                    if view == value:
                        return values
                read.append((value, self._gather(value)))
                return read[-1][1]
            case Formula(operation, terms, dtype):
                found = [
                    convert_values(self._computed(one, read), type_of(one), dtype) for one in terms
                ]
                return operated(operation, found, dtype)
            case _:
                return np.float32(value).reshape(1, 1, 1)

    def _refuse(self, check: str, message: str) -> NoReturn:
        """Raise the error of the current step."""
        leaf = self._leaf
        raise VerifyError(check, self.program.name, leaf.path, line(leaf.step), message)

    # --- Fragments ---------------------------------------------------------------------------

    def _places(self, warps: Ints | None) -> Ints:
        """Return the positions in the batch of these warps of the grid."""
        if warps is None:
            return np.arange(self.warps.size)
        # The blocks of a batch are consecutive, for any order of batches.
        places: Ints = np.asarray(warps) - self.warps[0]
        return places

    def _place(self, warp: int) -> int:
        """Return the position in the batch of a warp of the grid."""
        return warp - int(self.warps[0])

    def _tiles(self, frag: Frag) -> Values:
        """Return tiles for mma: (W, rows, cols), or (1, rows, cols) if the same in all warps."""
        tiles, leaf = self._fragments[frag.name], self._leaf
        return tiles if leaf.whole or len(tiles) == 1 else tiles[leaf.places]

    def _put(self, frag: Frag, values: Values) -> None:
        """Set the fragment in the warps of the current step; the others keep theirs."""
        if not self._leaf.whole:
            tiles = unwritten_values((self.warps.size, frag.rows, frag.cols), frag.dtype)
            tiles[...] = self._fragments.get(frag.name, tiles)
            tiles[self._leaf.places] = values
            values = tiles
        self._fragments[frag.name] = values

    def _put_ranges(self, ranges: Ranges, found: tuple[Ints, Ints]) -> None:
        """Set the bounds of ranges, (W, count), in the warps of the current step."""
        fresh = np.zeros((2, self.warps.size, ranges.count), int)
        held = self._placement.ranges.setdefault(ranges.name, (fresh[0], fresh[1]))
        for array, values in zip(held, found, strict=True):
            array[self._leaf.places] = values

    def _located(self, step: Locate) -> tuple[Ints, Ints]:
        """Return the bounds of chunks of ragged segments: (W, count) each."""
        segments, chunk, places = step.segments, step.segments.chunk, self._leaf.places
        number = self._placement.value(step.first, places)[:, :, 0] + np.arange(step.dst.count)
        offsets = self.memory[segments.offsets.name]
        starts = segments.positions(offsets, np.arange(offsets.size))
        count = starts.size - 1
        if count == 0:
            return np.zeros_like(number), np.zeros_like(number)
        if chunk is None:
            segment = np.clip(number, 0, count - 1)
            begin, inside = starts[segment], number < count
        else:
            firsts = starts // chunk + np.arange(starts.size)
            segment = np.clip(np.searchsorted(firsts[:-1], number, side="right") - 1, 0, None)
            begin = starts[segment] + (number - firsts[segment]) * chunk
            inside = number >= firsts[0]
        limit = starts[segment] + segments.values(np.diff(offsets))[segment]
        begin = np.where(inside, np.minimum(begin, limit), limit)
        end = limit if chunk is None else np.minimum(begin + chunk, limit)
        if segments.limit is None:
            return begin, end
        most = self._placement.value(segments.limit, places)[:, :, 0]
        return np.maximum(begin, 0), np.minimum(end, most)

    def _constant(self, pattern: Pattern, frag: Frag) -> Values:
        """Return the 0/1 matrix, (1, rows, cols), or one for each warp if its offset differs."""
        offset = self._placement.value(pattern.offset, self._leaf.places)
        if len(offset) > 1:
            return matrix(pattern, frag.rows, frag.cols, frag.dtype, offset)
        return _same_matrix(pattern, frag.rows, frag.cols, frag.dtype, int(offset[0, 0, 0]))

    # --- Memory ------------------------------------------------------------------------------

    def _elements(self, view: View) -> Elements:
        """Return the elements of a view of the current step, in its warps."""
        known = self._leaf.found.get(id(view))
        if known is None:
            known = self._find(view, self._leaf.places)
            self._schedule.keep(self._leaf, view, known)
        return known

    def _find(self, view: View, places: Ints) -> Elements:
        """Return the elements of a view in the warps at these positions; all are in the buffer."""
        buffer, pitch = view.buffer, 1
        size = self._prepared.sizes[buffer.name]
        if buffer.space is not Space.GLOBAL:
            pitch = pitch_of_warps(self.warps.size) if places.size == self.warps.size else 0
        try:
            return Elements.find(self._placement, view, places, size, pitch)
        except OutOfBounds as outside:
            self._refuse(
                "inside_buffer",
                f"touches elements {outside.first}..{outside.last} of {buffer.name!r}, which has "
                f"{size} (scalars: {self.scalars}). Bound the view, or make the buffer larger.",
            )

    def _gather(self, view: View, elements: Elements | None = None) -> Values:
        """Return a view's elements, (W or 1, rows, cols), zeros if out of bounds.

        `elements` are by default those in the warps of the current step.
        """
        elements = elements or self._elements(view)
        if elements.reads is None:
            return self._at(view, elements.places, elements.index, elements.mask)
        # In memory layout, copied so that later writes do not change them.
        lying = elements.reads.of(self._lying[view.buffer.name])
        return lying.copy("K")

    def _at(self, view: View, places: Ints, index: Ints, mask: Mask | None) -> Values:
        """Return elements, by their indices in the buffer, in the warps at these positions."""
        name = view.buffer.name
        values: Values
        if view.buffer.space is not Space.GLOBAL:
            # One index for each element takes half as long as two.
            pitch = pitch_of_warps(self.warps.size)
            values = self._lying[name].take(index * pitch + places[:, None, None])
        elif self.memory[name].size:
            values = self.memory[name].take(index)
        else:
            values = np.zeros(index.shape, self.memory[name].dtype)
        return values if mask is None else np.where(mask, values, values.dtype.type(0))

    def _scatter(self, view: View, values: Values) -> None:
        """Write a view's in-bounds elements; writes to shared memory wait for a barrier."""
        elements, name = self._elements(view), view.buffer.name
        if view.buffer.space is not Space.GLOBAL:
            self._pending.append(_Write(view.buffer, elements, values))
            return
        if view.buffer.role is BufferRole.OUTPUT and self.records_writers:
            own = self._leaf.warps[np.nonzero(elements.keep)[0]]
            self._record_writers(view.buffer, elements.kept, own)
        elements.put(self.memory[name], values)

    def _record_writers(self, buffer: Buffer, index: Ints, own: Ints) -> None:
        """Record the writing warps of these elements of an output; no two may write one."""
        writers = self.writers[buffer.name]
        before = writers[index]
        writers[index] = own
        clash = ((before != -1) & (before != own)) | (writers[index] != own)
        if self.check and clash.any():
            at = int(np.flatnonzero(clash)[0])
            other = before[at] if before[at] not in (-1, own[at]) else writers[index[at]]
            self._refuse(
                "one_writer",
                f"writes {buffer.name}[{index[at]}] in warp {own[at]} of the grid, and warp "
                f"{other} writes it too. Which one is last is not known: bound the view, or let "
                f"one warp write it, with When.",
            )

    def _publish(self, view: View, values: Values) -> None:
        """Write status words, each once."""
        elements = self._elements(view)
        where = elements.kept
        publishers = self._publishers[view.buffer.name]
        if (publishers[where] != _NOBODY).any() or np.unique(where).size < where.size:
            self._refuse(
                "published_once",
                f"publishes an element of {view.buffer.name!r} that was published before. Give "
                f"each block its own, and let one warp publish it.",
            )
        publishers[where] = np.broadcast_to(self._block_numbers(), elements.shape)[elements.keep]
        elements.put(self.memory[view.buffer.name], values)

    def _require_published(self, view: View) -> None:
        """Require that an earlier block publishes the awaited words: a GPU would hang."""
        elements = self._elements(view)
        missing = self._publishers[view.buffer.name][elements.index] >= self._block_numbers()
        if elements.mask is not None:
            missing = missing & elements.mask
        if missing.any():
            at = np.broadcast_to(elements.index, missing.shape)[missing][0]
            self._refuse(
                "awaits_published",
                f"waits for {view.buffer.name}[{at}], which no earlier block publishes. Publish it "
                f"there, before the block itself waits, or bound the view.",
            )

    def _block_numbers(self) -> Ints:
        """Return the index of each warp's block in the grid: (W, 1, 1)."""
        return self._leaf.warps[:, None, None] // self.program.warps

    def _sync(self, scope: Scope) -> None:
        """Make earlier writes of these warps visible to the warp itself, or to its block."""
        arrived, self._pending = self._pending, []
        if not self._leaf.whole:
            arrived = list(self._synced(arrived))
        for write in arrived:
            self._apply(write, range(1))
            if write.buffer.space is Space.SHARED:
                self._unshared.append(write)
        if scope is Scope.BLOCK:
            for write in self._unshared:
                self._apply(write, range(1, self.program.warps))
            self._unshared = []

    def _synced(self, waiting: list[_Write]) -> Iterator[_Write]:
        """Yield the writes of the warps at the barrier; other writes stay pending."""
        synced = np.zeros(self.warps.size, bool)
        synced[self._leaf.places] = True
        for write in waiting:
            here = synced[write.elements.places]
            if not here.all():
                self._pending.append(write.of(~here))
            if here.any():
                yield write.of(here)

    def _apply(self, write: _Write, turns: range) -> None:
        """Apply a write for the warps at these distances from the writer in its block."""
        elements, name = write.elements, write.buffer.name
        if turns == range(1) and elements.writes is not None:
            elements.put(self._lying[name], write.values)
            return
        if not turns:
            return
        count, places, lying = self.program.warps, elements.places, self._lying[name].reshape(-1)
        first = places - places % count
        index, values = elements.index, write.values
        if elements.mask is not None:
            index, values = elements.kept, elements.chosen(values)
        # As in `_at`.
        index = index * pitch_of_warps(self.warps.size)
        for turn in turns:
            seer = (first + (places - first + turn) % count)[:, None, None]
            if elements.mask is not None:
                seer = np.broadcast_to(seer, elements.shape)[elements.keep]
            lying[index + seer] = values


def _with_status(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return only the steps that publish or await, with their loops and branches."""
    kept: list[Step] = []
    for step in steps:
        match step:
            case Loop(body=body) if inner := _with_status(body):
                kept.append(replace(step, body=inner))
            case When(body=body, otherwise=otherwise):
                inner, other = _with_status(body), _with_status(otherwise)
                if inner or other:
                    kept.append(replace(step, body=inner, otherwise=other))
            case Publish() | Await():
                kept.append(step)
            case _:
                pass
    return tuple(kept)


def _in_each(array: NDArray[Any], places: Ints) -> NDArray[Any]:
    """Return an array (W or 1, rows, cols) for each of the warps at these positions."""
    return np.broadcast_to(array, (places.size, *array.shape[1:]))


class _Write(NamedTuple):
    """A write of values (W or 1, rows, cols) to shared memory, pending for some warps."""

    buffer: Buffer
    elements: Elements
    values: Values

    def of(self, chosen: Mask) -> _Write:
        """Return the write of only the chosen warps."""
        if chosen.all():
            return self
        values = self.values[chosen] if len(self.values) > 1 else self.values
        return _Write(self.buffer, self.elements.of(chosen), values)


def matrix(pattern: Pattern, rows: int, cols: int, dtype: str, offset: Ints) -> Values:
    """Return the 0/1 matrix of a pattern for each of its offsets, (W, 1, 1): (W, rows, cols)."""
    row = np.arange(rows)[None, :, None]
    col = np.arange(cols)[None, None, :]
    # The indices of the segments that share a row: 0 for a single segment.
    of_row, of_col = (at // pattern.size if pattern.size else at * 0 for at in (row, col))
    match pattern.kind:
        case PatternKind.ZEROS:
            ones = row + col < 0
        case PatternKind.ONES:
            ones = row + col >= 0
        case PatternKind.ROW:
            ones = row == offset + of_col
        case PatternKind.COL:
            ones = col == offset + of_row
        case PatternKind.UPPER:
            ones = (row <= col + offset) & (of_row == of_col + pattern.segments)
        case PatternKind.LOWER:
            ones = (col <= row + offset) & (of_col == of_row + pattern.segments)
        case _:
            assert_never(pattern.kind)
    return ones.astype(format_of(dtype).dtype)


@lru_cache(maxsize=256)
def _same_matrix(pattern: Pattern, rows: int, cols: int, dtype: str, offset: int) -> Values:
    """Return the shared read-only matrix of all warps."""
    values = matrix(pattern, rows, cols, dtype, np.full((1, 1, 1), offset))
    values.flags.writeable = False
    return values


@lru_cache(maxsize=256)
def everywhere(shape: tuple[int, ...]) -> Mask:
    """Return an all-true mask: the same object for the same shape."""
    mask = np.ones(shape, bool)
    mask.flags.writeable = False
    return mask


def _broadcast(array: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    return array if array.shape == shape else np.broadcast_to(array, shape)


def add_values(one: Values, two: Values, dtype: str) -> Values:
    """Add values of a type, each sum rounded once to nearest even; NaN as a GPU writes it."""
    target = format_of(dtype)
    if not target.is_float:
        return one + two
    if target.name in ("f16", "f32", "f64"):
        return canonical_nan(one + two, target)
    # float64 has enough extra bits that rounding a bf16 sum twice is harmless.
    total = one.astype(np.float64) + two.astype(np.float64)
    return canonical_nan(round_values(total, target), target)


def prefix_sums(values: Values, *, reverse: bool, exclusive: bool) -> tuple[Values, Values]:
    """Return the prefix sums of rows of values, and their sums, a column; see `Prefix`."""
    cols = values.shape[-1]
    size = 1 << (cols - 1).bit_length()
    sums = np.zeros((*values.shape[:-1], size), values.dtype)
    # -0 + 0 is 0.
    sums[..., :cols] += values
    half = 1
    while half < size:
        pairs = sums.reshape(*sums.shape[:-1], size // (2 * half), 2, half)
        if reverse:
            pairs[..., 0, :] += pairs[..., 1, :1]
        else:
            pairs[..., 1, :] += pairs[..., 0, -1:]
        half *= 2
    sums = canonical_nan(sums, "f32" if sums.dtype == np.float32 else "f64")
    whole = sums[..., :1] if reverse else sums[..., -1:]
    if exclusive:
        earlier = np.zeros_like(sums)
        if reverse:
            earlier[..., :-1] = sums[..., 1:]
        else:
            earlier[..., 1:] = sums[..., :-1]
        sums = earlier
    return sums[..., :cols], whole


def operated(operation: Operation, terms: Sequence[Values], dtype: str) -> Values:
    """Return the result of an operation on values of a type, rounded; NaN as a GPU writes it."""
    one, zero = terms[0], terms[0].dtype.type(0)
    match operation:
        case Operation.PLUS:
            return add_values(one, terms[1], dtype)
        case Operation.PLUS_TO_ODD:
            return canonical_nan(round_to_odd(*two_sum(one, terms[1])), dtype)
        case Operation.TIMES:
            return canonical_nan(one * terms[1], dtype)
        case Operation.OVER:
            return canonical_nan(one / terms[1], dtype)
        case Operation.ROOT:
            return canonical_nan(np.sqrt(one), dtype)
        case Operation.MAX:
            zeros = (one == 0) & (terms[1] == 0)
            return canonical_nan(np.where(zeros, one + terms[1], np.maximum(one, terms[1])), dtype)
        case Operation.FINITE:
            return np.where(np.isfinite(one), one, zero)
        case Operation.NOT_FINITE:
            return np.where(np.isfinite(one), zero, one)
        case Operation.WHOLE:
            whole: Values = np.rint(one) + zero
            return canonical_nan(whole, dtype)
        case Operation.FRACTION:
            # From -0 an integer of +0 is taken, which leaves -0.
            fraction: Values = one - (np.rint(one) + zero)
            return np.where(np.isfinite(one), fraction, zero)
        case Operation.SPLIT:
            return split_values(one, dtype, 1)[0]
        case _:
            assert_never(operation)


def convert_values(values: Values, source: str, target: str) -> Values:
    """Convert values to another type, rounded once to nearest even."""
    if source == target:
        return values
    wanted = format_of(target)
    if not wanted.is_float:
        return values.astype(wanted.dtype)
    if {source, target} == {"f32", "f64"} or (source == "bf16" and target in ("f32", "f64")):
        return values.astype(wanted.dtype)  # an H200 keeps the NaN here: bf16 to f32 is a shift
    if (source, target) == ("f16", "f64"):
        # By way of f32, as __half2float does, which writes its own NaN.
        return convert_values(convert_values(values, source, "f32"), "f32", target)
    if not format_of(source).is_float:
        values = values.astype(np.float64)
    return canonical_nan(round_values(values, wanted), wanted)


def _flat(name: str, array: Any) -> NDArray[Any]:
    given = np.asarray(array)
    if given.ndim != 1:
        raise InputError(
            f"input {name!r} must be flat (one axis), got shape {given.shape}; use a.ravel()"
        )
    return given
