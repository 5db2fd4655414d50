"""Theorem 1 for falling c and learning rates: the bound, when it vanishes, and a run below it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dragfl.errors import SettingError
from dragfl.schedules import Schedule
from dragfl.theory.schedule import first_covered, schedule_bound
from dragfl.theory.simulation import simulate, tilted_wells
from dragfl.theory.theorem import Constants, Setting, bound, gamma

PROBLEM = Constants(smoothness=2.0, noise=0.2, heterogeneity=0.3, gap=2.0)
C, LR, STEPS = 0.01, 0.005, 5  # eta L U = 0.05, Gamma = 0.125


def fading(start: float, period: float = 100.0) -> Schedule:
    return Schedule(start, "inverse_sqrt", period=period)


@pytest.mark.parametrize("rounds", [1, 10, 1000])
def test_a_constant_schedule_has_the_bound_of_the_theorem(rounds: int) -> None:
    """(gap / U + T w V) / (T w) with w = eta Gamma is gap / (Gamma eta U T) + V."""
    due = bound(Setting(C, LR, STEPS, 1), PROBLEM, rounds)
    assert due is not None
    assert schedule_bound(C, LR, STEPS, 1, PROBLEM, rounds)[-1] == pytest.approx(due.total, rel=1e-9)


def test_two_rounds_by_hand() -> None:
    """Weights eta_t Gamma_t, and V_t from the theorem with infinitely many rounds."""
    c, lr = fading(C, 1.0), fading(LR, 1.0)
    weights, floors = [], []
    for t in range(2):
        terms = bound(Setting(c(t), lr(t), STEPS, 1), PROBLEM, math.inf)
        assert terms is not None
        weights.append(lr(t) * gamma(c(t), lr(t) * 2.0 * STEPS))
        floors.append(terms.total)
    due = (2.0 / STEPS + sum(w * v for w, v in zip(weights, floors, strict=True))) / sum(weights)
    assert schedule_bound(c, lr, STEPS, 1, PROBLEM, 2)[-1] == pytest.approx(due, rel=1e-12)


def test_with_both_falling_the_bound_vanishes_as_log_t_over_the_root_of_t() -> None:
    """T times 16: by 4 up to the logarithm and to Gamma, which rises to 1/2; times sqrt(T)/log(T) it falls."""
    found = schedule_bound(fading(C), fading(LR), STEPS, 1, PROBLEM, 160_000)
    assert 3.0 < found[9_999] / found[159_999] < 5.0
    assert found[159_999] * math.sqrt(160_000) / math.log(160_000) < found[9_999] * 100 / math.log(10_000)


def test_numbers_for_the_horizon_give_the_root_of_t() -> None:
    """c and eta times 1/2 for four times the rounds: every term of the bound falls by at least 2, up to Gamma."""
    rounds = 10_000
    found = [
        bound(Setting(C / k, LR / k, STEPS, 1), PROBLEM, rounds * k * k) for k in (1.0, 10.0, 20.0)
    ]  # T = 1e4, 1e6, 4e6
    totals = [terms.total for terms in found if terms is not None]
    assert totals[0] / totals[1] > 10.0
    assert totals[1] / totals[2] == pytest.approx(2.0, rel=0.05)


def test_with_a_constant_c_a_floor_stays() -> None:
    """At least 15 c sigma_G^2 / Gamma(c, 0) > 15 c sigma_G^2 / (1/2), whatever the learning rate."""
    found = schedule_bound(C, fading(LR, 1.0), STEPS, 1, PROBLEM, 100_000)
    assert found[-1] > 30 * C * PROBLEM.heterogeneity**2


def test_a_run_stays_below_its_bound() -> None:
    """The tilted wells with two groups of clients, four seeds: the weighted mean of |grad f|^2, every round."""
    tilts = np.zeros((10, 4))
    tilts[:5, 0], tilts[5:, 0] = 0.3, -0.3
    c, lr, rounds = fading(C), fading(LR), 1500
    weights = [lr(t) * gamma(c(t), lr(t) * 2.0 * STEPS) for t in range(rounds)]
    start = np.ones((4, 4))
    models = [
        start,
        *simulate(tilted_wells(tilts), start, 10, rounds - 1, c=c, lr=lr, steps=STEPS, noise=0.1),
    ]
    squares = [((2 * w / (1 + w**2) ** 2) ** 2).sum(1).mean() for w in models]
    means = np.cumsum(np.multiply(weights, squares)) / np.cumsum(weights)
    assert (means <= schedule_bound(c, lr, STEPS, 1, PROBLEM, rounds)).all()


def test_the_first_covered_round() -> None:
    """c = 0.25 / sqrt(1 + t): below 1/33 from t = 68 on where the learning rate plays no role."""
    assert first_covered(fading(0.25, 1.0), 1e-12, 1.0, 5, 1000) == 68
    assert first_covered(0.01, LR, 2.0, STEPS, 10) == 0
    assert first_covered(0.25, LR, 2.0, STEPS, 10) == 10


def test_a_schedule_that_is_not_covered_is_refused() -> None:
    with pytest.raises(SettingError, match=r"c: 0.25 with eta L U = 0.05 in round 0: Gamma = .*lower c, which must be"):
        schedule_bound(fading(0.25), fading(LR), STEPS, 1, PROBLEM, 10)
