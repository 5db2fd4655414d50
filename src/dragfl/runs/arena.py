"""Run an attack matrix: every defence against every attack, each in its own run directory.

    dragfl.arena("attack.toml", ["fedavg", "br_drag", "nnm+trimmed_mean"], ["sign_flip", "alie"], out="arena/attack")

Each defence also has a no-attack baseline, configured for the largest number of attackers it can handle; all numbers
of attackers are compared with it. A defence that cannot be configured against an attack (too many attackers for its
guarantee) is a cell without a run, with the reason. The same call continues an interrupted arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dragfl import atomic
from dragfl.runs.arena_plan import Arena, plan_arena
from dragfl.runs.directory import Run
from dragfl.runs.loop import create_folder
from dragfl.runs.sweep import NO_CALLBACKS, Callbacks, run_planned
from dragfl.runs.trackers import Names, check_trackers

MANIFEST = "arena.json"


def arena(
    source: str | Path | Mapping[str, Any],
    defences: Sequence[Any],
    attacks: Sequence[Any],
    *,
    partitions: Sequence[Any] | None = None,
    fractions: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path,
    callbacks: Callbacks = NO_CALLBACKS,
    jobs: int = 1,
    log: Names = (),
) -> list[Run]:
    """Run every defence against every attack, or the rest of it. `dragfl.report.write_arena_report` writes the page.

    A defence or attack is a name, or (from Python) the object, class or function itself.
    """
    planned = plan_arena(source, defences, attacks, partitions=partitions, fractions=fractions, seeds=seeds, out=out)
    return run_arena(planned, callbacks, jobs=jobs, log=log)


def run_arena(arena: Arena, callbacks: Callbacks = NO_CALLBACKS, *, jobs: int = 1, log: Names = ()) -> list[Run]:
    """Write the manifest of a planned arena, then run it."""
    check_trackers(log)
    create_folder(arena.folder)
    atomic.write_json(arena.folder / MANIFEST, arena.manifest())
    return run_planned(arena.planned, callbacks, jobs=jobs, command="arena", log=log)
