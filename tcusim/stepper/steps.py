"""The steps of one warp by index: of a stored trace, or of a running program.

A program may run more steps than fit in memory. `RunningSteps` keeps the most recently used windows
of steps, and reruns the program for others. The screen and the plain text of `tcusim step` read
either kind.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from tcusim.program.grammar import Program, accesses, walk
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import Event, interpret
from tcusim.stepper.breakpoints import Breakpoint, Names
from tcusim.stepper.comparison import Comparison
from tcusim.stepper.frames import Frame, chosen_warps, no_such, prepared_for
from tcusim.stepper.store import About, FrameStore
from tcusim.stepper.trace import Recorder, Trace, about_of

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


@dataclass(frozen=True, slots=True)
class Viewing:
    """The choices of somebody who steps through a program, on a screen or in text.

    start: the first step to show; None is the first of all. only: kinds of steps to show; empty is
    all. breakpoints: the steps at which to stop. cell: row and column of an element to describe.
    hexadecimal: whether numbers are bits. beside: a backend's trace and the simulator's.
    """

    start: Breakpoint | None = None
    only: tuple[str, ...] = ()
    breakpoints: tuple[Breakpoint, ...] = ()
    cell: tuple[int, int] | None = None
    hexadecimal: bool = False
    beside: Comparison | None = None

    def shows(self, frame: Frame) -> bool:
        """Return whether a step is of a kind to show."""
        return not self.only or frame.kind in self.only

    def stopping(self, frame: Frame) -> list[Breakpoint]:
        """Return the breakpoints that stop after a step."""
        return [one for one in self.breakpoints if one(frame)]


class _Window(NamedTuple):
    """Consecutive steps of one warp in a store.

    start: the index of the first step. indices: their frames. before: the counts before them.
    """

    start: int
    store: FrameStore
    indices: Sequence[int]
    before: Counts


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
    def work(self, number: int) -> None:
        """Work towards a step that is not in memory, for a moment."""

    @abstractmethod
    def _window(self, number: int) -> _Window | None:
        """Return the stored steps around a step; None if it is not in memory."""

    def held(self, number: int) -> Frame | None:
        """Return a step in memory, or None."""
        found = self._window(number)
        if found is None:
            return None
        return found.store.frame(found.indices[number - found.start], self.about)

    def counts(self, number: int) -> Counts:
        """Return the warp's counts up to and including a step in memory.

        For a trace they start at its first step. Status words do not count.
        """
        found = self._window(number)
        if found is None:
            return Counts()
        chosen = found.indices[: number - found.start + 1]
        done = replace(found.before)
        done.add(found.store.counts(found.store.frames[index] for index in chosen))
        return done

    @property
    @abstractmethod
    def reached(self) -> int:
        """The index of the latest step reached so far."""

    def is_past(self, number: int) -> bool:
        """Return whether no step is known to have this index."""
        return number < self.first or (self.last is not None and number > self.last)

    def frame(self, number: int) -> Frame | None:
        """Return a step, without a time limit; None if no step has this index."""
        return self.find(lambda _: True, number)

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
        onwards, again = (after + 1, None), (self.first, after + 1)
        return first_of(self.search(test, *onwards), self.search(test, *again))

    def __iter__(self) -> Iterator[Frame]:
        number = self.first
        while (frame := self.frame(number)) is not None:
            yield frame
            number += 1


def first_of(*searches: Iterator[Frame | None]) -> Iterator[Frame | None]:
    """Search as the first of these does; if it finds no step, as the next; see `Steps.search`."""
    for search in searches:
        for found in search:
            yield found
            if found is not None:
                return


class KeptSteps(Steps):
    """The steps of one warp of a trace. InputError if it was not traced."""

    def __init__(self, trace: Trace, warp: int | None = None) -> None:
        self.about, self.names, self.sizes = trace.about, trace.names, trace.store.sizes()
        self.warp = trace.warps[0] if warp is None and trace.warps else int(warp or 0)
        trace.require_warp(self.warp)
        frames = trace.store.frames
        indices = [index for index, one in enumerate(frames) if one.warp == self.warp]
        self.first = frames[indices[0]].number if indices else 1
        self.last = self.first + len(indices) - 1
        self._whole = _Window(self.first, trace.store, indices, Counts())

    @property
    def reached(self) -> int:
        """The index of the last step."""
        return self._whole.start + len(self._whole.indices) - 1

    def _window(self, number: int) -> _Window | None:
        return None if self.is_past(number) else self._whole

    def work(self, number: int) -> None:
        """Do nothing: all stored steps are in memory."""


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
        self.about = about_of(program, arch)
        self.names = _names_of(program, self.about)
        self.sizes = prepared_for(program, inputs).sizes
        self.first, self.last = 1, None
        # Windows by the index of their first step, most recently used last.
        self._kept: OrderedDict[int, FrameStore] = OrderedDict()
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

    def _window(self, number: int) -> _Window | None:
        start = self._start_of(number)
        if start in self._kept:
            self._kept.move_to_end(start)
            store = self._kept[start]
        elif start == self._recorder.first:
            store = self._recorder.store
        else:
            return None
        if not 0 <= number - start < len(store.frames):
            return None
        before = self._before[self._starts.index(start)]
        return _Window(start, store, range(len(store.frames)), before)

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
        store = self._recorder.store
        return len(store.frames) >= self.window or store.nbytes >= _WINDOW_BYTES

    def _close(self, start: int) -> None:
        """Store the full window, and evict others."""
        following = self.reached + 1
        store = self._kept[start] = self._recorder.turn(following)
        if following > self._starts[-1]:
            done = replace(self._before[-1])
            done.add(store.counts(store.frames))
            self._starts.append(following)
            self._before.append(done)
        while len(self._kept) > 1 and self._is_too_much():
            self._kept.popitem(last=False)

    def _is_too_much(self) -> bool:
        kept = self._kept.values()
        return len(kept) > _WINDOWS or sum(store.nbytes for store in kept) > _BYTES


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
        count = prepared_for(program, inputs).grid * program.warps

        def steps(warp: int) -> Steps:
            return RunningSteps(program, inputs, arch=arch, warp=warp)

        return Warps(about_of(program, arch), range(count), steps, "grid")

    @staticmethod
    def of_trace(trace: Trace) -> Warps:
        """Return the warps of a trace."""
        return Warps(trace.about, trace.warps, lambda warp: KeptSteps(trace, warp), "trace")

    @property
    def blocks(self) -> Sequence[int]:
        """The blocks of the available warps, ascending."""
        size = self.about.warps
        if isinstance(self.numbers, range):
            return range(-(-len(self.numbers) // size))
        return sorted({number // size for number in self.numbers})

    def of_block(self, block: int) -> tuple[int, ...]:
        """Return the available warps of a block. InputError if there are none."""
        if block not in self.blocks:
            raise no_such(self.about.name, "block", block, self.kind, self.blocks)
        size = self.about.warps
        every = range(block * size, (block + 1) * size)
        return tuple(warp for warp in every if warp in self.numbers)

    def require(self, warp: int) -> int:
        """Return a warp's index. InputError if it is not available."""
        if warp not in self.numbers:
            raise no_such(self.about.name, "warp", warp, self.kind, self.numbers)
        return warp


def _names_of(program: Program, about: About) -> Names:
    """Return the names of a program that a breakpoint may use."""
    touched = [accesses(step) for _, step in walk(program.steps)]
    frags = {frag.name for each in touched for frag in each.frags}
    ranges = {one.name for each in touched for one in each.ranges_written}
    memory = frozenset(buffer.name for buffer in program.buffers)
    return Names(program.name, about.lines, frozenset(frags | ranges), memory)
