"""Statistics over few seeds: the t-interval of a mean, and the exact sign-flip test of paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, stdev

import numpy as np

from dragfl.rng import rng

CONFIDENCE = 0.95
ENUMERATED = 16  # pairs: up to here all sign flips are enumerated, 65,536 of them
FLIPS = 65_536  # random sign flips for more pairs
EQUAL = 1e-9  # relative rounding error up to which two sums are equal


def t_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % t-interval of the mean: mean ± t s / sqrt(n), with n - 1 degrees of freedom; None for one value.

    >>> [round(end, 3) for end in t_interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    if len(values) < 2:
        return None
    half = t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


@cache
def t_quantile(freedom: int) -> float:
    """The t with P(|T| < t) = 0.95 for Student's T with this many degrees of freedom, by bisection."""
    low, high = 0.0, math.pi / 2  # theta = atan(t / sqrt(freedom))
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _probability(middle, freedom) < CONFIDENCE else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _probability(theta: float, freedom: int) -> float:
    """P(|T| < sqrt(freedom) tan theta): the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7)."""
    odd = freedom % 2
    term = math.cos(theta) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for i in range(2 + odd, freedom, 2):
        term *= (i - 1) / i * math.cos(theta) ** 2
        total += term
    total *= math.sin(theta)
    return 2 / math.pi * (theta + total) if odd else total


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """Two-sided p-value of the sign-flip (permutation) test: is the mean of paired differences zero?

    If the two sides are exchangeable, every difference has either sign with equal probability. p is the fraction of
    all 2^n choices of signs whose sum is at least as far from zero as the observed one. Beyond 16 pairs it is
    (1 + hits) / (1 + draws) over 65,536 random choices with a fixed seed. None without pairs.
    """
    n = len(differences)
    if n == 0:
        return None
    values = np.asarray(differences, dtype=float)
    if n <= ENUMERATED:
        flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    else:
        flips = rng(0, "sign flips", n).integers(2, size=(FLIPS, n))
    sums = np.abs((1 - 2 * flips) @ values)
    hits = int((sums >= abs(values.sum()) - EQUAL * np.abs(values).sum()).sum())
    return hits / 2**n if n <= ENUMERATED else (1 + hits) / (1 + FLIPS)


def smallest_p(n: int) -> float:
    """The smallest p-value that the sign-flip test can have with n pairs: all signs equal, in both directions."""
    return min(1.0, 2.0 ** (1 - n)) if n <= ENUMERATED else 1 / (1 + FLIPS)
