"""The mode in which torch's own operators have bits that the batch does not change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tcusim.errors import InputError

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import tcusim.torch as tct  # noqa: E402 - torch is there
from tcusim.torch.invariant import ROUTED, batch_invariant  # noqa: E402

F = torch.nn.functional
forward_ad = torch.autograd.forward_ad
# torch scripts its decompositions, and warns of itself.
FORWARD_MODE = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
RIGHT = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
# Of rows (B, 256): what torch computes of each row alone.
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: torch.sum(x, 1),
    "mean": lambda x: x.mean(1, True),
    "cumsum": lambda x: torch.cumsum(x, 1),
    "mm": lambda x: x @ RIGHT.to(x),
    "addmm": lambda x: F.linear(x, RIGHT.to(x).T, torch.ones(8).to(x)),
    "bmm": lambda x: torch.bmm(x[:, None], RIGHT.to(x).expand(len(x), 256, 8)),
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, (256,), torch.full((256,), 2.0).to(x)),
    "rms_norm": lambda x: F.rms_norm(x, (256,), torch.full((256,), 2.0).to(x)),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPERATORS)
def test_a_row_has_the_same_bits_in_every_batch(name: str, dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    x = torch.randn(33, 256, generator=torch.Generator().manual_seed(2)).to(getattr(torch, dtype))
    call = OPERATORS[name]
    usual = call(x)
    with batch_invariant("cpu"):
        whole = call(x)
        for batch in (1, 2, 7):
            assert torch.equal(call(x[:batch]), whole[:batch])
    assert whole.dtype == usual.dtype
    assert whole.shape == usual.shape
    torch.testing.assert_close(whole, usual)
    # And everything is as it was.
    assert torch.equal(call(x), usual)


def test_it_is_this_package_that_adds() -> None:
    x = torch.randn(3, 1000)
    with batch_invariant(["cpu"]), batch_invariant("cpu"):
        routed = x.sum(1)
    assert torch.equal(routed, tct.sum(x, 1))
    with batch_invariant("cpu"):
        pass
    assert not torch.equal(x.sum(1), tct.sum(x, 1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_norms_have_the_bits_of_the_functions(dtype: str) -> None:
    generator = torch.Generator().manual_seed(7)
    x, weight, bias = (
        torch.randn(*shape, generator=generator).to(getattr(torch, dtype))
        for shape in ((30, 250), (250,), (250,))
    )
    with batch_invariant("cpu"):
        layer = F.layer_norm(x, (250,), weight, bias)
        rms = F.rms_norm(x, (250,), weight, 1e-5)
    assert torch.equal(layer, tct.layer_norm(x, 250, weight, bias))
    assert torch.equal(rms, tct.rms_norm(x, 250, weight, 1e-5))


def test_derivatives_are_recorded() -> None:
    layer = torch.nn.Linear(256, 8)
    x = torch.randn(5, 256)
    layer(x).pow(2).sum().backward()
    usual, layer.weight.grad = layer.weight.grad, None
    with batch_invariant("cpu"):
        layer(x).pow(2).sum().backward()
    torch.testing.assert_close(layer.weight.grad, usual)


@FORWARD_MODE
def test_tangents_are_torchs() -> None:
    generator = torch.Generator().manual_seed(8)
    x, tangent = (torch.randn(3, 256, generator=generator).double() for _ in range(2))
    for given in (x, x.clone().requires_grad_()):
        for call in OPERATORS.values():
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(given, tangent)
                usual = forward_ad.unpack_dual(call(dual))
                with batch_invariant("cpu"):
                    routed = forward_ad.unpack_dual(call(dual))
                torch.testing.assert_close(routed.primal, usual.primal)
                torch.testing.assert_close(routed.tangent, usual.tangent)


def test_what_is_not_computed_here_is_torchs() -> None:
    whole = torch.arange(6).reshape(2, 3)
    made = torch.complex(torch.ones(2, 2), torch.ones(2, 2))
    with batch_invariant("cpu"):
        assert torch.equal(whole @ whole.T, torch.tensor([[5, 14], [14, 50]]))
        assert torch.equal(made @ made, torch.full((2, 2), 4j))
        assert torch.sum(whole) == 15
        assert torch.sum(torch.zeros(0)) == 0
        assert torch.cumsum(torch.tensor(2.0), 0) == 2
        assert torch.sum(torch.ones(2), dtype=torch.int64) == 2


def test_types_are_torchs_under_autocast() -> None:
    half = torch.randn(4, 256).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        usual = [call(half).dtype for call in OPERATORS.values()]
        with batch_invariant("cpu"):
            assert [call(half).dtype for call in OPERATORS.values()] == usual


def test_it_concerns_all_threads() -> None:
    x, found = torch.randn(1000), []
    with batch_invariant("cpu"):
        thread = threading.Thread(target=lambda: found.append(x.sum()))
        thread.start()
        thread.join()
    assert torch.equal(found[0], tct.sum(x))


def test_devices_are_checked() -> None:
    with pytest.raises(InputError, match="devices must be 'cuda', 'cpu' or both, got 'tpu'"):
        batch_invariant("tpu").__enter__()
    assert all(hasattr(torch.ops.aten, name.partition(".")[0]) for name in ROUTED[:9])
