"""The fate of each term of each sum of one output, as data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias

from tcusim.machine.formats import Rounding, format_of
from tcusim.machine.rules import Rule
from tcusim.machine.sequential import fraction_to_float

Kind: TypeAlias = Literal["fused", "addition", "multiply-add", "exact", "integer"]
# What becomes of a sum: a rounding, or that of integers beyond their range.
Ending: TypeAlias = Rounding | Literal["wrap", "saturate", "symmetric"]
_ZERO: Final = Fraction(0)


@dataclass(frozen=True, slots=True)
class Term:
    """A product or an addend, and the part of it that enters the sum.

    Attributes
    ----------
    name : str
        ``"a[3]*b[3]"``, and in a pass ``"a[3].0*b[3].1"``, the product of a part of each; ``"c"``;
        or ``"d1"``, the result of step 1.
    factors : tuple of float
        Two for a product; one for an addend.
    value : Fraction or None
        The exact value; None if a factor is infinite or NaN.
    exponent : int or None
        The term's exponent. In a fused step, a product's exponent is the sum of its factors'
        exponents, so its significand may be as large as 4. None for zero, infinities and NaN, and
        where subnormals count as zero.
    kept : Fraction or None
        The part that survives the alignment; None if any term of the step is infinite or NaN.
    """

    name: str
    factors: tuple[float, ...]
    value: Fraction | None
    exponent: int | None
    kept: Fraction | None

    @property
    def is_input(self) -> bool:
        """Whether it is c or a product, and not the result of an earlier step."""
        return not self.name.startswith("d")

    @property
    def significand(self) -> Fraction | None:
        """The value without its exponent, signed."""
        if self.value is None or self.exponent is None:
            return None
        return self.value / Fraction(2) ** self.exponent

    @property
    def lost(self) -> Fraction | None:
        """The part lost in the alignment: ``value - kept``."""
        if self.value is None or self.kept is None:
            return None
        # Most terms lose nothing, and a comparison is faster.
        return _ZERO if self.value == self.kept else self.value - self.kept

    @property
    def is_cut(self) -> bool:
        """Whether anything is lost."""
        return bool(self.lost)

    def to_dict(self) -> dict[str, Any]:
        """Return the account as JSON types; numbers as in C, ``0x1.8p-3`` for 1.5 * 2**-3."""
        facts = "factors", "value", "exponent", "significand", "kept", "lost"
        return {"term": self.name, **_facts(self, facts)}


@dataclass(frozen=True, slots=True)
class Step:
    """One rounded sum.

    Attributes
    ----------
    name : str
        ``"d1"`` for the first; later terms call its result so.
    kind : {"fused", "addition", "multiply-add", "exact", "integer"}
        A fused dot-product-add; an IEEE addition; an IEEE fused multiply-add; the exact sum of
        everything; or a sum of integers.
    terms : tuple of Term
        Addends first, then products.
    exponent : int or None
        E, to which the terms of a fused step are aligned. None if all terms are zero, if an
        infinity or a NaN is among them, and where nothing is aligned.
    lowest : int or None
        Exponent of the last bit that the alignment keeps: E - F.
    total : Fraction or None
        The exact sum of the surviving parts; None if an infinity or a NaN decides.
    rounding : {"rne", "rna", "rz", "rd", "odd", "wrap", "saturate", "symmetric"}
        As in `Fused` and `Integer`.
    last_bit : int or None
        Exponent of the last bit of a result of this size.
    result : float
        The rounded sum.
    bits : str
        The result's bits, in hexadecimal.
    """

    name: str
    kind: Kind
    terms: tuple[Term, ...]
    exponent: int | None
    lowest: int | None
    total: Fraction | None
    rounding: Ending
    last_bit: int | None
    result: float
    bits: str

    @property
    def is_special(self) -> bool:
        """Whether an infinity or a NaN among the terms decides the result."""
        return self.total is None

    @property
    def lost_in_alignment(self) -> Fraction:
        """The sum of the terms' losses."""
        return sum(filter(None, (term.lost for term in self.terms)), _ZERO)

    @property
    def lost_in_rounding(self) -> Fraction | None:
        """The part of the sum lost in rounding; None without a finite result."""
        result = _fraction(self.result)
        return None if self.total is None or result is None else self.total - result

    def to_dict(self) -> dict[str, Any]:
        """Return the data as JSON types."""
        facts = (
            *("kind", "terms", "exponent", "lowest", "total", "rounding", "last_bit"),
            *("lost_in_alignment", "lost_in_rounding", "result", "bits"),
        )
        return {"step": self.name, **_facts(self, facts)}


@dataclass(frozen=True, slots=True)
class Account:
    """How one architecture summed one output.

    Attributes
    ----------
    arch, title : str
        The architecture's name, and its name for people.
    rule : Rule
        Its arithmetic for these types.
    steps : tuple of Step
        Every rounded sum, in order; none if there are no products.
    result : float
        The output.
    bits : str
        Its bits, in hexadecimal.
    exact : Fraction or None
        The true a·b + c; None if an infinity or a NaN is among the inputs.
    cut_operands : int
        Number of float32 factors truncated to tf32: the instruction ignores their low bits, and so
        does `exact`.
    rounded : tuple of str
        The inputs rounded to their types, with the results; `exact` is of the rounded inputs.
    """

    arch: str
    title: str
    rule: Rule
    steps: tuple[Step, ...]
    result: float
    bits: str
    exact: Fraction | None
    cut_operands: int = 0
    rounded: tuple[str, ...] = ()

    @property
    def error(self) -> Fraction | None:
        """``result - exact``: the total effect of alignment and rounding. None if not finite."""
        result = _fraction(self.result)
        return None if self.exact is None or result is None else result - self.exact

    @property
    def ulp(self) -> Fraction | None:
        """The distance of the accumulator type's values next to the exact one."""
        if self.exact is None:
            return None
        acc = format_of(self.rule.acc)
        if not acc.is_float:
            return Fraction(1)
        leading = acc.emin if self.exact == 0 else max(leading_exponent(self.exact), acc.emin)
        return Fraction(2) ** (leading - acc.fraction_bits)

    @property
    def ulps(self) -> float | None:
        """The error in units of `ulp`; None if there is none."""
        if self.error is None or self.ulp is None:
            return None
        return fraction_to_float(self.error / self.ulp)

    @property
    def cut_terms(self) -> int:
        """Number of terms that lost a bit in the alignment."""
        return sum(term.is_cut for step in self.steps for term in step.terms)

    def to_dict(self) -> dict[str, Any]:
        """Return the data as JSON types."""
        return {
            **_facts(self, ("arch", "title")),
            "ab": self.rule.operands,
            **_facts(self.rule, ("acc", "family")),
            "arithmetic": repr(self.rule.how),
            **_facts(self.rule, ("source", "evidence")),
            **_facts(self, ("steps", "result", "bits", "exact", "error", "ulp")),
            "error_ulps": self.ulps,
            **_facts(self, ("cut_operands", "rounded")),
        }


def leading_exponent(x: Fraction) -> int:
    """Return floor(log2(abs(x))) of a non-zero number with a power of two as denominator.

    That is the place of its leading bit.
    """
    return abs(x.numerator).bit_length() - x.denominator.bit_length()


def hex_text(x: Fraction) -> str:
    """Return such a number exactly, as C and `float.hex` write it: ``-0x1.8p-3``.

    Examples
    --------
    >>> hex_text(Fraction(-3, 16)), hex_text(Fraction(0))
    ('-0x1.8p-3', '0x0p+0')
    """
    if x == 0:
        return "0x0p+0"
    exponent = leading_exponent(x)
    digits = ""
    rest = abs(x) / Fraction(2) ** exponent - 1
    while rest:
        rest *= 16
        digit = rest.numerator // rest.denominator
        digits += f"{digit:x}"
        rest -= digit
    return f"{'-' if x < 0 else ''}0x1{'.' if digits else ''}{digits}p{exponent:+d}"


def _fraction(x: float) -> Fraction | None:
    """Return a finite number as it is; None for infinities and NaN."""
    return Fraction(x) if math.isfinite(x) else None


def _facts(source: object, names: Iterable[str]) -> dict[str, Any]:
    """Return attributes of an object as JSON types."""
    return {name: _plain(getattr(source, name)) for name in names}


def _plain(value: Any) -> Any:
    """Return a fact as a JSON type; infinities and NaN, which JSON lacks, become texts."""
    if isinstance(value, Fraction):
        return hex_text(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Term | Step):
        return value.to_dict()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
