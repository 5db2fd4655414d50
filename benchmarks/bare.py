"""The bare loop: what a careful person writes first.

Preloaded float tensors, one model, `torch.optim.SGD`, `load_state_dict` between clients, updates collected and
averaged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as nnf

from benchmarks.works import LR, SEED, Work


@dataclass(frozen=True)
class Preloaded:
    """Float inputs, labels, and the rows of every client: what the bare loop and the peers start from."""

    x: Tensor
    y: Tensor
    rows: tuple[Tensor, ...]


def preload(work: Work) -> Preloaded:
    data, draws = work.data(), torch.Generator().manual_seed(SEED)
    n = len(data.y)
    dealt = torch.randperm(n, generator=draws).chunk(work.clients)
    drawn = None if work.share is None else torch.randint(n, (work.clients, work.share), generator=draws).unbind()
    return Preloaded(data.x.float().div_(255.0), data.y, drawn or dealt)


def bare_loop(work: Work, given: Preloaded) -> Callable[[], None]:
    """A round of it."""
    model = work.module(work.data())
    weights = copy.deepcopy(model.state_dict())

    def client(mine: Tensor) -> dict[str, Tensor]:
        model.load_state_dict(weights)
        optimiser = torch.optim.SGD(model.parameters(), lr=LR)
        for _ in range(work.steps):
            batch = mine[torch.randint(len(mine), (work.batch,))]
            optimiser.zero_grad()
            nnf.cross_entropy(model(given.x[batch]), given.y[batch]).backward()
            optimiser.step()
        return {name: value - weights[name] for name, value in model.state_dict().items()}

    def round() -> None:
        cohort = torch.randperm(work.clients)[: work.per_round].tolist()
        updates = [client(given.rows[m]) for m in cohort]
        for name in weights:
            weights[name] += torch.stack([update[name] for update in updates]).mean(0)

    return round
