"""Fair timing on a noisy machine: the contenders take turns in one process, and medians are compared as ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def interleave(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each contender; all of them run once, then once more, so that a slow spell hits them alike."""
    for work in contenders.values():
        work()  # warm caches and allocators
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, work in contenders.items():
            started = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}
