"""Small programs, and the steps of one of their warps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tcusim
from tcusim.program.grammar import Program
from tcusim.stepper.frames import Frame
from tcusim.stepper.trace import trace


def frames(program: Program, inputs: Mapping[str, Any], warp: int = 0) -> Iterator[Frame]:
    """Yield each step of a warp."""
    return iter(trace(program, inputs, warps=warp))


def small_program(name: str, **options: Any) -> Program:
    """Return the program of an algorithm, with few steps."""
    small: dict[str, dict[str, Any]] = {
        "reduction_single_pass": {"groups": 1, "panels": 1, "segment_size": 1200},
        "scan_single_pass": {"warps": 8, "segment_size": 20_000},
    }
    return tcusim.build(name, **{**small.get(name, {}), **options})
