"""What tests of several modules are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory with an input in it."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", (np.arange(256) % 7).astype(np.float16))
    return tmp_path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have compiled kernels kept in an empty folder; return it."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(folder))
    return folder
