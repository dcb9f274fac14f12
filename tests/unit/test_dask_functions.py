"""`tcusim.dask`: one set of bits for every way to cut an array into chunks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked
from tcusim.errors import InputError

da: Any = pytest.importorskip("dask.array", reason="dask is not installed")

import tcusim.dask  # noqa: E402 - dask is there
from tcusim.dask import functions  # noqa: E402

UNTYPED: Any = functions


def array(dtype: str, *shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    return (10 * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16"])
def test_sums(dtype: str) -> None:
    x = array(dtype, 3, 20_000)
    for axis in (None, 0, 1):
        for keepdims in (False, True):
            expected = np.asarray(tcusim.sum(x, axis=axis, keepdims=keepdims))
            for chunks in ((3, 20_000), (1, 7_777), (2, 12_345))[2 * keepdims :]:
                lazy = functions.sum(da.from_array(x, chunks), axis=axis, keepdims=keepdims)
                assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
                assert np.asarray(lazy.compute()).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("more", "cuts"),
    [
        ({}, (300_000, 2**20, None)),
        ({"reverse": True}, (300_000,)),
        ({"exclusive": True}, (2**20,)),
    ],
    ids=str,
)
def test_scans(more: dict[str, Any], cuts: tuple[int | None, ...]) -> None:
    """Of three groups, of 2**20 elements, the last one short."""
    x = array("float64", 2 * 2**20 + 1000)
    expected = tcusim.cumsum(x, **more)
    for chunks in (cut or x.size for cut in cuts):
        lazy = functions.cumsum(da.from_array(x, chunks), 0, **more)
        assert lazy.compute().tobytes() == expected.tobytes()
    rows = x[:6000].reshape(3, 2000)
    scanned = functions.cumsum(da.from_array(rows, (2, 100)), -1, dtype="f8", **more)
    assert np.array_equal(scanned.compute(), tcusim.cumsum(rows, axis=1, **more))


def test_nothing_to_add() -> None:
    assert functions.sum(da.zeros((2, 0)), axis=1).compute().tolist() == [0, 0]
    assert functions.cumsum(da.zeros((2, 0)), 1).compute().shape == (2, 0)
    assert functions.sum(da.zeros((0, 2)), axis=1, options={"bits": "exact"}).compute().shape == (
        0,
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: functions.sum(np.ones(3)), "a must be a dask array, got ndarray"),
        (lambda x: functions.sum(x, axis=1), "axis 1 is out of range for an array of 1 dimensions"),
        (lambda x: functions.sum(x[x > 0]), r"have unknown sizes, .*compute_chunk_sizes"),
        (lambda x: UNTYPED.segmented_sum(x, None), "give segments: the elements of each"),
        (lambda x: functions.segmented_sum(x, 0), "segments must be at least 1, got 0"),
        (lambda x: functions.segmented_sum(x, 2**70), "segments must be at most"),
        (lambda x: functions.segmented_sum(x, 5000), "segments=5000 is longer"),
        (lambda x: functions.segmented_cumsum(x, 5000), "segments=5000 is longer"),
        (lambda x: functions.segmented_sum(x, [False, True]), "got shape .* dtype bool"),
        (lambda x: functions.segmented_sum(x, [0, 2]), "end with the axis' length, 6"),
        (lambda x: functions.segmented_sum(x, [0, 4, 2, 6]), "must not decrease"),
        (lambda x: functions.sum(x.astype(complex)), r"a must hold real numbers .*a\.real"),
        (lambda x: functions.cumsum(x.astype(object)), "a must hold real numbers"),
        (lambda x: functions.sum(x.reshape(2, 3), axis=(0, -2)), "names an axis twice"),
        (lambda x: UNTYPED.sum(x, options={"bits": "exakt"}), "Did you mean 'exact'"),
        (lambda x: functions.cumsum(x, initial=[1, 2]), r"initial must have the shape \(\)"),
        (
            lambda x: functions.segmented_sum(x, tcusim.Segments(ids=[1, 0, 0, 0, 0, 0])),
            "must not decrease, .*give sort=True",
        ),
        (
            lambda x: functions.segmented_sum(x, tcusim.Segments([0, 6], ids=[0] * 6)),
            "takes one of offsets",
        ),
        (lambda x: functions.cumsum(x, include_initial=True, exclusive=True), "both begin with 0"),
        (lambda x: functions.cumsum(x, include_initial=True, initial=1), "initial with another"),
        (
            lambda x: functions.segmented_cumsum(
                x, tcusim.Segments(ids=[0] * 6, sort=True), include_initial=True
            ),
            "side by side",
        ),
        (lambda x: functions.segmented_cumsum(x, 2, initial=[1, 2]), r"must have the shape \(3,\)"),
        (
            lambda x: functions.segmented_cumsum(x, 2, dtype="i8", initial=0.5),
            "takes integers only",
        ),
        (
            lambda x: functions.segmented_cumsum(x, 2, dtype="i8", initial=2**63),
            "initial holds 922",
        ),
        (lambda x: functions.cumsum(x.astype("i1"), dtype="i1", initial=300), "initial holds 300"),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        call(da.ones(6, chunks=4))


def test_axes_as_tcusim_has_them() -> None:
    x = array("float16", 4, 50, 30)
    lazy = da.from_array(x, (3, 17, 30))
    for axis in ((0, 1), (1, 0), (0, 2), (-1, 0), (0, 1, 2), ()):
        for keepdims in (False, True):
            expected = np.asarray(tcusim.sum(x, axis=axis, keepdims=keepdims))
            got = functions.sum(lazy, axis=axis, keepdims=keepdims)
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
            assert np.asarray(got.compute()).tobytes() == expected.tobytes()
    assert functions.cumsum(lazy).compute().tobytes() == tcusim.cumsum(x).tobytes()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "int16"])
def test_initial_values(dtype: str, reverse: bool) -> None:
    cut = tcusim.cut_size(dtype, "cumsum")
    length = cut + 100 if dtype == "float64" else 5000
    x = array(dtype, 1, length)
    for initial in ([7],) if dtype == "float64" else (3, [7], -(2**40)):
        expected = tcusim.cumsum(x, axis=1, initial=initial, reverse=reverse)
        lazy = da.from_array(x, (1, length // 2))
        got = functions.cumsum(lazy, 1, initial=initial, reverse=reverse)
        assert got.compute().tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16", "uint8"])
def test_exact_bits(dtype: str) -> None:
    plain: Any = tcusim
    untyped: Any = functions
    x = array(dtype, 3, 150)
    if dtype == "float32":
        x[1, 30], x[2, 5], x[2, 140] = np.nan, np.inf, -np.inf
    if dtype == "float64":
        x[0] *= 2.0 ** np.random.default_rng(0).integers(-90, 90, 150)
    for result in (None, "float32"):
        more: dict[str, Any] = {"dtype": result, "bits": "exact"}
        # In one chunk or several.
        for chunks in ((3, 150), (2, 39))[result is not None :]:
            lazy = da.from_array(x, chunks)
            with np.errstate(over="ignore", invalid="ignore"):
                for axis in (None, 0, 1, (1, 0)):
                    expected = np.asarray(tcusim.sum(x, axis=axis, **asked(**more)))
                    got = functions.sum(lazy, axis=axis, **asked(**more))
                    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
                    assert np.asarray(got.compute(scheduler="sync")).tobytes() == expected.tobytes()
                for order in ({}, {"reverse": True}, {"exclusive": True}):
                    expected = plain.cumsum(x, axis=1, **asked(**more), **order)
                    scan = untyped.cumsum(lazy, 1, **asked(**more), **order)
                    assert (scan.shape, scan.dtype) == (expected.shape, expected.dtype)
                    assert scan.compute(scheduler="sync").tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint16", "bool"])
def test_integers_are_added_before_they_are_floats(dtype: str) -> None:
    """Partial sums of 64 bits would be modulo 2**64, and carries in a narrow float rounded."""
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    kind = "uint8" if dtype == "bool" else dtype
    rng = np.random.default_rng(0)
    x = rng.integers(*limits, (3, 20), dtype=kind, endpoint=True).astype(dtype)
    x[:, :9] = limits[1]
    untyped: Any = functions
    lazy = da.from_array(x, (2, 8))
    for result, axis in product(("float64", "float32"), (0, 1)):
        got = functions.sum(lazy, axis=axis, dtype=result).compute(scheduler="sync")
        assert got.tobytes() == tcusim.sum(x, axis=axis, dtype=result).tobytes()
        for initial in (None, 0.5) if axis else (None,):
            for order in ({}, {"reverse": True}, {"exclusive": True, "reverse": True}):
                more: dict[str, Any] = {"dtype": result, "initial": initial, **order}
                expected = tcusim.cumsum(x, axis, **more)
                got = untyped.cumsum(lazy, axis, **more).compute(scheduler="sync")
                assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("initial", [-0.5, [1e300, np.nan, 2.0**-1074]])
@pytest.mark.parametrize("order", [{}, {"reverse": True}, {"exclusive": True}], ids=str)
def test_initial_values_of_exact_scans(initial: Any, order: dict[str, bool]) -> None:
    x = array("float64", 3, 40)
    more: dict[str, Any] = {"bits": "exact", "initial": initial, **order}
    expected = tcusim.cumsum(x, axis=1, **asked(**more))
    untyped: Any = functions
    got = untyped.cumsum(da.from_array(x, (2, 9)), 1, **asked(**more)).compute(scheduler="sync")
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float64", "int16", "uint64"])
def test_sorted_segments(dtype: str) -> None:
    """Each result is at its element's place, from any chunks."""
    x = array("float64", 2, 90).astype(dtype)
    ids = np.random.default_rng(1).integers(0, 10, 90)
    by: Any = {"segments": tcusim.Segments(ids=ids, count=12, sort=True)}
    for name, axis, more in (
        ("segmented_sum", 1, {}),
        ("segmented_sum", 0, {}),
        ("segmented_cumsum", 1, {"reverse": True, "initial": np.arange(12)}),
        ("segmented_cumsum", 0, {"exclusive": True, "initial": np.arange(24).reshape(12, 2)}),
    ):
        rows, chunks = (x.T, (37, 1)) if axis == 0 else (x, (2, 37))
        more = {**by, **more, "axis": axis}
        expected = getattr(tcusim, name)(rows, **more)
        got = getattr(functions, name)(da.from_array(rows, chunks), **more)
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        assert got.compute(scheduler="sync").tobytes() == expected.tobytes()


FRACTIONS = np.array([0.1, 2**60 + 1, np.nan, -0.0])
PRECEDES: list[tuple[str, dict[str, Any]]] = [
    ("float32", {"initial": FRACTIONS}),
    ("float32", {"initial": FRACTIONS, "bits": "exact"}),
    ("float64", {"initial": FRACTIONS, "reverse": True, "dtype": "float32"}),
    ("int8", {"initial": FRACTIONS, "dtype": "float32"}),
    ("int8", {"initial": np.array([2**62 + 1, 5, -7, 0]), "dtype": "float32"}),
    ("int8", {"initial": 2**63 - 1, "exclusive": True}),
    ("uint64", {"initial": 2**64 - 1}),
    ("bfloat16", {"initial": 0.1}),
]


@pytest.mark.parametrize(("dtype", "more"), PRECEDES, ids=str)
def test_what_precedes_segments(dtype: str, more: dict[str, Any]) -> None:
    x = array("float64", 60).astype(dtype)
    by: Any = {"segments": [0, 0, 7, 59, 60], **more}
    expected = tcusim.segmented_cumsum(x, **asked(**by))
    got = functions.segmented_cumsum(da.from_array(x, 13), **asked(**by))
    assert got.dtype == expected.dtype
    assert got.compute(scheduler="sync").tobytes() == expected.tobytes()


def test_segments_without_elements() -> None:
    x = np.zeros((2, 0), np.float16)
    for name in ("segmented_sum", "segmented_cumsum"):
        for offsets in ([0], [0, 0]):
            expected = getattr(tcusim, name)(x, offsets)
            got = getattr(functions, name)(da.from_array(x), offsets)
            assert (got.shape, got.compute().shape) == (expected.shape, expected.shape)


def test_flags_and_axes_are_what_they_say() -> None:
    x = da.ones((2, 2), dtype=np.float16)
    with pytest.raises(InputError, match="keepdims must be True or False, got 'no'"):
        tcusim.dask.sum(x, keepdims="no")  # type: ignore[arg-type]
    for call in (tcusim.dask.sum, tcusim.dask.cumsum):
        with pytest.raises(InputError, match=r"axis must be (an|one) integer.*, got True"):
            call(x, axis=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "int32"])
@pytest.mark.parametrize("bits", ["segment", "exact"])
def test_scans_with_an_initial_zero(reverse: bool, dtype: str, bits: str) -> None:
    more: dict[str, Any] = {"include_initial": True, "reverse": reverse, "options": {"bits": bits}}
    for shape, chunks, axis in (((3, 7), (2, 3), 1), ((3, 7), (2, 3), 0), ((5,), 2, None),
                                ((0,), 1, 0), ((2, 0), 1, 1), ((2, 0), 1, 0)):  # fmt: skip
        x = array(dtype, *shape)
        expected = tcusim.cumsum(x, axis, **more)
        lazy = functions.cumsum(da.from_array(x, chunks), axis, **more)
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        assert lazy.compute().tobytes() == expected.tobytes()
    x = array(dtype, 3, 40)
    by: tuple[Any, ...] = (7, [0, 0, 3, 30, 30, 40, 40])
    for segments, chunks in product(by, ((2, 13), (3, 40))):
        expected = tcusim.segmented_cumsum(x, segments, **more)
        lazy = functions.segmented_cumsum(da.from_array(x, chunks), segments, **more)
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        assert lazy.compute().tobytes() == expected.tobytes()
