"""The fused step on numbers of 4 bytes: the bits of `fused`, several times as fast.

Products of two narrow floats are exact in float32, and so is a product times 2**(F - E). Its
conversion to int32 is the truncation of the alignment, and the sum of a step is a sum of int32.
Tiles are the fastest axis, so that every operation is one long loop. A constant operand of zeros
and ones needs no products, and no sums of masked terms; equal outputs are computed once.

Unsuitable tiles are left out and reported: tiles with an infinity or a NaN, or with an E so small
or so large that a number above would leave the range of a normal float32. `fused` has the
definition of a step, and computes those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.machine.core import Core, How, core, fields_of
from tcusim.machine.formats import FORMATS, Format, Rounding, Values, round_to_grid, round_values
from tcusim.machine.rules import Fused

Float32: TypeAlias = NDArray[np.float32]
Int32: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]

# Every E is within: with 25 bits below it and up to 2**31 above, all that counts is normal.
_LEAST_POWER: Final = np.float32(2.0**-80)
_MOST_POWER: Final = np.float32(2.0**90)
_EXPONENT_FIELD: Final = np.int32(0x7F80_0000)
_BIAS: Final = 127
# Outputs handled at a time: some arrays of so many numbers stay in a core's cache.
_OUTPUTS: Final = 2**16
# Rows, and columns, of a block of outputs of a large tile.
_BLOCK: Final = 256
# Number of products up to which the overhead of a call exceeds its work.
_FEW: Final = 2**15


class _Columns(NamedTuple):
    """The computed columns of a product with a pattern, and the sources of the others.

    numbers: the columns that are computed, by their numbers in the pattern. steps: the terms of
    each fused step, and for each term the runs of these columns that it is part of. source: for
    each column of the pattern the computed one that it equals, or -1 for one that keeps its sums.
    """

    numbers: tuple[int, ...]
    steps: tuple[tuple[slice, tuple[tuple[slice, ...], ...]], ...]
    source: NDArray[np.intp]


@dataclass(frozen=True)
class NarrowUnit:
    """A fused arithmetic whose steps fit in numbers of 4 bytes."""

    ab: Format
    acc: Format
    how: Fused

    @classmethod
    def of(cls, ab: Format, acc: Format, how: Fused) -> NarrowUnit | None:
        """Return the unit; None if its steps need wider numbers, or do something besides."""
        simple = (how.is_basic and how.c_joins == "sum") and not (
            how.flush_inputs or how.flush_outputs or how.register_halves
        )
        # A product of two significands is below 4, and one with a pattern below 2, as c is.
        fits = how.length << (how.fraction_bits + 2) <= 2**31 and how.fraction_bits <= 26
        narrow = ab.is_float and ab.fraction_bits <= 10 and acc.name in ("f32", "f16")
        return cls(ab, acc, how) if simple and fits and narrow else None

    def compiled(self, a: Values, b: Values, c: Values) -> tuple[Values, Mask | None] | None:
        """Return `values` of few tiles by the compiled steps; None if there are none, or many."""
        tiles = max(len(a), len(b), len(c))
        work = tiles * a.shape[1] * a.shape[2] * b.shape[2]
        if work > _FEW:
            return None
        compiled = self._core(work, pattern=False)
        if compiled is None:
            return None
        d, odd = compiled.few(a, b, c, tiles)
        # The room is taken again.
        return d.astype(self.acc.dtype), odd

    def values(self, a: Values, b: Values, c: Values) -> tuple[Values, Mask | None]:
        """Multiply-accumulate nonempty tiles; return the results, and the tiles that it leaves out.

        a: (W, m, k), b: (W, k, n), c: (W, m, n) -> (W, m, n) acc, and (W,) bool: True for tiles
        with an undefined result; None if there is none. Each W may be 1 instead. Repeated data
        may be a broadcast view.
        """
        if has_pattern(a, b):
            return self._by_pattern(a, b[0], c)
        if has_pattern(b, a):
            turned = c.transpose(0, 2, 1)
            d, odd = self._by_pattern(b.transpose(0, 2, 1), a[0].T, turned)
            return d.transpose(0, 2, 1), odd
        if a.shape[1] * b.shape[2] <= _OUTPUTS:
            return self._dense(a, b, c)
        return self._in_blocks(a, b, c)

    # --- One operand is a constant of zeros and ones ----------------------------------------------

    def _by_pattern(self, x: Values, pattern: Values, c: Values) -> tuple[Values, Mask]:
        """Return x @ pattern + c: (W, rows, k) @ (k, columns) + (W, rows, columns)."""
        tiles, rows, _ = x.shape
        marks = np.asarray(pattern != 0)
        length = self.how.length
        columns = _columns_of(marks.tobytes(), marks.shape, length, alike=True, keep=False)
        if len(columns.numbers) < marks.shape[1] and _columns_are_alike(c):
            c = c[:, :, :1]
        else:
            keep = self._keeps_sums
            columns = _columns_of(marks.tobytes(), marks.shape, length, alike=False, keep=keep)
        count = len(columns.numbers)
        d = np.empty((count, rows, tiles), self.acc.dtype)
        odd = np.zeros(tiles, bool)
        size = max(1, _OUTPUTS // (rows * max(count, 4)))
        # Of so few products it is known that NumPy is to do them: see `compiled`. `multiply` takes
        # a sum of zeros for one of too small products, if operands have a float32's exponents.
        few = count > 0 and tiles * rows * marks.size <= _FEW and not self._is_wide
        compiled = None if few else self._core(tiles * rows * count * len(pattern), pattern=True)
        # Without the marks of a column, (k, columns, 1).
        computed = np.ascontiguousarray(pattern[:, list(columns.numbers), None], np.float32)
        last, addend = x.transpose(2, 1, 0), c.transpose(2, 1, 0)
        if len(addend) > count:
            addend = addend[list(columns.numbers)]
        for first in range(0, tiles, size):
            part = slice(first, first + size)
            sums = np.empty(d[:, :, part].shape, np.float32)
            sums[...] = addend if len(c) == 1 else addend[:, :, part]
            if compiled is None and few:
                terms = np.ascontiguousarray(last[:, :, part], np.float32)
                self.multiply(computed, terms, sums, odd[part])
            elif compiled is None:
                terms = np.ascontiguousarray(last[:, :, part], np.float32)
                powers = self._powers_of_operand(terms, odd[part])
                for here, marked in columns.steps:
                    self._add_marked(marked, terms[here], powers[here], sums, odd[part])
            else:
                compiled.multiply(computed, compiled.tiles_last(x[part]), sums, odd[part])
            d[:, :, part] = sums
        return self._spread(d, columns.source, c, odd), odd

    @property
    def _keeps_sums(self) -> bool:
        """Whether a step without products returns c as it is."""
        how, acc = self.how, self.acc
        bits = min(how.fraction_bits, how.output_fraction_bits or acc.fraction_bits)
        floor = acc.emin if how.exponent_floor is None else how.exponent_floor
        is_fine = floor - how.fraction_bits <= acc.emin - acc.fraction_bits
        return bits >= acc.fraction_bits and is_fine

    def _add_marked(
        self,
        marked: tuple[tuple[slice, ...], ...],
        terms: Float32,
        powers: Float32,
        sums: Float32,
        odd: Mask,
    ) -> None:
        """Do one step in place: terms (L, rows, W), sums (columns, rows, W).

        powers: of the terms. marked: for each term the runs of columns that it is part of.
        """
        top = _powers(sums, self.acc)
        for power, runs in zip(powers, marked, strict=True):
            for run in runs:
                np.maximum(top[run], power, out=top[run])
        per_unit = self._bound(top, sums, odd)
        scaled = sums * per_unit
        total = self._cut(scaled)
        cut = np.empty_like(total)
        for term, runs in zip(terms, marked, strict=True):
            for run in runs:
                np.multiply(term, per_unit[run], out=scaled[run])
                total[run] += self._cut(scaled[run], cut[run])
        self._round(total, top, sums)

    def _spread(self, d: Values, source: NDArray[np.intp], c: Values, odd: Mask) -> Values:
        """Return all columns, (W, rows, columns), of those that were computed, tiles last."""
        count, rows, tiles = d.shape
        if count == 1 and not source.any():
            return np.broadcast_to(d.transpose(2, 1, 0), (tiles, rows, source.size))
        if np.array_equal(source, np.arange(count)):
            return d.transpose(2, 1, 0)
        kept = source < 0
        if not kept.any():
            return d[source].transpose(2, 1, 0)
        whole = np.empty((source.size, rows, tiles), d.dtype)
        whole[~kept] = d
        # -0 becomes +0, as in every sum.
        sums = c.transpose(2, 1, 0)[kept] + c.dtype.type(0)
        whole[kept] = sums
        odd |= ~np.isfinite(sums).all(axis=(0, 1))
        return whole.transpose(2, 1, 0)

    # --- Neither is -------------------------------------------------------------------------------

    def _in_blocks(self, a: Values, b: Values, c: Values) -> tuple[Values, Mask]:
        """Return a @ b + c of large tiles, by blocks of outputs; shapes as in `values`."""
        m, n = a.shape[1], b.shape[2]
        tiles = max(len(a), len(b), len(c))
        d, odd = np.empty((tiles, m, n), self.acc.dtype), np.zeros(tiles, bool)
        for down, across in product(range(0, m, _BLOCK), range(0, n, _BLOCK)):
            rows, columns = slice(down, down + _BLOCK), slice(across, across + _BLOCK)
            part = c[:, rows, columns]
            d[:, rows, columns], odd_here = self._dense(a[:, rows], b[:, :, columns], part)
            odd |= odd_here
        return d, odd

    def _dense(self, a: Values, b: Values, c: Values) -> tuple[Values, Mask]:
        """Return a @ b + c; shapes as in `values`."""
        m, k, n = a.shape[1], a.shape[2], b.shape[2]
        tiles = max(len(a), len(b), len(c))
        d = np.empty((m, n, tiles), self.acc.dtype)
        odd = np.zeros(tiles, bool)
        size = max(1, _OUTPUTS // (m * n))
        work = tiles * m * k * n
        # Of few tiles it is known that NumPy is to do them.
        compiled = None if work <= _FEW else self._core(work, pattern=False)
        if compiled is not None and _are_in_turn(a, b, c):
            return self._in_turn(compiled, a, b, c)
        for first in range(0, tiles, size):
            part = slice(first, first + size)
            left, right, addend = a, b, c
            if tiles > size:
                left, right, addend = (x if len(x) == 1 else x[part] for x in (a, b, c))
            rows = np.ascontiguousarray(left.transpose(2, 1, 0), np.float32)
            columns = np.ascontiguousarray(right.transpose(1, 2, 0), np.float32)
            sums = np.empty(d[:, :, part].shape, np.float32)
            sums[...] = addend.transpose(1, 2, 0)
            steps = self.multiply if compiled is None else compiled.multiply
            steps(rows, columns, sums, odd[part])
            d[:, :, part] = sums
        return d.transpose(2, 0, 1), odd

    def _in_turn(self, compiled: Core, a: Values, b: Values, c: Values) -> tuple[Values, Mask]:
        """Return a @ b + c of contiguous tiles; shapes as in `values`."""
        tiles = max(len(a), len(b), len(c))
        d = np.empty((tiles, a.shape[1], b.shape[2]), self.acc.dtype)
        odd = np.zeros(tiles, bool)
        size = max(1, _OUTPUTS // (a.shape[1] * b.shape[2]))
        for first in range(0, tiles, size):
            part = slice(first, first + size)
            left, right, addend = (x if len(x) == 1 else x[part] for x in (a, b, c))
            sums = np.empty(d[part].shape, np.float32)
            sums[...] = addend
            rows, columns = compiled.in_turn(left), compiled.in_turn(right)
            compiled.multiply_tiles(rows, columns, sums, odd[part])
            d[part] = sums
        return d, odd

    def _core(self, work: int, *, pattern: bool) -> Core | None:
        """Return the compiled steps, if there are any; work: multiply-adds."""
        fields = self._of_patterns if pattern else self._of_all
        return None if fields is None else core(fields, work, first_difference)

    @cached_property
    def _of_all(self) -> How | None:
        return fields_of(self.ab, self.acc, self.how, pattern=False)

    @cached_property
    def _of_patterns(self) -> How | None:
        return fields_of(self.ab, self.acc, self.how, pattern=True)

    def multiply(self, rows: Float32, columns: Float32, sums: Float32, odd: Mask) -> None:
        """Add products to sums in place: rows (k, m, W), columns (k, n, W), sums (m, n, W)."""
        powers = [self._powers_of_operand(one, odd) for one in (rows, columns)]
        for at in range(0, len(rows), self.how.length):
            terms = slice(at, at + self.how.length)
            top = self._largest_power(powers[0][terms], powers[1][terms], sums)
            self._add_products(rows[terms], columns[terms], top, sums, odd)

    def _largest_power(self, rows: Float32, columns: Float32, sums: Float32) -> Float32:
        """Return the largest power of the terms: rows (L, m, W) and columns (L, n, W) of powers."""
        top = _powers(sums, self.acc)
        if len(rows) * sums.size <= _FEW:
            every = np.maximum.reduce(rows[:, :, None] * columns[:, None], 0)
            return np.maximum(top, every, out=top)
        scratch = np.empty_like(sums)
        for row, column in zip(rows, columns, strict=True):
            np.multiply(row[:, None], column[None], out=scratch)
            np.maximum(top, scratch, out=top)
        return top

    def _add_products(
        self, rows: Float32, columns: Float32, top: Float32, sums: Float32, odd: Mask
    ) -> None:
        """Do one step in place: rows (L, m, W), columns (L, n, W), sums (m, n, W)."""
        if self._is_wide:
            # Powers too small for float32 make 0 as well.
            odd |= (top == 0.0).any(axis=(0, 1))
        per_unit = self._bound(top, sums, odd)
        if len(rows) * sums.size <= _FEW:
            every = rows[:, :, None] * columns[:, None] * per_unit
            total = np.add.reduce(self._cut(every), 0, dtype=np.int32)
        else:
            total = np.zeros(sums.shape, np.int32)
            scaled, cut = np.empty_like(sums), np.empty_like(total)
            for row, column in zip(rows, columns, strict=True):
                np.multiply(row[:, None], column[None], out=scaled)
                np.multiply(scaled, per_unit, out=scaled)
                total += self._cut(scaled, cut)
        # The products fit, each being below 4 units of E; c besides, and rounding up, may not.
        room = 2**31 - 2 ** (self.how.fraction_bits + 1) - 2**8
        if len(rows) << (self.how.fraction_bits + 2) > room:
            odd |= np.abs(total).max(axis=(0, 1)) >= room
        total += self._cut(sums * per_unit)
        self._round(total, top, sums)

    # --- Common to both ---------------------------------------------------------------------------

    @cached_property
    def _is_wide(self) -> bool:
        """Whether operands have the exponents of a float32."""
        return self.ab.emin <= 1 - _BIAS

    def _powers_of_operand(self, terms: Float32, odd: Mask) -> Float32:
        """Return 2**exponent of each element; mark the tiles with an element out of range."""
        powers = _powers(terms, self.ab)
        if not powers.max() <= _MOST_POWER:
            odd |= ~np.isfinite(powers).all(axis=(0, 1))
        if self._is_wide:
            odd |= ((powers == 0.0) & (terms != 0.0)).any(axis=(0, 1))
        return powers

    def _bound(self, top: Float32, sums: Float32, odd: Mask) -> Float32:
        """Mark the tiles with E out of range; return 2**(F - E), and leave 2**E in top.

        top: the largest power of each output's terms, 0 if all are zero; infinite or NaN if one
        of them is.
        """
        floor = self.how.exponent_floor
        if floor is not None and floor > 1 - _BIAS:
            np.maximum(top, np.float32(2.0 ** min(floor, _BIAS)), out=top)
        least, most = top.min(), top.max()
        if least == 0.0:
            nothing = top == 0.0
            # With nothing but zeros any unit serves; a subnormal has no power here, but counts.
            odd |= (nothing & (sums != 0.0)).any(axis=(0, 1))
            top[nothing] = 1.0
            least = top.min()
        if not (least >= _LEAST_POWER and most <= _MOST_POWER):
            beyond = ~((top >= _LEAST_POWER) & (top <= _MOST_POWER))
            odd |= beyond.any(axis=(0, 1))
            top[beyond] = 1.0
        # The fields of 2**F and 2**E differ by those of their quotient, but for the bias.
        field = np.uint32((self.how.fraction_bits + 2 * _BIAS) << 23)
        return (field - top.view(np.uint32)).view(np.float32)

    def _cut(self, scaled: Float32, out: Int32 | None = None) -> Int32:
        """Return terms truncated to whole units."""
        if self.how.alignment == "rne":
            scaled = np.rint(scaled)
        if out is None:
            return scaled.astype(np.int32)
        np.copyto(out, scaled, casting="unsafe")
        return out

    def _round(self, total: Int32, top: Float32, out: Float32) -> None:
        """Round sums, counted in units of 2**(E - F), to the type of the accumulator."""
        how, acc = self.how, self.acc
        unit = top * np.float32(2.0**-how.fraction_bits)
        fraction_bits = how.output_fraction_bits or acc.fraction_bits
        if acc.name == "f32" and fraction_bits == acc.fraction_bits:
            np.multiply(_float32_of(total, how.output), unit, out=out)
            return
        if how.output == "rne" and fraction_bits <= 16:
            # One bit for all that is lost, so that the second rounding is the only one.
            nearly: Float32 = np.multiply(_float32_of(total, "odd"), unit)
            quantum = np.maximum(_field_of(nearly), np.float32(2.0**acc.emin))
            quantum *= np.float32(2.0**-fraction_bits)
            wide = np.rint(nearly / quantum) * quantum
        else:
            exact = total.astype(np.float64) * unit
            wide = round_to_grid(exact, fraction_bits, acc.emin, how.output).astype(np.float32)
        beyond = np.abs(wide) > acc.largest
        if beyond.any():
            wide[beyond] = np.copysign(np.float32(np.inf), wide[beyond])
        # A sum that becomes zero is +0 whatever its sign was: see `fused`.
        np.add(wide, np.float32(0), out=out)


def _are_in_turn(*operands: Values) -> bool:
    """Whether tiles are contiguous, row by row, and have the columns for several lanes."""
    several = [x for x in operands if len(x) > 1]
    return (
        bool(several)
        and operands[-1].shape[2] >= 8
        and all(x.strides[0] >= max(x.strides[1:]) for x in several)
    )


def has_pattern(x: Values, other: Values) -> bool:
    """Whether `other` is one tile of zeros and ones, and x has more than one."""
    return len(other) == 1 and len(x) > 1 and bool(((other == 0.0) | (other == 1.0)).all())


def _columns_are_alike(c: Values) -> bool:
    """Whether all columns of each tile are equal."""
    return c.strides[2] == 0 or bool((c == c[:, :, :1]).all())


@lru_cache(maxsize=256)
def _columns_of(
    marks: bytes, shape: tuple[int, int], length: int, *, alike: bool, keep: bool
) -> _Columns:
    """Return the columns to compute of a product with a pattern.

    marks: the pattern (k, columns) as bytes of bool. alike: whether columns with the same pattern
    have the same sums. keep: whether columns without a mark keep theirs.
    """
    pattern = np.frombuffer(marks, bool).reshape(shape)
    k, count = shape
    source = np.arange(count)
    numbers = source
    if alike:
        _, numbers, source = np.unique(pattern, axis=1, return_index=True, return_inverse=True)
    elif keep:
        numbers = np.flatnonzero(pattern.any(axis=0))
        source = np.full(count, -1)
        source[numbers] = np.arange(numbers.size)
    rows = tuple(_runs(row) for row in pattern[:, numbers])
    parts = [slice(at, at + length) for at in range(0, k, length) if numbers.size]
    steps = tuple((part, rows[part]) for part in parts)
    return _Columns(tuple(map(int, numbers)), steps, source.reshape(-1))


def _runs(marks: NDArray[np.bool_]) -> tuple[slice, ...]:
    """Return the runs of marks, as slices."""
    edges = np.flatnonzero(np.diff(marks.astype(np.int8), prepend=0, append=0))
    return tuple(slice(int(a), int(b)) for a, b in edges.reshape(-1, 2))


def _field_of(x: Float32) -> Float32:
    """Return 2**floor(log2(abs(x))): 0 for zero and for subnormals, inf for inf and NaN."""
    return (x.view(np.int32) & _EXPONENT_FIELD).view(np.float32)


def _powers(x: Float32, fmt: Format) -> Float32:
    """Return 2**exponent of each value: subnormals have emin, zeros 0, inf and NaN inf.

    A subnormal float32 counts as zero: whoever can meet one looks for it.
    """
    powers = (x.view(np.int32) & _EXPONENT_FIELD).view(np.float32)
    if fmt.emin > 1 - _BIAS:
        np.maximum(powers, np.float32(2.0**fmt.emin), out=powers)
        np.copyto(powers, 0.0, where=x == 0.0)
    return powers


def _float32_of(total: Int32, rounding: Rounding | Literal["odd"]) -> Float32:
    """Return integers below 2**31 - 2**8 as float32.

    "odd": toward zero, and the last bit is set where something is lost.
    Source: [BOLDO08], rounding to odd.
    """
    nearest = total.astype(np.float32)
    if rounding == "rne":
        return nearest
    bits = nearest.view(np.int32)
    again = nearest.astype(np.int32)
    # Nearest is never more than one step too far out, and a step is one in the bits.
    np.subtract(bits, np.abs(again) > np.abs(total), out=bits)
    if rounding == "odd":
        np.bitwise_or(bits, again != total, out=bits)
    return nearest


# --- Compiled steps -------------------------------------------------------------------------------

# Arithmetics whose steps differ: lengths, bits, roundings, ranges of exponents.
_TESTED: Final = (
    ("f16", "f32", Fused(16, 25)),
    ("f16", "f32", Fused(4, 23)),
    ("f16", "f16", Fused(8, 24, output="rne")),
    ("bf16", "f32", Fused(8, 24)),
)
_TEST_TILES: Final = 40
# Rows, and columns: lanes of several sizes are needed for so many.
_TEST_ROWS: Final = 13


def first_difference(make: Callable[[How], Core]) -> str | None:
    """Return the first difference of compiled steps from NumPy's on many sizes, or None."""
    rng = np.random.default_rng(0)
    for ab, acc, how in _TESTED:
        unit = NarrowUnit(FORMATS[ab], FORMATS[acc], how)
        fields = fields_of(unit.ab, unit.acc, unit.how, pattern=False)
        assert fields is not None
        compiled = make(fields)
        # Terms, rows or columns, tiles; and for sums rows, columns, tiles.
        spread = np.exp2(rng.integers(-20, 12, (2, 16, _TEST_ROWS, _TEST_TILES)))
        operands = round_values(rng.standard_normal(spread.shape) * spread, ab)
        # Of some tiles each term has an opposite, of some there is nothing.
        operands[0, 8:, :, :9] = -operands[0, :8, :, :9]
        operands[1, 8:, :, :9] = operands[1, :8, :, :9]
        operands[0, :, :, 9:12] = 0.0
        shape = _TEST_ROWS, _TEST_ROWS, _TEST_TILES
        start = round_values(rng.standard_normal(shape) * 8.0, acc)
        rows, columns, sums, lanes = (
            np.array(one, np.float32) for one in (*operands, start, start)
        )
        odd, odd_lanes, odd_tiles, odd_few = np.zeros((4, _TEST_TILES), bool)
        unit.multiply(rows, columns, sums, odd)
        compiled.multiply(rows, columns, lanes, odd_lanes)
        tiles = np.array(start.transpose(2, 0, 1), np.float32, order="C")
        turned = (np.ascontiguousarray(rows.T), np.ascontiguousarray(columns.transpose(2, 0, 1)))
        few = tiles.copy()
        for tile in range(_TEST_TILES):
            one = slice(tile, tile + 1)
            left, right = (x[one].astype(FORMATS[ab].dtype) for x in turned)
            few[one], not_here = compiled.few(left, right, few[one], 1)
            odd_few[tile] = not_here is not None
        compiled.multiply_tiles(*turned, tiles, odd_tiles)
        ways = (lanes, odd_lanes), (tiles.transpose(1, 2, 0), odd_tiles)
        for found, left_out in (*ways, (few.transpose(1, 2, 0), odd_few)):
            bits = np.ascontiguousarray(found).view(np.uint32)
            differs = (sums.view(np.uint32) != bits).any(axis=(0, 1))
            if (differs & ~left_out).any() or (odd & ~left_out).any() or left_out.all():
                return f"{ab} to {acc} in steps of {how.length} terms differs from NumPy's"
    return None
