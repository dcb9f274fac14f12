"""Evaluate parts of a grid in other processes: of this machine, or of a Dask cluster.

Whoever evaluates, and in whatever order, a part has the same rows.
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from multiprocessing import get_context
from typing import Any, Final, TypeAlias

import tcusim
from tcusim.errors import BackendUnavailable, InputError, TcusimError
from tcusim.judge.explore.axes import Point
from tcusim.judge.explore.row import Row

__all__ = ["Part", "Work", "in_dask", "in_processes", "processors"]

# Points of a grid with their numbers, and what evaluates them.
Part: TypeAlias = tuple[tuple[int, Point], ...]
Work: TypeAlias = Callable[[Part], list[Row]]

# Parts that each process has been given at a time: one that it works on, and others to come.
_AHEAD: Final = 3


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_processes(work: Work, parts: Iterable[Part], jobs: int) -> Iterator[tuple[Part, list[Row]]]:
    """Yield each part with its rows, as they come; in this process if there is to be one.

    When the caller stops, as by Ctrl-C, what has begun is finished and yielded no more, and no
    process is left.
    """
    if jobs == 1:
        for part in parts:
            yield part, work(part)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_leave_ctrl_c) as pool:
        try:
            yield from _as_they_come(lambda part: pool.submit(work, part), parts, _AHEAD * jobs)
        except BrokenExecutor as error:
            raise TcusimError(
                "a process of the exploration ended before its work was done: killed, perhaps "
                "for its memory, or never begun. A script calls tcusim.explore below "
                "`if __name__ == '__main__':`, or with jobs=1. Rows that are in a file are good."
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _leave_ctrl_c() -> None:
    """Let the process that a user sees decide what Ctrl-C means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _as_they_come(
    submit: Callable[[Part], Future[list[Row]]], parts: Iterable[Part], most: int
) -> Iterator[tuple[Part, list[Row]]]:
    """Yield each part with its rows; at most so many are waited for, whatever there are."""
    left = iter(parts)
    pending = {submit(part): part for part in itertools.islice(left, most)}
    while pending:
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            part = pending.pop(future)
            pending |= {submit(one): one for one in itertools.islice(left, 1)}
            yield part, future.result()


def in_dask(work: Work, parts: Iterable[Part], scheduler: str) -> Iterator[tuple[Part, list[Row]]]:
    """Yield each part with its rows, from the workers of a Dask cluster.

    Raises
    ------
    BackendUnavailable
        If `distributed` is not installed, or nothing answers at the address.
    InputError
        If the cluster has no workers, or their tcusim is another version.
    """
    try:
        # distributed has no types.
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise BackendUnavailable(
            f"exploring on a Dask cluster needs distributed, which cannot be imported ({error}). "
            f"Install it with: pip install 'tcusim[dask]'"
        ) from error
    try:
        client = distributed.Client(scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise BackendUnavailable(
            f"no Dask scheduler answers at {scheduler!r}: {str(error) or type(error).__name__}. "
            f"Start one with: dask scheduler"
        ) from error
    with client:
        workers = _checked(client, scheduler)
        left = iter(parts)

        def submit(part: Part) -> Any:
            return client.submit(_numbered, work, part, pure=False)

        first = [submit(one) for one in itertools.islice(left, _AHEAD * workers)]
        pending = distributed.as_completed(first)
        for future in pending:
            for one in itertools.islice(left, 1):
                pending.add(submit(one))
            yield future.result()


def _numbered(work: Work, part: Part) -> tuple[Part, list[Row]]:
    return part, work(part)


def _checked(client: Any, scheduler: str) -> int:
    """Return how many workers there are; each must have this tcusim."""
    try:
        found: dict[str, str] = client.run(_version)
    except ImportError as error:
        raise InputError(
            f"a worker of {scheduler} cannot import tcusim ({error}); install tcusim "
            f"{tcusim.__version__} there"
        ) from error
    if not found:
        raise InputError(f"the scheduler at {scheduler} has no workers. Start some: dask worker")
    others = {worker: version for worker, version in found.items() if version != tcusim.__version__}
    if others:
        worker, version = next(iter(others.items()))
        raise InputError(
            f"the worker {worker} has tcusim {version}, and here is {tcusim.__version__}; results "
            f"are equal only if all have the same"
        )
    return len(found)


def _version() -> str:
    return tcusim.__version__
