"""The architectures of tcusim: the arithmetic of each generation, with its source.

Keys such as [KHATTAK25] are those of docs/references.md:

- [KHATTAK25]: Khattak and Mikaitis, arXiv 2512.07004, and their recorded vectors
  (github.com/north-numerical-computing/MATLAB-tensor-core).
- [MMASIM25]: MMA-Sim, arXiv 2511.10909.
- [ARM]: Arm Architecture Reference Manual, DDI 0487, pseudocode of the instruction.
- [FASI21]: Fasi, Higham, Mikaitis and Pranesh, PeerJ Computer Science 7:e330, 2021.
- [PTX]: NVIDIA, Parallel Thread Execution ISA.
- [SASS]: machine code that NVCC 13.0 makes of one instruction, see docs/numerics.md.
- [H200]: results of one NVIDIA H200, see tests/recorded/PROVENANCE.md.
- [H100]: products of torch.mm and torch._scaled_mm (torch 2.11, CUDA 13.0) on one NVIDIA H100.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypedDict

from tcusim.machine.multiprocessors import rows_of
from tcusim.machine.rules import (
    Arch,
    Exact,
    Fused,
    Integer,
    Late,
    Numerics,
    Refusal,
    Rule,
    Sequential,
)

_RECORDED: Final = "recorded bits"
_PUBLISHED: Final = "published model, no recorded bits"

# Types that not every generation has: the first compute capability that does,
# the refusal, and an architecture in its place.
_SINCE: Final = (
    ("bf16 tf32 f64", 80, "{0} tensor cores have no {1} (sm_80 is the first)", "ampere"),
    ("e4m3 e5m2", 89, "{0} tensor cores have no 8-bit floats (sm_89 is the first)", "ada"),
    ("s8 u8", 72, "sm_70 tensor cores have no integers (sm_72 is the first)", "turing"),
)


class _Names(TypedDict):
    """The fields of an `Arch` that follow from a generation's name and GPUs."""

    title: str
    sm: tuple[int, ...]
    aliases: tuple[str, ...]
    shared_kb: int
    refusals: tuple[Refusal, ...]


def _nvidia(title: str, *sm: int) -> _Names:
    """Return the names and limits of a generation of NVIDIA's, and the types that it lacks.

    sm: its compute capabilities. One plan serves all of them, for the same bits, so that a block
    has the least shared memory of theirs.
    """
    rows = rows_of(sm)
    return {
        "title": f"NVIDIA {title}",
        "sm": sm,
        "aliases": tuple(name for row in rows for name in row.names),
        "shared_kb": min(row.block_bytes for row in rows) // 1024,
        "refusals": tuple(
            refusal
            for types, first_sm, why, instead in _SINCE
            if min(sm) < first_sm
            for refusal in _refused(types, why.format(title, "{0}"), instead)
        ),
    }


def _refused(types: str, why: str, instead: str = "") -> tuple[Refusal, ...]:
    """Return the refusals of operand types, such as ``"f16 bf16"``; why: ``{0}`` is the type."""
    return tuple(Refusal(ab, "", why.format(ab), instead) for ab in types.split())


# The least exponent that terms are aligned to, for fp32 and for fp16 results. [H200] decides
# Hopper's: every other floor is wrong there. The rest: [KHATTAK25].
_Floors = tuple[int | None, int | None]
_VOLTA_FLOORS: Final[_Floors] = (None, -19)
_AMPERE_FLOORS: Final[_Floors] = (-132, -20)
_HOPPER_FLOORS: Final[_Floors] = (-133, -21)


def _half_rows(
    length: int, fraction_bits: int, floors: _Floors, source: str, evidence: str = _RECORDED
) -> tuple[Rule, ...]:
    """Return the rows for fp16 operands: the fp32 result is truncated, the fp16 one rounded."""
    single = Fused(length, fraction_bits, output="rz", exponent_floor=floors[0])
    half = replace(single, output="rne", exponent_floor=floors[1])
    return (
        Rule("f16", "f32", single, source, evidence),
        Rule("f16", "f16", half, source, evidence),
    )


def _rows_since_ampere(
    length: int, fraction_bits: int, floors: _Floors, source: str, evidence: str = _RECORDED
) -> tuple[Rule, ...]:
    """Return the rows for fp16, for bf16, and for tf32 where all instructions fuse four products.

    [SASS]: wmma m16n16k8 in tf32 is four instructions m16n8k4, on every generation.
    """
    how = Fused(length, fraction_bits, output="rz", exponent_floor=floors[0])
    return (
        *_half_rows(length, fraction_bits, floors, source, evidence),
        Rule("bf16", "f32", how, source, evidence),
        Rule("tf32", "f32", replace(how, length=4), source, evidence),
    )


def _tf32_of_8(family: str, source: str, evidence: str) -> Rule:
    """Return the row of a family with tf32 instructions of one step of eight products."""
    how = Fused(8, 25, output="rz", exponent_floor=_HOPPER_FLOORS[0])
    return Rule("tf32", "f32", how, source, evidence, family)


def _fp8_rows(*of_e4m3: Rule) -> tuple[Rule, ...]:
    """Return these rows, and the same for e5m2."""
    return tuple(replace(row, ab=ab) for ab in ("e4m3", "e5m2") for row in of_e4m3)


def _fused_fp8_rows(how: Fused, source: str, evidence: str, family: str) -> tuple[Rule, ...]:
    """Return the rows of 8-bit floats with fp32 results, and with fp16 ones, which are rounded."""
    half = replace(how, output="rne", output_fraction_bits=None)
    return _fp8_rows(
        Rule("e4m3", "f32", how, source, evidence, family),
        Rule("e4m3", "f16", half, source, evidence, family),
    )


def _emulated_fp8_rows(source: str, evidence: str) -> tuple[Rule, ...]:
    """Return the rows of mma.sync with 8-bit floats where fp16 tensor cores do its work.

    [SASS]: two chained HMMA of fp16, the first from zero, then an addition of c (FADD, HADD2).
    source, evidence: of the fp32 result.
    """
    how = Fused(16, 25, c_joins="after", exponent_floor=_HOPPER_FLOORS[0], register_halves=True)
    half = replace(how, output="rne", exponent_floor=_HOPPER_FLOORS[1])
    # H100, H200 and B200: every row of all six sets, and no other order of k fits.
    half_source = "[KHATTAK25] H100, H200, B200, [SASS]"
    return _fp8_rows(
        Rule("e4m3", "f32", how, source, evidence, "mma.sync"),
        Rule("e4m3", "f16", half, half_source, _RECORDED, "mma.sync"),
    )


def _scaled_rows(family: str) -> tuple[Rule, ...]:
    """Return the rows with block scales: mxf8f6f4, and mxf4nvf4.

    [MMASIM25]: mxf8f6f4 aligns products as they are scaled, in steps of 32. mxf4nvf4, in steps of
    64, sums 16 products exactly, multiplies by the significands of the scales, and aligns by the
    scales' exponents. It leaves out the 6-bit types of mxf8f6f4. Their rows here equal those of
    the instruction's other types, because [PTX] defines one instruction for all.
    """
    eight = Fused(32, 25, exponent_floor=_HOPPER_FLOORS[0])
    four = Fused(64, 35, exponent_floor=-126, exponents="scales", presum=16)
    kinds = ("block32.ue8m0", "block16.ue4m3", "block16.ue8m0")
    rows = [("e2m1", four, f"mxf4nvf4.{kind}") for kind in kinds]
    rows += [(ab, eight, "mxf8f6f4.block32.ue8m0") for ab in ("e4m3", "e5m2", "e2m1")]
    six = [(ab, eight, "mxf8f6f4.block32.ue8m0") for ab in ("e2m3", "e3m2")]
    inferred = "[PTX], [MMASIM25] of other types", "inferred from other types of the instruction"
    return tuple(
        Rule(ab, "f32", how, *known, family, scale=scale)
        for several, known in ((rows, ("[MMASIM25]", _PUBLISHED)), (six, inferred))
        for ab, how, scale in several
    )


# [PTX] wmma/mma: integers are exact and wrap unless .satfinite; s8 recorded in [H200].
_INTEGER_ROWS: Final = (
    Rule("s8", "s32", Integer(), "[PTX], [H200]", "exact by definition; recorded bits on an H200"),
    Rule("u8", "s32", Integer(), "[PTX]", "exact by definition"),
)

# [PTX] wmma m8n8k4 .f64 has .rn; [MMASIM25]: sequential; recorded in [H200].
_DOUBLE_EVIDENCE: Final = "recorded bits on an H200; else published"
_DOUBLE_AND_INTEGER_ROWS: Final = (
    Rule("f64", "f64", Sequential(), "[MMASIM25], [H200]", _DOUBLE_EVIDENCE),
    *_INTEGER_ROWS,
)

_GENERATIONS: Final = (
    Arch(
        "volta",
        **_nvidia("Volta", 70),
        # [KHATTAK25] V100; 4 terms and no extra alignment bits agree with [FASI21].
        rows=_half_rows(4, 23, _VOLTA_FLOORS, "[KHATTAK25] V100"),
        source="[KHATTAK25], [MMASIM25], [FASI21]",
        recorded=("v100",),
    ),
    Arch(
        "turing",
        **_nvidia("Turing", 75),
        # [MMASIM25] nv_ptx.py: m16n8k8 is one step of 8; [FASI21]: the T4 has an extra bit or more.
        rows=(*_half_rows(8, 24, (None, None), "[MMASIM25], [FASI21]", _PUBLISHED), *_INTEGER_ROWS),
        source="[MMASIM25], [FASI21]",
    ),
    Arch(
        "ampere",
        **_nvidia("Ampere", 80, 86, 87),
        rows=(
            # [KHATTAK25] A100 and A2: k = 16 is two steps of 8.
            *_rows_since_ampere(8, 24, _AMPERE_FLOORS, "[KHATTAK25] A100, A2"),
            *_DOUBLE_AND_INTEGER_ROWS,
        ),
        source="[KHATTAK25], [MMASIM25]",
        recorded=("a100", "a2"),
        # pytorch/pytorch#53635: 1024.5 is multiplied as 1025 on RTX 3080 and 3090;
        # triton-lang/triton#4574: cvt.rna.tf32 matches torch on an A100.
        tf32="nearest_away",
    ),
    Arch(
        "ada",
        **_nvidia("Ada Lovelace", 89),
        rows=(
            # [KHATTAK25] RTX 1000 Ada and L40S: as Ampere.
            *_rows_since_ampere(8, 24, _AMPERE_FLOORS, "[KHATTAK25] RTX 1000 Ada, L40S"),
            # [KHATTAK25]: k = 32 in fp8 is two steps of 16; an fp32 result has 13 fraction bits.
            *_fp8_rows(
                Rule(
                    "e4m3",
                    "f32",
                    Fused(16, 13, output="rz", output_fraction_bits=13),
                    "[KHATTAK25] RTX 1000 Ada, L40S",
                    _RECORDED,
                ),
                Rule("e4m3", "f16", Fused(16, 13, "rne"), "[KHATTAK25] RTX 1000 Ada", _RECORDED),
            ),
            *_DOUBLE_AND_INTEGER_ROWS,
        ),
        source="[KHATTAK25], [MMASIM25]",
        recorded=("rtx 1000 ada", "l40s"),
        # Nobody reports it: taken from Ampere, whose instructions these are.
        tf32="nearest_away",
    ),
    Arch(
        "hopper",
        **_nvidia("Hopper", 90),
        rows=(
            # [H200] and [KHATTAK25]: k = 16 is one step; the tile shape does not change the bits.
            # [H200]: the floors of E are those in the code of [KHATTAK25]. One more or less, none,
            # or the -126 of [MMASIM25] gives other bits than the GPU.
            *_rows_since_ampere(16, 25, _HOPPER_FLOORS, "[H200], [KHATTAK25] H100, H200"),
            # [H200]: wmma m16n16k8 in tf32 is two steps of 4; one of 8 is wrong in a fifth of all.
            # [H200]: mma.sync m16n8k8 and wgmma m64n8k8 are one step of 8, unlike wmma.
            _tf32_of_8("mma.sync", "[H200], [MMASIM25]", _RECORDED),
            _tf32_of_8("wgmma", "[H200], [MMASIM25]", _RECORDED),
            *_emulated_fp8_rows("[H200], [SASS]", _RECORDED),
            # [KHATTAK25] Validate_TC_models.m: the fp32 results of H100 and H200 are wgmma's.
            *_fused_fp8_rows(
                Fused(32, 13, output="rz", output_fraction_bits=13),
                "[H200], [KHATTAK25] H100, H200, [MMASIM25]",
                _RECORDED,
                "wgmma",
            ),
            *_DOUBLE_AND_INTEGER_ROWS,
        ),
        source="[H200], [KHATTAK25], [MMASIM25]",
        recorded=("h100", "h200"),
        # [H100]: no output of either differs, in tf32 and 8-bit floats, where k is not split.
        library="wgmma",
        # [H100]: no product of 65,536 with the identity differs; ties away in 5, cut in half.
        tf32="nearest_even",
    ),
    Arch(
        "blackwell",
        **_nvidia("Blackwell", 100, 103, 110),
        rows=(
            *_rows_since_ampere(16, 25, _HOPPER_FLOORS, "[KHATTAK25] B200"),
            # [KHATTAK25] B200 has k = 4 in tf32, so it says nothing of instructions with k = 8.
            _tf32_of_8("mma.sync", "[MMASIM25], [KHATTAK25]", _PUBLISHED),
            _tf32_of_8("tcgen05", "[MMASIM25], [KHATTAK25]", _PUBLISHED),
            *_emulated_fp8_rows("[KHATTAK25] B200, [SASS]", "recorded bits, which do not decide F"),
            *_fused_fp8_rows(Fused(32, 25), "[MMASIM25]", _PUBLISHED, "tcgen05"),
            *_DOUBLE_AND_INTEGER_ROWS,
        ),
        source="[KHATTAK25], [MMASIM25]",
        scaled=_scaled_rows("tcgen05"),
        recorded=("b200",),
        # [PTX]: sm_100 has no wgmma, and tcgen05 in its place. The libraries' conversion of
        # operands is unknown: taken from Hopper.
        library="tcgen05",
        tf32="nearest_even",
    ),
    Arch(
        "blackwell_rtx",
        **_nvidia("RTX Blackwell", 120, 121),
        rows=(
            *_rows_since_ampere(16, 25, _HOPPER_FLOORS, "[MMASIM25]", _PUBLISHED),
            _tf32_of_8("mma.sync", "[MMASIM25]", _PUBLISHED),
            # [SASS]: one QMMA instruction, which [MMASIM25] has with c among the terms.
            *_fused_fp8_rows(Fused(32, 25), "[MMASIM25], [SASS]", _PUBLISHED, ""),
            *_DOUBLE_AND_INTEGER_ROWS,
        ),
        source="[MMASIM25]",
        scaled=_scaled_rows("mma.sync"),
        # Nobody reports it: taken from Ampere, whose mma.sync it has.
        library="mma.sync",
        tf32="nearest_away",
    ),
)


# [MMASIM25] and the toolbox of [KHATTAK25] agree: products and sums of CDNA 2 are rounded to
# float32, subnormals flushed. They differ in the sign of a zero c, where [KHATTAK25] is followed.
_CDNA2: Final = Sequential(4, "tree", flush_inputs=True, flush_outputs=True)
# Of CDNA 3 they agree, too: products are cut at 24 bits, c is aligned to their finished sum, where
# a zero c has the exponent -126. A product of 2**128 is infinite. 8-bit floats are summed in two
# halves, even and odd k. Zero products have no part in E, as in [KHATTAK25].
_CDNA3: Final = Fused(
    *(8, 24, "rne"),
    c_joins=Late(31, 24, "rd", floor=-126),
    overflow="product",
    zeros="signed",
)
_CDNA3_FP8: Final = replace(
    _CDNA3, length=16, sums=2, c_joins=Late(31, 24, "rd", floor=-126, reach=25)
)

# A pair of products and their sum, rounded to odd without subnormal numbers.
_BFDOT: Final = Sequential(2, "tree", rounding="odd", flush_inputs=True, flush_outputs=True)
_EMULATED: Final = "documented; equal to QEMU's emulation"

# No bits of these have been compared; pairs without a rule here are rejected.
_BY_DEFINITION: Final = "exact by definition"
_OTHERS: Final = (
    Arch(
        "cdna",
        "AMD CDNA",
        (),
        ("mi100",),
        (
            Rule("f32", "f32", Sequential(), "[MMASIM25]", _PUBLISHED),
            Rule("s8", "s32", Integer(), "AMD CDNA ISA, V_MFMA_I32", _BY_DEFINITION),
        ),
        source="[MMASIM25], [KHATTAK25]",
        refusals=_refused(
            "f16 bf16",
            "its two published models contradict each other: a tree of pairs [MMASIM25], or an "
            "exact sum of four products [KHATTAK25]",
        ),
    ),
    Arch(
        "cdna2",
        "AMD CDNA 2",
        (),
        ("mi210", "mi250", "mi250x"),
        (
            Rule("f32", "f32", Sequential(), "[MMASIM25]", _PUBLISHED),
            Rule("f64", "f64", Sequential(), "[MMASIM25]", _PUBLISHED),
            Rule("s8", "s32", Integer(), "AMD CDNA 2 ISA, V_MFMA_I32", _BY_DEFINITION),
            # bf16 is that of V_MFMA_*BF16_1K; instructions without _1K have groups of two.
            *(
                Rule(ab, "f32", _CDNA2, "[MMASIM25], [KHATTAK25] MI210", _PUBLISHED, nan="quiet")
                for ab in ("f16", "bf16")
            ),
        ),
        source="[MMASIM25], [KHATTAK25]",
    ),
    Arch(
        "cdna3",
        "AMD CDNA 3",
        (),
        ("mi300a", "mi300x", "mi325x"),
        (
            Rule("f32", "f32", Sequential(), "[MMASIM25]", _PUBLISHED),
            Rule("f64", "f64", Sequential(), "[MMASIM25]", _PUBLISHED),
            Rule("s8", "s32", Integer(), "AMD CDNA 3 ISA, V_MFMA_I32", _BY_DEFINITION),
            *(
                Rule(ab, "f32", how, "[MMASIM25], [KHATTAK25] MI300", _PUBLISHED, nan="quiet")
                for ab, how in (
                    ("f16", _CDNA3),
                    ("bf16", _CDNA3),
                    ("tf32", replace(_CDNA3, length=4)),
                    ("e4m3fnuz", _CDNA3_FP8),
                    ("e5m2fnuz", _CDNA3_FP8),
                )
            ),
        ),
        source="[MMASIM25], [KHATTAK25]",
        refusals=_refused(
            "e4m3 e5m2",
            "its 8-bit floats have no negative zero and another bias: e4m3fnuz and e5m2fnuz",
        ),
    ),
    Arch(
        "rdna35",
        "AMD RDNA 3.5",
        (),
        ("gfx1151", "strix halo"),
        (),
        source="ROCm/rocm-systems issue 12056",
        refusals=_refused(
            "f16 bf16",
            "its one public model, of recorded bits (ROCm/rocm-systems issue 12056), negates terms "
            "by flipping their bits, one unit too far from zero, which no part of a rule says",
        ),
    ),
    Arch(
        "amx",
        "Intel AMX",
        (),
        ("sapphire rapids", "emerald rapids"),
        (
            Rule("s8", "s32", Integer(), "Intel SDM, TDPBSSD", _BY_DEFINITION),
            Rule("u8", "s32", Integer(), "Intel SDM, TDPBUUD", _BY_DEFINITION),
        ),
        source="Intel SDM",
        refusals=_refused(
            "bf16",
            "its two documents contradict each other: even and odd k are summed apart, and c is "
            "added last [Intel SDM, TDPBF16PS], or all are added to c in turn [Intel Intrinsics "
            "Guide]",
        ),
    ),
    Arch(
        "sme",
        "Arm SME",
        (),
        ("arm sme",),
        (
            Rule("f32", "f32", Sequential(), "[ARM] FMOPA", "documented, not compared"),
            # FPDotAdd: the exact sum of a pair, rounded, is added to c.
            Rule("f16", "f32", Exact(2, "after"), "[ARM] FMOPA", _EMULATED, nan="quiet"),
            # BFDotAdd: each operation is rounded to odd and flushed. With FPCR.EBF a pair is as in
            # f16: the unit arm_ebf16.
            Rule("bf16", "f32", _BFDOT, "[ARM] BFMOPA, BFMMLA", _EMULATED, nan="quiet"),
            Rule("s8", "s32", Integer(), "[ARM] SMOPA", _BY_DEFINITION),
            Rule("u8", "s32", Integer(), "[ARM] UMOPA", _BY_DEFINITION),
        ),
        source="[ARM]",
    ),
    Arch(
        "zvvm",
        "RISC-V Zvvm",
        (),
        (),
        (),
        source="riscv/integrated-matrix-extension",
        refusals=(
            Refusal(
                "",
                "",
                "each implementation states its own group G, psm and rounding for each type, and "
                "none has been published. A unit's file says yours: see the page Units",
            ),
        ),
    ),
    Arch(
        "tpu",
        "Google TPU",
        (),
        ("tpu v4", "tpu v5e", "tpu v5p"),
        (),
        source="Google Cloud TPU documentation",
        refusals=(
            Refusal(
                "",
                "",
                "Google has published neither the order nor the rounding of an MXU's sums. To try "
                "what you assume of them, write a unit of your own",
            ),
        ),
    ),
)


def _reference(name: str, title: str, how: Numerics) -> Arch:
    """Return a reference arithmetic, with a row for every pair of types that makes sense."""
    source = "IEEE 754-2019"
    narrow = ("f16", "bf16", "tf32", "f32", "e4m3", "e5m2")
    pairs = [(ab, acc) for ab in narrow for acc in ("f32", "f64")]
    pairs += [("f16", "f16"), ("e4m3", "f16"), ("e5m2", "f16"), ("f64", "f64")]
    pairs += [("s8", "s32"), ("u8", "s32")]
    rows = (
        Rule(ab, acc, Integer() if acc == "s32" else how, source, "defined, not measured")
        for ab, acc in pairs
    )
    return Arch(name, title, sm=(), aliases=(), rows=tuple(rows), source=source, any_float=True)


BUILT_IN: Final = (
    *_GENERATIONS,
    *_OTHERS,
    _reference("ieee", "IEEE fused multiply-adds", Sequential()),
    _reference("exact", "exact sum, one rounding", Exact()),
)
