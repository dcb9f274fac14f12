"""On a GPU: sums stagnate and are biased as predicted, and probing finds its rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcusim
from on_gpu import arch
from tcusim.judge.accuracy.limits import bias_of, stagnation_of
from tcusim.judge.correctness.one_mma import one_mma
from tcusim.machine import Fused, rule_for
from tcusim.machine.formats import Values
from tcusim.machine.probing import Mma
from tcusim_cuda import CUDA

pytestmark = pytest.mark.gpu(min_sm=70)

ACCUMULATORS = ("f32", "f16")


@pytest.fixture(autouse=True)
def _library() -> None:
    reason = CUDA.available()
    if reason is not None:
        pytest.skip(f"{CUDA.name}: {reason}")


def column_of_mma(acc: str) -> Mma:
    """c + a @ b for b of one column, by tiles of 16 rows and no other addition."""
    sizes: Any = {"cols": 16, "inner": 16, "add_c": True}
    program = tcusim.build("gemm", ab="f16", acc=acc, down=1, across=1, depth=1, **sizes)
    (out,) = program.outputs

    def mma(a: Values, b: Values, c: Values) -> Values:
        rows = -(-len(a) // 16) * 16
        padded = np.zeros((rows, 16), np.float16)
        padded[: len(a), : a.shape[1]] = a
        right, addend = np.zeros((16, 16), np.float16), np.zeros((rows, 16), c.dtype)
        right[: len(b), :1], addend[: len(c), :1] = b, c
        inputs = {"a": padded.ravel(), "b": right.ravel(), "c": addend.ravel()}
        result = tcusim.run(program, inputs, backend=CUDA)[out.name]
        return np.asarray(result).reshape(rows, 16)[: len(a), :1]

    return mma


@pytest.mark.parametrize("acc", ACCUMULATORS)
def test_sums_stagnate_where_they_are_predicted_to(acc: str) -> None:
    rule = rule_for(arch(), "f16", acc)
    found = stagnation_of(rule, mma=column_of_mma(acc))
    assert found
    for one in found:
        print(f"{arch()} {acc} {one.terms}: predicted {one.predicted}, seen {one.computed}")
        assert one.computed == one.predicted


@pytest.mark.parametrize("acc", ACCUMULATORS)
def test_sums_are_biased_as_predicted(acc: str) -> None:
    rule = rule_for(arch(), "f16", acc)
    found = bias_of(rule, mma=column_of_mma(acc))
    assert found
    for one in found:
        print(f"{arch()} {acc} 2^{one.exponent}: predicted {one.predicted}, seen {one.computed}")
        assert one.computed == one.predicted


@pytest.mark.parametrize("acc", ACCUMULATORS)
def test_probing_finds_the_rule(acc: str) -> None:
    unit = tcusim.probe_unit({("f16", acc): one_mma("cuda", "16x16x16", "f16", acc)})
    (found,) = unit.arch.rows
    known = rule_for(arch(), "f16", acc)
    assert isinstance(found.how, Fused)
    assert isinstance(known.how, Fused)
    # Products of float16 never come near the floor of exponents, so no probe can see it.
    assert replace(found.how, exponent_floor=None) == replace(known.how, exponent_floor=None)
