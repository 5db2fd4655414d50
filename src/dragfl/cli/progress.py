"""What a user sees while rounds pass: a live line on a terminal, plain lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from dragfl.types import RoundRecord


class Watch:
    """Shows the records of one run after the other. Use as a context and call with every record.

    After `overall` runs are many, and in a pipe each is one line, written when it has ended.
    """

    LINES = 10  # at most about this many plain lines for a run by itself

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.live = not quiet and not as_json and sys.stdout.isatty()
        self._label, self._rounds, self._accuracy = "", 0, ""
        self._started = 0.0
        self.seen = 0  # records since `begin`
        self._runs, self._run = 0, 0  # of how many, and which, from 1
        self._before = 0  # rounds of all runs before the present one
        self._overall: TaskID | None = None
        self._task: TaskID | None = None
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}  {task.fields[state]}"),
            TimeRemainingColumn(),
            console=Console(),
            disable=not self.live,
        )

    def __enter__(self) -> Watch:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def overall(self, runs: int, rounds: int) -> None:
        """Several runs follow, of so many rounds together: show them as a whole too."""
        self._runs = runs
        self._overall = self._bar.add_task(f"{runs} runs", total=rounds, completed=0, state="")

    def begin(self, label: str, rounds: int, done: int = 0) -> None:
        """A new run comes, of which `done` rounds are behind it."""
        self._before += self._rounds
        self._label, self._rounds, self._accuracy, self._next_line = label, rounds, "", 0.0
        self._started, self.seen, self._run = time.perf_counter(), 0, self._run + 1
        if self._overall is not None and self._task is not None:
            self._bar.remove_task(self._task)  # of many runs only the whole and the present one are shown
        self._task = self._bar.add_task(label, total=rounds, completed=done, state="")
        self._advance(done)

    def _advance(self, done: int) -> None:
        """So many rounds of this run are done; a run that ended early counts as whole when the next one begins."""
        if self._overall is not None:
            ended = f"{max(self._run - 1, 0)} finished"
            self._bar.update(self._overall, completed=self._before + done, state=ended)

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
            assert self._task is not None
            self._bar.update(self._task, completed=record.round, state=state)
            self._advance(record.round)
        elif self._overall is None and record.accuracy is not None and record.round >= self._next_line:
            self._next_line = record.round + self._rounds / self.LINES
            print(f"{self._label}: round {record.round}/{self._rounds}  {state}  {self._seconds()}", flush=True)

    def end(self, result: dict[str, Any], *, already: bool) -> None:
        """The present one of several runs has ended: `run 3/48  drag-seed2  accuracy 0.912  1.2 s`."""
        if self.quiet or self.as_json or self.live:
            return
        if result.get("stopped_by") == "diverged":
            how = f"diverged in round {result['rounds'] + 1}"
        else:
            how = f"accuracy {result['accuracy']:.3f}"
        when = "already done" if already else self._seconds()
        print(f"run {self._run}/{self._runs}  {self._label}  {how}  {when}", flush=True)

    def _seconds(self) -> str:
        return f"{time.perf_counter() - self._started:.1f} s"


def drift(record: RoundRecord) -> str:
    """The drift of this round in a few words: mean divergence, or how much the updates agree."""
    mean = record.metrics.get("divergence_mean")
    if isinstance(mean, float):
        return f"divergence {mean:.3f}"
    agree = record.metrics.get("pairwise_cosine")
    return f"agreement {agree:+.3f}" if isinstance(agree, float) else ""
