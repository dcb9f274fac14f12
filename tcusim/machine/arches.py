"""The units that come with tcusim: which arithmetic each generation has, with its source.

Keys such as [KHATTAK25] are those of docs/references.md:

- [KHATTAK25]: Khattak and Mikaitis, arXiv 2512.07004, and their recorded vectors
  (github.com/north-numerical-computing/MATLAB-tensor-core).
- [MMASIM25]: MMA-Sim, arXiv 2511.10909.
- [FASI21]: Fasi, Higham, Mikaitis and Pranesh, PeerJ Computer Science 7:e330, 2021.
- [PTX]: NVIDIA, Parallel Thread Execution ISA.
- [CPG]: NVIDIA, CUDA C++ Programming Guide, technical specifications by compute capability.
- [H200]: what one NVIDIA H200 returned, see tests/recorded/PROVENANCE.md.
"""

from __future__ import annotations

from typing import Final

from tcusim.machine.rules import Exact, Fused, Integer, Numerics, Refusal, Rule, Sequential, Unit

__all__ = ["BUILT_IN"]

_RECORDED: Final = "recorded bits"
_PUBLISHED: Final = "published model, no recorded bits"


# The least exponent that terms are aligned to, for fp32 and for fp16 results. [H200] decides
# Hopper's: every other floor is wrong there. The rest: [KHATTAK25].
_Floors = tuple[int | None, int | None]
_VOLTA_FLOORS: Final[_Floors] = (None, -19)
_AMPERE_FLOORS: Final[_Floors] = (-132, -20)
_HOPPER_FLOORS: Final[_Floors] = (-133, -21)


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
    ab: str, length: int, fraction_bits: int, floors: _Floors, source: str, family: str = ""
) -> Rule:
    """Return a row with a truncated fp32 result, compared with recorded bits."""
    how = Fused(length, fraction_bits, output="rz", exponent_floor=floors[0])
    return Rule(ab, "f32", how, source, _RECORDED, family=family)


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
    return (_refuse("e4m3", why), _refuse("e5m2", why))


def _before_ampere(generation: str) -> tuple[Refusal, ...]:
    """Return the refusals of types that came with sm_80."""
    why = f"{generation} tensor cores have no {{}} (sm_80 is the first); use arch='ampere'"
    return tuple(_refuse(ab, why.format(ab)) for ab in ("bf16", "tf32", "f64"))


_FP8_HALF_UNKNOWN: Final = (
    "recorded bits of fp8 with an fp16 result match no published model; "
    "use acc='f32', or arch='ada'"
)
_FP8_HALF_REFUSED: Final = (
    _refuse("e4m3", _FP8_HALF_UNKNOWN, "f16"),
    _refuse("e5m2", _FP8_HALF_UNKNOWN, "f16"),
)

_VOLTA: Final = Unit(
    name="volta",
    title="NVIDIA Volta",
    sm=(70,),
    aliases=("v100",),
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

_TURING: Final = Unit(
    name="turing",
    title="NVIDIA Turing",
    sm=(75,),
    aliases=("t4",),
    # [MMASIM25] nv_ptx.py: m16n8k8 is one step of 8; [FASI21]: the T4 has at least one extra bit.
    rows=(*_half_rows(8, 24, (None, None), "[MMASIM25], [FASI21]", _PUBLISHED), *_INTEGER_ROWS),
    source="[MMASIM25], [FASI21]",
    refusals=(*_before_ampere("Turing"), *_before_ada("Turing")),
    shared_kb=64,
)

_AMPERE: Final = Unit(
    name="ampere",
    title="NVIDIA Ampere",
    sm=(80, 86),
    aliases=("a100", "a2"),
    rows=(
        # [KHATTAK25] A100 and A2: k = 16 is two steps of 8.
        *_half_rows(8, 24, _AMPERE_FLOORS, "[KHATTAK25] A100, A2"),
        _fused_row("bf16", 8, 24, _AMPERE_FLOORS, "[KHATTAK25] A100, A2"),
        _fused_row("tf32", 4, 24, _AMPERE_FLOORS, "[KHATTAK25] A100, A2"),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[KHATTAK25], [MMASIM25]",
    refusals=_before_ada("Ampere"),
    # [CPG]: 163 on sm_80, 99 on sm_86. One plan serves both, so that it has the same bits on both.
    shared_kb=99,
)


def _ada_fp8_rows(ab: str) -> tuple[Rule, ...]:
    """Return Ada's rows for an 8-bit float: an fp32 result has 13 fraction bits."""
    single = Fused(16, 13, output="rz", output_fraction_bits=13)
    half = Fused(16, 13, output="rne")
    return (
        Rule(ab, "f32", single, "[KHATTAK25] RTX 1000 Ada, L40S", _RECORDED),
        Rule(ab, "f16", half, "[KHATTAK25] RTX 1000 Ada", _RECORDED),
    )


_ADA: Final = Unit(
    name="ada",
    title="NVIDIA Ada Lovelace",
    sm=(89,),
    aliases=("l40s",),
    rows=(
        # [KHATTAK25] RTX 1000 Ada and L40S: as Ampere, and k = 32 in fp8 is two steps of 16.
        *_half_rows(8, 24, _AMPERE_FLOORS, "[KHATTAK25] RTX 1000 Ada, L40S"),
        _fused_row("bf16", 8, 24, _AMPERE_FLOORS, "[KHATTAK25] RTX 1000 Ada, L40S"),
        _fused_row("tf32", 4, 24, _AMPERE_FLOORS, "[KHATTAK25] RTX 1000 Ada, L40S"),
        *_ada_fp8_rows("e4m3"),
        *_ada_fp8_rows("e5m2"),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[KHATTAK25], [MMASIM25]",
    shared_kb=99,
)


def _hopper_fp8_row(ab: str) -> Rule:
    """Return Hopper's row for an 8-bit float, as far as it was recorded."""
    return Rule(
        ab,
        "f32",
        Fused(32, 13, output="rz", output_fraction_bits=13),
        "[KHATTAK25] H100, H200",
        "the recorded bits of H100 and H200 have k = 32 and c = 0",
        longest_k=32,
        zero_c_only=True,
    )


_HOPPER: Final = Unit(
    name="hopper",
    title="NVIDIA Hopper",
    sm=(90,),
    aliases=("h100", "h200"),
    rows=(
        # [H200] and [KHATTAK25]: k = 16 is one step; the tile shape does not change the bits.
        # [H200]: the floors of E are those in the code of [KHATTAK25]. One more or less, none, or
        # the -126 of [MMASIM25] gives other bits than the unit.
        *_half_rows(16, 25, _HOPPER_FLOORS, "[H200], [KHATTAK25] H100, H200"),
        _fused_row("bf16", 16, 25, _HOPPER_FLOORS, "[H200], [KHATTAK25] H100, H200"),
        # [H200]: wmma m16n16k8 is two steps of 4; one of 8 is wrong in a fifth of the outputs.
        _fused_row("tf32", 4, 25, _HOPPER_FLOORS, "[H200], [KHATTAK25] H100, H200"),
        # [H200]: mma.sync m16n8k8 is one step of 8, unlike wmma.
        _fused_row("tf32", 8, 25, _HOPPER_FLOORS, "[H200], [MMASIM25]", family="mma.sync"),
        _hopper_fp8_row("e4m3"),
        _hopper_fp8_row("e5m2"),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[H200], [KHATTAK25], [MMASIM25]",
    refusals=_FP8_HALF_REFUSED,
    shared_kb=227,
)


def _blackwell_fp8_row(ab: str) -> Rule:
    """Return Blackwell's row for an 8-bit float: c is added to the rounded sum."""
    how = Fused(32, 25, output="rz", c_joins="after")
    return Rule(ab, "f32", how, "[KHATTAK25] B200", _RECORDED)


_BLACKWELL: Final = Unit(
    name="blackwell",
    title="NVIDIA Blackwell",
    sm=(100, 120),
    aliases=("b200",),
    rows=(
        # [KHATTAK25] B200.
        *_half_rows(16, 25, _HOPPER_FLOORS, "[KHATTAK25] B200"),
        _fused_row("bf16", 16, 25, _HOPPER_FLOORS, "[KHATTAK25] B200"),
        _fused_row("tf32", 4, 25, _HOPPER_FLOORS, "[KHATTAK25] B200"),
        _blackwell_fp8_row("e4m3"),
        _blackwell_fp8_row("e5m2"),
        _DOUBLE_ROW,
        *_INTEGER_ROWS,
    ),
    source="[KHATTAK25], [MMASIM25]",
    refusals=_FP8_HALF_REFUSED,
    # [CPG]: 227 on sm_100, 99 on sm_120. One plan serves both.
    shared_kb=99,
)


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


_IEEE: Final = Unit(
    name="ieee",
    title="IEEE fused multiply-adds",
    sm=(),
    aliases=(),
    rows=_reference_rows(Sequential()),
    source="IEEE 754-2019",
)

_EXACT: Final = Unit(
    name="exact",
    title="exact sum, one rounding",
    sm=(),
    aliases=(),
    rows=_reference_rows(Exact()),
    source="IEEE 754-2019",
)

BUILT_IN: Final = (_VOLTA, _TURING, _AMPERE, _ADA, _HOPPER, _BLACKWELL, _IEEE, _EXACT)
