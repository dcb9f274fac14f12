"""A recorder of the arithmetic that writes the account of each output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

import numpy as np

from tcusim.errors import Unsupported
from tcusim.machine.accounts.account import Account, Ending, Kind, Step, Term, leading_exponent
from tcusim.machine.bits import hex_bits, to_bits
from tcusim.machine.formats import Float64, Format, Rounding, Values, canonical_nan, format_of
from tcusim.machine.rules import Arch, Exact, Fused, Integer, Late, Rule, Sequential
from tcusim.machine.values import mma_values

# Dot products that are handed to the arithmetic at a time: it has one batch of as many at most.
_BATCH: Final = 2**12


def accounts_of(a: Values, b: Values, c: Values, rule: Rule, arch: Arch) -> Iterator[Account]:
    """Yield the account of each of W dot products: a, b (W, k) of rule.ab, c (W,) of rule.acc.

    Raises
    ------
    Unsupported
        If a step aligns its terms more than once.
    """
    how = rule.how
    if isinstance(how, Fused) and (how.sums > 1 or isinstance(how.c_joins, Late)):
        raise Unsupported(
            f"{arch.name}, {rule.ab} -> {rule.acc}: a step aligns its terms more than once, which "
            f"is not shown bit by bit; tcusim.mma computes it"
        )
    if isinstance(how, Fused) and how.presum > 1:
        raise Unsupported(
            f"{arch.name}, {rule.ab} -> {rule.acc}: a step sums {how.presum} products before it "
            f"aligns them, which is not shown bit by bit; tcusim.mma computes it"
        )
    # Of several outputs, those with infinities have no passes.
    batch = _BATCH if rule.passes is None else 1
    for first in range(0, len(a), batch):
        rows, columns, addends = (x[first : first + batch] for x in (a, b, c))
        recorder = Recorder(len(rows))
        tiles = rows[:, None, :], columns[:, :, None], addends[:, None, None]
        d = mma_values(*tiles, rule, recorder)[:, 0, 0]
        sums = recorder.sums
        for w, addend in enumerate(addends.tolist()):
            bits = _bits(d[w], rule)
            steps = [
                _step(f"d{number}", one, w, rule, bits if number == len(sums) else "")
                for number, one in enumerate(sums, start=1)
            ]
            inputs = [term.value for step in steps for term in step.terms if term.is_input]
            exact = _sum(inputs) if steps else _product((addend,), rule)
            yield Account(arch.name, arch.title, rule, tuple(steps), d[w].item(), bits, exact)


def _bits(value: Values, rule: Rule) -> str:
    acc = format_of(rule.acc)
    return hex_bits(to_bits(value, acc), acc)


def _product(factors: tuple[float, ...], rule: Rule) -> Fraction | None:
    """Return the exact product of one or two numbers; None if one is infinite or NaN."""
    if not all(map(math.isfinite, factors)):
        return None
    if rule.ab == "f64":
        return math.prod(map(Fraction, factors), start=Fraction(1))
    # Two factors of narrower types have at most 24 + 24 significand bits: float64 holds these.
    return Fraction(math.prod(factors))


def _sum(terms: Sequence[Fraction | None]) -> Fraction | None:
    """Return the exact sum; None if a term is None."""
    known = [term for term in terms if term is not None]
    return sum(known, Fraction(0)) if len(known) == len(terms) else None


# --- Recording --------------------------------------------------------------------------------


@dataclass
class _Sum:
    """The record of one sum, as lists: by term and output, or by output alone."""

    names: list[str]
    factors: list[list[tuple[float, ...]]]
    powers: list[list[float]] = field(default_factory=list)
    kept: list[list[float]] = field(default_factory=list)
    top: list[float] | None = None
    total: list[float] = field(default_factory=list)
    d: list[float] = field(default_factory=list)
    source: Float64 | None = None
    adds_to_c: bool = False


class Recorder:
    """A `Watch` that records `count` outputs, each of them a tile of its own."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.sums: list[_Sum] = []
        # The c of a pass, its first product, and the parts of a and b in the products' names.
        self.addend, self.first, self.parts = "c", 0, ("", "")

    def passing(self, first: int, left: int, right: int) -> None:
        """Name the terms of a pass."""
        self.addend = f"d{len(self.sums)}" if self.sums else "c"
        self.first, self.parts = first, (f".{left}", f".{right}")

    def begin(
        self, products: Sequence[int], a: Float64 | None, b: Float64 | None, *addends: Float64
    ) -> None:
        """Keep the terms of a sum."""
        names = [self._name(addend) for addend in addends]
        factors: list[tuple[Values, ...]] = [(x[:, 0, 0],) for x in addends]
        if a is not None and b is not None:
            x, y = self.parts
            names += [f"a[{k}]{x}*b[{k}]{y}" for k in (self.first + one for one in products)]
            factors += [(a[:, 0, k], b[:, k, 0]) for k in products]
        by_term = [list(zip(*map(self._listed, each), strict=True)) for each in factors]
        to_c = {"c", *(f"d{i}" for i, one in enumerate(self.sums, start=1) if one.adds_to_c)}
        self.sums.append(_Sum(names, by_term, adds_to_c=not to_c.isdisjoint(names)))

    def _name(self, addend: Float64) -> str:
        """Return the name of the step that produced an addend, or c."""
        for number, one in enumerate(self.sums, start=1):
            if one.source is addend:
                return f"d{number}"
        return self.addend

    def _listed(self, array: Values) -> list[float]:
        """Return an array (W or 1,) as a list, which is quick to read one by one."""
        numbers: list[float] = np.broadcast_to(array, self.count).tolist()
        return numbers

    def aligned(
        self, powers: Sequence[Float64], top: Float64, kept: Sequence[Float64], total: Float64
    ) -> None:
        """Keep how they were aligned."""
        one = self.sums[-1]
        # A step that begins from zero has no addend, and a zero in its place.
        first = len(powers) - len(one.names)
        one.powers, one.kept = (
            [self._listed(x[0, 0]) for x in terms[first:]] for terms in (powers, kept)
        )
        one.top, one.total = self._listed(top[0, 0]), self._listed(total[0, 0])

    def summed(self, total: Float64) -> None:
        """Keep nothing: the account has the terms of this sum."""

    def end(self, d: Float64) -> None:
        """Keep the result."""
        self.sums[-1].source, self.sums[-1].d = d, self._listed(d[:, 0, 0])


# --- Writing ----------------------------------------------------------------------------------


def _step(name: str, one: _Sum, w: int, rule: Rule, bits: str) -> Step:
    """Return the account of a sum for output w; its bits are found out if they are not given."""
    factors = [each[w] for each in one.factors]
    if isinstance(rule.how, Integer):
        factors = [tuple(map(int, each)) for each in factors]
    values = [_product(each, rule) for each in factors]
    exponents: list[int | None]
    top = lowest = None
    if one.top is not None and isinstance(rule.how, Fused):
        powers = [each[w] for each in one.powers]
        exponents = list(map(_exponent, powers))
        special = not math.isfinite(one.top[w])
        if any(powers) and not special:
            top = _exponent(one.top[w])
        unit = 0.0
        if top is not None:
            lowest = top - rule.how.fraction_bits
            unit = 2.0**lowest
        # A power of two times a number is exact, and far from the ends of float64's range.
        kept = [None if special else Fraction(each[w] * unit) for each in one.kept]
        total = None if special else Fraction(one.total[w] * unit)
    else:
        exponents = [leading_exponent(value) if value else None for value in values]
        total = _sum(values)
        kept = values if total is not None else [None] * len(values)
    terms = tuple(map(Term, one.names, factors, values, exponents, kept))
    rounding, last_bit = _rounding(one, total, rule)
    return Step(
        name=name,
        kind=_kind(one, rule),
        terms=terms,
        exponent=top,
        lowest=lowest,
        total=total,
        rounding=rounding,
        last_bit=last_bit,
        result=one.d[w],
        bits=bits or _bits_between(one.d[w], _type(one, rule), rule),
    )


def _exponent(power: float) -> int | None:
    """Return the exponent of a power of two; None for zero, an infinity or NaN."""
    return math.frexp(power)[1] - 1 if power and math.isfinite(power) else None


def _kind(one: _Sum, rule: Rule) -> Kind:
    match rule.how:
        case Fused():
            return "addition" if one.top is None else "fused"
        case Sequential():
            return "multiply-add" if any(len(each[0]) > 1 for each in one.factors) else "addition"
        case Exact():
            return "exact" if any(len(each[0]) > 1 for each in one.factors) else "addition"
        case Integer():
            return "integer"


def _type(one: _Sum, rule: Rule) -> Format:
    """Return the type of a sum: that of c, unless the rule has another for sums without it."""
    narrow = rule.how.sum_type if isinstance(rule.how, Sequential) and not one.adds_to_c else ""
    return format_of(narrow or rule.acc)


def _rounding(one: _Sum, total: Fraction | None, rule: Rule) -> tuple[Ending, int | None]:
    """Return the rounding of a sum, and the exponent of the last bit of a result of its size."""
    acc, how = _type(one, rule), rule.how
    if isinstance(how, Integer):
        return how.overflow, None
    fraction_bits = acc.fraction_bits
    rounding: Rounding = "rne"
    match how:
        case Fused() if one.top is not None:
            fraction_bits, rounding = how.output_fraction_bits or fraction_bits, how.output
        case Fused():
            rounding = how.addition
        case Sequential():
            rounding = how.rounding
    if not total:
        return rounding, None
    return rounding, max(leading_exponent(total), acc.emin) - fraction_bits


def _bits_between(d: float, fmt: Format, rule: Rule) -> str:
    """Return the bits of a result of a type that another step takes."""
    value: Values = np.array(d).astype(fmt.dtype).reshape(1)
    if not isinstance(rule.how, Sequential):
        value = canonical_nan(value, fmt)
    return hex_bits(to_bits(value[0], fmt), fmt)
