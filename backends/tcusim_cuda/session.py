"""The engine: launches plans on arrays in GPU memory, and prepares each launch once."""

from __future__ import annotations

import math
import threading
from array import array as words_array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from tcusim.backends import Edge
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.launches import LaunchPlan
from tcusim_cuda.arrays import DeviceArray, common_device, from_bits, host_bits
from tcusim_cuda.driver import Driver
from tcusim_cuda.kernel import WORKSPACE, Kernel
from tcusim_cuda.libraries import QuickLibrary, device_array, library_of, on_gpu, quick_library
from tcusim_cuda.prepared import PreparedPlan, Step, require_host_out, require_writable
from tcusim_cuda.runtime import Call, Loaded, Place, Runtime, Words, advice_on_contexts, handle_of

# Streams of a context whose temporaries are kept; with one more, those of the stream used first are
# let go.
_MOST_STREAMS: Final = 8
# As cudaMalloc aligns.
_ALIGNMENT: Final = 256
# Addresses of a source and a target, rows, bytes of a row, and of a row of the target.
_Copy: TypeAlias = tuple[int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Round:
    """One round of a plan's launches: the arrays by its names, and the work before and after.

    before, after: copies, as the arguments of `Driver.copy_rows` but for the stream. cleared: rows
    to be cleared after them, if any, as those of `Driver.clear_rows`.
    """

    arrays: dict[str, DeviceArray]
    before: list[_Copy] = field(default_factory=list)
    after: list[_Copy] = field(default_factory=list)
    cleared: tuple[int, int, int, int] | None = None


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
    """A plan made ready on one runtime; see `tcusim.backends.Session` and `QuickSession`.

    Kernels are emitted when it is made, unless they are given, and compiled and loaded when first
    launched on a GPU. Each stream has temporaries of its own, and one lock keeps the launches of a
    call together. Every call ends in `launch`: from `run` and `compute`, which check their arrays,
    and from a `DeviceLaunch`, whose arrays are like those of a call that was right.
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
        # By the context's id, the stream, and whether the first output is the first input.
        self.queues: dict[tuple[int, int, bool], _Queue] = {}
        # The launch in progress, for messages.
        self.now: Call | None = None

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
        called = {self._first: "a"}
        given = {name: on_gpu(array, called.get(name, name)) for name, array in inputs.items()}
        wanted = {} if out is None else {self._last: on_gpu(out, "out")}
        if starts is None:
            for name, array in given.items():
                self.prepared.require_fit(array, name)
        for array in wanted.values():
            self.prepared.require_out(array, shape, whole=initial is None and starts is None)
        shapes = {self._last: shape}
        return self._launched(given, wanted, shapes, stream, initial, starts)[self._last]

    def prepared_launch(
        self, inputs: Mapping[str, Any], out: Any, shape: tuple[int, ...]
    ) -> DeviceLaunch | None:
        """Return a prepared launch for such arrays; see `tcusim.backends.QuickSession`."""
        like = inputs[self._first]
        library, kinds = quick_library(like), {type(array) for array in inputs.values()}
        # Outputs that no launch writes are poisoned; a prepared launch does not do that.
        if (
            library is None
            or kinds | {type(like if out is None else out)} != {type(like)}
            or tuple(inputs) != self.plan.inputs
            or not self.runtime.in_primary_context
            or not all(step.blocks for step in self.prepared.steps)
        ):
            return None
        return DeviceLaunch(self, library, library.device(like), shape)

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
        there = {name: one for name, one in (given | wanted).items() if one is not None}
        if not there:
            return self._on_host(inputs, out, stream, poison)
        for name in (*given, *wanted):
            if name not in there:
                raise InputError(
                    f"{self.plan.title}: {name!r} is not in GPU memory, but "
                    f"{next(iter(there.values())).name} is. "
                    f"Copy it there first, or give NumPy arrays only."
                )
            self.prepared.require_fit(there[name], name, flat=True)
        outs = {name: there.pop(name) for name in wanted}
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
        initial: Edge | None = None,
        starts: Sequence[Mapping[str, int]] | None = None,
        *,
        poison: bool = False,
    ) -> dict[str, Any]:
        """Launch on arrays that fit; return the results, those wanted or new ones of these shapes.

        initial, starts: see `tcusim.backends.Session.run`.
        """
        runtime, memory = self.runtime, self.plan.memory
        place = place_of([*given.values(), *wanted.values()])
        self.prepared.require_gpu(place.device, runtime.name)
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
            if starts is not None:
                rounds = self._stacked(arrays, starts, opened)
            elif initial is not None:
                rounds = [self._longer(arrays, initial, opened)]
            else:
                rounds = [_Round(arrays)]
            queue = self._queue(place, opened, aliased, like)
            used = [*made.values(), *(array for one in rounds for array in one.arrays.values())]
            with ordered({array.stream for array in used}, opened):
                self._launch_rounds(queue, rounds, poison=poison)
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
            work = _Round({name: self._room(name, opened) for name in (*bits, *plan.outputs)})
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

    def _longer(self, arrays: Mapping[str, DeviceArray], initial: Edge, stream: int) -> _Round:
        """Return the launches for rows with one element more than those of the scan: a zero."""
        whole, memory = arrays[self._last], self.plan.memory[self._last]
        *lead, length = whole.shape
        rows, item, pitch = math.prod(lead), whole.itemsize, length * whole.itemsize
        zero, rest = (0, item) if initial == "first" else (pitch - item, 0)
        start = whole.address + rest
        cleared = (whole.address + zero, rows, item, pitch)
        # The plan writes where the others belong if they are one row that begins where wide
        # accesses may; element by element, writing takes longer than a copy.
        if whole.size == memory.size + 1 and start % TILE_BYTES == 0:
            scan = replace(whole, address=start, shape=(memory.size,))
            return _Round({**arrays, self._last: scan}, cleared=cleared)
        like, size = arrays[self._first], (memory.size,)
        scan = new_array(self.runtime, like, "the scan", size, memory.dtype, stream)
        copy = (scan.address, start, rows, pitch - item, pitch)
        return _Round({**arrays, self._last: scan}, after=[copy], cleared=cleared)

    def _stacked(
        self, arrays: Mapping[str, DeviceArray], starts: Sequence[Mapping[str, int]], stream: int
    ) -> list[_Round]:
        """Return a round of launches for each part of the arrays.

        A part that begins where no tile may is replaced by a room of its own, from or to which it
        is copied. The rounds share rooms: they are queued one after the other.
        """
        rooms: dict[str, DeviceArray] = {}
        rounds = []
        for start in starts:
            one = _Round({})
            for name, array in arrays.items():
                part = found = self.prepared.part(array, name, start)
                if not self.prepared.takes_tiles_of(part, name):
                    if name not in rooms:
                        dtype = self.plan.memory[name].dtype
                        rooms[name] = new_array(
                            self.runtime, array, array.name, part.shape, dtype, stream
                        )
                    found, nbytes = rooms[name], part.nbytes
                    if name == self._last:
                        one.after.append((found.address, part.address, 1, nbytes, nbytes))
                    else:
                        one.before.append((part.address, found.address, 1, nbytes, nbytes))
                self.prepared.require_fit(found, name)
                one.arrays[name] = found
            rounds.append(one)
        return rounds

    # --- Launching ---------------------------------------------------------------------------

    @contextmanager
    def _active(self, place: Place, stream: Any, handle: int | None) -> Iterator[int]:
        """Give the handle, or that of the library's stream, in the context of the place."""
        runtime = self.runtime
        self.now = None
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
        known = self.queues.get(key)
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
            here = [one for one in self.queues if one[0] == key[0] and one != key]
            while len(here) >= _MOST_STREAMS:
                del self.queues[here.pop(0)]
            made = self.queues.get(key) or self._new_queue(launched, loaded, stream, like)
            self.queues[key] = made
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
        self, queue: _Queue, rounds: Sequence[_Round], *, poison: bool = False
    ) -> None:
        """Queue rounds of launches, in the active context."""
        plan, driver, stream = self.plan, Driver.open(), queue.stream
        # Elements that no block writes hold the values that they have on the simulator.
        poison = poison or len(queue.calls) < len(self.prepared.steps)
        for one in rounds:
            for copy in one.before:
                driver.copy_rows(*copy, stream)
            for name in plan.outputs if poison else ():
                memory = plan.memory[name]
                address = one.arrays[name].address
                driver.poison(address, memory.size, format_of(memory.dtype), stream)
            names = (*plan.inputs, *plan.outputs)
            self.launch(queue, [one.arrays[name].address for name in names])
            for copy in one.after:
                driver.copy_rows(*copy, stream)
            if one.cleared is not None:
                driver.clear_rows(*one.cleared, stream)

    def launch(self, queue: _Queue, addresses: Sequence[int]) -> None:
        """Launch on arrays at these addresses, of the plan's inputs, then of its outputs.

        In the active context. The lock keeps the launches of a round together: those of another
        thread would write over the words and the temporaries.
        """
        with self._lock:
            for place, address in enumerate(addresses):
                queue.words[place] = address
            if queue.status_bytes:
                Driver.open().clear(queue.status, queue.status_bytes, queue.stream)
            for self.now, launch in queue.calls:
                launch()

    def explain(self, error: Exception) -> None:
        """Raise a LaunchError if an error is a failure of the library or of the driver."""
        self.runtime.explain(error, self.plan.title, self._configured)

    def _configured(self) -> str:
        """Return the configuration of the launch that failed."""
        if self.now is not None:
            return self.now.configuration
        total = sum(memory.nbytes for memory in self.plan.arrays)
        total += sum(step.status_bytes for step in self.prepared.steps)
        return f"Nothing was launched. Its arrays have {total} bytes in all."


class DeviceLaunch:
    """A session's `tcusim.backends.PreparedLaunch`, for arrays like those of a call that was right.

    The arrays are of one library and one GPU. Each call writes addresses into arguments that are
    ready; it looks at addresses, gaps, overlaps, the stream and the context.
    """

    def __init__(
        self, session: DeviceSession, library: QuickLibrary, device: int, shape: tuple[int, ...]
    ) -> None:
        self.session, self.library, self.device, self.shape = session, library, device, shape
        driver = Driver.open()
        self.context = driver.primary_context(device)
        self.context_id = driver.context_id(self.context)
        self.address_of, self.has_no_gaps = library.address, library.has_no_gaps
        self.stream_now = library.stream_reader(device)
        # Makes a result, from the first call on that needs one.
        self.new: Callable[[], Any] | None = None
        plan = session.plan
        self.nbytes = [plan.memory[name].nbytes for name in (*plan.inputs, *plan.outputs)]

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        """Launch on such arrays; see `tcusim.backends.PreparedLaunch`."""
        addresses = []
        for array in arrays if out is None else (*arrays, out):
            address = self.address_of(array)
            if address % TILE_BYTES or not self.has_no_gaps(array):
                return None
            addresses.append(address)
        aliased = out is not None and addresses[0] == addresses[-1]
        if out is not None and self._overlaps(addresses, int(aliased)):
            return None
        handle, session, driver = self.stream_now(), self.session, Driver.open()
        session.now = None
        queue = session.queues.get((self.context_id, handle, aliased))
        if queue is None or (stream is not None and handle_of(stream) != handle):
            return None
        try:
            if out is None and self.library.may_switch:
                out = self._result(addresses, arrays[0])
            if driver.current_context() == self.context:
                if out is None:
                    out = self._result(addresses, arrays[0])
                session.launch(queue, addresses)
            else:
                with driver.in_primary_context(self.device), self.library.on(self.device):
                    if out is None:
                        out = self._result(addresses, arrays[0])
                    session.launch(queue, addresses)
        except Exception as error:
            session.explain(error)
            raise
        return out

    def _overlaps(self, addresses: Sequence[int], first: int) -> bool:
        """Return whether the output, the last of these, overlaps an input from `first` on."""
        start, nbytes = addresses[-1], self.nbytes
        return any(
            start < addresses[number] + nbytes[number] and addresses[number] < start + nbytes[-1]
            for number in range(first, len(addresses) - 1)
        )

    def _result(self, addresses: list[int], like: Any) -> Any:
        """Return a new array for the result, and add its address to those of the inputs."""
        if self.new is None:
            dtype = format_of(self.session.plan.memory[self.session.plan.outputs[0]].dtype)
            self.new = self.library.maker(like, self.shape, dtype.array_name)
        made = self.new()
        addresses.append(self.address_of(made))
        return made


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


@contextmanager
def opened(runtime: Runtime, array: DeviceArray, what: str) -> Iterator[Place]:
    """Give the place of an array, in its context; explain a failure of `what`."""
    place = place_of([array])
    configured = f"It was for {array.size} values of {array.dtype}."
    with runtime.explained(what, lambda: configured), runtime.active(place):
        yield place


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


def _rounded_up(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
