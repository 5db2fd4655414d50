"""Rules that promise it stay within a written bound of the honest updates, whatever f others send, 1e30 and 3e38 too.

diam is the largest distance between two honest updates, range_j that of their j-th coordinates, B their largest norm.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragfl import functional as fn
from dragfl.algorithms import chain
from tests.aggregates.drive import run_rule
from tests.aggregates.robust.cohorts import RULES, Rows, attacked, needs

ROUNDING = 1e-4
FEW = settings(max_examples=60, deadline=None)


def together(honest: Rows, bad: Rows, seed: int) -> Rows:
    return np.random.default_rng(seed).permutation(np.concatenate([honest, bad]))


def diameter(honest: Rows) -> float:
    apart = honest[:, None].astype(np.float64) - honest[None]
    return float(np.sqrt((apart**2).sum(2)).max())


def nearest_honest(step: Rows, honest: Rows) -> float:
    return float(np.sqrt(((honest.astype(np.float64) - step) ** 2).sum(1)).min())


def slack(honest: Rows) -> float:
    return ROUNDING * (1.0 + float(np.abs(honest).max()))


@pytest.mark.parametrize("name", ["median", "trimmed_mean"])
@FEW
@given(case=attacked(lambda f: 2 * f + 1), seed=st.integers(0, 99))
def test_between_the_least_and_the_largest_honest_value(name: str, case: Any, seed: int) -> None:
    honest, bad, f = case
    step = RULES[name](together(honest, bad, seed), f)
    assert (step >= honest.min(0) - slack(honest)).all()
    assert (step <= honest.max(0) + slack(honest)).all()


@pytest.mark.parametrize("name", ["mea_med", "bulyan"])
@FEW
@given(data=st.data(), seed=st.integers(0, 99))
def test_within_twice_the_range_of_honest_values(name: str, data: st.DataObject, seed: int) -> None:
    honest, bad, f = data.draw(attacked(lambda f: needs(name, f)))
    step = RULES[name](together(honest, bad, seed), f)
    width = honest.max(0).astype(np.float64) - honest.min(0)
    assert (np.abs(step - honest.min(0).astype(np.float64)) <= 2 * width + slack(honest)).all()


@pytest.mark.parametrize("name", ["krum", "multi_krum"])
@FEW
@given(case=attacked(lambda f: 2 * f + 3), seed=st.integers(0, 99))
def test_krum_stays_near_an_honest_update(name: str, case: Any, seed: int) -> None:
    """Whoever is used has an honest neighbour no farther than its score allows: sqrt(n - f - 2) diam.

    The mean of such ones is then within (1 + sqrt(n - f - 2)) diam of any honest update.
    """
    honest, bad, f = case
    n = len(honest) + f
    step = RULES[name](together(honest, bad, seed), f)
    reach = math.sqrt(n - f - 2) + (1.0 if name == "multi_krum" else 0.0)
    assert nearest_honest(step, honest) <= reach * diameter(honest) * (1 + ROUNDING) + slack(honest)


@FEW
@given(case=attacked(lambda f: 2 * f + 1), seed=st.integers(0, 99))
def test_minimum_diameter_stays_within_the_diameter(case: Any, seed: int) -> None:
    honest, bad, f = case
    step = fn.mda(together(honest, bad, seed), f)
    assert nearest_honest(step, honest) <= diameter(honest) * (1 + ROUNDING) + slack(honest)


@pytest.mark.parametrize("iterations", [1, 3, 100])
@FEW
@given(case=attacked(lambda f: 2 * f + 1), seed=st.integers(0, 99))
def test_geometric_median_is_bounded_by_honest_norms(iterations: int, case: Any, seed: int) -> None:
    honest, bad, f = case
    h, n, nu = len(honest), len(honest) + f, 1e-6
    B = max(nu, float(np.linalg.norm(honest.astype(np.float64), axis=1).max()))
    bound = B * n / h + (2 * h * (B + B * n / h) + 2 * n * nu) / (n - 2 * f)
    step = fn.geometric_median(together(honest, bad, seed), nu, iterations)
    assert np.linalg.norm(step.astype(np.float64)) <= bound * (1 + ROUNDING) + slack(honest)


@FEW
@given(case=attacked(lambda f: 2 * f + 1), seed=st.integers(0, 99))
def test_mixed_rows_of_honest_updates_stay_within_the_diameter(case: Any, seed: int) -> None:
    """n - f honest updates are within diam of an honest one, so the n - f nearest are, and so is their mean."""
    honest, bad, f = case
    mixed = fn.nnm(np.concatenate([honest, bad]), f)[: len(honest)]
    gaps = np.sqrt(((mixed.astype(np.float64) - honest) ** 2).sum(1))
    assert (gaps <= diameter(honest) * (1 + ROUNDING) + slack(honest)).all()


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "mea_med", "krum", "multi_krum", "mda", "bulyan"])
@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_after_mixing_every_rule_keeps_its_bound(name: str, data: st.DataObject, seed: int) -> None:
    """The honest rows now have a diameter of at most 3 diam: the bounds above, of 3 diam, from rows within diam."""
    honest, bad, f = data.draw(attacked(lambda f: needs(name, f)))
    n = len(honest) + f
    step = run_rule(chain("nnm", name, f=f), together(honest, bad, seed)).step.numpy()
    reach = {"krum": math.sqrt(n), "multi_krum": 1 + math.sqrt(n), "mda": 1.0}.get(name, 2 * math.sqrt(honest.shape[1]))
    assert nearest_honest(step, honest) <= (1 + 3 * reach) * diameter(honest) * (1 + ROUNDING) + slack(honest)


@FEW
@given(case=attacked(lambda f: 2 * f + 1), radius=st.floats(0.1, 10.0), seed=st.integers(0, 99))
def test_clipping_is_bounded_by_its_radius(case: Any, radius: float, seed: int) -> None:
    honest, bad, _ = case
    X = together(honest, bad, seed)
    assert np.linalg.norm(fn.norm_clipping(X, radius)) <= radius * (1 + ROUNDING)
    longest = float(np.linalg.norm(honest.astype(np.float64), axis=1).max())
    assert np.linalg.norm(fn.norm_clipping(X).astype(np.float64)) <= longest * (1 + ROUNDING) + 1e-12  # EPS is zero
    centre = honest[0]
    for iterations in (1, 3):
        step = fn.centered_clipping(X, centre, radius, iterations)
        assert np.linalg.norm(step - centre) <= iterations * radius * (1 + ROUNDING) + slack(honest)
    away = float(np.linalg.norm(honest.astype(np.float64) - centre, axis=1).max())
    step = fn.centered_clipping(X, centre)
    assert np.linalg.norm(step - centre) <= away * (1 + ROUNDING) + slack(honest)


@settings(max_examples=40, deadline=None)
@given(case=attacked(lambda f: 2 * f + 1), seed=st.integers(0, 99))
def test_arc_leaves_no_update_longer_than_the_longest_honest_update(case: Any, seed: int) -> None:
    """With f >= 1, floor(2f(n - f)/n) >= f are clipped as n >= 2f, so the threshold is an honest norm or below one."""
    honest, bad, f = case
    longest = float(np.linalg.norm(honest.astype(np.float64), axis=1).max())
    norms = np.linalg.norm(fn.arc(together(honest, bad, seed), f).astype(np.float64), axis=1)
    assert norms.max() <= longest * (1 + ROUNDING) + 1e-12


BREAKS = {
    "mean": lambda X, f: fn.mean(X),
    "rlr": lambda X, f: fn.rlr(X, f + 1.0),
    "fools_gold": lambda X, f: fn.fools_gold(X),
}


@pytest.mark.parametrize("name", BREAKS)
def test_one_long_update_breaks_the_rules_that_promise_nothing(name: str) -> None:
    """Nine honest updates around (1, 1, ...) and one of 1e6 along a direction of its own."""
    draws = np.random.default_rng(0)
    honest = (1.0 + 0.1 * draws.normal(size=(9, 20))).astype(np.float32)
    bad = np.zeros((1, 20), np.float32)
    bad[0, 3] = -1e6
    step = BREAKS[name](np.concatenate([honest, bad]), 1)
    assert np.linalg.norm(step - honest.mean(0)) > 1e4


def test_an_update_outside_the_drawn_coordinates_passes_divide_and_conquer() -> None:
    """1,000 coordinates of which 10 are drawn; the attacker is honest but for one of 1e6."""
    draws = np.random.default_rng(0)
    X = draws.normal(size=(10, 1000)).astype(np.float32)
    X[0] = X[1:].mean(0)
    X[0, 5] = 1e6
    step = fn.dnc(X, 1, np.random.default_rng(1), coordinates=10, iterations=1)
    assert abs(float(step[5])) > 1e4


@pytest.mark.parametrize("name", ["sign_guard", "flame"])
def test_an_attack_inside_the_honest_cloud_passes_the_clusters(name: str) -> None:
    """Six copies of one honest update in twenty: as long, with signs and a direction as good as any, so they pass."""
    draws = np.random.default_rng(0)
    honest = (draws.normal(size=300) + 0.3 * draws.normal(size=(14, 300))).astype(np.float32)
    X = np.concatenate([honest, np.repeat(honest[:1], 6, 0)])
    step, mean = RULES[name](X, 6), honest.mean(0)
    assert np.linalg.norm(step) <= np.median(np.linalg.norm(X, axis=1)) * 1.01
    towards = honest[0] - mean
    assert float((step - mean) @ towards) > 0.2 * float(towards @ towards)
