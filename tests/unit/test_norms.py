"""Norms of `tcusim.torch`: torch's values, and derivatives."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import tcusim  # noqa: E402
import tcusim.torch as tct  # noqa: E402 - torch is there
from tcusim.errors import InputError  # noqa: E402
from tcusim.machine.native import why_no_compiler  # noqa: E402
from tcusim.torch import norms, operators  # noqa: E402

ANY: Any = tct


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


def test_means_have_the_bits_of_the_options_around_them() -> None:
    x = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0))
    with tcusim.options(bits="exact"):
        expected = tct.sum(x, 1) / torch.tensor(5000.0)
        found = [tct.mean(x, 1), tct.segment_mean(x, 5000).flatten()]
        found.append(tct.mean(x.clone().requires_grad_(), 1).detach())
    assert not torch.equal(expected, tct.mean(x, 1))
    assert all(torch.equal(one, expected) for one in found)


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
            "lengths must add up to the axis' length, 3; they come to 5",
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
        with pytest.raises(InputError, match="dim must be one integer, got"):
            call(x, dim)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("count", [1, 64, 1000])
def test_a_mean_has_one_set_of_bits(dtype: str, count: int) -> None:
    """Without a recorded gradient, it is divided where the result goes."""
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
