"""`tcusim.torch`: NumPy's bits, torch's derivatives, and refusals."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tcusim
from asked import asked
from tcusim.errors import InputError, TcusimError

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import tcusim.torch as tct  # noqa: E402 - torch is there
from tcusim.torch import functions  # noqa: E402

# torch scripts its decompositions, and warns of itself.
FORWARD_MODE = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
forward_ad = torch.autograd.forward_ad
OFFSETS = [0, 3, 3, 20, 64]
# Each with the call of the package's own on NumPy arrays.
CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda x: tct.sum(x, 1), lambda x: tcusim.sum(x, axis=1)),
    "sum of all": (
        lambda x: tct.sum(x, dtype=torch.float32),
        lambda x: tcusim.sum(x, dtype="f4"),
    ),
    "cumsum": (
        lambda x: tct.cumsum(x, 0, reverse=True),
        lambda x: tcusim.cumsum(x, axis=0, reverse=True),
    ),
    "segment_sum": (
        lambda x: tct.segment_sum(x, torch.tensor(OFFSETS)),
        lambda x: tcusim.segmented_sum(x, OFFSETS),
    ),
    "segments of rows": (
        lambda x: tct.segment_sum(x, 3, dim=0),
        lambda x: tcusim.segmented_sum(x, 3, axis=0),
    ),
    "segment_cumsum": (
        lambda x: tct.segment_cumsum(x, 16, exclusive=True),
        lambda x: tcusim.segmented_cumsum(x, 16, exclusive=True),
    ),
    "matmul": (lambda x: tct.matmul(x, x.T), lambda x: tcusim.matmul(x, x.T)),
    "matvec": (lambda x: tct.matvec(x, x[0]), lambda x: tcusim.matvec(x, x[0])),
    "exact": (
        lambda x: tct.sum(x, 1, options={"bits": "exact"}),
        lambda x: tcusim.sum(x, axis=1, options={"bits": "exact"}),
    ),
}


def array(dtype: str) -> Any:
    return np.random.default_rng(2).standard_normal((5, 64)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_bits_are_those_of_numpy_arrays(name: str, dtype: str) -> None:
    ours, plain = CALLS[name]
    x = array(dtype)
    expected = np.asarray(plain(x))
    got = ours(torch.from_numpy(x))
    assert got.numpy().tobytes() == expected.tobytes()
    assert tuple(got.shape) == expected.shape
    # As an operator that records a derivative, too.
    recorded = ours(torch.from_numpy(x).requires_grad_())
    assert recorded.requires_grad
    assert recorded.detach().numpy().tobytes() == expected.tobytes()


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = array("float32").astype(ml_dtypes.bfloat16)
    there = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    got = tct.cumsum(there, 1).view(torch.int16).numpy()
    assert got.tobytes() == tcusim.cumsum(x, axis=1).tobytes()


FLOAT64 = {"dtype": torch.float64, "requires_grad": True}


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("sum of all", "exact")])
def test_derivatives(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 64, generator=generator, **FLOAT64)
    call = CALLS[name][0]
    assert torch.autograd.gradcheck(lambda x: call(x)[..., :3], (x[:, :64],), fast_mode=True)


def test_second_derivatives() -> None:
    x = torch.randn(3, 4, **FLOAT64)
    assert torch.autograd.gradgradcheck(lambda x: tct.cumsum(x, 1) ** 2, (x,))
    assert torch.autograd.gradgradcheck(tct.matmul, (x, torch.randn(4, 2, **FLOAT64)))
    # Gradients of broadcast axes are summed.
    stack, one = torch.randn(2, 3, 4, **FLOAT64), torch.randn(4, 2, **FLOAT64)
    assert torch.autograd.gradcheck(tct.matmul, (stack, one))
    assert torch.autograd.gradcheck(tct.matvec, (stack, torch.randn(4, **FLOAT64)))


@pytest.mark.parametrize("name", [*(name for name in CALLS if name != "exact"), "rms_norm"])
def test_the_transforms_of_torch_func(name: str) -> None:
    """Derivatives, of each example of a batch, Jacobians, and derivatives of derivatives."""
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(4), dtype=torch.float64)

    def call(x: Any) -> Any:
        return tct.rms_norm(x, 64) if name == "rms_norm" else CALLS[name][0](x)

    def squares(x: Any) -> Any:
        return (call(x) ** 2).sum()

    recorded = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(squares(recorded), recorded, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), recorded)
    func = torch.func
    torch.testing.assert_close(func.grad(squares)(x), first.detach())
    torch.testing.assert_close(func.grad(lambda x: func.grad(squares)(x).sum())(x), second)
    torch.testing.assert_close(func.jacrev(squares)(x), first.detach())
    batch = torch.stack([x, 2 * x])
    each = func.vmap(func.grad(squares))(batch)
    torch.testing.assert_close(each, torch.stack([func.grad(squares)(one) for one in batch]))


FORWARD: dict[str, Callable[[Any], Any]] = {
    **{name: pair[0] for name, pair in CALLS.items() if name != "sum of all"},
    "sum of float64": lambda x: tct.sum(x, dtype=torch.float64),
    "mean": lambda x: tct.mean(x, 1),
    "rms_norm": lambda x: tct.rms_norm(x, 64, 0.5 + x[0] ** 2),
    "layer_norm": lambda x: tct.layer_norm(x, 64),
    "softmax": lambda x: tct.softmax(x, 1),
    "logsumexp": lambda x: tct.logsumexp(x, 0),
}


@FORWARD_MODE
@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode(name: str) -> None:
    call = FORWARD[name]
    generator = torch.Generator().manual_seed(6)
    x, tangent = (torch.randn(3, 64, generator=generator, dtype=torch.float64) for _ in range(2))
    func = torch.func
    value, moved = func.jvp(call, (x,), (tangent,))
    step = 1e-6
    slope = (call(x + step * tangent) - call(x - step * tangent)) / (2 * step)
    torch.testing.assert_close(moved, slope, rtol=1e-5, atol=1e-6)
    assert torch.equal(value, call(x))
    with forward_ad.dual_level():
        plain = forward_ad.make_dual(x, tangent)
        recorded = forward_ad.make_dual(x.clone().requires_grad_(), tangent)
        for dual in (plain, recorded):
            found = forward_ad.unpack_dual(call(dual))
            assert torch.equal(found.primal, value)
            assert torch.equal(found.tangent, moved)
        # Of a tensor without a tangent it is the same call.
        assert forward_ad.unpack_dual(call(x)).tangent is None
        assert found.primal.requires_grad
    few = x[:, :3].clone()

    def part(few: Any) -> Any:
        return call(torch.cat([few, x[:, 3:]], 1)).reshape(-1)[:5]

    torch.testing.assert_close(func.jacfwd(part)(few), func.jacrev(part)(few))

    def squares(few: Any) -> Any:
        return (part(few) ** 2).sum()

    torch.testing.assert_close(func.hessian(squares)(few), func.jacrev(func.jacrev(squares))(few))


@FORWARD_MODE
def test_a_factor_without_a_tangent_is_left_out() -> None:
    """Zeros times infinity are no numbers."""
    infinite = torch.full((2, 2), float("inf"))
    ones = torch.ones(2, 2)
    for call in (tct.matmul, lambda a, b: tct.matvec(a, b[0])):
        _, moved = torch.func.jvp(lambda a, call=call: call(a, ones), (infinite,), (ones,))
        assert bool(moved.isfinite().all())


@FORWARD_MODE
def test_tangents_are_not_lost_where_forward_mode_is_not() -> None:
    x = torch.randn(3, 4)

    def call(x: Any) -> Any:
        return torch.func.jvp(lambda x: tct.sum(x, 1), (x,), (x,))[1]

    assert torch.equal(torch.compile(call, backend="aot_eager")(x), tct.sum(x, 1))
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"torch\.compile takes no forward"):
        torch.compile(call, backend="aot_eager", fullgraph=True)(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        with pytest.raises(InputError, match=r"the operators torch\.ops\.tcusim have no forward"):
            torch.ops.tcusim.sum(dual, [1], False, torch.float32, "segment")
        out = torch.empty(3)
        tct.sum(dual, 1, out=out)
        assert torch.equal(forward_ad.unpack_dual(out).tangent, tct.sum(x, 1))


def test_a_whole_graph_is_compiled() -> None:
    offsets = torch.tensor(OFFSETS)

    def model(x: Any) -> Any:
        y = tct.cumsum(2 * x, 1)
        z = tct.segment_sum(y, offsets)
        return tct.matmul(z, z.T).sum() + tct.rms_norm(y, 64).sum()

    x = torch.from_numpy(array("float32")).requires_grad_()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    compiled(x).backward()
    gradient, x.grad = x.grad, None
    model(x).backward()
    assert torch.equal(gradient, x.grad)
    assert torch.equal(compiled(x), model(x))


def test_vmap() -> None:
    calls: tuple[Callable[[Any], Any], ...]
    x = torch.from_numpy(array("float16").reshape(5, 4, 16))
    calls = (
        lambda x: tct.sum(x, 0),
        lambda x: tct.sum(x),
        lambda x: tct.cumsum(x, -1),
        lambda x: tct.segment_sum(x, 3),
        lambda x: tct.segment_cumsum(x, torch.tensor([0, 7, 16])),
        lambda x: tct.matmul(x, x.T),
        lambda x: tct.matvec(x, x[0]),
    )
    for call in calls:
        together = torch.vmap(call)(x)
        assert torch.equal(together, torch.stack([call(one) for one in x]))
    assert torch.equal(
        torch.vmap(tct.matmul, (None, 2))(x[0], x.permute(0, 2, 1)[:, :, :2].permute(1, 0, 2)),
        torch.stack([tct.matmul(x[0], x.permute(0, 2, 1)[:, :, i].T) for i in range(2)]),
    )


def test_a_row_has_one_set_of_bits_in_any_batch() -> None:
    rng = np.random.default_rng(0)
    for length in (1, 100, 1000, 4097):
        row = torch.from_numpy(rng.standard_normal((1, length)).astype(np.float32))
        found: dict[str, set[bytes]] = {}
        for batch in (1, 2, 7, 16, 33):
            rest = torch.from_numpy(rng.standard_normal((batch - 1, length)).astype(np.float32))
            x = torch.cat([row, rest])
            for name, result in {
                "sum": tct.sum(x, 1),
                "cumsum": tct.cumsum(x, 1),
                "mean": tct.mean(x, 1),
                "rms_norm": tct.rms_norm(x, length),
                "softmax": tct.softmax(x, 1),
            }.items():
                found.setdefault(name, set()).add(result[0].numpy().tobytes())
        assert {name: len(bits) for name, bits in found.items()} == dict.fromkeys(found, 1)


def test_autocast() -> None:
    half = torch.ones(4, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tct.sum(half).dtype == torch.float32
        assert tct.cumsum(half, 0, dtype=torch.bfloat16).dtype == torch.bfloat16
        assert tct.matmul(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16
        assert tct.matmul(half.double().reshape(2, 2), torch.ones(2, 2).double()).dtype == (
            torch.float64
        )


def test_out() -> None:
    x = torch.from_numpy(array("float32"))
    expected = tct.cumsum(x, 1)
    assert tct.cumsum(x, 1, out=x) is x
    assert torch.equal(x, expected)
    out = torch.empty(5)
    assert tct.sum(x, 1, out=out) is out
    assert torch.equal(out, tct.sum(x, 1))
    with pytest.raises(InputError, match=r"out must be a tensor of torch.float32, shape \(5,\)"):
        tct.sum(x, 1, out=torch.empty(4))
    with pytest.raises(InputError, match="out= takes no result that has a gradient"):
        tct.sum(x.clone().requires_grad_(), 1, out=out)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: tct.sum(x.tolist()), "input must be a tensor of torch, got list"),
        (lambda x: tct.matmul(x, 3), "b must be a tensor of torch, got int"),
        (lambda x: tct.matmul(x, x.double()), "one float type; they are of torch.float32 and"),
        (lambda x: tct.matvec(x.int(), x.int()), "integers are multiplied by tcusim.matmul"),
        (lambda x: tct.rms_norm(x, 5), r"normalized_shape must be the last axes .* \(5,\)"),
        (lambda x: tct.softmax(x.int(), 0), "softmax takes float tensors, got torch.int32"),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        call(torch.arange(6.0))


def test_simple_calls_pass_the_dispatcher_by() -> None:
    x = torch.ones(3)
    assert functions.is_simple(x)
    assert not functions.is_simple(x.clone().requires_grad_())
    with torch.no_grad():
        assert functions.is_simple(x.clone().requires_grad_())
    seen: list[bool] = []

    def look(one: Any) -> Any:
        seen.append(functions.is_simple(one))
        return one

    torch.vmap(look)(torch.ones(2, 2))
    assert seen == [False]


def test_an_empty_tuple_is_all_axes() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for keepdim in (False, True):
        assert torch.equal(tct.sum(x, (), keepdim), torch.sum(x, (), keepdim))
        assert torch.equal(tct.mean(x, (), keepdim), torch.mean(x, (), keepdim))


def test_tcusim_itself_refuses_tangents() -> None:
    x = torch.ones(4)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        for call in (tcusim.sum, tcusim.cumsum):
            with pytest.raises(InputError, match="a has a tangent of forward mode, which would be"):
                call(dual)
        assert tcusim.sum(dual.detach()) == 4
    with pytest.raises(InputError, match="a has a tangent of forward mode"):
        torch.func.jvp(lambda one: tcusim.sum(one), (x,), (x,))


# --- Kinds of calls, drawn ------------------------------------------------------------------------

DIMS = st.one_of(st.none(), st.integers(-4, 3), st.lists(st.integers(-3, 2), max_size=3).map(tuple))
OF_DIMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sum": (tct.sum, torch.sum),
    "mean": (tct.mean, torch.mean),
    "cumsum": (tct.cumsum, torch.cumsum),
    "softmax": (tct.softmax, torch.softmax),
    "log_softmax": (tct.log_softmax, torch.log_softmax),
    "logsumexp": (tct.logsumexp, torch.logsumexp),
}


def tried(call: Callable[[], Any]) -> Any:
    """Return a result, or None if it is refused."""
    try:
        return call()
    except (IndexError, RuntimeError, TypeError, ValueError):
        return None


def kinds(x: Any) -> dict[str, Any]:
    """Return one tensor in each layout of tensors."""
    alone = torch.complex(torch.zeros_like(x), -x)
    wide = torch.zeros(*x.shape, 3, dtype=x.dtype)
    wide[..., 1] = x
    return {
        "plain": x,
        "strided": wide[..., 1],
        "negated": alone.conj().imag,
        "recorded": x.clone().requires_grad_(),
        "a parameter": torch.nn.Parameter(x),
    }


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    st.sampled_from(sorted(OF_DIMS)), st.lists(st.integers(1, 3), max_size=3), DIMS, st.booleans()
)
def test_axes_are_those_of_torch(name: str, shape: list[int], dim: Any, keepdim: bool) -> None:
    ours, theirs = OF_DIMS[name]
    # In torch itself some take one axis, and no tuple.
    assume(name in ("sum", "mean") or isinstance(dim, int))
    more = {"keepdim": keepdim} if name in ("sum", "mean", "logsumexp") else {}
    x = torch.arange(1, 1 + math.prod(shape), dtype=torch.float32).reshape(shape)
    expected = tried(lambda: theirs(x, dim, **more))
    for kind, one in kinds(x).items():
        got = tried(partial(ours, one, dim, **more))
        assert (got is None) == (expected is None), kind
        if got is not None:
            torch.testing.assert_close(got.detach(), expected)
    for one in (x.to("meta"), FakeTensorMode().from_tensor(x)):
        got = tried(partial(ours, one, dim, **more))
        assert (got is None) == (expected is None)
        if got is not None:
            assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    batch = torch.stack([x, 2 * x])
    got = tried(lambda: torch.vmap(lambda x: ours(x, dim, **more))(batch))
    assert (got is None) == (expected is None)
    if got is not None:
        assert torch.equal(got[0], ours(x, dim, **more))


TYPES = [
    *("float16", "bfloat16", "float32", "float64", "bool", "int8", "uint8", "int16", "int32"),
    *("int64", "uint16", "uint32", "uint64", "complex64", "float8_e4m3fn", "float8_e5m2"),
]
OF_TYPES: dict[str, Callable[..., Any]] = {
    "sum": lambda x, **more: tct.sum(x, 1, **more),
    "exact sum": lambda x, **more: tct.sum(x, 1, **asked(bits="exact", **more)),
    "mean": lambda x, **more: tct.mean(x, 1, **more),
    "cumsum": lambda x, **more: tct.cumsum(x, 1, **more),
    "segment_sum": lambda x, **more: tct.segment_sum(x, 2, **more),
    "segment_cumsum": lambda x, **more: tct.segment_cumsum(x, 2, **more),
    "matmul": lambda x, **more: tct.matmul(x, x.mT, **more),
    "matvec": lambda x, **more: tct.matvec(x, x[0], **more),
    "rms_norm": lambda x: tct.rms_norm(x, 3, x[0]),
    "layer_norm": lambda x: tct.layer_norm(x, 3, x[0], x[1]),
    "softmax": lambda x, **more: tct.softmax(x, 1, **more),
    "log_softmax": lambda x, **more: tct.log_softmax(x, 1, **more),
    "logsumexp": lambda x: tct.logsumexp(x, 1),
    "sqrt": tct.sqrt,
}


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.sampled_from(sorted(OF_TYPES)), st.sampled_from(TYPES), st.sampled_from([None, *TYPES]))
def test_every_type_has_a_result_or_a_sentence(name: str, given: str, result: str | None) -> None:
    """Results are of the type that is asked for, also where nothing is computed."""
    pytest.importorskip("ml_dtypes")
    more = {} if result is None else {"dtype": getattr(torch, result)}
    assume(not more or name not in ("rms_norm", "layer_norm", "logsumexp", "sqrt"))
    x = torch.tensor([[1, 2, 3], [0, 1, 1]]).to(getattr(torch, given))
    refused = None
    try:
        got = OF_TYPES[name](x, **more)
    except TcusimError as error:
        refused = str(error)
    if refused is not None:
        assert given in refused or str(result) in refused
        return
    assert got.dtype == (more["dtype"] if more else got.dtype)
    try:
        shape = OF_TYPES[name](x.to("meta"), **more)
    except TcusimError:
        # An error that depends on values comes where there are some.
        return
    assert (shape.shape, shape.dtype) == (got.shape, got.dtype)


def test_zeros_that_are_nowhere_are_zeros() -> None:
    """torch's own formulas of tangents have them."""
    zeros = torch._efficientzerotensor((2, 3))
    assert tct.sum(zeros) == 0
    assert tct.matmul(zeros, torch.ones(3, 2)).tolist() == [[0, 0], [0, 0]]
    assert tct.matvec(torch.ones(2, 3), zeros[0]).tolist() == [0, 0]


def test_roots_are_rounded_once() -> None:
    """torch's own on a CPU are not; a GPU's are."""
    x = torch.from_numpy(np.random.default_rng(0).random(10_000))
    for dtype in (torch.float64, torch.float32, torch.float16):
        given = x.to(dtype)
        expected = np.sqrt(given.numpy())
        for got in (tct.sqrt(given), tct.sqrt(given.clone().requires_grad_()).detach()):
            assert got.numpy().tobytes() == expected.tobytes()
    given = x.double().clone().requires_grad_()
    assert torch.autograd.gradcheck(tct.sqrt, (given[:9],))
    assert torch.equal(torch.vmap(tct.sqrt)(x.reshape(100, 100)), tct.sqrt(x).reshape(100, 100))
    assert tct.sqrt(torch.tensor([-1.0, float("inf")])).tolist()[1] == float("inf")
    with pytest.raises(InputError, match=r"sqrt takes float tensors, got torch\.int64"):
        tct.sqrt(torch.tensor(4))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: tct.sum(x, 2), "dim 2 is out of range for an array of 2 dimensions"),
        (lambda x: tct.softmax(x, -3), "dim -3 is out of range for an array of 2 dimensions"),
        (lambda x: tct.sum(x, (0, -2)), r"dim \(0, -2\) names an axis twice"),
        (
            lambda x: tct.sum(x, 0.5),  # type: ignore[arg-type]
            "dim must be an integer, or several for a sum, got 0.5",
        ),
        (lambda x: tct.sum(x.to(torch.complex64)), r"take input\.real and input\.imag"),
        (
            lambda x: tct.matmul(x.to(torch.float8_e4m3fn), x),
            r"a is of torch\.float8_e4m3fn, .* tcusim\.predict_matmul tells\. .*: a\.float\(\)",
        ),
        (lambda x: tct.cumsum(x, 0, dtype="float32"), "dtype must be a torch.dtype of real number"),
        (lambda x: tct.sum(x.to_sparse()), r"layout torch\.sparse_coo: input\.to_dense\(\) is sum"),
        (
            lambda x: tct.layer_norm(x, 3, torch.ones(5, 2, 3)),
            r"weight must be of the same shape as normalized_shape, \(3,\); .* \(5, 2, 3\)",
        ),
        (
            lambda x: tct.rms_norm(x.double(), 3, torch.ones(3, 1).double()),
            r"weight must be of the same shape as normalized_shape, \(3,\); its shape is \(3, 1\)",
        ),
        (lambda x: tct.layer_norm(x, 3, None, torch.ones(1)), "bias must be of the same shape"),
        (lambda x: tct.layer_norm(x, 3, 2.0), "weight must be a tensor of torch, got float"),
        (
            lambda x: tct.rms_norm(x, 3, None, "1e-5"),  # type: ignore[arg-type]
            "eps must be a number, got '1e-5'",
        ),
    ],
)
def test_sentences_are_in_the_words_of_torch(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        call(torch.arange(6.0).reshape(2, 3))


FLAGS = [
    (name, parameter.name)
    for name in tct.__all__
    if inspect.isfunction(getattr(tct, name))
    for parameter in inspect.signature(getattr(tct, name)).parameters.values()
    if isinstance(parameter.default, bool) or parameter.name == "bits"
    if name != "batch_invariant"
]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(("name", "option"), FLAGS)
def test_an_option_of_another_type_is_refused(name: str, option: str, recorded: bool) -> None:
    """Plain tensors go to the kernel, recorded ones through an operator of torch."""
    more: dict[str, Any] = {"segments": 2} if name.startswith("segment") else {"dim": 0}
    text = "unknown bits" if option == "bits" else f"{option} must be True or False, got 'no'"
    with pytest.raises(InputError, match=text):
        getattr(tct, name)(torch.ones(4, requires_grad=recorded), **more, **{option: "no"})


def negative(values: Any) -> Any:
    """Return a tensor of these values; its memory holds the other signs."""
    found = torch.complex(torch.zeros_like(values), -values).conj().imag
    assert found.is_neg()
    return found


@pytest.mark.parametrize("compute", [*CALLS.values(), (tct.sqrt, np.sqrt)])
def test_signs_that_torch_keeps_beside_the_memory(compute: Any) -> None:
    of_tensor, of_array = compute
    x = torch.arange(64.0).repeat(8, 1)
    assert np.array_equal(of_tensor(negative(x)).numpy(), of_array(x.numpy()))
    if of_array is not np.sqrt:
        assert np.array_equal(np.asarray(of_array(negative(x))), of_array(x.numpy()))


def test_signs_that_torch_keeps_beside_the_memory_in_other_places() -> None:
    ones, twos = torch.ones(4, 2), torch.full((4,), 2.0)
    first = negative(twos)
    assert tcusim.cumsum(ones, axis=1, initial=first)[0].tolist() == [3, 4]
    assert tct.cumsum(ones, 1, initial=first)[0].tolist() == [3, 4]
    assert tcusim.plan("sum", length=4, dtype="f4")(first) == 8
    assert tcusim.matmul(ones.T, ones, c=negative(torch.ones(2, 2))).tolist() == [[5, 5], [5, 5]]
    assert tcusim.predict_matmul(torch._neg_view(-twos.half())[None], ones.half()).tolist() == [
        [8, 8]
    ]
    half = torch._neg_view(-twos.bfloat16())
    assert tcusim.sum(half).item() == 8


@pytest.mark.parametrize(
    "write",
    [
        lambda out: tcusim.cumsum(torch.ones(4), out=out),
        lambda out: tct.cumsum(torch.ones(4), 0, out=out),
        lambda out: tct.sum(torch.tensor([[1.0], [2], [3], [4]]), 1, out=out),
        lambda out: tcusim.segmented_max(torch.tensor([1.0, 2, 3, 4]), 1, out=out),
        lambda out: tcusim.segmented_cumsum(
            torch.tensor([1.0, 2, 3, 4]),
            tcusim.Segments(ids=torch.arange(3, -1, -1), sort=True),
            out=out,
        ),
    ],
)
def test_results_go_where_torch_keeps_signs_beside_the_memory(write: Any) -> None:
    out = negative(torch.zeros(4))
    write(out)
    assert out.tolist() == [1, 2, 3, 4]


class Wrapper(torch.Tensor):  # type: ignore[misc]
    """A tensor with the elements of another; only torch's dispatcher learns it."""

    @staticmethod
    def __new__(cls, held: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held: Any) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = [one.held if isinstance(one, Wrapper) else one for one in args]
        return func(*taken, **(kwargs or {}))


def masked(values: Any) -> Any:
    from torch.masked import masked_tensor

    return masked_tensor(values, values > 0)


def with_storage_of(size: int) -> Callable[[Any], Any]:
    def resize(values: Any) -> Any:
        values.untyped_storage().resize_(size)
        return values

    return resize


WITHOUT_MEMORY = {
    "masked": masked,
    "wrapper": Wrapper,
    "let go": with_storage_of(0),
    "resized": with_storage_of(12),
    "functional": torch._to_functional_tensor,
}
PLACES: dict[str, Callable[[Any], Any]] = {
    "sum": tcusim.sum,
    "cumsum": tcusim.cumsum,
    "initial": lambda x: tcusim.cumsum(torch.ones(4, 2), axis=1, initial=x),
    "out": lambda x: tcusim.cumsum(torch.ones(4), out=x),
    "out of maxima": lambda x: tcusim.segmented_max(torch.ones(8), 2, out=x),
    "factor": lambda x: tcusim.matvec(torch.ones(4, 4), x),
    "plan": lambda x: tcusim.plan("sum", length=4)(x),
    "where": lambda x: tcusim.sum(x, where=torch.ones(4, dtype=torch.bool)),
    "values": lambda x: tcusim.mma(x, x, "f32"),
    "torch out": lambda x: tct.cumsum(torch.ones(4), 0, out=x),
    "torch sum": lambda x: tct.sum(x, 0),
    "torch sum out": lambda x: tct.sum(torch.ones(4, 2), 1, out=x),
    "torch cumsum": lambda x: tct.cumsum(x, 0),
    "torch initial": lambda x: tct.cumsum(torch.ones(4, 2), 1, initial=x),
    "torch segments": lambda x: tct.segment_sum(x, 2),
    "torch factor": lambda x: tct.matvec(torch.ones(4, 4), x),
    "torch sqrt": tct.sqrt,
    "torch softmax": lambda x: tct.softmax(x, 0),
    "torch mean": lambda x: tct.mean(x, 0),
    "torch norm": lambda x: tct.rms_norm(x, (4,)),
    "torch weight": lambda x: tct.rms_norm(torch.ones(2, 4), (4,), x),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize("made", WITHOUT_MEMORY)
@pytest.mark.parametrize("place", PLACES)
def test_tensors_without_memory_of_their_own_are_refused(place: str, made: str) -> None:
    if made == "wrapper" and place.startswith("torch") and place != "torch out":
        # torch's dispatcher asks the class, and gets its contents.
        PLACES[place](Wrapper(torch.ones(4)))
        return
    x = WITHOUT_MEMORY[made](torch.ones(4))
    with pytest.raises(InputError, match=r"elements are in other tensors|bytes of memory for its"):
        PLACES[place](x)


@pytest.mark.parametrize("name", ["offsets", "lengths", "ids"])
def test_integers_without_memory_are_refused(name: str) -> None:
    numbers = with_storage_of(0)(torch.tensor([0, 1, 2, 3]))
    with pytest.raises(InputError, match=f"{name} needs 32 bytes of memory"):
        tct.segment_sum(torch.ones(4), tcusim.Segments(**{name: numbers}))


def test_views_of_a_storage_need_no_more_of_it_than_their_elements() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    assert tcusim.sum(x[1, 2:]) == 13
    assert tcusim.sum(x[:, 3]) == 21
    assert tcusim.sum(torch.ones(1).expand(5)) == 5
    assert tct.sum(x[3:], 0).tolist() == [0, 0, 0, 0]


def integers(*values: int, device: str) -> Any:
    return torch.tensor(values, device=device)


# Each with the shape of its result, of tensors on one device and another.
OF_TWO: dict[str, tuple[Callable[[str, str], Any], tuple[int, ...]]] = {
    "matmul": (
        lambda one, other: tct.matmul(torch.ones(2, 4, device=one), torch.ones(4, 3, device=other)),
        (2, 3),
    ),
    "matvec": (
        lambda one, other: tct.matvec(torch.ones(2, 4, device=one), torch.ones(4, device=other)),
        (2,),
    ),
    "initial": (
        lambda one, other: tct.cumsum(
            torch.ones(2, 4, device=one), 1, initial=torch.ones(2, device=other)
        ),
        (2, 4),
    ),
    "offsets": (
        lambda one, other: tct.segment_sum(
            torch.ones(4, device=one), integers(0, 1, 4, device=other)
        ),
        (2,),
    ),
    "lengths": (
        lambda one, other: tct.segment_cumsum(
            torch.ones(4, device=one), tcusim.Segments(lengths=integers(1, 3, device=other))
        ),
        (4,),
    ),
    "ids": (
        lambda one, other: tct.segment_sum(
            torch.ones(4, device=one),
            tcusim.Segments(ids=integers(0, 0, 1, 1, device=other), count=2),
        ),
        (2,),
    ),
    "weight": (
        lambda one, other: tct.rms_norm(
            torch.ones(2, 4, device=one), (4,), torch.ones(4, device=other)
        ),
        (2, 4),
    ),
    "out": (
        lambda one, other: tct.sum(
            torch.ones(2, 4, device=one), 1, out=torch.ones(2, device=other)
        ),
        (2,),
    ),
}


@pytest.mark.parametrize("name", OF_TWO)
def test_tensors_with_data_and_without_do_not_go_together(name: str) -> None:
    call, shape = OF_TWO[name]
    for device in ("cpu", "meta"):
        result = call(device, device)
        assert (result.device.type, tuple(result.shape)) == (device, shape)
    for one, other in (("cpu", "meta"), ("meta", "cpu")):
        with pytest.raises(InputError, match="the device meta, which has no data"):
            call(one, other)


# --- Options ------------------------------------------------------------------------------------


def test_options_are_part_of_what_is_compiled() -> None:
    x = torch.from_numpy(np.random.default_rng(8).standard_normal((3, 2000)).astype(np.float16))
    exact = tct.sum(x, 1, dtype=torch.float32, options={"bits": "exact"})
    usual = tct.sum(x, 1, dtype=torch.float32)
    assert not torch.equal(exact, usual)

    def total(x: Any, options: Any = None) -> Any:
        return tct.sum(x, 1, dtype=torch.float32, options=options)

    def compiled(options: Any = None) -> Any:
        torch.compiler.reset()
        return torch.compile(partial(total, options=options), backend="eager", fullgraph=True)

    for asking in ({"bits": "exact"}, tcusim.Options(bits="exact")):
        assert torch.equal(compiled(asking)(x), exact)
    with tcusim.options(bits="exact"):
        assert torch.equal(total(x), exact)
        assert torch.equal(compiled({"bits": "segment"})(x), usual)
        call = compiled()
        assert torch.equal(call(x), exact)
    # It was traced within the context, and keeps its options.
    assert torch.equal(call(x), exact)
    assert torch.equal(compiled()(x), usual)
    with pytest.raises(InputError, match=r"tcusim\.torch\.sum takes no option 'arch'; leave it"):
        total(x, {"arch": "volta"})


def test_an_out_with_several_elements_in_one_place_is_refused() -> None:
    """torch itself refuses strides of 0 only."""
    x, memory = torch.ones(4, 4, 4), torch.zeros(10)
    for out in (torch.zeros(4).expand(4, 4), memory.as_strided((4, 4), (1, 1))):
        with pytest.raises(InputError, match="out holds several elements in one place"):
            tct.sum(x, 0, out=out)
