"""A mode in which torch's own sums, products and norms have bits that the batch does not change."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.autograd import forward_ad

from tcusim.errors import InputError
from tcusim.torch.functions import Tensor, cumsum, matmul
from tcusim.torch.functions import sum as tensor_sum
from tcusim.torch.norms import centred, log_softmax, mean, normalised, softmax
from tcusim.torch.operators import in_forward_mode

__all__ = ["ROUTED", "batch_invariant"]

_LOCK: Final = threading.RLock()
# How often each device is within the mode, and what put it there.
_DEPTH: Final[dict[str, int]] = {}
_LIBRARIES: Final[dict[str, Any]] = {}

_DEVICES: Final = {"cuda": "CUDA", "cpu": "CPU"}


@contextmanager
def batch_invariant(devices: str | Sequence[str] = "cuda") -> Iterator[None]:
    """Within this context, torch's sums, means, scans, products and norms go through this package.

    What a model returns for one example then does not depend on the other examples of its batch,
    as far as the operators of `ROUTED` go. It concerns all threads of the process. What is compiled
    by torch.compile's inductor has kernels of its own, and is not routed: call the functions of
    this package there.

    Parameters
    ----------
    devices : str or sequence of str
        ``"cuda"``, ``"cpu"`` or both: whose tensors. On the CPU the simulator runs.

    Raises
    ------
    InputError
        If a device is none of these.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> x = torch.randn(300, 1000)
    >>> with tct.batch_invariant("cpu"):
    ...     bool((torch.sum(x, dim=1)[7] == torch.sum(x[7:8], dim=1)).all())
    True
    """
    names = [devices] if isinstance(devices, str) else list(devices)
    for name in names:
        if name not in _DEVICES:
            raise InputError(f"devices must be 'cuda', 'cpu' or both, got {name!r}")
    with _LOCK:
        for name in names:
            _enter(name)
    try:
        yield
    finally:
        with _LOCK:
            for name in names:
                _leave(name)


def _enter(device: str) -> None:
    _DEPTH[device] = _DEPTH.get(device, 0) + 1
    if _DEPTH[device] > 1:
        return
    library = torch.library.Library("aten", "IMPL")
    key = _DEVICES[device]
    with warnings.catch_warnings():
        # torch warns of what is done here on purpose: a kernel is replaced.
        warnings.simplefilter("ignore")
        for name, make in _KERNELS.items():
            if _exists(name):
                usual = torch.library.get_kernel(f"aten::{name}", key)
                kernel = _without_tangents(make(_caller(usual)))
                library.impl(name, kernel, key, with_keyset=True)
    _LIBRARIES[device] = library


def _leave(device: str) -> None:
    _DEPTH[device] -= 1
    if _DEPTH[device] == 0:
        _LIBRARIES.pop(device)._destroy()


def _exists(name: str) -> bool:
    packet, _, overload = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return found is not None and (overload or "default") in found.overloads()


def _caller(usual: Any) -> Callable[..., Any]:
    """Return what computes as torch does outside of the mode."""

    def call(keyset: Any, *arguments: Any, **more: Any) -> Any:
        return usual.call_boxed(keyset, *arguments, **more)

    return call


def _without_tangents(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel for which forward mode is off: above it, torch computes the tangents."""

    def call(*arguments: Any, **more: Any) -> Any:
        if not in_forward_mode():
            return kernel(*arguments, **more)
        with forward_ad._set_fwd_grad_enabled(False):
            return kernel(*arguments, **more)

    return call


# --- The operators --------------------------------------------------------------------------------
#
# Each takes torch's own kernel, for tensors that this package does not compute: complex numbers,
# integers in products, tensors without elements.

_FLOATS: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Usual = Callable[..., Any]


def _ours(*tensors: Tensor) -> bool:
    first = tensors[0]
    return all(
        one.dtype in _FLOATS
        and one.dtype == first.dtype
        and one.numel()
        and one.layout == torch.strided
        for one in tensors
    )


def _sum(usual: Usual) -> Usual:
    def kernel(
        keyset: Any, input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Tensor:
        if not _ours(input) or (dtype is not None and dtype not in _FLOATS):
            return usual(keyset, input, dim, keepdim, dtype=dtype)
        return tensor_sum(input, tuple(dim) if dim else None, keepdim, dtype=dtype or input.dtype)

    return kernel


def _whole_sum(usual: Usual) -> Usual:
    def kernel(keyset: Any, input: Tensor, *, dtype: Any = None) -> Tensor:
        if not _ours(input) or (dtype is not None and dtype not in _FLOATS):
            return usual(keyset, input, dtype=dtype)
        return tensor_sum(input, dtype=dtype or input.dtype)

    return kernel


def _mean(usual: Usual) -> Usual:
    def kernel(
        keyset: Any, input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Tensor:
        if not _ours(input) or (dtype is not None and dtype not in _FLOATS):
            return usual(keyset, input, dim, keepdim, dtype=dtype)
        return mean(input, tuple(dim) if dim else None, keepdim, dtype=dtype)

    return kernel


def _cumsum(usual: Usual) -> Usual:
    def kernel(keyset: Any, input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        if not _ours(input) or not input.dim() or (dtype is not None and dtype not in _FLOATS):
            return usual(keyset, input, dim, dtype=dtype)
        return cumsum(input, dim, dtype=dtype or input.dtype)

    return kernel


def _mm(usual: Usual) -> Usual:
    def kernel(keyset: Any, a: Tensor, b: Tensor) -> Tensor:
        return matmul(a, b) if _ours(a, b) else usual(keyset, a, b)

    return kernel


def _addmm(usual: Usual) -> Usual:
    def kernel(
        keyset: Any, c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
    ) -> Tensor:
        if not _ours(a, b):
            return usual(keyset, c, a, b, beta=beta, alpha=alpha)
        wide = torch.float64 if a.dtype == torch.float64 else torch.float32
        product = matmul(a, b, dtype=wide)
        product = product if alpha == 1 else alpha * product
        # As in torch, what beta = 0 leaves out may be NaN.
        total = product if beta == 0 else product + (c if beta == 1 else beta * c)
        return total.to(a.dtype)

    return kernel


def _softmax(usual: Usual) -> Usual:
    def kernel(keyset: Any, input: Tensor, dim: int, half_to_float: bool) -> Tensor:
        if not _ours(input) or not input.dim():
            return usual(keyset, input, dim, half_to_float)
        return softmax(input, dim, dtype=torch.float32 if half_to_float else None)

    return kernel


def _log_softmax(usual: Usual) -> Usual:
    def kernel(keyset: Any, input: Tensor, dim: int, half_to_float: bool) -> Tensor:
        if not _ours(input) or not input.dim():
            return usual(keyset, input, dim, half_to_float)
        return log_softmax(input, dim, dtype=torch.float32 if half_to_float else None)

    return kernel


def _layer_norm(usual: Usual) -> Usual:
    def kernel(
        keyset: Any,
        input: Tensor,
        shape: Any,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if not _ours(input):
            whole: tuple[Tensor, Tensor, Tensor] = usual(keyset, input, shape, weight, bias, eps)
            return whole
        axes = tuple(range(-len(shape), 0))
        result, centre, root = centred(input, axes, weight, bias, eps)
        kept = torch.float64 if input.dtype == torch.float64 else torch.float32
        if input.device.type == "cpu":
            kept = input.dtype if weight is None else weight.dtype
        # What torch keeps for the derivative: the mean, and one over the deviation.
        return result, centre.to(kept), (1 / root).to(kept)

    return kernel


def _rms_norm(usual: Usual) -> Usual:
    def kernel(
        keyset: Any, input: Tensor, shape: Any, weight: Tensor | None, eps: float | None
    ) -> tuple[Tensor, Tensor]:
        if not _ours(input):
            whole: tuple[Tensor, Tensor] = usual(keyset, input, shape, weight, eps)
            return whole
        axes = tuple(range(-len(shape), 0))
        added = torch.finfo(input.dtype).eps if eps is None else eps
        result, inverse = normalised(input, axes, weight, added, scales=True)
        return result, inverse

    return kernel


_KERNELS: Final[dict[str, Callable[[Usual], Usual]]] = {
    "sum": _whole_sum,
    "sum.dim_IntList": _sum,
    "mean.dim": _mean,
    "cumsum": _cumsum,
    "mm": _mm,
    "bmm": _mm,
    "addmm": _addmm,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
}

# The operators of torch that are routed, by their names in `torch.ops.aten`.
ROUTED: Final = tuple(_KERNELS)
