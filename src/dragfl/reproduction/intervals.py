"""Intervals for censored numbers: a target that was not reached is reached after the last round, if ever.

An interval contains every possible value. A question about it has the answer True, False, or None where both are
possible. `bootstrap` gives the uncertainty of a median over few seeds.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from dragfl.rng import rng

ENUMERATED = 5  # values: up to here all resamples are enumerated, 3125 of them
RESAMPLES = 10_000  # draws for more values
CONFIDENCE = 0.95

Relation = Literal["<", "<=", ">", ">=", "=", "within", "apart"]


@dataclass(frozen=True)
class Interval:
    """The values from `low` to `high`, both included."""

    low: float
    high: float

    @staticmethod
    def exact(value: float) -> Interval:
        return Interval(value, value)

    @staticmethod
    def above(value: float) -> Interval:
        """A censored value: more than this."""
        return Interval(math.nextafter(value, math.inf), math.inf)

    @property
    def known(self) -> bool:
        return self.low == self.high

    @property
    def censored(self) -> bool:
        return self.high == math.inf

    def __truediv__(self, other: Interval) -> Interval:
        """A ratio of positive values. A censored denominator leaves an upper bound only."""
        return Interval(_ratio(self.low, other.high), _ratio(self.high, other.low))

    def __sub__(self, other: Interval) -> Interval:
        return Interval(_difference(self.low, other.high), _difference(self.high, other.low))

    def satisfies(self, relation: Relation, threshold: float) -> bool | None:
        """Whether the relation holds for all values (True), for none (False), or for some (None)."""
        low, high = self.low, self.high
        match relation:
            case "<":
                holds, fails = high < threshold, low >= threshold
            case "<=":
                holds, fails = high <= threshold, low > threshold
            case ">":
                holds, fails = low > threshold, high <= threshold
            case ">=":
                holds, fails = low >= threshold, high < threshold
            case "=":
                holds, fails = low == high == threshold, high < threshold or low > threshold
            case "within":  # of 1, for a ratio
                holds = 1 - threshold <= low and high <= 1 + threshold
                fails = high < 1 - threshold or low > 1 + threshold
            case "apart":  # from 0, in either direction
                holds = low >= threshold or high <= -threshold
                fails = -threshold < low and high < threshold
        return True if holds else False if fails else None


def _ratio(a: float, b: float) -> float:
    """a / b; two infinite values are equal: neither of two runs that diverged is faster than the other."""
    if a == b == math.inf:
        return 1.0
    return math.inf if b == 0 else a / b


def _difference(a: float, b: float) -> float:
    """a - b; two infinite values are equal."""
    return 0.0 if a == b == math.inf else a - b


def minimum(intervals: Sequence[Interval]) -> Interval:
    return Interval(min(i.low for i in intervals), min(i.high for i in intervals))


def maximum(intervals: Sequence[Interval]) -> Interval:
    return Interval(max(i.low for i in intervals), max(i.high for i in intervals))


def median(intervals: Sequence[Interval]) -> Interval:
    return Interval(statistics.median(i.low for i in intervals), statistics.median(i.high for i in intervals))


def bootstrap(intervals: Sequence[Interval]) -> Interval:
    """The 95 % bootstrap interval of the median: percentiles over resamples of the values with replacement.

    Each value compares two runs of one seed, so the resamples are paired. With at most five values, every value has a
    probability of more than 2.5 % to be the median of a resample, and the interval is the range of the values.
    Censored values widen it.
    """
    tail = (1 - CONFIDENCE) / 2

    def percentile(values: list[float], fraction: float) -> float:
        values = sorted(values)
        medians = sorted((values[i] + values[j]) / 2 for i, j in _middle_positions(len(values)))
        return medians[math.ceil(fraction * len(medians) - 1e-9) - 1]

    low = percentile([i.low for i in intervals], tail)
    return Interval(low, percentile([i.high for i in intervals], 1 - tail))


@cache
def _middle_positions(n: int) -> list[tuple[int, int]]:
    """For each resample of n sorted values, the places of the two values whose mean is its median."""
    every = n <= ENUMERATED
    draws = itertools.product(range(n), repeat=n) if every else rng(0, "bootstrap", n).integers(n, size=(RESAMPLES, n))
    ordered = [sorted(int(place) for place in draw) for draw in draws]
    return [(places[(n - 1) // 2], places[n // 2]) for places in ordered]


def rank(value: Interval, others: Sequence[Interval], *, low_is_best: bool) -> Interval:
    """The rank among others, 1 for the best, the same for equal values; an interval where censoring leaves it open."""

    def surely_better(a: Interval, b: Interval) -> bool:
        return a.high < b.low if low_is_best else a.low > b.high

    def possibly_better(a: Interval, b: Interval) -> bool:
        return a.low < b.high if low_is_best else a.high > b.low

    first = 1 + sum(surely_better(other, value) for other in others)
    return Interval(first, 1 + sum(possibly_better(other, value) for other in others))
