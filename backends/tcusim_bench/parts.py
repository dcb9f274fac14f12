"""The parts of the benchmark as plain data: sections of problems, and figures of the paper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.machine import format_of
from tcusim_bench.programs import Recipe
from tcusim_bench.record import OURS, Case

# A program, with its name in the record.
Named: TypeAlias = tuple[str, Recipe]
# Makes the problems of a part: of its name, a length, and sizes to take instead of its own.
Maker: TypeAlias = Callable[[str, int, tuple[int, ...]], Iterator[Case]]


def _powers(first: int, last: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(first, last + 1))


_SUMS_AND_SCANS: Final = ("sum", "scan")
# The segment size that stands for the length: the whole array is one segment.
WHOLE: Final = 0
POWERS: Final = (
    *(16, 32, 64, 128, 256, 512, 1024, 4096),
    *(2**14, 2**16, 2**18, 2**20, 2**24, WHOLE),
)
ODD_SIZES: Final = (24, 48, 100, 200, 300, 1000, 3000, 5000, 10**4, 10**5, 10**6)
SMALL_SIZES: Final = tuple(range(2, 16))
TYPED_SIZES: Final = (16, 256, 4096, 2**16, WHOLE)
TYPES: Final = ("bf16", "f32", "f64", "s8")
GRAPH_LENGTHS: Final = _powers(17, 26)
QUICK_SIZES: Final = (16, 256, 4096, WHOLE)
# Sums are exact in one float64 up to 8192 elements.
EXACT_SIZES: Final = (16, 64, 256, 1024, 4096, 2**16, 2**20, WHOLE)
ENERGY_SUMS: Final = (16, 32, 64, 128, 256, 512, 1024)
ENERGY_SCANS: Final = (16, 256, 1024)
VECTOR_SIZES: Final = (4096, 16384, 32768)
MATRIX_SIZES: Final = (1024, 4096, 8192)
# The most elements of ragged segments.
RAGGED_LENGTH: Final = 2**28

# torch.compile takes seconds to compile each problem, and is asked for by name only.
USUAL_PEERS: Final = ("cupy", "torch", "triton", "cub")

# The section that measures exact sums beside the usual ones, and the section of energy.
EXACT: Final = "exact"
ENERGY: Final = "energy"
# Segments of 16, beside one with all other elements.
_SHORT_SEGMENTS: Final = 2**20
# Lengths of the power law: their exponent, scale and end, which make the mean about 455.
_POWER_LAW: Final = (1.25, 121.0, 2**20)


@dataclass(frozen=True, slots=True)
class Part:
    """Problems that are measured together: a section, or a figure of the paper.

    make: the problems. peers: the libraries to compare with. programs: of a figure, by their names
    in the record. energy: whether energy is measured, too.
    """

    title: str
    make: Maker
    peers: tuple[str, ...] = USUAL_PEERS
    programs: Callable[[Case], Iterator[Named]] | None = None
    energy: bool = False


def cases(
    name: str, length: int, segments: tuple[int, ...] = (), *, quick: bool = False
) -> tuple[Case, ...]:
    """Return the problems of a part, on at most `length` float16 numbers, or as many bytes.

    segments: sizes to take instead of the part's own. A size that does not divide the length is
    given fewer elements. Larger sizes than the data are left out. quick: few sizes.
    """
    found = tuple(
        dict.fromkeys(PARTS[name].make(name.replace("figure-", "figure "), length, segments))
    )
    if not quick or segments:
        return found
    if name in FIGURES:
        sizes = tuple(dict.fromkeys(case.segment_size for case in found))[::3]
    elif name in ("sums", "scans", "types"):
        sizes = tuple(size or length for size in QUICK_SIZES)
    else:
        return found
    return tuple(case for case in found if case.segment_size in sizes)


def _problems(
    kinds: tuple[str, ...],
    own: tuple[int, ...],
    *,
    dtypes: tuple[str, ...] = ("f16",),
    whole: bool = False,
    in_graph: bool = False,
) -> Maker:
    """Return the problems of kinds and sizes: of segments, square matrices, or whole arrays."""

    def make(section: str, length: int, sizes: tuple[int, ...]) -> Iterator[Case]:
        for dtype in dtypes:
            # As many bytes of each type.
            most = length * 2 // max(2, format_of(dtype).itemsize)
            for size, kind in itertools.product(sizes or own, kinds):
                each = size or most
                product = kind in ("matvec", "matmul")
                elements = each**2 if product else each if whole else most // each * each
                if each <= most and (2 if kind == "matmul" else 1) * elements <= most:
                    yield Case(section, kind, each, elements, dtype, in_graph=in_graph)

    return make


def _both(*makers: Maker) -> Maker:
    def make(section: str, length: int, sizes: tuple[int, ...]) -> Iterator[Case]:
        return itertools.chain.from_iterable(one(section, length, sizes) for one in makers)

    return make


def _ragged(section: str, length: int, sizes: tuple[int, ...]) -> Iterator[Case]:
    for lengths, kind in itertools.product(RAGGED, _SUMS_AND_SCANS):
        yield Case(section, kind, 0, min(length, RAGGED_LENGTH), lengths=lengths)


def _graph_segments(section: str, length: int, sizes: tuple[int, ...]) -> Iterator[Case]:
    """Yield arrays of several lengths, in segments of one size."""
    for each, size, kind in itertools.product(sizes or (256,), GRAPH_LENGTHS, _SUMS_AND_SCANS):
        if 0 < each <= size <= length:
            yield Case(section, kind, each, size // each * each, in_graph=True)


def matrix_columns(length: int) -> int:
    """Return the columns of the matrix that the data are: as many as rows, or half as many."""
    return 1 << (length.bit_length() - 1) // 2


# --- Ragged segments --------------------------------------------------------------------------


def _uniform(least: int, most: int) -> Callable[[np.random.Generator, int], NDArray[np.int64]]:
    def draw(rng: np.random.Generator, length: int) -> NDArray[np.int64]:
        count = 2 * length // (least + most) + 8 * int(length**0.5) + 64
        return rng.integers(least, most + 1, count)

    return draw


def _power_law(rng: np.random.Generator, length: int) -> NDArray[np.int64]:
    exponent, scale, most = _POWER_LAW
    drawn = 1 + scale * rng.pareto(exponent, length // 64 + 64)
    return np.minimum(drawn, most).astype(np.int64)


def _one_giant(rng: np.random.Generator, length: int) -> NDArray[np.int64]:
    short = min(_SHORT_SEGMENTS, length // 32)
    lengths = np.full(short + 1, 16, np.int64)
    lengths[short // 2] = length - 16 * short
    return lengths


RAGGED: Final[dict[str, Callable[[np.random.Generator, int], NDArray[np.int64]]]] = {
    "uniform 0..20": _uniform(0, 20),
    "uniform 0..200": _uniform(0, 200),
    "power law": _power_law,
    "one giant": _one_giant,
    "uniform 1000..3000": _uniform(1000, 3000),
}


def offsets_of(lengths: str, length: int) -> NDArray[np.int64]:
    """Return the segment bounds of `length` elements, the same each time."""
    ends = RAGGED[lengths](np.random.default_rng(length), length).cumsum()
    ends = ends[: int(np.searchsorted(ends, length, "left"))]
    return np.concatenate([[0], ends, [length]]).astype(np.int64)


# --- Figures of the paper -------------------------------------------------------------------

_SHAPES: Final = ("16x16x16", "32x8x16", "8x32x16")
# The paper's programs, and the sizes at which the paper would take them: warps while there are
# so many segments that they keep a GPU busy, then blocks.
_SUMS: Final = {
    "reduction_16": (1, 16),
    "reduction_16n": (32, 2**14),
    "reduction_16n_coalesced": (32, 2**14),
    "reduction_256": (256, 256),
    "reduction_256n": (512, 2**18),
    "reduction_256n_inefficient": (512, 2**18),
    "reduction_256n_block": (512, 2**30),
}
_SCANS: Final = {
    "scan_16": (1, 16),
    "scan_16n": (32, 2**14),
    "scan_256": (256, 256),
    "scan_256n": (512, 2**18),
    "scan_256n_block": (512, 2**30),
}
_WARPS: Final = 4
# Elements of each warp of a block that takes a segment, and the most warps.
_BLOCK_SHARE: Final = 512
_MOST_WARPS: Final = 16
# Elements of a part of a whole array, which the first launch sums, and the fewest parts.
_FIRST_LAUNCH: Final = 2**14
_LEAST_PARTS: Final = 8


def _multiplied(*names: str) -> Callable[[Case], Iterator[Named]]:
    """Yield programs of products by name, with both accumulators."""

    def programs(case: Case) -> Iterator[Named]:
        for acc in ("f16", "f32"):
            for name in names:
                one = Recipe(case.kind, case.segment_size, name, acc=acc, result=acc)
                yield f"{OURS} {name}", one

    return programs


def _of_segments(case: Case) -> Iterator[Named]:
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
    """Yield scans of an array by its parts: sums of parts, their scan, scans that go on there.

    And the paper's: its first launch scans the parts already, and its third adds to the results in
    memory.
    """
    parts = max(min(_FIRST_LAUNCH, case.length // _LEAST_PARTS), case.length // _FIRST_LAUNCH)
    options, name = (("parts", parts),), "scan_256n"
    one = Recipe("scan", None, name, result="f16", masked=True, warps=_WARPS, options=options)
    yield f"{OURS} {name}, three launches", one
    yield f"{OURS} {name}, scan then add", replace(one, options=(*options, ("propagate", True)))


# --- All parts ------------------------------------------------------------------------------

# The authors' sizes of products: of matrices, and of a matrix and a vector, with one size more.
_SMALL: Final = (16, 32, 48, 64, 96, 128, 192, 256, 512)
_MATRICES: Final = (
    *(*_SMALL, 768, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192),
    *range(9216, 28161, 512),
)
_VECTORS: Final = (*_SMALL, *range(1024, 25601, 512), 32768)
_CUB: Final = ("cub", "thrust")
_OFFSETS: Final = ("cub", "cub.offsets", "thrust")

# fmt: off
# Parts without CUB come first, since nvcc takes a minute to compile it.
PARTS: Final[dict[str, Part]] = {
    "types": Part("other types", _problems(_SUMS_AND_SCANS, TYPED_SIZES, dtypes=TYPES)),
    "graphs": Part(
        "whole arrays in a CUDA graph",
        _problems(_SUMS_AND_SCANS, GRAPH_LENGTHS, whole=True, in_graph=True), ("torch", "triton"),
    ),
    "graph-segments": Part("segments in a CUDA graph", _graph_segments, ("torch", "triton")),
    "products": Part(
        "products",
        _both(_problems(("matvec",), VECTOR_SIZES), _problems(("matmul",), MATRIX_SIZES)),
        ("torch", "cublas"),
    ),
    EXACT: Part("exact sums", _problems(_SUMS_AND_SCANS, EXACT_SIZES), ()),
    ENERGY: Part(
        "energy", _both(_problems(("sum",), ENERGY_SUMS), _problems(("scan",), ENERGY_SCANS)),
        ("torch", "triton"), energy=True,
    ),
    "sums": Part("sums", _problems(("sum",), POWERS)),
    "scans": Part("scans", _problems(("scan",), POWERS)),
    "ragged": Part("segments by offsets", _ragged),
    "sizes": Part("sizes that are no powers of two", _problems(_SUMS_AND_SCANS, ODD_SIZES)),
    "small": Part("segments of fewer than 16", _problems(_SUMS_AND_SCANS, SMALL_SIZES)),
    "figure-10": Part(
        "segmented reduction", _problems(("sum",), _powers(4, 30)), _OFFSETS, _of_segments,
    ),
    "figure-12": Part(
        "segmented scan", _problems(("scan",), _powers(4, 30)), _CUB, _of_segments,
    ),
    "figure-11": Part(
        "segments within a warp or a block", _problems(_SUMS_AND_SCANS, _powers(4, 13)),
        ("cub.block",), _of_segments,
    ),
    "figure-13": Part(
        "reduction of a whole array", _problems(("sum",), _powers(12, 30), whole=True), _CUB,
        _two_launches,
    ),
    "figure-14": Part(
        "scan of a whole array", _problems(("scan",), _powers(12, 30), whole=True), _CUB,
        _three_launches,
    ),
    "figure-2": Part(
        "products of matrices", _problems(("matmul",), _MATRICES), ("cublas", "cutlass"),
        _multiplied("gemm_naive", "gemm"),
    ),
    "figure-3": Part(
        "products of a matrix and a vector", _problems(("matvec",), _VECTORS),
        ("torch", "torch.float32", "cublas"), _multiplied("gemv", "gemv_reduction"),
    ),
    "figure-power": Part(
        "what is drawn by segmented sums and scans",
        _problems(_SUMS_AND_SCANS, (16, 64, 256, 1024, 4096, 2**14)),
        _OFFSETS, _of_the_papers_tile, energy=True,
    ),
}
# fmt: on
FIGURES: Final = tuple(name for name in PARTS if name.startswith("figure-"))
SECTIONS: Final = tuple(name for name in PARTS if name not in FIGURES)
