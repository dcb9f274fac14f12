"""The picture of a map: every element once for each lane that holds it, in its place."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tcusim.machine.layouts.fragment_layout import layout
from tcusim.machine.layouts.picture import drawing_of, fragment_of, grid_text, lane_text

SVG = "{http://www.w3.org/2000/svg}"
CASES = [
    ("m16n8k16", "a", {}),
    ("m16n8k16", "b", {}),
    ("m16n8k256", "b", {}),
    ("m8n8k4", "c", {"family": "mma.sync", "ab": "f16"}),
    ("16x16x16", "a", {"arch": "volta"}),
    ("16x16x16", "b", {"arch": "volta", "order": "row"}),
]


@pytest.mark.parametrize(("shape", "operand", "options"), CASES)
def test_cells_tile_the_matrix(shape: str, operand: str, options: dict[str, str]) -> None:
    found = layout(shape, operand, **options)
    root = ElementTree.fromstring(drawing_of(found))
    lanes = [group for group in root.iter(f"{SVG}g") if group.get("class") == "lane"]
    assert len(lanes) == 32
    boxes: dict[int, list[tuple[float, ...]]] = {}
    for lane, group in enumerate(lanes):
        assert (group.get("aria-label") or "").startswith(f"lane {lane}: ")
        assert all((text.text or "").startswith(f"T{lane}:") for text in group.iter(f"{SVG}text"))
        for rect in group.iter(f"{SVG}rect"):
            x, y, width, height = (
                float(rect.get(name, "")) for name in ("x", "y", "width", "height")
            )
            boxes.setdefault(int(found.tiles[lane]), []).append((x, y, x + width, y + height))
    # The cells of each tile fill its rectangle, and so do not overlap.
    for own in boxes.values():
        left, top = (min(box[side] for box in own) for side in (0, 1))
        right, bottom = (max(box[side] for box in own) for side in (2, 3))
        area = sum((box[2] - box[0]) * (box[3] - box[1]) for box in own)
        assert area == pytest.approx((right - left) * (bottom - top), rel=0.01)
        assert len({box[:2] for box in own}) == len(own)
        assert right <= float(root.get("width", ""))
        assert bottom <= float(root.get("height", ""))


def test_text() -> None:
    found = layout("m16n8k16", "c", acc="f32")
    lines = grid_text(found).splitlines()
    assert lines[0].split() == ["col", "0-1", "2-3", "4-5", "6-7"]
    assert lines[10].split() == ["row", "9", "T4:2-3", "T5:2-3", "T6:2-3", "T7:2-3"]
    assert lane_text(found, 7).splitlines() == [
        "lane 7",
        "  c[0-1] (registers 0-1)  row 1, columns 6-7",
        "  c[2-3] (registers 2-3)  row 9, columns 6-7",
    ]
    twice = grid_text(layout("16x16x16", "a", arch="volta"))
    assert "row   3  T3:0-15/T11:0-15" in twice
    tiles = grid_text(layout("8x8x4", "a", family="mma.sync", ab="f16"))
    assert [line for line in tiles.splitlines() if line.startswith("tile")] == [
        f"tile {i}" for i in range(4)
    ]


def test_it_asks_for_nothing_and_tells_the_same_as_a_table() -> None:
    shown = fragment_of(layout("m16n8k16", "a"))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", shown)
    assert "<script" not in shown
    assert shown.count('<tr><th scope="row">') == 32
    assert "a[6-7] (register 3): row 9, columns 10-11" in shown
