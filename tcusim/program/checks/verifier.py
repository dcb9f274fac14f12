"""Named checks on a step program, one function each: what CUDA forbids, and what it never tells.

`verify(program)` raises the first problem, `problems(program)` returns them all, and `CHECKS` names
the rules in the order in which they are tried. A check that cannot decide refuses, unless its text
says which sizes it tries. `in_place(program)` is no rule: it says why a result may not be written
over the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from tcusim.errors import VerifyError
from tcusim.program.checks import names, races, tiles, writes
from tcusim.program.checks.defined import defined_before_use
from tcusim.program.checks.in_place import in_place
from tcusim.program.checks.inside import inside_buffer
from tcusim.program.checks.on_data import private_branch
from tcusim.program.checks.sites import Check, Finding
from tcusim.program.checks.tiles import tile_is_aligned
from tcusim.program.grammar import Program, require_program
from tcusim.program.printer import line
from tcusim.program.walk import Site

__all__ = ["CHECKS", "Finding", "Site", "in_place", "problems", "tile_is_aligned", "verify"]

_WELL_FORMED: Final[tuple[Check, ...]] = (
    names.positive_counts,
    names.distinct_names,
    names.buffer_roles,
    names.symbols_in_scope,
)
_CORRECT: Final[tuple[Check, ...]] = (
    tiles.operand_roles,
    tiles.fragment_shapes,
    tiles.equal_rectangles,
    tiles.rows_of_sums,
    tiles.element_types,
    tiles.one_layout,
    tiles.tile_layout,
    tiles.equal_lines,
    tiles.alignment,
    races.uniform_barrier,
    private_branch,
    defined_before_use,
    inside_buffer,
    races.copy_overlap,
    races.synced_shared,
    writes.one_writer,
    writes.outputs_written,
    writes.published_once,
    writes.awaits_published,
)

CHECKS: Final[Mapping[str, Check]] = {check.__name__: check for check in _WELL_FORMED + _CORRECT}


def verify(program: Program) -> None:
    """Raise the first problem of a program, if it has one.

    The answer for a correct program is remembered, so that every run may ask.

    Parameters
    ----------
    program : Program
        From `tcusim.build`, or written by hand.

    Raises
    ------
    VerifyError
        With the name of the check, the step and what to do about it.
    """
    require_program(program)
    _verify_once(program)


def problems(program: Program) -> list[VerifyError]:
    """Return everything that is wrong with a program, in the order of `CHECKS`.

    The first group of checks makes sure that the later ones can compute addresses at all; they do
    not run while it finds anything.
    """
    require_program(program)
    found = list(_errors(program, _WELL_FORMED))
    return found or list(_errors(program, _CORRECT))


@lru_cache(maxsize=256)
def _verify_once(program: Program) -> None:
    for error in _errors(program, _WELL_FORMED + _CORRECT):
        raise error


def _errors(program: Program, checks: tuple[Check, ...]) -> Iterator[VerifyError]:
    for check in checks:
        for site, message in check(program):
            path = site.path if site else ""
            text = line(site.step) if site else ""
            yield VerifyError(check.__name__, program.name, path, text, message)
