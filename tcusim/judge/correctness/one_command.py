"""A simulator of a unit in another process, as a function for `probe_unit`: words of hexadecimal.

Each case is a line of the words a, b and c, and the answer to it a line with the word d. A word is
a tile as in files for `$readmemh`: rows first, element 0 in the lowest bits.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError
from tcusim.judge.correctness.vector_files import hex_words
from tcusim.machine.bits import decoded, encoded
from tcusim.machine.formats import Format, Values, format_of
from tcusim.machine.probing import Mma
from tcusim.machine.shapes import MmaShape, shape_of

# Places of a command's line that are given: files of words, and the number of cases.
_PLACES: Final = ("a", "b", "c", "d", "count")
_WORD: Final = re.compile(r"(?:0x)?([0-9a-f]+)", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"(?:0x)?[0-9a-fxz]+", re.IGNORECASE)
# Bytes that a program may print beside its answers, and seconds between looks at it.
_SPARE: Final = 2**16
_PAUSE: Final = 0.1
# Characters of an answer, or of the end of stderr, in a message.
_QUOTED: Final = 200


def one_command(
    command: str,
    tile: str | tuple[int, int, int] | MmaShape = "16x16x16",
    ab: str = "f16",
    acc: str = "f32",
    *,
    timeout: float = 60.0,
) -> Mma:
    """Return a function that multiplies many tiles by a command, d = a @ b + c.

    Parameters
    ----------
    command : str
        A line of words as in a shell, which starts one program. It reads a line of three words in
        hexadecimal for each case on standard input, a, b and c, and prints d. Where the line has
        ``{a}``, ``{b}`` or ``{c}``, these are files of a word a line instead; ``{d}`` is a file
        that the program writes its answers to, and ``{count}`` the number of cases.
    tile : str, tuple or MmaShape
        What one mma takes.
    ab, acc : str
        Element types.
    timeout : float
        Seconds that one run may take.

    Returns
    -------
    callable
        For ``probe_unit(..., batched=True)``. It raises InputError if the program cannot be
        started, fails, takes too long, or does not answer each case with one word.

    Raises
    ------
    InputError
        If the line is empty or has another place.
    """
    shape, left, right = shape_of(tile), format_of(ab), format_of(acc)
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"the command {command!r} is no line of words: {error}") from error
    if not words:
        raise InputError("the command is empty; name a program that multiplies a tile")
    for place in re.findall(r"\{(\w*)\}", command):
        if place not in _PLACES:
            known = ", ".join(f"{{{one}}}" for one in _PLACES)
            raise InputError(f"the command has no place {{{place}}}; its places: {known}")
    unit = _Command(tuple(words), (left, left, right), shape, timeout)
    return unit.tiles


class _Command:
    """A program that multiplies tiles."""

    def __init__(
        self, words: tuple[str, ...], types: tuple[Format, ...], shape: MmaShape, timeout: float
    ) -> None:
        self.words, self.types, self.shape, self.timeout = words, types, shape, timeout
        self.name = Path(words[0]).name

    def tiles(self, a: Values, b: Values, c: Values) -> Values:
        """Return the products of tiles, a (W, m, k), b (W, k, n), c (W, m, n) -> (W, m, n)."""
        columns = [
            hex_words(encoded(one, fmt).reshape(len(one), -1), fmt.bits)
            for one, fmt in zip((a, b, c), self.types, strict=True)
        ]
        acc = self.types[2]
        answers = self._answers(columns)
        bits = _elements(answers, self.shape.m * self.shape.n, acc)
        return decoded(bits.reshape(-1, self.shape.m, self.shape.n), acc)

    def _answers(self, columns: Sequence[Sequence[str]]) -> list[str]:
        """Run the program on words; return its words."""
        count = len(columns[0])
        with tempfile.TemporaryDirectory() as folder:
            given = {"count": str(count), "d": str(Path(folder, "d.hex"))}
            for name, column in zip("abc", columns, strict=True):
                path = Path(folder, f"{name}.hex")
                path.write_text("\n".join(column) + "\n")
                given[name] = str(path)
            words = [_filled(word, given) for word in self.words]
            lines = "".join(f"{' '.join(each)}\n" for each in zip(*columns, strict=True))
            printed = self._ran(words, lines)
            if any("{d}" in word for word in self.words):
                try:
                    printed = Path(given["d"]).read_text()
                except (OSError, UnicodeDecodeError):
                    raise InputError(f"{self.name} wrote no answers to the file {{d}}") from None
        return self._words(printed, count)

    def _ran(self, words: Sequence[str], lines: str) -> str:
        """Run the program; return its standard output."""
        with tempfile.TemporaryFile() as given:
            given.write(lines.encode())
            given.seek(0)
            try:
                process = subprocess.Popen(
                    words,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise InputError(f"the command {words[0]!r} cannot be started: {reason}") from error
        cases = lines.count("\n")
        printed, said = _Reader(process.stdout, _SPARE + 16 * len(lines)), _Reader(process.stderr)
        deadline = time.monotonic() + self.timeout
        try:
            while printed.is_alive() and not printed.full and time.monotonic() < deadline:
                printed.join(min(_PAUSE, self.timeout))
            if printed.full:
                raise InputError(
                    f"{self.name} printed more than {printed.limit:,} bytes for {cases} cases; it "
                    f"must print one word for each line that it reads, and end with its input"
                )
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise InputError(
                f"{self.name} took more than {self.timeout:g} seconds for {cases} cases; it must "
                f"end at the end of its input. Give it more time, or use another tile"
            ) from None
        finally:
            _end(process, printed.is_alive() or said.is_alive())
            printed.join()
            said.join()
        if code := process.returncode:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            last = said.text().strip().rpartition("\n")[2]
            told = last[:_QUOTED] or "it said nothing on stderr"
            raise InputError(f"{self.name} failed with {how}: {told}")
        return printed.text()

    def _words(self, printed: str, count: int) -> list[str]:
        """Return the words of an answer; other lines are a simulator's own."""
        digits = -(-self.shape.m * self.shape.n * self.types[2].bits // 4)
        words, others = [], []
        for line in printed.splitlines():
            text = line.strip()
            if (match := _WORD.fullmatch(text)) is not None:
                words.append(match[1])
            elif _UNKNOWN.fullmatch(text):
                raise InputError(
                    f"{self.name} answered case {len(words)} with unknown bits: {text[:_QUOTED]}"
                )
            elif text:
                others.append(text)
        if len(words) != count:
            first = f"; it also said {others[0][:_QUOTED]!r}" if others else ""
            raise InputError(
                f"{self.name} answered {len(words)} of {count} cases{first}. It must print one "
                f"line with a word of {digits} hexadecimal digits for each line that it reads"
            )
        for number, word in enumerate(words):
            if len(word.lstrip("0")) > digits:
                raise InputError(
                    f"{self.name} answered case {number} with {word[:_QUOTED]}, which is more than "
                    f"the {digits} hexadecimal digits of d"
                )
        return words


def _filled(word: str, given: dict[str, str]) -> str:
    """Return a word of a line with files and numbers in its places."""
    return re.sub(r"\{(\w+)\}", lambda match: given[match[1]], word)


class _Reader(threading.Thread):
    """Reads what a program prints, up to a limit, or the last of it without one."""

    def __init__(self, stream: IO[bytes] | None, limit: int = 0) -> None:
        super().__init__(daemon=True)
        assert stream is not None, "the program's output is a pipe"
        self.stream, self.limit, self.full = stream, limit, False
        self.content = bytearray()
        self.start()

    def run(self) -> None:
        with self.stream:
            while piece := self.stream.read1(_SPARE):  # type: ignore[attr-defined]
                self.content += piece
                self.full = 0 < self.limit < len(self.content)
                if self.full:
                    return
                if not self.limit:
                    del self.content[:-_SPARE]

    def text(self) -> str:
        """Return it as text."""
        return self.content.decode(errors="replace")


def _end(process: subprocess.Popen[bytes], is_read: bool) -> None:
    """End a program that is still running, and those that it started; is_read: its output."""
    if process.poll() is not None and not is_read:
        return
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _elements(words: Sequence[str], count: int, fmt: Format) -> NDArray[Any]:
    """Return the elements of words, (W, count); element 0 is in the lowest bits."""
    mask = 2**fmt.bits - 1
    rows = [
        [number >> fmt.bits * i & mask for i in range(count)]
        for number in (int(word, 16) for word in words)
    ]
    return np.array(rows, f"u{fmt.itemsize}").reshape(-1, count)
