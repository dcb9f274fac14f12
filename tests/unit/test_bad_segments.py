"""Drawn segments, mostly bad: NumPy, arrays in GPU memory, torch, JAX and dask say the same."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcusim
from bad_segments import drawn, expected, outcome
from device_standin import CheckingStandIn, OnGpu, StandIn


def _kinds_of_torch() -> dict[str, Callable[..., Any]]:
    import torch

    import tcusim.torch as tct
    from tcusim.torch import segments as of_torch

    def by(more: dict[str, Any], convert: Callable[[Any], Any]) -> tcusim.Segments:
        given = {name: convert(one) for name, one in more.items() if hasattr(one, "dtype")}
        return tcusim.Segments(**{**more, **given})

    def routed(x: Any, more: dict[str, Any]) -> Any:
        # Under a mode of torch's dispatcher operators take the place of functions.
        with tct.batch_invariant("cpu", strict=True):
            return tct.segment_sum(torch.tensor(x), by(more, torch.tensor))

    def mapped(x: Any, more: dict[str, Any]) -> Any:
        call = torch.vmap(lambda one: tct.segment_sum(one, by(more, torch.tensor)))
        return call(torch.tensor(x)[None])[0]

    def in_torch(x: Any, more: dict[str, Any]) -> Any:
        # As in GPU memory.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                of_torch,
                "_segment_offsets_kernel",
                lambda numbers, name, *rest: of_torch.offsets_in_torch(numbers, name, *rest),
            )
            return mapped(x, more)

    return {
        "lists": lambda x, more: tct.segment_sum(
            torch.tensor(x), by(more, lambda one: one.tolist())
        ),
        "arrays": lambda x, more: tct.segment_sum(torch.tensor(x), by(more, lambda one: one)),
        "tensors": lambda x, more: tct.segment_sum(torch.tensor(x), by(more, torch.tensor)),
        "operators": routed,
        "mapped": mapped,
        "in torch": in_torch,
    }


KINDS = ["lists", "arrays", "tensors", "operators", "mapped", "in torch"]


@pytest.mark.parametrize("kind", KINDS)
def test_torch(kind: str) -> None:
    pytest.importorskip("torch")
    call = _kinds_of_torch()[kind]
    refused = 0
    for length, more in drawn(KINDS.index(kind)):
        if kind in ("mapped", "in torch", "operators"):
            # Documented: calls that torch traces or maps do not look at it.
            more.pop("longest", None)
        if kind == "in torch" and "offsets" in more:
            continue
        if kind == "lists":
            # Lists have no type of their own.
            more = {
                k: np.asarray(v.tolist()) if hasattr(v, "dtype") else v for k, v in more.items()
            }
        wanted = expected(length, more)
        refused += isinstance(wanted, str)
        assert outcome(call, length, more) == wanted, (length, more)
    assert refused > 20


def test_dask() -> None:
    pytest.importorskip("dask")
    arrays, tcd = (importlib.import_module(name) for name in ("dask.array", "tcusim.dask"))
    for length, more in list(drawn(11))[:60]:
        wanted = expected(length, more)
        if length:
            found = outcome(
                lambda x, more=more: tcd.segmented_sum(
                    arrays.from_array(x, chunks=4), tcusim.Segments(**more)
                ),
                length,
            )
            assert found == wanted, (length, more)


def test_jax() -> None:
    """JAX has ids only, and leaves out elements of other segments."""
    pytest.importorskip("jax")
    tj = importlib.import_module("tcusim.jax")
    for length, more in drawn(12):
        if "ids" in more and "longest" not in more:
            count = more.setdefault("count", 3)
            found = outcome(tj.segment_sum, length, more["ids"], count, not more.get("sort", False))
            wanted = expected(length, more)
            if isinstance(found, str) or "flat" in wanted or "one for each" in wanted:
                names = found.replace("segment_ids", "ids").replace("num_segments", "count")
                # JAX has 32 bits.
                assert names == wanted.replace("t64", "t32"), (length, more)


@pytest.mark.parametrize("device", [StandIn, CheckingStandIn], indirect=True)
def test_arrays_in_gpu_memory(device: StandIn) -> None:
    for length, more in drawn(13):
        (name, numbers), *rest = more.items()
        if name == "lengths" or not length or numbers.ndim != 1 or numbers.dtype != np.int64:
            continue
        if not numbers.size or more.get("sort"):
            continue

        def call(x: Any, given: Any = (name, numbers), rest: Any = rest) -> Any:
            by: dict[str, Any] = {given[0]: OnGpu(given[1]), **dict(rest)}
            return tcusim.segmented_sum(OnGpu(x), tcusim.Segments(**by)).values

        assert outcome(call, length) == expected(length, more), (length, more)
