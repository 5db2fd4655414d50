"""Progress of runs: a bar on a terminal, plain lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from dragfl.reproduction.run_time import RunTimes, format_duration, remaining_rounds
from dragfl.runs.directory import Run
from dragfl.runs.sweep import Callbacks
from dragfl.runs.sweep_plan import PlannedRun
from dragfl.types import RoundRecord


def progress_bar(enabled: bool, *more: ProgressColumn) -> Progress:
    """A progress bar; use as a context manager."""
    columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[state]}"))
    return Progress(*columns, *more, console=Console(), disable=not enabled)


LINE_SECONDS = 10.0  # between two plain lines of progress


class RunProgress:
    """Shows the rounds of one run at a time: call `begin`, then the object itself with every record."""

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self._next_line = -math.inf
        self.live = not quiet and not as_json and sys.stdout.isatty()
        self.records = 0  # since `begin`
        self.bar = progress_bar(self.live, TimeRemainingColumn())

    def begin(self, label: str, rounds: int) -> None:
        self._label, self._rounds, self._accuracy = label, rounds, ""
        self._started, self.records = time.perf_counter(), 0
        self._task = self.bar.add_task(label, total=rounds, state="")

    @contextmanager
    def messages(self) -> Iterator[None]:
        """Print what a federation on Flower logs while it starts."""
        if self.quiet or self.as_json:
            yield
            return
        logger, handler = logging.getLogger("dragfl.flower"), logging.Handler()
        handler.emit = lambda record: self._print(record.getMessage())  # type: ignore[method-assign]
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)

    def _print(self, text: str) -> None:
        if self.live:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, flush=True)

    def __call__(self, record: RoundRecord) -> None:
        self.records += 1
        if self.as_json:
            print(json.dumps({"run": self._label, "round": record.round, **record.metrics}), flush=True)
        if self.quiet or self.as_json:
            return
        if record.accuracy is not None:
            self._accuracy = f"accuracy {record.accuracy:.3f}"
        state = "  ".join(part for part in (self._accuracy, describe_drift(record)) if part)
        line = f"round {record.round}/{self._rounds}  {state}"
        if self.live:
            self.bar.update(self._task, completed=record.round, state=line)
        elif (now := time.perf_counter()) >= self._next_line:
            self._next_line = now + LINE_SECONDS
            print(f"{self._label}: {line}  {now - self._started:.1f} s", flush=True)


class SweepProgress:
    """Shows many runs, in turn or in parallel: a bar on a terminal; in a pipe a line for each finished run.

    While no run finishes, a pipe gets a line of progress every ten seconds.

    Runs differ in cost, so progress is measured in estimated seconds; the measured speed of a run that has ended is
    used for the others of its kind.
    """

    def __init__(self, planned: Sequence[PlannedRun], jobs: int, *, quiet: bool = False) -> None:
        self._jobs, self._quiet, self._live = jobs, quiet, not quiet and sys.stdout.isatty()
        self._times = RunTimes(planned)
        self._running: dict[str, float] = {}  # run -> time of its start
        self._ended, self._start = 0, time.perf_counter()
        self._next_line = self._start + LINE_SECONDS
        self.bar = progress_bar(self._live)
        self._task = self.bar.add_task("", total=1.0, state="")
        self.plan(planned)

    def plan(self, planned: Sequence[PlannedRun], later: Sequence[PlannedRun] = ()) -> None:
        """Set the runs of this pass, and placeholders for those of the next one."""
        self._unfinished, self._later = {p.name: p for p in planned}, later
        self._rounds = {p.name: float(remaining_rounds(p)) for p in planned}
        self.total = self._ended + len(planned) + len(later)
        self.bar.update(self._task, description=f"{self.total} runs")

    def callbacks(self, should_stop: Callable[[], bool]) -> Callbacks:
        return Callbacks(self.begin, self.record, self.end, should_stop, self.fail)

    def begin(self, planned: PlannedRun, rounds_done: int) -> None:
        self._running[planned.name] = time.perf_counter()
        self._update_bar()

    def record(self, record: RoundRecord) -> None:
        """Count a round; records do not name their run, so it is shared among all that are running."""
        running = [name for name in self._running if self._rounds[name]]
        for name in running:
            self._rounds[name] = max(0.0, self._rounds[name] - 1 / len(running))
        if not self._live and time.perf_counter() >= self._next_line:
            self._print(f"{self.total} runs  {self._state()}")
        self._update_bar()

    def end(self, run: Run, already_done: bool) -> None:
        """`run 3/48  drag-seed2  accuracy 0.912 after 60 rounds  2 s  about 1 min left`"""
        name = run.path.name
        seconds = time.perf_counter() - self._running.pop(name)
        planned = self._unfinished.pop(name)
        self._ended += 1
        if already_done:
            when = "already finished"
        else:
            self._times.add_run(planned.experiment, run)
            more = self._unfinished or self._later
            left = f"about {format_duration(self.remaining_seconds())} left" if more else "finished"
            when = f"{format_duration(seconds)}  {left}"
        self._print(f"run {self._ended}/{self.total}  {name}  {describe_end(run)}  {when}")
        self._update_bar()

    def fail(self, planned: PlannedRun, reason: str) -> None:
        """`run 3/48  drag-seed2  failed: ValueError: ...`"""
        self._running.pop(planned.name, None)
        del self._unfinished[planned.name]
        self._ended += 1
        self._print(f"run {self._ended}/{self.total}  {planned.name}  failed: {reason}")
        self._update_bar()

    def remaining_seconds(self) -> float:
        """With all jobs working in parallel, if no run stops early."""
        seconds = sum(self._rounds[p.name] * self._times.per_round(p.experiment) for p in self._unfinished.values())
        seconds += sum(p.experiment.rounds * self._times.per_round(p.experiment) for p in self._later)
        return seconds / self._jobs

    def _print(self, line: str) -> None:
        """Print a plain line, unless there is a bar."""
        if not self._quiet and not self._live:
            print(line, flush=True)
            self._next_line = time.perf_counter() + LINE_SECONDS

    def _state(self) -> str:
        left = format_duration(self.remaining_seconds())
        return f"{self._ended} finished  about {left} left  {', '.join(self._running)}"

    def _update_bar(self) -> None:
        if not self._live:
            return
        left, spent = self.remaining_seconds(), time.perf_counter() - self._start
        self.bar.update(self._task, completed=spent / (spent + left), state=self._state())


def describe_end(run: Run) -> str:
    """`accuracy 0.912 after 60 rounds`, or the round in which the run diverged."""
    result = run.result or {}
    if run.diverged:
        return f"diverged at round {run.diverged_at}"
    return f"accuracy {result['accuracy']:.3f} after {result['rounds']} rounds"


def describe_drift(record: RoundRecord) -> str:
    """The client drift of a round: the mean divergence, or the mean cosine between updates."""
    divergence = record.metrics.get("divergence_mean")
    if isinstance(divergence, float):
        return f"divergence {divergence:.3f}"
    cosine = record.metrics.get("pairwise_cosine")
    return f"cosine {cosine:+.3f}" if isinstance(cosine, float) else ""
