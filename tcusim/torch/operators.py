"""The operators `torch.ops.tcusim`: kernels, shapes, derivatives and vmap of each.

Operators are defined once, when this module is first imported. Users call the functions of
`tcusim.torch`, which check and complete the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from numbers import Integral
from typing import Any, Final

import numpy as np
import torch
from torch.autograd import forward_ad

import tcusim
from tcusim.arrays.home import beyond_range, no_integers, require_range
from tcusim.call_options import Options, alone
from tcusim.errors import InputError, require_flags
from tcusim.machine.convert import require_elements
from tcusim.machine.formats import array_name_of
from tcusim.torch.simulation import arch_for, own_arch

__all__ = [
    "LIBRARY",
    "axes_of",
    "axis_of",
    "cast",
    "divided",
    "divisor",
    "in_forward_mode",
    "no_batch_of",
    "operator",
    "placed",
    "placements",
    "plain",
    "register",
    "require_one_place",
    "require_summable",
    "result_type",
    "segments_at",
    "sqrt_kernel",
]

# It lives as long as the process: without it the operators are gone.
LIBRARY: Final = torch.library.Library("tcusim", "DEF")

LIBRARY.define("sum(Tensor input, int[]? dim, bool keepdim, ScalarType dtype, str bits) -> Tensor")
LIBRARY.define(
    "cumsum(Tensor input, int dim, bool exclusive, bool reverse, ScalarType dtype, str bits,"
    " Tensor? initial) -> Tensor"
)
LIBRARY.define(
    "segment_sum(Tensor input, Tensor? offsets, int size, int dim, bool check, ScalarType dtype,"
    " str bits) -> Tensor"
)
LIBRARY.define(
    "segment_cumsum(Tensor input, Tensor? offsets, int size, int dim, bool check, bool exclusive,"
    " bool reverse, ScalarType dtype, str bits, Tensor? initial) -> Tensor"
)
LIBRARY.define(
    "segment_spread(Tensor input, Tensor? offsets, int size, int dim, int length) -> Tensor"
)
LIBRARY.define("matmul(Tensor a, Tensor b, ScalarType dtype) -> Tensor")
LIBRARY.define("matvec(Tensor a, Tensor x, ScalarType dtype) -> Tensor")
for _name in ("sqrt", "exp", "log"):
    LIBRARY.define(f"{_name}(Tensor input) -> Tensor")


_SUMMED: Final = frozenset(
    getattr(torch, name)
    for name in (
        *("float16", "bfloat16", "float32", "float64", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)


def result_type(dtype: Any, given: Any) -> Any:
    """Return the type of a result: that which is asked for, or as torch has it."""
    if dtype is not None:
        if not isinstance(dtype, torch.dtype) or dtype not in _SUMMED:
            raise InputError(
                f"dtype must be a torch.dtype of real numbers of 16 bits or more, or of integers; "
                f"got {dtype!r}"
            )
        return dtype
    return given if given.is_floating_point else torch.int64


def require_summable(name: str, tensor: Any) -> None:
    """Refuse a tensor whose elements are no real numbers that this package adds."""
    if tensor.layout not in (torch.strided, torch.jagged):
        raise InputError(f"{name} is of layout {tensor.layout}: {name}.to_dense() is summed")
    if tensor.dtype in _SUMMED:
        return
    if tensor.is_complex():
        raise InputError(f"{name} is of {tensor.dtype}: take {name}.real and {name}.imag")
    if tensor.dtype.is_floating_point:
        raise InputError(
            f"{name} is of {tensor.dtype}, whose bits on tensor cores tcusim.predict_matmul tells. "
            f"To compute with its values, which float32 has, cast it: {name}.float()"
        )
    raise InputError(f"{name} is of {tensor.dtype}, which is not summed; cast it first")


def require_one_place(tensors: Mapping[str, Any]) -> None:
    """Refuse tensors of which some have data and others, on the device meta, have none."""
    are_meta = {name: one.is_meta for name, one in tensors.items() if isinstance(one, torch.Tensor)}
    if len(set(are_meta.values())) < 2:
        return
    without = ", ".join(name for name, is_meta in are_meta.items() if is_meta)
    have = ", ".join(name for name, is_meta in are_meta.items() if not is_meta)
    raise InputError(
        f"tensors on the device meta, which has no data ({without}), do not go with tensors that "
        f"have data ({have}). Put all of them on one device"
    )


_INTEGERS = (Integral, torch.SymInt)


def is_integer(value: Any) -> bool:
    """Return whether a value is one integer: Python's, NumPy's, or a size that is being traced."""
    # Nearly all are Python's, which takes a tenth of the time to see.
    return type(value) is int or (isinstance(value, _INTEGERS) and not isinstance(value, bool))


def axes_of(dim: Any, rank: int) -> list[int]:
    """Return axes counted from the first; a tensor without axes has 0 and -1, as in torch."""
    axes: list[int] = []
    most = max(1, rank)
    several = range(rank) if dim is None else dim if isinstance(dim, tuple | list) else (dim,)
    for one in several:
        if not is_integer(one):
            raise InputError(f"dim must be an integer or a tuple of integers, got {dim!r}")
        if not -most <= one < most:
            raise InputError(f"dim must be in the range [{-most}, {most - 1}], got {one}")
        if one % most in axes:
            raise InputError(f"dim {one} appears more than once in {tuple(dim)}")
        axes.append(int(one) % most)
    return axes if rank else []


def axis_of(dim: Any, rank: int) -> int:
    """Return one axis counted from the first; refuse several, and none."""
    if type(dim) is int and -rank <= dim < rank:
        return dim % rank
    if not is_integer(dim):
        raise InputError(f"dim must be one integer, the axis, got {dim!r}")
    (axis,) = axes_of(dim, max(1, rank))
    return axis


def in_forward_mode() -> bool:
    """Return whether tensors may have tangents that an operator carries along.

    Below autograd torch does so itself, and turns forward mode off.
    """
    # torch's own, which it may lose.
    if getattr(forward_ad, "_current_level", 0) < 0:
        return False
    return torch.compiler.is_compiling() or bool(torch._C._is_fwd_grad_enabled())


def plain(tensor: Any, name: str = "input") -> Any:
    """Return a tensor that has no gradient: what torch records of it is above these kernels.

    Raises InputError, by this name, if its memory does not hold its elements.

    The library of operators knows no tangents, and would drop them.
    """
    if in_forward_mode() and forward_ad.unpack_dual(tensor).tangent is not None:
        raise InputError(
            "the operators torch.ops.tcusim have no forward mode: call the function of "
            "tcusim.torch instead"
        )
    if tensor.requires_grad or type(tensor) is not torch.Tensor:
        tensor = tensor.detach()
    if not tensor.is_nested:
        # A nested tensor that came here is refused by its kind.
        require_elements(name, tensor)
    return tensor


def divided(total: Any, count: int) -> Any:
    """Return a quotient that is rounded once.

    On a GPU torch multiplies by the reciprocal of a Python number, which is rounded, too; it
    divides by a tensor. Those of powers of two are exact.
    """
    if count and not count & (count - 1):
        return total / count
    return total / total.new_full((), count)


_MOST_DIVISORS: Final = 1024
_DIVISORS: Final[dict[Hashable, Any]] = {}


def divisor(count: int, like: Any) -> Any:
    """Return a number as a tensor beside another, of which nothing is recorded.

    torch takes twice as long to divide by a Python number. What is kept is never let go: a graph
    that was captured may read it.
    """
    key = count, like.dtype, like.device
    kept = _DIVISORS.get(key)
    if kept is not None:
        return kept
    if like.is_cuda:
        with torch.cuda.device_of(like):
            captured = torch.cuda.is_current_stream_capturing()
        if captured:
            # Its memory would be the graph's.
            return torch.full((), count, dtype=like.dtype, device=like.device)
    # It is copied to a GPU, and waited for: any stream may read it.
    made = torch.tensor(count, dtype=like.dtype, device=like.device)
    if len(_DIVISORS) < _MOST_DIVISORS:
        _DIVISORS[key] = made
    return made


def _length(input: Any, offsets: Any, size: int, dim: int) -> int:
    """Return the number of segments."""
    axes_of(dim, input.dim())
    if offsets is not None:
        given = offsets.offsets if isinstance(offsets, tcusim.Segments) else offsets
        return int(given.shape[0]) - 1
    length: int = -(-input.shape[dim] // size)
    return length


# --- Kernels --------------------------------------------------------------------------------------
#
# Their results are contiguous, as the shapes below say. Along other axes than the last they may
# have been computed transposed.


def _alone(input: Any, bits: Any) -> Options:
    return alone(Options(arch=arch_for(input), bits=bits))


def sum_kernel(input: Any, dim: Any, keepdim: bool, dtype: Any, bits: Any) -> Any:
    """Compute the operator `sum`. dtype: as `sum` of `tcusim.torch` takes it, too."""
    require_summable("input", input)
    require_flags(keepdim=keepdim)
    result = tcusim.sum(
        plain(input),
        axis=None if dim is None else tuple(axes_of(dim, input.dim())),
        keepdims=keepdim,
        dtype=array_name_of(result_type(dtype, input.dtype)),
        options=_alone(input, bits),
    )
    return result.contiguous()


def type_of_sums(given: Any, result: Any, bits: Any) -> Any:
    """Return the type in which what precedes elements is kept."""
    if not result.is_floating_point:
        return result
    if bits == "exact" or not given.is_floating_point or given == torch.float64:
        return torch.float64
    return torch.float32 if result in (torch.float16, torch.bfloat16) else result


def require_finite(values: Any, to: Any) -> None:
    """Refuse finite initial values, a number or a tensor, that the type of the sums lacks."""
    wide = torch.as_tensor(values, dtype=torch.float64)
    if not torch.equal(wide.isfinite(), wide.to(to).isfinite()):
        raise beyond_range("initial", array_name_of(to))


def _before(initial: Any, input: Any, dtype: Any, bits: Any, shape: Sequence[int]) -> Any:
    """Return the initial values of rows, in the type and the shape of the sums."""
    if initial is None:
        return None
    given = initial.dtype
    if given.is_complex:
        raise InputError(f"initial must be real numbers, got {given}: take initial.real")
    if given.is_floating_point and not dtype.is_floating_point:
        raise no_integers("initial", given, dtype)
    wide, values = type_of_sums(input.dtype, dtype, bits), plain(initial, "initial")
    if values.device.type == "cpu" and given != wide:
        # In GPU memory a look at the values would wait for all that is queued there.
        if wide.is_floating_point:
            require_finite(values, wide)
        else:
            require_range(values.numpy(), array_name_of(dtype))
    try:
        return values.to(wide).expand(shape).contiguous()
    except RuntimeError:
        text = f"initial must be broadcast to the shape {tuple(shape)}, got {tuple(initial.shape)}"
        raise InputError(text) from None


def cumsum_kernel(
    input: Any,
    dim: int,
    exclusive: bool,
    reverse: bool,
    dtype: Any,
    bits: Any,
    initial: Any = None,
) -> Any:
    """Compute the operator `cumsum`. dtype: as in `sum_kernel`."""
    require_summable("input", input)
    axis = axis_of(dim, input.dim())
    dtype = result_type(dtype, input.dtype)
    rows = [size for place, size in enumerate(input.shape) if place != axis]
    result = tcusim.cumsum(
        plain(input),
        axis=axis if input.dim() else None,
        exclusive=exclusive,
        reverse=reverse,
        initial=_before(initial, input, dtype, bits, rows),
        dtype=array_name_of(dtype),
        options=_alone(input, bits),
    )
    return result.reshape(input.shape).contiguous()


def segment_sum_kernel(
    input: Any, offsets: Any, size: int, dim: int, check: bool, dtype: Any, bits: Any
) -> Any:
    """Compute the operator `segment_sum`."""
    require_summable("input", input)
    (dim,) = axes_of(dim, max(1, input.dim()))
    result = tcusim.segmented_sum(
        plain(input),
        _segments_by(offsets, size, check),
        axis=dim,
        dtype=array_name_of(dtype),
        options=_alone(input, bits),
    )
    return result.contiguous()


def segment_cumsum_kernel(
    input: Any,
    offsets: Any,
    size: int,
    dim: int,
    check: bool,
    exclusive: bool,
    reverse: bool,
    dtype: Any,
    bits: Any,
    initial: Any = None,
) -> Any:
    """Compute the operator `segment_cumsum`."""
    require_summable("input", input)
    (dim,) = axes_of(dim, max(1, input.dim()))
    sums = list(input.shape)
    sums[dim] = _length(input, offsets, size, dim)
    result = tcusim.segmented_cumsum(
        plain(input),
        _segments_by(offsets, size, check),
        axis=dim,
        exclusive=exclusive,
        reverse=reverse,
        initial=_before(initial, input, dtype, bits, sums),
        dtype=array_name_of(dtype),
        options=_alone(input, bits),
    )
    return result.contiguous()


def _segments_by(offsets: Any, size: int, check: bool) -> Any:
    """Return the segments of a kernel's arguments; offsets may be segments themselves."""
    if offsets is None or isinstance(offsets, tcusim.Segments):
        return size if offsets is None else offsets
    return tcusim.Segments(offsets, check=check)


def segments_at(length: int, offsets: Any, size: int, device: Any) -> Any:
    """Return the number of each element's segment."""
    places = torch.arange(length, device=device)
    if offsets is None:
        return places // size
    return torch.bucketize(places, offsets.to(device), right=True) - 1


def _segment_spread_kernel(input: Any, offsets: Any, size: int, dim: int, length: int) -> Any:
    """Compute the operator `segment_spread`: at each element what its segment has."""
    return plain(input).index_select(dim, segments_at(length, offsets, size, input.device))


def matmul_kernel(a: Any, b: Any, dtype: Any) -> Any:
    """Compute the operator `matmul`."""
    return tcusim.matmul(
        plain(a, "a"), plain(b, "b"), dtype=array_name_of(dtype), options=own_arch(a)
    )


def matvec_kernel(a: Any, x: Any, dtype: Any) -> Any:
    """Compute the operator `matvec`."""
    return tcusim.matvec(
        plain(a, "a"), plain(x, "x"), dtype=array_name_of(dtype), options=own_arch(a)
    )


def sqrt_kernel(input: Any) -> Any:
    """Compute the operator `sqrt`: by NumPy on the CPU, where torch's last bit is often wrong."""
    if input.is_cuda:
        return torch.sqrt(plain(input))
    # A root of float32 lies far enough from the middle between two numbers of 16 bits.
    wide = plain(input) if input.dtype == torch.float64 else plain(input).float()
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(wide.numpy()))).to(input.dtype)


def _exp_kernel(input: Any) -> Any:
    """Compute the operator `exp`, torch's own: the code that Inductor makes has other last bits."""
    return torch.exp(plain(input))


def _log_kernel(input: Any) -> Any:
    """Compute the operator `log`, torch's own as well."""
    return torch.log(plain(input))


# --- Shapes, for tensors without data -------------------------------------------------------------


def _sum_shape(input: Any, dim: Any, keepdim: bool, dtype: Any, bits: Any) -> Any:
    require_summable("input", input)
    taken = axes_of(dim, input.dim())
    shape = [
        1 if place in taken else size
        for place, size in enumerate(input.shape)
        if keepdim or place not in taken
    ]
    return input.new_empty(shape, dtype=dtype)


def _cumsum_shape(
    input: Any, dim: int, exclusive: bool, reverse: bool, dtype: Any, bits: Any, initial: Any
) -> Any:
    require_summable("input", input)
    axes_of(dim, input.dim())
    return input.new_empty(input.shape, dtype=dtype)


def _segment_sum_shape(
    input: Any, offsets: Any, size: int, dim: int, check: bool, dtype: Any, bits: Any
) -> Any:
    shape = list(input.shape)
    shape[dim] = _length(input, offsets, size, dim)
    return input.new_empty(shape, dtype=dtype)


def _segment_cumsum_shape(input: Any, *more: Any) -> Any:
    return input.new_empty(input.shape, dtype=more[-3])


def _segment_spread_shape(input: Any, offsets: Any, size: int, dim: int, length: int) -> Any:
    shape = list(input.shape)
    shape[dim] = length
    return input.new_empty(shape)


def _matmul_shape(a: Any, b: Any, dtype: Any) -> Any:
    stack = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a.new_empty((*stack, a.shape[-2], b.shape[-1]), dtype=dtype)


def _matvec_shape(a: Any, x: Any, dtype: Any) -> Any:
    stack = torch.broadcast_shapes(a.shape[:-2], x.shape[:-1])
    return a.new_empty((*stack, a.shape[-2]), dtype=dtype)


def _shape_of_elements(input: Any) -> Any:
    return torch.empty_like(input)


# --- Derivatives ----------------------------------------------------------------------------------
#
# They are operators themselves, so that they can be derived and compiled again.


def cast(gradient: Any, like: Any) -> Any:
    """Return a gradient in the type of what it is of."""
    return gradient if gradient.dtype == like else gradient.to(like)


def placements(input: Any) -> Any:
    """Return where a DTensor's elements are: its gradient is to be there, too."""
    return getattr(input, "placements", None)


def placed(gradient: Any, there: Any) -> Any:
    """Return a gradient where its elements are to be."""
    return gradient if there is None else gradient.redistribute(placements=there)


def _keep_sum(ctx: Any, inputs: Any, output: Any) -> None:
    input, ctx.dim, ctx.keepdim, *ctx.more = inputs
    ctx.shape, ctx.dtype = input.shape, input.dtype
    ctx.placements = placements(input)


def _sum_backward(ctx: Any, gradient: Any) -> Any:
    if not ctx.keepdim:
        for place in sorted(axes_of(ctx.dim, len(ctx.shape))):
            gradient = gradient.unsqueeze(place)
    own = cast(gradient, ctx.dtype).expand(ctx.shape)
    return placed(own, ctx.placements), None, None, None, None


def _sum_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    return operator("sum")(tangent, ctx.dim, ctx.keepdim, *ctx.more)


def _keep_cumsum(ctx: Any, inputs: Any, output: Any) -> None:
    input, ctx.dim, ctx.exclusive, ctx.reverse, ctx.result, ctx.bits, initial = inputs
    ctx.save_for_backward(initial)
    ctx.dtype, ctx.placements = input.dtype, placements(input)


def _cumsum_backward(ctx: Any, gradient: Any) -> Any:
    # Element i is part of what follows it: the other way round.
    own = operator("cumsum")(
        gradient, ctx.dim, ctx.exclusive, not ctx.reverse, gradient.dtype, ctx.bits, None
    )
    (initial,) = ctx.saved_tensors
    before = None
    if initial is not None and ctx.needs_input_grad[-1]:
        axes = axes_of(ctx.dim, gradient.dim())
        total = gradient
        if axes:
            total = operator("sum")(gradient, axes, False, gradient.dtype, "segment")
        before = _summed_to(total, initial)
    return placed(cast(own, ctx.dtype), ctx.placements), *([None] * 5), before


def _cumsum_jvp(ctx: Any, tangent: Any, *more: Any) -> Any:
    call = operator("cumsum")
    return call(tangent, ctx.dim, ctx.exclusive, ctx.reverse, ctx.result, ctx.bits, more[-1])


def _keep_segment_scans(ctx: Any, inputs: Any, output: Any) -> None:
    *most, initial = inputs
    _keep_segments(ctx, most, output)
    ctx.save_for_backward(most[1], initial)


def _keep_segments(ctx: Any, inputs: Any, output: Any) -> None:
    input, offsets, ctx.size, ctx.dim, *more = inputs
    ctx.save_for_backward(offsets)
    ctx.save_for_forward(offsets)
    ctx.length, ctx.dtype, ctx.more = input.shape[ctx.dim], input.dtype, more
    ctx.placements = placements(input)


def _segment_sum_backward(ctx: Any, gradient: Any) -> Any:
    (offsets,) = ctx.saved_tensors
    own = operator("segment_spread")(gradient, offsets, ctx.size, ctx.dim, ctx.length)
    return placed(cast(own, ctx.dtype), ctx.placements), *([None] * 6)


def _segment_cumsum_backward(ctx: Any, gradient: Any) -> Any:
    offsets, initial = ctx.saved_tensors
    check, exclusive, reverse, _, bits = ctx.more
    where, like = (offsets, ctx.size, ctx.dim, check), (gradient.dtype, bits)
    own = operator("segment_cumsum")(gradient, *where, exclusive, not reverse, *like, None)
    before = None
    if initial is not None and ctx.needs_input_grad[-1]:
        before = _summed_to(operator("segment_sum")(gradient, *where, *like), initial)
    return placed(cast(own, ctx.dtype), ctx.placements), *([None] * 8), before


def _keep_spread(ctx: Any, inputs: Any, output: Any) -> None:
    _, offsets, ctx.size, ctx.dim, ctx.length = inputs
    ctx.save_for_backward(offsets)
    ctx.save_for_forward(offsets)


def _segment_spread_backward(ctx: Any, gradient: Any) -> Any:
    (offsets,) = ctx.saved_tensors
    own = operator("segment_sum")(
        gradient, offsets, ctx.size, ctx.dim, True, gradient.dtype, "segment"
    )
    return own, None, None, None, None


def _segment_spread_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    (offsets,) = ctx.saved_tensors
    return operator("segment_spread")(tangent, offsets, ctx.size, ctx.dim, ctx.length)


def _segment_sum_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    (offsets,) = ctx.saved_tensors
    return operator("segment_sum")(tangent, offsets, ctx.size, ctx.dim, *ctx.more)


def _segment_cumsum_jvp(ctx: Any, tangent: Any, *more: Any) -> Any:
    offsets = ctx.saved_tensors[0]
    return operator("segment_cumsum")(tangent, offsets, ctx.size, ctx.dim, *ctx.more, more[-1])


def _keep_product(ctx: Any, inputs: Any, output: Any) -> None:
    left, right, ctx.dtype = inputs
    ctx.save_for_backward(left, right)
    ctx.save_for_forward(left, right)
    # The tangent of a factor that has none is no product of zeros.
    ctx.set_materialize_grads(False)


def _summed_to(gradient: Any, factor: Any) -> Any:
    """Return the gradient of a factor, summed over what was broadcast."""
    shape = factor.shape
    spare = gradient.dim() - len(shape)
    taken = list(range(spare))
    taken += [
        place + spare
        for place, size in enumerate(shape)
        if size == 1 and gradient.shape[place + spare] != 1
    ]
    if taken:
        gradient = operator("sum")(gradient, taken, True, gradient.dtype, "segment")
    return placed(cast(gradient.reshape(shape), factor.dtype), placements(factor))


def _matmul_backward(ctx: Any, gradient: Any) -> Any:
    if gradient is None:
        return None, None, None
    a, b = ctx.saved_tensors
    multiply, for_a, for_b = operator("matmul"), None, None
    if ctx.needs_input_grad[0]:
        for_a = multiply(cast(gradient, b.dtype), b.mT, b.dtype)
        for_a = _summed_to(for_a, a)
    if ctx.needs_input_grad[1]:
        for_b = multiply(a.mT, cast(gradient, a.dtype), a.dtype)
        for_b = _summed_to(for_b, b)
    return for_a, for_b, None


def _matmul_jvp(ctx: Any, for_a: Any, for_b: Any, *_: Any) -> Any:
    return _product_jvp(operator("matmul"), ctx, for_a, for_b)


def _matvec_jvp(ctx: Any, for_a: Any, for_x: Any, *_: Any) -> Any:
    return _product_jvp(operator("matvec"), ctx, for_a, for_x)


def _product_jvp(multiply: Any, ctx: Any, for_left: Any, for_right: Any) -> Any:
    left, right = ctx.saved_tensors
    parts = []
    if for_left is not None:
        parts.append(multiply(for_left, right, ctx.dtype))
    if for_right is not None:
        parts.append(multiply(left, for_right, ctx.dtype))
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _matvec_backward(ctx: Any, gradient: Any) -> Any:
    if gradient is None:
        return None, None, None
    a, x = ctx.saved_tensors
    for_a = for_x = None
    if ctx.needs_input_grad[0]:
        # One product for each element: there is nothing to add.
        for_a = cast(gradient, a.dtype).unsqueeze(-1) * x.unsqueeze(-2)
        for_a = _summed_to(for_a, a)
    if ctx.needs_input_grad[1]:
        for_x = operator("matvec")(a.mT, cast(gradient, a.dtype), a.dtype)
        for_x = _summed_to(for_x, x)
    return for_a, for_x, None


def _keep_result(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)
    ctx.save_for_forward(output)


def _keep_input(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.save_for_forward(*inputs)


def _sqrt_derivative(ctx: Any, change: Any) -> Any:
    (root,) = ctx.saved_tensors
    return change / (root + root)


def _exp_derivative(ctx: Any, change: Any) -> Any:
    (power,) = ctx.saved_tensors
    return change * power


def _log_derivative(ctx: Any, change: Any) -> Any:
    (input,) = ctx.saved_tensors
    return change / input


# --- vmap: one more axis, in front ----------------------------------------------------------------


def _in_front(tensor: Any, place: int | None, size: int) -> Any:
    """Return a tensor whose axis of the batch is the first one."""
    if place is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(place, 0)


def _sum_vmap(info: Any, places: Any, input: Any, dim: Any, *more: Any) -> Any:
    whole = _in_front(input, places[0], info.batch_size)
    behind = [one + 1 for one in axes_of(dim, whole.dim() - 1)]
    if not behind:
        # Examples without axes, of which none is summed.
        return operator("sum")(whole.unsqueeze(1), [1], False, *more[1:]), 0
    return operator("sum")(whole, behind, *more), 0


def _cumsum_vmap(info: Any, places: Any, input: Any, dim: int, *more: Any) -> Any:
    whole = _in_front(input, places[0], info.batch_size)
    axes = axes_of(dim, whole.dim() - 1)
    before = _before_batch(info, places[-1], more[-1], max(0, whole.dim() - 2))
    more = *more[:-1], before
    if not axes:
        # Examples without axes: each is its own scan.
        return operator("cumsum")(whole.unsqueeze(1), 1, *more).squeeze(1), 0
    return operator("cumsum")(whole, axes[0] + 1, *more), 0


def _before_batch(info: Any, place: int | None, initial: Any, rank: int) -> Any:
    """Return the initial values of each example's rows; rank: of an example's sums."""
    if initial is None or place is None:
        return initial
    whole = initial.movedim(place, 0)
    return whole.reshape(info.batch_size, *[1] * (rank + 1 - whole.dim()), *whole.shape[1:])


def no_batch_of(name: str) -> InputError:
    """Return the error of offsets, lengths or ids that vmap maps."""
    return InputError(
        f"vmap over {name}: the examples would have segments of different lengths. Put them end to "
        f"end, with {name} of all, and call the function once"
    )


def _segments_vmap(call: Any, info: Any, places: Any, arguments: Any) -> Any:
    input, offsets, size, dim, *more = arguments
    if places[1] is not None:
        raise no_batch_of("offsets")
    whole = _in_front(input, places[0], info.batch_size)
    (axis,) = axes_of(dim, max(1, whole.dim() - 1))
    return call(whole, offsets, size, axis + 1, *more), 0


def _segment_sum_vmap(info: Any, places: Any, *arguments: Any) -> Any:
    return _segments_vmap(operator("segment_sum"), info, places, arguments)


def _segment_cumsum_vmap(info: Any, places: Any, *arguments: Any) -> Any:
    rank = arguments[0].dim() - (places[0] is not None)
    before = _before_batch(info, places[-1], arguments[-1], rank)
    arguments = *arguments[:-1], before
    return _segments_vmap(operator("segment_cumsum"), info, places, arguments)


def _segment_spread_vmap(info: Any, places: Any, *arguments: Any) -> Any:
    return _segments_vmap(operator("segment_spread"), info, places, arguments)


def _matmul_vmap(info: Any, places: Any, a: Any, b: Any, dtype: Any) -> Any:
    left, right = (
        _in_front(one, place, info.batch_size) for one, place in zip((a, b), places, strict=False)
    )
    # Axes of a stack are broadcast from the right: those that one example lacks come in between.
    rank = max(left.dim(), right.dim())
    left, right = (
        one.reshape(one.shape[0], *([1] * (rank - one.dim())), *one.shape[1:])
        for one in (left, right)
    )
    return operator("matmul")(left, right, dtype), 0


def _matvec_vmap(info: Any, places: Any, a: Any, x: Any, dtype: Any) -> Any:
    left, right = (
        _in_front(one, place, info.batch_size) for one, place in zip((a, x), places, strict=False)
    )
    rank = max(left.dim(), right.dim() + 1)
    left = left.reshape(left.shape[0], *([1] * (rank - left.dim())), *left.shape[1:])
    right = right.reshape(right.shape[0], *([1] * (rank - 1 - right.dim())), *right.shape[1:])
    return operator("matvec")(left, right, dtype), 0


def _vmap_of_elements(name: str) -> Callable[..., Any]:
    return lambda info, places, input: (operator(name)(input), places[0])


# --- All of it, by operator -----------------------------------------------------------------------

_OPERATORS: Final = {
    "sum": (sum_kernel, _sum_shape, _keep_sum, _sum_backward, _sum_jvp, _sum_vmap),
    "cumsum": (
        *(cumsum_kernel, _cumsum_shape),
        *(_keep_cumsum, _cumsum_backward, _cumsum_jvp, _cumsum_vmap),
    ),
    "segment_sum": (
        *(segment_sum_kernel, _segment_sum_shape),
        *(_keep_segments, _segment_sum_backward, _segment_sum_jvp, _segment_sum_vmap),
    ),
    "segment_cumsum": (
        *(segment_cumsum_kernel, _segment_cumsum_shape),
        *(_keep_segment_scans, _segment_cumsum_backward, _segment_cumsum_jvp, _segment_cumsum_vmap),
    ),
    "matmul": (
        *(matmul_kernel, _matmul_shape),
        *(_keep_product, _matmul_backward, _matmul_jvp, _matmul_vmap),
    ),
    "matvec": (
        *(matvec_kernel, _matvec_shape),
        *(_keep_product, _matvec_backward, _matvec_jvp, _matvec_vmap),
    ),
    "sqrt": (
        *(sqrt_kernel, _shape_of_elements, _keep_result),
        *(_sqrt_derivative, _sqrt_derivative, _vmap_of_elements("sqrt")),
    ),
    "exp": (
        *(_exp_kernel, _shape_of_elements, _keep_result),
        *(_exp_derivative, _exp_derivative, _vmap_of_elements("exp")),
    ),
    "log": (
        *(_log_kernel, _shape_of_elements, _keep_input),
        *(_log_derivative, _log_derivative, _vmap_of_elements("log")),
    ),
    "segment_spread": (
        *(_segment_spread_kernel, _segment_spread_shape, _keep_spread),
        *(_segment_spread_backward, _segment_spread_jvp, _segment_spread_vmap),
    ),
}


# Whether a rule of the library of operators is at work, below all that records.
_IN_LIBRARY: Final[ContextVar[bool]] = ContextVar("tcusim.torch.in_library", default=False)
_FUNCTIONS: Final[dict[str, type[torch.autograd.Function]]] = {}


def operator(name: str) -> Callable[..., Any]:
    """Return the callable of an operator, recorded where derivatives are asked for.

    The transforms of `torch.func` take functions of autograd, and no operators from Python; so does
    forward mode, of which the library of operators knows nothing.
    """
    if torch.compiler.is_compiling():
        if in_forward_mode():
            raise InputError(
                "torch.compile takes no forward mode (jvp, jacfwd) of these operators. Leave the "
                "call out of what is compiled: torch.compiler.disable"
            )
    elif (
        torch._C._functorch.peek_interpreter_stack() is not None or in_forward_mode()
    ) and not _IN_LIBRARY.get():
        apply: Callable[..., Any] = _FUNCTIONS[name].apply
        return apply
    found: Callable[..., Any] = getattr(torch.ops.tcusim, name).default
    return found


def _of_library(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule of vmap for the library of operators, where none of them is recorded."""

    def call(*arguments: Any) -> Any:
        token = _IN_LIBRARY.set(True)
        try:
            return rule(*arguments)
        finally:
            _IN_LIBRARY.reset(token)

    return call


def _function_of(
    name: str, keep: Any, backward: Any, jvp: Any, vmap: Any
) -> type[torch.autograd.Function]:
    """Return a function of autograd with an operator's derivatives and its vmap."""
    call = getattr(torch.ops.tcusim, name).default
    parts = {
        "forward": staticmethod(lambda *arguments: call(*arguments)),
        "setup_context": staticmethod(lambda ctx, inputs, output: keep(ctx, inputs, output)),
        "backward": staticmethod(backward),
        "jvp": staticmethod(jvp),
        "vmap": staticmethod(vmap),
    }
    return type(name, (torch.autograd.Function,), parts)


def _in_one_place(name: str, shape: Callable[..., Any]) -> Callable[..., Any]:
    """Return the shape of an operator's result, for tensors none of which has data."""

    def call(*arguments: Any) -> Any:
        names = [one.name for one in getattr(torch.ops.tcusim, name).default._schema.arguments]
        require_one_place(dict(zip(names, arguments, strict=False)))
        return shape(*arguments)

    return call


def register(operators: Mapping[str, tuple[Any, ...]]) -> None:
    """Give defined operators their kernel, shapes, what they keep, derivatives and vmap."""
    for name, (kernel, shape, keep, backward, jvp, vmap) in operators.items():
        full = f"tcusim::{name}"
        for device in ("CPU", "CUDA"):
            LIBRARY.impl(name, kernel, device)
        torch.library.register_fake(full, _in_one_place(name, shape), lib=LIBRARY)
        torch.library.register_autograd(full, backward, setup_context=keep, lib=LIBRARY)
        torch.library.register_vmap(full, _of_library(vmap), lib=LIBRARY)
        _FUNCTIONS[name] = _function_of(name, keep, backward, jvp, vmap)


register(_OPERATORS)
