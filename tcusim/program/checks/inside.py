"""Whether every element that a step touches is in its buffer, for all sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from tcusim.program.checks.affine import Regions, symbol_counts
from tcusim.program.checks.regions import MOST_ELEMENTS, bound_symbols
from tcusim.program.checks.sites import Finding
from tcusim.program.checks.sizes import named_sizes, sizes_to_try
from tcusim.program.grammar import Bound, Program, View
from tcusim.program.walk import WARP_PLACES, Ints, Placement, Site, sites, span, warp_symbols


def inside_buffer(program: Program) -> Iterator[Finding]:
    """Require that every in-bounds element that a step touches is in its buffer.

    Proved for all sizes at once: addresses and bounds are affine. For gathered views the check
    covers the position in the range, which must not be negative; the range itself depends on the
    data. An unproven access is rejected, with sizes that violate it.
    Source: the grammar; on a GPU such an access is undefined.
    """
    regions = Regions(program)
    for site in sites(program):
        for view in dict.fromkeys(site.touched.views):
            if not _proved(regions, site, view):
                yield from (Finding(site, message) for message in _outside(program, site, view))


def _proved(regions: Regions, site: Site, view: View) -> bool:
    """Return whether no element in bounds is outside the buffer, for any sizes."""
    size, address = view.buffer.size, view.address
    # address < ceil(index / per), or per * address < index
    excess = address * size.per - size.index
    return all(
        region.empty
        or (
            region.never_exceeds(-address)
            and (view.ranges is not None or region.never_exceeds(excess, -1))
        )
        for region in regions.around(site, view)
    )


# --- An example, for the message ----------------------------------------------------------------


def _outside(program: Program, site: Site, view: View) -> Iterator[str]:
    """Yield the messages for a view that is not proved to be inside."""
    name = view.buffer.name
    if view.ranges is not None:
        yield (
            f"touches {name!r} before a range begins: the offset {view.offset} may be "
            f"negative. Start at the beginning of the range."
        )
        return
    examples = (_stray(program, site, view, scalars) for scalars in sizes_to_try(program))
    yield next(filter(None, examples), None) or (
        f"may touch elements outside {name!r}: that {name}[{view.address}] is inside does not "
        f"follow from its bounds. Add a bound, such as {view.address} < {view.buffer.size}."
    )


def _conditions(site: Site, view: View) -> tuple[Bound, ...]:
    return (*view.bounds, *(bound for guard in site.guards for bound in guard.bounds))


def _stray(program: Program, site: Site, view: View, scalars: Mapping[str, int]) -> str | None:
    """Return the message for an out-of-bounds element at these sizes."""
    size = view.buffer.size.evaluate(scalars)
    counts = {
        name: count.evaluate(scalars) for name, count in symbol_counts(program, site, view).items()
    }
    box = {name: (0, count - 1) for name, count in counts.items()}
    low, high = span(view.address, box | {name: (value, value) for name, value in scalars.items()})
    if min(counts.values()) <= 0 or (low >= 0 and high < size):
        return None
    axes = _axes(site, view, counts)
    placement = Placement.over(axes, scalars)
    if "warp" in axes:
        placement.symbols |= warp_symbols(placement.symbols["warp"], program.warp_columns)
    address = placement.value(view.address).ravel()
    used = placement.holds(view.bounds) & placement.reached(site.guards)
    strays = used & ((address < 0) | (address >= size))
    if not strays.any():
        return None
    farthest = int(np.argmax(np.where(strays, abs(address), -1)))
    verb = "writes" if view in site.touched.views_written else "reads"
    where = ", ".join(f"{name} {placement.symbols[name][farthest]}" for name in axes)
    example = "; ".join(filter(None, (where, named_sizes(scalars))))
    return (
        f"{verb} {view.buffer.name}[{address[farthest % address.size]}], but {view.buffer.name!r} "
        f"has {size} {'element' if size == 1 else 'elements'}{f' ({example})' if example else ''}. "
        f"Correct the offset, or add a bound: on an Assign, or with When around a Load or Store."
    )


def _axes(site: Site, view: View, counts: Mapping[str, int]) -> dict[str, Ints]:
    """Return the values to try for each relevant symbol.

    A symbol in no condition matters only at its limits, because addresses are affine. The middle of
    long ranges is omitted if there are too many combinations.
    """
    conditions = bound_symbols(_conditions(site, view))
    places = WARP_PLACES - {"warp"}
    if places & (conditions | view.address.symbols):
        # All warp indices are tried; they determine the row and the column.
        conditions |= {"warp"}
    axes = {
        name: np.arange(count) if name in conditions else _ends(np.arange(count), 1)
        for name, count in counts.items()
        if name in (conditions | view.address.symbols) - places
    }
    for keep in (64, 16, 4, 2):
        if math.prod(values.size for values in axes.values()) <= MOST_ELEMENTS:
            break
        axes |= {name: _ends(axes[name], keep) for name in axes.keys() - {"row", "col"}}
    return axes


def _ends(values: Ints, keep: int) -> Ints:
    """Return the first and the last `keep` values."""
    return values if values.size <= 2 * keep else np.append(values[:keep], values[-keep:])
