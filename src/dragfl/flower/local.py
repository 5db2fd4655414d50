"""Run an experiment as a Flower federation on this machine: a SuperLink, and a SuperNode for each client.

The ServerApp writes the run directory; this process starts the federation, passes the rounds on as they are logged, and
raises what the ServerApp has raised. Logs and client states are in the folder `flower` of the run directory.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl import errors
from dragfl.config.portable import why_not_portable
from dragfl.config.spec import Experiment
from dragfl.errors import Diverged, DragflError, DragflWarning, Interrupted, SpecError
from dragfl.flower.app_files import write_app
from dragfl.flower.fleet import Fleet
from dragfl.flower.processes import tail
from dragfl.runs.directory import CLIENTS, FLOWER, METRICS, NODES, SPEC, TIMING, Run, load_run
from dragfl.runs.lock import is_locked, lock_folder
from dragfl.runs.trackers import Names, check_trackers
from dragfl.types import OnRecord, RoundRecord

if TYPE_CHECKING:
    from dragfl.engine.backends import Backend
    from dragfl.engine.client_store import ClientStore
    from dragfl.engine.simulator import Worker

log = logging.getLogger("dragfl.flower")

MANY = 32  # nodes; above it a warning
NODE_GB = 0.4  # while it trains; 0.2 while it waits
POLL_S = 0.25  # between looks at the logs
STATUS_S = 1.0  # between questions to SuperLink
SILENT = 10  # questions without an answer, of up to 30 s each
SERVER_LOG = "server.log"
STOPPED = "finished:stopped"
FAILED = "ServerApp failed with exception: "  # how Flower begins the text of an exception
CLASS = re.compile(r"^dragfl\.errors\.(\w+): ", re.MULTILINE)  # in the traceback of an exception


def run_local(
    experiment: Experiment,
    folder: Path,
    *,
    fresh: bool = False,
    on_record: OnRecord = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    log: Names = (),
) -> Run:
    """Run an experiment into a new directory, as `dragfl.run` does."""
    trackers = check_trackers(log)
    check_local(experiment)
    if folder.exists():
        from dragfl.runs.loop import check_folder
        from dragfl.runs.same_run import start_over

        finished, _ = check_folder(experiment, folder, fresh)
        if finished is not None:
            return finished
        if (folder / SPEC).exists():
            start_over(experiment, folder)
        shutil.rmtree(folder / FLOWER, ignore_errors=True)
    return _run(experiment, folder, on_record, should_stop, trackers)


def resume_local(
    path: str | Path,
    experiment: Experiment | None = None,
    *,
    on_record: OnRecord = lambda record: None,
    should_stop: Callable[[], bool] = lambda: False,
    log: Names = (),
) -> Run:
    """Continue an unfinished run, as `dragfl.resume` does, with new nodes that have the old client states."""
    from dragfl.runs.checkpoint import checkpointed_logs
    from dragfl.runs.loop import resume, resumed_experiment, truncate_logs

    existing = load_run(path)
    folder = existing.path
    if existing.finished:  # what may be missing is its model, and that is in the last checkpoint
        return resume(path, experiment, connect=_without_clients)
    if not (folder / FLOWER).exists():
        raise SpecError(
            f"{folder}: its clients are nodes of a federation that `dragfl run` has not started; continue it there: "
            "`flwr run` of its app, with the same run-dir"
        )
    trackers = check_trackers(log, folder)
    experiment = resumed_experiment(existing, experiment)
    check_local(experiment)
    with lock_folder(folder):
        truncate_logs(folder, checkpointed_logs(folder))
        (folder / NODES).unlink(missing_ok=True)  # the keys of the nodes are new, their numbers are not
    return _run(experiment, folder, on_record, should_stop, trackers)


def _without_clients(experiment: Experiment, worker: Worker) -> tuple[Backend, ClientStore]:
    from dragfl.engine.backends.local import LocalBackend
    from dragfl.flower.accepted import Accepted

    return LocalBackend(worker), Accepted(worker.info.clients)


def check_local(experiment: Experiment) -> None:
    """Raise `SpecError` if this machine cannot run the experiment on nodes; warn of many nodes."""
    clients = experiment.clients.total
    if reason := why_not_portable(experiment, "set engine.executor = 'local'"):
        raise SpecError(f"engine.executor: this experiment cannot be sent to the nodes of a federation: {reason}")
    if experiment.flower.data == "own":
        raise SpecError(
            "flower.data: 'own' is for nodes with data of their own, and here all nodes are on this machine; "
            "set flower.data = 'partition', or deploy with: dragfl deploy init"
        )
    need, there = NODE_GB * clients, memory_gb()
    needs = f"clients.total: {clients} SuperNodes need about {need:.0f} GB of memory"
    advice = "lower clients.total, or use engine.executor = 'local'"
    if need > there:
        raise SpecError(f"{needs}, and this machine has {there:.0f} GB; {advice}")
    if clients > MANY:
        warnings.warn(f"{needs}; {advice}", DragflWarning, 3)


def memory_gb() -> float:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _run(
    experiment: Experiment,
    folder: Path,
    on_record: OnRecord,
    should_stop: Callable[[], bool],
    trackers: tuple[str, ...],
) -> Run:
    clients, secure = experiment.clients.total, experiment.flower.secure
    fleet = Fleet(folder / FLOWER, clients, secure=secure)
    security = "TLS, node authentication" if secure else "no TLS, no authentication"
    log.info("starting SuperLink and %d SuperNodes on the loopback address (%s)", clients, security)
    rounds = NewRounds(folder)
    try:
        with fleet:
            app = fleet.private / "app"
            write_app(app, experiment.to_toml(), experiment.name)
            run = fleet.submit(app, {"run-dir": str(folder.absolute()), "log": " ".join(trackers)})
            fleet.start_nodes(should_stop)
            log.info("waiting for %d nodes; logs: %s", clients, fleet.folder)
            status, details = _follow(fleet, run, rounds, on_record, should_stop)
            (fleet.folder / SERVER_LOG).write_text(fleet.server_log(run))
    except DragflError as error:
        if type(error) is DragflError and (folder / SPEC).exists():  # of the fleet: the run itself may go on
            raise Interrupted(f"{error}\n{_again(folder)}") from None
        raise
    return _outcome(folder, status, details)


def _follow(
    fleet: Fleet, run: str, rounds: NewRounds, on_record: OnRecord, should_stop: Callable[[], bool]
) -> tuple[str, str]:
    """Pass rounds on until the run has ended; returns its status and Flower's text about it."""
    asked, silent, next_question = False, 0, 0.0
    while True:
        for record in rounds.read():
            on_record(record)
        fleet.check()
        if not asked and should_stop():
            with suppress(DragflError):  # it has just ended, or is asked again
                fleet.stop(run)
                asked = True
        if time.monotonic() >= next_question:
            try:
                (status, details), silent = fleet.status(run), 0
            except DragflError:  # on a busy machine
                (status, details), silent = ("", ""), silent + 1
                if silent == SILENT:
                    raise
            if status.startswith("finished") and not is_locked(rounds.folder):  # a stopped one writes a checkpoint
                for record in rounds.read():
                    on_record(record)
                return status, details
            next_question = time.monotonic() + STATUS_S
        time.sleep(POLL_S)


class NewRounds:
    """The rounds that are appended to the logs of a run directory from now on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._logs = [folder / name for name in (METRICS, CLIENTS, TIMING)]
        self._offsets = [path.stat().st_size if path.exists() else 0 for path in self._logs]
        self._lines: list[deque[dict[str, Any]]] = [deque() for _ in self._logs]

    def read(self) -> list[RoundRecord]:
        """Every round that all three logs have and that was not returned before."""
        for i, path in enumerate(self._logs):
            if path.exists():
                with path.open("rb") as file:
                    file.seek(self._offsets[i])
                    whole = file.read().rpartition(b"\n")[0:2]
                self._offsets[i] += sum(map(len, whole))
                self._lines[i].extend(map(json.loads, whole[0].splitlines()))
        found = []
        while all(self._lines):
            metrics, clients, timing = (lines.popleft() for lines in self._lines)
            number = metrics.pop("round")
            del clients["round"], timing["round"]
            found.append(RoundRecord(number, metrics, clients, timing))
        return found


def _outcome(folder: Path, status: str, details: str) -> Run:
    """The run, if it has finished; else the error that ended it."""
    if status == STOPPED and not (folder / SPEC).exists():
        shutil.rmtree(folder / FLOWER)
        with suppress(OSError):  # other files are not of this run
            folder.rmdir()
        raise Interrupted("stopped before the first round, and nothing was written; run it again")
    run = Run(folder)
    if run.result is not None:
        if run.diverged:
            raise Diverged(run.result["message"])
        return run
    if status == STOPPED:
        raise Interrupted(f"stopped after round {len(run.metrics)}; {_again(folder)}")
    server_log = folder / FLOWER / SERVER_LOG
    text = details.removeprefix(FAILED)
    names = CLASS.findall(server_log.read_text())
    kind = getattr(errors, names[-1], None) if names and details.startswith(FAILED) else None
    if kind is None:
        problem = f"the ServerApp has failed: {text}; its log, {server_log}:{tail(server_log)}"
        if (folder / SPEC).exists() and not details.startswith(FAILED):  # killed, or SuperLink does not hear from it
            raise Interrupted(f"{problem}\n{_again(folder)}")
        raise DragflError(problem)
    raise SpecError(text) if issubclass(kind, SpecError) else kind(text)


def _again(folder: Path) -> str:
    return f"continue with: dragfl resume {folder}"
