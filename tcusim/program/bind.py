"""Bind a user's arguments to a program: arrays to its buffers, an architecture to its products."""

from __future__ import annotations

from collections.abc import Mapping

from tcusim.errors import Given, InputError
from tcusim.machine import Rule, arch_of, rule_for
from tcusim.program.grammar import Locate, Program, require_program, walk
from tcusim.program.index import with_derived


def require_inputs(program: object, inputs: object) -> None:
    """Require a program, and inputs that are a mapping of names to arrays."""
    require_program(program)
    if not isinstance(inputs, Mapping):
        assert isinstance(program, Program)
        raise InputError(
            f"{program.name}: inputs must be a mapping of names to arrays, such as "
            f"{{'in': array}}, got {type(inputs).__name__}"
        )


def bind_scalars(program: Program, sizes: Mapping[str, int]) -> dict[str, int]:
    """Find a program's scalars from its inputs' sizes, in elements.

    Raises InputError if an input is missing, unknown or of a size that the program cannot take.
    """
    names = [buffer.name for buffer in program.inputs]
    if sorted(sizes) != sorted(names):
        raise InputError(
            f"{program.name}: inputs must be {', '.join(names)}; got {', '.join(sizes) or 'none'}"
        )
    scalars: dict[str, int] = {}
    for buffer in program.inputs:
        index, has = buffer.size.index, sizes[buffer.name]
        if buffer.size.per != 1 or len(index.terms) != 1 or index.symbols <= scalars.keys():
            continue
        # factor * scalar + const is the size
        ((name, factor),) = index.terms
        scalars[name] = (has - index.const) // factor
        if scalars[name] < 0:
            raise InputError(
                f"{program.name}: input {buffer.name!r} must have {buffer.size} elements, at least "
                f"{index.const}; it has {has}"
            )
    scalars = with_derived(program.scalars, scalars)
    for scalar in program.scalars:
        if scalar.name not in scalars:
            raise InputError(f"{program.name}: no input's size gives the scalar {scalar.name!r}")
        if scalars[scalar.name] % scalar.multiple_of:
            raise InputError(
                f"{program.name}: {scalar.name} = {scalars[scalar.name]} is not a multiple of "
                f"{scalar.multiple_of}, the elements that one block takes. Build it with ",
                *(Given("masked", True), ", or pad the input."),
            )
    for buffer in program.inputs:
        expected = buffer.size.evaluate(scalars)
        if sizes[buffer.name] != expected:
            raise InputError(
                f"{program.name}: input {buffer.name!r} must have {buffer.size} = {expected} "
                f"elements; it has {sizes[buffer.name]}"
            )
    return scalars


def offsets_of(program: Program) -> dict[str, Locate]:
    """Return the inputs that are segment offsets, by name, each with a step that reads it."""
    steps = [step for _, step in walk(program.steps) if isinstance(step, Locate)]
    return {step.segments.offsets.name: step for step in steps}


def rule_of(program: Program, arch: str) -> Rule | None:
    """Return the arithmetic of an architecture for a program's products; None without products."""
    if not program.uses_mma:
        arch_of(arch)
        return None
    family = program.shape.family(program.ab, program.acc)
    return rule_for(arch, program.ab, program.acc, family)
