"""Concurrency of lanes and warps: barriers, and conflicting accesses between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tcusim.program.checks.regions import (
    Footprint,
    depends_on_warp,
    footprint,
    is_shared,
    meets,
    relative_addresses,
)
from tcusim.program.checks.sites import Finding, each_step
from tcusim.program.grammar import Loop, Program, Scope, Space, Store, Sync, View, When
from tcusim.program.walk import Site, top

# --- Barriers ---------------------------------------------------------------------------------


@each_step
def uniform_barrier(program: Program, site: Site) -> Iterator[str]:
    """Require that the whole block reaches a barrier of the block.

    Source: __syncthreads in a condition must not differ within the block [CPG sec. 10.6].
    """
    if program.warps > 1 and isinstance(site.step, Sync) and site.step.scope is Scope.BLOCK:
        for guard in site.guards:
            if depends_on_warp(guard.bounds):
                yield (
                    f"only some warps of the block reach this barrier: step {guard.path} branches "
                    f"on the warp. Move it out of the branch."
                )


# --- Overlaps within one step -----------------------------------------------------------------


@each_step
def copy_overlap(program: Program, site: Site) -> Iterator[str]:
    """Require that a lane-parallel step writes an element once, and none that another lane reads.

    A destination and a source in one buffer are the very same rectangle, or disjoint.
    Source: the lanes of a warp run in no order [CPG sec. 7.1].
    """
    if isinstance(site.step, Store):
        return
    touched = site.touched
    for view in touched.views_written:
        if _writes_twice(view):
            yield (
                f"writes elements of {view.buffer.name!r} more than once: strides "
                f"{view.row_stride} and {view.col_stride} for {view.rows}x{view.cols}. Only a "
                f"source may repeat rows or columns."
            )
    for one, two in itertools.combinations(touched.views_written, 2):
        if _overlap(program, site, one, two):
            yield f"two parts overlap in {one.buffer.name!r}. Give each part its own place."
    for target, source in itertools.product(touched.views_written, touched.views_read):
        in_place = target.offset == source.offset and (
            (target.row_axis, target.col_axis) == (source.row_axis, source.col_axis)
        )
        if not in_place and _overlap(program, site, target, source):
            yield (
                f"reads and writes overlapping parts of {target.buffer.name!r}, and the lanes run "
                f"in no order. Use the same rectangle, a disjoint one, or another buffer."
            )


def _writes_twice(view: View) -> bool:
    if view.ranges is not None:
        # Pieces of segments are disjoint.
        return False
    # One row after the other, or one column after the other.
    near, far = sorted(((view.row_stride, view.rows), (view.col_stride, view.cols)))
    if near[0] > 0 and near[0] * near[1] <= far[0]:
        return False
    # numpy.unique is avoided: its first call imports modules for longer than all checks take.
    addresses = np.sort(relative_addresses(view))
    return bool((addresses[1:] == addresses[:-1]).any())


def _overlap(program: Program, site: Site, one: View, two: View) -> bool:
    """Whether two views may share an element, for the same warp in the same iteration."""
    if one.buffer != two.buffer:
        return False
    difference = two.offset - one.offset
    if difference.terms and is_shared(one):
        first, second = footprint(program, site, one), footprint(program, site, two)
        return meets(first, second, dict.fromkeys(first.columns, np.equal))
    if difference.terms:
        return True
    here = set(relative_addresses(one).tolist())
    return not here.isdisjoint((relative_addresses(two) + difference.const).tolist())


# --- Hazards on shared memory -----------------------------------------------------------------


# Loops by path, each with 1 or 2: a loop's body is followed by itself, and pass 2 represents any
# later iteration.
_Passes: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    """One read or write of shared memory. Each is itself, and equal to no other."""

    site: Site
    view: View
    writes: bool
    passes: _Passes

    def concerns(self, other: _Access) -> bool:
        """Whether both access one buffer and at least one is a write."""
        mine, its = self.view.buffer, other.view.buffer
        return (self.writes or other.writes) and (mine is its or mine == its)

    @property
    def verb(self) -> str:
        """The verb for messages."""
        return "writes" if self.writes else "reads"


# Accesses since the last block barrier; True if a warp barrier came since. Accesses that a warp
# barrier orders completely are left out: no other warp can reach their elements.
_Pending: TypeAlias = dict[_Access, bool]

# Two footprints, and the relations between their symbols.
_Question: TypeAlias = tuple[Footprint, Footprint, tuple[tuple[str, np.ufunc], ...]]


def synced_shared(program: Program) -> Iterator[Finding]:
    """Require a barrier between two accesses to a shared element, if one of them is a write.

    Any barrier suffices within a warp; between the warps of a block it must be a block barrier.
    Views that provably share no element need none. A loop's body is followed by itself.
    Source: __syncwarp and __syncthreads [CPG sec. 10.6]; loopy's MissingBarrierError.
    """
    hazards = _Hazards(program)
    hazards.all_of(top(program), {}, ())
    yield from hazards.found.values()


@dataclass(slots=True)
class _Hazards:
    """Findings so far, by pair of steps and buffer.

    footprints: cached by access. met: cached results of `meet`. The methods walk the steps and
    return the accesses pending after them.
    """

    program: Program
    found: dict[tuple[str, str, str], Finding] = field(default_factory=dict)
    footprints: dict[_Access, Footprint] = field(default_factory=dict)
    met: dict[_Question, bool] = field(default_factory=dict)

    def all_of(self, steps: tuple[Site, ...], pending: _Pending, passes: _Passes) -> _Pending:
        """Find hazards in these steps, one after the other."""
        for site in steps:
            match site.step:
                case Sync(Scope.BLOCK):
                    pending = {}
                case Sync():
                    pending = dict.fromkeys(filter(self.between_warps, pending), True)
                case Loop(count=count):
                    pending = self.loop(site, count.constant, pending, passes)
                case When(bounds=bounds) as step:
                    pending = self.access(site, pending, passes)
                    differ = bool(step.on_data) or depends_on_warp(bounds)
                    pending = self.when(site, pending, passes, differ=differ)
                case _:
                    pending = self.access(site, pending, passes)
        return pending

    def between_warps(self, access: _Access) -> bool:
        """Whether another warp of the block may touch the elements of an access."""
        return self.program.warps > 1 and access.view.buffer.space is not Space.WARP

    def touched(self, access: _Access) -> Footprint:
        """Return the elements that an access touches."""
        if access not in self.footprints:
            self.footprints[access] = footprint(self.program, access.site, access.view)
        return self.footprints[access]

    def loop(self, site: Site, count: int | None, pending: _Pending, passes: _Passes) -> _Pending:
        """Find hazards in a loop's first pass, and in a later one that follows it."""
        if count == 0:
            return pending
        after = self.all_of(site.body, pending, (*passes, (site.path, 1)))
        if count != 1:
            after = self.all_of(site.body, after, (*passes, (site.path, 2)))
        # A loop with a run-time count may run zero times, without its barriers.
        return after if count else _either(pending, after)

    def when(self, site: Site, pending: _Pending, passes: _Passes, *, differ: bool) -> _Pending:
        """Find hazards in both branches, and between them if warps of a block may differ."""
        body = self.all_of(site.branch(taken=True), pending, passes)
        before = pending
        if differ:
            # Other warps are in the other branch meanwhile.
            before = {**body, **pending}
        otherwise = self.all_of(site.branch(taken=False), before, passes)
        return _either(body, otherwise)

    def access(self, site: Site, pending: _Pending, passes: _Passes) -> _Pending:
        """Compare a step's accesses with the pending ones, and with itself in other warps."""
        touched = site.touched
        reads = [_Access(site, v, False, passes) for v in filter(is_shared, touched.views_read)]
        writes = [_Access(site, v, True, passes) for v in filter(is_shared, touched.views_written)]
        new = [*reads, *writes]
        for later in new:
            for earlier, synced in pending.items():
                if earlier.concerns(later):
                    if not synced:
                        self.compare(earlier, later, same_warp=True)
                    self.compare(earlier, later, same_warp=False)
            for other in new:
                if other.concerns(later):
                    self.compare(other, later, same_warp=False)
        return {**pending, **dict.fromkeys(new, False)} if new else pending

    def compare(self, earlier: _Access, later: _Access, *, same_warp: bool) -> None:
        """Record a hazard if both may touch an element and one access is a write.

        same_warp: within a warp, else across the warps of a block.
        """
        if not (same_warp or self.between_warps(later)):
            return
        key = (earlier.site.path, later.site.path, later.view.buffer.name)
        if key in self.found or (same_warp and _exclusive(earlier, later)):
            return
        if self.meet(earlier, later, _relations(earlier, later, same_warp=same_warp)):
            self.found[key] = Finding(later.site, _hazard_message(earlier, later, same_warp))

    def meet(self, earlier: _Access, later: _Access, relations: dict[str, np.ufunc]) -> bool:
        """Whether two accesses share an element; cached, since many have equal footprints."""
        one, two = self.touched(earlier), self.touched(later)
        question = (one, two, tuple(relations.items()))
        if question not in self.met:
            self.met[question] = meets(one, two, relations)
        return self.met[question]


def _either(one: _Pending, two: _Pending) -> _Pending:
    """Return the accesses that may be pending after either of two paths."""
    return {access: one.get(access, True) and two.get(access, True) for access in {**one, **two}}


def _exclusive(earlier: _Access, later: _Access) -> bool:
    """Whether two accesses exclude each other: they are in different branches of one When."""
    for one, two in itertools.product(earlier.site.guards, later.site.guards):
        if (one.path, one.bounds) != (two.path, two.bounds) or one.taken == two.taken:
            continue
        around = {path for path, _ in earlier.passes if one.path.startswith(f"{path}.")}
        if all(entry in later.passes for entry in earlier.passes if entry[0] in around):
            return True
    return False


def _relations(earlier: _Access, later: _Access, *, same_warp: bool) -> dict[str, np.ufunc]:
    """Return the relations between the symbols of both: the same warp, a later iteration."""
    relations: dict[str, np.ufunc] = {"warp": np.equal if same_warp else np.not_equal}
    loops = zip(earlier.passes, later.passes, earlier.site.loops, strict=False)
    for (path, turn), (other_path, other_turn), loop in loops:
        if path != other_path:
            break
        relations[loop.var] = np.equal if turn == other_turn else np.less
        if turn != other_turn:
            break
    return relations


def _hazard_message(earlier: _Access, later: _Access, same_warp: bool) -> str:
    elements = f"{later.verb} elements of {later.view.buffer.name!r} that"
    again = earlier.passes != later.passes
    if earlier.site.path == later.site.path and not again:
        return (
            f"{elements} the same step {earlier.verb} in another warp. Make the offset depend on "
            f"the warp, or let one warp do it, with When."
        )
    who = "" if same_warp else " in another warp"
    when, where = (" in an earlier iteration", ", such as at the end of the loop's body")
    return (
        f"{elements} step {earlier.site.path} {earlier.verb}{who}{when if again else ''}, with no "
        f"barrier between. Put Sync(Scope.{'WARP' if same_warp else 'BLOCK'}) between them"
        f"{where if again else ''}."
    )
