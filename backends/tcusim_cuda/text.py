"""How the parts of a step are said in C: indices, bounds, values, constants, and transfers.

A transfer is loops over a lane's vectors, reads before writes, on one path or on two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

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
    Ranges,
    Space,
    View,
)
from tcusim_cuda.transfer import (
    FEW_GROUPS,
    LANES,
    UNROLL,
    Alignment,
    Transfer,
    Where,
    is_all_or_none,
)

# What an element is called in memory.
C_TYPES = {
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
_ORDER = {"block": -5, "block_col": -4, "warp": -3, "warp_row": -2, "warp_col": -1}
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
    """Print where the line of element (row, col) begins or ends; `end` says which."""
    assert view.ranges is not None
    side = "row" if isinstance(view.row_axis, Gathered) else "col"
    return f"{view.ranges.name}_{end}[{_flat_sides(view).get(side, side)}]"


def c_bounds(view: View) -> str:
    """Print the condition under which element (row, col) is in bounds; "" if it always is."""
    flat = _flat_sides(view)
    texts = [
        c_bound(Bound(bound.lhs.substitute(flat), bound.rhs.substitute(flat)))
        for bound in view.bounds
    ]
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
    return f"[&](int at) {{ return {bounds}; }}" if bounds else ""


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


def c_pattern(pattern: Pattern, row: str, col: str) -> str:
    """Print the condition under which an element of a constant is 1."""
    offset = wrapped(c_index(pattern.offset))
    shift = "" if pattern.offset == Index() else f" + {offset}"
    return {
        PatternKind.ZEROS: "false",
        PatternKind.ONES: "true",
        PatternKind.ROW: f"{row} == {offset}",
        PatternKind.COL: f"{col} == {offset}",
        PatternKind.UPPER: f"{row} <= {col}{shift}",
        PatternKind.LOWER: f"{col} <= {row}{shift}",
    }[pattern.kind]


def ascii_text(text: str) -> str:
    """Return a listing line in characters that every compiler takes."""
    table = str.maketrans({"←": "<-", "·": ".", "…": "..."})
    return text.translate(table).encode("ascii", "replace").decode()


# --- Transfers -----------------------------------------------------------------------------------

# The read of a vector as an expression, and its write, of a value in a variable, as a line. Both
# are told whether they are on the fast path, where everything is in bounds and aligned.
Read: TypeAlias = Callable[[bool], str]
Write: TypeAlias = Callable[[str, bool], Iterable[str]]


def _block(head: str, lines: Iterable[str]) -> list[str]:
    """Put lines in braces."""
    return [f"{head} {{".strip(), *(f"    {line}" for line in lines), "}"]


def type_of(transfer: Transfer, dtype: str) -> str:
    """Print the type of a vector in registers; of one element, that of the element."""
    kind = C_TYPES[dtype]
    return kind if transfer.vector == 1 else f"tcu::Vector<{kind}, {transfer.vector}>"


def read(transfer: Transfer, view: View, where: Where, *, fast: bool) -> str:
    """Print the read of the vector at (row, col): zeros where a bound fails."""
    if transfer.vector == 1:
        return c_value(replace(view, bounds=()) if fast and transfer.guard else view)
    if where is Where.REPEATED:
        return f"tcu::repeat<{transfer.vector}>({c_value(view)})"
    if where is Where.GATHERED:
        piece = c_piece(transfer, view, fast=fast)
        return f"{piece}.join({piece}.load())" if fast else piece
    arguments, place = _arguments(transfer, view, where, fast, ())
    return f"tcu::load<{transfer.vector}{f', {place}' if place else ''}>({arguments})"


def c_piece(transfer: Transfer, view: View, *, fast: bool) -> str:
    """Print the piece of a gathered row that the vector at (row, col) is."""
    place = c_address(view)
    what, rest = "piece" if fast else "gather", f"{c_line(view, 'end')} - ({place})"
    return f"tcu::{what}<{transfer.vector}>({view.buffer.name} + ({place}), {rest})"


def held_piece(transfer: Transfer, view: View, put: Write) -> tuple[str, Read, Write]:
    """Return the declaration, the read and the write for vectors of gathered rows.

    Their parts are read by all lanes before the first one is put together.
    """
    kind = f"tcu::Piece<{transfer.vector}, {C_TYPES[view.buffer.dtype]}>::Parts"

    def get(fast: bool) -> str:
        return f"{c_piece(transfer, view, fast=fast)}{'.load()' if fast else ''}"

    def join(value: str, fast: bool) -> Iterable[str]:
        return put(f"{c_piece(transfer, view, fast=True)}.join({value})" if fast else value, fast)

    return f"{kind} held", get, join


def write(
    transfer: Transfer, view: View, where: Where, value: tuple[str, str], *, fast: bool
) -> str:
    """Print the write of a value, a text and its type, to the vector at (row, col) in bounds."""
    text, dtype = value
    if dtype != view.buffer.dtype:
        text = f"tcu::convert<{C_TYPES[view.buffer.dtype]}>({text})"
    if transfer.vector > 1:
        arguments, place = _arguments(transfer, view, where, fast, (text,))
        return f"tcu::store{f'<{place}>' if place else ''}({arguments});"
    line = f"{view.buffer.name}[{c_address(view)}] = {text};"
    return line if fast and transfer.guard else c_when(view, line)


def _arguments(
    transfer: Transfer, view: View, where: Where, fast: bool, values: tuple[str, ...]
) -> tuple[str, str]:
    """Print the arguments of an access, and what is known of its place."""
    inside = "" if fast else c_inside(view, transfer.down)
    place = "tcu::Aligned" if fast or where is Where.ALIGNED else ""
    return ", ".join(filter(None, (c_pointer(view.buffer, c_place(view)), *values, inside))), place


# --- Loops over a lane's vectors ------------------------------------------------------------------


def each_vector(transfer: Transfer, count: int, first: str, lines: Iterable[str]) -> list[str]:
    """Print lines for `count` vectors of the lane, from number `first` on."""
    # In whole groups, every lane has each of its vectors.
    whole = transfer.vectors % (LANES * count) == 0
    number = first if count == 1 else f"{first} + {LANES}*nth"
    head = "" if count == 1 else f"for (int nth = 0; nth < {count}; ++nth)"
    found = [*_place(transfer), *lines]
    if whole:
        inner = _block(head, [f"const int e = {number};", *found])
    else:
        inner = _block(f"if (const int e = {number}; e < {transfer.vectors})", found)
        inner = _block(head, inner) if head else inner
    unroll = "#pragma unroll" if count <= UNROLL else f"#pragma unroll {UNROLL}"
    return [unroll, *inner] if head else inner


def _place(transfer: Transfer) -> list[str]:
    """Print the row and the column of the first element of vector `e`."""
    inner = (transfer.rows if transfer.down else transfer.cols) // transfer.vector
    along, across = ("row", "col") if transfer.down else ("col", "row")
    extents = {"row": transfer.rows, "col": transfer.cols}
    parts = {along: f"e % {inner}", across: f"e / {inner}"}
    if extents[across] == 1:
        parts[along] = "e"
    if transfer.vector > 1:
        parts[along] = "0" if inner == 1 else f"{transfer.vector}*{wrapped(parts[along])}"
    if extents[along] == 1:
        parts[across] = "e"
    return [f"const int {n} = {parts[n]};" for n in ("row", "col") if extents[n] > 1]


def c_test(test: Bound | Alignment | Ranges) -> str:
    """Print one of the tests that lead to the fast path."""
    if isinstance(test, Bound):
        return c_bound(test)
    if isinstance(test, Ranges):
        return f"{test.name}_inner"
    pointer = c_pointer(test.buffer, test.offset)
    return f"tcu::is_multiple({pointer}, {test.nbytes})"


def _paths(transfer: Transfer, fast: list[str], one: Callable[[bool], list[str]]) -> list[str]:
    """Print the fast path, and, where its guard may fail, one that tests each vector.

    On the fast path nothing is tested between the loads, which are then in flight together. one:
    prints what is done with a vector, fast or tested.
    """
    if not transfer.guard:
        return fast
    guard = " && ".join(map(c_test, transfer.guard))
    return [*_block(f"if ({guard})", fast), *_block("else", _each_tested(transfer, one(False)))]


def _each_tested(transfer: Transfer, lines: Iterable[str]) -> list[str]:
    """Print a loop over a lane's vectors in which each is tested."""
    head = f"for (int e = lane; e < {transfer.vectors}; e += {LANES})"
    return ["#pragma unroll 1", *_block(head, [*_place(transfer), *lines])]


@dataclass(frozen=True, slots=True)
class Move:
    """Reads of a lane's vectors into registers, and their writes.

    variable: a declaration, such as "float held". named: whether a single vector needs it.
    """

    transfer: Transfer
    variable: str
    get: Read
    put: Write
    named: bool = True

    @property
    def _name(self) -> str:
        return self.variable.split()[-1]

    def _one(self, fast: bool) -> list[str]:
        declared = [f"{self.variable} = {self.get(fast)};"] if self.named else []
        return [*declared, *self.put(self._name if self.named else self.get(fast), fast)]

    def lines(self) -> list[str]:
        """Print the step alone.

        All reads come before the first write, as many as registers may hold: memory answers them
        together. That is legal, since a step reads no element that another lane writes.
        """
        transfer = self.transfer
        fast = transfer.vector > 1 or bool(transfer.guard)
        if transfer.iterations == 1:
            lines = each_vector(transfer, 1, "lane", self._one(fast))
        else:
            writes = self.put(f"{self._name}[nth]", fast)
            lines = _held(transfer, self.variable, self.get(fast), writes)
        return _paths(transfer, lines, self._one)

    def tested(self) -> list[str]:
        """Print the step alone, with a test of each vector."""
        return _each_tested(self.transfer, self._one(False))

    def declared(self, name: str, extents: Iterable[int]) -> str:
        """Print an array of registers for all vectors, of each iteration of some loops."""
        kind = self.variable.rsplit(maxsplit=1)[0]
        sizes = "".join(f"[{size}]" for size in (*extents, self.transfer.iterations))
        return f"{kind} {name}{sizes};"

    def reads(self, name: str) -> list[str]:
        """Print the reads of all vectors into such an array; all are in bounds and aligned."""
        return self._each(f"{name}[{self._nth}] = {self.get(True)};")

    def writes(self, name: str) -> list[str]:
        """Print the writes of all vectors from such an array."""
        return self._each(*self.put(f"{name}[{self._nth}]", True))

    @property
    def _nth(self) -> str:
        return "0" if self.transfer.iterations == 1 else "nth"

    def _each(self, *lines: str) -> list[str]:
        return each_vector(self.transfer, self.transfer.iterations, "lane", lines)


def _held(transfer: Transfer, variable: str, value: str, writes: Iterable[str]) -> list[str]:
    """Print loops over groups of vectors that a lane holds."""
    name, groups = variable.split()[-1], -(-transfer.iterations // transfer.held)
    # Groups of about one size: a lane has as many vectors under way in the last one.
    held = -(-transfer.iterations // groups)
    start, head = "lane", ""
    if groups > 1:
        start, step = "lane + first", LANES * held
        head = f"for (int first = 0; first < {groups * step}; first += {step})"
    body = _block(
        head,
        [
            f"{variable}[{held}];",
            *each_vector(transfer, held, start, [f"{name}[nth] = {value};"]),
            *each_vector(transfer, held, start, writes),
        ],
    )
    return ["#pragma unroll", *body] if 1 < groups <= FEW_GROUPS else body


def async_lines(transfer: Transfer, dst: View, src: View) -> list[str]:
    """Print copies from global to shared memory that are started, and waited for later.

    Where each vector is aligned and in bounds as a whole, or not at all, there is no branch, around
    which products could not be scheduled.
    """
    if transfer.where[-1] is Where.ALIGNED and is_all_or_none(transfer, src):
        return _whole_async_lines(transfer, dst, src)

    def start(fast: bool) -> list[str]:
        inside = "" if fast else c_inside(src, transfer.down)
        to, source = (c_pointer(view.buffer, c_place(view)) for view in (dst, src))
        arguments = ", ".join(filter(None, (to, source, inside)))
        place = ", tcu::Aligned" if fast else ""
        return [f"tcu::copy_async<{transfer.vector}{place}>({arguments});"]

    lines = each_vector(transfer, transfer.iterations, "lane", start(transfer.vector > 1))
    return _paths(transfer, lines, start)


def _whole_async_lines(transfer: Transfer, dst: View, src: View) -> list[str]:
    """Print copies of whole vectors, those of a lane at constant distances if they can be."""

    def copy(pointers: Iterable[str]) -> str:
        arguments = ", ".join(filter(None, (*pointers, c_bounds(src))))
        return f"tcu::copy_whole_async<{transfer.vector}>({arguments});"

    views, count = (dst, src), transfer.iterations
    inner = (transfer.rows if transfer.down else transfer.cols) // transfer.vector
    if LANES % inner or transfer.vectors % LANES or count == 1:
        line = copy(c_pointer(view.buffer, c_place(view)) for view in views)
        return each_vector(transfer, count, "lane", [line])
    along, across = ("row", "col") if transfer.down else ("col", "row")
    turn = LANES // inner
    pointers = []
    for view in views:
        stride = view.col_stride if transfer.down else view.row_stride
        first = c_place(view).substitute({across: Index.symbol("first")})
        pointers.append(f"{c_pointer_at(view.buffer, first)} + {turn * stride}*nth")
    body = [
        f"const int {across} = first + {turn}*nth;" if c_bounds(src) else "",
        copy(pointers),
    ]
    loop = _block(f"for (int nth = 0; nth < {count}; ++nth)", filter(None, body))
    place = "0" if inner == 1 else f"{transfer.vector}*(lane % {inner})"
    places = [f"const int first = lane / {inner};", f"const int {along} = {place};"]
    return _block("", [*places, "#pragma unroll", *loop])
