"""How far the server's step and the clients' updates agree, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.axes import Axes

from dragfl.report.figures import Drawing
from dragfl.report.figures.curves import band_words
from dragfl.report.figures.style import canvas, count_axis, label_ends, log_axis, pens, plot_series
from dragfl.report.groups import Group
from dragfl.report.series import Series, metric, series, smooth

PANELS = {
    "step_ratio": ("Length of the step", "|Δ| / |mean update|"),
    "reference_cosine": ("Reference and mean update", "cosine"),
    "pairwise_cosine": ("Among the aggregated updates", "mean pairwise cosine"),
}


def telemetry(groups: Sequence[Group]) -> Drawing | None:
    """Step ratio, cosine of the reference with the mean update, and mean pairwise cosine, one above the other."""
    found = {key: [series(group, metric(key)) for group in groups] for key in PANELS}
    found = {key: lines for key, lines in found.items() if any(line.end for line in lines)}
    if not found:
        return None
    length = max(len(line.x) for lines in found.values() for line in lines)
    window = 2 * (length // 80) + 1
    figure = canvas(0.5 + 1.85 * len(found))
    axes = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    drawn = [[_smoothed(line, window) for line in lines] for lines in found.values()]
    for ax, key, lines in zip(axes, found, drawn, strict=True):
        _panel(ax, key, lines, groups)
    count_axis(axes[-1])
    figure.draw_without_rendering()
    names = [group.label for group in groups]
    for ax, lines in zip(axes, drawn, strict=True):
        label_ends(ax, [line.end for line in lines], pens(groups), names)
    smoothed = f" Running means over {window} rounds." if window > 1 else ""
    caption = _words(list(found)) + smoothed + band_words(groups)
    return Drawing("drift", figure, "Drift telemetry", caption, "Line charts by round. " + caption)


def _panel(ax: Axes, key: str, lines: Sequence[Series], groups: Sequence[Group]) -> None:
    title, unit = PANELS[key]
    for line, pen in zip(lines, pens(groups), strict=True):
        plot_series(ax, line, pen)
    ax.set_title(title)
    ax.set_ylabel(unit)
    ax.margins(x=0.01)
    values = [value for line in lines for value in (*line.low, *line.high) if value > 0]
    if key == "step_ratio" and values and max(values) > 30 * min(values):
        log_axis(ax, min(values), max(values))
        ax.set_title(title + " (log scale)")


def _smoothed(line: Series, window: int) -> Series:
    mean, low, high = (smooth(values, window) for values in (line.mean, line.low, line.high))
    return replace(line, mean=mean, low=low, high=high)


def _words(keys: Sequence[str]) -> str:
    said = {
        "step_ratio": "The length of the step beside that of the plain mean of all updates (1: as in FedAvg)",
        "reference_cosine": "the cosine between the reference direction and that mean, where the rule has a reference",
        "pairwise_cosine": "the mean cosine between pairs of the updates as they enter the mean, after dragging",
    }
    text = "; ".join(said[key] for key in keys)
    return text[0].upper() + text[1:] + "."
