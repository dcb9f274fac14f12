"""Replays: a backend's records become the frames that the simulator has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.backends import Tapped, TappedStep
from tcusim.errors import AgreementError, Unsupported
from tcusim.program.grammar import Program
from tcusim.stepper.replay import Replay

# Its steps touch fragments and global memory alone.
PROGRAM = tcusim.build("scan_k")
INPUTS = {"in": np.random.default_rng(0).standard_normal(1024).astype(np.float16)}
WARPS = (1, 3)


def recorded(warps: Iterable[int] = WARPS) -> dict[int, list[TappedStep]]:
    """Return the results of the simulator's own steps."""
    kept = tcusim.trace(PROGRAM, INPUTS, warps=warps)
    return {
        warp: [TappedStep(f.path, tuple(tile.values for tile in f.writes)) for f in kept.of(warp)]
        for warp in kept.warps
    }


def replay(steps: Mapping[int, Sequence[TappedStep]], more: int = 0) -> list[tuple[str, list[int]]]:
    """Return the events of these records; `more`: how many steps were run and not recorded."""
    ran = {warp: len(own) + more for warp, own in steps.items()}
    tapped = Tapped(steps, ran)
    events = Replay(PROGRAM, INPUTS, "hopper", tapped, "a backend").events()
    return [(event.path, event.warps.tolist()) for event in events]


def test_warps_take_each_step_side_by_side() -> None:
    assert replay(recorded()) == [(path, [1, 3]) for path in "12345"]
    assert replay(recorded([2])) == [(path, [2]) for path in "12345"]


def test_records_that_end_early_are_shown_as_far_as_they_go() -> None:
    steps = recorded()
    steps[3] = steps[3][:2]
    assert replay(steps, more=9) == [
        *((path, [1, 3]) for path in "12"),
        *((path, [1]) for path in "345"),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            slice(0, 4),
            "after step 4, warp 3 ended on a backend, and the program goes on with",
        ),
        (slice(1, 5), "after the start, warp 3 went on with step 2 on a backend, and the program "),
    ],
)
def test_other_steps_are_refused(change: slice, said: str) -> None:
    steps = recorded()
    steps[3] = steps[3][change]
    with pytest.raises(AgreementError, match=said):
        replay(steps)


def test_a_step_after_the_last_is_refused() -> None:
    steps = recorded()
    steps[1].append(steps[1][-1])
    with pytest.raises(AgreementError, match=r"warp 1 went on with step 5 on .*the program ends"):
        replay(steps)


class Recorded:
    """A backend with the records of the simulator, but for a bit if one is given."""

    name, title = "recorded", "the simulator's own records"
    wrong: int | None = None
    arch: str | None = "ampere"

    def available(self) -> str | None:
        return None

    def run(self, plan: Any, inputs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        raise NotImplementedError

    def native_arch(self) -> str | None:
        return self.arch

    def place(self) -> str:
        return "paper"

    def tap(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        warps: Sequence[int],
        *,
        most: int,
        arch: str | None = None,
    ) -> Tapped:
        steps = recorded(warps)
        ran = {warp: len(own) for warp, own in steps.items()}
        if self.wrong is not None:
            own = steps[warps[0]]
            (tile,) = own[self.wrong].tiles
            tile = tile.copy()
            tile[2, 3] += 1
            own[self.wrong] = replace(own[self.wrong], tiles=(tile,))
        return Tapped({warp: own[:most] for warp, own in steps.items()}, ran)


def test_a_trace_is_made_of_records() -> None:
    kept = tcusim.trace(PROGRAM, INPUTS, backend=Recorded(), warps=WARPS)
    assert (kept.about.place, kept.about.arch) == ("paper", "ampere")
    simulated = tcusim.trace(PROGRAM, INPUTS, warps=WARPS, arch="ampere")
    assert kept.store.frames == simulated.store.frames
    assert kept.first_difference(simulated) is None
    few = tcusim.trace(PROGRAM, INPUTS, backend=Recorded(), warps=WARPS, first=2, last=3)
    assert [(frame.warp, frame.path) for frame in few] == [(1, "2"), (3, "2"), (1, "3"), (3, "3")]
    assert few.ran == {1: 5, 3: 5}


def test_a_step_that_left_something_else_shows() -> None:
    backend = Recorded()
    backend.wrong = 3
    kept = tcusim.trace(PROGRAM, INPUTS, backend=backend, warps=2)
    found = kept.first_difference(tcusim.trace(PROGRAM, INPUTS, warps=2))
    assert found is not None
    assert (found.frame.path, found.row, found.col, found.count) == ("4", 2, 3, 1)
    # The last step stores the recorded values.
    assert [tile.label for tile in kept[4].reads] == [found.tile.label]
    assert kept[4].reads[0].values[2, 3] == found.values[0]


def test_a_gpu_of_no_known_arithmetic_is_refused() -> None:
    backend = Recorded()
    backend.arch = None
    with pytest.raises(Unsupported, match="no architecture of tcusim's computes as this GPU does"):
        tcusim.trace(PROGRAM, INPUTS, backend=backend)
    assert tcusim.trace(PROGRAM, INPUTS, backend=backend, arch="volta").about.arch == "volta"
