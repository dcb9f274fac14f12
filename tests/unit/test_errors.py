"""tcusim.errors: errors that worker processes pass to the process that started them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim import errors
from tcusim.algorithms.registry import algorithms
from tcusim.errors import Given, InputError
from tcusim_cuda import emit
from tcusim_cuda.compile import CompileError

PLAIN = [
    getattr(errors, name)
    for name in errors.__all__
    if name not in ("Given", "VerifyError", "unknown_name")
]


def verify_half_a_program() -> None:
    """Verify a program without its first step."""
    program = tcusim.build("scan_t")
    tcusim.verify(dataclasses.replace(program, steps=program.steps[1:]))


@pytest.mark.parametrize("kind", PLAIN)
def test_a_sentence_is_pickled(kind: type[errors.TcusimError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what was wrong")))
    assert type(copy) is kind
    assert str(copy) == "what was wrong"


def test_the_parameters_of_a_message() -> None:
    pieces = (
        "with ",
        Given("acc", "f16"),
        " take ",
        Given("masked", True),
        ", or leave ",
        Given("k"),
    )
    error = InputError(*pieces)
    assert str(error) == "with acc 'f16' take masked=True, or leave k"
    assert repr(error) == f"InputError({str(error)!r})"
    assert (error.parameter, error.value) == ("acc", "f16")
    assert (
        error.spelled(lambda given: given.parameter.upper()) == "with ACC take MASKED, or leave K"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.parameter, copy.pieces) == (str(error), "acc", pieces)
    other = InputError("none is named")
    assert (other.parameter, other.value) == ("", None)
    with pytest.raises(InputError) as caught:
        tcusim.plan("sum", length=0)
    assert caught.value.parameter == "length"


def test_a_verify_error_is_pickled() -> None:
    error = errors.VerifyError("barriers", "scan_t", "7.2", "sync block", "comes too late")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.VerifyError
    assert str(copy) == str(error)
    assert str(error) == "scan_t, step 7.2: `sync block` comes too late  [check: barriers]"
    parts = (copy.check, copy.program, copy.path, copy.step)
    assert parts == ("barriers", "scan_t", "7.2", "sync block")


def test_an_error_of_a_backend_is_pickled() -> None:
    kernel = emit(tcusim.build("scan_t"))
    error = CompileError(kernel, 90, "NVRTC", "line 1: no")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.log) == (CompileError, str(error), "line 1: no")
    assert copy.kernel == kernel


def test_a_verify_error_crosses_processes() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        error = pool.submit(verify_half_a_program).exception(timeout=60)
    assert isinstance(error, errors.VerifyError)
    with pytest.raises(errors.VerifyError) as here:
        verify_half_a_program()
    assert str(error) == str(here.value)


def test_an_unknown_name_of_many() -> None:
    error = errors.unknown_name("GPU", "h20O", ["h200", "hopper", "ada"], listed=["hopper", "ada"])
    assert str(error) == "unknown GPU 'h20O'. Did you mean 'h200'? Valid: ada, hopper."


@pytest.mark.parametrize("name", ["mma", "mma.snc"])
def test_the_name_that_begins_with_a_given_one_is_nearest(name: str) -> None:
    """By its letters alone "mma" is more like "wmma"."""
    with pytest.raises(
        errors.UnknownName, match=f"^unknown family '{name}'. Did you mean 'mma.sync'"
    ):
        tcusim.layout("16x8x16", "a", family=name)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda a: tcusim.mma(a, a, acc=a), "acc must be a name, got array"),
        (lambda a: tcusim.mma(a, a, ab=a), "ab must be a name, got array"),
        (lambda a: tcusim.explain(a[0], a[0], acc=a), "acc must be a name, got array"),
        (
            lambda a: list(tcusim.interpret(tcusim.build("reduction_k"), {"in": a}, check=a)),
            "check must be True or False, got array",
        ),
        (
            lambda a: tcusim.trace(tcusim.build("reduction_k"), {"in": a}, arch=a),
            "arch must be a name, got array",
        ),
        (lambda a: tcusim.predict_matmul(a, a, ab="s8", acc="s32"), "products of s8 are exact in "),
        (lambda a: tcusim.explain_matmul(a, a, a, ab="s8", acc="s32"), "products of s8 are exact"),
    ],
)
def test_an_array_in_the_place_of_a_word_is_refused(call: Any, text: str) -> None:
    with pytest.raises(tcusim.InputError, match=text):
        call(np.ones((16, 16), np.float16))


ONES = np.ones(4, np.float16)
IDS = np.zeros(4, np.int32)
# A call of each public function and method that takes flags, but for them.
FLAGGED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "accuracy_of": (("h200",), {}),
    "batch_invariant": (("cpu",), {}),
    "build": (("reduction_k",), {}),
    "carries": ((ONES,), {}),
    "cost": ((tcusim.build("reduction_k"),), {"length": 256}),
    "cumsum": ((ONES, 0), {}),
    "explain": ((ONES, ONES), {}),
    "explore": ((), {"algorithms": ["reduction_k"]}),
    "gemm_orders": ((4,), {}),
    "interpret": ((tcusim.build("reduction_k"), {"in": np.ones(256, np.float16)}), {}),
    "logsumexp": ((ONES, 0), {}),
    "mean": ((ONES,), {}),
    "partials": ((ONES,), {}),
    "Segments": (([0, 4],), {}),
    "segment_cumsum": ((ONES, IDS), {}),
    "segment_sum": ((ONES, IDS), {}),
    "segmented_cumsum": ((ONES, 2), {}),
    "plan": (("cumsum",), {"length": 4}),
    "probe_unit": ((lambda a, b, c: a @ b + c,), {}),
    "plan_product": (("matvec",), {"rows": 1, "inner": 1}),
    "sum": ((ONES,), {}),
    "validate": (("h200",), {"algorithms": ["reduction_k"]}),
    "validate_shape": (("16x16x16",), {"algorithms": ["reduction_k"]}),
}
METHODS = [
    (tcusim.explain(ONES, ONES).to_text, ()),
    (tcusim.trace(tcusim.build("reduction_k"), {"in": np.ones(256, np.float16)}).find, ("mma",)),
]


def flags_of(function: Any) -> list[str]:
    """Return the parameters that are True or False."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if str(parameter.annotation).split(" ")[0] == "bool" or type(parameter.default) is bool
    ]


def require_flags_checked(function: Any, args: tuple[Any, ...], **more: Any) -> None:
    """Assert that a function rejects all but True and False, for each of its flags."""
    assert flags_of(function)
    for flag in flags_of(function):
        for value in (np.zeros((2, 2)), "no", np.array(True), 0.0):
            with pytest.raises(InputError, match=f"^{flag} must be True or False, got "):
                begun(function(*args, **more, **{flag: value}))


def begun(found: Any) -> None:
    """Enter a context, or start a generator: neither checks anything before."""
    found.__enter__() if hasattr(found, "__enter__") else next(found)


@pytest.mark.parametrize("library", ["", "torch", "jax", "dask"])
def test_every_flag_of_a_public_function_is_checked(library: str) -> None:
    """An array has no one truth value, and a string such as "no" has the wrong one."""
    if library:
        pytest.importorskip(f"{library}.array" if library == "dask" else library)
    module = importlib.import_module(f"tcusim.{library}".rstrip("."))
    functions = {name: getattr(module, name) for name in module.__all__}
    for name, function in functions.items():
        is_own = inspect.isfunction(function) or name == "Segments"
        if not (is_own and flags_of(function)):
            continue
        assert name in FLAGGED, f"{library} {name}: add a call of it"
        args, more = FLAGGED[name]
        taken = inspect.signature(function).parameters
        given = tuple(in_library(library, one) for one in args)
        rest = {key: in_library(library, one) for key, one in more.items() if key in taken}
        require_flags_checked(function, given, **rest)


def in_library(library: str, value: Any) -> Any:
    """Return an array as that of a library; any other value as it is."""
    if not isinstance(value, np.ndarray) or not library:
        return value
    if library == "dask":
        return importlib.import_module("dask.array").from_array(value)
    module = importlib.import_module("torch" if library == "torch" else "jax.numpy")
    return module.asarray(value)


@pytest.mark.parametrize(("method", "args"), METHODS)
def test_every_flag_of_a_method_is_checked(method: Any, args: tuple[Any, ...]) -> None:
    require_flags_checked(method, args)


def test_every_flag_of_an_algorithm_is_checked() -> None:
    found = [
        (row.name, option.name)
        for row in algorithms()
        for option in row.options.values()
        if option.type is bool
    ]
    assert found
    for name, flag in found:
        with pytest.raises(InputError, match=f"^{flag} must be True or False, got 'no'"):
            tcusim.build(name, **dict[str, Any]({flag: "no"}))
