"""The page of a trace: it embeds the output of the interpreter and `explain`; it works."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from browser import Browser, require_browser
from tcusim.algorithms import algorithms
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.machine.accounts.layout import panel
from tcusim.machine.bits import from_bits
from tcusim.stepper.comparison import Comparison
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.page import Side, data_of
from tcusim.stepper.trace import Trace, trace


def scan() -> Trace:
    program = tcusim.build("scan_256n")
    inputs = {"in": np.random.default_rng(0).normal(size=1024).astype(np.float16)}
    return trace(program, inputs, arch="volta")


@pytest.fixture(name="kept", scope="module")
def kept_scan() -> Trace:
    return scan()


@pytest.fixture(name="page", scope="module")
def page_of_scan(kept: Trace) -> str:
    return kept.to_html()


def embedded(page: str, side: int = 0) -> dict[str, Any]:
    """Return the data of a trace in a page."""
    found = re.search(r'id="data">([^<]*)<', page)
    assert found is not None
    content = json.loads(gzip.decompress(base64.b64decode(found[1])))
    data: dict[str, Any] = content["sides"][side]
    return data


def cells(data: dict[str, Any], number: int) -> tuple[list[Any], list[tuple[str, str]]]:
    """Return a tile, and bits and text of its elements."""
    tile = data["tiles"][number]
    pool = data["numbers"][tile[2]]
    return tile, [tuple(pool[place]) for place in data["grids"][tile[9]]]


# --- The data ---------------------------------------------------------------------------------


def test_it_says_who_ran_the_program(kept: Trace) -> None:
    assert data_of(Side(kept.about, list(kept)[:3], "", ""), 0)["notes"] == []
    about = replace(kept.about, place="cupy on NVIDIA H200")
    said = "What each step left was recorded by cupy on NVIDIA H200."
    assert data_of(Side(about, list(kept)[:3], "", ""), 0)["notes"] == [said]
    assert data_of(Side(about, list(kept)[:3], "Some.", ""), 0)["notes"] == [said, "Some."]


def test_tiles_have_the_bits_of_the_interpreter(kept: Trace, page: str) -> None:
    data = embedded(page)
    assert len(data["steps"]) == len(kept) == 72
    value_of = functools.cache(lambda bits, name: from_bits(int(bits, 16), format_of(name)))
    for step, frame in zip(data["steps"], kept, strict=True):
        assert step[:4] == [frame.warp, frame.number, frame.path, frame.kind]
        assert dict(step[4]) == frame.loops
        tiles = (*frame.reads, *frame.writes)
        for number, tile in zip((*step[5], *step[6]), tiles, strict=True):
            head, elements = cells(data, number)
            assert head[:4] == [
                *(tile.label, tile.part, tile.dtype),
                f"{tile.part}: {tile.label}",
            ]
            assert tuple(head[7:9]) == tile.values.shape
            fmt = format_of(tile.dtype)
            values = [value_of(bits, fmt.name) for bits, _ in elements]
            bits = np.array(values, fmt.dtype).tobytes()
            assert bits == tile.values.tobytes()
            changed = [data["looks"][int(look)] == "changed" for look in head[10]]
            assert changed == (tile.changed & ~tile.unknown).ravel().tolist()
            assert tuple(map(tuple, head[12])) == tile.ranges


def test_accounts_are_those_of_explain(kept: Trace, page: str) -> None:
    data = embedded(page)
    products = [one for one in zip(data["steps"], kept, strict=True) if one[1].kind == "mma"]
    assert len(products) == 12
    random = np.random.default_rng(1)
    for step, frame in products:
        a, b, c = (tile.values for tile in frame.reads)
        _, result = cells(data, step[6][0])
        for row, column in random.integers(0, 16, (4, 2)).tolist():
            account = data["accounts"][step[7][16 * row + column]]
            told = tcusim.explain(a, b, c, arch="volta", cell=(row, column))["volta"]
            assert account[0].split(" = ")[0] == told.bits == result[16 * row + column][0]
            for shown, one in zip(account[1], told.steps, strict=True):
                expected = panel(told, one)
                assert shown[:2] == [expected.title, expected.sentence]
                for place, line in zip(shown[2], expected.lines, strict=True):
                    assert data["lines"][place] == [
                        *(line.name, line.digits, line.lost, line.remark),
                        *(line.exponent, line.factors, line.kind),
                    ]


@pytest.mark.parametrize(
    ("ab", "acc", "arch"),
    [("bf16", "f32", "ampere"), ("s8", "s32", "ampere"), ("f64", "f64", "hopper")],
)
def test_every_type_has_a_page(ab: str, acc: str, arch: str) -> None:
    tile = {"f64": "8x8x4"}.get(ab, "16x16x16")
    program = tcusim.build("reduction_k", tile=tile, ab=ab, acc=acc)
    kept = trace(program, default_inputs(program), arch=arch)
    data = data_of(Side(kept.about, list(kept), "", ""), 4096)
    step, frame = next(p for p in zip(data["steps"], kept, strict=True) if p[1].kind == "mma")
    _, elements = cells(data, step[6][0])
    assert [float(text) for _, text in elements] == frame.writes[0].values.ravel().tolist()
    assert -1 not in step[7]


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
def test_every_algorithm_has_a_page(name: str) -> None:
    program = tcusim.build(name)
    kept = trace(program, default_inputs(program), last=40)
    data = embedded(kept.to_html(cells=100))
    assert [step[2] for step in data["steps"]] == [frame.path for frame in kept]
    assert {step[2] for step in data["steps"]} <= {path for path, _ in data["listing"]}
    explained = [number for step in data["steps"] if step[7] for number in step[7]]
    assert max(explained, default=-1) == len(data["accounts"]) - 1


def test_what_was_never_written_is_nan() -> None:
    kept = trace(tcusim.build("scan_256"), {"in": np.ones(256, np.float16)})
    frame = next(frame for frame in kept if frame.kind == "store" and frame.writes[0].note)
    data = data_of(Side(kept.about, [frame], "", ""), 0)
    _, elements = cells(data, data["steps"][0][6][0])
    assert {text for _, text in elements} == {"NaN"}


def test_constants_are_named(page: str) -> None:
    # Z is set to 0 anew in each iteration, and S is not only set to 0.
    tiles = embedded(page)["tiles"]
    assert {tile[0] for tile in tiles if tile[4].endswith(", constant")} == {*"JLUZ"}


def test_it_is_small_and_asks_for_nothing(page: str) -> None:
    assert len(page.encode()) < 1_000_000
    assert "default-src 'none'" in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "[[" not in page.replace("[[0", "")[: page.index('id="data"')]


def test_what_is_left_out_is_said() -> None:
    program = tcusim.build("scan_256n")
    kept = trace(program, default_inputs(program), last=20)
    data = embedded(kept.to_html(cells=10))
    assert data["notes"][0] == kept.left_out
    assert re.match(r"\d+ outputs of the last products are not explained here", data["notes"][1])
    assert len(data["accounts"]) == 10
    with pytest.raises(InputError, match="cells must be an integer"):
        kept.to_html(cells=-1)


def test_a_long_trace_has_the_first_steps() -> None:
    program = tcusim.build("scan_256n", segment_size=256 * 130)
    data = embedded(trace(program, default_inputs(program)).to_html(cells=0))
    assert len(data["steps"]) == 2000
    assert data["notes"][0].startswith("The page has the first 2000 of 2214 steps")


def test_text_is_never_markup() -> None:
    program = tcusim.build("scan_256n")
    kept = trace(program, default_inputs(program), last=1)
    assert "<script" in kept.to_html()
    shown = kept._repr_html_()
    assert shown.startswith("<iframe ")
    assert "<script" not in shown
    assert 'sandbox="allow-scripts"' in shown


# --- In a browser -----------------------------------------------------------------------------


@pytest.fixture(name="browser", scope="module")
def a_browser() -> Iterator[Browser]:
    with Browser(require_browser()) as browser:
        yield browser


def opened(browser: Browser, page: str, folder: Path, **size: int) -> None:
    path = folder / "page.html"
    path.write_text(page, "utf-8")
    browser.open(path, **size)
    browser.wait_for("document.querySelector('#app:not([hidden])') !== null")


WHERE = "document.querySelector('#where').textContent"


def test_it_steps(browser: Browser, kept: Trace, page: str, tmp_path: Path) -> None:
    opened(browser, page, tmp_path)
    assert browser.value(WHERE).startswith("step 1 of 72. ")

    for _ in range(5):
        browser.press("ArrowRight")
    assert browser.value(WHERE).startswith("step 6 of 72: 5.2, i = 0. AU: ")
    assert browser.value("document.querySelector('[aria-current=step]').dataset.path") == "5.2"
    # A box without room to scroll leaves the keys to the page.
    browser.value("document.querySelector('#listing-scroll').focus()")
    browser.press("ArrowLeft")
    assert browser.value(WHERE).startswith("step 5 of 72: 5.1, i = 0.")
    browser.click("#end")
    assert browser.value(WHERE).startswith("step 72 of 72: 5.17, i = 3.")
    # From the end on, a line leads to its first turn; then to the next.
    for turn in range(2):
        browser.click("[data-path='5.2']")
        assert browser.value(WHERE).startswith(f"step {6 + 17 * turn} of 72: 5.2, i = {turn}.")
    browser.press("Home")
    assert browser.value(WHERE).startswith("step 1 of 72")
    assert [url.split(":")[0] for url in browser.requests()] == ["file"]
    assert browser.errors() == []

    # The page shows the traced steps.
    browser.click("[data-path='5.2']")
    frame = kept[5]
    texts = browser.value(
        "[...document.querySelectorAll('[role=grid] td')].map((cell) => cell.textContent)"
    )
    numbers = np.array(texts, float)
    assert np.allclose(numbers, frame.writes[0].values.ravel(), rtol=1e-4)


def test_it_opens_within_a_second(browser: Browser, page: str, tmp_path: Path) -> None:
    # In the browser's own count; the least of several, since others use the machine too.
    times = []
    for _ in range(4):
        opened(browser, page, tmp_path)
        times.append(browser.value("performance.getEntriesByName('shown')[0].startTime"))
    assert min(times) < 1000


def test_an_output_shows_how_it_is_summed(
    browser: Browser, kept: Trace, page: str, tmp_path: Path
) -> None:
    opened(browser, page, tmp_path)
    browser.click("[data-path='5.2']")
    browser.point("[role=grid] tr:nth-child(3) td:nth-of-type(5)")
    a, b, c = (tile.values for tile in kept[5].reads)
    told = tcusim.explain(a, b, c, arch="volta", cell=(2, 4))["volta"]
    head = "document.querySelector('#account-head').textContent"
    assert browser.value(head).startswith(f"Row 2, column 4: {told.bits} = ")
    marked = "[...document.querySelectorAll('#tiles .marked')].length"
    assert browser.value(marked) == 16 + 16 + 1
    assert told.steps[0].bits in browser.value("document.querySelector('#account').textContent")

    # By keys alone, too; and bits instead of decimals, with the keys where they were.
    browser.value("document.querySelector('.chosen').focus()")
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    assert browser.value(head).startswith("Row 3, column 5: ")
    browser.press("h")
    assert browser.value("document.activeElement.textContent") == (
        kept[5].writes[0].values[3, 5].view(np.uint32).item().to_bytes(4).hex()
    )
    assert browser.errors() == []


def test_memory_and_barriers_are_drawn(browser: Browser, page: str, tmp_path: Path) -> None:
    opened(browser, page, tmp_path)
    browser.click("[data-path='5.1']")
    browser.click("[data-path='5.1']")
    strips = browser.value(
        "[...document.querySelectorAll('#memory svg')].map((e) => e.getAttribute('aria-label'))"
    )
    assert strips[0] == "in, elements 0 to 1023: reads 256 to 511"
    assert browser.value("document.querySelectorAll('#time .sync').length") == 16


def test_warps_are_chosen(browser: Browser, tmp_path: Path) -> None:
    program = tcusim.build("reduction_tn_block", warps=4)
    kept = trace(program, default_inputs(program), blocks=0)
    opened(browser, kept.to_html(), tmp_path)
    texts = browser.value("[...document.querySelectorAll('#time div')].map((e) => e.textContent)")
    assert texts[0] == "warp 0: 1 barrier of the block, 5 barriers of the warp, 3 products"
    assert [text.partition(":")[0] for text in texts] == [f"warp {i}" for i in range(4)]
    browser.value(
        "(() => { const w = document.querySelector('#warp'); w.value = '3';"
        "w.dispatchEvent(new Event('change')); })()"
    )
    count = len(kept.of(3))
    assert browser.value(WHERE).startswith(f"step 1 of {count}. ")


def test_it_fits_a_phone(browser: Browser, page: str, tmp_path: Path) -> None:
    opened(browser, page, tmp_path, width=390, height=844)
    browser.click("[data-path='5.2']")
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")


def test_small_tiles_fit_a_phone(browser: Browser, tmp_path: Path) -> None:
    program = tcusim.build("reduction_k", tile="4x4x4")
    opened(browser, trace(program, default_inputs(program)).to_html(), tmp_path, width=390)
    browser.click("[data-path='4']")
    wide = (
        "[...document.querySelectorAll('#tiles .scroll')].map((e) => e.scrollWidth > e.clientWidth)"
    )
    for _ in range(2):
        assert browser.value(wide) == [False] * 4
        browser.press("h")


def test_small_tiles_and_their_result_are_in_the_first_view_of_a_phone(
    browser: Browser, tmp_path: Path
) -> None:
    program = tcusim.build("scan_t", tile="4x4x4")
    path = tmp_path / "page.html"
    path.write_text(trace(program, default_inputs(program)).to_html(), "utf-8")
    # In a frame of the site, beside its margins.
    browser.open(f"{path.as_uri()}#step=15,3,2", width=358, height=820)
    browser.wait_for("document.querySelector('#app:not([hidden])') !== null")
    ends = "[...document.querySelectorAll('#tiles figure, #account-head')].map((e) =>"
    ends += " e.getBoundingClientRect().bottom)"
    assert len(found := browser.value(ends)) == 5
    assert max(found) < 820
    told = browser.value("document.querySelector('#account-head').textContent")
    assert told.startswith("Row 3, column 2: ")


def test_everything_that_takes_keys_has_a_name(browser: Browser, page: str, tmp_path: Path) -> None:
    opened(browser, page, tmp_path)
    browser.click("[data-path='5.2']")
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]

    def takes_keys(node: dict[str, Any]) -> bool:
        properties = {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
        return not node["ignored"] and bool(properties.get("focusable"))

    found = [node for node in nodes if takes_keys(node)]
    assert len(found) > 30
    assert [node for node in found if not node.get("name", {}).get("value")] == []


@pytest.fixture(name="both", scope="module")
def two_traces() -> Comparison:
    program = tcusim.build("scan_tn_block", warps=2)
    rng = np.random.default_rng(3)
    x = rng.normal(size=1024) * 2.0 ** rng.integers(-9, 4, 1024)
    inputs = {"in": x.astype(np.float16)}
    volta, hopper = (trace(program, inputs, arch=arch, blocks=0) for arch in ("volta", "hopper"))
    return volta.compare(hopper)


def test_two_traces_stand_side_by_side(browser: Browser, both: Comparison, tmp_path: Path) -> None:
    opened(browser, both.to_html(cells=800), tmp_path)
    told = "document.querySelector('#difference').textContent"
    assert browser.value(told) == "No bit differs at this step."

    # The first difference, and then in the order of each warp's steps.
    first = both.differences[0]
    browser.press("d")
    assert browser.value(WHERE).startswith(f"step {first.frame.number} of ")
    assert browser.value(told).startswith(f"The first difference: {first.what}.")
    head = browser.value("document.querySelector('#account-head').textContent")
    assert head == f"Row {first.row}, column {first.col}"
    count = browser.value("document.querySelectorAll('#tiles .side:first-child .differs').length")
    assert count == first.count
    # Both have the digits that differ, and show this cell.
    cells = browser.value(
        "[...document.querySelectorAll('#tiles .side')].map((e) => {"
        "const cell = e.querySelector('.differs');"
        "const [one, box] = [cell, cell.closest('.scroll')].map((e) => e.getBoundingClientRect());"
        "return [cell.textContent, one.left >= box.left && one.right <= box.right]; })"
    )
    shorter = {f"{value:.5g}" for value in first.values}
    shown = shorter if len(shorter) == 2 else {str(value) for value in first.values}
    assert {text for text, _ in cells} == shown
    assert all(is_in_view for _, is_in_view in cells)
    assert count == browser.value("document.querySelectorAll('.side:last-child .differs').length")
    steps = sorted({(one.frame.warp, one.frame.number) for one in both.differences})
    browser.click("#differ-next")
    assert browser.value(WHERE).startswith(f"step {steps[1][1]} of ")
    browser.press("D")
    browser.press("D")
    assert browser.value(WHERE).startswith(f"step {steps[-1][1]} of ")
    assert browser.value("document.querySelector('#warp').value") == str(steps[-1][0])

    # Both say how an output is summed, each in its own arithmetic.
    browser.press("d")
    browser.point("[role=grid] tr:nth-child(2) td:nth-of-type(3)")
    heads = browser.value("[...document.querySelectorAll('#account h3')].map((e) => e.textContent)")
    for head, arch, side in zip(heads, ("volta", "hopper"), (both.one, both.two), strict=True):
        frame = next(
            f for f in side.frames if (f.warp, f.number) == (first.frame.warp, first.frame.number)
        )
        a, b, c = (tile.values for tile in frame.reads)
        one = tcusim.explain(a, b, c, arch=arch, cell=(1, 2))[arch]
        assert head.startswith(f"NVIDIA {arch.title()}: {one.bits} = ")
    assert browser.value("document.querySelectorAll('[role=grid] td.chosen').length") == 2
    assert browser.errors() == []


def test_two_traces_fit_a_phone(browser: Browser, both: Comparison, tmp_path: Path) -> None:
    opened(browser, both.to_html(cells=0), tmp_path, width=390, height=844)
    browser.press("d")
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    tops = "[...document.querySelectorAll('#tiles .side')].map((e) => e.offsetTop)"
    assert browser.value(f"(([a, b]) => b > a)({tops})")


def test_equal_traces_have_no_difference(browser: Browser, kept: Trace, tmp_path: Path) -> None:
    opened(browser, kept.compare(kept).to_html(cells=0), tmp_path)
    assert browser.value("document.querySelector('#differ-next').disabled")
    assert "No bit differs" in browser.value("document.querySelector('#about').textContent")


def test_an_empty_trace_says_so(browser: Browser, tmp_path: Path) -> None:
    program = tcusim.build("scan_256n")
    path = tmp_path / "page.html"
    path.write_text(trace(program, default_inputs(program), first=100).to_html(), "utf-8")
    browser.open(path)
    browser.wait_for("document.querySelector('#about').textContent.startsWith('No step is in')")


# Rules of JupyterLab for the output of a cell.
_JUPYTER = """
<style>
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th { text-align: right; padding: .5em }
.jp-RenderedHTMLCommon :not(pre) > code { background-color: silver; padding: 1px 5px }
</style>
"""


def test_the_bits_of_an_explanation_line_up_in_a_notebook(browser: Browser, tmp_path: Path) -> None:
    told = tcusim.explain([1, 2.0**-20], [1, 2.0**-4], 1, arch="volta")
    path = tmp_path / "page.html"
    shown = f'{_JUPYTER}<div class="jp-RenderedHTMLCommon">{told._repr_html_()}</div>'
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{shown}", "utf-8")
    browser.open(path)
    styles = browser.value(
        "[...document.querySelectorAll('td code')].map((e) => { const s = getComputedStyle(e);"
        "return `${s.backgroundColor} ${s.padding} ${getComputedStyle(e.parentNode).textAlign}`})"
    )
    assert len(styles) > 3
    assert set(styles) == {"rgba(0, 0, 0, 0) 0px left"}
