"""The bits of tensors on the CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import UnknownName

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import tcusim.torch as tct  # noqa: E402 - torch is there
from tcusim.torch.simulation import arch_for, predict, simulated  # noqa: E402


def wide() -> Any:
    rng = np.random.default_rng(1)
    return rng.lognormal(0, 4, 1000).clip(0, 6e4).astype(np.float16)


def test_a_gpu_is_named_for_a_while() -> None:
    x = wide()
    here = torch.from_numpy(x)
    for arch in ("v100", "ampere"):
        expected = tcusim.cumsum(x, dtype=np.float32, options={"arch": arch})
        with simulated(arch):
            got = tct.cumsum(here, 0, dtype=torch.float32)
            graph = torch.compile(
                lambda x: tct.cumsum(x, 0, dtype=torch.float32), backend="aot_eager"
            )
            assert torch.equal(graph(here), got)
        assert got.numpy().tobytes() == expected.tobytes()
    assert arch_for(here) is None


def test_a_thread_has_the_gpu_of_its_own_context() -> None:
    """Two threads can simulate two GPUs; derivatives on the CPU are of the thread that asks."""
    x = torch.ones(4, dtype=torch.float16, requires_grad=True)
    seen: list[str | None] = []

    class Noting(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            seen.append(arch_for(gradient))
            return gradient

    with simulated("v100"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(arch_for, x).result() is None
        assert pool.submit(copy_context().run, arch_for, x).result() == "volta"
        tct.sum(Noting.apply(x)).backward()
    assert seen == ["volta"]


def test_predict_runs_a_function_as_a_gpu_would() -> None:
    x = wide()
    module = torch.nn.Identity()
    for arch in ("volta", "hopper"):
        got = predict(lambda x, scale: tct.sum(module(x), dtype=scale), torch.from_numpy(x),
                      torch.float32, arch=arch)  # fmt: skip
        assert got.numpy() == tcusim.sum(x, dtype=np.float32, options={"arch": arch})


def test_an_unknown_gpu() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'hopper'"), simulated("hoper"):
        pass
