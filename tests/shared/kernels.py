"""A small kernel, and the same with a mistake, for tests of compilers."""

from __future__ import annotations

import dataclasses

from tcusim.algorithms import build
from tcusim_cuda.emit import emit
from tcusim_cuda.kernel import Kernel


def kernel() -> Kernel:
    return emit(build("reduction_k"))


def spoiled(path: str) -> Kernel:
    """Return a kernel with a line, from the step of this path, that is no CUDA."""
    good = kernel()
    lines = good.text.splitlines()
    number = max(i for i, step in enumerate(good.paths) if step == path)
    lines[number] = "    no_such_thing(1);"
    return dataclasses.replace(good, text="\n".join(lines) + "\n")
