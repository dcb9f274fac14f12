"""The steps of a warp, kept or made as they are asked for: the same frames, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcusim
from stepped import frames, small_program
from tcusim.algorithms import algorithms
from tcusim.errors import InputError
from tcusim.program.grammar import Program
from tcusim.simulate.counts import Counts
from tcusim.stepper.breakpoints import breakpoint_of
from tcusim.stepper.frames import Frame, default_inputs
from tcusim.stepper.steps import KeptSteps, RunningSteps, Steps
from tcusim.stepper.trace import trace


def told(frame: Frame | None) -> Any:
    """Return all that a frame tells, to compare."""
    assert frame is not None
    tiles = [
        (
            *(tile.label, tile.part, tile.dtype, str(tile.where), tile.note, tile.ranges),
            tile.values.tobytes(),
            tile.changed.tobytes(),
        )
        for tile in (*frame.reads, *frame.writes)
    ]
    return frame.number, frame.path, frame.kind, frame.line, dict(frame.loops), frame.warp, tiles


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
def test_both_kinds_show_the_frames_of_the_interpreter(name: str) -> None:
    program = small_program(name)
    inputs = default_inputs(program)
    expected = [told(frame) for frame in frames(program, inputs)]
    running = RunningSteps(program, inputs, window=9)
    assert running.last is None
    assert [told(frame) for frame in running] == expected
    assert running.last == len(expected)
    kept = KeptSteps(trace(program, inputs))
    assert [told(frame) for frame in kept] == expected
    for steps in (running, kept):
        assert steps.frame(len(expected) + 1) is None
        assert steps.frame(0) is None
    # All names of the trace are names of the program.
    assert kept.names.fragments <= running.names.fragments
    assert kept.names.memory <= running.names.memory
    assert all(size <= running.sizes[buffer] for buffer, size in kept.sizes.items())


def test_steps_that_were_forgotten_are_made_again() -> None:
    program = tcusim.build("scan_tn_block", warps=2, segment_size=4096)
    inputs = default_inputs(program)
    expected = [told(frame) for frame in frames(program, inputs, warp=1)]
    # More than 64 windows: the first ones are forgotten on the way to the end.
    steps = RunningSteps(program, inputs, warp=1, window=2)
    end = len(expected)
    assert end > 2 * 64
    order = np.random.default_rng(0).permutation(np.arange(1, end + 1))[:25].tolist()
    # Forwards past a window, back into the one before, and to the window that was being made.
    for number in (1, 20, 3, 30, 29, 17, 18, 40, 9, 41, end, 1, 2, *order, end, 1):
        assert told(steps.frame(number)) == expected[number - 1], number
        assert len(steps._kept) <= 64 + 1
    assert steps.last in (None, end)


def test_memory_is_bounded() -> None:
    program = tcusim.build("scan_256n", segment_size=256 * 30)
    rng = np.random.default_rng(0)
    steps = RunningSteps(program, {"in": rng.random(256 * 30).astype(np.float16)}, window=4)
    most = 0
    for number, frame in enumerate(steps, start=1):
        assert frame.number == number
        most = max(most, sum(len(store.frames) for store in steps._kept.values()))
    assert number == steps.last
    assert number > 4 * 64 >= most - 4


def test_nothing_runs_before_it_is_asked_for() -> None:
    program = tcusim.build("scan_256n", segment_size=256 * 2000)
    steps = RunningSteps(program, default_inputs(program))
    assert steps.frame(5) is not None
    assert steps.reached == 5
    assert steps.last is None


@pytest.mark.parametrize("make", [RunningSteps, None])
def test_searches(make: Callable[..., Steps] | None) -> None:
    program = tcusim.build("scan_256n")
    inputs = default_inputs(program)
    steps = make(program, inputs) if make else KeptSteps(trace(program, inputs))
    numbers = [frame.number for frame in frames(program, inputs) if frame.kind == "mma"]

    def mma(frame: Frame) -> bool:
        return frame.kind == "mma"

    def number_of(frame: Frame | None) -> int | None:
        return None if frame is None else frame.number

    assert number_of(steps.find(mma, 1)) == numbers[0]
    assert number_of(steps.find(mma, numbers[0] + 1)) == numbers[1]
    assert number_of(steps.find(mma, 72, backwards=True)) == numbers[-1]
    assert steps.find(mma, numbers[0] - 1, backwards=True) is None
    assert steps.find(mma, numbers[-1] + 1) is None
    # From the last one on round to the first.
    round_again = [frame for frame in steps.seek(mma, numbers[-1]) if frame is not None]
    assert [frame.number for frame in round_again] == [numbers[0]]
    assert not [f for f in steps.seek(lambda frame: frame.kind == "await", 3) if f is not None]


@pytest.mark.parametrize("name", ["scan_256n", "reduction_ragged", "scan_single_pass", "gemm"])
def test_counts_are_those_of_the_counter(name: str) -> None:
    small: dict[str, dict[str, Any]] = {"scan_single_pass": {"warps": 4, "segment_size": 5000}}
    program = tcusim.build(name, **small.get(name, {}))
    inputs = default_inputs(program)
    whole = trace(program, inputs, blocks=range(program.grid(scalars_of(program, inputs))))
    counts = Counts()
    for warp in whole.warps:
        steps = KeptSteps(whole, warp)
        assert steps.last is not None
        counts.add(steps.counts(steps.last))
        if warp % 11 == 0:
            running = RunningSteps(program, inputs, warp=warp, window=16)
            for number in (steps.last, steps.last // 2):
                assert running.frame(number) is not None
                assert running.counts(number) == steps.counts(number)
    assert counts == whole.counts


def scalars_of(program: Program, inputs: Any) -> dict[str, int]:
    from tcusim.program.bind import bind_scalars

    return bind_scalars(program, {name: array.size for name, array in inputs.items()})


def test_a_trace_with_a_window_begins_where_that_does() -> None:
    program = tcusim.build("scan_tn_block", warps=2)
    inputs = default_inputs(program)
    steps = KeptSteps(trace(program, inputs, blocks=0, first=7, last=20), 1)
    assert (steps.first, steps.last) == (7, 20)
    assert steps.frame(6) is None
    shown = steps.frame(7)
    assert shown is not None
    assert (shown.number, shown.warp) == (7, 1)
    empty = KeptSteps(trace(program, inputs, first=500))
    assert (empty.first, empty.last, empty.frame(1)) == (1, 0, None)


def test_warps_that_are_not_there() -> None:
    program = tcusim.build("scan_256n")
    inputs = default_inputs(program)
    with pytest.raises(InputError, match="there is no warp 3; the trace has warp 0"):
        KeptSteps(trace(program, inputs), 3)
    with pytest.raises(InputError, match="there is no warp 3; the grid has warps 0 to 0"):
        RunningSteps(program, inputs, warp=3)


def test_a_warp_of_a_later_block() -> None:
    program = tcusim.build("scan_single_pass", warps=8, segment_size=20_000)
    inputs = default_inputs(program, 60_000)
    expected = [told(frame) for frame in frames(program, inputs, warp=41)]
    assert [told(f) for f in RunningSteps(program, inputs, warp=41, window=10)] == expected


def test_places() -> None:
    program = tcusim.build("scan_256n")
    steps = RunningSteps(program, default_inputs(program))
    assert breakpoint_of("#56", steps.names).number == 56
    assert str(breakpoint_of(" step 7 ", steps.names)) == "#7"
    there = breakpoint_of("5.2 i=3", steps.names)
    found = steps.find(there, 1)
    assert found is not None
    assert found.number == 57
    with pytest.raises(
        InputError, match=r"no step '57'; .*; the step that runs as number 57 is #57"
    ):
        breakpoint_of("57", steps.names)
