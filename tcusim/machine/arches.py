"""The architectures that come with tcusim: which arithmetic each generation has, with its source.

Keys such as [KHATTAK25] are those of docs/references.md:

- [KHATTAK25]: Khattak and Mikaitis, arXiv 2512.07004, and their recorded vectors
  (github.com/north-numerical-computing/MATLAB-tensor-core).
- [MMASIM25]: MMA-Sim, arXiv 2511.10909.
- [FASI21]: Fasi, Higham, Mikaitis and Pranesh, PeerJ Computer Science 7:e330, 2021.
- [PTX]: NVIDIA, Parallel Thread Execution ISA.
- [CPG]: NVIDIA, CUDA C++ Programming Guide, technical specifications by compute capability.
- [GPUS]: NVIDIA, CUDA GPU compute capability.
- [SASS]: machine code that NVCC 13.0 makes of one instruction, see docs/numerics.md.
- [H200]: what one NVIDIA H200 returned, see tests/recorded/PROVENANCE.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tcusim.machine.rules import Arch, Exact, Fused, Integer, Numerics, Refusal, Rule, Sequential

__all__ = ["BUILT_IN"]

# GPUs by compute capability [GPUS], as people call them.
_GPUS: Final = {
    70: "v100, titan v",
    75: "t4, rtx 2060, rtx 2070, rtx 2080, titan rtx",
    80: "a100, a30, a800",
    86: "a2, a10, a10g, a16, a40, rtx a4000, rtx a5000, rtx a6000, "
    "rtx 3050, rtx 3060, rtx 3070, rtx 3080, rtx 3090",
    87: "orin",
    89: "l40s, l4, l40, rtx 1000 ada, rtx 4050, rtx 4060, rtx 4070, rtx 4080, rtx 4090",
    90: "h100, h200, h20, h800, gh200",
    100: "b200, gb200",
    103: "b300, gb300",
    110: "thor",
    120: "rtx 5050, rtx 5060, rtx 5070, rtx 5080, rtx 5090",
    121: "gb10",
}


def _gpus(*sm: int) -> tuple[str, ...]:
    """Return the GPUs of these compute capabilities."""
    return tuple(name for one in sm for name in _GPUS[one].split(", "))


_RECORDED: Final = "recorded bits"
_PUBLISHED: Final = "published model, no recorded bits"


# The least exponent that terms are aligned to, for fp32 and for fp16 results. [H200] decides
# Hopper's: every other floor is wrong there. The rest: [KHATTAK25].
_Floors = tuple[int | None, int | None]
_VOLTA_FLOORS: Final[_Floors] = (None, -19)
_AMPERE_FLOORS: Final[_Floors] = (-132, -20)
_HOPPER_FLOORS: Final[_Floors] = (-133, -21)

_FP8: Final = ("e4m3", "e5m2")


def _half_rows(
    length: int,
    fraction_bits: int,
    floors: _Floors,
    source: str,
    evidence: str = _RECORDED,
) -> tuple[Rule, ...]:
    """Return the rows for fp16 operands: the fp32 result is truncated, the fp16 one rounded."""
    single = Fused(length, fraction_bits, output="rz", exponent_floor=floors[0])
    half = Fused(length, fraction_bits, output="rne", exponent_floor=floors[1])
    return (
        Rule("f16", "f32", single, source, evidence),
        Rule("f16", "f16", half, source, evidence),
    )


def _fused_row(
    types: tuple[str, str, str], how: Fused, source: str, evidence: str = _RECORDED
) -> Rule:
    """Return a row for operands, accumulator and family of instructions."""
    ab, acc, family = types
    return Rule(ab, acc, how, source, evidence, family)


def _wide_rows(
    length: int, fraction_bits: int, floor: int | None, source: str, evidence: str = _RECORDED
) -> tuple[Rule, ...]:
    """Return the row for bf16, and that for tf32 where all instructions fuse four of its products.

    [SASS]: wmma m16n16k8 in tf32 is four instructions m16n8k4, on every generation.
    """
    how = Fused(length, fraction_bits, output="rz", exponent_floor=floor)
    return (
        Rule("bf16", "f32", how, source, evidence),
        Rule("tf32", "f32", replace(how, length=4), source, evidence),
    )


# [PTX] wmma/mma: integers are exact and wrap unless .satfinite; s8 recorded in [H200].
_INTEGER_ROWS: Final = (
    Rule("s8", "s32", Integer(), "[PTX], [H200]", "exact by definition; recorded bits on an H200"),
    Rule("u8", "s32", Integer(), "[PTX]", "exact by definition"),
)

# [PTX] wmma m8n8k4 .f64 has .rn; [MMASIM25]: sequential; recorded in [H200].
_DOUBLE_ROW: Final = Rule(
    "f64", "f64", Sequential(), "[MMASIM25], [H200]", "recorded bits on an H200; else published"
)


def _refuse(ab: str, why: str, acc: str = "") -> Refusal:
    """Return a refusal; without acc it holds for every accumulator."""
    return Refusal(ab, acc, why)


def _before_ada(generation: str) -> tuple[Refusal, ...]:
    """Return the refusals of 8-bit floats for a generation that has none."""
    why = f"{generation} tensor cores have no 8-bit floats (sm_89 is the first); use arch='ada'"
    return tuple(_refuse(ab, why) for ab in _FP8)


def _before_ampere(generation: str) -> tuple[Refusal, ...]:
    """Return the refusals of types that came with sm_80."""
    why = f"{generation} tensor cores have no {{}} (sm_80 is the first); use arch='ampere'"
    return tuple(_refuse(ab, why.format(ab)) for ab in ("bf16", "tf32", "f64"))


def _emulated_fp8_rows(single: tuple[str, str]) -> tuple[Rule, ...]:
    """Return the rows of mma.sync with 8-bit floats where fp16 tensor cores do its work.

    [SASS]: two chained HMMA of fp16, the first from zero, then an addition of c (FADD, HADD2).
    single: source and evidence of the fp32 result.
    """
    to_single = Fused(
        16, 25, "rz", c_joins="after", exponent_floor=_HOPPER_FLOORS[0], register_halves=True
    )
    to_half = Fused(
        16, 25, "rne", c_joins="after", exponent_floor=_HOPPER_FLOORS[1], register_halves=True
    )
    rows = []
    for ab in _FP8:
        rows.append(_fused_row((ab, "f32", "mma.sync"), to_single, *single))
        # H100, H200 and B200: every row of all six sets, and no other order of k fits.
        source = "[KHATTAK25] H100, H200, B200, [SASS]"
        rows.append(_fused_row((ab, "f16", "mma.sync"), to_half, source))
    return tuple(rows)


def _fp8_rows(how: Fused, family: str, source: str, evidence: str) -> tuple[Rule, ...]:
    """Return the rows of 8-bit floats with fp32 and fp16 results."""
    half = replace(how, output="rne", output_fraction_bits=None)
    return tuple(
        _fused_row((ab, acc, family), fused, source, evidence)
        for ab in _FP8
        for acc, fused in (("f32", how), ("f16", half))
    )


# --- The generations ---------------------------------------------------------------------------

_VOLTA: Final = Arch(
    name="volta",
    title="NVIDIA Volta",
    sm=(70,),
    aliases=_gpus(70),
    recorded=("v100",),
    # [KHATTAK25] V100; 4 terms and no extra alignment bits agree with [FASI21].
    rows=_half_rows(4, 23, _VOLTA_FLOORS, "[KHATTAK25] V100"),
    source="[KHATTAK25], [MMASIM25], [FASI21]",
    refusals=(
        *_before_ampere("Volta"),
        *_before_ada("Volta"),
        _refuse("s8", "sm_70 tensor cores have no integers (sm_72 is the first); use 'turing'"),
        _refuse("u8", "sm_70 tensor cores have no integers (sm_72 is the first); use 'turing'"),
    ),
    # [CPG], technical specifications: the most shared memory of a block, here and below.
    shared_kb=96,
)

_TURING: Final = Arch(
    name="turing",
    title="NVIDIA Turing",
    sm=(75,),
    aliases=_gpus(75),
    # [MMASIM25] nv_ptx.py: m16n8k8 is one step of 8; [FASI21]: the T4 has at least one extra bit.
    rows=(*_half_rows(8, 24, (None, None), "[MMASIM25], [FASI21]", _PUBLISHED), *_INTEGER_ROWS),
    source="[MMASIM25], [FASI21]",
    refusals=(*_before_ampere("Turing"), *_before_ada("Turing")),
    shared_kb=64,
)

_AMPERE: Final = Arch(
    name="ampere",
    title="NVIDIA Ampere",
    sm=(80, 86, 87),
    aliases=_gpus(80, 86, 87),
    recorded=("a100", "a2"),
    rows=(
        # [KHATTAK25] A100 and A2: k = 16 is two steps of 8.
        *_half_rows(8, 24, _AMPERE_FLOORS, "[KHATTAK25] A100, A2"),
        *_wide_rows(8, 24, _AMPERE_FLOORS[0], "[KHATTAK25] A100, A2"),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[KHATTAK25], [MMASIM25]",
    refusals=_before_ada("Ampere"),
    # [CPG]: 163 on sm_80 and sm_87, 99 on sm_86. One plan serves all, so that it has the same bits.
    shared_kb=99,
)

_ADA: Final = Arch(
    name="ada",
    title="NVIDIA Ada Lovelace",
    sm=(89,),
    aliases=_gpus(89),
    recorded=("rtx 1000 ada", "l40s"),
    rows=(
        # [KHATTAK25] RTX 1000 Ada and L40S: as Ampere.
        *_half_rows(8, 24, _AMPERE_FLOORS, "[KHATTAK25] RTX 1000 Ada, L40S"),
        *_wide_rows(8, 24, _AMPERE_FLOORS[0], "[KHATTAK25] RTX 1000 Ada, L40S"),
        # [KHATTAK25]: k = 32 in fp8 is two steps of 16; an fp32 result has 13 fraction bits.
        *(
            row
            for ab in _FP8
            for row in (
                _fused_row(
                    (ab, "f32", ""),
                    Fused(16, 13, output="rz", output_fraction_bits=13),
                    "[KHATTAK25] RTX 1000 Ada, L40S",
                ),
                _fused_row((ab, "f16", ""), Fused(16, 13, "rne"), "[KHATTAK25] RTX 1000 Ada"),
            )
        ),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[KHATTAK25], [MMASIM25]",
    shared_kb=99,
)

_TF32_OF_8: Final = Fused(8, 25, output="rz", exponent_floor=_HOPPER_FLOORS[0])

_HOPPER: Final = Arch(
    name="hopper",
    title="NVIDIA Hopper",
    sm=(90,),
    aliases=_gpus(90),
    recorded=("h100", "h200"),
    rows=(
        # [H200] and [KHATTAK25]: k = 16 is one step; the tile shape does not change the bits.
        # [H200]: the floors of E are those in the code of [KHATTAK25]. One more or less, none, or
        # the -126 of [MMASIM25] gives other bits than the GPU.
        *_half_rows(16, 25, _HOPPER_FLOORS, "[H200], [KHATTAK25] H100, H200"),
        # [H200]: wmma m16n16k8 in tf32 is two steps of 4; one of 8 is wrong in a fifth of outputs.
        *_wide_rows(16, 25, _HOPPER_FLOORS[0], "[H200], [KHATTAK25] H100, H200"),
        # [H200]: mma.sync m16n8k8 and wgmma m64n8k8 are one step of 8, unlike wmma.
        _fused_row(("tf32", "f32", "mma.sync"), _TF32_OF_8, "[H200], [MMASIM25]"),
        _fused_row(("tf32", "f32", "wgmma"), _TF32_OF_8, "[H200], [MMASIM25]"),
        *_emulated_fp8_rows(("[H200], [SASS]", _RECORDED)),
        # [KHATTAK25] Validate_TC_models.m: the fp32 results of H100 and H200 are those of wgmma.
        *_fp8_rows(
            Fused(32, 13, output="rz", output_fraction_bits=13),
            "wgmma",
            "[H200], [KHATTAK25] H100, H200, [MMASIM25]",
            _RECORDED,
        ),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[H200], [KHATTAK25], [MMASIM25]",
    shared_kb=227,
)

_UNDECIDED: Final = "recorded bits, which do not decide F"

_BLACKWELL: Final = Arch(
    name="blackwell",
    title="NVIDIA Blackwell",
    sm=(100, 103, 110),
    aliases=_gpus(100, 103, 110),
    recorded=("b200",),
    rows=(
        *_half_rows(16, 25, _HOPPER_FLOORS, "[KHATTAK25] B200"),
        # [KHATTAK25] B200 has k = 4 in tf32, so that it says nothing of instructions with k = 8.
        *_wide_rows(16, 25, _HOPPER_FLOORS[0], "[KHATTAK25] B200"),
        *(
            _fused_row(("tf32", "f32", family), _TF32_OF_8, "[MMASIM25], [KHATTAK25]", _PUBLISHED)
            for family in ("mma.sync", "tcgen05")
        ),
        *_emulated_fp8_rows(("[KHATTAK25] B200, [SASS]", _UNDECIDED)),
        *_fp8_rows(Fused(32, 25), "tcgen05", "[MMASIM25]", _PUBLISHED),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[KHATTAK25], [MMASIM25]",
    # [CPG]: 227 on all three.
    shared_kb=227,
)

_BLACKWELL_RTX: Final = Arch(
    name="blackwell_rtx",
    title="NVIDIA RTX Blackwell",
    sm=(120, 121),
    aliases=_gpus(120, 121),
    rows=(
        *_half_rows(16, 25, _HOPPER_FLOORS, "[MMASIM25]", _PUBLISHED),
        *_wide_rows(16, 25, _HOPPER_FLOORS[0], "[MMASIM25]", _PUBLISHED),
        _fused_row(("tf32", "f32", "mma.sync"), _TF32_OF_8, "[MMASIM25]", _PUBLISHED),
        # [SASS]: one QMMA instruction, which [MMASIM25] has with c among the terms.
        *_fp8_rows(Fused(32, 25), "", "[MMASIM25], [SASS]", _PUBLISHED),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[MMASIM25]",
    shared_kb=99,
)


# --- Reference arithmetic ----------------------------------------------------------------------


def _reference_rows(how: Numerics) -> tuple[Rule, ...]:
    """Return a reference arithmetic's rows for every pair that makes sense."""
    source = "IEEE 754-2019"
    evidence = "defined, not measured"
    narrow = ("f16", "bf16", "tf32", "f32", "e4m3", "e5m2")
    pairs = [(ab, acc) for ab in narrow for acc in ("f32", "f64")]
    pairs += [(ab, "f16") for ab in ("f16", "e4m3", "e5m2")]
    pairs += [("f64", "f64")]
    rows = tuple(Rule(ab, acc, how, source, evidence) for ab, acc in pairs)
    integers = tuple(Rule(ab, "s32", Integer(), source, evidence) for ab in ("s8", "u8"))
    return rows + integers


_IEEE: Final = Arch(
    name="ieee",
    title="IEEE fused multiply-adds",
    sm=(),
    aliases=(),
    rows=_reference_rows(Sequential()),
    source="IEEE 754-2019",
)

_EXACT: Final = Arch(
    name="exact",
    title="exact sum, one rounding",
    sm=(),
    aliases=(),
    rows=_reference_rows(Exact()),
    source="IEEE 754-2019",
)

BUILT_IN: Final = (
    _VOLTA,
    _TURING,
    _AMPERE,
    _ADA,
    _HOPPER,
    _BLACKWELL,
    _BLACKWELL_RTX,
    _IEEE,
    _EXACT,
)
