"""How much the server step, the reference and the client updates agree, by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dragfl.report.figures.chart import chart_values
from dragfl.report.figures.curves import line_note
from dragfl.report.figures.end_labels import label_ends
from dragfl.report.figures.files import Drawing
from dragfl.report.figures.style import draw_lines, line_styles, set_log_axis, set_round_axis
from dragfl.report.groups import Group
from dragfl.report.series import Series, group_series, points_by_round, running_mean

# metric -> (title, unit, caption)
METRICS = {
    "step_ratio": (
        "Length of the server step",
        "|step| / |mean update|",
        "How far the model moves, relative to the mean of all updates; 1 for FedAvg with a server learning rate of 1.",
    ),
    "reference_cosine": (
        "Reference and mean update",
        "cosine",
        "Cosine between the reference direction and that mean, for rules with a reference.",
    ),
    "pairwise_cosine": (
        "Pairs of aggregated updates",
        "mean pairwise cosine",
        "Mean cosine between pairs of updates as the rule averages them.",
    ),
}


def draw_drift(groups: Sequence[Group]) -> Drawing | None:
    """One subplot for each of the metrics that the runs have."""
    series = {key: [group_series(group, points_by_round(key)) for group in groups] for key in METRICS}
    series = {key: lines for key, lines in series.items() if any(line.end for line in lines)}
    if not series:
        return None
    window = 2 * (max(len(line.x) for lines in series.values() for line in lines) // 80) + 1
    names, styles = [group.label for group in groups], line_styles(groups)
    plots = {
        METRICS[key][0]: list(zip(names, [_smooth(line, window) for line in lines], styles, strict=True))
        for key, lines in series.items()
    }
    figure = draw_lines(plots, height=1.85, share_y=False)
    for ax, (key, lines) in zip(figure.axes, series.items(), strict=True):
        ax.set_ylabel(METRICS[key][1])
        values = [value for line in lines for value in (*line.low, *line.high) if value > 0]
        if key == "step_ratio" and values and max(values) > 30 * min(values):
            set_log_axis(ax, min(values), max(values))
            ax.set_title(f"{METRICS[key][0]} (log scale)")
    set_round_axis(figure.axes[-1])
    caption = " ".join(METRICS[key][2] for key in series)
    caption += f" Running means over {window} rounds." if window > 1 else ""
    label_ends(figure, plots)
    chart = chart_values(figure, plots, x="round", y="number")
    return Drawing("drift", figure, "Drift telemetry", caption + line_note(groups), chart)


def _smooth(line: Series, window: int) -> Series:
    mean, low, high = (running_mean(values, window) for values in (line.mean, line.low, line.high))
    return replace(line, mean=mean, low=low, high=high)
