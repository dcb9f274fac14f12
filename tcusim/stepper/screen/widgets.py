"""The panes of the screen: the listing, the tiles, memory. Each draws its arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from tcusim.stepper.breakpoints import loops_around
from tcusim.stepper.frames import Frame
from tcusim.stepper.layout import Block, Picture, Spot
from tcusim.stepper.panes import panes_of
from tcusim.stepper.store import About

# Lines of the listing that are kept in view around the current one.
_AROUND: Final = 2
# The meaning of a cell of a strip.
_READ, _WRITTEN, _REST = "▒", "█", "·"
# Columns for the words beside a strip.
_WORDS: Final = 40


class ListingPane(ScrollView, can_focus=False):
    """The program's listing: the current line and the loops around it, and breakpoints."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"listing--current", "listing--loop", "listing--quiet"}

    def __init__(self, about: About) -> None:
        super().__init__(id="listing")
        self._about, self._lines = about, about.rows
        self._width = max((len(line) for _, line in self._lines), default=0) + 2
        self._loops: Mapping[str, int] = {}
        self._stops: frozenset[str] = frozenset()
        self._at = 0

    def on_mount(self) -> None:
        """Say how large it is."""
        self.virtual_size = Size(self._width, len(self._lines))

    def show(self, path: str, loops: Mapping[str, int], stops: Collection[str]) -> None:
        """Mark the line of a step, and those with breakpoints; keep the line in view."""
        self._loops, self._stops = loops, frozenset(stops)
        numbers = (number for number, (own, _) in enumerate(self._lines) if own == path)
        self._at = next(numbers, self._at)
        height = self.scrollable_content_region.height or 1
        around = min(_AROUND, max(0, (height - 1) // 2))
        top = round(self.scroll_offset.y)
        if self._at < top + around:
            top = self._at - around
        elif self._at > top + height - 1 - around:
            top = self._at - height + 1 + around
        self.scroll_to(y=max(0, top), animate=False, immediate=True)
        self.refresh()

    def line_text(self, number: int) -> str:
        """Return a line as it is shown, with the value of a loop's variable."""
        path, text = self._lines[number]
        sign = "▶" if number == self._at else "●" if path in self._stops else " "
        variables = loops_around(path, self._about.lines)
        here = self._lines[self._at][0]
        if text.lstrip().split(maxsplit=1)[1:2] and f"{here}.".startswith(f"{path}.") and variables:
            own = variables[-1]
            if self._about.lines[path].startswith("for ") and own in self._loops:
                text = f"{text.partition('  Alg.')[0].rstrip()}   now {own} = {self._loops[own]}"
        return f"{sign} {text}"

    def render_line(self, y: int) -> Strip:
        """Draw a line of the pane."""
        number = y + round(self.scroll_offset.y)
        width = self.scrollable_content_region.width
        if number >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        path = self._lines[number][0]
        style = self.rich_style
        here = self._lines[self._at][0]
        if number == self._at:
            style += self.get_component_rich_style("listing--current")
        elif here.startswith(f"{path}."):
            style += self.get_component_rich_style("listing--loop")
        text = self.line_text(number)
        if len(text) > width:
            # Where the paper's line does not fit, it is left out whole.
            shown = text[: width - 1]
            text = shown if shown.endswith("  ") else f"{shown}…"
        return Strip([Segment(f"{text:<{width}}", style)], width)


class TilesPane(ScrollView, can_focus=False):
    """The tiles of a step, with a cursor."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *("tiles--head", "tiles--quiet", "tiles--cursor", "tiles--related"),
        *("tiles--outside", "tiles--nan", "tiles--changed", "tiles--zero", "tiles--constant"),
        "tiles--other",
    }

    def __init__(self) -> None:
        super().__init__(id="tiles")
        self._picture = Picture(())
        self._cursor = Spot(0, 0, 0)
        self._related: frozenset[Spot] = frozenset()
        self._styles: dict[str, Style] = {}

    def show(self, picture: Picture) -> None:
        """Draw these tiles."""
        self._picture = picture
        size = Size(picture.width, picture.height)
        if size != self.virtual_size:
            self.virtual_size = size
        self.refresh()

    @property
    def cursor_region(self) -> Region | None:
        """Where the cursor is among the tiles; None if there is no cell."""
        found = self._picture.spot(self._cursor)
        if found is None:
            return None
        block, number = found
        x, y, width = block.place(number)
        return Region(x, y, width, 1)

    def point(self, spot: Spot, related: Collection[Spot]) -> None:
        """Put the cursor on a cell, and mark others; keep the cursor in view."""
        self._cursor, self._related = spot, frozenset(related)
        cell = self.cursor_region
        if cell is not None:
            block, size = self._picture.blocks[spot.tile], self.scrollable_content_region
            offset = self.scroll_offset
            tile = block.x, block.width
            left = scrolled(round(offset.x), size.width, tile, (cell.x, cell.width))
            # The lines of the other tiles stay as long as the cursor is in view below them.
            top = scrolled(round(offset.y), size.height, (0, self._picture.height), (cell.y, 1))
            # A tile that fits as a whole does not move.
            left = 0 if self._picture.width <= size.width else left
            self.scroll_to(left, top, animate=False, immediate=True, force=True)
        self.refresh()

    def notify_style_update(self) -> None:
        """Forget the styles; they have changed."""
        super().notify_style_update()
        self._styles.clear()

    def render_line(self, y: int) -> Strip:
        """Draw a line of the pane."""
        left, top = round(self.scroll_offset.x), round(self.scroll_offset.y)
        width = self.scrollable_content_region.width
        blank = self._style("")
        segments: list[Segment] = []
        x = 0
        for number, block in self._picture.blocks_at(y + top):
            if block.x > x:
                segments.append(Segment(" " * (block.x - x), blank))
            drawn = self._block_line(number, block, y + top)
            segments += drawn
            x = block.x + sum(len(segment.text) for segment in drawn)
        strip = Strip(segments).simplify().adjust_cell_length(max(left + width, x), blank)
        return strip.crop(left, left + width)

    def _block_line(self, number: int, block: Block, y: int) -> list[Segment]:
        """Return a block's part of a line."""
        line = y - block.y
        if line < len(block.head):
            return [Segment(block.head[line], self._style(("head", "quiet")[line]))]
        columns = block.tile.values.shape[1]
        drawn = []
        for each, aligned in block.cells(y):
            assert each is not None
            spot, text = Spot(number, *divmod(each, columns)), aligned.lstrip()
            own = style = self._style(block.look(each))
            mark = block.mark(each)
            if self._is_under_cursor(spot, block):
                style += self._style("cursor")
            elif spot in self._related:
                style += self._style("related")
            drawn.append(Segment(" " * (len(aligned) - len(text)), self._style("")))
            drawn.append(Segment(text, style))
            drawn.append(Segment(mark, self._style("") if mark == " " else own))
        return drawn

    def _is_under_cursor(self, spot: Spot, block: Block) -> bool:
        if block.is_said_in_words:
            return spot.tile == self._cursor.tile
        return spot == self._cursor

    def _style(self, name: str) -> Style:
        """Return the style of a kind of cell; "" is that of the pane."""
        found = self._styles.get(name)
        if found is None:
            # To ask for one takes long, and every cell does.
            found = self.rich_style
            if name:
                # An overlay on a cell keeps the cell's own colour.
                partial = name in ("cursor", "related")
                found = self.get_component_rich_style(f"tiles--{name}", partial=partial)
            self._styles[name] = found
        return found


def scrolled(before: int, room: int, whole: tuple[int, int], part: tuple[int, int]) -> int:
    """Return the scroll offset that shows a part of a tile, and the whole tile if it fits.

    before: the current offset. whole, part: their begins and sizes.
    """
    begin, size = whole
    if size > room:
        if part[0] + part[1] - begin <= room:
            return begin
        begin, size = part
    return min(max(before, begin + size - room), begin)


class MemoryPane(Static, can_focus=False):
    """For each place in memory that a step touches, a strip of the buffer."""

    def __init__(self) -> None:
        super().__init__(id="memory")

    def show(self, frame: Frame, sizes: Mapping[str, int], width: int, lines: int) -> None:
        """Draw the tiles that a step reads and writes, in so many lines."""
        named = [pane for pane in panes_of(frame) if pane.tile.buffer]
        shown = named if len(named) <= lines else named[: max(0, lines - 1)]
        longest = max((len(pane.tile.buffer) for pane in shown), default=0)
        text = Text(no_wrap=True, overflow="ellipsis", end="")
        for pane in shown:
            buffer = pane.tile.buffer
            size = sizes.get(buffer, 0)
            full = _WRITTEN if pane.verb == "writes" else _READ
            text.append(f"{buffer:<{longest}} ", "dim")
            text.append(bar_of(pane.ranges, size, max(8, width - longest - _WORDS), full))
            text.append(f" {pane.strip} of {size}\n", "dim")
        if len(shown) < len(named):
            rest = ", ".join(pane.tile.label for pane in named[len(shown) :])
            text.append(f"and {rest}", "dim")
        elif not named:
            text.append("no memory is read or written", "dim")
        self.update(text, layout=False)


def bar_of(ranges: Sequence[tuple[int, int]], size: int, width: int, full: str) -> str:
    """Return a buffer as a strip: the touched elements, and the rest."""
    size = max(size, *(end for _, end in ranges), 1) if ranges else max(size, 1)
    cells = [_REST] * width
    for begin, end in ranges:
        first = begin * width // size
        last = max(first + 1, -(-end * width // size))
        cells[first:last] = full * (min(last, width) - first)
    return "".join(cells)
