"""A verdict as a page: it stands alone, and nothing in it is taken for HTML."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Browser, require_browser
from command_line import succeeds
from judged import chip, figure, judge
from tcusim.errors import InputError
from tcusim.judge.verdict.report_page import fragment_of, page_of


def test_a_page_stands_alone_and_has_everything() -> None:
    verdict = judge("4x4x4", chip("a b"), reference="16x16x16")
    text = page_of(verdict.units, verdict.reference, "tcusim validate")
    assert "<title>Verdict on 4x4x4, a b</title>" in text
    assert not re.search(r"https?:|<script|src=|url\(", text)
    assert (
        len(re.findall('<th scope="row">(?:best|cost|precision|bound|not tested)</th>', text)) == 10
    )
    for title in ("Beside each other", "Counts on 4x4x4", "Correctness on exact integers"):
        assert title in text
    assert "prefers-color-scheme: dark" in text


def test_bars_are_as_long_as_their_numbers() -> None:
    text = fragment_of([*judge("4x4x4").units, *judge("8x4x4").units], None)
    short, long = (float(width) for width in re.findall(r'style="width: ([\d.]+)%"', text)[:2])
    assert long == 2 * short == 60
    assert "elements that one mma takes" in text


def test_names_are_escaped() -> None:
    (unit,) = judge("4x4x4").units
    text = fragment_of([replace(unit, name="<b>", title="1 < 2")], None)
    assert "<b>" not in text
    assert "1 &lt; 2" in text


# --- The head of the page ---------------------------------------------------------------------


def heading(text: str) -> str:
    """Return the text of a page before the five lines, without its marks."""
    return re.sub(r"<[^>]+>", " ", text.partition("<h2>")[0].partition("<h1>")[2])


def test_the_outcome_comes_first_with_its_reasons() -> None:
    small = chip("small", tile="64x64x16", registers_per_core=figure(4096))
    verdict = judge(chip("fine"), small, algorithms=["scan_k"])
    fine, failed = re.findall(r'<p class="outcome.*?</p>', verdict.to_html())
    assert "<strong>PASS</strong> fine, f16 to f32: " in fine
    assert "cases right, and no contradiction found." in fine
    assert "<strong>FAIL</strong> small, f16 to f32: IMPOSSIBLE: a, b and c of one" in failed


@pytest.mark.parametrize("registers", [4096, 65536])
def test_a_page_passes_where_the_verdict_is_ok(registers: int) -> None:
    unit = chip("some", tile="64x64x16", registers_per_core=figure(registers))
    verdict = judge(unit, algorithms=["scan_k"])
    assert ("<strong>PASS</strong>" in verdict.to_html()) is verdict.ok


def test_a_command_makes_the_same_page_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    Path("a b.toml").write_text('tiles = "4x4x4"\nfraction_bits = 9\n')
    words = ["validate", "a b.toml", "scan_k", "--reference", "4x4x4", "--html", "v.html"]
    texts = []
    for _ in range(2):
        succeeds(*words)
        texts.append(Path("v.html").read_text("utf-8"))
    assert texts[0] == texts[1]
    assert "date 1970-01-02" in " ".join(heading(texts[0]).split())
    command = "tcusim validate &#x27;a b.toml&#x27; scan_k --reference 4x4x4 --html v.html"
    assert command in heading(texts[0])


def test_a_date_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH must be seconds since 1970, got 'tod"):
        judge("4x4x4").to_html()


def test_every_parameter_has_a_confidence_and_a_source() -> None:
    unit = chip("known", clock=figure(2e9), cores=figure(8))
    text = judge(unit, algorithms=["scan_k"]).to_html()
    rows = re.findall(r'<th scope="row">([^<]+)</th><td>([^<]*)</td><td>assumed</td><td>inv', text)
    assert dict(rows) == {
        "ab": "f16",
        "acc": "f32",
        "kind": "fused",
        "fused_length": "4",
        "fraction_bits": "24",
        "output_rounding": "rz",
        "alignment": "rz",
        "c_joins": "sum",
        "flush_inputs": "false",
        "flush_outputs": "false",
        "register_halves": "false",
        "clock": "2e+09 Hz",
        "cores": "8 cores",
    }
    assert "Not known: units_per_core, " in text


def test_the_legend_has_the_terms_of_the_sections_alone() -> None:
    counts = judge("4x4x4").to_html()
    precise = judge(chip("precise"), sections=["precision"]).to_html()
    legends = [text.partition("<h2>Legend</h2>")[2] for text in (counts, precise)]
    for term, where in (("PASS", (True, True)), ("tile used", (True, False))):
        assert tuple(f">{term}</th>" in legend for legend in legends) == where
    assert tuple(">blocks</th>" in legend for legend in legends) == (False, True)


# --- In a browser -----------------------------------------------------------------------------

# Tables and text that are wider or higher than the room that they have.
CUT = """[...document.querySelectorAll(".scroll")].filter((one) =>
  one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight).length"""
# Of A4 without its margins, in pixels.
PAPER = 687


def test_nothing_is_cut_on_a_phone_or_on_paper(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    verdict = judge("4x4x4", chip("a b"), reference="16x16x16")
    page.write_text(verdict.to_html(), "utf-8")
    with Browser(require_browser()) as browser:
        browser.open(page, width=390, height=844)
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.value(CUT) > 0
        browser.send("Emulation.setEmulatedMedia", media="print")
        browser.open(page, width=PAPER, height=1000)
        assert browser.value(CUT) == 0
        notes = '[...document.querySelectorAll("details > :not(summary)")]'
        assert browser.value(f"{notes}.every((one) => one.checkVisibility())")
