"""tcusim.torch.norm_operators: `rms_norm` of half precision in one pass, and its derivatives."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import tcusim.torch as tct  # noqa: E402 - torch is there
from device_standin import StandIn  # noqa: E402
from tcusim.algorithms.norm import most_columns, rms_norm  # noqa: E402
from tcusim.torch import norm_operators, operators, repeated  # noqa: E402
from tcusim.torch.norm_operators import (  # noqa: E402
    are_fused,
    asked_of,
    rms_norm_again,
    rms_norm_kernel,
)
from tcusim_cuda.prepared import PreparedPlan  # noqa: E402

F = torch.nn.functional


def rows(*shape: int, dtype: str = "float16", seed: int = 0) -> Any:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_there_is_one_set_of_bits(dtype: str) -> None:
    """Plain, recorded, compiled, mapped, and through torch's own function."""
    x, weight = rows(4, 3, 96, dtype=dtype), rows(96, dtype=dtype, seed=1)
    expected = tct.rms_norm(x, 96, weight, 1e-5)
    torch.testing.assert_close(
        expected, F.rms_norm(x.float(), (96,), weight.float(), 1e-5).to(x), rtol=1e-2, atol=1e-3
    )
    recorded = tct.rms_norm(x.clone().requires_grad_(), 96, weight, 1e-5)
    compiled = torch.compile(
        lambda x: tct.rms_norm(x, 96, weight, 1e-5), fullgraph=True, backend="aot_eager"
    )
    with tct.batch_invariant("cpu"):
        routed = F.rms_norm(x, (96,), weight, 1e-5)
    for other in (
        recorded.detach(),
        compiled(x),
        torch.vmap(lambda x: tct.rms_norm(x, 96, weight, 1e-5))(x),
        torch.vmap(lambda x, w: tct.rms_norm(x, 96, w, 1e-5))(x, weight.expand(4, 96)),
        torch.stack([tct.rms_norm(one, 96, weight, 1e-5) for one in x]),
        routed,
    ):
        assert torch.equal(expected, other)


def test_derivatives_are_those_of_float32() -> None:
    x, weight = rows(5, 64), rows(64, seed=1)
    found = []
    for dtype in (torch.float16, torch.float32):
        one = x.to(dtype, copy=True).requires_grad_()
        factor = weight.to(dtype, copy=True).requires_grad_()
        result = tct.rms_norm(one, 64, factor, 1e-5)
        (result * torch.arange(64).to(dtype)).sum().backward()
        found.append((one.grad.float(), factor.grad.float()))
    for half, wide in zip(*found, strict=True):
        torch.testing.assert_close(half, wide, rtol=2e-2, atol=5e-2)


# torch scripts its decompositions, and warns of itself.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_tangents_are_those_of_float32() -> None:
    x, weight, moved = rows(5, 64), rows(64, seed=1), (rows(5, 64, seed=2), rows(64, seed=3))
    jvp = torch.func.jvp
    for call, given, tangents in (
        (lambda x, w: tct.rms_norm(x, 64, w, 1e-5), (x, weight), moved),
        (lambda x: tct.rms_norm(x, 64, None, 1e-5), (x,), moved[:1]),
        (lambda w: tct.rms_norm(x.to(w), 64, w, 1e-5), (weight,), moved[1:]),
    ):
        half = jvp(call, given, tangents)
        wide = jvp(call, *(tuple(one.float() for one in each) for each in (given, tangents)))
        assert half[1].dtype == torch.float16
        for one, other in zip(half, wide, strict=True):
            torch.testing.assert_close(one.float(), other, rtol=1e-2, atol=2e-2)
    by_rule = jvp(lambda x: operators.operator("rms_scales")(x, 0.5), (x,), moved[:1])[1]
    wide = jvp(lambda x: 1 / torch.sqrt((x * x).mean(1) + 0.5), (x.float(),), (moved[0].float(),))
    torch.testing.assert_close(by_rule, wide[1], rtol=1e-2, atol=1e-3)


def test_scales_have_a_derivative() -> None:
    x = rows(3, 32)
    found = []
    for one in (x.clone().requires_grad_(), x.float().requires_grad_()):
        if one.dtype == torch.float16:
            scales = torch.ops.tcusim.rms_scales(one, 0.5)
        else:
            scales = 1 / torch.sqrt((one * one).mean(1) + 0.5)
        (scales * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        found.append((scales.detach(), one.grad.float()))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=2e-3, atol=1e-4)
    mapped = torch.vmap(lambda x: torch.ops.tcusim.rms_scales(x, 0.5))(x.reshape(3, 4, 8))
    assert torch.equal(mapped[1], torch.ops.tcusim.rms_scales(x.reshape(3, 4, 8)[1], 0.5))


def test_torch_finds_nothing_wrong() -> None:
    x, weight = rows(3, 64).requires_grad_(), rows(64, seed=1).requires_grad_()
    ops = torch.ops.tcusim
    for operator, arguments in (
        (ops.rms_norm, (x, weight, 1e-5)),
        (ops.rms_norm, (x, None, 1e-5)),
        (ops.rms_scales, (x, 1e-5)),
    ):
        assert set(torch.library.opcheck(operator.default, arguments).values()) == {"SUCCESS"}


def test_other_tensors_take_the_general_way() -> None:
    x = rows(2, 64)
    assert are_fused(x, 64, None)
    assert are_fused(x, most_columns("f16"), rows(64, dtype="float32"))
    assert not are_fused(x, most_columns("f16") + 1, None)
    assert not are_fused(x, 0, None)
    assert are_fused(x.float(), most_columns("f32"), None)
    assert not are_fused(x.float(), most_columns("f32") + 1, None)
    assert not are_fused(x.double(), 64, None)
    assert not are_fused(x, 64, rows(64, dtype="float64"))
    long = rows(1, most_columns("f16") + 8)
    torch.testing.assert_close(
        tct.rms_norm(long, most_columns("f16") + 8),
        F.rms_norm(long.float(), long.shape[1:], eps=2.0**-10).half(),
    )


def test_tensor_cores_without_bfloat16_go_pass_by_pass() -> None:
    x, weight = rows(4, 96, dtype="bfloat16"), rows(96, dtype="bfloat16", seed=1)
    with tct.simulated("v100"):
        found = tct.rms_norm(x, 96, weight, 1e-5)
        one = x.clone().requires_grad_()
        recorded = tct.rms_norm(one, 96, weight, 1e-5)
        recorded.sum().backward()
    expected = F.rms_norm(x.float(), (96,), weight.float(), 1e-5).to(x)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
    assert torch.equal(found, recorded)
    assert bool(one.grad.isfinite().all())
    # With them, it is the program, after any context.
    assert tct.rms_norm(x, 96, weight, 1e-5).shape == found.shape


def test_a_kept_launch_is_found_by_all_that_its_result_depends_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def launch(*arrays: Any, out: Any = None, stream: Any = None) -> Any:
        return arrays

    monkeypatch.setattr(repeated, "_LAUNCHES", {})
    x, weight = rows(4, 96), rows(96, seed=1)
    key = asked_of(x, weight, [96], None)
    assert rms_norm_again(key, x, weight) is None
    repeated.hold(key, launch)
    found = rms_norm_again(asked_of(x.clone(), weight, x.shape[1:], None), x, weight)
    assert found == (x, weight)
    bare = asked_of(x, None, 96, 1e-5)
    repeated.hold(bare, launch)
    assert rms_norm_again(bare, x, None) == (x,)
    for other in (
        asked_of(x, weight.float(), (96,), None),
        asked_of(x, weight, (96,), 1e-5),
        asked_of(x, weight, (4, 96), None),
        asked_of(x[:2], weight, (96,), None),
        asked_of(x.bfloat16(), weight, (96,), None),
    ):
        assert rms_norm_again(other, x, weight) is None


def test_no_rows_and_gaps() -> None:
    assert rms_norm_kernel(rows(0, 8), None, 1.0).shape == (0, 8)
    assert torch.ops.tcusim.rms_scales(rows(0, 8), 1.0).shape == (0,)
    x = rows(6, 40)
    assert torch.equal(tct.rms_norm(x[::2, :32], 32), tct.rms_norm(x[::2, :32].clone(), 32))


def test_a_server_of_many_sizes_of_batches_makes_each_ready_once(device: StandIn) -> None:
    program = rms_norm(64, "f16", eps=0.5, weight=None)
    for _ in range(2):
        for batch in range(1, 301):
            norm_operators._session(program, (("in", 64 * batch),), device.name)
    assert len(device.prepared) == 300
    # They keep no memory of a GPU.
    prepared = PreparedPlan(device.prepared[-1], None)
    assert not device.prepared[-1].temporaries
    assert [step.status_bytes for step in prepared.steps] == [0]
