"""Common parts of all builders of programs: constants, and one rounding of results."""

from __future__ import annotations

import numpy as np

from tcusim.algorithms import build
from tcusim.backends import run
from tcusim.program.grammar import Const, walk


def test_results_are_rounded_once_to_a_narrow_type() -> None:
    program = build("reduction_k", segment_size=16, result="f16")
    x = np.zeros(256, np.float16)
    x[:3] = 2048, 1, 1
    x[16:19] = 2048, 2, 1
    assert run(program, {"in": x})["out"][:2].tolist() == [2050, 2052]


def test_the_given_constants_are_the_corrected_ones() -> None:
    program = build("scan_t", tile="16x16x16")
    patterns = {
        step.dst.name: (step.pattern.kind, step.pattern.offset.const)
        for _, step in walk(program.steps)
        if isinstance(step, Const)
    }
    assert patterns["U"] == ("upper", 0)
    assert patterns["L"] == ("lower", -1)
