"""Calls drawn from the whole public surface: right results, or an error with a sentence.

`TCUSIM_DRAWN_CASES=2000 pytest -n 8 tests/agree/test_drawn_calls.py` draws as many calls of each
function, others in each run, in parts that workers share; an ordinary run takes a few of each, the
same ones each time. `TCUSIM_DRAWN_SEED` repeats a run. The session ends with the number of calls.
"""

from __future__ import annotations

import collections
import os
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

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
SEED = os.environ.get("TCUSIM_DRAWN_SEED") or str(time.time_ns())
# Cases of one test item: some seconds of the dearest calls.
PART = 200
PARTS = -(-CASES // PART)

# Commands of few different lines: hypothesis would spend minutes on the search for new ones.
FEW_LINES = {"list": 20}

Drawn = Callable[..., None]


@pytest.fixture(params=range(PARTS) if CASES else None)
def drawn(request: pytest.FixtureRequest) -> Drawn:
    """Return a function that checks so many cases of a strategy, or a part of those requested."""

    def drawn(
        usual: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], str], most: int = PART
    ) -> None:
        ends: collections.Counter[str] = collections.Counter()

        @settings(
            max_examples=min(most, CASES - PART * request.param) if CASES else usual,
            deadline=None,
            derandomize=not CASES,
            # Minutes of shrinking would be longer than the run.
            phases=[Phase.generate] if CASES else tuple(Phase),
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(strategy)
        def each(one: Any) -> None:
            assert len(pretty(one)) < 10_000
            ends[check(one)] += 1

        if CASES:
            seed(zlib.crc32(f"{SEED} {request.node.name}".encode()))(each)
        try:
            each()
        except Exception as error:
            error.add_note(f"TCUSIM_DRAWN_CASES={CASES} TCUSIM_DRAWN_SEED={SEED} repeats it.")
            raise
        finally:
            # A report takes this to the main process: see conftest.py.
            request.node.user_properties.append(("drawn calls", dict(ends)))

    return drawn


@pytest.mark.parametrize("name", SEGMENT_CALLS)
def test_sums_and_scans(drawn: Drawn, name: str) -> None:
    drawn(40, segment_calls(name), check)


@pytest.mark.parametrize("name", ["sum", "cumsum", "segmented_sum", "segmented_cumsum"])
def test_strategies(drawn: Drawn, name: str) -> None:
    drawn(3, plans_of(name), check_strategies)


@pytest.mark.parametrize("name", PER_SEGMENT)
def test_results_of_each_segment(drawn: Drawn, name: str) -> None:
    drawn(20, per_segment_calls(name), check)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(drawn: Drawn, name: str) -> None:
    drawn(30, product_calls(name), check)


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_function(drawn: Drawn, name: str) -> None:
    drawn(10, other_calls(name), check)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in a folder with files to read."""
    before = Path.cwd()
    os.chdir(folder(tmp_path_factory.mktemp("files")))
    yield
    os.chdir(before)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_lines(drawn: Drawn, there: None, name: str) -> None:
    drawn(8, command_lines(name), check_command, FEW_LINES.get(name, PART))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("library", "name"), [(one, name) for one in CALLS for name in CALLS[one]])
def test_libraries(drawn: Drawn, library: str, name: str) -> None:
    pytest.importorskip(library)
    drawn(12, twins(library, name), check_twin)
