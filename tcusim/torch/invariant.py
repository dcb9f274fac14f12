"""A mode in which torch's own sums, products and norms have bits that the batch does not change."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from inspect import signature
from typing import Any, Final, Literal, TypeAlias

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from tcusim.errors import InputError, names_of, require_flags
from tcusim.torch.functions import Tensor, cumsum, matmul
from tcusim.torch.functions import sum as tensor_sum
from tcusim.torch.norm_operators import gradients
from tcusim.torch.norms import (
    added_by_rms_norm,
    centred,
    last_axes,
    log_softmax,
    mean,
    normalised,
    softmax,
)
from tcusim.torch.operators import in_forward_mode

Device: TypeAlias = Literal["cuda", "cpu"]
Devices: TypeAlias = Device | Sequence[Device]

_LOCK: Final = threading.RLock()
# The nesting depth of the mode on each device, and its registrations.
_DEPTH: Final[dict[str, int]] = {}
_LIBRARIES: Final[dict[str, Any]] = {}
# Whether torch took its fast paths of attention before the mode.
_FAST_PATH: Final[list[bool]] = []

_DEVICES: Final = {"cuda": "CUDA", "cpu": "CPU"}


@contextmanager
def batch_invariant(devices: Devices = "cuda", *, strict: bool = False) -> Iterator[None]:
    """Within this context, torch's sums, means, scans, products and norms go through this package.

    A model's output for one example then does not depend on the other examples of its batch, as far
    as the operators of `ROUTED` go. It applies to all threads of the process. Code compiled
    by torch.compile's inductor has kernels of its own, and is not routed: call the functions of
    this package there. The fast paths of `torch.nn.TransformerEncoderLayer` and
    `torch.nn.MultiheadAttention`, which are kernels of their own, are off.

    Parameters
    ----------
    devices : {"cuda", "cpu"} or sequence of them
        Whose tensors. On the CPU the simulator runs. A warning tells that torch has no CUDA.
    strict : bool
        Warn of each operator that adds and is not routed, once, when this thread calls it.

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
    require_flags(strict=strict)
    names = names_of("devices", devices)
    if not names:
        raise InputError("devices must be 'cuda', 'cpu' or both, got none")
    for name in names:
        if name not in _DEVICES:
            raise InputError(f"devices must be 'cuda', 'cpu' or both, got {name!r}")
    if names == ["cuda"] and not torch.cuda.is_available():
        warnings.warn(
            "batch_invariant: this torch has no CUDA, and nothing is routed. Tensors on the CPU "
            "are by batch_invariant('cpu')",
            stacklevel=3,
        )
    with _LOCK:
        for name in names:
            _enter(name)
    try:
        with _Unrouted() if strict else nullcontext():
            yield
    finally:
        with _LOCK:
            for name in names:
                _leave(name)


def adds(packet: str) -> bool:
    """Return whether an operator of torch adds up several elements; packet: without overloads."""
    return packet in _ADDS or packet.startswith(_ADD_OF)


def _enter(device: str) -> None:
    if not any(_DEPTH.values()):
        _FAST_PATH.append(torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
    _DEPTH[device] = _DEPTH.get(device, 0) + 1
    if _DEPTH[device] > 1:
        return
    library = torch.library.Library("aten", "IMPL")
    key = _DEVICES[device]
    with warnings.catch_warnings():
        # torch warns of the replaced kernel, which is intended.
        warnings.simplefilter("ignore")
        for name, ours in _KERNELS.items():
            if _exists(name):
                kernel = _without_tangents(_routed(name, ours, key))
                library.impl(name, kernel, key, with_keyset=True)
    _LIBRARIES[device] = library


def _leave(device: str) -> None:
    _DEPTH[device] -= 1
    if _DEPTH[device] == 0:
        _LIBRARIES.pop(device)._destroy()
    if not any(_DEPTH.values()):
        torch.backends.mha.set_fastpath_enabled(_FAST_PATH.pop())


class _Unrouted(TorchDispatchMode):  # type: ignore[misc] # mypy has no torch
    """Warns of operators that add and are not routed."""

    def __init__(self) -> None:
        super().__init__()
        self._told: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        name = func.name().removeprefix("aten::")
        if name in ROUTED:
            return func(*args, **given)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func.decompose(*args, **given)
        is_new = func.namespace == "aten" and func not in self._told
        if is_new and adds(name.partition(".")[0].removesuffix("_")):
            self._told.add(func)
            warnings.warn(
                f"batch_invariant: {func} adds, and is not routed. Its bits may depend on the "
                "batch",
                stacklevel=2,
            )
        return func(*args, **given)


def _exists(name: str) -> bool:
    packet, _, overload = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return found is not None and (overload or "default") in found.overloads()


def _routed(name: str, ours: Callable[..., Any], key: str) -> Callable[..., Any]:
    """Return the kernel of an operator, of its form with `out` or of that in place as well."""
    try:
        usual = torch.library.get_kernel(f"aten::{name}", key).call_boxed
    except RuntimeError:
        # The gradient of a norm, which torch has on CUDA only.
        usual = None
    in_place, is_typed = name.endswith("_"), "dtype" in signature(ours).parameters

    def kernel(keyset: Any, *arguments: Any, **more: Any) -> Any:
        asked = dict(more)
        out = arguments[0] if in_place else asked.pop("out", None)
        if out is not None and is_typed and not in_place and asked.get("dtype") is None:
            asked["dtype"] = out.dtype
        result = ours(*arguments, **asked)
        if out is None and result is not NotImplemented:
            return result
        if result is NotImplemented or result.dtype != out.dtype:
            return usual(keyset, *arguments, **more)
        if out.shape != result.shape:
            # torch makes `out` longer or shorter, or refuses it.
            usual(keyset, *arguments, **more)
        return out.copy_(result)

    return kernel


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
# Each returns NotImplemented for tensors that it leaves to torch's own kernel: complex numbers,
# integers in products, tensors without elements.

_FLOATS: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _ours(*tensors: Tensor) -> bool:
    first = tensors[0]
    return all(
        one.dtype in _FLOATS
        and one.dtype == first.dtype
        and one.numel()
        and one.layout == torch.strided
        for one in tensors
    )


def _reduced(function: Callable[..., Any], input: Tensor, *axes: Any, dtype: Any = None) -> Any:
    if not _ours(input) or dtype not in (None, *_FLOATS):
        return NotImplemented
    return function(input, *axes, dtype=dtype or input.dtype)


def _normal(function: Callable[..., Any], input: Tensor, dim: int, half_to_float: bool) -> Any:
    if not _ours(input):
        return NotImplemented
    return function(input, dim, dtype=torch.float32 if half_to_float else None)


def _fit(a: Tensor, b: Tensor) -> bool:
    """Return whether these are factors of one rank, or a matrix and a vector; torch refuses others.

    Stacks are of one size.
    """
    if not _ours(a, b):
        return False
    if b.dim() == 1:
        return bool(a.dim() in (1, 2) and a.shape[-1] == b.shape[0])
    return bool(a.dim() == b.dim() and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2])


def _product(a: Tensor, b: Tensor) -> Any:
    return matmul(a, b) if _fit(a, b) else NotImplemented


def _dot(a: Tensor, b: Tensor) -> Any:
    return _product(a, b) if a.dim() == 1 else NotImplemented


def _added(c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not _fit(a, b) or c.dtype != a.dtype:
        return NotImplemented
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    product = matmul(a, b, dtype=wide)
    product = product if alpha == 1 else alpha * product
    if beta != 0:
        product = product + (c if beta == 1 else beta * c).expand(product.shape)
    # As in torch, the operand of beta = 0 is ignored, even if NaN.
    return product.to(a.dtype)


def _layer_norm(
    input: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    if not _ours(input):
        return NotImplemented
    axes = last_axes(input, shape, eps, weight=weight, bias=bias)
    result, centre, root = centred(input, axes, weight, bias, eps)
    kept = torch.float64 if input.dtype == torch.float64 else torch.float32
    if input.device.type == "cpu":
        kept = input.dtype if weight is None else weight.dtype
    # torch keeps for the derivative the mean, and one over the deviation.
    return result, centre.to(kept), (1 / root).to(kept)


def _rms_norm(input: Tensor, shape: Any, weight: Tensor | None, eps: float | None) -> Any:
    if not _ours(input):
        return NotImplemented
    added = added_by_rms_norm(input, eps)
    axes = last_axes(input, shape, added, weight=weight)
    return normalised(input, axes, weight, added, scales=True)


def _rms_norm_backward(
    gradient: Tensor, input: Tensor, shape: Any, scale: Tensor, weight: Tensor | None, needed: Any
) -> Any:
    if not input.numel():
        none = torch.zeros_like(input) if needed[0] else None
        return none, torch.zeros_like(weight) if needed[1] else None
    first = input.dim() - len(shape)
    rows, given = input.flatten(first), gradient.flatten(first)
    flat = None if weight is None else weight.flatten()
    scales = scale.reshape(*input.shape[:first], 1)
    for_input, for_weight = gradients(given, rows, flat, scales, needed)
    return (
        None if for_input is None else for_input.reshape(input.shape),
        None if for_weight is None else for_weight.reshape(shape),
    )


# By their names in `torch.ops.aten`.
_KERNELS: Final[dict[str, Callable[..., Any]]] = {
    **dict.fromkeys(("sum", "sum.dim_IntList", "sum.IntList_out"), partial(_reduced, tensor_sum)),
    **dict.fromkeys(("mean.dim", "mean.out"), partial(_reduced, mean)),
    **dict.fromkeys(("cumsum", "cumsum.out", "cumsum_"), partial(_reduced, cumsum)),
    **dict.fromkeys(("mm", "mm.out", "bmm", "bmm.out"), _product),
    **dict.fromkeys(("addmm", "addmm.out", "addmm_"), _added),
    **dict.fromkeys(("baddbmm", "baddbmm.out", "baddbmm_"), _added),
    **dict.fromkeys(("mv", "mv.out"), _product),
    **dict.fromkeys(("addmv", "addmv.out", "addmv_"), _added),
    **dict.fromkeys(("dot", "vdot"), _dot),
    **dict.fromkeys(("_softmax", "_softmax.out"), partial(_normal, softmax)),
    **dict.fromkeys(("_log_softmax", "_log_softmax.out"), partial(_normal, log_softmax)),
    "native_layer_norm": _layer_norm,
    "_fused_rms_norm": _rms_norm,
    "_fused_rms_norm_backward": _rms_norm_backward,
}

# The operators of torch that are routed.
ROUTED: Final = tuple(_KERNELS)

# Operators that add up several elements, without their overloads.
_NAMES: Final = """
sum nansum mean nanmean cumsum prod cumprod logsumexp logcumsumexp trace histc bincount
norm native_norm linalg_vector_norm dist renorm var var_mean std std_mean _softmax _log_softmax
mm bmm addmm baddbmm addbmm addmv mv dot vdot _addmm_activation _int_mm _scaled_mm _trilinear
_weight_int8pack_mm _weight_int4pack_mm linear mkldnn_linear mkldnn_rnn_layer _cudnn_rnn
convolution _convolution convolution_overrideable mkldnn_convolution cudnn_convolution
native_layer_norm native_group_norm native_batch_norm batch_norm_stats cudnn_batch_norm
_native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update
_fused_rms_norm native_layer_norm_backward native_group_norm_backward native_batch_norm_backward
_softmax_backward_data _log_softmax_backward_data convolution_backward embedding_dense_backward
scatter_add scatter_reduce index_add index_reduce index_put segment_reduce _embedding_bag
_embedding_bag_forward_only avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
nll_loss_forward nll_loss2d_forward mse_loss binary_cross_entropy smooth_l1_loss huber_loss
soft_margin_loss multi_margin_loss multilabel_margin_loss_forward _ctc_loss
_cdist_forward _pdist_forward _transformer_encoder_layer_fwd _native_multi_head_attention
_efficient_attention_forward _flash_attention_forward
"""
_ADDS: Final = frozenset(_NAMES.split())
# And those whose names begin so.
_ADD_OF: Final = ("_scaled_dot_product_", "_fft_", "linalg_", "upsample_", "_foreach_norm")
