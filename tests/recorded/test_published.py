"""Rules of units that others have modelled, against outputs of those models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcusim.machine import Fused, Late, Rule, Sequential, mma_values, rule_for
from tcusim.machine.formats import format_of
from tcusim.machine.registry import scaled_rule
from tcusim.machine.scaled import scaled_mma

VECTORS = np.load(Path(__file__).with_name("published_models.npz"))
EVERY = sorted({name.rpartition("-")[0] for name in VECTORS.files})
NAMES = [name for name in EVERY if not name.startswith("scaled")]


def compared(name: str, rule: Rule | None = None) -> tuple[Any, Any]:
    """Return the bits of tcusim and those of the model."""
    arch, ab = name.split("-")
    rule = rule or rule_for(arch, ab, "f32")
    a, b, c, d = (VECTORS[f"{name}-{key}"] for key in "abcd")
    if ab == "tf32":
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    a, b = (x.astype(format_of(ab).dtype) for x in (a, b))
    return mma_values(a, b, c, rule).view(np.uint32), d


@pytest.mark.parametrize("name", NAMES)
def test_every_bit_is_that_of_the_model(name: str) -> None:
    found, model = compared(name)
    assert found.shape == model.shape
    assert np.array_equal(found, model)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in NAMES])
def test_products_with_block_scales(name: str) -> None:
    _, ab, scale, block = name.split("-")
    a, b, c, left, right, model = (VECTORS[f"{name}-{key}"] for key in "abcstd")
    rule = scaled_rule("rtx 5090", ab, "f32", int(block), scale)
    scales = left.astype(np.float64), right.astype(np.float64)
    assert np.array_equal(scaled_mma(a, b, c, scales, rule).view(np.uint32), model)
    assert isinstance(rule.how, Fused)
    for one in ({"output": "rne"}, {"fraction_bits": rule.how.fraction_bits - 12}):
        changed = replace(rule, how=replace(rule.how, **one))
        assert not np.array_equal(scaled_mma(a, b, c, scales, changed).view(np.uint32), model)


@pytest.mark.parametrize("name", NAMES)
def test_the_outputs_tell_the_rule_from_others(name: str) -> None:
    arch, ab = name.split("-")
    rule = rule_for(arch, ab, "f32")
    changes: list[dict[str, Any]]
    match rule.how:
        case Fused(c_joins=Late() as late):
            changes = [
                {"fraction_bits": 23},
                {"output": "rz"},
                {"c_joins": "sum"},
                {"c_joins": replace(late, alignment="rz")},
            ]
        case _:
            changes = [{"order": "chain"}, {"order": "apart"}, {"length": 2}]
    assert isinstance(rule.how, Fused | Sequential)
    for one in changes:
        found, model = compared(name, replace(rule, how=replace(rule.how, **one)))
        assert not np.array_equal(found, model), one
