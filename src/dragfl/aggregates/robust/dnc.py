"""DnC, divide and conquer: leave out what sticks out along the direction of largest spread of a few coordinates.

Shejwalkar, Houmansadr: Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for Federated
Learning, NDSS 2021.

    each time: take at most b coordinates at random, centre, v = top right singular vector,
               score_i = <g_i - mean, v>^2, leave out the c f updates with the largest scores
    Delta = mean of the updates never left out

Needs n > c f. Where nothing is left, those left out least often are used. It promises nothing about a single update
that hides in coordinates which were not drawn. Suspicion is the largest share of the scores an update ever had.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragfl.aggregates.robust.contract import Weighting, check_settings
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.krum import mean_of_rows
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range


@dataclass(frozen=True)
class DnC:
    """Takes the mean of the updates that are never outliers along the main direction of some coordinates.

    | argument | symbol |
    |---|---|
    | coordinates | b, coordinates drawn each time |
    | iterations | how many times |
    | c | c, updates left out each time, in units of f |
    """

    f: int | None = None
    coordinates: int = 10_000
    iterations: int = 5
    c: float = 1.0
    name: ClassVar[str] = "dnc"
    paper: ClassVar[str] = "Shejwalkar et al. 2021"

    def __post_init__(self) -> None:
        check_settings(self)
        check_range("dnc", "c", self.c, 0.0, 100.0, open_low=True)

    def least(self, f: int) -> int:
        return max(2 * f, math.floor(self.c * f)) + 1

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting:
        n, d = len(gram), gram.X.shape[1]
        keep = n - math.floor(self.c * f)
        left_out = torch.zeros(n, dtype=torch.int64, device=gram.X.device)
        suspicion = torch.zeros(n, dtype=torch.float64, device=gram.X.device)
        for _ in range(self.iterations):
            columns = np.sort(rng.choice(d, min(self.coordinates, d), replace=False))
            scores = _outlier_scores(gram.sample(columns).double())
            left_out[scores.sort(stable=True).indices[keep:]] += 1
            suspicion = torch.maximum(suspicion, scores / scores.sum().clamp_min(1e-300))
        good = (left_out == left_out.min()).nonzero().flatten()
        return Weighting(mean_of_rows(good, n), suspicion)

    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


def _outlier_scores(X: Tensor) -> Tensor:
    """(n,) squared projections on the top right singular vector of the centred rows, from their (n, n) dots."""
    C = X / X.abs().max().clamp_min(1e-300)
    C = C - C.mean(0)
    values, vectors = torch.linalg.eigh(C @ C.T)
    scores: Tensor = values[-1].clamp_min(0.0) * vectors[:, -1].square()
    return scores
