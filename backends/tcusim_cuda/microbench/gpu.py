"""The GPU of `tcusim microbench`: memory, kernels of texts, and times, by NVIDIA's driver."""

from __future__ import annotations

import functools
import importlib
import shutil
import subprocess
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import BackendUnavailable, InputError
from tcusim_cuda.compile import why_no_compiler
from tcusim_cuda.driver import Driver, DriverError, DriverMemory
from tcusim_cuda.microbench.stopwatch import IN_GRAPH, Run, Stopwatch

# Numbers of cuda.h: CUdevice_attribute, CUstream_flags, CUstreamCaptureMode.
_MULTIPROCESSORS: Final = 16
_L2_BYTES: Final = 38
_NON_BLOCKING: Final = 1
_RELAXED: Final = 2
_DEVICE: Final = 0
# Random bytes that are drawn; memory repeats them.
_DRAWN: Final = 2**20


class Memory:
    """GPU memory: its address, and its size in bytes. `owner` frees it."""

    def __init__(self, address: int, nbytes: int, owner: object = None) -> None:
        self.address, self.nbytes, self.owner = address, nbytes, owner

    def __getitem__(self, part: slice) -> Memory:
        """Return the bytes from `part.start` on."""
        start = part.start or 0
        return Memory(self.address + start, self.nbytes - start, self.owner)


class Gpu(Stopwatch):
    """The first visible GPU, with `nbytes` of memory to read and as much to write.

    Raises BackendUnavailable if a GPU, its driver or NVRTC is missing, and InputError if too little
    GPU memory is free.
    """

    def __init__(self, nbytes: int) -> None:
        self._driver = Driver.open()
        reason = why_no_compiler()
        if reason is not None:
            raise BackendUnavailable(reason)
        self._cuda: Any = importlib.import_module("cuda.bindings.driver")
        self._driver.set_context(self._driver.primary_context(_DEVICE))
        # The default stream, but while a graph is captured.
        self._stream: Any = 0
        free, _ = self._call("cuMemGetInfo")
        if free < 2 * nbytes:
            raise InputError(
                f"the probes need {2 * nbytes / 2**30:.1f} GiB of GPU memory, and "
                f"{free / 2**30:.1f} GiB are free. End the programs that have the rest."
            )
        self.data, self.output = self.empty(nbytes), self.empty(nbytes)
        self._randomize(self.data)

    @property
    def sm(self) -> int:
        """Compute capability, such as 90."""
        return self._driver.sm(_DEVICE)

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """The GPU and its driver."""
        return gpu_info(self._cuda, self._driver)

    # --- Memory and kernels ------------------------------------------------------------------

    def empty(self, nbytes: int) -> Memory:
        """Return new memory."""
        owner = DriverMemory(self._driver, nbytes)
        return Memory(owner.address, nbytes, owner)

    def zeros(self, count: int, dtype: type[np.generic]) -> Memory:
        """Return memory for `count` elements, all zero."""
        made = self.empty(count * np.dtype(dtype).itemsize)
        self.fill(made, 0)
        return made

    def fill(self, memory: Memory, value: int) -> None:
        """Write a byte everywhere."""
        self._call("cuMemsetD8Async", memory.address, value, memory.nbytes, self._stream)

    def _randomize(self, memory: Memory) -> None:
        """Fill memory with random bytes that repeat: the bandwidth of zeros may be another one."""
        drawn = np.random.default_rng(0).integers(0, 256, min(memory.nbytes, _DRAWN), np.uint8)
        self._call("cuMemcpyHtoD", memory.address, drawn.ctypes.data, drawn.nbytes)
        done = drawn.nbytes
        while done < memory.nbytes:
            more = Memory(memory.address, min(done, memory.nbytes - done))
            self.copy(more, memory[done:])
            done += more.nbytes

    def copy(self, source: Memory, target: Memory) -> None:
        """Copy from GPU memory to GPU memory."""
        self._call("cuMemcpyDtoDAsync", target.address, source.address, source.nbytes, self._stream)

    def values(self, memory: Memory, dtype: type[np.generic]) -> NDArray[Any]:
        """Return a copy of memory as an array, after the work that was queued before."""
        found = np.empty(memory.nbytes // np.dtype(dtype).itemsize, dtype)
        self._call("cuMemcpyDtoH", found.ctypes.data, memory.address, found.nbytes)
        return found

    def load(self, cubin: bytes) -> Any:
        """Return a loaded module."""
        return self._call("cuModuleLoadData", cubin)

    def kernel(self, module: Any, name: str) -> Any:
        """Return a function that launches a kernel on blocks, threads and arguments.

        Arguments are memory and NumPy's scalars of 4 or 8 bytes.
        """
        function = self._call("cuModuleGetFunction", module, name.encode())

        def launch(blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
            words = np.zeros(len(arguments), np.uint64)
            for place, one in enumerate(arguments):
                value = np.uint64(one.address) if isinstance(one, Memory) else one
                words[place : place + 1].view(np.uint8)[: value.nbytes] = np.frombuffer(
                    value.tobytes(), np.uint8
                )
            pointers = np.uint64(words.ctypes.data) + np.arange(words.size, dtype=np.uint64) * 8
            self._call(
                "cuLaunchKernel",
                *(function, blocks, 1, 1, threads, 1, 1, 0, self._stream),
                *(pointers.ctypes.data, 0),
            )

        return launch

    # --- Time --------------------------------------------------------------------------------

    def once(self, run: Run, *, busy: bool = False) -> float:
        """Return the milliseconds of one run, by events."""
        start, stop = (self._call("cuEventCreate", 0) for _ in range(2))
        try:
            if busy:
                run()
            self._call("cuEventRecord", start, self._stream)
            run()
            self._call("cuEventRecord", stop, self._stream)
            self._call("cuEventSynchronize", stop)
            return float(self._call("cuEventElapsedTime", start, stop))
        finally:
            for event in (start, stop):
                self._call("cuEventDestroy", event)

    def graph(self, run: Run, *, of_torch: bool = False) -> Run:
        """Return a run that replays a CUDA graph of `IN_GRAPH` runs."""
        run()
        stream = self._call("cuStreamCreate", _NON_BLOCKING)
        relaxed = self._cuda.CUstreamCaptureMode(_RELAXED)
        self._call("cuStreamBeginCapture", stream, relaxed)
        self._stream = stream
        try:
            for _ in range(IN_GRAPH):
                run()
        finally:
            self._stream = 0
            captured = self._call("cuStreamEndCapture", stream)
        graph = self._call("cuGraphInstantiate", captured, 0)
        return lambda: self._call("cuGraphLaunch", graph, self._stream)

    def _call(self, name: str, *arguments: object) -> Any:
        """Call the driver; return its results, one as it is."""
        status, *values = getattr(self._cuda, name)(*arguments)
        if status:
            _, text = self._cuda.cuGetErrorString(status)
            said = text.decode(errors="replace") if text else "unknown error"
            raise DriverError(f"NVIDIA's driver: {name}: {said} (CUDA error {int(status)})")
        return values[0] if len(values) == 1 else tuple(values)


def gpu_info(cuda: Any, driver: Driver, device: int = _DEVICE) -> dict[str, Any]:
    """Return a GPU, its driver and the clock of its cores, as a record has them.

    cuda: the module `cuda.bindings.driver`.
    """

    def attribute(number: int) -> int:
        _, value = cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute(number), device)
        return int(value)

    _, nbytes = cuda.cuDeviceTotalMem(device)
    version, clock = _from_nvidia_smi("driver_version,clocks.sm")
    return {
        "gpu": driver.title(device),
        "sm": driver.sm(device),
        "multiprocessors": attribute(_MULTIPROCESSORS),
        "l2_bytes": attribute(_L2_BYTES),
        "memory_bytes": int(nbytes),
        "driver": version,
        "driver_cuda": ".".join(map(str, driver.version())),
        "clock": f"{clock}, not locked by tcusim",
    }


def _from_nvidia_smi(columns: str) -> list[str]:
    """Return columns of `nvidia-smi` for the first GPU: CUDA does not report them."""
    unknown = ["unknown"] * len(columns.split(","))
    command = shutil.which("nvidia-smi")
    if command is None:
        return unknown
    asked = [command, f"--query-gpu={columns}", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return unknown
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return unknown
    return [cell.strip() for cell in lines[0].split(",")]
