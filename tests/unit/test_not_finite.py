"""Scans of infinities and NaN: earlier prefixes keep their bits, and the rest is NumPy's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tcusim
from not_finite import CASES, FEW, ORDERS, Case, disagreement, inputs_of
from some import marked
from tcusim.algorithms import build
from tcusim.backends import run
from tcusim.machine import canonical_nan
from tcusim.machine.formats import BY_ARRAY_NAME
from tcusim.program.bind import bind_scalars
from tcusim.program.checks.in_place import in_place
from tcusim.program.grammar import When, walk
from tcusim.simulate.counts import Counts, counts_of_text
from tcusim.simulate.interpreter import run_numpy


@pytest.mark.parametrize(
    ("case", "order"),
    marked(list(itertools.product(CASES, ORDERS)), 3),
    ids=lambda value: getattr(value, "id", str(value)),
)
def test_scans_are_numpys(case: Case, order: dict[str, bool]) -> None:
    assert disagreement(case, run, **order) == ""


@pytest.mark.parametrize("case", FEW, ids=lambda case: case.id)
def test_finite_data_cost_nothing_more(case: Case) -> None:
    """Only where something is not finite does a warp scan, or read, more than the text says."""
    program = case.program()
    work = []
    for inputs in inputs_of(case, program):
        counted = Counts()
        run_numpy(program, inputs, watch=counted)
        work.append((counted.mma, counted.bytes_read))
    (mma, read), (usual, least) = work
    scalars = bind_scalars(program, {name: x.size for name, x in inputs.items()})
    assert mma >= usual == counts_of_text(program, scalars).mma
    assert mma > usual or read > least


def test_integers_have_no_such_branch() -> None:
    options: dict[str, Any] = {"ab": "s8", "acc": "s32", "source": "s8", "result": "s32"}
    program = build("scan_panel", segment_size=64, masked=True, combine="add", **options)
    steps = [step for _, step in walk(program.steps)]
    assert not any(isinstance(step, When) and step.not_finite for step in steps)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["scan_panel", "scan_single_pass"])
def test_the_result_may_still_lie_where_the_data_do(name: str, *, reverse: bool) -> None:
    options: dict[str, Any] = {"warps": 4, "columns": 2} if name == "scan_single_pass" else {}
    size = None if options else 300
    program = build(
        name,
        segment_size=size,
        masked=True,
        combine="add",
        result="f16",
        reverse=reverse,
        **options,
    )
    assert in_place(program) is None


def test_what_follows_has_no_say() -> None:
    """An infinity later in the row changes no bit, nor does a finite number there."""
    program = CASES[2].program()
    x = np.random.default_rng(3).standard_normal(64).astype(np.float16)
    results = []
    for value in (0, 1000, np.inf, -np.inf, np.nan):
        x[20:32] = value
        results.append(run(program, {"in": x})["out"][:20].tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("operation", ["sum", "cumsum"])
def test_float32_has_the_bits_of_its_program(operation: str) -> None:
    """Infinities, NaN and sums that overflow: they meet an infinity of the other sign."""
    x = np.tile(np.array([1, np.inf, 0, -3e38, -3e38, 2, np.nan, 1], np.float32), 20)
    x[:3], x[40:] = 1, 5
    plan = tcusim.plan(operation, length=x.size, dtype="float32")
    (launch,) = plan.launches
    raw = tcusim.run(launch.program, {"in": x})["out"]
    with np.errstate(all="ignore"):
        whole = getattr(tcusim, operation)(x)
    assert np.asarray(whole).tobytes() == raw.tobytes()
    assert np.isnan(raw[-1])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_nan_has_the_bits_of_a_gpu(dtype: str) -> None:
    x = np.array([1, np.nan, 2], dtype)
    canonical = canonical_nan(np.array([np.nan], dtype), BY_ARRAY_NAME[dtype])
    assert np.asarray(tcusim.sum(x)).tobytes() == canonical.tobytes()
    assert tcusim.cumsum(x)[2:].tobytes() == canonical.tobytes()
