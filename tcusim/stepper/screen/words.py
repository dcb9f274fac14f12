"""The words of the screen: its keys, its help, its style, and explanations in colour."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from tcusim.machine.accounts.explanation import Explanation
from tcusim.machine.accounts.text import rows_of
from tcusim.stepper.breakpoints import FORMS

# The keys, their actions in words, and whether nothing else may take them.
KEYS: Final[tuple[tuple[str, str, str, bool], ...]] = (
    ("right,down,n,space,enter", "step(1)", "next step", False),
    ("left,up,p,backspace", "step(-1)", "previous step", False),
    ("pagedown", "step(10)", "ten steps on", False),
    ("pageup", "step(-10)", "ten steps back", False),
    ("home", "first", "first step", False),
    ("end", "last", "last step", False),
    ("t", "turn(1)", "next turn of this line", False),
    ("T", "turn(-1)", "previous turn of this line", False),
    ("g", "go_to", "go to a step, a path, an iteration", False),
    ("b", "breakpoints", "breakpoints", False),
    ("c", "continue(1)", "on to the next breakpoint", False),
    ("C", "continue(-1)", "back to the last breakpoint", False),
    ("w", "warp", "another warp", False),
    ("B", "block", "another block", False),
    ("tab", "tile(1)", "next tile", True),
    ("shift+tab", "tile(-1)", "previous tile", True),
    ("h,shift+left", "cell(0, -1)", "cursor left; a tile that does not fit scrolls", False),
    ("j,shift+down", "cell(1, 0)", "cursor down; it scrolls", False),
    ("k,shift+up", "cell(-1, 0)", "cursor up; it scrolls", False),
    ("l,shift+right", "cell(0, 1)", "cursor right; it scrolls", False),
    ("m", "marked", "cursor to the next NaN, or cell that changed", False),
    ("e", "explain", "how the cell under the cursor was summed", False),
    ("s", "simulator", "the simulator's tiles, beside a backend's", False),
    ("D", "differing(1)", "on to a step that differs from the simulator", False),
    ("x", "hex", "bits or decimals", False),
    ("d", "dark", "dark or light", False),
    ("escape", "stop", "stop looking", False),
    ("question_mark", "help", "this help", False),
    ("q", "quit", "quit", False),
    ("ctrl+c,ctrl+q", "quit", "quit, wherever", True),
)

LEGEND_LINE: Final = (
    "* changed ? NaN . outside | ←→ step hjkl scroll Tab tile g go e explain ? help"
)

_SPELLED: Final = {
    "question_mark": "?",
    "right": "→",
    "left": "←",
    "up": "↑",
    "down": "↓",
    "pagedown": "PageDown",
    "pageup": "PageUp",
    "shift+left": "Shift+←",
    "shift+right": "Shift+→",
    "shift+up": "Shift+↑",
    "shift+down": "Shift+↓",
}

_MARKS: Final = (
    ("12*", "bold", "changed by this step"),
    ("0", "dim", "zero"),
    ("1", "italic", "in a tile that is constant; its head says so"),
    ("?", "reverse", "NaN: nothing was written yet, or a sum is not a number"),
    (".", "dim", "out of bounds: read as 0, never written"),
    ("12", "underline", "what the output under the cursor is made of"),
)


def forms_text() -> str:
    """Return the forms of a breakpoint and their meanings, two on a line."""
    cells = [f"{form:<11}{what}" for form, what in FORMS]
    pairs = zip(cells[::2], cells[1::2], strict=True)
    return "\n".join(f"{one:<39}{two}" for one, two in pairs)


def _help() -> Text:
    text = Text()
    for keys, _, what, _ in KEYS:
        spelled = "  ".join(
            _SPELLED.get(key, key.capitalize() if len(key) > 1 else key) for key in keys.split(",")
        )
        text.append(f"{spelled:<24}", "bold")
        text.append(f"{what}\n")
    text.append("\n")
    for sign, style, what in _MARKS:
        text.append(f"{sign:>5}", style)
        text.append(f"   {what}\n")
    text.append(f"\nA place to go to, and a breakpoint, is one of\n{forms_text()}\n")
    return text


HELP: Final = _help()


def explained(told: Explanation) -> Text:
    """Return the text of `Explanation.to_text`, with the lost digits marked."""
    styles = {"title": "bold", "lost": "bold red", "": ""}
    text = Text()
    for row in rows_of(told.accounts):
        line = Text.assemble(*((span.text, styles[span.style]) for span in row))
        line.rstrip()
        text.append_text(line)
        text.append("\n")
    return text


# Colours that people who do not tell red from green tell apart, on dark and on light; whatever a
# colour says, a mark, a weight or a word says too.
STYLE: Final = """
#title { height: 1; background: $primary-background; color: $text; text-style: bold; padding: 0 1; }
#line { height: 1; padding: 0 1; text-style: bold; }
#body { height: 1fr; layout: vertical; }
#listing { height: 5; background: $surface; padding: 0 1; scrollbar-size: 0 0; }
#tiles { height: 1fr; padding: 0 1; scrollbar-size: 0 1; overflow: auto scroll; }
#memory { height: 2; padding: 0 1; background: $surface; }
#counts { height: 1; padding: 0 1; color: $text-muted; }
#cell { height: 1; padding: 0 1; }
#said { height: 1; padding: 0 1; background: $primary-background; color: $text; }

.-tall #listing { height: 9; }
.-tall #memory { height: 4; }
.-tall #line { height: 2; }
.-short #listing { height: 4; }
.-tiny #listing { height: 2; }
.-tiny #memory, .-tiny #counts { display: none; }
.-wide #body { layout: horizontal; }
.-wide #listing { width: 42%; max-width: 90; height: 1fr; }
.-wide #tiles { width: 1fr; }

ListingPane > .listing--current { text-style: bold reverse; }
ListingPane > .listing--loop { text-style: bold; }
TilesPane > .tiles--head { text-style: bold; }
TilesPane > .tiles--quiet { color: $text-muted; }
TilesPane > .tiles--cursor { text-style: reverse bold; }
TilesPane > .tiles--related { text-style: underline; background: #3d3d3d; }
App:light TilesPane > .tiles--related { background: #c8c8c8; }
TilesPane > .tiles--outside { color: $text-disabled; }
TilesPane > .tiles--zero { color: $text-disabled; }
TilesPane > .tiles--changed { color: #ffb000; text-style: bold; }
TilesPane > .tiles--constant { color: #785ef0; text-style: italic; }
TilesPane > .tiles--nan { background: #dc267f; color: white; text-style: bold; }
App:light TilesPane > .tiles--changed { color: #8f4a00; }
App:dark TilesPane > .tiles--constant { color: #82a6ff; }

Prompt, Breakpoints { align: center middle; }
.dialog { width: 76; max-width: 100%; height: auto; max-height: 100%; border: round $primary;
          background: $panel; padding: 0 1; }
.dialog Input { border: tall $primary; }
.question { text-style: bold; height: auto; }
#remark { height: auto; }
.error { color: $text-error; text-style: bold; }
#listed { padding: 0 0 1 0; }
Reading .reading { width: 100%; height: 100%; background: $surface; padding: 0 1; }
#text { height: 1fr; overflow: auto auto; }
#text Static { width: auto; }
"""
