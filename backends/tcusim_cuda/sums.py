"""The prefix sums and sums of rows in C: neighbouring lanes share a row.

A lane holds some neighbours of a row. It adds them up by itself, and then with the sums of other
lanes of the row, received by shuffles: the additions are those of one tree, whatever the lanes
hold.
"""

from __future__ import annotations

from dataclasses import replace

from tcusim.program.grammar import Prefix, View
from tcusim.program.lanes import LANES, UNROLL, Rows, Transfer, Where
from tcusim_cuda.moves import c_test, read, taking, write
from tcusim_cuda.text import C_TYPES, c_literal, c_place, c_pointer

__all__ = ["prefix_lines"]


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
    """Print the additions, and the writes of their results."""
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
