"""tcusim.errors: what worker processes hand on to the process that started them."""

from __future__ import annotations

import dataclasses
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

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
