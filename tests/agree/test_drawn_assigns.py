"""Drawn programs of Assigns: refused with a finding, or run with the same bits everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from drawn_assigns import LENGTHS, drawn_program
from tcusim.backends import Backend
from tcusim.errors import VerifyError
from tcusim.judge.correctness.testing import assert_agree, input_kinds, random_inputs
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import Program
from tcusim_cuda.compile import compile_text, why_no_compiler
from tcusim_cuda.emit import emit
from tcusim_host import compile_programs

KINDS = ("normal", "special", "wide", "subnormal", "integers")


def accepted(seeds: range) -> dict[int, Program]:
    """Return the programs that pass; `verify` raises nothing but its own errors."""
    found = {}
    for seed in seeds:
        program = drawn_program(seed)
        try:
            verify(program)
        except VerifyError:
            continue
        found[seed] = program
    # Most programs are to run.
    assert len(found) > len(seeds) / 2
    return found


def inputs_of(program: Program, length: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return inputs of a kind that is drawn, integers where a type has none of that kind."""
    kind = str(rng.choice(KINDS))
    inputs: dict[str, NDArray[Any]] = {}
    for buffer in program.inputs:
        own = kind if kind in input_kinds(buffer.dtype) else "integers"
        inputs |= random_inputs(replace(program, buffers=(buffer,)), own, length, rng)
    return inputs


@pytest.mark.parametrize(
    "seeds",
    [
        range(5),
        *(pytest.param(range(n, n + 100), marks=pytest.mark.full) for n in range(100, 1100, 100)),
    ],
)
def test_what_is_accepted_runs_with_the_same_bits(seeds: range, host: Backend) -> None:
    programs = accepted(seeds)
    compile_programs(programs.values())
    for seed, program in programs.items():
        rng = np.random.default_rng(seed)
        for length in LENGTHS:
            assert_agree(program, inputs_of(program, length, rng), ("numpy", host))


@pytest.mark.full
@pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))
@pytest.mark.parametrize("first", range(100, 400, 100))
def test_nvrtc_takes_what_is_accepted(first: int) -> None:
    texts = [emit(program).text for program in accepted(range(first, first + 100)).values()]
    assert compile_text("drawn programs", "\n".join(texts), 90)
