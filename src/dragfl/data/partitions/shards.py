"""Equal parts of the samples, shuffled or sorted by label: iid, sorted_shards, shards, gamma_similarity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragfl.data.partitions.split import Split, check_clients, check_integer, check_number
from dragfl.errors import DataError


@dataclass(frozen=True)
class IID:
    """A random permutation, cut into equal parts."""

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("iid", labels, clients)
        return Split.from_parts(np.array_split(rng.permutation(len(labels)), clients))


@dataclass(frozen=True)
class SortedShards:
    """The samples sorted by label, cut into equal contiguous parts: q = 1 in the DRAG authors' code."""

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("sorted_shards", labels, clients)
        return Split.from_parts(np.array_split(np.argsort(labels, kind="stable"), clients))


@dataclass(frozen=True)
class Shards:
    """The samples sorted by label and cut into k*M equal shards, k random shards to each of M clients.

    H. B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS
    2017.
    """

    k: int = 2  # shards of each client

    def __post_init__(self) -> None:
        check_integer("shards", "k", self.k, 1)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("shards", labels, clients)
        if self.k * clients > len(labels):
            raise DataError(
                f"data.partition: shards: k={self.k} shards for each of {clients} clients are more than the "
                f"{len(labels)} samples; lower k or clients.total"
            )
        shards = np.array_split(np.argsort(labels, kind="stable"), self.k * clients)
        assigned = rng.permutation(self.k * clients).reshape(clients, self.k)
        return Split.from_parts([np.concatenate([shards[i] for i in own]) for own in assigned])


@dataclass(frozen=True)
class GammaSimilarity:
    """A fraction gamma of the samples is assigned IID, the rest sorted by label and cut into equal parts.

    gamma = 1 is iid, gamma = 0 is sorted_shards. S. P. Karimireddy et al., SCAFFOLD, ICML 2020 ("similarity").
    """

    gamma: float  # fraction of the samples that are IID

    def __post_init__(self) -> None:
        check_number("gamma_similarity", "gamma", self.gamma, 0.0, 1.0)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("gamma_similarity", labels, clients)
        order = rng.permutation(len(labels))
        iid, rest = np.split(order, [round(self.gamma * len(labels))])
        rest = rest[np.argsort(labels[rest], kind="stable")]
        # The larger parts of one half are joined to the smaller of the other, so that sizes differ by at most one.
        random_parts = np.array_split(iid, clients)
        sorted_parts = np.array_split(rest[::-1], clients)[::-1]
        return Split.from_parts([np.concatenate(pair) for pair in zip(random_parts, sorted_parts, strict=True)])
