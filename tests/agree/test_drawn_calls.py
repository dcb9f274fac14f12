"""Calls drawn from the whole public surface: right results, or an error with a sentence.

`TCUSIM_DRAWN_CASES=20000 pytest tests/agree/test_drawn_calls.py` draws as many calls of each
function, others in each run; an ordinary run takes a few of each, the same ones each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drawn import (
    OTHERS,
    PER_SEGMENT,
    PRODUCTS,
    SEGMENT_CALLS,
    check,
    check_strategies,
    other_calls,
    per_segment_calls,
    plans_of,
    product_calls,
    segment_calls,
)
from drawn_commands import COMMANDS, check_command, command_lines, folder
from drawn_frameworks import CALLS, check_twin, twins

CASES = int(os.environ.get("TCUSIM_DRAWN_CASES", "0"))


def cases(usual: int) -> settings:
    """Return so many cases, or as many as are asked for."""
    return settings(
        max_examples=CASES or usual,
        deadline=None,
        derandomize=not CASES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("name", SEGMENT_CALLS)
@cases(40)
@given(data=st.data())
def test_sums_and_scans(name: str, data: st.DataObject) -> None:
    check(data.draw(segment_calls(name)))


@pytest.mark.parametrize("name", ["sum", "cumsum", "segmented_sum", "segmented_cumsum"])
@cases(3)
@given(data=st.data())
def test_strategies(name: str, data: st.DataObject) -> None:
    check_strategies(*data.draw(plans_of(name)))


@pytest.mark.parametrize("name", PER_SEGMENT)
@cases(20)
@given(data=st.data())
def test_results_of_each_segment(name: str, data: st.DataObject) -> None:
    check(data.draw(per_segment_calls(name)))


@pytest.mark.parametrize("name", PRODUCTS)
@cases(30)
@given(data=st.data())
def test_products(name: str, data: st.DataObject) -> None:
    check(data.draw(product_calls(name)))


@pytest.mark.parametrize("name", OTHERS)
@cases(10)
@given(data=st.data())
def test_every_other_function(name: str, data: st.DataObject) -> None:
    check(data.draw(other_calls(name)))


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in a folder with files to read."""
    before = Path.cwd()
    os.chdir(folder(tmp_path_factory.mktemp("files")))
    yield
    os.chdir(before)


@pytest.mark.parametrize("name", COMMANDS)
@cases(8)
@given(data=st.data())
def test_command_lines(there: None, name: str, data: st.DataObject) -> None:
    check_command(data.draw(command_lines(name)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("library", "name"), [(one, name) for one in CALLS for name in CALLS[one]])
@cases(12)
@given(data=st.data())
def test_libraries(library: str, name: str, data: st.DataObject) -> None:
    pytest.importorskip(library)
    check_twin(data.draw(twins(library, name)))
