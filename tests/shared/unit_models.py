"""Outputs of public units by tcusim, as bits: for comparison with their models."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcusim.machine import Values, mma_values, rule_for

BITS = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "s8": np.uint8, "s32": np.uint32}
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
}


def values_of(bits: Values, fmt: str) -> Values:
    """Return elements of their bits."""
    if fmt == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view({"f16": "f2", "f32": "f4", "s8": "i1", "s32": "i4"}[fmt])


def by_tcusim(name: str, a: Values, b: Values, c: Values, rule: Any = None) -> Values:
    """Return the bits of tcusim."""
    arch, ab, acc = name.split("-")
    left, right = (values_of(x, ab) for x in (a, b))
    addend = values_of(c, acc)[:, None, None]
    d = mma_values(left[:, None, :], right[:, :, None], addend, rule or rule_for(arch, ab, acc))
    return np.ascontiguousarray(d[:, 0, 0]).view(BITS[acc])
