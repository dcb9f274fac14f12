"""Dialogs in front of the screen: a line to fill in, the breakpoints, a text to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from tcusim.errors import InputError
from tcusim.stepper.breakpoints import Breakpoint
from tcusim.stepper.screen.words import forms_text


class Prompt(ModalScreen[str | None]):
    """Asks for a line of text, until it is good or the user leaves; it loses no early keys.

    check: raises InputError for a text that is not good; its sentence is shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave")]

    def __init__(
        self, question: str, hint: str, check: Callable[[str], object], example: str = ""
    ) -> None:
        super().__init__()
        self._early: list[Key] | None = []
        self._question, self._hint, self._check, self._example = question, hint, check, example

    @property
    def listed(self) -> str:
        """Lines between the question and the answer."""
        return ""

    def compose(self) -> ComposeResult:
        """Make its parts."""
        with Vertical(classes="dialog"):
            yield Static(self._question, classes="question", markup=False)
            if self.listed:
                yield Static(self.listed, id="listed", markup=False)
            yield Input(id="answer", placeholder=self._example)
            yield Static(self._hint, id="remark", markup=False)

    def take(self, event: Key) -> bool:
        """Take a key that went past the line; return whether it was for it."""
        if self._early is not None:
            self._early.append(event)
        elif event.is_printable and event.character:
            self.query_one(Input).insert_text_at_cursor(event.character)
        else:
            return False
        return True

    async def on_mount(self) -> None:
        """Let the line have the keys that came before it."""
        answer = self.query_one(Input)
        answer.focus()
        early, self._early = self._early or [], None
        for event in early:
            if event.key == "enter":
                await answer.action_submit()
            elif event.key == "escape":
                self.action_leave()
            elif event.key == "backspace":
                answer.action_delete_left()
            elif event.is_printable and event.character:
                answer.insert_text_at_cursor(event.character)

    def action_leave(self) -> None:
        """Leave without an answer."""
        self.dismiss(None)

    def say(self, text: str, *, error: bool = False) -> None:
        """Show a remark below the line."""
        said = self.query_one("#remark", Static)
        said.set_class(error, "error")
        said.update(text)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take a good answer; explain the error of a bad one; leave if there is none."""
        text = event.value.strip()
        if not text:
            self.action_leave()
            return
        try:
            self._check(text)
        except InputError as error:
            self.say(str(error), error=True)
        else:
            self.answer(text)

    def answer(self, text: str) -> None:
        """Leave with a good answer."""
        self.dismiss(text)


class Breakpoints(Prompt):
    """Shows the breakpoints, and takes others; one that is there already goes."""

    def __init__(
        self, breakpoints: Sequence[Breakpoint], make: Callable[[str], Breakpoint], here: str
    ) -> None:
        hint = "Enter adds one, or takes it away if it is there; with nothing, or Escape: back."
        super().__init__("Breakpoints", f"{hint}\n{forms_text()}", make, f"such as {here}")
        self.chosen, self._make = list(breakpoints), make

    @property
    def listed(self) -> str:
        """The breakpoints, one a line."""
        lines = (f"{number}  {one}" for number, one in enumerate(self.chosen, start=1))
        return "\n".join(lines) or "none yet"

    def answer(self, text: str) -> None:
        """Add or remove the named breakpoint."""
        one = self._make(text)
        others = [each for each in self.chosen if each.text != one.text]
        is_new = len(others) == len(self.chosen)
        self.chosen = [*others, one] if is_new else others
        self.say(f"{'added' if is_new else 'taken away'}: {one}")
        self.query_one("#listed", Static).update(self.listed)
        self.query_one(Input).value = ""


class Reading(Screen[None]):
    """A text to read, with scrolling."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,e,enter,question_mark", "leave", "Back"),
        Binding("down,j,n", "move('scroll_down')"),
        Binding("up,k,p", "move('scroll_up')"),
        Binding("right,l", "move('scroll_right')"),
        Binding("left,h", "move('scroll_left')"),
        Binding("pagedown,space", "move('scroll_page_down')"),
        Binding("pageup", "move('scroll_page_up')"),
        Binding("home", "move('scroll_home')"),
        Binding("end", "move('scroll_end')"),
    ]

    def __init__(self, title: str, text: Text) -> None:
        super().__init__()
        self._title, self.text = title, text

    def compose(self) -> ComposeResult:
        """Make its parts."""
        with Vertical(classes="reading"):
            yield Static(f"{self._title}   (arrows scroll, Escape: back)", classes="question")
            with VerticalScroll(id="text", can_focus=False):
                yield Static(self.text)

    def action_move(self, how: str) -> None:
        """Scroll the text."""
        getattr(self.query_one("#text"), how)(animate=False)

    def action_leave(self) -> None:
        """Go back."""
        self.dismiss(None)
