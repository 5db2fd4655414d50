"""The bare loop: the plain PyTorch implementation of a round.

Preloaded float tensors, one model, `torch.optim.SGD`, `load_state_dict` between clients, updates collected and
averaged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from benchmarks.workloads import LR, SEED, Workload


@dataclass(frozen=True)
class Preloaded:
    """Float inputs, labels, and the rows of every client, for the bare loop and the peers."""

    x: Tensor
    y: Tensor
    rows: tuple[Tensor, ...]


def preload(workload: Workload) -> Preloaded:
    data, draws = workload.data(), torch.Generator().manual_seed(SEED)
    n = len(data.y)
    rows = torch.randperm(n, generator=draws).chunk(workload.clients)
    if workload.share is not None:
        rows = torch.randint(n, (workload.clients, workload.share), generator=draws).unbind()
    return Preloaded(data.x.float().div_(255.0), data.y, rows)


def local_sgd(workload: Workload, given: Preloaded, model: nn.Module, mine: Tensor) -> None:
    """The local training of the client that holds the rows `mine`."""
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    for _ in range(workload.steps):
        batch = mine[torch.randint(len(mine), (workload.batch,))]
        optimiser.zero_grad()
        nnf.cross_entropy(model(given.x[batch]), given.y[batch]).backward()
        optimiser.step()


def bare_loop(workload: Workload, given: Preloaded) -> Callable[[], None]:
    """Build a function that runs one round."""
    model = workload.module(workload.data())
    weights = copy.deepcopy(model.state_dict())

    def client(mine: Tensor) -> dict[str, Tensor]:
        model.load_state_dict(weights)
        local_sgd(workload, given, model, mine)
        return {name: value - weights[name] for name, value in model.state_dict().items()}

    def round() -> None:
        cohort = torch.randperm(workload.clients)[: workload.per_round].tolist()
        updates = [client(given.rows[m]) for m in cohort]
        for name in weights:
            weights[name] += torch.stack([update[name] for update in updates]).mean(0)

    return round
