"""Numbers that `tcusim tune` measured on a user's GPU, for kinds and sizes of segments.

The environment variable TCUSIM_TUNING names the file. It is read once, when the first plan is made.
Only numbers that leave every bit of the results as it is can be set: see `TUNED`.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from tcusim.arrays.problem import AnyProblem, Problem
from tcusim.arrays.tuning import SegmentTuning, Tuning
from tcusim.errors import InputError, told
from tcusim.records import of_json

FORMAT: Final = "tcusim tuning 1"
VARIABLE: Final = "TCUSIM_TUNING"

# The numbers that may be set, all powers of two, and the least and the most of each: how much a
# warp or a block takes, not in which order its elements are added.
TUNED: Final[Mapping[str, tuple[int, int]]] = {
    "panel_elements": (2**9, 2**14),
    "added_elements": (2**8, 2**12),
    "panel_iterations": (1, 16),
    "panel_warps": (1, 16),
    "longest_in_panels": (2**9, 2**15),
    "many_segments": (1, 2**30),
    "most_block": (2**12, 2**18),
    "enough_blocks": (1, 2**12),
    "sum_warp_elements": (2**9, 2**13),
    "shared_warp_elements": (2**9, 2**13),
    "block_warps": (1, 32),
    "block_bytes": (2**13, 2**17),
    "columns": (1, 2**9),
}
_OF_SEGMENTS: Final = {one.name for one in fields(SegmentTuning)}


@dataclass(frozen=True, slots=True)
class TunedRow:
    """Numbers for one kind of problem.

    arch: by name. kind: "reduction" or "scan". source: the type of the array's elements. size:
    elements of a segment; 0 if the whole array is one. log2_length: of arrays that have
    2**log2_length elements, and fewer than twice as many. numbers: by their names in `TUNED`.
    """

    arch: str
    kind: str
    source: str
    size: int
    log2_length: int
    numbers: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be set."""
        for name, value in self.numbers:
            if name not in TUNED:
                known = ", ".join(TUNED)
                raise InputError(f"{name!r} is no number that can be tuned; those are {known}")
            least, most = TUNED[name]
            if not isinstance(value, int) or not least <= value <= most or value & (value - 1):
                raise InputError(
                    f"{name} must be a power of two from {least} to {most}, got {told(value)}"
                )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The content of a file."""

    rows: tuple[TunedRow, ...]


def row_for(problem: Problem, numbers: Mapping[str, int]) -> TunedRow:
    """Return the row that gives these numbers to problems like this one."""
    return TunedRow(
        *(problem.arch or "", problem.kind, problem.types.source),
        *(problem.whole_or_size or 0, problem.length.bit_length() - 1),
        numbers=tuple(numbers.items()),
    )


def with_numbers(tuning: Tuning, kind: str, numbers: Iterable[tuple[str, int]]) -> Tuning:
    """Return a tuning with other numbers for a kind of problem."""
    given = dict(numbers)
    own: dict[str, Any] = {name: given.pop(name) for name in tuple(given) if name in _OF_SEGMENTS}
    changed: dict[str, Any] = {**given, kind: replace(tuning.of(kind), **own)}
    return replace(tuning, **changed)


def tuned(tuning: Tuning, problem: AnyProblem) -> Tuning:
    """Return the numbers for a problem: those measured, where there are any, else those given."""
    path = os.environ.get(VARIABLE)
    if not path or not isinstance(problem, Problem) or problem.by_offsets is not None:
        return tuning
    found = _rows_of(path).get(row_for(problem, {}))
    return tuning if found is None else with_numbers(tuning, problem.kind, found)


@functools.cache
def _rows_of(path: str) -> dict[TunedRow, tuple[tuple[str, int], ...]]:
    """Return the numbers of a file, by rows without any."""
    try:
        rows = read_rows(Path(path))
    except OSError as error:
        raise InputError(
            f"{VARIABLE} names {path}, which cannot be read ({error.strerror}). Unset it, or write "
            f"the file with: tcusim tune -o {path}"
        ) from error
    return {replace(row, numbers=()): row.numbers for row in rows}


def read_rows(path: Path) -> tuple[TunedRow, ...]:
    """Return the rows of a file. Raises InputError if it is none that `write_rows` writes."""
    where = f"{path} is no {FORMAT!r} file"
    return of_json(_Rows, path.read_bytes(), where, form=FORMAT).rows


def write_rows(rows: Iterable[TunedRow]) -> str:
    """Return the text of a file; of rows for the same problems, the last one stays."""
    last = {replace(row, numbers=()): row for row in rows}
    plain = [{**asdict(row), "numbers": dict(row.numbers)} for row in last.values()]
    return json.dumps({"format": FORMAT, "rows": plain}, indent=1) + "\n"
