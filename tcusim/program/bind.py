"""Match the arrays that a user passes to the buffers and scalars that a program declares."""

from __future__ import annotations

from collections.abc import Mapping

from tcusim.errors import InputError
from tcusim.program.grammar import Buffer, Locate, Program, walk

__all__ = ["bind_scalars", "offsets_of"]


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
        scalars.update(_solve(buffer, sizes[buffer.name], scalars))
    for name, value in scalars.items():
        if value < 0:
            raise InputError(_too_small(program, name, sizes))
    for scalar in program.scalars:
        _check_multiple(program, scalar.name, scalars, scalar.multiple_of)
    for buffer in program.inputs:
        expected = buffer.size.evaluate(scalars)
        if sizes[buffer.name] != expected:
            raise InputError(
                f"{program.name}: input {buffer.name!r} must have {buffer.size} = {expected} "
                f"elements; it has {sizes[buffer.name]}"
            )
    return scalars


def offsets_of(program: Program) -> dict[str, Locate]:
    """Return the inputs that are offsets of segments, by name, each with a step that reads it."""
    steps = [step for _, step in walk(program.steps) if isinstance(step, Locate)]
    return {step.segments.offsets.name: step for step in steps}


def _solve(buffer: Buffer, size: int, known: Mapping[str, int]) -> dict[str, int]:
    """Solve `factor*scalar + const = size` for a scalar that is not known yet."""
    unknown = buffer.size.index.symbols - known.keys()
    if buffer.size.per != 1 or len(unknown) != 1 or len(buffer.size.index.terms) != 1:
        return {}
    (name,) = unknown
    return {name: (size - buffer.size.index.const) // buffer.size.index.coefficient(name)}


def _too_small(program: Program, name: str, sizes: Mapping[str, int]) -> str:
    """Return the message for an input with fewer elements than its program needs at the least."""
    buffer = next(buffer for buffer in program.inputs if name in buffer.size.index.symbols)
    return (
        f"{program.name}: input {buffer.name!r} must have {buffer.size} elements, at least "
        f"{buffer.size.index.const}; it has {sizes[buffer.name]}"
    )


def _check_multiple(
    program: Program, name: str, scalars: Mapping[str, int], multiple_of: int
) -> None:
    if name not in scalars:
        raise InputError(f"{program.name}: no input's size gives the scalar {name!r}")
    if scalars[name] % multiple_of:
        raise InputError(
            f"{program.name}: {name} = {scalars[name]} is not a multiple of {multiple_of}, "
            f"the elements that one block takes. Build it with masked=True, or pad the input."
        )
