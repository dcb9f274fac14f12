"""Subnormals are computed in XLA's threads, where its CPU takes them for zero."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import tcusim

jax: Any = pytest.importorskip("jax", reason="jax is not installed")

import tcusim.jax  # noqa: E402 - jax is there
from tcusim.errors import Unsupported  # noqa: E402
from tcusim.jax import environment  # noqa: E402
from tcusim.jax.environment import usual_arithmetic  # noqa: E402

TINY = np.float32(1e-40)


def within_xla(function: Any) -> list[Any]:
    """Return the result of a function in XLA's thread."""
    seen: list[Any] = []

    def call(x: Any) -> Any:
        seen.append(function())
        return x

    x = np.zeros(1, np.float32)
    made = jax.pure_callback(call, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
    jax.block_until_ready(made)
    return seen


def test_the_environment_comes_and_goes() -> None:
    def look() -> list[bool]:
        seen = [bool(TINY * np.float32(1))]
        with usual_arithmetic():
            seen.append(bool(TINY * np.float32(1)))
        return [*seen, bool(TINY * np.float32(1))]

    ((before, within, after),) = within_xla(look)
    assert within
    assert before == after
    assert look() == [True] * 3


def test_sums_of_subnormals() -> None:
    x = np.full((3, 64), TINY)
    expected = tcusim.sum(x, axis=1)
    assert expected.all()
    for got in (tcusim.jax.sum(x, 1), jax.jit(lambda a: tcusim.jax.sum(a, 1))(x)):
        assert np.asarray(got).tobytes() == expected.tobytes()


@pytest.mark.parametrize("lacking", ["the library", "its effect"])
def test_where_they_cannot_be_had(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    def look() -> str:
        with pytest.raises(Unsupported) as found, usual_arithmetic():
            pass
        return str(found.value)

    monkeypatch.setattr(environment, "_keeps_subnormals", lambda: False)
    if lacking == "the library":
        monkeypatch.setattr(environment, "_LIBRARY", None)
    assert look().startswith("XLA calls this in a thread without subnormals")


def test_no_library_of_mathematics(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: Any) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert environment._library() is None
