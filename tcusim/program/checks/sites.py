"""The results of checks, and the conversion of a rule about one step to a check."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from tcusim.program.grammar import Frag, Load, Program, Step, Store, View
from tcusim.program.walk import Site, sites


class Finding(NamedTuple):
    """An objection of a check: the step (None for the program itself) and the message."""

    site: Site | None
    message: str


class Unproven(NamedTuple):
    """A property that a check can neither prove nor refute, and the sizes tried instead.

    within: the limit of the data under which it is proved, or an empty text.
    """

    tried: str
    within: str = ""


Check: TypeAlias = Callable[[Program], Iterator[Finding | Unproven]]


def each_step(
    rule: Callable[[Program, Site], Iterator[str]],
) -> Callable[[Program], Iterator[Finding]]:
    """Make a check of a rule that yields messages about one step."""

    @functools.wraps(rule)
    def check(program: Program) -> Iterator[Finding]:
        for site in sites(program):
            for message in rule(program, site):
                yield Finding(site, message)

    return check


def tiles(step: Step) -> tuple[tuple[Frag, View], ...]:
    """Return the fragment and the tile in memory of a Load or a Store."""
    match step:
        case Load(frag):
            return ((frag, step.src),)
        case Store(view, frag):
            return ((frag, view),)
        case _:
            return ()
