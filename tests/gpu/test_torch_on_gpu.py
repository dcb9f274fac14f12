"""On a GPU: the operators of `tcusim.torch` have the simulator's bits, in compiled graphs too."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tcusim
from bad_segments import drawn, expected, outcome
from on_gpu import arch, imported

pytestmark = pytest.mark.gpu(min_sm=80)

OFFSETS = (0, 3, 3, 500, 4096)
# Of rows (B, 4096).
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda t, x: t.sum(x, 1),
    "sum of all": lambda t, x: t.sum(x),
    "cumsum": lambda t, x: t.cumsum(x, 1, reverse=True),
    "cumsum down": lambda t, x: t.cumsum(x, 0),
    "segment_sum": lambda t, x: t.segment_sum(x, 64),
    "offsets": lambda t, x: t.segment_sum(x, x.new_tensor(OFFSETS).long()),
    "segment_cumsum": lambda t, x: t.segment_cumsum(x, 100, exclusive=True),
    "matmul": lambda t, x: t.matmul(x, x[:24].mT),
    "matvec": lambda t, x: t.matvec(x, x[0]),
    "mean": lambda t, x: t.mean(x, 1),
    "rms_norm": lambda t, x: t.rms_norm(x, 4096),
    "rms_norm with a weight": lambda t, x: t.rms_norm(x[:, :1000], 1000, x[0, :1000], 1e-5),
    "mean of 1000": lambda t, x: t.mean(x[:, :1000], 1),
    "layer_norm": lambda t, x: t.layer_norm(x, 4096),
}
DTYPES = ("float16", "bfloat16", "float32")


@pytest.fixture
def torch() -> Any:
    torch = imported("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return torch


@pytest.fixture
def tct(torch: Any) -> Any:
    import tcusim.torch

    return tcusim.torch


def rows(torch: Any, dtype: str, batch: int = 40) -> Any:
    x = np.random.default_rng(batch).standard_normal((batch, 4096)).astype(np.float32)
    return torch.from_numpy(x).to(getattr(torch, dtype))


def same(torch: Any, one: Any, two: Any) -> bool:
    return bool(torch.equal(one.cpu(), two.cpu())) and one.dtype == two.dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_bits_are_predicted(torch: Any, tct: Any, name: str, dtype: str) -> None:
    x = rows(torch, dtype)
    expected = tct.predict(lambda x: CALLS[name](tct, x), x, arch=arch())
    there = x.cuda()
    # From the second call on, by the way that is kept.
    for _ in range(3):
        got = CALLS[name](tct, there)
        assert got.is_cuda
        assert same(torch, got, expected)
    assert torch.equal(there.cpu(), x)
    with torch.no_grad():
        assert same(torch, CALLS[name](tct, torch.nn.Parameter(there)), expected)
    recorded = CALLS[name](tct, x.cuda().requires_grad_())
    assert same(torch, recorded.detach(), expected)


def test_torch_finds_nothing_wrong(torch: Any, tct: Any) -> None:
    del tct
    x, f32 = torch.randn(3, 64, device="cuda", requires_grad=True), torch.float32
    offsets = torch.tensor([0, 10, 64], device="cuda")
    ops, half = torch.ops.tcusim, x.detach().half().requires_grad_()
    for operator, arguments in (
        (ops.sum, (x, [1], False, f32, "segment")),
        (ops.cumsum, (x, 1, True, False, f32, "segment", None)),
        (ops.segment_sum, (x, offsets, 0, 1, True, f32, "segment")),
        (ops.segment_cumsum, (x, None, 16, 1, True, False, True, f32, "segment", None)),
        (ops.matmul, (x, x.detach().mT, f32)),
        (ops.matvec, (x, x.detach()[0], f32)),
        (ops.rms_norm, (half, half.detach()[0], 1e-5)),
        (ops.rms_scales, (half, 1e-5)),
    ):
        assert set(torch.library.opcheck(operator.default, arguments).values()) == {"SUCCESS"}


# torch scripts its decompositions, and warns of itself.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_derivatives(torch: Any, tct: Any) -> None:
    x = torch.randn(3, 64, dtype=torch.float64, device="cuda", requires_grad=True)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda x: tct.sum(x, 1),
        lambda x: tct.cumsum(x, 1)[:, ::7],
        lambda x: tct.segment_sum(x, 16),
        lambda x: tct.matmul(x, x.mT),
        lambda x: tct.matvec(x, x[0]),
        lambda x: tct.rms_norm(x, 64)[:, ::7],
    )
    for call in calls:
        assert torch.autograd.gradcheck(call, (x,), fast_mode=True, check_forward_ad=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # by Inductor's own imports
def test_inductor_compiles_a_whole_graph(torch: Any, tct: Any) -> None:
    def model(x: Any) -> Any:
        return tct.cumsum(2 * x, 1) + tct.sum(x, 1, keepdim=True)

    x = rows(torch, "float32").cuda()
    assert same(torch, torch.compile(model, fullgraph=True)(x), model(x))


def test_vmap(torch: Any, tct: Any) -> None:
    x = rows(torch, "float16").cuda().reshape(40, 64, 64)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda x: tct.sum(x, 0),
        lambda x: tct.cumsum(x, 1),
        lambda x: tct.matmul(x, x),
    )
    for call in calls:
        assert same(torch, torch.vmap(call)(x), torch.stack([call(one) for one in x]))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "offsets"])
def test_a_graph_is_replayed(torch: Any, tct: Any, name: str) -> None:
    x = rows(torch, "float16").cuda()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        CALLS[name](tct, x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        out = CALLS[name](tct, x)
    for seed in (1, 2):
        x.copy_(rows(torch, "float16", 40 * seed)[:40])
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert same(torch, out, CALLS[name](tct, x))


def test_two_streams(torch: Any, tct: Any) -> None:
    arrays = [rows(torch, "float16", batch).cuda() for batch in (40, 41)]
    expected = [tct.cumsum(x, 1) for x in arrays]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for x, stream in zip(arrays, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append(tct.cumsum(x, 1))
    torch.cuda.synchronize()
    for number, result in enumerate(results):
        assert same(torch, result, expected[number % 2])


def lengths() -> list[int]:
    return [1, 8192, *np.random.default_rng(5).integers(2, 8192, 6).tolist()]


@pytest.mark.parametrize("length", lengths())
def test_a_row_has_one_set_of_bits_in_any_batch(torch: Any, tct: Any, length: int) -> None:
    """As Thinking Machines test batch invariance: row 0, alone and in batches of many sizes."""
    generator = torch.Generator("cuda").manual_seed(length)
    right = torch.randn(length, 64, device="cuda", generator=generator).half()
    row = torch.randn(1, length, device="cuda", generator=generator).half()
    functional = torch.nn.functional
    calls: dict[str, Callable[[Any], Any]] = {
        "mm": lambda x: x @ right,
        "rms_norm": lambda x: functional.rms_norm(x, (length,)),
        "softmax": lambda x: torch.softmax(x, 1),
        "mean": lambda x: x.mean(1),
        "sum": lambda x: x.sum(1),
        "cumsum": lambda x: torch.cumsum(x, 1),
    }
    found: dict[str, set[bytes]] = {name: set() for name in calls}
    with tct.batch_invariant():
        for batch in (1, 2, 7, 16, 33, 300):
            rest = torch.randn(batch - 1, length, device="cuda", generator=generator).half()
            x = torch.cat([row, rest])
            for name, call in calls.items():
                found[name].add(call(x)[0].cpu().numpy().tobytes())
    assert {name: len(bits) for name, bits in found.items()} == dict.fromkeys(calls, 1)


def test_gradients_in_the_mode(torch: Any, tct: Any) -> None:
    """Of every operator that is routed: torch's values, and a row's bits in every batch."""
    routed = importlib.import_module("routed_calls")
    for name, call in routed.CALLS.items():
        if not routed.is_derived(name):
            continue
        x = torch.randn(7, routed.COLUMNS, generator=torch.Generator().manual_seed(2)).cuda()
        gradients = []
        for given, mode in (
            (x, tct.batch_invariant()),
            (x[:2], tct.batch_invariant()),
            (x.double(), nullcontext()),
        ):
            one = given.clone().requires_grad_()
            with mode:
                result = call(one)
                (
                    result * (1 + torch.arange(result[0].numel()).reshape(result[0].shape)).cuda()
                ).sum().backward()
            gradients.append(one.grad)
        scale = gradients[2].abs().max()
        torch.testing.assert_close(
            gradients[0] / scale, gradients[2].float() / scale, rtol=1e-3, atol=1e-3
        )
        # The gradients of these have sums of torch's own.
        if name not in ("_softmax", "_log_softmax", "native_layer_norm"):
            assert torch.equal(gradients[0][:2], gradients[1]), name


@pytest.mark.parametrize("where", ["cuda", "cpu", "list"])
def test_bad_segments_are_refused_as_of_numpy_arrays(torch: Any, tct: Any, where: str) -> None:
    for length, more in drawn(21):
        name, numbers = next(iter(more.items()))
        # Arrays of a GPU without elements have sentences of their own, and so has `longest`.
        if not length or not numbers.size or numbers.ndim != 1 or numbers.dtype != np.int64:
            continue
        more.pop("longest", None)
        given = numbers.tolist() if where == "list" else torch.tensor(numbers, device=where)
        by = tcusim.Segments(**{**more, name: given})
        found = outcome(lambda x, by=by: tct.segment_sum(torch.tensor(x).cuda(), by).cpu(), length)
        assert found == expected(length, more), (length, more)


@pytest.mark.parametrize("bits", ["segment", "exact"])
def test_gradients_have_the_bits_of_the_call(torch: Any, tct: Any, bits: str) -> None:
    more: dict[str, Any] = {"options": {"bits": bits}}

    def gradient(x: Any) -> Any:
        given = x.clone().requires_grad_()
        tct.cumsum(given, 1, **more).backward(x.flip(0))
        return given.grad

    x = rows(torch, "float16", 6)
    assert same(torch, gradient(x.cuda()), tct.predict(gradient, x, arch=arch()))
