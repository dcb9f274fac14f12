"""The compiled steps: the bits of NumPy's, the conditions of their use, and refusals."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversary import NARROW, PATTERNS, operand, pattern_of
from drawn_rules import drawn_mma, drawn_rule
from tcusim.errors import BackendUnavailable, InputError
from tcusim.machine import Exact, Fused, Sequential, mma_values, rule_for
from tcusim.machine import core as module
from tcusim.machine.core import fields_of
from tcusim.machine.formats import format_of
from tcusim.machine.native import why_no_compiler
from tcusim.machine.rule_row import HEADER

needs_compiler = pytest.mark.skipif(why_no_compiler() is not None, reason="there is no compiler")
HOPPER = rule_for("hopper", "f16", "f32")
COMPILED = [
    rule
    for rule in NARROW
    if fields_of(format_of(rule.ab), format_of(rule.acc), rule.how, pattern=False)  # type: ignore[arg-type]
]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test begin as a process does."""
    monkeypatch.setattr(module, "_STATE", module._State())


def both(monkeypatch: pytest.MonkeyPatch, *operands: Any) -> tuple[Any, Any]:
    """Return the result of NumPy's steps, and of the compiled ones."""
    found = []
    for choice in ("numpy", "compiled"):
        monkeypatch.setenv("TCUSIM_CORE", choice)
        found.append(np.ascontiguousarray(mma_values(*operands)))
    return found[0], found[1]


def same(one: Any, two: Any) -> bool:
    return bool(one.tobytes() == two.tobytes())


@needs_compiler
@settings(max_examples=60)
@given(data=st.data())
def test_bits_are_numpys(data: st.DataObject) -> None:
    rule = data.draw(st.sampled_from(COMPILED), label="rule")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    tiles = data.draw(st.sampled_from([1, 2, 5, 17, 40]))
    m, n, k = (data.draw(st.sampled_from([1, 3, 8, 16, 33])) for _ in "mnk")
    a = operand(rng, (tiles, m, k), rule.ab)
    b = operand(rng, (1 if data.draw(st.booleans()) else tiles, k, n), rule.ab)
    if data.draw(st.booleans()):
        b = pattern_of(data.draw(st.sampled_from(PATTERNS)), k, n, rng).astype(a.dtype)[None]
    c = operand(rng, (tiles, m, n), rule.acc)
    if data.draw(st.booleans(), label="tiles last in memory"):
        a, b, c = (
            np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0) for x in (a, b, c)
        )
    with pytest.MonkeyPatch.context() as patch:
        assert same(*both(patch, a, b, c, rule))


@needs_compiler
@pytest.mark.parametrize("kind", [Fused, Sequential, Exact])
def test_few_products_and_long_exact_sums_are_the_rules_in_c(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    rng = np.random.default_rng(4)
    used = []
    multiply = module.RuleCore.multiply

    def noted(*operands: Any) -> Any:
        used.append(operands)
        return multiply(*operands)

    monkeypatch.setattr(module.RuleCore, "multiply", noted)
    for _ in range(60):
        drawn = drawn_mma(rng, drawn_rule(rng, kind))
        if drawn.scales is None:
            a = drawn.a[:1] if rng.random() < 0.5 else drawn.a
            assert same(*both(monkeypatch, a, drawn.b, drawn.c, drawn.rule)), drawn.rule
    assert len(used) >= 15


@needs_compiler
@pytest.mark.full
@pytest.mark.parametrize("rule", COMPILED, ids=str)
def test_ten_million_outputs_of_each_rule(monkeypatch: pytest.MonkeyPatch, rule: Any) -> None:
    rng = np.random.default_rng(1)
    for turn in range(80):
        a, b = (operand(rng, (512, 16, 16), rule.ab) for _ in "ab")
        if turn % 3 == 0:
            b = pattern_of(PATTERNS[turn % len(PATTERNS)], 16, 16, rng).astype(a.dtype)[None]
        c = operand(rng, (512, 16, 16), rule.acc)
        if turn % 2:
            a, b, c = (
                np.moveaxis(np.array(np.moveaxis(x, 0, -1), order="C"), -1, 0) for x in (a, b, c)
            )
        assert same(*both(monkeypatch, a, b, c, rule))


@needs_compiler
def test_it_is_compiled_when_that_is_worth_it_and_used_at_once_from_then_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(folder))
    a = np.random.default_rng(2).standard_normal((1, 16, 16)).astype(np.float16)

    def found(choice: str = "auto") -> bool:
        """Return whether a process has a library after its first product."""
        monkeypatch.setattr(module, "_STATE", module._State())
        monkeypatch.setenv("TCUSIM_CORE", choice)
        mma_values(a, a, None, HOPPER)
        return module._STATE.found is not None

    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    # To look for it makes nothing.
    assert not found()
    assert not folder.exists()
    with monkeypatch.context() as patch:
        patch.setattr(module, "_WORTH", 1)
        assert found()
    made = files()
    assert {path.suffix for path in made if path.is_file()} == {".so", ".tested"}
    # Another process runs no compiler, and makes nothing.
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", None)
        assert found()
        assert not found("numpy")
    assert files() == made
    # Unfinished candidates are tested first, when that is worth it.
    next(path for path in made if path.suffix == ".tested").unlink()
    assert not found()
    assert found("compiled")
    assert files().keys() == made.keys()


@needs_compiler
def test_few_tiles_of_many_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A desk is found by all that it depends on, and those that are too many go."""
    monkeypatch.setattr(module, "_MOST_DESKS", 3)
    rng = np.random.default_rng(4)
    for rule in (HOPPER, rule_for("volta", "f16", "f16"), rule_for("ampere", "bf16", "f32")):
        for m, n, k, tiles in ((16, 16, 16, 1), (16, 8, 16, 2), (3, 13, 5, 1), (16, 16, 16, 2)):
            for left, right in ((1, tiles), (tiles, 1), (tiles, tiles), (1, 1)):
                a, b = operand(rng, (left, m, k), rule.ab), operand(rng, (right, k, n), rule.ab)
                for c in (operand(rng, (1, m, n), rule.acc), operand(rng, (tiles, m, n), rule.acc)):
                    assert same(*both(monkeypatch, a, b, c, rule))
                    turned = (np.asfortranarray(x) for x in (a, b, c))
                    assert same(*both(monkeypatch, *turned, rule))
    assert len(module._DESKS.known) <= 3


@needs_compiler
def test_threads_have_desks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCUSIM_CORE", "compiled")
    rng = np.random.default_rng(5)
    tiles = rng.standard_normal((300, 16, 16)).astype(np.float16)
    expected = [mma_values(one, one, None, HOPPER).tobytes() for one in tiles]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda one: mma_values(one, one, None, HOPPER).tobytes(), tiles)
        assert list(found) == expected


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.random.default_rng(3).standard_normal((2, 16, 16)).astype(np.float16)
    monkeypatch.setenv("TCUSIM_CORE", "rust")
    with pytest.raises(InputError, match="TCUSIM_CORE must be one of auto, compiled, numpy, got"):
        mma_values(a, a, None, HOPPER)
    monkeypatch.setenv("CXX", "/nowhere/g++")
    monkeypatch.setenv("TCUSIM_CORE", "compiled")
    with pytest.raises(BackendUnavailable, match="TCUSIM_CORE=compiled: "):
        mma_values(a, a, None, HOPPER)
    monkeypatch.setattr(module, "_WORTH", 1)
    monkeypatch.setenv("TCUSIM_CORE", "auto")
    assert mma_values(a, a, None, HOPPER).shape == (2, 16, 16)


@needs_compiler
@pytest.mark.parametrize("shape", [(1, 1, 1), (16, 16, 16), (48, 3, 32), (37, 5, 3), (4096, 4, 4)])
def test_halves_are_widened(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]) -> None:
    monkeypatch.setenv("TCUSIM_CORE", "compiled")
    assert isinstance(HOPPER.how, Fused)
    fields = fields_of(format_of("f16"), format_of("f32"), HOPPER.how, pattern=False)
    assert fields is not None
    compiled = module.core(fields, 0, lambda core: None)
    assert compiled is not None
    bits = np.resize(np.arange(2**16, dtype=np.uint16), shape)
    bits[np.isnan(bits.view(np.float16))] = 0x7E00
    x = bits.view(np.float16)
    assert same(compiled.in_turn(x), x.astype(np.float32))
    expected = np.ascontiguousarray(x.transpose(2, 1, 0), np.float32)
    assert same(compiled.tiles_last(x), expected)
    # NumPy copies arrays of another layout, or of wide types.
    turned = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0)
    for other in (turned, x.astype(np.float32), x[::2]):
        assert same(compiled.in_turn(other), np.ascontiguousarray(other, np.float32))
        last = np.ascontiguousarray(other.transpose(2, 1, 0), np.float32)
        assert same(compiled.tiles_last(other), last)


@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("sums * scale, I)", "sums * scale * 0.5f, I)", "f16"),
        ("(const char*)b + tile * b_step", "(const char*)a + tile * a_step", "Fused in f32 gives"),
        ("scaled *= 0x1p112f", "scaled *= 0x1p111f", "the half 0001 becomes"),
    ],
)
def test_wrong_bits_are_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TCUSIM_CORE", "compiled")
    source = tmp_path / "core.cpp"
    shutil.copytree(HEADER.parent, tmp_path / "include")
    text = module._SOURCE.read_text()
    assert right in text
    source.write_text(text.replace(right, wrong))
    monkeypatch.setattr(module, "_SOURCE", source)
    # Compiled in a third of the time, to the same bits.
    monkeypatch.setattr(module, "_FLAGS", (*module._FLAGS, "-O0"))
    a = np.random.default_rng(3).standard_normal((2, 16, 16)).astype(np.float16)
    with (
        pytest.warns(RuntimeWarning, match=f"steps of the simulator are not used: {told}"),
        pytest.raises(BackendUnavailable, match="its bits are wrong here"),
    ):
        mma_values(a, a, None, HOPPER)
