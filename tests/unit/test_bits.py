"""A segment's bits are its own: they follow the grid of docs/bits.md, with anything around it."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tcusim
from asked import asked
from launch_plans import HALVES, IN_ROUNDS, drawn_tuning, launch_plan, product_plan
from segment_oracle import Oracle
from some import marked
from tcusim.algorithms.order import Order
from tcusim.arrays.report import Report
from tcusim.backends import get_backend

Array = NDArray[Any]

# More cases of each property than an ordinary run has: see tests/README.md.
CASES = int(os.environ.get("TCUSIM_BITS_CASES", "0"))
examples = settings(max_examples=CASES or 40, deadline=None, derandomize=not CASES, database=None)

ORDERS: tuple[dict[str, Any], ...] = tuple(
    {"exclusive": exclusive, "reverse": reverse}
    for exclusive, reverse in itertools.product((False, True), repeat=2)
)


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Return float64 numbers of both signs and many sizes: any other order rounds differently."""
    return rng.standard_normal(shape) * np.exp2(rng.integers(-8, 9, shape))


def bits(x: Any) -> bytes:
    return np.ascontiguousarray(x).tobytes()


# --- Against the oracle ---------------------------------------------------------------------------

# Around a tile, a row, a panel, a chunk and several chunks of 16 columns.
EDGES = (1, 16, 17, 31, 32, 33, 1024, 1025, 2049, 8192, 8193, 16_385)


def require_order(oracle: Oracle, segments: Array, **options: Any) -> None:
    """Compare the sums and scans of rows, by size and by offsets, with the oracle's."""
    count, length = segments.shape
    options |= {"arch": oracle.arch}
    flat = segments.reshape(-1)
    places = ({"segments": length}, {"segments": np.arange(count + 1) * length})
    total = [oracle.sum(x) for x in segments]
    for place in places:
        assert bits(tcusim.segmented_sum(flat, **place, **asked(**options))) == bits(total)
    for number, order in enumerate(ORDERS):
        scan = [oracle.scan(x, **order) for x in segments]
        # Two orders by size and by offsets; the others, of short segments, by size alone.
        for place in places[: 2 if number in (0, 3) else length < 2000]:
            assert bits(
                tcusim.segmented_cumsum(flat, **place, **order, **asked(**options))
            ) == bits(scan)


@pytest.mark.parametrize(
    ("length", "arch"), marked(list(itertools.product(EDGES, ("volta", "hopper", "ampere"))), 2)
)
def test_halves_follow_the_grid(arch: str, length: int) -> None:
    x = numbers(np.random.default_rng(length), 2, length).astype(np.float16)
    require_order(Oracle(arch), x, dtype=np.float32)


@pytest.mark.parametrize("length", [33, 2100])
@pytest.mark.parametrize(
    ("dtype", "oracle", "options"),
    [
        (ml_dtypes.bfloat16, Oracle(ab="bf16"), {"dtype": np.float32}),
        (np.float32, Oracle(ab="f32"), {}),
        (np.float32, Oracle(ab="f32"), {"arch": "volta"}),
        (np.float32, Oracle(ab="f32", k=8), {"tile": "16x8x8"}),
        (np.float64, Oracle(ab="f64", acc="f64", k=4), {}),
        (np.float64, Oracle("volta", ab="f32", acc="f64"), {}),
        (np.float64, Oracle("turing", ab="f32", acc="f64", k=4), {"tile": "8x8x4"}),
        (np.float16, Oracle(acc="f16"), {"acc": "f16"}),
        (np.float16, Oracle(), {"dtype": np.float32, "tile": "8x32x16"}),
        (np.float16, Oracle(), {"dtype": np.float32, "tile": "32x8x16"}),
    ],
)
def test_other_types_and_tiles_follow_the_grid(
    length: int, dtype: Any, oracle: Oracle, options: dict[str, Any]
) -> None:
    require_order(
        oracle, numbers(np.random.default_rng(length), 2, length).astype(dtype), **options
    )


# Groups have 512 chunks: of tiles with one column, 2**18 elements.
def test_several_groups_follow_the_grid() -> None:
    tcusim.register_shape(tcusim.MmaShape(16, 16, 1))
    oracle = Oracle("exact", k=1)
    x = numbers(np.random.default_rng(7), 2 * 2**18 + 700).astype(np.float16)
    given: dict[str, Any] = {"arch": "exact", "dtype": np.float32, "tile": "16x16x1"}
    by_size: dict[str, Any] = {"segments": x.size}
    for order, place in ((ORDERS[0], by_size), (ORDERS[3], {"segments": [0, x.size]})):
        options = {**given, **place}
        assert bits(tcusim.segmented_sum(x, **asked(**options))) == bits(oracle.sum(x))
        scan = tcusim.segmented_cumsum(x, **order, **asked(**options))
        assert bits(scan) == bits(oracle.scan(x, **order))


@pytest.mark.parametrize(
    ("chunks", "order"), [*itertools.product((40,), ORDERS), (600, ORDERS[0]), (600, ORDERS[3])]
)
def test_trees_in_rounds_follow_the_grid(chunks: int, order: dict[str, Any]) -> None:
    """A long segment among short ones: in one group, with a whole tree, and in several."""
    rng, shape = np.random.default_rng(chunks), tcusim.MmaShape(16, 16, 1)
    sizes = [3, 0, 512 * chunks + 7, 511, 1]
    edges = np.append(0, np.cumsum(sizes))
    x = numbers(rng, int(edges[-1])).astype(np.float16)
    plan = launch_plan(
        "scan", x.size, segments=len(sizes), tile=shape, arch="exact", order=Order(**order),
        tuning=IN_ROUNDS,
    )  # fmt: skip
    assert any(launch.program.name == "find_rounds" for launch in plan.launches)
    out = get_backend("numpy").run(plan, {"in": x, "offsets": edges}, arch="exact")["out"]
    oracle = Oracle("exact", k=1)
    for begin, end in itertools.pairwise(edges):
        assert bits(out[begin:end]) == bits(oracle.scan(x[begin:end], **order))


# --- Initial values -------------------------------------------------------------------------------

INITIAL: tuple[tuple[Any, Oracle, dict[str, Any]], ...] = (
    (np.float16, Oracle(), {"dtype": np.float32}),
    (ml_dtypes.bfloat16, Oracle(ab="bf16"), {"dtype": np.float32}),
    (np.float16, Oracle(acc="f16"), {"acc": "f16"}),
    (np.float32, Oracle(ab="f32"), {}),
    (np.float64, Oracle(ab="f64", acc="f64", k=4), {}),
    (np.float64, Oracle("volta", ab="f32", acc="f64"), {}),
)


def with_initial(
    x: Array, values: Array, lie: str, order: dict[str, Any], **options: Any
) -> tuple[Array, list[str]]:
    """Return the scans of rows with an initial value each, and the programs that made them."""
    report = Report()
    options |= {**order, "initial": values, "report": report}
    with np.errstate(all="ignore"):
        if lie == "rows":
            scan = tcusim.cumsum(x, axis=1, **asked(**options))
        elif lie == "offsets":
            edges = np.arange(len(x) + 1) * x.shape[1]
            scan = tcusim.segmented_cumsum(x.reshape(-1), edges, **asked(**options))
        else:
            scan = tcusim.segmented_cumsum(x.reshape(-1), x.shape[1], **asked(**options))
    return scan.reshape(x.shape), [one.name for one, _ in report.programs]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("kind", "length"), marked(list(itertools.product(range(len(INITIAL)), EDGES)), 11)
)
def test_an_initial_value_begins_the_running_sum(
    kind: int, length: int, order: dict[str, Any]
) -> None:
    """In one launch, in each way, and by offsets: the oracle's bits."""
    dtype, oracle, options = INITIAL[kind]
    rng = np.random.default_rng(length)
    x, values = numbers(rng, 2, length).astype(dtype), 50 * numbers(rng, 2)
    expected = [oracle.scan(row, initial=v, **order) for row, v in zip(x, values, strict=True)]
    options = {**options, "arch": oracle.arch}
    for lie in ("rows", "size", "offsets"):
        scan, names = with_initial(x, values, lie, order, **options)
        assert bits(scan) == bits(expected)
        assert (len(names) == 1 and "ragged" not in names[0]) == (lie != "offsets") or length <= 32
    chosen: dict[str, Any] = {"result": options.get("dtype"), "acc": options.get("acc", "f32")}
    chosen |= {"dtype": dtype, "arch": oracle.arch}
    problem = tcusim.plan("cumsum", length=length, initial=True, **asked(**chosen)).problem
    for name, warps in (("scan_panel", 1), ("scan_single_pass", 8)):
        common: dict[str, Any] = {"masked": True, "combine": "add", "carry": True, "warps": warps}
        types = {one: getattr(problem.types, one) for one in ("ab", "acc", "source", "result")}
        program = tcusim.build(
            name, tile=problem.tile, segment_size=length, **types, **common, **order
        )
        given = {"in": x.reshape(-1), "carry": values.astype(expected[0].dtype)}
        scan = tcusim.run(program, given, arch=oracle.arch)["out"]
        assert bits(scan) == bits(np.array(expected).astype(scan.dtype))


@pytest.mark.parametrize("order", ORDERS)
def test_initial_values_that_are_not_finite(order: dict[str, Any]) -> None:
    """They and elements that are not reach their own results alone, however segments lie."""
    rng = np.random.default_rng(3)
    values = np.array([np.inf, -np.inf, np.nan, -0.0, 1.5, np.inf])
    for dtype, length in itertools.product((np.float16, np.float32), (20, 700, 2100)):
        x = numbers(rng, values.size, length).astype(dtype)
        x[4] = np.where(rng.random(length) < 0.01, rng.choice([np.inf, np.nan, -0.0], length), x[4])
        x[3], x[5, length // 2] = -0.0, -np.inf
        made = [with_initial(x, values, lie, order)[0] for lie in ("rows", "size", "offsets")]
        assert bits(made[0]) == bits(made[1]) == bits(made[2])
        assert not np.isfinite(made[0][:3]).any()
        assert not np.signbit(made[0][3]).any()
        assert np.isinf(made[0][5, 0 if not order["reverse"] else -1])


@pytest.mark.parametrize("order", ORDERS[:: len(ORDERS) - 1])
def test_initial_values_of_segments_of_several_groups(order: dict[str, Any]) -> None:
    tcusim.register_shape(tcusim.MmaShape(16, 16, 1))
    oracle, rng = Oracle(ab="f32", k=1), np.random.default_rng(9)
    x, values = numbers(rng, 2, 2**18 + 700).astype(np.float32), 1e3 * numbers(rng, 2)
    expected = [oracle.scan(row, initial=v, **order) for row, v in zip(x, values, strict=True)]
    scan, names = with_initial(x, values, "size", order, tile="16x16x1")
    assert (bits(scan), names) == (bits(expected), ["scan_single_pass"])
    alone = tcusim.cumsum(x[1], initial=values[1], options={"tile": "16x16x1"}, **order)
    assert bits(alone) == bits(expected[1])


# --- Alone and in company -------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A type of elements, and how they are computed."""

    dtype: str
    options: tuple[tuple[str, Any], ...] = ()
    archs: tuple[str, ...] = ("volta", "ampere", "hopper")

    def numbers(self, rng: np.random.Generator, size: int) -> Array:
        """Return elements that any other order rounds differently."""
        if self.dtype == "bool":
            return rng.integers(0, 2, size).astype(bool)
        if self.dtype.lstrip("u").startswith("int"):
            limits = np.iinfo(self.dtype)
            return rng.integers(limits.min, limits.max, size, self.dtype, endpoint=True)
        return numbers(rng, size).astype(self.dtype)

    def neighbours(self, rng: np.random.Generator, size: int, what: str) -> Array:
        """Return elements that would show if anything of them reached another segment."""
        x = self.numbers(rng, size)
        if x.dtype.kind in "biu" or what == "alike":
            return x
        if what == "zeros":
            return np.zeros_like(x)
        finfo: Any = ml_dtypes.finfo
        largest = float(finfo(x.dtype).max)
        values = {"huge": [largest, -largest], "not finite": [np.inf, -np.inf, np.nan]}[what]
        return np.where(rng.random(size) < 0.1, rng.choice(values, size), x).astype(x.dtype)


AMPERE = ("ampere", "hopper")
TINY = Kind("float16", (("dtype", "float32"), ("tile", "4x2x3")))
KINDS = (
    Kind("float16"),
    Kind("float16", (("dtype", "float32"),)),
    Kind("float16", (("dtype", "float32"), ("tile", "8x32x16"))),
    Kind("float16", (("dtype", "float32"), ("tile", "32x8x16"))),
    TINY,
    Kind("float16", (("acc", "f16"),)),
    Kind("bfloat16", (("dtype", "float32"),), AMPERE),
    Kind("float32"),
    Kind("float32", (("dtype", "float64"),)),
    Kind("float64"),
    Kind("int8"),
    Kind("uint8", (("dtype", "float32"),)),
    Kind("int64"),
    Kind("bool"),
)
SEGMENTS = ("size", "offsets", "ids", "size of columns", "offsets of columns")
NEIGHBOURS = ("alike", "zeros", "huge", "not finite")
LENGTHS = st.one_of(st.integers(1, 70), st.integers(1, 1100), st.sampled_from(EDGES[:-1]))
COUNTS = (1, 2, 7, 16, 33)


@dataclass(frozen=True)
class Company:
    """A segment among others: rows of an array, or segments of one size, by offsets or by ids.

    lengths: of all segments. number: the segment looked at. neighbours: the contents of the others.
    """

    kind: Kind
    form: str
    lengths: tuple[int, ...]
    number: int
    neighbours: str
    seed: int

    def array(self) -> tuple[Array, Array, dict[str, Any], tuple[Any, Any]]:
        """Return the segment, all of them, their place, and where the one's results are."""
        rng = np.random.default_rng(self.seed)
        edges = np.cumsum([0, *self.lengths])
        own = slice(edges[self.number], edges[self.number + 1])
        x = self.kind.numbers(rng, own.stop - own.start)
        a = self.kind.neighbours(rng, int(edges[-1]), self.neighbours)
        a[own] = x
        if self.form in SEGMENTS:
            places: dict[str, dict[str, Any]] = {
                "offsets": {"segments": edges},
                "size": {"segments": x.size},
                "ids": {
                    "segments": tcusim.Segments(
                        ids=np.repeat(np.arange(len(self.lengths)), self.lengths)
                    )
                },
            }
            place = places[self.form.removesuffix(" of columns")]
            if self.form.endswith("columns"):
                both = np.stack([a, a[::-1]], axis=1)
                return x, both, {**place, "axis": 0}, ((self.number, 0), (own, 0))
            return x, a, place, (self.number, own)
        a, number = a.reshape(-1, x.size), self.number
        if self.form == "rows":
            return x, a, {"axis": 1}, (number, number)
        if self.form == "columns":
            return x, a.T, {"axis": 0}, (number, (slice(None), number))
        a = np.stack([a, a[::-1]], axis=2)
        return x, a, {"axis": 1}, ((number, 0), (number, slice(None), 0))


@st.composite
def companies(draw: st.DrawFn) -> Company:
    form = draw(st.sampled_from([*SEGMENTS, "rows", "columns", "middle"]))
    length = draw(LENGTHS)
    if form.startswith(("offsets", "ids")):
        others = draw(st.lists(st.one_of(st.integers(0, 40), st.integers(0, 600)), max_size=9))
        number = draw(st.integers(0, len(others)))
        lengths = (*others[:number], length, *others[number:])
    else:
        count = min(draw(st.sampled_from(COUNTS)), 1 + 20_000 // length)
        number = draw(st.integers(0, count - 1))
        lengths = (length,) * count
        if form.startswith("size"):
            lengths += (draw(st.integers(0, length - 1)),)
    kind, neighbours = draw(st.sampled_from(KINDS)), draw(st.sampled_from(NEIGHBOURS))
    return Company(kind, form, lengths, number, neighbours, draw(st.integers(0, 2**32 - 1)))


def require_own_bits(company: Company, arch: str, order: dict[str, Any], **options: Any) -> None:
    """Compare the results of a segment in company with those of the segment alone."""
    x, a, place, (at, elements) = company.array()
    options |= {**dict(company.kind.options), "arch": arch}
    whole = company.form not in SEGMENTS
    total: Any = tcusim.sum if whole else tcusim.segmented_sum
    scan: Any = tcusim.cumsum if whole else tcusim.segmented_cumsum
    with np.errstate(all="ignore"):
        assert bits(total(a, **place, **asked(**options))[at]) == bits(
            tcusim.sum(x, **asked(**options))
        )
        together = scan(a, **place, **order, **asked(**options))[elements]
        assert bits(together) == bits(tcusim.cumsum(x, **order, **asked(**options)))


@examples
@given(companies(), st.sampled_from(ORDERS), st.data())
def test_alone_and_in_company(company: Company, order: Any, data: st.DataObject) -> None:
    tcusim.register_shape(tcusim.MmaShape(4, 2, 3))
    require_own_bits(company, data.draw(st.sampled_from(company.kind.archs)), order)


@pytest.mark.parametrize("form", ["size", "offsets"])
def test_float32_on_volta_is_scaled_by_its_own_segment(form: str) -> None:
    company = Company(Kind("float32"), form, (300, 300, 7), 0, "huge", seed=1)
    require_own_bits(company, "volta", ORDERS[0])


@settings(examples, max_examples=CASES // 20 or 3)
@given(st.integers(1, 8192), st.sampled_from(ORDERS), st.integers(0, 2**32 - 1))
def test_one_set_of_bits_in_batches_of_any_size(length: int, order: Any, seed: int) -> None:
    for count in (1, 2, 7, 16, 33, min(300, 2**19 // length)):
        company = Company(Kind("float16"), "rows", (length,) * count, 0, "alike", seed)
        require_own_bits(company, "hopper", order, dtype=np.float32)


@settings(examples, max_examples=CASES // 4 or 20)
@given(
    st.sampled_from(["reduction", "scan"]),
    st.sampled_from(ORDERS),
    st.one_of(LENGTHS, st.integers(1, 30_000)),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_whatever_the_numbers_by_which_plans_choose(
    kind: str, order: dict[str, Any], length: int, ragged: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tuning = drawn_tuning(rng)
    x = numbers(rng, int(rng.integers(1, 4)) * length + int(rng.integers(0, length))).astype("f2")
    edges = np.append(np.arange(0, x.size, length), x.size)
    plan = launch_plan(
        kind, x.size, arch="hopper", order=Order(**order) if kind == "scan" else Order(),
        tuning=tuning, **{"segments": edges.size - 1} if ragged else {"size": length},
    )  # fmt: skip
    arrays = {"in": x} | ({"offsets": edges} if ragged else {})
    out = get_backend("numpy").run(plan, arrays, arch="hopper")["out"]
    for number, (begin, end) in enumerate(itertools.pairwise(edges)):
        if kind == "scan":
            assert bits(out[begin:end]) == bits(Oracle().scan(x[begin:end], **order))
        else:
            assert out[number] == Oracle().sum(x[begin:end])


# The types of launches, and of the elements of their arrays.
TYPES: dict[str, tuple[tuple[str, ...], str]] = {
    "f16": (HALVES, "f2"),
    "f32": (("f32", "f32", "f32", "f32"), "f4"),
    "f32 in parts": (("bf16", "f32", "f32", "f32"), "f4"),
    "f64": (("f16", "f64", "f16", "f64"), "f2"),
    "s8": (("s8", "s32", "s8", "s32"), "i1"),
}


def drawn_for(rng: np.random.Generator, count: int, name: str) -> Array:
    return numbers(rng, count).clip(-100, 100).astype(TYPES[name][1])


@pytest.mark.parametrize("name", [name for name in TYPES if name != "f32 in parts"])
def test_no_number_of_a_tuning_decides_a_bit_of_a_sum_or_a_scan(name: str) -> None:
    for seed in range(CASES or 3):
        rng = np.random.default_rng([seed, *name.encode()])
        size = int(2 ** rng.uniform(0, 15))
        count, rest = rng.integers(1, max(2, 30_000 // size)), rng.integers(0, size)
        x = drawn_for(rng, size * int(count) + int(rest), name)
        edges = np.append(np.arange(0, x.size, size), x.size)
        by_offsets = bool(rng.integers(2))
        options: dict[str, Any] = {"types": TYPES[name][0], "arch": "hopper"}
        options |= {"segments": edges.size - 1} if by_offsets else {"size": size}
        kind = "reduction"
        if rng.integers(2):
            kind, options["order"] = "scan", Order(**ORDERS[int(rng.integers(4))])
        arrays = {"in": x, "offsets": edges} if by_offsets else {"in": x}
        usual, other = (
            get_backend("numpy").run(launch_plan(kind, x.size, tuning=one, **options), arrays)
            for one in (None, drawn_tuning(rng))
        )
        assert bits(usual["out"]) == bits(other["out"]), (seed, kind, size, options)


@pytest.mark.parametrize(("name", "longest"), [("f16", 2048), ("f32 in parts", 256)])
def test_no_number_of_a_tuning_decides_a_bit_of_a_product(name: str, longest: int) -> None:
    for seed in range(CASES or 2):
        rng = np.random.default_rng([seed, *name.encode()])
        rows, inner = int(rng.integers(1, 60)), int(longest ** rng.uniform(0, 1))
        cols = int(rng.integers(1, 40)) if rng.integers(2) else None
        arrays = {"in": drawn_for(rng, rows * inner, name)}
        arrays["b" if cols else "x"] = drawn_for(rng, inner * (cols or 1), name)
        usual, other = (
            get_backend("numpy").run(
                product_plan(rows, inner, cols, types=TYPES[name][0], tuning=one), arrays
            )
            for one in (None, drawn_tuning(rng))
        )
        assert bits(usual["out"]) == bits(other["out"]), (seed, rows, inner, cols)


# Products of integers are exact: the narrow ones will do.
FACTORS = tuple(kind for kind in KINDS if kind.dtype not in ("int64", "bool") and kind != TINY)


@settings(examples, max_examples=CASES // 5 or 10)
@given(
    st.sampled_from(FACTORS),
    st.integers(1, 60),
    st.one_of(st.integers(1, 70), st.integers(1, 400)),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_a_row_of_a_product_and_the_other_rows(
    kind: Kind, rows: int, inner: int, cols: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    what = data.draw(st.sampled_from(NEIGHBOURS))
    first = data.draw(st.integers(0, rows - 1))
    some = slice(first, data.draw(st.integers(first + 1, rows)))
    a = kind.neighbours(rng, rows * inner, what).reshape(rows, inner)
    b = kind.numbers(rng, inner * cols).reshape(inner, cols)
    a[some] = kind.numbers(rng, a[some].size).reshape(-1, inner)
    options = {**dict(kind.options), "arch": data.draw(st.sampled_from(kind.archs))}
    with np.errstate(all="ignore"):
        whole = tcusim.matmul(a, b, **asked(**options))
        assert bits(whole[some]) == bits(tcusim.matmul(a[some], b, **asked(**options)))
        whole = tcusim.matvec(a, b[:, 0], **asked(**options))
        assert bits(whole[some]) == bits(tcusim.matvec(a[some], b[:, 0], **asked(**options)))


@pytest.mark.parametrize(("dtype", "inner"), [("float16", 300), ("float64", 63)])
def test_a_row_of_a_matrix_of_many_rows_times_a_vector(dtype: str, inner: int) -> None:
    rng = np.random.default_rng(inner)
    a, x = numbers(rng, 2**14 + 3, inner).astype(dtype), numbers(rng, inner).astype(dtype)
    options: dict[str, Any] = {"dtype": np.float64 if dtype == "float64" else np.float32}
    some = tcusim.matvec(a[5:22], x, **options)
    assert bits(tcusim.matvec(a, x, **options)[5:22]) == bits(some)
