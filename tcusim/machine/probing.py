"""Determine a matrix unit's summation: probe it, and return the rule that reproduces its bits.

The unit is a function that multiplies one tile. The simulator itself evaluates the probes: all
candidate rules that return the unit's results remain. The remaining rule is then compared with the
unit on whole tiles of random values, and must give the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError, Unsupported, require_flags
from tcusim.machine.bits import decoded, hex_bits, to_bits
from tcusim.machine.coverage import wrong_rules
from tcusim.machine.formats import Format, Rounding, Values, format_of, round_values
from tcusim.machine.hard_operands import drawn_to_hit
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
_ROUNDINGS: Final[tuple[Rounding, ...]] = ("rz", "rne", "rna", "rd", "odd")
# Drawn sums in which two rules are looked for to differ, how often they are drawn, and how many of
# those that differ are asked of the unit.
_SUMS: Final = 128
_DRAWS: Final = 4
_ASKED: Final = 6
# Rules that are taken one after another, each the better one of the last and of those beside it.
_STEPS: Final = 8
# Results of a bank that a candidate is compared with first.
_FIRST: Final = 24
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
        Its rules reproduce every bit that was seen. Its `note` names the parameters that no sum of
        many drawn ones told from others. `tcusim.machine.unit_toml` writes it.

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
    rules, notes = [], []
    for (left, sums), one in pairs.items():
        box = _Box(one, shape, format_of(left), format_of(sums), batched)
        rule, untold = _probed(box, source)
        rules.append(rule)
        if untold:
            notes.append(f"{left} to {sums}: no sum told it from a unit with {', '.join(untold)}.")
    arch = Arch(name, name, (), (), tuple(rules), source)
    return Unit(name, name, arch, (shape,), note=" ".join(notes))


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
    return _probed(box, source)[0]


def _probed(box: _Box, source: str) -> tuple[Rule, list[str]]:
    """Return the rule of a unit, and the other values of its parameters that no sum tells."""
    refused: Unsupported | None = None
    for how in _fitting(box):
        if isinstance(how, Unsupported):
            refused = refused or how
            continue
        rule = Rule(box.ab.name, box.acc.name, how, source, _EVIDENCE)
        try:
            rule, untold = _refined(box, replace(rule, nan=_nan(box, rule)))
            _verify(box, rule)
        except Unsupported as error:
            refused = refused or error
        else:
            return rule, untold
    raise refused or _no_rule(box, "neither an exact sum nor a chain of operations fits")


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

    def ask_dots(self, dots: Sequence[NDArray[Any]]) -> _Bank:
        """Return a bank of dot products that are given as bits; those of numbers only."""
        with np.errstate(all="ignore"):
            operands = [
                decoded(bits, fmt)
                for bits, fmt in zip(dots, (self.ab, self.ab, self.acc), strict=False)
            ]
        finite = np.logical_and.reduce(
            [np.isfinite(one).reshape(len(one), -1).all(axis=1) for one in operands]
        )
        a, b, c = (one[finite].astype(np.float64) for one in operands)
        return self.ask_vectors(a, b, c)

    def fits(self, how: Numerics, bank: _Bank) -> bool:
        """Return whether a rule gives the unit's bits; a few are compared first."""
        rule = Rule(self.ab.name, self.acc.name, how, "a candidate", "none")
        first = slice(_FIRST)
        return not _differing(rule, bank, first).any() and not _differing(rule, bank).any()


def _differing(rule: Rule, bank: _Bank, part: slice = slice(None)) -> NDArray[np.bool_]:
    """Return a mask of the results of a bank, or of a part of it, that a rule does not give."""
    a, b, c = bank.a[part, None, :], bank.b[part, :, None], bank.c[part, None, None]
    return np.asarray(_bits(mma_values(a, b, c, rule)[:, 0, 0]) != _bits(bank.d[part]))


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


def _fitting(box: _Box) -> Iterator[Numerics | Unsupported]:
    """Yield arithmetic that reproduces the probes, the usual first, or why there is no such."""
    if not box.ab.is_float:
        yield _integer(box)
        return
    drawn = box.ask_vectors(*_drawn(box))
    small = box.ask(_small(box))
    is_double = box.acc.name == "f64" or box.ab.name == "f64"
    usual: tuple[Numerics, ...] = (Sequential(), Exact())
    yield from (how for how in usual if box.fits(how, drawn) and box.fits(how, small))
    if not is_double:
        try:
            yield _fused(box, drawn, small)
        except Unsupported as error:
            yield error
    for how in _unusual(box, is_double=is_double):
        if box.fits(how, drawn) and box.fits(how, small):
            yield how


def _unusual(box: _Box, *, is_double: bool) -> Iterator[Numerics]:
    """Yield exact sums of groups, and sums of IEEE operations in other orders and roundings."""
    lengths = _divisors(box.shape.k)
    for length in (None, *lengths):
        yield Exact(length)
        yield Exact(length, "after")
    if is_double:
        return
    flags = (False, True)
    for rounding, inputs, outputs in itertools.product(_ROUNDINGS, flags, flags):
        one = Sequential(rounding=rounding, flush_inputs=inputs, flush_outputs=outputs)
        yield one
        for length in lengths[1:]:
            yield replace(one, length=length, order="apart")
            yield replace(one, length=length, order="tree")
            for sums in _divisors(length)[1:-1]:
                yield replace(one, length=length, sums=sums)


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def _integer(box: _Box) -> Integer:
    """Return the sum of integers that reproduces the unit's results."""
    rng = np.random.default_rng(0)
    rule = Rule(box.ab.name, box.acc.name, Integer(), "", "")
    bank = box.ask_dots(drawn_to_hit(rng, 8 * _SUMS, rule, box.shape.k))
    overflows: tuple[Any, ...] = ("wrap", "saturate", "symmetric")
    lengths = [None, *_divisors(box.shape.k)[:-1]]
    for bits, length, overflow in itertools.product(range(32, 1, -1), lengths, overflows):
        how = Integer(length, bits, overflow)
        if box.fits(how, bank):
            return how
    return Integer()


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
    addition = _addition(box, groups[0]) if after else "rne"
    nearest: list[Fused] = []
    exponents: tuple[Any, ...] = ("operands", "products", "upper")
    for one, length in itertools.product(exponents, groups):
        step = Fused(
            length,
            1,
            c_joins="after" if after else "sum",
            flush_inputs=inputs,
            flush_outputs=outputs,
            register_halves=halves,
            exponents=one,
            addition=addition,
        )
        for kept in _kept(box, step, drawn, nearest):
            edges = _edges(box, kept, small)
            if edges is not None:
                return edges
    lengths = " or ".join(map(str, groups))
    pair = _pair_of(box, drawn, nearest[0]) if nearest else ""
    raise _no_rule(box, f"no fused step of {lengths} products fits{pair}")


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

    Two products that cancel meet at places 0 and 1; a third one that is far smaller survives as it
    is only where it is summed in a later step.
    """
    k = box.shape.k
    large, least = _large(box), _least(box)
    places = range(2, k)
    bank = box.ask(({0: large, 1: -large, place: least}, 0.0) for place in places)
    together = [0, 1][:k] + [place for place, d in zip(places, bank.d, strict=True) if d != least]
    length = len(together)
    if together == list(range(length)):
        if length != 2 or after:
            return ([1, 2] if length == 2 else [length]), False
        # Beside a c that cancels the first product, the second survives if it is no term there.
        alone = box.ask([({0: large, 1: least}, -large)])
        return [1 if alone.d[0] == least else 2], False
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


def _addition(box: _Box, length: int) -> Rounding:
    """Return the rounding of an addition of c to a rounded sum: of 1 to c far below it."""
    last = 2.0**-box.acc.fraction_bits
    bank = box.ask(
        ({0: sign * one}, part * last)
        for sign, one, part in itertools.product(
            (1.0, -1.0), (1.0, 1.5), (0.25, 0.5, 0.75, -0.25, -0.5, -0.75, 1.5, -1.5)
        )
    )
    fit = (
        one
        for one in _ROUNDINGS[1:] + _ROUNDINGS[:1]
        if box.fits(Fused(length, 24, c_joins="after", addition=one), bank)
    )
    return next(fit, "rne")


def _kept(box: _Box, step: Fused, drawn: _Bank, nearest: list[Fused]) -> Iterator[Fused]:
    """Yield the steps whose fraction bits and roundings fit; the type's own fraction first.

    nearest: takes steps that fit where terms cancel.
    """
    cancelled = box.ask(_cancelled(box, step))
    fractions: list[int | None] = [None, *range(box.acc.fraction_bits - 1, 0, -1)]
    possible: list[tuple[Fused, tuple[Rounding, ...]]] = []
    for bits, alignment in itertools.product(range(1, _MOST_BITS + 1), (*_ROUNDINGS, "sticky")):
        # The remainder of a cancellation is short: of its rounding only a sticky bit shows.
        several: list[tuple[Rounding, ...]] = [(one,) for one in _ROUNDINGS]
        several = several if alignment == "sticky" else [_ROUNDINGS]
        for outputs in several:
            changed: Any = {"alignment": alignment, "output": outputs[0]}
            with suppress(InputError):
                one = replace(step, fraction_bits=bits, **changed)
                if box.fits(one, cancelled):
                    possible.append((one, outputs))
    nearest += [one for one, _ in possible]
    if len(possible) > _FEW:
        # No cancellation tells how many bits are kept: results have all of the type's, and few
        # alignments are tried.
        fractions = fractions[:1]
        possible = [one for one in possible if one[0].alignment in ("rz", "rne")]
        possible = [] if step.exponents != "operands" else possible
    for fraction, (one, outputs) in itertools.product(fractions, possible):
        for output in outputs:
            made = replace(one, output=output, output_fraction_bits=fraction)
            if box.fits(made, drawn):
                yield made


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
    apart = np.log2(_large(box)) - np.array([product, result])
    # Types of few exponents: subnormal results, and products of subnormal factors. Steps of few
    # bits cut both, and align the second by less.
    if not box.flushes and apart[1] < 2 * _APART:
        result -= acc.fraction_bits
    if not box.flushes and apart[0] < _APART:
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


# --- Rules that differ in one parameter ---------------------------------------------------------


def _refined(box: _Box, rule: Rule) -> tuple[Rule, list[str]]:
    """Return the rule that no other of one other parameter is better than, and those like it.

    The unit is asked sums in which the rule and each other one differ. If an other one has its
    results, that is the next rule.
    """
    rng = np.random.default_rng(2)
    known: list[_Bank] = []
    for _ in range(_STEPS):
        others = dict(_beside(rule, box.shape.k))
        told = {name: _told_apart(rng, rule, one, box.shape.k) for name, one in others.items()}
        asked = [dots for dots in told.values() if dots is not None]
        if asked:
            known.append(box.ask_dots([np.concatenate(each) for each in zip(*asked, strict=True)]))
        wrong = _wrong(rule, known)
        if not wrong:
            return rule, [name for name, dots in told.items() if dots is None]
        best = min(others.values(), key=lambda one: _wrong(one, known))
        if _wrong(best, known) >= wrong:
            break
        rule = best
    pairs = (_pair_of(box, bank, rule.how) for bank in known)
    raise _no_rule(box, f"{rule.how} is nearest{next(filter(None, pairs), '')}")


def _wrong(rule: Rule, banks: Iterable[_Bank]) -> int:
    """Return the number of results of banks that a rule does not give."""
    return sum(int(_differing(rule, bank).sum()) for bank in banks)


def _beside(rule: Rule, k: int) -> Iterator[tuple[str, Rule]]:
    """Yield rules that differ from a rule in one parameter, or are like one that does."""
    yield from ((name, one) for name, one in wrong_rules(rule, k) if not name.startswith("nan: "))
    how = rule.how
    if isinstance(how, Fused) and how.output_fraction_bits is None:
        bits = format_of(rule.acc).fraction_bits - 1
        one = replace(how, output_fraction_bits=bits)
        yield f"output fraction bits: {bits}", replace(rule, how=one)
    if isinstance(how, Fused) and how.exponents in ("operands", "upper"):
        # One bit more above a product's exponent is one bit less below it.
        other: Any = "upper" if how.exponents == "operands" else "operands"
        bits = how.fraction_bits + (1 if other == "upper" else -1)
        with suppress(InputError):
            one = replace(how, exponents=other, fraction_bits=bits)
            yield f"exponents: {other} and fraction bits: {bits}", replace(rule, how=one)


def _told_apart(
    rng: np.random.Generator, rule: Rule, other: Rule, k: int
) -> tuple[NDArray[Any], ...] | None:
    """Return dot products, as bits, in which two rules differ; None if no drawn one is."""
    formats = tuple(map(format_of, (rule.ab, rule.ab, rule.acc)))
    for _ in range(_DRAWS):
        for one in (rule, other):
            with np.errstate(all="ignore"):
                dots = drawn_to_hit(rng, _SUMS, one, k)[:3]
                a, b, c = map(decoded, dots, formats)
            numbers = [np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in (a, b, c)]
            operands = a[:, None], b[:, :, None], c[:, None, None]
            due, got = (_bits(mma_values(*operands, each)[:, 0, 0]) for each in (rule, other))
            differ = np.flatnonzero((due != got) & np.logical_and.reduce(numbers))[:_ASKED]
            if differ.size:
                return tuple(x[differ] for x in dots)
    return None


def _pair_of(box: _Box, bank: _Bank, how: Numerics) -> str:
    """Return a sum in which a unit and a rule differ, as text; nothing if there is none."""
    rule = Rule(box.ab.name, box.acc.name, how, "a candidate", "none")
    wrong = np.flatnonzero(_differing(rule, bank))
    if not wrong.size:
        return ""
    i = int(wrong[0])
    d = mma_values(bank.a[i][None], bank.b[i][:, None], bank.c[i][None, None], rule)[0, 0]

    def shown(value: Values, fmt: Format) -> str:
        return f"0x{hex_bits(to_bits(np.asarray(value, fmt.dtype), fmt), fmt)}"

    products = [
        f"{shown(x, box.ab)}·{shown(y, box.ab)}"
        for x, y in zip(bank.a[i], bank.b[i], strict=True)
        if x and y
    ]
    terms = " + ".join([*products, shown(bank.c[i], box.acc)])
    return f": {terms} is {shown(bank.d[i], box.acc)}, and {shown(d, box.acc)} by {how}"


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
        f"the probed unit, {box.ab.name} to {box.acc.name}, {box.shape.name}: no rule that was "
        f"tried reproduces it: {why}. After {box.asked} products."
    )
