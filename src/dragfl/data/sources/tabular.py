"""The small tables that scikit-learn contains: breast_cancer, wine and iris.

A fifth of each class is test data, by a draw that depends on the name only. Every feature is standardised with the mean
and standard deviation of the training data, so nothing of the test data reaches the training.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from dragfl.data.dataset import Dataset, from_tensors
from dragfl.errors import SpecError
from dragfl.rng import rng

TEST = 0.2  # of every class
SEED = 0  # of the split


def load(name: str) -> Dataset:
    try:
        stored: Any = getattr(import_module("sklearn.datasets"), f"load_{name}")()
    except ImportError:
        advice = "which is not installed; pip install 'dragfl[robust]'"
        raise SpecError(f"dataset {name} needs scikit-learn, {advice}") from None
    x, y = np.asarray(stored.data, np.float64), np.asarray(stored.target, np.int64)
    test = np.zeros(len(y), bool)
    draws = rng(SEED, "tabular split", name)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        test[draws.permutation(rows)[: round(TEST * len(rows))]] = True
    mean, std = x[~test].mean(0), x[~test].std(0)
    x = (x - mean) / np.where(std > 0, std, 1.0)
    names = tuple(str(word) for word in stored.target_names)
    return from_tensors(x[~test], y[~test], x[test], y[test], name=name, classes=len(names), class_names=names)
