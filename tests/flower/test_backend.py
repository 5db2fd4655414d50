"""A federation with faults: late, lost, doubled and failing nodes are left out and counted; states stay right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Context, Message
from torch import Tensor

import dragfl
from dragfl.errors import DragflError
from dragfl.flower import client_app
from dragfl.flower.client_states import load_state
from dragfl.runs.simulation import Simulation
from tests.conftest import Load
from tests.flower.local_grid import LocalGrid, over_the_wire
from tests.flower.native import Federation

DEADLINE_S = 20.0
FLOWER = {"flower": {"deadline": DEADLINE_S, "wait": 60.0}}
Fault = Callable[[LocalGrid], None]


def after(experiment: dragfl.Experiment, folder: Path, fault: Fault) -> tuple[Tensor, list[dragfl.RoundRecord]]:
    """(the model, the records) of a federation with a fault; ten seconds pass between rounds."""
    federation = Federation(experiment, folder)
    fault(federation.grid)
    simulation, records = federation.simulation(), []
    for record in simulation:
        records.append(record)
        federation.grid.sleep(10.0)
    return simulation.state.w, records


def lose(node: int, *rounds: int) -> Fault:
    def fault(grid: LocalGrid) -> None:
        grid.drop = lambda n, t: n == node and t in rounds

    return fault


def delay(node: int, seconds: float, *rounds: int) -> Fault:
    def fault(grid: LocalGrid) -> None:
        grid.delay = lambda n, t: seconds if n == node and t in rounds else 0.0

    return fault


def double(node: int) -> Fault:
    def fault(grid: LocalGrid) -> None:
        grid.doubled = lambda n, t: n == node and t > 0

    return fault


def column(record: dragfl.RoundRecord, name: str) -> dict[int, Any]:
    return dict(zip(record.clients["client"], record.clients[name], strict=True))


@pytest.mark.parametrize("algorithm", ["fedavg", "drag", "scaffold", "median", "mime"])
@pytest.mark.parametrize("block", [1, 4])
def test_a_straggler_is_left_out_and_its_late_reply_counted(
    experiment: Load, tmp_path: Path, algorithm: str, block: int
) -> None:
    """Node 2 replies five seconds after the deadline in round 2; the model is that of a run that lost the reply."""
    spec = experiment(rounds=4, algorithm={"name": algorithm}, engine={"block": block}, **FLOWER)
    w, records = after(spec, tmp_path / "late", delay(2, DEADLINE_S + 5.0, 2))
    expected, lost = after(spec, tmp_path / "lost", lose(2, 2))
    assert torch.equal(w, expected)
    assert column(records[1], "reason") == {2: "no reply"} | dict.fromkeys([0, 1, 3, 4, 5])
    assert column(records[1], "node") == {m: f"node{m}" for m in range(6)}
    assert records[1].metrics["used"] == 5 and records[1].metrics["missing"] == 1
    assert "reason" not in records[0].clients and "reason" not in records[2].clients
    exchanges = 2 if algorithm == "mime" else 1
    assert [r.metrics.get("late") for r in records] == [None, None, exchanges, None]
    assert not any("late" in r.metrics or "refused" in r.metrics for r in lost)


def test_a_straggler_of_the_first_block_costs_no_later_block(experiment: Load, tmp_path: Path) -> None:
    """Replies of later blocks have come long before the deadline, and are pulled after it."""
    spec = experiment(rounds=1, engine={"block": 1}, **FLOWER)
    _, records = after(spec, tmp_path, lose(0, 1))
    assert column(records[0], "dropped") == {m: m == 0 for m in range(6)}


def test_a_reply_before_the_deadline_is_used(experiment: Load, tmp_path: Path) -> None:
    spec = experiment(engine={"block": 4}, **FLOWER)
    w, records = after(spec, tmp_path, delay(0, DEADLINE_S - 1.0, 1, 2, 3))
    assert torch.equal(w, list_model(dragfl.simulate(spec)))
    assert all(r.metrics["used"] == 6 for r in records)


def list_model(simulation: Simulation) -> Tensor:
    list(simulation)
    return simulation.state.w


def test_a_doubled_reply_counts_once(experiment: Load, tmp_path: Path) -> None:
    spec = experiment(algorithm={"name": "drag"}, **FLOWER)
    federation = Federation(spec, tmp_path)
    double(3)(federation.grid)
    simulation = federation.simulation()
    records = list(simulation)
    assert torch.equal(simulation.state.w, list_model(dragfl.simulate(spec)))
    assert [r.metrics["refused"] for r in records] == [1, 1, 1]
    assert federation.backend.refusals.counts == {"node3": {"doubled": 3}}
    assert "missing" not in records[0].metrics


def test_an_offline_node_is_not_asked_and_takes_part_when_it_is_back(experiment: Load, tmp_path: Path) -> None:
    federation = Federation(experiment(rounds=4, **FLOWER), tmp_path)
    simulation = federation.simulation()
    simulation.step()
    federation.grid.offline = {1, 4}
    record = simulation.step()
    assert column(record, "reason") == {1: "offline", 4: "offline"} | dict.fromkeys([0, 2, 3, 5])
    assert not {(1, "train", 2), (4, "train", 2)} & set(federation.grid.sent)
    federation.grid.offline = set()
    assert simulation.step().metrics["used"] == 6


def test_a_node_that_leaves_while_it_trains_is_missing(experiment: Load, tmp_path: Path) -> None:
    federation = Federation(experiment(rounds=1, engine={"block": 1}, **FLOWER), tmp_path)

    def delay(node: int, round: int) -> float:
        federation.grid.offline |= {1} if round == 1 else set()
        return 0.0

    federation.grid.delay = delay
    (record,) = federation.simulation()
    assert column(record, "reason")[1] == "offline" and record.metrics["used"] == 5


def test_a_node_that_leaves_before_the_message_is_missing(experiment: Load, tmp_path: Path) -> None:
    """It is in the list of nodes, and SuperLink does not take the message."""
    federation = Federation(experiment(rounds=2, **FLOWER), tmp_path)
    simulation = federation.simulation()
    simulation.step()
    push, gone = federation.grid.push_messages, federation.grid.ids[5]

    def unknown(messages: Any) -> list[str]:
        ids = push(messages)
        return ["" if m.metadata.dst_node_id == gone else id for m, id in zip(messages, ids, strict=True)]

    federation.grid.push_messages = unknown  # type: ignore[method-assign]
    record = simulation.step()
    assert column(record, "reason")[5] == "offline" and record.metrics["used"] == 5


def test_an_error_of_a_client_is_counted_and_logged_once_with_its_text(
    experiment: Load, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = experiment(**FLOWER)
    app = client_app(spec)

    def broken(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            raise RuntimeError("disk on fire")
        return app(message, context)

    federation = Federation(spec, tmp_path, app=[broken if m == 4 else app for m in range(6)])
    simulation = federation.simulation()
    records = list(simulation)
    assert [r.metrics["errors"] for r in records] == [1, 1, 1]
    assert all(column(r, "reason")[4] == "client error" for r in records)
    assert federation.backend.refusals.counts == {"node4": {"client error": 3}}
    assert caplog.text.count("disk on fire") == 1
    expected, _ = after(spec, tmp_path / "lost", lose(4, 1, 2, 3))
    assert torch.equal(simulation.state.w, expected)


@pytest.mark.parametrize("works_in", [0, 2])
def test_nodes_that_never_work_end_the_run(experiment: Load, tmp_path: Path, works_in: int) -> None:
    """Without a state-dir SCAFFOLD fails at every client; once a client has worked, the run goes on."""
    spec = experiment(rounds=5, algorithm={"name": "scaffold"}, **FLOWER)
    federation = Federation(spec, tmp_path)
    configs = [context.node_config for context in federation.grid.contexts]
    folders = [config.pop("state-dir") for config in configs]
    records, simulation = [], federation.simulation()

    def run() -> None:
        for record in simulation:
            records.append(record)
            if record.round == works_in - 1:
                configs[0]["state-dir"] = folders[0]

    if works_in:
        run()
        assert [r.metrics["used"] for r in records] == [0, 1, 1, 1, 1]
        return
    with pytest.raises(DragflError, match=r"every client has failed in 3 rounds, .*state-dir: there is none"):
        run()
    assert len(records) == 2


def test_a_reply_to_nothing_that_was_asked_is_counted_and_changes_nothing(experiment: Load, tmp_path: Path) -> None:
    spec = experiment(rounds=1, **FLOWER)
    federation = Federation(spec, tmp_path)
    pull = federation.grid.pull_messages

    def with_another(ids: Any) -> list[Message]:
        replies = list(pull(ids))
        for reply in list(replies):
            if reply.metadata.message_type == "train" and reply.metadata.src_node_id == federation.grid.ids[2]:
                forged = over_the_wire(reply)
                forged.metadata.__dict__["_reply_to_message_id"] = "ab" * 32
                replies.append(forged)
        return replies

    federation.grid.pull_messages = with_another  # type: ignore[method-assign]
    simulation = federation.simulation()
    (record,) = simulation
    assert torch.equal(simulation.state.w, list_model(dragfl.simulate(spec)))
    assert record.metrics["refused"] == 1 and record.metrics["used"] == 6
    assert federation.backend.refusals.counts == {"unknown": {"unknown node": 1}}


def test_too_few_replies_leave_the_model_and_the_states_as_they_are(experiment: Load, tmp_path: Path) -> None:
    """Five of six replies are required; in round 2 two are lost, and round 3 continues from the states of round 1."""
    flower = {"flower": FLOWER["flower"] | {"min_replies": 5}}
    federation = Federation(experiment(algorithm={"name": "scaffold"}, **flower), tmp_path)
    federation.grid.drop = lambda node, round: round == 2 and node < 2
    simulation = federation.simulation()
    simulation.step()
    before = simulation.state.w.clone()
    assert simulation.step().metrics["skipped"] == "4 usable replies, 5 required"
    assert torch.equal(simulation.state.w, before) and federation.store.accepted == [1] * 6
    assert "lost_states" not in simulation.step().metrics and federation.store.accepted == [3] * 6


def test_a_round_waits_for_nodes_while_too_few_are_online(experiment: Load, tmp_path: Path) -> None:
    """All nodes are away for 15 seconds: the round begins when they are back, and is not skipped."""
    federation = Federation(experiment(rounds=2, **FLOWER), tmp_path)
    simulation, grid = federation.simulation(), federation.grid
    simulation.step()
    grid.offline, sleep, back = set(range(6)), grid.sleep, grid.time() + 15.0

    def wake(seconds: float) -> None:
        sleep(seconds)
        grid.offline = set() if grid.time() >= back else grid.offline

    federation.backend._exchange._sleep = wake
    assert simulation.step().metrics["used"] == 6


def test_a_round_without_any_node_is_skipped_after_the_deadline(experiment: Load, tmp_path: Path) -> None:
    federation = Federation(experiment(rounds=2, algorithm={"name": "median"}, **FLOWER), tmp_path)
    simulation = federation.simulation()
    simulation.step()
    federation.grid.offline, before = set(range(6)), federation.grid.time()
    record = simulation.step()
    assert record.metrics["skipped"] == "no usable update" and record.metrics["missing"] == 6
    assert federation.grid.time() >= before + DEADLINE_S


def test_a_round_in_which_nobody_is_available_has_no_reasons_of_another(experiment: Load, tmp_path: Path) -> None:
    clients = {"per_round": 1, "availability": 0.3}
    spec = experiment(rounds=12, clients=clients, engine={"block": 1}, **FLOWER)
    federation = Federation(spec, tmp_path)
    federation.grid.drop = lambda node, round: round > 0
    for record in federation.simulation():
        asked = any(sent[1:] == ("train", record.round) for sent in federation.grid.sent)
        assert ("reason" in record.clients) == asked


class TestStates:
    """SCAFFOLD keeps c = mean of c_i over all clients, whatever replies are lost."""

    ROUNDS = 6

    def drift(self, spec: dragfl.Experiment, folder: Path, app: Any = None) -> float:
        """|c - mean c_i| / |c| where replies are lost in two rounds."""
        federation = Federation(spec, folder, **({} if app is None else {"app": app}))
        federation.grid.drop = lambda node, round: (node, round) in {(0, 2), (1, 2), (2, 2), (0, 4), (3, 4)}
        simulation = federation.simulation()
        list(simulation)
        c, keeps = simulation.state.correction.c.double(), simulation.federation.worker.local.keeps
        accepted = enumerate(federation.store.accepted)
        states = [self.state(folder / f"node{m}", round, keeps, app is not None) for m, round in accepted]
        return float((c - torch.stack(states).double().mean(0)).norm() / c.norm())

    def state(self, node: Path, accepted: int, keeps: Any, naive: bool) -> Tensor:
        folder = next(node.glob("*/client-*"))
        newest = max(int(path.stem.removeprefix("round-")) for path in folder.iterdir())
        state = load_state(folder, newest if naive else accepted, keeps)
        assert state is not None
        return state["c"]

    def test_lost_replies_leave_the_controls_consistent(self, experiment: Load, tmp_path: Path) -> None:
        spec = experiment(rounds=self.ROUNDS, algorithm={"name": "scaffold"}, **FLOWER)
        assert self.drift(spec, tmp_path) < 1e-6

    def test_a_client_that_commits_at_once_would_drift(self, experiment: Load, tmp_path: Path) -> None:
        """It takes the round that it trained last for the accepted one."""
        spec = experiment(rounds=self.ROUNDS, algorithm={"name": "scaffold"}, **FLOWER)
        app, last = client_app(spec), dict[int, int]()

        def naive(message: Message, context: Context) -> Message:
            if message.metadata.message_type == "train":
                order = message.content["order"]
                assert isinstance(order, ConfigRecord)
                order["accepted"] = last.get(context.node_id, 0)
                last[context.node_id] = int(message.metadata.group_id)
            return app(message, context)

        assert self.drift(spec, tmp_path, naive) > 0.05

    @pytest.mark.parametrize("on_missing", ["error", "zero"])
    def test_a_lost_state_is_refused_or_begins_from_zeros(
        self, experiment: Load, tmp_path: Path, on_missing: str
    ) -> None:
        """The files of node 1 are deleted after round 1."""
        spec = experiment(algorithm={"name": "scaffold"}, state={"on_missing": on_missing}, **FLOWER)
        federation = Federation(spec, tmp_path)
        simulation = federation.simulation()
        simulation.step()
        for path in (tmp_path / "node1").rglob("*.safetensors"):
            path.unlink()
        record = simulation.step()
        if on_missing == "zero":
            assert record.metrics["lost_states"] == 1 and record.metrics["used"] == 6
            assert "lost_states" not in simulation.step().metrics
        else:
            assert column(record, "reason")[1] == "state lost" and record.metrics["used"] == 5
