"""Probes: the step that wrote a wrong element first."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import AgreementError
from tcusim.judge.correctness.testing import assert_agree, outputs_agree, random_inputs
from tcusim.program.grammar import accesses
from tcusim.simulate.interpreter import Event, run_numpy
from tcusim.simulate.probes import with_probes
from wrong_backend import Wrong, complaint, flip

RNG = np.random.default_rng


# Grids of several columns, and segments of unequal length.
REPORTED = (
    ("gemm", {"cols": 70, "inner": 20, "warps": 4}, 40),
    ("gemm_naive", {"cols": 40, "inner": 20}, 40),
    ("scan_single_pass", {"warps": 8, "columns": 4, "masked": True}, 20_000),
    (
        "scan_single_pass",
        {"warps": 8, "columns": 2, "segment_size": 20_000, "masked": True},
        30_000,
    ),
    (
        "reduction_single_pass",
        {"warps": 2, "columns": 4, "segment_size": 4096, "masked": True},
        9000,
    ),
    ("scan_ragged", {"segment_size": 32, "masked": True}, 700),
    ("reduction_ragged", {"segment_size": 32, "masked": True}, 700),
)


@pytest.mark.parametrize(("name", "options", "length"), REPORTED, ids=lambda value: str(value))
def test_reports_on_all_grids_and_segments(name: str, options: dict[str, Any], length: int) -> None:
    """Flip an element and a probe: the report names their warps, and the step."""
    program = tcusim.build(name, **options)
    inputs = random_inputs(program, "integers", length, RNG(0))
    probed, probes = with_probes(program)
    right = run_numpy(probed, inputs)
    wrong = next(
        name
        for name in reversed(probes)
        if np.isfinite(right[name]).any() and probes[name].buffer.dtype != "s64"
    )
    place = int(np.flatnonzero(np.isfinite(right[wrong]))[-1])
    last = int(np.flatnonzero(np.isfinite(right["out"]))[-1])

    def change(outputs: dict[str, Any]) -> None:
        flip("out", last)(outputs)
        flip(wrong, place)(outputs)

    with pytest.raises(AgreementError) as caught:
        assert_agree(program, inputs, ("numpy", Wrong(change)))
    text = str(caught.value)
    written = re.search(rf"out\[{last}\] was written by warp \d+ of block (.*), at step", text)
    assert written is not None, text
    assert written[1].startswith("(") == (program.columns > 1)
    assert f"they part at step {probes[wrong].path} " in text
    assert "1 of " in text


@pytest.mark.parametrize(("name", "options", "length"), REPORTED, ids=lambda value: str(value))
def test_probes_have_a_place_for_each_warp(name: str, options: dict[str, Any], length: int) -> None:
    program = tcusim.build(name, **options)
    inputs = random_inputs(program, "integers", length, RNG(0))
    probed, probes = with_probes(program)
    seen: dict[str, list[Any]] = {}

    def watch(event: Event) -> None:
        for view in accesses(event.step).views_written:
            if view.buffer.name in probes:
                seen.setdefault(view.buffer.name, []).append(event.state.places(view, event.warps))

    outputs = run_numpy(probed, inputs, watch=watch)
    assert seen
    for name, places in seen.items():
        every = np.concatenate([one.ravel() for one in places])
        assert np.unique(every).size == every.size
        assert every.max() < outputs[name].size


def test_a_backend_that_cannot_run_probes() -> None:
    text = complaint(Wrong(flip("out", 0), probes=False))
    assert "the step at which they part is not known, since probes cannot run: this backend" in text


@pytest.mark.parametrize("algorithm", [row.name for row in tcusim.algorithms.algorithms()])
def test_probes_change_no_output(algorithm: str) -> None:
    program = tcusim.build(algorithm, masked=True, warps=2)
    inputs = random_inputs(program, "normal", 700, RNG(1))
    probed, probes = with_probes(program)
    tcusim.verify(probed)
    outputs = run_numpy(probed, inputs)
    assert outputs_agree(program, outputs, run_numpy(program, inputs))
    assert probes
    assert set(outputs) == {"out", *probes}
