"""Read arrays from files and write them, for the `tcusim` command: every failure is a sentence.

A file is read whole or not at all, and appears whole or not at all.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import click
import numpy as np
from numpy.lib import format as formats
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine import Format, format_of, from_values, round_values

Array: TypeAlias = NDArray[Any]

_SUFFIXES: Final = (".npy", ".npz", ".csv", ".txt")

# The characters that a message shows of a field that is no number.
_LONGEST_QUOTE: Final = 20


# --- Reading ----------------------------------------------------------------------------------


def read_array(path: str | Path, *, member: str | None = None) -> Array:
    """Return the array of real numbers that a .npy, .npz, .csv or .txt file holds, or a text is.

    Numbers with commas between them, 1,2,3, stand for a file where there is none of this name.
    A .csv file has numbers with commas between them, a .txt file with blanks or commas; ``#``
    begins a comment. Text becomes float64; a single row or column gives an array of one axis. The
    member is the array to take from an .npz file; it is needed where there are several.

    Raises
    ------
    InputError
        If there is no such file, or it is damaged, or it holds no real numbers.
    """
    file = Path(path)
    if file.is_dir():
        raise InputError(f"{file} is a directory; name a file: {', '.join(_SUFFIXES)}")
    if not file.exists():
        if member is None and (numbers := _listed(str(path))) is not None:
            return numbers
        raise InputError(f"there is no file {file}")
    if file.stat().st_size == 0:
        raise InputError(f"{file} is empty (0 bytes)")
    suffix = _suffix(file)
    if member is not None and suffix != ".npz":
        raise InputError(f"{file}: only an .npz file has members; leave out the member {member!r}")
    try:
        if suffix == ".npy":
            with file.open("rb") as stream:
                return _read_npy(stream, str(file))
        if suffix == ".npz":
            return _read_npz(file, member)
        return _read_text(file, suffix)
    except OSError as error:
        raise _failed("read", file, error) from error
    except MemoryError as error:
        raise InputError(
            f"{file} is damaged, or its array does not fit in memory ({error})"
        ) from error


def _listed(text: str) -> Array | None:
    """Return numbers with commas between them, such as 1,2,3, in place of a file; else None."""
    words = text.split(",")
    try:
        return np.array([float(word) for word in words]) if len(words) > 1 else None
    except ValueError:
        return None


def read_integers(path: str | Path, what: str) -> Array:
    """Return offsets, or other integers, from a file; the floats of text must be integers.

    Raises InputError if the file cannot be read, or a number is not whole or exceeds 64 bits.
    """
    given = read_array(path)
    if given.dtype.kind not in "biu":
        # Types of few bits do not hold 2**63.
        given = given.astype(np.float64)
    whole = np.isfinite(given) & (given == np.floor(given))
    if not whole.all():
        raise InputError(f"{path}: {what} must be whole numbers, got {given[~whole][0]:g}")
    # No float lies between these and the largest integer of 64 bits.
    large = (given >= 2.0**63) | (given < -(2.0**63))
    if large.any():
        raise InputError(f"{path}: {what} must be less than 2**63, got {given[large][0]:g}")
    return given.astype(np.int64)


def _suffix(file: Path) -> str:
    suffix = file.suffix.lower()
    if suffix not in _SUFFIXES:
        named = f"the ending {suffix!r}" if suffix else "no ending"
        raise InputError(f"{file} has {named}; its name must end in {', '.join(_SUFFIXES)}")
    return suffix


def _failed(verb: str, file: Path, error: OSError) -> InputError:
    # NumPy's errors have no reason: it could not write all bytes.
    reason = error.strerror or f"the disk may be full ({error})"
    return InputError(f"cannot {verb} {file}: {reason.lower()}")


def _read_npy(stream: IO[bytes], name: str) -> Array:
    """Read one array of real numbers in NumPy's format."""
    with _damage(name, "an array file of NumPy", "numpy.save"):
        array = np.asarray(formats.read_array(stream, allow_pickle=False))
    dtype, fields = array.dtype, array.dtype.names or ()
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return array
    what = _OTHER_TYPES.get("fields" if fields else dtype.kind, _OTHER_TYPES["other"])
    raise InputError(f"{name} holds {what.format(dtype=dtype, fields=', '.join(fields))}")


# What messages say of types other than real numbers, by the kind of the dtype.
_OTHER_TYPES: Final = {
    "c": "complex numbers ({dtype}), tensor cores take real ones; write a.real and a.imag as two "
    "files",
    "fields": "records of the fields {fields}; write one of them",
    "V": "raw bytes ({dtype}), as numpy.save writes bf16 and fp8 arrays; write "
    "a.astype(numpy.float32), and name its type when you read it",
    "other": "{dtype}, which tcusim does not take; write integers or floats of at most 64 bits",
}


def _read_npz(file: Path, member: str | None) -> Array:
    with _damage(str(file), "an .npz file", "numpy.savez"), zipfile.ZipFile(file) as archive:
        name = _member(file, archive, member)
        with archive.open(name) as stream:
            return _read_npy(stream, f"{file}, member {name.removesuffix('.npy')!r}")


@contextmanager
def _damage(name: str, kind: str, writer: str) -> Iterator[None]:
    """Report any error of NumPy or zipfile as damage: they raise nearly anything."""
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        if "Object arrays" in str(error):
            raise InputError(
                f"{name} holds pickled Python objects, which are never loaded, as they may run "
                f"code; write an array of numbers, such as a.astype(float)"
            ) from error
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{name} is not {kind}, or it is damaged or cut short ({reason}); copy it again, or "
            f"write it again with {writer}"
        ) from error


def _member(file: Path, archive: zipfile.ZipFile, member: str | None) -> str:
    """Return the archive's name of the member that is meant."""
    names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if not names:
        raise InputError(f"{file} holds no arrays; write it again with numpy.savez")
    listed = ", ".join(names)
    if member is None and len(names) > 1:
        raise InputError(f"{file} has several members; choose one with --member: {listed}")
    if member is not None and member not in names:
        raise InputError(f"{file} has no member {member!r}; its members: {listed}")
    return f"{names[0] if member is None else member}.npy"


# --- Text -------------------------------------------------------------------------------------


def _read_text(file: Path, suffix: str) -> Array:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not text (byte {error.start} is no UTF-8)") from error
    comma = suffix == ".csv" or "," in text
    rows: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        data = line.partition("#")[0].strip()
        if not data:
            continue
        words = data.split("," if comma else None)
        rows.append([_number(file, number, *word) for word in enumerate(words, start=1)])
        if len(rows[-1]) != len(rows[0]):
            raise InputError(
                f"{file}, line {number}: {len(rows[-1])} numbers, but the lines above have "
                f"{len(rows[0])}; every line must have as many"
            )
    if not rows:
        raise InputError(f"{file} holds no numbers")
    table = np.array(rows, np.float64)
    return table.ravel() if 1 in table.shape else table


def _number(file: Path, line: int, column: int, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        word = word.strip()
    where = f"{file}, line {line}, column {column}"
    if not word:
        raise InputError(f"{where}: the field is empty; every field must hold a number")
    if len(word) > _LONGEST_QUOTE:
        word = word[:_LONGEST_QUOTE] + "…"
    remedy = "put commas between numbers" if any(c in word for c in "; \t") else "remove it"
    if line == 1:
        remedy += ", or begin the line with # if it is a header"
    raise InputError(f"{where}: {word!r} is no number; {remedy}")


# --- Casting ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cast:
    """The changes of an array's numbers when they were cast.

    source: the type in the file, as NumPy calls it; target: the new one, such as ``"f16"``.
    changed: how many numbers were rounded, by at most `largest_change`; flushed: how many other
    than 0 became 0.
    """

    array: Array
    source: str
    target: str
    changed: int = 0
    largest_change: float = 0.0
    flushed: int = 0

    def __str__(self) -> str:
        if not self.changed:
            return f"{self.source} to {self.target}, every number exact"
        text = (
            f"{self.source} to {self.target}, {self.changed} of {self.array.size} numbers "
            f"rounded, by at most {self.largest_change:.3g}"
        )
        return f"{text}; {self.flushed} became 0" if self.flushed else text


def cast_array(array: Array, target: str, *, name: str = "the input") -> Cast:
    """Cast real numbers to an element type such as ``"f16"``, rounded once to nearest even.

    s8, u8 and s32 take whole numbers only. An error calls the array by its name.

    Raises
    ------
    InputError
        If a finite number would become infinite or NaN, or does not fit an integer type.
    """
    wanted = format_of(target)
    wide = np.asarray(array, np.float64)
    with np.errstate(all="ignore"):
        values = round_values(wide, wanted) if wanted.is_float else wide.astype(wanted.dtype)
        allowed = ~np.isfinite(wide) if wanted.has_inf else np.isnan(wide)
        lost = ~np.isfinite(values) & ~allowed
        if not wanted.is_float:
            lost = values.astype(np.float64) != wide
        change = np.abs(values.astype(np.float64) - wide)
    if lost.any():
        raise InputError(_loss(wide, lost, wanted, name))
    change[~np.isfinite(wide)] = 0.0
    return Cast(
        array=from_values(values, wanted),
        source=str(array.dtype),
        target=wanted.name,
        changed=int(np.count_nonzero(change)),
        largest_change=float(change.max(initial=0.0)),
        flushed=int(np.count_nonzero((values == 0) & (wide != 0))),
    )


def _loss(wide: Array, lost: NDArray[np.bool_], target: Format, name: str) -> str:
    """Name the number that cannot be cast, the reason, and a remedy."""
    where = tuple(int(i) for i in np.argwhere(lost)[0])
    place = f"element {list(where)} = {wide[where]:g}" if where else f"its number {wide[where]:g}"
    text = f"{name}: {place} cannot become {target.name}"
    if not target.is_float:
        low, high = int(target.smallest), int(target.largest)
        return f"{text}, which holds whole numbers from {low} to {high}; choose a float type"
    if not np.isfinite(wide[where]):
        return f"{text}, which has no infinity; remove it, or choose another type"
    return (
        f"{text}, whose largest number is {target.largest:g}; "
        f"scale the numbers, or choose a type of more range, such as bf16 or f32"
    )


# --- Writing ----------------------------------------------------------------------------------


def check_writable(path: str | Path) -> None:
    """Raise InputError if `write_array` could not write this file; leave no trace."""
    _suffix(Path(path))
    check_file_writable(path)


def write_array(path: str | Path, array: Array) -> None:
    """Write an array as .npy, .npz (member ``result``), .csv or .txt; InputError if that fails.

    An existing file is replaced, as by `numpy.save`, once the new one is complete. Text has one
    line for each row, leading axes run together, and the shortest digits that give the same bits.
    bf16 is written as float32.
    """
    file = Path(path)
    suffix = _suffix(file)
    if array.dtype.kind == "V":
        # numpy.save would write bf16 as raw bytes, and no reader takes those for numbers.
        array = array.astype(np.float32)
    with _replacing(file) as stream:
        if suffix == ".npy":
            np.save(stream, array, allow_pickle=False)
        elif suffix == ".npz":
            np.savez(stream, result=array)
        else:
            rows = array.reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
            np.savetxt(stream, rows, fmt="%s", delimiter="," if suffix == ".csv" else " ")


def check_file_writable(path: str | Path) -> None:
    """Raise InputError if `write_text` and `write_bytes` could not write this; leave no trace."""
    with _replacing(Path(path), keep=False):
        pass


def write_text(path: str | Path, text: str) -> None:
    """Write a text in UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_page(path: str | Path, text: str) -> None:
    """Write a page or a drawing as `write_text` does, and say so."""
    write_text(path, text)
    say_written(path)


def say_written(path: str | Path) -> None:
    """Name the written file on stderr, since the command may print nothing else."""
    click.echo(f"wrote {path}", err=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file, in place of one that is there once all is written; InputError if it fails."""
    with _replacing(Path(path)) as stream:
        stream.write(content)


@contextmanager
def _replacing(file: Path, *, keep: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary stream beside the file; it replaces the file on success."""
    # A link stays a link: it is the file behind it that is replaced.
    target = Path(os.path.realpath(file))
    if target.is_dir():
        raise InputError(f"cannot write {file}: it is a directory")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {file}: there is no directory {target.parent}")
    if target.exists() and not os.access(target, os.W_OK):
        raise InputError(f"cannot write {file}: it exists and is read-only")
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            # A device such as /dev/null, or a pipe, is written to: nothing may take its place.
            with target.open("wb") if keep else open(os.devnull, "wb") as stream:
                yield stream
            return
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with part.open("xb") as stream:
                yield stream
            if keep:
                part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _failed("write", file, error) from error
