"""A traced warp: the tiles of its steps, and the writes that barriers show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import tcusim
from stepped import frames
from tcusim.stepper.frames import IN_FLIGHT, Tile, default_inputs


def test_what_a_warp_touches_is_told_in_the_order_of_the_grammar() -> None:
    program = tcusim.build("scan_256n")
    told: dict[str, tuple[list[str], list[str]]] = {}
    for frame in frames(program, default_inputs(program)):
        told.setdefault(frame.path, (words(frame.reads), words(frame.writes)))
    assert told["5.2"] == (["a A", "b U", "c S"], ["d AU"])
    assert told["5.6"] == (["src LA"], ["dst s_LA*"])
    assert told["5.7"] == ([], ["dst s_LA"])
    assert frame.number == 72


def words(tiles: Sequence[Tile]) -> list[str]:
    return [f"{one.part} {one.buffer or one.label}{'*' * (one.note == IN_FLIGHT)}" for one in tiles]


def test_a_block_s_barrier_shows_what_other_warps_wrote() -> None:
    program = tcusim.build("reduction_tn_block", warps=4)
    kept = tcusim.trace(program, default_inputs(program), blocks=0)
    sync = next(frame for frame in kept.of(3) if frame.line == "sync block")
    own, others = sync.writes
    # The first is the warp's own part; the second, the whole buffer.
    assert own.buffer == others.buffer
    assert others.changed.sum() == program.warps * own.changed.sum()
    last = kept.of(0)[-1]
    assert np.isfinite(last.writes[0].values).all()
