"""AdaBest, Varno et al. 2022: direction = g - h_m, and a server that goes on from the average of clients."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import Problem, Quadratic, close, experiment, line, thetas, watch


def test_by_hand() -> None:
    """mu = beta = 1/2. Round 1: avg = -1/2, theta = -1/2 + (-1/2 - 0) / 2 = -3/4, since the average before the first
    is theta^0 = 0; h_m = -g_m / 2 = (-3/2, 2).

    Round 2: client 1 steps along w - 5/2, so g = 3/4 (5/2 + 3/4) = 2.4375; client 2 along 2 w + 6, g = -3 + 3/4.
    avg = -3/4 + 0.09375 = -0.65625, theta = avg + (avg + 1/2) / 2.
    """
    run = line({"name": "adabest", "mu": 0.5, "beta": 0.5})
    assert thetas(run) == pytest.approx([-0.75, -0.734375], abs=1e-6)
    close([w[0] for w in run.own[1:]], [-0.5, -0.65625])


def test_rounds(problem: Problem) -> None:
    """A client that was away for k rounds divides its estimate by k."""
    mu, beta = 0.3, 0.6
    run, w = problem.run({"name": "adabest", "mu": mu, "beta": beta}), problem.start
    h, last = np.zeros((problem.clients, len(w))), {}
    average = w  # avg^(-1) = theta^0
    for t, cohort in enumerate(run.cohorts):
        updates = [problem.update(t, m, w, lambda grad, x, m=m: grad(x) - h[m]) for m in cohort]
        for m, g in zip(cohort, updates, strict=True):
            h[m] = (h[m] / (t - last[m]) if m in last else 0.0) - mu * g
            last[m] = t
        average, before = w + np.mean(updates, axis=0), average
        w = average + beta * (average - before)
        close(run.models[t + 1], w)
        close(run.own[t + 1], average)
    close([run.kept(m, "h") for m in range(problem.clients)], h)


def test_age_division() -> None:
    """Client 0 of three rounds apart: h = -mu g_first / 3 - mu g_second. Present each time, it would divide by 1."""
    problem = Quadratic(history=((0, 1), (1, 2), (1, 3), (0, 2)))
    run = problem.run({"name": "adabest", "mu": 0.2, "beta": 0.0})
    first = problem.update(0, 0, run.models[0])
    second = problem.update(3, 0, run.models[3], lambda grad, x: grad(x) + 0.2 * first)
    close(run.kept(0, "h"), -0.2 * first / 3 - 0.2 * second)
    assert float(run.kept(0, "seen")) == 4


def test_the_first_round_starts_from_theta_0(problem: Problem) -> None:
    """theta^1 = avg + beta (avg - theta^0), not (1 + beta) avg."""
    run, fedavg = (problem.run(a) for a in ({"name": "adabest", "beta": 0.8}, {"name": "fedavg"}))
    close(run.models[1], fedavg.models[1] + 0.8 * (fedavg.models[1] - problem.start))


def test_without_mu_and_beta_it_is_fedavg(problem: Problem) -> None:
    close(problem.run({"name": "adabest", "mu": 0.0, "beta": 0.0}).models, problem.run({}).models, atol=1e-6)


@pytest.mark.parametrize(("mu", "beta"), [(0.6, 0.0), (0.6, 0.5)])
def test_where_it_settles(mu: float, beta: float) -> None:
    """At rest every g_m = 0, so each client's gradient equals its h_m. Summed over rounds, h_m = -mu sum g_m, and the
    server's rule telescopes to theta - theta^0 = sum mean g + beta (theta - theta^0). Hence the mean gradient at rest
    is -kappa (theta - theta^0) with kappa = mu (1 - beta), or

        theta = (H + kappa I)^-1 (mean A_m b_m + kappa theta^0),    H = mean A_m:

    AdaBest stays tied to where it began, more loosely the smaller kappa.
    """
    problem = Quadratic()
    spec = experiment(
        problem.objectives,
        problem.start,
        {"name": "adabest", "mu": mu, "beta": beta},
        clients={"local_steps": 5, "lr": 0.1},
        rounds=80,
    )
    A, b = (np.array(part) for part in zip(*problem.objectives, strict=True))
    kappa = mu * (1 - beta)
    rest = np.linalg.solve(A.mean(0) + kappa * np.eye(2), np.einsum("mij,mj->i", A, b) / len(A) + kappa * problem.start)
    close(watch(spec).models[-1], rest, atol=1e-4)
    assert np.abs(rest - problem.best).max() > 0.05
