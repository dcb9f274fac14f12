"""`tcusim.jax`: NumPy's bits under jit, vmap and grad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError, UnknownName

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


def test_stacks_of_several_ranks_are_mapped() -> None:
    x, y = array("float16", 2, 5, 6), array("float16", 2, 2, 6, 3)
    together = jax.vmap(tj.matmul)(x, y)
    same(together, np.stack([tcusim.matmul(one, two) for one, two in zip(x, y, strict=True)]))


def test_segments_as_jax_has_them() -> None:
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    for ids in ([2, 0, 2, 1, 0, 2], [-1, 0, 300, 2, -5, 3], [7, 8, 9, 7, 8, 9]):
        for kind in (np.int32, np.int16, np.uint16):
            numbers = np.array(ids).astype(kind)
            for count in (1, 3, 10):
                same(tj.segment_sum(x, numbers, count), jax.ops.segment_sum(x, numbers, count))
                got, usual = (
                    jax.grad(lambda a, f=f, i=numbers, n=count: (f(a, i, n) ** 2).sum())(x)
                    for f in (tj.segment_sum, jax.ops.segment_sum)
                )
                same(got, usual)
    given = np.array([3, 0, 0, 1, 3, 1])
    usual = jax.ops.segment_sum(x, given)
    same(tj.segment_sum(x, given), usual)
    same(tj.segment_sum(x, given, None, False, False, 2, "drop"), usual)
    one = np.array([1], np.int8)
    same(tj.segment_sum(x[:1], one, 300), jax.ops.segment_sum(x[:1], one, 300))
    # Those of a segment keep their order, and so the bits.
    y, many = array("float16", 500), np.random.default_rng(1).integers(0, 3, 500)
    same(tj.segment_sum(y, many, 3), np.stack([tcusim.sum(y[many == one]) for one in range(3)]))
    with pytest.raises(InputError, match=r"mode must be None or 'drop', got 'clip'"):
        tj.segment_sum(x, given, mode="clip")
    for wrong in (given[:3], given[None], given.astype(np.float32)):
        with pytest.raises(InputError, match="segment_ids must be integers, one for each of the f"):
            tj.segment_sum(x, wrong, 3)


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
    with pytest.raises(InputError, match=r"axis must be one integer, got \(0, 0\); call once for"):
        tj.sum(np.ones(2), (0, 0))
    with pytest.raises(InputError, match="an array without axes has none to sum along"):
        tj.cumsum(np.float32(1))
    with pytest.raises(InputError, match="arrays of complex64 are not summed"):
        tj.sum(np.ones(2, np.complex64))
    assert tj.sum(np.arange(3), dtype=int).item() == 3
    with pytest.raises(InputError, match=r"b \(\.\.\., k, n\), with the same k; got"):
        tj.matmul(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(UnknownName, match="pascal"):
        tj.sum(np.ones(2), arch="pascal")
