"""Dataclasses from the plain values of JSON and TOML.

The types of the fields decide the valid values. An error names the place:
``rows[2].counts[0].formula: expected an integer, got 'x'``. `dataclasses.asdict` is the other
direction.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, partial
from typing import Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from tcusim.errors import InputError, nearest, told

T = TypeVar("T")
_Reader: TypeAlias = Callable[[Any], Any]

_NAMES: Final[Mapping[Any, str]] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    types.NoneType: "nothing",
}
_MOST_SHOWN: Final = 60


class _Misfit(Exception):
    """A value that does not fit its type, and its place."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path.removeprefix('.')}: {message}" if path else message)
        self.message, self.path = message, path

    def within(self, part: str) -> _Misfit:
        """Return the misfit as seen from the value around it."""
        return _Misfit(self.message, part + self.path)


def of_plain(kind: type[T], value: object, where: str, advice: str = "") -> T:
    """Return an object of a dataclass.

    Parameters
    ----------
    kind : type
        A dataclass, a named tuple, or such as ``dict[str, tuple[int, ...]]``. Properties of a
        dataclass may be among the keys, and are not read.
    value : object
        Dictionaries, lists, texts, numbers, booleans and None.
    where, advice : str
        Beginning and end of an error's sentence.

    Returns
    -------
    object of `kind`

    Raises
    ------
    InputError
        If the value does not fit; the sentence names the place in the value.
    """
    hashable: Any = kind
    try:
        found: T = _reader(hashable)(value)
    except _Misfit as error:
        raise InputError(f"{where}: {error}{advice and f'. {advice}'}") from error
    return found


def of_json(kind: type[T], text: str | bytes, where: str, advice: str = "", form: str = "") -> T:
    """Return an object of a dataclass from JSON; form: the value of its key "format", if any."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: it is no JSON ({error}){advice and f'. {advice}'}") from error
    if form and isinstance(value, dict) and (found := value.pop("format", None)) != form:
        raise InputError(f"{where}: its format is {_shown(found)} and not {form!r}")
    return of_plain(kind, value, where, advice)


def _shown(value: object) -> str:
    text = told(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def _expected(what: str, value: object) -> _Misfit:
    return _Misfit(f"expected {what}, got {_shown(value)}")


@cache
def _reader(kind: Any) -> _Reader:
    """Return the function that reads a value of a type."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if kind in _NAMES:
        return partial(_scalar, kind)
    if origin in (Union, types.UnionType):
        return partial(_either, [_reader(one) for one in args], args)
    if origin is list or (origin is tuple and args[1:] == (...,)):
        return partial(_sequence, origin, _reader(args[0]), get_origin(args[0]) is tuple)
    if origin is tuple:
        return partial(_row, lambda *values: values, [_reader(one) for one in args])
    if origin in (dict, Mapping):
        return partial(_table, args[0], _reader(args[1]))
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        readers = {one.name: _reader(hints[one.name]) for one in fields(kind) if one.init}
        return partial(_record, kind, {one.name: one for one in fields(kind)}, readers)
    return partial(_row, kind, [_reader(one) for one in hints.values()])


def _scalar(kind: type, value: Any) -> Any:
    # A bool is an int to isinstance; a number may be written without a point.
    if type(value) is kind or (kind is float and type(value) is int):
        return value
    raise _expected(_NAMES[kind], value)


def _either(readers: list[_Reader], kinds: tuple[Any, ...], value: Any) -> Any:
    inside = None
    for reader in readers:
        try:
            return reader(value)
        except _Misfit as error:
            inside = error if error.path else inside
    names = dict.fromkeys(_NAMES.get(kind, "a list or a table") for kind in kinds)
    raise inside or _expected(" or ".join(names), value)


def _part(part: str, reader: _Reader, value: Any) -> Any:
    try:
        return reader(value)
    except _Misfit as error:
        raise error.within(part) from error


def _sequence(kind: type, reader: _Reader, of_pairs: bool, value: Any) -> Any:
    if of_pairs and isinstance(value, dict):
        # Pairs of names and values are a table in a file.
        value = [list(pair) for pair in value.items()]
    if not isinstance(value, list):
        raise _expected("a list", value)
    return kind(_part(f"[{number}]", reader, one) for number, one in enumerate(value))


def _row(make: Callable[..., Any], readers: list[_Reader], value: Any) -> Any:
    """Return values that are known by their places in a list."""
    if not isinstance(value, list) or len(value) != len(readers):
        raise _expected(f"a list of {len(readers)}", value)
    return make(
        *(_part(f"[{i}]", *pair) for i, pair in enumerate(zip(readers, value, strict=True)))
    )


def _table(key: type, reader: _Reader, value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _expected("a table of keys and values", value)
    if key is int and not all(map(str.isdecimal, value)):
        raise _expected("keys that are integers", list(value))
    return {key(name): _part(f".{name}", reader, one) for name, one in value.items()}


def _record(
    kind: Any, known: Mapping[str, Field[Any]], readers: Mapping[str, _Reader], value: Any
) -> Any:
    if not isinstance(value, dict):
        raise _expected("a table of keys and values", value)
    found = {}
    for name, one in value.items():
        if name in readers:
            found[name] = _part(f".{name}", readers[name], one)
        elif not isinstance(getattr(kind, name, None), property):
            near = nearest(name, readers)
            hint = f" Did you mean {near!r}?" if near else f" Valid: {', '.join(readers)}"
            raise _Misfit(f"unknown key {name!r}.{hint}")
    for name in readers:
        one = known[name]
        if name not in found and one.default is MISSING and one.default_factory is MISSING:
            raise _Misfit(f"{name!r} is needed")
    try:
        return kind(**found)
    except InputError as error:
        raise _Misfit(str(error)) from error
