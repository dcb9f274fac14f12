"""A backend that computes wrongly on purpose, for tests of its detection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import AgreementError, Unsupported
from tcusim.judge.correctness.testing import assert_agree, random_inputs
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.interpreter import run_numpy

Change = Callable[[dict[str, Any]], None]


class Wrong:
    """The simulator, with its outputs changed; `probes` says whether it runs programs with them."""

    name = "wrong"
    title = "the simulator, but wrong"

    def __init__(self, change: Change, *, probes: bool = True) -> None:
        self.change = change
        self.probes = probes

    def available(self) -> str | None:
        return None

    def run(
        self,
        plan: LaunchPlan,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        (launch,) = plan.launches
        program = launch.program
        if len(program.outputs) > 1 and not self.probes:
            raise Unsupported("this backend has one output")
        outputs = dict(run_numpy(program, inputs, arch=arch or "hopper", **options))
        self.change(outputs)
        return outputs


def flip(name: str, place: int, mask: int = 1) -> Change:
    """Return a change of single bits of one output."""

    def change(outputs: dict[str, Any]) -> None:
        if name in outputs:
            outputs[name].view(f"u{outputs[name].itemsize}")[place] ^= mask

    return change


def program_and_inputs() -> tuple[Program, dict[str, Any]]:
    program = tcusim.build("scan_256n", masked=True, warps=2, segment_size=300)
    return program, random_inputs(program, "integers", 1500, np.random.default_rng(0))


def complaint(backend: Any, **options: Any) -> str:
    program, inputs = program_and_inputs()
    with pytest.raises(AgreementError) as caught:
        assert_agree(program, inputs, ("numpy", backend), **options)
    return str(caught.value)
