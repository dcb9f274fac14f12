"""The pages of the reference: which names they document, and the table that begins each."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from citations import linked
from tables import table

FOLDER: Final = Path(__file__).resolve().parents[1] / "api"

_BLOCK: Final = re.compile(r"^::: (\S+)\n((?: +.*\n|\n(?= ))*)", re.MULTILINE)
_HEADING: Final = re.compile(r"^ +heading: (\S+)$", re.MULTILINE)
_LEFT_OUT: Final = re.compile(r'"!(\^[^"]+)"')
_MEMBER: Final = re.compile(r"^ +- (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """A documented name: the name for users, its anchor on the page, and the object."""

    name: str
    anchor: str
    value: Any


def entries(page: str) -> Iterator[Entry]:
    """Yield the names that a page such as "arrays" documents, in its order."""
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8") + "\n"
    for path, options in _BLOCK.findall(text):
        value = _resolved(path)
        if inspect.ismodule(value):
            left_out = _LEFT_OUT.findall(options)
            for member in _MEMBER.findall(options) or value.__all__:
                if not any(re.search(pattern, member) for pattern in left_out):
                    name = f"{path}.{member}"
                    yield Entry(name, name, getattr(value, member))
            continue
        heading = _HEADING.search(options)
        yield Entry(heading[1] if heading else path, path, value)


def which(page: str) -> str:
    """Return the table of a page: each name, and the first sentence of its docstring."""
    rows = [
        (
            f"[`{_short(entry.name)}`](#{entry.anchor})",
            linked(_sentence(entry.value), f"api/{page}.md"),
        )
        for entry in entries(page)
    ]
    return table(("name", "what it is or does"), rows)


def _resolved(path: str) -> Any:
    """Return the object of a dotted path as the page does: a module before a function of its name.

    `tcusim.machine.units` is a module for the page, and for a user the function; so the page has
    the function by the module that defines it.
    """
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(path)


def _short(name: str) -> str:
    """Return `tcusim.sum` as it is, and the last part of names that are imported from deeper."""
    return name if name.count(".") == 1 else name.rsplit(".", 1)[1]


def _sentence(value: Any) -> str:
    """Return the first line of a docstring, as a table can hold it."""
    text = (inspect.getdoc(value) or "").split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")
