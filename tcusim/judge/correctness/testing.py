"""Do two backends give the same bits? `assert_agree` for the tests of any backend.

The first backend named is the one to be compared with; the simulator, "numpy", is the usual one.
On a mismatch the error says which element differs, which warp wrote it, and at which step the two
runs part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.backends import Backend, get_backend, native_arch
from tcusim.backends import run as run_program
from tcusim.errors import AgreementError, InputError, TcusimError, unknown_name
from tcusim.machine import Format, Values, format_of, from_values, round_values
from tcusim.machine.formats import from_memory, to_memory
from tcusim.program.bind import bind_scalars, offsets_of
from tcusim.program.grammar import Program, Step, accesses
from tcusim.program.printer import line
from tcusim.simulate.interpreter import Event, run_numpy
from tcusim.simulate.probes import with_probes
from tcusim.table import aligned

__all__ = [
    "INPUT_KINDS",
    "Difference",
    "assert_agree",
    "bits_of",
    "differences",
    "input_kinds",
    "outputs_agree",
    "random_inputs",
]

Bits: TypeAlias = NDArray[Any]
Outputs: TypeAlias = Mapping[str, Any]

# Probes of more elements than this would take more memory than a report is worth.
_MOST_PROBED: Final = 1 << 27
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """Where one output differs between two runs.

    Attributes
    ----------
    name, dtype : str
        The output, and its element type.
    places : array of int
        The elements that differ, ascending.
    one, two : array of unsigned int
        All bits of both runs.
    """

    name: str
    dtype: str
    places: NDArray[np.int64]
    one: Bits
    two: Bits

    def numbers(self, place: int) -> tuple[str, str]:
        """Return an element of both runs, in hexadecimal and as the number that it stands for."""
        return _number(self.one[place], self.dtype), _number(self.two[place], self.dtype)


def bits_of(array: Any, dtype: str) -> Bits:
    """Return the bits of an array of elements of a type, as unsigned integers of its size.

    Parameters
    ----------
    array : array
        bf16 may be held in a bfloat16 or a float32 array; both give the same 16 bits. So do types
        of at most 8 bits, of which every NaN gives the same.
    dtype : str
        The element type, such as ``"f16"``.

    Returns
    -------
    array of unsigned int
        Of the same shape.

    Raises
    ------
    InputError
        If the array is of another type.
    """
    given = np.ascontiguousarray(array)
    expected = format_of(dtype)
    if expected.in_ml_dtypes and (given.dtype == np.float32 or expected.itemsize == 1):
        with np.errstate(invalid="ignore"):
            return to_memory(given.astype(np.float32, copy=False), dtype)
    if not expected.in_ml_dtypes and given.dtype != expected.dtype:
        raise InputError(f"an array of {dtype} must be {expected.dtype}, got {given.dtype}")
    return given.view(np.dtype(f"u{given.dtype.itemsize}"))


def differences(program: Program, one: Outputs, two: Outputs, *, ulp: int = 0) -> list[Difference]:
    """Return the outputs of a program that differ in two runs, with the elements that do.

    Parameters
    ----------
    program : Program
        It names the outputs and their types.
    one, two : mapping of str to array
        Results of two backends.
    ulp : int
        Elements that are no more than that many representable numbers apart do not differ.

    Returns
    -------
    list of Difference
        One for each output that differs.

    Raises
    ------
    InputError
        If an output is missing, or is of the wrong type or size.
    """
    found = []
    for buffer in program.outputs:
        for outputs in (one, two):
            if buffer.name not in outputs:
                raise InputError(f"{program.name}: a backend returned no output {buffer.name!r}")
        first, second = (bits_of(outputs[buffer.name], buffer.dtype) for outputs in (one, two))
        if first.shape != second.shape:
            raise InputError(
                f"{program.name}: output {buffer.name!r} has shape {first.shape} on one backend "
                f"and {second.shape} on the other"
            )
        differ = first != second
        if ulp and format_of(buffer.dtype).is_float:
            differ &= _distance(first, second, format_of(buffer.dtype)) > ulp
        if differ.any():
            places = np.flatnonzero(differ)
            found.append(Difference(buffer.name, buffer.dtype, places, first, second))
    return found


def outputs_agree(program: Program, one: Outputs, two: Outputs) -> bool:
    """Return whether two backends returned the same bits, NaN patterns included.

    Parameters
    ----------
    program : Program
        It names the outputs and their types.
    one, two : mapping of str to array
        Results of two backends.

    Returns
    -------
    bool
        False if any bit of any output differs.

    Raises
    ------
    InputError
        If an output is missing, or is of the wrong type or size.
    """
    return not differences(program, one, two)


def _distance(one: Bits, two: Bits, fmt: Format) -> NDArray[np.float64]:
    """Return the distance in representable numbers; NaN is far from all but NaN."""
    nan = [np.isnan(_decimal(bits, fmt.name)) for bits in (one, two)]
    apart = np.abs(_ranks(one) - _ranks(two))
    return np.where(nan[0] & nan[1], 0.0, np.where(nan[0] | nan[1], np.inf, apart))


def _ranks(bits: Bits) -> NDArray[np.float64]:
    """Return the numbers of floats in ascending order; both zeros have number 0."""
    signed = bits.view(f"i{bits.itemsize}")
    ascending = np.where(signed < 0, np.iinfo(signed.dtype).min - signed, signed)
    return ascending.astype(np.float64)


def _decimal(bits: Bits, dtype: str) -> Values:
    """Return the values that bits stand for."""
    narrow = format_of(dtype).in_ml_dtypes
    return from_memory(bits, dtype) if narrow else bits.view(format_of(dtype).dtype)


def _number(bits: Any, dtype: str) -> str:
    return f"0x{int(bits):0{2 * bits.dtype.itemsize}x}  {_decimal(bits[None], dtype)[0]}"


def assert_agree(
    program: Program,
    inputs: Mapping[str, Any],
    backends: Sequence[str | Backend] = ("numpy", "host"),
    *,
    arch: str | None = None,
    ulp: int = 0,
    reason: str = "",
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Run a program on several backends; raise unless all return the bits of the first.

    Parameters
    ----------
    program : Program
        From `tcusim.build`, or written by hand.
    inputs : mapping of str to array
        One flat NumPy array for each of the program's inputs.
    backends : sequence of str or Backend
        At least two: names, or the objects themselves.
    arch : str, optional
        The numerics to follow. By default those of the first backend that runs on a device, and
        "hopper" if none does.
    ulp : int
        How many representable numbers two floats may be apart; 0 compares bits.
    reason : str
        Why a tolerance is right; needed if ulp is not 0.
    options : mapping of str to mapping, optional
        Options of single backends, by name, such as ``{"host": {"seed": 3}}``.

    Returns
    -------
    dict of str to array
        The outputs of the first backend.

    Raises
    ------
    AgreementError
        If an output differs.
    InputError
        If there are fewer than two backends, a tolerance has no reason, or inputs do not fit.
    BackendUnavailable
        If a backend cannot run here.

    Examples
    --------
    >>> import tcusim
    >>> from tcusim.judge.correctness.testing import assert_agree, random_inputs
    >>> program = tcusim.build("scan_t")
    >>> inputs = random_inputs(program, "normal", 512, np.random.default_rng(1))
    >>> outputs = assert_agree(program, inputs, backends=("numpy", "numpy"))
    >>> outputs["out"].shape
    (512,)
    """
    runners = [get_backend(one) if isinstance(one, str) else one for one in backends]
    if len(runners) < 2:
        raise InputError("assert_agree compares at least two backends")
    if ulp < 0 or (ulp and not reason):
        raise InputError("a tolerance (ulp > 0) needs a reason='...' that says why it is right")
    arch = arch or next((own for own in map(native_arch, runners) if own), None)
    case = _Run(program, inputs, arch, options or {})
    first = case.run(runners[0], program)
    for runner in runners[1:]:
        found = differences(program, first, case.run(runner, program), ulp=ulp)
        if found:
            raise AgreementError(_report(case, (runners[0], runner), found, ulp))
    return first


@dataclass(frozen=True, slots=True)
class _Run:
    """A program as `assert_agree` runs it, and can run it again with probes."""

    program: Program
    inputs: Mapping[str, Any]
    arch: str | None
    options: Mapping[str, Mapping[str, Any]]

    def run(self, runner: Backend, program: Program) -> dict[str, Any]:
        own = self.options.get(runner.name, {})
        return run_program(program, self.inputs, backend=runner, arch=self.arch, **own)

    def watch(self, program: Program, watch: Callable[[Event], object]) -> None:
        run_numpy(program, self.inputs, watch=watch, arch=self.arch or "hopper")


def _report(case: _Run, runners: tuple[Backend, Backend], found: list[Difference], ulp: int) -> str:
    """Return the whole text of an AgreementError."""
    names = [runner.name for runner in runners]
    tolerance = f" by more than {ulp} ulp" if ulp else ""
    lines = [f"{case.program.name}: {names[0]} and {names[1]} disagree{tolerance}"]
    for one in found:
        count = f"{one.places.size} of {one.one.size} differ"
        lines.append(f"  output {one.name!r} ({one.dtype}): {count}")
        for place in one.places[:_SHOWN].tolist():
            lines.append(f"    {one.name}[{place}]")
            numbers = zip(names, one.numbers(place), strict=True)
            lines += [f"      {text}" for text in aligned(numbers)]
    name, place = found[0].name, int(found[0].places[0])
    lines.append(f"  {name}[{place}] was written by {_writer(case, name, place)}")
    lines.append(f"  {_parting(case, runners)}")
    return "\n".join(lines)


def _writer(case: _Run, name: str, place: int) -> str:
    """Return the last warp that wrote an element of an output, and the step."""
    last = "no warp"

    def watch(event: Event) -> None:
        nonlocal last
        for view in accesses(event.step).views_written:
            if view.buffer.name != name:
                continue
            here = event.state.places(view, event.warps) == place
            here &= event.state.valid(view, event.warps)
            for warp in event.warps[here.any(axis=(1, 2))].tolist():
                last = f"{_warp(case.program, warp)}, at {_step(event.path, event.step, event)}"

    case.watch(case.program, watch)
    return last


def _warp(program: Program, warp: int) -> str:
    block, place = divmod(warp, program.warps)
    at: tuple[int, ...] = ()
    for count in (program.columns, program.rows):
        if count > 1:
            block, last = divmod(block, count)
            at = last, *at
    return f"warp {place} of block {(block, *at) if at else block}"


def _step(path: str, step: Step, event: Event) -> str:
    loops = ", ".join(f"{var} = {value}" for var, value in event.loops.items())
    return f"step {path} `{line(step)}`" + (f" ({loops})" if loops else "")


def _parting(case: _Run, runners: tuple[Backend, Backend]) -> str:
    """Name the step at which two runs part, from a program that stores every step's result."""
    probed, probes = with_probes(case.program)
    scalars = _scalars(case.program, case.inputs)
    if not probes or sum(p.buffer.size.evaluate(scalars) for p in probes.values()) > _MOST_PROBED:
        return "the step at which they part was not looked for: too much to store"
    try:
        one, two = (case.run(runner, probed) for runner in runners)
    except (TcusimError, TypeError) as error:
        return f"the step at which they part is not known, since probes cannot run: {error}"
    found: list[str] = []
    bits = {
        name: [bits_of(outputs[name], probe.buffer.dtype) for outputs in (one, two)]
        for name, probe in probes.items()
    }

    def watch(event: Event) -> None:
        written = accesses(event.step).views_written
        probe = probes.get(written[0].buffer.name) if written else None
        if probe is None or found:
            return
        dtype, places = probe.buffer.dtype, event.state.places(probe.view, event.warps)
        made = [each[places] for each in bits[probe.buffer.name]]
        differ = np.argwhere(made[0] != made[1])
        if differ.size:
            at = tuple(differ[0].tolist())
            numbers = [
                f"{runner.name} {_number(each[at], dtype)}"
                for runner, each in zip(runners, made, strict=True)
            ]
            found.append(
                f"they part at {_step(probe.path, probe.step, event)}, or at a load of its "
                f"operands: {len(differ)} of {places.size} elements differ, first "
                f"{probe.name}[{at[1]}, {at[2]}] in "
                f"{_warp(case.program, int(event.warps[at[0]]))}: {', '.join(numbers)}"
            )

    # The first probe, in the order of execution, that differs.
    case.watch(probed, watch)
    if found:
        return found[0]
    if outputs_agree(case.program, one, two):
        return (
            "they agree when every step's result is stored, which adds barriers and waits: "
            "look for a missing barrier or another race"
        )
    return "every accumulator and all shared memory agree: they part at the step that writes it"


def _scalars(program: Program, inputs: Mapping[str, Any]) -> dict[str, int]:
    return bind_scalars(program, {name: np.asarray(array).size for name, array in inputs.items()})


# The purpose of each kind: rounding; sums of one sign; alignment of unlike exponents; gradual
# underflow; infinities, NaN and both zeros; results beyond the range; sums that are exact.
INPUT_KINDS: Final = ("normal", "uniform", "wide", "subnormal", "special", "overflow", "integers")
_INTEGER_KINDS: Final = ("uniform", "integers")
# Values of special inputs below this share and above the one before.
_SPECIAL: Final = {0.01: np.inf, 0.02: -np.inf, 0.03: np.nan, 0.1: 0.0, 0.2: -0.0}


def input_kinds(dtype: str) -> tuple[str, ...]:
    """Return the kinds of random input that an element type has.

    Parameters
    ----------
    dtype : str
        The element type, such as ``"f16"``.

    Returns
    -------
    tuple of str
        Names that `random_inputs` takes.
    """
    return INPUT_KINDS if format_of(dtype).is_float else _INTEGER_KINDS


def random_inputs(
    program: Program, kind: str, length: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Return random inputs of a program: flat arrays of their types, by name.

    Parameters
    ----------
    program : Program
        It names the inputs and their types.
    kind : str
        One of `input_kinds` of each input's type.
    length : int
        The value of the program's scalars, which is the number of elements of the input "in".
        Segments by offsets are an eighth as many, and end at random places.
    rng : numpy.random.Generator
        Where the numbers come from.

    Returns
    -------
    dict of str to array
        A flat array for each input, of its element type.

    Raises
    ------
    InputError
        If the length is not one that the program takes.
    UnknownName
        If a type has no such kind.
    """
    scalars = {scalar.name: length for scalar in program.scalars}
    offsets = offsets_of(program)
    segments = -(-length // 8)
    for step in offsets.values():
        scalars.update(dict.fromkeys(step.segments.offsets.size.index.symbols, segments))
    inputs = {
        buffer.name: _random_values(program, buffer.dtype, kind, buffer.size.evaluate(scalars), rng)
        for buffer in program.inputs
        if buffer.name not in offsets
    }
    for name, step in offsets.items():
        last = step.segments.last_offset(segments, length)
        ends = np.sort(rng.integers(0, last + 1, segments + 1))
        ends[0], ends[-1] = 0, last
        inputs[name] = ends
    _scalars(program, inputs)
    return inputs


def _random_values(
    program: Program, dtype: str, kind: str, size: int, rng: np.random.Generator
) -> Values:
    """Return `size` random elements of a type, within the range of the program's operands."""
    if kind not in input_kinds(dtype):
        raise unknown_name(f"kind of {dtype} input", kind, input_kinds(dtype))
    target = format_of(dtype)
    if not target.is_float:
        limits = np.iinfo(target.dtype)
        low, high = (0, 10) if kind == "integers" else (limits.min, limits.max + 1)
        return rng.integers(low, high, size).astype(target.dtype)
    # Numbers that are split into parts of a narrower type must be in that type's range.
    narrow = min(target, format_of(program.ab), key=lambda fmt: fmt.largest)
    with np.errstate(over="ignore", under="ignore"):
        values = round_values(_reals(kind, size, narrow, rng), target)
    return from_values(values, dtype)


def _reals(kind: str, size: int, target: Format, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return real numbers of a kind, in the range of a type, to be rounded."""
    normal = rng.standard_normal(size)
    match kind:
        case "normal":
            return normal
        case "uniform":
            return rng.random(size)
        case "wide":
            # Products of two operands, one of which is 0 or 1, and their sums stay in range.
            low = target.emin - target.fraction_bits
            high = max(target.emax - 8, target.emin + 1)
            return np.ldexp(
                rng.uniform(1, 2, size) * np.sign(normal), rng.integers(low, high, size)
            )
        case "subnormal":
            return np.ldexp(normal, target.emin - 2)
        case "special":
            chance = rng.random(size)
            return np.select([chance < share for share in _SPECIAL], [*_SPECIAL.values()], normal)
        case "overflow":
            return np.clip(normal * (target.largest / 2), -target.largest, target.largest)
        case _:
            return rng.integers(-4, 5, size).astype(np.float64)
