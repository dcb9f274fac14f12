"""Determine a matrix unit's summation: probe it, and return the rule that reproduces its bits.

The unit is a function that multiplies one tile. The simulator itself evaluates the probes: all
candidate rules that return the unit's results remain. The remaining rule is then compared with the
unit on whole tiles of random values, and must give the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError, Unsupported, require_flags
from tcusim.machine.formats import Format, Rounding, Values, format_of, round_values
from tcusim.machine.rules import Arch, Exact, Fused, Integer, Numerics, Rule, Sequential
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.machine.units import Unit
from tcusim.machine.values import mma_values

# A unit: (m, k) of ab, (k, n) of ab, (m, n) of acc -> (m, n) of acc.
Mma: TypeAlias = Callable[[Values, Values, Values], Any]

# Tiles of random values that the rule has to reproduce, of each kind.
_TILES: Final = 16
# A fused step of more fraction bits is none that the simulator holds.
_MOST_BITS: Final = 50
# Exponents between a large term and one that no unit keeps beside it.
_APART: Final = 28
# So many fraction bits are tried with every length of a result's fraction.
_FEW: Final = 8
# How far from a type's least normal exponent a floor of exponents is looked for.
_FLOOR_REACH: Final = 24
_ROUNDINGS: Final[tuple[Rounding, ...]] = ("rz", "rne")
_EVIDENCE: Final = "recorded bits"


def probe_unit(
    mma: Mma | Mapping[tuple[str, str], Mma],
    *,
    tile: str | tuple[int, int, int] | MmaShape = "16x16x16",
    ab: str = "f16",
    acc: str = "f32",
    name: str = "probed",
    source: str = "probed with tcusim.probe_unit",
    batched: bool = False,
) -> Unit:
    """Determine a matrix unit's summation by probing, and return it as a unit.

    Parameters
    ----------
    mma : callable, or mapping of (ab, acc) to callable
        A function that multiplies one tile: takes a (m, k) and b (k, n), of values of `ab`, and c
        (m, n) of `acc`, and returns a @ b + c (m, n). bf16, tf32 and 8-bit floats are passed as
        float32 arrays of values of the type. For several pairs of types, one callable for each.
    tile : str, tuple or MmaShape
        The sizes that the callable takes.
    ab, acc : str
        The types of a single callable.
    name : str
        Of the unit.
    source : str
        Which hardware this is, and how it was reached; files state it as the rule's source.
    batched : bool
        Whether the callable multiplies many tiles at once: a (W, m, k), b (W, k, n) and c (W, m, n)
        give (W, m, n). A simulator in another process is then started about ten times.

    Returns
    -------
    Unit
        Its rules reproduce every bit that was seen. `tcusim.machine.unit_toml` writes it.

    Raises
    ------
    Unsupported
        If no kind of rule in tcusim reproduces the unit's results, with the first difference.
    InputError
        If the callable does not return a tile of numbers, or `batched` is no flag.

    Examples
    --------
    >>> import tcusim
    >>> unit = probe_unit(lambda a, b, c: tcusim.mma(a, b, c, arch="volta"), name="mystery")
    >>> how = unit.arch.rows[0].how
    >>> how.length, how.fraction_bits, how.output
    (4, 23, 'rz')
    """
    shape = shape_of(tile)
    pairs = dict(mma) if isinstance(mma, Mapping) else {(ab, acc): mma}
    if not pairs:
        raise InputError("mma has no pairs of types; give a callable, or one for each pair")
    require_flags(batched=batched)
    rules = tuple(
        probe_rule(one, shape, *types, source=source, batched=batched)
        for types, one in pairs.items()
    )
    arch = Arch(name, name, (), (), rules, source)
    return Unit(name, name, arch, (shape,))


def probe_rule(
    mma: Mma,
    tile: str | tuple[int, int, int] | MmaShape,
    ab: str,
    acc: str,
    *,
    source: str = "probed with tcusim.probe_unit",
    batched: bool = False,
) -> Rule:
    """Return the rule of one pair of types; see `probe_unit`.

    Parameters that no product of these types reveals keep their defaults: an exponent floor below
    all of them, or fraction bits beyond the smallest product.
    """
    box = _Box(mma, shape_of(tile), format_of(ab), format_of(acc), batched)
    how = _numerics(box)
    rule = Rule(ab, acc, how, source, _EVIDENCE)
    rule = replace(rule, nan=_nan(box, rule))
    _verify(box, rule)
    return rule


# --- Probing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bank:
    """Dot products: a, b (probes, k), c (probes,), and the unit's results (probes,)."""

    a: Values
    b: Values
    c: Values
    d: Values


@dataclass(slots=True)
class _Box:
    """The unit under test, asked one dot product at a time."""

    mma: Mma
    shape: MmaShape
    ab: Format
    acc: Format
    batched: bool = False
    asked: int = 0
    flushes: bool = False

    def tiles(self, a: Values, b: Values, c: Values) -> Values:
        """Return the unit's results for whole tiles, (W, m, n)."""
        if self.batched:
            self.asked += len(a)
            return self._checked(self.mma(a, b, c), (len(a), self.shape.m, self.shape.n))
        return np.stack([self._tile(*each) for each in zip(a, b, c, strict=True)])

    def _tile(self, a: Values, b: Values, c: Values) -> Values:
        self.asked += 1
        return self._checked(self.mma(a, b, c), (self.shape.m, self.shape.n))

    def _checked(self, given: Any, wanted: tuple[int, ...]) -> Values:
        got = np.asarray(given)
        if got.shape != wanted or got.dtype.kind not in "iuf":
            raise InputError(
                f"the probed mma must return an array of numbers of shape {wanted}, got "
                f"{got.dtype} of shape {got.shape}"
            )
        return got.astype(self.acc.dtype)

    def ask(self, probes: Iterable[tuple[Mapping[int, float], float]]) -> _Bank:
        """Return a bank of probes: for each the products by their place, all else zero, and c."""
        listed = list(probes)
        k = self.shape.k
        a = np.zeros((len(listed), k))
        b = np.zeros((len(listed), k))
        c = np.array([addend for _, addend in listed])
        for number, (products, _) in enumerate(listed):
            for place, value in products.items():
                a[number, place], b[number, place] = _factors(value, self.ab)
        return self.ask_vectors(a, b, c)

    def ask_vectors(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> _Bank:
        """Return a bank of dot products, rounded to the types first."""
        left, right = (_cast(one, self.ab) for one in (a, b))
        addend = _cast(c, self.acc)
        count, m, n, k = len(left), self.shape.m, self.shape.n, self.shape.k
        tiles = (
            np.zeros((count, m, k), left.dtype),
            np.zeros((count, k, n), right.dtype),
            np.zeros((count, m, n), addend.dtype),
        )
        tiles[0][:, 0], tiles[1][:, :, 0], tiles[2][:, 0, 0] = left, right, addend
        if not count:
            return _Bank(left, right, addend, addend)
        return _Bank(left, right, addend, self.tiles(*tiles)[:, 0, 0])

    def fits(self, how: Numerics, bank: _Bank) -> bool:
        """Return whether a rule gives the unit's bits."""
        rule = Rule(self.ab.name, self.acc.name, how, "a candidate", "none")
        d = mma_values(bank.a[:, None, :], bank.b[:, :, None], bank.c[:, None, None], rule)
        return bool(np.array_equal(_bits(d[:, 0, 0]), _bits(bank.d)))


def _cast(values: NDArray[Any], fmt: Format) -> Values:
    if not fmt.is_float:
        return values.astype(fmt.dtype)
    return round_values(values.astype(np.float64), fmt)


def _bits(values: Values) -> NDArray[Any]:
    """Return the bits of accumulators."""
    return np.ascontiguousarray(values).view(f"u{values.itemsize}")


def _factors(value: float, fmt: Format) -> tuple[float, float]:
    """Return two factors of a value in a type: a power of two, and the rest."""
    fraction, exponent = np.frexp(abs(value))
    if not value:
        return 0.0, 0.0
    # The rest has the sign and all bits; the power takes half the exponent, within its range.
    half = int(np.clip((exponent - 1) // 2, fmt.emin - fmt.fraction_bits, fmt.emax))
    rest = float(np.copysign(np.ldexp(fraction, exponent - half), value))
    if abs(rest) > fmt.largest:
        half = int(exponent) - fmt.emax
        rest = float(np.copysign(np.ldexp(fraction, exponent - half), value))
    return 2.0**half, rest


# --- Inference ----------------------------------------------------------------------------------


def _numerics(box: _Box) -> Numerics:
    """Return the arithmetic that reproduces the unit's results."""
    if not box.ab.is_float:
        return Integer()
    drawn = box.ask_vectors(*_drawn(box))
    small = box.ask(_small(box))
    simple: tuple[Numerics, ...] = (Sequential(), Exact())
    for how in simple:
        if box.fits(how, drawn) and box.fits(how, small):
            return how
    if box.acc.name == "f64" or box.ab.name == "f64":
        raise _no_rule(box, "it is neither exact nor a chain of fused multiply-adds")
    return _fused(box, drawn, small)


def _nan(box: _Box, rule: Rule) -> Literal["", "ones", "quiet"]:
    """Return the NaN that the unit writes; nothing if it is the usual one, or another."""
    if not box.acc.is_float or box.acc.name == "f64":
        return ""
    bank = box.ask([({}, np.nan)])
    a, b, c = bank.a[:, None, :], bank.b[:, :, None], bank.c[:, None, None]
    names: tuple[Literal["", "ones", "quiet"], ...] = ("", "ones", "quiet")
    for name in names:
        d = mma_values(a, b, c, replace(rule, nan=name))
        if np.array_equal(_bits(d[:, 0, 0]), _bits(bank.d)):
            return name
    return ""


def _fused(box: _Box, drawn: _Bank, small: _Bank) -> Fused:
    """Return the fused step that reproduces the unit's results."""
    inputs, outputs = _flushes(box)
    box.flushes = inputs or outputs
    after = _c_joins_after(box)
    groups, halves = _groups(box, after=after)
    found: list[Fused] = []
    for length in groups:
        step = Fused(
            length,
            1,
            c_joins="after" if after else "sum",
            flush_inputs=inputs,
            flush_outputs=outputs,
            register_halves=halves,
        )
        found += _kept(box, step, drawn)
    if not found:
        raise _no_rule(box, f"no fused step of {' or '.join(map(str, groups))} products fits")
    for step in found:
        edges = _edges(box, step, small)
        if edges is not None:
            return edges
    raise _no_rule(box, "no treatment of subnormal numbers fits")


def _flushes(box: _Box) -> tuple[bool, bool]:
    """Return whether subnormal operands, and whether subnormal results, count as zero."""
    ab, acc = box.ab, box.acc
    a, b = np.zeros((2, 3, box.shape.k))
    # A subnormal that is large as a product; a subnormal result of normal factors; c alone.
    a[0, 0], b[0, 0] = 2.0 ** (ab.emin - 1), 2.0 ** min(ab.emax, acc.emax)
    a[1, 0], b[1, 0] = _factors(2.0 ** (acc.emin - 1), ab)
    bank = box.ask_vectors(a, b, np.array([0.0, 0.0, 2.0 ** (acc.emin - 1)]))
    inputs = bool(bank.d[0] == 0)
    if 2 * ab.emin < acc.emin:
        return inputs, bool(bank.d[1] == 0)
    # No product is so small. If c is flushed as an operand, it does not show whether results are.
    return inputs, not inputs and bool(bank.d[2] == 0)


def _groups(box: _Box, *, after: bool) -> tuple[list[int], bool]:
    """Return the possible numbers of products in a step, and whether in register-half order.

    Two products that cancel meet at places 0 and 1; a third one that is far smaller survives only
    where it is summed in a later step.
    """
    k = box.shape.k
    large, least = _large(box), _least(box)
    places = range(2, k)
    bank = box.ask(({0: large, 1: -large, place: least}, 0.0) for place in places)
    together = [0, 1][:k] + [place for place, d in zip(places, bank.d, strict=True) if d == 0]
    length = len(together)
    if together == list(range(length)):
        if length != 2 or after:
            return ([1, 2] if length == 2 else [length]), False
        # Beside a c that cancels the first product, the second survives if it is no term there.
        alone = box.ask([({0: large, 1: least}, -large)])
        return [1 if alone.d[0] else 2], False
    halved = [place for place in range(k) if place % 4 // 2 == 0][:length]
    if together == halved:
        return [length], True
    raise _no_rule(box, f"a step sums the products {', '.join(map(str, together))}, counted from 0")


def _c_joins_after(box: _Box) -> bool:
    """Return whether c is added to the rounded sum: then two terms that cancel do not cut c."""
    if box.shape.k < 2:
        return False
    bank = box.ask([({0: _large(box), 1: -_large(box)}, _least(box))])
    return bool(bank.d[0] == _least(box))


def _kept(box: _Box, step: Fused, drawn: _Bank) -> Iterator[Fused]:
    """Yield the steps whose fraction bits and roundings fit; the type's own fraction first."""
    cancelled = box.ask(_cancelled(box, step))
    fractions = [None, *range(box.acc.fraction_bits - 1, 0, -1)]
    possible = []
    for bits, alignment in itertools.product(range(1, _MOST_BITS + 1), _ROUNDINGS):
        try:
            one = replace(step, fraction_bits=bits, alignment=alignment)
        except InputError:
            continue
        # The remainder of a cancellation is short, so that no output rounding shows.
        if box.fits(one, cancelled):
            possible.append(one)
    for fraction in fractions:
        for one, output in itertools.product(possible, _ROUNDINGS):
            made = replace(one, output=output, output_fraction_bits=fraction)
            if box.fits(made, drawn):
                yield made
        # Where no cancellation tells how many bits are kept, results have all of the type's.
        if len(possible) > _FEW:
            return


def _edges(box: _Box, step: Fused, small: _Bank) -> Fused | None:
    """Return the step with the least exponent that it aligns to; None if nothing fits."""
    floors = [None, *range(box.acc.emin + _FLOOR_REACH, box.acc.emin - _FLOOR_REACH, -1)]
    cut = box.ask(_cut_at_floor(box, step))
    for floor in floors:
        one = replace(step, exponent_floor=floor)
        if box.fits(one, small) and box.fits(one, cut):
            return one
    return None


# --- The probes ---------------------------------------------------------------------------------


def _large(box: _Box) -> float:
    """Return a power of two that is large as a product and in the accumulator."""
    return float(2.0 ** min(2 * box.ab.emax, box.acc.emax - 2))


def _least(box: _Box) -> float:
    """Return a power of two that is tiny, but not zero, as a product and in the accumulator."""
    ab, acc = box.ab, box.acc
    product, result = 2 * ab.emin, acc.emin
    if not box.flushes:
        result -= acc.fraction_bits
        # Types of few exponents: products of subnormal factors, which steps align by less.
        if np.log2(_large(box)) - product < _APART:
            product -= 2 * ab.fraction_bits
    return float(2.0 ** max(product, result))


def _cancelled(box: _Box, step: Fused) -> Iterator[tuple[dict[int, float], float]]:
    """Yield sums of two large terms that cancel and a smaller term of few bits, of any size.

    The large terms are products if the step has enough of them; else one of them is c, if c joins.
    """
    large, least = _large(box), _least(box)
    third = step.length >= 3
    if not third and (step.length == 1 or step.c_joins == "after"):
        return
    place = 1
    if third:
        place = 4 if step.register_halves else 2
    for below in range(1, _MOST_BITS + 4):
        size = large * 2.0**-below
        if size < 4 * least:
            return
        for part in (1.0, 1.25, 1.5, 1.75, -1.5, -1.75):
            products = {0: large, place: part * size}
            if third:
                products[1] = -large
            yield products, 0.0 if third else -large


def _drawn(box: _Box) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return random vectors: of one size, of many sizes, and with c close to minus the sum."""
    rng = np.random.default_rng(0)
    k, count = box.shape.k, 96
    reach = min(box.ab.emax, box.acc.emax // 2, 12) // 2
    rows = []
    for spread in (0, reach // 2, reach):
        shape = (count, k)
        a, b = (
            rng.uniform(1, 2, shape) * rng.choice((-1.0, 1.0), shape) * 2.0**exponents
            for exponents in rng.integers(-spread, spread + 1, (2, *shape))
        )
        # Few terms in some rows, to separate rounding from truncation.
        b[rng.random(shape) < rng.choice((0.0, 0.5, 0.8), (count, 1))] = 0.0
        exact = (_cast(a, box.ab).astype(np.float64) * _cast(b, box.ab)).sum(axis=1)
        c = np.where(rng.random(count) < 0.5, -exact, rng.uniform(-4, 4, count))
        rows.append((a, b, c * rng.choice((0.0, 1.0, 1.0), count)))
    a, b, c = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return a, b, c


def _small(box: _Box) -> Iterator[tuple[dict[int, float], float]]:
    """Yield sums near the smallest numbers: subnormal operands and results, and cuts near them."""
    ab, acc = box.ab, box.acc
    unit = float(acc.smallest)
    # A subnormal operand, alone and beside another term.
    yield {0: float(ab.smallest)}, 0.0
    yield {0: float(ab.smallest)}, float(ab.smallest) if ab.emin >= acc.emin else 0.0
    # A subnormal c, and subnormal results of operands that are normal.
    for count in (1, 2, 3, 5):
        yield {}, count * unit
        if unit >= 2.0 ** (2 * ab.emin):
            yield {0: count * unit}, 0.0


def _cut_at_floor(box: _Box, step: Fused) -> Iterator[tuple[dict[int, float], float]]:
    """Yield a term in the last bits of a result, and a term near the lower end of the kept bits.

    The kept part of the lower term moves the sum across a rounding; it is truncated sooner with an
    exponent floor.
    """
    unit, lowest = float(box.acc.smallest), float(box.ab.smallest) ** 2
    bits = step.fraction_bits
    for above in (unit, 1.5 * unit, 2.0 * unit, 2.0**box.acc.emin):
        for below in range(max(1, bits - _FLOOR_REACH), bits + 3):
            term = above * 2.0**-below
            if term >= lowest:
                for place in range(min(2, step.length)):
                    yield {place: -term}, above if above != 1.5 * unit else unit
                yield {0: above, min(1, step.length - 1): -term}, 0.0


# --- The comparison -----------------------------------------------------------------------------


def _verify(box: _Box, rule: Rule) -> None:
    """Raise Unsupported if a rule gives another bit than the unit on some tile."""
    kinds, drawn = zip(*_tiles(box), strict=True)
    a, b, c = (np.stack(each) for each in zip(*drawn, strict=True))
    got, expected = box.tiles(a, b, c), mma_values(a, b, c, rule)
    wrong = np.argwhere(_bits(got) != _bits(expected))
    if len(wrong):
        tile, row, column = (int(one) for one in wrong[0])
        raise _no_rule(
            box,
            f"{rule.how} is nearest, but in a tile of {kinds[tile]} values the result "
            f"[{row}, {column}] is {got[tile, row, column]!r}, where it gives "
            f"{expected[tile, row, column]!r}",
        )


def _tiles(box: _Box) -> Iterator[tuple[str, tuple[Values, Values, Values]]]:
    """Yield whole tiles: of one size, of many sizes, and of the least numbers."""
    rng = np.random.default_rng(1)
    sizes = ((box.shape.m, box.shape.k), (box.shape.k, box.shape.n), (box.shape.m, box.shape.n))
    if not box.ab.is_float:
        for _ in range(_TILES):
            low, high = int(box.ab.smallest), int(box.ab.largest) + 1
            a, b = (rng.integers(low, high, size) for size in sizes[:2])
            c = rng.integers(-(2**20), 2**20, sizes[2])
            yield "integer", (_cast(a, box.ab), _cast(b, box.ab), _cast(c, box.acc))
        return
    middle = min(box.ab.emax, box.acc.emax // 2, 30) // 2
    ranges = {
        "like": (0, 0),
        "wide": (-middle, middle),
        "small": (box.ab.emin - 2, box.ab.emin + 4),
    }
    for kind, (low, high) in ranges.items():
        for _ in range(_TILES):
            a, b, c = (
                rng.standard_normal(size) * 2.0 ** rng.integers(low, high + 1, size)
                for size in sizes
            )
            yield kind, (_cast(a, box.ab), _cast(b, box.ab), _cast(c, box.acc))


def _no_rule(box: _Box, why: str) -> Unsupported:
    return Unsupported(
        f"the probed unit, {box.ab.name} to {box.acc.name}, {box.shape.name}: no rule of tcusim "
        f"reproduces it: {why}. After {box.asked} products."
    )
