"""DRAG's aggregate on SCAFFOLD's clients: the fixed point, where it attracts, and its noise floor."""

from __future__ import annotations

import numpy as np
import pytest

from dragfl.theory.fixed_points import divergence_boundary
from dragfl.theory.scaffold_fixed_point import noise_floor, stationary_distance
from dragfl.theory.simulation import Array, pull_to, simulate

CENTRES = np.random.default_rng(5).normal(size=(10, 2))


def squares(c: float | Array, s: float, d: int, rounds: int, runs: int = 4) -> Array:
    """|theta - theta*|^2 of every round and run, for ten clients with noise of variance 1 in every coordinate.

    The offsets of the clients are left out: SCAFFOLD removes them, as the first test shows.
    """
    models = simulate(pull_to(np.zeros((10, d))), np.zeros((runs, d)), 10, rounds, c=c, lr=s, noise=1.0, scaffold=True)
    return np.stack([(each**2).sum(1) for each in models])


@pytest.mark.parametrize("c", [0.1, 0.25, 0.4, 0.9])
def test_with_full_gradients_there_is_no_bias(c: float) -> None:
    """After the first round, which has no control variates yet, every update is s (mean b - theta): 0.7^t remains."""
    start = np.array([[4.0, -3.0]])
    models = np.stack(list(simulate(pull_to(CENTRES), start, 10, 60, c=c, lr=0.3, scaffold=True)))[:, 0]
    distance = np.linalg.norm(models - CENTRES.mean(0), axis=1)
    assert distance[-1] < 1e-7
    np.testing.assert_allclose(distance[11:31] / distance[10:30], 0.7, rtol=1e-6)


def test_the_offsets_of_the_clients_do_not_matter() -> None:
    """From the second round on, apart from the first reference: the same stationary distance with and without them."""
    settings = {"c": 0.2, "lr": 0.5, "noise": 1.0, "scaffold": True}
    start = np.zeros((200, 2))
    apart, together = (
        np.mean([((models - centres.mean(0)) ** 2).sum(1).mean() for models in runs][20:])
        for centres, runs in (
            (centres, simulate(pull_to(centres), start, 10, 300, **settings))  # type: ignore[arg-type]
            for centres in (30.0 * CENTRES, np.zeros((10, 2)))
        )
    )
    assert apart == pytest.approx(together, rel=0.03)


@pytest.mark.parametrize(("c", "s"), [(0.0, 0.5), (0.1, 0.1), (0.25, 0.1), (0.25, 0.5), (0.35, 0.5)])
def test_the_noise_floor_in_many_dimensions(c: float, s: float) -> None:
    """The map for d to infinity against a simulation with d = 200: within 4 %."""
    rounds = 150 + int(30 / s)
    seen = squares(c, s, 200, rounds)[rounds // 2 :].mean() / 200
    assert seen == pytest.approx(stationary_distance(c, s, 10), rel=0.04)


@pytest.mark.parametrize("clients", [2, 10, 40])
@pytest.mark.parametrize("c", [0.05, 0.25, 0.4])
@pytest.mark.parametrize("scaffold", [True, False])
def test_for_small_steps_the_floor_is_the_formula(clients: int, c: float, scaffold: bool) -> None:
    s = 1e-3
    ratio = stationary_distance(c, s, clients, scaffold=scaffold) * clients * (2 - s) / s
    assert ratio == pytest.approx(noise_floor(c, clients, scaffold=scaffold), rel=5e-3)


def test_the_floor_grows_with_c() -> None:
    floors = [noise_floor(c, 10) for c in np.linspace(0.0, 0.5, 51)]
    assert floors[0] == 1.0
    assert (np.diff(floors) > 0).all()


def test_on_a_line_the_fixed_point_repels_above_a_quarter() -> None:
    """1 % above, A = 4c - 1 = 0.01 and the distance grows by 1 + s A a round once it is larger than the noise."""
    c = np.repeat([0.2475, 0.2525], 4)
    end = squares(c, 0.5, 1, 4000, runs=8)[-1]
    assert (end[:4] < 1e5).all()
    assert (end[4:] > 1e9).all()


@pytest.mark.parametrize("d", [2, 10])
def test_in_more_dimensions_it_attracts_up_to_the_boundary_of_drag(d: int) -> None:
    """s = 0.5: (4k - 1 + sqrt(1 + 8k)) / (16k) = 0.4045, within 1 % in the plane; far from 1/4 and from 0.26."""
    boundary = divergence_boundary(0.5)
    c = np.repeat([0.3, 0.99 * boundary, 1.01 * boundary if d == 2 else 1.1 * boundary], 8)
    end = squares(c, 0.5, d, 2500, runs=24)[-1].reshape(3, 8)
    lost = (end > 1e118).mean(1)
    assert lost[0] == 0.0
    assert lost[1] < 0.5 < lost[2]


def test_close_to_the_boundary_the_map_does_not_settle() -> None:
    assert np.isnan(stationary_distance(0.45, 0.5, 10))
