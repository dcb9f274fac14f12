"""On a GPU: the blocks of pages and lessons that need one run as they stand there."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from on_gpu import arch, imported
from page_blocks import blocks

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.gpu(min_sm=90)


@pytest.fixture(autouse=True)
def _ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the libraries, the arithmetic that pages compare with, and an empty folder."""
    imported("cupy")
    if not imported("torch").cuda.is_available():
        pytest.skip("this torch has no CUDA")
    if arch() != "hopper":
        pytest.skip("the pages compare with the bits of Hopper")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs" / "tools"), *sys.path])


@pytest.mark.parametrize("name", ["determinism", "gpu"])
def test_a_page(name: str) -> None:
    """All its Python runs, in its order."""
    page = ROOT / "docs" / f"{name}.md"
    names: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for block in blocks(page.read_text(encoding="utf-8"), page.name):
        text = block.text
        if block.language == "pycon":
            lines = [line[4:] for line in text.splitlines() if line.startswith((">>> ", "... "))]
            text = "\n".join(lines)
        if block.language in ("py", "python", "pycon"):
            exec(compile("\n" * block.line + text, str(page), "exec"), names)
            ran += block.needs_gpu
    assert ran


@pytest.mark.parametrize("name", ["10_gemm_and_gemv", "11_from_step_to_cuda", "12_using_it"])
def test_a_lesson(name: str) -> None:
    """The lines for a GPU are in its prose."""
    path = ROOT / "tutorials" / f"{name}.py"
    names = runpy.run_path(str(path))
    prose = "\n".join(
        line[1:].removeprefix(" ")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    )
    found = [block for block in blocks(prose, path.name) if block.needs_gpu]
    assert found
    for block in found:
        exec(compile(block.text, str(path), "exec"), names)
