"""Compare the arithmetic with the MATLAB toolbox [KHATTAK25], in Octave: docs/data/toolbox.json.

    python docs/tools/compare_toolbox.py PATH/TO/MATLAB-tensor-core [MODEL ...]

The folder needs `models/MI300MC.m`, which commit d12a5b3 deleted there. Octave has no `fma`; the
toolbox calls it with a factor of 1, for a sum. With MODEL, the other rows of the file are kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from tcusim.machine import Rule, Values, mma_values, round_values, rule_for

__all__ = ["main"]

COMMIT: Final = "b12b5a7"
_DATA: Final = Path(__file__).parents[1] / "data" / "toolbox.json"
_NAMES: Final = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32", "f32": "fp32"}
_NAMES_8: Final = {"e4m3": "fp8-e4m3", "e5m2": "fp8-e5m2"}
_HALF: Final = (("f16", "f32"), ("f16", "f16"))
_16: Final = (*_HALF, ("bf16", "f32"), ("tf32", "f32"))
_8: Final = tuple((ab, acc) for ab in _NAMES_8 for acc in ("f32", "f16"))
_CDNA: Final = (("f16", "f32"), ("bf16", "f32"))
# Of each model: the architecture, the family of its 8-bit floats and tf32, and its types.
_MODELS: Final = {
    "V100TC": ("volta", "", _HALF),
    "A100TC": ("ampere", "", _16),
    "AdaTC": ("ada", "", (*_16, *_8)),
    "L40STC": ("ada", "", (*_16, *_8)),
    "H100TC": ("hopper", "wgmma", (*_16, *_8)),
    "B200TC": ("blackwell", "tcgen05", (*_16, *_8)),
    "RTXPRO6000TC": ("blackwell_rtx", "mma.sync", (*_16, *_8)),
    "MI210MC": ("cdna2", "", _CDNA),
    "MI300MC": (
        "cdna3",
        "",
        (*_CDNA, ("tf32", "f32"), ("e4m3fnuz", "f32"), ("e5m2fnuz", "f32")),
    ),
}
_REGIMES: Final = {"normal": 0, "wide": 1, "cancelling": 1, "small": 1}
# Rows and columns of a product: outputs of one regime.
_SIZE: Final = 24
_SHIM: Final = "function d = fma(a, b, c)\nd = a .* b + c;\nend\n"


def operands(rng: np.random.Generator, regime: str, rule: Rule, k: int) -> list[Values]:
    """Draw a, b and c, without zeros, as numbers of the rule's types."""
    narrow = rule.ab in ("f16", "e4m3", "e4m3fnuz")
    spread = _REGIMES[regime] * (3 if narrow else 8)

    def numbers(*shape: int) -> Values:
        found = rng.standard_normal(shape) * np.exp2(np.rint(rng.uniform(-spread, spread, shape)))
        return found + (found == 0)

    a, b, c = numbers(_SIZE, k), numbers(k, _SIZE), numbers(_SIZE, _SIZE)
    if regime == "cancelling":
        half = k // 2
        a[::2, half:], b[half:] = a[::2, :half], -b[:half]
    if regime == "small":
        least = {"f16": -7, "e4m3": -4, "e4m3fnuz": -4, "e5m2": -7, "e5m2fnuz": -7}
        a, b = (x * 2.0 ** least.get(rule.ab, -62) for x in (a, b))
        c *= 2.0 ** (-14 if rule.acc == "f16" else -126)
    types = rule.ab, rule.ab, rule.acc
    return [round_values(x, fmt) for x, fmt in zip((a, b, c), types, strict=True)]


def of_octave(folder: Path, model: str, rule: Rule, cases: list[list[Values]]) -> list[Values]:
    """Return the toolbox's products plus c."""
    given = _NAMES | _NAMES_8
    types = [f"'{given[rule.ab.removesuffix('fnuz')]}'", f"'{given[rule.acc]}'"]
    types = {"V100TC": types[1:], "MI210MC": types[:1], "MI300MC": types[:1]}.get(model, types)
    lines = ["addpath(pwd);", *(f"addpath('{folder}/models{sub}');" for sub in ("", "/tools"))]
    with tempfile.TemporaryDirectory() as made:
        there = Path(made)
        (there / "fma.m").write_text(_SHIM)
        for number, case in enumerate(cases):
            for name, x in zip("abc", case, strict=True):
                np.asarray(x, np.float64).T.tofile(there / f"{name}{number}")
                rows, columns = x.shape
                read = f"fread(fopen('{name}{number}'), [{rows} {columns}], 'double')"
                lines.append(f"{name} = {read};")
            lines.append(f"d = {model}(1, a, b, 1, c, {', '.join(types)});")
            lines.append(f"fwrite(fopen('d{number}', 'w'), d, 'double');")
        (there / "run.m").write_text("\n".join([*lines, "fclose('all');", ""]))
        quiet = {"stdout": subprocess.DEVNULL, "check": True}
        subprocess.run(["octave-cli", "-q", "run.m"], cwd=made, **quiet)  # type: ignore[call-overload]
        return [np.fromfile(there / f"d{i}").reshape(_SIZE, _SIZE).T for i in range(len(cases))]


def compared(folder: Path, model: str, arch: str, family: str, types: tuple[str, str]) -> Any:
    """Return the number of different outputs by regime."""
    rule = rule_for(arch, *types, family if types[0] not in ("f16", "bf16") else "")
    rng = np.random.default_rng(list(f"{model} {types}".encode()))
    k = 2 * getattr(rule.how, "length", 4)
    cases = [operands(rng, regime, rule, k) for regime in _REGIMES]
    where = {}
    for regime, case, d in zip(_REGIMES, cases, of_octave(folder, model, rule, cases), strict=True):
        found = np.asarray(mma_values(*case, rule), np.float64)
        where[regime] = int(((found != d) & ~(np.isnan(found) & np.isnan(d))).sum())
    row = {"model": model, "arch": arch, "ab": types[0], "acc": types[1], "k": k}
    outputs = len(_REGIMES) * _SIZE**2
    return row | {"outputs": outputs, "differ": sum(where.values()), "where": where}


def main() -> None:
    """Compare each model, and write the counts."""
    if len(sys.argv) < 2:
        sys.exit("name the folder of the toolbox: compare_toolbox.py PATH")
    folder, named = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(_MODELS)
    kept = json.loads(_DATA.read_text())["rows"] if _DATA.exists() else []
    rows = [row for row in kept if row["model"] not in named]
    for model in named:
        arch, family, pairs = _MODELS[model]
        for types in pairs:
            rows.append(compared(folder, model, arch, family, types))
            print(rows[-1], flush=True)
    rows.sort(key=lambda row: list(_MODELS).index(row["model"]))
    about = "Outputs that differ from the toolbox in Octave, by numbers of operands."
    text = json.dumps({"about": about, "commit": COMMIT, "rows": rows}, indent=1)
    _DATA.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
