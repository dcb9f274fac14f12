"""The file of an exploration: its grid, then a line for each row. A later run goes on from it.

Lines are only ever appended. One that a kill cut short is taken off when the file is opened again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from tcusim.errors import InputError

RowT = TypeVar("RowT")

_KIND: Final = "tcusim exploration 1"


class Journal(Generic[RowT]):
    """An append-only file of JSON lines; a context.

    description: equal for equal explorations only. as_json, of_json: a row as a table, and back.
    done: the rows of the file, by the indices of their cases.

    Raises
    ------
    InputError
        If the file cannot be read or written, is something else, or is of another grid.
    """

    def __init__(
        self,
        path: str | Path,
        description: Mapping[str, Any],
        as_json: Callable[[RowT], Mapping[str, Any]],
        of_json: Callable[[Mapping[str, Any]], RowT],
    ) -> None:
        self.path = Path(path)
        self.done: dict[int, RowT] = {}
        self._as_json, self._of_json = as_json, of_json
        # As JSON has it: lists for tuples.
        wanted = json.loads(json.dumps(description))
        try:
            # Made if it is not there, and never emptied.
            self._file = self.path.open("a+b")
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}") from error
        try:
            self._read(wanted)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal[RowT]:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, rows: Iterable[tuple[int, RowT]]) -> None:
        """Append rows with their numbers; once this returns, a kill loses none."""
        lines = []
        for number, row in rows:
            self.done[number] = row
            lines.append({"number": number, **self._as_json(row)})
        self._write(lines)

    def _write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        text = "".join(
            json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines
        )
        try:
            self._file.write(text.encode())
            self._file.flush()
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written: {error.strerror}. What it has is good: the same "
                f"call goes on from there."
            ) from error

    def _read(self, wanted: Mapping[str, Any]) -> None:
        """Read the lines; begin a file that is empty."""
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].splitlines()
        # Before anything is changed: a file with another first line is somebody else's.
        begun = json.dumps({"kind": _KIND})[:-1].encode()
        if not (content.startswith(begun) or begun.startswith(content)):
            raise InputError(
                f"{self.path} is no file of an exploration; name a new file, or one that "
                f"tcusim.explore wrote"
            )
        if whole < len(content):
            self._file.truncate(whole)
        if not lines:
            self._write([{"kind": _KIND, **wanted}])
            return
        found = self._line(lines[0], 1)
        different = [name for name in wanted if found.get(name) != wanted[name]]
        if different:
            name = different[0]
            where, has, asked = _first_difference(name, found.get(name), wanted[name])
            raise InputError(
                f"{self.path} is of another exploration: its {where} is {_short(has)}, and "
                f"{_short(asked)} is asked for. Name a new file, or ask for the same."
            )
        for number, line in enumerate(lines[1:], 2):
            values = self._line(line, number)
            try:
                row = values.pop("number")
                self.done[row] = self._of_json(values)
            except (KeyError, TypeError, InputError) as error:
                raise self._wrong(number, error) from error

    def _line(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            values = json.loads(line)
        except ValueError as error:
            raise self._wrong(number, error) from error
        if not isinstance(values, dict):
            raise self._wrong(number, TypeError("no object"))
        return values

    def _wrong(self, number: int, error: Exception) -> InputError:
        return InputError(
            f"{self.path}, line {number}: this is no row of an exploration "
            f"({type(error).__name__}: {error}). Delete the line, and it is evaluated again."
        )


def _first_difference(name: str, has: object, asked: object) -> tuple[str, object, object]:
    """Return the name and both values of the first part that differs, such as an axis."""
    if not isinstance(has, dict) or not isinstance(asked, dict):
        return name, has, asked
    parts = ((key, has.get(key), value) for key, value in asked.items())
    return next((part for part in parts if part[1] != part[2]), (name, has, asked))


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 80 else f"{text[:77]}..."
