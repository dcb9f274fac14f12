"""The time of one launch: what it asks of each resource of a unit, and how these overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tcusim.judge.cost.accesses import BANKS, FETCH, LINE, SECTOR
from tcusim.judge.cost.fitted import FITTED, Fitted
from tcusim.judge.cost.occupancy import Occupancy, occupancy_of
from tcusim.judge.cost.work import Latencies, Work, work_of
from tcusim.machine import Unit, format_of
from tcusim.machine.multiprocessors import MULTIPROCESSORS, RESERVED_BYTES, SCHEDULERS, rows_of
from tcusim.program.grammar import BufferRole, Mma, Program, Space
from tcusim.program.lanes import WORD_BYTES
from tcusim.program.walk import sites

__all__ = ["CACHED_PART", "RESOURCES", "LaunchCost", "launch_cost", "longest", "together"]

# The parts of a launch's time, and what each is.
RESOURCES: Final = {
    "memory": "bytes of the arrays between memory and the chip, each read or written once",
    "L2": "sectors of 32 bytes between the cache that all cores share and the cores",
    "cores": "instructions that schedulers start, and turns of load-store paths that they do not "
    "hide",
    "matrix units": "products, one beside another",
    "latency": "what a block waits for, one thing after another, over the blocks that run at once",
    "launch": "from the end of the launch before to the start of this one, and until its code is "
    "there",
}

# Cycles of an addition on the ordinary units, from operands to result [CPG; GPGPU-Sim].
_ADDITION: Final = 4.0
# Bytes that a channel of memory moves from the opening of a row to that of the next: of HBM2, three
# cycles of 32 bytes (tRRD [JESD235], as GPGPU-Sim 4.0 has it for a V100).
_OPENING: Final = 96.0
# Arrays are taken to lie in the cache if they fill no more of it than this: it is in two parts on
# GPUs of today, and other data pass through it.
CACHED_PART: Final = 0.7
# Bytes of an instruction [JIA18; of all compute capabilities since 7.0].
_INSTRUCTION: Final = 16
# Bytes a cycle from the cache to one core [CPG; NVIDIA V100 white paper].
_PORT: Final = 64.0
# What is not known of a core is taken to be as in those of today.
_NEWEST: Final = max(MULTIPROCESSORS.values(), key=lambda row: row.sm)
# Steps to find the part of the time that memory is busy.
_HALVINGS: Final = 20


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """The predicted time of one launch.

    Attributes
    ----------
    program : str
        Its name.
    parts : mapping of str to float or None
        Seconds that each of `RESOURCES` would take alone; None if a figure is unknown.
    seconds : float or None
        All of it: the norm of the parts, of which the longest dominates, and the launch.
    work : Work
        What all blocks do together; its `span` is that of one block.
    occupancy : Occupancy
        Blocks of a core at once.
    blocks : int
        Of the grid.
    read_bytes, written_bytes : int
        Of the arrays.
    cached : bool
        Whether the arrays were taken to lie in the cache.
    multiply_adds : float
        Of all products.
    spans : tuple of float
        Seconds that blocks wait, if memory is idle and if it is busy all the time.
    """

    program: str
    parts: Mapping[str, float | None]
    seconds: float | None
    work: Work
    occupancy: Occupancy
    blocks: int
    read_bytes: int
    written_bytes: int
    cached: bool
    multiply_adds: float = 0.0
    spans: tuple[float, float] = (0.0, 0.0)

    @property
    def bound(self) -> str:
        """The part that takes longest."""
        return longest(self.parts)

    def lines(self) -> list[str]:
        """Return a line on the grid, three on a block, and one on the arrays."""
        one, fits = self.work.times(1 / max(1, self.blocks)), self.occupancy
        limit = f", as its {fits.limit} allow" if fits.limit else ""
        alone = "an unknown time" if math.isnan(one.span) else f"{one.span:.0f} cycles"
        turns = BANKS * WORD_BYTES * one.passes / one.shared_bytes if one.shared_bytes else 1.0
        return [
            f"{self.program}: {self.blocks} blocks, {fits.blocks} a core{limit}",
            f"  a block: {fits.registers} registers a thread (estimated), "
            f"{fits.shared_bytes} bytes of shared memory, {alone} alone",
            f"  a block: {one.instructions:.0f} instructions of warps, {one.mma:.0f} products, "
            f"{one.block_barriers:.0f} barriers",
            f"  a block: {one.sectors_read:.0f} sectors read, {one.sectors_written:.0f} written; "
            f"{one.lines:.0f} turns for lines, {one.passes:.0f} for banks, {turns:.2f} times the "
            f"least",
            f"  {self.read_bytes} bytes read, {self.written_bytes} written, "
            f"{'in the cache' if self.cached else 'in memory'}",
        ]


def longest(parts: Mapping[str, float | None]) -> str:
    """Return the name of the longest part, of those that are known; "" if all are zero."""
    known = {name: value for name, value in parts.items() if value}
    return max(known, key=lambda name: known[name], default="")


class _Known:
    """The figures of a unit: NaN, and a note, for one that is unknown."""

    def __init__(self, unit: Unit, unknown: list[str]) -> None:
        self.unit, self.unknown = unit, unknown

    def __call__(self, name: str) -> float:
        figure = getattr(self.unit, name)
        if figure is None:
            self._note(name)
            return math.nan
        return float(figure.value)

    def instruction(self, program: Program, what: str) -> float:
        """Return the latency or the interval of a program's products."""
        tile, ab, acc = program.shape.name, program.ab, program.acc
        family = program.shape.family(ab, acc)
        found = self.unit.instruction(tile, ab, acc, family)
        figure = None if found is None else getattr(found, what)
        if figure is None:
            self._note(f"{what} of {tile} {ab} -> {acc}")
            return math.nan
        return float(figure.value)

    def latencies(
        self, program: Program, busy: float, *, resident: float, cached: bool, fitted: Fitted
    ) -> Latencies:
        """Return the latencies of what a program does on so many busy cores.

        resident: blocks of a core at once.
        """
        multiplies = _multiplies(program)
        cores = max(rows_of(self.unit.arch.sm), key=lambda row: row.sm, default=_NEWEST)
        return Latencies(
            load=self("l2_latency" if cached else "memory_latency"),
            shared=self("shared_latency"),
            mma=self.instruction(program, "latency") if multiplies else 0.0,
            add=_ADDITION,
            barrier=self("barrier_latency") if program.warps > 1 else 0.0,
            word=self("l2_latency") if program.status else 0.0,
            pace=fitted.pace,
            interval=self.instruction(program, "interval") if multiplies else 0.0,
            units=self("units_per_core"),
            fetch=0.0 if cores.copies_alone else self._cycles_of_a_byte(busy),
            matrices=cores.loads_matrices,
            products=cores.products(
                program.shape.m * program.shape.n * program.shape.k, program.acc
            ),
            **({} if cached or math.isnan(busy) else self._translation(int(busy), int(resident))),
        )

    def _translation(self, busy: int, resident: int) -> dict[str, Any]:
        """Return the figures of the translation of addresses; none if one is not known."""
        page, covered, missed = (
            getattr(self.unit, name) for name in ("page_bytes", "tlb_bytes", "tlb_miss_latency")
        )
        if page is None or covered is None or missed is None:
            return {}
        return {
            "page": int(page.value),
            "entries": covered.value / page.value,
            "missed": missed.value,
            "resident": resident,
            "apart": busy,
        }

    def _cycles_of_a_byte(self, busy: float) -> float:
        """Return cycles for each byte from the cache to one of so many cores that read at once."""
        return max(1 / _PORT, busy * self("clock") / self("l2_bandwidth"))

    def _note(self, name: str) -> None:
        if name not in self.unknown:
            self.unknown.append(name)


def launch_cost(
    program: Program,
    scalars: Mapping[str, int],
    unit: Unit,
    *,
    cached: bool,
    unknown: list[str],
    fitted: Fitted = FITTED,
) -> LaunchCost:
    """Return the time of one launch of a program; names of figures that lack go to `unknown`."""
    known = _Known(unit, unknown)
    blocks = program.grid(scalars)
    limits = {name: figure.value for name, figure in unit.figures().items()}
    reserved = max((row.reserved_bytes for row in rows_of(unit.arch.sm)), default=RESERVED_BYTES)
    occupancy = occupancy_of(program, limits, reserved)
    if not blocks:
        nothing = dict.fromkeys(RESOURCES, 0.0)
        return LaunchCost(program.name, nothing, 0.0, Work(), occupancy, 0, 0, 0, cached)
    cycle, cores = 1 / known("clock"), known("cores")
    busy = min(cores, blocks)
    resident = min(occupancy.blocks, _ceil(blocks / busy))
    idle = known.latencies(program, busy, resident=resident, cached=cached, fitted=fitted)
    one = work_of(program, scalars, idle, fitted.overhead, queueing=fitted.queueing)
    work = one.times(blocks)
    read, written = (
        _array_bytes(program, scalars, role) for role in (BufferRole.INPUT, BufferRole.OUTPUT)
    )
    # The cache keeps the neighbour of a sector if the lines fit that all warps read at once.
    lines = LINE * one.far_rows * program.warps * min(float(blocks), cores * occupancy.blocks)
    fetched = FETCH if lines <= CACHED_PART * limits.get("l2_bytes", 0.0) else SECTOR
    reading = read * _row_cost(one.rows_read, one.sectors_read, fetched)
    writing = written * _row_cost(one.rows_written, one.sectors_written, fetched)
    moved = reading + fitted.write_cost * writing
    memory = 0.0 if cached else moved / known("memory_bandwidth")
    turns = (work.lines + work.passes) * LINE / known("shared_bandwidth")
    core_cycles = work.instructions / SCHEDULERS + fitted.unhidden * turns
    # Data from memory pass the cache meanwhile: the slower of both counts.
    cache = _cache_seconds(work, known)
    path = max(memory, cache) if memory == memory else memory
    # All blocks of a chain wait but the first.
    waits = fitted.waiting * path * one.awaited / (1.0 + one.awaited)
    interval = known.instruction(program, "interval") if _multiplies(program) else 0.0
    fetching = _INSTRUCTION * one.code / LINE * (limits.get("code_latency") or 0.0)
    # The last blocks leave some cores idle.
    uneven = _ceil(blocks / busy) * busy / blocks
    found = {
        "memory": memory,
        "L2": cache,
        "cores": core_cycles * cycle / busy * uneven,
        "matrix units": work.mma * interval * cycle / (busy * known("units_per_core")) * uneven,
        "latency": 0.0,
        "launch": known("launch_seconds") + fitted.start + fetching * cycle,
    }
    after = cycle * _ceil(blocks / (cores * occupancy.blocks))
    spans = one.span * after + waits, one.queued_span * after + waits
    others = path, found["cores"], found["matrix units"]
    inside, found["latency"] = together(others, spans, fitted.sharpness)
    seconds = inside + found["launch"]
    return LaunchCost(
        program.name,
        {name: _if_known(value) for name, value in found.items()},
        _if_known(seconds),
        work,
        occupancy,
        blocks,
        read,
        written,
        cached,
        work.mma * program.shape.m * program.shape.n * program.shape.k,
        spans,
    )


def together(
    others: Sequence[float], spans: tuple[float, float], power: float
) -> tuple[float, float]:
    """Return the time of resources at once, and the part that is latency.

    others: seconds of the path from memory, which comes first, and of other resources. spans:
    seconds that blocks wait if memory is idle, and if it is busy all the time. Queues grow with the
    part of the time that it is busy.
    """
    idle, queued = spans
    low, high = 0.0, 1.0
    seconds = latency = 0.0
    for _ in range(_HALVINGS):
        utilization = (low + high) / 2
        latency = idle + utilization * (queued - idle)
        seconds = sum(value**power for value in (*others, latency)) ** (1 / power)
        busy = others[0] / seconds if seconds else 0.0
        low, high = (utilization, high) if busy > utilization else (low, utilization)
    return seconds, latency


def _ceil(value: float) -> float:
    return value if math.isnan(value) else float(math.ceil(value))


def _cache_seconds(work: Work, known: _Known) -> float:
    """Return the time of what moves between the cache and the cores.

    A store sends a packet for each line and for each sector, so that a whole line takes five. Loads
    and stores take separate ways; without a figure of stores, all sectors count as loads.
    """
    reading = SECTOR * work.sectors_read / known("l2_bandwidth")
    stores = known.unit.store_bandwidth
    if stores is None:
        return reading + SECTOR * work.sectors_written / known("l2_bandwidth")
    return max(reading, work.packets * LINE / (1 + LINE // SECTOR) / stores.value)


def _row_cost(rows: float, sectors: float, fetched: int) -> float:
    """Return the time of accesses to memory, in times of those that read it row by row.

    An access that opens a row of memory for one sector keeps a channel for as long as `_OPENING`
    bytes take. fetched: bytes that are moved meanwhile and used: the sector, or its neighbour too.
    """
    return max(1.0, _OPENING / fetched * rows / sectors) if sectors else 1.0


def _multiplies(program: Program) -> bool:
    return any(isinstance(site.step, Mma) for site in sites(program))


def _array_bytes(program: Program, scalars: Mapping[str, int], role: BufferRole) -> int:
    """Return the bytes of the arrays of one role in global memory."""
    return sum(
        buffer.size.evaluate(scalars) * format_of(buffer.dtype).itemsize
        for buffer in program.buffers
        if buffer.space is Space.GLOBAL and buffer.role is role
    )


def _if_known(value: float) -> float | None:
    return None if math.isnan(value) else value
