"""Predict the error of a sum from the parameters of a rule, without multiplying tiles.

One accumulator takes a chain of steps. A step of L terms aligns them and c to the largest exponent
E, cuts each to a multiple of u = 2^(E - F), and rounds the sum to a multiple of q = 2^(e - p); e is
the sum's exponent and p the fraction bits of the result. So a step's error depends on the terms'
distribution and on the exponent of c. For each such exponent the model takes the moments of one
step's error: its mean (truncation biases a sum toward zero), its variance, and its covariance with
the sum of the step's terms (a term that is cut away as a whole is an error of its own size: then a
sum stagnates).

A sum of n terms is a random walk, and its computed value another, with these moments: they are
followed together, in strides that grow with the length, by the Euler-Maruyama method. The first
steps are followed one by one. For terms without a sign the error grows with sqrt(n) where steps
round to nearest, and faster where they truncate; for terms of one sign it has a bias that grows
with n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import Unsupported, require_int, unknown_name
from tcusim.judge.accuracy.families import FAMILIES, Family, Float64, in_type, terms_of
from tcusim.machine import Exact, Fused, Integer, Rule, Sequential, format_of

# The longest sum that is predicted, in terms.
LONGEST: Final = 2**24
# Sums that are followed, step by step at first, and then fewer of them in strides.
_SUMS: Final = 1536
_FEWER_SUMS: Final = 768
_FIRST_STEPS: Final = 64
# Where few sums err, their root mean square is a matter of chance: more sums then take the first
# steps, in batches of a number of steps in all, until at least this many have an error.
_MORE_STEPS: Final = 2 * _FIRST_STEPS
_MOST_BATCHES: Final = 12
_ERRING: Final = 24
# A stride is this part of the steps so far.
_STRIDE: Final = 16
# Strides in which what holds a sum near zero is followed, where it does so within a stride.
_RELAXING: Final = 14
# Steps from which the moments at one exponent are taken.
_SAMPLES: Final = 512
_IN_SHARE: Final = 64
# So many times as many where c is added afterwards: what the alignment cuts off is the same beside
# any c then, so that a bias by chance is one of the whole sum.
_MORE_AFTER: Final = 16
# Steps of a rare error are counted in batches of so many terms, at most this many.
_RARE_TERMS: Final = 2**18
_RARE_BATCHES: Final = 8
# Steps that `_steps` makes of one.
_COPIES: Final = 4
_SEED: Final = 3
# c is beside its terms where it is 2^this times as large as their sum, or larger.
_BESIDE: Final = 2
# The correlation of what two grids cut off a term, one being half as fine: that of the last bits.
_SHARED: Final = 0.5
# Residues that are told apart, as a power of two.
_MOST_CELL_BITS: Final = 16
# A length's error is infinite where a larger share of its sums overflows.
_OVERFLOWING: Final = 0.02
# Of longer steps fewer are followed, in inverse proportion, but no fewer than so many: the terms of
# one step average out what the steps would have.
_USUAL_LENGTH: Final = 64
_LEAST_SUMS: Final = 192
_LEAST_STEPS: Final = 8
_LEAST_SAMPLES: Final = 64
# The most bits of a result that are followed in float64, which has room for a sum's growth.
_MOST_BITS: Final = 40
# Bits that fewer steps than this change are followed by themselves, so many from the last one that
# a step keeps while c is small.
_FEW: Final = 0.2
_PLACES: Final = 14
# The exponent of a sum that is zero.
_NOTHING: Final = -40


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a chain, as the model sees it.

    Attributes
    ----------
    length : int
        Terms that it sums.
    fraction_bits : int or None
        Bits kept below the largest exponent; None if all are.
    output_bits : int
        Fraction bits of the result.
    nearest_terms, nearest_output : bool
        Whether terms are cut, or the sum is rounded, to nearest; else toward zero.
    c_after : bool
        Whether c is added to the rounded sum, with a rounding to nearest in the accumulator's type.
    largest : float
        The largest finite result.
    acc_bits : int
        Fraction bits of the accumulator's type, in which sums of blocks are added, and such a c.
    floor : int or None
        The least exponent that terms are aligned to.
    """

    length: int
    fraction_bits: int | None
    output_bits: int
    nearest_terms: bool
    nearest_output: bool
    c_after: bool
    largest: float
    acc_bits: int
    floor: int | None = None

    def take(self, c: Float64, terms: Float64) -> Float64:
        """Return the sum of c (rows) and terms (rows, length) after one step."""
        return self.join(c, self.partial(terms))

    def partial(self, terms: Float64) -> Float64:
        """Return a step without c: the rounded sums (rows) if c is added after, else the terms."""
        if not self.c_after:
            return terms
        together = self._aligned(np.zeros(len(terms)), terms)
        return self._round(together, self.nearest_output, self.output_bits)

    def join(self, c: Float64, partial: Float64) -> Float64:
        """Return the sum of c (rows) and a result of `partial` after the step."""
        if self.c_after:
            return self._round(partial + c, True, self.acc_bits)
        return self._round(self._aligned(c, partial), self.nearest_output, self.output_bits)

    @property
    def sum_bits(self) -> int:
        """Fraction bits of what the step returns."""
        return self.acc_bits if self.c_after else self.output_bits

    def _aligned(self, c: Float64, terms: Float64) -> Float64:
        """Return the sum of what the alignment leaves."""
        if self.fraction_bits is None:
            return np.asarray(c + terms.sum(axis=1))
        _, exponents = np.frexp(np.maximum(np.abs(terms).max(axis=1), np.abs(c)))
        exponents -= 1
        if self.floor is not None:
            exponents = np.maximum(exponents, self.floor)
        unit = np.ldexp(1.0, exponents - self.fraction_bits)
        cut = np.rint if self.nearest_terms else np.trunc
        # The reciprocals are powers of two, too: to multiply is quicker, and as exact.
        whole = terms * (1.0 / unit)[:, None]
        cut(whole, out=whole)
        return np.asarray((whole.sum(axis=1) + cut(c / unit)) * unit)

    def _round(self, total: Float64, nearest: bool, bits: int) -> Float64:
        _, exponents = np.frexp(total)
        grid = np.ldexp(1.0, exponents - 1 - bits)
        rounded: Float64 = (np.rint if nearest else np.trunc)(total / grid) * grid
        beyond = np.abs(rounded) > self.largest
        return np.asarray(np.where(beyond, np.copysign(np.inf, rounded), rounded))


# Roundings without a bias; that to odd loses up to a unit, in both directions.
_NEAREST: Final = ("rne", "rna", "odd")


def step_of(rule: Rule, k: int) -> Step:
    """Return the step of a rule, in mma whose tiles have this k.

    Where the rule's length does not divide k, steps are taken to be equally long. Parts that few
    units have count as the nearest that others have: a late c as one that is added after, trees and
    chains apart as one rounding of each group.
    """
    acc = format_of(rule.acc)
    how = rule.how
    if isinstance(how, Fused):
        floor = how.exponent_floor
        if floor is not None and floor > how.fraction_bits:
            raise Unsupported(
                f"exponent_floor = {floor} with {how.fraction_bits} fraction bits cuts off all "
                f"that is below 2^{floor - how.fraction_bits}: sums of numbers around 1 are "
                f"nothing, and no error is predicted"
            )
        steps = math.ceil(k / how.length)
        return Step(
            max(1, round(k / steps)),
            how.fraction_bits,
            how.output_fraction_bits or acc.fraction_bits,
            how.alignment in _NEAREST,
            how.output in _NEAREST,
            how.c_joins != "sum",
            acc.largest,
            acc.fraction_bits,
            how.exponent_floor,
        )
    bits = acc.fraction_bits
    if isinstance(how, Sequential) and not how.is_basic:
        nearest = how.rounding in _NEAREST
        own = format_of(how.sum_type or rule.acc).fraction_bits
        return Step(min(k, how.length or k), None, own, True, nearest, True, acc.largest, bits)
    length, after = 1 if isinstance(how, Sequential) else k, False
    if isinstance(how, Exact):
        length, after = min(k, how.length or k), how.c_joins == "after"
    return Step(length, None, bits, True, True, after, acc.largest, bits)


def predicted_error(
    rule: Rule, family: str, length: int, *, k: int = 16, blocked: int | None = None
) -> float:
    """Return the error that a sum will have, from the parameters of a rule.

    Parameters
    ----------
    rule : Rule
        The arithmetic: one of a unit's `arch.rows`.
    family : str
        The data: uniform, normal, same_sign, heavy_tailed or cancelling.
    length : int
        Terms of the sum, up to 2^24.
    k : int
        That of the tile: terms of one mma.
    blocked : int, optional
        Mma after which the accumulator is added to a running sum, by an addition rounded to
        nearest, and begins anew; by default one accumulator takes all.

    Returns
    -------
    float
        The root mean square, over sums, of |computed - exact| / (sum of |terms|). Infinite where
        sums overflow.

    Raises
    ------
    UnknownName
        If there is no such family.
    InputError
        If a number is out of range.
    Unsupported
        If the rule's floor cuts off numbers around 1.

    Examples
    --------
    >>> from tcusim.machine import rule_for
    >>> volta, hopper = (rule_for(arch, "f16", "f32") for arch in ("volta", "hopper"))
    >>> predicted_error(volta, "same_sign", 2**20) > 2 * predicted_error(hopper, "same_sign", 2**20)
    True
    """
    if family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    require_int("length", length, 1, LONGEST)
    require_int("k", k, 1, 2**16)
    if blocked is not None:
        require_int("blocked", blocked, 1)
    if isinstance(rule.how, Integer):
        return 0.0
    step = step_of(rule, k)
    finer = max(0, step.output_bits - _MOST_BITS)
    if finer:
        # What float64 rounds to, it cannot follow: the error of so many bits less is as much more.
        step = replace(step, output_bits=_MOST_BITS, acc_bits=_MOST_BITS)
    if blocked is None or length <= blocked * k:
        return _chain(step, family, rule.ab).at(length) * 2.0**-finer
    return _blocked(step, family, rule.ab, length, blocked * k) * 2.0**-finer


class _Walk:
    """Errors of sums by length: the root mean square over the sum of magnitudes, and the mean.

    The mean is of the errors themselves, with their sign.
    """

    def __init__(self, magnitude: float) -> None:
        # magnitude: the mean magnitude of a term.
        self.magnitude = magnitude
        self.rows: dict[int, tuple[float, float]] = {}

    def add(self, length: int, errors: Float64, sizes: Float64 | None = None) -> None:
        """Record the errors of sums of a length. sizes: their sums of magnitudes, if known."""
        finite = np.isfinite(errors)
        if np.mean(~finite) > _OVERFLOWING:
            self.rows[length] = (math.inf, math.inf)
            return
        size = np.full(len(errors), length * self.magnitude) if sizes is None else sizes
        size = np.where(size == 0.0, 1.0, size)[finite]
        root = math.sqrt(float(np.mean((errors[finite] / size) ** 2)))
        self.rows[length] = (root, float(errors[finite].mean()))

    def at(self, length: int, column: int = 0) -> float:
        """Return the error at a length, or the mean (column 1), between those recorded."""
        lengths = sorted(self.rows)
        known = [self.rows[each][column] for each in lengths]
        return float(np.interp(math.log2(length), np.log2(lengths), known))


# --- One accumulator --------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _chain(step: Step, family: str, ab: str) -> _Walk:
    return _follow(step, FAMILIES[family], ab)


class _Moments:
    """The moments of one step's error, by the exponent of c; made when they are asked for."""

    def __init__(
        self, step: Step, terms: Float64, drawn: Float64, rare: tuple[float, float] | None = None
    ) -> None:
        # rare: what `_rare_errors` returns.
        self.step = step
        self.rare = rare
        self.terms = terms
        self.sums = terms.sum(axis=1)
        self.drawn, self.drawn_variance = drawn, float(drawn.var())
        self.mean = step.length * float(drawn.mean())
        self.variance = step.length * self.drawn_variance
        self._apart, self._variance = self.sums - self.sums.mean(), float(self.sums.var())
        # The part of each step without c, which is the same beside each c.
        self._partial = step.partial(terms)
        # The error that each step makes before c joins, and the spread of what its sum leaves open.
        self.before = np.zeros_like(self.sums)
        self.spread_before = 0.0
        if _keeps_negatives(step):
            self.before = step.join(np.zeros_like(self.sums), self._partial) - self.sums
            self.spread_before = float((self.before - self._slope(self.before) * self.sums).std())
        # The place of the last bit of each term, ascending: half of the terms have more.
        added = (self.sums + self.before) if _keeps_negatives(step) else terms.ravel()
        self.last = np.sort(_last_bits(added))
        self.top = int(_exponents(np.abs(drawn).max(keepdims=True))[0])
        self._known: dict[tuple[int, int], tuple[float, float, float]] = {}
        self._latest: tuple[Float64 | None, float, Float64] = (None, 0.0, terms)

    def at(self, computed: Float64, terms: float) -> Float64:
        """Return bias, slope and spread for each c, the sum of so many terms.

        slope: the error for each unit by which the step's terms exceed their mean. spread: the
        standard deviation of what is left, without that of `spread_before`.
        """
        # Several ask about the same sums.
        before, count, found = self._latest
        if computed is before and terms == count:
            return found
        exponents = _exponents(computed)
        # c has no bit that none of its terms has.
        last = int(self.last[min(len(self.last) - 1, int(0.7 * len(self.last) / terms))])
        least = int(exponents.min())
        counts = np.bincount(exponents - least)
        table = np.zeros((3, counts.size))
        for place in np.flatnonzero(counts).tolist():
            table[:, place] = self._one(least + place, last)
        found = table[:, exponents - least]
        self._latest = computed, terms, found
        return found

    def _one(self, exponent: int, last: int) -> tuple[float, float, float]:
        step = self.step
        kept = step.sum_bits
        if step.fraction_bits is not None and not step.c_after:
            kept = min(kept, step.fraction_bits)
            if step.floor is not None:
                # What was aligned to the floor has no bit below what that keeps.
                last = max(last, step.floor - step.fraction_bits)
        key = exponent, min(exponent, max(exponent - kept, last))
        if key not in self._known:
            self._known[key] = self._taken(*key)
        return self._known[key]

    def _taken(self, exponent: int, last: int) -> tuple[float, float, float]:
        """Return the moments for c of an exponent, which is a multiple of 2^last."""
        step, rows = self.step, len(self.terms)
        # c in all places of its octave, in an order that has nothing to do with that of the terms.
        # A step and its opposite meet the same c, so that rounding to nearest has no chance bias.
        place = (np.arange(rows) % (rows // 2) * 0.6180339887498949) % 1.0
        c = np.ldexp(np.floor((1.0 + place) * 2.0 ** (exponent - last)), last)
        errors = step.join(c, self._partial) - c - self.sums
        if not np.isfinite(errors).all():
            return 0.0, 0.0, 0.0
        beside = self._cut_beside(exponent)
        if beside is not None:
            return beside
        slope = self._slope(errors)
        bias = self._bias_beside(exponent, last)
        if bias is None:
            bias = float((errors - slope * self.sums).mean()) + slope * self.mean
        joining = errors - self.before
        spread = float((joining - self._slope(joining) * self.sums).std())
        if self.rare is not None:
            # The rounding of c + partial, beside errors that so few steps tell too little of.
            joining = errors + self.sums - self._partial
            mean, deviation = self.rare
            slope = self._slope(joining)
            bias = float((joining - slope * self.sums).mean()) + slope * self.mean + mean
            rest = float((joining - slope * self.sums).std())
            spread = math.hypot(rest, (1.0 + max(-1.0, slope)) * deviation)
        return bias, slope, spread

    def _slope(self, errors: Float64) -> float:
        """Return the regression of errors on the sums of the steps' terms."""
        if not self._variance:
            return 0.0
        return float(np.mean((errors - errors.mean()) * self._apart)) / self._variance

    def _cut_beside(self, exponent: int) -> tuple[float, float, float] | None:
        """Return the moments where c has the largest exponent and the alignment alone errs.

        They follow from those of one term: of what few terms lose, few steps would tell little.
        """
        step = self.step
        variance = self.drawn_variance
        if not _rounds_nothing(step) or exponent < self.top or not variance:
            return None
        assert step.fraction_bits is not None, "what rounds nothing cuts"
        floor = exponent if step.floor is None else step.floor
        unit = 2.0 ** (max(exponent, floor) - step.fraction_bits)
        cut = (np.rint if step.nearest_terms else np.trunc)(self.drawn / unit) * unit
        errors = cut - self.drawn
        slope = float(np.mean(errors * (self.drawn - self.drawn.mean()))) / variance
        rest = float(np.var(errors - slope * self.drawn))
        return step.length * float(errors.mean()), slope, math.sqrt(step.length * rest)

    def _bias_beside(self, exponent: int, last: int) -> float | None:
        """Return the bias beside a c so large that its exponent is E and the sum's; None if not so.

        A bias adds up over up to 2^24 terms, so that an estimate from samples would not do. The
        aligned terms are multiples of u and c is one of q: the bias of the rounding follows from
        the distribution of their sum modulo q, the convolution of those of the terms.
        """
        step = self.step
        if step.c_after or exponent < self.top + math.log2(step.length) + _BESIDE:
            return None
        if step.floor is not None and exponent < step.floor:
            return None
        finest = step.output_bits + _MOST_CELL_BITS
        bits = step.fraction_bits
        if bits is None or bits > finest:
            # What finer residues would add is too little to count.
            bits, nearest = finest, True
        else:
            nearest = step.nearest_terms
        cells = 2 ** max(0, bits - step.output_bits)
        unit = 2.0 ** (exponent - bits)
        cut = (np.rint if nearest else np.trunc)(self.drawn / unit)
        aligning = step.length * float(np.mean(cut * unit - self.drawn))
        shares = np.bincount(cut.astype(np.int64) & (cells - 1), minlength=cells) / cut.size
        together = np.fft.irfft(np.fft.rfft(shares) ** step.length, cells) if cells > 1 else shares
        places = np.arange(cells)
        rounded = np.where(places * 2 > cells, cells, 0) if step.nearest_output else 0
        # Of ties every other one goes up.
        moved = (
            np.where(places * 2 == cells, 0, rounded - places) if step.nearest_output else -places
        )
        bias = aligning + float(np.dot(together, moved)) * unit
        quantum = 2.0 ** (exponent - step.output_bits)
        grows = self.mean > 0.0 and not step.nearest_output
        if grows and math.ldexp(1.0, last) <= quantum and unit <= quantum:
            # A sum that passes a power of two loses one more bit, if it has that. Sums that do not
            # grow pass one too seldom for this to count.
            bias -= self.mean / 2.0**exponent * quantum / 2.0
        return bias


class _LowBits:
    """Bits of c that few steps change: small sums gain them, and lose them as they grow.

    The alignment cuts off what c has below 2^(E - F) when E has grown. Where most steps have bits
    there, they lose more themselves, which their moments tell.

    places are the exponents of these bits, and shares (sums, places) how probable each is.
    """

    def __init__(self, moments: _Moments, computed: Float64) -> None:
        step = moments.step
        self.step = step
        # What a step aligns to where c is small.
        self.usual = int(np.median(_exponents(np.abs(moments.terms).max(axis=1))))
        if step.floor is not None:
            self.usual = max(self.usual, step.floor)
        self.places = np.arange(0)
        self.rates = np.zeros(0)
        if _rounds_nothing(step):
            assert step.fraction_bits is not None, "what rounds nothing cuts"
            least = self.usual - step.fraction_bits
            places = np.arange(max(least, int(moments.last[0])), least + _PLACES)
            odd = _bits_at(moments.drawn, places).mean(axis=0)
            rates = 0.5 - 0.5 * (1.0 - 2.0 * odd) ** step.length
            few = (rates > 0.0) & (rates < _FEW)
            self.places, self.rates = places[few], rates[few]
        self.shares = _bits_at(computed, self.places)

    def lost(self, near: Sequence[tuple[float, Float64]], steps: float) -> tuple[Float64, Float64]:
        """Return the mean and the variance of what sums lose in a stride, as magnitudes.

        near: places where they are in it, with their probabilities.
        """
        cleared = np.zeros_like(self.shares)
        for share, values in near:
            exponents = np.maximum(_exponents(values), self.usual)
            cleared += share * (exponents[:, None] - self.step.fraction_bits > self.places)
        gone = self.shares * cleared
        left = self.shares - gone
        gained = (1.0 - cleared) * (1.0 - (1.0 - 2.0 * self.rates) ** steps)
        self.shares = left + (0.5 - left) * gained
        sizes = 2.0**self.places
        return gone @ sizes, (gone * (1.0 - gone)) @ np.square(sizes)

    def drift(
        self, near: Sequence[tuple[float, Float64]], steps: float, rng: np.random.Generator
    ) -> Float64:
        """Return the moves of computed sums that lose bits in a stride; the first are `near`'s."""
        (_, computed), *_ = near
        mean, variance = self.lost(near, steps)
        if self.step.nearest_terms:
            mean, variance = np.zeros_like(mean), variance + np.square(mean)
        pull = -np.sign(computed) * np.minimum(mean, np.abs(computed))
        return np.asarray(pull + np.sqrt(variance) * rng.standard_normal(len(computed)))


def _bits_at(values: Float64, places: NDArray[np.intp]) -> Float64:
    """Return the bits of numbers at some places: (numbers, places)."""
    found: Float64 = np.floor(np.abs(values)[:, None] * 2.0**-places) % 2.0
    return found


def _last_bits(values: Float64) -> NDArray[np.intp]:
    """Return the exponents of the last bits of numbers; those of zeros are large."""
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.where(values == 0.0, 999, exponents - 53 + lowest).astype(np.intp)


def _follow(step: Step, family: Family, ab: str) -> _Walk:
    """Follow sums and their computed values from the first term to the longest sum."""
    rng = np.random.default_rng(_SEED)
    fewer = max(1, step.length // _USUAL_LENGTH)
    sums = max(_LEAST_SUMS, _SUMS // fewer)
    first_steps = max(_LEAST_STEPS, _FIRST_STEPS // fewer)
    terms = terms_of(family, rng, sums, first_steps * step.length, ab).astype(np.float64)
    samples = max(_LEAST_SAMPLES, _SAMPLES // fewer)
    if step.c_after:
        samples *= _MORE_AFTER
    drawn = _strata(family, rng, ab, samples)
    rows = _steps(drawn, rng, step.length)
    walk = _Walk(float(np.abs(drawn).mean()))
    with np.errstate(all="ignore"):
        rare = _rare_errors(step, family, ab, rows, terms)
        moments = _Moments(step, rows, drawn.ravel(), rare)
        found, ends = _one_by_one(step, terms)
        left = _MORE_STEPS // fewer
        for batch in range(1, _MOST_BATCHES):
            count = math.ceil(_longest_rare(found, 2.0 ** -(step.sum_bits + 2)) / step.length)
            left -= count
            if not count or left < 0:
                break
            more = np.random.default_rng((_SEED, batch))
            terms = terms_of(family, more, sums, count * step.length, ab).astype(np.float64)
            others, _ = _one_by_one(step, terms)
            for length, pair in others.items():
                found[length] = np.concatenate([found[length], pair], axis=1)
        for length, (errors, sizes) in found.items():
            walk.add(length, errors, sizes)
        _Strides(step, family, moments, ends, first_steps, rng).follow(walk)
    return walk


def _one_by_one(step: Step, terms: Float64) -> tuple[dict[int, Float64], tuple[Float64, Float64]]:
    """Return the errors and magnitudes of sums by length, and the last exact and computed sums."""
    exact, computed, sizes = np.zeros((3, len(terms)))
    found = {}
    for length in (1 << power for power in range(16)):
        # Shorter sums than a step are a step with zeros.
        if length < step.length:
            some = np.where(np.arange(step.length) < length, terms[:, : step.length], 0.0)
            errors = step.take(computed, some) - some.sum(axis=1)
            found[length] = np.stack([errors, np.abs(some).sum(axis=1)])
    for end in range(step.length, terms.shape[1] + 1, step.length):
        part = terms[:, end - step.length : end]
        computed = step.take(computed, part)
        exact = exact + part.sum(axis=1)
        sizes = sizes + np.abs(part).sum(axis=1)
        found[end] = np.stack([computed - exact, sizes])
    return found, (exact, computed)


def _longest_rare(found: dict[int, Float64], least: float) -> int:
    """Return the longest sums, in terms, whose error few of them have; 0 without any.

    least: the least error that matters.
    """
    rare = [
        length
        for length, (errors, sizes) in found.items()
        if _is_rare(errors / np.where(sizes == 0.0, 1.0, sizes), least=least)
    ]
    return max(rare, default=0)


def _is_rare(errors: Float64, *, copies: int = 1, least: float = 0.0) -> bool:
    """Return whether the root mean square exceeds `least` and too few errors have most of it.

    copies: the number of times that each error is there.
    """
    squares = np.square(errors)
    total = float(squares.sum())
    matters = errors.size * least**2 < total < math.inf
    return matters and total**2 < copies * _ERRING * float(np.square(squares).sum())


def _rare_errors(
    step: Step, family: Family, ab: str, rows: Float64, terms: Float64
) -> tuple[float, float] | None:
    """Return the mean and the deviation of errors before c joins, if few of the rows err.

    terms: those of the sums that are followed first.
    """
    if not step.c_after or _keeps_negatives(step):
        return None
    few = step.partial(rows) - rows.sum(axis=1)
    least = 2.0 ** -(step.sum_bits + 2) * float(np.abs(rows).sum(axis=1).mean())
    if few.any() and not _is_rare(few, copies=_COPIES, least=least):
        return None
    errors, rng = np.zeros(0), np.random.default_rng(_SEED)
    for _ in range(_RARE_BATCHES):
        parts = terms.reshape(-1, step.length)
        errors = np.concatenate([errors, step.partial(parts) - parts.sum(axis=1)])
        if not _is_rare(errors, least=least):
            break
        count = _RARE_TERMS // step.length
        terms = in_type(family.draw(rng, (count, step.length)), ab).astype(np.float64)
    mean = float(errors.mean()) if family.one_sign else 0.0
    return mean, math.sqrt(float(np.mean(np.square(errors - mean))))


def _strata(family: Family, rng: np.random.Generator, ab: str, samples: int = _SAMPLES) -> Float64:
    """Return terms by equal shares of all, ascending: (shares, terms).

    Without a sign there are as many below zero as above.
    """
    count = samples if family.one_sign else samples // 2
    found = family.draw(rng, (count, _IN_SHARE)).ravel()
    if family.quantile is not None:
        # Anywhere in their parts, or the last bits of a wide type would be zeros: one as far above
        # the middle of its part as another is below, so that the mean is that of all.
        off = rng.uniform(-0.5, 0.5, found.size // 2)
        middles = np.arange(found.size) + 0.5 + np.concatenate([off, -off[::-1]])
        found = family.quantile(middles / found.size)
    ordered = np.sort(found if family.one_sign else np.abs(found))
    rounded: Float64 = in_type(ordered, ab).astype(np.float64)
    whole = rounded if family.one_sign else np.concatenate([-rounded[::-1], rounded])
    return whole.reshape(-1, _IN_SHARE)


def _steps(strata: Float64, rng: np.random.Generator, length: int) -> Float64:
    """Return the terms of steps, of each share equally many, so that their mean is that of all.

    With each step is the one whose terms are as high as its own are low, or its negative: what a
    sum exceeds its mean by, another lacks.
    """
    places = np.stack([rng.permutation(len(strata)) for _ in range(length)], axis=1)
    one_sign = bool((strata >= 0.0).all())
    both = np.concatenate([places, len(strata) - 1 - places]) if one_sign else places
    found: Float64 = strata[both, rng.integers(0, strata.shape[1], both.shape)]
    return found if one_sign else np.concatenate([found, -found])


class _Strides:
    """Sums, exact and computed, that are followed in strides, after steps taken one by one."""

    def __init__(
        self,
        step: Step,
        family: Family,
        moments: _Moments,
        sums: tuple[Float64, Float64],
        steps: int,
        rng: np.random.Generator,
    ) -> None:
        self.step, self.family, self.moments, self.rng = step, family, moments, rng
        self.exact, self.computed = (each[:_FEWER_SUMS] for each in sums)
        self.steps = float(steps)
        # The next power of two terms, in steps: there some families return to zero.
        self.turn = 2 ** math.floor(math.log2(self.terms) + 1) / step.length
        self.cuts = np.zeros_like(self.exact)
        only_cuts = step.fraction_bits is not None and step.fraction_bits <= step.output_bits
        self.shared = _SHARED if only_cuts and not _keeps_negatives(step) else 0.0
        self.low_bits = _LowBits(moments, self.computed)

    @property
    def terms(self) -> float:
        """Terms of each sum so far."""
        return self.steps * self.step.length

    def follow(self, walk: _Walk) -> None:
        """Record the errors of sums after each stride, up to the longest."""
        while self.terms < LONGEST:
            stride = min(max(1.0, self.steps // _STRIDE), self.turn - self.steps)
            for taken, followed in self._parts(stride):
                self._advance(taken, followed)
            if self.steps >= self.turn:
                self.turn *= 2.0
                self.cuts = np.zeros_like(self.exact)
            errors = self.computed - self.exact
            walk.add(round(self.terms), errors)
            if not np.isfinite(self.computed).any():
                walk.add(LONGEST, errors)
                return

    def _moments_at(self, computed: Float64) -> Float64:
        return self.moments.at(computed, self.terms)

    def _parts(self, stride: float) -> list[tuple[float, float]]:
        """Return the parts of a stride: the steps of the exact sum, and those that matter.

        Where sums are held near zero, their values long ago do not matter.
        """
        whole = [(stride, stride)]
        finite = np.where(np.isfinite(self.computed), self.computed, 0.0)
        pull = _root(self._moments_at(self.computed)[0])
        if self.family.one_sign or not pull:
            return whole
        # Where pull and chance are in balance. A sum that is nearer to zero, since it cancels, is
        # not held there: it keeps its value.
        size = max(_root(finite), 0.5 * self.moments.variance / pull)
        if stride * pull < 0.25 * size:
            return whole
        short = max(1.0, math.floor(0.25 * size / pull))
        count = min(_RELAXING, math.ceil(stride / short))
        if count * short >= stride:
            return [(stride / count, stride / count)] * count
        return [(stride - count * short, 0.0), *([(short, short)] * count)]

    def _advance(self, taken: float, followed: float) -> None:
        """Take a part of a stride."""
        rng, family, moments = self.rng, self.family, self.moments
        left = self.turn - self.steps if family.returns else math.inf
        staying = max(0.0, 1.0 - taken / left)
        mean = -self.exact * taken / left if family.returns else taken * moments.mean
        spread = math.sqrt(taken * moments.variance * staying)
        moved = mean + spread * rng.standard_normal(len(self.exact))
        self.exact = self.exact + moved
        noise = math.sqrt(taken) * rng.standard_normal((2, len(self.exact)))
        # The cuts of a term and of its negative cancel, too, as far as the grid is the same.
        noise[0] = -self.cuts * taken / left + math.sqrt(staying) * noise[0]
        self.cuts = self.cuts + noise[0]
        drift = moments.spread_before * noise[0]
        if followed:
            drift = self._drift(moved, taken, followed) + drift
            near = self._near(taken)
            drift += self._spread(near) * (
                math.sqrt(self.shared) * noise[0] + math.sqrt(1.0 - self.shared) * noise[1]
            )
            if self.low_bits.places.size:
                drift += self.low_bits.drift(near, followed, rng)
        self.computed = self.computed + drift
        over = np.abs(self.computed) > self.step.largest
        self.computed = np.where(over, np.inf, self.computed)
        self.steps += taken

    def _drift(self, moved: Float64, taken: float, followed: float) -> Float64:
        """Return the moves of computed sums, but for chance, by those of the exact sums."""
        computed, one_sign = self.computed, self.family.one_sign
        bias, slope, _ = self._moments_at(computed)
        error = slope * (moved - (taken * self.moments.mean if one_sign else 0.0))
        pull = followed * bias
        if not one_sign:
            # A pull toward zero stops there.
            pull = np.clip(pull * np.sign(computed), -np.abs(computed), np.abs(computed))
        return np.asarray(moved + error + pull)

    def _near(self, taken: float) -> tuple[tuple[float, Float64], ...]:
        """Return the sums during a stride, with probabilities: Gauss-Hermite, of three points.

        Few sums get far: those that may get there count by how probable it is.
        """
        # The variance is on average half of that at the end. What is cut away moves nothing.
        moving = np.clip(1.0 + self._moments_at(self.computed)[1], 0.0, 1.0)
        off = math.sqrt(1.5 * taken * self.moments.variance) * moving
        return (4 / 6, self.computed), (1 / 6, self.computed - off), (1 / 6, self.computed + off)

    def _spread(self, near: Sequence[tuple[float, Float64]]) -> Float64:
        found: Float64 = self._moments_at(self.computed)[2]
        if found.all():
            return found
        # Some sums err only where they may get in this stride.
        every = [share * self._moments_at(values)[2] ** 2 for share, values in near]
        return np.asarray(np.sqrt(sum(every)))


def _root(values: Float64) -> float:
    """Return the root mean square."""
    return math.sqrt(float(np.mean(np.square(values))))


def _keeps_negatives(step: Step) -> bool:
    """Return whether a term and its negative stay opposite until c joins, in whichever steps."""
    return step.c_after and step.length == 1


def _rounds_nothing(step: Step) -> bool:
    """Return whether what the alignment leaves always fits the result."""
    if step.c_after or step.fraction_bits is None:
        return False
    return step.fraction_bits + math.ceil(math.log2(step.length + 1)) <= step.output_bits


def _exponents(computed: Float64) -> NDArray[np.intp]:
    """Return the exponents of sums; of zeros, one that is below all terms."""
    finite = np.where(np.isfinite(computed), computed, 0.0)
    return np.where(finite == 0.0, _NOTHING, np.frexp(finite)[1] - 1).astype(np.intp)


# --- Blocks -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The moments of blocks of one length, for any number of blocks.

    In shares of the sum of magnitudes of a block: bias, and the errors of the first two blocks and
    of the others. added: the errors of the sums of their values, each a term of `size`.
    """

    bias: float
    first: float
    others: float
    added: _Walk
    size: float


@lru_cache(maxsize=4096)
def _blocks(step: Step, family: str, ab: str, block: int) -> _Blocks:
    own = FAMILIES[family]
    # Within a block nothing returns to zero, but within the first two.
    free = next(one for one in FAMILIES.values() if one.draw is own.draw and not one.returns)
    first, others = (_chain(step, name, ab) for name in (family, free.name))
    rng = np.random.default_rng(_SEED)
    drawn = _strata(own, rng, ab).ravel()
    magnitude = block * float(np.abs(drawn).mean())
    centre, spread = block * float(drawn.mean()), math.sqrt(block) * float(drawn.std())
    partial = Family(
        "",
        "",
        lambda rng, shape: centre + spread * rng.standard_normal(shape),
        one_sign=own.one_sign,
        returns=own.returns,
    )
    bits = step.acc_bits
    addition = Step(1, None, bits, True, True, False, step.largest, bits)
    acc = "f16" if bits <= 10 else "f32" if bits <= 23 else "f64"
    return _Blocks(
        others.at(block, 1) / magnitude if own.one_sign else 0.0,
        first.at(block),
        others.at(block),
        _follow(addition, partial, acc),
        float(np.mean(np.abs(partial.draw(rng, (1, 4096))))) / magnitude,
    )


def _blocked(step: Step, family: str, ab: str, length: int, block: int) -> float:
    """Return the error where blocks of a length are added up with a rounding to nearest each."""
    known = _blocks(step, family, ab, block)
    blocks = length / block
    added = known.added.at(max(1, round(blocks))) * known.size
    of_first = min(2.0, blocks)
    spread = of_first * max(0.0, known.first**2 - known.bias**2)
    spread += (blocks - of_first) * max(0.0, known.others**2 - known.bias**2)
    return math.sqrt(added**2 + spread / blocks**2 + known.bias**2)
