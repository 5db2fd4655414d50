"""Progress of `dragfl reproduce`: its runs differ in cost, so progress is measured in estimated seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dragfl.reproduction.run_time import RunTimes, format_duration, remaining_rounds

if TYPE_CHECKING:
    from dragfl.runs.directory import Run
    from dragfl.runs.sweep_plan import PlannedRun
    from dragfl.types import RoundRecord


class ReproductionProgress:
    """An estimate before the runs, then a bar on a terminal or a line for each finished run in a pipe.

    The remaining time is estimated again when a run ends: its measured speed is used for the runs of its kind.
    """

    def __init__(self, jobs: int, *, all_runs: Sequence[PlannedRun], quiet: bool = False) -> None:
        self._jobs, self._quiet, self._live = jobs, quiet, not quiet and sys.stdout.isatty()
        self._times = RunTimes(all_runs)
        self._unfinished: dict[str, PlannedRun] = {}
        self._later: list[PlannedRun] = []  # placeholders for runs that depend on tuning runs
        self._rounds: dict[str, float] = {}  # remaining rounds of the unfinished runs
        self._total, self._ended = 0, 0
        self._running: dict[str, float] = {}  # run -> time of its start
        self._start = time.perf_counter()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            console=Console(),
            disable=not self._live,
        )
        self._task = self._bar.add_task("", total=1.0, completed=0, state="")

    def plan(self, missing: Sequence[PlannedRun], later: Sequence[PlannedRun]) -> None:
        """Set the runs of this pass, and placeholders for those of the next one."""
        self._unfinished, self._later = {p.name: p for p in missing}, list(later)
        self._rounds = {p.name: float(remaining_rounds(p)) for p in missing}
        self._total = self._ended + len(missing) + len(later)
        self._bar.update(self._task, description=f"{self._total} runs")

    def announce(self) -> None:
        if self._quiet:
            return
        if not self._total:
            print("all runs are finished")
            return
        time_left = format_duration(self._remaining_seconds())
        print(
            f"{self._total} runs are missing; about {time_left} with {self._jobs} in parallel if none stops early",
            flush=True,
        )

    def __enter__(self) -> ReproductionProgress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, planned: PlannedRun, done: int) -> None:
        self._running[planned.name] = time.perf_counter()
        self._update_bar()

    def record(self, record: RoundRecord) -> None:
        """Count a round; records do not name their run, so it is shared among all that are running."""
        running = [name for name in self._running if self._rounds.get(name)]
        for name in running:
            self._rounds[name] = max(0.0, self._rounds[name] - 1 / len(running))
        self._update_bar()

    def end(self, run: Run, already: bool) -> None:
        seconds = time.perf_counter() - self._running.pop(run.name)
        planned = self._unfinished.pop(run.name)
        self._ended += 1
        if not already:
            self._times.add_run(planned.experiment, run)
        if not self._quiet and not self._live:
            result = run.result or {}
            if result.get("stopped_by") == "diverged":
                outcome = f"diverged in round {result['rounds'] + 1}"
            else:
                outcome = f"accuracy {result['accuracy']:.3f} after {result['rounds']} rounds"
            more = self._unfinished or self._later
            left = f"about {format_duration(self._remaining_seconds())} left" if more else "finished"
            took = format_duration(seconds)
            print(f"run {self._ended}/{self._total}  {run.name}  {outcome}  {took}  {left}", flush=True)
        self._update_bar()

    def _remaining_seconds(self) -> float:
        """With all jobs working in parallel."""
        seconds = sum(self._rounds[p.name] * self._times.per_round(p.experiment) for p in self._unfinished.values())
        seconds += sum(p.experiment.rounds * self._times.per_round(p.experiment) for p in self._later)
        return seconds / self._jobs

    def _update_bar(self) -> None:
        if not self._live:
            return
        left, spent = self._remaining_seconds(), time.perf_counter() - self._start
        share = spent / (spent + left) if spent + left > 0 else 1.0
        state = f"{self._ended} finished  about {format_duration(left)} left  {', '.join(self._running)}"
        self._bar.update(self._task, completed=share, state=state)
