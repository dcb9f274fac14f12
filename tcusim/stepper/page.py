"""A trace as a page to step through: one self-contained file with its data.

The page computes nothing: every number is embedded as bits and text, and each output of a product
as the account from `explain`. `page.js` only shows them.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tcusim.machine import Values, arch_of, rule_for
from tcusim.machine.accounts.account import Account
from tcusim.machine.accounts.layout import in_words, panels, summary
from tcusim.machine.accounts.recorder import accounts_of
from tcusim.stepper.frames import Frame
from tcusim.stepper.panes import LOOKS, Pane, distinct, panes_of
from tcusim.stepper.store import SIMULATOR, About

# Maximum number of steps, and of elements of one tile, in a page.
_MOST_STEPS: Final = 2000
_MOST_CELLS: Final = 4096

# Default and maximum number of outputs that a page explains.
CELLS: Final = 4096
MOST_CELLS: Final = 2**20

# Height of a page inside another.
_HEIGHT: Final = 760

_Content = TypeVar("_Content")
# The key of an output: the bits of a row, a column and an addend.
_Key: TypeAlias = tuple[bytes, bytes, bytes]


class Side(NamedTuple):
    """One trace on a page. left_out: the missing steps, in words. title: its title."""

    about: About
    frames: Sequence[Frame]
    left_out: str
    title: str


def page_of(
    sides: Sequence[Side],
    cells: int,
    differences: Sequence[object] = (),
    exact: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    verdict: str = "",
) -> str:
    """Return the page of a trace, or of two beside each other.

    cells: maximum number of outputs of each to explain. differences, exact: as `page.js` takes
    them. verdict: a sentence on their difference.
    """
    content = {
        "sides": [data_of(side, cells) for side in sides],
        "differences": differences,
        "exact": dict(exact),
        "verdict": verdict,
    }
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    parts = {
        "title": escape(f"{sides[0].about.name}, step by step"),
        "style": _text("css"),
        "data": base64.b64encode(gzip.compress(data.encode(), mtime=0)).decode(),
        "script": _text("js"),
    }
    page = _text("html")
    for name, text in parts.items():
        page = page.replace(f"[[{name}]]", text)
    return page


def frame_of(page: str) -> str:
    """Return a page as an element of another page, with a script of its own."""
    return (
        '<iframe title="A program, step by step" sandbox="allow-scripts" '
        f'style="width: 100%; height: {_HEIGHT}px; border: 1px solid #8888" '
        f'srcdoc="{escape(page)}"></iframe>'
    )


def _text(suffix: str) -> str:
    return files("tcusim.stepper").joinpath(f"page.{suffix}").read_text("utf-8")


def data_of(side: Side, cells: int) -> dict[str, Any]:
    """Return a trace's data for the page, as JSON; see `page.js` for its form."""
    return {"title": side.title, **_Writer(side.about, cells).data(side.frames, side.left_out)}


def _number(pool: dict[_Content, int], content: _Content) -> int:
    """Return the index of a content in a pool, which has each once."""
    return pool.setdefault(content, len(pool))


class _Writer:
    """Writes frames as data.

    numbers: for each type, bits and text of every number in a tile. grids: a tile's elements, each
    by the index of its number. lines: of accounts. keys: outputs to explain, by their inputs;
    inputs: the row, column and addend of each.
    """

    def __init__(self, about: About, cells: int) -> None:
        self.about = about
        self.cells = cells
        self.numbers: dict[str, dict[tuple[str, str], int]] = {}
        self.grids: dict[tuple[int, ...], int] = {}
        self.tiles: dict[tuple[Any, ...], int] = {}
        self.lines: dict[tuple[str, ...], int] = {}
        self.keys: dict[_Key, int] = {}
        self.inputs: list[tuple[Values, Values, Values]] = []
        self.unexplained = 0

    def data(self, frames: Sequence[Frame], left_out: str) -> dict[str, Any]:
        """Return all data of the page."""
        about, shown = self.about, frames[:_MOST_STEPS]
        steps = [self._step(frame) for frame in shown]
        notes = [left_out] if left_out else []
        if about.place != SIMULATOR:
            notes.insert(0, f"What each step left was recorded by {about.place}.")
        if len(shown) < len(frames):
            notes.append(
                f"The page has the first {len(shown)} of {len(frames)} steps; trace fewer with "
                "first= and last=."
            )
        if self.unexplained:
            notes.append(
                f"{self.unexplained} outputs of the last products are not explained here; "
                "Trace.to_html(cells=...) explains more, and tcusim.explain any."
            )
        accounts = list(self._accounts())
        return {
            "name": about.name,
            "warps": about.warps,
            "head": about.listing.partition("\n\n")[0],
            "listing": about.rows,
            "looks": LOOKS,
            "steps": steps,
            "tiles": list(self.tiles),
            "grids": list(self.grids),
            "numbers": {name: list(pool) for name, pool in self.numbers.items()},
            "words": in_words(accounts[0]) if accounts else "",
            "accounts": [self._account(one) for one in accounts],
            "lines": list(self.lines),
            "notes": notes,
        }

    def _step(self, frame: Frame) -> list[Any]:
        """Return warp, index, path, kind, loops, tiles read and written, and accounts."""
        panes = panes_of(frame, constants=self.about.constants)
        tiles = [self._tile(pane) for pane in panes]
        reads, writes = tiles[: len(frame.reads)], tiles[len(frame.reads) :]
        explained = self._explained(frame) if frame.kind == "mma" else None
        head = [frame.warp, frame.number, frame.path, frame.kind]
        return [*head, list(frame.loops.items()), reads, writes, explained]

    # --- Tiles -------------------------------------------------------------------------------

    def _tile(self, pane: Pane) -> int:
        """Return the index of a tile: its titles, its elements, their looks and their location."""
        tile = pane.tile
        rows, cols = tile.values.shape
        most = max(1, _MOST_CELLS // max(1, cols))
        head = [tile.label, tile.part, tile.dtype, pane.name, f"{pane.size}, {pane.place}"]
        looks = "".join(map(str, pane.looks[:most].flat))
        grid = self._grid(tile.values[:most], tile.dtype)
        memory = tile.buffer, pane.ranges, pane.strip
        content = (*head, tile.note, pane.change, rows, cols, grid, looks, *memory)
        return _number(self.tiles, content)

    def _grid(self, values: Values, dtype: str) -> int:
        """Return the index of a grid."""
        pool = self.numbers.setdefault(dtype, {})
        known, which = distinct(values, dtype)
        places = np.array([_number(pool, one) for one in known], int)
        return _number(self.grids, tuple(places[which].ravel().tolist()))

    # --- Accounts ----------------------------------------------------------------------------

    def _explained(self, frame: Frame) -> list[int]:
        """Return the index of each output's account; -1 without an account."""
        a, b, c = (tile.values for tile in frame.reads)
        found = []
        columns = [np.ascontiguousarray(b[:, j]) for j in range(b.shape[1])]
        for row, addends in zip(a, c, strict=True):
            for column, addend in zip(columns, addends, strict=True):
                key = row.tobytes(), column.tobytes(), addend.tobytes()
                if key not in self.keys and len(self.keys) < self.cells:
                    self.keys[key] = len(self.keys)
                    self.inputs.append((row, column, addend))
                found.append(self.keys.get(key, -1))
        self.unexplained += found.count(-1)
        return found

    def _accounts(self) -> Iterator[Account]:
        if self.inputs:
            about = self.about
            rows, columns, addends = map(np.array, zip(*self.inputs, strict=True))
            rule = rule_for(about.arch, about.ab, about.acc, about.family)
            yield from accounts_of(rows, columns, addends, rule, arch_of(about.arch))

    def _account(self, one: Account) -> list[Any]:
        """Return an account: its result in words, and for each step title, sentence and lines."""
        header, values = summary([one])
        words = dict(zip(header, values, strict=True))
        result = f"{one.bits} = {words['value']}, error {words['error']}"
        if one.exact is None:
            result = f"{one.bits} = {words['value']}"
        steps: list[Any] = []
        for shown in panels(one):
            columns = ("name", "digits", "lost", "remark", "exponent", "factors", "kind")
            rows = (tuple(getattr(line, name) for name in columns) for line in shown.lines)
            steps.append([shown.title, shown.sentence, [_number(self.lines, row) for row in rows]])
        return [result, steps]
