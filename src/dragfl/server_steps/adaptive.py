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

from dragfl.errors import SpecError
from dragfl.lazy import Tensor, torch
from dragfl.schedules import Schedule, at, check_range
from dragfl.types import FederationInfo, RoundContext


@dataclass(frozen=True)
class AdaptiveState:
    m: Tensor
    v: Tensor


def _check(name: str, lr: float | Schedule, beta1: float, beta2: float, tau: float) -> None:
    check_range(name, "lr", lr, 0.0, 1e6)
    for what, beta in (("beta1", beta1), ("beta2", beta2)):
        if not 0.0 <= beta < 1.0:
            raise SpecError(f"{name}: {what}={beta} is outside [0, 1); choose a value inside it")
    if not 0.0 < tau < float("inf"):
        raise SpecError(f"{name}: tau={tau}; give a positive number")


def _start(info: FederationInfo, tau: float) -> AdaptiveState:
    m = torch.zeros(info.dim, device=info.device)
    return AdaptiveState(m, torch.full_like(m, tau**2))


def _move(w: Tensor, m: Tensor, v: Tensor, lr: float, tau: float) -> tuple[Tensor, AdaptiveState]:
    return w + lr * m / (v.sqrt() + tau), AdaptiveState(m, v)


@dataclass(frozen=True)
class Adagrad:
    """Steps shrink with the sum of all squares so far.

    | argument | symbol |
    |---|---|
    | lr | eta_g; a number or a schedule |
    | beta1 | beta_1 in [0, 1) |
    | tau | tau > 0, degree of adaptivity |
    """

    lr: float | Schedule = 0.1
    beta1: float = 0.0
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _check("server adagrad", self.lr, self.beta1, 0.0, self.tau)

    def init(self, info: FederationInfo) -> AdaptiveState:
        return _start(info, self.tau)

    def update(
        self, state: AdaptiveState, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, AdaptiveState]:
        m = self.beta1 * state.m + (1.0 - self.beta1) * step
        return _move(w, m, state.v + step.square(), at(self.lr, context.t), self.tau)


@dataclass(frozen=True)
class Adam:
    """Steps shrink with a moving mean of squares.

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

    def __post_init__(self) -> None:
        _check("server adam", self.lr, self.beta1, self.beta2, self.tau)

    def init(self, info: FederationInfo) -> AdaptiveState:
        return _start(info, self.tau)

    def update(
        self, state: AdaptiveState, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, AdaptiveState]:
        m = self.beta1 * state.m + (1.0 - self.beta1) * step
        v = self.beta2 * state.v + (1.0 - self.beta2) * step.square()
        return _move(w, m, v, at(self.lr, context.t), self.tau)


@dataclass(frozen=True)
class Yogi:
    """As Adam, but v moves by a bounded amount: it forgets large squares slowly.

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

    def __post_init__(self) -> None:
        _check("server yogi", self.lr, self.beta1, self.beta2, self.tau)

    def init(self, info: FederationInfo) -> AdaptiveState:
        return _start(info, self.tau)

    def update(
        self, state: AdaptiveState, step: Tensor, w: Tensor, context: RoundContext
    ) -> tuple[Tensor, AdaptiveState]:
        m = self.beta1 * state.m + (1.0 - self.beta1) * step
        square = step.square()
        v = state.v - (1.0 - self.beta2) * square * torch.sign(state.v - square)
        return _move(w, m, v, at(self.lr, context.t), self.tau)
