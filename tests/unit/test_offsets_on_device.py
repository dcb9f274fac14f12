"""Segments by offsets of arrays in GPU memory: offsets, ids and initial values there or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from device_standin import CheckingStandIn, OnGpu, StandIn, assert_bits, halves
from tcusim.errors import InputError

# Backends that look at offsets where they are, and others, that copy them back.
pytestmark = pytest.mark.parametrize("device", [StandIn, CheckingStandIn], indirect=True)


def lengths_of(seed: int) -> NDArray[np.int64]:
    """Return offsets of empty, tiny and medium segments, and of one giant."""
    rng = np.random.default_rng(seed)
    lengths = rng.permutation([0, 0, 2000, *rng.integers(0, 5, 40), *rng.integers(30, 99, 5)])
    return np.concatenate([[0], np.cumsum(lengths)])


@pytest.mark.parametrize("kind", ["int64", "int32", "NumPy", "list"])
@pytest.mark.parametrize("name", ["segmented_sum", "segmented_cumsum"])
def test_offsets_have_the_bits_of_numpy_arrays(device: StandIn, name: str, kind: str) -> None:
    edges = lengths_of(len(name))
    function = getattr(tcusim, name)
    offsets: Any = {"NumPy": edges.astype(np.uint16), "list": edges.tolist()}.get(kind)
    if offsets is None:
        offsets = OnGpu(edges.astype(kind))
    for dtype in ("float16", "float32", "float64"):
        x = halves(edges[-1]).astype(dtype)
        assert_bits(function(OnGpu(x), offsets), function(x, edges, options={"arch": "ada"}))
    assert device.looks == (3 if kind.startswith("int") else 0)
    assert device.uploads == 3 - device.looks
    assert device.copies == (3 if kind == "int32" else 0)


def test_offsets_in_every_order_along_any_axis(device: StandIn) -> None:
    edges = lengths_of(3)
    x = halves(2, edges[-1], 3)
    orders: list[dict[str, Any]] = [
        {"exclusive": a, "reverse": b} for a in (False, True) for b in (False, True)
    ]
    for order in orders:
        result = tcusim.segmented_cumsum(OnGpu(x), OnGpu(edges), axis=1, **order)
        assert_bits(
            result,
            tcusim.segmented_cumsum(x, edges, axis=1, options={"arch": "ada"}, **order),
        )
    total = tcusim.segmented_sum(OnGpu(x), OnGpu(edges), axis=1)
    assert_bits(total, tcusim.segmented_sum(x, edges, axis=1, options={"arch": "ada"}))
    row = np.ascontiguousarray(x[0].T)
    out = OnGpu(np.empty((3, edges.size - 1), np.float16))
    assert tcusim.segmented_sum(OnGpu(row), edges, out=out) is out
    assert_bits(out, tcusim.segmented_sum(row, edges, options={"arch": "ada"}))


def test_ids_in_gpu_memory_or_not(device: StandIn) -> None:
    ids = np.repeat([0, 1, 4], [20, 1, 300])
    x = halves(321)
    expected = tcusim.segmented_cumsum(x, tcusim.Segments(ids=ids), options={"arch": "ada"})
    for given in (ids, OnGpu(ids), OnGpu(ids.astype(np.int32))):
        assert_bits(tcusim.segmented_cumsum(OnGpu(x), tcusim.Segments(ids=given)), expected)
    # Of ids there is a second look, at the offsets that were made of them.
    assert device.looks == (4 if isinstance(device, CheckingStandIn) else 2)
    some: Any = OnGpu(ids)
    with pytest.raises(InputError, match=r"ids are a .*OnGpu in GPU memory, but a is a Nu"):
        tcusim.segmented_cumsum(x, tcusim.Segments(ids=some))
    with pytest.raises(InputError, match="ids in GPU memory must be a flat array of an ele"):
        tcusim.segmented_cumsum(OnGpu(x), tcusim.Segments(ids=OnGpu(ids.astype(np.uint8))))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_initial_values_in_gpu_memory_or_not(device: StandIn, dtype: str) -> None:
    x = (halves(3, 50, 4) * 3).astype(dtype)
    sums = {"float64": "float64", "int8": "int64"}.get(dtype, "float32")
    values = np.arange(24).reshape(3, 2, 4).astype(sums)
    wanted: dict[str, Any] = {"dtype": sums if dtype == "int8" else None, "arch": "ada"}
    backward: dict[str, Any] = {"axis": 1, "reverse": True, "exclusive": True}
    along: dict[str, Any] = {"axis": 1}
    for order in (along, backward):
        expected = tcusim.segmented_cumsum(x, 30, initial=values, **order, **asked(**wanted))
        for initial in (values, OnGpu(values)):
            result = tcusim.segmented_cumsum(OnGpu(x), 30, initial=initial, **order)
            assert_bits(result, expected)
    expected = tcusim.cumsum(x, initial=values[0, 0, 3], **asked(**wanted))
    assert_bits(tcusim.cumsum(OnGpu(x), initial=OnGpu(values[0, 0, 3:].reshape(()))), expected)
    plan = tcusim.plan("cumsum", length=x.size, dtype=dtype, result=wanted["dtype"], initial=True)
    assert_bits(plan(OnGpu(x.ravel()), initial=3), expected.ravel())
    with pytest.raises(InputError, match="this plan takes initial values: give initial="):
        plan(OnGpu(x.ravel()))
    with pytest.raises(InputError, match=rf"must be of {sums}, the type of the sums, and of shape"):
        tcusim.cumsum(OnGpu(x), initial=OnGpu(values[0, 0]))
    with pytest.raises(
        InputError, match=r"initial is a .*OnGpu in GPU memory, but a is a NumPy arr"
    ):
        tcusim.cumsum(x, initial=OnGpu(values[0, 0]))


def test_unchecked_offsets_are_not_looked_at(device: StandIn) -> None:
    edges = lengths_of(5)
    x = np.random.default_rng(0).integers(-9, 9, edges[-1]).astype(np.float16)
    result = tcusim.segmented_sum(OnGpu(x), tcusim.Segments(OnGpu(edges), check=False))
    assert_bits(result, tcusim.segmented_sum(x, edges))
    assert device.looks == device.uploads == 0
    # Offsets in host memory are checked all the same.
    with pytest.raises(InputError, match="offsets must begin with 0"):
        tcusim.segmented_sum(OnGpu(x), tcusim.Segments([0, 1], check=False))


def test_unchecked_offsets_reach_no_other_memory(device: StandIn) -> None:
    """The simulator refuses to read or write beyond an array; so there is no such access."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        size = int(rng.integers(1, 400))
        x = np.ones(size, np.float16)
        offsets = OnGpu(rng.integers(-3 * size, 5 * size, int(rng.integers(1, 40))))
        for name in ("segmented_sum", "segmented_cumsum"):
            function = getattr(tcusim, name)
            result = function(OnGpu(x), tcusim.Segments(offsets, check=False))
            assert result.values.size == (
                size if name.endswith("cumsum") else offsets.values.size - 1
            )


def test_no_elements_by_offsets(device: StandIn) -> None:
    nothing = OnGpu(np.zeros((2, 0), np.float16))
    assert_bits(tcusim.segmented_sum(nothing, [0, 0, 0]), np.zeros((2, 2), np.float16))
    assert_bits(tcusim.segmented_cumsum(nothing, [0, 0, 0]), np.zeros((2, 0), np.float16))
    assert_bits(
        tcusim.segmented_sum(OnGpu(np.zeros(0, np.float16)), OnGpu(np.zeros(1, int))),
        np.zeros(0, np.float16),
    )


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        (np.array([0, 5, 3, 9]), "offsets must not decrease, but offsets[1] = 5 and offsets[2] = "),
        (np.array([1, 9]), "offsets must begin with 0 and end with the axis' length, 9; got 1 and"),
        (np.array([0, 8]), "offsets must begin with 0 and end with the axis' length, 9; got 0 and"),
        (np.array([0.0, 9.0]), "offsets in GPU memory must be a flat array of segments + 1 "
         "elements of int64 or int32, got shape (2,), dtype float64"),
        (np.array([0, 9], np.uint64), "dtype uint64"),
        (np.array([[0, 9]]), "got shape (1, 2), dtype int64"),
        (np.array([], np.int64), "got shape (0,), dtype int64"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("planned", [False, True])
def test_bad_offsets_in_gpu_memory(device: StandIn, offsets: Any, text: str, planned: bool) -> None:
    for name in ("segmented_sum", "segmented_cumsum"):
        function = getattr(tcusim, name)
        if planned:
            function = tcusim.plan(
                name, length=9, segments=tcusim.Segments(count=max(1, offsets.size - 1))
            )
        with pytest.raises(InputError) as caught:
            function(OnGpu(halves(9)), segments=OnGpu(offsets))
        assert text in str(caught.value)
    assert device.runs == []


@pytest.mark.parametrize(
    ("ids", "keywords"),
    [
        ([0, 2, 1, 3], {}),
        ([-1, 2, 3, 3], {}),
        ([0, 2, 3, 3], {"count": 3}),
        ([7, 7, 7, 7], {"count": 3}),
        ([-3, -2, -2, -1], {}),
        ([0, 1, 1], {}),
        ([0, 1, 1, 1], {"count": 0}),
    ],
)
def test_bad_ids_in_gpu_memory(device: StandIn, ids: Any, keywords: dict[str, Any]) -> None:
    with pytest.raises(InputError) as there:
        tcusim.segmented_sum(
            OnGpu(halves(4)), tcusim.Segments(ids=OnGpu(np.array(ids)), **keywords)
        )
    with pytest.raises(InputError) as here:
        tcusim.segmented_sum(halves(4), tcusim.Segments(ids=ids, **keywords))
    assert str(there.value) == str(here.value)
    assert device.runs == []


def test_offsets_of_rows_stay_where_they_are(device: StandIn) -> None:
    edges = lengths_of(8)
    x = halves(3, edges[-1])
    ids = OnGpu(np.repeat(np.arange(edges.size - 1), np.diff(edges)).astype(np.int32))
    by_ids = tcusim.Segments(ids=ids, count=edges.size - 1)
    expected = tcusim.segmented_sum(x, edges, options={"arch": "ada"})
    for given in (OnGpu(edges.astype(np.int32)), by_ids):
        assert_bits(tcusim.segmented_sum(OnGpu(x), given), expected)
    assert device.uploads == (0 if isinstance(device, CheckingStandIn) else 2)


def test_offsets_of_a_library_that_does_not_cast(
    device: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(array: Any, axes: tuple[int, ...], dtype: str) -> Any:
        if array.values.dtype != dtype:
            raise InputError("no")
        return array

    monkeypatch.setattr(device, "arranged", refuse)
    text = r"offsets are a .*OnGpu of int32, which tcusim cannot copy as it needs it: without gaps,"
    with pytest.raises(InputError, match=text):
        tcusim.segmented_sum(OnGpu(halves(3)), OnGpu(np.array([0, 3], np.int32)))


def test_a_plan_by_offsets(device: StandIn) -> None:
    edges = lengths_of(6)
    x = halves(edges[-1])
    plan = tcusim.plan(
        "segmented_cumsum", length=x.size, segments=tcusim.Segments(count=edges.size - 1)
    )
    expected = plan(x, segments=edges)
    for offsets in (OnGpu(edges), edges.tolist()):
        assert_bits(plan(OnGpu(x), segments=offsets, stream=5), expected)
    assert (device.looks, device.uploads, device.runs[-1][1]) == (1, 1, 5)
    assert device.runs[-1][0].title == repr(plan)
    assert_bits(plan(OnGpu(x), segments=tcusim.Segments(OnGpu(edges), check=False)), expected)
    assert device.looks == 1
    with pytest.raises(InputError, match="this plan takes 50 offsets, of 49 segments, got 2"):
        tcusim.plan("segmented_cumsum", length=x.size, segments=tcusim.Segments(count=49))(
            OnGpu(x), segments=tcusim.Segments(OnGpu(np.array([0, x.size])), check=False)
        )
    short = tcusim.plan(
        "segmented_sum", length=x.size, segments=tcusim.Segments(count=edges.size - 1, longest=99)
    )
    with pytest.raises(InputError, match="has 2000 elements, but longest is "):
        short(OnGpu(x), segments=OnGpu(edges))


def test_offsets_in_gpu_memory_for_a_numpy_array(device: StandIn) -> None:
    offsets: Any = OnGpu(np.array([0, 3]))
    text = r"offsets are a .*OnGpu in GPU memory, but a is a NumPy array; copy them to a NumPy arr"
    for name in ("segmented_sum", "segmented_cumsum"):
        with pytest.raises(InputError, match=text):
            getattr(tcusim, name)(halves(3), offsets)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_unchecked_offsets_may_change_between_calls(device: StandIn, dtype: str) -> None:
    x, offsets = halves(100), OnGpu(np.array([0, 7, 100]).astype(dtype))
    segments = tcusim.Segments(offsets, check=False)
    for cut in (7, 7, 50, 0, 100):
        offsets.values[1] = cut
        found = tcusim.segmented_sum(OnGpu(x), segments)
        assert_bits(found, tcusim.segmented_sum(x, [0, cut, 100], options={"arch": "ada"}))
    assert device.looks == 0
