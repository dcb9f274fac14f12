"""Measure the tuning numbers of the fastest plans on this machine's GPU: `tcusim tune`.

The planner's numbers are varied one after the other, each over the powers of two about it. A plan
with other bits than the usual one is an error of tcusim's, and is not timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tcusim.arrays.planner import choose
from tcusim.arrays.problem import Problem as SegmentProblem
from tcusim.arrays.tuned import TUNED, TunedRow, row_for, with_numbers
from tcusim.arrays.tuning import tuning_of
from tcusim.errors import AgreementError, InputError, TcusimError
from tcusim.program.launches import LaunchPlan
from tcusim_bench.device import Device
from tcusim_bench.problems import Problem
from tcusim_bench.programs import plans
from tcusim_bench.record import Case
from tcusim_cuda.driver import arch_name

# A plan is taken if it is faster by this much: measurements differ by about as much.
_FASTER: Final = 0.98
_REPEATS: Final = 9
# How far a number is varied, in powers of two, and how often all of them are.
_STEPS: Final = (-2, -1, 1, 2)
_ROUNDS: Final = 2

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of one problem: its row, and milliseconds by the usual and by its numbers."""

    row: TunedRow
    usual_ms: float
    ms: float

    def __str__(self) -> str:
        """Return the result in a line."""
        numbers = ", ".join(f"{name}={value}" for name, value in self.row.numbers) or "as it is"
        size = self.row.size or "array"
        gain = self.usual_ms / self.ms - 1
        return (
            f"{self.row.kind} {size}: {self.usual_ms:.4f} ms, {self.ms:.4f} ms tuned "
            f"({gain:+.1%}): {numbers}"
        )


def tune(
    cases: tuple[Case, ...], backend: str = "cupy", seconds: float = 60.0, say: Say | None = None
) -> tuple[Tuned, ...]:
    """Measure plans of cases on this machine's GPU; return the fastest numbers of each.

    seconds: for all cases together, shared evenly. Raises AgreementError if plans of a problem
    differ in a bit, InputError if a case is none of segments of one size, and BackendUnavailable
    without CuPy or a GPU.
    """
    for case in cases:
        if case.lengths or case.is_product:
            raise InputError(f"{case}: only sums and scans of segments of one size are tuned")
    length = max(case.length for case in cases)
    device = Device(max(2**20, length), backend)
    found = []
    for number, case in enumerate(cases):
        began = time.monotonic()
        share = seconds / (len(cases) - number)
        one = _Search(Problem(case, device), began + share).run()
        seconds -= time.monotonic() - began
        found.append(one)
        if say is not None:
            say(str(one))
    return tuple(found)


class _Search:
    """The search for one problem's numbers, until a time by the monotonic clock."""

    def __init__(self, problem: Problem, until: float) -> None:
        self._problem, self._until = problem, until
        recipe = next(iter(plans(problem.case, arch_name(problem.device.sm))))
        posed = recipe.problem(problem.case.length)
        if not isinstance(posed, SegmentProblem) or posed.by_offsets is not None:
            raise InputError(f"{problem.case}: segments of this size are scanned by offsets")
        self._posed, self._result = posed, recipe.result
        self._usual = tuning_of(posed.arch)
        self._expected: Any = None
        # Milliseconds by the launches' programs: many numbers give the same.
        self._times: dict[tuple[Any, ...], float] = {}

    def run(self) -> Tuned:
        """Return the fastest numbers that were found in time."""
        usual = best = self._ms({})
        numbers: dict[str, int] = {}
        for _ in range(_ROUNDS):
            before = best
            for name, value in self._moves(numbers):
                if time.monotonic() > self._until:
                    break
                tried = {**numbers, name: value}
                ms = self._ms(tried)
                if ms < _FASTER * best:
                    numbers, best = tried, ms
            if best == before:
                break
        return Tuned(row_for(self._posed, numbers), usual, best)

    def _moves(self, numbers: dict[str, int]) -> Iterator[tuple[str, int]]:
        """Yield each number's other values about the one that it has when it is its turn."""
        kind = self._posed.kind
        for name, (least, most) in TUNED.items():
            now = with_numbers(self._usual, kind, numbers.items())
            source = now.of(kind) if hasattr(now.of(kind), name) else now
            value: int = getattr(source, name)
            for step in _STEPS:
                other = value << step if step > 0 else value >> -step
                if least <= other <= most:
                    yield name, other

    def _ms(self, numbers: dict[str, int]) -> float:
        """Return the time by numbers; infinite if there is no such plan."""
        tuning = with_numbers(self._usual, self._posed.kind, numbers.items())
        try:
            plan = choose(self._posed, "plan", tuning).plan
            key = tuple(launch.program for launch in plan.launches)
            if key not in self._times:
                self._times[key] = self._measured(plan, numbers)
        except AgreementError:
            raise
        except TcusimError:
            if not numbers:
                raise
            return math.inf  # blocks of these numbers cannot be built, or do not fit
        return self._times[key]

    def _measured(self, plan: LaunchPlan, numbers: dict[str, int]) -> float:
        problem = self._problem
        device = problem.device
        out = device.output(self._result, problem.size)
        run = device.program(plan, problem.arrays_for(plan), out)
        run()
        bits = out.view(f"u{out.itemsize}")
        if self._expected is None:
            self._expected = bits.copy()
        differ = int((bits != self._expected).sum())
        if differ:
            raise AgreementError(
                f"{problem.case}: {differ} of {bits.size} results differ from those of the usual "
                f"plan with {numbers}. This is an error in tcusim; please report it"
            )
        return device.times(run, _REPEATS).median
