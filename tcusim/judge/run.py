"""Run cases: in this process, in processes of this machine, or by any other executor.

The outcomes are equal for every executor and any order of execution.
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias, TypeVar

from tcusim.errors import MOST_JOBS, Given, InputError, TcusimError, UnknownName, require_int
from tcusim.judge.journal import Journal
from tcusim.machine import Unit, register_unit, registered_units

CaseT = TypeVar("CaseT")
OutcomeT = TypeVar("OutcomeT")
# A number of processes, None for one a processor; or an executor, such as that of a Dask client.
Jobs: TypeAlias = int | Executor | None
# Called with the part that is done and the whole.
Progress: TypeAlias = Callable[[int, int], object]
_Batch: TypeAlias = tuple[int, ...]

# The whole of a progress that is a share.
WHOLE: Final = 1000
# Work of fewer seconds is not worth another process, which takes one to begin.
_WORTH_SECONDS: Final = 6.0
# Cases that share programs, in one batch.
_TOGETHER: Final = 8
# Batches that an executor has at a time; more than the workers of most clusters.
_AHEAD: Final = 1000


def run_cases(
    run: Callable[[CaseT], OutcomeT],
    cases: Sequence[CaseT],
    executor: Executor | None = None,
    *,
    seconds: Callable[[CaseT], float] | None = None,
    alike: Callable[[CaseT], Hashable] | None = None,
    journal: Journal[OutcomeT] | None = None,
    progress: Progress | None = None,
) -> list[OutcomeT]:
    """Return the outcome of each case, in the order of the cases.

    A case that names an algorithm unknown to another process is run in this one. When the caller
    stops, as by Ctrl-C, no further case begins. `executor_of` ends its own processes at once; other
    executors finish the cases that have begun.

    Parameters
    ----------
    run : callable
        Returns the outcome of a case. An executor has to pickle it, and the cases.
    cases : sequence
        Any values.
    executor : Executor, optional
        See `executor_of`; by default this process runs the cases, in their order.
    seconds : callable, optional
        Returns the estimated seconds of a case: the longest begin first, and brief work is done in
        this process.
    alike : callable, optional
        Returns a key. Cases of one key share cached programs, and run in batches.
    journal : Journal, optional
        Outcomes known before, by the indices of their cases; others are appended to it.
    progress : callable, optional
        Called before the first case and after each batch with the number of cases; with `seconds`,
        with thousandths of their sum.

    Raises
    ------
    TcusimError
        If a process ends before its work is done, or has another version of tcusim.
    """
    found = {} if journal is None else dict(journal.done)
    costs = [1.0 if seconds is None else seconds(case) for case in cases]
    whole = len(cases) if seconds is None else WHOLE
    scale = whole / (sum(costs) or 1.0)
    left = [number for number in range(len(cases)) if number not in found]
    if seconds is not None and sum(costs) < _WORTH_SECONDS:
        executor = None
    if seconds is not None and executor is not None:
        left.sort(key=lambda number: -costs[number])
    batches = _batches(left, None if alike is None else lambda number: alike(cases[number]))
    done = sum(costs[number] for number in found)
    if progress is not None:
        progress(round(done * scale), whole)
    with closing(_outcomes(run, cases, batches, executor)) as outcomes:
        for batch, several in outcomes:
            numbered = list(zip(batch, several, strict=True))
            found.update(numbered)
            if journal is not None:
                journal.add(numbered)
            done += sum(costs[number] for number in batch)
            if progress is not None:
                progress(round(done * scale), whole)
    return [found[number] for number in range(len(cases))]


def part_of(progress: Progress | None, first: float, last: float) -> Progress | None:
    """Return the progress of a part of some work, from one share of the whole to another."""
    if progress is None:
        return None
    return lambda done, whole: progress(
        round(WHOLE * (first + (last - first) * done / whole)), WHOLE
    )


def _batches(numbers: list[int], key: Callable[[int], Hashable] | None) -> list[_Batch]:
    """Return the indices of cases in batches: alone, or several of one key."""
    if key is None:
        return [(number,) for number in numbers]
    groups: dict[Hashable, list[int]] = {}
    for number in numbers:
        groups.setdefault(key(number), []).append(number)
    return [
        tuple(group[first : first + _TOGETHER])
        for group in groups.values()
        for first in range(0, len(group), _TOGETHER)
    ]


def _outcomes(
    run: Callable[[CaseT], OutcomeT],
    cases: Sequence[CaseT],
    batches: list[_Batch],
    executor: Executor | None,
) -> Generator[tuple[_Batch, list[OutcomeT]], None, None]:
    """Yield each batch with its outcomes: in order, or by an executor as they come."""
    if executor is None or len(batches) == 1:
        for batch in batches:
            yield batch, [run(cases[number]) for number in batch]
        return
    finished: SimpleQueue[Future[list[OutcomeT]]] = SimpleQueue()
    waiting: dict[Future[list[OutcomeT]], _Batch] = {}
    elsewhere = partial(_run_batch, run, _version(), registered_units())
    left = iter(batches)

    def submit(count: int) -> None:
        for batch in itertools.islice(left, count):
            future = executor.submit(elsewhere, [cases[number] for number in batch])
            waiting[future] = batch
            future.add_done_callback(finished.put)

    try:
        submit(_AHEAD)
        while waiting:
            future = finished.get()
            batch = waiting.pop(future)
            submit(1)
            try:
                outcomes = future.result()
            except UnknownName:
                outcomes = [run(cases[number]) for number in batch]
            yield batch, outcomes
    except BrokenExecutor as error:
        raise TcusimError(
            "a process ended before its work was done: killed, perhaps for its memory, or never "
            "begun. A script uses several processes below `if __name__ == '__main__':`, or one "
            "with jobs=1. Rows that are in a file are good."
        ) from error
    finally:
        # Futures of processes that end must not be cancelled: Python sets their exceptions.
        for future in waiting if not isinstance(executor, _Processes) else ():
            future.cancel()


def _run_batch(
    run: Callable[[CaseT], OutcomeT], version: str, units: tuple[Unit, ...], cases: list[CaseT]
) -> list[OutcomeT]:
    """Return the outcomes of cases in another process, which may not know the units of files."""
    if version != _version():
        raise InputError(
            f"a worker has tcusim {_version()}, and here is {version}; results are equal only if "
            f"all have the same"
        )
    known = registered_units()
    for unit in units:
        if unit not in known:
            register_unit(unit)
    return [run(case) for case in cases]


def _version() -> str:
    return str(importlib.import_module("tcusim").__version__)


# --- Executors --------------------------------------------------------------------------------


@contextmanager
def executor_of(jobs: Jobs) -> Iterator[Executor | None]:
    """Yield an executor: a given one, new processes, or None for this process alone.

    Raises
    ------
    InputError
        If `jobs` is neither an executor nor an integer from 1 to `MOST_JOBS`.
    """
    if isinstance(jobs, Executor):
        yield jobs
        return
    if jobs is not None:
        require_int(Given("jobs"), jobs, 1, MOST_JOBS)
    count = jobs or processors()
    if count == 1:
        yield None
        return
    with _Processes(count) as pool:
        yield pool


class _Processes(ProcessPoolExecutor):
    """Processes that end at once when the context ends by an exception, or this process ends."""

    def __init__(self, count: int) -> None:
        # A forked process could not use CUDA.
        context = get_context("spawn")
        self._theirs, self._ours = context.Pipe(duplex=False)
        super().__init__(count, context, _watch, (self._theirs,))

    def submit(self, /, *args: Any, **more: Any) -> Future[Any]:
        # The first call starts the processes. They inherit the mask, so that Ctrl-C leaves no
        # traceback of imports, until `_watch` ignores it.
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(*args, **more)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*args, **more)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        if kind is not None:
            self._ours.close()
        super().__exit__(kind, *details)
        self._ours.close()
        self._theirs.close()


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _watch(parent: Any) -> None:
    """Leave Ctrl-C to the process that a user sees; end when that closes its end of a pipe.

    parent: our end, of a type of each system.
    """

    def wait() -> None:
        # The parent never writes: this returns when it closes the pipe or ends. Windows raises.
        with suppress(OSError):
            parent.poll(None)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=wait, daemon=True).start()
