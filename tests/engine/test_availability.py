"""Sampled clients that do not take part: who they are, what is counted, and what stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dragfl
from dragfl.engine.backends.worker_process import end_idle_processes
from dragfl.engine.client import TrainTask
from dragfl.engine.round import TrainTasks
from dragfl.engine.server_round import ServerRound, available_clients
from dragfl.engine.threads import one_thread, own_generator
from dragfl.errors import SpecError
from dragfl.rng import rng
from dragfl.types import RoundContext
from tests.conftest import Load, kept_bytes

HALF = {"availability": 0.5}


def test_each_sampled_client_takes_part_with_this_probability(experiment: Load) -> None:
    """300 rounds of 6 clients at 0.5: 900 of 1800, standard deviation sqrt(1800) / 2 = 21; each client 150 +- 8.7."""
    fed = dragfl.simulate(experiment(clients=HALF)).federation
    rounds = [available_clients(fed, RoundContext(t, 0.1, 3), tuple(range(6))) for t in range(300)]
    assert abs(sum(map(len, rounds)) - 900) < 4 * 21
    assert all(abs(sum(m in present for present in rounds) - 150) < 4 * 8.7 for m in range(6))
    drawn = rng(3, "available", 7).random(6)
    assert rounds[7] == tuple(m for m in range(6) if drawn[m] < 0.5)


def test_the_record_of_a_round(experiment: Load) -> None:
    """The model goes down to all six sampled clients; only those that take part send anything up."""
    simulation = dragfl.simulate(experiment(rounds=8, clients=HALF))
    size = simulation.state.w.nbytes
    for t, record in enumerate(simulation):
        present = available_clients(simulation.federation, RoundContext(t, 0.1, 3), tuple(range(6)))
        metrics, clients = record.metrics, record.clients
        assert metrics["sampled"] == 6 and metrics["used"] == len(present)
        assert metrics.get("missing", 0) == 6 - len(present)
        assert (metrics["bytes_down"], metrics["bytes_up"]) == (6 * size, len(present) * size)
        assert clients["dropped"] == [m not in present for m in range(6)]
        assert [steps > 0 for steps in clients["steps"]] == [m in present for m in range(6)]
        assert [loss is None for loss in clients["loss"]] == [m not in present for m in range(6)]


def test_the_model_is_that_of_the_clients_that_took_part(experiment: Load) -> None:
    """FedAvg: the mean of the updates of the present clients, which train as if everyone were there."""
    some, everyone = (dragfl.simulate(experiment(rounds=1, clients=c)) for c in (HALF, {}))
    present = available_clients(some.federation, RoundContext(0, 0.2, 3), tuple(range(6)))
    assert 0 < len(present) < 6
    fed = everyone.federation
    server = ServerRound.open(fed, fed.start())
    delta = torch.cat([block.updates.delta for block in fed.backend.train(TrainTasks(server))])
    list(some)
    torch.testing.assert_close(some.state.w, fed.initial + delta[list(present)].mean(0))


def test_a_client_that_is_away_does_not_lower_f(experiment: Load) -> None:
    """Trimmed mean, f = 1: one of the six is away. The five others lose one value at each end, as if they were all."""
    chosen = {"name": "trimmed_mean", "f": 1}
    some, everyone = (
        dragfl.simulate(experiment(rounds=1, clients=c, algorithm=chosen)) for c in ({"availability": 0.85}, {})
    )
    present = available_clients(some.federation, RoundContext(0, 0.2, 3), tuple(range(6)))
    assert len(present) == 5
    fed = everyone.federation
    delta = torch.cat([b.updates.delta for b in fed.backend.train(TrainTasks(ServerRound.open(fed, fed.start())))])
    list(some)
    kept = delta[list(present)].sort(0).values[1:-1]
    torch.testing.assert_close(some.state.w, fed.initial + kept.mean(0))


def test_an_empty_round_is_skipped_and_changes_nothing(experiment: Load) -> None:
    rare = {"total": 6, "per_round": 2, "availability": 0.2}
    simulation = dragfl.simulate(experiment(rounds=12, clients=rare, algorithm={"name": "fedavgm"}))
    before, skipped = simulation.state, 0
    for record in simulation:
        empty = record.metrics["used"] == 0
        assert torch.equal(simulation.state.w, before.w) == empty
        assert ("skipped" in record.metrics) == empty
        if empty:
            skipped += 1
            assert record.metrics["skipped"] == "no sampled client was available"
            assert record.metrics["missing"] == 2 and record.metrics["bytes_up"] == 0
            assert simulation.state.server is before.server
        before = simulation.state
    assert 4 <= skipped < 12


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "feddc", "adabest"])
def test_an_absent_client_keeps_its_state(experiment: Load, name: str) -> None:
    simulation = dragfl.simulate(experiment(rounds=6, clients=HALF, algorithm={"name": name}))
    store = simulation.federation.store
    kept = [{k: v.clone() for k, v in store.read(m).items()} for m in range(6)]
    for record in simulation:
        for m, dropped in enumerate(record.clients["dropped"]):
            now = {k: v.clone() for k, v in store.read(m).items()}
            assert all(torch.equal(now[k], kept[m][k]) for k in now) == dropped
            kept[m] = now
    if name == "scaffold":  # c is the mean of all c_m after any history
        mean = torch.stack([state["c"] for state in kept]).mean(0)
        torch.testing.assert_close(simulation.state.correction.c, mean, atol=1e-6, rtol=1e-5)


def test_only_clients_that_take_part_send_a_full_gradient(experiment: Load) -> None:
    """Mime's momentum after the first round is (1 - 0.9) times the mean gradient of the present clients."""
    simulation = dragfl.simulate(experiment(rounds=1, clients=HALF, algorithm={"name": "mime"}))
    fed = simulation.federation
    context = RoundContext(0, 0.2, 3)
    present = available_clients(fed, context, tuple(range(6)))
    record = next(iter(simulation))
    with one_thread(), own_generator():
        gradients = fed.worker.gradients(TrainTask(present, fed.initial, {}, context, ({},) * len(present)))
    torch.testing.assert_close(simulation.state.correction.s, 0.1 * gradients.delta.mean(0), atol=1e-7, rtol=1e-5)
    assert 0 < len(present) < 6 and record.metrics["bytes_up"] == 2 * len(present) * fed.initial.nbytes


def test_absent_attackers_do_not_see_the_model(experiment: Load) -> None:
    """A free rider keeps the model it saw last; it keeps the same one while no attacker takes part."""
    attack = {"name": "free_rider", "kind": "replay", "attackers": 1}
    simulation = dragfl.simulate(experiment(rounds=8, clients=HALF, attack=attack))
    before, seen = simulation.state.attack, set()
    for record in simulation:
        taken = not record.clients["dropped"][record.clients["attacker"].index(True)]
        assert (simulation.state.attack is before) == (not taken)
        before = simulation.state.attack
        seen.add(taken)
    assert seen == {True, False}


@pytest.mark.parametrize("algorithm", ["fedavg", "mime", "krum", "br_drag", "drag"])
@pytest.mark.parametrize("attack", ["sign_flip", "label_flip", "min_max"])
def test_attackers_drop_out_too(experiment: Load, algorithm: str, attack: str) -> None:
    spec = experiment(
        rounds=6, clients={"availability": 0.4}, algorithm={"name": algorithm}, root={"size": 20},
        attack={"name": attack, "attackers": 2},
    )  # fmt: skip
    records = list(dragfl.simulate(spec))
    absent = [
        dropped
        for r in records
        for attacker, dropped in zip(r.clients["attacker"], r.clients["dropped"], strict=True)
        if attacker
    ]
    assert all(r.metrics["attackers"] == 2 for r in records) and len(absent) == 12
    assert any(absent)
    if algorithm == "krum":  # it needs 2 f + 3 updates
        reasons = [str(r.metrics["skipped"]) for r in records if "skipped" in r.metrics]
        assert any(reason.startswith("infeasible: krum") for reason in reasons)


def test_redrawn_attackers_are_drawn_from_the_sampled(experiment: Load) -> None:
    attack = {"name": "sign_flip", "attackers": 2, "redraw": True}
    records = list(dragfl.simulate(experiment(rounds=4, clients=HALF, attack=attack)))
    assert [r.metrics["attackers"] for r in records] == [2, 2, 2, 2]


def test_workers_and_resume_change_no_bit_with_every_option(tmp_path: Path) -> None:
    made: dict[str, Any] = {
        "name": "a", "rounds": 5, "seed": 2, "algorithm": {"name": "scaffold"}, "checkpoint": {"every": 1},
        "clients": {
            "total": 8, "per_round": 5, "batch_size": 5, "availability": 0.5, "momentum": 0.5, "weight_decay": 0.01,
            "augment": "flip+crop",
        },
        "model": {"name": "logistic"}, "engine": {"block": 2},
    }  # fmt: skip
    dragfl.run(dragfl.load(made, "engine.workers=1"), tmp_path / "one")
    dragfl.run(dragfl.load(made, "engine.workers=2"), tmp_path / "two")
    end_idle_processes()

    class Stop(Exception):
        pass

    def stop(record: dragfl.RoundRecord) -> None:
        if record.round == 3:
            raise Stop

    with pytest.raises(Stop):
        dragfl.run(dragfl.load(made, "engine.workers=1"), tmp_path / "three", on_record=stop)
    dragfl.resume(tmp_path / "three")
    assert kept_bytes(tmp_path / "one") == kept_bytes(tmp_path / "two") == kept_bytes(tmp_path / "three")


@pytest.mark.parametrize("value", [0.0, -0.1, 1.1, float("nan"), float("inf")])
def test_a_wrong_probability(value: float) -> None:
    with pytest.raises(SpecError, match=r"availability.*outside \(0, 1\]"):
        dragfl.load({"clients": {"availability": value}})


def test_one_is_the_same_as_without(experiment: Load) -> None:
    one, none = (dragfl.simulate(experiment(clients=c)) for c in ({"availability": 1.0}, {}))
    assert [r.metrics for r in one] == [r.metrics for r in none]
    assert np.array_equal(one.state.w.numpy(), none.state.w.numpy())
