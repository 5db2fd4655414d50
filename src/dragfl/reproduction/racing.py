"""`--until-decided`: shorter runs for curves that can no longer change a verdict.

The runs of a seed have an order: first the curves that need all rounds, then the curves by the number of curves they
are compared with. Each gets the rounds after which no comparison depends on when, or whether, it reaches the target,
given the finished runs before it. If it has not reached the target by then, its record is censored there, as for every
run that ends before the target.

A comparison without `minus` no longer depends on a curve if the relation between this curve and each curve it is
compared with is decided. With `minus`, or for a rank, the statistic itself must be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dragfl.reproduction.claims import Comparison, load_claims
from dragfl.reproduction.figure import Figure
from dragfl.reproduction.runs import CurveRun, FigurePlan, FigureRequest, finished_run, plan_figure
from dragfl.reproduction.summary import Record, Summary, make_record, summarise
from dragfl.reproduction.verdicts import statistic, target_of
from dragfl.runs.directory import RESULT
from dragfl.runs.sweep_plan import PlannedRun

METRIC = "rounds"  # the only one that can be decided by shorter runs


def plan_until_decided(request: FigureRequest, folder: Path) -> FigurePlan:
    """The plan of a figure with shortened runs; runs whose length depends on unfinished ones are deferred."""
    plan, comparisons = plan_figure(request, folder), comparisons_of(request.figure)
    if not plan.runs:
        return plan
    summary = summarise(plan)
    runs: list[CurveRun] = []
    deferred: list[CurveRun] = []
    for seed in request.seeds:
        known: dict[str, Record] = {}
        waiting = False
        by_curve = {run.curve: run for run in plan.runs if run.seed == seed}
        for curve in racing_order(request.figure, comparisons):
            if curve in plan.untuned:
                waiting = True
                continue
            run = by_curve[curve]
            if not needs_all_rounds(request.figure, curve, comparisons):
                if waiting:
                    deferred.append(run)
                    continue
                every = run.planned.experiment.evaluation.every
                planned = shorten(run.planned, needed_rounds(curve, comparisons, summary, known, every))
                run = replace(run, planned=planned, shortened=planned.name != run.planned.name)
            runs.append(run)
            finished = finished_run(run.planned.folder)
            if finished is None:
                waiting = True
            else:
                known[curve] = make_record(finished)
    return replace(plan, runs=runs, deferred=deferred)


def comparisons_of(figure: Figure) -> list[Comparison]:
    """The comparisons of all claims, for every setting, that need this figure."""
    return [
        c
        for claim in load_claims()
        for comparisons in claim.variants.values()
        for c in comparisons
        if any(term.figure == figure.name for term in c.terms)
    ]


def racing_order(figure: Figure, comparisons: Sequence[Comparison]) -> list[str]:
    """The curves with runs in the order they run: those that need all rounds first, then by their comparisons."""
    curves = [curve.id for curve in figure.curves if curve.of is None]
    terms = [term for c in comparisons if c.metric == METRIC for term in c.terms if term.figure == figure.name]
    pairs = Counter(name for term in terms for other in term.versus for name in (term.curve, other))
    return sorted(curves, key=lambda curve: (not needs_all_rounds(figure, curve, comparisons), -pairs[curve]))


def needs_all_rounds(figure: Figure, curve: str, comparisons: Sequence[Comparison]) -> bool:
    """Whether a curve, or one derived from it, is in no comparison or in one of another metric than rounds."""
    derived = [other.id for other in figure.curves if other.of == curve]
    metrics = {
        (name, c.metric) for c in comparisons for term in c.terms if term.figure == figure.name for name in term.curves
    }
    mine = {metric for name, metric in metrics if name == curve}
    return mine != {METRIC} or any(name in derived for name, _ in metrics)


def needed_rounds(
    curve: str, comparisons: Sequence[Comparison], summary: Summary, known: Mapping[str, Record], every: int
) -> int:
    """The rounds after which no comparison depends on a curve that has not reached the target, a multiple of `every`.

    `known` are records of other curves with the same seed. At most the figure's rounds.
    """
    for limit in range(every, summary.rounds, every):
        if not any(depends_on(c, curve, limit, summary, known) for c in comparisons):
            return limit
    return summary.rounds


def depends_on(comparison: Comparison, curve: str, limit: int, summary: Summary, known: Mapping[str, Record]) -> bool:
    """Whether a comparison depends on when, or whether, a curve reaches the target after `limit` rounds."""
    terms = [term for term in comparison.terms if term.figure == summary.figure and curve in term.curves]
    if terms and comparison.statistic not in ("ratio", "inverse_ratio", "difference", "rank"):
        return True
    seed = next((record.seed for record in known.values()), 0)
    slow = Record(run="", seed=seed, limit=limit, ended="rounds", accuracy=[])
    records = {name: {seed: record} for name, record in {**known, curve: slow}.items()}
    summaries = {summary.figure: replace(summary, curves=records)}
    for term in terms:
        plain = replace(comparison, minus=None, figure=term.figure, curve=term.curve, conditions=term.conditions)
        others = term.versus if term.curve == curve else [term.curve]
        target = target_of(comparison, summary)
        if target is None or any(name not in known or known[name].rounds_to(target) is None for name in others):
            return True
        if comparison.minus is not None or comparison.statistic == "rank":
            competitors = [name for name in term.versus if name in records]
            if not statistic(replace(plain, versus=competitors), seed, summaries).known:
                return True
            continue
        pairs = [replace(plain, versus=[name]) for name in (others if term.curve == curve else [curve])]
        values = [statistic(pair, seed, summaries) for pair in pairs]
        if any(value.satisfies(comparison.relation, comparison.threshold) is None for value in values):
            return True
    return False


def shorten(planned: PlannedRun, rounds: int) -> PlannedRun:
    """The run with these rounds; if longer ones with the same settings and seed have finished, the shortest of them."""
    experiment = planned.experiment
    stem = planned.name.removesuffix(f"-r{experiment.rounds}-s{experiment.seed}")

    def with_rounds(rounds: int) -> PlannedRun:
        name = f"{stem}-r{rounds}-s{experiment.seed}"
        return PlannedRun(planned.folder.with_name(name), replace(experiment, rounds=rounds, name=name))

    longer = [*range(rounds, experiment.rounds, experiment.evaluation.every), experiment.rounds]
    return next((p for p in map(with_rounds, longer) if (p.folder / RESULT).is_file()), with_rounds(rounds))
