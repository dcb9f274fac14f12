"""Options: the choices that most calls of array functions leave to tcusim, as one value.

A function takes them as `options=`; `tcusim.options` gives those of all calls within a context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, get_args

from tcusim.errors import InputError, told, unknown_name

# The accumulator of float16 input.
Accumulator: TypeAlias = Literal["f32", "f16"]
# The facts that decide the bits of a result.
Bits: TypeAlias = Literal["segment", "exact"]


@dataclass(frozen=True, slots=True, repr=False)
class Options:
    """How an array function computes, and who watches: the `options` of `tcusim.sum` and its kin.

    A mapping with these keys serves as well. None means the value of the
    surrounding `tcusim.options`, or else the default. A function refuses options of its call that
    it does not take, and leaves surrounding ones that it does not take to others.

    Attributes
    ----------
    backend : str, optional
        Who runs the programs. Default: "numpy", the simulator; for an array in GPU memory "cupy" or
        "pycuda" if it is of that library, else "cuda" or another available one.
    tile : str, tuple or MmaShape, optional
        The tile, M-N-K order; default "16x16x16" ("8x8x4" for products of float64).
    arch : str, optional
        Whose arithmetic: an architecture, or the name of a GPU. Default: the GPU that
        the backend runs on, and "hopper" on the simulator.
    acc : {"f32", "f16"}, optional
        Accumulator of float16 input; default "f32". "f16" is the paper's, and rounds after every
        product: long sums stop growing (see "Precision" in the documentation). A product is then
        the paper's HGEMM, in one chain.
    algorithm : str, optional
        Name of the algorithm; by default one is chosen by sizes, types and architecture, as
        `tcusim.plan` shows. A name of the paper's, such as "reduction_256n", is run as printed,
        partial sums rounded to the operand type included. Those for short segments ("_kn") have one
        warp for each tile of segments: a long segment takes the simulator seconds. Of products:
        "gemm", "gemm_naive", or for a vector "gemv" or "gemv_reduction".
    bits : {"segment", "exact"}, optional
        The basis of the bits of a sum or scan; default "segment": the elements of its segment,
        the types, the tile and the architecture, in a fixed order of rounded additions. "exact":
        the true value alone, rounded once to the result's type: one set of bits on every GPU, in
        any order and any split, and prefixes of numbers that are not negative never fall. A NumPy
        array has a digit for each 7 bits between the largest element and the last bit of the
        smallest. In GPU memory: float16 in segments of up to 2**30 elements, and 8-bit
        integers. A sum that is zero is +0.0. Refused with acc="f16" and a paper's algorithm, which
        round.
    strategy : str, optional
        For `tcusim.plan` and `tcusim.plan_product`: how to compute, by name, where several ways are
        open: "panels", "single_pass", or of segments by offsets "row_per_segment" or "rows". All
        that apply have the same bits. By default the first; the plan says which that is, and why.
    report : Report, optional
        Filled with the programs and counts of each call.
    progress : callable, optional
        Called with (steps done, steps in all) of the launch that is running.
    stream : optional
        For arrays in GPU memory, the stream to launch on: any library's, or a handle. By default
        their library's current one.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> quick = tcusim.Options(arch="volta", bits="exact")
    >>> tcusim.sum(np.ones(4, np.float16), options=quick)
    np.float16(4.0)
    >>> tcusim.sum(np.ones(4, np.float16), options={"arch": "volta"})
    np.float16(4.0)
    """

    backend: str | None = None
    tile: Any = None
    arch: str | None = None
    acc: Accumulator | None = None
    algorithm: str | None = None
    bits: Bits | None = None
    strategy: str | None = None
    report: Any = None
    progress: Callable[[int, int], None] | None = None
    stream: Any = None

    def __repr__(self) -> str:
        """Return the call that makes it, with the given options alone."""
        said = ", ".join(f"{name}={value!r}" for name, value in self.said().items())
        return f"Options({said})"

    def said(self) -> dict[str, Any]:
        """Return the options that are not None, by name."""
        values = zip(_NAMES, _VALUES(self), strict=True)
        return {name: value for name, value in values if value is not None}

    @property
    def planned(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """The options on which a plan depends: backend, tile, arch, acc, algorithm, bits."""
        return (
            self.backend,
            self.tile,
            self.arch,
            "f32" if self.acc is None else self.acc,
            self.algorithm,
            "segment" if self.bits is None else self.bits,
        )


AnyOptions: TypeAlias = Options | Mapping[str, Any] | None

_NAMES: Final = tuple(field.name for field in fields(Options))
_VALUES: Final = attrgetter(*_NAMES)
_NOTHING: Final = Options()
_AROUND: Final[ContextVar[Options]] = ContextVar("tcusim.options", default=_NOTHING)


@dataclass(frozen=True, slots=True, repr=False)
class _Alone(Options):
    """Options that take nothing from those around them."""


def alone(given: Options) -> Options:
    """Return options for a call within tcusim, which takes nothing from surrounding ones."""
    return _Alone(*_VALUES(given))


# Those of a call within tcusim that asks for nothing.
DEFAULTS: Final[Options] = alone(_NOTHING)


@contextmanager
def options(given: AnyOptions = None, /, **said: Any) -> Iterator[Options]:
    """Give options to all calls of array functions within a context.

    Options of a call win over these, and these over those of a context around it. They are read in
    the call: once for a plan when it is made, and under `torch.compile` and `jax.jit` while the
    function is traced. Other threads, whose context is their own, do not see them; tasks of asyncio
    have those of where they were made.

    Parameters
    ----------
    given : Options or mapping, optional
        The options,
    **said
        or some of them by name, which win.

    Yields
    ------
    Options
        All that are now in force.

    Raises
    ------
    InputError
        If there is no such option.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> with tcusim.options(arch="volta"), tcusim.options(bits="exact") as now:
    ...     tcusim.sum(np.ones(4, np.float16))
    np.float16(4.0)
    >>> now
    Options(arch='volta', bits='exact')
    """
    now = _over(_made(said), _over(_made(given), _AROUND.get()))
    token = _AROUND.set(now)
    try:
        yield now
    finally:
        _AROUND.reset(token)


def require_bits(bits: Any) -> None:
    """Refuse a kind of bits that is none."""
    if bits not in get_args(Bits):
        raise unknown_name("bits", bits, get_args(Bits))


def options_of(given: AnyOptions, function: str, *others: str) -> Options:
    """Return the options of a call: its own, and for those left out the surrounding ones.

    others: the options that the function does not take.
    """
    around = _AROUND.get()
    if given is None:
        return around
    if type(given) is _Alone:
        return given
    return _over(own_options(given, function, *others), around)


def own_options(given: AnyOptions, function: str, *others: str) -> Options:
    """Return the options of a call alone; refuse those that the function does not take."""
    own = _made(given)
    for name in others:
        if getattr(own, name) is not None:
            raise InputError(f"{function} takes no option {name!r}; leave it out of options=")
    return own


def others(*taken: str) -> list[str]:
    """Return the options beside some: those that a function does not take."""
    return [name for name in _NAMES if name not in taken]


def _made(given: Any) -> Options:
    """Return `Options` from a mapping or None; refuse any other value."""
    if isinstance(given, Options):
        return given
    if given is None:
        return _NOTHING
    if not isinstance(given, Mapping):
        raise InputError(
            f"options must be a tcusim.Options or a mapping, such as {{'arch': 'volta'}}; got "
            f"{told(given)}"
        )
    try:
        return Options(**given)
    except TypeError:
        unknown = next(name for name in given if name not in _NAMES)
        raise unknown_name("option", unknown, _NAMES) from None


def _over(own: Options, around: Options) -> Options:
    if around is _NOTHING or own is _NOTHING:
        return around if own is _NOTHING else own
    pairs = zip(_VALUES(own), _VALUES(around), strict=True)
    return Options(*[outer if value is None else value for value, outer in pairs])
