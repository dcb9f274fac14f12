"""The common part of runs is computed once, and no run can tell."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tcusim.algorithms import algorithms, build
from tcusim.machine.native import why_no_compiler
from tcusim.program.grammar import Program
from tcusim.simulate import schedule
from tcusim.simulate.interpreter import interpret, run_numpy
from tcusim.simulate.schedule import Fork, prepared
from tcusim.simulate.windows import Elements
from tcusim.stepper.frames import default_inputs

needs_compiler = pytest.mark.skipif(why_no_compiler() is not None, reason="there is no compiler")

# Options of algorithms with many elements a block.
FEWER: dict[str, dict[str, Any]] = {"scan_single_pass": {"warps": 8, "segment_size": 20_000}}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Let each test begin as a process does, and leave nothing small behind."""
    prepared.cache_clear()
    yield
    prepared.cache_clear()


def inputs_of(program: Program, seed: int) -> dict[str, Any]:
    """Return the inputs of two blocks, with random numbers."""
    rng, found = np.random.default_rng(seed), default_inputs(program, 2 * program.blocks.per)
    for name, array in found.items():
        if array.dtype.kind == "f":
            found[name] = rng.standard_normal(array.size).astype(array.dtype)
    return found


def spoiled(inputs: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return inputs with some infinities: they take other branches."""
    rng, found = np.random.default_rng(seed), {}
    for name, array in inputs.items():
        found[name] = array.copy()
        if array.dtype.kind == "f":
            found[name][rng.integers(0, array.size, 2)] = np.inf
    return found


def events(program: Program, inputs: Mapping[str, Any]) -> list[Any]:
    return [
        (event.path, dict(event.loops), event.warps.tolist())
        for event in interpret(program, inputs)
    ]


def bits(program: Program, inputs: Mapping[str, Any]) -> list[bytes]:
    return [array.tobytes() for array in run_numpy(program, inputs).values()]


def known(program: Program, inputs: Mapping[str, Any]) -> Any:
    return prepared(program, tuple((name, array.size) for name, array in inputs.items()))


@pytest.mark.parametrize("name", [one.name for one in algorithms()])
def test_a_run_depends_on_no_other(name: str) -> None:
    """Each of several runs on other data has the bits and the events of a first run."""
    program = build(name, **FEWER.get(name, {}))
    data = [inputs_of(program, seed) for seed in (1, 2)]
    data.insert(1, spoiled(data[0], 3))
    alone = []
    for inputs in data:
        prepared.cache_clear()
        alone.append((events(program, inputs), bits(program, inputs)))
    prepared.cache_clear()
    for inputs, (order, expected) in zip((*data, data[0]), (*alone, alone[0]), strict=True):
        assert bits(program, inputs) == expected
        assert events(program, inputs) == order


def test_a_second_run_finds_no_element_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    program = build("reduction_panel", segment_size=256, masked=True)
    inputs = inputs_of(program, 4)
    first = bits(program, inputs)

    def found(*_: Any) -> Any:
        raise AssertionError("elements are known")

    monkeypatch.setattr(Elements, "find", staticmethod(found))
    assert bits(program, inputs) == first
    # Of other sizes nothing is known.
    with pytest.raises(AssertionError, match="elements are known"):
        run_numpy(program, {name: array[:-256] for name, array in inputs.items()})


def test_steps_that_are_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    program = build("scan_tn", segment_size=4096)
    inputs = inputs_of(program, 5)
    expected = bits(program, inputs), events(program, inputs)
    count = len(expected[1])
    for most, keeps in ((count, True), (count - 1, False)):
        prepared.cache_clear()
        monkeypatch.setattr(schedule, "_STEPS", most)
        assert (bits(program, inputs), events(program, inputs)) == expected
        assert bool(known(program, inputs)._schedules) == keeps


def test_addresses_that_are_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    program = build("reduction_kn", segment_size=256, masked=True)
    inputs = {name: array[:-1] for name, array in inputs_of(program, 6).items()}
    expected = bits(program, inputs)
    held = known(program, inputs)._bytes
    assert held > 1000
    for most in (held, held - 1, held // 2, 0):
        prepared.cache_clear()
        monkeypatch.setattr(schedule, "_BYTES", most)
        assert bits(program, inputs) == bits(program, inputs) == expected
        (one,) = known(program, inputs)._schedules.values()
        kept = sum(found.nbytes for leaf in one.leaves for found in leaf.found.values())
        assert kept <= most
        assert (kept == held) == (most == held)


def test_batches_of_other_sizes_do_not_fill_the_memory() -> None:
    program = build("reduction_panel", segment_size=256)
    inputs = inputs_of(program, 7)
    for warps in range(1, 20):
        for _ in interpret(program, inputs, warps_at_once=warps):
            pass
    owner = known(program, inputs)
    assert len(owner._schedules) * owner._steps <= schedule._STEPS


def test_ways_through_a_branch_that_the_data_decide_are_few() -> None:
    program = build("scan_panel")
    inputs = inputs_of(program, 8)
    for seed in range(3 * schedule._WAYS):
        changed = spoiled(inputs, seed)
        expected = bits(program, changed)
        assert bits(program, changed) == expected
    (one,) = known(program, inputs)._schedules.values()
    forks = [node for node in one.nodes() if isinstance(node, Fork)]
    assert forks
    assert all(1 <= len(fork._ways) <= schedule._WAYS for fork in forks)


def test_threads_share_what_is_known() -> None:
    program = build("scan_panel")
    data = [spoiled(inputs_of(program, seed), seed) for seed in range(6)]
    expected = [bits(program, inputs) for inputs in data]
    prepared.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda inputs: bits(program, inputs), data * 3))
    assert found == expected * 3


@needs_compiler
def test_a_step_of_a_second_run_takes_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of Python functions measure the cost of a step, on a busy machine too."""
    # No other test builds it, so that its schedule is found by identity.
    program = build("reduction_panel", segment_size=384)
    inputs = inputs_of(program, 9)
    steps = len(events(program, inputs))
    count, before = 0, sys.getprofile()

    def tell(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event == "call"

    for core, bound in (("numpy", 25), ("compiled", 17)):
        monkeypatch.setenv("TCUSIM_CORE", core)
        run_numpy(program, inputs)
        count = 0
        sys.setprofile(tell)
        try:
            run_numpy(program, inputs)
        finally:
            sys.setprofile(before)
        assert count < bound * steps
