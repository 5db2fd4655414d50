"""Theorem 1 of the DRAG paper: its constant as printed and as repaired, the feasible region, and the bound.

With x = eta L U (local learning rate, smoothness, local steps), if Gamma(c, x) > 0 and x <= 1/8, then for every T

    1/T sum_(t<T) |grad f(theta^t)|^2 <= (f0 - f*) / (Gamma eta U T) + V

    Gamma = (1 - 3c)/2 - (a c + k x)(90 x^2 + 3) - 15 (1 - c) x^2
    V Gamma = n c sigma_L^2/(B U) + k eta L sigma_L^2/B + (a c/U + k eta L)(15 U^2 L^2 eta^2 V_1 + 3 U sigma_G^2)
              + 5/2 (1 - c) U L^2 eta^2 V_1,        V_1 = sigma_L^2 + 6 U sigma_G^2

The paper prints a = 5, k = 1/2, n = 4. Its proof takes the noise of a local step for independent of the gradients of
later steps; with |u + v|^2 <= 2|u|^2 + 2|v|^2 instead, k = 1 and n = 5. (The last term of V has the factor U of the
proof, which the statement of the theorem has lost.)
"""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_X = 1 / 8  # the lemma on local drift needs x <= 1/8; Gamma < 0 there, so this never binds
BISECTIONS = 60


@dataclass(frozen=True)
class Form:
    """The numbers in which the printed theorem and the repaired one differ."""

    drag: float  # a: what DRAG adds to the squared gradients
    step: float  # k: the squared length of the step
    noise: float  # n: the noise in what DRAG adds


PRINTED = Form(drag=5.0, step=0.5, noise=4.0)
REPAIRED = Form(drag=5.0, step=1.0, noise=5.0)


@dataclass(frozen=True)
class Setting:
    """The settings of a run that enter the theorem."""

    c: float  # of DRAG
    lr: float  # eta, the local learning rate
    local_steps: int  # U
    batch_size: int  # B


@dataclass(frozen=True)
class Constants:
    """The constants of a problem in Assumptions 1 and 2."""

    smoothness: float  # L, of every client's objective
    noise: float  # sigma_L, the standard deviation of the gradient of one sample
    heterogeneity: float  # sigma_G, the distance between a client's gradient and the mean gradient
    gap: float  # f0 - f*, of the first model


@dataclass(frozen=True)
class Bound:
    """The terms of the bound, each divided by Gamma."""

    start: float  # (f0 - f*) / (eta U T): vanishes as T grows
    drag: float  # c (n sigma_L^2/(B U) + 3 a sigma_G^2): does not vanish unless c does
    step: float  # of order eta: vanishes with the learning rate
    drift: float  # of order eta^2: vanishes with the learning rate

    @property
    def total(self) -> float:
        return self.start + self.drag + self.step + self.drift


def gamma(c: float, x: float, form: Form = REPAIRED) -> float:
    """Gamma(c, x); the theorem holds where it is positive.

    >>> gamma(0.01, 0.01), gamma(0.25, 0.0)
    (0.2986119, -3.625)
    """
    return (1 - 3 * c) / 2 - (form.drag * c + form.step * x) * (90 * x * x + 3) - 15 * (1 - c) * x * x


def largest_c(x: float, form: Form = REPAIRED) -> float | None:
    """The c at which Gamma(c, x) = 0: every smaller c is covered. None if not even c = 0 is.

    >>> largest_c(0.0) == 1 / 33
    True
    """
    q = 90 * x * x + 3
    c = (0.5 - form.step * x * q - 15 * x * x) / (1.5 + form.drag * q - 15 * x * x) if x <= LARGEST_X else -1.0
    return c if c > 0 else None


def largest_x(c: float, form: Form = REPAIRED) -> float | None:
    """The x at which Gamma(c, x) = 0: every smaller x is covered. None if no x > 0 is, as for every c >= 1/33."""
    if gamma(c, 0.0, form) <= 0:
        return None
    low, high = 0.0, LARGEST_X
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if gamma(c, middle, form) > 0 else (low, middle)
    return low


def largest_lr(c: float, smoothness: float, local_steps: int, form: Form = REPAIRED) -> float | None:
    """The learning rate below which a run with this c is covered, or None if there is none."""
    x = largest_x(c, form)
    return None if x is None else x / (smoothness * local_steps)


def bound(setting: Setting, constants: Constants, rounds: float, form: Form = REPAIRED) -> Bound | None:
    """The bound on the mean squared gradient norm of the first `rounds` models; None where the theorem is silent."""
    c, lr, U, B = setting.c, setting.lr, setting.local_steps, setting.batch_size
    L, noise, between = constants.smoothness, constants.noise**2, constants.heterogeneity**2
    x = lr * L * U
    margin = gamma(c, x, form)
    if not (margin > 0 and 0 < x <= LARGEST_X):
        return None
    v1 = noise + 6 * U * between
    return Bound(
        start=constants.gap / (margin * lr * U * rounds),
        drag=c * (form.noise * noise / (B * U) + 3 * form.drag * between) / margin,
        step=form.step * lr * L * (noise / B + 3 * U * between) / margin,
        drift=((form.drag * c / U + form.step * lr * L) * 15 * x * x + 2.5 * (1 - c) * x * x / U) * v1 / margin,
    )


def floor(c: float, constants: Constants, local_steps: int, batch_size: int, form: Form = REPAIRED) -> float | None:
    """What is left of the bound for T to infinity and then eta to 0; None for c >= 1/33."""
    margin = gamma(c, 0.0, form)
    if margin <= 0:
        return None
    noise, between = constants.noise**2, constants.heterogeneity**2
    return c * (form.noise * noise / (batch_size * local_steps) + 3 * form.drag * between) / margin
