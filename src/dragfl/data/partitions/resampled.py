"""Virtual clients for very large populations: samples are drawn on request, nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragfl.data.partitions.dirichlet import draw_dirichlet
from dragfl.data.partitions.split import check_integer, check_number, class_count
from dragfl.errors import DataError
from dragfl.rng import rng as addressed


@dataclass(frozen=True, eq=False)
class VirtualSplit:
    """`samples_of(client)` is a pure function of (seed, client); every client has `size` samples."""

    clients: int  # number of clients
    size: int  # samples of each client
    seed: int  # of all draws
    by_class: NDArray[np.int64]  # sample indices sorted by label, one array for the whole population
    counts: NDArray[np.int64]  # samples of each class
    a: float | None = None  # concentration of the class proportions; None: uniform draws

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.broadcast_to(np.int64(self.size), (self.clients,))

    def samples_of(self, client: int) -> NDArray[np.int64]:
        """The sample indices of one client, all different; clients may overlap."""
        if not 0 <= client < self.clients:
            raise IndexError(f"client {client} of {self.clients}")
        draw = addressed(self.seed, "resampled", int(client))
        if self.a is None:
            return self.by_class[draw.choice(len(self.by_class), self.size, replace=False)]
        take = self._class_counts(draw)
        first = np.cumsum(self.counts) - self.counts
        rows = [first[c] + draw.choice(self.counts[c], take[c], replace=False) for c in np.flatnonzero(take)]
        chosen: NDArray[np.int64] = np.concatenate(rows)
        return self.by_class[chosen]

    def _class_counts(self, draw: np.random.Generator) -> NDArray[np.int64]:
        """Samples per class: multinomial with Dir(a) proportions; a class without enough samples passes on the rest."""
        proportions = draw_dirichlet(float(self.a or 0.0), 1, len(self.counts), draw)[0]
        take = np.zeros(len(self.counts), np.int64)
        while (missing := self.size - int(take.sum())) > 0:
            left = self.counts - take
            weight = np.where(left > 0, proportions, 0.0)
            weight = weight if weight.sum() > 0 else left.astype(np.float64)
            take += np.minimum(draw.multinomial(missing, weight / weight.sum()), left)
        return take


@dataclass(frozen=True)
class Resampled:
    """Each client is an addressed draw of k samples: clients overlap and need no memory.

    With `a`, the class proportions of each client are a draw of Dir(a); without, samples are drawn uniformly. For
    populations far larger than the dataset.
    """

    k: int  # samples of each client
    a: float | None = None  # concentration of the class proportions; None: uniform draws

    def __post_init__(self) -> None:
        check_integer("resampled", "k", self.k, 1)
        if self.a is not None:
            check_number("resampled", "a", self.a, 0.0, open_low=True)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> VirtualSplit:
        check_integer("resampled", "clients", clients, 1)
        if self.k > len(labels):
            raise DataError(f"data.partition: resampled: k={self.k} but there are {len(labels)} samples; lower k")
        by_class = np.argsort(labels, kind="stable")
        counts = np.bincount(labels, minlength=class_count(labels))
        return VirtualSplit(int(clients), self.k, int(rng.integers(2**63)), by_class, counts, self.a)
