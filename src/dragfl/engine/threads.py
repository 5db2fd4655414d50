"""One intra-op thread for training and folding, and the caller's number back afterwards.

Sums then have one order on every machine with any number of cores, and parallelism is over clients.
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
