"""A step that moves rectangles, as a call of one of the movers in `tcusim.cuh`.

The calls get lambdas: the read of one vector at (row, col), and the write of what was read. Loops,
groups of registers, and the choice between a fast path and one that tests each vector are the
movers' own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tcusim.program.grammar import (
    PARTS,
    Assign,
    Bound,
    Formula,
    Loop,
    Operation,
    Ranges,
    Space,
    Value,
    View,
    is_square,
    type_of,
    views_of,
)
from tcusim.program.lanes import LANES, Alignment, Transfer, Where, is_all_or_none, moved_of
from tcusim_cuda.text import (
    C_TYPES,
    NEVER,
    c_address,
    c_bound,
    c_bounds,
    c_constant,
    c_extent,
    c_inside,
    c_line,
    c_literal,
    c_place,
    c_pointer,
    c_pointer_at,
    c_value,
)

# The variable of a write's lambda that has what was read.
HELD = "held"
# The argument of a lambda that tells whether all is in bounds and aligned.
FAST = "fast"


def arguments(*texts: str) -> str:
    """Join the arguments of a call, but for empty ones."""
    return ", ".join(filter(None, texts))


def read(how: Transfer, view: View, where: Where) -> str:
    """Print the read of the vector at (row, col): zeros where a bound fails."""
    if how.vector == 1:
        bounds, zero = _bounds(how, view), c_literal(view.buffer.dtype, 0)
        element = f"{view.buffer.name}[{c_address(view)}]"
        if bounds == NEVER:
            return zero
        return f"({bounds} ? {element} : {zero})" if bounds else element
    if where is Where.REPEATED:
        return f"tcu::repeat<{how.vector}>({c_value(view)})"
    if where in (Where.GATHERED, Where.SHIFTED):
        return joined(how, view, parts(how, view))
    place = ", tcu::Aligned" if where is Where.ALIGNED or not how.guard else ""
    return f"tcu::load<{how.vector}{place}>({_vector(how, view, where)})"


def write(how: Transfer, view: View, where: Where, value: str, dtype: str) -> str:
    """Print the write of a value of a type to the vector at (row, col), where it is in bounds."""
    if dtype != view.buffer.dtype:
        value = f"tcu::convert<{C_TYPES[view.buffer.dtype]}>({value})"
    if how.vector == 1:
        bounds = _bounds(how, view)
        line = f"{view.buffer.name}[{c_address(view)}] = {value};"
        return f"if ({bounds}) {line}" if bounds else line
    to = _vector(how, view, where, value)
    if where is Where.ALIGNED or not how.guard:
        return f"tcu::store<tcu::Aligned>({to});"
    place = "" if view.buffer.space is Space.GLOBAL else "<tcu::Anywhere>"
    return f"tcu::store{place}({to});"


def _bounds(how: Transfer, view: View) -> str:
    """Print the condition for the element at (row, col); "" if it is always in bounds."""
    bounds = c_bounds(view)
    if bounds in ("", NEVER) or not how.guard:
        return bounds
    return f"{FAST} || {bounds}" if "&&" not in bounds else f"{FAST} || ({bounds})"


def _vector(how: Transfer, view: View, where: Where, *values: str) -> str:
    """Print the arguments of an access, with the path if it decides anything."""
    inside = c_inside(view, how.down)
    path = FAST if how.guard and (inside or where is not Where.ALIGNED) else ""
    return arguments(path, c_pointer(view.buffer, c_place(view)), *values, inside)


def parts(how: Transfer, view: View) -> str:
    """Print the read of the aligned vectors around the one at (row, col)."""
    pointer, rest = _piece(view)
    last = rest or c_inside(view, how.down) or "tcu::Always()"
    return f"tcu::parts<{how.vector}>({FAST}, {pointer}, {last})"


def joined(how: Transfer, view: View, value: str) -> str:
    """Print the vector that is made of such parts."""
    pointer, rest = _piece(view)
    return f"tcu::join<{how.vector}>({arguments(FAST, value, pointer, rest)})"


def _piece(view: View) -> tuple[str, str]:
    """Print where a vector begins, and how much of its range is left, if it has one."""
    if view.ranges is None:
        return c_pointer(view.buffer, c_place(view)), ""
    place = c_address(view)
    return f"{view.buffer.name} + ({place})", f"{c_line(view, 'end')} - ({place})"


# --- Calls of movers ------------------------------------------------------------------------------


def c_guard(tests: Iterable[Bound | Alignment | Ranges]) -> str:
    """Print the tests that lead to the fast path."""
    return " && ".join(map(_test, dict.fromkeys(tests)))


def _test(test: Bound | Alignment | Ranges) -> str:
    if isinstance(test, Bound):
        return c_bound(test)
    if isinstance(test, Ranges):
        return f"{test.name}_found.inner"
    return f"tcu::is_multiple({c_pointer(test.buffer, test.offset)}, {test.nbytes})"


def sizes_of(how: Transfer) -> str:
    """Print the template arguments of a rectangle, less those at the end that have defaults."""
    sizes: list[int | str] = [how.rows, how.cols, how.vector, how.held]
    # Of a column, single elements are in one order either way.
    if how.down and (how.cols > 1 or how.vector > 1):
        sizes.append("true")
    while sizes[-1] == 1 and len(sizes) > 2:
        sizes.pop()
    return ", ".join(map(str, sizes))


def rectangle(how: Transfer, loop: Loop | None) -> str:
    """Print the type of a rectangle, and of all its iterations in a loop."""
    once = f"tcu::Rectangle<{sizes_of(replace(how, held=1))}>"
    return once if loop is None else f"tcu::Repeated<{c_extent(loop.count)}, {once}>"


def call(function: str, given: Iterable[str], lambdas: Sequence[str]) -> list[str]:
    """Print a call with lambdas, each on a line of its own."""
    first, (*others, last) = arguments(*given), lambdas
    return [
        f"{function}({first},",
        *(f"    {one}," for one in others),
        f"    {last});",
    ]


def lambda_of(parameters: str, body: str) -> str:
    """Print a lambda that is told the path; the parameter has a name if it is used."""
    path = f"auto {FAST}" if re.search(rf"\b{FAST}\b", body) else "auto"
    return f"[=]({path}, {parameters}) {{ {body} }}"


def each_vector(how: Transfer, line: str) -> list[str]:
    """Print a statement for each vector of a lane."""
    one = lambda_of("int row, int col", line)
    sizes = sizes_of(replace(how, held=1))
    return call(f"tcu::each<{sizes}>", ("lane", c_guard(how.guard)), [one])


@dataclass(frozen=True, slots=True)
class Move:
    """What a lane does with each of its vectors: an expression, and statements that write it.

    The statements name it `held`.
    """

    how: Transfer
    value: str
    writes: tuple[str, ...]

    def lines(self) -> list[str]:
        """Print the step."""
        name = f"tcu::move<{sizes_of(self.how)}>"
        return call(name, ("lane", c_guard(self.how.guard)), self.lambdas())

    def tested(self) -> list[str]:
        """Print the step with a test of each vector."""
        name = f"tcu::move_tested<{sizes_of(replace(self.how, held=1))}>"
        return call(name, ("lane",), self.lambdas())

    def lambdas(self, loop: Loop | None = None) -> tuple[str, str]:
        """Print the read and the write, of each iteration of a loop."""
        place = arguments("" if loop is None else f"int {loop.var}", "int row, int col")
        writes = " ".join(self.writes)
        return (
            lambda_of(place, f"return {self.value};"),
            lambda_of(f"{place}, auto& {HELD}", writes),
        )


# --- Asynchronous copies --------------------------------------------------------------------------


def async_lines(how: Transfer, dst: View, src: View) -> list[str]:
    """Print asynchronous copies from global to shared memory.

    Where each vector is aligned and in bounds as a whole, or not at all, there is no branch, around
    which products could not be scheduled.
    """
    if how.where[-1] is Where.ALIGNED and is_all_or_none(how, src):
        return _whole_async_lines(how, dst, src)
    path = FAST if how.guard else ""
    to, source = (c_pointer(view.buffer, c_place(view)) for view in (dst, src))
    given = arguments(path, to, source, c_inside(src, how.down))
    return each_vector(how, f"tcu::copy_async<{how.vector}>({given});")


def _whole_async_lines(how: Transfer, dst: View, src: View) -> list[str]:
    """Print copies of whole vectors, those of a lane at constant distances if they can be."""
    inner = (how.rows if how.down else how.cols) // how.vector
    if LANES % inner or how.vectors % LANES or how.iterations == 1:
        to, source = (c_pointer(view.buffer, c_place(view)) for view in (dst, src))
        given = arguments(to, source, c_bounds(src))
        line = f"tcu::copy_whole_async<{how.vector}>({given});"
        return each_vector(replace(how, guard=()), line)
    turn = LANES // inner
    strides = [view.col_stride if how.down else view.row_stride for view in (dst, src)]
    sizes = [how.rows, how.cols, how.vector, *(turn * stride for stride in strides)]
    places = [
        f"[=](int row, int col) {{ return {c_pointer_at(view.buffer, c_place(view))}; }}"
        for view in (dst, src)
    ]
    if bounds := c_bounds(src):
        places.append(f"[=](int row, int col) {{ return {bounds}; }}")
    down = ", true" if how.down else ""
    return call(f"tcu::copy_async_apart<{', '.join(map(str, sizes))}{down}>", ("lane",), places)


# --- Steps ----------------------------------------------------------------------------------------


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

    if step.src is None:
        found = expression(how, value, dtype, where)
        return Move(how, found, (write(how, step.dst, to, HELD, dtype),))
    taken, held = _source(how, step.src, places[0])
    return Move(how, taken, (write(how, step.dst, to, held, dtype),))


def expression(how: Transfer, value: Value, dtype: str, where: Mapping[View, Where]) -> str:
    """Print the value of the vector at (row, col) in a type; where: the places of rectangles."""
    match value:
        case Formula(operation, terms):
            inner = [expression(how, one, value.dtype, where) for one in terms]
            function = _FUNCTIONS[operation]
            if is_square(value):
                function, inner = "tcu::square", inner[:1]
            found = f"{function}({', '.join(inner)})"
        case View():
            found = read(how, value, where.get(value, Where.REPEATED))
        case _:
            found = c_constant(float(value))
            found = found if how.vector == 1 else f"tcu::repeat<{how.vector}>({found})"
    same = type_of(value) == dtype
    return found if same else f"tcu::convert<{C_TYPES[dtype]}>({found})"


def _source(how: Transfer, view: View, where: Where) -> tuple[str, str]:
    """Return the read of a rectangle, and its value in terms of the variable that was read.

    Of vectors made of aligned ones, all are read before the first is made.
    """
    if where in (Where.GATHERED, Where.SHIFTED):
        return parts(how, view), joined(how, view, HELD)
    return read(how, view, where), HELD


def _split(step: Assign, how: Transfer) -> Move:
    """Return the reads of a step with parts, and its writes part by part, each of the remainder."""
    (src,), (*places, where) = views_of(step.value), how.where
    taken, value = _source(how, src, where)
    before = () if value == HELD else (f"auto rest = {value};",)
    rest = HELD if value == HELD else "rest"
    writes: list[str] = []
    for n, (dst, place) in enumerate(zip(step.dsts, places, strict=True)):
        # A part is taken also where it is not written: the others are of what remains.
        part = f"tcu::take_part<{C_TYPES[dst.buffer.dtype]}, {str(n == 0).lower()}>({rest})"
        writes.append(f"const auto part_{n} = {part};")
        writes.append(write(how, dst, place, f"part_{n}", dst.buffer.dtype))
    return Move(how, taken, (*before, *writes))


def taking(only: Operation) -> str:
    """Return the function that takes a part of an element."""
    return _FUNCTIONS[only]
