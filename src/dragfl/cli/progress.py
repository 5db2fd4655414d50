"""What a user sees while rounds pass: a live line on a terminal, plain lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from dragfl.types import RoundRecord


class Watch:
    """Shows the records of one run after the other. Use as a context and call with every record."""

    LINES = 10  # at most about this many plain lines a run

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.live = not quiet and not as_json and sys.stdout.isatty()
        self._label, self._rounds, self._accuracy = "", 0, ""
        self._started = 0.0
        self.seen = 0  # records since `begin`
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

    def overall(self, label: str, rounds: int) -> None:
        """Several runs follow: show them as a whole too."""
        self._overall = self._bar.add_task(label, total=rounds, completed=0, state="")

    def begin(self, label: str, rounds: int, done: int = 0) -> None:
        """A new run comes, of which `done` rounds are behind it."""
        self._label, self._rounds, self._accuracy, self._next_line = label, rounds, "", 0.0
        self._started, self.seen = time.perf_counter(), 0
        if self._overall is not None and self._task is not None:
            self._bar.remove_task(self._task)  # of many runs only the whole and the present one are shown
        self._task = self._bar.add_task(label, total=rounds, completed=done, state="")
        if self._overall is not None:
            self._bar.advance(self._overall, done)

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
            if self._overall is not None:
                self._bar.advance(self._overall)
        elif record.accuracy is not None and record.round >= self._next_line:
            self._next_line = record.round + self._rounds / self.LINES
            seconds = time.perf_counter() - self._started
            print(f"{self._label}: round {record.round}/{self._rounds}  {state}  {seconds:.1f} s", flush=True)


def drift(record: RoundRecord) -> str:
    """The drift of this round in a few words: mean divergence, or how much the updates agree."""
    mean = record.metrics.get("divergence_mean")
    if isinstance(mean, float):
        return f"divergence {mean:.3f}"
    agree = record.metrics.get("pairwise_cosine")
    return f"agreement {agree:+.3f}" if isinstance(agree, float) else ""
