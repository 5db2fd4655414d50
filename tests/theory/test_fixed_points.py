"""Where DRAG goes on quadratics: the formulas against simulations."""

from __future__ import annotations

import numpy as np
import pytest

from dragfl.errors import SettingError
from dragfl.theory.fixed_points import (
    circle_radius,
    circle_turn,
    divergence_boundary,
    line_fixed_point,
    local_fraction,
    tilt_factor,
)
from dragfl.theory.simulation import Array, Gradient, drag_steps, pull_to, simulate, two_pairs

PAIR = np.array([[-1.0], [1.0]])
LOST = 1e59  # the simulator holds a model that is longer than 1e60


def last(gradient: Gradient, start: Array, clients: int, rounds: int, **settings: object) -> Array:
    *_, models = simulate(gradient, start, clients, rounds, **settings)  # type: ignore[arg-type]
    return models


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_two_clients_on_a_line(alpha: float) -> None:
    """2c/(1-2c) on the side to which the model moved; mirrored for a start above."""
    c = np.array([0.0, 0.05, 0.1, 0.2, 0.24])
    ends = last(pull_to(PAIR), np.full((5, 1), -3.0), 2, 600, c=c, lr=0.1, alpha=alpha)
    np.testing.assert_allclose(ends[:, 0], [line_fixed_point(each) for each in c], atol=1e-3)
    mirrored = last(pull_to(PAIR), np.full((5, 1), 3.0), 2, 600, c=c, lr=0.1, alpha=alpha)
    np.testing.assert_allclose(mirrored, -ends, atol=1e-9)


@pytest.mark.parametrize("centres", [PAIR, [[-1.0], [0.2], [0.8]], [[-5.0], [1.0], [1.0], [1.0], [2.0]]])
def test_on_a_line_the_boundary_is_a_quarter_for_any_clients(centres: Array) -> None:
    """1 % below every run stays within the clients; 1 % above every run is lost. 4c - 1 = 0.01: slow growth."""
    clients = np.asarray(centres)
    c = np.repeat([0.2475, 0.2525], 4)
    starts = np.tile([-9.0, -0.3, 0.4, 8.0], 2)[:, None]
    ends = last(pull_to(clients), starts, len(clients), 5000, c=c, lr=0.8)
    assert (np.abs(ends[:4]) <= np.abs(clients).max()).all()
    assert (np.abs(ends[4:]) > 1e6).all()


@pytest.mark.parametrize(
    ("angle", "s", "alpha"),
    [(0, 0.3, 1.0), (45, 0.3, 1.0), (90, 0.3, 1.0), (60, 0.5, 0.5), (60, 1.0, 1.0), (60, 0.5, 0.2)],
)
def test_in_the_plane_the_boundary_is_the_formula_within_one_percent(angle: float, s: float, alpha: float) -> None:
    """Random starts near the clients: 1 % below the boundary fewer than half are lost, 1 % above more than half."""
    boundary, runs = divergence_boundary(s, alpha), 8
    c = np.repeat([0.99 * boundary, 1.01 * boundary], runs)
    starts = np.random.default_rng(0).normal(0.0, 3.0, (2 * runs, 2))
    ends = last(pull_to(two_pairs(np.radians(angle))), starts, 4, 6000, c=c, lr=s, alpha=alpha)
    lost = (np.linalg.norm(ends, axis=1) > LOST).reshape(2, runs).mean(1)
    assert lost[0] < 0.5 < lost[1]


@pytest.mark.parametrize("c", [0.3, 0.4, 0.45, 0.6])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_a_tilted_reference_turns_by_the_factor(c: float, alpha: float) -> None:
    """One client at 0, and a model that moves straight away from it with a small angle to its reference.

    The first round has the reference of the mean update, which points back; so the run is started by hand: the
    model goes from (1, 0) with r along (1, 1e-9), and the ratio |r| / |theta| is let settle.
    """
    s, angle = 0.3, 1e-9
    theta, r = np.array([[1.0, 0.0]]), np.array([[1.0, angle]])
    angles = []
    for _ in range(40):
        step = drag_steps(-s * theta[:, None], r, c)
        theta, r = theta + step, (1.0 - alpha) * r + alpha * step
        angles.append(float(r[0, 1] / r[0, 0] - theta[0, 1] / theta[0, 0]))
        scale = np.linalg.norm(theta)
        theta, r = theta / scale, r / scale
        if abs(angles[-1]) > 1e-3:
            break
    assert angles[-1] / angles[-2] == pytest.approx(tilt_factor(c, s, alpha), rel=1e-3)
    assert (tilt_factor(c, s, alpha) > 1.0) == (c < divergence_boundary(s, alpha))


@pytest.mark.parametrize("s", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_at_the_boundary_the_factor_is_one(s: float, alpha: float) -> None:
    assert tilt_factor(divergence_boundary(s, alpha), s, alpha) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("s", "alpha"), [(0.3, 1.0), (0.05, 1.0), (0.3, 0.5), (0.8, 0.2)])
@pytest.mark.parametrize("dim", [2, 5])
def test_for_small_c_the_model_circles_at_the_radius(s: float, alpha: float, dim: int) -> None:
    """Clients at plus and minus every axis, c = 0.002: radius and turn within 1 %."""
    clients, c = np.concatenate([np.eye(dim), -np.eye(dim)]), 0.002
    start = c * np.random.default_rng(1).normal(size=(4, dim))
    tail = np.stack(list(simulate(pull_to(clients), start, 2 * dim, 1500, c=c, lr=s, alpha=alpha))[-400:])
    radius = np.linalg.norm(tail, axis=2)
    np.testing.assert_allclose(radius.mean(0), circle_radius(c, s, alpha, dim), rtol=0.01)
    cosine = (tail[1:] * tail[:-1]).sum(2) / (radius[1:] * radius[:-1])
    np.testing.assert_allclose(np.arccos(cosine).mean(0), circle_turn(s, alpha), rtol=0.01)


def test_local_steps_enter_through_the_fraction_alone() -> None:
    """Five steps of 0.1 move a client by 0.40951 of its way, so a run is that of one step of 0.40951."""
    clients = two_pairs(1.0)
    start, s = np.array([[3.0, 1.0]]), local_fraction(0.1, 5)
    five = list(simulate(pull_to(clients), start, 4, 50, c=0.2, lr=0.1, steps=5))
    one = list(simulate(pull_to(clients), start, 4, 50, c=0.2, lr=s))
    np.testing.assert_allclose(five, one, atol=1e-9)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match=r"line_fixed_point.c: 1.5 is outside \[0, 1\]"):
        line_fixed_point(1.5)
    with pytest.raises(SettingError, match=r"divergence_boundary.s: 0 is outside \(0, 1\]"):
        divergence_boundary(0)
    with pytest.raises(SettingError, match=r"tilt_factor.c: 0.25 is outside \(0.25, 1\]"):
        tilt_factor(0.25, 0.5)
