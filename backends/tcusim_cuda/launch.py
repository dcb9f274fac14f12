"""The common part of the backends "cuda", "cupy" and "pycuda"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.backends import IntegerFacts, Tapped, require_options
from tcusim.errors import BackendUnavailable
from tcusim.machine.formats import BY_ARRAY_NAME
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim_cuda.arrays import DeviceArray
from tcusim_cuda.compile import why_no_compiler
from tcusim_cuda.driver import Driver, arch_name, device_sm
from tcusim_cuda.explain import CudaEmitter
from tcusim_cuda.integers import facts_of, offsets_of_ids, offsets_of_rows
from tcusim_cuda.kernel import Kernel
from tcusim_cuda.libraries import arranged, on_gpu, restored
from tcusim_cuda.prepared import gpus_rule
from tcusim_cuda.runtime import Runtime
from tcusim_cuda.session import DeviceSession, device_of, new_array, opened
from tcusim_cuda.taps import tap

# Programs that were run last and stay ready.
_MOST_KEPT: Final = 32


class Launcher(Runtime):
    """A backend: emits and compiles the kernels of a plan, and launches them by its runtime.

    A subclass gives the library's calls. It imports the library when it is first used.
    """

    # Facts of programs that need no GPU; see `tcusim.backends.Emitter`.
    emitter = CudaEmitter()

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[tuple[Any, ...], DeviceSession] = {}

    # --- Backend -----------------------------------------------------------------------------

    def available(self) -> str | None:
        """Return None if programs can run here, else the reason and the command that helps."""
        try:
            Driver.open()
            self.library()
        except BackendUnavailable as error:
            return str(error)
        return why_no_compiler()

    def native_arch(self, array: Any = None) -> str | None:
        """Return the architecture of an array's GPU, or of the current one, such as "hopper".

        None if nobody knows it.
        """
        return arch_name(device_sm(None if array is None else device_of(on_gpu(array, "a"))))

    def run(
        self,
        plan: LaunchPlan,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        stream: Any = None,
        out: Mapping[str, Any] | None = None,
        progress: Any = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Run a plan; return its outputs by name: see `tcusim.backends.Backend.run`.

        NumPy arrays are copied to the GPU, and the outputs back. Arrays that are on a GPU already
        are used where they are, and the launches are not waited for: CuPy arrays, PyCUDA's
        GPUArray, torch tensors, JAX arrays, and all that has `__cuda_array_interface__` or
        `__dlpack__` (whose outputs are arrays of this backend's own library).

        Parameters
        ----------
        arch : str, optional
            The arithmetic of the results; None for the GPU's own. For another than that, the lanes
            compute the products by its rule, which is slow.
        stream : optional
            A stream of CuPy, PyCUDA, torch or cuda.core, or a handle. By default the current
            stream of the first input's library. The launches wait for earlier work in the arrays'
            own streams, and later work there waits for the launches.
        out : mapping of str to array, optional
            Of the inputs' kind. The first output may be the first input, if
            `plan.why_not_in_place` is None.
        progress : callable, optional
            Not called: a GPU does not report it.
        **options
            `poison=True` fills the outputs with NaN, or integers of bytes 0x80, first.

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
        require_options(self, options, "poison")
        reason = self.available()
        if reason is not None:
            raise BackendUnavailable(f"{self.name}: {reason}")
        session = self._session_of(plan, arch)
        return session.compute(inputs, out or {}, stream=stream, **options)

    def _session_of(self, plan: LaunchPlan, arch: str | None) -> DeviceSession:
        """Return a session for a plan, kept for the next plan of the same programs and sizes."""
        if plan.temporaries:
            return self.prepare(plan, arch)
        # A session keeps its programs, so that no other program has their place in memory.
        launches = tuple(
            (id(one.program), *one.inputs.items(), *one.outputs.items()) for one in plan.launches
        )
        key = (arch, launches, plan.arrays, plan.inputs, plan.outputs)
        with self._lock:
            session = self._kept.pop(key, None) or self.prepare(plan, arch)
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = session
        return session

    # --- TappingBackend ----------------------------------------------------------------------

    def tap(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        warps: Sequence[int],
        *,
        most: int,
        arch: str | None = None,
    ) -> Tapped:
        """Run a program with taps; see `tcusim.backends.TappingBackend.tap`."""

        def launch(kernel: Kernel, given: dict[str, Any]) -> dict[str, Any]:
            sizes = {name: np.size(array) for name, array in given.items()}
            plan = LaunchPlan.of_program(kernel.program, sizes)
            # Elements that no block writes hold the values that they have on the simulator.
            return DeviceSession(self, plan, arch, [kernel]).compute(given, {}, poison=True)

        return tap(program, inputs, warps, most, launch, rule=gpus_rule(program, arch))

    def place(self) -> str:
        """Return the place that a trace names, such as "cupy on NVIDIA H200"."""
        driver = Driver.open()
        return f"{self.name} on {driver.title(driver.current_device())}"

    # --- DeviceBackend -----------------------------------------------------------------------

    def prepare(self, plan: LaunchPlan, arch: str | None = None) -> DeviceSession:
        """Return a session that runs a plan on arrays in GPU memory."""
        return DeviceSession(self, plan, arch)

    def describe(self, array: Any) -> DeviceArray:
        """Return the description of an array in GPU memory."""
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
        with opened(self, given, f"an array of zeros, of shape {shape},"):
            made = new_array(self, given, "zeros", shape, short, given.stream)
            if made.size:
                Driver.open().clear(made.address, made.nbytes, made.stream)
        return self.delivered(made.owner, given, short)

    def to_host(self, array: Any) -> NDArray[Any]:
        """Return a copy of a flat array in GPU memory, after the work in its stream."""
        given = on_gpu(array, "offsets")
        if not given.contiguous:
            return self.to_host(arranged(given, (0,), given.dtype))
        values = np.empty(given.size, given.dtype)
        if values.size:
            with opened(self, given, "a copy from the GPU"):
                Driver.open().copy_back(given.address, values, given.stream)
        return values

    def to_device(self, values: NDArray[Any], like: Any) -> Any:
        """Return an array with these values, of the kind and on the device of `like`."""
        given, short = on_gpu(like, "a"), BY_ARRAY_NAME[values.dtype.name].name
        with opened(self, given, f"a copy of {values.size} elements to the GPU"):
            made = new_array(self, given, "a copy", values.shape, short, given.stream)
            # The caller may change the values afterwards.
            Driver.open().copy_there(np.array(values, order="C"), made.address, made.stream)
        return made.owner

    # --- OffsetsBackend ----------------------------------------------------------------------

    def facts_of_integers(self, array: Any) -> IntegerFacts:
        """Return the facts of integers in GPU memory, after the work in their stream."""
        return facts_of(self, on_gpu(array, "offsets"))

    def offsets_of_ids(self, ids: Any, segments: int) -> Any:
        """Return the offsets of segments, from sorted segment ids."""
        return offsets_of_ids(self, on_gpu(ids, "ids"), segments)

    def offsets_of_rows(self, offsets: Any, rows: int) -> Any:
        """Return the offsets of rows that lie end to end and are cut alike."""
        return offsets_of_rows(self, on_gpu(offsets, "offsets"), rows)

    def settled(self, array: Any) -> bool:
        """Wait for the queued work of an array's stream; False if that is being captured."""
        given, driver = on_gpu(array, "a"), Driver.open()
        with opened(self, given, "a wait for an array"):
            is_captured = driver.is_capturing(given.stream)
            if not is_captured:
                driver.wait(given.stream)
        return not is_captured
