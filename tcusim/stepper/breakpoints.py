"""Breakpoints in a program: at a kind of step, a path, a changed value, a new NaN.

A breakpoint is a test of one frame, which a line of text describes. `FORMS` lists its forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np

from tcusim.errors import InputError, nearest
from tcusim.program.grammar import Loop, Step, When
from tcusim.program.walk import Mask
from tcusim.stepper.frames import Frame, Tile

# Examples of each form, with their meanings.
FORMS: Final = (
    ("mma", "a kind of step"),
    ("5.2", "at a path, or below it"),
    ("#56", "the 56th that runs"),
    ("5.2 i=3", "in one iteration"),
    ("nan", "a NaN appears"),
    ("nan V", "in fragment or buffer V"),
    ("value", "any value changes"),
    ("V", "a value of V changes"),
    ("V[3,5]", "at row 3, column 5"),
    ("out[17]", "element 17 of it"),
)

_PATH: Final = re.compile(r"\d+(\.\d+)*")
_NUMBER: Final = re.compile(r"(?:#|step)\s*(\d+)", re.IGNORECASE)
_LOOP: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\d+)")
_VALUE: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)(\[(?P<places>[^\]]*)\])?")
# Blanks and commas separate words, but not inside brackets.
_WORD: Final = re.compile(r"(?:\[[^\]]*\]|[^\s,\[])+")
_FOR: Final = re.compile(r"for (\w+) ")

# The test of a written tile.
_Asked: TypeAlias = Literal["", "nan", "value"]


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
    """A test of a frame: all that is given has to hold.

    text: its source. number: the index of the step. path: of the step, or of one around it. kind:
    of the step. loops: variables and their values. asked: whether a value of a written tile, of
    the tile with this name or of this element of it, changes or becomes NaN.
    """

    text: str
    number: int | None = None
    path: str = ""
    kind: str = ""
    loops: tuple[tuple[str, int], ...] = ()
    asked: _Asked = ""
    name: str = ""
    element: tuple[int, ...] = ()

    def __call__(self, frame: Frame) -> bool:
        """Return whether to stop after this step."""
        return (
            self.number in (None, frame.number)
            and (not self.path or f"{frame.path}.".startswith(f"{self.path}."))
            and self.kind in ("", frame.kind)
            and all(frame.loops.get(name) == value for name, value in self.loops)
            and (not self.asked or any(map(self._is_met, frame.writes)))
        )

    def __str__(self) -> str:
        return self.text

    def _is_met(self, tile: Tile) -> bool:
        """Return whether a written tile has such an element; not if a barrier shows it later."""
        if tile.note or self.name not in ("", tile.buffer or tile.label):
            return False
        mask = tile.changed if self.asked == "value" else _appeared(tile)
        if len(self.element) == 2:
            # An element past the end selects nothing.
            row, column = self.element
            mask = mask[row : row + 1, column : column + 1]
        elif self.element and tile.places is not None:
            mask = mask & (tile.places == self.element[0])
        return bool(np.any(mask))


def _appeared(tile: Tile) -> Mask:
    """Return a mask of NaNs that are new, or in a tile that held nothing else."""
    before = tile.unknown_before
    return tile.unknown & (~before | before.all())


def breakpoint_of(text: str, names: Names) -> Breakpoint:
    """Return the breakpoint that a text describes.

    - ``mma``: a kind of step; `kinds` has all.
    - ``5.2``: the step at this path, or any below it; ``5.2 i=3``: in this iteration. Loops may
      follow every other form, too.
    - ``#56``: the step with this index.
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
    number = _NUMBER.fullmatch(text.strip())
    if number is not None:
        return Breakpoint(f"#{int(number[1])}", number=int(number[1]))
    head, *rest = words
    loops = tuple(
        (found["name"], int(found["value"])) for found in map(_LOOP.fullmatch, rest) if found
    )
    others = [word for word in rest if _LOOP.fullmatch(word) is None]
    path = kind = name = ""
    asked: _Asked = ""
    element: tuple[int, ...] = ()
    lowered = head.lower()
    if _PATH.fullmatch(head):
        path = _known_path(head, names)
    elif lowered in kinds():
        kind = lowered
    elif lowered == "nan" or lowered == "value":
        asked = lowered
        if others:
            name, element = _named(others.pop(0), names)
    else:
        asked, (name, element) = "value", _named(head, names)
    if others:
        raise InputError(
            f"breakpoint {text!r}: {others[0]!r} is not understood after {head!r}; only loops such "
            "as i=3 may follow"
        )
    for variable, _ in loops:
        _require_loop(variable, path, names)
    source = " ".join(words)
    return Breakpoint(source, None, path, kind, loops, asked, name, element)


def _known_path(path: str, names: Names) -> str:
    """Return a path. InputError if the program has no step there."""
    if path not in names.lines:
        paths = list(names.lines)
        shown = ", ".join(paths if len(paths) <= 40 else [*paths[:38], "...", paths[-1]])
        hint = f"; the step that runs as number {path} is #{path}" if path.isdecimal() else ""
        raise InputError(f"{names.program} has no step {path!r}; its steps: {shown}{hint}")
    return path


def loops_around(path: str, lines: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables of a step's loops, its own included, outermost first."""
    parts = path.split(".")
    above = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    found = (_FOR.match(lines.get(each, "")) for each in above)
    return tuple(match[1] for match in found if match is not None)


def _require_loop(name: str, path: str, names: Names) -> None:
    """Raise InputError if no loop at a path, or below it, has this variable."""
    paths = [each for each in names.lines if not path or f"{each}.".startswith(f"{path}.")]
    known = {variable for each in paths for variable in loops_around(each, names.lines)}
    if name not in known:
        where = f"at step {path}" if path else f"in {names.program}"
        there = f"the loops there are over {_listed(known)}" if known else "there is none at all"
        raise InputError(f"there is no loop over {name!r} {where}; {there}")


def _named(text: str, names: Names) -> tuple[str, tuple[int, ...]]:
    """Return the fragment or buffer that a text names, and the index of an element."""
    match = _VALUE.fullmatch(text)
    if match is None or match["name"] not in names.fragments | names.memory:
        word = text.partition("[")[0]
        near = nearest(word.lower(), sorted(_known(names)))
        hint = f" Did you mean {near!r}?" if near else ""
        raise InputError(f"unknown breakpoint {word!r}.{hint} {_choice(names)}")
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


def _known(names: Names) -> Iterator[str]:
    yield from (*kinds(), "nan", "value", *names.fragments, *names.memory)


def _choice(names: Names) -> str:
    return (
        f"It is a kind of step ({', '.join(kinds())}); a path such as "
        f"{next(iter(names.lines), '1')}, or with an iteration, 5.2 i=3; nan; value; or a name "
        f"whose values change ({_listed(names.fragments | names.memory)})"
    )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
