"""Which types calls compute in: NumPy's results, and on a GPU those of NumPy arrays."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tcusim
from asked import asked
from device_standin import OnGpu, StandIn, assert_bits
from device_standin import halves as normal
from numpy_results import (
    ARCHS,
    SEEDS,
    assert_equal,
    by_segments,
    examples,
    halves,
    prefixes,
)
from tcusim.errors import InputError, Unsupported

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("arch", ["hopper", "volta"])
def test_integers_of_every_width_wrap_as_numpy_s(name: str, arch: str) -> None:
    limits = np.iinfo(name)
    rng = np.random.default_rng(0)
    x = rng.integers(limits.min, limits.max, 2000, np.dtype(name), endpoint=True)
    x[:4] = limits.max
    x[4:8] = limits.min
    total, scan = tcusim.sum(x, options={"arch": arch}), tcusim.cumsum(x, options={"arch": arch})
    assert total.dtype == x.sum().dtype
    assert scan.dtype == x.cumsum().dtype
    assert total == x.sum()
    np.testing.assert_array_equal(scan, x.cumsum())
    for size in (1, 7, 64, 700):
        expected = np.add.reduceat(x, np.arange(0, x.size, size), dtype=x.sum().dtype)
        np.testing.assert_array_equal(
            tcusim.segmented_sum(x, size, options={"arch": arch}), expected
        )


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("wanted", ["int8", "uint8", "int32", "uint64", "float32", "float64"])
def test_integers_summed_into_another_type(name: str, wanted: str) -> None:
    x = np.random.default_rng(1).integers(0, 100, 50).astype(name)
    x[0] = np.iinfo(name).max
    result = tcusim.sum(x, dtype=wanted)
    assert result.dtype == wanted
    with np.errstate(over="ignore"):
        expected = np.sum(x, dtype=wanted)
    if np.dtype(wanted).kind == "f":
        np.testing.assert_allclose(result, float(sum(x.tolist())), rtol=1e-6)
    else:
        assert result == expected


def test_large_integers_summed_into_a_float_do_not_wrap() -> None:
    x = np.full(100, 2**63 - 1)
    assert tcusim.sum(x, dtype=np.float64) == 100 * 2.0**63
    assert tcusim.sum(-x, dtype=np.float64) == -100 * 2.0**63
    unsigned = np.full(3, 2**64 - 1, np.uint64)
    assert tcusim.cumsum(unsigned, dtype=np.float32).tolist() == [2.0**64, 2.0**65, 1.5 * 2.0**65]
    assert tcusim.sum(np.array([2**62, 1 - 2**62]), dtype=np.float64) == 1
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert tcusim.sum(np.full(100, 1000), dtype=np.float16) == np.inf


@pytest.mark.parametrize("dtype", ["int16", "uint64"])
def test_integers_in_every_order(dtype: str) -> None:
    x = np.random.default_rng(3).integers(0, 30_000, 999).astype(dtype)
    backward = tcusim.cumsum(x, reverse=True)
    np.testing.assert_array_equal(backward, x[::-1].cumsum()[::-1])
    exclusive = tcusim.segmented_cumsum(x, 999, exclusive=True, reverse=True)
    np.testing.assert_array_equal(exclusive, np.append(backward[1:], backward.dtype.type(0)))


def test_bool_is_counted() -> None:
    x = np.random.default_rng(2).random(1000) < 0.5
    assert tcusim.sum(x) == np.count_nonzero(x)
    assert tcusim.sum(x).dtype == np.int64
    np.testing.assert_array_equal(tcusim.cumsum(x), x.cumsum())


@examples
@given(st.integers(1, 2000), SEEDS, st.sampled_from(["volta", "hopper", "ampere", "ieee"]))
def test_float64(length: int, seed: int, arch: str) -> None:
    x = np.random.default_rng(seed).integers(-(2**40), 2**40, length).astype(np.float64)
    assert tcusim.sum(x, options={"arch": arch}) == x.sum()
    np.testing.assert_array_equal(tcusim.cumsum(x, options={"arch": arch}), x.cumsum())
    size = min(length, 33)
    np.testing.assert_array_equal(
        tcusim.segmented_cumsum(x, size, options={"arch": arch}), by_segments(x, size, prefixes)
    )


@examples
@given(st.integers(1, 2000), SEEDS, ARCHS)
def test_float32(length: int, seed: int, arch: str) -> None:
    x = np.random.default_rng(seed).integers(-(2**12), 2**12, length).astype(np.float32)
    assert tcusim.sum(x, options={"arch": arch}) == x.sum(dtype=np.float64)
    np.testing.assert_array_equal(tcusim.cumsum(x, options={"arch": arch}), prefixes(x))


@examples
@given(st.integers(1, 2000), SEEDS, st.sampled_from(["hopper", "ampere", "exact"]))
def test_bfloat16(length: int, seed: int, arch: str) -> None:
    x = halves(seed, length).astype(ml_dtypes.bfloat16)
    exact = x.astype(np.float64)
    total = tcusim.sum(x, options={"arch": arch})
    assert total.dtype == ml_dtypes.bfloat16
    assert total == exact.sum().astype(np.float32).astype(ml_dtypes.bfloat16)
    scan = tcusim.cumsum(x, options={"arch": arch}, dtype=np.float32)
    np.testing.assert_array_equal(scan, exact.cumsum())


def test_results_of_narrow_types_are_rounded_once_at_the_end() -> None:
    x = np.ones(5000, np.float16)
    assert tcusim.sum(x) == np.float16(5000)
    ones = np.arange(1, 5001, dtype=np.float32)
    np.testing.assert_array_equal(tcusim.cumsum(x), ones.astype(np.float16))
    bfloat = tcusim.cumsum(x.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(bfloat, ones.astype(ml_dtypes.bfloat16))


def test_results_beyond_float16_are_infinite() -> None:
    x = np.full(3, 60000, np.float16)
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert tcusim.cumsum(x).tolist() == [60000, np.inf, np.inf]
    assert tcusim.cumsum(x, dtype=np.float32).tolist() == [60000, 120000, 180000]


@pytest.mark.parametrize(
    ("given_type", "dtype"),
    [
        ("float16", "float32"),
        ("float16", "float64"),
        ("float32", "float16"),
        ("float32", "float64"),
        ("float64", "float32"),
        ("float64", "float16"),
        ("float16", "bfloat16"),
        ("bfloat16", "float16"),
        ("bfloat16", "float64"),
        ("float32", "bfloat16"),
        ("float64", "bfloat16"),
    ],
)
def test_dtype_is_the_type_of_the_result(given_type: str, dtype: str) -> None:
    types: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16}
    x = halves(8, 40).astype(types.get(given_type, given_type))
    wanted = np.dtype(types.get(dtype, dtype))
    for result, expected in (
        (tcusim.sum(x, dtype=wanted), x.astype(np.float64).sum()),
        (tcusim.segmented_cumsum(x, 9, dtype=wanted), by_segments(x, 9, prefixes)),
    ):
        assert result.dtype == wanted
        assert_equal(result, expected)


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
    # Sums of more bits, of which the whole numbers and the fractions are summed apart.
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
        (np.ones(9, np.float32), {}, "for float16 and int8 arrays, not float32"),
        (np.ones(9, np.int16), {}, "must be of float16, float32, float64, bfloat16 or int8"),
    ],
)
def test_exact_bits_that_a_gpu_does_not_have(
    device: StandIn, x: NDArray[Any], options: Any, text: str
) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        tcusim.sum(OnGpu(x), **asked(bits="exact", **options))
    with pytest.raises(Unsupported, match="initial does not go with bits 'exact' in GPU memory"):
        tcusim.cumsum(OnGpu(normal(9)), options={"bits": "exact", "arch": "hopper"}, initial=1)
