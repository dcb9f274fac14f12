"""Sums and scans of arrays in GPU memory: the bits of NumPy arrays, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked
from device_standin import OnGpu, StandIn, assert_bits, halves
from tcusim.arrays.report import Report
from tcusim.errors import InputError, Unsupported

# --- Results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(300,), (7, 40), (3, 5, 16), (1, 9, 1), ()])
def test_every_axis_has_the_bits_of_numpy_arrays(device: StandIn, shape: tuple[int, ...]) -> None:
    x = halves(*shape)
    for axis in (None, *range(-len(shape), len(shape))):
        for keepdims in (False, True):
            result = tcusim.sum(OnGpu(x), axis=axis, keepdims=keepdims)
            assert_bits(
                result, tcusim.sum(x, axis=axis, keepdims=keepdims, options={"arch": "ada"})
            )
        assert_bits(
            tcusim.cumsum(OnGpu(x), axis=axis), tcusim.cumsum(x, axis=axis, options={"arch": "ada"})
        )
    for axis in range(len(shape)):
        for size in {1, shape[axis]}:
            for name in ("segmented_sum", "segmented_cumsum"):
                function = getattr(tcusim, name)
                result = function(OnGpu(x), size, axis=axis)
                assert_bits(result, function(x, size, axis=axis, options={"arch": "ada"}))


def test_several_axes_are_summed_together(device: StandIn) -> None:
    x = halves(3, 4, 50)
    assert_bits(
        tcusim.sum(OnGpu(x), axis=(2, 0)), tcusim.sum(x, axis=(0, 2), options={"arch": "ada"})
    )
    assert_bits(
        tcusim.sum(OnGpu(x), axis=(1, 2)), tcusim.sum(x, axis=(1, 2), options={"arch": "ada"})
    )
    assert device.copies == 1


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_in_every_order(device: StandIn, exclusive: bool, reverse: bool) -> None:
    x = halves(6, 160)
    for size, axis in ((32, 1), (160, 1), (2, 0)):
        result, expected = (
            tcusim.segmented_cumsum(
                a, size, axis=axis, exclusive=exclusive, reverse=reverse, options={"arch": "ada"}
            )
            for a in (OnGpu(x), x)
        )
        assert_bits(result, expected)
    assert_bits(
        tcusim.cumsum(OnGpu(x), reverse=reverse),
        tcusim.cumsum(x, reverse=reverse, options={"arch": "ada"}),
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (300,), (3, 5, 16), (0,), (2, 0), (0, 3)])
def test_scans_with_an_initial_zero(device: StandIn, shape: tuple[int, ...], reverse: bool) -> None:
    x = halves(*shape)
    for axis in (None, *range(len(shape))):
        options: dict[str, Any] = {"axis": axis, "reverse": reverse, "include_initial": True}
        assert_bits(
            tcusim.cumsum(OnGpu(x), **options),
            tcusim.cumsum(x, **asked(arch="ada", **options)),
        )
    for given, dtype in (("int8", "int32"), ("float32", "float64"), ("float16", "float32")):
        y = (10 * x).astype(given)
        options = {"axis": -1 if shape else None, "reverse": reverse, "include_initial": True}
        result = tcusim.cumsum(OnGpu(y), dtype=dtype, **options)
        assert_bits(result, tcusim.cumsum(y, dtype=dtype, **asked(arch="ada", **options)))


def test_outs_of_scans_with_an_initial_zero(device: StandIn) -> None:
    x = halves(4, 25)
    out = OnGpu(np.full((4, 26), np.nan, np.float16))
    assert (
        tcusim.cumsum(OnGpu(x), axis=1, include_initial=True, out=out, options={"stream": 3}) is out
    )
    assert_bits(out, tcusim.cumsum(x, axis=1, include_initial=True, options={"arch": "ada"}))
    assert device.runs[-1][1] == 3
    with pytest.raises(Unsupported, match="out= for an array in GPU memory goes with the last ax"):
        tcusim.cumsum(OnGpu(x), axis=0, include_initial=True, out=out)


@pytest.mark.parametrize("size", [1, 7, 16, 100, 1000])
def test_a_last_segment_may_be_shorter(device: StandIn, size: int) -> None:
    x = halves(1000)
    total, scan = tcusim.segmented_sum(OnGpu(x), size), tcusim.segmented_cumsum(OnGpu(x), size)
    assert_bits(total, tcusim.segmented_sum(x, size, options={"arch": "ada"}))
    assert_bits(scan, tcusim.segmented_cumsum(x, size, options={"arch": "ada"}))
    assert device.copies == 0


@pytest.mark.parametrize("size", [2, 7, 45])
def test_each_row_may_have_a_shorter_last_segment(device: StandIn, size: int) -> None:
    x = halves(3, 5, 64)
    for axis in (1, 2):
        some = min(size, x.shape[axis])
        for function in (tcusim.segmented_sum, tcusim.segmented_cumsum):
            result, expected = (
                function(a, some, axis=axis, options={"arch": "ada"}) for a in (OnGpu(x), x)
            )
            assert_bits(result, expected)
    scan = tcusim.segmented_cumsum(OnGpu(x), size, reverse=True, exclusive=True)
    assert_bits(
        scan,
        tcusim.segmented_cumsum(x, size, reverse=True, exclusive=True, options={"arch": "ada"}),
    )
    with pytest.raises(Unsupported, match="include_initial in GPU memory goes with segments of o"):
        tcusim.segmented_cumsum(OnGpu(x), 7, include_initial=True)


def test_nothing_sums_to_zero(device: StandIn) -> None:
    x = np.zeros((0, 3), np.float16)
    for axis in (None, 0, 1):
        assert_bits(tcusim.sum(OnGpu(x), axis=axis), tcusim.sum(x, axis=axis))
        assert_bits(tcusim.cumsum(OnGpu(x), axis=axis), tcusim.cumsum(x, axis=axis))
    assert_bits(tcusim.segmented_sum(OnGpu(x), 2, axis=0), np.zeros((0, 3), np.float16))
    assert device.runs == []


def test_out(device: StandIn) -> None:
    x = halves(4, 25)
    out = OnGpu(np.empty(4, np.float32))
    assert tcusim.sum(OnGpu(x), axis=1, dtype="float32", out=out) is out
    assert_bits(out, tcusim.sum(x, axis=1, dtype="f4", options={"arch": "ada"}))
    a = OnGpu(x.copy())
    assert tcusim.cumsum(a, axis=1, out=a) is a
    assert_bits(a, tcusim.cumsum(x, axis=1, options={"arch": "ada"}))


def test_a_report(device: StandIn) -> None:
    report = Report()
    tcusim.segmented_sum(OnGpu(halves(1024)), 256, options={"report": report})
    assert (report.arch, report.launches, report.mma, report.bytes_read) == ("ada", 1, 4, 2048)


# --- Plans ----------------------------------------------------------------------------------------


def test_a_plan_is_prepared_once(device: StandIn) -> None:
    for _ in range(3):
        tcusim.segmented_sum(OnGpu(halves(64)), 16)
    assert len(device.prepared) == 1
    plan = tcusim.plan("segmented_sum", length=64, segments=16)
    x = halves(8, 8)
    for number in range(2):
        assert_bits(plan(OnGpu(x), stream=number), plan(x).reshape(4))
    assert [made.title for made in device.prepared[1:]] == [repr(plan)]
    assert [stream for _, stream in device.runs[-2:]] == [0, 1]
    out = OnGpu(np.empty(4, np.float16))
    assert plan(OnGpu(x), out) is out


# --- Refusals -------------------------------------------------------------------------------------


def test_outs_that_do_not_go(device: StandIn) -> None:
    x = halves(4, 4)
    out: Any = OnGpu(np.zeros((4, 4), np.float16))
    with pytest.raises(Unsupported, match="out= for an array in GPU memory goes with the last ax"):
        tcusim.cumsum(OnGpu(x), axis=0, out=out)
    with pytest.raises(Unsupported, match="out= for an array without elements in GPU memory; lea"):
        tcusim.cumsum(OnGpu(x[:0]), axis=1, out=OnGpu(x[:0]))
    with pytest.raises(InputError, match=r"got .*OnGpu, which is in GPU memory"):
        tcusim.cumsum(x, axis=1, out=out)


# --- Streams --------------------------------------------------------------------------------------


def test_every_function_takes_a_stream(device: StandIn) -> None:
    x = halves(8)
    for name, keywords in (
        ("sum", {}),
        ("cumsum", {}),
        ("segmented_sum", {"segments": 4}),
        ("segmented_sum", {"segments": [0, 8]}),
        ("segmented_cumsum", {"segments": 4}),
        ("segmented_cumsum", {"segments": [0, 8]}),
    ):
        function: Any = getattr(tcusim, name)
        function(OnGpu(x), **asked(stream=7, **keywords))
        assert device.runs[-1][1] == 7
        with pytest.raises(InputError, match="stream= is for arrays in GPU memory, and a is a Num"):
            function(x, **asked(stream=7, **keywords))
