"""Theorem 1 for a c and a learning rate that change with the round, and schedules for which its bound vanishes.

The one-step inequality of the proof holds for the c_t and eta_t of its round,

    E f(theta^(t+1)) <= f(theta^t) - eta_t U Gamma_t |grad f(theta^t)|^2 + eta_t U Gamma_t V_t

with Gamma_t = Gamma(c_t, eta_t L U) and V_t of the repaired theorem. Summed, with weights w_t = eta_t Gamma_t,

    sum_t w_t |grad f(theta^t)|^2 / sum_t w_t  <=  ((f0 - f*) / U + sum_t w_t V_t) / sum_t w_t

V_t is of order c_t + eta_t. So for c_t = c_0 / sqrt(1 + t/p) and eta_t = eta_0 / sqrt(1 + t/p) the bound is of order
log(T) / sqrt(T); for numbers chosen for the horizon T, c = c_0 sqrt(p/T) and eta = eta_0 sqrt(p/T), it is of order
1 / sqrt(T). Gamma_t grows as c_t and eta_t fall, so a schedule that is covered in round 0 is covered for ever. With a
fixed c the c sigma_G^2 term of V_t stays.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dragfl.errors import SettingError
from dragfl.schedules import Schedule, at
from dragfl.theory.theorem import Constants, Setting, bound, gamma


def first_covered(c: float | Schedule, lr: float | Schedule, smoothness: float, local_steps: int, rounds: int) -> int:
    """The first round from which Theorem 1 covers a falling schedule; `rounds` if none of them is covered.

    >>> fading = Schedule(0.25, "inverse_sqrt", period=10)
    >>> first_covered(fading, Schedule(0.01, "inverse_sqrt", period=10), smoothness=1.0, local_steps=5, rounds=10_000)
    724
    """
    covered = (gamma(at(c, t), at(lr, t) * smoothness * local_steps) > 0.0 for t in range(rounds))
    return next((t for t, holds in enumerate(covered) if holds), rounds)


def schedule_bound(
    c: float | Schedule, lr: float | Schedule, local_steps: int, batch_size: int, constants: Constants, rounds: int
) -> list[float]:
    """The bound on the weighted mean of |grad f|^2 over the first 1, 2, ..., `rounds` models.

    Raises if a round is not covered.
    """
    out, weights, due = [], 0.0, constants.gap / local_steps
    free = replace(constants, gap=0.0)
    for t in range(rounds):
        setting = Setting(at(c, t), at(lr, t), local_steps, batch_size)
        terms = bound(setting, free, math.inf)
        if terms is None:
            x = setting.lr * constants.smoothness * local_steps
            margin = gamma(setting.c, x)
            problem = f"{setting.c:g} with eta L U = {x:g} in round {t}: Gamma = {margin:.3g}; lower c, which must be "
            raise SettingError("schedule_bound", "c", problem + "below 1/33, or the learning rate")
        weight = setting.lr * gamma(setting.c, setting.lr * constants.smoothness * local_steps)
        weights, due = weights + weight, due + weight * terms.total
        out.append(due / weights)
    return out
