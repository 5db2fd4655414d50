"""W1 to W3 and W5: rounds of local training by the floor, the bare loop, dragfl and every installed peer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

import dragfl
from benchmarks.bare import Preloaded, bare_loop, preload
from benchmarks.floor import Floor
from benchmarks.peers import installed
from benchmarks.results import Comparison, Contender, on, rows, timed
from benchmarks.timing import Tick, silent, threads
from benchmarks.workloads import Workload
from dragfl.engine.threads import available_cores

ALGORITHMS = ("fedavg", "drag")
WARM_UP = 2  # rounds: the first starts the workers, and DRAG initialises its reference


def measure(workload: Workload, repeats: int, tick: Tick = silent) -> Comparison:
    """Compare whole rounds without evaluation. Multi-threaded contenders are measured with one thread and with all."""
    repeats = min(repeats, workload.most_repeats or repeats)
    with ExitStack() as open_:
        given = preload(workload)
        floor, onednn = (
            Contender(
                name, "floor", _processes(), open_.enter_context(Floor(workload, available_cores(), choice)).round
            )
            for name, choice in (("floor", False), ("floor with oneDNN", True))
        )
        bare = [Contender("bare loop", "bare", on(n), threads(n)(bare_loop(workload, given))) for n in _counts()]
        ours = list(_ours(workload, open_, tick))
        peers = list(_peers(workload, given, open_, tick)) if workload.peers else []
        found = timed([floor, onednn, *bare, *ours, *peers], repeats, tick)
    for contenders in (bare, peers):
        contenders.sort(key=lambda who: median(found[who.label]))
    fastest = {who.name: who for who in reversed(peers)}  # a peer is shown at its best thread count
    bases = {"bare loop": bare[0], "floor": floor}
    shown = [floor, onednn, *ours, *bare, *(who for who in peers if fastest[who.name] is who)]
    return Comparison(workload.name, workload.title, rows(shown, found, bases), tuple(bases), repeats)


def _counts() -> list[int]:
    return sorted({1, available_cores()})


def _processes() -> str:
    return f"{available_cores()} processes"


def _ours(workload: Workload, open_: ExitStack, tick: Tick) -> Iterator[Contender]:
    limits = {"bare loop": workload.to_bare, "floor": workload.to_floor}
    wanted = {base: limit for base, limit in limits.items() if limit is not None}
    for algorithm in ALGORITHMS:
        tick(f"dragfl, {algorithm}")
        simulation = open_.enter_context(dragfl.simulate(workload.experiment(algorithm, available_cores())))
        for _ in range(WARM_UP):
            simulation.step()
        yield Contender(f"dragfl, {algorithm}", "dragfl", _processes(), simulation.step, wanted)


def _peers(workload: Workload, given: Preloaded, open_: ExitStack, tick: Tick) -> Iterator[Contender]:
    for name, peer in installed():
        tick(name)
        run_round = peer.round_of(workload, given)
        open_.callback(getattr(run_round, "close", lambda: None))
        if hasattr(peer, "PROCESSES"):
            yield Contender(name, "peer", _processes(), run_round)
        else:
            yield from (Contender(name, "peer", on(count), threads(count)(run_round)) for count in _counts())
