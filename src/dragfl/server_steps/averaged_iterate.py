"""The plain server step that reports the mean of the last two iterates, as FedExP does: its iterates oscillate.

theta^(t+1) = theta^t + lr * Delta,    reported (theta^t + theta^(t+1)) / 2
"""

from __future__ import annotations

from dataclasses import dataclass

from dragfl.lazy import Tensor
from dragfl.schedules import Schedule, at, check_range
from dragfl.types import FederationInfo, RoundContext


@dataclass(frozen=True)
class AveragedIterateState:
    average: Tensor | None = None  # of the last two models; None before the first round


@dataclass(frozen=True)
class AveragedIterate:
    """Moves along the step and evaluates the mean of the last two models.

    | argument | symbol |
    |---|---|
    | lr | factor on the step; a number or a schedule |
    """

    lr: float | Schedule = 1.0

    def __post_init__(self) -> None:
        check_range("server averaged_iterate", "lr", self.lr, 0.0, 1e6)

    def init(self, info: FederationInfo) -> AveragedIterateState:
        return AveragedIterateState()

    def update(
        self, state: AveragedIterateState, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, AveragedIterateState]:
        w_next = w + at(self.lr, context.t) * step
        return w_next, AveragedIterateState(0.5 * (w + w_next))

    def evaluated(self, state: AveragedIterateState, w: Tensor) -> Tensor:
        return w if state.average is None else state.average
