"""CAF, the covariance-bound-agnostic filter: turn down what sticks out along the direction of largest spread.

Allouah, Guerraoui, Stephan: Towards Trustworthy Federated Learning with Untrusted Participants, ICML 2025.

    a_i = 1;  while sum a > n - 2f:
        mu = sum a_i g_i / sum a,   (lambda, v) = top eigenpair of the covariance weighted by a
        keep mu if lambda is the least so far
        tau_i = <g_i - mu, v>^2,    a_i <- a_i (1 - tau_i / max tau),  the maximum over rows with a_i > 0
    Delta = the mu kept

The maximum is over active rows: a row of weight zero is no part of mu and of the covariance. So every round of the
filter removes at least one more row, and it ends after n rounds at most. ByzFL takes the maximum over all rows: a far
row that is already removed then decides it, and the weights of the others hardly change.

Needs n > 2f; f = 0 gives the mean. The eigenpair is exact, from the (n, n) dots, and one sweep over the updates
serves all rounds of the filter. Suspicion is |g_i - Delta|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragfl.aggregates.robust.contract import Weighting, check_settings, majority
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.arithmetic import EPS
from dragfl.lazy import Tensor, torch


@dataclass(frozen=True)
class CAF:
    """Takes the mean after a filter on the direction of largest spread."""

    f: int | None = None
    name: ClassVar[str] = "caf"
    paper: ClassVar[str] = "Allouah et al. 2025"

    def __post_init__(self) -> None:
        check_settings(self)

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting:
        n = len(gram)
        a = torch.ones(n, dtype=torch.float64, device=gram.X.device)
        best, kept = torch.inf, a / n
        while float(a.sum()) > n - 2 * f:
            spread, tau = _widest(gram.squared, a)
            if spread < best:
                best, kept = spread, a / a.sum()
            if not tau.max() > 0:
                break
            a = a * (1.0 - tau / tau.max())
        return Weighting(kept, gram.distances(kept))

    least = majority
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


def _widest(squared: Tensor, a: Tensor) -> tuple[float, Tensor]:
    """(lambda, tau) of the covariance weighted by a, from squared distances.

    With K the dots of the rows less mu and u the top eigenvector of A^(1/2) K A^(1/2) / sum a, v is proportional to
    sum_i sqrt(a_i) u_i (g_i - mu), so that tau = (K A^(1/2) u)^2 / (u A^(1/2) K A^(1/2) u). Rows of weight zero may
    be of any size and do not enter the eigenproblem.
    """
    p = a / a.sum()
    away = squared @ p
    K = 0.5 * (away.unsqueeze(0) + away.unsqueeze(1) - squared) - 0.5 * (p @ away)
    rows = (a > 0).nonzero().flatten()
    root = p[rows].sqrt()
    inner = K[rows][:, rows] * root.unsqueeze(0) * root.unsqueeze(1)
    size = inner.abs().max()
    if not size > 0:
        return 0.0, torch.zeros_like(a)
    values, vectors = torch.linalg.eigh(inner / size)
    top = float(values[-1] * size)
    tau = torch.zeros_like(a)
    tau[rows] = (K[rows][:, rows] @ (root * vectors[:, -1])).square() / max(top, EPS * float(size))
    return top, tau
