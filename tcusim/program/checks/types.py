"""Which element types go together: of fragments, of tiles in memory, and of conversions."""

from __future__ import annotations

from collections.abc import Iterator

from tcusim.machine.formats import FORMATS
from tcusim.program.checks.sites import Finding, each_step, tiles
from tcusim.program.grammar import (
    Await,
    Copy,
    Load,
    Locate,
    Program,
    Publish,
    Role,
    Split,
    Step,
    accesses,
)
from tcusim.program.walk import Site


def element_types(program: Program) -> Iterator[Finding]:
    """Require types that agree, and that the shape has an instruction for.

    Load and Store do not convert (a tf32 fragment loads f32), nor do Publish and Await; Copy
    converts, but never a float to an integer; Split goes from f32 or f64 to narrower floats.
    Offsets are s64.
    Source: element types and matrix sizes [CPG sec. 10.24.6], and the grammar.
    """
    if not program.shape.supports(program.ab, program.acc):
        pairs = ", ".join(f"{ab} to {acc}" for ab, acc in program.shape.pairs())
        yield Finding(
            None,
            f"shape {program.shape} does not take {program.ab} to {program.acc}. It takes: "
            f"{pairs or 'any known types'}.",
        )
    yield from _types_of_step(program)


@each_step
def _types_of_step(program: Program, site: Site) -> Iterator[str]:
    touched = accesses(site.step)
    stored = [view.buffer.dtype for view in touched.views]
    unknown = [name for name in (*(f.dtype for f in touched.frags), *stored) if name not in FORMATS]
    # tf32 is a way to read f32, not a way to store.
    unknown += ["tf32 in memory" for name in stored if name == "tf32"]
    if unknown:
        yield f"unknown element type {unknown[0]!r}. Known: {', '.join(FORMATS)}."
        return
    for frag in dict.fromkeys(touched.frags):
        wanted = program.acc if frag.role is Role.ACC else program.ab
        if frag.dtype != wanted:
            yield (
                f"{frag.role} {frag.name!r} must be {wanted} as in the program, got {frag.dtype}. "
                f"Convert in shared memory with Copy."
            )
    yield from _conversions(site.step)


def _conversions(step: Step) -> Iterator[str]:
    for frag, view in tiles(step):
        types = (frag.dtype, view.buffer.dtype)
        if types[0] != types[1] and not (isinstance(step, Load) and types == ("tf32", "f32")):
            yield (
                f"fragment {frag.name!r} is {types[0]}, buffer {view.buffer.name!r} is {types[1]}; "
                f"tiles are not converted on the way. Convert in shared memory with Copy."
            )
    match step:
        case Copy(dst, src, plus):
            source, target = src.buffer.dtype, dst.buffer.dtype
            if plus is not None and plus.buffer.dtype != source:
                yield (
                    f"adds {plus.buffer.dtype} to {source}. Copy one of them to the other type "
                    f"first."
                )
            if FORMATS[source].is_float and not FORMATS[target].is_float:
                yield (
                    f"converts {source} to {target}; a float is never made an integer. Use a float "
                    f"buffer."
                )
        case Split(dsts, src):
            yield from _narrowings(src.buffer.dtype, [view.buffer.dtype for view in dsts])
        case Publish(dst, src) | Await(dst, src) if src.buffer.dtype != dst.buffer.dtype:
            yield (
                f"makes {dst.buffer.dtype} of {src.buffer.dtype}; status words are not converted "
                f"on the way. Convert in shared memory with Copy."
            )
        case Locate(segments=segments) if segments.offsets.dtype != "s64":
            offsets = segments.offsets
            yield f"offsets {offsets.name!r} are {offsets.dtype}. They must be s64."


def _narrowings(wide: str, parts: list[str]) -> Iterator[str]:
    narrow = list(dict.fromkeys(parts))
    if len(narrow) > 1:
        yield f"the parts are {' and '.join(narrow)}. Use one type for all parts."
    if wide not in ("f32", "f64"):
        yield f"the source must be f32 or f64, got {wide}. Use Copy."
        return
    for name in narrow:
        part = FORMATS[name]
        if not part.is_float or part.fraction_bits >= FORMATS[wide].fraction_bits:
            yield f"{name} is not a float narrower than {wide}. Use f16, bf16 or tf32."
