"""Segments of an axis: their bounds, checked and brought to where the array is; initial values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.dtypes import TypeRule, numpy_type
from tcusim.arrays.home import Home, Host, first_terms, returned
from tcusim.arrays.libraries import (
    Array,
    Ints,
    as_numpy,
    is_on_device,
    keep,
    name_of_kind,
    require_plain,
    signature,
)
from tcusim.arrays.spec import Layout, count_of, is_integer
from tcusim.backends import DeviceBackend, IntegerFacts, OffsetsBackend, is_offsets_backend
from tcusim.errors import MOST_ELEMENTS, Given, InputError, Unsupported, require_flags, told
from tcusim.machine.formats import format_of

# Segments that ids may number by default, however few elements there are, and for each of these;
# and those that a user may name.
_MOST_SEGMENTS = 2**25
_MOST_PER_ELEMENT = 16
_MOST_NAMED = 2**31
# Arrays of bounds that one `Segments` keeps, each for arrays of one signature.
MOST_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Offsets:
    """The checked bounds of the segments of rows that lie end to end.

    array: the offsets for all rows, flat, of int64, where the data are. segments: of a row. facts:
    of the offsets of one row; None if they were not checked. edges: these offsets, if they are in
    the computer's memory. longest: the most elements of a segment, if known. signature: of the
    array. is_repeated: whether the segments kept them in an earlier call.
    """

    array: Any
    segments: int
    facts: IntegerFacts | None = None
    edges: Ints | None = None
    longest: int | None = None
    is_repeated: bool = False
    signature: Hashable = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signature", signature(self.array))


class Segments:
    """The segments of an axis, by offsets, lengths or ids: checked once, for any number of calls.

    `tcusim.segmented_sum` and its kin take one in place of a size or an array of offsets, and so do
    `tcusim.torch` and `tcusim.dask`. The first call checks the integers and brings them to where
    its array is; later calls with arrays of the same kind and shape neither look at them nor copy
    them.

    Parameters
    ----------
    offsets : array_like of int, shape (segments + 1,), optional
        Segment i is elements offsets[i] to offsets[i+1], as in CSR. Starts with 0, ends with the
        axis' length, never decreases; equal neighbours are an empty segment. For an array in GPU
        memory they may be there too, as may ids, of int64 or int32.
    lengths : array_like of int, shape (segments,), optional
        Instead of offsets: the number of elements of each segment. Not in GPU memory, except for
        `tcusim.torch`.
    ids : array_like of int, shape (axis' length,), optional
        Instead of offsets: the number of each element's segment, as in `jax.ops.segment_sum`. They
        never decrease, unless `sort` is given; a segment without elements has the sum 0. Keys of
        other kinds, such as times, are numbered by ``np.unique(keys, return_inverse=True)``.
    count : int, optional
        With ids, the number of segments: by default one more than the largest id, which has to be
        read. Alone, for `tcusim.plan`: the number of segments that calls will give.
    longest : int, optional
        The most elements that any segment has. Launches are chosen by it; by default it is found by
        the check, which refuses longer segments. Where nothing is checked, it may save launches.
        No bit depends on it. Calls that torch traces or maps do not look at it, nor do its extremes
        and recorded calls on a GPU.
    sort : bool
        With ids in any order: the elements are sorted by them first, those of a segment in their
        order, which is that of the additions. Not in GPU memory, except for `tcusim.torch`.
    check : bool
        Whether integers in GPU memory are checked. That is done there, and the first call waits for
        the result. False is for integers that are known to be right, and for calls in a CUDA
        graph: they are read by each launch, and may change between. Wrong ones then give wrong
        results, but no access outside the arrays. Those in the computer's memory are always
        checked.

    Raises
    ------
    InputError
        If the parameters do not go together; the first call checks the integers.

    Notes
    -----
    Do not change the integers after the first call: those in the computer's memory are not read
    again, and offsets in GPU memory are read by each launch, but not checked again. To have an
    array of offsets checked by each call, pass the array itself.

    Examples
    --------
    >>> import numpy as np, tcusim
    >>> parts = tcusim.Segments(lengths=[1, 0, 7])
    >>> tcusim.segmented_sum(np.arange(8, dtype=np.float16), parts)
    array([ 0.,  0., 28.], dtype=float16)
    >>> by_id = tcusim.Segments(ids=[2, 0, 2, 0], sort=True)
    >>> tcusim.segmented_sum(np.arange(4, dtype=np.float16), by_id)
    array([4., 0., 2.], dtype=float16)
    """

    def __init__(
        self,
        offsets: Any = None,
        *,
        lengths: Any = None,
        ids: Any = None,
        count: int | None = None,
        longest: int | None = None,
        sort: bool = False,
        check: bool = True,
    ) -> None:
        given = {"offsets": offsets, "lengths": lengths, "ids": ids}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1 or not (named or count is not None):
            got = " and ".join(named) or "nothing"
            raise InputError(f"Segments takes one of offsets, lengths and ids; got {got}")
        require_flags(sort=sort, check=check)
        if ids is None and sort:
            raise InputError("sort goes with ids; leave it out")
        if count is not None and named not in ([], ["ids"]):
            raise InputError(f"count goes with ids, and {named[0]} tell it; leave it out")
        self.offsets, self.lengths, self.ids = offsets, lengths, ids
        self.count = count
        self.longest = None if longest is None else count_of("longest", longest)
        self.sort, self.check = sort, check
        # The parameter by which the segments are given; "count" if only their number is.
        self.name = named[0] if named else "count"
        self.given = given.get(self.name)
        # Whether one call alone has these, so that nothing is kept for others.
        self.is_of_one_call = False
        # Offsets, the order of the elements, and segments that tcusim.torch made of these (None for
        # these themselves), and its prepared launches with them.
        self.derived: dict[Hashable, tuple[Any, Any, Segments | None]] = {}
        self.launches: dict[Hashable, Any] = {}
        self._kept: dict[Hashable, Offsets] = {}
        # Calls prepared with these segments; see `tcusim.arrays.calls`.
        self.calls: dict[Hashable, Any] = {}
        self._edges: tuple[Ints, IntegerFacts] | None = None
        self._order: Ints | None = None
        self._numbered: Segments | None = None

    def __repr__(self) -> str:
        parts = [] if self.given is None else [f"{self.name}=<{type(self.given).__name__}>"]
        for name in ("count", "longest"):
            if getattr(self, name) is not None:
                parts.append(f"{name}={told(getattr(self, name))}")
        parts += ["sort=True"] if self.sort else []
        parts += [] if self.check else ["check=False"]
        return f"Segments({', '.join(parts)})"

    def edges(self, length: int) -> Ints:
        """Return the bounds of segments given in the computer's memory, checked once.

        length: of the axis.
        """
        return self._known(length)[0]

    def numbered(self, count: int) -> Segments:
        """Return these segments; those by ids that name no number are `count`."""
        if self.name != "ids" or self.count is not None:
            return self
        if self._numbered is None or self._numbered.count != count:
            self._numbered = Segments(
                ids=self.ids, count=count, longest=self.longest, sort=self.sort, check=self.check
            )
        return self._numbered

    def by_offsets(self, offsets: Any) -> Segments:
        """Return the same segments by offsets that were made of these, for as many calls."""
        made = Segments(offsets, longest=self.longest)
        made._edges, made.is_of_one_call = self._edges, self.is_of_one_call
        return made

    def at(self, home: Home, a: Any, where: Hashable, *, length: int, rows: int) -> Offsets:
        """Return the offsets for an array `a` of `rows` rows of this length; refuse bad ones.

        Those in GPU memory are checked there by a backend that can, else copied back to be checked.
        Arrays of equal signatures `where` share one result, if it is known.
        """
        key = None if where is None else (where, length, rows)
        kept = self._kept.get(key)
        if kept is not None:
            if not kept.is_repeated:
                self._kept[key] = kept = replace(kept, is_repeated=True)
            return kept
        if self.name == "count":
            raise InputError(
                f"{self!r} has no offsets, lengths or ids: it is for tcusim.plan. Give one of them"
            )
        found = self._found(home, a, length, rows)
        if self.longest is not None:
            if found.facts is not None:
                require_longest(found.facts, self.longest)
            found = replace(found, longest=self.longest)
        if key is not None and not self.is_of_one_call and self._may_keep(home, found):
            keep(self._kept, key, found, MOST_KEPT)
        return found

    def in_order(self, a: Any, axis: Any) -> tuple[Any, Ints | None]:
        """Sort the elements of an axis by the ids of their segments, those of one in their order.

        Returns the array, and the place of each of its elements in `a`; None if ids do not
        decrease.
        """
        if is_on_device(a) or is_on_device(self.ids):
            raise Unsupported(
                Given("sort", True),
                " goes with arrays in the computer's memory. In GPU memory, sort the "
                "elements by their ids first, with a stable sort of their library, and pass what "
                "is sorted",
            )
        values = as_numpy("a", a)
        if not is_integer(axis) or not -values.ndim <= axis < values.ndim:
            # The call has the sentence for it.
            return values, None
        order = self.order(values.shape[axis])
        return (values if order is None else np.take(values, order, axis)), order

    def order(self, length: int) -> Ints | None:
        """Return the order of the elements of an axis; None if they are in it."""
        self._known(length)
        return self._order

    def _known(self, length: int) -> tuple[Ints, IntegerFacts]:
        """Return the bounds and the facts about them; refuse those of another length."""
        if self._edges is None:
            self._edges = self._read(as_numpy(self.name, self.given), length)
        require_length(self.name, self._edges[1].first, self._edges[1].last, length)
        if self.longest is not None:
            require_longest(self._edges[1], self.longest)
        return self._edges

    def _read(self, given: NDArray[Any], length: int) -> tuple[Ints, IntegerFacts]:
        """Return the bounds that an array gives, and the facts about them."""
        is_offsets = self.name == "offsets"
        is_integer = given.dtype.kind in "iu" and bool(given.size or not is_offsets)
        if given.ndim != 1 or not is_integer:
            require_flat(self.name, given, is_integer=is_integer)
        if is_offsets:
            return _edges_of_offsets(given)
        if self.name == "lengths":
            edges = _edges_of_lengths(given)
        else:
            require_one_each("ids", given.size, length)
            edges, self._order = _edges_of_ids(given, self.count, sort=self.sort)
        return edges, facts_of(edges)

    def _found(self, home: Home, a: Any, length: int, rows: int) -> Offsets:
        """Return the offsets for all rows, where `a` is."""
        given = self.given
        if not is_on_device(given):
            return self._brought(home, a, *self._known(length), rows)
        home, size = _gpu_of(home, self.name, given)
        if self.name == "lengths":
            raise Unsupported(
                "lengths in GPU memory: give offsets there, the cumulative sum of the lengths with "
                "a 0 before it, or the lengths as a NumPy array"
            )
        if self.name == "ids":
            require_one_each("ids", size, length)
            return self._by_ids(home, a, length, rows)
        segments = size - 1
        if not self.check:
            if rows != 1:
                raise Unsupported(
                    f"check=False goes with one row of segments, and a has {rows}: offsets for all "
                    "rows are made of checked ones. Pass row by row, or leave check out"
                )
            return Offsets(_as_int64(home, given), segments)
        if is_offsets_backend(home):
            facts = home.facts_of_integers(given)
            require_sorted("offsets", facts)
            require_length("offsets", facts.first, facts.last, length)
            return Offsets(
                _for_rows(home, given, facts, rows), segments, facts, None, facts.longest
            )
        edges, facts = _edges_of_offsets(home.to_host(given))
        require_length("offsets", facts.first, facts.last, length)
        if rows == 1:
            return Offsets(_as_int64(home, given), segments, facts, edges, facts.longest)
        return self._brought(home, a, edges, facts, rows)

    def _by_ids(self, home: DeviceBackend, a: Any, length: int, rows: int) -> Offsets:
        """Return the offsets of segments to which elements belong by ids in GPU memory."""
        ids = self.given
        if is_offsets_backend(home):
            segments = segments_of(home.facts_of_integers(ids), self.count, length)
            offsets = home.offsets_of_ids(ids, segments)
            facts = home.facts_of_integers(offsets)
            array = _for_rows(home, offsets, facts, rows)
            return Offsets(array, segments, facts, None, facts.longest)
        edges, _ = _edges_of_ids(home.to_host(ids), self.count)
        facts = facts_of(edges)
        return self._brought(home, a, edges, facts, rows)

    def _brought(self, home: Home, a: Any, edges: Ints, facts: IntegerFacts, rows: int) -> Offsets:
        """Return the offsets of these edges of each row, brought to where `a` is."""
        array = home.to_device(edges_of_rows(edges, rows), a) if rows and edges[-1] else None
        return Offsets(array, edges.size - 1, facts, edges, facts.longest)

    def _may_keep(self, home: Home, found: Offsets) -> bool:
        """Return whether further calls may use these offsets, after all work that made them."""
        if isinstance(home, Host) or found.array is None or found.array is self.given:
            return True
        # Copies of integers that are not checked are made anew, since these may change. In a
        # captured graph nothing can wait, and offsets that were made there are those of its
        # replays.
        return self.check and is_offsets_backend(home) and home.settled(found.array)


def given_segments(segments: Any) -> tuple[Any, Segments | None]:
    """Return the size of segments, or the segments by offsets, that an argument gives."""
    if segments is None or is_integer(segments):
        return segments, None
    if isinstance(segments, Segments):
        return None, segments
    if isinstance(segments, bool | float | str | set | Mapping):
        raise InputError(
            "segments must be the elements of each one, an integer, an array of their offsets, or "
            f"tcusim.Segments; got {told(segments)}"
        )
    made = Segments(segments)
    made.is_of_one_call = True
    return None, made


def _for_rows(home: OffsetsBackend, offsets: Any, facts: IntegerFacts, rows: int) -> Any:
    """Return the offsets for all rows, made in GPU memory of checked ones of one row there."""
    if rows == 1:
        return _as_int64(home, offsets)
    return home.offsets_of_rows(offsets, rows) if rows and facts.last else None


def initial_of(home: Home, a: Any, initial: Any, layout: Layout, rule: TypeRule) -> Any:
    """Return the values before the first elements of all segments, flat, where `a` is."""
    shape, dtype = layout.shape_of_initial, format_of(rule.types.sums).array_name
    if rule.method in ("digits", "fixed point"):
        dtype = rule.result if rule.method == "digits" else "float64"
    if rule.method == "fixed point" and not isinstance(home, Host):
        raise Unsupported(
            "initial does not go with bits 'exact' in GPU memory, where the sums would not be "
            "exact. Leave one of them out, or copy the array to a NumPy array"
        )
    axes = tuple(range(len(shape))) if layout.is_whole or not layout.lead else layout.order
    if not is_on_device(initial):
        values = first_terms(initial, shape, numpy_type(dtype), numpy_type(rule.result))
        assert values is not None
        return home.to_device(np.ascontiguousarray(values.transpose(axes)).reshape(-1), a)
    if isinstance(home, Host):
        raise InputError(
            f"initial is a {name_of_kind(initial)} in GPU memory, but a is a NumPy array; copy it "
            "to a NumPy array"
        )
    require_plain("initial", initial)
    facts = home.describe(initial)
    if tuple(facts.shape) != shape or facts.dtype != dtype:
        raise InputError(
            f"initial in GPU memory must be of {dtype}, the type of the sums, and of shape "
            f"{shape}, a value for each segment; got {facts.dtype}, {tuple(facts.shape)}"
        )
    return home.arranged(initial, axes, dtype)


def require_longest(facts: IntegerFacts, longest: int) -> None:
    """Refuse segments of more than `longest` elements, by the facts about their offsets."""
    if facts.longest > longest:
        raise InputError(
            f"segment {facts.place} has {facts.longest} elements, but longest is {longest}: give a "
            "greater one, or leave it out"
        )


# --- Checks, wherever the integers are ------------------------------------------------------------
#
# Each sentence about segments is here: for NumPy and dask, for arrays in GPU memory, torch and JAX.


def require_flat(name: str, given: Any, *, is_integer: bool) -> None:
    """Refuse other arrays than flat ones of integers; those without elements are of any type."""
    is_offsets = name == "offsets"
    if given.ndim == 1 and (is_integer or (given.shape[0] == 0 and not is_offsets)):
        return
    number = "segments + 1 integers" if is_offsets else "integers"
    shape, dtype = tuple(given.shape), str(given.dtype).removeprefix("torch.")
    raise InputError(
        Given(name), f" must be a flat array of {number}, got shape {shape}, dtype {dtype}"
    )


def require_length(name: str, first: int, last: int, length: int) -> None:
    """Refuse bounds that do not go from 0 to the axis' length. name: of their source."""
    if name == "ids":
        require_one_each(name, last, length)
    elif name == "offsets" and (first, last) != (0, length):
        raise InputError(
            Given("offsets"),
            f" must begin with 0 and end with the axis' length, {length}; got {first} and {last}. "
            "(Segments may also be given by lengths or ids)",
        )
    elif last != length:
        raise InputError(
            Given("lengths"), f" must add up to the axis' length, {length}; they come to {last}"
        )


def require_lengths(least: int, at: int, most: int) -> None:
    """Refuse negative and huge lengths, by the least one, its index, and the greatest one."""
    if least < 0:
        raise InputError(Given("lengths"), f" must be at least 0, but lengths[{at}] = {least}")
    if most > MOST_ELEMENTS:
        # Their sum might wrap around.
        raise InputError(Given("lengths"), f" must be at most 2**48, got {most}")


def require_one_each(name: str, number: int, length: int) -> None:
    """Refuse ids that are not one for each element of an axis."""
    if number != length:
        raise InputError(
            Given(name),
            f" must be {length} integers, one for each element of the axis; there are {number}",
        )


def segments_of(facts: IntegerFacts, count: Any, length: int) -> int:
    """Return the number of segments of ids, which are not empty; refuse wrong ids."""
    number = facts.last + 1 if count is None else count_of("count", count, 0)
    remedy = ("; sort the elements by them first, or give ", Given("sort", True))
    require_sorted("ids", facts, *remedy)
    require_number(number, length, named=count is not None)
    require_within("ids", facts.first, facts.last, number)
    return number


def require_within(name: str, first: int, last: int, number: int) -> None:
    """Refuse sorted ids that no segment has, by the first and the last of them."""
    if first < 0:
        raise InputError(Given(name), f" must be at least 0, got {first}")
    if last >= number:
        raise InputError(
            Given(name), f" must be less than the number of segments, {number}; got {last}"
        )


def require_number(segments: int, length: int, *, named: bool) -> None:
    """Refuse many more segments than an axis has elements. named: by the user."""
    least = _MOST_NAMED if named else _MOST_SEGMENTS
    if segments > max(least, _MOST_PER_ELEMENT * length):
        raise InputError(
            f"there would be {told(segments)} segments, nearly all of them empty, for {length} "
            "elements. Number those that there are: keys, ids = np.unique(ids, "
            "return_inverse=True); keys[i] is then the key of segment i"
        )


def require_sorted(name: str, facts: IntegerFacts, *remedy: str | Given) -> None:
    """Refuse integers that decrease."""
    if facts.down is not None:
        at, value, following = facts.down
        raise InputError(
            Given(name),
            f" must not decrease, but {name}[{at}] = {value} and {name}[{at + 1}] = {following}",
            *remedy,
        )


# --- In the computer's memory ---------------------------------------------------------------------


def facts_of(values: NDArray[Any]) -> IntegerFacts:
    """Return the facts about integers, of which there is at least one."""
    first, last, before, after = int(values[0]), int(values[-1]), values[:-1], values[1:]
    falls = after < before
    if falls.any():
        at = int(falls.argmax())
        return IntegerFacts(first, last, (at, int(values[at]), int(values[at + 1])), 0, 0)
    if not falls.size:
        return IntegerFacts(first, last, None, 0, 0)
    lengths = after - before
    place = int(lengths.argmax())
    return IntegerFacts(first, last, None, int(lengths[place]), place)


def _edges_of_offsets(offsets: NDArray[Any]) -> tuple[Ints, IntegerFacts]:
    """Return offsets as bounds of int64, and the facts about them; refuse those that decrease."""
    facts = facts_of(offsets)
    require_sorted("offsets", facts)
    return offsets.astype(np.int64), facts


def _edges_of_lengths(lengths: NDArray[Any]) -> Ints:
    """Return the bounds of segments of these lengths; refuse negative ones."""
    if lengths.size:
        require_lengths(int(lengths.min()), int(lengths.argmin()), int(lengths.max()))
    return np.append(0, lengths.astype(np.int64).cumsum())


def _edges_of_ids(ids: NDArray[Any], count: Any, *, sort: bool = False) -> tuple[Ints, Ints | None]:
    """Return the bounds of segments by ids, and the order that sorts these if they decrease."""
    order = None
    if sort and (ids[1:] < ids[:-1]).any():
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
    if ids.size:
        number = segments_of(facts_of(ids), count, ids.size)
    else:
        number = 0 if count is None else count_of("count", count, 0)
    edges = np.zeros(number + 1, np.int64)
    edges[1:] = np.bincount(ids.astype(np.int64, copy=False), minlength=number).cumsum()
    return edges, order


def require_side_by_side(by: Segments | None, *, include_initial: bool) -> None:
    """Refuse scans longer by a zero of segments with elements that lie apart."""
    require_flags(include_initial=include_initial)
    if by is not None and by.sort and include_initial:
        raise InputError(
            Given("include_initial"),
            " goes with segments that lie side by side, and ",
            Given("sort"),
            " with others; leave one of them out",
        )


def restored(scans: Array, order: Ints | None, axis: int, out: Any, given: Any) -> Any:
    """Return scans of sorted elements with each where its element was given, or fill `out`."""
    if order is not None:
        place: list[Any] = [slice(None)] * scans.ndim
        place[axis] = order
        sorted_scans, scans = scans, np.empty_like(scans)
        scans[tuple(place)] = sorted_scans
    return returned(scans, out, given)


def edges_of_rows(edges: Ints, rows: int) -> Ints:
    """Return the edges of all segments of `rows` rows that lie end to end and are cut alike."""
    if rows == 1:
        return edges
    starts = np.arange(rows)[:, None] * edges[-1] + edges[:-1]
    return np.append(starts, rows * edges[-1])


# --- In GPU memory --------------------------------------------------------------------------------


def _gpu_of(home: Home, name: str, given: Any) -> tuple[DeviceBackend, int]:
    """Return the backend of integers in GPU memory, and their number; refuse other arrays."""
    if isinstance(home, Host):
        raise InputError(
            f"{name} are a {name_of_kind(given)} in GPU memory, but a is a NumPy array; copy them "
            "to a NumPy array"
        )
    facts = home.describe(given)
    if len(facts.shape) != 1 or 0 in facts.shape or facts.dtype not in ("int32", "int64"):
        each = "an element for each of the axis," if name == "ids" else "segments + 1 elements"
        raise InputError(
            f"{name} in GPU memory must be a flat array of {each} of int64 or int32, got shape "
            f"{tuple(facts.shape)}, dtype {facts.dtype}"
        )
    return home, int(facts.shape[0])


def _as_int64(backend: DeviceBackend, offsets: Any) -> Any:
    """Return the offsets without gaps and as int64: themselves, or a copy by their library."""
    try:
        return backend.arranged(offsets, (0,), "int64")
    except InputError as error:
        raise InputError(
            f"offsets are a {name_of_kind(offsets)} of {backend.describe(offsets).dtype}, which "
            "tcusim cannot copy as it needs it: without gaps, of int64. Make that copy first"
        ) from error
