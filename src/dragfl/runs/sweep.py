"""Run a grid of experiments: every combination of the values given for some keys, each in its own run directory.

    dragfl.sweep("drift.toml", {"algorithm.name": ["fedavg", "drag"], "seed": [0, 1, 2]}, out="sweeps/drift")

With `tune={"algorithm.server_lr": [1.0, 2.0, 4.0]}` each combination gets its own best value of that key, selected by
runs on a validation split; see `tuning_plan.py`.

The same call continues an interrupted sweep: finished runs are kept, unfinished ones are resumed. The folder of a run
is named by its own values alone, so a later call may add values to a key. It is an error if a run that is there had
other settings, data, initial weights, model or code; `fresh=True` starts these runs over and keeps the others.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from traceback import extract_tb
from typing import Any

from dragfl import atomic
from dragfl.config.portable import why_not_portable
from dragfl.config.spec import load
from dragfl.engine.backends.supervisor import Task, WorkerGroup
from dragfl.engine.backends.worker_process import ParentConnection, ProcessLauncher
from dragfl.errors import DamagedRun, DragflError, Interrupted, RunsFailed, SpecError
from dragfl.runs.directory import TUNING_TABLE, Run, find_run, load_run
from dragfl.runs.fingerprints import Fingerprints
from dragfl.runs.loop import create_folder, run_or_resume
from dragfl.runs.same_run import check_fingerprint, check_same_experiment, start_over, warn_of_doubts
from dragfl.runs.sweep_plan import Grid, PlannedRun, plan_sweep
from dragfl.runs.trackers import Names, check_trackers
from dragfl.runs.tuning_plan import BEST_BY, Tuned, final_seeds, plan_final, plan_tuning, select_values
from dragfl.types import OnRecord

POLL_S = 0.2  # how often `should_stop` is called
Failure = tuple[str, int]  # the reason why a run failed, and the exit code


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called while many runs are in progress.

    Parameters
    ----------
    on_begin
        Before a run, with its plan and the number of rounds that it already has.
    on_record
        After every round, with its `RoundRecord`.
    on_end
        After a run, with the `Run` and whether it had finished before this call.
    should_stop
        After every round; True stops all runs with a checkpoint and raises `Interrupted`.
    on_failure
        After a run that raised, with its plan and the reason.
    """

    on_begin: Callable[[PlannedRun, int], None] = lambda planned, rounds_done: None
    on_record: OnRecord = lambda record: None
    on_end: Callable[[Run, bool], None] = lambda run, already_done: None
    should_stop: Callable[[], bool] = lambda: False
    on_failure: Callable[[PlannedRun, str], None] = lambda planned, reason: None


NO_CALLBACKS = Callbacks()


def sweep(
    source: str | Path | Mapping[str, Any],
    grid: Grid,
    out: str | Path,
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    jobs: int = 1,
    tune: Grid | None = None,
    best_by: str = BEST_BY[0],
    fresh: bool = False,
    log: Names = (),
) -> list[Run]:
    """Run the grid, or the rest of it. A diverged run is a result like any other.

    With `tune`, every combination of the grid first selects values for these keys, by the median over the tuning seeds
    of `best_by`. The final runs are returned; OUT/tuning.json has the scores. It is a warning if a selected value is at
    the edge of its grid, or if all tuning runs diverged.

    Parameters
    ----------
    source
        The common experiment: a TOML file or tables.
    grid
        Key -> its values, such as {"algorithm.name": ["fedavg", "drag"], "seed": [0, 1, 2]}.
    out
        The folder of the runs, one directory each.
    callbacks
        Functions that are called while the runs are in progress.
    jobs
        Number of runs in parallel.
    tune
        Key -> the values to select from.
    best_by
        validation_accuracy, validation_loss (the best over the evaluated rounds), or rounds (to the target, on the
        validation split).
    fresh
        Start over the runs that do not match their experiment any more, instead of refusing them.
    log
        Trackers that get every round: "tensorboard", "mlflow", "wandb", or several of them.
    """
    if not tune:
        return run_planned(plan_sweep(source, grid, out), callbacks, jobs=jobs, fresh=fresh, log=log)
    options: Any = {"jobs": jobs, "best_by": best_by, "fresh": fresh, "log": log}
    tuned, runs = run_tuned(source, grid, tune, out, callbacks, **options)
    for message in (message for part in tuned for message in part.warnings):
        warnings.warn(message, stacklevel=2)
    return runs


def run_tuned(
    source: str | Path | Mapping[str, Any],
    grid: Grid,
    tune: Grid,
    out: str | Path,
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    jobs: int = 1,
    best_by: str = BEST_BY[0],
    fresh: bool = False,
    on_plan: Callable[[Sequence[PlannedRun], Sequence[PlannedRun]], None] = lambda planned, later: None,
    log: Names = (),
) -> tuple[list[Tuned], list[Run]]:
    """Execute the tuning runs, select the values, then execute the final runs.

    Each of the two passes calls `on_plan` with its runs and with placeholders for the runs of the next pass.
    """
    tuning = plan_tuning(source, grid, tune, out, best_by=best_by)
    trials = [run for part in tuning for run in part.planned]
    on_plan(trials, [part.planned[0] for part in tuning for _ in final_seeds(source, grid)])
    run_planned(trials, callbacks, jobs=jobs, fresh=fresh, log=log)
    tuned = [select_values(part, best_by=best_by) for part in tuning]
    table = {"best_by": best_by, "tuned": [part.table() for part in tuned]}
    atomic.write_text(Path(out) / TUNING_TABLE, json.dumps(table, indent=1, default=str) + "\n")
    final = plan_final(source, grid, tuned, out)
    on_plan(final, [])
    return tuned, run_planned(final, callbacks, jobs=jobs, fresh=fresh, log=log)


def refuse_flower(planned: Sequence[PlannedRun], command: str) -> None:
    """Raise before anything is written: a federation on Flower is started for one run only."""
    if any(p.experiment.engine.executor == "flower" for p in planned):
        raise SpecError(f"engine.executor: 'flower' is for `dragfl run`; use 'local' or 'ray' with dragfl {command}")


def run_planned(
    planned: Sequence[PlannedRun],
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    jobs: int = 1,
    command: str = "sweep",
    fresh: bool = False,
    log: Names = (),
) -> list[Run]:
    """Run or resume each, one after another or in `jobs` processes. Error messages name the `command`.

    A run that does not match its experiment is an error, or deleted first if `fresh`. Each is a run of its own in the
    trackers that `log` names. A run that raises does not stop the others: they finish, then `RunsFailed` has the reason
    of each that failed.
    """
    trackers = check_trackers(log)
    refuse_flower(planned, command)
    for folder in {p.folder.parent for p in planned}:
        create_folder(folder)
    existing = [(p, find_run(p.folder)) for p in planned]
    for p in find_stale(existing, allowed=fresh):
        start_over(p.experiment, p.folder)
    unfinished = []
    for p, run in existing:
        if run is not None and run.finished:
            with suppress(DamagedRun):  # the others go on; reports list it with the reason
                callbacks.on_begin(p, len(run.metrics))
                callbacks.on_end(run, True)
        else:
            unfinished.append(p)
    failures: dict[str, Failure] = {}

    def fail(p: PlannedRun, failure: Failure) -> None:
        failures[p.name] = failure
        callbacks.on_failure(p, failure[0])

    try:
        if jobs > 1 and unfinished:
            _run_in_processes(unfinished, callbacks, jobs, command, trackers, fail)
        else:
            _run_in_turn(unfinished, callbacks, trackers, fail)
    except Interrupted as error:
        finished = sum(run.finished for p in planned if (run := find_run(p.folder)) is not None)
        cause = "" if callbacks.should_stop() else f" ({error})"
        raise Interrupted(
            f"{command} stopped with {finished} of {len(planned)} runs finished; continue with the same command{cause}"
        ) from error
    if failures:
        reasons = {name: reason for name, (reason, _) in failures.items()}
        raise RunsFailed(command, reasons, len(planned), next(iter(failures.values()))[1])
    return [load_run(p.folder) for p in planned]


def _describe_failure(error: Exception) -> Failure:
    """The message of an error, with its type and place if it is not one of ours."""
    if isinstance(error, DragflError):
        return str(error), error.exit_code
    frames = [frame for frame in extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}", DragflError.exit_code


def find_stale(existing: Iterable[tuple[PlannedRun, Run | None]], *, allowed: bool) -> list[PlannedRun]:
    """The runs that do not match their experiment; an error for the first unless they are allowed."""
    fingerprints, stale, kept = Fingerprints(), list[PlannedRun](), []
    for p, run in existing:
        if run is None:
            continue
        try:
            check_same_experiment(p.experiment, run)
            check_fingerprint(fingerprints.of(p.experiment), run)
            kept += [run] if run.finished else []  # others warn when they are resumed
        except (SpecError, DamagedRun):
            if not allowed:
                raise
            stale.append(p)
    warn_of_doubts(kept)
    return stale


def _run_in_turn(
    planned: Sequence[PlannedRun],
    callbacks: Callbacks,
    log: Names,
    fail: Callable[[PlannedRun, Failure], None],
) -> None:
    for p in planned:
        if p is not planned[0] and callbacks.should_stop():
            raise Interrupted("stopped between two runs")
        callbacks.on_begin(p, _rounds_done(p))
        options: Any = {"on_record": callbacks.on_record, "should_stop": callbacks.should_stop, "log": log}
        try:
            run = run_or_resume(p.experiment, p.folder, **options)
        except Interrupted:
            raise
        except Exception as error:
            fail(p, _describe_failure(error))
        else:
            callbacks.on_end(run, False)


def _run_in_processes(
    planned: Sequence[PlannedRun],
    callbacks: Callbacks,
    jobs: int,
    command: str,
    log: Sequence[str],
    fail: Callable[[PlannedRun, Failure], None],
) -> None:
    """Each process has one run at a time, and one thread. A lost process is replaced and its run resumed.

    After an error of the processes themselves, or on an interrupt, the runs write a checkpoint and stop. Then that
    error is raised, or `Interrupted`.
    """
    runs: dict[Task, PlannedRun] = {}
    for p in planned:
        if reason := why_not_portable(p.experiment, "set engine.workers = 1"):
            raise SpecError(f"{command}, run '{p.name}': runs in parallel are loaded by name: {reason}, and jobs = 1")
        engine = replace(p.experiment.engine, workers=1, executor="local")
        tables = replace(p.experiment, engine=engine).tables()
        runs[Task(f"run {p.folder}", ("run", str(p.folder), tables, list(log)))] = p
    waiting = iter(runs)
    group = WorkerGroup(
        ProcessLauncher("dragfl.runs.sweep:RunService", (), "check that run on its own with jobs = 1"),
        min(jobs, len(runs)),
        depth=1,
        on_send=lambda task: callbacks.on_begin(runs[task], _rounds_done(runs[task])),
        on_progress=lambda task, record: callbacks.on_record(record),
    )
    left, stopping = len(runs), False
    failure: Exception | None = None
    try:
        while left and (group.busy or not stopping):
            if not stopping and (callbacks.should_stop() or failure is not None):
                stopping = True
                for worker in group.workers:
                    worker.stop()
            try:
                if not stopping:
                    group.feed(lambda: next(waiting, None))
                for task, failed in group.collect(POLL_S):
                    left -= 1
                    if failed is None:
                        callbacks.on_end(load_run(runs[task].folder), False)
                    else:
                        fail(runs[task], failed)
            except Exception as error:
                if not (stopping and isinstance(error, Interrupted)):
                    failure = failure or error
    finally:
        group.close(at_once=True)
    if failure is not None:
        raise failure
    if stopping:
        raise Interrupted("every run that has begun has a checkpoint")


class RunService:
    """The work of a process that executes one run after the other."""

    def __init__(self, parent: ParentConnection) -> None:
        self._parent = parent

    def run(self, folder: str, tables: Mapping[str, Any], log: Sequence[str]) -> Failure | None:
        """Begin or resume a run, and report every round; returns why it failed, or None."""
        options: Any = {"on_record": self._parent.report, "should_stop": self._parent.should_stop, "log": log}
        try:
            run_or_resume(load(tables), Path(folder), **options)
        except Interrupted:
            raise
        except Exception as error:
            return _describe_failure(error)
        return None


def _rounds_done(planned: PlannedRun) -> int:
    run = find_run(planned.folder)
    return len(run.metrics) if run is not None else 0
