"""pfl-research: FederatedAveraging on its SimulatedBackend, one central iteration per call, in one process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional as nnf

from benchmarks.bare import Preloaded
from benchmarks.workloads import ENDLESS, LR, Workload

NAME, DISTRIBUTION = "pfl-research", "pfl"


class Net(nn.Sequential):
    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        return nnf.cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, float]:
        return {}


def round_of(workload: Workload, given: Preloaded) -> Callable[[], object]:
    net = Net(*workload.module(workload.data()))
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    own = [mine[: workload.steps * workload.batch] for mine in given.rows]
    users = [PyTorchTensorDataset((given.x[mine], given.y[mine])) for mine in own]
    sampler = get_user_sampler("minimize_reuse", np.arange(workload.clients).tolist())
    everyone = FederatedDataset(users.__getitem__, sampler)
    backend = SimulatedBackend(training_data=everyone, val_data=everyone)
    train = NNTrainHyperParams(local_batch_size=workload.batch, local_num_epochs=1, local_learning_rate=LR)
    algorithm, played = FederatedAveraging(), iter(range(1, ENDLESS))

    def round() -> None:
        until = NNAlgorithmParams(next(played), ENDLESS, workload.per_round, 0)  # evaluated in round 0 alone
        algorithm.run(until, backend, model, train, None, send_metrics_to_platform=False)

    return round
