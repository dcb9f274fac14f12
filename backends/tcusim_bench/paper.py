"""The paper's evaluation, figure by figure: `tcusim bench paper FIGURE`.

A figure is a section of the benchmark of its own: which of tcusim's programs run at which sizes,
the paper's by their names there and what plans choose beside them, and which other libraries.
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
from tcusim_bench.sections import Case
from tcusim_bench.throughput import OURS, Report, Say, Settings, measure
from tcusim_cuda.driver import arch_name

__all__ = ["FIGURES", "Figure", "measure_figure", "read_authors"]

_SHAPES: Final = ("16x16x16", "32x8x16", "8x32x16")
# The paper's programs, and the sizes at which they are what the paper would take: so many segments
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

# A program, with its name in the report.
Named = tuple[str, Recipe]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: what it shows, on which sizes, with which programs and peers.

    sizes: of segments; of whole arrays if `whole`, of matrices if the kind is a product. series:
    the beginnings of the names of the authors' series. lacking: what the figure has and this
    measurement has not.
    """

    title: str
    kinds: tuple[str, ...]
    sizes: tuple[int, ...]
    programs: Callable[[Case], Iterator[Named]]
    peers: tuple[str, ...]
    series: tuple[str, ...]
    lacking: tuple[str, ...] = ()
    whole: bool = False

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
        for name in names:
            for acc in ("f16", "f32"):
                one = Recipe(case.kind, case.segment_size, name, acc=acc, result=acc)
                yield f"{OURS} {name}", one

    return programs


def _segments(case: Case) -> Iterator[Named]:
    """Yield the paper's programs for a segment size, of every tile and both accumulators."""
    size = case.segment_size
    for name, (least, most) in (_SUMS if case.kind == "sum" else _SCANS).items():
        if not least <= size <= most:
            continue
        block = name.endswith("block")
        warps = max(1, min(_MOST_WARPS, size // _BLOCK_SHARE)) if block else _WARPS
        for shape in _SHAPES:
            for acc in ("f16", "f32"):
                result = acc if case.kind == "sum" else "f16"
                one = Recipe(case.kind, size, name, shape, acc=acc, result=result, warps=warps)
                yield f"{OURS} {name} {shape}", replace(one, combine="mma")


def _two_launches(case: Case) -> Iterator[Named]:
    """Yield the paper's sum of an array: blocks sum parts of it, then one their sums."""
    parts = min(_FIRST_LAUNCH, case.length // 16)
    name, options = "reduction_256n_block", (("parts", parts),)
    one = Recipe("sum", None, name, result="f16", warps=_MOST_WARPS, combine="mma", options=options)
    for acc in ("f16", "f32"):
        yield f"{OURS} {name}, two launches", replace(one, acc=acc)


def _none(case: Case) -> Iterator[Named]:
    return iter(())


_NO_POWER: Final = "power is not measured"
FIGURES: Final[Mapping[str, Figure]] = {
    "2": Figure(
        "products of matrices",
        ("matmul",),
        (256, 512, 1024, 2048, 4096, 8192, 16384),
        _products("gemm_naive", "gemm"),
        ("torch",),
        ("gemm_",),
        ("CUTLASS, and cuBLAS without tensor cores, which torch does not offer for float16",),
    ),
    "3": Figure(
        "products of a matrix and a vector",
        ("matvec",),
        (256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
        _products("gemv", "gemv_reduction"),
        ("torch", "torch.float32"),
        ("gemv",),
        ("the vector as a matrix of 16 columns for cuBLAS",),
    ),
    "10": Figure(
        "segmented reduction",
        ("sum",),
        _powers(4, 30),
        _segments,
        ("cub", "thrust"),
        ("paper_tune_segmented_reduction",),
        (_NO_POWER,),
    ),
    "11": Figure(
        "segments within a warp or a block",
        ("sum", "scan"),
        _powers(4, 13),
        _segments,
        ("cub.block",),
        ("segmented_reduction_cub", "segmented_prefixsum_cub", "paper_tune_segmented"),
        ("tuning of CUB's blocks: each size has the threads and items that the authors chose",),
    ),
    "12": Figure(
        "segmented scan",
        ("scan",),
        _powers(4, 30),
        _segments,
        ("cub", "thrust"),
        ("paper_tune_segmented_prefixsum",),
        (_NO_POWER,),
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
        _none,
        ("cub", "thrust"),
        ("full_prefixsum_ker3",),
        ("the paper's three launches: no program of tcusim's adds what precedes to scans",),
        whole=True,
    ),
}


def measure_figure(
    name: str,
    settings: Settings,
    authors: Mapping[str, Any] | None = None,
    say: Say | None = None,
) -> Report:
    """Measure a figure of the paper on this machine's GPU.

    settings: `sections`, `peers` and `programs` do not matter. authors: what `read_authors` gave.
    Raises UnknownName if there is no such figure, and what `bench` raises.
    """
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    figure = FIGURES[name]
    given = replace(settings.reduced(), peers=figure.peers)
    refused: dict[str, None] = {}
    sizes = given.segments
    if given.quick and not sizes:
        sizes = figure.sizes[::3]
    report = measure(
        given, figure.cases(name, given.length, sizes), partial(_recipes, figure, refused), say
    )
    report.figure = f"{name}: {figure.title}"
    report.notes += [f"not measured: {what}" for what in (*figure.lacking, *refused)]
    if authors is not None:
        report.authors = {
            series: lines for series, lines in authors.items() if series.startswith(figure.series)
        }
    return report


def _recipes(figure: Figure, refused: dict[str, None], problem: Problem) -> Iterator[Named]:
    """Yield what plans choose, and the paper's programs that can be built; note the others."""
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
