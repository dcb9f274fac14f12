"""Run a compiled kernel on NumPy arrays: bind, copy between guards, launch, check, copy back."""

from __future__ import annotations

import ctypes
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import Given, InputError, TcusimError, Unsupported
from tcusim.machine import Rule, Values, format_of
from tcusim.machine.formats import to_memory, unwritten_values
from tcusim.machine.multiprocessors import BLOCK_THREADS, LANES
from tcusim.machine.rule_row import RuleRow, rule_row
from tcusim.program.bind import bind_scalars, rule_of
from tcusim.program.grammar import Buffer, Locate, Program, Space, walk
from tcusim.program.walk import order_of_blocks
from tcusim_cuda.arrays import from_bits, host_bits
from tcusim_cuda.instructions import native
from tcusim_cuda.kernel import WORKSPACE, Kernel
from tcusim_host.build import Library, build, line_of, place_of, source_folder

Bytes = NDArray[np.uint8]

# The numbers of enum Type, Wait and Failure in host_runtime.h.
_TYPES: Final = ("f16", "bf16", "tf32", "f32", "f64", "s8", "u8", "s32")
_WAITS: Final = (
    "has not been there",
    "waits at __syncwarp",
    "waits at __syncthreads",
    "waits at load_matrix_sync",
    "waits at store_matrix_sync",
    "waits at mma_sync",
)
_DEADLOCK, _POINTER, _LDM, _TYPES_DIFFER, _UNPUBLISHED, _VECTOR, _TWO_WRITERS = range(1, 8)
_NOBODY: Final = -1

# cudaMalloc aligns to 256 bytes. All ones is NaN in every float type, so that what is read beyond
# a buffer shows in the result.
_ALIGNMENT: Final = 256
_GUARD_BYTES: Final = 4096
_GUARD: Final = 0xFF


class KernelError(TcusimError, RuntimeError):
    """A kernel failed on the host: a deadlock, a stray write, a misaligned tile."""


class NumericsRow(ctypes.Structure):
    """The arithmetic of a program's products, as struct Numerics of host_runtime.h."""

    _fields_ = [("ab", ctypes.c_int32), ("acc", ctypes.c_int32), ("rule", RuleRow)]


class _Unwritten(ctypes.Structure):
    """An element that nothing has written, as struct Unwritten of runtime.cpp."""

    _fields_ = [("bits", ctypes.c_uint64), ("itemsize", ctypes.c_int64)]


class _SharedArray(ctypes.Structure):
    """A shared array, as struct SharedArray of runtime.cpp."""

    _fields_ = [
        ("unwritten", _Unwritten),
        ("count", ctypes.c_int64),
        ("of_warps", ctypes.c_int32),
        ("begun", ctypes.c_uint32),
    ]


class _Output(ctypes.Structure):
    """An output with recorded writers, as struct Output of runtime.cpp."""

    _fields_ = [
        ("start", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("itemsize", ctypes.c_int64),
        ("writers", ctypes.c_void_p),
    ]


class _Report(ctypes.Structure):
    """The report of a failed launch, as struct Report of runtime.cpp."""

    _fields_ = [
        ("failure", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("block", ctypes.c_int64),
        ("thread", ctypes.c_int32),
        ("output", ctypes.c_int32),
        ("element", ctypes.c_int64),
        ("writer", ctypes.c_int64),
        ("returned", ctypes.c_int32 * BLOCK_THREADS),
        ("waits", ctypes.c_int32 * BLOCK_THREADS),
        ("lines", ctypes.c_int32 * BLOCK_THREADS),
    ]


def run_kernel(
    kernel: Kernel,
    inputs: Mapping[str, Any],
    *,
    arch: str = "hopper",
    seed: int = 0,
    block_order: str = "ascending",
    workspace: Bytes | None = None,
    debug: bool = False,
) -> dict[str, NDArray[Any]]:
    """Compile a kernel's text (once), run it on the CPU and return its outputs by name.

    Parameters
    ----------
    kernel : Kernel
        From `tcusim_cuda.emit.emit`; its text may have been changed.
    inputs : mapping of str to array
        One flat array for each of the program's inputs, of the input's element type.
    arch : str
        The numerics that `mma_sync` follows; see `tcusim.machine.arches`. Where the lanes multiply,
        they follow the kernel's own rule.
    seed : int
        Draws the order in which lanes run. A kernel without races returns the same for all seeds.
    block_order : str
        The order in which blocks run: "ascending", "descending" or "shuffled" (drawn by `seed`). A
        GPU promises none, so a kernel without races between blocks returns the same for all.
    workspace : array of uint8, optional
        The status words that earlier launches left, of `kernel.workspace_bytes`;
        this one leaves its own there. None: this launch is the first on its memory.
    debug : bool
        Compile for a debugger, say on stderr where the sources are, and refuse outputs of which two
        warps write an element, or none writes one.

    Returns
    -------
    dict of str to array
        Flat arrays; elements that the kernel did not write are NaN (integers: bytes of 0x80).

    Raises
    ------
    InputError
        If the inputs do not fit the program, or there is no such order of blocks.
    Unsupported
        If the host cannot compute as `arch` does.
    BackendUnavailable, BuildError
        If there is no C++ compiler, or the text does not compile.
    KernelError
        If the kernel stops for ever, writes outside its outputs or loads a misaligned tile; with
        `debug`, if two warps write one element of an output, or nothing writes it.
    """
    program = kernel.program
    # Lanes that multiply have their rule in the text.
    rule = rule_of(program, arch) if kernel.rule is None else None
    row = NumericsRow() if rule is None else numerics_row(rule)
    _require_chain(program, rule)
    scalars = bind_scalars(program, {name: np.size(array) for name, array in inputs.items()})
    buffers = {
        one.name: _guarded(host_bits(inputs[one.name], one.dtype, f"input {one.name!r}"))
        for one in program.inputs
    }
    for one in program.outputs:
        values = unwritten_values(one.size.evaluate(scalars), one.dtype)
        buffers[one.name] = _guarded(to_memory(values, one.dtype))
    if program.status:
        new = np.zeros(kernel.workspace_bytes(scalars), np.uint8)
        buffers[WORKSPACE] = _guarded(new if workspace is None else workspace)
    before = {buffer.name: buffers[buffer.name].inside.tobytes() for buffer in program.inputs}
    order = order_of_blocks(kernel.blocks(scalars), block_order, seed)
    watched_outputs = program.outputs if debug and order.size else ()
    writers = {one.name: np.full(one.size.evaluate(scalars), _NOBODY) for one in watched_outputs}
    if order.size:
        library = _library(kernel, debug)
        slots = _argument_slots(kernel, buffers, scalars)
        watched = [
            _output(buffers[name], program.buffer(name), each) for name, each in writers.items()
        ]
        _launch(kernel, library, slots, order, row, seed, watched)
    _check_guards(kernel, buffers, before)
    _check_written(program, kernel.name, writers)
    if workspace is not None:
        workspace[:] = buffers[WORKSPACE].inside
    return {
        one.name: from_bits(buffers[one.name].copy(format_of(one.dtype).memory_dtype), one.dtype)
        for one in program.outputs
    }


# --- Numerics ---------------------------------------------------------------------------------


def numerics_row(rule: Rule) -> NumericsRow:
    """Return a rule for the runtime, or raise Unsupported if kernels lack its types."""
    if rule.ab not in _TYPES or rule.acc not in _TYPES:
        where = f"the host backend, {rule.ab} -> {rule.acc}"
        raise Unsupported(f"{where}: WMMA has no such types; use ", Given("backend", "numpy"))
    return NumericsRow(_TYPES.index(rule.ab), _TYPES.index(rule.acc), rule_row(rule))


def _require_chain(program: Program, rule: Rule | None) -> None:
    """Refuse a tile that a kernel cuts along k where the rule does not."""
    if rule is None:
        return
    instruction = native(program)
    if (
        instruction is not None
        and instruction.grid[2] > 1
        and not rule.is_chain(instruction.shape.k)
    ):
        raise Unsupported(
            f"{program.name}: a kernel sums {program.shape.name} tiles in pieces of "
            f"{instruction.shape.k} products, which round on their own by the rule "
            f"{rule.operands} -> {rule.acc}; use ",
            Given("backend", "numpy"),
        )


# --- Memory -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Guarded:
    """A buffer in the middle of bytes that nobody may write."""

    whole: Bytes
    start: int
    size: int

    @property
    def inside(self) -> Bytes:
        """The buffer itself."""
        return self.whole[self.start : self.start + self.size]

    def copy(self, dtype: np.dtype[Any]) -> Values:
        """Return a copy of the elements."""
        return self.inside.copy().view(dtype)

    @property
    def address(self) -> int:
        """Where the buffer begins."""
        return int(self.whole.ctypes.data) + self.start

    def damage(self) -> str | None:
        """Return the side that was written to, if any."""
        sides = {"before": self.whole[: self.start], "after": self.whole[self.start + self.size :]}
        return next((side for side, guard in sides.items() if (guard != _GUARD).any()), None)


def _guarded(values: Values) -> _Guarded:
    """Copy an array between guards, aligned as on a GPU."""
    whole = np.full(values.nbytes + 2 * _GUARD_BYTES + _ALIGNMENT, _GUARD, np.uint8)
    start = _GUARD_BYTES + -int(whole.ctypes.data) % _ALIGNMENT
    result = _Guarded(whole, start, values.nbytes)
    result.inside[:] = np.frombuffer(values.tobytes(), np.uint8)
    return result


def _check_guards(
    kernel: Kernel, buffers: Mapping[str, _Guarded], before: Mapping[str, bytes]
) -> None:
    for name, buffer in buffers.items():
        side = buffer.damage()
        if side is not None:
            raise KernelError(
                f"{kernel.name} wrote to memory {side} the buffer {name!r} of {buffer.size} "
                f"bytes; check the bounds of the steps that store there"
            )
        if name in before and buffer.inside.tobytes() != before[name]:
            raise KernelError(f"{kernel.name} wrote to its input {name!r}, which is const")


def unwritten_arguments(shared: Sequence[Buffer]) -> tuple[Any, ...]:
    """Return a launch's arguments: the values of unwritten memory, and the shared arrays."""
    each = (_Unwritten * len(_TYPES))(*map(_unwritten, _TYPES))
    arrays = (_SharedArray * len(shared))(
        *(
            _SharedArray(
                unwritten=_unwritten(one.dtype),
                count=one.size.evaluate({}),
                of_warps=one.space is Space.WARP,
            )
            for one in shared
        )
    )
    return each, arrays, ctypes.c_int32(len(shared))


def _unwritten(dtype: str) -> _Unwritten:
    fmt = format_of(dtype)
    return _Unwritten(fmt.unwritten_bits, fmt.itemsize)


def _output(buffer: _Guarded, output: Buffer, writers: NDArray[np.int64]) -> _Output:
    """Return the runtime's description of an output, to record its writers."""
    itemsize = format_of(output.dtype).itemsize
    return _Output(buffer.address, buffer.size, itemsize, writers.ctypes.data)


def _check_written(program: Program, name: str, writers: Mapping[str, NDArray[np.int64]]) -> None:
    """Reject outputs with elements that a launch left unwritten, as the simulator does."""
    if any(isinstance(step, Locate) for _, step in walk(program.steps)):
        # Elements may belong to no segment.
        return
    for output, each in writers.items():
        missing = np.flatnonzero(each == _NOBODY)
        if missing.size and not program.buffer(output).partial:
            raise KernelError(
                f"{name} has not written {output}[{missing[0]}] ({missing.size} such elements); "
                f"check the bounds of the steps that store there, or declare the output as partial"
            )


# --- The launch -------------------------------------------------------------------------------


def _library(kernel: Kernel, debug: bool) -> Library:
    """Compile a kernel whose blocks the runtime can run."""
    if kernel.threads % LANES or not 0 < kernel.threads <= BLOCK_THREADS:
        raise InputError(
            f"{kernel.name}: a block must have 1 to {BLOCK_THREADS // LANES} warps of {LANES} "
            f"threads, it has {kernel.threads} threads"
        )
    library = build(kernel, debug=debug)
    if debug:
        print(f"{kernel.name}: sources are in {source_folder(kernel)}", file=sys.stderr)
    return library


def _launch(
    kernel: Kernel,
    library: Library,
    slots: Sequence[ctypes.c_int64 | ctypes.c_void_p],
    order: NDArray[np.int64],
    row: NumericsRow,
    seed: int,
    watched: Sequence[_Output],
) -> None:
    """Run the blocks in this order; the arguments' buffers are read and written in place."""
    addresses = (ctypes.c_void_p * len(slots))(*map(ctypes.addressof, slots))
    report = _Report()
    with library.lock:
        failed = library.functions.tcusim_launch(
            library.entry,
            addresses,
            ctypes.c_void_p(order.ctypes.data),
            ctypes.c_int64(order.size),
            ctypes.c_int32(kernel.threads),
            ctypes.c_uint64(seed),
            *unwritten_arguments(kernel.shared),
            (_Output * len(watched))(*watched),
            ctypes.c_int32(len(watched)),
            ctypes.byref(row),
            ctypes.byref(report),
        )
    if failed:
        raise KernelError(_explain(kernel, failed, report))


def _argument_slots(
    kernel: Kernel, buffers: Mapping[str, _Guarded], scalars: Mapping[str, int]
) -> list[ctypes.c_int64 | ctypes.c_void_p]:
    """Return the kernel's arguments, each in memory of its own."""
    return [
        ctypes.c_void_p(buffers[name].address) if name in buffers else ctypes.c_int64(scalars[name])
        for name in kernel.arguments
    ]


def _explain(kernel: Kernel, failed: int, report: _Report) -> str:
    """Report the failure of a launch and its place."""
    where = f"{kernel.name}, block {report.block}"
    line = f"{place_of(kernel, report.line)}: {line_of(kernel, report.line)}"
    if failed == _DEADLOCK:
        return "\n".join([f"{where}: no thread can go on:", *_waiting(kernel, report)])
    if failed == _TWO_WRITERS:
        return f"{where}, {_written_twice(kernel, report)}"
    program = kernel.program
    said = {
        _POINTER: f", {line}\n  the tile does not begin at a multiple of 32 bytes",
        _LDM: f", {line}\n  the rows of the tile are not a multiple of 16 bytes apart",
        _TYPES_DIFFER: f", {line}\n  the program multiplies {program.ab} into {program.acc}",
        _UNPUBLISHED: ": waits for a status word that no block before it publishes",
        _VECTOR: (
            f", thread {report.thread}: several elements are read or written at once at an address "
            f"that is not a multiple of their bytes; check what is said to be tcu::Aligned"
        ),
    }
    if failed in said:
        return f"{where}{said[failed]}"
    return f"{kernel.name}: no memory for the stacks of {kernel.threads} threads"


def _written_twice(kernel: Kernel, report: _Report) -> str:
    """Say which element two warps write."""
    warps = kernel.threads // LANES
    block, warp = divmod(report.writer, warps)
    return (
        f"warp {report.thread // LANES}: writes "
        f"{kernel.program.outputs[report.output].name}[{report.element}], which warp {warp} of "
        f"block {block} has written; which one is last is not known: bound the step that stores "
        f"there, or let one warp write it"
    )


def _waiting(kernel: Kernel, report: _Report) -> list[str]:
    """Return a line for each place where threads wait, or that they have returned."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for thread in range(kernel.threads):
        wait, number = _WAITS[report.waits[thread]], report.lines[thread]
        what = "returned" if report.returned[thread] else f"{wait}, {place_of(kernel, number)}"
        groups[what].append(thread)
    return [f"  threads {_ranges(threads)}: {what}" for what, threads in groups.items()]


def _ranges(numbers: list[int]) -> str:
    """Print ascending numbers as `0-3, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
