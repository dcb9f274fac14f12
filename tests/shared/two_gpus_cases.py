"""Checks on two GPUs: run by test_two_gpus.py, in a process with the stand-in for them."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar

import cuda.bindings.driver as cuda
import numpy as np
import pytest

import tcusim
from asked import asked
from launch_plans import forget_plans
from tcusim.errors import InputError
from tcusim_cuda import CUDA, runtime
from tcusim_cuda.driver import Driver
from two_gpus import Array, CupyArray, Gpus, Tensor, cupy_of, faulty, torch_of

ASK = cuda.cuPointerGetAttribute
LENGTH = 3000
X = np.random.default_rng(5).integers(-9, 10, LENGTH).astype(np.float16)
A, B = (np.random.default_rng(n).standard_normal((48, 32)).astype(np.float32) for n in (1, 2))


@pytest.fixture(scope="session")
def standing_in() -> Gpus:
    return Gpus()


@pytest.fixture
def gpus(standing_in: Gpus, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    """Give two GPUs of one kind; every call on them must have been right."""
    monkeypatch.setattr(runtime, "compile_kernels", standing_in.compile_kernels)
    monkeypatch.setenv("TWO_GPUS_SM", "90,90")
    monkeypatch.setattr(cuda, "cuPointerGetAttribute", faulty(ASK))
    standing_in.reset()
    with standing_in.current(0):
        yield standing_in
    for clear in (forget_plans, gc.collect):
        clear()
    assert standing_in.complaints == ""


@pytest.fixture
def long_ways(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list; each call but a prepared launch adds its GPU."""
    seen: list[int] = []
    active = type(CUDA).active

    def noted(runtime: Any, place: runtime.Place) -> Any:
        seen.append(place.device)
        return active(runtime, place)

    monkeypatch.setattr(type(CUDA), "active", noted)
    return seen


def address_of(array: Any) -> int:
    """Return the address of an array."""
    if isinstance(array, Tensor):
        return array.data_ptr()
    address: int = array.__cuda_array_interface__["data"][0]
    return address


def same(got: Any, expected: Any, device: int) -> None:
    """Compare bits with those of the computer, once they are there, and the place."""
    driver, address = Driver.open(), address_of(got)
    assert driver.home_of(address, "a")[0] == device
    values = np.empty(expected.shape, expected.dtype)
    with driver.in_primary_context(device):
        driver.copy_back(address, values, 0)
    assert (str(got.dtype).removeprefix("torch."), got.shape) == (
        expected.dtype.name,
        expected.shape,
    )
    assert values.tobytes() == np.asarray(expected).tobytes()


# Memory has the context 0 where it is of a pool, or mapped, and belongs to no context.
@pytest.mark.parametrize(
    ("device", "context", "current", "bindings"),
    [(1, None, 0, "faulty"), (1, 0, 0, "mended"), (0, 0, 1, "mended"), (1, 0, None, "faulty")],
)
def test_every_kind_of_call(
    gpus: Gpus,
    monkeypatch: pytest.MonkeyPatch,
    device: int,
    context: int | None,
    current: int | None,
    bindings: str,
) -> None:
    if bindings == "mended":
        monkeypatch.setattr(cuda, "cuPointerGetAttribute", ASK)

    def there(values: Any) -> Array:
        return Array(gpus, device, np.asarray(values), context)

    with gpus.current(current):
        x, offsets = there(X), [0, 5, 5, LENGTH]
        same(tcusim.sum(x, dtype="float32"), tcusim.sum(X, dtype="float32"), device)
        same(tcusim.cumsum(x), tcusim.cumsum(X), device)
        same(
            tcusim.segmented_sum(x, offsets), tcusim.segmented_sum(X, offsets),
            device,
        )  # fmt: skip
        edges = there(np.array(offsets))
        same(
            tcusim.segmented_cumsum(x, edges),
            tcusim.segmented_cumsum(X, offsets),
            device,
        )
        same(tcusim.cumsum(x, initial=2.0), tcusim.cumsum(X, initial=2.0), device)
        longer = tcusim.cumsum(X, include_initial=True)
        same(tcusim.cumsum(x, include_initial=True), longer, device)
        same(tcusim.matmul(there(A), there(B.T)), tcusim.matmul(A, B.T), device)
        assert tcusim.cumsum(x, out=x) is x
        same(x, tcusim.cumsum(X), device)
    assert gpus.launches[1 - device] == 0


def test_what_torch_says_is_believed(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of((0, 0)))
    empty = Tensor(gpus, 1, X[:0])
    made = tcusim.cumsum(empty, include_initial=True)
    same(made, np.zeros(1, np.float16), 1)
    lies = Tensor(gpus, 1, X)
    lies.device = replace(lies.device, index=0)
    said = "a is on GPU 0, as its torch.Tensor says, and the driver says that its memory.*GPU 1"
    with pytest.raises(InputError, match=said):
        tcusim.sum(lies)


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_a_tensor_of_another_gpu_takes_the_short_way(
    gpus: Gpus,
    monkeypatch: pytest.MonkeyPatch,
    long_ways: list[int],
    library: str,
    current: int,
) -> None:
    modules = {"torch": torch_of((0, 0)), "cupy": cupy_of(gpus)}
    monkeypatch.setitem(sys.modules, library, modules[library])
    kind: Any = {"torch": Tensor, "cupy": CupyArray}[library]
    plan = tcusim.plan("cumsum", length=LENGTH, dtype="float16", options={"backend": "cuda"})
    expected = tcusim.cumsum(X)
    with gpus.current(current):
        for device in (0, 1):
            x = kind(gpus, device, X)
            long_ways.clear()
            for _ in range(3):
                same(plan(x), expected, device)
            out = kind(gpus, device, X)
            assert plan(x, out=out) is out
            same(out, expected, device)
            for _ in range(2):
                out = kind(gpus, device, X)
                assert plan(out, out=out) is out
                same(out, expected, device)
            # A first call, one with out=, and one in place.
            assert long_ways == [device] * 3
    assert gpus.launches[0] == gpus.launches[1]


def test_a_plan_is_for_the_gpu_of_its_array(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    for given, able in (("75,90", 1), ("90,75", 0)):
        # A GPU that changes into another is none: calls prepared for one are kept.
        forget_plans()
        monkeypatch.setenv("TWO_GPUS_SM", given)
        a, b = Array(gpus, able, A), Array(gpus, able, B.T)
        # Turing has no bf16, the parts of a product of float32.
        same(tcusim.matmul(a, b), tcusim.matmul(A, B.T, options={"arch": "hopper"}), able)
        with pytest.raises(InputError, match="turing"):
            tcusim.matmul(Array(gpus, 1 - able, A), Array(gpus, 1 - able, B.T))
        for device, arch in ((able, "hopper"), (1 - able, "turing")):
            # Float16 is added up as each of them does.
            half = A.astype(np.float16)
            x, y = Array(gpus, device, half), Array(gpus, device, half.T.copy())
            same(tcusim.matmul(x, y), tcusim.matmul(half, half.T, options={"arch": arch}), device)
            same(tcusim.sum(x, axis=1), tcusim.sum(half, axis=1, options={"arch": arch}), device)
            assert CUDA.native_arch(x) == arch
        assert CUDA.native_arch() == ("turing" if able else "hopper")
        with gpus.current(1):
            assert CUDA.native_arch() == ("hopper" if able else "turing")
        named = tcusim.plan(
            "sum", length=X.size, dtype="float16", options={"arch": "turing", "backend": "cuda"}
        )
        if able:
            # The plan is prepared for the current GPU, which computes so by its instruction.
            text = f"arch 'turing', but GPU {able} is an Stand-in {able}"
            with pytest.raises(InputError, match=text):
                named(Array(gpus, able, X))
        else:
            # The lanes of the current GPU multiply by the named rule.
            same(named(Array(gpus, able, X)), tcusim.sum(X, options={"arch": "turing"}), able)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_calls_that_are_kept_are_for_one_gpu(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setenv("TWO_GPUS_SM", "75,90")
    modules = {"torch": torch_of((0, 0)), "cupy": cupy_of(gpus)}
    monkeypatch.setitem(sys.modules, library, modules[library])
    kind: Any = {"torch": Tensor, "cupy": CupyArray}[library]
    half = (A * 1000).astype(np.float16)
    for device, arch in (0, "turing"), (1, "hopper"), (0, "turing"):
        x, y = kind(gpus, device, half), kind(gpus, device, half.T.copy())
        got = tcusim.matmul(x, y, dtype="float32", options={"backend": "cuda"})
        same(got, tcusim.matmul(half, half.T, dtype="float32", options={"arch": arch}), device)
    able = tcusim.matmul(kind(gpus, 1, A), kind(gpus, 1, A.T.copy()), options={"backend": "cuda"})
    same(able, tcusim.matmul(A, A.T, options={"arch": "hopper"}), 1)
    with pytest.raises(InputError, match="turing"):
        tcusim.matmul(kind(gpus, 0, A), kind(gpus, 0, A.T.copy()), options={"backend": "cuda"})


def test_arrays_on_two_gpus_are_refused(gpus: Gpus) -> None:
    here, there = Array(gpus, 0, X), Array(gpus, 1, X)
    with pytest.raises(InputError, match="a is on GPU 1, out is on GPU 0"):
        tcusim.cumsum(there, out=here)
    edges = Array(gpus, 0, np.array([0, 9, LENGTH]))
    with pytest.raises(InputError, match="a is on GPU 1, offsets is on GPU 0"):
        tcusim.segmented_sum(there, tcusim.Segments(edges, check=False))
    assert gpus.launches == (0, 0)


def test_a_stream_of_another_gpu_is_refused(gpus: Gpus) -> None:
    driver = Driver.open()
    with gpus.current(0):
        stream = int(driver._call("cuStreamCreate", 0))
    for x in (Array(gpus, 1, X), Array(gpus, 1, X, context=0)):
        with pytest.raises(
            InputError, match="stream is a stream of GPU 0, and the arrays are on GPU 1"
        ):
            tcusim.sum(x, options={"stream": stream})
    assert gpus.launches == (0, 0)
    here = Array(gpus, 0, X)
    made = tcusim.sum(here, options={"stream": stream}, dtype="float32")
    driver.wait(stream)
    same(made, tcusim.sum(X, dtype="float32"), 0)


def test_a_context_of_its_own(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    context = gpus.library.two_gpus_context(1)
    x = Array(gpus, 1, X, context)
    with pytest.raises(
        InputError, match="a CUDA context of GPU 1 that is not its primary one"
    ) as told:
        tcusim.sum(x)
    assert "pycuda" not in str(told.value).lower()
    monkeypatch.setitem(sys.modules, "pycuda", torch_of((0, 0)))
    with pytest.raises(InputError, match=r"Import pycuda\.autoprimaryctx"):
        tcusim.sum(x)
    with pytest.raises(InputError, match="a and out belong to different CUDA contexts of GPU 1"):
        tcusim.cumsum(x, out=Array(gpus, 1, X))


def test_streams_are_counted_for_each_gpu(gpus: Gpus) -> None:
    plan = tcusim.plan("cumsum", length=LENGTH, dtype="float16", options={"backend": "cuda"})
    streams = []
    for device in (0, 1):
        with gpus.current(device):
            made = [int(Driver.open()._call("cuStreamCreate", 0)) for _ in range(8)]
        streams += [(device, stream) for stream in made]
    session: Any = plan.session_on(CUDA)
    for _ in range(3):
        for device, stream in streams:
            x = Array(gpus, device, X)
            session.run({"in": x}, out=x, shape=X.shape, stream=stream)
    assert len(session.queues) == 16


def test_threads_on_both_gpus(gpus: Gpus) -> None:
    expected, said = tcusim.cumsum(X), []

    def work(device: int) -> None:
        try:
            for _ in range(4):
                same(tcusim.cumsum(Array(gpus, device, X)), expected, device)
        except BaseException as error:
            said.append(error)

    threads = [threading.Thread(target=work, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == []


@pytest.mark.parametrize("current", [0, 1, None])
def test_memory_is_freed_in_its_own_context(gpus: Gpus, current: int | None) -> None:
    driver = Driver.open()
    with driver.in_primary_context(1):
        freed, gone = CUDA.memory(None, 100, 0), CUDA.memory(None, 100, 0)
    context = 0 if current is None else driver.primary_context(current)
    driver.set_context(context)
    gpus.library.two_gpus_release(ctypes.c_uint64(gone[1]))
    del freed, gone
    gc.collect()
    assert driver.current_context() == context
    driver.set_context(driver.primary_context(0))


def test_memory_is_freed_while_a_graph_is_captured(gpus: Gpus) -> None:
    memory = CUDA.memory(None, 100, 0)
    with gpus.current(1):
        stream = int(Driver.open()._call("cuStreamCreate", 0))
    handle = ctypes.c_void_p(int(stream))
    gpus.library.two_gpus_capture(handle, 1)
    try:
        del memory
        gc.collect()
    finally:
        gpus.library.two_gpus_capture(handle, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_is_told(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of((0, 0)))
    x = Tensor(gpus, 1, X)
    plan = tcusim.plan("cumsum", length=LENGTH, dtype="float16", options={"backend": "cuda"})
    session: Any = plan.session_on(CUDA)
    plan(x)
    memory = CUDA.memory(None, 100, 0)
    calls: list[Any] = [
        lambda: tcusim.sum(x),
        lambda: plan(x),
        lambda: session.run({"in": x}, shape=X.shape),
        lambda: plan(X),
    ]
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # That other threads are not copied is known.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        said = set()
        for call in calls:
            try:
                call()
                said.add("nothing")
            except BaseException as error:
                said.add(str(error))
        del memory
        gc.collect()
        os.write(writer, "\n".join(said).encode())
        os._exit(0)
    os.close(writer)
    assert os.waitpid(child, 0)[1] == 0
    with os.fdopen(reader) as told:
        text = told.read()
    assert "does not survive that. Start processes with 'spawn'" in text
    assert "\n" not in text
    same(plan(x), tcusim.cumsum(X), 1)


class _Managed(ctypes.Structure):
    """The beginning of DLManagedTensorVersioned or DLManagedTensor of dlpack.h, from its tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
    )


@pytest.mark.parametrize("device", [0, 1])
def test_a_result_says_by_dlpack_where_it_is(gpus: Gpus, device: int) -> None:
    made: Any = tcusim.sum(Array(gpus, device, X), dtype="float32")
    assert made.__dlpack_device__() == (2, device)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = made.__dlpack__()
    managed = _Managed.from_address(get(capsule, b"dltensor"))
    assert (managed.data, managed.device_type, managed.device) == (address_of(made), 2, device)


class SpeaksDlpack:
    """An array with DLPack only; it records the current GPU of each call."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.asked: list[tuple[int | None, int]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.result.__dlpack_device__()
        return device

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        self.asked.append((stream, Driver.open().current_device()))
        return self.result.__dlpack__(stream=stream, **options)


@pytest.mark.parametrize("device", [0, 1])
def test_who_exports_by_dlpack_orders_for_the_stream_of_its_own_gpu(
    gpus: Gpus, device: int
) -> None:
    # Work of ours on a stream of that GPU, not on the default stream of the current one.
    scanned = tcusim.cumsum(Array(gpus, device, X))
    given = SpeaksDlpack(scanned)
    with gpus.current(1 - device):
        got = tcusim.sum(given, dtype="float32")
    assert set(given.asked) == {(1, device)}
    same(got, tcusim.sum(tcusim.cumsum(X), dtype="float32"), device)


def test_arrays_of_xla(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class XlaArray:
        """As in tcusim.jax.ffi: JAX comes with it."""

        ptr: int
        shape: tuple[int, ...]
        dtype: Any
        stream: int

        strides: ClassVar[None] = None

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            place = {"data": (self.ptr, False), "stream": self.stream, "version": 3}
            return {"shape": self.shape, "typestr": self.dtype.str, "strides": None, **place}

    module: Any = ModuleType("tcusim.jax.ffi")
    module.XlaArray = XlaArray
    monkeypatch.setitem(sys.modules, "tcusim.jax.ffi", module)
    monkeypatch.setenv("TWO_GPUS_SM", "75,90")
    half = (A * 1000).astype(np.float16)
    streams = []
    for device in (0, 1):
        with gpus.current(device):
            streams.append(int(Driver.open()._call("cuStreamCreate", 0)))
    # With either one current, and after other computations on like arrays.
    for current in (0, 1):
        for device, arch in ((0, "turing"), (1, "hopper")):
            module.current_stream = lambda device=device: streams[device]
            arrays = [Array(gpus, device, one) for one in (half, half.T.copy())]
            wanted = tcusim.matmul(half, half.T, dtype="float32", options={"arch": arch})
            out = Array(gpus, device, np.zeros_like(wanted))
            with gpus.current(current):
                x, y, to = (
                    XlaArray(one.address, one.shape, one.dtype, streams[device])
                    for one in (*arrays, out)
                )
                tcusim.matmul(
                    x, y, dtype="float32", out=to, options={"stream": to.stream, "backend": "cuda"}
                )
            with gpus.current(device):
                Driver.open().wait(streams[device])
            same(out, wanted, device)
    for device in (1, 0):
        x, y = (
            XlaArray(one.address, one.shape, one.dtype, streams[device])
            for one in (Array(gpus, device, A), Array(gpus, device, A.T.copy()))
        )
        out = Array(gpus, device, np.zeros((48, 48), np.float32))
        to = XlaArray(out.address, out.shape, out.dtype, streams[device])
        refused = pytest.raises(InputError, match="turing") if device == 0 else nullcontext()
        with refused:
            tcusim.matmul(x, y, out=to, options={"stream": to.stream, "backend": "cuda"})


def test_what_is_copied_there_may_change_at_once(gpus: Gpus) -> None:
    like = Array(gpus, 1, X)
    values = np.arange(5)
    there = CUDA.to_device(values, like)
    values[...] = 0
    same(there, np.arange(5), 1)


def test_arrays_of_numpy_go_where_the_stream_is(gpus: Gpus) -> None:
    plan = tcusim.plan("cumsum", length=LENGTH, dtype="float16", options={"backend": "cuda"})
    with gpus.current(1):
        stream = int(Driver.open()._call("cuStreamCreate", 0))
    given = {plan.launch_plan.inputs[0]: X}
    (found,) = CUDA.run(plan.launch_plan, given, stream=stream).values()
    assert found.tobytes() == tcusim.cumsum(X).tobytes()
    assert gpus.launches[0] == 0


def test_a_gpu_launches_while_another_waits_for_its_compiler(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWO_GPUS_SM", "80,90")
    begun, go_on = threading.Event(), threading.Event()

    def compile_kernels(kernels: Any, sm: int) -> Any:
        if sm == 90:
            begun.set()
            assert go_on.wait(20)
        return gpus.compile_kernels(kernels, sm)

    monkeypatch.setattr(runtime, "compile_kernels", compile_kernels)
    monkeypatch.setattr(CUDA, "_loaded", {})
    plan = tcusim.plan("cumsum", length=LENGTH, dtype="float16", options={"backend": "cuda"})
    found: list[Any] = []
    slow = threading.Thread(target=lambda: found.append(plan(Array(gpus, 1, X))))
    slow.start()
    assert begun.wait(20)
    # The same plan, and another one.
    quick = threading.Thread(
        target=lambda: found.extend((plan(Array(gpus, 0, X)), tcusim.sum(Array(gpus, 0, X))))
    )
    quick.start()
    quick.join(10)
    done = len(found)
    go_on.set()
    slow.join()
    quick.join()
    assert done == 2
    same(found[0], tcusim.cumsum(X, options={"arch": "ampere"}), 0)
    same(found[2], tcusim.cumsum(X, options={"arch": "hopper"}), 1)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_calls_with_initial_values_take_the_short_way(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, long_ways: list[int], library: str
) -> None:
    modules = {"torch": torch_of((0, 0)), "cupy": cupy_of(gpus)}
    monkeypatch.setitem(sys.modules, library, modules[library])
    kind: Any = {"torch": Tensor, "cupy": CupyArray}[library]
    half = X[:2996].reshape(2, 1498)
    options: dict[str, Any] = {"axis": 1, "dtype": "float32", "backend": "cuda"}
    for device in (0, 1):
        a = kind(gpus, device, half)
        for n in range(4):
            values = np.array([n, -0.5 - n], np.float32)
            expected = tcusim.cumsum(half, axis=1, dtype="float32", initial=values)
            # On the GPU it is used where it is; else it is copied there in each call.
            for initial in (values, values.tolist(), kind(gpus, device, values)):
                same(tcusim.cumsum(a, initial=initial, **asked(**options)), expected, device)
            same(
                tcusim.cumsum(a, initial=n, **asked(**options)),
                tcusim.cumsum(half, axis=1, dtype="float32", initial=n),
                device,
            )
    # The first call with values of the computer and of the GPU, and each copy to the GPU.
    assert [long_ways.count(device) for device in (0, 1)] == 2 * [2 + 4 * 3]
    here, there = kind(gpus, 0, half), kind(gpus, 1, np.zeros(2, np.float32))
    with pytest.raises(InputError, match=r"GPU 0.*GPU 1"):
        tcusim.cumsum(here, initial=there, **asked(**options))
    for wrong in (np.zeros(3), kind(gpus, 0, np.zeros(3, np.float32))):
        for _ in range(2):
            with pytest.raises(InputError, match="initial"):
                tcusim.cumsum(here, initial=wrong, **asked(**options))
