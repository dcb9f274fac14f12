"""Plans: the launches that they choose, that pieces of any size make the same sums, and reuse."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from tcusim import plan, plan_product
from tcusim.errors import InputError
from tcusim.program.launches import Launch
from tcusim.simulate.backend import NUMPY

Array = NDArray[Any]


# Blocks share an array of this length.
LONG = 3 * 2**14


def integers(length: int) -> NDArray[np.float16]:
    return np.random.default_rng(length).integers(-9, 10, length).astype(np.float16)


def segments(x: Array, size: int) -> list[NDArray[np.float64]]:
    return [x[at : at + size].astype(np.float64) for at in range(0, x.size, size)]


# --- The plan as data ---------------------------------------------------------------------------


def test_a_plan_prints_everything() -> None:
    made = plan(
        "segmented_cumsum",
        length=2**15,
        segments=tcusim.Segments(count=3),
        result="float32",
        options={"arch": "volta"},
    )
    work = r"; (\d+) x \d+ warps, (\d+) mma, (\d+) bytes read, (\d+) written$"
    lines = str(made).splitlines()
    assert [re.sub(work, "", line) for line in lines] == [
        "plan segmented_cumsum",
        "  problem   32768 float16 in 3 segments by offsets to float32",
        "  tile      16x16x16, f16 to f32",
        "  arch      volta",
        "  arrays    in        f16 x 32768, 65536 bytes",
        "            offsets   s64 x 4, 32 bytes",
        "            sums      f32 x 1027, 4108 bytes",
        "            sums2     f32 x 35, 140 bytes",
        "            sums3     f32 x 7, 28 bytes",
        "            carries   f32 x 7, 28 bytes",
        "            carries2  f32 x 35, 140 bytes",
        "            carries3  f32 x 1027, 4108 bytes",
        "            out       f32 x 32768, 131072 bytes",
        "  launch 1  reduction_ragged: in, offsets -> sums",
        "  launch 2  reduction_ragged_simt: sums, offsets -> sums2",
        "  launch 3  reduction_ragged_simt: sums2, offsets -> sums3",
        "  launch 4  scan_ragged_simt: sums3, offsets -> carries",
        "  launch 5  scan_ragged_simt: sums2, offsets, carries -> carries2",
        "  launch 6  scan_ragged_simt: sums, offsets, carries2 -> carries3",
        "  launch 7  scan_ragged: in, offsets, carries3 -> out",
        "  strategy  rows",
        "  why       segments by offsets are cut into rows of 32 elements, so that all warps have "
        "equal work",
        "            a segment may have all 32768 elements: the rows' sums are combined by rounded "
        "additions, level by level",
    ]
    told = [[int(word) for word in found.groups()] for found in map(re.compile(work).search, lines)
            if found]  # fmt: skip
    assert len(told) == len(made.launches)
    blocks, mma, read, written = map(sum, zip(*told, strict=True))
    assert (made.counts.mma, made.counts.bytes_read) == (mma, read)
    assert made.counts.bytes_written == written >= 131072
    assert blocks > len(told)
    short = plan("segmented_sum", length=64, segments=16, dtype="float32")
    assert repr(short) == (
        "Plan('segmented_sum', 64 float32 in segments of 16 to float32: reduction_panel)"
    )
    assert "  tile      16x16x16, f32 to f32" in str(short)
    assert "  arch      that of the GPU; hopper on the simulator" in str(short)
    assert short.rationale == ("a warp takes 16 segments of 16 elements, in rows of 16",)
    literal = plan("sum", length=300, options={"algorithm": "reduction_256n"})
    assert literal.rationale[1].startswith("as the paper prints it: partial sums are rounded")


@pytest.mark.parametrize("operation", ["sum", "cumsum", "segmented_sum", "segmented_cumsum"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_plan_has_the_bits_of_the_function(operation: str, dtype: str) -> None:
    x = np.random.default_rng(1).standard_normal(17_000)
    x = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    sizes = (40,) if operation.startswith("segmented") else ()
    made = plan(operation, length=x.size, segments=sizes[0] if sizes else None, dtype=dtype)
    result, expected = made(x), getattr(tcusim, operation)(x, *sizes)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.tobytes() == expected.tobytes()
    assert made(x).tobytes() == result.tobytes()


def test_results_have_the_arrays_shape() -> None:
    x = integers(24).reshape(4, 6)
    scan = plan("segmented_cumsum", length=24, segments=6)
    np.testing.assert_array_equal(scan(x), x.cumsum(1))
    np.testing.assert_array_equal(scan(x.T.copy().T), x.cumsum(1))
    assert plan("segmented_sum", length=24, segments=6)(x).shape == (4,)
    assert plan("sum", length=24)(x) == x.sum()
    assert np.shape(plan("sum", length=24)(x)) == ()


def test_a_new_length_is_no_new_program() -> None:
    """Default options of the builder make no program of their own."""
    calls: dict[str, Callable[[int], tuple[Launch, ...]]] = {
        "segmented_sum": lambda x: plan("segmented_sum", length=x, segments=100).launches,
        "segmented_cumsum": lambda x: plan("segmented_cumsum", length=x, segments=9).launches,
        "sum": lambda x: plan("sum", length=x).launches,
        "cumsum": lambda x: plan("cumsum", length=x, dtype="float32").launches,
        "offsets": lambda x: (
            plan("segmented_sum", length=x, segments=tcusim.Segments(count=3, longest=99)).launches
        ),
        "matmul": lambda x: plan_product("matmul", rows=x, inner=32, cols=32).launches,
    }
    for name, launches_of in calls.items():
        first, *others = (
            [launch.program for launch in launches_of(300_001 + 6 * i * i)] for i in range(4)
        )
        for programs in others:
            assert all(map(operator.is_, programs, first)), name


def test_a_plan_runs_on_the_backend_that_it_names() -> None:
    archs: list[str | None] = []

    class Other:
        name, title = "other", "the simulator under another name"

        def available(self) -> None:
            return None

        def run(
            self, plan: Any, inputs: Any, *, arch: str | None = None, **options: Any
        ) -> dict[str, Any]:
            archs.append(arch)
            return NUMPY.run(plan, inputs, arch=arch, **options)

    tcusim.register_backend(Other())
    x = integers(LONG)
    made = plan("sum", length=x.size, result="float32", options={"backend": "other", "arch": "ada"})
    assert made(x) == x.sum(dtype=np.float64)
    assert archs == ["ada"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"segments": 7}, "100 float16 in segments of 7 to float32"),
        ({"segments": 100}, "100 float16 to float32"),
        ({"segments": 9, "exclusive": True, "reverse": True}, "to float32, exclusive, reverse"),
        (
            {"segments": tcusim.Segments(count=7)},
            "100 float16 in 7 segments by offsets to float32",
        ),
        (
            {"segments": tcusim.Segments(count=7, longest=9)},
            "in 7 segments by offsets, of up to 16 elements to",
        ),
    ],
)
def test_problems_in_words(options: dict[str, Any], words: str) -> None:
    made = plan("segmented_cumsum", length=100, result="float32", **options)
    assert words in str(made).splitlines()[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "int32"}, "1000 int32 to int64 (in digits, int8 to int32)"),
        ({"dtype": "bool"}, "1000 bool to int64 (in digits, int8 to int32)"),
        ({"dtype": "float32", "result": "float64"}, "float32 to float64 (as float64 to float64)"),
        ({"dtype": "float32", "bits": "exact"}, "float32 to float32 (in fixed point, int8 to i"),
        ({"dtype": "float32"}, "1000 float32 to float32"),
    ],
)
def test_an_array_is_called_by_its_own_type(options: dict[str, Any], words: str) -> None:
    """Elements are made to fit the tile; a user gave an array of another type."""
    made = plan("sum", length=1000, **asked(**options))
    assert words in str(made).splitlines()[1]
    assert words in repr(made)


def test_one_segment_is_no_plural() -> None:
    made = plan("segmented_sum", length=1000, segments=tcusim.Segments(count=1))
    assert "1000 float16 in 1 segment by offsets to" in repr(made)
    with pytest.raises(InputError, match="is for 1 segment by offsets; give segments="):
        made(np.ones(1000, np.float16))
    with pytest.raises(InputError, match="takes 2 offsets, of 1 segment, got 3"):
        made(np.ones(1000, np.float16), segments=[0, 1, 1000])


def test_a_segment_beyond_the_array_is_refused_as_by_the_functions() -> None:
    x, sentences = np.ones(10, np.float16), set()
    for call in (
        lambda: plan("segmented_sum", length=10, segments=11),
        lambda: plan("segmented_cumsum", length=10, segments=11),
        lambda: tcusim.segmented_sum(x, 11),
    ):
        with pytest.raises(InputError, match="segments=11 is longer than the axis") as caught:
            call()
        sentences.add(str(caught.value))
    assert len(sentences) == 1


def test_products_in_words() -> None:
    made = tcusim.plan_product("matvec", rows=4, inner=5, dtype="int8", result="int32")
    assert "(4, 5) by (5), int8 to int32" in str(made)
    made = tcusim.plan_product("matmul", rows=4, inner=5, cols=6, result="float32")
    assert "(4, 5) by (5, 6), float16 to float32" in str(made)


# --- Non-finite values --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [20, 300, LONG])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_launches_keep_what_is_not_finite_to_its_sums(dtype: str, size: int, bad: float) -> None:
    if size == LONG and dtype == "float64":
        pytest.skip("takes seconds, and is as the others")
    x = np.ones(3 * size, dtype)
    at = size + 18
    x[at] = bad
    total = plan("segmented_sum", length=x.size, segments=size, dtype=dtype)
    expected = np.array([size, bad, size])
    np.testing.assert_array_equal(launched(total, x), expected.astype(dtype))
    made = plan("segmented_cumsum", length=x.size, segments=size, dtype=dtype)
    clean = np.tile(np.arange(1.0, size + 1), 3)
    clean[at : 2 * size] = bad
    np.testing.assert_array_equal(launched(made, x), clean.astype(dtype))
    # Of a NumPy array the plan takes them out first, as the functions do.
    np.testing.assert_array_equal(total(x), expected.astype(dtype))
    np.testing.assert_array_equal(made(x), clean.astype(dtype))


def launched(made: tcusim.Plan, x: Array) -> Array:
    """Run a plan's launches alone, as on a GPU."""
    return np.asarray(NUMPY.run(made.launch_plan, {"in": x})["out"])


def test_launches_do_not_scale_float32() -> None:
    x = np.array([3.4e38, -3.3e38, 0], np.float32)
    usual = plan("sum", length=3, dtype="float32")
    assert launched(usual, x) == usual(x) == x.sum()
    made = plan("sum", length=3, dtype="float32", options={"algorithm": "reduction_kn"})
    assert "  tile      16x16x16, f32 as bf16 to f32" in str(made)
    with pytest.raises(InputError, match=r"exceed 3\.38953e\+38, the largest bf16"):
        launched(made, x)
    assert made(x) == tcusim.sum(x)


# --- In place -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [16, 300, LONG])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_work_in_place(dtype: str, size: int, reverse: bool) -> None:
    made = plan("segmented_cumsum", length=LONG, segments=size, dtype=dtype, reverse=reverse)
    assert made.in_place
    assert made.why_not_in_place is None


def test_out_of_a_plan() -> None:
    x = integers(300)
    scan = plan("cumsum", length=300)
    expected = x.cumsum()
    out = np.empty(300, np.float16)
    assert scan(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert scan(x, x) is x
    np.testing.assert_array_equal(x, expected)


# --- Refusals -----------------------------------------------------------------------------------


def test_arrays_that_a_plan_does_not_take() -> None:
    made = plan("sum", length=100)
    for x in (np.zeros(99, np.float16), np.zeros(100, np.float32)):
        with pytest.raises(InputError) as caught:
            made(x)
        assert str(caught.value) == (
            f"this plan takes 100 elements of float16, got {x.size} of {x.dtype}; make another "
            "plan, or cast the array"
        )
    with pytest.raises(InputError, match=r"stream= is for arrays in GPU memory, and a is a NumPy"):
        made(np.zeros(100, np.float16), stream=3)


def test_an_out_that_overlaps() -> None:
    both = np.zeros(150, np.float16)
    made = plan("cumsum", length=100)
    text = (
        r"out overlaps a in memory\. Give a itself, to compute in place, or an array of its own\."
    )
    with pytest.raises(InputError, match=text):
        made(both[:100], out=both[50:])
    with pytest.raises(InputError, match=text):
        tcusim.cumsum(both[:100], out=both[99::-1])
    # A sum is never computed in place.
    with pytest.raises(InputError, match=r"out overlaps a in memory\. Give an array of its own\."):
        tcusim.segmented_sum(both[:100], 2, out=both[:50])
    apart = np.ones(200, np.float16)
    np.testing.assert_array_equal(made(apart[::2], out=apart[1::2]), np.arange(1, 101))
    frozen = np.zeros(100, np.float16)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match=r"out is read-only\. Give an array to write to\."):
        made(both[:100], out=frozen)
