"""Every function on arrays is planned and called on tiles of all kinds, and the sums are right.

Elements are small integers, so that every sum on the way is exact and results are equal to NumPy's.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from some import Some
from tcusim.arrays.dtypes import numpy_type
from tcusim.errors import TcusimError, Unsupported
from tcusim.machine.shapes import MmaShape, shape_of

Array = NDArray[Any]

# Real tiles, then sizes that are even, odd, powers of 2 and none, few and many, in each place.
_TILES: Final = """
16x16x16 32x8x16 8x32x16 8x8x4 16x8x8 16x8x16 16x16x8 8x8x16 16x8x32
1x1x1 2x2x2 4x4x4 5x7x3 7x5x3 6x6x6 10x10x10 12x12x12 20x20x20 16x16x1 16x16x2 16x16x6
8x8x12 24x8x12 8x48x12 48x24x12 1x16x16 16x1x5 1x48x20 48x5x7 7x1x8 5x48x4 64x8x16
"""
TILES: Final = tuple(_TILES.split())
SIZES: Final = (
    *(1, 2, 3, 5, 8, 9, 13, 16, 17, 40, 100, 257, 1000, 5000, 10_000),
    *(2**17, 2**21, 2**23, 2**24, 10_000_000, 2**25),
)
# Elements up to which a case is called; longer ones are planned, and so built and verified.
CALLED: Final = 2**14
# All of some twenty thousand cases, nine minutes of two cores: see tests/README.md.
ALL: Final = os.environ.get("TCUSIM_TILE_CASES") == "all"
# The columns: architecture, type of the array, type of the accumulators.
TYPES: Final = (
    *(("hopper", dtype, "f32") for dtype in ("float16", "bfloat16", "float32", "float64")),
    *(("hopper", dtype, "f32") for dtype in ("int8", "uint8", "int64", "bool")),
    ("hopper", "float16", "f16"),
    *(("volta", dtype, "f32") for dtype in ("float16", "float32", "float64", "int8", "uint8")),
    ("volta", "float16", "f16"),
    *(("exact", dtype, "f32") for dtype in ("float16", "bfloat16", "float32", "float64", "int8")),
)


@dataclass(frozen=True)
class Case:
    """A call: its tile, types, function and number of elements."""

    tile: str
    types: tuple[str, str, str]
    operation: str
    size: int

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of every function."""
        arch, _, acc = self.types
        return {"tile": self.shape, "arch": arch, "acc": acc}

    @property
    def shape(self) -> MmaShape:
        return shape_of(self.tile)

    def numbers(self, count: int) -> Array:
        """Return integers with exact sums in the accumulators, in any order."""
        _, dtype, acc = self.types
        rng = np.random.default_rng(zlib.crc32(repr(self).encode()))
        x = rng.integers(0 if dtype in ("uint8", "bool") else -1, 2, count)
        if acc == "f16":
            x[rng.permutation(count)[1000:]] = 0
        return x.astype(numpy_type(dtype))

    def refusal(self) -> str | None:
        """Return why the tile does not take the types, if it does not."""
        arch, dtype, acc = self.types
        is_product = self.operation.startswith("mat")
        if (dtype == "float32" or (arch, dtype) == ("volta", "float64")) and not is_product:
            return None
        if (arch, dtype) == ("volta", "float64"):
            return "multiplies no float64"
        ab = {"float16": "f16", "bfloat16": "bf16", "float32": "bf16", "float64": "f64"}
        pair = (ab.get(dtype, "s8"), "s32")
        if dtype in ab:
            pair = (ab[dtype], "f64" if dtype == "float64" else acc)
        if arch == "volta":
            pair = ("f16", acc)
        # Digits of integers and parts of float32 can be float16.
        if dtype not in ("float16", "bfloat16", "float64") and not self.shape.supports(*pair):
            pair = ("f16", "f32")
        return None if self.shape.supports(*pair) else f"does not take {pair[0]} to {pair[1]}"


def exact(x: Array) -> Array:
    return x.astype(np.int64)


def result(case: Case, expected: Any) -> Array:
    """Return integers as the type of the results has them, rounded once."""
    _, dtype, _ = case.types
    kind = numpy_type(dtype)
    if dtype in ("uint8", "int8", "int64", "bool"):
        return np.asarray(expected, np.uint64 if dtype == "uint8" else np.int64)
    return np.asarray(expected, np.float64).astype(np.float32).astype(kind)


# --- Sums and scans -------------------------------------------------------------------------------


def whole(case: Case) -> tuple[Any, Any]:
    x = case.numbers(case.size)
    function = tcusim.sum if case.operation == "sum" else tcusim.cumsum
    expected = exact(x).sum() if case.operation == "sum" else exact(x).cumsum()
    return function(x, **asked(**case.options)), expected


def edges_of(case: Case) -> Array:
    """Return the segment bounds: of one size, or an empty one, the longest and two."""
    if "by size" in case.operation:
        count = max(2, min(CALLED // case.size, 300))
        return np.minimum(np.arange(count + 1) * case.size, count * case.size - case.size // 3)
    half = case.size // 2
    return np.cumsum([0, half, 0, case.size, 1])


def segments(case: Case) -> tuple[Any, Any]:
    edges = edges_of(case)
    x = case.numbers(int(edges[-1]))
    operation, _, way = case.operation.partition(" by ")
    function = getattr(tcusim, operation)
    given: dict[str, Any] = {"segments": case.size}
    if way == "offsets":
        given = {"segments": edges}
    elif way == "ids":
        count = len(edges) - 1
        ids = np.repeat(np.arange(count), np.diff(edges))
        given = {"segments": tcusim.Segments(ids=ids, count=count)}
    running = np.concatenate([[0], exact(x).cumsum()])
    sums = running[edges[1:]] - running[edges[:-1]]
    if operation == "segmented_sum":
        return function(x, **asked(**given, **case.options)), sums
    expected = running[1:] - np.repeat(running[edges[:-1]], np.diff(edges))
    return function(x, **asked(**given, **case.options)), expected


# --- Products -------------------------------------------------------------------------------------


def sizes_of(case: Case) -> tuple[int, int, int | None]:
    """Return rows, inner and cols: one of them is the case's size."""
    return {
        "matvec, long rows": (3, case.size, None),
        "matvec, many rows": (case.size, 17, None),
        "matmul, long rows": (3, case.size, 5),
        "matmul, wide": (9, 21, min(case.size, 5000)),
    }[case.operation]


def product(case: Case) -> tuple[Any, Any]:
    rows, inner, cols = sizes_of(case)
    a, b = case.numbers(rows * inner), case.numbers(inner * (cols or 1))[::-1]
    a, b = a.reshape(rows, inner), b if cols is None else b.reshape(inner, cols)
    function = tcusim.matvec if cols is None else tcusim.matmul
    return function(a, b, **asked(**case.options)), exact(a) @ exact(b)


CALLS: Final[dict[str, Callable[[Case], tuple[Any, Any]]]] = {
    **dict.fromkeys(("sum", "cumsum"), whole),
    **{
        f"segmented_{operation} by {way}": segments
        for operation in ("sum", "cumsum")
        for way in ("size", "offsets", "ids")
    },
    "matvec, long rows": product,
    "matvec, many rows": product,
    "matmul, long rows": product,
    "matmul, wide": product,
}


def cases() -> Iterator[Case]:
    """Yield every tile, type and size: with all operations, or with one if not of TYPES[0]."""
    turns = itertools.cycle(CALLS)
    for tile, types, size in itertools.product(TILES, TYPES, SIZES):
        for operation in CALLS if types == TYPES[0] else (next(turns),):
            yield Case(tile, types, operation, size)


def planned(case: Case) -> Any:
    """Return the plan of a case; its programs have been built and verified."""
    _, dtype, _ = case.types
    options = {"dtype": dtype, **case.options}
    if case.operation.startswith("mat"):
        rows, inner, cols = sizes_of(case)
        operation = "matvec" if cols is None else "matmul"
        return tcusim.plan_product(operation, rows=rows, inner=inner, cols=cols, **asked(**options))
    operation, _, way = case.operation.partition(" by ")
    given: dict[str, Any] = {}
    if way == "size":
        given = {"segments": case.size}
    elif way:
        given = {"segments": tcusim.Segments(count=4, longest=case.size)}
    length = case.size * (3 if way else 1)
    return tcusim.plan(operation, length=length, **asked(**given, **options))


def fault(case: Case) -> str:
    """Return the fault of a case; empty if it is right, or refused with its reason."""
    reason = case.refusal()
    call = CALLS[case.operation] if case.size <= CALLED else None
    try:
        found, expected = call(case) if call else (planned(case), None)
    except TcusimError as error:
        known = isinstance(error, Unsupported) and reason is not None and reason in str(error)
        return "" if known or _is_too_long(case, error) else f"refused: {error}"
    if reason is not None:
        return f"{reason}, and nobody says so"
    if call is None:
        return _fallback(found)
    wanted = result(case, expected)
    right = found.dtype == wanted.dtype and np.array_equal(found, wanted)
    return "" if right else f"wrong: {found} instead of {wanted}"


def _is_too_long(case: Case, error: Exception) -> bool:
    """Return whether a plan with sums past int32 was refused; calls split such arrays."""
    limited = case.types[1] in ("int8", "uint8", "int64", "bool")
    return limited and case.size > CALLED and "not fit int32" in str(error)


def _fallback(plan: Any) -> str:
    """Return the plan's message if an algorithm refused a requested tile."""
    return next((line for line in plan.rationale if line.startswith("not ")), "")


# --- The tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(4))
def test_the_functions_take_every_tile(part: int, some: Some) -> None:
    every = list(cases())[part::4]
    every = every if ALL else every[10 * part :: 41]
    faults = {case: text for case in some(every, 1 if ALL else 7, part) if (text := fault(case))}
    assert not faults


@pytest.mark.parametrize(
    ("tile", "operation", "size", "types"),
    [
        ("8x8x4", "sum", 5, ("volta", "float16", "f32")),
        ("8x8x4", "cumsum", 13, ("volta", "float16", "f32")),
        ("16x8x8", "segmented_cumsum by size", 13, ("hopper", "float16", "f32")),
        ("2x2x2", "cumsum", 5, ("hopper", "float16", "f32")),
        ("5x7x3", "sum", 2**21, ("hopper", "float16", "f32")),
        ("8x48x12", "sum", 10_000_000, ("exact", "float32", "f32")),
        ("20x20x20", "sum", 2**24, ("exact", "float64", "f32")),
        ("24x8x12", "segmented_sum by size", 2**25, ("hopper", "int8", "f32")),
        ("8x48x12", "matvec, long rows", 10_000, ("hopper", "float16", "f32")),
        ("12x12x12", "matvec, long rows", 2**17, ("hopper", "float16", "f32")),
    ],
)
def test_tiles_whose_sizes_are_no_power_of_2_do(
    tile: str, operation: str, size: int, types: tuple[str, str, str]
) -> None:
    assert fault(Case(tile, types, operation, size)) == ""


def test_floats_are_as_precise_on_every_tile(some: Some) -> None:
    # A row's chain truncates twice, at 2**-23, and some 20 additions above it round, at 2**-24.
    for number, tile in enumerate(some(TILES, 3)):
        x = np.random.default_rng(number).standard_normal(3000).astype(np.float16)
        if not shape_of(tile).supports("f16", "f32"):
            continue
        options: dict[str, Any] = {"tile": tile, "arch": "hopper", "dtype": np.float32}
        exact_sums = x.astype(np.float64).cumsum()
        tolerance = 2.0**-19 * np.abs(x.astype(np.float64)).sum()
        assert abs(tcusim.sum(x, **asked(**options)) - exact_sums[-1]) <= tolerance
        assert np.abs(tcusim.cumsum(x, **asked(**options)) - exact_sums).max() <= tolerance
