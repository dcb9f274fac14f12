"""Read a cubin: a kernel's resources, and its number of tensor-core instructions.

A cubin is an ELF file. Nothing but the file is needed here: no GPU, no driver, no disassembler.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tcusim.errors import InputError
from tcusim.machine.multiprocessors import RESERVED_BYTES

# The low 12 bits of a 16-byte machine instruction are its opcode.
# 0x236 is HMMA of sm_70: so shown by nvdisasm 12.8 (`HMMA.884.F32.F32.STEP0`). The others were read
# from nvdisasm 13.5 beside the bytes of WMMA kernels for sm_75, 80, 86, 89, 90, 100, 103 and 120:
# HMMA.1688, HMMA.16816 (f16, bf16) and HMMA.1684 (tf32); IMMA.8816 and IMMA.16816 (s8, u8);
# DMMA.884 and DMMA.8x8x4 (f64). Each compiled kernel had as many as nvdisasm printed.
TENSOR_CORE_OPCODES: Final[Mapping[int, str]] = MappingProxyType(
    {0x236: "HMMA.884", 0x23C: "HMMA", 0x237: "IMMA", 0x23F: "DMMA"}
)

_INSTRUCTION_BYTES: Final = 16
_OPCODE_MASK: Final = 0xFFF

# ELF64: offsets of the fields used here, and the layout of the records. Source: elf(5).
_MAGIC: Final = b"\x7fELF\x02\x01"
_CUDA_MACHINE: Final = 190
_SECTION_TABLE: Final = struct.Struct("<40xQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_NO_BITS: Final = 8  # a section that takes memory but no room in the file

# Records of `.nv.info`: a byte for the form, one for the attribute, two for the size. Form 4 is
# followed by so many bytes: here a symbol's number and a value. The attributes were established by
# comparing with the output of `ptxas -v` for sm_70 to sm_120.
_FORM_SIZED: Final = 4
_REGISTERS: Final = 0x2F
_STACK_BYTES: Final = 0x12

# From sm_90 on the first 1 KB of a block's shared memory is the system's, and the section's size
# counts it: `ptxas -v` prints so much less, of CUDA 12.6 to 13.5.
_RESERVING_SM: Final = 90

# The header's flags hold the compute capability: in bits 8 to 15 from ABI version 8 on (CUDA 12.8,
# sm_100), in bits 0 to 7 before.
_SHIFTING_ABI: Final = 8


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of one kernel, and the contents of its machine code.

    registers: of a thread. shared_bytes: static shared memory of a block. stack_bytes: local memory
    of a thread, for spilled registers and local arrays. instructions: in all, the
    padding included. tensor_core: how many of each kind, such as ``{"HMMA": 2}``; empty if none.
    On sm_70 the kind is ``"HMMA.884"``: one 16x16x16 mma takes 16 of them (f32) or 8 (f16).
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    instructions: int
    tensor_core: Mapping[str, int]


def read_usage(cubin: bytes, kernel: str) -> Usage:
    """Return the resources of the kernel of this name.

    Raises
    ------
    InputError
        If the bytes are no cubin, are cut short, or hold no such kernel.
    """
    try:
        return _usage(_Elf(cubin), kernel)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InputError(
            f"the cubin of {kernel!r} is damaged: {error}. Compile it again."
        ) from None


def _usage(elf: _Elf, kernel: str) -> Usage:
    code = elf.contents(f".text.{kernel}")
    if code is None:
        names = [name.removeprefix(".text.") for name in elf.sections if name.startswith(".text.")]
        raise InputError(
            f"the cubin holds no kernel {kernel!r}; it has {', '.join(names) or 'none'}"
        )
    opcodes = Counter(
        struct.unpack_from("<H", code, place)[0] & _OPCODE_MASK
        for place in range(0, len(code), _INSTRUCTION_BYTES)
    )
    numbers = dict(elf.numbers_of(elf.symbol(kernel)))
    shared = elf.sections.get(f".nv.shared.{kernel}")
    return Usage(
        registers=numbers.get(_REGISTERS, 0),
        shared_bytes=max(0, shared.size - elf.reserved_bytes) if shared else 0,
        stack_bytes=numbers.get(_STACK_BYTES, 0),
        instructions=opcodes.total(),
        tensor_core={
            name: opcodes[code] for code, name in TENSOR_CORE_OPCODES.items() if opcodes[code]
        },
    )


@dataclass(frozen=True, slots=True)
class _Section:
    kind: int
    offset: int
    size: int


class _Elf:
    """The sections and symbols of a 64-bit little-endian ELF file."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(_MAGIC):
            raise InputError(f"these {len(data)} bytes are no cubin: it begins with {_MAGIC!r}")
        machine = struct.unpack_from("<18xH", data)[0]
        if machine != _CUDA_MACHINE:
            raise InputError(f"the ELF file is for machine {machine}, not for an NVIDIA GPU (190)")
        self._data = data
        self.sections = dict(self._read_sections())

    @property
    def reserved_bytes(self) -> int:
        """The reserved bytes in a section of shared memory, besides the kernel's own."""
        abi: int
        flags: int
        abi, flags = struct.unpack_from("<8xB39xI", self._data)
        sm = (flags >> 8 if abi >= _SHIFTING_ABI else flags) & 0xFF
        return RESERVED_BYTES if sm >= _RESERVING_SM else 0

    def contents(self, name: str) -> bytes | None:
        """Return a section's bytes, or None if there is none of the name."""
        section = self.sections.get(name)
        if section is None:
            return None
        if section.kind == _NO_BITS:
            return b""
        end = section.offset + section.size
        if end > len(self._data):
            raise InputError(
                f"the cubin is cut short: {name} ends at byte {end} of {len(self._data)}. "
                f"Compile it again."
            )
        return self._data[section.offset : end]

    def symbol(self, name: str) -> int:
        """Return a symbol's number, -1 if there is none of the name."""
        table = self.contents(".symtab") or b""
        strings = self.contents(".strtab") or b""
        rows = enumerate(_SYMBOL.iter_unpack(table))
        return next((number for number, row in rows if _text(strings, row[0]) == name), -1)

    def numbers_of(self, symbol: int) -> Iterator[tuple[int, int]]:
        """Yield the attributes that `.nv.info` gives of a symbol, and their values."""
        info = self.contents(".nv.info") or b""
        place = 0
        while place < len(info):
            form, attribute, size = struct.unpack_from("<BBH", info, place)
            place += 4
            if form == _FORM_SIZED and size == 8:
                owner, value = struct.unpack_from("<II", info, place)
                if owner == symbol:
                    yield attribute, value
            place += size if form == _FORM_SIZED else 0

    def _read_sections(self) -> Iterator[tuple[str, _Section]]:
        (start,) = _SECTION_TABLE.unpack_from(self._data)
        size, count, of_names = struct.unpack_from("<58xHHH", self._data)
        rows = [_SECTION.unpack_from(self._data, start + size * i) for i in range(count)]
        names_at, names_size = rows[of_names][4], rows[of_names][5]
        strings = self._data[names_at : names_at + names_size]
        for row in rows:
            yield _text(strings, row[0]), _Section(kind=row[1], offset=row[4], size=row[5])


def _text(strings: bytes, start: int) -> str:
    """Return the zero-terminated text at a place of a string table."""
    end = strings.find(b"\0", start)
    if end < 0:
        raise IndexError(f"no text at {start} of a table of {len(strings)} bytes")
    return strings[start:end].decode()
