"""Which step program multiplies matrices of given sizes and types."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from tcusim.algorithms import algorithm_of, build
from tcusim.arrays.launches import CHAIN
from tcusim.arrays.problem import Shape
from tcusim.errors import Unsupported
from tcusim.machine import format_of
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.grammar import Program
from tcusim.program.resources import fitting

__all__ = ["product_program"]

# Results from which on blocks of 128x128 are enough for every multiprocessor of a large GPU.
_MANY_RESULTS: Final = 2**21
# k tiles that accumulate where the result is rounded to half precision: a unit that truncates four
# times in a tile of 16, at 2**-23 of the sum, then drifts by an eighth of float16's last bit.
_CHAIN_TO_NARROW: Final = 256
# Rows of a matrix from which on there are enough warps if each has 32 of its own.
_MANY_ROWS: Final = 2**14


def product_program(
    types: tuple[str, str, str, str],
    rows: int,
    cols: int,
    inner: int,
    *,
    add_c: bool,
    shape: Shape | None,
    algorithm: str | None,
    unit: str | None = None,
) -> tuple[Program, str | None]:
    """Build the program for (rows, inner) by (inner, cols): the named one, or the one that suits.

    types: (ab, acc, source, result) element types. add_c: whether an array is added. shape: the
    tile; None is the default for the type. unit: the one on which blocks must have room; None has
    room for all. Return also why blocks are smaller than usual, or None.
    """
    name = _algorithm(algorithm, cols)
    vector = name.startswith("gemv")
    ab = types[0]
    default = "8x8x4" if ab == "f64" else "16x16x16"
    tile = shape_of(shape or default)
    options: dict[str, Any] = {"inner": inner, "add_c": add_c, "chain": _chain(types)}
    if not vector:
        options["cols"] = cols
    choices: list[dict[str, Any]] = [{}]
    if name == "gemm":
        itemsize = format_of(ab).itemsize
        choices = _tilings(tile, rows, cols, itemsize, parts=types[2] != ab)
    elif name == "gemv_reduction":
        choices = _readings(tile, rows, inner, format_of(types[2]).itemsize)

    def build_with(choice: dict[str, Any]) -> Program:
        return _built(name, tile, types, tuple((options | choice).items()))

    _, program, why = fitting(build_with, choices, unit)
    return program, why


def _chain(types: tuple[str, str, str, str]) -> int | None:
    """Return how many k tiles may accumulate: s32 and f64 do not drift, and f16 is the paper's."""
    _, acc, _, result = types
    if acc != "f32":
        return None
    return CHAIN if result == "f32" else _CHAIN_TO_NARROW


def _algorithm(name: str | None, cols: int) -> str:
    """Return the algorithm: the named one if it does such products, or the one that suits."""
    if name is None:
        return "gemv_reduction" if cols == 1 else "gemm"
    row = algorithm_of(name)
    if row.kind != "product":
        raise Unsupported(f"{name!r} is a {row.kind}, and this is a product")
    if row.name.startswith("gemv") and cols != 1:
        raise Unsupported(
            f"{name!r} multiplies a matrix by one vector, and b has {cols} columns; use 'gemm'"
        )
    return row.name


def _tilings(
    tile: MmaShape, rows: int, cols: int, itemsize: int, *, parts: bool
) -> list[dict[str, Any]]:
    """Return options of "gemm": how large a block's tile is, and how many warps share it.

    The first are those that suit; the others are of smaller blocks.
    """
    # Warps, those that lie one below the other, and the height and width of what each makes.
    sizes = [(8, 2, 64, 32), (4, 2, 32, 32), (1, 1, 32, 32), (1, 1, 16, 16)]
    if rows * cols < _MANY_RESULTS or min(rows, cols) < 128 or parts:
        sizes = sizes[1:] if min(rows, cols) > 32 else sizes[2:]
    return [
        {
            "warps": warps,
            "warps_down": warps_down,
            "down": max(1, height // tile.m),
            "across": max(1, width // tile.n),
            # 64 bytes of each row: two sectors of memory.
            "depth": max(1, 64 // (tile.k * itemsize)),
        }
        for warps, warps_down, height, width in sizes
    ]


def _readings(tile: MmaShape, rows: int, inner: int, itemsize: int) -> list[dict[str, Any]]:
    """Return options of "gemv_reduction": enough bytes on their way, in little shared memory.

    Memory is kept busy by some megabytes at a time. Many rows have many warps, each of which takes
    256 bytes of two tiles of rows, by one operand of the vector; of few rows, four warps share
    each, and take 128 bytes in turn. The first options are those that suit; then come fewer warps.
    """
    if rows >= _MANY_ROWS:
        width = max(1, 256 // (tile.k * itemsize))
        options: dict[str, Any] = {"down": 2, "width": width, "chunk": 2**11}
    else:
        width = max(1, 128 // (tile.k * itemsize))
        if inner < 4 * width * tile.k:
            return [{"width": width}]
        options = {"width": width, "share_rows": True}
    return [{"warps": warps, **options} for warps in (4, 2, 1)]


@lru_cache(maxsize=64)
def _built(
    name: str,
    tile: MmaShape,
    types: tuple[str, str, str, str],
    options: tuple[tuple[str, Any], ...],
) -> Program:
    ab, acc, source, result = types
    given = dict(options)
    return build(name, shape=tile, ab=ab, accumulate=acc, source=source, result=result, **given)
