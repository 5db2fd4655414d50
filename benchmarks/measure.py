"""From the name of a work to its panels."""

from __future__ import annotations

from benchmarks import aggregation, aggregators, rounds
from benchmarks.results import Panel
from benchmarks.timing import Tick, silent
from benchmarks.works import WORKS


def measure(name: str, repeats: int, tick: Tick = silent) -> list[Panel]:
    if name in WORKS:
        return [rounds.measure(WORKS[name], repeats, tick)]
    return {"W4": aggregation, "aggregators": aggregators}[name].measure(repeats, tick)
