"""How many blocks of a program a core holds at once: by warps, registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tcusim.machine import format_of
from tcusim.machine.multiprocessors import RESERVED_BYTES, THREAD_REGISTERS
from tcusim.program.grammar import Program
from tcusim.program.lanes import LANES
from tcusim.program.resources import SharedMemory
from tcusim.program.walk import sites

# What a thread needs besides tiles: addresses and loop variables; and more where blocks pass sums
# on. So is the median of what NVRTC 12.9 takes for the plans of sums and scans, for sm_90.
_SPARE_REGISTERS: Final = 8
_SPARE_OF_STATUS: Final = 32
# The least that a compiler takes where there is something to compute, and its steps.
_LEAST_REGISTERS: Final = 32
_STEP: Final = 8
_REGISTER_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks of a core at once, and which of its resources allows no more.

    registers: of a thread, estimated. shared_bytes: of a block, counted.
    """

    blocks: int
    limit: str
    registers: int
    shared_bytes: int


def fragment_registers(program: Program) -> int:
    """Return the registers of a thread for its share of every fragment, if no two share one."""
    frags = {frag.name: frag for site in sites(program) for frag in site.touched.frags}
    nbytes = sum(
        -(-frag.rows * frag.cols * format_of(frag.dtype).itemsize // LANES)
        for frag in frags.values()
    )
    return -(-nbytes // _REGISTER_BYTES)


def registers_of(program: Program) -> int:
    """Estimate the registers of a thread: its share of every fragment, and a few besides.

    A compiler keeps less where fragments are not needed at one time, and more where it moves loads
    ahead; how many it takes, the machine code tells.
    """
    spare = _SPARE_OF_STATUS if program.status else _SPARE_REGISTERS
    needed = -(-(fragment_registers(program) + spare) // _STEP) * _STEP
    return min(THREAD_REGISTERS, max(_LEAST_REGISTERS, needed))


def occupancy_of(
    program: Program, limits: dict[str, float], reserved_bytes: int = RESERVED_BYTES
) -> Occupancy:
    """Return the blocks of a core at once, by its known limits.

    limits: of a core, by the names that a `Unit` has for them; a missing one does not limit.
    reserved_bytes: the shared memory of each block that the system reserves.
    """
    registers, shared = registers_of(program), SharedMemory(program).needed
    warps = program.warps
    of_block = {
        "blocks_per_core": 1.0,
        "warps_per_core": float(warps),
        "threads_per_core": float(warps * LANES),
        "registers_per_core": float(registers * warps * LANES),
        "shared_bytes_per_core": float(shared + reserved_bytes),
    }
    fits = {
        name: int(limits[name] // needed)
        for name, needed in of_block.items()
        if needed and name in limits
    }
    if not fits:
        return Occupancy(1, "", registers, shared)
    limit = min(fits, key=lambda name: fits[name])
    return Occupancy(max(1, fits[limit]), limit, registers, shared)
