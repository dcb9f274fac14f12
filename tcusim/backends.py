"""Backends: the runners of step programs, found without importing any of them.

A backend is an object with a name. The simulator is the built-in one, "numpy". Others come from
installed packages, through the entry-point group ``tcusim.backends``, or from `register_backend`.
Nothing is imported before `get_backend` asks for it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeGuard,
    runtime_checkable,
)

from tcusim import errors
from tcusim.machine.convert import require_unmasked
from tcusim.plugins import OWN, Broken, Registry
from tcusim.program.bind import require_inputs
from tcusim.program.launches import LaunchPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tcusim.program.grammar import Program

# Called with (steps done, steps in all).
Progress: TypeAlias = Callable[[int, int], object]
# An end of a row.
Edge: TypeAlias = Literal["first", "last"]


class Backend(Protocol):
    """The required interface of a backend; it need not inherit from this class.

    Attributes
    ----------
    name : str
        The name in ``backend="numpy"``. The entry point has the same name.
    title : str
        One line for people.

    A GPU backend may also have `native_arch(array=None) -> str | None`: the architecture of the GPU
    of an array, or without an array of the GPU that NumPy arrays are copied to. It is the default
    `arch`.
    """

    name: str
    title: str

    def available(self) -> str | None:
        """Return None if programs can run here, else the reason and the command that helps."""

    def run(
        self,
        plan: LaunchPlan,
        inputs: Mapping[str, Any],
        *,
        out: Mapping[str, Any] | None = None,
        stream: Any = None,
        arch: str | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Launch a plan; return its outputs by name, as flat arrays of the inputs' kind.

        Parameters
        ----------
        plan : LaunchPlan
            A program is a plan of one launch: see `LaunchPlan.of_program`.
        inputs : mapping of str to array
            One flat array for each of `plan.inputs`.
        out : mapping of str to array, optional
            Arrays for outputs, by name; they are filled and returned.
        stream : optional
            The stream of a GPU to launch on.
        arch : str, optional
            The numerics to follow; by default the backend's own: those of the GPU that it runs on,
            or the simulator's default.
        progress : callable, optional
            Called with (steps done, steps in all) of the launch that is running, by a backend that
            knows.
        **options
            The backend's own options.
        """


class DeviceArrayFacts(Protocol):
    """The facts of an array in GPU memory that tcusim needs."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""

    @property
    def dtype(self) -> str:
        """NumPy's name of the element type, such as "bfloat16"."""

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie without gaps, the last axis fastest."""


class PreparedLaunch(Protocol):
    """A prepared launch of a plan, for arrays like those of an earlier launch."""

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None) -> Any:
        """Return `out` or a new array; None, without a launch, if the call needs the session.

        arrays: the plan's inputs. They and `out` are of the same library, shapes, types and GPU as
        before, without recorded gradients. The call checks everything else: the stream, the
        context, addresses, overlaps and strides.
        """


class QuickSession(Protocol):
    """The optional fast path of a session, for calls that are repeated very often."""

    def prepared_launch(
        self, inputs: Mapping[str, Any], out: Any, shape: tuple[int, ...]
    ) -> PreparedLaunch | None:
        """Return a prepared launch for arrays like these, and a result of this shape.

        They have been passed to `run` without `initial` and `starts`. None if there is no fast
        path.
        """


def prepared_launch_of(
    session: Any, inputs: Mapping[str, Any], out: Any, shape: tuple[int, ...]
) -> PreparedLaunch | None:
    """Return `QuickSession.prepared_launch` of a session; None if it is no such session."""
    # No isinstance: of a protocol it takes as long as a launch.
    make: Callable[..., PreparedLaunch | None] | None = getattr(session, "prepared_launch", None)
    return None if make is None else make(inputs, out, shape)


class Session(Protocol):
    """A plan prepared on a backend: the work common to all calls has been done.

    Callers cache it. A session for calls that are repeated often is also a `QuickSession`.
    """

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
        """Launch the plan; return `out`, or a new array of the kind and device of the input "in".

        inputs: arrays in GPU memory by the plan's names, contiguous, in any shape. out: the
        destination; it may be the input "in" if `plan.why_not_in_place` is None. shape: of the
        result. stream: to launch on, by default the one on which the library of "in" now works.
        initial: an element of each row (of the last axis) of `shape` that the plan does not
        compute, and that is 0. starts: launch the plan once for each of these, on parts of the
        arrays: for each of its names, "out" included, the element at which the part begins. Several
        threads may call at once, on one stream or on several.
        """


@runtime_checkable
class DeviceBackend(Backend, Protocol):
    """The additional interface of a backend for `tcusim.sum` and plans on arrays in GPU memory.

    A backend without these methods, such as the simulator, is given NumPy arrays, program by
    program. One that has them is also given arrays with `__cuda_array_interface__` or DLPack.
    """

    def prepare(self, plan: LaunchPlan, arch: str | None = None) -> Session:
        """Return a session for a plan; it may wait with its work until the first call.

        `arch` names the numerics that results must follow; the session refuses another GPU.
        """

    def describe(self, array: Any) -> DeviceArrayFacts:
        """Return the facts of an array in GPU memory."""

    def arranged(self, array: Any, axes: tuple[int, ...], dtype: str) -> Any:
        """Return the array with its axes in this order, contiguous and of this type.

        The array itself if it is so already, else a copy by its own library.
        """

    def restored(self, array: Any, axes: tuple[int, ...]) -> Any:
        """Return a view in which axis i of the array is axis axes[i]: the inverse of `arranged`."""

    def zeros(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new array of zeros, of the kind and on the device of `like`."""

    def to_host(self, array: Any) -> NDArray[Any]:
        """Return a copy of a flat array in GPU memory, after the queued work of its stream."""

    def to_device(self, values: NDArray[Any], like: Any) -> Any:
        """Return an array with these values in GPU memory, on the device of `like`."""


@dataclass(frozen=True, slots=True)
class IntegerFacts:
    """Facts of flat integers that should never decrease: offsets, or ids.

    Attributes
    ----------
    first, last : int
        The values at both ends.
    down : tuple of int or None
        The first place whose value is greater than the next one, that value, and the next one;
        None if there is no such place.
    longest, place : int
        The greatest difference of neighbours, 0 of a single value, and the first place before it.
        Anything if the values decrease.
    """

    first: int
    last: int
    down: tuple[int, int, int] | None
    longest: int
    place: int


@runtime_checkable
class OffsetsBackend(DeviceBackend, Protocol):
    """The additional interface of a backend for checks of offsets and ids in GPU memory.

    They are flat, not empty, of int32 or int64. Those of a backend without these methods are copied
    back.
    """

    def facts_of_integers(self, array: Any) -> IntegerFacts:
        """Return the facts of integers in GPU memory, after the queued work of their stream.

        Unsupported if that stream is being captured into a CUDA graph, so that nothing can wait.
        """

    def offsets_of_ids(self, ids: Any, segments: int) -> Any:
        """Return a new array of int64: for each of 0..segments, the number of smaller ids."""

    def offsets_of_rows(self, offsets: Any, rows: int) -> Any:
        """Return a new array of int64: the offsets of rows that lie end to end and are cut alike.

        offsets: of one row, whose last one is its length. There is at least one row.
        """

    def settled(self, array: Any) -> bool:
        """Wait for the queued work of an array's stream, so that calls on any stream may read it.

        False if that stream is being captured into a CUDA graph, so that nothing can wait.
        """


def is_device_backend(backend: Any) -> TypeGuard[DeviceBackend]:
    """Return whether a backend computes on arrays in GPU memory."""
    return _has_methods(backend.__class__, DeviceBackend) or isinstance(backend, DeviceBackend)


def is_offsets_backend(backend: Any) -> TypeGuard[OffsetsBackend]:
    """Return whether a backend checks offsets and ids in GPU memory."""
    return _has_methods(backend.__class__, OffsetsBackend) or isinstance(backend, OffsetsBackend)


# An isinstance of a protocol looks up each member again, and takes longer than several launches.
@lru_cache(maxsize=64)
def _has_methods(kind: type, protocol: type) -> bool:
    """Return whether a type has all methods of a protocol and of its bases."""
    named = {name for base in protocol.__mro__[:-2] for name in vars(base) if name[0] != "_"}
    return all(callable(getattr(kind, name, None)) for name in named)


@dataclass(frozen=True, slots=True)
class TappedStep:
    """One step that a warp ran, as its backend recorded it.

    Attributes
    ----------
    path : str
        The path of the step in the program, such as "7.2".
    tiles : tuple of array (rows, cols)
        The results of the step: the fragments and rectangles that it wrote, in the order of
        `tcusim.program.grammar.accesses`, with arbitrary elements out of bounds. For a `Locate`,
        the starts and the ends of its ranges. For a block barrier, the buffers shared by the
        block's warps, each as one row. Values have the simulator's representation of the element
        types.
    taken : bool or None
        Of a `When` that asks for infinities and NaN, which is recorded too: whether the warp ran
        its body. None of any other step.
    """

    path: str
    tiles: tuple[Any, ...]
    taken: bool | None = None


@dataclass(frozen=True, slots=True)
class Tapped:
    """A backend's record of chosen warps.

    Attributes
    ----------
    steps : dict of int to sequence of TappedStep
        By warp, in the order in which it ran them: all of them, or the first ones.
    ran : dict of int to int
        Number of steps that each warp ran, recorded or not; a `When` does not count.
    """

    steps: Mapping[int, Sequence[TappedStep]]
    ran: Mapping[int, int]


@runtime_checkable
class TappingBackend(Backend, Protocol):
    """The additional interface of a backend for step-by-step traces by `tcusim.trace`."""

    def tap(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        warps: Sequence[int],
        *,
        most: int,
        arch: str | None = None,
    ) -> Tapped:
        """Run a program, and record the steps of some of its warps.

        inputs: flat NumPy arrays by name. warps: their numbers in the grid, ascending; the grid has
        them. most: maximum number of steps to record of each. arch: as for `run`.
        """

    def place(self) -> str:
        """Return the place of execution for traces, such as "cupy on NVIDIA H200"."""


def register_built_in(backend: Backend) -> None:
    """Register one of tcusim's own backends, without an entry point."""
    _BACKENDS.add(backend, OWN)


def register_backend(backend: Backend) -> Backend:
    """Make a backend known by its name. It may be registered again.

    Parameters
    ----------
    backend : Backend
        An object with the parts of that protocol.

    Returns
    -------
    Backend
        The same.

    Raises
    ------
    InputError
        Another backend has the name, or the object lacks a part of `Backend`.
    """
    (checked,) = _members(backend)
    return _BACKENDS.add(checked, "register_backend")


def backends() -> tuple[str, ...]:
    """Return the names of all backends, importing none; some may be unavailable here."""
    return _BACKENDS.names()


def get_backend(name: str) -> Backend:
    """Return the backend of this name, ready to run.

    Raises
    ------
    UnknownName
        There is no such backend.
    BackendUnavailable
        It cannot run here: a library or a device is missing, or its package is broken. The text
        states the remedy.
    """
    backend = _BACKENDS.find(name)
    if backend is None:
        raise _BACKENDS.unknown(name)
    if isinstance(backend, Broken):
        raise errors.BackendUnavailable(f"{name}: {backend.reason}")
    try:
        reason = backend.available()
    # A package of somebody else's may raise anything, and must not take the list of all down.
    except Exception as error:
        reason = f"it does not say whether it can run here, {type(error).__name__}: {error}"
        raise errors.BackendUnavailable(f"{name}: {reason}") from error
    if reason is not None:
        raise errors.BackendUnavailable(f"{name}: {reason}")
    return backend


def run(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    backend: str | Backend = "numpy",
    arch: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Run a program on a backend; return its outputs by name, as flat arrays.

    Parameters
    ----------
    program : Program
        From `tcusim.build`, or written by hand.
    inputs : mapping of str to array
        One flat array for each of the program's inputs, of the input's element type.
    backend : str or Backend
        The backend; "numpy" is the simulator.
    arch : str, optional
        The numerics to follow. By default the backend's own: the GPU it runs on, or "hopper" on
        the simulator.
    **options
        The backend's own options.

    Returns
    -------
    dict of str to array
        A flat array for each output, of the output's element type.

    Raises
    ------
    InputError
        If the inputs do not fit the program.
    UnknownName, BackendUnavailable
        If there is no such backend, or it cannot run here.
    """
    require_inputs(program, inputs)
    for name, array in inputs.items():
        require_unmasked(name, array)
    runner: Backend = _runner(backend)
    sizes = {name: _size_of(name, a, runner) for name, a in inputs.items()}
    plan = LaunchPlan.of_program(program, sizes)
    return runner.run(plan, inputs, arch=arch, **options)


def _runner(backend: object) -> Any:
    """Return a backend, given by its name or as itself."""
    if isinstance(backend, str):
        return get_backend(backend)
    if not (hasattr(backend, "run") and hasattr(backend, "name")):
        raise errors.InputError(
            errors.Given("backend"),
            f" must be a backend or its name, got {errors.told(backend)}",
        )
    return backend


def _size_of(name: str, array: Any, runner: Any) -> int:
    """Return the elements of an array of any library, or of a list."""
    if hasattr(array, "shape"):
        return math.prod(array.shape)
    if hasattr(array, "__cuda_array_interface__"):
        return math.prod(array.__cuda_array_interface__["shape"])
    if hasattr(array, "__dlpack__") and hasattr(runner, "describe"):
        return math.prod(runner.describe(array).shape)
    if hasattr(array, "__len__"):
        return len(array)
    raise errors.InputError(f"input {name!r} must be a flat array, got {array!r}")


def require_options(backend: Backend, given: Mapping[str, Any], *known: str) -> None:
    """Reject options of `run` that a backend does not have."""
    unknown = ", ".join(sorted(given.keys() - set(known)))
    if unknown:
        raise errors.InputError(
            f"{backend.name} has no option {unknown}; it has {', '.join(known)}"
        )


def require_out(plan: LaunchPlan, out: Mapping[str, Any] | None) -> None:
    """Reject `out` that cannot take the outputs of a plan on NumPy arrays."""
    if out is None:
        return
    if not isinstance(out, Mapping):
        given = type(out).__name__
        raise errors.InputError(
            f"out must be a mapping of names to arrays, such as {{'out': array}}, got {given}"
        )
    for name, array in out.items():
        if name not in plan.outputs:
            raise errors.InputError(
                f"{plan.title} has no output {name!r} for out; it has {', '.join(plan.outputs)}"
            )
        size = plan.memory[name].size
        if getattr(array, "shape", None) != (size,):
            kind = getattr(array, "shape", type(array).__name__)
            raise errors.InputError(
                f"out[{name!r}] must be a flat array of {size} elements, got {kind}"
            )
        if not array.flags.writeable:
            raise errors.InputError(f"out[{name!r}] is read-only. Give an array to write to.")


def require_no_gradient(name: str, tensor: Any) -> None:
    """Reject a torch tensor with a gradient that the computation would silently lose."""
    torch = sys.modules.get("torch")
    grad_enabled = getattr(torch, "is_grad_enabled", lambda: True)
    if tensor.requires_grad and grad_enabled():
        raise errors.InputError(
            f"{name} requires a gradient, which would be lost here. Use tcusim.torch, which has "
            f"autograd; or pass {name}.detach(), or call within torch.no_grad()"
        )
    if _has_tangent(torch, tensor):
        raise errors.InputError(
            f"{name} has a tangent of forward mode, which would be lost here. Use tcusim.torch, "
            f"which carries it along; or pass {name}.detach()"
        )


def _has_tangent(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor is a dual one, where torch has not turned forward mode off."""
    forward = getattr(getattr(torch, "autograd", None), "forward_ad", None)
    if forward is None or getattr(forward, "_current_level", -1) < 0:
        return False
    # Below autograd torch carries tangents along by itself, and may not be asked for them.
    if not torch._C._is_fwd_grad_enabled():
        return False
    return isinstance(tensor, torch.Tensor) and forward.unpack_dual(tensor).tangent is not None


def native_arch(backend: Backend, array: Any = None) -> str | None:
    """Return the architecture of a backend's device; None if it follows any architecture.

    array: in GPU memory; the device is then its own.
    """
    ask: Callable[..., str | None] | None = getattr(backend, "native_arch", None)
    if ask is None:
        return None
    return ask() if array is None else ask(array)


def tapping_backend(backend: str | Backend) -> TappingBackend:
    """Return a backend that records steps; Unsupported if it does not, else as `get_backend`."""
    found = _runner(backend)
    if isinstance(found, TappingBackend):
        return found
    able = (name for name in backends() if isinstance(_BACKENDS.find(name), TappingBackend))
    raise errors.Unsupported(
        f"the backend {found.name!r} does not record what its steps do; 'numpy', the simulator, "
        f"does, and so do {', '.join(able)}"
    )


def why_unavailable(name: str) -> str | None:
    """Return None if `get_backend` would return the backend, else the text of its error."""
    try:
        get_backend(name)
    except errors.BackendUnavailable as error:
        return str(error)
    return None


def _members(value: object) -> tuple[Backend, ...]:
    """Return the backend that an entry point or a user names."""
    if isinstance(value, type):
        raise errors.InputError(f"{value.__name__} is a class. A backend is an object: use one")
    backend: Any = value
    refused = f"a {type(value).__name__} object is no backend, it"
    missing = [part for part in ("name", "title", "available", "run") if not hasattr(value, part)]
    if missing:
        lacks = ", ".join(missing)
        raise errors.InputError(f"{refused} lacks {lacks}; see tcusim.backends.Backend")
    for part, held in (("name", backend.name), ("title", backend.title)):
        if not isinstance(held, str):
            raise errors.InputError(f"{refused}s {part} is no text: {held!r}")
    return (backend,)


_BACKENDS: Final = Registry[Backend](
    "backend", "tcusim.backends", lambda backend: (backend.name,), _members, by_entry=True
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled kernel. code: for the GPU. facts: its resources, as text for people."""

    code: bytes
    facts: dict[str, str]


class Emitter(Protocol):
    """Static facts of a program on a backend, whether or not it could run here.

    A backend that writes kernels offers it as its attribute ``emitter``.
    """

    def instruction(self, program: Program) -> str:
        """Return the instruction for the program's tiles; "lanes" if the lanes multiply them."""

    def emit(
        self,
        program: Program,
        *,
        standalone: bool = False,
        sm: int | None = None,
        arch: str | None = None,
    ) -> str:
        """Return the kernel's text. standalone: without an include of a header of its own.

        sm: of the GPUs that it is for; Unsupported if they lack an instruction. None: of any.
        arch: the arithmetic; where that is not the GPU's, the lanes multiply by its rule.
        """

    def compile(self, program: Program, sm: int, *, arch: str | None = None) -> Compiled:
        """Compile the kernel for GPUs of a compute capability, such as 90; arch: as of `emit`."""


def find_emitter() -> Emitter | None:
    """Return the emitter of the first backend that has one, or None."""
    for name in backends():
        # A broken backend reports its error when it is named.
        emitter: Emitter | None = getattr(_BACKENDS.find(name), "emitter", None)
        if emitter is not None:
            return emitter
    return None
