"""The stepper: viewers show frames without a word of their own."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import segmented_algorithms
from tcusim.cli.stepper import Layout, Stepper, frame_text, kinds
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.program.grammar import Mma, Program, Store, walk
from tcusim.simulate.frames import Frame, default_inputs, frames


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
