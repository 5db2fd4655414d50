"""Flower: FedAvg in its simulation runtime, one Ray actor per core. The strategy waits before each round."""

from __future__ import annotations

import logging
from functools import cache, partial
from threading import Semaphore, Thread
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.bare import Preloaded, local_sgd, preload
from benchmarks.workloads import ENDLESS, WORKLOADS, Workload

NAME, DISTRIBUTION, PROCESSES = "Flower", "flwr", True
loaded = cache(lambda name: preload(WORKLOADS[name]))  # once per actor


def client(name: str, message: Message, context: Context) -> Message:
    workload, given = WORKLOADS[name], loaded(name)
    model, mine = workload.module(workload.data()), given.rows[int(context.node_config["partition-id"])]
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    local_sgd(workload, given, model, mine)
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(mine)})}
    return Message(content=RecordDict(content), reply_to=message)


class Paced(FedAvg):
    """FedAvg that waits for a signal before each round."""

    def __init__(self, *settings: float) -> None:
        super().__init__(*settings)
        self.go, self.there, self.over = Semaphore(0), Semaphore(0), False

    def configure_train(self, *arguments: Any) -> Any:
        self.there.release()
        self.go.acquire()
        if self.over:
            raise SystemExit
        return super().configure_train(*arguments)


class Simulation:
    """A simulation in its own thread; a call runs one round."""

    def __init__(self, workload: Workload) -> None:
        logging.getLogger("flwr").setLevel(logging.ERROR)  # its import sets it lower
        self._paced = paced = Paced(workload.per_round / workload.clients, 0.0, workload.per_round, 0, workload.clients)
        server, app = ServerApp(), ClientApp()
        app.train()(partial(client, workload.name))
        arrays = ArrayRecord(workload.module(workload.data()).state_dict())
        server.main()(lambda grid, context: paced.start(grid, arrays, ENDLESS))
        config = {"client_resources": {"num_cpus": 1}, "init_args": {"address": "local", "log_to_driver": False}}
        self._thread = Thread(target=run_simulation, args=(server, app, workload.clients, "ray", config), daemon=True)
        self._thread.start()
        paced.there.acquire()

    def __call__(self) -> None:
        self._paced.go.release()
        self._paced.there.acquire()

    def close(self) -> None:
        self._paced.over = True
        self._paced.go.release()
        self._thread.join(timeout=30)


def round_of(workload: Workload, _: Preloaded) -> Simulation:
    return Simulation(workload)
