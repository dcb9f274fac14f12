"""Operands that are hard for a rule: corner cases, and sums whose terms meet where it decides.

Operands are bits in the encoding of their types, so that each pattern can be given, a NaN too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.machine.bits import decoded, encoded
from tcusim.machine.coverage import scale_patterns
from tcusim.machine.formats import Float64, Format, format_of, round_values
from tcusim.machine.rules import Fused, Rule
from tcusim.machine.scaled import scales_of_bits

Bits: TypeAlias = NDArray[Any]

# Share of the drawn sums that have a special value, and that are any patterns.
_SPECIAL: Final = 0.08
_ANY: Final = 0.05
# Scales are bytes.
_BYTE: Final = format_of("u8")


class Dots(NamedTuple):
    """Operands of W dot products, as bits: a, b (W, k), c (W,), scales of blocks (W, k / block).

    Without block scales there are none: (W, 0).
    """

    a: Bits
    b: Bits
    c: Bits
    scale_a: Bits
    scale_b: Bits


def patterns(fmt: Format) -> dict[str, int]:
    """Return the patterns of a type at which arithmetic changes, by name."""
    if not fmt.is_float:
        low, high = int(fmt.smallest), int(fmt.largest)
        values = {"zero": 0, "one": 1, "least": low, "largest": high, "least but one": low + 1}
        return {name: int(encoded(np.asarray(one, fmt.dtype), fmt)) for name, one in values.items()}
    least, ulp = 2.0**fmt.emin, 2.0**-fmt.fraction_bits
    numbers = {
        "zero": 0.0,
        "least subnormal": fmt.smallest,
        "largest subnormal": least * (1 - ulp),
        "least normal": least,
        "one": 1.0,
        "one and its last bit": 1.0 + ulp,
        "largest": fmt.largest,
    }
    if fmt.has_inf:
        numbers["infinity"] = np.inf
    found = {name: int(encoded(np.asarray(one, fmt.dtype), fmt)) for name, one in numbers.items()}
    if fmt.has_nan and fmt.has_inf:
        # A quiet NaN, and one whose only bit is the last: a signaling one, where there are any.
        last = 1 << (fmt.bits - 1 - 8 - fmt.fraction_bits if fmt.name == "tf32" else 0)
        found["quiet NaN"] = found["infinity"] | last << (fmt.fraction_bits - 1)
        found["signaling NaN"] = found["infinity"] | last
    elif fmt.has_nan:
        found["NaN"] = int(encoded(np.asarray(np.nan, fmt.dtype), fmt))
    sign = 1 << (fmt.bits - 1)
    if fmt.has_negative_zero:
        return found | {f"minus {name}": one | sign for name, one in found.items()}
    negative = {f"minus {name}": one | sign for name, one in found.items() if name != "zero"}
    return found | {name: one for name, one in negative.items() if name != "minus NaN"}


# --- Corner cases -----------------------------------------------------------------------------


def corners(rule: Rule, k: int) -> Iterator[tuple[str, Dots]]:
    """Yield the corner cases of a rule, one dot product of k products each, with their group."""
    left, right, acc = (patterns(format_of(one)) for one in (rule.ab, rule.right, rule.acc))

    def dot(products: dict[int, tuple[str, str]], c: str = "zero", *, fill: str = "zero") -> Dots:
        a, b = (np.full((1, k), one[fill], np.uint64) for one in (left, right))
        for place, (x, y) in products.items():
            # Operands of two types: one may lack what the other has.
            a[0, place % k], b[0, place % k] = left[x], right.get(y, right["largest"])
        return Dots(a, b, np.array([acc[c]], np.uint64), *_ones(rule, 1, k))

    if rule.scale:
        yield from _scaled_corners(
            rule.scale_type, (dot({}, fill="one"), dot({k - 1: ("one", "one")}, "one"))
        )
    for place in range(k):
        yield "one product", dot({place: ("one", "largest")})
    for x in left:
        yield _group(x), dot({0: (x, "one")})
        yield _group(x), dot({1: ("one", "one"), 0: (x, "largest" if "one" in x else x)}, "one")
    for y in right:
        yield _group(y), dot({0: ("one", y)})
        yield _group(y), dot({k - 1: ("zero", y)}, "one")
    for z in acc:
        yield _group(z), dot({}, z)
        yield _group(z), dot({0: ("one", "one")}, z)
    for x in ("zero", "one", "largest", "infinity"):
        for y in [y for y in (f"minus {x}", x) if x in left and y in left]:
            yield "cancellation", dot({0: (x, "one"), 1: (y, "one")})
            yield "cancellation", dot({0: (x, "one")}, y if y in acc else "zero")
            yield _group(x), dot({0: (x, y if y in right else x)})
            yield _group(x), dot({}, fill=x if x in right else "one")
    if format_of(rule.acc).is_float and format_of(rule.ab).is_float:
        yield from _at_the_window(rule, k)


def _scaled_corners(kind: str, sums: tuple[Dots, ...]) -> Iterator[tuple[str, Dots]]:
    """Yield sums with each pattern of a scale, alone and with one of the other operand."""
    known = scale_patterns(kind)
    for name, pattern in known.items():
        for other, one in itertools.product((pattern, known["one"]), sums):
            left, right = one.scale_a.copy(), one.scale_b.copy()
            left[0, 0], right[0, -1] = pattern, other
            yield f"scales: {name}", one._replace(scale_a=left, scale_b=right)
            yield f"scales: {name}", one._replace(scale_a=right, scale_b=left)


def _group(name: str) -> str:
    """Return the group of a pattern's name."""
    for word, group in (
        ("zero", "zeros"),
        ("subnormal", "subnormals"),
        ("normal", "subnormals"),
        ("infinity", "infinities"),
        ("NaN", "NaN"),
        ("one", "ones"),
    ):
        if word in name:
            return group
    return "largest"


def _at_the_window(rule: Rule, k: int) -> Iterator[tuple[str, Dots]]:
    """Yield ties of the result, and terms around the last bit that is kept."""
    acc = format_of(rule.acc)
    bits, window = acc.fraction_bits, acc.fraction_bits
    if isinstance(rule.how, Fused):
        bits, window = rule.how.output_fraction_bits or bits, rule.how.fraction_bits
    ulp = 2.0**-bits
    for sign in (1.0, -1.0):
        for c in (1.0, 1.0 + ulp, 2.0 - ulp):
            for half in (sign * ulp / 2, -sign * ulp / 2, sign * ulp / 4):
                yield "ties", _terms(rule, k, [sign * c, half])
                for below in (-1, 0, 1, 2):
                    tiny = sign * 2.0 ** -(window + below)
                    yield "ties", _terms(rule, k, [sign * c, half, tiny])
                    yield "ties", _terms(rule, k, [sign * c, half, -tiny])
        for below in range(-2, 4):
            tiny = 2.0 ** -(window + below)
            yield "window", _terms(rule, k, [0.0, sign, tiny, -sign])
            yield "window", _terms(rule, k, [-sign, sign, 1.5 * tiny])
            yield "window", _terms(rule, k, [sign, 0.0, -tiny, -tiny, -tiny])


def _terms(rule: Rule, k: int, values: list[float]) -> Dots:
    """Return a dot product of these terms: c, and products."""
    given = np.zeros((1, max(k, len(values) - 1)))
    given[0, : len(values) - 1] = values[1:]
    scales, given = _scales_for(rule, given[:, :k])
    a, b = _factors(given, format_of(rule.ab), format_of(rule.right))
    return Dots(a, b, _rounded(np.array(values[:1]), format_of(rule.acc)), *scales)


def _ones(rule: Rule, count: int, k: int) -> tuple[Bits, Bits]:
    """Return scales that are 1."""
    if not rule.scale:
        return np.zeros((count, 0), np.uint64), np.zeros((count, 0), np.uint64)
    one = scale_patterns(rule.scale_type)["one"]
    left, right = (np.full((count, k // rule.block), one, np.uint64) for _ in range(2))
    return left, right


def _scales_for(
    rule: Rule, terms: Float64, rng: np.random.Generator | None = None
) -> tuple[tuple[Bits, Bits], Float64]:
    """Return scales for products that are to be these numbers, (W, k), and the rest of them.

    The scales of a block are such that its largest product has factors near 1.
    """
    count, k = terms.shape
    if not rule.scale:
        return _ones(rule, count, k), terms
    largest = np.abs(terms).reshape(count, k // rule.block, rule.block).max(axis=2)
    power = np.where(largest > 0.0, np.frexp(largest)[1] - 1, 0)
    ends = (-6, 8) if rule.scale_type == "ue4m3" else (-127, 127)
    share = power // 2
    if rng is not None:
        power = power + rng.integers(-2, 3, power.shape)
        share = power // 2 + rng.integers(-6, 7, power.shape)
    left = np.clip(share, *ends)
    right = np.clip(power - left, *ends)
    rest = terms * np.repeat(2.0 ** -(left + right), rule.block, axis=1)
    if rule.scale_type == "ue8m0":
        return (_unsigned(left + 127, _BYTE), _unsigned(right + 127, _BYTE)), rest
    found = [left + 7 << 3, right + 7 << 3]
    if rng is not None:
        # Some are no powers of two: their products are others.
        found = [one | rng.choice((0, 0, 0, 0, 1, 3, 5, 6), one.shape) for one in found]
    return (_unsigned(found[0], _BYTE), _unsigned(found[1], _BYTE)), rest


# --- Drawn ------------------------------------------------------------------------------------


def random_dots(rng: np.random.Generator, count: int, rule: Rule, k: int) -> Dots:
    """Return random operands: numbers of one size, numbers of all sizes, and any patterns."""
    left, right, acc = (format_of(one) for one in (rule.ab, rule.right, rule.acc))
    if not left.is_float:
        return _integers(rng, count, k, rule)
    kind = np.arange(count) % 4
    a, b = (_normal(rng, (count, k), fmt, kind[:, None]) for fmt in (left, right))
    c = _normal(rng, (count,), acc, kind)
    every = kind == 3
    a[every], b[every] = (_any(rng, (int(every.sum()), k), fmt) for fmt in (left, right))
    c[every] = _any(rng, (int(every.sum()),), acc)
    scales = _ones(rule, count, k)
    for one in scales:
        near = one + rng.integers(0, 8, one.shape, np.uint64) - np.uint64(4)
        every_byte = rng.integers(0, 256, one.shape, np.uint64)
        one[...] = np.where(kind[:, None] == 3, every_byte, np.where(kind[:, None] == 0, one, near))
    return Dots(a, b, c, *scales)


def _normal(
    rng: np.random.Generator, shape: tuple[int, ...], fmt: Format, kind: NDArray[Any]
) -> Bits:
    reach = np.where(kind == 0, 0, np.where(kind == 1, fmt.emax // 3, fmt.emax))
    exponents = rng.integers(-reach, reach + 1, shape)
    return _rounded(rng.standard_normal(shape) * 2.0**exponents, fmt)


def _any(rng: np.random.Generator, shape: tuple[int, ...], fmt: Format) -> Bits:
    """Return any patterns of a type."""
    found = rng.integers(0, 2**fmt.bits, shape, dtype=np.uint64)
    if fmt.name == "tf32":
        # An operand in memory is a float32; its low bits are no part of the type.
        found &= ~np.uint64(2**13 - 1)
    return found


def _integers(rng: np.random.Generator, count: int, k: int, rule: Rule) -> Dots:
    """Return integers: of all sizes, extreme ones, and c near both ends."""
    ab, acc = format_of(rule.ab), format_of(rule.acc)
    low, high = int(ab.smallest), int(ab.largest)
    extremes = np.array([low, high, 0, 1, high - 1])
    kind = rng.integers(0, 3, (count, 1))
    a, b = (
        np.where(
            kind == 0,
            rng.integers(low, high + 1, (count, k)),
            np.where(kind == 1, rng.choice(extremes, (count, k)), rng.choice(extremes, (count, 1))),
        )
        for _ in range(2)
    )
    edge = rng.choice((acc.smallest, acc.largest), count) * rng.choice((0.0, 1.0), count)
    c = edge - np.copysign(rng.integers(0, 2 ** rng.integers(0, 24, count)), edge)
    operands = _unsigned(a, ab), _unsigned(b, ab), _unsigned(c, acc)
    return Dots(*operands, *_ones(rule, count, k))


def _unsigned(values: NDArray[Any], fmt: Format) -> Bits:
    """Return integers in two's complement."""
    return values.astype(np.int64).view(np.uint64) & np.uint64(2**fmt.bits - 1)


def drawn_to_hit(rng: np.random.Generator, count: int, rule: Rule, k: int) -> Dots:
    """Return sums whose terms meet where a rule decides.

    Exponents are apart by about as much as the window or the result is wide, pairs cancel, c and a
    product make a tie beside a third term that is hardly kept, results are near the ends of the
    range, and some operands are special.
    """
    left, right, acc = (format_of(one) for one in (rule.ab, rule.right, rule.acc))
    if not left.is_float:
        return _integers(rng, count, k, rule)
    bits = window = acc.fraction_bits
    floor = None
    if isinstance(rule.how, Fused):
        bits, window = rule.how.output_fraction_bits or bits, rule.how.fraction_bits
        floor = rule.how.exponent_floor
    top = _tops(rng, count, rule, floor)
    apart = _apart(rng, (count, k + 1), bits, window)
    terms = _significands(rng, (count, k + 1), bits) * 2.0 ** (top[:, None] - apart)
    terms *= _signs(rng, (count, k + 1))
    present = rng.random((count, k + 1)) < rng.choice((0.3, 0.7, 1.0), (count, 1))
    terms = np.where(present, terms, 0.0)
    _make_ties(rng, terms, top, bits, window)
    scales, rest = _scales_for(rule, terms[:, 1:], rng)
    a, b = _factors(rest, left, right, rng)
    _cancel(rng, a, b, right)
    c = _rounded(terms[:, 0], acc)
    each = decoded(a, left).astype(np.float64) * decoded(b, right)
    for one in scales if rule.scale else ():
        each *= np.repeat(scales_of_bits(one, rule.scale_type), rule.block, axis=1)
    products = each.sum(axis=1)
    back = rng.random(count) < 0.2
    c[back] = _rounded(-products[back], acc)
    near = back & (rng.random(count) < 0.5)
    c[near] ^= rng.integers(0, 4, int(near.sum()), dtype=np.uint64)
    _put_special(rng, (a, b, c), (left, right, acc))
    if rule.scale:
        special = np.array(list(scale_patterns(rule.scale_type).values()), np.uint64)
        for one in scales:
            rows = rng.random(count) < _SPECIAL
            one[rows] = rng.choice(special, one[rows].shape)
    return Dots(a, b, c, *scales)


def _tops(
    rng: np.random.Generator,
    count: int,
    rule: Rule,
    floor: int | None,
) -> NDArray[np.int64]:
    """Return exponents of largest terms: any, near both ends of the range, and near the floor."""
    left, right, acc = (format_of(one) for one in (rule.ab, rule.right, rule.acc))
    # Two scales widen the range of a product.
    more = {"": 0, "ue4m3": 14}.get(rule.scale_type, 254)
    low = max(left.emin + right.emin - 4 - more, acc.emin - 4)
    high = min(left.emax + right.emax + 1 + more, acc.emax + 1)
    ends = [low + 8, high - 2] + ([] if floor is None else [floor])
    near = rng.choice(ends, count) + rng.integers(-8, 4, count)
    middle = rng.integers(low // 4, max(high // 4, low // 4 + 1), count)
    every = rng.integers(low, high + 1, count)
    kind = rng.integers(0, 4, count)
    return np.where(kind < 2, middle, np.where(kind == 2, near, every))


def _apart(
    rng: np.random.Generator, shape: tuple[int, int], bits: int, window: int
) -> NDArray[np.int64]:
    """Return the distance of the exponent of each term from the largest one."""
    kind = rng.integers(0, 4, shape)
    at_window = window + rng.integers(-3, 4, shape)
    at_result = bits + rng.integers(-2, 4, shape)
    within = rng.integers(0, window + 4, shape)
    few = rng.integers(0, 3, shape)
    return np.select([kind == 0, kind == 1, kind == 2], [at_window, at_result, within], few)


def _significands(rng: np.random.Generator, shape: tuple[int, int], bits: int) -> Float64:
    """Return numbers from 1 to 2: random ones, 1, those of few bits, and those of ones alone."""
    kind = rng.integers(0, 4, (shape[0], 1))
    most = 2.0 - 2.0**-bits
    few = 1.0 + rng.integers(0, 4, shape) / 4
    return np.select(
        [kind == 0, kind == 1, kind == 2],
        [np.ones(shape), few, np.full(shape, most)],
        rng.uniform(1.0, 2.0, shape),
    )


def _signs(rng: np.random.Generator, shape: tuple[int, int]) -> Float64:
    alike = rng.random((shape[0], 1)) < 0.4
    return np.where(alike, rng.choice((-1.0, 1.0), (shape[0], 1)), rng.choice((-1.0, 1.0), shape))


def _make_ties(
    rng: np.random.Generator, terms: Float64, top: NDArray[np.int64], bits: int, window: int
) -> None:
    """Let some sums be a result, half its last place, and perhaps something that is hardly kept."""
    rows = np.flatnonzero(rng.random(len(terms)) < 0.3)
    place = 2.0 ** (top[rows] - bits)
    base = np.floor(rng.uniform(2.0**bits, 2.0 ** (bits + 1), rows.size))
    base = np.where(rng.random(rows.size) < 0.3, 2.0 ** (bits + 1) - 1, base)
    sign = rng.choice((-1.0, 1.0), rows.size)
    terms[rows] = 0.0
    order = rng.permuted(np.tile(np.arange(terms.shape[1]), (rows.size, 1)), axis=1)
    # The widest significand fits in c alone, where that is wider than a product of few bits.
    order = np.where(rng.random((rows.size, 1)) < 0.7, np.sort(order, axis=1), order)
    tiny = 2.0 ** (top[rows] - window - rng.integers(-2, 4, rows.size))
    parts = (
        sign * base * place,
        rng.choice((-0.5, 0.5, 0.5), rows.size) * sign * place,
        rng.choice((-1.0, 0.0, 1.0), rows.size) * tiny,
    )
    for number, part in enumerate(parts[: terms.shape[1]]):
        terms[rows, order[:, number]] = part


def _cancel(rng: np.random.Generator, a: Bits, b: Bits, right: Format) -> None:
    """Let a product of some sums be the negative of another."""
    count, k = a.shape
    if k < 2:
        return
    rows = np.flatnonzero(rng.random(count) < 0.25)
    first = rng.integers(0, k, rows.size)
    second = (first + rng.integers(1, k, rows.size)) % k
    a[rows, second] = a[rows, first]
    b[rows, second] = b[rows, first] ^ np.uint64(1 << (right.bits - 1))


def _put_special(
    rng: np.random.Generator, operands: tuple[Bits, Bits, Bits], types: tuple[Format, ...]
) -> None:
    """Put patterns at which arithmetic changes in place of some operands, or any patterns."""
    count = len(operands[2])
    special, every = rng.random(count) < _SPECIAL, rng.random(count) < _ANY
    for bits, fmt in zip(operands, types, strict=True):
        chosen = np.array(list(patterns(fmt).values()), np.uint64)
        mask = (rng.random(bits.shape) < 0.3) & special.reshape(-1, *[1] * (bits.ndim - 1))
        bits[mask] = rng.choice(chosen, int(mask.sum()))
        bits[every] = _any(rng, bits[every].shape, fmt)


def _factors(
    values: Float64, left: Format, right: Format, rng: np.random.Generator | None = None
) -> tuple[Bits, Bits]:
    """Return factors of values, as near as two types have them: a power of two, and the rest."""
    _, exponents = np.frexp(values)
    least = right.emin - right.fraction_bits
    half = (exponents - 1) // 2
    if rng is not None:
        half = half + rng.integers(-6, 7, values.shape)
    # The rest must be within its own range.
    half = np.clip(half, exponents - 1 - left.emax, exponents - 1 - left.emin)
    half = np.clip(half, least, right.emax)
    rest = np.ldexp(values, -half)
    power = np.ldexp(1.0, half)
    if rng is not None:
        # Some powers of two are numbers of more bits: the product is then another one.
        more = rng.random(values.shape) < 0.3
        power = np.where(more, power * rng.uniform(1.0, 2.0, values.shape), power)
    return _rounded(rest, left), _rounded(np.where(values == 0.0, 1.0, power), right)


def _rounded(values: Float64, fmt: Format) -> Bits:
    """Return the bits of values rounded to a type, at most its largest number."""
    limited = np.clip(values, -fmt.largest, fmt.largest)
    return encoded(round_values(limited, fmt), fmt).astype(np.uint64)
