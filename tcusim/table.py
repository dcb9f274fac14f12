"""Tables of text: one class for terminals, notebooks, pages and papers."""

from __future__ import annotations

import csv
import io
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tcusim.markup import scrolling, shown

# Columns between two columns of text, and before rows below a title.
_GAP: Final = "  "
_INDENT: Final = "  "
# A longer cell may be folded; a header may be folded between any words.
_UNFOLDED: Final = 24
# A notebook and a page show a few notes, and unfold more.
_SOME_NOTES: Final = 4
_BOLD, _RED, _RESET = "\x1b[1m", "\x1b[1;31m", "\x1b[0m"
_LATEX: Final = {
    **{one: f"\\{one}" for one in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "→": r"$\to$",
    "·": r"$\cdot$",
    "…": r"\dots{}",
    "<": "$<$",
    ">": "$>$",
}


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text with a header and sentences around them; `print` it, or show it in a notebook.

    Attributes
    ----------
    header : sequence of str
        Names of the columns; a line break is kept. Empty for a table without a header.
    rows : sequence of sequences of str
        Cells. The first cell of a row names the row.
    title : str
        The heading. Rows below a title are indented.
    texts, notes : sequence of str
        Sentences above the rows and below them.
    summary : str
        The end of the text, which is never folded, and the beginning of the HTML.
    align : str
        ``"l"`` or ``"r"`` for each column. Further columns are aligned to the left.
    whole : int
        Number of first columns that are never folded, and that each part of a wide table repeats.
    totals : int
        Number of last rows that are set apart.
    wrong : collection of int
        Indices of the rows that report an error.

    Raises
    ------
    ValueError
        If rows differ in their number of cells.
    """

    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    title: str = ""
    texts: Sequence[str] = ()
    notes: Sequence[str] = ()
    summary: str = ""
    align: str = ""
    whole: int = 1
    totals: int = 0
    wrong: Sequence[int] = ()

    def __post_init__(self) -> None:
        counts = {len(cells) for cells in self._lines_of_cells()}
        if len(counts) > 1:
            raise ValueError(f"rows of a table have {' or '.join(map(str, sorted(counts)))} cells")

    def _lines_of_cells(self) -> list[Sequence[str]]:
        return [*([self.header] if self.header else []), *self.rows]

    def _columns(self) -> list[tuple[str, ...]]:
        return list(zip(*self._lines_of_cells(), strict=True))

    def _side(self, column: int) -> str:
        return self.align[column : column + 1] or "l"

    # --- Plain text ---------------------------------------------------------------------------

    def __str__(self) -> str:
        """Return plain text, folded to the terminal if stdout is one."""
        return self.text(screen_width())

    def text(self, width: int | None = None, *, color: bool = False) -> str:
        """Return plain text.

        Parameters
        ----------
        width : int, optional
            Columns of the screen. Long cells are folded between words, and a table that is still
            wider is split into parts, each with the first columns. Default: lines of any length.
        color : bool
            Whether to use the escape sequences of a terminal for bold and red.
        """
        bold, end = (_BOLD, _RESET) if color else ("", "")
        lines = [f"{bold}{self.title}{end}"] if self.title else []
        lines += [*_folded(self.texts, width), *[""] * bool(self.texts and self.rows)]
        indent = _INDENT if self.title else ""
        room = None if width is None else width - len(indent)
        lines += [f"{indent}{line}".rstrip() for line in self.lines(room, color=color)]
        below = [*_folded(self.notes, width), *([self.summary] if self.summary else [])]
        return "\n".join([*lines, *([""] if below and self.rows else []), *below])

    def lines(self, width: int | None = None, *, color: bool = False) -> list[str]:
        """Return the lines of the header and the rows, without the sentences."""
        if not self.rows:
            return []
        parts = [list(range(len(self.rows[0])))] if width is None else self._parts(width)
        lines: list[str] = []
        for columns in parts:
            lines += [""] if lines else []
            lines += self._part(columns, self._widths(columns, width), color=color)
        return lines

    def _part(self, columns: Sequence[int], widths: Sequence[int], *, color: bool) -> Iterator[str]:
        """Yield the lines of some columns."""

        def line(cells: Sequence[str], style: str, first: str = "") -> str:
            padded = [
                f"{_blank(cell, width)}{cell}"
                if self._side(column) == "r"
                else f"{cell}{_blank(cell, width)}"
                for column, cell, width in zip(columns, cells, widths, strict=True)
            ]
            if first and cells[0]:
                padded[0] = f"{first}{padded[0]}{_RESET}"
            text = _GAP.join(padded).rstrip()
            return f"{style}{text}{_RESET}" if style and text else text

        bold, red = (_BOLD, _RED) if color else ("", "")

        if self.header:
            heads = [_fold(self.header[i], w) for i, w in zip(columns, widths, strict=True)]
            height = max(map(len, heads))
            for cells in zip(*([""] * (height - len(h)) + h for h in heads), strict=True):
                yield line(cells, bold)
            yield "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
        for number, row in enumerate(self.rows):
            if self.totals and number == len(self.rows) - self.totals:
                yield ""
            folded = [_fold(row[i], w) for i, w in zip(columns, widths, strict=True)]
            height = max(map(len, folded))
            for cells in zip(*(f + [""] * (height - len(f)) for f in folded), strict=True):
                style = red if number in self.wrong else ""
                yield line(cells, style, "" if style or self.header else bold)

    def _least(self, column: int) -> int:
        """Return the minimum width of a column."""
        cells = [row[column] for row in self.rows]
        if column < self.whole:
            return _width_of([*cells, *self.header[column : column + 1]])
        words = " ".join([*cells, *self.header[column : column + 1]]).split()
        return max(_width_of(words), min(_width_of(cells), _UNFOLDED))

    def _parts(self, width: int) -> list[list[int]]:
        """Return the columns of each part, as many as fit."""
        repeated = list(range(min(self.whole, len(self.rows[0]))))
        taken = sum(self._least(column) + len(_GAP) for column in repeated)
        parts = [repeated]
        used = taken
        for column in range(len(repeated), len(self.rows[0])):
            least = self._least(column)
            if used + least > width and len(parts[-1]) > len(repeated):
                parts.append(list(repeated))
                used = taken
            parts[-1] = [*parts[-1], column]
            used += least + len(_GAP)
        return parts

    def _widths(self, columns: Sequence[int], width: int | None) -> list[int]:
        """Return the widths of columns: the minimum, and a fair share of the rest of the screen."""
        full = [_width_of(cells) for i, cells in enumerate(self._columns()) if i in columns]
        room = None if width is None else width - len(_GAP) * (len(columns) - 1)
        if room is None or sum(full) <= room:
            return full
        widths = list(map(self._least, columns))
        while sum(widths) < room:
            narrow = [i for i, most in enumerate(full) if widths[i] < most]
            widths[min(narrow, key=widths.__getitem__)] += 1
        return widths

    # --- Other forms --------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        return shown(self.html())

    def html(self, heading: int = 0, *, kind: str = "", folded: bool = False) -> str:
        """Return an HTML fragment.

        heading: level of the title's heading; 0 for a paragraph. kind: a class of the table.
        folded: whether the rows are hidden until the reader clicks on the title.
        """
        heads = [f"<p><strong>{_breaking(one)}</strong></p>" for one in (self.summary, self.title)]
        if heading:
            heads[1] = f"<h{heading}>{escape(self.title)}</h{heading}>"
        shown_heads = (self.summary, "" if folded else self.title)
        parts = [head for head, one in zip(heads, shown_heads, strict=True) if one]
        parts += [_sentences(self.texts)] if self.texts else []
        if self.rows:
            label = self.title or self.summary or "Table"
            parts.append(f"{scrolling(label)}<table{_class(kind)}>")
            parts += self._html_rows()
            parts.append("</table></div>")
        if len(self.notes) > _SOME_NOTES:
            notes = _sentences(self.notes)
            parts.append(f"<details><summary>Notes</summary>{notes}</details>")
        elif self.notes:
            parts.append(_sentences(self.notes))
        if folded:
            parts = [f"<details><summary>{escape(self.title)}</summary>", *parts, "</details>"]
        return "\n".join(parts)

    def _html_rows(self) -> Iterator[str]:
        sides = ["right" if self._side(i) == "r" else "" for i in range(len(self.rows[0]))]
        if self.header:
            cells = (
                f'<th scope="col"{_class(side)}>{_breaking(cell)}</th>'
                for side, cell in zip(sides, self.header, strict=True)
            )
            yield f"<thead><tr>{''.join(cells)}</tr></thead>"
        yield "<tbody>"
        for number, (first, *others) in enumerate(self.rows):
            if self.totals and number == len(self.rows) - self.totals:
                yield '</tbody><tbody class="totals">'
            cells = (
                f"<td{_class('long' if len(cell) > _UNFOLDED else side)}>{_breaking(cell)}</td>"
                for side, cell in zip(sides[1:], others, strict=True)
            )
            head = f'<th scope="row">{escape(first)}</th>' if first else "<td></td>"
            look = _class("wrong" if number in self.wrong else "")
            yield f"<tr{look}>{head}{''.join(cells)}</tr>"
        yield "</tbody>"

    def to_csv(self) -> str:
        """Return the header and the rows as CSV."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(map(_on_one_line, self._lines_of_cells()))
        return out.getvalue()

    def to_markdown(self) -> str:
        """Return the header and the rows in GitHub's dialect of Markdown."""
        columns = range(len(self._lines_of_cells()[0])) if self._lines_of_cells() else ()
        header = self.header or [""] * len(columns)
        rule = ["---:" if self._side(column) == "r" else "---" for column in columns]
        lines = [_on_one_line(header), rule, *map(_on_one_line, self.rows)]
        return "\n".join(f"| {' | '.join(map(_markdown, cells))} |" for cells in lines)

    def to_latex(self) -> str:
        """Return the header and the rows as a LaTeX ``tabular``, which needs no package."""
        lines = [
            " & ".join("".join(_LATEX.get(letter, letter) for letter in one) for one in cells)
            + r" \\"
            for cells in map(_on_one_line, self._lines_of_cells())
        ]
        if self.totals:
            lines.insert(len(lines) - self.totals, r"\hline")
        if self.header:
            lines.insert(1, r"\hline")
        sides = "".join(self._side(column) for column in range(len(self._columns())))
        return "\n".join([rf"\begin{{tabular}}{{{sides}}}", *lines, "\\end{tabular}\n"])


class Tabular:
    """An object that displays itself as tables; a subclass defines `table` or `tables`."""

    __slots__ = ()

    def table(self) -> Table:
        """Return everything as a table."""
        raise NotImplementedError

    def tables(self) -> Sequence[Table]:
        """Return the tables that `print`, a notebook and `text` show."""
        return (self.table(),)

    def __str__(self) -> str:
        """Return the tables as plain text, folded to the terminal if stdout is one."""
        return self.text(screen_width())

    def text(self, width: int | None = None, *, color: bool = False) -> str:
        """Return the tables as plain text; see `Table.text`."""
        return "\n\n".join(table.text(width, color=color) for table in self.tables())

    def _repr_html_(self) -> str:
        return shown(*(table.html() for table in self.tables()))


def aligned(rows: Iterable[Sequence[str]], align: str = "") -> list[str]:
    """Return a line of plain text for each row. align: as of `Table`."""
    return Table(rows=list(rows), align=align).lines()


def screen_width() -> int | None:
    """Return the columns of the terminal; None where stdout is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _columns_of(text: str) -> int:
    """Return the columns of a terminal that a text takes: two for a wide letter."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def _blank(text: str, width: int) -> str:
    return " " * (width - _columns_of(text))


def _width_of(cells: Iterable[str]) -> int:
    return max((_columns_of(line) for cell in cells for line in cell.split("\n")), default=0)


def _fold(text: str, width: int, indent: str = "") -> list[str]:
    """Return the lines of a text, folded between words."""
    lines: list[str] = []
    for line in text.split("\n"):
        if _columns_of(line) <= width:
            lines.append(line)
        else:
            lines += textwrap.wrap(
                *(line, width),
                subsequent_indent=indent,
                break_on_hyphens=False,
                break_long_words=False,
            )
    return lines


def _folded(texts: Iterable[str], width: int | None) -> list[str]:
    """Return the lines of sentences; further lines are indented as the first."""
    lines: list[str] = []
    for text in texts:
        indent = text[: len(text) - len(text.lstrip())]
        lines += text.split("\n") if width is None else _fold(text, width, indent)
    return lines


def _on_one_line(cells: Sequence[str]) -> list[str]:
    return [cell.replace("\n", " ") for cell in cells]


def _markdown(cell: str) -> str:
    return cell.replace("|", r"\|")


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _breaking(cell: str) -> str:
    return escape(cell).replace("\n", "<br>")


def _sentences(texts: Sequence[str]) -> str:
    """Return one sentence as a paragraph, several as a list."""
    if len(texts) == 1:
        return f"<p>{escape(texts[0].strip())}</p>"
    return f"<ul>{''.join(f'<li>{escape(text.strip())}</li>' for text in texts)}</ul>"
