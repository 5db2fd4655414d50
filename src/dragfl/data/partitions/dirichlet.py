"""Dirichlet partitions of labels (dirichlet_class, dirichlet_client) and of client sizes (quantity_skew)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragfl.data.partitions.split import Split, check_clients, check_integer, check_number, class_count
from dragfl.errors import DataError, SettingError

ATTEMPTS = 1000  # draws of dirichlet_class until every client has min_size samples


def draw_dirichlet(a: float, rows: int, columns: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(rows, columns) draws of Dir(a, ..., a); a draw that underflows (a near 0) becomes its limit, a unit vector."""
    drawn = rng.dirichlet(np.full(columns, float(a)), rows)
    underflow = np.flatnonzero(~(np.isfinite(drawn).all(1) & (drawn.sum(1) > 0.5)))
    drawn[underflow] = np.eye(columns)[rng.integers(0, columns, len(underflow))]
    return drawn


def proportional_sizes(total: int, weights: NDArray[np.float64], at_least: int = 1) -> NDArray[np.int64]:
    """Sizes that sum to `total`, proportional to `weights` by largest remainder, each at least `at_least`.

    >>> proportional_sizes(10, np.array([1.0, 1.0, 2.0])).tolist()
    [3, 3, 4]
    """
    spare = total - at_least * len(weights)
    exact = spare * (weights / weights.sum())
    sizes: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    largest_remainders = np.argsort(sizes - exact, kind="stable")[: spare - int(sizes.sum())]
    sizes[largest_remainders] += 1
    return sizes + np.int64(at_least)


def _shuffled_by_class(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Sample indices sorted by class, in random order inside a class."""
    order = rng.permutation(len(labels))
    return order[np.argsort(labels[order], kind="stable")]


def class_counts(proportions: NDArray[np.float64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """(classes, clients) samples of each class for each client, from rows of proportions with sum one.

    >>> class_counts(np.array([[0.5, 0.5], [0.75, 0.25]]), np.array([4, 4])).tolist()
    [[2, 2], [3, 1]]
    """
    ends: NDArray[np.int64] = np.rint(np.cumsum(proportions, 1) * size[:, None]).astype(np.int64)
    ends[:, -1] = size
    return np.diff(ends, prepend=0)


def capped_counts(proportions: NDArray[np.float64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """`class_counts`, where a client that has its equal share of all samples gets nothing of the following classes.

    The proportions of the other clients are renormalised; equal ones are taken where all of them are zero.

    >>> capped_counts(np.array([[1.0, 0.0], [0.5, 0.5], [0.75, 0.25]]), np.array([4, 4, 4])).tolist()
    [[4, 0], [2, 2], [0, 4]]
    """
    counts = np.zeros(proportions.shape, np.int64)
    share = size.sum() / proportions.shape[1]
    for k in np.flatnonzero(size):
        below = counts.sum(0) < share  # at least one client: samples are left
        open_ = np.where(below, proportions[k], 0.0)
        open_ = open_ if open_.sum() > 0.0 else below.astype(np.float64)
        counts[k] = class_counts((open_ / open_.sum())[None], size[k : k + 1])[0]
    return counts


@dataclass(frozen=True)
class DirichletClass:
    """For each class, client proportions pi ~ Dir(a); the shuffled samples of the class are cut accordingly.

    Client sizes differ; drawn again until every client has `min_size` samples. M. Yurochkin et al., Bayesian
    Nonparametric Federated Learning of Neural Networks, ICML 2019; used by Q. Li et al., Federated Learning on Non-IID
    Data Silos: An Experimental Study (NIID-Bench), ICDE 2022.

    The public code of both also limits the sizes: a client that has at least (number of samples) / (number of clients)
    gets nothing of the classes that follow, and the other proportions are renormalised. `cap = True` does the same; it
    makes sizes more equal.
    """

    a: float  # concentration; smaller is more heterogeneous
    min_size: int = 10  # least number of samples of a client
    cap: bool = False  # limit the sizes as the public code does

    def __post_init__(self) -> None:
        check_number("dirichlet_class", "a", self.a, 0.0, open_low=True)
        check_integer("dirichlet_class", "min_size", self.min_size, 1)
        if not isinstance(self.cap, bool):
            raise SettingError("dirichlet_class", "cap", f"{self.cap!r}; give true or false")

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("dirichlet_class", labels, clients)
        size = np.bincount(labels)
        for _ in range(ATTEMPTS if self.min_size * clients <= len(labels) else 0):
            proportions = draw_dirichlet(self.a, len(size), clients, rng)
            counts = capped_counts(proportions, size) if self.cap else class_counts(proportions, size)
            if counts.sum(0).min() >= self.min_size:
                break
        else:
            raise DataError(
                f"data.partition: dirichlet_class: no draw of a={self.a:g} assigned each of {clients} clients "
                f"{self.min_size} of the {len(labels)} samples; raise a, lower min_size or clients.total, "
                "or use dirichlet_client(a), whose clients have equal sizes"
            )
        owner = np.empty(len(labels), np.int64)
        owner[_shuffled_by_class(labels, rng)] = np.repeat(np.tile(np.arange(clients), len(size)), counts.ravel())
        return Split.from_owner(owner, clients)


@dataclass(frozen=True)
class DirichletClient:
    """Each client has a fixed size and class proportions p ~ Dir(a), and draws samples without replacement.

    Clients draw in random order; a class with no samples left is removed from all proportions, which are
    renormalised. Sizes are equal, or lognormal with `sigma` > 0. T.-M. H. Hsu, H. Qi, M. Brown, Measuring the Effects
    of Non-Identical Data Distribution for Federated Visual Classification, 2019; with `sigma`, D. A. E. Acar et al.,
    FedDyn, ICLR 2021 (also AdaBest's split).
    """

    a: float  # concentration; smaller is more heterogeneous
    sigma: float = 0.0  # of the lognormal sizes; 0: equal sizes

    def __post_init__(self) -> None:
        check_number("dirichlet_client", "a", self.a, 0.0, open_low=True)
        check_number("dirichlet_client", "sigma", self.sigma, 0.0)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("dirichlet_client", labels, clients)
        classes = class_count(labels)
        proportions = draw_dirichlet(self.a, clients, classes, rng)
        weights = rng.lognormal(0.0, self.sigma, clients) if self.sigma else np.ones(clients)
        slots = rng.permutation(np.repeat(np.arange(clients), proportional_sizes(len(labels), weights)))
        drawn = _draw_classes(slots, proportions, np.bincount(labels, minlength=classes), rng)
        owner = np.empty(len(labels), np.int64)
        # The j-th slot of a class takes its j-th sample.
        owner[_shuffled_by_class(labels, rng)] = slots[np.argsort(drawn, kind="stable")]
        return Split.from_owner(owner, clients)


def _draw_classes(
    slots: NDArray[np.int64],
    proportions: NDArray[np.float64],
    supply: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """The class of each slot, as if drawn one by one; vectorised up to the next class that runs out."""
    left, done = supply.copy(), 0
    drawn = np.empty(len(slots), np.int64)
    while done < len(slots):
        available = np.where(left > 0, proportions, 0.0)
        available[available.sum(1) <= 0] = left / left.sum()
        edges = np.cumsum(available, 1)
        edges = edges / edges[:, -1:] + np.arange(len(proportions))[:, None]  # row m lies in (m, m + 1]
        remaining = slots[done:]
        position = np.searchsorted(edges.ravel(), remaining + rng.random(len(remaining)), side="right")
        last = int(np.flatnonzero(left)[-1])  # rounding may put a draw beyond the last edge of its row
        choice = np.minimum(position - remaining * len(left), last)
        stop = len(remaining)
        for c in np.flatnonzero(left):
            wanting = np.flatnonzero(choice == c)
            if len(wanting) > left[c]:
                stop = min(stop, int(wanting[left[c]]))
        drawn[done : done + stop] = choice[:stop]
        left -= np.bincount(choice[:stop], minlength=len(left))
        done += stop
    return drawn


@dataclass(frozen=True)
class QuantitySkew:
    """IID samples in unequal amounts: client proportions ~ Dir(a), or proportional to lognormal(0, sigma).

    Q. Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study (NIID-Bench), ICDE 2022.
    """

    a: float | None = None  # concentration of the sizes; either this or sigma
    sigma: float | None = None  # of the lognormal sizes
    min_size: int = 1  # least number of samples of a client

    def __post_init__(self) -> None:
        if (self.a is None) == (self.sigma is None):
            problem = f"{self.a!r}, and sigma is {self.sigma!r}; give a (Dirichlet shares) or sigma (lognormal sizes)"
            raise SettingError("quantity_skew", "a", f"{problem}, not both")
        if self.a is not None:
            check_number("quantity_skew", "a", self.a, 0.0, open_low=True)
        if self.sigma is not None:
            check_number("quantity_skew", "sigma", self.sigma, 0.0)
        check_integer("quantity_skew", "min_size", self.min_size, 1)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("quantity_skew", labels, clients)
        if self.min_size * clients > len(labels):
            raise DataError(
                f"data.partition: quantity_skew: min_size={self.min_size} for {clients} clients is more than the "
                f"{len(labels)} samples; lower min_size or clients.total"
            )
        if self.a is not None:
            weights = draw_dirichlet(self.a, 1, clients, rng)[0]
        else:
            weights = rng.lognormal(0.0, self.sigma or 0.0, clients)
        sizes = proportional_sizes(len(labels), weights, self.min_size)
        return Split.from_parts(np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1]))
