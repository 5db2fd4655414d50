"""FedAvg, McMahan et al. 2017."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import Problem, close, line, thetas


def test_by_hand() -> None:
    """Round 1: g = (3, -4), theta = -1/2. Round 2: g = (3.375, -3.5), theta = -1/2 - 1/16."""
    assert thetas(line({"name": "fedavg"})) == pytest.approx([-0.5, -0.5625], abs=1e-6)


def test_uniform(problem: Problem) -> None:
    run, w = problem.run({"name": "fedavg"}), problem.start
    close(run.models[0], w, atol=0)
    for t, cohort in enumerate(run.cohorts):
        w = w + np.mean([problem.update(t, m, w) for m in cohort], axis=0)
        close(run.models[t + 1], w)


def test_by_samples(problem: Problem) -> None:
    run, w = problem.run({"name": "fedavg", "weighting": "samples", "server_lr": 1.5}), problem.start
    for t, cohort in enumerate(run.cohorts):
        w = w + 1.5 * np.average(
            [problem.update(t, m, w) for m in cohort], axis=0, weights=[problem.size(m) for m in cohort]
        )
        close(run.models[t + 1], w)
