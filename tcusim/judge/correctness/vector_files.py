"""Vectors as files: memories for Verilog, arrays of NumPy, a table, or a C header."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.machine.bits import decoded
from tcusim.machine.formats import format_of
from tcusim.machine.rules import SCALES
from tcusim.machine.scaled import scales_of_bits

FORMS: Final = ("hex", "npy", "csv", "c")
MANIFEST: Final = "manifest.json"


@dataclass(frozen=True)
class Port:
    """An input or the output of a unit, and its bits in every case.

    Attributes
    ----------
    name : str
        ``"a"``, ``"b"``, ``"c"`` and ``"d"`` of an mma, ``"in"`` and ``"out"`` of a program; with
        block scales ``"scale_a"`` and ``"scale_b"``.
    type : str
        Element type, or that of scales.
    shape : tuple of int
        Of one case: a is (m, k), b (k, n), c and d (m, n), scales (m, k / block), (k / block, n).
    is_output : bool
        Whether it is the output.
    bits : array (cases, *shape) of unsigned int
        Elements in the encoding of their type.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    is_output: bool = False
    bits: NDArray[Any] = field(default_factory=lambda: np.zeros(0, np.uint8))

    @property
    def width(self) -> int:
        """Bits of an element."""
        return 8 if self.is_scale else format_of(self.type).bits

    @property
    def is_scale(self) -> bool:
        """Whether its elements are block scales."""
        return self.type in SCALES

    @property
    def values(self) -> NDArray[Any]:
        """The numbers that the bits encode."""
        if self.is_scale:
            return scales_of_bits(self.bits, self.type)
        return decoded(self.bits, format_of(self.type))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The unsigned integers of an element."""
        return np.dtype(f"u{1 if self.is_scale else format_of(self.type).itemsize}")

    def filled(self, bits: NDArray[Any]) -> Port:
        """Return the port with its bits."""
        return replace(self, bits=bits.astype(self.dtype))

    @property
    def flat(self) -> NDArray[Any]:
        """The elements of each case in the order of files, (cases, elements): rows first."""
        return self.bits.reshape(len(self.bits), -1)

    def as_json(self) -> dict[str, Any]:
        """Return the port as the manifest has it."""
        return {
            "name": self.name,
            "direction": "out" if self.is_output else "in",
            "type": self.type,
            "bits": self.width,
            "shape": list(self.shape),
        }


def file_of(form: str, ports: Sequence[Port], head: str, groups: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a form by name.

    head: a line for people. groups: of each case.
    """
    if form == "hex":
        return {f"{port.name}.hex": _memory(port, head).encode() for port in ports}
    if form == "npy":
        return {f"{port.name}.npy": _array(port) for port in ports}
    if form == "csv":
        return {"vectors.csv": _table(ports, groups).encode()}
    return {"vectors.h": _header(ports, head).encode()}


def hex_words(bits: NDArray[Any], width: int) -> list[str]:
    """Return one word for each case, in hexadecimal: element 0 is in the lowest bits.

    bits: (cases, elements) of `width` bits each.
    """
    digits = -(-bits.shape[1] * width // 4)
    if width % 4 == 0:
        # Elements are whole digits, the last one first.
        per = width // 4
        text = [[f"{one:0{per}x}" for one in row] for row in bits[:, ::-1].tolist()]
        return ["".join(row) for row in text]
    words = []
    for row in bits.tolist():
        word = 0
        for one in reversed(row):
            word = word << width | one
        words.append(f"{word:0{digits}x}")
    return words


def _memory(port: Port, head: str) -> str:
    """Return a port as `$readmemh` reads it: one word for each case."""
    elements = "x".join(map(str, port.shape))
    about = f"{port.name}: {elements} of {port.type}, {port.width} bits each, rows first"
    lines = [f"// {head}", f"// {about}; element 0 is in the lowest bits"]
    return "\n".join([*lines, *hex_words(port.flat, port.width)]) + "\n"


def _array(port: Port) -> bytes:
    stream = io.BytesIO()
    np.save(stream, port.bits, allow_pickle=False)
    return stream.getvalue()


def _columns(port: Port) -> list[str]:
    places = np.ndindex(*port.shape)
    return [f"{port.name}_{'_'.join(map(str, place))}" for place in places]


def _table(ports: Sequence[Port], groups: Sequence[str]) -> str:
    """Return one line for each case, elements in hexadecimal."""
    header = ["case", "group", *(name for port in ports for name in _columns(port))]
    lines = [",".join(header)]
    words = [
        [",".join(f"0x{one:0{-(-port.width // 4)}x}" for one in row) for row in port.flat.tolist()]
        for port in ports
    ]
    for number, row in enumerate(zip(*words, strict=True)):
        group = groups[number].replace(",", "")
        lines.append(",".join([str(number), group, *row]))
    return "\n".join(lines) + "\n"


def _header(ports: Sequence[Port], head: str) -> str:
    """Return arrays of C99, each with a row for each case."""
    count = len(ports[0].bits)
    lines = [f"/* {head} */", "#ifndef TCUSIM_VECTORS_H", "#define TCUSIM_VECTORS_H", ""]
    lines += ["#include <stdint.h>", "", f"#define TCUSIM_VECTORS {count}"]
    for port in ports:
        digits = 2 * port.dtype.itemsize
        elements = port.flat.shape[1]
        kind = f"uint{8 * port.dtype.itemsize}_t"
        shape = "x".join(map(str, port.shape))
        lines += ["", f"/* {port.name}: {shape} of {port.type}, rows first */"]
        lines += [f"static const {kind} tcusim_{port.name}[TCUSIM_VECTORS][{elements}] = {{"]
        for row in port.flat.tolist():
            lines.append(f"  {{{', '.join(f'0x{one:0{digits}x}u' for one in row)}}},")
        lines.append("};")
    return "\n".join([*lines, "", "#endif"]) + "\n"


# --- Writing ----------------------------------------------------------------------------------


def written_together(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder, all or none; the last is the manifest, which names the others.

    Where a manifest is, it is true: the old one is removed before, and the new one is put in its
    place after, all others. Files of the old one that are not written again are removed.

    Raises
    ------
    InputError
        If they cannot be written. Nothing is changed then.
    """
    made = not folder.exists()
    parts: dict[Path, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = _files_of(folder / MANIFEST) - files.keys()
        for name, content in files.items():
            part = folder / f".{name}.{os.getpid()}.part"
            parts[part] = folder / name
            part.write_bytes(content)
        (folder / MANIFEST).unlink(missing_ok=True)
        for name in old:
            (folder / name).unlink(missing_ok=True)
        for part, path in parts.items():
            part.replace(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot write vectors to {folder}: {reason}") from error
    finally:
        # They are left after an error, and where somebody interrupts the command.
        for part in parts:
            part.unlink(missing_ok=True)
        if made and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _files_of(manifest: Path) -> set[str]:
    """Return the files beside a manifest that it names; none without one."""
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        names = {str(one["name"]) for one in found["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return {name for name in names if Path(name).name == name}
