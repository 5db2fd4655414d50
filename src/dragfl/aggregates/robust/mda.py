"""MDA, minimum-diameter averaging: the mean of the n - f updates that are closest together.

El Mhamdi, Guerraoui, Guirguis, Hoang, Rouault: Genuinely Distributed Byzantine Machine Learning, PODC 2020.

    S = argmin over |S| = n - f of max_{i,k in S} |g_i - g_k|,    Delta = mean of S        ties: the first S in order

Needs n > 2f. S has a diameter no larger than that of the honest updates and holds one of them, so Delta is within
that diameter of an honest update. Suspicion is |g_i - Delta|.

The search is exact and exponential in f alone. A set of diameter at most D leaves out, of every pair farther apart
than D, one: a *vertex cover* of size f in the graph of those pairs. D is found by bisection over the distances that
occur, each cover by branching on the update with the most far pairs. At most `LIMIT` branchings are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragfl.aggregates.robust.contract import Weighting, check_settings, majority
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.krum import mean_of_rows
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.errors import Infeasible
from dragfl.lazy import torch

LIMIT = 200_000  # branchings, a second or two


@dataclass(frozen=True)
class MDA:
    """Takes the mean of the n - f updates that are closest together."""

    f: int | None = None
    name: ClassVar[str] = "mda"
    paper: ClassVar[str] = "El Mhamdi et al. 2020"

    def __post_init__(self) -> None:
        check_settings(self)

    def weights(self, gram: Gram, f: int, rng: np.random.Generator) -> Weighting:
        rows = tightest(gram.squared.cpu().numpy(), f)
        weights = mean_of_rows(torch.tensor(rows, device=gram.X.device), len(gram))
        return Weighting(weights, gram.distances(weights))

    least = majority
    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule


def tightest(distances: np.ndarray, f: int) -> list[int]:
    """The n - f rows of least diameter; of several such sets the first in lexicographic order."""
    n = len(distances)
    if f == 0:
        return list(range(n))
    search = _Search(n, f)
    levels = np.unique(distances)
    low, high = 0, len(levels) - 1  # at levels[high] there is a set, below levels[low] none
    while low < high:
        middle = (low + high) // 2
        far = _far(distances > levels[middle])
        low, high = (low, middle) if search.covers(far, (1 << n) - 1, f) else (middle + 1, high)
    return search.first(_far(distances > levels[low]), f)


def _far(pairs: np.ndarray) -> list[int]:
    """For every row, the rows far from it as a bit mask."""
    return [sum(1 << int(j) for j in np.flatnonzero(row)) for row in pairs]


class _Search:
    """Vertex covers of at most f rows, and the branchings made so far."""

    def __init__(self, n: int, f: int) -> None:
        self.n, self.f, self.work = n, f, 0

    def covers(self, far: list[int], alive: int, budget: int) -> bool:
        """Can leaving out `budget` of the rows alive separate every far pair among them?"""
        self.work += 1
        if self.work > LIMIT:
            raise Infeasible(
                f"mda: n={self.n}, f={self.f} took more than {LIMIT} branchings; lower f or clients.per_round, "
                "or use multi_krum"
            )
        degrees = [((far[i] & alive).bit_count(), -i) for i in range(self.n) if alive >> i & 1]
        most, minus = max(degrees, default=(0, 0))
        if most == 0:
            return True
        if sum(degree for degree, _ in degrees) > 2 * budget * most:  # too many far pairs for so few rows
            return False
        worst = -minus
        if self.covers(far, alive & ~(1 << worst), budget - 1):
            return True
        near_it = far[worst] & alive
        return most <= budget and self.covers(far, alive & ~near_it & ~(1 << worst), budget - most)

    def first(self, far: list[int], f: int) -> list[int]:
        """The first n - f rows, in lexicographic order, among which no pair is far."""
        alive, budget, rows = (1 << self.n) - 1, f, list[int]()
        for i in range(self.n):
            if len(rows) == self.n - f:
                break
            if not alive >> i & 1:
                continue
            against = (far[i] & alive).bit_count()
            rest = alive & ~far[i]
            if against <= budget and self.covers(far, rest, budget - against):
                alive, budget = rest, budget - against
                rows.append(i)
            else:
                alive, budget = alive & ~(1 << i), budget - 1
        return rows
