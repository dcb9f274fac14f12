"""tcusim.torch.repeated: the last part of a call is kept, by all that its result depends on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import tcusim
from tcusim.arrays.calls import noticed
from tcusim.torch import repeated
from tcusim.torch.repeated import found, hold, launched


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "_LAUNCHES", {})


def tensor(*shape: int, is_cuda: bool = True, dtype: str = "half") -> Any:
    return SimpleNamespace(
        shape=shape, dtype=dtype, get_device=lambda: 0, is_cuda=is_cuda, requires_grad=False
    )


def test_the_general_way_comes_first_and_its_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[str] = []

    def kernel(one: Any, axis: int) -> str:
        tcusim.sum(np.ones(4, np.float16))
        ways.append("general")
        return "general"

    def launch(one: Any) -> str | None:
        ways.append("launch")
        return None if one.stops else "launch"

    monkeypatch.setattr(repeated, "plain", lambda one: one)
    monkeypatch.setattr(repeated, "prepared_of", lambda ready, one: launch)
    x = tensor(2, 3)
    x.stops = False
    assert [launched(kernel, x, 1) for _ in range(3)] == ["general", "launch", "launch"]
    for other in (tensor(3, 2), tensor(2, 3, dtype="float")):
        assert launched(kernel, other, 1) == "general"
    assert launched(kernel, x, 0) == "general"
    x.stops = True
    assert launched(kernel, x, 1) == "general"
    assert ways[-2:] == ["launch", "general"]


def test_on_the_cpu_and_of_several_calls_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(x: Any) -> Any:
        return tcusim.sum(np.ones(4, np.float16))

    monkeypatch.setattr(repeated, "plain", lambda one: one)
    launched(one, tensor(4, is_cuda=False))
    launched(lambda x: (one(x), one(x)), tensor(4))
    # The simulator's calls have no such way.
    launched(one, tensor(4))
    assert not repeated._LAUNCHES


def test_as_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "_MOST", 3)
    way: Callable[..., Any] = lambda *arrays: arrays  # noqa: E731 - it has no other name
    keys = [(number, (), "half", 0) for number in range(5)]
    for key in keys:
        hold(key, way)
    hold("none", None)
    assert [found(key) is way for key in keys] == [False, False, True, True, True]


def test_calls_are_noticed_where_they_are_asked_for() -> None:
    x = np.ones(4, np.float16)
    with noticed() as seen:
        tcusim.sum(x)
        tcusim.cumsum(x)
    tcusim.sum(x)
    assert len(seen) == 2


def test_segments_keep_their_own_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[str] = []

    def kernel(one: Any, segments: Any, axis: int) -> None:
        tcusim.sum(np.ones(4, np.float16))
        ways.append("general")

    def launch(one: Any) -> str:
        ways.append("launch")
        return "launch"

    monkeypatch.setattr(repeated, "plain", lambda one: one)
    monkeypatch.setattr(repeated, "prepared_of", lambda ready, one: launch)
    one, other = tcusim.Segments([0, 4]), tcusim.Segments([0, 4])
    for segments in (one, one, other, None, one):
        launched(kernel, tensor(4), segments, 0)
    assert ways == ["general", "launch", "general", "general", "launch"]
    assert [len(kept) for kept in (one.launches, other.launches, repeated._LAUNCHES)] == [1, 1, 1]
