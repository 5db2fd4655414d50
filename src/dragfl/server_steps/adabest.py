"""AdaBest's server half: go on from the average of clients in the direction it has moved.

Varno et al.: AdaBest, ECCV 2022.

    avg^t = theta^t + Delta^t,    theta^(t+1) = avg^t + beta (avg^t - avg^(t-1)),    avg^(-1) = theta^0

The paper evaluates avg, not theta: `own_accuracy` in the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragfl.lazy import Tensor
from dragfl.schedules import Schedule, at, check_range
from dragfl.types import FederationInfo, RoundContext


@dataclass(frozen=True)
class AdaBestServerState:
    average: Tensor | None = None


@dataclass(frozen=True)
class AdaBestServer:
    """Extrapolates the average of the clients' models.

    | argument | symbol |
    |---|---|
    | lr | eta_g, length of the step to the average; a number or a schedule |
    | beta | beta in [0, 1) |
    """

    lr: float | Schedule = 1.0
    beta: float = 0.8

    def __post_init__(self) -> None:
        check_range("adabest", "lr", self.lr, 0.0, 1e6)
        check_range("adabest", "beta", self.beta, 0.0, 1.0, open_high=True)

    def init(self, info: FederationInfo) -> AdaBestServerState:
        return AdaBestServerState()

    def update(
        self, state: AdaBestServerState, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, AdaBestServerState]:
        average = w + at(self.lr, context.t) * step
        before = w if state.average is None else state.average
        w_next = average + self.beta * (average - before)
        return w_next, AdaBestServerState(average)
