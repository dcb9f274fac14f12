"""Offsets and ids in GPU memory: the kernels that look at them, run on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from device_standin import facts_one_by_one
from gpu_standin import OnGpu, StandIn
from host_kernels import HOST_ALONE
from tcusim.backends import OffsetsBackend
from tcusim.errors import InputError, Unsupported
from tcusim.simulate.backend import NUMPY
from tcusim_cuda import integers

pytestmark = HOST_ALONE


def sorted_integers() -> list[NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    found = [np.array([0]), np.array([0, 9]), np.array([5, 5, 5]), np.array([-3, 0, 2**31 - 1])]
    for size in (255, 256, 257, 2048, 2049, 5000):
        found.append(np.cumsum(rng.integers(0, 9, size)))
    # One longest segment in each part of the kernel's walk, and two of one length.
    for at in (0, 1, 255, 256, 2047, 2048, 4998):
        lengths = rng.integers(0, 9, 4999)
        lengths[at] = 1000
        lengths[4998] = 1000
        found.append(np.concatenate([[0], np.cumsum(lengths)]))
    return found


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_facts_of_sorted_integers(gpu: StandIn, dtype: str) -> None:
    assert isinstance(gpu, OffsetsBackend)
    for values in sorted_integers():
        given = OnGpu(values.astype(dtype))
        assert gpu.facts_of_integers(given) == facts_one_by_one(values)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_first_place_that_decreases(gpu: StandIn, dtype: str) -> None:
    for size in (2, 256, 257, 2049, 5000):
        for at in {0, (size - 1) // 2, size - 2}:
            values = np.arange(size) * 3
            values[at + 1] = values[at] - 1
            values[size - 1] = min(values[size - 1], values[size - 2] - 7)
            found = gpu.facts_of_integers(OnGpu(values.astype(dtype)))
            expected = facts_one_by_one(values)
            assert (found.first, found.last, found.down) == (
                expected.first, expected.last, expected.down
            )  # fmt: skip


def test_the_widest_integers(gpu: StandIn) -> None:
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    found = gpu.facts_of_integers(OnGpu(np.array([least, most])))
    assert (found.first, found.last, found.down) == (least, most, None)
    found = gpu.facts_of_integers(OnGpu(np.array([most, least])))
    assert found.down == (0, most, least)


def test_no_more_blocks_than_fill_a_gpu(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integers, "_MOST_BLOCKS", 3)
    values = np.cumsum(np.random.default_rng(1).integers(0, 9, 30_000))
    assert gpu.facts_of_integers(OnGpu(values, stream=4)) == facts_one_by_one(values)
    # Seven numbers of each block are all that comes back.
    assert gpu.driver.notes == ["launch 3 x 256 on 4", f"copy {3 * 7 * 8} bytes back on 4"]
    small = OnGpu(np.array([0, 3, 9]), stream=4)
    gpu.facts_of_integers(small)
    assert gpu.driver.notes[2:] == ["launch 1 x 256 on 4", "copy 56 bytes back on 4"]
    # Memory for the rows, each time.
    assert (gpu.made, gpu.launches) == (2, 2)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_offsets_of_ids(gpu: StandIn, dtype: str) -> None:
    rng = np.random.default_rng(2)
    for size, segments in ((1, 1), (1, 700), (1000, 5), (3, 256), (5000, 3000)):
        ids = np.sort(rng.integers(0, segments, size)).astype(dtype)
        made = gpu.offsets_of_ids(OnGpu(ids, stream=4), segments)
        expected = np.searchsorted(ids, np.arange(segments + 1))
        assert made.values.dtype == np.int64
        np.testing.assert_array_equal(made.values, expected)
    # The next use of the new array, on its own stream, waits for the launch.
    assert gpu.driver.notes[-3:] == ["4 waits for 0", "launch 12 x 256 on 4", "0 waits for 4"]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_offsets_of_rows(gpu: StandIn, dtype: str) -> None:
    for edges in ([0], [0, 9], [0, 0, 3, 3, 9, 9], list(range(300))):
        for rows in (1, 2, 7):
            made = gpu.offsets_of_rows(OnGpu(np.array(edges, dtype)), rows)
            expected = [row * edges[-1] + edge for row in range(rows) for edge in edges[:-1]]
            assert made.values.tolist() == [*expected, rows * edges[-1]]


def test_integers_with_gaps_or_out_of_place(gpu: StandIn) -> None:
    values = np.array([0, 3, 9])
    with pytest.raises(InputError, match="which tcusim cannot copy as it needs it: contiguous"):
        gpu.facts_of_integers(OnGpu(values, strides=(16,)))
    with pytest.raises(InputError, match="which tcusim cannot copy as it needs it: contiguous"):
        gpu.facts_of_integers(OnGpu(values, shift=4))
    assert gpu.facts_of_integers(OnGpu(values, shift=8)) == facts_one_by_one(values)


def test_a_stream_under_capture_is_not_waited_for(gpu: StandIn) -> None:
    gpu.driver.capturing.add(4)
    text = re.escape("Give offsets as tcusim.Segments(offsets, check=False, long")
    with pytest.raises(Unsupported, match=text):
        gpu.facts_of_integers(OnGpu(np.array([0, 3]), stream=4))
    assert gpu.driver.notes == []


def test_what_failed_is_said(gpu: StandIn) -> None:
    gpu.fails = ZeroDivisionError("no such thing")
    text = r"stand-in: a look at offsets failed: ZeroDivisionError: no such thing. It was for 2 val"
    with pytest.raises(tcusim.TcusimError, match=text):
        gpu.facts_of_integers(OnGpu(np.array([0, 3])))


def test_calls_look_at_offsets_where_they_are(
    gpu: StandIn, only_backends: Callable[..., None]
) -> None:
    only_backends(NUMPY, gpu)
    rng = np.random.default_rng(3)
    edges = np.cumsum([0, *rng.integers(0, 40, 100)])
    x = rng.integers(-9, 9, (2, edges[-1])).astype(np.float16)
    expected = tcusim.segmented_sum(x, edges)
    a, row = OnGpu(x), OnGpu(x[0])
    ids = OnGpu(np.repeat(np.arange(100), np.diff(edges)).astype(np.int32))
    by_ids = tcusim.Segments(ids=ids, count=100)
    for given in (OnGpu(edges), by_ids):
        np.testing.assert_array_equal(tcusim.segmented_sum(row, given).values, expected[0])
        np.testing.assert_array_equal(tcusim.segmented_sum(a, given).values, expected)
    copied = [note for note in gpu.driver.notes if note.startswith("copy")]
    assert copied == ["copy 56 bytes back on 0"] * 6


@pytest.mark.parametrize("way", ["offsets", "host", "lengths", "ids"])
def test_segments_are_looked_at_by_the_first_of_like_calls(
    gpu: StandIn, only_backends: Callable[..., None], way: str
) -> None:
    only_backends(NUMPY, gpu)
    rng = np.random.default_rng(4)
    edges = np.cumsum([0, *rng.integers(0, 40, 100)])
    x = rng.integers(-9, 9, (2, edges[-1])).astype(np.float16)
    expected = tcusim.segmented_cumsum(x, edges)
    numbers = {"lengths": np.diff(edges), "ids": np.repeat(np.arange(100), np.diff(edges))}
    given: Any = numbers.get(way, edges.copy())
    there: Any = given if way in ("host", "lengths") else OnGpu(given)
    name = way if way in numbers else "offsets"
    count = 100 if way == "ids" else None
    by = tcusim.Segments(count=count, **{name: there})
    for a, one in ((OnGpu(x), expected), (OnGpu(x[0]), expected[0])):
        for _ in range(2):
            np.testing.assert_array_equal(tcusim.segmented_cumsum(a, by).values, one)
        gpu.driver.notes.clear()
        np.testing.assert_array_equal(tcusim.segmented_cumsum(a, by).values, one)
        assert not [note for note in gpu.driver.notes if note.startswith("copy")]
        if way in ("host", "lengths"):
            # Changes are not seen.
            there[1:-1] = 0


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", integers.KERNELS)
def test_arguments_and_threads_are_those_of_the_text(name: str, dtype: str) -> None:
    kernel = integers.kernel_of(name, dtype)
    assert f"__launch_bounds__({kernel.threads})\n{name}(" in kernel.text
    head = kernel.text[: kernel.text.index("{")]
    assert head.count(",") + 1 == len(kernel.arguments)
    assert "INTEGER" not in kernel.text
