"""Plots as in the paper: test accuracy by round, a line for every algorithm, a band over the seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dragfl.report.figures import require_packages
from dragfl.report.groups import Group
from dragfl.report.series import Series, average_curves
from dragfl.reproduction.figure import Curve, Figure
from dragfl.reproduction.summary import Record, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from dragfl.report.figures import SavedFigure
    from dragfl.report.figures.style import LineStyle

COLUMNS = 3  # subplots in a row
HEIGHT, LABEL_HEIGHT, FACET_HEIGHT, LEGEND_HEIGHT = 3.4, 0.24, 1.9, 0.25  # inches
HANDLE_WIDTH, LETTER_WIDTH = 0.55, 0.078
END_MARKERS = {"target": ("o", 3.2), "diverged": ("x", 6.0)}


def plot_figure(figure: Figure, summary: Summary, out: Path) -> SavedFigure | None:
    """Write the plot as PNG and PDF; None where no curve has runs."""
    require_packages("matplotlib")
    from dragfl.report.figures import Drawing, save_figure
    from dragfl.report.figures.style import plot_style

    curves = [curve for curve in figure.curves if summary.curves.get(curve.id)]
    if not curves:
        return None
    with plot_style():
        canvas = _plot_facets(curves, summary) if any(c.facet for c in curves) else _plot_single(curves, summary)
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


def _plot_single(curves: Sequence[Curve], summary: Summary) -> Canvas:
    """One plot, with the labels at the ends of the lines."""
    from dragfl.report.figures.style import label_lines, new_figure, set_accuracy_axis, set_round_axis

    figure = new_figure(max(HEIGHT, LABEL_HEIGHT * (len(curves) + 1)))
    ax = figure.subplots()
    labels = [curve.label for curve in curves]
    styles = curve_styles(labels)
    _plot_curves(ax, curves, dict(zip(labels, styles, strict=True)), summary)
    set_accuracy_axis(ax, summary.target)
    set_round_axis(ax)
    figure.draw_without_rendering()
    ends = [_label_position(summary.curves[curve.id].values(), summary) for curve in curves]
    label_lines(ax, ends, styles, labels, target=summary.target)
    return figure


def _plot_facets(curves: Sequence[Curve], summary: Summary) -> Canvas:
    """A subplot for every facet, with a common legend."""
    from matplotlib.lines import Line2D

    from dragfl.report.figures.style import WIDTH, new_figure, set_accuracy_axis, set_round_axis

    facets = list(dict.fromkeys(curve.facet for curve in curves))
    labels = list(dict.fromkeys(curve.label for curve in curves))
    styles = dict(zip(labels, curve_styles(labels), strict=True))
    rows, columns = -(-len(facets) // COLUMNS), min(COLUMNS, len(facets))
    entry_width = HANDLE_WIDTH + LETTER_WIDTH * max(map(len, labels))
    legend_columns = max(1, min(len(labels), int(WIDTH / entry_width)))
    figure = new_figure(0.4 + LEGEND_HEIGHT * -(-len(labels) // legend_columns) + FACET_HEIGHT * rows)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    subplots = list(axes.flat)
    for ax, facet in zip(subplots, facets, strict=False):
        _plot_curves(ax, [curve for curve in curves if curve.facet == facet], styles, summary)
        ax.set_title(facet)
    for i, ax in enumerate(subplots):
        ax.set_visible(i < len(facets))
        set_accuracy_axis(ax, summary.target)
        ax.set_ylabel("test accuracy" if i % columns == 0 else "")
        if len(facets) - columns <= i < len(facets):
            set_round_axis(ax)
            ax.tick_params(labelbottom=True)
    handles = [Line2D([], [], color=p.colour, linestyle=p.dash, linewidth=p.width) for p in styles.values()]
    figure.legend(handles, labels, loc="outside upper left", ncols=legend_columns)
    return figure


def _plot_curves(ax: Axes, curves: Sequence[Curve], styles: dict[str, LineStyle], summary: Summary) -> None:
    """Lines, bands, and a marker where a run ended early."""
    from dragfl.report.figures.style import plot_series

    for curve in curves:
        records, style = summary.curves[curve.id].values(), styles[curve.label]
        plot_series(ax, join_seeds(records), style)
        for record in records:
            if record.ended in END_MARKERS and record.accuracy:
                marker, size = END_MARKERS[record.ended]
                x, y = record.accuracy[-1]
                ax.plot(x, y, marker, markersize=size, color=style.colour, zorder=4, clip_on=False)
    ax.margins(x=0.01)


def _label_position(records: Collection[Record], summary: Summary) -> tuple[float, float] | None:
    """The end of a curve; curves whose seeds all stop at the target are ordered by their rounds to it."""
    arrivals = [float(record.accuracy[-1][0]) for record in records if record.ended == "target"]
    if len(arrivals) < len(records) or summary.target is None:
        return join_seeds(records).end
    return median(arrivals), summary.target + 1e-4 * (1.0 - median(arrivals) / summary.rounds)


def curve_styles(labels: Sequence[str]) -> list[LineStyle]:
    """A colour for each algorithm, a dash for each variant of it (`BR-DRAG, c = 0.1`); a colour ramp for many."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    from dragfl.report.figures.style import DASHES, line_styles

    variants: dict[str, list[str]] = {}
    for label in sorted(labels, key=lambda label: ", " in label):  # the plain one first, so that it is solid
        variants.setdefault(label.partition(", ")[0], []).append(label)
    names = list(dict.fromkeys(label.partition(", ")[0] for label in labels))
    base = dict(zip(names, line_styles([Group(name, "", "", ()) for name in names]), strict=True))
    styles = []
    for label in labels:
        name = label.partition(", ")[0]
        place, many = variants[name].index(label), len(variants[name])
        if many > len(DASHES):
            colour = to_hex(colormaps["viridis"](0.05 + 0.8 * sorted(variants[name]).index(label) / (many - 1)))
            styles.append(replace(base[name], colour=colour, dash=DASHES[0]))
        else:
            styles.append(replace(base[name], dash=DASHES[place]) if place else base[name])
    return styles
