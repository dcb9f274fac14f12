"""Record what every algorithm returns on this machine's GPU, into one small file.

Usage: ``python tests/recorded/record_algorithms.py [--backend cupy] [--jobs 8] [FILE]``, from the
repository's root, on a machine with a GPU. NumPy, the compiler and the backend's library are all
that it needs. FILE is ``algorithms_h200.npz`` beside this script by default.

The file holds ``in_AB_TYPE_KIND``, the bits of one input for each pair of types and kind; ``out``,
the bytes of all outputs end to end; and ``index``, JSON: where it was recorded, and for each case
its text (see `tcusim.agreement.Case`), the SHA-256 of its program's listing, and its output's
number of bytes. The exit code is 1 if the simulator returns other bits: the file is written still.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
# The backends are entry points where tcusim is installed; here a source tree is enough.
for folder in (str(ROOT), str(ROOT / "backends")):
    if folder not in sys.path:
        sys.path.append(folder)

import tcusim  # noqa: E402
from tcusim.agreement import COLUMNS, Case, recipes  # noqa: E402
from tcusim.backends import Backend  # noqa: E402
from tcusim.errors import Unsupported  # noqa: E402
from tcusim.testing import bits_of, input_kinds, random_inputs  # noqa: E402

FILE = Path(__file__).with_name("algorithms_h200.npz")
# Several blocks of most programs, the last of them ragged.
LENGTH = 600


def chosen_cases() -> list[Case]:
    """Return two cases of every algorithm on every tile, with different options and inputs."""
    cases: dict[str, Case] = {}
    for turn, columns in enumerate((COLUMNS, tuple(reversed(COLUMNS)))):
        for number, recipe in enumerate(recipes(columns=columns)):
            ragged = replace(recipe, ragged=True)
            try:
                program = ragged.build()
            except Unsupported:
                continue
            kinds = input_kinds(program.inputs[0].dtype)
            case = Case(ragged, LENGTH, kinds[(number + 3 * turn) % len(kinds)])
            cases[str(case)] = case
    return list(cases.values())


def input_name(case: Case) -> str:
    """Return the key of a case's input."""
    program = case.recipe.build()
    return f"in_{program.ab}_{program.inputs[0].dtype}_{case.kind}"


def drawn_inputs(cases: list[Case]) -> dict[str, NDArray[Any]]:
    """Return the bits of one input for each pair of types and kind."""
    inputs: dict[str, NDArray[Any]] = {}
    for case in cases:
        name = input_name(case)
        if name not in inputs:
            program = case.recipe.build()
            rng = np.random.default_rng(list(name.encode()))
            drawn = random_inputs(program, case.kind, LENGTH, rng)
            inputs[name] = bits_of(drawn["in"], program.inputs[0].dtype)
    return inputs


def values_of(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return stored bits as an array of an element type, bf16 in float32."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view(tcusim.numerics.format_of(dtype).dtype)


def run_case(backend: Backend, text: str, bits: NDArray[Any]) -> bytes | str:
    """Return the bytes of a case's output; a text says why it did not run."""
    program = Case.parse(text).recipe.build()
    values = values_of(bits, program.inputs[0].dtype)
    try:
        output = backend.run(program, {"in": values})["out"]
    except Unsupported as error:
        return str(error)
    return bits_of(output, program.outputs[0].dtype).tobytes()


def backend_of(name: str) -> Backend:
    """Return a backend, whether or not tcusim is installed."""
    import tcusim_cuda
    import tcusim_host

    known: tuple[Any, ...] = (
        tcusim_host.BACKEND,
        tcusim_cuda.CUPY,
        tcusim_cuda.PYCUDA,
        tcusim.backends.NUMPY,
    )
    backend: Backend | None = next((one for one in known if one.name == name), None)
    if backend is None:
        raise SystemExit(f"no backend {name!r}: {', '.join(one.name for one in known)}")
    reason = backend.available()
    if reason is not None:
        raise SystemExit(f"{name}: {reason}")
    return backend


def run_some(backend: str, work: list[tuple[str, NDArray[Any]]]) -> list[bytes | str]:
    """Run several cases, in a process of their own."""
    runner = backend_of(backend)
    return [run_case(runner, text, bits) for text, bits in work]


def outputs_of(
    backend: str, cases: list[Case], inputs: dict[str, NDArray[Any]], jobs: int
) -> list[bytes | str]:
    """Run all cases in several processes; return the outputs in the cases' order."""
    work = [(str(case), inputs[input_name(case)]) for case in cases]
    if jobs == 1:
        return run_some(backend, work)
    outputs: list[bytes | str] = [""] * len(work)
    # A process that was forked could not use CUDA.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        parts = [pool.submit(run_some, backend, work[first::jobs]) for first in range(jobs)]
        for first, part in enumerate(parts):
            outputs[first::jobs] = part.result()
    return outputs


def provenance(backend: str) -> dict[str, str]:
    """Return where and when outputs are recorded."""
    facts = {"backend": backend, "date": datetime.now(UTC).date().isoformat()}
    facts |= {"tcusim": tcusim.__version__, "numpy": np.__version__}
    if backend in ("cupy", "pycuda"):
        from tcusim_cuda.compile import Toolkit
        from tcusim_cuda.driver import Driver

        driver = Driver.open()
        facts |= {"gpu": driver.title(0), "sm": str(driver.sm(0))}
        facts["compiler"] = Toolkit.find().title
        told = Path("/proc/driver/nvidia/version")
        found = re.search(r"\d+\.\d+(\.\d+)?", told.read_text()) if told.exists() else None
        facts["driver"] = found[0] if found else "unknown"
    return facts


def entries(cases: list[Case], outputs: list[bytes | str]) -> Iterator[dict[str, Any]]:
    """Yield what `index` says of each case that ran."""
    for case, output in zip(cases, outputs, strict=True):
        if isinstance(output, bytes):
            text = tcusim.listing(case.recipe.build())
            digest = hashlib.sha256(text.encode()).hexdigest()
            yield {"case": str(case), "program": digest, "bytes": len(output)}


def record(backend: str, path: Path, cases: list[Case], jobs: int) -> int:
    """Run the cases, write the file, and return how many differ from the simulator."""
    start = time.monotonic()
    inputs = drawn_inputs(cases)
    outputs = outputs_of(backend, cases, inputs, jobs)
    ran = list(entries(cases, outputs))
    index = {**provenance(backend), "length": LENGTH, "cases": ran}
    body = b"".join(output for output in outputs if isinstance(output, bytes))
    arrays: dict[str, Any] = {
        **inputs,
        "out": np.frombuffer(body, np.uint8),
        "index": np.frombuffer(json.dumps(index).encode(), np.uint8),
    }
    np.savez_compressed(path, **arrays)
    expected = outputs_of("numpy", cases, inputs, jobs)
    differ = 0
    for case, one, two in zip(cases, outputs, expected, strict=True):
        if isinstance(one, str):
            print(f"not run: {case}: {one}")
        elif one != two:
            differ += 1
            print(f"differs from the simulator: {case}")
    count, size = len(ran), path.stat().st_size
    seconds = time.monotonic() - start
    print(f"{path}: {count} cases, {size:,} bytes, {differ} differ; {seconds:.0f} s")
    return differ


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--backend", default="cupy", help="default: cupy")
    parser.add_argument("--jobs", type=int, default=8, help="processes; default: 8")
    given = parser.parse_args()
    sys.exit(1 if record(given.backend, given.file, chosen_cases(), given.jobs) else 0)


if __name__ == "__main__":
    main()
