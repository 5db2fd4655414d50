"""SignGuard: keep updates of an ordinary length whose signs are like those of most.

Xu, Huang, Song, Lan: Byzantine-robust Federated Learning through Collaborative Malicious Gradient Filtering, ICDCS
2022.

    by length   keep i with  low <= |g_i| / median |g| <= high
    by signs    features of i: shares of positive, zero and negative signs on a random tenth of the coordinates;
                cluster them, keep the largest cluster;
                with `features = "scaled"` each share is first divided by the largest one of any client
    Delta = mean over those kept by both of  g_i min(1, median |g| / |g_i|)

The paper's features are the shares. The authors' public code scales them as above, so that a feature that is small for
every client, such as the share of zeros, counts as much as the others. Their code also takes a tenth of consecutive
coordinates from a random position on; here the coordinates are drawn one by one.

No f is assumed. Where nothing is kept by both, the largest cluster is used. |Delta| never exceeds the median length,
but its direction is not protected: an attack with honest signs, such as ALIE, passes. Suspicion is the distance of
the features from those of the kept ones plus |log(|g_i| / median |g|)|. Needs scikit-learn: the extra `robust`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dragfl.aggregates.robust.clipping import factors
from dragfl.aggregates.robust.clustering import k_means, largest, mean_shift
from dragfl.aggregates.robust.contract import Weighting, any_number, check_settings
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.arithmetic import EPS
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_range


@dataclass(frozen=True)
class SignGuard:
    """Takes the clipped mean of updates with typical lengths and signs.

    | argument | symbol |
    |---|---|
    | low | least length kept, in units of the median length |
    | high | largest length kept, in units of the median length |
    | fraction | share of the coordinates whose signs are counted |
    | cluster | `mean_shift` or `k_means` (two clusters) |
    | features | `shares` of signs, or `scaled` by the largest of any client, as in the authors' code |
    """

    low: float = 0.1
    high: float = 3.0
    fraction: float = 0.1
    cluster: Literal["mean_shift", "k_means"] = "mean_shift"
    features: Literal["shares", "scaled"] = "shares"
    name: ClassVar[str] = "sign_guard"
    paper: ClassVar[str] = "Xu et al. 2022"

    def __post_init__(self) -> None:
        check_range("sign_guard", "low", self.low, 0.0, 1.0)
        check_range("sign_guard", "high", self.high, 1.0, 1e9)
        check_range("sign_guard", "fraction", self.fraction, 0.0, 1.0, open_low=True)
        check_settings(self)

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting:
        median = gram.norms.quantile(0.5)
        ratio = gram.norms / median.clamp_min(1e-300)
        usual = (ratio >= self.low) & (ratio <= self.high)
        d = gram.X.shape[1]
        columns = np.sort(rng.choice(d, max(1, int(self.fraction * d)), replace=False))
        signs = sign_shares(gram.sample(columns))
        if self.features == "scaled":
            signs = signs / signs.amax(0).clamp_min(EPS)
        points = signs.cpu().numpy()
        if self.cluster == "mean_shift":
            labels = mean_shift(self.name, points)
        else:
            labels = k_means(self.name, points, int(rng.integers(2**31)))
        majority_signs = torch.from_numpy(largest(labels)).to(usual.device)
        kept = usual & majority_signs if bool((usual & majority_signs).any()) else majority_signs
        clip = factors(gram.norms, None)
        away = torch.linalg.vector_norm(signs - signs[kept].mean(0), dim=1)
        suspicion = away + ratio.clamp(EPS, 1.0 / EPS).log().abs()
        return Weighting(torch.where(kept, clip, 0.0) / kept.sum(), suspicion)

    least = any_number
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


def sign_shares(X: Tensor) -> Tensor:
    """(n, 3) float64 shares of positive, zero and negative numbers."""
    positive, negative = (X > 0).double().mean(1), (X < 0).double().mean(1)
    return torch.stack([positive, 1.0 - positive - negative, negative], 1)
