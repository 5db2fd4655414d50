"""Run an attack matrix: every defence against every attack, each in its own run directory.

    dragfl.arena("attack.toml", ["fedavg", "br_drag", "nnm+trimmed_mean"], ["sign_flip", "alie"], out="arena/attack")

Each defence also has a no-attack baseline, configured for the largest number of attackers it can handle; all numbers
of attackers are compared with it. A defence that cannot be configured against an attack (too many attackers for its
guarantee) is a cell without a run, with the reason; so is a run that raises. The same call continues an interrupted
arena.

OUT/runs/NAME      the runs of the cells
OUT/tuning/NAME    with tune_attacks: the candidate runs
OUT/arena.json     the plan; after the runs also the numbers
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dragfl import atomic
from dragfl.errors import RunsFailed
from dragfl.report.arena.numbers import describe_results
from dragfl.report.arena.results import MANIFEST, collect_results
from dragfl.runs.arena_plan import Arena, Cell, Tables, plan_arena
from dragfl.runs.arena_tuning import SEED, StrengthTuning, plan_strengths
from dragfl.runs.directory import Run, find_run, load_run
from dragfl.runs.loop import create_folder
from dragfl.runs.sweep import NO_CALLBACKS, Callbacks, refuse_flower, run_planned
from dragfl.runs.sweep_plan import PlannedRun
from dragfl.runs.trackers import Names, check_trackers

OnPlan = Callable[[Sequence[PlannedRun], Sequence[PlannedRun]], None]


def arena(
    source: str | Path | Mapping[str, Any],
    defences: Sequence[Any],
    attacks: Sequence[Any],
    *,
    partitions: Sequence[Any] | None = None,
    fractions: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path,
    root_only: bool = True,
    tune_attacks: int | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    jobs: int = 1,
    fresh: bool = False,
    log: Names = (),
) -> list[Run]:
    """Run every defence against every attack, or the rest of it. `dragfl.report.write_arena_report` writes the page.

    Parameters
    ----------
    source
        The common experiment: a TOML file or tables.
    defences
        Names such as "fedavg" or "nnm+trimmed_mean", or objects, classes and functions.
    attacks
        Names such as "sign_flip", or objects, classes and functions.
    partitions
        Partitions to compare: names, or tables such as {"kind": "dirichlet_class", "a": 0.3}; default: that of the
        experiment.
    fractions
        Fractions of malicious clients to compare; default: that of the experiment.
    seeds
        Seeds of every cell.
    out
        The folder of runs, numbers and page.
    root_only
        Whether the control that trains on the root data alone is added, where a defence uses root data.
    tune_attacks
        N: each attack first selects its strength against each defence from N candidate runs.
    callbacks
        Functions that are called while the runs are in progress.
    jobs
        Number of runs in parallel.
    fresh
        Start over the runs that do not match their experiment any more, instead of refusing them.
    log
        Trackers that get every round: "tensorboard", "mlflow", "wandb", or several of them.
    """
    planned = plan_arena(
        source, defences, attacks, partitions=partitions, fractions=fractions, seeds=seeds, out=out, root_only=root_only
    )
    tuning = None if tune_attacks is None else plan_strengths(planned, tune_attacks)
    return run_arena(planned, callbacks, jobs=jobs, fresh=fresh, log=log, tuning=tuning)


def run_arena(
    arena: Arena,
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    jobs: int = 1,
    fresh: bool = False,
    log: Names = (),
    tuning: Sequence[StrengthTuning] | None = None,
    on_plan: OnPlan = lambda planned, later: None,
) -> list[Run]:
    """Write arena.json, tune the attacks, run the cells, then write arena.json with the numbers.

    A cell that fails is marked with its reason and the others are run; then `RunsFailed` is raised. `on_plan` is
    called with the runs of each of the two passes and with placeholders for those of the next one.
    """
    check_trackers(log)
    refuse_flower(arena.planned, "arena")
    create_folder(arena.folder)
    overlapped = _stored_overlaps(arena.folder)
    extra: Tables = {"tuning": None, "overlapped": overlapped, "numbers": None}
    failures: dict[str, str] = {}
    codes: list[int] = []
    trials: list[PlannedRun] = []
    if tuning is not None:
        trials = [p for part in tuning for p in part.planned]
        on_plan(trials, arena.planned)
        arena = _without_runs(arena, tuning)
        _write(arena, extra)
        with _collect(failures, codes):
            run_planned(trials, callbacks, jobs=jobs, command="arena", fresh=fresh)
        arena, extra["tuning"] = _with_strengths(arena, tuning, failures)
    if overlapped is not None:
        existing = [(p, find_run(p.folder)) for p in arena.planned]
        unfinished = {p.name for p, run in existing if fresh or run is None or not run.finished}
        extra["overlapped"] = sorted({*overlapped, *(unfinished if jobs > 1 and len(unfinished) > 1 else ())})
    _write(arena, extra)
    on_plan(arena.planned, [])
    with _collect(failures, codes):
        run_planned(arena.planned, callbacks, jobs=jobs, command="arena", fresh=fresh, log=log)
    cells = [
        replace(c, failed=failures[c.planned.name]) if c.planned and c.planned.name in failures else c
        for c in arena.cells
    ]
    _write(replace(arena, cells=cells), extra, with_numbers=True)
    if failures:
        raise RunsFailed("arena", failures, len(trials) + len(arena.planned), codes[0])
    return [load_run(p.folder) for p in arena.planned]


@contextmanager
def _collect(failures: dict[str, str], codes: list[int]) -> Iterator[None]:
    """Note the runs that failed and go on."""
    try:
        yield
    except RunsFailed as error:
        failures.update(error.failures)
        codes.append(error.exit_code)


def _without_runs(arena: Arena, tuning: Sequence[StrengthTuning]) -> Arena:
    """The cells that wait for the strength of their attack have no run yet."""
    waiting = {part.cells[0].key for part in tuning}
    return replace(arena, cells=[replace(c, planned=None) if c.key in waiting else c for c in arena.cells])


def _with_strengths(
    arena: Arena, tuning: Sequence[StrengthTuning], failures: Mapping[str, str]
) -> tuple[Arena, Tables]:
    """The arena with the selected strengths, and the scores for arena.json; a failed candidate fails its cells."""
    strengths: list[Mapping[str, Any]] = []
    final: dict[tuple[Any, int], Cell] = {}
    for part in tuning:
        failed = next((failures[p.name] for p in part.planned if p.name in failures), None)
        if failed is None:
            strengths.append(part.select())
            cells = part.final_cells(strengths[-1]["selected"])
        else:
            cells = [replace(c, planned=None, failed=f"a tuning run failed: {failed}") for c in part.cells]
        final |= {(c.key, c.seed): c for c in cells}
    scores = {"seed": SEED, "candidates": len(tuning[0].candidates) if tuning else 0, "strengths": strengths}
    return replace(arena, cells=[final.get((c.key, c.seed), c) for c in arena.cells]), scores


def _stored_overlaps(folder: Path) -> list[str] | None:
    """The runs of an earlier call that were executed in parallel; None if that was not recorded."""
    try:
        stored = json.loads((folder / MANIFEST).read_text()).get("overlapped")
    except FileNotFoundError:
        return []
    except (OSError, ValueError, AttributeError):
        return None
    return stored if isinstance(stored, list) else None


def _write(arena: Arena, extra: Tables, *, with_numbers: bool = False) -> None:
    table = {**arena.manifest(), **extra}
    if with_numbers:
        table["numbers"] = describe_results(collect_results(arena.folder, table))
    atomic.write_json(arena.folder / MANIFEST, table)
