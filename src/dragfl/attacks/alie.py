"""A little is enough (ALIE): every coordinate is shifted by a few standard deviations, too few to be noticed.

G. Baruch, M. Baruch, Y. Goldberg, A Little Is Enough: Circumventing Defenses for Distributed Learning, NeurIPS 2019.

    b = mu - z sigma,   z = Phi^-1((n - f - s) / (n - f)),   s = floor(n/2 + 1) - f

A majority needs s honest clients; with this z, s of them are expected to be further out than b. The formula gives a
negative z for few attackers ((n, f) = (10, 1): -0.14), which would help the server, so z is at least 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, get_args

from dragfl.arrays import Array
from dragfl.attacks.common import (
    Defence,
    SearchKnowledge,
    clean_rows,
    copies,
    forge_from_clean,
    moments,
    search_factor,
)
from dragfl.errors import SettingError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice, check_choices
from dragfl.types import NoState, RoundContext, Strength, Updates, View, no_state

Side = Literal["below", "above", "against"]


def alie_z(n: int, f: int) -> float:
    """The number of standard deviations that hides f of n; 0 if the formula is negative or no client is honest.

    >>> [round(alie_z(n, f), 4) for n, f in [(10, 4), (20, 4), (20, 8), (10, 1)]]
    [0.4307, 0.1573, 0.6745, 0.0]
    """
    honest, needed = n - f, max(1, n // 2 + 1 - f)
    return max(0.0, NormalDist().inv_cdf((honest - needed) / honest)) if honest > needed else 0.0


def alie(
    honest: Array,
    f: int,
    z: float | None = None,
    side: Side = "below",
    aggregate: Defence[Array] | None = None,
    evaluations: int = 24,
) -> Array:
    """mu - z sigma of the honest updates (h, d), from all f attackers; z by the formula with n = h + f.

    `side`: mu - z sigma ("below"), mu + z sigma ("above"), or away from the sign of mu in each coordinate
    ("against"). With `aggregate`, the step of the defence as a function of the (f, d) sent, the z that moves it
    furthest from mu is searched in so many evaluations.
    """
    X = clean_rows("alie", honest, f)
    check_choice("alie", "side", side, get_args(Side))
    mu, sigma = moments(X)
    push = {"below": -sigma, "above": sigma, "against": -sigma * torch.sign(mu)}[side]

    def forge(z: float) -> Tensor:
        return (mu + z * push).repeat(f, 1)

    if aggregate is not None and z is None:
        z = search_factor(forge, aggregate, mu, honest, evaluations)
    return copies(mu + (alie_z(len(X) + f, f) if z is None else z) * push, f, honest)


@dataclass(frozen=True)
class ALIE:
    """Shifts every coordinate of the mean by a few standard deviations: b = mu - z sigma.

    | argument | symbol |
    |---|---|
    | z | z; by the formula for the cohort where not given |
    | side | the sign of z sigma: `below`, `above`, or `against` the sign of mu |
    | knowledge | mu, sigma of the attackers (`colluding`) or the honest (`omniscient`); `white_box` searches z |
    | evaluations | of the defence in that search |
    """

    z: float | None = None
    side: Side = "below"
    knowledge: SearchKnowledge = "omniscient"
    evaluations: int = 24

    init = no_state

    def __post_init__(self) -> None:
        check_choices("alie", self)
        if self.z is not None and (self.knowledge == "white_box" or not 0.0 <= self.z < float("inf")):
            raise SettingError(
                "alie", "z", f"{self.z}; give a number of at least 0, or none with knowledge 'white_box'"
            )

    @property
    def strength(self) -> Strength | None:
        """The setting to tune; a white-box attack searches it already."""
        return None if self.knowledge == "white_box" else ("z", 0.25, 4.0)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        z, f = self.z, len(view.own)
        if z is None and view.aggregate is None:
            n = len(view.honest) + f if view.honest is not None else view.info.per_round if view.info else 2 * f
            z = alie_z(max(n, f), f)
        return forge_from_clean(
            view, lambda clean, f: alie(clean, f, z, self.side, view.aggregate, self.evaluations)
        ), state
