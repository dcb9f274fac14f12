"""A kernel with taps: the emitted text, line by line, and calls that record each step's results.

The lines of the kernel are `emit`'s own, but loops are not unrolled. Their effect on memory and on
fragments is the same; a tapped warp at most waits more often.

A fragment is opaque: which elements a lane holds depends on the GPU. So the kernel records each
lane's elements, and once for each kind of fragment its elements of a numbered tile.
Rectangles of memory are read back by the lanes that wrote them. Whoever reads the records puts the
tiles together: see `taps.py`, and `Tap` in `include/taps.cuh`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from tcusim.machine import Rule, format_of
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    WARP,
    Add,
    Assign,
    Await,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Load,
    Locate,
    Loop,
    Mma,
    Prefix,
    Program,
    Publish,
    Ranges,
    Role,
    Scope,
    Space,
    Step,
    Store,
    Sync,
    View,
    When,
    branch_of,
    walk,
)
from tcusim.program.lanes import LANES, moved_of, narrow_rows
from tcusim_cuda.emit import OWN_NAMES, Emitter, fragments_of, require_free_names
from tcusim_cuda.fusion import Run
from tcusim_cuda.instructions import Instruction, instruction_for
from tcusim_cuda.kernel import Kernel
from tcusim_cuda.text import C_TYPES, c_address, c_extent, c_index, c_literal, c_value, c_within

# The arguments that a tapped kernel has besides, and its variable.
CHOICE: Final = "tap_choice"
RECORDS: Final = "tap_records"
TAP: Final = "tap"
# The base of the digits in which numbers are loaded.
BASE: Final = 128
# The number of a record that nobody reads.
_ROOM: Final = 0


@dataclass(frozen=True, slots=True)
class Placing:
    """A kind of fragment whose places in the lanes a kernel records.

    number: of the record, below 0. rows, cols: of the instruction's tile. ldm: elements from one of
    its rows (columns, if `down`) to the next, as it is numbered.
    """

    number: int
    rows: int
    cols: int
    ldm: int
    down: bool

    @property
    def count(self) -> int:
        """How many numbers there are, gaps between lines included."""
        return self.ldm * (self.cols if self.down else self.rows)


@dataclass(frozen=True, slots=True)
class TappedKernel:
    """A kernel with taps, and how to read its records.

    kernel: its program has two buffers more, CHOICE and RECORDS, whose sizes say nothing. program:
    without them. paths: by the number of a record from 1 on, the step's. placings: by fragment.
    grids: by fragment, of how many fragments its tile is made, down and across.
    """

    kernel: Kernel
    program: Program
    paths: tuple[str, ...]
    placings: dict[str, Placing]
    grids: dict[str, tuple[int, int]]

    def of_sizes(self, chosen: int, words: int) -> Kernel:
        """Return the kernel for arguments of these sizes, in elements."""
        program = _with_arguments(self.program, chosen, words)
        return replace(self.kernel, program=program)


def emit_tapped(program: Program, rule: Rule | None = None) -> TappedKernel:
    """Return the CUDA kernel of a program, with taps: its text is `emit`'s with lines between.

    rule: as of `emit`, whose errors are raised here as well.
    """
    verify(program)
    require_free_names(program, (*OWN_NAMES, TAP, CHOICE, RECORDS))
    emitter = _TappedEmitter(program, instruction_for(program, rule))
    return TappedKernel(
        emitter.kernel(), program, tuple(emitter.numbers), emitter.placings, emitter.grids
    )


def shared_of(program: Program) -> tuple[Buffer, ...]:
    """Return the buffers that a block's warps share; its barriers record them."""
    return tuple(buffer for buffer in program.scratch if buffer.space is Space.SHARED)


def _with_arguments(program: Program, chosen: int, words: int) -> Program:
    more = (
        Buffer(CHOICE, "s64", Extent.of(chosen), BufferRole.INPUT),
        Buffer(RECORDS, "s32", Extent.of(words), BufferRole.OUTPUT),
    )
    return replace(program, buffers=(*program.buffers, *more))


class _TappedEmitter(Emitter):
    """Collects the lines of a kernel, and those of its taps.

    numbers: of the records of steps, by path. placings, grids: see `TappedKernel`.
    """

    # A step's taps are more code than the step: each is there once.
    unrolls = False

    def __init__(self, program: Program, instruction: Instruction) -> None:
        super().__init__(_with_arguments(program, 0, 0), instruction, standalone=False)
        steps = enumerate(walk(program.steps), start=1)
        self.numbers = {path: number for number, (path, _) in steps}
        # All fragments are recorded alike.
        self.kept = frozenset()
        self.placings: dict[str, Placing] = {}
        self.grids: dict[str, tuple[int, int]] = {}

    def _head(self) -> None:
        self._line('#include "taps.cuh"')
        super()._head()

    def _setup(self) -> None:
        super()._setup()
        program = self.program
        # Not as the blocks run, which may be in bands.
        warp = c_index(program.block_number * program.warps + WARP)
        self._line("", f"// What a warp that is tapped begins with: {RECORDS} tells of it.")
        self._line(f"tcu::Tap {TAP}({CHOICE}, {RECORDS}, {warp});")
        for buffer in program.scratch:
            own = buffer.space is Space.WARP
            first, stride = ("lane", str(LANES)) if own else ("threadIdx.x", "blockDim.x")
            bits = f"{format_of(buffer.dtype).unwritten_bits:#x}ull"
            self._line(
                f"tcu::poison({buffer.name}, {buffer.size.constant}, {bits}, {first}, {stride});"
            )
        if program.scratch:
            self._line(f"{TAP}.rejoin();")

        # Fragments of one kind share a record of their places.
        kinds: dict[str, Placing] = {}
        for frag in fragments_of(self.program):
            kind = self._kind_of(frag)
            self.grids[frag.name] = self._grid_of(frag)
            if kind not in kinds:
                kinds[kind] = self._placing(frag, -1 - len(kinds))
                self._record_places(frag, kind, kinds[kind])
            self.placings[frag.name] = kinds[kind]

    def _placing(self, frag: Frag, number: int) -> Placing:
        """Return the numbering of one instruction's tile in memory."""
        shape = self.instruction.shape
        rows = shape.k if frag.role is Role.B else shape.m
        cols = shape.k if frag.role is Role.A else shape.n
        down = frag.role is not Role.ACC and self.layouts[frag.name] == "col_major"
        unit = TILE_BYTES // format_of(frag.dtype).itemsize
        ldm = -(-(rows if down else cols) // unit) * unit
        return Placing(number, rows, cols, ldm, down)

    def _record_places(self, frag: Frag, kind: str, placing: Placing) -> None:
        """Load a tile of numbers into a fragment of a kind."""
        layout = ", wmma::mem_row_major" if frag.role is Role.ACC else ""
        number, count, ldm = placing.number, placing.count, placing.ldm
        element = C_TYPES[frag.dtype]
        load = f"{self.space}::load_matrix_sync(f, from, {ldm}{layout});"
        self._line(
            f"{TAP}.places<{kind}, {element}>({number}, {_ROOM}, {count}, "
            f"[](auto& f, const {element}* from) {{ {load} }});"
        )

    # --- Steps -------------------------------------------------------------------------------

    def _condition(self, step: When) -> str:
        test = super()._condition(step)
        if step.on_data:
            self._line(f"{TAP}.branch({self.numbers[self.path]}, {test});")
        return test

    def _step(self, step: Step) -> None:
        super()._step(step)
        self._line(*self._taps(step))

    def _run(self, run: Run) -> None:
        super()._run(run)
        self._line(*(line for path, step in run.steps for line in self._taps_of_run(path, step)))

    def _taps_of_run(self, path: str, step: Step) -> list[str]:
        """Return the taps of a step that has run with those after it, each loop in one line."""
        if not isinstance(step, Loop):
            self.path = path
            return self._taps(step)
        inner = branch_of(path, step)
        lines = " ".join(line for one in inner for line in self._taps_of_run(*one))
        var, count = step.var, c_extent(step.count)
        return [f"for (int {var} = 0; {var} < {count}; ++{var}) {{ {lines} }}"]

    def _taps(self, step: Step) -> list[str]:
        """Return the lines that record the results of a leaf step."""
        match step:
            case Const(frag) | Load(frag) | Mma(frag) | Add(frag):
                return [f"{TAP}.fragment({self.numbers[self.path]}, {frag.name});"]
            case Store(dst):
                # The lane that stored an element is not known.
                return [f"{TAP}.settle();", *self._views([dst])]
            case Assign(dst) if narrow_rows(step) is not None:
                # Here, too, a lane's elements are not those of any rectangle.
                return [f"{TAP}.settle();", *self._views([dst])]
            case Assign():
                arrives = [f"{TAP}.arrive();"] if self.path in self.async_copies.copies else []
                return [*arrives, *self._views(step.dsts, moved_of(step.value))]
            case Prefix(dst, _, totals):
                # One lane has the sums of a row that others have part of.
                views = [dst] if totals is None else [dst, totals]
                return [f"{TAP}.settle();", *self._views(views)]
            case Publish(dst, src):
                words, place = dst.buffer.name, c_address(dst)
                value = f"{words}.wait({place}, {words}.try_load({place}))"
                zero = c_literal(dst.buffer.dtype, 0)
                return self._views([dst], (src,), c_within(dst, value, zero))
            case Await(dst, src):
                return self._views([dst], (src,))
            case Locate(ranges):
                return self._views([end_of(ranges, end) for end in ("begin", "end")])
            case Sync(scope):
                # The warps' shared buffers, before one warp goes on and changes them.
                shared = shared_of(self.program) if scope is Scope.BLOCK else ()
                lines = self._views([one_row(buffer) for buffer in shared])
                return [*lines, f"{TAP}.rejoin();"] if shared else lines
            case Loop() | When():
                raise AssertionError("control steps are written by _steps")
            case _:
                assert_never(step)

    def _views(
        self, written: Sequence[View], read: Sequence[View] = (), value: str | None = None
    ) -> list[str]:
        """Record rectangles, each element in the lane that wrote it if `read` names the lane.

        value: how an element is read, if not as others are.
        """
        how = self._transfer(written, read) if read else None
        vector, down = (how.vector, how.down) if how is not None else (1, False)
        number, nbytes = self.numbers[self.path], sum(map(bytes_of, written))
        lines = [f"{TAP}.step({number}, {nbytes});"]
        for view in written:
            sizes = f"{view.rows}, {view.cols}, {vector}, {str(down).lower()}"
            lines.append(
                f"{TAP}.view<{C_TYPES[view.buffer.dtype]}, {sizes}>("
                f"[&](int row, int col) {{ return {value or c_value(view)}; }});"
            )
        return lines


def bytes_of(view: View) -> int:
    """Return the bytes of a rectangle in a record."""
    return view.rows * view.cols * format_of(view.buffer.dtype).itemsize


def one_row(buffer: Buffer) -> View:
    """Return a buffer of constant size as one row."""
    size = buffer.size.evaluate({})
    return View.strided(buffer, Index(), 1, size, size, 1)


def end_of(ranges: Ranges, end: str) -> View:
    """Return the begins, or the ends, of ranges as one row."""
    size = Extent.of(ranges.count)
    return one_row(Buffer(f"{ranges.name}_{end}", "s64", size, BufferRole.SCRATCH, Space.WARP))
