"""From the name of a work to its panels."""

from __future__ import annotations

from benchmarks import aggregation, aggregators, memory, rounds, trainers
from benchmarks.results import Panel
from benchmarks.timing import Tick, silent
from benchmarks.works import WORKS


def measure(name: str, repeats: int, tick: Tick = silent) -> list[Panel]:
    if name in WORKS:
        found = [rounds.measure(WORKS[name], repeats, tick)]
        return [*found, memory.measure(WORKS[name], tick)] if name == "W5" else found
    return {"W4": aggregation, "aggregators": aggregators, "trainers": trainers}[name].measure(repeats, tick)
