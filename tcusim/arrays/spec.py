"""Specifications: an operation with its keywords as one value, checked here for every caller.

A `Spec` is the same for many calls, and the key by which plans are kept; a `Call` has the values of
one call. A layout is how an array of some shape is made of segments, or of matrices. None
of them depends on the library of the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tcusim.algorithms.order import Order
from tcusim.arrays.problem import Shape, even_edges
from tcusim.arrays.report import Report
from tcusim.backends import Edge, Progress, get_backend, native_arch
from tcusim.call_options import Options, require_bits
from tcusim.errors import (
    MOST_ELEMENTS,
    Given,
    InputError,
    require_flags,
    require_names,
    told,
    unknown_name,
)

# Whether an operation reduces or scans.
OPERATIONS: Final[Mapping[str, str]] = {
    "sum": "reduction",
    "cumsum": "scan",
    "segmented_sum": "reduction",
    "segmented_cumsum": "scan",
}
# The keywords of a specification that are names, or None.
_NAMES: Final = ("backend", "arch", "acc", "algorithm", "bits", "strategy")


class Spec(NamedTuple):
    """An operation and the keywords on which its plan depends, as a user wrote them.

    Frozen and hashable: calls with equal specifications on like arrays are prepared once.
    The fields are the arguments of `tcusim.segmented_cumsum` and `tcusim.plan`; carry says whether
    calls give initial values.
    """

    operation: str
    axis: Any = None
    segment_size: Any = None
    dtype: Any = None
    keepdims: bool = False
    exclusive: bool = False
    reverse: bool = False
    include_initial: bool = False
    carry: bool = False
    backend: str | None = None
    tile: Shape | None = None
    arch: str | None = None
    acc: str = "f32"
    algorithm: str | None = None
    bits: str = "segment"
    strategy: str | None = None

    @classmethod
    def of_product(cls, operation: str, dtype: Any, own: Options, strategy: Any = None) -> Spec:
        """Return the specification of a product, which has no `bits`."""
        backend, tile, arch, acc, algorithm, _ = own.planned
        named = {"tile": tile, "arch": arch, "acc": acc, "algorithm": algorithm}
        return cls(operation, dtype=dtype, backend=backend, strategy=strategy, **named)

    def require_names(self) -> None:
        """Refuse keywords that name nothing."""
        require_names(**{name: getattr(self, name) for name in _NAMES})
        if self.acc not in ("f32", "f16"):
            raise unknown_name("accumulator", self.acc, ("f32", "f16"))
        require_bits(self.bits)

    @property
    def is_product(self) -> bool:
        """Whether it is a product, not a sum or a scan."""
        return self.operation not in OPERATIONS

    @property
    def kind(self) -> str:
        """Whether it is a "reduction" or a "scan"."""
        return OPERATIONS[self.operation]

    @property
    def order(self) -> Order:
        """The order of a scan."""
        return Order(bool(self.exclusive), bool(self.reverse))

    @property
    def initial(self) -> Edge | None:
        """The end at which each scan is longer by a zero."""
        if not self.include_initial:
            return None
        if self.exclusive:
            raise InputError(
                *(Given("exclusive"), " and ", Given("include_initial"), " both begin with 0: "),
                *("leave one of them out. ", Given("include_initial"), " also gives the sum of "),
                "all elements, in a result longer by one",
            )
        if self.carry:
            raise InputError(
                *(Given("include_initial"), " begins each segment with 0, and ", Given("initial")),
                *(" with another value: leave one of them out. ", Given("exclusive", True)),
                " begins each segment with its initial value",
            )
        return "last" if self.reverse else "first"

    @property
    def is_segmented(self) -> bool:
        """Whether the axis is made of segments."""
        return self.operation.startswith("segmented")

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Return the axes that are summed or scanned, counted from the front."""
        axis = self.axis
        if not self.is_segmented and axis is None:
            return tuple(range(ndim))
        # As in NumPy, a scalar has an axis of one element, but not in a tuple.
        is_scalar = ndim == 0 and not self.is_segmented and not isinstance(axis, tuple)
        found = axes_of("axis", axis, ndim, least=is_scalar, several=self.operation == "sum")
        return found if ndim else ()

    def layout(self, shape: tuple[int, ...], *, by_offsets: bool = False) -> Layout:
        """Return the layout of an array of this shape in segments."""
        flags = ("keepdims", "exclusive", "reverse", "include_initial")
        require_flags(**{name: getattr(self, name) for name in flags})
        axes = self.axes(len(shape))
        others = tuple(axis for axis in range(len(shape)) if axis not in axes)
        length = math.prod(shape[axis] for axis in axes)
        size = max(1, length)
        if self.is_segmented and not by_offsets:
            size = size_of(self.segment_size, length)
        lead = kept = tuple(shape[axis] for axis in others)
        if self.keepdims:
            kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
        return Layout(
            kind=self.kind,
            order=(*others, *axes),
            lead=lead,
            length=length,
            segment_size=size,
            is_whole=not self.is_segmented,
            initial=self.initial,
            kept=kept if self.operation == "sum" else None,
        )

    @property
    def second(self) -> str:
        """The name of the right factor in messages."""
        return "b" if self.operation == "matmul" else "x"

    def product_layout(self, left: tuple[int, ...], right: tuple[int, ...]) -> ProductLayout:
        """Return the layout of factors of these shapes; refuse those that do not fit."""
        is_matvec = self.operation == "matvec"
        if is_matvec and (len(left) < 2 or not right):
            raise InputError(
                f"matvec takes a matrix, of two axes or more, and a vector, of one or more; "
                f"got shapes {left} and {right}"
            )
        if not left or not right:
            raise InputError(
                f"matmul takes arrays of one axis or more, got shapes {left} and {right}; multiply "
                "by a scalar with *"
            )
        is_vector = is_matvec or len(right) == 1
        inner = right[-1] if is_vector else right[-2:][0]
        if left[-1] != inner:
            unit = "elements" if is_matvec else "rows"
            raise InputError(
                f"a has {left[-1]} columns and {self.second} {inner} {unit}, which must be equal; "
                f"got shapes {left} and {right}"
            )
        columns, before = ((), right[:-1]) if is_vector else (right[-1:], right[:-2])
        rows, lead = left[:-1], None
        if before:
            rows, lead = left[-2:-1], _broadcast(left[:-2], before, (left, right))
        return ProductLayout(
            rows=math.prod(rows),
            inner=inner,
            cols=columns[0] if columns else None,
            result=(*(lead or ()), *rows, *columns),
            lead=lead,
            before=(left[:-2], before),
        )


# Returns the fields of a specification that may be numbers or flags.
numbers_of: Final[Callable[[Spec], tuple[Any, ...]]] = itemgetter(
    slice(Spec._fields.index("axis"), Spec._fields.index("carry"))
)


def arch_of_run(arch: str | None, backend: str | None, array: Any = None) -> str:
    """Return the architecture that a call follows: the named one, or that of the backend's GPU.

    That is the GPU of an array in GPU memory, else the current one.
    """
    if arch is not None:
        return arch
    own = None if backend is None else native_arch(get_backend(backend), array)
    return own or "hopper"


class Call(NamedTuple):
    """The keywords that say where a result goes and who watches, for one call.

    segments: a `tcusim.Segments`; None for those of one size.
    """

    out: Any = None
    stream: Any = None
    report: Report | None = None
    progress: Progress | None = None
    segments: Any = None
    initial: Any = None


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array is made of rows of segments, and where their results go.

    order: the array's axes, those that are summed or scanned last: its rows then lie end to end.
    lead: lengths of the other axes. length: elements of a row. is_whole: whether each row is one
    segment, and if it is empty an empty one. initial: where each segment's scan is longer by a
    zero. kept: the shape of the result, if it is not that of the rows. by_offsets: the segments of
    a row, if they lie by offsets.
    """

    kind: str
    order: tuple[int, ...]
    lead: tuple[int, ...]
    length: int
    segment_size: int
    is_whole: bool
    initial: Edge | None = None
    kept: tuple[int, ...] | None = None
    by_offsets: int | None = None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return math.prod(self.lead)

    @property
    def elements(self) -> int:
        """Elements of the array."""
        return self.rows * self.length

    @property
    def segments(self) -> int:
        """Segments of a row."""
        if self.by_offsets is not None:
            return self.by_offsets
        return 1 if self.is_whole else -(-self.length // self.segment_size)

    @property
    def even_edges(self) -> NDArray[np.int64]:
        """The offsets of a row's segments of one size."""
        return even_edges(self.segments, self.segment_size, self.length)

    @property
    def shape_of_initial(self) -> tuple[int, ...]:
        """The shape of a value for each segment, where the axis of segments has its place."""
        if self.is_whole:
            return self.lead
        axis = min(self.order[-1], len(self.lead))
        return (*self.lead[:axis], self.segments, *self.lead[axis:])

    @property
    def missing(self) -> int:
        """Elements by which rows are to be filled up, so that segments do not reach across them."""
        if self.by_offsets is not None or self.rows <= 1:
            return 0
        return -self.length % self.segment_size

    @property
    def back(self) -> tuple[int, ...] | None:
        """The axes of the result, where the last is to go back to its place."""
        in_order = self.order == tuple(range(len(self.order)))
        return None if in_order or self.kept is not None else self.order

    @property
    def result(self) -> tuple[int, ...]:
        """The result's shape, with the axis of segments or of the scan last."""
        scanned = self.length if self.kind == "scan" else 0
        summed = self.segments if self.kind == "reduction" or self.initial else 0
        return (*self.lead, scanned + summed) if self.kept is None else self.kept

    def unfilled(self, flat: NDArray[Any], edges: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """Return the results of rows that were filled up, with a zero for each segment if asked.

        edges: the offsets of a row, if segments lie by them and are not of one size.
        """
        if self.kind == "reduction":
            return flat
        scans = flat.reshape(self.rows, self.length + self.missing)[:, : self.length]
        if self.initial is None:
            return scans
        edges = self.even_edges if edges is None else edges
        return np.insert(scans, edges[:-1] if self.initial == "first" else edges[1:], 0, axis=1)


@dataclass(frozen=True, slots=True)
class ProductLayout:
    """How factors are made of matrices.

    rows, inner, cols: sizes of one product; no `cols` for a vector. result: its shape. lead: the
    axes along which there are several products; None if there is one. before: the axes before the
    matrices of the two factors, which are broadcast to `lead`.
    """

    rows: int
    inner: int
    cols: int | None
    result: tuple[int, ...]
    lead: tuple[int, ...] | None = None
    before: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to multiply."""
        return 0 in (*self.result, self.inner)

    @property
    def second(self) -> str:
        """The name of the right factor in plans."""
        return "x" if self.cols is None else "b"

    def starts(self) -> list[dict[str, int]] | None:
        """Return the first elements of each product's factors, addend and result."""
        if self.lead is None:
            return None
        columns = self.cols or 1
        number = np.arange(math.prod(self.lead))
        left, right = (
            np.broadcast_to(np.arange(math.prod(axes)).reshape(axes), self.lead).ravel()
            for axes in self.before
        )
        places = {
            "in": left * self.rows * self.inner,
            self.second: right * self.inner * columns,
            "c": number * self.rows * columns,
            "out": number * self.rows * columns,
        }
        return [{name: int(start[i]) for name, start in places.items()} for i in number]


def _broadcast(
    one: tuple[int, ...], two: tuple[int, ...], given: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the axes before the matrices of a product, for arrays of the shapes `given`."""
    try:
        return np.broadcast_shapes(one, two)
    except ValueError:
        raise InputError(
            f"the axes before the matrices cannot be broadcast: {one} and {two}, of arrays of "
            f"shapes {given[0]} and {given[1]}"
        ) from None


def axes_of(
    name: str, given: Any, ndim: int, *, least: int = 0, several: bool = True
) -> tuple[int, ...]:
    """Return axes of an array counted from the front, in the order in which they are given.

    name: of the parameter. least: the least number of axes that any array counts as having.
    several: whether a tuple of axes is allowed.
    """
    extent = max(ndim, least)
    each = given if several and isinstance(given, tuple) else (given,)
    for one in each:
        if not is_integer(one):
            raise not_an_axis(name, one, several=several)
        if not -extent <= one < extent:
            raise InputError(
                Given(name), f" {told(one)} is out of range for an array of {ndim} dimensions"
            )
    found = tuple(int(one) % extent for one in each)
    if len(set(found)) != len(found):
        raise InputError(Given(name), f" {given} names an axis twice")
    return found


def not_an_axis(name: str, given: Any, *, several: bool) -> InputError:
    """Return the error of a value that is no axis."""
    wanted = "an integer, or several for a sum" if several else "one integer"
    return InputError(Given(name), f" must be {wanted}, got {told(given)}")


def size_of(segment_size: Any, length: int) -> int:
    """Return the elements of a segment of an axis of this length."""
    if segment_size is None:
        raise InputError(
            *("give ", Given("segments"), ": the elements of each one, an array of their "),
            "offsets, or tcusim.Segments",
        )
    size = count_of("segments", segment_size)
    if size > length > 0:
        raise InputError(
            Given("segments", size),
            f" is longer than the axis, which has {length} elements",
        )
    return size


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer; True, which is 1, was meant for another argument."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def count_of(name: str, value: Any, least: int = 1) -> int:
    """Return a size as an integer; refuse other types, less than `least`, and beyond any memory."""
    if not is_integer(value):
        raise InputError(Given(name), f" must be an integer, got {told(value)}")
    if value < least:
        raise InputError(Given(name), f" must be at least {least}, got {told(int(value))}")
    if value > MOST_ELEMENTS:
        raise InputError(Given(name), f" must be at most 2**48, got {told(int(value))}")
    return int(value)
