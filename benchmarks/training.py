"""Local training of MLP 784-500-47, 40 clients, 5 steps of 20 samples: dragfl against a plain hand-written loop.

Both use one intra-op thread. The plain loop is what a careful person writes first: preloaded float tensors, one model,
`torch.optim.SGD`, `load_state_dict` between clients. The data are random: speed does not depend on them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as nnf

import dragfl
from dragfl.engine.federation import Federation, prepare
from dragfl.engine.round import play
from dragfl.engine.threads import one_thread
from dragfl.engine.worker import Job
from dragfl.types import Now
from timing import interleave

CLIENTS, STEPS, BATCH, LR, SAMPLES = 40, 5, 20, 0.1, 40_000


def federation() -> Federation:
    draws = np.random.default_rng(0)
    x = torch.from_numpy(draws.integers(0, 256, (SAMPLES, 1, 28, 28), dtype=np.uint8))
    y = torch.from_numpy(draws.integers(0, 47, SAMPLES))
    dataset = dragfl.Dataset("random", x, y, x[:100], y[:100], classes=47)
    experiment = dragfl.load(
        {
            "data": {"dataset": dataset, "partition": {"kind": "sorted_shards"}},
            "clients": {"total": CLIENTS, "local_steps": STEPS, "batch_size": BATCH, "lr": LR},
            "algorithm": {"name": "drag", "c": 0.25},
        }
    )
    return prepare(experiment)


def bare_loop(fed: Federation) -> Callable[[], list[dict[str, torch.Tensor]]]:
    """A round of the plain loop: every client from the same weights, its update collected."""
    x = fed.worker.dataset.x.float().div_(255.0)
    y = fed.worker.dataset.y
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 47))
    start = copy.deepcopy(model.state_dict())
    shares = [torch.from_numpy(fed.split.of(m)) for m in range(CLIENTS)]

    def round() -> list[dict[str, torch.Tensor]]:
        updates = []
        for mine in shares:
            model.load_state_dict(start)
            optimiser = torch.optim.SGD(model.parameters(), lr=LR)
            for _ in range(STEPS):
                rows = mine[torch.randint(len(mine), (BATCH,))]
                optimiser.zero_grad()
                nnf.cross_entropy(model(x[rows]), y[rows]).backward()
                optimiser.step()
            updates.append({name: value - start[name] for name, value in model.state_dict().items()})
        return updates

    return round


def measure(repeats: int = 15) -> dict[str, float]:
    """Median seconds of the plain loop, of dragfl's local training, and of a whole round with DRAG's aggregate."""
    fed = federation()
    state = fed.start()
    with one_thread():
        state, _ = play(fed, state)  # round 0 makes the reference

        def train() -> None:
            for block in fed.blocks(tuple(range(CLIENTS))):
                job = Job(block, state.w, {}, Now(1, LR, 0, STEPS), ({},) * len(block))
                fed.worker.train(job)

        contenders = {
            "bare loop": bare_loop(fed),
            "dragfl training": train,
            "dragfl round": lambda: play(fed, state),
        }
        return interleave(contenders, repeats)
