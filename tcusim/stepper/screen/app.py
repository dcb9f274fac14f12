"""The screen itself: the step that it shows, and the actions of the keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Key, Resize
from textual.widgets import Static

from tcusim.errors import InputError, TcusimError
from tcusim.machine import arch_of
from tcusim.stepper.breakpoints import Breakpoint, breakpoint_of
from tcusim.stepper.comparison import Comparison
from tcusim.stepper.frames import Frame, known_text
from tcusim.stepper.layout import picture_of
from tcusim.stepper.panes import cell_of, explanation_of, panes_of, place_text
from tcusim.stepper.screen.cursor import Cursor
from tcusim.stepper.screen.dialogs import Breakpoints, Prompt, Reading
from tcusim.stepper.screen.widgets import ListingPane, MemoryPane, TilesPane
from tcusim.stepper.screen.words import HELP, KEYS, LEGEND_LINE, STYLE, explained
from tcusim.stepper.steps import Steps, Viewing, Warps, first_of
from tcusim.stepper.store import SIMULATOR

# Seconds that a key may take before the screen goes on beside the work.
_AT_ONCE: Final = 0.15
# Seconds between looks ahead for the number of steps, and up to which step that goes.
_AHEAD: Final = 0.1
_FAR: Final = 4000
# More than any step's number.
_END: Final = 2**62


class StepApp(App[None]):
    """Steps through a program in a terminal.

    Parameters
    ----------
    warps : Warps
        The warps that can be traced.
    steps : Steps
        Those of the warp to begin with.
    viewing : Viewing
        The steps to show, the first one, and the stops.
    """

    CSS = STYLE
    TITLE = "tcusim step"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(keys, action, shown, priority=key_first)
            for keys, action, shown, key_first in KEYS
        ),
    ]

    def __init__(self, warps: Warps, steps: Steps, viewing: Viewing) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (116, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-tiny"), (18, "-short"), (30, "-tall")]
        self.warps, self.steps = warps, steps
        self.viewing, self.shows_simulator = viewing, False
        self.cursor = Cursor(viewing.cell)
        self.frame: Frame | None = None
        # The target of a search in the background, and the message if it is not found.
        self.search: Iterator[Frame | None] | None = None
        self._missing = ""
        self._said = ""

    def compose(self) -> ComposeResult:
        """Make the panes."""
        yield Static(id="title", markup=False)
        yield Static(id="line", markup=False)
        with Container(id="body"):
            yield ListingPane(self.warps.about)
            yield TilesPane()
        yield MemoryPane()
        yield Static(id="counts", markup=False)
        yield Static(id="cell", markup=False)
        yield Static(id="said", markup=False)

    def on_mount(self) -> None:
        """Show the first step."""
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        if self.viewing.start is None:
            self.action_first()
        else:
            self._go(self.viewing.start)
        self._ahead = self.set_interval(_AHEAD, self._look_ahead)

    def _look_ahead(self) -> None:
        """Run on, while nobody asks for anything, to know how many steps there are."""
        if self.steps.last is not None or self.steps.reached > _FAR:
            return
        if self.search is None and self.frame is not None:
            try:
                self.steps.work(_END)
            except TcusimError:
                # Whoever goes there is told.
                self._ahead.stop()
            if self.steps.last is not None:
                self._title()

    def on_resize(self, event: Resize) -> None:
        """Lay the panes out anew."""
        self.call_after_refresh(self._draw)

    def on_key(self, event: Key) -> None:
        """Give keys that were typed ahead to the line that asks for them."""
        if isinstance(self.screen, Prompt) and self.screen.take(event):
            event.prevent_default()
            event.stop()

    # --- Looking for a step -------------------------------------------------------------------

    def _look(self, search: Iterator[Frame | None], missing: str) -> None:
        """Look for a step: at once if that is quick, else beside the screen."""
        self.search, self._missing = search, missing
        self._pursue(time.monotonic() + _AT_ONCE)

    def _pursue(self, until: float) -> None:
        """Go on looking until it is found, is not there, or the time is over."""
        search = self.search
        if search is None:
            return
        try:
            for found in search:
                if found is not None:
                    self.search = None
                    self._show(found)
                    return
                if time.monotonic() > until:
                    self._say(f"looking, at step {self.steps.reached} ...  Escape stops")
                    self.set_timer(0.001, self._go_on)
                    return
        except TcusimError as error:
            self.search = None
            self._read("The program ends with an error", Text(str(error)))
            return
        self.search = None
        self._say(self._missing)

    def _go_on(self) -> None:
        self._pursue(time.monotonic() + _AT_ONCE / 2)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let few keys work while a step is looked for, or something is in front."""
        if action in ("quit", "help_quit"):
            return True
        if len(self.screen_stack) > 1:
            # A dialog in front has keys of its own.
            return False
        return self.search is None or action in ("stop", "help")

    def action_stop(self) -> None:
        """Stop looking for a step."""
        if self.search is not None:
            self.search = None
            self._say("stopped looking")

    # --- Moving -------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of the step that is shown; one before the first if none is."""
        return self.steps.first - 1 if self.frame is None else self.frame.number

    def action_step(self, count: int) -> None:
        """Go some steps forwards or backwards, as far as there are any."""
        end = (
            "this is the first step that there is" if count < 0 else f"the {self._whole} ends here"
        )
        self._look(self._away(count), end)

    @property
    def _whole(self) -> str:
        return "trace" if self.warps.kind == "trace" else "program"

    def _away(self, count: int) -> Iterator[Frame | None]:
        """Look for a step of the kinds to show, so many of them away, or the last on the way."""
        one = -1 if count < 0 else 1
        number, last = self.number, None
        for _ in range(abs(count)):
            found = None
            for found in self.steps.search(self.viewing.shows, number + one, backwards=count < 0):
                if found is None:
                    yield None
            if found is None:
                break
            number, last = found.number, found
        if last is not None:
            yield last

    def action_first(self) -> None:
        """Go to the first step."""
        self._look(self.steps.search(self.viewing.shows, self.steps.first), self._nothing())

    def action_last(self) -> None:
        """Go to the last step."""
        self._look(self._last(), self._nothing())

    def _nothing(self) -> str:
        kinds = f"{' or '.join(self.viewing.only)} " if self.viewing.only else ""
        return f"no {kinds}step runs in warp {self.steps.warp}"

    def _last(self) -> Iterator[Frame | None]:
        """Run to the end, and look back for the last step."""
        while self.steps.last is None:
            self.steps.work(_END)
            yield None
        yield from self.steps.search(self.viewing.shows, self.steps.last, backwards=True)

    def action_turn(self, count: int) -> None:
        """Go to the next or the previous turn of the line that is shown."""
        if self.frame is None:
            return
        path = self.frame.path
        found = self.steps.search(
            lambda frame: frame.path == path, self.number + count, backwards=count < 0
        )
        self._look(found, f"step {path} has no {'previous' if count < 0 else 'next'} turn")

    def action_continue(self, count: int) -> None:
        """Go on, or back, to the next step at which a breakpoint stops."""
        if not self.viewing.breakpoints:
            self._say("there are no breakpoints; b sets one")
            return
        self._onwards(
            lambda frame: bool(self.viewing.stopping(frame)), count, "no breakpoint stops"
        )

    def _onwards(self, test: Callable[[Frame], bool], count: int, missing: str) -> None:
        """Look for a step after the one that is shown, or before it."""
        found = self.steps.search(test, self.number + count, backwards=count < 0)
        self._look(found, f"{missing} {'before this' if count < 0 else 'from here on'}")

    def _go(self, place: Breakpoint) -> None:
        if place.number is not None:
            found = self.steps.search(place, place.number)
            self._look(found, f"there is no step {place}")
        else:
            self._look(self.steps.seek(place, self.number), f"{place} never comes in this warp")

    def action_go_to(self) -> None:
        """Ask where to go, and go there."""
        hint = "a path such as 5.2, in one turn: 5.2 i=3; #56, the 56th step; or mma, nan, V[3,5]"

        def done(text: str | None) -> None:
            if text is not None:
                self._go(self._breakpoint(text))

        self.push_screen(Prompt("Go to", hint, self._breakpoint), done)

    def _breakpoint(self, text: str) -> Breakpoint:
        return breakpoint_of(text, self.steps.names)

    def action_breakpoints(self) -> None:
        """Show the breakpoints, and let them be changed."""
        here = "mma" if self.frame is None else self.frame.path
        dialog = Breakpoints(self.viewing.breakpoints, self._breakpoint, here)

        def done(_: str | None) -> None:
            self.viewing = replace(self.viewing, breakpoints=tuple(dialog.chosen))
            listed = ", ".join(map(str, dialog.chosen))
            self._draw()
            self._say(f"c goes on to: {listed}" if listed else "no breakpoints")

        self.push_screen(dialog, done)

    # --- Warps and blocks ---------------------------------------------------------------------

    def action_warp(self) -> None:
        """Ask for a warp, and show its steps."""
        self._ask_number("warp", self.warps.require, self.warps.numbers)

    def action_block(self) -> None:
        """Ask for a block, and show the steps of its first warp."""
        self._ask_number("block", lambda block: self.warps.of_block(block)[0], self.warps.blocks)

    def _ask_number(self, what: str, warp_of: Callable[[int], int], there: Sequence[int]) -> None:
        known = known_text(what, there)

        def warp(text: str) -> int:
            if not text.isdecimal():
                raise InputError(f"{text!r} is no number; the {self.warps.kind} has {known}")
            return warp_of(int(text))

        def done(text: str | None) -> None:
            if text is not None:
                self._watch(warp(text))

        self.push_screen(Prompt(what.title(), f"the {self.warps.kind} has {known}", warp), done)

    def _watch(self, warp: int) -> None:
        """Show another warp, at the same place of the program if it comes there."""
        was, self.steps = self.frame, self.warps.steps(warp)
        self.frame = None
        if was is None:
            self.action_first()
            return

        def same(frame: Frame) -> bool:
            return (frame.path, frame.loops) == (was.path, was.loops)

        tests = same, self.viewing.shows
        searches = (self.steps.search(test, self.steps.first) for test in tests)
        self._look(first_of(*searches), self._nothing())

    # --- The cell under the cursor ------------------------------------------------------------

    def action_cell(self, down: int, across: int) -> None:
        """Move the cursor by rows and columns."""
        if (frame := self.tiles_of) is not None:
            self.cursor.move(frame, down, across)
            self._point()

    def action_tile(self, count: int) -> None:
        """Move the cursor to another tile of the step."""
        if (frame := self.tiles_of) is not None:
            self.cursor.turn(frame, count)
            self._draw()

    def action_marked(self) -> None:
        """Move the cursor to the next NaN of its tile, or to the next cell that changed."""
        if (frame := self.tiles_of) is not None:
            if not self.cursor.seek(frame):
                self._say("no cell of this tile is NaN or has changed")
            self._point()

    def action_explain(self) -> None:
        """Explain how the output under the cursor was summed."""
        frame = self.tiles_of
        if frame is None:
            return
        spot = self.cursor.spot(frame)
        is_output = spot.tile >= len(frame.reads)
        if frame.kind == "mma" and not is_output:
            self._say("only outputs are sums: go to the tile that is written, with Tab")
            return
        try:
            told = explanation_of(self.warps.about, frame, spot.row, spot.column)
        except InputError as error:
            self._say(str(error))
            return
        name = f"{frame.writes[0].label}[{spot.row},{spot.column}]"
        self._read(f"{name} of step {frame.number}", explained(told))

    # --- A backend beside the simulator -------------------------------------------------------

    def action_differing(self, count: int) -> None:
        """Go to the next, or the last, step whose bits are not the simulator's."""
        beside = self._beside()
        if beside is None:
            return
        differences = beside.at
        self._onwards(lambda frame: bool(differences(frame)), count, "no step differs")

    def action_simulator(self) -> None:
        """Show the simulator's tiles at this step, or the backend's."""
        if self._beside() is None:
            return
        self.shows_simulator = not self.shows_simulator
        self._draw()

    def _beside(self) -> Comparison | None:
        if self.viewing.beside is None:
            self._say("the simulator ran this; --backend shows another beside it")
        return self.viewing.beside

    @property
    def tiles_of(self) -> Frame | None:
        """The step whose tiles are shown: the simulator's if that was asked for."""
        beside = self.viewing.beside
        if self.frame is not None and beside is not None and self.shows_simulator:
            return beside.other(self.frame)
        return self.frame

    # --- Drawing ------------------------------------------------------------------------------

    def action_hex(self) -> None:
        """Show numbers as bits, or as decimals."""
        hexadecimal = not self.viewing.hexadecimal
        self.viewing = replace(self.viewing, hexadecimal=hexadecimal)
        self._draw()
        self._say("numbers are shown as bits" if hexadecimal else "numbers are decimals")

    def action_dark(self) -> None:
        """Change between dark and light."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"
        self._draw()

    def action_help(self) -> None:
        """Show the keys, and the meaning of the marks."""
        self._read("Keys", HELP)

    def _read(self, title: str, text: Text) -> None:
        self.push_screen(Reading(title, text))

    def _say(self, text: str) -> None:
        self._said = text
        self._foot()

    def _show(self, frame: Frame) -> None:
        self.frame = frame
        stopping = ", ".join(map(str, self.viewing.stopping(frame)))
        self._said = f"stopped: {stopping}" if stopping else ""
        beside = self.viewing.beside
        if beside is not None and (found := beside.at(frame)):
            self._said = f"differs from the simulator: {found[0].what}"
        self._draw()

    def _draw(self) -> None:
        """Draw the step that is shown."""
        frame, steps, about = self.frame, self.steps, self.warps.about
        self._title()
        self._foot()
        if frame is None:
            return
        self._set("line", f"{place_text(frame)}   {frame.line}")
        stops = {one.path for one in self.viewing.breakpoints if one.path}
        self.query_one(ListingPane).show(frame.path, frame.loops, stops)
        tiles = self.query_one(TilesPane)
        room, of_step = tiles.scrollable_content_region, self.tiles_of or frame
        hexadecimal, chosen = self.viewing.hexadecimal, self.cursor.spot(of_step).tile
        panes = panes_of(of_step, hexadecimal=hexadecimal, constants=about.constants)
        tiles.show(picture_of(panes, max(8, room.width), room.height, chosen=chosen))
        memory = self.query_one(MemoryPane)
        memory.show(frame, steps.sizes, memory.size.width, memory.size.height)
        counts = steps.counts(frame.number)
        since = f"since step {steps.first}" if steps.first > 1 else "so far"
        self._set(
            "counts",
            f"{since}: {counts.mma} mma, {counts.additions} additions, "
            f"{counts.bytes_read:,} bytes read, {counts.bytes_written:,} written (global memory)",
        )
        self._point()

    def _title(self) -> None:
        """State the current view."""
        frame, steps, about = self.frame, self.steps, self.warps.about
        last = "" if steps.last is None else f" of {steps.last}"
        where = f"step {frame.number}{last}" if frame is not None else "no step"
        warp = f"warp {steps.warp}, block {steps.warp // max(1, about.warps)}"
        by = "" if about.place == SIMULATOR else f", by {about.place}"
        if self.shows_simulator:
            by = ", by the simulator"
        self._set("title", f"{about.name} on {arch_of(about.arch).title}{by}   {where}   {warp}")

    def _point(self) -> None:
        """Draw the cursor, and tell of its cell."""
        frame = self.tiles_of
        if frame is None:
            return
        spot = self.cursor.spot(frame)
        tiles = frame.tiles
        if tiles:
            self._set("cell", str(cell_of(tiles[spot.tile], spot.row, spot.column)))
        else:
            self._set("cell", "this step touches no tile")
        self.query_one(TilesPane).point(spot, self.cursor.related(frame))

    def _foot(self) -> None:
        self._set("said", self._said or LEGEND_LINE)

    def _set(self, name: str, text: str) -> None:
        # Its place on the screen stays as it is.
        self.query_one(f"#{name}", Static).update(text, layout=False)
