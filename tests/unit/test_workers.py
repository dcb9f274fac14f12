"""Processes and clusters: every part comes once, and who stops leaves nobody behind."""

from __future__ import annotations

import multiprocessing
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import tcusim
from tcusim.errors import BackendUnavailable, InputError, TcusimError
from tcusim.sweep.axes import Point
from tcusim.sweep.row import Row
from tcusim.sweep.workers import Part, in_dask, in_processes, processors

POINT = Point(4, 4, 4, "f16", "f32", 4, 10, "rz", "rz")
PARTS: list[Part] = [((number, POINT),) for number in range(9)]


def work(part: Part) -> list[Row]:
    return [Row(point, area=float(number)) for number, point in part]


def die(part: Part) -> list[Row]:
    os._exit(3)


def test_there_is_a_processor() -> None:
    assert processors() >= 1


def test_this_process_works_in_order() -> None:
    assert list(in_processes(work, PARTS, 1)) == [(part, work(part)) for part in PARTS]


def test_a_process_that_dies_is_told() -> None:
    with pytest.raises(TcusimError, match="a process of the exploration ended before its work was"):
        list(in_processes(die, PARTS, 2))
    assert not multiprocessing.active_children()


class Cluster:
    """Stands in for a client of Dask: it works at once, in this process."""

    versions: dict[str, str]

    def __init__(self, address: str, timeout: str) -> None:
        if address == "tcp://nobody:1":
            raise OSError("timed out")

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def run(self, function: Any) -> dict[str, str]:
        return self.versions

    def submit(self, function: Any, *arguments: Any, pure: bool) -> Any:
        assert not pure
        return SimpleNamespace(result=lambda: function(*arguments))


class Pending(list[Any]):
    """Futures, the newest first, to which more are added."""

    def add(self, one: Any) -> None:
        self.append(one)

    def __iter__(self) -> Any:
        while self:
            yield self.pop()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> type[Cluster]:
    library: Any = SimpleNamespace(Client=Cluster, as_completed=Pending)
    monkeypatch.setitem(sys.modules, "distributed", library)
    monkeypatch.setattr(Cluster, "versions", {"one": tcusim.__version__}, raising=False)
    return Cluster


def test_a_cluster_does_every_part_once(cluster: type[Cluster]) -> None:
    found = list(in_dask(work, PARTS, "tcp://here:1"))
    assert sorted(found, key=lambda one: one[0][0][0]) == [(part, work(part)) for part in PARTS]


def test_clusters_that_cannot_serve(
    cluster: type[Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BackendUnavailable, match="no Dask scheduler answers at 'tcp://nobody:1'"):
        list(in_dask(work, PARTS, "tcp://nobody:1"))
    monkeypatch.setattr(cluster, "versions", {})
    with pytest.raises(InputError, match=r"has no workers\. Start some: dask worker"):
        list(in_dask(work, PARTS, "tcp://here:1"))
    monkeypatch.setattr(cluster, "versions", {"tcp://w:2": "0.0"})
    with pytest.raises(InputError, match=r"the worker tcp://w:2 has tcusim 0.0, and here is"):
        list(in_dask(work, PARTS, "tcp://here:1"))


def test_a_cluster_of_processes_gives_the_same() -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    from tcusim.sweep.explore import explore

    grid = {"tile": "4x4x4,8x8x4", "fraction_bits": "12:20:4", "fused_length": 4}
    few: Any = {"algorithms": ["reduction_kn", "scan_kn"], "length": 64}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        far = explore(grid, scheduler=cluster.scheduler_address, **few)
    assert far == explore(grid, jobs=1, **few)
