"""Programs of a function that a test writes with a builder, and builders by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tcusim import plugins
from tcusim.algorithms import Algorithm, build, register_algorithm
from tcusim.algorithms.builder import Builder, Options, Work
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import Program


def hand_built(function: Callable[..., int | Work], **options: Any) -> Program:
    """Return the program, built with these options; the algorithm is forgotten again."""
    with plugins.restored():
        register_algorithm(Algorithm(function, "hand_built", "scan", "a test"))
        return build("hand_built", **options)


def builder(tile: Any = "16x16x16", **options: Any) -> Builder:
    """Return a builder without steps."""
    return Builder(Options(shape_of(tile), **options))
