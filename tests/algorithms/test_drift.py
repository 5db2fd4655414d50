"""Clients with a known common optimum and several local steps: who reaches it, and where the others go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from examples.quadratic import LOCAL, START, THREE, Array, Objective, experiment, fedavg_point, optimum, path

from tests.algorithms.problems import close

BEST = optimum(THREE)
RESTS = fedavg_point(THREE, LOCAL["lr"], LOCAL["local_steps"])
PAIR: list[Objective] = [([[1.0]], [1.0]), ([[1.0]], [-1.0])]


def plane(algorithm: Mapping[str, Any], rounds: int, **local: Any) -> Array:
    return path(experiment(THREE, START, algorithm, clients={**LOCAL, **local}, rounds=rounds))


def pair(c: Any, start: float = -2.0, alpha: float = 1.0, rounds: int = 100) -> Array:
    """DRAG with the clients (theta - 1)^2 / 2 and (theta + 1)^2 / 2."""
    algorithm = {"name": "drag", "c": c, "alpha": alpha}
    return path(experiment(PAIR, [start], algorithm, clients={"local_steps": 5, "lr": 0.05}, rounds=rounds))[:, 0]


def test_the_optimum() -> None:
    """The gradients of the three clients sum to zero there, though none of them is zero."""
    gradients = np.array([np.asarray(A) @ (BEST - b) for A, b in THREE])
    close(gradients.sum(0), [0.0, 0.0], atol=1e-12)
    assert np.linalg.norm(gradients, axis=1).min() > 0.5


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        ({"name": "scaffold"}, 40),
        ({"name": "scaffold", "option": "I"}, 40),
        ({"name": "auto_scaffold"}, 40),
        ({"name": "feddyn", "strength": 0.5}, 60),
        ({"name": "feddc", "strength": 0.1}, 60),
        ({"name": "mime", "momentum": 0.0}, 25),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_these_reach_it(algorithm: dict[str, Any], rounds: int) -> None:
    close(plane(algorithm, rounds)[-1], BEST)


@pytest.mark.parametrize(("steps", "lr"), [(2, 0.3), (10, 0.1), (30, 0.1)])
def test_fedavg_goes_to_its_own_point(steps: int, lr: float) -> None:
    """U local steps take a client from theta to b_m + (I - eta A_m)^U (theta - b_m), so g_m = -K_m (theta - b_m) with
    K_m = I - (I - eta A_m)^U, and mean g_m = 0 at theta = (sum K_m)^-1 sum K_m b_m. With eta U small K_m is near
    eta U A_m and the point near the optimum; with eta U large K_m is near I and it is the mean of the b_m.
    """
    rests = fedavg_point(THREE, lr, steps)
    rounds = 25 if steps > 2 else 60
    close(plane({"name": "fedavg"}, rounds, local_steps=steps, lr=lr)[-1], rests, atol=1e-4)
    assert np.linalg.norm(rests - BEST) > 0.02


@pytest.mark.parametrize("algorithm", [{"name": "fedavgm", "beta": 0.5}, {"name": "fedadam", "server_lr": 0.1}])
def test_a_server_optimiser_rests_at_fedavg_s_point(algorithm: dict[str, Any]) -> None:
    """It is still the mean update that must vanish."""
    settings = {} if algorithm["name"] == "fedavgm" else {"tau": 0.1, "beta1": 0.5}
    close(plane({**algorithm, **settings}, 90)[-1], RESTS, atol=1e-3)


def test_fedavg_s_point_between_its_limits() -> None:
    assert np.linalg.norm(RESTS - BEST) == pytest.approx(0.27, abs=5e-3)
    close(fedavg_point(THREE, 0.1, 1), BEST, atol=1e-12)
    close(fedavg_point(THREE, 0.1, 10_000), np.mean([b for _, b in THREE], axis=0), atol=1e-9)
    away = [np.linalg.norm(fedavg_point(THREE, 0.1, steps) - BEST) for steps in (1, 2, 5, 10, 30)]
    assert away == sorted(away)


def test_one_local_step_has_no_drift() -> None:
    close(plane({"name": "fedavg"}, 100, local_steps=1, lr=0.8)[-1], BEST)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("c", [0.05, 0.1, 0.2])
def test_drag_rests_beside_the_optimum(c: float, alpha: float) -> None:
    """From theta < -1 the reference is positive and stays so. For -1 < theta < 1 client 1 agrees with it and client 2
    is opposed, lambda = 2 c, v_2 = (1 - 4 c) g_2. With g_1 = k (1 - theta), g_2 = -k (1 + theta) the step is zero where
    1 - theta = (1 - 4 c) (1 + theta), at theta = 2 c / (1 - 2 c); the optimum is 0. From the other side, minus that.

    There the step is so small that its rounding error may turn the reference, and then it sets out for the mirror
    point: a later round is no better a check than this one.
    """
    rests = 2 * c / (1 - 2 * c)
    assert pair(c, alpha=alpha, rounds=45)[-1] == pytest.approx(rests, abs=5e-3)
    assert pair(c, alpha=alpha, rounds=45, start=2.0)[-1] == pytest.approx(-rests, abs=5e-3)


def test_drag_at_a_quarter_and_above() -> None:
    """c = 1/4 silences the opposed client, which leaves the other's optimum; beyond it, it pushes forward for ever."""
    assert pair(0.25, rounds=60)[-1] == pytest.approx(1.0, abs=5e-3)
    beyond = pair(0.3, rounds=60)
    assert (np.diff(beyond) > 0).all()
    assert beyond[-1] > 5


def test_drag_without_pull_is_unbiased_here() -> None:
    """Equal Hessians: FedAvg's own point is the optimum."""
    assert pair(0.0, rounds=60)[-1] == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_drag_with_a_pull_that_ends_reaches_it(kind: str, alpha: float) -> None:
    thetas = pair({"kind": kind, "start": 0.2, "end": 0.0, "rounds": 40}, alpha=alpha, rounds=85)
    assert thetas[:40].max() > 0.2, "on its way it is drawn aside"
    assert thetas[-1] == pytest.approx(0.0, abs=1e-5)


def test_drag_with_a_pull_that_fades_closes_in() -> None:
    """inverse_sqrt: theta stays within the resting points +- 2 c_t / (1 - 2 c_t) of the present c, once it is there."""
    thetas = pair({"kind": "inverse_sqrt", "start": 0.2, "period": 0.1}, rounds=150)
    c = 0.2 / np.sqrt(1.0 + np.arange(141) / 0.1)  # of ten rounds before: it follows with a lag
    assert (np.abs(thetas[20:]) <= (2 * c / (1 - 2 * c))[10:]).all()
    assert np.abs(thetas[-30:]).max() < 0.012


def test_in_the_plane_drag_circles() -> None:
    """The reference cannot turn at once, and no client's update vanishes: it comes to no rest, and goes round FedAvg's
    own point at a distance that grows with c.
    """
    reach = []
    for c in (0.05, 0.1):
        points = plane({"name": "drag", "c": c, "alpha": 0.5}, 90)[40:]
        assert np.linalg.norm(np.diff(points, axis=0), axis=1).min() > 0.01
        away = np.linalg.norm(points - RESTS, axis=1)
        assert away.min() > 0.5 * away.max()
        angles = np.unwrap(np.arctan2(*(points - RESTS).T))
        assert abs(angles[-1] - angles[0]) > 4 * np.pi
        reach.append(away.max())
    assert 1.5 < reach[1] / reach[0] < 3.0


def test_in_the_plane_a_pull_that_ends_leads_to_fedavg_s_point() -> None:
    c = {"kind": "linear", "start": 0.1, "end": 0.0, "rounds": 30}
    close(plane({"name": "drag", "c": c, "alpha": 0.5}, 80)[-1], RESTS, atol=1e-4)


@pytest.mark.parametrize("correction", [{"name": "scaffold"}, {"name": "mime", "momentum": 0.0}])
def test_corrected_clients_take_drag_s_bias_away(correction: dict[str, Any]) -> None:
    """Where corrected clients stand still no update is left to drag, so a constant c does no harm."""
    parts = {"correction": correction, "aggregate": {"name": "drag", "c": 0.1, "alpha": 0.5}}
    close(plane(parts, 60)[-1], BEST, atol=1e-4)
