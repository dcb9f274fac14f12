"""The emitted text: whole golden files, required lines, refusals, and planted bugs."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import segmented_algorithms
from tcusim.backends import Backend
from tcusim.errors import AgreementError, Unsupported
from tcusim.judge.correctness.testing import assert_agree, random_inputs
from tcusim.program.grammar import Assign, Mma, Program, Step, walk
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.interpreter import State
from tcusim.simulate.schedule import Schedule
from tcusim_cuda.emit import Emitter, emit
from tcusim_cuda.instructions import instruction_for, native, rule_of_lanes

WMMA_SHAPES = ("16x16x16", "32x8x16", "8x32x16")
ALGORITHMS = [row.name for row in segmented_algorithms()]

# One program of each family, and one for each thing that the emitter does besides.
GOLDEN: dict[str, tuple[str, dict[str, Any]]] = {
    "reduction_16": ("reduction_16", {}),
    "reduction_256_f16": ("reduction_256", {"acc": "f16"}),
    "reduction_256n": ("reduction_256n", {}),
    "reduction_16n_coalesced": ("reduction_16n_coalesced", {}),
    "reduction_tn_ragged": (
        "reduction_tn",
        {"masked": True, "segment_size": 1000, "combine": "add", "result": "f16"},
    ),
    "reduction_kn_bf16_parts": (
        "reduction_kn",
        {"ab": "bf16", "source": "f32", "combine": "add"},
    ),
    "reduction_t_grid": ("reduction_t", {"tile": (32, 32, 32)}),
    "scan_16": ("scan_16", {}),
    "scan_256": ("scan_256", {}),
    "scan_256n_two_warps": ("scan_256n", {"warps": 2, "masked": True, "segment_size": 300}),
    "scan_kn_8x32x16": ("scan_kn", {"tile": "8x32x16", "side": "b"}),
    "scan_kn_mma_sync": ("scan_kn", {"tile": "16x8x16"}),
    "scan_k_tf32": ("scan_k", {"tile": "16x16x8", "ab": "tf32"}),
    "scan_ragged_simt": ("scan_ragged_simt", {}),
    "reduction_256n_block": ("reduction_256n_block", {"warps": 4}),
    "scan_256n_block_ragged": (
        "scan_256n_block",
        {"warps": 4, "masked": True, "segment_size": 2000, "combine": "add"},
    ),
    "gemm_four_warps": (
        "gemm",
        {"warps": 4, "cols": 64, "inner": 128, "down": 1, "across": 1, "result": "f16"},
    ),
    "reduction_single_pass": ("reduction_single_pass", {"warps": 2, "columns": 4}),
    "gemv_reduction": ("gemv_reduction", {"warps": 2, "inner": 256, "tile": "8x32x16"}),
}


def build(algorithm: str, options: Mapping[str, Any]) -> Program:
    given = dict(options)
    if isinstance(given.get("tile"), tuple):
        given["tile"] = tcusim.MmaShape(*given["tile"])
    return tcusim.build(algorithm, **given)


def mma_calls(text: str) -> int:
    return len(re.findall(r"^\s*(?:wmma|tcu)::mma_sync\(", text, re.MULTILINE))


def mma_steps(program: Program) -> int:
    return sum(isinstance(step, Mma) for _, step in walk(program.steps))


# --- Text -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(GOLDEN))
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.cu", emit(build(*GOLDEN[name])).text)


@pytest.mark.parametrize("name", list(GOLDEN))
def test_the_text_multiplies_as_often_as_the_program(name: str) -> None:
    program = build(*GOLDEN[name])
    if "grid" not in name:
        assert mma_calls(emit(program).text) == mma_steps(program)
    assert (mma_steps(program) > 0) == ("simt" not in name)


@pytest.mark.parametrize("shape", WMMA_SHAPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_on_every_wmma_shape(algorithm: str, shape: str) -> None:
    program = tcusim.build(algorithm, tile=shape)
    kernel = emit(program)
    assert emit(program) == kernel
    assert mma_calls(kernel.text) == mma_steps(program)
    lines = kernel.text.splitlines()
    assert len(kernel.paths) == len(lines)
    for path, step in walk(program.steps):
        assert any(
            own == path and f"// {path}  " in text
            for own, text in zip(kernel.paths, lines, strict=True)
        ), f"no line says that it is step {path}, {step}"
    assert kernel.text.isascii()
    buffers = [buffer.name for buffer in (*program.inputs, *program.outputs)]
    # A block gives values to later ones by mail, in a workspace.
    buffers += ["workspace"] if program.status else []
    assert kernel.arguments == (*buffers, *(scalar.name for scalar in program.scalars))


def test_a_grid_of_fragments_multiplies_every_block() -> None:
    program = build("reduction_t", {"tile": (32, 32, 32)})
    kernel = emit(program)
    down, across, deep = instruction_for(program).grid
    assert (down, across, deep) == (2, 2, 2)
    # The first of the k blocks, then a loop over the others.
    assert mma_calls(kernel.text) == 2 * mma_steps(program)


# --- The twin files ---------------------------------------------------------------------------


def cases_of(function: Any) -> list[str]:
    """Return the steps that a function's match statement lists, each once, in order."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Match):
            for case in node.cases:
                names += [
                    pattern.cls.id
                    for pattern in ast.walk(case.pattern)
                    if isinstance(pattern, ast.MatchClass) and isinstance(pattern.cls, ast.Name)
                ]
    return list(dict.fromkeys(names))


def test_interpreter_and_emitter_list_the_same_steps_in_the_same_order() -> None:
    pairs = [
        (State._step, Emitter._step),
        (Schedule.expand, Emitter._steps),
    ]
    for one, two in pairs:
        assert cases_of(one) == cases_of(two)
    every = [step.__name__ for step in Step.__args__]
    assert cases_of(State._step) == every


# --- Refusals ---------------------------------------------------------------------------------


def test_a_tile_that_no_instruction_makes_up_needs_a_rule() -> None:
    program = tcusim.build("reduction_k", tile=tcusim.MmaShape(4, 4, 4))
    with pytest.raises(Unsupported) as caught:
        emit(program)
    assert str(caught.value) == (
        "reduction_k: no instruction multiplies its 4x4x4 tiles of f16 with f32 accumulators. The "
        "lanes of a warp do, by the rule of an architecture or a unit: name it with arch."
    )
    kernel = emit(program, rule=rule_of_lanes(program, "volta"))
    assert "tcu::multiply<Arithmetic>(V, P, A, V, &tile_operands[0]);" in kernel.text
    assert (kernel.min_sm, kernel.tiled) == (70, frozenset())


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [((32, 8, 8), (2, 1, 1)), ((16, 16, 8), None), ((32, 16, 8), None), ((64, 32, 48), (4, 2, 3))],
)
def test_tiles_that_instructions_make_up(
    sizes: tuple[int, int, int], parts: tuple[int, int, int] | None
) -> None:
    found = native(tcusim.build("reduction_k", tile=tcusim.MmaShape(*sizes)))
    assert (None if found is None else found.grid) == parts


def test_parts_of_narrow_types_begin_where_they_can_be_loaded() -> None:
    """16 elements of one byte are half of the 32 bytes that WMMA aligns tiles to."""
    for sizes, side, parts in (
        ((16, 16, 128), "a", None),
        ((32, 16, 16), "a", (2, 1, 1)),
        ((64, 8, 16), "a", (2, 1, 1)),
    ):
        program = tcusim.build(
            "reduction_k", tile=tcusim.MmaShape(*sizes), side=side, ab="s8", acc="s32"
        )
        found = native(program)
        assert (None if found is None else found.grid) == parts, sizes


def test_a_tile_that_claims_an_instruction_is_multiplied_by_lanes() -> None:
    row = tcusim.machine.shapes.Operands("f16", "f32", 70, "wmma")
    program = tcusim.build("reduction_k", tile=tcusim.MmaShape(8, 48, 12, operands=(row,)))
    assert native(program) is None


def test_a_tile_of_a_grid_that_cannot_be_loaded_is_multiplied_by_lanes() -> None:
    shape = tcusim.MmaShape(32, 32, 32)
    assert native(tcusim.build("reduction_kn", tile=shape, segment_size=100, masked=True)) is None
    assert native(tcusim.build("reduction_kn", tile=shape, segment_size=128)) is not None


@pytest.mark.parametrize(
    ("options", "arch", "sm", "lanes"),
    [
        ({}, "hopper", 90, False),
        ({}, None, 90, False),
        ({}, "volta", 90, True),
        ({}, "ieee", 90, True),
        # On the host every instruction follows any rule.
        ({}, "volta", None, False),
        ({"tile": "5x7x3"}, "volta", None, True),
        ({"tile": "5x7x3"}, "hopper", 90, True),
        # Later GPUs emulate Volta's own instruction, in an arithmetic of their own.
        ({"tile": "8x8x4"}, "volta", 70, False),
        ({"tile": "8x8x4"}, "turing", 75, False),
        ({"tile": "8x8x4"}, "hopper", 90, True),
        # Two exact sums are not one.
        ({"tile": "32x32x32"}, "exact", None, True),
        ({"tile": "32x32x16"}, "exact", None, False),
        ({"tile": "32x32x32"}, "hopper", None, False),
    ],
    ids=str,
)
def test_where_the_lanes_multiply(
    options: dict[str, Any], arch: str | None, sm: int | None, lanes: bool
) -> None:
    program = tcusim.build("reduction_k", **options)
    assert (rule_of_lanes(program, arch, sm) is not None) == lanes


def test_no_rule_for_an_unknown_gpu() -> None:
    program = tcusim.build("reduction_k", tile="5x7x3")
    with pytest.raises(Unsupported, match=r"no instruction of this GPU .* arithmetic is not known"):
        rule_of_lanes(program, None, 199)


def test_a_name_that_the_text_uses_is_refused() -> None:
    program = tcusim.build("scan_panel")
    whole = replace(
        program,
        buffers=(*program.inputs, replace(program.outputs[0], name="held"), *program.scratch),
    )
    steps = tuple(
        replace(step, dst=replace(step.dst, buffer=whole.outputs[0]))
        if isinstance(step, Assign) and step.dst.buffer == program.outputs[0]
        else step
        for step in program.steps
    )
    with pytest.raises(Unsupported) as caught:
        emit(replace(whole, steps=steps))
    assert str(caught.value) == (
        "scan_panel: emitted text has variables of its own that are called held. Give the "
        "program's buffers, scalars and loops other names"
    )


# --- Planted bugs -----------------------------------------------------------------------------


class Planted:
    """The host backend, but for a bug in the text."""

    name = "planted"
    title = "the host backend with a bug"

    def __init__(self, old: str, new: str) -> None:
        self.old = old
        self.new = new

    def available(self) -> str | None:
        return None

    def run(
        self,
        plan: LaunchPlan,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        from tcusim_host import run_kernel

        (launch,) = plan.launches
        kernel = emit(launch.program)
        wrong = replace(kernel, text=kernel.text.replace(self.old, self.new))
        return dict(run_kernel(wrong, inputs, arch=arch or "hopper", **options))


BUGS: dict[str, tuple[str, dict[str, Any], str, str, str]] = {
    "dropped barrier": (
        "scan_256",
        {"masked": True},
        "__syncwarp();\n\n    // 12  ",
        "// 12  ",
        # In the program with probes, step 12 is another one.
        "look for a missing barrier or another race",
    ),
    "wrong leading dimension": (
        "reduction_256n",
        {"masked": True, "segment_size": 1000},
        "(A, &t_A[0], 16)",
        "(A, &t_A[0], 32)",
        "they part at step ",
    ),
    "swapped layout": (
        "scan_16",
        {"masked": True},
        "16, half, wmma::row_major> A;",
        "16, half, wmma::col_major> A;",
        "`R ← A·U + R`, or at a load of its operands: ",
    ),
    "dropped bound": (
        "reduction_16n",
        {"masked": True, "segment_size": 40},
        "16*i + row + at < 40 && ",
        "",
        "they part at step ",
    ),
    "wrong constant": (
        "scan_256",
        {},
        "(e / 16) <= (e % 16)",
        "(e / 16) < (e % 16)",
        "they part at step ",
    ),
    "unrounded order": (
        "scan_256n",
        {"combine": "add"},
        "tcu::add(AU.x[e], C.x[e])",
        "tcu::add(AU.x[e], S.x[e])",
        "they part at step ",
    ),
}


@pytest.mark.parametrize("bug", list(BUGS))
def test_a_bug_in_the_emitter_is_noticed(bug: str, host: Backend) -> None:
    algorithm, options, old, new, text = BUGS[bug]
    program = tcusim.build(algorithm, **options)
    length = 700 if options.get("masked") else program.blocks.per
    inputs = random_inputs(program, "normal", length, np.random.default_rng(7))
    assert old in emit(program).text
    assert_agree(program, inputs, ("numpy", host))
    with pytest.raises(AgreementError) as caught:
        assert_agree(program, inputs, ("numpy", Planted(old, new)))
    assert text in str(caught.value)
