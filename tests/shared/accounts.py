"""Invariants of every account, checked with fractions and apart from the arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

from tcusim.machine import Fused, Sequential, format_of
from tcusim.machine.accounts.account import Account, Step, leading_exponent


def check(account: Account) -> None:
    """Fail unless the numbers of an account add up."""
    for step in account.steps:
        for term in step.terms:
            check_value(term.factors, term.value)
        if step.is_special:
            assert any(term.value is None for term in step.terms)
        else:
            check_sum(account, step)
    if account.error is None:
        return
    # The losses of alignment and rounding, step by step, add up to the error of the result.
    lost = Fraction(0)
    for step in account.steps:
        assert step.lost_in_rounding is not None
        lost += step.lost_in_alignment + step.lost_in_rounding
    assert account.error == -lost


def check_value(factors: tuple[float, ...], value: Fraction | None) -> None:
    if all(map(math.isfinite, factors)):
        assert value == math.prod(map(Fraction, factors))
    else:
        assert value is None


def check_sum(account: Account, step: Step) -> None:
    """Check the alignment, the sum and the rounding of a step without infinities and NaN."""
    kept = [term.kept for term in step.terms if term.kept is not None]
    assert step.total == sum(kept)
    assert len(kept) == len(step.terms)
    if step.kind == "fused":
        check_alignment(account, step)
    else:
        assert not any(term.is_cut for term in step.terms)
    if step.rounding == "wrap":
        assert (step.total - int(step.result)) % 2**32 == 0
        assert -(2**31) <= step.result < 2**31
        return
    if step.rounding in ("saturate", "symmetric"):
        least = -(2**31) + (step.rounding == "symmetric")
        assert step.result == min(max(step.total, least), 2**31 - 1)
        return
    acc = format_of(account.rule.acc)
    if isinstance(account.rule.how, Sequential) and 4 * len(step.bits) != acc.bits:
        acc = format_of(account.rule.how.sum_type)
    expected = Fraction(0)
    if step.last_bit is not None:
        unit = Fraction(2) ** step.last_bit
        units = step.total / unit
        whole = round(units) if step.rounding == "rne" else int(units)
        if step.rounding == "odd" and whole != units and whole % 2 == 0:
            whole += 1 if units > 0 else -1
        expected = whole * unit
        how = account.rule.how
        flushed = isinstance(how, Sequential) and how.flush_outputs
        if flushed and abs(expected) < Fraction(2) ** acc.emin:
            expected = Fraction(0)
        assert step.last_bit >= acc.emin - acc.fraction_bits
    if abs(expected) > Fraction(acc.largest):
        assert math.isinf(step.result)
    else:
        assert step.result == expected


def check_alignment(account: Account, step: Step) -> None:
    how = account.rule.how
    assert isinstance(how, Fused)
    exponents = [term.exponent for term in step.terms if term.exponent is not None]
    if step.exponent is None or step.lowest is None:
        assert not any(term.value for term in step.terms)
        return
    floor = exponents if how.exponent_floor is None else [*exponents, how.exponent_floor]
    assert step.exponent == max(floor)
    assert step.lowest == step.exponent - how.fraction_bits
    unit = Fraction(2) ** step.lowest
    for term in step.terms:
        assert term.value is not None
        assert term.kept == int(term.value / unit) * unit
        if term.exponent is not None and term.significand is not None:
            assert term.value == term.significand * Fraction(2) ** term.exponent
            # A product of normal numbers has a significand from 1 up to 4.
            assert leading_exponent(term.value) - term.exponent <= 1
