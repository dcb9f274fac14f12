"""On a GPU: sums, scans and plans of CuPy's, PyCUDA's and torch's arrays, where they lie.

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

import on_gpu
import tcusim
from asked import asked
from on_gpu import Library, arch, imported, library_of, numbers, require_bits
from tcusim.errors import InputError
from tcusim_cuda import device_sm

pytestmark = pytest.mark.gpu(min_sm=70)

TYPES = ("float16", "float32", "float64", "int8")


@pytest.fixture(
    params=[
        ("cupy", "cupy"),
        ("torch", "cuda"),
        ("cupy", "cuda"),
        ("torch", "cupy"),
        ("torch", "pycuda"),
        ("pycuda", "pycuda"),
    ],
    ids="-".join,
)
def library(request: pytest.FixtureRequest) -> Library:
    return library_of(*request.param)


def simulated(name: str, x: NDArray[Any], *sizes: int, **options: Any) -> Any:
    return getattr(tcusim, name)(x, *sizes, **asked(arch=arch(), **options))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("length", [1, 100, 5000, 2**14 + 1, 100_003])
def test_whole_arrays(library: Library, dtype: str, length: int) -> None:
    x = numbers(dtype, length)
    a = library.there(x)
    for name in ("sum", "cumsum"):
        result = getattr(tcusim, name)(a, options={"backend": library.backend})
        assert library.is_own(result)
        require_bits(library.back(result), simulated(name, x))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 16, 17, 64, 65, 700, 2**15])
def test_segments(library: Library, dtype: str, size: int) -> None:
    x = numbers(dtype, 70_001)
    a = library.there(x)
    result = tcusim.segmented_sum(a, size, options={"backend": library.backend})
    require_bits(library.back(result), simulated("segmented_sum", x, size))
    for exclusive in (False, True):
        options: dict[str, Any] = {"exclusive": exclusive, "reverse": not exclusive}
        scan = tcusim.segmented_cumsum(a, size, **asked(backend=library.backend, **options))
        require_bits(library.back(scan), simulated("segmented_cumsum", x, size, **options))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
@pytest.mark.parametrize("length", [1, 5000, 100_003])
def test_uint8(library: Library, dtype: str, length: int) -> None:
    x = np.random.default_rng(length).integers(0, 256, length).astype(np.uint8)
    a, options = library.there(x), {"backend": library.backend}
    for name in ("sum", "cumsum"):
        result = getattr(tcusim, name)(a, dtype=dtype, options=options)
        require_bits(library.back(result), simulated(name, x, dtype=dtype))
    size = min(700, length)
    for name in ("segmented_sum", "segmented_cumsum"):
        result = getattr(tcusim, name)(a, size, dtype=dtype, options=options)
        require_bits(library.back(result), simulated(name, x, size, dtype=dtype))


@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1])
def test_axes(library: Library, axis: int | None) -> None:
    x = numbers("float16", 6, 32, 48)
    a = library.there(x)
    if library.name == "pycuda" and axis in (0, 1):
        with pytest.raises(InputError, match="GPUArray, which tcusim cannot copy as it needs it"):
            tcusim.sum(a, axis=axis)
        return
    for name in ("sum", "cumsum"):
        result = getattr(tcusim, name)(a, axis=axis, options={"backend": library.backend})
        require_bits(library.back(result), simulated(name, x, axis=axis))
    if axis is not None:
        result = tcusim.segmented_sum(a, 2, axis=axis, options={"backend": library.backend})
        require_bits(library.back(result), simulated("segmented_sum", x, 2, axis=axis))
    keep = tcusim.sum(a, axis=axis, keepdims=True, options={"backend": library.backend})
    require_bits(library.back(keep), simulated("sum", x, axis=axis, keepdims=True))


@pytest.mark.parametrize("given", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_results_of_other_types(library: Library, given: str, dtype: str) -> None:
    x = numbers(given, 3000)
    numbers(dtype)
    if library.name == "pycuda" and given != dtype and "float64" in (given, dtype):
        pytest.skip("PyCUDA's arrays are not cast")
    result = tcusim.cumsum(library.there(x), dtype=dtype, options={"backend": library.backend})
    require_bits(library.back(result), simulated("cumsum", x, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [16, 300, 2**15, 100_003])
@pytest.mark.parametrize("reverse", [False, True])
def test_in_place(library: Library, dtype: str, size: int, reverse: bool) -> None:
    x = numbers(dtype, 100_003)
    expected = simulated("segmented_cumsum", x, size, reverse=reverse)
    a = library.there(x)
    result = tcusim.segmented_cumsum(
        a, size, reverse=reverse, out=a, options={"backend": library.backend}
    )
    assert result is a
    require_bits(library.back(a), expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "shape", [(1,), (5000,), (100_003,), (2**20,), (700, 33), (3, 4096), (40_000, 3)]
)
def test_scans_with_an_initial_zero(
    library: Library, dtype: str, shape: tuple[int, ...], reverse: bool
) -> None:
    x = numbers(dtype, *shape)
    options: dict[str, Any] = {"axis": -1, "reverse": reverse, "include_initial": True}
    expected = simulated("cumsum", x, **options)
    a = library.there(x)
    result = tcusim.cumsum(a, **asked(backend=library.backend, **options))
    assert library.is_own(result)
    require_bits(library.back(result), expected)
    poison = np.full(expected.shape, np.nan if dtype != "int8" else -1, expected.dtype)
    out = library.there(poison)
    assert tcusim.cumsum(a, out=out, **asked(backend=library.backend, **options)) is out
    require_bits(library.back(out), expected)


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_an_initial_zero_along_any_axis(library: Library, axis: int | None) -> None:
    if library.name == "pycuda" and axis in (0, 1):
        pytest.skip("PyCUDA's arrays are not transposed")
    x = numbers("float16", 6, 32, 48)
    for reverse, dtype in ((False, None), (True, "float32")):
        options: dict[str, Any] = {"axis": axis, "reverse": reverse, "dtype": dtype}
        options["include_initial"] = True
        result = tcusim.cumsum(library.there(x), **asked(backend=library.backend, **options))
        require_bits(library.back(result), simulated("cumsum", x, **options))


def test_an_out_with_an_initial_zero_that_does_not_go(library: Library) -> None:
    both = library.there(numbers("float16", 1100))
    options: dict[str, Any] = {"include_initial": True, "backend": library.backend}
    for out in (both[:513], both[1:514], both[511:1024]):
        with pytest.raises(InputError, match="out overlaps a in memory"):
            tcusim.cumsum(both[:512], out=out, **asked(**options))
    with pytest.raises(InputError, match=r"out must be an array of float16, shape \(513,\); got"):
        tcusim.cumsum(both[:512], out=both[512:1024], **asked(**options))
    # A result that begins anywhere; its neighbours stay as they are.
    before = library.back(both)
    tcusim.cumsum(both[:512], out=both[513:1026], **asked(**options))
    after = library.back(both)
    require_bits(after[513:1026], simulated("cumsum", before[:512], include_initial=True))
    require_bits(after[:513], before[:513])
    require_bits(after[1026:], before[1026:])


def test_an_initial_zero_on_other_streams(library: Library) -> None:
    if library.name != "torch":
        pytest.skip("torch makes streams for every launcher")
    torch = importlib.import_module("torch")
    x = numbers("float16", 300, 1001)
    expected = simulated("cumsum", x, axis=1, include_initial=True)
    options: dict[str, Any] = {"axis": 1, "include_initial": True, "backend": library.backend}
    a = library.there(x)
    torch.cuda.synchronize()
    given, current = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(10):
        # The result is read on the stream that was named, without waiting for anything else.
        with torch.cuda.stream(current):
            result = tcusim.cumsum(a, **asked(stream=given, **options))
        with torch.cuda.stream(given):
            copy = result.clone()
        given.synchronize()
        require_bits(library.back(copy), expected)
        with torch.cuda.stream(current):
            result = tcusim.cumsum(a, **asked(**options)) + 0
        current.synchronize()
        require_bits(library.back(result), expected)


def test_out(library: Library) -> None:
    x = numbers("float16", 7, 500)
    a, out = library.there(x), library.there(np.zeros(7, np.float32))
    assert (
        tcusim.sum(a, axis=1, dtype="float32", out=out, options={"backend": library.backend}) is out
    )
    require_bits(library.back(out), simulated("sum", x, axis=1, dtype="float32"))
    with pytest.raises(InputError, match=r"out must be an array of float16, shape \(7,\); got"):
        tcusim.sum(a, axis=1, out=out, options={"backend": library.backend})
    both = library.there(numbers("float16", 1000))
    with pytest.raises(InputError, match="out overlaps a in memory"):
        tcusim.cumsum(both[:512], out=both[256:768], options={"backend": library.backend})


def test_arrays_that_do_not_lie_in_order(library: Library) -> None:
    if library.name == "pycuda":
        pytest.skip("PyCUDA's arrays are not copied into order")
    x = numbers("float16", 40, 50)
    a = library.there(x)
    views: tuple[Callable[[Any], Any], ...] = (
        lambda y: y.T,
        lambda y: y[::2, 1::3],
        lambda y: y[1:, :],
        lambda y: y[3, 1:],
    )
    for view in views:
        result = tcusim.cumsum(view(a), axis=-1, options={"backend": library.backend})
        require_bits(library.back(result), simulated("cumsum", view(x), axis=-1))


def test_nothing(library: Library) -> None:
    # PyCUDA's arrays are taken with the last axis alone.
    for axis in (1,) if library.name == "pycuda" else (0, 1):
        shape = (3, 0) if axis else (0, 3)
        a = library.there(np.zeros(shape, np.float16))
        total = tcusim.sum(a, axis=axis, options={"backend": library.backend})
        require_bits(library.back(total), np.zeros(3, "f2"))
        scan = tcusim.cumsum(a, axis=axis, options={"backend": library.backend})
        assert tuple(scan.shape) == shape


def test_bfloat16_of_torch(library: Library) -> None:
    if library.name != "torch" or device_sm() < 80:
        pytest.skip("torch alone has bfloat16 arrays everywhere, and sm_80 multiplies them")
    torch = importlib.import_module("torch")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    a = torch.from_numpy(x).cuda().to(torch.bfloat16)
    narrow = x.astype(ml_dtypes.bfloat16)
    result = tcusim.cumsum(a, options={"backend": library.backend})
    assert result.dtype == torch.bfloat16
    bits = result.view(torch.int16).cpu().numpy().view(np.uint16)
    np.testing.assert_array_equal(bits, simulated("cumsum", narrow).view(np.uint16))
    wide = tcusim.sum(a, dtype=torch.float32, options={"backend": library.backend})
    assert float(wide) == float(simulated("sum", narrow, dtype="float32"))


def test_arrays_of_jax() -> None:
    """They are results, too, but take none: JAX shows its arrays as read-only."""
    jax = imported("jax")
    try:
        device = jax.devices("cuda")[on_gpu.GPU or 0]
    except RuntimeError as error:
        pytest.skip(f"this jax has no CUDA: {error}")
    calls: dict[str, tuple[Any, ...]] = {"sum": (), "cumsum": (), "segmented_sum": (100,)}
    for name, sizes in calls.items():
        x = numbers("float16", 70_001)
        there = jax.device_put(x, device)
        # The second call takes the fast path.
        for _ in range(2):
            result = getattr(tcusim, name)(there, *sizes, options={"backend": "cuda"})
            assert isinstance(result, jax.Array)
            require_bits(np.asarray(result), simulated(name, x, *sizes))
    with pytest.raises(InputError, match="read-only"):
        tcusim.cumsum(there, out=jax.device_put(x, device), options={"backend": "cuda"})


def test_a_plan_on_streams_of_several_threads(library: Library) -> None:
    if library.name != "torch":
        pytest.skip("torch makes streams for every launcher")
    torch = importlib.import_module("torch")
    plan = tcusim.plan(
        "cumsum", length=200_000, result="float32", options={"backend": library.backend}
    )
    data = [np.roll(numbers("float16", 200_000), shift) for shift in range(4)]
    expected = [simulated("cumsum", x, dtype="float32") for x in data]

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            a = library.there(data[number])
            results = [plan(a) for _ in range(25)]
            stream.synchronize()
        for result in results:
            require_bits(library.back(result), expected[number])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()


def test_another_architectures_bits(library: Library) -> None:
    """The lanes multiply by its rule."""
    other = "volta" if arch() != "volta" else "ampere"
    data = numbers("float16", 100_000)
    a = library.there(data)
    for function in (tcusim.sum, tcusim.cumsum):
        got = function(a, dtype="float32", options={"arch": other, "backend": library.backend})
        expected = function(data, dtype="float32", options={"arch": other})
        require_bits(library.back(got), np.asarray(expected))
