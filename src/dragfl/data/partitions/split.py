"""Splits (the samples of every client) and the checks that all partitions share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dragfl.errors import DataError, PartError, SettingError


class ClientSplit(Protocol):
    """The interface of a split: `Split` stores the indices, `VirtualSplit` draws them on request."""

    @property
    def clients(self) -> int:
        """Number of clients."""
        ...

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(clients,) number of samples of each client."""
        ...

    def samples_of(self, client: int) -> NDArray[np.int64]:
        """The sample indices of one client."""
        ...


@dataclass(frozen=True, eq=False)
class Split:
    """Client m holds the samples indices[offsets[m] : offsets[m + 1]]."""

    indices: NDArray[np.int64]  # samples, client after client
    offsets: NDArray[np.int64]  # (clients + 1,)

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def samples_of(self, client: int) -> NDArray[np.int64]:
        """The sample indices of one client."""
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    @staticmethod
    def from_parts(parts: Sequence[NDArray[np.int64]]) -> Split:
        """Part m goes to client m."""
        for m, part in enumerate(parts):
            if len(part) and (kind := np.asarray(part).dtype).kind not in "iu":
                raise DataError(f"data.partition: part {m} has {kind} indices; give whole numbers")
        indices = np.concatenate(parts).astype(np.int64, copy=False)
        return Split(indices, np.cumsum([0, *map(len, parts)]).astype(np.int64))

    @staticmethod
    def from_owner(owner: NDArray[np.int64], clients: int) -> Split:
        """Sample i goes to client owner[i]."""
        sizes = np.bincount(owner, minlength=clients)
        return Split(np.argsort(owner, kind="stable"), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


class Partition(Protocol):
    """A frozen dataclass of settings; calling it assigns samples to clients, as a pure function of its arguments.

    A partition that reads the group of every sample sets `uses_groups = True` and takes the groups as a fourth
    argument.
    """

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> ClientSplit: ...


def check_clients(kind: str, labels: NDArray[np.int64], clients: int) -> None:
    """Require at least one client and one sample for each."""
    check_integer(kind, "clients", clients, 1)
    if clients > len(labels):
        raise DataError(
            f"data.partition: {kind}: {len(labels)} samples are too few for {clients} clients; lower clients.total"
        )


def check_no_empty_client(kind: str, split: Split, advice: str) -> Split:
    """Return the split; raise with the advice if a client has no samples."""
    empty = np.flatnonzero(split.sizes == 0)
    if len(empty):
        raise DataError(
            f"data.partition: {kind}: {len(empty)} of {split.clients} clients got no samples "
            f"(first: {int(empty[0])}); {advice}"
        )
    return split


def checked_split(name: str, given: Any, samples: int, clients: int) -> ClientSplit:
    """The split that a user's own partition returned: a Split, or one array of sample indices for each client."""
    parts: list[Any] | None = None
    if isinstance(given, list | tuple) and given and all(hasattr(part, "__len__") for part in given):
        parts = [np.asarray(part) for part in given]
    elif not all(hasattr(given, needed) for needed in ("clients", "sizes", "samples_of")):
        kind = type(given).__name__
        raise PartError(
            f"data.partition: {name} returned a {kind}; return Split.from_parts(list of index arrays), or that list"
        )
    count = given.clients if parts is None else len(parts)
    if count != clients:
        raise PartError(f"{name} made {count} clients and clients.total is {clients}; return one part for each")
    for m in range(clients):
        rows = np.asarray(given.samples_of(m)) if parts is None else parts[m]
        if rows.dtype.kind not in "iu" or rows.ndim != 1 or not len(rows):
            seen = f"{rows.dtype} of shape {rows.shape}"
            raise PartError(f"{name}: client {m} has {seen}; give the indices of at least one sample")
        if rows.min() < 0 or rows.max() >= samples:
            seen = f"{rows.min()} to {rows.max()}"
            raise PartError(f"{name}: client {m} has the samples {seen}; indices are in [0, {samples})")
    split: ClientSplit = given if parts is None else Split.from_parts(parts)
    return split


def check_number(
    kind: str, field: str, value: Any, low: float, high: float = math.inf, *, open_low: bool = False
) -> None:
    """Require a finite number in [low, high], or in (low, high] with `open_low`."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value > high or value < low or (open_low and value == low):
        bounds = f"above {low:g}" if open_low else f"of at least {low:g}"
        upper = "" if high == math.inf else f" and at most {high:g}"
        raise SettingError(kind, field, f"{value!r}; give a number {bounds}{upper}")


def check_integer(kind: str, field: str, value: Any, low: int) -> None:
    """Require an integer of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
        raise SettingError(kind, field, f"{value!r}; give a whole number of at least {low}")


def class_count(labels: NDArray[np.int64]) -> int:
    """The number of classes: the largest label plus one."""
    return int(labels.max()) + 1
