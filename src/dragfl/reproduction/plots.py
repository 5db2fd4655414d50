"""Plots as in the paper: test accuracy by round, a line for every algorithm, a band over the seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dragfl.report.figures.files import require_packages
from dragfl.report.series import Series, average_curves
from dragfl.reproduction.figure import Curve, Figure
from dragfl.reproduction.summary import Record, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from dragfl.report.figures.files import SavedFigure
    from dragfl.report.figures.style import LineStyle

COLUMNS = 3  # subplots in a row
HEIGHT, LABEL_HEIGHT, FACET_HEIGHT, LEGEND_HEIGHT = 3.4, 0.24, 1.9, 0.25  # inches
HANDLE_WIDTH, LETTER_WIDTH = 0.55, 0.078
# In the order of the report's colours: blue, orange, green, purple, sky, black.
FIXED_COLOURS = ("DRAG", "FLTrust", "BR-DRAG", "SCAFFOLD", "FedProx", "FedAvg")
END_MARKERS = {"target": ("o", 3.2), "diverged": ("x", 6.0)}


def plot_figure(figure: Figure, summary: Summary, out: Path) -> SavedFigure | None:
    """Write the plot as PNG and PDF; None where no curve has runs."""
    require_packages("matplotlib")
    from dragfl.report.figures.files import Drawing, save_figure
    from dragfl.report.figures.style import plot_style

    curves = [curve for curve in figure.curves if summary.curves.get(curve.id)]
    if not curves:
        return None
    with plot_style():
        canvas = _plot_curves(curves, summary)
        title = f"{figure.topic}: {figure.title}"
        return save_figure(Drawing(figure.name, canvas, title, caption(figure, summary)), out)


def caption(figure: Figure, summary: Summary) -> str:
    """The data, seeds and rounds behind the plot, and a key to its marks."""
    seeds = len(summary.seeds)
    fewest = min((len(records) for records in summary.curves.values() if records), default=0)
    many = f"{seeds} seed{'s' * (seeds > 1)}" if fewest == seeds else f"{fewest} to {seeds} seeds"
    endings = {record.ended for record in summary.records}
    phrases = {
        f"{figure.title}. Data: {summary.dataset}; at most {summary.rounds} rounds, {many}": True,
        "lines: mean over seeds, bands: range over seeds, thin lines: seeds that ran longer": seeds > 1,
        f"dotted line: target of {100 * (summary.target or 0):g} %": summary.target is not None,
        "dot: the run stopped at the target": "target" in endings,
        "cross: last evaluation before the run diverged": "diverged" in endings,
        "reduced settings, not evidence": summary.quick,
        f"changed: {', '.join(summary.reported_changes)}": bool(summary.reported_changes),
    }
    return "; ".join(phrase for phrase, applies in phrases.items() if applies) + "."


def join_seeds(records: Iterable[Record]) -> Series:
    """Mean and range at the rounds that all seeds have; the rest of longer runs as separate lines."""
    return average_curves([(True, [(float(t), value) for t, value in record.accuracy]) for record in records])


def _plot_curves(curves: Sequence[Curve], summary: Summary) -> Canvas:
    """A subplot for each facet with a common legend; a single plot has its labels at the ends of the lines."""
    from matplotlib.lines import Line2D

    from dragfl.report.figures.style import WIDTH, label_lines, new_figure, set_accuracy_axis, set_round_axis

    facets = list(dict.fromkeys(curve.facet for curve in curves))
    styles = curve_styles(list(dict.fromkeys(curve.label for curve in curves)))
    rows, columns = -(-len(facets) // COLUMNS), min(COLUMNS, len(facets))
    entry_width = HANDLE_WIDTH + LETTER_WIDTH * max(map(len, styles))
    legend_columns = max(1, min(len(styles), int(WIDTH / entry_width)))
    if facets == [""]:
        figure = new_figure(max(HEIGHT, LABEL_HEIGHT * (len(curves) + 1)))
    else:
        figure = new_figure(0.4 + LEGEND_HEIGHT * -(-len(styles) // legend_columns) + FACET_HEIGHT * rows)
    axes = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for ax, facet in zip(axes, facets, strict=False):
        for curve in (curve for curve in curves if curve.facet == facet):
            _plot_curve(ax, summary.curves[curve.id].values(), styles[curve.label])
        ax.set_title(facet)
        ax.margins(x=0.01)
    for i, ax in enumerate(axes):
        set_accuracy_axis(ax, summary.target)
        ax.set_visible(i < len(facets))
        ax.set_ylabel("test accuracy" if i % columns == 0 else "")
        if len(facets) - columns <= i < len(facets):
            set_round_axis(ax)
            ax.tick_params(labelbottom=True)
    if facets == [""]:
        figure.draw_without_rendering()
        ends = [_label_position(summary.curves[curve.id].values(), summary) for curve in curves]
        label_lines(axes[0], ends, list(styles.values()), list(styles), target=summary.target)
    else:
        handles = [Line2D([], [], color=s.colour, linestyle=s.dash, linewidth=s.width) for s in styles.values()]
        figure.legend(handles, list(styles), loc="outside upper left", ncols=legend_columns)
    return figure


def _plot_curve(ax: Axes, records: Collection[Record], style: LineStyle) -> None:
    """Line and band, and a marker where a run ended early."""
    from dragfl.report.figures.style import plot_series

    plot_series(ax, join_seeds(records), style)
    for record in records:
        if record.ended in END_MARKERS and record.accuracy:
            marker, size = END_MARKERS[record.ended]
            ax.plot(*record.accuracy[-1], marker, markersize=size, color=style.colour, zorder=4, clip_on=False)


def _label_position(records: Collection[Record], summary: Summary) -> tuple[float, float] | None:
    """The end of a curve; curves whose seeds all stop at the target are ordered by their rounds to it."""
    arrivals = [float(record.accuracy[-1][0]) for record in records if record.ended == "target"]
    if len(arrivals) < len(records) or summary.target is None:
        return join_seeds(records).end
    return median(arrivals), summary.target + 1e-4 * (1.0 - median(arrivals) / summary.rounds)


def curve_styles(labels: Sequence[str]) -> dict[str, LineStyle]:
    """A colour for each algorithm, the same in all figures, and a dash pattern for each of its variants.

    `BR-DRAG, c = 0.1` is a variant of BR-DRAG. Many variants of one algorithm have a colour ramp instead.
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    from dragfl.report.figures.style import COLOURS, DASHES, MANY_LINES, LineStyle

    variants: dict[str, list[str]] = {}
    for label in labels:
        variants.setdefault(label.partition(", ")[0], []).append(label)
    fixed = {name: (COLOURS[FIXED_COLOURS.index(name)], DASHES[0]) for name in variants if name in FIXED_COLOURS}
    unused = [(colour, DASHES[0]) for colour in COLOURS if (colour, DASHES[0]) not in fixed.values()]
    repeated = [(colour, dash) for dash in DASHES[1:] for colour in COLOURS]
    others = [name for name in variants if name not in fixed]
    looks = fixed | dict(zip(others, unused + repeated, strict=False))
    many = len(variants) > MANY_LINES
    styles = {}
    for label in labels:
        name = label.partition(", ")[0]
        (colour, dash), own = looks[name], variants[name]
        place = sorted(own, key=lambda variant: ", " in variant).index(label)  # without a comma first: it is solid
        if len(own) > len(DASHES):
            colour = to_hex(colormaps["viridis"](0.05 + 0.8 * sorted(own).index(label) / (len(own) - 1)))
        elif place:
            dash = DASHES[place]
        styles[label] = LineStyle(colour, dash, 1.1 if many else 1.7, not many)
    return styles
