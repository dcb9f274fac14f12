"""The predicted speeds of the paper's programs on a V100, beside those that its authors measured.

`PROGRAMS` has the configuration of each series, as figures/spec of the authors' repository
(c3sr/tcu_scope at 4b95813d) states it: the program and its warps in a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import records
from thinned import some

import tcusim
from tcusim.judge.cost.predicted import Cost
from tcusim.machine import Figure, unit_of
from tcusim_bench.record import Row

LENGTH: Final = 2**30
# The authors' board is not the one of `v100`, and of another clock.
BOARD: Final = replace(
    unit_of("v100"),
    name="v100 pcie",
    title="NVIDIA V100 PCIe 16 GB",
    note="",
    clock=Figure(1.38e9, "[DAKKAK19] figure 2", "published"),
)
# Sizes of segments that are compared: 16, and each fourth power of two from 256 on.
SIZES: Final = (2**4, *(4**n for n in range(4, 13)))
# Those of the page: each power of two up to the last.
ALL_SIZES: Final = tuple(2**n for n in range(4, 25))
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


# Programs of segments of one size, that of a row or of a tile.
_OF_ONE_SIZE: Final = ("reduction_16", "reduction_256", "scan_16", "scan_256")
# By the series: its figure, its label there, the program, and its options. `gemm` has the block of
# the measured one, of 8 warps that multiply 2 by 4 tiles each, but two stages of half its depth.
_BLOCK: Final = {"warps": 8, "down": 2, "across": 4, "warps_down": 4, "depth": 4, "stages": 2}
PRODUCTS: Final[dict[str, tuple[str, str, str, dict[str, Any]]]] = {
    "gemm f16": ("gemm_16_16", "WMMA HGEMM", "gemm", {"acc": "f16", **_BLOCK}),
    "gemm f32": ("gemm_16_32", "WMMA MGEMM", "gemm", {"acc": "f32", **_BLOCK}),
    "gemm_naive f32": (
        "gemm_16_32",
        'WMMA MGEMM (na\\"ive)',
        "gemm_naive",
        {"acc": "f32", "warps": 16},
    ),
}
# Rows of the square matrices that are compared.
PRODUCT_SIZES: Final = (256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Point:
    """One size of a series, as measured and as predicted.

    segment: of sums and scans; the rows of a product. measured, predicted: 10**9 elements a second,
    or 10**12 operations.
    """

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
        measured = _series(figure, label)
        for size in sizes:
            if size in measured:
                options: dict[str, Any] = {"segment_size": size, "warps": warps}
                found = tcusim.cost(
                    tcusim.build(program, acc="f16", result="f16", **options), BOARD, length=LENGTH
                )
                yield _point(program, size, measured[size], LENGTH / 1e9, found)


def products(sizes: Sequence[int] = PRODUCT_SIZES) -> Iterator[Point]:
    """Yield these sizes of each series of products."""
    for name, (figure, label, program, options) in PRODUCTS.items():
        measured = _series(figure, label)
        for size in sizes:
            result = options["acc"]
            built = tcusim.build(
                program, inner=size, cols=size, result=result, add_c=True, **options
            )
            found = tcusim.cost(built, BOARD, sizes={one.name: size**2 for one in built.inputs})
            yield _point(name, size, measured[size], 2 * size**3 / 1e12, found)


def _series(figure: str, label: str) -> dict[int, float]:
    (series,) = (one for one in records.authors(figure) if one["label"] == label)
    return dict(zip(series["x"], series["y"], strict=True))


def _point(program: str, size: int, measured: float, work: float, found: Cost) -> Point:
    assert found.seconds is not None
    return Point(program, size, measured, work / found.seconds, found.bound)


def on_h200() -> Iterator[Point]:
    """Yield the fastest run of each program, size and type on an H200, of figures 10 and 12."""
    for name in ("10", "12"):
        report = records.figure(name)
        assert report is not None
        for row in some(report.best()):
            if row.status == "ok" and row.ms and row.who.startswith("tcusim "):
                yield _run(row)


def _run(row: Row) -> Point:
    # Such as "reduction_16n 16x16x16 warps=4 mma".
    program, tile, *options = row.label.split()
    given: dict[str, Any] = {name: int(value) for name, value in map(_option, options[:-1])}
    if program not in _OF_ONE_SIZE:
        given["segment_size"] = row.case.segment_size
    built = tcusim.build(
        program, tile=tile, acc=row.acc, result=row.result, combine=options[-1], **given
    )
    measured = row.case.length / row.ms / 1e6
    found = tcusim.cost(built, "h200", length=row.case.length)
    return _point(program, row.case.segment_size, measured, row.case.length / 1e9, found)


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return ("items_per_warp" if name == "items" else name), value


def within(several: Sequence[Point], factor: float = 1.25) -> int:
    """Return the number of predictions within a factor of the measured speed."""
    return sum(1 / factor <= one.ratio <= factor for one in several)
