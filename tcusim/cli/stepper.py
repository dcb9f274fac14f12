"""Show frames in a terminal or as plain text, and step through a program by key.

Both outputs come from one layout of lines of spans; plain text leaves out the styles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.program.grammar import Loop, Program, Space, Step, When, walk
from tcusim.program.printer import listing
from tcusim.simulate.frames import Frame, Tile, number_text

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["LEGEND", "Layout", "Stepper", "frame_text", "kinds"]

# A piece of a line and its style; "" has none.
Span: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Span]

LEGEND: Final = (
    "?  NaN: nothing was written there yet, or a sum is not a number",
    ".  out of bounds: read as 0, never written",
    "…  left out for lack of room",
)

_PLACES: Final = {
    str(Space.GLOBAL): "global memory",
    str(Space.SHARED): "shared memory",
    str(Space.WARP): "shared memory",
}
_CHANGED: Final = "bold green"
_HEAD: Final = "cyan"
_QUIET: Final = "dim"
# Columns before the tiles of a step, and between two of them.
_INDENT: Final = 2
_GAP: Final = 3
# A tile whose elements are all equal is said in words from this size on.
_SMALL: Final = 8
# Lines of the listing before and after a step.
_AROUND: Final = 2
_PROMPT: Final = "Enter: next   c: go on to the end   q: quit   a path such as 5.2: go there > "


@dataclass(frozen=True, slots=True)
class Layout:
    """How much room there is. width: columns. rows: the most of a tile that are shown."""

    width: int = 120
    rows: int = 32


def kinds() -> tuple[str, ...]:
    """Return the names by which steps are chosen: mma, load and the others that have frames."""
    leaves = [step for step in get_args(Step) if step not in (Loop, When)]
    return tuple(step.__name__.lower() for step in leaves)


def frame_text(frame: Frame, layout: Layout | None = None) -> str:
    """Return a frame as plain text: no colours, no control characters."""
    lines = _frame_lines(frame, layout or Layout())
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


# --- One frame --------------------------------------------------------------------------------


def _frame_lines(frame: Frame, layout: Layout) -> Iterator[Line]:
    loops = "".join(f"  {name} = {value}" for name, value in frame.loops.items())
    path = "" if frame.path == str(frame.number) else f": {frame.path}"
    yield [(f"step {frame.number}{path}{loops}", _HEAD)]
    yield [(f"  {frame.line}", "bold")]
    named = (("reads", frame.reads), ("writes", frame.writes))
    blocks = [_block(tile, verb, layout) for verb, tiles in named for tile in tiles]
    yield from _side_by_side(blocks, layout.width)
    yield []


def _block(tile: Tile, verb: str, layout: Layout) -> list[Line]:
    """Return a tile as a head of two lines and one line for each row."""
    rows, cols = tile.values.shape
    changed = tile.changed
    size = f"{rows}x{cols} {tile.dtype}, {_PLACES.get(tile.where, tile.where)}"
    head: list[Line] = [[(f"{verb} {tile.part}: {tile.label}", _HEAD)], [(size, _QUIET)]]
    if tile.note:
        return [*head, [(tile.note, "")]]
    if tile.before is not None:
        head[1].append((f", {np.count_nonzero(changed)} changed", _QUIET))
    cells = _cells(tile)
    if rows * cols >= _SMALL and len({cell for row in cells for cell in row}) == 1:
        return [*head, [(f"all {cells[0][0]}", _CHANGED if changed.any() else "")]]
    return [*head, *_table(cells, changed, layout)]


def _cells(tile: Tile) -> list[list[str]]:
    """Return what is shown of each element; see `LEGEND`."""
    values = tile.values
    unknown = np.zeros(values.shape, bool)
    if format_of(tile.dtype).is_float:
        unknown = np.isnan(values)
    elif values.dtype.itemsize == 4:
        # What unwritten memory holds; a narrower integer may mean it.
        unknown = values == np.iinfo(values.dtype).min
    texts = [[number_text(float(value)) for value in row] for row in values]
    shown = np.where(tile.inside, np.where(unknown, "?", np.array(texts, object)), ".")
    rows: list[list[str]] = shown.tolist()
    return rows


def _table(cells: list[list[str]], changed: NDArray[np.bool_], layout: Layout) -> list[Line]:
    """Return rows of aligned cells, as many rows and columns as there is room for."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = _columns_that_fit(widths, layout.width)
    lines: list[Line] = []
    for row in _chosen(len(cells), layout.rows):
        line: Line = []
        for column in columns:
            width = 1 if column is None else widths[column]
            if row is None or column is None:
                line.append((f"{'…':>{width}} ", _QUIET))
            else:
                style = _CHANGED if changed[row, column] else ""
                line += [(f"{cells[row][column]:>{width}}", style), (" ", "")]
        lines.append(line)
    return lines


def _columns_that_fit(widths: list[int], width: int) -> list[int | None]:
    """Return the columns to show; None stands for those left out, before the last."""
    for count in range(len(widths), 2, -1):
        shown = _chosen(len(widths), count)
        if sum(2 if i is None else widths[i] + 1 for i in shown) <= width - _INDENT:
            return shown
    return _chosen(len(widths), 2)


def _chosen(total: int, limit: int) -> list[int | None]:
    """Return at most `limit` numbers below `total`, the last among them, and None for a gap."""
    if total <= limit:
        return list(range(total))
    return [*range(limit - 1), None, total - 1]


def _side_by_side(blocks: Sequence[list[Line]], width: int) -> Iterator[Line]:
    """Yield blocks next to each other, as many as fit, the others below; indented."""
    row: list[list[Line]] = []
    used = _INDENT
    for block in blocks:
        size = _width(block)
        if row and used + size > width:
            yield from _join(row)
            row, used = [], _INDENT
        used += size + _GAP
        row.append(block)
    yield from _join(row)


def _join(row: list[list[Line]]) -> Iterator[Line]:
    for lines in itertools.zip_longest(*row, fillvalue=[]):
        joined: Line = [(" " * _INDENT, "")]
        for block, line in zip(row, lines, strict=True):
            joined += [*line, (" " * (_width(block) - _width([line]) + _GAP), "")]
        yield joined


def _width(lines: list[Line]) -> int:
    return max(sum(len(text) for text, _ in line) for line in lines)


# --- Stepping ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Stepper:
    """Show a program's frames one after the other, waiting for a key between them if asked to.

    frames: returns the frames from the beginning; called again to go back. write: takes each piece
    of plain text. console: a terminal; None is plain text. ask: shows a prompt and returns the
    answer, EOFError at the end; None does not wait. start: path of the first step to show; "" is
    the first of all. only: the kinds of steps to show, of `kinds()`; empty is all. remark: what
    else there is to say of a frame, in lines.
    """

    program: Program
    frames: Callable[[], Iterator[Frame]]
    write: Callable[[str], object]
    console: Console | None = None
    ask: Callable[[str], str] | None = None
    layout: Layout = Layout()
    start: str = ""
    only: tuple[str, ...] = ()
    remark: Callable[[Frame], str] = lambda _: ""

    def run(self) -> None:
        """Show the listing and then the frames, until the program or the user ends."""
        if unknown := self._unknown(self.start):
            raise InputError(unknown)
        self.write(listing(self.program))
        self.write("\n".join(LEGEND) + "\n")
        running = self.frames()
        frame = self._next(running, self.start)
        if frame is None:
            which = f"{' or '.join(self.only)} step" if self.only else "step"
            place = f" at {self.start}" if self.start else ""
            self.write(f"no {which}{place} runs in this warp")
        while frame is not None:
            self._show(frame)
            target = self._wait()
            if target is None:
                return
            frame = self._next(running, target)
            if frame is None and target:
                # It lies behind.
                running = self.frames()
                frame = self._next(running, target)
                if frame is None:
                    self.write(f"step {target} does not run in this warp")
        self.write(f"end of {self.program.name}")

    def _next(self, running: Iterator[Frame], target: str) -> Frame | None:
        """Return the next frame to show: at or below the path `target`, if it is given."""
        for frame in running:
            here = not target or f"{frame.path}.".startswith(f"{target}.")
            if here and (not self.only or frame.kind in self.only):
                return frame
        return None

    def _wait(self) -> str | None:
        """Return the path to go to, "" for the next frame, None to stop."""
        while self.ask is not None:
            try:
                answer = self.ask(_PROMPT).strip().lower()
            except EOFError:
                return None
            if answer in ("q", "quit"):
                return None
            if answer in ("c", "continue"):
                self.ask = None
                return ""
            unknown = self._unknown(answer)
            if not unknown:
                return answer
            self.write(unknown)
        return ""

    def _unknown(self, path: str) -> str:
        """Return what is wrong with a path that leads to no step; "" for others."""
        paths = [known for known, _ in walk(self.program.steps)]
        if not path or path in paths:
            return ""
        return f"{self.program.name} has no step {path!r}; its steps: {', '.join(paths)}"

    # --- Output ------------------------------------------------------------------------------

    def _show(self, frame: Frame) -> None:
        self._show_frame(frame)
        if remark := self.remark(frame):
            self.write(remark)

    def _show_frame(self, frame: Frame) -> None:
        if self.console is None:
            self.write(frame_text(frame, self.layout))
            return
        from rich.text import Text

        self.console.rule(style=_QUIET)
        for line in (*_window(self.program, frame.path), [], *_frame_lines(frame, self.layout)):
            text = Text.assemble(*line, no_wrap=True)
            self.console.print(text, overflow="ellipsis", crop=True)


def _window(program: Program, path: str) -> Iterator[Line]:
    """Yield the listing's lines around a step, the step's own marked."""
    lines = listing(program).partition("\n\n")[2].splitlines()
    here = next(i for i, line in enumerate(lines) if line.split(maxsplit=1)[0] == path)
    for i in range(max(0, here - _AROUND), min(len(lines), here + _AROUND + 1)):
        yield [(f"▶ {lines[i]}", "bold reverse") if i == here else (f"  {lines[i]}", _QUIET)]
