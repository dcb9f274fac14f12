"""Norms of `tcusim.torch`: torch's values, and derivatives."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import tcusim  # noqa: E402
import tcusim.torch as tct  # noqa: E402 - torch is there
from tcusim.errors import InputError  # noqa: E402
from tcusim.machine.native import why_no_compiler  # noqa: E402
from tcusim.torch import norms, operators  # noqa: E402

F = torch.nn.functional
ANY: Any = tct


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


@pytest.mark.parametrize("dim", [(0, 2), (-1,), [1, 0], None, ()], ids=str)
def test_exponentials_are_added_along_several_axes(dim: Any) -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    every = tuple(range(3)) if dim is None or not dim else tuple(dim)
    for keepdim in (False, True):
        expected = torch.logsumexp(x, every, keepdim)
        torch.testing.assert_close(tct.logsumexp(x, dim, keepdim), expected)
    assert tct.logsumexp(torch.tensor(2.0), None) == 2
    one = x.clone().requires_grad_()
    torch.autograd.gradcheck(lambda a: tct.logsumexp(a, dim), one)


def test_exponentials_of_no_elements() -> None:
    for shape, dim in (((0,), 0), ((0, 3), 0), ((0, 3), 1), ((2, 0), 1)):
        x = torch.empty(shape)
        assert torch.equal(tct.softmax(x, dim), torch.softmax(x, dim))
        assert torch.equal(tct.log_softmax(x, dim), torch.log_softmax(x, dim))
        assert torch.equal(tct.logsumexp(x, dim), torch.logsumexp(x, dim))


def test_an_eps_that_float32_lacks() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for eps in (math.nan, math.inf, 1e300):
        expected = F.rms_norm(x, (3,), eps=eps)
        assert torch.equal(tct.rms_norm(x, 3, eps=eps).isnan(), expected.isnan())
        assert torch.equal(tct.rms_norm(x, 3, eps=eps).nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: ANY.rms_norm(x, None), "normalized_shape must be an integer or a tuple"),
        (lambda x: ANY.layer_norm(x, 5.0), "normalized_shape must be an integer or a tuple"),
        (lambda x: tct.rms_norm(x, 3, eps=2**2000), "eps is beyond the range"),
        (lambda x: tct.mean(x, dtype="float32"), r"dtype must be a torch\.dtype of real numbers"),
        (lambda x: tct.mean(x, dtype=torch.complex64), r"dtype must be a torch\.dtype"),
        (lambda x: tct.mean(x, dtype=torch.int32), "mean has results of float types, not of"),
        (lambda x: tct.sum(x, 1, out=[1]), "out must be a tensor of torch, got list"),
        (
            lambda x: tct.segment_sum(x, tcusim.Segments(lengths=[3, 2])),
            "lengths must add up to the 3 elements of dim -1; they come to 5",
        ),
    ],
)
def test_what_has_no_result(call: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        call(torch.ones(2, 3))


def test_jagged_tensors_have_their_own_segments() -> None:
    given = [torch.ones(2), torch.ones(3)]
    nested = torch.nested.nested_tensor(given, layout=torch.jagged)
    for more in ({"segments": tcusim.Segments([0, 2])}, {"segments": 3}, {"dim": 0}):
        with pytest.raises(InputError, match=f"has its own segments: leave out {next(iter(more))}"):
            tct.segment_sum(nested, **more)


@pytest.mark.parametrize("dim", [None, (), (0, 1), (0,), 0.5, True], ids=str)
def test_one_axis_is_one_integer(dim: Any) -> None:
    x = torch.ones(2, 3)
    for call in (
        *(tct.softmax, tct.log_softmax, tct.cumsum),
        lambda x, dim: tct.segment_sum(x, 2, dim=dim),
    ):
        with pytest.raises(InputError, match="dim must be one integer, the axis, got"):
            call(x, dim)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 64, 1000])
def test_a_mean_has_one_set_of_bits(dtype: str, count: int) -> None:
    """Of a tensor of which nothing is recorded, it is divided where the result goes."""
    pytest.importorskip("ml_dtypes")
    x = torch.randn(3, count, generator=torch.Generator().manual_seed(count))
    x = x.to(getattr(torch, dtype))
    before = x.clone()
    for wanted in (None, torch.float16, torch.float64):
        plain = tct.mean(x, 1, dtype=wanted)
        recorded = tct.mean(x.clone().requires_grad_(), 1, dtype=wanted)
        assert torch.equal(plain, recorded)
        assert plain.dtype == recorded.dtype
    assert torch.equal(x, before)
    assert tct.mean(x[:0], 1).shape == (0,)
    assert bool(tct.mean(x[:, :0], 1).isnan().all())


def test_divisors_are_kept_but_for_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_DIVISORS", {})
    monkeypatch.setattr(operators, "_MOST_DIVISORS", 2)
    x = torch.ones(3)
    with torch.inference_mode():
        made = [operators.divisor(count, x) for count in (3, 4, 5)]
    assert [one.item() for one in made] == [3.0, 4.0, 5.0]
    again = [operators.divisor(count, x) is one for count, one in zip((3, 4, 5), made, strict=True)]
    assert again == [True, True, False]
    assert operators.divisor(3, x.double()).dtype == torch.float64
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_of", lambda one: nullcontext())
    on_gpu = SimpleNamespace(dtype=torch.float32, device=torch.device("cpu"), is_cuda=True)
    monkeypatch.setattr(operators, "_DIVISORS", {})
    assert operators.divisor(3, on_gpu).item() == 3.0
    assert not operators._DIVISORS


def test_infinities() -> None:
    infinite = torch.tensor([[float("-inf")] * 3, [float("inf"), 0.0, 1.0]])
    assert torch.equal(tct.logsumexp(infinite, 1), torch.logsumexp(infinite, 1))
    assert bool(tct.softmax(infinite, 1)[0].isnan().all())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_an_overflow_is_told_as_torch_tells_it(dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    most = torch.finfo(getattr(torch, dtype)).max
    small = torch.tensor([1.0, 2.0, 3.0])
    for large in ([most / 4] * 2 + [0], [1, most, -2], [math.sqrt(most) * 4, 0, 0]):
        x = torch.stack([torch.tensor(large, dtype=torch.float64), small]).to(getattr(torch, dtype))
        bias = torch.ones(3).to(x)
        for one in (x, x.clone().requires_grad_()):
            got = tct.layer_norm(one, 3, bias, bias).detach()
            assert bool(got[0].isnan().all())
            assert bool(got[1].isfinite().all())
        assert tct.rms_norm(x, 3)[0].isfinite().all()
        assert torch.equal(F.rms_norm(x, (3,))[0] == 0, tct.rms_norm(x, 3)[0] == 0)


def test_derivatives() -> None:
    x = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(7, dtype=torch.float64, requires_grad=True)
    check = torch.autograd.gradcheck
    assert check(lambda x, w: tct.rms_norm(x, 7, w), (x, weight))
    assert check(lambda x, w: tct.layer_norm(x, 7, w, w), (x, weight))
    for one in (norms.mean, tct.softmax, tct.log_softmax, tct.logsumexp):
        assert check(lambda x, one=one: one(x, 1), (x,))


COMPILED: dict[str, Any] = {
    "softmax": lambda x: tct.softmax(x, -1),
    "softmax of columns": lambda x: tct.softmax(x, 0),
    "log_softmax": lambda x: tct.log_softmax(x, -1),
    "logsumexp": lambda x: tct.logsumexp(x, (0, 1)),
    "mean": lambda x: tct.mean(x, -1),
    "rms_norm": lambda x: tct.rms_norm(x, x.shape[-1]),
    "layer_norm": lambda x: tct.layer_norm(x, x.shape[-1], x[0], x[1]),
    "segment_mean": lambda x: tct.segment_mean(x, 3),
}


def test_a_compiled_graph_has_no_exponentials_of_its_own() -> None:
    """Nor logarithms: a compiler's own have other last bits."""
    x = torch.randn(5, 37, generator=torch.Generator().manual_seed(3))
    seen: set[str] = set()

    def backend(module: Any, _: Any) -> Any:
        seen.update(str(node.target) for node in module.graph.nodes if node.op != "placeholder")
        return module

    for name in ("softmax", "log_softmax", "logsumexp"):
        call = COMPILED[name]
        assert torch.equal(torch.compile(call, fullgraph=True, backend=backend)(x), call(x))
    torch.compiler.reset()
    assert {"tcusim.exp.default", "tcusim.log.default", "tcusim.sum.default"} <= seen
    assert not any(word in one for word in ("exp", "log") for one in seen if "tcusim" not in one)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # by Inductor's own imports
@pytest.mark.skipif(why_no_compiler() is not None, reason="no C++ compiler, which Inductor needs")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", COMPILED)
def test_inductor_has_the_bits_of_eager_mode(name: str, dtype: str) -> None:
    x = torch.randn(5, 37, generator=torch.Generator().manual_seed(3)).to(getattr(torch, dtype))
    call = COMPILED[name]
    compiled = torch.compile(call, fullgraph=True)
    assert torch.equal(compiled(x), call(x))
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_operators_on_elements_have_derivatives_and_vmap() -> None:
    x = 1 + torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for name in ("exp", "log", "sqrt"):
        own, theirs = operators.operator(name), getattr(torch, name)
        torch.testing.assert_close(own(x), theirs(x))
        assert torch.autograd.gradcheck(own, (x.clone().requires_grad_(),))
        torch.testing.assert_close(torch.vmap(own, 1)(x), theirs(x).T)
        expected = torch.func.jvp(theirs, (x,), (x,))
        got = torch.func.jvp(lambda x, name=name: operators.operator(name)(x), (x,), (x,))
        torch.testing.assert_close(got, expected)
