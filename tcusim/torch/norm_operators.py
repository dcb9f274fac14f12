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
    Operator,
    cast,
    divided,
    in_front,
    operator,
    placed,
    placements,
    plain,
    register,
    sqrt_kernel,
    sum_kernel,
    sum_of,
)
from tcusim.torch.repeated import found, hold
from tcusim.torch.simulation import arch_for

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
    """Compute the operator `rms_scales`: the factor of each row."""
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


# --- Derivatives and vmap -------------------------------------------------------------------------


def _backward(ctx: Any, gradient: Any) -> dict[str, Any]:
    input, weight = ctx.saved_tensors
    scale = operator("rms_scales")(input, ctx.given["eps"]).unsqueeze(-1)
    own, for_weight = gradients(gradient, input, weight, scale, ctx.needs_input_grad)
    return {"input": own, "weight": for_weight}


def gradients(gradient: Any, input: Any, weight: Any, scale: Any, needed: Any) -> tuple[Any, Any]:
    """Return the gradients of rows along the last axis and of their weight; None if not needed.

    scale: the factor of each row.
    """
    wide, given = (one.to(scale.dtype) for one in (input, gradient))
    for_input = for_weight = None
    if needed[0]:
        own = given if weight is None else given * weight
        along = divided(sum_of(own * wide, [-1], True), input.shape[-1])
        for_input = cast(scale * own - wide * (scale * scale * scale * along), input.dtype)
        for_input = placed(for_input, placements(input))
    if weight is not None and needed[1]:
        rows = list(range(input.dim() - 1))
        along = given * (wide * scale)
        for_weight = cast(sum_of(along, rows) if rows else along, weight.dtype)
        for_weight = placed(for_weight, placements(weight))
    return for_input, for_weight


def _jvp(ctx: Any, tangents: dict[str, Any]) -> Any:
    input, weight = ctx.saved_tensors
    for_input, for_weight = tangents["input"], tangents["weight"]
    scale = operator("rms_scales")(input, ctx.given["eps"]).unsqueeze(-1)
    wide, parts = input.float(), []
    if for_input is not None:
        own = scale * for_input + wide * _change_of_scale(scale, wide, for_input)
        parts.append(own if weight is None else own * weight)
    if for_weight is not None:
        parts.append(wide * scale * for_weight)
    return cast(parts[0] if len(parts) == 1 else parts[0] + parts[1], input.dtype)


def _change_of_scale(scale: Any, wide: Any, tangent: Any) -> Any:
    """Return the tangent of the factor of each row."""
    along = divided(sum_of(wide * tangent, [-1], True), wide.shape[-1])
    return -scale * scale * scale * along


def _scales_backward(ctx: Any, gradient: Any) -> dict[str, Any]:
    input, scale = ctx.saved_tensors
    factor = divided(-gradient * scale * scale * scale, input.shape[-1])
    return {"input": factor.unsqueeze(-1) * input.float()}


def _scales_jvp(ctx: Any, tangents: dict[str, Any]) -> Any:
    input, scale = ctx.saved_tensors
    wide = input.float()
    return _change_of_scale(scale.unsqueeze(-1), wide, tangents["input"]).squeeze(-1)


def _vmap(call: Any, info: Any, places: dict[str, Any], given: dict[str, Any]) -> Any:
    rows = in_front(given["input"], places["input"], info.batch_size)
    if places.get("weight") is None:
        return call(**{**given, "input": rows}), 0
    pairs = zip(rows.unbind(0), given["weight"].movedim(places["weight"], 0).unbind(0), strict=True)
    each = [call(**{**given, "input": one, "weight": weight}) for one, weight in pairs]
    return torch.stack(each), 0


register(
    Operator(
        "rms_norm",
        "Tensor input, Tensor? weight, float eps",
        rms_norm_kernel,
        lambda input, *_: input.shape,
        saves=("input", "weight"),
        backward=_backward,
        jvp=_jvp,
        vmap=_vmap,
    ),
    Operator(
        "rms_scales",
        "Tensor input, float eps",
        rms_scales_kernel,
        lambda input, _: input.shape[:-1],
        dtype=torch.float32,
        saves=("input", "result"),
        backward=_scales_backward,
        jvp=_scales_jvp,
        vmap=_vmap,
    ),
)
