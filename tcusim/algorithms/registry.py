"""The algorithms by name, and `build`, which makes a step program of one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tcusim.algorithms.builder import (
    LENGTH,
    Builder,
    Level,
    Options,
    Work,
    adds_rows,
    require,
    stored_type,
)
from tcusim.algorithms.formula import evaluate
from tcusim.algorithms.options import Option, arguments_of, as_size, options_of
from tcusim.errors import (
    Given,
    InputError,
    Unsupported,
    require_choice,
    require_flags,
    require_names,
    told,
)
from tcusim.machine import FORMATS, format_of
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.plugins import OWN, Registry
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import Extent, Operation, Program, Scalar

_KINDS = ("reduction", "scan", "irregular_reduction", "irregular_scan", "product")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row of the registry.

    Attributes
    ----------
    function : callable
        Writes the steps, given a Builder and a segment size. Returns the elements that a warp (a
        block, if that is the level) takes, or the whole `Work` of the grid. Its keyword arguments
        are the algorithm's options.
    name : str
        The general name, with k for a segment of one row of a tile and t for a whole tile.
    kind : str
        "reduction", "scan" or "product", which has no segments; "irregular_reduction" and
        "irregular_scan" have segments by offsets, and the segment size is that of a piece.
    source : str
        Where the paper has it.
    formula : str
        The mma steps of one warp, in segments of whole rows or tiles, with combine="mma" and one
        part: see `mma_steps`. "0" where no mma is used; "" if the algorithm has no formula, such as
        those whose warps take several segments.
    alias : str
        The paper's name, for k = 16.
    title : str
        A one-sentence summary; by default the first sentence of the function's docstring.
    level : Level
        The executor of a work item.
    tiles : bool
        Whether the default segment is counted in tiles (m*k), not in rows (k).
    repeats : int
        How many of those the default segment has; at grid level, where that is the whole array,
        those that a block of one warp takes.
    limited : bool
        Whether a segment has one row, or one tile, at most.
    combines : tuple of str
        How partial sums can be combined, the default first; see `build`.
    adds_rows : bool
        Whether rows of float32 are added up as they lie, without products, with ab="f32".
    side : str, optional
        The operand for the data where the shape's sizes shall not decide.
    lines : dict
        The line of the paper's listing for each part of the algorithm.
    """

    function: Callable[..., int | Work]
    name: str
    kind: str
    source: str
    formula: str = ""
    alias: str = ""
    title: str = ""
    level: Level = Level.WARP
    tiles: bool = False
    repeats: int = 1
    limited: bool = False
    combines: tuple[str, ...] = ("mma", "add")
    adds_rows: bool = False
    side: str | None = None
    lines: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_choice(Given("kind"), self.kind, _KINDS)
        if not self.title:
            title = (inspect.getdoc(self.function) or "").split("\n", 1)[0]
            object.__setattr__(self, "title", title)

    @property
    def options(self) -> dict[str, Option]:
        """The options that `build` passes on to the function, by name."""
        return options_of(self.function)

    @property
    def uses_mma(self) -> bool:
        """Whether the algorithm needs a tensor core at all."""
        return self.formula != "0"

    def longest(self, m: int, k: int) -> int | None:
        """Return the most elements of a segment, in tiles with m rows of data; None for any."""
        if not self.limited:
            return None
        return m * k if self.tiles else k

    def mma_steps(self, m: int, n: int, k: int, **sizes: int) -> int:
        """Return the mma steps of a warp, by the formula.

        Parameters
        ----------
        m, n, k : int
            The tile as the algorithm sees it: m rows of data.
        **sizes
            N, the rows or tiles of a segment. W, the warps of a block, if the level is the block
            (up to k of them for scans); default 1. Of a product: rows, cols and inner, filled up
            to whole tiles of a block and whole steps; the formula is for the whole grid. Other
            names are options.

        Raises
        ------
        Unsupported
            If the algorithm has no formula.
        """
        defaults = {name: option.default for name, option in self.options.items()}
        values = {"m": m, "n": n, "k": k, "W": 1, **defaults, **sizes}
        require(
            self.formula != "",
            f"{self.name} has no formula; count the mma steps of its programs with `tcusim cost`",
        )
        return evaluate(self.formula, values)


def listing(name: str, **numbers: int) -> dict[str, str]:
    """Return the lines of one of the paper's listings, by part of an algorithm."""
    return {part: f"{name} line {number}" for part, number in numbers.items()}


# --- The registry -----------------------------------------------------------------------------

# The rows that stand above each function.
_rows_above: dict[Callable[..., Any], tuple[Algorithm, ...]] = {}


def _members(value: Any) -> tuple[Algorithm, ...]:
    """Return the algorithms that an entry point or a user names: rows or functions with rows."""
    rows: list[Algorithm] = []
    for one in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(one, Algorithm):
            rows.append(one)
        elif callable(one) and one in _rows_above:
            rows.extend(_rows_above[one])
        else:
            raise InputError(
                "an algorithm must be an Algorithm, or a function under @algorithm, got "
                f"{told(one)}"
            )
    return tuple(rows)


_ALGORITHMS: Final = Registry[Algorithm](
    "algorithm",
    "tcusim.algorithms",
    lambda row: (row.name, row.alias) if row.alias else (row.name,),
    _members,
)


def register_algorithm(algorithm: Algorithm) -> Algorithm:
    """Add a row to the registry.

    Parameters
    ----------
    algorithm : Algorithm
        The row, as `@algorithm` makes it.

    Returns
    -------
    Algorithm
        The same.

    Raises
    ------
    InputError
        If another row has its name.
    """
    rows = [_ALGORITHMS.add(row, "register_algorithm") for row in _members((algorithm,))]
    return rows[0]


Facts = ParamSpec("Facts")
P = ParamSpec("P")
Function = TypeVar("Function", bound=Callable[..., Any])


def _decorator(
    row: Callable[Concatenate[Callable[..., Any], Facts], Algorithm],
) -> Callable[Facts, Callable[[Function], Function]]:
    """Return a decorator with the fields of a row other than its function."""

    def algorithm(*args: Facts.args, **facts: Facts.kwargs) -> Callable[[Function], Function]:
        """Register a function that writes the steps of an algorithm.

        The arguments are those of `Algorithm` after `function`: name, kind, source, formula, and
        non-default values. A function may have several rows.
        """

        def register(function: Function) -> Function:
            new = row(function, *args, **facts)
            module = function.__module__
            _ALGORITHMS.add(new, OWN if module.startswith("tcusim.") else module)
            _rows_above[function] = (*_rows_above.get(function, ()), new)
            return function

        return register

    return algorithm


algorithm = _decorator(Algorithm)


def algorithms() -> tuple[Algorithm, ...]:
    """Return every registered algorithm: reductions, scans, those by offsets, and products."""
    return tuple(sorted(_ALGORITHMS.all(), key=lambda row: _KINDS.index(row.kind)))


def segmented_algorithms() -> tuple[Algorithm, ...]:
    """Return those that sum or scan segments of one size, of one input."""
    return tuple(row for row in algorithms() if row.kind in ("reduction", "scan"))


def algorithm_of(name: str) -> Algorithm:
    """Return the algorithm of this general or paper name, in any case.

    Parameters
    ----------
    name : str
        Such as ``"reduction_kn"``, or ``"reduction_16n"``, its name for k = 16.

    Returns
    -------
    Algorithm
        Its row of the registry.

    Raises
    ------
    UnknownName
        If there is none; the text lists those that there are.
    """
    return _ALGORITHMS.get(name)


def _verified(make: Callable[P, Program]) -> Callable[P, Program]:
    """Return a builder of verified programs; `inspect.unwrap` gives the one that it is made of."""

    @functools.wraps(make)
    def verified(*args: P.args, **kwargs: P.kwargs) -> Program:
        program = make(*args, **kwargs)
        verify(program)
        return program

    return verified


@_verified
def build(
    algorithm: str,
    *,
    tile: str | tuple[int, int, int] | MmaShape = "16x16x16",
    segment_size: int | None = None,
    ab: str = "f16",
    acc: str = "f32",
    source: str | None = None,
    result: str | None = None,
    side: str | None = None,
    warps: int = 1,
    items_per_warp: int = 1,
    masked: bool = False,
    combine: str | None = None,
    accumulation_length: int | None = None,
    part: str | None = None,
    **options: Any,
) -> Program:
    """Build the step program of an algorithm for a tile shape.

    Parameters
    ----------
    algorithm : str
        A name of `tcusim list algorithms`, such as "scan_tn", or the paper's, such as "scan_256n".
    tile : str, tuple or MmaShape
        The tile, M-N-K order; see `tcusim.shape_of`.
    segment_size : int, optional
        Elements of a segment; the default fills a row or tile, or four where the name ends in n.
    ab : str
        Element type of the operands. With "f32", panels and blocks that share segments add up rows
        as they lie, without products.
    acc : str
        Element type of the accumulator.
    source, result : str, optional
        Element types of the input and output arrays; by default those of ab and acc. A
        source wider than ab is split exactly into several parts (f32 into three bf16); f64 takes
        narrower ones.
    side : {"a", "b"}, optional
        The operand that holds the data; by default the one that holds more segments.
    warps : int
        Warps per block.
    items_per_warp : int
        Work items for each warp, such as the m segments of one tile, one after the other.
    masked : bool
        Accept inputs of any length, masked inside the program. If not, the length must be a whole
        number of what a block takes, as in the paper's listings.
    combine : {"mma", "add"}, optional
        How partial sums are combined: by further products, which round them to `ab` first, as in
        the paper; or by rounded additions in the type of the accumulator. Default: the first that
        the algorithm has, "mma" where it is in the paper.
    accumulation_length : int, optional
        The most products that accumulate before a rounded addition; no limit by default.
    part : {"whole", "fraction"}, optional
        What is taken of each element: the nearest whole number, or the rest. float64 holds longer
        sums of either than of both. For a f16 source of f64 sums; for a f64 source too, where rows
        are added without products (ab="f16").
    **options
        Options of the algorithm, such as form="L(A1)" of the scans of tiles.

    Returns
    -------
    Program
        It has passed `tcusim.verify`.

    Raises
    ------
    UnknownName
        For a name that is not registered.
    Unsupported
        If the parts do not go together.
    """
    require_names(
        ab=ab, acc=acc, source=source, result=result, side=side, combine=combine, part=part
    )
    require_flags(masked=masked)
    row = algorithm_of(algorithm)
    tile = shape_of(tile)
    _check_alias(row, algorithm, tile)
    _check_options(row, options)
    combine = _combine(row, combine)
    source = source or stored_type(ab)
    _check_types(ab, acc, source, result)
    if accumulation_length is not None:
        as_size("accumulation_length", accumulation_length)
    common = Options(
        shape=tile,
        ab=ab,
        acc=acc,
        source=source,
        result=result or acc,
        side=_side(row, side, tile),
        warps=as_size("warps", warps),
        items_per_warp=as_size("items_per_warp", items_per_warp),
        masked=masked,
        combine=combine,
        accumulation_length=accumulation_length,
        part=_part(part, row, (source, ab, acc)),
        adds_rows=row.adds_rows and adds_rows(ab, acc),
    )
    b = Builder(common, row.lines, row.level)
    sizes = _sizes(row, b, segment_size)
    work = row.function(b, *sizes, **arguments_of(row.function, options))
    if not isinstance(work, Work):
        per_block = work * items_per_warp * (warps if row.level is Level.WARP else 1)
        scalar = Scalar("length", 1 if masked else per_block)
        work = Work((scalar,), Extent(LENGTH, per_block))
    return b.program(str(algorithm).lower(), row.source, work)


def _combine(row: Algorithm, combine: str | None) -> str:
    """Return the combination of partial sums: the given one, or the algorithm's first."""
    if combine is None:
        return row.combines[0]
    require_choice(Given("combine"), combine, ("mma", "add"))
    if combine not in row.combines:
        raise Unsupported(
            f"{row.name} has no ", Given("combine", combine), f", only {row.combines[0]!r}"
        )
    return combine


def _sizes(row: Algorithm, b: Builder, segment_size: int | None) -> tuple[int | None, ...]:
    """Return the segment size (None: the whole array), or nothing if there are no segments."""
    if row.kind == "product":
        if segment_size is not None:
            raise InputError(f"{row.name} has no segments; leave ", Given("segment_size"), " out")
        return ()
    one = b.m * b.k if row.tiles else b.k
    if segment_size is None:
        return (None if row.level is Level.GRID else row.repeats * one,)
    size = as_size("segment_size", segment_size)
    longest = row.longest(b.m, b.k)
    if longest is not None and size > longest:
        most = f"a tile, {longest}" if row.tiles else f"k = {longest}"
        verb = "sums" if row.kind == "reduction" else "scans"
        raise Unsupported(f"{row.name} {verb} segments of at most {most} elements")
    return (size,)


def _side(row: Algorithm, side: str | None, shape: MmaShape) -> str:
    """Return the operand for the data: the given one, or the one that holds more of them."""
    if side is not None:
        require_choice(Given("side"), side, ("a", "b"))
        return side
    if row.side is not None:
        return row.side
    if shape.m == shape.n:
        # The paper reduces with P.A, data on the right, and scans with A.U, data on the left.
        return "b" if row.kind.endswith("reduction") else "a"
    return "a" if shape.m > shape.n else "b"


def _check_alias(row: Algorithm, name: str, shape: MmaShape) -> None:
    if str(name).lower() == row.alias != row.name and shape.k != 16:
        raise Unsupported(
            f"{name!r} is the paper's name for k = 16, but {shape.name} has k = {shape.k}; "
            f"use {row.name!r}"
        )


def _check_options(row: Algorithm, options: dict[str, Any]) -> None:
    for name in options:
        if name not in row.options:
            valid = ", ".join(row.options) or "none"
            common = ", ".join(inspect.unwrap(build).__kwdefaults__ or ())
            raise InputError(
                f"{row.name} has no option {name!r}; its options: {valid}. Those of every "
                f"algorithm: {common}"
            )


def _part(part: str | None, row: Algorithm, types: tuple[str, str, str]) -> Operation | None:
    """Return the part of each element to take, on conversion or on addition without products.

    types: of the source, of the operands and of the sums.
    """
    if part is None:
        return None
    require_choice(Given("part"), part, ("whole", "fraction"))
    source, ab, acc = types
    added = row.adds_rows and adds_rows(ab, acc)
    converted = (source, ab, acc) == ("f16", "f64", "f64")
    if not converted and not (added and acc == "f64" and source in ("f16", "f64")):
        raise Unsupported(
            *(Given("part", part), " is of f16 elements that become f64 operands, or of f16 and "),
            *("f64 elements whose rows are added in f64 without products (", Given("ab", "f16")),
            *(", ", Given("acc", "f64"), f"); {row.name!r} has {source} elements, {ab} operands "),
            f"and {acc} sums",
        )
    return Operation(part)


def _check_types(ab: str, acc: str, source: str, result: str | None) -> None:
    for name in (ab, acc, source, result):
        if name is not None:
            format_of(name)
    narrow = format_of(ab)
    wide = format_of(source)
    if source == "tf32":
        raise Unsupported("memory holds no tf32: fragments of tf32 are loaded from a source of f32")
    if (ab, acc) == ("f16", "f64") and source not in ("f16", "f64"):
        raise Unsupported(
            f"float64 adds rows of f16 or f64 elements without products, not of {source}"
        )
    is_held = wide.fraction_bits >= narrow.fraction_bits or narrow.name == "f64"
    if narrow.is_float != wide.is_float or not is_held:
        valid = [name for name, row in FORMATS.items() if row.is_float == narrow.is_float]
        raise Unsupported(
            f"a source of type {wide.name} cannot be split into parts of type {ab}; the source "
            f"must be as wide, of {', '.join(valid)}"
        )
    is_split = wide.is_float and source != stored_type(ab) and narrow.name != "f64"
    if is_split and source not in ("f32", "f64"):
        raise Unsupported(
            f"a source of type {source} is not split into parts of type {ab}: parts are made of "
            f"f32 and f64. Give a source of {stored_type(ab)}, f32 or f64"
        )
