"""Units as architectures of AccelForge, which models energy and area, and back.

AccelForge [ACCELFORGE] describes a machine as a list of nodes, each below the one before: memories,
containers and compute units, with the energy of each action, the area of each instance, and their
rates. It cannot describe the arithmetic of a sum, and a `Unit` cannot describe a mapping; this
module converts what both describe.
"""

from __future__ import annotations

import ast
import importlib
import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tcusim.errors import InputError
from tcusim.machine.known_units import unit_of
from tcusim.machine.rules import Arch
from tcusim.machine.units import Figure, Unit

_BITS: Final = 8
# The memories of a unit, from the outermost on: the name there, and the figures of their bytes,
# their bandwidth, and the energy of a byte.
_MEMORIES: Final = (
    ("MainMemory", "memory_bytes", "memory_bandwidth", "memory_energy"),
    ("GlobalBuffer", "l2_bytes", "l2_bandwidth", "l2_energy"),
    ("LocalBuffer", "shared_bytes_per_core", "shared_bandwidth", "shared_energy"),
)


def accelforge_yaml(unit: str | Path | Unit | Arch, ab: str = "f16", acc: str = "f32") -> str:
    """Return a unit as an architecture of AccelForge: memories, cores, multiply-adds.

    Parameters
    ----------
    unit : str, Path, Unit or Arch
        Anything that `tcusim.unit_of` takes.
    ab, acc : str
        Element types: the fastest instruction that has them gives the multiply-adds of a cycle,
        rounded to an integer.

    Returns
    -------
    str
        YAML: energies in joules a bit or a multiply-add, areas in square metres, rates in bits or
        multiply-adds a second. A size or a rate that is not known is infinite, and an energy or an
        area 0; the first lines name them.

    Raises
    ------
    InputError
        If the unit has no clock, no cores, or no interval of an instruction for these types.
    """
    where = unit_of(unit)
    rates = [
        math.prod(int(size) for size in one.tile.split("x")) / one.interval.value
        for one in where.instructions
        if (one.ab, one.acc) == (ab, acc) and one.interval
    ]
    lacking = [name for name in ("clock", "cores") if getattr(where, name) is None]
    if not rates:
        lacking.append(f"the interval of an instruction for {ab} to {acc}")
    if lacking:
        raise InputError(f"{where.name} does not say {', '.join(lacking)}; add it to the unit")
    known = {name: figure.value for name, figure in where.figures().items()}
    adders = max(1, round(known.get("units_per_core", 1.0) * max(rates)))
    unknown: list[str] = []

    def of(name: str, factor: float = 1.0, otherwise: str = "inf") -> str:
        if name not in known:
            unknown.append(name)
            return otherwise
        return f"{known[name] * factor:.15g}"

    def memory(name: str, size: str, rate: str, energy: str, cycles: float) -> list[str]:
        throughput, joules = of(rate, _BITS * cycles), of(energy, 1 / _BITS, "0")
        # Operands and results pass all memories; a mapper may keep them in any.
        return [
            "  - !Memory",
            f"    name: {name}",
            f"    size: {of(size, _BITS)}",
            "    leak_power: 0",
            "    area: 0",
            f"    tensors: {{{'keep: ~Intermediates, ' if name == 'MainMemory' else ''}"
            "may_keep: All}",
            "    actions:",
            f"    - {{name: read, energy: {joules}, throughput: {throughput}}}",
            f"    - {{name: write, energy: {joules}, throughput: {throughput}}}",
        ]

    clock = known["clock"]
    nodes = [
        *memory(*_MEMORIES[0], 1.0),
        *memory(*_MEMORIES[1], 1.0),
        *_container("Core", "cores", int(known["cores"])),
        *memory(*_MEMORIES[2], clock),
        *_container("MatrixUnits", "multiply_adds", adders),
        "  - !Compute",
        "    name: MAC",
        "    leak_power: 0",
        f"    area: {of('multiply_add_area', 1.0, '0')}",
        "    actions:",
        f"    - {{name: compute, energy: {of('multiply_add_energy', 1.0, '0')}, "
        f"throughput: {clock:.15g}}}",
    ]
    head = [f"# {where.title}, {ab} to {acc}."]
    head += [f"# Not known, 0 or inf: {name}." for name in unknown]
    return "\n".join([*head, "arch:", "  nodes:", *nodes, ""])


def _container(name: str, axis: str, fanout: int) -> list[str]:
    return [
        "  - !Container",
        f"    name: {name}",
        f"    spatial: [{{name: {axis}, fanout: {fanout}}}]",
    ]


def read_accelforge(path: str | Path) -> dict[str, Figure]:
    """Return the figures of a `Unit` that an architecture of AccelForge gives.

    The first three memories are global memory, the cache of all cores and the memory of a core; the
    last compute unit is a multiply-add. The instances of the third memory are the cores. Energies
    of memories are read energies. Infinite and zero values are left out.

    Parameters
    ----------
    path : str or Path
        A YAML file, without Jinja expressions.

    Returns
    -------
    dict of str to Figure
        By the names in a `Unit`, such as ``replace(unit, **figures)`` takes.

    Raises
    ------
    InputError
        If PyYAML is not installed, or the file is no such architecture or has an invalid number.
    """
    path = Path(path)
    computes, memories, instances = [], [], 1.0
    for kind, node in _nodes(path):
        for axis in node.get("spatial") or ():
            instances *= _value(path, axis.get("fanout", 1))
        if kind == "!Memory":
            memories.append((node, instances))
        elif kind == "!Compute":
            computes.append(node)
    if not computes or not memories:
        raise InputError(f"{path} needs a !Memory and a !Compute below arch, nodes")
    rate, energy = _action(path, computes[-1], "compute")
    area = _value(path, computes[-1].get("area", 0))
    found = {"clock": rate, "multiply_add_energy": energy, "multiply_add_area": area}
    if len(memories) > 2:
        found["cores"] = memories[2][1]
    for (_, size, bandwidth, joules), (node, count) in zip(_MEMORIES, memories, strict=False):
        rate, energy = _action(path, node, "read")
        # The rate of a core's memory is that of one instance, in bytes a cycle.
        parts = found["clock"] if bandwidth == "shared_bandwidth" else 1 / count
        found |= {
            size: _value(path, node.get("size", math.inf)) / _BITS,
            bandwidth: rate / _BITS / parts,
            joules: energy * _BITS,
        }
    said = f"AccelForge: {path.name}"
    return {
        name: Figure(float(f"{value:.12g}"), said, "published")
        for name, value in found.items()
        if value > 0 and math.isfinite(value)
    }


def _nodes(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the tag and the content of each node of a file."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise InputError("AccelForge's files are read with PyYAML: pip install pyyaml") from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        """Keeps the tags of mappings."""

    def tagged(loader: Any, tag: str, node: Any) -> Any:
        return (f"!{tag}", loader.construct_mapping(node, deep=True))

    Loader.add_multi_constructor("!", tagged)
    try:
        whole = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(
            f"{path} cannot be read as YAML: {' '.join(str(error).split())}. A file with Jinja "
            f"expressions must be rendered first"
        ) from error
    arch = whole.get("arch") if isinstance(whole, dict) else None
    nodes = arch.get("nodes") if isinstance(arch, dict) else None
    if not isinstance(nodes, list) or not all(isinstance(one, tuple) for one in nodes):
        raise InputError(f"{path} needs a list of tagged nodes, such as !Memory, below arch, nodes")
    return nodes


def _action(path: Path, node: dict[str, Any], name: str) -> tuple[float, float]:
    """Return the rate of an action of a node, and its energy."""
    for action in node.get("actions") or ():
        if action.get("name") == name:
            rate, energy = (action.get(key, other) for key, other in _DEFAULTS)
            return _value(path, rate), _value(path, energy)
    return math.inf, 0.0


_DEFAULTS: Final = (("throughput", math.inf), ("energy", 0.0))
_OPERATIONS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _value(path: Path, given: object) -> float:
    """Return a number, or the value of an expression of numbers."""

    def of(node: ast.expr) -> float:
        match node:
            case ast.Constant(int() | float() as number):
                return float(number)
            case ast.Name("inf"):
                return math.inf
            case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
                return _OPERATIONS[type(operation)](of(left), of(right))
            case ast.UnaryOp(ast.USub(), operand):
                return -of(operand)
        raise ValueError

    try:
        return of(ast.parse(str(given).strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise InputError(
            f"{path}: {given!r} is no number, nor + - * / of numbers; replace it by its value"
        ) from error
