"""Nested tensors of the layout jagged: their values, as plain tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tcusim.errors import InputError
from tcusim.torch.operators import axes_of


def is_nested(tensor: Any) -> bool:
    """Return whether a tensor is nested."""
    return bool(getattr(tensor, "is_nested", False))


def _require_jagged(input: Any) -> None:
    if input.layout != torch.jagged:
        raise InputError(
            "a nested tensor must have the layout torch.jagged: "
            "torch.nested.nested_tensor(..., layout=torch.jagged)"
        )


def _without_holes(input: Any) -> Any:
    """Return a jagged tensor whose values are those of its segments alone."""
    _require_jagged(input)
    return input if input.lengths() is None else input.contiguous()


def elements(input: Any) -> Any:
    """Return all elements, end to end."""
    return _without_holes(input).values()


def segments_of_nested(input: Any) -> tuple[Any, Any]:
    """Return the values, the ragged axis first, and the offsets of the segments."""
    whole = _without_holes(input)
    return whole.values().movedim(whole._ragged_idx - 1, 0), whole.offsets()


def along(
    input: Any,
    dim: Any,
    keepdim: bool,
    compute: Callable[[Any, tuple[int, ...]], Any],
    name: str = "dim",
) -> Any:
    """Return the jagged tensor of a function of the values, along axes of which each is whole.

    dim: axes of the nested tensor, as they were given. name: the user's name for them. keepdim:
    whether the result has them. compute: takes the values, and their axes.
    """
    _require_jagged(input)
    ragged, axes = input._ragged_idx, axes_of(dim, input.dim())
    if 0 in axes or ragged in axes:
        raise InputError(
            f"of a nested tensor, {name} may be any but 0, the batch, and {ragged}, its ragged "
            f"axis: along that sum with tcusim.torch.segment_sum and its kin; got {dim}"
        )
    result = compute(input.values(), tuple(one - 1 for one in axes))
    left = ragged if keepdim else ragged - sum(one < ragged for one in axes)
    return torch.nested.nested_tensor_from_jagged(
        result, offsets=input.offsets(), lengths=input.lengths(), jagged_dim=left
    )
