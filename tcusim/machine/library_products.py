"""The order of additions in a library's products: random calls, captured on a GPU, then explained.

The products are torch's. `captured` asks a GPU for them, which takes seconds, and keeps a digest of
each result with some of its outputs. `judged` needs no GPU: it predicts each product by the default
call, or else searches the orders that libraries are known to use, in several processes. All bytes
of a result have to be right.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import math
import multiprocessing
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tcusim.errors import BackendUnavailable, InputError, TcusimError
from tcusim.machine.convert import from_values
from tcusim.machine.formats import Values, format_of, from_memory, round_values
from tcusim.machine.gemm_orders import GemmOrder, explain_matmul, predict_matmul, spread
from tcusim.machine.registry import arches
from tcusim.records import of_json
from tcusim.table import Table, Tabular

# Element types of a, of b and of the result, and whether 8-bit floats are added the fast way.
KINDS: Final = (
    ("f32", "f32", "f32", False),
    ("f16", "f16", "f16", False),
    ("e4m3", "e4m3", "bf16", True),
    ("e5m2", "e4m3", "bf16", False),
    ("f32", "f32", "f32", False),
    ("f16", "f16", "f32", False),
    ("e4m3", "e4m3", "f32", False),
    ("e5m2", "e4m3", "f32", True),
    ("f32", "f32", "f32", False),
    ("bf16", "bf16", "bf16", False),
    ("e4m3", "e4m3", "bf16", False),
    ("e5m2", "e4m3", "bf16", True),
    ("f32", "f32", "f32", False),
    ("bf16", "bf16", "f32", False),
    ("e4m3", "e4m3", "f32", True),
    ("e5m2", "e4m3", "f32", False),
)
# Rows and columns, and terms: powers of two between which they are drawn.
_SIDE: Final = (4.0, 10.0)
_TERMS: Final = (4.0, 13.0)
# More multiply-adds would take a process too long.
_MOST_WORK: Final = 2**29
# torch._scaled_mm takes such multiples of n and k.
_STEP_OF_8_BITS: Final = 16
# Orders of kernels that use no tensor core.
_WITHOUT: Final = (GemmOrder(), *(GemmOrder(parts) for parts in (2, 4, 8, 16)))
# The sum to which cuBLAS adds after so many elements, unless it adds 8-bit floats the fast way.
_SLOW: Final = GemmOrder(every=128)
# Rows and columns of which outputs are kept.
_KEPT: Final = 16
# Of the orders that give all of these, so many are tried on the whole product.
_LIKELY: Final = 512
# Ends of the ranges of k in the table.
_RANGES: Final = (64, 256, 1024, 4096, 16384)
_FORMAT: Final = "tcusim products 1"
_HOW: Final = ("default", "found", "unknown")

Say = Callable[[str], None]
# Gives the product of a call's operands, as it lies in memory.
Multiply = Callable[["Call", Values, Values], Values]


@dataclass(frozen=True, slots=True)
class Call:
    """A product to ask for: m x k by k x n; a, b, result: element types.

    fast: of 8-bit floats, whether the accumulator keeps all of k.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    result: str
    fast: bool
    seed: int

    def operands(self) -> tuple[Values, Values]:
        """Return normal numbers, as values of the operands' types: float32 has all its bits."""
        rng = np.random.default_rng((self.seed, self.m, self.n, self.k))
        shapes = (self.m, self.k), (self.k, self.n)
        a, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
        return round_values(a, self.a), round_values(b, self.b)

    @property
    def has_8_bits(self) -> bool:
        """Whether the operands are 8-bit floats."""
        return format_of(self.a).itemsize == 1

    @property
    def types(self) -> str:
        """The operands' types, and whether 8-bit floats are added the fast way."""
        types = self.a if self.a == self.b else f"{self.a} by {self.b}"
        return f"{types}, fast" if self.fast else types

    @property
    def order(self) -> GemmOrder:
        """Return the order that the documentation names for such a call."""
        return _SLOW if self.has_8_bits and not self.fast else GemmOrder()

    def __str__(self) -> str:
        fast = ", fast accumulation" if self.fast else ""
        types = f"{self.types.removesuffix(', fast')} to {self.result}{fast}"
        return f"{self.m} x {self.k} by {self.k} x {self.n}, {types}"


@dataclass(frozen=True, slots=True)
class Captured:
    """A library's result for a call.

    operands: a checksum, to verify operands that are made again. digest: SHA-256 of the result's
    bytes, row by row. seen: the bytes of the outputs at `places`, as hexadecimal digits. refused:
    the library's message, if it gave no result.
    """

    call: Call
    operands: str
    digest: str = ""
    seen: str = ""
    refused: str = ""

    @classmethod
    def of(cls, call: Call, multiply: Multiply) -> Captured:
        """Ask a library for the product."""
        a, b = call.operands()
        try:
            got = np.ascontiguousarray(multiply(call, a, b))
        except (RuntimeError, ValueError, TypeError) as error:
            return cls(call, _checksum(a, b), refused=str(error).strip().partition("\n")[0])
        seen = np.ascontiguousarray(got[np.ix_(*places(call))])
        digest = hashlib.sha256(got.tobytes()).hexdigest()
        return cls(call, _checksum(a, b), digest, seen.tobytes().hex())

    def again(self) -> tuple[Values, Values]:
        """Return the operands.

        Raises InputError if they are other numbers than those that were multiplied.
        """
        a, b = self.call.operands()
        if _checksum(a, b) != self.operands:
            raise InputError(
                f"the operands of {self.call} cannot be made again: this NumPy, {np.__version__}, "
                "draws other random numbers than the one that was used on the GPU"
            )
        return a, b

    def outputs(self) -> Values:
        """Return the outputs that were kept, as a user's array."""
        fmt = format_of(self.call.result)
        memory = np.frombuffer(bytes.fromhex(self.seen), fmt.memory_dtype)
        rows, columns = places(self.call)
        return from_values(from_memory(memory, fmt).reshape(len(rows), len(columns)), fmt)


def places(call: Call) -> tuple[Values, Values]:
    """Return the rows and the columns of the outputs that are kept."""
    return spread(call.m, _KEPT), spread(call.n, _KEPT)


def _checksum(a: Values, b: Values) -> str:
    return f"{zlib.crc32(b.tobytes(), zlib.crc32(a.tobytes())):08x}"


@dataclass(slots=True)
class Capture:
    """Results of a library for random calls, with the GPU and the versions that computed them."""

    gpu: str
    arch: str
    versions: dict[str, str]
    settings: dict[str, str]
    products: list[Captured] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def read(cls, path: Path) -> Capture:
        """Return the capture in a file of `tcusim orders --capture`.

        Raises InputError if it is no such file.
        """
        where = (
            f"{path} is no record of a library's products, which `tcusim orders --capture -o FILE` "
            f"writes on a GPU"
        )
        return of_json(cls, path.read_bytes(), where, form=_FORMAT)

    def text(self) -> str:
        """Return a summary of the capture, in a few lines."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [f"{self.gpu}; {versions}; {len(self.products)} products"]
        lines += [f"{row.call}: {row.refused}" for row in self.products if row.refused]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Explained:
    """The explanation of the bytes of a call.

    how: "default", by the call that the documentation names; "found", by an order that
    `explain_matmul` found; "unknown". arch, family, order: they give these bytes or,
    of those kept, most; "ieee" is the arithmetic of a core without a tensor core. equal, count: of
    the outputs that were kept. refused: the reason why no order is reported.
    """

    call: Call
    how: str
    arch: str = ""
    family: str = ""
    order: str = ""
    equal: int = 0
    count: int = 0
    refused: str = ""


@dataclass(slots=True)
class Explanations(Tabular):
    """Calls and how they are known, with the GPU and the library that computed them."""

    gpu: str
    arch: str
    versions: dict[str, str]
    rows: list[Explained] = field(default_factory=list)
    left: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"format": "tcusim orders 2", **asdict(self)}

    def table(self) -> Table:
        """Return a table by types and k, and the calls that no order explains."""
        groups: dict[str, list[Explained]] = {}
        for row in self.rows:
            groups.setdefault(row.call.types, []).append(row)
        for least, most in itertools.pairwise((0, *_RANGES)):
            groups[f"k {least + 1}..{most}"] = [r for r in self.rows if least < r.call.k <= most]
        groups["all"] = self.rows
        cells = []
        for name, rows in groups.items():
            counts = ([row.how for row in rows].count(how) for how in _HOW)
            if rows:
                cells.append((name, *map(str, (len(rows), *counts))))
        notes = [
            f"{row.call}: {row.refused or f'{row.equal:,} of {row.count:,} kept, {row.order}'}"
            for row in self.rows
            if row.how == "unknown"
        ]
        if self.left:
            notes.append(f"{self.left} calls were left when the time was over")
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        texts = [f"{self.gpu}; {versions}; arithmetic of {self.arch}"]
        header = ("types", "calls", "by default", "order found", "not known")
        return Table(header, cells, texts=texts, notes=notes, align="lrrrr")


def calls(count: int, seed: int = 0) -> Iterator[Call]:
    """Yield random calls; the sizes of half of them are multiples of 8, as libraries like them.

    Those of 8-bit floats are multiples of 16, as torch wants them.
    """
    rng = np.random.default_rng(seed)
    found = 0
    while found < count:
        sides = [2.0 ** rng.uniform(*_SIDE) for _ in "mn"]
        step = int(rng.choice([1, 8]))
        a, b, result, fast = KINDS[found % len(KINDS)]
        if format_of(a).itemsize == 1:
            step = _STEP_OF_8_BITS
        m, n, k = (step * math.ceil(x / step) for x in (*sides, 2.0 ** rng.uniform(*_TERMS)))
        if m * n * k <= _MOST_WORK:
            yield Call(m, n, k, a, b, result, fast, seed)
            found += 1


# --- On a GPU -------------------------------------------------------------------------------------


def captured(count: int = 200, seed: int = 0, *, say: Say | None = None) -> Capture:
    """Ask torch for random products on this machine's GPU.

    Raises BackendUnavailable without a GPU or torch.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        torch = None
    if torch is None or not torch.cuda.is_available():
        raise BackendUnavailable("the products are torch's. Install a torch that has CUDA")
    major, minor = torch.cuda.get_device_capability()
    sm = 10 * major + minor
    arch = next((one.name for one in arches() if sm in one.sm), None)
    if arch is None:
        raise BackendUnavailable(f"the arithmetic of sm_{sm} is not known")
    gpu = str(torch.cuda.get_device_name())
    return captured_by(torch, "cuda", gpu, arch, tuple(calls(count, seed)), say)


def captured_by(
    torch: Any, device: str, gpu: str, arch: str, asked: Sequence[Call], say: Say | None = None
) -> Capture:
    """Ask torch for products on one of its devices; `gpu` and `arch` are for the record."""
    version = importlib.import_module("tcusim").__version__
    versions = {"tcusim": version, "torch": torch.__version__, "CUDA": str(torch.version.cuda)}
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        made = Capture(gpu, arch, versions, _settings(torch))
        for call in asked:
            row = Captured.of(call, partial(torch_product, torch, device=device))
            made.products.append(row)
            if say is not None:
                reason = row.refused and f": {row.refused}"
                say(f"{len(made.products)} of {len(asked)}: {call}{reason}")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return made


def _settings(torch: Any) -> dict[str, str]:
    """Return torch's default settings on which its products depend."""
    names = (
        "allow_tf32",
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
    )
    matmul = torch.backends.cuda.matmul
    return {name: str(getattr(matmul, name, None)) for name in names}


def torch_product(torch: Any, call: Call, a: Values, b: Values, *, device: str = "cuda") -> Values:
    """Return torch's product as stored in memory; for 8-bit floats with scales of 1."""
    left, right = (
        torch.from_numpy(values).to(device).to(getattr(torch, format_of(fmt).array_name))
        for values, fmt in ((a, call.a), (b, call.b))
    )
    result = format_of(call.result)
    dtype = getattr(torch, result.array_name)
    if call.has_8_bits:
        one = torch.ones((), dtype=torch.float32, device=device)
        # Its right operand lies column by column.
        right = right.t().contiguous().t()
        product = torch._scaled_mm(left, right, one, one, out_dtype=dtype, use_fast_accum=call.fast)
    elif dtype is left.dtype:
        product = torch.mm(left, right)
    else:
        product = torch.mm(left, right, out_dtype=dtype)
    bits = {2: torch.int16, 4: torch.int32}[result.itemsize]
    found = product.contiguous().cpu().view(bits).numpy()
    return np.asarray(found.view(result.memory_dtype))


# --- Anywhere -------------------------------------------------------------------------------------


def judged(
    capture: Capture,
    *,
    jobs: int | None = None,
    seconds: float | None = None,
    say: Say | None = None,
    executor: Executor | None = None,
) -> Explanations:
    """Explain each product of a capture within the time; the slowest begin first.

    executor: of the work; by default `jobs` processes, one a processor. Raises BackendUnavailable
    without ml_dtypes.
    """
    if importlib.util.find_spec("ml_dtypes") is None:
        raise BackendUnavailable("its operands need ml_dtypes: pip install 'tcusim[bf16]'")
    report = Explanations(capture.gpu, capture.arch, capture.versions)
    until = None if seconds is None else time.monotonic() + seconds
    products = sorted(capture.products, key=lambda row: -row.call.m * row.call.n * row.call.k)
    pool = executor or ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    waiting = [pool.submit(explained, row, report.arch) for row in products]
    try:
        for done in as_completed(waiting, None if until is None else until - time.monotonic()):
            row = done.result()
            report.rows.append(row)
            if say is not None:
                say(f"{len(report.rows)} of {len(products)}: {row.call}: {row.how}, {row.order}")
    except TimeoutError:
        pass
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    report.rows.sort(key=lambda row: (row.call.a, row.call.b, row.call.fast, row.call.k))
    report.left = len(products) - len(report.rows)
    return report


def explained(product: Captured, arch: str) -> Explained:
    """Say how a product is known: every byte of it, or else most of the outputs that were kept."""
    if product.refused:
        return Explained(product.call, "unknown", refused=product.refused)
    try:
        return _explained(product, arch)
    except TcusimError as error:
        return Explained(product.call, "unknown", refused=str(error))


def _explained(product: Captured, arch: str) -> Explained:
    call, got = product.call, product.outputs()
    a, b = (from_values(x, fmt) for x, fmt in zip(product.again(), (call.a, call.b), strict=True))
    rows, columns = places(call)
    left, right = a[rows], b[:, columns]
    dtype = format_of(call.result).array_name

    def gives_all(arch: str, order: GemmOrder, **types: Any) -> bool:
        whole = predict_matmul(a, b, arch=arch, order=order, dtype=dtype, **types)
        return hashlib.sha256(whole.tobytes()).hexdigest() == product.digest

    default = predict_matmul(left, right, arch=arch, order=call.order, dtype=dtype)
    if default.tobytes() == got.tobytes() and gives_all(arch, call.order):
        return Explained(call, "default", arch, "", str(call.order), got.size, got.size)
    found, types = explain_matmul(got, left, right, arch=arch), {}
    if not found.exact and not call.has_8_bits:
        # Kernels for the other units of a core add product by product, float32 as it is.
        other = explain_matmul(got, left, right, arch="ieee", orders=_WITHOUT, ab=call.a)
        if other.best.equal > found.best.equal:
            found, types = other, {"ab": call.a}
    how, best = "unknown", found.best
    for match in found.exact[:_LIKELY]:
        if gives_all(match.arch, match.order, family=match.family, **types):
            how, best = "found", match
            break
    return Explained(call, how, best.arch, best.family, str(best.order), best.equal, best.count)
