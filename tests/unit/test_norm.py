"""tcusim.algorithms.norm: rows divided by the root of their mean square, in one launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from tcusim.algorithms.norm import most_columns, rms_norm
from tcusim.errors import Unsupported
from tcusim.machine import FORMATS
from tcusim.program.resources import SharedMemory
from tcusim_cuda.emit import emit
from tcusim_host import compile_programs, run_kernel

EPS = 2.0**-10
# A tile, several of a warp, of several warps; whole and not.
COLUMNS = (1, 7, 100, 256, 1000, 2048, 2049, 4096, 6000, 16384)


def array(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    values = np.random.default_rng(shape[-1]).standard_normal(shape) * 3
    return values.astype(FORMATS[dtype].memory_dtype if dtype != "bf16" else _bf16())


def _bf16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


def exactly(x: NDArray[Any], weight: NDArray[Any]) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    root = np.sqrt((wide * wide).mean(1, keepdims=True) + EPS)
    expected: NDArray[np.float64] = wide / root * weight.astype(np.float64)
    return expected


CASES = [
    (c, dtype) for dtype in ("f16", "bf16", "f32") for c in COLUMNS if c <= most_columns(dtype)
]


@pytest.fixture(scope="module")
def compiled() -> None:
    """Compile the kernels together: this takes a part of the time."""
    compile_programs(rms_norm(columns, dtype, eps=EPS, weight=dtype) for columns, dtype in CASES)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("columns", "dtype"), CASES)
def test_rows_are_divided_and_multiplied(columns: int, dtype: str) -> None:
    program = rms_norm(columns, dtype, eps=EPS, weight=dtype)
    x, weight = array((5, columns), dtype), array((columns,), dtype)
    given = {"in": x.reshape(-1), "weight": weight}
    out = tcusim.run(program, given)["out"]
    expected = exactly(x, weight)
    # Three roundings of float32, and the sum's; then one to the type of the result.
    ulp = np.float64(2.0 ** -FORMATS[dtype].fraction_bits)
    error = np.abs(out.reshape(x.shape).astype(np.float64) - expected)
    roundings = 3 if dtype == "f32" else 0.51
    assert (error <= roundings * ulp * np.abs(expected) + 1e-7).all()
    emitted = run_kernel(emit(program), given)["out"]
    assert out.tobytes() == np.asarray(emitted).tobytes()


def test_a_row_has_one_set_of_bits() -> None:
    for columns in (100, 3000):
        x = array((9, columns), "f16")
        program = rms_norm(columns, "f16")
        together = tcusim.run(program, {"in": x.reshape(-1)})["out"].reshape(x.shape)
        for row, result in zip(x, together, strict=True):
            assert tcusim.run(program, {"in": row})["out"].tobytes() == result.tobytes()


@pytest.mark.parametrize("columns", [64, 1024, 3000, 5000])
def test_scales_are_what_rows_are_multiplied_by(columns: int) -> None:
    x = array((6, columns), "f16")
    given = {"in": x.reshape(-1)}
    scales = tcusim.run(rms_norm(columns, eps=EPS, scales=True), given)["out"]
    assert scales.shape == (6,)
    assert scales.dtype == np.float32
    out = tcusim.run(rms_norm(columns, eps=EPS), given)["out"].reshape(x.shape)
    assert np.array_equal(out, (x.astype(np.float32) * scales[:, None]).astype(np.float16))
    emitted = run_kernel(emit(rms_norm(columns, eps=EPS, scales=True)), given)["out"]
    assert np.array_equal(scales, emitted)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_the_warps_of_a_row_take_equal_parts(dtype: str) -> None:
    """Of 16 bytes each if they can: the fewest that do, up to twice as many as are needed."""
    kept, vector = most_columns(dtype) // 20, 16 // FORMATS[dtype].itemsize
    drawn = np.random.default_rng(0).integers(1, most_columns(dtype) + 1, 6).tolist()
    for columns in (*drawn, 5 * vector * 29, 21 * vector * 61, most_columns(dtype)):
        program = rms_norm(columns, dtype, scales=True)
        assert program.name == "rms_scales"
        (inside,) = (one for one in program.buffers if one.name == "kept")
        least = -(-columns // kept)
        many = range(least, min(2 * least, 20) + 1)
        even = [n for n in many if columns % (n * vector) == 0]
        even += [n for n in many if columns % n == 0]
        across = (even or [least])[0]
        count = -(-columns // across)
        assert inside.size.constant == -(-count // 256) * 256
        assert program.warps == across * max(1, 4 // across)


def test_what_is_not_finite_stays_in_its_row() -> None:
    x = np.ones((3, 512), np.float16)
    x[0, 5], x[1, 7] = np.inf, np.nan
    out = tcusim.run(rms_norm(512), {"in": x.reshape(-1)})["out"].reshape(x.shape)
    assert np.isnan(out[0, 5])
    assert (np.delete(out[0], 5) == 0).all()
    assert np.isnan(out[1]).all()
    assert (out[2] == 1).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_rows_of_special_values_have_the_bits_of_float32(dtype: str) -> None:
    """Zeros keep their signs; a sum of squares that overflows leaves zeros, none leaves NaN."""
    largest = min(FORMATS[dtype].largest, 2.0**100)
    tiny = FORMATS[dtype].smallest
    x = np.zeros((6, 40))
    x[1, ::2], x[2], x[3, 3], x[4, 7] = -0.0, tiny, largest, -largest
    x[5] = np.where(np.arange(40) % 2, -1.0, 1.0)
    x = x.astype(FORMATS[dtype].memory_dtype if dtype != "bf16" else _bf16())
    for eps in (0.0, EPS):
        out = tcusim.run(rms_norm(40, dtype, eps=eps), {"in": x.reshape(-1)})["out"]
        wide = x.astype(np.float32)
        # At most one number of these rows has a square that leaves others to count.
        with np.errstate(all="ignore"):
            squares = np.square(wide).sum(1, keepdims=True, dtype=np.float32)
            scale = np.float32(1) / np.sqrt(squares / np.float32(40) + np.float32(eps))
            expected = (wide * scale).astype(x.dtype)
        found = out.reshape(x.shape)
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
        kept = ~np.isnan(expected.astype(np.float32))
        np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(expected)[kept])


def test_the_longest_row_fits() -> None:
    for dtype in ("f16", "bf16", "f32"):
        most = most_columns(dtype)
        assert SharedMemory(rms_norm(most, dtype)).needed <= 64 * 1024
        with pytest.raises(Unsupported, match=f"{dtype} has 1 to {most} elements, got {most + 1}"):
            rms_norm(most + 1, dtype)
    with pytest.raises(Unsupported, match="rms_norm is of f16, bf16 and f32, got f64"):
        rms_norm(64, "f64")
