"""Record the simulator's results for arrays of 2**30 and 2**31 + 1 elements, as checksums.

    python tests/recorded/record_long_arrays.py [name ...]

It takes half an hour and 14 GB of memory, so it is run when a program of `PROGRAMS` changes, and
`tests/gpu/test_long_arrays.py` compares a GPU with `long_arrays.json`. The input is a hash of each
element's number, alike on NumPy and CuPy: multiples of 2**-11 from 0 up to 1, whose sums integers
hold exactly.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import tcusim
from tcusim.program.grammar import Program

FILE = Path(__file__).parent / "long_arrays.json"
PIECE = 2**24
# Architecture of the recorded bits.
ARCH = "hopper"


def programs() -> dict[str, tuple[Program, int]]:
    """Return by name the programs that a plan chooses for long arrays, with the length."""
    found = {}
    for operation in ("sum", "cumsum"):
        for name, length in (("2**30", 2**30), ("2**31+1", 2**31 + 1)):
            plan = tcusim.plan(operation, length=length, dtype="float16", result="float32")
            (launch,) = plan.launches
            found[f"{operation} of {name}"] = (launch.program, length)
    return found


def halves(numbers: Any, xp: Any) -> Any:
    """Return the input's elements as integers, 0 to 2047: each is so many 2**-11."""
    x = numbers.astype(xp.uint64)
    # Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
    x = (x + xp.uint64(0x9E3779B97F4A7C15)) * xp.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> xp.uint64(27))) * xp.uint64(0x94D049BB133111EB)
    return x >> xp.uint64(53)


def long_input(length: int, xp: Any) -> Any:
    """Return the whole input as float16."""
    x = xp.empty(length, xp.float16)
    for start in range(0, length, PIECE):
        part = xp.arange(start, min(start + PIECE, length))
        x[start : start + PIECE] = halves(part, xp).astype(xp.float32) * xp.float32(2.0**-11)
    return x


def checksum(result: Any, xp: Any) -> int:
    """Return the sum of all bits, each float32 weighted by an odd number of its own, mod 2**64."""
    total = 0
    for start in range(0, result.size, PIECE):
        bits = result[start : start + PIECE].view(xp.uint32).astype(xp.uint64)
        weight = xp.arange(start, start + bits.size).astype(xp.uint64) * xp.uint64(2) + xp.uint64(1)
        total += int((bits * weight).sum())
    return total % 2**64


def main(names: list[str]) -> None:
    """Run the named programs, or all, and keep their checksums."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name, (program, length) in programs().items():
        if names and name not in names:
            continue
        began = time.perf_counter()
        with np.errstate(over="ignore"):
            result = tcusim.run(program, {"in": long_input(length, np)}, arch=ARCH)["out"]
            known[name] = {"arch": ARCH, "checksum": checksum(result, np)}
        print(f"{name}: {known[name]} in {time.perf_counter() - began:.0f} s", flush=True)
        FILE.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
