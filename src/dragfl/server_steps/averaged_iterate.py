"""The plain server step that reports the mean of the last two iterates, as FedExP does: its iterates oscillate.

theta^(t+1) = theta^t + lr * Delta,    reported (theta^t + theta^(t+1)) / 2
"""

from __future__ import annotations

from dataclasses import dataclass

from dragfl.lazy import Tensor
from dragfl.schedules import Schedule, at, check_range
from dragfl.types import FederationInfo, RoundContext


@dataclass(frozen=True)
class LastTwoState:
    average: Tensor | None = None  # of the last two models; None before the first round


@dataclass(frozen=True)
class AveragedIterate:
    """Move along the step, report the mean of the last two.

    | argument | symbol |
    |---|---|
    | lr | factor on the step; a number or a schedule |
    """

    lr: float | Schedule = 1.0

    def __post_init__(self) -> None:
        check_range("server averaged_iterate", "lr", self.lr, 0.0, 1e6)

    def init(self, info: FederationInfo) -> LastTwoState:
        return LastTwoState()

    def update(
        self, state: LastTwoState, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, LastTwoState]:
        w_next = w + at(self.lr, context.t) * step
        return w_next, LastTwoState(0.5 * (w + w_next))

    def evaluated(self, state: LastTwoState, w: Tensor) -> Tensor:
        return w if state.average is None else state.average
