"""A client: the amount of its work, its own data and state, and a model that draws in its forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dragfl
from dragfl.corrections import Scaffold
from dragfl.engine.client import BUFFERS, Client, ClientData, train_client
from dragfl.engine.round import TrainTasks, run_round
from dragfl.engine.server_round import ServerRound
from dragfl.engine.threads import one_thread, own_generator
from dragfl.errors import SpecError
from tests.conftest import Load


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feddc"])
def test_train_client_equals_the_simulator(experiment: Load, name: str) -> None:
    """`train_client` with the client's own data gives the update that the simulator's block has in its row."""
    fed = dragfl.simulate(experiment(algorithm={"name": name}, engine={"block": 6})).federation
    with one_thread(), own_generator():
        state, _ = run_round(fed, fed.start())  # so that client states are not zero
        server = ServerRound.open(fed, state)
        (block,) = fed.backend.train(TrainTasks(server))
        worker = fed.worker
        for row, m in enumerate(server.present):
            data = ClientData(worker.dataset.x, worker.dataset.y, worker.split.samples_of(m))
            client = Client(m, fed.store.read(m), data)
            alone = train_client(worker.local, state.w, server.broadcast, client, server.context)
            torch.testing.assert_close(alone.delta, block.updates.delta[row], rtol=1e-5, atol=1e-7)
            assert alone.steps == block.steps[row] and alone.samples == block.updates.weight[row]
            assert alone.extra.keys() == block.updates.extra.keys()
    assert BUFFERS not in server.broadcast


@dataclass(frozen=True)
class WrongExtras(Scaffold):
    """SCAFFOLD that returns other extras or another state than it declares."""

    fault: str = ""

    def client_finish(self, result: Any, mine: Any, sent: Any, context: Any) -> Any:
        extra, state = super().client_finish(result, mine, sent, context)
        if self.fault == "name":
            return {"other": extra["dc"]}, state
        if self.fault == "dtype":
            return {"dc": extra["dc"].double()}, state
        return extra, {"c": state["c"][:-1]}


@pytest.mark.parametrize(
    ("fault", "facts"),
    [
        ("name", ("extra", "other", "dc")),
        ("dtype", ("extra 'dc'", "float64")),
        ("state", ("client state 'c'", "shape")),
    ],
)
def test_what_a_correction_returns_is_checked_against_its_declaration(
    experiment: Load, fault: str, facts: tuple[str, ...]
) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.simulate(experiment(algorithm={"correction": WrongExtras(fault=fault)})).step()
    assert all(fact in str(error.value) for fact in ("algorithm.correction", *facts))


def test_a_range_of_steps_is_fixed_for_each_client(experiment: Load) -> None:
    records = list(dragfl.simulate(experiment(clients={"local_steps": [1, 9]})))
    steps = records[0].clients["steps"]
    assert all(1 <= s <= 9 for s in steps)
    assert len(set(steps)) > 1
    assert all(record.clients["steps"] == steps for record in records)


def test_the_steps_of_an_epoch_follow_the_size_of_the_client(experiment: Load) -> None:
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


def test_the_module_of_the_user_is_not_changed(experiment: Load) -> None:
    module = nn.Linear(6, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    pointer = module.weight.data_ptr()
    simulation = dragfl.simulate(experiment(model={"name": module}))
    start = simulation.state.w.clone()
    list(simulation)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.weight.data_ptr() == pointer
    assert module.training
    assert torch.equal(start[:18].reshape(3, 6), before["weight"]), "a module is the model to start from"


def test_drop_out_is_addressed_by_round_and_client(experiment: Load) -> None:
    """Same bits twice, the same model with other blocks, and the global generator of torch is unchanged."""

    def make(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, classes))

    finals = []
    for block, seed in ((20, 1), (20, 2), (1, 3)):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        simulation = dragfl.simulate(experiment(model={"name": make}, engine={"block": block}))
        list(simulation)
        assert torch.equal(torch.get_rng_state(), state)
        finals.append(simulation.state.w)
    assert torch.equal(finals[0], finals[1])
    torch.testing.assert_close(finals[2], finals[0], atol=2e-6, rtol=0)


SMALL: dict[str, Any] = {"rounds": 3, "clients": {"total": 6}, "model": {"name": "logistic"}}


def test_drop_out_is_addressed_in_the_cohort_gradient_too() -> None:
    """Drop-out under Mime: the state of torch's global generator changes nothing."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 10))
    ends = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        simulation = dragfl.simulate(dragfl.load({**SMALL, "model": {"name": net}, "algorithm": {"name": "mime"}}))
        list(simulation)
        ends.append(simulation.state.w)
    assert torch.equal(*ends)
