"""Helpers of tests on a GPU: its unit, the installed array libraries, and numbers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcusim_cuda import CUDA, CUPY, PYCUDA, arch_name, device_sm

# Where arrays are, with --gpu; see tests/gpu/conftest.py. None: on the current GPU.
GPU: int | None = None


def arch() -> str:
    name = arch_name(device_sm())
    if name is None:
        pytest.skip(f"no unit has the numerics of sm_{device_sm()}")
    return name


def imported(name: str) -> Any:
    """Import a GPU library, or skip."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}")


def numbers(dtype: str, *shape: int) -> NDArray[Any]:
    """Return numbers of both signs; their sums are rounded."""
    if device_sm() < 80 and dtype in ("float32", "float64"):
        pytest.skip(f"sm_{device_sm()} does not multiply {dtype}")
    x = np.random.default_rng(len(shape)).standard_normal(shape) * 20
    return x.astype(dtype)


def require_bits(got: NDArray[Any], expected: Any) -> None:
    """Assert that two arrays hold the same bits."""
    expected = np.asarray(expected)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    word = np.dtype(f"u{got.itemsize}")
    np.testing.assert_array_equal(
        np.ascontiguousarray(got).view(word), np.ascontiguousarray(expected).view(word)
    )


class Library:
    """A GPU library: how it takes an array there and back, and who launches for it."""

    def __init__(self, name: str, backend: str) -> None:
        self.name = name
        self.backend = backend

    def there(self, x: NDArray[Any]) -> Any:
        """Return a copy of a NumPy array in GPU memory."""
        if self.name == "torch":
            return importlib.import_module("torch").from_numpy(x.copy()).cuda(GPU)
        if self.name == "cupy":
            cupy = importlib.import_module("cupy")
            with cupy.cuda.Device(GPU):
                return cupy.asarray(x)
        return importlib.import_module("pycuda.gpuarray").to_gpu(np.ascontiguousarray(x))

    def back(self, a: Any) -> NDArray[Any]:
        """Return a copy of an array in GPU memory."""
        values: NDArray[Any]
        values = a.cpu().numpy() if self.name == "torch" else a.get()
        return values

    def is_own(self, a: Any) -> bool:
        """Return whether an array is this library's."""
        return type(a).__module__.split(".")[0] == self.name

    def require_bits(self, a: Any, expected: Any) -> None:
        """Compare an array in GPU memory bit for bit; it must be this library's."""
        assert self.is_own(a)
        require_bits(self.back(a), expected)


def library_of(name: str, backend: str) -> Library:
    """Return the library of a backend's arrays; skip where one of them is missing."""
    launcher = {"cuda": CUDA, "cupy": CUPY, "pycuda": PYCUDA}[backend]
    reason = launcher.available()
    if reason is not None:
        pytest.skip(f"{backend}: {reason}")
    # PyCUDA's own arrays need a context: the one that the other libraries use as well.
    pytest.importorskip("pycuda.autoprimaryctx" if name == "pycuda" else name)
    if name == "torch" and not importlib.import_module("torch").cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return Library(name, backend)
