"""What torch keeps for the whole process, set for a round and given back to the caller as it was.

One intra-op thread for training and folding: sums then have one order on every machine with any number of cores, and
parallelism is over clients. The global generator, which a model may draw from as it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_generator() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield
