"""FedDyn, Acar et al. 2021: direction = g + alpha (w - theta + h_m)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import Problem, close, line, thetas


def test_by_hand() -> None:
    """alpha = 1/2. Round 1 has FedProx's local steps, g = (2.5, -3) = h_m, h = -1/4, theta = -1/4 - 1/4.

    Round 2: client 1 along 1.5 w - 2.5, from -0.5 to 1.125 and 1.53125, g = 2.03125; client 2 along 2.5 w + 6.75, to
    -3.25 and -2.5625, g = -2.0625. h = -1/4 - 1/64, theta = -1/2 - 1/64 + h = -0.78125.
    """
    run = line({"name": "feddyn", "strength": 0.5})
    assert thetas(run) == pytest.approx([-0.5, -0.78125], abs=1e-6)
    assert run.records[-1].metrics["h_norm"] == pytest.approx(0.265625, abs=1e-6)


def test_rounds(problem: Problem) -> None:
    """h is the mean over all clients, absent ones too."""
    alpha = 0.4
    run, w = problem.run({"name": "feddyn", "strength": alpha}), problem.start
    h = np.zeros((problem.clients, len(w)))
    for t, cohort in enumerate(run.cohorts):
        sent = w
        updates = {
            m: problem.update(t, m, w, lambda grad, x, m=m, w=sent: grad(x) + alpha * (x - w + h[m])) for m in cohort
        }
        for m, g in updates.items():
            h[m] += g
        w = w + np.mean(list(updates.values()), axis=0) + h.mean(0)
        close(run.models[t + 1], w, atol=3e-5)
    close(run.server("correction", "h"), h.mean(0), atol=3e-5)
    close([run.kept(m, "h") for m in range(problem.clients)], h, atol=3e-5)


def test_strength_towards_zero(problem: Problem) -> None:
    """The local steps become FedAvg's; the server still adds h, so with everybody present the second step is
    mean g^1 + (mean g^0 + mean g^1) of plain local steps.
    """
    everyone = {"per_round": problem.clients}
    run, w = problem.run({"name": "feddyn", "strength": 1e-9}, clients=everyone), problem.start
    cohort = run.cohorts[0]
    assert len(cohort) == problem.clients
    first = np.mean([problem.update(0, m, w) for m in cohort], axis=0)
    close(run.models[1], w + 2 * first)
    w = w + 2 * first
    updates = np.array([problem.update(1, m, w) for m in run.cohorts[1]])
    close(run.models[2], w + updates.mean(0) + first + updates.sum(0) / problem.clients, atol=3e-5)


def test_strength_zero_has_fedavg_s_local_steps(problem: Problem) -> None:
    """To the bit: the same updates leave the clients in the first round."""
    run, fedavg = problem.run({"name": "feddyn", "strength": 0.0}), problem.run({})
    cohort = run.cohorts[0]
    step = fedavg.models[1] - problem.start
    close(run.models[1], problem.start + step * (1 + len(cohort) / problem.clients), atol=3e-6)
