"""Calls of the array functions, drawn from their signatures, with their expected results.

A call is drawn valid; then, in a part of the cases, one argument is replaced by something odd. A
valid call of plain options has to return; any other may be refused, with a sentence. Whatever
happens, inputs keep their bytes, a refused call leaves `out` alone, and no warning names a line of
tcusim. Results are compared with exact sums of Python's integers.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import tcusim
from asked import OPTIONS, asked
from tcusim.algorithms.registry import algorithms
from tcusim.errors import BackendUnavailable, InputError, VerifyError, told
from tcusim.machine import arch_of
from tcusim.machine.shapes import MmaShape

Array = NDArray[Any]

PACKAGE = str(Path(tcusim.__file__).parent)
# Of bfloat16 too; it has no types for a checker.
FINFO: Any = ml_dtypes.finfo
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = tuple(map(np.dtype, ("float16", "float32", "float64", ml_dtypes.bfloat16)))
INTEGERS = tuple(
    map(np.dtype, ("bool", *(f"{s}int{n}" for n in (8, 16, 32, 64) for s in ("", "u"))))
)
# Around the sizes of tiles, rows, panels and chunks.
LENGTHS = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 255, 256, 257, 1000, 1025, 3000)
TILES = (
    "16x16x16",
    "32x8x16",
    "8x32x16",
    "16x8x16",
    "8x8x4",
    "16x8x8",
    "4x4x4",
    "5x7x3",
    "16x16x1",
)
ARCHES = (
    "volta",
    "turing",
    "ampere",
    "ada",
    "hopper",
    "blackwell",
    "exact",
    "ieee",
    "h100",
    "rtx 4090",
)
# Parameters without a place in a drawn call.
# fmt: off
ODD: tuple[Any, ...] = (
    None, -1, 0, 3.5, math.nan, 2**63, -(2**70), "", "hopper ", "no such name", b"x", (), (1, 2),
    [1], {}, object(), True, 1j, np.float16(3), np.zeros((2, 2)), np.array(["a"]), np.array([1j]),
    np.ma.masked_array([1.0, 2.0], [False, True]), np.array([None]), ...,
    np.datetime64("2020"), slice(3), 10**5000, (10**5000,) * 3,
)
# fmt: on


class Drawn:
    """A drawn case that hypothesis shows by its short repr, not field by field."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@dataclass
class DrawnCall(Drawn):
    """A call, its expected result, and whether it may be refused.

    exact: the exact results, as Python's integers or as float64. error: how far results may be from
    them. known: False where the paper's programs round partial sums. plain: whether it must return.
    reasons: why options may be refused, as patterns of the sentences; without one it must return.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    dtype: np.dtype[Any]
    exact: Array
    error: Array | float = 0.0
    known: bool = True
    plain: bool = True
    odd: list[str] = field(default_factory=list)
    reasons: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Show the call as a user would write it, with the arrays' shapes."""
        given = [shown(one) for one in self.args]
        given += [f"{name}={shown(value)}" for name, value in self.keywords.items()]
        return f"{self.function.__name__}({', '.join(given)})"


def shown(value: Any) -> str:
    """Return a short text of an argument."""
    if not isinstance(value, np.ndarray) or value.size <= 8:
        text = told(value)
        return text if len(text) <= 200 else f"<{type(value).__name__}: {text[:160]}...>"
    how = "" if value.flags.c_contiguous else f", strides {value.strides}"
    return f"<{value.dtype.str} {value.shape}{how}: {value.reshape(-1)[:4]}...>"


def eps_of(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of a type."""
    return float(FINFO(dtype).eps)


def snapshot(value: Any) -> Any:
    """Return the bytes of an array; a call must not change them."""
    return value.tobytes() if isinstance(value, np.ndarray) and value.dtype.kind != "O" else None


def takes_options(function: Callable[..., Any]) -> bool:
    """Return whether a function takes options of tcusim."""
    taken = inspect.signature(function).parameters
    one = taken.get("options", taken.get("more"))
    return one is not None and (one.name == "more" or one.kind is one.KEYWORD_ONLY)


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters, the options beside them."""
    names = list(inspect.signature(function).parameters)
    return [*names, *OPTIONS] if takes_options(function) else names


@dataclass
class By:
    """The arguments of `tcusim.Segments`: it is made in the call, and refused there."""

    keywords: dict[str, Any]

    def __repr__(self) -> str:
        """Show the segments as a user would write them."""
        given = [f"{name}={shown(value)}" for name, value in self.keywords.items()]
        return f"Segments({', '.join(given)})"


def given_to(function: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return drawn keywords as a function takes them: its options in one of them."""
    by = keywords.get("segments")
    if isinstance(by, By):
        keywords = {**keywords, "segments": tcusim.Segments(**by.keywords)}
    return asked(**keywords) if takes_options(function) else keywords


def check(call: DrawnCall) -> str:
    """Make a call and check all that is promised; return "returned" or "refused"."""
    arrays = [*call.args, *call.keywords.values()]
    before = [snapshot(one) for one in arrays]
    out, why = call.keywords.get("out"), ""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = call.function(*call.args, **given_to(call.function, call.keywords))
            if inspect.isgenerator(result):
                result = list(result)
        except (InputError, BackendUnavailable, VerifyError) as error:
            why = str(error)
    if why:
        require_sentence(why)
        given = any(re.search(one, why) for one in call.reasons)
        assert given or not call.plain or call.odd, f"a valid call was refused: {why}"
        assert before == [snapshot(one) for one in arrays], "a refused call changed an array"
        return "refused"
    for one in seen:
        assert issubclass(one.category, RuntimeWarning), one
        assert not str(one.filename).startswith(PACKAGE), f"a warning names {one.filename}: {one}"
    for one, old in zip(arrays, before, strict=True):
        if one is not out or out is None:
            assert snapshot(one) == old, "an input was changed"
    if isinstance(out, np.ndarray):
        assert result is out
    if not call.odd and call.known:
        compare(result, call)
    return "returned"


def require_sentence(text: str) -> None:
    """Assert that an error says something in words."""
    assert len(text.split()) >= 4, f"no sentence: {text!r}"
    assert "Traceback" not in text


def compare(result: Any, call: DrawnCall) -> None:
    """Compare a result with the exact one, rounded to its type."""
    exact = call.exact
    found = np.asarray(result)
    assert found.dtype == call.dtype, f"{found.dtype}, not {call.dtype}"
    assert found.shape == exact.shape, f"{found.shape}, not {exact.shape}"
    if call.dtype.kind in "iub":
        wrapped = np.array([wrap(int(x), call.dtype) for x in exact.reshape(-1)], object)
        np.testing.assert_array_equal(found.reshape(-1).astype(object), wrapped)
        return
    wide = exact.astype(np.float64)
    if np.any(call.error):
        finite = np.isfinite(wide)
        np.testing.assert_array_equal(found.astype(np.float64)[~finite], wide[~finite])
        apart = np.abs(found.astype(np.float64) - wide)[finite]
        allowed = np.broadcast_to(call.error, wide.shape)[finite]
        beyond = np.abs(wide[finite]) + allowed >= float(FINFO(call.dtype).max)
        assert ((apart <= allowed) | beyond).all(), f"off by {apart.max()}, allowed {allowed.max()}"
        return
    with np.errstate(over="ignore"):
        rounded = wide.astype(call.dtype)
    np.testing.assert_array_equal(found.astype(np.float64), rounded.astype(np.float64))


def wrap(value: int, dtype: np.dtype[Any]) -> int:
    """Return an integer modulo the size of its type, as NumPy's additions do."""
    if dtype.kind == "b":
        return int(bool(value))
    bits = 8 * dtype.itemsize
    value %= 1 << bits
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


# --- Arrays ---------------------------------------------------------------------------------------


@st.composite
def shapes(draw: st.DrawFn, most: int = 4000) -> tuple[int, ...]:
    """Draw a shape: of one axis, mostly."""
    axes = draw(st.sampled_from((1, 1, 1, 2, 2, 3, 0)))
    shape: list[int] = []
    for _ in range(axes):
        # Beside an axis of no elements the others make results too.
        room = most // math.prod(max(1, n) for n in shape)
        shape.append(draw(st.sampled_from([n for n in LENGTHS if n <= room] or [1])))
    return tuple(draw(st.permutations(shape)))


def values(draw: st.DrawFn, shape: tuple[int, ...], dtype: np.dtype[Any], kind: str) -> Array:
    """Draw elements: small integers; floats of many sizes; any integers; or infinities and NaN."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu" and kind != "small":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    if kind in ("small", "special") or dtype.kind in "iu":
        x = rng.integers(0 if dtype.kind == "u" else -3, 4, shape).astype(dtype)
        if kind == "special" and x.size:
            place = rng.integers(0, x.size, rng.integers(1, 4))
            x.reshape(-1)[place] = rng.choice([np.inf, -np.inf, np.nan, -0.0], place.size)
        return x
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))
    return np.asarray(x).astype(dtype)


def laid_out(draw: st.DrawFn, x: Array) -> Any:
    """Draw how an array lies in memory."""
    how = draw(
        st.sampled_from(
            ("c",) * 8 + ("f", "every second", "reversed", "other order", "frozen", "list")
        )
    )
    if how == "f" and x.ndim:
        return np.asfortranarray(x)
    if how == "every second" and x.ndim:
        wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    if how == "reversed" and x.ndim:
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    if how == "other order" and x.dtype != BFLOAT16:
        return x.astype(x.dtype.newbyteorder())
    if how == "frozen":
        x.flags.writeable = False
    if how == "list" and x.size < 300 and x.dtype in (np.dtype(np.float64), np.dtype(np.int64)):
        return x.tolist() if x.size else x
    return x


# --- Sums and scans -------------------------------------------------------------------------------


def result_type(given: np.dtype[Any], dtype: Any) -> np.dtype[Any]:
    """Return the type of the result of a sum, NumPy's wide integer for integers."""
    if dtype is not None:
        named: np.dtype[Any] = np.dtype(dtype)
        return named
    if given.kind in "fV":
        return given
    return np.dtype(np.uint64 if given.kind == "u" else np.int64)


def pick(draw: st.DrawFn, usual: Any, others: Sequence[Any], odds: int = 3) -> Any:
    """Draw the usual value, or in one of `odds` cases another."""
    return draw(st.sampled_from(others)) if draw(st.integers(1, odds)) == odds else usual


def drawn_options(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """Draw the options of the arithmetic."""
    given: dict[str, Any] = {}
    if tile := pick(draw, None, TILES):
        shape = tcusim.shape_of(tile)
        spelled = (tile, shape.ptx, (shape.m, shape.n, shape.k), shape)
        given["tile"] = draw(st.sampled_from(spelled))
    if arch := pick(draw, None, ARCHES):
        given["arch"] = arch
    if acc := pick(draw, None, ("f16", "f32"), 8):
        given["acc"] = acc
    rows = [one for one in algorithms() if one.kind == kind]
    names = [one.name for one in rows] + [one.alias for one in rows if one.alias]
    if name := pick(draw, None, names, 6):
        given["algorithm"] = name
    if kind in ("reduction", "scan") and pick(draw, False, (True,), 6):
        given["bits"] = "exact"
    return given


def reasons(kind: str, given: np.dtype[Any], keywords: dict[str, Any], size: int) -> Iterator[str]:
    """Yield the reasons why a call of these options may be refused, as patterns of sentences.

    size: the most elements of a segment; of a product the columns of its right factor.
    """
    named, acc = keywords.get("algorithm"), keywords.get("acc")
    wanted = np.dtype(keywords.get("dtype") or given)
    # Where float64 is the type of the array or of the computation, the latter is the named one.
    work = wanted if np.dtype(np.float64) in (given, wanted) else given
    is_exact = keywords.get("bits") == "exact"
    in_doubles = work == np.float64 and given.kind in "fV" and not is_exact
    if acc == "f16" and work != np.float16:
        yield "acc 'f16' is for float16 input"
    if acc == "f16" and is_exact:
        yield "acc 'f16' rounds after every product"
    # The factors: any of these pairs will do.
    pairs = {
        "float16": [("f16", acc or "f32")],
        "bfloat16": [("bf16", "f32")],
        "float32": [("bf16", "f32"), ("f16", "f32")],
        "float64": [("f64", "f64")],
    }.get(work.name, [])
    if fixed := is_exact or given.kind not in "fV":
        pairs = [("s8", "s32"), ("f16", "f32")]
    adds = kind != "product" and not fixed
    adds &= named is None or tcusim.algorithm_of(named).adds_rows
    of_arch = [one for one in pairs if multiplies(keywords.get("arch", "hopper"), *one)]
    tile = tcusim.shape_of(keywords.get("tile") or ("8x8x4" if in_doubles else "16x16x16"))
    added = adds and (work == np.float32 or not of_arch)
    if not of_arch and not (adds and in_doubles):
        yield "have no bf16|multiplies no float64"
    elif not added and not any(tile.supports(*one) for one in of_arch):
        yield f"tiles of {tile.name} do not do: .* does not take"
    if named is not None:
        if acc == "f16" and "mma" not in tcusim.algorithm_of(named).combines:
            yield f"'{named}' adds partial sums, and acc 'f16' asks for the paper's"
        yield from _reasons_of_algorithm(named, tile, pairs, size)


def multiplies(arch: str, ab: str, acc: str) -> bool:
    """Return whether an architecture multiplies these types, by the table of its rules."""
    return any((row.ab, row.acc) == (ab, acc) for row in arch_of(arch).rows)


def _reasons_of_algorithm(
    name: str, tile: MmaShape, pairs: list[tuple[str, str]], size: int
) -> Iterator[str]:
    """Yield why an algorithm may be refused, by its row of the registry."""
    row = tcusim.algorithm_of(name)
    if name == row.alias != row.name and tile.k != 16:
        yield f"'{name}' is the paper's name for k = 16"
    if row.kind == "product":
        if name.startswith("gemv") and size != 1:
            yield f"'{name}' multiplies a matrix by one vector"
        return
    longest = row.longest(max(tile.m, tile.n), tile.k)
    if longest is not None and size > longest:
        yield rf"{row.name} (sums|scans) segments of at most .*{longest} elements"
    if name.endswith("_short") and len(pairs) > 1:
        yield "f32 elements are several bf16 operands each, and panels multiply only one"
    if (name == row.alias or row.combines == ("mma",)) and len(pairs) > 1:
        # Parts of numbers, and digits, are not rounded to operands.
        yield f"'{name}' is run as (the paper prints it|printed)|takes one part; take"
        yield f"'{name}' rounds partial sums to float16, and on "


@st.composite
def segment_calls(draw: st.DrawFn, name: str) -> DrawnCall:
    """Draw a sum or a scan."""
    kind = "scan" if "cum" in name else "reduction"
    scans, segmented = kind == "scan", name.startswith("segmented")
    given = draw(st.sampled_from(FLOATS * 2 + INTEGERS))
    family = draw(st.sampled_from(("small", "small", "floats", "special")))
    shape = draw(shapes())
    if not shape and name not in ("sum", "cumsum"):
        shape = (draw(st.sampled_from(LENGTHS)),)
    x = np.asarray(values(draw, shape, given, family))
    if isinstance(a := laid_out(draw, x), list):
        given = x.dtype
    keywords = drawn_options(draw, kind)
    dtype = None
    if given.kind in "fV":
        dtype = pick(draw, None, FLOATS)
    elif pick(draw, False, (True,)):
        dtype = draw(st.sampled_from((*FLOATS, *map(np.dtype, ("int64", "uint64", "int32")))))
    if dtype is not None:
        keywords["dtype"] = draw(
            st.sampled_from((dtype, dtype.name if dtype != BFLOAT16 else dtype))
        )
    axis = _axis(draw, name, shape)
    if axis is not ...:
        keywords["axis"] = axis
    edges = order = None
    if segmented:
        edges, order = _segments(draw, shape[keywords.get("axis", -1)], keywords)
    if scans:
        _order(draw, keywords, result_type(given, keywords.get("dtype")))
    elif name == "sum" and pick(draw, False, (True,)):
        keywords["keepdims"] = True
    if name == "sum" and pick(draw, False, (True,), 5):
        keywords["where"] = _mask(draw, shape)
    call = _expected(getattr(tcusim, name), (a, x), keywords, (edges, order), family)
    longest = _longest(shape, keywords, edges)
    call.reasons = tuple(reasons(kind, given, keywords, longest))
    _with_out(draw, call, x, scans=scans)
    _spoil(draw, call)
    return call


def _longest(shape: tuple[int, ...], keywords: dict[str, Any], edges: list[int] | None) -> int:
    """Return the elements of the longest segment."""
    if edges is not None:
        return max(last - first for first, last in itertools.pairwise(edges))
    axis = keywords.get("axis")
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(shape[one] for one in axes if shape)


def _expected(
    function: Callable[..., Any],
    arrays: tuple[Any, Array],
    keywords: dict[str, Any],
    segments: tuple[list[int] | None, Array | None],
    family: str,
) -> DrawnCall:
    """Return the call of a sum or scan, with its expected result.

    arrays: the argument, and NumPy's array of it. segments: offsets, and the elements' order.
    """
    a, x = arrays
    given, scans = x.dtype, "cum" in function.__name__
    result = result_type(given, keywords.get("dtype"))
    exact, size, length = _exact(x, keywords, *segments, scans=scans)
    call = DrawnCall(function, (a,), keywords, result, exact)
    if _beyond(size, keywords, given, family):
        call.known = False
    elif family == "floats" and result.kind in "fV":
        call.error = _allowed(size, exact, length, result)
        if given == np.float64 != result:
            # As NumPy does, the elements are rounded to the type of the computation.
            call.error = call.error + eps_of(result) * size.astype(np.float64)
    # NumPy refuses a change of the kind of number, and so may we.
    call.plain = keywords.get("initial") != -2 or given.kind != "u"
    call.plain &= family != "special" or result.kind in "fV"
    return call


def _order(draw: st.DrawFn, keywords: dict[str, Any], result: np.dtype[Any]) -> None:
    """Draw the order of a scan, and its initial value."""
    for flag in ("exclusive", "reverse"):
        if pick(draw, False, (True,)):
            keywords[flag] = True
    longer = not keywords.get("exclusive") and "sort" not in _by(keywords)
    if pick(draw, False, (True,), 5) and longer:
        keywords["include_initial"] = True
    elif pick(draw, False, (True,), 4) and "algorithm" not in keywords:
        keywords["initial"] = draw(st.sampled_from((1, 2 if result.kind == "u" else -2, 3)))


def _by(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the segments of a call, if they are an object."""
    by = keywords.get("segments")
    return by.keywords if isinstance(by, By) else {}


def _beyond(size: Array, keywords: dict[str, Any], given: np.dtype[Any], family: str) -> bool:
    """Return whether a named program or accumulator may round partial sums."""
    if given.kind not in "fV" or not {"acc", "algorithm"} & keywords.keys():
        return False
    wide = np.nan_to_num(size.astype(np.float64), nan=0, posinf=0)
    return family == "floats" or bool(
        np.max(wide, initial=0) > (2**8 if given == BFLOAT16 else 2**11)
    )


def _axis(draw: st.DrawFn, name: str, shape: tuple[int, ...]) -> Any:
    """Draw an axis, several for a sum; ... leaves it out."""
    if name.startswith("segmented") or name == "cumulative_sum":
        single = [*range(-len(shape), len(shape))]
        left_out = name != "cumulative_sum" or len(shape) == 1
        return pick(draw, ... if left_out else -1, single)
    if not shape:
        return ...
    choices: list[Any] = [None, *range(-len(shape), len(shape))]
    if name == "sum":
        choices += [
            tuple(range(len(shape))),
            tuple(draw(st.permutations(range(len(shape))))[:2]),
            (),
        ]
    return pick(draw, ..., choices, 2)


def _mask(draw: st.DrawFn, shape: tuple[int, ...]) -> Array:
    """Draw the mask of a sum, of the shape of the array or broadcast to it."""
    kept = shape[draw(st.integers(0, len(shape))) :]
    return np.asarray(np.random.default_rng(draw(st.integers(0, 99))).random(kept) < 0.5)


def _segments(
    draw: st.DrawFn, length: int, keywords: dict[str, Any]
) -> tuple[list[int], Array | None]:
    """Draw segments of an axis; return the offsets, and the order that puts elements into it."""
    how = draw(st.sampled_from(("size", "offsets", "parts", "lengths", "ids")))
    if how == "size" and length:
        size = draw(st.sampled_from([n for n in LENGTHS if 1 <= n <= length] or [1]))
        keywords["segments"] = size
        return [*range(0, length, size), length], None
    keywords.pop("algorithm", None)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.sampled_from((1, 2, 3, 7, 40)))
    inner = np.sort(rng.integers(0, length + 1, count - 1))
    edges = [0, *(int(one) for one in inner), length]
    kind = draw(st.sampled_from((np.int64, np.int32, np.uint16, list)))
    as_given = list if kind is list else kind
    if how == "ids" and length:
        ids, order = np.repeat(np.arange(count), np.diff(edges)), None
        by: dict[str, Any] = {"count": count}
        if draw(st.booleans()):
            by["sort"] = True
            ids = rng.permutation(ids)
            order = np.argsort(ids, kind="stable")
        by["ids"] = ids.tolist() if as_given is list else ids.astype(kind)
        keywords["segments"] = By(by)
        return edges, order
    numbers = np.diff(edges).tolist() if how == "lengths" else edges
    given: Any = numbers if as_given is list else np.array(numbers, kind)
    if how not in ("parts", "lengths"):
        keywords["segments"] = given
        return edges, None
    parts = {"lengths" if how == "lengths" else "offsets": given}
    parts |= pick(draw, {}, ({"check": False}, {"longest": max(1, length)}), 2)
    keywords["segments"] = By(parts)
    return edges, None


def _exact(
    x: Array,
    keywords: dict[str, Any],
    edges: list[int] | None,
    order: Array | None,
    *,
    scans: bool,
) -> tuple[Array, Array, int]:
    """Return exact results, the sums of magnitudes beside each, and the longest sum's length."""
    wide = x.astype(object if x.dtype.kind in "iub" else np.float64)
    if "where" in keywords:
        wide = np.where(keywords["where"], wide, 0)
    axis = keywords.get("axis", -1 if edges is not None else None)
    if edges is None and not scans:
        how = {"axis": axis, "keepdims": keywords.get("keepdims", False)}
        with np.errstate(invalid="ignore"):
            found, size = (np.asarray(np.sum(one, **how)) for one in (wide, np.abs(wide)))
        return found, size, x.size
    if axis is None:
        wide, axis = wide.reshape(-1), 0
    rows = np.moveaxis(wide, axis, -1)
    if order is not None:
        rows = rows[..., order]
    cuts = [0, rows.shape[-1]] if edges is None else edges
    parts, sizes = [], []
    for first, last in itertools.pairwise(cuts):
        piece = rows[..., first:last]
        with np.errstate(invalid="ignore"):
            total = np.abs(piece).sum(axis=-1, keepdims=True) + abs(keywords.get("initial", 0))
            parts.append(_scan(piece, keywords) if scans else piece.sum(axis=-1, keepdims=True))
        sizes.append(np.broadcast_to(total, parts[-1].shape))
    results = [np.concatenate(one, axis=-1) for one in (parts, sizes)]
    if order is not None and scans:
        back = np.argsort(order)
        results = [one[..., back] for one in results]
    found, size = (np.moveaxis(one, -1, axis) for one in results)
    return found, size, rows.shape[-1]


def _scan(piece: Array, keywords: dict[str, Any]) -> Array:
    """Return the scan of the last axis as keywords ask for."""
    reverse = keywords.get("reverse", False)
    x = piece[..., ::-1] if reverse else piece
    edge = np.full((*x.shape[:-1], 1), keywords.get("initial", 0), dtype=x.dtype)
    found = np.cumsum(np.concatenate([edge, x], axis=-1), axis=-1)
    if not keywords.get("include_initial"):
        found = found[..., :-1] if keywords.get("exclusive") else found[..., 1:]
    return found[..., ::-1] if reverse else found


def _allowed(bound: Array, found: Array, length: int, result: np.dtype[Any]) -> Array:
    """Return a loose bound on the error of a sum: a wrong term shows, a rounding does not."""
    with np.errstate(invalid="ignore", over="ignore"):
        own = eps_of(result) if result.kind in "fV" else 0.0
        wide = np.nan_to_num(np.abs(found.astype(np.float64)), nan=0, posinf=0)
        size = np.nan_to_num(np.abs(bound.astype(np.float64)), nan=0, posinf=0)
        return own * (wide + 2.0**-14) + (length + 8) * 2.0**-21 * size


def _with_out(draw: st.DrawFn, call: DrawnCall, x: Array, *, scans: bool) -> None:
    """Draw an array for the result."""
    if not pick(draw, False, (True,), 5):
        return
    a = call.args[0]
    like = (call.exact.shape, call.dtype)
    if scans and isinstance(a, np.ndarray) and (a.shape, a.dtype) == like and a.flags.writeable:
        call.keywords["out"] = a
        return
    call.keywords["out"] = np.full(call.exact.shape, 7, call.dtype)


def _spoil(draw: st.DrawFn, call: DrawnCall) -> None:
    """Replace an argument, in a part of the calls."""
    if not pick(draw, False, (True,), 4):
        return
    parameters = parameters_of(call.function)
    name = draw(st.sampled_from([one for one in parameters if one not in ("more", "report")]))
    value: Any = draw(st.sampled_from(ODD))
    call.odd.append(name)
    if name == "segments" and bool(by := _by(call.keywords)) and draw(st.booleans()):
        names = ("offsets", "lengths", "ids", "count", "longest", "sort")
        call.keywords[name] = By({**by, draw(st.sampled_from(names)): value})
        return
    place = parameters.index(name)
    if place < len(call.args):
        call.args = (*call.args[:place], value, *call.args[place + 1 :])
    else:
        call.keywords[name] = value


@st.composite
def per_segment_calls(draw: st.DrawFn, name: str) -> DrawnCall:
    """Draw a mean, a maximum or a minimum of segments."""
    given = draw(st.sampled_from(FLOATS * 2 + INTEGERS))
    shape = (*draw(st.sampled_from(((), (3,), (2, 1)))), draw(st.sampled_from(LENGTHS)))
    x = np.asarray(values(draw, shape, given, draw(st.sampled_from(("small", "floats")))))
    keywords: dict[str, Any] = {}
    edges, order = _segments(draw, shape[-1], keywords)
    rows = x if order is None else x[..., order]
    parts = [rows[..., first:last] for first, last in itertools.pairwise(edges)]
    result, error = given, 0.0
    if name == "segmented_mean":
        result = given if given.kind in "fV" else np.dtype(np.float64)
        with np.errstate(invalid="ignore"):
            found = [part.astype(np.float64).sum(-1) / np.float64(part.shape[-1]) for part in parts]
            most = float(np.abs(x.astype(np.float64)).max(initial=0))
        error = most * (eps_of(result) + (shape[-1] + 8) * 2.0**-21)
    else:
        greatest = name == "segmented_max"
        pick_one, start = (np.max, _least(given)) if greatest else (np.min, _most(given))
        found = [pick_one(part, axis=-1, initial=start) for part in parts]
    kind = object if result.kind in "iub" else np.float64
    exact = np.stack([np.asarray(one).astype(kind) for one in found], axis=-1)
    call = DrawnCall(getattr(tcusim, name), (laid_out(draw, x),), keywords, result, exact, error)
    _with_out(draw, call, x, scans=False)
    _spoil(draw, call)
    return call


def _least(dtype: np.dtype[Any]) -> Any:
    """Return the identity of the maximum."""
    if dtype.kind == "b":
        return False
    return dtype.type(-np.inf) if dtype.kind in "fV" else np.iinfo(dtype).min


def _most(dtype: np.dtype[Any]) -> Any:
    """Return the identity of the minimum."""
    if dtype.kind == "b":
        return True
    return dtype.type(np.inf) if dtype.kind in "fV" else np.iinfo(dtype).max


@st.composite
def plans_of(draw: st.DrawFn, operation: str) -> tuple[dict[str, Any], Array]:
    """Draw the keywords of a plan of a sum or scan, and an array of it."""
    dtype = draw(st.sampled_from((*FLOATS, *map(np.dtype, ("int8", "int32")))))
    length = draw(st.sampled_from((1, 5, 16, 100, 256, 1025, 4096)))
    keywords = drawn_options(draw, "scan" if "cum" in operation else "reduction")
    keywords.pop("algorithm", None)
    keywords |= {"operation": operation, "length": length, "dtype": dtype}
    if operation.startswith("segmented"):
        keywords["segments"] = draw(st.sampled_from((1, 2, 5, 8, 16, 17, 100, 256, 5000)))
    if operation.endswith("cumsum"):
        keywords |= {name: draw(st.booleans()) for name in ("exclusive", "reverse")}
    return keywords, np.asarray(values(draw, (length,), dtype, "floats"))


def check_strategies(drawn: tuple[dict[str, Any], Array]) -> str:
    """Follow every strategy: the chosen one can be named, and all that apply have its bits."""
    keywords, x = drawn
    chosen, why = _planned(keywords)
    if chosen is None:
        valid = [*reasons("", x.dtype, keywords | {"dtype": None}, x.size)]
        if keywords.get("segments", 1) > x.size:
            valid.append("^segments=.* is longer than the axis")
        assert any(re.search(one, why) for one in valid), f"{keywords}: {why}"
        return "refused"
    bits = chosen(x).tobytes()
    for name in ("short", "panels", "single_pass"):
        plan, why = _planned(keywords | {"strategy": name})
        if plan is not None:
            assert plan(x).tobytes() == bits, f"{keywords}: {name} has other bits"
            continue
        assert name != chosen.strategy, f"{keywords}: the chosen strategy is refused: {why}"
        assert re.search("does not apply to .* it is for segments", why), why
    return "returned"


def _planned(keywords: dict[str, Any]) -> tuple[tcusim.Plan | None, str]:
    """Return a plan, or why there is none."""
    try:
        return tcusim.plan(**asked(**keywords)), ""
    except InputError as error:
        return None, str(error)


# --- Products -------------------------------------------------------------------------------------


@st.composite
def product_calls(draw: st.DrawFn, name: str) -> DrawnCall:
    """Draw a product of matrices, or of a matrix and a vector."""
    function = getattr(tcusim, name)
    given, other = (draw(st.sampled_from(FLOATS * 2 + INTEGERS)) for _ in range(2))
    if pick(draw, True, (False,)):
        other = given
    # An integer beside a float is cast to its type, and may not fit.
    alike = (given.kind in "fV") == (other.kind in "fV")
    family = draw(st.sampled_from(("small", "small", "floats"))) if alike else "small"
    m, k, n = (draw(st.sampled_from((0, 1, 2, 5, 8, 16, 17, 31, 33, 64, 100))) for _ in range(3))
    batch = draw(st.sampled_from(((), (), (), (2,), (1, 3), (2, 1))))
    left = draw(
        st.sampled_from(((m, k), (m, k), (*batch, m, k), (k,) if name == "matmul" else (m, k)))
    )
    right: tuple[int, ...]
    right = (k,) if name == "matvec" or pick(draw, False, (True,), 5) else (k, n)
    if name == "matmul" and len(left) > 1 and len(right) > 1 and draw(st.booleans()):
        right = (*draw(st.sampled_from(((), (3,), (2, 1)))), *right)
    if len(left) > 2 and len(right) > 2:
        right = right[-2:]
    a, b = (values(draw, shape, dtype, family) for shape, dtype in ((left, given), (right, other)))
    a, b = np.asarray(a), np.asarray(b)
    keywords, refused = drawn_options(draw, "product"), ""
    try:
        common = np.result_type(given, other)
    except TypeError:
        common, refused = given, "have no common type"
    mixed = given != other and {given, other} & {BFLOAT16}
    dtype = pick(draw, None, FLOATS) if common.kind in "fV" else None
    if dtype is not None:
        keywords["dtype"] = dtype
    wide = [x.astype(object if x.dtype.kind in "iub" else np.float64) for x in (a, b)]
    exact = np.asarray(np.matmul(*wide))
    size = np.asarray(np.matmul(*(np.abs(x) for x in wide)))
    if k == 0:
        exact, size = (
            np.zeros(exact.shape, common if common.kind in "fV" else object) for _ in "ab"
        )
    result = result_type(common, dtype)
    call = DrawnCall(function, (laid_out(draw, a), laid_out(draw, b)), keywords, result, exact)
    cols = right[-1] if len(right) > 1 else 1
    call.reasons = tuple(reasons("product", common, keywords, cols))
    call.reasons += (refused,) if refused else ()
    # Integers of two kinds are multiplied as float64, and rounded to `dtype`.
    largest = max(
        (float(np.max(np.abs(x), initial=0)) for x in wide if x.dtype == object), default=0
    )
    if result.kind in "fV" and largest > float(FINFO(result).max):
        call.reasons += ("holds values beyond the range of ",)
    call.known = not mixed and not _beyond(size, keywords, common, family)
    if family == "floats" and result.kind in "fV":
        call.error = 2 * _allowed(size, exact, k, result)
        if common == np.float64 != result:
            call.error = call.error + 2 * eps_of(result) * size.astype(np.float64)
    if call.known and pick(draw, False, (True,), 4):
        c = draw(st.sampled_from((2, values(draw, exact.shape, common, "small"))))
        call.args = (*call.args, c)
        added = c if isinstance(c, int) else np.asarray(c).astype(exact.dtype)
        call.exact = np.asarray(exact + added)
        call.known = not _beyond(np.asarray(size + 3), keywords, common, family)
        if np.any(call.error):
            call.error = call.error + 4 * eps_of(result)
    _with_out(draw, call, a, scans=False)
    _spoil(draw, call)
    return call


# --- Every other function -------------------------------------------------------------------------

# Functions that open files, fill registries, or take minutes have tests of their own.
# fmt: off
APART = {
    "accuracy_of", "explore", "options", "probe_unit", "read_unit", "register_algorithm",
    "register_arch", "register_backend", "register_shape", "register_unit", "validate",
    "validate_shape",
}
SEGMENT_CALLS = ("sum", "cumsum", "cumulative_sum", "segmented_sum", "segmented_cumsum")
PER_SEGMENT = ("segmented_mean", "segmented_max", "segmented_min")
PRODUCTS = ("matmul", "matvec")
OTHERS = tuple(
    name
    for name in tcusim.__all__
    if inspect.isfunction(getattr(tcusim, name))
    and name not in {*APART, *SEGMENT_CALLS, *PER_SEGMENT, *PRODUCTS}
)
_USUAL: dict[str, Any] = {
    "tile": TILES, "shape": (*TILES, (16, 16, 16), tcusim.MmaShape(3, 4, 5), "m16n8k16"),
    "arch": (*ARCHES, ("volta", "hopper")), "backend": (None, "numpy"),
    "algorithm": tuple(one.name for one in algorithms()), "unit": ("h200", "v100", "ieee"),
    "ab": ("f16", "bf16", "tf32", "f64", "s8", "e4m3", "e5m2", "f32", ""),
    "acc": ("f32", "f16", "f64", "s32"), "family": ("", "mma.sync", "wgmma", "wmma"),
    "operation": ("sum", "cumsum", "segmented_sum", "segmented_cumsum", "matmul", "matvec"),
    "length": (1, 5, 256, 1000, 4096, 2**20), "segment_size": (None, 1, 5, 16, 256, 1000),
    "segments": (None, 1, 5, 16, 256, 1000, tcusim.Segments(count=7),
                 tcusim.Segments(count=300, longest=16)), "rows": (1, 5, 16, 100),
    "inner": (1, 5, 16, 100), "cols": (None, 1, 5, 16),
    "dtype": (*FLOATS, "float16", None, "int8", "int64"),
    "result": (None, "float16", "float32", "f32", "f16"), "strategy": (None, "panel", "short"),
    "bits": ("segment", "exact"), "axis": (-1, 0, 1), "operand": ("a", "b", "c", "d"),
    "order": (None, "row", "col", ""), "side": (None, "a", "b"), "combine": (None, "mma", "add"),
    "source": (None, "f16", "f32"), "part": (None, "sum"), "accumulation_length": (None, 1, 4),
    "warps": (1, 2, 4), "items_per_warp": (1, 2), "blocks": ((), 0), "first": (1, 2),
    "last": (None, 3), "limit": (10, 10000), "cell": (None, (0, 0), (15, 15)), "k": (1, 16, 100),
    "steps": ((0,), (0, 8)), "vector": (8, 4), "name": ("reduction_k", "scan_16", "scan_256n"),
    "warps_at_once": (1, 1024), "block_order": ("ascending", "descending", "shuffled"),
    "seed": (0, 3), "full": (False,), "sizes": (None, {}, {"length": 100}),
    "cached": (None, True, False), "orders": (None, ()),
    "op": ("mma", "mma", "reduction", "scan"), "count": (1, 5, 20),
    "scale_a": (None, None, np.ones((5, 1), np.float32)), "scale": ("ue8m0", "ue4m3"),
    "scale_b": (None, None, np.ones((1, 5), np.float32)), "kind": ("", "mxf8f6f4", "mxf4nvf4"),
    "options": (None, {}, tcusim.Options(), {"arch": "ampere"}, tcusim.Options(tile="8x32x16")),
}
# The options that each of the other functions takes.
OPTIONS_OF = {
    "plan": ("backend", "tile", "arch", "acc", "algorithm", "bits", "strategy"),
    "plan_product": ("backend", "tile", "arch", "acc", "algorithm", "strategy"),
    "cut_size": ("tile", "arch"),
    "partials": ("backend", "tile", "arch"),
}
_FLAGS = {
    "exclusive", "include_initial", "reverse", "initial", "masked", "usual", "add_c", "check",
    "exact_inputs",
}
# Why usual values may be refused that do not go together: sentences of each function, as patterns.
_PAIR = (
    "^unknown architecture \\('volta', 'hopper'\\)",
    "^arch must be a name, got \\('volta', 'h",
)
_TYPES = (
    *_PAIR, "^acc 'f16' is for float16 input[,;] ",
    r"accumulates in \w+( or \w+)* here$", r"no rule for \w+ operands; this arch", r"use arch '",
    "^acc 'f16' rounds after every product, bits 'exact' once; choose one$",
    "^unknown accumulator '", "^unknown type '(float.*)?'\\.", "does not take .* It takes: ",
    r"^\w+x\w+ has no .*; it has ", "has no mma.sync m.* is the first$",
    r"w\w+ does not take \w+; ", "has no wmma m.* with \\w+; sm_.* is the first$",
    r"^\w+ multiplies no float64\. Give ", "tensor cores have no integers \\(sm_72 is the first",
)
_SIZES = (
    *_PAIR,
    "is not a multiple of .*, the elements that one block takes", "inputs must be (a, b|in); got ",
    "^backend must be a backend or its name, got None", "there is no warp .*; the grid has",
)
_SCALES = (
    "has no products of .*; it has ", "^a scale is of [0-9]+ products, and the tile ",
    "scales name the instruction$",
)
_FACTORS = (
    r"with the same k; got \(", "must agree in k: ", "must have at least 2 dimensions ",
    r"^c must be ", "^got (comes first: |must be the product, |cannot be|.* no output that adds)",
    "^the result cannot be of u?int", "are exact in every order, and none is to be told",
    "^a has elements of .*, by which no tensor core multiplies floats", "^an order must be a GemmO",
)
REFUSED: dict[str, tuple[str, ...]] = {
    "build": (*_TYPES, "cannot be split into parts of ", "a float is never made an integer",
              "integers are. Leave the branch out",
              "^scan_t scans segm", "^part must be one of", "combine '", "has no segments; leave",
              "takes one chunk: items_per_warp=1", "combines by mma and takes one part; take ",
              "(sum|scan)s segments of at most ",
              "^float64 adds rows of f16 or f64 elements without prod",
              "is not split into parts of ", "^memory holds no tf32",
              "^sums of f16 are not split into parts of ",
              "^f32 elements are several .* operands each",
              "^scan_single_pass needs a power of 2 of data rows, "),
    "carries": ("^axis 1 is out of range",),
    "combine": ("^sums of .* are no parts of a sum in ", "^there are no partial sums to combine",
                "^axis 1 is out of range"),
    "cost": (*_SIZES, "^target must be a plan or a program, got 'cumsum'", "say how many elements",
             "which knows its sizes: leave out length and sizes"),
    "cut_size": (*_TYPES, "^operation must be 'sum' or 'cumsum', got "),
    "explain": (*_TYPES, "a and b must be vectors, or matrices with a cell", "^c must be one numb",
                "of two matrices, cell must say which", "with a cell, a must be ", "of cell must"),
    "explain_matmul": (*_TYPES, *_FACTORS, "^explain_matmul takes one product: ",
                       "^orders names none to try; leave"),
    "golden_header": (*_TYPES, *_SCALES, r"^the unit \w+ has no tile"),
    "golden_vectors": (*_TYPES, *_SCALES, r"^the unit \w+ has no tile",
                       "is of a reduction or a scan; op ", "^block scales are of single mma: ",
                       "is of the kind '.*', and these vectors are of op ",
                       *("segments of at most ", "needs more result columns than k")),
    "interpret": _SIZES,
    "layout": (*_TYPES, "^wgmma takes operands from ", "^no GPU has the shape ",
               "^unknown order None", "takes . by (columns|rows) only", "^nobody told where ",
               "^there are maps of NVIDIA's GPUs alone"),
    "mma": (*_TYPES, *_FACTORS, "^scale_[ab] ", "^scale and kind are those of block scales",
            "has none with block scales$"),
    "partials": (*_TYPES, "^a piece without elements has no partial sums; leave it out$",
                 "^axis 1 is out of range", "^operation must be 'sum' or 'cumsum', got "),
    "plan": (*_TYPES, "is a product; plan it with", "needs segments: ", "as one segment; leave",
             "is for scans, and .* is none", "^'.*' is a .*, and this is a ",
             "^unknown strategy '(panel|short)'", "does not apply to ", "^give algorithm or strat",
             "^segments=.* is longer than the axis", "(sum|scan)s segments of at mo",
             "initial has launches of its own, and algorithm ",
             "adds partial sums, and acc 'f16' asks for the paper's",
             "elements are summed exactly in pieces, and '",
             "^include_initial begins each segment with 0, and initial with another value",
             "^exclusive and include_initial both begin with 0: leave one of them out",
             "goes with segments of one size; those by offsets have launches of their own",
             "adds values of the accumulator's type, .*; it combines the partial sums of other "),
    "plan_product": (*_TYPES, "multiplies a matrix by one vector, and b has ",
                     "does not apply to ", "^unknown operation '",
                     "^'matmul' needs cols, ", "has no segments;",
                     "^unknown strategy '(panel|short)'", "^give algorithm or strategy",
                     "^'.*' is a .*, and this is a product"),
    "predict_matmul": (*_TYPES, *_FACTORS),
    "run": _SIZES,
    "trace": _SIZES,
}
# fmt: on


def _matrix(draw: st.DrawFn) -> Array:
    """Draw a matrix; of 16 x 16 numbers of float16, mostly, so that several go together."""
    types = (*FLOATS, np.dtype(np.int8), np.dtype(np.uint8))
    dtype = pick(draw, np.dtype(np.float16), types, 4)
    shapes = ((3, 5), (1, 16), (16, 1), (4,), (0, 3), (2, 3, 4))
    return np.asarray(values(draw, pick(draw, (16, 16), shapes, 4), dtype, "small"))


def _program(draw: st.DrawFn) -> Any:
    names = ("reduction_k", "scan_k", "reduction_16", "reduction_panel", "gemv")
    return tcusim.build(draw(st.sampled_from(names)))


def usual(draw: st.DrawFn, name: str, parameter: str) -> Any:
    """Draw an ordinary value of a parameter; AssertionError of one that nobody thought of."""
    if parameter in ("a", "b", "c", "got", "partials"):
        return _matrix(draw)
    if parameter == "program":
        return _program(draw)
    if parameter == "inputs":
        return {
            "in": values(
                draw, (draw(st.sampled_from((256, 512, 300))),), np.dtype(np.float16), "small"
            )
        }
    if parameter == "target":
        return draw(st.sampled_from((_program(draw), "cumsum", tcusim.plan("sum", length=1000))))
    if parameter in _FLAGS:
        return draw(st.booleans())
    assert parameter in _USUAL, f"{name}: draw values of the new parameter {parameter!r}"
    return draw(st.sampled_from(_USUAL[parameter]))


@st.composite
def other_calls(draw: st.DrawFn, name: str) -> DrawnCall:
    """Draw a call of any other public function: usual values, some of them replaced by odd ones."""
    function = getattr(tcusim, name)
    args: list[Any] = []
    keywords: dict[str, Any] = {}
    odd: list[str] = []
    parameters = inspect.signature(function).parameters
    of_options = [
        inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, default=None)
        for one in (OPTIONS_OF.get(name, ()) if takes_options(function) else ())
    ]
    for parameter in (*parameters.values(), *of_options):
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        # A record of fitted numbers, and a callable: both a matter of types.
        if parameter.name in ("fitted", "share", "progress"):
            continue
        # The usual number of vectors takes seconds.
        needed = parameter.default is parameter.empty or parameter.name == "count"
        if not needed and draw(st.integers(1, 4)) > 1:
            continue
        value = usual(draw, name, parameter.name)
        if draw(st.integers(1, 8)) == 8:
            value, odd = draw(st.sampled_from(ODD)), [*odd, parameter.name]
        if parameter.kind is parameter.KEYWORD_ONLY or not needed:
            keywords[parameter.name] = value
        else:
            args.append(value)
    nothing = np.zeros(0)
    return DrawnCall(
        function, tuple(args), keywords, nothing.dtype, nothing, known=False, odd=odd,
        reasons=REFUSED.get(name, ()),
    )  # fmt: skip
