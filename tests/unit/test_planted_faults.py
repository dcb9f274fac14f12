"""Faults planted in correct programs: none of those that a run shows is called proven.

Whether a planted program is wrong is decided by running it, not by the checks; see `run_oracle`.
That the faults would find a proof that is wrong is shown by proofs that are.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import tcusim
from hand_made import MAKERS, chained, in_branches, through_shared, through_turns
from isl_oracle import compare
from run_oracle import fault_of
from tcusim.errors import TcusimError
from tcusim.program.checks import defined, races, verifier, writes
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Assign,
    Await,
    Bound,
    Extent,
    Formula,
    Index,
    Locate,
    Loop,
    Prefix,
    Program,
    Publish,
    Scope,
    Step,
    Store,
    Strided,
    Sync,
    View,
    When,
    views_of,
    walk,
)

# The number of planted faults; 10000 take some ten minutes. And the first seed.
COUNT: Final = int(os.environ.get("TCUSIM_PLANTED", "50"))
SEED: Final = int(os.environ.get("TCUSIM_PLANTED_SEED", "7"))
Change: TypeAlias = Callable[[Step], tuple[Step, ...]]
Rng: TypeAlias = np.random.Generator
Maker: TypeAlias = Callable[[Rng], Program]

RECIPES: Final[tuple[dict[str, Any], ...]] = (
    {"algorithm": "scan_k", "segment_size": 16, "masked": True},
    {"algorithm": "scan_tn", "segment_size": 48, "masked": True},
    {"algorithm": "reduction_kn", "segment_size": 48, "masked": True},
    {"algorithm": "reduction_kn", "segment_size": 48, "source": "f32", "ab": "bf16"},
    {"algorithm": "reduction_tn_block", "segment_size": 512, "warps": 2, "masked": True},
    {"algorithm": "scan_tn_block", "segment_size": 512, "warps": 2, "masked": True},
    {"algorithm": "reduction_t", "segment_size": 256},
    {"algorithm": "scan_panel", "segment_size": 32, "masked": True},
    {"algorithm": "scan_panel", "ab": "f32"},
    {"algorithm": "scan_ragged", "segment_size": 16, "masked": True},
    {"algorithm": "scan_ragged", "segment_size": 16, "ab": "f32"},
    {"algorithm": "reduction_ragged", "segment_size": 16, "masked": True},
    {"algorithm": "reduction_single_pass", "segment_size": 256, "groups": 1, "masked": True},
    {"algorithm": "reduction_single_pass", "columns": 1, "ab": "f32"},
    {"algorithm": "reduction_single_pass", "columns": 2, "groups": 1, "masked": True},
    {"algorithm": "scan_single_pass", "columns": 1, "ab": "f32"},
    {"algorithm": "scan_single_pass", "segment_size": 100_000, "masked": True},
)
# Of all bases, those made by hand; they take least time, and have every kind of step.
HAND_MADE: Final = 0.6


@functools.cache
def registered(number: int) -> Program:
    """Return one of tcusim's own programs, to plant faults in."""
    return tcusim.build(**RECIPES[number])


def base(rng: Rng) -> Program:
    """Return a correct program."""
    if rng.random() < HAND_MADE:
        return MAKERS[rng.integers(len(MAKERS))](rng)
    return registered(int(rng.integers(len(RECIPES))))


# --- Faults -------------------------------------------------------------------------------------


def bounded(view: View, bound: Bound) -> View:
    return dataclasses.replace(view, bounds=(*view.bounds, bound))


def some_bound(rng: Rng, program: Program, *, lanes: bool) -> Bound:
    """Return a condition up to some block, warp, lane, size or remainder, or from it on."""
    length = Index.symbol(program.scalars[0].name)
    symbols = [BLOCK, length]
    if program.warps > 1:
        symbols.append(WARP)
    if lanes:
        symbols += [ROW, COL]
    symbol = symbols[rng.integers(len(symbols))]
    per = program.blocks.per
    if rng.random() < 0.15:
        left = BLOCK * per + int(rng.integers(per))
        return Bound(left, length) if rng.random() < 0.5 else Bound(length - 1, left)
    border = int(rng.integers(1, 6)) if symbol != symbols[1] else int(rng.integers(1, 4 * per))
    up_to = Bound(symbol, Index.of(border))
    return up_to if rng.random() < 0.6 else Bound(Index.of(border - 1), symbol)


def moved_view(view: View, by: Index | int, rng: Rng) -> View:
    """Return a view elsewhere, most often with its bounds, so that it stays within the buffer."""
    bounds = view.bounds
    if rng.random() < 0.7:
        bounds = tuple(Bound(bound.lhs + by, bound.rhs) for bound in bounds)
    return dataclasses.replace(view, offset=view.offset + by, bounds=bounds)


def without(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Leave a step out, from somewhere on or everywhere."""
    if rng.random() < 0.3:
        return ()
    return (When((some_bound(rng, program, lanes=False),), (step,)),)


def shifted(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Move the writes of a step by a few elements, from somewhere on or everywhere."""
    moved = dataclasses.replace(step)
    match step:
        case Assign(dst=view) | Publish(dst=view) | Store(dst=view):
            by = int(rng.integers(-2, 3)) or 1
            more = BLOCK * by if rng.random() < 0.4 else Index.of(by)
            moved = dataclasses.replace(step, dst=moved_view(view, more, rng))
        case Await(src=view):
            moved = dataclasses.replace(step, src=dataclasses.replace(view, offset=view.offset + 1))
        case Locate(first=first):
            moved = dataclasses.replace(step, first=first + int(rng.integers(1, 9)))
    if rng.random() < 0.4:
        return (moved,)
    return (When((some_bound(rng, program, lanes=False),), (step,), (moved,)),)


def narrowed(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Bound the writes of a step, or remove a bound."""
    if isinstance(step, Assign):
        if step.dst.bounds and rng.random() < 0.3:
            loose = dataclasses.replace(step.dst, bounds=step.dst.bounds[1:])
            return (dataclasses.replace(step, dst=loose),)
        bound = some_bound(rng, program, lanes=True)
        return (dataclasses.replace(step, dst=bounded(step.dst, bound)),)
    return without(step, rng, program)


def twice(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Do a step once more, from somewhere on, a block later, or one turn less of a loop."""
    if isinstance(step, Loop) and (step.count.constant or 0) > 1:
        return (dataclasses.replace(step, count=Extent.of((step.count.constant or 0) - 1)),)
    if isinstance(step, Assign):
        most = int(rng.choice((4, 40, 300)))
        late = moved_view(step.dst, int(rng.integers(1, most)), rng)
        again: Step = dataclasses.replace(step, dst=late)
    else:
        again = step
    return (step, When((some_bound(rng, program, lanes=False),), (again,)))


def unsynced(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Leave a barrier out, let some warps or blocks pass it, or make it one of the warp."""
    if not isinstance(step, Sync):
        return without(step, rng, program)
    way = rng.random()
    if way < 0.3:
        return ()
    if way < 0.6:
        return (Sync(Scope.WARP if step.scope is Scope.BLOCK else Scope.BLOCK),)
    return (When((some_bound(rng, program, lanes=False),), (step,)),)


def mislaid(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Change a number of a step's reads or writes: an address, a stride or a bound."""
    names = [
        field.name
        for field in dataclasses.fields(step)
        if isinstance(getattr(step, field.name), View)
    ]
    if isinstance(step, Assign) and (step.parts or isinstance(step.value, Formula)):
        views = (*step.parts, *views_of(step.value), step.dst)
        old = views[int(rng.integers(len(views)))]
        new = misread(old, rng, program)

        def changed_in(value: Any) -> Any:
            match value:
                case Formula(terms=terms):
                    return dataclasses.replace(value, terms=tuple(map(changed_in, terms)))
                case tuple():
                    return tuple(map(changed_in, value))
            return new if value == old else value

        fields = ("dst", "parts", "value")
        replaced: Any = {field: changed_in(getattr(step, field)) for field in fields}
        return (dataclasses.replace(step, **replaced),)
    if not names:
        return unsynced(step, rng, program)
    name = names[rng.integers(len(names))]
    changed: Any = {name: misread(getattr(step, name), rng, program)}
    return (dataclasses.replace(step, **changed),)


def misread(view: View, rng: Rng, program: Program) -> View:
    """Return another rectangle."""
    by = int(rng.integers(-3, 4)) or 1
    match int(rng.integers(5)):
        case 0 if view.bounds:
            at = int(rng.integers(len(view.bounds)))
            late = Bound(view.bounds[at].lhs + by, view.bounds[at].rhs)
            bounds = (*view.bounds[:at], late, *view.bounds[at + 1 :])
            return dataclasses.replace(view, bounds=bounds if rng.random() < 0.6 else bounds[:at])
        case 1 if isinstance(view.col_axis, Strided):
            axis = Strided(view.cols, max(0, view.col_stride + by))
            return dataclasses.replace(view, col_axis=axis)
        case 2 if view.offset.terms:
            # Another step from one block, warp or turn to the next.
            name, factor = view.offset.terms[rng.integers(len(view.offset.terms))]
            change = (1, -1, -factor)[rng.integers(3)]
            return moved_view(view, Index.symbol(name) * change, rng)
        case 3:
            return moved_view(view, WARP * by, rng)
        case _:
            return moved_view(view, by, rng)


def unguarded(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Take one branch always, the other branch, or a branch of another condition."""
    if not isinstance(step, When):
        return narrowed(step, rng, program)
    way = rng.random()
    if way < 0.4:
        return step.body
    if way < 0.6:
        return step.otherwise
    bounds: tuple[Bound, ...] = (some_bound(rng, program, lanes=False),)
    if way < 0.8 and step.bounds:
        bounds = (Bound(step.bounds[0].lhs, step.bounds[0].rhs + 1), *step.bounds[1:])
    return (dataclasses.replace(step, bounds=bounds),)


def unpublished(step: Step, rng: Rng, program: Program) -> tuple[Step, ...]:
    """Publish or await another word, twice, late, or in some blocks alone."""
    if not isinstance(step, Publish | Await):
        return mislaid(step, rng, program)
    way = rng.random()
    if way < 0.2:
        return (step, step) if rng.random() < 0.3 else twice(step, rng, program)
    if way < 0.4:
        return without(step, rng, program)
    name = "dst" if isinstance(step, Publish) else "src"
    view: View = getattr(step, name)
    if way < 0.6 and view.bounds:
        view = dataclasses.replace(view, bounds=view.bounds[1:])
    elif way < 0.8:
        view = bounded(view, some_bound(rng, program, lanes=True))
    else:
        words = max((factor for n, factor in view.offset.terms if n == "block"), default=1)
        by = (words, -words, 1, -1)[rng.integers(4)]
        view = dataclasses.replace(view, offset=view.offset + by)
    changed: Any = {name: view}
    return (dataclasses.replace(step, **changed),)


FAULTS: Final = {
    one.__name__: one
    for one in (without, shifted, narrowed, twice, unsynced, mislaid, unguarded, unpublished)
}
# The steps that a kind of fault is for, if it is for some.
STEPS: Final[dict[str, tuple[type, ...]]] = {
    "unsynced": (Sync,),
    "unguarded": (When,),
    "unpublished": (Publish, Await),
    "mislaid": (Assign, Prefix, Store, Await, Publish),
}


def replaced(
    steps: tuple[Step, ...], path: str, change: Change, prefix: str = "", before: int = 0
) -> tuple[Step, ...]:
    """Return steps with a change of the one at a path."""
    result: list[Step] = []
    for number, step in enumerate(steps, start=1 + before):
        here = f"{prefix}{number}"
        if here == path:
            result += change(step)
        elif isinstance(step, Loop) and path.startswith(f"{here}."):
            result.append(
                dataclasses.replace(step, body=replaced(step.body, path, change, f"{here}."))
            )
        elif isinstance(step, When) and path.startswith(f"{here}."):
            body = replaced(step.body, path, change, f"{here}.")
            count = len(step.body)
            other = replaced(step.otherwise, path, change, f"{here}.", count)
            result.append(dataclasses.replace(step, body=body, otherwise=other))
        else:
            result.append(step)
    return tuple(result)


def with_smaller_grid(program: Program, rng: Rng) -> Program:
    """Return a program with too few blocks for some remainders, or of another scalar."""
    blocks = program.blocks
    index = blocks.index * 2 if rng.random() < 0.5 else blocks.index - 1
    per = blocks.per * 2 + 1 if index.terms != blocks.index.terms else blocks.per
    return dataclasses.replace(program, blocks=Extent(index, per))


def moved_step(program: Program, rng: Rng) -> Program:
    """Return a program with two neighbours at the same level exchanged."""
    groups = [program.steps]
    groups += [step.body for _, step in walk(program.steps) if isinstance(step, Loop | When)]
    group = [steps for steps in groups if len(steps) > 1][-1 if rng.random() < 0.5 else 0]
    at = int(rng.integers(len(group) - 1))
    swapped = (*group[:at], group[at + 1], group[at], *group[at + 2 :])

    def with_swapped(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        if steps is group:
            return swapped
        return tuple(
            dataclasses.replace(step, body=with_swapped(step.body))
            if isinstance(step, Loop | When)
            else step
            for step in steps
        )

    return dataclasses.replace(program, steps=with_swapped(program.steps))


def planted(rng: Rng, of: Maker = base) -> tuple[str, Program, Program]:
    """Return a program with a fault (or an intended one), its kind, and the correct program."""
    program = of(rng)
    way = rng.random()
    if way < 0.05:
        return "grid", with_smaller_grid(program, rng), program
    if way < 0.1 and any(
        len(steps) > 1
        for steps in (
            program.steps,
            *(s.body for _, s in walk(program.steps) if isinstance(s, Loop | When)),
        )
    ):
        return "moved", moved_step(program, rng), program
    name = list(FAULTS)[rng.integers(len(FAULTS))]
    kinds = (Assign, Store, Sync, Publish, Await, Locate, Loop, Prefix)
    every = list(walk(program.steps))
    paths = [path for path, step in every if isinstance(step, STEPS.get(name, kinds))]
    paths = paths or [path for path, step in every if isinstance(step, kinds)]
    # The last step writes the outputs.
    path = (
        paths[-1 - int(rng.integers(min(6, len(paths))))]
        if rng.random() < 0.5
        else (paths[rng.integers(len(paths))])
    )
    change = lambda step: FAULTS[name](step, rng, program)  # noqa: E731
    steps = replaced(program.steps, path, change)
    return name, dataclasses.replace(program, steps=steps), program


# --- Outcomes -----------------------------------------------------------------------------------


def found(
    count: int, seed: int, plant: Callable[[Rng], tuple[str, Program, Program]] = planted
) -> Iterator[tuple[str, str, Program, str | None]]:
    """Yield the outcome of planted programs: refused, not proven, proven, or proven yet wrong.

    For those not refused, the error that a run has shown.
    """
    rng = np.random.default_rng(seed)
    for _ in range(count):
        kind, program, original = plant(rng)
        try:
            result = verify(program)
        except TcusimError:
            yield kind, "refused", program, None
            continue
        if not result.proven:
            yield kind, "not proven", program, None
            continue
        fault = fault_of(program, original, rng)
        yield kind, "proven yet wrong" if fault else "proven", program, fault


def test_no_planted_fault_is_called_proven() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    wrong = []
    for kind, verdict, program, fault in found(COUNT, SEED):
        counts[kind, verdict] += 1
        if fault:
            wrong.append(f"{kind}: {fault}\n{tcusim.listing(program)}")
    if os.environ.get("TCUSIM_PLANTED"):
        print(*(f"{key}: {number}" for key, number in sorted(counts.items())), sep="\n")
    assert not wrong, "\n".join(wrong[:3])
    refused = sum(number for (_, verdict), number in counts.items() if verdict == "refused")
    assert refused > COUNT / 3
    assert {kind for kind, _ in counts} == {*FAULTS, "grid", "moved"}


def without_check(name: str) -> tuple[Any, ...]:
    """Return the checks but for one."""
    return tuple(one for one in verifier._CORRECT if one.__name__ != name)


def test_an_await_that_writes_an_element_in_two_lanes_is_refused() -> None:
    program = next(
        one
        for one in map(chained, map(np.random.default_rng, range(99)))
        if any(isinstance(step, Await) and step.dst.rows > 1 for step in one.steps)
    )
    wrong = [
        dataclasses.replace(
            step, dst=dataclasses.replace(step.dst, row_axis=Strided(step.dst.rows, 0))
        )
        if isinstance(step, Await)
        else step
        for step in program.steps
    ]
    with pytest.raises(TcusimError, match="copy_overlap"):
        verify(dataclasses.replace(program, steps=tuple(wrong)))


# Proofs that always hold, by property, and programs with a place for such faults.
WRONG_PROOFS: Final[dict[str, tuple[Any, str, Any, Maker]]] = {
    "one writer": (writes, "has_one_writer", lambda *_: True, in_branches),
    "all written": (writes, "all_written", lambda *_: True, in_branches),
    "published once": (writes, "_is_written_once", lambda *_: True, chained),
    "published before": (writes, "all_published", lambda *_: True, chained),
    "written before read": (defined, "_undefined", lambda *_: (), through_turns),
    "no races": (races._Hazards, "compare", lambda *_, **__: None, through_shared),
    "in bounds": (verifier, "_CORRECT", without_check("inside_buffer"), in_branches),
}


@pytest.mark.parametrize("proof", WRONG_PROOFS)
def test_a_proof_that_holds_of_everything_is_found_out(
    proof: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, value, maker = WRONG_PROOFS[proof]
    plant = functools.partial(planted, of=maker)
    verifier._verify_once.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, value)
            tried = next((n for n, one in enumerate(found(400, 1, plant), start=1) if one[3]), None)
    finally:
        verifier._verify_once.cache_clear()
    if os.environ.get("TCUSIM_PLANTED"):
        print(f"{proof}: program {tried} is proven and wrong")
    assert tried is not None


def test_the_programs_without_a_fault_are_proven_and_right() -> None:
    rng = np.random.default_rng(3)
    for program in (
        *map(registered, range(len(RECIPES))),
        *(maker(rng) for maker in MAKERS for _ in range(2)),
    ):
        assert verify(program).proven, str(verify(program))
        assert fault_of(program, program, rng, most=2) is None, program.name


# --- All sizes at once --------------------------------------------------------------------------

CLOSED: Final[tuple[dict[str, Any], ...]] = (
    {"algorithm": "scan_k", "masked": True},
    {"algorithm": "scan_kn", "masked": True, "warps": 2, "items_per_warp": 2},
    {"algorithm": "reduction_k", "masked": True},
    {"algorithm": "reduction_t", "masked": True, "warps": 3},
    {"algorithm": "scan_tn", "segment_size": 48, "masked": True},
    {"algorithm": "scan_panel", "ab": "f32", "segment_size": 100, "masked": True},
    {"algorithm": "reduction_kn", "segment_size": 100},
    {"algorithm": "reduction_tn_block", "segment_size": 512, "warps": 2, "masked": True},
    {"algorithm": "scan_tn_block", "segment_size": 512, "warps": 2, "masked": True},
    {"algorithm": "scan_panel", "ab": "f32", "reverse": True},
    {"algorithm": "scan_matmul", "masked": True},
)


def isl() -> Any:
    return pytest.importorskip("islpy", reason="isl decides it: pip install islpy")


@pytest.mark.parametrize("recipe", CLOSED, ids=lambda recipe: str(recipe["algorithm"]))
def test_what_is_proved_of_registered_programs_is_so(recipe: dict[str, Any]) -> None:
    compare(isl(), tcusim.build(**recipe), exact=True)


def test_what_is_proved_of_planted_faults_is_so() -> None:
    """Where isl says that elements are missing, or of two warps, nothing is proved."""
    rng = np.random.default_rng(5)
    known = []
    for number in range(100):
        _, program, _ = planted(rng, of=(in_branches, through_turns)[number % 2])
        known += compare(isl(), program, exact=False)
    assert known.count(False) > 20
    assert known.count(True) > 50
