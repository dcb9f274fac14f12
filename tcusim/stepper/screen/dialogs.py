"""Dialogs in front of the screen: a line to fill in, the breakpoints, a text to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from tcusim.errors import InputError
from tcusim.stepper.breakpoints import Breakpoint

__all__ = ["Asking", "Breakpoints", "Prompt", "Reading"]


Result = TypeVar("Result")


class Asking(ModalScreen[Result]):
    """Has a line to fill in; keys typed before it is mounted are not lost."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave")]

    def __init__(self) -> None:
        super().__init__()
        self._early: list[Key] | None = []

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


class Prompt(Asking[str | None]):
    """Asks for a line of text, until it is good or the user leaves.

    check: raises InputError for a text that is not good; its sentence is shown.
    """

    def __init__(self, question: str, hint: str, check: Callable[[str], object]) -> None:
        super().__init__()
        self._question, self._hint, self._check = question, hint, check

    def compose(self) -> ComposeResult:
        """Make its parts."""
        with Vertical(classes="dialog"):
            yield Static(self._question, classes="question", markup=False)
            yield Input(id="answer")
            yield Static(self._hint, id="remark", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Leave with a good answer; explain the error of a bad one."""
        text = event.value.strip()
        if not text:
            self.dismiss(None)
            return
        try:
            self._check(text)
        except InputError as error:
            said = self.query_one("#remark", Static)
            said.add_class("error")
            said.update(str(error))
            return
        self.dismiss(text)


class Breakpoints(Asking[tuple[Breakpoint, ...]]):
    """Shows the breakpoints, and takes others; one that is there already goes."""

    def __init__(
        self, breakpoints: Sequence[Breakpoint], make: Callable[[str], Breakpoint], here: str
    ) -> None:
        super().__init__()
        self._breakpoints, self._make, self._here = list(breakpoints), make, here

    def compose(self) -> ComposeResult:
        """Make its parts."""
        with Vertical(classes="dialog"):
            yield Static("Breakpoints", classes="question")
            yield Static(self._listed(), id="listed", markup=False)
            yield Input(id="answer", placeholder=f"such as {self._here}")
            yield Static(
                "Enter adds one, or takes it away if it is there; with nothing, or Escape: back.\n"
                "mma   a kind of step         nan    a NaN appears\n"
                "5.2   a step, or 5.2 i=3     value  a value changes\n"
                "V     a value of V changes, or V[3,5], or out[17] in memory",
                id="remark",
                markup=False,
            )

    def _listed(self) -> str:
        lines = (f"{number}  {one}" for number, one in enumerate(self._breakpoints, start=1))
        return "\n".join(lines) or "none yet"

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Add or remove the named breakpoint; leave if none was named."""
        if not event.value.strip():
            self.action_leave()
            return
        said = self.query_one("#remark", Static)
        try:
            one = self._make(event.value)
        except InputError as error:
            said.add_class("error")
            said.update(str(error))
            return
        others = [each for each in self._breakpoints if each.text != one.text]
        is_new = len(others) == len(self._breakpoints)
        self._breakpoints = [*others, one] if is_new else others
        said.remove_class("error")
        said.update(f"{'added' if is_new else 'taken away'}: {one}")
        self.query_one("#listed", Static).update(self._listed())
        event.input.value = ""

    def action_leave(self) -> None:
        """Leave with the current breakpoints."""
        self.dismiss(tuple(self._breakpoints))


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
