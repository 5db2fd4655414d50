"""A federation of dragfl's own server and clients on a grid in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dragfl
from dragfl.build import Connect
from dragfl.config.spec import Experiment
from dragfl.engine.simulator import Worker
from dragfl.flower import client_app
from dragfl.flower.accepted import Accepted
from dragfl.flower.backend import FlowerBackend
from dragfl.flower.exchange import Exchange, StopRequest
from dragfl.runs.directory import Run
from dragfl.runs.loop import run_or_resume
from dragfl.runs.simulation import Simulation
from tests.flower.local_grid import LocalGrid


class Federation:
    """The nodes of an experiment, named node0, node1, ...; their states are in `states`. Time is the grid's own."""

    def __init__(self, experiment: Experiment, states: Path, **changes: Any) -> None:
        total = experiment.clients.total
        configs = [{"partition-id": m, "state-dir": str(states / f"node{m}")} for m in range(total)]
        names = [f"node{m}" for m in range(total)]
        arguments = {"names": names, "keys": [name.encode() for name in names], **changes}
        self.experiment = experiment
        self.grid = LocalGrid(arguments.pop("app", client_app(experiment)), configs, **arguments)
        self.stop = StopRequest()
        self.backend: FlowerBackend
        self.store: Accepted

    def connect(self, folder: Path | None = None) -> Connect:
        exchange = Exchange(self.grid, self.stop, self.grid.time, self.grid.sleep)

        def connect(experiment: Experiment, worker: Worker) -> tuple[FlowerBackend, Accepted]:
            self.store = Accepted(worker.info.clients)
            zero_lost = experiment.state.on_missing == "zero"
            self.backend = FlowerBackend(exchange, worker, self.store, experiment.flower, folder, zero_lost)
            return self.backend, self.store

        return connect

    def simulation(self) -> Simulation:
        """Its rounds, without a run directory."""
        return Simulation(self.experiment, None, self.connect())

    def run(self, folder: Path, **options: Any) -> Run:
        """Run into a folder, or continue there."""
        should_stop = options.pop("should_stop", lambda: self.stop.asked)
        return run_or_resume(self.experiment, folder, connect=self.connect(folder), should_stop=should_stop, **options)


def without_nodes(record: dragfl.RoundRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """(metrics, clients) of a record as the simulator has them."""
    return dict(record.metrics), {name: column for name, column in record.clients.items() if name != "node"}
