"""`tcusim.dask`: one set of bits for every way to cut an array into chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError

da: Any = pytest.importorskip("dask.array", reason="dask is not installed")

import tcusim.dask  # noqa: E402 - dask is there
from tcusim.dask import functions  # noqa: E402


def array(dtype: str, *shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    return (10 * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16"])
def test_sums(dtype: str) -> None:
    x = array(dtype, 3, 20_000)
    for axis in (None, 0, 1):
        for keepdims in (False, True):
            expected = np.asarray(tcusim.sum(x, axis=axis, keepdims=keepdims))
            for chunks in ((3, 20_000), (1, 7_777), (2, 12_345)):
                lazy = functions.sum(da.from_array(x, chunks), axis=axis, keepdims=keepdims)
                assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
                assert np.asarray(lazy.compute()).tobytes() == expected.tobytes()


@pytest.mark.parametrize("more", [{}, {"reverse": True}, {"exclusive": True}], ids=str)
def test_scans(more: dict[str, Any]) -> None:
    x = array("float64", 2 * 2**20 + 1000)
    expected = tcusim.cumsum(x, **more)
    for chunks in (300_000, 2**20, x.size):
        lazy = functions.cumsum(da.from_array(x, chunks), 0, **more)
        assert lazy.compute().tobytes() == expected.tobytes()
    rows = x[:6000].reshape(3, 2000)
    scanned = functions.cumsum(da.from_array(rows, (2, 100)), -1, dtype="f8", **more)
    assert np.array_equal(scanned.compute(), tcusim.cumsum(rows, axis=1, **more))


def test_segments() -> None:
    x = array("float16", 5000)
    offsets = np.array([0, 0, 3, 3, 900, 901, 5000, 5000])
    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (functions.segmented_sum, tcusim.segmented_sum),
        (functions.segmented_cumsum, tcusim.segmented_cumsum),
    ]
    for ours, plain in pairs:
        for chunks in (700, 2500, 5000):
            lazy = da.from_array(x, chunks)
            for given in ({"offsets": offsets}, {"segment_size": 64}):
                expected = plain(x, **given)
                got = ours(lazy, **given)
                assert got.shape == expected.shape
                assert got.compute().tobytes() == expected.tobytes()
    rows = x.reshape(1000, 5)
    lazy = functions.segmented_sum(da.from_array(rows, (300, 2)), 7, axis=0)
    assert np.array_equal(lazy.compute(), tcusim.segmented_sum(rows, 7, axis=0))


def test_nothing_to_add() -> None:
    assert functions.sum(da.zeros((2, 0)), axis=1).compute().tolist() == [0, 0]
    assert functions.cumsum(da.zeros((2, 0)), 1).compute().shape == (2, 0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: functions.sum(np.ones(3)), "a must be a dask array, got ndarray"),
        (lambda x: functions.sum(x, axis=1), r"axis must be within -1\.\.0, got 1"),
        (lambda x: functions.sum(x[x > 0]), r"have unknown sizes, .*compute_chunk_sizes"),
        (lambda x: functions.segmented_sum(x), "give either segment_size or offsets"),
        (lambda x: functions.segmented_sum(x, 0), "segment_size must be an integer from 1 on"),
        (lambda x: functions.segmented_sum(x, offsets=[0, 2]), "end with the axis' length, 6"),
        (lambda x: functions.segmented_sum(x, offsets=[0, 4, 2, 6]), "must never decrease"),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        call(da.ones(6, chunks=4))
