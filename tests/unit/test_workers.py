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
from tcusim.judge.explore.axes import Point
from tcusim.judge.explore.row import Row
from tcusim.judge.explore.workers import Part, in_dask, in_processes, processors

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

    def __init__(self, address: str, timeout: str) -> None:
        if address == "tcp://nobody:1":
            raise OSError("timed out")
        self.versions = {
            "tcp://empty:1": {},
            "tcp://old:1": {"tcp://w:2": "0.0"},
        }.get(address, {"one": tcusim.__version__})

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
def dask(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = SimpleNamespace(Client=Cluster, as_completed=Pending)
    monkeypatch.setitem(sys.modules, "distributed", library)


@pytest.mark.usefixtures("dask")
def test_a_cluster_does_every_part_once() -> None:
    found = list(in_dask(work, PARTS, "tcp://here:1"))
    assert sorted(found, key=lambda one: one[0][0][0]) == [(part, work(part)) for part in PARTS]


@pytest.mark.usefixtures("dask")
@pytest.mark.parametrize(
    ("address", "error", "text"),
    [
        ("tcp://nobody:1", BackendUnavailable, "no Dask scheduler answers at 'tcp://nobody:1'"),
        ("tcp://empty:1", InputError, r"has no workers\. Start some: dask worker"),
        ("tcp://old:1", InputError, "the worker tcp://w:2 has tcusim 0.0, and here is"),
    ],
)
def test_clusters_that_cannot_serve(address: str, error: type[TcusimError], text: str) -> None:
    with pytest.raises(error, match=text):
        list(in_dask(work, PARTS, address))


def test_a_cluster_of_processes_gives_the_same() -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    from tcusim.judge.explore.grid import explore

    grid = {"tile": "4x4x4,8x8x4", "fraction_bits": "12:20:4", "fused_length": 4}
    few: Any = {"algorithms": ["reduction_kn", "scan_kn"], "length": 64}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        far = explore(grid, scheduler=cluster.scheduler_address, **few)
    assert far == explore(grid, jobs=1, **few)
