"""tcusim.judge.cost.model: each part follows its figure, and how parts make a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tcusim
from tcusim.judge.cost import model
from tcusim.judge.cost.fitted import FITTED
from tcusim.judge.cost.predicted import cost
from tcusim.machine import Unit, unit_of

H200 = unit_of("h200")


def changed(name: str, factor: float) -> Unit:
    figure = getattr(H200, name)
    more: dict[str, Any] = {name: replace(figure, value=figure.value * factor)}
    return replace(H200, **more)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        # Queues before memory grow with its use.
        ("memory_bandwidth", {"memory", "latency"}),
        ("l2_bandwidth", {"L2"}),
        ("launch_seconds", {"launch"}),
        ("memory_latency", {"latency"}),
    ],
)
def test_a_part_follows_its_figure(name: str, parts: set[str]) -> None:
    plan = tcusim.plan("segmented_sum", length=2**28, segments=1024)
    before, after = cost(plan, H200), cost(plan, changed(name, 1.2))
    differing = {one for one in before.parts if before.parts[one] != after.parts[one]}
    assert differing == parts
    for part in parts:
        seconds, less = after.parts[part], before.parts[part]
        assert seconds is not None
        assert less is not None
        assert (seconds > less) == (name in ("launch_seconds", "memory_latency"))


def test_the_model_joins_by_its_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an exponent of 1 the parts are added, but for the faster of memory and cache."""
    plan = tcusim.plan("segmented_sum", length=2**28, segments=1024)
    found = cost(plan, fitted=replace(FITTED, sharpness=1.0))
    parts = {name: value or 0.0 for name, value in found.parts.items()}
    assert found.seconds == pytest.approx(sum(parts.values()) - min(parts["memory"], parts["L2"]))
    assert list(parts) == list(model.RESOURCES)
