"""Where arrays are, and who computes on those in GPU memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tcusim
from device_standin import OnGpu, StandIn, halves
from tcusim.errors import BackendUnavailable, InputError
from tcusim.simulate.backend import NUMPY


def test_which_arrays_are_on_a_gpu(device: StandIn) -> None:
    x = halves(3)
    tcusim.sum(OnGpu(x))
    assert len(device.runs) == 1
    for a in (x, np.float16(3), 3, [1, 2]):
        tcusim.sum(a)
    assert len(device.runs) == 1


def test_the_arrays_library_chooses_the_backend(device: StandIn) -> None:
    class GPUArray(OnGpu):
        __module__ = "pycuda.gpuarray"

    class CupyArray(OnGpu):
        __module__ = "cupy"

    x, other = halves(10), StandIn("pycuda")
    tcusim.register_backend(other)
    tcusim.sum(OnGpu(x))
    assert (len(device.runs), len(other.runs)) == (1, 0)
    tcusim.sum(GPUArray(x))
    assert (len(device.runs), len(other.runs)) == (1, 1)
    tcusim.sum(GPUArray(x), options={"backend": "cupy"})
    assert (len(device.runs), len(other.runs)) == (2, 1)
    driver = StandIn("cuda")
    tcusim.register_backend(driver)
    for array in (CupyArray(x), GPUArray(x), OnGpu(x)):
        tcusim.sum(array)
    assert (len(device.runs), len(other.runs), len(driver.runs)) == (3, 2, 1)
    driver.reason = "no driver"
    device.reason = "CuPy is not here"
    tcusim.sum(OnGpu(x))
    assert (len(device.runs), len(other.runs)) == (3, 3)
    other.reason = "nor is PyCUDA"
    third = StandIn("third")
    tcusim.register_backend(third)
    tcusim.sum(OnGpu(x))
    assert len(third.runs) == 1
    third.reason = "no"
    with pytest.raises(BackendUnavailable) as caught:
        tcusim.sum(OnGpu(x))
    assert str(caught.value).endswith(
        "OnGpu in GPU memory. cuda: no driver; cupy: CuPy is not here; pycuda: nor is PyCUDA; "
        "third: no"
    )


def test_no_backend_for_gpu_arrays(only_backends: Callable[..., None]) -> None:
    only_backends(NUMPY)
    with pytest.raises(BackendUnavailable, match=r"no backend can compute on a .*OnGpu in GPU mem"):
        tcusim.sum(OnGpu(halves(3)))


@pytest.mark.parametrize("name", ["sum", "cumsum"])
def test_the_simulator_takes_no_gpu_arrays(device: StandIn, name: str) -> None:
    with pytest.raises(InputError) as caught:
        getattr(tcusim, name)(OnGpu(halves(3)), options={"backend": "numpy"})
    assert re.fullmatch(
        r"backend 'numpy' computes on NumPy arrays, and this is a .*OnGpu in GPU memory\. Leave "
        r"backend out, or copy the array to a NumPy array first\.",
        str(caught.value),
    )


class Compressed:
    """As much of a sparse matrix of SciPy as is asked of it."""

    def __init__(self, kind: str) -> None:
        self.format = kind
        self.data = np.array([1, 2, 3, 4], np.float32)
        self.indptr = np.array([0, 2, 2, 4], np.int32)

    def tocsr(self) -> None:
        """Be a sparse matrix."""


def test_rows_of_a_sparse_matrix() -> None:
    for kind, axes in (("csr", (1, -1)), ("csc", (0, -2))):
        for axis in axes:
            assert tcusim.segmented_sum(Compressed(kind), axis=axis).tolist() == [3, 0, 7]  # type: ignore[attr-defined]
    with pytest.raises(
        InputError, match=r"rows end to end: axis=1 sums them, and axis=0 was asked"
    ):
        tcusim.segmented_sum(Compressed("csr"), axis=0)
    for call in (tcusim.sum, tcusim.cumsum, lambda a: tcusim.segmented_sum(a, 2)):
        with pytest.raises(
            InputError,
            match=r"a is a sparse matrix. In CSR, .* pass a.data and the offsets a.indptr",
        ):
            call(Compressed("csr"))


def test_the_result_is_of_the_library_of_the_input() -> None:
    torch = pytest.importorskip("torch")
    derived = torch.ones(4).as_subclass(type("Derived", (torch.Tensor,), {}))
    by_ids = tcusim.Segments(ids=[1, 0, 1, 0], sort=True)
    results = [
        tcusim.cumsum(derived),
        tcusim.sum(derived, where=[True] * 4),
        tcusim.segmented_mean(derived, 2),
        tcusim.segmented_cumsum(derived, by_ids),
        tcusim.plan("cumsum", length=4, dtype="f4")(derived),
        tcusim.matmul(np.ones((1, 4), np.float32), derived),
        tcusim.partials(derived),
        tcusim.carries(derived),
        tcusim.combine(derived),
    ]
    assert all(isinstance(one, torch.Tensor) for one in results)
    calls: list[Any] = [
        tcusim.cumsum,
        partial(tcusim.segmented_max, segments=1),
        partial(tcusim.segmented_cumsum, segments=by_ids),
    ]
    for call in calls:
        for out in (torch.zeros(4), np.zeros(4, np.float32)):
            assert call(derived, out=out) is out
        with pytest.raises(InputError, match=r"^out must be an array of "):
            call(np.ones(4, np.float32), out=torch.zeros(4))


def test_an_out_of_a_third_library_is_refused() -> None:
    torch = pytest.importorskip("torch")
    other = pytest.importorskip("jax.numpy")
    text = r"^out must be an array of torch, as the input is, or of NumPy; got jax"
    with pytest.raises(InputError, match=text):
        tcusim.cumsum(torch.ones(4), out=other.zeros(4))
