"""Norms of `tcusim.torch`: values of float64, on a stand-in for torch and, where it is, on torch.

torch's part (derivatives, compilation, its own values) is in `test_norms.py`.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcusim.errors import InputError

pytest.importorskip("ml_dtypes")

import torch_standin

Wide = NDArray[np.float64]

# A result of half precision is rounded once more, after float32, by half of its last bit. In
# float32 and float64 a few operations are rounded, one after the other.
TOLERANCE = {"float16": 2**-10.9, "bfloat16": 2**-7.9, "float32": 2**-22, "float64": 2**-50}
# Around the borders of fragments and tiles.
LENGTHS = (1, 16, 17, 255, 257)
INF, NAN = math.inf, math.nan


class Library:
    """`tcusim.torch`, with numbers for tensors."""

    def __init__(self, tct: Any) -> None:
        self.tct, self.torch = tct, sys.modules["torch"]

    def tensor(self, values: Any, dtype: str, recorded: bool = False) -> Any:
        made = self.torch.tensor(np.asarray(values).tolist(), dtype=getattr(self.torch, dtype))
        made = made.reshape(np.shape(values))
        return made.requires_grad_() if recorded else made

    def numbers(self, tensor: Any) -> Wide:
        wide: Wide = tensor.detach().to(self.torch.float64).numpy()
        return wide


@pytest.fixture(
    scope="module", params=["stand-in", "torch"] if find_spec("torch") else ["stand-in"]
)
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    if request.param == "torch":
        yield Library(importlib.import_module("tcusim.torch"))
        return
    with torch_standin.standing_in() as tct:
        yield Library(tct)


def drawn(*shape: int, scale: float = 3.0, shift: float = 1.0) -> Wide:
    return np.random.default_rng(shape[-1]).standard_normal(shape) * scale + shift


def _normed(x: Wide, eps: float) -> Wide:
    result: Wide = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return result


def _centred(x: Wide, eps: float) -> Wide:
    result: Wide = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return result


def _log_sum(x: Wide) -> Wide:
    result: Wide = np.log(np.exp(x).sum(-1))
    return result


# Of rows along the last axis: by tcusim.torch, and by definition.
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Wide], Any]]] = {
    "mean": (lambda tct, x: tct.mean(x, -1), lambda x: x.mean(-1)),
    "rms_norm": (
        lambda tct, x: tct.rms_norm(x, x.shape[-1], eps=0.5),
        lambda x: _normed(x, 0.5),
    ),
    "layer_norm": (
        lambda tct, x: tct.layer_norm(x, x.shape[-1], eps=0.5),
        lambda x: _centred(x, 0.5),
    ),
    "softmax": (
        lambda tct, x: tct.softmax(x, -1),
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    ),
    "log_softmax": (lambda tct, x: tct.log_softmax(x, -1), lambda x: x - _log_sum(x)[..., None]),
    "logsumexp": (lambda tct, x: tct.logsumexp(x, -1), _log_sum),
}


def check(library: Library, got: Any, expected: Any, dtype: str) -> None:
    assert got.dtype == getattr(library.torch, dtype)
    tolerance = TOLERANCE[dtype]
    found = library.numbers(got)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_float64(library: Library, name: str, dtype: str) -> None:
    function, exactly = FUNCTIONS[name]
    for length in LENGTHS:
        x = library.tensor(drawn(3, length), dtype)
        plain = function(library.tct, x)
        check(library, plain, exactly(library.numbers(x)), dtype)
        recorded = function(library.tct, x.detach().requires_grad_())
        np.testing.assert_array_equal(library.numbers(recorded), library.numbers(plain))


def test_axes_and_types_of_results(library: Library) -> None:
    tct, x = library.tct, library.tensor(drawn(2, 3, 20), "float16")
    wide = library.numbers(x)
    powers = np.exp(wide)
    for got, expected, dtype in (
        (tct.mean(x, (0, 2), True), wide.mean((0, 2), keepdims=True), "float16"),
        (tct.mean(x), wide.mean(), "float16"),
        (tct.mean(x, 1, dtype=library.torch.float32), wide.mean(1), "float32"),
        (tct.softmax(x, 1), powers / powers.sum(1, keepdims=True), "float16"),
        (
            tct.softmax(x, 0, dtype=library.torch.float32),
            powers / powers.sum(0, keepdims=True),
            "float32",
        ),
        (
            tct.log_softmax(x, -2, dtype=library.torch.float32),
            wide - np.log(powers.sum(1, keepdims=True)),
            "float32",
        ),
        (tct.logsumexp(x, (0, 2)), np.log(powers.sum((0, 2))), "float16"),
        (tct.logsumexp(x, 1, True), np.log(powers.sum(1, keepdims=True)), "float16"),
        (tct.logsumexp(x, None), np.log(powers.sum()), "float16"),
    ):
        check(library, got, expected, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_weights_and_several_axes(library: Library, dtype: str) -> None:
    tct = library.tct
    x, weight, bias = (library.tensor(drawn(*shape), dtype) for shape in ((2, 3, 7), (7,), (3, 7)))
    wide, by, added = (library.numbers(one) for one in (x, weight, bias))
    check(library, tct.rms_norm(x, 7, weight, 0.5), _normed(wide, 0.5) * by, dtype)
    check(library, tct.layer_norm(x, (7,), weight, eps=0.5), _centred(wide, 0.5) * by, dtype)
    flat = wide.reshape(2, 21)
    both = {"rms_norm": _normed(flat, 0.5), "layer_norm": _centred(flat, 0.5)}
    expected = both["rms_norm"].reshape(wide.shape) * added
    check(library, tct.rms_norm(x, (3, 7), bias, 0.5), expected, dtype)
    expected = both["layer_norm"].reshape(wide.shape) * added + added
    check(library, tct.layer_norm(x, (3, 7), bias, bias, 0.5), expected, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_eps_unasked(library: Library, dtype: str) -> None:
    """Rows with a mean square of about eps: half types are computed in float32."""
    eps = float(np.finfo("float64" if dtype == "float64" else "float32").eps)
    x = library.tensor(drawn(3, 20, scale=math.sqrt(eps), shift=0), dtype)
    check(library, library.tct.rms_norm(x, 20), _normed(library.numbers(x), eps), dtype)
    x = library.tensor(drawn(3, 20, scale=3e-3, shift=0), dtype)
    check(library, library.tct.layer_norm(x, 20), _centred(library.numbers(x), 1e-5), dtype)
    zeros = library.tensor(np.zeros((2, 20)), dtype)
    for norm in (library.tct.rms_norm, library.tct.layer_norm):
        assert not library.numbers(norm(zeros, 20)).any()


def test_an_eps_that_float32_lacks(library: Library) -> None:
    x = library.tensor([[1.0, -2.0]], "float32")
    for eps, expected in ((INF, 0.0), (1e300, 0.0), (NAN, NAN)):
        got = library.numbers(library.tct.rms_norm(x, 2, eps=eps))
        np.testing.assert_array_equal(np.abs(got), np.full((1, 2), expected))


def test_rows_longer_than_a_program_takes(library: Library) -> None:
    x = library.tensor(drawn(1, 10_241), "float32")
    expected = _normed(library.numbers(x), 0.5)
    check(library, library.tct.rms_norm(x, 10_241, eps=0.5), expected, "float32")


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_large_numbers_have_exponentials(library: Library, dtype: str) -> None:
    small = np.array([[-3.0, 0.0, 1.0], [2.0, 2.0, -8.0]])
    # The type represents this value, and float32 has no exponentials of it.
    most = 128 if dtype == "bfloat16" else 1024
    for shift in (most, -most):
        x = library.tensor(small + shift, dtype)
        for name in ("softmax", "log_softmax", "logsumexp"):
            function, exactly = FUNCTIONS[name]
            expected = exactly(small) + (shift if name == "logsumexp" else 0)
            check(library, function(library.tct, x), expected, dtype)


SPECIAL = [[-INF, 0.0, 0.0], [-INF] * 3, [INF, 0.0, 1.0], [INF, -INF, 0.0], [NAN, 0.0, 1.0]]
HALF = -math.log(2)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", [-INF, -INF, INF, NAN, NAN]),
        ("logsumexp", [-HALF, -INF, INF, INF, NAN]),
        ("softmax", [[0, 0.5, 0.5], *([[NAN] * 3] * 4)]),
        ("log_softmax", [[-INF, HALF, HALF], *([[NAN] * 3] * 4)]),
        ("layer_norm", [[NAN] * 3] * 5),
        ("rms_norm", [[NAN, 0, 0], [NAN] * 3, [NAN, 0, 0], [NAN, NAN, 0], [NAN] * 3]),
    ],
)
def test_special_values(
    library: Library, name: str, expected: Any, dtype: str, recorded: bool
) -> None:
    """Each in its row: the last one is as if it were alone."""
    function, exactly = FUNCTIONS[name]
    x = library.tensor([*SPECIAL, [1.0, 2.0, 4.0]], dtype, recorded)
    last = exactly(np.array([[1.0, 2.0, 4.0]]))[0]
    check(library, function(library.tct, x), np.array([*expected, last]), dtype)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_squares_that_overflow(library: Library, dtype: str, recorded: bool) -> None:
    most = 2.0**1000 if dtype == "float64" else 2.0**120
    small = np.array([1.0, 2.0, 4.0])
    x = library.tensor([[most, 0, 0], [most, -most, most], small], dtype, recorded)
    for name, value in (("layer_norm", NAN), ("rms_norm", 0.0)):
        function, exactly = FUNCTIONS[name]
        expected = np.array([[value] * 3, [value] * 3, exactly(small)])
        check(library, function(library.tct, x), expected, dtype)


@pytest.mark.parametrize("recorded", [False, True])
def test_no_elements(library: Library, recorded: bool) -> None:
    tct = library.tct
    empty, rows, columns = (
        library.tensor(np.zeros(shape), "float32", recorded) for shape in ((0,), (2, 0), (0, 3))
    )
    for got, expected in (
        (tct.mean(rows, 1), np.full(2, NAN)),
        (tct.mean(columns, 1), np.zeros(0)),
        (tct.mean(empty), np.array(NAN)),
        (tct.logsumexp(rows, 1), np.full(2, -INF)),
        (tct.logsumexp(columns, 0, True), np.full((1, 3), -INF)),
        (tct.logsumexp(columns, 1), np.zeros(0)),
        (tct.softmax(rows, 1), np.zeros((2, 0))),
        (tct.log_softmax(columns, 1), np.zeros((0, 3))),
        (tct.rms_norm(columns, 3), np.zeros((0, 3))),
        (tct.rms_norm(rows, 0), np.zeros((2, 0))),
        (tct.layer_norm(columns, 3), np.zeros((0, 3))),
        (tct.layer_norm(rows, 0), np.zeros((2, 0))),
    ):
        check(library, got, expected, "float32")


def test_numbers_without_axes(library: Library) -> None:
    tct, x = library.tct, library.tensor(2.0, "float32")
    for got, expected in (
        (tct.mean(x), 2.0),
        (tct.softmax(x, 0), 1.0),
        (tct.log_softmax(x, -1), 0.0),
        (tct.logsumexp(x, None), 2.0),
    ):
        check(library, got, np.array(expected), "float32")


def test_gradients_of_a_norm_are_slopes(library: Library) -> None:
    x, weight, given = drawn(3, 7), drawn(7), drawn(3, 7, shift=-1.0)
    tensor = library.tensor(x, "float64")
    _, scale = library.tct.norms.normalised(tensor, (-1,), None, 0.5, scales=True)
    tensors = (library.tensor(one, "float64") for one in (given, x, weight))
    found = library.tct.norm_operators.gradients(*tensors, scale, (True, True))
    step = 2.0**-16
    for one, gradient in zip((x, weight), found, strict=True):
        slopes = np.empty(one.shape)
        for place in np.ndindex(one.shape):
            ends = []
            for by in (step, -step):
                one[place] += by
                ends.append((given * _normed(x, 0.5) * weight).sum())
                one[place] -= by
            slopes[place] = (ends[0] - ends[1]) / (2 * step)
        # A difference of numbers of some 2^6 is known to 2^-46, and is divided by the step.
        np.testing.assert_allclose(library.numbers(gradient), slopes, rtol=0, atol=2**-28)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda tct, x: tct.layer_norm(x, 2), "must be the last axes of the input; it is"),
        (lambda tct, x: tct.rms_norm(x, 3, x), "weight must be of the same shape as"),
        (lambda tct, x: tct.layer_norm(x, 3, eps="1"), "eps must be a number, got '1'"),
        (lambda tct, x: tct.softmax(x, 2), "dim 2 is out of range for an array of 2 dimensions"),
        (lambda tct, x: tct.mean(x.to(tct.norms.torch.int32)), "mean takes float tensors, got"),
        (lambda tct, x: tct.mean(x, dtype=tct.norms.torch.int32), "mean has results of float"),
        (lambda tct, x: tct.softmax(x, 0, dtype=tct.norms.torch.int8), "softmax has results of fl"),
        (lambda tct, x: tct.logsumexp([1.0], 0), "input must be a tensor of torch, got list"),
    ],
)
def test_what_has_no_result(library: Library, call: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        call(library.tct, library.tensor(np.ones((2, 3)), "float32"))
