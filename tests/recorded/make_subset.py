"""Cut the small recorded sets beside this file out of the full ones.

Usage: ``python make_subset.py FOLDER REPOSITORY``, where FOLDER holds wmma_h200.npz and
fused_step_vectors.npz, and REPOSITORY is a clone of MATLAB-tensor-core (see PROVENANCE.md), whose
c of the fp16 results of 8-bit floats the full set lacks. Nothing is computed: rows are chosen by
position, and floats are stored as unsigned integers so that every bit survives.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
# Of each vector set every 50th row; of each WMMA case the tile in the middle, and of that at most
# 16 rows and columns of outputs (k is never more than 16), since each output stands alone.
ROW_STEP = 50
LARGEST_SIDE = 16


def narrow_bits(values: NDArray[np.float32], element: str) -> NDArray[Any]:
    """Return float32 values as the bits of the narrowest plain type that holds them all."""
    if element == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    if element == "tf32":
        return values.view(np.uint32)
    # 8-bit floats fit in fp16.
    return values.astype(np.float16).view(np.uint16)


def bits_of(array: NDArray[Any]) -> NDArray[Any]:
    """Return floats as unsigned integers of the same size; integers as they are."""
    if array.dtype.kind != "f":
        return array
    return array.view(f"u{array.dtype.itemsize}")


def cut_tiles(full: Any) -> dict[str, Any]:
    """Return the middle tile of each case, its sides cut to `LARGEST_SIDE`."""
    subset: dict[str, Any] = {}
    for key in full.files:
        tile = full[key][len(full[key]) // 2]
        subset[key] = bits_of(tile[None, :LARGEST_SIDE, :LARGEST_SIDE].copy())
    return subset


def cut_vectors(full: Any) -> dict[str, Any]:
    """Return every so many rows of each vector set."""
    subset: dict[str, Any] = {}
    for key in full.files:
        rows = full[key][::ROW_STEP]
        element = key.split("_")[1]
        subset[key] = narrow_bits(rows, element) if key[-2:] in ("_a", "_b") else bits_of(rows)
    return subset


def numbers(path: Path, base: int) -> NDArray[np.float32]:
    """Return the float32 values of a text file: its words are their bits to this base."""
    return np.array([int(word, base) for word in path.read_text().split()], np.uint32).view(
        np.float32
    )


def addends(full: Any, repository: Path) -> dict[str, Any]:
    """Return the c of H100's and H200's fp16 results of 8-bit floats, of the rows of the subset.

    Their fp32 results, and so `GPU_TYPE_c`, are those of another instruction, with c = 0.
    """
    subset: dict[str, Any] = {}
    for gpu in ("H100", "H200"):
        for element in ("E4M3", "E5M2"):
            folder = repository / "model_validation" / gpu / element
            rows = numbers(folder / f"a_{gpu}_{element}.txt", 16).reshape(-1, 32)
            c = numbers(folder / f"c_{gpu}_fp32.txt", 2)
            place = {row.tobytes(): i for i, row in enumerate(rows)}
            chosen = full[f"{gpu}_{element}_a"][::ROW_STEP]
            subset[f"{gpu}_{element}_c_fp16"] = bits_of(
                c[[place[row.tobytes()] for row in chosen]].astype(np.float16)
            )
    return subset


def main(folder: Path, repository: Path) -> None:
    """Write both subsets."""
    with np.load(folder / "wmma_h200.npz") as full:
        np.savez_compressed(HERE / "wmma_h200.npz", **cut_tiles(full))
    with np.load(folder / "fused_step_vectors.npz") as full:
        vectors = cut_vectors(full) | addends(full, repository)
        np.savez_compressed(HERE / "fused_step_vectors.npz", **vectors)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
