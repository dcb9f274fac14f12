"""Run a plan on arrays in GPU memory, again and again: all that can be done once is done once."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from tcusim.backends import Edge
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.grammar import Buffer
from tcusim.program.launches import Launch, LaunchPlan, Memory
from tcusim_cuda.arrays import DeviceArray, on_gpu, require_fit, storage_dtype
from tcusim_cuda.driver import Driver
from tcusim_cuda.kernel import WORKSPACE, Kernel
from tcusim_cuda.launch import (
    Launcher,
    Loaded,
    Place,
    Stream,
    blocks_of,
    configuration,
    emitted,
    explained,
    handle_of,
    loaded_by_wmma,
    new_output,
    place_of,
    require_gpu,
)

__all__ = ["DeviceSession"]

# Streams whose temporaries are kept; with one more, those of the stream used first are let go.
_MOST_STREAMS: Final = 8


@dataclass(frozen=True, slots=True)
class _Ready:
    """One launch of a plan, emitted.

    in_place: the kernel for when "in" and "out" are one array. tiles: the buffers whose tiles WMMA
    moves. workspace: the plan's name of its memory for mail, cleared before each launch; its size
    is `workspace_bytes`, 0 without mail.
    """

    launch: Launch
    kernel: Kernel
    in_place: Kernel
    tiles: frozenset[str]
    blocks: int
    scalars: Mapping[str, int]
    workspace: str
    workspace_bytes: int

    def chosen(self, aliased: bool) -> Kernel:
        """Return the kernel for arrays of which "in" and "out" are one, or are not."""
        both = "in" in self.launch.inputs.values() and "out" in self.launch.outputs.values()
        return self.in_place if aliased and both else self.kernel


@dataclass(frozen=True, slots=True)
class _Work:
    """One round of a plan's launches: the arrays by its names, and what is queued around them."""

    arrays: dict[str, DeviceArray]
    before: list[Callable[[Driver, int], None]] = field(default_factory=list)
    after: list[Callable[[Driver, int], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Longer:
    """A result whose rows (of the last axis) have one element more than those of the scan: a zero.

    zero, rest: in bytes from a row's beginning, where the zero is, and where the others begin.
    scan: what the plan writes: the others, if they are one row that begins where wide accesses may,
    else an array of its own. (Element by element, writing takes longer than a copy.)
    """

    whole: DeviceArray
    zero: int
    rest: int
    scan: DeviceArray

    def finish(self, driver: Driver, stream: int) -> None:
        """Write the zeros, and copy the scan to where it belongs."""
        *lead, length = self.whole.shape
        rows, item = math.prod(lead), self.whole.itemsize
        pitch, start = length * item, self.whole.address + self.rest
        if self.scan.address != start:
            driver.copy_rows(self.scan.address, start, rows, pitch - item, pitch, stream)
        driver.clear_rows(self.whole.address + self.zero, rows, item, pitch, stream)


class DeviceSession:
    """A plan made ready on one launcher; see `tcusim.backends.Session`.

    Kernels are emitted when it is made, compiled and loaded when first launched on a GPU. Each
    stream has temporaries of its own, and one lock keeps the launches of a call together.
    """

    def __init__(self, launcher: Launcher, plan: LaunchPlan, arch: str | None = None) -> None:
        self.launcher = launcher
        self.plan = plan
        self.arch = arch
        self.steps = tuple(
            _ready(plan, number, launch) for number, launch in enumerate(plan.launches)
        )
        self._lock = threading.Lock()
        self._loaded: dict[tuple[int, bool], tuple[Loaded, ...]] = {}
        self._kept: dict[tuple[int, int], dict[str, Any]] = {}
        self._able: set[int] = set()
        self._now: _Ready = self.steps[0]

    def forget(self) -> None:
        """Let go of kernels and memory."""
        self._loaded.clear()
        self._kept.clear()

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        out: Any = None,
        shape: tuple[int, ...],
        stream: Any = None,
        initial: Edge | None = None,
        starts: Sequence[Mapping[str, int]] | None = None,
    ) -> Any:
        """Launch the plan where the arrays are; see `tcusim.backends.Session.run`."""
        given = {
            name: on_gpu(array, "a" if name == "in" else name) for name, array in inputs.items()
        }
        first = given["in"]
        wanted = None if out is None else on_gpu(out, "out")
        if starts is None:
            for name, array in given.items():
                self._require_fit(array, name)
        place = place_of([*given.values(), *([] if wanted is None else [wanted])])
        self._require_gpu(place.device)
        with explained(self.launcher, self.plan.title, self._configured):
            if wanted is None:
                dtype = self._memory("out").dtype
                wanted = new_output(self.launcher, first, shape, dtype, "out", place)
            else:
                self._require_out(wanted, shape, whole=initial is None and starts is None)
            aliased = self._is_aliased(wanted, given)
            if starts is not None:
                works = self._stacked(given, wanted, starts, place)
            elif initial is not None:
                longer = self._longer(first, wanted, initial, place)
                works = [_Work({**given, "out": longer.scan}, after=[longer.finish])]
            else:
                works = [_Work({**given, "out": wanted})]
            self._launch(works, wanted, place, stream, aliased)
        return wanted.owner

    def _longer(
        self, like: DeviceArray, whole: DeviceArray, initial: Edge, place: Place
    ) -> _Longer:
        """Return where the plan writes what rows of the result have beside an initial zero."""
        memory, item = self._memory("out"), whole.itemsize
        zero, rest = (0, item) if initial == "first" else ((whole.shape[-1] - 1) * item, 0)
        start = whole.address + rest
        if whole.size == memory.size + 1 and start % TILE_BYTES == 0:
            scan = replace(whole, address=start, shape=(memory.size,))
        else:
            scan = new_output(self.launcher, like, memory.size, memory.dtype, "the scan", place)
        return _Longer(whole, zero, rest, scan)

    def _stacked(
        self,
        given: Mapping[str, DeviceArray],
        whole: DeviceArray,
        starts: Sequence[Mapping[str, int]],
        place: Place,
    ) -> list[_Work]:
        """Return a round of launches for each part of the arrays.

        A part that begins where no tile may is replaced by a room of its own, from or to which it
        is copied. The rounds share rooms: they are queued one after the other.
        """
        rooms: dict[str, DeviceArray] = {}
        works = []
        for start in starts:
            work = _Work({})
            for name, array in (*given.items(), ("out", whole)):
                part = found = self._part(array, name, start)
                if not self._takes_tiles_of(part, name):
                    if name not in rooms:
                        dtype = self._memory(name).dtype
                        rooms[name] = new_output(
                            self.launcher, array, part.size, dtype, array.name, place
                        )
                    found = rooms[name]
                    if name == "out":
                        work.after.append(partial(_copy, found, part))
                    else:
                        work.before.append(partial(_copy, part, found))
                self._require_fit(found, name)
                work.arrays[name] = found
            works.append(work)
        return works

    def _part(self, array: DeviceArray, name: str, start: Mapping[str, int]) -> DeviceArray:
        """Return the plan's array `name` as a part of an array, from an element on."""
        address = array.address + start[name] * array.itemsize
        return replace(array, address=address, shape=(self._memory(name).size,))

    def _takes_tiles_of(self, array: DeviceArray, name: str) -> bool:
        """Return whether an array begins where it may, if the plan moves tiles of `name`."""
        moved = any(
            role == name and buffer in step.tiles
            for step in self.steps
            for buffer, role in (*step.launch.inputs.items(), *step.launch.outputs.items())
        )
        return not moved or array.address % TILE_BYTES == 0

    # --- What is refused ---------------------------------------------------------------------

    def _memory(self, name: str) -> Memory:
        return next(array for array in self.plan.arrays if array.name == name)

    def _require_gpu(self, device: int) -> None:
        if device not in self._able:
            for step in self.steps:
                require_gpu(self.launcher, step.kernel, device, self.arch)
            self._able.add(device)

    def _require_fit(self, array: DeviceArray, name: str) -> None:
        """Refuse an array that a launch cannot take as it is."""
        memory = self._memory(name)
        if array.size != memory.size:
            raise InputError(
                f"this plan takes {memory.size} elements, {array.name} has {array.size}; "
                f"make another plan"
            )
        for step in self.steps:
            roles = {**step.launch.inputs, **step.launch.outputs}
            for buffer, role in roles.items():
                if role == name:
                    declared: Buffer = step.kernel.program.buffer(buffer)
                    require_fit(array, declared, tiles=buffer in step.tiles, flat=False)

    def _require_out(self, out: DeviceArray, shape: tuple[int, ...], *, whole: bool) -> None:
        """Refuse a result that cannot be written to. whole: it is the plan's array "out"."""
        wanted = format_of(self._memory("out").dtype).array_name
        if out.shape != shape or not out.holds(self._memory("out").dtype):
            raise InputError(
                f"out must be an array of {wanted}, shape {shape}; got {out.dtype}, {out.shape}"
            )
        if whole:
            self._require_fit(out, "out")
        else:
            step = self.steps[-1]
            (buffer,) = (name for name, role in step.launch.outputs.items() if role == "out")
            require_fit(out, step.kernel.program.buffer(buffer), tiles=False, flat=False)
        if not out.writable:
            raise InputError("out is read-only. Give an array to write to.")

    def _is_aliased(self, out: DeviceArray, given: Mapping[str, DeviceArray]) -> bool:
        """Return whether out is the array "in"; refuse any other overlap, and where that fails."""
        aliased = False
        for name, array in given.items():
            if not out.overlaps(array):
                continue
            same = out.address == array.address and out.nbytes == array.nbytes
            if name != "in" or not same:
                instead = (
                    "a itself, to compute in place, or "
                    if self.plan.why_not_in_place is None
                    else ""
                )
                raise InputError(
                    f"out overlaps {array.name} in memory. Give {instead}an array of its own."
                )
            reason = self.plan.why_not_in_place
            if reason is not None:
                raise InputError(
                    f"out is a itself, but {self.plan.title} does not work in place: {reason}. "
                    f"Give an array of its own."
                )
            aliased = True
        return aliased

    # --- Launching ---------------------------------------------------------------------------

    def _launch(
        self,
        works: Sequence[_Work],
        result: DeviceArray,
        place: Place,
        stream: Any,
        aliased: bool,
    ) -> None:
        launcher, driver = self.launcher, Driver.open()
        handle = handle_of(stream)
        handle = works[0].arrays["in"].stream if handle is None else handle
        others = {array.stream for work in works for array in work.arrays.values()}
        others |= {result.stream, handle}
        with self._lock, launcher.active(place):
            opened = launcher.open_stream(handle, stream, place)
            for other in others:
                driver.order(other, opened.handle)
            context = driver.context_id(driver.current_context())
            temporaries = self._temporaries(context, opened)
            loaded = self._functions(context, place, aliased)
            for work in works:
                addresses = {name: array.address for name, array in work.arrays.items()}
                for queue in work.before:
                    queue(driver, opened.handle)
                for step, function in zip(self.steps, loaded, strict=True):
                    self._now = step
                    self._launch_one(step, function, addresses | temporaries, opened)
                for queue in work.after:
                    queue(driver, opened.handle)
            for other in others:
                driver.order(opened.handle, other)

    def _launch_one(
        self, step: _Ready, loaded: Loaded, addresses: Mapping[str, int], stream: Stream
    ) -> None:
        roles = {**step.launch.inputs, **step.launch.outputs, WORKSPACE: step.workspace}
        if step.workspace_bytes:
            Driver.open().clear(addresses[step.workspace], step.workspace_bytes, stream.handle)
        arguments: list[Any] = [
            np.uint64(addresses[roles[name]]) if name in roles else np.int64(step.scalars[name])
            for name in step.kernel.arguments
        ]
        self.launcher.launch(
            loaded.function,
            step.blocks,
            step.kernel.threads,
            arguments,
            step.kernel.dynamic_shared_bytes,
            stream,
        )

    def _functions(self, context: int, place: Place, aliased: bool) -> tuple[Loaded, ...]:
        """Return the loaded kernels, in the active context."""
        key = (context, aliased)
        if key not in self._loaded:
            found = []
            for step in self.steps:
                self._now = step
                found.append(self.launcher.loaded(step.chosen(aliased), place))
            self._loaded[key] = tuple(found)
        return self._loaded[key]

    def _temporaries(self, context: int, stream: Stream) -> dict[str, int]:
        """Return the addresses of what lies between launches, for this stream."""
        key = (context, stream.handle)
        if key not in self._kept:
            while len(self._kept) >= _MOST_STREAMS:
                del self._kept[next(iter(self._kept))]
            sizes = {
                array.name: (array.size, storage_dtype(array.dtype))
                for array in self.plan.temporaries
            }
            for step in self.steps:
                if step.workspace_bytes:
                    sizes[step.workspace] = (step.workspace_bytes, np.dtype(np.uint8))
            self._kept[key] = {
                name: self.launcher.lasting_array(size, dtype, stream)
                for name, (size, dtype) in sizes.items()
            }
        return {
            name: int(array.__cuda_array_interface__["data"][0] or 0)
            for name, array in self._kept[key].items()
        }

    def _configured(self) -> str:
        """Return what the launch that failed asked for."""
        return f"{self._now.kernel.name}: {configuration(self._now.kernel, self._now.blocks, None)}"


def _copy(source: DeviceArray, target: DeviceArray, driver: Driver, stream: int) -> None:
    """Queue a copy between arrays of one size."""
    nbytes = target.nbytes
    driver.copy_rows(source.address, target.address, 1, nbytes, nbytes, stream)


def _ready(plan: LaunchPlan, number: int, launch: Launch) -> _Ready:
    kernel = emitted(launch.program)
    scalars = plan.scalars(launch)
    return _Ready(
        launch=launch,
        kernel=kernel,
        in_place=kernel.aliased(),
        tiles=loaded_by_wmma(launch.program),
        blocks=blocks_of(kernel, scalars),
        scalars=scalars,
        workspace=f"{WORKSPACE} {number}",
        workspace_bytes=kernel.workspace_bytes(scalars),
    )
