"""In which order a library's products are added: random calls, explained to the bit.

The products are torch's on a GPU. `tcusim.explain_matmul` tries the orders that libraries are known
to use, in processes beside each other. All bytes of a result have to be right.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

import tcusim
from tcusim.errors import BackendUnavailable
from tcusim.machine.formats import Values
from tcusim_bench.latency import imported
from tcusim_cuda.driver import Driver, arch_name, device_sm

__all__ = ["KINDS", "Call", "Explained", "Report", "calls", "orders"]

# Operands and results, by their array types.
KINDS: Final = (
    ("float16", "float16"),
    ("float16", "float32"),
    ("bfloat16", "bfloat16"),
    ("bfloat16", "float32"),
    ("float32", "float32"),
)
# Rows and columns, and terms: powers of two between which they are drawn.
_SIDE: Final = (4.0, 10.0)
_TERMS: Final = (4.0, 13.0)
# More multiply-adds would take a process too long.
_MOST_WORK: Final = 2**29
# Orders of kernels that use no tensor core.
_WITHOUT: Final = (tcusim.GemmOrder(), *(tcusim.GemmOrder(parts) for parts in (2, 4, 8, 16)))
# Rows and columns of which outputs are kept where no order is found.
_KEPT: Final = 12
# Ends of the ranges of k in the table.
_RANGES: Final = (64, 256, 1024, 4096, 16384)

Say = Callable[[str], None]
Multiply = Callable[["Call", Values, Values], Values]


@dataclass(frozen=True, slots=True)
class Call:
    """A product to ask for: m x k by k x n, of one type, with results of another."""

    m: int
    n: int
    k: int
    dtype: str
    result: str
    seed: int

    def operands(self) -> tuple[Values, Values]:
        """Return normal numbers, of the call's type; those of bfloat16 as float32."""
        rng = np.random.default_rng((self.seed, self.m, self.n, self.k))
        shapes = (self.m, self.k), (self.k, self.n)
        a, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
        if self.dtype == "float16":
            return a.astype(np.float16), b.astype(np.float16)
        keep = np.uint32(0xFFFF0000 if self.dtype == "bfloat16" else 0xFFFFE000)
        a, b = ((each.view(np.uint32) & keep).view(np.float32) for each in (a, b))
        return a, b

    @property
    def ab(self) -> str:
        """Return the type by which a tensor core multiplies."""
        return {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}[self.dtype]


@dataclass(frozen=True, slots=True)
class Explained:
    """The order that gives the bytes of a call, or most of them: equal of so many outputs.

    arch: whose arithmetic; "ieee" is that of a core without a tensor core. others: more orders that
    give all bytes. seen: of what no order gives, a few outputs as bits, by (row, column).
    """

    call: Call
    arch: str
    order: str
    one_chain: bool
    equal: int
    count: int
    others: int
    seen: dict[str, str] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether all bytes are predicted."""
        return self.equal == self.count


@dataclass(slots=True)
class Report:
    """Calls and their orders, with the GPU and the library that computed them."""

    gpu: str
    arch: str
    versions: dict[str, str]
    rows: list[Explained] = field(default_factory=list)
    left: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"format": "tcusim orders 1", **asdict(self)}

    def text(self) -> str:
        """Return a table by k, and what no order explains."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [f"{self.gpu}; {versions}; arithmetic of {self.arch}", ""]
        lines.append(
            f"{'k':>11}  {'calls':>5}  {'one chain':>9}  {'other order':>11}  {'not known':>9}"
        )
        least = 1
        for most in _RANGES:
            rows = [row for row in self.rows if least <= row.call.k <= most]
            if rows:
                lines.append(f"{f'{least}..{most}':>11}  {_counts(rows)}")
            least = most + 1
        lines.append(f"{'all':>11}  {_counts(self.rows)}")
        lines += [
            f"{row.call.m} x {row.call.k} by {row.call.k} x {row.call.n}, {row.call.dtype} to "
            f"{row.call.result}: {row.count - row.equal:,} of {row.count:,} differ from {row.order}"
            for row in self.rows
            if not row.right
        ]
        if self.left:
            lines.append(f"{self.left} calls were left when the time was over")
        return "\n".join(lines)


def _counts(rows: Iterable[Explained]) -> str:
    known = [row for row in rows if row.right]
    chains = sum(row.one_chain for row in known)
    total = len(list(rows))
    cells = (
        f"{total:>5}",
        f"{chains:>9}",
        f"{len(known) - chains:>11}",
        f"{total - len(known):>9}",
    )
    return "  ".join(cells)


def calls(count: int, seed: int = 0) -> Iterator[Call]:
    """Yield random calls; the sizes of half of them are multiples of 8, as libraries like them."""
    rng = np.random.default_rng(seed)
    found = 0
    while found < count:
        sides = [2.0 ** rng.uniform(*_SIDE) for _ in "mn"]
        step = int(rng.choice([1, 8]))
        m, n, k = (step * math.ceil(x / step) for x in (*sides, 2.0 ** rng.uniform(*_TERMS)))
        dtype, result = KINDS[found % len(KINDS)]
        if m * n * k <= _MOST_WORK:
            yield Call(m, n, k, dtype, result, seed)
            found += 1


def orders(
    count: int = 200,
    seed: int = 0,
    *,
    jobs: int | None = None,
    seconds: float | None = None,
    say: Say | None = None,
) -> Report:
    """Ask torch for random products on this machine's GPU, and explain each.

    Raises BackendUnavailable without a GPU or torch.
    """
    driver, torch = Driver.open(), imported("torch")
    if torch is None or not torch.cuda.is_available():
        raise BackendUnavailable("the products are torch's. Install a torch that has CUDA")
    sm = device_sm()
    arch = arch_name(sm)
    if arch is None:
        raise BackendUnavailable(f"the arithmetic of sm_{sm} is not known")
    versions = {"tcusim": tcusim.__version__, "torch": torch.__version__}
    report = Report(driver.title(0), arch, versions)
    asked = list(calls(count, seed))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        _explain_all(report, asked, partial(_torch_product, torch), pool, seconds, say)
    return report


def _explain_all(
    report: Report,
    asked: list[Call],
    multiply: Multiply,
    pool: Any,
    seconds: float | None,
    say: Say | None,
) -> None:
    """Explain calls within the time; what takes longest begins first."""
    until = math.inf if seconds is None else time.monotonic() + seconds
    asked = sorted(asked, key=lambda call: -call.m * call.n * call.k)
    waiting = {}
    for call in asked:
        a, b = call.operands()
        waiting[pool.submit(explained, call, multiply(call, a, b), report.arch)] = call
    try:
        for done in as_completed(waiting, None if seconds is None else until - time.monotonic()):
            report.rows.append(done.result())
            if say is not None:
                row = report.rows[-1]
                say(f"{len(report.rows)} of {len(asked)}: {row.equal} of {row.count}, {row.order}")
    except TimeoutError:
        pool.shutdown(wait=False, cancel_futures=True)
    report.rows.sort(key=lambda row: (row.call.dtype, row.call.result, row.call.k, row.call.m))
    report.left = len(asked) - len(report.rows)


def explained(call: Call, got: Values, arch: str) -> Explained:
    """Return the order of a call's result."""
    a, b = call.operands()
    found = tcusim.explain_matmul(got, a, b, arch=arch, ab=call.ab)
    if not found.exact:
        # Kernels for the other units of a core add product by product.
        plain = tcusim.explain_matmul(got, a, b, arch="ieee", ab=call.ab, orders=_WITHOUT)
        found = max(found, plain, key=lambda each: each.best.equal)
    best, others = found.best, len(found.exact) - 1
    one_chain = best.order.parts == 1 and not best.order.every
    seen = {} if found.exact else _seen(got)
    equal = best.equal, best.count, max(others, 0)
    return Explained(call, best.arch, str(best.order), one_chain, *equal, seen)


def _seen(got: Values) -> dict[str, str]:
    """Return some outputs as bits, by which an order may be found without the GPU."""
    places = (
        np.unique(np.linspace(0, size - 1, min(size, _KEPT)).astype(int)) for size in got.shape
    )
    bits = np.ascontiguousarray(got).view(f"u{got.itemsize}")
    return {
        f"{row},{column}": f"{bits[row, column]:0{2 * got.itemsize}x}"
        for row, column in itertools.product(*places)
    }


def _torch_product(torch: Any, call: Call, a: Values, b: Values) -> Values:
    """Return torch's product; of float32 matrices by tf32."""
    dtype, result = getattr(torch, call.dtype), getattr(torch, call.result)
    left, right = (torch.from_numpy(each).to("cuda", dtype) for each in (a, b))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        more = {} if result is dtype else {"out_dtype": result}
        product = torch.mm(left, right, **more).cpu()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    if call.result == "bfloat16":
        ml_dtypes = imported("ml_dtypes")
        if ml_dtypes is None:
            raise BackendUnavailable("bfloat16 results need ml_dtypes: pip install 'tcusim[bf16]'")
        return np.asarray(product.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(product.numpy())
