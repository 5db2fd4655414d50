"""Settings of torch that hold for the whole process, changed for a round and restored afterwards.

Training and folding use one intra-op thread, so sums have one order on every machine; parallelism is over clients.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from dragfl.lazy import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one intra-op thread inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def own_generator() -> Iterator[None]:
    """Restore torch's global CPU generator after the block."""
    with torch.random.fork_rng(devices=[]):
        yield


def available_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_for(workers: int) -> list[int | None]:
    """A core for each worker where they need every core of this process; None where the system finds free ones."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [cores[i % len(cores)] for i in range(workers)] if 1 < len(cores) <= workers else [None] * workers
