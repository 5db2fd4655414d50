"""Every label has a preferred client (label_mod, the DRAG paper) or client group (label_group, FLTrust)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragfl.data.partitions.split import Split, check_clients, check_no_empty_client, check_number, class_count
from dragfl.errors import DataError


def _assign(preferred: NDArray[np.int64], places: int, q: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Assign each sample to its preferred place with probability q, else uniformly to one of the others."""
    if places == 1:
        return preferred
    other = (preferred + 1 + rng.integers(0, places - 1, len(preferred))) % places
    return np.where(rng.random(len(preferred)) < q, preferred, other)


@dataclass(frozen=True)
class LabelMod:
    """Label l goes to client l mod M with probability q, to each other client with (1 - q)/(M - 1).

    The q-scheme of the DRAG paper; q = 1/M is IID. At q = 1 only min(classes, M) clients hold data, which is an error
    if M is larger.
    """

    q: float  # probability of the preferred client

    def __post_init__(self) -> None:
        check_number("label_mod", "q", self.q, 0.0, 1.0)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("label_mod", labels, clients)
        owner = _assign(labels % clients, clients, self.q, rng)
        advice = (
            f"q={self.q:g} with {class_count(labels)} classes is too little for {clients} clients: lower q "
            "or clients.total, or use label_group(q) or sorted_shards"
        )
        return check_no_empty_client("label_mod", Split.from_owner(owner, clients), advice)


@dataclass(frozen=True)
class LabelGroup:
    """L groups of clients; label l goes to group l with probability q, to another with (1 - q)/(L - 1) each.

    Inside a group the client is uniform. q = 1/L is IID. Groups are contiguous and differ by at most one client.
    X. Cao et al., FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, NDSS 2021.
    """

    q: float  # probability of the preferred group

    def __post_init__(self) -> None:
        check_number("label_group", "q", self.q, 0.0, 1.0)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("label_group", labels, clients)
        classes = class_count(labels)
        if clients < classes:
            raise DataError(
                f"data.partition: label_group: {clients} clients cannot form {classes} groups, one for each class; "
                "raise clients.total or use label_mod(q)"
            )
        first = np.linspace(0, clients, classes + 1).astype(np.int64)
        group = _assign(labels, classes, self.q, rng)
        size = np.diff(first)[group]
        owner = first[group] + (rng.random(len(labels)) * size).astype(np.int64)
        advice = f"q={self.q:g}: lower q or clients.total, or use sorted_shards"
        return check_no_empty_client("label_group", Split.from_owner(owner, clients), advice)
