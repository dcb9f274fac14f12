"""`agree`: a backend compared with the simulator over a grid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tcusim.errors import Unsupported
from tcusim.judge.correctness import agreement
from tcusim.judge.correctness.agreement import Agreement, Compared
from tcusim.judge.correctness.cases import CaseGrid, columns_of
from tcusim.machine import Arch, Fused, Rule, arch_of, fused_unit, register_unit
from tcusim.machine.shapes import shape_of


def test_several_processes() -> None:
    grid = CaseGrid(["scan_kn"], columns_of("32x8x16"))
    one = agreement.agree(grid, backend="numpy")
    two = agreement.agree(grid, backend="numpy", jobs=2)
    assert one.tallies == two.tallies
    assert one.ok


def test_nothing_compared_is_no_agreement() -> None:
    report = Agreement("host", "hopper")
    assert not report.ok
    assert report.summary().endswith("nothing was compared")
    case = Compared("scan_k", "16x16x16 f16→f32", "a case", 3)
    assert Agreement("host", "hopper", (case,)).ok
    for wrong in (replace(case, differ=1, text="it differs"), replace(case, failed=True)):
        assert not Agreement("host", "hopper", (case, wrong)).ok


def test_cases_are_added_up() -> None:
    late, other = (Compared("scan_t", "x", text=text) for text in ("the time was up", "no tile"))
    cases = [Compared("scan_k", "16x16x16 f16→f32", f"case {n}", 10) for n in range(5)]
    whole = Agreement("host", "hopper", (late, *cases, late, other))
    assert (whole.total.cases, whole.total.outputs, whole.left) == (5, 50, 2)
    assert whole.ok
    assert whole.skipped == {"no tile": 1}
    assert list(whole.tallies) == [("scan_k", "16x16x16 f16→f32")]
    wrong = replace(cases[0], differ=2, text="2 of 10 elements differ")
    failed = replace(cases[1], failed=True, text="KernelError: no")
    found = Agreement("host", "hopper", (wrong, failed, *cases[2:]))
    assert [one.case for one in found.problems] == ["case 0", "case 1"]
    assert "case 0\n  2 of 10 elements differ\n  tcusim agree" in found.summary()
    assert "1 of 5 failed" in found.text()


def test_another_process_is_told_of_registered_units() -> None:
    unit = fused_unit(4, 9, tiles=(shape_of("16x16x16"),))
    register_unit(unit)
    grid = CaseGrid(["reduction_k"], columns_of("16x16x16")[:1])
    report = agreement.agree(grid, backend="host", arch=unit.name, jobs=2)
    assert report.ok
    assert report.arch == "fused-4-9-rz"


def test_a_unit_is_compared_on_its_own_tiles_and_types() -> None:
    """8x8x16, 16x16x8 and 8x8x32 are instructions, too, of other types."""
    rules = [Rule(ab, "f32", Fused(8, 20), "a", "b") for ab in ("f16", "e4m3fnuz", "e3m2", "e2m1")]
    arch = Arch("odd types", "odd types", (), (), tuple(rules), "a test")
    for shape in ("8x8x16", "16x16x8", "8x8x32"):
        columns = columns_of(shape, arch)
        assert [(one.ab, one.acc) for one in columns] == [(one.ab, one.acc) for one in rules]
        for case in CaseGrid(["reduction_k"], columns).cases():
            assert case.recipe.build().shape.name == shape
            assert all(len(array) for array in case.inputs().values())
    with pytest.raises(Unsupported, match="volta has no types of the shape 16x8x4, which takes tf"):
        columns_of("16x8x4", arch_of("volta"))
