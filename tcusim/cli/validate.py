"""`tcusim validate` judges matrix units: real ones, those of a file, and tiles of any sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

import click
from click.core import ParameterSource

from tcusim import errors
from tcusim.algorithms import algorithms
from tcusim.cli import files
from tcusim.cli.options import JOBS, OneOf, OutputFile, Tile, arithmetic, in_words_of_the_command
from tcusim.cli.output import command_line, duration, examples, print_json, progress, show
from tcusim.judge.run import processors
from tcusim.judge.verdict.found import SECTIONS
from tcusim.judge.verdict.gallery import validate_gallery
from tcusim.judge.verdict.subjects import Named, judged_types, names_tile, subject_of
from tcusim.judge.verdict.tasks import seconds_of
from tcusim.judge.verdict.validate import Verdict, validate
from tcusim.machine import Unit, arches, unit_of, units
from tcusim.machine.shapes import MmaShape

# Longer runs are announced before they begin.
_PATIENCE_SECONDS: Final = 60


@click.command(
    "validate",
    no_args_is_help=True,
    epilog=examples(
        "tcusim validate mychip.toml --html mychip.html",
        "tcusim validate h200 v100 mychip.toml",
        "tcusim validate 64x8x16",
        "tcusim validate 16x16x16 --fraction-bits 12",
        "tcusim validate 5x7x3 scan_t scan_tn --full",
        "tcusim validate 16x16x16 --ab s8 --acc s32 --arch hopper --json -",
        "tcusim validate mychip.toml --backend host",
        "tcusim validate --gallery --html gallery.html",
    ),
)
@click.argument("words", nargs=-1, metavar="[UNIT|MxNxK|ALGORITHM]...")
@click.option(
    *("--tile", "only"), type=Tile(), help="The only tile of the units to try. Default: all."
)
@click.option("--ab", help="Type of the operands. Default: f16, or the first that the unit has.")
@click.option(
    "--acc",
    type=OneOf("accumulator", ("f32", "f16", "f64", "s32")),
    help="Type they add up in. Default: f32, or the first that the unit has.",
)
@arithmetic("Whose arithmetic, of a tile.", default="exact")
@click.option(
    "--quick/--full",
    default=True,
    show_default=True,
    help="Some sizes around the edges of the tile, or many, and every layout.",
)
@click.option(
    *("--section", "sections"),
    multiple=True,
    type=OneOf("section", SECTIONS),
    help="Make this section alone; may be repeated. Default: all, or of named algorithms theirs.",
)
@click.option(
    "--reference",
    default="h200",
    show_default=True,
    metavar="UNIT",
    help="What costs are compared with: its tile 16x16x16.",
)
@click.option(
    "--like",
    metavar="UNIT",
    help="Whose figures stand for those that a unit lacks. Default: the reference's, of tiles and "
    "files.",
)
@click.option(
    *("--gallery", "all_public"),
    is_flag=True,
    help="Judge the public units that come with tcusim, in one table: their first types and tile.",
)
@click.option(
    "--backend",
    metavar="NAME",
    help="Run programs on it as well, such as host or cuda, and compare their bits with the "
    "simulator's.",
)
@JOBS
@click.option(
    *("--json", "output"),
    type=OutputFile(),
    help="Write everything as JSON; - prints it instead of the text.",
)
@click.option("--html", type=OutputFile(), help="Write everything as one page with plots.")
@click.pass_context
def validate_command(ctx: click.Context, /, words: tuple[str, ...], **options: Any) -> None:
    """Judge matrix units: their correctness, precision, cost and best algorithms.

    A UNIT is one that `tcusim list units` has, an architecture or a TOML file. MxNxK is a tile of
    any sizes, which may be one that no GPU has. ALGORITHMS (default: all) are tried on them.

    It begins with five lines for each unit: the best algorithms, their cost, the precision of
    sums, their bounds, and the untested parts. The exit code is 1 if anything that ran is
    wrong, if a unit cannot be, or if nothing is possible on it.
    """
    output, html = options.pop("output"), options.pop("html")
    if html == "-":
        raise click.UsageError("--html writes a file, not to the terminal; give it a name")
    if options.pop("all_public"):
        _tell(ctx, _gallery(ctx, options.pop("backend"), options.pop("jobs")), output, html)
    options |= _subjects(words, options.pop("only"), options["arch"], ctx.params["archs"])
    named, full = options.pop("named"), not options.pop("quick")
    options["ab"], options["acc"] = judged_types(named[0], options["ab"], options["acc"])
    jobs = options.pop("jobs") or processors()
    sections = options.pop("sections") or None
    seconds = 0.0
    if sections is None or set(sections) != {"precision"}:
        seconds = sum(_seconds(one, full, options) for one in named) / jobs
    estimate = f"roughly {duration(seconds)}" if seconds > 1 else ""
    if seconds > _PATIENCE_SECONDS:
        hint = "less for a smaller tile, or if you name algorithms"
        click.echo(f"this takes {estimate}; {hint}", err=True)
    with (
        in_words_of_the_command(),
        progress("validating", of="", estimate=estimate) as draw,
    ):
        verdict = validate(
            *named, full=full, sections=sections, jobs=jobs, progress=draw, **options
        )
    _tell(ctx, verdict, output, html)


def _tell(ctx: click.Context, verdict: Verdict, output: str | None, html: str | None) -> NoReturn:
    """Write and print a verdict, and end the command."""
    if html is not None:
        files.write_page(html, verdict.to_html(command_line(ctx)))
    if output not in (None, "-"):
        files.write_text(output, verdict.to_json() + "\n")
    if output == "-":
        print_json(verdict.as_json())
    else:
        show(*verdict.tables())
    ctx.exit(0 if verdict.ok else 1)


def _gallery(ctx: click.Context, backend: str | None, jobs: int | None) -> Verdict:
    """Return the verdict on the gallery; other options of the command are rejected."""
    allowed = ("all_public", "backend", "jobs", "output", "html")
    given = [
        name
        for name in ctx.params
        if name not in allowed and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"--gallery judges its units as they are: leave out {', '.join(given)}, or name units "
            f"in place of --gallery"
        )
    estimate = "less than a minute" if backend is None else "two minutes"
    with progress("validating the gallery", of="", estimate=estimate) as draw:
        return validate_gallery(backend=backend, jobs=jobs or processors(), progress=draw)


def _subjects(
    words: tuple[str, ...], tile: MmaShape | None, arch: str, archs: Sequence[str]
) -> dict[str, Any]:
    """Return the arguments of `validate` for the words: named, tile, arch and algorithms."""
    tiles = [word for word in words if names_tile(word)]
    known = {name.lower() for row in algorithms() for name in (row.name, row.alias) if name}
    names = [word for word in words if word.lower() in known]
    named: list[Named] = [
        word if word in tiles else _unit(word, known) for word in words if word not in names
    ]
    given = {"tile": tile, "arch": arch, "algorithms": names or None}
    if tiles and arch != "exact" and arch not in archs and unit_of(arch).shapes:
        # It is of --unit, and has tiles of its own and figures.
        if len(tiles) > 1 or tile is not None:
            raise click.UsageError(f"--unit {arch} takes one tile; {tiles[0]} is not the only one")
        named[named.index(tiles[0])] = unit_of(arch)
        return given | {"named": named, "tile": tiles[0], "arch": "exact"}
    if arch != "exact" and not tiles:
        return given | {"named": [*named, unit_of(arch)], "arch": "exact"}
    if not named:
        raise click.UsageError(
            f"there is no unit and no tile to try {', '.join(names)} on; name one, such as h200 or "
            f"64x8x16"
        )
    return given | {"named": named}


def _unit(word: str, known: Collection[str]) -> Unit:
    """Return the unit of a word; an error lists algorithms as well."""
    try:
        return unit_of(word)
    except errors.UnknownName:
        valid = {*known, *(one.name for one in units()), *(one.name for one in arches())}
        raise errors.unknown_name("unit, tile or algorithm", word, valid) from None


def _seconds(named: Named, full: bool, options: Mapping[str, Any]) -> float:
    """Return an estimate of a unit's time on one processor."""
    given = {key: options[key] for key in ("ab", "acc", "tile", "arch")}
    try:
        subject = subject_of(named, **given)
    except errors.Unsupported:
        # `validate` says so, or takes no time for it.
        return 0.0
    backend = options["backend"] is not None
    return seconds_of(subject, options["algorithms"], full=full, backend=backend)
