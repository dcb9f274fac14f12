"""The table of recorded bits in README.md is the one that comes out when they are compared."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """Load docs/tools/tables.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("_tables", ROOT / "docs" / "tools" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_recorded_bit_differs(tables: ModuleType) -> None:
    rows = tables.evidence()
    assert len(rows) > 30
    assert {row[:2]: row[3] for row in rows if row[3]} == {}


def test_the_table_in_the_readme(tables: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert tables.evidence_table() in readme


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
