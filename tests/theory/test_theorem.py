"""Theorem 1: the feasible region and the bound, against numbers computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragfl.theory import (
    PRINTED,
    REPAIRED,
    Constants,
    Form,
    Setting,
    bound,
    floor,
    gamma,
    largest_c,
    largest_lr,
    largest_x,
)

CONSTANTS = Constants(smoothness=2.0, noise=3.0, heterogeneity=0.5, gap=4.0)
SETTING = Setting(c=0.01, lr=0.001, local_steps=5, batch_size=20)
FORMS = st.sampled_from([PRINTED, REPAIRED])


@pytest.mark.parametrize("form", [PRINTED, REPAIRED])
def test_no_learning_rate_is_covered_from_one_thirty_third_on(form: Form) -> None:
    """Gamma(c, 0) = (1 - 3c)/2 - 3 (5c) = 1/2 - 33c/2."""
    assert gamma(0.02, 0.0, form) == pytest.approx(0.5 - 16.5 * 0.02)
    assert gamma(1 / 33, 0.0, form) == pytest.approx(0.0, abs=1e-15)
    assert largest_x(1 / 33, form) is None and largest_x(0.0303, form) is not None


def test_the_printed_limits() -> None:
    """Even c = 0 fails at the step that the paper allows, eta = 1/(8 L U)."""
    assert gamma(0.0, 1 / 8, PRINTED) == pytest.approx(-0.0098, abs=5e-5)
    assert largest_x(0.0, PRINTED) == pytest.approx(0.12366, abs=1e-5)
    assert largest_x(0.01, PRINTED) == pytest.approx(0.0917, abs=5e-5)
    assert largest_x(0.02, PRINTED) == pytest.approx(0.0568, abs=5e-5)
    assert largest_x(0.03, PRINTED) == pytest.approx(0.00315, abs=5e-6)


def test_the_papers_own_settings_are_outside() -> None:
    """Gamma falls with x, so its largest value is at x = 0: 1/2 - 1.65 and 1/2 - 4.125."""
    assert gamma(0.1, 0.0, PRINTED) == pytest.approx(-1.15)
    assert gamma(0.25, 0.0, PRINTED) == pytest.approx(-3.625)
    assert largest_x(0.1) is None and largest_x(0.25, PRINTED) is None and largest_lr(0.1, 1.0, 5) is None


def test_the_repaired_limits() -> None:
    assert [largest_x(c) for c in (0.0, 0.01, 0.02, 0.03)] == pytest.approx(
        [0.09530, 0.06990, 0.04118, 0.00164], abs=5e-6
    )


def test_without_the_cross_term_the_limit_of_c_would_be_one_eighteenth() -> None:
    """Half of |u + v|^2 <= 2|u|^2 + 2|v|^2: the coefficient 5c becomes 5c/2, and 1/2 - 3c/2 - 15c/2 = 1/2 - 9c."""
    halved = Form(drag=2.5, step=0.5, noise=2.5)
    assert largest_c(0.0, halved) == pytest.approx(1 / 18)


@given(FORMS, st.floats(0.0, 0.029), st.floats(1e-4, 0.09))
def test_the_two_limits_are_inverse(form: Form, c: float, x: float) -> None:
    assert gamma(c, largest_x(c, form) or 0.0, form) == pytest.approx(0.0, abs=1e-9)
    assert gamma(largest_c(x, form) or 1.0, x, form) == pytest.approx(0.0, abs=1e-12)
    assert (gamma(c, x, form) > 0) == (c < (largest_c(x, form) or 0.0))


@given(FORMS, st.floats(0.0, 1.0), st.floats(0.0, 0.12), st.floats(1e-6, 0.1))
def test_gamma_falls_with_c_and_with_x(form: Form, c: float, x: float, more: float) -> None:
    assert gamma(c, x, form) > gamma(c + more, x, form)
    assert gamma(c, x, form) > gamma(c, x + more, form) or c > 1


@given(st.floats(0.0, 1.0), st.floats(1e-6, 0.125))
def test_the_repaired_constant_is_the_smaller_one(c: float, x: float) -> None:
    assert gamma(c, x, REPAIRED) < gamma(c, x, PRINTED)


def test_the_largest_learning_rate_divides_by_smoothness_and_steps() -> None:
    x = largest_x(0.01)
    assert x is not None and largest_lr(0.01, smoothness=4.0, local_steps=5) == pytest.approx(x / 20)


def test_no_c_is_covered_beyond_the_largest_step() -> None:
    assert largest_c(0.0954) is None and largest_c(0.13, PRINTED) is None


def test_the_terms_of_the_bound() -> None:
    """x = 0.001 * 2 * 5 = 0.01, 90 x^2 + 3 = 3.009, sigma_L^2 = 9, sigma_G^2 = 1/4, V_1 = 9 + 30/4 = 16.5.

    Gamma = 0.485 - (0.05 + 0.01) 3.009 - 14.85e-4 = 0.302975
    start = 4 / (0.001 * 5 * 100) = 8
    drag  = 0.01 (5 * 9 / 100 + 15/4) = 0.042
    step  = 0.002 (9/20 + 15/4) = 0.0084
    drift = (0.05/5 + 0.002) 15e-4 * 16.5 + 2.5 * 0.99 * 1e-4/5 * 16.5 = 2.97e-4 + 8.1675e-4
    """
    found = bound(SETTING, CONSTANTS, rounds=100)
    assert found is not None
    terms = (found.start, found.drag, found.step, found.drift)
    assert terms == pytest.approx([v / 0.302975 for v in (8.0, 0.042, 0.0084, 11.1375e-4)])
    assert found.total == pytest.approx(8.0515137500 / 0.302975)


def test_the_printed_bound_has_smaller_numbers() -> None:
    """4c in place of 5c, eta L/2 in place of eta L: drag = 0.01 (4 * 9/100 + 15/4), step = 0.0042, Gamma = 0.31802."""
    found = bound(SETTING, CONSTANTS, rounds=100, form=PRINTED)
    assert found is not None
    assert (found.drag, found.step) == pytest.approx([0.0411 / 0.31802, 0.0042 / 0.31802])


@pytest.mark.parametrize(("c", "lr"), [(0.25, 1e-6), (0.01, 0.0071), (0.0, 0.0)])
def test_there_is_no_bound_outside(c: float, lr: float) -> None:
    assert bound(Setting(c, lr, 5, 20), CONSTANTS, rounds=100) is None


def test_the_floor_is_what_is_left_of_the_bound() -> None:
    """With T to infinity and eta to 0 the bound tends to c (5 sigma_L^2/(BU) + 15 sigma_G^2) / (1/2 - 33c/2)."""
    limit = bound(Setting(0.01, 1e-9, 5, 20), CONSTANTS, rounds=1e18)
    found = floor(0.01, CONSTANTS, local_steps=5, batch_size=20)
    assert limit is not None and found == pytest.approx(0.042 / 0.335)
    assert limit.total == pytest.approx(found, rel=1e-6)
    assert floor(0.0, CONSTANTS, 5, 20) == 0.0 and floor(1 / 33, CONSTANTS, 5, 20) is None


def test_the_bound_vanishes_only_with_c() -> None:
    """eta = 1/sqrt(T): the bound falls as 1/sqrt(T) for c = 0, and stays above its floor for c = 0.01."""

    def total(c: float, rounds: float) -> float:
        found = bound(Setting(c, 0.01 / rounds**0.5, 5, 20), CONSTANTS, rounds)
        assert found is not None
        return found.total

    assert total(0.0, 1e10) == pytest.approx(total(0.0, 1e6) / 100, rel=1e-3)
    assert total(0.01, 1e10) > (floor(0.01, CONSTANTS, 5, 20) or 0.0)
