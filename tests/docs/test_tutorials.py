"""Each tutorial runs as a plain script, without a warning, and ends in an assertion."""

from __future__ import annotations

import ast
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import tcusim
from tcusim.program.grammar import walk

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))


def test_there_are_tutorials() -> None:
    assert len(TUTORIALS) >= 3


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_it_runs_without_a_warning(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process: most of the time of a new one is its start.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(path), run_name="__main__")
    assert not list(tmp_path.iterdir()), "a tutorial leaves no files behind"


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_it_asserts_and_imports_little(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.Assert) for last in tree.body[-3:] for node in ast.walk(last))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported - set(sys.stdlib_module_names) == {"numpy", "tcusim"}


@pytest.mark.parametrize(
    ("algorithm", "options", "steps"),
    [
        # What the prose of the tutorials says about the listings above it.
        ("reduction_16", {}, {"3": "Load", "4": "Mma", "5": "Store", "6": "Sync", "7": "Copy"}),
        ("scan_256", {}, {"6": "Mma", "9": "Mma", "10": "Store", "12": "Copy", "14": "Load"}),
        ("scan_256", {}, {"15": "Mma"}),
        (
            "reduction_256n_block",
            {"warps": 4, "segment_size": 4096},
            {"3.1": "Load", "14": "Copy", "15": "Sync", "16": "When"},
        ),
    ],
)
def test_the_prose_names_the_right_steps(
    algorithm: str, options: dict[str, Any], steps: dict[str, str]
) -> None:
    program = tcusim.build(algorithm, **options)
    found = {path: type(step).__name__ for path, step in walk(program.steps)}
    assert {path: found[path] for path in steps} == steps
