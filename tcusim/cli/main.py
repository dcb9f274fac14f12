"""The `tcusim` command: compute, list, and step through programs; emit, compare, validate.

Exit codes: 0 done, 1 an error that the text explains, 2 wrong usage, 130 interrupted. What takes
long to import is imported by the command that needs it.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

import tcusim
from tcusim import backends, errors
from tcusim import machine as numerics
from tcusim.algorithms import algorithms
from tcusim.arrays.functions import Report
from tcusim.cli import files
from tcusim.cli import stepper as terminal
from tcusim.cli.agree import agree_command
from tcusim.cli.kernels import emit_command
from tcusim.cli.parts import (
    bar,
    build,
    build_options,
    examples,
    make_console,
    options_of,
    print_json,
    show,
    word,
)
from tcusim.cli.validate import validate_command
from tcusim.machine import shapes
from tcusim.plugins import entry_points_of
from tcusim.simulate.frames import default_inputs, frames

__all__ = ["main"]

Array: TypeAlias = NDArray[Any]

_INTERRUPTED: Final = 130
# A progress bar appears when a call has taken this long.
_PATIENCE_SECONDS: Final = 0.5

_OPERATIONS: Final = ("sum", "cumsum", "segmented-sum", "segmented-cumsum")
_INPUT_TYPES: Final = ("f16", "bf16", "f32", "f64", "s8", "u8", "s32")
_COMMANDS: Final = "tcusim.commands"
_TABLES: Final = ("algorithms", "shapes", "architectures", "backends")


class _Group(click.Group):
    """Turns tcusim's errors and Ctrl-C into a line of text and an exit code.

    Installed packages add commands through the entry-point group ``tcusim.commands``.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, importing none."""
        return sorted({*self.commands, *(found.name for found in entry_points_of(_COMMANDS))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if it is an installed package's."""
        for found in entry_points_of(_COMMANDS):
            if found.name == cmd_name and cmd_name not in self.commands:
                self.add_command(found.load())
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was named, or say which there are."""
        name = args[0]
        if not name.startswith("-") and name not in (valid := self.list_commands(ctx)):
            ctx.fail(str(errors.unknown_name("command", name, valid)))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal that lacks a letter shows a question mark, rather than a traceback.
                stream.reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except errors.TcusimError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("interrupted; nothing was written", err=True)
            ctx.exit(_INTERRUPTED)


@click.group(
    cls=_Group,
    epilog=examples(
        "tcusim run segmented-sum --segment-size 64 data.npy -o sums.npy",
        "tcusim run cumsum data.csv --input-type f16 --arch volta",
        "tcusim list shapes",
        "tcusim listing scan_256",
        "tcusim step reduction_16",
        "tcusim emit reduction_16 --arch sm_70 --compile",
        "tcusim agree --backend cupy --quick",
        "tcusim validate 64x8x16",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(tcusim.__version__, prog_name="tcusim")
def main() -> None:
    """Sum and scan on simulated tensor cores, bit for bit and step by step."""


for _command in (emit_command, agree_command, validate_command):
    main.add_command(_command)


# --- run --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Task:
    """An operation with its operands. offsets: edges of the segments; None is a segment size."""

    operation: str
    array: Array
    segment_size: int | None
    offsets: Array | None
    axis: int | None
    exclusive: bool

    def run(self, **keywords: Any) -> Array:
        """Compute on tensor cores."""
        if self.operation == "sum":
            result = tcusim.sum(self.array, axis=self.axis, **keywords)
        elif self.operation == "cumsum":
            keywords["include_initial"] = self.exclusive
            result = tcusim.cumsum(self.array, axis=self.axis, **keywords)
        else:
            keywords |= {"offsets": self.offsets, "axis": -1 if self.axis is None else self.axis}
            if self.operation == "segmented-sum":
                result = tcusim.segmented_sum(self.array, self.segment_size, **keywords)
            else:
                keywords["exclusive"] = self.exclusive
                result = tcusim.segmented_cumsum(self.array, self.segment_size, **keywords)
        return np.asarray(result)

    def reference(self) -> Array:
        """Compute with NumPy in float64."""
        wide = self.array.astype(np.float64)
        if self.operation == "sum":
            return np.asarray(wide.sum(axis=self.axis))
        if self.operation == "cumsum":
            rows = wide.ravel() if self.axis is None else np.moveaxis(wide, self.axis, -1)
            scans = np.cumsum(rows, axis=-1)
            if self.exclusive:
                scans = np.concatenate([np.zeros((*rows.shape[:-1], 1)), scans], axis=-1)
            return scans if self.axis is None else np.moveaxis(scans, -1, self.axis)
        axis = -1 if self.axis is None else self.axis
        rows = np.moveaxis(wide, axis, -1)
        pieces = [self._piece(rows[..., start:end]) for start, end in self._edges(rows.shape[-1])]
        whole = np.concatenate(pieces, axis=-1) if pieces else rows[..., :0]
        return np.moveaxis(whole, -1, axis)

    def _edges(self, length: int) -> Iterator[tuple[int, int]]:
        if self.offsets is not None:
            yield from zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)
            return
        size = self.segment_size or 1
        for start in range(0, length, size):
            yield start, min(start + size, length)

    def _piece(self, segment: Array) -> Array:
        if self.operation == "segmented-sum":
            return np.asarray(segment.sum(axis=-1, keepdims=True))
        scan = np.cumsum(segment, axis=-1)
        return np.asarray(scan - segment if self.exclusive else scan)


@main.command(
    "run",
    no_args_is_help=True,
    epilog=examples(
        "tcusim run sum data.npy",
        "tcusim run segmented-sum --segment-size 64 data.npy -o sums.npy",
        "tcusim run segmented-sum --segment-size 64 --shape 32x8x16 --arch volta data.npy",
        "tcusim run segmented-cumsum --offsets rows.txt data.csv --input-type f16 --json",
        "tcusim run cumsum archive.npz --member elevation --axis 1",
    ),
)
@click.argument("operation", callback=word("operation", _OPERATIONS))
@click.argument("input_file", metavar="INPUT", type=click.Path())
@options_of(
    click.option("--member", metavar="NAME", help="Array to take from an .npz file."),
    click.option(
        "--input-type",
        callback=word("type", _INPUT_TYPES),
        metavar=bar(_INPUT_TYPES),
        help="Cast the file's numbers first; the summary says what rounding did.",
    ),
    click.option("--dtype", metavar="TYPE", help="Type of the result, such as f32 or float64."),
    click.option("--segment-size", type=int, metavar="N", help="Elements of a segment."),
    click.option(
        "--offsets",
        type=click.Path(),
        metavar="FILE",
        help="Instead of a size: where segments begin, 0 first, the axis' length last.",
    ),
    click.option("--axis", type=int, metavar="I", help="Default: all of a sum, the last axis."),
    click.option("--exclusive", is_flag=True, help="Scan without each element itself."),
    click.option("--shape", metavar="MxNxK", help="Tile; see `tcusim list shapes`."),
    click.option("--arch", help="Whose arithmetic. Default: the backend's device, or hopper."),
    click.option(
        "--accumulate",
        callback=word("accumulator", ("f32", "f16")),
        metavar="[f32|f16]",
        default="f32",
        show_default=True,
        help="Accumulator of f16 input.",
    ),
    click.option("--algorithm", metavar="NAME", help="Default: one is chosen by size."),
    click.option("--backend", metavar="NAME", help="Who runs it; default: the simulator."),
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        metavar="FILE",
        help="Write the result: .npy, .npz, .csv or .txt. An existing file is replaced.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead."),
)
def run_command(
    operation: str,
    input_file: str,
    member: str | None,
    input_type: str | None,
    dtype: str | None,
    segment_size: int | None,
    offsets: str | None,
    axis: int | None,
    exclusive: bool,
    output: str | None,
    as_json: bool,
    **settings: str | None,
) -> None:
    """Compute OPERATION on the array in the file INPUT (.npy, .npz, .csv or .txt).

    The result is compared with NumPy's in float64.
    """
    _check_usage(operation, segment_size, offsets, exclusive)
    if output is not None:
        files.check_writable(output)
    array = files.read_array(input_file, member=member)
    cast = None if input_type is None else _cast(array, input_type, input_file)
    task = _Task(
        operation,
        array if cast is None else cast.array,
        segment_size,
        None if offsets is None else _read_offsets(offsets),
        axis,
        exclusive,
    )
    report = Report()
    start = time.perf_counter()
    with _hint(task.array), _progress(report, quiet=as_json) as progress:
        result = task.run(dtype=_dtype(dtype), report=report, progress=progress, **settings)
    seconds = time.perf_counter() - start
    summary = _summary(task, settings, report, result, seconds)
    if cast is not None:
        summary["cast"] = str(cast)
    if output is not None:
        files.write_array(output, result)
        summary["output"] = output
    if as_json:
        # Without a file for the result, it is part of the answer.
        print_json(summary if output is not None else {**summary, "result": result.tolist()})
    else:
        _print_summary(input_file, summary, result)


def _check_usage(
    operation: str, segment_size: int | None, offsets: str | None, exclusive: bool
) -> None:
    """Refuse options that do not go together, before anything is read."""
    named = (segment_size is not None) + (offsets is not None)
    if operation.startswith("segmented") and named != 1:
        raise click.UsageError(f"{operation} needs --segment-size N or --offsets FILE, one of them")
    if not operation.startswith("segmented") and named:
        raise click.UsageError(f"{operation} has no segments; did you mean segmented-{operation}?")
    if exclusive and not operation.endswith("cumsum"):
        raise click.UsageError(f"--exclusive is for scans, {operation} is none")


def _cast(array: Array, input_type: str, name: str) -> files.Cast:
    cast = files.cast_array(array, input_type, name=name)
    if input_type == "bf16" and cast.array.dtype == np.float32:
        raise errors.InputError("bf16 arrays need ml-dtypes: pip install 'tcusim[bf16]'")
    return cast


def _read_offsets(path: str) -> Array:
    """Return offsets from a file; text files give floats, which must be whole numbers."""
    given = files.read_array(path)
    whole = np.isfinite(given) & (given == np.floor(given))
    if not whole.all():
        value = given[~whole][0]
        raise errors.InputError(f"{path}: offsets must be whole numbers, got {value:g}")
    return given.astype(np.int64)


def _dtype(name: str | None) -> Any:
    """Return a result type by its name here or in NumPy."""
    if name == "bf16":
        return "bfloat16"
    return numerics.FORMATS[name].dtype if name in numerics.FORMATS else name


@contextmanager
def _hint(array: Array) -> Iterator[None]:
    """Say what helps where few tensor cores take float64, the type of every text file."""
    try:
        yield
    except (errors.Unsupported, errors.VerifyError) as error:
        if array.dtype != np.float64:
            raise
        text = f"{error} (The numbers are float64; --input-type f16 or f32 casts them.)"
        raise errors.Unsupported(text) from error


@contextmanager
def _progress(report: Report, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Give what draws a bar on a terminal's stderr, if the work takes long; None elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task("computing")
    start = time.perf_counter()

    def progress(done: int, total: int) -> None:
        if time.perf_counter() - start < _PATIENCE_SECONDS:
            return
        bar.start()
        bar.update(task, completed=done, total=total, description=f"launch {report.launches}")

    try:
        yield progress
    finally:
        bar.stop()


def _summary(
    task: _Task, settings: dict[str, str | None], report: Report, result: Array, seconds: float
) -> dict[str, Any]:
    """Return what happened, ready for JSON."""
    programs = [
        {"program": program.name, "shape": program.shape.name, "ab": program.ab, **scalars}
        for program, scalars in report.programs
    ]
    return {
        "operation": task.operation,
        "input": {"shape": list(task.array.shape), "dtype": task.array.dtype.name},
        "output_array": {"shape": list(result.shape), "dtype": result.dtype.name},
        "arch": report.arch,
        "backend": settings["backend"] or "numpy",
        "accumulate": settings["accumulate"],
        "programs": programs,
        "launches": report.launches,
        "mma": report.mma,
        "bytes_read": report.bytes_read,
        "bytes_written": report.bytes_written,
        "seconds": round(seconds, 6),
        "error": _error(result, task.reference(), relative=task.operation.endswith("sum")),
    }


def _error(result: Array, reference: Array, *, relative: bool) -> dict[str, Any]:
    """Compare with float64: `overflowed` counts results that are infinite or NaN by themselves."""
    wide = result.astype(np.float64)
    finite = np.isfinite(reference)
    both = finite & np.isfinite(wide)
    difference = np.abs(wide[both] - reference[both])
    magnitude = np.abs(reference[both])
    largest = float(magnitude.max(initial=0.0))
    worst = float(difference.max(initial=0.0))
    error = {
        "max_absolute": worst,
        "max_relative_to_largest": worst / largest if largest else 0.0,
        "overflowed": int(np.count_nonzero(finite & ~np.isfinite(wide))),
    }
    if relative:
        nonzero = magnitude > 0
        ratios = difference[nonzero] / magnitude[nonzero]
        error["max_relative"] = float(ratios.max(initial=0.0))
    return error


def _print_summary(input_file: str, summary: dict[str, Any], result: Array) -> None:
    """Print the summary as a table of two columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    given, made, error = summary["input"], summary["output_array"], summary["error"]
    table.add_row("input", f"{input_file}: {given['dtype']} {_size(given['shape'])}")
    if "cast" in summary:
        table.add_row("cast", summary["cast"])
    table.add_row("arch", f"{summary['arch']}, backend {summary['backend']}")
    for row in summary["programs"]:
        text = f"{row['program']}, tile {row['shape']}, {row['ab']} operands, {row['length']:,}"
        table.add_row("program", f"{text} elements")
    table.add_row("launches", str(summary["launches"]))
    table.add_row("mma steps", f"{summary['mma']:,}")
    read, written = summary["bytes_read"], summary["bytes_written"]
    table.add_row("global memory", f"{read:,} bytes read, {written:,} written")
    table.add_row("time", f"{summary['seconds']:.3f} s")
    table.add_row("error", _error_text(error))
    table.add_row("result", f"{made['dtype']} {_size(made['shape'])}")
    if "output" in summary:
        table.add_row("written to", summary["output"])
    else:
        table.add_row("", Text(np.array2string(result, threshold=16, edgeitems=3)))
    show(table)


def _size(shape: list[int]) -> str:
    return "x".join(map(str, shape)) if shape else "scalar"


def _error_text(error: dict[str, Any]) -> str:
    if error["max_absolute"] == 0 and not error["overflowed"]:
        return "none: equal to NumPy's float64"
    text = f"at most {error['max_absolute']:.3g} from NumPy's float64"
    text += f", {error['max_relative_to_largest']:.3g} of the largest"
    if "max_relative" in error:
        text += f", {error['max_relative']:.3g} of each result"
    if error["overflowed"]:
        text += f"; {error['overflowed']} results overflowed: choose a wider --dtype"
    return text


# --- list -------------------------------------------------------------------------------------


@main.command(
    "list",
    epilog=examples(
        "tcusim list",
        "tcusim list shapes --json",
    ),
)
@click.argument("tables", nargs=-1, callback=word("table", _TABLES), metavar=bar(_TABLES))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def list_command(tables: tuple[str, ...], as_json: bool) -> None:
    """List what there is: algorithms, shapes, architectures, backends (default: all)."""
    rows = {name: _ROWS[name]() for name in tables or _TABLES}
    if as_json:
        print_json(rows)
        return
    for name, records in rows.items():
        _print_table(name, records)


def _algorithm_rows() -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "paper": row.alias,
            "mma steps": row.formula,
            "source": row.source,
            "title": row.title,
        }
        for row in algorithms()
    ]


def _shape_rows() -> list[dict[str, Any]]:
    """Return one row for each shape, instruction and GPU generation."""
    rows = []
    for shape in shapes.shapes():
        if shape.virtual:
            rows.append(_shape_row(shape, "none: simulated only", "any", None, shape.source))
        found: dict[tuple[str, int, str], list[str]] = {}
        for entry in shape.operands:
            key = (entry.family, entry.min_sm, entry.source)
            found.setdefault(key, []).append(f"{entry.ab}→{entry.acc}")
        for (family, min_sm, source), types in found.items():
            rows.append(_shape_row(shape, family, ", ".join(types), min_sm, source))
    return rows


def _shape_row(
    shape: shapes.MmaShape, family: str, types: str, min_sm: int | None, source: str
) -> dict[str, Any]:
    return {
        "name": shape.name,
        "instruction": family,
        "types": types,
        "min sm": min_sm,
        "source": source,
    }


def _architecture_rows() -> list[dict[str, Any]]:
    """Return one row for each unit and kind of evidence."""
    rows = []
    for unit in numerics.units():
        found: dict[tuple[str, str], list[str]] = {}
        for rule in unit.rows:
            found.setdefault((rule.evidence, rule.source), []).append(f"{rule.ab}→{rule.acc}")
        for (evidence, source), types in found.items():
            rows.append(
                {
                    "name": unit.name,
                    "title": unit.title,
                    "also": ", ".join(name for name in unit.names if name != unit.name),
                    "types": ", ".join(types),
                    "evidence": evidence,
                    "source": source,
                }
            )
    return rows


def _backend_rows() -> list[dict[str, Any]]:
    rows = []
    for name in backends.backends():
        reason = backends.why_unavailable(name)
        title = backends.get_backend(name).title if reason is None else ""
        rows.append({"name": name, "title": title, "available": reason or "yes"})
    return rows


_ROWS: Final[dict[str, Callable[[], list[dict[str, Any]]]]] = {
    "algorithms": _algorithm_rows,
    "shapes": _shape_rows,
    "architectures": _architecture_rows,
    "backends": _backend_rows,
}


def _print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows under their names; what repeats the row above is left out, to ease the eye."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
    for column in rows[0]:
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    above: list[str] = []
    for row in rows:
        cells = ["" if value is None else str(value) for value in row.values()]
        same = above[:1] == cells[:1]
        shown = [
            "" if same and column in ("name", "title", "also") else cell
            for column, cell in zip(row, cells, strict=True)
        ]
        table.add_row(*map(Text, shown))
        above = cells
    show(table)


# --- listing and step -------------------------------------------------------------------------


@main.command(
    "listing",
    no_args_is_help=True,
    epilog=examples(
        "tcusim listing scan_256",
        "tcusim listing reduction_tn --shape 8x32x16 --segment-size 4096 --ragged --combine add",
        "tcusim listing scan_t --form 'L(A1)'",
    ),
)
@click.argument("algorithm")
@build_options
def listing_command(algorithm: str, **options: Any) -> None:
    """Print the program of ALGORITHM in the notation of the paper."""
    click.echo(tcusim.listing(build(algorithm, options)), nl=False)


@main.command(
    "step",
    no_args_is_help=True,
    epilog=examples(
        "tcusim step scan_256",
        "tcusim step reduction_16 --only mma --arch volta --input data.npy",
        "tcusim step scan_256n --from 7.2 --plain | less",
    ),
)
@click.argument("algorithm")
@options_of(
    click.option("--input", "input_file", type=click.Path(), metavar="FILE", help="Input array."),
    click.option("--member", metavar="NAME", help="Array to take from an .npz file."),
    click.option("--arch", default="hopper", show_default=True, help="Whose arithmetic."),
    click.option("--warp", type=int, default=0, show_default=True, help="Warp to watch."),
    click.option("--from", "start", default="", metavar="PATH", help="First step, such as 7.2."),
    click.option(
        "--only",
        multiple=True,
        callback=word("kind of step", terminal.kinds()),
        metavar=bar(terminal.kinds()),
        help="Kinds of steps to show; may be repeated.",
    ),
    click.option("--plain", is_flag=True, help="Plain text: no colours, no keys."),
    click.option("--width", type=click.IntRange(min=40), help="Columns; default: the terminal's."),
)
@build_options
def step_command(
    algorithm: str,
    input_file: str | None,
    member: str | None,
    arch: str,
    warp: int,
    start: str,
    only: tuple[str, ...],
    plain: bool,
    width: int | None,
    **options: Any,
) -> None:
    """Show every step of ALGORITHM with the tiles that it reads and writes.

    Without a file the input is 1, 2, 3, ... again and again. On a terminal, Enter shows the next
    step, c all of them, q quits, and a path such as 7.2 goes there; elsewhere the text is plain.
    """
    program = build(algorithm, options)
    inputs = _step_inputs(program, input_file, member)
    plain = plain or not sys.stdout.isatty()
    console = None if plain else make_console()
    room = width or (terminal.Layout().width if console is None else console.width)
    terminal.Stepper(
        program,
        partial(frames, program, inputs, arch, warp),
        write=click.echo,
        console=console,
        ask=None if plain else _ask,
        layout=terminal.Layout(width=room),
        start=start,
        only=only,
    ).run()


def _ask(prompt: str) -> str:
    return input(prompt)


def _step_inputs(
    program: tcusim.Program, input_file: str | None, member: str | None
) -> dict[str, Array]:
    """Return inputs of the program's types, the first from the file if there is one."""
    if input_file is None:
        if member is not None:
            raise click.UsageError("--member needs --input FILE")
        return default_inputs(program)
    array = files.read_array(input_file, member=member).ravel()
    first = program.inputs[0]
    cast = files.cast_array(array, first.dtype, name=input_file)
    if cast.changed:
        click.echo(f"{input_file}: {cast}", err=True)
    # The size of the first input gives the scalar: it is `length`, or so many times the `rows`.
    ((_, per_scalar),) = first.size.index.terms
    return default_inputs(program, array.size // per_scalar) | {first.name: cast.array}


if __name__ == "__main__":
    main()
