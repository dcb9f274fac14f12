"""The kernels of tcusim microbench compile, and hold the instructions that are timed."""

from __future__ import annotations

import re
import struct
from collections import Counter

import pytest

from tcusim.errors import Unsupported
from tcusim.machine import unit_of
from tcusim.machine.shapes import shape_of
from tcusim_cuda.compile import Toolkit, compile_text, why_no_compiler
from tcusim_cuda.cubin import read_usage
from tcusim_cuda.microbench import texts as probe_texts
from tcusim_cuda.microbench.probes import probes
from tcusim_cuda.microbench.texts import A_ROUND, mma_text

REASON = why_no_compiler()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.usefixtures("cache"),
]

# Instructions of the machine for one product: as in tests/emit/test_machine_code.py.
PRODUCTS = (
    ("16x16x16", "f16", "f32", "wmma", 90, "HMMA", 2),
    ("16x16x16", "f16", "f32", "wmma", 70, "HMMA.884", 16),
    ("16x8x16", "bf16", "f32", "mma.sync", 90, "HMMA", 1),
    ("8x8x4", "f64", "f64", "mma.sync", 90, "DMMA", 1),
)


def need(sm: int) -> int:
    if sm not in Toolkit.find(sm).targets:
        pytest.skip(f"{Toolkit.find(sm).title} does not compile for sm_{sm}")
    return sm


@pytest.mark.parametrize(
    "product", PRODUCTS, ids=lambda one: f"{one[3]} {one[0]} {one[1]} {one[4]}"
)
def test_a_round_has_its_products(product: tuple[str, str, str, str, int, str, int]) -> None:
    tile, ab, acc, family, sm, name, each = product
    code = compile_text("probe", mma_text(shape_of(tile), ab, acc, family), need(sm))
    for kernel in ("chain", "beside"):
        usage = read_usage(code, kernel)
        assert usage.stack_bytes == 0
        # The compiler may unroll a loop's rounds, too.
        assert usage.tensor_core[name] % (each * A_ROUND) == 0
        assert usage.tensor_core[name] > 0


def test_no_probe_is_left_out_by_the_compiler() -> None:
    """A round has its loads and shuffles, however often the compiler unrolls it."""
    for text, kernels, opcode in (
        (probe_texts.SHUFFLE, ("shuffle_chain", "shuffle_beside"), SHFL),
        (probe_texts.SHARED, ("shared_read_16", "shared_stride_32", "shared_chase"), LDS),
    ):
        code = compile_text("probe", text, need(90))
        for kernel in kernels:
            found = opcodes(code, kernel)[opcode]
            assert found > 0, kernel
            assert found % A_ROUND == 0, kernel


def test_the_largest_block_has_registers() -> None:
    """A core has 65,536; by default 1,024 threads share them, and none is spilled."""
    for text, threads in (
        (probe_texts.SHARED, probe_texts.SHARED_THREADS),
        (probe_texts.BARRIER, 1024),
    ):
        code = compile_text("probe", text, need(90))
        kernels = re.findall(r"^KERNEL .*?(\w+)\(long long", text, re.MULTILINE)
        assert kernels
        for kernel in kernels:
            usage = read_usage(code, kernel)
            assert 0 < usage.registers <= 65_536 // threads, kernel
            assert usage.stack_bytes == 0, kernel


# The low 12 bits of instructions of sm_90, as nvdisasm shows them beside their bytes.
SHFL, LDS = 0xF89, 0x984


def opcodes(code: bytes, kernel: str) -> Counter[int]:
    """Count the instructions of a kernel in an ELF file by the low bits of their first word."""
    (table,) = struct.unpack_from("<Q", code, 40)
    count, names = struct.unpack_from("<HH", code, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", code, table + 64 * i) for i in range(count)]
    strings = rows[names][4]
    for name, _, _, _, start, size, *_ in rows:
        title = code[strings + name : code.index(b"\0", strings + name)].decode()
        if title == f".text.{kernel}":
            words = (struct.unpack_from("<Q", code, start + i)[0] for i in range(0, size, 16))
            return Counter(word & 0xFFF for word in words)
    raise KeyError(kernel)


OTHERS = sorted({name for name in probe_texts.__all__ if name.isupper()} - {"WMMA_TYPES"})


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_kernels_compile(name: str) -> None:
    text = getattr(probe_texts, name)
    if isinstance(text, str):
        assert compile_text(name, text, need(90)).startswith(b"\x7fELF")


@pytest.mark.full
@pytest.mark.parametrize(("unit", "sm"), [("h200", 90), ("v100", 70), ("a100", 80)])
def test_every_kernel_compiles(unit: str, sm: int) -> None:
    texts = [probe.text for probe in probes(unit_of(unit), need(sm)) if probe.text]
    assert len(texts) > 12
    for text in dict.fromkeys(texts):
        compile_text("probe", text, sm)


def test_a_refused_text_is_a_sentence() -> None:
    with pytest.raises(Unsupported, match=r"mine: NVRTC .* refused it for sm_90: .*error"):
        compile_text("mine", 'extern "C" __global__ void k() { nothing(); }', need(90))
