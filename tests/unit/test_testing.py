"""`assert_agree` and its parts: the comparison, and the message on a mismatch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.backends import native_arch
from tcusim.errors import AgreementError, InputError, UnknownName
from tcusim.judge.correctness.testing import (
    INPUT_KINDS,
    assert_agree,
    bits_of,
    differences,
    input_kinds,
    outputs_agree,
    random_inputs,
)
from tcusim.machine.formats import FORMATS
from tcusim.machine.shapes import MmaShape
from tcusim.program.bind import offsets_of
from tcusim.program.walk import Placement
from tcusim.simulate.interpreter import run_numpy
from tcusim.simulate.probes import with_probes
from wrong_backend import Wrong, complaint, flip, program_and_inputs

RNG = np.random.default_rng


# --- assert_agree -----------------------------------------------------------------------------


def test_it_returns_the_outputs() -> None:
    program, inputs = program_and_inputs()
    outputs = assert_agree(program, inputs, ("numpy", tcusim.simulate.backend.NUMPY))
    assert np.array_equal(outputs["out"], run_numpy(program, inputs)["out"])


def test_a_mismatch_names_element_warp_and_values() -> None:
    lines = complaint(Wrong(flip("out", 650))).splitlines()
    assert lines[0] == "scan_256n: numpy and wrong disagree"
    assert lines[1] == "  output 'out' (f32): 1 of 1500 differ"
    assert lines[2] == "    out[650]"
    assert lines[3].split()[0] == "numpy"
    assert int(lines[3].split()[1], 16) ^ int(lines[4].split()[1], 16) == 1
    # Segments of 300: element 650 is of the third, in the first warp of the second block.
    assert lines[5].startswith("  out[650] was written by warp 0 of block 1, at step ")
    assert lines[6].strip().startswith("every accumulator and all shared memory agree")


def test_a_mismatch_names_the_first_step_that_differs() -> None:
    program, _ = program_and_inputs()
    _, probes = with_probes(program)
    name = next(name for name in probes if name.endswith("_AU"))
    probe = probes[name]
    placement = Placement.of_warps(program, {"i": 1}, np.array([3]))
    place = int(placement.addresses(probe.view)[0, 2, 5])

    def change(outputs: dict[str, Any]) -> None:
        flip("out", 0)(outputs)
        flip(name, place)(outputs)

    text = complaint(Wrong(change))
    assert f"they part at step {probe.path} `AU ← A·U + S` (i = 1), or at a load" in text
    assert "1 of 1536 elements differ, first AU[2, 5] in warp 1 of block 1: numpy 0x" in text


def test_a_mismatch_that_goes_away_with_probes_is_a_race() -> None:
    def only_without_probes(outputs: dict[str, Any]) -> None:
        if len(outputs) == 1:
            flip("out", 7)(outputs)

    assert "look for a missing barrier or another race" in complaint(Wrong(only_without_probes))


def test_nan_patterns_and_signs_of_zero_count() -> None:
    program = tcusim.build("reduction_k", masked=True)
    inputs = {"in": np.array([np.nan], np.float16)}
    nan = assert_agree(program, inputs, ("numpy", "numpy"))["out"]
    assert bits_of(nan, "f32")[0] == 0x7FFF_FFFF
    with pytest.raises(AgreementError, match="0x7fffffff  nan"):
        assert_agree(program, inputs, ("numpy", Wrong(flip("out", 0))))
    zero = {"in": np.zeros(1, np.float16)}
    with pytest.raises(AgreementError, match=r"0x80000000  -0\.0"):
        assert_agree(program, zero, ("numpy", Wrong(flip("out", 0, 1 << 31))))


def test_a_tolerance_needs_a_reason() -> None:
    program, inputs = program_and_inputs()
    near = Wrong(flip("out", 3))
    with pytest.raises(InputError, match="needs a reason"):
        assert_agree(program, inputs, ("numpy", near), ulp=1)
    assert_agree(program, inputs, ("numpy", near), ulp=1, reason="the last bit is planted")
    far = Wrong(flip("out", 3, 8))
    assert "disagree by more than 1 ulp" in complaint(far, ulp=1, reason="planted")


def test_one_backend_is_not_enough() -> None:
    program, inputs = program_and_inputs()
    with pytest.raises(InputError, match="at least two backends"):
        assert_agree(program, inputs, ("numpy",))


def test_a_device_chooses_the_architecture() -> None:
    class Volta(Wrong):
        def native_arch(self) -> str:
            return "volta"

    device = Volta(lambda outputs: None)
    assert native_arch(device) == "volta"
    assert native_arch(tcusim.simulate.backend.NUMPY) is None
    program = tcusim.build("reduction_t", combine="add")
    inputs = random_inputs(program, "wide", 2560, RNG(5))
    volta = assert_agree(program, inputs, ("numpy", device))
    assert outputs_agree(program, volta, run_numpy(program, inputs, arch="volta"))
    assert not outputs_agree(program, volta, run_numpy(program, inputs, arch="hopper"))


# --- differences ------------------------------------------------------------------------------


def test_differences_lists_the_places() -> None:
    program, inputs = program_and_inputs()
    one = run_numpy(program, inputs)
    two = {"out": one["out"].copy()}
    assert outputs_agree(program, one, two)
    two["out"][[4, 9]] += 1
    (found,) = differences(program, one, two)
    assert found.places.tolist() == [4, 9]
    assert (found.name, found.dtype) == ("out", "f32")


def test_ulp_distance_of_specials() -> None:
    program, inputs = program_and_inputs()
    one = run_numpy(program, inputs)
    two = {"out": one["out"].copy()}
    one["out"][:4] = [0.0, np.nan, np.nan, np.inf]
    two["out"][:4] = [-0.0, -np.nan, 1.0, np.finfo(np.float32).max]
    assert differences(program, one, two)[0].places.tolist() == [0, 1, 2, 3]
    assert differences(program, one, two, ulp=1)[0].places.tolist() == [2]


def test_outputs_that_cannot_be_compared() -> None:
    program, inputs = program_and_inputs()
    one = run_numpy(program, inputs)
    with pytest.raises(InputError, match="a backend returned no output 'out'"):
        differences(program, one, {})
    with pytest.raises(InputError, match=r"shape \(1500,\) on one backend and \(3,\)"):
        differences(program, one, {"out": one["out"][:3]})
    with pytest.raises(InputError, match="an array of f32 must be float32, got float64"):
        differences(program, one, {"out": one["out"].astype(np.float64)})


def test_bf16_may_be_held_in_float32() -> None:
    assert bits_of(np.array([1.5, -2.0], np.float32), "bf16").tolist() == [0x3FC0, 0xC000]


# --- Inputs -----------------------------------------------------------------------------------


def test_inputs_depend_on_the_seed_alone() -> None:
    program = tcusim.build("scan_k", ab="bf16", masked=True)
    for kind in INPUT_KINDS:
        one, two, other = (random_inputs(program, kind, 50, RNG(seed))["in"] for seed in (1, 1, 2))
        assert np.array_equal(bits_of(one, "bf16"), bits_of(two, "bf16"))
        assert not np.array_equal(bits_of(one, "bf16"), bits_of(other, "bf16"))


@pytest.mark.parametrize("levels", [(), (16,), (16, 4)])
@pytest.mark.parametrize("length", [0, 1, 5, 100, 1000])
def test_offsets_ascend_to_the_length(levels: tuple[int, ...], length: int) -> None:
    program = tcusim.build("reduction_ragged_simt", source="f32", levels=levels)
    inputs = random_inputs(program, "integers", length, RNG(2))
    offsets = inputs["offsets"]
    assert offsets.dtype == np.int64
    assert (np.diff(offsets) >= 0).all()
    # Every element read belongs to a segment, and the segments have no others.
    (step,) = offsets_of(program).values()
    places = step.segments.positions(offsets, np.arange(offsets.size))
    assert places[-1] == length
    own = step.segments.values(np.diff(offsets))
    assert (places[:-1] + own <= places[1:]).all()
    total = sum(inputs["in"][at : at + n].sum() for at, n in zip(places, own, strict=False))
    assert tcusim.run(program, inputs)["out"].sum() == total


def test_each_kind_is_what_it_says() -> None:
    program = tcusim.build("scan_k", masked=True)

    def drawn(kind: str) -> Any:
        return random_inputs(program, kind, 4000, RNG(3))["in"].astype(np.float64)

    special = drawn("special")
    assert np.isnan(special).any()
    assert {-np.inf, np.inf} <= set(special[np.isinf(special)])
    assert np.signbit(special[special == 0]).any()
    assert not np.signbit(special[special == 0]).all()
    assert (np.abs(drawn("subnormal")) < 2.0**-12).all()
    assert (drawn("subnormal") != 0).any()
    assert np.isfinite(drawn("overflow")).all()
    assert np.abs(drawn("overflow")).max() > 60000
    assert np.ptp(np.frexp(drawn("wide"))[1]) > 25
    assert (drawn("integers") == np.round(drawn("integers"))).all()
    assert drawn("uniform").min() >= 0


@pytest.mark.parametrize("ab", [one.name for one in FORMATS.values() if one.is_float])
def test_every_kind_is_drawn_for_every_type(ab: str) -> None:
    tile, acc = MmaShape(4, 4, 4), "f64" if ab == "f64" else "f32"
    program = tcusim.build("reduction_k", tile=tile, ab=ab, acc=acc, masked=True)
    for kind in input_kinds(ab):
        assert len(random_inputs(program, kind, 100, RNG(3))["in"]) == 100


def test_integers_have_their_own_kinds() -> None:
    program = tcusim.build("scan_k", ab="s8", acc="s32", masked=True)
    assert input_kinds("s8") == ("uniform", "integers")
    whole = random_inputs(program, "uniform", 4000, RNG(3))["in"]
    assert (whole.min(), whole.max(), whole.dtype) == (-128, 127, np.int8)
    with pytest.raises(UnknownName, match="unknown kind of s8 input 'wide'"):
        random_inputs(program, "wide", 10, RNG(3))


def test_a_length_that_the_program_cannot_take() -> None:
    with pytest.raises(InputError, match="length = 17 is not a multiple of 256"):
        random_inputs(tcusim.build("scan_t"), "normal", 17, RNG(3))


def test_what_is_split_is_in_range_of_its_parts() -> None:
    program = tcusim.build("scan_k", ab="bf16", source="f32", combine="add", masked=True)
    inputs = random_inputs(program, "overflow", 4000, RNG(3))
    assert inputs["in"].dtype == np.float32
    run_numpy(program, inputs)
