"""What launchers share, without a GPU: arrays are described, checked and handed to the kernel.

The GPU is a stand-in whose memory is the computer's own, and which computes as the simulator does.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from bindings_standin import Bindings, memory
from tcusim import backends
from tcusim.algorithms import build
from tcusim.errors import BackendUnavailable, InputError, Unsupported
from tcusim.machine import format_of
from tcusim.machine.formats import to_memory, unwritten_values
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan, Memory, PlanBuilder
from tcusim.simulate.backend import NUMPY
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda import CUDA, CUPY, PYCUDA, driver, runtime
from tcusim_cuda import session as launch_session
from tcusim_cuda.arrays import (
    DeviceArray,
    common_device,
    from_bits,
    host_bits,
    require_fit,
)
from tcusim_cuda.cubin import Usage
from tcusim_cuda.driver import Driver, DriverError, arch_name
from tcusim_cuda.emit import emit
from tcusim_cuda.launch import Launcher
from tcusim_cuda.libraries import device_array
from tcusim_cuda.runtime import Call, LaunchError, Loaded, Place, Runtime, Stream

PROGRAM = build("reduction_k")


X = np.arange(512).astype(np.float16)


EXPECTED = run_numpy(PROGRAM, {"in": X})["out"]


def aligned(values: NDArray[Any], shift: int = 0) -> NDArray[Any]:
    """Return a copy that begins `shift` bytes past a multiple of 256."""
    room = np.zeros(values.nbytes + 512, np.uint8)
    start = -room.ctypes.data % 256 + shift
    copy = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


class OnGpu:
    """An object with the CUDA array interface, in the memory of a NumPy array."""

    def __init__(self, values: NDArray[Any], *, shift: int = 0, **changes: Any) -> None:
        self.values = aligned(values, shift)
        self.interface = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (self.values.ctypes.data, False),
            "strides": None,
            "version": 3,
            **changes,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface


class SpeaksDlpack:
    """An object that has DLPack alone."""

    def __init__(self, values: NDArray[Any], device: tuple[int, int] = (2, 0)) -> None:
        self.values = aligned(values)
        self.device = device
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: int | None = None) -> Any:
        self.streams.append(stream)
        return self.values.__dlpack__()


class StandInDriver:
    """As much of `Driver` as launching takes; it notes what it is asked to do."""

    number_of_sm = 90
    shared = 232448
    home = (0, 0)

    def __init__(self) -> None:
        self.notes: list[str] = []

    def sm(self, device: int) -> int:
        return self.number_of_sm

    def shared_bytes(self, device: int) -> int:
        return self.shared

    def title(self, device: int) -> str:
        return "Stand-in"

    def current_device(self) -> int:
        return 0

    def current_context(self) -> int:
        return 7

    def primary_context(self, device: int) -> int:
        return 7

    def context_id(self, context: int) -> int:
        return context

    def restored_context(self) -> Any:
        return contextlib.nullcontext()

    def home_of(self, address: int, name: str) -> tuple[int, int]:
        return self.home

    def order(self, first: int, then: int) -> None:
        if not driver.same_stream(first, then):
            self.notes.append(f"{then} waits for {first}")

    def copy_back(self, address: int, values: NDArray[Any], stream: int) -> None:
        self.notes.append(f"copy {values.nbytes} bytes back on {stream}")
        values[...] = memory(address, values.size, values.dtype)

    def wait(self, stream: int) -> None:
        self.notes.append(f"wait for {stream}")

    def copy_there(self, values: NDArray[Any], address: int, stream: int) -> None:
        memory(address, values.size, values.dtype)[...] = values.reshape(-1)

    def clear(self, address: int, nbytes: int, stream: int) -> None:
        self.notes.append(f"clear {nbytes} bytes on {stream}")

    def clear_rows(self, address: int, rows: int, nbytes: int, pitch: int, stream: int) -> None:
        self.notes.append(f"clear {rows} x {nbytes} bytes on {stream}")
        for row in range(rows):
            memory(address + row * pitch, nbytes, np.uint8)[...] = 0

    def copy_rows(
        self, source: int, target: int, rows: int, nbytes: int, pitch: int, stream: int
    ) -> None:
        self.notes.append(f"copy {rows} x {nbytes} bytes on {stream}")
        for row in range(rows):
            there = memory(target + row * pitch, nbytes, np.uint8)
            there[...] = memory(source + row * nbytes, nbytes, np.uint8)

    def poison(self, address: int, size: int, form: Any, stream: int) -> None:
        self.notes.append(f"poison {size} {form.name} on {stream}")
        value = np.nan if form.is_float else np.iinfo(form.dtype).min
        memory(address, size, form.dtype)[...] = value


def word_at(address: int) -> int:
    """Return the 64-bit integer at an address."""
    return ctypes.c_int64.from_address(address).value


class StandIn(Launcher):
    """A launcher whose kernels are run by the simulator."""

    name = "stand-in"
    title = "no GPU"
    module = "numpy"
    remedy = "It is here."
    fails: Exception | None = None
    launches = 0
    long_ways = 0

    def __init__(self, driver: StandInDriver) -> None:
        super().__init__()
        self.driver = driver
        self.made = self.loadings = 0
        self.texts: list[str] = []

    def available(self) -> str | None:
        return None

    @contextlib.contextmanager
    def active(self, place: Place) -> Iterator[None]:
        yield

    def open_stream(self, handle: int, given: Any, place: Place) -> Stream:
        return Stream(handle)

    def default_stream(self, place: Place) -> int:
        return 0

    def loaded(self, kernels: Sequence[Any], place: Place) -> tuple[Loaded, ...]:
        self.loadings += len(kernels)
        self.texts += [kernel.text for kernel in kernels]
        usage = Usage(40, 1536, 0, 100, {"HMMA": 2})
        return tuple(Loaded(kernel.program, usage) for kernel in kernels)

    def load(self, cubin: bytes, kernel: Any) -> Any:
        return kernel.name

    def launch(self, call: Call, stream: Stream) -> None:
        self.launches += 1
        if self.fails is not None:
            raise self.fails
        function: Program = call.function
        blocks, threads, _ = call.sizes
        arguments = [word_at(address) for address in call.pointers]
        self.driver.notes.append(f"launch {blocks} x {threads} on {stream.handle}")
        buffers = (*function.inputs, *function.outputs)
        # Behind the buffers lies the memory for status words, of which the simulator has its own.
        numbers = arguments[len(buffers) + bool(function.status) :]
        scalars = {
            scalar.name: value for scalar, value in zip(function.scalars, numbers, strict=True)
        }
        arrays = {
            buffer.name: memory(
                address, buffer.size.evaluate(scalars), format_of(buffer.dtype).memory_dtype
            )
            for buffer, address in zip(buffers, arguments, strict=False)
        }
        inputs = {b.name: from_bits(arrays[b.name], b.dtype) for b in function.inputs}
        for name, values in run_numpy(function, inputs).items():
            arrays[name][...] = host_bits(values, function.buffer(name).dtype, name)

    def memory(self, like: Any, nbytes: int, stream: Stream) -> tuple[Any, int]:
        self.made += 1
        owner = aligned(np.zeros(nbytes, np.uint8))
        return owner, owner.ctypes.data

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str, stream: Stream) -> Any:
        self.made += 1
        return OnGpu(np.zeros(shape, format_of(dtype).memory_dtype))

    def errors(self) -> tuple[type[Exception], ...]:
        return (ZeroDivisionError,)


def run(gpu: StandIn, program: Program, inputs: Any, **options: Any) -> dict[str, Any]:
    """Run a program as a plan of one launch."""
    return backends.run(program, inputs, backend=gpu, **options)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandInDriver()
    monkeypatch.setattr(Driver, "open", lambda: stand_in)
    return StandIn(stand_in)


# --- NumPy arrays ----------------------------------------------------------------------------


def test_numpy_in_numpy_out(gpu: StandIn) -> None:
    result = run(gpu, PROGRAM, {"in": X})
    np.testing.assert_array_equal(result["out"], EXPECTED)
    assert type(result["out"]) is np.ndarray
    assert gpu.driver.notes == ["launch 2 x 32 on 0", "copy 128 bytes back on 0"]


def test_an_array_of_another_type_that_holds_the_same_values(gpu: StandIn) -> None:
    result = run(gpu, PROGRAM, {"in": X.astype(np.float64).tolist()})
    np.testing.assert_array_equal(result["out"], EXPECTED)
    with pytest.raises(InputError, match=r"input 'in'.*cannot hold its element \[0\] = 0\.1"):
        run(gpu, PROGRAM, {"in": np.full(512, 0.1)})


def test_bf16_travels_as_bits(gpu: StandIn) -> None:
    program = build("scan_k", ab="bf16", result="bf16")
    x = np.where(np.arange(512) % 7, 1.0, -2.5).astype(np.float32)
    result = run(gpu, program, {"in": x})["out"]
    expected = run_numpy(program, {"in": x})["out"]
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))


def test_bf16_bits_of_every_kind_of_value() -> None:
    odd_nan = np.array([0x7F800001], np.uint32).view(np.float32)[0]
    values = np.array([1.0, -0.0, np.inf, -np.inf, 2.0**-133, odd_nan], np.float32)
    bits = host_bits(values, "bf16", "in")
    assert bits.dtype == np.uint16
    assert [hex(b) for b in bits] == ["0x3f80", "0x8000", "0x7f80", "0xff80", "0x1", "0x7fc0"]
    back = from_bits(bits, "bf16").astype(np.float32)
    np.testing.assert_array_equal(back, values)


def test_out_is_written_and_returned(gpu: StandIn) -> None:
    out = np.empty(32, np.float32)
    assert run(gpu, PROGRAM, {"in": X}, out={"out": out})["out"] is out
    np.testing.assert_array_equal(out, EXPECTED)


def test_outs_that_do_not_fit(gpu: StandIn) -> None:
    frozen = np.empty(32, np.float32)
    frozen.flags.writeable = False
    for out, said in (
        (np.empty(31, np.float32), r"out 'out' must have shape \(32,\), got \(31,\)"),
        (np.empty(32, np.float64), "out 'out' must be of float32, got float64"),
        (frozen, "out 'out' is read-only"),
        ([0.0] * 32, "out 'out' must be a NumPy array, as the inputs are"),
    ):
        with pytest.raises(InputError, match=said):
            run(gpu, PROGRAM, {"in": X}, out={"out": out})
    with pytest.raises(InputError, match="reduction_k has no output 'sum' for out=; its out"):
        run(gpu, PROGRAM, {"in": X}, out={"sum": np.empty(32, np.float32)})
    assert gpu.launches == 0


def test_inputs_that_do_not_fit(gpu: StandIn) -> None:
    with pytest.raises(InputError, match="inputs must be in; got x"):
        run(gpu, PROGRAM, {"x": X})
    with pytest.raises(InputError, match="length = 500 is not a multiple of 256"):
        run(gpu, PROGRAM, {"in": X[:500]})
    with pytest.raises(InputError, match=r"must be flat \(one axis\), got shape \(2, 256\)"):
        run(gpu, PROGRAM, {"in": X.reshape(2, 256)})


def test_nothing_is_launched_for_no_elements(gpu: StandIn) -> None:
    result = run(gpu, PROGRAM, {"in": X[:0]})
    assert result["out"].shape == (0,)
    assert gpu.launches == 0


def test_poison_comes_before_the_launch(gpu: StandIn) -> None:
    run(gpu, PROGRAM, {"in": X}, poison=True)
    assert gpu.driver.notes[:-1] == ["poison 32 f32 on 0", "launch 2 x 32 on 0"]


# --- Arrays that are on the GPU --------------------------------------------------------------


def test_the_array_interface_is_used_in_place(gpu: StandIn) -> None:
    array = OnGpu(X)
    result = run(gpu, PROGRAM, {"in": array})["out"]
    assert isinstance(result, OnGpu)
    np.testing.assert_array_equal(result.values, EXPECTED)


def test_dlpack_is_used_in_place(gpu: StandIn) -> None:
    array = SpeaksDlpack(X)
    result = run(gpu, PROGRAM, {"in": array})["out"]
    np.testing.assert_array_equal(result.values, EXPECTED)
    # 1 is DLPack's name of the default stream.
    assert set(array.streams) == {1}


def test_dlpack_in_the_computers_memory_is_numpy() -> None:
    assert device_array(SpeaksDlpack(X, device=(1, 0)), "in") is None


def test_dlpack_describes_itself() -> None:
    described = device_array(SpeaksDlpack(X), "in")
    assert described is not None
    assert (described.shape, described.dtype, described.device) == ((512,), "float16", 0)
    assert described.contiguous


def test_a_program_that_is_run_again_is_ready(gpu: StandIn) -> None:
    program = build("scan_single_pass", masked=True)
    for length in (512, 512, 700):
        x = np.arange(length).astype(np.float16)
        result = run(gpu, program, {"in": OnGpu(x)})["out"]
        np.testing.assert_array_equal(result.values, run_numpy(program, {"in": x})["out"])
    # Memory for the status words of two sizes, and three results.
    assert (gpu.loadings, gpu.made) == (2, 2 + 3)


def test_out_on_the_gpu(gpu: StandIn) -> None:
    out = OnGpu(np.zeros(32, np.float32))
    assert run(gpu, PROGRAM, {"in": OnGpu(X)}, out={"out": out})["out"] is out
    np.testing.assert_array_equal(out.values, EXPECTED)


def test_streams_wait_for_each_other(gpu: StandIn) -> None:
    out = OnGpu(np.zeros(32, np.float32), stream=5)
    run(gpu, PROGRAM, {"in": OnGpu(X, stream=3)}, out={"out": out})
    assert gpu.driver.notes == ["3 waits for 5", "launch 2 x 32 on 3", "5 waits for 3"]


@pytest.mark.parametrize(
    "stream",
    [
        9,
        SimpleNamespace(ptr=9),
        SimpleNamespace(handle=9),
        SimpleNamespace(cuda_stream=9),
        SimpleNamespace(__cuda_stream__=lambda: (0, 9)),
    ],
)
def test_a_stream_of_any_library(gpu: StandIn, stream: Any) -> None:
    run(gpu, PROGRAM, {"in": OnGpu(X)}, stream=stream)
    assert "launch 2 x 32 on 9" in gpu.driver.notes


def test_not_a_stream(gpu: StandIn) -> None:
    with pytest.raises(InputError, match="stream must be a stream of CuPy, PyCUDA, torch or cuda"):
        run(gpu, PROGRAM, {"in": OnGpu(X)}, stream="fast")


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (OnGpu(X, shape=(2, 256)), r"must be flat \(one axis\), got shape \(2, 256\)"),
        (OnGpu(X, strides=(4,)), "has gaps between its elements"),
        (OnGpu(X, typestr="<f4", shape=(256,)), r"must be of float16 \(f16\), got float32"),
        (OnGpu(X, shift=2), "which is not a multiple of 32 bytes"),
        (OnGpu(X, mask=object()), "has a mask"),
    ],
)
def test_gpu_arrays_that_do_not_fit(gpu: StandIn, array: OnGpu, said: str) -> None:
    with pytest.raises(InputError, match=f"input 'in'.*{said}"):
        run(gpu, PROGRAM, {"in": array})
    assert gpu.launches == 0


def test_gpu_outs_that_do_not_fit(gpu: StandIn) -> None:
    array = OnGpu(X)
    start = array.values.ctypes.data
    out = np.zeros(32, np.float32)
    for given, said in (
        (OnGpu(out[:8]), "out 'out' must have 32 elements, it has 8"),
        (OnGpu(out, data=(start - 32, False)), "out 'out' overlaps input 'in' in memory"),
        (OnGpu(out, data=(aligned(out).ctypes.data, True)), "out 'out' is read-only"),
        (out, "'out' is not in GPU memory, but input 'in' is"),
    ):
        with pytest.raises(InputError, match=said):
            run(gpu, PROGRAM, {"in": array}, out={"out": given})
    assert gpu.launches == 0


def test_an_array_beside_another_does_not_overlap(gpu: StandIn) -> None:
    both = aligned(np.zeros(512 + 64, np.float16))
    start = both.ctypes.data
    array = OnGpu(X, data=(start, False))
    out = OnGpu(np.zeros(32, np.float32), data=(start + 1024, False))
    run(gpu, PROGRAM, {"in": array}, out={"out": out})
    assert gpu.launches == 1


def test_only_tiles_that_wmma_moves_must_be_aligned() -> None:
    assert emit(PROGRAM).tiled == {"in"} | {b.name for b in PROGRAM.scratch}
    array = DeviceArray("input 'in'", None, "other", 34, (512,), "float16")
    require_fit(array, PROGRAM.inputs[0], tiles=False)
    with pytest.raises(InputError, match="begins at address 0x22, which is not a multiple of 32"):
        require_fit(array, PROGRAM.inputs[0], tiles=True)


def test_arrays_on_two_gpus() -> None:
    one = DeviceArray("input 'a'", None, "cupy", 0, (1,), "float16", device=0)
    two = DeviceArray("input 'b'", None, "cupy", 0, (1,), "float16", device=1)
    unsaid = DeviceArray("input 'c'", None, "other", 0, (0,), "float16")
    assert common_device([unsaid, two]) == 1
    assert common_device([unsaid]) is None
    with pytest.raises(InputError, match="input 'a' is on GPU 0, input 'b' is on GPU 1"):
        common_device([one, unsaid, two])


def test_a_torch_tensor_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        is_cuda = False
        device = "cpu"

    torch = ModuleType("torch")
    torch.Tensor = Tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(InputError, match=r"input 'in' is a torch tensor on cpu\. Move it to the"):
        device_array(Tensor(), "input 'in'")


def work_on(stream: Any) -> contextlib.AbstractContextManager[None]:
    """Note the stream that a caller has made torch's own."""
    Torch.streams.append(stream)
    return contextlib.nullcontext()


class Torch(ModuleType):
    """As much of torch as describing a tensor takes."""

    strided = "strided"
    streams: list[Any] = []  # noqa: RUF012
    cuda = SimpleNamespace(
        current_stream=lambda device: SimpleNamespace(cuda_stream=3),
        stream=work_on,
        default_stream=lambda device: "default",
        ExternalStream=lambda handle, device: handle,
    )
    _C = SimpleNamespace()
    uint8 = np.uint8
    grad_enabled = True

    def is_grad_enabled(self) -> bool:
        return self.grad_enabled

    class Tensor:
        is_cuda = True
        layout = "strided"
        requires_grad = False
        device = SimpleNamespace(index=0)

        def __init__(self, values: NDArray[Any]) -> None:
            self.values, self.shape = values, values.shape
            self.dtype = f"torch.{values.dtype}"

        def data_ptr(self) -> int:
            return self.values.ctypes.data

        def is_contiguous(self) -> bool:
            return self.values.flags.c_contiguous

        def new_empty(self, shape: tuple[int, ...], dtype: Any) -> Torch.Tensor:
            return Torch.Tensor(aligned(np.zeros(shape, dtype)))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    module = Torch("torch")
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_a_torch_tensor_on_the_gpu(torch: Torch) -> None:
    found = device_array(Torch.Tensor(X), "a")
    assert found is not None
    assert (found.kind, found.address, found.dtype) == ("torch", X.ctypes.data, "float16")
    assert (found.device, found.stream, found.contiguous) == (0, 3, True)
    torch._C._cuda_getCurrentRawStream = lambda device: 5
    found = device_array(Torch.Tensor(X[::2]), "a")
    assert found is not None
    assert (found.stream, found.contiguous) == (5, False)


def test_a_tensor_whose_gradient_would_be_lost(torch: Torch) -> None:
    tensor = Torch.Tensor(X)
    tensor.requires_grad = True
    text = r"a requires a gradient, .* Pass a\.detach\(\), or call within torch\.no_grad\(\)"
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


@pytest.mark.usefixtures("torch")
def test_torch_gives_memory_for_its_tensors_on_the_stream(gpu: StandIn) -> None:
    like = device_array(Torch.Tensor(aligned(X)), "a")
    for stream, expected in ((3, 3), (0, "default"), (1, "default")):
        Torch.streams.clear()
        owner, address = CUDA.memory(like, 100, Stream(stream))
        assert isinstance(owner, Torch.Tensor)
        assert (owner.shape, address) == ((100,), owner.data_ptr())
        assert Torch.streams == [expected]


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


class Frozen(SpeaksDlpack):
    """An array whose library marks what it exports as read-only."""

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


# --- Plans -----------------------------------------------------------------------------------


LONG = np.random.default_rng(0).integers(-9, 10, 3 * 2**14 + 5).astype(np.float16)


def session_of(gpu: Any, plan: tcusim.Plan | tcusim.ProductPlan) -> Any:
    return gpu.prepare(plan.launch_plan, plan.arch)


def in_chunks(operation: str = "cumsum", result: str = "f16") -> LaunchPlan:
    """Return several launches that sum or scan LONG: chunks by warps, and then what these found."""
    draft = PlanBuilder(Memory("in", "f16", LONG.size))
    chunks: dict[str, Any] = {"segment_size": 2**14, "masked": True, "combine": "add"}
    few: dict[str, Any] = {"segment_size": 4, "masked": True, "source": "f32"}
    sums = draft.add(build("reduction_tn", **chunks), {"in": "in"}, "sums")
    if operation == "sum":
        draft.add(build("reduction_simt", result=result, **few), {"in": sums}, "out")
    else:
        carry = draft.add(build("scan_simt", exclusive=True, **few), {"in": sums}, "carries")
        scan = build("scan_tn", carry=True, result=result, **chunks)
        draft.add(scan, {"in": "in", "carry": carry}, "out")
    return draft.finish("a plan in chunks")


def chunked(operation: str = "cumsum", result: str = "f16", x: Any = LONG) -> Any:
    """Return what the simulator computes by several launches."""
    return NUMPY.run(in_chunks(operation, result), {"in": x}, arch="hopper")["out"]


def prepared(gpu: StandIn, operation: str = "cumsum", **options: Any) -> Any:
    """Return a session for an array like LONG."""
    return session_of(gpu, tcusim.plan(operation, length=LONG.size, **options))


def test_a_plan_runs_on_the_gpu_again_and_again(gpu: StandIn) -> None:
    expected = chunked(result="f32")
    session = gpu.prepare(in_chunks(result="f32"), "hopper")
    for number in range(3):
        result = session.run({"in": OnGpu(LONG)}, shape=(LONG.size,))
        assert isinstance(result, OnGpu)
        assert result.values.tobytes() == expected.tobytes()
        assert gpu.launches == 3 * (number + 1)
        # Memory for temporaries, and the result.
        assert gpu.made == 1 + number + 1
        assert gpu.loadings == 3


def test_each_stream_has_temporaries_of_its_own(gpu: StandIn) -> None:
    session = gpu.prepare(in_chunks(result="f32"), "hopper")
    x, out = OnGpu(LONG), OnGpu(np.zeros(LONG.size, np.float32))
    for stream in (*range(1, 9), 1):
        session.run({"in": x}, out=out, shape=(LONG.size,), stream=stream)
    assert gpu.made == 8
    session.run({"in": x}, out=out, shape=(LONG.size,), stream=9)
    session.run({"in": x}, out=out, shape=(LONG.size,), stream=1)
    assert gpu.made == 10
    session.forget()
    session.run({"in": x}, out=out, shape=(LONG.size,), stream=1)
    assert gpu.made == 11


def test_a_plan_waits_once_for_the_streams_of_its_arrays(gpu: StandIn) -> None:
    session = gpu.prepare(in_chunks("sum"), "hopper")
    out = OnGpu(np.zeros((), np.float16), stream=5)
    assert session.run({"in": OnGpu(LONG, stream=3)}, out=out, shape=()) is out
    assert out.values == chunked("sum")
    assert gpu.driver.notes == [
        "3 waits for 5", "launch 4 x 32 on 3", "launch 1 x 32 on 3", "5 waits for 3",
    ]  # fmt: skip


def test_offsets_on_the_gpu(gpu: StandIn) -> None:
    edges = np.array([0, 3, 3, 40_000, LONG.size])
    expected = tcusim.segmented_cumsum(LONG, offsets=edges, reverse=True)
    plan = tcusim.plan("segmented_cumsum", length=LONG.size, segments=4, reverse=True)
    session = session_of(gpu, plan)
    x = OnGpu(LONG, stream=3)
    offsets = OnGpu(edges, stream=4)
    np.testing.assert_array_equal(gpu.to_host(offsets), edges)
    for there in (offsets, gpu.to_device(edges, x)):
        result = session.run({"in": x, "offsets": there}, shape=(LONG.size,))
        np.testing.assert_array_equal(result.values, expected)
    assert gpu.driver.notes[0] == "copy 40 bytes back on 4"
    assert {"3 waits for 4", "4 waits for 3"} < set(gpu.driver.notes)
    # A copy of the offsets, memory for what lies between the launches, and two results.
    assert gpu.made == 1 + 1 + 2


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        (
            np.zeros(4, np.int64),
            "offsets must have 5 elements, it has 4; Plan.* is for no other size",
        ),
        (np.zeros(5, np.int32), r"offsets must be of int64 \(s64\), got int32"),
    ],
)
def test_offsets_that_a_session_does_not_take(gpu: StandIn, offsets: Any, said: str) -> None:
    session = session_of(gpu, tcusim.plan("segmented_cumsum", length=LONG.size, segments=4))
    with pytest.raises(InputError, match=said):
        session.run({"in": OnGpu(LONG), "offsets": OnGpu(offsets)}, shape=(LONG.size,))


def test_outs_that_overlap_offsets_or_lie_by_them(gpu: StandIn) -> None:
    both = np.zeros(100, np.int64)
    both[1:3] = 8, 16
    offsets = OnGpu(both[:3])
    x = OnGpu(np.ones(16, np.float16))
    session = session_of(gpu, tcusim.plan("segmented_cumsum", length=16, segments=2))
    start = offsets.values.ctypes.data
    out = OnGpu(np.zeros(16, np.float16), data=(start, False))
    with pytest.raises(InputError, match="out overlaps offsets in memory"):
        session.run({"in": x, "offsets": offsets}, out=out, shape=(16,))
    wide = session_of(gpu, tcusim.plan("segmented_cumsum", length=16, segments=2, result="float32"))
    beside = OnGpu(np.zeros(16, np.float32), data=(x.values.ctypes.data, False))
    with pytest.raises(InputError, match=r"out overlaps a in memory\. Give an array of its own"):
        wide.run({"in": x, "offsets": offsets}, out=beside, shape=(16,))
    assert gpu.launches == 0


@pytest.mark.parametrize("longest", [None, 32])
def test_a_scan_by_offsets_in_place(gpu: StandIn, longest: int | None) -> None:
    rng = np.random.default_rng()
    edges = np.cumsum([0, *rng.integers(0, 33, 300)])
    x = rng.standard_normal(edges[-1]).astype(np.float16)
    plan = tcusim.plan("segmented_cumsum", length=x.size, segments=300, longest=longest)
    expected = plan(x, offsets=edges)
    a = OnGpu(x)
    given = {"in": a, "offsets": OnGpu(edges)}
    assert session_of(gpu, plan).run(given, out=a, shape=x.shape) is a
    assert a.values.tobytes() == expected.tobytes()
    # Only the last launch writes over what it reads.
    restricted = ["__restrict__" in text for text in gpu.texts]
    assert restricted == [True] * (len(plan.launches) - 1) + [False]
    assert (len(plan.launches) == 1) == (longest is not None)


def test_a_plan_of_a_product_runs_on_the_gpu(gpu: StandIn) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((40, 30), (30, 20)))
    session = session_of(gpu, tcusim.plan_product("matmul", rows=40, inner=30, cols=20))
    there = {"in": OnGpu(a, stream=3), "b": OnGpu(b, stream=4)}
    for launches in (1, 2):
        result = session.run(there, shape=(40, 20))
        assert result.values.tobytes() == tcusim.matmul(a, b).tobytes()
        assert (gpu.launches, gpu.loadings) == (launches, 1)
    start = there["b"].values.ctypes.data
    for out, said in (
        (OnGpu(np.zeros((40, 20), np.float16), data=(start, False)), "out overlaps b in memory. "
         "Give an array of its own."),
        (OnGpu(np.zeros((20, 40), np.float16)), "out must be an array of float16, shape (40, 20)"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=re.escape(said)):
            session.run(there, out=out, shape=(40, 20))
    same = OnGpu(rng.standard_normal((64, 64)).astype(np.float16))
    square = session_of(gpu, tcusim.plan_product("matmul", rows=64, inner=64, cols=64))
    with pytest.raises(InputError, match=r"in place: warp 0 reads a\[32\], but warp 1 writes out"):
        square.run({"in": same, "b": OnGpu(same.values)}, out=same, shape=(64, 64))


@pytest.mark.parametrize(("rows", "cols", "apart"), [(16, 16, 0), (3, 20, 2), (5, 7, 0)])
def test_a_plan_of_a_product_runs_on_parts(gpu: StandIn, rows: int, cols: int, apart: int) -> None:
    rng = np.random.default_rng()
    a = rng.standard_normal((4, rows, 30)).astype(np.float16)
    b = rng.standard_normal((2, 30, cols)).astype(np.float16)
    c = rng.standard_normal((4, rows, cols)).astype(np.float32)
    expected = tcusim.matmul(a, b[[0, 0, 1, 1]], c, dtype="float32")
    plan = tcusim.plan_product(
        "matmul", rows=rows, inner=30, cols=cols, add_c=True, result="float32"
    )
    size = rows * cols
    starts = [
        {"in": i * rows * 30, "b": i // 2 * 30 * cols, "c": i * size, "out": i * size}
        for i in range(4)
    ]
    there = {"in": OnGpu(a), "b": OnGpu(b), "c": OnGpu(c)}
    out = OnGpu(np.full_like(c, np.nan), stream=5)
    session = session_of(gpu, plan)
    assert session.run(there, out=out, shape=c.shape, stream=3, starts=starts) is out
    assert out.values.tobytes() == expected.tobytes()
    assert (gpu.launches, gpu.loadings) == (4, 1)
    # Tiles neither are read nor written at odd multiples of 16 bytes.
    work = [note.replace("1 x 32 ", "") for note in gpu.driver.notes if "waits" not in note]
    launch, copy = "launch on 3", f"copy 1 x {4 * size} bytes on 3"
    assert work == (2 * [launch, copy, launch, copy] if apart else 4 * [launch])
    assert gpu.made == apart
    for other in {0, 5}:
        assert f"3 waits for {other}" in gpu.driver.notes[:2]
        assert f"{other} waits for 3" in gpu.driver.notes[-2:]
    made = session.run(there, shape=c.shape, starts=starts)
    assert made.values.tobytes() == expected.tobytes()
    over = OnGpu(c, data=(there["c"].values.ctypes.data, False))
    with pytest.raises(InputError, match=r"out overlaps c in memory\. Give an array of its own"):
        session.run(there, out=over, shape=c.shape, starts=starts)


def test_status_words_are_cleared_before_each_launch(gpu: StandIn) -> None:
    session = prepared(gpu, result="float32", algorithm="scan_single_pass")
    (step,) = session.prepared.steps
    assert step.status_bytes > 0
    expected = tcusim.cumsum(LONG, dtype="f4", algorithm="scan_single_pass")
    for _ in range(2):
        result = session.run({"in": OnGpu(LONG)}, shape=(LONG.size,))
        np.testing.assert_array_equal(result.values, expected)
    cleared = -(-step.status_bytes // 256) * 256
    assert gpu.driver.notes == 2 * [
        f"clear {cleared} bytes on 0", f"launch {step.blocks} x 32 on 0",
    ]  # fmt: skip
    # The memory for status words, which is kept, and two results.
    assert gpu.made == 1 + 2


def test_a_plan_takes_arrays_of_any_shape(gpu: StandIn) -> None:
    x = LONG[: 64 * 64].reshape(64, 64)
    session = session_of(gpu, tcusim.plan("segmented_cumsum", length=x.size, segment_size=64))
    result = session.run({"in": OnGpu(x)}, shape=x.shape)
    np.testing.assert_array_equal(result.values, x.cumsum(1))


def test_a_scan_in_place_is_compiled_without_restrict(gpu: StandIn) -> None:
    session = gpu.prepare(in_chunks(), "hopper")
    expected = chunked()
    session.run({"in": OnGpu(LONG)}, shape=(LONG.size,))
    assert all("__restrict__" in text for text in gpu.texts)
    gpu.texts.clear()
    x = OnGpu(LONG)
    assert session.run({"in": x}, out=x, shape=(LONG.size,)) is x
    assert x.values.tobytes() == expected.tobytes()
    # The sums of chunks and their scan do not write over what they read.
    assert ["__restrict__" in text for text in gpu.texts] == [True, True, False]
    assert emit(PROGRAM).aliased().text == emit(PROGRAM).text.replace(" __restrict__", "")


@pytest.mark.parametrize("initial", ["first", "last"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 512), (1, 20_001), (7, 100), (33, 16)])
@pytest.mark.parametrize(
    ("dtype", "result"), [("float16", "float16"), ("float16", "float32"), ("int8", "int32")]
)
def test_rows_with_an_initial_zero(
    gpu: StandIn, dtype: str, result: str, rows: int, columns: int, initial: Any
) -> None:
    x = np.random.default_rng().integers(-9, 10, (rows, columns)).astype(dtype)
    plan = tcusim.plan(
        "segmented_cumsum",
        length=x.size,
        segment_size=columns,
        dtype=dtype,
        result=result,
        reverse=initial == "last",
    )
    scan, zeros = plan(x), np.zeros((rows, 1), result)
    expected = np.concatenate([zeros, scan] if initial == "first" else [scan, zeros], axis=1)
    session, shape = session_of(gpu, plan), (rows, columns + 1)
    made = session.run({"in": OnGpu(x)}, shape=shape, initial=initial)
    assert made.values.tobytes() == expected.tobytes()
    # Before and behind the result, nothing may be written.
    poison = np.full(expected.size + 20, -1 if result == "int32" else np.nan, result)
    around = OnGpu(poison)
    start = around.values.ctypes.data + 10 * poison.itemsize
    out = OnGpu(expected, data=(start, False))
    assert session.run({"in": OnGpu(x)}, out=out, shape=shape, initial=initial) is out
    assert around.values[10:-10].tobytes() == expected.tobytes()
    for edge in (slice(10), slice(-10, None)):
        assert around.values[edge].tobytes() == poison[edge].tobytes()


@pytest.mark.parametrize(
    ("rows", "result", "initial", "copied"),
    [
        (1, "float16", "first", True),
        (1, "float32", "first", True),
        (1, "float16", "last", False),
        (1, "float32", "last", False),
        (2, "float16", "last", True),
    ],
)
def test_one_row_is_scanned_where_it_belongs(
    gpu: StandIn, rows: int, result: str, initial: Any, copied: bool
) -> None:
    x = OnGpu(X.reshape(rows, -1), stream=3)
    columns = X.size // rows
    plan = tcusim.plan(
        "segmented_cumsum", length=X.size, segment_size=columns, result=result, algorithm="scan_tn"
    )
    out = OnGpu(np.full((rows, columns + 1), np.nan, result), stream=5)
    session_of(gpu, plan).run({"in": x}, out=out, shape=out.values.shape, initial=initial)
    # All on one stream, which waits for the others before, and they for it afterwards.
    item = out.values.itemsize
    copy = [f"copy {rows} x {columns * item} bytes on 3"] if copied else []
    done = [f"launch {rows} x 32 on 3", *copy, f"clear {rows} x {item} bytes on 3"]
    others = (5, 0) if copied else (5,)
    notes, count = gpu.driver.notes, len(others)
    assert notes[count:-count] == done
    assert set(notes[:count]) == {f"3 waits for {other}" for other in others}
    assert set(notes[-count:]) == {f"{other} waits for 3" for other in others}
    assert gpu.made == copied


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (
            np.zeros(512, np.float16),
            r"out must be an array of float16, shape \(513,\); got float16",
        ),
        (
            np.zeros(513, np.float32),
            r"out must be an array of float16, shape \(513,\); got float32",
        ),
    ],
)
def test_outs_that_do_not_fit_an_initial_zero(gpu: StandIn, out: Any, said: str) -> None:
    session = session_of(gpu, tcusim.plan("cumsum", length=512))
    x, right = OnGpu(X), np.zeros(513, np.float16)
    options: dict[str, Any] = {"shape": (513,), "initial": "first"}
    with pytest.raises(InputError, match=said):
        session.run({"in": x}, out=OnGpu(out), **options)
    with pytest.raises(InputError, match="out has gaps between its elements"):
        session.run({"in": x}, out=OnGpu(right, strides=(4,)), **options)
    with pytest.raises(InputError, match=r"out begins at address .* not a multiple of 2 bytes"):
        session.run({"in": x}, out=OnGpu(right, shift=1), **options)
    frozen = OnGpu(right, data=(aligned(right).ctypes.data, True))
    with pytest.raises(InputError, match="out is read-only"):
        session.run({"in": x}, out=frozen, **options)
    start = x.values.ctypes.data
    for address in (start - 1024, start - 2, start, start + 1022):
        over = OnGpu(right, data=(address, False))
        with pytest.raises(InputError, match="out overlaps a in memory"):
            session.run({"in": x}, out=over, **options)
    assert gpu.launches == 0


def test_outs_that_overlap_the_input_of_a_plan(gpu: StandIn) -> None:
    x = OnGpu(LONG)
    start, shape = x.values.ctypes.data, (LONG.size,)
    for shift in (-32, 32, 2 * LONG.size - 2):
        out = OnGpu(LONG, data=(start + shift, False))
        with pytest.raises(InputError) as caught:
            prepared(gpu).run({"in": x}, out=out, shape=shape)
        if shift % 32 == 0:
            assert str(caught.value) == (
                "out overlaps a in memory. Give a itself, to compute in place, or an array of its "
                "own."
            )
    beside = aligned(np.concatenate([LONG, LONG[:11], LONG]))
    before = OnGpu(LONG, data=(beside.ctypes.data, False))
    after = OnGpu(LONG, data=(beside.ctypes.data + 2 * LONG.size + 22, False))
    assert prepared(gpu).run({"in": before}, out=after, shape=shape) is after
    one = session_of(gpu, tcusim.plan("segmented_sum", length=LONG.size, segment_size=1))
    # Each sum is of one element, which no other warp reads.
    assert one.run({"in": x}, out=x, shape=shape) is x


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (LONG[:-1], f"a must have {LONG.size} elements, it has {LONG.size - 1}; "),
        (LONG.astype(np.float32), r"a must be of float16 \(f16\), got float32"),
        (None, r"a is a builtins\.NoneType, which is not in GPU memory\. Copy it there first"),
    ],
)
def test_arrays_that_a_plan_does_not_take(gpu: StandIn, array: Any, said: str) -> None:
    given = array if array is None else OnGpu(array)
    with pytest.raises(InputError, match=said):
        prepared(gpu).run({"in": given}, shape=(LONG.size,))
    with pytest.raises(InputError, match="a has gaps between its elements"):
        prepared(gpu).run({"in": OnGpu(LONG, strides=(4,))}, shape=(LONG.size,))
    with pytest.raises(InputError, match=r"a begins at address .* not a multiple of 32 bytes"):
        prepared(gpu).run({"in": OnGpu(LONG, shift=2)}, shape=(LONG.size,))
    assert gpu.launches == 0


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (
            np.zeros(4, np.float16),
            r"out must be an array of float16, shape \(\); got float16, \(4,\)",
        ),
        (
            np.zeros((), np.float32),
            r"out must be an array of float16, shape \(\); got float32, \(\)",
        ),
    ],
)
def test_outs_that_a_plan_does_not_take(gpu: StandIn, out: Any, said: str) -> None:
    session = prepared(gpu, "sum")
    with pytest.raises(InputError, match=said):
        session.run({"in": OnGpu(LONG)}, out=OnGpu(out), shape=())
    frozen = OnGpu(np.zeros((), np.float16), data=(aligned(LONG[:1]).ctypes.data, True))
    with pytest.raises(InputError, match=r"out is read-only\. Give an array to write to\."):
        session.run({"in": OnGpu(LONG)}, out=frozen, shape=())
    with pytest.raises(InputError, match=r"out is a numpy\.ndarray, which is not in GPU memory"):
        session.run({"in": OnGpu(LONG)}, out=out, shape=())
    assert gpu.launches == 0


def test_a_plan_for_another_gpu(gpu: StandIn) -> None:
    with pytest.raises(InputError, match="stand-in: arch='volta', but GPU 0 is an Stand-in"):
        prepared(gpu, arch="volta").run({"in": OnGpu(LONG)}, shape=(LONG.size,))
    gpu.driver.number_of_sm = 75
    session = prepared(gpu, dtype="float32")
    with pytest.raises(BackendUnavailable, match=r"needs a GPU of sm_80 or newer"):
        session.run({"in": OnGpu(LONG.astype(np.float32))}, shape=(LONG.size,))


def test_a_failed_launch_of_a_plan_says_which(gpu: StandIn) -> None:
    gpu.fails = ZeroDivisionError("no")
    with pytest.raises(LaunchError) as caught:
        gpu.prepare(in_chunks(), "hopper").run({"in": OnGpu(LONG)}, shape=(LONG.size,))
    assert str(caught.value) == (
        "stand-in: a plan in chunks failed: ZeroDivisionError: no. reduction_tn was to run as 4 "
        "blocks of 32 threads, 0 bytes of dynamic shared memory, 1536 of static, 40 registers a "
        "thread."
    )


def test_zeros_on_the_gpu(gpu: StandIn) -> None:
    made = gpu.zeros(OnGpu(np.zeros((0, 3), np.float16)), (3,), "float32")
    assert (made.values.shape, made.values.dtype) == ((3,), np.float32)
    assert gpu.driver.notes == ["clear 12 bytes on 0"]
    assert gpu.zeros(OnGpu(X[:0]), (0,), "int32").values.shape == (0,)


class Cupy:
    """As much of the module cupy as arrays need; its arrays are `Cupy.ndarray`."""

    class ndarray:  # noqa: N801
        def __init__(self, values: NDArray[Any]) -> None:
            self.values = values
            self.data = SimpleNamespace(ptr=values.ctypes.data, device_id=0)
            self.shape, self.dtype, self.flags = values.shape, values.dtype, values.flags

        def astype(self, dtype: Any, copy: bool = True) -> Cupy.ndarray:
            return Cupy.ndarray(self.values.astype(dtype, copy=copy))

        def transpose(self, axes: tuple[int, ...]) -> Cupy.ndarray:
            return Cupy.ndarray(self.values.transpose(axes))

        def copy(self) -> Cupy.ndarray:
            return Cupy.ndarray(aligned(self.values))

    stream = SimpleNamespace(ptr=0)
    cuda = SimpleNamespace(
        get_current_stream=lambda device: Cupy.stream,
        Device=lambda device: contextlib.nullcontext(),
    )

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> Cupy.ndarray:
        return Cupy.ndarray(aligned(np.zeros(shape, dtype)))

    @staticmethod
    def transpose(array: Cupy.ndarray, axes: tuple[int, ...]) -> Cupy.ndarray:
        return array.transpose(axes)

    @staticmethod
    def ascontiguousarray(array: Cupy.ndarray) -> Cupy.ndarray:
        values = array.values
        return array if values.flags.c_contiguous else Cupy.ndarray(aligned(values))


@pytest.fixture
def quick(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Let the stand-in launch in the primary context, for arrays of a stand-in for CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", Cupy)
    monkeypatch.setattr(Cupy, "stream", SimpleNamespace(ptr=3))
    monkeypatch.setattr(StandIn, "in_primary_context", True)
    monkeypatch.setattr(launch_session, "place_of", counted(gpu, launch_session.place_of))
    return gpu


def counted(gpu: StandIn, place_of: Any) -> Any:
    """Return a function that counts in `gpu.long_ways`."""

    def count(arrays: Any) -> Any:
        gpu.long_ways += 1
        return place_of(arrays)

    gpu.long_ways = 0
    return count


def test_a_call_like_an_earlier_one_takes_the_short_way(quick: StandIn) -> None:
    session = quick.prepare(in_chunks(result="f32"), "hopper")
    for number, x in enumerate((LONG, LONG[::-1], -LONG)):
        given = {"in": Cupy.ndarray(aligned(x))}
        expected = chunked(result="f32", x=x)
        made = session.run(given, shape=LONG.shape)
        assert made.values.tobytes() == expected.tobytes()
        out = Cupy.ndarray(aligned(np.full(LONG.size, np.nan, np.float32)))
        assert session.run(given, out=out, shape=LONG.shape, stream=3) is out
        assert out.values.tobytes() == expected.tobytes()
        assert (quick.long_ways, quick.launches) == (2, 6 * (number + 1))
    assert all("waits" not in note for note in quick.driver.notes)


def test_status_words_are_cleared_on_the_short_way_too(quick: StandIn) -> None:
    session = prepared(quick, result="float32", algorithm="scan_single_pass")
    for _ in range(3):
        session.run({"in": Cupy.ndarray(aligned(LONG))}, shape=LONG.shape)
    assert quick.long_ways == 1
    assert quick.driver.notes == 3 * quick.driver.notes[:2]
    assert quick.driver.notes[0].startswith("clear")


FEW = LONG[:2048]


def few(gpu: StandIn, **options: Any) -> Any:
    """Return a session for an array like FEW, of one launch."""
    plan = tcusim.plan("cumsum", length=FEW.size, algorithm="scan_tn", **options)
    return session_of(gpu, plan)


def test_the_short_way_in_place(quick: StandIn) -> None:
    session = few(quick)
    expected = tcusim.cumsum(FEW, algorithm="scan_tn")
    apart = Cupy.ndarray(aligned(np.zeros_like(FEW)))
    for _ in range(2):
        quick.texts.clear()
        x = Cupy.ndarray(aligned(FEW))
        assert session.run({"in": x}, out=apart, shape=FEW.shape) is apart
        assert session.run({"in": x}, out=x, shape=FEW.shape) is x
        assert x.values.tobytes() == apart.values.tobytes() == expected.tobytes()
    assert (quick.long_ways, quick.texts) == (2, [])


def test_what_does_not_take_the_short_way(quick: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    session, shape = few(quick, result="float32"), FEW.shape
    x, out = (Cupy.ndarray(aligned(v)) for v in (FEW, np.zeros(FEW.size, np.float32)))

    def long_ways(**options: Any) -> int:
        before = quick.long_ways
        options = {"inputs": {"in": x}, "out": out, "shape": shape} | options
        session.run(**options)
        return int(quick.long_ways - before)

    assert [long_ways() for _ in range(3)] == [1, 0, 0]
    assert long_ways(stream=4) == 1
    assert long_ways(inputs={"in": OnGpu(FEW)}) == 1
    assert long_ways(out=OnGpu(out.values)) == 1
    assert long_ways(out=None) == 1
    assert long_ways(out=Cupy.ndarray(aligned(np.zeros((1, *shape), "f4"))), shape=(1, *shape)) == 1
    assert long_ways(inputs={"in": Cupy.ndarray(x.values.reshape(1, -1))}) == 1
    monkeypatch.setattr(Cupy, "stream", SimpleNamespace(ptr=5))
    assert [long_ways(), long_ways()] == [1, 0]
    monkeypatch.setattr(StandInDriver, "current_context", lambda self: 8)
    assert long_ways() == 1


def test_what_is_refused_after_a_right_call(quick: StandIn) -> None:
    session, shape = few(quick, result="float32"), FEW.shape
    x, out = (Cupy.ndarray(aligned(v)) for v in (FEW, np.zeros(FEW.size, np.float32)))
    session.run({"in": x}, out=out, shape=shape)
    both = aligned(np.zeros(2 * FEW.size, np.float32))
    half = both.view(np.float16)
    for given, to, said in (
        (half[: FEW.size], both[8 : 8 + FEW.size], "out overlaps a in memory"),
        (half[: 2 * FEW.size : 2], out.values, "a has gaps"),
        (x.values, FEW, "out must be an array of float32"),
        (out.values, out.values, "a must be of float16"),
        (aligned(FEW, shift=1), out.values, "a begins at address"),
    ):
        with pytest.raises(InputError, match=said):
            session.run({"in": Cupy.ndarray(given)}, out=Cupy.ndarray(to), shape=shape)
    assert quick.launches == 1


def test_a_failure_on_the_short_way_is_explained(quick: StandIn) -> None:
    session = few(quick)
    given = {"in": Cupy.ndarray(aligned(FEW))}
    session.run(given, shape=FEW.shape)
    quick.fails = ZeroDivisionError("no")
    with pytest.raises(LaunchError, match=r"stand-in: Plan\(.*scan_tn was to run as 1 blocks"):
        session.run(given, shape=FEW.shape)
    assert quick.long_ways == 1


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


def test_arrays_of_an_unknown_library_are_taken_as_they_are(gpu: StandIn) -> None:
    x = OnGpu(X)
    assert gpu.arranged(x, (0,), "float16") is x
    assert gpu.restored(x, (0,)) is x
    for array, axes, dtype in (
        (x, (0,), "float32"),
        (OnGpu(X, shift=2), (0,), "float16"),
        (OnGpu(X.reshape(2, 256)), (1, 0), "float16"),
    ):
        with pytest.raises(InputError) as caught:
            gpu.arranged(array, axes, dtype)
        assert str(caught.value).endswith(
            f"OnGpu, which tcusim cannot copy as it needs it: contiguous, of {dtype}, the axis of "
            "the sum or scan last. Make that copy first."
        )


def test_pycuda_copies_but_neither_casts_nor_transposes(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    class GPUArray(OnGpu):
        def copy(self) -> GPUArray:
            return GPUArray(self.values)

    module = ModuleType("pycuda.gpuarray")
    module.GPUArray = GPUArray  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", module)
    shifted = GPUArray(X, shift=2)
    copy = gpu.arranged(shifted, (0,), "float16")
    assert copy is not shifted
    np.testing.assert_array_equal(copy.values, X)
    for array, axes, dtype in (
        (GPUArray(X), (0,), "float32"),
        (GPUArray(X, strides=(4,)), (0,), "float16"),
        (GPUArray(X.reshape(2, 256)), (1, 0), "float16"),
    ):
        with pytest.raises(InputError, match="GPUArray, which tcusim cannot copy as it needs it"):
            gpu.arranged(array, axes, dtype)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float16", 2), ("bfloat16", 2), ("void16", 2), ("int8", 1), ("bool", 1)]
)
def test_bytes_of_an_element(dtype: str, size: int) -> None:
    assert DeviceArray("a", None, "other", 0, (3,), dtype).nbytes == 3 * size


# --- The GPU ---------------------------------------------------------------------------------


def test_arch_must_be_the_gpus(gpu: StandIn) -> None:
    for name in ("hopper", "sm_90", "h200"):
        run(gpu, PROGRAM, {"in": X}, arch=name)
    with pytest.raises(InputError) as caught:
        run(gpu, PROGRAM, {"in": X}, arch="volta")
    assert str(caught.value) == (
        "stand-in: arch='volta', but GPU 0 is an Stand-in (sm_90, hopper), and computes as it "
        "does. Leave arch out, or simulate it: backend='numpy'."
    )


def test_a_gpu_that_is_too_old(gpu: StandIn) -> None:
    gpu.driver.number_of_sm = 75
    with pytest.raises(BackendUnavailable, match=r"needs a GPU of sm_80 or newer, GPU 0 is an St"):
        run(gpu, build("reduction_k", ab="bf16"), {"in": np.zeros(512, np.float32)})


def test_too_little_shared_memory(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = SimpleNamespace(code=b"", usage=Usage(40, 1536, 0, 100, {}))
    monkeypatch.setattr(runtime, "compile_kernels", lambda kernels, sm: [cubin])
    gpu.driver.shared = 1000
    with pytest.raises(Unsupported, match="needs 1536 bytes of shared memory a block, Stand-in"):
        Runtime.loaded(gpu, [emit(PROGRAM)], Place(0))


def test_a_kernel_is_loaded_once(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = SimpleNamespace(code=b"", usage=Usage(40, 1536, 0, 100, {}))
    compiled: list[list[str]] = []

    def compile_kernels(kernels: Sequence[Any], sm: int) -> Any:
        compiled.append([kernel.name for kernel in kernels])
        return [cubin] * len(kernels)

    monkeypatch.setattr(runtime, "compile_kernels", compile_kernels)
    one, other = emit(PROGRAM), emit(build("scan_k"))
    first = Runtime.loaded(gpu, [one, other, one], Place(0))
    assert first[0] is first[2]
    assert Runtime.loaded(gpu, [emit(PROGRAM), other], Place(0)) == first[:2]
    assert compiled == [["reduction_k", "scan_k"], []]


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("no"), MemoryError("no"), RuntimeError("no"), DriverError("no")]
)
def test_a_failed_launch_says_what_was_asked_for(gpu: StandIn, error: Exception) -> None:
    gpu.fails = error
    with pytest.raises(LaunchError) as caught:
        run(gpu, PROGRAM, {"in": X})
    assert str(caught.value) == (
        f"stand-in: reduction_k failed: {type(error).__name__}: no. reduction_k was to run as 2 "
        "blocks of 32 threads, 0 bytes of dynamic shared memory, 1536 of static, 40 registers a "
        "thread."
    )
    assert caught.value.__cause__ is error


def test_units_of_gpus() -> None:
    assert [arch_name(sm) for sm in (70, 75, 80, 86, 89, 90, 100, 103, 120)] == [
        "volta", "turing", "ampere", "ampere", "ada", "hopper", "blackwell", "blackwell",
        "blackwell_rtx",
    ]  # fmt: skip
    assert arch_name(999) is None


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "s8", "s32", "s64"])
@pytest.mark.parametrize("size", [1, 7])
def test_poison_is_what_the_simulator_has(dtype: str, size: int) -> None:
    form = format_of(dtype)
    target = np.ones(size + 1, form.memory_dtype)
    Driver(Bindings()).poison(target.ctypes.data, size, form, 0)
    expected = to_memory(unwritten_values(size + 1, form), form)
    expected[-1] = 1
    assert target.tobytes() == expected.tobytes()


# --- What is missing -------------------------------------------------------------------------


def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(BackendUnavailable) as caught:
        driver._open.__wrapped__()
    assert str(caught.value) == (
        "GPUs are used through NVIDIA's package cuda-bindings, which cannot be imported (No module "
        "named 'cuda.bindings.driver'). Install it with: pip install 'tcusim[compile]'"
    )


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("launcher", "remedy"),
    [
        (CUDA, "Install it with: pip install 'tcusim[cuda]'"),
        (PYCUDA, "Install it with: pip install 'tcusim[pycuda]'"),
        (CUPY, r"Install it with: pip install 'tcusim[cupy]' (for CUDA 12), or pip install cupy-"),
    ],
)
def test_no_library(launcher: Launcher, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", absent)
    reason = launcher.available()
    assert reason is not None
    start = f"{launcher.module} cannot be imported (No module named '{launcher.module}'). {remedy}"
    assert reason.startswith(start)
