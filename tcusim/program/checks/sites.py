"""What a check yields, and what a step touches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from tcusim.program.grammar import Frag, Load, Program, Step, Store, View, accesses
from tcusim.program.walk import Site


class Finding(NamedTuple):
    """What a check objects to: the step (None for the program itself) and the message."""

    site: Site | None
    message: str


Check: TypeAlias = Callable[[Program], Iterator[Finding]]


def views(step: Step) -> tuple[View, ...]:
    """Return the rectangles of memory that the step touches, what it writes first."""
    touched = accesses(step)
    return (*touched.views_written, *touched.views_read)


def frags(step: Step) -> tuple[Frag, ...]:
    """Return the fragments that the step touches, what it writes first."""
    touched = accesses(step)
    return (*touched.frags_written, *touched.frags_read)


def tiles(step: Step) -> tuple[tuple[Frag, View], ...]:
    """Return the fragment and the tile in memory of a Load or a Store."""
    if isinstance(step, Load):
        return ((step.dst, step.src),)
    if isinstance(step, Store):
        return ((step.src, step.dst),)
    return ()
