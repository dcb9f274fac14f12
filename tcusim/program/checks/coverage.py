"""Proofs of coverage for all sizes: each element is written, each awaited word published.

An element of a buffer is `per * block + place`, so its address determines its block. Places are few
and are listed. Blocks and scalars remain in conditions, `outer + place's number < 0`. Conditions
with outer parts that are multiples of one form become intervals of that form, and are compared with
the interval of the buffer's elements. An undecided proof answers no.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.program.checks.affine import Region, Regions, symbol_counts
from tcusim.program.checks.regions import Access, chunk_index, current_locate
from tcusim.program.grammar import BLOCK, Buffer, Extent, Index, Program, View
from tcusim.program.walk import Ints, Mask, Site, span

# Maximum number of places that one proof lists, for one writer and for all.
_MOST_PLACES: Final = 1 << 22
# Maximum number of cells into which branch conditions split the elements to write.
_MOST_CELLS: Final = 64
# Maximum number of times that an interval may be extended by another.
_MOST_TURNS: Final = 8
# A lower bound on all values of a form.
_LEAST: Final = -(2.0**1000)

# The terms of an affine expression in the block and the scalars, with no common factor.
_Form: TypeAlias = tuple[tuple[str, int], ...]
_Limits: TypeAlias = NDArray[np.float64]
# Factors and numbers of values: all sums of a value below each number, times its factor.
_Radixes: TypeAlias = list[tuple[int, int]]


class _Writer(NamedTuple):
    """Places written by one step, for one choice of the branches around it.

    place: (W,). low, high: for each form, the range of values for which the place is written, (W,)
    each.
    """

    place: Ints
    low: Mapping[_Form, _Limits]
    high: Mapping[_Form, _Limits]


class _Write(NamedTuple):
    """One way for a step to write: an element of each place, if all conditions are below 0.

    number: the index that the size limits, of the place or of its chunk. counts: the number of
    values of each symbol.
    """

    number: Index
    place: Index
    conditions: list[Index]
    counts: dict[str, Extent]


class _Elements(NamedTuple):
    """The elements to write: places 0..per-1 of each block, with `form` in an interval.

    The interval is from `low` to `(high - step * number) // factor`; `width` places share a number.
    known: values substituted for symbols.
    """

    per: int
    form: _Form = ()
    low: float = 0
    high: int = 0
    step: int = 0
    width: int = 1
    factor: int = 1
    known: Mapping[str, Index | int] = MappingProxyType({})

    @property
    def interval(self) -> tuple[_Limits, _Limits]:
        """The ends of the interval for each place, (per,) each."""
        number = np.arange(self.per) // self.width
        most = (self.high - self.step * number) // self.factor
        return np.full(self.per, float(self.low)), most.astype(np.float64)


# --- Outputs ------------------------------------------------------------------------------------


def all_written(
    program: Program, buffer: Buffer, writes: list[Access], longest: int | None = None
) -> bool:
    """Return whether the steps provably write each element, if the grid has a block.

    Gathered elements are those of all chunks, by chunk index and position in the chunk. longest:
    the maximum length of a segment, for chunks without a limit.
    """
    locates = [current_locate(program, site, view) for site, view in writes]
    rules = {locate.segments if locate else None for locate in locates}
    found = zip(writes, locates, strict=True)
    if len(rules) != 1 or any(view.ranges and not locate for (_, view), locate in found):
        return False
    (rule,) = rules
    size, width = buffer.size, 1
    if rule is not None:
        data = buffer.size.index if rule.limit is None else rule.limit
        segments = rule.offsets.size.index - 1
        if rule.chunk is not None and (rule.limit is not None or buffer.size.per == 1):
            # At most segments - 1 + ceil(data / chunk) indices belong to chunks.
            size, width = Extent(data + (segments - 1) * rule.chunk, rule.chunk), rule.chunk
        elif rule.chunk is None and longest:
            size, width = Extent(segments), longest
        else:
            return False
    proof = _Proof(program, size, width)
    every = []
    for (site, view), locate in zip(writes, locates, strict=True):
        number = place = view.address
        inside = []
        if locate is not None:
            number = chunk_index(locate, view)
            inside = [place - width, -place - 1]
            place += number * width
        counts = symbol_counts(program, site, view)
        every += [proof.write(number, place, [*way, *inside], counts) for way in ways(site, view)]
    # A loop of unknown count may run zero times.
    every = [one for one in every if all(n.constant for n in one.counts.values())]
    return bool(every) and any(
        proof.covers_all(elements, every) or proof.covers(elements, every)
        for elements in proof.elements(every)
    )


def ways(site: Site, view: View) -> Iterator[list[Index]]:
    """Yield sufficient sets of conditions, each below 0, for a step to touch a view.

    Both branches on data write the same elements of outputs, as `private_branch` requires. One of
    them therefore counts as always taken: the branch of long ranges, or of finite data.
    """
    conditions, others = [bound.excess for bound in view.bounds], []
    for guard in site.guards:
        if guard.on_data and guard.taken != (guard.on_data == "longer"):
            return
        if guard.taken:
            conditions += [bound.excess for bound in guard.bounds]
        elif guard.tells:
            others.append([-bound.excess - 1 for bound in guard.bounds])
    for failing in itertools.product(*others):
        yield [*conditions, *failing]


class _Proof:
    """The proof that all elements of a size are written; `width` elements share one number."""

    def __init__(self, program: Program, size: Extent, width: int) -> None:
        self.program, self.size, self.width = program, size, width
        self.factors = Regions(program).factors
        self.outer = {scalar.name for scalar in program.scalars}
        if program.blocks.constant is None:
            self.outer.add("block")
        grid = BLOCK * program.blocks.per - program.blocks.index
        self.grid = grid.substitute(self.factors)

    def elements(self, writes: list[_Write]) -> Iterator[_Elements]:
        """Yield alternative descriptions of the elements; covering any one is enough."""
        constant = self.program.blocks.constant
        pers = {write.place.coefficient("block") for write in writes}
        total = self.size.constant
        if constant is not None or pers == {0}:
            # Each element has one place in the grid, in some block.
            if total is None or not 0 < total * self.width <= _MOST_PLACES:
                return
            if constant is not None:
                if constant > 0:
                    yield _Elements(total * self.width)
                return
            form, factor, rest = self.form(self.grid)
            # The last block and the first block.
            least = -((self.program.blocks.per + rest) // factor)
            yield _Elements(total * self.width, form, least, -1 - rest, factor=factor)
            yield _Elements(total * self.width, known={"block": 0})
            return
        known: Mapping[str, Index | int] = {}
        per = max(pers, key=abs)
        if per < 0:
            # From the last block on: one number of blocks is a scalar.
            count = [one.name for one in self.program.scalars if one.of == self.program.blocks]
            if not count:
                return
            known, per = {"block": Index.symbol(count[0]) - 1 - BLOCK}, -per
        if len(pers) != 1 or per % self.width or per > _MOST_PLACES:
            return
        # size.per * number - size.index < 0, or factor * form + rest < 0
        base = BLOCK * (self.size.per * (per // self.width)) - self.size.index
        form, factor, rest = self.form(base.substitute(self.factors))
        step = self.size.per
        yield _Elements(per, form, _LEAST, -1 - rest, step, self.width, factor, known)

    def write(
        self, number: Index, place: Index, conditions: list[Index], counts: dict[str, Extent]
    ) -> _Write:
        """Return a write with warps by row and column and scalars by their multiples."""
        number, place, *rest = (
            one.substitute(self.factors) for one in (number, place, *conditions)
        )
        skip = self.outer | self.factors.keys()
        return _Write(number, place, rest, {n: k for n, k in counts.items() if n not in skip})

    def within(self, elements: _Elements, write: _Write) -> Iterator[Index]:
        """Yield the index of an element, its place in the block, and the conditions."""
        known = elements.known
        yield write.number.substitute(known)
        place = write.place.substitute(known)
        yield place - BLOCK * place.coefficient("block") if "block" in self.outer else place
        yield from (one.substitute(known) for one in write.conditions)
        # The grid is symmetric under reversal, and its first block exists.
        if known.get("block") != 0:
            yield self.grid

    def covers_all(self, elements: _Elements, writes: list[_Write]) -> bool:
        """Return whether all places are written whenever the elements exist.

        The writes' conditions then follow from the element's existence. Places are sums and need
        not be listed completely: the symbol of the largest factor is left out if all places contain
        it.
        """
        if not elements.step:
            return False
        parts: list[tuple[int, _Radixes]] = []
        for write in writes:
            number, place, *conditions = self.within(elements, write)
            size = number * self.size.per - self.size.index.substitute(self.factors)
            box = {name: (0, int(n.constant or 0) - 1) for name, n in write.counts.items()}
            if place.symbols <= box.keys() and all(
                self.follows(one, size, box) for one in conditions
            ):
                radixes = _radixes(place, box)
                if math.prod(count for _, count in radixes[:-1]) <= _MOST_PLACES:
                    parts.append((place.const, radixes))
        unit = max([radixes[-1][0] for _, radixes in parts if radixes], default=elements.per)
        if not all(_leaves_out(radixes, unit, elements.per) for _, radixes in parts):
            unit = elements.per
        written = np.zeros(unit, bool)
        for start, radixes in parts:
            at = np.array([start])
            for factor, count in radixes:
                steps = np.arange(0, min(unit, factor * count), factor)
                at = (at[:, None] + steps).ravel()
            written[at[(at >= 0) & (at < unit)]] = True
        return bool(written.all())

    def follows(self, condition: Index, size: Index, box: Mapping[str, tuple[int, int]]) -> bool:
        """Return whether the size implies that a condition is below 0, for places in a box."""
        local = Index(tuple(t for t in condition.terms if t[0] not in self.outer), condition.const)
        outer = condition - local
        if all(times < 0 for _, times in outer.terms):
            return span(local, box)[1] < 0
        theirs = Index(tuple(t for t in size.terms if t[0] in self.outer))
        mine, other = outer.terms[0][1], theirs.coefficient(outer.terms[0][0])
        if mine * other <= 0 or outer * abs(other) != theirs * abs(mine):
            return False
        common = math.gcd(mine, other)
        mine, other = abs(mine) // common, abs(other) // common
        # other * condition <= mine * size + rest, and size <= -1
        rest = span(condition * other - size * mine, box)[1]
        return (rest - mine) // other <= -1

    def form(self, index: Index) -> tuple[_Form, int, int]:
        """Return an expression as factor * form + rest; the form has no common factor."""
        factor = math.gcd(*(times for _, times in index.terms)) or 1
        return tuple((name, times // factor) for name, times in index.terms), factor, index.const

    def covers(self, elements: _Elements, writes: list[_Write]) -> bool:
        """Return whether each of the elements is written."""
        cuts: dict[_Form, set[float]] = {}
        writers: list[_Writer] = []
        left = _MOST_PLACES
        for write in writes:
            writer = self.writer(elements, write, cuts, left)
            if writer is not None:
                writers.append(writer)
                left -= writer.place.size
        spaces = [_cut(form, limits, self.natural(form)) for form, limits in cuts.items()]
        if math.prod(map(len, spaces)) > _MOST_CELLS:
            return False
        return all(
            self.covers_cell(elements, dict(zip(cuts, cell, strict=True)), writers)
            for cell in itertools.product(*spaces)
        )

    def natural(self, form: _Form) -> bool:
        return all(times > 0 for _, times in form)

    def writer(
        self, elements: _Elements, write: _Write, cuts: dict[_Form, set[float]], most: int
    ) -> _Writer | None:
        """Return the places written by a step; None if they cannot be listed."""
        outer, counts = self.outer, write.counts
        _, place, *every = self.within(elements, write)
        used = place.symbols.union(*(one.symbols for one in every)) - outer
        if not used <= counts.keys() or place.symbols & outer:
            return None
        sizes = {name: int(counts[name].constant or 0) for name in sorted(used)}
        if math.prod(sizes.values()) > most:
            return None
        axes = _axes(sizes)
        where = np.asarray(place.evaluate(axes))
        shape = np.broadcast_shapes(where.shape, *(axis.shape for axis in axes.values()))
        keep: Mask = np.broadcast_to((where >= 0) & (where < elements.per), shape)
        low: dict[_Form, _Limits] = {}
        high: dict[_Form, _Limits] = {}
        for condition in every:
            inner = Index(tuple(t for t in condition.terms if t[0] not in outer), 0)
            form, factor, rest = self.form(condition - inner)
            # factor * form + number < 0
            number = np.asarray(inner.evaluate(axes)) + rest
            if not form:
                keep = keep & (number < 0)
                continue
            if all(times < 0 for _, times in form) and (number < 0).all():
                continue
            backward = tuple((name, -times) for name, times in form)
            if backward == elements.form or (backward in cuts and form != elements.form):
                limit = np.broadcast_to(number // factor + 1.0, shape)
                low[backward] = np.maximum(low.get(backward, limit), limit)
                form, cut = backward, limit - 1
            else:
                limit = np.broadcast_to((-1 - number) // factor + 0.0, shape)
                high[form] = np.minimum(high.get(form, limit), limit)
                cut = limit
            if form != elements.form:
                cuts.setdefault(form, set())
                if not inner.terms:
                    cuts[form].add(float(cut.ravel()[0]))
        where = np.broadcast_to(where, shape)
        return _Writer(
            where[keep],
            {form: limits[keep] for form, limits in low.items()},
            {form: limits[keep] for form, limits in high.items()},
        )

    def covers_cell(
        self,
        elements: _Elements,
        cell: Mapping[_Form, tuple[float, float]],
        writers: list[_Writer],
    ) -> bool:
        """Return whether each element is written for forms in these intervals."""
        # The uncovered part is from `least` to `most` of the elements' own form.
        least, most = elements.interval
        chosen: list[tuple[Ints, _Limits, _Limits]] = []
        for place, low, high in writers:
            fits = np.full(place.size, True)
            for form, (first, last) in cell.items():
                if form in low:
                    fits &= low[form] <= first
                if form in high:
                    fits &= high[form] >= last
            own = elements.form
            begin = low.get(own, np.full(place.size, -math.inf))
            end = high.get(own, np.full(place.size, math.inf))
            chosen.append((place[fits], begin[fits], end[fits]))
        for _ in range(_MOST_TURNS):
            before = most.copy()
            for place, begin, end in chosen:
                reached = end >= most[place]
                np.minimum.at(most, place[reached], begin[reached] - 1)
            if (most < least).all():
                return True
            if (most == before).all():
                return False
        return False


def _radixes(place: Index, box: Mapping[str, tuple[int, int]]) -> _Radixes:
    """Return the symbols of a place as ascending factors and counts; nested symbols are merged."""
    found: _Radixes = []
    for factor, name in sorted((factor, name) for name, factor in place.terms):
        count = box[name][1] + 1
        if found and found[-1][0] * found[-1][1] == factor:
            found[-1] = found[-1][0], found[-1][1] * count
        elif count > 1:
            found.append((factor, count))
    return found


def _leaves_out(radixes: _Radixes, unit: int, per: int) -> bool:
    """Whether a place moves by multiples of `unit` up to `per`, plus an offset below a unit.

    These multiples are removed from the last radix.
    """
    if not radixes:
        return unit == per
    factor, count = radixes[-1]
    return factor > 0 and factor * count == per and unit % factor == 0


def _cut(form: _Form, limits: set[float], natural: bool) -> list[tuple[float, float]]:
    """Return the intervals of a form's values between limits, as pairs (from, to)."""
    ends = [-math.inf, *sorted(limits), math.inf]
    cells = [(low + 1, high) for low, high in itertools.pairwise(ends)]
    return [(max(low, 0), high) for low, high in cells if high >= 0] if natural else cells


def _axes(sizes: Mapping[str, int]) -> dict[str, Ints]:
    """Return the values of each symbol, along an axis of its own."""
    axes = {}
    for number, (name, size) in enumerate(sizes.items()):
        shape = [1] * len(sizes)
        shape[number] = size
        axes[name] = np.arange(size).reshape(shape)
    return axes


# --- Status words -------------------------------------------------------------------------------


def all_published(program: Program, awaits: list[Access], publishes: list[Access]) -> bool:
    """Return whether an earlier block provably publishes each word that a step awaits.

    The word's index determines the publishing block and the value of one more symbol.
    """
    regions = Regions(program)
    return all(
        region.empty
        or any(_is_served(program, region, view.address, *publish) for publish in publishes)
        for site, view in awaits
        for region in regions.around(site, view)
    )


def _is_served(program: Program, region: Region, word: Index, site: Site, view: View) -> bool:
    """Return whether one step publishes a word that is awaited in a region, in an earlier block."""
    across = {name: index for name, index in region.factors.items() if name == "warp"}
    place, number = (one.substitute(across) for one in (view.address, program.block_number))
    counts = {
        name: count.constant
        for name, count in symbol_counts(program, site, view).items()
        if name != "block" and name not in across
    }
    sizes = {name: count for name, count in counts.items() if count}
    place = place.substitute({name: 0 for name, count in sizes.items() if count == 1})
    # Scalars stay as they are: the region counts them in its own way.
    word = word.substitute(across) - place.const
    if sizes.keys() != counts.keys() or place.coefficient("block") <= 0:
        return False
    grid = BLOCK * program.blocks.per - program.blocks.index
    for way, rounded in itertools.product(ways(site, view), (math.floor, math.ceil, None)):
        at = _solved(place, word, rounded)
        if at is None or not at.keys() <= sizes.keys() | {"block"}:
            continue
        needs = [-one for one in at.values()]
        needs += [one - sizes[name] + 1 for name, one in at.items() if name != "block"]
        # A symbol that no index depends on is free: one of its limits is enough.
        free = sorted(sizes.keys() - at.keys())
        used = frozenset[str]().union(*(one.symbols for one in (*way, number)))
        ends = [{0, sizes[name] - 1} if name in used else {0} for name in free]
        for values in itertools.product(*ends):
            here: dict[str, Index | int] = {**dict(zip(free, values, strict=True)), **at}
            wanted = [one.substitute(across).substitute(here) + 1 for one in (*way, grid)]
            early = number.substitute(here) - program.block_number + 1
            if all(region.never_exceeds(one) for one in (*needs, early, *wanted)):
                return True
    return False


def _solved(
    place: Index, word: Index, rounded: Callable[[float], int] | None
) -> dict[str, Index] | None:
    """Return the values of a place's symbols for which it equals a word, largest factor first.

    Each symbol takes the terms divisible by its factor, and the share of the constant that
    `rounded` gives; the last symbol, of factor 1, takes the rest. The solution need not be unique;
    the caller checks that the values are in range.
    """
    at: dict[str, Index] = {}
    for name, factor in sorted(place.terms, key=lambda term: -abs(term[1])):
        if abs(factor) == 1:
            value = word
        else:
            terms = tuple((other, t // abs(factor)) for other, t in word.terms if t % factor == 0)
            value = Index(terms, rounded(word.const / abs(factor)) if rounded else 0)
        at[name] = value if factor > 0 else -value
        word -= value * abs(factor)
    return at if word == Index() else None
