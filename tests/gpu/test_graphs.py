"""On a GPU: calls and plans in CUDA graphs, beside other streams, and from several threads.

The bits are the simulator's for this GPU's architecture.
"""

from __future__ import annotations

import concurrent.futures
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from on_gpu import Library, arch, library_of, numbers, require_bits

pytestmark = pytest.mark.gpu(min_sm=70)

LENGTH = 300_001
# Segments of one size, of which a warp has several or many a warp; a whole array, of which blocks
# share status words that nobody clears between launches; and several launches with memory between.
CALLS: dict[str, Callable[..., Any]] = {
    "segmented_sum 16": lambda a, **o: tcusim.segmented_sum(a, 16, **asked(**o)),
    "segmented_cumsum 1000": lambda a, **o: tcusim.segmented_cumsum(a, 1000, **asked(**o)),
    "sum": lambda a, **o: tcusim.sum(a, **asked(**o)),
    "cumsum": lambda a, **o: tcusim.cumsum(a, **asked(**o)),
    "exact cumsum": lambda a, **o: tcusim.cumsum(a, **asked(bits="exact", **o)),
}


@pytest.fixture(
    params=[("cupy", "cupy"), ("torch", "cuda"), ("torch", "cupy")],
    ids="-".join,
)
def library(request: pytest.FixtureRequest) -> Library:
    return library_of(*request.param)


def data(seed: int) -> NDArray[np.float16]:
    return np.roll(numbers("float16", LENGTH), 7919 * seed)


def captured(library: Library, work: Callable[[], Any]) -> Callable[..., None]:
    """Return a function that replays captured work, after it was done once, on a side stream.

    Given more work, it does that on the same stream before it replays, and once more afterwards.
    """
    if library.name == "torch":
        torch = importlib.import_module("torch")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            work()

        def replay_of_torch(around: Callable[[], Any] = lambda: None) -> None:
            with torch.cuda.stream(side):
                around()
                graph.replay()
                around()
            side.synchronize()

        return replay_of_torch
    cupy = importlib.import_module("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        work()
        stream.synchronize()
        stream.begin_capture()
        work()
        graph = stream.end_capture()

    def replay_of_cupy(around: Callable[[], Any] = lambda: None) -> None:
        with stream:
            around()
            graph.launch(stream=stream)
            around()
        stream.synchronize()

    return replay_of_cupy


def overwrite(library: Library, a: Any, x: NDArray[Any]) -> None:
    """Write new numbers where the old ones are."""
    if library.name == "torch":
        a.copy_(library.there(x))
        importlib.import_module("torch").cuda.synchronize()
    else:
        a[:] = library.there(x)
        importlib.import_module("cupy").cuda.Device().synchronize()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_a_graph(library: Library, name: str) -> None:
    """It is replayed on new numbers in the same memory, as often as one likes."""
    call = CALLS[name]
    a = library.there(data(0))
    out = call(a, backend=library.backend)
    replay = captured(library, lambda: call(a, out=out, backend=library.backend))
    for seed in (1, 2, 3):
        overwrite(library, a, data(seed))
        replay()
        require_bits(library.back(out), call(data(seed), arch=arch()))


def test_twenty_calls_in_a_graph(library: Library) -> None:
    """One plan on several arrays: each call goes on from the status words that others left."""
    plan = tcusim.plan(
        "cumsum", length=LENGTH, dtype="float16", options={"backend": library.backend}
    )
    arrays = [library.there(data(0)) for _ in range(4)]
    outs = [plan(a) for a in arrays]

    def work() -> None:
        for _ in range(5):
            for a, out in zip(arrays, outs, strict=True):
                plan(a, out=out)

    replay = captured(library, work)
    for seed, a in enumerate(arrays):
        overwrite(library, a, data(seed))
    replay()
    for seed, out in enumerate(outs):
        require_bits(library.back(out), tcusim.cumsum(data(seed), options={"arch": arch()}))


@pytest.mark.parametrize("operation", ["sum", "cumsum"])
def test_a_graph_between_calls_on_its_stream(library: Library, operation: str) -> None:
    """One plan in both: each goes on from the status words that the other left."""
    plan = tcusim.plan(
        operation, length=LENGTH, dtype="float16", options={"backend": library.backend}
    )
    a, b = library.there(data(0)), library.there(data(1))
    out, other = plan(a), plan(b)
    replay = captured(library, lambda: plan(a, out=out))
    for seed in (2, 3, 4):
        overwrite(library, a, data(seed))
        overwrite(library, b, data(seed + 3))
        replay(lambda: plan(b, out=other))
        for result, used in ((out, seed), (other, seed + 3)):
            expected = getattr(tcusim, operation)(data(used), options={"arch": arch()})
            require_bits(library.back(result), expected)


def test_a_graph_beside_calls_on_another_stream(library: Library) -> None:
    """One plan in both: each stream has memory of its own between launches."""
    plan = tcusim.plan(
        "cumsum", length=LENGTH, dtype="float16", options={"backend": library.backend}
    )
    a, b = library.there(data(0)), library.there(data(1))
    out = plan(a)
    replay = captured(library, lambda: plan(a, out=out))
    expected = [tcusim.cumsum(data(seed), options={"arch": arch()}) for seed in (0, 1)]
    for _ in range(20):
        other = plan(b)
        replay()
        require_bits(library.back(out), expected[0])
        require_bits(library.back(other), expected[1])


def test_calls_from_several_threads(library: Library) -> None:
    """Each has data of its own, and all share the current stream of their library's threads."""
    expected = {
        (name, seed): call(data(seed), arch=arch())
        for name, call in CALLS.items()
        for seed in range(4)
    }

    def work(seed: int) -> None:
        a = library.there(data(seed))
        for _ in range(5):
            for name, call in CALLS.items():
                require_bits(library.back(call(a, backend=library.backend)), expected[name, seed])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, seed) for seed in range(4)]:
            done.result()
