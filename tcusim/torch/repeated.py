"""Calls of torch's users that are repeated: from a tensor to its launch with few steps between.

The general way of a call completes, checks and prepares, and keeps what it has prepared. Here its
last part alone is kept, by all that the result depends on beside the tensor's values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from tcusim.arrays.calls import lane_of, noticed
from tcusim.backends import Lane
from tcusim.torch.operators import plain

__all__ = ["found", "keep", "launched"]

_MOST: Final = 1024
# By what was asked for, the operator and its arguments, and of what tensors.
_LANES: Final[dict[Hashable, Lane]] = {}


def launched(kernel: Callable[..., Any], input: Any, *arguments: Hashable) -> Any:
    """Return a kernel's result: by the way that is kept for such a tensor, or the general one.

    Nothing records, traces or maps the tensor.
    """
    if not input.is_cuda:
        return kernel(input, *arguments)
    # A number is read, hashed and compared faster than a device.
    key = kernel, arguments, input.shape, input.dtype, input.get_device()
    lane = _LANES.get(key)
    if lane is not None:
        result = lane(input)
        if result is not None:
            return result
    with noticed() as ran:
        result = kernel(input, *arguments)
    if len(ran) == 1:
        keep(key, lane_of(ran[0], plain(input)))
    return result


def found(key: Hashable) -> Lane | None:
    """Return the way that is kept for such tensors."""
    return _LANES.get(key)


def keep(key: Hashable, lane: Lane | None) -> None:
    """Keep a way; the one kept first is let go if there are too many."""
    if lane is None:
        return
    _LANES[key] = lane
    while len(_LANES) > _MOST:
        _LANES.pop(next(iter(_LANES)), None)
