"""W1 to W3: a round of local training by the floor, the bare loop, dragfl and every peer that is installed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import dragfl
from benchmarks.bare import bare_loop, preload
from benchmarks.floor import Floor
from benchmarks.results import Contender, Panel, rows
from benchmarks.timing import Tick, interleave, silent
from benchmarks.works import Work
from dragfl.engine.executors.choose import cores

ALGORITHMS = ("fedavg", "drag")
WARM_UP = 2  # rounds: the first starts the workers, and DRAG makes its reference


def measure(work: Work, repeats: int, tick: Tick = silent) -> Panel:
    """Medians of whole rounds, evaluation excluded."""
    many = cores()
    told: dict[str, Contender] = {}
    run: dict[str, Callable[[], object]] = {}
    with ExitStack() as open_:
        told["floor"] = Contender("floor", "floor", f"{many} processes")
        run["floor"] = open_.enter_context(Floor(work, many)).round
        given = preload(work)
        for count in sorted({1, many}):
            key = f"bare loop, {count}"
            told[key] = Contender("bare loop", "bare", f"{count} thread{'s' if count > 1 else ''}")
            run[key] = bare_loop(work, given, count)
        limits = {"bare loop": work.to_bare, "floor": work.to_floor}
        for algorithm in ALGORITHMS:
            simulation = open_.enter_context(dragfl.simulate(work.experiment(algorithm, many)))
            for _ in range(WARM_UP):
                tick(f"dragfl {algorithm}")
                simulation.step()
            wanted = {base: limit for base, limit in limits.items() if limit is not None}
            told[algorithm] = Contender(f"dragfl, {algorithm}", "dragfl", f"{many} processes", wanted)
            run[algorithm] = simulation.step
        found = interleave(run, repeats, tick)
    best = min((key for key, who in told.items() if who.kind == "bare"), key=lambda key: found[key].median)
    bases = {"bare loop": best, "floor": "floor"}
    return Panel(work.name, work.title, rows(told, found, bases), tuple(bases), repeats)
