"""Measure errors of long sums in one accumulator anew: docs/data/long_sums.json.

    TCUSIM_CORE=compiled python docs/tools/record_long_sums.py 16 20

Writes the errors of sums of 2^16 to 2^20 terms, by the simulator; the others stay. Takes a minute
for 2^19 terms on one core.
"""

from __future__ import annotations

import json
import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np

from tcusim.judge.accuracy.families import FAMILIES, terms_of
from tcusim.machine import Fused, Rule, format_of, mma_values

# The compiled steps take so many sums side by side, or more.
SUMS: Final = 256
_PIECE: Final = 2**14
_DATA: Final = Path(__file__).parents[1] / "data" / "long_sums.json"


def main() -> None:
    """Measure sums of 2^first to 2^last terms, by all families and rules of the file."""
    first, last = map(int, sys.argv[1:])
    record = json.loads(_DATA.read_text(encoding="utf-8"))
    with ProcessPoolExecutor() as pool:
        found = {name: pool.submit(errors, name, record["rows"], last) for name in FAMILIES}
        for name, future in found.items():
            own = [row for row in record["rows"] if row["family"] == name]
            for row, measured in zip(own, future.result(), strict=True):
                for power in range(first, last + 1):
                    row["errors"][power - record["first_power"]] = measured[power]
    head = [f"{json.dumps(key)}: {json.dumps(record[key])}" for key in record if key != "rows"]
    rows = ",\n".join(map(json.dumps, record["rows"]))
    text = ",\n".join([*head, f'"rows": [\n{rows}\n]'])
    _DATA.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


def errors(name: str, rows: list[Any], last: int) -> list[dict[int, float | None]]:
    """Return the error of each rule at each power; None where a sum overflows."""
    family, rng = FAMILIES[name], np.random.default_rng((1, *name.encode()))
    rules = [_rule(row) for row in rows if row["family"] == name]
    sums = [np.zeros((SUMS, 1, 1), format_of(rule.acc).dtype) for rule in rules]
    exact, sizes = np.zeros(SUMS, np.longdouble), np.zeros(SUMS, np.longdouble)
    found: list[dict[int, float | None]] = [{} for _ in rules]
    for power in range(4, last + 1):
        # 16 terms are the least that a step of 16 takes at once.
        drawn = [terms_of(family, rng, SUMS, 16, "f16")] if power == 4 else None
        for terms in drawn or _pieces(family, rng, 2 ** (power - 1)):
            ones = np.ones((terms.shape[1], 1), terms.dtype)
            sums = [
                mma_values(terms[:, None, :], ones, each, rule)
                for each, rule in zip(sums, rules, strict=True)
            ]
            exact += terms.sum(axis=1, dtype=np.longdouble)
            sizes += np.abs(terms).sum(axis=1, dtype=np.longdouble)
        for place, each in enumerate(sums):
            share = (each[:, 0, 0].astype(np.longdouble) - exact) / sizes
            error = math.sqrt(float(np.mean(share**2)))
            found[place][power] = float(f"{error:.3g}") if math.isfinite(error) else None
    return found


def _pieces(family: Any, rng: np.random.Generator, length: int) -> Any:
    """Yield terms that follow each other, some thousand at a time."""
    if family.returns:  # each with its negative, in an order of its own
        half = np.concatenate(
            [
                terms_of(FAMILIES["normal"], rng, SUMS, min(length // 2, _PIECE), "f16")
                for _ in range(max(1, length // 2 // _PIECE))
            ],
            axis=1,
        )
        whole = rng.permuted(np.concatenate([half, -half], axis=1), axis=1)
        for first in range(0, length, _PIECE):
            yield whole[:, first : first + _PIECE]
        return
    for first in range(0, length, _PIECE):
        yield terms_of(family, rng, SUMS, min(_PIECE, length - first), "f16")


def _rule(row: Any) -> Rule:
    how = Fused(
        row["length"], row["fraction_bits"], output=row["output"], alignment=row["alignment"]
    )
    return Rule("f16", row["acc"], how, "", "")


if __name__ == "__main__":
    main()
