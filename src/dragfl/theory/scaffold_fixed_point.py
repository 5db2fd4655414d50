"""DRAG's aggregate on SCAFFOLD's clients: the fixed point is the optimum, and noise decides how near DRAG stays to it.

M clients F_m = |theta - b_m|^2 / 2 in d dimensions, one local step of length s = eta a round, gradients with noise of
variance sigma^2 in every coordinate, all clients in every round. SCAFFOLD removes the offsets b_m: with full gradients
all corrected updates are s (mean b - theta), the same for all clients, so lambda = 0 once r points to the optimum, and
DRAG converges to it as FedAvg does.

With noise the corrected updates are g_m = -s (theta + n_m), with

    E|n_m|^2 = nu d sigma^2,   nu = 2 - 1/M    (noise of this round, of the last control variate, and of their mean)
    E|mean n|^2 = d sigma^2 / M

For large d the noise is at right angles to everything else, and P = |theta|^2 and a = <theta, rhat> follow the map of
`stationary_distance`. For s -> 0 its fixed point is, relative to that of FedAvg (P = s d sigma^2 / (2M)),

    ratio = M D (c sqrt(nu) + D) / (1 - c),    D^2 = (1 - c)^2 / M + c^2 nu

It grows with c: DRAG steps by about c |g| along r even if the updates are noise only. Far from the optimum the noise
does not matter, and all updates are parallel, so the model is lost for the c of `fixed_points.divergence_boundary`:
1/4 on a line, and above that boundary for s / alpha in more dimensions.
"""

from __future__ import annotations

import math

from dragfl.schedules import check_range

TOLERANCE = 1e-12
ROUNDS = 20_000


def noise_power(clients: int, *, scaffold: bool = True) -> float:
    """nu: the variance of a corrected update over that of a stochastic gradient; 1 without control variates."""
    return 2.0 - 1.0 / clients if scaffold else 1.0


def noise_floor(c: float, clients: int, *, scaffold: bool = True) -> float:
    """The mean of |theta - theta*|^2 over that of FedAvg, for small steps and many dimensions, alpha = 1.

    >>> noise_floor(0.0, 10), round(noise_floor(0.25, 10), 3)
    (1.0, 4.255)
    """
    check_range("noise_floor", "c", c, 0.0, 1.0, open_high=True)
    nu = noise_power(clients, scaffold=scaffold)
    size = math.sqrt((1.0 - c) ** 2 / clients + c * c * nu)
    return clients * size * (c * math.sqrt(nu) + size) / (1.0 - c)


def stationary_distance(c: float, s: float, clients: int, *, scaffold: bool = True) -> float:
    """P / (d sigma^2) at the fixed point for large d and alpha = 1; NaN where the map does not settle.

    It settles up to about 95 % of the c at which the model is lost; from there on P oscillates.

    With gn = |g_m| = s sqrt(P + nu), x = -s a / gn, lambda = c (1 - x):

        <theta, Delta> = -(1 - lambda) s P + lambda gn a
        |Delta|^2 = (1 - lambda)^2 s^2 (P + 1/M) + lambda^2 gn^2 - 2 (1 - lambda) lambda gn s a
        P <- P + 2 <theta, Delta> + |Delta|^2,    a <- (<theta, Delta> + |Delta|^2) / |Delta|

    FedAvg's is s / (M (2 - s)):

    >>> round(stationary_distance(0.0, 0.5, 10) * 10 * 1.5 / 0.5, 9)
    1.0
    """
    check_range("stationary_distance", "c", c, 0.0, 1.0)
    check_range("stationary_distance", "s", s, 0.0, 1.0, open_low=True)
    nu = noise_power(clients, scaffold=scaffold)
    P, a = s / (clients * (2.0 - s)), 0.0
    for _ in range(ROUNDS):
        gn = s * math.sqrt(P + nu)
        lam = c * (1.0 + s * a / gn)
        along = -(1.0 - lam) * s * P + lam * gn * a
        square = (1.0 - lam) ** 2 * s * s * (P + 1.0 / clients) + lam * gn * (lam * gn - 2.0 * (1.0 - lam) * s * a)
        new, a_new = P + 2.0 * along + square, (along + square) / math.sqrt(square)
        if abs(new - P) + abs(a_new - a) < TOLERANCE * (P + 1.0):
            return new
        P, a = new, a_new
    return math.nan
