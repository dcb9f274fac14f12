"""A unit as a TOML file, read and written.

A short file is enough: a tile, and the fraction bits that a sum keeps. Omitted keys have the
defaults in the tables below, or are unknown. Errors name the file, the table and the key.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from tcusim import errors
from tcusim.errors import InputError
from tcusim.machine.formats import FORMATS, format_of
from tcusim.machine.likeness import like
from tcusim.machine.registry import UNITS, arch_of, own_arithmetic, own_units, spelled
from tcusim.machine.rules import (
    Arch,
    Exact,
    Fused,
    Integer,
    Late,
    Numerics,
    Passes,
    Refusal,
    Rule,
    Sequential,
)
from tcusim.machine.shapes import MmaShape, shape_of, tiles_of
from tcusim.machine.units import CONFIDENCES, FIGURES, Figure, Instruction, Unit, limits_of


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a unit's file: its default, and its meaning."""

    default: str
    meaning: str


_NEEDED: Final = "needed"
_UNKNOWN: Final = "not known"
# How like a key one must be that is misspelled, rather than something that no file can say.
_MISSPELLED: Final = 0.75
# How like one of its table a key must be that another table has.
_ALMOST: Final = 0.85
_OF_FILE: Final = "the file's"

_RULE_KEYS: Final = {
    "ab": Key("f16", "element type of the operands, or a list of several; any float as e5m3"),
    "acc": Key("f32", "element type of the accumulator, or a list of several"),
    "kind": Key("fused", "the arithmetic: fused, sequential, exact or integer"),
    "fused_length": Key(
        "the least k of the tiles",
        "products of one step; of other kinds products of a group, by default all",
    ),
    "fraction_bits": Key(_NEEDED, "bits that a fused step keeps below the largest exponent"),
    "output_rounding": Key(
        "rz; rne where sequential",
        "rounding of a sum: rz (toward zero), rne (nearest, ties to even), rna (nearest, ties "
        "away from zero), rd (down) or odd (the last bit is set if any is lost)",
    ),
    "output_fraction_bits": Key("all of the type", "fraction bits of a step's sum"),
    "alignment": Key(
        "rz",
        "how a term is cut to the fraction bits: a rounding, or sticky (toward zero; a lost bit "
        "of any term counts in the rounding of the sum)",
    ),
    "exponents": Key(
        "operands",
        "exponent of a product in the alignment: operands (the sum of theirs), upper (one more), "
        "products (its own) or scales (the sum of theirs)",
    ),
    "scale": Key("none", "block scales of the operands, such as block32.ue8m0 or block16.ue4m3"),
    "presum": Key("1", "products of a block that are summed exactly before they are aligned"),
    "partial_sums": Key(
        "1", "sums of a step that are made apart: product i belongs to sum i modulo this"
    ),
    "order": Key(
        "chain",
        "of a sequential group: chain (which begins with c), apart (with zero), or tree (pairs "
        "of rounded products); the last two have c added last",
    ),
    "sum_type": Key(
        "acc", "type of the sums of a sequential group that c is added to last: f16 or bf16"
    ),
    "passes": Key(
        "one",
        "a table of left and right, the bits of the parts of a's and b's elements, highest part "
        "first, and order, pairs of parts: every pass multiplies one pair of parts",
    ),
    "c_joins": Key(
        "sum",
        "of fused and exact steps: sum, if c is one of the terms; after, if it is added after "
        "every step, in the accumulator's own type; of fused steps also a table of sum_bits, "
        "c_bits, alignment (rd), floor and reach: c and the sum of products are aligned once more, "
        "and each is cut to its own bits",
    ),
    "addition_rounding": Key("rne", "rounding of the addition of c_joins = after"),
    "overflow": Key(
        "sum; wrap of integers",
        "fused: product, if a product beyond the accumulator's range is infinite; integer: "
        "wrap, saturate, or symmetric (within +-(2^31 - 1))",
    ),
    "sum_bits": Key(
        "32", "bits of the sum of a group of integers, which wraps before it is added to c"
    ),
    "zeros": Key("positive", "sign of a negative sum that is rounded to zero: or signed"),
    "nan": Key(
        "ones if fused, else quiet", "the NaN that is written: ones (7fffffff) or quiet (7fc00000)"
    ),
    "flush_inputs": Key("false", "whether subnormal operands count as zero, c among them"),
    "flush_outputs": Key("false", "whether subnormal results count as zero"),
    "exponent_floor": Key("none", "the least exponent that terms are aligned to"),
    "register_halves": Key("false", "whether 8-bit floats are summed in two steps of float16"),
    "family": Key("every one", "the instructions of which this holds: wmma, mma.sync, ..."),
    "source": Key(_OF_FILE, "who says so"),
    "evidence": Key("the file's confidence", "how it is known"),
}
# The valid keys of a file: by table, then by key. A rule's keys may also precede all tables.
KEYS: Final[Mapping[str, Mapping[str, Key]]] = {
    "": {
        "name": Key("the file's name, without .toml", "what --unit and --arch call it"),
        "title": Key("the name", "one line for people"),
        "note": Key("", "what else a reader must know"),
        "unsaid": Key("", "parts of the real unit that no key of the file says"),
        "source": Key("the file's name", "who says all that names no source of its own"),
        "confidence": Key("assumed", "how all of that is known"),
        "arch": Key(
            "arithmetic of its own", "an architecture that it computes like, such as hopper"
        ),
        "like": Key("no one", "the unit whose figures stand for those that the file leaves out"),
        "tiles": Key("those of arch", "what one mma takes, MxNxK, or a list of several"),
        "tile_bytes": Key("by instruction", "a loaded tile begins at a multiple of this"),
        "row_bytes": Key("by instruction", "its rows are a multiple of this apart"),
    },
    "rules": _RULE_KEYS,
    "refusals": {
        "ab": Key("all", "element type of the operands"),
        "acc": Key("all", "element type of the accumulator"),
        "why": Key(_NEEDED, "why these types are refused, as a sentence"),
    },
    "instructions": {
        "tile": Key("the only tile", "one of the tiles"),
        "ab": Key("the only type", "element type of the operands"),
        "acc": Key("the only type", "element type of the accumulator"),
        "family": Key("every one", "the instruction, where there are several"),
        "latency": Key(_UNKNOWN, "cycles from operands to result"),
        "interval": Key(_UNKNOWN, "cycles between two on one matrix unit"),
    },
    "figures": {
        name: Key(_UNKNOWN, f"{one.quantity}: {one.meaning}") for name, one in FIGURES.items()
    },
    "figure": {
        "value": Key(_NEEDED, "the number"),
        "source": Key(_OF_FILE, "who says so"),
        "confidence": Key(_OF_FILE, "measured, documented, published, derived or assumed"),
    },
}
_TABLES: Final = ("rules", "refusals", "instructions", "figures")
# The kinds of arithmetic.
_KINDS: Final[Mapping[str, type[Numerics]]] = {
    "fused": Fused,
    "sequential": Sequential,
    "exact": Exact,
    "integer": Integer,
}
# Keys of parameters that have other names in the classes.
_RENAMED: Final[Mapping[str, str]] = {
    "length": "fused_length",
    "output": "output_rounding",
    "rounding": "output_rounding",
    "addition": "addition_rounding",
    "sums": "partial_sums",
}
# For each kind, the keys of its parameters by their names in the class.
_PARAMETERS: Final[Mapping[str, Mapping[str, str]]] = {
    kind: {one.name: _RENAMED.get(one.name, one.name) for one in fields(cls)}
    for kind, cls in _KINDS.items()
}
_OF_KINDS: Final = frozenset(key for keys in _PARAMETERS.values() for key in keys.values())
# What readers may look for under names that are no keys: how a file says it, or that none can.
_OTHERWISE: Final[Mapping[str, str]] = {
    "a b c d": "Write ab, the type of both operands, and acc, the type of c and of the result.",
    "m n k size sizes shape": 'Write tiles = "16x16x16": m, n and k.',
    "exponent_bits mantissa_bits significand_bits bias format": 'Write ab = "e5m3": the bits of '
    "exponent and fraction; the page Units has the rest of such names.",
    "rounding round rounding_mode": "Write output_rounding for a sum, alignment for a term.",
    "guard_bits": "Write fraction_bits, guard bits included.",
    "subnormals denormals subnormal denormal ftz daz": "Write flush_inputs and flush_outputs.",
    "stochastic": "No file can say it: a rule has one result.",
    "frequency freq clock_rate": "Write clock, in Hz, below a line [figures].",
    "throughput rate cycles": "Write latency and interval below a line [[instructions]].",
    "bandwidth": "Write memory_bandwidth, in bytes a second, below a line [figures].",
    "accumulator_bits width": "Floats accumulate in the type acc, and integers in 32 bits; "
    "sum_bits are those of the sum of a group, before it is added to c.",
    "sticky": 'Write alignment = "sticky".',
    "floor": 'Write alignment = "rd" to round down, or exponent_floor for a least exponent.',
    "tree": 'Write kind = "sequential" and order = "tree".',
    "saturate saturation satfinite": 'Write overflow = "saturate" for integers; no file can say it '
    "of floats.",
    "g psm": 'What a unit of RISC-V Zvvm discloses: kind = "exact", fused_length = G times W, and '
    'c_joins = "after" if the sum of a group is rounded before it is added, else "sum".',
    "rnd frm": "Write output_rounding.",
    "fidelity phases": "Write passes = { left = [4, 4], right = [4, 4] }.",
    "scales block": 'Write scale = "block32.ue8m0".',
    "sparsity sparse": "No file can say it: all products count.",
    "area energy power": "No file can say it; explore estimates the area of the adders.",
}

# Keys that contradict an existing architecture.
_ARITHMETIC: Final = frozenset((*_RULE_KEYS, "rules", "refusals")) - {"source"}
_ALIGNMENT: Final = ("tile_bytes", "row_bytes")
_TYPES: Final = ("ab", "acc")
_TIMES: Final = ("latency", "interval")


def read_unit(path: str | Path) -> Unit:
    r"""Read a unit from a TOML file; `register_unit` makes its name known.

    Parameters
    ----------
    path : str or Path
        The file. Its keys are listed on the page Units; a tile and the fraction bits are enough.

    Returns
    -------
    Unit
        The unit that the file describes.

    Raises
    ------
    InputError
        If the file cannot be read, is not TOML, or has impossible values: with the file, the table
        and the key.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("mychip.toml").write_text('tiles = "16x16x16"\nfraction_bits = 20\n')
    >>> unit = read_unit("mychip.toml")
    >>> unit.name, unit.arch.rows[0].how.length, unit.clock
    ('mychip', 16, None)
    """
    # Only who reads a file needs it.
    import tomllib

    path = Path(path)
    try:
        # Some editors begin a file with a mark of its encoding.
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise InputError(f"the unit {str(path)!r} cannot be read: {reason}") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path.name} is no TOML: {error}") from error
    return _Reader(path.name, path.stem.lower(), values).unit()


def _refusal_of(key: str, known: Sequence[str]) -> str:
    """Return why a table has no such key: misplaced, known under another name, or misspelled.

    known: the keys that it has.
    """
    misspelled = f"unknown key {key!r}. Did you mean {{!r}}?"
    begun = min((one for one in known if one.startswith(key)), key=len, default="")
    # One letter is like many keys.
    almost = begun if len(begun) == len(key) + 1 else errors.nearest(key, known, _ALMOST)
    if len(key) > 1 and almost:
        return misspelled.format(almost)
    if key in KEYS[""]:
        return f"{key} is a key of the file: put it above the first line in brackets"
    for table, line in (("figures", "[figures]"), ("instructions", "[[instructions]]")):
        if key in KEYS[table]:
            return f"{key} is a key of the {table}: put it below a line {line}"
    if key in _RULE_KEYS:
        return (
            f"{key} is a key of a rule: put it above the first line in brackets, or below a line "
            "[[rules]]"
        )
    for names, how in _OTHERWISE.items():
        if key.lower() in names.split():
            return f"unknown key {key!r}. {how}"
    near = errors.nearest(key, known, _MISSPELLED) or begun
    if len(key) > 1 and near:
        return misspelled.format(near)
    return f"unknown key {key!r}, which is like none of the valid ones: {', '.join(known)}"


class _Table:
    """One table of a file: refuses keys that it cannot have, and says where it is in messages."""

    def __init__(self, where: str, values: object, valid: Iterable[str]) -> None:
        self.where = where
        if not isinstance(values, dict):
            raise self.error(f"it must be a table of keys and values, got {errors.told(values)}")
        self.values: dict[str, Any] = values
        known = list(valid)
        for key in values:
            if key not in known:
                raise self.error(_refusal_of(key, known))

    def error(self, message: str) -> InputError:
        """Return an error that names this table."""
        return InputError(f"{self.where}: {message}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text; without a default it is needed."""
        if key not in self.values:
            if default is None:
                raise self.error(f"{key} is needed")
            return default
        value = self.values[key]
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"{key} must be a text, got {errors.told(value)}")
        return value

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return one text or a list of them, as a tuple."""
        value = self.values.get(key, list(default))
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) for one in several) or (key in self.values and not several):
            raise self.error(f"{key} must be a text or a list of texts, got {errors.told(value)}")
        return tuple(several)

    def tables(self, key: str) -> list[object]:
        """Return the tables of a list, ``[[key]]``."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.error(f"{key} is a list of tables; write [[{key}]], with two brackets")
        return value


class _Reader:
    """Makes a unit from the content of a file."""

    def __init__(self, file: str, stem: str, values: dict[str, Any]) -> None:
        self.file = file
        self.top = _Table(file, values, [*KEYS[""], *_RULE_KEYS, *_TABLES])
        self.name = self.top.text("name", stem)
        self.title = self.top.text("title", self.name)
        self.source = self.top.text("source", file)
        self.confidence = self.top.text("confidence", "assumed")
        if self.confidence not in CONFIDENCES:
            raise self.top.error(
                str(errors.unknown_name("confidence", self.confidence, CONFIDENCES))
            )

    def unit(self) -> Unit:
        """Return the unit."""
        figures = self._figures()
        names = self.top.texts("tiles", ())
        if "arch" in self.top.values:
            arch = self._known_arch()
        elif names:
            arch = self._own_arch([self._shape(name).k for name in names], figures)
        else:
            raise self.top.error(
                'tiles is needed: what one mma takes, as in tiles = "16x16x16". Or arch, for the '
                "tiles of an architecture that exists."
            )
        pairs = set(arch.pairs)
        tiles = tuple(self._tile(name, pairs) for name in names) or tiles_of(arch.sm, pairs)
        instructions = tuple(
            self._instruction(number, values, arch, tiles)
            for number, values in enumerate(self.top.tables("instructions"), 1)
        )
        with _within(self.file):
            figures = limits_of(arch, self.name) | figures
            note, unsaid = (self.top.text(key, "") for key in ("note", "unsaid"))
            unit = Unit(self.name, self.title, arch, tiles, instructions, note, unsaid, **figures)
            return unit if "like" not in self.top.values else like(unit, self._other())

    def _other(self) -> Unit:
        """Return the unit that lends figures: one of tcusim, or one that is registered."""
        name = self.top.text("like")
        own = own_units()
        if (key := spelled(name)) in own:
            return read_unit(own[key])
        found = UNITS.find(name)
        if isinstance(found, Unit):
            return found
        known = [*own, *(one.name for one in UNITS.all())]
        raise self.top.error(f"like: {errors.unknown_name('unit', name, known)}")

    # --- Tiles --------------------------------------------------------------------------------

    def _shape(self, name: str) -> MmaShape:
        with _within(f"{self.file}: tiles"):
            return shape_of(name)

    def _tile(self, name: str, pairs: set[tuple[str, str]]) -> MmaShape:
        """Return a tile: a real instruction's if it takes the unit's types, else one of its own."""
        shape = self._shape(name)
        own = {key: self.top.values[key] for key in _ALIGNMENT if key in self.top.values}
        if own:
            with _within(self.file):
                return MmaShape(shape.m, shape.n, shape.k, title=self.title, **own)
        taken = [shape.supports(*pair) for pair in pairs]
        # A tile of an existing architecture is an instruction for some of its types.
        if not shape.virtual and (all(taken) or (any(taken) and "arch" in self.top.values)):
            return shape
        return MmaShape(shape.m, shape.n, shape.k, source=self.source, title=self.title)

    # --- Arithmetic ---------------------------------------------------------------------------

    def _known_arch(self) -> Arch:
        """Return the architecture that is named; it has rules already."""
        said = [key for key in self.top.values if key in _ARITHMETIC]
        if said:
            raise self.top.error(
                f"arch and {said[0]} contradict each other: an architecture has arithmetic "
                f"already. Leave out one of them."
            )
        with _within(f"{self.file}: arch"):
            return arch_of(self.top.text("arch"))

    def _own_arch(self, depths: list[int], figures: Mapping[str, Figure]) -> Arch:
        """Return the unit's own arithmetic: a rule for each table, or the one above all tables."""
        above = {key: self.top.values[key] for key in _RULE_KEYS if key in self.top.values}
        written = self.top.tables("rules")
        refusals = tuple(self._refusal(*one) for one in enumerate(self.top.tables("refusals"), 1))
        rules: list[Rule] = []
        if written or not refusals or above.keys() & _ARITHMETIC:
            for number, values in enumerate(written or [{}], 1):
                where = f"{self.file}: rule {number}" if written else self.file
                table = _Table(where, values, _RULE_KEYS)
                own = table.values
                # Keys above all tables apply to the tables that they fit.
                kind = table.text("kind", str(above.get("kind", "fused")))
                other = _OF_KINDS - set(_PARAMETERS.get(kind, {}).values()) if written else ()
                fit = {key: one for key, one in above.items() if key not in other}
                rules += self._rules(_Table(where, {**fit, **own}, _RULE_KEYS), depths)
        shared = figures.get("shared_bytes_per_block")
        kb = None if shared is None else int(shared.value) // 1024
        with _within(self.file):
            plain, scaled = (
                tuple(rule for rule in rules if bool(rule.scale) is given)
                for given in (False, True)
            )
            names = self.name, self.title, (), ()
            return Arch(*names, plain, self.source, refusals, kb or None, scaled=scaled)

    def _rules(self, table: _Table, depths: list[int]) -> Iterator[Rule]:
        """Return the rules of one table: one for each pair of the types that it lists."""
        how = self._numerics(table, depths)
        source = table.text("source", self.source)
        evidence = table.text("evidence", self.confidence)
        family = table.text("family", "")
        nan: Any = table.text("nan", "") if "nan" in table.values else ""
        scale = table.text("scale") if "scale" in table.values else ""
        passes = self._passes(table)
        accs = table.texts("acc", ("s32" if isinstance(how, Integer) else "f32",))
        operands = table.texts("ab", ("f16",))
        for name in (*operands, *accs):
            with _within(table.where):
                format_of(name)
        for ab, acc in itertools.product(operands, accs):
            with _within(table.where):
                yield Rule(ab, acc, how, source, evidence, family, "", nan, scale, passes)

    def _passes(self, table: _Table) -> Passes | None:
        """Return the passes of a rule; None without."""
        if "passes" not in table.values:
            return None
        where = f"{table.where}: passes"
        parts = _Table(where, table.values["passes"], [one.name for one in fields(Passes)])
        for key in ("left", "right"):
            if not isinstance(parts.values.get(key), list):
                raise parts.error(f"{key} is needed, as a list of bits, such as [4, 4]")
        given: Any = {
            key: tuple(tuple(one) if isinstance(one, list) else one for one in value)
            for key, value in parts.values.items()
        }
        with _within(where):
            return Passes(**given)

    def _numerics(self, table: _Table, depths: list[int]) -> Numerics:
        """Return the arithmetic that a table describes."""
        kind = table.text("kind", "fused")
        if kind not in _KINDS:
            raise table.error(f"{errors.unknown_name('kind', kind, _KINDS)}")
        names = {key: name for name, key in _PARAMETERS[kind].items()}
        given: dict[str, Any] = {}
        for key in _OF_KINDS & table.values.keys():
            if key not in names:
                kinds = [repr(one) for one in _KINDS if key in _PARAMETERS[one].values()]
                raise table.error(f"{key} is for kind = {' or '.join(kinds)}, and kind is {kind!r}")
            given[names[key]] = table.values[key]
        if kind == "fused" and "fraction_bits" not in given:
            raise table.error(
                "fraction_bits is needed: how many bits a fused step keeps below the largest "
                "exponent (23 on a V100, 24 on an A100, 25 on an H100). Or give kind "
                "= 'sequential', 'exact' or 'integer'."
            )
        if kind == "fused":
            given.setdefault("length", min(depths))
        joins = given.get("c_joins")
        if isinstance(joins, dict):
            where = f"{table.where}: c_joins"
            parts = _Table(where, joins, [one.name for one in fields(Late)])
            for key in ("sum_bits", "c_bits"):
                if key not in parts.values:
                    raise parts.error(f"{key} is needed")
            with _within(where):
                given["c_joins"] = Late(**parts.values)
        with _within(table.where):
            how = _KINDS[kind](**given)
        length = getattr(how, "length", None) or 0
        if length > max(depths):
            raise table.error(
                f"fused_length = {length} and tiles of k = {max(depths)} contradict each "
                f"other: a step sums products of one tile. Write fused_length = "
                f"{max(depths)}, or leave it out."
            )
        return how

    def _refusal(self, number: int, values: object) -> Refusal:
        table = _Table(f"{self.file}: refusal {number}", values, KEYS["refusals"])
        ab, acc = (table.text(key, "") for key in _TYPES)
        return Refusal(ab, acc, table.text("why"))

    # --- Figures ------------------------------------------------------------------------------

    def _instruction(
        self, number: int, values: object, arch: Arch, tiles: tuple[MmaShape, ...]
    ) -> Instruction:
        """Return the time of an instruction; keys with a single possible value may be omitted."""
        table = _Table(f"{self.file}: instruction {number}", values, KEYS["instructions"])
        rules = arch.rows or arch.scaled
        types = {key: dict.fromkeys(getattr(rule, key) for rule in rules) for key in _TYPES}
        tile, ab, acc = (
            table.text(key, next(iter(valid)) if len(valid) == 1 else None)
            for key, valid in (("tile", {one.name: None for one in tiles}), *types.items())
        )
        refused = any(one.ab in ("", ab) and one.acc in ("", acc) for one in arch.refusals)
        if not refused and (ab, acc) not in arch.pairs:
            has = ", ".join(f"{left} -> {right}" for left, right in arch.pairs)
            raise table.error(f"the unit has no rule for {ab} -> {acc}; it has {has}")
        family = table.text("family", "")
        times = {
            key: self._figure(f"{table.where}: {key}", table.values[key])
            for key in _TIMES
            if key in table.values
        }
        with _within(table.where):
            return Instruction(tile, ab, acc, family, **times)

    def _figures(self) -> dict[str, Figure]:
        where = f"{self.file}: figures"
        table = _Table(where, self.top.values.get("figures", {}), KEYS["figures"])
        return {key: self._figure(f"{where}: {key}", one) for key, one in table.values.items()}

    def _figure(self, where: str, value: object) -> Figure:
        """Return a figure: a number, or a table with its source."""
        given: dict[str, Any] = value if isinstance(value, dict) else {"value": value}
        table = _Table(where, given, KEYS["figure"])
        if "value" not in given:
            raise table.error("value is needed")
        source = table.text("source", self.source)
        confidence = table.text("confidence", self.confidence)
        with _within(where):
            return Figure(given["value"], source, confidence)


@contextmanager
def _within(where: str) -> Iterator[None]:
    """Add the file and the location to errors that lack them."""
    try:
        yield
    except InputError as error:
        text = str(error)
        if text.startswith(f"{where.partition(':')[0]}: "):
            raise
        # The file has its own names for the fields.
        for kind, parameters in _PARAMETERS.items():
            for name, key in parameters.items():
                text = text.replace(f"{_KINDS[kind].__name__}.{name} ", f"{key} ")
        text = text.replace("Late.", "").replace("Passes.", "")
        raise InputError(f"{where}: {text}") from error


# --- Writing ------------------------------------------------------------------------------------


def unit_toml(unit: Unit) -> str:
    """Return a unit as the text of a file for `read_unit`; unknown figures are comments.

    Arithmetic that comes with tcusim is named, any other is written out.
    """
    lines = [
        "# A unit for tcusim: `tcusim list FILE` shows it, and --unit FILE computes with it.",
        "# All keys are on the page Units of the documentation.",
        *_texts(unit, "name", "title", "note", "unsaid"),
    ]
    own = own_arithmetic(unit)
    if not own:
        lines.append(f"arch = {_quoted(unit.arch.name)}")
    lines.append(f"tiles = [{', '.join(_quoted(shape.name) for shape in unit.shapes)}]")
    alignments = {(shape.tile_bytes, shape.row_bytes) for shape in unit.shapes}
    for key, number in zip(_ALIGNMENT, next(iter(alignments), ()), strict=False):
        if number is not None:
            lines.append(f"{key} = {number}")
    if own:
        lines += _texts(unit.arch, "source")
        lines += [
            line for rule in (*unit.arch.rows, *unit.arch.scaled) for line in _rule_lines(rule)
        ]
        for refusal in unit.arch.refusals:
            lines += ["", "[[refusals]]", *_texts(refusal, *_TYPES, "why")]
    for one in unit.instructions:
        lines += ["", "[[instructions]]", *_texts(one, "tile", *_TYPES, "family")]
        lines += [_figure_line(key, getattr(one, key), KEYS["instructions"][key]) for key in _TIMES]
    lines += ["", "[figures]"]
    limits = limits_of(unit.arch, unit.name)
    for key, about in KEYS["figures"].items():
        figure = getattr(unit, key)
        if figure is not None and figure == limits.get(key):
            lines.append(f"# {key} = {_quoted(figure.value)}  # {about.meaning}; of the GPU")
        else:
            lines.append(_figure_line(key, figure, about))
    return "\n".join(lines) + "\n"


def _texts(one: object, *keys: str) -> list[str]:
    """Return the lines of an object's texts that are not empty."""
    texts = {key: getattr(one, key) for key in keys}
    return [f"{key} = {_quoted(text)}" for key, text in texts.items() if text]


def rule_keys(rule: Rule) -> dict[str, str]:
    """Return the keys of a rule's arithmetic with their values as TOML, the kind first.

    Of a fused step every basic parameter is among them, else the unusual ones.
    """
    how = rule.how
    kind = next(kind for kind, cls in _KINDS.items() if cls is type(how))
    found = {"kind": _quoted(kind)}
    for one in fields(how):
        value = getattr(how, one.name)
        always = isinstance(how, Fused) and one.name in _ALWAYS
        if value is not None and (always or value != one.default):
            found[_PARAMETERS[kind][one.name]] = _joined(value)
    if rule.passes is not None:
        found["passes"] = _joined(rule.passes)
    for key in ("nan", "scale"):
        if value := getattr(rule, key):
            found[key] = _quoted(value)
    return found


def described_types(rules: Iterable[Rule]) -> dict[str, str]:
    """Return descriptions of the operands' types that the table of types has not, by name."""
    names = dict.fromkeys(name for rule in rules for name in (rule.ab, rule.right))
    return {name: format_of(name).description for name in names if name not in FORMATS}


def _rule_lines(rule: Rule) -> list[str]:
    """Return the table of a rule."""
    kind, *others = rule_keys(rule).items()
    lines = ["", "[[rules]]", *_texts(rule, *_TYPES), " = ".join(kind)]
    lines += [f"{key} = {value}  # {_RULE_KEYS[key].meaning}" for key, value in others]
    return [*lines, *_texts(rule, "family", "source", "evidence")]


def _joined(value: Any) -> str:
    """Return a value as TOML: a late c, and passes, are a table on one line."""
    if not isinstance(value, Late | Passes):
        return _quoted(value)
    given = {one.name: getattr(value, one.name) for one in fields(value)}
    parts = (f"{name} = {_quoted(one)}" for name, one in given.items() if one not in (None, ()))
    return f"{{ {', '.join(parts)} }}"


# Parameters of a fused step that a written file always has.
_ALWAYS: Final = (
    *("length", "fraction_bits", "output", "alignment", "c_joins", "flush_inputs"),
    *("flush_outputs", "register_halves"),
)


def _figure_line(key: str, figure: Figure | None, about: Key) -> str:
    if figure is None:
        return f"# {key} =  # {about.meaning}; {_UNKNOWN}"
    texts = ", ".join(f"{name} = {_quoted(getattr(figure, name))}" for name in KEYS["figure"])
    return f"{key} = {{ {texts} }}  # {about.meaning}"


def _quoted(value: str | float | tuple[Any, ...]) -> str:
    """Return a value in TOML; texts and numbers are written as in JSON."""
    if isinstance(value, float) and value == int(value) and abs(value) < 2**63:
        value = int(value)
    return json.dumps(value, ensure_ascii=False)
