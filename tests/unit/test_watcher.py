"""A watched warp: what barriers show, and that what is made of a tile is the maker's business."""

from __future__ import annotations

import numpy as np

import tcusim
from tcusim.machine import Values
from tcusim.simulate.interpreter import interpret
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.watcher import IN_FLIGHT, Seen, WarpWatcher


class Names:
    """Makes names of tiles."""

    def keep(self, values: Values) -> Values:
        return values.copy()

    def tile(self, seen: Seen, values: Values) -> str:
        name = seen.label if seen.view is None else seen.view.buffer.name
        note = "*" * (seen.note == IN_FLIGHT)
        return f"{seen.part} {name}{note} {values.shape}"


def test_what_a_warp_touches_is_told_in_the_order_of_the_grammar() -> None:
    program = tcusim.build("scan_256n")
    watcher = None
    told: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for event in interpret(program, default_inputs(program)):
        watcher = watcher or WarpWatcher(event.state, 0, Names())
        told.setdefault(event.path, watcher.tiles(event))
    tile = (16, 16)
    assert told["5.2"] == ((f"a A {tile}", f"b U {tile}", f"c S {tile}"), (f"d AU {tile}",))
    assert told["5.6"] == ((f"src LA {tile}",), (f"dst s_LA* {tile}",))
    assert told["5.7"] == ((), (f"dst s_LA {tile}",))
    assert watcher is not None
    assert watcher.number == 72


def test_a_block_s_barrier_shows_what_other_warps_wrote() -> None:
    program = tcusim.build("reduction_tn_block", warps=4)
    kept = tcusim.trace(program, default_inputs(program), blocks=0)
    sync = next(frame for frame in kept.of(3) if frame.line == "sync block")
    own, others = sync.writes
    # The first is what the warp wrote itself; the second, the whole buffer.
    assert own.buffer == others.buffer
    assert others.changed.sum() == program.warps * own.changed.sum()
    last = kept.of(0)[-1]
    assert np.isfinite(last.writes[0].values).all()
