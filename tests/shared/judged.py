"""Units for tests of verdicts, and a cheap question about one."""

from __future__ import annotations

from functools import cache
from typing import Any

from tcusim.judge.verdict.validate import Verdict, validate
from tcusim.machine import Arch, Figure, Fused, Instruction, Rule, Unit
from tcusim.machine.shapes import shape_of

# Of each kind one, so that a question takes a second.
FEW = ("reduction_kn", "scan_kn", "gemm_naive")


def figure(value: float) -> Figure:
    return Figure(value, "invented", "assumed")


def chip(name: str = "chip", *, how: Fused | None = None, tile: str = "4x4x4", **more: Any) -> Unit:
    """Return a unit that nobody registered."""
    rule = Rule("f16", "f32", how or Fused(4, 24), "invented", "assumed")
    arch = Arch(name, "a chip", (), (), (rule,), "invented")
    return Unit(name, "a chip", arch, (shape_of(tile),), **more)


def timed(interval: float, latency: float, tile: str = "4x4x4") -> Instruction:
    return Instruction(tile, "f16", "f32", latency=figure(latency), interval=figure(interval))


def judge(*named: Any, **more: Any) -> Verdict:
    """Return a verdict on few algorithms, compared with nothing; a like question is asked once."""
    asked = {"algorithms": FEW, "reference": None, **more}
    lists: dict[str, Any] = {
        key: tuple(one) if isinstance(one, list) else one for key, one in asked.items()
    }
    if "planted" in lists["algorithms"]:
        return validate(*named, **lists)
    return _judged(named, tuple(lists.items()))


@cache
def _judged(named: tuple[Any, ...], asked: tuple[tuple[str, Any], ...]) -> Verdict:
    given: dict[str, Any] = dict(asked)
    return validate(*named, **given)
