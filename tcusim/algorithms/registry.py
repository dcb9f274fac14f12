"""The algorithms by name, and `build`, which makes a step program of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tcusim.algorithms import block, gemm, gemv, grid, irregular, reduction, rows, scan
from tcusim.algorithms.builder import LENGTH, Builder, Options, Work, stored_type
from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.machine import FORMATS, format_of
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import Extent, Level, Program, Scalar

__all__ = [
    "Algorithm",
    "algorithm_of",
    "algorithms",
    "build",
    "register_algorithm",
    "segmented_algorithms",
]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row of the registry.

    name: the general name, with k for a segment of one row of a tile and t for a whole tile.
    function: writes the steps, given a Builder and a segment size; returns the elements that a
    warp (a block, if that is the level) takes, or the whole `Work` of the grid.
    kind: "reduction", "scan" or "product", which has no segments; "irregular_reduction" and
    "irregular_scan" have them by offsets, and the segment size is then that of a piece.
    level: who does a piece of work together.
    source: where the paper has it. alias: the paper's name, which stands for k = 16.
    tiles: whether the default segment is counted in tiles (m*k), not in rows (k). repeats: how
    many of those the default segment has; at grid level, where that is the whole array, those that
    a block of one warp takes.
    products: mma steps of one warp as a function of (m, n, k, N), the tile as the algorithm sees it
    (m rows of data) and the segment in rows or tiles; None where no mma is used. Of a block, if
    that is the level, or of all blocks of a segment: then a fifth number may be given, the warps W
    of a block; 1 if not. Where a warp takes T tiles for whole rows of P, it is these that the
    formula is in (see `rows.share_of`). Of a product: of the whole grid, a function of (m, n, k,
    rows, cols, inner), or without cols for a vector; sizes count as whole tiles of a block and
    whole steps.
    combines: how partial sums can be combined, the default first; see `build`.
    side: the operand for the data where the shape's sizes shall not decide.
    fixed: options that make the row.
    lines: which line of the paper's listing each part of the algorithm is.
    """

    name: str
    function: Callable[..., int | Work]
    kind: str
    source: str
    alias: str
    products: Callable[..., int] | None
    formula: str
    tiles: bool = False
    repeats: int = 1
    level: Level = Level.WARP
    combines: tuple[str, ...] = ("mma", "add")
    side: str | None = None
    fixed: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """First sentence of the algorithm's docstring."""
        text = inspect.getdoc(self.function) or ""
        return text.split("\n", 1)[0]

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options that `build` passes on to the function."""
        first = 1 if self.kind == "product" else 2
        names = list(inspect.signature(self.function).parameters)[first:]
        return tuple(name for name in names if name not in self.fixed)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _whole_blocks(count: int, per_block: int) -> int:
    return per_block * _ceil(count, per_block)


def _lines(listing: str, **numbers: int) -> dict[str, str]:
    return {part: f"{listing} line {number}" for part, number in numbers.items()}


_REGISTRY: dict[str, Algorithm] = {}


def register_algorithm(algorithm: Algorithm) -> Algorithm:
    """Add a row to the registry; a second row of one name is an error."""
    for name in (algorithm.name, algorithm.alias):
        if name in _aliases() or name in _REGISTRY:
            raise InputError(f"an algorithm named {name!r} is registered already")
    _REGISTRY[algorithm.name] = algorithm
    return algorithm


def algorithms() -> tuple[Algorithm, ...]:
    """Return every registered algorithm, reductions first."""
    return tuple(_REGISTRY.values())


def segmented_algorithms() -> tuple[Algorithm, ...]:
    """Return those that sum or scan segments of one size, of one input."""
    return tuple(row for row in algorithms() if row.kind in ("reduction", "scan"))


def algorithm_of(name: str) -> Algorithm:
    """Return the algorithm of this general or paper name, in any case."""
    key = str(name).lower()
    found = _REGISTRY.get(key) or _aliases().get(key)
    if found is None:
        raise unknown_name("algorithm", name, [*_REGISTRY, *_aliases()])
    return found


def build(
    algorithm: str,
    *,
    shape: str | tuple[int, int, int] | MmaShape = "16x16x16",
    segment_size: int | None = None,
    ab: str = "f16",
    accumulate: str = "f32",
    source: str | None = None,
    result: str | None = None,
    side: str | None = None,
    warps: int = 1,
    tiles: int = 1,
    ragged: bool = False,
    combine: str | None = None,
    chain: int | None = None,
    **options: Any,
) -> Program:
    """Build the step program of an algorithm for a tile shape.

    Parameters
    ----------
    algorithm : str
        A name of `tcusim list algorithms`, such as "scan_tn", or the paper's, such as "scan_256n".
    shape : str, tuple or MmaShape
        The tile, M-N-K order; see `tcusim.shape_of`.
    segment_size : int, optional
        Elements of a segment; the default fills a row or tile, or four where the name ends in n.
    ab : str
        Element type of the operands.
    accumulate : str
        Element type of the accumulator.
    source, result : str, optional
        Element types of the input and output arrays; by default those of ab and accumulate. A
        source wider than ab is split exactly into several parts (f32 into three bf16).
    side : {"a", "b"}, optional
        The operand that holds the data; by default the one that holds more segments.
    warps : int
        Warps per block.
    tiles : int
        Pieces of work for each warp, such as the m segments of one tile, one after the other.
    ragged : bool
        Accept inputs of any length, masked inside the program. If not, the length must be a whole
        number of what a block takes, as in the paper's listings.
    combine : {"mma", "add"}, optional
        How partial sums are combined: by further products, which round them to `ab` first, as in
        the paper; or by rounded additions in the type of the accumulator. Default: the first that
        the algorithm has, "mma" where it is in the paper.
    chain : int, optional
        The most products that accumulate before a rounded addition; no limit by default.
    **options
        Options of the algorithm, such as form="L(A1)" of the scans of tiles.

    Returns
    -------
    Program
        It has passed `tcusim.verify`.

    Raises
    ------
    UnknownName
        For a name that is not registered.
    Unsupported
        If the parts do not go together.
    """
    row = algorithm_of(algorithm)
    tile = shape_of(shape)
    _check_alias(row, algorithm, tile)
    _check_options(row, options)
    combine = _combine(row, combine)
    _check_types(ab, accumulate, source, result)
    b = Builder(
        Options(
            shape=tile,
            ab=ab,
            acc=accumulate,
            source=source or stored_type(ab),
            result=result or accumulate,
            side=_side(row, side, tile),
            warps=_positive("warps", warps),
            tiles=_positive("tiles", tiles),
            ragged=ragged,
            combine=combine,
            chain=None if chain is None else _positive("chain", chain),
        ),
        row.lines,
        row.level,
    )
    sizes = _sizes(row, b, segment_size)
    work = row.function(b, *sizes, **row.fixed, **options)
    if not isinstance(work, Work):
        per_block = work * tiles * (warps if row.level is Level.WARP else 1)
        scalar = Scalar("length", 1 if ragged else per_block)
        work = Work((scalar,), Extent(LENGTH, per_block))
    program = b.program(str(algorithm).lower(), row.source, work)
    verify(program)
    return program


def _aliases() -> dict[str, Algorithm]:
    return {row.alias: row for row in _REGISTRY.values() if row.alias}


def _combine(row: Algorithm, combine: str | None) -> str:
    """Return how partial sums are combined: as given, or as the algorithm does first."""
    if combine is None:
        return row.combines[0]
    _check_choice("combine", combine, ("mma", "add"))
    if combine not in row.combines:
        raise Unsupported(f"{row.name} has no combine={combine!r}, only {row.combines[0]!r}")
    return combine


def _sizes(row: Algorithm, b: Builder, segment_size: int | None) -> tuple[int | None, ...]:
    """Return the segment size (None: the whole array), or nothing if there are no segments."""
    if row.kind == "product":
        if segment_size is not None:
            raise InputError(f"{row.name} has no segments; leave segment_size out")
        return ()
    if segment_size is None and row.level is Level.GRID:
        return (None,)
    if segment_size is None:
        return (row.repeats * (b.m * b.k if row.tiles else b.k),)
    return (_positive("segment_size", segment_size),)


def _side(row: Algorithm, side: str | None, shape: MmaShape) -> str:
    """Return the operand for the data: the given one, or the one that holds more of them."""
    if side is not None:
        _check_choice("side", side, ("a", "b"))
        return side
    if row.side is not None:
        return row.side
    if shape.m == shape.n:
        # The paper reduces with P.A, data on the right, and scans with A.U, data on the left.
        return "b" if row.kind.endswith("reduction") else "a"
    return "a" if shape.m > shape.n else "b"


def _check_alias(row: Algorithm, name: str, shape: MmaShape) -> None:
    if str(name).lower() == row.alias != row.name and shape.k != 16:
        raise Unsupported(
            f"{name!r} is the paper's name for k = 16, but {shape.name} has k = {shape.k}; "
            f"use {row.name!r}"
        )


def _check_options(row: Algorithm, options: dict[str, Any]) -> None:
    for name in options:
        if name not in row.options:
            valid = ", ".join(row.options) or "none"
            raise InputError(f"{row.name} has no option {name!r}; its options: {valid}")


def _check_choice(name: str, value: object, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise InputError(f"{name} must be one of {', '.join(map(repr, valid))}, got {value!r}")


def _check_types(ab: str, acc: str, source: str | None, result: str | None) -> None:
    for name in (ab, acc, source, result):
        if name is not None:
            format_of(name)
    narrow = format_of(ab)
    wide = format_of(source or stored_type(ab))
    if narrow.is_float != wide.is_float or wide.fraction_bits < narrow.fraction_bits:
        valid = [name for name, row in FORMATS.items() if row.is_float == narrow.is_float]
        raise Unsupported(
            f"a source of type {wide.name} cannot be split into parts of type {ab}; the source "
            f"must be as wide, of {', '.join(valid)}"
        )


def _positive(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be an integer of at least 1, got {value!r}")
    return value


# The counts are for segments of whole rows or tiles, combine="mma", and one part; those of scans of
# a block for at most k warps.
for _row in (
    Algorithm(
        "reduction_k",
        reduction.reduction_k,
        "reduction",
        "[DAKKAK19] section 4.1, Algorithm 1",
        "reduction_16",
        lambda m, n, k, count: 1,
        "1",
        lines=_lines("Alg. 1", init=1, load=3, product=4, out=5),
    ),
    Algorithm(
        "reduction_kn",
        reduction.reduction_kn,
        "reduction",
        "[DAKKAK19] section 4.1, Figure 8",
        "reduction_16n",
        lambda m, n, k, count: count,
        "N",
        repeats=4,
    ),
    Algorithm(
        "reduction_kn_coalesced",
        reduction.reduction_kn_coalesced,
        "reduction",
        "[DAKKAK19] section 4.1, Algorithm 3, corrected",
        "reduction_16n_coalesced",
        lambda m, n, k, count: m * _ceil(count, m) + _ceil(m, n) * _ceil(m, k),
        "m*ceil(N/m) + ceil(m/n)*ceil(m/k)",
        repeats=4,
        lines=_lines("Alg. 3", init=1, zero=2, loop=5, load=7, product=8, out=10),
    ),
    Algorithm(
        "reduction_packed",
        reduction.reduction_packed,
        "reduction",
        "not in the paper",
        "reduction_16_packed",
        lambda m, n, k, count: n * count,
        "n*N",
    ),
    Algorithm(
        "reduction_rows",
        rows.reduction_rows,
        "reduction",
        "not in the paper",
        "",
        rows.products_of_sum,
        "T",
        tiles=True,
        repeats=4,
        combines=("add",),
    ),
    Algorithm(
        "reduction_t",
        reduction.reduction_t,
        "reduction",
        "[DAKKAK19] section 4.1, Algorithm 2",
        "reduction_256",
        lambda m, n, k, count: 1 + _ceil(m, k),
        "1 + ceil(m/k)",
        tiles=True,
        lines=_lines("Alg. 2", init=1, load=3, product=4, finish=5, out=6),
    ),
    Algorithm(
        "reduction_tn",
        reduction.reduction_tn,
        "reduction",
        "[DAKKAK19] section 4.1, Figure 7",
        "reduction_256n",
        lambda m, n, k, count: count + _ceil(m, k),
        "N + ceil(m/k)",
        tiles=True,
        repeats=4,
        fixed={"efficient": True},
    ),
    Algorithm(
        "reduction_tn_inefficient",
        reduction.reduction_tn,
        "reduction",
        "[DAKKAK19] section 4.1, Figure 6",
        "reduction_256n_inefficient",
        lambda m, n, k, count: count * (1 + _ceil(m, k)),
        "N*(1 + ceil(m/k))",
        tiles=True,
        repeats=4,
        combines=("mma",),
        fixed={"efficient": False},
    ),
    Algorithm(
        "reduction_kn_block",
        block.reduction_kn_block,
        "reduction",
        "not in the paper",
        "reduction_16n_block",
        lambda m, n, k, count, warps=1: warps * _ceil(count, warps) + _ceil(warps, k),
        "W*ceil(N/W) + ceil(W/k)",
        repeats=4,
        level=Level.BLOCK,
    ),
    Algorithm(
        "reduction_tn_block",
        block.reduction_tn_block,
        "reduction",
        "[DAKKAK19] section 4.2, Algorithm 4, corrected",
        "reduction_256n_block",
        lambda m, n, k, count, warps=1: (
            warps * (_ceil(count, warps) + _ceil(m, k)) + _ceil(warps, k)
        ),
        "W*(ceil(N/W) + ceil(m/k)) + ceil(W/k)",
        tiles=True,
        repeats=4,
        level=Level.BLOCK,
        lines=_lines(
            "Alg. 4", loop=3, load=3, product=3, finish=3, partial=4, sync=5, first=6, last=6, out=6
        ),
    ),
    Algorithm(
        "reduction_plain",
        reduction.reduction_plain,
        "reduction",
        "not in the paper",
        "",
        None,
        "0",
        repeats=16,
    ),
    Algorithm(
        "scan_k",
        scan.scan_k,
        "scan",
        "[DAKKAK19] section 5.1, segment size 16",
        "scan_16",
        lambda m, n, k, count: _ceil(k, n),
        "ceil(k/n)",
    ),
    Algorithm(
        "scan_kn",
        scan.scan_kn,
        "scan",
        "[DAKKAK19] section 5.1, Algorithm 5",
        "scan_16n",
        lambda m, n, k, count: count * _ceil(k, n),
        "N*ceil(k/n)",
        repeats=4,
        lines=_lines("Alg. 5", init=1, zero=3, loop=5, load=7, R=8, carry=9, out=12),
    ),
    Algorithm(
        "scan_t",
        scan.scan_t,
        "scan",
        "[DAKKAK19] section 5.1, segment size 256",
        "scan_256",
        lambda m, n, k, count: _ceil(k, n) * (2 + _ceil(m, k)),
        "ceil(k/n)*(2 + ceil(m/k))",
        tiles=True,
    ),
    Algorithm(
        "scan_tn",
        scan.scan_tn,
        "scan",
        "[DAKKAK19] section 5.1, Algorithm 6",
        "scan_256n",
        lambda m, n, k, count: count * _ceil(k, n) * (2 + _ceil(m, k)),
        "N*ceil(k/n)*(2 + ceil(m/k))",
        tiles=True,
        repeats=4,
        lines=_lines("Alg. 6", init=1, zero=3, loop=4, load=6, AU=7, LA=8, R=9, out=10, carry=11),
    ),
    Algorithm(
        "scan_rows",
        rows.scan_rows,
        "scan",
        "not in the paper",
        "",
        rows.products_of_scan,
        "T*(ceil(k/n) + 1) - T/P",
        tiles=True,
        repeats=4,
        combines=("add",),
    ),
    Algorithm(
        "scan_kn_block",
        block.scan_kn_block,
        "scan",
        "not in the paper",
        "scan_16n_block",
        lambda m, n, k, count, warps=1: (
            _ceil(count, warps) * (warps * _ceil(k, n) + _ceil(warps, n))
        ),
        "ceil(N/W)*(W*ceil(k/n) + ceil(W/n))",
        repeats=4,
        level=Level.BLOCK,
    ),
    Algorithm(
        "scan_tn_block",
        block.scan_tn_block,
        "scan",
        "[DAKKAK19] section 5.2, Algorithm 7, corrected",
        "scan_256n_block",
        lambda m, n, k, count, warps=1: (
            _ceil(count, warps) * (warps * _ceil(k, n) * (2 + _ceil(m, k)) + _ceil(warps, n))
        ),
        "ceil(N/W)*(W*ceil(k/n)*(2 + ceil(m/k)) + ceil(W/n))",
        tiles=True,
        repeats=4,
        level=Level.BLOCK,
        lines=_lines(
            "Alg. 7",
            init=1,
            zero=6,
            loop=7,
            load=9,
            AU=10,
            LA=11,
            R=12,
            store=13,
            gather=14,
            first=15,
            E=16,
            scan=17,
            spread=18,
            out=22,
            carry=23,
        ),
    ),
    Algorithm(
        "scan_plain",
        scan.scan_plain,
        "scan",
        "not in the paper",
        "",
        None,
        "0",
        repeats=16,
    ),
    Algorithm(
        "reduction_grid",
        grid.reduction_grid,
        "reduction",
        "[DAKKAK19] section 6.4, in one launch",
        "",
        lambda m, n, k, count, warps=1: _whole_blocks(count, 16 * warps),
        "16*W*ceil(N/(16*W))",
        tiles=True,
        repeats=16,
        level=Level.GRID,
        combines=("add",),
    ),
    Algorithm(
        "scan_grid",
        grid.scan_grid,
        "scan",
        "[DAKKAK19] section 6.4, in one launch",
        "",
        lambda m, n, k, count, warps=1: (
            _whole_blocks(count, 8 * warps) // 2 * (2 * _ceil(k, n) + 3)
        ),
        "8*W*ceil(N/(8*W))*(ceil(k/n) + 3/2)",
        tiles=True,
        repeats=8,
        level=Level.GRID,
        combines=("add",),
    ),
    Algorithm(
        "reduction_pieces",
        irregular.reduction_pieces,
        "irregular_reduction",
        "not in the paper",
        "",
        lambda m, n, k, count: count,
        "N",
        repeats=4,
    ),
    Algorithm(
        "reduction_pieces_plain",
        irregular.reduction_pieces_plain,
        "irregular_reduction",
        "not in the paper",
        "",
        None,
        "0",
        repeats=4,
    ),
    Algorithm(
        "scan_pieces",
        irregular.scan_pieces,
        "irregular_scan",
        "not in the paper",
        "",
        lambda m, n, k, count: count * _ceil(k, n),
        "N*ceil(k/n)",
        repeats=4,
    ),
    Algorithm(
        "scan_pieces_plain",
        irregular.scan_pieces_plain,
        "irregular_scan",
        "not in the paper",
        "",
        None,
        "0",
        repeats=4,
    ),
    Algorithm(
        "gemm_naive",
        gemm.gemm_naive,
        "product",
        "[DAKKAK19] section 2, C = A.B + C",
        "",
        lambda m, n, k, rows, cols, inner: _ceil(rows, m) * _ceil(cols, n) * _ceil(inner, k),
        "ceil(rows/m)*ceil(cols/n)*ceil(inner/k)",
        side="a",
    ),
    Algorithm(
        "gemm",
        gemm.gemm,
        "product",
        "[DAKKAK19] section 2, C = A.B + C",
        "",
        lambda m, n, k, rows, cols, inner: _ceil(rows, m) * _ceil(cols, n) * _ceil(inner, k),
        "ceil(rows/m)*ceil(cols/n)*ceil(inner/k)",
        level=Level.BLOCK,
        side="a",
    ),
    Algorithm(
        "gemv",
        gemv.gemv,
        "product",
        "[DAKKAK19] section 2, with a padded vector",
        "",
        lambda m, n, k, rows, inner: _ceil(rows, m) * _ceil(inner, k),
        "ceil(rows/m)*ceil(inner/k)",
    ),
    Algorithm(
        "gemv_reduction",
        gemv.gemv_reduction,
        "product",
        "not in the paper",
        "",
        lambda m, n, k, rows, inner: _ceil(rows, m) * _ceil(inner, k),
        "ceil(rows/m)*ceil(inner/k)",
        level=Level.BLOCK,
    ),
):
    register_algorithm(_row)
