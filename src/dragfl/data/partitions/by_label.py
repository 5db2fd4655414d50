"""A home for every label: label_mod (the DRAG paper's text) and label_group (FLTrust's groups)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dragfl.data.partitions.split import Split, check_clients, class_count, no_empty, number
from dragfl.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _mostly_home(home: NDArray[np.int64], places: int, q: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """A sample stays at home with probability q, else goes to one of the other places, each as likely."""
    if places == 1:
        return home
    away = (home + 1 + rng.integers(0, places - 1, len(home))) % places
    return np.where(rng.random(len(home)) < q, home, away)


@dataclass(frozen=True)
class LabelMod:
    """Label l goes to client l mod M with probability q, to each other client with (1 - q)/(M - 1).

    The q-scheme as the DRAG paper states it; q = 1/M is iid. At q = 1 only min(classes, M) clients hold data,
    which is an error here if M is larger.
    """

    q: float

    def __post_init__(self) -> None:
        number("label_mod", "q", self.q, 0.0, 1.0)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("label_mod", labels, clients)
        owner = _mostly_home(labels % clients, clients, self.q, rng)
        advice = (
            f"q={self.q:g} with {class_count(labels)} classes is too little for {clients} clients: lower q "
            "or clients.total, or use label_group(q) or sorted_shards"
        )
        return no_empty("label_mod", Split.from_owner(owner, clients), advice)


@dataclass(frozen=True)
class LabelGroup:
    """L groups of clients; label l goes to group l with probability q, to another with (1 - q)/(L - 1) each.

    Inside a group every client is as likely. q = 1/L is iid. Groups are contiguous and differ by at most one
    client. X. Cao et al., FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping, NDSS 2021.
    """

    q: float

    def __post_init__(self) -> None:
        number("label_group", "q", self.q, 0.0, 1.0)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("label_group", labels, clients)
        classes = class_count(labels)
        if clients < classes:
            raise DataError(
                f"partition label_group: {clients} clients cannot form {classes} groups, one for each class; "
                "raise clients.total or use label_mod(q)"
            )
        first = np.linspace(0, clients, classes + 1).astype(np.int64)
        group = _mostly_home(labels, classes, self.q, rng)
        size = np.diff(first)[group]
        owner = first[group] + (rng.random(len(labels)) * size).astype(np.int64)
        advice = f"q={self.q:g}: lower q or clients.total, or use sorted_shards"
        return no_empty("label_group", Split.from_owner(owner, clients), advice)
