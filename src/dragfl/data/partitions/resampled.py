"""Virtual clients for populations of a million: nothing stored, samples drawn when a client is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dragfl.data.partitions.draws import mixes
from dragfl.data.partitions.split import class_count, number, whole
from dragfl.errors import DataError, SpecError
from dragfl.rng import rng as addressed

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class VirtualSplit:
    """`samples_of(client)` is a pure function of (seed, client); `sizes` is one number seen `clients` times."""

    clients: int
    size: int
    seed: int
    by_class: NDArray[np.int64]  # sample indices sorted by label, one array for the whole population
    counts: NDArray[np.int64]  # samples of each class
    a: float | None = None

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.broadcast_to(np.int64(self.size), (self.clients,))

    def samples_of(self, client: int) -> NDArray[np.int64]:
        """The samples of one client, without repeats; another client may hold the same ones."""
        if not 0 <= client < self.clients:
            raise IndexError(f"client {client} of {self.clients}")
        draw = addressed(self.seed, "resampled", int(client))
        if self.a is None:
            return self.by_class[draw.choice(len(self.by_class), self.size, replace=False)]
        take = self._take(draw)
        first = np.cumsum(self.counts) - self.counts
        rows = [first[c] + draw.choice(self.counts[c], take[c], replace=False) for c in np.flatnonzero(take)]
        chosen: NDArray[np.int64] = np.concatenate(rows)
        return self.by_class[chosen]

    def _take(self, draw: np.random.Generator) -> NDArray[np.int64]:
        """How many of each class: multinomial of a Dir(a) mix; what a class lacks moves to the others."""
        mix = mixes(float(self.a or 0.0), 1, len(self.counts), draw)[0]
        take = np.zeros(len(self.counts), np.int64)
        while (missing := self.size - int(take.sum())) > 0:
            room = self.counts - take
            weight = np.where(room > 0, mix, 0.0)
            weight = weight if weight.sum() > 0 else room.astype(np.float64)
            take += np.minimum(draw.multinomial(missing, weight / weight.sum()), room)
        return take


@dataclass(frozen=True)
class Resampled:
    """Each client is an addressed draw of k samples: clients overlap by design and need no memory.

    With `a`, the class mix of each client is a draw of Dir(a); without, samples are drawn uniformly. Use it
    for populations far larger than the dataset; it is the one partition in which a sample belongs to several
    clients.
    """

    k: int
    a: float | None = None

    def __post_init__(self) -> None:
        whole("resampled", "k", self.k, 1)
        if self.a is not None:
            number("resampled", "a", self.a, 0.0, open_low=True)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> VirtualSplit:
        if isinstance(clients, bool) or not isinstance(clients, int | np.integer) or clients < 1:
            raise SpecError(f"partition resampled: clients={clients!r}; give a whole number of at least 1")
        if self.k > len(labels):
            raise DataError(f"partition resampled: k={self.k} but there are {len(labels)} samples; lower k")
        by_class = np.argsort(labels, kind="stable")
        counts = np.bincount(labels, minlength=class_count(labels))
        return VirtualSplit(int(clients), self.k, int(rng.integers(2**63)), by_class, counts, self.a)
