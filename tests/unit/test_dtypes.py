"""The types that calls compute in: NumPy's results, and on a GPU those of NumPy arrays."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from device_standin import OnGpu, StandIn, assert_bits
from device_standin import halves as normal
from tcusim.errors import InputError, Unsupported


def test_large_integers_summed_into_a_float_do_not_wrap() -> None:
    x = np.full(100, 2**63 - 1)
    assert tcusim.sum(x, dtype=np.float64) == 100 * 2.0**63
    assert tcusim.sum(-x, dtype=np.float64) == -100 * 2.0**63
    unsigned = np.full(3, 2**64 - 1, np.uint64)
    assert tcusim.cumsum(unsigned, dtype=np.float32).tolist() == [2.0**64, 2.0**65, 1.5 * 2.0**65]
    assert tcusim.sum(np.array([2**62, 1 - 2**62]), dtype=np.float64) == 1
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert tcusim.sum(np.full(100, 1000), dtype=np.float16) == np.inf


def test_results_beyond_float16_are_infinite() -> None:
    x = np.full(3, 60000, np.float16)
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert tcusim.cumsum(x).tolist() == [60000, np.inf, np.inf]
    assert tcusim.cumsum(x, dtype=np.float32).tolist() == [60000, 120000, 180000]


# --- Arrays in GPU memory ----------------------------------------------------------------------


@pytest.mark.parametrize("given", ["float16", "float32", "float64", ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", [None, "float16", "float32", np.float64, ml_dtypes.bfloat16])
def test_types_are_those_of_numpy_arrays(device: StandIn, given: Any, dtype: Any) -> None:
    x = normal(500).astype(given)
    for name in ("sum", "cumsum"):
        function = getattr(tcusim, name)
        assert_bits(
            function(OnGpu(x), dtype=dtype), function(x, dtype=dtype, options={"arch": "ada"})
        )
    wide = "float64" in (x.dtype.name, None if dtype is None else np.dtype(dtype).name)
    assert (device.copies > 0) == (wide and dtype is not None and np.dtype(dtype) != x.dtype)


def test_torchs_names_of_types(device: StandIn) -> None:
    class Float32:
        def __str__(self) -> str:
            return "torch.float32"

    x = normal(50)
    dtype: Any = Float32()
    assert_bits(
        tcusim.sum(OnGpu(x), dtype=dtype), tcusim.sum(x, dtype="f4", options={"arch": "ada"})
    )


def test_int8_has_numpy_s_results_or_int32(device: StandIn) -> None:
    x = np.random.default_rng(0).integers(-128, 128, 30_000).astype(np.int8)
    assert_bits(tcusim.sum(OnGpu(x)), x.sum())
    assert_bits(tcusim.cumsum(OnGpu(x)), x.cumsum())
    assert_bits(tcusim.sum(OnGpu(x), dtype="int32"), x.sum(dtype=np.int32))
    assert_bits(tcusim.cumsum(OnGpu(x), dtype=np.int32), x.cumsum(dtype=np.int32))


def test_int8_has_int64_results_of_any_length(device: StandIn) -> None:
    x = np.random.default_rng(8).integers(-128, 128, (2, 5000)).astype(np.int8)
    wide: dict[str, Any] = {"dtype": "int64"}
    assert_bits(tcusim.sum(OnGpu(x), **wide), x.sum(dtype=np.int64))
    assert_bits(tcusim.cumsum(OnGpu(x), axis=1, **wide), x.cumsum(1, dtype=np.int64))
    for order in ({}, {"reverse": True, "exclusive": True}):
        for size in (7, 100, 4000):
            options: dict[str, Any] = {"initial": 2**40, **order, **wide}
            result = tcusim.segmented_cumsum(OnGpu(x), size, **options)
            assert_bits(result, tcusim.segmented_cumsum(x, size, **options))
    low = np.full(2**24 + 5, -128, np.int8)
    plan = tcusim.plan("sum", length=low.size, dtype="int8", result="int64")
    for total in (tcusim.sum(OnGpu(low), **wide), plan(OnGpu(low))):
        assert total.values[()] == -128 * low.size
    with pytest.raises(Unsupported, match="as many as int32 has room for; leave algorithm out"):
        tcusim.sum(OnGpu(low), **asked(algorithm="reduction_tn", **wide))
    with pytest.raises(InputError, match="int8 arrays in GPU memory have int32 results, not int64"):
        tcusim.matmul(OnGpu(x), OnGpu(x.T), **wide)


def test_uint8_has_int64_or_int32_results(device: StandIn) -> None:
    x = np.random.default_rng(9).integers(0, 256, (3, 2000)).astype(np.uint8)
    assert_bits(tcusim.sum(OnGpu(x)), x.sum(dtype=np.int64))
    assert_bits(tcusim.cumsum(OnGpu(x), axis=1, dtype="int32"), x.cumsum(1, dtype=np.int32))
    edges = [0, 4, 4, 1999, 6000]
    for segments in (7, 3000, edges):
        sums = tcusim.segmented_sum(OnGpu(x.ravel()), segments)
        assert_bits(sums, tcusim.segmented_sum(x.ravel(), segments, dtype="int64"))
        scan = tcusim.segmented_cumsum(OnGpu(x.ravel()), segments, reverse=True)
        expected = tcusim.segmented_cumsum(x.ravel(), segments, reverse=True, dtype="int64")
        assert_bits(scan, expected)
    exact = tcusim.sum(OnGpu(x), axis=1, options={"bits": "exact"})
    assert_bits(exact, x.sum(1, dtype=np.int64))
    product = tcusim.matmul(OnGpu(x), OnGpu(x.T.copy()))
    assert_bits(product, x.astype(np.int32) @ x.T.astype(np.int32))


@pytest.mark.parametrize(("kind", "dtype"), [("int8", "float32"), ("uint8", "float64")])
def test_integers_have_float_results_that_are_rounded_once(
    device: StandIn, kind: str, dtype: str
) -> None:
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.random.default_rng(10).integers(low, high, 20_001, endpoint=True).astype(kind)
    exact = x.astype(np.int64)
    assert_bits(tcusim.sum(OnGpu(x), dtype=dtype), exact.sum().astype(dtype))
    assert_bits(tcusim.cumsum(OnGpu(x), dtype=dtype), exact.cumsum().astype(dtype))
    for segments in (7, 700, [0, 3, 3, 16_000, 20_001]):
        for name in ("segmented_sum", "segmented_cumsum"):
            function = getattr(tcusim, name)
            assert_bits(
                function(OnGpu(x), segments, dtype=dtype), function(x, segments, dtype=dtype)
            )
    if kind == "uint8":
        # More than int32 holds.
        long = np.full(2**31 // 255 + 9, 255, np.uint8)
        assert tcusim.sum(OnGpu(long), dtype=dtype).values[()] == 255 * long.size
    with pytest.raises(Unsupported, match="initial goes with int64 or int32 results"):
        tcusim.cumsum(OnGpu(x), dtype=dtype, initial=1)
    with pytest.raises(InputError, match=f"{kind} arrays in GPU memory have int32 results, not fl"):
        tcusim.matmul(OnGpu(x[None]), OnGpu(x), dtype=dtype)


def test_uint8_is_summed_up_to_the_room_of_int32(device: StandIn) -> None:
    """255 * 2**23 and 255**2 * 2**15 are the largest sums that int32 holds."""
    high = np.full(2**23 + 1, 255, np.uint8)
    assert tcusim.sum(OnGpu(high[1:]), dtype="int32").values[()] == 255 * 2**23 < 2**31
    with pytest.raises(Unsupported, match="sums of more than 8388608 integers may not fit int32"):
        tcusim.sum(OnGpu(high), dtype="int32")
    row = high[None, : 2**15]
    assert tcusim.matmul(OnGpu(row), OnGpu(row.T.copy())).values[0, 0] == 255**2 * 2**15 < 2**31
    with pytest.raises(Unsupported, match="more than 32768 products of uint8 may not fit int32"):
        tcusim.matmul(OnGpu(high[None, : 2**15 + 1]), OnGpu(high[: 2**15 + 1, None]))
    with pytest.raises(Unsupported, match="sm_70 tensor cores have no integers"):
        tcusim.sum(OnGpu(row), options={"arch": "volta"})


@pytest.mark.filterwarnings("ignore:overflow")
def test_exact_bits_of_float16_are_those_of_numpy_arrays(device: StandIn) -> None:
    rng = np.random.default_rng(7)
    x = np.ldexp(rng.uniform(-1, 1, (2, 700)), rng.integers(-26, 17, (2, 700))).astype("f2")
    edges = [0, 40, 40, 500, 700]
    for name, options in (
        ("sum", {"axis": 0, "dtype": "bfloat16"}),
        ("cumsum", {"axis": 1, "reverse": True}),
        ("cumsum", {"axis": 1, "include_initial": True, "dtype": "float32"}),
        ("cumsum", {"axis": 0, "exclusive": True}),
        ("segmented_sum", {"segments": edges}),
        ("segmented_cumsum", {"segments": edges}),
    ):
        function = getattr(tcusim, name)
        result = function(OnGpu(x), **asked(bits="exact", **options))
        assert_bits(result, function(x, **asked(bits="exact", arch="volta", **options)))
    assert device.copies == 2  # transposed, and nothing else
    # A sum of 53 bits.
    long = np.full(8192, 65504, np.float16)
    long[5000] = 2.0**-24
    total = tcusim.sum(OnGpu(long), dtype="float64", options={"bits": "exact"})
    assert total.values[()] == 8191 * 65504 + 2.0**-24
    # Sums of more bits: integers and fractions are summed apart.
    long = np.full(17_000, 65504, np.float16)
    long[::1000], long[:2] = 2.0**-24, (0.5, 16)
    for name in ("sum", "cumsum"):
        function = getattr(tcusim, name)
        expected = function(long, dtype="float32", options={"bits": "exact", "arch": "volta"})
        assert_bits(function(OnGpu(long), dtype="float32", options={"bits": "exact"}), expected)
        assert len(device.runs[-1][0].launches) == 4
    plan = tcusim.plan("cumsum", length=700, options={"bits": "exact"}, result="float32")
    assert_bits(plan(OnGpu(x[0])), plan(x[0]))
    assert any(launch.program.acc == "f64" for launch in device.runs[-1][0].launches)
    y = rng.integers(-128, 127, (2, 9000)).astype(np.int8)
    assert_bits(tcusim.sum(OnGpu(y), axis=1, options={"bits": "exact"}), y.sum(1))


@pytest.mark.parametrize(
    ("x", "options", "text"),
    [
        # Of memory that nobody touches.
        (np.zeros(2**30 + 1, np.float16), {}, "float16 segments of up to 1073741824 elements"),
        (
            normal(9),
            {"arch": "volta", "algorithm": "reduction_panel"},
            "volta's tensor cores do not multiply float64",
        ),
        (normal(9), {"acc": "f16"}, "acc 'f16' rounds after every product"),
        (normal(9), {"algorithm": "reduction_256n", "tile": "8x8x4"}, "is run as printed"),
        (np.ones(9, np.float32), {}, "for arrays of float16, int8 or uint8, not float32"),
        (np.ones(9, np.int16), {}, "must be of float16, float32, float64, bfloat16, int8 or uint8"),
    ],
)
def test_exact_bits_that_a_gpu_does_not_have(
    device: StandIn, x: NDArray[Any], options: Any, text: str
) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        tcusim.sum(OnGpu(x), **asked(bits="exact", **options))
    with pytest.raises(Unsupported, match="initial does not go with bits 'exact' in GPU memory"):
        tcusim.cumsum(OnGpu(normal(9)), options={"bits": "exact", "arch": "hopper"}, initial=1)
