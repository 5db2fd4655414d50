"""Clusters of a few points, from scikit-learn (the extra `robust`), which is imported when a rule first needs it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragfl.errors import SpecError

Labels = NDArray[np.int64]  # cluster of each point; -1 for none


@contextmanager
def _apart() -> Iterator[None]:
    """What scikit-learn draws from the global generator is given back, and its warnings are not ours."""
    before = random.getstate()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(before)


def _cluster(rule: str) -> Any:
    try:
        with _apart():
            return import_module("sklearn.cluster")
    except ImportError:
        raise SpecError(f"{rule} needs scikit-learn, which is not installed; pip install 'dragfl[robust]'") from None


def mean_shift(rule: str, points: NDArray[np.float64]) -> Labels:
    """Mean shift, its bandwidth estimated from the nearer half of all points; one cluster where that is zero."""
    found = _cluster(rule)
    with _apart():
        bandwidth = float(found.estimate_bandwidth(points, quantile=0.5)) if len(points) > 1 else 0.0
        if not bandwidth > 0.0:
            return np.zeros(len(points), dtype=np.int64)
        return np.asarray(found.MeanShift(bandwidth=bandwidth).fit_predict(points), dtype=np.int64)


def k_means(rule: str, points: NDArray[np.float64], seed: int) -> Labels:
    """Two clusters, or one where all points are the same."""
    found = _cluster(rule)
    if len(np.unique(points, axis=0)) < 2:
        return np.zeros(len(points), dtype=np.int64)
    with _apart():
        return np.asarray(found.KMeans(2, n_init=10, random_state=seed).fit_predict(points), dtype=np.int64)


def hdbscan(rule: str, distances: NDArray[np.float64], smallest: int) -> Labels:
    """HDBSCAN on a matrix of distances, where a single cluster is allowed."""
    found = _cluster(rule)
    if len(distances) < 3:
        return np.zeros(len(distances), dtype=np.int64)
    model = found.HDBSCAN(
        min_cluster_size=smallest, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
    )
    with _apart():
        return np.asarray(model.fit_predict(distances), dtype=np.int64)


def largest(labels: Labels) -> NDArray[np.bool_]:
    """Who is in the largest cluster; of equal ones the one with the lowest index. Everyone where there is none."""
    found = labels[labels >= 0]
    if not len(found):
        return np.ones(len(labels), dtype=bool)
    names, first, sizes = np.unique(found, return_index=True, return_counts=True)
    best = min(range(len(names)), key=lambda i: (-sizes[i], first[i]))
    return np.asarray(labels == names[best])
