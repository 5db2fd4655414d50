"""Faults of real federations with TLS and node authentication: nodes and SuperLink killed, stragglers, stopped runs.

Clients wait at gates (`gated_digits`), so every fault happens in a known round. All waits are for states.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl.runs.directory import METRICS, MODEL
from tests.conftest import shell
from tests.flower.native import Federation
from tests.flower.supervised import ALL, SupervisedFleet, missing
from tests.runs.processes import count_lines

pytestmark = pytest.mark.slow

TABLES: dict[str, Any] = {
    "name": "faults",
    "seed": 5,
    "rounds": 6,
    "data": {"dataset": "tests.flower.gated_digits:digits", "partition": {"kind": "sorted_shards"}},
    "clients": {"total": 4, "local_steps": 2, "batch_size": 10},
    "algorithm": {"name": "scaffold"},
    "model": {"name": "logistic"},
    "evaluation": {"every": 1},
    "engine": {"block": 1, "executor": "flower"},
    "flower": {"deadline": 3600.0},
}


def simulated(experiment: dragfl.Experiment, folder: Path) -> Path:
    return dragfl.run(dragfl.load(experiment.tables(), "engine.executor=local"), folder).path


def assert_same_bytes(run: Path, other: Path) -> None:
    assert (run / METRICS).read_bytes() == (other / METRICS).read_bytes()
    assert (run / MODEL).read_bytes() == (other / MODEL).read_bytes()


def assert_model_without(lost: set[tuple[int, int]], experiment: dragfl.Experiment, run: Path, folder: Path) -> None:
    """The model of a run is that of a grid in memory that loses the replies of these (round, client)."""
    federation = Federation(experiment, folder / "states")
    federation.grid.drop = lambda client, round: (round, client) in lost
    expected, found = federation.run(folder / "expected").model(), dragfl.load_run(run).model()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def report_of(run: Path) -> dict[str, Any]:
    """The nodes in `dragfl report`, by name: rounds used, and rounds missing by reason."""
    done = shell("report", run, "--json", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    return {row["node"]: row for row in json.loads(done.stdout)["nodes"][0]["nodes"]}


def test_a_node_killed_in_mid_round_is_left_out_and_takes_part_again(tmp_path: Path) -> None:
    """All clients are in round 2. `kill -9` of the SuperNode of client 1 and of the ClientApp of client 2. The run
    completes; the report names nodes and reasons. The restarted SuperNode is refused by SuperLink for up to a minute,
    connects in the end, and goes on as client 1 with its old state.
    """
    experiment, run = dragfl.load(TABLES, "rounds=4"), tmp_path / "r"
    with SupervisedFleet(tmp_path / "fleet") as fleet:
        fleet.allow(1)
        fleet.start_nodes()
        id = fleet.start_run(experiment, run)
        fleet.wait_for_visit(2)
        fleet.kill("node-1")
        fleet.kill_client_app("node-2")
        others = ["node-0", "node-2", "node-3"]
        fleet.allow(2, *others)
        fleet.wait_for_visit(3, *others)  # they are in round 3 until node-1 is back
        assert missing(run) == {(2, 1, "offline"), (2, 2, "client error")}
        fleet.wait(lambda: fleet.connections("node-1") == 2)
        fleet.allow(ALL)
        assert fleet.outcome(id, run) == "finished:completed", fleet.server_log(id)
    round_3 = {(3, 1, "offline")} & missing(run)  # it may have connected before that round
    assert missing(run) == {(2, 1, "offline"), (2, 2, "client error")} | round_3
    assert_model_without({(round, client) for round, client, _ in missing(run)}, experiment, run, tmp_path)
    assert not any(row.get("lost_states") for row in dragfl.load_run(run).metrics)
    rows = report_of(run)
    assert rows["node-1"]["client"] == 1
    assert rows["node-1"]["missing"] == {"offline": [2, 3] if round_3 else [2]}
    assert rows["node-2"]["missing"] == {"client error": [2]}
    assert [rows[name]["used"] for name in ("node-0", "node-2", "node-3")] == [4, 3, 4]
    assert "node-1" in shell("report", run, cwd=tmp_path).stdout


def test_with_process_isolation_a_run_goes_on_without_its_superlink(tmp_path: Path) -> None:
    """SuperLink is killed while all clients are in round 4, and started again by its supervisor. Nothing is lost."""
    experiment, run = dragfl.load(TABLES), tmp_path / "r"
    with SupervisedFleet(tmp_path / "fleet", process_isolation=True) as fleet:
        fleet.allow(3)
        fleet.start_nodes()
        id = fleet.start_run(experiment, run)
        fleet.wait_for_visit(4)
        fleet.kill("superlink")
        fleet.allow(ALL)
        assert fleet.outcome(id, run) == "finished:completed", fleet.server_log(id)
        assert [fleet.connections(name) for name in fleet.names] == [1] * 4
    assert_same_bytes(run, simulated(experiment, tmp_path / "simulated"))


def test_a_run_is_stopped_and_continued_by_the_same_nodes(tmp_path: Path) -> None:
    """`flwr stop` in round 3; then SuperLink, whose child the ServerApp is, killed in round 5. Each time the next
    `flwr run` continues after the last complete round, without a periodic checkpoint. No state is lost.
    """
    experiment, run = dragfl.load(TABLES, "checkpoint.every=100"), tmp_path / "r"
    with SupervisedFleet(tmp_path / "fleet") as fleet:
        fleet.allow(2)
        fleet.start_nodes()
        id = fleet.start_run(experiment, run)
        fleet.wait_for_visit(3)
        fleet.stop(id)
        assert fleet.outcome(id, run) == "finished:stopped"
        assert count_lines(run) == 2

        fleet.allow(5)  # round 3 again, round 4
        id = fleet.start_run(experiment, run)
        fleet.wait_for_visit(6)
        fleet.kill("superlink")
        assert fleet.outcome(id, run) == "finished:failed"
        assert count_lines(run) == 4

        fleet.allow(ALL)
        id = fleet.start_run(experiment, run)
        assert fleet.outcome(id, run) == "finished:completed", fleet.server_log(id)
        assert "continuing the run" in fleet.server_log(id)
        assert fleet.visits() == [8] * 4, "six rounds, and rounds 3 and 5 twice"
    assert_same_bytes(run, simulated(experiment, tmp_path / "simulated"))


def test_a_straggler_is_left_out_at_the_deadline(tmp_path: Path) -> None:
    """Client 2 does not reply in round 2 before the deadline. Its late reply is not used, and it takes part again.

    On a very slow machine other replies are late too; they are left out in the same way.
    """
    experiment, run = dragfl.load(TABLES, "rounds=4", "flower.deadline=120"), tmp_path / "r"
    with SupervisedFleet(tmp_path / "fleet") as fleet:
        fleet.allow(1, "node-2")
        fleet.start_nodes()
        id = fleet.start_run(experiment, run)
        fleet.wait_for_round(run, 2)
        fleet.allow(ALL)
        assert fleet.outcome(id, run) == "finished:completed", fleet.server_log(id)
    lost = {(round, client) for round, client, _ in missing(run)}
    assert (2, 2, "no reply") in missing(run)
    assert not {(3, 2), (4, 2)} <= lost
    assert_model_without(lost, experiment, run, tmp_path)
    assert 2 in report_of(run)["node-2"]["missing"]["no reply"]


def test_br_drag_with_ten_nodes_of_which_four_flip_the_sign(tmp_path: Path) -> None:
    """The federation has the simulator's accuracy and bits, and FedAvg learns less under this attack."""
    experiment = dragfl.load(
        {
            **TABLES,
            "rounds": 3,
            "data": {"dataset": "digits"},
            "clients": {"total": 10, "local_steps": 20, "batch_size": 20},
            "algorithm": {"name": "br_drag", "c": 0.5},
            "root": {"size": 100},
            "attack": {"name": "sign_flip", "attackers": 4},
            "flower": {"deadline": 3600.0, "secure": False},
        }
    )
    run = dragfl.run(experiment, tmp_path / "r")
    assert [sum(row["attacker"]) for row in run.clients] == [4] * 3
    assert_same_bytes(run.path, simulated(experiment, tmp_path / "simulated"))
    tables = {name: table for name, table in experiment.tables().items() if name != "root"}
    tables |= {"algorithm": {"name": "fedavg"}}
    undefended = dragfl.run(dragfl.load(tables, "engine.executor=local"), tmp_path / "fedavg")
    assert run.metrics[-1]["accuracy"] > undefended.metrics[-1]["accuracy"] + 0.2
