"""Record outputs of the models and the RTL of public units: unit_models.npz.

    python tests/recorded/record_units.py FOLDER [COUNT [NAME ...]]

FOLDER has checkouts of the versions in PROVENANCE.md: redmule, cvfpu, common_cells, Bochs, amx,
vortex, HardFloat, libgemmini, riscv-isa-sim and tvm-vta. Needs verilator, g++,
aarch64-linux-gnu-gcc, and qemu-aarch64 of QEMU 10. With COUNT, outputs are compared, those of the
units named, and not recorded; their operands have infinities and NaN among them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tcusim.machine import Values

sys.path.insert(0, str(Path(__file__).parents[1] / "shared"))
from unit_models import BITS, UNITS, by_tcusim, nan_known, values_of

ORACLES = Path(__file__).parent / "oracles"
QEMU = ["qemu-aarch64", "-cpu", "max,sme512=on"]
# Outputs that are compared at a time.
SLICE = 100_000


def call(*words: Any, at: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=at, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


def verilated(name: str, made: Path, sources: list[Path], *flags: Any, clocks: int = 0) -> Any:
    """Compile the top of a unit's RTL, and return its command."""
    top, _, acc = name.split("-")
    types = f"-DK={UNITS[name]} -DAT=uint16_t -DCT=uint{8 * BITS[acc]().itemsize}_t"
    call(
        *("verilator", "--cc", "--exe", "--build", "-O3", "-Wno-fatal", "-Wno-lint"),
        *("-Wno-UNOPTFLAT", "--top-module", "top", "--Mdir", top, *flags),
        *("-CFLAGS", f"-O2 {types}" + f" -DCLOCKS={clocks}" * bool(clocks)),
        *(*sources, ORACLES / f"{top}.sv", ORACLES / "drive.cpp"),
        at=made,
    )
    return [made / top / "Vtop"]


def of_pulp(name: str, made: Path, folder: Path) -> Any:
    """Return the command of RTL that uses PULP's floating-point unit."""
    fpu, cells = folder / "cvfpu/src", folder / "common_cells"
    own = {
        "redmule": [folder / "redmule/rtl/redmule_fma.sv"],
        "exsdotp": [fpu / "lfsr_sr.sv", fpu / "fpnew_sdotp_multi.sv"],
    }
    common = [fpu / "fpnew_pkg.sv", cells / "src/cf_math_pkg.sv", cells / "src/lzc.sv"]
    common += [fpu / f"fpnew_{part}.sv" for part in ("classifier", "rounding")]
    return verilated(name, made, common + own[name.split("-")[0]], f"-I{cells / 'include'}")


def of_vortex(name: str, made: Path, folder: Path) -> Any:
    rtl, configure = folder / "vortex/hw/rtl", folder / "vortex/ci/gen_config.py"
    for part, *more in (("VX_config",), ("VX_types", "--resolved")):
        words = ["--config", rtl.parent / f"{part}.toml", "--output", f"{part}.vh", *more]
        call(sys.executable, configure, *words, "--format", "verilog", at=made)
    flags = ["-DNDEBUG", "-DEXT_TCU_ENABLE", f"-I{made}"]
    flags += [f"-I{rtl / part}" for part in ("", "libs", "tcu", "tcu/tfr")]
    sources = [rtl / "VX_gpu_pkg.sv", rtl / "tcu/VX_tcu_pkg.sv"]
    return verilated(name, made, sources, *flags, clocks=5)


def of_hardfloat(name: str, made: Path, folder: Path) -> Any:
    source = folder / "HardFloat/source"
    parts = ["HardFloat_primitives", "HardFloat_rawFN", "isSigNaNRecFN", "fNToRecFN", "recFNToFN"]
    parts += ["RISCV/HardFloat_specialize", "mulAddRecFN"]
    flags = f"-I{source}", f"-I{source / 'RISCV'}"
    return verilated(name, made, [source / f"{part}.v" for part in parts], *flags)


def of_arm(_: str, made: Path, __: Path, words: tuple[str, ...]) -> Any:
    gcc = ["aarch64-linux-gnu-gcc", "-O2", "-static", "-w", "-march=armv8.6-a+sve"]
    call(*gcc, ORACLES / "sme.c", "-o", "sme", at=made)
    return [*QEMU, made / "sme", *words]


def of_apple(name: str, made: Path, folder: Path) -> Any:
    gcc = ["aarch64-linux-gnu-gcc", "-O2", "-static", "-w", "-march=armv8.2-a+fp16"]
    amx = folder / "amx"
    call(*gcc, f"-I{amx}", ORACLES / "apple.c", amx / "fma.c", "-o", "apple", at=made)
    return [*QEMU, made / "apple", "wide" if name.endswith("f32") else "narrow"]


def of_wormhole(_: str, made: Path, __: Path) -> Any:
    call("gcc", "-O2", ORACLES / "wormhole.c", "-o", "wormhole", at=made)
    return [made / "wormhole"]


def of_bochs(_: str, made: Path, folder: Path) -> Any:
    bochs = folder / "Bochs/bochs/cpu"
    softfloat = bochs / "softfloat3e"
    parts = ["f32_mulAdd", "f32_addsub", "f16_to_f32", "8086-SSE/s_propagateNaNF32UI"]
    parts += ["s_normSubnormalF16Sig", "s_shiftRightJam128"]
    sources = [softfloat / f"{part}.cc" for part in parts]
    for some in ("s_*F32*", "s_*Jam*", "s_countLeadingZeros*", "8086-SSE/s_commonNaNToF*UI"):
        sources += softfloat.glob(f"{some}.cc")
    call("cp", ORACLES / "bochs_config.h", made / "config.h", at=made)
    call(
        *("g++", "-O2", "-w", "-fpermissive", f"-I{made}", f"-I{bochs}", f"-I{softfloat}/include"),
        *("-include", "stdint.h", "-include", "config.h", ORACLES / "amx.cc"),
        *(one for one in dict.fromkeys(sources) if one.exists()),
        *("-o", "amx"),
        at=made,
    )
    return [made / "amx", "bf16"]


def of_spike(name: str, made: Path, folder: Path) -> Any:
    """Return the command of a dot product of Spike's, or of the unit that Spike loads."""
    spike = folder / "riscv-isa-sim"
    (made / "config.h").touch()
    paths = ["-I", made, "-I", spike / "riscv", "-I", spike / "softfloat"]
    if name.startswith("gemmini"):
        flags = ["-std=c++17", "-O2", "-w", "-static", "-Wl,--unresolved-symbols=ignore-all"]
        paths += ["-I", spike, "-I", folder / "libgemmini"]
        call("g++", *flags, *paths, ORACLES / "gemmini.cc", "-o", "gemmini", at=made)
        return [made / "gemmini"]
    parts = ["f32_add", "s_addMagsF32", "s_subMagsF32", "s_roundPackToF32", "s_normRoundPackToF32"]
    parts += ["s_propagateNaNF32UI", "softfloat_state", "softfloat_raiseFlags", "s_shiftRightJam32"]
    parts += ["s_countLeadingZeros32", "s_countLeadingZeros8"]
    sources = [spike / "softfloat" / f"{part}.c" for part in parts]
    call("gcc", "-O2", "-w", *paths, "-c", *sources, at=made)
    objects = [f"{part}.o" for part in parts]
    flags = ["-std=c++20", "-O2", "-w", "-fpermissive"]
    call("g++", *flags, *paths, ORACLES / "zvbdot.cc", *objects, "-o", "zvbdot", at=made)
    return [made / "zvbdot", name.split("-")[1]]


def of_vta(_: str, made: Path, folder: Path) -> Any:
    vta = folder / "tvm-vta"
    config = vta / "config"
    words = ["--use-cfg", config / "vta_config.json", "--defs"]
    defined = call(sys.executable, config / "vta_config.py", *words, at=made).split()
    for header in ("tvm/runtime/registry.h", "dmlc/logging.h"):
        (made / header).parent.mkdir(parents=True, exist_ok=True)
        (made / header).touch()
    flags = ["-std=c++17", "-O2", "-w", "-fwrapv", f"-I{made}", f"-I{vta}", f"-I{vta / 'include'}"]
    call("g++", *flags, *defined, ORACLES / "vta.cc", "-o", "vta", at=made)
    return [made / "vta"]


MODELS: dict[str, Callable[..., Any]] = {
    "redmule-f16-f16": of_pulp,
    "exsdotp-f16-f32": of_pulp,
    "amx_sdm-bf16-f32": of_bochs,
    "arm_bfmmla-bf16-f32": partial(of_arm, words=("bf16",)),
    "sme-f16-f32": partial(of_arm, words=("f16",)),
    "apple_amx-f16-f32": of_apple,
    "apple_amx-f16-f16": of_apple,
    "wormhole-s8-s32": of_wormhole,
    "arm_ebf16-bf16-f32": partial(of_arm, words=("bf16", "ebf")),
    "vortex_tfr-f16-f32": of_vortex,
    "gemmini_bf16-bf16-f32": of_hardfloat,
    "gemmini-s8-s32": of_spike,
    "vta-s8-s32": of_vta,
    "zvbdot_256-bf16-f32": of_spike,
    "zvbdot_256-e4m3-f32": of_spike,
    "zvbdot_256-e5m2-f32": of_spike,
}


def drawn(rng: np.random.Generator, fmt: str, shape: tuple[int, ...]) -> Values:
    """Draw elements as bits: numbers of several spreads, and any bits without NaN."""
    kind = np.dtype(BITS[fmt])
    raw = rng.integers(0, 2 ** (8 * kind.itemsize), shape, np.uint64).astype(kind)
    if fmt == "s32":
        near = (2**31 - 1 - rng.integers(0, 40000, shape)) * rng.choice([-1, 1], shape)
        return np.where(rng.random(shape) < 0.5, near.astype(np.int32).view(np.uint32), raw)
    if fmt in ("s8", "e4m3", "e5m2"):
        raw[np.isnan(values_of(raw, fmt))] = 1
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


def with_specials(rng: np.random.Generator, name: str, fmt: str, bits: Values) -> Values:
    """Replace some elements of floats by infinities, NaN and zeros."""
    special = {
        "f16": (0x7C00, 0xFC00, 0x7E01, 0, 0x8000),
        "bf16": (0x7F80, 0xFF80, 0x7FC1, 0, 0x8000),
        "f32": (0x7F800000, 0xFF800000, 0x7FC00001, 0, 0x80000000),
        "e4m3": (0x7F, 0xFF, 0x7F, 0, 0x80),
        "e5m2": (0x7C, 0xFC, 0x7E, 0, 0x80),
    }
    if fmt not in special:
        return bits
    chosen = rng.random(bits.shape) < 0.1 / (bits[0].size or 1)
    found = np.where(chosen, rng.choice(np.array(special[fmt], bits.dtype), bits.shape), bits)
    if name.startswith("vortex"):
        # In the RTL that is compiled, zeros leave a sticky bit; vortexgpgpu/vortex has mended it.
        found[values_of(found, fmt) == 0] = 1
    return found


def outputs(command: list[Any], a: Values, b: Values, c: Values) -> Values:
    """Return a model's output bytes for records of a, b and c."""
    fields = [(key, x.dtype, x.shape[1:]) for key, x in zip("abc", (a, b, c), strict=True)]
    records = np.empty(len(a), np.dtype(fields))
    for key, x in zip("abc", (a, b, c), strict=True):
        records[key] = x
    done = subprocess.run(command, input=records.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, c.dtype)


def compared(name: str, operands: list[Values], d: Values) -> tuple[int, int]:
    """Return the number of outputs that differ, and of those that are NaN."""
    acc = name.split("-")[2]
    found = by_tcusim(name, *operands)
    is_nan = np.isnan(values_of(d, acc)) & np.isnan(values_of(found, acc))
    same = (found == d) if nan_known(name) else (found == d) | is_nan
    return int((~same).sum()), int(is_nan.sum())


def main() -> None:
    """Record the outputs of every model, or compare more of them."""
    folder, count, *named = (*sys.argv[1:], "160") if len(sys.argv) < 3 else sys.argv[1:]
    rng = np.random.default_rng(2026)
    recorded: dict[str, Values] = {}
    with tempfile.TemporaryDirectory() as made:
        for name in named or MODELS:
            there = Path(made) / name
            there.mkdir()
            command = MODELS[name](name, there, Path(folder).resolve())
            _, ab, acc = name.split("-")
            differ = nan = 0
            for begun in range(0, int(count), SLICE):
                size = min(SLICE, int(count) - begun)
                shapes = (ab, (size, UNITS[name])), (ab, (size, UNITS[name])), (acc, (size,))
                operands = [drawn(rng, *one) for one in shapes]
                if len(sys.argv) > 2:
                    pairs = zip((ab, ab, acc), operands, strict=True)
                    operands = [with_specials(rng, name, *one) for one in pairs]
                d = outputs(command, *operands)
                found = compared(name, operands, d)
                differ, nan = differ + found[0], nan + found[1]
                keys = zip("abcd", (*operands, d), strict=True)
                recorded |= {f"{name}-{key}": x for key, x in keys}
            print(f"{name}: {int(count):,} outputs, {differ} differ; {nan:,} are NaN", flush=True)
    if len(sys.argv) < 3:
        np.savez_compressed(ORACLES.with_name("unit_models.npz"), **recorded)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
