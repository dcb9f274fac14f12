"""A test of tcusim.jax on four devices of a CPU: a script, since XLA makes them once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import tcusim
import tcusim.jax as tj

X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
CALLS: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    (lambda y: tj.sum(y, 1), lambda x: tcusim.sum(x, axis=1)),
    (lambda y: tj.sum(y, 0), lambda x: tcusim.sum(x, axis=0)),
    (tj.sum, tcusim.sum),
    (
        lambda y: tj.cumsum(y, 1, initial=y[:, 0]),
        lambda x: tcusim.cumsum(x, axis=1, initial=x[:, 0]),
    ),
    (lambda y: tj.matmul(y, X.T), lambda x: tcusim.matmul(x, X.T)),
    (lambda y: tj.matvec(y, X[0]), lambda x: tcusim.matvec(x, X[0])),
    (jax.vmap(tj.sum), lambda x: tcusim.sum(x, axis=1)),
)
# Of two rows.
LOSSES: tuple[Callable[[Any], Any], ...] = (
    lambda y: (tj.sum(y, 1) ** 2).sum(),
    lambda y: (tj.cumsum(y, 1) ** 2).sum(),
    lambda y: (tj.segment_cumsum(y, np.array([0, 1])) ** 2).sum(),
    lambda y: (tj.matvec(y, X[0]) ** 2).sum(),
)


# Of many bytes: JAX copies these in threads of its own, and all may wait for each other.
WIDE = np.random.default_rng(1).standard_normal((4, 8192)).astype(np.float32)
WIDE_SUMS = tcusim.sum(WIDE, axis=1)


def same(got: Any, expected: Any) -> None:
    assert np.asarray(got).tobytes() == np.asarray(expected).tobytes()


def on_a_mesh(kind: Any) -> None:
    """Sharded arrays have the bits of whole ones; within shard_map each device's are its own."""
    mesh, rows = jax.make_mesh((4,), ("d",), axis_types=(kind,)), PartitionSpec("d")
    there = jax.device_put(X, NamedSharding(mesh, rows))
    for ours, plain in CALLS:
        same(jax.jit(ours)(there), plain(X))
    for sharding in (NamedSharding(mesh, rows), NamedSharding(mesh, PartitionSpec(None, "d"))):
        same(jax.jit(lambda y: tj.sum(y, 1))(jax.device_put(WIDE, sharding)), WIDE_SUMS)
    gradient = jax.jit(jax.grad(lambda y: (tj.cumsum(y, 1) ** 2).sum()))(there)
    same(gradient, jax.grad(lambda y: (tj.cumsum(y, 1) ** 2).sum())(X))

    def parts(call: Callable[..., Any], *where: Any, out: Any = rows) -> Any:
        return jax.jit(jax.shard_map(call, mesh=mesh, in_specs=where, out_specs=out))

    mapped = parts(lambda y: tj.cumsum(y, 1), rows)(there)
    assert len(mapped.sharding.device_set) == 4
    same(mapped, tcusim.cumsum(X, axis=1))
    for loss in LOSSES:
        each = np.concatenate([jax.grad(loss)(X[place : place + 2]) for place in range(0, 8, 2)])
        same(parts(jax.grad(loss), rows)(there), each)
    # An array that all devices have gets the gradients of all.
    by_weight = parts(jax.grad(lambda w, y: (tj.matvec(w, y) ** 2).sum()), PartitionSpec(), rows,
                      out=PartitionSpec())(X[:5], there)  # fmt: skip
    np.testing.assert_allclose(by_weight, 2 * (X[:5] @ X.T) @ X, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    for axis_type in (AxisType.Auto, AxisType.Explicit):
        on_a_mesh(axis_type)
