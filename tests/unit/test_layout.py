"""Where tiles and their cells go on the screen: each once, none over another."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tcusim
from some import Some
from stepped import frames
from tcusim.stepper.frames import Frame, default_inputs
from tcusim.stepper.layout import Block, Picture, Spot, folded_block, picture_of
from tcusim.stepper.panes import panes_of


def all_frames(name: str, **options: Any) -> list[Frame]:
    program = tcusim.build(name, **options)
    return list(frames(program, default_inputs(program)))


def count_of(block: Block) -> int:
    """Return the number of cells that a block has."""
    return sum(map(len, block.lines))


def occupied(picture: Picture) -> Counter[tuple[int, int]]:
    """Return the number of texts at each place of the screen."""
    taken: Counter[tuple[int, int]] = Counter()
    for block in picture.blocks:
        for line, text in enumerate(block.head):
            taken.update((block.x + i, block.y + line) for i in range(len(text)))
        for number in range(count_of(block)):
            x, y, width = block.place(number)
            taken.update((x + i, y) for i in range(width))
            assert number in dict(block.cells(y))
    return taken


@pytest.mark.parametrize(
    "name", ["scan_256n", "scan_ragged", "scan_ragged_simt", "reduction_ragged_simt"]
)
@pytest.mark.parametrize(("number", "width"), [(0, 10), (1, 78), (2, 200)])
def test_nothing_lies_over_another(name: str, number: int, width: int, some: Some) -> None:
    for frame in some(all_frames(name), 4, number):
        picture = picture_of(panes_of(frame), width)
        assert len(picture.blocks) == len(frame.reads) + len(frame.writes)
        taken = occupied(picture)
        assert not taken or max(taken.values()) == 1
        assert all(x < picture.width and y < picture.height for x, y in taken)
        for number, block in enumerate(picture.blocks):
            rows, columns = block.tile.values.shape
            last = picture.spot(Spot(number, rows - 1, columns - 1))
            assert last == (block, count_of(block) - 1)
            assert picture.spot(Spot(number, rows, 0)) is None
        assert picture.spot(Spot(len(picture.blocks), 0, 0)) is None


@pytest.mark.parametrize("chosen", range(4))
@pytest.mark.parametrize("height", [10, 14, 24, 44])
def test_without_room_other_tiles_are_lines(chosen: int, height: int) -> None:
    product = next(frame for frame in all_frames("reduction_16") if frame.kind == "mma")
    picture = picture_of(panes_of(product), 78, height, chosen=chosen)
    heads = [block.head for block in picture.blocks]
    assert picture.blocks[chosen].lines
    assert max(occupied(picture).values()) == 1
    lines = [head[0] for head in heads if len(head) == 1]
    assert all(len(line) <= 78 for line in lines)
    whole = picture_of(panes_of(product), 78)
    if height >= whole.height:
        assert picture == whole
        return
    assert lines
    full = 2 + 16
    assert picture.height <= max(height, full + len(heads) - 1)
    if chosen and len(heads[0]) == 1:
        assert lines[0] == "a: P  16x16 f16  row 0: all 1, rows 1 to 15: all 0"


def test_texts_are_those_of_the_tile() -> None:
    product = next(frame for frame in all_frames("scan_256n") if frame.kind == "mma")
    picture = picture_of(panes_of(product, constants=("U",)), 100)
    a, u, s, d = picture.blocks
    texts = [f"{value:.0f}" for value in product.reads[0].values.ravel()]
    assert [a.text(number) for number in range(256)] == texts
    assert (count_of(s), s.text(0), s.look(0)) == (1, "all 0", "zero")
    assert s.is_said_in_words
    assert "constant" in u.head[1]
    assert {u.look(number) for number in range(256)} == {"zero", "constant"}
    assert {d.look(number) for number in range(256)} == {"changed"}
    # All changed: the head says so, rather than each cell.
    assert "all changed" in d.head[1]
    assert d.mark(0) == " "
    bits = picture_of(panes_of(product, hexadecimal=True), 100).blocks[3]
    assert bits.text(0) == f"{product.writes[0].values[0, 0].view(np.uint32):08x}"


def test_marks_tell_without_colours() -> None:
    store = next(frame for frame in all_frames("reduction_256n") if frame.path == "11")
    some = picture_of(panes_of(store), 100).blocks[-1]
    changed = store.writes[0].changed.ravel()
    assert 0 < changed.sum() < changed.size
    assert [some.mark(number) == "*" for number in range(changed.size)] == changed.tolist()


@pytest.mark.parametrize(
    ("name", "shape"), [("scan_ragged_simt", (1, 256)), ("reduction_ragged_simt", (256, 1))]
)
def test_rows_and_columns_are_folded(name: str, shape: tuple[int, int]) -> None:
    every = all_frames(name, segment_size=256, rows_per_warp=1)
    shown = (frame for frame in every if frame.reads)
    first = next(frame for frame in shown if frame.reads[0].values.shape == shape)
    block = folded_block(panes_of(first)[0], 50)
    across = len(block.widths)
    assert across % 8 == 0
    assert across > 8
    assert block.width <= 50
    assert block.place(across)[:2] == (0, 3)


@pytest.mark.parametrize("name", ["reduction_k", "scan_tn", "scan_ragged", "gemm"])
@pytest.mark.parametrize("hexadecimal", [False, True])
def test_small_tiles_fit_a_common_terminal(name: str, hexadecimal: bool) -> None:
    """The tiles' pane of 80 x 24 has 12 lines of 76 columns."""
    program = tcusim.build(name, tile="4x4x4")
    products = 0
    for frame in frames(program, default_inputs(program)):
        tiles = (*frame.reads, *frame.writes)
        if len(tiles) > 4 or any(max(tile.values.shape) > 4 for tile in tiles):
            continue
        picture = picture_of(
            panes_of(frame, hexadecimal=hexadecimal, constants=("P", "U", "Z", "L")), 76
        )
        assert (picture.width <= 76, picture.height <= 12) == (True, True), frame.line
        products += frame.kind == "mma"
    assert products
