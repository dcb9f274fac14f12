"""The predicted speeds of the paper's programs on a V100, beside those that its authors measured.

`PROGRAMS` has the configuration of each series, as figures/spec of the authors' repository
(c3sr/tcu_scope at 4b95813d) states it: the program and its warps in a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import records

import tcusim

__all__ = ["LENGTH", "PROGRAMS", "SIZES", "Point", "points", "within"]

LENGTH: Final = 2**30
# Sizes of segments that are compared: 16, and each fourth power of two from 256 on.
SIZES: Final = (2**4, *(4**n for n in range(4, 13)))
_SUMS, _SCANS = "paper_tune_segmented_reduction", "paper_tune_segmented_prefixsum"
# By the program: its figure, its label there, and the warps of a block.
PROGRAMS: Final = {
    "reduction_16n": (_SUMS, "Our 16N", 16),
    "reduction_256n": (_SUMS, "Our 256N", 4),
    "reduction_256n_block": (_SUMS, "Our 256N Block", 16),
    "scan_16n": (_SCANS, "Our 16N", 16),
    "scan_256n": (_SCANS, "Our 256N", 4),
    "scan_256n_block": (_SCANS, "Our 256N Block", 1),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One size of a series: 10**9 elements a second as measured and as predicted."""

    program: str
    segment: int
    measured: float
    predicted: float
    bound: str

    @property
    def ratio(self) -> float:
        """The predicted speed over the measured one."""
        return self.predicted / self.measured


def points(sizes: Sequence[int] = SIZES) -> Iterator[Point]:
    """Yield these sizes of each series of sums and scans."""
    for program, (figure, label, warps) in PROGRAMS.items():
        (series,) = (one for one in records.authors(figure) if one["label"] == label)
        measured = dict(zip(series["x"], series["y"], strict=True))
        for size in sizes:
            if size in measured:
                yield _point(program, size, warps, measured[size])


def _point(program: str, segment: int, warps: int, measured: float) -> Point:
    built = tcusim.build(program, segment_size=segment, warps=warps, acc="f16", result="f16")
    found = tcusim.cost(built, "v100", length=LENGTH)
    assert found.seconds is not None
    return Point(program, segment, measured, LENGTH / found.seconds / 1e9, found.bound)


def within(several: Sequence[Point], factor: float = 1.25) -> int:
    """Return the number of predictions within a factor of the measured speed."""
    return sum(1 / factor <= one.ratio <= factor for one in several)
