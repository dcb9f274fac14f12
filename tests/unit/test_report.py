"""The results of a validation of a shape, as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from faulty import plant
from tcusim.errors import InputError
from tcusim.judge.correctness.shape_report import ShapeReport
from tcusim.judge.correctness.validation import validate_shape


def test_json_round_trip() -> None:
    plant()
    report = validate_shape("8x32x16", algorithms=["scan_t", "planted", "reduction_tn"])
    text = report.to_json()
    assert ShapeReport.from_json(text) == report
    value = json.loads(text)
    assert (value["shape"], value["ok"], len(value["rows"])) == ("8x32x16", False, 10)
    assert value["rows"][0]["options"] == {"form": "(LA)1"}
    assert value["rows"][1]["elements_per_mma"] == 512 / 8
    other = replace(report, rows=report.rows[1:])
    assert ShapeReport.from_json(other.to_json()) != report


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [1]}', '{"rows": [{"kind": "scan"}]}'])
def test_text_that_is_no_report(text: str) -> None:
    with pytest.raises(InputError, match="the text is no report of validate_shape"):
        ShapeReport.from_json(text)


def test_sides_that_do_equally_well_share_a_line() -> None:
    square = validate_shape("4x4x4", algorithms=["scan_k", "reduction_k"]).table().rows
    assert [line[:2] for line in square] == [("scan_k", "a, b"), ("reduction_k", "a, b")]
    long = validate_shape("8x2x4", algorithms=["scan_k"]).table().rows
    assert [line[:2] for line in long] == [("scan_k", "a"), ("scan_k", "b")]
