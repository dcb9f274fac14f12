"""Norms of `tcusim.torch`: torch's values, and derivatives."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import tcusim.torch as tct  # noqa: E402 - torch is there
from tcusim.torch import norms  # noqa: E402

F = torch.nn.functional


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values_are_torchs(dtype: str) -> None:
    x = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(3)).to(getattr(torch, dtype))
    weight, bias = torch.rand(50).to(x), torch.rand(50).to(x)
    for ours, theirs in (
        (tct.mean(x), x.mean()),
        (tct.mean(x, (0, 2), True), x.mean((0, 2), True)),
        (tct.mean(x, -1, dtype=torch.float64), x.mean(-1, dtype=torch.float64)),
        (tct.rms_norm(x, 50, weight), F.rms_norm(x, (50,), weight)),
        (tct.rms_norm(x, (4, 50), eps=0.1), F.rms_norm(x, (4, 50), eps=0.1)),
        (tct.layer_norm(x, 50, weight, bias), F.layer_norm(x, (50,), weight, bias)),
        (tct.softmax(x, 1), F.softmax(x, 1)),
        (tct.log_softmax(x, -1), F.log_softmax(x, -1)),
        (tct.softmax(x, 2, dtype=torch.float64), F.softmax(x, 2, dtype=torch.float64)),
        (tct.logsumexp(x, 2), torch.logsumexp(x, 2)),
        (tct.logsumexp(x, 0, True), torch.logsumexp(x, 0, True)),
    ):
        assert ours.dtype == theirs.dtype
        # Two roundings of float16 at most: torch rounds before it multiplies by the weight.
        tolerance = {"rtol": 2e-3, "atol": 2e-3} if dtype == "float16" else {}
        torch.testing.assert_close(ours, theirs, **tolerance)


def test_infinities() -> None:
    infinite = torch.tensor([[float("-inf")] * 3, [float("inf"), 0.0, 1.0]])
    assert torch.equal(tct.logsumexp(infinite, 1), torch.logsumexp(infinite, 1))
    assert bool(tct.softmax(infinite, 1)[0].isnan().all())


def test_derivatives() -> None:
    x = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(7, dtype=torch.float64, requires_grad=True)
    check = torch.autograd.gradcheck
    assert check(lambda x, w: tct.rms_norm(x, 7, w), (x, weight))
    assert check(lambda x, w: tct.layer_norm(x, 7, w, w), (x, weight))
    for one in (norms.mean, tct.softmax, tct.log_softmax, tct.logsumexp):
        assert check(lambda x, one=one: one(x, 1), (x,))
