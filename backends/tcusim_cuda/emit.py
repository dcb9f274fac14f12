"""Program -> CUDA C++: pure text, one statement or loop a step, the listing line above each.

Read it beside `tcusim/simulate/interpreter.py`: both list the same cases in the same order, that
file with a step's effect on arrays, this one with its CUDA statements. Neither knows of numerics
here: a fragment is opaque and the GPU's own unit multiplies it.

A tile that one instruction multiplies becomes `nvcuda::wmma` fragments, or those of `tcusim.cuh`
for the mma.sync shapes. A larger tile, a multiple of one, becomes arrays of fragments. For any
other tile, and for the arithmetic of another unit, the lanes multiply by a rule: see `tiles.cuh`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from tcusim.errors import Unsupported
from tcusim.machine import Rule, format_of
from tcusim.machine.multiprocessors import MULTIPROCESSORS, REGISTERS, STATIC_SHARED_BYTES
from tcusim.machine.rule_row import HEADER as RULE_HEADER
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    Add,
    Assign,
    Await,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Load,
    Locate,
    Loop,
    Mma,
    Numbered,
    Pattern,
    PatternKind,
    Prefix,
    Program,
    Publish,
    Role,
    Scope,
    Space,
    Step,
    Store,
    Sync,
    View,
    When,
    accesses,
    branch_of,
    numbered,
    views_of,
    walk,
)
from tcusim.program.lanes import (
    HELD_BYTES,
    LANES,
    UNROLL,
    Transfer,
    Where,
    is_in_type_of_memory,
    known_steps,
    moved_of,
    narrow_rows,
    rows_of,
    transfer_of,
)
from tcusim.program.printer import line
from tcusim.program.resources import OPERANDS, SharedMemory, Table
from tcusim_cuda.async_copies import AsyncCopies
from tcusim_cuda.contiguous import contiguous_copy
from tcusim_cuda.fusion import Run, runs_of
from tcusim_cuda.instructions import Instruction, instruction_for
from tcusim_cuda.kernel import SHARED_POOL, TICKET_WORDS, WORKSPACE, Kernel, words_of
from tcusim_cuda.moves import (
    FAST,
    HELD,
    Move,
    assigned,
    async_lines,
    c_guard,
    call,
    each_vector,
    read,
    rectangle,
    sizes_of,
    taking,
    write,
)
from tcusim_cuda.prefetch import fetches
from tcusim_cuda.rule_text import RULE, coded_lines, rule_lines
from tcusim_cuda.shifted import ShiftedRun, shifted_run
from tcusim_cuda.sums import prefix_lines
from tcusim_cuda.text import (
    C_TYPES,
    c_address,
    c_bound,
    c_extent,
    c_index,
    c_literal,
    c_pattern,
    c_pointer,
    c_pointer_at,
    c_value,
    c_when,
    c_within,
    comment,
    is_coded,
    wrapped,
)

HEADER = Path(__file__).parent / "include" / "tcusim.cuh"
TILES_HEADER = HEADER.with_name("tiles.cuh")
# Types of tiles whose accesses tcusim.cuh writes in PTX.
TOLD_THE_SPACE = frozenset({"bf16", "tf32", "f64"})
FRAGMENT_TYPES = {**C_TYPES, "tf32": "wmma::precision::tf32"}
# The multiprocessor for which launch bounds are chosen: one text serves every GPU.
BOUNDS = MULTIPROCESSORS[90]
# The registers that a thread needs beside those of its tiles while it waits: nvcc 13 then spills
# none where blocks wait for others.
SPARE_REGISTERS, SPARE_OF_BF16 = 32, 64
# Registers of a thread of a warp that finds ranges: it waits for offsets, then for the elements,
# and others have to work meanwhile.
SEARCHING_REGISTERS = 72
# Registers of a thread that its accumulators take at most. Beside more of them, operands have none.
SUM_REGISTERS = 192
# Bytes of tiles, in the 32 threads of a warp, that are worth waiting for together.
BYTES_OF_HELD_TILES = 4096
# Rows of blocks that run together where the grid has several columns.
BAND_ROWS = 8
# Unless that writes more steps than this: a loop must stay in the instruction cache.
UNROLLED_STEPS = 512

# Variables of the text that are in scope where a step names buffers, scalars and loops.
OWN_NAMES = ("lane", "e", "f", FAST, HELD, "rest", "strange", "at", "sum")


def emit(program: Program, *, standalone: bool = False, rule: Rule | None = None) -> Kernel:
    """Return the CUDA kernel of a program.

    Parameters
    ----------
    program : Program
        The steps of the kernel.
    standalone : bool
        Put our headers into the text, in place of the line that includes them.
    rule : Rule, optional
        The rule by which the lanes multiply, from `rule_of_lanes`. Without, an instruction does.

    Raises
    ------
    VerifyError
        If the program breaks a rule.
    Unsupported
        If no instruction multiplies its tiles and no rule is given, or a name is one that the
        text itself uses.
    """
    verify(program)
    require_free_names(program, OWN_NAMES)
    return Emitter(program, instruction_for(program, rule), standalone).kernel()


def require_free_names(program: Program, own: tuple[str, ...]) -> None:
    """Refuse names that would mean something else within a step's text: those of its variables."""
    names = {buffer.name for buffer in program.buffers}
    names |= {scalar.name for scalar in program.scalars}
    names |= {step.var for _, step in walk(program.steps) if isinstance(step, Loop)}
    taken = ", ".join(name for name in own if name in names)
    if taken:
        raise Unsupported(
            f"{program.name}: emitted text has variables of its own that are called {taken}. Give "
            f"the program's buffers, scalars and loops other names"
        )


class Emitter:
    """Collects the lines of one kernel; `tapped.py` adds lines to them."""

    # Whether loops of few iterations are written out.
    unrolls = True

    def __init__(self, program: Program, instruction: Instruction, standalone: bool) -> None:
        self.program = program
        # As C can spell it.
        self.name = re.sub(r"\W", "_", program.name)
        self.standalone = standalone
        self.instruction = instruction
        self.lines: list[str] = []
        self.paths: list[str] = []
        self.depth = 0
        self.path = ""
        # Products that the machine code holds so far, and the unroll factor of the next lines.
        self.products, self.times = 0, 1
        # The variables that say whether some of these values are not finite, while it is so; and
        # how many there have been.
        self.votes: dict[View, str] = {}
        self.asked = 0
        # Whether few data come here, so that nothing is worth space in the instruction cache.
        self.rare = False
        self.async_copies = AsyncCopies(program)
        self.known = known_steps(program)
        # Where fragments and their functions are, and the rule of lanes that multiply.
        self.space, self.rule = instruction.namespace, instruction.rule
        self.dtypes = {program.ab, *(buffer.dtype for buffer in program.buffers)}
        self.tiled = _directly_loaded(program) if self.space == "wmma" else frozenset()
        self.tiled |= self.async_copies.sources
        self.shared = SharedMemory(program, lanes=self.rule is not None)
        self.layouts, self.tables = self.shared.layouts, self.shared.tables
        self.kept = _kept(program) if self.space == "wmma" else frozenset[str]()
        self.pooled = self.shared.nbytes > STATIC_SHARED_BYTES

    def kernel(self) -> Kernel:
        """Write everything and return it."""
        program = self.program
        self._head()
        with self._block():
            self._setup()
            self._steps(numbered(program.steps))
        text = "\n".join(self.lines) + "\n"
        return Kernel(
            name=self.name,
            text=text,
            aliased_text=text.replace(self._signature(" __restrict__"), self._signature("")),
            program=program,
            threads=program.warps * LANES,
            dynamic_shared_bytes=self.shared.nbytes if self.pooled else 0,
            min_sm=self.instruction.min_sm,
            paths=tuple(self.paths),
            products=self.products,
            tiled=self.tiled,
            shared=tuple(
                replace(buffer, size=Extent.of(self.shared.elements_of(buffer)))
                for buffer in self.shared.buffers
            ),
            rule=self.rule,
        )

    # --- Lines -------------------------------------------------------------------------------

    def _line(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + text if text else "" for text in lines]
        self.paths += [self.path] * len(lines)

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
        header = self._header()
        types = f"{program.ab} to {program.acc}"
        self._line(
            *header,
            *coded_lines(self.dtypes),
            "using namespace nvcuda;",
            "",
            comment(f"{program.name}: {program.shape.name}, {types}   {program.source}"),
            'extern "C" __global__ void',
            f"__launch_bounds__({program.warps * LANES}{self._residents()})",
            self._signature(" __restrict__"),
        )

    def _header(self) -> list[str]:
        """Return the lines that include our headers, or their text."""
        own = self.rule is not None or any(map(is_coded, self.dtypes))
        if not self.standalone:
            return [f'#include "{"tiles.cuh" if own else "tcusim.cuh"}"']
        paths = [HEADER, *([RULE_HEADER, TILES_HEADER] if own else [])]
        text = "".join(path.read_text(encoding="ascii") for path in paths)
        text = re.sub(r'#pragma once\n|#include "(tcusim\.cuh|tcusim_rule\.h)"\n', "", text)
        return ["", *text.splitlines(), ""]

    def _residents(self) -> str:
        """Return the blocks per multiprocessor to ask for, if blocks hold many tiles, or wait.

        Their number then keeps memory busy: the compiler must neither spend registers freely nor
        save them by loading a tile only when another is no longer used.
        """
        program = self.program
        if self.rule is not None:
            return ""
        loads = [step for _, step in walk(program.steps) if isinstance(step, Load)]
        inputs = [load for load in loads if load.src.buffer.role is BufferRole.INPUT]
        # Tiles that are taken in part are not held: a warp repairs its rows tile by tile.
        held = {load.dst for load in inputs if load.part is None}
        nbytes = sum(frag.rows * frag.cols * format_of(frag.dtype).itemsize for frag in held)
        waits = bool(held and fetches(program))
        if _ranges(program):
            registers = SEARCHING_REGISTERS
        elif nbytes < BYTES_OF_HELD_TILES and not waits:
            return ""
        else:
            spare = SPARE_OF_BF16 if waits and program.ab == "bf16" else SPARE_REGISTERS
            registers = nbytes // (4 * LANES) + spare
        blocks = REGISTERS // (registers * LANES * program.warps)
        # More than there is room for would only take registers away.
        blocks = max(
            1, min(blocks, BOUNDS.shared_bytes // (self.shared.nbytes + BOUNDS.reserved_bytes))
        )
        return f", tcu::residents({blocks})"

    def _signature(self, promise: str) -> str:
        """Return the kernel's name and parameters; `promise` qualifies each pointer."""
        program = self.program
        parameters = [
            *(f"const {C_TYPES[b.dtype]}*{promise} {b.name}" for b in program.inputs),
            *(f"{C_TYPES[b.dtype]}*{promise} {b.name}" for b in program.outputs),
            *([f"unsigned long long*{promise} {WORKSPACE}"] if program.status else []),
            *(f"const long long {scalar.name}" for scalar in program.scalars),
        ]
        return f"{self.name}({', '.join(parameters)})"

    def _setup(self) -> None:
        if self.rule is not None:
            self._line(*rule_lines(self.rule))
        self._place_of_lane("threadIdx.x")
        if self.program.status:
            # All threads wait for the block's number, and so for the constants, too.
            self._shared_memory()
            self._constants()
            self._place_of_ticket()
        else:
            is_matrix = self.program.columns > 1 and self.program.rows == 1
            self._place_in_band() if is_matrix else self._place("blockIdx.x")
            self._shared_memory()
        for name in _ranges(self.program):
            self._line(f"tcu::Found {name}_found;")
        kinds: dict[str, list[str]] = {}
        for frag in fragments_of(self.program):
            kinds.setdefault(self._kind_of(frag), []).append(frag.name + self._array_of(frag))
        for kind, names in kinds.items():
            self._line(f"{kind} {', '.join(names)};")
        if self.tables.filled and not self.program.status:
            self._constants()
            self._line("__syncthreads();")

    def _place_of_lane(self, thread: str) -> None:
        self._line(f"const int lane = {thread} % {LANES};", f"const int warp = {thread} / {LANES};")
        across = self.program.warp_columns
        if across > 1:
            self._line(
                f"const int warp_row = warp / {across};", f"const int warp_col = warp % {across};"
            )

    def _place(self, number: str) -> None:
        """Declare the block's place in the grid."""
        rows, columns = self.program.rows, self.program.columns
        each = f" / {rows * columns}" if rows * columns > 1 else ""
        self._line(f"const long long block = {number}{each};")
        if rows > 1:
            row = f"{number} / {columns}" if columns > 1 else number
            self._line(f"const int block_row = {row} % {rows};")
        if columns > 1:
            self._line(f"const int block_col = {number} % {columns};")

    def _place_in_band(self) -> None:
        """Declare the block's place where blocks run column by column, in bands of some rows.

        Concurrent blocks then read fewer rows and columns, and L2 keeps these for them.
        """
        sizes = f"{self.program.columns}, {BAND_ROWS}"
        place = f"(blockIdx.x, {c_extent(self.program.blocks)})"
        self._line(
            f"const long long block = tcu::row_in_bands<{sizes}>{place};",
            f"const int block_col = tcu::col_in_bands<{sizes}>{place};",
        )

    def _place_of_ticket(self) -> None:
        """Take the number of the block, as blocks start: none waits for one that never does."""
        self._line(f"const tcu::Ticket ticket = tcu::take_ticket({WORKSPACE});")
        self._place("ticket.number")
        self._status_words()
        self._fetch_ahead()

    def _constants(self) -> None:
        if self.tables.filled:
            self._line("", "// Constant matrices, made once a block.")
        for name, table in self.tables.filled.items():
            self._fill(name, table, f"threadIdx.x; e < {table.size}; e += blockDim.x")

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
                    f"const tcu::Shared<{kind}> {buffer.name} = "
                    f"{{reinterpret_cast<{kind}*>({SHARED_POOL} + {place}){shift}}};"
                )
                place += self.shared.bytes_of(buffer)
            else:
                whole, part = f"{buffer.name}_all[{size}]", f"{buffer.name}_all"
                if own:
                    whole = f"{buffer.name}_all[{self.program.warps}][{size}]"
                    part += "[warp]"
                self._line(f"__shared__ __align__({TILE_BYTES}) {kind} {whole};")
                self._line(f"const tcu::Shared<{kind}> {buffer.name} = {{{part}}};")

    def _status_words(self) -> None:
        """Declare where in the workspace the status words are."""
        place = f"{WORKSPACE} + {TICKET_WORDS}"
        for buffer in self.program.status:
            kind = C_TYPES[buffer.dtype]
            self._line(f"const tcu::Status<{kind}> {buffer.name} = {{{place}, ticket.launch}};")
            words = words_of(buffer.dtype)
            size = wrapped(c_extent(buffer.size))
            place += f" + {size}" if words == 1 else f" + {words} * {size}"

    def _fetch_ahead(self) -> None:
        """Prefetch a later block's inputs into L2, so that memory is busy while blocks wait."""
        for fetch in fetches(self.program):
            name = fetch.buffer.name
            self._line("", f"// What a later block reads of {name}.")
            with self._block():
                self._line(f"const long long later = ticket.number + {fetch.later};")
                self._place("later")
                self._line(
                    f"tcu::fetch({name}, {c_index(fetch.first)}, {fetch.count}, "
                    f"{c_extent(fetch.buffer.size)});"
                )

    def _fill(self, name: str, table: Table, loop: str) -> None:
        """Write the elements of a constant table."""
        row, col = f"e / {table.ldm}", f"e % {table.ldm}"
        if table.layout == "col_major":
            row, col = col, row
        test = c_pattern(table.pattern, f"({row})", f"({col})")
        one, zero = c_literal(table.dtype, 1), c_literal(table.dtype, 0)
        self._line(f"for (int e = {loop}) {name}[e] = {test} ? {one} : {zero};")

    # --- Fragments ---------------------------------------------------------------------------

    def _kind_of(self, frag: Frag) -> str:
        """Print the type of a tile's fragment, or fragments."""
        shape, layout = self.instruction.shape, ""
        if frag.role is not Role.ACC:
            layout = f", wmma::{self.layouts[frag.name]}"
        name, types = ("fragment", FRAGMENT_TYPES) if self.rule is None else ("Tile", C_TYPES)
        kind = (
            f"{self.space}::{name}<wmma::{frag.role.value}, {shape.m}, {shape.n}, {shape.k}, "
            f"{types[frag.dtype]}{layout}>"
        )
        return f"tcu::Kept<{kind}>" if frag.name in self.kept else kind

    def _array_of(self, frag: Frag) -> str:
        """Print the extent of the array, if a tile has several fragments."""
        down, across = self._grid_of(frag)
        return "" if self.instruction.single else f"[{down * across}]"

    def _space_of(self, frag: Frag) -> str:
        """Return the C++ namespace of the functions for a fragment."""
        return "tcu" if frag.name in self.kept else self.space

    def _grid_of(self, frag: Frag) -> tuple[int, int]:
        """Return the number of fragments of a tile, down and across."""
        down, across, deep = self.instruction.grid
        return {Role.A: (down, deep), Role.B: (deep, across), Role.ACC: (down, across)}[frag.role]

    @contextmanager
    def _each_fragment(self, frag: Frag, view: View | None = None) -> Iterator[tuple[str, str]]:
        """Loop over a tile's fragments; give the index, and where each lies in a view if any."""
        point = c_pointer_at if self.async_copies.is_counted else c_pointer
        pointer = "" if view is None else point(view.buffer, view.offset)
        if self.instruction.single:
            yield "", pointer
            return
        rows, cols = self.instruction.fragment_of(frag.role)
        down, across = self._grid_of(frag)
        if view is not None:
            pointer += f" + f / {across} * {rows} * {view.row_stride}"
            pointer += f" + f % {across} * {cols} * {view.col_stride}"
        self._line("#pragma unroll")
        with self._block(f"for (int f = 0; f < {down * across}; ++f)"):
            yield "[f]", pointer

    # --- Steps, in the order of interpret.py --------------------------------------------------

    def _steps(self, steps: Iterator[Numbered]) -> None:
        for one in steps if self.rare else runs_of(steps, self._may_run):
            if isinstance(one, Run):
                for self.path, step in one.listed:
                    self._said(step)
                self._run(one)
                for member in one.members:
                    self._forget(member.step)
                continue
            self.path, step = one
            self._said(step)
            match step:
                case Loop():
                    self._loop(step)
                case When():
                    self._when(step)
                case _:
                    self._step(step)
                    self._forget(step)

    def _said(self, step: Step) -> None:
        """Write a step's line of the listing as a comment."""
        self._line("", comment(f"{self.path}  {line(step)}"))

    def _forget(self, step: Step) -> None:
        """Drop the votes on the buffers that a step has written."""
        written = {view.buffer for view in accesses(step).views_written}
        for values in [one for one in self.votes if one.buffer in written]:
            del self.votes[values]

    def _may_run(self, path: str, step: Assign) -> Transfer | None:
        """Return a step's move; None for an asynchronous copy or a step with lines of its own."""
        if narrow_rows(step) or self._shifted_run(step) or not is_in_type_of_memory(step.value):
            return None
        return None if path in self.async_copies.copies else self._transfer_of(step)

    def _loop(self, step: Loop) -> None:
        path, var, count = self.path, step.var, step.count
        times, copies = count.constant, 1
        if self.rare or not self.unrolls or self.rule is not None:
            self._line("#pragma unroll 1")
        elif times is not None and times <= UNROLL and times * _weight(step.body) <= UNROLLED_STEPS:
            self._line("#pragma unroll")
            copies = max(1, times)
        kind = "long long" if times is None else "int"
        self.times *= copies
        self.votes = {}
        with self._block(f"for ({kind} {var} = 0; {var} < {c_extent(count)}; ++{var})"):
            self._steps(branch_of(path, step))
        self.votes = {}
        self.times //= copies
        self.path = path

    def _when(self, step: When) -> None:
        path, test = self.path, self._condition(step)
        usual, self.rare = self.rare, self.rare or step.not_finite is not None
        with self._block(f"if ({test})"), self._own_votes():
            if self.rare and not usual:
                self._place_of_lane("tcu::thread_anew()")
            self._steps(branch_of(path, step))
        self.rare = usual
        if step.otherwise:
            with self._block("else"), self._own_votes():
                self._steps(branch_of(path, step, taken=False))
        self.path = path

    def _condition(self, step: When) -> str:
        """Return the condition of a branch, after the vote on its data."""
        conditions = [c_bound(bound) for bound in step.bounds]
        if step.longer is not None:
            conditions.append(f"{step.longer.name}_found.longest > 1")
        if step.not_finite is None:
            return " && ".join(conditions)
        conditions.append(self._vote(step.not_finite))
        return f"__builtin_expect({' && '.join(conditions)}, 0)"

    @contextmanager
    def _own_votes(self) -> Iterator[None]:
        """Forget a branch's votes at its end: their variables are out of scope."""
        outer = dict(self.votes)
        yield
        self.votes = {values: name for values, name in outer.items() if values in self.votes}

    def _vote(self, values: View) -> str:
        """Return the variable that says whether some value is not finite, in all lanes.

        Each lane looks at some values, unless they are as they were when it last did.
        """
        if values not in self.votes:
            self.asked += 1
            name = "strange" if self.asked == 1 else f"strange{self.asked}"
            how = Transfer(values.rows, values.cols, 1, down=values.cols == 1)
            look = f"[=](int row, int col) {{ return !tcu::is_finite({c_value(values)}); }}"
            function = f"const bool {name} = tcu::any<{sizes_of(how)}>"
            self._line(*call(function, ("lane",), [look]))
            self.votes[values] = name
        return self.votes[values]

    def _step(self, step: Step) -> None:  # noqa: C901 - one case for each step
        """Write one leaf step."""
        match step:
            case Const(dst, pattern):
                self._const(dst, pattern)
            case Load(dst):
                src = step.src
                layout = f", wmma::mem_{src.layout}" if dst.role is Role.ACC else ""
                with self._each_fragment(dst, src) as (f, pointer):
                    load = self._tile_function("load", src, dst)
                    self._line(f"{load}({dst.name}{f}, {pointer}, {src.ldm}{layout});")
                    if step.part is not None:
                        self._each_element(dst, f, f"{taking(step.part)}({dst.name}{f}.x[e])")
            case Mma(d, a, b, c):
                self._mma(d, a, b, c)
            case Add(d, a, b):
                with self._each_fragment(d) as (f, _):
                    self._each_element(d, f, f"tcu::add({a.name}{f}.x[e], {b.name}{f}.x[e])")
            case Store(dst, src):
                with self._each_fragment(src, dst) as (f, pointer):
                    store = self._tile_function("store", dst, src)
                    self._line(
                        f"{store}({pointer}, {src.name}{f}, {dst.ldm}, wmma::mem_{dst.layout});"
                    )
            case Assign():
                self._assign(step)
            case Prefix():
                rows = rows_of(self.program, step, self.tiled, self.known)
                self._line(*prefix_lines(step, rows))
            case Publish(dst, src):
                self._publish(dst, src)
            case Await(dst, src):
                self._await(dst, src)
            case Locate():
                self._locate(step)
            case Sync(scope):
                self._wait_for_copies()
                self._line("__syncthreads();" if scope is Scope.BLOCK else "__syncwarp();")
            case Loop() | When():
                raise AssertionError("control steps are written by _steps")
            case _:
                assert_never(step)

    def _tile_function(self, verb: str, view: View, frag: Frag) -> str:
        """Return the function that moves a fragment: WMMA's, or ours for mma.sync's shapes.

        For some types nvcc does not infer the memory space of a WMMA tile, so ours is told.
        """
        if frag.name not in self.kept and self.space == "wmma" and frag.dtype in TOLD_THE_SPACE:
            space = "InGlobal" if view.buffer.space is Space.GLOBAL else "InShared"
            return f"tcu::{verb}_tile<tcu::{space}>"
        return f"{self._space_of(frag)}::{verb}_matrix_sync"

    def _wait_for_copies(self) -> None:
        """Wait for the asynchronous copies that a barrier makes visible."""
        unfinished = self.async_copies.waits.get(self.path)
        if unfinished is not None:
            latest = f"<{unfinished}>" if unfinished else ""
            self._line(f"tcu::wait_for_copies{latest}();")

    def _each_element(self, frag: Frag, f: str, value: str) -> None:
        """Set each element of a fragment, all alike."""
        self._line(
            f"for (int e = 0; e < {frag.name}{f}.num_elements; ++e) {frag.name}{f}.x[e] = {value};"
        )

    def _locate(self, step: Locate) -> None:
        """Let the lanes find the lines together; the warp alone uses them, after it has waited."""
        ranges, segments = step.dst, step.segments
        offsets = segments.offsets
        cuts = ", ".join(str(cut) for cut in (segments.chunk or 0, *segments.levels))
        count = c_extent(Extent(offsets.size.index - 1)) if offsets.size.per == 1 else ""
        limit = "" if segments.limit is None else f", {c_index(segments.limit)}"
        held = ", ".join(f"&{ranges.name}_{what}[0]" for what in ("begin", "end", "place"))
        self._line(
            f"tcu::locate<{cuts}>({offsets.name}, {count}, {c_index(step.first)}, {ranges.count}, "
            f"{held}, {ranges.name}_found{limit});"
        )

    def _const(self, frag: Frag, pattern: Pattern) -> None:
        """Fill a uniform constant; load any other from its table."""
        if pattern.uniform:
            value = c_literal(frag.dtype, int(pattern.kind is PatternKind.ONES))
            with self._each_fragment(frag) as (f, _):
                self._line(f"{self._space_of(frag)}::fill_fragment({frag.name}{f}, {value});")
            return
        name, table = self.tables.of(frag, pattern)
        if name not in self.tables.filled:
            # The offset differs from warp to warp: the table is made anew, by the warp alone.
            self._line("__syncwarp();")
            self._fill(name, table, f"lane; e < {table.size}; e += {LANES}")
            self._line("__syncwarp();")
        view = table.view(self.tables.buffer(name), pattern.offset)
        with self._each_fragment(frag, view) as (f, pointer):
            self._line(f"{self.space}::load_matrix_sync({frag.name}{f}, {pointer}, {view.ldm});")

    def _mma(self, d: Frag, a: Frag, b: Frag, c: Frag) -> None:
        """D = A.B + C; of a grid, each fragment of D takes its k blocks in ascending order."""
        down, across, deep = self.instruction.grid
        self.products += self.times * down * across * deep
        mma = f"{self.space}::mma_sync"
        if self.rule is not None:
            self._line(
                f"tcu::multiply<{RULE}>({d.name}, {a.name}, {b.name}, {c.name}, &{OPERANDS}[0]);"
            )
            return
        if self.instruction.single:
            self._line(f"{mma}({d.name}, {a.name}, {b.name}, {c.name});")
            return
        with self._each_fragment(d) as (f, _):
            left, right = f"{a.name}[f / {across} * {deep}", f"{b.name}[f % {across}"
            self._line(f"{mma}({d.name}{f}, {left}], {right}], {c.name}{f});")
            if deep > 1:
                left, right = f"{left} + k]", f"{right} + k * {across}]"
                self._line("#pragma unroll")
                with self._block(f"for (int k = 1; k < {deep}; ++k)"):
                    self._line(f"{mma}({d.name}{f}, {left}, {right}, {d.name}{f});")

    # --- Rectangles ----------------------------------------------------------------------------

    def _transfer(self, written: Sequence[View], read: Sequence[View]) -> Transfer:
        return transfer_of(self.program, written, read, self.tiled, self.known)

    def _assign(self, step: Assign) -> None:
        """Read, compute and write; or start to copy."""
        how = self._transfer_of(step)
        if self.path in self.async_copies.copies:
            self._line(*async_lines(how, step.dst, *views_of(step.value)))
            if self.async_copies.is_counted:
                self._line("tcu::commit_copies();")
            return
        rows = narrow_rows(step)
        if rows is not None:
            sizes = f"{rows.inside}, {rows.width}, {rows.apart}, {rows.count}"
            places = (c_pointer(view.buffer, Index()) for view in accesses(step).views)
            self._line(f"tcu::spread_rows<{sizes}>({', '.join(places)}, lane);")
            return
        move = assigned(step, how)
        special = self._shifted_run(step) or contiguous_copy(self.program, step)
        if special is None:
            self._line(*move.lines())
            return
        with self._block(f"if ({special.test})" if special.test else ""):
            self._line(*special.lines())
        if special.test:
            with self._block("else"):
                self._line(*move.tested())

    def _shifted_run(self, step: Assign) -> ShiftedRun | None:
        return shifted_run(self.program, step, self.known)

    def _transfer_of(self, step: Assign) -> Transfer:
        how = self._transfer(step.dsts, moved_of(step.value))
        if is_in_type_of_memory(step.value):
            return how
        # The computed values are wider.
        return replace(how, held=max(1, min(how.held, HELD_BYTES // (4 * how.vector))))

    def _run(self, run: Run) -> None:
        """Read all rectangles, then write all, if every element is in bounds; else step by step."""
        moves = [(member, assigned(member.step, member.how)) for member in run.members]
        kinds = [rectangle(member.how, member.loop) for member, _ in moves]
        self._line("tcu::move_together<", f"    {', '.join(kinds)}>(")
        self._line(f"    lane, {c_guard(run.guard) or 'true'},")
        for member, move in moves:
            self.path = member.path
            read, write = move.lambdas(member.loop)
            end = ");" if member is run.members[-1] else ","
            self._line(f"    {read},", f"    {write}{end}")

    def _publish(self, dst: View, src: View) -> None:
        """Write each element with its flag."""
        how = replace(self._transfer((dst,), (src,)), guard=())
        value = read(how, src, Where.ANYWHERE)
        put = c_when(dst, f"{dst.buffer.name}.store({c_address(dst)}, {value});")
        self._line(*each_vector(how, put))

    def _await(self, dst: View, src: View) -> None:
        """Poll all of the lane's words at once, then wait for the missing ones.

        Words of which only some are in bounds are the latest, and come one after the other.
        """
        how = self._transfer((dst,), (src,))
        words, place = src.buffer.name, c_address(src)
        seen = c_within(src, f"{words}.try_load({place})", f"{words}.empty()")
        zero = c_literal(src.buffer.dtype, 0)
        value = c_within(src, f"{words}.wait({place}, {HELD})", zero)
        put = write(how, dst, Where.ANYWHERE, value, src.buffer.dtype)
        self._line(*Move(how, seen, (put,)).lines())


# --- Declarations before a program's first step -------------------------------------------------


def _weight(steps: tuple[Step, ...]) -> int:
    """Return the number of leaf steps in the text, where loops in between are unrolled.

    Branches for non-finite data are excluded: no loop is unrolled there.
    """
    total = 0
    for step in steps:
        match step:
            case Loop(count=count, body=body):
                inner = (count.constant or UNROLL) * _weight(body)
                total += inner if inner <= UNROLLED_STEPS else _weight(body)
            case When(otherwise=otherwise, not_finite=View()):
                total += 1 + _weight(otherwise)
            case When(body=body, otherwise=otherwise):
                total += _weight(body + otherwise)
            case Locate():
                # It is long by itself.
                total += UNROLLED_STEPS
            case Prefix(dst=dst):
                # All its elements are in registers, where each takes several additions.
                words = step.src.rows * step.src.cols * format_of(dst.buffer.dtype).itemsize // 4
                total += max(1, words // (4 * LANES))
            case _:
                total += 1
    return total


def fragments_of(program: Program) -> tuple[Frag, ...]:
    """Return every fragment, in the order of first use."""
    found: dict[str, Frag] = {}
    for _, step in walk(program.steps):
        touched = accesses(step)
        for frag in (*touched.frags_written, *touched.frags_read):
            found.setdefault(frag.name, frag)
    return tuple(found.values())


def _kept(program: Program) -> frozenset[str]:
    """Return the accumulators that are kept in memory: no products, if all are too many."""
    sums = [frag for frag in fragments_of(program) if frag.role is Role.ACC]
    nbytes = sum(frag.rows * frag.cols * format_of(frag.dtype).itemsize for frag in sums)
    if nbytes <= 4 * LANES * SUM_REGISTERS:
        return frozenset()
    products = [step for _, step in walk(program.steps) if isinstance(step, Mma)]
    multiplied = {frag.name for step in products for frag in (step.d, step.c)}
    return frozenset(frag.name for frag in sums) - multiplied


def _ranges(program: Program) -> dict[str, None]:
    """Return the names of all ranges."""
    steps = (step for _, step in walk(program.steps))
    return {step.dst.name: None for step in steps if isinstance(step, Locate)}


def _directly_loaded(program: Program) -> frozenset[str]:
    """Return the buffers whose tiles move between memory and fragments, without a copy between."""
    steps = [step for _, step in walk(program.steps)]
    loaded = {step.src.buffer.name for step in steps if isinstance(step, Load)}
    return frozenset(loaded | {step.dst.buffer.name for step in steps if isinstance(step, Store)})
