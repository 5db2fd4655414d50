"""Draw bench.png: one plot per workload, one bar per contender, relative to the first base; long bars are cut."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.results import Comparison, Kind, Row
from dragfl.report.figures.style import BLUE, INK, ORANGE, plot_style

COLOURS: dict[Kind, str] = {"dragfl": BLUE, "floor": "#B9B9B9", "bare": "#5A5A5A", "peer": ORANGE}
WORDS = {"dragfl": "dragfl", "floor": "floor, one read", "bare": "plain PyTorch", "peer": "other library"}
CUT = 1.6  # of the base
DPI = 200
# Inches: a bar, the space above and below the bars of a plot, names, bars, numbers, space between columns, legend.
BAR, ABOVE, BELOW, NAMES, BARS, NUMBERS, SPACE, LEGEND = 0.165, 0.42, 0.3, 1.75, 1.95, 1.25, 0.3, 0.3
EDGE = 0.08


def draw(comparisons: Sequence[Comparison], path: Path) -> bool:
    """Write the figure of W1 to W5; return False if none was measured."""
    workloads = [comparison for comparison in comparisons if comparison.workload.startswith("W")]
    if not workloads:
        return False
    placed = columns(workloads)
    width = len(placed) * (NAMES + BARS + NUMBERS + SPACE) - SPACE + 2 * EDGE
    height = max(sum(map(_height, column)) for column in placed) + LEGEND
    with plot_style():
        figure = Figure(figsize=(width, height), layout="none")
        for number, column in enumerate(placed):
            x, y = number * (NAMES + BARS + NUMBERS + SPACE) + EDGE + NAMES, height
            for comparison in column:
                y -= _height(comparison)
                bars = BAR * len(comparison.rows)
                ax = figure.add_axes((x / width, (y + BELOW) / height, BARS / width, bars / height))
                _plot(ax, comparison)
        _legend(figure, workloads)
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
    return True


def columns(comparisons: Sequence[Comparison]) -> list[Sequence[Comparison]]:
    """Two columns of about the same height, in order; one column for less than three."""
    if len(comparisons) < 3:
        return [comparisons]
    halves = [[comparisons[:cut], comparisons[cut:]] for cut in range(len(comparisons) - 1, 0, -1)]
    return min(halves, key=lambda pair: max(sum(map(_height, half)) for half in pair))


def _height(comparison: Comparison) -> float:
    return ABOVE + BAR * len(comparison.rows) + BELOW


def _plot(ax: Axes, comparison: Comparison) -> None:
    base = comparison.bases[0]
    floor = next((row.ratios[base] for row in comparison.rows if row.kind == "floor"), 1.0)
    targets = {
        row.name: [x if name == base else x * floor for name, x in row.limits.items()] for row in comparison.rows
    }
    own = [row.ratios[base] for row in comparison.rows if row.kind in ("dragfl", "floor")]
    cut = max(CUT, 1.05 * max(own + [x for found in targets.values() for x in found]))
    for place, row in enumerate(comparison.rows):
        _bar(ax, place, row, base, cut)
        for target in targets[row.name]:
            ax.plot([target] * 2, [place - 0.44, place + 0.44], color=INK, linewidth=1.3, zorder=4)
        _number(ax, 0.5, place, comparison.value(row))
        _number(ax, NUMBERS, place, f"{row.ratios[base]:.2f}")
    _number(ax, 0.5, -1, comparison.unit)
    _number(ax, NUMBERS, -1, f"/ {base}")
    ax.text(-NAMES / BARS, -2, f"{comparison.workload}  {comparison.title}", **_free(ax), weight="bold", fontsize=8.5)
    ax.set_yticks(range(len(comparison.rows)), [comparison.label(row) for row in comparison.rows])
    ax.set_ylim(len(comparison.rows) - 0.45, -0.55)
    ax.set_xlim(0, cut)
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")


def _number(ax: Axes, inches: float, place: int, text: str) -> None:
    """A number to the right of the bars."""
    ax.text(1 + inches / BARS, place, text, **_free(ax), ha="right", fontsize=7.5)


def _free(ax: Axes) -> dict[str, Any]:
    """Arguments of a text outside the axes, at the height of a bar."""
    return {"transform": ax.get_yaxis_transform(), "va": "center", "color": INK, "clip_on": False}


def _bar(ax: Axes, place: int, row: Row, base: str, cut: float) -> None:
    length = row.ratios[base]
    ax.barh(place, min(length, cut), height=0.74, color=COLOURS[row.kind], zorder=2)
    if length > cut:
        ax.plot([cut * 0.93, cut * 0.95], [place + 0.45, place - 0.45], color="white", linewidth=2.5, zorder=3)
    elif row.low < row.high:
        scale = length / row.median
        ends = [row.low * scale, min(row.high * scale, cut)]
        ax.plot(ends, [place, place], color="#9A9A9A", linewidth=1.1, zorder=3)


def _legend(figure: Figure, comparisons: Sequence[Comparison]) -> None:
    kinds = {row.kind for comparison in comparisons for row in comparison.rows}
    keys: list[Patch | Line2D] = [Patch(color=COLOURS[k], label=WORDS[k]) for k in COLOURS if k in kinds]
    if any(row.limits for comparison in comparisons for row in comparison.rows):
        keys.append(Line2D([], [], color=INK, linewidth=0, marker="|", markersize=8, label="at most, by target"))
    figure.legend(handles=keys, loc="lower center", ncols=len(keys), fontsize=7.5)
