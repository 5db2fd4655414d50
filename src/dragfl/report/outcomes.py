"""The result of a run by one metric, for comparisons."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dragfl.errors import SpecError, nearest
from dragfl.report.find import BYTES
from dragfl.report.tables import judged_accuracies
from dragfl.report.targets import rounds_completed
from dragfl.runs.directory import Run

FINAL, BEST, ROUNDS = "final_accuracy", "best_accuracy", "rounds_to_target"


@dataclass(frozen=True)
class Outcome:
    """A value; a censored one is larger than `value`, but not known."""

    value: float
    censored: bool = False


def outcome(run: Run, metric: str) -> Outcome:
    """The result of a finished run.

    A diverged run has chance level in accuracies, infinitely many rounds to the target, and the worst value otherwise.
    """
    if metric in (FINAL, BEST):
        values = judged_accuracies(run)
        if not values:
            raise SpecError(f"compare: {run.path} has no evaluated round; compare runs that were evaluated")
        return Outcome(values[-1] if metric == FINAL else max(values))
    if metric == ROUNDS:
        return _rounds(run)
    found = run.values(metric)
    if not found:
        known = {FINAL, BEST, ROUNDS, *(key for line in run.metrics for key in line)}
        raise SpecError(f"compare: {run.path} has no metric '{metric}'{nearest(metric, known)}")
    if run.diverged:
        worst = math.inf if low_is_best(metric) else -math.inf
        return Outcome(run.chance if is_fraction(metric) else worst)
    return Outcome(found[-1][1])


def _rounds(run: Run) -> Outcome:
    target = run.spec.get("target_accuracy")
    if target is None:
        raise SpecError(f"compare: {run.path} has no target_accuracy; compare final_accuracy, or set a target")
    if run.diverged:
        return Outcome(math.inf)
    reached = run.rounds_to(float(target))
    return Outcome(rounds_completed(run), censored=True) if reached is None else Outcome(reached)


def low_is_best(metric: str) -> bool:
    return metric == ROUNDS or metric.endswith(("loss", "variance", "attack_success", *BYTES))


def is_fraction(metric: str) -> bool:
    """Whether the metric is an accuracy, which is shown in percent."""
    return "accuracy" in metric and not metric.endswith("variance")
