"""bits="exact": every sum and prefix is the true value, rounded once."""

from __future__ import annotations

import itertools
import math
import os
import tracemalloc
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tcusim
from asked import asked
from pieces import small_pieces
from some import marked
from tcusim.arrays.fixed_point import FixedPoint, Integers, places_of
from tcusim.errors import InputError, UnknownName, Unsupported

# Bits of the significand, and exponents of the smallest and the largest normal number.
FLOATS = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}
TYPES = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in FLOATS}
# Digits in int8; and in float16, where there is no int8.
ARCHES = ("hopper", "volta")
CASES = int(os.environ.get("TCUSIM_BITS_CASES", "0"))
examples = settings(max_examples=CASES or 15, deadline=None, derandomize=not CASES, database=None)
# The module, for calls that a type checker would refuse.
UNTYPED: Any = tcusim


def rounded(value: Fraction, name: str) -> float:
    """Return a number rounded to nearest even, by the definition."""
    digits, lowest, highest = FLOATS[name]
    if not value:
        return 0.0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > abs(value)
    step = Fraction(2) ** (max(exponent, lowest) - digits + 1)
    nearest = round(value / step) * step
    if abs(nearest) >= Fraction(2) ** (highest + 1):
        return math.copysign(math.inf, value)
    return float(nearest)


def prefixes(x: NDArray[Any], name: str) -> list[float]:
    """Return the correctly rounded prefix sums."""
    exact = (Fraction(int(one) if x.dtype.kind in "biu" else float(one)) for one in x)
    return [rounded(one, name) for one in itertools.accumulate(exact)]


@pytest.mark.parametrize("name", [*FLOATS, "bool", "int8", "uint8", "int16", "int64", "uint64"])
def test_digits_lie_where_their_type_has_places(name: str) -> None:
    """No more of them than is said of some elements, and none where the type has no place."""
    dtype, rng = TYPES.get(name, np.dtype(name)), np.random.default_rng(0)
    if name in FLOATS:
        bits, lowest, highest = FLOATS[name]
        least, most = 2.0 ** (lowest - bits + 1), (2 - 2.0 ** (1 - bits)) * 2.0**highest
        whole = np.array([least, -most, np.inf, -np.inf, np.nan]).astype(dtype)
        some = (rng.uniform(-2, 2, 9) * np.exp2(rng.integers(lowest, highest, 9))).astype(dtype)
    else:
        # The largest number of several bytes carries over to one more.
        limits = (0, 1) if name == "bool" else (np.iinfo(name).min, np.iinfo(name).max)
        whole, some = np.array(limits, dtype), np.array([1, 0, 1], dtype)
    numeral = FixedPoint(np.dtype(np.float64))
    places = places_of(dtype)
    assert numeral.digits(whole).keys() <= set(places)
    for x in (whole, whole[:1], whole[1:2], some, *some[:, None]):
        kinds: list[FixedPoint | Integers] = [numeral]
        if dtype.kind in "biu":
            kinds.append(Integers(np.dtype(np.int64)))
        for kind in kinds:
            digits = {place: one.astype(np.int64) for place, one in kind.digits(x).items()}
            count = len([place for place in digits if isinstance(place, int)])
            assert count <= kind.width(x)
            assert count == kind.width(x) or isinstance(kind, FixedPoint)
            assert np.array_equal(kind.total(digits), x.astype(kind.result), equal_nan=True)


@pytest.mark.parametrize("name", FLOATS)
def test_a_sum_of_any_number_of_bits_is_rounded_once(name: str) -> None:
    """A rounding to float64 on the way would round twice from 54 bits on, at ties and near them."""
    digits, rows = FLOATS[name][0], []
    for bits in range(max(digits, 24) + 1, 80):
        for middle in ([], [digits], [digits + 1], [digits, digits + 1], [digits - 1, digits]):
            # The highest bit, some where the rounding is decided, and two numbers of which the
            # lowest bit of all is left. Digits are counted from the last of any significand.
            powers = sorted({0, *(place for place in middle if place <= bits - 24)})
            row = [2.0 ** (bits - 1 - place - 70) for place in powers] + [0.0] * (3 - len(powers))
            last = 2.0**-47 + 2.0**-70
            rows += [[*row, last, -(2.0**-47)], [*row, -last, 2.0**-47]]
    x = np.array(rows, np.float32)
    expected = [rounded(sum(map(Fraction, row), Fraction()), name) for row in x.tolist()]
    sums = tcusim.sum(x, axis=1, options={"bits": "exact"}, dtype=TYPES[name])
    assert sums.astype(np.float64).tolist() == expected


def anywhere(name: str, size: int, seed: int = 0) -> NDArray[Any]:
    """Return numbers of all signs and magnitudes of a type, subnormal ones too."""
    digits, lowest, highest = FLOATS[name]
    rng = np.random.default_rng(seed)
    powers = rng.integers(lowest - digits + 1, highest, size)
    with np.errstate(under="ignore"):
        x = np.ldexp(rng.uniform(1, 2, size) * rng.choice([-1, 1], size), powers)
        typed: NDArray[Any] = x.astype(TYPES[name])
    return typed


def bits(x: Any) -> bytes:
    return np.ascontiguousarray(x).tobytes()


@pytest.mark.parametrize(
    ("name", "result", "arch"),
    marked(
        list(itertools.product([*FLOATS, "int8", "uint64", "int64"], FLOATS, ARCHES)),
        # All types on one architecture or the other, and to one result or another.
        step=5,
    ),
)
def test_each_prefix_is_rounded_once(name: str, result: str, arch: str) -> None:
    if name in FLOATS:
        near = np.random.default_rng(1).standard_normal(50).astype(TYPES[name])
        arrays = [anywhere(name, 100), np.concatenate([near, -near[::-1]])]
    else:
        ends = np.iinfo(name)
        integers = np.random.default_rng(2).integers(ends.min, ends.max, 50, name, endpoint=True)
        arrays = [integers, np.resize(np.array([ends.min, ends.max, 1], name), 50)]
    for x in arrays:
        with np.errstate(over="ignore"):
            scan = tcusim.cumsum(x, dtype=result, options={"bits": "exact", "arch": arch})
            total = tcusim.sum(x, dtype=result, options={"bits": "exact", "arch": arch})
        assert scan.dtype == total.dtype == TYPES[result]
        expected = prefixes(x, result)
        assert scan.astype(float).tolist() == expected
        assert float(total) == expected[-1]


def test_long_sums_are_those_of_fsum() -> None:
    for x in (
        np.random.default_rng(3).standard_normal(2**17),
        np.random.default_rng(4).lognormal(0, 4, 2**17).clip(0, 6e4).astype(np.float16),
    ):
        exact = math.fsum(map(float, x))
        assert tcusim.sum(x, dtype="float64", options={"bits": "exact"}) == exact
        narrow = tcusim.sum(x, dtype="float32", options={"bits": "exact", "arch": "volta"})
        assert float(narrow) == rounded(Fraction(exact), "float32")


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        # Halfway between two neighbours: the even one, unless the smallest number tips it.
        (["2048", "1"], "float16", 2048.0),
        (["2048", "3"], "float16", 2052.0),
        (["2048", "1", "0x1p-24"], "float16", 2050.0),
        (["2048", "1", "-0x1p-24"], "float16", 2048.0),
        # Rounded to float32 on the way, or even to float64, this would be a tie.
        (["0x1p+127", "0x1p+119", "0x1p-126"], "bfloat16", 2.0**127 + 2.0**120),
        (["0x1p+127", "0x1p+119", "-0x1p-126"], "bfloat16", 2.0**127),
        (["0x1p+1000", "0x1p+947", "0x1p-1074"], "float64", 2.0**1000 + 2.0**948),
        # Totals that are too large on the way, and some that never are.
        (["60000", "60000", "-60000"], "float16", 60000.0),
        (["65504", "15"], "float16", 65504.0),
        (["65504", "16"], "float16", math.inf),
        (["-65504", "-16"], "float16", -math.inf),
        (["0x1.fffffffffffffp+1023", "0x1p+970"], "float64", math.inf),
        (["0x1.fffffffffffffp+1023", "0x1p+969"], "float64", 2.0**1023 * (2 - 2.0**-52)),
        # Subnormal results.
        (["0x1p-24", "0x1p-24"], "float16", 2.0**-23),
        (["0x1p-150", "0x1p-151"], "float32", 2.0**-149),
        (["0x1p-150"], "float32", 0.0),
        (["0x1p-1074", "-0x1p-1074"], "float64", 0.0),
    ],
)
def test_ties_overflow_and_subnormals(values: list[str], dtype: str, expected: float) -> None:
    x = np.array([float.fromhex(one) if "x" in one else float(one) for one in values])
    for arch in ("hopper", "volta"):
        with np.errstate(over="ignore"):
            assert (
                float(tcusim.sum(x, dtype=dtype, options={"bits": "exact", "arch": arch}))
                == expected
            )
        if expected == math.inf:
            with pytest.warns(RuntimeWarning, match="overflow"):
                tcusim.sum(x, dtype=dtype, options={"bits": "exact", "arch": arch})


def test_a_sum_of_zero_has_no_sign_and_a_rounded_one_keeps_it() -> None:
    for x in ([-0.0], [-0.0, -0.0], [1.0, -1.0], [0.0, -0.0]):
        assert math.copysign(1, tcusim.sum(np.array(x), options={"bits": "exact"})) == 1
        assert (
            np.copysign(1, tcusim.cumsum(np.array(x), options={"bits": "exact"}))[-1:] == 1
        ).all()
    assert (
        math.copysign(
            1, tcusim.sum(np.array([-1e-300]), dtype="float32", options={"bits": "exact"})
        )
        == -1
    )


def segment_of(x: NDArray[Any], form: str, **keywords: Any) -> NDArray[Any]:
    """Return the scan of a row, found among others or in a form of its own."""
    rng, n = np.random.default_rng(9), x.size
    others = rng.standard_normal((7, n)).astype(x.dtype)
    match form:
        case "row of a batch":
            others[3] = x
            rows: NDArray[Any] = tcusim.cumsum(others, axis=1, **asked(**keywords))
            row: NDArray[Any] = rows[3]
            return row
        case "column":
            others[5] = x
            return tcusim.cumsum(np.ascontiguousarray(others.T), axis=0, **asked(**keywords))[:, 5]
        case "by size":
            return tcusim.segmented_cumsum(np.concatenate([x, others[0]]), n, **asked(**keywords))[
                :n
            ]
        case "by offsets":
            long = np.concatenate([others[0], x, np.ones(5, x.dtype)])
            edges = [0, n, n, 2 * n, 2 * n + 3, long.size]
            return tcusim.segmented_cumsum(long, edges, **asked(**keywords))[n : 2 * n]
        case _:
            plan = tcusim.plan("cumsum", length=n, dtype=x.dtype, **asked(**keywords))
            return plan(x)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("length", [1, 31, 300, 2500])
def test_one_set_of_bits_in_every_form_on_every_architecture(length: int) -> None:
    x = anywhere("float16", length)
    x[~np.isfinite(x)] = 0
    forms = ["row of a batch", "column", "by size", "by offsets", "plan"]
    for order in ({}, {"exclusive": True}, {"reverse": True}):
        arches = itertools.cycle([*ARCHES, "turing", "ampere", "blackwell"])
        found = {
            bits(segment_of(x, form, bits="exact", arch=arch, **order))
            for form, arch in zip(forms, arches, strict=False)
        }
        assert len(found) == 1
    expected = bits(np.array(prefixes(x, "float16"), np.float16))
    assert bits(tcusim.cumsum(x, options={"bits": "exact"})) == expected
    # In any order, and in any split of exact sums.
    shuffled = np.random.default_rng(0).permutation(x)
    total = tcusim.sum(x, options={"bits": "exact"}, dtype="float64")
    assert tcusim.sum(shuffled, options={"bits": "exact"}, dtype="float64") == total


def test_initial_values_are_part_of_what_is_rounded() -> None:
    x = np.random.default_rng(6).standard_normal((2, 40)).astype(np.float16)
    for initial in (10, 0.1, 2.0**300, 2.0**-1074, -1e-30):
        for result in ("float16", "float32", "float64"):
            with np.errstate(over="ignore"):
                scan = tcusim.cumsum(
                    x, axis=1, initial=initial, dtype=result, options={"bits": "exact"}
                )
            for row, found in zip(x, scan, strict=True):
                values = np.concatenate([[initial], row.astype(np.float64)])
                assert found.tolist() == prefixes(values, result)[1:]
    given = np.array([0.5, np.inf, np.nan])
    y = np.array([1, 2, 3, -np.inf, 5, 6], np.float32)
    expected = [1.5, 3.5, np.inf, np.nan, np.nan, np.nan]
    found = tcusim.segmented_cumsum(y, 2, initial=given, options={"bits": "exact"})
    np.testing.assert_array_equal(found, np.array(expected, np.float32))
    # A scan in two pieces; float64 holds the total of the first.
    whole = tcusim.cumsum(x[0], dtype="float32", options={"bits": "exact"})
    before = tcusim.sum(x[0, :17], dtype="float64", options={"bits": "exact"})
    rest = tcusim.cumsum(x[0, 17:], dtype="float32", options={"bits": "exact"}, initial=before)
    assert bits(rest) == bits(whole[17:])


def test_what_rounds_on_the_way_is_refused() -> None:
    x = np.ones(300, np.float16)
    with pytest.raises(Unsupported, match="acc 'f16' rounds after every product"):
        tcusim.sum(x, options={"bits": "exact", "acc": "f16"})
    with pytest.raises(Unsupported, match=r"reduction_256n.*Leave algorithm out"):
        tcusim.sum(x, options={"bits": "exact", "algorithm": "reduction_256n"})
    with pytest.raises(InputError, match="dtype int64 would cut the fractions"):
        tcusim.sum(x, options={"bits": "exact"}, dtype="int64")
    with pytest.raises(UnknownName, match=r"unknown bits 'exakt'. Did you mean 'exact'\?"):
        UNTYPED.sum(x, options={"bits": "exakt"})
    with pytest.raises(InputError, match="bits must be a name, got 1"):
        UNTYPED.plan("sum", length=3, options={"bits": 1})
    assert tcusim.sum(x, options={"bits": "exact", "algorithm": "reduction_tn"}) == 300


# --- In pieces ------------------------------------------------------------------------------------


@st.composite
def cut_floats(draw: Any) -> tuple[NDArray[Any], list[int]]:
    """Return numbers, some of them infinite or NaN, and the edges of their segments."""
    name, length = draw(st.sampled_from([*FLOATS, "int8", "uint64"])), draw(st.integers(1, 80))
    seed = draw(st.integers(0, 2**32))
    if name not in FLOATS:
        ends = np.iinfo(name)
        rng = np.random.default_rng(seed)
        x = rng.integers(ends.min, ends.max, length, name, endpoint=True)
    else:
        x = anywhere(name, length, seed)
        if draw(st.booleans()):
            x = np.ldexp(x.astype(np.float64), -np.frexp(x.astype(np.float64))[1]).astype(x.dtype)
        special = [np.inf, -np.inf, np.nan, -0.0, 0.0]
        for place in draw(st.lists(st.integers(0, length - 1), max_size=2)):
            x[place] = draw(st.sampled_from(special))
    inner = sorted(draw(st.lists(st.integers(0, length), max_size=4)))
    return x, [0, *inner, length]


def exactly(values: list[float | int], name: str) -> float:
    """Return the sum, rounded once."""
    floats = [value for value in values if not isinstance(value, int)]
    special = [value for value in floats if not math.isfinite(value)]
    if special:
        return special[0] if len(set(special)) == 1 else math.nan
    return rounded(sum(map(Fraction, values), Fraction(0)), name)


@examples
@given(
    cut_floats(), st.sampled_from(list(FLOATS)), st.sampled_from(ARCHES),
    st.booleans(), st.booleans(),
    st.sampled_from([None, 0.1, -(2.0**-1074), 2.0**600, math.inf, -0.0]),
)  # fmt: skip
@small_pieces(reduction=2**7, scan=2**7, least=2**3, part=2**2)
def test_pieces_are_rounded_once(
    case: tuple[NDArray[Any], list[int]],
    result: str,
    arch: str,
    exclusive: bool,
    reverse: bool,
    initial: float | None,
) -> None:
    x, edges = case
    more: Any = {"dtype": TYPES[result], "arch": arch, "bits": "exact"}
    values = x.tolist() if x.dtype.kind in "biu" else [float(value) for value in x]
    rows = [values[begin:end] for begin, end in itertools.pairwise(edges)]
    first = [] if initial is None else [initial]
    expected: list[float] = []
    for row in rows:
        turned = first + (row[::-1] if reverse else row)
        steps = range(len(first), len(turned))
        found = [exactly(turned[: step + (not exclusive)], result) for step in steps]
        expected += found[::-1] if reverse else found
    with np.errstate(over="ignore", invalid="ignore"):
        total = tcusim.sum(x, **asked(**more))
        sums = tcusim.segmented_sum(x, edges, **asked(**more))
        scan = tcusim.segmented_cumsum(
            x, edges, exclusive=exclusive, reverse=reverse, initial=initial, **asked(**more)
        )
    np.testing.assert_array_equal(float(total), exactly(values, result))
    np.testing.assert_array_equal(sums.astype(float), [exactly(row, result) for row in rows])
    np.testing.assert_array_equal(scan.astype(float), expected)


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "name"), [("float16", "sum"), ("float32", "cumsum")])
def test_exact_sums_take_little_memory(dtype: str, name: str) -> None:
    """Beyond the input, once the programs are there."""
    x = np.random.default_rng(0).lognormal(0, 3, 2**22).clip(0, 6e4).astype(dtype)
    function = getattr(tcusim, name)
    function(x[: 2**19], options={"bits": "exact"}, dtype="float64")
    tracemalloc.start()
    try:
        result = function(x, options={"bits": "exact"}, dtype="float64")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - result.nbytes <= 4 * x.nbytes


@examples
@given(cut_floats(), st.sampled_from(list(FLOATS)))
def test_few_numbers_have_the_bits_of_launches(
    case: tuple[NDArray[Any], list[int]], result: str
) -> None:
    x, edges = case
    more: Any = {"dtype": TYPES[result], "bits": "exact"}
    with np.errstate(over="ignore", invalid="ignore"):
        for given_by, at_once in (
            ({"segments": edges}, tcusim.segmented_sum(x, edges, **asked(**more))),
            ({"segments": 1}, tcusim.segmented_sum(x, 1, **asked(**more))),
            ({"segments": x.size}, tcusim.segmented_sum(x, x.size, **asked(**more))),
        ):
            launched: Any = UNTYPED.segmented_sum(x, **given_by, **asked(backend="numpy", **more))
            assert bits(at_once) == bits(launched)


@pytest.mark.parametrize("dtype", ["uint64", "int64", "uint32"])
def test_integers_are_rounded_once_by_a_named_algorithm(dtype: str) -> None:
    rng, ends = np.random.default_rng(6), np.iinfo(dtype)
    for size in (1, 2, 3, 100, 2000):
        x = rng.integers(ends.min, ends.max, size, dtype, endpoint=True)
        for operation, expected in (("sum", sum(x.tolist())), ("cumsum", None)):
            named = {"algorithm": "reduction_tn" if operation == "sum" else "scan_panel"}
            found = getattr(tcusim, operation)(x, dtype="float64", options=named)
            if expected is None:
                running = itertools.accumulate(x.tolist())
                assert found.tolist() == [float(one) for one in running]
            else:
                assert float(found) == float(expected)
