"""tcusim.judge.cost.occupancy: how many blocks a core holds, and why no more."""

from __future__ import annotations

import pytest

import tcusim
from tcusim.judge.cost.occupancy import occupancy_of, registers_of
from tcusim.program.resources import SharedMemory

PROGRAM = tcusim.build("reduction_tn", segment_size=4096, warps=4)
ALL = {
    "blocks_per_core": 32.0,
    "warps_per_core": 64.0,
    "threads_per_core": 2048.0,
    "registers_per_core": 65536.0,
    "shared_bytes_per_core": 233472.0,
}


@pytest.mark.parametrize(
    ("name", "given", "blocks"),
    [
        ("blocks_per_core", 5.0, 5),
        ("warps_per_core", 8.0, 2),
        ("threads_per_core", 384.0, 3),
        ("registers_per_core", 128.0 * registers_of(PROGRAM), 1),
        ("shared_bytes_per_core", 2.5 * (SharedMemory(PROGRAM).needed + 1024), 2),
    ],
)
def test_the_scarcest_decides(name: str, given: float, blocks: int) -> None:
    found = occupancy_of(PROGRAM, {**ALL, name: given})
    assert (found.blocks, found.limit) == (blocks, name)


def test_nothing_known_is_one_block() -> None:
    assert (occupancy_of(PROGRAM, {}).blocks, occupancy_of(PROGRAM, {}).limit) == (1, "")


def test_registers_hold_every_fragment_and_some_besides() -> None:
    """P and A of 256 halves, and an accumulator of 256 floats: 4, 4 and 8 registers of a lane."""
    small = tcusim.build("reduction_k")
    assert registers_of(small) == 32
    wide = tcusim.plan("segmented_sum", length=2**20, segments=1024)
    # Sixteen tiles of data, the ones, and two accumulators.
    assert registers_of(wide.launch_plan.launches[0].program) == 96
    waiting = tcusim.plan("sum", length=2**28).launch_plan.launches[0].program
    assert registers_of(waiting) == 88
