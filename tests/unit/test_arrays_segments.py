"""Means and extremes of segments, unsorted ids, and ids beyond any number of segments."""

from __future__ import annotations

import itertools
import re
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tcusim
from tcusim.arrays.per_segment import segmented_mean
from tcusim.errors import InputError

TYPES = ("float16", "float32", "float64", "bfloat16", "int8", "uint16", "int64", "uint64", "bool")
examples = settings(max_examples=40, deadline=None, derandomize=True, database=None)
# The module, for calls that a type checker would refuse.
UNTYPED: Any = tcusim


@st.composite
def grouped(draw: Any) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Return an array of one or two axes, an id for each element of an axis, and that axis."""
    name, length = draw(st.sampled_from(TYPES)), draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape: tuple[int, ...] = draw(st.sampled_from([(length,), (length, 3), (2, length)]))
    values = rng.integers(-9, 9, shape).astype(np.float64)
    if name in ("float16", "float32", "float64", "bfloat16"):
        special = draw(st.lists(st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 0.0]), max_size=3))
        values.flat[rng.integers(0, values.size, len(special))] = special
        values[values == 5] = -0.0
        x = values.astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    else:
        x = (np.abs(values) if name.startswith("u") else values).astype(name)
    ids = rng.integers(0, draw(st.integers(1, 12)), length)
    if draw(st.booleans()):
        x = np.asfortranarray(x)
    return x, ids, shape.index(length) if shape != (2, length) else 1


def each_segment(x: NDArray[Any], ids: NDArray[Any], axis: int) -> list[NDArray[Any]]:
    return [np.compress(ids == one, x, axis) for one in range(int(ids.max()) + 1)]


@examples
@given(grouped())
def test_extremes_are_numpy_s(case: tuple[NDArray[Any], NDArray[Any], int]) -> None:
    x, ids, axis = case
    for name, of in (("max", np.max), ("min", np.min)):
        found = getattr(tcusim, f"segmented_{name}")(
            x, tcusim.Segments(ids=ids, sort=True), axis=axis
        )
        assert found.dtype == x.dtype
        for place, segment in enumerate(each_segment(x, ids, axis)):
            one = np.take(found, place, axis)
            if segment.shape[axis]:
                np.testing.assert_array_equal(one, of(segment, axis=axis))
            elif x.dtype.kind in "iu":
                ends = np.iinfo(x.dtype)
                assert (one == (ends.min if name == "max" else ends.max)).all()
            else:
                assert (one == (name == "min" if x.dtype == bool else
                                -np.inf if name == "max" else np.inf)).all()  # fmt: skip


@examples
@given(grouped())
def test_means_are_sums_and_quotients(case: tuple[NDArray[Any], NDArray[Any], int]) -> None:
    x, ids, axis = case
    wide = np.dtype("float64" if x.dtype.kind in "biu" or x.dtype == np.float64 else "float32")
    result = np.dtype("float64") if x.dtype.kind in "biu" else x.dtype
    with np.errstate(invalid="ignore"):
        found = segmented_mean(x, tcusim.Segments(ids=ids, sort=True), axis=axis)
        sums = tcusim.segmented_sum(x, tcusim.Segments(ids=ids, sort=True), axis=axis, dtype=wide)
        counts = np.bincount(ids).astype(wide)
        expected = sums / (counts[:, None] if axis == 0 and x.ndim == 2 else counts)
    assert found.dtype == result
    np.testing.assert_array_equal(found, expected.astype(result))


def test_zeros_of_both_signs_in_any_order() -> None:
    for dtype in ("float16", "float32", "float64", ml_dtypes.bfloat16):
        for x in itertools.permutations([0.0, -0.0, -0.0]):
            row = np.array(x, dtype)
            assert not np.signbit(tcusim.segmented_max(row, 3)[0])
            assert np.signbit(tcusim.segmented_min(row, 3)[0])
        low = np.array([-0.0, -1.0], dtype)
        assert np.signbit(tcusim.segmented_max(low, 2)[0])


def test_forms_of_segments() -> None:
    x = np.arange(7, dtype=np.float32)
    for by, expected in (
        (3, [2, 5, 6]),
        ([0, 1, 1, 7], [0, -np.inf, 6]),
        (tcusim.Segments(ids=[0, 0, 2, 2, 2, 2, 2], count=4), [1, -np.inf, 6, -np.inf]),
    ):
        assert UNTYPED.segmented_max(x, by).tolist() == expected
    assert tcusim.segmented_mean(x, 3).tolist() == [1, 4, 6]
    assert tcusim.segmented_mean(x.astype(np.int8), 3, dtype="float16").dtype == np.float16
    out = np.empty(3, np.float32)
    assert tcusim.segmented_min(x, 3, out=out) is out
    assert out.tolist() == [0, 3, 6]
    assert tcusim.segmented_min(np.zeros((2, 0), int), [0, 0]).tolist() == [[2**63 - 1]] * 2


@pytest.mark.parametrize("name", ["segmented_sum", "segmented_max", "segmented_mean"])
def test_ids_that_are_keys(name: str) -> None:
    x = np.ones(10, np.float32)
    for last in (2**40, 1_700_000_000, 2**62):
        with pytest.raises(InputError, match=r"np.unique\(ids, return_inverse=True\)"):
            getattr(tcusim, name)(x, tcusim.Segments(ids=[0] * 9 + [last]))
    with pytest.raises(InputError, match="nearly all of them empty, for 10 elements"):
        getattr(tcusim, name)(x, tcusim.Segments(ids=[0] * 10, count=2**40))
    found = getattr(tcusim, name)(x, tcusim.Segments(ids=[0] * 9 + [10**6]))
    assert found.shape == (10**6 + 1,)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_many_empty_segments(dtype: str) -> None:
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, 10**6, 500))
    x = rng.integers(-9, 9, 500).astype(dtype)
    begin = time.process_time()
    sums = tcusim.segmented_sum(x, tcusim.Segments(ids=ids, count=10**6))
    scans = tcusim.segmented_cumsum(x, tcusim.Segments(ids=ids, count=10**6), initial=3)
    assert time.process_time() - begin < 3
    np.testing.assert_array_equal(sums, np.bincount(ids, x, 10**6))
    expected = [3 + x[ids[: i + 1].searchsorted(ids[i]) : i + 1].sum() for i in range(500)]
    np.testing.assert_array_equal(scans, expected)


def test_what_sort_does_not_go_with() -> None:
    x = np.ones(3, np.float32)
    for call, text in (
        (lambda: tcusim.Segments([0, 3], sort=True), "sort goes with ids"),
        (
            lambda: tcusim.segmented_cumsum(
                x, tcusim.Segments(ids=[1, 0, 1], sort=True), include_initial=True
            ),
            "include_initial goes with segments that lie side by side",
        ),
        (lambda: tcusim.segmented_sum(x, tcusim.Segments(ids=[1, 0, 1])), "or give sort=True"),
        (
            lambda: tcusim.segmented_sum(x, tcusim.Segments(ids=[1, 0], sort=True)),
            "one for each element",
        ),
        (lambda: tcusim.segmented_mean(x, 1, dtype="int32"), "dtype of a mean must be one of"),
        (lambda: tcusim.segmented_max(x, tcusim.Segments([0, 3], longest=2)), "longest is 2: giv"),
        (
            lambda: tcusim.segmented_max(x, None),  # type: ignore[arg-type]
            "give segments: the elements",
        ),
    ):
        with pytest.raises(InputError, match=text):
            call()


@pytest.mark.parametrize(
    ("longest", "text"),
    [
        (0, "at least 1, got 0"),
        (2.0, "an integer, got 2.0"),
        (True, "an integer"),
        (2**49, "2**48"),
    ],
)
def test_segments_refuse_a_longest_that_no_segment_has(longest: Any, text: str) -> None:
    with pytest.raises(InputError, match=rf"longest must be .*{re.escape(text)}"):
        tcusim.Segments([0, 3], longest=longest)
