"""Numbers known when a warp runs: affine expressions, extents, bounds and scalars.

They are the grammar's terms for addresses, sizes and conditions; `grammar` re-exports them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

Number = TypeVar("Number")


@dataclass(frozen=True, slots=True)
class Index:
    """An affine expression: the sum of `coefficient * symbol` terms and a constant.

    One object evaluates to NumPy index arrays and prints as C, so that the simulator and the
    emitted kernel cannot disagree on an address. Build it with `+`, `-` and `*` from the symbols.
    """

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    @staticmethod
    def symbol(name: str) -> Index:
        """Return the expression that is just `name`."""
        return Index(((name, 1),))

    @staticmethod
    def of(value: Index | int) -> Index:
        """Return `value` as an expression."""
        return value if isinstance(value, Index) else Index((), int(value))

    @property
    def symbols(self) -> frozenset[str]:
        """Names that the expression depends on."""
        return frozenset(name for name, _ in self.terms)

    def coefficient(self, name: str) -> int:
        """Return the factor of the symbol `name`; 0 if it does not occur."""
        for symbol, factor in self.terms:
            if symbol == name:
                return factor
        return 0

    def substitute(self, values: Mapping[str, Index | int]) -> Index:
        """Replace symbols by expressions; symbols that `values` lacks stay."""
        if not any(name in values for name, _ in self.terms):
            return self
        const, factors = self.const, dict[str, int]()
        for name, factor in self.terms:
            value = Index.of(values[name]) if name in values else Index(((name, 1),))
            const += value.const * factor
            for other, times in value.terms:
                factors[other] = factors.get(other, 0) + times * factor
        return _collected(factors, const)

    def evaluate(self, env: Mapping[str, Number]) -> Number | int:
        """Return the value, where `env` gives each symbol an integer or an integer array."""
        total: Number | int = self.const
        for name, factor in self.terms:
            total = total + env[name] * factor  # type: ignore[operator]
        return total

    def __add__(self, other: Index | int) -> Index:
        """Return the sum, with like terms collected."""
        if not isinstance(other, Index):
            return Index(self.terms, self.const + int(other))
        return self._plus(other, 1)

    __radd__ = __add__

    def __neg__(self) -> Index:
        """Return the expression times -1."""
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        """Return the difference."""
        if not isinstance(other, Index):
            return Index(self.terms, self.const - int(other))
        return self._plus(other, -1)

    def _plus(self, other: Index, times: int) -> Index:
        """Return the sum with `times` times the other."""
        const = self.const + other.const * times
        if not other.terms:
            return Index(self.terms, const)
        factors = dict(self.terms)
        for name, factor in other.terms:
            factors[name] = factors.get(name, 0) + factor * times
        return _collected(factors, const)

    def __rsub__(self, other: int) -> Index:
        """Return `other` minus the expression."""
        return Index.of(other) - self

    def __mul__(self, factor: int) -> Index:
        """Return the expression scaled by an integer."""
        if factor == 1:
            return self
        terms = tuple([(name, value * factor) for name, value in self.terms if factor])
        return Index(terms, self.const * factor)

    __rmul__ = __mul__

    def __str__(self) -> str:
        """Print as C (and Python): `256*block + i + 3`."""
        parts = [name if factor == 1 else f"{factor}*{name}" for name, factor in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")


def _collected(factors: Mapping[str, int], const: int) -> Index:
    """Return the sum of symbols times these factors, and a constant."""
    return Index(tuple(sorted([term for term in factors.items() if term[1]])), const)


BLOCK = Index.symbol("block")
BLOCK_ROW = Index.symbol("block_row")
BLOCK_COL = Index.symbol("block_col")
WARP = Index.symbol("warp")
WARP_ROW = Index.symbol("warp_row")
WARP_COL = Index.symbol("warp_col")
ROW = Index.symbol("row")
COL = Index.symbol("col")


@dataclass(frozen=True, slots=True)
class Extent:
    """A number of elements, blocks or iterations: `ceil(index / per)`, `index` over scalars."""

    index: Index
    per: int = 1

    @staticmethod
    def of(value: Extent | Index | int) -> Extent:
        """Return `value` as an extent."""
        return value if isinstance(value, Extent) else Extent(Index.of(value))

    @property
    def constant(self) -> int | None:
        """The value if it depends on no scalar, else None."""
        return None if self.index.terms else -(-self.index.const // self.per)

    def evaluate(self, scalars: Mapping[str, int]) -> int:
        """Return the value for these scalars."""
        return -(-int(self.index.evaluate(scalars)) // self.per)

    def __str__(self) -> str:
        """Print as `ceil(length / 256)`."""
        if self.constant is not None:
            return str(self.constant)
        if self.per == 1:
            return str(self.index)
        text = str(self.index)
        return f"ceil({f'({text})' if ' ' in text else text} / {self.per})"


@dataclass(frozen=True)
class Bound:
    """The condition `lhs < rhs`. In a view it may name `row` and `col` of the rectangle."""

    lhs: Index
    rhs: Index

    @cached_property
    def excess(self) -> Index:
        """The expression `lhs - rhs`, below 0 if the bound holds."""
        return self.lhs - self.rhs

    def hardest(self, last: Mapping[str, int]) -> Bound:
        """Return the bound at its tightest, with each symbol from 0 to its last value."""
        excess = self.excess
        corner = {name: end if excess.coefficient(name) > 0 else 0 for name, end in last.items()}
        return Bound(self.lhs.substitute(corner), self.rhs.substitute(corner))

    def __str__(self) -> str:
        """Print as `lhs < rhs`."""
        return f"{self.lhs} < {self.rhs}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """An integer argument of a program, found from the inputs' sizes.

    `multiple_of`: the program is right only for multiples of it; a program for any size has 1.
    `of`: the extent of earlier scalars that a derived scalar equals, or None.
    """

    name: str
    multiple_of: int = 1
    of: Extent | None = None


def with_derived(scalars: Sequence[Scalar], values: Mapping[str, int]) -> dict[str, int]:
    """Return values of scalars, including derived ones."""
    found = dict(values)
    for scalar in scalars:
        if scalar.of is not None:
            found[scalar.name] = scalar.of.evaluate(found)
    return found
