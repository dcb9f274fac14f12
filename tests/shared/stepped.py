"""The steps of one warp of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tcusim.program.grammar import Program
from tcusim.stepper.frames import Frame
from tcusim.stepper.trace import trace


def frames(program: Program, inputs: Mapping[str, Any], warp: int = 0) -> Iterator[Frame]:
    """Yield each step of a warp."""
    return iter(trace(program, inputs, warps=warp))
