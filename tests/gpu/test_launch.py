"""On a GPU, through PyCUDA and CuPy: every kind of array, streams, memory, and errors.

Where bits are compared, they are the simulator's for this GPU's architecture.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from on_gpu import arch, imported, require_bits
from tcusim import backends
from tcusim.algorithms import build, segmented_algorithms
from tcusim.errors import InputError
from tcusim.program.grammar import Program
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda import CUDA, CUPY, PYCUDA, device_sm, emit, prepared
from tcusim_cuda.compile import compile_kernel
from tcusim_cuda.launch import Launcher
from tcusim_cuda.runtime import LaunchError

pytestmark = pytest.mark.gpu(min_sm=70)

PROGRAM = build("reduction_k")
LENGTH = 256 * 40

# CU_FUNC_ATTRIBUTE_NUM_REGS of cuda.h.
NUMBER_OF_REGISTERS = 4


@pytest.fixture(params=[CUDA, PYCUDA, CUPY], ids=["cuda", "pycuda", "cupy"])
def backend(request: pytest.FixtureRequest) -> Launcher:
    launcher: Launcher = request.param
    reason = launcher.available()
    if reason is not None:
        pytest.skip(f"{launcher.name}: {reason}")
    return launcher


@pytest.fixture
def cupy() -> Any:
    return imported("cupy")


@pytest.fixture
def torch() -> Any:
    torch = imported("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


def halves(length: int = LENGTH, seed: int = 0) -> NDArray[np.float16]:
    """Return numbers of both signs; their sums are rounded."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(length).astype(np.float16)


def run(
    launcher: Launcher, program: Program, inputs: dict[str, Any], **options: Any
) -> dict[str, Any]:
    """Run a program as a plan of one launch."""
    return backends.run(program, inputs, backend=launcher, **options)


def simulated(program: Program, x: NDArray[Any]) -> NDArray[Any]:
    return run_numpy(program, {"in": x}, arch=arch())["out"]


# --- NumPy arrays ----------------------------------------------------------------------------


@pytest.mark.parametrize("acc", ["f32", "f16"])
@pytest.mark.parametrize("row", segmented_algorithms(), ids=lambda row: row.name)
def test_every_algorithm_gives_the_simulators_bits(backend: Launcher, row: Any, acc: str) -> None:
    program = build(row.name, acc=acc, masked=True)
    x = halves(LENGTH + 77)
    got = run(backend, program, {"in": x}, poison=True)["out"]
    require_bits(got, simulated(program, x))


@pytest.mark.parametrize(
    ("shape", "ab", "acc"),
    [
        ("32x8x16", "f16", "f32"),
        ("8x32x16", "f16", "f16"),
        ("16x16x16", "bf16", "f32"),
        ("16x16x8", "tf32", "f32"),
        ("8x8x4", "f64", "f64"),
        ("16x8x16", "f16", "f32"),
        ("16x8x8", "f16", "f16"),
    ],
)
def test_other_shapes_and_types(backend: Launcher, shape: str, ab: str, acc: str) -> None:
    program = build("reduction_tn", tile=shape, ab=ab, acc=acc, masked=True)
    if device_sm() < emit(program).min_sm:
        pytest.skip(f"sm_{device_sm()} lacks the instruction")
    # bf16 holds these, so that no input is refused for being rounded.
    x = np.random.default_rng(1).integers(-128, 129, LENGTH + 5) * 2.0**-3
    x = x.astype(np.float16 if ab == "f16" else np.float64 if ab == "f64" else np.float32)
    require_bits(run(backend, program, {"in": x}, poison=True)["out"], simulated(program, x))


def test_more_shared_memory_than_48_kilobytes(backend: Launcher) -> None:
    program = build("scan_tn", warps=16, masked=True)
    assert emit(program).dynamic_shared_bytes > 48 * 1024
    x = halves(100_001)
    require_bits(run(backend, program, {"in": x}, poison=True)["out"], simulated(program, x))


def test_no_elements(backend: Launcher) -> None:
    program = build("scan_k", masked=True)
    assert run(backend, program, {"in": halves(0)})["out"].shape == (0,)


def test_numpy_out(backend: Launcher) -> None:
    out = np.full(LENGTH // 16, np.nan, np.float32)
    x = halves()
    assert run(backend, PROGRAM, {"in": x}, out={"out": out})["out"] is out
    require_bits(out, simulated(PROGRAM, x))


def test_poison_stays_where_nothing_is_written(backend: Launcher) -> None:
    # No block runs for an empty array, and the one sum stays as it was.
    program = build("reduction_single_pass", tile="8x8x4", ab="f64", acc="f64", masked=True)
    empty = np.empty(0)
    got = run(backend, program, {"in": empty}, poison=True)["out"]
    require_bits(got, run_numpy(program, {"in": empty}, arch=arch())["out"])
    assert np.isnan(got).all()


def test_the_name_of_the_gpus_architecture(backend: Launcher) -> None:
    x = halves()
    run(backend, PROGRAM, {"in": x}, arch=arch())
    other = "volta" if arch() != "volta" else "turing"
    got = run(backend, PROGRAM, {"in": x}, arch=other)["out"]
    require_bits(got, run_numpy(PROGRAM, {"in": x}, arch=other)["out"])


def test_a_kernel_is_loaded_once(backend: Launcher) -> None:
    program = dataclasses.replace(PROGRAM, name="loaded_once")
    before = len(backend._loaded)
    for seed in range(3):
        run(backend, program, {"in": halves(seed=seed)})
    assert len(backend._loaded) == before + 1


def test_threads_may_share_a_backend(backend: Launcher) -> None:
    program = dataclasses.replace(PROGRAM, name="from_threads")
    arrays = [halves(seed=seed) for seed in range(8)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: run(backend, program, {"in": x})["out"], arrays))
    for x, got in zip(arrays, results, strict=True):
        require_bits(got, simulated(program, x))


def test_registers_are_those_that_the_driver_tells(cupy: Any) -> None:
    kernel = emit(build("scan_tn"))
    cubin = compile_kernel(kernel, device_sm())
    module = cupy.cuda.function.Module()
    module.load(cubin.code)
    function = module.get_function(kernel.name)
    told = cupy.cuda.driver.funcGetAttribute(NUMBER_OF_REGISTERS, function.ptr)
    assert cubin.usage.registers == told


# --- CuPy ------------------------------------------------------------------------------------


def test_cupy_arrays(backend: Launcher, cupy: Any) -> None:
    x = halves()
    got = run(backend, PROGRAM, {"in": cupy.asarray(x)})["out"]
    assert isinstance(got, cupy.ndarray)
    require_bits(got.get(), simulated(PROGRAM, x))


def test_cupy_out(backend: Launcher, cupy: Any) -> None:
    x = halves()
    out = cupy.full(LENGTH // 16, cupy.nan, cupy.float32)
    assert run(backend, PROGRAM, {"in": cupy.asarray(x)}, out={"out": out})["out"] is out
    require_bits(out.get(), simulated(PROGRAM, x))


def delayed(cupy: Any, x: NDArray[Any], array: Any) -> None:
    """Write x into an array, in the current stream, after much else."""
    source = cupy.asarray(x)
    busy = cupy.ones((4096, 4096), cupy.float32)
    for _ in range(20):
        busy = busy @ busy * cupy.float32(1e-4)
    array[...] = source


@pytest.mark.parametrize("non_blocking", [True, False])
def test_the_current_stream_of_cupy(backend: Launcher, cupy: Any, non_blocking: bool) -> None:
    x = halves()
    with cupy.cuda.Stream(non_blocking=non_blocking) as stream:
        array = cupy.zeros(LENGTH, cupy.float16)
        delayed(cupy, x, array)
        got = run(backend, PROGRAM, {"in": array})["out"]
        doubled = got * cupy.float32(2)
        stream.synchronize()
    require_bits(doubled.get(), simulated(PROGRAM, x) * np.float32(2))


def test_a_stream_by_name_waits_and_is_waited_for(backend: Launcher, cupy: Any) -> None:
    x = halves()
    other = cupy.cuda.Stream(non_blocking=True)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        array = cupy.zeros(LENGTH, cupy.float16)
        delayed(cupy, x, array)
        got = run(backend, PROGRAM, {"in": array}, stream=other)["out"]
        doubled = got * cupy.float32(2)
        stream.synchronize()
    require_bits(doubled.get(), simulated(PROGRAM, x) * np.float32(2))


def test_numpy_arrays_on_a_stream(backend: Launcher, cupy: Any) -> None:
    x = halves()
    stream = cupy.cuda.Stream(non_blocking=True)
    require_bits(run(backend, PROGRAM, {"in": x}, stream=stream)["out"], simulated(PROGRAM, x))


def test_cupy_arrays_that_do_not_fit(backend: Launcher, cupy: Any) -> None:
    array = cupy.asarray(halves(LENGTH + 256))
    out = cupy.empty(LENGTH // 16, cupy.float32)
    for given, said in (
        (array[1 : LENGTH + 1], "which is not a multiple of 32 bytes"),
        (array[:512:2], "has gaps between its elements"),
        (array[:LENGTH].reshape(2, -1), r"must be flat \(one axis\)"),
        (cupy.zeros(LENGTH, cupy.float32), r"must be of float16 \(f16\), got float32"),
    ):
        with pytest.raises(InputError, match=f"input 'in'.*{said}"):
            run(backend, PROGRAM, {"in": given})
    given = array[:LENGTH]
    with pytest.raises(InputError, match=r"out 'out' must have 640 elements, it has 639"):
        run(backend, PROGRAM, {"in": given}, out={"out": out[:-1]})
    with pytest.raises(InputError, match="out 'out' overlaps input 'in' in memory"):
        run(backend, PROGRAM, {"in": given}, out={"out": given.view(cupy.float32)[:640]})
    with pytest.raises(InputError, match="'out' is not in GPU memory, but input 'in' is"):
        run(backend, PROGRAM, {"in": given}, out={"out": out.get()})


def test_a_slice_at_a_tile_is_used_in_place(backend: Launcher, cupy: Any) -> None:
    x = halves(LENGTH + 256)
    got = run(backend, PROGRAM, {"in": cupy.asarray(x)[256:]})["out"]
    require_bits(got.get(), simulated(PROGRAM, x[256:]))


@pytest.mark.parametrize("start", [1, 2, 4, 8])
def test_a_staged_slice_may_begin_anywhere(backend: Launcher, cupy: Any, start: int) -> None:
    """The kernel finds out how many bytes it can move at a time."""
    # Segments of 1001 elements begin anywhere themselves: no tile is loaded where it lies.
    program = build("scan_tn", masked=True, result="f16", segment_size=1001)
    x = halves(5000 + start)
    out = cupy.full(5000 + start, -1, cupy.float16)
    run(backend, program, {"in": cupy.asarray(x)[start:]}, out={"out": out[start:]})
    require_bits(out.get()[start:], simulated(program, x[start:]))
    assert (out.get()[:start] == -1).all()


def test_no_elements_of_cupy(backend: Launcher, cupy: Any) -> None:
    got = run(backend, build("scan_k", masked=True), {"in": cupy.zeros(0, cupy.float16)})["out"]
    assert isinstance(got, cupy.ndarray)
    assert got.shape == (0,)


# --- Torch -----------------------------------------------------------------------------------


def test_torch_tensors(backend: Launcher, torch: Any) -> None:
    x = halves()
    given = torch.from_numpy(x).cuda()
    got = run(backend, PROGRAM, {"in": given})["out"]
    assert isinstance(got, torch.Tensor)
    assert got.device == given.device
    require_bits(got.cpu().numpy(), simulated(PROGRAM, x))
    out = torch.empty_like(got)
    assert run(backend, PROGRAM, {"in": given}, out={"out": out})["out"] is out
    require_bits(out.cpu().numpy(), simulated(PROGRAM, x))


def test_torch_bf16(backend: Launcher, torch: Any) -> None:
    program = build("reduction_k", ab="bf16")
    if device_sm() < emit(program).min_sm:
        pytest.skip(f"sm_{device_sm()} has no bf16")
    given = torch.from_numpy(halves()).cuda().to(torch.bfloat16)
    got = run(backend, program, {"in": given})["out"]
    expected = simulated(program, given.float().cpu().numpy())
    require_bits(got.cpu().numpy(), expected)


def test_a_side_stream_of_torch(backend: Launcher, torch: Any) -> None:
    x = halves()
    source = torch.from_numpy(x).cuda()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        given = torch.zeros_like(source)
        torch.cuda._sleep(100_000_000)
        given.copy_(source)
        got = run(backend, PROGRAM, {"in": given})["out"]
        result = (got * 2).cpu().numpy()
    require_bits(result, simulated(PROGRAM, x) * np.float32(2))


def test_a_stream_of_torch_by_name(backend: Launcher, torch: Any) -> None:
    x = halves()
    source = torch.from_numpy(x).cuda()
    torch.cuda.synchronize()
    given = torch.zeros_like(source)
    torch.cuda._sleep(100_000_000)
    given.copy_(source)
    got = run(backend, PROGRAM, {"in": given}, stream=torch.cuda.Stream())["out"]
    require_bits((got * 2).cpu().numpy(), simulated(PROGRAM, x) * np.float32(2))


def test_a_tensor_on_the_cpu_is_refused(backend: Launcher, torch: Any) -> None:
    with pytest.raises(InputError, match=r"input 'in' is a torch tensor on cpu\. Move it to the"):
        run(backend, PROGRAM, {"in": torch.from_numpy(halves())})


def test_torch_and_cupy_together(backend: Launcher, torch: Any, cupy: Any) -> None:
    x = halves()
    out = cupy.empty(LENGTH // 16, cupy.float32)
    given = torch.from_numpy(x).cuda()
    assert run(backend, PROGRAM, {"in": given}, out={"out": out})["out"] is out
    require_bits(out.get(), simulated(PROGRAM, x))


# --- Other arrays ----------------------------------------------------------------------------


class HasInterface:
    """An array of nobody's library, with the CUDA array interface."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


class HasDlpack:
    """An array of nobody's library, with DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream: int | None = None) -> Any:
        return self.array.__dlpack__(stream=stream)


@pytest.mark.parametrize("wrapped", [HasInterface, HasDlpack])
def test_arrays_of_other_libraries(backend: Launcher, cupy: Any, wrapped: Any) -> None:
    x = halves()
    got = run(backend, PROGRAM, {"in": wrapped(cupy.asarray(x))})["out"]
    kinds = {"cuda": "CudaArray", "cupy": "ndarray", "pycuda": "GPUArray"}
    assert type(got).__name__ == kinds[backend.name]
    require_bits(cupy.asarray(HasInterface(got)).get(), simulated(PROGRAM, x))


def test_an_address_that_is_not_the_gpus(backend: Launcher, cupy: Any) -> None:
    interface = dict(cupy.asarray(halves()).__cuda_array_interface__)

    room = halves(LENGTH + 256)
    aligned = room.ctypes.data + -room.ctypes.data % 256
    elsewhere = SimpleNamespace(__cuda_array_interface__={**interface, "data": (aligned, False)})
    with pytest.raises(InputError, match="is not in the memory of a GPU"):
        run(backend, PROGRAM, {"in": elsewhere})


# --- PyCUDA's contexts, each in a process of its own ------------------------------------------

SETUP = """
import numpy as np
from tcusim import backends
from tcusim.algorithms import build
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda import CUDA, CUPY, PYCUDA, device_sm, arch_name

program = build("reduction_k")
x = np.random.default_rng(0).standard_normal(10240).astype(np.float16)
expected = run_numpy(program, {"in": x}, arch=arch_name(device_sm()))["out"]

def run(launcher, program, inputs, **options):
    return backends.run(program, inputs, backend=launcher, **options)

def require(got):
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))
"""

# Each ends without a word on the error stream: contexts are let go in order.
SCRIPTS = {
    "autoinit": """
import pycuda.autoinit
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
own = drv.Context.get_current().handle
given = gpuarray.to_gpu(x)
got = run(PYCUDA, program, {"in": given}, poison=True)["out"]
assert type(got) is gpuarray.GPUArray
require(got.get())
require(run(PYCUDA, program, {"in": x})["out"])
out = gpuarray.empty(640, np.float32)
stream = drv.Stream()
assert run(PYCUDA, program, {"in": given}, out={"out": out}, stream=stream)["out"] is out
stream.synchronize()
require(out.get())
assert drv.Context.get_current().handle == own
""",
    "autoprimaryctx": """
import pycuda.autoprimaryctx
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
given = gpuarray.to_gpu(x)
require(run(PYCUDA, program, {"in": given})["out"].get())
if CUPY.available() is None:
    got = run(CUPY, program, {"in": given})["out"]
    assert type(got) is gpuarray.GPUArray
    require(got.get())
""",
    "autoinit beside CuPy": """
import pycuda.autoinit
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
from tcusim.errors import InputError
own = drv.Context.get_current().handle
given = gpuarray.to_gpu(x)
if CUPY.available() is None:
    require(run(CUPY, program, {"in": x})["out"])
    # CuPy either works in the context that is current, PyCUDA's, or says what to do.
    try:
        out = run(CUPY, program, {"in": given})["out"]
    except InputError as error:
        assert "Import pycuda.autoprimaryctx, not pycuda.autoinit" in str(error), error
    else:
        require(out.get())
require(run(PYCUDA, program, {"in": given})["out"].get())
np.testing.assert_array_equal(given.get(), x)
assert drv.Context.get_current().handle == own
""",
    "no context of the user's": """
import pycuda.driver as drv
require(run(PYCUDA, program, {"in": x})["out"])
assert drv.Context.get_current() is None
""",
    "all libraries in turn": """
import pycuda.driver as drv
for _ in range(3):
    require(run(PYCUDA, program, {"in": x})["out"])
    if CUPY.available() is None:
        import cupy
        require(run(CUPY, program, {"in": x})["out"])
        given = cupy.asarray(x)
        require(run(PYCUDA, program, {"in": given})["out"].get())
        require(run(CUPY, program, {"in": given})["out"].get())
        assert int(cupy.arange(10).sum()) == 45
    try:
        import torch
    except ImportError:
        continue
    if torch.cuda.is_available():
        given = torch.from_numpy(x).cuda()
        require(run(PYCUDA, program, {"in": given})["out"].cpu().numpy())
        assert torch.ones(10, device="cuda").sum().item() == 10
assert drv.Context.get_current() is None
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_contexts_of_pycuda(name: str) -> None:
    reason = PYCUDA.available()
    if reason is not None:
        pytest.skip(f"pycuda: {reason}")
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "backends"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-c", SETUP + SCRIPTS[name]],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "PyCUDA WARNING" not in done.stderr, done.stderr


# --- Failures --------------------------------------------------------------------------------


def test_a_launch_that_the_driver_refuses(
    backend: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another object than the program that is ready by now.
    program = dataclasses.replace(PROGRAM)
    kernel = dataclasses.replace(emit(program), threads=2048)
    monkeypatch.setattr(prepared, "emitted", lambda program, rule=None: kernel)
    with pytest.raises(LaunchError, match=r"reduction_k failed: .* 40 blocks of 2048 threads"):
        run(backend, program, {"in": halves()})


def test_memory_that_is_full(cupy: Any) -> None:
    reason = CUPY.available()
    if reason is not None:
        pytest.skip(f"cupy: {reason}")
    pool = cupy.cuda.MemoryPool()
    # With --gpu, NumPy arrays go to the other one.
    for number in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(number):
            pool.set_limit(size=512)
    with (
        cupy.cuda.using_allocator(pool.malloc),
        pytest.raises(LaunchError, match="cupy: reduction_k failed: OutOfMemoryError: Out of mem"),
    ):
        run(CUPY, PROGRAM, {"in": halves()})
