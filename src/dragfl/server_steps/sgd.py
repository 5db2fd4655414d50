"""The plain server step: theta <- theta + lr * Delta, with lr = 1 as in FedAvg."""

from __future__ import annotations

from dataclasses import dataclass

from dragfl.lazy import Tensor
from dragfl.schedules import Schedule, at, check_range
from dragfl.types import NoState, RoundContext, no_state


@dataclass(frozen=True)
class SGD:
    """Moves the model along the step.

    | argument | symbol |
    |---|---|
    | lr | eta_g; a number or a schedule |
    """

    lr: float | Schedule = 1.0

    def __post_init__(self) -> None:
        check_range("sgd", "lr", self.lr, 0.0, 1e6)

    init = no_state

    def update(self, state: NoState, step: Tensor, w: Tensor, context: RoundContext) -> tuple[Tensor, NoState]:
        return w + at(self.lr, context.t) * step, state
