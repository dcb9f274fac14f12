"""Every operation, over many lengths and segments, has the simulator's bits on both libraries."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from tcusim.backends import native_arch, why_unavailable
from tcusim_cuda import CUDA, CUPY, PYCUDA
from tcusim_cuda.launch import Launcher

pytestmark = [pytest.mark.gpu(min_sm=80), pytest.mark.slow]

LENGTHS = (
    0, 1, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 65_537, 10**6 + 3, 2**24 + 5,
)  # fmt: skip
SIZES = (
    *range(1, 41), 100, 129, 255, 256, 257, 333, 999, 1000, 3001, 50_257,
    *(2**power for power in range(6, 17)),
)  # fmt: skip
# Sizes that all types are tried with.
FEW_SIZES = (1, 7, 16, 33, 100, 257, 1000, 8192)
OTHER_TYPES = ("float32", "float64", "int8")


class Case(NamedTuple):
    """A function, the type and the length of its array, the segment size, and keywords."""

    function: str
    dtype: str
    length: int
    size: int | None = None
    keywords: tuple[tuple[str, Any], ...] = ()


def whole_arrays() -> Iterator[Case]:
    """Yield sums and scans of arrays."""
    for length in LENGTHS:
        for wide in ((), (("dtype", "float32"),)):
            yield Case("sum", "float16", length, None, wide)
            yield Case("cumsum", "float16", length, None, wide)
        if length < 2**20:
            yield Case("cumsum", "float16", length, None, (("reverse", True),))
            yield Case("cumsum", "float16", length, None, (("include_initial", True),))
            for dtype in OTHER_TYPES:
                yield Case("sum", dtype, length)
                yield Case("cumsum", dtype, length)


def segments() -> Iterator[Case]:
    """Yield sums and scans of segments of one size, in each order in turn."""
    for size in SIZES:
        length = 65_537 if size < 4096 else 10**6 + 3
        order = (("exclusive", size % 2 == 0), ("reverse", size % 3 == 0))
        for dtype in ("float16", *(OTHER_TYPES if size in FEW_SIZES else ())):
            yield Case("segmented_sum", dtype, length, size)
            yield Case("segmented_cumsum", dtype, length, size, order)


@pytest.fixture(params=[CUDA, PYCUDA, CUPY], ids=["cuda", "pycuda", "cupy"])
def backend(request: pytest.FixtureRequest) -> Launcher:
    launcher: Launcher = request.param
    reason = why_unavailable(launcher.name)
    if reason is not None:
        pytest.skip(reason)
    return launcher


def array(dtype: str, shape: Any, rng: np.random.Generator) -> NDArray[Any]:
    """Return random numbers of a type."""
    numbers: NDArray[Any] = rng.standard_normal(shape)
    if dtype == "int8":
        numbers = rng.integers(-128, 128, shape)
    return numbers.astype(dtype)


def assert_agree(backend: Launcher, function: str, *given: Any, **keywords: Any) -> None:
    """Call a function on the simulator, as this GPU computes, and on the backend; compare bits."""
    call = getattr(tcusim, function)
    expected = np.asarray(call(*given, **asked(arch=native_arch(backend), **keywords)))
    result = np.asarray(call(*given, **asked(backend=backend.name, **keywords)))
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "case", [*whole_arrays(), *segments()], ids=lambda case: "-".join(map(str, case))
)
def test_lengths_and_segments(backend: Launcher, case: Case) -> None:
    rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
    sizes = () if case.size is None else (case.size,)
    x = array(case.dtype, case.length, rng)
    assert_agree(backend, case.function, x, *sizes, **dict(case.keywords))


@pytest.mark.parametrize("function", ["segmented_sum", "segmented_cumsum"])
@pytest.mark.parametrize("dtype", ["float16", *OTHER_TYPES])
@pytest.mark.parametrize("seed", range(6))
def test_irregular_segments(backend: Launcher, seed: int, dtype: str, function: str) -> None:
    """Empty, tiny and giant segments."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, rng.integers(1, 3000))
    lengths[rng.random(lengths.size) < 0.2] = 0
    lengths[rng.integers(0, lengths.size, 2)] = rng.integers(0, 3000, 2)
    lengths[rng.integers(0, lengths.size)] = rng.integers(1, 200_000)
    offsets = np.concatenate([[0], lengths.cumsum()])
    order = {}
    if function == "segmented_cumsum":
        order = {"exclusive": seed % 2 == 1, "reverse": seed % 3 == 1}
    x = array(dtype, int(offsets[-1]), rng)
    assert_agree(backend, function, x, segments=offsets, **order)
