"""The inputs of a tapped kernel, and the tiles of each step from its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.backends import Tapped, TappedStep
from tcusim.errors import InputError
from tcusim.machine import Rule, Values, as_values, format_of
from tcusim.machine.formats import from_memory
from tcusim.program.bind import bind_scalars
from tcusim.program.grammar import (
    Frag,
    Locate,
    Loop,
    Program,
    Scope,
    Step,
    Sync,
    When,
    accesses,
    walk,
)
from tcusim_cuda.kernel import Kernel
from tcusim_cuda.tapped import (
    BASE,
    CHOICE,
    RECORDS,
    Placing,
    TappedKernel,
    bytes_of,
    emit_tapped,
    shared_of,
)

# Words of 32 bits: the head of a record, and the unit of its padded content; as in taps.cuh.
_UNIT: Final = 8
# Bytes of all records: as much as a trace keeps.
_MOST_BYTES: Final = 2**28
# Before sm_80, and of some tiles since, two lanes hold each element.
_HOLDERS: Final = 2

_Words = NDArray[np.int32]


def tap(
    program: Program,
    inputs: Mapping[str, Any],
    warps: Sequence[int],
    most: int,
    launch: Callable[[Kernel, dict[str, Any]], Mapping[str, Any]],
    *,
    rule: Rule | None = None,
) -> Tapped:
    """Run a program with taps; return the trace of these warps.

    warps: their numbers in the grid, ascending. most: how many steps are kept of each. launch: runs
    a kernel on inputs by name and returns its outputs. rule: by which the lanes multiply, if no
    instruction does.

    Raises
    ------
    InputError
        If there is no room for records of so many warps, or the inputs do not fit the program.
    Unsupported, VerifyError
        As `emit` does.
    """
    tapped = emit_tapped(program, rule)
    scalars = bind_scalars(program, {name: np.size(array) for name, array in inputs.items()})
    words = _words_of_warp(tapped, scalars, len(warps), most)
    choice = np.array([len(warps), words, most, *warps], np.int64)
    kernel = tapped.of_sizes(choice.size, len(warps) * words)
    outputs = launch(kernel, {**inputs, CHOICE: choice})
    records = np.asarray(outputs[RECORDS]).view(np.int32).reshape(len(warps), words)
    read = {warp: _Reader(tapped, own) for warp, own in zip(warps, records, strict=True)}
    return Tapped(
        steps={warp: tuple(reader.steps()) for warp, reader in read.items()},
        ran={warp: reader.ran for warp, reader in read.items()},
    )


# --- Room -------------------------------------------------------------------------------------


def _words_of_warp(tapped: TappedKernel, scalars: Mapping[str, int], warps: int, most: int) -> int:
    """Return the words for the records of one warp: the most that it may need, within bounds."""
    needed = _UNIT
    for frag, placing in _kinds(tapped).items():
        itemsize = format_of(frag.dtype).itemsize
        held = _HOLDERS * placing.rows * placing.cols * itemsize
        needed += _taken(placing.count * itemsize) + _taken(_digits(placing) * held)
    rows = _rows(tapped)
    every, largest = _needed(tapped.program.steps, "", rows, scalars)
    wanted = needed + min(every, min(most, 2**32) * largest)
    room = _MOST_BYTES // 4 // max(1, warps) // _UNIT * _UNIT
    if room < needed + largest:
        raise InputError(
            f"{tapped.program.name}: taps of {warps} warps have {_MOST_BYTES >> 20} MiB together, "
            f"in which there is no room for a step of each; choose fewer warps"
        )
    return min(wanted, room)


def _kinds(tapped: TappedKernel) -> dict[Frag, Placing]:
    """Return a fragment of each kind with recorded places."""
    frags = {f.name: f for _, s in walk(tapped.program.steps) for f in accesses(s).frags}
    found = {placing.number: name for name, placing in tapped.placings.items()}
    return {frags[name]: tapped.placings[name] for name in found.values()}


def _digits(placing: Placing) -> int:
    """Return the digits of the numbers of elements, as in taps.cuh."""
    return 3 if placing.count > BASE**2 else 2


def _rows(tapped: TappedKernel) -> dict[str, int]:
    """Return the words of the record of each step, by path."""
    return {path: _taken(_bytes(tapped.program, step)) for path, step in walk(tapped.program.steps)}


def _taken(nbytes: int) -> int:
    """Return the words of a record with so many bytes."""
    return _UNIT + -(-nbytes // (4 * _UNIT)) * _UNIT


def _bytes(program: Program, step: Step) -> int:
    """Return the most bytes that the record of a step holds."""
    match step:
        case Sync(Scope.BLOCK):
            sizes = ((one.size.evaluate({}), one.dtype) for one in shared_of(program))
            return sum(size * format_of(dtype).itemsize for size, dtype in sizes)
        case Locate(ranges):
            return 2 * 8 * ranges.count
        case When():
            return 4
        case _:
            touched = accesses(step)
            frags = touched.frags_written
            held = sum(f.rows * f.cols * format_of(f.dtype).itemsize for f in frags)
            return _HOLDERS * held + sum(map(bytes_of, touched.views_written))


def _needed(
    steps: tuple[Step, ...], prefix: str, words: Mapping[str, int], scalars: Mapping[str, int]
) -> tuple[int, int]:
    """Return the words of all records of steps, whichever branches are taken, and of the largest.

    A branch counts to the step after it.
    """
    total = largest = 0
    for path, step in ((f"{prefix}{n}", step) for n, step in enumerate(steps, start=1)):
        own, times = words[path], 1
        inner = (0, 0)
        match step:
            case Loop(_, count, body):
                own, times = 0, count.evaluate(scalars)
                inner = _needed(body, f"{path}.", words, scalars)
            case When(body=body, otherwise=otherwise):
                inner = _needed((*body, *otherwise), f"{path}.", words, scalars)
            case _:
                pass
        total += own + times * inner[0]
        largest = max(largest, own + inner[1])
    return total, largest


# --- Reading ----------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Reads the records of one warp."""

    tapped: TappedKernel
    words: _Words
    places: dict[int, Values] = field(default_factory=dict)

    @property
    def ran(self) -> int:
        """How many steps the warp ran, recorded or not."""
        return int(self.words[:1].view(np.uint32)[0])

    @cached_property
    def _steps(self) -> dict[int, tuple[str, Step]]:
        return dict(enumerate(walk(self.tapped.program.steps), start=1))

    def steps(self) -> Iterator[TappedStep]:
        """Yield the records, in order."""
        at, end = _UNIT, int(self.words[1])
        while at < end:
            number, nbytes = map(int, self.words[at : at + 2])
            content = self.words[at + _UNIT : at + _taken(nbytes)].view(np.uint8)[:nbytes]
            at += _taken(nbytes)
            if number < 0:
                self._keep_places(number, content)
            elif number > 0:
                yield self._step(*self._steps[number], content)

    def _keep_places(self, number: int, content: NDArray[np.uint8]) -> None:
        """Store the indices of the elements in the lanes of one kind of fragment."""
        frag, placing = next(
            (f, one) for f, one in _kinds(self.tapped).items() if one.number == number
        )
        of_bytes = format_of(frag.dtype).itemsize == 1
        values = content if of_bytes else self._values(content, frag.dtype)
        digits = values.astype(np.int64).reshape(_digits(placing), -1)
        found = BASE ** np.arange(len(digits)) @ digits
        line, across = found // placing.ldm, found % placing.ldm
        row, col = (across, line) if placing.down else (line, across)
        places = row * placing.cols + col
        every = np.arange(placing.rows * placing.cols)
        assert np.array_equal(np.unique(places), every), f"lanes hold {places} of a tile"
        self.places[number] = places

    def _step(self, path: str, step: Step, content: NDArray[np.uint8]) -> TappedStep:
        if isinstance(step, When):
            return TappedStep(path, (), bool(content[:4].view(np.int32)[0]))
        return TappedStep(path, tuple(self._tiles(step, content)))

    def _tiles(self, step: Step, content: NDArray[np.uint8]) -> Iterator[Values]:
        match step:
            case Sync(Scope.BLOCK):
                shared = shared_of(self.tapped.program)
                shapes = [(one.dtype, 1, one.size.evaluate({})) for one in shared]
            case Locate(ranges):
                shapes = [("s64", 2, ranges.count)]
            case _:
                touched = accesses(step)
                for frag in touched.frags_written:
                    yield self._tile(frag, content)
                views = touched.views_written
                shapes = [(one.buffer.dtype, one.rows, one.cols) for one in views]
        at = 0
        for dtype, rows, cols in shapes:
            nbytes = rows * cols * format_of(dtype).itemsize
            yield self._values(content[at : at + nbytes], dtype).reshape(rows, cols)
            at += nbytes

    def _tile(self, frag: Frag, content: NDArray[np.uint8]) -> Values:
        """Return a tile, assembled from the lanes' elements of its fragments."""
        placing = self.tapped.placings[frag.name]
        down, across = self.tapped.grids[frag.name]
        held = self._values(content, frag.dtype).reshape(down * across, -1)
        if frag.dtype == "tf32":
            # A lane holds a float; the unit takes its upper bits.
            held = as_values(held, "tf32")
        parts = np.empty((down * across, placing.rows * placing.cols), held.dtype)
        parts[:, self.places[placing.number]] = held
        tiles = parts.reshape(down, across, placing.rows, placing.cols)
        return tiles.swapaxes(1, 2).reshape(frag.rows, frag.cols)

    def _values(self, content: NDArray[np.uint8], dtype: str) -> Values:
        return from_memory(np.ascontiguousarray(content).view(format_of(dtype).memory_dtype), dtype)
