"""Two traces beside each other: their differences and their names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError
from tcusim.stepper.comparison import Comparison
from tcusim.stepper.trace import Trace, trace


@pytest.fixture(name="volta", scope="module")
def trace_on_volta() -> Trace:
    return traced("volta")


def traced(arch: str) -> Trace:
    rng = np.random.default_rng(1)
    x = rng.normal(size=256) * 2.0 ** rng.integers(-9, 4, 256)
    return trace(tcusim.build("reduction_16"), {"in": x.astype(np.float16)}, arch=arch)


def test_it_has_every_difference(volta: Trace) -> None:
    both = volta.compare(traced("hopper"))
    assert isinstance(both, Comparison)
    first = volta.first_difference(traced("hopper"))
    assert first is not None
    assert both.differences[0].what == first.what
    steps = {one.frame.number for one in both.differences}
    assert str(both).startswith(f"NVIDIA Volta and NVIDIA Hopper differ at {len(steps)} of ")
    assert repr(both) == "<Comparison of reduction_16: NVIDIA Volta and NVIDIA Hopper>"


def test_equal_traces(volta: Trace) -> None:
    both = volta.compare(volta)
    assert both.differences == ()
    assert both.titles == ("NVIDIA Volta, first", "NVIDIA Volta, second")
    assert "no bit differs" in str(both)


def test_who_ran_it_tells_traces_apart(volta: Trace) -> None:
    other = replace(volta, about=replace(volta.about, place="cupy on NVIDIA V100"))
    assert volta.compare(other).titles == ("the simulator", "cupy on NVIDIA V100")


def test_a_notebook_shows_the_page(volta: Trace) -> None:
    both = volta.compare(traced("hopper"))
    assert both._repr_html_().startswith("<iframe ")
    assert "default-src" in both.to_html(cells=0)
    with pytest.raises(InputError, match="cells must be an integer"):
        both.to_html(cells=-1)
