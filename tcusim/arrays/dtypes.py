"""Which types a call computes in, for every front door: one table of rules.

============================  =============================  ====================================
arrays of                     results of NumPy arrays        results of arrays in GPU memory
============================  =============================  ====================================
float16, bfloat16             their own type, or `dtype`     the same
float32                       the same                       the same
float64                       the same                       the same
int8, uint8                   wide, or `dtype`; exact        int64, int32, float32 or float64; of
                                                             products int32
other integers, bool          int64 or uint64, or `dtype`;   refused
                              exact modulo 2**64
============================  =============================  ====================================

`dtype` is the type of the computation, as in NumPy, where it or the array's type is float64; other
floats are computed as they are, in float32 sums, and rounded once to `dtype`.

Sums and scans of float32 are rounded additions of the elements themselves, on every architecture;
so are those of float64 where tensor cores do not multiply it.
Products multiply, and so do the paper's algorithms where a user names one: there float32 is split
into bf16 parts; where there is no bf16, into scaled f16 parts, which takes a look at the data and
so a NumPy array.

With bits="exact" NumPy arrays of every type are summed in fixed point, and rounded once to `dtype`;
so are float16 arrays in GPU memory, whose fixed point float64 holds, and integers, which are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from tcusim.algorithms import algorithm_of
from tcusim.algorithms.builder import adds_rows, parts_of
from tcusim.arrays.problem import MOST_DIGITS, MOST_INNER, Shape, Types, tile_for
from tcusim.arrays.spec import Spec
from tcusim.errors import Given, InputError, Unsupported
from tcusim.machine import rule_for
from tcusim.machine.formats import BY_ARRAY_NAME, array_name_of
from tcusim.machine.shapes import shape_of
from tcusim.machine.whole import largest_kept

# Types of operands, accumulators and arrays, by the NumPy type of an array.
_TYPES = {
    "float16": ("f16", "f32", "f16"),
    "bfloat16": ("bf16", "f32", "bf16"),
    "float32": ("bf16", "f32", "f32"),
    "float64": ("f64", "f64", "f64"),
    "int8": ("s8", "s32", "s8"),
    "uint8": ("u8", "s32", "u8"),
}
FLOATS = ("float16", "float32", "float64", "bfloat16")
# The integers that tensor cores multiply.
_INTEGERS = tuple(name for name in _TYPES if name not in FLOATS)

# The fewest digits, and products of digits, that are worth a sum of their own.
_LEAST_DIGITS, _LEAST_INNER = 2**8, 2**4

# How arrays are made to fit the types of the launches: as they are; as digits of 8 bits; float32 as
# bf16 parts, which few values exceed; as scaled f16 parts; or, of all types, as digits of their
# fixed point, whose exact sums are rounded once.
Method: TypeAlias = Literal["as it is", "digits", "bf16 parts", "f16 parts", "fixed point"]


@dataclass(frozen=True, slots=True)
class TypeRule:
    """The types of one call.

    given, result: NumPy's names of the types of the array and of the result. work: of that to which
    the array is cast first. types: of the launches. method: how the array is made to fit them.
    """

    given: str
    work: str
    result: str
    types: Types
    method: Method = "as it is"

    def named(self, result: str | None) -> str | None:
        """Return the result's type if naming it makes a difference: not if it is the usual one."""
        return None if self.given in FLOATS and self.given == self.result else result


def numpy_type(name: Any) -> np.dtype[Any]:
    """Return the NumPy type of this name; bfloat16 is that of the package ml_dtypes."""
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError as error:
            raise InputError(
                "bfloat16 arrays need ml-dtypes: pip install 'tcusim[bf16]'"
            ) from error
        name = ml_dtypes.bfloat16
    found: np.dtype[Any] = np.dtype(name)
    return found


def types_of(work: str, result: str, acc: str, arch: str, *, multiplies: bool = True) -> Types:
    """Return the types of the launches for NumPy's names of the array's type and the result's.

    multiplies: whether the launches do in any case; else they add up float32 as it is, and float64
    if the architecture has no products of it.
    """
    ab, own, source = _TYPES[work]
    if work == "float64" and not _multiplies(arch, ab, own):
        if multiplies:
            raise Unsupported(
                *(f"{arch} multiplies no float64. Give ", Given("dtype", "float32")),
                ", or cast the array; for float64, take an architecture that has it, such as ",
                *(Given("arch", "ampere"), " or 'exact'. Sums and scans without "),
                *(Given("algorithm"), " add float64 without products"),
            )
        ab = "f16"
    if adds_rows(source, own) and not multiplies:
        ab = source
    if acc == "f16" and work != "float16":
        raise Unsupported(Given("acc", "f16"), f" is for float16 input, not {work}")
    return Types(ab, acc if acc == "f16" else own, source, BY_ARRAY_NAME[result].name)


def _multiplies_all(spec: Spec) -> bool:
    """Return whether the launches of a call multiply elements of every type."""
    if spec.is_product or spec.algorithm is None:
        return spec.is_product
    return not algorithm_of(spec.algorithm).adds_rows


def dtype_of(ab: str, acc: str) -> str | None:
    """Return NumPy's name of the arrays whose elements are such operands; None if there are none.

    acc: of the accumulators in which the functions on arrays sum them. uint8 is not among them:
    its sums in NumPy arrays are those of int8 digits.
    """
    for name in (*FLOATS, "int8"):
        own, wide, source = _TYPES[name]
        if own == source == ab and (acc == wide or (name, acc) == ("float16", "f16")):
            return name
    return None


def types_on_host(spec: Spec, given: str, arch: str) -> TypeRule:
    """Return the types for NumPy arrays of the type `given`.

    Where the tile, or the architecture, does not take the usual parts of a number, parts of f16
    hold it too.
    """
    acc, product, algorithm, tile = spec.acc, spec.is_product, spec.algorithm, spec.tile
    kind = "f" if given in FLOATS else np.dtype(given).kind
    wanted = result_type(given, kind, spec.dtype)
    if kind == "f" and given not in FLOATS:
        raise InputError(f"input of dtype {given} is not supported; cast it to float32 or float64")
    is_integer, is_exact = wanted not in FLOATS, spec.bits == "exact"
    if kind in "biu" and (is_integer or not product):
        if acc == "f16":
            how = "exact" if product else "summed exactly"
            raise Unsupported(Given("acc", "f16"), f" is for float16 input; integers are {how}")
        # float64 holds the sums of digits of narrower integers, so that they are rounded once too.
        wide = algorithm is None and not product and np.dtype(given).itemsize == 8
        in_fixed_point = not is_integer and (is_exact or wide)
        how_exactly: Method = "fixed point" if in_fixed_point else "digits"
        types = _types_of_digits(arch, tile, is_product=product)
        return TypeRule(given, given, wanted, types, how_exactly)
    if is_integer:
        verb = "multiply" if product else "sum"
        raise InputError(
            f"dtype {wanted} would cut the fractions of {given} input; "
            f"{verb} in a float type, then round and cast the result yourself"
        )
    if is_exact:
        _require_one_rounding(acc)
        types = _types_of_digits(arch, tile, is_product=product)
        return TypeRule(given, given, wanted, types, "fixed point")
    as_given = given in FLOATS and "float64" not in (given, wanted)
    work = given if as_given else wanted
    types = types_of(work, wanted, acc, arch, multiplies=_multiplies_all(spec))
    method: Method = "as it is"
    if not types.adds and parts_of(types.source, types.ab) > 1:
        method = "bf16 parts"
        if not _multiplies(arch, "bf16", "f32", tile):
            types, method = Types("f16", "f32", "f16", "f32"), "f16 parts"
    return TypeRule(given, work, wanted, types, method)


def types_on_device(spec: Spec, given: str, arch: str) -> TypeRule:
    """Return the types for arrays in GPU memory, whose values nobody looks at."""
    acc, product, algorithm = spec.acc, spec.is_product, spec.algorithm
    wanted = None if spec.dtype is None else array_name_of(spec.dtype)
    if given in _INTEGERS:
        # NumPy's wide integer, which has room for any sum, comes first.
        valid = ("int32",) if product else ("int64", "int32", "float32", "float64")
        result = wanted or valid[0]
        if result not in valid:
            raise InputError(
                f"{given} arrays in GPU memory have {', '.join(valid)} results, not {result}; cast "
                f"the result"
            )
        if spec.carry and result in FLOATS:
            raise Unsupported(
                f"initial goes with int64 or int32 results of {given} arrays in GPU memory, not "
                f"with {result}. Leave dtype out, and cast the result"
            )
        return TypeRule(given, given, result, types_of(given, result, acc, arch))
    if given not in FLOATS:
        raise InputError(
            f"arrays in GPU memory must be of {', '.join(FLOATS)}, {' or '.join(_INTEGERS)}, "
            f"got {given}; cast it there, or copy it to a NumPy array, for which every integer "
            f"type is summed exactly"
        )
    wanted = wanted or given
    if wanted not in FLOATS:
        raise InputError(
            f"dtype of a {given} array in GPU memory must be one of {', '.join(FLOATS)}, got "
            f"{wanted}; cast the result"
        )
    if spec.bits == "exact":
        multiplied = algorithm is not None
        _require_exact_on_device(given, acc, arch, multiplied=multiplied)
        types = Types("f64" if multiplied else "f16", "f64", "f16", BY_ARRAY_NAME[wanted].name)
        return TypeRule(given, given, wanted, types, "fixed point")
    work = wanted if "float64" in (given, wanted) else given
    types = types_of(work, wanted, acc, arch, multiplies=_multiplies_all(spec))
    is_split = not types.adds and parts_of(types.source, types.ab) > 1
    if is_split and not _multiplies(arch, "bf16", "f32"):
        instead = "" if product else "leave algorithm out, "
        raise Unsupported(
            f"float32 arrays in GPU memory are multiplied in bf16 parts, and {arch} has no bf16. "
            f"Cast the array to float16, {instead}or copy it to a NumPy array, which is scaled and "
            f"split there"
        )
    return TypeRule(given, work, wanted, types)


def _types_of_digits(arch: str, tile: Shape | None, *, is_product: bool) -> Types:
    """Return the types that sum digits exactly; Unsupported if the arithmetic rounds them."""
    rounds = False
    for types in (Types("s8", "s32", "s8", "s32"), Types("f16", "f32", "f16", "f32")):
        if not _multiplies(arch, types.ab, types.acc, tile):
            continue
        shape = tile_for(types, tile)
        rule = rule_for(arch, types.ab, types.acc, shape.family(types.ab, types.acc))
        usual, least, term = (
            (MOST_INNER, _LEAST_INNER, 2**14) if is_product else (MOST_DIGITS, _LEAST_DIGITS, 2**7)
        )
        most = largest_kept(rule, shape.k, term) // term
        if most >= usual[types.ab]:
            return types
        if most >= least:
            return replace(types, most=most)
        rounds = True
    if rounds:
        raise Unsupported(
            "integers, and with ",
            *(Given("bits", "exact"), " all numbers, are summed as digits without an error; "),
            f"{arch} keeps too few bits of a sum for that. Cast integers to float16 for sums of "
            "this arithmetic, or take another, such as ",
            Given("arch", "hopper"),
        )
    return types


def _require_exact_on_device(given: str, acc: str, arch: str, *, multiplied: bool) -> None:
    """Refuse exact sums in GPU memory of other types than float16, in float64."""
    _require_one_rounding(acc)
    instead = "Copy the array to a NumPy array, or leave bits out"
    if given != "float16":
        raise Unsupported(
            Given("bits", "exact"),
            f" in GPU memory is for arrays of float16, {' or '.join(_INTEGERS)}, not {given}, "
            f"whose fixed point takes a look at the data. {instead}",
        )
    if multiplied and not _multiplies(arch, "f64", "f64"):
        raise Unsupported(
            f"an algorithm that is named multiplies, and {arch}'s tensor cores do not multiply "
            f"float64, in which float16 arrays in GPU memory are summed exactly. Leave algorithm "
            f"out: elements are then added without products"
        )


def _require_one_rounding(acc: str) -> None:
    if acc == "f16":
        raise Unsupported(
            *(Given("acc", "f16"), " rounds after every product, "),
            *(Given("bits", "exact"), " once; choose one"),
        )


def real_type_of(dtype: Any) -> str:
    """Return NumPy's name of a type of real numbers; InputError if it is another type."""
    name = array_name_of(dtype)
    # The name of a structured type is that of none.
    void = name.startswith(("void", "record"))
    if void or (name != "bfloat16" and np.dtype(name).kind not in "biuf"):
        raise InputError(Given("dtype"), f" must be a real number type, got {name}")
    return name


def result_type(given: str, kind: str, dtype: Any) -> str:
    """Return NumPy's name of the result's type: the named one, or the usual one."""
    if dtype is None:
        return {"u": "uint64", "b": "int64", "i": "int64"}.get(kind, given)
    name = array_name_of(dtype)
    if name in FLOATS:
        return name
    wanted = np.dtype(dtype if name not in BY_ARRAY_NAME else name)
    if wanted.kind == "f":
        raise InputError(Given("dtype"), f" must be one of {', '.join(FLOATS)}, got {wanted}")
    if wanted.kind not in "iu":
        raise InputError(Given("dtype"), f" must be a real number type, got {wanted}")
    return wanted.name


def _multiplies(arch: str, ab: str, acc: str, tile: Shape | None = None) -> bool:
    """Return whether an architecture multiplies these types, in the tile that a user names."""
    try:
        rule_for(arch, ab, acc)
    except Unsupported:
        return False
    return tile is None or shape_of(tile).supports(ab, acc)
