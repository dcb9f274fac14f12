"""Measured errors are those of sums as the simulator has them."""

from __future__ import annotations

import math

import numpy as np

import tcusim
from tcusim.judge.accuracy.families import FAMILIES, terms_of
from tcusim.judge.accuracy.measure import measured_errors
from tcusim.machine import Fused, Rule, rule_for


def test_a_chain_is_one_multiply_accumulate_of_all() -> None:
    (error,) = measured_errors(rule_for("volta", "f16", "f32"), [512], families=["same_sign"])[
        "same_sign"
    ]
    rng = np.random.default_rng((7, *b"same_sign"))
    x = terms_of(FAMILIES["same_sign"], rng, 48, 512, "f16")
    sums = tcusim.mma(x, np.ones((512, 1), np.float16), arch="volta")[:, 0].astype(np.float64)
    exact = x.astype(np.float64).sum(axis=1)
    assert error == np.sqrt(np.mean(((sums - exact) / exact) ** 2))


def test_tiles_that_end_within_a_step_end_the_step() -> None:
    coarse = Rule("f16", "f32", Fused(16, 6), "x", "x")
    deep, flat = (
        measured_errors(coarse, [256], k=k, families=["normal"])["normal"][0] for k in (16, 4)
    )
    assert deep != flat
    same = Rule("f16", "f32", Fused(4, 6), "x", "x")
    assert measured_errors(same, [256], k=16, families=["normal"])["normal"] == [flat]


def test_blocks_are_added_with_a_rounding_each() -> None:
    stalls = Rule("f16", "f16", Fused(1, 25, output="rne"), "x", "x")
    chain, blocks = (
        measured_errors(stalls, [2**13], blocked=blocked, families=["same_sign"], rows=8)
        for blocked in (None, 4)
    )
    assert blocks["same_sign"][0] < 0.2 * chain["same_sign"][0]


def test_no_term_is_left_out_of_blocks() -> None:
    fine = rule_for("hopper", "f16", "f32")
    found = measured_errors(fine, [63, 129], k=3, blocked=16, rows=8)
    assert max(max(errors) for errors in found.values()) < 1e-6


def test_an_overflow_is_an_infinite_error() -> None:
    exact = rule_for("exact", "f16", "f16")
    found = measured_errors(exact, [2**18], blocked=64, families=["same_sign"], rows=2)
    assert math.isinf(found["same_sign"][0])
