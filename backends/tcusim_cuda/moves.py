"""How a step that moves rectangles is said in C: loops over a lane's vectors, on one path or two.

Reads come before writes, so that memory answers them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from tcusim.program.grammar import (
    PARTS,
    Assign,
    Bound,
    Formula,
    Index,
    Operation,
    Ranges,
    Value,
    View,
    type_of,
    views_of,
)
from tcusim.program.lanes import (
    FEW_GROUPS,
    LANES,
    UNROLL,
    Alignment,
    Transfer,
    Where,
    is_all_or_none,
    moved_of,
)
from tcusim_cuda.text import (
    C_TYPES,
    c_address,
    c_bound,
    c_bounds,
    c_inside,
    c_line,
    c_place,
    c_pointer,
    c_pointer_at,
    c_value,
    c_when,
    wrapped,
)

__all__ = [
    "Move",
    "assigned",
    "async_lines",
    "c_test",
    "each_vector",
    "read",
    "taking",
    "write",
]

# The read of a vector as an expression, and its write, of a value in a variable, as a line. Both
# are told whether they are on the fast path, where everything is in bounds and aligned.
Read: TypeAlias = Callable[[bool], str]
Write: TypeAlias = Callable[[str, bool], Iterable[str]]


def _block(head: str, lines: Iterable[str]) -> list[str]:
    """Put lines in braces."""
    return [f"{head} {{".strip(), *(f"    {line}" for line in lines), "}"]


def type_of_vector(transfer: Transfer, dtype: str) -> str:
    """Print the type of a vector in registers; of one element, that of the element."""
    kind = C_TYPES[dtype]
    return kind if transfer.vector == 1 else f"tcu::Vector<{kind}, {transfer.vector}>"


def read(transfer: Transfer, view: View, where: Where, *, fast: bool) -> str:
    """Print the read of the vector at (row, col): zeros where a bound fails."""
    if transfer.vector == 1:
        return c_value(replace(view, bounds=()) if fast and transfer.guard else view)
    if where is Where.REPEATED:
        return f"tcu::repeat<{transfer.vector}>({c_value(view)})"
    if where is Where.GATHERED or (where is Where.SHIFTED and fast):
        piece = c_piece(transfer, view, fast=fast)
        return f"{piece}.join({piece}.load())" if fast else piece
    arguments, place = _arguments(transfer, view, where, fast, ())
    return f"tcu::load<{transfer.vector}{f', {place}' if place else ''}>({arguments})"


def c_piece(transfer: Transfer, view: View, *, fast: bool) -> str:
    """Print the piece of a gathered row, or of an array, that the vector at (row, col) is."""
    if view.ranges is None:
        return f"tcu::piece<{transfer.vector}>({c_pointer(view.buffer, c_place(view))})"
    place = c_address(view)
    what, rest = "piece" if fast else "gather", f"{c_line(view, 'end')} - ({place})"
    return f"tcu::{what}<{transfer.vector}>({view.buffer.name} + ({place}), {rest})"


def held_piece(transfer: Transfer, view: View, where: Where, put: Write) -> tuple[str, Read, Write]:
    """Return the declaration, the read and the write for vectors put together of aligned ones.

    Their parts are read by all lanes before the first one is put together.
    """
    kind = f"tcu::Piece<{transfer.vector}, {C_TYPES[view.buffer.dtype]}>::Parts"

    def get(fast: bool) -> str:
        if not fast:
            return read(transfer, view, where, fast=False)
        return f"{c_piece(transfer, view, fast=True)}.load()"

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
    """Print the arguments of an access, and the known facts of its address."""
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
        return f"{test.name}_found.inner"
    pointer = c_pointer(test.buffer, test.offset)
    return f"tcu::is_multiple({pointer}, {test.nbytes})"


def _paths(transfer: Transfer, fast: list[str], one: Callable[[bool], list[str]]) -> list[str]:
    """Print the fast path, and, where its guard may fail, one that tests each vector.

    On the fast path nothing is tested between the loads, which are then in flight together. one:
    prints the statements for a vector, fast or tested.
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
    """Print asynchronous copies from global to shared memory.

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


# --- Steps --------------------------------------------------------------------------------------


_FUNCTIONS: Final = {
    Operation.PLUS: "tcu::add",
    Operation.PLUS_TO_ODD: "tcu::add_to_odd",
    Operation.TIMES: "tcu::times",
    Operation.OVER: "tcu::over",
    Operation.ROOT: "tcu::root",
    Operation.MAX: "tcu::maximum",
    **{part: f"tcu::only_{part.name.lower()}" for part in PARTS},
}


def assigned(step: Assign, how: Transfer) -> Move:
    """Return the reads and the value of a step, and its writes.

    how: of the rectangles that are written, and of `moved_of` its value.
    """
    value = step.value
    if isinstance(value, Formula) and value.operation is Operation.SPLIT:
        return _split(step, how)
    to, *places = how.where
    where = dict(zip(moved_of(value), places, strict=False))
    dtype = type_of(value)

    def text(value: Value, dtype: str, fast: bool) -> str:
        match value:
            case Formula(operation, terms):
                inner = ", ".join(text(one, value.dtype, fast) for one in terms)
                found = f"{_FUNCTIONS[operation]}({inner})"
            case View():
                found = read(how, value, where.get(value, Where.REPEATED), fast=fast)
            case _:
                found = f"{float(value).hex()}f"
                found = found if how.vector == 1 else f"tcu::repeat<{how.vector}>({found})"
        same = type_of(value) == dtype
        return found if same else f"tcu::convert<{C_TYPES[dtype]}>({found})"

    def put(held: str, fast: bool) -> list[str]:
        return [write(how, step.dst, to, (held, dtype), fast=fast)]

    if step.src is not None and places[0] in (Where.GATHERED, Where.SHIFTED):
        # The loads come first; pieces are put together as they are written.
        return Move(how, *held_piece(how, step.src, places[0], put), named=False)
    kind = f"{type_of_vector(how, dtype)} held"
    return Move(how, kind, lambda fast: text(value, dtype, fast), put, named=how.vector > 1)


def _split(step: Assign, how: Transfer) -> Move:
    """Return the reads of a step with parts, and its writes part by part, each of the remainder."""
    dsts, (src,) = step.dsts, views_of(step.value)
    kind = type_of_vector(how, src.buffer.dtype)

    def get(fast: bool) -> str:
        return read(how, src, how.where[-1], fast=fast)

    def put(rest: str, fast: bool) -> list[str]:
        kinds = [C_TYPES[d.buffer.dtype] for d in dsts]
        takes = [
            f"tcu::take_part<{kind}, {'false' if number else 'true'}>({rest})"
            for number, kind in enumerate(kinds)
        ]
        return [
            write(how, dst, where, (part, dst.buffer.dtype), fast=fast)
            for part, dst, where in zip(takes, dsts, how.where[:-1], strict=True)
        ]

    def put_joined(value: str, fast: bool) -> list[str]:
        return [f"{kind} rest = {value};", *put("rest", fast)]

    if how.where[-1] in (Where.GATHERED, Where.SHIFTED):
        return Move(how, *held_piece(how, src, how.where[-1], put_joined), named=False)
    return Move(how, f"{kind} rest", get, put)


def taking(only: Operation) -> str:
    """Return the function that takes a part of an element."""
    return _FUNCTIONS[only]
