"""A rule about one step becomes a check of a whole program."""

from __future__ import annotations

from collections.abc import Iterator

from planted import reduction
from tcusim.program.checks.sites import each_step, tiles
from tcusim.program.grammar import Load, Program, Store, Sync, walk
from tcusim.program.walk import Site


def test_a_rule_is_asked_about_every_step() -> None:
    @each_step
    def no_barriers(program: Program, site: Site) -> Iterator[str]:
        """Name each barrier."""
        if isinstance(site.step, Sync):
            yield f"a barrier of {program.name}"

    program = reduction()
    found = list(no_barriers(program))
    barriers = [path for path, step in walk(program.steps) if isinstance(step, Sync)]
    assert barriers
    assert [finding.site.path for finding in found if finding.site] == barriers
    assert {finding.message for finding in found} == {f"a barrier of {program.name}"}
    assert no_barriers.__doc__ == "Name each barrier."


def test_loads_and_stores_alone_have_tiles() -> None:
    for _, step in walk(reduction().steps):
        assert bool(tiles(step)) == isinstance(step, Load | Store)
