"""Record outputs of the models and the RTL of public units: unit_models.npz.

    python tests/recorded/record_units.py FOLDER [COUNT]

FOLDER has checkouts of redmule, cvfpu (tag pulp-v0.2.3), common_cells (v1.38.0), Bochs and amx
(corsix). Needs verilator, g++, aarch64-linux-gnu-gcc and qemu-aarch64. With COUNT, outputs are
compared and not recorded.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tcusim.machine import Values

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
from unit_models import BITS, UNITS, by_tcusim, values_of

HERE = Path(__file__).parent


def call(*words: Any, at: Path) -> None:
    subprocess.run([str(word) for word in words], cwd=at, check=True, stdout=subprocess.DEVNULL)


def verilated(made: Path, folder: Path, top: str, sources: list[str], flags: str) -> list[str]:
    """Compile a combinational top of RTL, and return its command."""
    fpnew, cells = folder / "cvfpu" / "src", folder / "common_cells"
    common = [fpnew / "fpnew_pkg.sv", cells / "src/cf_math_pkg.sv", cells / "src/lzc.sv"]
    common += [fpnew / f"fpnew_{name}.sv" for name in ("classifier", "rounding")]
    call(
        *("verilator", "--cc", "--exe", "--build", "-O3", "-Wno-fatal", "-Wno-lint"),
        "-Wno-UNOPTFLAT",
        *("--top-module", "top", "--Mdir", top, f"-I{cells / 'include'}", "-CFLAGS", flags),
        *(*common, *(folder / one for one in sources)),
        *(HERE / "oracles" / f"{top}.sv", HERE / "oracles" / "drive.cpp"),
        at=made,
    )
    return [str(made / top / "Vtop")]


def commands(made: Path, folder: Path) -> dict[str, list[str]]:
    """Build every model, and return the command of each."""
    oracles = HERE / "oracles"
    found = {
        "redmule-f16-f16": verilated(
            made, folder, "redmule", ["redmule/rtl/redmule_fma.sv"], "-O2 -DK=4"
        ),
        "exsdotp-f16-f32": verilated(
            made,
            folder,
            "exsdotp",
            ["cvfpu/src/lfsr_sr.sv", "cvfpu/src/fpnew_sdotp_multi.sv"],
            "-O2 -DK=2 -DAT=uint16_t -DCT=uint32_t",
        ),
    }
    arm = ["aarch64-linux-gnu-gcc", "-O2", "-static", "-w"]
    call(*arm, "-march=armv8.6-a+sve", oracles / "sme.c", "-o", "sme", at=made)
    amx = folder / "amx"
    call(
        *(*arm, "-march=armv8.2-a+fp16", f"-I{amx}", oracles / "apple.c", amx / "fma.c"),
        *("-o", "apple"),
        at=made,
    )
    call("gcc", "-O2", oracles / "wormhole.c", "-o", "wormhole", at=made)
    bochs = folder / "Bochs" / "bochs" / "cpu"
    float_files = [
        bochs / "softfloat3e" / f"{name}.cc"
        for name in ("f32_mulAdd", "f32_addsub", "f16_to_f32", "8086-SSE/s_propagateNaNF32UI")
    ]
    softfloat = bochs / "softfloat3e"
    float_files += [
        *softfloat.glob("s_*F32*.cc"),
        *(softfloat / f"s_{name}.cc" for name in ("normSubnormalF16Sig", "shiftRightJam128")),
        *softfloat.glob("s_*Jam*.cc"),
        *softfloat.glob("s_countLeadingZeros*.cc"),
        *softfloat.glob("8086-SSE/s_commonNaNToF*UI.cc"),
    ]
    call("cp", oracles / "bochs_config.h", made / "config.h", at=made)
    call(
        *("g++", "-O2", "-w", "-fpermissive", f"-I{made}", f"-I{bochs}", f"-I{softfloat}/include"),
        *("-include", "stdint.h", "-include", "config.h", oracles / "amx.cc"),
        *(one for one in dict.fromkeys(float_files) if one.exists()),
        *("-o", "amx"),
        at=made,
    )
    qemu = ["qemu-aarch64", "-cpu", "max,sme512=on"]
    return found | {
        "amx_sdm-bf16-f32": [str(made / "amx"), "bf16"],
        "arm_bfmmla-bf16-f32": [*qemu, str(made / "sme"), "bf16"],
        "sme-f16-f32": [*qemu, str(made / "sme"), "f16"],
        "apple_amx-f16-f32": [*qemu, str(made / "apple"), "wide"],
        "apple_amx-f16-f16": [*qemu, str(made / "apple"), "narrow"],
        "wormhole-s8-s32": [str(made / "wormhole")],
    }


def drawn(rng: np.random.Generator, fmt: str, shape: tuple[int, ...]) -> Values:
    """Draw elements as bits: numbers of several spreads, and any bits without NaN."""
    kind = np.dtype(BITS[fmt])
    raw = rng.integers(0, 2 ** (8 * kind.itemsize), shape, np.uint64).astype(kind)
    if fmt == "s32":
        near = (2**31 - 1 - rng.integers(0, 40000, shape)) * rng.choice([-1, 1], shape)
        return np.where(rng.random(shape) < 0.5, near.astype(np.int32).view(np.uint32), raw)
    if fmt == "s8":
        return raw
    each = (shape[0], *[1] * (len(shape) - 1))
    spread = rng.integers(0, 6 if fmt == "f16" else 30, each)
    numbers = rng.standard_normal(shape) * np.exp2(np.rint(rng.uniform(-1, 1, shape) * spread))
    if fmt == "bf16":
        normal: Values = (numbers.astype(np.float32).view(np.uint32) >> 16).astype(kind)
    else:
        normal = numbers.astype("f2" if fmt == "f16" else "f4").view(kind)
    found = np.where(rng.random(each) < 0.4, raw, normal)
    found[np.isnan(values_of(found, fmt))] = 1
    return found


def outputs(command: list[str], a: Values, b: Values, c: Values) -> Values:
    """Return a model's output bytes for records of a, b and c."""
    fields = [(key, x.dtype, x.shape[1:]) for key, x in zip("abc", (a, b, c), strict=True)]
    records = np.empty(len(a), np.dtype(fields))
    for key, x in zip("abc", (a, b, c), strict=True):
        records[key] = x
    done = subprocess.run(command, input=records.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, c.dtype)


if __name__ == "__main__":
    rng = np.random.default_rng(2026)
    recorded: dict[str, Values] = {}
    with tempfile.TemporaryDirectory() as made:
        for name, command in commands(Path(made), Path(sys.argv[1]).resolve()).items():
            _, ab, acc = name.split("-")
            count = int(sys.argv[2]) if len(sys.argv) > 2 else 160
            shape = count, UNITS[name]
            a, b, c = drawn(rng, ab, shape), drawn(rng, ab, shape), drawn(rng, acc, (count,))
            d = outputs(command, a, b, c)
            found = by_tcusim(name, a, b, c)
            is_nan = np.isnan(values_of(d, acc)) & np.isnan(values_of(found, acc))
            differ = (found != d) & ~is_nan
            print(f"{name}: {count:,} outputs, {differ.sum()} differ; {is_nan.sum():,} are NaN")
            recorded |= {f"{name}-{key}": x for key, x in zip("abcd", (a, b, c, d), strict=True)}
    if len(sys.argv) < 3:
        np.savez_compressed(HERE / "unit_models.npz", **recorded)  # type: ignore[arg-type]
