"""tcusim.errors: errors that worker processes pass to the process that started them."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim import errors
from tcusim_cuda import emit
from tcusim_cuda.compile import CompileError

PLAIN = [
    getattr(errors, name) for name in errors.__all__ if name not in ("VerifyError", "unknown_name")
]


def verify_half_a_program() -> None:
    """Verify a program whose first step is missing."""
    program = tcusim.build("scan_t")
    tcusim.verify(dataclasses.replace(program, steps=program.steps[1:]))


@pytest.mark.parametrize("kind", PLAIN)
def test_a_sentence_is_pickled(kind: type[errors.TcusimError]) -> None:
    copy = pickle.loads(pickle.dumps(kind("what was wrong")))
    assert type(copy) is kind
    assert str(copy) == "what was wrong"


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
