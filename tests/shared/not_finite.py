"""Scans of data with infinities and NaN: programs, data, and NumPy's results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms import build
from tcusim.machine import as_values, from_values
from tcusim.program.grammar import Program

Array = NDArray[Any]
Run = Callable[[Program, Mapping[str, Any]], Mapping[str, Array]]

INF, NAN = np.inf, np.nan
# Non-finite values of a segment, by index; from the end if negative. Rows have 32, tiles 16 (of
# float64, 8 and 4), panels 1024, chunks 8192.
PATTERNS: Final[tuple[dict[int, float], ...]] = (
    {0: INF},
    {-1: -INF},
    {15: NAN, 16: INF},
    {31: -INF},
    {32: INF, 33: -INF},
    {20: INF, 25: INF},
    {},
    {5: -INF, -2: INF},
    {1023: INF},
    {1024: -INF, 1500: NAN},
    {8191: INF, 8192: -INF},
)
# The same of a whole array.
SPREAD: Final = {5000: INF, 9999: INF, 15_001: -INF, -1: NAN}


@dataclass(frozen=True)
class Case:
    """A scan program, and the segments that it is run on.

    size: of the segments; None if the array is one; the longest, if `lengths` are given.
    """

    name: str
    size: int | None
    options: Mapping[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """Its name in pytest."""
        words = [self.name, str(self.size), *map(str, self.options.values())]
        return "-".join(words)

    def program(self, **order: bool) -> Program:
        """Build the program."""
        options = {"masked": True, "combine": "add", **self.options, **order}
        return build(self.name, segment_size=self.size, **options)

    @property
    def edges(self) -> Array:
        """Where the segments begin, and the last one ends; that one is cut short."""
        if self.lengths:
            return np.cumsum([0, *self.lengths])
        if self.size is None:
            return np.array([0, 20_000])
        segments = len(PATTERNS) if self.size < 2000 else 3
        return np.minimum(np.arange(segments + 1) * self.size, segments * self.size - 3)


_TF32 = {"tile": "16x16x8", "ab": "tf32", "source": "f32"}
_F64 = {"tile": "8x8x4", **dict.fromkeys(("ab", "acc", "source", "result"), "f64")}
_RAGGED = (40, 0, 33, 1, 100, 16, 64, 17, 100, 96, 32)

CASES: Final = (
    Case("scan_panel", 16),
    Case("scan_panel", 40),
    Case("scan_panel", 64),
    Case("scan_panel", 300, {"acc": "f16", "result": "f16", "side": "b"}),
    Case("scan_panel", 300, _TF32),
    Case("scan_panel", 64, {"ab": "bf16", "source": "bf16"}),
    Case("scan_panel", 64, _F64),
    Case("scan_panel", 1100),
    Case("scan_panel", 9000, {"warps": 2}),
    Case("scan_single_pass", None, {"warps": 4, "columns": 2}),
    Case("scan_single_pass", None, {"warps": 4, "columns": 2, **_TF32}),
    Case("scan_single_pass", 9000, {"warps": 8}),
    Case("scan_single_pass", 20_000, {"warps": 8, "columns": 2}),
    Case("scan_ragged", 100, {"whole": True}, _RAGGED),
    Case("scan_ragged", 100, {"whole": True, **_TF32}, _RAGGED),
)
ORDERS: Final = tuple(
    {"exclusive": exclusive, "reverse": reverse}
    for exclusive, reverse in itertools.product((False, True), repeat=2)
)
# One for each way to read the rows of a warp again: on the host each has to be compiled.
FEW: Final = (CASES[1], CASES[2], CASES[4], CASES[9], CASES[14])


def inputs_of(case: Case, program: Program) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return inputs with infinities and NaN, and the same with zeros in their place."""
    edges, dtype = case.edges, program.buffer("in").dtype
    values = np.random.default_rng(7).integers(-8, 9, edges[-1]) / 4
    finite, spoiled = values.copy(), values.copy()
    for number, (begin, end) in enumerate(itertools.pairwise(edges)):
        # Of few long segments, those with places far from the beginning.
        pattern = SPREAD if case.size is None else PATTERNS[-1 - number % len(PATTERNS)]
        for place, value in pattern.items():
            at = begin + place if place >= 0 else end + place
            if begin <= at < end:
                finite[at], spoiled[at] = 0, value
    offsets = {"offsets": edges} if case.lengths else {}
    made = (from_values(as_values(x, dtype), dtype) for x in (spoiled, finite))
    one, two = ({"in": x, **offsets} for x in made)
    return one, two


def disagreement(case: Case, run: Run, **order: bool) -> str:
    """Run a case; return differences from NumPy's infinities and NaN, and from the finite bits."""
    program = case.program(**order)
    spoiled, finite = inputs_of(case, program)
    got, usual = (run(program, inputs)["out"] for inputs in (spoiled, finite))
    x = np.asarray(spoiled["in"], np.float64)
    special = np.zeros(x.size)
    for begin, end in itertools.pairwise(case.edges):
        special[begin:end] = _scan(np.where(np.isfinite(x[begin:end]), 0, x[begin:end]), **order)
    expected = np.where(special == 0, usual, special.astype(usual.dtype))
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    same &= (special != 0) | (np.signbit(got) == np.signbit(expected))
    wrong = np.flatnonzero(~same)
    if not wrong.size:
        return ""
    return f"{wrong.size} wrong: [{wrong[0]}] is {got[wrong[0]]}, not {expected[wrong[0]]}"


def _scan(x: Array, *, exclusive: bool = False, reverse: bool = False) -> Array:
    """Return NumPy's prefix sums in an order."""
    if reverse:
        return _scan(x[::-1], exclusive=exclusive)[::-1]
    with np.errstate(invalid="ignore"):
        sums = np.cumsum(x)
    return np.concatenate([[0.0], sums[:-1]])[: x.size] if exclusive else sums
