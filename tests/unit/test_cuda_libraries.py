"""Arrays of every GPU library: described, refused, and arranged by their library."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu_standin import (
    EXPECTED,
    PROGRAM,
    Cupy,
    OnGpu,
    SpeaksDlpack,
    StandIn,
    Torch,
    X,
    aligned,
    run,
)
from tcusim.errors import BackendUnavailable, InputError
from tcusim_cuda import libraries
from tcusim_cuda.libraries import QuickLibrary, device_array, library_of, quick_library


def test_dlpack_in_the_computers_memory_is_numpy() -> None:
    assert device_array(SpeaksDlpack(X, device=(1, 0)), "in") is None


@pytest.mark.usefixtures("gpu")
def test_dlpack_describes_itself() -> None:
    described = device_array(SpeaksDlpack(X), "in")
    assert described is not None
    assert (described.shape, described.dtype, described.device) == ((512,), "float16", 0)
    assert described.contiguous


class Frozen(SpeaksDlpack):
    """An array of a library that marks its exports as read-only."""

    def __dlpack__(  # type: ignore[override]
        self, *, stream: int | None = None, max_version: tuple[int, int] | None = None
    ) -> Any:
        self.values.flags.writeable = False
        return self.values.__dlpack__(max_version=max_version)


def test_what_dlpack_marks_as_read_only_is_not_written(gpu: StandIn) -> None:
    np.testing.assert_array_equal(run(gpu, PROGRAM, {"in": Frozen(X)})["out"].values, EXPECTED)
    out = {"out": Frozen(np.zeros(32, np.float32))}
    with pytest.raises(InputError, match="out 'out' is read-only"):
        run(gpu, PROGRAM, {"in": OnGpu(X)}, out=out)
    assert gpu.launches == 1


def test_dlpack_without_cuda_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core.utils", None)
    with pytest.raises(
        BackendUnavailable, match=r"through DLPack by NVIDIA's package cuda-core, .*"
    ):
        device_array(SpeaksDlpack(X), "a")


def test_a_torch_tensor_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        is_cuda = False
        device = "cpu"

    torch = ModuleType("torch")
    torch.Tensor = Tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(InputError, match=r"input 'in' is a torch tensor on cpu\. Move it to the"):
        device_array(Tensor(), "input 'in'")


def test_a_torch_tensor_on_the_gpu(torch: Torch) -> None:
    found = device_array(Torch.Tensor(X), "a")
    assert found is not None
    assert (found.kind, found.address, found.dtype) == ("torch", X.ctypes.data, "float16")
    assert (found.device, found.stream, found.contiguous) == (0, 3, True)
    torch._C._cuda_getCurrentRawStream = lambda device: 5
    found = device_array(Torch.Tensor(X[::2]), "a")
    assert found is not None
    assert (found.stream, found.contiguous) == (5, False)


def test_results_beside_a_tensor_keep_no_memory(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Torch.Tensor, "sizes", [])
    library = quick_library(Torch.Tensor(X))
    assert library is not None
    torch.float32 = np.float32  # type: ignore[attr-defined]
    x = Torch.Tensor(aligned(X))
    made = [library.maker(x, (3, 2), "float32")() for _ in range(2)]
    assert [(one.shape, one.dtype) for one in made] == 2 * [((3, 2), "torch.float32")]
    assert made[0].data_ptr() != made[1].data_ptr()
    assert Torch.Tensor.sizes == [0, 0]
    # A long one is not even allocated for that.
    monkeypatch.setattr(libraries, "_MOST_OF_PATTERN", 5)
    assert library.maker(x, (3, 2), "float32")().shape == (3, 2)
    assert Torch.Tensor.sizes == [0, 0]
    assert (library.address(x), library.has_no_gaps(x)) == (x.data_ptr(), True)
    assert not library.has_no_gaps(Torch.Tensor(X[::2]))


def test_a_tensor_whose_gradient_would_be_lost(torch: Torch) -> None:
    tensor = Torch.Tensor(X)
    tensor.requires_grad = True
    text = r"a requires a gradient, .* pass a\.detach\(\), or call within torch\.no_grad\(\)"
    with pytest.raises(InputError, match=text):
        device_array(tensor, "a")
    torch.grad_enabled = False
    assert device_array(tensor, "a") is not None


@pytest.mark.usefixtures("torch")
def test_a_sparse_tensor() -> None:
    tensor = Torch.Tensor(X)
    tensor.layout = "torch.sparse_csr"
    with pytest.raises(
        InputError, match=r"a torch tensor of layout torch\.sparse_csr; give a dense"
    ):
        device_array(tensor, "a")


def test_jax_arrays_are_never_written_and_waited_for(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Traced(SpeaksDlpack):
        pass

    jax = ModuleType("jax")
    jax.Array = SpeaksDlpack  # type: ignore[attr-defined]
    jax.core = SimpleNamespace(Tracer=Traced)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", jax)
    out = SpeaksDlpack(np.zeros(32, np.float32))
    with pytest.raises(InputError, match="out 'out' is read-only"):
        run(gpu, PROGRAM, {"in": OnGpu(X)}, out={"out": out})
    # JAX may use the memory anew when the call has returned.
    run(gpu, PROGRAM, {"in": SpeaksDlpack(X)})
    assert gpu.driver.notes == ["launch 2 x 32 on 1", "wait for 1"]
    with pytest.raises(
        InputError, match=r"a is traced by JAX and has no values yet\. Call from outs"
    ):
        device_array(Traced(X), "a")


def test_arrays_of_xla_are_what_its_handler_is_given(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class XlaArray:
        ptr, shape, dtype, stream = X.ctypes.data, X.shape, X.dtype, 9

    module = ModuleType("tcusim.jax.ffi")
    module.XlaArray = XlaArray  # type: ignore[attr-defined]
    module.current_stream = lambda: 9  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tcusim.jax.ffi", module)
    found = device_array(XlaArray(), "a")
    assert found is not None
    assert (found.kind, found.address, found.dtype) == ("xla", X.ctypes.data, "float16")
    assert (found.device, found.stream, found.contiguous) == (0, 9, True)
    library = library_of(found)
    assert isinstance(library, QuickLibrary)
    assert library.empty(found, (3,), "f16") is None
    with pytest.raises(AssertionError, match="a handler of XLA writes to arrays that it is given"):
        library.maker(XlaArray(), (3,), "float16")
    assert gpu.launches == 0


def test_arrays_are_arranged_by_their_own_library(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", Cupy)
    x = Cupy.ndarray(aligned(X.reshape(4, 8, 16)))
    assert gpu.arranged(x, (0, 1, 2), "float16") is x
    moved = gpu.arranged(x, (0, 2, 1), "float32")
    assert moved.values.flags.c_contiguous
    np.testing.assert_array_equal(moved.values, x.values.swapaxes(1, 2))
    assert moved.dtype == np.float32
    for axes in ((2, 0, 1), (1, 0, 2), (0, 1, 2)):
        back = gpu.restored(gpu.arranged(x, axes, "float16"), axes)
        np.testing.assert_array_equal(back.values, x.values)
    shifted = Cupy.ndarray(aligned(X, shift=2))
    copy = gpu.arranged(shifted, (0,), "float16")
    assert copy.data.ptr % 32 == 0
    np.testing.assert_array_equal(copy.values, X)


class GPUArray(OnGpu):
    """An array of PyCUDA: it copies, and neither casts nor transposes."""

    def copy(self) -> GPUArray:
        return GPUArray(self.values)


@pytest.mark.parametrize("kind", [OnGpu, GPUArray])
def test_arrays_that_their_library_cannot_arrange(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch, kind: type[OnGpu]
) -> None:
    module = ModuleType("pycuda.gpuarray")
    module.GPUArray = GPUArray  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", module)
    x = kind(X)
    assert gpu.arranged(x, (0,), "float16") is x
    assert gpu.restored(x, (0,)) is x
    cases = [
        (x, (0,), "float32"),
        (kind(X, strides=(4,)), (0,), "float16"),
        (kind(X.reshape(2, 256)), (1, 0), "float16"),
    ]
    shifted = kind(X, shift=2)
    if kind is GPUArray:
        copy = gpu.arranged(shifted, (0,), "float16")
        assert copy is not shifted
        np.testing.assert_array_equal(copy.values, X)
    else:
        cases.append((shifted, (0,), "float16"))
    for array, axes, dtype in cases:
        with pytest.raises(InputError) as caught:
            gpu.arranged(array, axes, dtype)
        assert str(caught.value).endswith(
            f"{kind.__name__}, which tcusim cannot copy as it needs it: contiguous, of {dtype}, "
            "the axis of the sum or scan last. Make that copy first."
        )
