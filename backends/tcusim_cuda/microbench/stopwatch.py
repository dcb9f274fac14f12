"""Times of runs on a GPU: the one rule for warm-ups, repetitions and medians."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

Run: TypeAlias = Callable[[], object]

# A run that takes longer is timed twice instead of many times.
_SLOW_MS: Final = 200.0
# The repetitions of other runs take about this time, and are at least this many.
_REPEATS_MS: Final = 200.0
_LEAST_REPEATS: Final = 3
# Launches in a CUDA graph that is timed.
IN_GRAPH: Final = 20


class Times(NamedTuple):
    """Milliseconds of one run: the median, the minimum and the maximum of several."""

    median: float
    least: float
    most: float


class Stopwatch(ABC):
    """Times runs by the events of a GPU, or by another clock."""

    @abstractmethod
    def once(self, run: Run, *, busy: bool = False) -> float:
        """Return the milliseconds of one run; `busy` puts another before it, to hide the host."""

    @abstractmethod
    def graph(self, run: Run, *, of_torch: bool = False) -> Run:
        """Return a run that replays a CUDA graph of `IN_GRAPH` runs.

        of_torch: whether torch captures it; torch must know the graph that its memory is for.
        """

    def times(self, run: Run, repeats: int, *, warm: bool = False) -> Times:
        """Return the times of a run after a warm-up.

        The first run is never a time, because libraries compile in it. A slow second run is no time
        either unless a third is as slow: a library may compile again. `warm`: it has run before.
        """
        if not warm:
            self.once(run)
        second = self.once(run)
        if second > _SLOW_MS:
            third = self.once(run)
            if third > _SLOW_MS:
                least, most = sorted((second, third))
                return Times(least, least, most)
            second = third
        repeats = max(_LEAST_REPEATS, min(repeats, int(_REPEATS_MS / (2 * second or 1))))
        found = [self.once(run, busy=True) for _ in range(repeats)]
        return Times(statistics.median(found), min(found), max(found))

    def times_in_graph(self, run: Run, repeats: int, *, of_torch: bool = False) -> Times:
        """Return the times of one run among many in a CUDA graph."""
        replay = self.graph(run, of_torch=of_torch)
        return Times(*(ms / IN_GRAPH for ms in self.times(replay, repeats)))
