"""The rule in C beside the simulator's: drawn rules, drawn numbers, the same bits."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from drawn_rules import PARTS, DrawnMma, address, drawn_mma, drawn_rule, pick
from numbers_of_types import same_bits
from tcusim.machine import (
    Exact,
    Fused,
    Integer,
    Rule,
    Sequential,
    Values,
    arches,
    format_of,
    mma_values,
)
from tcusim.machine.formats import to_memory
from tcusim.machine.native import compiler_command
from tcusim.machine.rule_row import HEADER, RuleRow, rule_row
from tcusim.machine.scaled import scaled_mma, scales_of_bits
from tcusim_cuda.compile import compile_text, why_no_compiler

KINDS: Final = (Fused, Fused, Fused, Sequential, Sequential, Exact, Integer)

SOURCE: Final = """
#include "tcusim_rule.h"
#define EXPORT __attribute__((visibility("default")))
EXPORT int32_t size(void);
EXPORT void tile(const tcusim_rule*, int32_t, int32_t, int32_t, void*, const void*, const void*,
                 const void*, const uint8_t*, const uint8_t*, tcusim_number*);
EXPORT uint64_t dot(const tcusim_rule*, int32_t, const void*, int64_t, const void*, int64_t,
                    uint64_t, const uint8_t*, int64_t, const uint8_t*, int64_t);
int32_t size(void) { return (int32_t)sizeof(tcusim_rule); }
void tile(const tcusim_rule* rule, int32_t m, int32_t n, int32_t k, void* d, const void* a,
          const void* b, const void* c, const uint8_t* a_scales, const uint8_t* b_scales,
          tcusim_number* scratch) {
    tcusim_rule_tile(rule, m, n, k, d, a, b, c, a_scales, b_scales, scratch);
}
uint64_t dot(const tcusim_rule* rule, int32_t k, const void* a, int64_t a_stride, const void* b,
             int64_t b_stride, uint64_t c, const uint8_t* a_scales, int64_t a_scale_stride,
             const uint8_t* b_scales, int64_t b_scale_stride) {
    return tcusim_rule_dot(rule, k, a, a_stride, b, b_stride, c, a_scales, a_scale_stride,
                           b_scales, b_scale_stride);
}
"""
WARNINGS: Final = (
    *("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-pedantic", "-Werror"),
    *("-I", str(HEADER.parent)),
)


@pytest.fixture(autouse=True)
def _numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NumPy have no part in C."""
    monkeypatch.setenv("TCUSIM_CORE", "numpy")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The header as C99, with every warning an error."""
    folder = tmp_path_factory.mktemp("rule")
    (folder / "rule.c").write_text(SOURCE)
    command = [*compiler_command(), "-x", "c", "-std=c99", "-O2", *WARNINGS, "-shared", "-fPIC"]
    subprocess.run([*command, "-o", "rule.so", "rule.c"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "rule.so"))
    library.dot.restype = ctypes.c_uint64
    return library


def by_c(compiled: Any, drawn: DrawnMma, *, as_values: bool) -> Values:
    """Return d of every tile, in the types of the simulator's arrays, or of memory."""
    rule, (tiles, m, k), n = drawn.rule, drawn.a.shape, drawn.b.shape[2]
    row = rule_row(rule, as_values=as_values)
    operands = [drawn.a, drawn.b, drawn.c]
    if not as_values:
        types = (rule.ab, rule.right, rule.acc)
        operands = [to_memory(x, format_of(t)) for x, t in zip(operands, types, strict=True)]
    d = np.empty_like(operands[2])
    scratch = np.empty((m + n) * k * 2, np.uint64)
    for tile in range(tiles):
        elements = [np.ascontiguousarray(x[tile]) for x in operands]
        scales = (
            [np.ascontiguousarray(x[tile]) for x in drawn.scales] if drawn.scales else [None] * 2
        )
        places = map(address, (d[tile], *elements, *scales, scratch))
        compiled.tile(ctypes.byref(row), m, n, k, *places)
    return d


def by_numpy(drawn: DrawnMma) -> Values:
    if drawn.scales is None:
        return mma_values(drawn.a, drawn.b, drawn.c, drawn.rule)
    kind = drawn.rule.scale_type
    left, right = (scales_of_bits(x, kind) for x in drawn.scales)
    return scaled_mma(drawn.a, drawn.b, drawn.c, (left, right), drawn.rule)


def check(compiled: Any, drawn: DrawnMma) -> None:
    expected = by_numpy(drawn)
    where = f"{drawn.rule}, {drawn.a.shape} by {drawn.b.shape}"
    assert same_bits(by_c(compiled, drawn, as_values=True), expected), where
    found = by_c(compiled, drawn, as_values=False)
    assert same_bits(found, to_memory(expected, format_of(drawn.rule.acc))), where


def test_rules_are_drawn_from_all_that_can_be_said() -> None:
    for kind, choices in PARTS.items():
        assert list(choices) == [one.name for one in fields(kind)], kind


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(i, marks=pytest.mark.full) for i in range(4, 40))]
)
def test_c_and_numpy_agree_on_drawn_rules(compiled: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(100):
        check(compiled, drawn_mma(rng, drawn_rule(rng, pick(rng, KINDS))))


def every_rule() -> list[Rule]:
    return [rule for arch in arches() for rule in (*arch.rows, *arch.scaled)]


def test_c_and_numpy_agree_on_every_rule_of_the_registry(compiled: Any) -> None:
    rng = np.random.default_rng(0)
    for rule in every_rule():
        for _ in range(3):
            check(compiled, drawn_mma(rng, rule))


def test_a_rule_says_whether_it_sums_in_a_chain() -> None:
    rng = np.random.default_rng(6)
    chains = 0
    for _ in range(300):
        rule = drawn_rule(rng, pick(rng, KINDS))
        if rule.block:
            continue
        drawn = drawn_mma(rng, rule)
        piece = int(rng.integers(1, 20))
        if not rule.is_chain(piece):
            continue
        chains += drawn.a.shape[2] > piece
        c = drawn.c
        for first in range(0, drawn.a.shape[2], piece):
            terms = slice(first, first + piece)
            c = mma_values(drawn.a[:, :, terms], drawn.b[:, terms], c, rule)
        assert same_bits(c, by_numpy(drawn)), rule
    assert chains > 30


def test_one_output_reads_elements_at_strides(compiled: Any) -> None:
    rng = np.random.default_rng(5)
    rule = Rule("f16", "f32", Fused(4, 23), "", "")
    drawn = drawn_mma(rng, rule)
    a, b, c, d = drawn.a[0], drawn.b[0], drawn.c[0], by_numpy(drawn)[0]
    row, k, n = rule_row(rule), a.shape[1], b.shape[1]
    assert row.a.bytes == row.b.bytes == 2
    for i, j in np.ndindex(d.shape):
        places = address(a[i]), ctypes.c_int64(1), address(b[:, j]), ctypes.c_int64(n)
        none = None, ctypes.c_int64(0), None, ctypes.c_int64(0)
        addend = ctypes.c_uint64(int(c.view(np.uint32)[i, j]))
        found = compiled.dot(ctypes.byref(row), k, *places, addend, *none)
        assert found == int(d.view(np.uint32)[i, j])


def test_the_struct_is_the_headers(compiled: Any) -> None:
    assert compiled.size() == ctypes.sizeof(RuleRow)
    text = HEADER.read_text()
    start = text.index("typedef struct tcusim_rule {")
    body = text[start : text.index("} tcusim_rule;")]
    places = [body.index(name) for name in (field[0] for field in RuleRow._fields_[3:])]
    assert len(places) == len(RuleRow._fields_) - 3


def constant(rule: Rule) -> str:
    return f"const tcusim_rule rule = {rule_row(rule).text()};"


def test_a_text_of_c_is_the_same_struct(tmp_path: Path) -> None:
    rows = [rule_row(rule) for rule in every_rule()]
    rules = ",\n".join(row.text() for row in rows)
    (tmp_path / "rules.c").write_text(
        f'#include "tcusim_rule.h"\nextern const tcusim_rule rules[];\n'
        f"const tcusim_rule rules[] = {{{rules}}};\n"
    )
    command = [*compiler_command(), "-x", "c", "-std=c99", *WARNINGS, "-shared", "-fPIC"]
    subprocess.run([*command, "-o", "rules.so", "rules.c"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "rules.so"))
    found = (RuleRow * len(rows)).in_dll(library, "rules")
    assert [bytes(one) for one in found] == [bytes(row) for row in rows]


def test_a_c_plus_plus_compiler_takes_the_header(tmp_path: Path) -> None:
    (tmp_path / "rule.cpp").write_text(SOURCE)
    command = [*compiler_command(), "-std=c++11", *WARNINGS, "-fsyntax-only", "rule.cpp"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.skipif(why_no_compiler() is not None, reason="there is no NVRTC")
@pytest.mark.parametrize("how", [Fused(8, 24), Sequential(), Exact()])
def test_nvrtc_compiles_the_rule_for_a_gpu(how: Any) -> None:
    text = (
        HEADER.read_text()
        + f"""
    extern "C" __global__ void each_lane(float* d, const short* a, const short* b) {{
        {constant(Rule("f16", "f32", how, "", ""))}
        d[threadIdx.x] = __uint_as_float((unsigned int)tcusim_rule_dot(
            &rule, 16, a + 16 * threadIdx.x, 1, b, 16, 0, 0, 0, 0, 0));
    }}
    """
    )
    assert compile_text("each_lane", text, 80)[:4] == b"\x7fELF"
