"""Draw growth.png: a column for each quantity, time above and memory below, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
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
ROWS = {"round_s": "seconds of a round", "used_mb": "peak memory, MB"}


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the figure of the curves that were measured."""
    rows = [{**row, "used_mb": max(LEAST_MB, row["memory_mb"] - row["base_mb"])} for row in rows if "failed" not in row]
    curves = [curve for curve in SIZES if any(row["curve"] == curve for row in rows)]
    with plot_style():
        figure = new_figure(HEIGHT, max(4.0, WIDTH * len(curves) / len(SIZES)))
        grid = figure.subplots(2, len(curves), squeeze=False, sharex="col", sharey="row")
        for line, (value, label) in enumerate(ROWS.items()):
            for ax in grid[line]:
                _log_axis(ax.yaxis)
            for ax, curve in zip(grid[line], curves, strict=True):
                _plot(ax, [row for row in rows if row["curve"] == curve], value)
            for ax, curve in zip(grid[line], curves, strict=True):  # within the limits of all lines
                _reference(ax, [row for row in rows if row["curve"] == curve], value)
            grid[line][0].set_ylabel(label)
        for ax, curve in zip(grid[1], curves, strict=True):
            _x_axis(ax, sorted({row["x"] for row in rows if row["curve"] == curve}))
            ax.set_xlabel(TITLES[curve])
        names = [name for name in NAMES if any(row["algorithm"] == name for row in rows)]
        keys = [Line2D([], [], color=COLOURS[n], marker=MARKERS[n], markersize=4, label=NAMES[n]) for n in names]
        keys.append(Line2D([], [], color=GREY, linestyle=DASHES[2], linewidth=1, label="proportional"))
        figure.legend(handles=keys, loc="outside upper center", ncols=len(keys), fontsize=7.5)
        figure.savefig(path, dpi=DPI, metadata={"Software": None})


def _plot(ax: Axes, rows: Sequence[dict[str, Any]], value: str) -> None:
    for name in NAMES:
        line = sorted((row["x"], row[value]) for row in rows if row["algorithm"] == name)
        if line:
            ax.plot(*zip(*line, strict=True), color=COLOURS[name], marker=MARKERS[name], markersize=4, zorder=3)


def _reference(ax: Axes, rows: Sequence[dict[str, Any]], value: str) -> None:
    """A line through the largest point of the first algorithm: proportional, of workers the time inversely."""
    first = [row for row in rows if row["algorithm"] == rows[0]["algorithm"]]
    inverse = rows[0]["curve"] == "workers" and value == "round_s"
    end = (min if inverse else max)(first, key=lambda row: row["x"])
    x = sorted(row["x"] for row in first)
    limits = ax.get_ylim()
    y = [end[value] * (v / end["x"]) ** (-1 if inverse else 1) for v in x]
    ax.plot(x, y, color=GREY, linestyle=DASHES[2], linewidth=1, zorder=2)
    ax.set_ylim(limits)


def _log_axis(axis: Axis) -> None:
    axis.axes.set_yscale("log")
    axis.set_major_locator(LogLocator(numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))


def _x_axis(ax: Axes, values: Sequence[int]) -> None:
    """A logarithmic axis with a tick at each measured value."""
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(values))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _power(x)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.margins(x=0.08)


def _power(x: float) -> str:
    digits = f"{round(x)}"
    return rf"$10^{len(digits) - 1}$" if digits.rstrip("0") == "1" and x > 100 else digits
