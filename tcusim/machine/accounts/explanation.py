"""`tcusim.explain`: the summation of one output of D = A·B + C, on several architectures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tcusim.errors import (
    Given,
    InputError,
    names_of,
    require_flags,
    require_int,
    require_names,
    told,
    unknown_name,
)
from tcusim.machine.accounts.account import Account
from tcusim.machine.accounts.drawing import drawing_of
from tcusim.machine.accounts.page import fragment_of, page_of
from tcusim.machine.accounts.recorder import accounts_of
from tcusim.machine.accounts.text import text_of
from tcusim.machine.bits import hex_bits, to_bits
from tcusim.machine.convert import as_values, nearest_values, same_values
from tcusim.machine.formats import Format, Values, format_of
from tcusim.machine.registry import arch_of, rule_for, usual_types
from tcusim.machine.rules import FAMILIES

# Numbers that an account names as rounded, of each operand.
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """How architectures summed one output: data that prints, and draws, itself.

    `print` it, or show it in a notebook. ``explanation["volta"]`` is the account of one
    architecture, and iterating gives all.

    Attributes
    ----------
    accounts : tuple of Account
        One for each architecture, in the order in which they were named.
    """

    accounts: tuple[Account, ...]

    def __iter__(self) -> Iterator[Account]:
        return iter(self.accounts)

    def __len__(self) -> int:
        return len(self.accounts)

    def __getitem__(self, arch: str) -> Account:
        """Return the account of an architecture, by any of its names."""
        name = arch_of(arch).name
        for one in self.accounts:
            if one.arch == name:
                return one
        raise unknown_name("architecture of this explanation", arch, [one.arch for one in self])

    def __str__(self) -> str:
        return self.to_text().rstrip("\n")

    def __repr__(self) -> str:
        results = ", ".join(f"{one.arch} {one.bits}" for one in self)
        return f"<Explanation: {results}>"

    def to_text(self, *, color: bool = False) -> str:
        """Return tables in plain text; with the escape sequences of a terminal for `color`."""
        require_flags(color=color)
        return text_of(self.accounts, color=color)

    def to_json(self) -> str:
        """Return everything as JSON; numbers exactly, as C writes them (``0x1.8p-3``)."""
        content = {"accounts": [one.to_dict() for one in self]}
        return json.dumps(content, ensure_ascii=False, indent=2)

    def to_html(self) -> str:
        """Return a page that needs no other file, no script and no network."""
        return page_of(self.accounts)

    def to_svg(self) -> str:
        """Return a drawing."""
        return drawing_of(self.accounts)

    def _repr_html_(self) -> str:
        return fragment_of(self.accounts)


def explain(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike = 0.0,
    *,
    arch: str | Sequence[str] = "hopper",
    ab: str | None = None,
    acc: str | None = None,
    family: str = "",
    cell: tuple[int, int] | None = None,
    exact_inputs: bool = False,
) -> Explanation:
    """Show the summation of one output by tensor cores, a·b + c, step by step and bit by bit.

    For each rounded sum: its terms with their exponents, the exponent to which they are aligned,
    the surviving and the lost bits of each, the sum of the surviving bits, and its rounding. The
    code that computes `mma` records it, so it ends with the same bits.

    Parameters
    ----------
    a, b : array_like (k,), ab
        Factors of the products. Any length: longer products are chained steps. Or, with `cell`,
        matrices (m, k) and (k, n). Numbers that a float type does not hold are rounded to the
        nearest that it does, and the account says which. As by `mma`, float32 is cut to tf32, and
        the account says how many factors were.
    c : array_like (), acc
        Addend; with `cell` also a matrix (m, n).
    arch : str or sequence of str
        Whose arithmetic, as for `mma`; several are compared.
    ab, acc, family : str, optional
        Types, by default f16 in f32, or the first that the first architecture takes; and the
        instruction where those of one architecture differ, as for `mma`.
    cell : (int, int), optional
        Row and column of the output in a product of matrices.
    exact_inputs : bool
        Refuse numbers that the type would round, as `mma` does.

    Returns
    -------
    Explanation
        An account for each architecture. `str` makes a table of it, and there are `to_json`,
        `to_html` and `to_svg`.

    Raises
    ------
    InputError
        If shapes do not fit, or a value is beyond the range of a type.
    UnknownName
        If there is no such architecture, type or instruction.
    Unsupported
        If an architecture does not do this, or nobody knows how it does.

    Examples
    --------
    A term that is small beside c vanishes on Volta, and not on Hopper:

    >>> import tcusim
    >>> told = tcusim.explain([1.0, 1.0], [2.0**-24, 2.0**-24], 1.0, arch=("volta", "hopper"))
    >>> told
    <Explanation: volta 3f800000, hopper 3f800001>
    >>> [term.name for term in told["volta"].steps[0].terms if term.is_cut]
    ['a[0]*b[0]', 'a[1]*b[1]']
    """
    names = names_of("arch", arch)
    if not names:
        raise InputError(
            *(Given("arch"), " names no architecture; give one or more, such as "),
            Given("arch", "hopper"),
        )
    require_names(family=family)
    if family not in ("", *FAMILIES):
        raise unknown_name("family", family, FAMILIES)
    ab, acc = usual_types(arch_of(names[0]), ab, acc)
    require_names(ab=ab, acc=acc)
    rules = [(rule_for(name, ab, acc, family), arch_of(name)) for name in names]
    types = [rules[0][0].ab, rules[0][0].right]
    # Float32 operands, before the truncation to tf32.
    taken = [*("f32" if one == "tf32" else one for one in types), acc]
    held, given = [], []
    for name, x, fmt in zip("abc", (a, b, c), taken, strict=True):
        values, numbers = nearest_values(x, fmt, name=name)
        held.append(values)
        given.append(numbers)
    row, column, addend = vectors = _vectors(held[0], held[1], held[2], cell)
    originals = _vectors(given[0], given[1], given[2], cell)
    rounded = tuple(
        note
        for note in map(_rounding, "abc", originals, vectors, map(format_of, taken))
        if note is not None
    )
    require_flags(exact_inputs=exact_inputs)
    if exact_inputs and rounded:
        raise InputError(
            f"exact inputs were asked for, and these would be rounded: {'; '.join(rounded)}"
        )
    factors = [as_values(x, fmt) for x, fmt in zip((row, column), types, strict=True)]
    cut = sum(
        int((x != y).sum() - (np.isnan(x) & np.isnan(y)).sum())
        for x, y in zip((row, column), factors, strict=True)
    )
    inputs = factors[0][None], factors[1][None], addend.reshape(1)
    told = (one for rule in rules for one in accounts_of(*inputs, *rule))
    return Explanation(tuple(replace(one, cut_operands=cut, rounded=rounded) for one in told))


def _rounding(name: str, given: Values, held: Values, fmt: Format) -> str | None:
    """Return a description of the rounded numbers and their results; None if none were rounded."""
    lost = np.ravel(~same_values(held, given))
    if not lost.any():
        return None
    pairs = dict(zip(np.ravel(given)[lost].tolist(), np.ravel(held)[lost], strict=True))
    shown = ", ".join(
        f"{number!r} to {float(near)!r} (0x{hex_bits(to_bits(near, fmt), fmt)})"
        for number, near in [*pairs.items()][:_SHOWN]
    )
    more = f", and {len(pairs) - _SHOWN} more" * (len(pairs) > _SHOWN)
    return f"{name} to {fmt.name}, {shown}{more}"


def _vectors(
    a: Values, b: Values, c: Values, cell: tuple[int, int] | None
) -> tuple[Values, Values, Values]:
    """Return the factors and the addend of one output."""
    shapes = f"a has shape {a.shape}, b {b.shape}, c {c.shape}"
    if cell is None:
        if a.ndim == b.ndim == 2:
            raise InputError(f"{shapes}: of two matrices, cell must say which output is meant")
        if a.ndim != 1 or b.ndim != 1:
            raise InputError(f"{shapes}: a and b must be vectors, or matrices with a cell")
        if len(a) != len(b):
            raise InputError(f"a has {len(a)} numbers, and b has {len(b)}; both need as many")
        if c.size != 1:
            raise InputError(f"c must be one number, got shape {c.shape}")
        return a, b, c
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise InputError(f"{shapes}: with a cell, a must be (m, k) and b (k, n)")
    m, n = a.shape[0], b.shape[1]
    if not isinstance(cell, Sequence) or len(cell) != 2:
        raise InputError(f"cell must be (row, column), got {told(cell)}")
    require_int("the row of cell", cell[0], 0, m - 1)
    require_int("the column of cell", cell[1], 0, n - 1)
    if c.size != 1 and c.shape != (m, n):
        raise InputError(f"c must be one number, or (m, n) = ({m}, {n}), got shape {c.shape}")
    return a[cell[0]], b[:, cell[1]], c if c.size == 1 else c[tuple(cell)]
