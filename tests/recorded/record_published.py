"""Record outputs of public models of matrix units: published_models.npz.

    python tests/recorded/record_published.py PATH/TO/MMA-Sim

Needs torch, which MMA-Sim uses.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

INSTRUCTIONS = {
    "cdna2-f16": ("CDNA2", "f32_16x16x16f16", "float16"),
    "cdna2-bf16": ("CDNA2", "f32_16x16x16bf16_1k", "bfloat16"),
    "cdna3-f16": ("CDNA3", "f32_16x16x16_f16", "float16"),
    "cdna3-bf16": ("CDNA3", "f32_16x16x16_bf16", "bfloat16"),
    "cdna3-tf32": ("CDNA3", "f32_16x16x8_xf32", "float32"),
    "cdna3-e4m3fnuz": ("CDNA3", "f32_16x16x32_fp8_fp8", "float8_e4m3fnuz"),
    "cdna3-e5m2fnuz": ("CDNA3", "f32_16x16x32_bf8_bf8", "float8_e5m2fnuz"),
}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], spread: int) -> Any:
    """Draw normal numbers, each row of another spread of exponents."""
    wide = rng.integers(1, spread, (shape[0], *[1] * (len(shape) - 1)))
    return rng.standard_normal(shape) * np.exp2(np.rint(rng.uniform(-1, 1, shape) * wide))


def of_mma_sim(folder: Path, rng: np.random.Generator) -> dict[str, Any]:
    """Return one tile of each instruction: operands as float32, results as bits."""
    sys.path.insert(0, str(folder))
    import torch
    from mmasim.simulator import amd  # type: ignore[import-not-found]

    pairwise = amd.pairwise_dot
    # Its own operands in float16 and bfloat16 fail an assertion there.
    amd.pairwise_dot = lambda a, b, flush=False: pairwise(a.float(), b.float(), flush)
    found: dict[str, Any] = {}
    for name, (arch, qualifier, dtype) in INSTRUCTIONS.items():
        unit = amd.mfma(arch, qualifier)
        spread = 7 if "16" in dtype or "8" in dtype else 12
        a, b, c = (
            torch.tensor(numbers(rng, shape, spread)).float()
            for shape in ((unit.m, unit.k), (unit.k, unit.n), (unit.m, unit.n))
        )
        half = unit.k // 2
        # Some rows cancel.
        a[::3, half:] = a[::3, :half]
        b[half:, ::3] = -b[:half, ::3]
        c[::4] *= 2.0**-20
        a, b = (x.to(getattr(torch, dtype)) for x in (a, b))
        d = unit(a.clone(), b.clone(), c.clone())
        keys = ("a", "b", "c"), (a.float(), b.float(), c)
        found |= {f"{name}-{key}": x.numpy() for key, x in zip(*keys, strict=True)}
        found[f"{name}-d"] = d.numpy().view(np.uint32)
    return found


SCALED = {
    "scaled-e4m3-ue8m0-32": "m16n8k32.block32.f32.e4m3.e4m3.f32.ue8m0",
    "scaled-e5m2-ue8m0-32": "m16n8k32.block32.f32.e5m2.e5m2.f32.ue8m0",
    "scaled-e2m1-ue8m0-32": "m16n8k64.block32.f32.e2m1.e2m1.f32.ue8m0",
    "scaled-e2m1-ue8m0-16": "m16n8k64.block16.f32.e2m1.e2m1.f32.ue8m0",
    "scaled-e2m1-ue4m3-16": "m16n8k64.block16.f32.e2m1.e2m1.f32.ue4m3",
}
FP4 = np.array([0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def with_scales(rng: np.random.Generator) -> dict[str, Any]:
    """Return one tile of each instruction with block scales, without zeros."""
    import torch
    from mmasim.simulator.nv_ptx import mma_block_scale  # type: ignore[import-not-found]

    types = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
    scale_types = {"ue8m0": torch.float8_e8m0fnu, "ue4m3": torch.float8_e4m3fn}
    found: dict[str, Any] = {}
    for name, qualifier in SCALED.items():
        _, ab, scale, block = name.split("-")
        unit = mma_block_scale("RTX Blackwell", qualifier)
        shapes = (unit.m, unit.k), (unit.k, unit.n)
        if ab == "e2m1":
            a, b = (rng.choice(FP4, one) * rng.choice([-1.0, 1.0], one) for one in shapes)
            codes = [np.searchsorted(FP4, abs(x)) + 1 | np.signbit(x) << 3 for x in (a, b)]
            left, right = codes[0].T, codes[1]
            packed = [(x[::2] | x[1::2] << 4).astype(np.uint8) for x in (left, right)]
            operands = torch.tensor(packed[0].T.copy()), torch.tensor(packed[1])
        else:
            operands = tuple(
                torch.tensor(rng.uniform(1, 2, one) * np.exp2(rng.integers(-5, 6, one))).to(
                    types[ab]
                )
                for one in shapes
            )
            a, b = (x.float().numpy() for x in operands)
        blocks = unit.k // int(block)
        scales = [
            torch.tensor(np.exp2(rng.integers(-8, 8, one)) * (1 if scale == "ue8m0" else 1.25))
            for one in ((unit.m, blocks), (blocks, unit.n))
        ]
        given = [one.float().to(scale_types[scale]) for one in scales]
        c = torch.tensor(numbers(rng, (unit.m, unit.n), 12)).float()
        d = unit(*operands, c, *given)
        values = a, b, c.numpy(), *(one.float().numpy() for one in given)
        found |= {f"{name}-{key}": np.float32(x) for key, x in zip("abcst", values, strict=True)}
        found[f"{name}-d"] = d.numpy().view(np.uint32)
    return found


if __name__ == "__main__":
    rng = np.random.default_rng(2026)
    models = of_mma_sim(Path(sys.argv[1]), rng) | with_scales(rng)
    np.savez_compressed(Path(__file__).with_name("published_models.npz"), **models)
