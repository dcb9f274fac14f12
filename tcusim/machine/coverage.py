"""Coverage of a rule: the cases of its arithmetic that operands reach, counted while it computes.

An event is a case of a rule: a term that loses bits, a tie, a carry, an overflow. The arithmetic
itself reports its sums (`Watch`), so that an event is measured, never inferred from the operands.
A wrong rule differs from a rule in one parameter, as a wrong design of a unit does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine.formats import (
    ROUNDED,
    Float64,
    Format,
    Rounding,
    Values,
    format_of,
    leading_power,
)
from tcusim.machine.rules import SUM_TYPES, Exact, Fused, Integer, Late, Numerics, Rule, Sequential
from tcusim.machine.sequential import round_to_odd, two_sum

_OPERANDS: Final = ("zero", "negative zero", "subnormal", "largest", "infinite", "NaN")
_FUSED: Final = {
    "exponent": ("a product has the largest", "c has the largest", "all terms are zero"),
    "window": (
        "no term loses a bit",
        "a product loses bits",
        "c loses bits",
        "a negative term loses bits",
        "a term is lost as a whole",
        "the last bit kept is set",
        "the first bit lost is set",
    ),
    "sum": (
        "carry of 1 bit",
        "carry of 2 or more bits",
        "cancellation of 1 bit",
        "cancellation of 2 or more bits",
        "cancellation to zero",
    ),
}
_ROUNDING: Final = (
    *("exact", "below half", "tie, even", "tie, odd", "above half"),
    *("toward zero", "away from zero", "up to the next exponent"),
)
_RESULTS: Final = (
    *("zero", "negative zero", "subnormal", "largest", "overflow", "infinite", "negative"),
    *("NaN of an operand", "NaN of inf - inf", "NaN of 0 * inf"),
)
_INTEGERS: Final = {
    "sum": ("of a group, in range", "of a group, wraps"),
    "result": ("zero", "negative", "in range", "beyond the largest", "beyond the least"),
}


def events_of(rule: Rule) -> tuple[str, ...]:
    """Return the names of a rule's events, each with its group before a colon."""
    how, acc, ab = rule.how, format_of(rule.acc), format_of(rule.ab)
    groups: dict[str, tuple[str, ...]] = {}
    if isinstance(how, Integer):
        sums = _INTEGERS["sum"][: 1 + (how.sum_bits < 32)]
        return _named({"sum": sums, "result": _INTEGERS["result"]})
    groups["operand"] = tuple(one for one in _OPERANDS if _has(ab, one))
    groups["c"] = tuple(one for one in _OPERANDS if _has(acc, one))
    if rule.scale:
        groups["scale"] = tuple(scale_patterns(rule.scale_type))
    if isinstance(how, Fused):
        groups |= _FUSED
        if how.exponents == "operands":
            groups["exponent"] = (*groups["exponent"], "a product of 2 or more has it")
            groups["window"] = (*groups["window"], "the last bit kept is set beside such a product")
        if how.exponent_floor is not None:
            groups["exponent"] = (*groups["exponent"], "the floor is the largest")
        if how.alignment in ("rne", "rna"):
            groups["window"] = (*groups["window"], "a term is cut at a tie")
        if how.alignment == "sticky":
            groups["window"] = (*groups["window"], "the sticky bit is set")
        if isinstance(how.c_joins, Late) or how.c_joins == "after":
            # c is no term: it has no place in the alignment of the products.
            groups = {
                group: tuple(one for one in names if not one.startswith("c "))
                for group, names in groups.items()
            }
    if acc.name != "f64":
        down = isinstance(how, Fused | Sequential) and _rounding_of(how) == "rz"
        groups["rounding"] = tuple(
            one for one in _ROUNDING if not (down and one.startswith(("away", "up")))
        )
    groups["result"] = tuple(
        one
        for one in _RESULTS
        if (ab.has_inf or one != "NaN of 0 * inf")
        and (one != "negative zero" or not _is_positive(how))
    )
    return _named(groups)


def _named(groups: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(f"{group}: {name}" for group, names in groups.items() for name in names)


def _has(fmt: Format, event: str) -> bool:
    """Return whether a type has such values."""
    return {
        "negative zero": fmt.has_negative_zero,
        "infinite": fmt.has_inf,
        "NaN": fmt.has_nan,
    }.get(event, True)


def _rounding_of(how: Fused | Sequential) -> Rounding:
    return how.output if isinstance(how, Fused) else how.rounding


def _is_positive(how: Numerics) -> bool:
    """Return whether a zero result is always +0."""
    return (isinstance(how, Exact) and how.c_joins == "sum") or (
        isinstance(how, Fused) and how.zeros == "positive" and how.c_joins != "after"
    )


def scale_patterns(kind: str) -> dict[str, int]:
    """Return the bytes of a type of scales at which arithmetic changes, by name."""
    if kind == "ue4m3":
        least = {"zero": 0, "least": 1, "largest subnormal": 7, "least normal": 8}
        return {**least, "one": 0x38, "one and its last bit": 0x39, "largest": 0x7E, "NaN": 0x7F}
    return {"least": 0, "one": 127, "two": 128, "largest": 254, "NaN": 255}


def scale_events(bits: Sequence[NDArray[Any]], kind: str) -> dict[str, NDArray[np.int64]]:
    """Return, of each event of scales, how many of each case's are such; bits: (W, ...) each."""
    return {
        f"scale: {name}": sum((one == pattern).sum(axis=(1, 2)) for one in bits)
        for name, pattern in scale_patterns(kind).items()
    }


def operand_events(a: Values, b: Values, c: Values, rule: Rule) -> dict[str, NDArray[np.int64]]:
    """Return, of each event of operands, how many of each case's are such.

    a: (W, m, k), b: (W, k, n), c: (W, m, n) -> (W,) each.
    """
    found: dict[str, NDArray[np.int64]] = {}
    if isinstance(rule.how, Integer):
        return found
    groups = (("operand", a, rule.ab), ("operand", b, rule.right), ("c", c, rule.acc))
    for group, values, name in groups:
        fmt, wide = format_of(name), values.astype(np.float64)
        size = np.abs(wide)
        masks = {
            "zero": (wide == 0) & ~np.signbit(wide),
            "negative zero": (wide == 0) & np.signbit(wide),
            "subnormal": (size > 0) & (size < 2.0**fmt.emin),
            "largest": size == fmt.largest,
            "infinite": np.isinf(wide),
            "NaN": np.isnan(wide),
        }
        for event, mask in masks.items():
            key = f"{group}: {event}"
            found[key] = found.get(key, 0) + mask.sum(axis=(1, 2))
    return found


class Coverage:
    """A `Watch` that counts the events of `count` cases, each of them a tile or a warp of its own.

    Attributes
    ----------
    hits : dict of str to array (count,)
        Of each event, the sums of each case that are one.
    """

    def __init__(self, rule: Rule, count: int) -> None:
        self.rule, self.count = rule, count
        self.acc = format_of(rule.acc)
        self.hits = {name: np.zeros(count, np.int64) for name in events_of(rule)}
        self._terms: tuple[Any, ...] = ()
        self._parts = 0
        self._exact: Float64 | None = None

    def _hit(self, name: str, mask: NDArray[Any], *, last: bool = False) -> None:
        """Count the outputs of a mask (W, m, n), or (m, n, W) if the cases are last."""
        if name in self.hits:
            by_case = np.moveaxis(np.asarray(mask), -1, 0) if last else np.asarray(mask)
            self.hits[name] += by_case.reshape(by_case.shape[0], -1).sum(axis=1)

    # --- The watch ----------------------------------------------------------------------------

    def passing(self, first: int, left: int, right: int) -> None:
        """Count nothing: every pass is watched alike."""

    def begin(
        self, products: Sequence[int], a: Float64 | None, b: Float64 | None, *addends: Float64
    ) -> None:
        """Keep the terms of a sum."""
        self._terms = products, a, b, addends
        self._parts, self._exact = 0, None

    def aligned(
        self, powers: Sequence[Float64], top: Float64, kept: Sequence[Float64], total: Float64
    ) -> None:
        """Count the events of an alignment, and the events of the sum of the kept parts."""
        how = self.rule.how
        assert isinstance(how, Fused), "only fused steps align"
        products, a, b, addends = self._terms
        every = products[self._parts :: how.sums] if how.sums > 1 else products
        own = [every[i : i + how.presum] for i in range(0, len(every), how.presum)]
        first = len(powers) - len(own)
        finite = np.isfinite(top)
        unit = np.where(top == 0.0, 1.0, top) * 2.0**-how.fraction_bits
        lost, odd, over = (np.zeros(top.shape, bool) for _ in range(3))
        for number, (power, part) in enumerate(zip(powers, kept, strict=True)):
            is_c = number < first
            if is_c:
                # A step that begins from zero has no addend.
                value = addends[0].transpose(1, 2, 0) if addends else np.zeros((1, 1, 1))
            else:
                i = own[number - first]
                value = np.matmul(a[:, :, i], b[:, i, :]).transpose(1, 2, 0)
            value = np.where(power == 0.0, 0.0, value)
            lost |= self._one_term(value / unit, part, finite, is_c=is_c)
            odd |= finite & (part % 2 != 0)
            largest = (power == top) & (top > 0.0) & finite
            over |= largest & (np.abs(value) >= 2.0 * top)
            name = f"exponent: {'c' if is_c else 'a product'} has the largest"
            self._hit(name, largest, last=True)
        self._hit("exponent: a product of 2 or more has it", over, last=True)
        self._hit("window: the last bit kept is set beside such a product", odd & over, last=True)
        self._hit("window: no term loses a bit", finite & ~lost & (top > 0), last=True)
        self._hit("window: the sticky bit is set", finite & lost & (total != 0), last=True)
        self._hit("exponent: all terms are zero", top == 0.0, last=True)
        if how.exponent_floor is not None:
            most = np.max(np.broadcast_arrays(*powers), axis=0)
            floor = 2.0**how.exponent_floor
            self._hit("exponent: the floor is the largest", (most < floor) & (most > 0), last=True)
        self._sizes(
            np.abs(total) * unit, top, finite, np.max(np.abs(np.broadcast_arrays(*kept)), axis=0)
        )
        self._parts += 1

    def _one_term(
        self, whole: Float64, kept: Float64, finite: NDArray[Any], *, is_c: bool
    ) -> NDArray[Any]:
        """Count the events of a term, in units of the last bit kept; return where it lost bits."""
        lost: NDArray[Any] = finite & (whole != kept)
        self._hit(f"window: {'c' if is_c else 'a product'} loses bits", lost, last=True)
        self._hit("window: a negative term loses bits", lost & (whole < 0), last=True)
        self._hit("window: a term is lost as a whole", lost & (kept == 0), last=True)
        size = np.where(finite, np.abs(whole), 0.0)
        below = size - np.trunc(size)
        self._hit("window: a term is cut at a tie", finite & (below == 0.5), last=True)
        self._hit("window: the first bit lost is set", finite & (below >= 0.5), last=True)
        odd = np.trunc(size) % 2 == 1
        self._hit("window: the last bit kept is set", finite & odd, last=True)
        return lost

    def _sizes(self, size: Float64, top: Float64, finite: NDArray[Any], most: Float64) -> None:
        """Count carries and cancellations: how far the sum's exponent is from the largest one."""
        nonzero = finite & (size > 0) & (top > 0)
        ratio = np.where(nonzero, leading_power(np.where(nonzero, size, 1.0)), 1.0) / np.where(
            nonzero, top, 1.0
        )
        self._hit("sum: carry of 1 bit", nonzero & (ratio == 2.0), last=True)
        self._hit("sum: carry of 2 or more bits", nonzero & (ratio >= 4.0), last=True)
        self._hit("sum: cancellation of 1 bit", nonzero & (ratio == 0.5), last=True)
        self._hit("sum: cancellation of 2 or more bits", nonzero & (ratio <= 0.25), last=True)
        self._hit("sum: cancellation to zero", finite & (size == 0) & (most > 0), last=True)

    def summed(self, total: Float64) -> None:
        """Keep the sum that is rounded."""
        self._exact = total.transpose(2, 0, 1)

    def end(self, d: Float64) -> None:
        """Count the events of the rounding and of the result."""
        products, a, b, addends = self._terms
        if isinstance(self.rule.how, Integer):
            self._integers(d)
            return
        exact = self._exact
        if exact is None:
            exact = self._sum_of_terms(d)
        if self.acc.name != "f64":
            self._rounding(exact, d)
        size = np.abs(d)
        finite = np.isfinite(exact)
        self._hit("result: zero", (d == 0) & ~np.signbit(d))
        self._hit("result: negative zero", (d == 0) & np.signbit(d))
        self._hit("result: subnormal", (size > 0) & (size < 2.0**self.acc.emin))
        self._hit("result: largest", size == self.acc.largest)
        self._hit("result: negative", d < 0)
        terms = [*addends]
        given = np.zeros((1, 1, 1), bool)
        zero_times_inf = given
        if a is not None and b is not None:
            for i in products:
                x, y = a[:, :, i, None], b[:, i, None, :]
                terms.append(x * y)
                nan = np.isnan(x) | np.isnan(y)
                given = given | nan
                zero_times_inf = zero_times_inf | (np.isnan(terms[-1]) & ~nan)
        infinite = given & False
        for one in addends:
            given = given | np.isnan(one)
        for one in terms:
            infinite = infinite | np.isinf(one)
        nothing = ~given & ~infinite & ~zero_times_inf
        self._hit("result: overflow", np.isinf(d) & nothing & finite)
        self._hit("result: infinite", np.isinf(d) & ~nothing)
        self._hit("result: NaN of an operand", np.isnan(d) & given)
        self._hit("result: NaN of 0 * inf", np.isnan(d) & ~given & zero_times_inf)
        self._hit("result: NaN of inf - inf", np.isnan(d) & ~given & ~zero_times_inf & infinite)

    # --- Rounding -----------------------------------------------------------------------------

    def _sum_of_terms(self, d: Float64) -> Float64:
        """Return the sum of the terms of an operation, rounded to odd in float64; (W, m, n)."""
        products, a, b, addends = self._terms
        terms = list(addends)
        if a is not None and b is not None:
            terms += [a[:, :, i, None] * b[:, i, None, :] for i in products]
        terms = [np.broadcast_to(one, d.shape) for one in terms]
        if len(terms) <= 2:
            x, y = (*terms, np.zeros(d.shape))[:2]
            return round_to_odd(*two_sum(x, y))
        rows = np.stack(terms, -1).reshape(-1, len(terms)).tolist()
        exact = np.array([_exact_sum(row) for row in rows])
        return round_to_odd(*exact.T).reshape(d.shape)

    def _rounding(self, exact: Float64, d: Float64) -> None:
        """Count the events of a rounding from an exact sum to d."""
        bits = self.acc.fraction_bits
        if isinstance(self.rule.how, Fused):
            bits = self.rule.how.output_fraction_bits or bits
        finite = np.isfinite(exact) & (exact != 0)
        size = np.where(finite, np.abs(exact), 1.0)
        place = np.maximum(leading_power(size), 2.0**self.acc.emin) * 2.0**-bits
        steps = size / place
        whole = np.trunc(steps)
        below = steps - whole
        odd = whole % 2 == 1
        self._hit("rounding: exact", finite & (below == 0))
        self._hit("rounding: below half", finite & (below > 0) & (below < 0.5))
        self._hit("rounding: tie, even", finite & (below == 0.5) & ~odd)
        self._hit("rounding: tie, odd", finite & (below == 0.5) & odd)
        self._hit("rounding: above half", finite & (below > 0.5))
        given = np.abs(d)
        # An overflow is an event of its own.
        finite &= np.isfinite(d)
        self._hit("rounding: toward zero", finite & (given < size))
        self._hit("rounding: away from zero", finite & (given > size))
        up = given >= 2.0 * np.maximum(leading_power(size), 2.0 ** (self.acc.emin - 1))
        self._hit("rounding: up to the next exponent", finite & up & (given > size))

    def _integers(self, d: Float64) -> None:
        products, a, b, addends = self._terms
        how = self.rule.how
        assert isinstance(how, Integer), "the sums are of integers"
        group = list(products)
        sums = np.matmul(a[:, :, group], b[:, group])
        half = 2.0 ** (how.sum_bits - 1)
        inside = (sums >= -half) & (sums < half)
        self._hit("sum: of a group, in range", inside)
        self._hit("sum: of a group, wraps", ~inside)
        kept = np.mod(sums + half, 2.0 * half) - half
        total = kept + addends[0]
        self._hit("result: in range", np.abs(total + 0.5) < 2.0**31)
        self._hit("result: beyond the largest", total >= 2.0**31)
        self._hit("result: beyond the least", total < -(2.0**31))
        self._hit("result: zero", d == 0)
        self._hit("result: negative", d < 0)


def _exact_sum(terms: list[float]) -> tuple[float, float]:
    """Return a sum rounded to nearest, and its error."""
    nearest = sum(terms)
    if not math.isfinite(nearest):
        return nearest, 0.0
    nearest = math.fsum(terms)
    return nearest, math.fsum([*terms, -nearest])


# --- Wrong rules ------------------------------------------------------------------------------


def wrong_rules(rule: Rule, k: int) -> Iterator[tuple[str, Rule]]:
    """Yield rules that differ from a rule in one parameter, each with a name for the difference.

    k: products of a tile; no step has more.
    """
    for name, value in _wrong_values(rule.how, k):
        changed: Any = {name: value}
        # Parameters that do not go with the others make no rule.
        with suppress(InputError):
            how = replace(rule.how, **changed)
            yield f"{_SPELLED.get(name, name).replace('_', ' ')}: {value}", replace(rule, how=how)
    if rule.passes is not None:
        yield "passes: none", replace(rule, passes=None)
    if isinstance(rule.how, Exact):
        yield "kind: sequential", replace(rule, how=Sequential())
    if not isinstance(rule.how, Integer) and rule.acc != "f64":
        quiet = rule.nan == "quiet" or not (rule.nan or isinstance(rule.how, Fused))
        yield (
            f"nan: {'ones' if quiet else 'quiet'}",
            replace(rule, nan="ones" if quiet else "quiet"),
        )


# The names that a unit's file has for parameters.
_SPELLED: Final = {
    "length": "fused_length",
    "output": "output_rounding",
    "rounding": "output_rounding",
    "addition": "addition_rounding",
    "sums": "partial_sums",
}
# Parameters that are numbers, of which one more and one less are wrong.
_BITS: Final = ("fraction_bits", "output_fraction_bits", "exponent_floor", "sum_bits")


def _wrong_values(how: Numerics, k: int) -> Iterator[tuple[str, Any]]:
    """Yield parameters with other values."""
    for one in fields(how):
        value = getattr(how, one.name)
        if one.name == "length":
            length = min(value or k, k)
            others: Sequence[Any] = [size for size in (length // 2, 2 * length) if 0 < size <= k]
        elif one.name in _BITS:
            others = [] if value is None else [value - 1, value + 1]
        elif one.name in ("sums", "presum"):
            others = [2 if value == 1 else value // 2]
        elif one.name == "c_joins":
            others = ["after" if value == "sum" else "sum"]
        elif one.name == "addition" and getattr(how, "c_joins", "") != "after":
            others = []
        else:
            others = [other for other in _choices(how, one.name) if other != value]
        yield from ((one.name, other) for other in others)


def _choices(how: Numerics, name: str) -> Sequence[Any]:
    """Return the values of a parameter that is one of a few."""
    roundings = tuple(ROUNDED)
    known: dict[str, Sequence[Any]] = {}
    if isinstance(how, Fused):
        known = {
            "output": roundings,
            "alignment": (*roundings, "sticky"),
            "exponents": ("operands", "upper", "products", "scales"),
            "addition": roundings,
            "overflow": ("sum", "product"),
            "zeros": ("positive", "signed"),
        }
    elif isinstance(how, Integer):
        known = {"overflow": ("wrap", "saturate", "symmetric")}
    elif isinstance(how, Sequential):
        known = {
            "order": ("chain", "apart", "tree"),
            "rounding": roundings,
            "sum_type": ("", *SUM_TYPES),
        }
    return known.get(name, (False, True))
