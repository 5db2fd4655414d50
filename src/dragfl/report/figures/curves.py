"""Accuracy and loss by round, and accuracy by bytes sent.

Where there are many groups with different attacks, each attack has a subplot of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dragfl.report.figures.files import Drawing
from dragfl.report.figures.style import (
    LineStyle,
    label_lines,
    line_styles,
    new_figure,
    plot_series,
    set_accuracy_axis,
    set_log_axis,
    set_round_axis,
)
from dragfl.report.groups import Group
from dragfl.report.numbers import format_bytes
from dragfl.report.series import Points, Series, group_series, parse_number, points_by_bytes, points_by_round
from dragfl.runs.directory import Run

HEIGHT, SUBPLOT_HEIGHT, LABEL_HEIGHT = 3.5, 2.1, 0.28  # inches
MAX_GROUPS_TOGETHER, MAX_SUBPLOTS = 4, 5
LOSS_LIMIT = 100.0  # the loss axis ends at this multiple of the first loss

Line = tuple[Group, Series, LineStyle]


def draw_accuracy(groups: Sequence[Group]) -> Drawing | None:
    """Test accuracy by round."""
    figure, note = _draw_accuracy(groups, points_by_round("accuracy"))
    if figure is None:
        return None
    set_round_axis(figure.axes[-1])
    return Drawing("accuracy", figure, "Test accuracy by round", f"Test accuracy of the evaluated rounds.{note}")


def draw_accuracy_by_bytes(groups: Sequence[Group]) -> Drawing | None:
    """Test accuracy by bytes sent so far, in both directions."""
    figure, note = _draw_accuracy(groups, points_by_bytes("accuracy"))
    if figure is None:
        return None
    bottom = figure.axes[-1]
    bottom.set_xlabel("bytes sent so far, up and down, all clients")
    bottom.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_bytes(x)))
    bottom.xaxis.set_major_locator(MaxNLocator(6))
    return Drawing("bytes", figure, "Test accuracy by bytes sent", f"Test accuracy by total communication.{note}")


def _draw_accuracy(groups: Sequence[Group], points: Callable[[Run], Points]) -> tuple[Figure | None, str]:
    """(figure, note for its caption); no figure where no run has points."""
    lines = _make_lines(groups, points)
    if not lines:
        return None, ""
    targets = {group.spec.get("target_accuracy") for group in groups}
    target = targets.pop() if len(targets) == 1 else None  # drawn if all groups have the same
    figure = _draw_lines(groups, lines, lambda ax: set_accuracy_axis(ax, target), target=target)
    return figure, _note(groups, lines) + ("" if target is None else " Dotted: target accuracy.")


def draw_loss(groups: Sequence[Group]) -> Drawing | None:
    """Test loss by round; an exploding loss leaves the axis, so that the other curves stay visible."""
    starts = [points[0][1] for group in groups for run in group.runs if (points := points_by_round("loss")(run))]
    if not starts:
        return None
    limit = LOSS_LIMIT * max(median(starts), 1e-12)
    lines = _make_lines(groups, lambda run: _loss_points(run, 1e6 * limit))
    values = [y for _, s, _ in lines for y in (*s.low, *s.high, *(y for part in s.single for _, y in part))]
    log, exploded = min(values) > 0 and max(values) > 10 * min(values), max(values) > limit

    def set_axis(ax: Axes) -> None:
        ax.set_ylabel("test loss" + (" (log scale)" if log else ""))
        if log:
            set_log_axis(ax, min(values), min(max(values), limit))
        if exploded:
            ax.set_ylim(top=limit)
        elif not log:
            ax.set_ylim(bottom=0)

    figure = _draw_lines(groups, lines, set_axis)
    set_round_axis(figure.axes[-1])
    caption = "Test loss of the evaluated rounds."
    if exploded:
        caption += f" The axis ends at {limit:.3g}; a line that leaves it is larger or not finite."
    return Drawing("loss", figure, "Test loss by round", caption + _note(groups, lines))


def _loss_points(run: Run, largest: float) -> Points:
    """The loss curve; values that are not finite or would overflow a mean are replaced by `largest`."""
    values = [(float(m["round"]), parse_number(m["loss"])) for m in run.metrics if "loss" in m]
    return [(t, min(value, largest) if math.isfinite(value) else largest) for t, value in values]


def _split_by_attack(groups: Sequence[Group]) -> bool:
    attacks = {group.attack_label for group in groups}
    return len(groups) > MAX_GROUPS_TOGETHER and 1 < len(attacks) <= MAX_SUBPLOTS


def _make_lines(groups: Sequence[Group], points: Callable[[Run], Points]) -> list[Line]:
    """The groups that have points, each with its series and style."""
    styles = line_styles(groups, by_attack=_split_by_attack(groups))
    lines = [(group, group_series(group, points), style) for group, style in zip(groups, styles, strict=True)]
    return [line for line in lines if line[1].end is not None]


def _draw_lines(
    groups: Sequence[Group], lines: Sequence[Line], set_axis: Callable[[Axes], None], target: float | None = None
) -> Figure:
    """Draw all lines in one plot, or in one subplot for each attack, with labels at their ends."""
    split = _split_by_attack(groups)
    attacks = list(dict.fromkeys(group.attack_label if split else "" for group, _, _ in lines))
    one_plot = len(attacks) == 1
    figure = new_figure(max(HEIGHT, LABEL_HEIGHT * len(lines)) if one_plot else 0.4 + SUBPLOT_HEIGHT * len(attacks))
    axes = figure.subplots(len(attacks), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    members = [[line for line in lines if not split or line[0].attack_label == attack] for attack in attacks]
    for ax, attack, inside in zip(axes, attacks, members, strict=True):
        for _, series, style in inside:
            plot_series(ax, series, style)
        ax.set_title(attack)
        ax.margins(x=0.01)
    for ax in axes:  # after all lines, since the subplots share their limits
        set_axis(ax)
    figure.draw_without_rendering()
    for ax, inside in zip(axes, members, strict=True):
        names = [group.label_within_attack if split else group.label for group, _, _ in inside]
        ends, styles = [series.end for _, series, _ in inside], [style for _, _, style in inside]
        label_lines(ax, ends, styles, names, target=target)
    return figure


def line_note(groups: Sequence[Group], styles: Sequence[LineStyle]) -> str:
    """How several seeds and unfinished runs are drawn, where there are any."""
    note = ""
    if any(len(group.runs) > 1 for group in groups):
        bands = all(style.band for style in styles)
        note += " Lines: means over seeds." + (" Bands: range over seeds." if bands else "")
    if any(not run.finished for group in groups for run in group.runs):
        note += " Unfinished runs are drawn up to their last round."
    return note


def _note(groups: Sequence[Group], lines: Sequence[Line]) -> str:
    return line_note(groups, [style for _, _, style in lines])
