"""Reductions as step programs ([DAKKAK19] section 4): sums of segments by products with P.

Each function is one algorithm for any tile (m, n, k), written for data in the left operand: a
tile holds m pieces of k consecutive elements as its rows, and V = A.P', where P' has ones in its
first column, puts the m sums into the first column of V. With `side="b"` everything is
transposed, which is the paper's V = P.A with the data loaded column-major.

What the paper leaves to the reader: V is an accumulator and can be no operand (erratum E5), so a
second product needs V stored to shared memory and loaded again, as ceil(m/k) tiles.
"""

from __future__ import annotations

from collections.abc import Callable

from tcusim.algorithms.builder import (
    LENGTH,
    Builder,
    Spill,
    require,
    require_float_operands,
    stored_type,
)
from tcusim.algorithms.registry import algorithm, listing
from tcusim.algorithms.tiles import data, pieces, row_of, rows_of, tile_of
from tcusim.program.grammar import COL, ROW, Bound, Buffer, Extent, Frag, Index, PatternKind, View

__all__ = [
    "reduction_kn",
    "reduction_kn_coalesced",
    "reduction_packed",
    "reduction_plain",
    "reduction_tn",
    "reduction_tn_inefficient",
]


@algorithm(
    "reduction_kn",
    "reduction",
    "[DAKKAK19] section 4.1, Figure 8",
    "N",
    alias="reduction_16n",
    repeats=4,
)
@algorithm(
    "reduction_k",
    "reduction",
    "[DAKKAK19] section 4.1, Algorithm 1",
    "1",
    alias="reduction_16",
    title="Sum segments of at most k elements, m segments a warp, in one product (Algorithm 1).",
    limited=True,
    lines=listing("Alg. 1", init=1, load=3, product=4, out=5),
)
def reduction_kn(b: Builder, segment_size: int) -> int:
    """Sum segments of k*N elements, m segments a warp, with strided loads (Figure 8).

    Row r of every tile is a piece of segment r, so that the m sums build up in V. N products.
    """
    out = output(b, segment_size)
    first = b.unit * b.m
    ones = b.const(b.right("P"), PatternKind.COL, 0, "init")

    def piece(i: Index) -> View:
        return pieces(b, data(b), first, segment_size, i * b.k)

    with b.units():
        v = accumulate(b, -(-segment_size // b.k), piece, ones)
        b.copy(results(b, out, first, b.m, segment_size), b.part(b.spill(v), b.m, 1), line="out")
    return b.m * segment_size


@algorithm(
    "reduction_tn",
    "reduction",
    "[DAKKAK19] section 4.1, Figure 7",
    "N + ceil(m/k)",
    alias="reduction_256n",
    tiles=True,
    repeats=4,
)
@algorithm(
    "reduction_t",
    "reduction",
    "[DAKKAK19] section 4.1, Algorithm 2",
    "1 + ceil(m/k)",
    alias="reduction_256",
    title="Sum segments of at most a tile, T = m*k elements, one segment a warp (Algorithm 2).",
    tiles=True,
    limited=True,
    lines=listing("Alg. 2", init=1, load=3, product=4, finish=5, out=6),
)
def reduction_tn(b: Builder, segment_size: int) -> int:
    """Sum segments of T*N elements, one segment a warp, T = m*k (Figure 7).

    N products accumulate row sums, and ceil(m/k) more finish.
    """
    return _sum_tiles(b, segment_size, lambda *tiles: finish(b, accumulate(b, *tiles)))


@algorithm(
    "reduction_tn_inefficient",
    "reduction",
    "[DAKKAK19] section 4.1, Figure 6",
    "N*(1 + ceil(m/k))",
    alias="reduction_256n_inefficient",
    tiles=True,
    repeats=4,
    combines=("mma",),
)
def reduction_tn_inefficient(b: Builder, segment_size: int) -> int:
    """Sum segments of T*N elements, one segment a warp, each tile finished at once (Figure 6).

    The paper takes the first element of R to Q; as the others are zero, all of R will do (erratum
    E6).
    """
    return _sum_tiles(b, segment_size, lambda *tiles: _finish_each_tile(b, *tiles))


@algorithm(
    "reduction_kn_coalesced",
    "reduction",
    "[DAKKAK19] section 4.1, Algorithm 3, corrected",
    "m*ceil(N/m) + ceil(m/n)*ceil(m/k)",
    alias="reduction_16n_coalesced",
    repeats=4,
    lines=listing("Alg. 3", init=1, zero=2, loop=5, load=7, product=8, out=10),
)
def reduction_kn_coalesced(b: Builder, segment_size: int) -> int:
    """Sum segments of k*N elements, m segments a warp, each read from front to end (Algorithm 3).

    Printed, one V serves all segments, which adds them up (erratum E7). Here each segment has a V
    of its own; the first columns of the m Vs are packed and finished together.
    """
    out = output(b, segment_size)
    first = b.unit * b.m
    ones = b.const(b.right("P"), PatternKind.COL, 0, "init")
    tiles = -(-segment_size // (b.m * b.k))
    partial_type = stored_type(b.options.ab) if b.options.combine == "mma" else b.options.acc
    partials = b.scratch("partials", partial_type, b.m * b.m)

    with b.units():
        with b.loop("s", b.m) as segment:

            def tile(i: Index) -> View:
                return tile_of(b, data(b), first + segment, segment_size, i)

            v = accumulate(b, tiles, tile, ones)
            row = b.rect(partials, segment * b.m, b.m, 1, 1, b.m)
            b.copy(row, b.part(b.spill(v), b.m, 1))
        if b.options.combine == "add":
            fold(b, lambda start, count: b.rect(partials, start, count, b.m, 1, b.m), b.m)
            sums = b.rect(partials, 0, b.m, 1, b.m)
            b.copy(results(b, out, first, b.m, segment_size), sums)
        else:
            _finish_packed(b, out, partials, segment_size)
    return b.m * segment_size


@algorithm("reduction_packed", "reduction", "not in the paper", "n*N", alias="reduction_16_packed")
def reduction_packed(b: Builder, segment_size: int) -> int:
    """Sum segments of k*N elements, m*n segments a warp, into one full result tile.

    P_j has its ones in column j, so the m sums of tile j land in column j of V; n tiles fill it,
    and one StoreTile writes m*n results. Not in the paper. As 0*Inf is NaN, an Inf or NaN of one
    segment spoils the n results that share its row.
    """
    out = output(b, segment_size)
    first = b.unit * (b.m * b.n)
    with b.units():
        v = b.zero(b.accumulator("V"))
        with b.loop("j", b.n) as j:
            ones = b.const(b.right("Pj"), PatternKind.COL, j)
            with b.loop("i", -(-segment_size // b.k)) as i:
                view = pieces(b, data(b), first + j * b.m, segment_size, i * b.k)
                for a in b.load_parts("A", view):
                    b.mma(v, a, ones, v)
        bounds = []
        if b.options.ragged:
            bounds.append(Bound((first + ROW + COL * b.m) * segment_size, LENGTH))
        b.store([v], b.rect(out, first, b.m, b.n, 1, b.m, bounds))
    return b.m * b.n * segment_size


@algorithm("reduction_plain", "reduction", "not in the paper", "0", repeats=16)
def reduction_plain(b: Builder, segment_size: int) -> int:
    """Sum segments by rounded additions alone, one segment a warp, as a balanced tree.

    The last launch of a long sum: its partial sums need the accumulator's range and precision,
    which no operand type of every tensor core has.
    """
    out = output(b, segment_size)
    values = b.scratch("values", b.options.source, segment_size)
    whole = b.rect(values, 0, 1, segment_size, segment_size)
    with b.units():
        b.copy(whole, row_of(b, data(b), b.unit, segment_size))
        fold(b, lambda start, count: b.rect(values, start, 1, count, count), segment_size)
        b.copy(results(b, out, b.unit, 1, segment_size), b.rect(values, 0, 1, 1, 1))
    return segment_size


# --- Parts that several algorithms share ------------------------------------------------------


def output(b: Builder, segment_size: int) -> Buffer:
    return b.output("out", b.options.result, Extent(LENGTH, segment_size))


def results(
    b: Builder, out: Buffer, first: Index, count: int, segment_size: int, *, across: bool = False
) -> View:
    """Return where the sums of `count` segments go: as a column, or as a row if `across`."""
    place = COL if across else ROW
    bounds = [Bound((first + place) * segment_size, LENGTH)] if b.options.ragged else []
    if across:
        return b.rect(out, first, 1, count, count, 1, bounds)
    return b.rect(out, first, count, 1, 1, 1, bounds)


def _sum_tiles(
    b: Builder,
    segment_size: int,
    total: Callable[[int, Callable[[Index], View], Frag], View],
) -> int:
    """Sum a segment's tiles by `total`, given how many there are, each one, and P."""
    out = output(b, segment_size)
    ones = b.const(b.right("P"), PatternKind.COL, 0, "init")
    tiles = -(-segment_size // (b.m * b.k))

    def tile(i: Index) -> View:
        return tile_of(b, data(b), b.unit, segment_size, i)

    with b.units():
        result = total(tiles, tile, ones)
        b.copy(results(b, out, b.unit, 1, segment_size), result, line="out")
    return segment_size


def accumulate(b: Builder, count: int, view: Callable[[Index], View], ones: Frag) -> Frag:
    """V = sum over i < count of A_i.P', in chains of at most `chain` products.

    A tensor core truncates, so each product loses up to an ulp of V, always toward zero: long
    chains drift. Chains are therefore added up by rounded additions.
    """
    products = b.options.chain or count * b.options.parts
    chain = max(1, products // b.options.parts)
    v = b.accumulator("V")

    def run(var: str, steps: int, start: Index) -> None:
        b.zero(v, "zero")
        with b.loop(var, steps, "loop") as i:
            for a in b.load_parts("A", view(start + i), "load"):
                b.mma(v, a, ones, v, "product")

    if count <= chain:
        run("i", count, Index())
        return v
    total = b.zero(b.accumulator("VT"))
    with b.loop("c", count // chain) as c:
        run("i", chain, c * chain)
        b.add(total, total, v)
    if count % chain:
        run("i", count % chain, Index.of(count - count % chain))
        b.add(total, total, v)
    return total


def finish(b: Builder, v: Frag) -> View:
    """Return the sum of V's first column, as a 1 x 1 view."""
    spill = b.spill(v)
    if b.options.combine == "add":
        fold(b, lambda start, count: b.part(spill, count, 1, start), b.m)
        return b.part(spill, 1, 1)
    top = b.const(b.left("P1"), PatternKind.ROW)
    r = b.zero(b.accumulator("R"))
    _second_product(b, spill, top, r)
    return b.part(b.spill(r), 1, 1)


def _finish_each_tile(b: Builder, tiles: int, view: Callable[[Index], View], ones: Frag) -> View:
    """Return the sum over tiles of P.(A_i.P'), every tile finished by itself."""
    require(
        b.options.combine == "mma" and b.options.parts == 1,
        "the work-inefficient reduction is the paper's: it combines by mma and takes one part",
    )
    top = b.const(b.left("P1"), PatternKind.ROW)
    q = b.zero(b.accumulator("Q"))
    with b.loop("i", tiles, "loop") as i:
        v = b.zero(b.accumulator("V"))
        a = b.load(b.left("A"), view(i), "load")
        b.mma(v, a, ones, v, "product")
        _second_product(b, b.spill(v), top, q)
    return b.part(b.spill(q), 1, 1)


def _finish_packed(b: Builder, out: Buffer, partials: Buffer, segment_size: int) -> None:
    """Sum the m partials of each of m segments by products, n segments at a time."""
    require_float_operands(b)
    first = b.unit * b.m
    top = b.const(b.left("P1"), PatternKind.ROW)
    for block in range(-(-b.m // b.n)):
        r = b.zero(b.accumulator("R"))
        for q in range(-(-b.m // b.k)):
            x = b.load(b.right("X"), _partials_tile(b, partials, q, block))
            b.mma(r, top, x, r)
        count = min(b.n, b.m - block * b.n)
        sums = results(b, out, first + block * b.n, count, segment_size, across=True)
        b.copy(sums, b.part(b.spill(r), 1, count), line="out")


def _second_product(b: Builder, spill: Spill, top: Frag, r: Frag) -> None:
    """R = P.V + R, with V loaded as ceil(m/k) right operands of k rows each."""
    require_float_operands(b)
    for q in range(-(-b.m // b.k)):
        b.mma(r, top, b.load(b.right("X"), rows_of(b, spill, q)), r, "finish")


def _partials_tile(b: Builder, partials: Buffer, q: int, block: int) -> View:
    """Return partials q*k .. of segments block*n .. as a right operand, one segment a column."""
    bounds = []
    if (q + 1) * b.k > b.m:
        bounds.append(Bound(ROW + q * b.k, Index.of(b.m)))
    if (block + 1) * b.n > b.m:
        bounds.append(Bound(COL + block * b.n, Index.of(b.m)))
    return b.rect(partials, block * b.n * b.m + q * b.k, b.k, b.n, 1, b.m, bounds)


def fold(b: Builder, view: Callable[[int, int], View], count: int) -> None:
    """Add `count` values in place into the first, as a balanced tree of rounded additions.

    view(start, count) names `count` values from `start` on.
    """
    while count > 1:
        half = (count + 1) // 2
        low = view(0, count - half)
        b.copy(low, low, view(half, count - half))
        count = half
