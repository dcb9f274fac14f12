"""One product on a backend is one mma, and probing it finds the unit that the backend simulates."""

from __future__ import annotations

import numpy as np
import pytest

import tcusim
from tcusim.errors import BackendUnavailable, Unsupported
from tcusim.judge.correctness.one_mma import one_mma
from tcusim.machine import rule_for
from tcusim.machine.probing import probe_rule


def test_it_is_one_mma() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((16, 16)).astype(np.float16) for _ in "ab")
    c = rng.standard_normal((16, 16)).astype(np.float32)
    for arch in ("volta", "hopper"):
        got = one_mma("numpy", arch=arch)(a, b, c)
        np.testing.assert_array_equal(got, tcusim.mma(a, b, c, arch=arch))


def test_a_backend_can_be_probed() -> None:
    mma = one_mma("numpy", "4x4x8", acc="f16", arch="ampere")
    assert probe_rule(mma, "4x4x8", "f16", "f16").how == rule_for("ampere", "f16", "f16").how


def test_what_cannot_be_is_told() -> None:
    with pytest.raises((BackendUnavailable, tcusim.UnknownName), match="nowhere"):
        one_mma("nowhere")
    with pytest.raises(Unsupported, match="16x16x8"):
        one_mma("numpy", "16x16x8")
