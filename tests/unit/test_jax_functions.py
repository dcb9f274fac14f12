"""`tcusim.jax`: NumPy's bits under jit, vmap and grad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError

jax: Any = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402 - jax is there

import tcusim.jax  # noqa: E402
from tcusim.jax import functions as tj  # noqa: E402

IDS = np.array([0, 0, 2, 2, 2])


def array(dtype: str, *shape: int) -> Any:
    return np.random.default_rng(4).standard_normal(shape).astype(dtype)


def same(got: Any, expected: Any) -> None:
    values = np.asarray(expected)
    assert np.asarray(got).dtype == values.dtype
    assert np.asarray(got).tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bits_are_numpys(dtype: str) -> None:
    x = array(dtype, 5, 300)
    same(tj.sum(x, 1), tcusim.sum(x, axis=1))
    same(tj.sum(x), tcusim.sum(x))
    arch = "volta" if dtype == "float16" else "ampere"
    expected = tcusim.sum(x, axis=0, keepdims=True, arch=arch)
    same(tj.sum(x, 0, keepdims=True, arch=arch), expected)
    same(tj.cumsum(x, reverse=True, exclusive=True),
         tcusim.cumsum(x, axis=1, reverse=True, exclusive=True))  # fmt: skip
    same(
        tj.segment_sum(x, IDS, 4), tcusim.segmented_sum(x, segment_ids=IDS, num_segments=4, axis=0)
    )
    same(tj.matmul(x, x.T), tcusim.matmul(x, x.T))
    same(tj.sum(x, 1, "float32"), tcusim.sum(x, axis=1, dtype="float32"))
    assert tj.sum(np.ones(4, np.int8)).tolist() == 4


def test_transformed() -> None:
    x = array("float32", 4, 5, 6)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda a: tj.sum(a, 0),
        lambda a: tj.cumsum(a, -1),
        lambda a: tj.segment_sum(a, IDS, 3),
        lambda a: tj.matmul(a, a.T),
    )
    for call in calls:
        one_by_one = np.stack([call(one) for one in x])
        same(jax.vmap(call)(x), one_by_one)
        same(jax.jit(jax.vmap(call))(x), one_by_one)
    ids = np.stack([IDS, np.array([1, 1, 1, 1, 3]), IDS, IDS])
    together = jax.vmap(lambda a, i: tj.segment_sum(a, i, 4))(x, ids)
    same(together, np.stack([tj.segment_sum(a, i, 4) for a, i in zip(x, ids, strict=True)]))


def test_derivatives() -> None:
    x, y = array("float32", 5, 6), array("float32", 2, 6, 3)
    pairs: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = (
        (lambda a: tj.sum(a, 1), lambda a: a.sum(1)),
        (lambda a: tj.cumsum(a, 0), lambda a: jnp.cumsum(a, 0)),
        (lambda a: tj.segment_sum(a, IDS, 3), lambda a: jax.ops.segment_sum(a, IDS, 3)),
        (lambda a: tj.matmul(a, y), lambda a: a @ y),
    )
    for ours, theirs in pairs:
        own, usual = (jax.grad(lambda a, f=f: (f(a) ** 2).sum())(x) for f in (ours, theirs))
        np.testing.assert_allclose(own, usual, rtol=1e-4, atol=1e-4)
    by_b = jax.grad(lambda b: (tj.matmul(x, b) ** 2).sum())(y)
    np.testing.assert_allclose(
        by_b, jax.grad(lambda b: ((x @ b) ** 2).sum())(y), rtol=1e-4, atol=1e-4
    )


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"axis must be within -1\.\.0, got 3"):
        tj.sum(np.ones(2), 3)
    with pytest.raises(InputError, match=r"b \(\.\.\., k, n\), with the same k; got"):
        tj.matmul(np.ones((2, 3)), np.ones((2, 3)))
