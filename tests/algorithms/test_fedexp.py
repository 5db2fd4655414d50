"""FedExP, Jhunjhunwala et al. 2023: eta_g = max(1, mean |g_m|^2 / (2 (|mean g|^2 + eps)))."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import Problem, close, line, thetas


def test_by_hand() -> None:
    """g = (3, -4): mean |g|^2 = 12.5, |mean g|^2 = 1/4, so with eps = 3/4 eta_g = 6.25 and theta = -3.125.

    From there g = (5.34375, -0.875): mean |g|^2 = 14.66064453125, mean g = 2.234375, |.|^2 = 4.992431640625,
    eta_g = 14.66064453125 / 11.48486328125 = 1.276519...
    """
    run = line({"name": "fedexp", "eps": 0.75})
    second = 14.66064453125 / 11.48486328125
    assert thetas(run) == pytest.approx([-3.125, -3.125 + second * 2.234375], abs=1e-5)
    assert [record.metrics["server_lr"] for record in run.records] == pytest.approx([6.25, second], abs=1e-5)
    assert run.own[1][0] == pytest.approx(-1.5625, abs=1e-6), "the mean of the last two"
    capped = line({"name": "fedexp", "eps": 0.75, "cap": 2.0})
    assert thetas(capped)[0] == pytest.approx(-1.0, abs=1e-6)


def test_rounds(problem: Problem) -> None:
    eps, rates = 1e-2, []
    run, w = problem.run({"name": "fedexp", "eps": eps}), problem.start
    for t, cohort in enumerate(run.cohorts):
        g = np.array([problem.update(t, m, w) for m in cohort])
        rates.append(max(1.0, (g**2).sum(1).mean() / (2 * ((g.mean(0) ** 2).sum() + eps))))
        w, before = w + rates[-1] * g.mean(0), w
        close(run.models[t + 1], w, atol=3e-5)
        close(run.own[t + 1], (w + before) / 2, atol=3e-5)
    assert max(rates) > 1.0, "otherwise this is FedAvg"


def test_agreeing_clients_step_as_fedavg() -> None:
    """Equal updates: eta_g = |g|^2 / (2 |g|^2 + 2 eps) < 1, so it is 1."""
    run = line({"name": "fedexp"}, clients={"total": 1})
    assert run.records[0].metrics["server_lr"] == 1.0
