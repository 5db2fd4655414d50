"""dragfl commands as forked copies of this process, which has imported everything: they start in milliseconds.

Nothing here starts a thread before a fork. A row that needs another environment starts real commands instead.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import torch

import dragfl.report.summary
import dragfl.runs.loop  # noqa: F401  imported before the first fork
from dragfl.cli import main

PIPE_BYTES = 4096  # a command that prints its rounds is at most some rounds ahead of its reader


@dataclass
class Command:
    """A running or ended command."""

    pid: int
    out: IO[str]
    errors: IO[str]
    returncode: int | None = None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the command has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def finish(self) -> int:
        """Read the rest of the output and return the exit code."""
        self.out.read()
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    @property
    def text(self) -> str:
        """What it has written to stderr."""
        self.errors.seek(0)
        return self.errors.read()

    def reads_round(self, round: int) -> bool:
        """Read its output up to this round; False if it ended before."""
        while line := self.out.readline():
            if line.startswith("{") and int(json.loads(line).get("round", 0)) >= round:
                return True
        return False


@contextmanager
def running(*arguments: str | Path, cwd: Path, prepare: Callable[[], object] = lambda: None) -> Iterator[Command]:
    """A dragfl command that prints a line of JSON per round; killed at the end if it still runs."""
    torch.set_num_threads(1)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    with tempfile.TemporaryFile("w+") as errors, os.fdopen(reading) as out:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _become([*map(str, arguments)], cwd, writing, errors.fileno(), prepare)
        os.close(writing)
        command = Command(pid, out, errors)
        try:
            yield command
        finally:
            command.send(signal.SIGKILL)
            command.finish()


def run_to_end(*arguments: str | Path, cwd: Path, prepare: Callable[[], object] = lambda: None) -> tuple[int, str]:
    """(exit code, stderr) of a command."""
    with running(*arguments, cwd=cwd, prepare=prepare) as command:
        return command.finish(), command.text


def _become(arguments: list[str], cwd: Path, out: int, errors: int, prepare: Callable[[], object]) -> NoReturn:
    """In the child: run the command as a process of its own would."""
    code = 1
    try:
        atexit._clear()  # what this process would do at its own end
        os.dup2(out, 1)
        os.dup2(errors, 2)
        os.close(out)
        os.setsid()
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        os.chdir(cwd)
        prepare()
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        _end_workers()
        sys.stdout.flush()
        os._exit(code)


def _end_workers() -> None:
    from dragfl.engine.backends.worker_process import end_idle_processes

    end_idle_processes()
