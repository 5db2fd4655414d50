"""The minibatches of one client in one round, as positions among its own samples.

The paper draws every sample independently, with replacement; `epoch` sampling walks through shuffled data instead.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Sampling = Literal["replacement", "epoch"]


def steps_in(epochs: int, samples: int, batch_size: int) -> int:
    """Local steps that make this many passes over the samples."""
    return epochs * math.ceil(samples / batch_size)


def draw(
    rng: np.random.Generator, samples: int, steps: int, batch_size: int, sampling: Sampling
) -> list[NDArray[np.int64]]:
    """`steps` minibatches; with `epoch` sampling the last of each pass may be short."""
    if sampling == "replacement":
        return list(rng.integers(0, samples, (steps, batch_size)))
    batches: list[NDArray[np.int64]] = []
    while len(batches) < steps:
        order = rng.permutation(samples)
        batches += [order[a : a + batch_size] for a in range(0, samples, batch_size)]
    return batches[:steps]
