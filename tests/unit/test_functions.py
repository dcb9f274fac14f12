"""sum, cumsum, segmented_sum and segmented_cumsum of arrays: NumPy's results on exact integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcusim
from asked import asked
from numpy_results import (
    ARCHS,
    LENGTHS,
    SEEDS,
    SIZES,
    Array,
    assert_equal,
    by_segments,
    examples,
    halves,
    prefixes,
    suffixes,
    sums,
)
from tcusim.algorithms import segmented_algorithms
from tcusim.arrays.functions import Report
from tcusim.errors import InputError

# --- Segments -----------------------------------------------------------------------------------


@examples
@given(LENGTHS, SIZES, SEEDS, ARCHS)
def test_segments_of_any_size(length: int, size: int, seed: int, arch: str) -> None:
    x = halves(seed, length)
    size = min(size, length)
    total = tcusim.segmented_sum(x, size, dtype=np.float32, options={"arch": arch})
    scan = tcusim.segmented_cumsum(x, size, dtype=np.float32, options={"arch": arch})
    assert_equal(total, by_segments(x, size, sums))
    assert_equal(scan, by_segments(x, size, prefixes))
    assert total.dtype == scan.dtype == np.float32


@examples
@given(LENGTHS, SEEDS, ARCHS)
def test_whole_arrays_of_any_length(length: int, seed: int, arch: str) -> None:
    x = halves(seed, length)
    assert_equal(tcusim.sum(x, dtype=np.float32, options={"arch": arch}), sums(x))
    assert_equal(tcusim.cumsum(x, dtype=np.float32, options={"arch": arch}), prefixes(x))


@examples
@given(SIZES, st.integers(1, 9), SEEDS)
def test_an_exclusive_scan_begins_each_segment_with_zero(size: int, count: int, seed: int) -> None:
    x = halves(seed, size * count - size // 2)
    result = tcusim.segmented_cumsum(x, min(size, x.size), exclusive=True, dtype=np.float32)
    assert_equal(result, by_segments(x, size, prefixes) - x)


@examples
@given(LENGTHS, SIZES, SEEDS, ARCHS)
def test_a_reverse_scan_sums_from_the_end(length: int, size: int, seed: int, arch: str) -> None:
    x = halves(seed, length)
    size = min(size, length)
    expected = by_segments(x, size, suffixes)
    options: dict[str, Any] = {"dtype": np.float32, "arch": arch, "reverse": True}
    assert_equal(tcusim.segmented_cumsum(x, size, **asked(**options)), expected)
    exclusive = tcusim.segmented_cumsum(x, size, exclusive=True, **asked(**options))
    assert_equal(exclusive, expected - x)
    assert_equal(tcusim.cumsum(x, **asked(**options)), suffixes(x))


def test_long_scans_in_every_order() -> None:
    for size in (2**15, 20_000):
        x = halves(size, 40_000)
        for reverse, sums_of in ((False, prefixes), (True, suffixes)):
            for exclusive in (False, True):
                result = tcusim.segmented_cumsum(
                    x, size, exclusive=exclusive, reverse=reverse, dtype=np.float32
                )
                assert_equal(result, by_segments(x, size, sums_of) - exclusive * x)


def test_the_initial_of_a_reverse_scan_comes_last() -> None:
    x = halves(3, 4, 30)
    result = tcusim.cumsum(x, axis=1, include_initial=True, reverse=True, dtype=np.float32)
    assert result.shape == (4, 31)
    assert_equal(result, [[*suffixes(row), 0] for row in x])


@examples
@given(st.sampled_from([1, 7, 16, 64, 100, 256]), st.integers(1, 12), SEEDS)
def test_permuted_segments_have_permuted_results(size: int, count: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((count, size)).astype(np.float16)
    order = np.random.default_rng(seed).permutation(count)
    total = tcusim.segmented_sum(x.ravel(), size)
    scan = tcusim.segmented_cumsum(x.ravel(), size).reshape(count, size)
    assert tcusim.segmented_sum(x[order].ravel(), size).tobytes() == total[order].tobytes()
    permuted = tcusim.segmented_cumsum(x[order].ravel(), size)
    assert permuted.tobytes() == scan[order].tobytes()


@pytest.mark.parametrize("size", [1, 7, 16, 64, 65, 300])
def test_a_segment_by_itself_has_the_same_bits(size: int) -> None:
    x = np.random.default_rng(size).standard_normal(5 * size).astype(np.float16)
    total = tcusim.segmented_sum(x, size, dtype=np.float32)
    scan = tcusim.segmented_cumsum(x, size, dtype=np.float32)
    for number in range(5):
        part = x[number * size : (number + 1) * size]
        assert tcusim.sum(part, dtype=np.float32) == total[number]
        same = tcusim.cumsum(part, dtype=np.float32)
        assert same.tobytes() == scan[number * size : (number + 1) * size].tobytes()


@pytest.mark.parametrize("length", [2**14, 2**14 + 1, 2**15, 50_001])
def test_long_segments_are_cut_into_chunks(length: int) -> None:
    x = halves(length, length)
    assert_equal(tcusim.sum(x, dtype=np.float32), sums(x))
    assert_equal(tcusim.cumsum(x, dtype=np.float32), prefixes(x))


@pytest.mark.parametrize("size", [2**14, 2**15, 2**15 + 5, 3 * 2**14])
def test_several_long_segments(size: int) -> None:
    x = halves(size, 2 * size + size // 3)
    assert_equal(tcusim.segmented_sum(x, size, dtype=np.float32), by_segments(x, size, sums))
    result = tcusim.segmented_cumsum(x, size, dtype=np.float32)
    assert_equal(result, by_segments(x, size, prefixes))


# --- Irregular segments -------------------------------------------------------------------------


@examples
@given(st.lists(st.integers(0, 40), max_size=20), SEEDS)
def test_offsets_of_any_lengths(segments: list[int], seed: int) -> None:
    offsets = np.cumsum([0, *segments])
    x = halves(seed, int(offsets[-1]))
    check_offsets(x, offsets)


@pytest.mark.parametrize(
    "segments",
    [
        [0],
        [0, 0, 0],
        [5, 0, 0, 7],
        [0, 1, 0],
        [1] * 100,
        [20_000, 1, 0, 3],
        [3, 0, 40_000],
        [2**14, 2**14 + 1, 1],
    ],
)
def test_offsets_with_empty_tiny_and_giant_segments(segments: list[int]) -> None:
    offsets = np.cumsum([0, *segments])
    check_offsets(halves(1, int(offsets[-1])), offsets)


def check_offsets(x: Array, offsets: Array) -> None:
    total = tcusim.segmented_sum(x, offsets, dtype=np.float32)
    scan = tcusim.segmented_cumsum(x, offsets, dtype=np.float32)
    exclusive = tcusim.segmented_cumsum(x, offsets, exclusive=True, dtype=np.float32)
    pairs = list(itertools.pairwise(offsets))
    assert_equal(total, [x[low:high].sum(dtype=np.float64) for low, high in pairs])
    expected = np.concatenate([np.zeros(0), *(prefixes(x[low:high]) for low, high in pairs)])
    assert_equal(scan, expected)
    assert_equal(exclusive, expected - x)
    backward = tcusim.segmented_cumsum(x, offsets, reverse=True, dtype=np.float32)
    expected = np.concatenate([np.zeros(0), *(suffixes(x[low:high]) for low, high in pairs)])
    assert_equal(backward, expected)


def test_several_segments_of_more_than_a_group() -> None:
    size = 2**20 + 500
    x = np.random.default_rng(5).standard_normal(size + 300)
    order: dict[str, Any] = {"reverse": True, "include_initial": True}
    scan = tcusim.segmented_cumsum(x, size, **order)
    np.testing.assert_array_equal(scan[: size + 1], tcusim.cumsum(x[:size], **order))
    np.testing.assert_array_equal(scan[size + 1 :], tcusim.cumsum(x[size:], **order))
    plan = tcusim.plan("segmented_cumsum", length=x.size, segments=size, dtype="float64", **order)
    np.testing.assert_array_equal(plan(x), scan)
    with pytest.raises(InputError, match="takes no segments"):
        plan(x, segments=[0, size, x.size])


def test_offsets_of_any_integer_type_and_as_a_list() -> None:
    x = halves(0, 10)
    expected = [float(x[:4].sum()), 0.0, float(x[4:].sum())]
    for offsets in ([0, 4, 4, 10], np.array([0, 4, 4, 10], np.uint8), (0, 4, 4, 10)):
        assert tcusim.segmented_sum(x, offsets).tolist() == expected


def test_offsets_along_an_axis_of_a_larger_array() -> None:
    x = halves(3, 4, 30, 2)
    offsets = [0, 0, 7, 8, 30]
    total = tcusim.segmented_sum(x, offsets, axis=1, dtype=np.float32)
    scan = tcusim.segmented_cumsum(x, offsets, axis=1, dtype=np.float32)
    assert total.shape == (4, 4, 2)
    for i, (low, high) in enumerate(itertools.pairwise(offsets)):
        assert_equal(total[:, i], x[:, low:high].sum(1, dtype=np.float64))
        assert_equal(scan[:, low:high], x[:, low:high].cumsum(1, dtype=np.float64))


# --- Shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (3, 40), (2, 3, 5), (2, 1, 3, 4)])
def test_axes_and_keepdims_are_numpy_s(shape: tuple[int, ...]) -> None:
    x = halves(1, *shape)
    every = range(len(shape))
    axes: list[Any] = [None, *every, *(-1 - i for i in every), *itertools.permutations(every, 2)]
    for axis, keepdims in itertools.product(axes, (False, True)):
        expected = x.sum(axis=axis, keepdims=keepdims, dtype=np.float64)
        result = tcusim.sum(x, axis=axis, keepdims=keepdims, dtype=np.float32)
        assert result.shape == expected.shape
        assert_equal(result, expected)
    assert_equal(tcusim.sum(x, axis=()), x)


@pytest.mark.parametrize("shape", [(5,), (3, 40), (2, 3, 5), (2, 1, 3, 4)])
def test_scans_along_an_axis_are_numpy_s(shape: tuple[int, ...]) -> None:
    x = halves(2, *shape)
    for axis in (None, *range(len(shape)), -1):
        expected = x.cumsum(axis=axis, dtype=np.float64)
        result = tcusim.cumsum(x, axis=axis, dtype=np.float32)
        assert result.shape == expected.shape
        assert_equal(result, expected)
        if axis is not None:
            whole = np.cumulative_sum(x, axis=axis, dtype=np.float64, include_initial=True)
            initial = tcusim.cumsum(x, axis=axis, dtype=np.float32, include_initial=True)
            assert_equal(initial, whole)


@pytest.mark.parametrize("size", [1, 4, 7])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_segments_along_an_axis(size: int, axis: int) -> None:
    x = halves(size, 7, 8, 9)
    total = tcusim.segmented_sum(x, size, axis=axis, dtype=np.float32)
    scan = tcusim.segmented_cumsum(x, size, axis=axis, dtype=np.float32)
    exclusive = tcusim.segmented_cumsum(x, size, axis=axis, exclusive=True, dtype=np.float32)
    expected = np.apply_along_axis(by_segments, axis, x, size, sums)
    assert total.shape == expected.shape
    assert_equal(total, expected)
    inclusive = np.apply_along_axis(by_segments, axis, x, size, prefixes)
    assert_equal(scan, inclusive)
    assert_equal(exclusive, inclusive - x)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2, 1::3],
        lambda x: x[::-1, ::-2],
        lambda x: np.asfortranarray(x),
        lambda x: np.broadcast_to(x[:1], (9, x.shape[1])),
        lambda x: x.astype(">f2"),
        lambda x: x[5],
        lambda x: x[:, 5],
    ],
    ids=["transposed", "strided", "reversed", "fortran", "broadcast", "swapped", "row", "column"],
)
def test_arrays_that_do_not_lie_in_order(view: Callable[[Array], Array]) -> None:
    x = view(halves(4, 20, 33))
    plain = x.astype(np.float64)
    assert_equal(tcusim.sum(x, dtype=np.float32), plain.sum())
    assert_equal(tcusim.sum(x, axis=0, dtype=np.float32), plain.sum(0))
    assert_equal(tcusim.cumsum(x, axis=-1, dtype=np.float32), plain.cumsum(-1))
    assert_equal(tcusim.cumsum(x, dtype=np.float32), plain.ravel().cumsum())
    scan = tcusim.segmented_cumsum(x, 4, axis=0, dtype=np.float32)
    assert_equal(scan, np.apply_along_axis(by_segments, 0, plain, 4, prefixes))


def test_the_input_is_left_as_it_is() -> None:
    x = halves(5, 100)
    x[3] = np.inf
    before = x.copy()
    x.flags.writeable = False
    tcusim.sum(x)
    tcusim.segmented_cumsum(x, 7, exclusive=True)
    assert x.tobytes() == before.tobytes()


def test_out_is_filled_and_returned() -> None:
    x = halves(6, 4, 25)
    out = np.empty(4, np.float32)
    assert tcusim.sum(x, axis=1, dtype=np.float32, out=out) is out
    assert_equal(out, x.sum(1, dtype=np.float64))
    scan = np.empty((25, 4), np.float16).T
    assert tcusim.cumsum(x, axis=1, out=scan) is scan
    assert_equal(scan, x.cumsum(1))
    total: Any = np.empty(())
    assert tcusim.sum(np.ones(3), out=total) is total
    assert total == 3
    halved = np.empty((4, 5), np.float16)
    assert tcusim.segmented_sum(x, 5, out=halved) is halved
    assert_equal(halved, x.reshape(4, 5, 5).sum(2))


def test_out_may_be_the_input() -> None:
    x = halves(7, 300)
    expected = by_segments(x, 9, prefixes)
    assert tcusim.segmented_cumsum(x, 9, out=x) is x
    assert_equal(x, expected)


def test_scalars() -> None:
    total = tcusim.sum(np.float16(3))
    assert isinstance(total, np.float16)
    assert total == 3
    assert tcusim.cumsum(np.float32(3)).tolist() == [3]
    assert tcusim.sum(7) == 7
    assert isinstance(tcusim.sum([1, 2, 3]), np.int64)
    assert tcusim.sum([[1.5, 2.5]], axis=0).tolist() == [1.5, 2.5]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint64, bool])
def test_nothing_sums_to_zero(dtype: Any) -> None:
    x = np.zeros(0, dtype)
    for result, expected in (
        (tcusim.sum(x), x.sum()),
        (tcusim.cumsum(x), x.cumsum()),
        (tcusim.cumsum(x, include_initial=True), np.cumulative_sum(x, include_initial=True)),
        (tcusim.segmented_sum(x, 5), x.cumsum()),
        (tcusim.segmented_cumsum(x, 5), x.cumsum()),
        (tcusim.segmented_cumsum(x, 5, exclusive=True), x.cumsum()),
        (tcusim.segmented_sum(x, [0]), x.cumsum()),
        (tcusim.segmented_sum(x, [0, 0]), x.sum(keepdims=True)),
        (tcusim.segmented_cumsum(x, [0, 0]), x.cumsum()),
    ):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


def test_empty_axes_of_larger_arrays() -> None:
    for shape in ((0, 3), (3, 0), (2, 0, 4)):
        x = np.zeros(shape, np.float16)
        for axis in (None, *range(len(shape))):
            assert_equal(tcusim.sum(x, axis=axis), x.sum(axis=axis))
            assert_equal(tcusim.cumsum(x, axis=axis), x.cumsum(axis=axis))
        segments = tcusim.segmented_sum(x, 2, axis=0)
        assert segments.shape == (-(-shape[0] // 2), *shape[1:])
        assert tcusim.segmented_cumsum(x, 2, axis=0).shape == shape


# --- Infinities and NaN -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("size", [3, 16, 100])
def test_what_is_not_finite_stays_in_its_segment(dtype: Any, bad: float, size: int) -> None:
    x = halves(9, 4 * size).astype(dtype)
    at = 2 * size + 1
    clean = x.astype(np.float64)
    x[at] = bad
    total = tcusim.segmented_sum(x, size).astype(np.float64)
    scan = tcusim.segmented_cumsum(x, size, dtype=np.float64).astype(np.float64)
    expected = by_segments(clean, size, sums).astype(dtype).astype(np.float64)
    expected[2] = bad
    np.testing.assert_array_equal(total, expected)
    inside = by_segments(clean, size, prefixes)
    inside[at : 3 * size] = bad
    np.testing.assert_array_equal(scan, inside)


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


def test_what_is_not_finite_stays_in_its_irregular_segment() -> None:
    x = np.ones(20, np.float16)
    x[5] = np.nan
    total = tcusim.segmented_sum(x, [0, 5, 6, 6, 20])
    np.testing.assert_array_equal(total, [5, np.nan, 0, 14])
    scan = tcusim.segmented_cumsum(x, [0, 5, 8, 20])
    expected = [*range(1, 6), np.nan, np.nan, np.nan, *range(1, 13)]
    np.testing.assert_array_equal(scan, expected)


def test_a_long_scan_is_spoilt_only_after_a_nan() -> None:
    x = halves(10, 40_000)
    expected = prefixes(x)
    x[30_000] = np.nan
    expected[30_000:] = np.nan
    np.testing.assert_array_equal(tcusim.cumsum(x, dtype=np.float32), expected)


# --- Keywords -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["16x16x16", "m32n8k16", (8, 32, 16), "16x8x16"])
@pytest.mark.parametrize("arch", ["v100", "sm_80", "Hopper", "exact"])
def test_shapes_and_units_by_any_name(shape: Any, arch: str) -> None:
    x = halves(11, 1000)
    scan = tcusim.segmented_cumsum(x, 300, options={"tile": shape, "arch": arch}, dtype=np.float32)
    assert_equal(scan, by_segments(x, 300, prefixes))


def test_a_shape_that_is_registered_nowhere() -> None:
    x = halves(12, 1000)
    tile = tcusim.MmaShape(5, 7, 3)
    assert_equal(tcusim.cumsum(x, options={"tile": tile}, dtype=np.float32), prefixes(x))
    assert_equal(tcusim.cumsum(x.astype(np.float32), options={"tile": tile}), prefixes(x))


@pytest.mark.parametrize("paper", [False, True])
def test_every_algorithm_can_be_named(paper: bool) -> None:
    for row in segmented_algorithms():
        name = row.alias if paper else row.name
        if not name or not row.uses_mma:  # without mma, it takes the partial sums of others
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


def test_without_a_watcher_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    real = tcusim.simulate.backend.NUMPY.run

    def run(plan: Any, inputs: Any, **options: Any) -> Any:
        seen.update(options)
        return real(plan, inputs, **options)

    monkeypatch.setattr(
        type(tcusim.simulate.backend.NUMPY), "run", lambda self, *a, **k: run(*a, **k)
    )
    assert tcusim.sum(np.ones(4, np.float16)) == 4
    assert seen["progress"] is None


def test_plain_additions_do_not_take_operands() -> None:
    with pytest.raises(tcusim.Unsupported, match="adds values of the accumulator's type, f32"):
        tcusim.sum(np.ones(10, np.float16), options={"algorithm": "reduction_simt"})
    # Of digits, which are no type of the array.
    with pytest.raises(tcusim.Unsupported, match=r"elements that tensor cores multiply as s8$"):
        tcusim.cumsum(np.ones(10, np.uint16), options={"algorithm": "scan_simt"})


def test_float32_beyond_bf16_is_summed() -> None:
    x = np.array([3.4e38, -3.3e38, 1e30], np.float32)
    np.testing.assert_allclose(tcusim.sum(x), 1e37, rtol=1e-6)
    np.testing.assert_allclose(tcusim.cumsum(x), [3.4e38, 1e37, 1e37], rtol=1e-6)


def test_a_report_that_is_none() -> None:
    untyped: Any = tcusim
    with pytest.raises(InputError, match=r"report must be a tcusim\.arrays\.report\.Report, .* 3"):
        untyped.sum(np.ones(4, np.float16), options={"report": 3})


def test_the_array_apis_name_of_a_scan() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(tcusim.cumulative_sum(x[0]), np.cumulative_sum(x[0]))
    assert np.array_equal(tcusim.cumulative_sum(x, axis=1), np.cumulative_sum(x, axis=1))
    assert tcusim.cumulative_sum([1, 2], include_initial=True).tolist() == [0, 1, 3]
    with pytest.raises(InputError, match="cumulative_sum needs an axis for an array of 2 axes"):
        tcusim.cumulative_sum(x)


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


@pytest.mark.parametrize("dtype", ["float16", "float64", "uint8", "bool"])
def test_a_sum_of_some_elements(dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 9, (3, 50)).astype(dtype)
    for where in (x > 4, rng.random(50) < 0.5, True):
        for axis in (None, 0, 1):
            found = tcusim.sum(x, axis, where=where)
            np.testing.assert_array_equal(found, np.sum(x, axis, where=where))
            assert np.result_type(found) == np.sum(x, axis).dtype
    y = np.array([1, np.nan, np.inf, 2], np.float32)
    assert tcusim.sum(y, where=np.isfinite(y)) == 3
    with pytest.raises(InputError, match="where must be of bool, got int64"):
        tcusim.sum(x, where=np.ones(50, int))
    with pytest.raises(InputError, match=r"where must have the shape \(3, 50\), or be broadcast"):
        tcusim.sum(x, where=np.ones(7, bool))


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
