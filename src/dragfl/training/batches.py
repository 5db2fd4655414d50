"""The minibatches of one client in one round, as positions in its own samples.

The paper samples with replacement; `epoch` sampling passes through shuffled data instead.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Sampling = Literal["replacement", "epoch"]


def steps_in(epochs: int, samples: int, batch_size: int) -> int:
    """The number of local steps in this many epochs."""
    return epochs * math.ceil(samples / batch_size)


def draw(
    rng: np.random.Generator, samples: int, steps: int, batch_size: int, sampling: Sampling
) -> list[NDArray[np.int64]]:
    """Draw `steps` minibatches; with `epoch` sampling the last of each epoch may be smaller."""
    if sampling == "replacement":
        return list(rng.integers(0, samples, (steps, batch_size)))
    batches: list[NDArray[np.int64]] = []
    while len(batches) < steps:
        order = rng.permutation(samples)
        batches += [order[a : a + batch_size] for a in range(0, samples, batch_size)]
    return batches[:steps]
