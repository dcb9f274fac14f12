"""`tcusim bench chart`: charts of a recorded benchmark, from the JSON alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import runner
from tcusim.cli.main import main
from tcusim.errors import BackendUnavailable, InputError
from tcusim_bench import charts
from tcusim_bench.report import OURS, Attempt, Report, best_rows, with_ratios
from tcusim_bench.sections import Case

LENGTH = 2**20


def attempt(who: str, ms: float | None, result: str = "f32") -> Attempt:
    return Attempt(who, "x", "f32", result, "failed" if ms is None else "ok", ms=ms)


@pytest.fixture
def report() -> Report:
    """Two sizes of sums and one ragged scan; CuPy failed once, and torch has f16 sums alone."""
    rows = [
        *best_rows(
            Case("sums", "sum", 16, LENGTH),
            [attempt(OURS, 1.0), attempt("CuPy", 4.0), attempt("PyTorch", 2.0, "f16")],
        ),
        *best_rows(Case("sums", "sum", 2**14, LENGTH), [attempt(OURS, 2.0), attempt("CuPy", None)]),
        *best_rows(
            Case("ragged", "scan", 0, LENGTH, lengths="one giant"), [attempt(OURS, 1.0, "f16")]
        ),
    ]
    limits = {"read": 4e9, "copy": 4e9}
    return Report(
        device={"gpu": "NVIDIA X", "cuda": "13.0"}, versions={}, limits=limits, length=LENGTH,
        date="2026-01-02 03:04 UTC", rows=with_ratios(rows, limits),
    )  # fmt: skip


def lines_of(figure: Any) -> dict[str, Any]:
    """Return the points of each named line of a chart's first panel."""
    axes = figure.axes[0]
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def test_throughput(report: Report) -> None:
    figure = charts.throughput("sums", report)
    assert lines_of(figure) == {
        OURS: ([0, 1], pytest.approx([LENGTH / 1e6, LENGTH / 2e6])),
        "CuPy": ([0], pytest.approx([LENGTH / 4e6])),
        "PyTorch": ([0], pytest.approx([LENGTH / 2e6])),
    }
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "$2^{14}$"]
    assert axes.get_title() == "sums, f16 to f32"


def test_share_of_the_limit(report: Report) -> None:
    places, values = lines_of(charts.of_limit("sums", report))[OURS]
    assert places == [0, 1]
    shares = [row.of_limit for row in report.rows if row.is_ours and row.of_limit]
    assert values == pytest.approx([100 * share for share in shares[:2]])


def test_speed_up_over_each_peer(report: Report) -> None:
    found = lines_of(charts.of_peers("sums", report))
    assert found == {"CuPy": ([0], [4.0]), "PyTorch": ([0], [2.0])}
    assert charts.of_peers("ragged", report) is None


def test_the_command_draws_every_chart(report: Report, tmp_path: Path) -> None:
    source, folder = tmp_path / "bench.json", tmp_path / "charts"
    source.write_text(json.dumps(report.as_json()))
    done = runner().invoke(main, ["bench", "chart", str(source), "-o", str(folder)])
    assert done.exit_code == 0, done.output
    names = {"sums_throughput", "sums_of_limit", "sums_of_peers", "ragged_throughput"}
    names.add("ragged_of_limit")
    made = {path.name for path in folder.iterdir()}
    assert made == {f"{name}.{ending}" for name in names for ending in ("png", "svg")}
    assert "one giant" in (folder / "ragged_throughput.svg").read_text()
    assert (folder / "sums_throughput.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_beside_the_series_of_the_authors(report: Report) -> None:
    """Products of matrices are shown in operations; empty series are left out."""
    assert charts.authors("sums", report) is None
    line = {"label": "CUB", "x": [4096, 8192], "y": [0.5, 1.0]}
    report.authors = {"full_reduction_cub": [line], "gemv": []}
    figure = charts.authors("figure 13", report)
    assert lines_of(figure) == {"CUB": ([4096, 8192], [0.5, 1.0])}
    case = Case("figure 2", "matmul", 1024, LENGTH)
    report.rows = tuple(best_rows(case, [attempt(OURS, 1.0, "f16")]))
    _, (speed,) = lines_of(charts.throughput("figure 2", report))[OURS]
    assert speed == pytest.approx(2 * 1024**3 / 1e-3 / 1e12)


def test_what_is_no_record(tmp_path: Path) -> None:
    source = tmp_path / "x.json"
    for text, message in (("{", "is no JSON"), ("[]", "no object"), ("{}", "its format is None")):
        source.write_text(text)
        with pytest.raises(InputError, match=message):
            charts.draw(source, tmp_path)


def test_without_matplotlib(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BackendUnavailable, match=r"tcusim\[chart\]"):
        charts.throughput("sums", report)
