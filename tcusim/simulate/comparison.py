"""A side-by-side comparison of two traces of one program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tcusim.machine import arch_of
from tcusim.machine.rules import require_int
from tcusim.simulate.difference import Comparable, Difference, differences_of
from tcusim.simulate.trace_page import CELLS, MOST_CELLS, Side, frame_of, page_of

__all__ = ["Comparison", "compared"]


class _Shown(Comparable, Protocol):
    """Requirements of a trace to show."""

    @property
    def left_out(self) -> str:
        """The steps that it lacks, in words."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Two traces of one program: `print` it, or show it in a notebook.

    Attributes
    ----------
    one, two : Trace
        The traces.
    differences : tuple of Difference
        One for each tile that a step left different, in the order of the first trace.
    """

    one: _Shown
    two: _Shown
    differences: tuple[Difference, ...]

    @property
    def titles(self) -> tuple[str, str]:
        """Distinct titles of the traces: the runner, or the architecture."""
        about = self.one.about, self.two.about
        if about[0].place != about[1].place:
            return about[0].place, about[1].place
        titles = arch_of(about[0].arch).title, arch_of(about[1].arch).title
        return titles if titles[0] != titles[1] else (f"{titles[0]}, first", f"{titles[1]}, second")

    def __str__(self) -> str:
        """Report the first difference, or that there is none."""
        titles = " and ".join(self.titles)
        if not self.differences:
            return f"{titles}: no bit differs at any step that both have"
        steps = len({(one.frame.warp, one.frame.number) for one in self.differences})
        return f"{titles} differ at {steps} steps, first: {self.differences[0]}"

    def __repr__(self) -> str:
        return f"<Comparison of {self.one.about.name}: {' and '.join(self.titles)}>"

    def to_html(self, *, cells: int = CELLS) -> str:
        """Return a page to step through both, as of `Trace.to_html`, with differences marked."""
        require_int("cells", cells, 0, MOST_CELLS)
        sides = [
            Side(trace.about, list(trace), trace.left_out, title)
            for trace, title in zip((self.one, self.two), self.titles, strict=True)
        ]
        steps = len({(one.frame.warp, one.frame.number) for one in self.differences})
        verdict = f"They differ at {steps} step{'s' * (steps != 1)}."
        if not steps:
            verdict = "No bit differs at any step that both have."
        return page_of(sides, cells, self.differences, verdict)

    def _repr_html_(self) -> str:
        return frame_of(self.to_html())


def compared(one: _Shown, two: _Shown) -> Comparison:
    """Compare two traces of one program; the errors are those of `first_difference`."""
    return Comparison(one, two, tuple(differences_of(one, two)))
