"""What is to be summed or scanned: lengths, segments, types and tile, checked and in one form.

A problem is what launches are chosen for: those of segments of one size by
`tcusim.arrays.plan_rules`, those of segments by offsets by `tcusim.arrays.irregular`. Equal
problems have equal launches.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tcusim.algorithms import algorithm_of, build
from tcusim.algorithms.order import FORWARD, Order
from tcusim.arrays.launches import CHAIN
from tcusim.arrays.planned import SHORT_NAMES
from tcusim.backends import get_backend, native_arch
from tcusim.errors import InputError, Unsupported, unknown_name
from tcusim.machine import rule_for, unit_of
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.grammar import Program

__all__ = [
    "FLOATS",
    "MOST_INT8",
    "AnyProblem",
    "IrregularProblem",
    "Problem",
    "Shape",
    "name_of_dtype",
    "problem_by_offsets",
    "problem_of",
    "require_unnamed",
    "rounded_up",
    "types_of",
    "unit_of_run",
]

# The longest segment of int8 whose sum int32 holds, with room to spare.
MOST_INT8 = 2**23

Shape: TypeAlias = str | tuple[int, int, int] | MmaShape

# Operand, accumulator and array types by the NumPy type of an array, and its own result type.
_TYPES = {
    "float16": ("f16", "f32", "f16", "float16"),
    "bfloat16": ("bf16", "f32", "bf16", "bfloat16"),
    "float32": ("bf16", "f32", "f32", "float32"),
    "float64": ("f64", "f64", "f64", "float64"),
    "int8": ("s8", "s32", "s8", "int32"),
}
FLOATS = ("float16", "float32", "float64", "bfloat16")


@dataclass(frozen=True, slots=True)
class AnyProblem:
    """What problems have in common, however their segments lie.

    kind: "reduction" or "scan". length: elements of the array. ab, acc: element types of operands
    and accumulators; source, result: of the arrays "in" and "out". literal: as the paper has it,
    with partial sums rounded to `ab` and chains without limit. order: whether a scan is exclusive,
    and whether it goes from the end. unit: whose tensor cores and shared memory there are, by name;
    None is nobody's, and has room for any block.
    """

    kind: str
    length: int
    _: KW_ONLY
    shape: MmaShape
    ab: str
    acc: str
    source: str
    result: str
    literal: bool = False
    order: Order = FORWARD
    unit: str | None = None

    def build(self, name: str, segment_size: int | None, result: str, **options: Any) -> Program:
        """Build a program with products, for any length, with this problem's types."""
        usual = {
            "ragged": True,
            "combine": "mma" if self.literal else "add",
            "chain": None if self.literal else CHAIN,
        }
        return build(
            name,
            shape=self.shape,
            segment_size=segment_size,
            ab=self.ab,
            accumulate=self.acc,
            source=self.source,
            result=result,
            **{**usual, **options},
        )

    def plain(self, name: str, segment_size: int, result: str, **options: Any) -> Program:
        """Build a program of rounded additions alone, on values of the accumulator's type."""
        values = replace(self, source=self.acc)
        return AnyProblem.build(values, name, segment_size, result, **options)

    @property
    def scan_options(self) -> dict[str, bool]:
        """What an algorithm is to be told of the order, if it is not the usual one."""
        given = {"exclusive": self.order.exclusive, "reverse": self.order.reverse}
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class Problem(AnyProblem):
    """Segments of one size.

    segment_size: elements of a segment; the last one may be shorter. algorithm: a name, or None for
    the choice by `tcusim.arrays.plan_rules`.
    """

    segment_size: int
    _: KW_ONLY
    algorithm: str | None = None

    @property
    def whole_or_size(self) -> int | None:
        """The segment size; None if the whole array is one segment."""
        return None if self.segment_size >= self.length else self.segment_size

    @property
    def segments(self) -> int:
        """Number of segments."""
        return -(-self.length // self.segment_size)

    @property
    def division(self) -> str:
        """How the array is divided into segments, in words; nothing if it is one."""
        return f" in segments of {self.segment_size}" if self.segment_size < self.length else ""


@dataclass(frozen=True, slots=True)
class IrregularProblem(AnyProblem):
    """Segments by offsets.

    segments: their number. longest: elements of the longest one, where that is known; it may save
    launches.
    """

    segments: int
    _: KW_ONLY
    longest: int | None = None

    @property
    def division(self) -> str:
        """How the array is divided into segments, in words."""
        longest = "" if self.longest is None else f", of up to {self.longest} elements"
        return f" in {self.segments} segments by offsets{longest}"


# --- From what a user gave --------------------------------------------------------------------


def unit_of_run(arch: str | None, backend: str | None) -> str:
    """Return whose arithmetic a call follows: the named one, or that of the backend's GPU."""
    if arch is not None:
        return arch
    own = None if backend is None else native_arch(get_backend(backend))
    return own or "hopper"


def problem_of(
    kind: str,
    length: int,
    segment_size: int,
    types: tuple[str, str, str, str],
    *,
    unit: str,
    shape: Shape | None,
    accumulate: str,
    algorithm: str | None,
    order: Order = FORWARD,
) -> Problem:
    """Return the problem for these (ab, acc, source, result) types; refuse what `unit` lacks."""
    ab, acc, source, result = types
    rule_for(unit, ab, acc)
    _require_exact(ab, segment_size, unit)
    return Problem(
        kind=kind,
        length=length,
        segment_size=segment_size,
        shape=_tile(shape, ab),
        ab=ab,
        acc=acc,
        source=source,
        result=result,
        literal=accumulate == "f16" or _is_paper_name(algorithm),
        algorithm=algorithm,
        order=order,
        unit=unit_of(unit).name,
    )


def problem_by_offsets(
    kind: str,
    length: int,
    segments: int,
    types: tuple[str, str, str, str],
    *,
    unit: str,
    shape: Shape | None,
    accumulate: str,
    longest: int | None = None,
    order: Order = FORWARD,
) -> IrregularProblem:
    """Return the problem for segments by offsets, none of more than `longest` elements.

    That is rounded up, so that few problems, and plans, serve all lengths.
    """
    ab, acc, source, result = types
    rule_for(unit, ab, acc)
    tile = _tile(shape, ab)
    most = length if longest is None else min(longest, length)
    _require_exact(ab, most, unit)
    most = rounded_up(most, tile.k)
    return IrregularProblem(
        kind=kind,
        length=length,
        segments=segments,
        shape=tile,
        ab=ab,
        acc=acc,
        source=source,
        result=result,
        literal=accumulate == "f16",
        order=order,
        unit=unit_of(unit).name,
        longest=None if longest is None or most >= length else most,
    )


def _tile(shape: Shape | None, ab: str) -> MmaShape:
    return shape_of(shape or ("8x8x4" if ab == "f64" else "16x16x16"))


def _require_exact(ab: str, longest: int, unit: str) -> None:
    if ab == "s8" and longest > MOST_INT8:
        raise Unsupported(
            f"integer segments of more than {MOST_INT8} elements are not exact on {unit}; cut them "
            "into shorter ones, or sum float64"
        )


def require_unnamed(algorithm: str | None) -> None:
    """Refuse the name of an algorithm for segments by offsets."""
    if algorithm is not None:
        raise Unsupported(
            f"algorithm={algorithm!r} goes with segments of one size; those by offsets have "
            "launches of their own. Leave algorithm out"
        )


def types_of(dtype: str, result: str | None, accumulate: str) -> tuple[str, str, str, str]:
    """Return the (ab, acc, source, result) types for NumPy's names."""
    if dtype not in _TYPES:
        raise InputError(
            f"a plan takes arrays of {', '.join(_TYPES)}, not {dtype}; cast them first "
            f"(tcusim.sum and its kin also take other integers, as NumPy arrays)"
        )
    ab, acc, source, own = _TYPES[dtype]
    wanted = own if result is None else result
    valid = ("int32",) if dtype == "int8" else FLOATS
    if wanted not in valid:
        raise InputError(f"the result of {dtype} must be {' or '.join(valid)}, not {wanted}")
    if accumulate not in ("f32", "f16"):
        raise unknown_name("accumulator", accumulate, ("f32", "f16"))
    if accumulate == "f16":
        if dtype != "float16":
            raise Unsupported(f"accumulate='f16' is for float16 input, not {dtype}")
        acc = "f16"
    return ab, acc, source, SHORT_NAMES[wanted]


def name_of_dtype(dtype: Any) -> str:
    """Return NumPy's name of a type, which may also be torch's, or just a name."""
    name = str(dtype).removeprefix("torch.")
    if name in SHORT_NAMES:
        return name
    try:
        return str(np.dtype(dtype).name)
    except TypeError as error:
        raise InputError(f"dtype: {error}") from error


def rounded_up(size: int, least: int) -> int:
    """Return the smallest least * 2**i that is at least `size`: few programs serve all sizes."""
    return least << max(0, -(-size // least) - 1).bit_length()


def _is_paper_name(name: str | None) -> bool:
    return name is not None and algorithm_of(name).alias == name.lower()
