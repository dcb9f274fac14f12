"""The screen of `tcusim step`, driven by keys: it shows the interpreter's steps, both ways."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcusim
from stepping_screen import Driver, drive, scan, warps_of
from tcusim.program.grammar import accesses
from tcusim.stepper.breakpoints import breakpoint_of
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.screen.dialogs import Reading
from tcusim.stepper.steps import RunningSteps, Warps
from tcusim.stepper.trace import trace


def test_steps_are_the_interpreters_forwards_and_backwards() -> None:
    program = scan()
    inputs = default_inputs(program)
    # Path, loops, and the first row of each fragment that is written.
    expected = []
    for event in tcusim.interpret(program, inputs, arch="volta"):
        frags = accesses(event.step).frags_written
        rows = [event.state.fragment(frag)[0][0].tolist() for frag in frags]
        expected.append((event.path, dict(event.loops), rows))

    def shows(driver: Driver, number: int) -> bool:
        frame = driver.frame
        rows = [tile.values[0].tolist() for tile in frame.writes if tile.places is None]
        assert frame.number == number
        return (frame.path, dict(frame.loops), rows) == expected[number - 1]

    async def play(driver: Driver) -> None:
        end = len(expected)
        for number in range(1, end):
            assert shows(driver, number)
            driver.app.action_step(1)
        assert shows(driver, end)
        await driver.press("right")
        assert driver.text("#said") == "the program ends here"
        await driver.press("left", "up")
        for number in range(end - 2, 1, -1):
            assert shows(driver, number)
            driver.app.action_step(-1)
        assert shows(driver, 1)
        await driver.press("p")
        assert driver.text("#said") == "this is the first step that there is"

    drive(Warps.of_program(program, inputs, "volta"), play)


def test_what_the_screen_says() -> None:
    async def play(driver: Driver) -> None:
        await driver.press("g", *"5.2", "space", *"i=3", "enter")
        assert driver.place == (57, "5.2")
        assert driver.text("#title").startswith("scan_256n on NVIDIA Hopper   step 57")
        assert driver.text("#line") == "5.2  i = 3   AU ← A·U + S"
        lines = driver.picture()
        (current,) = [line for line in lines if "▶" in line]
        assert "AU ← A·U + S" in current
        assert any("now i = 3" in line for line in lines)
        # The screen shows the tile itself.
        tile = driver.frame.writes[0]
        assert any("d: AU  16x16 f32" in line for line in lines)
        first = " ".join(f"{value:.0f}" for value in tile.values[0, :8])
        assert any(line.lstrip().startswith(first) for line in lines), "\n".join(lines)
        assert driver.text("#cell") == "d: AU[0,0] = 924.0 (0x44670000), was 618.0, changed"
        assert driver.text("#counts").startswith("so far: 10 mma, 0 additions, 3,584 bytes read")
        await driver.press("x")
        bits = tile.values[0, 0].view(np.uint32)
        assert any(line.lstrip().startswith(f"{bits:08x} ") for line in driver.picture())

    drive(warps_of(scan()), play)


def test_where_keys_go() -> None:
    async def play(driver: Driver) -> None:
        end = len(list(RunningSteps(scan(), default_inputs(scan()))))
        await driver.press("end")
        assert driver.frame.number == end
        await driver.press("pageup", "p", "up", "down", "n")
        assert driver.frame.number == end - 10
        await driver.press("home", "pagedown")
        assert driver.frame.number == 11
        path = driver.frame.path
        await driver.press("t")
        assert driver.place == (11 + 17, path)
        await driver.press("T")
        assert driver.place == (11, path)
        await driver.press("T")
        assert driver.text("#said") == f"step {path} has no previous turn"
        # To a place behind, by its number and by its kind.
        for text, number in (("#56", 56), ("store", 61), ("1", 1)):
            await driver.press("g")
            await driver.type(text)
            assert driver.frame.number == number, text

    drive(warps_of(scan()), play)


def test_a_nan_and_kinds_from_the_command_line() -> None:
    program = scan()
    x = np.ones(1024, np.float16)
    x[700] = np.nan
    warps = Warps.of_program(program, {"in": x})
    names = warps.steps(0).names

    async def play(driver: Driver) -> None:
        assert driver.frame.kind == "mma"
        await driver.press("c")
        assert (driver.frame.path, driver.frame.loops["i"]) == ("5.1", 2)
        await driver.press("m")
        assert driver.text("#cell") == "dst: A[11,12] = NaN (0x7e00), was 1.0, changed"
        assert any("?" in line for line in driver.picture()[7:19])
        # Only products are stepped to.
        await driver.press("n")
        assert driver.frame.path == "5.2"
        await driver.press("n")
        assert driver.frame.path == "5.5"
        await driver.press("end")
        assert driver.frame.path == "5.11"
        # Of 12 products, ten on from the first, and the last on the way.
        await driver.press("home", "pagedown")
        assert (driver.frame.path, driver.frame.loops["i"]) == ("5.5", 3)
        await driver.press("pagedown")
        assert (driver.frame.path, driver.frame.loops["i"]) == ("5.11", 3)

    drive(warps, play, breakpoints=(breakpoint_of("nan", names),), only=("mma",))


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
def test_the_cell_under_the_cursor_is_explained(size: tuple[int, int]) -> None:
    async def play(driver: Driver) -> None:
        await driver.press("e")
        assert "is no product (const)" in driver.text("#said")
        await driver.press("g")
        await driver.type("5.11 i=2")
        driver.app.action_cell(2, 1)
        await driver.press("shift+down", "l")
        assert driver.text("#cell").startswith("d: R[3,2] = ")
        assert any("R[3,2]" in line for line in driver.picture())
        await driver.press("e")
        reading = driver.app.screen
        assert isinstance(reading, Reading)
        a, b, c = (tile.values for tile in driver.frame.reads)
        told = tcusim.explain(a, b, c, arch="volta", cell=(3, 2))
        assert reading.text.plain == told.to_text()
        assert told["volta"].bits == f"{driver.frame.writes[0].values[3, 2].view(np.uint32):08x}"
        await driver.press("down", "pagedown", "escape", "shift+tab")
        assert driver.text("#cell").startswith("c: AU[3,2]")
        await driver.press("e")
        assert "only outputs are sums" in driver.text("#said")

    drive(warps_of(scan(), arch="volta"), play, size=size)


def test_warps_and_blocks() -> None:
    program = tcusim.build("reduction_tn_block", warps=2)
    warps = warps_of(program, 3 * program.blocks.per)

    async def play(driver: Driver) -> None:
        await driver.press("g")
        await driver.type("#9")
        path = driver.frame.path
        await driver.press("B")
        await driver.type("9")
        assert "there is no block 9; the grid has blocks 0 to 2" in driver.text("#remark")
        await driver.type("2")
        assert driver.text("#title").endswith("warp 4, block 2")
        assert (driver.frame.warp, driver.frame.path) == (4, path)
        await driver.press("w")
        await driver.type("x")
        assert driver.text("#remark") == "'x' is no number; the grid has warps 0 to 5"
        await driver.type("3")
        assert driver.text("#title").endswith("warp 3, block 1")
        shown = next(
            event.state.fragment(frag, np.array([3]))[0]
            for event in tcusim.interpret(program, default_inputs(program, 3 * program.blocks.per))
            if event.path == driver.frame.path
            for frag in accesses(event.step).frags_written
        )
        assert np.array_equal(driver.frame.writes[0].values, shown)

    drive(warps, play)


@pytest.mark.parametrize(
    ("name", "options", "warp", "kind"),
    [
        ("scan_ragged", {}, 0, "locate"),
        ("scan_single_pass", {"warps": 8, "columns": 2}, 0, "publish"),
        ("scan_single_pass", {"warps": 8, "columns": 2}, 8, "await"),
    ],
)
def test_every_kind_of_step(name: str, options: dict[str, int], warp: int, kind: str) -> None:
    program = tcusim.build(name, **options)  # type: ignore[arg-type]

    async def play(driver: Driver) -> None:
        await driver.press("g")
        await driver.type(kind)
        assert driver.frame.kind == kind
        assert any("▶" in line for line in driver.picture())
        await driver.press("tab", "x", "l", "m")

    drive(warps_of(program), play, warp=warp)


@pytest.mark.parametrize("size", [(20, 6), (200, 60)])
def test_small_and_large_terminals(size: tuple[int, int]) -> None:
    async def play(driver: Driver) -> None:
        driver.app.action_last()
        driver.app.action_step(-6)
        for _ in range(8):
            driver.app.action_cell(1, 1)
        lines = driver.picture()
        assert len(lines) == size[1]
        # The cell under the cursor is on the screen, or at least told of.
        assert driver.text("#cell").startswith("d: R[8,8]")
        await driver.press("question_mark", "escape", "b", "escape")
        driver.app.action_dark()
        await driver.pilot.resize_terminal(100, 30)
        await driver.settle()
        assert len(driver.picture()) == 30

    drive(warps_of(scan()), play, size=size)


def test_a_trace_that_was_kept_is_shown_as_it_is() -> None:
    program = tcusim.build("scan_tn_block", warps=2)
    kept = trace(program, default_inputs(program), blocks=0, first=5, last=30)

    async def play(driver: Driver) -> None:
        assert (driver.frame.number, driver.frame.warp) == (5, 0)
        assert driver.text("#counts").startswith("since step 5: ")
        await driver.press("end", "n")
        assert driver.frame.number == 30
        assert driver.text("#said") == "the trace ends here"
        await driver.press("w")
        await driver.type("1")
        assert driver.frame.warp == 1
        await driver.press("w")
        await driver.type("2")
        assert "there is no warp 2; the trace has warps 0, 1" in driver.text("#remark")

    drive(Warps.of_trace(kept), play)


def test_a_backend_beside_the_simulator() -> None:
    program = scan()
    inputs = {"in": (1.001 * np.exp2(np.arange(1024) * 7 % 23 - 8)).astype(np.float16)}
    # As if Volta were a backend that differs.
    kept, simulated = (trace(program, inputs, arch=arch) for arch in ("volta", "hopper"))
    beside = kept.compare(simulated)
    first = min(one.frame.number for one in beside.differences)

    async def play(driver: Driver) -> None:
        await driver.press("D")
        assert driver.frame.number == first
        assert driver.text("#said").startswith("differs from the simulator: d ")
        row, column = np.argwhere(
            kept[first - 1].writes[0].values != simulated[first - 1].writes[0].values
        )[0]
        driver.app.action_cell(int(row), int(column))
        theirs = driver.text("#cell")
        await driver.press("s")
        assert "by the simulator" in driver.text("#title")
        ours = driver.text("#cell")
        assert theirs != ours
        assert f"{simulated[first - 1].writes[0].values[row, column].item()}" in ours

    drive(Warps.of_trace(kept), play, beside=beside)


def stop_at(driver: Driver, text: str) -> None:
    stops = (breakpoint_of(text, driver.app.steps.names),)
    driver.app.viewing = replace(driver.app.viewing, breakpoints=stops)


def test_a_long_search_can_be_stopped() -> None:
    # Of 50,000 steps: they take seconds.
    program = tcusim.build("scan_256n", segment_size=256 * 3000)

    async def play(driver: Driver) -> None:
        stop_at(driver, "nan")
        await driver.pilot.press("c")
        while "looking, at step" not in driver.text("#said"):
            await driver.pilot.pause(0.01)
        # Nothing else moves meanwhile.
        await driver.pilot.press("n", "escape")
        await driver.settle()
        assert driver.text("#said") == "stopped looking"
        assert driver.frame.number == 1
        await driver.press("n")
        assert driver.frame.number == 2
        assert driver.app.steps.last is None
        # Whoever waits is led there.
        stop_at(driver, "5.5")
        await driver.press("c")
        assert driver.place == (9, "5.5")

    drive(warps_of(program), play)
