"""The operators behind `rms_norm`: one pass over memory, but for tensors of float64."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Final

import torch

from tcusim.algorithms.norm import most_columns, rms_norm
from tcusim.arrays.libraries import as_numpy, chosen_backend, like_array
from tcusim.backends import DeviceBackend, Session, get_backend, prepared_launch_of, run
from tcusim.errors import TcusimError
from tcusim.machine.formats import BY_ARRAY_NAME, array_name_of
from tcusim.machine.registry import rule_for
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim.torch.operators import (
    LIBRARY,
    cast,
    divided,
    operator,
    placed,
    placements,
    plain,
    register,
    sqrt_kernel,
    sum_kernel,
)
from tcusim.torch.repeated import found, hold
from tcusim.torch.simulation import arch_for

__all__ = [
    "are_fused",
    "asked_of",
    "gradients",
    "rms_norm_again",
    "rms_norm_at_once",
    "rms_norm_kernel",
    "rms_scales_kernel",
]

LIBRARY.define("rms_norm(Tensor input, Tensor? weight, float eps) -> Tensor")
LIBRARY.define("rms_scales(Tensor input, float eps) -> Tensor")

_TYPES: Final = (torch.float16, torch.bfloat16, torch.float32)


def are_fused(input: Any, columns: int, weight: Any) -> bool:
    """Return whether there is a program for rows of so many columns, and their weight."""
    fits = input.dtype in _TYPES and 1 <= columns <= most_columns(_type_of(input))
    return fits and (weight is None or (weight.dtype in _TYPES and weight.device == input.device))


@lru_cache(maxsize=64)
def _multiplies(dtype: str, place: Any) -> bool:
    """Return whether a GPU, or an architecture that is simulated, multiplies tiles of a type."""
    arch = place
    if isinstance(place, torch.device):
        major, minor = torch.cuda.get_device_capability(place)
        arch = f"sm_{major}{minor}"
    try:
        rule_for(arch, dtype, "f32")
    except TcusimError:
        return False
    return True


def _has_program(input: Any) -> bool:
    """Return whether the tensor cores at work take its type: Volta's and Turing's no bfloat16."""
    if input.dtype != torch.bfloat16:
        return True
    return _multiplies("bf16", input.device if input.is_cuda else arch_for(input) or "hopper")


def _roots(input: Any, columns: int, eps: float) -> Any:
    """Return the root of each row's mean square, by a pass for each operation."""
    wide = plain(input).reshape(-1, columns).float()
    total = sum_kernel(wide * wide, [1], True, torch.float32, "segment")
    return sqrt_kernel(divided(total, columns) + eps)


# --- Kernels: of rows along the last axis --------------------------------------

_program = lru_cache(maxsize=256)(rms_norm)


# One for each size of a batch, of which a server has hundreds: it takes some KB here, and nothing
# on a GPU, since its one launch has no memory of its own.
@lru_cache(maxsize=1024)
def _session(program: Program, sizes: tuple[tuple[str, int], ...], backend: str) -> Session:
    home = get_backend(backend)
    assert isinstance(home, DeviceBackend)
    return home.prepare(LaunchPlan.of_program(program, dict(sizes)))


def _session_of(program: Program, arrays: dict[str, Any]) -> Session:
    sizes = tuple((name, array.numel()) for name, array in arrays.items())
    return _session(program, sizes, chosen_backend(arrays["in"], None).name)


def _run(
    program: Program, arrays: dict[str, Any], shape: tuple[int, ...], key: Hashable | None = None
) -> Any:
    """Return the output of a program, in some shape, where its inputs are.

    key: of the prepared launch, which is then kept in `tcusim.torch.repeated`.
    """
    input = arrays["in"]
    if input.is_cuda:
        session = _session_of(program, arrays)
        result = session.run(arrays, shape=shape)
        if key is not None:
            hold(key, prepared_launch_of(session, arrays, None, shape))
        return result
    values = {name: as_numpy(name, array).reshape(-1) for name, array in arrays.items()}
    out = run(program, values, arch=arch_for(input))["out"]
    return like_array(input, out.reshape(shape))


def _type_of(tensor: Any) -> str:
    return BY_ARRAY_NAME[array_name_of(tensor.dtype)].name


def _rounded(eps: float) -> float:
    """Return the number as float32 has it."""
    return float(torch.tensor(eps, dtype=torch.float32).item())


def rms_norm_kernel(input: Any, weight: Any, eps: float) -> Any:
    """Compute the operator `rms_norm`."""
    return rms_norm_at_once(input, weight, input.shape[-1], eps)


def rms_norm_at_once(
    input: Any, weight: Any, columns: int, eps: float, key: Hashable | None = None
) -> Any:
    """Compute the operator for a tensor of any shape, in rows of so many elements.

    key: by which the launch is kept for `rms_norm_again`.
    """
    if not input.numel():
        return torch.empty_like(input)
    if not _has_program(input):
        result = plain(input).reshape(-1, columns).float() / _roots(input, columns, eps)
        result = result if weight is None else result * plain(weight, "weight").reshape(-1)
        return result.to(input.dtype).reshape(input.shape)
    arrays = {"in": plain(input).contiguous()}
    kind = None
    if weight is not None:
        arrays["weight"] = plain(weight, "weight").contiguous()
        kind = _type_of(weight)
    program = _program(columns, _type_of(input), eps=_rounded(eps), weight=kind)
    return _run(program, arrays, input.shape, key)


def asked_of(input: Any, weight: Any, shape: Any, eps: float | None) -> Hashable:
    """Return all that the result of a call depends on beside the values of tensors on a GPU."""
    beside = None
    if weight is not None:
        beside = weight.shape, weight.dtype, weight.device
    shape = shape if isinstance(shape, int) else tuple(shape)
    return rms_norm_kernel, shape, eps, input.shape, input.dtype, input.get_device(), beside


def rms_norm_again(key: Hashable, input: Any, weight: Any) -> Any:
    """Compute it by the launch that is kept; None if there is none, or not for these tensors."""
    launch = found(key)
    if launch is None:
        return None
    return launch(input) if weight is None else launch(input, weight)


def rms_scales_kernel(input: Any, eps: float) -> Any:
    """Compute the operator `rms_scales`: what each row is multiplied by."""
    *rows, columns = input.shape
    if not input.numel():
        return input.new_empty(rows, dtype=torch.float32)
    if not _has_program(input):
        return 1 / _roots(input, columns, eps).reshape(rows)
    taken, key = plain(input).contiguous(), None
    if input.is_cuda:
        key = rms_scales_kernel, eps, input.shape, input.dtype, input.get_device()
        launch = found(key)
        result = None if launch is None else launch(taken)
        if result is not None:
            return result
    program = _program(columns, _type_of(input), eps=_rounded(eps), scales=True)
    return _run(program, {"in": taken}, tuple(rows), key)


# --- Shapes, derivatives, vmap --------------------------------------------------------------------


def _shape(input: Any, weight: Any, eps: float) -> Any:
    return input.new_empty(input.shape)


def _scales_shape(input: Any, eps: float) -> Any:
    return input.new_empty(input.shape[:-1], dtype=torch.float32)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    input, weight, ctx.eps = inputs
    ctx.save_for_backward(input, weight)
    ctx.save_for_forward(input, weight)
    # The tangent of what has none is left out.
    ctx.set_materialize_grads(False)


def _sum(values: Any, axes: list[int], keepdim: bool) -> Any:
    return operator("sum")(values, axes, keepdim, values.dtype, "segment")


def _backward(ctx: Any, gradient: Any) -> Any:
    if gradient is None:
        return None, None, None
    input, weight = ctx.saved_tensors
    scale = operator("rms_scales")(input, ctx.eps).unsqueeze(-1)
    return *gradients(gradient, input, weight, scale, ctx.needs_input_grad), None


def gradients(gradient: Any, input: Any, weight: Any, scale: Any, needed: Any) -> tuple[Any, Any]:
    """Return the gradients of rows along the last axis and of their weight; None if not needed.

    scale: by what each row was multiplied.
    """
    wide, given = (one.to(scale.dtype) for one in (input, gradient))
    for_input = for_weight = None
    if needed[0]:
        own = given if weight is None else given * weight
        along = divided(_sum(own * wide, [-1], True), input.shape[-1])
        for_input = cast(scale * own - wide * (scale * scale * scale * along), input.dtype)
        for_input = placed(for_input, placements(input))
    if weight is not None and needed[1]:
        rows = list(range(input.dim() - 1))
        along = given * (wide * scale)
        for_weight = cast(_sum(along, rows, False) if rows else along, weight.dtype)
        for_weight = placed(for_weight, placements(weight))
    return for_input, for_weight


def _jvp(ctx: Any, for_input: Any, for_weight: Any, *_: Any) -> Any:
    input, weight = ctx.saved_tensors
    scale = operator("rms_scales")(input, ctx.eps).unsqueeze(-1)
    wide, parts = input.float(), []
    if for_input is not None:
        own = scale * for_input + wide * _change_of_scale(scale, wide, for_input)
        parts.append(own if weight is None else own * weight)
    if for_weight is not None:
        parts.append(wide * scale * for_weight)
    return cast(parts[0] if len(parts) == 1 else parts[0] + parts[1], input.dtype)


def _change_of_scale(scale: Any, wide: Any, tangent: Any) -> Any:
    """Return the tangent of what each row is multiplied by."""
    along = divided(_sum(wide * tangent, [-1], True), wide.shape[-1])
    return -scale * scale * scale * along


def _keep_scales(ctx: Any, inputs: Any, output: Any) -> None:
    input, _ = inputs
    ctx.save_for_backward(input, output)
    ctx.save_for_forward(input, output)


def _scales_backward(ctx: Any, gradient: Any) -> Any:
    input, scale = ctx.saved_tensors
    factor = divided(-gradient * scale * scale * scale, input.shape[-1])
    return cast(factor.unsqueeze(-1) * input.float(), input.dtype), None


def _scales_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    input, scale = ctx.saved_tensors
    return _change_of_scale(scale.unsqueeze(-1), input.float(), tangent).squeeze(-1)


def _vmap(info: Any, places: Any, input: Any, weight: Any, eps: float) -> Any:
    call = operator("rms_norm")
    if places[1] is not None:
        weights = weight.movedim(places[1], 0)
        inputs = (
            input.expand(info.batch_size, *input.shape)
            if places[0] is None
            else (input.movedim(places[0], 0))
        )
        pairs = zip(inputs.unbind(0), weights.unbind(0), strict=True)
        return torch.stack([call(one, its, eps) for one, its in pairs]), 0
    return call(input.movedim(places[0], 0), weight, eps), 0


def _scales_vmap(info: Any, places: Any, input: Any, eps: float) -> Any:
    return operator("rms_scales")(input.movedim(places[0], 0), eps), 0


register(
    {
        "rms_norm": (rms_norm_kernel, _shape, _keep, _backward, _jvp, _vmap),
        "rms_scales": (
            *(rms_scales_kernel, _scales_shape),
            *(_keep_scales, _scales_backward, _scales_jvp, _scales_vmap),
        ),
    }
)
