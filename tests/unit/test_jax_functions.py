"""`tcusim.jax`: NumPy's bits under jit, vmap and grad."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tcusim
from asked import asked
from tcusim.errors import InputError, TcusimError, UnknownName

jax: Any = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp  # noqa: E402 - jax is there
from jax import export  # noqa: E402

import tcusim.jax  # noqa: E402
from tcusim.jax import functions as tj  # noqa: E402

IDS = np.array([0, 0, 2, 2, 2])


def array(dtype: str, *shape: int) -> Any:
    return np.random.default_rng(4).standard_normal(shape).astype(dtype)


def same(got: Any, expected: Any) -> None:
    values = np.asarray(expected)
    assert np.asarray(got).dtype == values.dtype
    assert np.asarray(got).tobytes() == values.tobytes()


@contextmanager
def wide_types(there: bool = True) -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", there)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


INTEGERS = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
# Ours, and JAX's: it takes no segments of bool.
OF_INTEGERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (tj.sum, jnp.sum),
    "cumsum": (tj.cumsum, jnp.cumsum),
    "segment_sum": (
        lambda x: tj.segment_sum(x, IDS, 3, True),
        lambda x: jax.ops.segment_sum(x.astype(int) if x.dtype == bool else x, IDS, 3),
    ),
    "segment_cumsum": (
        lambda x: tj.segment_cumsum(x, np.zeros(5, int), True),
        jnp.cumsum,
    ),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers_have_jaxs_types_and_values(name: str, x64: bool) -> None:
    ours, theirs = OF_INTEGERS[name]
    drawn = np.random.default_rng(11).integers(0, 2**64, (len(INTEGERS), 5), np.uint64)
    with wide_types(x64):
        given = [
            jnp.asarray((row % 2 if dtype == "bool" else row).astype(dtype))
            for row, dtype in zip(drawn, INTEGERS, strict=True)
        ]
        # In one go: XLA compiles each function for long.
        got, expected = (jax.jit(lambda all_of, f=f: [*map(f, all_of)])(given)
                         for f in (ours, theirs))  # fmt: skip
        assert expected[0].dtype == (jnp.int64 if x64 else jnp.int32)
        for one, usual in zip(got, expected, strict=True):
            same(one, usual)
        if name == "sum":
            big = np.array([3_000_000_000], np.uint32)
            same(ours(big), theirs(big))
            same(tj.matmul(big[:, None], big[:1, None] // big[:1, None]), ours(big)[None, None])


def test_transformed() -> None:
    x = array("float32", 4, 5, 6)
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda a: tj.sum(a, 0),
        lambda a: tj.cumsum(a, -1),
        lambda a: tj.segment_sum(a, IDS, 3),
        lambda a: tj.matmul(a, a.T),
    )
    for call in calls:
        one_by_one = np.stack([call(one) for one in x])
        same(jax.vmap(call)(x), one_by_one)
        same(jax.jit(jax.vmap(call))(x), one_by_one)
    ids = np.stack([IDS, np.array([1, 1, 1, 1, 3]), IDS, IDS])
    together = jax.vmap(lambda a, i: tj.segment_sum(a, i, 4))(x, ids)
    same(together, np.stack([tj.segment_sum(a, i, 4) for a, i in zip(x, ids, strict=True)]))


def test_stacks_of_several_ranks_are_mapped() -> None:
    x, y = array("float16", 2, 5, 6), array("float16", 2, 2, 6, 3)
    together = jax.vmap(tj.matmul)(x, y)
    same(together, np.stack([tcusim.matmul(one, two) for one, two in zip(x, y, strict=True)]))


def test_segments_as_jax_has_them() -> None:
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    for ids in ([2, 0, 2, 1, 0, 2], [-1, 0, 300, 2, -5, 3], [7, 8, 9, 7, 8, 9]):
        for kind in (np.int32, np.int16, np.uint16):
            numbers = np.array(ids).astype(kind)
            for count in (1, 3, 10):
                same(tj.segment_sum(x, numbers, count), jax.ops.segment_sum(x, numbers, count))
                got, usual = (
                    jax.grad(lambda a, f=f, i=numbers, n=count: (f(a, i, n) ** 2).sum())(x)
                    for f in (tj.segment_sum, jax.ops.segment_sum)
                )
                same(got, usual)
    given = np.array([3, 0, 0, 1, 3, 1])
    usual = jax.ops.segment_sum(x, given)
    same(tj.segment_sum(x, given), usual)
    same(tj.segment_sum(x, given, None, False, False, 2, "drop"), usual)
    one = np.array([1], np.int8)
    same(tj.segment_sum(x[:1], one, 300), jax.ops.segment_sum(x[:1], one, 300))
    # Those of a segment keep their order, and so the bits.
    y, many = array("float16", 500), np.random.default_rng(1).integers(0, 3, 500)
    same(tj.segment_sum(y, many, 3), np.stack([tcusim.sum(y[many == one]) for one in range(3)]))
    with pytest.raises(InputError, match=r"mode must be None or 'drop', got 'clip'"):
        tj.segment_sum(x, given, mode="clip")
    for wrong, text in (
        (given[:3], r"segment_ids must be \d+ integers, one for each element .*; there are 3"),
        (given[None], "segment_ids must be a flat array of integers, got shape"),
        (given.astype(np.float32), "segment_ids must be a flat array .*, dtype float32"),
    ):
        with pytest.raises(InputError, match=text):
            tj.segment_sum(x, wrong, 3)


def test_what_is_refused() -> None:
    untyped: Any = tj
    with pytest.raises(InputError, match="axis 3 is out of range for an array of 1 dimensions"):
        tj.sum(np.ones(2), 3)
    with pytest.raises(InputError, match=r"axis \(0, -1\) names an axis twice"):
        tj.sum(np.ones(2), (0, -1))
    with pytest.raises(InputError, match="axis must be an integer, or several for a sum, got"):
        untyped.sum(np.ones(2), 0.5)
    with pytest.raises(InputError, match=r"axis must be one integer, got \(0,\)"):
        untyped.cumsum(np.ones(2), (0,))
    with pytest.raises(InputError, match="axis 0 is out of range for an array of 0 dimensions"):
        tj.cumsum(np.float32(1), 0)
    with pytest.raises(InputError, match=r"initial must have the shape \(2,\), or be broadcast to"):
        tj.cumsum(np.ones((2, 4)), 1, initial=np.ones(3))
    with pytest.raises(InputError, match="unknown bits 'all'"):
        untyped.sum(np.ones(2), options={"bits": "all"})
    with pytest.raises(InputError, match="a has 3 columns and x 2 elements, which must be equal"):
        tj.matvec(np.ones((2, 3)), np.ones(2))
    with pytest.raises(InputError, match=r"a must hold real numbers .*, got dtype complex64"):
        tj.sum(np.ones(2, np.complex64))
    assert tj.sum(np.arange(3), dtype=int).item() == 3
    with pytest.raises(InputError, match="a has 3 columns and b 2 rows, which must be equal"):
        tj.matmul(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(UnknownName, match="pascal"):
        tj.sum(np.ones(2), options={"arch": "pascal"})


def test_axes_and_counts_are_integers() -> None:
    wrong: Any
    x = array("float32", 2, 3)
    axes: Any
    for axes in ([0], [0, 1], [-1]):
        same(tj.sum(x, axes), tj.sum(x, tuple(axes)))
    number: Any = np.int64(3)
    same(tj.segment_sum(x, IDS[:2], number), tj.segment_sum(x, IDS[:2], 3))
    for wrong in (2.0, -1, True, "2", jnp.float32(2)):
        with pytest.raises(InputError, match=r"num_segments must be (an integer|at least 0), got"):
            tj.segment_sum(x, IDS[:2], wrong)
    with pytest.raises(InputError, match="num_segments must be given where segment_ids are traced"):
        jax.eval_shape(tj.segment_sum, x, IDS[:2])
    for wrong in ("foo", 3):
        with pytest.raises(InputError, match=f"mode must be None or 'drop', got {wrong!r}"):
            tj.segment_sum(x, IDS[:2], 3, mode=wrong)
    for wrong in ("0", {}, [0.5], jnp.float32(0), True, (0, True)):
        with pytest.raises(InputError, match="axis must be an integer, or several for a sum, got"):
            tj.sum(x, wrong)
    wrong = "no"
    with pytest.raises(InputError, match="keepdims must be True or False, got 'no'"):
        tj.sum(x, keepdims=wrong)


@pytest.mark.parametrize("call", [tj.sum, tj.cumsum, lambda x: tj.matmul(x, x)])
def test_keys_are_no_numbers(call: Callable[[Any], Any]) -> None:
    for key in (jax.random.key(0), jax.random.split(jax.random.key(0), (2, 2))):
        if key.ndim or call in (tj.sum, tj.cumsum):
            with pytest.raises(InputError, match=r"a must hold real .*, got dtype key<fry>"):
                call(key)


FACTORS = ("float16", "bfloat16", "float32", "int8", "int32", "uint32", "bool")


@pytest.mark.parametrize("function", [tj.matmul, tj.matvec])
def test_factors_are_refused_while_they_are_traced(function: Callable[..., Any]) -> None:
    rank = 2 if function is tj.matmul else 1

    def traced(a: str, b: str) -> Any:
        left = jax.ShapeDtypeStruct((2, 4), jnp.dtype(a))
        right = jax.ShapeDtypeStruct((4, 4)[:rank], jnp.dtype(b))
        return jax.eval_shape(function, left, right)

    for a in FACTORS:
        for b in FACTORS:
            if a == b or "float" not in a + b:
                assert traced(a, b).shape[0] == 2
                continue
            with pytest.raises(
                InputError, match=f"one float type, or of integers; got {a} and {b}"
            ):
                traced(a, b)
    left, right = np.ones((2, 5, 4), np.float16), np.ones((3, 4, 4)[: rank + 1], np.float16)
    with pytest.raises(InputError, match="the axes before the matrices cannot be broadcast"):
        jax.eval_shape(function, left, right)


def test_what_precedes_is_of_the_type_of_the_sums() -> None:
    one: Any
    dtype: Any
    for dtype in ("int32", "uint32", "int8", "bool"):
        x = np.ones(4, dtype)
        for wrong in (1.5, np.float32(1), jnp.float32(1)):
            with pytest.raises(
                InputError, match=r"initial is of float\d+, but the result of u?int"
            ):
                jax.eval_shape(lambda x, one=wrong: tj.cumsum(x, initial=one), x)
        assert tj.cumsum(x, dtype="float32", initial=1.5).tolist() == [2.5, 3.5, 4.5, 5.5]
    with pytest.raises(
        InputError, match=r"initial must hold real numbers .*, got dtype complex128"
    ):
        tj.cumsum(np.ones(4, np.float32), initial=1j)
    for dtype, fitting in (("uint32", (3_000_000_000, np.array(200, np.uint8))), ("int8", (-7,))):
        x = np.arange(4).astype(dtype)
        for one in fitting:
            same(tj.cumsum(x, initial=one), tcusim.cumsum(x, dtype=dtype, initial=one))
        for one in (-300, 2**63, 2**2000, np.uint64(2**40 + 5), np.array([2**40]), jnp.int32(-300)):
            with pytest.raises(InputError, match=f"the type of the result, {dtype}, integers from"):
                tj.cumsum(x, initial=one)
    for kind, beyond in (("float16", 1e39), ("float32", np.float64(-1e39)), ("float32", 2**2000)):
        with pytest.raises(InputError, match=r"initial .* beyond the range of float32"):
            tj.cumsum(np.ones(4, kind), initial=beyond)
    with wide_types():
        before = 1 + 2**-24
        for given, dtype in (("float32", None), ("float16", "float32"), ("int32", "float32")):
            x = np.array([2**-25, 2**-25, 1]).astype(given)
            for one in (before, np.float64(before), jnp.float64(before)):
                got = tj.cumsum(x, dtype=dtype, initial=one, options={"bits": "exact"})
                same(got, tcusim.cumsum(x, dtype=dtype, initial=before, options={"bits": "exact"}))


def test_axes_are_those_of_jax() -> None:
    x = array("float32", 2, 3, 4)
    for axis in (None, 0, -1, (0, 2), (-1, 1), (0, 1, 2), ()):
        for keepdims in (False, True):
            got = tj.sum(x, axis, keepdims=keepdims)
            np.testing.assert_allclose(got, jnp.sum(x, axis, keepdims=keepdims), rtol=1e-5)
            if axis != ():
                same(got, tcusim.sum(x, axis=axis, keepdims=keepdims))
    same(tj.cumsum(x), tcusim.cumsum(x))
    assert tj.cumsum(x).shape == jnp.cumsum(x).shape
    assert tj.sum(np.float32(2)) == 2
    assert tj.cumsum(np.float32(2)).tolist() == [2]


def test_exact_sums() -> None:
    x = array("float32", 5, 30) * np.float32(1e6)
    same(tj.sum(x, 1, options={"bits": "exact"}), tcusim.sum(x, axis=1, options={"bits": "exact"}))
    same(
        tj.cumsum(x, 1, options={"bits": "exact"}),
        tcusim.cumsum(x, axis=1, options={"bits": "exact"}),
    )
    same(jax.jit(jax.vmap(lambda x: tj.sum(x, options={"bits": "exact"})))(x),
         tcusim.sum(x, axis=1, options={"bits": "exact"}))  # fmt: skip
    assert (
        jax.grad(lambda x: tj.cumsum(x, options={"bits": "exact"}).sum())(x[0])
        == np.arange(30, 0, -1)
    ).all()


def test_scans_of_segments() -> None:
    x = array("float32", 7, 2)
    for ids in ([0, 0, 2, 2, 2, 5, 5], [3, -1, 3, 0, -1, 3, 900], [1] * 7):
        numbers, expected = np.array(ids), np.empty_like(x)
        for one in set(ids):
            expected[numbers == one] = tcusim.cumsum(x[numbers == one], axis=0, reverse=True)
        same(tj.segment_cumsum(x, numbers, reverse=True), expected)
        if ids == sorted(ids):
            same(tj.segment_cumsum(x, numbers, True, reverse=True), expected)
    assert tj.segment_cumsum(x[:0], numbers[:0]).shape == (0, 2)
    many = np.stack([[0, 0, 1, 1, 2, 2, 2], [1, 0, 1, 0, 1, 0, 1]])
    each = jax.vmap(lambda i: tj.segment_cumsum(x, i))(many)
    same(each, np.stack([tj.segment_cumsum(x, i) for i in many]))


X, Y = array("float32", 3, 8), array("float32", 8, 2)
DERIVED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sum": (lambda a: tj.sum(a, 1), lambda a: a.sum(1)),
    "sum of all": (tj.sum, jnp.sum),
    "cumsum": (
        lambda a: tj.cumsum(a, 1, reverse=True, exclusive=True),
        lambda a: a.sum(1, keepdims=True) - jnp.cumsum(a, 1),
    ),
    "initial": (
        lambda a: tj.cumsum(a, 1, initial=a[:, 0] ** 2),
        lambda a: jnp.cumsum(a, 1) + a[:, :1] ** 2,
    ),
    "segment_sum": (
        lambda a: tj.segment_sum(a, np.array([1, 0, 1]), 2),
        lambda a: jax.ops.segment_sum(a, np.array([1, 0, 1]), 2),
    ),
    "segment_cumsum": (
        lambda a: tj.segment_cumsum(a, np.array([1, 0, 1])),
        lambda a: jnp.stack([a[0], a[1], a[0] + a[2]]),
    ),
    "matmul": (lambda a: tj.matmul(a, a.T), lambda a: a @ a.T),
    "matmul of stacks": (
        lambda a: tj.matmul(jnp.stack([a, 2 * a])[:, None], jnp.stack([Y, 3 * Y])[None]),
        lambda a: jnp.stack([a, 2 * a])[:, None] @ jnp.stack([Y, 3 * Y])[None],
    ),
    "matvec": (lambda a: tj.matvec(a, a[0]), lambda a: a @ a[0]),
}


@pytest.mark.parametrize("name", DERIVED)
def test_derivatives_of_every_order_and_mode(name: str) -> None:
    ours, theirs = DERIVED[name]

    def energy(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda a: (call(a) ** 2).sum()

    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-3)
    close(jax.jacfwd(ours)(X), jax.jacfwd(theirs)(X))
    close(jax.jacrev(ours)(X), jax.jacfwd(theirs)(X))
    few = jax.vmap(lambda t: jax.jvp(jax.grad(energy(ours)), (X,), (t,))[1])
    usual = jax.vmap(lambda t: jax.jvp(jax.grad(energy(theirs)), (X,), (t,))[1])
    directions = np.stack([X, X[::-1], np.ones_like(X)])
    close(few(directions), usual(directions))
    if name == "cumsum":
        close(jax.hessian(energy(ours))(X), jax.hessian(energy(theirs))(X), atol=1e-2)
    value, moved = jax.jvp(jax.jit(ours), (X,), (np.ones_like(X),))
    same(value, ours(X))
    close(moved, jax.jvp(theirs, (X,), (np.ones_like(X),))[1])


TYPES = [
    *("float16", "bfloat16", "float32", "bool", "int8", "uint8", "int16", "int32", "uint32"),
    *("complex64", "float8_e4m3fn", "float8_e5m2", "int4", "uint64", "int64", "float64"),
]
OF_TYPES: dict[str, Callable[..., Any]] = {
    "sum": lambda x, **more: tj.sum(x, 1, **asked(**more)),
    "exact sum": lambda x, **more: tj.sum(x, 1, **asked(bits="exact", **more)),
    "cumsum": lambda x, **more: tj.cumsum(x, 1, **asked(**more)),
    "initial": lambda x, **more: tj.cumsum(x, 1, initial=1, **asked(**more)),
    "segment_sum": lambda x, **more: tj.segment_sum(x, np.array([0, 1]), 2, **asked(**more)),
    "segment_cumsum": lambda x, **more: tj.segment_cumsum(x, np.array([0, 1]), **asked(**more)),
    "matmul": lambda x, **more: tj.matmul(x, x.T, **asked(**more)),
    "matvec": lambda x, **more: tj.matvec(x, x[0], **asked(**more)),
}


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.sampled_from(sorted(OF_TYPES)),
    st.sampled_from(TYPES),
    st.sampled_from([None, *TYPES]),
    st.sampled_from([None, "volta", "ampere"]),
)
@pytest.mark.filterwarnings("ignore:.*requested .* is not available")
def test_types_are_refused_while_they_are_traced(
    name: str, given: str, result: str | None, arch: str | None
) -> None:
    """No callback reports an error: XLA makes a traceback of it."""
    x = jnp.array([[1, 2, 3], [0, 1, 1]]).astype(given)
    call = partial(OF_TYPES[name], dtype=result, arch=arch)
    refused = None
    try:
        shape = jax.eval_shape(call, x)
    except TcusimError as error:
        refused = str(error)
    if refused is not None:
        assert re.search(r"dtype|has no|float16|bf16|exact", refused)
        return
    got = jax.jit(call)(x)
    assert (got.shape, got.dtype) == (shape.shape, shape.dtype)


def test_an_unknown_type_has_a_sentence() -> None:
    for wrong in ("f99", complex, bool, "int4"):
        with pytest.raises(InputError, match=r"^dtype"):
            tj.sum(np.ones(2, np.float32), dtype=wrong)


def test_options_are_part_of_what_is_traced() -> None:
    x = array("float16", 3, 2000)
    wide: Any = {"axis": 1, "dtype": np.float32}
    exact, usual, volta = (
        tcusim.sum(x, **wide, options=one) for one in ({"bits": "exact"}, None, {"arch": "volta"})
    )
    for one, expected in (({"bits": "exact"}, exact), (tcusim.Options(arch="volta"), volta)):
        same(jax.jit(partial(tj.sum, **wide, options=one))(x), expected)
        with tcusim.options(one):
            same(tj.sum(x, **wide), expected)
            traced = jax.jit(lambda x: tj.sum(x, **wide))
            same(traced(x), expected)
        # It was traced within the context, and keeps its options.
        same(traced(x), expected)
        same(jax.jit(lambda x: tj.sum(x, **wide))(x), usual)
    with pytest.raises(InputError, match=r"tcusim\.jax\.matmul takes no option 'bits'"):
        tj.matmul(x, x.T, options={"bits": "exact"})
    with pytest.raises(UnknownName, match=r"unknown option 'archs'. Did you mean 'arch'\?"):
        tj.sum(x, options={"archs": "volta"})


def test_programs_are_exported_for_both_platforms() -> None:
    """A call is a text in the program, not a callback of this process."""
    leave = [export.DisabledSafetyCheck.custom_call(name) for name in ("tcusim", "tcusim_host")]
    program = export.export(jax.jit(tj.sum), platforms=("cpu", "cuda"), disabled_checks=leave)(
        jnp.ones(7)
    )
    assert program.platforms == ("cpu", "cuda")
    assert float(program.call(jnp.ones(7))) == 7
