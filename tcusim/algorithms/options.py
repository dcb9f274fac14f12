"""The options of a function that writes an algorithm, as data: read from its signature and words.

An option is a keyword-only argument. One whose type is a dataclass, such as `Order`, stands for
several: its fields. Its description is in the docstring, or in an `Annotated` type that several
algorithms share.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

from tcusim.errors import Given, InputError, require_flags, require_int, told

# For each name, the valid words of a value, and the text.
_Words: TypeAlias = Mapping[str, tuple[tuple[str, ...], str]]


@dataclass(frozen=True, slots=True)
class Option:
    """One option that an algorithm has beside those of `build`.

    Attributes
    ----------
    name : str
        The keyword.
    type : type
        int, bool, str or tuple.
    default : object
        The value of an omitted option. None: the algorithm chooses by shape and segment.
    choices : tuple
        The values that are valid, if they are few.
    doc : str
        The option's description, from the docstring of the algorithm.
    """

    name: str
    type: type
    default: Any
    choices: tuple[Any, ...] = ()
    doc: str = ""


@cache
def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of a function, with their descriptions from its docstring.

    For `build` itself, they are the options of every algorithm.
    """
    options: dict[str, Option] = {}
    described = _described(inspect.getdoc(function) or "")
    for name, (hint, default) in _keywords(function).items():
        if not is_dataclass(hint):
            options[name] = _option(name, hint, default, described)
            continue
        hints = typing.get_type_hints(hint)
        words = _described(inspect.getdoc(hint) or "")
        for field in fields(hint):
            value = getattr(default, field.name)
            options[field.name] = _option(field.name, hints[field.name], value, words)
    return options


def arguments_of(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a function that are its options with these values.

    Raises
    ------
    InputError
        For a number that is not an integer of at least 1, or a value that is no choice.
    """
    options = options_of(function)
    for name, value in given.items():
        option = options[name]
        if option.type is int and not (value is None and option.default is None):
            as_size(name, value)
        if option.type is bool:
            require_flags(**{name: value})
        if option.choices and value is not None and value not in option.choices:
            valid = ", ".join(map(str, option.choices))
            raise InputError(f"unknown {name} {told(value)}; valid: {valid}")
    arguments = dict(given)
    for name, (hint, default) in _keywords(function).items():
        if is_dataclass(hint):
            names = [field.name for field in fields(hint) if field.name in arguments]
            own = {name: arguments.pop(name) for name in names}
            arguments[name] = replace(default, **own)
    return arguments


def as_size(name: str, value: object) -> int:
    """Return a number of elements, tiles or warps; refuse one that is no integer of at least 1."""
    require_int(Given(name), value, 1)
    assert isinstance(value, int)
    return value


@cache
def _keywords(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Return the type and the default of each keyword-only argument."""
    hints = typing.get_type_hints(function, include_extras=True)
    return {
        name: (hints[name], None if parameter.default is parameter.empty else parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _option(name: str, hint: Any, default: Any, described: _Words) -> Option:
    """Return an option: the class of its annotation, without None, and the choices of a Literal."""
    choices, doc = described.get(name, ((), ""))
    if typing.get_origin(hint) is Annotated:
        hint, doc = typing.get_args(hint)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        hint = type(choices[0])
    kind = typing.get_origin(hint) or hint
    return Option(name, kind, default, choices, doc)


def _described(text: str) -> _Words:
    """Return a numpydoc docstring's description of each parameter or attribute.

    That is the words in a type such as ``{"a", "b"}``, if it has any, and the text.
    """
    _, _, section = re.sub(r"\n(Parameters|Attributes)\n-{10}\n", "\0", text).partition("\0")
    section = re.split(r"\n\n\w+\n-+\n", section)[0]
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for entry in re.split(r"\n(?=\S)", section):
        head, _, body = entry.partition("\n")
        names, _, kind = head.partition(" : ")
        words = tuple(re.findall(r'"([^"]+)"', kind)) if kind.startswith("{") else ()
        for name in names.split(", "):
            found[name] = (words, " ".join(body.split()))
    return found
