"""Nested tensors: operations along a whole axis work on their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tcusim.errors import InputError

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

import tcusim.torch as tct  # noqa: E402 - torch is there
from tcusim.torch.jagged import elements, is_nested  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def jagged(kind: str) -> tuple[Any, list[Any]]:
    """Return a nested tensor, and the tensors that it is made of."""
    generator = torch.Generator().manual_seed(3)
    parts = [torch.randn(n, 8, generator=generator) for n in (3, 1, 5)]
    if kind == "holes":
        values = torch.cat([torch.cat([one, torch.full((2, 8), 100.0)]) for one in parts])
        nested = torch.nested.nested_tensor_from_jagged(
            values, offsets=torch.tensor([0, 5, 8, 15]), lengths=torch.tensor([3, 1, 5])
        )
        return nested, parts
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    if kind == "transposed":
        return nested.transpose(1, 2), [one.T for one in parts]
    return nested, parts


CALLS: dict[str, Callable[[Any], Any]] = {
    "rms_norm": lambda x: tct.rms_norm(x, 8, torch.arange(8.0)),
    "layer_norm": lambda x: tct.layer_norm(x, 8, torch.arange(8.0)),
    "softmax": lambda x: tct.softmax(x, -1),
    "log_softmax": lambda x: tct.log_softmax(x, x.dim() - 1),
    "logsumexp": lambda x: tct.logsumexp(x, -1),
    "sum": lambda x: tct.sum(x, -1),
    "sum and keep": lambda x: tct.sum(x, -1, keepdim=True),
    "mean": lambda x: tct.mean(x, -1),
    "cumsum": lambda x: tct.cumsum(x, -1, reverse=True, initial=1),
    "sqrt": lambda x: tct.sqrt(x * x),
    "matmul": lambda x: tct.matmul(x, torch.arange(16.0).reshape(8, 2)),
}


@pytest.mark.parametrize("kind", ["plain", "holes"])
@pytest.mark.parametrize("name", CALLS)
def test_rows_are_those_of_the_parts(name: str, kind: str) -> None:
    nested, parts = jagged(kind)
    if kind == "holes" and name == "sqrt":
        pytest.skip("torch multiplies no nested tensors with holes")
    got = CALLS[name](nested)
    assert is_nested(got)
    found = list(got.unbind())
    assert len(found) == len(parts)
    for one, part in zip(found, parts, strict=True):
        assert torch.equal(one, CALLS[name](part))


@pytest.mark.parametrize("kind", ["plain", "holes", "transposed"])
@pytest.mark.parametrize(
    "call", [tct.segment_sum, tct.segment_mean, tct.segment_max, tct.segment_min]
)
def test_segments_are_the_parts(call: Callable[..., Any], kind: str) -> None:
    nested, parts = jagged(kind)
    got = call(nested)
    axis = 1 if kind == "transposed" else 0
    for row, part in zip(got, parts, strict=True):
        expected = call(part, part.shape[axis], dim=axis).squeeze(axis)
        assert torch.equal(row, expected)
    scans = tct.segment_cumsum(nested)
    expected = torch.cat([tct.cumsum(part.T if axis else part, 0) for part in parts])
    assert torch.equal(scans, expected)


@pytest.mark.parametrize("kind", ["plain", "holes", "transposed"])
def test_all_elements(kind: str) -> None:
    nested, parts = jagged(kind)
    total = sum(one.sum() for one in parts)
    torch.testing.assert_close(tct.sum(nested), total)
    torch.testing.assert_close(tct.mean(nested), total / 72)
    assert elements(nested).numel() == 72
    if kind == "transposed":
        rows = tct.sum(nested, 1)
        for row, part in zip(rows.unbind(), parts, strict=True):
            assert torch.equal(row, tct.sum(part, 0))


def test_gradients() -> None:
    nested, parts = jagged("plain")
    nested.requires_grad_()
    result = tct.rms_norm(nested, 8) * nested
    result.values().sum().backward()
    wanted = [one.clone().requires_grad_() for one in parts]
    for one in wanted:
        (tct.rms_norm(one, 8) * one).sum().backward()
    torch.testing.assert_close(nested.grad.values(), torch.cat([one.grad for one in wanted]))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: tct.sum(x, 1), r"dim may be any but 0, the batch, and 1, its ragged axis"),
        (lambda x: tct.mean(x, (0, 2)), r"any but 0, the batch"),
        (lambda x: tct.cumsum(x, 1), "its ragged axis: along that sum with tcusim.torch.segment"),
        (lambda x: tct.softmax(x, 1), "its ragged axis"),
        (lambda x: tct.matmul(x, x.transpose(1, 2)), "a is nested: a jagged tensor .* multiplied"),
        (lambda x: tct.matmul(torch.ones(2, 3), x), "b is nested"),
        (lambda x: tct.segment_sum(x, [0, 1]), "own segments: leave out segments"),
        (
            lambda x: tct.segment_sum(torch.nested.nested_tensor([torch.ones(2)])),
            r"must have the layout torch\.jagged",
        ),
        (
            lambda x: tct.sum(torch.nested.nested_tensor([torch.ones(2)]), 1),
            "input is a nested tensor",
        ),
    ],
)
def test_what_is_refused(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        call(jagged("plain")[0])


BY_DIM: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "sum": (tct.sum, [1, -2, (1,), (2, -2), [0]]),
    "mean": (tct.mean, [1, -2, (1,), (2, -2), [0]]),
    "logsumexp": (tct.logsumexp, [1, -2, (1,), (2, -2), [0]]),
    "cumsum": (tct.cumsum, [0, 1, -2, -3]),
    "softmax": (tct.softmax, [0, 1, -2, -3]),
    "log_softmax": (tct.log_softmax, [0, 1, -2, -3]),
}


@pytest.mark.parametrize("name", BY_DIM)
def test_a_refused_dim_is_named_as_it_was_given(name: str) -> None:
    call, dims = BY_DIM[name]
    nested, _ = jagged("plain")
    for dim in dims:
        with pytest.raises(InputError, match="its ragged axis") as caught:
            call(nested, dim)
        assert str(caught.value).endswith(f"; got {dim}")
    # One that there is not, of any tensor.
    for tensor in (nested, torch.ones(3, 4, 5)):
        with pytest.raises(InputError, match="dim -4 is out of range for an array of 3 dimensions"):
            call(tensor, -4)


def test_a_ragged_axis_that_no_dim_names() -> None:
    nested, _ = jagged("transposed")
    with pytest.raises(InputError, match="nested tensor, the columns of a may be any but 0"):
        tct.matmul(nested, torch.ones(3, 2))
    for norm in (tct.rms_norm, tct.layer_norm):
        with pytest.raises(InputError, match="the axes of normalized_shape may be any but 0"):
            norm(nested, nested.shape[-1:])
