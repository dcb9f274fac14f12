"""Nothing is read before it is defined."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tcusim
from planted import (
    LENGTH,
    SYNC,
    ZERO,
    V,
    accumulator,
    at,
    block_reduction,
    changed,
    one_row,
    planted,
    reduction,
    refused,
)
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import BLOCK, Add, Bound, Const, Extent, Index, Loop, When


def test_defined_before_use_refuses_missing_initialisation() -> None:
    program = planted(reduction(), "2")
    refused(
        program,
        "defined_before_use",
        "step 5: .* reads accumulator 'V', which no earlier step sets on every path. Set it with",
    )


def test_defined_before_use_refuses_unwritten_shared_memory() -> None:
    refused(
        planted(reduction(), "7"),
        "defined_before_use",
        r"reads v\[0\] \(16 such elements\), which no earlier step writes on every path. Fill 'v'",
    )
    copy = at(block_reduction(), "7")
    program = changed(block_reduction(), "7", dst=one_row(copy.dst.buffer))
    refused(program, "defined_before_use", r"reads partial\[16\] \(16 such elements\)")


def test_defined_before_use_counts_a_loop_only_if_it_runs() -> None:
    first, second = at(reduction(), "1"), at(reduction(), "2")
    once = Loop("i", Extent.of(1), (first,))
    verify(planted(reduction(), "1", once))
    perhaps = Loop("i", Extent(LENGTH, 256), (second,))
    refused(planted(reduction(), "2", perhaps), "defined_before_use", "reads accumulator 'V'")


def test_defined_before_use_looks_at_values_that_decide_and_counts_no_such_branch() -> None:
    store, zero = at(reduction(), "7"), at(reduction(), "2")
    decided = When((), (), not_finite=one_row(store.dst.buffer))
    refused(planted(reduction(), "3", decided), "defined_before_use", r"step 3: .* reads v\[0\]")
    again = replace(decided, body=(zero,))
    program = planted(planted(reduction(), "8", SYNC, again), "2")
    refused(program, "defined_before_use", "reads accumulator 'V'")


def test_defined_before_use_counts_both_branches_on_data_but_remembers_neither() -> None:
    store, zero = at(reduction(), "7"), at(reduction(), "2")
    either = When((), (zero,), (zero,), not_finite=one_row(store.dst.buffer))
    program = planted(reduction(), "8", SYNC, either)
    verify(program)
    last = Const(accumulator("T"), ZERO)
    setting = replace(either, body=(last,), otherwise=(last,))
    using = Add(V, V, accumulator("T"))
    verify(planted(program, "9", setting, using))
    for some in (replace(setting, body=()), replace(setting, otherwise=())):
        later = replace(either, body=(using,), otherwise=())
        refused(planted(program, "9", some, later), "defined_before_use", "accumulator 'T'")


def test_defined_before_use_counts_a_when_if_both_branches_define() -> None:
    step = at(reduction(), "2")
    bounds = (Bound(BLOCK, Index.of(1)),)
    verify(planted(reduction(), "2", When(bounds, (step,), (step,))))
    refused(
        planted(reduction(), "2", When(bounds, (step,))), "defined_before_use", "accumulator 'V'"
    )


def test_defined_before_use_remembers_a_branch_of_the_same_condition() -> None:
    program = block_reduction()
    when = at(program, "9")
    first = replace(when, body=(Const(accumulator("T"), ZERO),))
    second = replace(when, body=(*when.body, Add(V, V, accumulator("T"))))
    verify(planted(program, "9", first, second))
    other = replace(second, bounds=(Bound(BLOCK, Index.of(1)),))
    refused(planted(program, "9", first, other), "defined_before_use", "accumulator 'T'")


@pytest.mark.parametrize("size", [6145, 13_000, 20_001])
def test_defined_before_use_takes_nothing_from_a_branch_that_never_runs(size: int) -> None:
    """All panels of a chunk are whole, and the branch for others writes no element."""
    tcusim.build("scan_panel", tile="8x32x16", segment_size=size)


def test_defined_before_use_follows_long_segments_whose_rows_do_not_divide_them() -> None:
    tcusim.build("reduction_kn", tile=tcusim.MmaShape(8, 48, 12), segment_size=2**16)


def test_defined_before_use_counts_the_branch_that_always_runs() -> None:
    first = at(reduction(), "1")
    within = (Bound(Index(), Index.of(1)),)
    beyond = (Bound(Index.of(2), Index.of(1)),)
    verify(planted(reduction(), "1", When(within, (first,))))
    verify(planted(reduction(), "1", When(beyond, (), (first,))))
    for bounds, body, otherwise in ((beyond, (first,), ()), (within, (), (first,))):
        never = planted(reduction(), "1", When(bounds, body, otherwise))
        refused(never, "defined_before_use", "no earlier step sets on every path")
