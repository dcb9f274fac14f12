"""The page of the paper's evaluation: its authors' figures beside ours, and the claims today.

Whatever was not recorded says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import records
from records import DATA
from tables import table

from tcusim import line_charts
from tcusim.algorithms import algorithms
from tcusim.line_charts import Line, Plot
from tcusim_bench.charts import giga, pico
from tcusim_bench.record import OURS, Report, Row

__all__ = ["claims", "figure", "profile", "programs"]

_V100, _NOT = "The authors' V100", "not recorded"
_GIGA, _TERA = "10⁹ elements a second", "10¹² operations a second"
# The authors' limits of sums and of scans on the V100, in 10⁹ elements a second.
_V100_LIMITS = {"sum": 450.0, "scan": 225.0}
# Peak of the V100's tensor cores in the paper, in 10¹² operations a second.
_V100_PEAK = 113.0
# The source of an algorithm that is not the paper's.
_OF_OTHERS = {
    name
    for row in algorithms()
    if not row.source.startswith("[DAKKAK19")
    for name in (row.name, row.alias)
}
# Segment sizes in the authors' labels, and those of which they give a share of the limit.
_SIZE_IN_LABEL = re.compile(r"SEGMENT_SIZE (\d+) ")
_FIRST, _LAST = 2**4, 2**24
# The paper's three counts of its profile, by their names in the record, and the tile.
_PROFILED = ("half", "between threads", "integer")
_PROFILED_TILE = "16x16x16"
# Smaller matrices of the authors are not shown, and were not measured here.
_LEAST_COLUMNS = 256
_LAST_SCAN = 2**19

# The selection of a panel's rows, and the name of each line.
_Name = Callable[[Row], str | None]


def figure(name: str, folder: Path = DATA) -> str:
    """Return a figure's charts, of the V100 and of the H200, and when the latter was recorded."""
    report = records.figure(name, folder)
    plots = [plot for one in _PANELS[name] for plot in one(report, folder)]
    text = "Not recorded yet." if report is None else f"Recorded on: {records.recorded(report)}."
    notes = [] if report is None else [n for n in report.notes if n.startswith("not measured")]
    lines = [f"<p>{text}</p>", *(f"<p><small>{_escaped(note)}.</small></p>" for note in notes[:3])]
    return "\n".join([line_charts.charts(plots), *lines])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


# --- Panels -------------------------------------------------------------------------------------


def _of_authors(name: str, title: str, x: str, y: str, kind: str = "", folder: Path = DATA) -> str:
    """Draw a chart of the authors'."""
    lines = tuple(
        Line(one["label"].replace('\\"i', "ï"), tuple(zip(one["x"], one["y"], strict=True)))
        for one in _ours_first(records.authors(name, folder))
    )
    least = _LEAST_COLUMNS if y == _TERA else 0
    lines = tuple(Line(one.name, tuple(p for p in one.points if p[0] >= least)) for one in lines)
    level = ("limit", _V100_LIMITS[kind]) if kind else None
    plot = Plot(f"{_V100}: {title}", lines, x, y, log=True, level=level)
    return line_charts.draw(plot)


def _ours_first(series: list[dict]) -> list[dict]:
    return sorted(series, key=lambda one: not one["label"].startswith(("Our", "WMMA")))


def _of_report(report: Report | None, title: str, name: _Name, x: str, y: str = _GIGA) -> str:
    """Draw a chart of the records: the fastest row of each name at each size."""
    where = report.device["gpu"].removeprefix("NVIDIA ") if report else "H200"
    if report is None:
        return line_charts.missing(f"{where}: {title}", "This was not recorded.")
    lines = _lines(report.best(), name, _tera if y == _TERA else giga)
    kinds = {row.case.kind for row in report.best() if name(row)} & {"sum", "scan"}
    level = None
    if len(kinds) == 1 and y == _GIGA:
        level = ("limit", _limit(report, *kinds))
    return line_charts.draw(Plot(f"{where}: {title}", lines, x, y, log=True, level=level))


def _lines(
    rows: Iterable[Row], name: _Name, value: Callable[[Row], float | None]
) -> tuple[Line, ...]:
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        who, number = name(row), value(row)
        if who is not None and number:
            points = found.setdefault(who, {})
            points[row.case.segment_size] = max(number, points.get(row.case.segment_size, 0.0))
    names = sorted(found, key=lambda who: (who != OURS, not who.startswith("paper")))
    return tuple(Line(who, tuple(sorted(found[who].items()))) for who in names)


def _limit(report: Report, kind: str) -> float:
    """Return the limit in 10⁹ elements a second, which are read, or read and written."""
    return report.limits["read"] / 2e9 if kind == "sum" else report.limits["copy"] / 4e9


def _tera(row: Row) -> float | None:
    if row.flops is None:
        return None
    return row.flops / 1e12


def _watts(row: Row) -> float | None:
    return row.watts


def _is_papers(row: Row) -> bool:
    """Return whether it is one of the paper's programs, as printed."""
    who = row.who
    return who.startswith(f"{OURS} ") and who.split()[1].rstrip(",") not in _OF_OTHERS


def _by_algorithm(row: Row) -> str:
    """Name programs, of whichever tile, by the algorithm, and say which are the paper's."""
    if not row.who.startswith(f"{OURS} "):
        return row.who
    name = row.who.split()[1].rstrip(",")
    return f"paper: {name}" if _is_papers(row) else f"{OURS}: {name}"


def _as_one(row: Row) -> str:
    """Name the best of the paper's programs."""
    return "paper's best" if _is_papers(row) else row.who


def _of_kind(kind: str, name: Callable[[Row], str]) -> _Name:
    return lambda row: name(row) if row.case.kind == kind else None


def _of_types(acc: str) -> _Name:
    """Name products with these accumulators; tcusim's plans have f32 ones, and any result."""

    def name(row: Row) -> str | None:
        if row.who == OURS:
            return OURS if row.result == acc else None
        return _by_algorithm(row) if row.acc == acc else None

    return name


def _gemm(report: Report | None, folder: Path) -> Iterable[str]:
    for title, series, acc in (("HGEMM", "gemm_16_16", "f16"), ("MGEMM", "gemm_16_32", "f32")):
        yield _of_authors(series, title, "columns", _TERA, folder=folder)
        yield _of_report(report, title, _of_types(acc), "columns", _TERA)


def _gemv(report: Report | None, folder: Path) -> Iterable[str]:
    yield _of_authors("gemv", "GEMV", "columns", _TERA, folder=folder)
    yield _of_report(report, "GEMV", _by_algorithm, "columns", _TERA)


def _segmented(kind: str, series: str) -> Callable[[Report | None, Path], Iterable[str]]:
    title = "segmented sum" if kind == "sum" else "segmented scan"

    def panels(report: Report | None, folder: Path) -> Iterable[str]:
        yield _of_authors(series, title, "elements of a segment", _GIGA, kind, folder)
        yield _of_report(report, title, _by_algorithm, "elements of a segment")

    return panels


def _whole(kind: str, series: str) -> Callable[[Report | None, Path], Iterable[str]]:
    title = "sum of an array" if kind == "sum" else "scan of an array"

    def panels(report: Report | None, folder: Path) -> Iterable[str]:
        yield _of_authors(series, title, "elements", _GIGA, kind, folder)
        yield _of_report(report, title, _by_algorithm, "elements")

    return panels


def _blocks(report: Report | None, folder: Path) -> Iterable[str]:
    for kind, word, title in (("sum", "reduction", "sums"), ("scan", "prefixsum", "scans")):
        ours = _best_of_authors(f"paper_tune_segmented_{word}", folder)
        lines = [Line("paper's best", tuple((x, y) for x, y in ours.items() if x <= 2**13))]
        for part in ("warp", "block"):
            points = _last_values(records.authors(f"segmented_{word}_cub_{part}", folder))
            shown = tuple((x, y) for x, y in points.items() if x <= 2**13)
            lines.append(Line(f"cub::{part.title()}{'Reduce' if kind == 'sum' else 'Scan'}", shown))
        x, level = "elements of a segment", ("limit", _V100_LIMITS[kind])
        title = f"{title} in a warp or a block"
        plot = Plot(f"{_V100}: {title}", tuple(lines), x, _GIGA, log=True, level=level)
        yield line_charts.draw(plot)
        yield _of_report(report, title, _of_kind(kind, _as_one), x)


def _best_of_authors(name: str, folder: Path) -> dict[float, float]:
    """Return the fastest of the authors' own programs by size."""
    best: dict[float, float] = {}
    for one in records.authors(name, folder):
        if one["label"].startswith("Our"):
            for x, y in zip(one["x"], one["y"], strict=True):
                best[x] = max(y, best.get(x, 0.0))
    return dict(sorted(best.items()))


def _last_values(series: list[dict]) -> dict[float, float]:
    """Return for each segment size, which is in the label, the fastest on the longest array."""
    best: dict[float, float] = {}
    for one in series:
        size = float(_SIZE_IN_LABEL.match(one["label"])[1])
        best[size] = max(one["y"][-1], best.get(size, 0.0))
    return dict(sorted(best.items()))


def _power(report: Report | None, folder: Path) -> Iterable[str]:
    for kind, title in (("sum", "segmented sum"), ("scan", "segmented scan")):
        for y, value in (("watts of the board", _watts), ("10⁻¹² joules an element", pico)):
            if report is None:
                yield line_charts.missing(f"H200: {title}, {y}", "This was not recorded.")
                continue
            lines = _lines(report.best(), _of_kind(kind, _by_algorithm), value)
            log = value is pico
            plot = Plot(f"H200: {title}", lines, "elements of a segment", y, log=log)
            yield line_charts.draw(plot)


_PANELS = {
    "2": (_gemm,),
    "3": (_gemv,),
    "10": (_segmented("sum", "paper_tune_segmented_reduction"),),
    "11": (_blocks,),
    "12": (_segmented("scan", "paper_tune_segmented_prefixsum"),),
    "13": (_whole("sum", "full_reduction_ker2"),),
    "14": (_whole("scan", "full_prefixsum_ker3"),),
    "power": (_power,),
}


# --- Every program ------------------------------------------------------------------------------


def programs(name: str, folder: Path = DATA) -> str:
    """Return the paper's programs of a figure by tile and accumulators: sizes, and the fastest."""
    report = records.figure(name, folder)
    if report is None:
        return records.none(f"figure {name}")
    found: dict[tuple[str, str], list[Row]] = {}
    for row in report.best():
        if _is_papers(row):
            found.setdefault((row.who.removeprefix(f"{OURS} "), row.acc), []).append(row)
    lines = []
    for (who, acc), rows in found.items():
        good = [row for row in rows if row.ok]
        best = max(good, key=lambda row: row.elements_per_s or 0.0, default=None)
        sizes = sorted(row.case.segment_size for row in good)
        at = f"{giga(best):,.0f} at {best.case.segment_size:,}" if best else "—"
        share = f"{best.of_limit:.1%}" if best and best.of_limit else "—"
        failed = [f"{row.case.segment_size:,}: {row.status}" for row in rows if not row.ok]
        between = f"{sizes[0]:,} to {sizes[-1]:,}" if sizes else "—"
        lines.append((f"`{who}`", acc, between, at, share, "; ".join(failed[:2]) or "—"))
    heads = ("program and tile", "sums", "sizes", "fastest, 10⁹/s", "of the limit", "what failed")
    return table(heads, lines)


# --- Claims -------------------------------------------------------------------------------------


def claims(folder: Path = DATA) -> str:
    """Return each claim of the abstract, beside the authors' series and the H200's."""
    rows = [
        (
            "89 % to 98 % of the speed of copying memory",
            _v100_shares(folder),
            _shares(folder),
        ),
        (
            "up to 100 times as fast for sums of small segments",
            _v100_speed_up("reduction", "CUB", folder),
            _speed_up("sum", folder),
        ),
        (
            "3 times as fast for scans of small segments",
            _v100_speed_up("prefixsum", "Thrust", folder),
            _speed_up("scan", folder),
        ),
        (
            "up to 22 % less power for sums",
            "no series was published",
            _power_of("sum", folder),
        ),
        (
            "up to 16 % less power for scans",
            "no series was published",
            _power_of("scan", folder),
        ),
        (
            "faster than cub::WarpReduce, BlockReduce, WarpScan and BlockScan on segments below "
            "1024, and comparable beyond (section 6.3)",
            _v100_blocks(folder),
            _against_blocks(folder),
        ),
        (
            "as fast as CUB on whole arrays (section 6.4)",
            _v100_whole(folder),
            _against_whole(folder),
        ),
        (
            "cuBLAS with tensor cores: 3.4 times as fast in HGEMM, 6.2 in MGEMM (section 2.3)",
            _v100_gemm(folder),
            _gemm_ratio(folder),
        ),
    ]
    return table(("claim", "the authors' series, V100", "here, H200"), rows)


def _span(values: Sequence[float], form: str = "{:.0%}") -> str:
    if not values:
        return _NOT
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def _v100_shares(folder: Path) -> str:
    parts = []
    for word, kind, last in (("reduction", "sum", _LAST), ("prefixsum", "scan", _LAST_SCAN)):
        best = _best_of_authors(f"paper_tune_segmented_{word}", folder)
        shares = [y / _V100_LIMITS[kind] for x, y in best.items() if _FIRST <= x <= last]
        parts.append(f"{kind}s {_span(shares)}")
    return "; ".join(parts) + " (segments of 2⁴ to 2²⁴, scans to 2¹⁹)"


def _shares(folder: Path) -> str:
    parts = []
    for name, kind, last in (("10", "sum", _LAST), ("12", "scan", _LAST_SCAN)):
        report = records.figure(name, folder)
        if report is None:
            parts.append(f"{kind}s: {_NOT}")
            continue
        limit = _limit(report, kind)
        for what, test in (
            ("the paper's programs", _is_papers),
            ("what tcusim launches", _is_ours),
        ):
            best = _best_by_size(report, lambda row, test=test: test(row))
            shares = [y / limit for x, y in best.items() if _FIRST <= x <= last]
            parts.append(f"{kind}s by {what} {_span(shares)}")
    return "; ".join(parts)


def _is_ours(row: Row) -> bool:
    return row.who == OURS


def _best_by_size(report: Report | None, wanted: Callable[[Row], bool]) -> dict[float, float]:
    best: dict[float, float] = {}
    for row in report.best() if report else ():
        number = giga(row)
        if number and wanted(row):
            best[row.case.segment_size] = max(number, best.get(row.case.segment_size, 0.0))
    return best


def _of(who: str, kind: str = "") -> Callable[[Row], bool]:
    return lambda row: row.who == who and row.case.kind in (kind or row.case.kind)


def _v100_speed_up(word: str, peer: str, folder: Path) -> str:
    ours = _best_of_authors(f"paper_tune_segmented_{word}", folder)
    for one in records.authors(f"paper_tune_segmented_{word}", folder):
        if one["label"] == peer:
            theirs = dict(zip(one["x"], one["y"], strict=True))
            small, large = (ours[size] / theirs[size] for size in (16, 1024))
            return f"{small:.1f} times {peer} at 16, {large:.1f} at 1024"
    return _NOT


def _speed_up(kind: str, folder: Path) -> str:
    """Return the paper's best program over each library at 16, beside Triton."""
    report = records.figure("10" if kind == "sum" else "12", folder)
    if report is None:
        return _NOT
    best = _best_by_size(report, _is_papers)
    ours = _best_by_size(report, _is_ours)
    parts = []
    peers = ("CUB, offsets", "CUB") if kind == "sum" else ("Thrust", "CUB")
    for peer in peers:
        theirs = _best_by_size(report, _of(peer))
        parts += [
            f"{best[size] / theirs[size]:.1f} times {peer} at {size}"
            for size in (16, 1024)
            if size in best and size in theirs
        ]
    section = records.section("sums" if kind == "sum" else "scans", folder)
    triton = _best_by_size(section, _of("Triton"))
    shown = [
        f"{name} {values[16] / triton[16]:.2f} times"
        for name, values in (("the paper's", best), ("tcusim", ours))
        if 16 in values and 16 in triton
    ]
    if shown:
        parts.append(f"beside a Triton kernel tuned by hand, at 16: {', '.join(shown)}")
    return "; ".join(parts) or _NOT


def _power_of(kind: str, folder: Path) -> str:
    """Return the watts of the paper's programs, and their energy, over those of CUB or Thrust."""
    report = records.figure("power", folder)
    if report is None:
        return _NOT
    parts = []
    for peer in ("CUB, offsets", "CUB") if kind == "sum" else ("Thrust", "CUB"):
        for what, value in (("power", _watts), ("energy an element", pico)):
            theirs = _least(report, _of(peer, kind), value)
            ours = _least(report, lambda row: _is_papers(row) and row.case.kind == kind, value)
            changes = [ours[x] / theirs[x] - 1 for x in ours if x in theirs]
            if changes:
                parts.append(f"{what} {_span(changes, '{:+.0%}')} of {peer}'s")
    return "; ".join(parts) or _NOT


def _least(
    report: Report, wanted: Callable[[Row], bool], value: Callable[[Row], float | None]
) -> dict[float, float]:
    """Return the energy of the most frugal program, by size."""
    found: dict[float, tuple[float, float]] = {}
    for row in report.best():
        number, energy = value(row), pico(row)
        if number and energy and wanted(row):
            known = found.get(row.case.segment_size, (energy, number))
            found[row.case.segment_size] = min(known, (energy, number))
    return {size: number for size, (_, number) in found.items()}


def _ratios(ours: dict[float, float], theirs: dict[float, float]) -> dict[float, float]:
    return {size: ours[size] / theirs[size] for size in ours if theirs.get(size)}


def _in_two(ratios: dict[float, float], at: float) -> str:
    below = [ratio for size, ratio in ratios.items() if size < at]
    beyond = [ratio for size, ratio in ratios.items() if size >= at]
    return f"{_span(below, '{:.2f}')} times below {at}, {_span(beyond, '{:.2f}')} beyond"


def _v100_blocks(folder: Path) -> str:
    parts = []
    for word, kind in (("reduction", "sums"), ("prefixsum", "scans")):
        ours = _best_of_authors(f"paper_tune_segmented_{word}", folder)
        theirs: dict[float, float] = {}
        for part in ("warp", "block"):
            found = _last_values(records.authors(f"segmented_{word}_cub_{part}", folder))
            theirs |= {x: max(y, theirs.get(x, 0.0)) for x, y in found.items()}
        ratios = {x: ratio for x, ratio in _ratios(ours, theirs).items() if x <= 2**13}
        parts.append(f"{kind} {_in_two(ratios, 1024)}")
    return "; ".join(parts)


def _against_blocks(folder: Path) -> str:
    report = records.figure("11", folder)
    if report is None:
        return _NOT
    parts = []
    for kind in ("sum", "scan"):
        theirs = _best_by_size(report, _of("CUB, warp or block", kind))
        for what, test in (("the paper's", _is_papers), ("tcusim's", _is_ours)):
            ours = _best_by_size(report, lambda r, k=kind, t=test: r.case.kind == k and t(r))
            parts.append(f"{what} {kind}s {_in_two(_ratios(ours, theirs), 1024)}")
    return "; ".join(parts)


def _v100_whole(folder: Path) -> str:
    parts = []
    for series, kind in (("full_reduction_ker2", "sum"), ("full_prefixsum_ker3", "scan")):
        lines = {
            one["label"]: dict(zip(one["x"], one["y"], strict=True))
            for one in records.authors(series, folder)
        }
        if {"Ours", "CUB"} <= lines.keys():
            last = _longest_of_authors(kind, folder)
            ratio = lines["Ours"][last] / lines["CUB"][last]
            parts.append(f"{kind} {ratio:.2f} times CUB at {last:,} elements, the longest")
    return "; ".join(parts) or _NOT


def _longest_of_authors(kind: str, folder: Path) -> float:
    """Return the elements of the longest array of which the authors have their time and CUB's."""
    series = "full_reduction_ker2" if kind == "sum" else "full_prefixsum_ker3"
    lines = {one["label"]: set(one["x"]) for one in records.authors(series, folder)}
    return max(lines.get("Ours", set()) & lines.get("CUB", set()), default=0.0)


def _against_whole(folder: Path) -> str:
    """Compare at the authors' longest array, and at the longest here."""
    parts = []
    for name, kind in (("13", "sum"), ("14", "scan")):
        report = records.figure(name, folder)
        theirs = _best_by_size(report, _of("CUB"))
        for what, test in (
            ("launches of the paper", _is_papers),
            ("what tcusim launches", _is_ours),
        ):
            ratios = _ratios(_best_by_size(report, test), theirs)
            at = {
                size for size in (_longest_of_authors(kind, folder), max(ratios, default=0)) if size
            }
            parts += [
                f"{kind} by {what} {ratios[size]:.2f} times CUB at {int(size):,} elements"
                for size in sorted(at & ratios.keys())
            ]
    return "; ".join(parts) or _NOT


def _v100_gemm(folder: Path) -> str:
    parts = []
    for series, name in (("gemm_16_16", "HGEMM"), ("gemm_16_32", "MGEMM")):
        best = {one["label"]: max(one["y"]) for one in records.authors(series, folder)}
        fast, slow = best.get(f"cuBLAS {name} w TCU"), best.get(f"cuBLAS {name} w/o TCU")
        if fast and slow:
            share = f"{fast / _V100_PEAK:.0%} of the peak"
            parts.append(f"{name} {fast:.1f} TFLOP/s ({share}), {fast / slow:.1f} times")
    return "; ".join(parts) or _NOT


def _gemm_ratio(folder: Path) -> str:
    """Compare products of the largest size at which cuBLAS was measured in both ways and types."""
    report, parts = records.figure("2", folder), []
    found = {
        name: _both_ways(report, _of_types(acc))
        for name, acc in (("HGEMM", "f16"), ("MGEMM", "f32"))
    }
    found = {name: ways for name, ways in found.items() if ways}
    common = set.intersection(*map(set, found.values())) if found else set()
    if not common:
        return _NOT
    size = max(common)
    for name, ways in found.items():
        fast, ratio, ours = ways[size]
        text = f"{name} {fast:.3g} TFLOP/s, {ratio:.2g} times"
        parts.append(text + (f"; tcusim {ours:.3g} TFLOP/s" if ours else ""))
    return f"at n = {int(size):,}: {'; '.join(parts)}"


def profile(folder: Path = DATA) -> str:
    """Return the instructions of each thread an element, by kind, of the first way of each."""
    record = records.read("h200/profile.json", folder)
    if record is None:
        return records.none("`tcusim bench profile`")
    lines, seen = [], set()
    for row in record["rows"]:
        key = row["kind"], row["segment_size"], row["who"]
        if key in seen:
            continue
        seen.add(key)
        who = row["who"].removesuffix(f" {_PROFILED_TILE}").removeprefix(f"{OURS} ")
        name = f"`{who}`" if row["who"] != OURS and row["who"].startswith(OURS) else who
        counts = [f"{row['counts'][kind] / row['length']:.2f}" for kind in _PROFILED]
        lines.append((row["kind"], f"{row['segment_size']:,}", name, *counts))
    heads = ("", "segment", "kernels", "half precision", "between threads", "integer")
    made = f"{record['device']['gpu']}, {record['date']}, tcusim at {record['commit']}"
    return f"{table(heads, lines)}\n\nRecorded on: {made}."


def _both_ways(
    report: Report | None, wanted: _Name
) -> dict[float, tuple[float, float, float | None]]:
    """Return cuBLAS's TFLOP/s by size, the ratio of its two ways, and tcusim's TFLOP/s."""
    fast = _products(report, wanted, "cuBLAS".__eq__)
    ratios = _ratios(fast, _products(report, wanted, "cuBLAS without tensor cores".__eq__))
    ours = _products(report, wanted, lambda who: who.startswith(OURS))
    return {size: (fast[size], ratio, ours.get(size)) for size, ratio in ratios.items()}


def _products(
    report: Report | None, wanted: _Name, is_theirs: Callable[[str], bool]
) -> dict[float, float]:
    """Return the most TFLOP/s of each size, of products that have a name and are of a program."""
    best: dict[float, float] = {}
    for row in report.best() if report else ():
        number = _tera(row) if row.case.kind == "matmul" else None
        if number and is_theirs(row.who) and wanted(row) is not None:
            best[row.case.segment_size] = max(number, best.get(row.case.segment_size, 0.0))
    return best
