"""How much memory is free: asked of the system and of the container, before it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcusim.errors import InputError
from tcusim.judge.correctness import memory


def test_what_is_free_is_less_than_there_is() -> None:
    free = memory.free_bytes()
    assert free is not None
    assert 2**20 < free < 2**60


def test_a_container_may_have_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, taken = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(memory, "_CGROUP", (most, taken))
    most.write_text("5000\n")
    taken.write_text("1000\n")
    assert memory.free_bytes() == 4000
    taken.write_text("6000\n")
    assert memory.free_bytes() == 0
    most.write_text("max\n")
    assert (memory.free_bytes() or 0) > 2**20


def test_more_than_is_free_is_refused() -> None:
    free = memory.free_bytes()
    assert free is not None
    memory.require_bytes(free // 2, "the tile")
    with pytest.raises(InputError, match=r"the tile needs about .*iB of memory, and .*iB are"):
        memory.require_bytes(2 * free, "the tile")


@pytest.mark.parametrize(("count", "text"), [(7, "7 bytes"), (1536, "1.5 KiB"), (2**40, "1 TiB")])
def test_sizes_as_people_write_them(count: int, text: str) -> None:
    assert memory.size_text(count) == text
