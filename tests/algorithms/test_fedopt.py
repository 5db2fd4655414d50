"""Server optimisers: FedAvgM, Hsu et al. 2019; FedAdagrad, FedAdam, FedYogi, Reddi et al. 2021."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import Array, Problem, close, line, thetas


def test_momentum_by_hand() -> None:
    """beta = 1/2: m = -1/2, theta = -1/2; then Delta = -1/16, m = -1/4 - 1/16, theta = -1/2 - 5/16."""
    assert thetas(line({"name": "fedavgm", "beta": 0.5})) == pytest.approx([-0.5, -0.8125], abs=1e-6)


def test_adaptive_by_hand() -> None:
    """Delta = -1/2 in the first round; tau = 1/2, so v = 1/4 at first and eta_g m / (sqrt(v) + tau) is

    Adam, beta_1 = beta_2 = 1/2:   m = -1/4, v = 1/8 + 1/8 = 1/4, 2 m / 1 = -1/2
    Yogi, the same betas:          m = -1/4, v = 1/4 - 0 since sign(v - Delta^2) = 0, -1/2 again
    Adagrad, beta_1 = 0:           m = -1/2, v = 1/4 + 1/4, -1 / (sqrt(1/2) + 1/2)
    """
    adam = {"server_lr": 2.0, "beta1": 0.5, "beta2": 0.5, "tau": 0.5}
    assert thetas(line({"name": "fedadam", **adam}))[0] == pytest.approx(-0.5, abs=1e-6)
    assert thetas(line({"name": "fedyogi", **adam}))[0] == pytest.approx(-0.5, abs=1e-6)
    adagrad = thetas(line({"name": "fedadagrad", "server_lr": 2.0, "tau": 0.5}))[0]
    assert adagrad == pytest.approx(-1.0 / (0.5**0.5 + 0.5), abs=1e-6)


def test_momentum(problem: Problem) -> None:
    run, w = problem.run({"name": "fedavgm", "beta": 0.8, "server_lr": 0.5}), problem.start
    m = np.zeros_like(w)
    for t, cohort in enumerate(run.cohorts):
        m = 0.8 * m + np.mean([problem.update(t, k, w) for k in cohort], axis=0)
        w = w + 0.5 * m
        close(run.models[t + 1], w)


def test_momentum_zero_is_fedavg(problem: Problem) -> None:
    close(problem.run({"name": "fedavgm", "beta": 0.0}).models, problem.run({}).models, atol=0)


def adagrad(v: Array, step: Array) -> Array:
    return v + step**2


def adam(v: Array, step: Array) -> Array:
    return 0.95 * v + 0.05 * step**2


def yogi(v: Array, step: Array) -> Array:
    return v - 0.05 * step**2 * np.sign(v - step**2)


@pytest.mark.parametrize("rule", [adagrad, adam, yogi])
def test_adaptive(problem: Problem, rule: object) -> None:
    """v starts at tau^2; there is no bias correction."""
    tau, beta1, lr = 0.02, 0.6, 0.05
    name = rule.__name__  # type: ignore[attr-defined]
    settings = {"server_lr": lr, "beta1": beta1, "tau": tau} | ({} if name == "adagrad" else {"beta2": 0.95})
    run, w = problem.run({"name": f"fed{name}", **settings}), problem.start
    m, v = np.zeros_like(w), np.full_like(w, tau**2)
    for t, cohort in enumerate(run.cohorts):
        step = np.mean([problem.update(t, k, w) for k in cohort], axis=0)
        m, v = beta1 * m + (1 - beta1) * step, rule(v, step)  # type: ignore[operator]
        w = w + lr * m / (np.sqrt(v) + tau)
        close(run.models[t + 1], w)
    close(run.server("server", "v"), v)
