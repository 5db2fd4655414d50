"""A panel as the paper draws it: test accuracy by round, a line for every algorithm, a band over the seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dragfl.report.figures import require_packages
from dragfl.report.groups import Group
from dragfl.report.series import Series, average_curves
from dragfl.reproduction.figure import Curve, Panel
from dragfl.reproduction.summary import Record, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dragfl.report.figures import Drawing, SavedFigure
    from dragfl.report.figures.style import LineStyle

HEIGHT, NAME_HEIGHT, FACET_HEIGHT, COLUMNS = 3.4, 0.24, 1.9, 3
ENDINGS = {"target": ("o", 3.2), "diverged": ("x", 6.0)}
LEGEND_HEIGHT, HANDLE_WIDTH, LETTER_WIDTH = 0.25, 0.55, 0.078  # inches


def draw(panel: Panel, summary: Summary, out: Path) -> SavedFigure | None:
    """The figure of a panel as PNG and PDF, or None where nothing has been run."""
    require_packages("matplotlib")
    from dragfl.report.figures import save_figure
    from dragfl.report.figures.style import plot_style

    with plot_style():
        made = drawing(panel, summary)
        return None if made is None else save_figure(made, out)


def drawing(panel: Panel, summary: Summary) -> Drawing | None:
    from dragfl.report.figures import Drawing

    shown = [curve for curve in panel.curve if summary.curves.get(curve.id)]
    if not shown:
        return None
    faceted = any(curve.facet for curve in shown)
    figure = _facets(shown, summary) if faceted else _single(shown, summary)
    title = f"{panel.figure}: {panel.title}"
    return Drawing(panel.name, figure, title, caption(panel, summary), f"Line chart. {_ends(shown, summary)}")


def _single(shown: Sequence[Curve], summary: Summary) -> Figure:
    from dragfl.report.figures.style import label_lines, new_figure, plot_series, set_round_axis

    figure = new_figure(max(HEIGHT, NAME_HEIGHT * (len(shown) + 1)))
    ax = figure.subplots()
    lines, drawn = [line(summary.curves[curve.id].values()) for curve in shown], pens([c.label for c in shown])
    for curve, series, pen in zip(shown, lines, drawn, strict=True):
        plot_series(ax, series, pen)
        _endings(ax, summary.curves[curve.id].values(), pen)
    ax.margins(x=0.01)
    _axis(ax, summary)
    set_round_axis(ax)
    figure.draw_without_rendering()
    ends = [
        _end(series, summary.curves[curve.id].values(), summary) for curve, series in zip(shown, lines, strict=True)
    ]
    label_lines(ax, ends, drawn, [curve.label for curve in shown], target=summary.target)
    return figure


def _end(series: Series, records: Collection[Record], summary: Summary) -> tuple[float, float] | None:
    """Where a curve's name goes: of those with all seeds at the target the first to arrive is on top."""
    arrivals = [float(record.accuracy[-1][0]) for record in records if record.ended == "target"]
    if len(arrivals) < len(records) or summary.target is None:
        return series.end
    return median(arrivals), summary.target + 1e-4 * (1.0 - median(arrivals) / summary.rounds)


def _endings(ax: Axes, records: Iterable[Record], pen: LineStyle) -> None:
    """A dot where a run ended because it had reached the target, a cross where it was seen last before it diverged."""
    for record in records:
        marker, size = ENDINGS.get(record.ended, ("", 0.0))
        if marker and record.accuracy:
            x, y = record.accuracy[-1]
            ax.plot([x], [y], linestyle="", marker=marker, markersize=size, color=pen.colour, zorder=4, clip_on=False)


def _facets(shown: Sequence[Curve], summary: Summary) -> Figure:
    from dragfl.report.figures.style import new_figure, plot_series, set_round_axis

    facets = list(dict.fromkeys(curve.facet for curve in shown))
    labels = list(dict.fromkeys(curve.label for curve in shown))
    pen: dict[str, LineStyle] = dict(zip(labels, pens(labels), strict=True))
    rows = -(-len(facets) // COLUMNS)
    columns = _columns(labels)
    figure = new_figure(0.4 + LEGEND_HEIGHT * -(-len(labels) // columns) + FACET_HEIGHT * rows)
    axes = figure.subplots(rows, min(COLUMNS, len(facets)), sharex=True, sharey=True, squeeze=False)
    places = list(axes.flat)
    for ax, facet in zip(places, facets, strict=False):
        for curve in (c for c in shown if c.facet == facet):
            plot_series(ax, line(summary.curves[curve.id].values()), pen[curve.label])
            _endings(ax, summary.curves[curve.id].values(), pen[curve.label])
        ax.set_title(facet)
        ax.margins(x=0.01)
    for ax in places[: len(facets)]:
        _axis(ax, summary)
        ax.set_ylabel("")
    for ax in places[len(facets) :]:
        ax.set_visible(False)
    for ax in places[max(0, len(facets) - axes.shape[1]) : len(facets)]:
        set_round_axis(ax)
        ax.tick_params(labelbottom=True)
    for row in axes:
        row[0].set_ylabel("test accuracy")
    _legend(figure, labels, pen, columns)
    return figure


def _columns(labels: Sequence[str]) -> int:
    """As many as fit beside each other."""
    from dragfl.report.figures.style import WIDTH

    widest = HANDLE_WIDTH + LETTER_WIDTH * max(map(len, labels))
    return max(1, min(len(labels), int(WIDTH / widest)))


def _legend(figure: Figure, labels: Sequence[str], pen: dict[str, LineStyle], columns: int) -> None:
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=pen[x].colour, linestyle=pen[x].dash, linewidth=pen[x].width) for x in labels]
    figure.legend(lines, labels, loc="outside upper left", ncols=columns)


def _axis(ax: Axes, summary: Summary) -> None:
    from matplotlib.ticker import PercentFormatter

    from dragfl.report.figures.style import INK

    ax.set_ylabel("test accuracy")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    low, high = ax.get_ylim()
    if summary.target is not None:
        high = max(high, summary.target + 0.02)
        ax.axhline(summary.target, color=INK, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
    ax.set_ylim(max(0.0, low), min(1.0, high))


def line(records: Iterable[Record]) -> Series:
    """Mean and range over the seeds at the rounds they share; what only some of them ran stays a thin line."""
    return average_curves([(True, [(float(t), value) for t, value in record.accuracy]) for record in records])


def pens(labels: Sequence[str]) -> list[LineStyle]:
    """A colour for each algorithm, a dash for each variant of it (`BR-DRAG, c = 0.1`); many are a ramp."""
    from dataclasses import replace

    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    from dragfl.report.figures.style import DASHES, line_styles

    variants: dict[str, list[str]] = {}
    for label in sorted(labels, key=lambda label: ", " in label):  # the plain one first, so that it is solid
        variants.setdefault(label.partition(", ")[0], []).append(label)
    names = list(dict.fromkeys(label.partition(", ")[0] for label in labels))
    colours = dict(zip(names, line_styles([Group(name, "", "", ()) for name in names]), strict=True))
    found = []
    for label in labels:
        name = label.partition(", ")[0]
        place, many = variants[name].index(label), len(variants[name])
        if many > len(DASHES):
            colour = to_hex(colormaps["viridis"](0.05 + 0.8 * sorted(variants[name]).index(label) / (many - 1)))
            found.append(replace(colours[name], colour=colour, dash=DASHES[0]))
        else:
            own = colours[name].dash  # not solid where its colour had been taken before
            found.append(replace(colours[name], dash=DASHES[place] if place else own))
    return found


def caption(panel: Panel, summary: Summary) -> str:
    """What is drawn, on which data, how often and how long; true of the runs and nothing else."""
    seeds = len(summary.seeds)
    least = min((len(records) for records in summary.curves.values() if records), default=0)
    many = f"{seeds} seed{'s' * (seeds > 1)}" if least == seeds else f"{least} to {seeds} seeds"
    words = [f"{panel.title}. Data: {summary.dataset}; at most {summary.rounds} rounds, {many}"]
    if seeds > 1:
        words.append("lines are means, bands the range over seeds, thin ends are seeds that ran longer")
    if summary.target is not None:
        words.append(f"the dotted line is the target of {100 * summary.target:g} %")
        if any(r.ended == "target" for records in summary.curves.values() for r in records.values()):
            words.append("a dot is where a run ended because it had reached it")
    if any(r.diverged for records in summary.curves.values() for r in records.values()):
        words.append("a cross is the last evaluation of a run that diverged")
    if summary.quick:
        words.append("a scaled-down look, not the paper's setting")
    if summary.changed:
        words.append(f"changed: {', '.join(summary.changed)}")
    return "; ".join(words) + "."


def _ends(shown: Sequence[Curve], summary: Summary) -> str:
    ends = [(curve.label, line(summary.curves[curve.id].values()).end) for curve in shown]
    return "; ".join(f"{label} ends at {100 * end[1]:.1f} %" for label, end in ends if end) + "."
