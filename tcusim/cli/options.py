"""The options of the commands: words, and those of `tcusim.build`, read from its signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeVar

import click

import tcusim
from tcusim import errors
from tcusim.algorithms import algorithm_of, algorithms
from tcusim.machine.shapes import shape_or_virtual

__all__ = [
    "ProgramCommand",
    "Tile",
    "bar",
    "build",
    "examples",
    "in_words_of_the_command",
    "options_of",
    "word",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def word(kind: str, words: Sequence[str]) -> Callable[..., Any]:
    """Return a check that an option's value, or each of several, is one of a few words."""

    def check(word: str) -> str:
        if word.lower() not in words:
            raise click.BadParameter(str(errors.unknown_name(kind, word, words)))
        return word.lower()

    def callback(_ctx: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(check, value))
        return None if value is None else check(value)

    return callback


def bar(words: Sequence[str]) -> str:
    """Return the words as a help text shows them."""
    return f"[{'|'.join(words)}]"


def examples(*lines: str) -> str:
    """Return the end of a help text."""
    # To click, a backspace says that the lines below stay as they are.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def options_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options, which keep their order in the help."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Tile(click.ParamType):  # type: ignore[type-arg]
    """A tile, MxNxK: a registered shape, or a virtual one of any sizes."""

    name = "MxNxK"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tcusim.MmaShape:
        """Return the shape; an InputError says how one is written."""
        return shape_or_virtual(value)


class _Numbers(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers with commas between them."""

    name = "N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(word) for word in str(value).split(",") if word.strip())
        except ValueError:
            self.fail(f"{value!r} is not whole numbers with commas between them", param, ctx)


# --- What build takes -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of `tcusim.build`, or an option of one or more algorithms.

    Attributes
    ----------
    name : str
        As Python spells it.
    annotation : str
        Its type, without `| None`.
    default : object
        Of the first algorithm that has it.
    choices : tuple of str
        The words that it may be, if the documentation lists them as ``{"a", "b"}``.
    text : str
        What the documentation says of it, as one sentence without the full stop.
    takers : tuple of str
        The algorithms that take it; none for a parameter of `build` itself.
    """

    name: str
    annotation: str
    default: Any
    choices: tuple[str, ...]
    text: str
    takers: tuple[str, ...] = ()

    @property
    def spelling(self) -> str:
        """The option without its dashes."""
        return self.name.replace("_", "-")


def _parameters() -> tuple[_Parameter, ...]:
    """Return what `build` takes, then what algorithms take, in the order of the registry."""
    own = [
        parameter
        for parameter in inspect.signature(tcusim.build).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    documented = _documented(tcusim.build)
    found = {
        parameter.name: _parameter(parameter, *documented.get(parameter.name, ("", "")))
        for parameter in own
    }
    for row in algorithms():
        signature = inspect.signature(row.function).parameters
        for name in row.options:
            one = _parameter(signature[name], *_documented(row.function).get(name, ("", "")))
            if name in found:
                # The first algorithm that documents an option speaks for all.
                one = replace(found[name], text=found[name].text or one.text)
            found[name] = replace(one, takers=(*one.takers, row.name))
    return tuple(found.values())


def _parameter(parameter: inspect.Parameter, kind: str, text: str) -> _Parameter:
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        annotation = inspect.formatannotation(annotation)
    return _Parameter(
        parameter.name,
        annotation.removesuffix(" | None"),
        parameter.default,
        tuple(re.findall(r'"([^"]+)"', kind)) if kind.startswith("{") else (),
        text,
    )


@lru_cache(maxsize=128)
def _documented(function: Callable[..., Any]) -> Mapping[str, tuple[str, str]]:
    """Return the type and the first sentence of each parameter that a docstring speaks of.

    A parameter is an entry of numpydoc, ``name : type`` with indented lines below; or, where a
    docstring has no such sections, what follows ``name:``.
    """
    text = inspect.getdoc(function) or ""
    found = {}
    for entry in re.finditer(r"^(\w[\w, ]*) : (.+)\n((?:[ ]+.*\n?)+)", text, re.MULTILINE):
        for name in entry[1].split(", "):
            found[name] = (entry[2], _sentence(entry[3]))
    for entry in re.finditer(r"(?:^|(?<=\. ))(\w+): ", " ".join(text.split())):
        found.setdefault(entry[1], ("", _sentence(" ".join(text.split())[entry.end() :])))
    for entry in re.finditer(r"^(\w+): (.*(?:\n.+)*)", text, re.MULTILINE):
        found.setdefault(entry[1], ("", _sentence(entry[2])))
    return found


def _sentence(text: str) -> str:
    """Return the first sentence, or what a semicolon ends, without the mark; in one line."""
    line = " ".join(text.split())
    first = re.split(r"(?:\.|;)(?:\s|$)", line, maxsplit=1)[0]
    return first[:1].upper() + first[1:]


# --- As options -------------------------------------------------------------------------------

# What the values of these options are called when a command's function is given them.
_PREFIX: Final = "build_"


class ProgramCommand(click.Command):
    """A command that builds a program: it has an option for whatever any algorithm can be given.

    Its function gets what was given as ``build_NAME``, None where nothing was; `build` takes these.
    The options are read when the command runs, so those of algorithms registered later are there.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options, then those of the program."""
        own = super().get_params(ctx)
        known: list[click.Parameter] | None = ctx.meta.get(__name__)
        if known is None:
            taken = {spelling for parameter in own for spelling in parameter.opts}
            known = [_option(parameter, taken) for parameter in _parameters()]
            ctx.meta[__name__] = known
        return [*own, *known]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under three headings."""
        groups: dict[str, list[tuple[str, str]]] = {}
        takers = {f"{_PREFIX}{one.name}": one.takers for one in _parameters()}
        for parameter in self.get_params(ctx):
            if not isinstance(parameter, click.Option):
                continue
            name = str(parameter.name)
            heading = "Options"
            if name in takers:
                heading = "Options of some algorithms" if takers[name] else "Options of the program"
            record = parameter.get_help_record(ctx)
            if record is not None:
                groups.setdefault(heading, []).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _option(parameter: _Parameter, taken: set[str]) -> click.Option:
    """Return the option for a parameter; --algorithm-NAME where the command has a --NAME."""
    spelling = parameter.spelling
    if f"--{spelling}" in taken:
        spelling = f"algorithm-{spelling}"
    name = f"{_PREFIX}{parameter.name}"
    help_text = _help(parameter)
    if parameter.annotation == "bool":
        # None is what tells "not said" from "off".
        switch = f"--{spelling}/--no-{spelling}" if parameter.default is True else f"--{spelling}"
        return click.Option([switch, name], is_flag=True, default=None, help=help_text)
    kind: Any = str
    metavar = "TEXT"
    if "MmaShape" in parameter.annotation:
        kind, metavar = Tile(), Tile.name
    elif parameter.annotation == "int":
        kind, metavar = int, "N"
    elif parameter.annotation.startswith("tuple[int"):
        kind, metavar = _Numbers(), _Numbers.name
    check = word(parameter.name, parameter.choices) if parameter.choices else None
    if parameter.choices:
        metavar = bar(parameter.choices)
    return click.Option(
        [f"--{spelling}", name], type=kind, metavar=metavar, callback=check, help=help_text
    )


def _help(parameter: _Parameter) -> str:
    """Return the documentation's sentence, the default, and who takes the option."""
    parts = [parameter.text] if parameter.text else []
    if parameter.default not in (None, ()) and parameter.annotation != "bool":
        parts.append(f"Default: {parameter.default}")
    if parameter.takers:
        parts.append(f"For {', '.join(parameter.takers)}")
    return "".join(f"{part}. " for part in parts).rstrip()


def build(algorithm: str, options: Mapping[str, Any]) -> tcusim.Program:
    """Build the program that the options of a `ProgramCommand` describe."""
    row = algorithm_of(algorithm)
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX) and value is not None
    }
    for parameter in _parameters():
        if parameter.name in given and parameter.takers and row.name not in parameter.takers:
            valid = ", ".join(f"--{name.replace('_', '-')}" for name in row.options)
            raise errors.InputError(
                f"{row.name} takes no --{parameter.spelling}"
                + (f"; its own options: {valid}" if valid else "; it has no options of its own")
            )
    with in_words_of_the_command():
        return tcusim.build(algorithm, **given)


@contextmanager
def in_words_of_the_command() -> Iterator[None]:
    """Let errors from inside name options as the command spells them, not as Python does."""
    try:
        yield
    except errors.TcusimError as error:
        text = _spoken(str(error))
        if text == str(error):
            raise
        raise errors.TcusimError(text) from error


def _spoken(text: str) -> str:
    """Return a message with `ragged=True` as `--ragged`, `combine='add'` as `--combine add`."""
    names = {one.name for one in _parameters()} | _SPOKEN_BY_FUNCTIONS

    def said(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name not in names:
            return match[0]
        option = f"--{name.replace('_', '-')}"
        if value == "True":
            return option
        if value == "False":
            return f"--no-{option[2:]}"
        return f"{option} {value.strip(chr(39))}" if " " not in value else f"{option} {value}"

    text = re.sub(r"\b(\w+)=('[^']*'|\"[^\"]*\"|[\w.|]*\w)", said, text)
    # A name of two words can only be the parameter.
    for name in sorted((name for name in names if "_" in name), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){name}\b(?!\()", f"--{name.replace('_', '-')}", text)
    return text


# Keywords of the functions on arrays that `tcusim run` has as options.
_SPOKEN_BY_FUNCTIONS: Final = frozenset(
    name
    for function in (tcusim.sum, tcusim.cumsum, tcusim.segmented_sum, tcusim.segmented_cumsum)
    for name, parameter in inspect.signature(function).parameters.items()
    if name not in ("a", "out", "report", "progress", "stream", "check_offsets", "keepdims")
)
