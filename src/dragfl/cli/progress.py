"""Progress of runs: a bar on a terminal, plain lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dragfl.runs.directory import Run
from dragfl.runs.sweep import Callbacks
from dragfl.runs.sweep_plan import PlannedRun
from dragfl.types import RoundRecord


def progress_bar(enabled: bool) -> Progress:
    """A progress bar of rounds; use as a context manager."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:.0f}/{task.total:.0f}  {task.fields[state]}"),
        TimeRemainingColumn(),
        console=Console(),
        disable=not enabled,
    )


class RunProgress:
    """Shows the rounds of one run at a time: call `begin`, then the object itself with every record."""

    LINES = 10  # at most about this many plain lines per run

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.live = not quiet and not as_json and sys.stdout.isatty()
        self.records = 0  # since `begin`
        self.bar = progress_bar(self.live)

    def begin(self, label: str, rounds: int) -> None:
        self._label, self._rounds, self._accuracy, self._next_line = label, rounds, "", 0.0
        self._started, self.records = time.perf_counter(), 0
        self._task = self.bar.add_task(label, total=rounds, state="")

    def __call__(self, record: RoundRecord) -> None:
        self.records += 1
        if self.as_json:
            print(json.dumps({"run": self._label, "round": record.round, **record.metrics}), flush=True)
        if self.quiet or self.as_json:
            return
        if record.accuracy is not None:
            self._accuracy = f"accuracy {record.accuracy:.3f}"
        state = "  ".join(part for part in (self._accuracy, describe_drift(record)) if part)
        if self.live:
            self.bar.update(self._task, completed=record.round, state=state)
        elif record.accuracy is not None and record.round >= self._next_line:
            self._next_line = record.round + self._rounds / self.LINES
            seconds = time.perf_counter() - self._started
            print(f"{self._label}: round {record.round}/{self._rounds}  {state}  {seconds:.1f} s", flush=True)


class SweepProgress:
    """Shows many runs, in turn or in parallel: one bar on a terminal, a line for each finished run in a pipe."""

    def __init__(self, planned: Sequence[PlannedRun], *, quiet: bool = False) -> None:
        self._runs, self._finished = len(planned), 0
        self._quiet, self._live = quiet, not quiet and sys.stdout.isatty()
        self._running: dict[str, tuple[float, int]] = {}  # name -> (time of start, planned rounds)
        self.bar = progress_bar(self._live)
        rounds = sum(p.experiment.rounds for p in planned)
        self._task = self.bar.add_task(f"{self._runs} runs", total=rounds, state="")

    def callbacks(self, should_stop: Callable[[], bool]) -> Callbacks:
        return Callbacks(self.begin, lambda record: self._advance(1), self.end, should_stop)

    def begin(self, planned: PlannedRun, rounds_done: int) -> None:
        self._running[planned.name] = (time.perf_counter(), planned.experiment.rounds)
        self._advance(rounds_done)

    def end(self, run: Run, already_done: bool) -> None:
        """`run 3/48  drag-seed2  accuracy 0.912  1.2 s`"""
        started, rounds = self._running.pop(run.name)
        self._finished += 1
        result = run.result or {}
        self._advance(rounds - result["rounds"])  # rounds it did not need
        when = "already finished" if already_done else f"{time.perf_counter() - started:.1f} s"
        if not self._quiet and not self._live:
            print(f"run {self._finished}/{self._runs}  {run.name}  {describe_end(run)}  {when}", flush=True)

    def _advance(self, rounds: int) -> None:
        state = f"{self._finished} finished  {', '.join(self._running)}"
        self.bar.update(self._task, advance=rounds, state=state)


def describe_end(run: Run) -> str:
    """`accuracy 0.912`, or the round in which the run diverged."""
    result = run.result or {}
    return f"diverged in round {result['rounds'] + 1}" if run.diverged else f"accuracy {result['accuracy']:.3f}"


def describe_drift(record: RoundRecord) -> str:
    """The client drift of a round: the mean divergence, or the mean cosine between updates."""
    divergence = record.metrics.get("divergence_mean")
    if isinstance(divergence, float):
        return f"divergence {divergence:.3f}"
    cosine = record.metrics.get("pairwise_cosine")
    return f"cosine {cosine:+.3f}" if isinstance(cosine, float) else ""
