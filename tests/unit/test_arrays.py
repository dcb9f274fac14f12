"""An array in GPU memory as a kernel sees it: its elements, its bytes and where it begins."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_standin import PROGRAM
from tcusim.errors import InputError
from tcusim_cuda.arrays import DeviceArray, common_device, from_bits, host_bits, require_fit
from tcusim_cuda.emit import emit


def test_bf16_bits_of_every_kind_of_value() -> None:
    odd_nan = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    values = np.array([1.0, -0.0, np.inf, -np.inf, 2.0**-133, odd_nan], np.float32)
    bits = host_bits(values, "bf16", "in")
    assert bits.dtype == np.uint16
    assert [hex(b) for b in bits] == ["0x3f80", "0x8000", "0x7f80", "0xff80", "0x1", "0x7fc0"]
    back = from_bits(bits, "bf16").astype(np.float32)
    np.testing.assert_array_equal(back, values)


def test_only_tiles_that_wmma_moves_must_be_aligned() -> None:
    assert emit(PROGRAM).tiled == {"in"} | {b.name for b in PROGRAM.scratch}
    array = DeviceArray("input 'in'", None, "other", 34, (512,), "float16")
    require_fit(array, PROGRAM.inputs[0], tiles=False)
    with pytest.raises(InputError, match="begins at address 0x22, which is not a multiple of 32"):
        require_fit(array, PROGRAM.inputs[0], tiles=True)


def test_arrays_on_two_gpus() -> None:
    assert common_device({"out": 1, "input 'b'": 1}) == 1
    assert common_device({}) is None
    with pytest.raises(InputError, match="input 'a' is on GPU 0, input 'b' is on GPU 1"):
        common_device({"input 'a'": 0, "out": 0, "input 'b'": 1})


@pytest.mark.parametrize(
    ("dtype", "size"), [("float16", 2), ("bfloat16", 2), ("void16", 2), ("int8", 1), ("bool", 1)]
)
def test_bytes_of_an_element(dtype: str, size: int) -> None:
    assert DeviceArray("a", None, "other", 0, (3,), dtype).nbytes == 3 * size
