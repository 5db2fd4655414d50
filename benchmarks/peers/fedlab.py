"""FedLab: its serial trainer and synchronous server, in the loop of its StandalonePipeline."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.bare import Preloaded
from benchmarks.works import ENDLESS, LR, Work

NAME, DISTRIBUTION = "FedLab", "fedlab"


class Clients:
    """Loaders as FedLab's own datasets give them out."""

    def __init__(self, work: Work, given: Preloaded) -> None:
        own = [mine[: work.steps * work.batch] for mine in given.rows]
        self._sets = [TensorDataset(given.x[mine], given.y[mine]) for mine in own]

    def get_dataloader(self, client: int, batch: int) -> DataLoader:
        return DataLoader(self._sets[client], batch_size=batch, shuffle=True)


def round_of(work: Work, given: Preloaded) -> Callable[[], object]:
    model = work.module(work.data())
    trainer = SGDSerialClientTrainer(model, work.clients, cuda=False, logger=logging.getLogger("fedlab"))
    trainer.setup_dataset(Clients(work, given))
    trainer.setup_optim(1, work.batch, LR)
    server = SyncServerHandler(model, ENDLESS, work.per_round / work.clients, logger=logging.getLogger("fedlab"))
    server.num_clients = work.clients

    def round() -> None:
        cohort = server.sample_clients()
        trainer.local_process(server.downlink_package, cohort)
        for update in trainer.uplink_package:
            server.load(update)

    return round
