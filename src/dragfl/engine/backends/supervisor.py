"""Worker processes as their parent sees them: started, given work, replaced when they die, kept for the next run.

They are started as a module, never forked, so a notebook or a script without a `__main__` guard needs nothing special.
A process hangs on one end of a socket pair and ends when the other is closed, by us or by our death.
"""

from __future__ import annotations

import atexit
import builtins
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, reduction
from typing import Any

from dragfl import errors
from dragfl.engine.backends.shared_memory import Brief, Region
from dragfl.errors import DragflError, Interrupted

log = logging.getLogger("dragfl")

DEPTH = 2  # pieces a worker has at a time: one in work and one waiting, so that it need not wait for us
TRIES = 3  # a piece whose worker dies this often is given up


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work."""

    what: str  # for people
    message: tuple[Any, ...]  # (kind, ...), as child.py takes it


class Child:
    """One process and what it has been given to do, in order."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "dragfl.engine.backends.worker_process", str(theirs.fileno())]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with theirs, _no_interrupt():
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment
            )
        self.channel: connection.Connection[Any, Any] = connection.Connection(ours.detach())
        self.tasks: deque[Task] = deque()
        self.ready = False
        self._prepared = 0  # experiments it was told of

    def say(self, *message: Any) -> None:
        with suppress(OSError):  # it died: seen when we listen
            self.channel.send(message)

    def prepare(self, tables: Mapping[str, Any], region: Region) -> None:
        process = {"folder": os.getcwd(), "environment": dict(os.environ), "path": list(sys.path)}  # noqa: PTH109
        self.ready = False
        self._prepared += 1
        self.say("prepare", self._prepared, process, tables)
        with suppress(OSError):
            reduction.send_handle(self.channel, region.descriptor, self.process.pid)

    def is_ready(self, prepared: int, error: tuple[str, str, str] | None) -> bool:
        """Take its word that an experiment is in place; of an earlier one it says nothing new."""
        if prepared == self._prepared and error is not None:
            raise rebuilt(*error)
        self.ready = self.ready or prepared == self._prepared
        return self.ready

    def end(self) -> int:
        """End the process in the middle of whatever it does: it holds nothing worth keeping. Its exit code."""
        self.process.kill()
        self.channel.close()
        return self.process.wait()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """A process started in here never sees Ctrl-C: not even before it can say that it ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_idle: list[Child] = []  # between the runs of a sweep; one that waits in vain ends by itself


def _hire() -> Child:
    while _idle:
        child = _idle.pop()
        if child.process.poll() is None:
            return child
        child.end()
    return Child()


@atexit.register
def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


os.register_at_fork(after_in_child=_idle.clear)  # a fork of this process must not hold our workers' connections


class Crew:
    """The workers of one experiment."""

    def __init__(self, size: int, tables: Mapping[str, Any], reusable: bool) -> None:
        self.region = Region.create()
        self._tables, self._reusable = tables, reusable
        self._again: deque[Task] = deque()
        self._deaths: Counter[Task] = Counter()  # by the piece in work
        self._stillborn = 0  # that died before they were ready, since the last that was
        self._brief = Brief(0, {})
        self.children = [_hire() for _ in range(size)]
        for child in self.children:
            child.prepare(tables, self.region)

    def brief(self, brief: Brief) -> None:
        """What holds for all tasks from now on."""
        self._brief = brief
        for child in self.children:
            if child.ready:
                child.say("brief", brief)

    def feed(self, draw: Callable[[], Task | None]) -> None:
        """Draw tasks for as long as a worker has room for one."""
        while ready := [child for child in self.children if child.ready and len(child.tasks) < DEPTH]:
            task = self._again.popleft() if self._again else draw()
            if task is None:
                return
            child = min(ready, key=lambda child: len(child.tasks))
            child.tasks.append(task)
            child.say(*task.message)

    def collect(self, wait: bool = True) -> list[tuple[Task, Any]]:
        """What has been done meanwhile; waits until something has happened, unless told not to."""
        channels = {child.channel: child for child in self.children}
        done = []
        for channel in connection.wait(list(channels), None if wait else 0.0):
            child = channels[channel]  # type: ignore[index]
            try:
                kind, *rest = child.channel.recv()
            except (EOFError, OSError):
                self._replace(child)
                continue
            if kind == "ready":
                if child.is_ready(*rest):
                    self._stillborn = 0
                    child.say("brief", self._brief)
                continue
            task = child.tasks.popleft()
            if kind == "failed":
                raise rebuilt(*rest)
            done.append((task, *rest))
        return done

    def settle(self) -> None:
        """Wait for what was given out in a call that nobody looks at any more."""
        self._again.clear()
        while any(child.tasks for child in self.children):
            with suppress(Exception):
                self.collect()
            self._again.clear()

    def wait_ready(self) -> None:
        """Until the first worker has everything in place; the others join when they have."""
        while not any(child.ready for child in self.children):
            self.collect()

    def _replace(self, child: Child) -> None:
        """Start another in place of one that died, and have its pieces done again."""
        code, pid = child.end(), child.process.pid
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        task = child.tasks[0] if child.tasks else None
        fresh = self.children[self.children.index(child)] = Child()
        fresh.prepare(self._tables, self.region)
        self._again.extendleft(reversed(child.tasks))
        if task is not None:
            self._deaths[task] += 1
        self._stillborn += not child.ready
        if self._stillborn >= TRIES or (task is not None and self._deaths[task] >= TRIES):
            what = f"on {task.what}" if task else "before it was ready"
            raise Interrupted(
                f"a worker process died {TRIES} times {what} (the last {how}); "
                "is memory short? set engine.workers = 1 to train in one process"
            )
        doing = f", and {task.what} done again" if task else ""
        level = logging.WARNING if child.ready else logging.DEBUG  # an idle one may have had enough as we called it
        log.log(level, "worker process %d %s; another is started%s", pid, how, doing)

    def close(self) -> None:
        """Let the workers go: those that are free and know only built-in parts may serve the next experiment."""
        children, self.children = self.children, []
        for child in children:
            if self._reusable and not child.tasks:
                child.say("forget")
                _idle.append(child)
            else:
                child.end()

    def abandon(self) -> None:
        """End them all: an interrupt may have struck in the middle of a message."""
        children, self.children = self.children, []
        for child in children:
            child.end()


def rebuilt(kind: str, message: str, text: str) -> Exception:
    """The error a worker met: ours and Python's own as they were, any other with its name in the message."""
    found = getattr(errors, kind, None) or getattr(builtins, kind, None)
    error: Exception = DragflError(f"{kind}: {message}")
    if isinstance(found, type) and issubclass(found, Exception):
        with suppress(TypeError):  # one that is made of more than a message
            error = found(message)
    error.add_note(f"In a worker process:\n{text}")
    return error
