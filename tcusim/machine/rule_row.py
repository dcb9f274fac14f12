"""A rule as data for C: the struct that `tcusim_rule.h` computes with."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tcusim.machine.formats import FORMATS, Format, format_of, to_memory
from tcusim.machine.rules import MOST_PASSES, SCALES, Exact, Fused, Integer, Late, Rule, Sequential

# The rule in C: an include file for C99, C++ and CUDA, which needs no other.
HEADER: Final = Path(__file__).parent / "include" / "tcusim_rule.h"

# The enumerations of the header, in its order.
_KINDS: Final = (Fused, Sequential, Exact, Integer)
_ROUNDINGS: Final = ("rne", "rna", "rz", "rd", "odd", "sticky")
_C_JOINS: Final = ("sum", "after")
_LATE: Final = len(_C_JOINS)
_EXPONENTS: Final = ("operands", "upper", "products", "scales")
_ORDERS: Final = ("chain", "apart", "tree")
_OVERFLOWS: Final = ("wrap", "saturate", "symmetric")
# Of an exponent: there is none.
_NONE: Final = -1_000_000
# Of an encoding: the type lacks it.
_ABSENT: Final = 2**64 - 1


class _CStruct(ctypes.Structure):
    """A struct that has a text in C."""

    def text(self) -> str:
        """Return the struct as an initialiser of C, ``{...}``."""
        return f"{{{', '.join(self._texts())}}}"

    def _texts(self) -> list[str]:
        values = [getattr(self, field[0]) for field in self._fields_]
        return [_text(one) for one in values]


def _text(value: Any) -> str:
    """Return a field of a struct as C."""
    if isinstance(value, _CStruct):
        return value.text()
    if isinstance(value, ctypes.Array):
        return f"{{{', '.join(map(_text, value))}}}"
    return f"{value}u" if value >= 2**31 else str(value)


class FormatRow(_CStruct):
    """An element type, as struct tcusim_format."""

    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in (
                *("kind", "bytes", "bits", "fraction_bits", "bias", "emin", "aligned_emin"),
                *("unread", "flushed"),
            )
        ),
        *((name, ctypes.c_uint64) for name in ("largest", "infinity", "nan")),
    )


class RuleRow(_CStruct):
    """The parameters of a rule, as struct tcusim_rule.

    ``bytes(row)`` is the struct in memory, and ``row.text()`` an initialiser of C.
    """

    _fields_ = (
        *((name, FormatRow) for name in ("a", "b", "c")),
        *(
            (name, ctypes.c_int32)
            for name in (
                *("kind", "keeps_nan", "length", "sums", "output"),
                *("flush_inputs", "flush_outputs", "fraction_bits", "output_fraction_bits"),
                *("alignment", "c_joins", "late_sum_bits", "late_c_bits", "late_alignment"),
                *("late_floor", "late_reach", "exponent_floor", "register_halves", "exponents"),
                *("addition", "product_overflows", "signed_zeros", "presum", "scale_type"),
                *("block", "order", "has_sum_type"),
            )
        ),
        ("sum_type", FormatRow),
        *((name, ctypes.c_int32) for name in ("sum_bits", "overflow", "passes")),
        *((name, ctypes.c_uint64 * MOST_PASSES) for name in ("pass_a", "pass_b")),
    )


def rule_row(rule: Rule, *, as_values: bool = False) -> RuleRow:
    """Return a rule for `tcusim_rule.h`.

    Parameters
    ----------
    rule : Rule
        Any rule.
    as_values : bool
        Whether elements are stored as in the simulator's arrays, in a type's `Format.dtype`: narrow
        floats in float32. Otherwise they are stored as in memory, in `Format.itemsize` bytes.
    """
    left, right, acc = (format_of(name) for name in (rule.ab, rule.right, rule.acc))
    how = rule.how
    parts: dict[str, int] = {"kind": _KINDS.index(type(how)), "sums": 1, "presum": 1}
    in_registers = False
    match how:
        case Fused():
            parts |= _fused(how, acc)
            in_registers = how.register_halves
        case Sequential():
            parts |= {
                "length": how.length or 0,
                "sums": how.sums,
                "output": _ROUNDINGS.index(how.rounding),
                "order": _ORDERS.index(how.order),
                "flush_inputs": how.flush_inputs,
                "flush_outputs": how.flush_outputs,
                "has_sum_type": bool(how.sum_type),
                "keeps_nan": rule.ab == rule.acc == "f64" and not rule.nan,
            }
        case Integer():
            parts |= {
                "length": how.length or 0,
                "sum_bits": how.sum_bits,
                "overflow": _OVERFLOWS.index(how.overflow),
            }
        case Exact():
            parts |= {"length": how.length or 0, "c_joins": _C_JOINS.index(how.c_joins)}
    if rule.block:
        parts |= {"block": rule.block, "scale_type": 1 + SCALES.index(rule.scale_type)}
    formats = {
        "a": format_row(left, as_values=as_values),
        "b": format_row(right, as_values=as_values),
        "c": format_row(acc, as_values=as_values),
    }
    if isinstance(how, Sequential) and how.sum_type:
        formats["sum_type"] = format_row(format_of(how.sum_type), as_values=False)
        formats["sum_type"].nan = _quiet_nan(format_of(how.sum_type))
    if in_registers:
        # A subnormal number of 8 bits is normal in fp16.
        formats["a"].aligned_emin = formats["b"].aligned_emin = FORMATS["f16"].emin
    if acc.is_float:
        formats["c"].nan = _written_nan(rule, acc)
    row = RuleRow(**formats, **parts)
    if rule.passes is not None:
        row.passes = len(rule.passes.pairs)
        for place, (i, j) in enumerate(rule.passes.pairs):
            row.pass_a[place] = _mask(rule.passes.left, i)
            row.pass_b[place] = _mask(rule.passes.right, j)
    return row


def _mask(parts: Sequence[int], place: int) -> int:
    """Return the bits of a part of a significand or a magnitude."""
    low = sum(parts[place + 1 :])
    return ((1 << parts[place]) - 1) << low


def _fused(how: Fused, acc: Format) -> Mapping[str, int]:
    late = how.c_joins if isinstance(how.c_joins, Late) else None
    bits, floor = how.output_fraction_bits, how.exponent_floor
    parts = {
        "length": how.length,
        "sums": how.sums,
        "output": _ROUNDINGS.index(how.output),
        "flush_inputs": how.flush_inputs,
        "flush_outputs": how.flush_outputs,
        "fraction_bits": how.fraction_bits,
        "output_fraction_bits": acc.fraction_bits if bits is None else bits,
        "alignment": _ROUNDINGS.index(how.alignment),
        "c_joins": _C_JOINS.index(how.c_joins) if isinstance(how.c_joins, str) else _LATE,
        "exponent_floor": _NONE if floor is None else floor,
        "register_halves": how.register_halves,
        "exponents": _EXPONENTS.index(how.exponents),
        "addition": _ROUNDINGS.index(how.addition),
        "product_overflows": how.overflow == "product",
        "signed_zeros": how.zeros == "signed",
        "presum": how.presum,
    }
    if late is not None:
        parts |= {
            "late_sum_bits": late.sum_bits,
            "late_c_bits": late.c_bits,
            "late_alignment": _ROUNDINGS.index(late.alignment),
            "late_floor": _NONE if late.floor is None else late.floor,
            "late_reach": late.reach or 0,
        }
    return parts


def _written_nan(rule: Rule, acc: Format) -> int:
    """Return the NaN that a unit writes, as the bits of its accumulator."""
    keeps = rule.acc == rule.ab == "f64" and isinstance(rule.how, Sequential)
    ones = rule.nan == "ones" or (not rule.nan and (isinstance(rule.how, Fused) or keeps))
    if ones and acc.nan_bits:
        return acc.nan_bits
    return _quiet_nan(acc)


def _quiet_nan(acc: Format) -> int:
    """Return the quiet NaN of a type: the exponent field, and the first bit below it."""
    return (2 << (acc.bits - 1 - acc.fraction_bits)) - 1 << (acc.fraction_bits - 1)


def format_row(fmt: Format, *, as_values: bool = False) -> FormatRow:
    """Return an element type for `tcusim_rule.h`; as_values: as of `rule_row`."""
    if not fmt.is_float:
        kind = 1 if fmt.smallest < 0 else 2
        return FormatRow(kind=kind, bytes=fmt.itemsize, bits=fmt.bits)
    # tf32 is a float32 of which some bits are not read.
    wide = FORMATS[fmt.dtype.name.replace("float", "f")] if as_values else fmt
    wide = FORMATS["f32"] if wide.name == "tf32" else wide
    fraction_bits, exponent_bits = wide.fraction_bits, wide.bits - 1 - wide.fraction_bits
    largest = to_memory(np.array([wide.largest], wide.dtype), wide).view(f"u{wide.itemsize}")
    return FormatRow(
        bytes=wide.itemsize,
        bits=wide.bits,
        fraction_bits=fraction_bits,
        bias=1 - wide.emin,
        emin=fmt.emin,
        aligned_emin=fmt.emin,
        unread=fraction_bits - fmt.fraction_bits,
        flushed=not fmt.has_subnormals,
        largest=int(largest[0]),
        infinity=((1 << exponent_bits) - 1) << fraction_bits if wide.has_inf else _ABSENT,
        nan=_ABSENT if wide.has_negative_zero else 1 << (wide.bits - 1),
    )
