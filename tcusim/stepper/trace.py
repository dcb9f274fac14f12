"""`tcusim.trace`: step-by-step traces of chosen warps of a program, stored, saved and loaded."""

from __future__ import annotations

import functools
import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tcusim.backends import Backend, native_arch, tapping_backend
from tcusim.errors import InputError, Unsupported, require_flags, require_int, require_names
from tcusim.machine import Values, arch_of
from tcusim.program.grammar import Accesses, Const, Program, accesses, walk
from tcusim.program.printer import line, listing
from tcusim.program.walk import Ints
from tcusim.simulate.backend import NUMPY
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import Event, interpret
from tcusim.stepper.breakpoints import Names, breakpoint_of
from tcusim.stepper.comparison import Comparison, Difference, differences_of
from tcusim.stepper.frames import Frame, chosen_warps, no_such
from tcusim.stepper.page import CELLS, MOST_CELLS, Side, frame_of, page_of
from tcusim.stepper.replay import Replay
from tcusim.stepper.store import SIMULATOR, About, FrameStore, PackedFrame
from tcusim.stepper.trace_file import MOST_BYTES, Rest, dumped, loaded
from tcusim.stepper.watcher import WarpWatcher, unwritten_outputs

# The default architecture, if neither the caller nor a GPU gives one.
_ARCH: Final = "hopper"
# Default maximum number of steps to keep.
_LIMIT: Final = 10_000
# Maximum bytes of values, for any limit.
_MOST_BYTES: Final = 2**28
# Bytes of a file to read at a time.
_PIECE: Final = 2**20


@dataclass(frozen=True, repr=False)
class Trace:
    """A trace of chosen warps: a sequence of frames, one for each step of each warp.

    Iterate over it, or index it: ``trace[3]``. `tcusim.trace` makes it, `save` writes it to a file,
    and `Trace.load` reads it. A notebook shows it as a page to step through.

    Attributes
    ----------
    about : About
        The program: its name, listing, types and buffers; the architecture, and the runner.
    warps : tuple of int
        The traced warps, by their indices in the grid.
    first, last : int
        The window: the first and the last step to keep of each warp; `last` is None without an end.
    ran : dict of int to int
        Number of steps that each warp ran, kept or not.
    counts : Counts
        Counts of all warps of the grid over the whole run: mma steps, additions, bytes. For a run
        on another backend, only the stored steps of the traced warps.
    """

    about: About
    warps: tuple[int, ...]
    first: int
    last: int | None
    ran: Mapping[int, int]
    counts: Counts
    store: FrameStore = field(repr=False)

    def __len__(self) -> int:
        return len(self.store.frames)

    def __getitem__(self, index: int) -> Frame:
        """Return a stored step, in execution order."""
        return self.store.frame(operator.index(index), self.about)

    def __iter__(self) -> Iterator[Frame]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        warps = f"warp{'s' * (len(self.warps) != 1)} {', '.join(map(str, self.warps[:8]))}"
        more = ", ..." * (len(self.warps) > 8)
        about = self.about
        by = f", by {about.place}" * (about.place != SIMULATOR)
        return f"<Trace of {about.name} on {about.arch}{by}: {len(self)} steps, {warps}{more}>"

    def first_difference(self, other: Trace) -> Difference | None:
        """Return the first difference to another trace of the program, or None.

        Steps in only one of the traces are ignored.

        Raises
        ------
        InputError
            If the other trace is of another program, or has no step in common.

        Examples
        --------
        >>> import numpy as np, tcusim
        >>> program = tcusim.build("scan_256n")
        >>> wide = {"in": (1.001 * np.exp2(np.arange(2048) * 7 % 23 - 8)).astype(np.float16)}
        >>> hopper, volta = (tcusim.trace(program, wide, arch=arch) for arch in ("hopper", "volta"))
        >>> found = hopper.first_difference(volta)
        >>> found.frame.path, found.frame.line, found.row, found.col, found.values
        ('5.11', 'R ← X·J + AU', 1, 8, (32800.5, 32800.49609375))
        """
        return next(differences_of(self._side, other._side), None)

    def compare(self, other: Trace) -> Comparison:
        """Return this trace and another of the program side by side, with all differences.

        It prints itself, and a notebook shows it as a page. The errors are `first_difference`'s.
        """
        both = Comparison(self._side, other._side)
        # Errors are raised here, not by a notebook that shows it.
        _ = both.differences
        return both

    def of(self, warp: int) -> tuple[Frame, ...]:
        """Return the steps of one warp. InputError if it was not traced."""
        self.require_warp(warp)
        frames = enumerate(self.store.frames)
        return tuple(self[index] for index, one in frames if one.warp == warp)

    def require_warp(self, warp: int) -> None:
        """Raise InputError if this warp was not traced."""
        if warp not in self.warps:
            raise no_such(self.about.name, "warp", warp, "trace", self.warps)

    def find(
        self,
        where: str | Callable[[Frame], bool],
        start: int | None = None,
        *,
        warp: int | None = None,
        backwards: bool = False,
    ) -> int | None:
        """Return the index of the first step that passes a test, or None.

        Parameters
        ----------
        where : str or callable
            A breakpoint: a kind of step, ``"mma"``; a path, ``"5.2"``, or in one iteration,
            ``"5.2 i=3"``; ``"nan"``, a new NaN; ``"value"``, any changed value; ``"V"``,
            ``"V[3,5]"`` or ``"out[17]"``, a changed value of this fragment or buffer. Or a function
            of a `Frame`.
        start : int, optional
            The index of the first step to test. Default: the first stored step, or the last.
        warp : int, optional
            Test only this warp's steps.
        backwards : bool
            Search towards the beginning.

        Raises
        ------
        InputError
            If the text names nothing in the program, or the warp was not traced.

        Examples
        --------
        >>> import numpy as np, tcusim
        >>> program = tcusim.build("scan_256n")
        >>> trace = tcusim.trace(program, {"in": np.ones(1024, np.float16)})
        >>> found = trace.find("5.2 i=3")
        >>> trace[found].line, trace[found].number
        ('AU ← A·U + S', 57)
        >>> trace.find("nan") is None
        True
        """
        require_flags(backwards=backwards)
        if warp is not None:
            self.require_warp(warp)
        test = breakpoint_of(where, self.names) if isinstance(where, str) else where
        if start is None:
            start = len(self) - 1 if backwards else 0
        forwards = range(max(start, 0), len(self))
        for index in range(min(start, len(self) - 1), -1, -1) if backwards else forwards:
            if warp in (None, self.store.frames[index].warp) and test(self[index]):
                return index
        return None

    @property
    def names(self) -> Names:
        """The names that a breakpoint may use: paths, and the tiles of the stored steps."""
        tiles = self.store.tiles
        return Names(
            self.about.name,
            self.about.lines,
            frozenset(tile.label for tile in tiles if tile.places is None),
            frozenset(tile.label.partition("[")[0] for tile in tiles if tile.places is not None),
        )

    @property
    def left_out(self) -> str:
        """A sentence about the steps of these warps that were not kept; "" if all were."""
        ran, kept = sum(self.ran.values()), len(self)
        if ran == kept:
            return ""
        window = f"steps {self.first} to {self.last}" if self.last else f"steps from {self.first}"
        inside = sum(
            max(0, min(count, self.last or count) - self.first + 1) for count in self.ran.values()
        )
        text = f"{kept} of {ran} steps are kept"
        if inside < ran:
            text += f": the window is {window}"
        if kept < inside:
            of_them = f"; of {inside} in it" if inside < ran else ":"
            text += f"{of_them} the last {inside - kept} exceed the limit"
        return f"{text}. Choose others with first= and last=, or fewer warps, or a larger limit."

    def to_html(self, *, cells: int = CELLS) -> str:
        """Return a self-contained page to step through, without other files or a network.

        It has the listing, the tiles of each step as coloured grids, the summation of each output
        of a product, memory, and barriers.

        Parameters
        ----------
        cells : int
            Maximum number of outputs to explain, from the first; equal sums count once.
        """
        require_int("cells", cells, 0, MOST_CELLS)
        return page_of([self._side], cells)

    @property
    def _side(self) -> Side:
        return Side(self.about, list(self), self.left_out, arch_of(self.about.arch).title)

    def _repr_html_(self) -> str:
        return frame_of(self.to_html())

    def save(self, path: str | Path) -> None:
        """Write the trace to one compact file, readable by this version and later ones.

        It is JSON, compressed by gzip, with arrays as base64 of their bytes.
        """
        Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of the file that `save` writes."""
        ran = tuple(self.ran[warp] for warp in self.warps)
        rest = Rest(self.warps, self.first, self.last, ran, astuple(self.counts))
        return dumped(self.about, rest, self.store)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a trace that `save` wrote.

        Raises
        ------
        InputError
            If the file is no trace, is damaged, or was written by a newer version.
        """
        try:
            with Path(path).open("rb") as file:
                pieces = iter(functools.partial(file.read, _PIECE), b"")
                content = b"".join(itertools.islice(pieces, MOST_BYTES // _PIECE + 1))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        if len(content) > MOST_BYTES:
            raise InputError(f"{path} has more than {MOST_BYTES} bytes, as no trace of tcusim has")
        about, rest, store = loaded(content, str(path))
        ran = dict(zip(rest.warps, rest.ran, strict=True))
        counts = Counts(*rest.counts)
        return Trace(about, rest.warps, rest.first, rest.last, ran, counts, store)


def trace(
    program: Program,
    inputs: Mapping[str, Any],
    *,
    arch: str | None = None,
    backend: str | Backend = "numpy",
    warps: int | Iterable[int] | None = None,
    blocks: int | Iterable[int] = (),
    first: int = 1,
    last: int | None = None,
    limit: int = _LIMIT,
) -> Trace:
    """Run a program, and trace every step of some warps.

    Parameters
    ----------
    program : Program
        It is verified first.
    inputs : mapping of str to array
        One flat array for each of the program's inputs, of the input's element type.
    arch : str, optional
        The architecture of the arithmetic; by default the backend's own: the GPU's, or "hopper".
    backend : str or Backend
        The runner: the simulator, as `interpret` does, or a backend that compiles a special, slower
        kernel to record the steps.
    warps : int or iterable of int, optional
        Warps to trace, by their indices in the grid. Default: warp 0, or none if `blocks` is given.
    blocks : int or iterable of int
        Blocks to trace with all of their warps.
    first, last : int
        The window: the first and the last step of each warp to keep, counted from 1.
    limit : int
        Maximum number of steps to keep, over all warps. Later steps are counted, and
        `Trace.left_out` reports them. Values never take more than 256 MiB.

    Returns
    -------
    Trace
        The steps, each with its path, loop variables, operands, result and changes.

    Raises
    ------
    InputError
        If the inputs do not fit the program, or the grid has no such warp or block.
    VerifyError
        If the program breaks a rule.
    Unsupported, UnknownName, BackendUnavailable
        If the backend does not record steps, there is none of that name, or it cannot run here.
    AgreementError
        If the backend's kernel runs other steps than the program has.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> program = tcusim.build("reduction_16")
    >>> trace = tcusim.trace(program, {"in": np.ones(256, np.float16)})
    >>> trace
    <Trace of reduction_16 on hopper: 7 steps, warp 0>
    >>> product = next(frame for frame in trace if frame.kind == "mma")
    >>> product.line, product.writes[0].values[0, :3].tolist(), product.writes[0].changed.sum()
    ('V ← P·A + V', [16.0, 16.0, 16.0], np.int64(16))
    """
    require_names(arch=arch)
    some = _several("blocks", blocks)
    chosen = chosen_warps(
        program,
        inputs,
        _several("warps", warps) if warps is not None else () if some else (0,),
        some,
    )
    _require_window(first, last, limit)
    recorder = Recorder(chosen, first, last, limit)
    ran: Mapping[int, int]
    if backend is NUMPY or (isinstance(backend, str) and backend == NUMPY.name):
        arch, place = arch or _ARCH, SIMULATOR
        for event in interpret(program, inputs, arch=arch):
            recorder(event)
        ran = recorder.ran
    else:
        tapping = tapping_backend(backend)
        arch, place = arch or _native(tapping), tapping.place()
        most = min(first - 1 + limit, last or sys.maxsize)
        tapped = tapping.tap(program, inputs, chosen, most=most, arch=arch)
        for event in Replay(program, inputs, arch, tapped, place).events():
            recorder(event)
        ran = tapped.ran
    about = about_of(program, arch, place)
    steps = {warp: ran.get(warp, 0) for warp in chosen}
    return Trace(about, chosen, first, last, steps, recorder.counts, recorder.store)


def _native(backend: Backend) -> str:
    """Return the native architecture of a backend."""
    if not hasattr(backend, "native_arch"):
        return _ARCH
    arch = native_arch(backend)
    if arch is None:
        raise Unsupported(
            f"{backend.name}: no architecture of tcusim's computes as this GPU does, so that a "
            f"trace cannot explain its sums; see tcusim.register_arch"
        )
    return arch


def _several(name: str, numbers: int | Iterable[int]) -> tuple[int, ...]:
    if isinstance(numbers, Iterable) and not isinstance(numbers, str):
        return tuple(numbers)
    if isinstance(numbers, int | np.integer):
        return (int(numbers),)
    raise InputError(f"{name} must be a number or several, such as 0 or (0, 3); got {numbers!r}")


def _require_window(first: int, last: int | None, limit: int) -> None:
    given = {"first": first, "limit": limit} | ({} if last is None else {"last": last})
    for name, number in given.items():
        require_int(name, number, 1)
    if last is not None and last < first:
        raise InputError(f"last={last} is before first={first}; no step is between them")


def about_of(program: Program, arch: str, place: str = SIMULATOR) -> About:
    """Return a trace's description of its program."""
    steps = list(walk(program.steps))
    constant = {step.dst.name for _, step in steps if isinstance(step, Const)}
    others = {
        frag.name
        for _, step in steps
        if not isinstance(step, Const)
        for frag in accesses(step).frags_written
    }
    return About(
        name=program.name,
        arch=arch_of(arch).name,
        ab=program.ab,
        acc=program.acc,
        family=program.shape.family(program.ab, program.acc),
        warps=program.warps,
        listing=listing(program),
        lines={path: line(step) for path, step in steps},
        constants=tuple(sorted(constant - others)),
        place=place,
    )


class Recorder:
    """A watcher of events that stores frames of chosen warps.

    outputs: global memory after the writes of the traced warps. watchers: by warp, for the current
    batch. ran: number of steps of each warp.
    """

    def __init__(self, warps: tuple[int, ...], first: int, last: int | None, limit: int) -> None:
        self.warps, self.first, self.last, self.limit = np.array(warps, int), first, last, limit
        self.counts = Counts()
        self.touched: dict[str, Accesses] = {}
        self.store = FrameStore()
        self.ran: dict[int, int] = {}
        self.outputs: dict[str, Values] = {}
        self.start = -1
        self.watchers: dict[int, WarpWatcher] = {}

    def __call__(self, event: Event) -> None:
        """Record a step of a batch of warps."""
        touched = self.touched.get(event.path)
        if touched is None:
            touched = self.touched[event.path] = accesses(event.step)
        self.counts(event, touched)
        state = event.state
        if int(state.warps[0]) != self.start:
            self._begin(event)
        if not self.watchers:
            return
        here: Iterable[int] = self.watchers
        if event.warps.size < state.warps.size:
            here = [warp for warp in self.watchers if _holds(event.warps, warp)]
        for warp in here:
            self._take(self.watchers[warp], event)

    def turn(self, first: int) -> FrameStore:
        """Start a new pack at this step; return the previous pack."""
        kept, self.store, self.first = self.store, FrameStore(), first
        for watcher in self.watchers.values():
            watcher.store = self.store
        return kept

    def _begin(self, event: Event) -> None:
        """Trace the warps of a new batch."""
        state = event.state
        self.start, end = int(state.warps[0]), int(state.warps[-1])
        here = self.warps[(self.warps >= self.start) & (self.warps <= end)].tolist()
        if here and not self.outputs:
            self.outputs = unwritten_outputs(state)
        self.watchers = {warp: WarpWatcher(state, warp, self.store, self.outputs) for warp in here}

    def _take(self, watcher: WarpWatcher, event: Event) -> None:
        number = self.ran[watcher.warp] = self.ran.get(watcher.warp, 0) + 1
        if number < self.first:
            watcher.skip(event)
            if number == self.first - 1:
                watcher.catch_up()
        elif (self.last is None or number <= self.last) and self._has_room():
            reads, writes = watcher.tiles(event)
            kind, loops = watcher.known(event).kind, tuple(event.loops.items())
            self.store.frames.append(
                PackedFrame(watcher.warp, number, event.path, kind, loops, reads, writes)
            )

    def _has_room(self) -> bool:
        return len(self.store.frames) < self.limit and self.store.nbytes < _MOST_BYTES


def _holds(ascending: Ints, number: int) -> bool:
    place = int(np.searchsorted(ascending, number))
    return place < ascending.size and int(ascending[place]) == number
