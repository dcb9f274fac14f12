"""A plan emitted for GPUs: its kernels, and the arrays that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from tcusim.errors import BackendUnavailable, Given, InputError
from tcusim.machine import Rule, arch_of, format_of
from tcusim.machine.shapes import TILE_BYTES
from tcusim.program.grammar import Program
from tcusim.program.launches import Launch, LaunchPlan, Memory
from tcusim_cuda.arrays import DeviceArray, from_bits, require_fit
from tcusim_cuda.driver import Driver, arch_name
from tcusim_cuda.emit import emit
from tcusim_cuda.instructions import native, rule_of_lanes
from tcusim_cuda.kernel import WORKSPACE, Kernel

# cuda.h: a grid has fewer than 2**31 blocks.
_MOST_BLOCKS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Step:
    """One launch of a plan, emitted.

    roles: for each pointer that the kernel takes, the session's name of the memory. status_bytes:
    of the memory for status words, 0 if there are none.
    """

    launch: Launch
    kernel: Kernel
    blocks: int
    scalars: Mapping[str, int]
    roles: Mapping[str, str]
    status_bytes: int

    def touches(self, source: str, target: str) -> bool:
        """Return whether the launch reads one of the plan's arrays and writes the other."""
        launch = self.launch
        return source in launch.inputs.values() and target in launch.outputs.values()


class PreparedPlan:
    """The launches of a plan, emitted, and the checks of their arrays.

    arch: the architecture whose numerics results must have, if any. first, last: the plan's names
    of its first input and of its first output. kernels: of the launches, emitted before; None emits
    them.
    """

    def __init__(
        self, plan: LaunchPlan, arch: str | None, kernels: Sequence[Kernel] | None = None
    ) -> None:
        self.plan = plan
        self.arch = arch
        if kernels is None:
            rules = [gpus_rule(launch.program, arch) for launch in plan.launches]
            emissions = zip(plan.launches, rules, strict=True)
            kernels = [emitted(launch.program, rule=rule) for launch, rule in emissions]
        launches = zip(plan.launches, kernels, strict=True)
        self.steps = tuple(_step(plan, number, *one) for number, one in enumerate(launches))
        self.first, self.last = plan.inputs[0], plan.outputs[0]
        # The kernels that take each of the plan's arrays, with the buffer that it is for.
        self._uses: dict[str, list[tuple[Kernel, str]]] = {}
        for step in self.steps:
            for buffer, role in step.roles.items():
                self._uses.setdefault(role, []).append((step.kernel, buffer))
        self._able: set[int] = set()

    def require_gpu(self, device: int, runtime: str) -> None:
        """Refuse a GPU that does not compute as `arch` does, or is too old for a program."""
        if device in self._able:
            return
        driver = Driver.open()
        sm = driver.sm(device)
        title = f"{driver.title(device)} (sm_{sm}, {arch_name(sm) or 'no architecture known'})"
        for step in self.steps:
            kernel = step.kernel
            own = kernel.rule is not None or not kernel.program.uses_mma
            if not own and self.arch is not None and sm not in arch_of(self.arch).sm:
                raise InputError(
                    *(f"{runtime}: ", Given("arch", self.arch), f", but GPU {device} is an "),
                    *(f"{title}, and the plan was prepared on a GPU that computes so. Prepare it "),
                    *("where GPU ", f"{device} is the current one."),
                )
            if sm < step.kernel.min_sm:
                raise BackendUnavailable(
                    f"{runtime}: {step.kernel.program.name} needs a GPU of sm_{step.kernel.min_sm} "
                    f"or newer, GPU {device} is an {title}. Simulate it: ",
                    *(Given("backend", "numpy"), "."),
                )
        self._able.add(device)

    def require_size(self, what: str, size: int, name: str) -> None:
        """Refuse another size than that of one of the plan's arrays."""
        expected = self.plan.memory[name].size
        if size != expected:
            raise InputError(
                f"{what} must have {expected} elements, it has {size}; {self.plan.title} is for "
                f"no other size"
            )

    def require_fit(self, array: DeviceArray, name: str, *, flat: bool = False) -> None:
        """Refuse an array that a launch cannot take as it is."""
        for kernel, buffer in self._uses[name]:
            declared = kernel.program.buffer(buffer)
            require_fit(array, declared, tiles=buffer in kernel.tiled, flat=flat)
        self.require_size(array.name, array.size, name)

    def require_out(self, out: DeviceArray, shape: tuple[int, ...], *, whole: bool) -> None:
        """Refuse a result that cannot be written to. whole: it is the plan's own output."""
        form = format_of(self.plan.memory[self.last].dtype)
        if out.shape != shape or not out.holds(form.name):
            raise InputError(
                f"out must be an array of {form.array_name}, shape {shape}; "
                f"got {out.dtype}, {out.shape}"
            )
        if whole:
            self.require_fit(out, self.last)
        else:
            kernel, buffer = self._uses[self.last][-1]
            require_fit(out, kernel.program.buffer(buffer), tiles=False, flat=False)
        require_writable(out)

    def is_aliased(self, outputs: Sequence[DeviceArray], given: Mapping[str, DeviceArray]) -> bool:
        """Return whether the first output is the first input; refuse any other overlap.

        Where it is and the plan does not work in place, that is refused too.
        """
        aliased = False
        for number, out in enumerate(outputs):
            for name, array in (*given.items(), *(("", other) for other in outputs[:number])):
                if not out.overlaps(array):
                    continue
                same = out.address == array.address and out.nbytes == array.nbytes
                reason = self.plan.why_not_in_place
                if number or name != self.first or not same:
                    itself = f"{given[self.first].name} itself, to compute in place, or "
                    raise InputError(
                        f"{out.name} overlaps {array.name} in memory. "
                        f"Give {'' if reason else itself}an array of its own."
                    )
                if reason is not None:
                    raise InputError(
                        f"{out.name} is {array.name} itself, but {self.plan.title} does not work "
                        f"in place: {reason}. Give an array of its own."
                    )
                aliased = True
        return aliased

    def part(self, array: DeviceArray, name: str, start: Mapping[str, int]) -> DeviceArray:
        """Return the plan's array `name` as a part of an array, from an element on."""
        address = array.address + start[name] * array.itemsize
        return replace(array, address=address, shape=(self.plan.memory[name].size,))

    def takes_tiles_of(self, array: DeviceArray, name: str) -> bool:
        """Return whether an array begins where it may, if the plan moves tiles of `name`."""
        moved = any(buffer in kernel.tiled for kernel, buffer in self._uses[name])
        return not moved or array.address % TILE_BYTES == 0


def require_writable(out: DeviceArray) -> None:
    """Raise InputError unless an array may be written."""
    if not out.writable:
        raise InputError(f"{out.name} is read-only. Give an array to write to.")


def require_host_out(array: Any, name: str, memory: Memory) -> None:
    """Raise InputError unless an output can be copied into a NumPy array."""
    if not isinstance(array, np.ndarray):
        raise InputError(f"{name} must be a NumPy array, as the inputs are; got {type(array)}")
    if array.shape != (memory.size,):
        raise InputError(f"{name} must have shape ({memory.size},), got {array.shape}")
    expected = from_bits(np.zeros(0, format_of(memory.dtype).memory_dtype), memory.dtype).dtype
    if array.dtype != expected:
        raise InputError(f"{name} must be of {expected}, got {array.dtype}")
    if not array.flags.writeable:
        raise InputError(f"{name} is read-only. Give an array to write to.")


emitted = lru_cache(maxsize=512)(emit)


def gpus_rule(program: Program, arch: str | None) -> Rule | None:
    """Return the rule by which the lanes of the current GPU multiply; None for its instruction.

    arch: the arithmetic that results must have, None for the GPU's own.
    """
    found = native(program)
    if not program.uses_mma or (arch is None and found is not None and found.most_sm is None):
        return None
    driver = Driver.open()
    sm = driver.sm(driver.current_device())
    return rule_of_lanes(program, arch or arch_name(sm), sm)


def _step(plan: LaunchPlan, number: int, launch: Launch, kernel: Kernel) -> Step:
    scalars = plan.scalars(launch)
    blocks = kernel.blocks(scalars)
    if blocks > _MOST_BLOCKS:
        raise InputError(
            f"{kernel.program.name} would take {blocks} blocks, a grid has at most "
            f"{_MOST_BLOCKS}. Build it with more warps or longer segments."
        )
    roles = {**launch.inputs, **launch.outputs, WORKSPACE: f"{WORKSPACE} {number}"}
    return Step(launch, kernel, blocks, scalars, roles, kernel.workspace_bytes(scalars))
