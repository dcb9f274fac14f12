"""The text of an account for every medium: tables, and digits in columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from tcusim.machine.accounts.account import Account, Step, Term, hex_text, leading_exponent
from tcusim.machine.formats import format_of
from tcusim.machine.rules import Exact, Fused, Integer, Late, Rule, Sequential
from tcusim.machine.sequential import fraction_to_float

# Of a long chain, the first and the last steps are shown; the data have all.
_FIRST, _LAST = 12, 4

# Sums of more bits, which only exact arithmetic has, are not written in columns.
_MOST_DIGITS: Final = 72

# Number of lost digits to show.
_MOST_LOST: Final = 14
_ZERO: Final = Fraction(0)


@dataclass(frozen=True, slots=True)
class Entry:
    """A term, the sum or the result of a step.

    name: of the term. factors: its numbers in decimal. exponent: its own. digits: sign and digits,
    with equal weights in equal columns. lost: truncated digits. remark: a note.
    """

    name: str
    factors: str = ""
    exponent: str = ""
    digits: str = ""
    lost: str = ""
    remark: str = ""
    kind: str = "term"


@dataclass(frozen=True, slots=True)
class Panel:
    """A step: its title, a sentence on its alignment, and its lines.

    Without lines, the title describes the steps that are not shown.
    """

    title: str
    sentence: str
    lines: tuple[Entry, ...]


# --- Of all ---------------------------------------------------------------------------------


def about(accounts: Sequence[Account]) -> str:
    """Return a line that describes the computation."""
    one = accounts[0]
    terms = [term for step in one.steps for term in step.terms]
    products = len({_order(term) for term in terms if "*" in term.name})
    several = "s" * (products != 1)
    of = f"{products} product{several} of {one.rule.operands}, and c, into {one.rule.acc}"
    if one.cut_operands:
        of += (
            f". Float32 operands that were cut to tf32, of which the instruction ignores the last "
            f"13 bits: {one.cut_operands}"
        )
    if one.rounded:
        of += f". Rounded before: {'; '.join(one.rounded)}"
    if one.exact is None:
        return f"{of}. There is no exact value: an infinity or a NaN is among them"
    return f"{of}. Exact value: {_decimal(one.exact)} ({hex_text(one.exact)})"


def tables(accounts: Sequence[Account]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Yield the captions and the rows of the tables of all accounts, headers first."""
    yield "Results", summary(accounts)
    if kept := _fates(accounts):
        yield "What each keeps of the terms", kept


def summary(accounts: Sequence[Account]) -> list[tuple[str, ...]]:
    """Return a table of the results, its header first."""
    header = ("arch", "bits", "value", "error", "by alignment", "by rounding", "steps", "terms cut")
    rows: list[tuple[str, ...]] = [header]
    for one in accounts:
        terms = sum(len(step.terms) for step in one.steps)
        parts: list[float | None] = [None, None]
        if one.error is not None and one.ulp is not None:
            cut = -sum((step.lost_in_alignment for step in one.steps), Fraction(0))
            parts = [fraction_to_float(part / one.ulp) for part in (cut, one.error - cut)]
        rows.append(
            (
                one.arch,
                one.bits,
                _shortest(one.result, one.rule),
                _ulps(one.ulps),
                *map(_ulps, parts),
                str(len(one.steps)),
                f"{one.cut_terms} of {terms}",
            )
        )
    return rows


def _fates(accounts: Sequence[Account]) -> list[tuple[str, ...]]:
    """Return a table of the kept part of each input on each architecture, if any truncates one."""
    if len(accounts) < 2 or not any(one.cut_terms for one in accounts):
        return []
    found: dict[str, list[str]] = {}
    for one in accounts:
        inputs = [term for step in one.steps for term in step.terms if term.is_input]
        for term in sorted(inputs, key=_order):
            found.setdefault(term.name, []).append(_fate(term))
    cut = {name: words for name, words in found.items() if set(words) != {"all"}}
    rows = [("kept of", *(one.arch for one in accounts))]
    rows += [(name, *words) for name, words in [*cut.items()][:_FIRST]]
    if len(cut) > _FIRST:
        rows.append((f"and {len(cut) - _FIRST} more", *("..." for _ in accounts)))
    elif len(cut) < len(found):
        rows.append(("the others" if cut else "every term", *("all" for _ in accounts)))
    return rows


def _order(term: Term) -> int:
    """Return the place of an input: c, then the products by k."""
    return -1 if term.name == "c" else int(term.name[2 : term.name.index("]")])


def _fate(term: Term) -> str:
    if not term.is_cut:
        return "all"
    return "part" if term.kept else "nothing"


def legend(accounts: Sequence[Account]) -> str:
    """Say how to read the digits; nothing where there are none."""
    kinds = {_digits_of(step) for one in accounts for step in one.steps if not step.is_special}
    words = []
    if "binary" in kinds:
        words.append(
            "Digits are binary, in columns of equal weight. [Digits in brackets] are cut off: "
            "beside a term in the alignment, beside the sum when it is rounded."
        )
    if "hexadecimal" in kinds:
        words.append("0x1.8p-3 is 1.5 * 2^-3, as C writes it, where columns would be too wide.")
    if accounts[0].exact is not None:
        words.append(
            "An ulp is the distance of neighbours in the result's type, at the exact value."
        )
    return " ".join(words)


def _digits_of(step: Step) -> str:
    if step.kind == "integer":
        return "decimal"
    return "binary" if _Columns.of(step).fit else "hexadecimal"


# --- Of one architecture --------------------------------------------------------------------


def in_words(one: Account) -> str:
    """Return a sentence that describes an architecture's summation."""
    rule, acc = one.rule, format_of(one.rule.acc)
    family = f" ({rule.family})" if rule.family else ""
    head = f"{one.title}{family}: "
    if rule.passes is not None:
        of_a, of_b = (" + ".join(map(str, bits)) for bits in (rule.passes.left, rule.passes.right))
        head += f"{len(rule.passes.pairs)} passes, over {of_a} bits of a and {of_b} of b: "
    match rule.how:
        case Fused() as how:
            bits = (how.output_fraction_bits or acc.fraction_bits) + 1
            halves = ", first those with k mod 4 = 0 or 1," if how.register_halves else ""
            floor = "" if how.exponent_floor is None else f" (never below {how.exponent_floor})"
            late = "; c is added at the end" if how.c_joins == "after" else ""
            if isinstance(how.c_joins, Late):
                bits_of = how.c_joins
                late = f"; c joins the sum late, with {bits_of.c_bits} bits"
            cut = {"rz": "cut", "sticky": "cut with a sticky bit"}.get(how.alignment, "rounded")
            if how.sums > 1:
                halves = f" in {how.sums} partial sums,"
            return (
                f"{head}up to {how.length} products a step{halves} aligned to the largest exponent "
                f"E{floor}, {cut} to {how.fraction_bits} bits below it, added exactly, and "
                f"{_how_rounded(how.output)} to {bits} bits{late}"
            )
        case Sequential() as how:
            bits = acc.fraction_bits + 1
            own = format_of(how.sum_type).fraction_bits + 1 if how.sum_type else bits
            last = f", the sum with c to {bits}" if own != bits else ""
            return (
                f"{head}{_sequence(how)}, each {_how_rounded(how.rounding)} to {own} bits{last}; "
                "nothing is aligned or cut"
            )
        case Exact() as how:
            of = f"groups of {how.length} products" if how.length else "everything"
            late = ", then added to c" if how.c_joins == "after" else ""
            return (
                f"{head}{of} added exactly, rounded once to nearest even to "
                f"{acc.fraction_bits + 1} bits{late}"
            )
        case Integer():
            return f"{head}integers added exactly, {_how_rounded(rule.how.overflow)}"


def _sequence(how: Sequential) -> str:
    """Return the order of IEEE operations in words."""
    if how.order == "tree":
        return f"a binary tree of {how.length} products, then c"
    if how.order == "apart" and how.sums == 1:
        return f"fused multiply-adds of {how.length or 'all'} products from zero, then c"
    if how.sums > 1:
        return f"{how.sums} chains of fused multiply-adds, then their sum, then c"
    return "one fused multiply-add after another"


def panels(one: Account) -> Iterator[Panel]:
    """Yield the panels of the first and of the last steps."""
    more = len(one.steps) - _FIRST - _LAST
    for number, step in enumerate(one.steps):
        if more <= 0 or not _FIRST <= number < _FIRST + more:
            yield panel(one, step)
        elif number == _FIRST:
            yield Panel(f"{more} more steps; to_json() and .accounts have them all", "", ())


# --- Of one step ----------------------------------------------------------------------------


def panel(one: Account, step: Step) -> Panel:
    """Return the panel of a step."""
    where = f"step {step.name[1:]} of {len(one.steps)}" if len(one.steps) > 1 else "one step"
    lines = _special(one, step) if step.is_special else _finite(one, step)
    return Panel(f"{one.arch}, {where}", _sentence(step), tuple(lines))


def _sentence(step: Step) -> str:
    """Return a sentence on the alignment of the terms."""
    if step.is_special:
        return "An infinity or a NaN is among the terms, and decides as in IEEE 754."
    if step.kind == "integer":
        return "Integers, in decimal."
    if step.kind != "fused":
        return "The sum is exact: no term is cut."
    if step.exponent is None:
        return "Every term is zero."
    leaders = [term.name for term in step.terms if term.exponent == step.exponent]
    whose = "its floor" if not leaders else f"that of {leaders[0]}"
    if len(leaders) > 1:
        whose += " and another" if len(leaders) == 2 else f" and {len(leaders) - 1} others"
    bits = step.exponent - (step.lowest or 0)
    return f"E = {step.exponent}, {whose}. F = {bits}: what is below 2^{step.lowest} is lost."


def _special(one: Account, step: Step) -> Iterator[Entry]:
    for term in step.terms:
        yield Entry(term.name, _factors(term))
    yield _result(one, step, "")


def _finite(one: Account, step: Step) -> Iterator[Entry]:
    """Yield a line for each term, the sum and the result."""
    total = step.total or Fraction(0)
    result = Fraction(step.result) if math.isfinite(step.result) else None
    columns = _Columns.of(step)
    for term in step.terms:
        digits, lost, remark = _term_digits(term, step, columns)
        exponent = "" if term.exponent is None or step.kind == "integer" else str(term.exponent)
        yield Entry(term.name, _factors(term), exponent, digits, lost, remark)
    digits, lost = columns.cut(total, step.last_bit)
    yield Entry("sum", digits=digits, lost=lost, remark=_lost_in_all(step, one), kind="sum")
    yield _result(one, step, "" if result is None else columns.cut(result, step.last_bit)[0])


def _term_digits(term: Term, step: Step, columns: _Columns) -> tuple[str, str, str]:
    """Return a term's digits that are kept, those that are not, and a remark."""
    value, kept = term.value or _ZERO, term.kept or _ZERO
    if value and term.exponent is None:
        return columns.cut(kept, None)[0], "", "subnormal, counts as zero"
    digits, lost = columns.cut(value, step.lowest)
    if abs(kept) > abs(value):
        return columns.cut(kept, step.lowest)[0], "", "rounded up"
    if value and not kept:
        return digits, lost, "lost"
    return digits, lost, ""


def _lost_in_all(step: Step, one: Account) -> str:
    """Return a sentence on the total loss of the terms."""
    cut = step.lost_in_alignment
    if not cut or one.ulp is None:
        return ""
    lost = fraction_to_float(cut / one.ulp)
    return f"after {_ulps(lost, '')} {'was' if lost == 1 else 'were'} lost"


def _result(one: Account, step: Step, digits: str) -> Entry:
    words = {**_ENDINGS, "rz": "cut toward zero"}[step.rounding]
    lost = step.lost_in_rounding
    if step.is_special:
        words = ""
    elif lost is None:
        words = "too large"
    elif not lost:
        words = "unrounded"
    remark = f"{step.bits} = {_shortest(step.result, one.rule)}"
    name = "d" if step is one.steps[-1] else step.name
    return Entry(name, digits=digits, remark=f"{remark}{', ' * bool(words)}{words}", kind="result")


def _how_rounded(rounding: str) -> str:
    return _ENDINGS[rounding]


# The rounding, or the overflow, of a sum in words.
_ENDINGS: Final = {
    "rz": "cut",
    "rne": "rounded to nearest even",
    "rna": "rounded to nearest, ties away from zero,",
    "rd": "rounded down",
    "odd": "rounded to odd",
    "wrap": "modulo 2^32",
    "saturate": "saturated at 32 bits",
    "symmetric": "saturated at 2^31 - 1",
}


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where digits stand: the point behind 2^point, from 2^high down to 2^low.

    decimal: whole numbers in decimal instead.
    """

    point: int
    high: int
    low: int
    decimal: bool = False

    @staticmethod
    def of(step: Step) -> _Columns:
        """Return columns that all numbers of a step fit into."""
        if step.kind == "integer":
            return _Columns(0, 0, 0, decimal=True)
        shown = [*(term.kept for term in step.terms), step.total]
        if math.isfinite(step.result):
            shown.append(Fraction(step.result))
        kept = [number for number in shown if number]
        highest = max(map(leading_exponent, kept), default=0)
        point = highest if step.exponent is None else step.exponent
        low = step.lowest
        if low is None:
            low = min(map(_last_exponent, kept), default=0)
            if step.last_bit is not None:
                low = min(low, step.last_bit)
        return _Columns(point, max(highest, point), min(low, point))

    @property
    def fit(self) -> bool:
        """Whether they are few enough to be written."""
        return self.high - self.low <= _MOST_DIGITS

    def cut(self, x: Fraction, last: int | None) -> tuple[str, str]:
        """Return sign and digits of x down to 2^last (all, for None), and the digits below."""
        if self.decimal:
            return f"{int(x):+d}" if x else " 0", ""
        if not self.fit:
            return _signed(x), ""
        width = self.high - self.point + 1
        if not x:
            return f" {'0':>{width}}", ""
        end = self.low if last is None else max(last, self.low)
        whole, rest = _split(abs(x), end)
        digits = _digits(whole, self.high - end + 1) if end <= self.high else ""
        text = digits[:width]
        if end < self.point:
            text += f".{digits[width:]}"
        elif end > self.point:
            # The last bits before the point are missing, and their columns stay empty.
            text = text.ljust(width)
        return f"{'-' if x < 0 else '+'}{text}", _lost(rest, end)


def _split(x: Fraction, end: int) -> tuple[int, Fraction]:
    """Return x in whole units of 2^end, and the rest."""
    # In integers: a page of a trace splits tens of thousands of numbers.
    whole, rest = divmod(x.numerator << max(-end, 0), x.denominator << max(end, 0))
    return whole, Fraction(rest, x.denominator << max(-end, 0)) if rest else _ZERO


def _digits(number: int, width: int) -> str:
    return f"{number:0{width}b}"


def _lost(rest: Fraction, end: int) -> str:
    """Return the digits below 2^end, shortened."""
    if not rest:
        return ""
    last = _last_exponent(rest)
    zeros = end - 1 - leading_exponent(rest)
    digits = _digits(rest.numerator // (rest.numerator & -rest.numerator), end - last)
    if len(digits) <= _MOST_LOST:
        return digits
    if zeros > 4:
        digits = f"0..0{digits[zeros:]}"
    return digits if len(digits) <= _MOST_LOST else f"{digits[: _MOST_LOST - 2]}.."


def _last_exponent(x: Fraction) -> int:
    """Return the place of the last bit that is 1."""
    numerator = abs(x.numerator)
    return (numerator & -numerator).bit_length() - x.denominator.bit_length()


# --- Numbers --------------------------------------------------------------------------------


def _factors(term: Term) -> str:
    return " * ".join(
        str(factor) if isinstance(factor, int) else f"{factor:.6g}" for factor in term.factors
    )


def _signed(x: Fraction) -> str:
    return f"{' ' if x >= 0 else ''}{hex_text(x)}"


def _decimal(x: Fraction) -> str:
    """Return a number in decimal: all digits if they are few, else the nearest float64."""
    if x.denominator == 1 and abs(x) < 10**15:
        return str(x.numerator)
    near = fraction_to_float(x)
    if math.isinf(near):
        return f"beyond {near} of float64"
    return f"{'' if Fraction(near) == x else 'about '}{near!r}"


def _shortest(result: float, rule: Rule) -> str:
    """Return the shortest decimal number that is read as this value of the accumulator's type."""
    dtype = format_of(rule.acc).dtype
    return str(dtype.type(result))


def _ulps(ulps: float | None, sign: str = "+") -> str:
    if ulps is None:
        return "-"
    return f"{ulps:{sign}.4g} ulp" if ulps else "0"
