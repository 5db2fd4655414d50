"""Numbers that may be known only by their bounds: a round that was not reached is later than the last one run.

A span holds every value that is possible. What is asked of it is answered True, False, or None where both may be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

Relation = Literal["<", "<=", ">", ">=", "=", "within", "apart"]


@dataclass(frozen=True)
class Span:
    """The values from `low` to `high`, both included."""

    low: float
    high: float

    @staticmethod
    def of(value: float) -> Span:
        return Span(value, value)

    @staticmethod
    def more_than(value: float) -> Span:
        """A value that is censored: more than this."""
        return Span(math.nextafter(value, math.inf), math.inf)

    @property
    def known(self) -> bool:
        return self.low == self.high

    @property
    def censored(self) -> bool:
        return self.high == math.inf

    def __truediv__(self, other: Span) -> Span:
        """A ratio of positive values. Above a censored denominator it is at most; two censored ones say nothing."""
        low = 0.0 if other.high == math.inf else self.low / other.high
        return Span(low, math.inf if self.high == math.inf or other.low == 0 else self.high / other.low)

    def __sub__(self, other: Span) -> Span:
        low = -math.inf if other.high == math.inf else self.low - other.high
        return Span(low, math.inf if self.high == math.inf else self.high - other.low)

    def is_(self, relation: Relation, threshold: float) -> bool | None:
        """Whether the relation holds for all values (True), for none (False), or for some (None)."""
        low, high = self.low, self.high
        if relation == "within":  # of 1, for a ratio
            holds = 1 - threshold <= low and high <= 1 + threshold
            fails = high < 1 - threshold or low > 1 + threshold
        elif relation == "apart":  # from 0, in either direction
            holds = low >= threshold or high <= -threshold
            fails = -threshold < low and high < threshold
        elif relation == "=":
            holds, fails = low == high == threshold, high < threshold or low > threshold
        elif relation in ("<", "<="):
            strict = relation == "<"
            holds = high < threshold or (high == threshold and not strict)
            fails = low > threshold or (low == threshold and strict)
        else:
            strict = relation == ">"
            holds = low > threshold or (low == threshold and not strict)
            fails = high < threshold or (high == threshold and strict)
        return True if holds else False if fails else None


def least(spans: Sequence[Span]) -> Span:
    """The smallest of some values."""
    return Span(min(s.low for s in spans), min(s.high for s in spans))


def most(spans: Sequence[Span]) -> Span:
    """The largest of some values."""
    return Span(max(s.low for s in spans), max(s.high for s in spans))


def middle(spans: Sequence[Span]) -> Span:
    """The median: its bounds are the medians of the bounds."""
    return Span(median(s.low for s in spans), median(s.high for s in spans))


def rank(mine: Span, others: Sequence[Span], *, low_is_best: bool) -> Span:
    """The place among others, 1 being the best, equals sharing one; what censoring leaves open is a span of places."""

    def surely(a: Span, b: Span) -> bool:
        return a.high < b.low if low_is_best else a.low > b.high

    def possibly(a: Span, b: Span) -> bool:
        return a.low < b.high if low_is_best else a.high > b.low

    first, last = (1 + sum(before(other, mine) for other in others) for before in (surely, possibly))
    return Span(first, last)
