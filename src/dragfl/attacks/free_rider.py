"""Free riders: clients that want the model without training.

J. Lin, M. Du, J. Liu, Free-riders in Federated Learning: Attacks and Defenses, 2019; Y. Fraboni, R. Vidal, M. Lorenzi,
Free-rider Attacks on Model Aggregation in Federated Learning, AISTATS 2021.

    zero:       b = 0
    replay:     b = theta^t - theta^s, s the last round in which a free rider was sent the model
    disguised:  b = std t^(-decay) N(0, I), t = 1, 2, ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from dragfl.arrays import Array, like, matrix, vector
from dragfl.attacks.common import check_at_least, forge_rows
from dragfl.attacks.gaussian import normal
from dragfl.errors import SpecError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import check_choice, check_choices
from dragfl.types import FederationInfo, Knowledge, NoState, RoundContext, State, Updates, View

Kind = Literal["zero", "replay", "disguised"]


def free_rider(
    own: Array,
    kind: Kind = "zero",
    *,
    change: Array | None = None,
    std: float = 0.001,
    decay: float = 1.0,
    round: int = 1,
    rng: np.random.Generator | None = None,
) -> Array:
    """What free riders send where working clients would send `own` (f, d): only its shape is used.

    `change` (d,) is what the model moved by since it was last seen, for "replay": nothing, if it was not; `rng` and
    `round` = 1, 2, ... are for "disguised".
    """
    X = matrix("free_rider", own)
    check_choice("free_rider", "kind", kind, get_args(Kind))
    if kind == "replay" and change is not None:
        return like(vector("free_rider", "change", change, X).repeat(len(X), 1), own)
    if kind == "disguised":
        if rng is None:
            raise SpecError("free_rider: kind='disguised' draws noise; give rng")
        return like(std * round**-decay * normal(X, rng), own)
    return like(torch.zeros_like(X), own)


@dataclass(frozen=True)
class LastModel:
    w: Tensor | None = None


@dataclass(frozen=True)
class FreeRider:
    """Does not train: sends zero, the last change of the model, or decaying noise.

    | argument | symbol |
    |---|---|
    | kind | `zero`, `replay` or `disguised` |
    | std | of the noise in round 1 |
    | decay | exponent of the decay of the noise |
    """

    kind: Kind = "zero"
    std: float = 0.001
    decay: float = 1.0

    knowledge: ClassVar[Knowledge] = "own"

    def __post_init__(self) -> None:
        check_choices("free_rider", self)
        check_at_least(0, "free_rider", std=self.std, decay=self.decay)

    def init(self, info: FederationInfo) -> State:
        return LastModel() if self.kind == "replay" else NoState()

    def craft(self, state: State, view: View, context: RoundContext) -> tuple[Updates, State]:
        if self.kind == "replay":
            change = None if state.w is None or view.w is None else view.w - state.w
            sent = free_rider(view.own.delta, "replay", change=change)
            return replace(view.own, delta=sent), LastModel(view.w)

        def forge(g: Tensor, rng: np.random.Generator) -> Tensor:
            return free_rider(g, self.kind, std=self.std, decay=self.decay, round=context.t + 1, rng=rng)

        return forge_rows(view, context, forge), state
