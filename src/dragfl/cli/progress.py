"""What a user sees while rounds pass: a live line on a terminal, plain lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from dragfl.types import RoundRecord

if TYPE_CHECKING:
    from dragfl.runs.directory import Run
    from dragfl.runs.sweep import Planned


def bar(live: bool) -> Progress:
    """The progress bars of a terminal; none elsewhere."""
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("round {task.completed:.0f}/{task.total:.0f}  {task.fields[state]}"),
        TimeRemainingColumn(),
        console=Console(),
        disable=not live,
    )


class Watch:
    """Shows the records of one run after the other. Use as a context and call with every record."""

    LINES = 10  # at most about this many plain lines a run

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.live = not quiet and not as_json and sys.stdout.isatty()
        self.seen = 0  # records since `begin`
        self._bar = bar(self.live)

    def __enter__(self) -> Watch:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, label: str, rounds: int, done: int = 0) -> None:
        """A new run comes, of which `done` rounds are behind it."""
        self._label, self._rounds, self._accuracy, self._next_line = label, rounds, "", 0.0
        self._started, self.seen = time.perf_counter(), 0
        self._task = self._bar.add_task(label, total=rounds, completed=done, state="")

    def __call__(self, record: RoundRecord) -> None:
        self.seen += 1
        if self.as_json:
            print(json.dumps({"run": self._label, "round": record.round, **record.metrics}), flush=True)
        if self.quiet or self.as_json:
            return
        if record.accuracy is not None:
            self._accuracy = f"accuracy {record.accuracy:.3f}"
        state = "  ".join(part for part in (self._accuracy, drift(record)) if part)
        if self.live:
            self._bar.update(self._task, completed=record.round, state=state)
        elif record.accuracy is not None and record.round >= self._next_line:
            self._next_line = record.round + self._rounds / self.LINES
            seconds = time.perf_counter() - self._started
            print(f"{self._label}: round {record.round}/{self._rounds}  {state}  {seconds:.1f} s", flush=True)


class Tally:
    """Shows many runs as a whole, in turn or side by side: one bar on a terminal, a line for each in a pipe."""

    def __init__(self, planned: Sequence[Planned], *, quiet: bool = False) -> None:
        self._runs, self._ended, self._rounds = len(planned), 0, sum(p.experiment.rounds for p in planned)
        self._quiet, self._live = quiet, not quiet and sys.stdout.isatty()
        self._started: dict[str, tuple[float, int]] = {}  # of the runs under way: when, and their rounds
        self._done = 0  # rounds
        self._bar = bar(self._live)
        self._task = self._bar.add_task(f"{self._runs} runs", total=self._rounds, completed=0, state="")

    def __enter__(self) -> Tally:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, planned: Planned, done: int) -> None:
        self._started[planned.name] = (time.perf_counter(), planned.experiment.rounds - done)
        self._show(done)

    def record(self, record: RoundRecord) -> None:
        self._show(1)

    def end(self, run: Run, already: bool) -> None:
        """`run 3/48  drag-seed2  accuracy 0.912  1.2 s`"""
        started, left = self._started.pop(run.name)
        self._ended += 1
        result = run.result or {}
        if result.get("stopped_by") == "diverged":
            how = f"diverged in round {result['rounds'] + 1}"
        else:
            how = f"accuracy {result['accuracy']:.3f}"
        self._show(max(0, left - result["rounds"]) if not already else 0)  # rounds that it did not need
        when = "already done" if already else f"{time.perf_counter() - started:.1f} s"
        if not self._quiet and not self._live:
            print(f"run {self._ended}/{self._runs}  {run.name}  {how}  {when}", flush=True)

    def _show(self, more: int) -> None:
        self._done += more
        running = ", ".join(self._started)
        self._bar.update(self._task, completed=self._done, state=f"{self._ended} finished  {running}")


def drift(record: RoundRecord) -> str:
    """The drift of this round in a few words: mean divergence, or how much the updates agree."""
    mean = record.metrics.get("divergence_mean")
    if isinstance(mean, float):
        return f"divergence {mean:.3f}"
    agree = record.metrics.get("pairwise_cosine")
    return f"agreement {agree:+.3f}" if isinstance(agree, float) else ""
