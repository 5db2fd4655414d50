"""Numbers and comparisons as text. Rows of the verdict table are in `rows.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dragfl.reproduction.claims import ACCURACY_METRICS, Comparison
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.intervals import Interval, bootstrap, median
from dragfl.reproduction.summary import Record, Summaries
from dragfl.reproduction.verdicts import (
    ClaimResult,
    ComparisonResult,
    Verdict,
    metrics,
    target_of,
)

FRACTIONS = ("against", "reversed", "over_reference", "shortened", "skipped")
RELATIONS = {"<": "< ", "<=": "≤ ", ">": "> ", ">=": "≥ ", "=": "= ", "within": "1 ± ", "apart": "≠ 0, by "}
METRIC_NAMES = {
    "rounds": "rounds to the target",
    "final": "final accuracy",
    "best": "best accuracy",
    "mean": "mean accuracy over the run",
    "accuracy_std": "standard deviation of the accuracy",
    "against": "fraction of honest updates pointing away from the root update",
    "reversed": "fraction of malicious updates with negative weight",
    "over_reference": "fraction of steps longer than the root update",
    "shortened": "fraction of updates shortened along the reference",
    "pairwise_cosine": "mean pairwise cosine",
    "skipped": "fraction of skipped rounds",
    "reference_norm": "norm of the root update",
    "bytes": "bytes in a round",
}


def curve_label(comparison: Comparison, curve: str) -> str:
    """The label of a curve; with conditions, of the curve in any of them."""
    figure = load_figure(comparison.figure)
    return figure[f"{curve}-{comparison.conditions[0]}" if comparison.conditions else curve].label


def metric_name(comparison: Comparison, summaries: Summaries) -> str:
    """The metric with the target at which it is judged."""
    summary = summaries.get(comparison.figure)
    target = comparison.target if summary is None else target_of(comparison, summary)
    if comparison.metric == "rounds" and target is not None:
        return f"rounds to {100 * target:g} %"
    return METRIC_NAMES.get(comparison.metric, comparison.metric)


def format_measured(result: ClaimResult, summaries: Summaries) -> list[str]:
    """A line for each comparison, with the figure where there are several, and with the setting it is for."""
    lines = []
    for label, results in result.by_setting.items():
        figures = [each.comparison.figure for each in results]
        for each in results:
            figure = each.comparison.figure
            text = format_comparison(each, summaries, named=not label or figures.count(figure) > 1)
            place = ", ".join(word for word in (figure if len(set(figures)) > 1 else "", label) if word)
            if text:
                lines.append(f"{place}: {text}" if place else text)
    return lines


def format_comparison(result: ComparisonResult, summaries: Summaries, *, named: bool = True) -> str:
    """`DRAG 390, SCAFFOLD 520: ratio 0.75 (0.70 to 0.80)`: medians of curve and best competitor, then the statistic.

    Without `named` the label of the curve is left out.
    """
    if result.verdict is Verdict.NOT_RUN:
        return ""
    comparison, values = result.comparison, list(result.values.values())
    statistic = format_values(comparison, values)
    summary, figure = summaries[comparison.figure], load_figure(comparison.figure)
    records = {c: [summary.curves[c][seed] for seed in result.values] for c in comparison.curves}
    if comparison.minus is not None or comparison.statistic == "margin":
        return f"{statistic_name(comparison)} {statistic}"
    if not comparison.versus:
        ending = format_divergence(records[comparison.curve])
        name = statistic_name(comparison) if named else value_name(comparison)
        return f"{name} {statistic}".strip() + (f" ({ending})" if ending else "")
    by_seed = [metrics(comparison, seed, summary) for seed in result.values]
    medians = {curve: median([values[curve] for values in by_seed]) for curve in comparison.curves}
    sign = 1 if comparison.low_is_best else -1
    best = min(comparison.versus, key=lambda c: (sign * medians[c].low, sign * min(medians[c].high, 1e12)))
    plain = replace(comparison, statistic="value")
    curves = []
    for curve in (comparison.curve, best):
        ending = format_divergence(records[curve])
        number = format_value(plain, medians[curve])
        if ending:
            number = ending if all(record.diverged for record in records[curve]) else f"{number} ({ending})"
        curves.append(f"{figure[curve].label_in_text} {number}" if named or curve == best else number)
    points = comparison.statistic == "difference" and comparison.metric in ACCURACY_METRICS  # the unit says it
    return f"{', '.join(curves)}: {statistic if points else f'{statistic_name(comparison)} {statistic}'}"


def format_divergence(records: Sequence[Record]) -> str:
    """`diverged at round 40`, `2 of 3 diverged`, or nothing."""
    diverged = [record for record in records if record.diverged]
    if len(diverged) < len(records):
        return f"{len(diverged)} of {len(records)} diverged" if diverged else ""
    rounds = [record.diverged_at for record in diverged]
    known = sorted({t for t in rounds if t is not None})
    if not known:
        return "diverged"
    return f"diverged at round {known[0]}" + (f" to {known[-1]}" if len(known) > 1 else "")


def statistic_name(comparison: Comparison) -> str:
    if comparison.label:
        return comparison.label
    if comparison.statistic == "value":
        label = load_figure(comparison.figure)[comparison.curve].label_in_text
        name = value_name(comparison)
        return f"{label}, {name}" if name else label
    return comparison.statistic.removeprefix("inverse_")


def value_name(comparison: Comparison) -> str:
    """The metric; for final accuracy nothing, since it is what an accuracy means where nothing is said."""
    return "" if comparison.metric == "final" else METRIC_NAMES.get(comparison.metric, comparison.metric)


def format_values(comparison: Comparison, values: Sequence[Interval]) -> str:
    """The median, with its interval over several seeds; words that both have are not repeated."""
    central, confidence = median(values), bootstrap(values)
    text = format_value(comparison, central)
    ends = [format_value(comparison, bound) for bound in _bounds(confidence, values)]
    if ends[0] == ends[1]:
        return text
    for unit in (" points", " %", " MB"):
        if all(shown.endswith(unit) for shown in (text, *ends)):
            ends = [end.removesuffix(unit) for end in ends]
    for bound in ("at most ", "at least ", "> "):
        if all(shown.startswith(bound) for shown in (text, *ends)):
            ends = [end.removeprefix(bound) for end in ends]
    return f"{text} ({' to '.join(ends)})"


def _bounds(confidence: Interval, values: Sequence[Interval]) -> tuple[Interval, Interval]:
    """The ends of an interval as intervals of their own: an end that comes from a censored value is a bound only."""
    low = Interval(confidence.low, min((v.high for v in values if v.low == confidence.low), default=confidence.low))
    high = Interval(max((v.low for v in values if v.high == confidence.high), default=confidence.high), confidence.high)
    return low, high


def format_value(comparison: Comparison, value: Interval) -> str:
    """`390`, `> 1000`, `never`, `at most 0.39`, `81.2 %`, `+3.1 points`, `unknown`."""
    low, high = value.low, value.high
    relative = comparison.statistic in ("ratio", "inverse_ratio", "rank") or comparison.minus is not None
    if low == math.inf:
        return "infinite" if relative or comparison.metric != "rounds" else "never"
    if not relative and low == -math.inf:
        return "not measured"
    if value.known:
        return format_number(comparison, low)
    if not relative:
        return f"> {low:.0f}" if value.censored else format_number(comparison, low)
    if math.isinf(high):
        return f"at least {format_number(comparison, low)}" if low > 0 else "unknown"
    if math.isinf(low) or (low <= 0 and comparison.minus is None):
        return f"at most {format_number(comparison, high)}"
    return f"{format_number(comparison, low)} … {format_number(comparison, high)}"


def format_number(comparison: Comparison, number: float) -> str:
    kind, sign = comparison.statistic, "+" if comparison.minus is not None else ""
    if kind == "rank":
        return f"{number:{sign}g}"
    if kind in ("ratio", "inverse_ratio"):
        return f"{number:{sign}.2f}"
    if comparison.metric in ACCURACY_METRICS:
        return f"{100 * number:.1f} %" if kind == "value" else f"{100 * number:+.1f} points"
    if comparison.metric in FRACTIONS:
        return f"{100 * number:.3g} %"
    if comparison.metric == "bytes":
        return f"{number / 1e6:.1f} MB"
    return f"{number:.3f}" if comparison.metric == "pairwise_cosine" else f"{number:.4g}"
