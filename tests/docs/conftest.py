"""What a page registers is gone when its test ends: pages show how to add a shape or a backend."""

from __future__ import annotations

import sys

import pytest

REGISTRIES = {
    "tcusim.algorithms.registry": ("_REGISTRY",),
    "tcusim.backends": ("_backends", "_owners"),
    "tcusim.machine.registry": ("_units", "_names"),
    "tcusim.machine.shapes": ("_shapes", "_owners"),
}


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in REGISTRIES.items():
        for name in names:
            monkeypatch.setattr(sys.modules[module], name, dict(getattr(sys.modules[module], name)))
