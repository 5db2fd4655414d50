"""Draws that several partitions share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mixes(a: float, rows: int, columns: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(rows, columns) draws of Dir(a, ..., a); where one underflows (a near 0), its limit: a unit vector."""
    drawn = rng.dirichlet(np.full(columns, float(a)), rows)
    lost = np.flatnonzero(~(np.isfinite(drawn).all(1) & (drawn.sum(1) > 0.5)))
    drawn[lost] = np.eye(columns)[rng.integers(0, columns, len(lost))]
    return drawn


def quotas(total: int, weights: NDArray[np.float64], at_least: int = 1) -> NDArray[np.int64]:
    """`total` shared out in proportion to `weights`, by largest remainder, nobody below `at_least`.

    >>> quotas(10, np.array([1.0, 1.0, 2.0])).tolist()
    [3, 3, 4]
    """
    spare = total - at_least * len(weights)
    exact = spare * (weights / weights.sum())
    share: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    most = np.argsort(share - exact, kind="stable")[: spare - int(share.sum())]
    share[most] += 1
    return share + np.int64(at_least)
