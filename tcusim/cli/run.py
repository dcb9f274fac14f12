"""`tcusim run`: sums and scans of files, compared with NumPy's."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

import tcusim
from tcusim import errors
from tcusim.arrays.functions import Report
from tcusim.cli import files
from tcusim.cli.options import Tile, bar, examples, in_words_of_the_command, with_options, word
from tcusim.cli.output import print_json, progress, show
from tcusim.machine import FORMATS

__all__ = ["run_command"]

Array: TypeAlias = NDArray[Any]

# A progress bar appears when a call has taken this long.
_PATIENCE_SECONDS: Final = 0.5

_OPERATIONS: Final = ("sum", "cumsum", "segmented-sum", "segmented-cumsum")
# The options that say which sums a scan has.
_ORDER: Final = ("exclusive", "include_initial", "reverse")
_INPUT_TYPES: Final = ("f16", "bf16", "f32", "f64", "s8", "u8", "s32")


@dataclass(frozen=True, slots=True)
class _Options:
    """What the command was given, as click has checked it."""

    member: str | None
    input_type: str | None
    dtype: str | None
    segment_size: int | None
    offsets: str | None
    axis: int | None
    exclusive: bool
    include_initial: bool
    reverse: bool
    tile: tcusim.MmaShape | None
    arch: str | None
    acc: str
    algorithm: str | None
    backend: str | None
    output: str | None
    as_json: bool

    @property
    def keywords(self) -> dict[str, Any]:
        """What every function on arrays takes."""
        names = ("tile", "arch", "acc", "algorithm", "backend")
        return {name: getattr(self, name) for name in names} | {"dtype": _dtype(self.dtype)}

    def check(self, operation: str) -> None:
        """Refuse options that do not go together, before anything is read."""
        named = (self.segment_size is not None) + (self.offsets is not None)
        segmented, scan = operation.startswith("segmented"), operation.endswith("cumsum")
        if segmented and named != 1:
            raise click.UsageError(
                f"{operation} needs --segment-size N or --offsets FILE, one of them"
            )
        if not segmented and named:
            raise click.UsageError(
                f"{operation} has no segments; did you mean segmented-{operation}?"
            )
        for name in _ORDER:
            if getattr(self, name) and not scan:
                option = name.replace("_", "-")
                raise click.UsageError(f"--{option} is for scans, {operation} is none")
        if self.include_initial and self.exclusive:
            raise click.UsageError(
                "--exclusive leaves the last sum out, --include-initial keeps it; "
                "choose one of them"
            )


@dataclass(frozen=True, slots=True)
class _Task:
    """An operation on an array. offsets: edges of the segments; None is a segment size."""

    operation: str
    array: Array
    offsets: Array | None
    options: _Options

    def run(self, **keywords: Any) -> Array:
        """Compute on tensor cores."""
        given = self.options
        keywords |= {**given.keywords, "axis": given.axis}
        if self.operation.endswith("cumsum"):
            keywords |= {name: getattr(given, name) for name in _ORDER}
        if self.operation.startswith("segmented"):
            keywords |= {"segment_size": given.segment_size, "offsets": self.offsets}
            keywords["axis"] = -1 if given.axis is None else given.axis
        function = getattr(tcusim, self.operation.replace("-", "_"))
        return np.asarray(function(self.array, **keywords))

    def reference(self) -> Array:
        """Compute with NumPy in float64, segment by segment."""
        wide = self.array.astype(np.float64)
        axis = self.options.axis
        if axis is None and not self.operation.startswith("segmented"):
            wide, axis = wide.ravel(), 0
        rows = np.moveaxis(wide, -1 if axis is None else axis, -1)
        with np.errstate(all="ignore"):
            parts = [
                self._reduced(rows[..., begin:end])
                for begin, end in itertools.pairwise(self._edges(rows.shape[-1]))
            ]
        whole = np.concatenate(parts, axis=-1) if parts else rows[..., :0]
        if self.operation == "sum":
            return np.asarray(whole[..., 0])
        return np.moveaxis(whole, -1, -1 if axis is None else axis)

    def _edges(self, length: int) -> list[int]:
        """Return where segments begin, and where the last one ends."""
        if self.offsets is not None:
            return [int(edge) for edge in self.offsets]
        if self.options.segment_size is None:
            return [0, length]
        return [*range(0, length, self.options.segment_size), length]

    def _reduced(self, segment: Array) -> Array:
        if not self.operation.endswith("cumsum"):
            return np.asarray(segment.sum(axis=-1, keepdims=True))
        step = -1 if self.options.reverse else 1
        scan = np.cumsum(segment[..., ::step], axis=-1)
        if self.options.exclusive or self.options.include_initial:
            zero = np.zeros((*scan.shape[:-1], 1))
            scan = np.concatenate([zero, scan], axis=-1)
        if self.options.exclusive:
            scan = scan[..., : segment.shape[-1]]
        return np.asarray(scan[..., ::step])


@click.command(
    "run",
    no_args_is_help=True,
    epilog=examples(
        "tcusim run sum data.npy",
        "tcusim run segmented-sum --segment-size 64 data.npy -o sums.npy",
        "tcusim run segmented-sum --segment-size 64 --tile 32x8x16 --arch volta data.npy",
        "tcusim run segmented-cumsum --offsets rows.txt data.csv --input-type f16 --json",
        "tcusim run cumsum archive.npz --member elevation --axis 1",
    ),
)
@click.argument("operation", callback=word("operation", _OPERATIONS))
@click.argument("input_file", metavar="INPUT", type=click.Path())
@with_options(
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
    click.option(
        "--axis",
        type=int,
        metavar="I",
        help="Default: the whole array; of segments, the last axis.",
    ),
    click.option(
        "--exclusive", is_flag=True, help="Scan without each element itself: as many results."
    ),
    click.option("--include-initial", is_flag=True, help="Begin a cumsum with 0: one more result."),
    click.option("--reverse", is_flag=True, help="Scan from each element to the end."),
    click.option(
        "--tile",
        type=Tile(),
        metavar="MxNxK",
        help="Tile: one of `tcusim list shapes`, or any three sizes.",
    ),
    click.option("--arch", help="Whose arithmetic. Default: the backend's device, or hopper."),
    click.option(
        "--acc",
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
def run_command(operation: str, input_file: str, **given: Any) -> None:
    """Compute OPERATION on the array in the file INPUT (.npy, .npz, .csv or .txt).

    The result is compared with NumPy's in float64.
    """
    options = _Options(**given)
    options.check(operation)
    if options.output is not None:
        files.check_writable(options.output)
    array = files.read_array(input_file, member=options.member)
    cast = None if options.input_type is None else _cast(array, options.input_type, input_file)
    task = _Task(
        operation,
        array if cast is None else cast.array,
        None if options.offsets is None else files.read_offsets(options.offsets),
        options,
    )
    report = Report()
    start = time.perf_counter()
    with (
        in_words_of_the_command(),
        _hint(task.array),
        progress(
            lambda: f"launch {report.launches}", quiet=options.as_json, after=_PATIENCE_SECONDS
        ) as draw,
        # The summary says how many results overflowed.
        np.errstate(over="ignore"),
    ):
        result = task.run(report=report, progress=draw)
    seconds = time.perf_counter() - start
    summary = _summary(task, report, result) | {"seconds": round(seconds, 6)}
    if cast is not None:
        summary["cast"] = str(cast)
    if options.output is not None:
        files.write_array(options.output, result)
        summary["output"] = options.output
    if not options.as_json:
        _print_summary(input_file, summary, result)
    elif options.output is not None:
        print_json(summary)
    else:
        # Without a file for the result, it is part of the answer.
        print_json({**summary, "result": result.tolist()})


def _cast(array: Array, input_type: str, name: str) -> files.Cast:
    cast = files.cast_array(array, input_type, name=name)
    if input_type == "bf16" and cast.array.dtype == np.float32:
        raise errors.InputError("bf16 arrays need ml-dtypes: pip install 'tcusim[bf16]'")
    return cast


def _dtype(name: str | None) -> Any:
    """Return a result type by its name here or in NumPy."""
    if name == "bf16":
        return "bfloat16"
    return FORMATS[name].dtype if name in FORMATS else name


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


# --- The summary ------------------------------------------------------------------------------


def _summary(task: _Task, report: Report, result: Array) -> dict[str, Any]:
    """Return what happened, ready for JSON."""
    programs = [
        {"program": program.name, "tile": program.shape.name, "ab": program.ab, **scalars}
        for program, scalars in report.programs
    ]
    return {
        "operation": task.operation,
        "input": {"shape": list(task.array.shape), "dtype": task.array.dtype.name},
        "output_array": {"shape": list(result.shape), "dtype": result.dtype.name},
        "arch": report.arch,
        "backend": task.options.backend or "numpy",
        "acc": task.options.acc,
        "programs": programs,
        "launches": report.launches,
        "mma": report.mma,
        "bytes_read": report.bytes_read,
        "bytes_written": report.bytes_written,
        "error": _error(result, task.reference(), relative=not task.operation.endswith("cumsum")),
    }


def _error(result: Array, reference: Array, *, relative: bool) -> dict[str, Any]:
    """Compare with float64.

    `overflowed` counts results that are infinite or NaN where NumPy's is finite, and
    `other_infinities` those that are not the infinity or NaN that NumPy has.
    """
    wide = result.astype(np.float64)
    finite = np.isfinite(reference)
    both = finite & np.isfinite(wide)
    same = (wide == reference) | (np.isnan(wide) & np.isnan(reference))
    difference = np.abs(wide[both] - reference[both])
    magnitude = np.abs(reference[both])
    largest = float(magnitude.max(initial=0.0))
    worst = float(difference.max(initial=0.0))
    error = {
        "max_absolute": worst,
        "max_relative_to_largest": worst / largest if largest else 0.0,
        "overflowed": int(np.count_nonzero(finite & ~np.isfinite(wide))),
        "other_infinities": int(np.count_nonzero(~finite & ~same)),
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
    arch = summary["arch"] or "none: an array without elements needs no arithmetic"
    table.add_row("arch", f"{arch}, backend {summary['backend']}")
    for row in summary["programs"]:
        length = "1 element" if row["length"] == 1 else f"{row['length']:,} elements"
        text = f"{row['program']}, tile {row['tile']}, {row['ab']} operands, {length}"
        table.add_row("program", text)
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
    if not (error["max_absolute"] or error["overflowed"] or error["other_infinities"]):
        return "none: equal to NumPy's float64"
    text = f"at most {error['max_absolute']:.3g} from NumPy's float64"
    text += f", {error['max_relative_to_largest']:.3g} of the largest"
    if "max_relative" in error:
        text += f", {error['max_relative']:.3g} of each result"
    if error["overflowed"]:
        text += f"; {error['overflowed']} results overflowed: choose a wider --dtype"
    if error["other_infinities"]:
        text += f"; {error['other_infinities']} are not the infinity or NaN that NumPy has"
    return text
