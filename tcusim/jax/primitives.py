"""The operation of JAX behind the functions: its shapes, derivatives, transposes and batches.

Sums and scans are linear, products bilinear: forward and reverse mode are made of the same
operation, and of each other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from tcusim.errors import InputError
from tcusim.jax.operations import called

Array: TypeAlias = Any

_PRODUCTS: Final = ("matmul", "matvec")


@dataclass(frozen=True, slots=True)
class How:
    """An operation along the last axis, or the last axes, of arrays.

    name: sum (of rows), cumsum (of rows, with optional initial values that are broadcast to them),
    segmented_sum and segmented_cumsum (of rows and the offsets of each), matmul, matvec. dtype: of
    the result. arch: whose bits; None for those of the place where it is computed.
    """

    name: str
    dtype: Any
    arch: str | None
    exclusive: bool = False
    reverse: bool = False
    bits: str = "segment"

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the shape of the result."""
        first, *rest = shapes
        match self.name:
            case "sum":
                return first[:-1]
            case "segmented_sum":
                return *first[:-1], rest[0][-1] - 1
            case "matmul":
                return *jnp.broadcast_shapes(first[:-2], rest[0][:-2]), first[-2], rest[0][-1]
            case "matvec":
                return *jnp.broadcast_shapes(first[:-2], rest[0][:-1]), first[-2]
            case _:
                return first

    def keywords(self) -> dict[str, Any]:
        """Return the keywords of the function on arrays."""
        more: dict[str, Any] = {}
        if self.name.endswith("cumsum"):
            more = {"exclusive": self.exclusive, "reverse": self.reverse}
        if self.bits != "segment":
            more["bits"] = self.bits
        return more


_operation: Final = Primitive("tcusim")


def computed(how: How, *operands: Array) -> Array:
    """Return the results for arrays, by an operation that JAX transforms."""
    result: Array = _operation.bind(*_alike(operands), how=how)
    return result


@functools.lru_cache(maxsize=512)
def _compiled(how: How) -> Any:
    return jax.jit(functools.partial(computed, how))


def _run(*operands: Array, how: How) -> Array:
    return _compiled(how)(*operands)


def _typed(*avals: Any, how: How) -> Any:
    shape = how.shape([one.shape for one in avals])
    more = {}
    if getattr(avals[0], "sharding", None) is not None:
        # Cut along no axis; along which axes of the mesh it varies stays as it is.
        mesh = avals[0].sharding.mesh
        more["sharding"] = NamedSharding(mesh, PartitionSpec(*[None] * len(shape)))
    return avals[0].update(shape=shape, dtype=how.dtype, weak_type=False, **more)


def _varying(operand: Array) -> frozenset[Any]:
    """Return the axes of a mesh along which an array differs, within `jax.shard_map`."""
    own = jax.typeof(operand) if hasattr(jax, "typeof") else None
    # The name has changed.
    return frozenset(getattr(getattr(own, "mat", own), "varying", getattr(own, "vma", ())))


def _alike(operands: Sequence[Array]) -> list[Array]:
    """Return operands that differ along the same axes of a mesh, as JAX's own functions do."""
    axes = [_varying(one) for one in operands]
    every = frozenset().union(*axes)
    alike = []
    for one, own in zip(operands, axes, strict=True):
        lacking = tuple(every - own)
        if lacking and hasattr(jax.lax, "pcast"):
            one = jax.lax.pcast(one, lacking, to="varying")
        elif lacking:
            one = jax.lax.pvary(one, lacking)
        alike.append(one)
    return alike


# --- Derivatives ----------------------------------------------------------------------------------
#
# Their sums, scans and products have the architecture and the kind of bits of the operation.


def _is_offsets(how: How, place: int) -> bool:
    return place == 1 and how.name.startswith("segmented")


def _jvp(primals: Sequence[Array], tangents: Sequence[Array], *, how: How) -> tuple[Array, Array]:
    result = computed(how, *primals)
    moved = [place for place, one in enumerate(tangents) if not isinstance(one, ad.Zero)]
    if how.name in _PRODUCTS:
        parts = [
            computed(
                how, *(tangents[place] if place == at else one for at, one in enumerate(primals))
            )
            for place in moved
        ]
    elif moved:
        given = (
            primals[place] if _is_offsets(how, place) else ad.instantiate_zeros(one)
            for place, one in enumerate(tangents)
        )
        parts = [computed(how, *given)]
    else:
        parts = []
    if not parts:
        return result, ad.Zero.from_primal_value(result)
    return result, functools.reduce(jnp.add, parts)


def _transpose(change: Array, *operands: Array, how: How) -> list[Array | None]:
    """Return the gradients of the operands in which the operation is linear."""
    wanted = [ad.is_undefined_primal(one) for one in operands]
    if isinstance(change, ad.Zero):
        return [
            ad.Zero(one.aval) if is_one else None
            for one, is_one in zip(operands, wanted, strict=True)
        ]
    found = _PARTS[how.name](change, operands, wanted, replace(how, dtype=change.dtype))
    return [
        _as_of(one.aval, part) if is_one else None
        for one, part, is_one in zip(operands, found, wanted, strict=True)
    ]


def _as_of(aval: Any, gradient: Array) -> Array:
    """Return a gradient in the type of its array, and sharded alike."""
    gradient = gradient.astype(aval.dtype)
    if hasattr(jax, "typeof") and getattr(jax.typeof(gradient), "sharding", None) != aval.sharding:
        return jax.sharding.reshard(gradient, aval.sharding)
    return gradient


def _of_sum(change: Array, operands: Any, wanted: Any, how: How) -> list[Array]:
    return [jnp.broadcast_to(change[..., None], operands[0].aval.shape)]


def _of_cumsum(change: Array, operands: Any, wanted: Any, how: How) -> list[Array]:
    # Element i is in the sums of the elements after it: the other way round.
    turned = replace(how, reverse=not how.reverse)
    own = [computed(turned, change) if wanted[0] else None]
    if len(operands) > 1:
        own.append(_summed_to(how, change, operands[1].aval.shape) if wanted[1] else None)
    return own


def _of_segments(change: Array, operands: Any, wanted: Any, how: How) -> list[Array]:
    rows, offsets = operands
    # Rows of offsets and of elements.
    flat = offsets.reshape(-1, offsets.shape[-1])
    places = jnp.arange(rows.aval.shape[-1], dtype=offsets.dtype)
    at = jax.vmap(lambda edges: jnp.searchsorted(edges, places, side="right") - 1)(flat)
    at = at.reshape(*offsets.shape[:-1], places.size)
    if not change.shape[-1]:
        return [jnp.zeros(rows.aval.shape, change.dtype), None]
    return [jnp.take_along_axis(change, jnp.clip(at, 0, change.shape[-1] - 1), -1), None]


def _of_segment_scans(change: Array, operands: Any, wanted: Any, how: How) -> list[Array]:
    turned = replace(how, reverse=not how.reverse)
    return [computed(turned, change, operands[1]), None]


def _of_matmul(change: Array, operands: Any, wanted: Any, how: How) -> list[Array]:
    a, b = operands
    if wanted[0]:
        own = computed(how, change.astype(b.dtype), jnp.swapaxes(b, -1, -2))
        return [_summed_to(how, own, a.aval.shape), None]
    own = computed(how, jnp.swapaxes(a, -1, -2), change.astype(a.dtype))
    return [None, _summed_to(how, own, b.aval.shape)]


def _of_matvec(change: Array, operands: Any, wanted: Any, how: How) -> list[Array]:
    a, x = operands
    if wanted[0]:
        # One product for each element: there is nothing to add.
        own = change.astype(x.dtype)[..., :, None] * x[..., None, :]
        return [_summed_to(how, own, a.aval.shape), None]
    own = computed(how, jnp.swapaxes(a, -1, -2), change.astype(a.dtype))
    return [None, _summed_to(how, own, x.aval.shape)]


_PARTS: Final[dict[str, Any]] = {
    "sum": _of_sum,
    "cumsum": _of_cumsum,
    "segmented_sum": _of_segments,
    "segmented_cumsum": _of_segment_scans,
    "matmul": _of_matmul,
    "matvec": _of_matvec,
}


def _summed_to(how: How, change: Array, shape: tuple[int, ...]) -> Array:
    """Return a gradient summed at once over the axes that its array lacks or broadcasts."""
    axes = tuple(
        place
        for place, size in enumerate(change.shape)
        if place >= len(shape) or shape[place] != size
    )
    if not axes:
        return change
    length = math.prod(change.shape[place] for place in axes)
    rows = jnp.moveaxis(change, axes, range(-len(axes), 0))
    rows = rows.reshape(*rows.shape[: -len(axes)], length)
    return computed(How("sum", change.dtype, how.arch, bits=how.bits), rows).reshape(shape)


# --- Batches and lowering -------------------------------------------------------------------------


def _batch(operands: Sequence[Array], places: Sequence[Any], *, how: How) -> tuple[Array, int]:
    """Put the axis of the batch in front of all operands."""
    size = next(
        one.shape[place] for one, place in zip(operands, places, strict=True) if place is not None
    )
    fronts = []
    for one, place in zip(operands, places, strict=True):
        if place is not None:
            fronts.append(jnp.moveaxis(one, place, 0))
        elif how.name in _PRODUCTS or (how.name == "cumsum" and fronts):
            # A stack of one goes with each; so do initial values.
            fronts.append(one[None])
        else:
            fronts.append(jnp.broadcast_to(one, (size, *one.shape)))
    return computed(how, *fronts), 0


def _lowered(*operands: Array, how: How) -> Array:
    if how.name.startswith("segmented"):
        return _end_to_end(*operands, how=how)
    result = jax.ShapeDtypeStruct(how.shape([one.shape for one in operands]), how.dtype)
    if how.name == "cumsum" and len(operands) > 1:
        rows, initial = operands
        operands = rows, jnp.broadcast_to(initial, rows.shape[:-1])
    return called(how.name, result, *operands, arch=how.arch, **how.keywords())


def _end_to_end(rows: Array, offsets: Array, *, how: How) -> Array:
    """Return the results for the segments of rows, each with offsets of its own."""
    number, length = math.prod(rows.shape[:-1]), rows.shape[-1]
    shape = how.shape([rows.shape, offsets.shape])
    wide = offsets.astype(jax.dtypes.canonicalize_dtype("int64"))
    if rows.size > jnp.iinfo(wide.dtype).max:
        raise InputError(
            f"{rows.size} elements have offsets of 64 bits: set jax_enable_x64, or sum fewer"
        )
    # End to end, the rows are one.
    starts = jnp.arange(number, dtype=wide.dtype)[:, None] * length
    edges = wide.reshape(number, offsets.shape[-1])
    flat = jnp.append((edges[:, :-1] + starts).reshape(-1), jnp.array(rows.size, wide.dtype))
    elements = rows.reshape(-1)
    size = elements.shape if how.name.endswith("cumsum") else (flat.size - 1,)
    result = jax.ShapeDtypeStruct(size, how.dtype)
    found = called(how.name, result, elements, _halves(flat), arch=how.arch, **how.keywords())
    return found.reshape(shape)


def _halves(offsets: Array) -> Array:
    """Return integers of 64 bits as pairs of 32, which JAX always has; the lower ones first."""
    if offsets.dtype.itemsize == 8:
        return jax.lax.bitcast_convert_type(offsets, jnp.uint32)
    low = offsets.astype(jnp.uint32)
    return jnp.stack([low, jnp.zeros_like(low)], -1)


_operation.def_impl(_run)
_operation.def_abstract_eval(_typed)
ad.primitive_jvps[_operation] = _jvp
ad.primitive_transposes[_operation] = _transpose
batching.primitive_batchers[_operation] = _batch
mlir.register_lowering(_operation, mlir.lower_fun(_lowered, multiple_results=False))
