"""tcusim.judge.cost.models: the paper's count of cycles, and the (m, l)-TCU machine."""

from __future__ import annotations

import pytest

from tcusim.errors import InputError
from tcusim.judge.cost.models import TcuMachine, compare_with_shuffles
from tcusim.machine import unit_of


def test_the_papers_comparison_and_its_errata() -> None:
    """E19: 8 rounds of 5 steps of 4 + 4; 7 additions and one round. E20: 32 is a throughput."""
    found = compare_with_shuffles("v100")
    assert (found.printed_products, found.printed_shuffles) == (64, 256)
    assert found.products_issued == 64
    assert (found.shuffles_issued, found.shuffles_better) == (320, 68)
    # The V100's latencies are not known from a public source.
    assert found.products_waited is None


def test_by_latency_products_take_longer_than_they_are_counted() -> None:
    unit = unit_of("h200")
    found = compare_with_shuffles(unit)
    assert found.products_waited is not None
    assert found.products_issued is not None
    assert found.products_waited > found.products_issued


def test_an_instruction_takes_rows_times_side_and_its_latency() -> None:
    machine = TcuMachine(256, 10)
    assert machine.side == 16
    assert [machine.call(rows) for rows in (1, 16, 100)] == [266, 266, 1610]


@pytest.mark.parametrize("size", [16, 64, 1000])
def test_a_product_is_the_formula(size: int) -> None:
    """d^3 / s + (d / s)^2 l, where s divides d."""
    machine = TcuMachine(256, 10)
    if size % 16 == 0:
        assert machine.product(size) == size**3 / 16 + (size / 16) ** 2 * 10
    else:
        assert machine.product(size) == 63**2 * machine.call(size)


def test_sums_and_scans_by_levels() -> None:
    machine = TcuMachine(16, 100)
    # 64 numbers are 16 rows of 4, then 4, then 1 row (as long as 4).
    assert machine.reduction(64) == (16 * 4 + 100) + (4 * 4 + 100) + (4 * 4 + 100)
    assert machine.reduction(1) == 0
    assert machine.scan(4) == 116
    assert machine.scan(16) == (4 * 4 + 100) + 116 + 16


@pytest.mark.parametrize(("m", "latency"), [(200, 1), (0, 1), (256, -1)])
def test_what_cannot_be_is_refused(m: int, latency: float) -> None:
    with pytest.raises(InputError, match="must"):
        TcuMachine(m, latency)
