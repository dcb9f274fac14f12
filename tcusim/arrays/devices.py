"""Arrays in GPU memory: which those are, and which backend computes on them where they lie.

No GPU library is imported here. An array says by a protocol where it is: DLPack's, or the CUDA
array interface; what else there is to know of it, the backend finds out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from tcusim.backends import DeviceBackend, backends, get_backend, why_unavailable
from tcusim.errors import BackendUnavailable, InputError

__all__ = ["chosen_backend", "is_on_device", "library_of"]

# DLDeviceType of dlpack.h: kDLCUDA, and kDLCUDAManaged.
_DLPACK_GPU = (2, 13)


def is_on_device(a: Any) -> bool:
    """Return whether an object is an array in GPU memory."""
    if isinstance(a, (np.ndarray, np.generic, int, float, list, tuple)):
        return False
    if hasattr(a, "__dlpack_device__"):
        # Asked first: torch's tensors have the other protocol as well, but not for every type.
        return int(a.__dlpack_device__()[0]) in _DLPACK_GPU
    return hasattr(a, "__cuda_array_interface__")


def library_of(a: Any) -> str:
    """Return the type of an object, for messages."""
    return f"{type(a).__module__}.{type(a).__qualname__}"


def chosen_backend(a: Any, name: str | None) -> DeviceBackend:
    """Return the backend that computes on an array in GPU memory: the named one, or its library's.

    Unnamed, it is "cupy" or "pycuda" for arrays of these libraries, else "cuda", else any that is
    available.

    Raises
    ------
    InputError
        If the named backend computes on NumPy arrays alone.
    BackendUnavailable
        If there is none that can run here; the text gives the reason of each.
    """
    if name is not None:
        backend = get_backend(name)
        if not hasattr(backend, "prepare"):
            raise InputError(
                f"backend={name!r} computes on NumPy arrays, and this is a {library_of(a)} in GPU "
                f"memory. Leave backend out, or copy the array to a NumPy array first."
            )
        return cast("DeviceBackend", backend)
    reasons = []
    for candidate in _candidates(a):
        reason = why_unavailable(candidate)
        if reason is not None:
            reasons.append(reason)
        elif hasattr(backend := get_backend(candidate), "prepare"):
            return cast("DeviceBackend", backend)
    raise BackendUnavailable(
        f"no backend can compute on a {library_of(a)} in GPU memory. "
        f"{'; '.join(reasons) or 'None is installed: pip install tcusim[cupy]'}"
    )


def _candidates(a: Any) -> Iterator[str]:
    """Yield the names of backends in the order in which an array would have them."""
    modules = {base.__module__.partition(".")[0] for base in type(a).__mro__}
    own = tuple(name for name in ("pycuda", "cupy") if name in modules)
    preferred = dict.fromkeys((*own, "cuda", "cupy", "pycuda"))
    known = backends()
    yield from (name for name in preferred if name in known)
    yield from (name for name in known if name not in preferred)
