"""How the prefix sums and sums of rows are said in C: each row by neighbouring lanes.

A lane holds some neighbours of a row. It adds them up by itself, and then with what other lanes
of the row found, which it gets by shuffles: the additions are those of one tree, whatever the lanes
hold.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcusim.program.grammar import Buffer, BufferRole, Extent, Index, Prefix, Program, Space, View
from tcusim_cuda.moves import c_test, read, write
from tcusim_cuda.transfer import LANES, UNROLL, Transfer, Where, transfer_of

__all__ = ["Rows", "prefix_lines", "rows_of"]

# Elements that a lane holds at a time, so that its loads are in flight together.
HELD = 32
# Elements of a row that a lane holds, if there are so many: what it adds up by itself takes no
# shuffle.
NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Rows:
    """How lanes share out the rows of a Prefix.

    how: their vectors, of the result (if it is as large) and of the source. each: neighbours that
    a lane holds of a piece of a row. lanes: of a row, a power of 2. pieces: of a long row, each of
    which takes all lanes. at_once: rows that all lanes have at a time. held: how often they take so
    many before they add them up.
    """

    how: Transfer
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


def rows_of(
    program: Program, step: Prefix, tiled: frozenset[str], known: frozenset[str] | None
) -> Rows:
    """Return how lanes share out a step's rows, in vectors where memory allows them."""
    written = _aligned(step.src) if step.sums_alone else step.dst
    how = transfer_of(program, (written,), (step.src,), tiled, known)
    if how.down:
        how = Transfer(how.rows, how.cols, 1, down=False, where=(Where.ANYWHERE,) * 2)
    size = 1 << (how.cols - 1).bit_length()
    lanes = min(LANES, max(1, size // max(how.vector, NEIGHBOURS)))
    # Lanes read what lies together. For prefixes it is better that they hold what does.
    pieces = max(1, size // (lanes * NEIGHBOURS)) if step.sums_alone else 1
    each = size // (lanes * pieces)
    at_once = LANES // lanes
    turns = -(-how.rows // at_once)
    # Groups of about one size.
    groups = -(-turns // max(1, min(turns, HELD // (each * pieces))))
    return Rows(how, each, lanes, pieces, at_once, -(-turns // groups))


def _aligned(view: View) -> View:
    """Return a rectangle of a view's size that vectors of any size can be written to."""
    size = 4 * -(-view.cols // 4)
    buffer = Buffer("", "f32", Extent.of(view.rows * size), BufferRole.SCRATCH, Space.WARP)
    return View.strided(buffer, Index(), view.rows, view.cols, size, 1)


def prefix_lines(step: Prefix, rows: Rows) -> list[str]:
    """Print a step: all rows without a test where every element is in bounds, else with tests."""
    fast = _groups(step, rows, fast=True)
    guard = rows.how.guard
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
        f"float held[{held}][{each * rows.pieces}];",
        *[unroll, loop, *_indented([*place, *_reads(step, rows, fast=fast)]), "}"],
        *[unroll, loop, *_indented([*place, *_sums(step, rows, fast=fast)]), "}"],
    ]
    if not several:
        return ["{", *_indented(body), "}"]
    groups = f"for (int first = 0; first < {rows.turns}; first += {held}) {{"
    few = rows.turns * each * rows.pieces <= UNROLL and fast
    return [unroll if few else f"{unroll} 1", groups, *_indented(body), "}"]


def _each_vector(rows: Rows, lines: list[str]) -> list[str]:
    """Print lines for each vector that a lane holds of a row."""
    how, place = rows.how, f"lane % {rows.lanes} * {rows.each} + e"
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
    how = rows.how
    value = read(how, step.src, how.where[-1], fast=fast)
    if how.vector == 1:
        put = [f"held[nth][e] = {value};"]
    else:
        put = [f"tcu::put<{how.vector}>(held[nth] + e, {value});"]
    clear = [
        "#pragma unroll",
        f"for (int e = 0; e < {rows.each * rows.pieces}; ++e) held[nth][e] = 0.0f;",
    ]
    full = how.cols == rows.size and rows.is_even
    return [*([] if full else clear), *_each_vector(rows, put)]


def _sums(step: Prefix, rows: Rows, *, fast: bool) -> list[str]:
    """Print the additions, and the writes of what they give."""
    how, sizes = rows.how, f"{rows.each}, {rows.lanes}"
    one = Transfer(how.rows, 1, 1, down=True)

    def column(view: View) -> str:
        line = write(one, view, Where.ANYWHERE, ("sum", "f32"), fast=False)
        return f"if (here && lane % {rows.lanes} == 0) {{ {line} }}"

    squares: list[str] = []
    if step.squares:
        count = rows.each * rows.pieces
        square = "held[nth][e] = tcu::times(held[nth][e], held[nth][e]);"
        squares = ["#pragma unroll", f"for (int e = 0; e < {count}; ++e) {square}"]
    if step.sums_alone:
        columns = [view for view in (step.dst, step.totals) if view is not None]
        several = f", {rows.pieces}" if rows.pieces > 1 else ""
        total = f"const float sum = tcu::sum_of_row<{sizes}{several}>(held[nth]);"
        return [*squares, total, *map(column, columns)]
    kind = ", ".join(str(flag).lower() for flag in (step.reverse, step.exclusive))
    scan = f"tcu::prefix_sums<{sizes}, {kind}>(held[nth])"
    value = "held[nth][e]" if how.vector == 1 else f"tcu::take<{how.vector}>(held[nth] + e)"
    put = write(how, step.dst, how.where[0], (value, "f32"), fast=fast)
    lines = [*squares, f"{scan};" if step.totals is None else f"const float sum = {scan};"]
    lines += _each_vector(rows, [put])
    return lines if step.totals is None else [*lines, column(step.totals)]
