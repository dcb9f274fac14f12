"""The page of the paper's evaluation: its authors' figures beside ours, and the claims today.

Whatever was not recorded says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import records
from records import DATA
from tables import table

from tcusim import line_charts
from tcusim.algorithms import algorithms
from tcusim.line_charts import Line, Plot
from tcusim_bench.charts import giga, pico
from tcusim_bench.cub import block_ways
from tcusim_bench.record import OURS, Report, Row

__all__ = ["claims", "fastest", "figure", "products", "profile", "programs", "recorded"]

_V100, _NOT = "The authors' V100", "not recorded"
_GIGA, _TERA = "10⁹ elements a second", "10¹² operations a second"
# The authors' limits of sums and of scans on the V100, in 10⁹ elements a second.
_V100_LIMITS = {"sum": 450.0, "scan": 225.0}
# The source of an algorithm that is not the paper's.
_OF_OTHERS = {
    name
    for row in algorithms()
    if not row.source.startswith("[DAKKAK19")
    for name in (row.name, row.alias)
}
# Products: the paper's name, the authors' series, and the type of sums.
_GEMMS = (("HGEMM", "gemm_16_16", "f16"), ("MGEMM", "gemm_16_32", "f32"))
_NOT_THE_PAPERS = ", three launches"
# Segment sizes in the authors' labels, and those of which they give a share of the limit.
_SIZE_IN_LABEL = re.compile(r"SEGMENT_SIZE (\d+) ")
_FIRST, _LAST = 2**4, 2**24
# The paper's three counts of its profile, by their names in the record, and the tile.
_PROFILED = ("half", "between threads", "integer")
_PROFILED_TILE = "16x16x16"
_LAST_SCAN = 2**19
# The longest array.
_LONGEST = 2**30

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
    # Three launches that sum the parts of an array first are not the paper's.
    who = row.who.removesuffix(_NOT_THE_PAPERS)
    return who == row.who and who.startswith(f"{OURS} ") and _program(row)[0] not in _OF_OTHERS


def _program(row: Row) -> tuple[str, str]:
    """Return the algorithm of a program in the record, and its launches, if there are several."""
    algorithm, comma, launches = row.who.removeprefix(f"{OURS} ").partition(", ")
    return algorithm.split()[0], comma + launches


def _by_algorithm(row: Row) -> str:
    """Name programs, of whichever tile, by the algorithm, and say which are the paper's."""
    if not row.who.startswith(f"{OURS} "):
        return row.who
    return f"{'paper' if _is_papers(row) else OURS}: {''.join(_program(row))}"


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
    for title, series, acc in _GEMMS:
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
        yield _of_report(_with_authors_way(report), title, _of_kind(kind, _as_one), x)


def _with_authors_way(report: Report | None) -> Report | None:
    """Return figure 11 with the authors' configurations of CUB's collectives as another peer."""
    if report is None:
        return None
    rows = [
        replace(row, who=_AUTHORS_WAY)
        for row in report.rows
        if row.label in block_ways().get((row.case.kind, row.case.segment_size), [])[:1]
    ]
    return replace(report, rows=(*report.rows, *rows))


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
        at = f"{giga(best):,.0f} at {_power_of_two(best.case.segment_size)}" if best else _NOBODY
        share = f"{best.of_limit:.1%}" if best and best.of_limit else _NOBODY
        failed = [
            f"{_power_of_two(row.case.segment_size)}: {row.status}" for row in rows if not row.ok
        ]
        between = _range(sizes[0], sizes[-1]) if sizes else _NOBODY
        lines.append((f"`{who}`", acc, between, at, share, "; ".join(failed[:2]) or _NOBODY))
    heads = ("program and tile", "sums", "sizes", "fastest, 10⁹/s", "of the limit", "what failed")
    return table(heads, lines)


def fastest(name: str, folder: Path = DATA) -> str:
    """Return the fastest of the paper's programs and of the libraries, by size of a figure."""
    report = records.figure(name, folder)
    if report is None:
        return records.none(f"figure {name}")
    texts = []
    for kind in dict.fromkeys(row.case.kind for row in report.rows):
        by_size: dict[int, dict[str, Row]] = {}
        for row in report.rows:
            if row.ok and row.case.kind == kind:
                best = by_size.setdefault(row.case.segment_size, {})
                who = "paper" if _is_papers(row) else OURS if row.is_ours else "library"
                if _is_faster(row, best.get(who)):
                    best[who] = row
        lines = [
            (
                *(_power_of_two(size), *_named(best.get("paper"))),
                *(_named(best.get(OURS))[1], *_named(best.get("library"))),
            )
            for size, best in sorted(by_size.items())
        ]
        heads = (
            f"{kind}s",
            "fastest of the paper's",
            "10⁹/s",
            "tcusim",
            "fastest library",
            "10⁹/s",
        )
        texts.append(table(heads, lines))
    return "\n\n".join(texts)


def _is_faster(row: Row, than: Row | None) -> bool:
    return than is None or (giga(row) or 0.0) > (giga(than) or 0.0)


def _named(row: Row | None) -> tuple[str, str]:
    """Return a program's name and options, and its speed."""
    if row is None:
        return _NOBODY, _NOBODY
    name = row.label.removeprefix("DeviceSegmentedReduce, ")
    if row.who.startswith(OURS):
        program, *numbers = row.label.removesuffix(" mma").split()
        name = f"`{program}` {' '.join(numbers)}, {row.acc}"
    elif row.who != _COLLECTIVES:
        name = f"{row.who.split(',')[0]}: {name}"
    speed = giga(row) or 0.0
    text = f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}"
    return name, text


# --- Claims -------------------------------------------------------------------------------------

_HEADS = ("claim", "against", "at", "V100, the authors", "H200, the paper's", "H200, tcusim")
_NOBODY = "—"
# In place of a series, the paper's text has these: sections 6.4 and 6.3.
_FAILS = "fails"
_LESS_POWER = {"sum": "-22% to -7%", "scan": "-17% to 0%"}
_PRODUCTS = (
    ("cuBLAS, tensor cores", "cuBLAS {} w TCU", "cuBLAS"),
    ("cuBLAS without", "cuBLAS {} w/o TCU", "cuBLAS without tensor cores"),
    ("CUTLASS", "CUTLASS {}", "CUTLASS"),
    ("the paper's, tiled", "WMMA {}", f"{OURS} gemm"),
    ("the paper's, naïve", 'WMMA {} (na\\"ive)', f"{OURS} gemm_naive"),
    ("tcusim, float32 sums", "", OURS),
)
# CUB's collectives in figure 11, and those of the authors' configurations.
_COLLECTIVES, _AUTHORS_WAY = "CUB, warp or block", "CUB, as the authors"

# Values by size.
_Values = dict[float, float]


def claims(folder: Path = DATA) -> str:
    """Return each claim of the paper beside the authors' series and the H200's, at equal sizes."""
    rows = [
        *_shares(folder),
        *_small("sum", "100 times as fast on small segments: sums", folder),
        *_small("scan", "3 times as fast on small segments: scans", folder),
        *_power_rows("sum", "up to 22 % less power: sums", folder),
        *_power_rows("scan", "up to 16 % less power: scans", folder),
        *_block_rows(folder),
        *_whole_rows(folder),
    ]
    # A claim is named in its first row.
    shown = [
        ("" if number and row[0] == rows[number - 1][0] else row[0], *row[1:])
        for number, row in enumerate(rows)
    ]
    return f"{recorded(folder)}\n\n{table(_HEADS, shown)}"


def recorded(folder: Path = DATA) -> str:
    """Return the sentence on the GPU, its clock, the versions and the dates of the figures."""
    reports = [report for name in _PANELS if (report := records.figure(name, folder))]
    if not reports:
        return "Nothing was recorded on an H200 in this copy of the source."
    device = reports[0].device
    versions = {name: value for report in reports for name, value in report.versions.items()}
    shown = ("nvidia-cuda-nvrtc", "nvcc", "CCCL", "CUTLASS", "cupy")
    libraries = ", ".join(f"{_TITLES.get(n, n)} {versions[n]}" for n in shown if n in versions)
    dates = sorted(report.date for report in reports)
    clock = f", {device['clock']}" if "clock" in device else ""
    return (
        f"H200: {device['gpu']}{clock}; driver {device['driver']}, CUDA {device['cuda']}"
        f"{f', {libraries}' if libraries else ''}; {dates[0]} to {dates[-1]}. "
        f"V100: PCIe, CUDA 9.2.88, driver 396.26 (section 6).\n\n"
        "Numbers without % are speeds over the peer's. A range is over all sizes in it. A dash: "
        "the authors have no such series. Triton is a kernel tuned by hand, without tensor cores."
    )


_TITLES = {"nvidia-cuda-nvrtc": "NVRTC", "cupy": "CuPy"}


def _span(values: Iterable[float], form: str = "{:.2f}") -> str:
    some = sorted(values)
    if not some:
        return _NOT
    low, high = form.format(some[0]), form.format(some[-1])
    return low if low == high else f"{low} to {high}"


def _labelled(series: str, folder: Path) -> dict[str, _Values]:
    """Return the authors' lines of a chart by label."""
    return {
        one["label"]: dict(zip(one["x"], one["y"], strict=True))
        for one in records.authors(series, folder)
    }


def _v100(word: str, folder: Path) -> dict[str, _Values]:
    """Return the authors' series of segments by label; "Ours" is the fastest of their own."""
    name = f"paper_tune_segmented_{word}"
    return _labelled(name, folder) | {"Ours": _best_of_authors(name, folder)}


_WORDS = {"sum": "reduction", "scan": "prefixsum"}


def _shares(folder: Path) -> Iterable[tuple[str, ...]]:
    claim = "89 % to 98 % of the speed of copying memory"
    for name, kind, last in (("10", "sum", _LAST), ("12", "scan", _LAST_SCAN)):
        theirs = _v100(_WORDS[kind], folder)["Ours"]
        report = records.figure(name, folder)
        cells = [_share(theirs, _V100_LIMITS[kind], last)]
        for wanted in (_is_papers, _is_ours):
            best = _best_by_size(report, wanted)
            cells.append(_share(best, _limit(report, kind), last) if report else _NOT)
        yield claim, f"the limit of {kind}s", _range(_FIRST, last), *cells


def _share(values: _Values, limit: float, last: float) -> str:
    return _span((y / limit for x, y in values.items() if _FIRST <= x <= last), "{:.0%}")


def _power_of_two(number: float) -> str:
    return "2" + str(int(number).bit_length() - 1).translate(
        str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    )


def _range(first: float, last: float) -> str:
    return " to ".join(dict.fromkeys(map(_power_of_two, (first, last))))


def _is_ours(row: Row) -> bool:
    return row.who == OURS


def _best_by_size(report: Report | None, wanted: Callable[[Row], bool]) -> _Values:
    best: _Values = {}
    for row in report.best() if report else ():
        number = giga(row)
        if number and wanted(row):
            best[row.case.segment_size] = max(number, best.get(row.case.segment_size, 0.0))
    return best


def _of(who: str, kind: str = "") -> Callable[[Row], bool]:
    return lambda row: row.who == who and row.case.kind in (kind or row.case.kind)


def _ratio(ours: _Values, theirs: _Values, size: float, form: str = "{:.2f}") -> str:
    return form.format(ours[size] / theirs[size]) if size in ours and size in theirs else _NOT


def _small(kind: str, claim: str, folder: Path) -> Iterable[tuple[str, ...]]:
    """Yield the speeds over those of each library, in segments of 16 and of 1024."""
    report = records.figure("10" if kind == "sum" else "12", folder)
    section = records.section(f"{kind}s", folder)
    v100 = _v100(_WORDS[kind], folder)
    found = [_best_by_size(report, one) for one in (_is_papers, _is_ours)]
    triton = _best_by_size(section, _of("Triton"))
    if report and section:
        # Of another run: their shares of the limit are compared.
        scale = _limit(report, kind) / _limit(section, kind)
        triton = {size: scale * value for size, value in triton.items()}
    old = "CUB, offsets" if kind == "sum" else "Thrust"
    for peer, theirs, label in (
        (old, _best_by_size(report, _of(old)), old.removesuffix(", offsets")),
        ("CUB", _best_by_size(report, _of("CUB")), ""),
        ("Triton", triton, ""),
    ):
        for size in (16, 1024):
            first = _ratio(v100["Ours"], v100[label], size) if label else _NOBODY
            cells = [_ratio(ours, theirs, size) for ours in found]
            yield claim, peer, f"{size:,}", first, *cells


def _power_rows(kind: str, claim: str, folder: Path) -> Iterable[tuple[str, ...]]:
    """Yield changes of the watts, and of the energy of an element, from those of CUB or Thrust."""
    report = records.figure("power", folder)
    peers = ("CUB, offsets", "CUB") if kind == "sum" else ("Thrust", "CUB")
    for number, peer in enumerate(peers):
        for what, value in (("watts", _watts), ("energy", pico)):
            theirs = _least(report, _of(peer, kind), value)
            cells, sizes = [], sorted(theirs)
            for wanted in (_is_papers, _is_ours):
                ours = _least(
                    report, lambda row, test=wanted: test(row) and row.case.kind == kind, value
                )
                changes = [ours[x] / theirs[x] - 1 for x in ours if x in theirs]
                cells.append(_span(changes, "{:+.0%}"))
            at = _range(sizes[0], sizes[-1]) if sizes else _NOBODY
            first = _LESS_POWER[kind] if not number and what == "watts" else _NOBODY
            yield claim, f"{peer}, {what}", at, first, *cells


def _least(
    report: Report | None, wanted: Callable[[Row], bool], value: Callable[[Row], float | None]
) -> _Values:
    """Return the value of the program of the least energy, by size."""
    found: dict[float, tuple[float, float]] = {}
    for row in report.best() if report else ():
        number, energy = value(row), pico(row)
        if number and energy and wanted(row):
            known = found.get(row.case.segment_size, (energy, number))
            found[row.case.segment_size] = min(known, (energy, number))
    return {size: number for size, (_, number) in found.items()}


def _block_rows(folder: Path) -> Iterable[tuple[str, ...]]:
    """Yield the speeds over those of CUB's collectives, in sizes below 1024 and from there on."""
    report = _with_authors_way(records.figure("11", folder))
    for kind, word in _WORDS.items():
        v100: _Values = {}
        for part in ("warp", "block"):
            found = _last_values(records.authors(f"segmented_{word}_cub_{part}", folder))
            v100 |= {x: max(y, v100.get(x, 0.0)) for x, y in found.items()}
        here = [
            _best_by_size(report, lambda r, k=kind, t=test: r.case.kind == k and t(r))
            for test in (_is_papers, _is_ours)
        ]
        claim = f"faster than CUB's collectives below 1024, comparable beyond: {kind}s"
        name = "BlockReduce" if kind == "sum" else "BlockScan"
        for who, how in ((_AUTHORS_WAY, "as the authors"), (_COLLECTIVES, "at its best")):
            theirs = _best_by_size(report, _of(who, kind))
            pairs = [(ours, theirs) for ours in here]
            if who == _AUTHORS_WAY:
                pairs.insert(0, (_v100(word, folder)["Ours"], v100))
            for first, last in ((16, 512), (1024, 8192)):
                cells = [
                    _span(ours[x] / peer[x] for x in ours if first <= x <= last and x in peer)
                    for ours, peer in pairs
                ]
                cells = [_NOBODY] * (3 - len(cells)) + cells
                yield claim, f"{name} {how}", _range(first, last), *cells


def _whole_rows(folder: Path) -> Iterable[tuple[str, ...]]:
    """Yield the speeds over CUB's, at the authors' longest array and at the longest here."""
    claim = "as fast as CUB on whole arrays"
    for name, kind, series in (
        ("13", "sum", "full_reduction_ker2"),
        ("14", "scan", "full_prefixsum_ker3"),
    ):
        lines = _labelled(series, folder)
        v100 = _ratios(lines["Ours"], lines["CUB"])
        report = records.figure(name, folder)
        theirs = _best_by_size(report, _of("CUB"))
        here = [_ratios(_best_by_size(report, test), theirs) for test in (_is_papers, _is_ours)]
        for size in sorted({max(v100), _LONGEST}):
            first = f"{v100[size]:.2f}" if size in v100 else _FAILS
            cells = [f"{one[size]:.2f}" if size in one else _NOT for one in here]
            yield claim, f"CUB, {kind}", _power_of_two(size), first, *cells


def _ratios(ours: _Values, theirs: _Values) -> _Values:
    return {size: ours[size] / theirs[size] for size in ours if theirs.get(size)}


def products(folder: Path = DATA) -> str:
    """Return section 2.3's claim: TFLOP/s at the size at which the authors' cuBLAS is fastest."""
    report = records.figure("2", folder)
    columns: list[dict[str, float | None]] = []
    heads, sizes = [], dict[float, None]()
    for title, series, acc in _GEMMS:
        lines = _labelled(series, folder)
        fastest = lines[f"cuBLAS {title} w TCU"]
        size = max(fastest, key=lambda x, y=fastest: y[x])
        sizes[size] = None
        heads += [f"{title}, V100", f"{title}, H200"]
        columns.append({n: lines.get(f.format(title), {}).get(size) for n, f, _ in _PRODUCTS})
        columns.append({n: _tera_of(report, who, acc, size) for n, _, who in _PRODUCTS})
    rows = [
        (name, *(f"{one[name]:,.1f}" if one[name] else _NOBODY for one in columns))
        for name, *_ in _PRODUCTS
    ]
    fast, slow = _PRODUCTS[0][0], _PRODUCTS[1][0]
    times = [
        f"{one[fast] / one[slow]:.1f} times" if one[fast] and one[slow] else _NOT for one in columns
    ]
    rows.insert(2, ("with over without", *times))
    at = " and ".join(f"{int(size):,}" for size in sizes)
    text = (
        f"Section 2.3 claims that tensor cores make cuBLAS 3.4 times as fast in HGEMM and 6.2 "
        f"times in MGEMM, by the fastest size of each. Here all are at n = {at}, where the "
        f"authors' cuBLAS is fastest, in 10¹² operations a second:"
    )
    return f"{text}\n\n{table(('', *heads), rows)}"


def _tera_of(report: Report | None, who: str, acc: str, size: float) -> float | None:
    """Return the most TFLOP/s of a program and type at a size; of tcusim's plan, by its result."""
    found = [
        _tera(row)
        for row in (report.rows if report else ())
        if row.case.segment_size == size
        and (row.who if row.who == OURS else row.who.split(" 16x")[0].split(" 32x")[0]) == who
        and (row.result if row.who == OURS else row.acc) == acc
    ]
    return max((number for number in found if number), default=None)


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
