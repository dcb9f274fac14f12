"""Compare fp8 arithmetic with mmaemu [MMAEMU26], output by output: docs/data/mmaemu.json.

    pip install mmaemu
    python docs/tools/compare_mmaemu.py

Its chain of steps is its own function, on the CPU; NaN and infinities, which it treats elsewhere,
are left out.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import tcusim

_DATA: Final = Path(__file__).parents[1] / "data" / "mmaemu.json"
# Rows and columns of a product: every output is one dot product.
_SIDE: Final = 660
_LENGTHS: Final = (32, 64)
# Of its presets, those that it calls validated, and the instruction of tcusim that each is.
INSTRUCTIONS: Final = {"ada": ("ada", "mma.sync"), "hopper": ("hopper", "wgmma")}
_TYPES: Final = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
KINDS: Final = ("codes", "normal", "wide", "small")

Codes = NDArray[np.uint8]


def codes(kind: str, ab: str, shape: tuple[int, int], rng: np.random.Generator) -> Codes:
    """Return finite numbers of a type, as their bits: any of them, or of a distribution."""
    dtype = _TYPES[ab]
    if kind == "codes":
        found = rng.integers(0, 256, shape, np.uint8)
    else:
        numbers = rng.standard_normal(shape)
        if kind == "wide":
            numbers *= 2.0 ** rng.integers(-8, 7, shape)
        elif kind == "small":
            numbers *= 2.0**-7 if ab == "e4m3" else 2.0**-14
        found = numbers.astype(dtype).view(np.uint8)
    finite = np.isfinite(found.view(dtype).astype(np.float32))
    return np.where(finite, found, 0).astype(np.uint8)


def compare(preset: str, ab: str, kind: str, k: int, side: int = _SIDE) -> tuple[int, int]:
    """Return the number of outputs compared, and of those that differ in any bit."""
    import torch
    from mmaemu.model.chain import chain_gemm

    arch, family = INSTRUCTIONS[preset]
    # The same numbers in each run.
    rng = np.random.default_rng([sorted(INSTRUCTIONS).index(preset), len(kind), k, ab == "e4m3"])
    a, b = (codes(kind, ab, (side, k), rng) for _ in "ab")
    theirs = chain_gemm(torch.tensor(a), torch.tensor(b), fmt_a=ab, fmt_b=ab, preset=preset)
    one, two = (x.view(_TYPES[ab]) for x in (a, b))
    ours: Any = tcusim.mma(one, two.T, arch=arch, ab=ab, acc="f32", family=family)
    return ours.size, int(np.sum(ours.view(np.uint32) != theirs.numpy().view(np.uint32)))


def main() -> None:
    """Compare, print and write the counts."""
    rows, start = [], time.monotonic()
    for preset in INSTRUCTIONS:
        for ab in _TYPES:
            for kind in KINDS:
                for k in _LENGTHS:
                    outputs, differ = compare(preset, ab, kind, k)
                    row = {"preset": preset, "ab": ab, "kind": kind, "k": k}
                    rows.append({**row, "outputs": outputs, "differ": differ})
                    sys.stdout.write(f"{rows[-1]}\n")
    content = {
        "versions": {name: importlib.metadata.version(name) for name in ("mmaemu", "torch")},
        "seconds": round(time.monotonic() - start),
        "rows": rows,
    }
    _DATA.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    total = sum(int(row["outputs"]) for row in rows)
    sys.stdout.write(f"{sum(row['differ'] for row in rows)} of {total:,} differ\n")


if __name__ == "__main__":
    main()
