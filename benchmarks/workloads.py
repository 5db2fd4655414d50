"""The workloads: the training of a round, the same for every contender, and the targets of dragfl.

The data are random numbers: the speed does not depend on them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

import dragfl
from dragfl.models import MODELS

SEED = 0
LR = 0.01
ENDLESS = 10**6  # rounds, and rounds between evaluations: more than any benchmark runs


@dataclass(frozen=True)
class Workload:
    """A round of local training: `per_round` of `clients` clients, `steps` steps of `batch` samples each."""

    name: str
    title: str
    dataset: str  # module:function that makes it, so that worker processes can import it
    model: str
    clients: int
    per_round: int
    steps: int
    batch: int
    to_bare: float | None = None  # target: the time of dragfl divided by the time of the bare loop
    to_floor: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the model
    share: int | None = None  # samples of a client, drawn from all; None: the data are partitioned
    peers: bool = True
    most_repeats: int | None = None

    def data(self) -> dragfl.Dataset:
        made = pkgutil.resolve_name(self.dataset)()
        assert isinstance(made, dragfl.Dataset)
        return made

    def module(self, data: dragfl.Dataset) -> nn.Sequential:
        made = MODELS[self.model](data.shape, data.classes, **self.settings)
        assert isinstance(made, nn.Sequential)
        return made

    def experiment(
        self, algorithm: str, workers: int, root: Mapping[str, Any] | None = None, **engine: Any
    ) -> dragfl.Experiment:
        """The spec of this workload; it never evaluates."""
        partition = {"kind": "iid"} if self.share is None else {"kind": "resampled", "k": self.share}
        return dragfl.load(
            {
                "seed": SEED,
                "rounds": ENDLESS,
                "data": {"dataset": self.dataset, "partition": partition},
                "model": {"name": self.model, **self.settings},
                "clients": {
                    "total": self.clients,
                    "per_round": self.per_round,
                    "local_steps": self.steps,
                    "batch_size": self.batch,
                    "lr": LR,
                },
                "algorithm": {"name": algorithm},
                **({"root": root} if root else {}),
                "evaluation": {"every": ENDLESS},
                "engine": {"workers": workers, **engine},
            }
        )


def noise(shape: tuple[int, ...], classes: int, samples: int) -> dragfl.Dataset:
    """Random pixels with random labels, stored as images are."""
    draws = np.random.default_rng(SEED)
    x = torch.from_numpy(draws.integers(0, 256, (samples, *shape), dtype=np.uint8))
    y = torch.from_numpy(draws.integers(0, classes, samples))
    return dragfl.Dataset("noise", x, y, x[:100], y[:100], classes=classes)


def letters() -> dragfl.Dataset:
    """Random data in the shape of EMNIST."""
    return noise((1, 28, 28), 47, 40_000)


def pictures() -> dragfl.Dataset:
    """Random data in the shape of CIFAR-10."""
    return noise((3, 32, 32), 10, 20_000)


LETTERS, PICTURES = "benchmarks.workloads:letters", "benchmarks.workloads:pictures"
_MLP = {"dataset": LETTERS, "model": "mlp", "clients": 40, "steps": 5}
_W1 = _MLP | {"per_round": 40, "batch": 20, "to_bare": 0.28, "to_floor": 1.5}
_W2 = _MLP | {"per_round": 10, "batch": 10, "to_bare": 0.32, "to_floor": 2.4}
_CNN = {"dataset": PICTURES, "model": "cnn", "clients": 20, "per_round": 20, "steps": 5, "batch": 20, "to_floor": 1.25}
_MANY = {
    "dataset": LETTERS,
    "model": "logistic",
    "clients": 10_000,
    "per_round": 10_000,
    "steps": 5,
    "share": 50,
    "peers": False,
    "most_repeats": 3,
}

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", "MLP 784-500-47, 40 of 40 clients, 5 steps of 20", **_W1),
        Workload("W2", "MLP 784-500-47, 10 of 40 clients, 5 steps of 10", **_W2),
        Workload("W3", "CNN on 3x32x32, 20 of 20 clients, 5 steps of 20", **_CNN),
        Workload("W5", "logistic 784-47, 10,000 clients, 5 steps of 10", batch=10, **_MANY),
    )
}
