"""No crash and no NaN, whatever is sent; rows that are not finite count for nothing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.aggregates.robust.cohorts import RULES, Rows, anything

every_rule = pytest.mark.parametrize("name", RULES)
SLOW = [name for name in RULES if name.startswith("sign_guard")]  # scikit-learn takes its time
each_quick_rule = pytest.mark.parametrize("name", [name for name in RULES if name not in SLOW])


def finite(name: str, X: Rows, f: int) -> Rows:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = RULES[name](X, f)
    assert step.dtype == X.dtype
    assert np.isfinite(step).all(), f"{name}: {step}"
    return np.asarray(step)


@each_quick_rule
@settings(max_examples=60, deadline=None)
@given(case=anything())
def test_float32_of_any_size(name: str, case: tuple[Rows, int]) -> None:
    finite(name, *case)


@each_quick_rule
@settings(max_examples=40, deadline=None)
@given(case=anything(np.float64, 1.7e308))
def test_float64_of_any_size(name: str, case: tuple[Rows, int]) -> None:
    finite(name, *case)


@pytest.mark.parametrize("name", SLOW)
@settings(max_examples=8, deadline=None)
@given(case=st.one_of(anything(), anything(np.float64, 1.7e308)))
def test_clusters_of_any_size(name: str, case: tuple[Rows, int]) -> None:
    finite(name, *case)


@each_quick_rule
@settings(max_examples=15, deadline=None)
@given(case=anything(), bad=st.sampled_from([np.nan, np.inf, -np.inf]), row=st.integers(0, 3))
def test_a_row_that_is_not_finite(name: str, case: tuple[Rows, int], bad: float, row: int) -> None:
    X, f = case
    spoilt = np.insert(X, min(row, len(X)), 1.0, axis=0)
    spoilt[min(row, len(X)), 0] = bad
    if name.startswith("centered_clipping"):
        spoilt = np.concatenate([X, spoilt[min(row, len(X))][None]])  # its centre is made of row 0
    ours, due = RULES[name](spoilt, f), finite(name, X, max(0, f - 1))
    assert np.isfinite(ours).all()
    if name != "rlr":  # whose threshold is not lowered with f
        np.testing.assert_array_equal(ours, due)


@every_rule
@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0, -7.5, 1e30, 3.4e38])
def test_rows_that_are_all_the_same_are_the_step(name: str, value: float) -> None:
    X = np.full((7, 3), value, np.float32)
    step = finite(name, X, 1)
    if name.startswith(("norm_clipping, ", "centered", "flame", "rlr")):
        return  # clipped, from zero, noisy, or reversed on purpose
    np.testing.assert_allclose(step, X[: len(step)] if step.ndim == 2 else X[0], rtol=1e-5)
