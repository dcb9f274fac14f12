"""The demonstration: it runs, its picture is there, and a wrong result makes it fail."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tcusim

pytest.importorskip("matplotlib")
pytest.importorskip("rich")

SCRIPT = Path(__file__).parents[2] / "tutorials" / "demo" / "elevation.py"


def _imported() -> ModuleType:
    spec = importlib.util.spec_from_file_location("elevation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["elevation"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


demo = _imported()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_demo_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main() == 0
    shown, errors = capsys.readouterr()
    assert errors == ""
    assert "344x403 whole metres, 236 to 1076 m; int16 to f16, every number exact" in shown
    assert "FAILED" not in shown
    assert "of the running sums differ between Volta and Hopper" in shown
    assert demo.PICTURE.read_bytes().startswith(b"\x89PNG")
    assert demo.PICTURE.stat().st_size > 100_000


def test_a_wrong_sum_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = tcusim.segmented_sum

    def wrong(*arguments: Any, **keywords: Any) -> Any:
        return right(*arguments, **keywords) + np.float32(1)

    monkeypatch.setattr(tcusim, "segmented_sum", wrong)
    assert demo.main() == 1
    shown, errors = capsys.readouterr()
    assert "FAILED" in shown
    assert "error: row sums (16x16x16, hopper) is off by 1, more than 0 of" in errors


def test_architectures_that_do_not_differ_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = tcusim.segmented_cumsum

    def same(*arguments: Any, **keywords: Any) -> Any:
        own = {**keywords["options"], "arch": "hopper"}
        return right(*arguments, **{**keywords, "options": own})

    monkeypatch.setattr(tcusim, "segmented_cumsum", same)
    assert demo.main() == 1
    assert "Volta and Hopper should differ, and do not" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    Path("demo").write_text("a file is in the way")
    assert demo.main() == 1
    assert "error: cannot write demo/elevation.png" in capsys.readouterr().err
