"""Tables: one class for terminals, notebooks, pages and papers."""

from __future__ import annotations

import csv

import pytest

from tcusim.table import Table, aligned

UNITS = Table(
    ("unit", "error", "remark"),
    [("h100", "2", "exact"), ("a-long-name", "10", ""), ("all", "12", "")],
    title="Units",
    texts=["A sentence."],
    notes=["A note of some words."],
    summary="2 units",
    align="lr",
    totals=1,
    wrong=[1],
)
MANY = Table(
    ("name", *(f"column number {i}" for i in range(9))),
    [(f"a-name-that-is-never-broken-{row}", *(f"{row}{i}" for i in range(9))) for row in range(3)],
    align="l" + "r" * 9,
)


def test_text() -> None:
    assert str(UNITS).splitlines() == [
        "Units",
        "A sentence.",
        "",
        "  unit         error  remark",
        "  ──────────────────────────",
        "  h100             2  exact",
        "  a-long-name     10",
        "",
        "  all             12",
        "",
        "A note of some words.",
        "2 units",
    ]
    assert str(Table(title="Title")) == "Title"
    assert Table(("a", "b"), ()).text() == ""


def test_a_narrow_screen_folds_cells_between_words() -> None:
    table = Table(rows=[("a name of five words", "a cell of many words, which do not all fit")])
    lines = table.text(50).splitlines()
    assert lines[0].startswith("a name of five words  a cell of many words,")
    assert lines[1].strip() in "which do not all fit"
    assert max(map(len, lines)) <= 50
    assert " ".join(lines).split() == " ".join(table.rows[0]).split()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_wide_table_is_split_and_no_word_is_broken(width: int) -> None:
    lines = MANY.text(width).splitlines()
    assert max(map(len, lines)) <= width
    shown = " ".join(lines).split()
    parts = sum(line.lstrip().startswith("name") for line in lines)
    assert parts == lines.count("") + 1
    for name, *cells in MANY.rows:
        assert shown.count(name) == parts
        assert all(shown.count(cell) == 1 for cell in cells)
    assert (parts == 1) == (width == 200 or width == 120)


def test_header_lines_end_at_the_rule() -> None:
    table = Table(("name", "16x16x16\nf16"), [("scan", "2 ok")], align="lr")
    assert table.text().splitlines()[:2] == ["      16x16x16", "name       f16"]


def test_colors_of_a_terminal() -> None:
    lines = UNITS.text(80, color=True).splitlines()
    assert lines[0] == "\x1b[1mUnits\x1b[0m"
    assert "  \x1b[1;31ma-long-name     10\x1b[0m" in lines
    assert "\x1b" not in UNITS.text(80)
    assert Table(rows=[("a", "b")]).text(color=True) == "\x1b[1ma\x1b[0m  b"


def test_wide_letters_take_two_columns() -> None:
    assert aligned([("\u4e2d\u6587", "1"), ("abcd", "2")]) == ["\u4e2d\u6587  1", "abcd  2"]


def test_html_has_heads_of_rows_and_columns() -> None:
    text = Table(("name", "what"), [("a", "1 < 2"), ("b", "3")], align="lr", wrong=[1]).html()
    assert text.count('<th scope="col"') == 2
    assert text.count('<th scope="row">') == 2
    assert '<td class="right">1 &lt; 2</td>' in text
    assert text.count('<tr class="wrong">') == 1
    assert 'class="numbers"' in Table(rows=[("0", "1")]).html(kind="numbers")
    whole = UNITS._repr_html_()
    assert whole.count("<tbody") == 2
    assert "<h3>Units</h3>" in UNITS.html(3)
    folded = UNITS.html(folded=True)
    assert folded.startswith("<details><summary>Units</summary>")
    assert folded.count("Units") == 2  # the summary, and the label of the scrolling region
    assert whole.index("2 units") < whole.index("A sentence.") < whole.index("A note")


def test_exported_tables() -> None:
    table = Table(("name", "a|b\nc"), [("x_1", "50%"), ("f16→f32", 'say "no"')], align="lr")
    assert list(csv.reader(table.to_csv().splitlines())) == [
        ["name", "a|b c"],
        ["x_1", "50%"],
        ["f16→f32", 'say "no"'],
    ]
    assert table.to_markdown().splitlines()[:3] == [
        "| name | a\\|b c |",
        "| --- | ---: |",
        "| x_1 | 50% |",
    ]
    assert table.to_latex().splitlines() == [
        r"\begin{tabular}{lr}",
        r"name & a|b c \\",
        r"\hline",
        r"x\_1 & 50\% \\",
        r'f16$\to$f32 & say "no" \\',
        r"\end{tabular}",
    ]


def test_rows_have_equally_many_cells() -> None:
    with pytest.raises(ValueError, match="rows of a table have 1 or 2 cells"):
        Table(("a", "b"), [("c",)])
