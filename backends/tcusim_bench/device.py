"""The benchmark's GPU: random data, launches and times.

Memory, random numbers and events are CuPy's. Everything runs on the default stream.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Final

import numpy as np

from tcusim.backends import prepared_launch_of
from tcusim.errors import BackendUnavailable, InputError
from tcusim.machine import format_of
from tcusim.machine.formats import Values, from_memory
from tcusim.program.launches import LaunchPlan
from tcusim_bench.energy import Drawn, Meter, drawn
from tcusim_bench.parts import matrix_columns
from tcusim_cuda import CUDA, CUPY, PYCUDA
from tcusim_cuda.driver import Driver
from tcusim_cuda.microbench.gpu import gpu_info
from tcusim_cuda.microbench.stopwatch import IN_GRAPH, Run, Stopwatch
from tcusim_cuda.microbench.texts import READ_BYTES, READ_ONLY, READ_THREADS

Array = Any

BACKENDS: Final = {"cuda": CUDA, "cupy": CUPY, "pycuda": PYCUDA}

# Duration of a batch of runs in a measurement of energy: longer than an answer of NVML takes.
_BATCH_MS: Final = 30.0

# Elements that are searched for unwritten ones at a time.
CHUNK: Final = 2**26
# Random numbers are a hash of an element's index (splitmix64), which takes no other memory. Each
# type takes the bits that it can hold: uniform in [-1, 1), or any int8.
_HASH: Final = """
unsigned long long z = seed + 0x9e3779b97f4a7c15ull * (i + 1);
z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
z = z ^ (z >> 31);
"""
_UNIFORM: Final = "(float)(z >> 40) / 8388608.0f - 1.0f"
_RANDOM: Final = {
    "f16": f"x = {_UNIFORM};",
    "bf16": f"x = __float_as_uint({_UNIFORM}) >> 16;",
    "f32": f"x = {_UNIFORM};",
    "f64": "x = (double)(z >> 11) / 4503599627370496.0 - 1.0;",
    "s8": "x = (signed char)(z >> 56);",
}


class Device(Stopwatch):
    """The GPU, with memory for `length` f16 numbers, or as many bytes, and room for the results.

    `vector` is the right factor of rows of the numbers, as a matrix. Raises BackendUnavailable
    if CuPy, the launcher that was asked for, or a GPU is missing, and InputError if the GPU has too
    little memory.
    """

    def __init__(self, length: int, backend: str) -> None:
        if backend not in BACKENDS:
            raise InputError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
        self.length = length
        self.cp = _cupy()
        self._launcher = BACKENDS[backend]
        reason = self._launcher.available()
        if reason is not None:
            raise BackendUnavailable(f"{backend}: {reason}")
        free, _ = self.cp.cuda.runtime.memGetInfo()
        needed = 12 * length
        if free < needed:
            raise InputError(
                f"{length} elements need {needed / 2**30:.1f} GiB of GPU memory, "
                f"{free / 2**30:.1f} GiB are free. Use a smaller log2_length."
            )
        self._bytes = self.cp.empty(2 * length, np.uint8)
        self._held = ""
        self._room = self.cp.empty(length * 4, np.uint8)
        self.vector = self.cp.empty(matrix_columns(length), np.float16)
        self._fill("f16", self.vector, length + 1)
        # The limits are measured on random numbers, too.
        self.data()

    @property
    def sm(self) -> int:
        """Compute capability, such as 90."""
        return int(self.cp.cuda.Device().compute_capability)

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """The GPU, its driver and CUDA's versions."""
        cuda = importlib.import_module("cuda.bindings.driver")
        version = self.cp.cuda.runtime.runtimeGetVersion()
        return {
            **gpu_info(cuda, Driver.open(), int(self.cp.cuda.Device().id)),
            "cuda": f"{version // 1000}.{version % 1000 // 10}",
        }

    # --- Memory ------------------------------------------------------------------------------

    def data(self, dtype: str = "f16") -> Array:
        """Return random numbers that fill the memory; those of another type are then gone.

        bf16 is given as its bits.
        """
        array = self._bytes.view(format_of(dtype).memory_dtype)
        if self._held != dtype:
            self._fill(dtype, array, self.length)
            self._held = dtype
        return array

    def _fill(self, dtype: str, array: Array, seed: int) -> None:
        kernel = self.cp.ElementwiseKernel(
            "uint64 seed", f"{array.dtype} x", _HASH + _RANDOM[dtype], f"tcusim_bench_{dtype}"
        )
        kernel(np.uint64(seed), array)

    def output(self, dtype: str, size: int) -> Array:
        """Return room for a result, every byte 0xFF: NaN in every float type."""
        self._room.fill(0xFF)
        kind = format_of(dtype).memory_dtype
        return self._room[: size * kind.itemsize].view(kind)

    def to_host(self, array: Array, dtype: str) -> Values:
        """Return an array's values in the computer's memory."""
        return from_memory(self.cp.asnumpy(array), dtype)

    def wide(self, array: Array, dtype: str) -> Array:
        """Return an array in float64, on the GPU."""
        if dtype == "bf16":
            array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return array.astype(np.float64)

    def has_nan(self, array: Array, dtype: str) -> bool:
        """Return whether any element is NaN, such as one that nobody wrote."""
        parts = (array[start : start + CHUNK] for start in range(0, array.size, CHUNK))
        return format_of(dtype).is_float and any(
            bool(self.cp.isnan(self.wide(part, dtype)).any()) for part in parts
        )

    # --- Time --------------------------------------------------------------------------------

    def once(self, run: Run, *, busy: bool = False) -> float:
        """Return the milliseconds of one run, by events."""
        start, stop = self.cp.cuda.Event(), self.cp.cuda.Event()
        if busy:
            run()
        start.record()
        run()
        stop.record()
        stop.synchronize()
        return float(self.cp.cuda.get_elapsed_time(start, stop))

    def graph(self, run: Run, *, of_torch: bool = False) -> Run:
        """Return a run that replays a CUDA graph of `IN_GRAPH` runs.

        of_torch: whether torch captures it; torch must know the graph that its memory is for.
        """
        if of_torch:
            cuda = importlib.import_module("torch").cuda
            recorded = cuda.CUDAGraph()
            with cuda.graph(recorded):
                for _ in range(IN_GRAPH):
                    run()
            replay: Run = recorded.replay
            return replay
        stream = self.cp.cuda.Stream(non_blocking=True)
        with stream:
            run()
            stream.synchronize()
            stream.begin_capture()
            for _ in range(IN_GRAPH):
                run()
            captured = stream.end_capture()
        return functools.partial(captured.launch, stream=self.cp.cuda.Stream.null)

    def energy(self, run: Run, seconds: float) -> Drawn:
        """Return the energy of runs in about so many seconds.

        Raises BackendUnavailable if the GPU does not tell.
        """
        runs = max(1, int(_BATCH_MS / max(self.once(run), 1e-3)))
        ends: list[Any] = []

        def push() -> int:
            for _ in range(runs):
                run()
            ends.append(self.cp.cuda.Event())
            ends[-1].record()
            return runs

        try:
            # Few batches are queued at any time: the last ones tell how many have ended.
            return drawn(self._meter.joules, push, lambda: _ended(ends), seconds)
        finally:
            self.cp.cuda.Device().synchronize()

    @functools.cached_property
    def _meter(self) -> Meter:
        return Meter(str(self.cp.cuda.Device().pci_bus_id))

    # --- Launches ----------------------------------------------------------------------------

    def reader(self) -> Run:
        """Return a kernel that reads the data and writes nothing."""
        kernel = self.cp.RawKernel(READ_ONLY, "read_only")
        blocks = self._bytes.nbytes // READ_BYTES
        return lambda: kernel((blocks,), (READ_THREADS,), (self._bytes, self._room))

    def copier(self) -> Run:
        """Return a copy of the data by the driver."""
        runtime = self.cp.cuda.runtime
        to, source, size = self._room.data.ptr, self._bytes.data.ptr, self._bytes.nbytes
        return lambda: runtime.memcpyAsync(to, source, size, runtime.memcpyDeviceToDevice, 0)

    def program(self, plan: LaunchPlan, arrays: tuple[Array, ...], out: Array) -> Run:
        """Return a function that launches a plan on arrays, and writes the result to `out`."""
        session = self._launcher.prepare(plan)
        inputs = dict(zip(plan.inputs, arrays, strict=True))
        launch = prepared_launch_of(session, inputs, out, out.shape)

        def run() -> None:
            # The first call checks the arrays and makes the launches ready.
            if launch is None or launch(*arrays, out=out) is None:
                session.run(inputs, out=out, shape=out.shape)

        return run


def _ended(events: list[Any]) -> int:
    """Return the count of events that have happened; those behind wait for those in front."""
    count = len(events)
    while count and not events[count - 1].done:
        count -= 1
    return count


def _cupy() -> Any:
    """Return CuPy, with a GPU that it can use."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise BackendUnavailable(
            f"the benchmark keeps its data in CuPy arrays, and CuPy cannot be imported ({error}). "
            f"Install it with: pip install 'tcusim[cupy]'"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        raise BackendUnavailable(f"the benchmark needs an NVIDIA GPU: {error}") from error
    if count == 0:
        raise BackendUnavailable("the benchmark needs an NVIDIA GPU; none was found")
    return cupy


def read_limits(device: Device, repeats: int) -> dict[str, float]:
    """Measure the GPU's two limits, in bytes a second: of reading, and of copying (both ways)."""
    read_ms = device.times(device.reader(), repeats).median
    copy_ms = device.times(device.copier(), repeats).median
    size = 2.0 * device.length
    return {"read": size / read_ms * 1e3, "copy": 2 * size / copy_ms * 1e3}
