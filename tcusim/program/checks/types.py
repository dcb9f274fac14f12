"""Which element types go together: of fragments, of tiles in memory, and of conversions."""

from __future__ import annotations

from collections.abc import Iterator

from tcusim.machine.formats import FORMATS
from tcusim.program.checks.sites import Finding, frags, tiles, views
from tcusim.program.grammar import Await, Copy, Load, Locate, Program, Publish, Role, Split, Step
from tcusim.program.walk import Site, sites


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
    for site in sites(program):
        unknown = _unknown_types(site.step)
        if unknown:
            known = ", ".join(FORMATS)
            yield Finding(site, f"unknown element type {unknown[0]!r}. Known: {known}.")
        else:
            yield from _fragment_type_findings(program, site)
            yield from _tile_type_findings(site)
            yield from _copy_type_findings(site)
            yield from _split_type_findings(site)
            yield from _status_type_findings(site)


def _unknown_types(step: Step) -> list[str]:
    types = [frag.dtype for frag in frags(step)]
    types.extend(view.buffer.dtype for view in views(step))
    # tf32 is a way to read f32, not a way to store.
    stored = ["tf32 in memory" for view in views(step) if view.buffer.dtype == "tf32"]
    return [name for name in types if name not in FORMATS] + stored


def _fragment_type_findings(program: Program, site: Site) -> Iterator[Finding]:
    for frag in dict.fromkeys(frags(site.step)):
        wanted = program.acc if frag.role is Role.ACC else program.ab
        if frag.dtype != wanted:
            yield Finding(
                site,
                f"{frag.role} {frag.name!r} must be {wanted} as in the program, got {frag.dtype}. "
                f"Convert in shared memory with Copy.",
            )


def _tile_type_findings(site: Site) -> Iterator[Finding]:
    for frag, view in tiles(site.step):
        stored = view.buffer.dtype
        reads_tf32 = isinstance(site.step, Load) and (frag.dtype, stored) == ("tf32", "f32")
        if frag.dtype != stored and not reads_tf32:
            yield Finding(
                site,
                f"fragment {frag.name!r} is {frag.dtype}, buffer {view.buffer.name!r} is {stored}; "
                f"tiles are not converted on the way. Convert in shared memory with Copy.",
            )


def _copy_type_findings(site: Site) -> Iterator[Finding]:
    step = site.step
    if not isinstance(step, Copy):
        return
    source, target = step.src.buffer.dtype, step.dst.buffer.dtype
    if step.plus is not None and step.plus.buffer.dtype != source:
        yield Finding(
            site,
            f"adds {step.plus.buffer.dtype} to {source}. Copy one of them to the other type first.",
        )
    if FORMATS[source].is_float and not FORMATS[target].is_float:
        yield Finding(
            site,
            f"converts {source} to {target}; a float is never made an integer. Use a float buffer.",
        )


def _status_type_findings(site: Site) -> Iterator[Finding]:
    step = site.step
    if isinstance(step, Publish | Await) and step.src.buffer.dtype != step.dst.buffer.dtype:
        yield Finding(
            site,
            f"makes {step.dst.buffer.dtype} of {step.src.buffer.dtype}; status words are not "
            f"converted on the way. Convert in shared memory with Copy.",
        )
    if isinstance(step, Locate) and step.segments.offsets.dtype != "s64":
        offsets = step.segments.offsets
        yield Finding(site, f"offsets {offsets.name!r} are {offsets.dtype}. They must be s64.")


def _split_type_findings(site: Site) -> Iterator[Finding]:
    step = site.step
    if not isinstance(step, Split):
        return
    wide = step.src.buffer.dtype
    narrow = list(dict.fromkeys(view.buffer.dtype for view in step.dsts))
    if len(narrow) > 1:
        yield Finding(site, f"the parts are {' and '.join(narrow)}. Use one type for all parts.")
    if wide not in ("f32", "f64"):
        yield Finding(site, f"the source must be f32 or f64, got {wide}. Use Copy.")
        return
    for name in narrow:
        part = FORMATS[name]
        if not part.is_float or part.fraction_bits >= FORMATS[wide].fraction_bits:
            yield Finding(
                site, f"{name} is not a float narrower than {wide}. Use f16, bf16 or tf32."
            )
