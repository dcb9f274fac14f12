"""Outputs of public units by tcusim, as bits: for comparison with their models."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcusim.machine import Values, format_of, mma_values, rule_for
from tcusim.machine.bits import from_bits

BITS: dict[str, type[np.unsignedinteger[Any]]] = {
    **dict.fromkeys(("f16", "bf16"), np.uint16),
    **dict.fromkeys(("e4m3", "e5m2", "s8"), np.uint8),
    **dict.fromkeys(("f32", "s32"), np.uint32),
}
# Products of an output of each unit, by types.
UNITS = {
    "redmule-f16-f16": 4,
    "exsdotp-f16-f32": 2,
    "amx_sdm-bf16-f32": 32,
    "arm_bfmmla-bf16-f32": 2,
    "sme-f16-f32": 2,
    "apple_amx-f16-f32": 8,
    "apple_amx-f16-f16": 8,
    "wormhole-s8-s32": 16,
    "arm_ebf16-bf16-f32": 2,
    "vortex_tfr-f16-f32": 8,
    "gemmini_bf16-bf16-f32": 8,
    "gemmini-s8-s32": 16,
    "vta-s8-s32": 16,
    "zvbdot_256-bf16-f32": 16,
    "zvbdot_256-e4m3-f32": 32,
    "zvbdot_256-e5m2-f32": 32,
}


def nan_known(name: str) -> bool:
    """Return whether the unit writes a NaN of its own; others pass on that of an operand."""
    return not name.startswith(("amx", "apple"))


def values_of(bits: Values, fmt: str) -> Values:
    """Return elements of their bits."""
    if fmt == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if fmt in ("e4m3", "e5m2"):
        known: Values = np.array([from_bits(i, format_of(fmt)) for i in range(2**8)])
        return known[bits]
    return bits.view({"f16": "f2", "f32": "f4", "s8": "i1", "s32": "i4"}[fmt])


def by_tcusim(name: str, a: Values, b: Values, c: Values, rule: Any = None) -> Values:
    """Return the bits of tcusim."""
    arch, ab, acc = name.split("-")
    left, right = (values_of(x, ab) for x in (a, b))
    addend = values_of(c, acc)[:, None, None]
    d = mma_values(left[:, None, :], right[:, :, None], addend, rule or rule_for(arch, ab, acc))
    return np.ascontiguousarray(d[:, 0, 0]).view(BITS[acc])
