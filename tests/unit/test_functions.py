"""sum, cumsum, segmented_sum and segmented_cumsum of arrays: NumPy's results on exact integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcusim
from numpy_results import Array, assert_equal, by_segments, halves, prefixes, suffixes, sums
from tcusim.algorithms import segmented_algorithms
from tcusim.arrays.report import Report
from tcusim.errors import InputError

# Shorter arrays of every type, shape and layout are drawn in tests/agree/test_drawn_calls.py.
# --- Long segments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "size"),
    [
        (2**14, 2**14),
        (2**14 + 1, 2**14 + 1),
        (50_001, 50_001),
        (40_000, 2**15),
        (2 * 2**15 + 10_925, 2**15 + 5),
        (7 * 2**14, 3 * 2**14),
    ],
)
def test_long_segments_are_split_into_chunks(length: int, size: int) -> None:
    x = halves(length, length)
    offsets = np.array([*range(0, length, size), length])
    assert_equal(tcusim.segmented_sum(x, size, dtype=np.float32), by_segments(x, size, sums))
    require_scans(x, size, offsets)


@pytest.mark.parametrize(
    "lengths", [[1] * 100, [20_000, 1, 0, 3], [3, 0, 40_000], [2**14, 2**14 + 1, 1]]
)
def test_offsets_of_empty_tiny_and_giant_segments(lengths: list[int]) -> None:
    offsets = np.cumsum([0, *lengths])
    x = halves(1, int(offsets[-1]))
    expected = [x[low:high].sum(dtype=np.float64) for low, high in itertools.pairwise(offsets)]
    assert_equal(tcusim.segmented_sum(x, offsets, dtype=np.float32), expected)
    require_scans(x, offsets, offsets)


def require_scans(x: Array, segments: Any, offsets: Array) -> None:
    """Compare the scans of segments, in every order, with NumPy's."""
    for reverse, sums_of in ((False, prefixes), (True, suffixes)):
        parts = [sums_of(x[low:high]) for low, high in itertools.pairwise(offsets)]
        for exclusive in (False, True):
            scan = tcusim.segmented_cumsum(
                x, segments, exclusive=exclusive, reverse=reverse, dtype=np.float32
            )
            assert_equal(scan, np.concatenate(parts) - exclusive * x)


def test_a_nan_spoils_the_rest_of_a_long_scan_only() -> None:
    x = halves(10, 40_000)
    expected = prefixes(x)
    x[30_000] = np.nan
    expected[30_000:] = np.nan
    np.testing.assert_array_equal(tcusim.cumsum(x, dtype=np.float32), expected)


def test_several_segments_of_more_than_a_group() -> None:
    # A group of a tile with one column.
    size = 2**18 + 500
    x = np.random.default_rng(5).standard_normal(size + 300)
    order: dict[str, Any] = {"reverse": True, "include_initial": True}
    order["options"] = {"tile": "8x8x1"}
    scan = tcusim.segmented_cumsum(x, size, **order)
    np.testing.assert_array_equal(scan[: size + 1], tcusim.cumsum(x[:size], **order))
    np.testing.assert_array_equal(scan[size + 1 :], tcusim.cumsum(x[size:], **order))
    plan = tcusim.plan("segmented_cumsum", length=x.size, segments=size, dtype="float64", **order)
    np.testing.assert_array_equal(plan(x), scan)
    with pytest.raises(InputError, match="takes no segments"):
        plan(x, segments=[0, size, x.size])


# --- Infinities and NaN -------------------------------------------------------------------------


def test_infinities_of_both_signs_make_nan_from_there_on() -> None:
    x = np.array([1, np.inf, 2, -np.inf, 3], np.float16)
    np.testing.assert_array_equal(tcusim.cumsum(x), [1, np.inf, np.inf, np.nan, np.nan])
    assert np.isnan(tcusim.sum(x))
    np.testing.assert_array_equal(tcusim.segmented_sum(x, 2), [np.inf, -np.inf, 3])
    exclusive = tcusim.segmented_cumsum(x, 5, exclusive=True)
    np.testing.assert_array_equal(exclusive, [0, 1, np.inf, np.inf, np.nan])
    backward = tcusim.cumsum(x[1:], reverse=True)
    np.testing.assert_array_equal(backward, [np.nan, -np.inf, -np.inf, 3])
    both = tcusim.segmented_cumsum(x, 3, exclusive=True, reverse=True)
    np.testing.assert_array_equal(both, [np.inf, 2, 0, 3, 0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_is_not_finite_meets_an_initial_value(dtype: Any) -> None:
    rows = np.array([*itertools.product([1, np.inf, -np.inf, np.nan], repeat=3)], dtype)
    with np.errstate(invalid="ignore"):
        expected = np.cumsum(rows, axis=1)[:, 1:]
        found = tcusim.segmented_cumsum(rows[:, 1:].ravel(), 2, initial=rows[:, 0], dtype=dtype)
    np.testing.assert_array_equal(found, expected.ravel())


# --- Keywords -----------------------------------------------------------------------------------


@pytest.mark.parametrize("paper", [False, True])
def test_every_algorithm_can_be_named(paper: bool) -> None:
    for row in segmented_algorithms():
        name = row.alias if paper else row.name
        if not name:
            continue
        x = np.random.default_rng(0).integers(-2, 3, 500).astype(np.float16)
        if row.kind == "reduction":
            result = tcusim.segmented_sum(x, 16, options={"algorithm": name})
            expected = by_segments(x, 16, sums)
        else:
            result = tcusim.segmented_cumsum(x, 16, options={"algorithm": name})
            expected = by_segments(x, 16, prefixes)
        assert_equal(result, expected)


def test_a_paper_name_rounds_partial_sums_as_printed() -> None:
    x = np.zeros(256, np.float16)
    x[:3] = 2048, 1, 2
    literal = build_run("reduction_256", x)
    assert (
        tcusim.segmented_sum(x, 256, options={"algorithm": "reduction_256"}, dtype=np.float32)
        == literal
    )
    assert literal == 2052
    assert (
        tcusim.segmented_sum(x, 256, options={"algorithm": "reduction_t"}, dtype=np.float32) == 2051
    )


def build_run(name: str, x: Array) -> float:
    return float(tcusim.run(tcusim.build(name), {"in": x})["out"][0])


def test_a_float16_accumulator_rounds_and_a_float32_one_does_not() -> None:
    x = np.ones(4096, np.float16)
    x[1::2] = 2**-11
    assert tcusim.sum(x, dtype=np.float32) == 2049
    assert tcusim.sum(x, dtype=np.float32, options={"acc": "f16"}) == 2048


def test_a_report_tells_programs_and_counts() -> None:
    report = Report()
    x = halves(13, 1024)
    tcusim.segmented_sum(x, 256, options={"report": report})
    assert report.launches == 1
    ((program, scalars),) = report.programs
    assert program.name == "reduction_panel"
    assert scalars == {"length": 1024}
    # The row sums are added up, not multiplied again.
    assert report.mma == 4
    assert report.bytes_read == 2 * 1024
    assert report.bytes_written == 2 * 4
    tcusim.cumsum(halves(14, 40_000), options={"report": report})
    assert [program.name for program, _ in report.programs[1:]] == ["scan_single_pass"]


def test_progress_goes_up_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    tcusim.segmented_cumsum(
        halves(15, 2**15), 16, options={"progress": lambda *now: seen.append(now)}
    )
    done = [now for now, _ in seen]
    assert done == sorted(done)
    assert len({total for _, total in seen}) == 1
    assert 0 < done[-1] <= seen[-1][1]


# --- As NumPy is called ---------------------------------------------------------------------------


def test_arguments_by_their_place_are_numpy_s() -> None:
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    untyped: Any = tcusim
    for name in ("sum", "cumsum"):
        own, numpy = getattr(untyped, name), getattr(np, name)
        np.testing.assert_array_equal(own(x, 1), numpy(x, 1))
        assert own(x, 1, "int16").dtype == np.int16
        out = np.empty_like(numpy(x, 0, np.float32))
        assert own(x, 0, np.float32, out) is out
        np.testing.assert_array_equal(out, numpy(x, 0, np.float32))


def test_scalars_have_numpy_s_types() -> None:
    total = tcusim.sum(np.float16(3))
    assert isinstance(total, np.float16)
    assert total == 3
    assert isinstance(tcusim.sum([1, 2, 3]), np.int64)
    assert tcusim.cumsum(np.float32(3)).tolist() == [3]
    assert tcusim.cumulative_sum([1, 2], include_initial=True).tolist() == [0, 1, 3]


def test_types_by_the_names_of_the_tables() -> None:
    x = np.ones(3, np.float32)
    for name, dtype in (("f16", "float16"), ("f64", "float64"), ("bf16", "bfloat16")):
        assert tcusim.sum(x, dtype=name).dtype.name == dtype
    assert tcusim.plan("sum", length=3, dtype="s8").dtype == "int8"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: tcusim.sum(np.zeros(3, [("x", "f4"), ("y", "i4")])),
            "a holds records; take one of their fields, for example a['x']",
        ),
        (
            lambda: tcusim.cumsum(np.arange(3), initial=2**70),
            "initial holds 1180591620717411303424, and the type of the result, int64",
        ),
        (
            lambda: tcusim.cumsum(np.arange(3), initial=-(2**63) - 1),
            "-9223372036854775808 to 9223372036854775807. Give an initial within that range, or",
        ),
        (
            lambda: tcusim.cumsum(np.arange(3), initial=2**99999),
            "initial holds an integer of 100000 bits, and the type of",
        ),
        (
            lambda: tcusim.segmented_cumsum(np.ones(3, np.uint8), 1, initial=np.array([1, -1, 2])),
            "initial holds -1, and the type of the result, uint64, integers from 0 to",
        ),
        (
            lambda: tcusim.cumsum(np.ones(3, np.int8), dtype="int8", initial=300),
            "initial holds 300, and the type of the result, int8, integers from -128 to 127",
        ),
        (
            lambda: tcusim.cumsum(np.ones(8, bool), out=np.zeros(8, np.uint32)),
            "out must be an array of int64, shape (8,); got uint32, (8,). Give such an array, or "
            "dtype=out.dtype",
        ),
        (
            lambda: (lambda x: tcusim.sum(x, axis=0, out=x[0]))(np.ones((2, 3), np.float32)),
            "out overlaps a in memory. Give an array of its own.",
        ),
        (
            lambda: tcusim.cumsum(np.ones(300, np.float32), options={"algorithm": "scan_256n"}),
            "Take algorithm 'scan_tn', which adds them, or leave algorithm out",
        ),
        (
            lambda: tcusim.sum(np.ones(4, np.float16), where=np.ones(4, int)),
            "where must be of bool, got int64",
        ),
        (
            lambda: tcusim.sum(np.ones((3, 50), np.float16), where=np.ones(7, bool)),
            "where must have the shape (3, 50), or be broadcast",
        ),
        (
            lambda: tcusim.sum(np.ones(4, np.float16), options={"report": 3}),
            "report must be a tcusim.arrays.report.Report, ",
        ),
        (
            lambda: tcusim.cumulative_sum(np.ones((2, 3), np.float32)),
            "cumulative_sum needs an axis for an array of 2 axes",
        ),
    ],
)
def test_advice_can_be_followed(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert text in str(caught.value)


def test_an_initial_value_of_64_bits_is_numpy_s() -> None:
    for x, initial in (
        (np.arange(3), 2**63 - 1),
        (np.arange(3, dtype=np.uint8), 2**64 - 1),
        (np.arange(3), -1),
        (np.arange(3), np.uint64(7)),
    ):
        kind = x.sum().dtype
        before = np.array([initial], kind)
        expected = np.cumsum(np.concatenate([before, x.astype(kind)]))[1:]
        np.testing.assert_array_equal(tcusim.cumsum(x, initial=initial), expected)


def test_an_overflow_warns_at_the_caller_s_line() -> None:
    x = np.full(10, 60000, np.float16)
    for call, name in (
        (lambda: tcusim.sum(x), "sum"),
        (lambda: tcusim.cumulative_sum(x), "cumsum"),
        (lambda: tcusim.matmul(x[None], x[:, None]), "matmul"),
        (lambda: tcusim.plan("sum", length=10)(x), "sum"),
    ):
        text = f"overflow encountered in tcusim.{name}: beyond the range of float16"
        with pytest.warns(RuntimeWarning, match=text) as caught:
            call()
        assert [one.filename for one in caught] == [__file__]
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match=text):
            call()
    # The infinity of an element is no overflow.
    x[3] = np.inf
    assert tcusim.sum(x) == np.inf
