"""FedProx, Li et al. 2020: direction = g + mu (w - theta)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import Problem, close, line, thetas


def test_by_hand() -> None:
    """mu = 1/2. Client 1 from 0: to 2, then direction -2 + 1 = -1, to 2.5. Client 2: to -4, then 0 - 2, to -3.

    theta = -1/4. From there client 1 goes to 1.875 and, with -2.125 + 1.0625, to 2.40625; client 2 to -4 and, with
    -1.875, to -3.0625. The mean of 2.65625 and -2.8125 is -0.078125.
    """
    assert thetas(line({"name": "fedprox", "mu": 0.5})) == pytest.approx([-0.25, -0.328125], abs=1e-6)


def test_rounds(problem: Problem) -> None:
    mu = 0.4
    run, w = problem.run({"name": "fedprox", "mu": mu}), problem.start
    for t, cohort in enumerate(run.cohorts):
        sent = w
        w = w + np.mean([problem.update(t, m, w, lambda g, x, w=sent: g(x) + mu * (x - w)) for m in cohort], axis=0)
        close(run.models[t + 1], w)


def test_one_local_step_is_fedavg(problem: Problem) -> None:
    """The pull is zero where a client starts."""
    one = {"local_steps": 1}
    close(problem.run({"name": "fedprox", "mu": 7.0}, clients=one).models, problem.run({}, clients=one).models, atol=0)
    two = {"local_steps": 2}
    other = problem.run({"name": "fedprox", "mu": 7.0}, clients=two).models[-1]
    assert np.abs(other - problem.run({}, clients=two).models[-1]).max() > 1e-3
