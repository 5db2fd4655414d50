"""Geometric median (RFA): the point with the least sum of distances to the updates.

Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, IEEE Trans. Signal Processing 2022.

    z_0 = 0,   w_i = 1 / max(nu, |z - g_i|),   z = sum_i w_i g_i / sum_i w_i      (smoothed Weiszfeld, T times)

z is always a weighted mean of the updates, so that the iteration runs on the n weights and the (n, n) distances: T
steps cost one sweep over the updates. An update of any length enters the first step with length n / sum_i 1/|g_i| at
most, and no later step raises the sum of distances. With h = n - f honest updates of norm at most B >= nu therefore
|z| <= B (n/h) + 2h (B + B n/h) / (n - 2f), and a term of order nu. Suspicion is |g_i - z|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragfl.aggregates.robust.contract import Weighting, any_number, check_settings
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.lazy import Tensor
from dragfl.schedules import check_range


@dataclass(frozen=True)
class GeometricMedian:
    """Takes the point with the least sum of distances to the updates.

    | argument | symbol |
    |---|---|
    | nu | nu > 0, distances below it count as nu |
    | iterations | T, steps of Weiszfeld's iteration |
    """

    nu: float = 1e-6
    iterations: int = 100
    name: ClassVar[str] = "geometric_median"
    paper: ClassVar[str] = "Pillutla et al. 2022"

    def __post_init__(self) -> None:
        check_range("geometric_median", "nu", self.nu, 0.0, 1e30, open_low=True)
        check_settings(self)

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting:
        w = _inverse(gram.norms, self.nu)  # the distances from z_0 = 0
        for _ in range(self.iterations - 1):
            before, w = w, _inverse(gram.distances(w), self.nu)
            if bool((w - before).abs().max() <= 1e-15):
                break
        return Weighting(w, gram.distances(w))

    least = any_number
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


def _inverse(distances: Tensor, nu: float) -> Tensor:
    """Weights 1 / max(nu, distance) with sum one."""
    floored = distances.clamp_min(nu)
    w = floored.min() / floored
    return w / w.sum()
