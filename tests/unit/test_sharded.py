"""DTensors of one rank: refusals. test_distributed.py has those of several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tcusim.errors import InputError

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
placed: Any = pytest.importorskip("torch.distributed.tensor", reason="this torch has no DTensor")

import tcusim.torch as tct  # noqa: E402
from tcusim.torch.sharded import require_settled, with_whole  # noqa: E402


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a mesh of this process alone."""
    store: Path = tmp_path_factory.mktemp("store") / "file"
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=0, world_size=1)
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def dtensor(mesh: Any, placement: Any) -> Any:
    return placed.DTensor.from_local(torch.ones(4, 6), mesh, [placement])


def test_values_that_are_still_to_be_added_are_refused(mesh: Any) -> None:
    partial = dtensor(mesh, placed.Partial())
    with pytest.raises(InputError, match=r"input is a DTensor placed .*: its values are still to"):
        require_settled("input", partial)
    with pytest.raises(InputError, match="its values are still to be added by a collective"):
        tct.sum(partial, 1)
    require_settled("input", dtensor(mesh, placed.Shard(0)))


def test_axes_are_whole_where_they_are_asked_for(mesh: Any) -> None:
    rows = dtensor(mesh, placed.Shard(0))
    assert with_whole(rows, [1]) is rows
    assert with_whole(rows, [0]).placements == (placed.Shard(1),)
    both = with_whole(rows, [0, 1])
    assert both.placements == (placed.Replicate(),)
    assert torch.equal(both.to_local(), torch.ones(4, 6))
