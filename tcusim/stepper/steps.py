"""The steps of one warp by index: of a stored trace, or of a running program.

A program may run more steps than fit in memory. `RunningSteps` keeps the most recently used windows
of steps, and reruns the program for others. The screen and the plain text of `tcusim step` read
either kind.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import numpy as np

from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.program.bind import bind_scalars
from tcusim.program.grammar import Program, Space, accesses, walk
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import Event, interpret
from tcusim.stepper.breakpoints import Breakpoint, Names, breakpoint_of
from tcusim.stepper.frames import Frame, chosen_warps
from tcusim.stepper.trace import Recorder, Trace, about_of
from tcusim.stepper.trace_file import About, Packed, PackedFrame

__all__ = ["KeptSteps", "RunningSteps", "Steps", "Test", "Warps", "place_of"]

Test = Callable[[Frame], bool]

# Maximum steps of a window, and bytes of its values.
_WINDOW: Final = 256
_WINDOW_BYTES: Final = 2**22
# Maximum number of windows kept, and their total bytes.
_WINDOWS: Final = 64
_BYTES: Final = 2**26
# Seconds of work before a pause to handle keys; steps between two looks at the clock.
_PATIENCE: Final = 0.03
_LOOKS: Final = 64

_NUMBER: Final = re.compile(r"#\s*(\d+)|step\s+(\d+)")


def place_of(text: str, names: Names) -> int | Breakpoint:
    """Return the target of a text: a step's index for ``#56``, else a breakpoint, as ``5.2 i=3``.

    Raises InputError as `breakpoint_of` does.
    """
    number = _NUMBER.fullmatch(text.strip().lower())
    if number is not None:
        return int(number[1] or number[2])
    try:
        return breakpoint_of(text, names)
    except InputError as error:
        if text.strip().isdecimal():
            numbered = f"the step that runs as number {text.strip()} is #{text.strip()}"
            raise InputError(f"{error}; {numbered}") from error
        raise


class Steps(ABC):
    """The steps of one warp, by `Frame.number`.

    Attributes
    ----------
    about : About
        The program and the architecture.
    warp : int
        The warp, by its index in the grid.
    names : Names
        The names that a breakpoint may use. sizes : mapping of str to int
        Elements of each buffer; for a trace, those that its steps touch.
    first : int
        The index of the first available step.
    last : int or None
        The index of the last step; None while unknown.
    """

    about: About
    warp: int
    names: Names
    sizes: Mapping[str, int]
    first: int
    last: int | None

    @abstractmethod
    def held(self, number: int) -> Frame | None:
        """Return a step in memory, or None."""

    @abstractmethod
    def work(self, number: int) -> None:
        """Work towards a step that is not in memory, for a moment."""

    @abstractmethod
    def counts(self, number: int) -> Counts:
        """Return the warp's counts up to and including a step in memory.

        For a trace they start at its first step. Status words do not count.
        """

    @property
    @abstractmethod
    def reached(self) -> int:
        """The index of the latest step reached so far."""

    def is_past(self, number: int) -> bool:
        """Return whether no step is known to have this index."""
        return number < self.first or (self.last is not None and number > self.last)

    def frame(self, number: int) -> Frame | None:
        """Return a step, without a time limit; None if no step has this index."""
        return next((frame for frame in self.search(_any, number) if frame is not None), None)

    def find(self, test: Test, start: int, *, backwards: bool = False) -> Frame | None:
        """Return the first step from index `start` on that passes a test, or None.

        backwards: search from there to the beginning.
        """
        found = self.search(test, start, backwards=backwards)
        return next((frame for frame in found if frame is not None), None)

    def search(
        self, test: Test, start: int, stop: int | None = None, *, backwards: bool = False
    ) -> Iterator[Frame | None]:
        """Search as `find` does; yield None now and then, and finally the result.

        stop: the exclusive end of the search.
        """
        number, looked = start, 0
        while number != stop:
            frame = self.held(number)
            if frame is None:
                if self.is_past(number):
                    return
                self.work(number)
                yield None
                continue
            if test(frame):
                yield frame
                return
            number += -1 if backwards else 1
            looked += 1
            if looked % _LOOKS == 0:
                yield None

    def seek(self, test: Test, after: int) -> Iterator[Frame | None]:
        """Look for the next step that passes a test, and then from the beginning; see `search`."""
        for part in ((after + 1, None), (self.first, after + 1)):
            for frame in self.search(test, *part):
                yield frame
                if frame is not None:
                    return

    def __iter__(self) -> Iterator[Frame]:
        number = self.first
        while (frame := self.frame(number)) is not None:
            yield frame
            number += 1


def _any(_: Frame) -> bool:
    return True


class KeptSteps(Steps):
    """The steps of one warp of a trace. InputError if it was not watched."""

    def __init__(self, trace: Trace, warp: int | None = None) -> None:
        self.trace = trace
        self.about, self.names = trace.about, trace.names
        self.warp = trace.warps[0] if warp is None and trace.warps else int(warp or 0)
        trace.require_warp(self.warp)
        frames = trace.packed.frames
        self._places = [index for index, one in enumerate(frames) if one.warp == self.warp]
        self.first = frames[self._places[0]].number if self._places else 1
        self.last = self.first + len(self._places) - 1
        self._tally = _Tally(trace.packed)
        self.sizes = _sizes(trace.packed)

    @property
    def reached(self) -> int:
        """The number of the last step."""
        return self.first + len(self._places) - 1

    def held(self, number: int) -> Frame | None:
        """Return a step; None if the trace does not have it."""
        there = self.first <= number < self.first + len(self._places)
        return self.trace[self._places[number - self.first]] if there else None

    def work(self, number: int) -> None:
        """Do nothing: all stored steps are in memory."""

    def counts(self, number: int) -> Counts:
        """Return the warp's counts from the first stored step to this one."""
        frames = self.trace.packed.frames
        places = self._places[: max(0, number - self.first + 1)]
        return self._tally(frames[place] for place in places)


class RunningSteps(Steps):
    """The steps of one warp of a program that runs on demand.

    Parameters
    ----------
    program, inputs, arch :
        As for `tcusim.trace`.
    warp : int
        The warp to trace.
    window : int
        Number of steps kept or evicted together.

    Raises
    ------
    InputError
        If the inputs do not fit the program, or the grid has no such warp.
    VerifyError
        If the program breaks a rule.
    """

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        *,
        arch: str = "hopper",
        warp: int = 0,
        window: int = _WINDOW,
    ) -> None:
        self.program, self.inputs, self.arch, self.window = program, inputs, arch, window
        (self.warp,) = chosen_warps(program, inputs, (warp,))
        self.about, self.names = about_of(program, arch), _names_of(program)
        scalars = bind_scalars(program, {name: np.size(array) for name, array in inputs.items()})
        self.sizes = {buffer.name: buffer.size.evaluate(scalars) for buffer in program.buffers}
        self.first, self.last = 1, None
        # Windows by the index of their first step, most recently used last.
        self._kept: OrderedDict[int, Packed] = OrderedDict()
        # The first step of each window reached so far, and the warp's counts before each.
        self._starts = [1]
        self._before = [Counts()]
        self._run(1)

    def _run(self, first: int) -> None:
        """Run the program from its beginning, and keep the steps from this one on."""
        self._events: Iterator[Event] = interpret(self.program, self.inputs, arch=self.arch)
        self._recorder = Recorder((self.warp,), first, None, limit=2**62)

    @property
    def reached(self) -> int:
        """The number of steps of the warp in the current run."""
        return self._recorder.ran.get(self.warp, 0)

    def held(self, number: int) -> Frame | None:
        """Return a step of a stored window."""
        found = self._packed(number)
        if found is None:
            return None
        start, packed = found
        one = Trace(self.about, (self.warp,), start, None, {}, Counts(), packed)
        return one[number - start]

    def _packed(self, number: int) -> tuple[int, Packed] | None:
        """Return the start of the window with a step, and the window; None if it is not stored."""
        start = self._start_of(number)
        if start in self._kept:
            self._kept.move_to_end(start)
            packed = self._kept[start]
        elif start == self._recorder.first:
            packed = self._recorder.packed
        else:
            return None
        return (start, packed) if 0 <= number - start < len(packed.frames) else None

    def _start_of(self, number: int) -> int:
        return self._starts[max(0, bisect_right(self._starts, number) - 1)]

    def work(self, number: int) -> None:
        """Run the program for a moment, towards this step."""
        if self.is_past(number):
            return
        start = self._start_of(number)
        if start != self._recorder.first:
            # True while steps before the recorder's window are still to be skipped.
            passed_over = self.reached < self._recorder.first - 1
            if self.reached < start - passed_over:
                self._recorder.turn(start)
            else:
                self._run(start)
        until = time.monotonic() + _PATIENCE
        for event in self._events:
            if int(event.state.warps[0]) > self.warp:
                break
            self._recorder(event)
            if self._is_full(start):
                self._close(start)
                return
            if self.reached >= number or time.monotonic() > until:
                return
        self.last = self.reached
        self._close(start)

    def _is_full(self, start: int) -> bool:
        following = bisect_right(self._starts, start)
        if following < len(self._starts):
            # It ends at the same step as before.
            return self.reached + 1 == self._starts[following]
        packed = self._recorder.packed
        return len(packed.frames) >= self.window or packed.bytes >= _WINDOW_BYTES

    def _close(self, start: int) -> None:
        """Store the full window, and evict others."""
        following = self.reached + 1
        packed = self._recorder.turn(following)
        self._kept[start] = packed
        if following > self._starts[-1]:
            done = replace(self._before[-1])
            done.add(_Tally(packed)(packed.frames))
            self._starts.append(following)
            self._before.append(done)
        while len(self._kept) > 1 and self._is_too_much():
            self._kept.popitem(last=False)

    def _is_too_much(self) -> bool:
        kept = self._kept.values()
        return len(kept) > _WINDOWS or sum(packed.bytes for packed in kept) > _BYTES

    def counts(self, number: int) -> Counts:
        """Return the warp's counts up to this step."""
        found = self._packed(number)
        if found is None:
            return Counts()
        start, packed = found
        done = replace(self._before[self._starts.index(start)])
        done.add(_Tally(packed)(packed.frames[: number - start + 1]))
        return done


@dataclass(frozen=True)
class Warps:
    """The warps of a grid or of a trace, and the steps of each.

    numbers: indices in the grid, ascending. listing: the program as text. steps: returns the steps
    of a warp. kind: the owner of the warps, the grid or the trace.
    """

    about: About
    numbers: Sequence[int]
    steps: Callable[[int], Steps]
    kind: str

    @staticmethod
    def of_program(program: Program, inputs: Mapping[str, Any], arch: str = "hopper") -> Warps:
        """Return the warps of a grid. InputError if the inputs do not fit the program."""
        scalars = bind_scalars(program, {name: np.size(array) for name, array in inputs.items()})
        count = program.grid(scalars) * program.warps

        def steps(warp: int) -> Steps:
            return RunningSteps(program, inputs, arch=arch, warp=warp)

        return Warps(about_of(program, arch), range(count), steps, "grid")

    @staticmethod
    def of_trace(trace: Trace) -> Warps:
        """Return the warps of a trace."""
        return Warps(trace.about, trace.warps, lambda warp: KeptSteps(trace, warp), "trace")

    def of_block(self, block: int) -> tuple[int, ...]:
        """Return the available warps of a block. InputError if there are none."""
        size = self.about.warps
        every = range(block * size, (block + 1) * size)
        return tuple(warp for warp in every if warp in self.numbers) or self._refuse("block", block)

    def require(self, warp: int) -> int:
        """Return a warp's index. InputError if it is not available."""
        return warp if warp in self.numbers else self._refuse("warp", warp)

    def known(self, what: str) -> str:
        """Return the available warps or blocks (`what`), in words."""
        size = self.about.warps if what == "block" else 1
        numbers = self.numbers
        if not numbers:
            return f"no {what}s"
        if isinstance(numbers, range):
            return f"{what}s {numbers[0] // size} to {numbers[-1] // size}"
        each = sorted({number // size for number in numbers})
        return f"{what}{'s' * (len(each) > 1)} {', '.join(map(str, each))}"

    def _refuse(self, what: str, number: int) -> NoReturn:
        raise InputError(
            f"{self.about.name}: there is no {what} {number}; the {self.kind} has "
            f"{self.known(what)}"
        )


def _names_of(program: Program) -> Names:
    """Return the names of a program that a breakpoint may use."""
    lines = about_of(program, "exact").lines
    touched = [accesses(step) for _, step in walk(program.steps)]
    frags = {frag.name for each in touched for frag in each.frags}
    ranges = {one.name for each in touched for one in each.ranges_written}
    memory = frozenset(buffer.name for buffer in program.buffers)
    return Names(program.name, lines, frozenset(frags | ranges), memory)


def _sizes(packed: Packed) -> dict[str, int]:
    """Return the touched extent of each buffer."""
    sizes: dict[str, int] = {}
    for number in range(len(packed.tiles)):
        tile = packed.tile(number)
        if tile.places is not None and tile.inside.any():
            end = int(tile.places[tile.inside].max()) + 1
            sizes[tile.buffer] = max(end, sizes.get(tile.buffer, 0))
    return sizes


class _Tally:
    """Counts the work of packed steps; it caches the bytes of tiles."""

    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self._bytes: dict[int, int] = {}

    def __call__(self, frames: Iterator[PackedFrame] | list[PackedFrame]) -> Counts:
        """Return the counts of these steps."""
        done = Counts()
        for one in frames:
            done.mma += one.kind == "mma"
            done.additions += one.kind == "add"
            # These access offsets and status words in global memory, not data.
            if one.kind not in ("locate", "await"):
                done.bytes_read += sum(map(self._bytes_of, one.reads))
            if one.kind != "publish":
                done.bytes_written += sum(map(self._bytes_of, one.writes))
        return done

    def _bytes_of(self, number: int) -> int:
        if number not in self._bytes:
            tile, arrays = self._packed.tiles[number], self._packed.arrays
            elements = 0
            if tile.where == Space.GLOBAL and tile.inside is not None:
                elements = int(arrays[tile.inside].sum())
            elif tile.where == Space.GLOBAL:
                elements = arrays[tile.values].size
            self._bytes[number] = elements * format_of(tile.dtype).itemsize
        return self._bytes[number]
