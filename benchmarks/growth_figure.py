"""Draw growth.png: a column for each quantity, time above and memory below, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from benchmarks.growth import SIZES, TITLES
from dragfl.report.figures.style import BLUE, DASHES, GREEN, GREY, ORANGE, PURPLE, new_figure, plot_style

COLOURS = {"fedavg": BLUE, "drag": ORANGE, "scaffold": GREEN, "client store": PURPLE}
MARKERS = {"fedavg": "o", "drag": "s", "scaffold": "^", "client store": "D"}
NAMES = {
    "fedavg": "FedAvg",
    "drag": "DRAG",
    "scaffold": "SCAFFOLD, states on disk",
    "client store": "client store alone",
}
WIDTH, HEIGHT, DPI = 10.0, 4.4, 200
LEAST_MB = 1.0  # less is within the noise of the allocator


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the figure of the curves that were measured."""
    rows = [row for row in rows if "failed" not in row]
    curves = [curve for curve in SIZES if any(row["curve"] == curve for row in rows)]
    with plot_style():
        figure = new_figure(HEIGHT, max(4.0, WIDTH * len(curves) / len(SIZES)))
        grid = figure.subplots(2, len(curves), squeeze=False, sharex="col", sharey="row")
        for column, curve in enumerate(curves):
            here = [row for row in rows if row["curve"] == curve]
            top, bottom = grid[0][column], grid[1][column]
            top.set_title(TITLES[curve], fontsize=8.5)
            for name in dict.fromkeys(row["algorithm"] for row in here):
                line = sorted((row for row in here if row["algorithm"] == name), key=lambda row: row["x"])
                x = [row["x"] for row in line]
                _plot(top, name, x, [row["round_s"] for row in line])
                _plot(bottom, name, x, [max(LEAST_MB, row["memory_mb"] - row["base_mb"]) for row in line])
            slope = -1 if curve == "workers" else 1
            _reference(top, here, "round_s", slope)
            _x_axis(bottom, [row["x"] for row in here])
        for ax in grid.flat:
            ax.set_yscale("log")
            ax.yaxis.set_major_locator(LogLocator(numticks=12))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        for column, curve in enumerate(curves):
            here = [row for row in rows if row["curve"] == curve]
            if curve != "workers":
                _reference(grid[1][column], here, "memory_mb", 1)
        grid[0][0].set_ylabel("seconds of a round")
        grid[1][0].set_ylabel("peak memory above imports, MB")
        names = [name for name in NAMES if any(row["algorithm"] == name for row in rows)]
        keys = [Line2D([], [], color=COLOURS[n], marker=MARKERS[n], markersize=4, label=NAMES[n]) for n in names]
        keys.append(
            Line2D([], [], color=GREY, linestyle=DASHES[2], linewidth=1, label="proportional (workers: inverse)")
        )
        figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), fontsize=7.5)
        figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _plot(ax: Axes, name: str, x: list[int], y: list[float]) -> None:
    ax.plot(x, y, color=COLOURS[name], marker=MARKERS[name], markersize=4, zorder=3)


def _reference(ax: Axes, rows: Sequence[dict[str, Any]], field: str, slope: int) -> None:
    """A line of slope 1 (or -1) through the last point of the first algorithm, as far as the axis reaches."""
    first = [row for row in rows if row["algorithm"] == rows[0]["algorithm"]]
    end = max(first, key=lambda row: row["x"] * slope)
    y = max(LEAST_MB, end[field] - end["base_mb"]) if field == "memory_mb" else end[field]
    x = sorted({row["x"] for row in rows})
    low, high = ax.get_ylim()
    ax.plot(x, [y * (v / end["x"]) ** slope for v in x], color=GREY, linestyle=DASHES[2], linewidth=1, zorder=2)
    ax.set_ylim(low, high)


def _x_axis(ax: Axes, values: list[int]) -> None:
    """A logarithmic axis with a tick at each measured value."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(sorted(set(values))))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _power(x)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.margins(x=0.08)


def _power(x: float) -> str:
    digits = f"{round(x)}"
    return rf"$10^{len(digits) - 1}$" if digits.rstrip("0") == "1" and x > 100 else digits
