"""Kinds of data: the assumptions of a model hold."""

from __future__ import annotations

import numpy as np
import pytest

from tcusim.judge.accuracy.families import FAMILIES, terms_of
from tcusim.machine.formats import FORMATS


@pytest.mark.parametrize("name", FAMILIES)
def test_terms_are_values_of_the_type_and_as_the_family_says(name: str) -> None:
    family = FAMILIES[name]
    terms = terms_of(family, np.random.default_rng(0), 4, 512, "f16")
    assert terms.shape == (4, 512)
    assert terms.dtype == np.float16
    assert family.one_sign == bool((terms >= 0).all())
    assert len(np.unique(np.abs(terms))) > 500
    for j in range(1, 10):
        sums = terms[:, : 2**j].astype(np.float64).sum(axis=1)
        assert family.returns == bool((sums == 0.0).all()), j


def test_a_length_may_be_any() -> None:
    for length in (1, 2, 3, 100):
        shape = terms_of(FAMILIES["cancelling"], np.random.default_rng(0), 2, length, "f16").shape
        assert shape == (2, length)


@pytest.mark.parametrize("ab", [name for name, one in FORMATS.items() if one.is_float])
def test_no_term_is_infinite(ab: str) -> None:
    for family in FAMILIES.values():
        terms = terms_of(family, np.random.default_rng(0), 64, 2**10, ab)
        assert np.isfinite(terms.astype(np.float64)).all(), family.name
