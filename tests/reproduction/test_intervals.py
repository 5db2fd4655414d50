"""Bootstrap intervals of a median over seeds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragfl.reproduction.intervals import Interval, bootstrap

values = st.floats(-100, 100, allow_nan=False)


def test_three_values() -> None:
    """27 resamples of 0.5, 0.6 and 0.9. The median is 0.5 if at least two of three draws are 0.5: 3 x 2 + 1 = 7 of 27.

    Likewise 0.9 in 7 of 27, so both tails exceed 2.5 % and the interval is the range."""
    assert bootstrap([Interval.exact(v) for v in (0.6, 0.5, 0.9)]) == Interval(0.5, 0.9)


def test_two_values_and_one() -> None:
    """Of 4 resamples of 1 and 3 the medians are 1, 2, 2, 3."""
    assert bootstrap([Interval.exact(1.0), Interval.exact(3.0)]) == Interval(1.0, 3.0)
    assert bootstrap([Interval.exact(2.0)]) == Interval.exact(2.0)


def test_censored_values_give_bounds() -> None:
    """Ratios of at most 0.4, of 0.5, and of at least 2: from 0 to infinity."""
    assert bootstrap([Interval(0.0, 0.4), Interval.exact(0.5), Interval(2.0, math.inf)]) == Interval(0.0, math.inf)
    assert bootstrap([Interval(0.0, 0.4), Interval(0.0, 0.3), Interval(0.0, 0.2)]) == Interval(0.0, 0.4)


def test_many_values_leave_the_extremes_out() -> None:
    """Of 21 values the median of a resample is the smallest only if 11 of 21 draws are: never in practice.

    The ends have ranks of about 10.5 -+ 1.96 sqrt(21) / 2, the 6th or 7th and the 15th or 16th value."""
    found = bootstrap([Interval.exact(float(i)) for i in range(1, 22)])
    assert 6 <= found.low <= 8
    assert 14 <= found.high <= 16
    assert found == bootstrap([Interval.exact(float(i)) for i in reversed(range(1, 22))])  # the same draws


@given(st.lists(values, min_size=1, max_size=5))
def test_up_to_five_values_the_interval_is_the_range(numbers: list[float]) -> None:
    found = bootstrap([Interval.exact(v) for v in numbers])
    assert found.low == pytest.approx(min(numbers))
    assert found.high == pytest.approx(max(numbers))
