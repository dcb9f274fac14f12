"""Files: written arrays are read back, and each failure is a sentence."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcusim.cli.files import (
    cast_array,
    check_file_writable,
    check_writable,
    read_array,
    read_integers,
    write_array,
    write_text,
)
from tcusim.errors import InputError


def text_file(folder: Path, text: str, name: str = "data.csv") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


# --- Reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".txt"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str, dtype: type[Any]) -> None:
    array = (np.arange(12).reshape(3, 4) / 3 * 2).astype(dtype)
    write_array(tmp_path / f"a{suffix}", array)
    again = read_array(tmp_path / f"a{suffix}")
    assert np.array_equal(again.astype(dtype), array)
    assert os.listdir(tmp_path) == [f"a{suffix}"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_members_of_an_archive(tmp_path: Path, save: Any) -> None:
    file = tmp_path / "two.npz"
    save(file, rows=np.arange(3), cols=np.arange(4))
    assert read_array(file, member="cols").tolist() == [0, 1, 2, 3]
    with pytest.raises(InputError, match="several members; choose one with --member: rows, cols"):
        read_array(file)
    with pytest.raises(InputError, match="no member 'x'; its members: rows, cols"):
        read_array(file, member="x")


def test_a_header_of_format_version_2(tmp_path: Path) -> None:
    with (tmp_path / "v2.npy").open("wb") as stream:
        np.lib.format.write_array(stream, np.arange(3.0), version=(2, 0))
    assert read_array(tmp_path / "v2.npy").tolist() == [0.0, 1.0, 2.0]


def test_text_has_comments_blanks_and_both_separators(tmp_path: Path) -> None:
    text = "\ufeff# a header\n1 2.5\n\n-3e2 nan  # trailing\n"
    table = read_array(text_file(tmp_path, text, "a.txt"))
    assert table.shape == (2, 2)
    assert table[1, 0] == -300
    assert np.isnan(table[1, 1])
    assert read_array(text_file(tmp_path, "1, 2\n", "b.txt")).tolist() == [1, 2]
    assert read_array(text_file(tmp_path, "1\n2\n")).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,2\n", r"line 1, column 1: 'x' is no number; remove it, or begin the line with #"),
        ("1,2\n3,oops\n", r"line 2, column 2: 'oops' is no number; remove it$"),
        ("1,2\n3,,4\n", r"line 2, column 2: the field is empty"),
        ("1,2\n\n3\n", r"line 3: 1 numbers, but the lines above have 2"),
        ("1;2\n", r"'1;2' is no number; put commas between numbers"),
        ("# nothing\n", "holds no numbers"),
        ("1," + "x" * 50 + "\n", r"'x{20}…' is no number"),
    ],
)
def test_bad_text(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_array(text_file(tmp_path, text))


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(text: str) -> bytes:
    """Return a file in NumPy's format with this header, and some data."""
    padded = text + " " * (118 - len(text) - 1) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode() + bytes(64)


def of_shape(shape: str) -> bytes:
    return header(f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape}, }}")


WHOLE = npy(np.arange(100.0))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", b"", r"a.npy is empty \(0 bytes\)"),
        ("a.npy", b"no array at all", "not an array file of NumPy, or it is damaged or cut short"),
        ("a.npy", WHOLE[:5], "not an array file of NumPy"),
        ("a.npy", WHOLE[:40], "not an array file of NumPy"),
        ("a.npy", WHOLE[:-8], "is damaged or cut short"),
        ("a.npy", npy(np.array([{}], object)), "pickled Python objects, which are never loaded"),
        ("a.npy", npy(np.ones(3, complex)), r"complex numbers \(complex128\).*a.real and a.imag"),
        ("a.npy", npy(np.array(["x"])), "which tcusim does not take"),
        ("a.npy", npy(np.zeros(2, "i4,f4")), "records of the fields f0, f1"),
        ("a.npy", npy(np.zeros(2, "V2")), "raw bytes .*as numpy.save writes bf16"),
        ("a.npy", of_shape("(-4,)"), "is not an array file of NumPy, or it is damaged"),
        ("a.npy", of_shape("(-4, -2)"), "is damaged or cut short"),
        ("a.npy", of_shape("(2**63, 4)"), "is damaged or cut short"),
        ("a.npy", of_shape("(9223372036854775807, 4)"), "is damaged or cut short"),
        ("a.npy", of_shape("(4294967296, 4294967296)"), "is damaged or cut short"),
        ("a.npy", of_shape("(0, 99999999999999999999999)"), "is damaged or cut short"),
        ("a.npy", of_shape("(0, 4294967296, 4294967296)"), "is damaged or cut short"),
        ("a.npy", of_shape("(True,)"), "is damaged or cut short"),
        ("a.npy", of_shape("open(4)"), "is damaged or cut short"),
        ("a.npy", header("(" * 100), "is damaged or cut short"),
        ("a.npy", header("{'descr': 5, 'fortran_order': False, 'shape': (4,)}"), "is damaged"),
        ("a.npz", b"PK but no archive", "not an .npz file, or it is damaged or cut short"),
        ("a.txt", b"\xff\xfe\x00", r"is not text \(byte 0 is no UTF-8\)"),
        ("a.dat", b"1", "has the ending '.dat'; its name must end in .npy, .npz, .csv, .txt"),
        ("data", b"1", "has no ending"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_array(file)


def test_damaged_archives(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez_compressed(file, a=np.random.default_rng(0).random(1000))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged or cut short"):
        read_array(file)
    file.write_bytes(whole[:1000] + bytes(100) + whole[1100:])
    with pytest.raises(InputError, match="damaged or cut short"):
        read_array(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "no arrays")
    with pytest.raises(InputError, match="holds no arrays"):
        read_array(file)


def test_missing_files_and_directories(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*none.npy"):
        read_array(tmp_path / "none.npy")
    with pytest.raises(InputError, match="is a directory"):
        read_array(tmp_path)
    np.save(tmp_path / "a.npy", np.ones(2))
    with pytest.raises(InputError, match=r"only an .npz file has members"):
        read_array(tmp_path / "a.npy", member="x")


# --- Casting ----------------------------------------------------------------------------------


def test_a_cast_says_what_rounding_did() -> None:
    cast = cast_array(np.array([1.0, 0.1, 1e-9, np.inf, np.nan]), "f16")
    assert cast.array.dtype == np.float16
    assert (cast.changed, cast.flushed) == (2, 1)
    assert str(cast) == ("float64 to f16, 2 of 5 numbers rounded, by at most 2.44e-05; 1 became 0")
    assert str(cast_array(np.arange(9), "f16")) == "int64 to f16, every number exact"


@pytest.mark.parametrize(
    ("value", "target", "message"),
    [
        (
            70000,
            "f16",
            r"x: element \[1\] = 70000 cannot become f16, whose largest number is 65504",
        ),
        (np.inf, "e4m3", "cannot become e4m3, which has no infinity"),
        (1000, "e4m3", "cannot become e4m3, whose largest number is 448"),
        (0.5, "s8", "cannot become s8, which holds whole numbers from -128 to 127"),
        (200, "s8", "cannot become s8"),
        (np.nan, "s32", "cannot become s32"),
    ],
)
def test_a_cast_makes_no_infinity_and_no_nan(value: float, target: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cast_array(np.array([1.0, value]), target, name="x")


# --- Writing ----------------------------------------------------------------------------------


def test_text_has_the_shortest_digits(tmp_path: Path) -> None:
    write_array(tmp_path / "a.csv", np.array([[0.1, 2.0]], np.float32))
    assert (tmp_path / "a.csv").read_text() == "0.1,2.0\n"
    write_array(tmp_path / "a.txt", np.float64(0.5) * np.ones(()))
    assert (tmp_path / "a.txt").read_text() == "0.5\n"


def test_bf16_is_written_as_numbers(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    write_array(tmp_path / "a.npy", np.ones(3, ml_dtypes.bfloat16))
    assert read_array(tmp_path / "a.npy").dtype == np.float32


def test_a_check_leaves_no_trace_and_changes_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "new.npy")
    assert os.listdir(tmp_path) == []
    write_array(tmp_path / "old.npy", np.ones(2))
    check_writable(tmp_path / "old.npy")
    assert read_array(tmp_path / "old.npy").tolist() == [1, 1]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.npy"
    write_array(file, np.ones(2))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(InputError, match=r"cannot write .*a.npy: no space left on device"):
        write_array(file, np.zeros(2))
    assert os.listdir(tmp_path) == ["a.npy"]
    assert read_array(file).tolist() == [1, 1]


def test_offsets_fit_64_bits(tmp_path: Path) -> None:
    file = text_file(tmp_path, "0 3 9007199254740992\n", "a.txt")
    assert read_integers(file, "offsets").tolist() == [0, 3, 2**53]
    np.save(tmp_path / "a.npy", np.array([0, 2**63], np.uint64))
    for name, content in (("b.txt", "0 9223372036854775808\n"), ("c.txt", "-1e30 4\n")):
        text_file(tmp_path, content, name)
    for name in ("a.npy", "b.txt", "c.txt"):
        with pytest.raises(InputError, match=r"offsets must be less than 2\*\*63, got "):
            read_integers(tmp_path / name, "offsets")
    with pytest.raises(InputError, match="ids must be whole numbers, got nan"):
        read_integers(text_file(tmp_path, "0 nan\n", "d.txt"), "ids")


def test_integers_of_a_type_that_does_not_hold_all(tmp_path: Path) -> None:
    file = tmp_path / "half.npy"
    np.save(file, np.arange(40, dtype=np.float16))
    assert read_integers(file, "offsets").tolist() == list(range(40))


def test_a_device_is_written_to_and_stays_a_device() -> None:
    check_file_writable("/dev/full")
    with pytest.raises(InputError, match="cannot write /dev/full: no space left on device"):
        write_text("/dev/full", "x")
    write_text("/dev/null", "x")
    assert Path("/dev/full").is_char_device()
    assert Path("/dev/null").is_char_device()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    write_array(tmp_path / "real.npy", np.ones(2))
    link = tmp_path / "link.npy"
    link.symlink_to("real.npy")
    write_array(link, np.zeros(2))
    assert link.is_symlink()
    assert read_array(tmp_path / "real.npy").tolist() == [0, 0]


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(InputError, match="it is a directory"):
        check_writable(tmp_path / "folder.npy")
    with pytest.raises(InputError, match=r"there is no directory .*nowhere"):
        check_writable(tmp_path / "nowhere" / "a.npy")
    with pytest.raises(InputError, match=r"has the ending '.dat'"):
        check_writable(tmp_path / "a.dat")
    write_array(tmp_path / "a.npy", np.ones(2))
    # Tests may run as root, whom no permission stops.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="it exists and is read-only"):
        check_writable(tmp_path / "a.npy")
