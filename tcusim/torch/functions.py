"""Sums, scans and products of tensors, in torch's words.

Each function completes its arguments and calls an operator of `tcusim.torch.operators`. A tensor of
which nothing is recorded, in eager mode, goes straight to the operator's kernel: torch's dispatcher
would take longer than the launch.
"""

from __future__ import annotations

import numbers
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.compiler import assume_constant_result, is_compiling

import tcusim
from tcusim.arrays.home import no_integers, require_places, require_range
from tcusim.arrays.spec import not_an_axis
from tcusim.call_options import (
    AnyOptions,
    Bits,
    Options,
    alone,
    options_of,
    others,
    own_options,
    require_bits,
)
from tcusim.errors import InputError, require_flags
from tcusim.machine.convert import require_elements
from tcusim.machine.formats import array_name_of
from tcusim.torch.jagged import along, elements, is_nested
from tcusim.torch.operators import (
    OPERATORS,
    axes_of,
    axis_of,
    cumsum_kernel,
    in_forward_mode,
    is_integer,
    operator,
    require_finite,
    require_one_place,
    require_summable,
    result_type,
    sqrt_kernel,
    sum_kernel,
    type_of_sums,
)
from tcusim.torch.repeated import launched
from tcusim.torch.simulation import arch_for

__all__ = [
    "bits_of",
    "cumsum",
    "dims_of",
    "everywhere",
    "is_simple",
    "is_traced",
    "matmul",
    "matvec",
    "put",
    "require_memory",
    "require_options",
    "require_tensor",
    "sqrt",
    "sum",
    "sum_at_once",
    "sum_type",
    "tensor_beside",
    "with_whole",
]

Tensor: TypeAlias = torch.Tensor

_HALF = (torch.float16, torch.bfloat16)
_PLAIN = (torch.Tensor, torch.nn.Parameter)


# A function of torch's own, which it may lose.
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack


def is_traced() -> bool:
    """Return whether the call may be run again, by other code, on other values."""
    return is_compiling() or bool(_dispatch_modes())


def is_simple(*tensors: Tensor | None) -> bool:
    """Return whether nothing has to know of a call on these tensors but the kernel.

    Nothing traces or compiles it, records a derivative, carries a tangent along, or maps it over a
    batch, and the tensors have data.
    """
    if (
        is_traced()
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
    """Refuse other objects than tensors, and a DTensor with partial values."""
    if type(value) in _PLAIN:
        return
    if not isinstance(value, torch.Tensor):
        raise InputError(
            f"{name} must be a tensor of torch, got {type(value).__name__}. Other arrays are for "
            "tcusim.sum and its kin"
        )
    require_memory(name, value)
    if hasattr(value, "device_mesh"):
        # DTensors take longer to import than this package, and few have any.
        from tcusim.torch import sharded

        sharded.require_settled(name, value)


def require_memory(name: str, tensor: Tensor) -> None:
    """Refuse a tensor on the CPU whose memory does not hold its elements, before torch reads it.

    One that is traced, and one of another class, has none and needs none; but a MaskedTensor knows
    no operators beside torch's.
    """
    if type(tensor).__name__ == "MaskedTensor" or (not tensor.is_cuda and is_simple(tensor)):
        require_elements(name, tensor)


@assume_constant_result  # type: ignore[untyped-decorator] # torch has no types for it
def _surrounding_bits() -> str:
    """Return the bits of the options around a call, which are read while it is traced."""
    bits: str = options_of(None, "").planned[-1]
    return bits


def bits_of(options: AnyOptions, function: str) -> Any:
    """Return the kind of bits of a call: by its options, or by those around it."""
    if options is None:
        return _surrounding_bits()
    own = own_options(options, f"tcusim.torch.{function}", *others("bits"))
    return _surrounding_bits() if own.bits is None else own.bits


def require_options(bits: Any, **flags: Any) -> None:
    """Refuse options of which an operator would only say that they are of another type."""
    require_flags(**flags)
    require_bits(bits)


def with_whole(tensor: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return a DTensor with these axes whole on each rank; another tensor as it is."""
    if type(tensor) in _PLAIN or not hasattr(tensor, "device_mesh"):
        return tensor
    from tcusim.torch import sharded

    return sharded.with_whole(tensor, [axis % tensor.dim() for axis in axes])


def everywhere(numbers: Any) -> Any:
    """Return offsets or ids as a tensor that each rank has, if they are a DTensor."""
    return numbers.full_tensor() if hasattr(numbers, "full_tensor") else numbers


def _of_autocast(tensor: Tensor, dtype: Any) -> Any:
    """Return the type asked for: under autocast a sum of half precision is float32 unasked."""
    # The first question takes a tenth of the second one's time.
    if dtype is None and _any_autocast() and tensor.dtype in _HALF:
        return torch.float32 if torch.is_autocast_enabled(tensor.device.type) else None
    return dtype


def sum_type(tensor: Tensor, dtype: Any) -> Any:
    """Return the type of a sum's result."""
    require_tensor("input", tensor)
    return result_type(_of_autocast(tensor, dtype), tensor.dtype)


def dims_of(dim: Any) -> tuple[int, ...] | None:
    """Return axes as a tuple; None for all, which an empty tuple is in torch."""
    if dim is None or is_integer(dim):
        return None if dim is None else (int(dim),)
    if not isinstance(dim, tuple | list):
        raise not_an_axis("dim", dim, several=True)
    return tuple(dim) or None


def put(result: Tensor, out: Tensor | None) -> Tensor:
    """Write a result where it is wanted; refuse another shape or type, and to lose a gradient."""
    if out is None:
        return result
    if not isinstance(out, torch.Tensor):
        raise InputError(f"out must be a tensor of torch, got {type(out).__name__}")
    if result.requires_grad:
        raise InputError(
            "out= takes no result that has a gradient. Leave out= out, or use torch.no_grad()"
        )
    require_one_place({"input": result, "out": out})
    require_memory("out", out)
    if out.shape != result.shape or out.dtype != result.dtype:
        raise InputError(
            f"out must be a tensor of {result.dtype}, shape {tuple(result.shape)}; it is of "
            f"{out.dtype}, {tuple(out.shape)}"
        )
    if not is_traced():
        require_places(out.shape, out.stride(), 1)
    return out.copy_(result)


def tensor_beside(input: Tensor, value: Any, wanted: Any, bits: Bits) -> Any:
    """Return a scan's initial number as a tensor where `input` is; a tensor, or None, as it is.

    wanted: the type of the result.
    """
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        require_memory("initial", value)
        return value
    if not isinstance(value, numbers.Real | torch.SymFloat | torch.SymInt):
        raise InputError(f"initial must be a number or a tensor, got {value!r}")
    kind = torch.float64 if wanted.is_floating_point else torch.int64
    if not isinstance(value, torch.SymFloat | torch.SymInt):
        value = _number(value, wanted)
        if kind == torch.float64:
            require_finite(value, type_of_sums(input.dtype, wanted, bits))
    if wanted == torch.uint64:
        kind = wanted
    return torch.full((), value, dtype=kind, device=input.device)


def _number(value: Any, wanted: Any) -> int | float:
    """Return a number for a result of this type; refuse a lossy conversion."""
    if wanted.is_floating_point:
        try:
            return float(value)
        except OverflowError as error:
            raise InputError(f"initial is beyond the range of torch.float64: {error}") from error
    if not isinstance(value, numbers.Integral):
        raise no_integers("initial", type(value).__name__, wanted)
    require_range(int(value), array_name_of(wanted))
    return int(value)


def sum(
    input: Tensor,
    dim: int | tuple[int, ...] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
    options: AnyOptions = None,
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
    out : Tensor, optional
        Where to put the result.
    options : Options or mapping, optional
        `bits`, as `tcusim.Options` tells: ``{"bits": "exact"}`` rounds the true sum once, to one
        set of bits on every GPU. `torch.compile` and `torch.export` trace them: those of
        `tcusim.options` are read then. `simulated` sets the architecture whose bits a tensor on
        the CPU gets.

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
    axes, bits = dims_of(dim), bits_of(options, "sum")
    if is_simple(input):
        wanted = _of_autocast(input, dtype)
        result = launched(sum_kernel, input, axes, keepdim, wanted, bits)
        return result if out is None else put(result, out)
    wanted = sum_type(input, dtype)
    require_options(bits, keepdim=keepdim)
    if is_nested(input):
        if axes is None:
            return put(sum(elements(input), dtype=dtype, options={"bits": bits}), out)
        call = partial(sum, keepdim=keepdim, dtype=dtype, options={"bits": bits})
        return put(along(input, dim, keepdim, call), out)
    # torch's own check of an operator's integers says nothing of axes.
    axes = None if axes is None else axes_of(axes, input.dim())
    return put(operator("sum")(input, axes, keepdim, wanted, bits), out)


def sum_at_once(
    input: Tensor, axes: tuple[int, ...] | None, keepdim: bool, dtype: Any = None
) -> Tensor:
    """Return the sum of a tensor of which nothing is recorded, with the bits around the call."""
    result: Tensor = launched(sum_kernel, input, axes, keepdim, dtype, _surrounding_bits())
    return result


def cumsum(
    input: Tensor,
    dim: int,
    *,
    dtype: Any = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: float | Tensor | None = None,
    out: Tensor | None = None,
    options: AnyOptions = None,
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
    initial : number or Tensor, optional
        An addend of every sum, before the first element (in reverse, after the last): a
        number, or a tensor that is broadcast to the shape of `input` without the axis.
    out : Tensor, optional
        Where to put the result; it may be `input` itself.
    input, dtype, options
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
    if not is_integer(dim):
        raise not_an_axis("dim", dim, several=False)
    bits = bits_of(options, "cumsum")
    simple = is_simple(input) and initial is None
    if simple and out is None:
        wanted = _of_autocast(input, dtype)
        return launched(cumsum_kernel, input, dim, exclusive, reverse, wanted, bits)
    wanted = sum_type(input, dtype)
    if simple:
        return tcusim.cumsum(
            input.detach(), axis=dim, dtype=array_name_of(wanted), out=out,
            exclusive=exclusive, reverse=reverse,
            options=alone(Options(arch=arch_for(input), bits=bits)),
        )  # fmt: skip
    require_options(bits, exclusive=exclusive, reverse=reverse)
    if is_nested(input):

        def scan(values: Tensor, axes: tuple[int, ...]) -> Tensor:
            more: Any = {"dtype": dtype, "exclusive": exclusive, "reverse": reverse}
            return cumsum(values, axes[0], initial=initial, options={"bits": bits}, **more)

        return put(along(input, dim, True, scan), out)
    dim = axis_of(dim, input.dim())
    before = tensor_beside(input, initial, wanted, bits)
    return put(operator("cumsum")(input, dim, exclusive, reverse, wanted, bits, before), out)


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
    if is_nested(a) and not is_nested(b) and b.dim() == 2:
        # The ragged axis is one of the rows.
        axis = a.dim() - 1
        product = along(
            a, axis, True, lambda values, _: matmul(values, b, dtype=dtype), "the columns of a"
        )
        return put(product, out)
    return _product(a, b, "b", dtype, out)


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
    return _product(a, x, "x", dtype, out)


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
    if is_nested(input):
        return along(input, (), True, lambda values, axes: sqrt(values))
    return sqrt_kernel(input) if is_simple(input) else operator("sqrt")(input)


def _product(a: Tensor, b: Tensor, name: str, dtype: Any, out: Tensor | None) -> Tensor:
    """Multiply factors, cast by autocast; refuse impossible products. name: of the second one."""
    require_tensor("a", a)
    require_tensor(name, b)
    for one, told in ((a, "a"), (b, name)):
        if is_nested(one):
            raise InputError(
                f"{told} is nested: a jagged tensor (B, j, k) is multiplied by a matrix (k, n). "
                "Multiply its values(), or the tensors of unbind() one by one"
            )
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
    # A left factor of one axis is a matrix of one row.
    rows = a.unsqueeze(0) if a.dim() == 1 else a
    operation, row = ("matvec", -1) if name == "x" or b.dim() == 1 else ("matmul", -2)
    call = OPERATORS[operation].kernel if is_simple(rows, b) else operator(operation)
    result = call(rows, b, result_type(dtype, a.dtype))
    return put(result.squeeze(row) if a.dim() == 1 else result, out)
