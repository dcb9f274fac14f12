"""How recorded sets are named and compared, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcusim.machine import Rule, Values, as_values, mma_values, rule_for

TILE_ARCHIVES = ("wmma_h200.npz", "wmma_h200_edges.npz")
# A case TYPE_SHAPE_OPERANDS_ACCUMULATOR of wmma_h200.npz; TYPE names operands and accumulator.
TILE_TYPES = {
    "f32": ("f16", "f32"),
    "f16": ("f16", "f16"),
    "bf16": ("bf16", "f32"),
    "tf32": ("tf32", "f32"),
    "tf32sync": ("tf32", "f32"),
    "f64": ("f64", "f64"),
    "s8": ("s8", "s32"),
}
# A set GPU_TYPE of fused_step_vectors.npz.
GPUS = {
    "V100": "volta",
    "A100": "ampere",
    "A2": "ampere",
    "Ada": "ada",
    "L40S": "ada",
    "H100": "hopper",
    "H200": "hopper",
    "B200": "blackwell",
}
VECTOR_TYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}

Compare = Callable[..., int]
# A function that multiplies as `mma_values` does.
Multiply = Callable[..., Values]


def floats(array: Values, fmt: str) -> Values:
    """Return stored bits as values of a type; floats and integers are returned as they are."""
    if fmt == "bf16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    elif array.dtype.kind == "u":
        array = array.view(f"f{array.dtype.itemsize}")
    return as_values(array, fmt)


def mismatches(d: Values, recorded: Values) -> int:
    """Count elements with different bits; a zero's sign and a NaN's payload count."""
    unsigned = f"u{d.dtype.itemsize}"
    return int((d.view(unsigned) != recorded.view(unsigned)).sum())


def tile_rule(case: str) -> Rule:
    """Return Hopper's rule for a recorded case."""
    kind = case.split("_")[0]
    family = "mma.sync" if kind == "tf32sync" else "wmma"
    return rule_for("hopper", *TILE_TYPES[kind], family)


def vector_rule(key: str) -> Rule:
    """Return the rule for a set GPU_TYPE_d_RESULT."""
    gpu, element, _, output = key.split("_")
    # Hopper's fp32 results of 8-bit floats are those of wgmma, its fp16 ones of mma.sync.
    wgmma = GPUS[gpu] == "hopper" and VECTOR_TYPES[element] in ("e4m3", "e5m2") and output == "fp32"
    return rule_for(
        GPUS[gpu],
        VECTOR_TYPES[element],
        output.replace("fp", "f"),
        "wgmma" if wgmma else "mma.sync",
    )


def tile_archives() -> dict[str, Values]:
    """Return the arrays of both small sets of tiles."""
    arrays: dict[str, Values] = {}
    for name in TILE_ARCHIVES:
        with np.load(Path(__file__).parent / name) as archive:
            arrays.update(archive)
    return arrays


@pytest.fixture(scope="session")
def tiles() -> dict[str, Values]:
    return tile_archives()


@pytest.fixture(scope="session")
def compare_tiles() -> Compare:
    def compare(
        archive: Any, case: str, rule: Rule | None = None, multiply: Multiply = mma_values
    ) -> int:
        ab, acc = TILE_TYPES[case.split("_")[0]]
        a, b = (floats(archive[f"{case}_{operand}"], ab) for operand in "AB")
        c, d = (floats(archive[f"{case}_{operand}"], acc) for operand in "CD")
        return mismatches(multiply(a, b, c, rule or tile_rule(case)), d)

    return compare


@pytest.fixture(scope="session")
def compare_vectors() -> Compare:
    def compare(
        archive: Any, key: str, rule: Rule | None = None, multiply: Multiply = mma_values
    ) -> int:
        gpu, element, _, output = key.split("_")
        ab, acc = VECTOR_TYPES[element], output.replace("fp", "f")
        a, b = (floats(archive[f"{gpu}_{element}_{operand}"], ab) for operand in "ab")
        own = f"{gpu}_{element}_c_{output}"
        c = floats(archive[own] if own in archive else archive[f"{gpu}_{element}_c"], "f32")
        if acc == "f16":
            c = c.astype(np.float16)
        rule = rule or vector_rule(key)
        d = multiply(a[:, None, :], b[:, :, None], c[:, None, None], rule)
        # The recorded fp16 results are stored as float32 too.
        return mismatches(d[:, 0, 0].astype(np.float32), archive[key])

    return compare


def instruction_rule(case: str) -> Rule:
    """Return the rule for a case FAMILY_TYPE_RESULT_OPERANDS_ACCUMULATOR."""
    family, ab, acc = case.split("_")[:3]
    return rule_for("hopper", ab, acc, {"sync": "mma.sync", "wg": "wgmma"}[family])


@pytest.fixture(scope="session")
def compare_instructions() -> Compare:
    def compare(
        archive: Any, case: str, rule: Rule | None = None, multiply: Multiply = mma_values
    ) -> int:
        family, ab, acc = case.split("_")[:3]
        rule = rule or instruction_rule(case)
        a, b = (floats(archive[f"{case}_{operand}"], ab) for operand in "AB")
        d, recorded = (floats(archive[f"{case}_{operand}"], acc) for operand in "CD")
        # Two wgmma, one after the other.
        width = a.shape[2] // (2 if family == "wg" else 1)
        for k in range(0, a.shape[2], width):
            d = multiply(a[:, :, k : k + width], b[:, k : k + width], d, rule)
        return mismatches(d, recorded)

    return compare


@pytest.fixture(scope="session")
def rule_of_case() -> Callable[[str], Rule]:
    def rule_of(case: str) -> Rule:
        if case.split("_")[0] in ("sync", "wg"):
            return instruction_rule(case)
        if "_d_" not in case:
            return tile_rule(case)
        return vector_rule(case)

    return rule_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that takes `tile_case` or `vector_case` every case of the small sets."""
    here = Path(__file__).parent
    if "tile_case" in metafunc.fixturenames:
        cases = sorted({key[:-2] for key in tile_archives()})
        metafunc.parametrize("tile_case", cases)
    if "instruction_case" in metafunc.fixturenames:
        with np.load(here / "instructions_h200.npz") as archive:
            cases = sorted({key[:-2] for key in archive.files})
        metafunc.parametrize("instruction_case", cases)
    if "vector_case" in metafunc.fixturenames:
        with np.load(here / "fused_step_vectors.npz") as archive:
            keys = [key for key in archive.files if "_d_" in key]
        metafunc.parametrize("vector_case", keys)
