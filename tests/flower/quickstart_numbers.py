"""The numbers of examples/flower_quickstart/README.md: `python -m tests.flower.quickstart_numbers [seeds] [rounds]`.

The app runs on a grid in memory, which has the arithmetic of a real federation. Flower's own strategies draw their
nodes with the module `random`, which is seeded here.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.serverapp.strategy import FedAvg, FedMedian

from dragfl.flower import AlgorithmStrategy, BRDragStrategy, DragStrategy
from tests.flower.local_grid import LocalGrid

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "flower_quickstart"))
NODES, ATTACKERS, EPOCHS, LR = 10, 3, 5, 0.1


def flipped(app: Callable[[Message, Context], Message]) -> Callable[[Message, Context], Message]:
    """A malicious client: it sends the negated update."""

    def handler(message: Message, context: Context) -> Message:
        reply = app(message, context)
        sent = message.content.array_records["arrays"]
        for record in reply.content.array_records.values():
            for name, array in record.items():
                record[name] = Array(2 * sent[name].numpy() - array.numpy())
        return reply

    return handler


def accuracies(strategy: FedAvg, seed: int, rounds: int, attackers: int) -> list[float]:
    """The test accuracy after each round."""
    from quickstart.client_app import app
    from quickstart.server_app import evaluate
    from quickstart.task import Net

    random.seed(seed)
    torch.manual_seed(seed)
    apps = [flipped(app) if i < attackers else app for i in range(NODES)]
    config = {"local-epochs": EPOCHS, "lr": LR, "seed": seed}
    grid = LocalGrid(apps, [{"partition-id": i, "num-partitions": NODES} for i in range(NODES)], run_config=config)
    initial = ArrayRecord(Net().state_dict())
    result = strategy.start(grid, initial, num_rounds=rounds, evaluate_fn=evaluate)
    return [float(str(result.evaluate_metrics_serverapp[t]["accuracy"])) for t in range(1, rounds + 1)]


def root(arrays: ArrayRecord, server_round: int) -> Any:
    from quickstart.task import Net, load_root, train

    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    torch.manual_seed(server_round)
    train(net, *load_root(), EPOCHS, LR)
    return net.state_dict()


half = {"fraction_train": 0.5, "fraction_evaluate": 0.0}
everyone = {"fraction_evaluate": 0.0}
RUNS: dict[str, tuple[int, Callable[[int], FedAvg]]] = {
    "no attack: FedAvg of Flower": (0, lambda seed: FedAvg(**half)),
    "no attack: DragStrategy": (0, lambda seed: DragStrategy(c=0.25, alpha=0.25, seed=seed, **half)),
    "3 of 10 flip: FedAvg of Flower": (ATTACKERS, lambda seed: FedAvg(**everyone)),
    "3 of 10 flip: FedMedian of Flower": (ATTACKERS, lambda seed: FedMedian(**everyone)),
    "3 of 10 flip: DragStrategy": (ATTACKERS, lambda seed: DragStrategy(c=0.25, alpha=0.25, seed=seed, **everyone)),
    "3 of 10 flip: root samples alone": (
        ATTACKERS,
        lambda seed: AlgorithmStrategy("root_only", root=root, seed=seed, **everyone),
    ),
    "3 of 10 flip: BRDragStrategy": (ATTACKERS, lambda seed: BRDragStrategy(root, c=0.5, seed=seed, **everyone)),
}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    for name, (attackers, make) in RUNS.items():
        runs = np.array([accuracies(make(seed), seed, rounds, attackers) for seed in range(100, 100 + seeds)])
        last, ten = runs[:, -1], runs[:, -10:].mean(1)
        means = [f"{values.mean():.3f} +- {values.std(ddof=1):.3f}" for values in (last, ten)]
        text = f"last round {means[0]}, mean of the last ten {means[1]}"
        print(f"{name:34} {text}\n    {last.round(3).tolist()}", flush=True)  # noqa: T201
