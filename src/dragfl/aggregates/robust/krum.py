"""Krum and Multi-Krum: the updates closest to their neighbours.

Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent,
NeurIPS 2017.

    score_i = sum of |g_i - g_j|^2 over the n - f - 2 nearest others j
    Krum          Delta = g_i with the least score
    Multi-Krum    Delta = mean of the m updates with the least scores, m = n - f by default

Both need n >= 2f + 3. Every update they use is then within sqrt(n - f - 2) times the diameter of the honest updates
of an honest one, however far away the others are. Suspicion is the score. Ties go to the lowest index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragfl.aggregates.robust.contract import Weighting, check_settings
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.lazy import Tensor, torch


def krum_scores(squared: Tensor, neighbours: int) -> Tensor:
    """(n,) sums of the squared distances to the nearest others."""
    others = squared.clone().fill_diagonal_(-1.0).sort(1).values[:, 1:]
    return others[:, :neighbours].sum(1)


def enough_for_krum(self: Krum | MultiKrum, f: int) -> int:
    return 2 * f + 3


def _scores(part: Krum | MultiKrum, gram: Gram, f: int) -> Tensor:
    given = part.neighbours
    return krum_scores(gram.squared, len(gram) - f - 2 if given is None else min(given, len(gram) - 1))


def mean_of_rows(rows: Tensor, n: int) -> Tensor:
    """(n,) float64 weights of the mean of some rows."""
    weights = torch.zeros(n, dtype=torch.float64, device=rows.device)
    weights[rows] = 1.0 / len(rows)
    return weights


@dataclass(frozen=True)
class Krum:
    """Selects the one update closest to its neighbours.

    | argument | symbol |
    |---|---|
    | neighbours | how many others a score adds up; n - f - 2 by default |
    """

    f: int | None = None
    neighbours: int | None = None
    name: ClassVar[str] = "krum"
    paper: ClassVar[str] = "Blanchard et al. 2017"

    def __post_init__(self) -> None:
        check_settings(self)

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting:
        scores = _scores(self, gram, f)
        return Weighting(mean_of_rows(scores.argmin().reshape(1), len(gram)), scores)

    least = enough_for_krum
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


@dataclass(frozen=True)
class MultiKrum:
    """Takes the mean of the m updates closest to their neighbours.

    | argument | symbol |
    |---|---|
    | m | m, updates averaged; n - f by default |
    | neighbours | how many others a score adds up; n - f - 2 by default |
    """

    f: int | None = None
    m: int | None = None
    neighbours: int | None = None
    name: ClassVar[str] = "multi_krum"
    paper: ClassVar[str] = "Blanchard et al. 2017"

    def __post_init__(self) -> None:
        check_settings(self)

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting:
        scores = _scores(self, gram, f)
        m = len(gram) - f if self.m is None else min(self.m, len(gram))
        return Weighting(mean_of_rows(scores.sort(stable=True).indices[:m], len(gram)), scores)

    least = enough_for_krum
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule
