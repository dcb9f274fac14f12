"""Calls of torch's users that are repeated: from a tensor to its launch with few steps between.

The general way of a call completes, checks and prepares, and keeps what it has prepared. Here its
last part alone is kept, by all that the result depends on beside the tensor's values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from tcusim.arrays.calls import noticed, prepared_of
from tcusim.backends import PreparedLaunch
from tcusim.torch.operators import plain

__all__ = ["found", "keep", "launched"]

_MOST: Final = 1024
# By what was asked for, the operator and its arguments, and of what tensors.
_LAUNCHES: Final[dict[Hashable, PreparedLaunch]] = {}


def launched(kernel: Callable[..., Any], input: Any, *arguments: Hashable) -> Any:
    """Return a kernel's result: by the way that is kept for such a tensor, or the general one.

    Nothing records, traces or maps the tensor.
    """
    if not input.is_cuda:
        return kernel(input, *arguments)
    # A number is read, hashed and compared faster than a device.
    key = kernel, arguments, input.shape, input.dtype, input.get_device()
    launch = _LAUNCHES.get(key)
    if launch is not None:
        result = launch(input)
        if result is not None:
            return result
    with noticed() as ran:
        result = kernel(input, *arguments)
    if len(ran) == 1:
        keep(key, prepared_of(ran[0], plain(input)))
    return result


def found(key: Hashable) -> PreparedLaunch | None:
    """Return the way that is kept for such tensors."""
    return _LAUNCHES.get(key)


def keep(key: Hashable, launch: PreparedLaunch | None) -> None:
    """Keep a way; the one kept first is let go if there are too many."""
    if launch is None:
        return
    _LAUNCHES[key] = launch
    while len(_LAUNCHES) > _MOST:
        _LAUNCHES.pop(next(iter(_LAUNCHES)), None)
