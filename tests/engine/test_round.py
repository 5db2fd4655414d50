"""Whole rounds: against an independent reference, in blocks of any size, and with the inputs that a rule needs."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import dragfl
from tests.conftest import Load
from tests.engine.plain_sgd import cohort_updates, root_update

CLOSE = {"atol": 2e-6, "rtol": 0}
ROUNDS = 3


def simulated(experiment: dragfl.Experiment) -> tuple[dragfl.runs.simulation.Simulation, list[Tensor]]:
    """A simulation after its rounds, and the model before the first and after each."""
    simulation = dragfl.simulate(experiment)
    models = [simulation.state.w]
    for _ in simulation:
        models.append(simulation.state.w)
    assert all((b - a).norm() > 1e-2 for a, b in pairwise(models)), "the model must move"
    return simulation, models


def test_fedavg(experiment: Load) -> None:
    simulation, models = simulated(experiment(rounds=ROUNDS))
    for t in range(ROUNDS):
        torch.testing.assert_close(models[t + 1], models[t] + cohort_updates(simulation, models[t], t).mean(0), **CLOSE)


def test_fedavg_by_samples_with_a_server_lr(experiment: Load) -> None:
    """Clients of unequal size: theta + 0.5 sum N_m g_m / sum N_m."""
    simulation, models = simulated(
        experiment(
            rounds=ROUNDS,
            data={"partition": {"kind": "quantity_skew", "sigma": 0.7}},
            algorithm={"name": "fedavg", "weighting": "samples", "server_lr": 0.5},
        )
    )
    sizes = torch.tensor(simulation.federation.worker.split.sizes, dtype=torch.float32)
    assert len(set(sizes.tolist())) > 2
    for t in range(ROUNDS):
        mean = (sizes @ cohort_updates(simulation, models[t], t)) / sizes.sum()
        torch.testing.assert_close(models[t + 1], models[t] + 0.5 * mean, **CLOSE)


def drag_step(g: Tensor, r: Tensor, c: float, length: Tensor) -> Tensor:
    """mean of (1 - lambda) |length| g/|g| + lambda |length| r/|r|, lambda = c (1 - cos(g, r))."""
    lam = c * (1 - torch.cosine_similarity(g, r.unsqueeze(0)))
    unit = torch.nn.functional.normalize(g)
    v = (1 - lam)[:, None] * length[:, None] * unit + (lam * length)[:, None] * r / r.norm()
    return v.mean(0)


def test_drag(experiment: Load) -> None:
    """r^0 = mean g^0, r^t = (1 - alpha) r^(t-1) + alpha Delta^(t-1)."""
    c, alpha = 0.4, 0.6
    simulation, models = simulated(experiment(rounds=ROUNDS, algorithm={"name": "drag", "c": c, "alpha": alpha}))
    r = cohort_updates(simulation, models[0], 0).mean(0)
    for t in range(ROUNDS):
        g = cohort_updates(simulation, models[t], t)
        step = drag_step(g, r, c, g.norm(dim=1))
        torch.testing.assert_close(models[t + 1], models[t] + step, **CLOSE)
        assert (step - g.mean(0)).norm() > 1e-3, "the rule must differ from the mean here"
        r = (1 - alpha) * r + alpha * step


def test_br_drag(experiment: Load) -> None:
    simulation, models = simulated(
        experiment(rounds=ROUNDS, algorithm={"name": "br_drag", "c": 0.3}, root={"size": 20, "disjoint": False})
    )
    for t in range(ROUNDS):
        r = root_update(simulation, models[t], t)
        g = cohort_updates(simulation, models[t], t)
        step = drag_step(g, r, 0.3, r.norm().expand(len(g)))
        torch.testing.assert_close(models[t + 1], models[t] + step, **CLOSE)


def test_fltrust(experiment: Load) -> None:
    simulation, models = simulated(experiment(rounds=ROUNDS, algorithm={"name": "fltrust"}, root={"size": 20}))
    for t in range(ROUNDS):
        r = root_update(simulation, models[t], t)
        g = cohort_updates(simulation, models[t], t)
        trust = torch.cosine_similarity(g, r.unsqueeze(0)).clamp_min(0)
        step = r.norm() * (trust @ torch.nn.functional.normalize(g)) / trust.sum()
        torch.testing.assert_close(models[t + 1], models[t] + step, **CLOSE)


def test_server_momentum_under_drag(experiment: Load) -> None:
    """m <- beta m + Delta, theta <- theta + lr m; Delta of the first round is DRAG's with r^0 = the mean."""
    simulation, models = simulated(
        experiment(
            rounds=2, algorithm={"aggregate": {"name": "drag", "c": 0.4}, "server": {"name": "momentum", "beta": 0.5}}
        )
    )
    g = cohort_updates(simulation, models[0], 0)
    first = drag_step(g, g.mean(0), 0.4, g.norm(dim=1))
    torch.testing.assert_close(models[1], models[0] + first, **CLOSE)
    g = cohort_updates(simulation, models[1], 1)
    second = drag_step(g, first, 0.4, g.norm(dim=1))
    torch.testing.assert_close(models[2], models[1] + 0.5 * first + second, **CLOSE)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_drag_with_c_zero_is_fedavg(experiment: Load, alpha: float) -> None:
    _, drag = simulated(experiment(rounds=ROUNDS, algorithm={"name": "drag", "c": 0.0, "alpha": alpha}))
    _, fedavg = simulated(experiment(rounds=ROUNDS))
    torch.testing.assert_close(drag[-1], fedavg[-1], **CLOSE)


def test_sign_flip_by_all_clients_negates_the_mean(experiment: Load) -> None:
    """With six attackers of six, the step of FedAvg is negated."""
    simulation, models = simulated(experiment(rounds=1, attack={"name": "sign_flip", "attackers": 6}))
    torch.testing.assert_close(models[1], models[0] - cohort_updates(simulation, models[0], 0).mean(0), **CLOSE)


def test_the_learning_rate_can_be_a_schedule(experiment: Load) -> None:
    lr = {"kind": "linear", "start": 0.2, "end": 0.0, "rounds": 2}
    records = list(dragfl.simulate(experiment(rounds=3, clients={"lr": lr})))
    assert [r.metrics["lr"] for r in records] == pytest.approx([0.2, 0.1, 0.0])
    assert records[2].metrics["step_norm"] == 0.0
    assert records[1].metrics["step_norm"] > 0.0


def test_the_record_has_the_norms_and_cosines_of_the_updates(experiment: Load) -> None:
    """Norms, cosines and divergences are computed from the updates as they are sent."""
    simulation = dragfl.simulate(
        experiment(algorithm={"name": "drag", "c": 0.4}, attack={"name": "sign_flip", "attackers": 2})
    )
    w = simulation.state.w
    record = simulation.step()
    g = cohort_updates(simulation, w, 0)
    attackers = sorted(simulation.federation.adversary.fixed)
    g[attackers] *= -1
    x = torch.cosine_similarity(g, g.mean(0, keepdim=True))
    assert record.clients["client"] == list(range(6))
    assert [m for m, bad in enumerate(record.clients["attacker"]) if bad] == attackers
    assert record.clients["norm"] == pytest.approx(g.norm(dim=1).tolist(), rel=1e-4)
    assert record.clients["cosine"] == pytest.approx(x.tolist(), abs=1e-4)
    assert record.clients["divergence"] == pytest.approx((0.4 * (1 - x)).tolist(), abs=1e-4)
    assert record.metrics["divergence_mean"] == pytest.approx(0.4 * (1 - x).mean().item(), abs=1e-5)
    assert record.metrics["mean_norm"] == pytest.approx(g.mean(0).norm().item(), rel=1e-4)
    assert record.metrics["attackers"] == 2
    dim = simulation.federation.model.dim
    assert record.metrics["bytes_up"] == record.metrics["bytes_down"] == 6 * dim * 4
