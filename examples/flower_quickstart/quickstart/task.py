"""The model, the data and the training of this app. Nothing here knows of the aggregation."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

TEST, ROOT = 500, 100  # samples that only the server has: to evaluate, and to train on
SHARDS = 2  # of each client


class Net(nn.Module):
    """One hidden layer on images of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.output = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.relu(self.hidden(x)))


def load_samples() -> tuple[Tensor, Tensor]:
    """Scikit-learn's digits in a fixed random order: test samples, root samples, then those of the clients."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return torch.tensor(pixels[order] / 16.0, dtype=torch.float32), torch.tensor(labels[order], dtype=torch.int64)


def load_test() -> tuple[Tensor, Tensor]:
    x, y = load_samples()
    return x[:TEST], y[:TEST]


def load_root() -> tuple[Tensor, Tensor]:
    x, y = load_samples()
    return x[TEST : TEST + ROOT], y[TEST : TEST + ROOT]


def load_data(partition: int, partitions: int) -> tuple[Tensor, Tensor]:
    """The samples of one client: sorted by label and cut into shards, of which each client has two."""
    x, y = (values[TEST + ROOT :] for values in load_samples())
    shards = torch.argsort(y, stable=True).tensor_split(SHARDS * partitions)
    owned = np.random.default_rng(1).permutation(SHARDS * partitions)[partition::partitions]
    rows = torch.cat([shards[i] for i in owned])
    return x[rows], y[rows]


def train(net: Net, x: Tensor, y: Tensor, epochs: int, lr: float, batch_size: int = 20) -> float:
    """Plain SGD; the mean loss of the last epoch."""
    optimiser = torch.optim.SGD(net.parameters(), lr=lr)
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(y)).split(batch_size):
            optimiser.zero_grad()
            loss = cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(rows)
    return total / len(y)


def test(net: Net, x: Tensor, y: Tensor) -> tuple[float, float]:
    """(mean loss, accuracy)."""
    with torch.no_grad():
        scores = net(x)
    return float(cross_entropy(scores, y)), float((scores.argmax(1) == y).float().mean())
