"""Rows of the verdict table: what a claim states, what was measured, the verdict, and a remark that explains it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.formatting import (
    RELATIONS,
    curve_label,
    format_comparison,
    format_measured,
    format_number,
    metric_name,
    statistic_name,
)
from dragfl.reproduction.missing import describe_missing
from dragfl.reproduction.summary import TELEMETRY, Summaries
from dragfl.reproduction.verdicts import (
    DECIDED,
    ClaimResult,
    ComparisonResult,
    Verdict,
    verdict_over_seeds,
    weakest,
)


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
