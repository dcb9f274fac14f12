"""How an architecture computes d = a @ b + c: rows of parameters that prove themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tcusim.errors import InputError
from tcusim.machine.formats import Rounding, format_of

__all__ = [
    "FAMILIES",
    "Arch",
    "Exact",
    "Fused",
    "Integer",
    "Numerics",
    "Refusal",
    "Rule",
    "Sequential",
]


# The instructions whose arithmetic may differ on one architecture.
FAMILIES: Final = ("wmma", "mma.sync", "wgmma", "tcgen05")


@dataclass(frozen=True, slots=True)
class Fused:
    """Sum a group of products and c in one step: align, cut, add exactly, round once.

    Every product is exact. All terms are aligned to the largest exponent E among the non-zero
    ones (a product's is the sum of its factors' exponents, not normalised) and cut to
    `fraction_bits` below it; the sum of what is left is exact and is rounded once. A longer k is a
    chain of such steps, k ascending, the d of one being the c of the next.
    Source: [KHATTAK25], [MMASIM25]; recorded from an H200.

    Attributes
    ----------
    length : int
        Products in one step.
    fraction_bits : int
        Bits kept below E, often called F.
    output : {"rz", "rne"}
        Rounding of the sum; beyond the largest finite value both give infinity.
    output_fraction_bits : int or None
        Fraction bits of the result where the type has more of them; None for all of the type's.
    alignment : {"rz", "rne"}
        How a term is cut.
    c_joins : {"sum", "after"}
        Whether c is one of the terms, or is added to the rounded sum by an IEEE addition.
    flush_inputs, flush_outputs : bool
        Whether subnormal operands, or results, count as zero.
    exponent_floor : int or None
        Least value of E; None for no floor.
    register_halves : bool
        Whether 8-bit floats are unpacked to fp16 and summed in two chained steps: first those in
        the lower halves of the registers, which hold four each (k mod 4 is 0 or 1), then the
        others. With ``c_joins="after"``, c is added once, after both.
    """

    length: int
    fraction_bits: int
    output: Rounding = "rz"
    output_fraction_bits: int | None = None
    alignment: Rounding = "rz"
    c_joins: Literal["sum", "after"] = "sum"
    flush_inputs: bool = False
    flush_outputs: bool = False
    exponent_floor: int | None = None
    register_halves: bool = False

    def __post_init__(self) -> None:
        """Prove that the parameters make sense and that float64 holds every sum."""
        self._require_int("length", 1)
        self._require_int("fraction_bits", 1)
        # A term is below 2**(F+2) in units of its last kept bit; binary64 counts to 2**53.
        if (self.length + 1) * 2 ** (self.fraction_bits + 2) > 2**53:
            raise InputError(
                f"Fused of {self.length} terms with {self.fraction_bits} fraction bits needs sums "
                f"beyond 2**53, which the simulator does not hold; use fewer of either"
            )
        for field in ("output", "alignment"):
            self._require_one_of(field, "rz", "rne")
        self._require_one_of("c_joins", "sum", "after")
        for field in ("flush_inputs", "flush_outputs", "register_halves"):
            self._require_one_of(field, False, True)
        if self.output_fraction_bits is not None:
            self._require_int("output_fraction_bits", 1)
        if self.exponent_floor is not None:
            self._require_int("exponent_floor", -500, 500)

    def _require_int(self, field: str, least: int, most: int | None = None) -> None:
        value = getattr(self, field)
        fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if not fits or (most is not None and value > most):
            bounds = f"of at least {least}" if most is None else f"within {least}..{most}"
            raise InputError(f"Fused.{field} must be an integer {bounds}, got {value!r}")

    def _require_one_of(self, field: str, *valid: object) -> None:
        value = getattr(self, field)
        # 0 and 1 equal False and True, and are not meant.
        if not any(value == one and type(value) is type(one) for one in valid):
            raise InputError(
                f"Fused.{field} must be {' or '.join(map(repr, valid))}, got {value!r}"
            )


@dataclass(frozen=True, slots=True)
class Sequential:
    """One IEEE fused multiply-add after another, k ascending, each rounded to nearest even."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The exact value of a @ b + c, rounded once to nearest even."""


@dataclass(frozen=True, slots=True)
class Integer:
    """Exact integers; the s32 accumulator wraps."""


Numerics: TypeAlias = Fused | Sequential | Exact | Integer


@dataclass(frozen=True, slots=True)
class Rule:
    """What one architecture does for one pair of types.

    Attributes
    ----------
    ab, acc : str
        Element type of matrix_a and matrix_b, and of the accumulator.
    how : Fused, Sequential, Exact or Integer
        The arithmetic.
    source : str
        Where the parameters come from.
    evidence : str
        ``"recorded bits"`` if bits of that hardware were compared, or what else is known.
    family : str
        The instructions that do this, ``"wmma"``, ``"mma.sync"``, ``"wgmma"`` or ``"tcgen05"``,
        where they differ from the others; ``""`` is every instruction that has no row of its own.
    """

    ab: str
    acc: str
    how: Numerics
    source: str
    evidence: str
    family: str = ""

    def __post_init__(self) -> None:
        """Prove that the arithmetic and the types go together."""
        where = f"Rule {self.ab} -> {self.acc}"
        ab = format_of(self.ab)
        acc = format_of(self.acc)
        if self.family not in ("", *FAMILIES):
            raise InputError(
                f"{where}: family must be one of {', '.join(FAMILIES)}, or '' for all, "
                f"got {self.family!r}"
            )
        match self.how:
            case Integer():
                if self.ab not in ("s8", "u8") or self.acc != "s32":
                    raise InputError(f"{where}: Integer takes s8 or u8 and accumulates in s32")
            case Fused():
                if not ab.is_float or self.ab == "f64" or self.acc not in ("f16", "f32"):
                    raise InputError(
                        f"{where}: Fused takes a float type up to f32 and accumulates in f16 or f32"
                    )
                if self.how.register_halves and ab.itemsize != 1:
                    raise InputError(f"{where}: register_halves is for 8-bit floats")
                bits = self.how.output_fraction_bits
                if bits is not None and not 1 <= bits <= acc.fraction_bits:
                    raise InputError(
                        f"{where}: output_fraction_bits must be within 1..{acc.fraction_bits}, "
                        f"got {bits}"
                    )
            case Sequential() | Exact():
                if not ab.is_float or self.acc not in ("f16", "f32", "f64"):
                    raise InputError(
                        f"{where}: {type(self.how).__name__} takes a float type and accumulates "
                        f"in f16, f32 or f64"
                    )
                if self.ab == "f64" and self.acc != "f64":
                    raise InputError(f"{where}: f64 accumulates in f64")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an architecture has no rule for a pair of types, and what to use instead.

    ab and acc are element types; an acc of ``""`` stands for every accumulator.
    """

    ab: str
    acc: str
    why: str


@dataclass(frozen=True, slots=True)
class Arch:
    """One tensor core generation, or a reference arithmetic: its numerics, and its memory.

    Attributes
    ----------
    name : str
        Registry name, lower case, such as ``"hopper"``.
    title : str
        Name for people, such as ``"NVIDIA Hopper"``.
    sm : tuple of int
        Compute capabilities, such as ``(80, 86)``; each makes an alias ``sm_80``.
    aliases : tuple of str
        Other names, such as GPUs of this architecture.
    rows : tuple of Rule
        One rule for each pair of types.
    source : str
        Where the rows come from.
    refusals : tuple of Refusal
        Pairs that deserve their own words when refused.
    shared_kb : int or None
        KB of shared memory that a block may have on every GPU of this architecture; None if
        that is not known, and sets no limit. Plans choose blocks that have room.
    recorded : tuple of str
        The GPUs among `aliases` whose bits were compared. The others are taken to compute as
        these do, which nobody recorded.
    """

    name: str
    title: str
    sm: tuple[int, ...]
    aliases: tuple[str, ...]
    rows: tuple[Rule, ...]
    source: str
    refusals: tuple[Refusal, ...] = ()
    shared_kb: int | None = None
    recorded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Prove that names and pairs of types are given once, and that there is some memory."""
        for name in self.names:
            if not name or name != name.lower().strip():
                raise InputError(f"Arch {self.name!r}: names must be lower case, got {name!r}")
        if len(set(self.names)) != len(self.names):
            raise InputError(f"Arch {self.name!r}: a name is given twice in {self.names}")
        for name in self.recorded:
            if name not in self.aliases:
                raise InputError(f"Arch {self.name!r}: recorded names {name!r}, which is no alias")
        if not self.rows:
            raise InputError(f"Arch {self.name!r} needs at least one rule")
        pairs = [(row.ab, row.acc, row.family) for row in self.rows]
        for pair in pairs:
            if pairs.count(pair) > 1:
                raise InputError(f"Arch {self.name!r} has two rules for {pair[0]} -> {pair[1]}")
        if self.shared_kb is not None and self.shared_kb < 1:
            raise InputError(
                f"Arch {self.name!r}: shared_kb must be at least 1, or None where it is not known, "
                f"got {self.shared_kb}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of this architecture: its own, its compute capabilities, its aliases."""
        return (self.name, *(f"sm_{number}" for number in self.sm), *self.aliases)
