"""Timing on a noisy machine: contenders take turns in one process, and medians are compared as ratios."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

PAUSE_S = 0.01  # threads of the previous contender may spin for a while before they sleep
TURN_S = 0.3

Tick = Callable[[str], None]  # called with the name of the next contender


def silent(_: str) -> None:
    pass


def interleave(
    contenders: Mapping[str, Callable[[], object]], repeats: int, tick: Tick = silent
) -> dict[str, list[float]]:
    """Time all contenders in turns, in a new order each time, so that a slow period affects all of them.

    A turn repeats the call as often as fits into TURN_S, at least once. Returns the seconds of a call in every turn.
    """
    times: dict[str, int] = {}
    for name, run in contenders.items():
        tick(f"{name}, warming up")
        run()  # warm caches and allocators
        started = time.perf_counter()
        run()
        times[name] = max(1, int(TURN_S / (time.perf_counter() - started)))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    order, draws = list(contenders), random.Random(0)
    for turn in range(repeats):
        draws.shuffle(order)
        for name in order:
            tick(f"{name}, turn {turn + 1} of {repeats}")
            time.sleep(PAUSE_S)
            started = time.perf_counter()
            for _ in range(times[name]):
                contenders[name]()
            seconds[name].append((time.perf_counter() - started) / times[name])
    return seconds


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of intra-op threads and restore it afterwards; also a decorator: `threads(2)(function)`."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
