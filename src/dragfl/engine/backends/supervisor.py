"""Supervision of workers: start them, hand out tasks, collect results, replace the workers that are lost.

The process pool, Ray and the parallel runs of a sweep use the same supervisor. They differ in how a worker is started
and how messages travel (`Launcher`, `WorkerHandle`). A worker answers its tasks in the order in which it got them, so
the first task of its queue is the one in work.
"""

from __future__ import annotations

import builtins
import logging
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dragfl import errors
from dragfl.engine.threads import cores_for
from dragfl.errors import DataError, DragflError, Interrupted, SpecError
from dragfl.own_code import own_traceback

log = logging.getLogger("dragfl")

DEPTH = 2  # tasks in the queue of a worker: one in work and one waiting, so that it never waits for its supervisor
TRIES = 3  # a task whose worker is lost this often is given up

Event = tuple[Any, ...]
# ("ready",)                             the worker has set up the experiment
# ("progress", value)                    of the task in work
# ("done", result)                       of the task in work
# ("failed", type, message, traceback)   of the task in work, or of the setup
# ("lost", how)                          the worker has ended


@dataclass(frozen=True, eq=False)
class Task:
    description: str  # for messages: "clients 3, 4"
    message: tuple[Any, ...]  # (method of the remote worker, *arguments)


class WorkerHandle(Protocol):
    """A worker as its supervisor sees it."""

    tasks: deque[Task]
    ready: bool
    reused: bool  # it has worked for an earlier experiment and may end while it is being set up

    def send(self, task: Task) -> None: ...

    def share(self, value: Any, core: int | None = None) -> None:
        """Send what the next tasks have in common. A sleeping process of this machine wakes up on this core."""

    def end(self) -> object:
        """End the worker at once, whatever it is doing."""


H = TypeVar("H", bound=WorkerHandle)


class Launcher(Protocol[H]):
    """How workers of one kind are started, heard and released."""

    name: str  # "worker process"
    advice: str  # for the error when workers are lost again and again

    def start(self) -> H: ...

    def receive(self, workers: list[H], timeout_s: float | None) -> Iterator[tuple[H, Event]]:
        """The events that have arrived; waits for the first one, at most `timeout_s`. A lost worker is ended here."""

    def release(self, worker: H) -> None:
        """Dismiss a worker that may still be busy."""


class WorkerGroup(Generic[H]):
    """The workers of one experiment."""

    def __init__(
        self,
        launcher: Launcher[H],
        size: int,
        depth: int = DEPTH,
        on_send: Callable[[Task], None] = lambda task: None,
        on_progress: Callable[[Task, Any], None] = lambda task, value: None,
    ) -> None:
        self._launcher, self._depth = launcher, depth
        self._on_send, self._on_progress = on_send, on_progress
        self._repeat: deque[Task] = deque()  # tasks of lost workers
        self._losses: Counter[Task] = Counter()  # by the task in work
        self._failed_starts = 0  # workers lost before they were ready, since the last one that became ready
        self._shared: Any = None
        self.workers = [launcher.start() for _ in range(size)]

    @property
    def busy(self) -> bool:
        return any(worker.tasks for worker in self.workers)

    def wait_ready(self) -> None:
        """Wait for the first worker that has set up the experiment; the others join later."""
        while not any(worker.ready for worker in self.workers):
            for _ in self.collect():
                pass

    def share(self, value: Any) -> None:
        """Send every worker what all tasks from now on have in common."""
        self._shared = value
        for worker, core in zip(self.workers, cores_for(len(self.workers)), strict=True):
            if worker.ready:
                worker.share(value, core)

    def feed(self, draw: Callable[[], Task | None]) -> None:
        """Draw tasks as long as the queue of a worker is not full; lost tasks go first."""
        while ready := [worker for worker in self.workers if worker.ready and len(worker.tasks) < self._depth]:
            task = self._repeat.popleft() if self._repeat else draw()
            if task is None:
                return
            self._on_send(task)
            worker = min(ready, key=lambda worker: len(worker.tasks))
            worker.tasks.append(task)
            worker.send(task)

    def collect(self, timeout_s: float | None = None) -> Iterator[tuple[Task, Any]]:
        """The results that have arrived; waits until something has happened, at most `timeout_s`."""
        for worker, (kind, *content) in self._launcher.receive(self.workers, timeout_s):
            if kind == "lost":
                self._replace(worker, *content)
            elif kind == "ready":
                worker.ready, self._failed_starts = True, 0
                if self._shared is not None:
                    worker.share(self._shared)
            elif kind == "progress":
                self._on_progress(worker.tasks[0], *content)
            elif kind == "done":
                yield worker.tasks.popleft(), *content
            elif worker.ready:
                worker.tasks.popleft()
                raise rebuild_error(*content)
            else:
                error = rebuild_error(*content)
                if isinstance(error, SpecError | DataError):
                    error = SpecError(f"a {self._launcher.name} cannot set up the experiment: {error}")
                raise error

    def run_in_order(self, tasks: Iterator[Task]) -> Iterator[Any]:
        """The results in task order. Tasks are drawn as far ahead as the workers can be kept busy with."""
        pending: deque[Task] = deque()
        results: dict[Task, Any] = {}
        more = True

        def draw() -> Task | None:
            nonlocal more
            if not more or len(pending) >= self._depth * len(self.workers):
                return None
            task = next(tasks, None)
            more = task is not None
            if task is not None:
                pending.append(task)
            return task

        while True:
            self.feed(draw)
            if pending and pending[0] in results:
                yield results.pop(pending.popleft())
            elif pending or more:
                results.update(self.collect())
            else:
                return

    def settle(self) -> None:
        """Wait for the tasks of a call that was not read to its end."""
        self._repeat.clear()
        while self.busy:
            with suppress(Exception):
                for _ in self.collect():
                    pass
            self._repeat.clear()
        self._losses.clear()

    def _replace(self, worker: H, how: str) -> None:
        """Start another worker in place of a lost one and repeat its tasks."""
        task = worker.tasks[0] if worker.tasks else None
        self.workers[self.workers.index(worker)] = self._launcher.start()
        self._repeat.extendleft(reversed(worker.tasks))
        if task is not None:
            self._losses[task] += 1
        self._failed_starts += not worker.ready and not worker.reused
        name = self._launcher.name
        if self._failed_starts >= TRIES or (task is not None and self._losses[task] >= TRIES):
            where = f"on {task.description}" if task else "before it was ready"
            raise Interrupted(f"a {name} was lost {TRIES} times {where} (the last one {how}); {self._launcher.advice}")
        repeated = f"; {task.description} will be repeated" if task else ""
        level = logging.DEBUG if worker.reused and not worker.ready else logging.WARNING
        log.log(level, "a %s was lost (%s) and is replaced%s", name, how, repeated)

    def close(self, at_once: bool = False) -> None:
        """Release the workers, or end them `at_once`: after an interrupt, a message may have been cut in two."""
        workers, self.workers, self._shared = self.workers, [], None
        for worker in workers:
            if at_once:
                worker.end()
            else:
                self._launcher.release(worker)


@contextmanager
def closed_on_interrupt(close: Callable[[], None]) -> Iterator[None]:
    """Close the workers when Ctrl-C arrives in here; one that arrives in the caller's code does not matter to them."""
    try:
        yield
    except KeyboardInterrupt:
        close()
        raise


def describe_error(error: Exception) -> tuple[str, str, str]:
    """(type, message, traceback): errors travel as text, because a user's own class may not exist elsewhere."""
    return type(error).__name__, str(error), own_traceback(error) or traceback.format_exc()


def rebuild_error(kind: str, message: str, text: str) -> Exception:
    """The error of a worker: dragfl's and Python's own types as they were, any other with its name in the message."""
    found = getattr(errors, kind, None) or getattr(builtins, kind, None)
    error: Exception = DragflError(f"{kind}: {message}")
    if isinstance(found, type) and issubclass(found, Exception):
        with suppress(TypeError):  # its constructor takes more than a message
            error = found(message)
    error.add_note(f"In a worker:\n{text}")
    return error
