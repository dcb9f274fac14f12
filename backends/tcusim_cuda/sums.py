"""The prefix sums and sums of rows in C: neighbouring lanes share a row.

A lane holds some neighbours of a row. It adds them up by itself, and then with the sums of other
lanes of the row, received by shuffles: the additions are those of one tree, whatever the lanes
hold.
"""

from __future__ import annotations

from tcusim.program.grammar import Prefix, View
from tcusim.program.lanes import Rows, Transfer, Where
from tcusim_cuda.moves import HELD, c_guard, call, expression, lambda_of, write
from tcusim_cuda.text import c_place, c_pointer


def prefix_lines(step: Prefix, rows: Rows) -> list[str]:
    """Print a step: all rows without a test where every element is in bounds, else with tests."""
    how, to = rows.how, rows.to
    place = "int row, int col"
    sizes = f"{how.rows}, {how.cols}, {how.vector}, {rows.each}, {rows.lanes}, {rows.held}"
    given = ("lane", c_guard(rows.guard) or "tcu::Fast()")
    get = lambda_of(place, f"return {_value(step, how)};")
    totals = [view for view in (step.dst, step.totals) if view is not None][not step.sums_alone :]
    total = f"[=](int row, auto sum) {{ {' '.join(_column(step, view) for view in totals)} }}"
    if step.sums_alone:
        return call(f"tcu::sum_rows<{sizes}, {rows.pieces}>", given, [get, total])
    flags = ", ".join(str(flag).lower() for flag in (step.reverse, step.exclusive))
    name = f"scan_rows<{sizes}, {to.vector}, {flags}>"
    if rows.meet_in_banks(step.dst):
        name = name.replace("rows", "rows_in_turn", 1)
        put = f"[=](int row, int col) {{ return {c_pointer(step.dst.buffer, c_place(step.dst))}; }}"
    else:
        line = write(to, step.dst, to.where[0], HELD, step.dst.buffer.dtype)
        put = lambda_of(f"{place}, auto& {HELD}", line)
    return call(f"tcu::{name}", given, [get, put, *([total] if totals else [])])


def _value(step: Prefix, how: Transfer) -> str:
    """Print the read of a vector, as it is added up."""
    return expression(how, step.value, step.dst.buffer.dtype, {step.src: how.where[-1]})


def _column(step: Prefix, view: View) -> str:
    """Print the write of a row's sum, by one lane."""
    one = Transfer(view.rows, 1, 1, down=True)
    return write(one, view, Where.ANYWHERE, "sum", step.dst.buffer.dtype)
