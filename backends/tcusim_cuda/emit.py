"""Program -> CUDA C++: pure text, one statement or loop a step, the listing line above each.

Read it beside `tcusim/simulate/interpreter.py`: both list the same cases in the same order, that
file with what a step does to arrays, this one with what it says in CUDA. Neither knows of numerics
here: a fragment is opaque and the GPU's own unit multiplies it.

A tile that one instruction multiplies becomes `nvcuda::wmma` fragments, or those of `tcusim.cuh`
for the mma.sync shapes. A larger tile, a multiple of one, becomes arrays of fragments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import assert_never

from tcusim.errors import Unsupported
from tcusim.machine import format_of
from tcusim.machine.shapes import TILE_BYTES, MmaShape, Operands, shapes
from tcusim.program.checks.verifier import tile_is_aligned, verify
from tcusim.program.grammar import (
    Add,
    Await,
    Const,
    Copy,
    Extent,
    Frag,
    Index,
    Load,
    Locate,
    Loop,
    Mma,
    Pattern,
    PatternKind,
    Program,
    Publish,
    Role,
    Scope,
    Space,
    Split,
    Step,
    Store,
    Sync,
    View,
    When,
    accesses,
    walk,
    whole,
)
from tcusim.program.printer import line
from tcusim.program.resources import SharedMemory, Table
from tcusim_cuda.arrays import directly_loaded
from tcusim_cuda.chunks import LANES, Chunks, Later, aligned, chunks_of, repeats
from tcusim_cuda.kernel import SHARED_POOL, TICKET_WORDS, WORKSPACE, Kernel, words_of
from tcusim_cuda.text import (
    C_TYPES,
    ascii_text,
    c_address,
    c_bound,
    c_bounds,
    c_chunk,
    c_extent,
    c_index,
    c_inside,
    c_literal,
    c_part,
    c_pattern,
    c_pointer,
    c_value,
    lanes_go_down,
    wrapped,
)

__all__ = ["emit", "instruction_for"]

FRAGMENT_TYPES = {**C_TYPES, "tf32": "wmma::precision::tf32"}
# CUDA C++ Programming Guide: without asking, a block has 48 KB of shared memory.
STATIC_SHARED_BYTES = 48 * 1024
# Loops of up to this many iterations are unrolled, so that their loads are in flight together.
UNROLL = 16
# Unless that writes more steps than this: a loop must stay in the instruction cache.
UNROLLED_STEPS = 512

# What one word of mail takes.
LETTER_BYTES = 8

# Variables of the text that are in scope where a step names buffers, scalars and loops.
OWN_NAMES = ("lane", "e", "f", "turn", "first", "held", "rest", "seen", "at")


@dataclass(frozen=True, slots=True)
class Instruction:
    """The hardware's tile, and how many of them a program's tile is in m, n and k."""

    shape: MmaShape
    operands: Operands
    grid: tuple[int, int, int]

    @property
    def namespace(self) -> str:
        """Where its fragments are: CUDA's WMMA, or ours for mma.sync."""
        return "wmma" if self.operands.family == "wmma" else "tcu"

    @property
    def single(self) -> bool:
        """Whether one instruction does the whole tile."""
        return self.grid == (1, 1, 1)


def emit(program: Program) -> Kernel:
    """Return the CUDA kernel of a program.

    Raises
    ------
    VerifyError
        If the program breaks a rule.
    Unsupported
        If no tensor-core instruction does its tile with its types, or a name is one that the text
        itself uses.
    """
    verify(program)
    _require_free_names(program)
    return _Emitter(program, instruction_for(program)).kernel()


def _require_free_names(program: Program) -> None:
    """Refuse names that would mean something else within a step's text."""
    names = {declared.name for declared in (*program.buffers, *program.scalars)}
    names |= {step.var for _, step in walk(program.steps) if isinstance(step, Loop)}
    taken = ", ".join(name for name in OWN_NAMES if name in names)
    if taken:
        raise Unsupported(
            f"{program.name}: emitted text has variables of its own that are called {taken}. Give "
            f"the program's buffers, scalars and loops other names"
        )


def instruction_for(program: Program) -> Instruction:
    """Return the instruction that does a program's tile, whole or as a grid of smaller tiles."""
    shape = program.shape
    own = shape.operands_for(program.ab, program.acc)
    if own is not None and _emittable(shape, own):
        return Instruction(shape, own, (1, 1, 1))
    # The deepest instruction first: a tile's k is then cut where the unit itself would cut it.
    for candidate in sorted(shapes(), key=lambda other: (-other.k, abs(other.m - other.n))):
        row = candidate.operands_for(program.ab, program.acc)
        if row is not None and _emittable(candidate, row) and _divides(candidate, shape):
            sizes = (shape.m // candidate.m, shape.n // candidate.n, shape.k // candidate.k)
            return Instruction(candidate, row, sizes)
    able = [
        other.name
        for other in shapes()
        if (row := other.operands_for(program.ab, program.acc)) and _emittable(other, row)
    ]
    raise Unsupported(
        f"{program.name}: no tensor-core instruction multiplies {shape.name} tiles of {program.ab} "
        f"with {program.acc} accumulators, nor smaller tiles that make one up. "
        f"Shapes that can, and whose multiples can: {', '.join(able) or 'none'}"
    )


def _emittable(shape: MmaShape, row: Operands) -> bool:
    """Return whether the text can name this instruction."""
    if row.ab not in C_TYPES or row.acc not in C_TYPES:
        return False
    if row.family == "wmma":
        return True
    k8_or_k16 = (shape.m, shape.n) == (16, 8) and shape.k in (8, 16)
    types = ("f16", "bf16", "tf32") if shape.k == 8 else ("f16", "bf16")
    return row.family == "mma.sync" and k8_or_k16 and row.ab in types


def _divides(small: MmaShape, large: MmaShape) -> bool:
    """Return whether the large tile is whole small ones that begin where WMMA can load them."""
    if large.m % small.m or large.n % small.n or large.k % small.k:
        return False
    # A unit may add up to 16 products at once: pieces of fewer would be rounded more often.
    if large.k != small.k and small.k % 16:
        return False
    # Tiles of 8 columns, or rows, side by side would begin at multiples of 16 bytes.
    columns_ok = small.n >= 16 or large.n == small.n
    rows_ok = small.m >= 16 or large.m == small.m
    return columns_ok and rows_ok


class _Emitter:
    """Collects the lines of one kernel."""

    def __init__(self, program: Program, instruction: Instruction) -> None:
        self.program = program
        self.instruction = instruction
        self.lines: list[str] = []
        self.paths: list[str] = []
        self.depth = 0
        self.path = ""
        self.later = Later(program).find()
        self.tiled = directly_loaded(program) if instruction.namespace == "wmma" else frozenset()
        self.shared = SharedMemory(program)
        self.layouts, self.tables = self.shared.layouts, self.shared.tables
        self.pooled = self.shared.nbytes > STATIC_SHARED_BYTES

    def kernel(self) -> Kernel:
        """Write everything and return it."""
        program = self.program
        self._head()
        with self._block():
            self._setup()
            self._steps(program.steps, "")
        return Kernel(
            name=self.name,
            text="\n".join(self.lines) + "\n",
            program=program,
            threads=program.warps * LANES,
            dynamic_shared_bytes=self.shared.nbytes if self.pooled else 0,
            min_sm=self.instruction.operands.min_sm,
            paths=tuple(self.paths),
        )

    @property
    def name(self) -> str:
        """The kernel's name: the program's, as C can spell it."""
        return re.sub(r"\W", "_", self.program.name)

    # --- Lines -------------------------------------------------------------------------------

    def _line(self, text: str = "") -> None:
        self.lines.append("    " * self.depth + text if text else "")
        self.paths.append(self.path)

    @contextmanager
    def _block(self, head: str = "") -> Iterator[None]:
        self._line(f"{head} {{".strip())
        self.depth += 1
        yield
        self.depth -= 1
        self._line("}")

    # --- Before the steps --------------------------------------------------------------------

    def _head(self) -> None:
        program = self.program
        self._line("#include <cuda_bf16.h>")
        self._line("#include <cuda_fp16.h>")
        self._line("#include <mma.h>")
        self._line('#include "tcusim.cuh"')
        self._line("using namespace nvcuda;")
        self._line()
        types = f"{program.ab} to {program.acc}"
        self._line(f"// {program.name}: {program.shape.name}, {types}   {program.source}".rstrip())
        self._line('extern "C" __global__ void')
        self._line(f"__launch_bounds__({program.warps * LANES})")
        arguments = [
            *(f"const {C_TYPES[b.dtype]}* __restrict__ {b.name}" for b in program.inputs),
            *(f"{C_TYPES[b.dtype]}* __restrict__ {b.name}" for b in program.outputs),
            *([f"unsigned long long* __restrict__ {WORKSPACE}"] if program.status else []),
            *(f"const long long {scalar.name}" for scalar in program.scalars),
        ]
        self._line(f"{self.name}({', '.join(arguments)})")

    def _setup(self) -> None:
        self._line(f"const int lane = threadIdx.x % {LANES};")
        self._line(f"const int warp = threadIdx.x / {LANES};")
        number, columns = "blockIdx.x", self.program.columns
        if self.program.status:
            # Blocks are numbered as they start, so that none waits for one that never does.
            self._line(f"const long long ticket = tcu::take_ticket({WORKSPACE});")
            number = "ticket"
        if columns == 1:
            self._line(f"const long long block = {number};")
        else:
            self._line(f"const long long block = {number} / {columns};")
            self._line(f"const int block_col = {number} % {columns};")
        self._mail()
        self._shared_memory()
        for frag in _fragments(self.program):
            self._line(f"{self._fragment_type(frag)} {frag.name}{self._array(frag)};")
        if self.tables.filled:
            self._line()
            self._line("// Constant matrices, made once a block.")
            for name, table in self.tables.filled.items():
                self._fill(name, table, f"threadIdx.x; e < {table.size}; e += blockDim.x")
            self._line("__syncthreads();")

    def _shared_memory(self) -> None:
        """Declare shared memory: an array for each buffer, or places in one pool if it is large."""
        if self.pooled:
            self._line(f"extern __shared__ __align__(128) unsigned char {SHARED_POOL}[];")
        place = 0
        for buffer in self.shared.buffers:
            kind, size = C_TYPES[buffer.dtype], self.shared.elements_of(buffer)
            own = buffer.space is Space.WARP
            if self.pooled:
                shift = f" + warp * {size}" if own else ""
                self._line(
                    f"{kind}* const {buffer.name} = "
                    f"reinterpret_cast<{kind}*>({SHARED_POOL} + {place}){shift};"
                )
                place += self.shared.bytes_of(buffer)
            elif own:
                warps = self.program.warps
                self._line(
                    f"__shared__ __align__({TILE_BYTES}) {kind} {buffer.name}_of[{warps}][{size}];"
                )
                self._line(f"{kind}* const {buffer.name} = {buffer.name}_of[warp];")
            else:
                self._line(f"__shared__ __align__({TILE_BYTES}) {kind} {buffer.name}[{size}];")

    def _mail(self) -> None:
        """Declare where in the workspace the mail is."""
        place = f"{WORKSPACE} + {TICKET_WORDS}"
        for buffer in self.program.status:
            kind = C_TYPES[buffer.dtype]
            self._line(f"const tcu::Mail<{kind}> {buffer.name} = {{{place}}};")
            words = words_of(buffer.dtype)
            size = wrapped(c_extent(buffer.size))
            place += f" + {size}" if words == 1 else f" + {words} * {size}"

    def _fill(self, name: str, table: Table, loop: str) -> None:
        """Write the elements of a constant table."""
        row, col = f"e / {table.ldm}", f"e % {table.ldm}"
        if table.layout == "col_major":
            row, col = col, row
        test = c_pattern(table.pattern, f"({row})", f"({col})")
        one, zero = c_literal(table.dtype, 1), c_literal(table.dtype, 0)
        self._line(f"for (int e = {loop}) {name}[e] = {test} ? {one} : {zero};")

    # --- Fragments ---------------------------------------------------------------------------

    def _fragment_type(self, frag: Frag) -> str:
        shape, space = self.instruction.shape, self.instruction.namespace
        layout = ""
        if frag.role is not Role.ACC:
            layout = f", wmma::{self.layouts[frag.name]}"
        return (
            f"{space}::fragment<wmma::{frag.role.value}, {shape.m}, {shape.n}, {shape.k}, "
            f"{FRAGMENT_TYPES[frag.dtype]}{layout}>"
        )

    def _grid_of(self, frag: Frag) -> tuple[int, int]:
        """Return how many fragments a tile is, down and across."""
        down, across, deep = self.instruction.grid
        return {Role.A: (down, deep), Role.B: (deep, across), Role.ACC: (down, across)}[frag.role]

    def _array(self, frag: Frag) -> str:
        down, across = self._grid_of(frag)
        return "" if self.instruction.single else f"[{down * across}]"

    @contextmanager
    def _each_fragment(self, frag: Frag) -> Iterator[tuple[str, str, str]]:
        """Loop over a tile's fragments; give the fragment, its first row and its first column."""
        if self.instruction.single:
            yield frag.name, "0", "0"
            return
        shape = self.instruction.shape
        rows = shape.k if frag.role is Role.B else shape.m
        cols = shape.k if frag.role is Role.A else shape.n
        down, across = self._grid_of(frag)
        self._line("#pragma unroll")
        with self._block(f"for (int f = 0; f < {down * across}; ++f)"):
            yield f"{frag.name}[f]", f"f / {across} * {rows}", f"f % {across} * {cols}"

    def _tile_pointer(self, view: View, row: str, col: str) -> str:
        pointer = f"{view.buffer.name} + {wrapped(c_index(view.offset))}"
        if view.offset == Index():
            pointer = view.buffer.name
        if row != "0":
            pointer += f" + {row} * {view.row_stride} + {col} * {view.col_stride}"
        return pointer

    def _require_aligned(self, view: View) -> None:
        """Refuse a tile of a grid that WMMA could not load where it lies."""
        shape, program = self.instruction.shape, self.program
        if not tile_is_aligned(view, shape, program.ab, program.acc):
            raise Unsupported(
                f"{program.name}, step {self.path}: as {shape.name} fragments, the tile at "
                f"{view.buffer.name}[{view.offset}] with stride {view.ldm} is not aligned for "
                f"WMMA. Build the program for {shape.name} itself, which stages such tiles"
            )

    # --- Steps, in the order of interpret.py --------------------------------------------------

    def _steps(self, steps: tuple[Step, ...], prefix: str, first: int = 1) -> None:
        for number, step in enumerate(steps, start=first):
            self.path = f"{prefix}{number}"
            self._line()
            self._line(f"// {self.path}  {ascii_text(line(step))}")
            match step:
                case Loop(var, count, body):
                    self._loop(var, count, body)
                case When():
                    self._when(step)
                case _:
                    self._step(step)

    def _loop(self, var: str, count: Extent, body: tuple[Step, ...]) -> None:
        path = self.path
        times = count.constant
        if times is not None and times <= UNROLL and times * _weight(body) <= UNROLLED_STEPS:
            self._line("#pragma unroll")
        kind = "long long" if times is None else "int"
        with self._block(f"for ({kind} {var} = 0; {var} < {c_extent(count)}; ++{var})"):
            self._steps(body, f"{path}.")
        self.path = path

    def _when(self, step: When) -> None:
        path = self.path
        condition = " && ".join(c_bound(bound) for bound in step.bounds)
        with self._block(f"if ({condition})"):
            self._steps(step.body, f"{path}.")
        if step.otherwise:
            with self._block("else"):
                self._steps(step.otherwise, f"{path}.", len(step.body) + 1)
        self.path = path

    def _step(self, step: Step) -> None:
        """Write one leaf step."""
        space = self.instruction.namespace
        match step:
            case Const(dst, pattern):
                self._const(dst, pattern)
            case Load(dst, src):
                self._require_aligned(src)
                layout = f", wmma::mem_{src.layout}" if dst.role is Role.ACC else ""
                with self._each_fragment(dst) as (frag, row, col):
                    pointer = self._tile_pointer(src, row, col)
                    self._line(f"{space}::load_matrix_sync({frag}, {pointer}, {src.ldm}{layout});")
            case Mma(d, a, b, c):
                self._mma(d, a, b, c)
            case Add(d, a, b):
                with self._each_fragment(d) as (frag, _, _):
                    x, y = (frag.replace(d.name, other.name, 1) for other in (a, b))
                    self._line(
                        f"for (int e = 0; e < {frag}.num_elements; ++e) "
                        f"{frag}.x[e] = tcu::add({x}.x[e], {y}.x[e]);"
                    )
            case Store(dst, src):
                self._require_aligned(dst)
                with self._each_fragment(src) as (frag, row, col):
                    pointer = self._tile_pointer(dst, row, col)
                    self._line(
                        f"{space}::store_matrix_sync({pointer}, {frag}, {dst.ldm}, "
                        f"wmma::mem_{dst.layout});"
                    )
            case Copy(dst, src, plus):
                self._copy(dst, src, plus)
            case Split(dsts, src):
                self._split(dsts, src)
            case Publish() | Await() | Locate():
                self._grid_step(step)
            case Sync(scope):
                if self.path in self.later.waits:
                    self._line("tcu::finish_copies();")
                self._line("__syncthreads();" if scope is Scope.BLOCK else "__syncwarp();")
            case Loop() | When():
                raise AssertionError("control steps are written by _steps")
            case _:
                assert_never(step)

    def _grid_step(self, step: Publish | Await | Locate) -> None:
        """Write a step that deals with other blocks, or with where segments lie."""
        match step:
            case Publish(dst, src):
                with self._each_element(dst, src):
                    put = f"{dst.buffer.name}.publish({c_address(dst)}, {c_value(src)});"
                    bounds = c_bounds(dst)
                    self._line(f"if ({bounds}) {put}" if bounds else put)
            case Await(dst, src):
                self._await(dst, src)
            case Locate():
                self._locate(step)
            case _:
                assert_never(step)

    def _await(self, dst: View, src: View) -> None:
        """Look into all of the lane's mail at once, then wait for what was not there."""
        chunks = Chunks(dst.rows, dst.cols, 1, lanes_go_down(dst, src))
        mail, place, bounds = src.buffer.name, c_address(src), c_bounds(src)

        def inside(value: str, otherwise: str) -> str:
            return f"({bounds} ? {value} : {otherwise})" if bounds else value

        letter = f"tcu::Mail<{C_TYPES[src.buffer.dtype]}>::Letter", LETTER_BYTES
        peek = inside(f"{mail}.peek({place})", f"{mail}.nothing()")
        with self._held(chunks, letter, "seen", peek, None, named=True) as seen:
            zero = c_literal(src.buffer.dtype, 0)
            value = inside(f"{mail}.await({place}, {seen})", zero)
            self._assign(dst, chunks, value, src.buffer.dtype)

    def _locate(self, step: Locate) -> None:
        """Find each line in a lane of its own; the warp alone uses them, after it has waited."""
        ranges, segments = step.dst, step.segments
        offsets = segments.offsets
        cuts = ", ".join(str(cut) for cut in (segments.chunk or 0, *segments.levels))
        count = c_extent(Extent(offsets.size.index - 1)) if offsets.size.per == 1 else ""
        limit = "" if segments.limit is None else f", {c_index(segments.limit)}"
        self._line("__syncwarp();")
        self._line(
            f"for (int e = lane; e < {ranges.count}; e += {LANES}) tcu::locate<{cuts}>("
            f"{offsets.name}, {count}, {c_index(step.first)} + e, "
            f"{ranges.name}_begin[e], {ranges.name}_end[e]{limit});"
        )
        self._line("__syncwarp();")

    def _const(self, frag: Frag, pattern: Pattern) -> None:
        """Fill a uniform constant; load any other from its table."""
        space = self.instruction.namespace
        if pattern.uniform:
            value = c_literal(frag.dtype, int(pattern.kind is PatternKind.ONES))
            with self._each_fragment(frag) as (name, _, _):
                self._line(f"{space}::fill_fragment({name}, {value});")
            return
        name, table = self.tables.of(frag, pattern)
        if name not in self.tables.filled:
            # The offset differs from warp to warp: the table is made anew, by the warp alone.
            self._line("__syncwarp();")
            self._fill(name, table, f"lane; e < {table.size}; e += {LANES}")
            self._line("__syncwarp();")
        view = table.view(self.tables.buffer(name), pattern.offset)
        with self._each_fragment(frag) as (one, row, col):
            pointer = self._tile_pointer(view, row, col)
            self._line(f"{space}::load_matrix_sync({one}, {pointer}, {view.ldm});")

    def _mma(self, d: Frag, a: Frag, b: Frag, c: Frag) -> None:
        """D = A.B + C; of a grid, each fragment of D takes its k blocks in ascending order."""
        space = self.instruction.namespace
        if self.instruction.single:
            self._line(f"{space}::mma_sync({d.name}, {a.name}, {b.name}, {c.name});")
            return
        _, across, deep = self.instruction.grid
        with self._each_fragment(d) as (frag, _, _):
            source = frag.replace(d.name, c.name, 1)
            left, right = f"{a.name}[f / {across} * {deep}", f"{b.name}[f % {across}"
            self._line(f"{space}::mma_sync({frag}, {left}], {right}], {source});")
            if deep > 1:
                self._line("#pragma unroll")
                with self._block(f"for (int k = 1; k < {deep}; ++k)"):
                    self._line(
                        f"{space}::mma_sync({frag}, {left} + k], {right} + k * {across}], {frag});"
                    )

    # --- Rectangles, chunk by chunk ------------------------------------------------------------

    @contextmanager
    def _each_element(self, dst: View, src: View) -> Iterator[Chunks]:
        """Give the lanes the elements of a rectangle, one at a time."""
        chunks = Chunks(dst.rows, dst.cols, 1, lanes_go_down(dst, src))
        with self._turns(chunks, chunks.turns, "lane"):
            yield chunks

    def _copy(self, dst: View, src: View, plus: View | None) -> None:
        reads = (src,) if plus is None else (src, plus)
        chunks = chunks_of(self.program, (dst,), reads)
        if self.path in self.later.copies:
            with self._quick_or_careful(chunks, (src,)) as ways:
                for quick, first in ways:
                    self._copy_later(chunks, dst, src, first, quick=quick)
            return
        dtype = src.buffer.dtype
        with self._quick_or_careful(chunks, (dst, *reads)) as ways:
            for quick, first in ways:
                value = self._value(src, chunks, quick=quick)
                if plus is not None:
                    value = f"tcu::add({value}, {self._value(plus, chunks, quick=quick)})"
                named = chunks.size > 1
                with self._held(chunks, _element(dtype), "held", value, first, named=named) as held:
                    self._assign(dst, chunks, held, dtype, quick=quick)

    def _split(self, dsts: tuple[View, ...], src: View) -> None:
        chunks = chunks_of(self.program, dsts, (src,))
        with self._quick_or_careful(chunks, (*dsts, src)) as ways:
            for quick, first in ways:
                value = self._value(src, chunks, quick=quick)
                kind = _element(src.buffer.dtype)
                with self._held(chunks, kind, "rest", value, first, named=True) as rest:
                    for dst in dsts:
                        part = f"tcu::take_part<{C_TYPES[dst.buffer.dtype]}>({rest})"
                        self._assign(dst, chunks, part, dst.buffer.dtype, quick=quick)

    @contextmanager
    def _quick_or_careful(
        self, chunks: Chunks, views: Sequence[View]
    ) -> Iterator[Iterator[tuple[bool, str | None]]]:
        """Give the ways to go over chunks: whether by the widest access, and from which chunk on.

        Where all chunks of the warp are in bounds and aligned, nothing is tested between its
        loads, which are then in flight together. Elsewhere they go one by one, each tested.
        """
        condition = self._whole(chunks, views)

        def ways() -> Iterator[tuple[bool, str | None]]:
            if not condition:
                yield condition == "", None
                return
            with self._block(f"if ({condition})"):
                yield True, None
            with self._block("else"):
                self._line("#pragma unroll 1")
                with self._block(f"for (int e = lane; e < {chunks.count}; e += {LANES})"):
                    yield False, "e"

        yield ways()

    def _whole(self, chunks: Chunks, views: Sequence[View]) -> str | None:
        """Print when all chunks are in bounds and aligned: "" if always, None if one is not tested.

        Bounds are affine, so those of a rectangle hold if they do at its worst corner.
        """
        if chunks.size == 1:
            return None
        tests = []
        for view in views:
            if repeats(view, chunks.down):
                continue
            if not self._where(view):
                access = min(16, chunks.size * format_of(view.buffer.dtype).itemsize)
                first = View.strided(view.buffer, view.offset, 1, 1, 1, 1)
                tests.append(f"tcu::is_multiple({c_pointer(first)}, {access})")
            tests.extend(c_bound(bound) for bound in whole(view))
        return " && ".join(dict.fromkeys(tests))

    def _copy_later(
        self, chunks: Chunks, dst: View, src: View, first: str | None, *, quick: bool
    ) -> None:
        """Start a copy from global to shared memory; a wait comes before the next barrier."""
        inside = "" if quick else c_inside(src, chunks.down)
        arguments = ", ".join(filter(None, (c_pointer(dst), c_pointer(src), inside)))
        where = ", tcu::Aligned" if quick else ""
        with self._turns(chunks, 1 if first else chunks.turns, first or "lane"):
            self._line(f"tcu::copy_later<{chunks.size}{where}>({arguments});")

    @contextmanager
    def _held(
        self,
        chunks: Chunks,
        element: tuple[str, int],
        name: str,
        value: str,
        first: str | None,
        *,
        named: bool,
    ) -> Iterator[str]:
        """Read the lane's chunks, then give each one, to be written.

        All reads come before the first write, as many as registers may hold: memory answers them
        together. That is legal, since a step reads no element that another lane writes.
        element: its type in C, and its bytes. first: the name of the chunk's number, if the lane
        takes one at a time. named: whether a single chunk needs a name.
        """
        kind, itemsize = element
        if chunks.size > 1:
            kind = f"tcu::Pack<{kind}, {chunks.size}>"
        if first is not None or chunks.turns == 1:
            with self._turns(chunks, 1, first or "lane"):
                if named:
                    self._line(f"{kind} {name} = {value};")
                yield name if named else value
            return
        together = chunks.together(itemsize)
        start, head = "lane", ""
        if together < chunks.turns:
            step = LANES * together
            start = "first"
            head = f"for (int first = lane; first < {chunks.count}; first += {step})"
        with self._block(head):
            self._line(f"{kind} {name}[{together}];")
            with self._turns(chunks, together, start):
                self._line(f"{name}[turn] = {value};")
            with self._turns(chunks, together, start):
                yield f"{name}[turn]"

    @contextmanager
    def _turns(self, chunks: Chunks, turns: int, first: str) -> Iterator[None]:
        """Give the lane `turns` chunks, from number `first` on, with the row and the column."""
        if first == "e":
            self._places(chunks)
            yield
            return
        # In whole groups of turns, every lane has a chunk in each.
        guarded = chunks.count % (LANES * turns) != 0
        guard = f"e < {chunks.count}" if guarded else ""
        if turns == 1:
            with self._chunk(chunks, first, guard):
                yield
            return
        self._line("#pragma unroll" if turns <= UNROLL else f"#pragma unroll {UNROLL}")
        head = f"for (int turn = 0; turn < {turns}; ++turn)"
        if not guarded:
            with self._chunk(chunks, f"{first} + {LANES}*turn", "", head):
                yield
            return
        with self._block(head), self._chunk(chunks, f"{first} + {LANES}*turn", guard):
            yield

    @contextmanager
    def _chunk(self, chunks: Chunks, number: str, guard: str, head: str = "") -> Iterator[None]:
        """Find the row and the column of a chunk's first element."""
        with self._block(f"if (const int e = {number}; {guard})" if guard else head):
            if not guard:
                self._line(f"const int e = {number};")
            self._places(chunks)
            yield

    def _places(self, chunks: Chunks) -> None:
        """Find the row and the column of the first element of chunk `e`."""
        inner, down = chunks.inner // chunks.size, chunks.down
        for name, extent, is_inner in (("row", chunks.rows, down), ("col", chunks.cols, not down)):
            if extent == 1:
                continue
            part = c_part("e", inner, is_inner, extent == chunks.rows * chunks.cols)
            if is_inner and chunks.size > 1:
                part = "0" if inner == 1 else f"{chunks.size}*{wrapped(part)}"
            self._line(f"const int {name} = {part};")

    def _value(self, view: View, chunks: Chunks, *, quick: bool) -> str:
        """Print the read of a chunk; of one element, as such."""
        if chunks.size == 1:
            return c_value(view)
        if repeats(view, chunks.down):
            return f"tcu::repeat<{chunks.size}>({c_value(view)})"
        where = "tcu::Aligned" if quick else self._where(view)
        if quick:
            view = replace(view, bounds=())
        return c_chunk(view, chunks.size, chunks.down, f", {where}" if where else "")

    def _where(self, view: View) -> str:
        """Print what is known of where chunks lie: "" if that depends on what a user passes."""
        of_buffer = view.buffer.space is not Space.GLOBAL or view.buffer.name in self.tiled
        return "tcu::Aligned" if of_buffer and aligned(self.program, view) else ""

    def _assign(
        self, dst: View, chunks: Chunks, value: str, dtype: str, *, quick: bool = False
    ) -> None:
        """Write a value of type `dtype` to its place, where the destination's bounds hold."""
        if dtype != dst.buffer.dtype:
            value = f"tcu::convert<{C_TYPES[dst.buffer.dtype]}>({value})"
        if chunks.size > 1:
            where = "tcu::Aligned" if quick else self._where(dst)
            inside = "" if quick else c_inside(dst, chunks.down)
            arguments = ", ".join(filter(None, (c_pointer(dst), value, inside)))
            self._line(f"tcu::store{f'<{where}>' if where else ''}({arguments});")
            return
        target = f"{dst.buffer.name}[{c_address(dst)}] = {value};"
        bounds = c_bounds(dst)
        self._line(f"if ({bounds}) {target}" if bounds else target)


# --- What a program needs before its first step -------------------------------------------------


def _weight(steps: tuple[Step, ...]) -> int:
    """Return how many leaf steps are written out, where loops in between are unrolled."""
    total = 0
    for step in steps:
        match step:
            case Loop(count=count, body=body):
                inner = (count.constant or UNROLL) * _weight(body)
                total += inner if inner <= UNROLLED_STEPS else _weight(body)
            case When(body=body, otherwise=otherwise):
                total += _weight(body + otherwise)
            case _:
                total += 1
    return total


def _element(dtype: str) -> tuple[str, int]:
    """Return a type as C has it, and its bytes."""
    return C_TYPES[dtype], format_of(dtype).itemsize


def _fragments(program: Program) -> tuple[Frag, ...]:
    """Return every fragment, in the order of first use."""
    found: dict[str, Frag] = {}
    for _, step in walk(program.steps):
        touched = accesses(step)
        for frag in (*touched.frags_written, *touched.frags_read):
            found.setdefault(frag.name, frag)
    return tuple(found.values())
