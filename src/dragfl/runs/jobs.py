"""Whole experiments side by side: child processes that each run one experiment after the other.

Children are started as a module, never forked, and live as long as there is work. Parent and child speak JSON lines
over pipes: down {"folder", "tables"} or {"stop"}, up {"record"}, {"done"} or {"error"}. A child trains with one thread.
It ignores Ctrl-C (the parent decides) and ends at once when the pipe from its parent closes, so none is left behind
even when the parent is killed; its run is resumable like any other. A child that dies is replaced and its run resumed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dragfl.errors import DragflError, Interrupted
from dragfl.types import RoundRecord

TRIES = 3  # a run whose child dies this often is given up

Event = Mapping[str, Any]


class Child:
    """One child process and the thread that listens to it."""

    def __init__(self, number: int, events: queue.Queue[tuple[int, Event]]) -> None:
        self.number = number
        self.job: int | None = None  # what it works on
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dragfl.runs.jobs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout, events), daemon=True).start()

    def _listen(self, lines: IO[str], events: queue.Queue[tuple[int, Event]]) -> None:
        for line in lines:
            events.put((self.number, json.loads(line)))
        events.put((self.number, {"died": self._process.wait()}))

    def say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died; the listener tells
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


class Crew:
    """Some children and what they are to do."""

    def __init__(self, size: int, work: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
        self._events: queue.Queue[tuple[int, Event]] = queue.Queue()
        self._work = list(work)
        self._waiting = list(range(len(work)))
        self._tries = [0] * len(work)
        self._children = {i: Child(i, self._events) for i in range(min(size, len(work)))}
        self._stopping = False

    def run(
        self,
        on_begin: Callable[[int], None],
        on_record: Callable[[int, RoundRecord], None],
        on_end: Callable[[int], None],
        should_stop: Callable[[], bool],
    ) -> None:
        """Until all is done. Raises the first error a run met, or `Interrupted` when asked to stop."""
        self._on_begin, self._on_record, self._on_end = on_begin, on_record, on_end
        failed: DragflError | None = None
        try:
            for child in self._children.values():
                self._next(child)
            while any(child.job is not None for child in self._children.values()):
                if not self._stopping and (should_stop() or failed is not None):
                    self._stop()
                try:
                    number, event = self._events.get(timeout=0.2)
                except queue.Empty:
                    continue
                failed = self._handle(self._children[number], event) or failed
        finally:
            for child in self._children.values():
                child.close()
        if failed is not None:
            raise failed
        if self._stopping:
            raise Interrupted("stopped; every run that was begun has a checkpoint: the same command goes on")

    def _handle(self, child: Child, event: Event) -> DragflError | None:
        """Take one message; an error that ends everything is returned."""
        job = child.job
        if job is None:
            return None
        if "record" in event:
            self._on_record(job, RoundRecord(**event["record"]))
            return None
        if "died" in event:
            return self._replace(child, job, int(event["died"]))
        child.job = None
        if "error" in event:
            error = _rebuilt(event["error"])
            return None if isinstance(error, Interrupted) and self._stopping else error
        self._on_end(job)
        self._next(child)
        return None

    def _next(self, child: Child) -> None:
        if self._stopping or not self._waiting:
            return
        child.job = self._waiting.pop(0)
        folder, tables = self._work[child.job]
        self._on_begin(child.job)
        child.say({"folder": str(folder), "tables": tables})

    def _stop(self) -> None:
        self._stopping = True
        for child in self._children.values():
            child.say({"stop": True})

    def _replace(self, child: Child, job: int, code: int) -> DragflError | None:
        self._tries[job] += 1
        folder = self._work[job][0]
        child.job = None
        if self._tries[job] >= TRIES:
            return Interrupted(f"{folder}: its process died {TRIES} times (last exit code {code}); look at that run")
        self._waiting.insert(0, job)
        fresh = Child(child.number, self._events)
        self._children[child.number] = fresh
        self._next(fresh)
        return None


def _rebuilt(table: Mapping[str, Any]) -> DragflError:
    """The error a child met, with its exit code."""
    from dragfl import errors

    kind = getattr(errors, str(table["kind"]), DragflError)
    made: DragflError = kind(str(table["message"]))
    return made


def main() -> None:
    """A child: read work from standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever user code prints goes to standard error, not into the protocol
    stop = threading.Event()
    work: queue.Queue[Mapping[str, Any]] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "stop" in message:
                stop.set()
            else:
                work.put(message)
        os._exit(0)  # the parent is done, or gone

    threading.Thread(target=listen, daemon=True).start()

    def say(message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    while True:
        say(_one(work.get(), say, stop.is_set))


def _one(task: Mapping[str, Any], say: Callable[[Event], None], should_stop: Callable[[], bool]) -> Event:
    from dataclasses import asdict

    from dragfl.config.spec import load
    from dragfl.runs.loop import run_or_resume

    def on_record(record: RoundRecord) -> None:
        say({"record": asdict(record)})

    try:
        run_or_resume(load(task["tables"]), Path(task["folder"]), on_record=on_record, should_stop=should_stop)
    except DragflError as error:
        return {"error": {"kind": type(error).__name__, "message": str(error)}}
    return {"done": task["folder"]}


if __name__ == "__main__":
    main()
