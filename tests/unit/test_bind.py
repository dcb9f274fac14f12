"""Inputs are matched with a program's buffers and scalars."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tcusim.algorithms import build
from tcusim.errors import InputError
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import (
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Program,
    Scalar,
    View,
)
from tcusim.simulate.interpreter import run_numpy

TINY = MmaShape(2, 2, 2)


def one(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return one element."""
    return View.strided(buffer, Index.of(offset), 1, 1, 1, 1, bounds)


def row(buffer: Buffer, count: int, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return `count` elements in a row."""
    return View.strided(buffer, Index.of(offset), 1, count, count, 1, bounds)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "reduction_k: inputs must be in; got none"),
        ({"a": [1.0], "b": [1.0]}, "reduction_k: inputs must be in; got a, b"),
        (
            {"in": np.ones(100, np.float16)},
            "reduction_k: length = 100 is not a multiple of 256, the elements that one block "
            "takes. Build it with masked=True, or pad the input.",
        ),
        (
            {"in": np.ones((16, 16), np.float16)},
            "input 'in' must be flat (one axis), got shape (16, 16); use a.ravel()",
        ),
        ({"in": np.full(256, 2049.0)}, "f16 cannot hold its element [0] = 2049.0 exactly"),
        ({"in": np.full(256, 1j)}, "in must hold real numbers, got dtype complex128"),
    ],
)
def test_inputs_that_do_not_fit(inputs: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        run_numpy(build("reduction_k"), inputs)


def test_an_input_of_the_wrong_size_for_the_others() -> None:
    program = build("scan_tn", carry=True, segment_size=256)
    inputs = {"in": np.ones(512, np.float16), "carry": np.ones(3, np.float32)}
    text = r"scan_tn: input 'carry' must have ceil\(length / 256\) = 2 elements; it has 3"
    with pytest.raises(InputError, match=text):
        run_numpy(program, inputs)


def test_a_scalar_that_no_input_gives() -> None:
    source, out = (
        Buffer("in", "f32", Extent.of(4), BufferRole.INPUT),
        Buffer("out", "f32", Extent.of(4), BufferRole.OUTPUT),
    )
    program = Program(
        name="free", shape=TINY, ab="f16", acc="f32", scalars=(Scalar("n"),),
        buffers=(source, out,), blocks=Extent.of(1), warps=1,
        steps=(Assign(row(out, 4), row(source, 4)),),
    )  # fmt: skip
    with pytest.raises(InputError, match="free: no input's size gives the scalar 'n'"):
        run_numpy(program, {"in": np.ones(4, np.float32)})
