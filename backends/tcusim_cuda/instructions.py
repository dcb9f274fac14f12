"""The instruction that multiplies a program's tiles, or the rule by which the lanes do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tcusim.errors import Given, Unsupported
from tcusim.machine import Rule, arch_of
from tcusim.machine.shapes import MmaShape, shapes
from tcusim.program.bind import rule_of
from tcusim.program.checks.tiles import tile_is_aligned
from tcusim.program.grammar import Const, Frag, Index, Load, Program, Role, Store, View, walk
from tcusim.program.resources import SharedMemory

# The family of tiles that no instruction multiplies.
LANES: Final = "lanes"

# The sizes of the fragments in mma.h, and of those in tcusim.cuh, by the types of the operands.
_HALVES: Final = ("16x16x16", "32x8x16", "8x32x16")
_FRAGMENTS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "wmma": {
        **dict.fromkeys(("f16", "bf16", "s8", "u8"), _HALVES),
        "tf32": ("16x16x8",),
        "f64": ("8x8x4",),
    },
    "mma.sync": {
        "f16": ("8x8x4", "16x8x8", "16x8x16"),
        "bf16": ("16x8x8", "16x8x16"),
        "tf32": ("16x8x8",),
    },
}
# m8n8k4 is Volta's, and Turing has it too. Later GPUs emulate it, in an arithmetic of its own.
_LAST_SM: Final = {("mma.sync", "8x8x4"): 75}


@dataclass(frozen=True, slots=True)
class Instruction:
    """The hardware's tile, and how many of them a program's tile is in m, n and k.

    most_sm: the greatest compute capability that has it, None for all later ones. rule: the
    arithmetic of the lanes, which multiply where no instruction does.
    """

    shape: MmaShape
    family: str
    min_sm: int
    grid: tuple[int, int, int] = (1, 1, 1)
    most_sm: int | None = None
    rule: Rule | None = None

    @property
    def namespace(self) -> str:
        """Where its fragments are: CUDA's WMMA, or ours for mma.sync and for lanes."""
        return "wmma" if self.family == "wmma" else "tcu"

    @property
    def single(self) -> bool:
        """Whether one instruction does the whole tile."""
        return self.grid == (1, 1, 1)

    def fragment_of(self, role: Role) -> tuple[int, int]:
        """Return the rows and columns of a fragment."""
        one = self.shape
        return (
            one.k if role is Role.B else one.m,
            one.k if role is Role.A else one.n,
        )

    def __str__(self) -> str:
        if self.family == LANES:
            return LANES
        name = f"{self.family} {self.shape.ptx}"
        return name if self.single else f"grid of {' x '.join(map(str, self.grid))} {name}"


# For a program without products: every GPU with tensor cores runs it.
_ANY: Final = Instruction(MmaShape(16, 16, 16), "wmma", 70)


def instruction_for(program: Program, rule: Rule | None = None) -> Instruction:
    """Return the instruction for a program's tile, whole or as a grid of smaller tiles.

    rule: by which the lanes multiply instead; see `rule_of_lanes`.

    Raises
    ------
    Unsupported
        If no instruction multiplies such tiles, and no rule is given.
    """
    if not program.uses_mma:
        return _ANY
    if rule is not None:
        return Instruction(program.shape, LANES, _ANY.min_sm, rule=rule)
    found = native(program)
    if found is None:
        raise Unsupported(
            f"{program.name}: no instruction multiplies its {program.shape.name} tiles of "
            f"{program.ab} with {program.acc} accumulators. The lanes of a warp do, by the rule of "
            f"an architecture or a unit: name it with ",
            *(Given("arch"), "."),
        )
    return found


def rule_of_lanes(program: Program, arch: str | None, sm: int | None = None) -> Rule | None:
    """Return the rule by which the lanes are to multiply; None where an instruction does.

    Parameters
    ----------
    program : Program
        The steps of the kernel.
    arch : str or None
        The arithmetic that results must have; None for that of the GPU.
    sm : int, optional
        The compute capability of the GPU. Without, every instruction computes as `arch` does.

    Raises
    ------
    UnknownName, Unsupported
        If there is no such architecture, or it does not multiply these types.
    """
    if not program.uses_mma:
        return None
    found = native(program)
    own = arch is None or sm is None or arch == f"sm_{sm}" or sm in arch_of(arch).sm
    if found is not None and own and (found.most_sm is None or sm is None or sm <= found.most_sm):
        if arch is None or found.grid[2] == 1:
            return None
        rule = rule_of(program, arch)
        return None if rule is None or rule.is_chain(found.shape.k) else rule
    if arch is None:
        raise Unsupported(
            f"{program.name}: no instruction of this GPU multiplies its {program.shape.name} tiles "
            f"of {program.ab} with {program.acc} accumulators, and its arithmetic is not known. "
            f"Name an architecture or a unit, whose rule the lanes follow, with ",
            *(Given("arch"), "."),
        )
    return rule_of(program, arch)


@lru_cache(maxsize=512)
def native(program: Program) -> Instruction | None:
    """Return the best instruction that multiplies a program's tiles; None if there is none."""
    ab, acc, shape = program.ab, program.acc, program.shape
    able = [
        Instruction(
            one,
            row.family,
            row.min_sm,
            (shape.m // one.m, shape.n // one.n, shape.k // one.k),
            _LAST_SM.get((row.family, one.name)),
        )
        for one in (shape, *shapes())
        if (row := one.operands_for(ab, acc))
        and one.name in _FRAGMENTS.get(row.family, {}).get(ab, ())
        and _divides(one, shape)
    ]

    def preference(instruction: Instruction) -> tuple[bool, int, int]:
        # The deepest first: a tile's k is then cut where the unit itself would cut it.
        one = instruction.shape
        return one is not shape, -one.k, abs(one.m - one.n)

    ranked = sorted(able, key=preference)
    return next((one for one in ranked if _is_loadable(program, one)), None)


def _divides(small: MmaShape, large: MmaShape) -> bool:
    """Return whether the large tile is made up of small ones."""
    sizes = zip(_sizes(large), _sizes(small), _divisible(small), strict=True)
    return all(whole == part or (free and whole % part == 0) for whole, part, free in sizes)


def _sizes(shape: MmaShape) -> tuple[int, int, int]:
    return shape.m, shape.n, shape.k


def _divisible(part: MmaShape) -> tuple[bool, bool, bool]:
    """Return whether a larger tile may have several of these along m, along n and along k."""
    # Parts of 8 rows, or columns, begin at multiples of 16 bytes in most layouts, where WMMA cannot
    # load them: see `_is_loadable`. A unit may add up to 16 products at once: parts of fewer would
    # be rounded more often.
    return part.m >= 16, part.n >= 16, part.k % 16 == 0


def _is_loadable(program: Program, instruction: Instruction) -> bool:
    """Return whether a program's tiles are where an instruction's fragments can be loaded."""
    shape, ab, acc = instruction.shape, program.ab, program.acc
    return instruction.single or all(
        tile_is_aligned(part, shape, ab, acc)
        for frag, view in _tiles(program)
        for part in _parts(view, *instruction.fragment_of(frag.role))
    )


def _tiles(program: Program) -> Iterator[tuple[Frag, View]]:
    """Yield the fragments that are loaded or stored, with their views."""
    tables = SharedMemory(program).tables
    for _, step in walk(program.steps):
        match step:
            case Load(dst):
                yield dst, step.src
            case Store(dst, src):
                yield src, dst
            case Const(frag, pattern) if not pattern.uniform:
                name, table = tables.of(frag, pattern)
                yield frag, table.view(tables.buffer(name), Index())


def _parts(view: View, rows: int, cols: int) -> Iterator[View]:
    """Yield a tile's first part of these sizes, and the next ones down and across."""
    yield view
    if rows < view.rows:
        yield replace(view, offset=view.offset + rows * view.row_stride)
    if cols < view.cols:
        yield replace(view, offset=view.offset + cols * view.col_stride)
