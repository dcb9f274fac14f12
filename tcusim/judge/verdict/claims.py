"""Whether a unit computes as its file says: its arithmetic against a model of the hardware.

The model is whatever multiplies tiles: a GPU, a simulation of the circuit, or another unit of
tcusim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError, TcusimError, Unsupported
from tcusim.judge.verdict.consistency import WRONG, Finding
from tcusim.judge.verdict.subjects import Subject
from tcusim.machine import Rule, Values, format_of, from_values, mma_values, round_values
from tcusim.machine.probing import Mma, probe_rule
from tcusim.machine.shapes import MmaShape

# Called with a (m x k), b (k x n) and c (m x n), arrays of the element types; returns d (m x n).
Model: TypeAlias = Callable[[Any, Any, Any], Any]

# Tiles that are multiplied, of each of the families below.
_TILES: Final = 6
_SEED: Final = 20190626


def claims_of(subject: Subject, model: Model) -> tuple[Finding, ...]:
    """Return findings on the claims of a unit that its model contradicts; none for equal bits.

    Raises nothing that the model raises: that is a finding.
    """
    return tuple(
        Finding(name, WRONG, text)
        for tile in subject.tiles
        for name, text in _claims(subject, tile, model)
    )


def _claims(subject: Subject, tile: MmaShape, model: Model) -> Iterator[tuple[str, str]]:
    rule = subject.rule_of(tile)

    def asked(a: Values, b: Values, c: Values) -> Any:
        given = (from_values(one, fmt) for one, fmt in ((a, rule.ab), (b, rule.ab), (c, rule.acc)))
        return model(*given)

    outputs = wrong = 0
    first = ""
    for what, a, b, c in _inputs(subject, tile):
        expected = from_values(mma_values(a, b, c, rule), rule.acc)
        try:
            got = np.asarray(asked(a, b, c))
        # It is not tcusim's, and may raise anything.
        except Exception as error:
            name = "" if isinstance(error, TcusimError) else f"{type(error).__name__}: "
            text = f"the model does not take a tile of {tile.name}: {name}{error}"
            yield "tile", text
            return
        if got.shape != expected.shape:
            yield (
                "tile",
                f"the unit claims tiles of {tile.name}, so that d is {tile.m} x {tile.n}; the "
                f"model returns {' x '.join(map(str, got.shape)) or 'a number'}",
            )
            return
        differs = _bits(got, expected) != _bits(expected, expected)
        outputs += differs.size
        wrong += int(differs.sum())
        if differs.any() and not first:
            row, col = (int(place[0]) for place in np.nonzero(differs))
            first = f"{what}, d[{row}, {col}] is {got[row, col]!r} and not {expected[row, col]!r}"
    if wrong:
        yield from _named(rule, tile, asked)
        yield (
            "bits",
            f"{wrong:,} of {outputs:,} outputs of {tile.name} have other bits than the unit's "
            f"rule gives; of {first}",
        )


def _named(rule: Rule, tile: MmaShape, asked: Mma) -> Iterator[tuple[str, str]]:
    """Yield the parameters of the model that differ, if a rule reproduces its bits."""
    try:
        found = probe_rule(asked, tile, rule.ab, rule.acc).how
    except (Unsupported, InputError):
        # The bits are others all the same.
        return
    if type(found) is not type(rule.how):
        kinds = (type(one).__name__.lower() for one in (rule.how, found))
        yield (
            "kind",
            "the unit claims {} arithmetic, and its model computes with {} ".format(*kinds)
            + f"(tile {tile.name})",
        )
        return
    for item in fields(found):
        claimed, computed = getattr(rule.how, item.name), getattr(found, item.name)
        if claimed != computed:
            yield (
                item.name,
                f"the unit claims {item.name} = {claimed}, and its model computes with {computed} "
                f"(tile {tile.name})",
            )


def _bits(values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of numbers in the type of others; all NaN are one."""
    same = np.ascontiguousarray(values.astype(like.dtype))
    if same.dtype.kind == "f":
        same = np.where(np.isnan(same), same.dtype.type(np.nan), same)
    found: NDArray[Any] = np.ascontiguousarray(same).view(f"u{same.dtype.itemsize}")
    return found


def _inputs(subject: Subject, tile: MmaShape) -> Iterator[tuple[str, Values, Values, Values]]:
    """Yield tiles of numbers as they come, of very unequal size, and whose sums nearly cancel."""
    rng = np.random.default_rng(_SEED)
    ab, acc = format_of(subject.ab), format_of(subject.acc)
    shapes = (tile.m, tile.k), (tile.k, tile.n), (tile.m, tile.n)
    for number in range(_TILES):
        if not ab.is_float:
            least, most = int(ab.smallest), int(ab.largest)
            a, b = (rng.integers(least, most + 1, one).astype(ab.dtype) for one in shapes[:2])
            yield f"integers {number}", a, b, rng.integers(-99, 100, shapes[2]).astype(acc.dtype)
            continue
        drawn = [rng.standard_normal(one) for one in shapes]
        yield f"normal numbers {number}", *_rounded(drawn, subject)
        spread = [one * 2.0 ** rng.integers(-6, 7, one.shape) for one in drawn]
        yield f"numbers of unequal size {number}", *_rounded(spread, subject)
        a, b = (round_values(np.asarray(one), ab) for one in drawn[:2])
        nearly = -(a.astype(np.float64) @ b.astype(np.float64))
        yield f"sums that cancel {number}", a, b, round_values(nearly, acc)


def _rounded(drawn: list[NDArray[np.float64]], subject: Subject) -> tuple[Values, Values, Values]:
    ab, acc = format_of(subject.ab), format_of(subject.acc)
    a, b, c = (round_values(one, fmt) for one, fmt in zip(drawn, (ab, ab, acc), strict=True))
    return a, b, c
