"""W1 to W3: a round of local training by the floor, the bare loop, dragfl and every peer that is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import dragfl
from benchmarks.bare import Preloaded, bare_loop, preload
from benchmarks.floor import Floor
from benchmarks.peers import installed
from benchmarks.results import Contender, Panel, on, rows, timed
from benchmarks.timing import Tick, silent, with_threads
from benchmarks.works import Work
from dragfl.engine.backends.select import cores

ALGORITHMS = ("fedavg", "drag")
WARM_UP = 2  # rounds: the first starts the workers, and DRAG makes its reference


def measure(work: Work, repeats: int, tick: Tick = silent) -> Panel:
    """Medians of whole rounds, evaluation excluded. What has threads is measured with one and with all."""
    repeats = min(repeats, work.most_repeats or repeats)
    with ExitStack() as open_:
        given = preload(work)
        floor = Contender("floor", "floor", _processes(), open_.enter_context(Floor(work, cores())).round)
        bare = [Contender("bare loop", "bare", on(n), with_threads(n, bare_loop(work, given))) for n in _counts()]
        ours = list(_ours(work, open_, tick))
        peers = list(_peers(work, given, open_, tick)) if work.peers else []
        found = timed([floor, *bare, *ours, *peers], repeats, tick)
    bare.sort(key=lambda who: found[who.label].median)
    peers.sort(key=lambda who: found[who.label].median)
    fastest = {who.name: who for who in reversed(peers)}  # a peer is shown at its best thread count
    bases = {"bare loop": bare[0], "floor": floor}
    shown = [floor, *ours, *bare, *(who for who in peers if fastest[who.name] is who)]
    return Panel(work.name, work.title, rows(shown, found, bases), tuple(bases), repeats)


def _counts() -> list[int]:
    return sorted({1, cores()})


def _processes() -> str:
    return f"{cores()} processes"


def _ours(work: Work, open_: ExitStack, tick: Tick) -> Iterator[Contender]:
    limits = {"bare loop": work.to_bare, "floor": work.to_floor}
    wanted = {base: limit for base, limit in limits.items() if limit is not None}
    for algorithm in ALGORITHMS:
        tick(f"dragfl, {algorithm}")
        simulation = open_.enter_context(dragfl.simulate(work.experiment(algorithm, cores())))
        for _ in range(WARM_UP):
            simulation.step()
        yield Contender(f"dragfl, {algorithm}", "dragfl", _processes(), simulation.step, wanted)


def _peers(work: Work, given: Preloaded, open_: ExitStack, tick: Tick) -> Iterator[Contender]:
    for peer in installed():
        tick(peer.name)
        play = peer.round_of(work, given)
        open_.callback(getattr(play, "close", lambda: None))
        name = f"{peer.name} {peer.version}"
        if peer.processes:
            yield Contender(name, "peer", _processes(), play)
        else:
            yield from (Contender(name, "peer", on(count), with_threads(count, play)) for count in _counts())
