"""Several runs at the same time: worker processes that each execute one experiment after the other.

A process trains with one thread. When it is stopped or dies, its run can be resumed like any other: a lost process is
replaced and its run resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragfl.config.spec import load
from dragfl.engine.backends.supervisor import Task, WorkerGroup
from dragfl.engine.backends.worker_process import ParentConnection, ProcessLauncher
from dragfl.errors import Interrupted
from dragfl.runs.loop import run_or_resume
from dragfl.types import RoundRecord

POLL_S = 0.2  # how often `should_stop` is asked


def run_in_processes(
    work: Sequence[tuple[Path, Mapping[str, Any]]],
    processes: int,
    on_begin: Callable[[int], None],
    on_record: Callable[[int, RoundRecord], None],
    on_end: Callable[[int], None],
    should_stop: Callable[[], bool],
) -> None:
    """Run each experiment (its run directory and tables) to its end; the callbacks get its index in `work`.

    After an error in one run, or when asked to stop, the others write a checkpoint and stop. Then the first error is
    raised, or `Interrupted`.
    """
    tasks = [Task(f"run {folder}", ("run", str(folder), tables)) for folder, tables in work]
    index = {task: i for i, task in enumerate(tasks)}
    waiting = iter(tasks)
    group = WorkerGroup(
        ProcessLauncher("dragfl.runs.jobs:RunService", (), "check that run on its own with jobs = 1"),
        min(processes, len(tasks)),
        depth=1,
        on_send=lambda task: on_begin(index[task]),
        on_progress=lambda task, record: on_record(index[task], record),
    )
    left, stopping = len(tasks), False
    failure: Exception | None = None
    try:
        while left and (group.busy or not stopping):
            if not stopping and (should_stop() or failure is not None):
                stopping = True
                for worker in group.workers:
                    worker.stop()
            try:
                if not stopping:
                    group.feed(lambda: next(waiting, None))
                for task, _ in group.collect(POLL_S):
                    left -= 1
                    on_end(index[task])
            except Exception as error:
                if not (stopping and isinstance(error, Interrupted)):
                    failure = failure or error
    finally:
        group.close(at_once=True)
    if failure is not None:
        raise failure
    if stopping:
        raise Interrupted("stopped; every run that has begun has a checkpoint: the same command continues")


class RunService:
    """The work of such a process."""

    def __init__(self, parent: ParentConnection) -> None:
        self._parent = parent

    def run(self, folder: str, tables: Mapping[str, Any]) -> None:
        """Begin or resume a run and report every round."""
        report, should_stop = self._parent.report, self._parent.should_stop
        run_or_resume(load(tables), Path(folder), on_record=report, should_stop=should_stop)
