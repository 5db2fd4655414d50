"""FedLab: its serial trainer and synchronous server, in the loop of its StandalonePipeline."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.bare import Preloaded
from benchmarks.workloads import ENDLESS, LR, Workload

NAME, DISTRIBUTION = "FedLab", "fedlab"


class Clients:
    """The dataset interface that FedLab expects."""

    def __init__(self, workload: Workload, given: Preloaded) -> None:
        own = [mine[: workload.steps * workload.batch] for mine in given.rows]
        self._sets = [TensorDataset(given.x[mine], given.y[mine]) for mine in own]

    def get_dataloader(self, client: int, batch: int) -> DataLoader:
        return DataLoader(self._sets[client], batch_size=batch, shuffle=True)


def round_of(workload: Workload, given: Preloaded) -> Callable[[], object]:
    model = workload.module(workload.data())
    trainer = SGDSerialClientTrainer(model, workload.clients, cuda=False, logger=logging.getLogger("fedlab"))
    trainer.setup_dataset(Clients(workload, given))
    trainer.setup_optim(1, workload.batch, LR)
    server = SyncServerHandler(
        model, ENDLESS, workload.per_round / workload.clients, logger=logging.getLogger("fedlab")
    )
    server.num_clients = workload.clients

    def round() -> None:
        cohort = server.sample_clients()
        trainer.local_process(server.downlink_package, cohort)
        for update in trainer.uplink_package:
            server.load(update)

    return round
