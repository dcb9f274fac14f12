"""A step's transfer in CUDA: loops over a lane's vectors, reads before writes, and both paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tcusim.program.grammar import Bound, View
from tcusim_cuda.text import (
    C_TYPES,
    c_address,
    c_bound,
    c_bounds,
    c_inside,
    c_pointer,
    c_value,
    wrapped,
)
from tcusim_cuda.transfer import LANES, UNROLL, Alignment, Transfer, Where

__all__ = [
    "async_lines",
    "block",
    "each_vector",
    "move_lines",
    "read",
    "type_of",
    "write",
]

# The read of a vector as an expression, and its write, of a value in a variable, as a line. Both
# are told whether they are on the fast path, where everything is in bounds and aligned.
Read: TypeAlias = Callable[[bool], str]
Write: TypeAlias = Callable[[str, bool], Iterable[str]]


def block(head: str, lines: Iterable[str]) -> list[str]:
    """Put lines in braces."""
    return [f"{head} {{".strip(), *(f"    {line}" for line in lines), "}"]


# --- Vectors ------------------------------------------------------------------------------------


def type_of(transfer: Transfer, dtype: str) -> str:
    """Print the type of a vector in registers; of one element, that of the element."""
    kind = C_TYPES[dtype]
    return kind if transfer.vector == 1 else f"tcu::Vector<{kind}, {transfer.vector}>"


def read(transfer: Transfer, view: View, where: Where, *, fast: bool) -> str:
    """Print the read of the vector at (row, col): zeros where a bound fails."""
    if transfer.vector == 1:
        return c_value(view)
    if where is Where.REPEATED:
        return f"tcu::repeat<{transfer.vector}>({c_value(view)})"
    arguments, place = _arguments(transfer, view, where, fast, ())
    return f"tcu::load<{transfer.vector}{f', {place}' if place else ''}>({arguments})"


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
    target = f"{view.buffer.name}[{c_address(view)}] = {text};"
    bounds = c_bounds(view)
    return f"if ({bounds}) {target}" if bounds else target


def _arguments(
    transfer: Transfer, view: View, where: Where, fast: bool, values: tuple[str, ...]
) -> tuple[str, str]:
    """Print the arguments of an access, and what is known of its place."""
    inside = "" if fast else c_inside(view, transfer.down)
    place = "tcu::Aligned" if fast or where is Where.ALIGNED else ""
    return ", ".join(filter(None, (c_pointer(view), *values, inside))), place


# --- Loops over a lane's vectors ------------------------------------------------------------------


def each_vector(transfer: Transfer, count: int, first: str, lines: Iterable[str]) -> list[str]:
    """Print lines for `count` vectors of the lane, from number `first` on."""
    # In whole groups, every lane has each of its vectors.
    whole = transfer.vectors % (LANES * count) == 0
    number = first if count == 1 else f"{first} + {LANES}*nth"
    head = "" if count == 1 else f"for (int nth = 0; nth < {count}; ++nth)"
    found = [*_place(transfer), *lines]
    if whole:
        inner = block(head, [f"const int e = {number};", *found])
    else:
        inner = block(f"if (const int e = {number}; e < {transfer.vectors})", found)
        inner = block(head, inner) if head else inner
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


def _guard(transfer: Transfer) -> str:
    return " && ".join(
        c_bound(test)
        if isinstance(test, Bound)
        else f"tcu::is_multiple({c_pointer(_first(test))}, {test.nbytes})"
        for test in transfer.guard
    )


def _first(test: Alignment) -> View:
    """Return the first element of what shall be aligned."""
    return View.strided(test.view.buffer, test.view.offset, 1, 1, 1, 1)


def _paths(transfer: Transfer, fast: list[str], tested: Callable[[], list[str]]) -> list[str]:
    """Print the fast path, and, where its guard may fail, one that tests each vector.

    On the fast path nothing is tested between the loads, which are then in flight together.
    """
    if not transfer.guard:
        return fast
    each = block(f"for (int e = lane; e < {transfer.vectors}; e += {LANES})", tested())
    return [
        *block(f"if ({_guard(transfer)})", fast),
        *block("else", ["#pragma unroll 1", *each]),
    ]


def move_lines(
    transfer: Transfer, variable: str, get: Read, put: Write, *, named: bool = True
) -> list[str]:
    """Print reads of a lane's vectors into registers, and then their writes.

    All reads come before the first write, as many as registers may hold: memory answers them
    together. That is legal, since a step reads no element that another lane writes.

    Parameters
    ----------
    transfer : Transfer
        Which vectors.
    variable : str
        A declaration, such as "float held".
    get, put : callable
        Print the read and the write of a vector.
    named : bool
        Whether a single vector needs a variable.
    """
    name = variable.split()[-1]

    def one(fast: bool) -> list[str]:
        if not named:
            return [*put(get(fast), fast)]
        return [f"{variable} = {get(fast)};", *put(name, fast)]

    fast = transfer.vector > 1
    if transfer.iterations == 1:
        lines = each_vector(transfer, 1, "lane", one(fast))
    else:
        lines = _held(transfer, variable, get(fast), put(f"{name}[nth]", fast))
    return _paths(transfer, lines, lambda: [*_place(transfer), *one(False)])


def _held(transfer: Transfer, variable: str, value: str, writes: Iterable[str]) -> list[str]:
    """Print loops over groups of vectors that a lane holds."""
    held, name = transfer.held, variable.split()[-1]
    start, head = "lane", ""
    if held < transfer.iterations:
        start = "first"
        step = LANES * held
        head = f"for (int first = lane; first < {transfer.vectors}; first += {step})"
    return block(
        head,
        [
            f"{variable}[{held}];",
            *each_vector(transfer, held, start, [f"{name}[nth] = {value};"]),
            *each_vector(transfer, held, start, writes),
        ],
    )


def async_lines(transfer: Transfer, dst: View, src: View) -> list[str]:
    """Print copies from global to shared memory that are started, and waited for later."""

    def start(fast: bool) -> list[str]:
        inside = "" if fast else c_inside(src, transfer.down)
        arguments = ", ".join(filter(None, (c_pointer(dst), c_pointer(src), inside)))
        place = ", tcu::Aligned" if fast else ""
        return [f"tcu::copy_async<{transfer.vector}{place}>({arguments});"]

    lines = each_vector(transfer, transfer.iterations, "lane", start(transfer.vector > 1))
    return _paths(transfer, lines, lambda: [*_place(transfer), *start(False)])
