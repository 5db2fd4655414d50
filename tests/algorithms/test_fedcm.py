"""FedCM, Xu et al. 2021: direction = a g + (1 - a) D."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import STEPS, Problem, close, line, thetas


def test_by_hand() -> None:
    """a = 1/2. D = 0: client 1 along (w - 4) / 2, to 1 and 7/4; client 2 along w + 4, to -2 and -3; theta = -5/8 and,
    with U eta = 1, D = 5/8.

    Round 2: client 1 along w / 2 - 1.6875, to 0.375 and 1.125; client 2 along w + 4.3125, to -2.46875 and -3.390625.
    theta = -0.625 + (1.75 - 2.765625) / 2.
    """
    assert thetas(line({"name": "fedcm", "a": 0.5})) == pytest.approx([-0.625, -1.1328125], abs=1e-6)


def test_rounds(problem: Problem) -> None:
    """D is the mean direction of the last round, by the local rate of that round."""
    a = 0.3
    run, w = problem.run({"name": "fedcm", "a": a}), problem.start
    D = np.zeros_like(w)
    for t, cohort in enumerate(run.cohorts):
        last = D
        step = np.mean([problem.update(t, m, w, lambda g, x, D=last: a * g(x) + (1 - a) * D) for m in cohort], axis=0)
        w, D = w + step, -step / (problem.lr(t) * STEPS)
        close(run.models[t + 1], w)
    close(run.server("correction", "direction"), D)


def test_a_one_is_fedavg(problem: Problem) -> None:
    close(problem.run({"name": "fedcm", "a": 1.0}).models, problem.run({}).models, atol=0)
