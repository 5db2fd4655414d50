"""Statistics of a split: client sizes, classes per client, and the distance from the global label distribution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragfl.data.partitions.split import ClientSplit

MAX_CLIENTS = 2000  # of a larger population, this many evenly spaced clients are counted


def label_counts(
    split: ClientSplit, labels: NDArray[np.int64], classes: int, clients: Iterable[int] | None = None
) -> NDArray[np.int64]:
    """(clients, classes) samples of each class that each client holds."""
    chosen = range(split.clients) if clients is None else clients
    return np.stack([np.bincount(labels[split.samples_of(m)], minlength=classes) for m in chosen])


@dataclass(frozen=True)
class Summary:
    """`total_variation` is the mean over clients of (1/2) sum_l |p_m(l) - p(l)|: 0 is IID, 1 is disjoint."""

    clients: int  # number of clients
    samples: int  # over all clients
    seen: int  # clients counted for the numbers below
    size_min: int  # samples of the smallest client
    size_median: float  # median number of samples
    size_max: int  # samples of the largest client
    classes_min: int  # least number of classes of a client
    classes_median: float  # median number of classes
    classes_max: int  # largest number of classes of a client
    total_variation: float


def summarize_split(split: ClientSplit, labels: NDArray[np.int64], classes: int) -> Summary:
    """Sizes, classes per client and mean total-variation distance to the global label distribution."""
    sizes = split.sizes
    step = max(1, -(-split.clients // MAX_CLIENTS))
    counts = label_counts(split, labels, classes, range(0, split.clients, step))
    held = (counts > 0).sum(1)
    mix = counts / counts.sum(1, keepdims=True)
    overall = np.bincount(labels, minlength=classes) / len(labels)
    return Summary(
        clients=split.clients,
        samples=int(sizes.sum()),
        seen=len(counts),
        size_min=int(sizes.min()),
        size_median=float(np.median(sizes)),
        size_max=int(sizes.max()),
        classes_min=int(held.min()),
        classes_median=float(np.median(held)),
        classes_max=int(held.max()),
        total_variation=float(0.5 * np.abs(mix - overall).sum(1).mean()),
    )
