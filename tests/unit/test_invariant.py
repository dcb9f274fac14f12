"""The mode that gives torch's own operators bits independent of the batch."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tcusim.errors import InputError

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import tcusim.torch as tct  # noqa: E402 - torch is there
from routed_calls import CALLS, COLUMNS, is_derived  # noqa: E402
from tcusim.torch.invariant import ROUTED, adds, batch_invariant  # noqa: E402

F = torch.nn.functional
forward_ad = torch.autograd.forward_ad
# torch scripts its decompositions, and warns of itself.
FORWARD_MODE = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
# A row with a requested gradient, and the compared one.
DTYPES = ("float32", "bfloat16")


def rows(batch: int, dtype: str = "float32") -> Any:
    made = torch.randn(batch, COLUMNS, generator=torch.Generator().manual_seed(2))
    return made.to(getattr(torch, dtype))


def wide(call: Callable[[Any], Any], x: Any) -> Any:
    """Return torch's own result, computed in float64, in the type of the input."""
    return call(x.double()).to(x)


def tolerance(dtype: str) -> dict[str, float]:
    return {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 3e-2, "atol": 3e-2}


def test_there_is_a_call_of_each_operator() -> None:
    assert set(CALLS) == set(ROUTED)
    there = [getattr(torch.ops.aten, name.partition(".")[0]) for name in ROUTED]
    assert all(there)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_a_row_has_the_same_bits_in_every_batch(name: str, dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    x, call = rows(9, dtype), CALLS[name]
    usual = call(x)
    # A routed operation is no longer reported.
    with warnings.catch_warnings(), batch_invariant("cpu", strict=True):
        warnings.simplefilter("error")
        whole = call(x)
    with batch_invariant("cpu"):
        assert torch.equal(whole, call(x))
        for batch in (1, 2, 7):
            assert torch.equal(call(x[:batch]), whole[:batch])
    assert whole.dtype == usual.dtype
    assert whole.shape == usual.shape
    expected = wide(call, x)
    scale = expected.abs().max()
    torch.testing.assert_close(whole / scale, expected / scale, **tolerance(dtype))
    # And everything is as it was.
    assert torch.equal(call(x), usual)


@pytest.mark.parametrize("dtype", [*DTYPES, "float64"])
@pytest.mark.parametrize("name", [name for name in CALLS if is_derived(name)])
def test_gradients_are_torchs(name: str, dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    call, found = CALLS[name], []
    for routed in (False, True):
        x = rows(3, dtype)
        x = x if routed else x.double()
        x.requires_grad_()
        with batch_invariant("cpu") if routed else nullcontext():
            result = call(x)
            factors = 1 + torch.arange(result[0].numel()).reshape(result[0].shape)
            (result * factors).sum().backward()
        found.append(x.grad.double())
    scale = float(found[0].abs().max())
    torch.testing.assert_close(found[1] / scale, found[0] / scale, **tolerance(dtype))


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rms_norm_adds_what_torch_adds_if_nothing_is_named(dtype: torch.dtype) -> None:
    """Where the mean square is about as large as the epsilon of float32, and as float64's."""
    for scale in (1e-3, 1e-4) if dtype != torch.float64 else (1e-3, 1e-8):
        x = torch.full((1, 8), scale, dtype=dtype)
        usual = F.rms_norm(x, (8,))
        with batch_invariant("cpu"):
            torch.testing.assert_close(F.rms_norm(x, (8,)), usual)
        torch.testing.assert_close(tct.rms_norm(x, 8), usual)


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
    x, tangent = (torch.randn(2, COLUMNS, generator=generator).double() for _ in range(2))
    for given in (x, x.clone().requires_grad_()):
        for name, call in CALLS.items():
            # torch has no tangents of writes to a tensor, and few in place.
            if name.endswith(("out", "_")):
                continue
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(given, tangent)
                usual = forward_ad.unpack_dual(call(dual))
                with batch_invariant("cpu"):
                    routed = forward_ad.unpack_dual(call(dual))
                torch.testing.assert_close(routed.primal, usual.primal)
                torch.testing.assert_close(routed.tangent, usual.tangent, msg=name)


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
        assert torch.vdot(made[0], made[0]) == 4
        assert torch.addmv(whole[0, :2], whole, whole[1]).tolist() == [14, 51]
        empty = torch.zeros(0, 3, requires_grad=True)
        F.rms_norm(empty, (3,), torch.ones(3)).sum().backward()
        assert empty.grad.shape == (0, 3)


def test_types_are_torchs_under_autocast() -> None:
    half = rows(2, "bfloat16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        usual = [call(half).dtype for call in CALLS.values()]
        with batch_invariant("cpu"):
            assert [call(half).dtype for call in CALLS.values()] == usual


def test_it_concerns_all_threads() -> None:
    x, found = torch.randn(1000), []
    with batch_invariant("cpu"):
        thread = threading.Thread(target=lambda: found.append(x.sum()))
        thread.start()
        thread.join()
    assert torch.equal(found[0], tct.sum(x))


def test_devices_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="devices must be 'cuda', 'cpu' or both, got 'tpu'"):
        batch_invariant("tpu").__enter__()  # type: ignore[arg-type]
    with pytest.raises(InputError, match="devices must be 'cuda', 'cpu' or both, got none"):
        batch_invariant([]).__enter__()
    with pytest.raises(InputError, match="devices must be a name, or several, got 3"):
        batch_invariant(3).__enter__()  # type: ignore[arg-type]
    with pytest.raises(InputError, match="strict must be True or False, got 'no'"):
        batch_invariant("cpu", strict="no").__enter__()  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with (
        pytest.warns(UserWarning, match=r"has no CUDA, and nothing is routed.*invariant\('cpu'\)"),
        batch_invariant(),
    ):
        pass


WRONG: dict[str, Callable[[Any], Any]] = {
    "ranks of mm": lambda x: torch.mm(x[None], x.T),
    "shapes of mm": lambda x: torch.mm(x, x),
    "stacks of bmm": lambda x: torch.bmm(x.expand(2, *x.shape), x.T.expand(3, *x.T.shape)),
    "shapes of mv": lambda x: torch.mv(x, x[:, 0]),
    "shapes of dot": lambda x: torch.dot(x[0], x[:, 0]),
    "a wide addend": lambda x: torch.addmm(x.new_zeros(2, len(x), len(x)), x, x.T),
    "a wide result": lambda x: x.new_zeros(1, len(x)).addmm_(x, x.T),
    "types": lambda x: torch.mm(x, x.T.double()),
    "the type of out": lambda x: torch.mm(x, x.T, out=x.new_empty(0).half()),
    "a weight": lambda x: F.layer_norm(x, x.shape[1:], x),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_torch_refuses_is_refused(name: str) -> None:
    x = rows(3)
    with pytest.raises((RuntimeError, ValueError)):
        WRONG[name](x)
    with batch_invariant("cpu"), pytest.raises((RuntimeError, ValueError)):
        WRONG[name](x)


def test_the_fast_path_of_attention_is_off_within() -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(5, 4, 16, generator=torch.Generator().manual_seed(3))
    mha = torch.backends.mha
    assert mha.get_fastpath_enabled()
    with torch.no_grad(), batch_invariant("cpu"), batch_invariant(["cpu"]):
        assert not mha.get_fastpath_enabled()
        assert torch.equal(layer(x)[2:3], layer(x[2:3]))
    assert mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        with batch_invariant("cpu"):
            pass
        assert not mha.get_fastpath_enabled()
    finally:
        mha.set_fastpath_enabled(True)


UNROUTED: dict[str, Callable[[Any], Any]] = {
    "linalg_vector_norm": lambda x: F.normalize(x),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(1),
    "native_group_norm": lambda x: F.group_norm(x, 2),
    "logsumexp": lambda x: torch.logsumexp(x, 1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
    "prod": lambda x: x.prod(1),
    "convolution": lambda x: F.conv1d(x[:, None], x[:1, None, :3]),
    "scatter_add": lambda x: torch.zeros(96).scatter_add(0, torch.zeros(96).long(), x[0]),
    "index_add": lambda x: torch.zeros(3).index_add(0, torch.zeros(96).long(), x[0]),
    "scaled_dot_product": lambda x: F.scaled_dot_product_attention(*[x.view(1, 1, -1, 8)] * 3),
    "embedding_bag": lambda x: F.embedding_bag(torch.zeros(2, 2).long(), x),
}


@pytest.mark.parametrize("name", UNROUTED)
def test_strict_tells_what_adds_and_is_not_routed(name: str) -> None:
    x = rows(4)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode, batch_invariant("cpu", strict=True), warnings.catch_warnings(record=True) as all:
            warnings.simplefilter("always")
            for _ in range(2):
                UNROUTED[name](x)
        told = [str(one.message) for one in all if "is not routed" in str(one.message)]
        assert len(told) == 1
        assert name in told[0]


def test_strict_knows_the_reductions_of_torch() -> None:
    """A reduction of torch adds, or picks one of the elements."""
    if not hasattr(torch.Tag, "reduction"):
        pytest.skip("this torch does not say which operators reduce")
    picks = {"all", "any", "amax", "amin", "aminmax", "argmax", "argmin", "max", "min", "median"}
    picks |= {"count_nonzero", "nanmedian", "mode", "kthvalue", "hash_tensor"}
    reduces = set()
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            found = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if found is not None and torch.Tag.reduction in found.tags:
                reduces.add(packet)
    assert {one for one in reduces - picks if not adds(one)} == set()
