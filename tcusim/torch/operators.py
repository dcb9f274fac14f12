"""The operators `torch.ops.tcusim`: a table of schemas, kernels, shapes, derivatives and batches.

A row is an `Operator`; `register` tells torch all of it. Operators are defined once, when this
module is first imported. Users call the functions of `tcusim.torch`, which check and complete the
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, reduce
from numbers import Integral
from typing import Any, Final

import numpy as np
import torch
from torch.autograd import forward_ad

import tcusim
from tcusim.arrays import spec
from tcusim.arrays.home import beyond_range, no_integers
from tcusim.arrays.libraries import as_numpy, like_array, require_broadcast
from tcusim.call_options import Bits, Options, alone
from tcusim.errors import InputError, require_flags
from tcusim.machine.convert import require_elements
from tcusim.machine.formats import array_name_of
from tcusim.torch.simulation import arch_for, own_arch

# It lives as long as the process: without it the operators are gone.
LIBRARY: Final = torch.library.Library("tcusim", "DEF")

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


def axes_of(dim: Any, rank: int) -> tuple[int, ...]:
    """Return axes counted from the first; a tensor without axes has 0 and -1, as in torch."""
    several = range(rank) if dim is None else dim if isinstance(dim, tuple | list) else (dim,)
    # Sizes that are being traced are integers, too.
    given = tuple(int(one) if is_integer(one) else one for one in several)
    axes = spec.axes_of("dim", given, rank, least=1)
    return axes if rank else ()


def axis_of(dim: Any, rank: int) -> int:
    """Return one axis counted from the first; refuse several, and none."""
    if type(dim) is int and -rank <= dim < rank:
        return dim % rank
    given = int(dim) if is_integer(dim) else dim
    (axis,) = spec.axes_of("dim", given, rank, least=1, several=False)
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
    """Return a tensor without a gradient: torch records it above these kernels.

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

    torch takes twice as long to divide by a Python number. Kept tensors are never freed: a graph
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


# --- Kernels --------------------------------------------------------------------------------------
#
# Their results are contiguous, as the shapes below say. Along other axes than the last they may
# have been computed transposed.


def _along(function: Callable[..., Any], input: Any, dtype: Any, bits: Any, **more: Any) -> Any:
    """Return the result of a function of tcusim, in a tensor without gaps."""
    given, own = plain(input), alone(Options(arch=arch_for(input), bits=bits))
    if given.is_cuda:
        return function(given, dtype=array_name_of(dtype), options=own, **more).contiguous()
    # The function would look for the call of such a tensor first, and convert it then.
    result = function(as_numpy("input", given), dtype=array_name_of(dtype), options=own, **more)
    return like_array(input, result).contiguous()


def sum_kernel(input: Any, dim: Any, keepdim: bool, dtype: Any, bits: Any) -> Any:
    """Compute the operator `sum`. dtype: as `sum` of `tcusim.torch` takes it, too."""
    require_summable("input", input)
    require_flags(keepdim=keepdim)
    axes = None if dim is None else axes_of(dim, input.dim())
    wanted = result_type(dtype, input.dtype)
    return _along(tcusim.sum, input, wanted, bits, axis=axes, keepdims=keepdim)


def type_of_sums(given: Any, result: Any, bits: Any) -> Any:
    """Return the type of initial values."""
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
    """Return the initial values of rows: in GPU memory in the type and the shape of the sums."""
    if initial is None:
        return None
    values = plain(initial, "initial")
    if not values.is_cuda:
        # The function checks and converts them; bfloat16 without ml_dtypes.
        return values.float() if values.dtype == torch.bfloat16 else values
    # A look at the values would wait for all that is queued there.
    if values.is_complex():
        raise InputError(f"initial must be real numbers, got {values.dtype}: take initial.real")
    if values.is_floating_point() and not dtype.is_floating_point:
        raise no_integers("initial", values.dtype, dtype)
    require_broadcast("initial", tuple(values.shape), tuple(shape))
    return values.to(type_of_sums(input.dtype, dtype, bits)).expand(shape).contiguous()


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
    wanted = result_type(dtype, input.dtype)
    rows = [size for place, size in enumerate(input.shape) if place != axis]
    before = _before(initial, input, wanted, bits, rows)
    order = {"exclusive": exclusive, "reverse": reverse, "initial": before}
    result = _along(tcusim.cumsum, input, wanted, bits, axis=axis if input.dim() else None, **order)
    return result.reshape(input.shape)


def segment_sum_kernel(
    input: Any, offsets: Any, size: int, dim: int, check: bool, dtype: Any, bits: Any
) -> Any:
    """Compute the operator `segment_sum`."""
    require_summable("input", input)
    segments, axis = _segments_by(offsets, size, check), axis_of(dim, input.dim())
    return _along(tcusim.segmented_sum, input, dtype, bits, segments=segments, axis=axis)


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
    segments, axis = _segments_by(offsets, size, check), axis_of(dim, input.dim())
    before = _before(initial, input, dtype, bits, _sums_shape(input, offsets, size, axis))
    order = {"exclusive": exclusive, "reverse": reverse, "initial": before}
    return _along(
        tcusim.segmented_cumsum, input, dtype, bits, segments=segments, axis=axis, **order
    )


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


def _segment_spread_kernel(
    input: Any, offsets: Any, size: int, dim: int, length: int, bits: str
) -> Any:
    """Compute the operator `segment_spread`: the value of its segment at each element."""
    return plain(input).index_select(dim, segments_at(length, offsets, size, input.device))


def sqrt_kernel(input: Any) -> Any:
    """Compute the operator `sqrt`: by NumPy on the CPU, where torch's last bit is often wrong."""
    if input.is_cuda:
        return torch.sqrt(plain(input))
    # A root of float32 lies far enough from the middle between two numbers of 16 bits.
    wide = plain(input) if input.dtype == torch.float64 else plain(input).float()
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(wide.numpy()))).to(input.dtype)


# --- Shapes of results ----------------------------------------------------------------------------


def _sum_shape(input: Any, dim: Any, keepdim: bool, *_: Any) -> list[int]:
    require_summable("input", input)
    taken = axes_of(dim, input.dim())
    return [
        1 if place in taken else size
        for place, size in enumerate(input.shape)
        if keepdim or place not in taken
    ]


def _scan_shape(input: Any, dim: Any, *_: Any) -> Any:
    require_summable("input", input)
    axes_of(dim, input.dim())
    return input.shape


def _sums_shape(input: Any, offsets: Any, size: int, dim: int, *_: Any) -> list[int]:
    """Return the shape of the sums of segments."""
    axes_of(dim, input.dim())
    shape = list(input.shape)
    if offsets is None:
        shape[dim] = -(-shape[dim] // size)
    else:
        given = offsets.offsets if isinstance(offsets, tcusim.Segments) else offsets
        shape[dim] = given.shape[0] - 1
    return shape


def _spread_shape(input: Any, offsets: Any, size: int, dim: int, length: int, *_: Any) -> list[int]:
    shape = list(input.shape)
    shape[dim] = length
    return shape


def _product_shape(left: Any, right: Any, *_: Any, columns: bool) -> list[int]:
    """Return the shape of a product; columns: whether the second factor is a matrix."""
    own = 2 if columns else 1
    stack = torch.broadcast_shapes(left.shape[:-2], right.shape[:-own])
    return [*stack, left.shape[-2], *right.shape[-1:] * columns]


# --- Derivatives ----------------------------------------------------------------------------------
#
# They are operators themselves, so that they can be derived and compiled again. A rule gets the
# context that `Operator.keep` has filled, and returns gradients by the names of arguments. The
# sums and scans of a gradient have the kind of bits of the call.


def cast(gradient: Any, like: Any) -> Any:
    """Return a gradient in the type of its tensor."""
    return gradient if gradient.dtype == like else gradient.to(like)


def placements(input: Any) -> Any:
    """Return the mesh and placements of a DTensor, which its gradient must share."""
    return getattr(input, "placements", None)


def placed(gradient: Any, there: Any) -> Any:
    """Return a gradient where its elements are to be."""
    return gradient if there is None else gradient.redistribute(placements=there)


def _sum_backward(ctx: Any, gradient: Any) -> dict[str, Any]:
    if not ctx.given["keepdim"]:
        for place in sorted(axes_of(ctx.given["dim"], len(ctx.shape))):
            gradient = gradient.unsqueeze(place)
    return {"input": cast(gradient, ctx.dtype).expand(ctx.shape)}


def _cumsum_backward(ctx: Any, gradient: Any) -> dict[str, Any]:
    given, (initial,) = ctx.given, ctx.saved_tensors
    # Element i is in the sums of the elements after it: the other way round.
    order = given["exclusive"], not given["reverse"]
    own = operator("cumsum")(gradient, given["dim"], *order, gradient.dtype, given["bits"], None)
    before = None
    if initial is not None and ctx.needs_input_grad[-1]:
        scanned = axes_of(given["dim"], gradient.dim())
        before = _summed_to(gradient, initial, scanned, given["bits"])
    return {"input": own, "initial": before}


def _segment_sum_backward(ctx: Any, gradient: Any) -> dict[str, Any]:
    (offsets,) = ctx.saved_tensors
    size, dim = ctx.given["size"], ctx.given["dim"]
    where = offsets, size, dim, ctx.shape[dim]
    return {"input": operator("segment_spread")(gradient, *where, ctx.given["bits"])}


def _segment_cumsum_backward(ctx: Any, gradient: Any) -> dict[str, Any]:
    given, (offsets, initial) = ctx.given, ctx.saved_tensors
    where, like = (
        (offsets, given["size"], given["dim"], given["check"]),
        (gradient.dtype, given["bits"]),
    )
    order = given["exclusive"], not given["reverse"]
    own = operator("segment_cumsum")(gradient, *where, *order, *like, None)
    before = None
    if initial is not None and ctx.needs_input_grad[-1]:
        sums = operator("segment_sum")(gradient, *where, *like)
        before = _summed_to(sums, initial, (), given["bits"])
    return {"input": own, "initial": before}


def _segment_spread_backward(ctx: Any, gradient: Any) -> dict[str, Any]:
    (offsets,) = ctx.saved_tensors
    where = offsets, ctx.given["size"], ctx.given["dim"], True
    return {"input": operator("segment_sum")(gradient, *where, gradient.dtype, ctx.given["bits"])}


def sum_of(values: Any, axes: Sequence[int], keepdim: bool = False, bits: Bits = "segment") -> Any:
    """Return the sum along axes in the type of the elements."""
    return operator("sum")(values, axes, keepdim, values.dtype, bits)


def _summed_to(
    gradient: Any, operand: Any, summed: Sequence[int] = (), bits: Bits = "segment"
) -> Any:
    """Return the gradient of an operand, summed over the broadcast axes.

    summed: axes that the operand does not have, and that are summed at once with the others.
    """
    shape = operand.shape
    axes = [axis for axis in range(gradient.dim()) if axis not in summed]
    spare = len(axes) - len(shape)
    wide = [
        axis
        for axis, size in zip(axes[spare:], shape, strict=True)
        if size == 1 and gradient.shape[axis] != 1
    ]
    taken = sorted([*summed, *axes[:spare], *wide])
    if taken:
        gradient = sum_of(gradient, taken, True, bits)
    return placed(cast(gradient.reshape(shape), operand.dtype), placements(operand))


def _product_backward(ctx: Any, gradient: Any, *, columns: bool) -> dict[str, Any]:
    left, right = ctx.saved_tensors
    multiply = operator("matmul" if columns else "matvec")
    for_left = for_right = None
    if ctx.needs_input_grad[0]:
        if columns:
            for_left = multiply(cast(gradient, right.dtype), right.mT, right.dtype)
        else:
            # One product for each element: there is nothing to add.
            for_left = cast(gradient, left.dtype).unsqueeze(-1) * right.unsqueeze(-2)
        for_left = _summed_to(for_left, left)
    if ctx.needs_input_grad[1]:
        for_right = multiply(left.mT, cast(gradient, left.dtype), left.dtype)
        for_right = _summed_to(for_right, right)
    return {"a": for_left, "b" if columns else "x": for_right}


# --- vmap: one more axis, in front ----------------------------------------------------------------


def in_front(tensor: Any, place: int | None, size: int) -> Any:
    """Return a tensor whose axis of the batch is the first one."""
    if place is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(place, 0)


def no_batch_of(name: str) -> InputError:
    """Return the error of offsets, lengths or ids that vmap maps."""
    return InputError(
        f"vmap over {name}: the examples would have segments of different lengths. Put them end to "
        f"end, with {name} of all, and call the function once"
    )


def _along_vmap(call: Any, info: Any, places: Mapping[str, Any], given: dict[str, Any]) -> Any:
    """Return the results along axes of examples."""
    if places.get("offsets") is not None:
        raise no_batch_of("offsets")
    whole = in_front(given["input"], places["input"], info.batch_size)
    # Examples without axes are each a sum, or a scan, of its own.
    alone_each = whole.dim() == 1
    if alone_each:
        whole = whole.unsqueeze(1)
    axes = [axis + 1 for axis in axes_of(given["dim"], whole.dim() - 1)]
    is_one = isinstance(given["dim"], int)
    more = {"input": whole, "dim": axes[0] if is_one else axes}
    if places.get("initial") is not None:
        # Broadcast to the examples' sums from the right.
        before = given["initial"].movedim(places["initial"], 0)
        rank = whole.dim() - ("offsets" not in given)
        spare = [1] * (rank - before.dim())
        more["initial"] = before.reshape(info.batch_size, *spare, *before.shape[1:])
    result = call(**{**given, **more})
    return (result.squeeze(1) if alone_each and result.dim() == 2 else result), 0


def _product_vmap(
    call: Any, info: Any, places: Mapping[str, Any], given: dict[str, Any], *, columns: bool
) -> Any:
    names = ("a", "b" if columns else "x")
    left, right = (in_front(given[name], places[name], info.batch_size) for name in names)
    # Axes of a stack are broadcast from the right: those that one example lacks come in between.
    spare = left.dim() - right.dim() - (not columns)
    left, right = (
        one.reshape(one.shape[0], *[1] * max(0, lacking), *one.shape[1:])
        for one, lacking in ((left, -spare), (right, spare))
    )
    return call(**{**given, names[0]: left, names[1]: right}), 0


def _vmap_of_elements(call: Any, info: Any, places: Mapping[str, Any], given: Any) -> Any:
    return call(**given), places["input"]


# --- The table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the table.

    parameters: of the schema. kernel: computes it, on the CPU and on CUDA. shape: that of the
    result, by the arguments; None from it, or for it, is that of the first one, and its strides.
    dtype: of the result, if no argument of this name says so, and it is not that of the first one.
    saves: the tensors that derivatives read, "result" among them. linear: groups of tensors, in
    each of which together the operator is linear; `jvp` is the rule of another one. backward: the
    gradients, by names. vmap: the results of examples and their axis, by the operator, with
    keywords, and torch's arguments.
    """

    name: str
    parameters: str
    kernel: Callable[..., Any]
    shape: Callable[..., Any] | None = None
    dtype: Any = None
    saves: tuple[str, ...] = ()
    linear: tuple[tuple[str, ...], ...] = ()
    backward: Callable[[Any, Any], dict[str, Any]] | None = None
    jvp: Callable[[Any, dict[str, Any]], Any] | None = None
    vmap: Callable[..., Any] = _along_vmap
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(one.split()[-1] for one in self.parameters.split(", "))
        object.__setattr__(self, "names", names)

    def by_name(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the annotation of each argument."""
        return dict(zip(self.names, values, strict=False))

    def fake(self, *arguments: Any) -> Any:
        """Return the result for tensors without data."""
        given, first = self.by_name(arguments), arguments[0]
        require_one_place(given)
        shape = None if self.shape is None else self.shape(*arguments)
        if shape is None:
            return torch.empty_like(first)
        return first.new_empty(shape, dtype=self.dtype or given.get("dtype") or first.dtype)

    def keep(self, ctx: Any, inputs: Any, output: Any) -> None:
        """Keep for the derivatives: tensors, other arguments, and the kind of the first."""
        given, first = self.by_name(inputs), inputs[0]
        saved = [given.get(name, output) for name in self.saves]
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)
        ctx.given = {name: one for name, one in given.items() if not isinstance(one, torch.Tensor)}
        ctx.shape, ctx.dtype, ctx.placements = first.shape, first.dtype, placements(first)
        # Tensors without a gradient or a tangent are not multiplied by zeros.
        ctx.set_materialize_grads(False)

    def gradients(self, ctx: Any, gradient: Any) -> Any:
        """Return the gradients of all arguments; None of those that have none."""
        found: dict[str, Any] = {}
        if gradient is not None and self.backward is not None:
            found = self.backward(ctx, gradient)
        first, *rest = self.names
        own = found.get(first)
        if own is not None:
            own = placed(cast(own, ctx.dtype), ctx.placements)
        return own, *(found.get(name) for name in rest)

    def tangent(self, ctx: Any, *moved: Any) -> Any:
        """Return the tangent of the result."""
        tangents = self.by_name(moved)
        if self.jvp is not None:
            return self.jvp(ctx, tangents)
        given = {**ctx.given, **dict(zip(self.saves, ctx.saved_tensors, strict=True))}
        parts = []
        for group in self.linear:
            own = {name: tangents[name] for name in group}
            some = next((one for one in own.values() if one is not None), None)
            if some is None:
                continue
            if own.get(self.names[0], some) is None:
                own[self.names[0]] = some.new_zeros(ctx.shape, dtype=ctx.dtype)
            parts.append(self.call(**{**given, **own}))
        return reduce(torch.add, parts)

    def call(self, **given: Any) -> Any:
        """Call the operator, recorded where derivatives are asked for."""
        return operator(self.name)(*(given[name] for name in self.names))

    def batched(self, info: Any, places: Any, *arguments: Any) -> Any:
        """Return the results of a batch of examples, and their axis."""
        return self.vmap(self.call, info, self.by_name(places), self.by_name(arguments))


# Whether a rule of the library of operators is at work, below all that records.
_IN_LIBRARY: Final[ContextVar[bool]] = ContextVar("tcusim.torch.in_library", default=False)
_FUNCTIONS: Final[dict[str, type[torch.autograd.Function]]] = {}
OPERATORS: Final[dict[str, Operator]] = {}


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


def register(*rows: Operator) -> None:
    """Define operators, and give torch all that their rows say."""
    for row in rows:
        LIBRARY.define(f"{row.name}({row.parameters}) -> Tensor")
        full = f"tcusim::{row.name}"
        for device in ("CPU", "CUDA"):
            LIBRARY.impl(row.name, row.kernel, device)
        torch.library.register_fake(full, row.fake, lib=LIBRARY)
        OPERATORS[row.name] = row
        if row.backward is None:
            continue
        torch.library.register_autograd(full, row.gradients, setup_context=row.keep, lib=LIBRARY)
        torch.library.register_vmap(full, _of_library(row.batched), lib=LIBRARY)
        _FUNCTIONS[row.name] = _function_of(row)


def _function_of(row: Operator) -> type[torch.autograd.Function]:
    """Return a function of autograd with an operator's derivatives and its vmap."""
    call = getattr(torch.ops.tcusim, row.name).default
    rules: dict[str, Callable[..., Any]] = {
        # A frame of Python: behind a break of the graph torch.compile takes it, not the kernel.
        "forward": lambda *arguments: call(*arguments),
        "setup_context": row.keep,
        "backward": row.gradients,
        "jvp": row.tangent,
        "vmap": row.batched,
    }
    parts = {name: staticmethod(rule) for name, rule in rules.items()}
    return type(row.name, (torch.autograd.Function,), parts)


def _of_elements(
    name: str, kernel: Callable[[Any], Any], saved: str, rule: Callable[[Any, Any], Any]
) -> Operator:
    """Return the row of a function of each element; rule: of its change. saved: the kept tensor."""
    return Operator(
        name,
        "Tensor input",
        kernel,
        saves=(saved,),
        backward=lambda ctx, change: {"input": rule(change, *ctx.saved_tensors)},
        jvp=lambda ctx, tangents: rule(tangents["input"], *ctx.saved_tensors),
        vmap=_vmap_of_elements,
    )


def _product(name: str, function: Callable[..., Any], right: str) -> Operator:
    """Return the row of a product; right: the name of its second factor."""
    columns = name == "matmul"

    def kernel(a: Any, b: Any, dtype: Any) -> Any:
        factors = plain(a, "a"), plain(b, right)
        return function(*factors, dtype=array_name_of(dtype), options=own_arch(a))

    return Operator(
        name,
        f"Tensor a, Tensor {right}, ScalarType dtype",
        kernel,
        partial(_product_shape, columns=columns),
        saves=("a", right),
        linear=(("a",), (right,)),
        backward=partial(_product_backward, columns=columns),
        vmap=partial(_product_vmap, columns=columns),
    )


_SEGMENTS: Final = "Tensor input, Tensor? offsets, int size, int dim"
_ORDER: Final = "bool exclusive, bool reverse, ScalarType dtype, str bits, Tensor? initial"

register(
    Operator(
        "sum",
        "Tensor input, int[]? dim, bool keepdim, ScalarType dtype, str bits",
        sum_kernel,
        _sum_shape,
        linear=(("input",),),
        backward=_sum_backward,
    ),
    Operator(
        "cumsum",
        f"Tensor input, int dim, {_ORDER}",
        cumsum_kernel,
        _scan_shape,
        saves=("initial",),
        linear=(("input", "initial"),),
        backward=_cumsum_backward,
    ),
    Operator(
        "segment_sum",
        f"{_SEGMENTS}, bool check, ScalarType dtype, str bits",
        segment_sum_kernel,
        _sums_shape,
        saves=("offsets",),
        linear=(("input",),),
        backward=_segment_sum_backward,
    ),
    Operator(
        "segment_cumsum",
        f"{_SEGMENTS}, bool check, {_ORDER}",
        segment_cumsum_kernel,
        lambda input, *_: input.shape,
        saves=("offsets", "initial"),
        linear=(("input", "initial"),),
        backward=_segment_cumsum_backward,
    ),
    Operator(
        "segment_spread",
        f"{_SEGMENTS}, int length, str bits",
        _segment_spread_kernel,
        _spread_shape,
        saves=("offsets",),
        linear=(("input",),),
        backward=_segment_spread_backward,
    ),
    _product("matmul", tcusim.matmul, "b"),
    _product("matvec", tcusim.matvec, "x"),
    _of_elements("sqrt", sqrt_kernel, "result", lambda change, root: change / (root + root)),
    # Torch's own: the code that Inductor makes has other last bits.
    _of_elements("exp", lambda x: torch.exp(plain(x)), "result", lambda change, exp: change * exp),
    _of_elements("log", lambda x: torch.log(plain(x)), "input", lambda change, x: change / x),
)
