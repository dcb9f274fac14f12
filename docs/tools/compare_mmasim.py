"""Compare the arithmetic with MMA-Sim [MMASIM25], output by output: docs/data/mmasim.json.

    python docs/tools/compare_mmasim.py PATH/TO/MMA-Sim

MMA-Sim computes one output at a time, a thousand a second. So its step is written here once more,
on arrays, from the constants that its own objects hold, and is compared with them first: `CHECKED`
outputs of each instruction. Needs torch, which MMA-Sim uses.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import TcusimError
from tcusim.machine import Fused, Rule, Values, format_of, mma_values, round_values, rule_for

OUTPUTS: Final = 2**20
CHECKED: Final = 2**11
_DATA: Final = Path(__file__).parents[1] / "data" / "mmasim.json"
_ARCHES: Final = {
    "Volta": "volta",
    "Turing": "turing",
    "Ampere": "ampere",
    "Ada Lovelace": "ada",
    "Hopper": "hopper",
    "Blackwell": "blackwell",
    "RTX Blackwell": "blackwell_rtx",
    "CDNA1": "cdna",
    "CDNA2": "cdna2",
    "CDNA3": "cdna3",
}
# The version that was compared.
COMMIT: Final = "c785138"
# Tiles of wgmma and tcgen05.mma differ in m and n, which change nothing.
_LARGE: Final = (
    "m64n8k8.f32.tf32.tf32",
    "m64n8k16.f32.f16.f16",
    "m64n8k16.f16.f16.f16",
    "m64n8k16.f32.bf16.bf16",
    *(f"m64n8k32.{acc}.{ab}.{ab}" for acc in ("f32", "f16") for ab in ("e4m3", "e5m2")),
)
_FAMILIES: Final = {"mma": "mma.sync", "wgmma": "wgmma", "tcgen05mma": "tcgen05"}
# Of its types, the least exponent of numbers with a hidden bit.
_LEAST: Final = {"f32": -126, "tf32": -126, "bf16": -126, "f16": -14, "e5m2": -14, "e4m3": -6}
_REGIMES: Final = (
    "normal",
    "wide",
    "cancelling",
    "small",
    "subnormal",
    "zeros",
    "large",
    "special",
)

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Instruction:
    """One of MMA-Sim's objects, and the rule that is to agree with it."""

    family: str
    arch: str
    shape: str
    model: Any
    rule: Rule

    @property
    def tile(self) -> tuple[int, int, int]:
        """Return m, n and k."""
        return self.model.m, self.model.n, self.model.k


def instructions() -> Iterator[Instruction]:
    """Yield the instructions of both: floats, with operands of one type, without scales."""
    from mmasim.isa import amd as mfma_isa
    from mmasim.isa.nv_ptx import nv_mma
    from mmasim.simulator import amd, nv_ptx

    known = [
        ("mma", arch, name) for arch, names in nv_mma.arch_mma_qualifiers.items() for name in names
    ]
    known += [
        (kind, arch, name)
        for kind, arch in (("wgmma", "Hopper"), ("tcgen05mma", "Blackwell"))
        for name in _LARGE
    ]
    for kind, arch, name in dict.fromkeys(known):
        shape, result, ab, b, *last = name.split(".")
        if ab == b and [result] == (last or [result]):
            rule = _rule(_ARCHES[arch], ab, result, _FAMILIES[kind])
            if rule is not None:
                model = getattr(nv_ptx, kind)(arch, name)
                yield Instruction(_FAMILIES[kind], _ARCHES[arch], shape, model, rule)
    for arch, names in mfma_isa.arch_mfma_qualifiers.items():
        for name in dict.fromkeys(names):
            model = amd.mfma(arch, name)
            types = model.a_type, model.c_type
            ab, acc = (str(each).replace("torch.float", "f") for each in types)
            # One FMA after another: tests/recorded/record_published.py has the other types.
            rule = _rule(_ARCHES[arch], ab, acc, "") if model.operation_type == "fma" else None
            if rule is not None:
                shape = f"{model.m}x{model.n}x{model.k}"
                yield Instruction("MFMA", _ARCHES[arch], shape, model, rule)


def _rule(arch: str, ab: str, acc: str, family: str) -> Rule | None:
    """Return the result of tcusim, or None for a refusal."""
    try:
        return rule_for(arch, ab, acc, family)
    except TcusimError:
        return None


def main() -> None:
    """Compare every instruction, and write the counts."""
    if len(sys.argv) != 2:
        sys.exit("name the folder of MMA-Sim's source: compare_mmasim.py PATH")
    sys.path.insert(0, sys.argv[1])
    rows = []
    for one in instructions():
        begun = time.monotonic()
        rows.append(compared(one))
        print(f"{time.monotonic() - begun:.0f} s: {rows[-1]}", flush=True)
    about = "Outputs that differ, bit for bit; by_its_own_code: how many MMA-Sim itself computed."
    text = json.dumps({"about": about, "commit": COMMIT, "rows": rows}, indent=1)
    _DATA.write_text(text + "\n", encoding="utf-8")


def compared(one: Instruction) -> dict[str, Any]:
    """Return the number of different outputs, by regime, with an example."""
    rng = np.random.default_rng(list(f"{one.arch} {one.shape} {one.rule.ab}".encode()))
    m, n, k = one.tile
    chain = not isinstance(one.rule.how, Fused)
    share = (CHECKED if chain else OUTPUTS) // len(_REGIMES) // (m * n) + 1
    by_regime: dict[str, int] = {}
    example = ""
    outputs = checked = not_explained = 0
    for regime in _REGIMES:
        a, b, c = operands(rng, one.rule, regime, share, (m, n, k))
        few = share if chain else CHECKED // len(_REGIMES) // (m * n) + 1
        tiles = zip(a[:few], b[:few], c[:few], strict=True)
        own = np.stack([by_model(one, *tile) for tile in tiles])
        theirs = own
        if not chain:
            theirs = by_arrays(one, a, b, c)
            wrong = differing(own, theirs[:few])
            if wrong.any():
                raise SystemExit(f"{one}, {regime}: MMA-Sim is not what is written here")
        acc = format_of(one.rule.acc)
        values = (x.astype(format_of(one.rule.ab).dtype) for x in (a, b))
        ours = mma_values(*values, c.astype(acc.dtype), one.rule)
        wrong = differing(ours, theirs)
        if chain:
            wrong &= ~(np.isnan(ours) & np.isnan(theirs))
        outputs, checked = outputs + wrong.size, checked + own.size
        if wrong.any() and not chain:
            not_explained += int(differing(ours, by_arrays(one, a, b, c, edges=True)).sum())
        if wrong.any():
            by_regime[regime] = int(wrong.sum())
            tile, i, j = map(int, np.argwhere(wrong)[0])
            if not example:
                found = tuple(f"{x[tile, i, j]:.9g}" for x in (ours, theirs))
                example = f"{found[0]} here, {found[1]} by MMA-Sim"
    return {
        "arch": one.arch,
        "family": one.family,
        "shape": one.shape,
        "ab": one.rule.ab,
        "acc": one.rule.acc,
        "outputs": outputs,
        "by_its_own_code": checked,
        "differ": sum(by_regime.values()),
        "not_explained": not_explained,
        "where": by_regime,
        "example": example,
    }


def operands(
    rng: np.random.Generator, rule: Rule, regime: str, tiles: int, tile: tuple[int, int, int]
) -> tuple[Float64, Float64, Float64]:
    """Return operands of a kind, as float64 values of the rule's types."""
    m, n, k = tile
    ab, acc = format_of(rule.ab), format_of(rule.acc)
    shapes = (tiles, m, k), (tiles, k, n), (tiles, m, n)
    a, b, c = (rng.standard_normal(shape) for shape in shapes)
    # So that a product is as likely at one end of the range as at the other.
    span = min((ab.emax - ab.emin) // 2, 60)
    if regime in ("wide", "special"):
        a, b = (x * 2.0 ** rng.integers(-span, span // 2, x.shape) for x in (a, b))
        c *= 2.0 ** rng.integers(-span, span // 2, c.shape)
    elif regime == "cancelling":
        a[..., k // 2 :] = a[..., : k - k // 2]
        b[:, k // 2 :] = -b[:, : k - k // 2]
        c *= 2.0 ** rng.integers(-24, 1, c.shape)
    elif regime == "small":
        low = max(ab.emin, acc.emin) // 2
        a, b = (x * 2.0 ** (low + rng.integers(-16, 4, x.shape)) for x in (a, b))
        c *= 2.0**acc.emin * 2.0 ** rng.integers(-20, 6, c.shape)
    elif regime == "subnormal":
        a *= 2.0 ** (ab.emin - rng.integers(0, 4, a.shape))
        c *= 2.0**acc.emin
    elif regime == "zeros":
        a, b = (np.where(rng.random(x.shape) < 0.6, 0.0, x) for x in (a, b))
        a *= 2.0 ** rng.integers(-span // 2, 1, a.shape)
        b *= 2.0 ** rng.integers(-span // 2, ab.emax - 2, b.shape)
        # Large factors of zeros alone: nothing is added by them.
        b = np.where(np.abs(b) > 1.0, np.where((a == 0.0).all(axis=1)[..., None], b, 0.0), b)
        c = np.where(rng.random(c.shape) < 0.6, rng.choice((-0.0, 0.0), c.shape), c)
    elif regime == "large":
        a, b = (x * 2.0 ** (ab.emax // 2 - rng.integers(0, 4, x.shape)) for x in (a, b))
        c *= 2.0 ** (acc.emax - 3 - rng.integers(0, 8, c.shape))
    if regime == "special":
        for x, share in ((a, 0.02), (b, 0.02), (c, 0.05)):
            x[rng.random(x.shape) < share] = np.inf
            x[rng.random(x.shape) < share / 4] = np.nan
            x *= rng.choice((-1.0, 1.0), x.shape)
    with np.errstate(all="ignore"):
        a, b = (round_values(x, rule.ab).astype(np.float64) for x in (a, b))
        c = round_values(c, rule.acc).astype(np.float64)
    if rule.ab == "e4m3":  # which has no infinity
        a, b = (np.where(np.isinf(x), np.copysign(448.0, x), x) for x in (a, b))
    return a, b, c


def by_model(one: Instruction, a: Float64, b: Float64, c: Float64) -> Values:
    """Return a tile as MMA-Sim computes it."""
    import torch

    kinds = {
        "f64": torch.float64,
        "f32": torch.float32,
        "tf32": torch.float32,
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "e5m2": torch.float8_e5m2,
        "e4m3": torch.float8_e4m3fn,
    }
    types = one.rule.ab, one.rule.ab, one.rule.acc
    tensors = (torch.from_numpy(x).to(kinds[t]) for x, t in zip((a, b, c), types, strict=True))
    found: Values = one.model(*tensors).numpy()
    return found


def by_arrays(
    one: Instruction, a: Float64, b: Float64, c: Float64, *, edges: bool = False
) -> Values:
    """Return all tiles: the step of MMA-Sim, once or, where it splits k, twice.

    edges: with the two things that the models have different: see `_step`.
    """
    k = one.tile[2]
    if not getattr(one.model, "is_split_k", False):
        return _step(one, a, b, c, edges)
    first = _step(one, a[..., : k // 2], b[:, : k // 2], c, edges).astype(np.float64)
    return _step(one, a[..., k // 2 :], b[:, k // 2 :], first, edges)


def _step(one: Instruction, a: Float64, b: Float64, c: Float64, edges: bool) -> Values:
    """Align to the largest exponent; cut; add; round.

    In MMA-Sim a zero has the exponent -126. With `edges`, zeros have no part in the largest
    exponent, which is at least the rule's `exponent_floor`, if it has one.
    """
    bits, kind = one.model.n_accum_fractional_bits, one.model.output_type
    half = kind == "f16"
    with np.errstate(all="ignore"):
        plain = np.einsum("wik,wkj->wij", a, b) + c
        special = ~np.isfinite(plain)
        (sa, ea), (sb, eb) = (_apart(np.where(np.isfinite(x), x, 0.0), one.rule.ab) for x in (a, b))
        sc, ec = _apart(np.where(np.isfinite(c), c, 0.0), one.rule.acc)
        products = [ea[:, :, t, None] + eb[:, None, t, :] for t in range(a.shape[2])]
        largest = _largest(one, products, (sa, sb, sc), ec) if edges else ec.copy()
        for each in products if not edges else ():
            np.maximum(largest, each, out=largest)
        total = np.trunc(np.ldexp(sc, bits + ec - largest))
        for t, exponent in enumerate(products):
            term = sa[:, :, t, None] * sb[:, None, t, :]
            total += np.trunc(np.ldexp(term, bits + exponent - largest))
        significand, exponent = _apart(np.ldexp(total, largest - bits), "f16" if half else "f32")
        kept = 10 if half else 13 if kind == "f32_e8m13" else 23
        significand = (np.rint if half else np.trunc)(significand * 2.0**kept) * 2.0**-kept
        dtype = np.float16 if half else np.float32
        found: Values = np.ldexp(significand, exponent).astype(dtype) + dtype(0)
        found[special] = plain[special].astype(dtype)
    unsigned = found.view(f"u{found.itemsize}")
    unsigned[np.isnan(found)] = 0x7FFF if half else 0x7FFFFFFF
    return found


def _largest(
    one: Instruction,
    products: list[NDArray[np.int32]],
    significands: tuple[Float64, Float64, Float64],
    exponents: NDArray[np.int32],
) -> NDArray[np.int32]:
    """Return the largest exponent as the rule here has it; exponents: those of c."""
    assert isinstance(one.rule.how, Fused)
    sa, sb, sc = significands
    never = np.int32(-2000)
    largest = np.where(sc == 0.0, never, exponents)
    for t, each in enumerate(products):
        term = (sa[:, :, t, None] != 0.0) & (sb[:, None, t, :] != 0.0)
        largest = np.maximum(largest, np.where(term, each, never))
    floor = one.rule.how.exponent_floor
    largest = largest if floor is None else np.maximum(largest, floor)
    return np.where(largest == never, 0, largest).astype(np.int32)


def _apart(x: Float64, dtype: str) -> tuple[Float64, NDArray[np.int32]]:
    """Return significands within 1 and 2, less of subnormals, and exponents."""
    significand, exponent = np.frexp(x)
    significand, exponent = 2.0 * significand, exponent - 1
    below = np.minimum(exponent - _LEAST[dtype], 0)
    significand, exponent = np.ldexp(significand, below), exponent - below
    exponent[significand == 0.0] = -126
    return significand, exponent


def differing(x: Values, y: Values) -> NDArray[np.bool_]:
    """Return the positions of different bits."""
    unsigned = f"u{x.itemsize}"
    return np.ascontiguousarray(x).view(unsigned) != np.ascontiguousarray(y).view(unsigned)


if __name__ == "__main__":
    main()
