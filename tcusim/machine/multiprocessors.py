"""The limits of a multiprocessor: a row for each compute capability, with the GPUs that have it.

The rows come from [CPG], "Technical Specifications per Compute Capability", of CUDA 13 and, for
sm_70, of CUDA 12; the blocks also from NVIDIA's header `cuda_occupancy.h`. Multiply-adds come from
"Throughput of Native Arithmetic Instructions" in [CPG], and the GPUs from [GPUS]. Launch bounds,
plans, the cost model and the figures of units read these rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# The same for every compute capability since sm_70 [CPG]: registers of 32 bits of a multiprocessor
# and of a thread, threads of a block, and the shared memory of a block without an opt-in.
REGISTERS: Final = 2**16
THREAD_REGISTERS: Final = 255
BLOCK_THREADS: Final = 1024
LANES: Final = 32  # of a warp
# Warp schedulers, which start one instruction a cycle each, and the results of shuffles a cycle
# [CPG].
SCHEDULERS: Final = 4
SHUFFLES: Final = 32
STATIC_SHARED_BYTES: Final = 48 * 1024
# [CPG], compute capability 8.x: the shared memory of each block that the system reserves.
RESERVED_BYTES: Final = 1024
_FIRST_RESERVING_SM: Final = 80
# [PTX, cp.async; ldmatrix]: the first that have these instructions.
_FIRST_COPYING_SM: Final = 80
_FIRST_WITH_LDMATRIX: Final = 75
# Multiply-adds of an instruction of a warp for matrices of float16, from each compute capability
# on: HMMA.884, .1688 and .16816; of Volta with sums of float32, half as many [RAIHAN19; JIA19].
_MULTIPLY_ADDS: Final = {80: 16 * 8 * 16, 75: 16 * 8 * 8, 70: 16 * 8 * 4}


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """The limits of a multiprocessor of one compute capability.

    sm: the compute capability, such as 90. threads, blocks: the most resident at a time.
    shared_kb: shared memory, in KB of 1,024 bytes. fma: float32 multiply-adds a cycle. gpus: names
    of GPUs, lower case.
    """

    sm: int
    threads: int
    blocks: int
    shared_kb: int
    fma: int
    gpus: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its GPUs."""
        return tuple(self.gpus.split(", "))

    @property
    def warps(self) -> int:
        """The most resident warps."""
        return self.threads // LANES

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of the multiprocessor."""
        return 1024 * self.shared_kb

    @property
    def reserved_bytes(self) -> int:
        """Bytes of shared memory that the system reserves for each block."""
        return RESERVED_BYTES if self.sm >= _FIRST_RESERVING_SM else 0

    @property
    def copies_alone(self) -> bool:
        """Whether warps need not wait for their copies to shared memory (cp.async)."""
        return self.sm >= _FIRST_COPYING_SM

    @property
    def loads_matrices(self) -> bool:
        """Whether an instruction loads tiles from shared memory, each element once (ldmatrix)."""
        return self.sm >= _FIRST_WITH_LDMATRIX

    def products(self, multiply_adds: int, acc: str) -> float:
        """Return a warp's instructions for a product of this number of multiply-adds."""
        each = next(count for sm, count in _MULTIPLY_ADDS.items() if self.sm >= sm)
        return multiply_adds / (each / 2 if self.sm < 75 and acc == "f32" else each)

    @property
    def block_bytes(self) -> int:
        """Bytes of shared memory that one block can have."""
        return self.shared_bytes - self.reserved_bytes


MULTIPROCESSORS: Final = {
    row.sm: row
    for row in (
        Multiprocessor(70, 2048, 32, 96, 64, "v100, titan v"),
        Multiprocessor(75, 1024, 16, 64, 64, "t4, rtx 2060, rtx 2070, rtx 2080, titan rtx"),
        Multiprocessor(80, 2048, 32, 164, 64, "a100, a30, a800"),
        Multiprocessor(
            86,
            1536,
            16,
            100,
            128,
            "a2, a10, a10g, a16, a40, rtx a4000, rtx a5000, rtx a6000, "
            "rtx 3050, rtx 3060, rtx 3070, rtx 3080, rtx 3090",
        ),
        Multiprocessor(87, 1536, 16, 164, 128, "orin"),
        Multiprocessor(
            89,
            1536,
            24,
            100,
            128,
            "l40s, l4, l40, rtx 1000 ada, rtx 4050, rtx 4060, rtx 4070, rtx 4080, rtx 4090",
        ),
        Multiprocessor(90, 2048, 32, 228, 128, "h100, h200, h20, h800, gh200"),
        Multiprocessor(100, 2048, 32, 228, 128, "b200, gb200"),
        Multiprocessor(103, 2048, 32, 228, 128, "b300, gb300"),
        Multiprocessor(110, 1536, 24, 228, 128, "thor"),
        Multiprocessor(120, 1536, 24, 100, 128, "rtx 5050, rtx 5060, rtx 5070, rtx 5080, rtx 5090"),
        Multiprocessor(121, 1536, 24, 100, 128, "gb10"),
    )
}


def rows_of(sm: Iterable[int]) -> list[Multiprocessor]:
    """Return the rows of these compute capabilities, without those that have none."""
    return [MULTIPROCESSORS[one] for one in sm if one in MULTIPROCESSORS]
