"""Segments by offsets, of NumPy arrays: every type and order against exact sums, and plans."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from numpy_results import assert_equal, halves
from tcusim.arrays.report import Report
from tcusim.errors import InputError, Unsupported

Array = NDArray[Any]
Ints = NDArray[np.int64]


def drawn(seed: int, giant: int = 3000) -> tuple[Ints, np.random.Generator]:
    """Return offsets of empty, tiny and medium segments in any order, and one giant."""
    rng = np.random.default_rng(seed)
    lengths = [0, giant, 0, 0, *rng.integers(0, 4, 60), *rng.integers(20, 90, 8)]
    return np.concatenate([[0], np.cumsum(rng.permutation(lengths))]), rng


def sums(x: Array, offsets: Ints, dtype: Any) -> Array:
    return np.array([x[a:b].sum(dtype=dtype) for a, b in itertools.pairwise(offsets)], dtype)


def scan(x: Array, offsets: Ints, dtype: Any, *, exclusive: bool, reverse: bool) -> Array:
    """Scan segment by segment, each element summed with those before or after it."""
    result = np.zeros(x.size, dtype)
    for a, b in itertools.pairwise(offsets):
        for i in range(a, b):
            first, last = (i + exclusive, b) if reverse else (a, i + (not exclusive))
            result[i] = x[first:last].sum(dtype=dtype)
    return result


def test_rows_take_the_launches_of_one() -> None:
    offsets, rng = drawn(5)
    x = rng.integers(-9, 9, (7, offsets[-1])).astype(np.float16)
    one, seven = Report(), Report()
    tcusim.segmented_cumsum(x[0], offsets, options={"report": one})
    tcusim.segmented_cumsum(x, offsets, options={"report": seven})
    assert one.launches == seven.launches > 1
    assert [program.name for program, _ in one.programs] == [
        program.name for program, _ in seven.programs
    ]


def test_progress_of_every_launch() -> None:
    offsets, _ = drawn(7)
    seen: list[tuple[int, int]] = []
    tcusim.segmented_sum(
        np.ones(offsets[-1], np.float16),
        offsets,
        options={"progress": lambda done, most: seen.append((done, most))},
    )
    assert all(0 < done <= most for done, most in seen)
    assert sum(done == most for done, most in seen) >= 2


def test_float16_accumulators_round_as_the_paper_has_it() -> None:
    offsets = np.array([0, 5000, 5000, 5016])
    x = np.ones(5016, np.float16)
    assert tcusim.segmented_sum(x, offsets).tolist() == [5000, 0, 16]
    literal = tcusim.segmented_sum(x, offsets, options={"acc": "f16"})
    assert literal.dtype == np.float16
    assert literal[1:].tolist() == [0, 16]
    # Volta's sums of halves stop growing at 2048, where one is half of the last bit.
    report = Report()
    x[:] = 1 / 2048
    x[0] = 2048
    tcusim.segmented_sum(x, offsets, options={"acc": "f16", "report": report})
    assert {program.acc for program, _ in report.programs} == {"f16"}
    rounded = tcusim.segmented_sum(x, offsets, options={"acc": "f16"}, dtype="float32")
    exact = tcusim.segmented_sum(x, offsets, dtype="float32")
    assert exact[0] == 2048 + 4999 / 2048
    assert rounded[0] != exact[0]


def test_no_algorithm_is_named_with_offsets() -> None:
    x, text = np.ones(8, np.float16), (
        "algorithm 'reduction_tn' goes with segments of one size; those by offsets have launches "
        "of their own. Leave algorithm out"
    )  # fmt: skip
    for name in ("segmented_sum", "segmented_cumsum"):
        with pytest.raises(Unsupported, match=re.escape(text)):
            getattr(tcusim, name)(x, [0, 8], options={"algorithm": "reduction_tn"})
    with pytest.raises(Unsupported, match=re.escape(text)):
        tcusim.plan(
            "segmented_sum",
            length=8,
            segments=tcusim.Segments(count=1),
            options={"algorithm": "reduction_tn"},
        )


# --- Plans ----------------------------------------------------------------------------------------


def test_a_plan_takes_any_offsets() -> None:
    rng = np.random.default_rng(9)
    x = rng.integers(-9, 9, 5000).astype(np.float32)
    for operation in ("segmented_sum", "segmented_cumsum"):
        made = tcusim.plan(
            operation, length=5000, segments=tcusim.Segments(count=12), dtype="float32"
        )
        for _ in range(3):
            offsets = np.sort([0, *rng.integers(0, 5001, 11), 5000])
            expected = getattr(tcusim, operation)(x, offsets)
            out = np.empty_like(expected)
            assert made(x, out, segments=list(offsets)) is out
            np.testing.assert_array_equal(out, expected)
    assert made(x.reshape(50, 100), segments=offsets).shape == (50, 100)
    turned = tcusim.plan(
        "segmented_cumsum",
        length=5000,
        segments=tcusim.Segments(count=12),
        dtype="float32",
        exclusive=True,
        reverse=True,
    )
    expected = scan(x, offsets, np.float32, exclusive=True, reverse=True)
    np.testing.assert_array_equal(turned(x, segments=offsets), expected)


def test_the_longest_segment_saves_launches() -> None:
    made = tcusim.plan(
        "segmented_sum", length=5000, segments=tcusim.Segments(count=400, longest=30)
    )
    assert [launch.program.name for launch in made.launches] == ["reduction_ragged"]
    lengths = np.full(400, 12)
    lengths[:200] += 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    assert made(np.ones(5000, np.float16), segments=offsets).tolist() == lengths.tolist()
    offsets[1:4] = 39
    with pytest.raises(InputError) as caught:
        made(np.ones(5000, np.float16), segments=offsets)
    assert str(caught.value) == (
        "segment 0 has 39 elements, but longest is 32: give a greater one, or leave it out"
    )


def test_a_plan_prints_everything() -> None:
    text = str(
        tcusim.plan(
            "segmented_cumsum", length=10**6, segments=tcusim.Segments(count=1000), reverse=True
        )
    )
    for line in (
        "problem   1000000 float16 in 1000 segments by offsets to float16, reverse\n",
        "offsets   s64 x 1001, 8008 bytes\n",
        "launch 1  reduction_ragged: in, offsets -> sums; ",
        "launch 7  scan_ragged: in, offsets, carries3 -> out; ",
        "why       segments by offsets are cut into rows of 32 elements, so that all warps have "
        "equal work\n",
        "a segment may have all 1000000 elements: the rows' sums are combined by rounded "
        "additions, level by level",
    ):
        assert line in text
    short = tcusim.plan(
        "segmented_sum", length=10**6, segments=tcusim.Segments(count=10**5, longest=20)
    )
    assert repr(short) == (
        "Plan('segmented_sum', 1000000 float16 in 100000 segments by offsets, of up to 32 elements "
        "to float16: reduction_ragged)"
    )
    assert "no segment has more than 32 elements: each is a row" in str(short)


def test_what_a_plan_keeps_is_between_its_arguments_and_its_result() -> None:
    made = tcusim.plan("segmented_cumsum", length=10**6, segments=tcusim.Segments(count=1000))
    assert [array.name for array in made.temporaries] == [
        "sums", "sums2", "sums3", "carries", "carries2", "carries3",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("longest", [None, 40, 5000])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_by_offsets_work_in_place(dtype: str, longest: int | None, reverse: bool) -> None:
    made = tcusim.plan(
        "segmented_cumsum",
        length=20_000,
        segments=tcusim.Segments(count=700, longest=longest),
        dtype=dtype,
        reverse=reverse,
        exclusive=reverse,
    )
    assert made.why_not_in_place is None
    wide = tcusim.plan(
        "segmented_cumsum", length=20_000, segments=tcusim.Segments(count=700), result="float32"
    )
    assert wide.why_not_in_place == "its elements are f16 and its results f32"
    total = tcusim.plan("segmented_sum", length=20_000, segments=tcusim.Segments(count=700))
    assert total.why_not_in_place == "it has 20000 elements and the result 700"


@pytest.mark.parametrize(
    ("operation", "sizes", "text"),
    [
        ("sum", {"segments": 3}, "'sum' takes the array as one segment; leave segments out, or "
         "plan 'segmented_sum'"),
        ("segmented_sum", {}, "'segmented_sum' needs segments: the elements of each one, or their "
         "number, as tcusim.Segments(count=...), if calls give offsets"),
        ("segmented_sum", {"segments": 0}, "segments must be at least 1, got 0"),
        ("segmented_sum", {"segments": 2.0}, "or tcusim.Segments; got 2.0"),
        ("segmented_sum", {"segments": tcusim.Segments(count=0)}, "count must be at least 1, got "),
    ],
)  # fmt: skip
def test_plans_that_cannot_be(operation: str, sizes: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        tcusim.plan(operation, length=100, **sizes)


def test_a_plan_takes_initial_values() -> None:
    x = np.arange(20, dtype=np.int32)
    plan = tcusim.plan(
        "segmented_cumsum",
        length=20,
        segments=tcusim.Segments(count=2),
        dtype="int32",
        initial=True,
    )
    result = plan(x, segments=[0, 15, 20], initial=[100, -5])
    expected = tcusim.segmented_cumsum(x, [0, 15, 20])
    assert result.tolist() == (expected + np.repeat([100, -5], [15, 5])).tolist()
    sized = tcusim.plan("segmented_cumsum", length=20, segments=15, initial=True)
    halves = x.astype(np.float16)
    assert "with initial values" in str(sized)
    assert sized(halves, initial=[100, -5]).tolist() == result.tolist()
    other = tcusim.plan("cumsum", length=20, dtype="int32")
    with pytest.raises(InputError, match="takes no initial values; make one with initial=True"):
        other(x, initial=3)
    with pytest.raises(InputError, match="initial is for scans, and 'sum' is none"):
        tcusim.plan("sum", length=20, initial=True)


def test_offsets_that_a_plan_does_not_take() -> None:
    made = tcusim.plan("segmented_sum", length=8, segments=tcusim.Segments(count=2))
    x = np.ones(8, np.float16)
    for offsets, text in (
        (None, "this plan is for 2 segments by offsets; give segments="),
        ([0, 8], "this plan takes 3 offsets, of 2 segments, got 2; make another plan"),
        ([0, 9, 8], "offsets must not decrease, but offsets[1] = 9 and offsets[2] = 8"),
        ([0, 1, 7], "offsets must begin with 0 and end with the axis' length, 8; got 0 and 7"),
    ):
        with pytest.raises(InputError, match=re.escape(text)):
            made(x, segments=offsets)
    other = tcusim.plan("segmented_sum", length=8, segments=2)
    with pytest.raises(
        InputError, match=r"reduction_short\) takes no segments; plan 'segmented_sum' "
    ):
        other(x, segments=[0, 8])


# --- Initial values, and ids of segments ----------------------------------------------------------


def test_an_initial_value_is_added_to_what_precedes_a_row() -> None:
    x = np.random.default_rng(3).standard_normal(100).astype(np.float16)
    scan = tcusim.cumsum(x, initial=0.3, dtype=np.float32)
    first = tcusim.cumsum(x[:32], dtype=np.float32)
    np.testing.assert_array_equal(scan[:32], first + np.float32(0.3))
    second = tcusim.cumsum(x[32:64], dtype=np.float32)
    total = tcusim.sum(x[:32], dtype=np.float32)
    np.testing.assert_array_equal(scan[32:64], second + (total + np.float32(0.3)))


def test_a_scan_that_is_cut_between_groups_can_be_carried_on() -> None:
    group = 2**20
    x = np.random.default_rng(6).standard_normal(group + 300)
    whole = tcusim.cumsum(x)
    carry = tcusim.sum(x[:group])
    np.testing.assert_array_equal(tcusim.cumsum(x[group:], initial=carry), whole[group:])
    np.testing.assert_array_equal(tcusim.cumsum(x, initial=0), whole)


@pytest.mark.parametrize(
    ("x", "keywords", "text"),
    [
        (
            halves(0, 4),
            {"initial": [1, 2]},
            "initial must have the shape (), or be broadcast to it",
        ),
        (halves(0, 4), {"initial": "x"}, "initial"),
        (halves(0, 4), {"initial": 1e99}, "beyond the range of float32"),
        (halves(0, 4), {"initial": 1, "include_initial": True}, "include_initial begins each segm"),
        (
            halves(0, 4),
            {"initial": 1, "algorithm": "scan_k"},
            "initial has launches of its own, a",
        ),
        (
            np.arange(4),
            {"initial": 0.5},
            "initial is of float64, but the result of int64, which takes integers only",
        ),
    ],
)
def test_initial_values_that_do_not_go(x: Any, keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        tcusim.cumsum(x, **asked(**keywords))
    assert text in str(caught.value)


@pytest.mark.parametrize("ids", [[0, 0, 0, 2, 2, 5], np.array([1, 1, 1, 1, 1, 1], np.uint64)])
@pytest.mark.parametrize("number", [None, 6, 9])
def test_segments_by_the_ids_of_their_elements(ids: Any, number: int | None) -> None:
    x = halves(0, 2, 6)
    count = number or int(ids[-1]) + 1
    edges = np.searchsorted(ids, np.arange(count + 1))
    by_ids = tcusim.Segments(ids=ids, count=number)
    total = tcusim.segmented_sum(x, by_ids)
    assert_equal(total, np.stack([x[:, np.equal(ids, i)].sum(1) for i in range(count)], axis=1))
    orders: list[dict[str, Any]] = [
        {"reverse": True},
        {"exclusive": True},
        {"include_initial": True},
    ]
    for order in orders:
        scan = tcusim.segmented_cumsum(x, by_ids, **order)
        assert_equal(scan, tcusim.segmented_cumsum(x, edges, **order))
    plan = tcusim.plan("segmented_sum", length=6, segments=tcusim.Segments(count=count))
    assert_equal(plan(x[0], segments=tcusim.Segments(ids=ids)), total[0])


def test_no_elements_have_ids() -> None:
    assert tcusim.segmented_sum(halves(0, 0), tcusim.Segments(ids=[])).shape == (0,)
    assert tcusim.segmented_sum(halves(0, 0), tcusim.Segments(ids=[], count=3)).tolist() == [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"ids": [0, 2, 1]}, "ids must not decrease, but ids[1] = 2 and ids[2] = 1; sort the "
         "elements by them first, or give sort=True"),
        ({"ids": [-1, 0, 0]}, "ids must be at least 0, got -1"),
        ({"ids": [0, 0, 2], "count": 2}, "ids must be less than the number of segments, 2; got 2"),
        ({"ids": [0, 0]}, "ids must be 3 integers, one for each element of the axis; there are 2"),
        ({"ids": [0.0, 0, 0]}, "ids must be a flat array of integers, got shape (3,), dtype float"),
        ({"ids": [0, 0, 0], "count": 1.5}, "count must be an integer, got 1.5"),
        ({"ids": [0, 0, 0], "offsets": [0, 3]}, "takes one of offsets, lengths and ids; got offse"),
        ({"ids": [0, 0, 0], "algorithm": "reduction_k"}, "goes with segments of one size"),
        ({"lengths": [1, 1], "algorithm": "reduction_k"}, "goes with segments of one size"),
        ({"lengths": [1, 1]}, "lengths must add up to the axis' length, 3; they come to 2"),
        ({"lengths": [4, -1]}, "lengths must be at least 0, but lengths[1] = -1"),
        ({"lengths": [2**62] * 4}, "lengths must be at most 2**48, got 4611686018427387904"),
        ({"offsets": [0, 3], "count": 1}, "count goes with ids, and offsets tell it; leave it out"),
        ({"offsets": [0, 3], "sort": True}, "sort goes with ids; leave it out"),
        ({"offsets": [0, 3], "check": "no"}, "check must be True or False, got 'no'"),
        ({"offsets": [0, 3], "longest": 2}, "segment 0 has 3 elements, but longest is 2: give"),
        ({"count": 2}, "Segments(count=2) has no offsets, lengths or ids: it is for tcusim.plan"),
        ({}, "Segments takes one of offsets, lengths and ids; got nothing"),
    ],
)  # fmt: skip
def test_ids_that_do_not_go(keywords: dict[str, Any], text: str) -> None:
    def call() -> Any:
        named = {"algorithm": keywords.get("algorithm")}
        by = {name: value for name, value in keywords.items() if name != "algorithm"}
        return tcusim.segmented_sum(halves(0, 3), tcusim.Segments(**by), options=named)

    with pytest.raises(InputError) as caught:
        call()
    assert text in str(caught.value)
