"""On two GPUs: arrays are computed where they are, for either current GPU, with the bits of either.

The bits are the simulator's for the GPU's architecture.
"""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked
from on_gpu import imported, require_bits
from tcusim.errors import InputError
from tcusim_cuda import arch_name, device_sm
from tcusim_cuda.driver import Driver

pytestmark = pytest.mark.gpu(min_sm=80)

LENGTH = 100_003
OFFSETS = np.array([0, 5, 5, 70_000, LENGTH])
X = np.random.default_rng(3).standard_normal(LENGTH).astype(np.float16)
A = np.random.default_rng(4).standard_normal((130, 300)).astype(np.float32)
# Of X, and of the maker of arrays: with the name of an architecture for NumPy's.
CALLS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, there, **k: tcusim.sum(x, **asked(**k)),
    "sum to float32": lambda x, there, **k: tcusim.sum(x, dtype="float32", **asked(**k)),
    "cumsum": lambda x, there, **k: tcusim.cumsum(x, **asked(**k)),
    "exact": lambda x, there, **k: tcusim.cumsum(x, **asked(bits="exact", **k)),
    "initial": lambda x, there, **k: tcusim.cumsum(x, initial=2.0, **asked(**k)),
    "longer": lambda x, there, **k: tcusim.cumsum(x, include_initial=True, **asked(**k)),
    "segments": lambda x, there, **k: tcusim.segmented_sum(x, 100, **asked(**k)),
    "offsets": lambda x, there, **k: tcusim.segmented_sum(x, OFFSETS, **asked(**k)),
    "offsets there": lambda x, there, **k: tcusim.segmented_cumsum(x, there(OFFSETS), **asked(**k)),
    "unchecked": lambda x, there, **k: tcusim.segmented_sum(
        x, tcusim.Segments(there(OFFSETS), check=False), **asked(**k)
    ),
    "matmul": lambda x, there, **k: tcusim.matmul(there(A), there(A.T.copy()), **asked(**k)),
    "matvec": lambda x, there, **k: tcusim.matvec(there(A), there(A[0]), **asked(**k)),
}


@pytest.fixture(autouse=True)
def two_gpus() -> Iterator[None]:
    """Skip where there is one GPU; the thread must have its context back afterwards."""
    status, count = imported("cuda.bindings.driver").cuDeviceGetCount()
    if status or count < 2:
        pytest.skip("there is one GPU")
    driver = Driver.open()
    before = driver.current_context()
    yield
    assert before in (0, driver.current_context())


@pytest.fixture
def torch() -> Any:
    torch = imported("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def arch_of(device: int) -> str:
    name = arch_name(device_sm(device))
    if name is None:
        pytest.skip(f"no unit has the numerics of sm_{device_sm(device)}")
    return name


def predicted(name: str, device: int) -> Any:
    return CALLS[name](X, np.asarray, arch=arch_of(device))


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("name", CALLS)
def test_tensors(torch: Any, name: str, current: int) -> None:
    with torch.cuda.device(current):
        for device in (1, 0, 1):

            def there(values: Any, device: int = device) -> Any:
                return torch.from_numpy(values).to(f"cuda:{device}")

            x = there(X)
            for _ in range(3):
                got = CALLS[name](x, there)
                assert got.device == x.device
                require_bits(got.cpu().numpy(), predicted(name, device))
            assert torch.cuda.current_device() == current


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("backend", ["cuda", "cupy"])
@pytest.mark.parametrize("name", CALLS)
def test_arrays_of_cupy(name: str, backend: str, current: int) -> None:
    cupy = imported("cupy")
    with cupy.cuda.Device(current):
        for device in (1, 0, 1):

            def there(values: Any, device: int = device) -> Any:
                with cupy.cuda.Device(device):
                    return cupy.asarray(values)

            x = there(X)
            for _ in range(3):
                got = CALLS[name](x, there, backend=backend)
                assert got.device.id == device
                require_bits(got.get(), predicted(name, device))
            assert cupy.cuda.runtime.getDevice() == current


def test_an_array_of_cupy_that_is_copied_first() -> None:
    cupy = imported("cupy")
    with cupy.cuda.Device(1):
        x = cupy.asarray(A.astype(np.float16))
    with cupy.cuda.Device(0):
        for axis, given, same in ((0, x, A), (1, x[:, 1:], A[:, 1:])):
            got = tcusim.sum(given, axis=axis)
            assert got.device.id == 1
            expected = tcusim.sum(same.astype(np.float16), axis=axis, options={"arch": arch_of(1)})
            require_bits(got.get(), expected)


def test_in_place_and_a_plan_for_both(torch: Any) -> None:
    plan = tcusim.plan("cumsum", length=LENGTH, dtype="float16", options={"backend": "cuda"})
    for device in (0, 1, 0, 1):
        x = torch.from_numpy(X).to(f"cuda:{device}")
        expected = tcusim.cumsum(X, options={"arch": arch_of(device)})
        require_bits(plan(x).cpu().numpy(), expected)
        assert tcusim.cumsum(x, out=x) is x
        require_bits(x.cpu().numpy(), expected)


def test_what_does_not_go_together(torch: Any) -> None:
    here, there = (torch.from_numpy(X).to(f"cuda:{device}") for device in (0, 1))
    with pytest.raises(InputError, match="a is on GPU 1, out is on GPU 0"):
        tcusim.cumsum(there, out=here)
    offsets = torch.from_numpy(OFFSETS).to("cuda:0")
    with pytest.raises(InputError, match="on GPU 1, offsets is on GPU 0"):
        tcusim.segmented_sum(there, tcusim.Segments(offsets, check=False))
    with pytest.raises(
        InputError, match="stream is a stream of GPU 0, and the arrays are on GPU 1"
    ):
        tcusim.sum(there, options={"stream": torch.cuda.Stream("cuda:0")})
    require_bits(tcusim.sum(there).cpu().numpy(), tcusim.sum(X, options={"arch": arch_of(1)}))


def test_threads_on_both(torch: Any) -> None:
    expected = {(name, device): predicted(name, device) for name in CALLS for device in (0, 1)}

    def work(number: int) -> None:
        device = number % 2

        def there(values: Any) -> Any:
            return torch.from_numpy(values).to(f"cuda:{device}")

        for _ in range(5):
            for name, call in CALLS.items():
                got = call(there(X), there)
                require_bits(got.cpu().numpy(), expected[name, device])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()


@pytest.mark.parametrize("name", ["sum", "cumsum", "segments", "matmul"])
def test_a_graph_on_the_second(torch: Any, name: str) -> None:
    def there(values: Any) -> Any:
        return torch.from_numpy(values).to("cuda:1")

    def call(a: Any, **more: Any) -> Any:
        if name == "matmul":
            return tcusim.matmul(a, right, **asked(**more))
        return CALLS[name](a, there, **more)

    first, right = (A, there(A.T.copy())) if name == "matmul" else (X, None)
    a = there(np.zeros_like(first))
    out, side = call(a), torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(side):
        call(a, out=out)
    torch.cuda.synchronize(1)
    graph = torch.cuda.CUDAGraph()
    # The GPU that is current in between has nothing to do with it.
    with torch.cuda.graph(graph, stream=side), torch.cuda.device(0):
        call(a, out=out)
    a.copy_(there(first))
    torch.cuda.synchronize(1)
    with torch.cuda.device(1):
        graph.replay()
    torch.cuda.synchronize(1)
    require_bits(out.cpu().numpy(), predicted(name, 1))


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_memory_that_goes_while_a_graph_is_captured(torch: Any, mode: str) -> None:
    """Objects that the garbage collector frees then end no capture."""
    from tcusim_cuda import CUDA

    x = torch.from_numpy(X).to("cuda:1")
    with torch.cuda.device(1):
        memory = CUDA.memory(None, 2**20, 0)
        graph, out = torch.cuda.CUDAGraph(), tcusim.cumsum(x)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            tcusim.cumsum(x, out=out)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side, capture_error_mode=mode):
            tcusim.cumsum(x, out=out)
            del memory
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
    require_bits(out.cpu().numpy(), tcusim.cumsum(X, options={"arch": arch_of(1)}))


EXPANDABLE = """
import numpy as np, torch, tcusim
x = np.random.default_rng(3).standard_normal(100_003).astype(np.float16)
for current in (0, 1):
    with torch.cuda.device(current):
        for device in (1, 0, 1):
            there = torch.from_numpy(x).to(f"cuda:{device}")
            for _ in range(3):
                for call in (tcusim.sum, tcusim.cumsum):
                    got = call(there)
                    assert got.device == there.device
                    expected = call(x, options={"arch": "ARCH"})
                    assert got.cpu().numpy().tobytes() == expected.tobytes(), device
            got = tcusim.segmented_sum(there, [0, 7, 100_003])
            expected = tcusim.segmented_sum(x, [0, 7, 100_003], options={"arch": "ARCH"})
            assert got.cpu().numpy().tobytes() == expected.tobytes()
print("right")
"""


@pytest.mark.parametrize("settings", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_memory_that_is_of_no_context(torch: Any, settings: str) -> None:
    del torch
    if arch_of(0) != arch_of(1):
        pytest.skip("the GPUs are of two kinds")
    done = subprocess.run(
        [sys.executable, "-c", EXPANDABLE.replace("ARCH", arch_of(0))],
        env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


def test_arrays_of_jax() -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    driver = Driver.open()
    # XLA makes other contexts current, as early as when it finds the GPUs.
    before = driver.current_context()
    jax = imported("jax")
    try:
        devices = jax.devices("cuda")
    except RuntimeError as error:
        pytest.skip(f"this jax has no CUDA: {error}")
    import tcusim.jax as tj

    assert tj.why_on_host() is None
    one, two = slice(0, 64), slice(64, 128)
    function = jax.jit(
        lambda x: (
            tj.sum(x), tj.cumsum(x), tj.matmul(x[one].reshape(8, 8), x[two].reshape(8, 8)),
        )
    )  # fmt: skip
    for device in (1, 0, 1):
        there = jax.device_put(X, devices[device])
        arch = arch_of(device)
        found = function(there)
        jax.block_until_ready((there, found))
        # XLA leaves the context current that it needed last.
        driver.set_context(before)
        found = (*found, tcusim.sum(there))
        assert before in (0, driver.current_context())
        expected = (
            tcusim.sum(X, options={"arch": arch}),
            tcusim.cumsum(X, options={"arch": arch}),
            tcusim.matmul(X[one].reshape(8, 8), X[two].reshape(8, 8), options={"arch": arch}),
        )
        for got, wanted in zip(found, (*expected, expected[0]), strict=True):
            assert {one.id for one in got.devices()} == {devices[device].id}
            require_bits(np.asarray(got), np.asarray(wanted))
        driver.set_context(before)
