"""The fused steps of `fused_narrow` and the rule in C, compiled: the same bits, faster.

It is optional. Where a C++ compiler is, `core.cpp` is compiled once, when that is worth it, and
compared with NumPy's steps on numbers that tell them apart. It is used from then on, by later
processes from their first product. The environment variable TCUSIM_CORE says
otherwise: ``numpy`` does without it, and ``compiled`` insists on it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import BackendUnavailable, require_choice
from tcusim.machine.formats import Format, Values, format_of
from tcusim.machine.native import (
    CompileError,
    kept_library,
    library_path,
    shared_library,
    why_no_compiler,
)
from tcusim.machine.rule_row import RuleRow, rule_row
from tcusim.machine.rules import Exact, Fused, Rule, Sequential

Float32: TypeAlias = NDArray[np.float32]

CHOICES: Final = ("auto", "compiled", "numpy")

_SOURCE: Final = Path(__file__).with_name("core.cpp")
# No contraction: a product and a sum are two roundings. Integers wrap, in lanes that are left out.
_FLAGS: Final = (
    *("-std=c++20", "-O3", "-march=native", "-ffp-contract=off", "-fwrapv", "-fno-math-errno"),
    *("-Wno-psabi", "-fvisibility=default"),
)
# Multiply-adds of a process that are worth compiling for: NumPy takes about a second for them.
_WORTH: Final = 2**29
# The exponent of the smallest normal float32.
_EMIN: Final = -126
# As in core.cpp: the most lanes at once.
_LANES: Final = 16
# Suffix of the marker beside a library that was tested against NumPy's bits.
_TESTED: Final = ".tested"


class How(ctypes.Structure):
    """The parameters of an arithmetic for core.cpp: its struct How."""

    _fields_ = (
        ("length", ctypes.c_int32),
        ("fraction_bits", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("acc_bits", ctypes.c_int32),
        ("may_vanish", ctypes.c_int32),
        ("ab_low", ctypes.c_float),
        ("acc_low", ctypes.c_float),
        ("floor", ctypes.c_float),
        ("acc_least", ctypes.c_float),
        ("acc_largest", ctypes.c_float),
    )


class _Work(ctypes.Structure):
    """Few tiles, as core.cpp takes them: its struct Work."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "c", "odd", "scratch")),
        *((name, ctypes.c_int64) for name in ("tiles", "k", "m", "n")),
        *((name, ctypes.c_int32) for name in ("one_a", "one_b", "half_a", "half_b")),
        ("how", How),
    )


class _Desk:
    """Buffers for few tiles of some shapes, with addresses that the library gets once.

    To ask an array for its address takes longer than to compute a tile.
    """

    def __init__(self, compiled: Core, a: Values, b: Values, tiles: int) -> None:
        m, k, n = a.shape[1], a.shape[2], b.shape[2]
        kinds = [np.float16 if x.dtype == np.float16 else np.float32 for x in (a, b)]
        self.a = np.empty(a.shape, kinds[0])
        self.b = np.empty(b.shape, kinds[1])
        self.c = np.empty((tiles, m, n), np.float32)
        self.odd = np.empty(tiles, np.bool_)
        scratch = np.empty(a.size + b.size + m * k + 2 * _LANES * k, np.float32)
        self._scratch = scratch
        addresses = [x.ctypes.data for x in (self.a, self.b, self.c, self.odd, scratch)]
        one = len(a) == 1, len(b) == 1
        halves = [kind is np.float16 for kind in kinds]
        self._work = _Work(*addresses, tiles, k, m, n, *one, *halves, compiled.how)
        self._compiled = compiled
        self._run = compiled.library.tcusim_few
        self._pointer = ctypes.byref(self._work)

    def multiply(self, a: Values, b: Values, c: Values) -> bool:
        """Compute a @ b + c in `c`; return whether some tile is `odd`."""
        self.a[...] = a
        self.b[...] = b
        self.c[...] = c
        return bool(self._run(self._pointer))


class _Desks(threading.local):
    """The desks of each thread, by the library, the arithmetic and the shapes."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], _Desk] = {}


_DESKS: Final = _Desks()
_MOST_DESKS: Final = 64


class Core(NamedTuple):
    """The compiled steps of one arithmetic. library: the compiled core.cpp."""

    library: Any
    how: How

    def multiply(self, a: Float32, b: Float32, sums: Float32, odd: NDArray[np.bool_]) -> None:
        """Add a.b to sums in place, and name the lanes that must be computed by others.

        a: (k, m, W or 1), b: (k, n, W or 1), sums: (m, n, W), odd: (W,), all contiguous.
        """
        k, m, _ = a.shape
        n, lanes = b.shape[1], sums.shape[2]
        if lanes == 1:
            # One tile: its columns are the lanes.
            own = np.zeros(n, bool)
            b, lanes, n = b.reshape(k, 1, n), n, 1
            self._call(a, b, sums, own, (k, m, n, lanes))
            odd |= own.any()
            return
        if b.shape[2] == 1:
            b = np.ascontiguousarray(np.broadcast_to(b, (k, n, lanes)))
        self._call(a, b, sums, odd, (k, m, n, lanes))

    def few(
        self, a: Values, b: Values, c: Values, tiles: int
    ) -> tuple[Float32, NDArray[np.bool_] | None]:
        """Return a @ b + c of few tiles, and a mask of the tiles to compute otherwise, if any.

        a: (W or 1, m, k), b: (W or 1, k, n), c: (W or 1, m, n), in any order of memory; W tiles.
        The results are room that the next call takes again.
        """
        desks = _DESKS.known
        # A desk keeps the objects that its key names by identity.
        names = id(self.library), id(self.how), a.dtype.char, b.dtype.char
        key = (*names, a.shape, b.shape, tiles)
        desk = desks.get(key)
        if desk is None:
            if len(desks) >= _MOST_DESKS:
                desks.clear()
            desk = desks[key] = _Desk(self, a, b, tiles)
        return desk.c, desk.odd if desk.multiply(a, b, c) else None

    def multiply_tiles(self, a: Float32, b: Float32, sums: Float32, odd: NDArray[np.bool_]) -> None:
        """Do so with tiles one after the other: a (W or 1, m, k), b (W or 1, k, n), (W, m, n)."""
        tiles, m, n = sums.shape
        k = a.shape[2]
        scratch = np.empty(m * k + 2 * _LANES * k, np.float32)
        steps = (0 if len(a) == 1 else m * k, 0 if len(b) == 1 else k * n)
        arrays = (array.ctypes.data for array in (a, b, sums, odd, scratch))
        self.library.tcusim_tiles(*arrays, tiles, *steps, k, m, n, ctypes.byref(self.how))

    def in_turn(self, x: Values) -> Float32:
        """Return an array as contiguous float32."""
        if x.dtype != np.float16 or not x.flags.c_contiguous:
            return np.ascontiguousarray(x, np.float32)
        wide = np.empty(x.shape, np.float32)
        self.library.tcusim_widen(x.ctypes.data, wide.ctypes.data, x.size)
        return wide

    def tiles_last(self, x: Values) -> Float32:
        """Return tiles (W, rows, k) as contiguous float32, (k, rows, W)."""
        if x.dtype != np.float16 or not x.flags.c_contiguous:
            return np.ascontiguousarray(x.transpose(2, 1, 0), np.float32)
        wide = np.empty(x.shape[::-1], np.float32)
        self.library.tcusim_lanes(x.ctypes.data, wide.ctypes.data, *x.shape)
        return wide

    def _call(
        self,
        a: Float32,
        b: Float32,
        sums: Float32,
        odd: NDArray[np.bool_],
        sizes: tuple[int, int, int, int],
    ) -> None:
        k, m, n, _ = sizes
        scratch = np.empty(2 * k * (_LANES * (m + n) + m), np.float32)
        arrays = (array.ctypes.data for array in (a, b, sums, odd, scratch))
        self.library.tcusim_steps(*arrays, *sizes, a.shape[2], ctypes.byref(self.how))


class RuleCore(NamedTuple):
    """A rule in C, for tiles of the simulator's arrays. library: the compiled core.cpp."""

    library: Any
    row: RuleRow
    dtypes: tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]

    def multiply(self, a: Values, b: Values, c: Values) -> Values:
        """Return a @ b + c, (W, m, k) @ (W, k, n) + (W, m, n); each W may be 1 instead."""
        given = zip((a, b, c), self.dtypes, strict=True)
        operands = [np.ascontiguousarray(x, dtype) for x, dtype in given]
        (_, m, k), n, tiles = a.shape, b.shape[2], max(len(a), len(b), len(c))
        d = np.empty((tiles, m, n), self.dtypes[2])
        steps = (0 if len(x) == 1 else x.strides[0] for x in operands)
        places = (x.ctypes.data for x in (d, *operands))
        self.library.tcusim_by_rule(ctypes.byref(self.row), tiles, m, n, k, *places, *steps)
        return d


@functools.lru_cache(maxsize=256)
def _row_of(rule: Rule) -> tuple[RuleRow, tuple[np.dtype[Any], ...]]:
    types = (rule.ab, rule.right, rule.acc)
    return rule_row(rule, as_values=True), tuple(format_of(name).dtype for name in types)


def rule_core(rule: Rule, work: int, test: Test) -> RuleCore | None:
    """Return a rule in C; None if NumPy is to follow it. The arguments and errors are `core`'s."""
    library = _STATE.library(work, test)
    return None if library is None else _rule_core(library, rule)


def _rule_core(library: Any, rule: Rule) -> RuleCore:
    row, (left, right, acc) = _row_of(rule)
    return RuleCore(library, row, (left, right, acc))


def core(how: How, work: int, test: Test) -> Core | None:
    """Return the compiled steps of an arithmetic; None if NumPy is to do them.

    work: multiply-adds of this call. test: returns the fault of newly compiled steps, if any.

    Raises
    ------
    BackendUnavailable
        If TCUSIM_CORE insists on compiled steps, and there are none.
    InputError
        If TCUSIM_CORE is none of `CHOICES`.
    """
    library = _STATE.library(work, test)
    return None if library is None else Core(library, how)


def fields_of(ab: Format, acc: Format, how: Fused, *, pattern: bool) -> How | None:
    """Return an arithmetic for core.cpp; None if it has no such steps.

    pattern: whether an operand is a constant of zeros and ones.
    """
    bits = how.output_fraction_bits or acc.fraction_bits
    whole = acc.name == "f32" and bits == acc.fraction_bits
    if how.alignment != "rz" or not (whole or (how.output == "rne" and bits <= 16)):
        return None
    floor = how.exponent_floor
    return How(
        how.length,
        how.fraction_bits,
        (1 if how.output == "rne" else 0) if whole else 2,
        bits,
        not pattern and ab.emin <= _EMIN,
        2.0**ab.emin if ab.emin > _EMIN else 0.0,
        2.0**acc.emin if acc.emin > _EMIN else 0.0,
        2.0 ** min(floor, -_EMIN) if floor is not None and floor > _EMIN else 0.0,
        2.0**acc.emin,
        min(acc.largest, float(np.finfo(np.float32).max)),
    )


# A test of compiled steps: takes a factory of cores, and returns a fault or None.
Test: TypeAlias = Callable[[Callable[[How], Core]], str | None]


class _State:
    """A process's state of the compiled steps."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work = 0
        self.found: Any = None
        self.tried = False
        self.looked = False

    def library(self, work: int, test: Test) -> Any:
        """Return the library, compiled if it is worth that by now; None if there is none."""
        choice = os.environ.get("TCUSIM_CORE") or "auto"
        require_choice("TCUSIM_CORE", choice, CHOICES)
        if choice == "numpy":
            return None
        if self.tried and (self.found is not None or choice == "auto"):
            return self.found
        with self.lock:
            self.work += work
            if choice == "auto" and self.work < _WORTH and not self.is_ready():
                return None
            self.tried = True
            try:
                self.found = _built(test)
            except (BackendUnavailable, CompileError) as error:
                if choice == "compiled":
                    raise BackendUnavailable(f"TCUSIM_CORE=compiled: {error}") from error
        return self.found

    def is_ready(self) -> bool:
        """Whether another process has left the library compiled and tested; it is asked once."""
        if self.looked:
            return False
        self.looked = True
        if why_no_compiler() is not None:
            return False
        library = kept_library(_SOURCE, _FLAGS)
        return library is not None and library.with_suffix(_TESTED).exists()


_STATE: Final = _State()


def _built(test: Test) -> Any:
    """Return the library of core.cpp, compiled and tested."""
    reason = why_no_compiler()
    if reason is not None:
        raise BackendUnavailable(reason)
    library: Any = ctypes.CDLL(str(shared_library(_SOURCE, _FLAGS)))
    for function, sizes in ((library.tcusim_steps, 5), (library.tcusim_tiles, 6)):
        function.restype = None
        function.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int64] * sizes + [ctypes.c_void_p]
    library.tcusim_by_rule.restype = None
    library.tcusim_by_rule.argtypes = [
        *([ctypes.c_void_p] + [ctypes.c_int64] * 4),
        *([ctypes.c_void_p] * 4 + [ctypes.c_int64] * 3),
    ]
    library.tcusim_few.restype = ctypes.c_int32
    library.tcusim_few.argtypes = [ctypes.c_void_p]
    for function, sizes in ((library.tcusim_widen, 1), (library.tcusim_lanes, 3)):
        function.restype = None
        function.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * sizes
    passed = library_path(_SOURCE, _FLAGS).with_suffix(_TESTED)
    if not passed.exists():
        told = _wrong_half(library) or _wrong_rule(library)
        told = told or test(lambda fields: Core(library, fields))
        if told is not None:
            warnings.warn(
                f"The compiled steps of the simulator are not used: {told}. Please report the "
                "compiler and the processor",
                RuntimeWarning,
                stacklevel=2,
            )
            raise BackendUnavailable(f"its bits are wrong here: {told}")
        passed.touch()
    return library


def _wrong_half(library: Any) -> str | None:
    """Return a description of the first half not widened as by NumPy, or None."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore"):
        expected = halves.astype(np.float32)
    found = np.empty_like(expected)
    library.tcusim_widen(halves.ctypes.data, found.ctypes.data, halves.size)
    # Of a NaN, that it is one is enough: who meets it computes with the half itself.
    same = (found.view(np.uint32) == expected.view(np.uint32)) | (
        np.isnan(found) & np.isnan(expected)
    )
    wrong = np.flatnonzero(~same)
    return f"the half {wrong[0]:04x} becomes {found[wrong[0]]!r}" if wrong.size else None


# Some rules, and the sums that NumPy finds by them of the products of `_wrong_rule`.
_KNOWN: Final = (
    (Fused(8, 24), "f32", 0x481C398E),
    (Sequential(4, "tree"), "f32", 0x481C398F),
    (Exact(), "f64", 0x41038731BABE8D00),
)


def _wrong_rule(library: Any) -> str | None:
    """Return a description of the first sum in C that is not NumPy's, or None."""
    i = np.arange(1, 17)
    a = np.exp2(i * 5 % 23 - 9.0) * (1 + i / 16) * np.where(i % 2, -1.0, 1.0)
    b = np.exp2(i * 7 % 19 - 9.0) * (2 - i / 32)
    for how, acc, expected in _KNOWN:
        rule = Rule("f16", acc, how, "", "")
        c = np.full((1, 1, 1), 0.1, np.float32)
        d = _rule_core(library, rule).multiply(a.reshape(1, 1, 16), b.reshape(1, 16, 1), c)
        found = int(d.view(f"u{d.itemsize}").item())
        if found != expected:
            return f"{type(how).__name__} in {acc} gives {found:x}, which is not {expected:x}"
    return None
