"""Worker processes: both ends of the connection between a parent and a process that works for it.

A process is started as a module, never forked, so a notebook or a script without a `__main__` guard needs nothing
special. It holds one end of a socket pair and ends when the other one is closed, by the parent or by its death. An
entry point ("module:name") makes the object whose methods the parent calls.

    to the process                                          from the process
    ("prepare", n, settings, entry point, arguments, m)     ("ready", n) or ("failed", n, type, message, traceback)
      and, if m, the descriptor of the shared memory
    ("run", method, *arguments)                             any ("progress", value), then
                                                            ("done", result) or ("failed", type, message, traceback)
    ("share", value)                                        -
    ("stop",), ("release",)                                 -

It ignores Ctrl-C, because the parent decides. A thread watches the connection, so that the process ends in the middle
of its work when its parent is gone. Without an experiment it waits a while for the next one of a sweep and then ends.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, reduction
from pkgutil import resolve_name
from typing import Any

import torch

from dragfl.engine.allocator import keep_freed_memory
from dragfl.engine.backends.shared_memory import SharedMemory
from dragfl.engine.backends.supervisor import Event, Task, describe_error

IDLE_S = 30.0  # a process without an experiment ends after this time


class WorkerProcess:
    """The parent's end: one process and its queue of tasks."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "dragfl.engine.backends.worker_process"]
        command += [str(theirs.fileno()), str(IDLE_S)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with theirs, _interrupts_blocked():
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env=environment
            )
        self.channel: connection.Connection[Any, Any] = connection.Connection(ours.detach())
        self.tasks: deque[Task] = deque()
        self.ready = self.reused = False
        self._experiments = 0

    def prepare(self, entry_point: str, arguments: tuple[Any, ...], memory: SharedMemory | None) -> None:
        settings = {"folder": os.getcwd(), "environment": dict(os.environ), "path": list(sys.path)}  # noqa: PTH109
        self.ready, self.reused = False, self._experiments > 0
        self._experiments += 1
        self._send("prepare", self._experiments, settings, entry_point, arguments, memory is not None)
        if memory is not None:
            with suppress(OSError):
                reduction.send_handle(self.channel, memory.descriptor, self.process.pid)

    def send(self, task: Task) -> None:
        self._send("run", *task.message)

    def share(self, value: Any, core: int | None = None) -> None:
        with _wakes_on(self.process.pid, core):
            self._send("share", value)

    def stop(self) -> None:
        """Ask the task in work to stop early."""
        self._send("stop")

    def release(self) -> None:
        """Forget the experiment and wait for the next one."""
        self._send("release")

    def _send(self, *message: Any) -> None:
        with suppress(OSError):  # the process has died, which `receive` reports
            self.channel.send(message)

    def receive(self) -> Event | None:
        """The next event; None for one of an earlier experiment."""
        try:
            kind, *content = self.channel.recv()
        except (EOFError, OSError):
            return "lost", self.end()
        if not self.ready and kind in ("ready", "failed"):
            number, *content = content
            if number != self._experiments:
                return None
        return kind, *content

    def end(self) -> str:
        """End the process in the middle of its work, and describe how it ended."""
        self.process.kill()
        self.channel.close()
        code = self.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"process {self.process.pid} {how}"


@contextmanager
def _wakes_on(pid: int, core: int | None) -> Iterator[None]:
    """A process that is woken in here starts on this core; afterwards it may move to any.

    The scheduler of Linux may queue two processes that wake at about the same time on one core, while this process
    still uses the other. One of them then waits for some milliseconds: in a quarter of the rounds of a small model.
    """
    if core is None:
        yield
        return
    with suppress(OSError):
        os.sched_setaffinity(pid, {core})
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(pid, os.sched_getaffinity(0))


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process that is started in here never sees Ctrl-C, not even before it can ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_idle: list[WorkerProcess] = []  # kept between the runs of a sweep


@atexit.register
def end_idle_processes() -> None:
    while _idle:
        _idle.pop().end()


os.register_at_fork(after_in_child=_idle.clear)  # a fork of this process must not hold these connections


@dataclass
class ProcessLauncher:
    """Starts worker processes for one experiment, or takes idle ones."""

    entry_point: str
    arguments: tuple[Any, ...]
    advice: str
    memory: SharedMemory | None = None
    reusable: bool = False  # the experiment has built-in parts only; a user's module may change between runs
    name: str = "worker process"

    def start(self) -> WorkerProcess:
        worker = _take_idle() or WorkerProcess()
        worker.prepare(self.entry_point, self.arguments, self.memory)
        return worker

    def receive(self, workers: list[WorkerProcess], timeout_s: float | None) -> Iterator[tuple[WorkerProcess, Event]]:
        channels: dict[Any, WorkerProcess] = {worker.channel: worker for worker in workers}
        for channel in connection.wait(list(channels), timeout_s):
            worker = channels[channel]
            event = worker.receive()
            if event is not None:
                yield worker, event

    def release(self, worker: WorkerProcess) -> None:
        if self.reusable and not worker.tasks:
            worker.release()
            _idle.append(worker)
        else:
            worker.end()


def _take_idle() -> WorkerProcess | None:
    while _idle:
        worker = _idle.pop()
        if worker.process.poll() is None:
            return worker
        worker.end()
    return None


class ParentConnection:
    """The process's end."""

    def __init__(self, channel: connection.Connection[Any, Any]) -> None:
        self._channel = channel
        self._early: deque[tuple[Any, ...]] = deque()  # messages that arrived during a task
        self._stop = False
        self.memory: SharedMemory | None = None

    def end_with_parent(self) -> None:
        """Wait until the parent has closed the connection, or is gone; then end this process."""
        hangup = select.poll()
        hangup.register(self._channel.fileno(), getattr(select, "POLLRDHUP", select.POLLHUP))
        hangup.poll()
        os._exit(0)

    def should_stop(self) -> bool:
        """Whether the parent has asked the task in work to stop early."""
        while not self._stop and self._channel.poll():
            message = self._channel.recv()
            self._stop = message == ("stop",)
            self._early.append(message)
        return self._stop

    def report(self, value: Any) -> None:
        self._channel.send(("progress", value))

    def serve(self, idle_s: float) -> None:
        """Answer one message after the other, until there is no experiment for so long."""
        service: Any = None
        while service is not None or self._early or self._channel.poll(idle_s):
            kind, *content = self._early.popleft() if self._early else self._channel.recv()
            if kind == "release":
                service = None
            elif kind == "prepare":
                number, settings, entry_point, arguments, shares_memory = content
                self.memory = SharedMemory(reduction.recv_handle(self._channel)) if shares_memory else None
                try:
                    apply_settings(settings)
                    service = resolve_name(entry_point)(self, *arguments)
                    self._channel.send(("ready", number))
                except Exception as error:
                    self._channel.send(("failed", number, *describe_error(error)))
            elif service is not None and kind == "share":
                service.share(*content)
            elif service is not None and kind == "run":
                method, *arguments = content
                try:
                    self._channel.send(("done", getattr(service, method)(*arguments)))
                except Exception as error:
                    self._channel.send(("failed", *describe_error(error)))


def apply_settings(settings: Mapping[str, Any]) -> None:
    """Resolve files and modules as the parent does."""
    os.chdir(settings["folder"])
    os.environ.update(settings["environment"])
    sys.path[:] = settings["path"]


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # what a user's code prints must not mix with the parent's output
    torch.set_num_threads(1)
    keep_freed_memory()
    parent = ParentConnection(connection.Connection(int(sys.argv[1])))
    threading.Thread(target=parent.end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent is gone
        parent.serve(idle_s=float(sys.argv[2]))
    os._exit(0)


if __name__ == "__main__":
    main()
