"""Index expressions: arithmetic, equality and text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcusim.program.grammar import BLOCK, ROW, WARP, Index

NAMES = ("block", "warp", "i")


EXPRESSIONS = st.builds(
    lambda factors, const: sum(
        (Index.symbol(name) * factor for name, factor in factors.items()), Index.of(const)
    ),
    st.dictionaries(st.sampled_from(NAMES), st.integers(-9, 9)),
    st.integers(-99, 99),
)


ENVIRONMENTS = st.fixed_dictionaries({name: st.integers(0, 50) for name in NAMES})


examples = settings(max_examples=100)


@examples
@given(EXPRESSIONS, EXPRESSIONS, st.integers(-9, 9), ENVIRONMENTS)
def test_expressions_compute_as_integers_do(
    x: Index, y: Index, factor: int, env: dict[str, int]
) -> None:
    a, b = x.evaluate(env), y.evaluate(env)
    assert (x + y).evaluate(env) == a + b
    assert (x - y).evaluate(env) == a - b
    assert (x * factor).evaluate(env) == (factor * x).evaluate(env) == a * factor
    assert (-x).evaluate(env) == -a
    assert (factor + x).evaluate(env) == factor + a
    assert (factor - x).evaluate(env) == factor - a


@examples
@given(EXPRESSIONS, EXPRESSIONS, ENVIRONMENTS)
def test_equal_expressions_are_equal_objects(x: Index, y: Index, env: dict[str, int]) -> None:
    assert x + y == y + x
    assert hash(x + y) == hash(y + x)
    assert x - x == Index()
    assert (x + y) - y == x


@examples
@given(EXPRESSIONS, ENVIRONMENTS)
def test_the_text_is_python_and_c(x: Index, env: dict[str, int]) -> None:
    assert eval(str(x), {}, dict(env)) == x.evaluate(env)


@examples
@given(EXPRESSIONS, EXPRESSIONS, ENVIRONMENTS)
def test_substitution_is_evaluation_of_a_part(x: Index, y: Index, env: dict[str, int]) -> None:
    replaced = x.substitute({"i": y})
    assert replaced.evaluate(env) == x.evaluate({**env, "i": int(y.evaluate(env))})
    assert x.substitute({}) == x
    assert x.substitute({"block": 2, "warp": 3, "i": 5}).symbols == frozenset()


def test_expressions_of_arrays_are_arrays() -> None:
    index = BLOCK * 256 + WARP * 16 + 3
    blocks = np.arange(4)
    np.testing.assert_array_equal(
        index.evaluate({"block": blocks, "warp": blocks % 2}), blocks * 256 + blocks % 2 * 16 + 3
    )


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (Index(), "0"),
        (Index.of(-3), "-3"),
        (BLOCK, "block"),
        (BLOCK * 256 + Index.symbol("i") + 3, "256*block + i + 3"),
        (BLOCK * 2 - WARP * 4 - 1, "2*block - 4*warp - 1"),
    ],
)
def test_expressions_as_text(index: Index, text: str) -> None:
    assert str(index) == text


def test_coefficients_and_symbols() -> None:
    index = BLOCK * 256 + ROW - 7
    assert (index.coefficient("block"), index.coefficient("col")) == (256, 0)
    assert index.symbols == {"block", "row"}
    assert (BLOCK * 0).terms == ()
    assert Index.of(index) is index
