"""Operations of JAX that tcusim computes: on the GPU by XLA's FFI, else on the host.

On the host the simulator computes them, by XLA's FFI too: `jax.pure_callback` copies its arguments
in XLA's threads, and where a program runs on several devices of one CPU, all of these may wait for
the callback. It is left for arrays of GPUs, and for an XLA that takes no handler. One text names an
operation and its keywords, in memory and in XLA's compiled programs: it means the same in every
process.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import jax
import numpy as np

import tcusim
from tcusim.arrays.dtypes import TypeRule, types_on_device
from tcusim.arrays.spec import Spec
from tcusim.backends import get_backend, native_arch
from tcusim.call_options import Options, alone, others
from tcusim.errors import TcusimError, Unsupported
from tcusim.jax.environment import usual_arithmetic
from tcusim.jax.ffi import Handler, XlaArray, register
from tcusim.machine import arch_of

Array: TypeAlias = Any

# Who launches on XLA's arrays, JAX's and XLA's names of the platform, and that of the handler.
_BACKEND: Final = "cuda"
_PLATFORM: Final = ("cuda", "CUDA")
_TARGET: Final = "tcusim"
# JAX's name of the CPU, and that of its handler.
_HOST: Final = ("cpu", "tcusim_host")
# A handler is registered once.
_LOCK: Final = threading.Lock()


def computed_by(name: str, arrays: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Compute a function of tcusim along the last axes of arrays of NumPy or of XLA.

    The options among its keywords are those that were traced, and alone.
    """
    own = {key: value for key, value in keywords.items() if key in others()}
    more = {key: value for key, value in keywords.items() if key not in own}
    if name.startswith("segmented"):
        # JAX may lack integers of 64 bits: the offsets come as halves.
        edges = arrays[1].view("int64").reshape(-1)
        arrays = arrays[0], tcusim.Segments(edges, check=False)
    elif name in ("sum", "cumsum"):
        arrays, initial = arrays[:1], arrays[1:]
        more["axis"] = -1
        if initial:
            (more["initial"],) = initial
    return getattr(tcusim, name)(*arrays, options=alone(Options(**own)), **more)


def called(
    name: str, result: jax.ShapeDtypeStruct, *arrays: Array, arch: str | None, **keywords: Any
) -> Array:
    """Return the operation of JAX for a function.

    name: of the function. result: its shape and type. arch: whose bits; None for those of the GPU
    on which it runs, on the host Hopper's. keywords: of the function, as JSON has them. Axes that
    `jax.vmap` adds come in front.
    """
    keywords["dtype"] = result.dtype.name
    if not all((*result.shape, *(size for array in arrays for size in array.shape))):
        return jax.numpy.zeros(result.shape, result.dtype)
    wanted = None if arch is None else arch_of(arch).name
    there = gpu_archs()
    here = functools.partial(_on_host, name, result, {**keywords, "arch": wanted})
    if not there:
        return here(*arrays)
    # Which of several kinds of GPUs it will be, XLA does not tell while it traces.
    own = wanted or (there[0] if len(there) == 1 else None)
    followed = there if wanted is None else tuple({wanted} & set(there))
    # Exact sums look at the data, which is done on the host.
    is_exact = keywords.get("bits") == "exact"
    rules = [None if is_exact else _rule(name, arrays, result.dtype, one) for one in followed]
    work = {"" if rule is None else rule.work for rule in rules}
    text = {**keywords, "arch": own}
    if len(work) == 1 and "" not in work:
        on_gpu = functools.partial(_on_gpu, name, result, text, work.pop())
    elif own is None:
        on_gpu = functools.partial(_refused, name, result, there)
    else:
        on_gpu = functools.partial(_called_back, name, result, text)
    return jax.lax.platform_dependent(*arrays, default=here, **{_PLATFORM[0]: on_gpu})


# --- On the host ----------------------------------------------------------------------------------


def _on_host(
    name: str, result: jax.ShapeDtypeStruct, keywords: Mapping[str, Any], *arrays: Array
) -> Array:
    with _LOCK:
        handled = _host_takes_handlers()
    if not handled:
        return _called_back(name, result, keywords, *arrays)
    call = jax.ffi.ffi_call(_HOST[1], result, vmap_method="broadcast_all")
    return call(*arrays, call=_text(name, keywords))


@functools.cache
def _host_takes_handlers() -> bool:
    """Return whether XLA calls Python where it computes on the CPU."""
    return register(_HOST[1], Handler(_compute, on_stream=False), _HOST[0]) is None


def _compute(text: str, arguments: Sequence[XlaArray], results: Sequence[XlaArray]) -> None:
    """Compute the operation that a text describes, on arrays in host memory."""
    name, keywords = _parsed(text)
    (out,) = results
    out.on_host()[...] = computed_by(name, [one.on_host() for one in arguments], keywords)


def _called_back(
    name: str, result: jax.ShapeDtypeStruct, keywords: Mapping[str, Any], *arrays: Array
) -> Array:
    """Return an operation that brings the arrays of any device here, and computes."""

    def compute(*values: Any) -> Any:
        with usual_arithmetic():
            found = computed_by(name, [np.asarray(value) for value in values], keywords)
            return np.asarray(found, result.dtype)

    return jax.pure_callback(compute, result, *arrays, vmap_method="broadcast_all")


def _refused(
    name: str, result: jax.ShapeDtypeStruct, there: Sequence[str], *arrays: Array
) -> Array:
    """Return an operation that fails where it is run: whose bits it has, nobody can say."""

    def compute(*values: Any) -> Any:
        types = ", ".join(value.dtype.name for value in values)
        raise Unsupported(
            f"tcusim.jax: {name} of {types}: the GPUs are of several architectures, "
            f"{', '.join(there)}, which do not compute this alike. "
            "Name one of them: options={'arch': ...}"
        )

    return jax.pure_callback(compute, result, *arrays, vmap_method="broadcast_all")


# --- On the GPU -----------------------------------------------------------------------------------


def _on_gpu(
    name: str, result: jax.ShapeDtypeStruct, keywords: Mapping[str, Any], work: str, *arrays: Array
) -> Array:
    first, *rest = arrays
    # The factors of a product are of one type; offsets keep theirs.
    cast = [one.astype(work) if one.dtype == first.dtype else one for one in rest]
    call = jax.ffi.ffi_call(_TARGET, result, vmap_method="broadcast_all")
    return call(first.astype(work), *cast, call=_text(name, keywords))


def _text(name: str, keywords: Mapping[str, Any]) -> str:
    return json.dumps({"function": name, **keywords}, sort_keys=True)


def _launch(text: str, arguments: Sequence[XlaArray], results: Sequence[XlaArray]) -> None:
    """Queue the operation that a text describes on the stream of the arrays."""
    name, keywords = _parsed(text)
    (out,) = results
    watched = {"out": out, "stream": out.stream, "backend": _BACKEND}
    computed_by(name, arguments, {**keywords, **watched})


@functools.lru_cache(maxsize=512)
def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    keywords = json.loads(text)
    return keywords.pop("function"), keywords


def why_on_host() -> str | None:
    """Return why arrays on a GPU are computed on the host; None if the GPU computes them.

    Returns
    -------
    str or None
        The missing package, and the command that helps if there is one. None does not promise
        every type: no GPU computes integers other than int8, or factors of float32 without
        bfloat16, as the simulator does.
    """
    return _found()[1]


def gpu_archs() -> tuple[str, ...]:
    """Return the architectures of the GPUs on which XLA can launch; none if it can on none."""
    return _found()[0]


def _found() -> tuple[tuple[str, ...], str | None]:
    with _LOCK:
        return _find()


@functools.cache
def _find() -> tuple[tuple[str, ...], str | None]:
    """Return the architectures, or why there are none."""
    try:
        devices = jax.local_devices(backend=_PLATFORM[0])
        usual = native_arch(get_backend(_BACKEND))
        found = dict.fromkeys(_arch_of(device) or usual for device in devices)
    # RuntimeError: JAX has no such platform.
    except (RuntimeError, TcusimError) as error:
        return (), str(error)
    archs = tuple(arch for arch in found if arch is not None)
    if len(archs) < len(found):
        return (), "nobody knows the arithmetic of this GPU"
    reason = register(_TARGET, Handler(_launch), _PLATFORM[1])
    return (archs, None) if reason is None else ((), reason)


def _arch_of(device: Any) -> str | None:
    """Return the architecture of one of JAX's devices, if JAX tells."""
    capability = getattr(device, "compute_capability", None)
    return None if capability is None else arch_of(f"sm_{capability.replace('.', '')}").name


def _rule(name: str, arrays: Sequence[Array], dtype: Any, arch: str) -> TypeRule | None:
    """Return the types in which a GPU computes; None if it does not compute such arrays."""
    is_product = name in ("matmul", "matvec")
    given = arrays[0].dtype.name
    if is_product and arrays[1].dtype.name != given:
        return None
    try:
        rule = types_on_device(Spec(name if is_product else "sum", dtype=dtype), given, arch)
        rule.types.require_on(arch)
    except TcusimError:
        return None
    return rule
