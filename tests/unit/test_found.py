"""When a verdict is that something is wrong."""

from __future__ import annotations

from dataclasses import replace

from faulty import plant
from judged import chip, figure, judge
from tcusim.judge.verdict.consistency import WRONG, Finding
from tcusim.judge.verdict.tasks import TASKS


def test_what_is_wrong_is_not_ok_and_never_the_best() -> None:
    (right,) = judge("4x4x4").units
    assert right.ok
    assert right.best(TASKS[3]) is not None
    plant()
    (wrong,) = judge("4x4x4", algorithms=["planted"]).units
    assert not wrong.ok
    assert wrong.best(TASKS[3]) is None
    assert not replace(right, claims=(Finding("bits", WRONG, "other bits"),)).ok
    assert replace(right, claims=()).ok
    assert not replace(right, refused="it takes nothing").ok


def test_what_cannot_be_is_not_ok_and_what_is_wasted_is() -> None:
    small = chip("small", registers_per_core=figure(8))
    assert not judge(small, sections=["correctness"]).ok
    assert judge(chip("wasteful", shared_bytes_per_block=figure(8)), sections=["correctness"]).ok
