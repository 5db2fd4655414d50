"""Inner product manipulation (IPM), also "fall of empires": the negated mean of the honest updates.

C. Xie, O. Koyejo, I. Gupta, Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation, UAI 2020.

    b = -epsilon mu

A small epsilon is hard to detect among heterogeneous updates; a large one reverses the step of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragfl.arrays import Array
from dragfl.attacks.common import (
    Defence,
    SearchKnowledge,
    check_positive,
    clean_rows,
    copies,
    forge_from_clean,
    search_factor,
)
from dragfl.errors import SettingError
from dragfl.lazy import Tensor
from dragfl.schedules import check_choices
from dragfl.types import NoState, RoundContext, Strength, Updates, View, no_state

EPSILON = 0.1


def ipm(
    honest: Array,
    f: int,
    epsilon: float | None = None,
    aggregate: Defence[Array] | None = None,
    evaluations: int = 24,
) -> Array:
    """-epsilon mean(honest) from all f attackers; epsilon is 0.1 where it is not given.

    With `aggregate`, the step of the defence as a function of the (f, d) sent, and no epsilon, the one that moves the
    step furthest from the honest mean is searched in so many evaluations.
    """
    mu = clean_rows("ipm", honest, f).mean(0)

    def forge(epsilon: float) -> Tensor:
        return (-epsilon * mu).repeat(f, 1)

    if aggregate is not None and epsilon is None:
        epsilon = search_factor(forge, aggregate, mu, honest, evaluations)
    return copies(-(EPSILON if epsilon is None else epsilon) * mu, f, honest)


@dataclass(frozen=True)
class IPM:
    """Sends the negated mean of the honest updates: b = -epsilon mu.

    | argument | symbol |
    |---|---|
    | epsilon | epsilon > 0; 0.1 where not given |
    | knowledge | mu of the attackers (`colluding`) or of the honest (`omniscient`); `white_box` searches epsilon |
    | evaluations | of the defence in that search |
    """

    epsilon: float | None = None
    knowledge: SearchKnowledge = "omniscient"
    evaluations: int = 24

    init = no_state

    def __post_init__(self) -> None:
        check_choices("ipm", self)
        if self.epsilon is not None:
            check_positive("ipm", epsilon=self.epsilon)
            if self.knowledge == "white_box":
                raise SettingError(
                    "ipm", "epsilon", f"{self.epsilon}, but knowledge 'white_box' searches it; remove it"
                )

    @property
    def strength(self) -> Strength | None:
        """The setting to tune; a white-box attack searches it already."""
        return None if self.knowledge == "white_box" else ("epsilon", 0.1, 10.0)

    def craft(self, state: NoState, view: View, context: RoundContext) -> tuple[Updates, NoState]:
        return forge_from_clean(
            view, lambda clean, f: ipm(clean, f, self.epsilon, view.aggregate, self.evaluations)
        ), state
