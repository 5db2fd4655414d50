"""Federations of real processes with TLS and node authentication: equal bits, refused keys, and faults.

All waits are for states: a round in the log, a process that has ended.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl.flower.app_files import write_app
from dragfl.flower.certificates import make_node_key
from dragfl.flower.fleet import Fleet
from dragfl.runs.directory import METRICS, MODEL
from tests.conftest import TIMEOUT_S, shell
from tests.flower.processes import below, living, pid_of, wait_until, wait_until_gone
from tests.runs.processes import started_run, wait_for_round

pytestmark = pytest.mark.slow

TABLES: dict[str, Any] = {
    "name": "small",
    "seed": 5,
    "rounds": 3,
    "data": {"dataset": "digits", "partition": {"kind": "sorted_shards"}},
    "root": {"size": 50},
    "clients": {"total": 4, "local_steps": 2, "batch_size": 10},
    "model": {"name": "logistic"},
    "evaluation": {"every": 1},
    "engine": {"block": 1, "executor": "flower"},
    "flower": {"deadline": 3600.0},
}


def simulated(experiment: dragfl.Experiment, folder: Path) -> dragfl.Run:
    return dragfl.run(dragfl.load(experiment.tables(), "engine.executor=local"), folder)


def assert_same_bytes(run: Path, other: Path) -> None:
    assert (run / METRICS).read_bytes() == (other / METRICS).read_bytes()
    assert (run / MODEL).read_bytes() == (other / MODEL).read_bytes()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet"), 4) as fleet:
        fleet.start_nodes()
        yield fleet


class TestOneFederation:
    """Four nodes serve several runs, one after the other."""

    @pytest.mark.parametrize("name", ["fedavg", "drag", "br_drag", "scaffold", "adabest", "trimmed_mean"])
    def test_the_bits_of_the_simulator(self, fleet: Fleet, tmp_path: Path, name: str) -> None:
        experiment, run, app = dragfl.load({**TABLES, "algorithm": {"name": name}}), tmp_path / "r", tmp_path / "app"
        write_app(app, experiment.to_toml(), name)
        submitted = fleet.submit(app, {"run-dir": str(run)})

        while not fleet.status(submitted)[0].startswith("finished"):
            fleet.check()
            time.sleep(1.0)
        assert fleet.status(submitted)[0] == "finished:completed", fleet.server_log(submitted)
        expected = simulated(experiment, tmp_path / "simulated")
        found = dragfl.load_run(run).model()
        assert all(torch.equal(found[key], value) for key, value in expected.model().items())
        assert_same_bytes(run, expected.path)
        assert dragfl.load_run(run).clients[-1]["node"] == ["node-0", "node-1", "node-2", "node-3"]

    def test_an_unregistered_key_is_refused(self, fleet: Fleet) -> None:
        make_node_key(fleet.private, "node-9")
        fleet._start_node("node-9")
        wait_until(lambda: "node-9" in fleet.processes.poll())
        assert fleet.processes.exits.pop("node-9") != 0
        assert "Exit Code: 305" in (fleet.folder / "node-9.log").read_text()


def test_a_run_survives_every_kind_of_end(tmp_path: Path) -> None:
    """SCAFFOLD over six rounds. Ctrl-C after round 1, SuperLink killed after round 3, the command killed after round 4:
    each time no process is left, and `dragfl resume` continues. The bytes are those of the simulator; no state is lost.
    """
    experiment = dragfl.load({**TABLES, "rounds": 6, "algorithm": {"name": "scaffold"}, "checkpoint": {"every": 1}})
    (tmp_path / "x.toml").write_text(experiment.to_toml())
    run = tmp_path / "r"

    with started_run("run", "x.toml", "--out", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 1)
        processes = below(process.pid)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 5, err
    assert re.search(r"dragfl: stopped after round \d; continue with: dragfl resume r\n", err)
    assert len(processes) >= 12
    assert not living(processes)

    with started_run("resume", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 3)
        processes = below(process.pid)
        os.kill(pid_of("flower-superlink", process.pid), signal.SIGKILL)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 5, err
    assert "SuperLink has ended (signal 9)" in err
    assert "continue with: dragfl resume r" in err
    assert not living(processes)

    with started_run("resume", "r", cwd=tmp_path) as process:
        wait_for_round(process, run, 4)
        processes = below(process.pid)
        process.kill()
        process.wait()
        wait_until_gone(processes)
    assert not (run / "result.json").exists()

    done = shell("resume", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "starting SuperLink and 4 SuperNodes on the loopback address (TLS, node authentication)" in done.stdout
    assert_same_bytes(run, simulated(experiment, tmp_path / "simulated").path)
    assert not any(row.get("lost_states") for row in dragfl.load_run(run).metrics)
