"""How tensor cores compute: element types, architectures, and multiply-accumulates to the bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tcusim.errors import InputError, require_names
from tcusim.machine.convert import as_values, from_values
from tcusim.machine.formats import (
    FORMATS,
    Format,
    Values,
    canonical_nan,
    format_of,
    round_values,
    split_values,
)
from tcusim.machine.known_units import fused_unit, unit_of, units
from tcusim.machine.registry import (
    arch_of,
    arches,
    own_unit,
    register_arch,
    register_unit,
    registered_units,
    rule_for,
    rule_of,
    scaled_rule,
    usual_types,
)
from tcusim.machine.rules import (
    Arch,
    Exact,
    Fused,
    Integer,
    Late,
    Passes,
    Refusal,
    Rule,
    Sequential,
)
from tcusim.machine.scaled import as_scales, scaled_mma
from tcusim.machine.unit_file import read_unit, unit_toml
from tcusim.machine.units import FIGURES, Figure, Instruction, Unit
from tcusim.machine.values import mma_values

__all__ = [
    "FIGURES",
    "FORMATS",
    "Arch",
    "Exact",
    "Figure",
    "Format",
    "Fused",
    "Instruction",
    "Integer",
    "Late",
    "Passes",
    "Refusal",
    "Rule",
    "Sequential",
    "Unit",
    "Values",
    "arch_of",
    "arches",
    "as_values",
    "canonical_nan",
    "format_of",
    "from_values",
    "fused_unit",
    "mma",
    "mma_values",
    "read_unit",
    "register_arch",
    "register_unit",
    "registered_units",
    "round_values",
    "rule_for",
    "rule_of",
    "split_values",
    "unit_of",
    "unit_toml",
    "units",
    "usual_types",
]


def mma(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    *,
    arch: str = "hopper",
    ab: str | None = None,
    acc: str | None = None,
    family: str = "",
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    scale: str = "ue8m0",
    kind: str = "",
) -> Values:
    """Multiply-accumulate tiles, d = a @ b + c, with the bits that a GPU's tensor core returns.

    Products are summed in the groups of that architecture, k ascending: aligned to the largest
    exponent, truncated, added exactly and rounded once for each group. Source: [KHATTAK25],
    [MMASIM25]; recorded from an H200 for ``arch="hopper"``; the page Numerics documents the others.

    Parameters
    ----------
    a : array_like (..., m, k), ab
        Left operand; leading dimensions broadcast as in `numpy.matmul`. If k exceeds the tiles of a
        user-defined unit, one mma of a tile follows the other. bf16, e4m3 and e5m2 arrays are those
        of ``ml_dtypes``, or float32 arrays of values of the type. A tf32 array is float32 and
        truncated to 10 fraction bits: libraries round before, as `predict_matmul` does.
    b : array_like (..., k, n), ab
        Right operand.
    c : array_like (..., m, n), acc, optional
        Addend; zeros by default.
    arch : str
        volta, turing, ampere, ada, hopper, blackwell, blackwell_rtx, ieee, exact, one
        that is registered, or a GPU such as ``"sm_80"``, ``"h200"`` or ``"RTX 4090"``.
    ab : str, optional
        Element type of a and b, by default f16, or the first that `arch` takes: f16, bf16, tf32,
        f64, s8, u8, e4m3 or e5m2; ieee and exact also
        take f32. Of 8-bit floats of two types ``"e5m2.e4m3"``, a's and b's.
    acc : str, optional
        Element type of c and d, by default f32, or the accumulator type of `ab`: f32, f16, f64 (for
        f64) or s32 (for s8 and u8).
    family : {"", "wmma", "mma.sync", "wgmma", "tcgen05"}
        The instruction, if the instructions of an architecture differ (tf32 and 8-bit floats);
        ``""`` is the first that takes the types.
    scale_a : array_like (..., m, k / block), optional
        Block scales of the rows of a; their number tells the size of a block.
    scale_b : array_like (..., k / block, n), optional
        Block scales of the columns of b, with `scale_a`.
    scale : {"ue8m0", "ue4m3"}
        Element type of the scales: powers of two, or numbers of e4m3 (nvfp4).
    kind : {"", "mxf4nvf4", "mxf8f6f4"}
        The instruction with block scales, if several take the types; ``""`` is the first.

    Returns
    -------
    array (..., m, n)
        float32, float16, float64 or int32, according to `acc`.

    Raises
    ------
    InputError
        If the shapes do not fit, or an array has values that its type cannot represent.
    UnknownName
        If there is no such architecture or type.
    Unsupported
        If this architecture does not support the types, or its arithmetic is unknown.

    Examples
    --------
    An fp16 accumulator of ones stalls, at a size that depends on how many products are fused:

    >>> import numpy as np
    >>> ones = np.ones((1, 40000), np.float16)
    >>> for arch in ("volta", "ampere", "hopper", "exact"):
    ...     print(arch, float(mma(ones, ones.T, arch=arch, acc="f16")[0, 0]))
    volta 8192.0
    ampere 16384.0
    hopper 32768.0
    exact 40000.0
    """
    require_names(scale=scale, kind=kind)
    if scale_a is not None or scale_b is not None:
        return _scaled(
            (a, b, c), (scale_a, scale_b), (arch, ab or "e4m3", acc or "f32"), scale, kind
        )
    if kind or scale != "ue8m0":
        raise InputError("scale and kind are those of block scales: give scale_a and scale_b")
    rule = rule_for(arch, *usual_types(arch_of(arch), ab, acc), family)
    left = as_values(a, rule.ab, name="a")
    right = as_values(b, rule.right, name="b")
    addend = None if c is None else as_values(c, rule.acc, name="c")
    depth = _depth(arch, rule)
    # Operands that are not matrices, or do not fit, are rejected later.
    k = left.shape[-1] if min(left.ndim, right.ndim) > 1 else 0
    if depth is None or k <= depth or k != right.shape[-2]:
        return from_values(mma_values(left, right, addend, rule), rule.acc)
    for first in range(0, k, depth):
        part = slice(first, first + depth)
        addend = mma_values(left[..., part], right[..., part, :], addend, rule)
    assert addend is not None, "k is more than a tile has"
    return from_values(addend, rule.acc)


def _scaled(
    operands: tuple[ArrayLike, ArrayLike, ArrayLike | None],
    scales: tuple[ArrayLike | None, ArrayLike | None],
    names: tuple[str, str, str],
    scale: str,
    kind: str,
) -> Values:
    """Return a @ b + c with block scales. names: of the architecture, and of the types."""
    a, b, c = operands
    if scales[0] is None or scales[1] is None:
        raise InputError("scale_a and scale_b are given together, or neither is")
    left, right = as_scales(scales[0], scale, "scale_a"), as_scales(scales[1], scale, "scale_b")
    arch, ab, acc = names
    shape = np.shape(a)
    if len(shape) < 2:
        raise InputError(f"a must have at least 2 dimensions (..., m, k); got {len(shape)}")
    k, blocks = shape[-1], left.shape[-1] if left.ndim else 0
    if not blocks or k % blocks or k == 0:
        raise InputError(
            f"scale_a must be (..., m, k / block): its {blocks} columns do not divide k = {k}"
        )
    rule = scaled_rule(arch, ab, acc, k // blocks, scale, kind)
    values = as_values(a, rule.ab, name="a"), as_values(b, rule.right, name="b")
    addend = None if c is None else as_values(c, rule.acc, name="c")
    return from_values(scaled_mma(*values, addend, (left, right), rule), rule.acc)


def _depth(arch: str, rule: Rule) -> int | None:
    """Return the k of one mma: the maximum over the tiles of a unit with its own arithmetic.

    None if irrelevant, as steps end with the mma.
    """
    name = arch_of(arch).name
    unit = own_unit(name)
    if unit is None:
        unit = next((one for one in registered_units() if one.arch.name == name), None)
    if unit is None or not unit.shapes:
        return None
    depth = max(tile.k for tile in unit.shapes)
    whole = isinstance(rule.how, Fused) and depth % rule.how.length == 0
    return None if whole else depth
