"""fluke: its clients and server, in the loop of its CentralizedFL without the progress bars."""

from __future__ import annotations

from collections.abc import Callable

from fluke import FlukeENV
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from torch import nn

from benchmarks.bare import Preloaded
from benchmarks.workloads import LR, Workload

NAME, DISTRIBUTION = "fluke", "fluke-fl"


def round_of(workload: Workload, given: Preloaded) -> Callable[[], object]:
    env = FlukeENV()
    env.set_device("cpu")
    env.set_inmemory(True)
    env.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    data, optimiser = workload.data(), OptimizerConfigurator({"name": "SGD", "lr": LR})
    clients = []
    for m, mine in enumerate(given.rows):
        own = mine[: workload.steps * workload.batch]
        loader = FastDataLoader(
            given.x[own], given.y[own], num_labels=data.classes, batch_size=workload.batch, shuffle=True
        )
        clients.append(Client(m, loader, None, optimiser, nn.CrossEntropyLoss(), local_epochs=1))
    server = Server(workload.module(data), None, clients)
    for client in clients:
        client.set_channel(server.channel)

    def round() -> None:
        cohort = server.get_eligible_clients(workload.per_round / workload.clients)
        server.broadcast_model(cohort)
        for client in cohort:
            client.local_update(1)
        server.aggregate(cohort, server.receive_client_models(cohort, state_dict=False))

    return round
