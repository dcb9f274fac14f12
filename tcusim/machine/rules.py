"""The arithmetic of d = a @ b + c on an architecture: self-checking rows of parameters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tcusim.errors import (
    MOST_ELEMENTS,
    InputError,
    require_choice,
    require_flags,
    require_int,
    told,
)
from tcusim.machine.formats import ROUNDED, Rounding, format_of

# How float32 operands become tf32: as the instruction reads them, or rounded before.
Tf32: TypeAlias = Literal["cut", "nearest_even", "nearest_away"]
TF32: Final[tuple[Tf32, ...]] = ("cut", "nearest_even", "nearest_away")

# How a term of a fused step is truncated: see `Fused`.
Alignment: TypeAlias = Rounding | Literal["sticky"]

# The types of block scales: powers of two, and numbers of e4m3 without a sign.
SCALES: Final = ("ue8m0", "ue4m3")

# The most passes over an operand's bits: those of float64 in four parts.
MOST_PASSES: Final = 16

# The types that sums of a sequential rule may have, if it is not that of c.
SUM_TYPES: Final = ("f16", "bf16")

# The instructions whose arithmetic may differ on one architecture.
FAMILIES: Final = ("wmma", "mma.sync", "wgmma", "tcgen05")


@dataclass(frozen=True, slots=True)
class Late:
    """A join of c with the finished sum of a step's products.

    Both are aligned to the larger of two exponents, the products' E and c's exponent. Each is cut
    to its own number of bits, and their exact sum is rounded once.
    Source: [MMASIM25], [KHATTAK25] CDNA 3.

    Attributes
    ----------
    sum_bits, c_bits : int
        Bits kept below that exponent, of the sum of products and of c.
    alignment : {"rd", "rz", "rne", "rna", "odd"}
        Truncation of both.
    floor : int or None
        Minimum of that exponent; None for no minimum.
    reach : int or None
        c counts as zero if its exponent is further below E than this; None for never.
    """

    sum_bits: int
    c_bits: int
    alignment: Rounding = "rd"
    floor: int | None = None
    reach: int | None = None

    def __post_init__(self) -> None:
        """Prove that the parameters make sense."""
        require_int("Late.sum_bits", self.sum_bits, 1, 48)
        require_int("Late.c_bits", self.c_bits, 1, 48)
        require_choice("Late.alignment", self.alignment, ROUNDED)
        if self.floor is not None:
            require_int("Late.floor", self.floor, -500, 500)
        if self.reach is not None:
            require_int("Late.reach", self.reach, 1)


@dataclass(frozen=True, slots=True)
class Passes:
    """Multiplications of parts of the operands' bits, one after another, each added to c.

    An operand is the sum of its parts: fields of the significand of a float, or of the magnitude
    of an integer, each with the operand's sign. Every group of products is summed once in each
    pass, with the result of the last pass as its c. A part is a number of its own in the
    alignment. A group with an infinity or a NaN is summed in one pass.

    Attributes
    ----------
    left, right : tuple of int
        Bits of each part of a's elements, and of b's, the highest part first: together all bits
        of the type, 24 of f32 and 8 of s8.
    order : tuple of (int, int)
        Passes: a part of a and a part of b, by their places; empty for all pairs, those of a's
        first part first.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    order: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """Prove that the parts exist."""
        for name in ("left", "right"):
            parts = getattr(self, name)
            require_tuple(f"Passes.{name}", parts, int)
            for bits in parts:
                require_int(f"Passes.{name}", bits, 1, 53)
        for pair in self.pairs:
            sizes = len(self.left), len(self.right)
            if len(pair) != 2 or not all(
                0 <= one < size for one, size in zip(pair, sizes, strict=True)
            ):
                raise InputError(
                    f"Passes.order must have pairs of a part of {sizes[0]} and of {sizes[1]}, "
                    f"counted from 0, got {told(pair)}"
                )
        if not 1 <= len(self.pairs) <= MOST_PASSES:
            raise InputError(f"Passes has 1 to {MOST_PASSES} passes, got {len(self.pairs)}")

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The parts of each pass."""
        return self.order or tuple(itertools.product(range(len(self.left)), range(len(self.right))))


@dataclass(frozen=True, slots=True)
class Fused:
    """Sum a group of products and c in one step: align, truncate, add exactly, join c, round once.

    Every product is exact. All terms are aligned to the largest exponent E among the non-zero
    ones (a product's is the sum of its factors' exponents, not normalised) and truncated to
    `fraction_bits` below it; the sum of the truncated terms is exact and is rounded once. A longer
    k is a chain of such steps, k ascending, the d of one being the c of the next.
    Source: [KHATTAK25], [MMASIM25]; recorded from an H200.

    Attributes
    ----------
    length : int
        Products in one step.
    fraction_bits : int
        Bits kept below E, often called F.
    output : {"rz", "rne", "rna", "rd", "odd"}
        Rounding of the sum: toward zero, to nearest with ties to even or away from zero, down, to
        odd. Beyond the largest finite value each gives infinity.
    output_fraction_bits : int or None
        Fraction bits of the result where the type has more of them; None for all of the type's.
    alignment : {"rz", "rne", "rna", "rd", "odd", "sticky"}
        Truncation of a term: a rounding, or toward zero with a sticky bit. The sticky bit is set if
        any term lost a bit, and counts in the rounding of the sum.
    c_joins : {"sum", "after"} or Late
        Whether c is one of the terms, is added to the rounded sum of every step by an addition in
        the accumulator's type, or joins the sum of products with widths of its own.
    flush_inputs, flush_outputs : bool
        Whether subnormal operands (c among them), or results, count as zero.
    exponent_floor : int or None
        Least value of E; None for no floor.
    register_halves : bool
        Whether 8-bit floats are unpacked to fp16 and summed in two chained steps: first those in
        the lower halves of the registers, which hold four each (k mod 4 is 0 or 1), then the
        others. With ``c_joins="after"``, c is added once, after both.
    exponents : {"operands", "upper", "products", "scales"}
        Exponent of a product in the alignment: the sum of its factors' exponents, one more (that of
        the largest product of such factors), its own, or the sum of its scales' exponents.
    presum : int
        Products of one block that are summed exactly before their sum is scaled and aligned.
    sums : int
        Partial sums of a step: product i belongs to sum i modulo this number. Each is aligned
        apart; they are then aligned to the largest E, truncated and added.
    addition : {"rne", "rna", "rz", "rd", "odd"}
        Rounding of the addition of ``c_joins="after"``.
    overflow : {"sum", "product"}
        Whether a product beyond the accumulator's range is infinite, or only a sum.
    zeros : {"positive", "signed"}
        Sign of a negative sum that is rounded or flushed to zero. An exact zero is positive.
    """

    length: int
    fraction_bits: int
    output: Rounding = "rz"
    output_fraction_bits: int | None = None
    alignment: Alignment = "rz"
    c_joins: Literal["sum", "after"] | Late = "sum"
    flush_inputs: bool = False
    flush_outputs: bool = False
    exponent_floor: int | None = None
    register_halves: bool = False
    exponents: Literal["operands", "upper", "products", "scales"] = "operands"
    sums: int = 1
    addition: Rounding = "rne"
    overflow: Literal["sum", "product"] = "sum"
    zeros: Literal["positive", "signed"] = "positive"
    presum: int = 1

    def __post_init__(self) -> None:
        """Prove that the parameters make sense and that float64 holds every sum."""
        require_int("Fused.length", self.length, 1)
        require_int("Fused.fraction_bits", self.fraction_bits, 1)
        require_int("Fused.sums", self.sums, 1, self.length)
        require_int("Fused.presum", self.presum, 1, self.length)
        for name, choices in _CHOICES.items():
            if not (name == "c_joins" and isinstance(self.c_joins, Late)):
                late = ", or a Late" * (name == "c_joins")
                require_choice(f"Fused.{name}", getattr(self, name), choices, late)
        flags = ("flush_inputs", "flush_outputs", "register_halves")
        require_flags(**{f"Fused.{name}": getattr(self, name) for name in flags})
        # A term is below 2**(F+2) in units of its last kept bit; binary64 counts to 2**53. A sticky
        # bit is a quarter of a unit.
        bits = self.fraction_bits + 2 * (self.alignment == "sticky")
        if isinstance(self.c_joins, Late):
            bits = max(bits, self.c_joins.sum_bits, self.c_joins.c_bits)
        if (self.length + 1) * 2 ** (bits + 2) > 2**53:
            raise InputError(
                f"Fused of {self.length} terms with {bits} fraction bits needs sums "
                f"beyond 2**53, which the simulator does not hold; use fewer of either"
            )
        if self.addition != "rne" and self.c_joins != "after":
            raise InputError("Fused.addition is for c_joins = 'after'; leave it out")
        if self.output_fraction_bits is not None:
            require_int("Fused.output_fraction_bits", self.output_fraction_bits, 1)
        if self.exponent_floor is not None:
            require_int("Fused.exponent_floor", self.exponent_floor, -500, 500)
        several = self.sums > 1 or isinstance(self.c_joins, Late)
        if several and (self.register_halves or self.alignment == "sticky"):
            part = "register_halves" if self.register_halves else "alignment = 'sticky'"
            raise InputError(f"Fused.{part} is for one sum, with c in it or added after it")

    @property
    def is_basic(self) -> bool:
        """Whether a step has only parts that all engines implement, and none of the rare ones."""
        roundings = ("rz", "rne")
        return (
            self.output in roundings
            and self.alignment in roundings
            and isinstance(self.c_joins, str)
            and (self.exponents, self.sums, self.addition) == ("operands", 1, "rne")
            and (self.overflow, self.zeros, self.presum) == ("sum", "positive", 1)
        )


# Parameters of a fused step that are one of several names.
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "output": tuple(ROUNDED),
    "alignment": (*ROUNDED, "sticky"),
    "c_joins": ("sum", "after"),
    "exponents": ("operands", "upper", "products", "scales"),
    "addition": tuple(ROUNDED),
    "overflow": ("sum", "product"),
    "zeros": ("positive", "signed"),
}


def require_tuple(what: str, value: object, kind: type) -> None:
    """Require a tuple of items of this type."""
    if not isinstance(value, tuple) or not all(isinstance(one, kind) for one in value):
        raise InputError(f"{what} must be a tuple of {kind.__name__}, got {told(value)}")


@dataclass(frozen=True, slots=True)
class Sequential:
    """IEEE operations in the accumulator's type, k ascending, each rounded.

    By default a chain of fused multiply-adds; the first takes c.

    Attributes
    ----------
    length : int or None
        Products of a group; None for all of them. The d of one group is the c of the next.
    order : {"chain", "apart", "tree"}
        Order of a group: fused multiply-adds one after another, the first to c or, apart, to zero;
        or a binary tree, which rounds the products and adds the sum of the first half to the sum of
        the second half.
    sums : int
        Partial sums of a chain, at most one for each product of a group: product i belongs to sum i
        modulo this number. Several begin with zero, and are added up in their order.
    rounding : {"rne", "rna", "rz", "rd", "odd"}
        Rounding of each operation. Overflow is as in IEEE 754, which has no rounding to odd; that
        one overflows to infinity, as in [ARM].
    sum_type : {"", "f16", "bf16"}
        Type of the operations of a group, where c is added last; ``""`` is the accumulator's. The
        addition to c is rounded to the accumulator's type.
    flush_inputs, flush_outputs : bool
        Whether subnormal operands (c among them), or results, count as zeros of their sign.

    Trees, several sums, and a sum apart have c added last.
    """

    length: int | None = None
    order: Literal["chain", "apart", "tree"] = "chain"
    sums: int = 1
    rounding: Rounding = "rne"
    sum_type: Literal["", "f16", "bf16"] = ""
    flush_inputs: bool = False
    flush_outputs: bool = False

    def __post_init__(self) -> None:
        """Prove that the parameters make sense."""
        if self.length is not None:
            require_int("Sequential.length", self.length, 1)
        require_int("Sequential.sums", self.sums, 1, self.length or MOST_ELEMENTS)
        require_choice("Sequential.order", self.order, ("chain", "apart", "tree"))
        require_choice("Sequential.rounding", self.rounding, ROUNDED)
        require_flags(
            **{
                f"Sequential.{name}": getattr(self, name)
                for name in ("flush_inputs", "flush_outputs")
            }
        )
        if self.order == "tree" and (self.length is None or self.sums > 1):
            raise InputError("Sequential.order = 'tree' needs a length, and has one sum")
        require_choice("Sequential.sum_type", self.sum_type, ("", *SUM_TYPES))
        if self.sum_type and self.order == "chain" and self.sums == 1:
            raise InputError(
                "Sequential.sum_type is for sums that c is added to last: give order = 'apart' or "
                "'tree', or several sums"
            )

    @property
    def is_basic(self) -> bool:
        """Whether it is the one chain that other engines have too."""
        return self == Sequential(self.length)


@dataclass(frozen=True, slots=True)
class Exact:
    """The exact value of a group of products and c, rounded once to nearest even.

    Attributes
    ----------
    length : int or None
        Products of a group; None for all of them. The d of one group is the c of the next.
    c_joins : {"sum", "after"}
        Whether c is one of the terms, or is added to the rounded sum of every group by an addition
        in the accumulator's type, rounded to nearest even.
    """

    length: int | None = None
    c_joins: Literal["sum", "after"] = "sum"

    def __post_init__(self) -> None:
        """Prove that the parameters make sense."""
        if self.length is not None:
            require_int("Exact.length", self.length, 1)
        require_choice("Exact.c_joins", self.c_joins, ("sum", "after"))


@dataclass(frozen=True, slots=True)
class Integer:
    """Exact integers in an s32 accumulator, which wraps.

    Attributes
    ----------
    length : int or None
        Products of a group, which are summed from zero and then added to c; None for all of them.
    sum_bits : int
        Bits of such a sum, which wraps.
    overflow : {"wrap", "saturate", "symmetric"}
        Result of an addition to c beyond 32 bits: modulo 2**32, the nearest integer of 32 bits, or
        the nearest within +-(2**31 - 1).
    """

    length: int | None = None
    sum_bits: int = 32
    overflow: Literal["wrap", "saturate", "symmetric"] = "wrap"

    def __post_init__(self) -> None:
        """Prove that the parameters make sense."""
        if self.length is not None:
            require_int("Integer.length", self.length, 1)
        require_int("Integer.sum_bits", self.sum_bits, 2, 32)
        require_choice("Integer.overflow", self.overflow, ("wrap", "saturate", "symmetric"))

    @property
    def is_basic(self) -> bool:
        """Whether it is the plain sum that other engines have too."""
        return (self.sum_bits, self.overflow) == (32, "wrap")


Numerics: TypeAlias = Fused | Sequential | Exact | Integer


@dataclass(frozen=True, slots=True)
class Rule:
    """The arithmetic of one architecture for one pair of types.

    Attributes
    ----------
    ab, acc : str
        Element type of matrix_a and matrix_b, and of the accumulator.
    how : Fused, Sequential, Exact or Integer
        The arithmetic.
    source : str
        Where the parameters come from.
    evidence : str
        ``"recorded bits"`` if bits of that hardware were compared, or other evidence.
    family : str
        The instructions that do this, ``"wmma"``, ``"mma.sync"``, ``"wgmma"`` or ``"tcgen05"``,
        where they differ from the others; ``""`` is every instruction that has no row of its own.
    b : str
        Element type of matrix_b if it differs from that of matrix_a; `registry.rule_of` makes such
        a rule from the rules of the two types.
    nan : {"", "ones", "quiet"}
        NaN that the unit writes: every bit set but the sign, as NVIDIA's do in fused steps; or the
        quiet NaN of IEEE 754 without sign or payload, as in RISC-V. ``""`` is the first for fused
        steps, and otherwise the second; in f64, the given NaN.
    passes : Passes or None
        Passes over parts of the operands' bits; None where an operand is multiplied whole.
    scale : str
        Block scales, such as ``"block32.ue8m0"``, or with the kind of instruction before that, as
        PTX has it, ``"mxf8f6f4.block32.ue8m0"``; nothing without.
    """

    ab: str
    acc: str
    how: Numerics
    source: str
    evidence: str
    family: str = ""
    b: str = ""
    nan: Literal["", "ones", "quiet"] = ""
    scale: str = ""
    passes: Passes | None = None

    @property
    def block(self) -> int:
        """Products that share a scale; 0 without scales."""
        size = self.scale.split(".")[-2:][0].removeprefix("block")
        return int(size) if size.isdecimal() else 0

    @property
    def scale_type(self) -> str:
        """The type of the scales, one of `SCALES`; nothing without."""
        return self.scale.rpartition(".")[2]

    @property
    def operands(self) -> str:
        """The types of matrix_a and matrix_b as PTX has them: ``"f16"``, or ``"e5m2.e4m3"``."""
        return f"{self.ab}.{self.b}" if self.b else self.ab

    @property
    def right(self) -> str:
        """The element type of matrix_b."""
        return self.b or self.ab

    def is_chain(self, k: int) -> bool:
        """Whether a sum of more than k products has the bits of a chain of sums of k each."""
        match self.how:
            case Exact(length=length):
                return length is not None and k % length == 0
            case Sequential(length=length) | Integer(length=length) if self.passes is not None:
                return length is not None and k % length == 0
            case Fused(length=length):
                return k % (2 * length if self.how.register_halves else length) == 0
            case Sequential(length=length):
                plain = self.how.order == "chain" and self.how.sums == 1
                return plain or (length is not None and k % length == 0)
            case Integer(length=length):
                return self.how.is_basic or (length is not None and k % length == 0)

    def __post_init__(self) -> None:
        """Prove that the arithmetic and the types go together."""
        where = f"Rule {self.ab} -> {self.acc}"
        if self.family != "":
            require_choice(f"{where}: family", self.family, FAMILIES, ", or '' for all")
        require_choice(f"{where}: nan", self.nan, ("", "ones", "quiet"))
        if self.nan and isinstance(self.how, Integer):
            raise InputError(f"{where}: nan is for floats, and integers have none")
        why = self._refusal() or self._refused_scale() or self._refused_passes()
        if why:
            raise InputError(f"{where}: {why}")

    def _refused_passes(self) -> str:
        """Say why the passes do not go with the types and the arithmetic; nothing if they do."""
        if self.passes is None:
            return ""
        if not isinstance(self.passes, Passes):
            return f"passes must be Passes or None, got {told(self.passes)}"
        others = [one for one in ("register_halves", "flush_inputs") if getattr(self.how, one, 0)]
        if self.scale:
            others.append("block scales")
        if others:
            return f"passes go with no {', '.join(others)}"
        for name, parts in (("ab", self.passes.left), ("b", self.passes.right)):
            fmt = format_of(self.ab if name == "ab" else self.right)
            bits = fmt.fraction_bits + 1 if fmt.is_float else fmt.bits
            if sum(parts) != bits:
                return f"the parts of {fmt.name} in passes have {bits} bits, got {sum(parts)}"
        return ""

    def _refused_scale(self) -> str:
        """Say why the scales do not go with the arithmetic; nothing if they do."""
        how = self.how
        own = isinstance(how, Fused) and (how.exponents == "scales" or how.presum > 1)
        if not self.scale:
            return "exponents = 'scales' and presum are for a rule with scale" if own else ""
        if self.scale_type not in SCALES or not self.block:
            return f"scale must be such as 'block32.ue8m0', got {told(self.scale)}"
        if not isinstance(how, Fused) or how.c_joins != "sum" or how.sums > 1:
            return "block scales are for fused steps of one sum, with c in it"
        if how.exponents not in ("operands", "scales") or how.register_halves:
            return "block scales are for exponents of operands or of scales"
        if how.alignment == "sticky" or how.overflow != "sum" or how.flush_inputs:
            return "block scales go with no sticky bit, no infinite product, no flushed operand"
        groups = how.presum if how.exponents == "scales" else 1
        if how.presum != groups or self.block % how.presum or how.length % how.presum:
            return "presum, with exponents of scales, divides the length and the block"
        return self._beyond_scales(how)

    def _beyond_scales(self, how: Fused) -> str:
        """Return why float64 cannot represent every sum of scaled products; "" if it can."""
        types = format_of(self.ab), format_of(self.right)
        if max(one.fraction_bits for one in types) > 10:
            return "block scales are for types of up to 10 fraction bits"
        # Bits of a product above its exponent, and of a sum of `presum` products with its scales.
        above = sum(one.emax + 1 for one in types) if how.exponents == "scales" else 2
        span = sum(one.emax + 1 - one.emin + one.fraction_bits for one in types)
        span += (how.presum - 1).bit_length()
        if self.scale_type == "ue4m3":
            above, span = above + 2, span + 8
        if (how.length + 1) * 2.0 ** (how.fraction_bits + above) > 2.0**53:
            return f"so many terms with {how.fraction_bits} fraction bits need sums beyond 2**53"
        if how.presum > 1 and span > 53:
            return "the sums of presum products need more than 53 bits; use a narrower type"
        return ""

    def _refusal(self) -> str:
        """Say why there can be no such rule; nothing if there can."""
        ab, acc = format_of(self.ab), format_of(self.acc)
        if self.b and not (ab.is_float and format_of(self.b).itemsize == ab.itemsize == 1):
            return f"only 8-bit floats are multiplied with each other's type, not with {self.b}"
        match self.how:
            case Integer():
                if self.ab not in ("s8", "u8") or self.acc != "s32":
                    return "Integer takes s8 or u8 and accumulates in s32"
            case Fused(output_fraction_bits=bits):
                if not ab.is_float or self.ab == "f64" or self.acc not in ("f16", "f32"):
                    return "Fused takes a float type up to f32 and accumulates in f16 or f32"
                if self.how.register_halves and ab.itemsize != 1:
                    return "register_halves is for 8-bit floats"
                most = acc.fraction_bits
                if bits is not None and bits > most:
                    return f"output_fraction_bits must be within 1..{most}, got {bits}"
            case Sequential(is_basic=False) if self.acc == "f64":
                return "Sequential in f64 is one chain, rounded to nearest even"
            case Sequential() | Exact():
                if not ab.is_float or self.acc not in ("f16", "f32", "f64"):
                    name = type(self.how).__name__
                    return f"{name} takes a float type and accumulates in f16, f32 or f64"
                if self.ab == "f64" and self.acc != "f64":
                    return "f64 accumulates in f64"
            case _:
                return f"how must be Fused, Sequential, Exact or Integer, got {told(self.how)}"
        return ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an architecture has no rule for a pair of types, and the alternative.

    ab and acc are element types; ``""`` stands for all of them. instead: an architecture that has
    one.
    """

    ab: str
    acc: str
    why: str
    instead: str = ""


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
        The GPUs among `aliases` whose bits were compared. The others are assumed to compute alike,
        without a record.
    library : str
        The family that libraries use for large products, where it has rows of its own.
    tf32 : {"cut", "nearest_even", "nearest_away"}
        Conversion of float32 operands to tf32 by libraries. The instruction itself truncates.
    scaled : tuple of Rule
        Rules with block scales, one for each pair of types, scale and family.
    any_float : bool
        Whether the rule of f16 operands applies to every other float type up to f32.
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
    library: str = ""
    tf32: Tf32 = "cut"
    scaled: tuple[Rule, ...] = ()
    any_float: bool = False

    def __post_init__(self) -> None:
        """Prove that names and pairs of types are given once, and that there is some memory."""
        where = f"Arch {self.name!r}"
        kinds = {"sm": int, "aliases": str, "rows": Rule, "refusals": Refusal, "recorded": str}
        for field, kind in kinds.items():
            require_tuple(f"{where}: {field}", getattr(self, field), kind)
        for name in self.names:
            if not isinstance(name, str) or not name or name != name.lower().strip():
                raise InputError(f"{where}: names must be lower case, got {told(name)}")
        if len(set(self.names)) != len(self.names):
            raise InputError(f"{where}: a name is given twice in {self.names}")
        for name in self.recorded:
            if name not in self.aliases:
                raise InputError(f"{where}: recorded names {name!r}, which is no alias")
        if not self.rows and not self.refusals and not self.scaled:
            raise InputError(f"{where} needs at least one rule, or a refusal that says why not")
        pairs = [(row.ab, row.acc, row.family) for row in self.rows]
        for pair in pairs:
            if pairs.count(pair) > 1:
                raise InputError(f"{where} has two rules for {pair[0]} -> {pair[1]}")
        self._require_scaled(where)
        if self.library != "":
            require_choice(f"{where}: library", self.library, FAMILIES, " or ''")
        require_choice(f"{where}: tf32", self.tf32, TF32)
        require_flags(**{f"{where}: any_float": self.any_float})
        if self.shared_kb is not None:
            require_int(f"{where}: shared_kb, if it is known,", self.shared_kb, 1)

    def _require_scaled(self, where: str) -> None:
        """Require the rules with block scales, and no others, in `scaled`."""
        require_tuple(f"{where}: scaled", self.scaled, Rule)
        if any(row.scale for row in self.rows) or not all(row.scale for row in self.scaled):
            raise InputError(f"{where}: rules with block scales, and no others, are in scaled")

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of this architecture: its own, its compute capabilities, its aliases."""
        return (self.name, *(f"sm_{number}" for number in self.sm), *self.aliases)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of operand and accumulator types that have a rule, in the order of the rows.

        Of an architecture that multiplies blocks with scales only, those of `scaled`.
        """
        return tuple(dict.fromkeys((row.ab, row.acc) for row in self.rows or self.scaled))
