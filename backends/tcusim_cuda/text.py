"""How the parts of a step are said in C: indices, bounds, values and constants."""

from __future__ import annotations

import math
from dataclasses import replace

from tcusim.machine import format_of
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    Extent,
    Gathered,
    Index,
    Pattern,
    PatternKind,
    Space,
    View,
)


class _CTypes(dict[str, str]):
    """Names of element types in C; a float that CUDA does not have is a struct of tiles.cuh."""

    def __missing__(self, dtype: str) -> str:
        return f"tcu::{dtype}"


# The name of an element in memory.
C_TYPES = _CTypes(
    {
        "f16": "half",
        "bf16": "__nv_bfloat16",
        "tf32": "float",
        "f32": "float",
        "f64": "double",
        "s8": "signed char",
        "u8": "unsigned char",
        "s32": "int",
        "s64": "long long",
    }
)


def is_coded(dtype: str) -> bool:
    """Return whether kernels have the bits of a type's elements: CUDA, or a GPU, lacks it."""
    return dtype not in C_TYPES


def c_index(index: Index) -> str:
    """Print an index as C, with 64-bit products where 32 bits might not do."""
    parts = []
    for name, factor in sorted(index.terms, key=lambda term: _ORDER.get(term[0], 1)):
        suffix = "LL" if abs(factor) >= 2**16 else ""
        parts.append(name if factor == 1 else f"{factor}{suffix}*{name}")
    if index.const or not parts:
        parts.append(str(index.const))
    return " + ".join(parts).replace("+ -", "- ")


# The number of an element within its vector.
_AT = Index.symbol("at")
# A warp's place first, the element's within the tile last.
_ORDER = {"block": -6, "block_row": -5, "block_col": -4}
_ORDER |= {"warp": -3, "warp_row": -2, "warp_col": -1}
_ORDER |= {"row": 2, "col": 3, "at": 4}


def wrapped(text: str) -> str:
    """Put a sum in parentheses."""
    return f"({text})" if " " in text else text


def c_extent(extent: Extent) -> str:
    """Print a count as C: `(length + 255) / 256` for its ceil(length / 256)."""
    if extent.constant is not None:
        return str(extent.constant)
    if extent.per == 1:
        return c_index(extent.index)
    return f"({c_index(extent.index + (extent.per - 1))}) / {extent.per}"


def _flat_sides(view: View) -> dict[str, int]:
    """Return zeros for the sides of a rectangle that have one element."""
    return {name: 0 for name, extent in (("row", view.rows), ("col", view.cols)) if extent == 1}


def c_place(view: View) -> Index:
    """Return the index of element (row, col); a side of one element has no symbol."""
    return view.address.substitute(_flat_sides(view))


def c_bound(bound: Bound) -> str:
    """Print `lhs < rhs`."""
    return f"{c_index(bound.lhs)} < {c_index(bound.rhs)}"


def c_line(view: View, end: str) -> str:
    """Print the begin of the line of element (row, col), or its end if `end` says so."""
    assert view.ranges is not None
    side = "row" if isinstance(view.row_axis, Gathered) else "col"
    return f"{view.ranges.name}_{end}[{_flat_sides(view).get(side, side)}]"


# The condition of elements that are never in bounds.
NEVER = "false"


def c_bounds(view: View) -> str:
    """Print the condition under which element (row, col) is in bounds.

    It is "" if it always is, and `NEVER` if a constant fails: its address is then no place of the
    buffer, and the compiler would keep a buffer that is not read otherwise.
    """
    flat, texts = _flat_sides(view), []
    for bound in view.bounds:
        known = Bound(bound.lhs.substitute(flat), bound.rhs.substitute(flat))
        if known.excess.terms:
            texts.append(c_bound(known))
        elif known.excess.const >= 0:
            return NEVER
    if view.ranges is not None:
        texts.append(f"{c_address(view)} < {c_line(view, 'end')}")
    return " && ".join(texts)


def c_address(view: View) -> str:
    """Print the place of element (row, col) in its buffer."""
    if view.ranges is None:
        return c_index(c_place(view))
    return f"{c_line(view, 'begin')} + {c_index(c_place(view))}"


def c_within(view: View, value: str, otherwise: str) -> str:
    """Print a value for where element (row, col) is in bounds, and another for where it is not."""
    bounds = c_bounds(view)
    if bounds == NEVER:
        return otherwise
    return f"({bounds} ? {value} : {otherwise})" if bounds else value


def c_when(view: View, statement: str) -> str:
    """Print a statement that is run where element (row, col) is in bounds."""
    bounds = c_bounds(view)
    return f"if ({bounds}) {statement}" if bounds else statement


def c_value(view: View) -> str:
    """Print the read of an element: zero where a bound fails."""
    read = f"{view.buffer.name}[{c_address(view)}]"
    return c_within(view, read, c_literal(view.buffer.dtype, 0))


def c_pointer(buffer: Buffer, place: Index) -> str:
    """Print the address of an element of a buffer."""
    if place == Index() and buffer.space is Space.GLOBAL:
        return buffer.name
    return f"&{buffer.name}[{c_index(place)}]"


def c_pointer_at(buffer: Buffer, place: Index) -> str:
    """Print the address of an element as one that its constant is added to.

    Within an index, or where it only sets bits that are known to be 0, the compiler makes of each
    constant an address of its own, which in a loop takes a register; added to a pointer of which
    nothing is known, it becomes part of the access.
    """
    if not place.terms:
        return c_pointer(buffer, place)
    step = f" {'+' if place.const > 0 else '-'} {abs(place.const)}" if place.const else ""
    return f"&{buffer.name}[tcu::unknown({c_index(Index(place.terms))})]{step}"


def c_inside(view: View, down: bool) -> str:
    """Print which elements of the vector at (row, col) are in bounds, as a function; "" if all."""
    step = {"row": ROW + _AT} if down else {"col": COL + _AT}
    moved = tuple(Bound(b.lhs.substitute(step), b.rhs.substitute(step)) for b in view.bounds)
    bounds = c_bounds(replace(view, bounds=moved))
    return f"[=](int at) {{ return {bounds}; }}" if bounds else ""


def c_literal(dtype: str, value: int) -> str:
    """Print 0 or 1 in a type."""
    kind = C_TYPES[dtype]
    if kind == "float":
        return f"{value}.0f"
    if kind == "double":
        return f"{value}.0"
    if not format_of(dtype).is_float:
        return str(value) if kind == "int" else f"({kind}){value}"
    return f"tcu::convert<{kind}>({value}.0f)"


def c_constant(value: float) -> str:
    """Print a float32 constant, each bit of it."""
    if math.isinf(value):
        return f"__uint_as_float(0x{0x7F800000 if value > 0 else 0xFF800000:X})"
    return f"{value.hex()}f"


def c_pattern(pattern: Pattern, row: str, col: str) -> str:
    """Print the condition under which an element of a constant is 1."""
    offset = wrapped(c_index(pattern.offset))
    shift = "" if pattern.offset == Index() else f" + {offset}"
    size = pattern.size
    along_row = along_col = offset
    upper = lower = ""
    if size:
        along_row, along_col = (f"{at} / {size}{shift}" for at in (col, row))
        moved = f" + {pattern.segments}" if pattern.segments else ""
        upper = f" && {row} / {size} == {col} / {size}{moved}"
        lower = f" && {col} / {size} == {row} / {size}{moved}"
    return {
        PatternKind.ZEROS: "false",
        PatternKind.ONES: "true",
        PatternKind.ROW: f"{row} == {along_row}",
        PatternKind.COL: f"{col} == {along_col}",
        PatternKind.UPPER: f"{row} <= {col}{shift}{upper}",
        PatternKind.LOWER: f"{col} <= {row}{shift}{lower}",
    }[pattern.kind]


def comment(text: str) -> str:
    """Return a text as one comment line, in characters that every compiler takes."""
    table = str.maketrans({"\n": " ", "\r": " ", "←": "<-", "·": ".", "…": "...", "√": "root "})
    # A backslash at the end would continue the comment on the next line.
    return f"// {text.translate(table).encode('ascii', 'replace').decode()}".rstrip(" \\")
