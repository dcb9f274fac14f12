"""`agree`: a backend compared with the simulator over a grid."""

from __future__ import annotations

from tcusim.judge.correctness import agreement
from tcusim.judge.correctness.agreement import Agreement, Tally
from tcusim.judge.correctness.cases import CaseGrid, columns_of
from tcusim.machine import fused_unit, register_unit
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
    for tally in (Tally(cases=1, outputs=3, differ=1), Tally(cases=1, outputs=3, failed=1)):
        found = Agreement("host", "hopper", {("scan_k", "16x16x16 f16→f32"): tally})
        assert not found.ok


def test_reports_are_added_up() -> None:
    whole = Agreement("host", "hopper")
    for cases in (2, 3):
        key = "scan_k", "16x16x16 f16→f32"
        whole.add(Agreement("host", "hopper", {key: Tally(cases=cases, outputs=10)}, left=1))
    assert (whole.total.cases, whole.total.outputs, whole.left) == (5, 20, 2)
    assert whole.ok
    assert whole.algorithms == ["scan_k"]


def test_another_process_is_told_of_registered_units() -> None:
    unit = fused_unit(4, 9, tiles=(shape_of("16x16x16"),))
    register_unit(unit)
    grid = CaseGrid(["reduction_k"], columns_of("16x16x16")[:1])
    report = agreement.agree(grid, backend="host", arch=unit.name, jobs=2)
    assert report.ok
    assert report.arch == "fused-4-9-rz"
