"""Clients that differ in how much they hold, with labels at random: quantity_skew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dragfl.data.partitions.draws import mixes, quotas
from dragfl.data.partitions.split import Split, check_clients, number, whole
from dragfl.errors import DataError, SpecError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class QuantitySkew:
    """Random samples, unequal amounts: shares ~ Dir(a), or proportional to lognormal(0, sigma); give one.

    Q. Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study (NIID-Bench), ICDE 2022.
    """

    a: float | None = None
    sigma: float | None = None
    min_size: int = 1

    def __post_init__(self) -> None:
        if (self.a is None) == (self.sigma is None):
            raise SpecError(
                f"partition quantity_skew: a={self.a!r}, sigma={self.sigma!r}; give a (Dirichlet "
                "shares) or sigma (lognormal sizes), not both"
            )
        if self.a is not None:
            number("quantity_skew", "a", self.a, 0.0, open_low=True)
        if self.sigma is not None:
            number("quantity_skew", "sigma", self.sigma, 0.0)
        whole("quantity_skew", "min_size", self.min_size, 1)

    def __call__(self, labels: NDArray[np.int64], clients: int, rng: np.random.Generator) -> Split:
        check_clients("quantity_skew", labels, clients)
        if self.min_size * clients > len(labels):
            raise DataError(
                f"partition quantity_skew: min_size={self.min_size} for {clients} clients is more than the "
                f"{len(labels)} samples; lower min_size or clients.total"
            )
        if self.a is not None:
            weights = mixes(self.a, 1, clients, rng)[0]
        else:
            weights = rng.lognormal(0.0, self.sigma or 0.0, clients)
        sizes = quotas(len(labels), weights, self.min_size)
        return Split.from_parts(np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1]))
