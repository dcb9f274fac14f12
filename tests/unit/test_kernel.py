"""Output of the emitter: the arguments of a kernel, its memory, and its other text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tcusim.algorithms import build
from tcusim.machine.formats import FORMATS
from tcusim.program.grammar import Buffer, BufferRole, Extent, Index
from tcusim_cuda.emit import emit
from tcusim_cuda.kernel import TICKET_WORDS, WORKSPACE, words_of


def test_arguments_are_inputs_outputs_and_scalars() -> None:
    kernel = emit(build("scan_kn", segment_size=64, carry=True))
    assert kernel.arguments == ("carry", "in", "out", "length")
    assert kernel.workspace_bytes({"length": 2048}) == 0
    assert kernel.blocks({"length": 2048}) == 2
    assert kernel.blocks({"length": 0}) == 0


@pytest.mark.parametrize(("dtype", "words"), [("f32", 1), ("f64", 2)])
def test_status_words_are_an_argument_before_the_scalars(dtype: str, words: int) -> None:
    kernel = emit(build("scan_k"))
    status = Buffer("status", dtype, Extent(Index.symbol("length"), 256), BufferRole.STATUS)
    program = replace(kernel.program, buffers=(*kernel.program.buffers, status))
    kernel = replace(kernel, program=program)
    assert kernel.arguments == ("in", "out", WORKSPACE, "length")
    # Of 391 blocks, the last one is not full.
    assert kernel.workspace_bytes({"length": 100_000}) == 8 * (TICKET_WORDS + 391 * words)


def test_a_status_word_has_half_its_bits_for_the_value() -> None:
    for name, form in FORMATS.items():
        assert words_of(name) == (2 if form.itemsize > 4 else 1)


def test_a_kernel_in_place_promises_nothing_of_its_pointers() -> None:
    kernel = emit(build("scan_k"))
    aliased = kernel.aliased()
    assert "__restrict__" in kernel.text
    assert aliased.text == kernel.text.replace(" __restrict__", "")
    assert (aliased.program, aliased.arguments) == (kernel.program, kernel.arguments)
    # Twice in place is in place.
    assert aliased.aliased().text == aliased.text
