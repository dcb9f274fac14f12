"""The stepper: frames tell before from after, and viewers show them without a word of their own."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import algorithms, segmented_algorithms
from tcusim.cli.stepper import Layout, Stepper, frame_text, kinds
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.program.grammar import Await, Load, Locate, Mma, Program, Publish, Store, Sync, walk
from tcusim.simulate.frames import IN_FLIGHT, Frame, default_inputs, frames


def all_frames(program: Program, warp: int = 0) -> list[Frame]:
    return list(frames(program, default_inputs(program), warp=warp))


def small_program(name: str, **options: Any) -> Program:
    """Build a program of few steps; where blocks share a segment, of three blocks."""
    share = {
        "reduction_single_pass": ("per_warp",),
        "scan_single_pass": ("tiles_per_row", "batches"),
    }.get(name)
    if share is not None:
        options |= {**dict.fromkeys(share, 1), "segment_size": 600}
    return tcusim.build(name, **options)


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
@pytest.mark.parametrize("masked", [False, True])
def test_frames_replay_the_program(name: str, masked: bool) -> None:
    program = small_program(name, masked=masked)
    inputs = default_inputs(program)
    expected = tcusim.run(program, inputs)["out"]
    out = np.full(expected.shape, np.nan)
    # Blocks that share a segment write what one of them alone does not.
    for warp in range(3 if program.status else 1):
        for number, frame in enumerate(frames(program, inputs, warp=warp), start=1):
            assert frame.number == number
            if isinstance(frame.step, Mma):
                a, b, c = (tile.values.astype(np.float64) for tile in frame.reads)
                assert np.array_equal(frame.writes[0].values, a @ b + c)
            for tile in frame.writes:
                if tile.label.startswith("out[") and tile.places is not None:
                    out[tile.places[tile.inside]] = tile.values[tile.inside]
    assert np.array_equal(out, expected)


def test_mail_is_what_the_blocks_before_published() -> None:
    program = small_program("reduction_single_pass")
    inputs = {"in": np.ones(600, np.float16)}
    shown = [list(frames(program, inputs, warp=warp)) for warp in range(3)]
    sent = [next(f for f in block if isinstance(f.step, Publish)) for block in shown]
    assert [frame.writes[0].label for frame in sent] == ["totals[0]", "totals[1]", "totals[2]"]
    assert [frame.writes[0].values.item() for frame in sent] == [256, 256, 88]
    assert all(frame.writes[0].changed.all() for frame in sent)
    for frame in sent:
        assert frame.writes[0].before is not None
        assert np.isnan(frame.writes[0].before).all()

    # The last block of the group alone waits; what it gets is in shared memory after the barrier.
    waits = [number for number, frame in enumerate(shown[2]) if isinstance(frame.step, Await)]
    assert len(waits) == 1
    assert not any(isinstance(frame.step, Await) for frame in shown[0] + shown[1])
    got, arrived = shown[2][waits[0]], shown[2][waits[0] + 1]
    assert (got.reads[0].label, got.reads[0].values.ravel().tolist()) == (
        "totals[0 … +2]",
        [256, 256],
    )
    assert got.writes[0].note == IN_FLIGHT
    assert isinstance(arrived.step, Sync)
    assert arrived.writes[0].label == "group[0 … +2]"
    assert arrived.writes[0].values.ravel().tolist() == [256, 256]


def test_before_and_after_of_an_accumulator() -> None:
    frame = next(f for f in all_frames(tcusim.build("reduction_16")) if isinstance(f.step, Mma))
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
    store = next(f for f in shown if isinstance(f.step, Store))
    sync = next(f for f in shown if isinstance(f.step, Sync))
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
    loads = [f for f in frames(program, inputs, warp=1) if isinstance(f.step, Load)]
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
    (frame,) = (f for f in frames(program, inputs) if isinstance(f.step, Locate))
    (offsets,), (ranges,) = frame.reads, frame.writes
    assert offsets.label == "offsets[0 … +4]"
    assert offsets.values.tolist() == [[0, 3, 3, 10]]
    assert (ranges.label, ranges.values.shape) == ("piece", (2, 16))
    found = {(begin, end) for begin, end in ranges.values.T.tolist() if begin < end}
    assert found == {(0, 3), (3, 7), (7, 10)}
    assert "begin, end" in frame_text(frame)


def test_a_warp_that_is_not_there() -> None:
    program = tcusim.build("scan_16")
    with pytest.raises(InputError, match="there is no warp 3; the grid has warps 0 to 0"):
        all_frames(program, warp=3)
    with pytest.raises(InputError, match="the grid has no warps: the input is empty"):
        list(frames(program, {"in": np.zeros(0, np.float16)}))


@pytest.mark.parametrize("name", [row.name for row in segmented_algorithms()])
@pytest.mark.parametrize("shape", ["16x16x16", "32x8x16"])
def test_default_inputs_sum_up_exactly_in_float16(name: str, shape: str) -> None:
    for array in default_inputs(tcusim.build(name, tile=shape)).values():
        assert array[:3].astype(int).tolist() == [1, 2, 3]
        assert array.astype(np.float64).sum() <= 2048


def test_default_segments_grow_and_are_those_of_one_warp() -> None:
    program = tcusim.build("reduction_ragged")
    inputs = default_inputs(program)
    assert list(inputs) == ["in", "offsets"]
    lengths = np.diff(inputs["offsets"])
    assert lengths.tolist() == sorted(lengths)
    assert lengths.sum() == inputs["in"].size
    assert len(set(lengths)) > 4
    assert program.grid({"length": inputs["in"].size, "segments": lengths.size}) == 1


def test_integer_memory_has_a_poison_too() -> None:
    program = tcusim.build("reduction_16", ab="s8", acc="s32")
    store = next(f for f in all_frames(program) if isinstance(f.step, Store))
    assert (store.writes[0].values == np.iinfo(format_of("s32").dtype).min).all()


# --- Text -------------------------------------------------------------------------------------


def test_plain_text_of_a_product() -> None:
    program = tcusim.build("reduction_16", tile="8x32x16", masked=True)
    (frame,) = (f for f in all_frames(program) if isinstance(f.step, Mma))
    lines = frame_text(frame, Layout(width=110)).splitlines()
    assert (lines[0], frame.path) == ("step 4", "4")
    assert lines[1] == "  V ← P·A + V"
    assert lines[2].split() == ["reads", "a:", "P", "reads", "b:", "A"]
    assert lines[3].split("  ")[1].strip() == "8x16 f16, matrix_a"
    assert max(map(len, lines)) <= 110
    assert all(character.isprintable() for line in lines for character in line)


def test_wide_and_high_tiles_are_cut() -> None:
    program = tcusim.build("scan_simt", segment_size=256)
    frame = all_frames(program)[0]
    text = frame_text(frame, Layout(width=60))
    assert max(map(len, text.splitlines())) <= 60
    assert "…" in text.splitlines()[4]
    tall = all_frames(tcusim.build("scan_256", tile="32x8x16"))[1]
    rows = frame_text(tall, Layout(rows=6)).splitlines()[4:]
    assert len(rows) == 7
    assert set(rows[5].split()) == {"…"}


def test_equal_elements_are_said_in_words() -> None:
    shown = all_frames(tcusim.build("reduction_16"))
    assert frame_text(shown[1]).splitlines()[-1].strip() == "all 0"


def test_sixteen_columns_fit_a_common_terminal() -> None:
    for frame in all_frames(tcusim.build("scan_256")):
        assert "…" not in frame_text(frame, Layout(width=120)).replace("[0 … +256]", "").replace(
            "block … +256", ""
        )


# --- Stepping ---------------------------------------------------------------------------------


def stepped(
    answers: list[str] | None = None,
    *,
    name: str = "reduction_256n",
    start: str = "",
    only: tuple[str, ...] = (),
) -> tuple[list[str], str]:
    """Step through a program with these answers; return the paths shown and the text."""
    program = tcusim.build(name)
    output = io.StringIO()
    queue = iter(answers or [])

    def ask(_: str) -> str:
        try:
            return next(queue)
        except StopIteration:
            raise EOFError from None

    make: Callable[[], Iterator[Frame]] = partial(frames, program, default_inputs(program))
    write = partial(print, file=output)
    prompt = None if answers is None else ask
    Stepper(program, make, write, ask=prompt, start=start, only=only).run()
    text = output.getvalue()
    heads = [line for line in text.splitlines() if line.startswith("step ")]
    # The path is the number of the step where it is not said.
    return [head.removeprefix("step ").split("  ")[0].split(": ")[-1] for head in heads], text


def test_without_a_terminal_every_step_is_shown() -> None:
    paths, text = stepped()
    program = tcusim.build("reduction_256n")
    assert len(paths) == len(all_frames(program))
    assert text.startswith(tcusim.listing(program))
    assert text.endswith("end of reduction_256n\n")


def test_keys() -> None:
    assert stepped(["", "q"])[0] == ["1", "2"]
    assert stepped([""])[0] == ["1", "2"]
    assert stepped(["c"])[0] == stepped()[0]
    assert stepped(["3.2", "q"])[0] == ["1", "3.2"]
    assert stepped(["3", "1", "q"])[0] == ["1", "3.1", "1"]


def test_a_path_that_is_not_there() -> None:
    paths, text = stepped(["9.9", "q"])
    assert paths == ["1"]
    assert "reduction_256n has no step '9.9'; its steps: 1, 2, 3, 3.1" in text
    with pytest.raises(InputError, match="has no step 'x'"):
        stepped(start="x")


def test_from_and_only() -> None:
    last = [path for path, _ in walk(tcusim.build("reduction_256n").steps)][-1]
    assert stepped(start=last)[0] == [last]
    assert set(stepped(only=("mma",))[0]) == {"3.2", "11"}
    assert "no split step runs in this warp" in stepped(only=("split",))[1]
    assert "split" in kinds()


def test_a_terminal_marks_the_line_and_what_changed() -> None:
    console_module = pytest.importorskip("rich.console")
    program = tcusim.build("reduction_16")
    output = io.StringIO()
    console = console_module.Console(file=output, force_terminal=True, width=120)
    Stepper(
        program,
        partial(frames, program, default_inputs(program)),
        write=lambda text: output.write(f"{text}\n"),
        console=console,
        only=("mma",),
    ).run()
    text = output.getvalue()
    assert "▶ 4  V ← P·A + V" in text
    assert "\x1b[1;32m" in text
