"""Run programs on a GPU: all that does not depend on the library that launches the kernels."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import BackendUnavailable, InputError, TcusimError, Unsupported
from tcusim.machine import format_of, unit_of
from tcusim.machine.formats import BY_ARRAY_NAME
from tcusim.program.bind import bind_scalars
from tcusim.program.grammar import Buffer, Program
from tcusim_cuda.arrays import (
    DeviceArray,
    arranged,
    common_device,
    device_array,
    directly_loaded,
    empty_like,
    from_bits,
    host_bits,
    on_gpu,
    require_apart,
    require_fit,
    restored,
    storage_dtype,
)
from tcusim_cuda.compile import compile_kernel, why_no_compiler
from tcusim_cuda.cubin import Usage
from tcusim_cuda.driver import Driver, DriverError, device_sm, unit_name
from tcusim_cuda.emit import emit, instruction_for
from tcusim_cuda.explain import EMITTER, CudaEmitter
from tcusim_cuda.kernel import WORKSPACE, Kernel

if TYPE_CHECKING:
    from tcusim.program.launches import LaunchPlan
    from tcusim_cuda.session import DeviceSession

__all__ = ["LaunchError", "Launcher"]

# More than this a kernel must ask for; cuda.h: a grid has fewer than 2**31 blocks.
_UNASKED_SHARED_BYTES: Final = 48 * 1024
_MOST_BLOCKS: Final = 2**31 - 1


class LaunchError(TcusimError, RuntimeError):
    """A kernel could not be loaded or launched, or failed, or the GPU's memory is full."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kernel runs: a GPU, and the context that its arrays belong to (0: of no one)."""

    device: int
    context: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel in a GPU's memory, ready to launch. function: the library's own object."""

    function: Any
    usage: Usage


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as the driver knows it, and the library's own object for it."""

    handle: int
    owner: Any = None


class Launcher(ABC):
    """A backend: compiles a program's kernel, and launches it through one GPU library.

    A subclass gives the library's calls. It imports the library when it is first used.

    Attributes
    ----------
    name, title : str
        As every backend has them.
    module : str
        What is imported.
    remedy : str
        How to install it.
    """

    name: str
    title: str
    module: str
    remedy: str

    def __init__(self) -> None:
        self._loaded: dict[tuple[int, str], Loaded] = {}
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[DeviceSession] = weakref.WeakSet()

    @property
    def emitter(self) -> CudaEmitter:
        """What there is to say of a program without a GPU; see `tcusim.backends.Emitter`."""
        return EMITTER

    # --- What the library does ---------------------------------------------------------------

    @abstractmethod
    def active(self, place: Place) -> AbstractContextManager[None]:
        """Make the place's context this thread's, and give the thread back its own afterwards."""

    @abstractmethod
    def open_stream(self, handle: int, given: Any, place: Place) -> Stream:
        """Return the stream to launch on: that of the handle, or one that stands in for it."""

    @abstractmethod
    def default_stream(self, place: Place) -> int:
        """Return the handle of the stream on which the library now works."""

    @abstractmethod
    def load(self, cubin: bytes, name: str) -> Any:
        """Return a function of a cubin."""

    @abstractmethod
    def allow_shared(self, function: Any, dynamic_bytes: int) -> None:
        """Let a function have this much dynamic shared memory."""

    @abstractmethod
    def launch(
        self,
        function: Any,
        blocks: int,
        threads: int,
        arguments: Sequence[Any],
        dynamic_bytes: int,
        stream: Stream,
    ) -> None:
        """Launch a function; the arguments are NumPy scalars."""

    @abstractmethod
    def new_array(self, shape: int | tuple[int, ...], dtype: np.dtype[Any], stream: Stream) -> Any:
        """Return an array of the library's own kind; `shape` may be the size of a flat one."""

    def lasting_array(self, size: int, dtype: np.dtype[Any], stream: Stream) -> Any:
        """Return a flat array that may be let go of in another thread."""
        return self.new_array(size, dtype, stream)

    @abstractmethod
    def upload(self, bits: NDArray[Any], stream: Stream) -> Any:
        """Return an array of the library's own kind that holds these bits."""

    @abstractmethod
    def download(self, array: Any, stream: Stream) -> NDArray[Any]:
        """Return what an array of the library's own kind holds, once the stream has come there."""

    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """Return what the library raises when the GPU or its driver fails."""

    # --- DeviceBackend -----------------------------------------------------------------------

    def prepare(self, plan: LaunchPlan, arch: str | None = None) -> DeviceSession:
        """Return what runs a plan on arrays in GPU memory."""
        # That module is written in terms of this one.
        from tcusim_cuda.session import DeviceSession

        session = DeviceSession(self, plan, arch)
        self._sessions.add(session)
        return session

    def describe(self, array: Any) -> DeviceArray:
        """Return what an array in GPU memory is."""
        return on_gpu(array, "a")

    def arranged(self, array: Any, axes: tuple[int, ...], dtype: str) -> Any:
        """Return the array with its axes in this order, contiguous, aligned and of this type."""
        return arranged(on_gpu(array, "a"), axes, dtype)

    def restored(self, array: Any, axes: tuple[int, ...]) -> Any:
        """Return a view in which axis i of the array is axis axes[i]."""
        return restored(on_gpu(array, "a"), axes)

    def zeros(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new array of zeros, of the kind and on the device of `like`."""
        given, short = on_gpu(like, "a"), BY_ARRAY_NAME[dtype].name
        place = Place(given.device or 0)
        with explained(self, "an array of zeros", lambda: f"It was to have shape {shape}."):
            made = new_output(self, given, shape, short, "zeros", place)
            if made.size:
                with self.active(place_of([made])):
                    Driver.open().clear(made.address, made.nbytes, made.stream)
        return made.owner

    def to_host(self, array: Any) -> NDArray[Any]:
        """Return a copy of a flat array in GPU memory, once what its stream has queued is done."""
        given = on_gpu(array, "offsets")
        if not given.contiguous:
            return self.to_host(arranged(given, (0,), given.dtype))
        values = np.empty(given.size, given.dtype)
        with explained(self, "a copy from the GPU", lambda: f"It was of {given.size} elements."):
            if values.size:
                with self.active(place_of([given])):
                    Driver.open().copy_back(given.address, values, given.stream)
        return values

    def to_device(self, values: NDArray[Any], like: Any) -> Any:
        """Return an array of this library with these values, on the device of `like`."""
        place = place_of([on_gpu(like, "a")])
        with (
            explained(self, "a copy to the GPU", lambda: f"It was of {values.size} elements."),
            self.active(place),
        ):
            stream = self.open_stream(self.default_stream(place), None, place)
            return self.upload(values, stream)

    # --- Backend -----------------------------------------------------------------------------

    def available(self) -> str | None:
        """Return None if programs can run here, else the reason and the command that helps."""
        try:
            Driver.open()
            self.library()
        except BackendUnavailable as error:
            return str(error)
        return why_no_compiler()

    def native_arch(self) -> str | None:
        """Return the unit whose arithmetic the first GPU has, such as "hopper"; None if unknown."""
        return unit_name(device_sm())

    def library(self) -> Any:
        """Import the library and return it.

        Raises
        ------
        BackendUnavailable
            If it cannot be imported.
        """
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise BackendUnavailable(
                f"{self.module} cannot be imported ({error}). {self.remedy}"
            ) from error

    def run(
        self,
        plan: LaunchPlan | Program,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        stream: Any = None,
        out: Mapping[str, Any] | None = None,
        poison: bool = False,
        progress: Any = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Run a program; return its outputs by name, as arrays of the inputs' kind.

        NumPy arrays are copied to the GPU, and the outputs back. Arrays that are on a GPU already
        are used where they are, and the launch is not waited for: CuPy arrays, PyCUDA's GPUArray,
        torch tensors, and all that has `__cuda_array_interface__` or `__dlpack__` (whose outputs
        are arrays of this backend's own library).

        Parameters
        ----------
        program : Program
            Verified, emitted and compiled when it is first run.
        inputs : mapping of str to array
            One flat array for each of the program's inputs, of the input's element type.
        arch : str, optional
            A GPU computes as it does; a name that is not this GPU's is refused.
        stream : optional
            A stream of CuPy, PyCUDA or torch, or a handle. By default the one on which the first
            input's library now works. The launch waits for what the arrays' own streams have to
            do, and they for the launch.
        out : mapping of str to array, optional
            Arrays to write outputs to, of the inputs' kind; they are returned.
        poison : bool
            Fill the outputs with NaN, or the lowest integer, first.

        Raises
        ------
        InputError
            If an array does not fit the program, or `arch` is not the GPU's.
        Unsupported
            If there is no instruction for the program's tiles, or too little shared memory.
        BackendUnavailable
            If there is no GPU, it is too old for the program, or a library is missing.
        LaunchError
            If the GPU's memory is full, or the launch fails.
        """
        if options:
            raise InputError(
                f"{self.name} has no option {', '.join(options)}; it has stream, out and poison"
            )
        reason = self.available()
        if reason is not None:
            raise BackendUnavailable(f"{self.name}: {reason}")
        if isinstance(plan, Program):
            return _Run(self, emitted(plan), dict(out or {}), arch, stream, poison).start(inputs)
        arrays = dict(inputs)
        for launch in plan.launches:
            given = {buffer: arrays[name] for buffer, name in launch.inputs.items()}
            wanted = {b: out[name] for b, name in launch.outputs.items() if out and name in out}
            run = _Run(self, emitted(launch.program), wanted, arch, stream, poison)
            made = run.start(given)
            arrays.update((name, made[buffer]) for buffer, name in launch.outputs.items())
        return {name: arrays[name] for name in plan.outputs}

    def loaded(self, kernel: Kernel, place: Place) -> Loaded:
        """Return the kernel on the device of the active context, loading it the first time."""
        driver = Driver.open()
        key = (driver.context_id(driver.current_context()), kernel.text)
        with self._lock:
            if key not in self._loaded:
                self._loaded[key] = self._load(kernel, place.device)
            return self._loaded[key]

    def _load(self, kernel: Kernel, device: int) -> Loaded:
        driver = Driver.open()
        cubin = compile_kernel(kernel, driver.sm(device))
        needed = cubin.usage.shared_bytes + kernel.dynamic_shared_bytes
        offered = driver.shared_bytes(device)
        if needed > offered:
            raise Unsupported(
                f"{kernel.program.name} needs {needed} bytes of shared memory a block, "
                f"{driver.title(device)} has {offered}. Build it with fewer warps or smaller tiles."
            )
        function = self.load(cubin.code, kernel.name)
        if kernel.dynamic_shared_bytes > _UNASKED_SHARED_BYTES:
            self.allow_shared(function, kernel.dynamic_shared_bytes)
        return Loaded(function, cubin.usage)


@functools.lru_cache(maxsize=512)
def emitted(program: Program) -> Kernel:
    return emit(program)


class _Run:
    """One call of `Launcher.run`."""

    def __init__(
        self,
        launcher: Launcher,
        kernel: Kernel,
        out: dict[str, Any],
        arch: str | None,
        stream: Any,
        poison: bool,
    ) -> None:
        self.launcher = launcher
        self.driver = Driver.open()
        self.kernel = kernel
        self.program = kernel.program
        self.out = out
        self.arch = arch
        self.stream = stream
        self.poison = poison
        self.usage: Usage | None = None
        self.blocks = 0

    def start(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run where the arrays are."""
        given = {name: device_array(array, f"input {name!r}") for name, array in inputs.items()}
        wanted = {name: device_array(array, f"out {name!r}") for name, array in self.out.items()}
        self._require_names()
        arrays = [array for array in (*given.values(), *wanted.values()) if array is not None]
        if not arrays:
            return self._from_host(inputs)
        for name, array in (*given.items(), *wanted.items()):
            if array is None:
                raise InputError(
                    f"{self.program.name}: {name!r} is not in GPU memory, but {arrays[0].name} "
                    f"is. Copy it there first, or give NumPy arrays only."
                )
        on_gpu = {name: array for name, array in given.items() if array is not None}
        return self._on_device(on_gpu, {name: a for name, a in wanted.items() if a is not None})

    def _require_names(self) -> None:
        names = [buffer.name for buffer in self.program.outputs]
        for name in self.out:
            if name not in names:
                raise InputError(
                    f"{self.program.name} has no output {name!r} for out=; "
                    f"its outputs: {', '.join(names)}"
                )

    # --- NumPy arrays ------------------------------------------------------------------------

    def _from_host(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the inputs to the GPU, run, and copy the outputs back."""
        sizes = {name: np.asarray(array).size for name, array in inputs.items()}
        scalars = self._bind(sizes)
        bits = {
            buffer.name: host_bits(inputs[buffer.name], buffer, f"input {buffer.name!r}")
            for buffer in self.program.inputs
        }
        for buffer in self.program.outputs:
            if buffer.name in self.out:
                _require_host_out(self.out[buffer.name], buffer, buffer.size.evaluate(scalars))
        place = Place(self.driver.current_device())
        require_gpu(self.launcher, self.kernel, place.device, self.arch)
        launcher = self.launcher
        with self._explained(), launcher.active(place):
            handle = handle_of(self.stream)
            handle = launcher.default_stream(place) if handle is None else handle
            stream = launcher.open_stream(handle, self.stream, place)
            self.driver.order(handle, stream.handle)
            results = self._computed(bits, scalars, place, stream)
            self.driver.order(stream.handle, handle)
        return {
            buffer.name: _returned(results[buffer.name], buffer, self.out.get(buffer.name))
            for buffer in self.program.outputs
        }

    def _computed(
        self,
        bits: Mapping[str, NDArray[Any]],
        scalars: Mapping[str, int],
        place: Place,
        stream: Stream,
    ) -> dict[str, NDArray[Any]]:
        """Return the outputs for these inputs, in the active context."""
        launcher = self.launcher
        memory: dict[str, Any] = {}
        try:
            for name, array in bits.items():
                memory[name] = launcher.upload(array, stream)
            for buffer in self.program.outputs:
                size = buffer.size.evaluate(scalars)
                dtype = storage_dtype(buffer.dtype)
                memory[buffer.name] = launcher.new_array(size, dtype, stream)
            addresses = {name: _address(array) for name, array in memory.items()}
            self._launch(place, addresses, scalars, stream)
            return {
                buffer.name: launcher.download(memory[buffer.name], stream)
                for buffer in self.program.outputs
            }
        finally:
            # While the context is active: in another thread PyCUDA frees nothing without it.
            memory.clear()

    # --- Arrays that are on a GPU ------------------------------------------------------------

    def _on_device(
        self, given: Mapping[str, DeviceArray], wanted: Mapping[str, DeviceArray]
    ) -> dict[str, Any]:
        """Launch on the arrays as they are."""
        scalars = self._bind({name: array.size for name, array in given.items()})
        inputs = [(given[buffer.name], buffer) for buffer in self.program.inputs]
        place = place_of([*(array for array, _ in inputs), *wanted.values()])
        require_gpu(self.launcher, self.kernel, place.device, self.arch)
        first = inputs[0][0]
        with self._explained():
            outputs = self._outputs(first, wanted, scalars, place)
        self._require_fit(inputs, outputs, scalars)
        handle = handle_of(self.stream)
        handle = first.stream if handle is None else handle
        arrays = [array for array, _ in (*inputs, *outputs)]
        addresses = {buffer.name: array.address for array, buffer in (*inputs, *outputs)}
        with self._explained(), self.launcher.active(place):
            stream = self.launcher.open_stream(handle, self.stream, place)
            others = {array.stream for array in arrays} | {handle}
            for other in others:
                self.driver.order(other, stream.handle)
            self._launch(place, addresses, scalars, stream)
            for other in others:
                self.driver.order(stream.handle, other)
        return {buffer.name: array.owner for array, buffer in outputs}

    def _outputs(
        self,
        first: DeviceArray,
        wanted: Mapping[str, DeviceArray],
        scalars: Mapping[str, int],
        place: Place,
    ) -> list[tuple[DeviceArray, Buffer]]:
        """Return the arrays to write to: the user's, or new ones of the first input's kind."""
        outputs = []
        for buffer in self.program.outputs:
            array = wanted.get(buffer.name)
            if array is None:
                size = buffer.size.evaluate(scalars)
                name = f"output {buffer.name!r}"
                array = new_output(self.launcher, first, size, buffer.dtype, name, place)
            outputs.append((array, buffer))
        return outputs

    def _require_fit(
        self,
        inputs: list[tuple[DeviceArray, Buffer]],
        outputs: list[tuple[DeviceArray, Buffer]],
        scalars: Mapping[str, int],
    ) -> None:
        direct = loaded_by_wmma(self.program)
        for array, buffer in (*inputs, *outputs):
            require_fit(array, buffer, tiles=buffer.name in direct)
        for array, buffer in outputs:
            size = buffer.size.evaluate(scalars)
            if array.size != size:
                raise InputError(f"{array.name} must have {size} elements, it has {array.size}")
            if not array.writable:
                raise InputError(f"{array.name} is read-only. Give an array to write to.")
        require_apart(outputs, inputs)

    # --- Both --------------------------------------------------------------------------------

    def _bind(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the scalars, and find the number of blocks."""
        scalars = bind_scalars(self.program, sizes)
        self.blocks = blocks_of(self.kernel, scalars)
        return scalars

    def _launch(
        self,
        place: Place,
        addresses: Mapping[str, int],
        scalars: Mapping[str, int],
        stream: Stream,
    ) -> None:
        """Launch, in the active context."""
        if self.poison or self.blocks == 0:
            # What no block writes is what the simulator has there.
            for buffer in self.program.outputs:
                size = buffer.size.evaluate(scalars)
                form = format_of(buffer.dtype)
                self.driver.poison(addresses[buffer.name], size, form, stream.handle)
        if self.blocks == 0:
            return
        kernel = self.kernel
        loaded = self.launcher.loaded(kernel, place)
        self.usage = loaded.usage
        addresses = dict(addresses)
        workspace = self._workspace(scalars, stream)
        if workspace is not None:
            addresses[WORKSPACE] = _address(workspace)
        arguments: list[Any] = [
            np.uint64(addresses[name]) if name in addresses else np.int64(scalars[name])
            for name in kernel.arguments
        ]
        self.launcher.launch(
            loaded.function,
            self.blocks,
            kernel.threads,
            arguments,
            kernel.dynamic_shared_bytes,
            stream,
        )

    def _workspace(self, scalars: Mapping[str, int], stream: Stream) -> Any:
        """Return zeroed memory for the launch's mail, None if it has none."""
        size = self.kernel.workspace_bytes(scalars)
        if size == 0:
            return None
        array = self.launcher.new_array(size // 4, np.dtype(np.uint32), stream)
        self.driver.zero(_address(array), size // 4, stream.handle)
        return array

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.launcher, self.program.name, self._configuration)

    def _configuration(self) -> str:
        return configuration(self.kernel, self.blocks, self.usage)


# --- Steps of every way to launch -------------------------------------------------------------


def place_of(arrays: Sequence[DeviceArray]) -> Place:
    """Return where arrays are; they must be on one GPU, and in one context."""
    driver = Driver.open()
    homes = {
        array.name: driver.home_of(array.address, array.name) for array in arrays if array.size
    }
    found = [
        array if array.name not in homes else _on(array, homes[array.name][0]) for array in arrays
    ]
    device = common_device(found)
    contexts = {context: name for name, (_, context) in homes.items() if context}
    if len(contexts) > 1:
        raise InputError(
            f"{' and '.join(contexts.values())} belong to different CUDA contexts. With PyCUDA "
            f"beside another library, import pycuda.autoprimaryctx, not pycuda.autoinit."
        )
    context = next(iter(contexts), 0)
    return Place(driver.current_device() if device is None else device, context)


def new_output(
    launcher: Launcher,
    like: DeviceArray,
    shape: int | tuple[int, ...],
    dtype: str,
    name: str,
    place: Place,
) -> DeviceArray:
    """Return a new array of the kind of `like`, or of the launcher's library's kind."""
    with Driver.open().restored_context():
        array = empty_like(like, shape, dtype, name)
    if array is not None:
        return array
    with launcher.active(place):
        stream = Stream(launcher.default_stream(place))
        stream = launcher.open_stream(stream.handle, None, place)
        made = device_array(launcher.new_array(shape, storage_dtype(dtype), stream), name)
    if made is None:
        raise AssertionError(f"{launcher.name} made an array that is on no GPU")
    return made


def loaded_by_wmma(program: Program) -> frozenset[str]:
    """Return the buffers whose tiles WMMA moves, so that they must be aligned for it."""
    if instruction_for(program).namespace != "wmma":
        return frozenset()
    return directly_loaded(program)


def blocks_of(kernel: Kernel, scalars: Mapping[str, int]) -> int:
    """Return the number of blocks to launch; refuse more than a grid can have."""
    blocks = kernel.blocks(scalars)
    if blocks > _MOST_BLOCKS:
        raise InputError(
            f"{kernel.program.name} would take {blocks} blocks, a grid has at most "
            f"{_MOST_BLOCKS}. Build it with more warps or longer segments."
        )
    return blocks


def require_gpu(launcher: Launcher, kernel: Kernel, device: int, arch: str | None) -> None:
    """Refuse an `arch` that is not this GPU's, and a program that it is too old for."""
    driver = Driver.open()
    sm = driver.sm(device)
    title = f"{driver.title(device)} (sm_{sm}, {unit_name(sm) or 'no unit known'})"
    if arch is not None and sm not in unit_of(arch).sm:
        raise InputError(
            f"{launcher.name}: arch={arch!r}, but GPU {device} is an {title}, and "
            f"computes as it does. Leave arch out, or simulate it: backend='numpy'."
        )
    if sm < kernel.min_sm:
        raise BackendUnavailable(
            f"{launcher.name}: {kernel.program.name} needs a GPU of sm_{kernel.min_sm} "
            f"or newer, GPU {device} is an {title}. Simulate it: backend='numpy'."
        )


@contextmanager
def explained(launcher: Launcher, name: str, configured: Callable[[], str]) -> Iterator[None]:
    """Turn a failure of the library into a LaunchError that says what was asked for."""
    failures: tuple[type[Exception], ...] = (MemoryError, RuntimeError, *launcher.errors())
    try:
        yield
    except failures as error:
        if isinstance(error, TcusimError) and not isinstance(error, DriverError):
            raise
        raise LaunchError(
            f"{launcher.name}: {name} failed: {type(error).__name__}: "
            f"{str(error).strip()}. {configured()}"
        ) from error


def configuration(kernel: Kernel, blocks: int, usage: Usage | None) -> str:
    """Return what a launch asks of the GPU, in words."""
    parts = [
        f"{blocks} blocks of {kernel.threads} threads",
        f"{kernel.dynamic_shared_bytes} bytes of dynamic shared memory",
    ]
    if usage is not None:
        parts.append(f"{usage.shared_bytes} of static")
        parts.append(f"{usage.registers} registers a thread")
    return f"It was to run as {', '.join(parts)}."


def _on(array: DeviceArray, device: int) -> DeviceArray:
    return dataclasses.replace(array, device=device)


def handle_of(stream: Any) -> int | None:
    """Return a stream's handle: an integer, or any library's stream. None if none is given."""
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise InputError(
        f"stream must be a stream of CuPy, PyCUDA or torch, or a handle; got {stream!r}"
    )


def _address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0] or 0)


def _require_host_out(array: Any, buffer: Buffer, size: int) -> None:
    """Raise InputError unless an output can be copied into a NumPy array."""
    name = f"out {buffer.name!r}"
    if not isinstance(array, np.ndarray):
        raise InputError(f"{name} must be a NumPy array, as the inputs are; got {type(array)}")
    if array.shape != (size,):
        raise InputError(f"{name} must have shape ({size},), got {array.shape}")
    expected = from_bits(np.zeros(0, storage_dtype(buffer.dtype)), buffer.dtype).dtype
    if array.dtype != expected:
        raise InputError(f"{name} must be of {expected}, got {array.dtype}")
    if not array.flags.writeable:
        raise InputError(f"{name} is read-only. Give an array to write to.")


def _returned(bits: NDArray[Any], buffer: Buffer, out: Any) -> NDArray[Any]:
    """Return an output as a NumPy array: the user's, if one was given."""
    result = from_bits(bits, buffer.dtype)
    if out is None:
        return result
    out[...] = result
    given: NDArray[Any] = out
    return given
