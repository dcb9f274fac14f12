"""The paper's evaluation, figure by figure: `tcusim bench paper FIGURE`.

A figure is a section of the benchmark of its own: its sizes, tcusim's programs,
both the paper's by their names there and the planner's choice, and the other libraries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tcusim.errors import InputError, TcusimError, unknown_name
from tcusim_bench.problems import Problem
from tcusim_bench.programs import Recipe, plans
from tcusim_bench.report import OURS, Report
from tcusim_bench.sections import Case
from tcusim_bench.throughput import Named, Part, Say, Settings, measure
from tcusim_cuda.driver import arch_name

__all__ = ["FIGURES", "Figure", "finish", "measure_figure", "part_of", "read_authors"]

_SHAPES: Final = ("16x16x16", "32x8x16", "8x32x16")
# The paper's programs, and the sizes at which the paper would take them: so many segments
# that warps, or blocks, keep a GPU busy.
_SUMS: Final = {
    "reduction_16": (1, 16),
    "reduction_16n": (32, 2**14),
    "reduction_16n_coalesced": (32, 2**14),
    "reduction_256": (256, 256),
    "reduction_256n": (512, 2**18),
    "reduction_256n_inefficient": (512, 2**18),
    "reduction_256n_block": (512, 2**24),
}
_SCANS: Final = {
    "scan_16": (1, 16),
    "scan_16n": (32, 2**14),
    "scan_256": (256, 256),
    "scan_256n": (512, 2**18),
    "scan_256n_block": (512, 2**24),
}
_WARPS: Final = 4
# Elements of each warp of a block that takes a segment, and the most warps.
_BLOCK_SHARE: Final = 512
_MOST_WARPS: Final = 16
# Elements that a block sums in the first of the two launches of a whole array.
_FIRST_LAUNCH: Final = 2**14


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its content, sizes, programs and peers.

    sizes: of segments; of whole arrays if `whole`, of matrices if the kind is a product. series:
    the beginnings of the names of the authors' series. lacking: the parts of the figure that
    this measurement has not. energy: whether energy is measured, too.
    """

    title: str
    kinds: tuple[str, ...]
    sizes: tuple[int, ...]
    programs: Callable[[Case], Iterator[Named]]
    peers: tuple[str, ...]
    series: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    whole: bool = False
    energy: bool = False

    def cases(self, name: str, length: int, sizes: tuple[int, ...] = ()) -> tuple[Case, ...]:
        """Return the figure's problems that fit into the length; `sizes` replace its own."""
        found = []
        for kind in self.kinds:
            for size in sizes or self.sizes:
                if kind in ("matvec", "matmul"):
                    elements, needed = size**2, size**2 * (2 if kind == "matmul" else 1)
                elif self.whole:
                    elements, needed = size, size
                else:
                    elements, needed = length // size * size, size
                if needed <= length:
                    found.append(Case(f"figure {name}", kind, size, elements))
        return tuple(found)


def _powers(first: int, last: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(first, last + 1))


def _products(*names: str) -> Callable[[Case], Iterator[Named]]:
    """Yield programs of products by name, with both accumulators."""

    def programs(case: Case) -> Iterator[Named]:
        for acc in ("f16", "f32"):
            for name in names:
                one = Recipe(case.kind, case.segment_size, name, acc=acc, result=acc)
                yield f"{OURS} {name}", one

    return programs


def _segments(case: Case) -> Iterator[Named]:
    """Yield the paper's programs for a segment size: of its tile, of each tile, by f16 sums."""
    for shape in _SHAPES:
        for acc in ("f32", "f16"):
            yield from _of_tile(case, shape, acc)


def _of_tile(case: Case, shape: str, acc: str) -> Iterator[Named]:
    size = case.segment_size
    for name, (least, most) in (_SUMS if case.kind == "sum" else _SCANS).items():
        if least <= size <= most:
            block = name.endswith("block")
            warps = max(1, min(_MOST_WARPS, size // _BLOCK_SHARE)) if block else _WARPS
            result = acc if case.kind == "sum" else "f16"
            one = Recipe(case.kind, size, name, shape, acc=acc, result=result, warps=warps)
            yield f"{OURS} {name} {shape}", replace(one, combine="mma")


def _of_the_papers_tile(case: Case) -> Iterator[Named]:
    """Yield the paper's programs for a segment size, of its tile, with f32 sums."""
    return _of_tile(case, _SHAPES[0], "f32")


def _two_launches(case: Case) -> Iterator[Named]:
    """Yield the paper's sum of an array: blocks sum parts of it, then one their sums."""
    parts = min(_FIRST_LAUNCH, case.length // 16)
    name, options = "reduction_256n_block", (("parts", parts),)
    one = Recipe("sum", None, name, result="f16", warps=_MOST_WARPS, combine="mma", options=options)
    for acc in ("f16", "f32"):
        yield f"{OURS} {name}, two launches", replace(one, acc=acc)


def _three_launches(case: Case) -> Iterator[Named]:
    """Yield a scan of an array in three launches: sums of parts, their scan, scans behind it.

    The paper's first launch scans the parts already, and its third adds to the results in memory.
    """
    parts = max(_FIRST_LAUNCH, case.length // _FIRST_LAUNCH)
    if parts < case.length:
        options, name = (("parts", parts),), "scan_256n"
        one = Recipe("scan", None, name, result="f16", masked=True, warps=_WARPS, options=options)
        yield f"{OURS} {name}, three launches", one


FIGURES: Final[Mapping[str, Figure]] = {
    "2": Figure(
        "products of matrices",
        ("matmul",),
        (256, 512, 1024, 2048, 4096, 8192, 16384),
        _products("gemm_naive", "gemm"),
        ("cublas",),
        ("gemm_",),
        ("CUTLASS",),
    ),
    "3": Figure(
        "products of a matrix and a vector",
        ("matvec",),
        (256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
        _products("gemv", "gemv_reduction"),
        ("torch", "torch.float32", "cublas"),
        ("gemv",),
    ),
    "10": Figure(
        "segmented reduction",
        ("sum",),
        _powers(4, 30),
        _segments,
        ("cub", "cub.offsets", "thrust"),
        ("paper_tune_segmented_reduction",),
    ),
    "11": Figure(
        "segments within a warp or a block",
        ("sum", "scan"),
        _powers(4, 13),
        _segments,
        ("cub.block",),
        ("segmented_reduction_cub", "segmented_prefixsum_cub", "paper_tune_segmented"),
        ("all of the authors' tuning of CUB: each size has three ways, theirs among them",),
    ),
    "12": Figure(
        "segmented scan",
        ("scan",),
        _powers(4, 30),
        _segments,
        ("cub", "thrust"),
        ("paper_tune_segmented_prefixsum",),
    ),
    "13": Figure(
        "reduction of a whole array",
        ("sum",),
        _powers(12, 30),
        _two_launches,
        ("cub", "thrust"),
        ("full_reduction_ker2", "full_reduction_cub", "full_reduction_thrust"),
        whole=True,
    ),
    "14": Figure(
        "scan of a whole array",
        ("scan",),
        _powers(12, 30),
        _three_launches,
        ("cub", "thrust"),
        ("full_prefixsum_ker3",),
        ("the paper's own three launches, which write and read the scans of parts in between",),
        whole=True,
    ),
    "power": Figure(
        "what is drawn by segmented sums and scans",
        ("sum", "scan"),
        (16, 64, 256, 1024, 4096, 2**14),
        _of_the_papers_tile,
        ("cub", "cub.offsets", "thrust"),
        (),
        energy=True,
    ),
}


def measure_figure(
    name: str,
    settings: Settings,
    authors: Mapping[str, Any] | None = None,
    say: Say | None = None,
) -> Report:
    """Measure a figure of the paper on this machine's GPU.

    settings: `sections`, `peers` and `programs` do not matter. authors: from `read_authors`.
    Raises UnknownName if there is no such figure, and the errors of `bench`.
    """
    given = settings.reduced()
    refused: dict[str, None] = {}
    part = part_of(name, given, refused)
    report = measure(given, part, say)
    finish(report, name, refused, authors or {})
    return report


def part_of(name: str, given: Settings, refused: dict[str, None]) -> Part:
    """Return a figure as a part of the benchmark; `refused` takes programs that cannot be built.

    Raises UnknownName if there is no such figure.
    """
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    figure, sizes = FIGURES[name], given.segments
    if given.quick and not sizes:
        sizes = figure.sizes[::3]
    return Part(
        figure.cases(name, given.length, sizes),
        partial(_recipes, figure, refused),
        figure.peers,
        energy=figure.energy,
        figure=f"{name}: {figure.title}",
    )


def finish(
    report: Report, name: str, refused: Mapping[str, None], authors: Mapping[str, Any]
) -> None:
    """Note the figure's missing parts in a report, and add the authors' measurements."""
    figure = FIGURES[name]
    notes = [f"not measured: {what}" for what in (*figure.lacking, *refused)]
    report.notes += [note for note in notes if note not in report.notes]
    report.authors = {
        series: lines
        for series, lines in authors.items()
        if figure.series and series.startswith(figure.series)
    }


def _recipes(figure: Figure, refused: dict[str, None], problem: Problem) -> Iterator[Named]:
    """Yield the planner's choices, and the paper's programs that can be built; note the others."""
    case, arch = problem.case, arch_name(problem.device.sm)
    for recipe in plans(case, arch):
        yield OURS, recipe
    for name, recipe in figure.programs(case):
        one = replace(recipe, arch=arch)
        try:
            one.plan(case.length)
        except TcusimError as error:
            refused[f"{name}, {one.acc}, {case.size}: {error}"] = None
        else:
            yield name, one


def read_authors(path: Path) -> dict[str, Any]:
    """Return the series that the paper's authors measured, by name, from a JSON file.

    Each is a list of {"label", "x", "y"}. Raises InputError if the file has none.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        figures = record["figures"]
        for lines in figures.values():
            for line in lines:
                if len(line["x"]) != len(line["y"]) or not isinstance(line["label"], str):
                    raise ValueError(f"{line['label']!r} has not as many x as y")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} has no series: it must be JSON with an object 'figures' of lists of "
            f"{{'label', 'x', 'y'}} ({type(error).__name__}: {error})"
        ) from error
    found: dict[str, Any] = figures
    return found
