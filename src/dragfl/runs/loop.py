"""Run an experiment into a directory and resume it from there, with the same bytes as if it was never stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from dragfl import atomic as durable
from dragfl.config.spec import Experiment, as_experiment, load
from dragfl.engine.allocator import keep_freed_memory
from dragfl.errors import DamagedRun, Diverged, Interrupted, SpecError
from dragfl.runs import checkpoint
from dragfl.runs.directory import CLIENTS, INFO, LOCK, LOGS, METRICS, MODEL, RESULT, SPEC, TIMING, Run, load_run
from dragfl.runs.environment import describe_machine
from dragfl.runs.lock import locked
from dragfl.runs.simulation import Simulation
from dragfl.types import OnRecord, RoundRecord

STARTED = {LOCK, INFO, f"{INFO}.tmp", f"{SPEC}.tmp"}  # what a run may leave that was killed before it had a spec


def run(
    experiment: Experiment | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    on_record: OnRecord | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Run an experiment into a new directory (default runs/NAME); one that is finished there is not repeated."""
    experiment = as_experiment(experiment)
    folder = Path(out) if out is not None else Path("runs") / experiment.name
    if (folder / SPEC).exists():
        return _existing(folder, experiment)
    if folder.exists() and (not folder.is_dir() or {path.name for path in folder.iterdir()} - STARTED):
        raise SpecError(f"{folder}: exists and is not a run directory; choose another place")
    simulation = Simulation(experiment, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{folder}: cannot be made ({error.strerror}); choose another place") from None
    with locked(folder):
        if (folder / SPEC).exists():  # made by another process meanwhile
            return _existing(folder, experiment)
        durable.write_json(folder / INFO, describe_machine(simulation.experiment.seed, simulation.federation.info))
        durable.write_text(folder / SPEC, simulation.experiment.to_toml())
        return _drive(simulation, folder, on_record, should_stop)


def resume(
    path: str | Path,
    experiment: Experiment | None = None,
    *,
    on_record: OnRecord | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Go on with a run that was stopped or killed. Give the experiment where its spec holds objects of your own."""
    done = load_run(path)
    if done.finished:
        return done
    if experiment is None:
        try:
            experiment = load(done.spec)
        except SpecError as error:
            raise DamagedRun(
                f"{done.path / SPEC}: {error} (is it a part of your own? resume where it can be imported, or from "
                "Python with dragfl.resume(path, experiment))"
            ) from None
    elif not same_spec(experiment, done):
        raise SpecError(f"{done.path}: was made by another experiment; compare {done.path / SPEC} with yours")
    else:
        experiment = _as_resolved(experiment, done)
    with locked(done.path):
        if load_run(path).finished:  # by another process meanwhile
            return done
        simulation = Simulation(experiment, done.path)
        restored = checkpoint.load(done.path, simulation.federation)
        lengths = dict.fromkeys(LOGS, 0)
        if restored is not None:
            simulation.state, lengths = restored
        _cut_back(done.path, lengths)
        return _drive(simulation, done.path, on_record, should_stop)


def _as_resolved(experiment: Experiment, done: Run) -> Experiment:
    """The experiment with what its first start decided: the block size and the trainer order the sums."""
    decided = {name: done.spec["engine"][name] for name in ("block", "trainer") if name in done.spec.get("engine", {})}
    return replace(experiment, engine=replace(experiment.engine, **decided))


def begin_or_resume(
    experiment: Experiment,
    folder: Path,
    *,
    on_record: OnRecord | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Run:
    """Run an experiment into a folder, or what is left of it there; that it diverged is a result like any other."""
    with suppress(Diverged):  # told by its result.json
        if (folder / SPEC).exists():
            return resume(folder, experiment, on_record=on_record, should_stop=should_stop)
        return run(experiment, folder, on_record=on_record, should_stop=should_stop)
    return load_run(folder)


def same_spec(experiment: Experiment, done: Run) -> bool:
    """Whether a run directory is of this experiment; what only the machine decides is left out where not given."""
    mine, theirs = json.loads(json.dumps(experiment.tables())), json.loads(json.dumps(done.spec))
    if "block" not in mine["engine"]:
        theirs.get("engine", {}).pop("block", None)
    if mine["engine"].get("trainer") == "auto":
        theirs.setdefault("engine", {})["trainer"] = "auto"
    for tables in (mine, theirs):  # these decide nothing in a run whose files are whole
        tables.get("state", {}).pop("on_missing", None)
        for key in ("workers", "executor"):
            tables.get("engine", {}).pop(key, None)
    return bool(mine == theirs)


def _existing(folder: Path, experiment: Experiment) -> Run:
    done = load_run(folder)
    if not same_spec(experiment, done):
        raise SpecError(f"{folder}: holds a run of another experiment; choose another name or --out, or delete it")
    if not done.finished:
        raise SpecError(f"{folder}: holds this run, unfinished; go on with: dragfl resume {folder}")
    return done


def _drive(simulation: Simulation, folder: Path, on_record: OnRecord | None, should_stop: Callable[[], bool]) -> Run:
    """Play the rounds that are left, logging each; checkpoint on the way, at the end and when asked to stop."""
    keep_freed_memory()
    every = simulation.experiment.checkpoint.every
    stopped_by = _reached(folder, simulation) or "rounds"
    with simulation, _Logs(folder) as logs:
        while not simulation.done and stopped_by == "rounds":
            try:
                record = simulation.step()
            except Diverged as error:
                _write_result(folder, "diverged", str(error))
                raise
            logs.write(record)
            if on_record is not None:
                on_record(record)
            if simulation.at_target:
                stopped_by = "target"
            ending = simulation.done or stopped_by != "rounds"
            stop = not ending and should_stop()
            if ending or stop or record.round % every == 0:
                checkpoint.save(folder, simulation.federation, simulation.state, logs.lengths())
            if stop:
                raise Interrupted(f"stopped after round {record.round}; go on with: dragfl resume {folder}")
    named = simulation.model()
    durable.write(folder / MODEL, lambda temporary: durable.save_tensors(named, temporary))
    _write_result(folder, stopped_by)
    return load_run(folder)


def _reached(folder: Path, simulation: Simulation) -> str | None:
    """`target` if the logged rounds already stopped at it: a run killed between its last round and its result."""
    target = simulation.experiment.target_accuracy
    reached = simulation.experiment.stop_at_target and target is not None and Run(folder).rounds_to(target)
    return "target" if reached else None


class _Logs:
    """The three logs: a line a round each, flushed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> _Logs:
        self._files: dict[str, IO[bytes]] = {name: (self._folder / name).open("ab") for name in LOGS}
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # a line that a full disk refused is cut off by resume
                file.close()

    def write(self, record: RoundRecord) -> None:
        for name, values in ((METRICS, record.metrics), (CLIENTS, record.clients), (TIMING, record.timing)):
            line = json.dumps({"round": record.round, **values}, separators=(",", ":"), allow_nan=False)
            try:
                self._files[name].write(line.encode() + b"\n")
                self._files[name].flush()
            except OSError as error:
                raise durable.storage_error(self._folder / name, error) from error

    def lengths(self) -> dict[str, int]:
        """The byte length of each log, made durable."""
        for name, file in self._files.items():
            try:
                os.fsync(file.fileno())
            except OSError as error:
                raise durable.storage_error(self._folder / name, error) from error
        return {name: file.tell() for name, file in self._files.items()}


def _cut_back(folder: Path, lengths: Mapping[str, int]) -> None:
    """Cut every log back to what it was at the checkpoint, and clear away half-written files; or change nothing."""
    sizes = {name: (folder / name).stat().st_size if (folder / name).exists() else 0 for name in LOGS}
    for name, size in sizes.items():
        if size < lengths[name]:
            raise DamagedRun(
                f"{folder / name}: {size} bytes, but {lengths[name]} at the last checkpoint; "
                "restore the file or run again"
            )
    for name, size in sizes.items():
        if size > lengths[name]:
            os.truncate(folder / name, lengths[name])
    for left in folder.glob("*.tmp"):
        left.unlink()


def _write_result(folder: Path, stopped_by: str, message: str | None = None) -> None:
    """The summary, computed from the log itself."""
    done = Run(folder)
    target = done.spec.get("target_accuracy")
    accuracies = [value for _, value in done.accuracy]
    result: dict[str, Any] = {
        "rounds": len(done.metrics),
        "accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        "target_accuracy": target,
        "rounds_to_target": None if target is None else done.rounds_to(target),
        "stopped_by": stopped_by,
        "bytes_down": _total(done.metrics, "bytes_down"),
        "bytes_up": _total(done.metrics, "bytes_up"),
    }
    durable.write_json(folder / RESULT, result | ({"message": message} if message else {}))


def _total(metrics: list[dict[str, Any]], name: str) -> int:
    return sum(int(row[name]) for row in metrics)
