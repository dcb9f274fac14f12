"""Record what every algorithm returns on this machine's GPU, into one small file.

Usage: ``python tests/recorded/record_algorithms.py [--backend cupy] [--jobs 8] [FILE]``, from the
repository's root, with a GPU. NumPy and the backend's library are all that it needs. It refuses to
write where the GPU and the simulator disagree, unless ``--keep`` is given.

The file is ``algorithms_h200.npz`` beside this script by default. It holds the inputs, one for each
element type and kind, the outputs of all cases end to end as bytes, and ``index``: JSON with the
provenance and, for each case, its text (see `tcusim.agreement.Case`), the SHA-256 of its program's
listing, and where its output begins.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "backends")]

import tcusim
from tcusim.agreement import COLUMNS, Case, recipes
from tcusim.backends import Backend
from tcusim.errors import Unsupported
from tcusim.testing import INPUT_KINDS, bits_of, input_kinds, random_inputs

FILE = Path(__file__).with_name("algorithms_h200.npz")
# Long enough for several blocks, and a ragged one.
LENGTH = 600
ARCH = "hopper"


def chosen_cases() -> Iterator[Case]:
    """Yield two cases of every algorithm on every tile, with different options and inputs."""
    columns = tuple(reversed(COLUMNS))
    for turn, order in enumerate((COLUMNS, columns)):
        for number, recipe in enumerate(recipes(columns=order)):
            program = recipe.build()
            kinds = input_kinds(program.inputs[0].dtype)
            kind = kinds[(number + 3 * turn) % len(kinds)]
            multiple = program.scalars[0].multiple_of
            # A whole number of what a block takes; that can be more than one input is long.
            yield Case(recipe, LENGTH // multiple * multiple or multiple, kind)


def input_of(case: Case, inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return the case's part of the input of its type and kind, drawn if it is not there yet."""
    program = case.recipe.build()
    name = f"in_{program.ab}_{program.inputs[0].dtype}_{case.kind}"
    if name not in inputs:
        longest = Case(case.recipe, 64 * program.scalars[0].multiple_of, case.kind)
        rng = np.random.default_rng(len(name) + sum(name.encode()))
        drawn = random_inputs(program, case.kind, max(LENGTH, longest.length), rng)["in"]
        inputs[name] = bits_of(drawn, program.inputs[0].dtype)
    return inputs[name]
