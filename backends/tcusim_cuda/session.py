"""The engine: launches plans on arrays in GPU memory, and prepares each launch once."""

from __future__ import annotations

import math
import threading
from array import array as words_array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from tcusim.backends import Edge, Lane
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.launches import LaunchPlan
from tcusim_cuda.arrays import DeviceArray, common_device, from_bits, host_bits
from tcusim_cuda.driver import Driver
from tcusim_cuda.kernel import WORKSPACE, Kernel
from tcusim_cuda.libraries import QuickLibrary, device_array, library_of, on_gpu, quick_library
from tcusim_cuda.prepared import PreparedPlan, Step, require_host_out, require_writable
from tcusim_cuda.runtime import (
    Call,
    Loaded,
    Place,
    Runtime,
    Words,
    advice_on_contexts,
    handle_of,
)

# Streams of a context whose temporaries are kept; with one more, those of the stream used first are
# let go.
_MOST_STREAMS: Final = 8
# Kinds of calls that need no second look.
_MOST_SIGNATURES: Final = 64
# As cudaMalloc aligns.
_ALIGNMENT: Final = 256


@dataclass(frozen=True, slots=True)
class _Work:
    """One round of a plan's launches: the arrays by its names, and copies before and after."""

    arrays: dict[str, DeviceArray]
    before: list[Callable[[Driver, int], None]] = field(default_factory=list)
    after: list[Callable[[Driver, int], None]] = field(default_factory=list)


class _Look(NamedTuple):
    """The facts of a call on the fast path.

    addresses: of the inputs, and of `out` if given. signature: all the facts that decide whether
    the arrays are valid. aliased: whether `out` is the first input.
    """

    addresses: list[int]
    signature: tuple[Any, ...]
    device: int
    aliased: bool


@dataclass(slots=True)
class _Known:
    """The facts of all calls with one signature, which are right.

    context: the GPU's primary one. stream_now: asks for the library's current stream. shape: of the
    result. new: makes a result, from the first call on that needs one.
    """

    library: QuickLibrary
    device: int
    context: int
    context_id: int
    stream_now: Callable[[], int]
    aliased: bool
    shape: tuple[int, ...]
    new: Callable[[], Any] | None = None


# A function from arrays by name and a stream to rounds of launches.
_Works: TypeAlias = Callable[[Mapping[str, DeviceArray], int], list[_Work]]


@dataclass(frozen=True, slots=True)
class _Queue:
    """The launches of a plan on one stream, prepared but for the addresses of a call's arrays.

    words: the arguments of all launches: addresses of the plan's inputs, of its outputs, of
    temporaries, then scalars. calls: each with its launcher. memory: frees the temporaries.
    status, status_bytes: the memory to clear before each round: none, unless the launches were made
    ready while the stream was captured.
    """

    stream: int
    words: Words
    calls: tuple[tuple[Call, Callable[[], None]], ...]
    memory: Any
    status: int
    status_bytes: int


class DeviceSession:
    """A plan made ready on one runtime; see `tcusim.backends.Session`.

    Kernels are emitted when it is made, unless they are given, and compiled and loaded when first
    launched on a GPU. Each stream has temporaries of its own, and one lock keeps the launches of a
    call together.

    A call like an earlier one (the same library, types, shapes and GPU, on the library's current
    stream) takes a fast path: addresses are written into arguments that are ready, and nothing is
    looked at but addresses, gaps, overlaps, the stream and the context.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: LaunchPlan,
        arch: str | None = None,
        kernels: Sequence[Kernel] | None = None,
    ) -> None:
        self.runtime = runtime
        self.plan = plan
        self.prepared = PreparedPlan(plan, arch, kernels)
        self._first, self._last = self.prepared.first, self.prepared.last
        self._lock = threading.Lock()
        self._queues: dict[tuple[int, int, bool], _Queue] = {}
        # The launch in progress, for messages.
        self._now: Call | None = None
        # The fast path's: libraries by type of array (None: of no such library), and signatures of
        # calls that were right.
        self._libraries: dict[type, QuickLibrary | None] = {}
        self._known: dict[tuple[Any, ...], _Known] = {}
        self._input_bytes = tuple(plan.memory[name].nbytes for name in plan.inputs)
        self._output_bytes = plan.memory[self._last].nbytes
        self._result = format_of(plan.memory[self._last].dtype).array_name

    # --- Plans of one result -----------------------------------------------------------------

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
        whole = initial is None and starts is None
        if whole:
            look = self._look(inputs, out, shape)
            known = None if look is None else self._known.get(look.signature)
            if look is not None and known is not None:
                like = inputs[self._first]
                result = self._run_known(known, look.addresses, like, out, stream)
                if result is not None:
                    return result
        called = {self._first: "a"}
        given = {name: on_gpu(array, called.get(name, name)) for name, array in inputs.items()}
        wanted = {} if out is None else {self._last: on_gpu(out, "out")}
        if starts is None:
            for name, array in given.items():
                self.prepared.require_fit(array, name)
        for array in wanted.values():
            self.prepared.require_out(array, shape, whole=whole)
        works_of: _Works | None = None
        if starts is not None:
            works_of = partial(self._stacked, starts)
        elif initial is not None:
            works_of = partial(self._longer, initial)
        result = self._launched(given, wanted, {self._last: shape}, stream, works_of)[self._last]
        if whole:
            self._remember(inputs, out, shape)
        return result

    def _run_known(
        self, known: _Known, addresses: list[int], like: Any, out: Any, stream: Any
    ) -> Any:
        """Launch a call like one that was right; return the result.

        like: the first input. None, with nothing launched, on a stream that has had no launches.
        """
        library, handle, driver = known.library, known.stream_now(), Driver.open()
        queue = self._queues.get((known.context_id, handle, known.aliased))
        if queue is None or (stream is not None and handle_of(stream) != handle):
            return None
        self._now = None
        try:
            if out is None and library.may_switch:
                out = self._result_of(known, addresses, like)
            if driver.current_context() == known.context:
                if out is None:
                    out = self._result_of(known, addresses, like)
                self._launch(queue, addresses)
            else:
                with driver.in_primary_context(known.device), library.on(known.device):
                    if out is None:
                        out = self._result_of(known, addresses, like)
                    self._launch(queue, addresses)
        except Exception as error:
            self.runtime.explain(error, self.plan.title, self._configured)
            raise
        return out

    def _result_of(self, known: _Known, addresses: list[int], like: Any) -> Any:
        """Return a new array for the result, and add its address to those of the inputs."""
        if known.new is None:
            known.new = known.library.maker(like, known.shape, self._result)
        made = known.new()
        addresses.append(known.library.address(made))
        return made

    def lane(self, arrays: Sequence[Any], shape: tuple[int, ...]) -> Lane | None:
        """Return the fast path for such arrays; see `tcusim.backends.QuickSession.lane`."""
        look = self._look(dict(zip(self.plan.inputs, arrays, strict=True)), None, shape)
        known = None if look is None else self._known.get(look.signature)
        if known is None:
            return None
        address_of, has_no_gaps = known.library.readers()

        def lane(*arrays: Any) -> Any:
            addresses = []
            for array in arrays:
                address = address_of(array)
                if address % TILE_BYTES or not has_no_gaps(array):
                    return None
                addresses.append(address)
            return self._run_known(known, addresses, arrays[0], None, None)

        return lane

    def _look(self, inputs: Mapping[str, Any], out: Any, shape: tuple[int, ...]) -> _Look | None:
        """Return the facts of a call; None if the fast path is not for such arrays."""
        kind = type(inputs[self._first])
        library = self._libraries.get(kind)
        if library is None:
            return None
        facts: list[Any] = [shape]
        addresses: list[int] = []
        device = None
        arrays = [inputs[name] for name in self.plan.inputs]
        if out is not None:
            arrays.append(out)
        for array in arrays:
            if type(array) is not kind or not library.is_plain(array):
                return None
            address, at = library.address(array), library.device(array)
            if address % TILE_BYTES or at != (at if device is None else device):
                return None
            device = at
            addresses.append(address)
            facts.append(array.dtype)
            facts.append(array.shape)
        assert device is not None
        aliased = False
        if out is not None:
            target = addresses[-1]
            end = target + self._output_bytes
            for number, nbytes in enumerate(self._input_bytes):
                address = addresses[number]
                if target < address + nbytes and address < end:
                    if number or target != address:
                        return None
                    aliased = True
        return _Look(addresses, (kind, *facts, device, aliased), device, aliased)

    def _remember(self, inputs: Mapping[str, Any], out: Any, shape: tuple[int, ...]) -> None:
        """Let calls like this one, now known to be valid, take the fast path."""
        kind = type(inputs[self._first])
        # Outputs that no launch writes are poisoned; the fast path does not do that.
        if not (self.runtime.in_primary_context and all(s.blocks for s in self.prepared.steps)):
            return
        if kind not in self._libraries:
            self._libraries[kind] = quick_library(kind)
        library = self._libraries[kind]
        if library is None:
            return
        look = self._look(inputs, out, shape)
        if look is None or look.signature in self._known:
            return
        if len(self._known) >= _MOST_SIGNATURES:
            self._known.clear()
        driver, device = Driver.open(), look.device
        context = driver.primary_context(device)
        self._known[look.signature] = _Known(
            library, device, context, driver.context_id(context), library.stream_reader(device),
            look.aliased, shape,
        )  # fmt: skip

    # --- Plans of any results ----------------------------------------------------------------

    def compute(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any],
        *,
        stream: Any = None,
        poison: bool = False,
    ) -> dict[str, Any]:
        """Run the plan on flat arrays, which are all NumPy's or all on a GPU; see `Launcher.run`.

        poison: fill outputs with the simulator's unwritten values first.
        """
        for name in out:
            if name not in self.plan.outputs:
                raise InputError(
                    f"{self.plan.title} has no output {name!r} for out=; "
                    f"its outputs: {', '.join(self.plan.outputs)}"
                )
        if set(inputs) != set(self.plan.inputs):
            raise InputError(
                f"{self.plan.title}: inputs must be {', '.join(self.plan.inputs)}; "
                f"got {', '.join(inputs)}"
            )
        given = {name: device_array(inputs[name], f"input {name!r}") for name in self.plan.inputs}
        wanted = {name: device_array(array, f"out {name!r}") for name, array in out.items()}
        there = {name: array for name, array in given.items() if array is not None}
        outs = {name: array for name, array in wanted.items() if array is not None}
        first = next(iter((*there.values(), *outs.values())), None)
        if first is None:
            return self._on_host(inputs, out, stream, poison)
        for name, array in (*given.items(), *wanted.items()):
            if array is None:
                raise InputError(
                    f"{self.plan.title}: {name!r} is not in GPU memory, but {first.name} is. "
                    f"Copy it there first, or give NumPy arrays only."
                )
        for name, array in (*there.items(), *outs.items()):
            self.prepared.require_fit(array, name, flat=True)
        for array in outs.values():
            require_writable(array)
        shapes = {name: (self.plan.memory[name].size,) for name in self.plan.outputs}
        return self._launched(there, outs, shapes, stream, poison=poison)

    def _launched(
        self,
        given: Mapping[str, DeviceArray],
        wanted: Mapping[str, DeviceArray],
        shapes: Mapping[str, tuple[int, ...]],
        stream: Any,
        works_of: _Works | None = None,
        *,
        poison: bool = False,
    ) -> dict[str, Any]:
        """Launch on arrays that fit; return the results, those wanted or new ones of these shapes.

        works_of: gives the rounds of launches for all arrays by name, if it is not one round.
        """
        runtime, memory = self.runtime, self.plan.memory
        place = place_of([*given.values(), *wanted.values()])
        self.prepared.require_gpu(place.device, self.runtime.name)
        like = given[self._first]
        handle = handle_of(stream)
        with self._active(place, stream, like.stream if handle is None else handle) as opened:
            made = {
                name: wanted.get(name)
                or new_array(runtime, like, "the result", shape, memory[name].dtype, opened)
                for name, shape in shapes.items()
            }
            aliased = self.prepared.is_aliased(list(made.values()), given)
            if aliased and poison:
                raise InputError(f"{made[self._last].name} is an input: poison would destroy it")
            arrays = {**given, **made}
            works = [_Work(arrays)] if works_of is None else works_of(arrays, opened)
            queue = self._queue(place, opened, aliased, like)
            used = [*made.values(), *(array for work in works for array in work.arrays.values())]
            with ordered({array.stream for array in used}, opened):
                self._launch_rounds(queue, works, poison=poison)
            if any(library_of(array).must_wait for array in given.values()):
                Driver.open().wait(opened)
        return {
            name: array.owner
            if name in wanted
            else runtime.delivered(array.owner, like, memory[name].dtype)
            for name, array in made.items()
        }

    def _on_host(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any], stream: Any, poison: bool
    ) -> dict[str, Any]:
        """Copy the inputs to the GPU, run, and copy the outputs back."""
        plan, driver = self.plan, Driver.open()
        bits = {}
        for name in plan.inputs:
            bits[name] = host_bits(inputs[name], plan.memory[name].dtype, f"input {name!r}")
            self.prepared.require_size(f"input {name!r}", bits[name].size, name)
        for name, array in out.items():
            require_host_out(array, f"out {name!r}", plan.memory[name])
        given = handle_of(stream)
        # Where they are to be, a stream says.
        place = Place(driver.current_device() if given is None else driver.device_of_stream(given))
        self.prepared.require_gpu(place.device, self.runtime.name)
        results = {}
        with self._active(place, stream, given) as opened:
            work = _Work({name: self._room(name, opened) for name in (*bits, *plan.outputs)})
            for name, values in bits.items():
                driver.copy_there(values, work.arrays[name].address, opened)
            queue = self._queue(place, opened, False, None)
            self._launch_rounds(queue, [work], poison=poison)
            for name in plan.outputs:
                memory = plan.memory[name]
                values = np.empty(memory.size, format_of(memory.dtype).memory_dtype)
                driver.copy_back(work.arrays[name].address, values, opened)
                results[name] = from_bits(values, memory.dtype)
                if name in out:
                    out[name][...] = results[name]
                    results[name] = out[name]
        return results

    def _room(self, name: str, stream: int) -> DeviceArray:
        """Return memory for one of the plan's arrays."""
        memory = self.plan.memory[name]
        owner, address = self.runtime.allocated(None, max(memory.nbytes, 1), stream)
        dtype = format_of(memory.dtype).array_name
        return DeviceArray(name, owner, "other", address, (memory.size,), dtype)

    # --- Parts of arrays, and longer rows ----------------------------------------------------

    def _longer(self, initial: Edge, arrays: Mapping[str, DeviceArray], stream: int) -> list[_Work]:
        """Return the launches for rows with one element more than those of the scan: a zero."""
        whole, memory = arrays[self._last], self.plan.memory[self._last]
        *lead, length = whole.shape
        rows, item, pitch = math.prod(lead), whole.itemsize, length * whole.itemsize
        zero, rest = (0, item) if initial == "first" else (pitch - item, 0)
        start = whole.address + rest
        # The plan writes where the others belong if they are one row that begins where wide
        # accesses may; element by element, writing takes longer than a copy.
        if whole.size == memory.size + 1 and start % TILE_BYTES == 0:
            scan = replace(whole, address=start, shape=(memory.size,))
        else:
            like, size = arrays[self._first], (memory.size,)
            scan = new_array(self.runtime, like, "the scan", size, memory.dtype, stream)

        def finish(driver: Driver, handle: int) -> None:
            if scan.address != start:
                driver.copy_rows(scan.address, start, rows, pitch - item, pitch, handle)
            driver.clear_rows(whole.address + zero, rows, item, pitch, handle)

        return [_Work({**arrays, self._last: scan}, after=[finish])]

    def _stacked(
        self, starts: Sequence[Mapping[str, int]], arrays: Mapping[str, DeviceArray], stream: int
    ) -> list[_Work]:
        """Return a round of launches for each part of the arrays.

        A part that begins where no tile may is replaced by a room of its own, from or to which it
        is copied. The rounds share rooms: they are queued one after the other.
        """
        rooms: dict[str, DeviceArray] = {}
        works = []
        for start in starts:
            work = _Work({})
            for name, array in arrays.items():
                part = found = self.prepared.part(array, name, start)
                if not self.prepared.takes_tiles_of(part, name):
                    if name not in rooms:
                        dtype = self.plan.memory[name].dtype
                        rooms[name] = new_array(
                            self.runtime, array, array.name, part.shape, dtype, stream
                        )
                    found = rooms[name]
                    if name == self._last:
                        work.after.append(partial(_copy, found, part))
                    else:
                        work.before.append(partial(_copy, part, found))
                self.prepared.require_fit(found, name)
                work.arrays[name] = found
            works.append(work)
        return works

    # --- Launching ---------------------------------------------------------------------------

    @contextmanager
    def _active(self, place: Place, stream: Any, handle: int | None) -> Iterator[int]:
        """Give the handle, or that of the library's stream, in the context of the place."""
        runtime = self.runtime
        self._now = None
        with runtime.explained(self.plan.title, self._configured), runtime.active(place):
            if handle is None:
                handle = runtime.default_stream(place)
            elif stream is not None:
                Driver.open().require_own_stream(handle, place.device)
            yield handle

    def _queue(self, place: Place, stream: int, aliased: bool, like: DeviceArray | None) -> _Queue:
        """Return the launches on a stream, in the active context."""
        driver = Driver.open()
        key = (driver.context_id(driver.current_context()), stream, aliased)
        known = self._queues.get(key)
        if known is not None:
            return known
        launched = [step for step in self.prepared.steps if step.blocks]
        kernels = [
            step.kernel.aliased()
            if aliased and step.touches(self._first, self._last)
            else step.kernel
            for step in launched
        ]
        # While these are compiled, launches elsewhere go on.
        loaded = self.runtime.loaded(kernels, place)
        with self._lock:
            here = [one for one in self._queues if one[0] == key[0] and one != key]
            while len(here) >= _MOST_STREAMS:
                del self._queues[here.pop(0)]
            made = self._queues.get(key) or self._new_queue(launched, loaded, stream, like)
            self._queues[key] = made
        return made

    def _new_queue(
        self,
        launched: Sequence[Step],
        loaded: Sequence[Loaded],
        stream: int,
        like: DeviceArray | None,
    ) -> _Queue:
        plan = self.plan
        # The memory for status words comes first.
        sizes = {step.roles[WORKSPACE]: step.status_bytes for step in launched if step.status_bytes}
        status_bytes = sum(map(_rounded_up, sizes.values()))
        sizes |= {memory.name: memory.nbytes for memory in plan.temporaries}
        total = sum(map(_rounded_up, sizes.values()))
        owner, status = self.runtime.allocated(like, total, stream) if total else (None, 0)
        driver = Driver.open()
        if total:
            # Launches with status words go on from the words of those before: see `take_ticket`.
            # Of carries by number those of numbers that no chunk has are read, and nobody writes
            # them. Nothing comes of it, but it is to be the same each time.
            driver.clear(status, total, stream)
        if status_bytes and not driver.is_capturing(stream):
            # A captured stream clears nothing until a replay, and a graph's memory may serve other
            # nodes as well: there, each round clears.
            status_bytes = 0
        start = status
        values = [0] * (len(plan.inputs) + len(plan.outputs))
        places = {name: number for number, name in enumerate((*plan.inputs, *plan.outputs))}
        for name, nbytes in sizes.items():
            places[name] = len(values)
            values.append(start)
            start += _rounded_up(nbytes)
        arguments = []
        for step in launched:
            numbers = {name: places[role] for name, role in step.roles.items() if role in places}
            for name, value in step.scalars.items():
                numbers[name] = len(values)
                values.append(value)
            arguments.append(tuple(numbers[name] for name in step.kernel.arguments))
        words = words_array("q", values)
        calls = tuple(
            Call(one, step.kernel, step.blocks, words, which)
            for one, step, which in zip(loaded, launched, arguments, strict=True)
        )
        ready = tuple((call, self.runtime.ready(call, stream)) for call in calls)
        return _Queue(stream, words, ready, owner, status, status_bytes)

    def _launch_rounds(
        self, queue: _Queue, works: Sequence[_Work], *, poison: bool = False
    ) -> None:
        """Queue rounds of launches, in the active context."""
        plan, driver, handle = self.plan, Driver.open(), queue.stream
        # Elements that no block writes hold the values that they have on the simulator.
        poison = poison or len(queue.calls) < len(self.prepared.steps)
        for work in works:
            for do in work.before:
                do(driver, handle)
            for name in plan.outputs if poison else ():
                memory = plan.memory[name]
                address = work.arrays[name].address
                driver.poison(address, memory.size, format_of(memory.dtype), handle)
            names = (*plan.inputs, *plan.outputs)
            self._launch(queue, [work.arrays[name].address for name in names])
            for do in work.after:
                do(driver, handle)

    def _launch(self, queue: _Queue, addresses: Sequence[int]) -> None:
        """Launch on arrays at these addresses, of the plan's inputs, then of its outputs.

        In the active context. The lock keeps the launches of a round together: those of another
        thread would write over the words and the temporaries.
        """
        with self._lock:
            for place, address in enumerate(addresses):
                queue.words[place] = address
            if queue.status_bytes:
                Driver.open().clear(queue.status, queue.status_bytes, queue.stream)
            for self._now, launch in queue.calls:
                launch()

    def _configured(self) -> str:
        """Return the configuration of the launch that failed."""
        if self._now is not None:
            return self._now.configuration
        sizes = [*self._input_bytes, *(memory.nbytes for memory in self.plan.temporaries)]
        total = (
            sum(sizes) + self._output_bytes + sum(step.status_bytes for step in self.prepared.steps)
        )
        return f"Nothing was launched. Its arrays have {total} bytes in all."


# --- Steps of every way to launch -------------------------------------------------------------


def device_of(array: DeviceArray) -> int | None:
    """Return the GPU of an array; None if it has no elements and its library does not say."""
    if array.device is not None or not array.size:
        return array.device
    return Driver.open().home_of(array.address, array.name)[0]


def place_of(arrays: Sequence[DeviceArray]) -> Place:
    """Return the GPU and the context of arrays, of which all must have the same."""
    driver = Driver.open()
    homes = {one.name: driver.home_of(one.address, one.name) for one in arrays if one.size}
    devices = {
        one.name: homes[one.name][0] if one.device is None else one.device
        for one in arrays
        if one.size or one.device is not None
    }
    device = common_device(devices)
    for one in arrays:
        if one.name in homes and homes[one.name][0] != devices[one.name]:
            raise InputError(
                f"{one.name} is on GPU {one.device}, as its {one.library} says, and the driver "
                f"says that its memory, at {one.address:#x}, is on GPU {homes[one.name][0]}. "
                f"Copy it to memory of the GPU that is to compute."
            )
    contexts = {context: name for name, (_, context) in homes.items() if context}
    if len(contexts) > 1:
        raise InputError(
            f"{' and '.join(contexts.values())} belong to different CUDA contexts of GPU {device}. "
            f"{advice_on_contexts()}"
        )
    context = next(iter(contexts), 0)
    return Place(driver.current_device() if device is None else device, context)


def new_array(
    runtime: Runtime,
    like: DeviceArray,
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    stream: int,
) -> DeviceArray:
    """Return a new array of the kind of `like`, or of the runtime's kind, in the active context."""
    with Driver.open().restored_context():
        owner = library_of(like).empty(like, shape, dtype)
        if owner is None:
            owner = runtime.empty(like, shape, dtype, stream)
    made = device_array(owner, name)
    if made is None:
        raise AssertionError(f"{runtime.name} made an array that is on no GPU")
    return made


@contextmanager
def ordered(others: set[int], stream: int) -> Iterator[None]:
    """Let a stream wait for others before, and the others for it afterwards."""
    driver = Driver.open()
    for other in others:
        driver.order(other, stream)
    yield
    for other in others:
        driver.order(stream, other)


def _copy(source: DeviceArray, target: DeviceArray, driver: Driver, stream: int) -> None:
    """Queue a copy between arrays of one size."""
    nbytes = target.nbytes
    driver.copy_rows(source.address, target.address, 1, nbytes, nbytes, stream)


def _rounded_up(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
