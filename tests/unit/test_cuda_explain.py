"""Facts of a program without a GPU: its instruction, its text and its cubin's resources."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tcusim.algorithms import build
from tcusim.errors import Unsupported
from tcusim.machine.shapes import MmaShape
from tcusim_cuda.compile import why_no_compiler
from tcusim_cuda.emit import emit
from tcusim_cuda.explain import CudaEmitter

EMITTER = CudaEmitter()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("reduction_k", {}, "wmma m16n16k16"),
        ("reduction_k", {"tile": "32x8x16"}, "wmma m32n8k16"),
        ("reduction_k", {"tile": MmaShape(32, 32, 32)}, "grid of 2 x 2 x 2 wmma m16n16k16"),
        ("reduction_ragged_simt", {}, "without tensor core"),
    ],
)
def test_the_instruction(name: str, options: dict[str, Any], said: str) -> None:
    assert EMITTER.instruction(build(name, **options)) == said


def test_a_tile_without_an_instruction() -> None:
    assert EMITTER.instruction(build("reduction_k", tile=MmaShape(5, 7, 3))) == "lanes"


def test_the_text_is_the_kernels_and_may_stand_alone() -> None:
    program = build("reduction_k")
    assert EMITTER.emit(program) == emit(program).text
    assert '#include "tcusim.cuh"' in EMITTER.emit(program)
    alone = EMITTER.emit(program, standalone=True)
    assert "tcusim.cuh" not in re.findall(r"#include.*", alone)
    assert '#include "tcusim.cuh"' not in alone
    assert len(alone) > len(EMITTER.emit(program))


def test_a_gpu_that_lacks_the_instructions() -> None:
    program = build("reduction_k", ab="bf16")
    assert EMITTER.emit(program, sm=80)
    with pytest.raises(Unsupported, match="sm_75"):
        EMITTER.emit(program, sm=75)


@pytest.mark.usefixtures("cache")
@pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))
def test_facts_of_a_compiled_kernel() -> None:
    compiled = EMITTER.compile(build("reduction_k"), 90)
    assert compiled.code[:4] == b"\x7fELF"
    facts = compiled.facts
    assert facts["kernel"] == "reduction_k, 32 threads a block"
    assert facts["compiled for"].startswith("sm_90 by ")
    assert re.fullmatch(r"\d+ of each thread", facts["registers"])
    assert re.fullmatch(r"[1-9]\d* HMMA\S*", facts["tensor core"])
    assert facts["of each mma"].endswith("(1 mma, where loops are unrolled)")
