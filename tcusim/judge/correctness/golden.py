"""Golden vectors: operands and the outputs that are due, for a test bench of a unit.

Corner cases come first, then random operands, then those that are drawn to hit a rule: of many
candidates the ones whose sums, as the rule itself evaluates them, reach events that few others
reach, or tell the rule from one with another parameter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms import algorithm_of, build, options_of
from tcusim.errors import (
    Given,
    InputError,
    Unsupported,
    require_choice,
    require_int,
    require_names,
)
from tcusim.judge.correctness.vector_files import FORMS, Port, file_of, written_together
from tcusim.machine import Unit, register_unit, rule_of, unit_of, usual_types
from tcusim.machine.bits import decoded, encoded
from tcusim.machine.coverage import Coverage, operand_events, scale_events, wrong_rules
from tcusim.machine.formats import Format, Values, format_of, round_values
from tcusim.machine.golden_header import header_text
from tcusim.machine.hard_operands import Dots, corners, drawn_to_hit, random_dots
from tcusim.machine.registry import own_arithmetic, scaled_rule_of
from tcusim.machine.rules import Arch, Rule
from tcusim.machine.scaled import scaled_mma, scales_of_bits
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.machine.values import Multiplier, mma_values
from tcusim.program.grammar import Program
from tcusim.simulate.interpreter import State
from tcusim.table import Table

Bits: TypeAlias = NDArray[Any]

# The algorithm of an operation where none is named.
OPERATIONS: Final[Mapping[str, str]] = {"mma": "", "reduction": "reduction_t", "scan": "scan_t"}
# Outputs whose sums are watched at a time, at most one batch of the arithmetic.
_BATCH: Final = 2**12
# Warps that run together without being watched.
_UNWATCHED: Final = 2**12
# Candidates of one round, in outputs, and rounds.
_CANDIDATES: Final = 2**15
_ROUNDS: Final = 4
# Candidates of one round, if their sums are few.
_FEWEST: Final = 1024
# Cases are chosen one by one up to here, the others by what is rare after these.
_ONE_BY_ONE: Final = 512
_MOST: Final = 10**7


class Hits(NamedTuple):
    """A case of the arithmetic: how often it came, in how many cases, and in which one first.

    Attributes
    ----------
    name : str
        The event, after its group: ``"rounding: tie, even"``.
    sums : int
        Sums (or operands) that are one; a long k makes several sums for each output.
    cases : int
        Cases with at least one.
    first : int or None
        Index of the first such case.
    """

    name: str
    sums: int
    cases: int
    first: int | None


@dataclass(frozen=True)
class GoldenVectors:
    """Operands and outputs of a unit, with their coverage; `write` makes files of them.

    Attributes
    ----------
    unit, title : str
        The unit.
    rule : Rule
        Its arithmetic of these types.
    op, algorithm : str
        ``"mma"``, ``"reduction"`` or ``"scan"``; and the algorithm of the last two.
    tile : str
        What one mma takes.
    seed : int
        Of the drawn operands.
    ports : tuple of Port
        Inputs, then the output: each with its type, shape and bits.
    groups : tuple of (str, int)
        Groups of cases in their order, and how many there are of each.
    coverage : tuple of Hits
        The events of the rule.
    wrong : tuple of (str, int or None)
        Wrong rules, and the first case that tells each from this rule; None if no case does.
    """

    unit: str
    title: str
    rule: Rule
    op: str
    algorithm: str
    tile: str
    seed: int
    ports: tuple[Port, ...]
    groups: tuple[tuple[str, int], ...]
    coverage: tuple[Hits, ...]
    wrong: tuple[tuple[str, int | None], ...]

    @property
    def count(self) -> int:
        """Number of cases."""
        return len(self.ports[0].bits)

    def __repr__(self) -> str:
        hit = sum(bool(one.cases) for one in self.coverage)
        found = sum(first is not None for _, first in self.wrong)
        return (
            f"<GoldenVectors {self.unit}, {self.op}, {self.tile}, {self.rule.operands} -> "
            f"{self.rule.acc}: {self.count} cases, {hit} of {len(self.coverage)} events, "
            f"{found} of {len(self.wrong)} wrong rules>"
        )

    def tables(self) -> tuple[Table, Table]:
        """Return the coverage, and the wrong rules, as tables."""
        what = f"{self.unit}, {self.op} {self.tile}, {self.rule.operands} to {self.rule.acc}"
        groups = "; ".join(f"{count:,} {name}" for name, count in self.groups)
        hit = sum(bool(one.cases) for one in self.coverage)
        events = Table(
            ("event", "sums", "cases", "first"),
            [
                (one.name, f"{one.sums:,}", f"{one.cases:,}", _place(one.first))
                for one in self.coverage
            ],
            title=f"coverage: {what}",
            align="lrrr",
            texts=[f"{self.count:,} cases: {groups}."],
            notes=[f"{hit} of {len(self.coverage)} events were hit."],
        )
        found = sum(first is not None for _, first in self.wrong)
        wrong = Table(
            ("a unit with", "differs first in case"),
            [(name, _place(first)) for name, first in self.wrong],
            title="wrong rules",
            align="lr",
            notes=[
                f"{found} of {len(self.wrong)} wrong rules differ in some case. One that does not "
                f"may be no other rule for these types and this tile."
            ],
        )
        return events, wrong

    def _repr_html_(self) -> str:
        return "".join(one.html() for one in self.tables())

    def as_json(self) -> dict[str, Any]:
        """Return everything but the bits, as the manifest has it."""
        how = self.rule.how
        parameters = {one.name: _plain(getattr(how, one.name)) for one in fields(how)}
        firsts = np.cumsum([0, *(count for _, count in self.groups)]).tolist()
        return {
            "tcusim": str(import_module("tcusim").__version__),
            "unit": self.unit,
            "title": self.title,
            "op": self.op,
            "algorithm": self.algorithm,
            "tile": self.tile,
            "ab": self.rule.operands,
            "acc": self.rule.acc,
            "rule": {
                "kind": type(how).__name__.lower(),
                **parameters,
                "nan": self.rule.nan,
                "scale": self.rule.scale,
                "source": self.rule.source,
                "evidence": self.rule.evidence,
            },
            "seed": self.seed,
            "count": self.count,
            "ports": [one.as_json() for one in self.ports],
            "groups": [
                {"name": name, "first": first, "count": count}
                for first, (name, count) in zip(firsts, self.groups, strict=False)
            ],
            "coverage": [one._asdict() for one in self.coverage],
            "wrong_rules": [{"rule": name, "first": first} for name, first in self.wrong],
        }

    def files(self, form: str = "hex") -> dict[str, bytes]:
        """Return the files of a form by name, the manifest last.

        Parameters
        ----------
        form : {"hex", "npy", "csv", "c"}
            ``"hex"`` is one file for ``$readmemh`` for each port, ``"npy"`` an array of unsigned
            integers for each, ``"csv"`` one table, ``"c"`` a header with an array for each.
        """
        require_choice("form", form, FORMS)
        about = self.as_json()
        head = f"tcusim {about['tcusim']}: unit {self.unit}, {self.op} {self.tile}, "
        head += f"{self.rule.operands} to {self.rule.acc}, seed {self.seed}"
        names = [name for name, count in self.groups for _ in range(count)]
        found = file_of(form, self.ports, head, names)
        about["format"] = form
        about["files"] = [
            {"name": name, "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in found.items()
        ]
        return found | {"manifest.json": (json.dumps(about, indent=2) + "\n").encode()}

    def write(self, folder: str | Path, form: str = "hex") -> None:
        """Write the files of a form to a folder, all of them or none.

        Parameters
        ----------
        folder : str or Path
            It is made if it is not there. Files of vectors that are there are replaced.
        form : {"hex", "npy", "csv", "c"}
            As of `files`.

        Raises
        ------
        InputError
            If the folder cannot be written; the files in it are then those of before.
        """
        written_together(Path(folder), self.files(form))


def _place(first: int | None) -> str:
    return "-" if first is None else f"{first:,}"


def _plain(value: Any) -> Any:
    """Return a parameter as JSON has it: a late c is an object."""
    if hasattr(value, "__dataclass_fields__"):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return value


def golden_vectors(
    unit: str | Path | Unit | Arch,
    op: str = "mma",
    *,
    count: int = 1000,
    seed: int = 0,
    tile: str | tuple[int, int, int] | MmaShape | None = None,
    ab: str | None = None,
    acc: str | None = None,
    family: str = "",
    algorithm: str = "",
    scale: str = "",
) -> GoldenVectors:
    """Draw operands for a unit's test bench, and return them with the outputs that are due.

    Corner cases come first: zeros of both signs, subnormals, largest numbers, infinities, NaN,
    ties, cancellations. Random operands are next. The last are drawn for this very rule: of many
    candidates, those that reach an event of its arithmetic, or differ from a wrong rule, which few
    others do. The coverage is counted by the rule's own evaluation.

    Parameters
    ----------
    unit : str, Path, Unit or Arch
        As of `unit_of`: a name, or the path of a TOML file.
    op : {"mma", "reduction", "scan"}
        A case is one mma, d = a @ b + c; or one warp's share of a sum or scan of segments.
    count : int
        Number of cases.
    seed : int
        Seed of the drawn operands: equal arguments give equal bits.
    tile : str, tuple or MmaShape, optional
        By default the first of the unit. For mma its m and n may be others, such as 1x1x16 for
        single dot products; its k is that of a tile.
    ab, acc : str, optional
        Types, by default f16 in f32, or the first of the unit.
    family : str
        The instruction, if the instructions of an architecture differ.
    algorithm : str
        Of a reduction or scan: by default reduction_t or scan_t, of segments as large as a tile.
    scale : str
        Block scales, such as ``"block32.ue8m0"``, or with the kind of instruction before that; the
        default is none, or the first of a unit that has no rule without. An mma then has two more
        inputs, scale_a (m, k / block) and scale_b (k / block, n), which are bytes.

    Returns
    -------
    GoldenVectors
        Print its `tables`, or `write` its files.

    Raises
    ------
    InputError
        If there is no such operation or tile.
    UnknownName
        If there is no such unit, type or algorithm.
    Unsupported
        If the unit does not take the types.

    Examples
    --------
    >>> vectors = golden_vectors("volta", count=60, tile="1x1x4")
    >>> vectors
    <GoldenVectors volta, mma, 1x1x4, f16 -> f32: 60 cases, ...>
    >>> [(port.name, port.type, port.bits.shape) for port in vectors.ports]
    [('a', 'f16', (60, 1, 4)), ('b', 'f16', (60, 4, 1)), ('c', 'f32', (60, 1, 1)), ('d', ...)]
    """
    require_choice("op", op, tuple(OPERATIONS))
    require_int("count", count, 1, _MOST)
    require_int("seed", seed, 0)
    if algorithm and op == "mma":
        raise InputError(
            Given("algorithm"), " is of a reduction or a scan; ", Given("op", op), " has none"
        )
    known, rule = _rule_of(unit, ab, acc, family, scale)
    if rule.scale and op != "mma":
        raise Unsupported("block scales are of single mma: no program has them; ", Given("op", op))
    shape = _tile_of(known, tile, op, rule)
    bench: _Bench
    if op == "mma":
        bench = _Mma(rule, shape)
    else:
        algorithm = algorithm_of(algorithm or OPERATIONS[op]).name
        bench = _Warps(
            known, rule, shape, _program(algorithm, op, shape, (rule.operands, rule.acc))
        )
    with np.errstate(all="ignore"):
        inputs, groups = _cases(bench, count, np.random.default_rng(seed))
        hits, out = _measured(bench, inputs)
        wrong = tuple(_told_apart(bench, inputs, out))
    return GoldenVectors(
        *(known.name, known.title, rule, op, algorithm, shape.name, seed),
        ports=tuple(map(Port.filled, bench.ports, (*inputs, out))),
        groups=groups,
        coverage=tuple(_event(name, found) for name, found in hits.items()),
        wrong=wrong,
    )


def golden_header(
    unit: str | Path | Unit | Arch,
    *,
    tile: str | tuple[int, int, int] | MmaShape | None = None,
    ab: str | None = None,
    acc: str | None = None,
    family: str = "",
    scale: str = "",
) -> str:
    """Return a unit's mma as a C99 header that needs no other file, for a model or DPI-C.

    It is the rule in C that the backend ``host`` computes with, and the unit's parameters: the
    results are those of `mma`, bit for bit.

    Parameters
    ----------
    unit, tile, ab, acc, family, scale
        As of `golden_vectors`.

    Returns
    -------
    str
        The text of ``tcusim_golden.h``. Its first comment describes its functions, and the import
        declaration of SystemVerilog.

    Examples
    --------
    >>> text = golden_header("volta", tile="1x1x4")
    >>> [line for line in text.splitlines() if "uint32_t tcusim_golden_dot(" in line][0]
    ' *     uint32_t tcusim_golden_dot(const uint16_t* a, const uint16_t* b, uint32_t c);'
    """
    known, rule = _rule_of(unit, ab, acc, family, scale)
    return header_text(known.name, rule, _tile_of(known, tile, "mma", rule))


def _rule_of(
    unit: str | Path | Unit | Arch, ab: str | None, acc: str | None, family: str, scale: str
) -> tuple[Unit, Rule]:
    known = unit_of(unit)
    require_names(scale=scale)
    scaled = known.arch.scaled
    if not scale and (known.arch.rows or not scaled):
        return known, rule_of(known.arch, *usual_types(known.arch, ab, acc), family)
    if family:
        raise InputError(
            Given("family", family), " and ", Given("scale", scale), ": scales name the instruction"
        )
    named = scale or scaled[0].scale
    like = [one for one in scaled if f".{one.scale}".endswith(f".{named}")] or scaled
    usual = next((one for one in like if acc in (None, one.acc)), None)
    types = (usual.ab, usual.acc) if usual is not None else ("e4m3", "f32")
    return known, scaled_rule_of(known.arch, ab or types[0], acc or types[1], named)


def _tile_of(
    unit: Unit, tile: str | tuple[int, int, int] | MmaShape | None, op: str, rule: Rule
) -> MmaShape:
    """Return the tile of the vectors; of an mma any with the k of a tile of the unit."""
    if rule.block:
        known = (one for one in unit.shapes if one.k % rule.block == 0)
        usual = next(known, MmaShape(16, 8, max(rule.block, 32)))
        shape = usual if tile is None else shape_of(tile)
        if shape.k % rule.block:
            raise InputError(
                f"a scale is of {rule.block} products, and the tile {shape.name} has {shape.k}; "
                f"give a tile with a multiple of {rule.block}"
            )
        return shape
    if tile is None:
        return unit.shapes[0] if unit.shapes else shape_of("16x16x16")
    shape = shape_of(tile)
    if not unit.shapes or (op == "mma" and shape.k in {one.k for one in unit.shapes}):
        return shape
    if op == "mma":
        depths = ", ".join(str(k) for k in sorted({one.k for one in unit.shapes}))
        raise InputError(
            f"the unit {unit.name} has no tile with k = {shape.k}; its k: {depths}. The m and n of "
            f"vectors may be any"
        )
    return unit.tile(shape.name)


def _program(algorithm: str, op: str, shape: MmaShape, types: tuple[str, str]) -> Program:
    row = algorithm_of(algorithm)
    if row.kind != op:
        raise InputError(
            f"{row.name} is of the kind {row.kind!r}, and these vectors are of ", Given("op", op)
        )
    one_warp = {"warps": 1, "items_per_warp": 1}
    known = {**options_of(build), **row.options}
    given: Any = {name: value for name, value in one_warp.items() if name in known}
    return build(row.name, tile=shape, ab=types[0], acc=types[1], **given)


# --- Units under test -------------------------------------------------------------------------


class _Bench(Protocol):
    """A way to compute cases, by a rule or one like it."""

    rule: Rule
    # Terms of a sum, and products of one mma.
    k: int
    depth: int
    # Outputs of one case, more for many terms, and cases that are watched at a time.
    cost: int
    batch: int
    ports: tuple[Port, ...]

    def inputs(self, dots: Dots) -> tuple[Bits, ...]:
        """Return the inputs of cases, of which each has some of these sums."""
        ...

    def dots(self, cases: int) -> int:
        """Return the number of sums for so many cases."""
        ...

    def run(self, inputs: Sequence[Bits], rule: Rule, watch: Coverage | None = None) -> Bits:
        """Return the outputs of cases."""
        ...


class _Mma:
    """One mma: each case is a tile, with as many sums of its own as fit on its diagonal."""

    def __init__(self, rule: Rule, shape: MmaShape) -> None:
        m, n, k = shape.m, shape.n, shape.k
        self.rule, self.k, self.depth = rule, k, k
        self.cost = m * n * max(1, k // 4)
        self.batch = max(1, _BATCH // (m * n))
        self.m, self.n, self.own = m, n, min(m, n)
        self.formats = tuple(map(format_of, (rule.ab, rule.right, rule.acc)))
        blocks = k // rule.block if rule.block else 0
        scales = (
            Port("scale_a", rule.scale_type, (m, blocks)),
            Port("scale_b", rule.scale_type, (blocks, n)),
        )
        self.ports: tuple[Port, ...] = (
            Port("a", rule.ab, (m, k)),
            Port("b", rule.right, (k, n)),
            Port("c", rule.acc, (m, n)),
            *(scales if blocks else ()),
            Port("d", rule.acc, (m, n), is_output=True),
        )

    def dots(self, cases: int) -> int:
        return cases * self.own

    def inputs(self, dots: Dots) -> tuple[Bits, ...]:
        # The sum of row i and column j is one that was drawn where they are of the same one.
        count = len(dots.c) // self.own
        a, b, c, left, right = (one.reshape(count, self.own, *one.shape[1:]) for one in dots)
        rows, columns = np.arange(self.m) % self.own, np.arange(self.n) % self.own
        row, column = np.meshgrid(rows, columns, indexing="ij")
        addend = np.where(row == column, row, (row + column) % self.own)
        operands = a[:, rows], b[:, columns].transpose(0, 2, 1), c[:, addend]
        scales = left[:, rows], right[:, columns].transpose(0, 2, 1)
        return (*operands, *(scales if self.rule.block else ()))

    def run(self, inputs: Sequence[Bits], rule: Rule, watch: Coverage | None = None) -> Bits:
        a, b, c = map(decoded, inputs[:3], self.formats)
        if not rule.block:
            return encoded(mma_values(a, b, c, rule, watch), self.formats[2])
        left, right = (scales_of_bits(one, rule.scale_type) for one in inputs[3:])
        return encoded(scaled_mma(a, b, c, (left, right), rule, watch), self.formats[2])


class _Warps:
    """A reduction or a scan: each case is the share of one warp."""

    def __init__(self, unit: Unit, rule: Rule, tile: MmaShape, program: Program) -> None:
        self.rule, self.program = rule, program
        if own_arithmetic(unit):
            register_unit(unit)
        self.arch = unit.arch.name
        (given,), (made,) = program.inputs, program.outputs
        per = program.blocks.per
        scalars = {program.scalars[0].name: per}
        self.k, self.size = per, made.size.evaluate(scalars)
        self.cost = tile.m * tile.n * max(1, per // tile.k)
        self.depth = tile.k
        self.batch = max(1, min(_BATCH // 16, _BATCH // (tile.m * tile.n)))
        self.formats = format_of(given.dtype), format_of(made.dtype)
        self.ports: tuple[Port, ...] = (
            Port(given.name, given.dtype, (per,)),
            Port(made.name, made.dtype, (self.size,), is_output=True),
        )

    def dots(self, cases: int) -> int:
        return cases

    def inputs(self, dots: Dots) -> tuple[Bits, ...]:
        left, right = format_of(self.rule.ab), format_of(self.rule.right)
        products = decoded(dots.a, left).astype(np.float64) * decoded(dots.b, right)
        return (_rounded_to(self.formats[0], products),)

    def run(self, inputs: Sequence[Bits], rule: Rule, watch: Coverage | None = None) -> Bits:
        (bits,) = inputs
        given, made = self.program.inputs[0].name, self.program.outputs[0].name
        parts = []
        batch = _UNWATCHED if watch is None else self.batch
        for first in range(0, len(bits), batch):
            values = decoded(bits[first : first + batch], self.formats[0]).ravel()
            state = State(self.program, {given: values}, self.arch)
            state.multiplier = _Watched(rule, watch)
            state.finish()
            parts.append(encoded(state.outputs()[made], self.formats[1]))
        return np.concatenate(parts).reshape(len(bits), self.size)


class _Watched(Multiplier):
    """A multiplier whose sums are watched."""

    def __init__(self, rule: Rule, watch: Coverage | None) -> None:
        super().__init__(rule)
        self.watch = watch

    def tiles(self, a: Values, b: Values, c: Values, watch: Any = None) -> Values:
        return super().tiles(a, b, c, self.watch)


def _rounded_to(fmt: Format, values: NDArray[np.float64]) -> Bits:
    """Return numbers as bits of a type, within its range."""
    if fmt.is_float:
        limited = np.where(np.isinf(values), values, np.clip(values, -fmt.largest, fmt.largest))
        return encoded(round_values(limited, fmt), fmt)
    return encoded(np.clip(values, fmt.smallest, fmt.largest).astype(fmt.dtype), fmt)


# --- Choosing cases ---------------------------------------------------------------------------


def _cases(
    bench: _Bench, count: int, rng: np.random.Generator
) -> tuple[tuple[Bits, ...], tuple[tuple[str, int], ...]]:
    """Return the inputs of all cases, and their groups."""
    found, names = _corners(bench)
    kept = np.arange(len(names))
    if len(names) > (most := max(1, count // 2)):
        kept = np.sort(_chosen(_traits(bench, found), np.zeros(0, np.int64), most))
    parts, groups = [tuple(one[kept] for one in found)], _runs([names[i] for i in kept])
    left = count - len(kept)
    if drawn := left // 3:
        parts.append(bench.inputs(random_dots(rng, bench.dots(drawn), bench.rule, bench.k)))
        groups.append(("random", drawn))
    if hitting := left - left // 3:
        before = tuple(np.concatenate(each) for each in zip(*parts, strict=True))
        parts.append(_hitting(bench, before, hitting, rng))
        groups.append(("drawn for the rule", hitting))
    whole = tuple(np.concatenate(each) for each in zip(*parts, strict=True))
    typed = (one.astype(port.dtype) for one, port in zip(whole, bench.ports, strict=False))
    return tuple(typed), tuple(groups)


def _corners(bench: _Bench) -> tuple[tuple[Bits, ...], list[str]]:
    """Return the corner cases, no two alike, and the group of each."""
    named = list(corners(bench.rule, bench.k))
    dots = Dots(*(np.concatenate(each) for each in zip(*(one for _, one in named), strict=True)))
    own = bench.dots(1)
    # The last case may have space for more sums.
    places = np.arange(len(named) + -len(named) % own) % len(named)
    dots = Dots(*(one[places] for one in dots))
    found = bench.inputs(dots)
    names = [name for name, _ in named] if own == 1 else ["corners"] * len(found[0])
    rows = np.concatenate([one.reshape(len(one), -1).astype(np.uint64) for one in found], axis=1)
    kept = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    # Cases of a group are neighbours.
    order = list(dict.fromkeys(names))
    kept = np.array(sorted(kept, key=lambda place: order.index(names[place])))
    return tuple(one[kept] for one in found), [names[i] for i in kept]


def _runs(names: Sequence[str]) -> list[tuple[str, int]]:
    """Return equal neighbours, counted."""
    found: list[tuple[str, int]] = []
    for name in names:
        if found and found[-1][0] == name:
            found[-1] = name, found[-1][1] + 1
        else:
            found.append((name, 1))
    return found


def _hitting(
    bench: _Bench, before: tuple[Bits, ...], count: int, rng: np.random.Generator
) -> tuple[Bits, ...]:
    """Return cases that hit what those before hit rarely, chosen from several times as many."""
    known = _traits(bench, before).sum(axis=0)
    size = max(16, min(_CANDIDATES // bench.cost, max(_FEWEST, 4 * count)))
    pools, traits = [], []
    for _ in range(_ROUNDS):
        pools.append(bench.inputs(drawn_to_hit(rng, bench.dots(size), bench.rule, bench.k)))
        traits.append(_traits(bench, pools[-1]))
        reached = known + sum(one.sum(axis=0) for one in traits)
        if (reached > 0).all() and len(pools) * size >= count:
            break
    pool = tuple(np.concatenate(each) for each in zip(*pools, strict=True))
    chosen = _chosen(np.concatenate(traits), known, min(count, len(pool[0])))
    picked = tuple(one[chosen] for one in pool)
    if (short := count - len(chosen)) > 0:
        more = bench.inputs(drawn_to_hit(rng, bench.dots(short), bench.rule, bench.k))
        picked = tuple(np.concatenate(each) for each in zip(picked, more, strict=True))
    return picked


def _traits(bench: _Bench, inputs: tuple[Bits, ...]) -> NDArray[np.bool_]:
    """Return the events that each case hits, and the wrong rules that it tells apart.

    Each wrong rule counts once more in a case of ordinary numbers: a design may differ from the
    rule there alone.
    """
    hits, out = _measured(bench, inputs)
    wrong = [
        (bench.run(inputs, rule) != out).reshape(len(out), -1).any(axis=1)
        for _, rule in wrong_rules(bench.rule, bench.depth)
    ]
    ordinary = np.ones(len(out), bool)
    for bits, port in zip(inputs, bench.ports, strict=False):
        size = np.abs(port.filled(bits).values.astype(np.float64)).reshape(len(out), -1)
        fmt = format_of("f32" if port.is_scale else port.type)
        normal = (size >= 2.0**fmt.emin) & (size < np.inf) if fmt.is_float else True
        ordinary &= (normal | (size == 0)).all(axis=1)
    return np.stack(
        [*(one > 0 for one in hits.values()), *wrong, *(one & ordinary for one in wrong)], axis=1
    )


def _chosen(traits: NDArray[np.bool_], known: NDArray[np.int64], count: int) -> NDArray[np.intp]:
    """Return the cases with the rarest traits, the most valuable first; known: counts before."""
    counts = known.astype(np.float64) if known.size else np.zeros(traits.shape[1])
    left = np.ones(len(traits), bool)
    order: list[int] = []
    table = traits.astype(np.float32)
    while len(order) < min(count, _ONE_BY_ONE):
        worth = np.where(left, table @ (1.0 + counts).astype(np.float32) ** -2, -1.0)
        best = int(worth.argmax())
        order.append(best)
        left[best] = False
        counts += traits[best]
    worth = np.where(left, table @ (1.0 + counts).astype(np.float32) ** -2, -1.0)
    others = np.argsort(-worth, kind="stable")[: count - len(order)]
    return np.array([*order, *others.tolist()], np.intp)


# --- Measuring --------------------------------------------------------------------------------


def _measured(bench: _Bench, inputs: tuple[Bits, ...]) -> tuple[dict[str, NDArray[np.int64]], Bits]:
    """Return the events of each case, and the outputs."""
    parts: list[Coverage] = []
    outputs = []
    for first in range(0, len(inputs[0]), bench.batch):
        part = tuple(one[first : first + bench.batch] for one in inputs)
        watch = Coverage(bench.rule, len(part[0]))
        outputs.append(bench.run(part, bench.rule, watch))
        if isinstance(bench, _Mma):
            a, b, c = map(decoded, part[:3], bench.formats)
            events = operand_events(a, b, c, bench.rule)
            if bench.rule.scale:
                events |= scale_events(part[3:], bench.rule.scale_type)
            for name, found in events.items():
                if name in watch.hits:
                    watch.hits[name] += found
        parts.append(watch)
    names = [name for name in parts[0].hits if isinstance(bench, _Mma) or not _of_operands(name)]
    hits = {name: np.concatenate([one.hits[name] for one in parts]) for name in names}
    return hits, np.concatenate(outputs)


def _of_operands(name: str) -> bool:
    """Return whether an event is of operands, which a program makes itself."""
    return name.startswith(("operand: ", "c: "))


def _event(name: str, hits: NDArray[np.int64]) -> Hits:
    cases = np.flatnonzero(hits)
    return Hits(name, int(hits.sum()), len(cases), int(cases[0]) if cases.size else None)


def _told_apart(
    bench: _Bench, inputs: tuple[Bits, ...], out: Bits
) -> Iterator[tuple[str, int | None]]:
    """Yield each wrong rule, and the first case whose output differs under it."""
    for name, rule in wrong_rules(bench.rule, bench.depth):
        first, size = 0, bench.batch
        found: int | None = None
        while first < len(out) and found is None:
            part = slice(first, first + size)
            got = bench.run(tuple(one[part] for one in inputs), rule)
            differ = (got != out[part]).reshape(len(got), -1).any(axis=1)
            if differ.any():
                found = first + int(differ.argmax())
            first, size = first + size, 4 * size
        yield name, found
