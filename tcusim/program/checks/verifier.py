"""Named checks on a step program, one function each: errors that CUDA forbids or leaves silent.

`verify(program)` raises the first problem, or returns the proved and unproven properties;
`problems(program)` returns all problems, and `CHECKS` names the rules in the order of the trial.
Proofs hold for all sizes with at least one block. A check that can neither prove nor refute states
the sizes it tried. `in_place(program)` is not a rule: it returns the reason why a result may not
overwrite the input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from tcusim.errors import VerifyError
from tcusim.program.checks import names, races, tiles, writes
from tcusim.program.checks.defined import defined_before_use
from tcusim.program.checks.in_place import in_place as in_place
from tcusim.program.checks.inside import inside_buffer
from tcusim.program.checks.on_data import private_branch
from tcusim.program.checks.sites import Check, Unproven
from tcusim.program.grammar import Program, require_program, walk
from tcusim.program.printer import line

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


# The properties that are proved for all sizes, or tried, by check.
_PROPERTIES: Final[Mapping[str, str]] = {
    "inside_buffer": "every access is in bounds",
    "defined_before_use": "nothing in shared memory is read before it is written",
    "synced_shared": "no accesses between barriers race",
    "outputs_written": "every output element is written",
    "one_writer": "no output element is written by two warps",
    "published_once": "each status word is published once",
    "awaits_published": "what a block awaits, an earlier block publishes",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of `verify` for a program that breaks no rule; it prints as sentences.

    Attributes
    ----------
    program : str
        The program's name.
    steps : int
        Number of steps.
    proved : tuple of str
        Properties that hold for all lengths and other scalars for which the grid has a block.
    unproven : mapping of str to str
        The other properties, by the name of their check in `CHECKS`: the sizes tried, or the data
        for which the property is proved.
    """

    program: str
    steps: int
    proved: tuple[str, ...]
    unproven: Mapping[str, str]
    # The names in `unproven` that hold within a limit that callers keep.
    limited: frozenset[str] = frozenset()

    @property
    def proven(self) -> bool:
        """Whether all properties are proved."""
        return not self.unproven

    @property
    def notes(self) -> tuple[str, ...]:
        """A line for each unproven property: the sizes tried, or the data for which it holds."""
        return tuple(
            f"not proven: {_PROPERTIES[name]}: {text}" for name, text in self.unproven.items()
        )

    def __str__(self) -> str:
        """Print the proved and the unproven properties."""
        lines = [f"{self.program}: {self.steps} steps", f"all sizes: {', '.join(self.proved)}"]
        lines += self.notes
        return "\n".join((f"verified {lines[0]}", *(f"  {one}" for one in lines[1:])))

    __repr__ = __str__


def verify(program: Program) -> Verification:
    """Raise the first problem of a program, or return its proved and unproven properties.

    Proofs hold for all lengths and other scalars for which the grid has a block, and for all
    blocks, warps and lanes. A property that can be neither proved nor refuted is tried for the
    sizes that the result names, and may fail for others. The result is cached, so every run may
    ask.

    Parameters
    ----------
    program : Program
        From `tcusim.build`, or written by hand.

    Returns
    -------
    Verification
        It prints as sentences; `proven` is whether all properties are proved.

    Raises
    ------
    VerifyError
        With the name of the check, the step and a remedy.
    """
    require_program(program)
    return _verify_once(program)


def problems(program: Program) -> list[VerifyError]:
    """Return all problems of a program, in the order of `CHECKS`.

    The first group of checks ensures that later checks can compute addresses; those run only if it
    finds no problem. An empty list does not mean that all properties are proved; see `verify`.
    """
    require_program(program)
    found = _errors(program, _WELL_FORMED)
    return found or _errors(program, _CORRECT)


def _errors(program: Program, checks: tuple[Check, ...]) -> list[VerifyError]:
    return [one for _, one in _results(program, checks) if isinstance(one, VerifyError)]


@lru_cache(maxsize=256)
def _verify_once(program: Program) -> Verification:
    unproven: dict[str, Unproven] = {}
    for name, result in _results(program, _WELL_FORMED + _CORRECT):
        if isinstance(result, VerifyError):
            raise result
        unproven.setdefault(name, result)
    about_status = set() if program.status else {"published_once", "awaits_published"}
    names = [name for name in _PROPERTIES if name not in about_status]
    return Verification(
        program.name,
        sum(1 for _ in walk(program.steps)),
        tuple(_PROPERTIES[name] for name in names if name not in unproven),
        MappingProxyType({name: one.within or one.tried for name, one in unproven.items()}),
        frozenset(name for name, one in unproven.items() if one.within),
    )


def _results(
    program: Program, checks: tuple[Check, ...]
) -> Iterator[tuple[str, VerifyError | Unproven]]:
    for check in checks:
        for result in check(program):
            if isinstance(result, Unproven):
                yield check.__name__, result
                continue
            site, message = result
            path = site.path if site else ""
            text = line(site.step) if site else ""
            yield check.__name__, VerifyError(check.__name__, program.name, path, text, message)
