"""Calls of torch's users that are repeated: from a tensor to its launch with few steps between.

The general way of a call completes, checks and prepares, and keeps the result. Here only
its last part is kept, by all that the result depends on besides the tensor's values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

from tcusim.arrays.calls import noticed, prepared_of
from tcusim.arrays.libraries import keep
from tcusim.arrays.segments import Segments
from tcusim.torch.operators import plain

# It returns None if the call is to be made again.
Launch: TypeAlias = Callable[..., Any]
_MOST: Final = 1024
# By the operator, its arguments, and the kinds of the tensors.
_LAUNCHES: Final[dict[Hashable, Launch]] = {}


def launched(kernel: Callable[..., Any], input: Any, *arguments: Any) -> Any:
    """Return a kernel's result: by the launch that is kept for such a tensor, or the general way.

    Nothing records, traces or maps the tensor. `Segments`, the first argument, keep theirs.
    """
    if not input.is_cuda:
        return kernel(input, *arguments)
    launches, asked = _LAUNCHES, arguments
    if arguments and type(arguments[0]) is Segments:
        launches, asked = arguments[0].launches, arguments[1:]
    # A number is read, hashed and compared faster than a device.
    key = kernel, asked, input.shape, input.dtype, input.get_device()
    launch = launches.get(key)
    if launch is not None:
        result = launch(input)
        if result is not None:
            return result
    with noticed() as ran:
        result = kernel(input, *arguments)
    if len(ran) == 1:
        launch = prepared_of(ran[0], plain(input))
        if launch is not None:
            keep(launches, key, launch, _MOST)
    return result


def found(key: Hashable) -> Launch | None:
    """Return the launch that is kept for such tensors."""
    return _LAUNCHES.get(key)


def hold(key: Hashable, launch: Launch | None) -> None:
    """Keep a launch; the one kept first is let go if there are too many."""
    if launch is not None:
        keep(_LAUNCHES, key, launch, _MOST)
