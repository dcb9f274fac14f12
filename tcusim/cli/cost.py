"""`tcusim cost`: the time of a program or an operation on a unit, and its bottleneck."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

import tcusim
from tcusim import Plan, ProductPlan, Program
from tcusim.algorithms.registry import algorithm_of
from tcusim.cli import files
from tcusim.cli.options import (
    ARRAY_TYPES,
    JSON,
    Integer,
    OneOf,
    OutputFile,
    ProgramCommand,
    array_type_of,
    build,
    in_words_of_the_command,
    tiles_of,
    types_of,
)
from tcusim.cli.output import examples, print_json, show
from tcusim.machine import FORMATS, Unit, format_of, unit_of, usual_types
from tcusim.table import Table

if TYPE_CHECKING:
    from tcusim.judge.cost.predicted import Cost

_SUMS: Final = ("sum", "cumsum", "segmented-sum", "segmented-cumsum")
_PRODUCTS: Final = ("matmul", "matvec")
# The operation of algorithms of several inputs, by their kind, irregular or not.
_OPERATION_OF: Final = {
    "reduction": "segmented-sum --length 2**20 --segment-size 1024",
    "scan": "segmented-cumsum --length 2**20 --segment-size 1024",
    "product": "matmul --rows 1024 --inner 1024 --cols 1024",
}
_TYPES: Final = tuple(
    row.name for row in FORMATS.values() if not (row.is_float and row.itemsize == 1)
)
# The options of programs that operations take, too.
_OF_OPERATIONS: Final = ("tile", "acc")
_LENGTH: Final = Integer(least=1)
_SIZES: Final = tuple(2**power for power in range(4, 21, 2))


@click.command(
    "cost",
    cls=ProgramCommand,
    no_args_is_help=True,
    epilog=examples(
        "tcusim cost sum --length 2**30",
        "tcusim cost segmented-cumsum --length 1e9 --segment-size 100 --unit h200",
        "tcusim cost segmented-sum --length 2**30 --sweep",
        "tcusim cost reduction_tn --segment-size 4096 --length 2**24 --unit mychip.toml --json",
        "tcusim cost matmul --rows 4096 --inner 4096 --cols 4096",
    ),
)
@click.argument("what", metavar="ALGORITHM|OPERATION")
@click.option("--length", type=_LENGTH, help="Elements of the array.")
@click.option("--rows", type=_LENGTH, help="Rows of the left matrix, of matmul and matvec.")
@click.option("--inner", type=_LENGTH, help="Its columns.")
@click.option("--cols", type=_LENGTH, help="Columns of the right one, of matmul.")
@click.option(
    "--unit", default="h200", show_default=True, metavar="NAME|FILE", help="On which unit."
)
@click.option(
    "--input-type",
    type=OneOf("type", ARRAY_TYPES),
    help="Of an operation. Default: f16, or the first that the unit takes.",
)
@click.option("--result-type", type=OneOf("type", _TYPES), help="Of an operation's results.")
@click.option(
    "--cached/--not-cached",
    default=None,
    help="Whether the arrays lie in the second-level cache. Default: if they fit.",
)
@click.option("--sweep", is_flag=True, help="Of segments: every second power of two, 16 to 2**20.")
@click.option("--html", type=OutputFile(), help="With --sweep: write a page with the roofline.")
@JSON
def cost_command(what: str, unit: str, as_json: bool, **options: Any) -> None:
    """Predict the time of ALGORITHM or OPERATION on a unit, and its bound.

    An OPERATION (sum, cumsum, segmented-sum, segmented-cumsum, matmul, matvec) is planned as the
    functions on arrays plan it. Nothing is run.
    """
    from tcusim.judge.cost.predicted import cost

    # A unit brings its tiles, and the shared memory that a block may have.
    where = unit_of(unit)
    options |= tiles_of(where, options)
    if what not in (*_SUMS, *_PRODUCTS):
        options |= types_of(where, options)
    elif options["input_type"] is None:
        options["input_type"] = array_type_of(where.arch, options["build_acc"])
        if usual_types(where.arch, options["input_type"]) == ("f16", "f16"):
            options["build_acc"] = "f16"
    options["arch"] = where.name
    if options["html"] is not None and not options["sweep"]:
        raise click.UsageError("--html goes with --sweep, whose roofline the page shows")
    if options["sweep"]:
        _sweep(what, unit, as_json, options)
        return
    target = _target(what, options)
    length = None
    if isinstance(target, Program):
        length = options["length"]
        if len(target.inputs) > 1 and any(one.size.constant is None for one in target.inputs):
            arrays = " and ".join(one.name for one in target.inputs)
            kind = algorithm_of(what).kind.removeprefix("irregular_")
            raise click.UsageError(
                f"{what} has several inputs, {arrays}, and its options do not give their sizes. "
                f"Name the operation, as in: tcusim cost {_OPERATION_OF[kind]}"
            )
        for name in ("rows", "inner", "cols"):
            if options[name] is not None:
                raise click.UsageError(f"--{name} is of matmul and matvec; {what} is an algorithm")
        _require(what, {"length": length})
    found = cost(target, unit, length, cached=options["cached"])
    if as_json:
        print_json(found.as_json())
    else:
        first, *others = found.tables()
        if isinstance(target, ProductPlan):
            title, *texts = first.texts
            first = replace(first, texts=[title, *_products(found, where, target), *texts])
        show(first, *others)


def _target(what: str, options: dict[str, Any]) -> Program | Plan | ProductPlan:
    """Return the plan of an operation, or the program of an algorithm."""
    if what not in (*_SUMS, *_PRODUCTS):
        if options["input_type"] or options["result_type"]:
            raise click.UsageError("--input-type and --result-type are of operations; say --ab")
        return build(what, options)
    asked = {name: options.get(f"build_{name}") for name in _OF_OPERATIONS}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    given = {"options": {**given, "arch": options["arch"]}}
    for key, name in (("dtype", "input_type"), ("result", "result_type")):
        if options[name] is not None:
            given[key] = format_of(options[name]).array_name
    size = options.get("build_segment_size")
    _refuse_what_is_of_algorithms(what, options)
    with in_words_of_the_command(segments="segment_size", dtype="input_type", result="result_type"):
        return _planned(what, options, size, given)


def _planned(
    what: str, options: dict[str, Any], size: int | None, given: dict[str, Any]
) -> Plan | ProductPlan:
    """Return the plan of an operation with these keywords, and the segment size, if any."""
    if what in _PRODUCTS:
        needed = ("rows", "inner", "cols")[: 3 if what == "matmul" else 2]
        sizes = {name: options[name] for name in needed}
        _require(what, sizes)
        return tcusim.plan_product(what, **sizes, **given)
    _require(what, {"length": options["length"]})
    if what.startswith("segmented"):
        _require(what, {"segment-size": size})
        given["segments"] = size
    return tcusim.plan(what.replace("-", "_"), length=options["length"], **given)


def _refuse_what_is_of_algorithms(what: str, options: dict[str, Any]) -> None:
    """Refuse options that the plan of an operation does not ask for, or that are of others."""
    taken = [*_OF_OPERATIONS, *(["segment_size"] if what.startswith("segmented") else [])]
    for key, value in options.items():
        name = key.removeprefix("build_")
        if key != name and value not in (None, False, ()) and name not in taken:
            whose = "segmented-sum and segmented-cumsum" if name == "segment_size" else "algorithms"
            option = f"algorithm-{name}" if name in ("rows", "inner", "cols") else name
            raise click.UsageError(f"--{option.replace('_', '-')} is of {whose}; {what} has none")
    sizes = ("rows", "inner", "cols") if what in _SUMS else ("length",)
    for name in sizes:
        if options[name] is not None:
            raise click.UsageError(f"--{name} is not of {what}; see tcusim cost --help")
    if what == "matvec" and options["cols"] is not None:
        raise click.UsageError("--cols is of matmul; the vector of matvec is one column")


def _require(what: str, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is None:
            raise click.UsageError(f"{what} needs --{name} N")


# --- Output -----------------------------------------------------------------------------------


def _products(found: Cost, where: Unit, plan: ProductPlan) -> list[str]:
    """Return the speed of a product, beside the peak of the unit's matrix units at its clock."""
    from tcusim.judge.cost.roofline import roofline

    program = plan.launch_plan.launches[0].program
    peak = roofline({}, where, (program.shape.name, program.ab, program.acc)).peak
    if peak is None or where.clock is None:
        return []
    word = "TFLOP/s" if format_of(program.acc).is_float else "TOP/s"
    # A multiply-add is two operations.
    most, clock = f"{2 * peak / 1e12:.4g} {word}", where.clock
    said = f"of {program.ab} to {program.acc} at {clock.value / 1e6:,.4g} MHz ({clock.source})"
    if not found.seconds:
        return [f"matrix units: at most {most} {said}"]
    rate = sum(one.multiply_adds for one in found.launches) / found.seconds
    speed = f"{2 * rate / 1e12:.3g} {word}, {100 * rate / peak:.3g}% of the {most}"
    return [f"matrix units: {speed} {said}"]


# --- Sizes of segments --------------------------------------------------------------------------


def _sweep(what: str, unit: str, as_json: bool, options: dict[str, Any]) -> None:
    from tcusim.judge.cost.predicted import cost, time_text
    from tcusim.judge.cost.roofline import memory_bound_sizes, roofline

    if not what.startswith("segmented"):
        raise click.UsageError("--sweep is of segmented-sum and segmented-cumsum")
    _require(what, {"length": options["length"]})
    if options["build_segment_size"] is not None:
        raise click.UsageError("--sweep takes sizes of its own; leave --segment-size out")

    def cost_of(size: int) -> Cost:
        target = _target(what, {**options, "build_segment_size": size})
        return cost(target, unit, cached=options["cached"])

    sizes = [size for size in _SIZES if size <= options["length"]]
    bound, found = memory_bound_sizes(sizes, cost_of)
    roofs = roofline({f"segments of {size}": one for size, one in found}, unit)
    if options["html"] is not None:
        from tcusim.markup import page

        files.write_page(options["html"], page(f"{what} on {unit}", roofs.plot().html()))
    if as_json:
        rows = [{"segment_size": size, **one.as_json()} for size, one in found]
        roof = {"peak": roofs.peak, "roofs": dict(roofs.roofs), "points": dict(roofs.points)}
        print_json({"memory_bound": bound, "sizes": rows, "roofline": roof})
        return
    sweep_rows = []
    for size, one in found:
        rate = "" if one.bandwidth is None else f"{one.bandwidth / 1e9:.0f}"
        sweep_rows.append((str(size), time_text(one.seconds), rate, one.bound))
    unknown = {name: None for _, one in found for name in one.unknown}
    said = "at none of these sizes"
    if bound is not None:
        said = f"segments of {bound[0]} to {bound[1]}"
    show(
        Table(
            ("segment", "time", "GB/s", "bound by"),
            sweep_rows,
            notes=[f"the unit does not say: {', '.join(unknown)}"] if unknown else [],
            summary=f"bound by memory: {said}",
            align="rrr",
        )
    )
