"""Adaptive server steps: FedAdagrad, FedAdam, FedYogi.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive Federated Optimization, ICLR 2021.

    m <- beta1 m + (1 - beta1) Delta
    Adagrad  v <- v + Delta^2
    Adam     v <- beta2 v + (1 - beta2) Delta^2
    Yogi     v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)
    theta <- theta + lr m / (sqrt(v) + tau),    m = 0 and v = tau^2 at first, no bias correction
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dragfl.lazy import Tensor, torch
from dragfl.schedules import Schedule, at, check_range
from dragfl.types import FederationInfo, RoundContext


@dataclass(frozen=True)
class AdaptiveState:
    m: Tensor
    v: Tensor


def check_settings(self: Any) -> None:
    owner = type(self).__name__.lower()
    check_range(owner, "lr", self.lr, 0.0, 1e6)
    check_range(owner, "tau", self.tau, 0.0, 1e6, open_low=True)
    for name in ("beta1", "beta2"):
        check_range(owner, name, getattr(self, name, 0.0), 0.0, 1.0, open_high=True)


def init(self: Any, info: FederationInfo) -> AdaptiveState:
    m = torch.zeros(info.dim, device=info.device)
    return AdaptiveState(m, torch.full_like(m, self.tau**2))


def update(
    self: Any, state: AdaptiveState, step: Tensor, w: Tensor, context: RoundContext
) -> tuple[Tensor, AdaptiveState]:
    """The update that all three share; they differ in `second_moment(v, Delta^2)`."""
    m = self.beta1 * state.m + (1.0 - self.beta1) * step
    v = self.second_moment(state.v, step.square())
    return w + at(self.lr, context.t) * m / (v.sqrt() + self.tau), AdaptiveState(m, v)


adaptive_step = (init, update)


@dataclass(frozen=True)
class Adagrad:
    """Divides each coordinate of the step by the root of the sum of all squares so far.

    | argument | symbol |
    |---|---|
    | lr | eta_g; a number or a schedule |
    | beta1 | beta_1 in [0, 1) |
    | tau | tau > 0, degree of adaptivity |
    """

    lr: float | Schedule = 0.1
    beta1: float = 0.0
    tau: float = 1e-3

    init, update = adaptive_step

    def __post_init__(self) -> None:
        check_settings(self)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square


@dataclass(frozen=True)
class Adam:
    """Divides each coordinate of the step by the root of a moving mean of squares.

    | argument | symbol |
    |---|---|
    | lr | eta_g; a number or a schedule |
    | beta1 | beta_1 in [0, 1) |
    | beta2 | beta_2 in [0, 1) |
    | tau | tau > 0, degree of adaptivity |
    """

    lr: float | Schedule = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    init, update = adaptive_step

    def __post_init__(self) -> None:
        check_settings(self)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1.0 - self.beta2) * square


@dataclass(frozen=True)
class Yogi:
    """Scales the step as Adam does, but forgets large squares slowly.

    | argument | symbol |
    |---|---|
    | lr | eta_g; a number or a schedule |
    | beta1 | beta_1 in [0, 1) |
    | beta2 | beta_2 in [0, 1) |
    | tau | tau > 0, degree of adaptivity |
    """

    lr: float | Schedule = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    init, update = adaptive_step

    def __post_init__(self) -> None:
        check_settings(self)

    def second_moment(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1.0 - self.beta2) * square * torch.sign(v - square)
