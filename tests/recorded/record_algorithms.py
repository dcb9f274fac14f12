"""Record every algorithm's results on this machine's GPU, in one small file.

Usage: ``python tests/recorded/record_algorithms.py [--backend cupy] [--jobs 8] [FILE]``, from the
repository's root, on a machine with a GPU. NumPy, the compiler and the backend's library are all
that it needs. FILE is ``algorithms_h200.npz`` beside this script by default.

The file holds ``in_AB_TYPE_KIND``, the bits of 600 numbers for each pair of types and kind, which
`inputs_of` repeats for all inputs of a case; ``out``, the bytes of all outputs end to end; and
``index``, JSON: where it was recorded, and for each case its text (see
`tcusim.judge.correctness.agreement.Case`) and its output's number of bytes. Of programs nothing
is kept: one that is written otherwise and returns the same bits is as good. The exit code is 1 if
the simulator returns other bits: the file is written still.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, partial
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
from tcusim.algorithms import Algorithm, Level, algorithms  # noqa: E402
from tcusim.algorithms.builder import adds_rows  # noqa: E402
from tcusim.backends import Backend, run  # noqa: E402
from tcusim.errors import Unsupported  # noqa: E402
from tcusim.judge.correctness.cases import COLUMNS, Case, CaseGrid, Column, Recipe  # noqa: E402
from tcusim.judge.correctness.testing import bits_of, input_kinds, random_inputs  # noqa: E402
from tcusim.judge.run import executor_of, run_cases  # noqa: E402
from tcusim.program.bind import offsets_of  # noqa: E402
from tcusim.program.grammar import Locate  # noqa: E402

FILE = Path(__file__).with_name("algorithms_h200.npz")
# Several blocks of most programs, the last of them ragged.
LENGTH = 600
# Several blocks where these share segments; of every third scan, so that the file stays small.
LONG = 9000
# Rows of a product: a whole tile of most shapes, and a ragged one. Its other sizes are as uneven.
ROWS = 20
COLS, INNER = 18, 40


# --- The cases ----------------------------------------------------------------------------------


def chosen_cases() -> list[Case]:
    """Return two cases of every algorithm on every tile, with different options and inputs.

    Of those that are not in the paper's part for one warp, one case: the file shall stay small.
    """
    cases: dict[str, Case] = {}
    multiplied = tuple(column for column in COLUMNS if not adds_rows(column.ab, column.acc))
    added = tuple(column for column in COLUMNS if adds_rows(column.ab, column.acc))
    for turn, columns in enumerate((multiplied, multiplied[::-1], added)):
        for number, recipe in enumerate(all_recipes(columns, once=turn == 1)):
            try:
                program = recipe.build()
            except Unsupported:
                continue
            kinds = input_kinds(program.inputs[0].dtype)
            length = ROWS if recipe.get("inner") else LENGTH
            if program.status and (number % 3 == 0 or "reduction" in recipe.algorithm):
                length = LONG
            case = Case(recipe, {"length": length}, kinds[(number + 3 * turn) % len(kinds)])
            cases[str(case)] = case
    return list(cases.values())


def all_recipes(columns: tuple[Column, ...], *, once: bool) -> Iterator[Recipe]:
    """Yield a recipe of every algorithm on every tile; of warps' alone if `once`."""
    for row in algorithms():
        if once and (row.level is not Level.WARP or row.kind not in ("reduction", "scan")):
            continue
        if row.kind == "product":
            yield from products(row, tuple(c for c in columns if not adds_rows(c.ab, c.acc)))
        else:
            for recipe in CaseGrid([row.name], columns).recipes():
                yield recipe.but(masked=True)


def products(row: Algorithm, columns: tuple[Column, ...]) -> Iterator[Recipe]:
    """Yield a recipe of a product for every tile; every other one adds a matrix."""
    for number, column in enumerate(columns):
        yield Recipe.of(
            row.name,
            **column.options,
            warps=2,
            cols=COLS if "cols" in row.options else None,
            inner=INNER,
            add_c=number % 2 == 0,
        )


# --- Their inputs -------------------------------------------------------------------------------


def pool_name(case: Case, dtype: str) -> str:
    """Return the key of the numbers for a case's inputs of a type."""
    return f"in_{case.recipe.get('ab')}_{dtype}_{case.kind}"


def drawn_inputs(cases: list[Case]) -> dict[str, NDArray[Any]]:
    """Return the bits of LENGTH numbers for each pair of types and kind."""
    pools: dict[str, NDArray[Any]] = {}
    for case in cases:
        program = case.recipe.build()
        for buffer in program.inputs:
            name = pool_name(case, buffer.dtype)
            if buffer.name in offsets_of(program) or name in pools:
                continue
            # The numbers depend on the types alone: any program with one such input will do.
            plain = tcusim.build(
                "reduction_ragged_simt",
                tile=program.shape,
                ab=program.ab,
                acc=program.acc,
                source=buffer.dtype,
            )
            rng = np.random.default_rng(list(name.encode()))
            drawn = random_inputs(plain, case.kind, LENGTH, rng)
            pools[name] = bits_of(drawn["in"], buffer.dtype)
    return pools


def inputs_of(case: Case, pools: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return a case's inputs: numbers of the pools again and again, and offsets by a formula."""
    program = case.recipe.build()
    located = offsets_of(program)
    scalars = {scalar.name: case.length for scalar in program.scalars}
    for step in located.values():
        scalars.update(dict.fromkeys(step.segments.offsets.size.index.symbols, SEGMENTS))
    inputs = {}
    for number, buffer in enumerate(program.inputs):
        if buffer.name in located:
            inputs[buffer.name] = offsets(located[buffer.name], case.length)
            continue
        pool = pools[pool_name(case, buffer.dtype)]
        places = np.arange(buffer.size.evaluate(scalars)) + 101 * number
        # Each turn begins elsewhere, so that no two rows of a matrix are equal.
        values = pool[(places + 7 * (places // pool.size)) % pool.size]
        inputs[buffer.name] = values_of(values, buffer.dtype)
    return inputs


# Segments by offsets: empty ones, tiny ones and a giant.
SEGMENTS = 40


def offsets(step: Locate, length: int) -> NDArray[np.int64]:
    """Return offsets of segments of many lengths."""
    last = step.segments.last_offset(SEGMENTS, length)
    ends = np.sort(np.arange(SEGMENTS + 1) ** 3 * 40_503 % (last + 1))
    ends[SEGMENTS // 4 : SEGMENTS // 2] = ends[SEGMENTS // 4]
    ends[0], ends[-1] = 0, last
    return ends


def values_of(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return stored bits as an array of an element type, bf16 in float32."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.view(tcusim.machine.format_of(dtype).dtype)


# --- Their outputs ------------------------------------------------------------------------------


def run_case(backend: Backend, text: str, pools: Mapping[str, NDArray[Any]]) -> bytes | str:
    """Return the bytes of a case's output; a text says why it did not run."""
    case = Case.parse(text)
    program = case.recipe.build()
    try:
        output = run(program, inputs_of(case, pools), backend=backend)["out"]
    except Unsupported as error:
        return str(error)
    return bits_of(output, program.outputs[0].dtype).tobytes()


@cache
def backend_of(name: str) -> Backend:
    """Return a backend, whether or not tcusim is installed."""
    import tcusim_cuda
    import tcusim_host

    known: tuple[Any, ...] = (
        tcusim_host.BACKEND,
        tcusim_cuda.CUPY,
        tcusim_cuda.PYCUDA,
        tcusim.simulate.backend.NUMPY,
    )
    backend: Backend | None = next((one for one in known if one.name == name), None)
    if backend is None:
        raise SystemExit(f"no backend {name!r}: {', '.join(one.name for one in known)}")
    reason = backend.available()
    if reason is not None:
        raise SystemExit(f"{name}: {reason}")
    return backend


def run_on(backend: str, pools: Mapping[str, NDArray[Any]], text: str) -> bytes | str:
    """Run a case in any process, by the name of its backend."""
    return run_case(backend_of(backend), text, pools)


def outputs_of(
    backend: str, cases: list[Case], pools: Mapping[str, NDArray[Any]], jobs: int
) -> list[bytes | str]:
    """Run all cases in several processes; return the outputs in the cases' order."""
    run_one = partial(run_on, backend, pools)
    with executor_of(jobs) as executor:
        return run_cases(
            run_one, list(map(str, cases)), executor, alike=lambda text: text.split()[0]
        )


def provenance(backend: str) -> dict[str, str]:
    """Return the place and time of the recording."""
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
    """Yield the entry of `index` for each case that ran."""
    for case, output in zip(cases, outputs, strict=True):
        if isinstance(output, bytes):
            yield {"case": str(case), "bytes": len(output)}


def record(backend: str, path: Path, cases: list[Case], jobs: int) -> int:
    """Run the cases, write the file, and return how many differ from the simulator."""
    start = time.monotonic()
    pools = drawn_inputs(cases)
    outputs = outputs_of(backend, cases, pools, jobs)
    ran = list(entries(cases, outputs))
    index = {**provenance(backend), "length": LENGTH, "cases": ran}
    body = b"".join(output for output in outputs if isinstance(output, bytes))
    arrays: dict[str, Any] = {
        **pools,
        "out": np.frombuffer(body, np.uint8),
        "index": np.frombuffer(json.dumps(index).encode(), np.uint8),
    }
    np.savez_compressed(path, **arrays)
    expected = outputs_of("numpy", cases, pools, jobs)
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
