"""Operations of JAX: through XLA's own call frames, on its CPU, and on the host."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcusim
from gpu_standin import StandIn
from launch_plans import forget_plans
from tcusim import backends
from tcusim.errors import Unsupported

jax: Any = pytest.importorskip("jax", reason="jax is not installed")


import tcusim.jax  # noqa: E402
from tcusim.jax import ffi, operations  # noqa: E402
from tcusim.jax import functions as tj  # noqa: E402

IDS = np.array([0, 0, 2, 2, 2])
_NUMBERS = itertools.count()


def array(dtype: Any, *shape: int) -> Any:
    return (np.random.default_rng(4).standard_normal(shape) * 3).astype(dtype)


def same(got: Any, expected: Any) -> None:
    values = np.asarray(expected)
    assert (np.asarray(got).dtype, np.shape(got)) == (values.dtype, values.shape)
    assert np.asarray(got).tobytes() == values.tobytes()


@pytest.fixture
def standing_in(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Have XLA's CPU call the handler: it launches on a GPU that the simulator stands in for."""
    backends.register_backend(gpu)
    monkeypatch.setattr(operations, "_BACKEND", gpu.name)
    monkeypatch.setattr(operations, "_PLATFORM", ("cpu", "cpu"))
    # XLA takes each name once.
    monkeypatch.setattr(operations, "_TARGET", f"tcusim test {next(_NUMBERS)}")
    monkeypatch.setattr(operations, "_HOST", ("cpu", f"tcusim test {next(_NUMBERS)}"))
    monkeypatch.setattr(operations, "Handler", partial(ffi.Handler, on_stream=False))
    found = (operations._find.cache_clear, operations._host_takes_handlers.cache_clear)
    clears = (*found, jax.clear_caches, forget_plans)
    for clear in clears:
        clear()
    yield gpu
    for clear in clears:
        clear()


@pytest.fixture
def xla(standing_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Have nothing computed on the host."""

    traced = jax.pure_callback

    def refuse(*values: Any) -> Any:
        raise AssertionError("computed on the host")

    def instead(function: Any, *arguments: Any, **keywords: Any) -> Any:
        return traced(refuse, *arguments, **keywords)

    monkeypatch.setattr(jax, "pure_callback", instead)
    monkeypatch.setattr(operations, "_compute", refuse)
    return standing_in


# --- XLA's own frames -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", ml_dtypes.bfloat16, "int8"])
def test_bits_are_numpys(xla: StandIn, dtype: Any) -> None:
    x = array(dtype, 5, 300)
    wide: dict[str, Any] = {"dtype": "int32"} if dtype == "int8" else {}
    same(tj.sum(x, 1), tcusim.sum(x, axis=1, **wide))
    same(tj.sum(x, 0, keepdims=True), tcusim.sum(x, axis=0, keepdims=True, **wide))
    same(tj.sum(x), tcusim.sum(x, **wide))
    # Scans and segments of int8 are of int8: the GPU makes them of its int32.
    own = {"dtype": dtype}
    for axis in (0, 1):
        same(tj.cumsum(x, axis, reverse=True, exclusive=True),
             tcusim.cumsum(x, axis=axis, reverse=True, exclusive=True, **own))  # fmt: skip
    same(tj.cumsum(x, 1, initial=3), tcusim.cumsum(x, axis=1, initial=3, **own))
    same(
        tj.segment_sum(x, IDS, 4, indices_are_sorted=True),
        tcusim.segmented_sum(x, tcusim.Segments(ids=IDS, count=4), axis=0, **own),
    )
    same(tj.matmul(x, x.T), tcusim.matmul(x, x.T, **wide))
    assert xla.launches >= 8


def test_transformed(xla: StandIn) -> None:
    x = array("float32", 4, 5, 6)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda a: tj.sum(a, 0),
        lambda a: tj.cumsum(a, -1),
        lambda a: tj.segment_sum(a, IDS, 3),
        lambda a: tj.matmul(a, a.T),
        lambda a: jax.vmap(tj.sum)(a),
    )
    for call in calls:
        one_by_one = np.stack([call(one) for one in x])
        same(jax.vmap(call)(x), one_by_one)
        same(jax.jit(jax.vmap(call))(x), one_by_one)
        together = jax.vmap(jax.vmap(call))(x.reshape(2, 2, 5, 6))
        same(together, one_by_one.reshape(together.shape))
        same(jax.vmap(call)(x[:0]), one_by_one[:0])
        gradient = jax.vmap(jax.grad(lambda a, call=call: (call(a) ** 2).sum()))(x)
        assert gradient.shape == x.shape
    assert xla.launches


def test_several_threads(xla: StandIn) -> None:
    arrays = [array("float32", 3, 100 + number % 3) for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        results = list(
            pool.map(lambda x: np.asarray(jax.jit(tj.cumsum, static_argnums=1)(x, 1)), arrays)
        )
    for x, result in zip(arrays, results, strict=True):
        same(result, tcusim.cumsum(x, axis=1))
    assert xla.launches == 12


@pytest.mark.usefixtures("xla")
def test_nothing_to_compute() -> None:
    for shape in ((0,), (3, 0), (0, 3)):
        x = np.zeros(shape, np.float32)
        same(tj.sum(x, -1), np.zeros(shape[:-1], np.float32))
        same(tj.cumsum(x, -1), x)
    same(tj.matmul(np.zeros((2, 0), "f4"), np.zeros((0, 3), "f4")), np.zeros((2, 3), "f4"))
    same(tj.segment_sum(np.zeros((0, 2), "f4"), np.zeros(0, int), 3), np.zeros((3, 2), "f4"))
    same(tj.segment_sum(np.ones((2, 2), "f4"), np.zeros(2, int), 0), np.zeros((0, 2), "f4"))


def test_an_error_of_a_launch_is_one_of_xla(xla: StandIn) -> None:
    x = array("float32", 3, 64)
    xla.fails = ZeroDivisionError("nobody divides\0by it")
    text = r"INTERNAL: tcusim\.jax: stand-in: .* failed: ZeroDivisionError: nobody divides by it"
    for call in (tj.sum, jax.jit(lambda a: tj.sum(a, 1) * 2)):
        with pytest.raises(Exception, match=text):
            jax.block_until_ready(call(x))
    xla.fails = None
    same(tj.sum(x, 1), tcusim.sum(x, axis=1))


# --- On the host ----------------------------------------------------------------------------------


def test_what_the_gpu_computes_otherwise_goes_to_the_host(standing_in: StandIn) -> None:
    x = array("float16", 3, 40)
    same(tj.sum(x, 1, options={"arch": "v100"}), tcusim.sum(x, axis=1, options={"arch": "volta"}))
    assert tj.sum(np.arange(5, dtype=np.int16)).tolist() == 10
    few, more = np.ones((2, 3), np.int8), np.ones((3, 2), np.int32)
    assert tj.matmul(few, more).tolist() == [[3, 3], [3, 3]]
    assert standing_in.launches == 0
    same(tj.sum(x, 1, options={"arch": "h200"}), tcusim.sum(x, axis=1))
    assert standing_in.launches == 1


@pytest.mark.parametrize(
    ("lacking", "text"),
    [
        ("jax.ffi", "XLA takes no handler from Python: ModuleNotFoundError: import of jax.ffi"),
        ("the platform", "cuda"),
        ("the backend", "stand-in: It is not here."),
        ("the version", "version"),
        ("an architecture", "nobody knows the arithmetic of this GPU"),
    ],
)
def test_without_a_piece(
    standing_in: StandIn, monkeypatch: pytest.MonkeyPatch, lacking: str, text: str
) -> None:
    def refuse(value: Any) -> Any:
        raise Unsupported("another layout")

    match lacking:
        case "jax.ffi":
            monkeypatch.setitem(sys.modules, "jax.ffi", None)
        case "the platform":
            monkeypatch.setattr(operations, "_PLATFORM", ("cuda", "CUDA"))
        case "the backend":
            monkeypatch.setattr(standing_in, "available", lambda: "It is not here.")
        case "the version":
            monkeypatch.setattr(ffi, "_known", refuse)
        case "an architecture":
            monkeypatch.setattr(standing_in, "native_arch", lambda array=None: None)
    x = array("float16", 3, 40)
    same(tj.sum(x, 1), tcusim.sum(x, axis=1))
    assert (operations.gpu_archs(), standing_in.launches) == ((), 0)
    assert re.search(text, str(tcusim.jax.why_on_host()))


@pytest.fixture
def two_kinds(standing_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Have JAX see a GPU of Turing, and one of Hopper."""
    kinds = [SimpleNamespace(compute_capability=one) for one in ("7.5", "9.0")]
    monkeypatch.setattr(jax, "local_devices", lambda backend: kinds)
    return standing_in


def test_gpus_of_two_kinds(two_kinds: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    assert operations.gpu_archs() == ("turing", "hopper")
    x = array("float16", 3, 40)
    # Calls that both accept are launched, with the bits of the GPU at hand.
    same(tj.sum(x, 1), tcusim.sum(x, axis=1))
    assert two_kinds.launches == 1
    same(tj.sum(x, 1, options={"arch": "hopper"}), tcusim.sum(x, axis=1))
    assert two_kinds.launches == 2
    # Another architecture's bits are computed on the host.
    same(tj.sum(x, 1, options={"arch": "volta"}), tcusim.sum(x, axis=1, options={"arch": "volta"}))
    # Turing has no bfloat16, the parts of products of float32.
    y = array("float32", 3, 40)
    same(tj.matmul(y, y.T, options={"arch": "hopper"}), tcusim.matmul(y, y.T))
    launches = two_kinds.launches
    with pytest.raises(Exception, match="matmul of float32, float32: the GPUs are of several arch"):
        jax.block_until_ready(tj.matmul(y, y.T))
    assert two_kinds.launches == launches
