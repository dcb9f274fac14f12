"""The predicted speeds of the paper's programs on a V100, beside those that its authors measured.

`PROGRAMS` has the configuration of each series, as figures/spec of the authors' repository
(c3sr/tcu_scope at 4b95813d) states it: the program and its warps in a block. `scan_16n` is not the
program of that name but the kernel that was measured, which is no scan of the array.

Predictions are read from a record, so that the page need not repeat them: `python
docs/tools/authors_cost.py` writes it anew.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import records

import tcusim
from tcusim.algorithms.builder import LENGTH as ELEMENTS
from tcusim.algorithms.builder import Builder, Options, Work
from tcusim.algorithms.tile_scan import upper
from tcusim.judge.cost.predicted import Cost
from tcusim.machine import Figure, Unit, unit_of
from tcusim.machine.multiprocessors import LANES, REGISTERS
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import BLOCK, WARP, Extent, Program, Scalar
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


# Registers of a thread of the measured scan, from these segments on.
_SCAN_REGISTERS: Final = {1024: 72, 64: 56, 32: 48, 16: 32}
_RECORD: Final = "cost_predicted.json"
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
    or 10**12 operations. seconds: as predicted. label: of a run, its whole configuration.
    """

    program: str
    segment: int
    measured: float
    predicted: float
    bound: str
    seconds: float
    label: str = ""

    @property
    def ratio(self) -> float:
        """The predicted speed over the measured one."""
        return self.predicted / self.measured


def measured_scan(segment: int, warps: int = 16) -> Program:
    """Return the kernel `16N_OPT`, of a 16th of the array, as the authors measured it.

    Each warp takes 16 segments, `warps` apart, but each block begins only `warps` segments after
    the one before it: 16 blocks read and write the same rows. Results leave shared memory as
    elements of two bytes, two rows an instruction. The program's `length` has `warps` segments of
    each block.
    """
    size = shape_of("16x16x16")
    b = Builder(Options(size, acc="f16", result="f16", warps=warps))
    apart, rows = warps * segment, 2
    first = (BLOCK * warps + WARP) * segment
    arrays = Extent(ELEMENTS + (size.m - 1) * apart)
    source, out = b.input("in", "f16", arrays), b.output("out", "f16", arrays)
    (u,) = upper(b)
    r = b.zero(b.accumulator("R"))
    carried = b.rect(b.scratch("next", "f16", size.m * size.n), 0, size.m, size.n, size.n)
    with b.loop("i", segment // size.k) as i:
        a = b.load(b.left("A"), b.rect(source, first + i * size.k, size.m, size.k, apart))
        kept = b.spill(b.mma(r, a, u, r), "current")
        for row in range(0, size.m, rows):
            place = first + i * size.k + row * apart
            b.copy(b.rect(out, place, rows, size.n, apart), b.part(kept, rows, size.n, row))
            last = b.part(kept, rows, size.n, row, size.n - 1, repeat="col")
            b.copy(b.cut(carried, rows, size.n, row), last)
        b.barrier()
        b.load(r, carried)
    work = Work((Scalar("length", apart),), Extent(ELEMENTS, apart))
    return b.program("scan_16n", "c3sr/tcu_scope at 4b95813d, 16N_OPT", work)


def _board_of_scan(segment: int, warps: int) -> Unit:
    """Return the board, with the blocks that the registers of the measured scan leave room for."""
    # Its loop is unrolled 32 times, so that it takes more registers than its fragments.
    each = next(count for size, count in _SCAN_REGISTERS.items() if segment >= size)
    source = f"{each} registers a thread, as NVRTC 12.9 compiles the kernel for sm_70"
    blocks = Figure(REGISTERS // (warps * LANES * each), source, "derived")
    return replace(BOARD, blocks_per_core=blocks)


def points(sizes: Sequence[int] = SIZES, *, anew: bool = False) -> Iterator[Point]:
    """Yield these sizes of each series of sums and scans.

    anew: with the model as it is, rather than as it was recorded.
    """
    for program, (figure, label, warps) in PROGRAMS.items():
        measured = _series(figure, label)
        for size in sizes:
            if size in measured:
                found = functools.partial(_cost_of, program, size, warps)
                yield _point("v100", program, size, measured[size], LENGTH / 1e9, found, anew=anew)


def _cost_of(program: str, size: int, warps: int) -> Cost:
    if program == "scan_16n":
        scan = measured_scan(size, warps)
        touched = LENGTH // 16 + 15 * warps * size
        return tcusim.cost(scan, _board_of_scan(size, warps), length=touched)
    options: dict[str, Any] = {"segment_size": size, "warps": warps}
    return tcusim.cost(
        tcusim.build(program, acc="f16", result="f16", **options), BOARD, length=LENGTH
    )


def products(sizes: Sequence[int] = PRODUCT_SIZES, *, anew: bool = False) -> Iterator[Point]:
    """Yield these sizes of each series of products; anew: as in `points`."""
    for name, (figure, label, program, options) in PRODUCTS.items():
        measured = _series(figure, label)
        for size in sizes:
            found = functools.partial(_cost_of_product, program, size, options)
            work = 2 * size**3 / 1e12
            yield _point("v100", name, size, measured[size], work, found, anew=anew)


def _cost_of_product(program: str, size: int, options: dict[str, Any]) -> Cost:
    built = tcusim.build(
        program, inner=size, cols=size, result=options["acc"], add_c=True, **options
    )
    return tcusim.cost(built, BOARD, sizes={one.name: size**2 for one in built.inputs})


def _series(figure: str, label: str) -> dict[int, float]:
    (series,) = (one for one in records.authors(figure) if one["label"] == label)
    return dict(zip(series["x"], series["y"], strict=True))


def _point(
    unit: str,
    program: str,
    size: int,
    measured: float,
    work: float,
    found: Callable[[], Cost],
    *,
    anew: bool,
    label: str = "",
) -> Point:
    """Return a point. work: what it does, so that work over time is a speed."""
    known = None if anew else _recorded().get(_key(unit, label or program, size))
    if known is None:
        cost = found()
        assert cost.seconds is not None
        known = [cost.seconds, cost.bound]
    seconds, bound = known
    return Point(program, size, measured, work / seconds, bound, seconds, label)


def _key(unit: str, label: str, size: int) -> str:
    return f"{unit} {label} {size}"


@functools.cache
def _recorded() -> dict[str, list[Any]]:
    """Return the recorded seconds and bounds."""
    found = records.read(_RECORD)
    return {} if found is None else found["predicted"]


def record() -> None:
    """Write the record: all predictions of the page, of the model as it is."""
    found = {
        _key(unit, one.label or one.program, one.segment): [
            float(f"{one.seconds:.5g}"),
            one.bound,
        ]
        for unit, several in (
            ("v100", (*points(ALL_SIZES, anew=True), *products(anew=True))),
            ("h200", on_h200(anew=True)),
        )
        for one in several
    }
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    what = "Seconds that tcusim.cost predicts, and the bound; by unit, program and segment or rows."
    text = f'{{"what": {json.dumps(what)},\n"predicted": {{\n{rows}\n}}}}\n'
    (records.DATA / _RECORD).write_text(text, encoding="utf-8")


def on_h200(every: int = 1, *, anew: bool = False) -> Iterator[Point]:
    """Yield the fastest run of each program, size and type on an H200, of figures 10 and 12.

    every: of how many runs one. anew: as in `points`.
    """
    runs = [
        row
        for name in ("10", "12")
        for row in _rows(name)
        if row.status == "ok" and row.ms and row.who.startswith("tcusim ")
    ]
    for row in runs[::every]:
        assert row.ms is not None
        # Such as "reduction_16n 16x16x16 warps=4 mma".
        program = row.label.split()[0]
        measured = row.case.length / row.ms / 1e6
        found = functools.partial(_cost_of_run, row)
        label = f"{row.label} {row.acc} {row.result} {row.case.length}"
        size, work = row.case.segment_size, row.case.length / 1e9
        yield _point("h200", program, size, measured, work, found, anew=anew, label=label)


def _rows(name: str) -> Sequence[Row]:
    report = records.figure(name)
    assert report is not None
    return report.best()


def _cost_of_run(row: Row) -> Cost:
    program, tile, *options = row.label.split()
    given: dict[str, Any] = {name: int(value) for name, value in map(_option, options[:-1])}
    if program not in _OF_ONE_SIZE:
        given["segment_size"] = row.case.segment_size
    built = tcusim.build(
        program, tile=tile, acc=row.acc, result=row.result, combine=options[-1], **given
    )
    return tcusim.cost(built, "h200", length=row.case.length)


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return ("items_per_warp" if name == "items" else name), value


def within(several: Sequence[Point], factor: float = 1.25) -> int:
    """Return the number of predictions within a factor of the measured speed."""
    return sum(1 / factor <= one.ratio <= factor for one in several)


if __name__ == "__main__":
    record()
