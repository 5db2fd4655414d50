"""Select the value of a setting by tuning runs: the rule of `dragfl sweep --tune` and of `dragfl reproduce`.

A tuning run holds out a part of the training data and is scored on it, never on test data, with seeds that no reported
run uses. The candidate with the best median score over the tuning seeds is selected. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median
from typing import Any

from dragfl.runs.directory import Run

TUNING_SEEDS = (100, 101, 102)
VALIDATION = 0.1  # fraction of the training data that tuning runs hold out


@dataclass(frozen=True)
class Score:
    """The score of one tuning run."""

    rounds: int | None  # to the target; None if not reached, or if there is none
    best: float | None  # best value of the metric over the evaluated rounds; None if the run diverged or has none


def score_run(run: Run, metric: str, target: float | None = None) -> Score:
    """Score a finished run by a metric of its evaluated rounds, and by the rounds until the metric is at the target."""
    values = [(t, value) for t, value in run.values(metric) if isfinite(value)]
    if run.diverged or not values:
        return Score(None, None)
    reached = None if target is None else next((t for t, value in values if value >= target), None)
    best = min if low_is_best(metric) else max
    return Score(reached, best(value for _, value in values))


def low_is_best(metric: str) -> bool:
    return metric.endswith("loss")


def best_candidate(scores: Sequence[Sequence[Score]], metric: str) -> int:
    """The index of the best candidate, from the scores of each on the tuning seeds; the first one of equal candidates.

    Candidates are compared by their median rounds to the target, then by their median of the metric. Not reached counts
    as infinitely many rounds, and a run that diverged as the worst value.
    """
    sign = 1.0 if low_is_best(metric) else -1.0

    def rank(runs: Sequence[Score]) -> tuple[float, float]:
        rounds = median(inf if score.rounds is None else score.rounds for score in runs)
        return rounds, median(inf if score.best is None else sign * score.best for score in runs)

    ranks = [rank(runs) for runs in scores]
    return ranks.index(min(ranks))


def next_value(values: Sequence[Any], selected: Any) -> Any:
    """The value by which to extend a grid whose best value is its smallest or largest one; None if it lies inside.

    The smallest value is halved, the largest doubled. If all lie between 0 and 1 and the largest is at least 0.5, as
    for momentum, its distance to 1 is halved. Only grids of at least two positive numbers are extended.

    >>> next_value([1.0, 2.0, 4.0], 4.0), next_value([0.5, 0.9], 0.9), next_value([0.5, 0.9], 0.5)
    (8.0, 0.95, 0.25)
    """
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in values)
    if not numbers or len(values) < 2 or min(values) < selected < max(values):
        return None
    if selected == min(values):
        return (selected // 2 or None) if isinstance(selected, int) else _rounded(selected / 2)
    if 0.5 <= selected < 1:
        return _rounded(1 - (1 - selected) / 2)
    return selected * 2


def _rounded(value: float) -> float:
    """Without the last digits, which are rounding errors."""
    return float(f"{value:.12g}")
