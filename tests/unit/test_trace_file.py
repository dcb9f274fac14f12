"""The packed form of traces: tiles come back as they were."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError
from tcusim.stepper.store import About, FrameStore, PackedTile
from tcusim.stepper.trace import Trace
from tcusim.stepper.trace_file import Rest, dumped, loaded

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "version_2.trace"

REST = Rest((), 1, None, (), (0, 0, 0, 0))
ABOUT = About("p", "hopper", "f16", "f32", "", 1, "program p\n", {"1": "A ← 1"}, ())


def packed(places: int | tuple[int, int, int] | None) -> FrameStore:
    values = np.array([[1.5, -0.0], [np.nan, 7]], np.float16)
    arrays = [values, np.array([[3, 9], [4, 1]]), np.array([[True, False], [True, True]])]
    tile = PackedTile("in[1 … +9]", "src", "f16", "global", "", 0, None, places, 2)
    return FrameStore([], [tile], arrays, 0)


def test_places_are_strides_or_an_array() -> None:
    assert packed(None).tile(0).places is None
    strided, listed = packed((10, 4, 1)).tile(0).places, packed(1).tile(0).places
    assert strided is not None
    assert strided.tolist() == [[10, 11], [14, 15]]
    assert listed is not None
    assert listed.tolist() == [[3, 9], [4, 1]]


def test_bits_survive() -> None:
    rest = Rest((0,), 1, None, (1,), (0, 0, 0, 0))
    content = dumped(ABOUT, rest, packed((10, 4, 1)))
    about, again, read = loaded(content, "x")
    assert (about, again) == (ABOUT, rest)
    one, two = packed((10, 4, 1)).tile(0), read.tile(0)
    assert one.values.tobytes() == two.values.tobytes()
    assert (one.ranges, two.ranges) == (((10, 11), (14, 16)),) * 2
    assert dumped(about, again, read) == content


def test_equal_traces_are_equal_files() -> None:
    content = dumped(ABOUT, REST, FrameStore())
    assert content == dumped(ABOUT, REST, FrameStore())
    assert json.loads(gzip.decompress(content))["version"] == 2


def test_a_tile_of_another_type_is_refused() -> None:
    wrong = packed(None)
    wrong.arrays[0] = wrong.arrays[0].astype(np.float32)
    with pytest.raises(InputError, match=r"x is a damaged trace .*a tile's type does not fit"):
        loaded(dumped(ABOUT, REST, wrong), "x")


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_earlier_versions_are_read(tmp_path: Path, version: int) -> None:
    """The recorded file has masks, strides and shared memory; version 1 lacks the runner."""
    content = json.loads(gzip.decompress(RECORDED.read_bytes()))
    if version == 1:
        content["version"] = 1
        del content["about"]["place"]
    path = tmp_path / "earlier.trace"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    read = Trace.load(path)
    program = tcusim.build("reduction_k", tile="4x4x4", masked=True)
    now = tcusim.trace(program, {"in": np.arange(1, 14, dtype=np.float16)}, arch="volta")
    assert read.compare(now).differences == ()
    assert gzip.decompress(read.to_bytes()) == gzip.decompress(now.to_bytes())
