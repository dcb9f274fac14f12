"""Frames: the results of a program's steps in fragments and memory."""

from __future__ import annotations

import numpy as np
import pytest

import tcusim
from stepped import frames, small_program
from tcusim.algorithms import algorithms
from tcusim.algorithms.norm import rms_norm
from tcusim.errors import InputError
from tcusim.program.grammar import Program
from tcusim.stepper.frames import IN_FLIGHT, Frame, default_inputs
from tcusim.stepper.plain import frame_text


def all_frames(program: Program, warp: int = 0) -> list[Frame]:
    return list(frames(program, default_inputs(program), warp=warp))


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
@pytest.mark.parametrize("masked", [False, True])
def test_frames_replay_the_program(name: str, masked: bool) -> None:
    program = small_program(name, masked=masked)
    inputs = default_inputs(program)
    expected = tcusim.run(program, inputs)["out"]
    out = np.full(expected.shape, np.nan)
    # Blocks that share a segment write elements that a single block does not.
    for warp in range(3 * program.warps if program.status else 1):
        for number, frame in enumerate(frames(program, inputs, warp=warp), start=1):
            assert frame.number == number
            if frame.kind == "mma":
                a, b, c = (tile.values.astype(np.float64) for tile in frame.reads)
                assert np.array_equal(frame.writes[0].values, a @ b + c)
            for tile in frame.writes:
                if tile.label.startswith("out[") and tile.places is not None:
                    out[tile.places[tile.inside]] = tile.values[tile.inside]
    assert np.array_equal(out, expected)


def test_mail_is_what_the_blocks_before_published() -> None:
    program = small_program("reduction_single_pass")
    inputs = {"in": np.ones(1200, np.float16)}
    shown = [list(frames(program, inputs, warp=warp)) for warp in range(3)]
    sent = [next(f for f in block if f.kind == "publish") for block in shown]
    assert [frame.writes[0].label for frame in sent] == [
        f"sums_of_blocks[{block}]" for block in range(3)
    ]
    assert [frame.writes[0].values.item() for frame in sent] == [512, 512, 176]
    assert all(frame.writes[0].changed.all() for frame in sent)
    for frame in sent:
        assert frame.writes[0].before is not None
        assert np.isnan(frame.writes[0].before).all()

    # Only the last block of the group waits; its words are in shared memory after the barrier.
    waits = [number for number, frame in enumerate(shown[2]) if frame.kind == "await"]
    assert len(waits) == 1
    assert not any(frame.kind == "await" for frame in shown[0] + shown[1])
    got, *later = shown[2][waits[0] :]
    arrived = next(frame for frame in later if frame.kind == "sync")
    assert (got.reads[0].label, got.reads[0].values.ravel().tolist()) == (
        "sums_of_blocks[0 … +2]",
        [512, 512],
    )
    assert got.writes[0].note == IN_FLIGHT
    assert arrived.writes[0].label == "group[0 … +2]"
    assert arrived.writes[0].values.ravel().tolist() == [512, 512]


def test_before_and_after_of_an_accumulator() -> None:
    frame = next(f for f in all_frames(tcusim.build("reduction_16")) if f.kind == "mma")
    a, b, c = frame.reads
    (d,) = frame.writes
    assert [tile.part for tile in (a, b, c, d)] == ["a", "b", "c", "d"]
    assert (c.label, d.label) == ("V", "V")
    assert not c.values.any()
    assert d.before is not None
    assert np.array_equal(d.before, c.values)
    assert d.changed.sum() == 16
    assert not a.changed.any()


def test_a_shared_write_is_seen_after_the_sync() -> None:
    shown = all_frames(tcusim.build("reduction_16"))
    store = next(f for f in shown if f.kind == "store")
    sync = next(f for f in shown if f.kind == "sync")
    (sent,), (arrived,) = store.writes, sync.writes
    assert sent.note == IN_FLIGHT
    assert np.isnan(sent.values).all()
    assert not sent.changed.any()
    assert arrived.label == sent.label == "s_V[0 … +256]"
    assert np.array_equal(arrived.values, store.reads[0].values)
    assert arrived.changed.all()


def test_places_are_those_of_the_warp_and_the_loop() -> None:
    program = tcusim.build("reduction_256n")
    inputs = {"in": np.ones(2048, np.float16)}
    loads = [f for f in frames(program, inputs, warp=1) if f.kind == "load"]
    assert [f.reads[0].label for f in loads[:2]] == ["in[1024 … +256]", "in[1280 … +256]"]
    assert [dict(f.loops) for f in loads[:2]] == [{"i": 0}, {"i": 1}]


def test_elements_out_of_bounds_are_marked() -> None:
    program = tcusim.build("scan_256", masked=True)
    inputs = {"in": np.ones(250, np.float16)}
    shown = list(frames(program, inputs))
    edge = next(f for f in shown if f.reads and not f.reads[0].inside.all())
    assert np.count_nonzero(~edge.reads[0].inside) == 6
    assert frame_text(edge).splitlines()[-1].split() == ["1"] * 10 + ["."] * 6


def test_the_search_for_segments_shows_offsets_and_ranges() -> None:
    program = tcusim.build("scan_ragged", segment_size=4)
    inputs = {"in": np.ones(10, np.float16), "offsets": np.array([0, 3, 3, 10])}
    (frame,) = (f for f in frames(program, inputs) if f.kind == "locate")
    (offsets,), (ranges,) = frame.reads, frame.writes
    assert offsets.label == "offsets[0 … +4]"
    assert offsets.values.tolist() == [[0, 3, 3, 10]]
    assert (ranges.label, ranges.values.shape) == ("piece", (2, 64))
    found = {(begin, end) for begin, end in ranges.values.T.tolist() if begin < end}
    assert found == {(0, 3), (3, 7), (7, 10)}
    assert "begin, end" in frame_text(frame)


def test_a_warp_that_is_not_there() -> None:
    program = tcusim.build("scan_16")
    with pytest.raises(InputError, match="there is no warp 3; the grid has warps 0 to 0"):
        all_frames(program, warp=3)
    with pytest.raises(InputError, match="the grid has no warps: the input is empty"):
        list(frames(program, {"in": np.zeros(0, np.float16)}))


def test_every_operand_of_a_formula_has_a_name() -> None:
    """The last step of RMS norm multiplies three rectangles."""
    program = rms_norm(64, weight="f16")
    last = tcusim.trace(program, default_inputs(program))[-1]
    assert [tile.part for tile in last.reads] == ["src", "src 2", "src 3"]
    assert [tile.part for tile in last.writes] == ["dst"]
