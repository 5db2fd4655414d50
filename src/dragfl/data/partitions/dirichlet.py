"""Label mixes drawn from a Dirichlet law: one draw for each class, or one for each client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dragfl.data.partitions.draws import mixes, quotas
from dragfl.data.partitions.split import Split, check_clients, class_count, number, whole
from dragfl.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

ATTEMPTS = 1000  # draws of dirichlet_class before it gives up on min_size


@dataclass(frozen=True)
class DirichletClass:
    """For each class, shares of the clients pi ~ Dir(a); its shuffled samples are cut in those shares.

    Client sizes are unequal; drawn again until every client has `min_size` samples. T.-M. H. Hsu, H. Qi, M.
    Brown, Measuring the Effects of Non-Identical Data Distribution, 2019; Q. Li et al., NIID-Bench, ICDE
    2022.
    """

    a: float
    min_size: int = 10

    def __post_init__(self) -> None:
        number("dirichlet_class", "a", self.a, 0.0, open_low=True)
        whole("dirichlet_class", "min_size", self.min_size, 1)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("dirichlet_class", labels, clients)
        size = np.bincount(labels)
        for _ in range(ATTEMPTS if self.min_size * clients <= len(labels) else 0):
            ends = np.rint(np.cumsum(mixes(self.a, len(size), clients, rng), 1) * size[:, None]).astype(np.int64)
            ends[:, -1] = size
            counts = np.diff(ends, prepend=0)  # (classes, clients)
            if counts.sum(0).min() >= self.min_size:
                break
        else:
            raise DataError(
                f"partition dirichlet_class: no draw of a={self.a:g} gave each of {clients} clients "
                f"{self.min_size} of the {len(labels)} samples; raise a, lower min_size or clients.total, "
                "or use dirichlet_client(a), whose clients have equal sizes"
            )
        order = rng.permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")]  # by class, shuffled inside
        owner = np.empty(len(labels), np.int64)
        owner[order] = np.repeat(np.tile(np.arange(clients), len(size)), counts.ravel())
        return Split.from_owner(owner, clients)


@dataclass(frozen=True)
class DirichletClient:
    """Each client has a quota and a class mix p ~ Dir(a), and draws samples without replacement.

    Slots of all clients are filled in random order; a class that is exhausted leaves every mix, the rest
    renormalised. Quotas are equal, or lognormal with `sigma` > 0. D. A. E. Acar et al., FedDyn, ICLR 2021
    (also AdaBest's split).
    """

    a: float
    sigma: float = 0.0

    def __post_init__(self) -> None:
        number("dirichlet_client", "a", self.a, 0.0, open_low=True)
        number("dirichlet_client", "sigma", self.sigma, 0.0)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("dirichlet_client", labels, clients)
        classes = class_count(labels)
        mix = mixes(self.a, clients, classes, rng)
        weights = rng.lognormal(0.0, self.sigma, clients) if self.sigma else np.ones(clients)
        slots = rng.permutation(np.repeat(np.arange(clients), quotas(len(labels), weights)))
        drawn = _fill(slots, mix, np.bincount(labels, minlength=classes), rng)
        order = rng.permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")]
        owner = np.empty(len(labels), np.int64)
        owner[order] = slots[np.argsort(drawn, kind="stable")]  # the j-th slot of a class takes its j-th sample
        return Split.from_owner(owner, clients)


def _fill(
    slots: NDArray[np.int64], mix: NDArray[np.float64], supply: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """The class of each slot, as if drawn one by one; those before the next exhaustion come at once."""
    left, done = supply.copy(), 0
    drawn = np.empty(len(slots), np.int64)
    while done < len(slots):
        open_mix = np.where(left > 0, mix, 0.0)
        stuck = open_mix.sum(1) <= 0
        open_mix[stuck] = left / left.sum()
        edges = np.cumsum(open_mix, 1)
        edges = edges / edges[:, -1:] + np.arange(len(mix))[:, None]  # row m lies in (m, m + 1]
        here = slots[done:]
        place = np.searchsorted(edges.ravel(), here + rng.random(len(here)), side="right")
        last = int(np.flatnonzero(left)[-1])  # where rounding puts a draw beyond the last edge of its row
        wish = np.minimum(place - here * len(left), last)
        stop = len(here)
        for c in np.flatnonzero(left):
            asked = np.flatnonzero(wish == c)
            if len(asked) > left[c]:
                stop = min(stop, int(asked[left[c]]))
        drawn[done : done + stop] = wish[:stop]
        left -= np.bincount(wish[:stop], minlength=len(left))
        done += stop
    return drawn
