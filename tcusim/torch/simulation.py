"""Whose bits tensors on the CPU have: a GPU that is simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import torch

from tcusim.call_options import Options, alone
from tcusim.machine import arch_of

__all__ = ["arch_for", "own_arch", "predict", "simulated"]

_Result = TypeVar("_Result")

_ARCH: Final[ContextVar[str | None]] = ContextVar("tcusim.torch.arch", default=None)


@contextmanager
def simulated(arch: str) -> Iterator[None]:
    """Within this context, tensors on the CPU have the bits of a GPU.

    The context is that of the calling thread, so that two threads can simulate two GPUs. A thread
    that is started within it computes as Hopper, unless it runs in a copy of the context:
    ``threading.Thread(target=contextvars.copy_context().run, args=(function,))``. Derivatives of
    tensors on the CPU are computed by the thread that asks for them.

    Parameters
    ----------
    arch : str
        An architecture, or a GPU such as ``"a100"``. Outside of any such context: Hopper.

    Raises
    ------
    UnknownName
        If there is no such architecture or GPU.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> with tct.simulated("v100"):
    ...     tct.sum(torch.ones(4, dtype=torch.float16))
    tensor(4., dtype=torch.float16)
    """
    token = _ARCH.set(arch_of(arch).name)
    try:
        yield
    finally:
        _ARCH.reset(token)


def predict(function: Callable[..., _Result], *arguments: Any, arch: str = "hopper") -> _Result:
    """Return the result that a function of tensors has on a GPU, without one.

    Sums, scans, products and roots of this package have the bits of the GPU. So have torch's
    additions, multiplications, and quotients of tensors, which are rounded correctly everywhere.
    Its square roots on a CPU, quotients by Python numbers, reciprocals, `exp`, `tanh` and other
    functions may differ in the last bit.

    Parameters
    ----------
    function : callable
        The function, such as a module in evaluation mode.
    *arguments
        Its arguments. Tensors are copied to the CPU if they are elsewhere; a module's own
        parameters are used where they are.
    arch : str
        Whose bits, as for `simulated`.

    Examples
    --------
    >>> import tcusim.torch as tct, torch
    >>> x = torch.ones(2, 3, dtype=torch.float16)
    >>> predict(lambda x: tct.cumsum(x, 1), x, arch="h200")
    tensor([[1., 2., 3.],
            [1., 2., 3.]], dtype=torch.float16)
    """
    there = [one.cpu() if isinstance(one, torch.Tensor) else one for one in arguments]
    with simulated(arch):
        return function(*there)


def arch_for(tensor: Any) -> str | None:
    """Return the architecture whose bits a computation on this tensor has; None: its GPU's."""
    return None if tensor.is_cuda else _ARCH.get()


def own_arch(tensor: Any) -> Options:
    """Return the options of a computation within tcusim on this tensor: whose bits, and no more."""
    return alone(Options(arch=arch_for(tensor)))
