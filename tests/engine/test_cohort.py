"""Who takes part, who attacks and how much each works: addressed, so never a matter of what came before."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

import dragfl
from dragfl.engine.server_round import sample_clients
from dragfl.types import RoundContext
from tests.conftest import Load

SOME = {"per_round": 3}


def cohorts(experiment: dragfl.Experiment) -> list[list[int]]:
    return [record.clients["client"] for record in dragfl.simulate(experiment)]


def test_sampled_without_replacement_and_evenly(experiment: Load) -> None:
    """300 rounds of 3 of 6: each client 150 times, standard deviation sqrt(300/4) = 8.7."""
    fed = dragfl.simulate(experiment(clients=SOME)).federation
    drawn = [sample_clients(fed, RoundContext(t, 0.1, 3)) for t in range(300)]
    assert all(len(set(c)) == 3 and list(c) == sorted(c) for c in drawn)
    times = Counter(m for c in drawn for m in c)
    assert all(abs(times[m] - 150) < 4 * 8.7 for m in range(6))
    assert drawn[0] != drawn[1] or drawn[1] != drawn[2]


def test_a_cohort_does_not_depend_on_earlier_rounds(experiment: Load) -> None:
    simulation = dragfl.simulate(experiment(rounds=6, clients=SOME))
    played = [record.clients["client"] for record in simulation]
    asked = [list(sample_clients(simulation.federation, RoundContext(t, 0.1, 3))) for t in reversed(range(6))]
    assert played == asked[::-1]
    assert cohorts(experiment(rounds=6, clients=SOME, algorithm={"name": "drag"})) == played
    assert cohorts(experiment("seed=4", rounds=6, clients=SOME)) != played


def test_a_range_of_steps_is_fixed_for_each_client(experiment: Load) -> None:
    records = list(dragfl.simulate(experiment(clients={"local_steps": [1, 9]})))
    steps = records[0].clients["steps"]
    assert all(1 <= s <= 9 for s in steps)
    assert len(set(steps)) > 1
    assert all(record.clients["steps"] == steps for record in records)


def test_epochs_follow_the_size_of_the_client(experiment: Load) -> None:
    changes = {"local_steps": None, "local_epochs": 2, "sampling": "epoch"}
    simulation = dragfl.simulate(
        experiment(data={"partition": {"kind": "quantity_skew", "sigma": 0.7}}, clients=changes)
    )
    sizes = simulation.federation.worker.split.sizes
    assert simulation.step().clients["steps"] == [2 * int(np.ceil(n / 5)) for n in sizes]


def test_epoch_sampling_trains_on_every_sample_once(experiment: Load) -> None:
    """One pass in one batch is one step of full-batch gradient descent, whatever the order."""
    changes = {"local_steps": None, "local_epochs": 1, "sampling": "epoch", "batch_size": 1000}
    first = dragfl.simulate(experiment(clients=changes))
    other = dragfl.simulate(experiment("seed=4", data={"partition": {"kind": "iid"}}, clients={**changes, "total": 1}))
    other.federation.initial.copy_(first.federation.initial)
    other.state = other.federation.start()
    first.step()
    other.step()  # six clients of equal size, one step each: their mean is the step on all data
    torch.testing.assert_close(first.state.w, other.state.w, atol=1e-6, rtol=0)


def liars(record: dragfl.RoundRecord) -> list[int]:
    return [m for m, bad in zip(record.clients["client"], record.clients["attacker"], strict=True) if bad]


def test_attackers_are_fixed_for_the_run(experiment: Load) -> None:
    attack = {"name": "sign_flip", "attackers": 2}
    simulation = dragfl.simulate(experiment(rounds=12, clients=SOME, attack=attack))
    fixed = simulation.federation.adversary.fixed
    assert len(fixed) == 2
    counts = set()
    for record in simulation:
        assert liars(record) == sorted(fixed.intersection(record.clients["client"]))
        assert record.metrics["attackers"] == len(liars(record))
        counts.add(len(liars(record)))
    assert len(counts) > 1, "half of the clients are sampled, so the number must vary"


def test_attackers_may_be_redrawn_among_the_sampled(experiment: Load) -> None:
    attack = {"name": "sign_flip", "attackers": 2, "redraw": True}
    records = list(dragfl.simulate(experiment(rounds=8, clients=SOME, attack=attack)))
    assert all(record.metrics["attackers"] == len(liars(record)) == 2 for record in records)
    assert len({tuple(liars(record)) for record in records}) > 2


@pytest.mark.parametrize("redraw", [False, True])
def test_attackers_do_not_change_who_is_sampled(experiment: Load, redraw: bool) -> None:
    attack = {"name": "sign_flip", "attackers": 2, "redraw": redraw}
    assert cohorts(experiment(clients=SOME, attack=attack)) == cohorts(experiment(clients=SOME))
