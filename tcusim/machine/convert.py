"""Conversion between a user's arrays and arrays of values, without silent loss of a bit."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tcusim.errors import InputError, told
from tcusim.machine.formats import (
    BY_ARRAY_NAME,
    FORMATS,
    Format,
    Values,
    format_of,
    format_of_dtype,
    from_memory,
    round_values,
    to_memory,
)
from tcusim.machine.rules import Tf32

__all__ = [
    "as_array",
    "as_values",
    "bits_of_tensor",
    "from_values",
    "is_tensor",
    "nearest_values",
    "require_elements",
    "require_unmasked",
    "resolved",
    "round_to_tf32",
    "same_values",
]


def require_unmasked(name: str, array: object) -> None:
    """Refuse an array whose mask would be lost."""
    # Where nobody has imported numpy.ma, which takes a while, there is no masked array.
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):
        raise InputError(
            f"{name} is a masked array, and masks are not looked at. Pass {name}.filled(0), so "
            f"that masked elements count as 0, or {name}.compressed(), which leaves them out"
        )


def is_tensor(a: Any) -> bool:
    """Return whether an object is a tensor of torch."""
    return _tensor_class(a) is not None


def _tensor_class(a: Any) -> type | None:
    """Return torch's own class of a tensor, which the object's class may derive from."""
    for base in type(a).__mro__:
        if base.__name__ == "Tensor" and base.__module__.partition(".")[0] == "torch":
            return base
    return None


def require_elements(name: str, tensor: Any) -> None:
    """Refuse a tensor of torch whose memory does not hold its elements."""
    kind, plain = type(tensor), _tensor_class(tensor)
    own = getattr(kind, "__torch_dispatch__", None)
    if hasattr(kind, "__tensor_flatten__") or own is not getattr(plain, "__torch_dispatch__", None):
        # Such as a DTensor or a MaskedTensor: its own address leads nowhere.
        raise InputError(
            f"{name} is a {kind.__module__}.{kind.__qualname__}, whose elements are in other "
            f"tensors. Pass the tensor that has them, such as {name}.full_tensor() of a DTensor, "
            f"which tcusim.torch takes as it is, or {name}.to_tensor(0) of a MaskedTensor"
        )
    if not hasattr(tensor, "untyped_storage"):
        # torch before 2.0.
        return
    try:
        has, needs = _bytes_of(tensor)
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(
            f"{name} is a tensor without memory of its own: torch says: {error}. Pass a tensor "
            "that holds its elements"
        ) from error
    if has < needs:
        raise InputError(
            f"{name} needs {needs} bytes of memory for its elements, and has {has}: its storage "
            f"was resized or let go, or torch keeps the elements elsewhere. Pass a tensor that "
            "holds them"
        )
    if tensor.is_neg() and tensor.device.type != "cpu":
        raise InputError(
            f"{name} is a view in GPU memory whose elements have the other sign there, such as "
            f"z.conj().imag. Pass {name}.resolve_neg()"
        )


def _bytes_of(tensor: Any) -> tuple[int, int]:
    """Return the bytes of a tensor's storage, and the bytes that its elements need."""
    if not tensor.numel():
        return 0, 0
    last = tensor.storage_offset() + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    # Without an address there is no memory, whatever the storage says.
    has = tensor.untyped_storage().nbytes() if tensor.data_ptr() else 0
    return has, (last + 1) * tensor.element_size()


def resolved(a: Any) -> Any:
    """Return a tensor with the signs of its elements in memory, not in a bit of torch's beside it.

    It is a copy if they were not. Anything else is returned as it is.
    """
    return a.resolve_neg() if is_tensor(a) and hasattr(a, "resolve_neg") else a


def as_values(array: ArrayLike, fmt: str | Format, *, name: str = "array") -> Values:
    """Return a user's array as values of an element type; refuse to lose a bit.

    Accepts any real array with elements that the type represents exactly: an array of the type
    itself (``ml_dtypes`` arrays for bf16, e4m3 and e5m2), a wider one that was rounded before, or
    nested lists of numbers and Fractions. For tf32 a float32 array is truncated to 10 fraction
    bits, as by the tensor core (recorded from an H200).

    Parameters
    ----------
    array : array_like, any shape
        Numbers.
    fmt : str or Format
        Element type, such as ``"f16"``.
    name : str
        Name of the array in error messages.

    Returns
    -------
    array of the type's value dtype, same shape; not a copy where none is needed

    Raises
    ------
    InputError
        If the elements are no real numbers, or one cannot be held exactly.
    """
    require_unmasked(name, array)
    target = format_of(fmt)
    given = _as_numbers(array, name)
    source = format_of_dtype(given.dtype)
    if source is not None and source.in_ml_dtypes:
        # ml_dtypes reports signalling NaN, which are nothing to report here.
        with np.errstate(invalid="ignore"):
            given = given.astype(np.float32)
    if source == target:
        return given
    if target.name == "tf32":
        return _cut_to_tf32(_exactly(given, FORMATS["f32"], name))
    return _exactly(given, target, name)


def nearest_values(
    array: ArrayLike, fmt: str | Format, *, name: str = "array"
) -> tuple[Values, Values]:
    """Return a user's array as the nearest values that a type holds, and as it was given.

    As `as_values`, but a float type rounds: nearest, ties to even.

    Raises InputError if the elements are no real numbers, no type of integers holds them, or a
    finite one is beyond the largest of the type.
    """
    require_unmasked(name, array)
    target = format_of(fmt)
    given = _as_numbers(array, name)
    if not target.is_float or format_of_dtype(given.dtype) == target:
        values = as_values(given, target, name=name)
        return values, values
    if given.dtype.kind == "f":
        floats = given
    else:
        # float32 represents all values of ml_dtypes; signalling NaN are not reported.
        with np.errstate(invalid="ignore"):
            floats = given.astype(np.float64 if given.dtype.kind in "biu" else np.float32)
    with np.errstate(all="ignore"):
        values = round_values(floats, target)
        lost = ~np.isfinite(values) & ~same_values(values, floats)
    if lost.any():
        raise InputError(
            f"{name}: {target.name} cannot hold {floats[lost][0]:g}; its largest number is "
            f"{target.largest:g}{'' if target.has_inf else ', and it has no infinity'}"
        )
    return values, floats if given.dtype.kind not in "biu" else given


def round_to_tf32(values: Values, how: Tf32) -> Values:
    """Return float32 values as tf32: truncated, or rounded to nearest with ties as named.

    A NaN stays a NaN.
    """
    if how == "nearest_even":
        return round_values(values, "tf32")
    if how == "cut":
        return _cut_to_tf32(values)
    # Half of the last place more, and cut: fields above it take the carry, up to infinity.
    more = np.ascontiguousarray(values).view(np.uint32) + np.uint32(0x1000)
    away = (more & np.uint32(0xFFFF_E000)).view(np.float32)
    return np.where(np.isfinite(values), away, values)


def from_values(values: Values, fmt: str | Format) -> Values:
    """Return values as the array type a user expects for this element type.

    bf16, e4m3 and e5m2 become ``ml_dtypes`` arrays where that package is installed, and stay
    float32 where it is not; every other type is a NumPy type of its own.
    """
    target = format_of(fmt)
    if not target.in_ml_dtypes:
        if target.memory_dtype != target.dtype:
            # Of a type that no array has, with its one NaN.
            return from_memory(to_memory(values, target), target)
        return values.astype(target.dtype, copy=False)
    try:
        import ml_dtypes
    except ImportError:
        return values.astype(np.float32, copy=False)
    if target.name == "bf16":
        # A cast would not keep the bits of a NaN.
        return to_memory(values, target).view(ml_dtypes.bfloat16)
    with np.errstate(invalid="ignore"):
        return values.astype(np.dtype(getattr(ml_dtypes, target.array_name)))


def as_array(array: ArrayLike, name: str) -> Values:
    """Return an array as a NumPy array; types of torch that NumPy lacks become those of ml_dtypes.

    Raises InputError if the argument is no array, or is in GPU memory.
    """
    if is_tensor(array):
        require_elements(name, array)
    try:
        array = resolved(array)
        exchanged = bits_of_tensor(array)
        return np.asarray(array) if exchanged is None else exchanged
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{name} is not an array of numbers: {error}") from error


def bits_of_tensor(a: Any) -> Values | None:
    """Return a tensor of torch, of a type that NumPy lacks, as an array of ml_dtypes.

    It is on the same memory. None for anything else. Raises InputError without ml_dtypes.
    """
    if isinstance(a, np.ndarray):
        return None
    library, _, name = str(getattr(a, "dtype", "")).partition(".")
    fmt = BY_ARRAY_NAME.get(name)
    if library != "torch" or fmt is None or not fmt.in_ml_dtypes:
        return None
    try:
        import ml_dtypes
    except ImportError as error:
        raise InputError(f"{name} arrays need ml-dtypes: pip install 'tcusim[bf16]'") from error
    integer = getattr(sys.modules["torch"], f"int{8 * fmt.itemsize}")
    bits: Values = np.from_dlpack(a.detach().view(integer))
    tensor: Values = bits.view(np.dtype(getattr(ml_dtypes, name)))
    return tensor


def _as_numbers(array: ArrayLike, name: str) -> Values:
    """Return an array of real numbers; raise an error that says why this is none."""
    given = as_array(array, name)
    if given.dtype.kind in "biuf" or format_of_dtype(given.dtype) is not None:
        return given
    if given.dtype.kind == "O" and not isinstance(array, np.ndarray):
        return _from_objects(given, name)
    raise InputError(
        f"{name} must hold real numbers, got dtype {given.dtype}; "
        f"cast it to a NumPy float or integer type first"
    )


def _from_objects(given: Values, name: str) -> Values:
    """Return big integers and Fractions as float64, provided that nothing is lost."""
    result = np.empty(given.shape, np.float64)
    for index, item in np.ndenumerate(given):
        if not isinstance(item, (int, float, Fraction)):
            where = f" at {list(index)}" if index else ""
            raise InputError(f"{name} must hold real numbers, got {told(item)}{where}")
        try:
            result[index] = held = float(item)
        except OverflowError:
            held = math.inf
        if not isinstance(item, float) and not (math.isfinite(held) and Fraction(held) == item):
            shown = told(item) if isinstance(item, int) else item
            raise InputError(
                f"{name} holds {shown} at {list(index)}, which no float64 equals; round it first"
            )
    return result


def _exactly(given: Values, target: Format, name: str) -> Values:
    """Convert to the type's values; every element must survive."""
    with np.errstate(all="ignore"):
        if target.is_float:
            floats = given if given.dtype.kind == "f" else given.astype(np.float64)
            values = round_values(floats, target)
        else:
            values = given.astype(target.dtype)
        kept = same_values(values, given)
        if not target.has_nan and target.is_float:
            kept &= ~np.isnan(values)
    if bool(kept.all()):
        return values
    first = tuple(int(i) for i in np.argwhere(~kept)[0])
    raise InputError(
        f"{name} is a {given.dtype} array, and {target.name} cannot hold its element "
        f"{list(first)} = {given[first]} exactly; {_remedy(given[~kept], target, name)}"
    )


def _remedy(lost: Values, target: Format, name: str) -> str:
    """Return the remedy for elements that a type does not hold: a cast, if its range has them."""
    if not target.is_float:
        return f"it holds whole numbers from {target.smallest:.0f} to {target.largest:.0f}"
    size = np.abs(lost.astype(np.float64))
    if np.isnan(size).any():
        return "it has no NaN"
    if (size > target.largest).any():
        lacks = "" if target.has_inf else ", and it has no infinity"
        return f"its largest number is {target.largest:g}{lacks}"
    return f"{_advice(name, target)} first"


def _advice(name: str, target: Format) -> str:
    """Return advice on converting an array to the values of a type."""
    if target.in_ml_dtypes or target.memory_dtype == target.dtype:
        return f"cast with {name}.astype({target.array_type})"
    return f"round it with tcusim.machine.round_values({name}, {target.name!r})"


def same_values(values: Values, given: Values) -> Values:
    """Compare element by element without NumPy's rounding of 64-bit integers; NaN equals NaN."""
    if given.dtype.kind == "f":
        return np.asarray((values == given) | (np.isnan(values) & np.isnan(given)))
    if given.dtype.itemsize < 8 or values.dtype.kind != "f":
        return np.asarray(values == given)
    # Beyond 2**53 a float64 would compare equal to integers that it does not hold.
    small = (given <= 2**53) & (given >= -(2**53)) if given.dtype.kind == "i" else given <= 2**53
    return np.asarray((values == given) & small)


def _cut_to_tf32(values: Values) -> Values:
    """Cut float32 values toward zero to tf32; a NaN stays a NaN."""
    bits = values.view(np.uint32) & np.uint32(0xFFFF_E000)
    return np.where(np.isnan(values), values, bits.view(np.float32))
