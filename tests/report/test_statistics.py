"""The t-interval and the sign-flip test, by hand and against scipy."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from dragfl.report.numbers import mean_std
from dragfl.report.statistics import FLIPS, sign_flip_p, smallest_p, t_interval, t_quantile

numbers = st.floats(-10, 10, allow_nan=False)


def test_interval_of_three_seeds_by_hand() -> None:
    """0.90, 0.92, 0.94: mean 0.92, s = 0.02, t(2) = 4.303: 0.92 ± 4.303 * 0.02 / sqrt(3) = 0.92 ± 0.0497."""
    interval = t_interval([0.90, 0.92, 0.94])
    assert interval == pytest.approx((0.92 - 0.04968, 0.92 + 0.04968), abs=1e-5)
    value = mean_std([0.90, 0.92, 0.94])
    assert value is not None
    assert (str(value), value.format_interval(), value.n) == ("92.0 ± 2.0 %", "[87.0, 97.0]", 3)


def test_one_seed_has_no_interval() -> None:
    assert t_interval([0.9]) is None
    value = mean_std([0.9])
    assert value is not None and value.interval is None and value.format_interval() == "—"


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 30, 100])
def test_quantiles_are_those_of_scipy(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


@given(st.lists(numbers, min_size=2, max_size=12))
def test_the_interval_is_that_of_scipy(values: list[float]) -> None:
    low, high = t_interval(values) or (math.nan, math.nan)
    sem = stats.sem(values)
    half = stats.t.ppf(0.975, len(values) - 1) * sem
    assert high - low == pytest.approx(2 * half, rel=1e-6, abs=1e-9)


def test_p_value_by_hand() -> None:
    """Differences 1, 2, -1: the sum is 2. Of the 8 sums ±1 ±2 ±1 (4, 2, 0, -2, 2, 0, -2, -4), six have |sum| >= 2."""
    assert sign_flip_p([1.0, 2.0, -1.0]) == 6 / 8
    assert sign_flip_p([1.0, 2.0, 3.0]) == 2 / 8 == smallest_p(3)
    assert sign_flip_p([0.0, 0.0]) == 1.0
    assert sign_flip_p([5.0]) == 1.0 == smallest_p(1)
    assert sign_flip_p([]) is None


def test_equal_sums_count_in_spite_of_rounding() -> None:
    """0.1, 0.2, -0.3: the sum is 0 up to rounding, so every choice of signs is at least as far from 0."""
    assert sign_flip_p([0.1, 0.2, -0.3]) == 1.0


@given(st.lists(numbers, min_size=1, max_size=8))
def test_p_value_is_that_of_all_sign_flips(values: list[float]) -> None:
    """Against a plain loop; the sign of all differences does not matter, and no p is below the smallest one."""
    p = sign_flip_p(values)
    total, size = abs(sum(values)), sum(map(abs, values))
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    surely = sum(s >= total + 1e-6 * size for s in sums) / len(sums)
    possibly = sum(s >= total - 1e-6 * size for s in sums) / len(sums)
    assert p is not None and surely <= p <= possibly
    assert p >= smallest_p(len(values))
    assert sign_flip_p([-v for v in values]) == p


def test_many_pairs_are_sampled_with_a_fixed_seed() -> None:
    """20 equal differences: all signs equal is one of 2^19, so it is hardly ever drawn."""
    p = sign_flip_p([1.0] * 20)
    assert p is not None and smallest_p(20) <= p <= 3 / FLIPS
    mixed = [1.0, -1.0] * 10
    assert sign_flip_p(mixed) == sign_flip_p(mixed) == 1.0
