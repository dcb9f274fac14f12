"""Calls that reach each operator of torch that `batch_invariant` routes. It imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

F: Final = torch.nn.functional
COLUMNS: Final = 96
_RIGHT: Final = torch.randn(COLUMNS, 8, generator=torch.Generator().manual_seed(1))


def _right(x: Any) -> Any:
    return _RIGHT.to(x)


def _into(call: Callable[..., Any], x: Any, *factors: Any, **more: Any) -> Any:
    """Return the result of a call that writes to a tensor and makes it longer."""
    return call(*factors or (x,), out=x.new_empty(0), **more)


def _zeros(x: Any, *shape: int) -> Any:
    return x.new_zeros(len(x), *shape)


def _stacks(x: Any) -> tuple[Any, Any]:
    return x[:, None], _right(x).expand(len(x), COLUMNS, 8)


def _rows(x: Any, call: Callable[[Any], Any]) -> Any:
    """Return the results of a call on each row."""
    return torch.stack([call(row) for row in x])


# Of rows (B, COLUMNS), results (B, ...): each row follows only from that row.
CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "sum": lambda x: _rows(x, torch.sum),
    "sum.dim_IntList": lambda x: torch.sum(x, 1),
    "sum.IntList_out": lambda x: _into(torch.sum, x, dim=1),
    "mean.dim": lambda x: x.mean(1, True),
    "mean.out": lambda x: _into(torch.mean, x, dim=1),
    "cumsum": lambda x: torch.cumsum(x, 1),
    "cumsum.out": lambda x: _into(torch.cumsum, x, dim=1),
    "cumsum_": lambda x: x.clone().cumsum_(1),
    "mm": lambda x: x @ _right(x),
    "mm.out": lambda x: _into(torch.mm, x, x, _right(x)),
    "bmm": lambda x: torch.bmm(*_stacks(x)),
    "bmm.out": lambda x: _into(torch.bmm, x, *_stacks(x)),
    "addmm": lambda x: F.linear(x, _right(x).T, _right(x)[0]),
    "addmm.out": lambda x: _into(torch.addmm, x, _right(x)[0], x, _right(x), beta=2, alpha=3),
    "addmm_": lambda x: (_zeros(x, 8) + 1).addmm_(x, _right(x), beta=2),
    "baddbmm": lambda x: torch.baddbmm(_zeros(x, 1, 1) + 1, *_stacks(x), alpha=0.5),
    "baddbmm.out": lambda x: _into(torch.baddbmm, x, _right(x)[0], *_stacks(x)),
    "baddbmm_": lambda x: (_zeros(x, 1, 8) + 1).baddbmm_(*_stacks(x)),
    "mv": lambda x: torch.mv(x, _right(x)[:, 0]),
    "mv.out": lambda x: _into(torch.mv, x, x, _right(x)[:, 0]),
    "addmv": lambda x: torch.addmv(_zeros(x) + 1, x, _right(x)[:, 0], beta=0.5),
    "addmv.out": lambda x: _into(torch.addmv, x, _zeros(x), x, _right(x)[:, 0]),
    "addmv_": lambda x: (_zeros(x) + 1).addmv_(x, _right(x)[:, 0]),
    "dot": lambda x: _rows(x, lambda row: torch.dot(row, _right(x)[:, 0])),
    "vdot": lambda x: _rows(x, lambda row: torch.vdot(row, _right(x)[:, 0])),
    "_softmax": lambda x: torch.softmax(x, 1),
    "_softmax.out": lambda x: _into(torch.softmax, x, dim=1),
    "_log_softmax": lambda x: torch.log_softmax(x, 1),
    "_log_softmax.out": lambda x: _into(torch.log_softmax, x, dim=1),
    "native_layer_norm": lambda x: F.layer_norm(x, (COLUMNS,), _right(x)[:, 0], _right(x)[:, 1]),
    "_fused_rms_norm": lambda x: F.rms_norm(x, (COLUMNS,), _right(x)[:, 0]),
    # A row's gradient, by a norm over two axes.
    "_fused_rms_norm_backward": lambda x: F.rms_norm(x.reshape(-1, 4, 24), (4, 24)),
}  # fmt: skip


def is_derived(name: str) -> bool:
    """Return whether torch records a derivative of a call: not of those with ``out=``."""
    return not name.endswith("out")
