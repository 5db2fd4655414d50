"""FedDC, Gao et al. 2022: direction = g + alpha (w - theta + h_m) + s - s_m."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import STEPS, Problem, close, line, thetas


def test_by_hand() -> None:
    """alpha = 1/2, U eta = 1. Round 1 has FedProx's local steps: g = (2.5, -3) = h_m, s_m = -g_m, s = 1/4,
    theta = -1/4 - 1/4.

    Round 2: client 1 along 1.5 w + 0.25, from -0.5 to -0.25 and -0.1875, g = 0.3125; client 2 along 2.5 w + 4, to
    -1.875 and -1.53125, g = -1.03125. mean g = -0.359375, mean h = -0.609375, theta = -0.5 - 0.96875.
    s_1 = -2.5 - 0.25 - 0.3125, s_2 = 3 - 0.25 + 1.03125, s = their mean 0.359375.
    """
    run = line({"name": "feddc", "strength": 0.5})
    assert thetas(run) == pytest.approx([-0.5, -1.46875], abs=1e-6)
    close([run.kept(m, "s")[0] for m in (0, 1)], [-3.0625, 3.78125])
    close(run.server("correction", "s"), [0.359375])


def test_rounds(problem: Problem) -> None:
    alpha = 0.3
    run, w = problem.run({"name": "feddc", "strength": alpha}), problem.start
    h, mine, s = np.zeros((problem.clients, len(w))), np.zeros((problem.clients, len(w))), np.zeros_like(w)
    for t, cohort in enumerate(run.cohorts):
        sent, updates, change = w, [], np.zeros_like(w)
        for m in cohort:
            pull = alpha * (h[m] - sent) + s - mine[m]
            g = problem.update(t, m, sent, lambda grad, x, pull=pull: grad(x) + alpha * x + pull)
            new = mine[m] - s - g / (STEPS * problem.lr(t))
            h[m], change, mine[m] = h[m] + g, change + new - mine[m], new
            updates.append(g)
        w, s = w + np.mean(updates, axis=0) + h.mean(0), s + change / problem.clients
        close(run.models[t + 1], w, atol=3e-5)
    close(run.server("correction", "s"), s, atol=1e-4)
    close(run.server("correction", "h"), h.mean(0), atol=3e-5)
    close([run.kept(m, "s") for m in range(problem.clients)], mine, atol=1e-4)


def test_strength_zero_has_scaffold_s_local_steps(problem: Problem) -> None:
    """s, s_m are then SCAFFOLD's c, c_m of option II. From one model, the two differ by the mean drift that FedDC's
    server adds: after the first round theta_FedDC - theta_SCAFFOLD = sum g / M.
    """
    feddc, scaffold = problem.run({"name": "feddc", "strength": 0.0}), problem.run({"name": "scaffold"})
    cohort = feddc.cohorts[0]
    step = scaffold.models[1] - problem.start
    close(feddc.models[1], problem.start + step * (1 + len(cohort) / problem.clients), atol=3e-6)
    w, t = feddc.models[1], 1
    sums = {m: problem.update(0, m, problem.start) / (STEPS * problem.lr(0)) for m in cohort}
    s, mine = -sum(sums.values()) / problem.clients, {m: -sums.get(m, 0.0) for m in range(problem.clients)}
    g = [problem.update(t, m, w, lambda grad, x, m=m: grad(x) - mine[m] + s) for m in feddc.cohorts[t]]
    h = (feddc.models[1] - scaffold.models[1]) + np.sum(g, axis=0) / problem.clients
    close(feddc.models[2], w + np.mean(g, axis=0) + h, atol=5e-5)
