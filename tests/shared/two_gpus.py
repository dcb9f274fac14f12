"""Two GPUs without one: the real engine and bindings on a stand-in for the driver's library.

A process that uses it is started with the library on its LD_LIBRARY_PATH: see `started`. Launches
are computed by the simulator, as the launching GPU's architecture does, in the GPU's memory.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindings_standin import memory
from gpu_standin import launch_program
from host_kernels import launch_plain
from tcusim.machine import native
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda import arch_name, device_sm
from tcusim_cuda.cubin import Usage
from tcusim_cuda.driver import Driver
from tcusim_cuda.kernel import PlainKernel

SOURCE = Path(__file__).with_name("two_gpus.cpp")
FLAGS = ("-std=c++17", "-O1")


def started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments on two GPUs that stand in; `folder` is theirs."""
    library = folder / "libcuda.so.1"
    if not library.exists():
        library.symlink_to(native.shared_library(SOURCE, FLAGS))
    path = os.pathsep.join((str(folder), os.environ.get("LD_LIBRARY_PATH", "")))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "LD_LIBRARY_PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


class Gpus:
    """The stand-in, in a process that was started with it."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.library.two_gpus_memory.restype = ctypes.c_uint64
        self.library.two_gpus_complaints.restype = ctypes.c_char_p
        self.library.two_gpus_context.restype = ctypes.c_void_p
        self.kernels: list[Any] = []
        self.failures: list[str] = []
        # The current GPU, as a library has it in mind.
        self.believed = 0
        kind = ctypes.CFUNCTYPE(
            None, ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(ctypes.c_int64)
        )
        self._launch = kind(self.launch)
        self.library.two_gpus_on_launch(self._launch)

    # --- Kernels -----------------------------------------------------------------------------

    def compile_kernels(self, kernels: Sequence[Any], sm: int) -> list[Any]:
        """Stand in for NVRTC: it does not start beside this library."""
        cubins = []
        for kernel in kernels:
            program = getattr(kernel, "program", None)
            pointers = 2
            if program is not None:
                pointers = len(program.inputs) + len(program.outputs) + bool(program.status)
            text = f"{len(self.kernels)} {len(kernel.arguments)} {pointers}"
            self.kernels.append(kernel)
            usage = Usage(40, 1536, 0, 100, {})
            cubins.append(SimpleNamespace(code=text.encode(), usage=usage, compiler=""))
        return cubins

    def launch(self, device: int, number: int, blocks: int, words: Any) -> None:
        """Compute the results of a kernel, in the memory at the addresses that it is given."""
        kernel = self.kernels[number]
        try:
            if isinstance(kernel, PlainKernel):
                size = ctypes.sizeof(ctypes.c_int64)
                start = ctypes.addressof(words.contents)
                places = (ctypes.c_int64 * len(kernel.arguments))(
                    *(start + size * place for place in range(len(kernel.arguments)))
                )
                call = SimpleNamespace(
                    kernel=kernel, sizes=(blocks,), pointers_address=ctypes.addressof(places)
                )
                launch_plain(call)  # type: ignore[arg-type]
                return
            arch = arch_name(device_sm(device)) or ""
            arguments = words[: len(kernel.arguments)]
            launch_program(kernel.program, arguments, lambda *given: run_numpy(*given, arch=arch))
        # An error raised here is lost.
        except BaseException as error:
            self.failures.append(f"{kernel.name}: {error!r}")

    # --- Records -----------------------------------------------------------------------------

    @property
    def complaints(self) -> str:
        """The faults of calls of the driver, and of launches."""
        said: bytes = self.library.two_gpus_complaints()
        return said.decode() + "\n".join(self.failures)

    @property
    def launches(self) -> tuple[int, int]:
        """How often each GPU was launched on."""
        return tuple(map(self.library.two_gpus_launches, (0, 1)))

    @property
    def allocations(self) -> tuple[int, int]:
        """How often each GPU's memory was allocated by the driver."""
        return tuple(map(self.library.two_gpus_allocations, (0, 1)))

    def reset(self) -> None:
        """Clear the records."""
        self.failures.clear()
        self.library.two_gpus_reset()

    # --- Memory and contexts -----------------------------------------------------------------

    def room(self, device: int, nbytes: int, context: int | None) -> int:
        """Return the address of new memory of a GPU; it is of no context if that is 0."""
        if context is None:
            context = Driver.open().primary_context(device)
        return int(
            self.library.two_gpus_memory(device, ctypes.c_size_t(nbytes), ctypes.c_void_p(context))
        )

    @contextmanager
    def current(self, device: int | None) -> Iterator[None]:
        """Make a GPU current, or none; afterwards it must be so still."""
        driver, self.believed = Driver.open(), device or 0
        before = driver.current_context()
        driver.set_context(0 if device is None else driver.primary_context(device))
        yield
        # A thread without a context is left in that of GPU 0, where all libraries take it to be.
        assert driver.current_context() == driver.primary_context(device or 0)
        driver.set_context(before)


class Array:
    """An array of no known library: it has the CUDA array interface, without a device."""

    def __init__(
        self,
        gpus: Gpus,
        device: int,
        values: NDArray[Any],
        context: int | None = None,
        stream: int | None = None,
    ) -> None:
        self.gpus, self.stream_of_it = gpus, stream
        self.shape, self.dtype = values.shape, values.dtype
        self.place = device
        self.address = gpus.room(device, max(values.nbytes, 1), context)
        self.values[...] = values

    @property
    def values(self) -> NDArray[Any]:
        """The elements, without waiting for them."""
        return memory(self.address, int(np.prod(self.shape)), self.dtype).reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": self.stream_of_it,
        }


class Tensor:
    """A tensor of torch, with its device."""

    is_cuda = True
    layout = "torch.strided"
    requires_grad = False
    is_nested = False
    __module__ = "torch"

    def __init__(self, gpus: Gpus, device: int, values: NDArray[Any], context: int | None = None):
        self.array = Array(gpus, device, values, context)
        self.gpus, self.context = gpus, context
        self.device = _Device("cuda", device)
        self.shape, self.dtype = values.shape, f"torch.{values.dtype}"

    @property
    def values(self) -> NDArray[Any]:
        return self.array.values

    def is_neg(self) -> bool:
        return False

    def data_ptr(self) -> int:
        return self.array.address

    def is_contiguous(self) -> bool:
        return True

    def stride(self) -> tuple[int, ...]:
        return tuple(one // self.values.itemsize for one in self.values.strides)

    def new_empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        made = Tensor(self.gpus, self.device.index, np.full(shape, 99).astype(dtype), self.context)
        # Torch goes back to the GPU that it takes for the current one, against the driver.
        Driver.open().set_context(Driver.open().primary_context(self.gpus.believed))
        return made

    def reshape(self, *shape: int) -> Tensor:
        raise AssertionError("nothing here needs another shape")

    def untyped_storage(self) -> Any:
        return SimpleNamespace(resize_=lambda size: None, nbytes=lambda: self.values.nbytes)

    def storage_offset(self) -> int:
        return 0

    def numel(self) -> int:
        return self.values.size

    def element_size(self) -> int:
        return self.values.itemsize


@dataclass(frozen=True)
class _Device:
    type: str
    index: int


def torch_of(streams: tuple[int, int]) -> ModuleType:
    """Return as much of torch as tensors need; streams: the current one of each GPU."""
    module: Any = ModuleType("torch")
    module.Tensor = Tensor
    module.strided = Tensor.layout
    module.uint8, module.float16, module.float32 = np.uint8, np.float16, np.float32
    module.is_grad_enabled = lambda: True
    module._C = SimpleNamespace(
        _cuda_getCurrentRawStream=lambda device: streams[device], _is_fwd_grad_enabled=lambda: True
    )
    module.cuda = SimpleNamespace(
        default_stream=lambda device: None,
        ExternalStream=lambda handle, device: None,
        stream=lambda stream: _nothing(),
    )
    module.empty_like = lambda tensor: tensor.new_empty(tensor.shape, tensor.values.dtype)
    return module  # type: ignore[no-any-return]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def faulty(asked: Any) -> Any:
    """Return the bindings' cuPointerGetAttribute as some versions have it: each GPU's number is 0.

    asked: as it should be.
    """

    def ask(attribute: Any, address: Any) -> tuple[Any, Any]:
        status, value = asked(attribute, address)
        return status, 0 if int(attribute) == 9 else value

    return ask


class CupyArray:
    """An array of CuPy: it makes new ones on the current GPU."""

    __module__ = "cupy"

    def __init__(self, gpus: Gpus, device: int, values: NDArray[Any]) -> None:
        self.array, self.gpus = Array(gpus, device, values), gpus
        self.shape, self.dtype = values.shape, values.dtype
        self.data = SimpleNamespace(ptr=self.array.address, device_id=device)
        self.flags = SimpleNamespace(c_contiguous=True)

    @property
    def strides(self) -> tuple[int, ...]:
        return self.values.strides

    @property
    def values(self) -> NDArray[Any]:
        return self.array.values

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__


def cupy_of(gpus: Gpus) -> ModuleType:
    """Return as much of CuPy as arrays need."""
    module: Any = ModuleType("cupy")
    module.ndarray = CupyArray
    module.empty = lambda shape, dtype: CupyArray(
        gpus, Driver.open().current_device(), np.full(shape, 99).astype(dtype)
    )
    module.cuda = SimpleNamespace(
        get_current_stream=lambda device: SimpleNamespace(ptr=0),
        Device=lambda device: Driver.open().in_primary_context(device),
    )
    return module  # type: ignore[no-any-return]
