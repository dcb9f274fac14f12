"""How far float32 sums and scans of many numbers are from float64, and the cost of the paper's way.

A tensor core truncates, so a long chain of products drifts. Short chains and rounded additions
between them keep sums and scans at least as good as NumPy's own float32.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from some import marked
from tcusim.backends import run

Doubles = NDArray[np.float64]

LONGEST = 2**24
LENGTHS = (
    pytest.param("hopper", LONGEST, marks=pytest.mark.full),
    *((arch, 2**20) for arch in ("volta", "turing", "ampere", "hopper", "blackwell")),
)


WIDE_FORM = {"form": "[U|1]", "tile": "8x32x16", "side": "a"}


@functools.cache
def uniform() -> NDArray[np.float16]:
    return np.random.default_rng(0).random(LONGEST, np.float32).astype(np.float16)


@functools.cache
def normal() -> NDArray[np.float16]:
    return np.random.default_rng(1).standard_normal(LONGEST, np.float32).astype(np.float16)


def worst(errors: Doubles) -> float:
    return float(np.abs(errors).max())


def rms(errors: Doubles) -> float:
    return float(np.sqrt(np.mean(errors**2)))


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "length"), LENGTHS)
def test_sum_and_scan_of_positive_numbers(arch: str, length: int) -> None:
    x = uniform()[:length]
    exact = x.cumsum(dtype=np.float64)
    total = tcusim.sum(x, dtype=np.float32, options={"arch": arch})
    assert abs(total / exact[-1] - 1) < 1e-6
    scan = tcusim.cumsum(x, dtype=np.float32, options={"arch": arch})
    assert scan.dtype == np.float32
    assert worst(scan / exact - 1) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "length"), LENGTHS)
def test_scan_of_normal_numbers_is_no_worse_than_numpy_s(arch: str, length: int) -> None:
    x = normal()[:length]
    exact = x.cumsum(dtype=np.float64)
    scan = tcusim.cumsum(x, dtype=np.float32, options={"arch": arch})
    for count in {2**20, length}:
        ours = scan[:count] - exact[:count]
        numpy_s = x[:count].cumsum(dtype=np.float32) - exact[:count]
        assert worst(ours) <= worst(numpy_s)
        assert rms(ours) <= rms(numpy_s)


@pytest.mark.parametrize("arch", ["volta", "turing", "ampere", "hopper", "blackwell"])
def test_float32_of_widely_different_sizes(arch: str) -> None:
    rng = np.random.default_rng(2)
    sizes = np.exp2(rng.integers(-60, 60, 2**18))
    x = (rng.standard_normal(2**18) * sizes).astype(np.float32)
    exact = x.cumsum(dtype=np.longdouble)
    magnitude = np.abs(x).cumsum(dtype=np.float64)
    assert abs(float(tcusim.sum(x, options={"arch": arch}) - exact[-1])) < 1e-7 * magnitude[-1]
    error = (tcusim.cumsum(x, options={"arch": arch}) - exact).astype(np.float64)
    # Without bf16, a number 2**39 below the largest is lost.
    lost = 0.0 if arch not in ("volta", "turing") else worst(x.astype(np.float64)) * 2.0**-39
    assert np.all(np.abs(error) <= 1e-6 * magnitude + lost * np.arange(1, x.size + 1))


@pytest.mark.parametrize("arch", ["ampere", "hopper"])
def test_every_prefix_of_positive_float32(arch: str) -> None:
    rng = np.random.default_rng(3)
    x = np.exp2(rng.uniform(-30, 30, 2**18)).astype(np.float32)
    scan = tcusim.cumsum(x, options={"arch": arch})
    assert worst(scan / x.cumsum(dtype=np.float64) - 1) < 1e-6


def test_float64_is_summed_in_float64() -> None:
    x = np.random.default_rng(4).random(2**16)
    exact = x.cumsum(dtype=np.longdouble)
    assert abs(float(tcusim.sum(x) / exact[-1] - 1)) < 1e-14
    assert worst((tcusim.cumsum(x) / exact - 1).astype(np.float64)) < 1e-13


DRIFTS = [
    ("scan_kn", {"segment_size": 2**12}, "volta"),
    ("scan_kn", {"segment_size": 2**12}, "hopper"),
    # Volta has no bf16.
    ("scan_kn", {"segment_size": 2**12, "ab": "bf16", "source": "f32"}, "hopper"),
    ("scan_tn", {"segment_size": 2**14}, "volta"),
    ("scan_tn", {"segment_size": 2**14}, "hopper"),
    ("scan_tn", {"segment_size": 2**14, **WIDE_FORM}, "volta"),
    ("scan_tn", {"segment_size": 2**14, **WIDE_FORM}, "hopper"),
]


@pytest.mark.parametrize(
    ("scan", "exclusive", "reverse"),
    marked(list(itertools.product(DRIFTS, (False, True), (False, True))), 5),
)
def test_exclusive_and_reverse_scans_do_not_drift(
    scan: tuple[str, dict[str, Any], str], exclusive: bool, reverse: bool
) -> None:
    name, options, arch = scan
    x = uniform()[: options["segment_size"]]
    way = slice(None, None, -1 if reverse else 1)
    exact = x[way].cumsum(dtype=np.float64)[way]
    program = tcusim.build(
        name, combine="add", masked=True, exclusive=exclusive, reverse=reverse, **options
    )
    given = x.astype(np.float32) if "source" in options else x
    result = run(program, {"in": given}, arch=arch)["out"]
    expected = exact - x if exclusive else exact
    inside = expected != 0
    assert np.all(result[~inside] == 0)
    assert worst(result[inside] / expected[inside] - 1) < 1e-6


# --- The drift that is avoided ------------------------------------------------------------------


def relative_error_of_one_warp(arch: str, accumulation_length: int | None) -> float:
    """Sum 2**20 positive numbers by one warp, in chains of products."""
    x = uniform()[: 2**20]
    program = tcusim.build(
        "reduction_tn", segment_size=x.size, combine="add", accumulation_length=accumulation_length
    )
    total = float(run(program, {"in": x}, arch=arch)["out"][0])
    return total / float(x.sum(dtype=np.float64)) - 1


@pytest.mark.parametrize(
    ("arch", "drift"),
    [
        pytest.param("volta", 5e-4, marks=pytest.mark.full),
        pytest.param("ampere", 2e-4, marks=pytest.mark.full),
        ("hopper", 1e-4),
    ],
)
def test_one_long_chain_drifts_toward_zero_and_short_ones_do_not(arch: str, drift: float) -> None:
    assert relative_error_of_one_warp(arch, None) < -drift
    assert abs(relative_error_of_one_warp(arch, 16)) < 1e-6


def test_rounding_would_not_drift() -> None:
    # "exact" rounds once to nearest: it is the truncation that adds up.
    assert abs(relative_error_of_one_warp("exact", None)) < 1e-5


# --- The paper's float16 accumulator ------------------------------------------------------------


STALLS = {
    "volta": 8192,
    "turing": 16384,
    "ampere": 16384,
    "ada": 16384,
    "hopper": 32768,
    "blackwell": 32768,
}


# The scan multiplies with the same arithmetic: one architecture for each place. Steps of all of
# them are added up in test_fused.py.
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        *marked([("reduction_16n", arch) for arch in STALLS], 2),
        ("scan_16n", "volta"),
        pytest.param("scan_16n", "ampere", marks=pytest.mark.full),
        pytest.param("scan_16n", "hopper", marks=pytest.mark.full),
    ],
)
def test_a_float16_accumulator_of_ones_stalls(name: str, arch: str) -> None:
    stalls_at = STALLS[arch]
    ones = np.ones(stalls_at + 256, np.float16)
    function: Any = tcusim.sum if name == "reduction_16n" else tcusim.cumsum
    result = function(ones, options={"algorithm": name, "arch": arch, "acc": "f16"})
    assert np.max(result) == stalls_at
    # Where the array is shorter, nothing is lost yet.
    short = function(ones[:2048], options={"algorithm": name, "arch": arch, "acc": "f16"})
    assert np.max(short) == 2048


def test_a_float16_accumulator_overflows() -> None:
    ones = np.ones(2**17, np.float16)
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert tcusim.sum(ones, options={"acc": "f16"}, dtype=np.float32) == np.inf
    assert tcusim.sum(ones, dtype=np.float32) == 2**17
