"""tcusim.judge.cost.work: the work of a block, against other counts, and its time by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tcusim
from tcusim.errors import Unsupported
from tcusim.judge.cost.work import Latencies, Work, work_of
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    BLOCK,
    Assign,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Program,
    Scalar,
    Space,
    View,
    sum_of,
)
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.counts import counts_of_text

LENGTH = Index.symbol("length")
LATE = Latencies(load=500, shared=25, mma=33, add=4, barrier=20, word=250)


def launches(plan: tcusim.Plan) -> list[tuple[Program, dict[str, int]]]:
    found: LaunchPlan = plan.launch_plan
    return [(launch.program, found.scalars(launch)) for launch in found.launches]


@pytest.mark.parametrize("segment", [3, 16, 100, 999, 1024, None])
@pytest.mark.parametrize("operation", ["sum", "cumsum"])
def test_products_and_bytes_are_those_that_are_counted_elsewhere(
    operation: str, segment: int | None
) -> None:
    length = 2**20 // (segment or 1) * (segment or 1)
    name = operation if segment is None else f"segmented_{operation}"
    for program, scalars in launches(tcusim.plan(name, length=length, segments=segment)):
        counts, blocks = counts_of_text(program, scalars), program.grid(scalars)
        work = work_of(program, scalars, LATE, 1.0).times(blocks)
        # The last block has less to do, and one of each group more.
        assert work.mma == pytest.approx(counts.mma, rel=0.15)
        # Every element is read, and few twice: at the ends of chunks.
        assert 32 * work.sectors_read >= 0.95 * counts.bytes_read
        assert 32 * work.sectors_read <= 1.6 * counts.bytes_read + 32 * blocks
        # The one block that writes a whole sum is not the one in the middle.
        if counts.bytes_written > 4:
            assert 32 * work.sectors_written >= 0.9 * counts.bytes_written


def program() -> tuple[Program, dict[str, int]]:
    built = tcusim.build("reduction_tn", segment_size=4096)
    plan = LaunchPlan.of_program(built, {"in": 2**20})
    return built, plan.scalars(plan.launches[0])


def test_a_chain_waits_and_loads_side_by_side_do_not() -> None:
    """Sixteen tiles one after the other, each loaded when the last is multiplied or before."""
    built, scalars = program()
    base = work_of(built, scalars, LATE, 0.0).span
    slower = work_of(built, scalars, replace(LATE, load=600), 0.0).span
    loads = (slower - base) / 100
    assert 1 <= loads <= 16
    panel, scalars = launches(tcusim.plan("segmented_sum", length=2**20, segments=1024))[0]
    base = work_of(panel, scalars, LATE, 0.0).span
    slower = work_of(panel, scalars, replace(LATE, load=600), 0.0).span
    assert (slower - base) / 100 == 1, "all sixteen tiles are in flight together"


def test_long_loops_are_followed_for_a_while_and_the_rest_follows() -> None:
    found: dict[int, Work] = {}
    for size in (4096, 8192, 16384):
        built = tcusim.build("reduction_tn", segment_size=size)
        plan = LaunchPlan.of_program(built, {"in": 2**20})
        found[size] = work_of(built, plan.scalars(plan.launches[0]), LATE, 1.0)
    for name in ("mma", "sectors_read", "instructions", "span"):
        small, middle, large = (getattr(found[size], name) for size in (4096, 8192, 16384))
        # Work at the beginning and at the end is counted once.
        assert large - middle == pytest.approx(2 * (middle - small), rel=1e-6), name


def test_work_of_all_blocks_keeps_what_is_of_one() -> None:
    work = Work(mma=3, span=100, in_flight=64).times(10)
    assert (work.mma, work.span, work.in_flight) == (30, 100, 64)


def test_segments_of_unequal_length_are_refused() -> None:
    plan = tcusim.plan(
        "segmented_sum", length=2**16, segments=tcusim.Segments(count=100, longest=1000)
    )
    ((built, scalars), *_) = launches(plan)
    with pytest.raises(Unsupported, match="found in the data's offsets, which the program does"):
        work_of(built, scalars, LATE, 1.0)


def instructions(*steps: int) -> float:
    """Return the instructions of an Assign of a sum; blocks begin at multiples of a step."""
    inputs = [
        Buffer(f"in_{number}", "f16", Extent(LENGTH), BufferRole.INPUT)
        for number in range(len(steps))
    ]
    sums = Buffer("sums", "f16", Extent.of(1024), BufferRole.SCRATCH, Space.SHARED)
    sources = [
        View.strided(buffer, BLOCK * step, 32, 32, 32, 1)
        for buffer, step in zip(inputs, steps, strict=True)
    ]
    dst = View.strided(sums, Index.of(0), 32, 32, 32, 1)
    made = Program(
        name="sums",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f16",
        scalars=(Scalar("length"),),
        buffers=(*inputs, sums),
        blocks=Extent(LENGTH, 1024),
        warps=1,
        steps=(Assign(dst, sum_of(*sources) if len(sources) > 1 else sources[0]),),
    )
    return work_of(made, {"length": 4096}, LATE, 1.0).instructions


def test_each_input_of_a_step_is_shifted_by_itself() -> None:
    shifted = instructions(1023) - instructions(1024)
    assert shifted > 0.0
    aligned = instructions(1024, 1024)
    assert instructions(1023, 1024) == instructions(1024, 1023) == aligned + shifted
    assert instructions(1023, 1023) == aligned + 2 * shifted
