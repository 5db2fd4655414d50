"""dragfl's own client: its replies have the simulator's bits, and its state follows what the server has accepted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from torch import Tensor

import dragfl
from dragfl.algorithms import PRESETS
from dragfl.config.tables import Flower
from dragfl.data.dataset import from_tensors
from dragfl.engine.aggregation import BlockResult, fold
from dragfl.engine.backends.local import LocalBackend
from dragfl.engine.client import ClientResults, TrainTask, concat
from dragfl.engine.simulator import Worker
from dragfl.engine.threads import one_thread, own_generator
from dragfl.flower import client_app, client_work
from dragfl.flower.client import errors_without_paths
from dragfl.flower.messages import (
    Order,
    gradient_message,
    hello_message,
    payload_of,
    read_gradient,
    read_hello,
    read_update,
    train_message,
)
from dragfl.flower.records import Refused
from dragfl.types import Plan, RoundContext, Updates
from tests.conftest import TIMEOUT_S, Load
from tests.engine.custom_attacks import GrowingAttack
from tests.flower.local_grid import LocalGrid

RUN = "00beef"


class GridBackend(LocalBackend):
    """Clients train on a grid; the worker trains them too, and the bits must be equal."""

    def __init__(self, worker: Worker, grid: LocalGrid) -> None:
        super().__init__(worker)
        self.grid = grid
        self.accepted: dict[int, int] = {}  # all replies that arrive are accepted

    def train(self, tasks: Iterable[TrainTask]) -> Iterator[ClientResults]:
        for task in tasks:
            replies = [self.ask(task, m, train_message) for m in task.clients]
            local, dim = self._worker.local, self._worker.info.dim
            found = [read_update(reply, order, local.sends, dim)[0] for reply, order in replies]
            self.accepted |= dict.fromkeys(task.clients, task.context.t + 1)
            expected = self._worker.train(task)
            assert_same(concat(found).updates, expected.updates)
            assert (concat(found).loss, concat(found).steps) == (expected.loss, expected.steps)
            yield expected

    def fold(self, tasks: Iterable[TrainTask], plan: Plan) -> Iterator[BlockResult]:
        return (fold(self._worker.aggregate, plan, results) for results in self.train(tasks))

    def gradients(self, tasks: Iterable[TrainTask]) -> Iterator[Updates]:
        for task in tasks:
            replies = [self.ask(task, m, gradient_message) for m in task.clients]
            found = [read_gradient(reply, order, self._worker.info.dim) for reply, order in replies]
            assert_same(Updates.concat(found), self._worker.gradients(task))
            yield Updates.concat(found)

    def ask(self, task: TrainTask, client: int, make: Callable[..., Message]) -> tuple[Message, Order]:
        accepted = self.accepted.get(client, 0)
        alone = replace(task, clients=(client,), states=({},))
        order = Order(RUN, accepted, accepted, f"{client} {task.context.t}", False, alone)
        ids = self.grid.push_messages([make(order, self.grid.ids[client], 60.0, payload_of(task))])
        return next(iter(self.grid.pull_messages(ids))), order


def assert_same(found: Updates, expected: Updates) -> None:
    assert torch.equal(found.delta, expected.delta) and torch.equal(found.weight, expected.weight)
    assert torch.equal(found.client, expected.client) and torch.equal(found.steps, expected.steps)
    assert found.extra.keys() == expected.extra.keys()
    assert all(torch.equal(found.extra[name], expected.extra[name]) for name in found.extra)


def run_on_grid(experiment: dragfl.Experiment, folder: Path) -> tuple[LocalGrid, list[dragfl.RoundRecord]]:
    """Every round of the simulator, with each reply of the client compared with the worker's own result."""
    configs = [{"partition-id": m, "state-dir": str(folder)} for m in range(experiment.clients.total)]
    grid = LocalGrid(client_app(experiment), configs)
    simulation = dragfl.simulate(experiment)
    federation = simulation.federation
    simulation.federation = replace(federation, backend=GridBackend(federation.worker, grid))
    return grid, list(simulation)


CORRECTIONS = sorted({str(preset.correction): name for name, preset in sorted(PRESETS.items())}.values())


@pytest.mark.parametrize("name", CORRECTIONS)  # the client's half of an algorithm; test_backend.py runs all presets
def test_every_correction_has_the_bits_of_the_simulator(experiment: Load, tmp_path: Path, name: str) -> None:
    """Cohorts of 4 of 6 and different numbers of local steps; states are read from files."""
    clients = {"per_round": 4, "local_steps": [1, 3], "lr": 0.05}
    spec = experiment(algorithm={"name": name}, root={"size": 20}, clients=clients, engine={"block": 1})
    grid, records = run_on_grid(spec, tmp_path)
    asked = [kind for _, kind, _ in grid.sent]
    assert asked.count("train") == 3 * 4, "no client is asked to train twice in a round"
    assert bool(list(tmp_path.iterdir())) == bool(spec.algorithm.correction.fields)
    assert all(record.metrics["used"] == 4 for record in records)


@pytest.mark.parametrize(
    "attack",
    [
        {"name": "sign_flip", "attackers": 2},
        {"name": "free_rider", "kind": "replay", "attackers": 2},
        {"name": "label_flip", "attackers": 2},
        {"name": "random_scaling", "attackers": 2, "forge_extras": True},
        {"name": GrowingAttack(), "attackers": 2},
        {"name": "alie", "attackers": 2},
    ],
    ids=lambda attack: str(attack["name"]).partition("(")[0],
)
def test_attackers_send_what_they_send_in_the_simulator(
    experiment: Load, tmp_path: Path, attack: dict[str, Any]
) -> None:
    """With a state, on the data, with forged extras; attackers that know more than themselves train honestly here."""
    _, records = run_on_grid(experiment(attack=attack, algorithm={"name": "scaffold"}, engine={"block": 1}), tmp_path)
    assert records[-1].metrics["attackers"] == 2


class Normed(torch.nn.Module):
    """BatchNorm, drop-out and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = torch.nn.Linear(6, 5).requires_grad_(False)
        self.layers = torch.nn.Sequential(torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.3), torch.nn.Linear(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.frozen(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "mime"])
def test_buffers_dropout_and_frozen_layers_have_the_bits_of_the_simulator(
    experiment: Load, tmp_path: Path, name: str
) -> None:
    options = {"momentum": 0.5, "weight_decay": 0.01} if name == "fedavg" else {}
    model = {"name": Normed, "buffers": "average"}
    run_on_grid(experiment(model=model, algorithm={"name": name}, clients=options, engine={"block": 1}), tmp_path)


@pytest.fixture
def scaffold(experiment: Load) -> dragfl.Experiment:
    return experiment(algorithm={"name": "scaffold"}, engine={"block": 1})


class OneClient:
    """Client 1 of a scaffold experiment, asked by hand."""

    def __init__(self, experiment: dragfl.Experiment, node_config: dict[str, Any]) -> None:
        simulation = dragfl.simulate(replace(experiment, flower=Flower()))
        self.worker, self.w = simulation.federation.worker, simulation.federation.initial
        self.grid = LocalGrid(client_app(experiment), [node_config])

    def ask(self, round: int, accepted: int, durable: int | None = None, **changes: Any) -> Message:
        context = RoundContext(round - 1, 0.1, 3)
        c = torch.full_like(self.w, 0.01 * round)
        task = TrainTask((1,), self.w, {"c": c}, context, ({},))
        self.order = Order(RUN, accepted, accepted if durable is None else durable, "n", False, task)
        self.order = replace(self.order, **changes)
        ids = self.grid.push_messages([train_message(self.order, self.grid.ids[0], 60.0)])
        return next(iter(self.grid.pull_messages(ids)))

    def read(self, reply: Message) -> tuple[Tensor, bool]:
        results, from_zeros = read_update(reply, self.order, self.worker.local.sends, self.worker.info.dim)
        return results.updates.delta[0], from_zeros


def test_a_client_starts_from_the_accepted_state_whatever_it_has_sent_since(
    scaffold: dragfl.Experiment, tmp_path: Path
) -> None:
    """The replies of rounds 2 and 3 were refused; round 4 starts from round 1, as if they had not been asked for."""
    client = OneClient(scaffold, {"state-dir": str(tmp_path / "a")})
    for round in (1, 2, 3):
        client.ask(round, accepted=min(round - 1, 1))
    refused_twice = client.read(client.ask(4, accepted=1))[0]
    other = OneClient(scaffold, {"state-dir": str(tmp_path / "b")})
    other.ask(1, accepted=0)
    assert torch.equal(refused_twice, other.read(other.ask(4, accepted=1))[0])
    assert not torch.equal(refused_twice, other.read(other.ask(4, accepted=0))[0]), "the state does matter"


def test_states_that_no_checkpoint_needs_are_deleted(scaffold: dragfl.Experiment, tmp_path: Path) -> None:
    client = OneClient(scaffold, {"state-dir": str(tmp_path)})
    for round in range(1, 6):
        client.ask(round, accepted=round - 1, durable=min(round - 1, 2))
    names = sorted(path.name for path in (tmp_path / RUN / "client-1").iterdir())
    assert names == [f"round-{t}.safetensors" for t in (2, 4, 5)], "durable, accepted and pending"


def test_a_lost_state_is_reported_or_replaced_by_zeros(scaffold: dragfl.Experiment, tmp_path: Path) -> None:
    client = OneClient(scaffold, {"state-dir": str(tmp_path)})
    from_zeros = client.read(client.ask(3, accepted=0))[0]
    with pytest.raises(Refused, match="state lost: of round 2"):
        client.read(client.ask(3, accepted=2))
    delta, was_lost = client.read(client.ask(3, accepted=2, zero_lost=True))
    assert was_lost and torch.equal(delta, from_zeros)


def test_a_stateful_algorithm_needs_a_state_dir(scaffold: dragfl.Experiment) -> None:
    for config, problem in (({}, "there is none"), ({"state-dir": "states"}, "it is a relative path")):
        reply = OneClient(scaffold, config).ask(1, accepted=0)
        assert reply.error.code == 2 and f"state-dir: {problem}" in str(reply.error.reason)


def test_the_client_number_is_the_default_partition(experiment: Load) -> None:
    """Without a partition-id client 1 trains on part 1; with partition-id = 4 on part 4, with the draws of client 1."""
    spec = experiment(engine={"block": 1})
    found = {}
    for name, config in {"default": {}, "same": {"partition-id": 1}, "other": {"partition-id": 4}}.items():
        client = OneClient(spec, config)
        found[name] = client.read(client.ask(1, accepted=0))[0]
    assert torch.equal(found["default"], found["same"]) and not torch.equal(found["same"], found["other"])
    reply = OneClient(spec, {"partition-id": 6}).ask(1, accepted=0)
    assert "partition-id = 6, and the data have the parts 0 to 5" in str(reply.error.reason)


def test_overrides_of_the_run_config_change_the_spec(toy: dragfl.Dataset) -> None:
    tables = {"data": {"dataset": toy}, "clients": {"total": 6, "batch_size": 5}, "model": {"name": "logistic"}}
    client = OneClient(dragfl.load(tables), {})
    client.grid.apps = [client_app(tables)]
    steps = []
    for overrides in ("", "clients.local_steps=2 clients.batch_size=3"):
        client.grid.contexts[0].run_config["overrides"] = overrides
        reply = client.ask(1, accepted=0)
        steps.append(reply.content.metric_records["metrics"]["steps"])
    assert steps == [5, 2]


def own_data(path: Path, samples: int, classes: int) -> str:
    """`npz:PATH` with samples of the first classes only; a test part is part of the format."""
    x = np.random.default_rng(0).normal(size=(samples, 6)).astype(np.float32)
    y = np.arange(samples) % classes
    np.savez(path, x=x, y=y, test_x=x[:2], test_y=y[:2])
    return f"npz:{path}"


def test_a_node_with_data_of_its_own_trains_on_all_of_them(experiment: Load, tmp_path: Path) -> None:
    """11 samples of 2 of the 3 classes, fewer than the root data; the server's data.dataset is not loaded."""
    dataset = own_data(tmp_path / "own.npz", samples=11, classes=2)
    spec = experiment(flower={"data": "own"}, root={"size": 40}, evaluation={"validation": 0.5}, engine={"block": 1})
    client = OneClient(spec, {"dataset": dataset, "partition-id": 99})
    reply = client.ask(1, accepted=0, classes=3)
    assert reply.content.metric_records["metrics"]["num-examples"] == 11
    whole = dragfl.data.load(dataset)
    alone = from_tensors(whole.x, whole.y, whole.test_x, whole.test_y, classes=3)
    worker = replace(client.worker, dataset=alone, split=replace(client.worker.split, **_all_of(11)))
    with one_thread(), own_generator():
        expected = worker.train(client.order.task)
    assert torch.equal(client.read(reply)[0], expected.updates.delta[0])
    assert "wrong shape: w: (21,) instead of (14,)" in str(client.ask(1, accepted=0).error.reason)


def _all_of(samples: int) -> dict[str, Any]:
    return {"indices": np.arange(samples), "offsets": np.array([0, 0, *[samples] * 5])}


def test_a_node_without_its_own_data_says_so(experiment: Load) -> None:
    reply = OneClient(experiment(flower={"data": "own"}), {}).ask(1, accepted=0)
    assert "give dataset=... in its node-config" in str(reply.error.reason)


def test_the_text_of_an_error_has_no_paths_of_the_node(experiment: Load, tmp_path: Path) -> None:
    """Flower sends the text of an exception to the server."""
    missing = tmp_path / "secret folder" / "patients.npz"
    reply = OneClient(experiment(), {"dataset": f"npz:{missing}"}).ask(1, accepted=0)
    reason = str(reply.error.reason)
    assert "secret" not in reason and "patients" not in reason and "<dataset>" in reason
    (tmp_path / "file").write_text("not a folder")
    spec = experiment(algorithm={"name": "scaffold"}, engine={"block": 1})
    reason = str(OneClient(spec, {"state-dir": str(tmp_path / "file")}).ask(1, accepted=0).error.reason)
    assert str(tmp_path) not in reason and "<state-dir> cannot be written (Not a directory); give a folder" in reason
    with pytest.raises(Exception, match=r"^OSError: <path>: 1/2 of /, see docs/flower\.md$"), errors_without_paths({}):
        raise OSError("/home/alice/x.bin: 1/2 of /, see docs/flower.md")


def test_hello_answers_without_torch_and_without_data(tmp_path: Path) -> None:
    """Nothing of the spec is needed: it names a dataset and a file that do not exist."""
    (tmp_path / "spec.toml").write_text('[data]\ndataset = "npz:/absent.npz"\n')
    code = f"""
import sys
from dragfl.flower import client_app
from dragfl.flower.hello import hello_message, read_hello
from tests.flower.local_grid import LocalGrid
grid = LocalGrid(client_app({str(tmp_path / "spec.toml")!r}), [{{"partition-id": 5}}])
[reply] = grid.pull_messages(grid.push_messages([hello_message("beef", "n", grid.ids[0], 9.0)]))
assert read_hello(reply, "n").partition == 5
sys.exit("torch" in sys.modules)
"""
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, timeout=TIMEOUT_S).returncode == 0


def test_one_worker_serves_all_nodes_of_a_grid_in_memory(experiment: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    prepare = client_work.prepare_client
    monkeypatch.setattr(client_work, "prepare_client", lambda *given: built.append(given) or prepare(*given))
    client = OneClient(experiment(engine={"block": 1}), {})
    for round in (1, 2, 3):
        client.ask(round, accepted=0)
    assert len(built) == 1
    ids = client.grid.push_messages([hello_message(RUN, "n", client.grid.ids[0], 9.0)])
    reply = next(iter(client.grid.pull_messages(ids)))
    assert read_hello(reply, "n").version == dragfl.__version__
