"""The operation of JAX behind the functions: JAX's rules for a primitive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim

jax: Any = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402 - jax is there

from tcusim.jax.primitives import How, computed  # noqa: E402

F32 = np.dtype(np.float32)
X = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)


def same(got: Any, expected: Any) -> None:
    assert np.asarray(got).tobytes() == np.asarray(expected).tobytes()


def test_it_runs_outside_of_a_compiled_function() -> None:
    same(computed(How("sum", F32, None), jnp.asarray(X)), tcusim.sum(X, axis=1))
    how = How("cumsum", F32, "ampere", True, True)
    expected = tcusim.cumsum(X, axis=1, exclusive=True, reverse=True, options={"arch": "ampere"})
    same(computed(how, jnp.asarray(X)), expected)


def test_rows_with_offsets_of_their_own() -> None:
    offsets = np.array([[0, 1, 6], [0, 6, 6], [0, 0, 6], [0, 3, 6]])
    got = computed(How("segmented_sum", F32, None), jnp.asarray(X), jnp.asarray(offsets))
    for row, edges, sums in zip(X, offsets, got, strict=True):
        same(sums, tcusim.segmented_sum(row, edges))
    turned = jax.vjp(
        lambda x: computed(How("segmented_sum", F32, None), x, jnp.asarray(offsets)), X
    )[1](jnp.arange(8, dtype=F32).reshape(4, 2))[0]
    assert turned[0].tolist() == [0, 1, 1, 1, 1, 1]
    assert turned[3].tolist() == [6, 6, 6, 7, 7, 7]


def test_what_does_not_move_has_no_tangent() -> None:
    how = How("matmul", F32, None)
    infinite = jnp.full((2, 2), jnp.inf)
    _, moved = jax.jvp(
        lambda a: computed(how, a, jnp.ones((2, 2))), (infinite,), (jnp.ones((2, 2)),)
    )
    assert bool(jnp.isfinite(moved).all())
    whole = How("sum", np.dtype(np.int32), None)
    _, none = jax.jvp(lambda a: computed(whole, jnp.arange(3)) * a, (2.0,), (1.0,))
    assert float(none) == 3


def test_four_devices() -> None:
    if not hasattr(jax, "shard_map") or not hasattr(jax.sharding, "AxisType"):
        pytest.skip("this jax has no jax.shard_map")
    script = Path(__file__).parents[1] / "shared" / "jax_devices.py"
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
