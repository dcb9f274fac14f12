"""Plain text: every step as a frame has it, and the steps that are shown."""

from __future__ import annotations

import numpy as np
import pytest

import tcusim
from stepped import frames
from tcusim.algorithms import segmented_algorithms
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.program.grammar import Program, walk
from tcusim.stepper.breakpoints import breakpoint_of
from tcusim.stepper.frames import Frame, default_inputs
from tcusim.stepper.plain import Plain, frame_text
from tcusim.stepper.steps import RunningSteps, Viewing


def all_frames(program: Program, warp: int = 0) -> list[Frame]:
    return list(frames(program, default_inputs(program), warp=warp))


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
    store = next(f for f in all_frames(program) if f.kind == "store")
    assert (store.writes[0].values == format_of("s32").unwritten).all()


# --- Text -------------------------------------------------------------------------------------


def test_plain_text_of_a_product() -> None:
    program = tcusim.build("reduction_16", tile="8x32x16", masked=True)
    (frame,) = (f for f in all_frames(program) if f.kind == "mma")
    lines = frame_text(frame, width=110).splitlines()
    assert (lines[0], frame.path) == ("step 4", "4")
    assert lines[1] == "  V ← P·A + V"
    assert lines[2].split() == ["reads", "a:", "P", "reads", "b:", "A"]
    assert lines[3].split("  ")[1].strip() == "8x16 f16, matrix_a"
    assert max(map(len, lines)) <= 110
    assert all(character.isprintable() for line in lines for character in line)


def test_wide_and_high_tiles_are_cut() -> None:
    program = tcusim.build("scan_ragged_simt", segment_size=256, rows_per_warp=1)
    frame = all_frames(program)[1]
    text = frame_text(frame, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert "…" in text.splitlines()[4]
    tall = all_frames(tcusim.build("scan_256", tile="32x8x16"))[1]
    rows = frame_text(tall, rows=6).splitlines()[4:]
    assert len(rows) == 7
    assert set(rows[5].split()) == {"…"}


def test_equal_elements_are_said_in_words() -> None:
    shown = all_frames(tcusim.build("reduction_16"))
    assert frame_text(shown[1]).splitlines()[-1].strip() == "all 0"


def test_sixteen_columns_fit_a_common_terminal() -> None:
    for frame in all_frames(tcusim.build("scan_256")):
        assert "…" not in frame_text(frame, width=120).replace("[0 … +256]", "").replace(
            "block … +256", ""
        )


# --- Stepping ---------------------------------------------------------------------------------


def stepped(
    name: str = "reduction_256n",
    *,
    start: str | None = None,
    only: tuple[str, ...] = (),
    stops: tuple[str, ...] = (),
    cell: tuple[int, int] | None = None,
) -> tuple[list[str], str]:
    """Step through a program; return the paths shown and the text."""
    program = tcusim.build(name)
    steps = RunningSteps(program, default_inputs(program))
    output: list[str] = []
    viewing = Viewing(
        start=None if start is None else breakpoint_of(start, steps.names),
        only=only,
        breakpoints=tuple(breakpoint_of(text, steps.names) for text in stops),
        cell=cell,
    )
    Plain(output.append, viewing).run(steps)
    text = "\n".join(output)
    heads = [line for line in text.splitlines() if line.startswith("step ")]
    # The path is the number of the step where it is not said.
    return [head.removeprefix("step ").split("  ")[0].split(": ")[-1] for head in heads], text


@pytest.mark.parametrize("name", ["reduction_256n", "scan_ragged", "scan_256n"])
def test_every_step_is_shown(name: str) -> None:
    paths, text = stepped(name)
    expected = all_frames(tcusim.build(name))
    assert paths == [frame.path for frame in expected]
    assert all(frame_text(frame) in text for frame in expected)


def test_where_it_begins_and_what_it_shows() -> None:
    last = [path for path, _ in walk(tcusim.build("reduction_256n").steps)][-1]
    assert stepped(start=last)[0] == [last]
    assert stepped(start="3")[0][0] == "3.1"
    assert set(stepped(only=("mma",))[0]) == {"3.2", "11"}
    assert stepped("scan_256n", start="5.2 i=3", only=("mma",))[0] == ["5.2", "5.5", "5.11"]
    assert "no split step runs in this warp" in stepped(only=("split",))[1]


def test_breakpoints_choose_the_steps() -> None:
    paths, text = stepped("scan_256n", stops=("5.2 i=3", "out[0]"))
    assert paths == ["5.12", "5.2"]
    assert "break: out[0]\nstep " in text
    assert "break: 5.2 i=3\nstep 57: 5.2  i = 3" in text
    assert stepped("scan_256n", stops=("nan", "await")) == (
        [],
        "no step runs in this warp and meets nan or await",
    )
    some, _ = stepped("scan_256n", stops=("5",), only=("store",), start="5.13 i=2")
    assert some == ["5.13", "5.6", "5.12", "5.13"]


def test_a_cell_is_told_of_and_explained() -> None:
    program = tcusim.build("reduction_16")
    frame = next(f for f in all_frames(program) if f.kind == "mma")
    _, text = stepped("reduction_16", only=("mma",), cell=(0, 3))
    a, b, c = (tile.values for tile in frame.reads)
    assert str(tcusim.explain(a, b, c, cell=(0, 3))) in text
    assert "cell 0,3\n  a: P[0,3] = 1.0 (0x3c00)\n" in text
    assert "  d: V[0,3] = 85.0 (0x42aa0000), was 0.0, changed" in text
    with pytest.raises(InputError, match="no tile of the steps that were shown has a cell 0,16"):
        stepped("reduction_16", only=("mma",), cell=(0, 16))


def test_numbers_as_bits() -> None:
    program = tcusim.build("reduction_16")
    frame = next(f for f in all_frames(program) if f.kind == "mma")
    lines = frame_text(frame, width=200, hexadecimal=True).splitlines()
    assert lines[4].split()[:17] == [*("3c00",) * 16, "3c00"]
    assert "all 00000000" in lines[4]
    assert f"{int(np.float32(85).view(np.uint32)):08x}" in "".join(lines)
