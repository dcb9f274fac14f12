"""Breakpoints in a program: at a kind of step, a path, a changed value, a new NaN.

A breakpoint is a test of one frame, parsed from a line of text by the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, get_args

import numpy as np

from tcusim.errors import InputError, unknown_name
from tcusim.program.grammar import Loop, Step, When
from tcusim.program.walk import Mask
from tcusim.stepper.frames import Frame, Tile

__all__ = ["Breakpoint", "Names", "breakpoint_of", "kinds", "loops_around", "require_path"]

Test: TypeAlias = Callable[[Frame], bool]
# The elements of a written tile that a breakpoint tests.
_Asked: TypeAlias = Callable[[Tile], Mask]

_PATH: Final = re.compile(r"\d+(\.\d+)*")
_LOOP: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\d+)")
_VALUE: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)(\[(?P<places>[^\]]*)\])?")
# Blanks and commas separate words, but not inside brackets.
_WORD: Final = re.compile(r"(?:\[[^\]]*\]|[^\s,\[])+")
_FOR: Final = re.compile(r"for (\w+) ")


def kinds() -> tuple[str, ...]:
    """Return the kinds of steps that run: mma, load and the others that have frames."""
    leaves = [step for step in get_args(Step) if step not in (Loop, When)]
    return tuple(step.__name__.lower() for step in leaves)


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a breakpoint may use.

    program: the program's name. lines: the line of each step, by its path. fragments: the names of
    tiles in registers. memory: the names of buffers.
    """

    program: str
    lines: Mapping[str, str]
    fragments: frozenset[str]
    memory: frozenset[str]


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A test of a frame, and its source text."""

    text: str
    test: Test

    def __call__(self, frame: Frame) -> bool:
        """Return whether to stop after this step."""
        return self.test(frame)

    def __str__(self) -> str:
        return self.text

    @property
    def path(self) -> str:
        """The path that it names, or ""."""
        found = _PATH.match(self.text)
        return "" if found is None else found[0]


def breakpoint_of(text: str, names: Names) -> Breakpoint:
    """Return the breakpoint that a text describes.

    - ``mma``: a kind of step; `kinds` has all.
    - ``5.2``: the step at this path, or any below it; ``5.2 i=3``: in this iteration. Loops may
    follow every other form, too.
    - ``nan``: a NaN replaces another value, or is written to a tile of nothing but NaN, such as
    unwritten memory (for integers, the fill value of unwritten memory). ``nan V``: into this
    fragment or buffer.
    - ``value``: a value changes. ``V``, ``V[3,5]``, ``out[17]``: one of this fragment or buffer;
      ``value V`` is the same, for names that are also kinds.

    Raises
    ------
    InputError
        If it names nothing that the program has.
    """
    words = _WORD.findall(text)
    if not words:
        raise InputError(f"the breakpoint is empty. {_choice(names)}")
    head, *rest = words
    loops = [found for found in map(_LOOP.fullmatch, rest) if found is not None]
    others = [word for word in rest if _LOOP.fullmatch(word) is None]
    tests: list[Test] = []
    if _PATH.fullmatch(head):
        require_path(head, names)
        tests.append(_at(head))
    elif head.lower() in kinds():
        tests.append(_of_kind(head.lower()))
    elif head.lower() in ("nan", "value"):
        asked = _appeared if head.lower() == "nan" else _changed
        tests.append(_written(asked, others[0] if others else "", names))
        others = others[1:]
    else:
        tests.append(_written(_changed, head, names))
    if others:
        raise InputError(
            f"breakpoint {text!r}: {others[0]!r} is not understood after {head!r}; only loops such "
            "as i=3 may follow"
        )
    for found in loops:
        tests.append(_in_iteration(found["name"], int(found["value"]), head, names))
    return Breakpoint(" ".join(words), lambda frame: all(test(frame) for test in tests))


def require_path(path: str, names: Names) -> None:
    """Raise InputError if the program has no step at this path."""
    if path not in names.lines:
        paths = list(names.lines)
        shown = ", ".join(paths if len(paths) <= 40 else [*paths[:38], "...", paths[-1]])
        raise InputError(f"{names.program} has no step {path!r}; its steps: {shown}")


def loops_around(path: str, lines: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables of a step's loops, its own included, outermost first."""
    parts = path.split(".")
    above = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    found = (_FOR.match(lines.get(each, "")) for each in above)
    return tuple(match[1] for match in found if match is not None)


def _at(path: str) -> Test:
    return lambda frame: f"{frame.path}.".startswith(f"{path}.")


def _of_kind(kind: str) -> Test:
    return lambda frame: frame.kind == kind


def _in_iteration(name: str, value: int, head: str, names: Names) -> Test:
    """Return a test of a loop variable. head: the path before it, if any."""
    is_path = head in names.lines
    paths = [path for path in names.lines if not is_path or f"{path}.".startswith(f"{head}.")]
    known = {variable for path in paths for variable in loops_around(path, names.lines)}
    if name not in known:
        where = f"at step {head}" if is_path else f"in {names.program}"
        there = f"the loops there are over {_listed(known)}" if known else "there is none at all"
        raise InputError(f"there is no loop over {name!r} {where}; {there}")
    return lambda frame: frame.loops.get(name) == value


# --- Values -----------------------------------------------------------------------------------


def _changed(tile: Tile) -> Mask:
    return tile.changed


def _appeared(tile: Tile) -> Mask:
    """Return a mask of NaNs that are new, or in a tile that held nothing else."""
    before = tile.unknown_before
    return tile.unknown & (~before | before.all())


def _written(asked: _Asked, text: str, names: Names) -> Test:
    """Return a test of a step's writes: of any element, or of the named ones."""
    if not text:
        return lambda frame: any(_there(tile) and asked(tile).any() for tile in frame.writes)
    name, places = _named(text, names)

    def holds(tile: Tile) -> bool:
        if not _there(tile) or name != (tile.buffer or tile.label):
            return False
        mask = asked(tile)
        if len(places) == 2:
            row, column = places
            inside = row < mask.shape[0] and column < mask.shape[1]
            return inside and bool(mask[row, column])
        if places and tile.places is not None:
            mask = mask & (tile.places == places[0])
        return bool(np.any(mask))

    return lambda frame: any(holds(tile) for tile in frame.writes)


def _there(tile: Tile) -> bool:
    """Return whether a written tile is visible, rather than pending until a barrier."""
    return not tile.note


def _named(text: str, names: Names) -> tuple[str, tuple[int, ...]]:
    """Return the fragment or buffer that a text names, and the index of an element."""
    match = _VALUE.fullmatch(text)
    if match is None or match["name"] not in names.fragments | names.memory:
        raise _unknown(text.partition("[")[0], names)
    name, inside = match["name"], match["places"]
    if inside is None:
        return name, ()
    words = [word.strip() for word in inside.split(",")]
    in_memory = name in names.memory
    if len(words) != 2 - in_memory or not all(word.isdecimal() for word in words):
        what = "memory: give the number of an element" if in_memory else "a tile: give row, column"
        example = f"{name}[17]" if in_memory else f"{name}[3,5]"
        raise InputError(f"breakpoint {text!r}: {name} is {what}, such as {example}")
    return name, tuple(map(int, words))


def _unknown(word: str, names: Names) -> InputError:
    valid = (*kinds(), "nan", "value", *names.fragments, *names.memory)
    error = unknown_name("breakpoint", word, valid)
    hint = re.search(r"Did you mean '[^']*'\?", str(error))
    return InputError(
        f"unknown breakpoint {word!r}.{f' {hint[0]}' if hint else ''} {_choice(names)}"
    )


def _choice(names: Names) -> str:
    return (
        f"It is a kind of step ({', '.join(kinds())}); a path such as "
        f"{next(iter(names.lines), '1')}, or with an iteration, 5.2 i=3; nan; value; or a name "
        f"whose values change ({_listed(names.fragments | names.memory)})"
    )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
