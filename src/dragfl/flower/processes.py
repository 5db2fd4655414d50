"""Start processes that cannot outlive this one: the other end of the pipes of `guard.py`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from dragfl.errors import DragflError

TAIL_LINES, TAIL_BYTES = 15, 1 << 14  # of a log in an error message


class GuardedProcesses:
    """Named processes below a guard, and a private folder; both are gone when this is closed or its process has ended.

    `exits` maps the name of a process that has ended to its exit code, or to minus the signal that ended it.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dragfl-flower-"))  # mode 0700
        self.pids: dict[str, int] = {}
        self.exits: dict[str, int] = {}
        self._rest = b""
        self._guard = subprocess.Popen(
            [sys.executable, "-P", "-m", "dragfl.flower.guard", str(os.getpid()), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": python_path()},
            start_new_session=True,  # Ctrl-C is for this process alone
        )
        assert self._guard.stdin is not None and self._guard.stdout is not None
        self._orders, self._events = self._guard.stdin, self._guard.stdout

    def __enter__(self) -> GuardedProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start a process; its output is appended to the log."""
        order = {"name": name, "argv": list(argv), "environment": dict(environment), "log": str(log)}
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
        except BrokenPipeError:
            raise DragflError("the process that guards the federation has ended; run again") from None
        self.pids.pop(name, None)
        self.exits.pop(name, None)
        os.set_blocking(self._events.fileno(), True)
        while name not in self.pids:
            self._read()

    def poll(self) -> dict[str, int]:
        """Take note of processes that have ended; returns `exits`."""
        os.set_blocking(self._events.fileno(), False)
        while self._read():
            pass
        return self.exits

    def _read(self) -> bool:
        """Read what the guard has written; False if there is nothing now."""
        try:
            data = os.read(self._events.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            raise DragflError("the process that guards the federation has ended; run again")
        *lines, self._rest = (self._rest + data).split(b"\n")
        for event in map(json.loads, lines):
            if "error" in event:
                raise DragflError(f"{event['name']}: cannot be started ({event['error']})")
            if "pid" in event:
                self.pids[event["name"]] = event["pid"]
            else:
                self.exits[event["name"]] = event["exit"]
        return True

    def close(self) -> None:
        """End all processes and delete the folder."""
        with suppress(BrokenPipeError):
            self._orders.close()
        self._guard.wait()
        self._events.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # where the guard was killed


def python_path() -> str:
    """The modules that this process can import, for the environment of another."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109


def tail(log: Path) -> str:
    """The last lines of a log, indented."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in [line for line in lines if line.strip()][-TAIL_LINES:])
