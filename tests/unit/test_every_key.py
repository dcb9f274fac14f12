"""Every key of a rule that a unit's file may have changes a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from drawn_rules import PARTS, drawn_rule
from tcusim.errors import InputError
from tcusim.machine import Fused, Late, Rule, format_of, mma_values
from tcusim.machine.bits import decoded
from tcusim.machine.hard_operands import Dots, corners, drawn_to_hit
from tcusim.machine.scaled import scaled_mma, scales_of_bits

KEYS = [(kind, name) for kind, values in PARTS.items() for name in values]
# A rule that all values of a key go with, if few drawn rules are one.
SCALED = Rule(
    *("e2m1", "f32", Fused(64, 9, exponents="scales", presum=16), "a test", "none"),
    scale="block16.ue4m3",
)
BASES: dict[tuple[type, str], Rule] = {(Fused, "presum"): SCALED}
# Floors below the exponents of all terms that are likely.
LOW = {None, -149, -133}


def sums_by(rule: Rule, dots: Dots) -> Any:
    """Return the bits of dot products."""
    types = (rule.ab, rule.right, rule.acc)
    a, b, c = (decoded(x, format_of(one)) for x, one in zip(dots[:3], types, strict=True))
    a, b, c = a[:, None, :], b[:, :, None], c[:, None, None]
    with np.errstate(all="ignore"):
        if not rule.scale:
            d = mma_values(a, b, c, rule)
        else:
            left, right = (scales_of_bits(one, rule.scale_type) for one in dots[3:])
            d = scaled_mma(a, b, c, (left[:, None, :], right[:, :, None]), rule)
    return d.view(f"u{d.itemsize}")


def with_value(rule: Rule, kind: type, name: str, value: Any) -> Rule:
    how: Any = rule.how
    changed = {name: Late(24, 24) if value == "late" else value}
    if kind is Late:
        changed = {"c_joins": replace(how.c_joins, **changed)}
    return replace(rule, how=replace(how, **changed))


def pairs_of(rng: np.random.Generator, kind: type, name: str, x: Any, y: Any) -> Iterator[Any]:
    """Yield rules that differ in one key alone."""
    for _ in range(3000):
        base = BASES.get((kind, name)) or drawn_rule(rng, Fused if kind is Late else kind)
        if kind is not Late or isinstance(base.how.c_joins, Late):  # type: ignore[union-attr]
            with suppress(InputError):
                yield tuple(with_value(base, kind, name, one) for one in (x, y))


@pytest.mark.parametrize(("kind", "name"), KEYS)
def test_every_key_changes_a_result(kind: type, name: str, request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(0)
    values = list(dict.fromkeys(PARTS[kind][name]))
    pairs = [pair for pair in combinations(values, 2) if not set(pair) <= LOW]
    if name == "exponents":
        pairs = [pair for pair in pairs if "scales" not in pair or "operands" in pair]
    if not request.config.getoption("--full"):
        pairs = pairs[len(pairs) // 2 :][:1]
    for x, y in pairs:
        for tries, (one, other) in enumerate(pairs_of(rng, kind, name, x, y)):
            k = max(16, one.block)
            parts = [drawn_to_hit(rng, 100, rule, k) for rule in (one, other)]
            parts += [dots for _, dots in corners(one, k)]
            dots = Dots(*(np.concatenate(each) for each in zip(*parts, strict=True)))
            if (sums_by(one, dots) != sums_by(other, dots)).any():
                break
            assert tries < 40, (x, y)
        else:
            pytest.fail(f"no rules have {x} and {y}")
