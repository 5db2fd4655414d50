"""Results as text: a number with its unit, a comparison, a row of the verdict table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragfl.reproduction.claims import ACCURACY_METRICS, Comparison
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.intervals import Interval, median
from dragfl.reproduction.summary import TELEMETRY, Summaries
from dragfl.reproduction.verdicts import ClaimResult, ComparisonResult, Verdict, metric

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
}


@dataclass(frozen=True)
class Row:
    """A row of the verdict table."""

    claim: str
    text: str
    measured: str
    verdict: str
    remark: str


def make_row(result: ClaimResult, summaries: Summaries) -> Row:
    measured = "; ".join(text for r in result.results if (text := format_comparison(r, summaries)))
    return Row(
        result.claim.id, result.claim.text, measured or "—", result.verdict.value, format_remark(result, summaries)
    )


def format_comparison(result: ComparisonResult, summaries: Summaries) -> str:
    """`DRAG 390, SCAFFOLD 520: ratio 0.75 (0.70 to 0.80)`: medians of curve and best competitor, then the statistic."""
    if result.verdict is Verdict.NOT_RUN:
        return ""
    comparison, values = result.comparison, list(result.values.values())
    statistic = f"{statistic_name(comparison)} {format_values(comparison, values)}"
    if not comparison.versus or comparison.minus is not None or comparison.statistic == "margin":
        return statistic
    summary, figure = summaries[comparison.figure], load_figure(comparison.figure)
    medians = {
        curve: median([metric(comparison, summary.curves[curve][seed], summary) for seed in result.values])
        for curve in (comparison.curve, *comparison.versus)
    }
    sign = 1 if comparison.low_is_best else -1
    best = min(comparison.versus, key=lambda c: (sign * medians[c].low, sign * min(medians[c].high, 1e12)))
    plain = replace(comparison, statistic="value")
    curves = [f"{figure[curve].label} {format_value(plain, medians[curve])}" for curve in (comparison.curve, best)]
    return f"{', '.join(curves)}: {statistic}"


def statistic_name(comparison: Comparison) -> str:
    if comparison.label:
        return comparison.label
    if comparison.statistic == "value":
        label = load_figure(comparison.figure)[comparison.curve].full_label
        return f"{label}, {METRIC_NAMES.get(comparison.metric, comparison.metric)}"
    return comparison.statistic.removeprefix("inverse_")


def format_values(comparison: Comparison, values: Sequence[Interval]) -> str:
    """The median, with the range over several seeds."""
    text = format_value(comparison, median(values))
    low, high = min(values, key=lambda v: (v.low, v.high)), max(values, key=lambda v: (v.high, v.low))
    return text if low == high else f"{text} ({format_value(comparison, low)} to {format_value(comparison, high)})"


def format_value(comparison: Comparison, value: Interval) -> str:
    """`390`, `> 1000`, `at most 0.39`, `81.2 %`, `+3.1 points`, `unknown`."""
    low, high = value.low, value.high
    relative = comparison.statistic in ("ratio", "inverse_ratio", "rank") or comparison.minus is not None
    if not relative and math.isinf(low):
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
    return f"{number:.3f}" if comparison.metric == "pairwise_cosine" else f"{number:.4g}"


def format_remark(result: ClaimResult, summaries: Summaries) -> str:
    """Why the verdict is what it is: the seeds, changed settings, and a fixed phrase or the claim's own remark."""
    claim, results, verdict = result.claim, result.results, result.verdict
    if verdict is Verdict.NOT_RUN:
        return f"Missing runs: {', '.join(dict.fromkeys(name for r in results for name in r.missing))}."
    used = [summaries[name] for name in claim.figures if name in summaries]
    changes = dict.fromkeys(change for summary in used for change in summary.reported_changes)
    quick = any(summary.quick for summary in used)
    if quick and verdict is not Verdict.UNDECIDED:
        remark = "Reduced settings; not evidence."
    elif verdict is Verdict.PASS:
        remark = claim.if_pass
    elif verdict is Verdict.FAIL:
        median_fails = any(r.verdict is Verdict.FAIL and r.median_holds is False for r in results)
        remark = claim.if_fail if median_fails else "The median holds, but fewer than 80 % of the seeds do."
    elif any(r.comparison.metric in TELEMETRY and not v.known for r in results for v in r.values.values()):
        return "Not measured in all of these runs."
    elif (seeds := min(len(r.values) for r in results)) < claim.seeds and not quick:
        remark = f"Needs {claim.seeds} seeds, {seeds} run."
    else:
        remark = "Target not reached, or the seeds disagree."
    texts = [format_seeds(results), f"With {', '.join(changes)}." if changes else "", remark]
    return " ".join(text for text in texts if text)


def format_seeds(results: Sequence[ComparisonResult]) -> str:
    """`Holds for 3 of 3 seeds.`, of the comparison that holds for the fewest seeds."""
    worst = min(results, key=lambda r: list(r.holds.values()).count(True) / max(1, len(r.holds)))
    holds, comparison = list(worst.holds.values()), worst.comparison
    text = f"Holds for {holds.count(True)} of {len(holds)} seed{'s' * (len(holds) > 1)}"
    if None in holds:
        text += f", undecided for {holds.count(None)}"
    if len(results) > 1:
        exact = comparison.relation in ("within", "apart")
        threshold = f"{comparison.threshold:g}" if exact else format_number(comparison, comparison.threshold)
        text += f" ({statistic_name(comparison)} {RELATIONS[comparison.relation]}{threshold})"
    return f"{text}."
