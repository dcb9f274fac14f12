"""The panes: strips of memory, and where they scroll to."""

from __future__ import annotations

import numpy as np
import pytest

import tcusim
from stepping_screen import Driver, drive, warps_of
from tcusim.stepper.frames import Tile
from tcusim.stepper.panes import Pane
from tcusim.stepper.screen.widgets import ListingPane, TilesPane, bar_of, scrolled


@pytest.mark.parametrize(
    ("ranges", "size", "expected"),
    [
        ([(0, 512)], 1024, "####····"),
        ([(512, 768)], 1024, "····##··"),
        # The least part of a buffer is seen.
        ([(0, 1)], 10**6, "#·······"),
        ([(10**6 - 1, 10**6)], 10**6, "·······#"),
        ([(0, 128), (896, 1024)], 1024, "#······#"),
        ([], 1024, "········"),
        ([], 0, "········"),
        ([(0, 3)], 3, "########"),
        # A trace knows a buffer as far as it is touched.
        ([(4, 8)], 0, "····####"),
    ],
)
def test_a_strip_of_memory(ranges: list[tuple[int, int]], size: int, expected: str) -> None:
    assert bar_of(ranges, size, 8, "#") == expected


@pytest.mark.parametrize(
    ("places", "inside", "text"),
    [
        ([[4, 5], [6, 7]], 4, "reads 4 to 7"),
        ([[4, 5], [8, 9]], 4, "reads 4 to 9 in 2 parts"),
        ([[4, 4], [4, 4]], 4, "reads 4"),
        ([[4, 5], [8, 9]], 2, "reads 4 to 5"),
        ([[4, 5], [8, 9]], 0, "reads nothing"),
    ],
)
def test_the_words_beside_a_strip(places: list[list[int]], inside: int, text: str) -> None:
    mask = np.arange(4).reshape(2, 2) < inside
    tile = Tile("in[4]", "src", "f32", "global", np.zeros((2, 2)), None, np.array(places), mask)
    assert Pane(tile, "reads").strip == text


def test_a_tile_that_fits_is_seen_as_a_whole() -> None:
    # Where it is; room; the tile's begin and size; the cell's.
    assert scrolled(0, 20, (5, 10), (9, 1)) == 0
    assert scrolled(0, 20, (15, 10), (16, 1)) == 5
    assert scrolled(30, 20, (15, 10), (16, 1)) == 15
    # Of one that does not fit, its head, while the cell is near; then the cell.
    assert scrolled(0, 10, (15, 18), (17, 1)) == 15
    assert scrolled(15, 10, (15, 18), (30, 1)) == 21
    assert scrolled(21, 10, (15, 18), (29, 1)) == 21


def test_every_line_of_a_long_listing_comes_into_view() -> None:
    program = tcusim.build("scan_single_pass", warps=8, columns=2)

    async def play(driver: Driver) -> None:
        listing = driver.app.query_one(ListingPane)
        for _ in range(25):
            driver.app.action_step(1)
            height = listing.scrollable_content_region.height
            top = round(listing.scroll_offset.y)
            current = next(n for n in range(10**4) if listing.line_text(n).startswith("▶"))
            assert top <= current < top + height
            assert listing.line_text(current).split()[1] == driver.frame.path

    drive(warps_of(program), play)


def test_the_cursor_is_always_in_view() -> None:
    async def play(driver: Driver) -> None:
        await driver.press("g")
        await driver.type("5.11 i=2")
        tiles = driver.app.query_one(TilesPane)
        for move in ((15, 0), (0, 15), (-15, 0), (0, -15)):
            driver.app.action_cell(*move)
            shown = tiles.cursor_region
            assert shown is not None
            size = tiles.scrollable_content_region
            offset = tiles.scroll_offset
            assert offset.y <= shown.y < offset.y + size.height
            assert offset.x <= shown.x
            assert shown.right <= offset.x + size.width + 1

    drive(warps_of(tcusim.build("scan_256n")), play)
