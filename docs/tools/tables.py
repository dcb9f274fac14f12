"""The tables of the site, made from the registries and the recorded bits when it is built."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from citations import linked

import tcusim
from tcusim.algorithms import Algorithm, Level, algorithm_of, algorithms, segmented_algorithms
from tcusim.arrays.planner import STRATEGIES
from tcusim.machine import (
    FIGURES,
    FORMATS,
    Arch,
    Exact,
    Fused,
    Integer,
    Late,
    Rule,
    Sequential,
    arches,
    as_values,
    mma_values,
    rule_for,
    units,
)
from tcusim.machine.multiprocessors import MULTIPROCESSORS
from tcusim.machine.shapes import shapes
from tcusim.machine.unit_file import KEYS
from tcusim.machine.units import CONFIDENCES
from tcusim.program.checks.verifier import CHECKS
from tcusim.program.grammar import Step
from tcusim.simulate.counts import counts_of_text
from tcusim.table import Table

RECORDED = Path(__file__).resolve().parents[2] / "tests" / "recorded"
MMASIM = Path(__file__).resolve().parents[1] / "data" / "mmasim.json"
TOOLBOX = Path(__file__).resolve().parents[1] / "data" / "toolbox.json"
MMAEMU = Path(__file__).resolve().parents[1] / "data" / "mmaemu.json"

# Element types, by the names of the recorded sets: operands and accumulator.
TILE_TYPES = {
    "f32": ("f16", "f32"),
    "f16": ("f16", "f16"),
    "bf16": ("bf16", "f32"),
    "tf32": ("tf32", "f32"),
    "f64": ("f64", "f64"),
    "s8": ("s8", "s32"),
}
VECTOR_TYPES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "E4M3": "e4m3", "E5M2": "e5m2"}


def cell_of(value: object) -> str:
    """Return a value as the text of a table's cell."""
    return str(value).replace("|", "&#124;").replace("\n", " ")


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    return Table(heads, [[*map(cell_of, row)] for row in rows]).to_markdown()


# --- Units with their machines --------------------------------------------------------------------


def unit_key_table(name: str) -> str:
    """Return the keys of one table of a unit's file: "" is the part above all tables."""
    rows = ((f"`{key}`", one.meaning, one.default) for key, one in KEYS[name].items())
    return table(("key", "what it says", "left out"), rows)


def figure_table() -> str:
    """Return the figures of a machine, with their units."""
    rows = ((f"`{key}`", one.quantity, one.meaning) for key, one in FIGURES.items())
    return table(("figure", "in", "what it is"), rows)


def known_unit_table() -> str:
    """Return the units that come with tcusim, with how much is known of each, and how."""
    heads = ("unit", "title", "arithmetic", "figures", *CONFIDENCES, "unknown", "instructions")
    rows = []
    for unit in units():
        known = unit.figures().values()
        counts = [sum(one.confidence == way for one in known) or "" for way in CONFIDENCES]
        times = len(unit.instructions) or ""
        head = (f"`{unit.name}`", unit.title, unit.arch.name, len(known))
        rows.append((*head, *counts, len(unit.unknown()), times))
    return table(heads, rows)


# --- Units --------------------------------------------------------------------------------------


def _built_in() -> list[Arch]:
    return [unit for unit in arches() if unit.sm]


def unit_table() -> str:
    """Return the parameters of every rule of the generations of GPUs, like rows put together."""
    rows = []
    for unit in _built_in():
        arch = f"`{unit.name}`"
        together: dict[tuple[Any, ...], list[Rule]] = {}
        for rule in (*unit.rows, *unit.scaled):
            together.setdefault((*_how(rule), bool(rule.family)), []).append(rule)
        for how, rules in together.items():
            pairs = ", ".join(
                dict.fromkeys(
                    f"{rule.ab} → {rule.acc}" + f" with {rule.scale}" * bool(rule.scale)
                    for rule in rules
                )
            )
            families = dict.fromkeys(rule.family for rule in rules if rule.family)
            if families:
                pairs += f" ({', '.join(families)})"
            evidence = "; ".join(dict.fromkeys(rule.evidence for rule in rules))
            keys = dict.fromkeys(key for rule in rules for key in _sources(rule.source))
            sources = [linked(key) for key in keys]
            rows.append((arch, pairs, *how[:3], f"{evidence}: {', '.join(sources)}"))
            arch = ""
    return table(("architecture", "types", "L", "F", "result", "how it is known"), rows)


def mmasim_table(path: Path = MMASIM) -> str:
    """Return the comparisons with MMA-Sim: rows that differ in shape alone put together."""
    record = json.loads(path.read_text(encoding="utf-8"))
    together: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in record["rows"]:
        key = f"`{row['arch']}`", row["family"], f"{row['ab']} → {row['acc']}"
        together.setdefault(key, []).append(row)
    rows = []
    for key, alike in together.items():
        outputs, differ = (sum(row[name] for row in alike) for name in ("outputs", "differ"))
        shapes = ", ".join(row["shape"] for row in alike)
        where: dict[str, int] = {}
        for row in alike:
            for kind, count in row["where"].items():
                where[kind] = where.get(kind, 0) + count
        kinds = ", ".join(f"{kind} {count}" for kind, count in where.items())
        rows.append((*key, shapes, f"{outputs:,}", f"{differ:,}", kinds))
    head = ("architecture", "instruction", "types", "shapes", "outputs", "differ", "operands")
    return table(head, rows)


# Rules of both: of each its architecture, its types, models of the toolbox that call another's, and
# what was compared with MMA-Sim where its own code computed tiles.
_BOTH = (
    ("Volta, f16", "volta", "f16", "", ""),
    ("Turing, f16", "turing", "f16", "", ""),
    ("Ampere, f16, bf16, tf32", "ampere", "f16 bf16 tf32", "A2TC and A30TC call A100TC", ""),
    ("Ada, f16, bf16, tf32", "ada", "f16 bf16 tf32", "", ""),
    ("Ada, 8-bit floats", "ada", "e4m3 e5m2", "", ""),
    ("Hopper, f16, bf16, tf32", "hopper", "f16 bf16 tf32", "H200TC calls H100TC", ""),
    ("Hopper, 8-bit floats", "hopper", "e4m3 e5m2", "", ""),
    ("Blackwell, f16, bf16, tf32", "blackwell", "f16 bf16 tf32", "", ""),
    ("Blackwell, 8-bit floats", "blackwell", "e4m3 e5m2", "", ""),
    ("RTX Blackwell, f16, bf16, tf32", "blackwell_rtx", "f16 bf16 tf32", "", ""),
    ("RTX Blackwell, 8-bit floats", "blackwell_rtx", "e4m3 e5m2", "", ""),
    ("CDNA 2, f16, bf16 (`_1k`)", "cdna2", "f16 bf16", "MI250MC calls MI210MC", "110,592: 0"),
    ("CDNA 3, f16, bf16, tf32", "cdna3", "f16 bf16 tf32", "", "110,592: 0"),
    ("CDNA 3, fnuz", "cdna3", "e4m3fnuz e5m2fnuz", "", "36,864: 0"),
)


def model_table(mmasim: Path = MMASIM, toolbox: Path = TOOLBOX) -> str:
    """Return the rules of MMA-Sim and of the toolbox: outputs compared, and those that differ."""
    models, ours = (
        json.loads(path.read_text(encoding="utf-8"))["rows"] for path in (mmasim, toolbox)
    )
    rows = []
    for title, arch, types, callers, tiles in _BOTH:
        found = []
        for known in (models, ours):
            alike = [row for row in known if row["arch"] == arch and row["ab"] in types.split()]
            outputs, differ = (sum(row[key] for row in alike) for key in ("outputs", "differ"))
            found.append(f"{outputs:,}: {differ:,}" if alike else "no")
        names = ", ".join(dict.fromkeys(row["model"] for row in ours if row["arch"] == arch))
        called = f"{names}; {callers}" if callers else names
        rows.append((title, f"`{arch}`", tiles or found[0], found[1], called))
    head = ("rule", "tcusim", "MMA-Sim", "toolbox [KHATTAK25]", "the toolbox's models")
    return table(head, rows)


def mmaemu_table(path: Path = MMAEMU) -> str:
    """Return the comparisons with mmaemu: a row for each of its rules and types."""
    record = json.loads(path.read_text(encoding="utf-8"))
    together: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in record["rows"]:
        together.setdefault((row["preset"], row["ab"]), []).append(row)
    rows = []
    for (preset, ab), alike in together.items():
        outputs, differ = (sum(row[name] for row in alike) for name in ("outputs", "differ"))
        lengths = ", ".join(map(str, sorted({row["k"] for row in alike})))
        kinds = ", ".join(dict.fromkeys(row["kind"] for row in alike))
        rows.append((f"`{preset}`", ab, lengths, kinds, f"{outputs:,}", f"{differ:,}"))
    total = sum(row["outputs"] for row in record["rows"])
    version = record["versions"]["mmaemu"]
    head = ("mmaemu's rule", "type", "k", "operands", "outputs", "differ")
    return f"{table(head, rows)}\n\nTogether {total:,} outputs, with mmaemu {version}."


def gpu_table() -> str:
    """Return the names that each generation has, and the GPUs whose bits were compared."""
    rows = []
    for unit in _built_in():
        sm = ", ".join(f"`sm_{number}`" for number in unit.sm)
        others = ", ".join(name for name in unit.aliases if name not in unit.recorded)
        rows.append((f"`{unit.name}`", sm, ", ".join(unit.recorded) or "none", others))
    return table(("architecture", "compute capability", "recorded", "as these, not recorded"), rows)


def _sources(text: str) -> list[str]:
    """Split `[A] x, y, [B] z` before each key."""
    return [f"[{part}".rstrip(", ") for part in text.split("[") if part]


def _how(rule: Rule) -> tuple[str, str, str]:
    """Return L, F and the rounding of the result as the table has them."""
    match rule.how:
        case Fused() as how:
            rounded = _ROUNDED[how.output]
            if how.output_fraction_bits is not None:
                rounded += f", {how.output_fraction_bits} fraction bits"
            if how.c_joins == "after":
                rounded += f", then + C in {rule.acc}"
            kept = str(how.fraction_bits)
            if isinstance(how.c_joins, Late):
                kept += f"; C joins late, {how.c_joins.sum_bits} and {how.c_joins.c_bits}"
            if how.alignment != "rz":
                kept += f", {how.alignment}"
            length = str(how.length)
            if how.register_halves or how.sums > 1:
                length = f"{how.length} + {how.length}" if how.sums == 1 else f"{how.length} in 2"
            return length, kept, rounded
        case Sequential(order="tree", length=length):
            return f"{length} in a tree", "all", f"{_ROUNDED[rule.how.rounding]}, each addition"
        case Sequential() as how:
            chains = "one FMA after another" if how.sums == 1 else f"{how.sums} chains of FMA"
            return "1", "all", f"{_ROUNDED[how.rounding]}, {chains}"
        case Exact():
            return "all", "all", "nearest (RNE), once"
        case Integer():
            return "all", "all", "exact, wraps at 32 bits"


_ROUNDED = {
    "rz": "cut (RZ)",
    "rne": "nearest (RNE)",
    "rna": "nearest, ties away",
    "rd": "down (RD)",
    "odd": "to odd",
}


def memory_table() -> str:
    """Return the shared memory for which plans choose blocks, by architecture."""
    built_in = _built_in()
    sizes = [f"{unit.shared_kb} KB" for unit in built_in]
    heads = ("architecture", *(f"`{unit.name}`" for unit in built_in))
    return table(heads, [("of a block", *sizes)])


def multiprocessor_table() -> str:
    """Return the limits of a multiprocessor, by compute capability."""
    heads = (
        "sm",
        "warps",
        "threads",
        "blocks",
        "shared memory",
        "of a block",
        "fma a cycle",
        "GPUs",
    )
    rows = [
        (
            *(f"{row.sm}", f"{row.warps}", f"{row.threads}", f"{row.blocks}"),
            *(f"{row.shared_kb} KB", f"{row.block_bytes // 1024} KB", f"{row.fma}", row.gpus),
        )
        for row in MULTIPROCESSORS.values()
    ]
    return table(heads, rows)


def strategy_table() -> str:
    """Return the planner's strategies, in their order."""
    rows = (
        (kind, f"`{row.name}`", row.suits)
        for kind, strategies in STRATEGIES.items()
        for row in strategies
        if row.name != "named" and kind != "products"
    )
    return table(("for", "strategy", "takes"), rows)


def refusal_table() -> str:
    """Return the refusals of the generations, with the words that a user reads."""
    rows = []
    for unit in _built_in():
        reasons: dict[str, list[str]] = {}
        for refusal in unit.refusals:
            pair = refusal.ab + (f" → {refusal.acc}" if refusal.acc else "")
            reasons.setdefault(refusal.why, []).append(pair)
        rows.extend((f"`{unit.name}`", ", ".join(pairs), why) for why, pairs in reasons.items())
    return table(("architecture", "types", "the error says"), rows)


def format_table() -> str:
    """Return the element types."""
    rows = []
    for name, fmt in FORMATS.items():
        bits = f"{fmt.fraction_bits + 1}" if fmt.is_float else "—"
        rows.append((f"`{name}`", f"`{fmt.array_type}`", bits, f"{fmt.largest:.10g}"))
    return table(("type", "array", "significand bits", "largest value"), rows)


# --- Steps --------------------------------------------------------------------------------------


def step_table() -> str:
    """Return the steps of the grammar, from their docstrings: meaning, CUDA and cost."""
    rows = []
    for step in typing.get_args(Step):
        text = " ".join((inspect.getdoc(step) or "").split())
        meaning, cuda, cost = re.fullmatch(
            r"(.*?) (?:WMMA|CUDA): (.*?)(?: Cost: (.*))?", text
        ).groups()  # type: ignore[union-attr]
        rows.append((f"`{step.__name__}`", *map(_as_code, (meaning, cuda, cost or "—"))))
    return table(("step", "meaning", "WMMA or CUDA", "cost"), rows)


def _as_code(text: str) -> str:
    """Keep `<` and `*` from being markup, outside code."""
    parts = text.split("`")
    parts[::2] = [part.replace("<", "&lt;").replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)


def check_table() -> str:
    """Return the checks of `tcusim.verify`, from their docstrings."""
    rows = []
    for name, check in CHECKS.items():
        text = (inspect.getdoc(check) or "").split("\n\n")[0]
        rows.append((f"`{name}`", _as_code(" ".join(text.split()))))
    return table(("check", "what it asks"), rows)


# --- Shapes -------------------------------------------------------------------------------------


def shape_table() -> str:
    """Return every shape of a real instruction, with its types and the first GPU that has it."""
    rows = []
    for shape in shapes():
        name = f"`{shape.name}`"
        key = lambda row: (row.family, row.min_sm, row.source)  # noqa: E731
        for (family, min_sm, source), same in itertools.groupby(shape.operands, key=key):
            pairs = ", ".join(f"{row.ab} → {row.acc}" for row in same)
            rows.append((name, family, pairs, f"sm_{min_sm}", linked(source)))
            name = ""
    return table(("shape, m x n x k", "instruction", "types", "since", "source"), rows)


# --- Algorithms ---------------------------------------------------------------------------------


def mma_steps(name: str, shape: str = "16x16x16", **options: Any) -> tuple[int, int]:
    """Return the mma steps that one warp runs, and the elements that it takes, by running it."""
    if algorithm_of(name).level is Level.GRID:
        # The whole array is a segment, of groups of one block here.
        options = {"columns": 1, **options}
    program = tcusim.build(name, tile=shape, **options)
    size = program.scalars[0].multiple_of
    zeros = np.zeros(size, tcusim.machine.format_of(program.inputs[0].dtype).dtype)
    steps = [
        event.warps.size
        for event in tcusim.interpret(program, {"in": zeros}, arch="exact")
        if type(event.step).__name__ == "Mma"
    ]
    return sum(steps), size


def algorithm_table() -> str:
    """Return the registry of algorithms: names, sources and products."""
    rows = []
    for algorithm in segmented_algorithms():
        names = f"`{algorithm.name}`" + (f"<br>`{algorithm.alias}`" if algorithm.alias else "")
        source = algorithm.source.replace("[DAKKAK19] section ", "§ ")
        counted = [_counted(algorithm, shape) for shape in ("16x16x16", "32x8x16", "8x32x16")]
        formula = f"`{algorithm.formula}`" if algorithm.formula else ""
        rows.append((names, source, formula, *counted))
    heads = ("name, and for k = 16", "in the paper", "mma, by formula", "16x16x16")
    return table((*heads, "32x8x16", "8x32x16"), rows)


def depth_table() -> str:
    """Return the products of scans of one segment, and how many of them wait for another."""
    printed = algorithm_of("scan_tn")
    rows = []
    for power in range(2, 6):
        size = 16**power
        tiles = size // 256
        levels = 1 + 2 * (power - 1)
        swept = counts_of_text(tcusim.build("scan_matmul", segment_size=size), {"length": size})
        rows.append(
            (
                f"{size:,}",
                f"{printed.mma_steps(16, 16, 16, N=tiles):,}",
                # A.U begins with S, and (L.A).1 goes on with it.
                f"{2 * tiles:,}",
                f"{swept.mma:,}",
                f"{levels}",
            )
        )
    heads = ("elements", "`scan_tn`: mma", "one after the other", "`scan_matmul`: mma")
    return table((*heads, "one after the other"), rows)


def product_table() -> str:
    """Return the registry's products of matrices and vectors."""
    rows = []
    for row in algorithms():
        if row.kind == "product":
            source = row.source.replace("[DAKKAK19] section ", "§ ")
            rows.append((f"`{row.name}`", source, f"`{row.formula}`"))
    return table(("name", "in the paper", "mma of the grid, by formula"), rows)


def _counted(algorithm: Algorithm, shape: str) -> str:
    steps, elements = mma_steps(algorithm.name, shape)
    return f"{steps} for {elements}"


# --- Recorded bits ------------------------------------------------------------------------------


def evidence() -> list[tuple[str, str, int, int]]:
    """Compare every recorded output: (GPU, types, outputs compared, bits that differ)."""
    counts: dict[tuple[str, str], list[int]] = {}

    def add(gpu: str, types: str, compared: int, wrong: int) -> None:
        count = counts.setdefault((gpu, types), [0, 0])
        count[0] += compared
        count[1] += wrong

    for name in ("wmma_h200.npz", "wmma_h200_edges.npz"):
        with np.load(RECORDED / name) as archive:
            for case in sorted({key[:-2] for key in archive.files}):
                kind = case.split("_")[0]
                family = "mma.sync" if kind.endswith("sync") else "wmma"
                ab, acc = TILE_TYPES[kind.removesuffix("sync")]
                a, b = (_floats(archive[f"{case}_{operand}"], ab) for operand in "AB")
                c, d = (_floats(archive[f"{case}_{operand}"], acc) for operand in "CD")
                ours = mma_values(a, b, c, rule_for("h200", ab, acc, family))
                instruction = "mma.sync" if family == "mma.sync" else "wmma::mma_sync"
                add(f"H200, {instruction}", f"{ab} → {acc}", d.size, _differing(ours, d))
    with np.load(RECORDED / "instructions_h200.npz") as archive:
        for case in sorted({key[:-2] for key in archive.files}):
            short, ab, acc = case.split("_")[:3]
            family = {"sync": "mma.sync", "wg": "wgmma"}[short]
            a, b = (_floats(archive[f"{case}_{operand}"], ab) for operand in "AB")
            ours, d = (_floats(archive[f"{case}_{operand}"], acc) for operand in "CD")
            # Two wgmma, one after the other.
            width = a.shape[2] // (2 if short == "wg" else 1)
            for k in range(0, a.shape[2], width):
                rule = rule_for("h200", ab, acc, family)
                ours = mma_values(a[:, :, k : k + width], b[:, k : k + width], ours, rule)
            add(f"H200, {family}", f"{ab} → {acc}", d.size, _differing(ours, d))
    with np.load(RECORDED / "fused_step_vectors.npz") as archive:
        for key in archive.files:
            gpu, element, kind, *result = key.split("_")
            if kind != "d":
                continue
            ab, acc = VECTOR_TYPES[element], result[0].replace("fp", "f")
            a, b = (_floats(archive[f"{gpu}_{element}_{operand}"], ab) for operand in "ab")
            own = f"{gpu}_{element}_c_{result[0]}"
            c = _floats(archive[own if own in archive else f"{gpu}_{element}_c"], "f32")
            c = c.astype(np.float16) if acc == "f16" else c
            wgmma = (gpu[0], ab[0], acc) == ("H", "e", "f32")
            family = "wgmma" if wgmma else "mma.sync"
            rule = rule_for(_UNIT_OF.get(gpu, gpu), ab, acc, family)
            ours = mma_values(a[:, None, :], b[:, :, None], c[:, None, None], rule)[:, 0, 0]
            wrong = _differing(ours.astype(np.float32), archive[key])
            types = f"{ab} → {acc}" + (" (wgmma)" if wgmma else "")
            add(f"{_TITLE_OF.get(gpu, gpu)}, dot products", types, ours.size, wrong)
    return [(gpu, types, *count) for (gpu, types), count in counts.items()]


# "Ada" is the RTX 1000 of that generation, which has no name of its own in the registry.
_UNIT_OF = {"Ada": "ada"}
_TITLE_OF = {"Ada": "RTX 1000 Ada"}


def evidence_table() -> str:
    """Return the comparison by GPU."""
    rows = []
    for gpu, same in itertools.groupby(evidence(), key=lambda row: row[0]):
        together = list(same)
        types = ", ".join(row[1] for row in together)
        compared = sum(row[2] for row in together)
        rows.append((gpu, types, f"{compared:,}", sum(row[3] for row in together)))
    return table(("recorded on", "types", "outputs compared", "bits that differ"), rows)


def _floats(array: Any, fmt: str) -> Any:
    """Return stored bits as values of a type."""
    if fmt == "bf16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    elif array.dtype.kind == "u":
        array = array.view(f"f{array.dtype.itemsize}")
    return as_values(array, fmt)


def _differing(ours: Any, recorded: Any) -> int:
    """Count outputs whose bits differ; a zero's sign and a NaN's payload count."""
    unsigned = f"u{ours.dtype.itemsize}"
    return int((ours.view(unsigned) != recorded.view(unsigned)).sum())
