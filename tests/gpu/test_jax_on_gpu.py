"""On a GPU: the functions of `tcusim.jax` have the simulator's bits, and stay there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import on_gpu
import tcusim
from asked import asked
from on_gpu import arch, imported, require_bits
from tcusim.arrays.dtypes import numpy_type

pytestmark = pytest.mark.gpu(min_sm=80)

OFFSETS = (0, 3, 3, 500, 4096)
IDS = np.repeat(np.arange(4), np.diff(OFFSETS))
# Of rows (B, 4096): with tcusim.jax, and with tcusim.
CALLS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "sum": (lambda t, x: t.sum(x, 1), lambda x, k: tcusim.sum(x, axis=1, **asked(**k))),
    "sum of all": (lambda t, x: t.sum(x), lambda x, k: tcusim.sum(x, **asked(**k))),
    "cumsum": (
        lambda t, x: t.cumsum(x, 1, reverse=True),
        lambda x, k: tcusim.cumsum(x, axis=1, reverse=True, **asked(**k)),
    ),
    "cumsum down": (
        lambda t, x: t.cumsum(x, 0, exclusive=True),
        lambda x, k: tcusim.cumsum(x, axis=0, exclusive=True, **asked(**k)),
    ),
    "segment_sum": (
        lambda t, x: t.segment_sum(x.T, IDS, 4, indices_are_sorted=True),
        lambda x, k: tcusim.segmented_sum(x, OFFSETS, axis=1, **asked(**k)).T,
    ),
    "matmul": (
        lambda t, x: t.matmul(x[:, :500], x[:24, :500].T),
        lambda x, k: tcusim.matmul(x[:, :500], x[:24, :500].T, **asked(**k)),
    ),
}
DTYPES = ("float16", "bfloat16", "float32")


@pytest.fixture
def jax() -> Iterator[Any]:
    # Other tests want memory too.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = imported("jax")
    try:
        devices = jax.devices("cuda")
    except RuntimeError as error:
        pytest.skip(f"this jax has no CUDA: {error}")
    if on_gpu.GPU is not None:
        jax.config.update("jax_default_device", devices[on_gpu.GPU])
    yield jax
    jax.config.update("jax_default_device", None)


@pytest.fixture
def tj(jax: Any) -> Any:
    import tcusim.jax

    assert tcusim.jax.why_on_host() is None
    return tcusim.jax


def rows(dtype: str, batch: int = 40, length: int = 4096) -> Any:
    x = np.random.default_rng(batch).standard_normal((batch, length))
    return x.astype(numpy_type(dtype))


def same(got: Any, expected: Any) -> None:
    assert {device.platform for device in got.devices()} == {"gpu"}
    require_bits(np.asarray(got), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_bits_are_predicted(jax: Any, tj: Any, name: str, dtype: str) -> None:
    call, predicted = CALLS[name]
    x = rows(dtype)
    expected = predicted(x, {"arch": arch()})
    there = jax.device_put(x)
    function = jax.jit(lambda x: call(tj, x))
    same(function(there), expected)
    # Nothing goes to the host, and nothing is asked of it.
    with jax.transfer_guard("disallow"):
        again = function(there)
    same(again, expected)
    text = function.lower(there).compile().as_text()
    assert 'custom_call_target="tcusim"' in text
    assert "callback" not in text


@pytest.mark.parametrize("name", CALLS)
def test_vmap(jax: Any, tj: Any, name: str) -> None:
    call, _ = CALLS[name]
    x = jax.device_put(rows("float16", 120).reshape(3, 40, 4096))
    expected = np.stack([np.asarray(call(tj, one)) for one in x])
    same(jax.jit(jax.vmap(lambda x: call(tj, x)))(x), expected)


def test_derivatives(jax: Any, tj: Any) -> None:
    x = jax.device_put(rows("float32", 24, 500))
    pairs: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = (
        (lambda a: tj.sum(a, 1), lambda a: a.sum(1)),
        (lambda a: tj.cumsum(a, 1), lambda a: jax.numpy.cumsum(a, 1)),
        (lambda a: tj.segment_sum(a, IDS[:24], 4), lambda a: jax.ops.segment_sum(a, IDS[:24], 4)),
        (lambda a: tj.matmul(a, a.T), lambda a: jax.numpy.matmul(a, a.T, precision="highest")),
    )
    for ours, theirs in pairs:
        own, usual = (
            jax.jit(jax.grad(lambda a, f=f: (f(a) ** 2).mean()))(x) for f in (ours, theirs)
        )
        np.testing.assert_allclose(own, usual, rtol=1e-3, atol=1e-3)


def test_a_loop_within_a_function(jax: Any, tj: Any) -> None:
    """XLA makes command buffers of such loops."""
    x = rows("float32", 50, 3000)

    def step(total: Any, row: Any) -> tuple[Any, Any]:
        return total + tj.sum(row * 2), tj.cumsum(row + 1)

    loop = jax.jit(lambda x: jax.lax.scan(step, jax.numpy.float32(0), x))
    for seed in (50, 51, 52):
        x = rows("float32", seed, 3000)
        total, scans = loop(jax.device_put(x))
        same(scans, tcusim.cumsum(x + np.float32(1), axis=1, options={"arch": arch()}))
        expected = np.float32(0)
        for one in tcusim.sum(x * np.float32(2), axis=1, options={"arch": arch()}):
            expected = np.float32(expected + one)
        same(total, expected)


def test_many_calls_between_operations_of_xla(jax: Any, tj: Any) -> None:
    """XLA's computations before and after are ordered with the launches."""
    x = rows("float32", 300, 4096)
    function = jax.jit(lambda a: tj.cumsum(a * 2, 1) - tj.sum(a + 1, 1)[:, None])
    expected = tcusim.cumsum(x * np.float32(2), axis=1, options={"arch": arch()})
    expected = expected - tcusim.sum(x + np.float32(1), axis=1, options={"arch": arch()})[:, None]
    results = []
    for _ in range(30):
        there = jax.device_put(x)
        results.append(function(there))
        del there
    for result in results:
        same(result, expected)


def test_several_threads(jax: Any, tj: Any) -> None:
    arrays = [rows("float16", 20 + number % 3) for number in range(24)]
    function = jax.jit(lambda x: tj.cumsum(x, 1))
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda x: function(jax.device_put(x)), arrays))
    for x, result in zip(arrays, results, strict=True):
        same(result, tcusim.cumsum(x, axis=1, options={"arch": arch()}))


def test_what_this_gpu_computes_otherwise(jax: Any, tj: Any) -> None:
    x = rows("float16", 3, 500)
    there = jax.device_put(x)
    same(
        tj.sum(there, 1, options={"arch": "volta"}),
        tcusim.sum(x, axis=1, options={"arch": "volta"}),
    )
    numbers = np.arange(50, dtype=np.int16)
    assert tj.sum(jax.device_put(numbers)).tolist() == 1225


@pytest.mark.parametrize("length", [1, 2, 33, 1000, 8192])
def test_a_row_has_one_set_of_bits_in_any_batch(jax: Any, tj: Any, length: int) -> None:
    x = rows("bfloat16", 300, length)
    for name in ("sum", "cumsum"):
        call, predicted = CALLS[name]
        expected = predicted(x, {"arch": arch()})
        for batch in (1, 7, 300):
            same(call(tj, jax.device_put(x[:batch])), expected[:batch])
