"""How samples are dealt to clients: pure functions of (labels, clients, rng) to a `Split`.

Every sample is used at most once and no client is left empty without an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dragfl.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Split:
    """Client m holds the samples indices[offsets[m] : offsets[m + 1]]."""

    indices: NDArray[np.int64]
    offsets: NDArray[np.int64]  # (clients + 1,)

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def of(self, client: int) -> NDArray[np.int64]:
        """The samples of one client."""
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    @staticmethod
    def from_parts(parts: list[NDArray[np.int64]]) -> Split:
        sizes = [len(part) for part in parts]
        indices = np.concatenate(parts).astype(np.int64, copy=False)
        return Split(indices, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


class Partition(Protocol):
    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split: ...


def _check(name: str, split: Split) -> Split:
    empty = np.flatnonzero(split.sizes == 0)
    if len(empty):
        raise DataError(
            f"partition {name}: {len(empty)} of {split.clients} clients got no samples (first: {int(empty[0])}); "
            "use fewer clients or another partition"
        )
    return split


@dataclass(frozen=True)
class IID:
    """A random permutation, cut into equal slices."""

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        return _check("iid", Split.from_parts(np.array_split(rng.permutation(len(labels)), clients)))


@dataclass(frozen=True)
class SortedShards:
    """The samples sorted by label, cut into equal contiguous slices: what the DRAG authors' code calls q = 1."""

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        order = np.argsort(labels, kind="stable")
        return _check("sorted_shards", Split.from_parts(np.array_split(order, clients)))


PARTITIONS: dict[str, type[Partition]] = {"iid": IID, "sorted_shards": SortedShards}
