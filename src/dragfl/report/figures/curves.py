"""Accuracy and loss by round, and accuracy by what it cost to send.

Where runs are under different attacks and there are many, each attack has a panel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from dragfl.report.figures import Drawing
from dragfl.report.figures.style import (
    INK,
    Pen,
    canvas,
    count_axis,
    label_ends,
    log_axis,
    pens,
    plot_series,
)
from dragfl.report.groups import Group
from dragfl.report.numbers import bytes_text
from dragfl.report.series import Points, Series, by_bytes_points, metric, number, series
from dragfl.runs.directory import Run

HEIGHT, PANEL_HEIGHT, NAME_HEIGHT = 3.5, 2.1, 0.28
TOGETHER, MOST_PANELS = 4, 5  # up to so many groups share a panel; more attacks than this do as well
OFF_AXIS = 100.0  # a loss this many times the loss at the start is off the axis

Line = tuple[Group, Series, Pen]


def accuracy(groups: Sequence[Group]) -> Drawing | None:
    """Test accuracy by round."""
    lines = _lines(groups, metric("accuracy"))
    if not lines:
        return None
    figure = _panels(groups, lines, lambda ax: _accuracy_axis(ax, groups), target=shared_target(groups))
    count_axis(figure.axes[-1])
    caption = "Test accuracy at the evaluated rounds." + band_words(groups) + _target_words(groups)
    return Drawing("accuracy", figure, "Test accuracy by round", caption, f"Line chart. {_ends(lines)}")


def by_bytes(groups: Sequence[Group]) -> Drawing | None:
    """Test accuracy by bytes sent so far, in both directions."""
    lines = _lines(groups, by_bytes_points("accuracy"))
    if not lines:
        return None
    figure = _panels(groups, lines, lambda ax: _accuracy_axis(ax, groups), target=shared_target(groups))
    bottom = figure.axes[-1]
    bottom.set_xlabel("sent so far, up and down, all clients together")
    bottom.xaxis.set_major_formatter(FuncFormatter(lambda x, _: bytes_text(x)))
    bottom.xaxis.set_major_locator(MaxNLocator(6))
    caption = "What the accuracy cost in communication, down to the clients and up from them." + band_words(groups)
    return Drawing("bytes", figure, "Test accuracy by bytes sent", caption, f"Line chart. {_ends(lines)}")


def loss(groups: Sequence[Group]) -> Drawing | None:
    """Test loss by round; a loss that explodes leaves the axis instead of flattening all others."""
    starts = [points[0][1] for group in groups for run in group.runs if (points := metric("loss")(run))]
    if not starts:
        return None
    cap = OFF_AXIS * max(median(starts), 1e-12)
    lines = _lines(groups, lambda run: _numbers(run, cap))
    values = [y for _, s, _ in lines for y in (*s.low, *s.high, *(y for part in s.loose for _, y in part))]
    log, exploded = min(values) > 0 and max(values) > 10 * min(values), max(values) > cap

    def axis(ax: Axes) -> None:
        ax.set_ylabel("test loss" + (" (log scale)" if log else ""))
        if log:
            log_axis(ax, min(values), min(max(values), cap))
        if exploded:
            ax.set_ylim(top=cap)
        elif not log:
            ax.set_ylim(bottom=0)

    figure = _panels(groups, lines, axis)
    count_axis(figure.axes[-1])
    caption = "Test loss at the evaluated rounds" + (", on a logarithmic axis." if log else ".")
    if exploded:
        caption += f" The axis ends at {cap:.3g}, {OFF_AXIS:g} times the median first loss: a line that leaves it"
        caption += " is higher, or no longer a finite number."
    return Drawing("loss", figure, "Test loss by round", caption + band_words(groups), f"Line chart. {caption}")


def _numbers(run: Run, cap: float) -> Points:
    """The loss curve with what is not a number, and what would overflow a mean, far above the axis."""
    far = 1e6 * cap
    seen = [(float(m["round"]), number(m["loss"])) for m in run.metrics if "loss" in m]
    return [(t, min(value, far) if math.isfinite(value) else far) for t, value in seen]


def _apart(groups: Sequence[Group]) -> bool:
    attacks = {group.against for group in groups}
    return len(groups) > TOGETHER and 1 < len(attacks) <= MOST_PANELS


def _lines(groups: Sequence[Group], points: Callable[[Run], Points]) -> list[Line]:
    """The curves of the groups that have one, each with its pen."""
    drawn = zip(groups, pens(groups, apart=_apart(groups)), strict=True)
    found = [(group, series(group, points), pen) for group, pen in drawn]
    return [line for line in found if line[1].end is not None]


def _panels(
    groups: Sequence[Group], lines: Sequence[Line], axis: Callable[[Axes], None], target: float | None = None
) -> Figure:
    """Draw the lines in one panel, or one above the other by attack, and write their names at their ends."""
    apart = _apart(groups)
    names = list(dict.fromkeys(group.against if apart else "" for group, _, _ in lines))
    figure = canvas(0.4 + PANEL_HEIGHT * len(names) if len(names) > 1 else max(HEIGHT, NAME_HEIGHT * len(lines)))
    axes = figure.subplots(len(names), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    members = [[line for line in lines if not apart or line[0].against == name] for name in names]
    for ax, name, inside in zip(axes, names, members, strict=True):
        for _, curve, pen in inside:
            plot_series(ax, curve, pen)
        ax.set_title(name)
        ax.margins(x=0.01)
    for ax in axes:  # after all lines, since the panels share their limits
        axis(ax)
    figure.draw_without_rendering()
    for ax, inside in zip(axes, members, strict=True):
        shown = [group.short if apart else group.label for group, _, _ in inside]
        label_ends(ax, [curve.end for _, curve, _ in inside], [pen for _, _, pen in inside], shown, target=target)
    return figure


def _accuracy_axis(ax: Axes, groups: Sequence[Group]) -> None:
    """Percent, never beyond 100, and a hairline at the target that all runs share."""
    ax.set_ylabel("test accuracy")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    low, high = ax.get_ylim()
    target = shared_target(groups)
    if target is not None:
        low, high = min(low, target - 0.02), max(high, target + 0.02)
        ax.axhline(target, color=INK, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
    ax.set_ylim(max(0.0, low), min(1.0, high))


def shared_target(groups: Sequence[Group]) -> float | None:
    targets = {group.spec.get("target_accuracy") for group in groups}
    only = targets.pop() if len(targets) == 1 else None
    return None if only is None else float(only)


def band_words(groups: Sequence[Group]) -> str:
    """How seeds and unfinished runs are drawn, where there are any."""
    words = ""
    if any(len(group.runs) > 1 for group in groups):
        banded = all(pen.band for pen in pens(groups, apart=_apart(groups)))
        bands = ", bands the range from the lowest to the highest seed." if banded else "; the table has the spread."
        words += f" Lines are means over seeds{bands}"
    if any(not run.finished for group in groups for run in group.runs):
        words += " Unfinished runs are drawn as far as they have come, thin beside finished ones."
    return words


def _target_words(groups: Sequence[Group]) -> str:
    return " The dotted line is the target accuracy." if shared_target(groups) is not None else ""


def _ends(lines: Sequence[Line]) -> str:
    ends = [(group.label, curve.end) for group, curve, _ in lines]
    return "; ".join(f"{label} ends at {100 * end[1]:.1f} %" for label, end in ends if end) + "."
