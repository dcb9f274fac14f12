"""Reports of calls: the programs that were launched, and their counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.counts import Counts, counts_of_text


@dataclass(slots=True)
class Report:
    """The launches of a call: pass a report among the `options`, and read it afterwards.

    Attributes
    ----------
    arch : str
        Whose arithmetic.
    programs : list of (Program, dict)
        Each program that was launched, with its scalars.
    counts : Counts
        Steps of all warps, and bytes of global memory, each array of a launch counted once: the
        same on every backend.
    """

    arch: str = ""
    programs: list[tuple[Program, dict[str, int]]] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def note(self, plan: LaunchPlan, arch: str) -> None:
        """Add the launches of a plan."""
        self.arch = arch
        for launch in plan.launches:
            scalars = plan.scalars(launch)
            self.programs.append((launch.program, scalars))
            self.counts.add(counts_of_text(launch.program, scalars))

    @property
    def launches(self) -> int:
        """Number of launches."""
        return len(self.programs)

    @property
    def mma(self) -> int:
        """Number of mma steps, over all warps."""
        return self.counts.mma

    @property
    def bytes_read(self) -> int:
        """Bytes read from global memory."""
        return self.counts.bytes_read

    @property
    def bytes_written(self) -> int:
        """Bytes written to global memory."""
        return self.counts.bytes_written
