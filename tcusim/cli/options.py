"""The options of the commands: words, and those of `tcusim.build`, read from its signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

import tcusim
from tcusim import errors
from tcusim.algorithms import Option, algorithm_of, algorithms, options_of
from tcusim.machine.shapes import shape_or_virtual

__all__ = [
    "ProgramCommand",
    "Tile",
    "bar",
    "build",
    "examples",
    "in_words_of_the_command",
    "with_options",
    "word",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def word(kind: str, words: Sequence[str]) -> Callable[..., Any]:
    """Return a check that an option's value, or each of several, is one of a few words."""
    known = {word.lower(): word for word in words}

    def check(word: str) -> str:
        if word.lower() not in known:
            raise click.BadParameter(str(errors.unknown_name(kind, word, words)))
        return known[word.lower()]

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


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
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


def _takers() -> dict[str, tuple[Option, tuple[str, ...]]]:
    """Return by name what `build` takes, then what algorithms take, with who takes it.

    `build` itself takes an option of no algorithms. The first algorithm that documents an option
    speaks for all.
    """
    found: dict[str, tuple[Option, tuple[str, ...]]] = {
        name: (option, ()) for name, option in options_of(tcusim.build).items()
    }
    for row in algorithms():
        for name, option in row.options.items():
            known, takers = found.get(name, (option, ()))
            found[name] = (known if known.doc else option, (*takers, row.name))
    return found


def _spelling(name: str) -> str:
    """Return a keyword as the command spells it, without the dashes."""
    return name.replace("_", "-")


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
            known = [_click_option(*each, taken) for each in _takers().values()]
            ctx.meta[__name__] = known
        return [*own, *known]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its errors name options as the command spells them."""
        with in_words_of_the_command():
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under three headings."""
        groups: dict[str, list[tuple[str, str]]] = {}
        takers = {f"{_PREFIX}{name}": each for name, (_, each) in _takers().items()}
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


def _click_option(option: Option, takers: tuple[str, ...], taken: set[str]) -> click.Option:
    """Return the option of the command; --algorithm-NAME where the command has a --NAME."""
    spelling = _spelling(option.name)
    if f"--{spelling}" in taken:
        spelling = f"algorithm-{spelling}"
    name = f"{_PREFIX}{option.name}"
    help_text = _help(option, takers)
    if option.type is bool:
        # None is what tells "not said" from "off".
        switch = f"--{spelling}/--no-{spelling}" if option.default is True else f"--{spelling}"
        return click.Option([switch, name], is_flag=True, default=None, help=help_text)
    kind, metavar = _TYPES.get(option.type, (str, "TEXT"))
    if option.name == "tile":
        # What nobody registered means itself.
        kind, metavar = Tile(), Tile.name
    check = word(option.name, option.choices) if option.choices else None
    return click.Option(
        [f"--{spelling}", name],
        type=kind,
        metavar=bar(option.choices) if option.choices else metavar,
        callback=check,
        help=help_text,
    )


_TYPES: Final[dict[type, tuple[Any, str]]] = {int: (int, "N"), tuple: (_Numbers(), _Numbers.name)}


def _help(option: Option, takers: tuple[str, ...]) -> str:
    """Return the documentation's first sentence, the default, and who takes the option."""
    first = re.split(r"(?:\.|;)(?:\s|$)", option.doc, maxsplit=1)[0]
    parts = [first] if first else []
    if option.default not in (None, ()) and option.type is not bool:
        parts.append(f"Default: {option.default}")
    if takers:
        parts.append(f"For {', '.join(takers)}")
    return "".join(f"{part}. " for part in parts).rstrip()


def build(algorithm: str, options: Mapping[str, Any]) -> tcusim.Program:
    """Build the program that the options of a `ProgramCommand` describe."""
    row = algorithm_of(algorithm)
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX) and value is not None
    }
    for name in given:
        if name not in row.options and name not in options_of(tcusim.build):
            valid = ", ".join(f"--{_spelling(own)}" for own in row.options)
            raise errors.InputError(
                f"{row.name} takes no --{_spelling(name)}"
                + (f"; its own options: {valid}" if valid else "; it has no options of its own")
            )
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
    """Return a message with `masked=True` as `--masked`, `combine='add'` as `--combine add`."""
    names = _takers().keys() | _SPOKEN_BY_FUNCTIONS

    def said(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name not in names:
            return match[0]
        option = f"--{_spelling(name)}"
        if value == "True":
            return option
        if value == "False":
            return f"--no-{option[2:]}"
        return f"{option} {value.strip(chr(39))}" if " " not in value else f"{option} {value}"

    text = re.sub(r"\b(\w+)=('[^']*'|\"[^\"]*\"|[\w.|]*\w)", said, text)
    first, must, rest = text.partition(" must be ")
    if first in names:
        text = f"--{_spelling(first)}{must}{rest}"
    # A name of two words can only be the parameter.
    for name in sorted((name for name in names if "_" in name), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){name}\b(?!\()", f"--{_spelling(name)}", text)
    return text


# Keywords of the functions on arrays that `tcusim run` has as options.
_SPOKEN_BY_FUNCTIONS: Final = frozenset(
    name
    for function in (tcusim.sum, tcusim.cumsum, tcusim.segmented_sum, tcusim.segmented_cumsum)
    for name, parameter in inspect.signature(function).parameters.items()
    if name not in ("a", "out", "report", "progress", "stream", "check_offsets", "keepdims")
)
