"""Whether the functions on arrays are right on a tile: sums, scans and products of integers.

`tcusim.sum` and its kin choose their algorithms themselves, by tile, type and size. So that each
algorithm is right on a tile does not say that they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from tcusim.arrays.dtypes import dtype_of, numpy_type
from tcusim.arrays.functions import cumsum, matmul, matvec, segmented_cumsum, segmented_sum
from tcusim.arrays.functions import sum as sum_of
from tcusim.arrays.plan_functions import plan, plan_product
from tcusim.errors import TcusimError
from tcusim.judge.correctness.kinds import exact_up_to
from tcusim.judge.run import run_cases
from tcusim.judge.verdict.subjects import Subject
from tcusim.machine import rule_for
from tcusim.machine.shapes import MmaShape

# Elements that are summed, beside those that are about as many as a panel has: as many as a tile
# with few columns takes in one row, or in several.
_FEW: Final = (1, 5, 13)
# Lengths that are planned alone, to build and verify programs of many blocks; and of rows.
_MANY: Final = 2**24
_LONG: Final = 50_000
# The most ones among the elements, which the results hold exactly.
_MOST_ONES: Final = 200

# Of one tile, about.
_SECONDS: Final = 1.5

# The name of a case, its call with options, and the right result; None is a plan.
_Case: TypeAlias = tuple[str, Callable[..., Any], Any]


@dataclass(frozen=True, slots=True)
class OnArrays:
    """The results of the functions on arrays on one tile.

    Attributes
    ----------
    tile : str
        The tile.
    cases : int
        Calls, and plans of long arrays.
    failed : tuple of str
        Those that were refused or wrong, and why.
    reason : str
        Why nothing was tried; empty if something was.
    """

    tile: str
    cases: int = 0
    failed: tuple[str, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        """Return it in a line, without the failures."""
        if self.reason:
            return f"array functions: not tried on {self.tile}, since {self.reason}"
        right = self.cases - len(self.failed)
        verdict = "NOT RIGHT" if self.failed else "all right"
        return f"array functions: {right} of {self.cases} cases right on {self.tile}: {verdict}"


def on_arrays(subject: Subject, executor: Executor | None = None) -> tuple[OnArrays, ...]:
    """Call the functions on arrays on every tile of a subject, in its types."""
    run = partial(_on_tile, subject)
    return tuple(run_cases(run, subject.tiles, executor, seconds=lambda _: _SECONDS))


def _on_tile(subject: Subject, tile: MmaShape) -> OnArrays:
    ab, acc = subject.ab, subject.acc
    dtype = dtype_of(ab, acc)
    if dtype is None:
        return OnArrays(tile.name, reason=f"no arrays are computed in {ab} to {acc}")
    rule = rule_for(subject.arch, ab, acc, tile.family(ab, acc))
    ones = min(_MOST_ONES, exact_up_to(ab, acc, rule))
    options = {"tile": tile, "arch": subject.arch, "acc": "f16" if acc == "f16" else "f32"}
    cases, failed = 0, []
    for name, function, expected in itertools.chain(_calls(dtype, tile.k, ones), _plans(dtype)):
        cases += 1
        try:
            found = function(options=options)
        except TcusimError as error:
            failed.append(f"{name}: {error}")
            continue
        if expected is not None and not np.array_equal(found, expected):
            failed.append(f"{name}: {found} where {expected} is the sum")
    return OnArrays(tile.name, cases, tuple(failed))


def _calls(dtype: str, k: int, ones: int) -> Iterator[_Case]:
    """Yield calls with few and more elements, of which so many at most are 1, and the others 0."""
    for size in (*_FEW, 64 * k + 3):
        x = np.zeros(3 * size, numpy_type(dtype))
        x[:: -(-x.size // ones)] = 1
        rows = x.reshape(3, size)
        exact, edges = rows.astype(np.int64), [0, size, size, 3 * size]
        first, others = exact[0], exact[1:].ravel()
        each: tuple[_Case, ...] = (
            ("sum", partial(sum_of, x), exact.sum()),
            ("cumsum", partial(cumsum, x), exact.cumsum()),
            ("segmented_sum", partial(segmented_sum, x, size), exact.sum(axis=1)),
            ("segmented_cumsum", partial(segmented_cumsum, x, size), exact.cumsum(axis=1).ravel()),
            (
                "segmented_sum by offsets",
                partial(segmented_sum, x, edges),
                [first.sum(), 0, others.sum()],
            ),
            (
                "segmented_cumsum by offsets",
                partial(segmented_cumsum, x, edges),
                np.concatenate([first.cumsum(), others.cumsum()]),
            ),
            ("matvec", partial(matvec, rows, rows[0]), exact @ first),
            ("matmul", partial(matmul, rows, rows.T), exact @ exact.T),
        )
        for name, function, expected in each:
            yield f"{name} of {size} elements", function, expected


def _plans(dtype: str) -> Iterator[_Case]:
    """Yield plans of long arrays, whose programs are built and verified, and not run."""
    for operation in ("sum", "cumsum"):
        yield (
            f"{operation} of {_MANY} elements",
            partial(plan, operation, length=_MANY, dtype=dtype),
            None,
        )
    long = partial(plan_product, "matvec", rows=3, inner=_LONG, dtype=dtype)
    yield f"matvec of {_LONG} elements", long, None
