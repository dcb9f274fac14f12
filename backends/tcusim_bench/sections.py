"""The sections of `tcusim bench throughput` and their problems, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import unknown_name
from tcusim.machine import format_of

__all__ = [
    "ENERGY",
    "EXACT",
    "KINDS",
    "POWERS",
    "RAGGED",
    "SECTIONS",
    "WHOLE",
    "Case",
    "cases",
    "matrix_columns",
    "offsets_of",
]

KINDS: Final = ("sum", "scan", "matvec", "matmul")

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
GRAPH_LENGTHS: Final = tuple(2**power for power in range(17, 27))
# Of segments in arrays that a graph takes again and again.
GRAPH_SEGMENT: Final = 256
# Sums are exact in one float64 up to 8192 elements.
EXACT_SIZES: Final = (16, 64, 256, 1024, 4096, 2**16, 2**20, WHOLE)
ENERGY_SUMS: Final = (16, 32, 64, 128, 256, 512, 1024)
ENERGY_SCANS: Final = (16, 256, 1024)
VECTOR_SIZES: Final = (4096, 16384, 32768)
MATRIX_SIZES: Final = (1024, 4096, 8192)
# The most elements of ragged segments.
RAGGED_LENGTH: Final = 2**28

# The section that measures exact sums beside the usual ones, and the section of energy.
EXACT: Final = "exact"
ENERGY: Final = "energy"
# Sections of whole arrays of several lengths: figures of the paper.
_BY_LENGTH: Final = ("figure 13", "figure 14")

# Segments of 16, beside one with all other elements.
_SHORT_SEGMENTS: Final = 2**20
# Lengths of the power law: their exponent, scale and end, which make the mean about 455.
_POWER_LAW: Final = (1.25, 121.0, 2**20)


@dataclass(frozen=True, slots=True)
class Case:
    """One problem.

    section: its name. kind: out of `KINDS`. segment_size: elements of a segment; of a
    product, the columns of the left matrix; 0 if segments are ragged. length: elements of the
    array, or of the left matrix. dtype: their type, as PTX calls it. lengths: of ragged segments,
    a name out of `RAGGED`. in_graph: timed as many launches of one CUDA graph.
    """

    section: str
    kind: str
    segment_size: int
    length: int
    dtype: str = "f16"
    lengths: str = ""
    in_graph: bool = False

    @property
    def is_product(self) -> bool:
        """Whether it multiplies."""
        return self.kind in ("matvec", "matmul")

    @property
    def is_whole(self) -> bool:
        """Whether the whole array is one segment."""
        return not self.is_product and self.segment_size == self.length

    @property
    def size(self) -> str:
        """Its description within its section."""
        if self.lengths:
            return self.lengths
        if self.in_graph or self.section in _BY_LENGTH:
            return str(self.length)
        return "array" if self.is_whole else str(self.segment_size)

    def __str__(self) -> str:
        """Return kind, type and size in words."""
        dtype = "" if self.dtype == "f16" else f" {self.dtype}"
        return f"{self.kind}{dtype} {self.lengths or self.segment_size}"


def cases(names: tuple[str, ...], length: int, segments: tuple[int, ...] = ()) -> tuple[Case, ...]:
    """Return the cases of sections, on at most `length` float16 numbers, or as many bytes.

    segments: sizes to take instead of the sections' own. A size that does not divide the length is
    given fewer elements. Larger sizes than the data are left out. Raises UnknownName if a name is
    none of `SECTIONS`.
    """
    found: list[Case] = []
    for name in names:
        if name not in SECTIONS:
            raise unknown_name("section", name, SECTIONS)
        found += SECTIONS[name](name, length, segments)
    return tuple(dict.fromkeys(found))


def _of_sizes(
    section: str, kinds: tuple[str, ...], sizes: tuple[int, ...], length: int, dtype: str = "f16"
) -> Iterator[Case]:
    for size in sizes:
        each = size or length
        if each <= length:
            for kind in kinds:
                yield Case(section, kind, each, length // each * each, dtype)


def _types(section: str, length: int, segments: tuple[int, ...]) -> Iterator[Case]:
    """Yield as many bytes of each type."""
    for dtype in TYPES:
        most = length * 2 // max(2, format_of(dtype).itemsize)
        yield from _of_sizes(section, ("sum", "scan"), segments or TYPED_SIZES, most, dtype)


def _ragged(section: str, length: int, segments: tuple[int, ...]) -> Iterator[Case]:
    for lengths in RAGGED:
        for kind in ("sum", "scan"):
            yield Case(section, kind, 0, min(length, RAGGED_LENGTH), lengths=lengths)


def _graphs(section: str, length: int, segments: tuple[int, ...]) -> Iterator[Case]:
    """Yield whole arrays of several lengths."""
    for size in segments or GRAPH_LENGTHS:
        if 0 < size <= length:
            for kind in ("sum", "scan"):
                yield Case(section, kind, size, size, in_graph=True)


def _graph_segments(section: str, length: int, segments: tuple[int, ...]) -> Iterator[Case]:
    """Yield arrays of several lengths, in segments of one size."""
    for each in segments or (GRAPH_SEGMENT,):
        for size in GRAPH_LENGTHS:
            if 0 < each <= size <= length:
                for kind in ("sum", "scan"):
                    yield Case(section, kind, each, size // each * each, in_graph=True)


def _energy(section: str, length: int, segments: tuple[int, ...]) -> Iterator[Case]:
    yield from _of_sizes(section, ("sum",), segments or ENERGY_SUMS, length)
    yield from _of_sizes(section, ("scan",), segments or ENERGY_SCANS, length)


def _products(section: str, length: int, segments: tuple[int, ...]) -> Iterator[Case]:
    """Yield products with a vector, at least one; and those of square matrices, two in the data."""
    vectors = [size for size in segments or VECTOR_SIZES if 0 < size**2 <= length]
    for size in vectors or [matrix_columns(length)]:
        yield Case(section, "matvec", size, size**2 if vectors else length)
    for size in segments or MATRIX_SIZES:
        if 0 < 2 * size**2 <= length:
            yield Case(section, "matmul", size, size**2)


def _segments(kinds: tuple[str, ...], own: tuple[int, ...]) -> Any:
    def make(section: str, length: int, segments: tuple[int, ...]) -> Iterator[Case]:
        return _of_sizes(section, kinds, segments or own, length)

    return make


SECTIONS: Final[dict[str, Callable[[str, int, tuple[int, ...]], Iterator[Case]]]] = {
    "sums": _segments(("sum",), POWERS),
    "scans": _segments(("scan",), POWERS),
    "products": _products,
    "sizes": _segments(("sum", "scan"), ODD_SIZES),
    "small": _segments(("sum", "scan"), SMALL_SIZES),
    "types": _types,
    "ragged": _ragged,
    "graphs": _graphs,
    "graph-segments": _graph_segments,
    EXACT: _segments(("sum", "scan"), EXACT_SIZES),
    ENERGY: _energy,
}


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
