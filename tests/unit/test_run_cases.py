"""Cases run in processes and on clusters: each has its outcome, and no process is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import tcusim
from tcusim.errors import InputError, TcusimError, UnknownName
from tcusim.judge.run import executor_of, part_of, run_cases

CASES = list(range(9))


def square(case: int) -> int:
    return case * case


def die(case: int) -> int:
    os._exit(3)


def is_masked(case: int) -> bool:
    """Return whether Ctrl-C is masked in this process, as it was when it began."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def known_here(process: int, case: int) -> int:
    if os.getpid() != process:
        raise UnknownName("unknown algorithm")
    return case


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="this system has no masks")
def test_ctrl_c_does_not_end_a_process_that_begins() -> None:
    with executor_of(2) as executor:
        assert run_cases(is_masked, CASES, executor) == [True] * len(CASES)
        assert not is_masked(0)


def test_outcomes_are_in_the_order_of_the_cases() -> None:
    seen: list[tuple[int, int]] = []
    squares = [case * case for case in CASES]
    for jobs in (1, 2, None):
        with executor_of(jobs) as executor:
            assert run_cases(square, CASES, executor) == squares
    with ThreadPoolExecutor(2) as pool, executor_of(pool) as executor:
        assert executor is pool
        found = run_cases(
            square,
            CASES,
            executor,
            alike=lambda case: case % 2,
            progress=lambda *now: seen.append(now),
        )
    assert found == squares
    # Five even ones, and four odd ones.
    assert sorted(seen) in ([(0, 9), (4, 9), (9, 9)], [(0, 9), (5, 9), (9, 9)])


def test_the_longest_cases_begin_first_and_progress_is_in_seconds() -> None:
    begun: list[float] = []
    seen: list[tuple[int, int]] = []

    class Recorder(Executor):
        def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            begun.extend(args[0])
            future: Future[Any] = Future()
            future.set_result(function(*args))
            return future

    given: Any = {"seconds": float, "progress": lambda *now: seen.append(now)}
    assert run_cases(float, [1, 3, 6], Recorder(), **given) == [1, 3, 6]
    assert begun == [6, 3, 1]
    assert seen == [(0, 1000), (600, 1000), (900, 1000), (1000, 1000)]
    # Brief work begins in no other process.
    assert run_cases(float, [1, 3], Recorder(), **given) == [1, 3]
    assert begun == [6, 3, 1]


def test_parts_of_a_progress() -> None:
    seen: list[tuple[int, int]] = []
    part = part_of(part_of(lambda *now: seen.append(now), 0.5, 1.0), 0.0, 0.1)
    assert part is not None
    part(1, 2)
    assert seen == [(525, 1000)]
    assert part_of(None, 0.0, 1.0) is None


def test_cases_that_only_this_process_knows_run_in_it() -> None:
    with executor_of(2) as executor:
        assert run_cases(partial(known_here, os.getpid()), CASES, executor) == CASES


def test_a_process_that_dies_is_told() -> None:
    with (
        pytest.raises(TcusimError, match="a process ended before its work was done: killed"),
        executor_of(2) as executor,
    ):
        run_cases(die, CASES, executor)
    assert not multiprocessing.active_children()


def doze(case: int) -> int:
    time.sleep(60 * case)
    return case


def test_a_caller_that_stops_waits_for_no_case_and_leaves_nothing_behind() -> None:
    def stop(done: int, whole: int) -> None:
        if done:
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), executor_of(2) as executor:
        run_cases(doze, (1, 1, 0), executor, progress=stop, seconds=lambda case: 9.0 - case)
    assert time.monotonic() - start < 30
    assert not multiprocessing.active_children()


def test_workers_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(ThreadPoolExecutor):
        def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            with monkeypatch.context() as other:
                other.setattr(tcusim, "__version__", "0.0")
                future: Future[Any] = super().submit(function, *args)
                future.exception()
            return future

    with Old(1) as old, pytest.raises(InputError, match=r"a worker has tcusim 0\.0, and here is"):
        run_cases(square, CASES, old)


def test_a_cluster_of_processes_gives_the_same() -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    grid = {"tile": "4x4x4,8x8x4", "fraction_bits": "12:20:4", "fused_length": 4}
    few: Any = {"algorithms": ["reduction_kn", "scan_kn"], "length": 64}
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        far = tcusim.explore(grid, jobs=client.get_executor(pure=False), **few)
    assert far == tcusim.explore(grid, jobs=1, **few)
