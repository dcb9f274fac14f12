"""Check the three GPU backends on a machine where tcusim is not installed, and time them.

    python tests/gpu/check_engine.py [--no-times]

It needs what `run_on_gpu.py` needs, and takes PyCUDA, CuPy, torch and JAX where they are. It tells
every check that failed, and ends with status 0 if none did. Bits are compared with the simulator's
for this GPU's architecture. It takes about three minutes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import importlib
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
run_on_gpu = importlib.import_module("run_on_gpu")

# Otherwise JAX takes most of the memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

FAILED: list[str] = []
COUNT = 0


def check(name: str, run: Callable[[], object]) -> None:
    """Run a check and note whether it failed."""
    global COUNT
    COUNT += 1
    try:
        run()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        FAILED.append(name)
        print(f"FAILED {name}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        print(f"       at {where.filename}:{where.lineno}", flush=True)


def require(found: object, expected: object) -> None:
    """Raise AssertionError unless two things are equal."""
    if found != expected:
        raise AssertionError(f"{found!r}, not {expected!r}")


def require_bits(found: NDArray[Any], expected: Any) -> None:
    """Raise AssertionError unless two arrays have the same bits."""
    expected = np.asarray(expected)
    require((found.shape, found.dtype), (expected.shape, expected.dtype))
    one, other = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (found, expected))
    if not np.array_equal(one, other):
        different = int((one != other).sum())
        raise AssertionError(f"{different} of {one.size} bytes differ")


def require_refused(text: str, call: Callable[[], object]) -> None:
    """Raise AssertionError unless a call raises InputError with this text."""
    from tcusim.errors import InputError

    try:
        call()
    except InputError as error:
        if text not in str(error):
            raise AssertionError(f"another text: {error}") from error
    else:
        raise AssertionError("was not refused")


class Library:
    """How arrays of a library are made from NumPy's, and copied back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = importlib.import_module("pycuda.gpuarray" if name == "pycuda" else name)
        if name == "jax":
            importlib.import_module("jax.numpy")

    def there(self, x: NDArray[Any]) -> Any:
        """Return a copy in GPU memory."""
        match self.name:
            case "torch":
                return self._torch(x)
            case "cupy":
                return self.module.asarray(x)
            case "jax":
                return self.module.numpy.asarray(x)
            case _:
                return self.module.to_gpu(np.ascontiguousarray(x))

    def _torch(self, x: NDArray[Any]) -> Any:
        if x.dtype.name != "bfloat16":
            return self.module.from_numpy(np.array(x)).cuda()
        bits = self.module.from_numpy(np.array(x).view(np.int16)).cuda()
        return bits.view(self.module.bfloat16)

    def back(self, a: Any) -> NDArray[Any]:
        """Return a copy as a NumPy array."""
        if self.name == "torch":
            if a.dtype == self.module.bfloat16:
                import ml_dtypes

                bits: NDArray[Any] = a.view(self.module.int16).cpu().numpy()
                return bits.view(ml_dtypes.bfloat16)
            values: NDArray[Any] = a.cpu().numpy()
            return values
        return np.asarray(a) if self.name == "jax" else a.get()

    def is_own(self, a: Any) -> bool:
        """Return whether an array is this library's."""
        return type(a).__module__.split(".")[0] in (self.name, f"{self.name}lib")


def libraries() -> dict[str, Library]:
    """Return the libraries that are here."""
    found = {}
    for name in ("cupy", "torch", "jax", "pycuda"):
        try:
            if name == "pycuda":
                importlib.import_module("pycuda.autoprimaryctx")
            found[name] = Library(name)
        except Exception as error:
            print(f"without {name}: {type(error).__name__}: {str(error)[:200]}")
    return found


# --- Cases ------------------------------------------------------------------------------------


# A function of tcusim, its arrays and its keywords.
Case = tuple[str, tuple[NDArray[Any], ...], dict[str, Any]]


def numbers(dtype: str, *shape: int) -> NDArray[Any]:
    """Return numbers of both signs whose sums are rounded."""
    rng = np.random.default_rng([len(dtype), *shape])
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    x = rng.standard_normal(shape) * 20
    if dtype == "bfloat16":
        import ml_dtypes

        return x.astype(ml_dtypes.bfloat16)
    return x.astype(dtype)


def cases() -> Iterator[Case]:
    """Yield functions, arrays and keywords."""
    for dtype in ("float16", "float32", "bfloat16", "int8"):
        for length in (1, 300, 5000, 70_001):
            x = numbers(dtype, length)
            yield "sum", (x,), {}
            yield "cumsum", (x,), {"reverse": length == 300}
        x = numbers(dtype, 4099)
        for size in (16, 100):
            yield "segmented_sum", (x,), {"segments": size}
            yield "segmented_cumsum", (x,), {"segments": size, "exclusive": size == 16}
    x = numbers("float16", 7, 640)
    yield "sum", (x,), {"axis": 1}
    yield "cumsum", (x,), {"axis": 1}
    yield "cumsum", (x,), {"axis": 1, "include_initial": True}
    offsets = [0, 3, 3, 700, 4000, 4099]
    yield "segmented_sum", (numbers("float16", 4099),), {"segments": offsets}
    yield "segmented_cumsum", (numbers("float16", 4099),), {"segments": offsets}
    for dtype in ("float16", "int8"):
        a, b = numbers(dtype, 40, 70), numbers(dtype, 70, 33)
        yield "matmul", (a, b), {}
        yield "matvec", (a, np.ascontiguousarray(b[:, 0])), {}
    yield "matmul", (numbers("float16", 2, 40, 70), numbers("float16", 2, 70, 30)), {}


def one_case(backend: str, library: Library, case: Case, expected: Any) -> None:
    """Compare one case with its expected result, twice: the second call takes the fast path."""
    import tcusim

    name, arrays, keywords = case
    given = [library.there(a) for a in arrays]
    for _ in range(2):
        result = getattr(tcusim, name)(*given, options={"backend": backend}, **keywords)
        require(library.is_own(result), True)
        require_bits(library.back(result), expected)


def check_bits(pairs: list[tuple[str, Library]], arch: str) -> None:
    """Compare every case on every pair of backend and library with the simulator."""
    import tcusim

    for name, arrays, keywords in cases():
        dtype = arrays[0].dtype.name
        expected = np.asarray(getattr(tcusim, name)(*arrays, options={"arch": arch}, **keywords))
        if dtype == "int8" and name.startswith("mat"):
            # On a GPU, products are int32; NumPy's are as wide as NumPy makes them.
            expected = expected.astype(np.int32)
        for backend, library in pairs:
            if dtype == "bfloat16" and library.name in ("cupy", "pycuda"):
                continue
            label = ", ".join(f"{key}={value}" for key, value in keywords.items())
            shapes = " ".join(str(a.shape) for a in arrays)
            check(
                f"{backend} {library.name} {name} {dtype} {shapes} {label}",
                functools.partial(one_case, backend, library, (name, arrays, keywords), expected),
            )


def same(run: Callable[[], dict[str, Any]], expected: Any) -> None:
    """Compare the outputs of a program with the expected ones."""
    require_bits(run()["out"], expected)


def check_programs(backends: list[str], arch: str) -> None:
    """Compare programs on NumPy arrays with the simulator."""
    import tcusim

    for algorithm in ("reduction_k", "scan_tn", "scan_single_pass", "reduction_single_pass"):
        program = tcusim.build(algorithm, masked=True, warps=2)
        x = numbers("float16", 10_007)
        expected = tcusim.run(program, {"in": x}, arch=arch)["out"]
        for backend in backends:
            run = functools.partial(tcusim.run, program, {"in": x}, backend=backend, poison=True)
            check(f"{backend} numpy {algorithm}", functools.partial(same, run, expected))


def again(plan: Any, library: Library, x: NDArray[Any], expected: Any) -> None:
    """Call a plan several times, with out and without."""
    a = library.there(x)
    for number in range(6):
        out = library.there(np.zeros_like(x)) if number % 2 and library.name != "jax" else None
        result = plan(a) if out is None else plan(a, out=out)
        require(out is None or result is out, True)
        require_bits(library.back(result), expected)


def in_place(plan: Any, library: Library, x: NDArray[Any], expected: Any) -> None:
    """Overwrite the input."""
    for _ in range(3):
        a = library.there(x)
        require(plan(a, out=a) is a, True)
        require_bits(library.back(a), expected)


def threads(plan: Any, library: Library, x: NDArray[Any], expected: Any) -> None:
    """Call a plan from several threads at once."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(again, plan, library, x, expected) for _ in range(4)]:
            done.result()


def refused(plan: Any, library: Library, x: NDArray[Any], expected: Any) -> None:
    """Refuse other sizes and types, and results that cannot be written."""
    a = library.there(x)
    require_refused("elements", lambda: plan(library.there(x[:-8])))
    require_refused("float16", lambda: plan(library.there(x.astype(np.float32))))
    if library.name == "jax":
        require_refused("read-only", lambda: plan(a, out=library.there(x)))
        return
    both = library.there(np.zeros(2 * x.size, np.float16))
    half, over = both[: x.size], both[16 : 16 + x.size]
    require_refused("overlaps", lambda: plan(half, out=over))


def check_plans(pairs: list[tuple[str, Library]], arch: str) -> None:
    """Run plans again and again: with out, in place, from threads, and where they are refused."""
    import tcusim

    x = numbers("float16", 70_000)
    expected = np.asarray(tcusim.cumsum(x, options={"arch": arch}))
    for backend, library in pairs:
        plan = tcusim.plan("cumsum", length=x.size, options={"backend": backend})
        for run in (again, in_place, threads, refused):
            if (run, library.name) not in ((in_place, "jax"), (threads, "pycuda")):
                check(
                    f"{backend} {library.name} plan {run.__name__}",
                    functools.partial(run, plan, library, x, expected),
                )


def check_read_only(backends: list[str], cupy: Library) -> None:
    """Refuse to write where a library does not let us."""
    import tcusim

    x = cupy.there(numbers("float16", 1024))
    y = cupy.there(np.zeros(1024, np.float16))
    interface = dict(y.__cuda_array_interface__)
    interface["data"] = (interface["data"][0], True)
    frozen = SimpleNamespace(__cuda_array_interface__=interface)
    for backend in backends:
        plan = tcusim.plan("cumsum", length=1024, options={"backend": backend})
        write = functools.partial(plan, x, out=frozen)
        check(f"{backend} read-only", functools.partial(require_refused, "read-only", write))


def check_torch(backends: list[str], torch: Library, arch: str) -> None:
    """Gradients, streams, and a graph."""
    import tcusim

    lib = torch.module
    x = numbers("float16", 70_000)
    expected = np.asarray(tcusim.cumsum(x, options={"arch": arch}))
    for backend in backends:
        plan = tcusim.plan("cumsum", length=x.size, options={"backend": backend})

        def gradient(plan: Any = plan) -> None:
            a = torch.there(x).requires_grad_()
            require_refused("gradient", lambda: plan(a))
            with lib.no_grad():
                require_bits(torch.back(plan(a)), expected)

        def streams(plan: Any = plan) -> None:
            source = torch.there(x)
            for named in (False, True):
                for _ in range(3):
                    lib.cuda.synchronize()
                    side, other = lib.cuda.Stream(), lib.cuda.Stream()
                    with lib.cuda.stream(side):
                        a = lib.zeros_like(source)
                        lib.cuda._sleep(20_000_000)
                        a.copy_(source)
                        result = plan(a, stream=other) if named else plan(a)
                        require_bits(torch.back(result + 0), expected)

        def graph(plan: Any = plan) -> None:
            a, out = torch.there(x), lib.zeros(x.size, dtype=lib.float16, device="cuda")
            side = lib.cuda.Stream()
            side.wait_stream(lib.cuda.current_stream())
            with lib.cuda.stream(side):
                for _ in range(3):
                    plan(a, out=out)
            lib.cuda.current_stream().wait_stream(side)
            captured = lib.cuda.CUDAGraph()
            with lib.cuda.graph(captured, stream=side):
                plan(a, out=out)
            for value in (x, -x):
                a.copy_(torch.there(value))
                out.zero_()
                captured.replay()
                lib.cuda.synchronize()
                require_bits(torch.back(out), tcusim.cumsum(value, options={"arch": arch}))

        check(f"{backend} torch gradient", gradient)
        check(f"{backend} torch streams", streams)
        if backend != "pycuda":
            check(f"{backend} torch graph", graph)


def check_cupy_streams(backends: list[str], cupy: Library, arch: str) -> None:
    """Order work on CuPy's streams."""
    import tcusim

    lib = cupy.module
    x = numbers("float16", 70_000)
    expected = np.asarray(tcusim.cumsum(x, options={"arch": arch}))
    for backend in backends:
        plan = tcusim.plan("cumsum", length=x.size, options={"backend": backend})

        def streams(plan: Any = plan) -> None:
            for _ in range(3):
                with lib.cuda.Stream(non_blocking=True) as stream:
                    busy = lib.ones((2048, 2048), lib.float32)
                    a = lib.zeros(x.size, lib.float16)
                    for _ in range(10):
                        busy = busy @ busy * lib.float32(1e-4)
                    a[...] = lib.asarray(x)
                    result = plan(a) + lib.float16(0)
                    stream.synchronize()
                require_bits(result.get(), expected + np.float16(0))

        check(f"{backend} cupy streams", streams)


def check_dlpack(backends: list[str], cupy: Library, arch: str) -> None:
    """Take arrays of no library, and return arrays that every library takes."""
    import tcusim

    x = numbers("float16", 5120)
    program = tcusim.build("reduction_k")
    expected = tcusim.run(program, {"in": x}, arch=arch)["out"]
    a = cupy.there(x)
    only = SimpleNamespace(__dlpack__=a.__dlpack__, __dlpack_device__=a.__dlpack_device__)

    class Only:
        def __dlpack__(self, **options: Any) -> Any:
            return only.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return only.__dlpack_device__()

    interface = SimpleNamespace(__cuda_array_interface__=a.__cuda_array_interface__)
    for backend in backends:
        for label, given in (("DLPack", Only()), ("interface", interface)):

            def run(backend: str = backend, given: Any = given) -> None:
                result = tcusim.run(program, {"in": given}, backend=backend)["out"]
                require_bits(cupy.module.asarray(result).get(), expected)
                if backend == "cuda":
                    require_bits(cupy.module.from_dlpack(result).get(), expected)

            check(f"{backend} {label}", run)


# --- Times ------------------------------------------------------------------------------------

PEER = "cupy.sum(x)"

FIRST = """
import sys, time
import cupy
import tcusim
x = cupy.ones(65536, cupy.float16)
(x + x).sum()
cupy.cuda.Device().synchronize()
operation, backend = sys.argv[1:]
segments = {"segments": 64} if operation.startswith("segmented") else {}
plan = tcusim.plan(operation, length=65536, options={"backend": backend}, **segments)
times = []
for _ in range(3):
    started = time.perf_counter()
    plan(x)
    cupy.cuda.Device().synchronize()
    times.append(1e3 * (time.perf_counter() - started))
other = tcusim.plan("sum", length=65536, options={"backend": backend})
started = time.perf_counter()
other(x)
cupy.cuda.Device().synchronize()
print(*(f"{t:.2f}" for t in times), f"{1e3 * (time.perf_counter() - started):.2f}",
      len(plan.launches))
"""


def first_calls(backends: list[str]) -> None:
    """Time first calls in new processes, with an empty cache and with a full one."""
    print("\nfirst calls, ms: of a plan, its second, its third; of another plan; launches")
    for operation, chosen in (("segmented_sum", backends[:1]), ("cumsum", backends)):
        for backend in chosen:
            with tempfile.TemporaryDirectory() as cache:
                for label in ("compiled", "from the disk"):
                    done = subprocess.run(
                        [sys.executable, "-c", FIRST, operation, backend],
                        env=os.environ | {"TCUSIM_CACHE_DIR": cache},
                        capture_output=True,
                        text=True,
                        timeout=120,
                        check=False,
                    )
                    said = done.stdout.strip() or done.stderr.strip()[-400:]
                    print(f"  {operation:14} {backend:7} {label:14} {said}", flush=True)


def microseconds(call: Callable[[], object], wait: Callable[[], object]) -> float:
    """Return the median over batches of the host's microseconds a call."""
    times = []
    for _ in range(50):
        call()
    for _ in range(7):
        wait()
        started = time.perf_counter()
        for _ in range(200):
            call()
        times.append((time.perf_counter() - started) / 200 * 1e6)
    wait()
    return sorted(times)[len(times) // 2]


Calls = Iterator[tuple[str, Callable[[], object]]]


def peers(libraries: dict[str, Library], x: NDArray[Any]) -> Calls:
    """Yield the calls of CuPy and torch."""
    if "cupy" in libraries:
        cupy = libraries["cupy"]
        a, y = cupy.there(x), cupy.there(np.zeros((), np.float16))
        yield PEER, functools.partial(cupy.module.sum, a)
        yield "cupy.sum(x, out=y)", functools.partial(cupy.module.sum, a, out=y)
        yield "cupy.cumsum(x)", functools.partial(cupy.module.cumsum, a)
    if "torch" in libraries:
        torch = libraries["torch"]
        yield "torch.cumsum(x, 0)", functools.partial(torch.module.cumsum, torch.there(x), 0)


def ours(backend: str, library: Library, x: NDArray[Any]) -> Calls:
    """Yield tcusim's calls on an array of one library."""
    import tcusim
    from tcusim.backends import get_backend

    a, launcher = library.there(x), get_backend(backend)
    for operation in ("sum", "cumsum", "segmented_sum"):
        size = 64 if operation.startswith("segmented") else None
        results = {"sum": (), "cumsum": x.shape}.get(operation, (x.size // 64,))
        plan = tcusim.plan(operation, length=x.size, segments=size, options={"backend": backend})
        function = getattr(tcusim, operation)
        given = (a,) if size is None else (a, size)
        label = f"{backend} {library.name} {operation}:"
        yield f"{label} plan(x)", functools.partial(plan, a)
        yield f"{label} function", functools.partial(function, *given, options={"backend": backend})
        if library.name != "jax":
            out = library.there(np.zeros(results, np.float16))
            yield f"{label} plan(x, out=y)", functools.partial(plan, a, out=out)
            session = getattr(launcher, "prepare")(plan.launch_plan)  # noqa: B009
            session.run({"in": a}, out=out, shape=results)
            launch = session.prepared_launch({"in": a}, out, results)
            if launch is not None:
                yield f"{label} prepared launch(x, out=y)", functools.partial(launch, a, out=out)


def warm_calls(pairs: list[tuple[str, Library]]) -> None:
    """Time warm calls beside CuPy's and torch's own."""
    known = {library.name: library for _, library in pairs}
    torch, cupy = (known[name].module if name in known else None for name in ("torch", "cupy"))
    wait = cupy.cuda.Device().synchronize if cupy else torch.cuda.synchronize if torch else print
    for size in (4096, 2**20):
        x = numbers("float16", size)
        print(f"\nwarm calls, {size} elements of float16: microseconds, and beside {PEER}")
        base = 10.0
        for calls in (peers(known, x), *(ours(*pair, x) for pair in pairs)):
            for name, call in calls:
                try:
                    value = microseconds(call, wait)
                except Exception as error:
                    print(f"FAILED to time {name}: {error}")
                    FAILED.append(name)
                    continue
                base = value if name == PEER else base
                print(f"  {name:52} {value:8.2f}  {value / base:5.2f}", flush=True)


# --- All --------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Run the checks, then take the times; return 0 if no check failed."""
    started = time.perf_counter()
    run_on_gpu.make_importable()
    run_on_gpu.describe()
    from tcusim.backends import backends as names_of_backends
    from tcusim.backends import register_backend, why_unavailable
    from tcusim_cuda import CUDA, arch_name, device_sm

    if "cuda" not in names_of_backends():
        # An older tcusim is installed here.
        register_backend(CUDA)
    arch = arch_name(device_sm())
    if arch is None:
        print(f"no unit has the numerics of sm_{device_sm()}")
        return 1
    known = libraries()
    backends = []
    for name in ("cuda", "cupy", "pycuda"):
        reason = why_unavailable(name)
        if reason is None:
            backends.append(name)
        else:
            print(f"without backend {name}: {reason}")
    wanted = (
        ("cuda", "cupy"), ("cuda", "torch"), ("cuda", "jax"), ("cupy", "cupy"), ("cupy", "torch"),
        ("pycuda", "pycuda"), ("pycuda", "cupy"), ("pycuda", "torch"),
    )  # fmt: skip
    pairs = [(b, known[library]) for b, library in wanted if b in backends and library in known]

    def part(name: str, run: Callable[[], None]) -> None:
        before = time.perf_counter()
        check(f"all of {name}", run)
        print(f"{name}: {time.perf_counter() - before:.1f} s", flush=True)

    part("bits", lambda: check_bits(pairs, arch))
    part("programs", lambda: check_programs(backends, arch))
    part("plans", lambda: check_plans(pairs, arch))
    with contextlib.suppress(KeyError):
        cupy = known["cupy"]
        part("read-only", lambda: check_read_only(backends, cupy))
        part("DLPack", lambda: check_dlpack(backends, cupy, arch))
        part("CuPy's streams", lambda: check_cupy_streams(backends, cupy, arch))
    with contextlib.suppress(KeyError):
        torch = known["torch"]
        part("torch", lambda: check_torch(backends, torch, arch))
    print(f"\n{COUNT} checks, {len(FAILED)} failed, {time.perf_counter() - started:.0f} s")
    if "--no-times" not in arguments:
        part("first calls", lambda: first_calls(backends))
        part("warm calls", lambda: warm_calls(pairs))
    print(f"\n{COUNT} checks, {len(FAILED)} failed, {time.perf_counter() - started:.0f} s")
    for name in FAILED:
        print(f"  FAILED {name}")
    return int(bool(FAILED))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
