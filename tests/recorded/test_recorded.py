"""The simulator returns the bits that were recorded from real GPUs (the small sets)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcusim.machine import Fused, Rule

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def vectors() -> Iterator[Any]:
    with np.load(HERE / "fused_step_vectors.npz") as archive:
        yield archive


def test_wmma_of_an_h200(tile_case: str, tiles: Any, compare_tiles: Callable[..., int]) -> None:
    assert compare_tiles(tiles, tile_case) == 0


def test_one_step_of_eight_gpus(
    vector_case: str, vectors: Any, compare_vectors: Callable[..., int]
) -> None:
    assert compare_vectors(vectors, vector_case) == 0


@pytest.fixture(scope="module")
def instructions() -> Iterator[Any]:
    with np.load(HERE / "instructions_h200.npz") as archive:
        yield archive


def test_instructions_of_an_h200(
    instruction_case: str, instructions: Any, compare_instructions: Callable[..., int]
) -> None:
    assert compare_instructions(instructions, instruction_case) == 0


def planted_bugs(how: Fused) -> dict[str, Fused]:
    """Return wrong parameters; the recorded bits must expose each."""
    return {
        "F - 1": replace(how, fraction_bits=how.fraction_bits - 1),
        "F + 1": replace(how, fraction_bits=how.fraction_bits + 1),
        "half the length": replace(how, length=how.length // 2),
        "other output rounding": replace(how, output="rne" if how.output == "rz" else "rz"),
        "rounded alignment": replace(how, alignment="rne"),
    }


def with_how(rule: Rule, how: Fused) -> Rule:
    return replace(rule, how=how)


@pytest.mark.parametrize("bug", list(planted_bugs(Fused(2, 2))))
@pytest.mark.parametrize("gpu", ["V100", "A100", "A2", "Ada", "L40S", "H100", "H200", "B200"])
def test_a_wrong_parameter_is_noticed(
    gpu: str,
    bug: str,
    vectors: Any,
    compare_vectors: Callable[..., int],
    rule_of_case: Callable[[str], Rule],
) -> None:
    key = f"{gpu}_fp16_d_fp32"
    rule = rule_of_case(key)
    assert isinstance(rule.how, Fused)
    wrong = with_how(rule, planted_bugs(rule.how)[bug])
    assert compare_vectors(vectors, key, wrong) > 0


@pytest.mark.parametrize(
    ("case", "floor"),
    [("bf16_16x16x16_exp80to70_tiny", -133), ("f16_16x16x16_tiny24-22_tiny", -21)],
)
def test_every_other_floor_of_the_exponent_is_ruled_out(
    case: str,
    floor: int,
    tiles: Any,
    compare_tiles: Callable[..., int],
    rule_of_case: Callable[[str], Rule],
) -> None:
    rule = rule_of_case(case)
    assert isinstance(rule.how, Fused)
    assert rule.how.exponent_floor == floor
    for other in (None, floor - 1, floor + 1):
        wrong = with_how(rule, replace(rule.how, exponent_floor=other))
        assert compare_tiles(tiles, case, wrong) > 0


def test_tf32_of_mma_sync_is_one_step_of_eight(
    tiles: Any, compare_tiles: Callable[..., int], rule_of_case: Callable[[str], Rule]
) -> None:
    case = "tf32sync_16x8x8_wide_wide"
    rule = rule_of_case(case)
    assert isinstance(rule.how, Fused)
    assert compare_tiles(tiles, case, with_how(rule, replace(rule.how, length=4))) > 0


def test_tf32_in_one_step_of_eight_is_ruled_out(
    tiles: Any, compare_tiles: Callable[..., int], rule_of_case: Callable[[str], Rule]
) -> None:
    case = "tf32_16x16x8_wide_wide"
    rule = rule_of_case(case)
    assert isinstance(rule.how, Fused)
    assert compare_tiles(tiles, case, with_how(rule, replace(rule.how, length=8))) > 0


def mismatches_of(
    key: str, how: dict[str, Any], vectors: Any, compare: Callable[..., int], rule: Rule
) -> int:
    assert isinstance(rule.how, Fused)
    return compare(vectors, key, with_how(rule, replace(rule.how, **how)))


@pytest.mark.parametrize("element", ["E4M3", "E5M2"])
@pytest.mark.parametrize("gpu", ["H100", "H200", "B200"])
def test_8_bit_floats_of_mma_sync_are_two_steps_and_an_addition(
    gpu: str,
    element: str,
    vectors: Any,
    compare_vectors: Callable[..., int],
    rule_of_case: Callable[[str], Rule],
) -> None:
    key = f"{gpu}_{element}_d_fp16"
    rule = rule_of_case(key)
    assert compare_vectors(vectors, key) == 0
    for wrong in (
        {"c_joins": "sum"},
        {"register_halves": False},
        {"register_halves": False, "length": 32},
        {"register_halves": False, "length": 32, "fraction_bits": 13, "c_joins": "sum"},
        {"output": "rz"},
    ):
        assert mismatches_of(key, wrong, vectors, compare_vectors, rule) > 0


@pytest.mark.parametrize("element", ["E4M3", "E5M2"])
def test_what_the_8_bit_floats_of_a_b200_do_not_decide(
    element: str,
    vectors: Any,
    compare_vectors: Callable[..., int],
    rule_of_case: Callable[[str], Rule],
) -> None:
    """The evidence says so, and would have to be changed if new rows decided it."""
    key = f"B200_{element}_d_fp32"
    rule = rule_of_case(key)
    assert rule.evidence == "recorded bits, which do not decide F"
    one_step = {"register_halves": False, "length": 32}
    for fits in ({"fraction_bits": 22}, {"fraction_bits": 28}, one_step):
        assert mismatches_of(key, fits, vectors, compare_vectors, rule) == 0
    assert mismatches_of(key, {"c_joins": "sum"}, vectors, compare_vectors, rule) > 0


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        *(
            (f"sync_{ab}_f32_wide_normal", wrong)
            for ab in ("e4m3", "e5m2")
            for wrong in (
                {"fraction_bits": 24},
                {"fraction_bits": 26},
                {"output": "rne"},
                {"c_joins": "sum"},
                {"length": 8},
                {"register_halves": False, "length": 32},
                {"register_halves": False, "length": 32, "fraction_bits": 13, "c_joins": "sum"},
            )
        ),
        *(
            (f"wg_{ab}_f32_normal_normal", wrong)
            for ab in ("e4m3", "e5m2")
            for wrong in (
                {"fraction_bits": 12},
                {"fraction_bits": 14},
                {"output": "rne"},
                {"output_fraction_bits": None},
                {"c_joins": "after"},
                {"length": 16},
            )
        ),
        *(
            (f"wg_{ab}_f16_normal_normal", wrong)
            for ab in ("e4m3", "e5m2")
            for wrong in ({"fraction_bits": 12}, {"fraction_bits": 14}, {"output": "rz"})
        ),
        *((f"wg_tf32_f32_{kind}_normal", {"length": 4}) for kind in ("normal", "zerohuge")),
        *(
            (f"wg_{ab}_f32_normal_normal", {"fraction_bits": bits})
            for ab in ("f16", "bf16", "tf32")
            for bits in (24, 26)
        ),
    ],
    ids=str,
)
def test_a_wrong_parameter_of_an_instruction_is_noticed(
    case: str,
    wrong: dict[str, Any],
    instructions: Any,
    compare_instructions: Callable[..., int],
    rule_of_case: Callable[[str], Rule],
) -> None:
    rule = rule_of_case(case)
    assert isinstance(rule.how, Fused)
    assert rule.evidence == "recorded bits"
    changed = with_how(rule, replace(rule.how, **wrong))
    assert compare_instructions(instructions, case, changed) > 0


@pytest.mark.parametrize("case", ["sync_bf16_f32", "sync_tf32_f32", "wg_bf16_f32", "wg_tf32_f32"])
def test_huge_numbers_times_zero_cut_nothing_off(
    case: str, instructions: Any, compare_instructions: Callable[..., int]
) -> None:
    """If 2^60 times 0 decided E, every small product beside it would be lost."""
    case = f"{case}_zerohuge_normal"
    assert compare_instructions(instructions, case) == 0
    d = instructions[f"{case}_D"].view(np.float32)
    c = instructions[f"{case}_C"].view(np.float32)
    assert (d != c).mean() > 0.5
