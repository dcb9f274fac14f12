"""One product of a tile on any backend, as a function, for `probe_unit` of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcusim.algorithms import build
from tcusim.backends import get_backend, run
from tcusim.judge.correctness.validation import require_types
from tcusim.machine.formats import Values
from tcusim.machine.probing import Mma
from tcusim.machine.shapes import MmaShape, shape_of


def one_mma(
    backend: str,
    tile: str | tuple[int, int, int] | MmaShape = "16x16x16",
    ab: str = "f16",
    acc: str = "f32",
    *,
    arch: str | None = None,
) -> Mma:
    """Return a function that multiplies one tile on a backend, c + a @ b by one mma.

    Parameters
    ----------
    backend : str
        Where: ``"cuda"``, ``"cupy"`` or ``"pycuda"`` for a GPU.
    tile : str, tuple or MmaShape
        An instruction's tile.
    ab, acc : str
        Element types.
    arch : str, optional
        For backends that simulate: whose arithmetic.

    Raises
    ------
    BackendUnavailable
        If the backend cannot run here.
    Unsupported
        If the tile does not take these types.
    """
    shape, runner = shape_of(tile), get_backend(backend)
    require_types(shape, ab, acc)
    # One block of one warp with one accumulator, and one step along k.
    block: Any = {"down": 1, "across": 1, "depth": 1}
    sizes: Any = {"cols": shape.n, "inner": shape.k, "add_c": True}
    program = build("gemm", tile=shape, ab=ab, acc=acc, **sizes, **block)
    (out,) = program.outputs

    def mma(a: Values, b: Values, c: Values) -> Values:
        inputs = {"a": a.ravel(), "b": b.ravel(), "c": c.ravel()}
        result = run(program, inputs, backend=runner, arch=arch)[out.name]
        return np.asarray(result).reshape(shape.m, shape.n)

    return mma
