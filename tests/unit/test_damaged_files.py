"""Files with a few bytes or fields changed end in a result or in a sentence, not a traceback."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.cli.files import read_array
from tcusim.errors import InputError, TcusimError
from tcusim.machine.unit_file import KEYS, read_unit, unit_toml
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.trace import Trace

PAIRS = [b"", b"\0", b"\xff", b"-", b"9", b"[", b'"', b"#", b",", b"\n", b"=", b"nan", b"\xc3("]


def of_bytes(rng: random.Random, whole: bytes) -> bytes:
    """Return bytes with a few replaced, inserted, deleted or repeated, or cut short."""
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        # Most of a file's metadata is at its ends.
        if rng.random() < 0.5:
            start = min(start, 200) if rng.random() < 0.5 else max(0, len(data) - start % 200)
        length = rng.choice((0, 1, 1, 4, 30))
        kind = rng.randrange(5)
        if kind == 0:
            data[start : start + length] = rng.choice(PAIRS)
        elif kind == 1:
            data[start : start + length] = rng.randbytes(length)
        elif kind == 2:
            del data[start : start + length]
        elif kind == 3:
            data[start:start] = data[start : start + length]
        elif rng.random() < 0.3:
            del data[start:]
    return bytes(data)


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    3,
    10**9,
    2**70,
    1.5,
    "",
    "x",
    "0",
    "mma",
    [],
    [0],
    {},
    {"a": 1},
)


def of_fields(rng: random.Random, content: Any) -> Any:
    """Return a value of JSON with a few of its parts replaced, deleted, repeated or exchanged."""
    content = json.loads(json.dumps(content))
    for _ in range(rng.randint(1, 2)):
        at: Any = content
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = rng.choice(keys)
            inner = isinstance(at[key], dict | list) and bool(at[key])
            if inner and rng.random() < 0.85:
                at = at[key]
                continue
            kind = rng.randrange(4)
            if kind == 0:
                del at[key]
            elif kind == 1 and isinstance(at, list):
                at.append(at[key])
            elif kind == 2:
                at[key] = at[rng.choice(keys)]
            else:
                at[key] = rng.choice(ODD)
            break
    return content


@pytest.fixture(scope="module")
def trace_content() -> dict[str, Any]:
    program = tcusim.build("scan_t", tile=tcusim.MmaShape(4, 4, 4))
    content: dict[str, Any] = json.loads(
        gzip.decompress(tcusim.trace(program, default_inputs(program)).to_bytes())
    )
    return content


def refusal(read: Callable[[Path], object], path: Path) -> str:
    """Return why a file is refused, nothing if it is not."""
    try:
        read(path)
    except TcusimError as error:
        return str(error)
    return ""


def shown(path: Path) -> None:
    trace = Trace.load(path)
    assert repr(trace)
    assert trace.left_out is not None
    assert trace.names
    assert trace.find("nan") is None or len(trace)
    assert "</html>" in trace.to_html(cells=8)
    assert trace.to_bytes()


def test_traces_with_odd_fields(trace_content: dict[str, Any], tmp_path: Path, some: Any) -> None:
    path = tmp_path / "x.trace"
    refused = 0
    for seed in range(3000 if some.full else 150):
        content = of_fields(random.Random(seed), trace_content)
        path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
        try:
            shown(path)
        except TcusimError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert refused > 100


@pytest.mark.parametrize("name", ["rest", "about", "frames", "tiles", "arrays", "version"])
def test_traces_without_a_field(trace_content: dict[str, Any], tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.trace"
    fields = trace_content[name]
    every = [{**trace_content, name: odd} for odd in ODD if odd not in (fields, [])]
    every.append({one: value for one, value in trace_content.items() if one != name})
    if isinstance(fields, dict):
        for field in set(fields) - {"place"}:
            left = {one: value for one, value in fields.items() if one != field}
            every.append({**trace_content, name: left})
    for content in every:
        path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))
        with pytest.raises(
            InputError, match=r"x\.trace (is a damaged trace|is a trace of version)"
        ):
            Trace.load(path)


@pytest.mark.parametrize("inside", [b'{"format":"tcusim trace","about":"%s"}', b"%s"])
def test_a_trace_that_unpacks_to_a_gigabyte(tmp_path: Path, inside: bytes) -> None:
    path = tmp_path / "bomb.trace"
    # Of a 64th of that size here: the file's size decides how much of it is unpacked.
    path.write_bytes(gzip.compress(inside % (b" " * 2**24 + b"x" * 2**22)))
    tracemalloc.start()
    try:
        with pytest.raises(
            InputError, match=r"bomb.trace is a damaged trace .*bytes unpack to more"
        ):
            Trace.load(path)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def array_files() -> dict[str, bytes]:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    npy, stored, packed = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(npy, array)
    np.savez(stored, rows=array)
    np.savez_compressed(packed, rows=array)
    return {
        "a.npy": npy.getvalue(),
        "stored.npz": stored.getvalue(),
        "packed.npz": packed.getvalue(),
        "a.csv": b"# x, y\n1,2.5,-3e-2\n4,inf,6\n",
        "a.txt": b"1 2\n3 4\n# end\n",
    }


FILES: dict[str, tuple[bytes, Callable[[Path], object], int]] = {
    **{name: (content, read_array, 100) for name, content in array_files().items()},
    "unit.toml": (unit_toml(tcusim.unit_of("v100")).encode(), read_unit, 60),
}


@pytest.mark.parametrize("name", FILES)
def test_files_with_a_few_bytes_changed(name: str, tmp_path: Path, some: Any) -> None:
    content, read, times = FILES[name]
    path = tmp_path / name
    refused = 0
    for seed in range(times * 20 if some.full else times):
        path.write_bytes(of_bytes(random.Random(seed), content))
        try:
            said = refusal(read, path)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        refused += name in said
        assert said.count(f"{name}: ") <= 1, said
    assert refused > 10


def test_a_units_file_is_named_once_whatever_it_says(tmp_path: Path) -> None:
    """Of every key, values that cannot be: the error begins with the file, and only begins so."""
    path, needed = tmp_path / "odd.toml", {"tiles": '"4x4x4"', "fraction_bits": "20"}
    odd = ("-1", '""', "[[1]]", "1979-05-27")
    told = set()
    for table, keys in KEYS.items():
        for key, value in itertools.product(keys, odd):
            above = {**needed, **({key: value} if table == "" else {})}
            lines = [f"{name} = {one}" for name, one in above.items()]
            if table == "figure":
                lines += ["[figures]", f"clock = {{value = 1e9, source = 'a', {key} = {value}}}"]
            elif table:
                lines.append(f"[{table}]" if table == "figures" else f"[[{table}]]")
                lines.append(f"{key} = {value}")
            path.write_text("\n".join(lines))
            if said := refusal(read_unit, path):
                told.add((table, key))
                assert said.startswith("odd.toml"), said
                assert said.count("odd.toml") == 1, said
    assert told >= {(table, key) for table, keys in KEYS.items() for key in keys} - {
        # A text of any kind is right, or the odd part here is wrong.
        *(("rules", key) for key in ("flush_inputs", "flush_outputs", "register_halves")),
    }


def test_traces_with_a_few_bytes_changed(
    trace_content: dict[str, Any], tmp_path: Path, some: Any
) -> None:
    path = tmp_path / "x.trace"
    text = json.dumps(trace_content).encode()
    packed = gzip.compress(text, mtime=0)
    for seed in range(2000 if some.full else 60):
        rng = random.Random(seed)
        inside = rng.random() < 0.7
        path.write_bytes(gzip.compress(of_bytes(rng, text), 1) if inside else of_bytes(rng, packed))
        try:
            shown(path)
        except TcusimError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_an_array_of_an_unknown_version(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(array_files()["a.npy"].replace(b"NUMPY\x01\0", b"NUMPY\x01\x07"))
    with pytest.raises(InputError, match=r"a\.npy is not an array file of NumPy"):
        read_array(path)


def test_an_archive_of_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(array_files()["stored.npz"].replace(b"rows.npy", b"\xff\xfews.npy"))
    content = bytearray(path.read_bytes())
    # The flag that says that names are UTF-8, in the directory.
    content[content.rindex(b"PK\x01\x02") + 9] |= 8
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.npz is not an \.npz file, or it is damaged"):
        read_array(path)
