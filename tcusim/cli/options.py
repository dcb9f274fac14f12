"""The options of the commands: words, architectures and units, and those of `tcusim.build`.

The last are read from its signature.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

import tcusim
from tcusim import errors
from tcusim.algorithms import Option, algorithm_of, algorithms, options_of
from tcusim.cli import files
from tcusim.machine import Arch, Unit, fused_unit, register_unit, unit_of, usual_types
from tcusim.machine.formats import Rounding
from tcusim.machine.shapes import shape_of


class _Type(click.ParamType):  # type: ignore[type-arg]
    """A type that the help names as it is written."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        """Return the type's name; an argument goes by its own."""
        return self.name if isinstance(param, click.Option) else None


class OneOf(_Type):
    """One of a few words; an error calls them `kind`."""

    def __init__(self, kind: str, words: Sequence[str]) -> None:
        self.kind, self.words = kind, tuple(words)
        self.name = f"[{'|'.join(words)}]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | None:
        """Return the word as it is known."""
        for known in self.words:
            if known.lower() == value.lower():
                return known
        return self.fail(str(errors.unknown_name(self.kind, value, self.words)), param, ctx)


class Integer(_Type):
    """An integer, at most 2**48; it may be written as 1e9 or 2**30."""

    name = "N"

    def __init__(self, least: int = -errors.MOST_ELEMENTS) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        text = str(value)
        base, _, power = text.partition("**")
        try:
            # A power of integers can take longer than anybody waits.
            number = float(int(base)) ** int(power) if power else float(text)
        except OverflowError:
            number = math.inf
        except (ValueError, ZeroDivisionError):
            number = math.nan
        if math.isnan(number):
            self.fail(f"{text!r} is no number; write 1048576, 1e6 or 2**20", param, ctx)
        if number > errors.MOST_ELEMENTS:
            self.fail(f"{text} is more than 2**48", param, ctx)
        if number < self.least or number != int(number):
            above = " above zero" if self.least == 1 else ""
            self.fail(f"{text} is not a whole number{above}", param, ctx)
        return int(number)


class Tile(_Type):
    """A tile, MxNxK: a registered shape, or a virtual one of any sizes."""

    name = "MxNxK"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tcusim.MmaShape:
        """Return the shape; an InputError says how one is written."""
        return shape_of(value)


class OutputFile(_Type):
    """A file to write. Whether it can be written is found out before anything is computed."""

    name = "FILE"

    def __init__(self, check: Callable[[str], None] = files.check_file_writable) -> None:
        self.check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path; "-" stands for no file where a command knows it."""
        if value != "-":
            self.check(value)
        return str(value)


class _Numbers(_Type):
    """Whole numbers with commas between them."""

    name = "N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers."""
        try:
            return tuple(int(word) for word in value.split(",") if word.strip())
        except ValueError:
            self.fail(f"{value!r} is not whole numbers with commas between them", param, ctx)


# The prefix of the options of `build` among the arguments of a command's function.
_PREFIX: Final = "build_"
# The tile where nothing else is said.
_USUAL_TILE: Final = "16x16x16"

# Options of several commands.
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
JOBS: Final = click.option(
    "--jobs", type=click.IntRange(1, errors.MOST_JOBS), help="Processes; default: one a processor."
)
MEMBER: Final = click.option("--member", metavar="NAME", help="Array to take from an .npz file.")

# --- Architectures and units ------------------------------------------------------------------

# Types of arrays that functions on arrays take.
ARRAY_TYPES: Final = ("f16", "bf16", "f32", "f64", "s8", "u8", "s32")
_UNIT_HELP: Final = "Instead of --arch: a unit, or its TOML file."
_UNIT_WORDS: Final = ("units", "fraction_bits", "fused_length", "output_rounding")


def arithmetic(
    help_text: str, *, default: str | None = None, several: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds --arch, and its alternatives: --unit and its variants.

    The command's function is given the name of the architecture as `arch`, or those of several as
    `archs`. Where a unit is named, it also gets a tile that the unit has: in `shape`, `tile`,
    `build_tile` or, as names, in `shapes`.

    Parameters
    ----------
    help_text : str
        Of --arch.
    default : str, optional
        Where nothing is named.
    several : bool
        Whether each may be repeated.
    """
    options = (
        click.option(
            *("--arch", "archs"),
            multiple=True,
            help=help_text if default is None else f"{help_text} Default: {default}.",
        ),
        click.option(*("--unit", "units"), multiple=True, metavar="NAME|FILE", help=_UNIT_HELP),
        click.option(
            "--fraction-bits",
            type=int,
            metavar="F",
            help="Or an invented unit: its fraction bits.",
        ),
        click.option(
            "--fused-length",
            type=int,
            metavar="L",
            help="Its products in a step. Default: 16.",
        ),
        click.option(
            "--output-rounding",
            type=OneOf("rounding", ("rz", "rne")),
            help="Rounding of its steps. Default: rz.",
        ),
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*args: Any, archs: tuple[str, ...], **given: Any) -> Any:
            units = _units(*(given.pop(word) for word in _UNIT_WORDS))
            names = (*archs, *(unit.name for unit in units))
            if len(names) > 1 and not several:
                raise click.UsageError(
                    f"{names[0]} and {names[1]} are two; this command takes one --arch or --unit"
                )
            names = names or ((default,) if default is not None else ())
            given |= {"archs": names} if several else {"arch": next(iter(names), None)}
            for unit in units:
                try:
                    given |= tiles_of(unit, given) | types_of(unit, given)
                except errors.InputError as error:
                    own = unit.arch.name == unit.name
                    hint = "" if own else f" For its arithmetic alone: --arch {unit.arch.name}."
                    raise errors.InputError(*error.pieces, hint) from error
            return function(*args, **given)

        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _units(
    named: tuple[str, ...], bits: int | None, length: int | None, rounding: Rounding | None
) -> list[Unit]:
    """Return the units that are named, and the one that is described."""
    units = [unit_of(name) for name in named]
    if bits is not None:
        invented = fused_unit(16 if length is None else length, bits, rounding or "rz")
        units.append(register_unit(invented))
    elif length is not None or rounding is not None:
        word = "--fused-length" if length is not None else "--output-rounding"
        raise click.UsageError(f"{word} is of an invented unit; it needs --fraction-bits")
    return units


def tiles_of(unit: Unit, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tile that a command is given: the one it named, or the unit's usual one."""
    tiles = {shape.name: shape for shape in unit.shapes}
    if not tiles:
        return {}
    if "shapes" in given:
        names = [shape_of(name).name for name in given["shapes"]]
        return {"shapes": tuple(unit.tile(name).name for name in names) or tuple(tiles)}
    if "shape" in given:
        return {"shape": unit.tile(shape_of(given["shape"]).name)}
    for key in ("tile", f"{_PREFIX}tile"):
        tile = given.get(key)
        if tile is not None:
            return {key: unit.tile(tile.name)}
        if key in given:
            return {} if _USUAL_TILE in tiles else {key: unit.shapes[0]}
    return {}


def types_of(unit: Unit, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types that a program is given: those named, or the unit's usual ones."""
    keys = [f"{_PREFIX}{name}" for name in ("ab", "acc")]
    if not given.keys() >= set(keys):
        return {}
    return dict(zip(keys, usual_types(unit.arch, *(given[key] for key in keys)), strict=True))


def array_type_of(arch: Arch, acc: str | None = None) -> str | None:
    """Return the type of arrays that an architecture takes first; None for f16, the usual type.

    Raises
    ------
    Unsupported
        If functions on arrays take none of its types.
    """
    if (usual := usual_types(arch, acc=acc)[0]) == "f16":
        return None
    own = dict.fromkeys(left for left, _ in arch.pairs)
    for name in (usual, *own):
        if name in ARRAY_TYPES:
            return name
    raise errors.Unsupported(
        f"{arch.name} takes {', '.join(own)}, and functions on arrays take "
        f"{', '.join(ARRAY_TYPES)}. Name an algorithm, such as reduction_tn, whose program takes "
        f"the unit's types"
    )


# --- Options of build -------------------------------------------------------------------------


def _all_options() -> dict[str, Option]:
    """Return the options of `build` by name, then those of algorithms.

    The first algorithm that documents an option speaks for all.
    """
    found = dict(options_of(tcusim.build))
    for row in algorithms():
        for name, option in row.options.items():
            if name not in found or (option.doc and not found[name].doc):
                found[name] = option
    return found


def described(options: Mapping[str, Option]) -> dict[str, str]:
    """Return the options of a program as a command spells them, each with its description."""
    return {f"--{_spelling(name)}": _description(option) for name, option in options.items()}


def _description(option: Option) -> str:
    """Return the documentation of an option, its choices and its default."""
    parts = [option.doc.rstrip(".")] if option.doc else []
    if any(f'"{choice}"' not in option.doc for choice in option.choices):
        parts.append(f"One of {', '.join(map(str, option.choices))}")
    if option.default not in (None, ()) and option.type is not bool:
        parts.append(f"Default: {option.default}")
    return " ".join(f"{part}." for part in parts)


def _spelling(name: str, taken: Collection[str] = ()) -> str:
    """Return a keyword as the command spells it, without the dashes.

    taken: the options of the command's own, beside which the program's have a longer name.
    """
    spelling = name.replace("_", "-")
    return f"algorithm-{spelling}" if f"--{spelling}" in taken else spelling


# --- As options -------------------------------------------------------------------------------


class ProgramCommand(click.Command):
    """A command that builds a program: it has an option for whatever any algorithm can be given.

    Its function gets each value as ``build_NAME``, or None; `build` takes these.
    The options are read when the command runs, so those of algorithms registered later are there.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options, then those of the program."""
        own = super().get_params(ctx)
        known: list[click.Parameter] | None = ctx.meta.get(__name__)
        if known is None:
            taken = {spelling for parameter in own for spelling in parameter.opts}
            known = [_click_option(one, taken) for one in _all_options().values()]
            ctx.meta[__name__] = known
        return [*own, *known]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its errors name options as the command spells them."""
        with in_words_of_the_command():
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, and where those of the program are described."""
        own = super().get_params(ctx)
        records = [one.get_help_record(ctx) for one in own if isinstance(one, click.Option)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record is not None])
        taken = {spelling for parameter in own for spelling in parameter.opts}
        general = ", ".join(f"--{_spelling(name, taken)}" for name in options_of(tcusim.build))
        renamed = [name for name in _all_options() if f"--{_spelling(name)}" in taken]
        text = f"{general}, and those of one algorithm: `tcusim list NAME` describes them."
        for name in renamed:
            text += f" An algorithm's --{_spelling(name)} is --{_spelling(name, taken)} here."
        with formatter.section("Options of the program"):
            formatter.write_text(text)


def _click_option(option: Option, taken: set[str]) -> click.Option:
    """Return the option of the command; --algorithm-NAME where the command has a --NAME."""
    spelling = _spelling(option.name, taken)
    flag = f"--{spelling}"
    given: dict[str, Any] = {}
    if option.type is bool:
        # None distinguishes "not given" from "off".
        given |= {"is_flag": True, "default": None}
        flag += f"/--no-{spelling}" if option.default is True else ""
    elif option.choices:
        given |= {"type": OneOf(option.name, option.choices)}
    elif option.name == "tile":
        given |= {"type": Tile()}
    elif option.type is tuple:
        given |= {"type": _Numbers()}
    elif option.type is int:
        given |= {"type": Integer()}
    return click.Option([flag, f"{_PREFIX}{option.name}"], **given)


def build(algorithm: str, options: Mapping[str, Any]) -> tcusim.Program:
    """Build the program that the options of a `ProgramCommand` describe.

    Facts that `verify` could not prove for all sizes are printed on stderr.
    """
    row = algorithm_of(algorithm)
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX) and value is not None
    }
    for name in given:
        if name not in row.options and name not in options_of(tcusim.build):
            command = click.get_current_context().command
            taken = {spelling for parameter in command.params for spelling in parameter.opts}
            valid = ", ".join(f"--{_spelling(own, taken)}" for own in row.options)
            raise errors.InputError(
                f"{row.name} takes no --{_spelling(name, taken)}"
                + (f"; its own options: {valid}" if valid else "; it has no options of its own")
            )
    program = tcusim.build(algorithm, **given)
    for text in tcusim.verify(program).notes:
        click.echo(f"{program.name}: {text}", err=True)
    return program


@contextmanager
def in_words_of_the_command(**others: str) -> Iterator[None]:
    """Let errors from inside name options as the command spells them, not as Python does.

    others: options that have another name than the parameter, by that.
    """
    try:
        yield
    except errors.TcusimError as error:
        context = click.get_current_context()
        options = {
            (parameter.name or "").removeprefix(_PREFIX): parameter
            for parameter in context.command.get_params(context)
            if isinstance(parameter, click.Option)
        }
        options |= {name: options[option] for name, option in others.items()}
        text = error.spelled(lambda given: _spelled(given, options))
        if text == str(error):
            raise
        raise errors.TcusimError(text) from error


def _spelled(given: errors.Given, options: Mapping[str, click.Option]) -> str:
    """Return a parameter as the command's option with its value, or as Python spells it."""
    option = options.get(given.parameter) or options.get(f"{given.parameter}s")
    if option is None:
        return str(given)
    flag, value = option.opts[0], given.value
    if value is None or value is True:
        return flag
    if value is False:
        return option.secondary_opts[0] if option.secondary_opts else f"no {flag}"
    text = str(value)
    return f"{flag} {text!r}" if " " in text else f"{flag} {text}"
