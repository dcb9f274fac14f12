"""Drawings of the arithmetic: how the terms of a dot product are aligned and truncated."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
from drawing import Drawing, figure

import tcusim
from tcusim.machine.accounts.account import Account, Step, leading_exponent

# One float32 addend and four products of float16 numbers, all positive: each has bits below what
# some of the generations keep.
_C: Final = 1 + 3 * 2.0**-23
_A: Final = (1.4736328125, 1.2548828125, 1.5205078125, 1.2529296875)
_B: Final = (0.1287841796875, 0.0266571044921875, 0.0013418197631835938, 6.657838821411133e-05)
_ARCHES: Final = ("volta", "ampere", "hopper")

_LEFT, _TOP, _ROW, _COLUMN = 52, 44, 19, 8.2
_HIGHEST, _LOWEST = 0, -34


def alignment() -> str:
    """Draw the terms of one dot product, bit by bit, on three generations of GPUs."""
    told = tcusim.explain(np.float16(_A), np.float16(_B), np.float32(_C), arch=_ARCHES)
    results = ", ".join(f"{one.title} {one.bits}" for one in told.accounts)
    return figure(
        *(_one(account) for account in told.accounts),
        caption=(
            "One dot product of four terms and an addend, the same numbers on three GPUs. A column "
            "is a power of two. Bits right of the dashed line are truncated before the terms are "
            f"added, and the sum is truncated to float32. Results: {results}."
        ),
    )


def _one(account: Account) -> str:
    (step,) = account.steps
    assert step.lowest is not None
    assert step.exponent is not None
    assert step.total is not None
    assert step.last_bit is not None
    width = _LEFT + _COLUMN * (_HIGHEST - _LOWEST + 1)
    height = _TOP + _ROW * (len(step.terms) + 2) + 50
    drawn = Drawing(width, height, f"The bits of one dot product on {account.title}")
    drawn.text(0, 12, f"{account.title}: F = {step.exponent - step.lowest}", "title")
    for exponent in (0, -10, -20, -30):
        drawn.text(
            _x(exponent) + _COLUMN / 2, _TOP - 14, f"2{_raised(exponent)}", "quiet", "middle"
        )
    bottom = _TOP + _ROW * len(step.terms)
    for row, term in enumerate(step.terms):
        assert term.value is not None
        _bits(drawn, _TOP + _ROW * row, _label(term.name), term.value, step.lowest)
    _bits(drawn, bottom + 8, "sum", step.total, step.last_bit, step.lowest)
    _bits(drawn, bottom + 8 + _ROW, "result", Fraction(step.result), step.last_bit, step.last_bit)
    drawn.line((0, bottom + 1), (width, bottom + 1))
    _cut(drawn, step, bottom)
    lost = step.lost_in_alignment / Fraction(2) ** step.last_bit
    rounded = (step.lost_in_rounding or Fraction(0)) / Fraction(2) ** step.last_bit
    drawn.text(0, height - 16, f"lost in alignment {float(lost):.3f} ulp, in rounding", "quiet")
    drawn.text(0, height, f"{float(rounded):.3f} ulp; the result is {account.bits}", "quiet")
    return drawn.svg()


def _cut(drawn: Drawing, step: Step, bottom: float) -> None:
    """Draw where the alignment ends, and where the result does."""
    assert step.lowest is not None
    assert step.last_bit is not None
    x = _x(step.lowest) + _COLUMN
    drawn.line((x, _TOP - 10), (x, bottom - 1), kind="lost-line dashed")
    x = _x(step.last_bit) + _COLUMN
    drawn.line((x, bottom + 5), (x, bottom + 8 + 2 * _ROW), kind="lost-line dashed")


def _x(exponent: int) -> float:
    return _LEFT + (_HIGHEST - exponent) * _COLUMN


def _bits(
    drawn: Drawing, y: float, label: str, value: Fraction, lowest: int, down_to: int = 0
) -> None:
    """Draw the bits of a positive number, down to its last; those below `lowest` are lost."""
    drawn.text(0, y + 14, label, "code")
    last = min(1 - value.denominator.bit_length(), down_to)
    for exponent in range(leading_exponent(value), last - 1, -1):
        bit = int(value / Fraction(2) ** exponent) % 2
        kept = exponent >= lowest
        look = ("core" if bit else "wait") if kept else "lost-fill"
        drawn.rect(_x(exponent), y + 2, _COLUMN, _ROW - 3, look, corner=0)
        digit = "cell" if kept else "cell lost"
        drawn.text(_x(exponent) + _COLUMN / 2, y + 14, str(bit), digit, "middle")


def _label(name: str) -> str:
    """Return `a0·b0` for `a[0]*b[0]`."""
    return name.replace("[", "").replace("]", "").replace("*", "·")


def _raised(number: int) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".index(digit)] for digit in str(number))
