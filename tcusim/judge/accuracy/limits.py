"""Where sums stop growing, by how much they are biased, and which integers are exact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tcusim.judge.accuracy.families import FAMILIES, Float64, terms_of
from tcusim.judge.accuracy.prediction import Step, step_of
from tcusim.machine import Fused, Integer, Rule, format_of, mma_values, round_values
from tcusim.machine.formats import Values
from tcusim.machine.probing import Mma

_SEED: Final = 7
# Octaves of a sum that are looked at, from 2^0.
_OCTAVES: Final = 64
# Steps that are tried at one value of c.
_TRIALS: Final = 4096
_FEW_TRIALS: Final = 512


@dataclass(frozen=True, slots=True)
class Stagnation:
    """Where a sum of one kind of terms stops growing in one accumulator.

    Attributes
    ----------
    terms : str
        ``"ones"``, or ``"uniform"``: between 0 and 1.
    predicted : float
        The least power of two from which no step changes the sum, by the parameters of the rule;
        infinite if the sum overflows before.
    computed : float
        That found by multiply-accumulates.
    """

    terms: str
    predicted: float
    computed: float


def stagnation_of(rule: Rule, k: int = 16, mma: Mma | None = None) -> tuple[Stagnation, ...]:
    """Return the lengths at which sums of ones, and of numbers from 0 to 1, stop growing.

    `mma` computes c + a @ b in place of the simulator: such as a GPU's.

    A term is lost in the alignment where u = 2^(E - F) exceeds it, and a step of L terms in the
    rounding where their sum is less than q = 2^(E - p), or than q/2 if it rounds to nearest.
    """
    if isinstance(rule.how, Integer):
        return ()
    step = step_of(rule, k)
    found = []
    for name, most in (("ones", 1.0), ("uniform", 1.0 - 2.0**-11)):
        terms = np.full((1, k), most)
        predicted = next(
            (2.0**e for e in range(_OCTAVES) if not _grows_by_model(step, 2.0**e, most)), math.inf
        )
        computed = next(
            (2.0**e for e in range(_OCTAVES) if not _grows(rule, 2.0**e, terms, mma)), math.inf
        )
        largest = format_of(rule.acc).largest
        found.append(
            Stagnation(
                name,
                predicted if predicted <= largest else math.inf,
                computed if computed <= largest else math.inf,
            )
        )
    return tuple(found)


def _grows_by_model(step: Step, c: float, most: float) -> bool:
    """Return whether a step of the largest terms makes c grow, from u and q alone."""
    exponent = math.log2(c)
    total = step.length * most
    if step.c_after:
        (total,) = step.take(np.zeros(1), np.full((1, step.length), most))
    elif step.fraction_bits is not None:
        unit = 2.0 ** (exponent - step.fraction_bits)
        kept = unit * (round(most / unit) if step.nearest_terms else math.floor(most / unit))
        total = step.length * kept
    grid = 2.0 ** (exponent - step.sum_bits)
    # A tie goes to the even neighbour, which c is.
    nearest = step.nearest_output or step.c_after
    return bool(total > grid / 2 if nearest else total >= grid)


def _grows(rule: Rule, c: float, terms: Float64, mma: Mma | None) -> bool:
    """Return whether a multiply-accumulate makes c grow."""
    if c > format_of(rule.acc).largest:
        return False
    a = terms.astype(format_of(rule.ab).dtype)
    ones = np.ones((a.shape[1], 1), a.dtype)
    start = np.full((len(a), 1), c, format_of(rule.acc).dtype)
    return bool((_multiply(a, ones, start, rule, mma) > c).any())


def _multiply(a: Values, b: Values, c: Values, rule: Rule, mma: Mma | None) -> Values:
    """Return c + a @ b, by `mma` if there is one."""
    return mma_values(a, b, c, rule) if mma is None else mma(a, b, c)


@dataclass(frozen=True, slots=True)
class Bias:
    """The mean error of a step on numbers between 0 and 1, where the sum is in one octave.

    Attributes
    ----------
    exponent : int
        The sum is between 2^exponent and twice that.
    predicted, computed : float
        In units in the last place of the accumulator, for each step.
    uncertainty : float
        The standard error of `computed`, as so many steps were tried.
    """

    exponent: int
    predicted: float
    computed: float
    uncertainty: float


def bias_of(
    rule: Rule,
    k: int = 16,
    exponents: tuple[int, ...] = (6, 9, 12),
    mma: Mma | None = None,
) -> tuple[Bias, ...]:
    """Return the bias of steps at some sizes of the sum, predicted and computed on the same terms.

    Computed by multiply-accumulates, those of `mma` in place of the simulator's if it is given;
    predicted from the parameters of the rule alone.
    """
    if isinstance(rule.how, Integer):
        return ()
    step = step_of(rule, k)
    acc = format_of(rule.acc)
    found = []
    for exponent in exponents:
        if 2.0 ** (exponent + 1) > acc.largest:
            continue
        rng = np.random.default_rng((_SEED, exponent))
        terms = terms_of(FAMILIES["same_sign"], rng, _TRIALS, step.length, rule.ab)
        last = exponent - min(step.sum_bits, step.fraction_bits or step.sum_bits)
        c = np.ldexp(
            rng.integers(2 ** (exponent - last), 2 ** (exponent - last + 1), _TRIALS), last
        )
        c = np.minimum(c, 2.0 ** (exponent + 1) - step.length)
        c = np.floor(np.ldexp(c, -last)) * 2.0**last
        exact = c + terms.astype(np.float64).sum(axis=1)
        unit = 2.0 ** (exponent - step.sum_bits)
        predicted = (step.take(c, terms.astype(np.float64)) - exact) / unit
        ones = np.ones((step.length, 1), terms.dtype)
        got = _multiply(terms, ones, c[:, None].astype(acc.dtype), rule, mma)[:, 0]
        computed = (got.astype(np.float64) - exact) / unit
        found.append(
            Bias(
                exponent,
                float(predicted.mean()),
                float(computed.mean()),
                float(computed.std()) / math.sqrt(_TRIALS),
            )
        )
    return tuple(found)


def exact_integers(rule: Rule) -> int:
    """Return a power of two up to which every sum of integers is exact, found by trying.

    At the power of two c = 2^j, and at its predecessor, one more must be one more.
    """
    acc = format_of(rule.acc)
    if isinstance(rule.how, Integer):
        return int(acc.largest) + 1
    ab = format_of(rule.ab).dtype
    one = np.ones((1, 1), ab)
    for j in range(1, 54):
        c = np.array([[2.0**j]])
        below = np.array([[2.0**j - 1.0]])
        if 2.0**j > acc.largest or float(below.astype(acc.dtype)[0, 0]) != 2.0**j - 1.0:
            return int(2 ** (j - 1))
        got = mma_values(one, one, below.astype(acc.dtype), rule)[0, 0]
        if float(got) != 2.0**j:
            return int(2 ** (j - 1))
        more = mma_values(one, one, c.astype(acc.dtype), rule)[0, 0]
        if float(more) != 2.0**j + 1.0:
            return int(2**j)
    return 2**53


@dataclass(frozen=True, slots=True)
class Order:
    """The effect of the order of terms within one mma.

    Attributes
    ----------
    share : float
        The share of random rows of which another order of terms gave other bits.
    units : float
        The largest difference, in units in the last place of the result.
    """

    share: float
    units: float


def order_of(rule: Rule, k: int = 16) -> Order:
    """Return the changes by another order of the terms of an mma, on normal numbers and c."""
    rng = np.random.default_rng(_SEED)
    acc = format_of(rule.acc)
    if isinstance(rule.how, Integer):
        return Order(0.0, 0.0)
    terms = terms_of(FAMILIES["normal"], rng, _FEW_TRIALS, k, rule.ab)
    ones = np.ones((k, 1), terms.dtype)
    c = terms_of(FAMILIES["normal"], rng, _FEW_TRIALS, 1, rule.ab).astype(acc.dtype)
    first = mma_values(terms, ones, c, rule).astype(np.float64)
    differs, units = np.zeros(first.shape, bool), 0.0
    for _ in range(8):
        other = mma_values(rng.permuted(terms, axis=1), ones, c, rule).astype(np.float64)
        differs |= other != first
        _, exponents = np.frexp(np.maximum(np.abs(first), np.abs(other)))
        unit = np.ldexp(1.0, exponents - 1 - acc.fraction_bits)
        units = max(units, float((np.abs(other - first) / unit).max()))
    return Order(float(differs.mean()), units)


@dataclass(frozen=True, slots=True)
class Fall:
    """A sum that falls when one of its parts is raised.

    Attributes
    ----------
    terms : tuple of float
        Products of an mma.
    c : float
        The addend.
    place : int or None
        Which of the terms is raised; None if it is c.
    raised : float
        What it is raised to.
    sum, fallen : float
        What the mma returns before and after.
    """

    terms: tuple[float, ...]
    c: float
    place: int | None
    raised: float
    sum: float
    fallen: float


def falls(rule: Rule, k: int = 16) -> Fall | None:
    """Return a sum that falls where c, or else a term, is raised; None if none was found.

    It is raised to a power of two, by one unit in its last place. The alignment then cuts the other
    terms to a coarser grid, which may lose more than that unit.
    """
    if isinstance(rule.how, Integer):
        return None
    rng = np.random.default_rng(_SEED)
    acc, ab = format_of(rule.acc), format_of(rule.ab)
    top = 2.0 ** rng.integers(0, 6, (_FEW_TRIALS, 1))
    # Where terms are cut: the last bit that the alignment keeps, or the result.
    kept = acc.fraction_bits
    if isinstance(rule.how, Fused):
        kept = min(kept, rule.how.fraction_bits)
    places = rng.integers(max(0, kept - 12), kept + 3, (_FEW_TRIALS, 1))
    small = top * 2.0**-places * rng.uniform(1, 2, (_FEW_TRIALS, k))
    terms = round_values(small, rule.ab)
    below = (top * (1.0 - 2.0 ** -(acc.fraction_bits + 1))).astype(acc.dtype)
    raised = top.astype(acc.dtype)
    found = _fall_of(rule, (terms, below), (terms, raised), None)
    if found is not None or k == 1:
        return found
    # Of a term the last place is coarser, so what it gains is more. The others have to lose that.
    before, after = terms.copy(), terms.copy()
    before[:, :1] = round_values(top * (1.0 - 2.0 ** -(ab.fraction_bits + 1)), rule.ab)
    after[:, :1] = round_values(top, rule.ab)
    nothing = np.zeros_like(below)
    return _fall_of(rule, (before, nothing), (after, nothing), 0)


def _fall_of(
    rule: Rule, before: tuple[Values, Values], after: tuple[Values, Values], place: int | None
) -> Fall | None:
    """Return the row that falls most from some terms and c to others, if one does."""
    ones = np.ones((before[0].shape[1], 1), before[0].dtype)
    one, two = (mma_values(terms, ones, c, rule)[:, 0] for terms, c in (before, after))
    lost = one.astype(np.float64) - two.astype(np.float64)
    at = int(lost.argmax())
    if not lost[at] > 0.0:
        return None
    raised = after[1][at, 0] if place is None else after[0][at, place]
    values = tuple(map(float, before[0][at]))
    c = float(before[1][at, 0])
    return Fall(values, c, place, float(raised), float(one[at]), float(two[at]))
