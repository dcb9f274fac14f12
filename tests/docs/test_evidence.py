"""README.md's claims on recorded bits agree with a comparison."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tcusim.machine import Fused, format_of, mma_values, rule_for

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> ModuleType:
    """Load a module of docs/tools; they belong to no package."""
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return tool("tables")


def test_no_recorded_bit_differs(tables: ModuleType) -> None:
    rows = tables.evidence()
    assert len(rows) > 30
    assert {row[:2]: row[3] for row in rows if row[3]} == {}


def test_the_sentence_in_the_readme(tables: ModuleType) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    rows = tables.evidence()
    gpus = list(dict.fromkeys(gpu.split(",")[0] for gpu, *_ in rows))
    compared, differ = sum(row[2] for row in rows), sum(row[3] for row in rows)
    assert f"compare {compared:,} recorded outputs of {len(gpus)} GPUs" in readme
    assert f"**{differ} differ**" in readme
    (named,) = re.findall(r"GPUs \(([^)]*)\): \*\*", readme)
    assert set(named.split(", ")) == set(gpus)


def test_how_the_recorded_outputs_are_shared(tables: ModuleType) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    by_gpu: dict[str, int] = {}
    for gpu, _, count, *_ in tables.evidence():
        name = gpu.split(",")[0]
        by_gpu[name] = by_gpu.get(name, 0) + count
    most = by_gpu.pop("H200")
    least, other = min(by_gpu.values()), max(by_gpu.values())
    assert f"{most:,} are the H200's; each other GPU has {least} to {other}." in readme


def test_no_output_of_mmaemu_differs() -> None:
    rows = json.loads((ROOT / "docs" / "data" / "mmaemu.json").read_text(encoding="utf-8"))["rows"]
    assert {(row["preset"], row["ab"]) for row in rows if row["differ"]} == set()
    total = sum(row["outputs"] for row in rows)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert total > 10**7
    assert f"{total:,} outputs beside another emulator, of which none differs" in readme


@pytest.mark.parametrize("preset", ["ada", "hopper"])
def test_mmaemu_where_it_is_installed(preset: str) -> None:
    pytest.importorskip("mmaemu", exc_type=ImportError)
    compare = tool("compare_mmaemu")
    for kind in compare.KINDS:
        assert compare.compare(preset, "e4m3", kind, 64, side=40) == (1600, 0)


# How many operand types an architecture has beside MMA-Sim, without its integers.
MMASIM_ROWS = {"hopper": 13, "blackwell": 13, "ampere": 5}


def test_what_differs_from_mma_sim_has_the_two_causes_that_the_page_names() -> None:
    rows = json.loads((ROOT / "docs" / "data" / "mmasim.json").read_text(encoding="utf-8"))["rows"]
    assert sum(row["not_explained"] for row in rows) == 0
    for row in rows:
        assert row["differ"] <= row["outputs"] / 5000, row
        if row["differ"]:
            assert (row["ab"], row["acc"]) in {("tf32", "f32"), ("bf16", "f32"), ("e4m3", "f32")}
    for arch, count in MMASIM_ROWS.items():
        assert len({(r["family"], r["ab"], r["acc"]) for r in rows if r["arch"] == arch}) == count


@pytest.mark.parametrize(
    ("arch", "family", "ab", "acc", "bits", "kind", "split"),
    [
        ("volta", "mma.sync", "f16", "f32", 23, "f32", False),
        ("ampere", "mma.sync", "bf16", "f32", 24, "f32", True),
        ("hopper", "mma.sync", "f16", "f16", 25, "f16", False),
        ("hopper", "wgmma", "e4m3", "f32", 13, "f32_e8m13", False),
        ("blackwell", "tcgen05", "tf32", "f32", 25, "f32", False),
    ],
)
def test_mma_sims_step_without_the_two_causes_is_the_same(
    arch: str, family: str, ab: str, acc: str, bits: int, kind: str, split: bool
) -> None:
    """The step that the tool has of MMA-Sim, with the constants of its objects."""
    compare = tool("compare_mmasim")
    rule = rule_for(arch, ab, acc, family)
    assert isinstance(rule.how, Fused)
    tile = 16, 8, rule.how.length * (2 if split else 1)
    model = SimpleNamespace(n_accum_fractional_bits=bits, output_type=kind, is_split_k=split)
    model.m, model.n, model.k = tile
    one = compare.Instruction(family, arch, "", model, rule)
    rng = np.random.default_rng(3)
    differ = 0
    for regime in compare._REGIMES:
        a, b, c = compare.operands(rng, rule, regime, 40, tile)
        operand, addend = format_of(ab).dtype, format_of(acc).dtype
        ours = mma_values(a.astype(operand), b.astype(operand), c.astype(addend), rule)
        theirs = compare.by_arrays(one, a, b, c, edges=True)
        assert not compare.differing(ours, theirs).any(), regime
        differ += int(compare.differing(ours, compare.by_arrays(one, a, b, c)).sum())
    assert differ < 100


def test_citations_become_links(tables: ModuleType) -> None:
    linked = tables.linked
    assert linked("so says [PTX].", "api/core.md") == "so says [[PTX]](../references.md#PTX)."
    shown = linked(
        "<figure>\n<p>Source: [PTX sec. 9]; documented.</p>\n</figure>\n\n[PTX]", "a/b.md"
    )
    html, _, prose = shown.partition("\n\n")
    assert '<a href="../references.html#PTX">[PTX sec. 9]</a>; documented.' in html
    assert "](" not in html
    assert prose == "[[PTX]](../references.md#PTX)"
    assert linked("[CPG sec. 10.24.1]") == "[[CPG sec. 10.24.1]](references.md#CPG)"
    for stays in ("`[KHATTAK25]`", "[H200](x.md)", "```\n[H200]\n```", "[U|1]", "[a page][H200]"):
        assert linked(stays) == stays


def test_formulas_equal_counts(tables: ModuleType) -> None:
    """The counts that the page shows are those of the formulas beside them."""
    for row in tables.segmented_algorithms():
        for shape in ("16x16x16", "32x8x16", "8x32x16"):
            steps, elements = tables.mma_steps(row.name, shape)
            if not row.formula:
                assert steps > 0
                continue
            m, n, k = (int(size) for size in shape.split("x"))
            on_the_right = n > m or (n == m and row.kind == "reduction")
            m, n = (n, m) if on_the_right else (m, n)
            assert elements % k == 0
            assert steps == row.mma_steps(m, n, k, N=row.repeats), (row.name, shape)


def test_the_pages_name_every_gpu_that_ran_the_kernels() -> None:
    runs = json.loads((ROOT / "docs/data/agreement_backends.json").read_text())["runs"]
    assert {run["backend"] for run in runs} == {"cuda", "cupy", "pycuda"}
    assert all(run["differ"] == run["failed"] == 0 < run["outputs"] for run in runs)
    names = sorted({run["gpu"].split()[1] for run in runs})
    for page in ("README.md", "docs/gpu.md", "docs/index.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert f"the {' and the '.join(names)}" in text, page
