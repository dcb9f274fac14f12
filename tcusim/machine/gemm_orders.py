"""Matrix products in the summation orders of libraries, and the search for a result's order.

A tensor core fixes the addition of one step. A library chooses the instruction, the conversion of
float32 operands, and the order of the steps. The bits of a product therefore also depend on its
kernel: one accumulator for all of k, several that are added at the end (split-K, sliced-K), or one
that is flushed at intervals. Kernels for unaligned operands add in shorter steps, and add the
remainder of k first.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tcusim.errors import (
    InputError,
    names_of,
    require_choice,
    require_flags,
    require_int,
    require_names,
    told,
)
from tcusim.machine.convert import as_array, as_values, from_values, round_to_tf32
from tcusim.machine.formats import (
    BY_ARRAY_NAME,
    Format,
    Values,
    array_name_of,
    canonical_nan,
    format_of,
    round_values,
)
from tcusim.machine.registry import arch_of, library_rules, rule_of
from tcusim.machine.rules import TF32, Fused, Rule, Tf32
from tcusim.machine.values import mma_values

Combine = Literal["in turn", "in pairs"]
Between = Literal["accumulator", "result"]
# So many rows and columns, at most, are looked at to tell orders apart. A few outputs tell most
# float32 results apart, and leave more of float16.
_SAMPLES: Final = (4, 12, 24, 96)
# Number of orders to compare again if no order gives all outputs of a sample.
_NEAREST: Final = 12
# Bytes of the widest access.
_ACCESS: Final = 16
# Of each output; an order is listed as a place of each of them.
_MOST_PRODUCTS: Final = 2**26
# Products that one step of an instruction sums where the architecture can sum more, by the bytes of
# an operand: of m16n8k8, and of m16n8k4.
_STEPS: Final = {2: (8,), 4: (8, 4)}
# Outputs and terms of chains that are multiplied together.
_TOGETHER: Final = 2**14
# Elements of k that one instruction takes at most.
_LONGEST_STEP: Final = 32
_COMBINE: Final[tuple[Combine, ...]] = ("in turn", "in pairs")
_BETWEEN: Final[tuple[Between, ...]] = ("accumulator", "result")
_OPERANDS: Final[dict[str, str]] = {
    "cut": "operands cut",
    "nearest_even": "operands to nearest even",
    "nearest_away": "operands to nearest, ties away",
}
_WAYS: Final = tuple(itertools.product(_BETWEEN, _COMBINE))
# Parts of split-K and of sliced-K.
_SPLITS: Final = (*range(2, 17), 18, 20, 24, 28, 32)
# As CUTLASS splits k: into more parts than others, down to one access each.
_MOST_PARTS: Final = 128
_SLICES: Final = (2, 3, 4, 5, 6, 8, 12, 16)
# Elements of k of a kernel's tile, or 0, and between two times that an accumulator is emptied.
_TILES: Final = (0, 16, 32, 64, 128)
_EVERY: Final = (0, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class GemmOrder:
    """The order in which a product over k is added.

    The terms are dealt out to *parts*. Within one, an accumulator of the tensor core takes its
    terms, k ascending. Then the parts are added.

    Attributes
    ----------
    parts : int
        How many; 1 is one chain of accumulations over all of k.
    slab : int
        Elements of k that a part takes at a time. 0 is a part's whole share, a multiple of 16, so
        that parts are contiguous (split-K). Else slabs go round: part 0, 1, ..., and again
        (sliced-K).
    combine : {"in turn", "in pairs"}
        The first part plus the second, plus the third ...; or neighbours, and then their sums.
    between : {"accumulator", "result"}
        The type in which parts are stored before they are added: the accumulator's, or the
        result's, to which they are rounded first. They are added in the accumulator's type.
    every : int
        If above 0, the number of elements of k after which the accumulator is added to a sum in
        its type, rounded to nearest, and cleared. DeepGEMM does so every 128 elements, because
        Hopper keeps few bits of 8-bit floats.
    share : int
        Contiguous parts are cut at multiples of this number of elements: a kernel's tile or, in
        CUTLASS, an access of 16 bytes.
    step : int
        If above 0, products that one step sums, fewer than the architecture can: 8 in a kernel of
        m16n8k8 instructions, which Hopper sums by 8 and m16n8k16 by 16.
    tile : int
        If above 0, k is read in tiles of `tile` elements, with the remainder first, as in CUTLASS
        2.
    operands : {"", "cut", "nearest_even", "nearest_away"}
        Conversion of float32 operands to tf32: truncated as by the instruction, or rounded to
        nearest before, with ties to even or away from zero. ``""`` follows the architecture's
        libraries: ties to even on Hopper, away on Ampere.

    Examples
    --------
    >>> print(GemmOrder())
    one chain
    >>> print(GemmOrder(parts=4, combine="in pairs"))
    4 contiguous parts, added in pairs
    >>> print(GemmOrder(parts=2, slab=32, between="result"))
    2 parts of every second slab of 32, rounded to the result's type, added in turn
    >>> print(GemmOrder(step=8, tile=32))
    one chain, by steps of 8, what is left of tiles of 32 first
    """

    parts: int = 1
    slab: int = 0
    combine: Combine = "in turn"
    between: Between = "accumulator"
    every: int = 0
    share: int = 16
    step: int = 0
    tile: int = 0
    operands: Tf32 | Literal[""] = ""

    def __post_init__(self) -> None:
        """Reject invalid orders, and redundant spellings of the same order."""
        for name in ("parts", "slab", "every", "share", "step", "tile"):
            least = 1 if name in ("parts", "share") else 0
            require_int(f"GemmOrder.{name}", getattr(self, name), least)
        require_choice("GemmOrder.combine", self.combine, _COMBINE)
        require_choice("GemmOrder.between", self.between, _BETWEEN)
        if self.operands != "":
            require_choice("GemmOrder.operands", self.operands, TF32, ", or '' for the usual one")
        if self.parts == 1 and (self.slab or self.combine != "in turn" or self.between == "result"):
            raise InputError(
                "GemmOrder of one part has nothing to combine; leave out slab, combine and between"
            )
        if self.share != 16 and (self.parts == 1 or self.slab):
            raise InputError("GemmOrder.share is of contiguous parts; leave it out of other orders")

    def __str__(self) -> str:
        pauses = f", emptied every {self.every}" if self.every else ""
        if self.step:
            pauses += f", by steps of {self.step}"
        if self.tile:
            pauses += f", what is left of tiles of {self.tile} first"
        if self.operands:
            pauses += f", {_OPERANDS[self.operands]}"
        if self.parts == 1:
            return f"one chain{pauses}"
        which = "contiguous parts"
        if self.share != 16:
            which += f" of whole {self.share}s"
        if self.slab:
            which = f"parts of every {_ordinal(self.parts)} slab of {self.slab}"
        rounded = ", rounded to the result's type" if self.between == "result" else ""
        return f"{self.parts} {which}{pauses}{rounded}, added {self.combine}"

    def parts_of(self, k: int) -> list[NDArray[np.intp]]:
        """Return the elements of k that each part takes, in its order; no part is empty."""
        return [places[places >= 0] for places in self._places(k)]

    def additions(self, k: int) -> tuple[object, ...]:
        """Return a key shared by orders with equal additions: sums of terms, and their tree."""
        parts = self._places(k)
        nested = (self.parts, self.every) if self.every and self.parts > 1 else ()
        if self.every and not nested:
            (whole,) = parts
            parts = [whole[at : at + self.every] for at in range(0, whole.size, self.every)]
        joined = self.combine if len(parts) > 3 else "in turn"
        kept = self.between if len(parts) > 1 else "accumulator"
        return (
            self.operands,
            self.step,
            tuple(part.tobytes() for part in parts),
            joined,
            nested,
            kept,
        )

    def _places(self, k: int) -> list[NDArray[np.intp]]:
        """Return the elements of k that each part takes; -1 where its kernel multiplies zeros."""
        every = np.arange(k)
        if self.slab:
            places = self._left_over_first(every)
            owner = np.arange(places.size) // self.slab % self.parts
            parts = [places[owner == part] for part in range(self.parts)]
            return [part for part in parts if (part >= 0).any()]
        share = math.ceil(math.ceil(k / self.parts) / self.share) * self.share or 1
        return [self._left_over_first(every[at : at + share]) for at in range(0, k, share)]

    def _left_over_first(self, terms: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the terms with the remainder of the tiles first, padded with zeros."""
        left = terms.size % self.tile if self.tile else 0
        if left == terms.size or not left:
            return terms
        # An accumulator's result is the same with fewer zeros, up to a whole step.
        whole = self.tile if self.slab or self.every else _LONGEST_STEP
        zeros = np.full(-left % min(whole, self.tile), -1)
        return np.concatenate([terms[:left], zeros, terms[left:]])


def _ordinal(number: int) -> str:
    names = {2: "second", 3: "third"}
    return names.get(number, f"{number}th")


def gemm_orders(
    k: int, *, steps: Sequence[int] = (0,), vector: int = 8, usual: bool = False
) -> tuple[GemmOrder, ...]:
    """Return the orders that libraries are known to use for products over k terms.

    One chain, and split-K of 2 to 128 parts as CUTLASS cuts them; an accumulator that is emptied
    every 4 to 512 elements; split-K of 2 to 32 parts of whole tiles, sliced-K of 2 to 16; each with
    the remainder in its place or first. Only the simplest of orders with equal additions for this
    k.

    Parameters
    ----------
    k : int
        Columns of the left matrix.
    steps : sequence of int
        Values of `GemmOrder.step` to have them in.
    vector : int
        Elements of an access of 16 bytes: 8 of half precision, 4 of float32. CUTLASS cuts parts at
        multiples of it.
    usual : bool
        Only the orders that cuBLAS uses on Hopper, as far as they are known: chains, split-K with
        parts added in turn in the accumulator's type, and for 8-bit floats one chain emptied
        every 128 elements.

    Returns
    -------
    tuple of GemmOrder
        The simplest first.

    Raises
    ------
    InputError
        If k is no integer of at least 1.

    Examples
    --------
    >>> for order in gemm_orders(100)[:10:3]:
    ...     print(order)
    one chain
    one chain, what is left of tiles of 64 first
    4 contiguous parts of whole 8s, added in turn
    13 contiguous parts of whole 8s, added in turn
    """
    require_int("k", k, 1, _MOST_PRODUCTS)
    require_int("vector", vector, 1)
    require_flags(usual=usual)
    if not isinstance(steps, Iterable) or isinstance(steps, str):
        raise InputError(f"steps must be several numbers, such as (0, 8), got {told(steps)}")
    steps = tuple(steps)
    for step in steps:
        require_int("steps", step, 0)
    tiles = [tile for tile in _TILES if not tile or (k > tile and k % tile)]
    first: dict[object, GemmOrder] = {}

    def add(orders: Iterable[GemmOrder]) -> None:
        for order in orders:
            first.setdefault(order.additions(k), order)

    for tile, step in itertools.product(tiles, steps):
        add([GemmOrder(step=step, tile=tile)])
        if vector == _ACCESS:
            add([GemmOrder(every=128, step=step, tile=tile)])
    for tile, step in itertools.product(_TILES, steps):
        add(_vector_splits(k, step, tile, vector))
    for step in steps:
        add(order for order in _splits(step, 0) if (order.between, order.combine) == _WAYS[0])
    if not usual:
        for known, tile, step in itertools.product((_chains, _splits, _slices), tiles, steps):
            add(known(step, tile))
    return tuple(first.values())


def _vector_splits(k: int, step: int, tile: int, vector: int) -> Iterator[GemmOrder]:
    shares: set[int] = set()
    for parts in range(2, min(_MOST_PARTS, math.ceil(k / vector)) + 1):
        share = math.ceil(math.ceil(k / parts) / vector) * vector
        if share not in shares:
            shares.add(share)
            yield GemmOrder(math.ceil(k / share), share=vector, step=step, tile=tile)


def _chains(step: int, tile: int) -> Iterator[GemmOrder]:
    for every in _EVERY:
        yield GemmOrder(every=every, step=step, tile=tile)


def _splits(step: int, tile: int) -> Iterator[GemmOrder]:
    # The parts are multiples of the kernel's tile.
    for parts, share in itertools.product(_SPLITS, (tile,) if tile else _TILES[1:]):
        for between, combine in _WAYS:
            yield GemmOrder(parts, 0, combine, between, share=share, step=step, tile=tile)


def _slices(step: int, tile: int) -> Iterator[GemmOrder]:
    # The warps of a block share its tile.
    for parts, slab in itertools.product(_SLICES, (8, *_TILES[1:])):
        if tile in (0, parts * slab):
            for between, combine in _WAYS:
                yield GemmOrder(parts, slab, combine, between, step=step, tile=tile)


def predict_matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    arch: str = "hopper",
    order: GemmOrder | None = None,
    dtype: Any = None,
    ab: str | None = None,
    acc: str = "f32",
    family: str | None = None,
) -> Values:
    """Return a @ b with the bits of a library's kernel that adds in this order.

    `tcusim.matmul` has an order of its own, which it keeps for every size; this is for the products
    of others. The order is not known from outside: see `explain_matmul`.

    Parameters
    ----------
    a : array_like (..., m, k)
        Left matrix: float16, bfloat16, float32 (as tf32), an 8-bit float, or values of `ab`. Of
        NumPy, ml_dtypes or torch.
    b : array_like (..., k, n)
        Right matrix, of the same type; 8-bit floats may be of two types.
    arch : str
        Whose arithmetic: an architecture, or a GPU such as ``"h200"``.
    order : GemmOrder, optional
        One chain by default.
    dtype : dtype, optional
        Type of the result; that of `a` by default, and float32 for 8-bit floats.
    ab : str, optional
        Element type of a and b, such as ``"bf16"``, where their array type does not say it; of two
        8-bit floats ``"e5m2.e4m3"``.
    acc : str
        Type of the accumulator: f32, or f16 for float16 matrices.
    family : str, optional
        The instruction, as in `tcusim.mma`. By default that of libraries' large products:
        ``"wgmma"`` on Hopper, ``"tcgen05"`` on Blackwell.

    Returns
    -------
    array (..., m, n) of `dtype`

    Raises
    ------
    InputError
        If the shapes do not fit, or the types are none that a tensor core multiplies.
    UnknownName
        If there is no such architecture or type.
    Unsupported
        If the architecture does not support this, or its arithmetic is unknown.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = (rng.standard_normal((64, 64)).astype(np.float16) for _ in "ab")
    >>> split = GemmOrder(parts=2)
    >>> whole, parts = (predict_matmul(a, b, order=one, dtype=np.float32) for one in (None, split))
    >>> bool((whole == parts).all()), bool(np.allclose(whole, parts, atol=1e-5))
    (False, True)
    """
    (made, *_) = _Product.all_of(a, b, (arch, acc, family), ab, dtype)
    return made.result(GemmOrder() if order is None else order)


def explain_matmul(
    got: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    *,
    arch: str | Sequence[str] = "hopper",
    orders: Sequence[GemmOrder] | None = None,
    ab: str | None = None,
    acc: str = "f32",
    family: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> GemmMatches:
    """Find the summation order and the architecture of a library's product.

    Parameters
    ----------
    got : array_like (m, n)
        The library's product, in the type of the result.
    a, b : array_like (m, k), (k, n)
        Its factors, as in `predict_matmul`.
    arch : str or sequence of str
        Architectures, or GPUs, that may have computed it.
    orders : sequence of GemmOrder, optional
        Orders to try; by default the usual ones of `gemm_orders`, and all of them if none of these
        gives every bit.
    ab, acc : str
        As in `predict_matmul`.
    family : str, optional
        The instruction. By default every instruction with different results is tried, the one that
        libraries use first.
    progress : callable, optional
        Called with the number of orders tried, and the number of all orders.

    Returns
    -------
    GemmMatches
        All that was tried, the best first. A few of the outputs tell most orders apart; those
        that give all of these, or else the nearest, are compared on more, and at last on all.

    Raises
    ------
    InputError
        If `got` is no such product, or as `predict_matmul` does.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b = (rng.standard_normal((64, 256)).astype(np.float16) for _ in "ab")
    >>> order = GemmOrder(parts=4, combine="in pairs")
    >>> got = predict_matmul(a, b.T, arch="a100", order=order, dtype=np.float32)
    >>> print(explain_matmul(got, a, b.T, arch=("v100", "a100", "h100")))
    256 terms of f16, added in f32; 4,096 outputs of f32
    all 4,096 equal: a100, 4 contiguous parts, added in pairs
    ...
    """
    archs = names_of("arch", arch)
    if orders is not None and not (
        isinstance(orders, list | tuple) and all(isinstance(one, GemmOrder) for one in orders)
    ):
        raise InputError(f"orders must be a list of GemmOrder, got {told(orders)}")
    if orders is not None and not orders:
        raise InputError("orders names none to try; leave it out to try the usual ones")
    result = as_array(got, "got")
    given = {"got": result, "a": as_array(a, "a"), "b": as_array(b, "b")}
    _require_got_first(given, by_type=ab is None)
    unit = (acc, family)
    products = [
        one
        for name in archs
        for one in _Product.all_of(a, b, (name, *unit), ab, result.dtype, each=True)
    ]
    if not products:
        raise InputError("arch names no architecture; name those that may have computed it")
    m, n = products[0].shape
    if result.shape != (m, n):
        raise InputError(
            f"got must be the product, of shape ({m}, {n}) for a of {np.shape(a)} and b of "
            f"{np.shape(b)}; its shape is {result.shape}"
        )
    if not result.size or not products[0].k:
        raise InputError(
            f"got {result.shape} of a {np.shape(a)} and b {np.shape(b)} has no output that adds a "
            "term: there is nothing to compare. Give matrices that are not empty"
        )
    found: list[GemmMatch] = []
    for usual in (True, False):
        found = _tried(products, result, orders, usual=usual, progress=progress)
        if orders is not None or found[0].equal == found[0].count:
            break
    first = products[0]
    return GemmMatches(tuple(found), first.k, first.rule.operands, first.rule.acc, first.target)


def _require_got_first(given: dict[str, Values], *, by_type: bool) -> None:
    """Refuse a product and its factors in another order, which shapes tell, or else types.

    by_type: whether types of elements are those of arrays.
    """
    first, *others = itertools.permutations(given)
    if _is_product(*(given[name] for name in first)):
        _, a, b = given.values()
        # Two types of 8 bits are multiplied as well.
        if not by_type or a.dtype.itemsize == b.dtype.itemsize:
            return
        others = [order for order in others if len({given[name].dtype for name in order[1:]}) == 1]
    for order in others:
        if _is_product(*(given[name] for name in order)):
            product, left, right = order
            arrays = ", ".join(f"{name} {one.dtype} {one.shape}" for name, one in given.items())
            raise InputError(
                f"got comes first: explain_matmul(got, a, b). Given are {arrays}: so {product} "
                f"would be the product of {left} and {right}"
            )


def _is_product(got: Values, a: Values, b: Values) -> bool:
    """Return whether the shapes are those of a product and its factors."""
    if not got.ndim == a.ndim == b.ndim == 2:
        return False
    return got.shape == (a.shape[0], b.shape[1]) and a.shape[1] == b.shape[0]


def _tried(
    products: Sequence[_Product],
    got: Values,
    orders: Sequence[GemmOrder] | None,
    *,
    usual: bool,
    progress: Callable[[int, int], object] | None,
) -> list[GemmMatch]:
    """Compare orders with a library's product, on few outputs first, the best first."""
    by_unit = {(one.arch, one.rule.family): one for one in products}
    found = [
        GemmMatch(one.arch, order, 0, 0, one.rule.family)
        for one in products
        for order in (one.orders(usual=usual) if orders is None else orders)
    ]
    most = max(got.shape)
    for size in (*_SAMPLES, most):
        if size < 2 * most:
            found = _compared(found, by_unit, got, size, progress)
            # There are many at first alone.
            progress = None
    return found


def _compared(
    found: list[GemmMatch],
    products: dict[tuple[str, str], _Product],
    got: Values,
    size: int,
    progress: Callable[[int, int], object] | None = None,
) -> list[GemmMatch]:
    """Compare the orders that match so far, or else the nearest, on `samples` rows and columns."""
    right = [match for match in found if match.equal == match.count]
    chosen = right or found[:_NEAREST]
    again: list[GemmMatch] = []
    for (name, family), product in products.items():
        own = [match.order for match in chosen if (match.arch, match.family) == (name, family)]
        for order, equal, count in product.compare(got, own, size):
            again.append(GemmMatch(name, order, equal, count, family))
            if progress is not None:
                progress(len(again), len(chosen))
    # The sort is stable: of equals the first is the simplest.
    again.sort(key=lambda match: match.count - match.equal)
    return again + found[len(chosen) :]


@dataclass(frozen=True, slots=True)
class GemmMatch:
    """The number of outputs that an order reproduces to the bit.

    Attributes
    ----------
    arch : str
        The architecture that computed the products.
    order : GemmOrder
        The order.
    equal, count : int
        Equal outputs, and compared outputs.
    family : str
        The instruction, where the architecture's instructions differ.
    """

    arch: str
    order: GemmOrder
    equal: int
    count: int
    family: str = ""

    @property
    def name(self) -> str:
        """The architecture and the order."""
        by = f" ({self.family})" if self.family else ""
        return f"{self.arch}{by}, {self.order}"

    def __str__(self) -> str:
        some = "all" if self.equal == self.count else f"{self.equal:,} of"
        return f"{some} {self.count:,} equal: {self.name}"


@dataclass(frozen=True, slots=True)
class GemmMatches:
    """The trials of `explain_matmul`; it prints as a table of the best.

    Attributes
    ----------
    tried : tuple of GemmMatch
        The best first.
    k : int
        Terms of an output.
    ab, acc, result : str
        Element types of the operands, of the accumulator and of the result.
    """

    tried: tuple[GemmMatch, ...]
    k: int
    ab: str
    acc: str
    result: str

    @property
    def best(self) -> GemmMatch:
        """The summation order that matches the most outputs."""
        return self.tried[0]

    @property
    def exact(self) -> tuple[GemmMatch, ...]:
        """All that give every bit, the simplest first.

        More than one if these outputs, by chance or by their type, do not tell them apart.
        """
        return tuple(match for match in self.tried if match.equal == match.count)

    def to_dict(self) -> dict[str, Any]:
        """Return all as JSON takes it."""
        tried = [
            {
                "arch": one.arch,
                "family": one.family,
                "order": str(one.order),
                "equal": one.equal,
                "count": one.count,
            }
            for one in self.tried
        ]
        return {"k": self.k, "ab": self.ab, "acc": self.acc, "result": self.result, "tried": tried}

    def __str__(self) -> str:
        lines = [
            f"{self.k:,} terms of {self.ab}, added in {self.acc}; "
            f"{self.best.count:,} outputs of {self.result}",
            str(self.best),
        ]
        if len(self.exact) > 1:
            lines.append("these outputs do not tell it from:")
            lines += [f"  {one.name}" for one in self.exact[1:9]]
            if len(self.exact) > 9:
                lines.append(f"  and {len(self.exact) - 9} more")
        others = [one for one in self.tried[1:] if one.equal < one.count][:5]
        if others:
            lines.append("the next, with the share of the outputs looked at that are equal:")
            lines += [f"  {one.equal / one.count:6.2%}  {one.name}" for one in others]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Product:
    """Two matrices as values, and the arithmetic that multiplies them.

    target: the result's type. arch: the user's name for it. tf32: the libraries' conversion of
    float32 operands; `a` and `b` are not converted yet.
    """

    a: Values
    b: Values
    rule: Rule
    target: str
    arch: str
    tf32: Tf32

    @classmethod
    def all_of(
        cls,
        a: ArrayLike,
        b: ArrayLike,
        unit: tuple[str, str, str | None],
        ab: str | None,
        dtype: Any,
        *,
        each: bool = False,
    ) -> list[_Product]:
        """Check the operands, for the named instruction, or the library's, or each that differs.

        unit: architecture, accumulator and family.
        """
        name, acc, family = unit
        require_names(ab=ab, acc=acc, family=family)
        left, right = as_array(a, "a"), as_array(b, "b")
        types = ab or _operands_of(left, right)
        arch = arch_of(name)
        rules: Sequence[Rule]
        if family is not None:
            rules = [rule_of(arch, types, acc, family)]
        else:
            rules = library_rules(arch, types, acc)[: None if each else 1]
        rule = rules[0]
        target = _result_type(rule, left, dtype)
        # The order determines the conversion of float32 operands.
        as_is = [one if one != "tf32" else "f32" for one in (rule.ab, rule.right)]
        left, right = (
            as_values(x, fmt, name=called)
            for x, fmt, called in zip((left, right), as_is, "ab", strict=True)
        )
        if min(left.ndim, right.ndim) < 2 or left.shape[-1] != right.shape[-2]:
            raise InputError(
                f"a must be (..., m, k) and b (..., k, n), with the same k; got {left.shape} and "
                f"{right.shape}"
            )
        return [cls(left, right, rule, target, name, arch.tf32) for rule in rules]

    @property
    def k(self) -> int:
        """Terms of an output."""
        return int(self.a.shape[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the result; one product alone."""
        if self.a.ndim != 2 or self.b.ndim != 2:
            raise InputError("explain_matmul takes one product: a (m, k) and b (k, n)")
        return self.a.shape[0], self.b.shape[1]

    def orders(self, *, usual: bool = False) -> list[GemmOrder]:
        """Return the orders that kernels for this product may have; usual: as of `gemm_orders`."""
        own = self.rule.how.length if isinstance(self.rule.how, Fused) else 0
        steps = _STEPS.get(format_of(self.rule.ab).itemsize, ())
        others = [step for step in steps if step < own and self.takes_steps]
        vector = _ACCESS // format_of(self.rule.ab).itemsize
        orders = gemm_orders(self.k, steps=(0, *others), vector=vector, usual=usual)
        if self.target == self.rule.acc:
            # To round to the type that the parts have already is nothing.
            orders = tuple(order for order in orders if order.between == "accumulator")
        return [replace(order, operands=how) for how in self.conversions() for order in orders]

    def conversions(self) -> list[Tf32 | Literal[""]]:
        """Return the ways to convert the operands that give others than those before."""
        ways: list[Tf32 | Literal[""]] = [""]
        if self.rule.ab != "tf32":
            return ways
        seen = [self.operands(self.tf32)]
        for how in TF32:
            made = self.operands(how)
            if not any(all(map(np.array_equal, made, other)) for other in seen):
                seen.append(made)
                ways.append(how)
        return ways

    def operands(self, how: Tf32) -> tuple[Values, Values]:
        """Return the operands as the instruction takes them."""
        if self.rule.ab != "tf32":
            return self.a, self.b
        return round_to_tf32(self.a, how), round_to_tf32(self.b, how)

    def compare(
        self, got: Values, orders: Sequence[GemmOrder], size: int
    ) -> Iterator[tuple[GemmOrder, int, int]]:
        """Yield the number of equal outputs and of all outputs, in a sample of rows and columns."""
        rows, columns = (spread(each, size) for each in self.shape)
        seen = np.ascontiguousarray(got[np.ix_(rows, columns)])
        part = replace(self, a=self.a[rows], b=self.b[:, columns])
        bits = np.dtype(f"u{seen.itemsize}")
        # Orders that differ only in how they add their parts follow each other.
        layout: object = None
        sums: list[Values] = []
        for order in orders:
            own = replace(order, combine="in turn", between="accumulator")
            if own != layout:
                layout, sums = own, part.sums(order)
            found = np.ascontiguousarray(part.joined(sums, order))
            yield order, int((found.view(bits) == seen.view(bits)).sum()), seen.size

    def result(self, order: GemmOrder) -> Values:
        """Return the product as a user's array."""
        if not isinstance(order, GemmOrder):
            raise InputError(
                f"an order must be a GemmOrder, such as GemmOrder(parts=4), got {told(order)}"
            )
        return self.joined(self.sums(order), order)

    @property
    def takes_steps(self) -> bool:
        """Whether the arithmetic sums some products and c at once, so that it can sum fewer."""
        how = self.rule.how
        return isinstance(how, Fused) and not how.register_halves and how.c_joins == "sum"

    def sums(self, order: GemmOrder) -> list[Values]:
        """Return the sum of each part, in the accumulator's type."""
        rule = self.rule
        if order.step:
            if not isinstance(rule.how, Fused) or not self.takes_steps:
                raise InputError(
                    f"GemmOrder.step is for arithmetic that sums products and c at once; "
                    f"{rule.operands} in {rule.acc} is not summed so here"
                )
            rule = replace(rule, how=replace(rule.how, length=order.step))
        if order.operands and rule.ab != "tf32":
            raise InputError(
                f"GemmOrder.operands is for float32 operands, which become tf32; these are "
                f"{rule.operands}"
            )
        a, b = self.operands(order.operands or self.tf32)
        every = order.every
        parts = order._places(self.k) or [np.arange(0)]
        pieces = [
            [part[at : at + every] for at in range(0, part.size, every)] if every else [part]
            for part in parts
        ]
        sums = iter(_chains_of(a, b, [piece for part in pieces for piece in part], rule))
        with np.errstate(all="ignore"):
            return [functools.reduce(operator.add, itertools.islice(sums, len(p))) for p in pieces]

    def joined(self, sums: list[Values], order: GemmOrder) -> Values:
        """Return the result of parts with these sums, as a user's array."""
        acc = format_of(self.rule.acc)
        if order.between == "result":
            sums = [round_values(round_values(one, self.target), acc) for one in sums]
        with np.errstate(all="ignore"):
            while len(sums) > 1:
                if order.combine == "in turn":
                    sums = [sums[0] + sums[1], *sums[2:]]
                else:
                    pairs = zip(sums[::2], sums[1::2], strict=False)
                    last = sums[-1:] if len(sums) % 2 else []
                    sums = [one + other for one, other in pairs] + last
        total = canonical_nan(round_values(sums[0].copy(), self.target), self.target)
        return from_values(total, self.target)


def _chains_of(
    a: Values, b: Values, chains: list[NDArray[np.intp]], rule: Rule
) -> Iterator[Values]:
    """Yield the sum of each chain of terms, in the accumulator's type; -1 is a product of zeros.

    Chains of one length that follow each other are multiplied together, so many at a time.
    """
    outputs = math.prod(a.shape[:-1]) * b.shape[-1]
    for size, alike in itertools.groupby(chains, key=len):
        for several in _batches(alike, max(1, _TOGETHER // max(1, outputs + size))):
            if len(several) == 1:
                # As it lies, for whole products.
                (places,) = several
                yield mma_values(*_terms(a, b, places), None, rule)
                continue
            left, right = zip(*(_terms(a, b, places) for places in several), strict=True)
            yield from mma_values(np.stack(left), np.stack(right), None, rule)


def _batches(
    chains: Iterable[NDArray[np.intp]], most: int
) -> Iterator[tuple[NDArray[np.intp], ...]]:
    left = iter(chains)
    while several := tuple(itertools.islice(left, most)):
        yield several


def _terms(a: Values, b: Values, places: NDArray[np.intp]) -> tuple[Values, Values]:
    """Return the operands of these terms; zeros for -1."""
    if places.size == a.shape[-1] and bool((np.diff(places) == 1).all()):
        return a, b
    left, right = a[..., places], b[..., places, :]
    if (places < 0).any():
        left[..., places < 0] = 0
        right[..., places < 0, :] = 0
    return left, right


def _operands_of(a: Values, b: Values) -> str:
    """Return the types by which a tensor core multiplies arrays of these types."""
    name, other = a.dtype.name, BY_ARRAY_NAME.get(b.dtype.name)
    found = (
        "tf32" if name == "float32" else BY_ARRAY_NAME[name].name if name in BY_ARRAY_NAME else ""
    )
    if not found or not format_of(found).is_float or found == "f64":
        raise InputError(
            f"a has elements of {name}, by which no tensor core multiplies floats. Give float16, "
            f"bfloat16, float32 or 8-bit floats, or name the type as ab="
        )
    if other is not None and other.is_float and other.itemsize == format_of(found).itemsize == 1:
        return f"{found}.{other.name}"
    return found


def _result_type(rule: Rule, a: Values, dtype: Any) -> str:
    """Return the element type of the result."""
    if not format_of(rule.ab).is_float:
        raise InputError(
            f"sums of products of {rule.ab} are exact in every order, and none is to be told; "
            "tcusim.matmul has their bits"
        )
    wide = dtype is None and format_of(rule.ab).itemsize == 1
    name = "float32" if wide else array_name_of(a.dtype if dtype is None else dtype)
    found: Format | None = BY_ARRAY_NAME.get(name)
    if found is None or not found.is_float:
        raise InputError(
            f"the result cannot be of {name}: no tensor core's product is rounded to it. Take a "
            "float type"
        )
    return found.name


def spread(size: int, most: int) -> NDArray[np.intp]:
    """Return at most `most` evenly spaced numbers below `size`, the first and the last included."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).astype(np.intp))
