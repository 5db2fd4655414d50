"""Verdicts from summaries, by rules that are the same for every claim.

Per seed: rounds to the target is the first evaluated round that reaches it, censored at the rounds given: "not
reached" means more than that. A ratio with a censored denominator is "at most"; a censored numerator fails; both
censored is undecided.

Over seeds: PASS needs the relation for the median over seeds and for at least 80 % of them; FAIL where one of these is
impossible whatever the undecided seeds are. With fewer seeds than the claim needs, and where neither follows, the claim
is UNDECIDED. A claim whose runs are missing is NOT RUN, never PASS. All parts of a claim must hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dragfl.reproduction.claims import Claim, Part, Side, curves_of
from dragfl.reproduction.intervals import Span, least, middle, most, rank
from dragfl.reproduction.summary import Record, Summary

SHARE = 0.8  # of the seeds
MIXED = "all its panels on the same data and at the same scale"

Summaries = Mapping[str, Summary]


class Verdict(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Finding:
    """What came of one part of a claim."""

    part: Part
    verdict: Verdict
    spans: dict[int, Span]  # seed -> the number that was compared
    outcomes: dict[int, bool | None]
    missing: list[str]  # panel/curve without a run
    quick: bool = False
    changes: str = ""  # what was changed on the command line
    needed: int = 0  # seeds
    median: bool | None = None  # whether the relation holds for the median over seeds


@dataclass(frozen=True)
class Judged:
    """What came of a claim."""

    claim: Claim
    verdict: Verdict
    findings: list[Finding]


def judge(claim: Claim, summaries: Summaries) -> Judged:
    """The verdict on a claim, from the summaries that there are."""
    used = [summaries[name] for name in claim.panels if name in summaries]
    if len({(summary.dataset, summary.quick) for summary in used}) > 1:
        return Judged(claim, Verdict.NOT_RUN, [Finding(part, Verdict.NOT_RUN, {}, {}, [MIXED]) for part in claim.part])
    findings = [find(part, claim.seeds, summaries) for part in claim.part]
    verdicts = [finding.verdict for finding in findings]
    order = (Verdict.NOT_RUN, Verdict.FAIL, Verdict.UNDECIDED, Verdict.PASS)
    return Judged(claim, next(v for v in order if v in verdicts), findings)


def find(part: Part, needed: int, summaries: Summaries) -> Finding:
    """What came of one part: the number of each seed that has all its runs, and the verdict over them."""
    missing = [
        f"{side.panel}/{curve}"
        for side in part.sides
        for curve in curves_of(side)
        if side.panel not in summaries or not summaries[side.panel].curves.get(curve)
    ]
    if missing:
        return Finding(part, Verdict.NOT_RUN, {}, {}, missing)
    used = [summaries[side.panel] for side in part.sides]
    seeds = [seed for seed in used[0].seeds if all(_has(side, summaries[side.panel], seed) for side in part.sides)]
    if not seeds:
        return Finding(part, Verdict.NOT_RUN, {}, {}, ["a seed that all curves have"])
    if any(summary.quick for summary in used):
        needed = 1
    spans = {seed: number(part, seed, summaries) for seed in seeds}
    outcomes = {seed: outcome(part, seed, spans[seed], summaries) for seed in seeds}
    verdict, central = over_seeds(part, list(spans.values()), list(outcomes.values()))
    if len(seeds) < needed:
        verdict = Verdict.UNDECIDED
    changes = ", ".join(dict.fromkeys(change for summary in used for change in summary.changed))
    return Finding(part, verdict, spans, outcomes, [], any(s.quick for s in used), changes, needed, central)


def over_seeds(part: Part, spans: Sequence[Span], outcomes: Sequence[bool | None]) -> tuple[Verdict, bool | None]:
    """PASS: the median and at least 80 % of the seeds. FAIL: that cannot be any more. Then what holds of the median."""
    # A numerator that is censored alone fails its seed whatever the ratio may be, and so it does in the median.
    forced = [Span.of(math.inf) if o is False and s.is_(part.relation, part.threshold) is None else s
              for s, o in zip(spans, outcomes, strict=True)]  # fmt: skip
    central = middle(forced).is_(part.relation, part.threshold)
    yes, no, n = outcomes.count(True), outcomes.count(False), len(outcomes)
    if central is True and yes >= SHARE * n - 1e-9:
        return Verdict.PASS, central
    if central is False or n - no < SHARE * n - 1e-9:
        return Verdict.FAIL, central
    return Verdict.UNDECIDED, central


def outcome(part: Part, seed: int, span: Span, summaries: Summaries) -> bool | None:
    """Whether the relation holds for a seed; None where censoring leaves it open."""
    if part.how == "ratio" and part.than is None and part.relation in ("<", "<=", "within"):
        side = part.sides[0]
        mine, others = _values(part, side, seed, summaries)
        if mine.censored and not _best(part, others).censored:
            return False  # a censored numerator fails
    return span.is_(part.relation, part.threshold)


def number(part: Part, seed: int, summaries: Summaries) -> Span:
    """The number that a part compares, for one seed."""
    spans = [_number(part, side, seed, summaries) for side in part.sides]
    return spans[0] if len(spans) == 1 else spans[0] - spans[1]


def _number(part: Part, side: Side, seed: int, summaries: Summaries) -> Span:
    if part.how == "margin":
        return _margin(part, side, seed, summaries)
    mine, others = _values(part, side, seed, summaries)
    if part.how == "value":
        return mine
    if part.how == "rank":
        return rank(mine, others, low_is_best=part.low_is_best)
    if part.how == "difference":
        return mine - _best(part, others)
    return _best(part, others) / mine if part.how == "inverse" else mine / _best(part, others)


def _margin(part: Part, side: Side, seed: int, summaries: Summaries) -> Span:
    """Against each rival the condition in which this curve is furthest ahead; of these the least: below 0 some rival
    is better everywhere, which is to say that it dominates."""
    records = summaries[side.panel].curves

    def ahead(rival: str) -> Span:
        return most([
            value(part, records[f"{side.of}-{c}"][seed], summaries[side.panel])
            - value(part, records[f"{rival}-{c}"][seed], summaries[side.panel])
            for c in side.conditions
        ])  # fmt: skip

    return least([ahead(rival) for rival in side.versus])


def _values(part: Part, side: Side, seed: int, summaries: Summaries) -> tuple[Span, list[Span]]:
    summary = summaries[side.panel]
    mine, *others = (value(part, summary.curves[curve][seed], summary) for curve in curves_of(side))
    return mine, others


def _best(part: Part, spans: Sequence[Span]) -> Span:
    return least(spans) if part.low_is_best else most(spans)


def target_of(part: Part, summary: Summary) -> float | None:
    """The target of a comparison: the panel's, or a lower one; a run that stopped at its target knows no higher one."""
    if part.target is None or summary.target is None:
        return part.target if summary.target is None else summary.target
    return min(part.target, summary.target)


def rounds_to(target: float | None, record: Record) -> Span:
    """Rounds to a target, censored at the rounds that the run was given."""
    first = None if target is None else record.rounds_to(target)
    return Span.more_than(record.limit) if first is None else Span.of(first)


def value(part: Part, record: Record, summary: Summary) -> Span:
    """A metric of one run."""
    if part.metric == "rounds":
        return rounds_to(target_of(part, summary), record)
    if part.metric in ("final", "best", "mean", "unrest"):
        return Span.of(getattr(record, part.metric))
    if part.metric not in record.numbers:
        return Span(-math.inf, math.inf)  # not measured: nothing follows
    return Span.of(record.numbers[part.metric])


def _has(side: Side, summary: Summary, seed: int) -> bool:
    return all(seed in summary.curves[curve] for curve in curves_of(side))
