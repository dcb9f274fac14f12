"""Gradients in torch and JAX: sums, scans and products with the options of the call."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked

X, CHANGE = (
    np.random.default_rng(seed).standard_normal((4, 300), dtype=np.float32) for seed in (1, 2)
)
OFFSETS = np.array([0, 7, 7, 120, 300])
# Of the kinds of bits: they differ for the sums of these tests.
KINDS = [asked(bits=bits) for bits in ("segment", "exact")]


def _of_torch(call: Callable[..., Any], given: tuple[Any, ...], change: Any) -> Any:
    import torch

    operands = [torch.tensor(one, requires_grad=True) for one in given]
    found = torch.autograd.grad(call(*operands), operands, torch.tensor(change))
    return [one.numpy() for one in found]


def _of_torch_func(call: Callable[..., Any], given: tuple[Any, ...], change: Any) -> Any:
    import torch

    back = torch.func.vjp(call, *map(torch.tensor, given))[1]
    return [one.numpy() for one in back(torch.tensor(change))]


def _of_jax(call: Callable[..., Any], given: tuple[Any, ...], change: Any) -> Any:
    import jax

    return map(np.asarray, jax.vjp(call, *given)[1](change))


def library(name: str) -> Any:
    """Return tcusim's module for a library, if that is installed."""
    pytest.importorskip(name)
    return importlib.import_module(f"tcusim.{name}")


FRAMEWORKS = {"torch": _of_torch, "torch.func": _of_torch_func, "jax": _of_jax}


def same(got: Any, expected: Any) -> None:
    assert got.shape == np.shape(expected)
    assert got.tobytes() == np.asarray(expected).tobytes()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_scans_and_initial_values(name: str) -> None:
    module = library(name.partition(".")[0])
    sums = [tcusim.sum(CHANGE, axis=1, **more) for more in KINDS]
    assert (sums[0] != sums[1]).any()
    for more in KINDS:
        cases: list[tuple[Any, Any, dict[str, Any]]] = [
            ((4,), 1, {}),
            ((1,), (0, 1), {"reverse": True}),
            ((), (0, 1), {"exclusive": True}),
        ]
        for shape, axes, order in cases:

            def scan(x: Any, initial: Any, order: Any = order, more: Any = more) -> Any:
                return module.cumsum(x, 1, initial=initial, **order, **more)

            given = X, np.ones(shape, np.float32)
            own, total = FRAMEWORKS[name](scan, given, CHANGE)
            turned = {**order, "reverse": "reverse" not in order}
            same(own, tcusim.cumsum(CHANGE, axis=1, **turned, **more))
            same(total, np.reshape(tcusim.sum(CHANGE, axis=axes, **more), shape))


@pytest.mark.parametrize("name", ["torch", "torch.func"])
def test_segments(name: str) -> None:
    tct = library("torch")
    sums = [tcusim.segmented_sum(CHANGE, OFFSETS, **more) for more in KINDS]
    assert (sums[0] != sums[1]).any()
    for expected, more in zip(sums, KINDS, strict=True):

        def scan(x: Any, initial: Any, more: Any = more) -> Any:
            return tct.segment_cumsum(x, OFFSETS.tolist(), initial=initial, **more)

        own, total = FRAMEWORKS[name](scan, (X, np.ones((4, 4), np.float32)), CHANGE)
        same(own, tcusim.segmented_cumsum(CHANGE, OFFSETS, reverse=True, **more))
        same(total, expected)

        # The gradient of a sum is linear in its own change, with sums of segments as gradient.
        def spread(change: Any, more: Any = more) -> Any:
            import torch

            call = partial(tct.segment_sum, segments=OFFSETS.tolist(), **more)
            if name == "torch.func":
                return torch.func.vjp(call, torch.from_numpy(X))[1](change)[0]
            x = torch.tensor(X, requires_grad=True)
            return torch.autograd.grad(call(x), x, change, create_graph=True)[0]

        (second,) = FRAMEWORKS[name](spread, (np.ones((4, 4), np.float32),), CHANGE)
        same(second, expected)


def test_architectures_of_jax() -> None:
    """A factor that is broadcast gets the sum of its gradients, as the architecture adds."""
    tj = library("jax")
    a, b = X[None, None, :, :40], X.reshape(2, 3, 40, 5)
    change = CHANGE[:, :30].reshape(2, 3, 4, 5)
    found = {}
    for arch in ("volta", "hopper"):
        more: dict[str, Any] = {"options": {"arch": arch}}
        left, _ = _of_jax(partial(tj.matmul, **more), (a, b), change)
        each = tcusim.matmul(change, b.swapaxes(-1, -2), **more)
        found[arch] = tcusim.sum(each, axis=(0, 1), **more).reshape(a.shape)
        same(left, found[arch])
    assert (found["volta"] != found["hopper"]).any()
