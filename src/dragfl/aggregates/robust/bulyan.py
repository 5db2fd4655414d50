"""Bulyan: Krum again and again to select updates, then the values around their median, coordinate by coordinate.

El Mhamdi, Guerraoui, Rouault: The Hidden Vulnerability of Distributed Learning in Byzantium, ICML 2018.

    repeat   score the n' updates that are left by their max(1, n' - f - 2) nearest others (Krum),
             move the winner to the selection, until it has theta = n - 2f
    Delta_j  mean of the theta - 2f selected values nearest to the median of the selection, in every coordinate j

Needs n >= 4f + 3. At most f of the selected are malicious, so that every coordinate stays within twice the range of
the honest values. `theta = "epfl"` selects n - 2f - 2 instead, as a public implementation does. Ties go to what was
selected earlier. f = 0 gives the mean. Suspicion is the Krum score among all updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dragfl.aggregates.robust.contract import check_settings
from dragfl.aggregates.robust.coordinate_wise import mean_around_median
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.krum import krum_scores
from dragfl.aggregates.robust.rule import robust_rule
from dragfl.lazy import Tensor, torch


@dataclass(frozen=True)
class Bulyan:
    """Selects updates by Krum, then takes the values around their median.

    | argument | symbol |
    |---|---|
    | theta | how many are selected: `paper` n - 2f, `epfl` n - 2f - 2 |
    """

    f: int | None = None
    theta: Literal["paper", "epfl"] = "paper"
    name: ClassVar[str] = "bulyan"
    paper: ClassVar[str] = "El Mhamdi et al. 2018"

    def __post_init__(self) -> None:
        check_settings(self)

    def least(self, f: int) -> int:
        return 4 * f + 3

    def matrix(self, gram: Gram, f: int, rng: np.random.Generator) -> Tensor:
        """(theta, n): the selection, in the order in which it was made."""
        theta = len(gram) - 2 * f - (2 if self.theta == "epfl" and f > 0 else 0)
        left, selected = list(range(len(gram))), list[int]()
        while len(selected) < theta:
            squared = gram.squared[left][:, left]
            scores = krum_scores(squared, max(1, len(left) - f - 2))
            selected.append(left.pop(int(scores.argmin())))
        return torch.eye(len(gram), dtype=torch.float64, device=gram.X.device)[selected]

    def columns(self, chunk: Tensor, f: int) -> Tensor:
        return mean_around_median(chunk, len(chunk) - 2 * f)

    def scores(self, gram: Gram, f: int) -> Tensor:
        return krum_scores(gram.squared, len(gram) - f - 2)

    init, needs, begin, fold, finish, shortage, aggregates_extras = robust_rule
