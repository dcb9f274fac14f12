"""Do two backends give the same bits? `assert_agree` for the tests of any backend.

The first backend named is the one to be compared with; the simulator, "numpy", is the usual one.
On a mismatch the error says which element differs, which warp wrote it, and at which step the two
runs part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.backends import Backend, get_backend
from tcusim.binding import bind_scalars
from tcusim.errors import AgreementError, InputError, TcusimError, unknown_name
from tcusim.interpret import Event, run_numpy
from tcusim.ir import Copy, Level, Program, Store, View, accesses
from tcusim.listing import line
from tcusim.numerics import Format, Values, format_of, from_values, round_values, unit_of
from tcusim.probes import Probe, with_probes

__all__ = [
    "INPUT_KINDS",
    "Difference",
    "assert_agree",
    "bits_of",
    "differences",
    "input_kinds",
    "native_arch",
    "outputs_agree",
    "random_inputs",
]

Bits: TypeAlias = NDArray[Any]
Outputs: TypeAlias = Mapping[str, Any]

# Probes of more elements than this would take more memory than a report is worth.
_MOST_PROBED: Final = 1 << 27


# --- Bits -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """Where one output differs between two runs.

    name: of the output. places: the elements that differ, ascending. one, two: all bits of both.
    dtype: the element type.
    """

    name: str
    dtype: str
    places: NDArray[np.int64]
    one: Bits
    two: Bits


def bits_of(array: Any, dtype: str) -> Bits:
    """Return the bits of an array of elements of a type, as unsigned integers of its size.

    bf16 may be held in a bfloat16 or a float32 array; both give the same 16 bits.
    """
    given = np.ascontiguousarray(array)
    if dtype == "bf16" and given.dtype == np.float32:
        return (given.view(np.uint32) >> 16).astype(np.uint16)
    expected = format_of(dtype)
    if dtype != "bf16" and given.dtype != expected.dtype:
        raise InputError(f"an array of {dtype} must be {expected.dtype}, got {given.dtype}")
    return given.view(np.dtype(f"u{given.dtype.itemsize}"))


def differences(program: Program, one: Outputs, two: Outputs, *, ulp: int = 0) -> list[Difference]:
    """Return the outputs of a program that differ in two runs, with the elements that do.

    Parameters
    ----------
    program : Program
        It names the outputs and their types.
    one, two : mapping of str to array
        What two backends returned.
    ulp : int
        Elements that are no more than so many representable numbers apart do not differ.

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
    """Return whether two backends returned the same bits, NaN patterns included."""
    return not differences(program, one, two)


def _distance(one: Bits, two: Bits, fmt: Format) -> NDArray[np.float64]:
    """Return how many representable numbers lie between; NaN is far from all but NaN."""
    ranks = [_ranks(bits) for bits in (one, two)]
    nan = [np.isnan(_decimal(bits, fmt.name)) for bits in (one, two)]
    apart = np.abs(ranks[0].astype(np.float64) - ranks[1].astype(np.float64))
    return np.where(nan[0] & nan[1], 0.0, np.where(nan[0] | nan[1], np.inf, apart))


def _ranks(bits: Bits) -> NDArray[np.int64]:
    """Number the floats in ascending order; both zeros are number 0."""
    size = 8 * bits.dtype.itemsize
    magnitude = (bits & bits.dtype.type(2 ** (size - 1) - 1)).astype(np.int64)
    negative = (bits >> bits.dtype.type(size - 1)).astype(bool)
    return np.where(negative, -magnitude, magnitude)


def _decimal(bits: Bits, dtype: str) -> Values:
    """Return the values that bits stand for."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view(format_of(dtype).dtype)


# --- assert_agree -----------------------------------------------------------------------------


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
    >>> from tcusim.testing import assert_agree, random_inputs
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
    given = options or {}

    def run(runner: Backend, what: Program) -> dict[str, Any]:
        return runner.run(what, inputs, arch=arch, **given.get(runner.name, {}))

    first = run(runners[0], program)
    for runner in runners[1:]:
        found = differences(program, first, run(runner, program), ulp=ulp)
        if found:
            pair = (runners[0].name, runner.name)
            where = _Locator(program, inputs, arch or "hopper")
            parting = where.parting(found[0], lambda what, r=runner: (run(runners[0], what), run(r, what)))
            raise AgreementError(_report(program, pair, found, where, parting))
    return first


def native_arch(backend: Backend) -> str | None:
    """Return the architecture of the device that a backend runs on; None if it follows any."""
    ask = getattr(backend, "native_arch", None)
    return None if ask is None else ask()
