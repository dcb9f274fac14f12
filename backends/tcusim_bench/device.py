"""What the benchmark does on a GPU: random data, launches, times, and the check of a result.

Memory, random numbers and events are CuPy's. Everything runs on the default stream.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import BackendUnavailable, InputError, TcusimError
from tcusim.machine import format_of
from tcusim_bench.programs import Recipe
from tcusim_cuda import CUDA, CUPY, PYCUDA
from tcusim_cuda.compile import compile_kernel
from tcusim_cuda.emit import emit

__all__ = [
    "BACKENDS",
    "Device",
    "Problem",
    "Run",
    "matrix_columns",
    "read_limits",
    "reference",
]

Array = Any
Run = Callable[[], object]

BACKENDS: Final = {"cuda": CUDA, "cupy": CUPY, "pycuda": PYCUDA}

# Beyond these a run is so slow that it is timed once more, or not again.
_SLOW_MS: Final = 200.0
_VERY_SLOW_MS: Final = 3000.0

# Elements that are compared with float64, and that the simulator runs.
_SAMPLE: Final = 2**20
_PREFIX: Final = 2**15
_LONGEST_PREFIX: Final = 2**22
# Elements that are searched for unwritten ones at a time.
_CHUNK: Final = 2**26
# Elements of the pieces in which an array that is one segment is summed by float64.
_PIECE: Final = 2**14

# Uniform in [-1, 1): the hash of an element's number (splitmix64), of which the type keeps 11 bits.
_RANDOM: Final = """
unsigned long long z = seed + 0x9e3779b97f4a7c15ull * (i + 1);
z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
z = z ^ (z >> 31);
x = (float)(z >> 40) / 8388608.0f - 1.0f;
"""

_READ_THREADS: Final = 256
_READ_LOADS: Final = 8
# Each thread has eight loads of 16 bytes in flight; the store keeps them from being left out.
READ_ONLY: Final = f"""
extern "C" __global__ void read_only(const uint4* data, unsigned int* never)
{{
    const long long first = blockIdx.x * {_READ_THREADS * _READ_LOADS}ll + threadIdx.x;
    unsigned int all = 0;
    #pragma unroll
    for (int k = 0; k < {_READ_LOADS}; ++k) {{
        const uint4 v = data[first + k * {_READ_THREADS}];
        all ^= v.x ^ v.y ^ v.z ^ v.w;
    }}
    if (all == 0x12345678u) never[0] = all;
}}
"""
READ_BYTES: Final = 16 * _READ_THREADS * _READ_LOADS


class Device:
    """The GPU, with `length` f16 numbers in its memory and room for the results.

    `vector` is what rows of the numbers, as a matrix, are multiplied by. Raises BackendUnavailable
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
        self.data = self.cp.empty(length, np.float16)
        self._room = self.cp.empty(length * 4, np.uint8)
        fill = self.cp.ElementwiseKernel("uint64 seed", "float16 x", _RANDOM, "tcusim_bench_random")
        fill(np.uint64(length), self.data)
        self.vector = self.cp.empty(matrix_columns(length), np.float16)
        fill(np.uint64(length + 1), self.vector)

    @property
    def sm(self) -> int:
        """Compute capability, such as 90."""
        return int(self.cp.cuda.Device().compute_capability)

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """The GPU, its driver and CUDA's versions."""
        runtime = self.cp.cuda.runtime
        properties = runtime.getDeviceProperties(self.cp.cuda.Device().id)
        return {
            "gpu": properties["name"].decode(),
            "sm": self.sm,
            "multiprocessors": int(properties["multiProcessorCount"]),
            "l2_bytes": int(properties["l2CacheSize"]),
            "memory_bytes": int(properties["totalGlobalMem"]),
            "driver": _driver_version(),
            "driver_cuda": _cuda_version(runtime.driverGetVersion()),
            "cuda": _cuda_version(runtime.runtimeGetVersion()),
        }

    # --- Memory ------------------------------------------------------------------------------

    def output(self, dtype: str, size: int) -> Array:
        """Return room for a result, every byte 0xFF: NaN in every float type."""
        self._room.fill(0xFF)
        kind = format_of(dtype).dtype
        return self._room[: size * kind.itemsize].view(kind)

    def has_nan(self, array: Array) -> bool:
        """Return whether any element is NaN, such as one that nobody wrote."""
        starts = range(0, array.size, _CHUNK)
        return any(bool(self.cp.isnan(array[start : start + _CHUNK]).any()) for start in starts)

    # --- Time --------------------------------------------------------------------------------

    def median_ms(self, run: Run, repeats: int) -> float:
        """Return the median time of one run, in milliseconds, after a warm-up."""
        first = self._once_ms(run)
        if first > _VERY_SLOW_MS:
            return first
        second = self._once_ms(run)
        if first > _SLOW_MS:
            return second
        return statistics.median(self._once_ms(run, busy=True) for _ in range(repeats))

    def _once_ms(self, run: Run, *, busy: bool = False) -> float:
        """Time one run; `busy` puts another before it, behind which the host's work is hidden."""
        start, stop = self.cp.cuda.Event(), self.cp.cuda.Event()
        if busy:
            run()
        start.record()
        run()
        stop.record()
        stop.synchronize()
        return float(self.cp.cuda.get_elapsed_time(start, stop))

    # --- Launches ----------------------------------------------------------------------------

    def reader(self) -> Run:
        """Return a kernel that reads the data and writes nothing."""
        kernel = self.cp.RawKernel(READ_ONLY, "read_only")
        blocks = self.data.nbytes // READ_BYTES
        return lambda: kernel((blocks,), (_READ_THREADS,), (self.data, self._room))

    def copier(self) -> Run:
        """Return a copy of the data by the driver."""
        runtime = self.cp.cuda.runtime
        to, source, size = self._room.data.ptr, self.data.data.ptr, self.data.nbytes
        return lambda: runtime.memcpyAsync(to, source, size, runtime.memcpyDeviceToDevice, 0)

    def compile_ahead(self, recipes: Iterable[Recipe]) -> None:
        """Compile the programs of recipes on all cores, so that `program` finds them on disk.

        What cannot be compiled raises there, and becomes a row.
        """
        sm = self.sm

        def compile_one(recipe: Recipe) -> None:
            with contextlib.suppress(TcusimError):
                for launch in recipe.plan(self.length).launches:
                    compile_kernel(emit(launch.program), sm)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, recipes))

    def program(self, recipe: Recipe, out: Array) -> Run:
        """Return what launches a recipe on the data, and writes the result to `out`."""
        plan = recipe.plan(self.length)
        session = self._launcher.prepare(plan)
        inputs = {
            name: array[: plan.memory[name].size]
            for name, array in zip(plan.inputs, (self.data, self.vector), strict=False)
        }
        return lambda: session.run(inputs, out=out, shape=out.shape)


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


def _cuda_version(number: int) -> str:
    """Print 13020 as 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _driver_version() -> str:
    """Return the driver's own version, which CUDA does not tell."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return "unknown"
    asked = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else "unknown"


# --- A problem and its check ------------------------------------------------------------------


def matrix_columns(length: int) -> int:
    """Return the columns of the matrix that the data are: as many as rows, or half as many."""
    return 1 << (length.bit_length() - 1) // 2


def reference(kind: str, segments: NDArray[Any]) -> NDArray[np.float64]:
    """Sum or scan each row in float64: `segments` (rows, size); the sums are (rows,).

    For "matvec", the rows are products already.
    """
    wide = segments.astype(np.float64)
    return wide.cumsum(axis=1) if kind == "scan" else wide.sum(axis=1)


class Sample(NamedTuple):
    """Some of the right results: their places in the result, and what is right there.

    norms: the Euclidean norms of what was summed, of a shape that broadcasts to the others'.
    """

    places: NDArray[np.int64]
    right: NDArray[np.float64]
    norms: NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Sums or scans of all segments of one size, with a sample of the right answer.

    Of "matvec", segments are the rows of a matrix, whose products with a vector are summed.
    """

    kind: str
    segment_size: int
    device: Device

    def __str__(self) -> str:
        return f"{self.kind} {self.segment_size}"

    @property
    def segments(self) -> int:
        """Number of segments."""
        return self.device.length // self.segment_size

    @property
    def is_whole(self) -> bool:
        """Whether the whole array is one segment."""
        return self.segments == 1

    @property
    def size(self) -> int:
        """Elements of the result."""
        return self.device.length if self.kind == "scan" else self.segments

    @property
    def matrix(self) -> Array:
        """The data, a segment a row."""
        return self.device.data.reshape(self.segments, self.segment_size)

    @functools.cached_property
    def _expected(self) -> dict[Recipe, NDArray[Any] | None]:
        """What was simulated before, by the recipe."""
        return {}

    @functools.cached_property
    def _sample(self) -> Sample:
        return self._sample_of_whole() if self.is_whole else self._sample_of_segments()

    def _sample_of_segments(self) -> Sample:
        """Return the results of the first segment, the last, and some between."""
        chosen = _drawn(self.segments, max(3, _SAMPLE // self.segment_size))
        cp = self.device.cp
        rows = cp.asnumpy(self.matrix[cp.asarray(chosen)]).astype(np.float64)
        if self.kind == "matvec":
            rows *= cp.asnumpy(self.device.vector[: self.segment_size]).astype(np.float64)
        right = reference(self.kind, rows).reshape(len(rows), -1)
        places = chosen[:, None] * right.shape[1] + np.arange(right.shape[1])
        return Sample(places, right, np.sqrt((rows**2).sum(axis=1, keepdims=True)))

    def _sample_of_whole(self) -> Sample:
        """Return the sum of the array; of its scan, all of some pieces, and the ends of all pieces.

        The data are multiples of 2^-24, or larger powers of two: their sums in float64 are exact.
        """
        cp, data = self.device.cp, self.device.data
        sums, square = [], 0.0
        for start in range(0, data.size, _CHUNK):
            wide = data[start : start + _CHUNK].astype(np.float64)
            sums.append(cp.asnumpy(wide.reshape(-1, _PIECE).sum(axis=1)))
            square += float((wide * wide).sum())
        ends = np.concatenate(sums).cumsum()
        norms = np.full(1, np.sqrt(square))
        if self.kind == "sum":
            return Sample(np.zeros(1, np.int64), ends[-1:], norms)
        chosen = _drawn(ends.size, _SAMPLE // _PIECE)
        pieces = cp.asnumpy(data.reshape(-1, _PIECE)[cp.asarray(chosen)])
        before = np.where(chosen > 0, ends[chosen - 1], 0.0)
        within = before[:, None] + reference("scan", pieces)
        places = chosen[:, None] * _PIECE + np.arange(_PIECE)
        last = np.arange(1, ends.size + 1) * _PIECE - 1
        right = np.concatenate([ends, within.ravel()])
        return Sample(np.concatenate([last, places.ravel()]), right, norms)

    def error(self, out: Array) -> float:
        """Return the largest error of the sample, relative to a segment's norm.

        Sums of numbers of both signs are about as large as the norm. NaN if anything is NaN.
        """
        if self.device.has_nan(out):
            return float("nan")
        cp, sample = self.device.cp, self._sample
        got = cp.asnumpy(out[cp.asarray(sample.places)]).astype(np.float64)
        return float((np.abs(got - sample.right) / sample.norms).max())

    def compare_bits(self, recipe: Recipe, out: Array) -> tuple[int, int]:
        """Compare the first results with the simulator's; return how many, and how many differ.

        0 of 0 if the simulator does not know this GPU, or the segments are long.
        """
        alone = recipe.alone()
        if alone not in self._expected:
            self._expected[alone] = self._simulated(alone)
        expected = self._expected[alone]
        if expected is None:
            return 0, 0
        got = self.device.cp.asnumpy(out[: expected.size])
        bits = np.dtype(f"u{expected.dtype.itemsize}")
        return expected.size, int((got.view(bits) != expected.view(bits)).sum())

    def _simulated(self, alone: Recipe) -> NDArray[Any] | None:
        """Return the first results, by the launches for all of the data on their beginning."""
        length = self.device.length
        prefix = max(_PREFIX, self.segment_size)
        vector = None
        if self.kind == "matvec":
            prefix = max(self.segment_size, min(_SAMPLE, length))
            vector = self.device.cp.asnumpy(self.device.vector[: self.segment_size])
        elif self.is_whole and self.kind == "scan":
            # What is before an element decides its prefix; so many need mail of several groups.
            prefix = min(_LONGEST_PREFIX, length)
        while prefix <= min(_LONGEST_PREFIX, length):
            data = self.device.cp.asnumpy(self.device.data[:prefix])
            try:
                return alone.simulate(data, f"sm_{self.device.sm}", length=length, vector=vector)
            except InputError:
                prefix *= 2  # less than what one block takes
            except TcusimError:
                return None
        return None


def _drawn(size: int, count: int) -> NDArray[np.int64]:
    """Return numbers below `size`, the same each time: the first, the last, and some between."""
    drawn = np.random.default_rng(size).integers(0, size, min(size, count))
    drawn[0], drawn[-1] = 0, size - 1
    return np.unique(drawn)


def read_limits(device: Device, repeats: int) -> dict[str, float]:
    """Measure the GPU's two limits, in bytes a second: of reading, and of copying (both ways)."""
    read_ms = device.median_ms(device.reader(), repeats)
    copy_ms = device.median_ms(device.copier(), repeats)
    size = float(device.data.nbytes)
    return {"read": size / read_ms * 1e3, "copy": 2 * size / copy_ms * 1e3}
