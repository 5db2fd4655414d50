"""Verdicts from summaries, by the same rules for every claim.

For one seed: rounds to the target is the first evaluated round that reaches it, censored at the maximum number of
rounds. A ratio with a censored denominator has an upper bound only; a censored numerator alone fails; with both
censored the seed is undecided.

Over seeds: PASS if the relation holds for the median and for at least 80 % of the seeds; FAIL if one of the two is
impossible whatever the undecided seeds are; else UNDECIDED, also with fewer seeds than the claim needs. A claim whose
runs are missing is NOT RUN. All comparisons of a claim must hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from dragfl.reproduction.claims import ACCURACY_METRICS, Claim, Comparison
from dragfl.reproduction.intervals import Interval, maximum, median, minimum, rank
from dragfl.reproduction.summary import Record, Summaries, Summary

REQUIRED_FRACTION = 0.8  # of the seeds


class Verdict(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class ComparisonResult:
    comparison: Comparison
    verdict: Verdict
    values: dict[int, Interval]  # seed -> value of the statistic
    holds: dict[int, bool | None]  # seed -> whether the relation holds
    missing: list[str]  # figures without the runs
    median_holds: bool | None = None


@dataclass(frozen=True)
class ClaimResult:
    claim: Claim
    verdict: Verdict
    results: list[ComparisonResult]


def judge_claim(claim: Claim, summaries: Summaries) -> ClaimResult:
    comparisons = [comparison for variant in claim.variants.values() for comparison in variant]
    used = [summaries[name] for name in claim.figures if name in summaries]
    if len({(summary.dataset, summary.quick) for summary in used}) > 1:
        missing = ["all its figures with the same data and at the same scale"]
        results = [_not_run(comparison, missing) for comparison in comparisons]
    else:
        results = [judge_comparison(comparison, claim.seeds, summaries) for comparison in comparisons]
    order = (Verdict.NOT_RUN, Verdict.FAIL, Verdict.UNDECIDED, Verdict.PASS)
    return ClaimResult(claim, min((r.verdict for r in results), key=order.index), results)


def judge_comparison(comparison: Comparison, needed_seeds: int, summaries: Summaries) -> ComparisonResult:
    """Compute the statistic for each seed that has all runs, and the verdict over these seeds."""
    terms = comparison.terms
    missing = [
        term.figure
        for term in terms
        if term.figure not in summaries or not all(summaries[term.figure].curves.get(c) for c in term.curves)
    ]
    if missing:
        return _not_run(comparison, missing)
    seeds = [
        seed
        for seed in summaries[comparison.figure].seeds
        if all(seed in summaries[term.figure].curves[curve] for term in terms for curve in term.curves)
    ]
    if not seeds:
        return _not_run(comparison, ["a seed that all curves have"])
    values = {seed: statistic(comparison, seed, summaries) for seed in seeds}
    holds = {seed: _holds(comparison, seed, values[seed], summaries) for seed in seeds}
    verdict, median_holds = verdict_over_seeds(comparison, list(values.values()), list(holds.values()))
    if any(summaries[term.figure].quick for term in terms):
        needed_seeds = 1
    if len(seeds) < needed_seeds:
        verdict = Verdict.UNDECIDED
    return ComparisonResult(comparison, verdict, values, holds, [], median_holds)


def verdict_over_seeds(
    comparison: Comparison, values: Sequence[Interval], holds: Sequence[bool | None]
) -> tuple[Verdict, bool | None]:
    """The verdict, and whether the relation holds for the median."""
    relation, threshold = comparison.relation, comparison.threshold
    # A seed that fails by its censored numerator also counts as failing in the median.
    forced = [
        Interval.exact(math.inf) if ok is False and value.satisfies(relation, threshold) is None else value
        for value, ok in zip(values, holds, strict=True)
    ]
    central = median(forced).satisfies(relation, threshold)
    needed = REQUIRED_FRACTION * len(holds) - 1e-9
    if central is True and holds.count(True) >= needed:
        return Verdict.PASS, central
    if central is False or len(holds) - holds.count(False) < needed:
        return Verdict.FAIL, central
    return Verdict.UNDECIDED, central


def statistic(comparison: Comparison, seed: int, summaries: Summaries) -> Interval:
    """The number that a comparison is about, for one seed."""
    if comparison.minus is not None:
        plain, other = replace(comparison, minus=None), comparison.minus
        curves = {name: getattr(other, name) for name in ("figure", "curve", "versus", "conditions")}
        return statistic(plain, seed, summaries) - statistic(replace(plain, **curves), seed, summaries)
    if comparison.statistic == "margin":
        return _margin(comparison, seed, summaries[comparison.figure])
    own, *others = _metrics(comparison, seed, summaries)
    if comparison.statistic == "value":
        return own
    if comparison.statistic == "rank":
        return rank(own, others, low_is_best=comparison.low_is_best)
    best = _best(comparison, others)
    if comparison.statistic == "difference":
        return own - best
    return best / own if comparison.statistic == "inverse_ratio" else own / best


def target_of(comparison: Comparison, summary: Summary) -> float | None:
    """The comparison's target, at most the figure's: runs that stop at their target cannot decide a higher one."""
    if comparison.target is None or summary.target is None:
        return comparison.target if summary.target is None else summary.target
    return min(comparison.target, summary.target)


def rounds_to(target: float | None, record: Record) -> Interval:
    """Rounds to a target, censored at the maximum number of rounds of the run."""
    first = None if target is None else record.rounds_to(target)
    return Interval.above(record.limit) if first is None else Interval.exact(first)


def metric(comparison: Comparison, record: Record, summary: Summary) -> Interval:
    """The comparison's metric of one run; unbounded where it was not measured."""
    if comparison.metric == "rounds":
        return rounds_to(target_of(comparison, summary), record)
    if comparison.metric in ACCURACY_METRICS:
        return Interval.exact(getattr(record, comparison.metric))
    if comparison.metric not in record.numbers:
        return Interval(-math.inf, math.inf)
    return Interval.exact(record.numbers[comparison.metric])


def _margin(comparison: Comparison, seed: int, summary: Summary) -> Interval:
    """The smallest lead over a competitor, each in the condition that is best for this curve.

    Below 0, some competitor is better in all conditions.
    """

    def lead(competitor: str, condition: str) -> Interval:
        own, other = (summary.curves[f"{name}-{condition}"][seed] for name in (comparison.curve, competitor))
        return metric(comparison, own, summary) - metric(comparison, other, summary)

    leads = [[lead(other, condition) for condition in comparison.conditions] for other in comparison.versus]
    return minimum([maximum(by_condition) for by_condition in leads])


def _holds(comparison: Comparison, seed: int, value: Interval, summaries: Summaries) -> bool | None:
    """Whether the relation holds for a seed; None where censoring leaves it open."""
    if comparison.statistic == "ratio" and comparison.minus is None and comparison.relation in ("<", "<=", "within"):
        own, *others = _metrics(comparison, seed, summaries)
        if own.censored and not _best(comparison, others).censored:
            return False
    return value.satisfies(comparison.relation, comparison.threshold)


def _metrics(comparison: Comparison, seed: int, summaries: Summaries) -> list[Interval]:
    summary = summaries[comparison.figure]
    return [metric(comparison, summary.curves[curve][seed], summary) for curve in comparison.curves]


def _best(comparison: Comparison, values: Sequence[Interval]) -> Interval:
    return minimum(values) if comparison.low_is_best else maximum(values)


def _not_run(comparison: Comparison, missing: list[str]) -> ComparisonResult:
    return ComparisonResult(comparison, Verdict.NOT_RUN, {}, {}, missing)
