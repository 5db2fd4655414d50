"""Plots as in the paper: test accuracy by round, a line for every algorithm, a band over the seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.report.figures.files import Drawing, require_packages
from dragfl.report.series import Series, average_curves
from dragfl.reproduction.figure import Curve, Figure, load_figure
from dragfl.reproduction.summary import Record, Summary

if TYPE_CHECKING:
    from dragfl.report.figures.style import Line, LineStyle

COLUMNS = 3  # subplots in a row
HEIGHT, FACET_HEIGHT = 3.0, 1.8  # inches
# In the order of the report's colours: blue, orange, green, purple, sky, black.
FIXED_COLOURS = ("DRAG", "FLTrust", "BR-DRAG", "SCAFFOLD", "FedProx", "FedAvg")
END_MARKERS = {"target": ("o", 3.2), "diverged": ("x", 6.0)}


def plot_figure(summary: Summary, out: Path) -> bool:
    """Write the plot as PNG and PDF: a subplot for each facet, one legend if several. False where no curve has runs."""
    require_packages("matplotlib")
    from dragfl.report.figures.end_labels import label_ends
    from dragfl.report.figures.style import draw_lines, plot_style, set_accuracy_axis, set_round_axis

    figure = load_figure(summary.figure)
    curves = [curve for curve in figure.curves if summary.curves.get(curve.id)]
    if not curves:
        return False
    styles = figure_styles(figure, curves)
    plots: dict[str, list[Line]] = {}
    for curve in curves:
        line = (curve.label, join_seeds(summary.curves[curve.id].values()), styles[curve.label])
        plots.setdefault(curve.facet, []).append(line)
    with plot_style():
        canvas = draw_lines(plots, height=HEIGHT if len(plots) == 1 else FACET_HEIGHT, columns=COLUMNS)
        axes = dict(zip(plots, canvas.axes, strict=True))
        for curve in curves:
            for record in summary.curves[curve.id].values():
                if record.ended in END_MARKERS and record.accuracy and curve.of is None:
                    marker, size = END_MARKERS[record.ended]
                    colour = styles[curve.label].colour
                    x, y = record.accuracy[-1]
                    axes[curve.facet].plot(x, y, marker, markersize=size, color=colour, zorder=4, clip_on=False)
        for i, ax in enumerate(canvas.axes):
            set_accuracy_axis(ax, summary.target)
            ax.set_ylabel("test accuracy" if i % COLUMNS == 0 else "")
            if i >= len(plots) - COLUMNS:
                set_round_axis(ax)
                ax.tick_params(labelbottom=True)
        if len(plots) == 1:
            label_ends(canvas, plots)
        Drawing(figure.name, canvas, f"{figure.topic}: {figure.title}", caption(figure, summary)).save(out)
    return True


def caption(figure: Figure, summary: Summary) -> str:
    """The data, seeds and rounds behind the plot, and a key to its marks."""
    seeds = len(summary.seeds)
    fewest = min((len(records) for records in summary.curves.values() if records), default=0)
    many = f"{seeds} seed{'s' * (seeds > 1)}" if fewest == seeds else f"{fewest} to {seeds} seeds"
    endings = {record.ended for record in summary.records}
    derived = [curve.label for curve in figure.curves if curve.of is not None and summary.curves.get(curve.id)]
    phrases = {
        f"{figure.title}. Data: {summary.dataset}; at most {summary.rounds} rounds, {many}": True,
        "lines: mean over seeds, bands: range over seeds, thin lines: seeds that ran longer": seeds > 1,
        f"dotted line: target of {100 * (summary.target or 0):g} %": summary.target is not None,
        "dot: the run stopped at the target": "target" in endings,
        "cross: last evaluation before the run diverged": "diverged" in endings,
        f"{', '.join(derived)}: the same runs, evaluated as in the algorithm's own paper": bool(derived),
        "reduced settings, not evidence": summary.quick,
        f"changed: {', '.join(summary.reported_changes)}": bool(summary.reported_changes),
    }
    return "; ".join(phrase for phrase, applies in phrases.items() if applies) + "."


def join_seeds(records: Iterable[Record]) -> Series:
    """Mean and range at the rounds that all seeds have; the rest of longer runs as separate lines."""
    return average_curves([(True, [(float(t), value) for t, value in record.accuracy]) for record in records])


def figure_styles(figure: Figure, curves: Sequence[Curve]) -> dict[str, LineStyle]:
    """A style for the label of each curve; a derived curve is dashed in the colour of the curve whose runs it shows."""
    from dragfl.report.figures.style import DASHES

    own = list(dict.fromkeys(figure[curve.of].label if curve.of is not None else curve.label for curve in curves))
    styles = curve_styles(own)
    for curve in curves:
        if curve.of is not None:
            parent = styles[figure[curve.of].label]
            dash = DASHES[1] if parent.dash != DASHES[1] else DASHES[2]
            styles[curve.label] = replace(parent, dash=dash, band=False)
    return styles


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
