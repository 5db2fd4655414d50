"""Server momentum, as in FedAvgM.

Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019.

    m <- beta m + Delta,    theta <- theta + lr m

The effective step is 1/(1 - beta) times that of the plain server step with the same lr.
"""

from __future__ import annotations

from dataclasses import dataclass

from dragfl.lazy import Tensor
from dragfl.schedules import Schedule, at, check_range
from dragfl.types import FederationInfo, RoundContext


@dataclass(frozen=True)
class MomentumState:
    m: Tensor | None = None


@dataclass(frozen=True)
class Momentum:
    """Applies heavy-ball momentum on the server.

    | argument | symbol |
    |---|---|
    | lr | eta_g; a number or a schedule |
    | beta | beta in [0, 1) |
    """

    lr: float | Schedule = 1.0
    beta: float = 0.9

    def __post_init__(self) -> None:
        check_range("momentum", "lr", self.lr, 0.0, 1e6)
        check_range("momentum", "beta", self.beta, 0.0, 1.0, open_high=True)

    def init(self, info: FederationInfo) -> MomentumState:
        return MomentumState()

    def update(
        self, state: MomentumState, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, MomentumState]:
        m = step if state.m is None else self.beta * state.m + step
        return w + at(self.lr, context.t) * m, MomentumState(m)
