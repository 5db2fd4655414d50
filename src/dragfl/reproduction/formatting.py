"""Results as text: a number with its unit, a comparison, a row of the verdict table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dragfl.reproduction.claims import ACCURACY_METRICS, Comparison
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.intervals import Interval, bootstrap, median
from dragfl.reproduction.missing import describe_missing
from dragfl.reproduction.summary import TELEMETRY, Record, Summaries
from dragfl.reproduction.verdicts import (
    DECIDED,
    ClaimResult,
    ComparisonResult,
    Verdict,
    metrics,
    target_of,
    verdict_over_seeds,
    weakest,
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


@dataclass(frozen=True)
class RivalRow:
    """A comparison with one of several competitors."""

    setting: str
    figure: str
    curve: str
    rival: str
    metric: str
    measured: str
    verdict: str


@dataclass(frozen=True)
class Row:
    """A row of the verdict table."""

    claim: str
    source: str
    section: str
    text: str
    measured: list[str]  # a line for each comparison and setting
    verdict: str
    remark: str
    missing: str  # seeds, rounds and computing time, if it is open
    settings: dict[str, str]  # label -> verdict
    rivals: list[RivalRow]


def make_row(result: ClaimResult, summaries: Summaries) -> Row:
    claim = result.claim
    return Row(
        claim=claim.id,
        source=claim.source,
        section=claim.section,
        text=claim.text,
        measured=format_measured(result, summaries),
        verdict=result.verdict.value,
        remark=format_remark(result, summaries),
        missing=describe_missing(result, summaries),
        settings={label: verdict.value for label, verdict in result.verdicts.items() if label},
        rivals=[
            rival_row(label, rival, summaries)
            for label, results in result.by_setting.items()
            for each in results
            for rival in each.rivals.values()
        ],
    )


def rival_row(setting: str, result: ComparisonResult, summaries: Summaries) -> RivalRow:
    comparison = replace(result.comparison, label="")
    return RivalRow(
        setting,
        comparison.figure,
        curve_label(comparison, comparison.curve),
        curve_label(comparison, comparison.versus[0]),
        metric_name(comparison, summaries),
        format_comparison(replace(result, comparison=comparison), summaries) or "—",
        result.verdict.value,
    )


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


def format_remark(result: ClaimResult, summaries: Summaries) -> str:
    """Why the verdict is what it is: settings, seeds, a lower target, changed settings, and the claim's own remark."""
    claim, verdict = result.claim, result.verdict
    run = [r for r in result.results if r.verdict is not Verdict.NOT_RUN]
    used = [summaries[name] for name in claim.figures if name in summaries]
    quick = any(summary.quick for summary in used)
    changes = [f"{', '.join(s.reported_changes)} in {s.figure}" for s in used if s.reported_changes]
    missing = dict.fromkeys(name for r in result.results for name in r.missing)
    own = {Verdict.PASS: claim.if_pass, Verdict.MIXED: claim.if_mixed, Verdict.FAIL: claim.if_fail}.get(verdict, "")
    texts = [
        format_settings(result) if claim.settings else "" if verdict is Verdict.NOT_RUN else format_seeds(result),
        f"Missing runs: {', '.join(missing)}." if missing else "",
        *format_lower_targets(run, summaries),
        f"With {' and '.join(changes)}." if changes and run else "",
        *(format_reasons(run, claim.seeds) if verdict is Verdict.UNDECIDED else []),
        "Reduced settings; not evidence." if quick and verdict in DECIDED else own,
    ]
    return " ".join(text for text in texts if text)


def format_reasons(results: Sequence[ComparisonResult], needed_seeds: int) -> list[str]:
    """Why comparisons are undecided."""
    reasons = []
    for r in results:
        if r.verdict is not Verdict.UNDECIDED:
            continue
        if r.comparison.metric in TELEMETRY and not all(value.known for value in r.values.values()):
            reasons.append("Not measured in all of these runs.")
        elif len(r.values) < needed_seeds:
            reasons.append(f"Needs {needed_seeds} seeds, {len(r.values)} run.")
        else:
            reasons.append("Too few runs reached the target to decide the median.")
    return list(dict.fromkeys(reasons))


def format_settings(result: ClaimResult) -> str:
    """`Holds for c = 0.25 and 0.5. Fails for c = 0.1.`; for undecided settings, what their seeds say so far."""
    so_far = {
        label: weakest([replace(r, verdict=verdict_over_seeds(r.comparison, list(r.values.values()))) for r in results])
        for label, results in result.by_setting.items()
        if result.verdicts[label] is Verdict.UNDECIDED
    }
    if not any(verdict in DECIDED for verdict in so_far.values()):
        return _group_settings(result.verdicts)
    decided = {label: verdict for label, verdict in result.verdicts.items() if label not in so_far}
    now = _group_settings(so_far)
    return f"{_group_settings(decided)} So far: {now[:1].lower()}{now[1:]}".strip()


def _group_settings(verdicts: Mapping[str, Verdict]) -> str:
    phrases = {
        Verdict.PASS: "Holds for",
        Verdict.MIXED: "Holds for the median but not for all seeds for",
        Verdict.FAIL: "Fails for",
        Verdict.UNDECIDED: "Undecided for",
        Verdict.NOT_RUN: "Not run for",
    }
    labels = {verdict: [label for label, found in verdicts.items() if found is verdict] for verdict in phrases}
    return " ".join(f"{phrases[verdict]} {join_labels(names)}." for verdict, names in labels.items() if names)


def join_labels(labels: Sequence[str]) -> str:
    """`c = 0.1, 0.25 and 0.5`: what the labels start with is not repeated. Labels with commas have semicolons."""
    if any("," in label for label in labels):
        return "; ".join(labels)
    key = labels[0].partition(" = ")[0]
    if all(label.startswith(f"{key} = ") for label in labels):
        labels = [labels[0], *(label.removeprefix(f"{key} = ") for label in labels[1:])]
    return " and ".join([", ".join(labels[:-1]), labels[-1]] if len(labels) > 1 else labels)


def format_lower_targets(results: Sequence[ComparisonResult], summaries: Summaries) -> list[str]:
    """`No run of fig4a reached 70 %: judged at 35 % (best accuracy: DRAG 47.5 %, FedAvg 38.9 %).`"""
    best: dict[str, dict[str, None]] = {}  # what was judged -> accuracy of each curve, in order
    for result in results:
        if result.missed_target is None:
            continue
        judged = f"judged at {100 * (result.comparison.target or 0):g} %"
        for term in result.comparison.terms:
            curves = summaries[term.figure].curves
            records = {curve: [curves[curve][seed] for seed in result.values] for curve in term.curves}
            reached = any(r.rounds_to(result.missed_target) is not None for each in records.values() for r in each)
            first = f"No run of {term.figure} reached {100 * result.missed_target:g} %: {judged}"
            shown = best.setdefault(f"{term.figure} {judged} too" if reached else first, {})
            for curve, each in records.items():
                accuracy = f"{100 * statistics.median(record.best for record in each):.1f} %"
                ending = "diverged" if all(record.diverged for record in each) else accuracy
                shown[f"{load_figure(term.figure)[curve].label_in_text} {ending}"] = None
    return [f"{judged} (best accuracy: {', '.join(curves)})." for judged, curves in best.items()]


def format_seeds(result: ClaimResult) -> str:
    """`Holds for 3 of 3 seeds.`; of several comparisons, for the one that decides and holds for the fewest seeds."""
    deciding = [r for r in result.results if r.verdict is result.verdict]
    worst = min(deciding, key=lambda r: list(r.holds.values()).count(True) / len(r.holds))
    holds, comparison = list(worst.holds.values()), worst.comparison
    text = f"Holds for {holds.count(True)} of {len(holds)} seed{'s' * (len(holds) > 1)}"
    if None in holds:
        text += f", open for {holds.count(None)}"
    if len(result.results) > 1:
        exact = comparison.relation in ("within", "apart")
        threshold = f"{comparison.threshold:g}" if exact else format_number(comparison, comparison.threshold)
        place = f"{comparison.figure}: " if len(result.claim.figures) > 1 else ""
        text += f" ({place}{statistic_name(comparison)} {RELATIONS[comparison.relation]}{threshold})"
    return f"{text}."
