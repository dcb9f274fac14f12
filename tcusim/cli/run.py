"""`tcusim run`: sums and scans of files, compared with NumPy's."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

import click
import numpy as np
from numpy.typing import NDArray

import tcusim
from tcusim import errors
from tcusim.arrays.report import Report
from tcusim.call_options import Bits
from tcusim.cli import files
from tcusim.cli.options import (
    ARRAY_TYPES,
    JSON,
    MEMBER,
    Integer,
    OneOf,
    OutputFile,
    Tile,
    arithmetic,
    array_type_of,
    in_words_of_the_command,
)
from tcusim.cli.output import examples, print_json, progress, show
from tcusim.machine import FORMATS, Arch, arch_of, format_of
from tcusim.program.grammar import Program
from tcusim.table import Table

Array: TypeAlias = NDArray[Any]

# A progress bar appears when a call has taken this long.
_PATIENCE_SECONDS: Final = 0.5

_OPERATIONS: Final = ("sum", "cumsum", "segmented-sum", "segmented-cumsum")
_OF_TWO: Final = ("matmul", "matvec")
# The options for the sums of a scan.
_ORDER: Final = ("exclusive", "include_initial", "reverse", "initial")


@dataclass(frozen=True, slots=True)
class _Task:
    """An operation on an array, with the command's arguments.

    offsets, ids: edges of the segments, or the segment of each element; None if not given.
    """

    operation: str
    array: Array
    offsets: Array | None
    ids: Array | None
    given: Mapping[str, Any]

    def run(self, **watching: Any) -> Array:
        """Compute on tensor cores. watching: the options report and progress."""
        given = self.given
        names = ["axis", *(_ORDER if self.operation.endswith("cumsum") else ())]
        keywords = {name: given[name] for name in names} | {"dtype": _dtype(given["dtype"])}
        asked = ("tile", "arch", "acc", "algorithm", "bits", "backend")
        keywords["options"] = {name: given[name] for name in asked} | watching
        if self.operation.startswith("segmented"):
            keywords["segments"] = self._segments()
            keywords["axis"] = -1 if given["axis"] is None else given["axis"]
        function = getattr(tcusim, self.operation.replace("-", "_"))
        return np.asarray(function(self.array, **keywords))

    def _segments(self) -> Any:
        if self.ids is not None:
            return tcusim.Segments(
                ids=self.ids, count=self.given["num_segments"], sort=self.given["sort"]
            )
        return self.given["segment_size"] if self.offsets is None else self.offsets

    def reference(self) -> Array:
        """Compute with NumPy in float64, segment by segment."""
        wide = self.array.astype(np.float64)
        axis = self.given["axis"]
        if axis is None and not self.operation.startswith("segmented"):
            wide, axis = wide.ravel(), 0
        rows = np.moveaxis(wide, -1 if axis is None else axis, -1)
        order = np.arange(rows.shape[-1]) if self.ids is None else self.ids.argsort(kind="stable")
        rows = rows[..., order]
        with np.errstate(all="ignore"):
            parts = [
                self._reduced(rows[..., begin:end])
                for begin, end in itertools.pairwise(self._edges(rows.shape[-1]))
            ]
        whole = np.concatenate(parts, axis=-1) if parts else rows[..., :0]
        if self.operation == "sum":
            return np.asarray(whole[..., 0])
        if self.given["sort"] and self.operation.endswith("cumsum"):
            whole = whole[..., order.argsort()]
        return np.moveaxis(whole, -1, -1 if axis is None else axis)

    def _edges(self, length: int) -> list[int]:
        """Return the offsets of segments, with the end of the last one."""
        if self.offsets is not None:
            return [int(edge) for edge in self.offsets]
        if self.ids is not None:
            number = self.given["num_segments"] or self.ids.max(initial=-1) + 1
            return [int(edge) for edge in np.searchsorted(np.sort(self.ids), np.arange(number + 1))]
        size = self.given["segment_size"]
        return [0, length] if size is None else [*range(0, length, size), length]

    def _reduced(self, segment: Array) -> Array:
        if not self.operation.endswith("cumsum"):
            return np.asarray(segment.sum(axis=-1, keepdims=True))
        step = -1 if self.given["reverse"] else 1
        scan = np.cumsum(segment[..., ::step], axis=-1)
        if self.given["exclusive"] or self.given["include_initial"]:
            scan = np.concatenate([np.zeros((*scan.shape[:-1], 1)), scan], axis=-1)
        if self.given["exclusive"]:
            scan = scan[..., : segment.shape[-1]]
        return np.asarray(scan[..., ::step] + (self.given["initial"] or 0))


class _Operation(OneOf):
    """An operation on one array; those on two are told how they are had."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | None:
        """Return the operation's name."""
        if value.lower().replace("_", "-") in _OF_TWO:
            self.fail(
                f"{value} takes two arrays, and this command one. In Python: "
                f"tcusim.{value.lower()}(a, b). One output of it, bit by bit: tcusim explain "
                f"--a A.npy --b B.npy --cell 0,0. How long it takes: tcusim cost {value.lower()}",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


class _Number(click.ParamType):  # type: ignore[type-arg]
    """A number; an integer is kept exact."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        """Return the number that a text is."""
        with suppress(ValueError):
            return int(value)
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is no number", param, ctx)


def _check(operation: str, given: Mapping[str, Any]) -> None:
    """Refuse options that do not go together, before anything is read."""
    named = sum(given[name] is not None for name in ("segment_size", "offsets", "segment_ids"))
    segmented, scan = operation.startswith("segmented"), operation.endswith("cumsum")
    if segmented and named != 1:
        raise click.UsageError(
            f"{operation} needs --segment-size N, --offsets FILE or --segment-ids FILE, one of them"
        )
    if not segmented and named:
        raise click.UsageError(f"{operation} has no segments; did you mean segmented-{operation}?")
    if given["num_segments"] is not None and given["segment_ids"] is None:
        raise click.UsageError("--num-segments goes with --segment-ids; leave it out")
    if given["sort"] and given["segment_ids"] is None:
        raise click.UsageError("--sort goes with --segment-ids; leave it out")
    for name in _ORDER:
        if given[name] is not None and given[name] is not False and not scan:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is for scans, {operation} is none")
    if given["include_initial"] and given["exclusive"]:
        raise click.UsageError(
            "--exclusive leaves the last sum out, --include-initial keeps it; choose one of them"
        )


@click.command(
    "run",
    no_args_is_help=True,
    epilog=examples(
        "tcusim run sum data.npy",
        "tcusim run cumsum 1,2,3 --input-type f16",
        "tcusim run segmented-sum --segment-size 64 data.npy -o sums.npy",
        "tcusim run segmented-sum --segment-size 64 --tile 32x8x16 --arch volta data.npy",
        "tcusim run segmented-cumsum --offsets rows.txt data.csv --input-type f16 --json",
        "tcusim run cumsum archive.npz --member elevation --axis 1",
    ),
)
@click.argument("operation", type=_Operation("operation", _OPERATIONS))
@click.argument("input_file", metavar="INPUT", type=click.Path())
@MEMBER
@click.option(
    "--input-type",
    type=OneOf("type", ARRAY_TYPES),
    help="Cast the file's numbers first; the summary says what rounding did.",
)
@click.option("--dtype", metavar="TYPE", help="Type of the result, such as f32 or float64.")
@click.option("--segment-size", type=Integer(), help="Elements of a segment.")
@click.option(
    "--offsets",
    type=click.Path(),
    metavar="FILE",
    help="Instead of a size: where segments begin, 0 first, the axis' length last.",
)
@click.option(
    "--segment-ids",
    type=click.Path(),
    metavar="FILE",
    help="Instead: the number of each element's segment, ascending unless --sort is given.",
)
@click.option(
    "--num-segments", type=Integer(), help="Segments by ids. Default: the last id, plus 1."
)
@click.option("--sort", is_flag=True, help="Take ids in any order; equal ones keep theirs.")
@click.option(
    "--axis", type=int, metavar="I", help="Default: the whole array; of segments, the last axis."
)
@click.option(
    "--exclusive", is_flag=True, help="Scan without each element itself: as many results."
)
@click.option("--include-initial", is_flag=True, help="Begin a cumsum with 0: one more result.")
@click.option("--reverse", is_flag=True, help="Scan from each element to the end.")
@click.option(
    "--initial", type=_Number(), help="What precedes the first element of each scan, such as 10."
)
@click.option("--tile", type=Tile(), help="Tile: one of `tcusim list shapes`, or any three sizes.")
@arithmetic("Whose arithmetic. Default: the backend's device, or hopper.")
@click.option(
    "--acc",
    type=OneOf("accumulator", ("f32", "f16")),
    default="f32",
    show_default=True,
    help="Accumulator of f16 input.",
)
@click.option("--algorithm", metavar="NAME", help="Default: one is chosen by size.")
@click.option(
    "--bits",
    type=OneOf("bits", get_args(Bits)),
    default="segment",
    show_default=True,
    help="exact: the true value, rounded once, on every GPU.",
)
@click.option("--backend", metavar="NAME", help="Who runs it; default: the simulator.")
@click.option(
    *("-o", "--output"),
    type=OutputFile(files.check_writable),
    help="Write the result: .npy, .npz, .csv or .txt. An existing file is replaced.",
)
@JSON
def run_command(operation: str, input_file: str, **given: Any) -> None:
    """Compute OPERATION on the array in the file INPUT (.npy, .npz, .csv or .txt), or on 1,2,3.

    The result is compared with NumPy's in float64.
    """
    _check(operation, given)
    output, as_json = given["output"], given["as_json"]
    array = files.read_array(input_file, member=given["member"])
    if given["input_type"] is None and given["arch"] is not None:
        given["input_type"] = _type_for(arch_of(given["arch"]), array)
    cast = None
    if given["input_type"] is not None:
        cast = files.cast_array(array, given["input_type"], name=input_file)
        array = cast.array
        if given["input_type"] == "bf16" and array.dtype == np.float32:
            raise errors.InputError("bf16 arrays need ml-dtypes: pip install 'tcusim[bf16]'")
    offsets, ids = (
        None if given[name] is None else files.read_integers(given[name], what)
        for name, what in (("offsets", "offsets"), ("segment_ids", "segment ids"))
    )
    task = _Task(operation, array, offsets, ids, given)
    report = Report()
    start = time.perf_counter()
    with (
        in_words_of_the_command(segments="segment_size", ids="segment_ids", count="num_segments"),
        _hint(array),
        progress(
            lambda: f"launch {report.launches}", quiet=as_json, after=_PATIENCE_SECONDS
        ) as draw,
        # The summary says how many results overflowed.
        np.errstate(over="ignore"),
    ):
        result = task.run(report=report, progress=draw)
    seconds = time.perf_counter() - start
    summary = _summary(task, report, result) | {"seconds": round(seconds, 6)}
    if cast is not None:
        summary["cast"] = str(cast)
    if output is not None:
        files.write_array(output, result)
        summary["output"] = output
    if not as_json:
        _print_summary(input_file, summary, result)
    else:
        # Without a file for the result, it is part of the answer.
        print_json(summary if output is not None else {**summary, "result": result.tolist()})


def _type_for(arch: Arch, array: Array) -> str | None:
    """Return the type to cast an array to: the first that is taken, if not the array's own."""
    taken = {format_of(ab).array_name for ab, _ in arch.pairs}
    return None if array.dtype.name in taken else array_type_of(arch)


def _dtype(name: str | None) -> Any:
    """Return a result type by its name here or in NumPy."""
    if name == "bf16":
        return "bfloat16"
    return FORMATS[name].dtype if name in FORMATS else name


@contextmanager
def _hint(array: Array) -> Iterator[None]:
    """Suggest a remedy where few tensor cores take float64, the type of every text file."""
    try:
        yield
    except (errors.Unsupported, errors.VerifyError) as error:
        if array.dtype != np.float64:
            raise
        text = " (The numbers are float64; --input-type f16 or f32 casts them.)"
        raise errors.Unsupported(*error.pieces, text) from error


# --- The summary ------------------------------------------------------------------------------


def _summary(task: _Task, report: Report, result: Array) -> dict[str, Any]:
    """Return the summary of a run, ready for JSON."""
    programs = [
        {"program": program.name, "tile": program.shape.name, "ab": _operands(program), **scalars}
        for program, scalars in report.programs
    ]
    return {
        "operation": task.operation,
        "input": {"shape": list(task.array.shape), "dtype": task.array.dtype.name},
        "output_array": {"shape": list(result.shape), "dtype": result.dtype.name},
        "arch": report.arch,
        "backend": task.given["backend"] or "numpy",
        "acc": task.given["acc"],
        "bits": task.given["bits"],
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
    given, made = summary["input"], summary["output_array"]
    arch = summary["arch"] or "none: an array without elements needs no arithmetic"
    read, written = summary["bytes_read"], summary["bytes_written"]
    rows = [
        ("input", f"{input_file}: {given['dtype']} {_size(given['shape'])}"),
        ("cast", summary.get("cast")),
        ("arch", f"{arch}, backend {summary['backend']}"),
        *(("program", _program_text(program)) for program in summary["programs"]),
        ("launches", str(summary["launches"])),
        ("mma steps", f"{summary['mma']:,}"),
        ("global memory", f"{read:,} bytes read, {written:,} written"),
        ("time", f"{summary['seconds']:.3f} s"),
        ("error", _error_text(summary["error"])),
        ("result", f"{made['dtype']} {_size(made['shape'])}"),
        ("written to", summary.get("output")),
    ]
    if "output" not in summary:
        rows.append(("", np.array2string(result, threshold=16, edgeitems=3)))
    show(Table(rows=[(name, text) for name, text in rows if text is not None]))


def _program_text(program: dict[str, Any]) -> str:
    length = "1 element" if program["length"] == 1 else f"{program['length']:,} elements"
    types = f"{program['ab']} operands" if program["ab"] else "no products"
    return f"{program['program']}, tile {program['tile']}, {types}, {length}"


def _operands(program: Program) -> str | None:
    """Return the type of a program's operands; None if it multiplies nothing."""
    return program.ab if program.uses_mma else None


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
