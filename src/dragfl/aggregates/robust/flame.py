"""FLAME: the largest cluster by direction, clipped to the median length, with noise.

Nguyen, Rieger, Chen, Yalame, Moellering, Fereidooni, Marchal, Miettinen, Mirhoseini, Zeitouni, Koushanfar, Sadeghi,
Schneider: FLAME: Taming Backdoors in Federated Learning, USENIX Security 2022.

    admitted = HDBSCAN on 1 - cos(g_i, g_j), clusters of floor(n/2) + 1 at least;
               with `space = "weights"` on 1 - cos(w + g_i, w + g_j), w the model sent out
    S = median |g|,   Delta = mean over the admitted of g_i min(1, S / |g_i|)  +  N(0, (sigma S)^2)
    sigma = sqrt(2 ln(1.25 / delta)) / epsilon

The paper (Algorithm 1) takes cosines of the local models w + g_i; public implementations do either. Where the updates
are much shorter than w, the distance of two models is about |d|^2 / (2 |w|^2), d the part of g_i - g_j at right angles
to w: it then compares distances of updates, not their directions, and a long update is far from all others even in an
honest direction. An extra that a correction sends has no model, so its own cosines are taken.

No f is assumed. |Delta| without noise never exceeds the median length. Where no cluster is found everyone is admitted.
An attack inside the honest cone of directions passes. Suspicion is the median of 1 - cos to the others. Needs
scikit-learn: the extra `robust`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dragfl.aggregates.robust.clipping import factors
from dragfl.aggregates.robust.clustering import hdbscan, largest
from dragfl.aggregates.robust.contract import Weighting, any_number, check_settings
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.arithmetic import EPS
from dragfl.errors import SettingError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range


@dataclass(frozen=True)
class Flame:
    """Takes the clipped mean of the largest cluster of directions, with noise.

    | argument | symbol |
    |---|---|
    | epsilon | epsilon > 0 of the noise; `inf` for none |
    | delta | delta in (0, 1] of the noise |
    | space | cosines of the `update` or of the local model's `weights`, as in the paper |
    """

    epsilon: float = 3000.0
    delta: float = 0.01
    space: Literal["update", "weights"] = "update"
    name: ClassVar[str] = "flame"
    paper: ClassVar[str] = "Nguyen et al. 2022"

    def __post_init__(self) -> None:
        check_range("flame", "delta", self.delta, 0.0, 1.0, open_low=True)
        if not self.epsilon > 0.0:
            raise SettingError("flame", "epsilon", f"{self.epsilon}; give a number above 0, or inf for no noise")
        check_settings(self)

    @property
    def uses_model(self) -> bool:
        return self.space == "weights"

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting:
        away = cosine_distances(gram.dots if gram.model is None else gram.model_dots)
        labels = hdbscan(self.name, away.cpu().numpy(), len(gram) // 2 + 1)
        admitted = torch.from_numpy(largest(labels)).to(away.device)
        median = gram.norms.quantile(0.5)
        clip = factors(gram.norms, None)
        sigma = math.sqrt(2.0 * math.log(1.25 / self.delta)) / self.epsilon
        weights = torch.where(admitted, clip, 0.0) / admitted.sum()
        return Weighting(weights, away.quantile(0.5, dim=1), sigma * float(median))

    least = any_number
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


def cosine_distances(G: Tensor) -> Tensor:
    """(n, n) 1 - cos from dots, in [0, 2]; 1 where a row is zero, 0 on the diagonal."""
    q = G.diagonal().clamp_min(0.0).sqrt()
    inverse = torch.where(q > EPS, 1.0 / q.clamp_min(EPS), 0.0)
    return (1.0 - G * inverse.unsqueeze(0) * inverse.unsqueeze(1)).clamp_(0.0, 2.0).fill_diagonal_(0.0)
