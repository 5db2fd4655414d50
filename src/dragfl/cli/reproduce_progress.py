"""Progress over runs that differ in length and cost: in seconds of work, with what is left of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dragfl.reproduction.cost import Rates, duration, rounds_left

if TYPE_CHECKING:
    from dragfl.runs.directory import Run
    from dragfl.runs.sweep import PlannedRun
    from dragfl.types import RoundRecord


class Work:
    """Shows all runs as a whole: an estimate before, a bar on a terminal or a line a run in a pipe, and what is left.

    What is left is estimated anew whenever a run ends: its real speed stands for the runs of its kind.
    """

    def __init__(self, jobs: int, *, all_runs: Sequence[PlannedRun], quiet: bool = False) -> None:
        self._jobs, self._quiet, self._live = jobs, quiet, not quiet and sys.stdout.isatty()
        self._rates = Rates(all_runs)
        self._left: dict[str, PlannedRun] = {}
        self._later: list[PlannedRun] = []  # stand-ins for runs that are known when others have ended
        self._rounds: dict[str, float] = {}
        self._total, self._ended = 0, 0
        self._started: dict[str, float] = {}
        self._begun = time.perf_counter()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            console=Console(),
            disable=not self._live,
        )
        self._task = self._bar.add_task("", total=1.0, completed=0, state="")

    def plan(self, todo: Sequence[PlannedRun], later: Sequence[PlannedRun]) -> None:
        """What is to be run now, and stand-ins for what follows."""
        self._left, self._later = {p.name: p for p in todo}, list(later)
        self._rounds = {p.name: float(rounds_left(p.folder, p.experiment.rounds)) for p in todo}
        self._total = self._ended + len(todo) + len(later)
        self._bar.update(self._task, description=f"{self._total} runs")

    def seconds(self) -> float:
        """What is left, on all jobs together."""
        named = sum(self._rounds[p.name] * self._rates.per_round(p.experiment) for p in self._left.values())
        later = sum(p.experiment.rounds * self._rates.per_round(p.experiment) for p in self._later)
        return (named + later) / self._jobs

    def announce(self) -> None:
        if self._quiet:
            return
        if not self._total:
            print("every run is there already")
            return
        print(
            f"{self._total} runs are missing; {self._jobs} at a time they take about {duration(self.seconds())} "
            "if none ends early",
            flush=True,
        )

    def __enter__(self) -> Work:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, planned: PlannedRun, done: int) -> None:
        self._started[planned.name] = time.perf_counter()
        self._show()

    def record(self, record: RoundRecord) -> None:
        """A round of some run: with runs side by side it is not said of which, so the work is shared among them."""
        running = [name for name in self._started if self._rounds.get(name)]
        for name in running:
            self._rounds[name] = max(0.0, self._rounds[name] - 1 / len(running))
        self._show()

    def end(self, run: Run, already: bool) -> None:
        started = self._started.pop(run.name)
        planned = self._left.pop(run.name)
        self._ended += 1
        if not already:
            self._rates.learn(planned.experiment, run)
        result = run.result or {}
        if result.get("stopped_by") == "diverged":
            how = f"diverged in round {result['rounds'] + 1}"
        else:
            how = f"accuracy {result['accuracy']:.3f} after {result['rounds']} rounds"
        if not self._quiet and not self._live:
            took = duration(time.perf_counter() - started)
            left = self.seconds()
            rest = f"about {duration(left)} left" if self._left or self._later else "all done"
            print(f"run {self._ended}/{self._total}  {run.name}  {how}  {took}  {rest}", flush=True)
        self._show()

    def _show(self) -> None:
        if not self._live:
            return
        left = self.seconds()
        spent = time.perf_counter() - self._begun
        share = spent / (spent + left) if spent + left > 0 else 1.0
        running = ", ".join(self._started)
        state = f"{self._ended} finished  about {duration(left)} left  {running}"
        self._bar.update(self._task, completed=share, state=state)
