"""The probes of `tcusim microbench`, each a few launches that give figures of a machine.

Cycles are those of a core's own counter, of one block on one core; bandwidths are of the whole GPU,
by CUDA events. A result is the minimum of several runs: a disturbance only makes a run longer.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import TcusimError
from tcusim.machine import Unit
from tcusim.machine.shapes import MmaShape, Operands
from tcusim_cuda.compile import compile_text
from tcusim_cuda.microbench import texts
from tcusim_cuda.microbench.gpu import Gpu

# Schedulers of a core, of which each starts an instruction of one warp in a cycle: every compute
# capability from 7.0 on [CPG, compute capabilities].
SCHEDULERS: Final = 4
# Rounds of a timed loop: enough that filling and draining the pipeline is below 1 %.
_ROUNDS: Final = 64
_REPEATS: Final = 3
# A step through a ring, as a part of it, by which places that are met soon after each other lie far
# apart: the golden ratio.
_STEP: Final = 0.6180339887
# Warps of the one block that keeps a core busy, from few to many.
_BUSY_WARPS: Final = (4, 8, 16)
_THREADS: Final = 256
# The bytes read repeatedly from the second-level cache: so many, or this part of it where
# it is small. Some GPUs have it in halves.
_CACHED_BYTES: Final = 16 * 2**20
_CACHED_PART: Final = 3
_AGAIN: Final = 20
# Loads of a chain through memory: few enough that no line is met twice.
_CHAIN_LOADS: Final = 2048
_LINE: Final = 128


@dataclass(frozen=True, slots=True)
class Found:
    """One number that a probe found.

    Attributes
    ----------
    name : str
        A figure of a `Unit`; ``"latency"`` or ``"interval"`` of an instruction; or another name
        of the number.
    value : float
        In the quantity `quantity`.
    about : mapping of str to str or float
        The instruction, or the settings.
    """

    name: str
    value: float
    quantity: str
    about: Mapping[str, str | float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probe:
    """One measurement: its name, its function, and the text of its kernels, if any."""

    name: str
    measure: Callable[[Lab], Iterator[Found]]
    text: str = ""


class Lab:
    """A GPU with the compiled kernels of probes; to be closed."""

    def __init__(self, gpu: Gpu, unit: Unit) -> None:
        self.gpu, self.unit = gpu, unit
        self.sink = gpu.zeros(256, np.uint32)
        self._pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
        self._cubins: dict[str, Future[bytes]] = {}
        self._modules: dict[str, Any] = {}

    @property
    def cores(self) -> int:
        """The number of the GPU's cores."""
        return int(self.gpu.info["multiprocessors"])

    @property
    def cached_bytes(self) -> int:
        """The bytes that surely stay in the second-level cache, a multiple of a megabyte."""
        part = int(self.gpu.info["l2_bytes"]) // _CACHED_PART
        return max(1, min(_CACHED_BYTES, part) >> 20) << 20

    # --- Kernels -----------------------------------------------------------------------------

    def compile_ahead(self, several: Iterable[Probe]) -> None:
        """Begin to compile the texts of probes, in other threads."""
        for probe in several:
            if probe.text and probe.text not in self._cubins:
                self._cubins[probe.text] = self._pool.submit(
                    compile_text, probe.name, probe.text, self.gpu.sm
                )

    def kernel(self, text: str, name: str) -> Any:
        """Return a kernel of a text, compiled and loaded once."""
        if text not in self._modules:
            if text not in self._cubins:
                self._cubins[text] = self._pool.submit(compile_text, name, text, self.gpu.sm)
            self._modules[text] = self.gpu.load(self._cubins[text].result())
        return self.gpu.kernel(self._modules[text], name)

    def close(self) -> None:
        """Cancel the remaining compilations."""
        self._pool.shutdown(cancel_futures=True)

    # --- Time --------------------------------------------------------------------------------

    def cycles(self, kernel: Any, warps: int, *arguments: Any) -> float:
        """Return the least time of several runs of one block: see `cycles_once`."""
        return min(self.cycles_once(kernel, warps, *arguments) for _ in range(_REPEATS))

    def cycles_once(self, kernel: Any, warps: int, *arguments: Any, blocks: int = 1) -> float:
        """Return the cycles from a block's first start to its last end; of the slowest block.

        The kernel is given memory for its times, and then the arguments.
        """
        times = self.gpu.zeros(2 * warps * blocks, np.int64)
        kernel(blocks, 32 * warps, (times, *arguments))
        # Each core has a counter of its own.
        ends: NDArray[np.int64] = self.gpu.values(times, np.int64).reshape(blocks, warps, 2)
        if not ends.all():
            raise TcusimError("a block ended before it had taken its times")
        return float((ends[..., 1].max(axis=1) - ends[..., 0].min(axis=1)).max())

    def seconds(self, run: Callable[[], object]) -> float:
        """Return the least time of a run, by events."""
        return self.gpu.times(run, _REPEATS).least / 1e3

    def seconds_in_graph(self, run: Callable[[], object]) -> float:
        """Return the least time of a run among many in a CUDA graph."""
        return self.gpu.times_in_graph(run, _REPEATS).least / 1e3


def probes(unit: Unit, sm: int) -> Iterator[Probe]:
    """Yield the probes of a unit, the most important first."""
    yield Probe("memory bandwidth", _memory_bandwidth, texts.READ_ONLY)
    yield Probe("L2 bandwidth", _l2_bandwidth, texts.LOADED_TEXT)
    yield Probe("L2 latency", _l2_latency, texts.LOADS)
    yield Probe("memory latency", _memory_latency, texts.LOADS)
    yield Probe("launch", _launch, texts.EMPTY)
    yield Probe("clock", _clock, texts.CLOCK)
    yield Probe("shuffle", _shuffle, texts.SHUFFLE)
    yield Probe("barrier", _barrier, texts.BARRIER)
    yield Probe("shared memory", _shared, texts.SHARED)
    yield Probe("bytes in flight", _in_flight, texts.LOADED_TEXT)
    yield Probe("width of reads", _widths, texts.READ_WIDTHS)
    yield Probe("width of writes", _write_widths, texts.WRITE_WIDTHS)
    yield Probe("flag between blocks", _flags, texts.FLAGS)
    for shape, row in instructions_of(unit, sm):
        name = f"{row.family} {shape} {row.ab} {row.acc}"
        text = texts.mma_text(shape, row.ab, row.acc, row.family)
        yield Probe(name, partial(_mma, shape, row, text), text)


def instructions_of(unit: Unit, sm: int) -> Iterator[tuple[MmaShape, Operands]]:
    """Yield the instructions of a unit that a GPU has, and that its rules speak of.

    8x8x4 of float16 is left out: it multiplies four tiles at once on Volta, and newer GPUs emulate
    it.
    """
    for shape in unit.shapes:
        for row in shape.operands:
            wmma = row.family == "wmma"
            known = (row.ab, row.acc) in unit.arch.pairs
            quad = shape.name == "8x8x4" and row.ab == "f16"
            if (
                row.min_sm <= sm
                and known
                and not quad
                and not (wmma and row.ab not in texts.WMMA_TYPES)
            ):
                yield shape, row


# --- Products, lanes, barriers ------------------------------------------------------------------


def _mma(shape: MmaShape, row: Operands, text: str, lab: Lab) -> Iterator[Found]:
    about = {"tile": shape.name, "ab": row.ab, "acc": row.acc, "family": row.family}
    arguments = (lab.sink, np.int32(_ROUNDS), np.uint32(0))
    products = _ROUNDS * texts.A_ROUND
    alone = lab.cycles(lab.kernel(text, "chain"), 1, *arguments)
    yield Found("latency", alone / products, "cycles", about)
    if lab.unit.units_per_core is None:
        raise TcusimError("the interval is that of one matrix unit, and units_per_core is unknown")
    units = lab.unit.units_per_core.value
    kernel = lab.kernel(text, "beside")
    busy = [units * lab.cycles(kernel, w, *arguments) / (w * products) for w in _BUSY_WARPS]
    yield Found("interval", min(busy), "cycles", about)


def _shuffle(lab: Lab) -> Iterator[Found]:
    arguments = (lab.sink, np.int32(_ROUNDS), np.uint32(1))
    steps = _ROUNDS * texts.A_ROUND
    for name, kernel in (
        ("shuffle_latency", "shuffle_chain"),
        ("addition latency", "add_chain"),
        ("shuffle and addition latency", "shuffle_add_chain"),
    ):
        cycles = lab.cycles(lab.kernel(texts.SHUFFLE, kernel), 1, *arguments)
        yield Found(name, cycles / steps, "cycles")
    beside = lab.kernel(texts.SHUFFLE, "shuffle_beside")
    busy = [SCHEDULERS * lab.cycles(beside, w, *arguments) / (w * steps) for w in _BUSY_WARPS]
    yield Found("shuffle_interval", min(busy), "cycles")


def _barrier(lab: Lab) -> Iterator[Found]:
    arguments = (lab.sink, np.int32(_ROUNDS), np.uint32(1))
    steps = _ROUNDS * texts.A_ROUND
    for warps in (8, 1, 2, 4, 16, 32):
        kernel = lab.kernel(texts.BARRIER, "block_barrier")
        cycles = lab.cycles(kernel, warps, *arguments) / steps
        if 32 * warps == _THREADS:
            yield Found("barrier_latency", cycles, "cycles")
        yield Found("barrier of a block", cycles, "cycles", {"warps": warps})
    cycles = lab.cycles(lab.kernel(texts.BARRIER, "warp_barrier"), 1, *arguments)
    yield Found("two barriers of a warp, with a multiplication", cycles / steps, "cycles")


def _shared(lab: Lab) -> Iterator[Found]:
    arguments = (lab.sink, np.int32(_ROUNDS), np.uint32(0))
    steps = _ROUNDS * texts.A_ROUND

    def busy(name: str) -> float:
        """Return the cycles of a core from one warp's instruction to the next."""
        kernel = lab.kernel(texts.SHARED, name)
        warps = (8, texts.SHARED_THREADS // 32)
        return min(lab.cycles(kernel, w, *arguments) / (w * steps) for w in warps)

    yield Found("shared_bandwidth", 32 * 16 / busy("shared_read_16"), "bytes a cycle")
    chase = lab.kernel(texts.SHARED, "shared_chase")
    yield Found("shared_latency", lab.cycles(chase, 1, *arguments) / steps, "cycles")
    for size in (2, 4, 8, 16):
        cycles = busy(f"shared_read_{size}")
        yield Found("shared read of a warp", cycles, "cycles", {"bytes of a lane": size})
    for stride in (1, 2, 4, 32):
        cycles = busy(f"shared_stride_{stride}")
        yield Found("shared read of a warp", cycles, "cycles", {"words between lanes": stride})


# --- Memory -------------------------------------------------------------------------------------


def _memory_bandwidth(lab: Lab) -> Iterator[Found]:
    data, nbytes = lab.gpu.data, lab.gpu.data.nbytes
    kernel = lab.kernel(texts.READ_ONLY, "read_only")
    blocks = nbytes // texts.READ_BYTES
    seconds = lab.seconds(partial(kernel, blocks, texts.READ_THREADS, (data, lab.sink)))
    yield Found("memory_bandwidth", nbytes / seconds, "bytes a second")
    seconds = lab.seconds(partial(lab.gpu.copy, data, lab.gpu.output))
    yield Found("copy bandwidth", 2 * nbytes / seconds, "bytes a second")


def _read(lab: Lab, name: str, loads: int, threads_per_core: int, size: int) -> Any:
    """Return a launcher of a reading kernel on about so many bytes, and the bytes; None if too few.

    Each thread has whole rounds of loads, so that none is idle while others read.
    """
    threads = min(_THREADS, threads_per_core)
    blocks = lab.cores * threads_per_core // threads
    a_round = 16 * loads * threads * blocks
    if size < a_round:
        return None
    size = size // a_round * a_round
    kernel = lab.kernel(texts.LOADED_TEXT, f"{name}_{loads}")
    more = (np.int32(_AGAIN),) if name == "again" else ()
    arguments = (lab.gpu.data, lab.sink, np.uint64(size // 16), *more)
    return partial(kernel, blocks, threads, arguments), size


def _l2_bandwidth(lab: Lab) -> Iterator[Found]:
    best, about = 0.0, {}
    for loads, threads in itertools.product(texts.LOADED, (256, 512, 1024, 2048)):
        found = _read(lab, "again", loads, threads, lab.cached_bytes)
        if found is not None:
            run, size = found
            rate = _AGAIN * size / lab.seconds(run)
            if rate > best:
                best, about = rate, {"loads": loads, "threads of a core": threads}
    yield Found("l2_bandwidth", best, "bytes a second", about)


def _in_flight(lab: Lab) -> Iterator[Found]:
    """Yield the memory bandwidth by the number of 16-byte loads in flight in a core."""
    for loads, threads in itertools.product(texts.LOADED, (64, 128, 256, 512, 1024, 2048)):
        found = _read(lab, "loaded", loads, threads, lab.gpu.data.nbytes)
        if found is not None:
            run, size = found
            about = {"loads": loads, "threads of a core": threads}
            yield Found("read bandwidth", size / lab.seconds(run), "bytes a second", about)


def _chain(lab: Lab, size: int) -> tuple[int, int]:
    """Write a chain through so many bytes; return its lines, and the step from one to the next."""
    lines = size // _LINE
    step = int(_STEP * lines)
    while np.gcd(step, lines) != 1:
        step += 1
    link = lab.kernel(texts.LOADS, "link")
    link(-(-lines // _THREADS), _THREADS, (lab.gpu.data, np.uint64(lines), np.uint64(step)))
    return lines, step


def _l2_latency(lab: Lab) -> Iterator[Found]:
    lines, _ = _chain(lab, lab.cached_bytes // 4)
    # The first run brings every line into the cache.
    follow = lab.kernel(texts.LOADS, "follow")
    cycles = lab.cycles(follow, 1, lab.sink, np.int32(lines), lab.gpu.data) / lines
    yield Found("l2_latency", cycles, "cycles", {"bytes": lines * _LINE})


def _memory_latency(lab: Lab) -> Iterator[Found]:
    lines, step = _chain(lab, lab.gpu.data.nbytes)
    follow, best = lab.kernel(texts.LOADS, "follow"), np.inf
    for run in range(_REPEATS):
        # Writes elsewhere evict the chain from the cache, and each run begins
        # where no other has been.
        lab.gpu.fill(lab.gpu.output, 0xFF)
        begin = lab.gpu.data[_LINE * (run * _CHAIN_LOADS * step % lines) :]
        cycles = lab.cycles_once(follow, 1, lab.sink, np.int32(_CHAIN_LOADS), begin)
        best = min(best, cycles / _CHAIN_LOADS)
    yield Found("memory_latency", best, "cycles", {"bytes": lines * _LINE})


def _widths(lab: Lab) -> Iterator[Found]:
    data, size = lab.gpu.data, lab.gpu.data.nbytes
    for width in (2, 4, 8, 16):
        kernel = lab.kernel(texts.READ_WIDTHS, f"read_{width}")
        run = partial(kernel, *_stream(size, width), (data, lab.sink, np.uint64(size // width)))
        about = {"bytes of a lane": width}
        yield Found("read bandwidth", size / lab.seconds(run), "bytes a second", about)


def _write_widths(lab: Lab) -> Iterator[Found]:
    out, size = lab.gpu.output, lab.gpu.output.nbytes
    for width in (2, 4, 8, 16):
        kernel = lab.kernel(texts.WRITE_WIDTHS, f"write_{width}")
        run = partial(kernel, *_stream(size, width), (out, np.uint32(0), np.uint64(size // width)))
        about = {"bytes of a lane": width}
        yield Found("write bandwidth", size / lab.seconds(run), "bytes a second", about)


def _stream(size: int, width: int) -> tuple[int, int]:
    """Return blocks and threads for eight words of each thread."""
    return size // (8 * width * _THREADS), _THREADS


# --- Launches, blocks, clock ----------------------------------------------------------------------


def _launch(lab: Lab) -> Iterator[Found]:
    """Yield the time of one more launch of an empty kernel in a CUDA graph."""
    kernel = lab.kernel(texts.EMPTY, "empty")
    for blocks, name in ((1, "launch_seconds"), (lab.cores, "launch of a block on each core")):

        def several(count: int, blocks: int = blocks) -> None:
            for _ in range(count):
                kernel(blocks, _THREADS, (lab.sink,))

        few, many = (lab.seconds_in_graph(partial(several, count)) for count in (2, 12))
        yield Found(name, (many - few) / 10, "seconds")


def _flags(lab: Lab) -> Iterator[Found]:
    rounds = 512
    flag = lab.gpu.zeros(32, np.uint32)
    kernel = lab.kernel(texts.FLAGS, "answer")
    cycles = lab.cycles_once(kernel, 1, flag, np.int32(rounds), blocks=2)
    yield Found("word from block to block", cycles / (2 * rounds), "cycles")


def _clock(lab: Lab) -> Iterator[Found]:
    kernel = lab.kernel(texts.CLOCK, "ticks")
    found = lab.gpu.zeros(2 * lab.cores, np.int64)
    # Some 20 ms on a GPU of today: the frequency has settled, and nanoseconds are counted by the
    # microsecond on some.
    kernel(lab.cores, 512, (found, lab.sink, np.int32(2**18), np.uint32(1)))
    cycles, nanoseconds = lab.gpu.values(found, np.int64).reshape(-1, 2).T
    yield Found("clock", float(np.median(cycles / nanoseconds)) * 1e9, "Hz")
