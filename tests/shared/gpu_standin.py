"""A GPU without one: its memory is the computer's own, and it computes as the simulator does.

Arrays there have the interface of CUDA, DLPack's, or as much of a library as describing them takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tcusim
from asked import asked
from bindings_standin import memory
from host_kernels import launch_plain
from tcusim import backends
from tcusim.algorithms import build
from tcusim.machine import format_of
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan, Memory, PlanBuilder
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda import driver
from tcusim_cuda.arrays import from_bits, host_bits
from tcusim_cuda.cubin import Usage
from tcusim_cuda.kernel import PlainKernel
from tcusim_cuda.launch import Launcher
from tcusim_cuda.runtime import Call, Loaded, Place

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
    """The part of `Driver` that launches need; it records its calls."""

    number_of_sm = 90
    shared = 232448
    home = (0, 0)
    context = 7

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.capturing: set[int] = set()

    def sm(self, device: int) -> int:
        return self.number_of_sm

    def shared_bytes(self, device: int) -> int:
        return self.shared

    def version(self) -> tuple[int, int]:
        return (12, 4)

    def title(self, device: int) -> str:
        return "Stand-in"

    def current_device(self) -> int:
        return 0

    def current_context(self) -> int:
        return self.context

    def primary_context(self, device: int) -> int:
        return 7

    def context_id(self, context: int) -> int:
        return context

    def restored_context(self) -> Any:
        return contextlib.nullcontext()

    def home_of(self, address: int, name: str) -> tuple[int, int]:
        return self.home

    @contextlib.contextmanager
    def in_primary_context(self, device: int) -> Iterator[None]:
        before, self.context = self.context, 7
        yield
        self.context = before

    def device_of_stream(self, stream: int) -> int:
        return 0

    def require_own_stream(self, stream: int, device: int) -> None:
        pass

    def order(self, first: int, then: int) -> None:
        if not driver.same_stream(first, then):
            self.notes.append(f"{then} waits for {first}")

    def copy_back(self, address: int, values: NDArray[Any], stream: int) -> None:
        self.notes.append(f"copy {values.nbytes} bytes back on {stream}")
        values[...] = memory(address, values.size, values.dtype).reshape(values.shape)

    def is_capturing(self, stream: int) -> bool:
        return stream in self.capturing

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
        value = form.unwritten
        memory(address, size, form.dtype)[...] = value


def word_at(address: int) -> int:
    """Return the 64-bit integer at an address."""
    return ctypes.c_int64.from_address(address).value


def launch_program(
    program: Program,
    arguments: Sequence[int],
    compute: Callable[[Program, dict[str, Any]], dict[str, Any]],
) -> None:
    """Compute a program on the memory at the addresses that its kernel is given with scalars."""
    buffers = (*program.inputs, *program.outputs)
    # Past the buffers is the memory for status words; the simulator has its own.
    numbers = arguments[len(buffers) + bool(program.status) :]
    scalars = {scalar.name: value for scalar, value in zip(program.scalars, numbers, strict=True)}
    arrays = {
        buffer.name: memory(
            address, buffer.size.evaluate(scalars), format_of(buffer.dtype).memory_dtype
        )
        for buffer, address in zip(buffers, arguments, strict=False)
    }
    inputs = {one.name: from_bits(arrays[one.name], one.dtype) for one in program.inputs}
    for name, values in compute(program, inputs).items():
        arrays[name][...] = host_bits(values, program.buffer(name).dtype, name)


class StandIn(Launcher):
    """A launcher: the simulator runs its programs, and the CPU other kernels."""

    name = "stand-in"
    title = "no GPU"
    module = "numpy"
    remedy = "It is here."
    fails: Exception | None = None
    launches = 0
    # Calls that were checked, and made or found their launches: prepared launches ask for nothing.
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
        self.long_ways += 1
        yield

    def default_stream(self, place: Place) -> int:
        return 0

    def loaded(self, kernels: Sequence[Any], place: Place) -> tuple[Loaded, ...]:
        self.loadings += len(kernels)
        self.texts += [kernel.text for kernel in kernels]
        usage = Usage(40, 1536, 0, 100, {"HMMA": 2})
        return tuple(Loaded(getattr(kernel, "program", None), usage) for kernel in kernels)

    def load(self, cubin: bytes, kernel: Any) -> Any:
        return kernel.name

    def ready(self, call: Call, stream: int) -> Callable[[], None]:
        return functools.partial(self.launch, call, stream)

    def launch(self, call: Call, stream: int) -> None:
        self.launches += 1
        if self.fails is not None:
            raise self.fails
        blocks, threads, _ = call.sizes
        self.driver.notes.append(f"launch {blocks} x {threads} on {stream}")
        if isinstance(call.kernel, PlainKernel):
            launch_plain(call)
            return
        launch_program(call.function, [word_at(one) for one in call.pointers], self.computed)

    def computed(self, program: Program, inputs: dict[str, Any]) -> dict[str, Any]:
        return run_numpy(program, inputs)

    def memory(self, like: Any, nbytes: int, stream: int) -> tuple[Any, int]:
        self.made += 1
        owner = aligned(np.zeros(nbytes, np.uint8))
        return owner, owner.ctypes.data

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str, stream: int) -> Any:
        self.made += 1
        return OnGpu(np.zeros(shape, format_of(dtype).memory_dtype))

    def errors(self) -> tuple[type[Exception], ...]:
        return (ZeroDivisionError,)


def run(gpu: StandIn, program: Program, inputs: Any, **options: Any) -> dict[str, Any]:
    """Run a program as a plan of one launch."""
    return backends.run(program, inputs, backend=gpu, **options)


def session_of(gpu: Any, plan: tcusim.Plan | tcusim.ProductPlan) -> Any:
    return gpu.prepare(plan.launch_plan, plan.arch)


LONG = np.random.default_rng(0).integers(-9, 10, 3 * 2**14 + 5).astype(np.float16)


def in_chunks(operation: str = "cumsum", result: str = "f16") -> LaunchPlan:
    """Return several launches that sum or scan LONG: chunks by warps, and then the chunks' sums."""
    draft = PlanBuilder(Memory("in", "f16", LONG.size))
    chunks: dict[str, Any] = {"segment_size": 2**14, "masked": True, "combine": "add"}
    few: dict[str, Any] = {"segment_size": 4, "masked": True, "ab": "f32"}
    sums = draft.add(build("reduction_tn", **chunks), {"in": "in"}, "sums")
    if operation == "sum":
        draft.add(build("reduction_panel", result=result, **few), {"in": sums}, "out")
    else:
        carry = draft.add(build("scan_panel", exclusive=True, **few), {"in": sums}, "carries")
        scan = build("scan_tn", carry=True, result=result, **chunks)
        draft.add(scan, {"in": "in", "carry": carry}, "out")
    return draft.finish("a plan in chunks")


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

    @staticmethod
    def empty_like(tensor: Torch.Tensor) -> Torch.Tensor:
        return Torch.Tensor(aligned(np.zeros_like(tensor.values)))

    class Tensor:
        is_cuda = True
        layout = "strided"
        requires_grad = False
        device = SimpleNamespace(index=0)
        # Their memory was released.
        sizes: list[int] = []  # noqa: RUF012

        def __init__(self, values: NDArray[Any]) -> None:
            self.values, self.shape = values, values.shape
            self.dtype = f"torch.{values.dtype}"

        def is_neg(self) -> bool:
            return False

        def data_ptr(self) -> int:
            return self.values.ctypes.data

        def is_contiguous(self) -> bool:
            return self.values.flags.c_contiguous

        def new_empty(self, shape: tuple[int, ...], dtype: Any) -> Torch.Tensor:
            return Torch.Tensor(aligned(np.zeros(shape, dtype)))

        def untyped_storage(self) -> Any:
            return SimpleNamespace(resize_=self.sizes.append)


class Cupy:
    """As much of the module cupy as arrays need; its arrays are `Cupy.ndarray`."""

    class ndarray:  # noqa: N801
        def __init__(self, values: NDArray[Any]) -> None:
            self.values = values
            self.data = SimpleNamespace(ptr=values.ctypes.data, device_id=0)
            self.shape, self.dtype, self.flags = values.shape, values.dtype, values.flags

        @property
        def strides(self) -> tuple[int, ...]:
            return self.values.strides

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return OnGpu(self.values, data=(self.data.ptr, False)).interface

        def astype(self, dtype: Any, copy: bool = True) -> Cupy.ndarray:
            return Cupy.ndarray(self.values.astype(dtype, copy=copy))

        def transpose(self, axes: tuple[int, ...]) -> Cupy.ndarray:
            return Cupy.ndarray(self.values.transpose(axes))

        def copy(self) -> Cupy.ndarray:
            return Cupy.ndarray(aligned(self.values))

    stream = SimpleNamespace(ptr=3)
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


def prepared(gpu: StandIn, operation: str = "cumsum", **options: Any) -> Any:
    """Return a session for an array like LONG."""
    return session_of(gpu, tcusim.plan(operation, length=LONG.size, **asked(**options)))
