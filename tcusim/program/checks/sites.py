"""Where a step stands: its path, the loops and branches around it, and what it touches there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tcusim.program.grammar import (
    Bound,
    Frag,
    Load,
    Loop,
    Program,
    Step,
    Store,
    View,
    When,
    accesses,
)


@dataclass(frozen=True, slots=True)
class Guard:
    """The branch of a When that a step is in: the bounds all hold (taken), or not all."""

    path: str
    bounds: tuple[Bound, ...]
    taken: bool


@dataclass(frozen=True, slots=True)
class Site:
    """A step with its path, and the loops and branches around it, outermost first."""

    path: str
    step: Step
    loops: tuple[Loop, ...] = ()
    guards: tuple[Guard, ...] = ()

    def inner(self) -> Iterator[Site]:
        """Yield the steps directly inside: a loop's body, or both branches of a When."""
        if isinstance(self.step, Loop):
            for path, step in _numbered(self.step.body, f"{self.path}."):
                yield Site(path, step, (*self.loops, self.step), self.guards)
        elif isinstance(self.step, When):
            yield from self.branch(taken=True)
            yield from self.branch(taken=False)

    def branch(self, *, taken: bool) -> Iterator[Site]:
        """Yield the steps directly inside one branch of a When."""
        if not isinstance(self.step, When):
            return
        guards = (*self.guards, Guard(self.path, self.step.bounds, taken))
        steps = self.step.body if taken else self.step.otherwise
        first = 1 if taken else 1 + len(self.step.body)
        for path, step in _numbered(steps, f"{self.path}.", first):
            yield Site(path, step, self.loops, guards)


class Finding(NamedTuple):
    """What a check objects to: the step (None for the program itself) and the message."""

    site: Site | None
    message: str


Check: TypeAlias = Callable[[Program], Iterator[Finding]]


def _numbered(steps: tuple[Step, ...], prefix: str, first: int = 1) -> Iterator[tuple[str, Step]]:
    for number, step in enumerate(steps, first):
        yield f"{prefix}{number}", step


def top(program: Program) -> Iterator[Site]:
    """Yield the steps that are inside no other."""
    for path, step in _numbered(program.steps, ""):
        yield Site(path, step)


def sites(program: Program) -> Iterator[Site]:
    """Yield every step, parents before children, with the paths of `walk`."""
    return _with_inner(top(program))


def _with_inner(steps: Iterator[Site]) -> Iterator[Site]:
    for site in steps:
        yield site
        if isinstance(site.step, Loop | When):
            yield from _with_inner(site.inner())


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
