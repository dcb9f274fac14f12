"""Sums, scans and products of tensors, in torch's words.

Each function completes its arguments and calls an operator of `tcusim.torch.operators`. A tensor of
which nothing is recorded, in eager mode, goes straight to the operator's kernel: torch's dispatcher
would take longer than the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from torch.compiler import is_compiling

import tcusim
from tcusim.errors import InputError
from tcusim.machine.formats import array_name_of
from tcusim.torch.operators import (
    cumsum_kernel,
    in_forward_mode,
    matmul_kernel,
    matvec_kernel,
    operator,
    require_summable,
    result_type,
    segment_cumsum_kernel,
    segment_sum_kernel,
    sqrt_kernel,
    sum_kernel,
)
from tcusim.torch.repeated import launched
from tcusim.torch.simulation import arch_for

__all__ = [
    "cumsum",
    "dims_of",
    "is_simple",
    "matmul",
    "matvec",
    "require_tensor",
    "segment_cumsum",
    "segment_sum",
    "sqrt",
    "sum",
    "with_whole",
]

Tensor: TypeAlias = Any
Bits: TypeAlias = Literal["segment", "exact"]

_HALF = (torch.float16, torch.bfloat16)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


# A function of torch's own, which it may lose.
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack


def is_simple(*tensors: Tensor | None) -> bool:
    """Return whether nothing has to know of a call on these tensors but the kernel.

    Nothing traces or compiles it, records a derivative, carries a tangent along, or maps it over a
    batch, and the tensors have data.
    """
    if (
        is_compiling()
        or _dispatch_modes()
        or _transform() is not None
        # Which tensors have tangents takes longer to ask.
        or in_forward_mode()
    ):
        return False
    grad = torch.is_grad_enabled()
    # A loop, which takes half as long as `all`.
    for one in tensors:
        if one is not None and (
            type(one) not in _PLAIN
            or (grad and one.requires_grad)
            # Elements that are not there, that lie elsewhere as zeros, or with another sign.
            or one.is_meta
            or one.is_neg()
            or one._is_zerotensor()
        ):
            return False
    return True


def require_tensor(name: str, value: Any) -> None:
    """Refuse what is no tensor, and a DTensor whose values are still to be added."""
    if type(value) in _PLAIN:
        return
    if not isinstance(value, torch.Tensor):
        raise InputError(
            f"{name} must be a tensor of torch, got {type(value).__name__}. Other arrays are for "
            "tcusim.sum and its kin"
        )
    if hasattr(value, "device_mesh"):
        # DTensors take longer to import than this package, and few have any.
        from tcusim.torch import sharded

        sharded.require_settled(name, value)


def with_whole(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return a DTensor with these axes whole on each rank; another tensor as it is."""
    if type(tensor) in _PLAIN or not hasattr(tensor, "device_mesh"):
        return tensor
    from tcusim.torch import sharded

    return sharded.with_whole(tensor, [axis % tensor.dim() for axis in axes])


def _everywhere(numbers: Any) -> Any:
    """Return offsets or ids as a tensor that each rank has, if they are a DTensor."""
    return numbers.full_tensor() if hasattr(numbers, "full_tensor") else numbers


def _of_autocast(tensor: Tensor, dtype: Any) -> Any:
    """Return the type asked for: under autocast a sum of half precision is float32 unasked."""
    # The first question takes a tenth of the second one's time.
    if dtype is None and _any_autocast() and tensor.dtype in _HALF:
        return torch.float32 if torch.is_autocast_enabled(tensor.device.type) else None
    return dtype


def _result_type(tensor: Tensor, dtype: Any) -> Any:
    """Return the type of a sum's result."""
    require_tensor("input", tensor)
    return result_type(_of_autocast(tensor, dtype), tensor.dtype)


def dims_of(dim: Any) -> tuple[int, ...] | None:
    """Return axes as a tuple; None for all, which an empty tuple is in torch."""
    if dim is None or hasattr(dim, "__index__"):
        return None if dim is None else (int(dim),)
    if not isinstance(dim, tuple | list):
        raise InputError(f"dim must be an integer or a tuple of integers, got {dim!r}")
    return tuple(dim) or None


def _put(result: Tensor, out: Tensor | None) -> Tensor:
    """Write a result where it is wanted; refuse another shape or type, and to lose a gradient."""
    if out is None:
        return result
    if result.requires_grad:
        raise InputError(
            "out= takes no result that has a gradient. Leave out= out, or use torch.no_grad()"
        )
    if out.shape != result.shape or out.dtype != result.dtype:
        raise InputError(
            f"out must be a tensor of {result.dtype}, shape {tuple(result.shape)}; it is of "
            f"{out.dtype}, {tuple(out.shape)}"
        )
    return out.copy_(result)


def sum(
    input: Tensor,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    bits: Bits = "segment",
    out: Tensor | None = None,
) -> Tensor:
    """Sum a tensor on tensor cores, as `torch.sum` does.

    Parameters
    ----------
    input : Tensor
        float16, bfloat16, float32, float64, integers or bool, of any shape; on an NVIDIA GPU, or on
        the CPU, where the simulator runs. Of a DTensor the result is one, with the bits of the
        whole tensor.
    dim : int or tuple of int, optional
        Axes to sum; None or an empty tuple sums all.
    keepdim : bool
        Keep summed axes, with length 1.
    dtype : torch.dtype, optional
        Type of the result; by default that of `input`, int64 for integers, and under autocast
        float32 for half precision. Sums are added in float32 or wider in any case.
    bits : {"segment", "exact"}
        ``"exact"`` rounds the true sum once: one set of bits on every GPU.
    out : Tensor, optional
        Where to put the result.

    Returns
    -------
    Tensor
        Its bits depend on the summed elements alone, not on the batch around them.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.sum(torch.arange(6, dtype=torch.float16).reshape(2, 3), dim=1)
    tensor([ 3., 12.], dtype=torch.float16)
    """
    axes = dims_of(dim)
    if is_simple(input):
        wanted = _of_autocast(input, dtype)
        result = launched(sum_kernel, input, axes, keepdim, wanted, bits)
        return result if out is None else _put(result, out)
    wanted = _result_type(input, dtype)
    return _put(operator("sum")(input, axes, keepdim, wanted, bits), out)


def cumsum(
    input: Tensor,
    dim: int,
    *,
    dtype: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
    bits: Bits = "segment",
    out: Tensor | None = None,
) -> Tensor:
    """Scan a tensor along an axis on tensor cores, as `torch.cumsum` does.

    Parameters
    ----------
    dim : int
        The axis.
    exclusive : bool
        Leave each element out of its own prefix.
    reverse : bool
        Sum from the end.
    out : Tensor, optional
        Where to put the result; it may be `input` itself.
    input, dtype, bits
        As in `sum`.

    Returns
    -------
    Tensor
        Of the shape of `input`.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.cumsum(torch.ones(4, dtype=torch.float16), 0, reverse=True)
    tensor([4., 3., 2., 1.], dtype=torch.float16)
    """
    simple = is_simple(input)
    if simple and out is None:
        wanted = _of_autocast(input, dtype)
        return launched(cumsum_kernel, input, dim, exclusive, reverse, wanted, bits)
    wanted = _result_type(input, dtype)
    if simple:
        return tcusim.cumsum(
            input.detach(), axis=dim, dtype=array_name_of(wanted), out=out,
            exclusive=exclusive, reverse=reverse, bits=bits, arch=arch_for(input),
        )  # fmt: skip
    return _put(operator("cumsum")(input, dim, exclusive, reverse, wanted, bits), out)


def segment_sum(
    input: Tensor,
    size: int | None = None,
    *,
    offsets: Tensor | None = None,
    ids: Tensor | None = None,
    num_segments: int | None = None,
    dim: int = -1,
    check: bool = True,
    dtype: Any = None,
    bits: Bits = "segment",
    out: Tensor | None = None,
) -> Tensor:
    """Sum every segment of an axis on tensor cores.

    Parameters
    ----------
    input : Tensor
        As in `sum`. Or a nested tensor of the layout jagged: its offsets are taken, and `dim` is
        that of its ragged axis.
    size : int, optional
        Elements of each segment; the last one may be shorter.
    offsets : Tensor or list of int, shape (segments + 1,), optional
        Instead of a size: segment i is elements offsets[i] to offsets[i + 1].
    ids : Tensor or list of int, shape (elements of the axis,), optional
        Instead of offsets: the number of each element's segment, never decreasing.
    num_segments : int, optional
        With `ids`: how many segments there are. By default one more than the last id, which has to
        be read: on a GPU the call waits, and torch.compile breaks the graph.
    dim : int
        The axis that is made of segments. Rows (N, D) of N elements have ``dim=0``.
    check : bool
        Whether offsets or ids on a GPU are checked, for which the call waits. Without it, wrong
        ones give wrong results, but no access outside the tensors.
    dtype, bits, out
        As in `sum`.

    Returns
    -------
    Tensor
        Of the shape of `input`, the axis' length replaced by the number of segments.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> x = torch.arange(5, dtype=torch.float32)
    >>> tct.segment_sum(x, offsets=torch.tensor([0, 2, 2, 5]))
    tensor([1., 0., 9.])
    >>> tct.segment_sum(x, ids=torch.tensor([0, 0, 2, 2, 2]))
    tensor([1., 0., 9.])
    """
    input, offsets, dim = _segments(input, size, offsets, ids, num_segments, dim, check)
    arguments = size or 0, dim, check, _result_type(input, dtype), bits
    return _put(_of_segments("segment_sum", segment_sum_kernel, input, offsets, arguments), out)


def segment_cumsum(
    input: Tensor,
    size: int | None = None,
    *,
    offsets: Tensor | None = None,
    ids: Tensor | None = None,
    num_segments: int | None = None,
    dim: int = -1,
    check: bool = True,
    exclusive: bool = False,
    reverse: bool = False,
    dtype: Any = None,
    bits: Bits = "segment",
    out: Tensor | None = None,
) -> Tensor:
    """Scan every segment of an axis on tensor cores: prefix sums that begin anew in each.

    Parameters
    ----------
    exclusive, reverse : bool
        As in `cumsum`.
    input, size, offsets, ids, num_segments, dim, check, dtype, bits, out
        As in `segment_sum`.

    Returns
    -------
    Tensor
        Of the shape of `input`; of a nested tensor, of its values.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.segment_cumsum(torch.ones(5), offsets=torch.tensor([0, 2, 5]))
    tensor([1., 2., 1., 2., 3.])
    """
    input, offsets, dim = _segments(input, size, offsets, ids, num_segments, dim, check)
    wanted = _result_type(input, dtype)
    arguments = size or 0, dim, check, exclusive, reverse, wanted, bits
    result = _of_segments("segment_cumsum", segment_cumsum_kernel, input, offsets, arguments)
    return _put(result, out)


def _of_segments(
    name: str,
    kernel: Callable[..., Any],
    input: Tensor,
    offsets: Tensor | None,
    arguments: tuple[Any, ...],
) -> Tensor:
    """Return an operator's result; that of segments of one size by the way that is kept."""
    if not is_simple(input, offsets):
        return operator(name)(input, offsets, *arguments)
    if offsets is None:
        return launched(kernel, input, None, *arguments)
    return kernel(input, offsets, *arguments)


def _segments(
    input: Tensor,
    size: int | None,
    offsets: Tensor | None,
    ids: Tensor | None,
    num_segments: int | None,
    dim: int,
    check: bool,
) -> tuple[Tensor, Tensor | None, int]:
    """Return the elements, the offsets if there are any, and the axis."""
    if getattr(input, "is_nested", False):
        if size is not None or offsets is not None or ids is not None:
            raise InputError("a nested tensor has its own segments: leave out size, offsets, ids")
        if input.layout != torch.jagged:
            raise InputError(
                "a nested tensor must have the layout torch.jagged: "
                "torch.nested.nested_tensor(..., layout=torch.jagged)"
            )
        return input.values(), input.offsets(), 0
    given = [
        name
        for name, one in (("size", size), ("offsets", offsets), ("ids", ids))
        if one is not None
    ]
    if len(given) != 1:
        what = " and ".join(given) or "nothing"
        raise InputError(f"give one of size, offsets and ids; got {what}")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise InputError(f"size must be an integer from 1 on, got {size!r}")
    if ids is None:
        if num_segments is not None:
            raise InputError("num_segments is for ids; offsets and size say it themselves")
        return input, _integers("offsets", offsets, input), dim
    ids = _integers("ids", ids, input)
    if ids.dim() != 1 or ids.shape[0] != input.shape[dim]:
        raise InputError(
            f"ids must have one number for each of the {input.shape[dim]} elements of axis {dim}; "
            f"their shape is {tuple(ids.shape)}"
        )
    if num_segments is None:
        num_segments = int(ids[-1]) + 1 if ids.shape[0] else 0
    elif num_segments < 0:
        raise InputError(f"num_segments must be an integer from 0 on, got {num_segments!r}")
    if check and not (is_compiling() or ids.is_meta):
        _require_ids(ids, num_segments)
    borders = torch.arange(num_segments + 1, device=ids.device, dtype=ids.dtype)
    return input, torch.searchsorted(ids.contiguous(), borders), dim


def _integers(name: str, given: Any, input: Tensor) -> Any:
    """Return offsets or ids as a tensor of integers, which may be a list; None stays."""
    if given is None:
        return None
    if not isinstance(given, torch.Tensor):
        require_tensor("input", input)
        given = torch.as_tensor(given, device=input.device)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise InputError(f"{name} must be integers, got a tensor of {given.dtype}")
    return _everywhere(given)


def _require_ids(ids: Tensor, num_segments: int) -> None:
    """Refuse ids that decrease, or that no segment has."""
    if not ids.shape[0]:
        return
    if bool((ids[1:] < ids[:-1]).any()):
        place = int((ids[1:] < ids[:-1]).nonzero()[0, 0]) + 1
        raise InputError(
            f"ids must never decrease, but ids[{place}] is less than the one before. Sort the "
            "elements by their ids first"
        )
    first, last = int(ids[0]), int(ids[-1])
    if first < 0 or last >= num_segments:
        raise InputError(
            f"ids must be within 0..{num_segments - 1}; they are from {first} to {last}"
        )


def matmul(a: Tensor, b: Tensor, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """Multiply matrices on tensor cores, as `torch.matmul` does.

    Parameters
    ----------
    a, b : Tensor, shape (..., m, k) and (..., k, n)
        float16, bfloat16, float32 (as exact bfloat16 parts) or float64, of one type. The axes
        before the last two are broadcast; one axis is a row of `a` or a column of `b`. Under
        autocast both are cast to its type.
    dtype : torch.dtype, optional
        Type of the result; by default that of `a`.
    out : Tensor, optional
        Where to put the result.

    Returns
    -------
    Tensor
        Shape (..., m, n). A row's bits do not depend on the other rows of `a`.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> a = torch.arange(6, dtype=torch.float16).reshape(2, 3)
    >>> tct.matmul(a, a.T)
    tensor([[ 5., 14.],
            [14., 50.]], dtype=torch.float16)
    """
    a, b = _operands(a, b, "b")
    if b.dim() == 1:
        return matvec(a, b, dtype=dtype, out=out)
    rows = a.unsqueeze(-2) if a.dim() == 1 else a
    wanted = result_type(dtype, a.dtype)
    call = matmul_kernel if is_simple(rows, b) else operator("matmul")
    result = call(rows, b, wanted)
    return _put(result.squeeze(-2) if a.dim() == 1 else result, out)


def matvec(a: Tensor, x: Tensor, *, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """Multiply matrices by vectors on tensor cores.

    Parameters
    ----------
    a, x : Tensor, shape (..., m, k) and (..., k)
        Of the types that `matmul` takes; the axes in front are broadcast.
    dtype, out
        As in `matmul`.

    Returns
    -------
    Tensor
        Shape (..., m). These are not the bits of a column of `matmul`, which adds in another order.

    Raises
    ------
    InputError
        If an argument cannot be used; the text says which and why.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.matvec(torch.eye(2), torch.tensor([3.0, 4.0]))
    tensor([3., 4.])
    """
    a, x = _operands(a, x, "x")
    rows = a.unsqueeze(0) if a.dim() == 1 else a
    wanted = result_type(dtype, a.dtype)
    call = matvec_kernel if is_simple(rows, x) else operator("matvec")
    result = call(rows, x, wanted)
    return _put(result.squeeze(-1) if a.dim() == 1 else result, out)


def sqrt(input: Tensor) -> Tensor:
    """Take square roots that are rounded once on every device, as `torch.sqrt` does on a GPU.

    Parameters
    ----------
    input : Tensor
        Of a float type. On a CPU the last bit of torch's own root is wrong in every sixth float32.

    Returns
    -------
    Tensor
        Of the shape and type of `input`.

    Raises
    ------
    InputError
        If `input` is of another type.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> tct.sqrt(torch.tensor([4.0, 2.0]))
    tensor([2.0000, 1.4142])
    """
    if not is_simple(input):
        require_tensor("input", input)
    require_summable("input", input)
    if not input.dtype.is_floating_point:
        raise InputError(f"sqrt takes float tensors, got {input.dtype}. Cast it: input.float()")
    return sqrt_kernel(input) if is_simple(input) else operator("sqrt")(input)


def _operands(a: Tensor, b: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Return the factors of a product, cast as autocast says; refuse what cannot be multiplied."""
    require_tensor("a", a)
    require_tensor(name, b)
    for one, told in ((a, "a"), (b, name)):
        require_summable(told, one)
    kind = a.device.type
    if _any_autocast() and torch.is_autocast_enabled(kind) and a.dtype != torch.float64:
        wanted = torch.get_autocast_dtype(kind)
        a, b = a.to(wanted), b.to(wanted)
    if a.dtype != b.dtype or not a.dtype.is_floating_point:
        raise InputError(
            f"a and {name} must be of one float type; they are of {a.dtype} and {b.dtype}. Cast "
            "one of them; integers are multiplied by tcusim.matmul"
        )
    return a, b
