"""Sum and scan a map of mountains on simulated tensor cores: `make demo`.

The map is matplotlib's sample of the Jacksboro fault in Tennessee: 344 rows of 403 elevations in
whole metres. Every result is compared with NumPy's in float64, and the exit code is 1 if one is
off. The picture goes to demo/elevation.png.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import tcusim
from tcusim.arrays.functions import Report
from tcusim.cli.files import cast_array
from tcusim.errors import TcusimError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

__all__ = ["main"]

Array: TypeAlias = NDArray[Any]

PICTURE: Final = Path("demo") / "elevation.png"
_SHAPES: Final = ("16x16x16", "32x8x16", "8x32x16")


class DemoError(TcusimError):
    """The demonstration cannot run, or a result is wrong."""


@dataclass(frozen=True, slots=True)
class Run:
    """One call, its result and how far that is from float64.

    tolerance: the largest error allowed, relative to the largest value, and why: the reason.
    """

    title: str
    shape: str
    arch: str
    acc: str
    result: Array
    mma: int
    seconds: float
    worst: float
    largest: float
    tolerance: float
    reason: str

    @property
    def passed(self) -> bool:
        """Whether the result is as near to float64 as it must be."""
        return self.worst <= self.tolerance * self.largest

    def row(self) -> tuple[str, ...]:
        """Return what the summary shows."""
        error = "exact" if self.worst == 0 else f"{self.worst:.2g} of {self.largest:.3g}"
        time_taken = f"{1000 * self.seconds:.0f} ms"
        text = (self.title, self.shape, self.arch, self.acc, f"{self.mma:,}", time_taken)
        return (*text, error, f"{self.reason}: {'ok' if self.passed else 'FAILED'}")


def main() -> int:
    """Run the demonstration; return the exit code."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    try:
        runs = demonstrate(console)
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    failed = [run for run in runs if not run.passed]
    for run in failed:
        print(
            f"error: {run.title} ({run.shape}, {run.arch}) is off by {run.worst:g}, more than "
            f"{run.tolerance:g} of {run.largest:g}",
            file=sys.stderr,
        )
    return 1 if failed else 0


def demonstrate(console: Console) -> list[Run]:
    """Compute, print the summary and save the picture; return the runs."""
    elevation = load_elevation()
    metres = cast_array(elevation, "f16", name="elevation")
    console.print(f"elevation: {'x'.join(map(str, elevation.shape))} whole metres, ", end="")
    console.print(f"{elevation.min()} to {elevation.max()} m; {metres}")

    # Departures from each row's mean: their running sum is how rivers' and ridges' persistence is
    # measured (Hurst, 1951), and their fractions make arithmetic matter.
    exact_departure = elevation - elevation.mean(axis=1, keepdims=True)
    departure = cast_array(exact_departure, "f16", name="departure")
    console.print(f"departure of each elevation from its row's mean: {departure}")

    sums = sum_rows(elevation, metres.array)
    scans = scan_panel(departure.array, exact_departure.astype(np.float32))
    runs = [*sums, *scans]
    _print_runs(console, runs)
    volta, exact = _pair(scans, "row scans, float32")
    if not np.array_equal(volta.result, exact.result):
        raise DemoError(f"{exact.title}: Volta and Hopper differ, and should not")
    console.print(f"{exact.title}: no products, and the same bits on Volta and Hopper")
    _, narrow = _pair(scans, "row scans")
    half = volta, hopper = _pair(scans, "row scans, f16 sums")
    share = np.mean(volta.result != hopper.result)
    if share == 0:
        raise DemoError(f"{volta.title}: Volta and Hopper should differ, and do not")
    console.print(
        f"{volta.title}: {share:.0%} of the running sums differ between Volta and Hopper, "
        f"by at most {np.abs(volta.result - hopper.result).max():.2g} m"
    )
    draw(elevation, sums[0].result, (narrow, exact), half)
    console.print(f"picture: {PICTURE}")
    return runs


def load_elevation() -> Array:
    """Return matplotlib's sample map, metres, int16."""
    try:
        from matplotlib import cbook
    except ImportError as error:
        raise DemoError("the demo needs matplotlib: pip install matplotlib") from error
    # The stubs of matplotlib say that this may be a file; for an .npz it is NumPy's archive.
    sample: Any = cbook.get_sample_data("jacksboro_fault_dem.npz")
    with sample:
        return np.asarray(sample["elevation"])


# --- What runs --------------------------------------------------------------------------------


def sum_rows(elevation: Array, metres: Array) -> list[Run]:
    """Sum each row on several tiles and architectures, and the whole map from float32."""
    length = elevation.shape[1]
    wide = elevation.astype(np.float64)
    runs = []
    for shape, arch in (("16x16x16", "hopper"), ("32x8x16", "volta"), ("8x32x16", "ampere")):
        report, start = Report(), time.perf_counter()
        result = tcusim.segmented_sum(
            metres,
            length,
            dtype=np.float32,
            options={"tile": shape, "arch": arch, "report": report},
        )
        seconds = time.perf_counter() - start
        # Whole numbers below 2**24: no accumulator of float32 rounds them.
        check = (0.0, "whole numbers, must be exact")
        reference = wide.sum(axis=1, keepdims=True)
        runs.append(_run("row sums", shape, arch, "f32", result, reference, report, seconds, check))
    report, start = Report(), time.perf_counter()
    total = tcusim.sum(elevation.astype(np.float32), options={"report": report})
    seconds = time.perf_counter() - start
    check = (2.0**-22, "float32 within 2^-22")
    title = "sum of all, from float32"
    shape = "16x16x16"
    whole = _run(title, shape, "hopper", "f32", total, wide.sum(), report, seconds, check)
    return [*runs, whole]


def scan_panel(narrow: Array, wide: Array) -> list[Run]:
    """Scan each row of float16 and of float32 departures, on several tiles and architectures."""
    pair = ("volta", "hopper")
    settings = [("row scans", narrow, shape, arch, "f32") for shape in _SHAPES for arch in pair]
    settings += [("row scans, float32", wide, "16x16x16", arch, "f32") for arch in pair]
    settings += [("row scans, f16 sums", narrow, "16x16x16", arch, "f16") for arch in pair]
    # The accumulator is rounded at each product of 16 elements, and once more when it is carried
    # to the next: by at most 2**-23 of a float32 and, where it is truncated, 2**-10 of a float16.
    roundings = 2 * -(-narrow.shape[1] // 16)
    # float32 is added in pairs, of which there are 5 levels in a row of 32 elements; 4 rounds give
    # what precedes a row, and one more adds it.
    additions = 5 + 4 + 1
    runs = []
    for title, departure, shape, arch, acc in settings:
        count = roundings if departure is narrow else additions
        bits = 10 if acc == "f16" else 23
        check = (count * 2.0**-bits, f"{count} roundings of 2^-{bits}")
        report, start = Report(), time.perf_counter()
        result = tcusim.segmented_cumsum(
            departure,
            departure.shape[1],
            dtype=np.float32,
            options={"tile": shape, "arch": arch, "acc": acc, "report": report},
        )
        seconds = time.perf_counter() - start
        reference = departure.astype(np.float64).cumsum(axis=1)
        runs.append(_run(title, shape, arch, acc, result, reference, report, seconds, check))
    return runs


def _run(
    title: str,
    shape: str,
    arch: str,
    acc: str,
    result: Array,
    reference: Array,
    report: Report,
    seconds: float,
    check: tuple[float, str],
) -> Run:
    return Run(
        title=title,
        shape=shape,
        arch=arch,
        acc=acc,
        result=np.asarray(result),
        mma=report.mma,
        seconds=seconds,
        worst=float(np.abs(np.asarray(result, np.float64) - reference).max()),
        largest=float(np.abs(reference).max()),
        tolerance=check[0],
        reason=check[1],
    )


def _pair(runs: list[Run], title: str) -> tuple[Run, Run]:
    """Return Volta's and Hopper's run of this title."""
    volta, hopper = (
        next(run for run in runs if (run.title, run.arch) == (title, arch))
        for arch in ("volta", "hopper")
    )
    return volta, hopper


def _print_runs(console: Console, runs: list[Run]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("what", "tile", "arch", "accumulator"):
        table.add_column(name)
    for name in ("mma steps", "time", "worst error"):
        table.add_column(name, justify="right")
    table.add_column("check")
    for run in runs:
        table.add_row(*run.row(), style=None if run.passed else "bold red")
    console.print(table)


# --- The picture ------------------------------------------------------------------------------


def draw(elevation: Array, sums: Array, inputs: tuple[Run, Run], half: tuple[Run, Run]) -> None:
    """Save the map, its sums and scans, and what rounding the input and the sums does to them.

    inputs: scans of float16 and of float32. half: Volta's and Hopper's, in float16 sums.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 11), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, 3, width_ratios=(5, 1.6, 5), sharey=True)
    _draw_map(figure, grid[0, 0], elevation)
    _draw_profile(grid[0, 1], sums.ravel() / elevation.shape[1], "saddlebrown")
    grid[0, 1].set(title="Row means\nsegmented_sum / 403", xlabel="m")
    _draw_signed(figure, grid[0, 2], inputs[1].result / 1000, "km")
    grid[0, 2].set(title="Running sum of departures from the row's mean\nsegmented_cumsum, Hopper")
    _draw_signed(figure, grid[1, 0], inputs[0].result - inputs[1].result, "m")
    grid[1, 0].set(title="What rounding the input does\nfloat16 minus float32 input, float32 sums")
    _draw_profile(grid[1, 1], 100 * np.mean(half[0].result != half[1].result, axis=1), "teal")
    grid[1, 1].set(title="Sums that differ\nf16 accumulators", xlabel="% of the row", xlim=(0, 100))
    _draw_signed(figure, grid[1, 2], half[0].result - half[1].result, "m")
    grid[1, 2].set(title="Volta minus Hopper, f16 accumulators\n4 and 16 products at a time")
    figure.suptitle("tcusim: an elevation map on simulated tensor cores", fontsize=16)
    try:
        PICTURE.parent.mkdir(exist_ok=True)
        figure.savefig(PICTURE, dpi=110)
    except OSError as error:
        raise DemoError(f"cannot write {PICTURE}: {error.strerror}") from error


def _draw_map(figure: Figure, axes: Axes, elevation: Array) -> None:
    from matplotlib.colors import LightSource

    light = LightSource(azdeg=315, altdeg=45)
    shade = light.hillshade(elevation.astype(float), vert_exag=0.02)
    image = axes.imshow(elevation, cmap="gist_earth", vmin=100, vmax=1150, aspect="auto")
    axes.imshow(shade, cmap="gray", alpha=0.25, aspect="auto")
    axes.set(title="Elevation, Jacksboro fault\nint16, cast to f16 exactly")
    axes.set(xlabel="column", ylabel="row")
    figure.colorbar(image, ax=axes, label="m")


def _draw_profile(axes: Axes, values: Array, color: str) -> None:
    """Draw one value for each row of the map beside it."""
    rows = np.arange(values.size)
    axes.fill_betweenx(rows, 0, values, color=color, alpha=0.25, linewidth=0)
    axes.plot(values, rows, color=color, linewidth=1)
    axes.set(xlim=(values.min() - 10, values.max() + 10))
    axes.grid(alpha=0.3)


def _draw_signed(figure: Figure, axes: Axes, values: Array, unit: str) -> None:
    # A few extremes would wash out all the rest.
    limit = float(np.percentile(np.abs(values), 99))
    image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    axes.set(xlabel="column", ylabel="row")
    figure.colorbar(image, ax=axes, label=unit, extend="both")


if __name__ == "__main__":
    sys.exit(main())
