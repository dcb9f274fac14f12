"""`accuracy_of`: how precise sums are on a unit, and what of them may be promised."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tcusim.errors import require_flags
from tcusim.judge.accuracy.families import FAMILIES
from tcusim.judge.accuracy.limits import (
    Bias,
    Fall,
    Order,
    Stagnation,
    bias_of,
    exact_integers,
    falls,
    order_of,
    stagnation_of,
)
from tcusim.judge.accuracy.measure import BLOCK, measured_errors
from tcusim.judge.accuracy.prediction import predicted_error
from tcusim.judge.accuracy.splitting import Splitting, splitting_of
from tcusim.judge.run import Progress
from tcusim.machine import Arch, Integer, Rule, Unit, format_of, rule_of, unit_of, usual_types

# Both ways to sum: in one accumulator, and in blocks.
_WAYS: Final = (None, BLOCK)

# Lengths that are measured, as powers of two: by default, in full, and what is predicted beyond.
_FIRST: Final = 4
_LAST: Final = 14
_LAST_FULL: Final = 18
_LONGEST: Final = 24
# The length for which a precision is promised.
PROMISED: Final = 2**16
# Sums of each length that are measured.
_ROWS: Final = 40
_ROWS_FULL: Final = 160
# How far the measured and the predicted may be apart, and what more a mean of few sums may be off.
_FACTOR: Final = 2.0
_OF_FEW: Final = 1.25
# As many errors must be apart before they are no accident of the few sums that are measured.
_SEVERAL: Final = 4


@dataclass(frozen=True, slots=True)
class Error:
    """The error of sums of one kind of data and one length.

    Attributes
    ----------
    family : str
        The data.
    length : int
        Terms.
    blocked : int or None
        Mma of a block; None for one accumulator.
    predicted : float
        By the parameters of the rule: see `predicted_error`.
    measured : float or None
        On the simulator; None where it would take too long.
    """

    family: str
    length: int
    blocked: int | None
    predicted: float
    measured: float | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How precise sums are on one unit, in one pair of types.

    An error is the root mean square, over sums, of |computed - exact| / (sum of |terms|).

    Attributes
    ----------
    name : str
        The unit.
    ab, acc : str
        The types.
    rule : Rule
        Its arithmetic.
    k : int
        That of the tile.
    errors : tuple of Error
        By family, way to sum and length.
    stagnation : tuple of Stagnation
        Where sums stop growing.
    bias : tuple of Bias
        The mean error of a step.
    exact_integers : int
        A power of two up to which every sum of integers is exact.
    largest : float
        The largest finite result; larger sums are infinite.
    order : Order
        What another order of the terms of an mma changes.
    fall : Fall or None
        A sum that falls where one of its parts is raised, if one was found.
    splitting : tuple of Splitting
        What it buys to split float32 numbers into one, two or three parts of `ab`.
    """

    name: str
    ab: str
    acc: str
    rule: Rule
    k: int
    errors: tuple[Error, ...]
    stagnation: tuple[Stagnation, ...]
    bias: tuple[Bias, ...]
    exact_integers: int
    largest: float
    order: Order
    fall: Fall | None
    splitting: tuple[Splitting, ...] = ()

    def at(self, family: str, length: int, blocked: int | None = None) -> Error:
        """Return the error of a family at a length that was looked at."""
        return next(
            one
            for one in self.errors
            if (one.family, one.length, one.blocked) == (family, length, blocked)
        )

    def worst(self, length: int = PROMISED, blocked: int | None = None) -> Error:
        """Return the largest error of a length over the families.

        The largest that is predicted; where the predictions do not hold, the largest that was
        measured, of the longest sums that were if `length` is beyond them.
        """
        ones = [one for one in self.errors if one.blocked == blocked]
        if self.holds or all(one.measured is None for one in ones):
            return max((self.at(name, length, blocked) for name in FAMILIES), key=_predicted)
        known = [one for one in ones if one.measured is not None]
        at = min((one.length for one in known), key=lambda each: abs(each - length))
        return max((one for one in known if one.length == at), key=_measured)

    def bits(self, length: int = PROMISED, blocked: int | None = None) -> float:
        """Return the bits of precision that may be promised of sums of a length.

        They are those of twice the largest error, since an error is within a factor of two; never
        more than the result has, nor fewer than none.
        """
        error = _FACTOR * self._told(self.worst(length, blocked))
        most = format_of(self.acc).fraction_bits + 1.0
        if error == 0.0:
            return most
        return 0.0 if error >= 1.0 else min(most, -math.log2(error))

    def _told(self, error: Error) -> float:
        return error.predicted if self.holds else _measured(error)

    def overflows_from(self, family: str = "same_sign") -> int | None:
        """Return the least length that was looked at of which sums overflow; None if none does."""
        found = (one for one in self.errors if one.family == family and one.blocked is None)
        return next((one.length for one in found if math.isinf(one.predicted)), None)

    @property
    def holds(self) -> bool:
        """Whether the errors that were measured are near those that are predicted.

        A unit computes by its rule, and what predicts its errors is a model of that: where they
        are apart, the model is at fault and never the unit.
        """
        return len(self.apart()) < _SEVERAL

    def apart(self) -> tuple[Error, ...]:
        """Return the errors of which measured and predicted are further apart than a factor of two.

        Nothing where both are less than one rounding of the result; nor where no measured sum has
        an error, if the predicted one is less than one cut: then few sums have one at all.
        """
        return tuple(one for one in self.errors if not _agree(one, self.floor, self.cut))

    def caution(self) -> str:
        """Return in a sentence where the predicted errors do not hold; nothing if they do."""
        if self.holds:
            return ""
        most = max(self.apart(), key=_apart)
        return (
            f"the error model does not hold here: sums of {most.length:,} {most.family} terms have "
            f"an error of {most.measured:.2g}, and {most.predicted:.2g} is predicted. Errors below "
            f"are those measured"
        )

    @property
    def floor(self) -> float:
        """An error below this is less than one rounding of the result, and not told apart."""
        return 2.0 ** -(format_of(self.acc).fraction_bits + 2)

    @property
    def cut(self) -> float:
        """Return the most that one truncation removes from a sum, relative to its largest term."""
        bits = format_of(self.acc).fraction_bits
        return 2.0 ** -min(bits, getattr(self.rule.how, "fraction_bits", bits))

    def promise(self) -> str:
        """Return in a sentence what may be promised."""
        if isinstance(self.rule.how, Integer):
            return f"integers: every sum is exact, and wraps beyond {self.largest:,.0f}"
        texts = []
        worst = self.worst()
        for how, blocked in (("in one accumulator", None), (f"in blocks of {BLOCK} mma", BLOCK)):
            worst = self.worst(blocked=blocked)
            texts.append(
                f"{_in_words(self.bits(blocked=blocked))} {how} (error "
                f"{_percent(self._told(worst))}, {worst.family})"
            )
        return f"{self.use()}; sums of {worst.length:,} terms have {', and '.join(texts)}"

    def use(self) -> str:
        """Return the use that the unit is good for, by the bits of a sum of 65,536 terms.

        It is good for results of a type if its sums have all the type's bits but one. It is useless
        if they have less than one bit, even in blocks: then the error may be half of the sum.
        """
        best = max(self.bits(), self.bits(blocked=BLOCK))
        result = format_of(self.acc)
        if best < _USELESS_BITS:
            return "USELESS for sums"
        for bits, name in ((24, "float32"), (11, "float16"), (8, "bfloat16")):
            if best >= bits - 1 and result.fraction_bits + 1 >= bits:
                return f"good for {name} results"
        return "too coarse for bfloat16 results, which have 8 bits"

    def as_json(self) -> dict[str, Any]:
        """Return everything, ready for JSON; infinite numbers are None."""
        value = asdict(self)
        for name in ("errors", "stagnation", "splitting"):
            value[name] = [
                {key: None if one == math.inf else one for key, one in row.items()}
                for row in value[name]
            ]
        return value | {
            "bits": {"chain": self.bits(), "blocked": self.bits(blocked=BLOCK)},
            "promise": self.promise(),
            "caution": self.caution(),
        }


# With fewer bits than this the error is half of the sum of magnitudes, or more.
_USELESS_BITS: Final = 1.0


def _predicted(error: Error) -> float:
    return error.predicted


def _measured(error: Error) -> float:
    return 0.0 if error.measured is None else error.measured


def _apart(error: Error) -> float:
    """Return the ratio of the larger of two errors to the smaller one."""
    measured = max(error.measured or 0.0, 1e-30)
    predicted = max(error.predicted, 1e-30)
    return max(measured / predicted, predicted / measured)


def _agree(error: Error, floor: float, cut: float) -> bool:
    """Return whether measured and predicted are within a factor of two, as far as can be told."""
    if error.measured is None or math.isinf(error.measured) or math.isinf(error.predicted):
        # Where sums come near the largest number, some overflow and some do not.
        return True
    if error.measured == 0.0 and error.predicted < cut:
        return True
    one, other = (max(floor, value) for value in (error.measured, error.predicted))
    return max(one, other) <= _FACTOR * _OF_FEW * min(one, other)


def _in_words(bits: float) -> str:
    return f"{bits:.1f} bits" if bits else "no bit"


def _percent(error: float) -> str:
    if math.isinf(error):
        return "infinite"
    return f"{100 * error:.3g}%" if error >= 1e-3 else f"{error:.1e}"


def accuracy_of(
    unit: str | Path | Unit | Arch,
    *,
    ab: str | None = None,
    acc: str | None = None,
    k: int | None = None,
    full: bool = False,
    progress: Progress | None = None,
) -> Accuracy:
    """Find out how precise sums are on a unit: measured on the simulator, and predicted.

    Parameters
    ----------
    unit : str, Path, Unit or Arch
        Anything that `unit_of` takes.
    ab, acc : str, optional
        Element types of the operands and of the accumulator. Default: f16 in f32, or the first
        that the unit has.
    k : int, optional
        Terms of one mma; by default that of the unit's first tile that takes the types.
    full : bool
        Whether to measure longer sums, and more of them: minutes instead of seconds.
    progress : callable, optional
        Called with the part that is done and the whole.

    Returns
    -------
    Accuracy
        Errors for lengths from 2^4 to 2^24, those that would take too long predicted alone.

    Raises
    ------
    UnknownName, Unsupported
        If there is no such unit or type, or the unit does not take the types.

    Examples
    --------
    >>> from tcusim.machine import fused_unit
    >>> accuracy_of(fused_unit(16, 3)).use()
    'USELESS for sums'
    """
    require_flags(full=full)
    found = unit_of(unit)
    ab, acc = usual_types(found.arch, ab, acc)
    tiles = [tile for tile in found.shapes if tile.supports(ab, acc)]
    family = tiles[0].family(ab, acc) if tiles else ""
    rule = rule_of(found.arch, ab, acc, family)
    depth = k or (tiles[0].k if tiles else 16)
    last = _LAST_FULL if full else _LAST
    errors: list[Error] = []
    if isinstance(rule.how, Integer):
        errors = [
            Error(name, PROMISED, blocked, 0.0, None) for name in FAMILIES for blocked in _WAYS
        ]
    for place, blocked in enumerate(() if errors else _WAYS):
        lengths = [max(1, round(2**j / depth)) * depth for j in range(_FIRST, last + 1)]
        lengths = sorted(set(lengths))
        measured = measured_errors(
            rule, lengths, k=depth, blocked=blocked, rows=_ROWS_FULL if full else _ROWS
        )
        for name in FAMILIES:
            known = dict(zip(lengths, measured[name], strict=True))
            every = dict.fromkeys([*lengths, *(2**j for j in range(last + 1, _LONGEST + 1))])
            every |= {PROMISED: None}
            errors += [
                Error(
                    name,
                    length,
                    blocked,
                    predicted_error(rule, name, length, k=depth, blocked=blocked),
                    known.get(length),
                )
                for length in sorted(every)
            ]
        if progress is not None:
            progress(place + 1, len(_WAYS))
    return Accuracy(
        found.name,
        ab,
        acc,
        rule,
        depth,
        tuple(errors),
        stagnation_of(rule, depth),
        bias_of(rule, depth),
        exact_integers(rule),
        format_of(acc).largest,
        order_of(rule, depth),
        falls(rule, depth),
        splitting_of(rule, depth),
    )
