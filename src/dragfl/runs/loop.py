"""Run an experiment into a run directory, and resume it there. A resumed run has the bytes of an uninterrupted one."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from dragfl import atomic
from dragfl.build import Connect
from dragfl.config.spec import Experiment, as_experiment, load
from dragfl.errors import DamagedRun, Diverged, Interrupted, SpecError, UnsafeSpec
from dragfl.runs.checkpoint import load_checkpoint, save_checkpoint
from dragfl.runs.digests import MISMATCH, LogEnd, bytes_digest, file_digest, new_digest, with_digest
from dragfl.runs.directory import (
    CLIENTS,
    FLOWER,
    INFO,
    LOCK,
    LOGS,
    METRICS,
    MODEL,
    NODES,
    RESULT,
    SPEC,
    TIMING,
    Run,
    find_run,
    load_run,
    settings_digest,
)
from dragfl.runs.environment import describe_environment
from dragfl.runs.fingerprints import Fingerprints, of_simulation
from dragfl.runs.lock import lock_folder, refuse_if_locked
from dragfl.runs.same_run import check_fingerprint, check_same_experiment, clear_run, warn_of_doubts
from dragfl.runs.simulation import Simulation
from dragfl.runs.trackers import Names, Trackers, check_trackers
from dragfl.runs.trackers.figures import draw_figures
from dragfl.types import OnRecord, RoundRecord

# Files that a run may leave behind if it is killed before it has written its spec.
BEFORE_SPEC = {LOCK, INFO, f"{INFO}.tmp", f"{SPEC}.tmp", NODES, FLOWER}


def run(
    experiment: Experiment | str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    fresh: bool = False,
    on_record: OnRecord = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    log: Names = (),
    connect: Connect | None = None,
) -> Run:
    """Run an experiment into a new directory. A finished run is returned, not repeated.

    It is an error if the run there had other settings, data, initial weights, model or code. `fresh=True` starts over:
    it replaces the run in the directory, whatever it is.
    `log` names trackers that get every round: "tensorboard", "mlflow", "wandb", or several of them.
    `connect` supplies clients that are not simulated (`build.py`).
    """
    trackers = check_trackers(log)
    experiment = as_experiment(experiment)
    folder = Path(out)
    finished, fresh = check_folder(experiment, folder, fresh)
    if finished is not None:
        return finished
    simulation = Simulation(experiment, folder, connect)
    create_folder(folder)
    with lock_folder(folder):
        if fresh or find_run(folder) is None:
            _write_start(simulation, folder, fresh=fresh)
            return _run_rounds(simulation, folder, on_record, should_stop, trackers)
    return run(experiment, folder, connect=connect)  # another process has created it in the meantime


def check_folder(experiment: Experiment, folder: Path, fresh: bool) -> tuple[Run | None, bool]:
    """(the run of this experiment, if it has finished there; whether what is there is replaced)."""
    existing = find_run(folder)
    if existing is not None:
        finished = None if fresh else _finished_run(experiment, existing)
        return finished, finished is None
    if folder.exists():
        if not folder.is_dir() or {path.name for path in folder.iterdir()} - BEFORE_SPEC:
            raise SpecError(f"{folder}: exists and is not a run directory; choose another folder")
        refuse_if_locked(folder)
    return None, fresh


def _finished_run(experiment: Experiment, existing: Run) -> Run | None:
    """The run of this experiment, if it is that and has finished; None if it may begin again."""
    if not existing.finished:
        refuse_if_locked(existing.path)
    check_same_experiment(experiment, existing)
    if not existing.begun:
        return None
    check_fingerprint(Fingerprints().of(experiment), existing)
    if not existing.finished:
        raise SpecError(f"{existing.path}: holds this run, unfinished; continue with: dragfl resume {existing.path}")
    existing.check_files()
    warn_of_doubts([existing])
    return existing


def _write_start(simulation: Simulation, folder: Path, *, fresh: bool) -> None:
    """Write the files that make a folder a run directory; `fresh` deletes the run that is there."""
    federation = simulation.federation
    sizes = {"parameters": federation.info.dim, "classes": federation.worker.dataset.classes}
    info = describe_environment(simulation.experiment.seed, **sizes)
    spec = simulation.experiment.to_toml()
    info |= {"id": os.urandom(8).hex(), "fingerprints": of_simulation(simulation)}
    info |= {"settings": settings_digest(tomllib.loads(spec))}
    if fresh:
        clear_run(folder)
    atomic.write_json(folder / INFO, with_digest(info))
    atomic.write_text(folder / SPEC, spec)


def resume(
    path: str | Path,
    experiment: Experiment | None = None,
    *,
    on_record: OnRecord = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    log: Names = (),
    connect: Connect | None = None,
) -> Run:
    """Continue a run that was stopped or killed. Pass the experiment if its spec holds Python objects.

    It is an error if data, initial weights, model or code are others than at its start. For a finished run they are
    compared only if the experiment is given; if its model file is missing, it is restored from the last checkpoint.
    The trackers of the run are continued; `log` adds others.
    """
    existing = load_run(path)
    folder = existing.path
    trackers = check_trackers(log, None if existing.complete else folder)
    if existing.complete:
        existing.check_files()
        return existing if experiment is None else _finished_run(experiment, existing) or existing
    refuse_if_locked(folder)
    experiment = resumed_experiment(existing, experiment)
    with lock_folder(folder):
        if load_run(folder).complete:  # by another process in the meantime
            return existing
        try:
            simulation = Simulation(experiment, folder, connect)
        except SpecError:  # a change of the data or the model may be the reason
            check_fingerprint(Fingerprints().of(experiment), existing)
            raise
        fingerprint = of_simulation(simulation)
        if existing.begun:
            check_fingerprint(fingerprint, existing)
            warn_of_doubts([existing])
        elif existing.info.get("fingerprints") != fingerprint:  # nothing is there to continue
            _write_start(simulation, folder, fresh=True)
            existing = load_run(folder)
        simulation.state, ends = load_checkpoint(folder, simulation.federation)
        if existing.finished:
            return _restore_model(simulation, existing)
        truncate_logs(folder, ends)
        target = experiment.target_accuracy if experiment.stop_at_target else None
        simulation.at_target = target is not None and existing.rounds_to(target) is not None
        return _run_rounds(simulation, folder, on_record, should_stop, trackers)


def resumed_experiment(existing: Run, experiment: Experiment | None) -> Experiment:
    """The experiment of a run, from its spec or as given, with the settings that its first start resolved."""
    if experiment is not None:
        check_same_experiment(experiment, existing)
        return _with_stored_settings(experiment, existing)
    try:
        experiment = load(existing.spec)
    except UnsafeSpec:
        raise
    except SpecError as error:
        raise DamagedRun(
            f"{existing.path / SPEC}: {error} (if this names your own Python object: resume where it can be imported, "
            "or from Python with dragfl.resume(path, experiment))"
        ) from None
    existing.check_spec()
    return experiment


def _restore_model(simulation: Simulation, existing: Run) -> Run:
    """Write the model of a finished run again, from its last checkpoint."""
    rounds = (existing.result or {}).get("rounds")
    if simulation.state.t != rounds:
        raise DamagedRun(
            f"{existing.path}: {MODEL} is missing, and the last checkpoint is of round {simulation.state.t}, not of "
            f"the last round {rounds}; run again with --fresh (in Python: fresh=True)"
        )
    atomic.write_tensors(existing.path / MODEL, simulation.model())
    return existing


def run_or_resume(
    experiment: Experiment,
    folder: Path,
    *,
    on_record: OnRecord = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    log: Names = (),
    connect: Connect | None = None,
) -> Run:
    """Run an experiment into a folder, or continue the run that is there. A diverged run is returned like any other."""
    with suppress(Diverged):  # result.json records it
        if find_run(folder) is not None:
            return resume(folder, experiment, on_record=on_record, should_stop=should_stop, log=log, connect=connect)
        return run(experiment, folder, on_record=on_record, should_stop=should_stop, log=log, connect=connect)
    return load_run(folder)


def create_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{folder}: cannot be created ({error.strerror}); choose another folder") from None


def _with_stored_settings(experiment: Experiment, existing: Run) -> Experiment:
    """The experiment as its first start resolved it: block and trainer order the sums, memory places the states."""
    engine, state = existing.spec.get("engine", {}), existing.spec.get("state", {})
    return replace(
        experiment,
        engine=replace(experiment.engine, **{key: engine[key] for key in ("block", "trainer") if key in engine}),
        state=replace(experiment.state, **{key: state[key] for key in ("memory_mb",) if key in state}),
    )


def _run_rounds(
    simulation: Simulation, folder: Path, on_record: OnRecord, should_stop: Callable[[], bool], log: Sequence[str]
) -> Run:
    """Run and log the remaining rounds; checkpoint periodically, at the end and on an interrupt."""
    draw = partial(draw_figures, simulation)
    with simulation, RoundLogs(folder) as logs, Trackers(log, folder, draw) as trackers:
        while not simulation.done:
            completed = simulation.state.t
            try:
                record = simulation.step()
            except Diverged as error:
                _write_result(folder, "diverged", message=str(error))
                raise
            except Interrupted:  # in mid-round: the rounds before it are kept
                if 0 < completed == simulation.state.t:
                    save_checkpoint(folder, simulation.federation, simulation.state, logs.sync())
                raise
            logs.append(record)
            trackers.record(record)
            on_record(record)
            stop = not simulation.done and should_stop()
            if simulation.done or stop or record.round % simulation.experiment.checkpoint.every == 0:
                save_checkpoint(folder, simulation.federation, simulation.state, logs.sync())
            if stop:
                raise Interrupted(f"stopped after round {record.round}; continue with: dragfl resume {folder}")
    atomic.write_tensors(folder / MODEL, simulation.model())
    _write_result(folder, "target" if simulation.at_target else "rounds")
    return _loaded(folder)


def _loaded(folder: Path) -> Run:
    """The run as it is now: a later start over in this directory is an error when it is read, not other numbers."""
    run = Run(folder)
    _ = run.info
    return run


class RoundLogs:
    """The three logs of a run, open for appending: one line per round in each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> RoundLogs:
        self._files: dict[str, IO[bytes]] = {name: (self.folder / name).open("ab") for name in LOGS}
        self._digests = {name: new_digest((self.folder / name).read_bytes()) for name in LOGS}
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # resume cuts off a line that did not fit on a full disk
                file.close()

    def append(self, record: RoundRecord) -> None:
        for name, values in ((METRICS, record.metrics), (CLIENTS, record.clients), (TIMING, record.timing)):
            text = json.dumps({"round": record.round, **values}, separators=(",", ":"), allow_nan=False)
            line = text.encode() + b"\n"
            try:
                self._files[name].write(line)
                self._files[name].flush()
            except OSError as error:
                raise atomic.storage_error(self.folder / name, error) from error
            self._digests[name].update(line)

    def sync(self) -> dict[str, LogEnd]:
        """Make the logs durable; returns their ends."""
        for name, file in self._files.items():
            try:
                os.fsync(file.fileno())
            except OSError as error:
                raise atomic.storage_error(self.folder / name, error) from error
        return {name: LogEnd(file.tell(), self._digests[name].hexdigest()) for name, file in self._files.items()}


def truncate_logs(folder: Path, ends: Mapping[str, LogEnd]) -> None:
    """Cut the logs back to their ends at the checkpoint and delete temporary files; on damage, change nothing."""
    sizes: dict[str, int] = {}
    for name, (length, digest) in ends.items():
        content = (folder / name).read_bytes() if (folder / name).exists() else b""
        sizes[name] = len(content)
        if len(content) < length:
            problem = f"{len(content)} bytes, but {length} at the last checkpoint"
        elif digest is not None and bytes_digest(content[:length]) != digest:
            problem = f"{MISMATCH} of the first {length} bytes, those up to the last checkpoint"
        else:
            continue
        raise DamagedRun(f"{folder / name}: {problem}; restore the file or run again")
    for name, size in sizes.items():
        if size > ends[name].length:
            os.truncate(folder / name, ends[name].length)
    for temporary in folder.glob("*.tmp"):
        temporary.unlink()


def _write_result(folder: Path, stopped_by: str, **message: str) -> None:
    """Write the summary, computed from the log, after the checksums of all files of the finished run."""
    run = Run(folder)
    target = run.spec.get("target_accuracy")
    accuracies = [value for _, value in run.accuracy]
    result = {
        "rounds": len(run.metrics),
        "accuracy": accuracies[-1] if accuracies else None,
        "best_accuracy": max(accuracies, default=None),
        "target_accuracy": target,
        "rounds_to_target": None if target is None else run.rounds_to(target),
        "stopped_by": stopped_by,
        **{name: sum(int(row[name]) for row in run.metrics) for name in ("bytes_down", "bytes_up")},
        **message,
    }
    text = json.dumps(result, indent=1) + "\n"
    files = {name: file_digest(folder / name) for name in (*LOGS, MODEL, NODES) if (folder / name).exists()}
    atomic.write_json(folder / INFO, with_digest({**run.info, "files": {**files, RESULT: bytes_digest(text.encode())}}))
    atomic.write_text(folder / RESULT, text)
