"""What README.md says of recorded bits is what comes out when they are compared."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """Load docs/tools/tables.py, which belongs to no package."""
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    try:
        return importlib.import_module("tables")
    finally:
        del sys.path[0]


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


def test_citations_become_links(tables: ModuleType) -> None:
    linked = tables.linked
    assert linked("so says [PTX].", "api/core.md") == "so says [[PTX]](../references.md#PTX)."
    assert linked("[CPG sec. 10.24.1]") == "[[CPG sec. 10.24.1]](references.md#CPG)"
    for stays in ("`[KHATTAK25]`", "[H200](x.md)", "```\n[H200]\n```", "[U|1]", "[a page][H200]"):
        assert linked(stays) == stays


def test_formulas_equal_counts(tables: ModuleType) -> None:
    """The counts that the page shows are those of the formulas beside them."""
    for row in tables.segmented_algorithms():
        for shape in ("16x16x16", "32x8x16", "8x32x16"):
            steps, elements = tables.mma_steps(row.name, shape)
            if not row.uses_mma:
                assert steps == 0
                continue
            m, n, k = (int(size) for size in shape.split("x"))
            on_the_right = n > m or (n == m and row.kind == "reduction")
            m, n = (n, m) if on_the_right else (m, n)
            assert elements % k == 0
            assert steps == row.mma_steps(m, n, k, N=row.repeats), (row.name, shape)
