"""The compiled steps: the bits of NumPy's, when they are used, and what refuses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adversary import NARROW, PATTERNS, operand, pattern_of
from tcusim.errors import BackendUnavailable, InputError
from tcusim.machine import core as module
from tcusim.machine import mma_values, rule_for
from tcusim.machine.core import fields_of
from tcusim.machine.formats import format_of
from tcusim.machine.native import why_no_compiler

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
        patch.setattr(module, "_STATE", module._State())
        assert same(*both(patch, a, b, c, rule))


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
def test_it_is_compiled_when_that_is_worth_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TCUSIM_CORE", raising=False)
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path))
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((64, 16, 16)).astype(np.float16) for _ in "ab")
    mma_values(a, b, None, HOPPER)
    assert module._STATE.found is None
    monkeypatch.setattr(module, "_WORTH", 1)
    mma_values(a, b, None, HOPPER)
    assert module._STATE.found is not None
    suffixes = {path.suffix for path in (tmp_path / "native").iterdir()}
    assert suffixes == {".so", ".tested"}


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
    how = format_of("f16"), format_of("f32"), HOPPER.how
    compiled = module.core(*how, 0, lambda core: None, pattern=False)  # type: ignore[arg-type]
    assert compiled is not None
    bits = np.resize(np.arange(2**16, dtype=np.uint16), shape)
    bits[np.isnan(bits.view(np.float16))] = 0x7E00
    x = bits.view(np.float16)
    assert same(compiled.in_turn(x), x.astype(np.float32))
    expected = np.ascontiguousarray(x.transpose(2, 1, 0), np.float32)
    assert same(compiled.tiles_last(x), expected)
    # What lies otherwise, or is wide already, is NumPy's to copy.
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
        ("scaled *= 0x1p112f", "scaled *= 0x1p111f", "the half 0001 becomes"),
    ],
)
def test_wrong_bits_are_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TCUSIM_CORE", "compiled")
    source = tmp_path / "core.cpp"
    text = module._SOURCE.read_text()
    assert right in text
    source.write_text(text.replace(right, wrong))
    monkeypatch.setattr(module, "_SOURCE", source)
    a = np.random.default_rng(3).standard_normal((2, 16, 16)).astype(np.float16)
    with (
        pytest.warns(RuntimeWarning, match=f"steps of the simulator are not used: {told}"),
        pytest.raises(BackendUnavailable, match="its bits are wrong here"),
    ):
        mma_values(a, a, None, HOPPER)
