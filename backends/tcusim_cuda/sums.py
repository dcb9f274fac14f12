"""How the prefix sums and sums of rows are said in C: each row by neighbouring lanes.

A lane holds some neighbours of a row. It adds them up by itself, and then with what other lanes
of the row found, which it gets by shuffles: the additions are those of one tree, whatever the lanes
hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcusim.machine import format_of
from tcusim.program.grammar import Bound, Prefix, Program, Ranges, Space, View
from tcusim.program.lanes import (
    LANES,
    UNROLL,
    Alignment,
    Transfer,
    Where,
    aligned_like,
    transfer_of,
)
from tcusim_cuda.moves import c_test, read, taking, write
from tcusim_cuda.text import C_TYPES, c_literal, c_place, c_pointer

__all__ = ["Rows", "prefix_lines", "rows_of"]

# Elements that a lane holds at a time, so that its loads are in flight together.
HELD = 32
# Elements of a row that a lane holds, if there are so many: what it adds up by itself takes no
# shuffle.
NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Rows:
    """How lanes share out the rows of a Prefix.

    how: their vectors of the source. to: those of the result, if it is as large. each: neighbours
    that a lane holds of a piece of a row. lanes: of a row, a power of 2. pieces: of a long row,
    each of which takes all lanes. at_once: rows that all lanes have at a time. held: how often they
    take so many before they add them up.
    """

    how: Transfer
    to: Transfer
    each: int
    lanes: int
    pieces: int
    at_once: int
    held: int

    @property
    def turns(self) -> int:
        """How often the lanes take rows."""
        return -(-self.how.rows // self.at_once)

    @property
    def size(self) -> int:
        """Elements that the lanes of a row have room for."""
        return self.each * self.lanes * self.pieces

    @property
    def is_even(self) -> bool:
        """Whether all lanes have rows each time."""
        return self.how.rows % (self.at_once * self.held) == 0

    def meet_in_banks(self, dst: View) -> bool:
        """Return whether lanes that write all of their vectors in one order use the same banks.

        Of rows in shared memory that they fill.
        """
        fills = self.to.cols == self.size and self.to.where[0] is Where.ALIGNED
        shared = dst.buffer.space is not Space.GLOBAL and not dst.bounds
        return fills and shared and self.each >= 2 * self.to.vector > 2

    @property
    def guard(self) -> list[Bound | Alignment | Ranges]:
        """What must hold so that all vectors are in bounds and aligned."""
        return list(dict.fromkeys([*self.to.guard, *self.how.guard]))


def rows_of(
    program: Program, step: Prefix, tiled: frozenset[str], known: frozenset[str] | None
) -> Rows:
    """Return how lanes share out a step's rows, in vectors where memory allows them."""
    how, to = _vectors(program, step, tiled, known)
    size = 1 << (how.cols - 1).bit_length()
    neighbours = max(how.vector, to.vector, NEIGHBOURS)
    lanes = min(LANES, max(1, size // neighbours))
    # Lanes read what lies together. For prefixes it is better that they hold what does.
    pieces = max(1, size // (lanes * neighbours)) if step.sums_alone else 1
    each = size // (lanes * pieces)
    at_once = LANES // lanes
    turns = -(-how.rows // at_once)
    # Groups of about one size.
    groups = -(-turns // max(1, min(turns, HELD // (each * pieces))))
    return Rows(how, to, each, lanes, pieces, at_once, -(-turns // groups))


def _vectors(
    program: Program, step: Prefix, tiled: frozenset[str], known: frozenset[str] | None
) -> tuple[Transfer, Transfer]:
    """Return how the elements are read, and how the results are written.

    Results of the elements' size go where these are read; others in vectors of their own.
    """
    src, dst = step.src, step.dst
    if step.sums_alone:
        dst = aligned_like(src)
    if format_of(dst.buffer.dtype).itemsize == format_of(src.buffer.dtype).itemsize:
        how = _along_rows(transfer_of(program, (dst,), (src,), tiled, known))
        return how, how
    how = transfer_of(program, (aligned_like(src),), (src,), tiled, known)
    to = transfer_of(program, (dst,), (aligned_like(dst),), tiled, known)
    return _along_rows(how), _along_rows(to)


def _along_rows(how: Transfer) -> Transfer:
    """Return how lanes move a rectangle along its rows, one by one if memory lies otherwise."""
    if not how.down:
        return how
    return Transfer(how.rows, how.cols, 1, down=False, where=(Where.ANYWHERE,) * 2)


def prefix_lines(step: Prefix, rows: Rows) -> list[str]:
    """Print a step: all rows without a test where every element is in bounds, else with tests."""
    fast = _groups(step, rows, fast=True)
    guard = rows.guard
    if not guard:
        return fast
    test = " && ".join(map(c_test, guard))
    slow = _groups(step, replace(rows, held=1), fast=False)
    return [f"if ({test}) {{", *_indented(fast), "} else {", *_indented(slow), "}"]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _groups(step: Prefix, rows: Rows, *, fast: bool) -> list[str]:
    """Print loops over groups of rows that the lanes hold."""
    held, each = rows.held, rows.each
    several = rows.turns > held
    turn = "first + nth" if several else "nth"
    at = f"({turn}) * {rows.at_once} + lane / {rows.lanes}"
    place = [f"const int row = {at};"]
    here = "true" if rows.is_even else f"row < {rows.how.rows}"
    place.append(f"const bool here = {here};")
    loop = f"for (int nth = 0; nth < {held}; ++nth) {{"
    unroll = "#pragma unroll"
    body = [
        f"{C_TYPES[step.dst.buffer.dtype]} held[{held}][{each * rows.pieces}];",
        *[unroll, loop, *_indented([*place, *_reads(step, rows, fast=fast)]), "}"],
        *[unroll, loop, *_indented([*place, *_sums(step, rows, fast=fast)]), "}"],
    ]
    if not several:
        return ["{", *_indented(body), "}"]
    groups = f"for (int first = 0; first < {rows.turns}; first += {held}) {{"
    few = rows.turns * each * rows.pieces <= UNROLL and fast
    return [unroll if few else f"{unroll} 1", groups, *_indented(body), "}"]


def _each_vector(rows: Rows, how: Transfer, lines: list[str]) -> list[str]:
    """Print lines for each vector that a lane holds of a row."""
    place = f"lane % {rows.lanes} * {rows.each} + e"
    if rows.pieces > 1:
        place = f"e / {rows.each} * {LANES * rows.each} + lane * {rows.each} + e % {rows.each}"
    inside = "here" if how.cols == rows.size else f"here && col < {how.cols}"
    return [
        "#pragma unroll",
        f"for (int e = 0; e < {rows.each * rows.pieces}; e += {how.vector}) {{",
        f"    const int col = {place};",
        f"    if ({inside}) {{",
        *_indented(_indented(lines)),
        "    }",
        "}",
    ]


def _reads(step: Prefix, rows: Rows, *, fast: bool) -> list[str]:
    """Print the reads of a row into the lane's registers, zeros behind its end."""
    how, dtype = rows.how, step.dst.buffer.dtype
    value = read(how, step.src, how.where[-1], fast=fast)
    if step.only is not None:
        value = f"{taking(step.only)}({value})"
    if step.src.buffer.dtype != dtype:
        value = f"tcu::convert<{C_TYPES[dtype]}>({value})"
    if how.vector == 1:
        put = [f"held[nth][e] = {value};"]
    else:
        put = [f"tcu::put<{how.vector}>(held[nth] + e, {value});"]
    clear = [
        "#pragma unroll",
        f"for (int e = 0; e < {rows.each * rows.pieces}; ++e) "
        f"held[nth][e] = {c_literal(dtype, 0)};",
    ]
    full = how.cols == rows.size and rows.is_even
    return [*([] if full else clear), *_each_vector(rows, how, put)]


def _sums(step: Prefix, rows: Rows, *, fast: bool) -> list[str]:
    """Print the additions, and the writes of what they give."""
    to, sizes, dtype = rows.to, f"{rows.each}, {rows.lanes}", step.dst.buffer.dtype
    kind = C_TYPES[dtype]
    one = Transfer(to.rows, 1, 1, down=True)

    def column(view: View) -> str:
        line = write(one, view, Where.ANYWHERE, ("sum", dtype), fast=False)
        return f"if (here && lane % {rows.lanes} == 0) {{ {line} }}"

    squares: list[str] = []
    if step.squares:
        count = rows.each * rows.pieces
        square = "held[nth][e] = tcu::times(held[nth][e], held[nth][e]);"
        squares = ["#pragma unroll", f"for (int e = 0; e < {count}; ++e) {square}"]
    if step.sums_alone:
        columns = [view for view in (step.dst, step.totals) if view is not None]
        several = f", {rows.pieces}" if rows.pieces > 1 else ""
        total = f"const {kind} sum = tcu::sum_of_row<{sizes}{several}>(held[nth]);"
        return [*squares, total, *map(column, columns)]
    flags = ", ".join(str(flag).lower() for flag in (step.reverse, step.exclusive))
    scan = f"tcu::prefix_sums<{sizes}, {flags}>(held[nth])"
    value = "held[nth][e]" if to.vector == 1 else f"tcu::take<{to.vector}>(held[nth] + e)"
    put = write(to, step.dst, to.where[0], (value, dtype), fast=fast)
    lines = [*squares, f"{scan};" if step.totals is None else f"const {kind} sum = {scan};"]
    if rows.meet_in_banks(step.dst):
        lines += [
            f"const int col = lane % {rows.lanes} * {rows.each};",
            f"if (here) tcu::store_in_turn<{to.vector}>"
            f"({c_pointer(step.dst.buffer, c_place(step.dst))}, held[nth]);",
        ]
    else:
        lines += _each_vector(rows, to, [put])
    return lines if step.totals is None else [*lines, column(step.totals)]
