"""The examples of docstrings have run, and show the real output."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "tcusim", *sorted((ROOT / "backends").glob("tcusim_*")))
# Libraries that may be missing: the examples of their modules are skipped then.
OPTIONAL = ("dask", "jax", "torch", "triton", "cupy", "pycuda")


def modules() -> list[str]:
    """Return the names of the modules that have examples."""
    found = []
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE):
                parts = path.relative_to(package.parent).with_suffix("").parts
                found.append(".".join(part for part in parts if part != "__init__"))
    return found


def test_there_are_examples() -> None:
    assert len(modules()) > 20


@pytest.mark.parametrize("name", modules())
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if not any(library in str(error) for library in OPTIONAL):
            raise
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
    assert runner.tries
