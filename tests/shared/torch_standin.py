"""As much of torch, eager and on the CPU, as `tcusim.torch` needs to compute values: NumPy does it.

`tcusim.torch` itself, and the simulator, are the real ones. The rest of torch is missing: autograd,
compilation, vmap and devices. A tensor that asks for a gradient goes the way that torch records.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import ml_dtypes
import numpy as np

import tcusim

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_OTHERS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("complex64", "complex128"),
)


@dataclass(frozen=True)
class DType:
    """A type of elements; str(it) is as in torch."""

    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"

    __repr__ = __str__

    @property
    def is_floating_point(self) -> bool:
        return self.name in _FLOATS

    @property
    def is_complex(self) -> bool:
        return self.name.startswith("complex")

    @property
    def of_numpy(self) -> np.dtype[Any]:
        return np.dtype(ml_dtypes.bfloat16 if self.name == "bfloat16" else self.name)


class Device(NamedTuple):
    """Where a tensor is."""

    type: str


def _computed(function: Callable[..., Any], *given: Any, **more: Any) -> Tensor:
    """Return a tensor of NumPy's result; a Python number has the type of the tensors."""
    tensors = [one for one in given if isinstance(one, Tensor)]
    # Neither library of the two warns where the other does.
    with np.errstate(all="ignore"):
        values = [
            one.values if isinstance(one, Tensor) else np.asarray(one, tensors[0].values.dtype)
            for one in given
        ]
        result = Tensor(function(*values, **more))
    result.requires_grad = any(one.requires_grad for one in tensors)
    return result


class Tensor:
    """A NumPy array, with torch's words."""

    is_cuda = is_meta = is_nested = requires_grad = False
    layout = "torch.strided"
    device = Device("cpu")

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, DType(self.values.dtype.name)

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.values.__dlpack_device__()

    def __add__(self, other: Any) -> Tensor:
        return _computed(operator.add, self, other)

    def __sub__(self, other: Any) -> Tensor:
        return _computed(operator.sub, self, other)

    def __mul__(self, other: Any) -> Tensor:
        return _computed(operator.mul, self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return _computed(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _computed(lambda values, by: by / values, self, other)

    def dim(self) -> int:
        return self.values.ndim

    def numel(self) -> int:
        return self.values.size

    def is_neg(self) -> bool:
        return False

    _is_zerotensor = is_neg

    def numpy(self) -> Any:
        return self.values

    def item(self) -> Any:
        return self.values.item()

    def requires_grad_(self) -> Tensor:
        self.requires_grad = True
        return self

    def detach(self) -> Tensor:
        return Tensor(self.values)

    def contiguous(self) -> Tensor:
        return _computed(np.ascontiguousarray, self) if self.dim() else self

    def to(self, dtype: DType) -> Tensor:
        return _computed(lambda values: values.astype(dtype.of_numpy), self)

    def exp_(self) -> Tensor:
        self.values[...] = _computed(np.exp, self).values
        return self

    def float(self) -> Tensor:
        return self.to(DType("float32"))

    def view(self, dtype: DType) -> Tensor:
        return Tensor(self.values.view(dtype.of_numpy))

    def reshape(self, *shape: Any) -> Tensor:
        return _computed(lambda values: values.reshape(*shape), self)

    def flatten(self, start: int = 0) -> Tensor:
        return self.reshape(*self.shape[:start], -1)

    def squeeze(self, axes: tuple[int, ...]) -> Tensor:
        # A tensor without axes has them, in torch.
        return _computed(lambda values: values.squeeze(axes if self.dim() else ()), self)

    def new_zeros(self, shape: Any) -> Tensor:
        return Tensor(np.zeros(shape, self.values.dtype))

    def new_full(self, shape: Any, value: Any) -> Tensor:
        return Tensor(np.full(shape, value, self.values.dtype))


# By this and its name the package knows torch's class.
Tensor.__module__ = DType.__module__ = "torch"


def _tensor(values: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    # torch's numbers are float32, unless they are asked for otherwise.
    with np.errstate(all="ignore"):
        return Tensor(np.asarray(values, (dtype or DType("float32")).of_numpy))


def _amax(input: Tensor, dim: int | tuple[int, ...], keepdim: bool) -> Tensor:
    return _computed(np.max, input, axis=dim if input.dim() else None, keepdims=keepdim)


def _into(
    function: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor, out: Tensor | None
) -> Tensor:
    found = function(left, right)
    if out is None:
        return found
    out.values[...] = found.values.astype(out.values.dtype)
    return out


def _empty_like(input: Tensor, dtype: DType | None = None) -> Tensor:
    return Tensor(np.empty_like(input.values, dtype=(dtype or input.dtype).of_numpy))


def _finfo(dtype: DType) -> SimpleNamespace:
    about: Any = ml_dtypes.finfo(dtype.of_numpy)  # type: ignore[no-untyped-call]
    return SimpleNamespace(eps=float(about.eps), max=float(about.max))


class _Library:
    """Operators; only their kernels are kept."""

    def __init__(self, ops: SimpleNamespace) -> None:
        self.ops = ops

    def define(self, schema: str) -> None:
        pass

    def impl(self, name: str, kernel: Callable[..., Any], device: str) -> None:
        setattr(self.ops, name, SimpleNamespace(default=kernel))


def _modules() -> dict[str, ModuleType]:
    """Return the modules of torch that `tcusim.torch` imports."""
    ops = SimpleNamespace()
    contents: dict[str, dict[str, Any]] = {
        "torch": _names_of_torch()
        | {
            "ops": SimpleNamespace(tcusim=ops, aten=MagicMock()),
            "library": MagicMock(Library=lambda name, kind: _Library(ops)),
        },
        "torch.compiler": {"is_compiling": lambda: False, "assume_constant_result": lambda f: f},
        "torch.autograd": {
            "forward_ad": SimpleNamespace(_current_level=-1),
            "Function": type("Function", (), {}),
        },
        "torch.utils": {},
        "torch.utils._python_dispatch": {"TorchDispatchMode": type("TorchDispatchMode", (), {})},
    }
    modules = {name: ModuleType(name) for name in contents}
    for name, module in modules.items():
        vars(module).update(contents[name])
        above, _, last = name.rpartition(".")
        if above:
            setattr(modules[above], last, module)
    return modules


def _names_of_torch() -> dict[str, Any]:
    return {
        **{name: DType(name) for name in (*_FLOATS, *_OTHERS)},
        **{name: type(name, (), {}) for name in ("SymInt", "SymFloat")},
        "Tensor": Tensor,
        "nn": SimpleNamespace(Parameter=type("Parameter", (Tensor,), {})),
        "dtype": DType,
        "device": Device,
        "strided": "torch.strided",
        "jagged": "torch.jagged",
        "_C": SimpleNamespace(
            _is_any_autocast_enabled=lambda: False,
            _len_torch_dispatch_stack=lambda: 0,
            _functorch=SimpleNamespace(peek_interpreter_stack=lambda: None),
        ),
        "is_grad_enabled": lambda: True,
        "tensor": _tensor,
        "asarray": Tensor,
        "from_numpy": Tensor,
        "finfo": _finfo,
        "exp": lambda input: _computed(np.exp, input),
        "log": lambda input: _computed(np.log, input),
        "isfinite": lambda input: _computed(np.isfinite, input),
        "zeros_like": lambda input: _computed(np.zeros_like, input),
        "where": lambda *given: _computed(np.where, *given),
        "amax": _amax,
        "div": lambda left, right, out=None: _into(operator.truediv, left, right, out),
        "sub": lambda left, right, out=None: _into(operator.sub, left, right, out),
        "empty_like": _empty_like,
    }


def _is_ours(name: str) -> bool:
    return name == "torch" or name.startswith(("torch.", "tcusim.torch"))


@contextmanager
def standing_in() -> Iterator[Any]:
    """Have the stand-in imported as torch; yield `tcusim.torch`, imported above it."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_ours(name)}
    package = vars(tcusim).pop("torch", None)
    sys.modules.update(_modules())
    try:
        yield importlib.import_module("tcusim.torch")
    finally:
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        vars(tcusim).pop("torch", None)
        if package is not None:
            vars(tcusim)["torch"] = package
