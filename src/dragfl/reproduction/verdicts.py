"""Verdicts from summaries, by the same rules for every claim.

For one seed: rounds to the target is the first evaluated round that reaches it. A run that does not reach it is
censored at the last round for which its accuracy is known, and a run that diverged never reaches it (two of them have
a ratio of 1). A ratio with a censored denominator has an upper bound only, one with a censored numerator a lower bound,
one with both is open.
Accuracies are compared within the rounds that all runs of the comparison have; a run that diverged is at chance level.

Over seeds: PASS if the relation holds for the median and all seeds; MIXED if for the median, but not for all seeds;
FAIL if the median contradicts it; UNDECIDED if censoring leaves the median open, or with fewer seeds than the claim
needs; NOT RUN if runs are missing. All comparisons of a claim must hold: it fails if one of them fails, and is open if
one of the others is.

Over settings, which the paper leaves open: MIXED also if the claim holds (PASS or MIXED) for some and fails for others;
FAIL if it fails for all.

Where no run of a comparison of rounds reaches the target, it is judged at the highest multiple of 5 % that the best
competitor reaches in the median over seeds; for a rank, at the highest that all curves reach which did not diverge.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dragfl.reproduction.claims import ACCURACY_METRICS, Claim, Comparison
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.intervals import Interval, bootstrap, maximum, median, minimum, rank
from dragfl.reproduction.summary import Record, Summaries, Summary

TARGET_STEP = 0.05


class Verdict(StrEnum):
    PASS = "PASS"
    MIXED = "MIXED"
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"
    NOT_RUN = "NOT RUN"


HOLDS = (Verdict.PASS, Verdict.MIXED)
DECIDED = (*HOLDS, Verdict.FAIL)


@dataclass(frozen=True)
class ComparisonResult:
    comparison: Comparison  # with the target at which it was judged
    verdict: Verdict
    values: dict[int, Interval] = field(default_factory=dict)  # seed -> value of the statistic
    holds: dict[int, bool | None] = field(default_factory=dict)  # seed -> whether the relation holds
    missing: list[str] = field(default_factory=list)  # what is missing, if it was not run
    missed_target: float | None = None  # the target that no run reached, where a lower one was judged
    rivals: dict[str, ComparisonResult] = field(
        default_factory=dict
    )  # against each competitor, where there are several

    @property
    def median(self) -> Interval:
        return median(list(self.values.values()))

    @property
    def confidence(self) -> Interval:
        """95 % interval of the median over seeds."""
        return bootstrap(list(self.values.values()))


@dataclass(frozen=True)
class ClaimResult:
    claim: Claim
    verdict: Verdict
    by_setting: dict[str, list[ComparisonResult]]  # label -> result of each comparison; "" without settings

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict for each setting."""
        return {label: weakest(results) for label, results in self.by_setting.items()}

    @property
    def results(self) -> list[ComparisonResult]:
        return [result for results in self.by_setting.values() for result in results]


def judge_claim(claim: Claim, summaries: Summaries) -> ClaimResult:
    results = {label: _judge_all(variant, claim.seeds, summaries) for label, variant in claim.variants.items()}
    return ClaimResult(claim, verdict_over_settings([weakest(r) for r in results.values()]), results)


def _judge_all(comparisons: Sequence[Comparison], needed_seeds: int, summaries: Summaries) -> list[ComparisonResult]:
    figures = {term.figure for comparison in comparisons for term in comparison.terms if term.figure in summaries}
    families = {tuple(load_figure(name).datasets) for name in figures}  # figures that are meant for the same data
    datasets = {(tuple(load_figure(name).datasets), summaries[name].dataset) for name in figures}
    if len(datasets) > len(families) or len({summaries[name].quick for name in figures}) > 1:
        missing = ["all its figures with the same data and at the same scale"]
        return [ComparisonResult(comparison, Verdict.NOT_RUN, missing=missing) for comparison in comparisons]
    return [judge_comparison(comparison, needed_seeds, summaries) for comparison in comparisons]


def weakest(results: Sequence[ComparisonResult]) -> Verdict:
    """The verdict on comparisons that must all hold: one that fails decides, whatever the others may be."""
    order = (Verdict.FAIL, Verdict.NOT_RUN, Verdict.UNDECIDED, Verdict.MIXED, Verdict.PASS)
    return min((result.verdict for result in results), key=order.index)


def verdict_over_settings(verdicts: Sequence[Verdict]) -> Verdict:
    """One setting that holds and one that fails decide; otherwise an open setting leaves the claim open."""
    if Verdict.FAIL in verdicts and any(verdict in HOLDS for verdict in verdicts):
        return Verdict.MIXED
    order = (Verdict.NOT_RUN, Verdict.UNDECIDED, Verdict.FAIL, Verdict.MIXED, Verdict.PASS)
    return min(verdicts, key=order.index)


def judge_comparison(comparison: Comparison, needed_seeds: int, summaries: Summaries) -> ComparisonResult:
    """The verdict against the best competitor of each seed, and against each competitor alone."""
    lower = lower_target(comparison, summaries)
    judged = comparison if lower is None else replace(comparison, target=lower)
    result = _judge(judged, needed_seeds, summaries)
    if lower is not None:
        result = replace(result, missed_target=target_of(comparison, summaries[comparison.figure]))
    if len(comparison.versus) < 2 or comparison.statistic == "rank" or comparison.minus is not None:
        return result
    rivals = {name: _judge(replace(judged, versus=[name]), needed_seeds, summaries) for name in comparison.versus}
    return replace(result, rivals=rivals)


def _judge(comparison: Comparison, needed_seeds: int, summaries: Summaries) -> ComparisonResult:
    """Compute the statistic for each seed that has all runs, and the verdict over these seeds."""
    if missing := missing_figures(comparison, summaries):
        return ComparisonResult(comparison, Verdict.NOT_RUN, missing=missing)
    seeds = common_seeds(comparison, summaries)
    if not seeds:
        return ComparisonResult(comparison, Verdict.NOT_RUN, missing=["a seed that all curves have"])
    values = {seed: statistic(comparison, seed, summaries) for seed in seeds}
    holds = {seed: value.satisfies(comparison.relation, comparison.threshold) for seed, value in values.items()}
    verdict = verdict_over_seeds(comparison, list(values.values()))
    if len(seeds) < needed_seeds and not any(summaries[term.figure].quick for term in comparison.terms):
        verdict = Verdict.UNDECIDED
    return ComparisonResult(comparison, verdict, values, holds)


def verdict_over_seeds(comparison: Comparison, values: Sequence[Interval]) -> Verdict:
    """The verdict from the value of each seed, with as many seeds as needed."""
    central, *each = [v.satisfies(comparison.relation, comparison.threshold) for v in (median(values), *values)]
    if central is None:
        return Verdict.UNDECIDED
    if central is False:
        return Verdict.FAIL
    return Verdict.PASS if all(each) else Verdict.MIXED


def missing_figures(comparison: Comparison, summaries: Summaries) -> list[str]:
    """The figures that lack runs of a curve of the comparison."""
    return [
        term.figure
        for term in comparison.terms
        if term.figure not in summaries or not all(summaries[term.figure].curves.get(c) for c in term.curves)
    ]


def common_seeds(comparison: Comparison, summaries: Summaries) -> list[int]:
    """The seeds of all curves of the comparison."""
    records = [summaries[term.figure].curves[curve] for term in comparison.terms for curve in term.curves]
    return [seed for seed in sorted(records[0]) if all(seed in seeds for seeds in records)]


def lower_target(comparison: Comparison, summaries: Summaries) -> float | None:
    """The target at which to judge rounds if no run reaches the comparison's target; None if one does.

    None also if competitors do not exceed chance level, since then nothing can be compared.
    """
    if comparison.metric != "rounds" or not comparison.versus or missing_figures(comparison, summaries):
        return None
    seeds, found = common_seeds(comparison, summaries), []
    for term in comparison.terms if seeds else []:
        summary = summaries[term.figure]
        target = target_of(comparison, summary)
        whole = [summary.curves[curve][seed] for curve in term.curves for seed in seeds]
        if target is None or any(record.rounds_to(target) is not None for record in whole):
            continue
        runs = [records_within(term, seed, summary) for seed in seeds]
        best = {c: statistics.median(0.0 if r[c].diverged else r[c].best for r in runs) for c in term.curves}
        chance = max(record.chance for record in whole)
        if comparison.statistic == "rank":
            reached = min((value for value in best.values() if value > 0), default=0.0)
        else:
            reached = max(best[curve] for curve in term.versus)
        lower = round(math.floor(reached / TARGET_STEP + 1e-9) * TARGET_STEP, 2)
        if lower <= chance:
            return None
        found.append(lower)
    return min(found, default=None)


def statistic(comparison: Comparison, seed: int, summaries: Summaries) -> Interval:
    """The number that a comparison is about, for one seed."""
    if comparison.minus is not None:
        plain, other = replace(comparison, minus=None), comparison.minus
        curves = {name: getattr(other, name) for name in ("figure", "curve", "versus", "conditions")}
        return statistic(plain, seed, summaries) - statistic(replace(plain, **curves), seed, summaries)
    values = metrics(comparison, seed, summaries[comparison.figure])
    if comparison.statistic == "margin":
        return _margin(comparison, values)
    own, *others = values.values()
    if comparison.statistic == "value":
        return own
    if comparison.statistic == "rank":
        return rank(own, others, low_is_best=comparison.low_is_best)
    best = minimum(others) if comparison.low_is_best else maximum(others)
    if comparison.statistic == "difference":
        return own - best
    return best / own if comparison.statistic == "inverse_ratio" else own / best


def target_of(comparison: Comparison, summary: Summary) -> float | None:
    """The comparison's target, at most the figure's: runs that stop at their target cannot decide a higher one."""
    if comparison.target is None or summary.target is None:
        return comparison.target if summary.target is None else summary.target
    return min(comparison.target, summary.target)


def rounds_to(target: float | None, record: Record) -> Interval:
    """Rounds to a target: censored where the run ended before it, never for a run that diverged."""
    if record.diverged:
        return Interval.exact(math.inf)
    first = None if target is None else record.rounds_to(target)
    return Interval.above(record.end) if first is None else Interval.exact(first)


def records_within(comparison: Comparison, seed: int, summary: Summary) -> dict[str, Record]:
    """The records of a comparison's curves for one seed, cut to the rounds that all of them have."""
    records = {curve: summary.curves[curve][seed] for curve in comparison.curves}
    end = min(record.limit if record.diverged else record.end for record in records.values())
    return {curve: record.until(end) for curve, record in records.items()}


def metrics(comparison: Comparison, seed: int, summary: Summary) -> dict[str, Interval]:
    """The comparison's metric of each of its curves, for one seed; unbounded where it was not measured."""
    if comparison.metric == "rounds":
        target = target_of(comparison, summary)
        return {curve: rounds_to(target, summary.curves[curve][seed]) for curve in comparison.curves}
    records = records_within(comparison, seed, summary)
    if comparison.metric in ACCURACY_METRICS:
        return {curve: Interval.exact(getattr(record, comparison.metric)) for curve, record in records.items()}
    unknown = Interval(-math.inf, math.inf)
    numbers = {curve: record.numbers.get(comparison.metric) for curve, record in records.items()}
    return {curve: unknown if number is None else Interval.exact(number) for curve, number in numbers.items()}


def _margin(comparison: Comparison, values: dict[str, Interval]) -> Interval:
    """The smallest lead over a competitor, each in the condition that is best for this curve.

    Below 0, some competitor is better in all conditions.
    """

    def largest_lead(competitor: str) -> Interval:
        pairs = [
            (f"{comparison.curve}-{condition}", f"{competitor}-{condition}") for condition in comparison.conditions
        ]
        return maximum([values[own] - values[other] for own, other in pairs])

    return minimum([largest_lead(competitor) for competitor in comparison.versus])
