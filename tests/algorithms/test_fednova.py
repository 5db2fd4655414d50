"""FedNova, Wang et al. 2020: Delta = tau_eff sum p_m g_m / |a_m|_1."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dragfl.aggregates import FedNova
from dragfl.types import Updates
from tests.aggregates.drive import run_rule
from tests.algorithms.problems import Problem, close, line, thetas

UNEQUAL = {"local_steps": [1, 8]}


def test_by_hand() -> None:
    """Client 1 makes one step, g = 2; client 2 two, g = -4; so each moves 2 a step, tau_eff = 3/2 and
    Delta = 3/2 (2 / 1 - 4 / 2) / 2 = 0: theta stays at 0, where FedAvg goes to (2 - 4) / 2 = -1.
    """
    for seed in range(20):
        run = line({"name": "fednova"}, clients={"local_steps": [1, 2]}, seed=seed)
        if run.steps(0) == {0: 1, 1: 2}:
            break
    assert run.steps(0) == {0: 1, 1: 2}
    assert thetas(run) == pytest.approx([0.0, 0.0], abs=1e-6)
    assert thetas(line({}, clients={"local_steps": [1, 2]}, seed=seed))[0] == pytest.approx(-1.0, abs=1e-6)
    assert run.records[0].metrics["effective_steps"] == 1.5


def test_weights_by_samples_are_the_default() -> None:
    """One sample, one step, g = 2; three samples, two steps, g = -4. p = 1/4, 3/4, tau_eff = 1/4 + 2 * 3/4 = 7/4 and
    Delta = 7/4 (1/4 * 2 / 1 - 3/4 * 4 / 2) = -7/4. With equal weights tau_eff = 3/2 and Delta = 0.
    """
    made = torch.tensor([1, 2])
    delta = torch.tensor([[2.0], [-4.0]])
    cohort = Updates(delta, torch.tensor([1.0, 3.0]).double(), torch.arange(2), made=made)
    by_samples, uniform = run_rule(FedNova(), cohort), run_rule(FedNova(weighting="uniform"), cohort)
    assert by_samples.step.tolist() == [-1.75] and by_samples.metrics == {"effective_steps": 1.75}
    assert uniform.step.tolist() == [0.0] and uniform.metrics == {"effective_steps": 1.5}


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_unequal_steps(problem: Problem, weighting: str) -> None:
    run, w = problem.run({"name": "fednova", "weighting": weighting}, clients=UNEQUAL), problem.start
    assert len({steps for t in range(len(run.cohorts)) for steps in run.steps(t).values()}) > 1
    for t, cohort in enumerate(run.cohorts):
        tau = run.steps(t)
        p = np.array([problem.size(m) if weighting == "samples" else 1.0 for m in cohort])
        p = p / p.sum()
        normalised = sum(q * problem.update(t, m, w, steps=tau[m]) / tau[m] for q, m in zip(p, cohort, strict=True))
        w = w + sum(q * tau[m] for q, m in zip(p, cohort, strict=True)) * normalised
        close(run.models[t + 1], w)


def test_with_a_proximal_term(problem: Problem) -> None:
    """Under FedProx's correction |a|_1 = (1 - (1 - eta mu)^tau) / (eta mu), the weight of all gradients in g_m."""
    mu = 0.5
    parts = {
        "correction": {"name": "prox", "mu": mu},
        "aggregate": {"name": "fednova", "prox": mu, "weighting": "uniform"},
    }
    run, w = problem.run(parts, clients=UNEQUAL), problem.start
    for t, cohort in enumerate(run.cohorts):
        tau, shrink, sent = run.steps(t), problem.lr(t) * mu, w
        a = {m: sum((1 - shrink) ** k for k in range(tau[m])) for m in cohort}
        g = {m: problem.update(t, m, w, lambda grad, x, w=sent: grad(x) + mu * (x - w), tau[m]) for m in cohort}
        w = w + np.mean([tau[m] for m in cohort]) * np.mean([g[m] / a[m] for m in cohort], axis=0)
        close(run.models[t + 1], w)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_equal_steps_are_fedavg(problem: Problem, weighting: str) -> None:
    nova, fedavg = ({"name": name, "weighting": weighting} for name in ("fednova", "fedavg"))
    close(problem.run(nova).models, problem.run(fedavg).models, atol=1e-6)


def test_unequal_steps_are_not(problem: Problem) -> None:
    nova, fedavg = ({"name": name, "weighting": "samples"} for name in ("fednova", "fedavg"))
    with_steps, without = problem.run(nova, clients=UNEQUAL), problem.run(fedavg, clients=UNEQUAL)
    assert np.abs(with_steps.models[-1] - without.models[-1]).max() > 1e-2
