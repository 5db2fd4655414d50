"""Pre-aggregators: rows that are easier to aggregate, for any rule after them.

NNM, nearest-neighbour mixing: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan: Fixing by Mixing: A Recipe for
Optimal Byzantine ML under Heterogeneity, AISTATS 2023.

    g_i <- mean of the n - f updates nearest to g_i, itself included

Bucketing: Karimireddy, He, Jaggi: Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, ICLR 2022.

    shuffle the updates, cut them into buckets of s, average inside each; an incomplete last bucket is kept

ARC, adaptive robust clipping: Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan: Adaptive Gradient Clipping for
Robust Federated Learning, ICLR 2025.

    clip the floor(2 f (n - f) / n) longest updates to the length of the next longest one

Each is a matrix P on the rows, so that a chain of them costs one product, and the dots of P X are P G P^T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dragfl.aggregates.robust.contract import check_settings, majority
from dragfl.aggregates.robust.gram import Gram
from dragfl.lazy import Tensor, torch


@dataclass(frozen=True)
class NNM:
    """Every update becomes the mean of the n - f nearest to it. Ties go to the lowest index.

    | argument | symbol |
    |---|---|
    | f | f, assumed number of malicious updates; by default that of the chain |
    """

    f: int | None = None
    name: ClassVar[str] = "nnm"

    def __post_init__(self) -> None:
        check_settings(self)

    least = majority

    def matrix(self, gram: Gram, f: int, rng: np.random.Generator) -> Tensor:
        keep = len(gram) - f
        nearest = gram.squared.clone().fill_diagonal_(-1.0).sort(dim=1, stable=True).indices[:, :keep]
        return torch.zeros_like(gram.squared).scatter_(1, nearest, 1.0 / keep)


@dataclass(frozen=True)
class Bucketing:
    """Means of random buckets of updates.

    | argument | symbol |
    |---|---|
    | size | s, updates in a bucket |
    | f | f, assumed number of malicious updates, hence of affected buckets; by default that of the chain |
    """

    size: int = 2
    f: int | None = None
    name: ClassVar[str] = "bucketing"

    def __post_init__(self) -> None:
        check_settings(self)

    def least(self, f: int) -> int:
        """More than 2f buckets."""
        return 2 * f * self.size + 1

    def rows(self, n: int) -> int:
        return -(-n // self.size)

    def matrix(self, gram: Gram, f: int, rng: np.random.Generator) -> Tensor:
        n = len(gram)
        P = torch.zeros(self.rows(n), n, dtype=torch.float64)
        shuffled = torch.from_numpy(rng.permutation(n))
        for row in range(len(P)):
            bucket = shuffled[row * self.size : (row + 1) * self.size]
            P[row, bucket] = 1.0 / len(bucket)
        return P.to(gram.X.device)


@dataclass(frozen=True)
class ARC:
    """The longest updates clipped to the length of the next longest.

    | argument | symbol |
    |---|---|
    | f | f, assumed number of malicious updates; by default that of the chain |
    """

    f: int | None = None
    name: ClassVar[str] = "arc"

    def __post_init__(self) -> None:
        check_settings(self)

    least = majority

    def matrix(self, gram: Gram, f: int, rng: np.random.Generator) -> Tensor:
        n = len(gram)
        clipped = 2 * f * (n - f) // n
        longest = gram.norms.sort().values[n - clipped - 1]
        return torch.where(gram.norms > longest, longest / gram.norms.clamp_min(1e-300), 1.0).diag()
