"""Accuracy and loss by round, and accuracy by bytes sent.

Where there are many groups with different attacks, each attack has a subplot of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dragfl.report.figures.chart import chart_values
from dragfl.report.figures.end_labels import label_ends
from dragfl.report.figures.files import Drawing
from dragfl.report.figures.style import (
    Line,
    draw_lines,
    line_styles,
    set_accuracy_axis,
    set_log_axis,
    set_round_axis,
)
from dragfl.report.groups import Group
from dragfl.report.numbers import format_bytes
from dragfl.report.series import Points, accuracy_by_bytes, group_series, parse_number, points_by_round
from dragfl.runs.directory import Run

HEIGHT, SUBPLOT_HEIGHT = 3.1, 2.1  # inches
MAX_GROUPS_TOGETHER, MAX_SUBPLOTS = 4, 5
LOSS_LIMIT = 100.0  # the loss axis ends at this multiple of the first loss


def draw_accuracy(groups: Sequence[Group], *, by_bytes: bool = False) -> Drawing | None:
    """Test accuracy by round, or by bytes sent so far in both directions."""
    plots = _lines_by_attack(groups, accuracy_by_bytes if by_bytes else points_by_round("accuracy"))
    if not plots:
        return None
    targets = {(group.spec.get("target_accuracy"), group.runs[0].target_on) for group in groups}
    target, data = targets.pop() if len(targets) == 1 else (None, "test")
    target = target if data == "test" else None  # drawn if all groups have the same target, on the test data
    figure = _draw_plots(plots)
    for ax in figure.axes:
        set_accuracy_axis(ax, target)
    note = line_note(groups) + ("" if target is None else f" Dotted: target of {100 * target:g} %.")
    bottom = figure.axes[-1]
    if by_bytes:
        bottom.set_xlabel("bytes sent so far, up and down, all clients")
        bottom.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_bytes(x)))
        bottom.xaxis.set_major_locator(MaxNLocator(6))
        texts = ("Test accuracy by bytes sent", f"Test accuracy by total communication.{note}")
    else:
        set_round_axis(bottom)
        texts = ("Test accuracy by round", f"Test accuracy of the evaluated rounds.{note}")
    label_ends(figure, plots)
    chart = chart_values(figure, plots, x="bytes" if by_bytes else "round", y="percent", target=target)
    return Drawing("bytes" if by_bytes else "accuracy", figure, *texts, chart)


def draw_loss(groups: Sequence[Group]) -> Drawing | None:
    """Test loss by round; an exploding loss leaves the axis, so that the other curves stay visible."""
    starts = [points[0][1] for group in groups for run in group.runs if (points := points_by_round("loss")(run))]
    if not starts:
        return None
    limit = LOSS_LIMIT * max(median(starts), 1e-12)
    plots = _lines_by_attack(groups, lambda run: _loss_points(run, 1e6 * limit))
    series = [series for lines in plots.values() for _, series, _ in lines]
    values = [y for s in series for y in (*s.low, *s.high, *(y for part in s.single for _, y in part))]
    log, exploded = min(values) > 0 and max(values) > 10 * min(values), max(values) > limit
    figure = _draw_plots(plots)
    for ax in figure.axes:
        ax.set_ylabel("test loss" + (" (log scale)" if log else ""))
        if log:
            set_log_axis(ax, min(values), min(max(values), limit))
        if exploded:
            ax.set_ylim(top=limit)
        elif not log:
            ax.set_ylim(bottom=0)
    set_round_axis(figure.axes[-1])
    caption = "Test loss of the evaluated rounds."
    if exploded:
        caption += f" The axis ends at {limit:.3g}; a line that leaves it is larger or not finite."
    label_ends(figure, plots)
    chart = chart_values(figure, plots, x="round", y="number")
    return Drawing("loss", figure, "Test loss by round", caption + line_note(groups), chart)


def _loss_points(run: Run, largest: float) -> Points:
    """The loss curve; values that are not finite or would overflow a mean are replaced by `largest`."""
    values = [(float(m["round"]), parse_number(m["loss"])) for m in run.metrics if "loss" in m]
    return [(t, min(value, largest) if math.isfinite(value) else largest) for t, value in values]


def _lines_by_attack(groups: Sequence[Group], points: Callable[[Run], Points]) -> dict[str, list[Line]]:
    """The lines of the groups that have points: by attack where there are many groups, else all under ""."""
    split = _split(groups)
    plots: dict[str, list[Line]] = {}
    for group, style in zip(groups, line_styles(groups, by_attack=split), strict=True):
        series = group_series(group, points)
        if series.end is not None:
            title, name = (group.attack_label, group.label_within_attack) if split else ("", group.label)
            plots.setdefault(title, []).append((name, series, style))
    return plots


def _split(groups: Sequence[Group]) -> bool:
    """Whether each attack has a subplot of its own."""
    attacks = {group.attack_label for group in groups}
    return len(groups) > MAX_GROUPS_TOGETHER and 1 < len(attacks) <= MAX_SUBPLOTS


def _draw_plots(plots: Mapping[str, Sequence[Line]]) -> Figure:
    return draw_lines(plots, height=HEIGHT if len(plots) == 1 else SUBPLOT_HEIGHT)


def line_note(groups: Sequence[Group]) -> str:
    """How several seeds, unfinished and diverged runs are drawn, where there are any."""
    note = ""
    if any(len(group.runs) > 1 for group in groups):
        band = any(style.band for style in line_styles(groups, by_attack=_split(groups)))
        note += " Lines: means over seeds." + (" Bands: range over seeds." if band else "")
    if any(len({len(run.metrics) for run in group.runs}) > 1 for group in groups):
        note += " Thin lines: seeds that ran longer than others, and unfinished ones."
    if any(not run.finished for group in groups for run in group.runs):
        note += " Unfinished runs are drawn up to their last round."
    if any(run.diverged for group in groups for run in group.runs):
        note += " Cross: the last value before a run diverged; runs that diverged before they had one are not drawn."
    return note
