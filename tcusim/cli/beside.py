"""A backend's results at each step, beside the simulator's: for `tcusim step --backend`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tcusim
from tcusim.program.grammar import Program
from tcusim.simulate.difference import Difference, differences_of
from tcusim.simulate.frames import Frame
from tcusim.simulate.trace import Trace

__all__ = ["Beside", "beside"]


@dataclass(frozen=True)
class Beside:
    """A backend's trace, the simulator's, and where they differ.

    differences: by warp and number of the step, a difference for each tile. first: of all.
    """

    kept: Trace
    simulated: Trace
    differences: Mapping[tuple[int, int], tuple[Difference, ...]]
    first: Difference | None

    @property
    def verdict(self) -> str:
        """One sentence: whether all bits are equal, or where the first are not."""
        place, steps = self.kept.about.place, len(self.kept)
        if self.first is None:
            return f"{place}: in all {steps} steps the bits are those of the simulator"
        count = len(self.differences)
        return (
            f"{place}: in {count} of {steps} steps the bits are not those of the simulator\n"
            f"first difference: {self.first}"
        )

    def remark(self, frame: Frame, text_of: Callable[[Frame], str]) -> str:
        """State the differences at a step, and show the simulator's tiles; "" if there are none.

        text_of: shows a frame.
        """
        found = self.differences.get((frame.warp, frame.number), ())
        if not found:
            return ""
        lines = [
            f"  {'FIRST DIFFERENCE' if one is self.first else 'difference'}: {one.what}"
            for one in found
        ]
        return "\n".join([*lines, "", "  the simulator:", text_of(self.other(frame))])

    def other(self, frame: Frame) -> Frame:
        """Return the step of the simulator that is beside a backend's."""
        every = self.simulated.of(frame.warp)
        return every[frame.number - every[0].number]

    def differs(self, frame: Frame) -> bool:
        """Return whether a step left other bits than the simulator's."""
        return (frame.warp, frame.number) in self.differences


def beside(
    program: Program, inputs: Mapping[str, Any], backend: str, arch: str | None, **watched: Any
) -> Beside:
    """Run a program on a backend and on the simulator, and compare the results of each step.

    arch: None is the backend's own. watched: the warps or blocks, as of `tcusim.trace`.
    """
    kept = tcusim.trace(program, inputs, backend=backend, arch=arch, **watched)
    simulated = tcusim.trace(program, inputs, arch=kept.about.arch, **watched)
    found: defaultdict[tuple[int, int], list[Difference]] = defaultdict(list)
    for one in differences_of(kept, simulated):
        found[one.frame.warp, one.frame.number].append(one)
    differences = {key: tuple(some) for key, some in found.items()}
    first = next(iter(differences.values()), (None,))[0]
    return Beside(kept, simulated, differences, first)
