"""Pieces of sums and scans, put together, have the bits of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tcusim
from tcusim.arrays import partial
from tcusim.arrays.partial import carries, combine, cut_size, partials, sums_type
from tcusim.errors import InputError


def array(dtype: str, length: int) -> Any:
    rng = np.random.default_rng(length)
    return (100 * rng.standard_normal(length)).astype(dtype)


@settings(max_examples=25)
@given(st.data())
def test_sums_of_any_pieces(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(["float16", "float32", "float64", "int8", "uint16"]))
    cut = cut_size(dtype)
    x = array(dtype, data.draw(st.integers(1, 6 * cut)))
    places = data.draw(st.sets(st.integers(1, 5), max_size=3))
    pieces = [one for one in np.split(x, sorted(cut * place for place in places)) if one.size]
    sums = np.concatenate([partials(piece) for piece in pieces])
    assert sums.dtype == sums_type(dtype)
    whole = tcusim.sum(x)
    if whole.dtype.kind in "iu":
        assert sums.dtype == whole.dtype
    assert combine(sums, dtype=whole.dtype).tobytes() == whole.tobytes()


def test_along_any_axis_and_on_any_tile() -> None:
    x = array("float32", 60_000).reshape(3, 20_000)
    for axis, a in ((1, x), (0, x.T)):
        pieces = np.split(a, [8192], axis=axis)
        sums = np.concatenate([partials(piece, axis=axis) for piece in pieces], axis=axis)
        assert np.array_equal(combine(sums, axis=axis), tcusim.sum(a, axis=axis))
    whole = tcusim.sum(
        x[0].astype(np.float16), dtype=np.float32, options={"tile": "32x8x16", "arch": "volta"}
    )
    half: Any = {"tile": "32x8x16", "arch": "volta"}
    halves = [partials(piece.astype(np.float16), options=half) for piece in np.split(x[0], [16384])]
    assert combine(np.concatenate(halves)) == whole


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.full)])
def test_a_scan_in_two_pieces(dtype: str, reverse: bool) -> None:
    group = cut_size(dtype, "cumsum")
    x = array(dtype, 2 * group + 100)
    pieces = np.split(x, [group])
    sums = [partials(piece, operation="cumsum", reverse=reverse) for piece in pieces]
    before = carries(np.concatenate(sums), reverse=reverse)
    found, at = [], 0
    for piece, own in zip(pieces, sums, strict=True):
        first = before[at + (len(own) - 1 if reverse else 0)]
        found.append(tcusim.cumsum(piece, reverse=reverse, initial=first))
        at += len(own)
    assert np.concatenate(found).tobytes() == tcusim.cumsum(x, reverse=reverse).tobytes()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 13])
def test_partial_sums_are_added_in_pairs(count: int) -> None:
    rng = np.random.default_rng(count)
    sums = (rng.standard_normal(count) * 2.0 ** rng.integers(0, 24, count)).astype(np.float32)
    level = list(sums)
    while len(level) > 1:
        pairs = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[2 * len(pairs) :]
    assert combine(sums) == level[0]
    assert combine(np.stack([sums, sums], axis=1), axis=0).tolist() == [level[0]] * 2


@pytest.mark.parametrize("length", [1, 40, 256, 300, 2000])
def test_the_sum_of_a_group_from_its_end(length: int) -> None:
    x = array("float16", length)
    (total,) = partials(x, operation="cumsum", reverse=True)
    assert total == tcusim.cumsum(x, reverse=True, dtype=np.float32)[0]
    (total,) = partials(x, operation="cumsum")
    assert total == tcusim.cumsum(x, dtype=np.float32)[-1]


def test_an_object_that_numpy_reads() -> None:
    x = array("int32", 3 * cut_size("int32"))
    assert partials(memoryview(x)).tobytes() == partials(x).tobytes()


def test_carries() -> None:
    rows = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    assert carries(rows).tolist() == [[0, 1, 3], [0, 4, 9]]
    assert carries(rows, reverse=True).tolist() == [[5, 3, 0], [11, 6, 0]]
    assert carries(rows, axis=0).tolist() == [[0, 0, 0], [1, 2, 3]]
    assert carries([1, 2]).tolist() == [0, 1]
    assert carries(np.zeros((2, 0))).shape == (2, 0)


def test_what_cannot_be_cut() -> None:
    with pytest.raises(InputError, match="operation must be 'sum' or 'cumsum', got 'max'"):
        cut_size("float16", "max")  # type: ignore[arg-type]
    for call in (partials, carries):
        with pytest.raises(InputError, match="reverse must be True or False, got 'x'"):
            call(np.ones(3, np.float32), reverse="x")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a piece without elements has no partial sums"):
        partials(np.zeros(0, np.float16))
    with pytest.raises(InputError, match="there are no partial sums to combine"):
        combine(np.zeros(0, np.float32))


@pytest.mark.parametrize("dtype", [{}, [("a", "f4")], "datetime64[s]", complex])
def test_only_real_numbers_are_named(dtype: Any) -> None:
    calls = (
        lambda: tcusim.combine(np.ones((4, 4), np.float16), dtype=dtype),
        lambda: tcusim.cut_size(dtype),
        lambda: tcusim.plan("sum", length=4, dtype=dtype),
    )
    for call in calls:
        with pytest.raises(InputError, match="dtype must be a real number type, got "):
            call()


def test_sums_of_float32_are_no_parts_of_a_sum_in_float64() -> None:
    sums = tcusim.partials(np.ones(20_000, np.float32))
    with pytest.raises(InputError, match="cast the pieces to float64 before"):
        tcusim.combine(sums, dtype=np.float64)
    for kind in (np.int64, np.uint64):
        modular = tcusim.partials(np.full(4, 2**62, kind))
        with pytest.raises(InputError, match=r"modulo 2\*\*64, and no parts of a sum in float64"):
            tcusim.combine(modular, dtype=np.float64)
        assert tcusim.combine(modular, dtype=np.int64) == 0
    wide = tcusim.partials(np.ones(20_000))
    assert tcusim.combine(wide, dtype=np.float64) == 20_000


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_carries_are_added_one_after_the_other(dtype: str) -> None:
    rng = np.random.default_rng(11)
    for shape in ((1,), (2,), (257,), (40, 3)):
        values = (rng.standard_normal(shape) * np.exp2(rng.integers(-20, 21, shape))).astype(dtype)
        if dtype != "int64":
            values.reshape(-1)[::41] = rng.choice([np.inf, -np.inf, 3e38, -0.0])
        for reverse in (False, True):
            expected, total = np.zeros_like(values), np.zeros_like(values[0])
            for place in range(len(values))[:: -1 if reverse else 1]:
                expected[place] = total
                with np.errstate(all="ignore"):
                    total = total + values[place]
            found = tcusim.carries(values, axis=0, reverse=reverse)
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == values.dtype
            assert found.flags.c_contiguous
            # As it is done by the additions of other libraries.
            with np.errstate(all="ignore"):
                in_turn = partial._carries_one_by_one(values, 0, reverse=reverse)
            np.testing.assert_array_equal(in_turn, expected)
            turned = tcusim.carries(values.T, axis=-1, reverse=reverse)
            np.testing.assert_array_equal(turned, expected.T)
    for carries_of in (tcusim.carries, partial._carries_one_by_one):
        assert carries_of(np.zeros(0, dtype), axis=0, reverse=False).size == 0


def test_float32_is_combined_by_the_tree_of_its_sum() -> None:
    """As tcusim.torch.distributed does it, in one launch: bits of `combine`, but for -0."""
    rng = np.random.default_rng(12)
    lengths = [*range(1, 70), 1023, 1024, 1025, 8191, 8192, 8193, 32_769, 131_072, 300_001]
    for length in lengths:
        x = rng.standard_normal(length) * np.exp2(rng.integers(-20, 21, length))
        values = x.astype(np.float32)
        values[rng.random(length) < 0.1] = -0.0
        if length > 1 or values[0] != 0:
            assert tcusim.sum(values).tobytes() == tcusim.combine(values).tobytes()
    nothing = np.full(9, -0.0, np.float32)
    assert np.signbit(tcusim.combine(nothing))
    for dtype in (np.float16, np.float32):
        assert not np.signbit(tcusim.partials(nothing.astype(dtype))).any()
