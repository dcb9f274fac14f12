"""Rules drawn from all that rules.py can express, and operands for them."""

from __future__ import annotations

import ctypes
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from numbers_of_types import random_values
from tcusim.errors import InputError
from tcusim.machine import (
    FORMATS,
    Exact,
    Format,
    Fused,
    Integer,
    Late,
    Passes,
    Rule,
    Sequential,
    Values,
)
from tcusim.machine.formats import ROUNDED, format_of, from_memory, round_values
from tcusim.machine.rules import SCALES, Numerics

Rng = np.random.Generator
ROUNDINGS: Final = tuple(ROUNDED)
FLAGS: Final = (False, True)
FLOORS: Final = (None, None, -149, -133, -40, -20, -3, 5, 40)

# Element types: those of the table, and others of up to one, two and four bytes.
TYPES: Final = (
    *FORMATS,
    *("e5m3", "e3m4", "e4m4b9fnuz", "e6m5_daz", "e4m3b7", "e3m3f", "e8m2_daz", "e2m9fn"),
    *("e8m10b120", "e4m0fn", "e1m4", "e7m16f"),
)

# Values of every parameter of every kind of rule: a new one belongs here.
PARTS: Final[dict[type, dict[str, tuple[Any, ...]]]] = {
    Fused: {
        "length": (1, 2, 3, 4, 5, 8, 16, 32),
        "fraction_bits": (2, 7, 11, 13, 20, 23, 24, 25, 26, 31, 36, 42),
        "output": ROUNDINGS,
        "output_fraction_bits": (None, None, None, 1, 5, 9, 13),
        "alignment": (*ROUNDINGS, "sticky", "sticky"),
        "c_joins": ("sum", "sum", "after", "late"),
        "flush_inputs": FLAGS,
        "flush_outputs": FLAGS,
        "exponent_floor": FLOORS,
        "register_halves": (False, False, False, True),
        "exponents": ("operands", "upper", "products", "scales"),
        "sums": (1, 1, 1, 2, 3),
        "addition": ROUNDINGS,
        "overflow": ("sum", "sum", "product"),
        "zeros": ("positive", "signed"),
        "presum": (1, 1, 1, 2, 4, 16),
    },
    Late: {
        "sum_bits": (3, 11, 24, 31, 40),
        "c_bits": (3, 11, 24, 31, 40),
        "alignment": ROUNDINGS,
        "floor": FLOORS,
        "reach": (None, None, 1, 10, 25),
    },
    Sequential: {
        "length": (None, 1, 2, 3, 4, 7, 16),
        "order": ("chain", "apart", "tree"),
        "sums": (1, 1, 2, 3),
        "rounding": ROUNDINGS,
        "sum_type": ("", "", "f16", "bf16"),
        "flush_inputs": FLAGS,
        "flush_outputs": FLAGS,
    },
    Exact: {"length": (None, None, 1, 2, 5, 16), "c_joins": ("sum", "after")},
    Integer: {
        "length": (None, 1, 2, 4, 16),
        "sum_bits": (2, 8, 16, 20, 32, 32),
        "overflow": ("wrap", "saturate", "symmetric"),
    },
}


@dataclass(frozen=True)
class DrawnMma:
    """Operands of some tiles, as the simulator has them, and the scales of their blocks as bits."""

    rule: Rule
    a: Values
    b: Values
    c: Values
    scales: tuple[NDArray[np.uint8], NDArray[np.uint8]] | None


def pick(rng: Rng, choices: tuple[Any, ...]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def drawn_part(rng: Rng, kind: type, few: float) -> Any:
    """Draw one part of a rule; each parameter has its default with a likelihood of `few`."""
    found = {}
    for one in fields(kind):
        value = pick(rng, PARTS[kind][one.name])
        if one.default is not MISSING and rng.random() < few:
            value = one.default
        found[one.name] = drawn_part(rng, Late, few) if value == "late" else value
    return kind(**found)


def drawn_rule(rng: Rng, kind: type[Numerics]) -> Rule:
    """Draw a rule of a kind."""
    few = pick(rng, (0.0, 0.4, 0.8, 0.8))
    while True:
        ab, acc = pick(rng, TYPES), pick(rng, ("f16", "f32", "f32", "f64", "s32", "bf16"))
        right = pick(rng, (*[""] * 12, "e4m3", "e5m2", "e2m1", "e3m2", "e4m3fnuz", "e3m3f"))
        scale = ""
        if rng.random() < 0.2:
            scale = f"block{pick(rng, (1, 2, 4, 8, 16, 32))}.{pick(rng, SCALES)}"
        try:
            how = drawn_part(rng, kind, few)
            nan = pick(rng, ("", "", "ones", "quiet"))
            passes = drawn_passes(rng, ab, right) if rng.random() < 0.2 else None
            return Rule(ab, acc, how, "a test", "none", "", right, nan, scale, passes)
        except InputError:
            continue


def drawn_passes(rng: Rng, ab: str, right: str) -> Passes:
    """Draw passes over the bits of operands of these types."""
    sides: list[tuple[int, ...]] = []
    for name in (ab, right or ab):
        fmt = format_of(name)
        bits = fmt.fraction_bits + 1 if fmt.is_float else fmt.bits
        cuts = sorted({int(rng.integers(1, bits + 1)) for _ in range(3)} | {bits})
        sides.append(tuple(np.diff([0, *cuts]).tolist()))
    pairs = [(i, j) for i in range(len(sides[0])) for j in range(len(sides[1]))]
    some = [pairs[i] for i in rng.permutation(len(pairs))][: int(rng.integers(1, 17))]
    return Passes(sides[0], sides[1], order=tuple(some) if rng.random() < 0.7 else ())


def drawn_mma(rng: Rng, rule: Rule, tiles: int = 4, most_k: int = 40) -> DrawnMma:
    """Draw operands for a rule."""
    m, n, k = (int(rng.integers(1, most)) for most in (9, 9, most_k))
    scales = None
    if rule.block:
        blocks = int(rng.integers(1, max(2, 48 // rule.block)))
        k = blocks * rule.block
        spread = pick(rng, (1, 6, 256))
        sides = [(tiles, m, blocks), (tiles, blocks, n)]
        middle = 127 if rule.scale_type == "ue8m0" else 56
        scales = tuple(
            np.clip(middle + rng.integers(-spread, spread, one), 0, 255).astype(np.uint8)
            for one in sides
        )
    kind = pick(
        rng, ("raw", "spread", "spread", "spread", "close", "close", "few", "mixed", "whole")
    )
    a, b, c = (
        drawn_values(rng, shape, format_of(fmt), kind)
        for shape, fmt in (
            ((tiles, m, k), rule.ab),
            ((tiles, k, n), rule.right),
            ((tiles, m, n), rule.acc),
        )
    )
    if rng.random() < 0.3:
        # Terms that cancel.
        half = k // 2
        a[:, :, half : 2 * half], b[:, half : 2 * half] = a[:, :, :half], b[:, :half]
        if rule.how.__class__ is not Integer and format_of(rule.ab).has_negative_zero:
            np.negative(a[:, :, :half], out=a[:, :, half : 2 * half])
    if rng.random() < 0.3:
        c[...] = 0
    return DrawnMma(rule, a, b, c, scales)  # type: ignore[arg-type]


def drawn_values(rng: Rng, shape: tuple[int, ...], fmt: Format, kind: str) -> Values:
    """Draw values: of any bits, of near exponents, or special ones."""
    bits = rng.integers(0, 2**fmt.bits, shape, np.uint64)
    raw = values_of_bits(bits, fmt)
    if not fmt.is_float:
        return raw
    with np.errstate(invalid="ignore"):
        finite = np.where(np.isfinite(raw), raw, 1).astype(fmt.dtype)
    spread = pick(rng, (20, 60)) if kind == "spread" else pick(rng, (1, 3, 8))
    near = random_values(rng, shape, fmt.name, spread)
    most = 2**fmt.fraction_bits
    tiny = round_values(fmt.smallest * rng.integers(-most, most + 1, shape), fmt)
    size = fmt.largest
    few = np.array([0.0, -0.0, 1.0, -1.0, size, -size, 0.5, np.inf, -np.inf, np.nan])
    weights = np.array([6, 2, 4, 4, 2, 2, 3, 0.2, 0.2, 0.1])
    if not fmt.has_nan:
        weights[7:] = 0
    elif not fmt.has_inf:
        weights[7:9] = 0
    if not fmt.has_negative_zero:
        weights[1] = 0
    special = round_values(rng.choice(few, shape, p=weights / weights.sum()), fmt)
    match kind:
        case "raw":
            return raw if rng.random() < 0.5 else finite
        case "few":
            return special.astype(fmt.dtype)
        case "mixed":
            which = rng.random(shape)
            mixed = np.where(which < 0.6, near, np.where(which < 0.8, tiny, finite))
            return np.where(which > 0.97, special, mixed).astype(fmt.dtype)
        case "whole":
            most = min(fmt.largest, 2.0**fmt.fraction_bits, 64)
            whole = rng.integers(-int(most), int(most) + 1, shape)
            return round_values(whole.astype(np.float64), fmt)
    return near.astype(fmt.dtype)


def values_of_bits(bits: NDArray[np.uint64], fmt: Format) -> Values:
    """Return the values that these bits encode."""
    values = from_memory(bits.astype(f"u{fmt.itemsize}").view(fmt.memory_dtype), fmt)
    if fmt.name != "tf32":
        return values
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def address(x: NDArray[Any] | None) -> ctypes.c_void_p | None:
    return None if x is None else ctypes.c_void_p(x.ctypes.data)
