"""Calls of tcusim.torch, .jax and .dask, drawn with arrays on the CPU: the core's bits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tcusim
from asked import asked
from drawn import (
    BFLOAT16,
    FLOATS,
    LENGTHS,
    ODD,
    Array,
    Drawn,
    pick,
    require_sentence,
    shown,
    values,
)
from tcusim.errors import InputError

# The core's names, and a library's.
TORCH = {
    "sum": "sum", "cumsum": "cumsum", "segmented_sum": "segment_sum",
    "segmented_cumsum": "segment_cumsum", "segmented_mean": "segment_mean",
    "segmented_max": "segment_max", "segmented_min": "segment_min",
}  # fmt: skip
JAX = {"sum": "sum", "cumsum": "cumsum"}
DASK = {name: name for name in ("sum", "cumsum", "segmented_sum", "segmented_cumsum")}
CALLS = {"torch": TORCH, "jax": JAX, "dask": DASK}


@dataclass
class Twin(Drawn):
    """A call of the core, and the same one of a library; odd: an argument that has no place."""

    name: str
    core: Callable[[], Any]
    library: Callable[[], Any]
    back: Callable[[Any], Array]
    text: str
    odd: str = ""

    def __repr__(self) -> str:
        """Show the call."""
        return self.text


@st.composite
def twins(draw: st.DrawFn, library: str, name: str) -> Twin:
    """Draw a call of a function that the core and a library both have."""
    types = FLOATS if library == "dask" else [one for one in FLOATS if one != np.float64]
    given = draw(st.sampled_from(list(types)))
    lead = draw(st.sampled_from(((), (), (3,), (2, 2))))
    length = draw(st.sampled_from([n for n in LENGTHS if n]))
    family = draw(st.sampled_from(("floats", "small", "special")))
    x = np.asarray(values(draw, (*lead, length), given, family))
    axis = draw(st.integers(0, x.ndim - 1))
    x = np.moveaxis(x, -1, axis)
    keywords: dict[str, Any] = {"axis": axis}
    if dtype := pick(draw, None, types):
        keywords["dtype"] = dtype
    if "segmented" in name:
        _segments(draw, length, keywords)
    if "cum" in name:
        keywords |= {flag: True for flag in ("exclusive", "reverse") if draw(st.booleans())}
        if draw(st.booleans()):
            keywords["initial"] = draw(st.sampled_from((1, -2.5, 0.1)))
    elif name == "sum":
        keywords |= {"keepdims": True} if draw(st.booleans()) else {}
    if name.endswith(("max", "min")):
        keywords.pop("dtype", None)
    odd = ""
    theirs = dict(keywords)
    if pick(draw, False, (True,), 6):
        odd = draw(st.sampled_from(sorted(theirs)))
        theirs[odd] = draw(st.sampled_from(ODD))
    there, call, back = _LIBRARIES[library](draw, x, name, theirs, odd)
    more = "".join(f", {key}={shown(value)}" for key, value in theirs.items())
    text = f"tcusim.{library}.{CALLS[library][name]}({shown(x)}{more})"
    own = getattr(tcusim, name)
    return Twin(name, lambda: own(x, **asked(**keywords)), lambda: call(there), back, text, odd)


def _segments(draw: st.DrawFn, length: int, keywords: dict[str, Any]) -> None:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    how = draw(st.sampled_from(("size", "offsets", "ids")))
    edges = np.concatenate([[0], np.sort(rng.integers(0, length + 1, 4)), [length]])
    if how == "size":
        keywords["segments"] = draw(st.integers(1, length))
    elif how == "offsets":
        keywords["segments"] = edges
    else:
        ids = np.repeat(np.arange(5), np.diff(edges))
        sort = draw(st.booleans())
        ids = rng.permutation(ids) if sort else ids
        keywords["segments"] = tcusim.Segments(ids=ids, count=5, sort=sort)


def _torch(draw: st.DrawFn, x: Array, name: str, keywords: dict[str, Any], odd: str) -> Any:
    torch = importlib.import_module("torch")
    module = importlib.import_module("tcusim.torch")
    words = {"axis": "dim", "keepdims": "keepdim"}

    def tensor(a: Array) -> Any:
        if a.dtype == BFLOAT16:
            return torch.from_numpy(np.array(a).view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(np.array(a))

    there = tensor(x)
    if draw(st.booleans()) and x.ndim > 1:
        there = tensor(x.T.copy()).permute(*reversed(range(x.ndim)))
    given = {}
    for key, value in keywords.items():
        if key == odd:
            given[words.get(key, key)] = value
        elif isinstance(value, np.ndarray):
            given[key] = torch.from_numpy(value)
        elif isinstance(value, tcusim.Segments):
            ids = torch.from_numpy(value.ids)
            given[key] = tcusim.Segments(ids=ids, count=value.count, sort=value.sort)
        else:
            is_type = key == "dtype"
            given[words.get(key, key)] = getattr(torch, np.dtype(value).name) if is_type else value

    def back(a: Any) -> Array:
        if a.dtype == torch.bfloat16:
            bits: Array = a.contiguous().view(torch.int16).numpy()
            return bits.view(BFLOAT16)
        return np.asarray(a.numpy())

    return there, lambda a: getattr(module, TORCH[name])(a, **given), back


def _jax(draw: st.DrawFn, x: Array, name: str, keywords: dict[str, Any], odd: str) -> Any:
    numpy = importlib.import_module("jax.numpy")
    module = importlib.import_module("tcusim.jax")
    return numpy.asarray(x), lambda a: getattr(module, JAX[name])(a, **keywords), np.asarray


def _dask(draw: st.DrawFn, x: Array, name: str, keywords: dict[str, Any], odd: str) -> Any:
    dask = importlib.import_module("dask.array")
    module = importlib.import_module("tcusim.dask")
    # One to three chunks along each axis.
    chunks = tuple(-(-size // draw(st.integers(1, 3))) for size in x.shape)
    there = dask.from_array(x, chunks=chunks)
    return there, lambda a: getattr(module, name)(a, **keywords), lambda a: np.asarray(a.compute())


_LIBRARIES: dict[str, Callable[..., Any]] = {"torch": _torch, "jax": _jax, "dask": _dask}


def check_twin(twin: Twin) -> str:
    """Compare the bits of a library's call with those of the core's; an odd one may be refused."""
    try:
        found = twin.back(twin.library())
    # JAX itself refuses values that cannot be constants of a trace.
    except (InputError, ValueError) as error:
        why = str(error)
    else:
        why = ""
    if why:
        assert twin.odd, f"{twin}: a valid call was refused: {why}"
        require_sentence(why)
        return "refused"
    if not twin.odd:
        with np.errstate(all="ignore"):
            expected = np.asarray(twin.core())
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), repr(twin)
        # Each library has a NaN of its own, and either zero as the extreme of both.
        plus = 0.0 if twin.name.endswith(("max", "min")) else -0.0
        bits = [
            np.where(np.isnan(one), one.dtype.type(np.nan), one + one.dtype.type(plus))
            for one in (found, expected)
        ]
        assert bits[0].tobytes() == bits[1].tobytes(), repr(twin)
    return "returned"
