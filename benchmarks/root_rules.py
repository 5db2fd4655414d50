"""Rounds of rules that use root data: Cone DRAG and BOBA against BR-DRAG, with one process and with all cores."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack

import dragfl
from benchmarks.results import Comparison, Contender, rows, timed
from benchmarks.rounds import WARM_UP
from benchmarks.timing import Tick, silent
from benchmarks.workloads import WORKLOADS, Workload
from dragfl.engine.threads import available_cores

RULES = ("br_drag", "cone_drag", "boba")
ROOT = 3000
LIMITS = {"mlp": 1.5, "cnn": 1.2}  # Cone DRAG's round over BR-DRAG's
CASES = (
    dataclasses.replace(WORKLOADS["W1"], title="MLP 784-500-47, 10 clients, 5 steps of 20", clients=10, per_round=10),
    dataclasses.replace(WORKLOADS["W3"], title="CNN on 3x32x32, 10 clients, 5 steps of 20", clients=10, per_round=10),
)


def measure(repeats: int, tick: Tick = silent) -> list[Comparison]:
    """Whole rounds without evaluation, with 3,000 root samples."""
    return [_measure(case, workers, repeats, tick) for case in CASES for workers in sorted({1, available_cores()})]


def _measure(case: Workload, workers: int, repeats: int, tick: Tick) -> Comparison:
    how = f"{workers} process{'es' if workers > 1 else ''}"
    with ExitStack() as open_:
        contenders = []
        for rule in RULES:
            tick(f"{rule}, {how}")
            simulation = open_.enter_context(dragfl.simulate(case.experiment(rule, workers, {"size": ROOT})))
            for _ in range(WARM_UP):
                simulation.step()
            limits = {"br_drag": LIMITS[case.model]} if rule == "cone_drag" else {}
            contenders.append(Contender(rule, "dragfl", how, simulation.step, limits))
        found = timed(contenders, repeats, tick)
    title = f"{case.title}, {how}"
    return Comparison("root", title, rows(contenders, found, {"br_drag": contenders[0]}), ("br_drag",), repeats)
