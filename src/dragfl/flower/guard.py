"""The parent of all processes of a federation on this machine: `python -m dragfl.flower.guard PARENT FOLDER`.

It starts the commands that it reads from its standard input, one JSON object a line:
`{"name": "superlink", "argv": [...], "environment": {...}, "log": "superlink.log"}`, and writes one line when a process
has started, `{"name": ..., "pid": ...}` or `{"name": ..., "error": ...}`, and one when it has ended,
`{"name": ..., "exit": code}`. When its input is closed, or the process PARENT has ended, even by `kill -9`, it ends
every descendant, deletes FOLDER and exits. Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

POLL_S = 0.1
GRACE_S = 5.0  # between SIGTERM and SIGKILL
KILL_S = 30.0  # a process that the kernel does not end, such as one waiting for a dead disk, is given up
_libc = ctypes.CDLL(None)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>


def main(parent: int, folder: Path) -> None:
    """Serve until the parent is gone; then end everything."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans below become children of this process: none escapes
    signal.signal(signal.SIGTERM, _exit)
    started: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
    try:
        _serve(parent, started)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_descendants()
        shutil.rmtree(folder, ignore_errors=True)


def _serve(parent: int, started: dict[int, tuple[str, subprocess.Popen[bytes]]]) -> None:
    source, rest = sys.stdin.fileno(), b""
    while os.getppid() == parent:
        if select.select([source], [], [], POLL_S)[0]:
            data = os.read(source, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _start(json.loads(line), started)
        for pid, code in _reap():
            if pid in started:
                _tell(name=started.pop(pid)[0], exit=code)


def _start(order: dict[str, Any], started: dict[int, tuple[str, subprocess.Popen[bytes]]]) -> None:
    try:
        with Path(order["log"]).open("ab") as log:
            process = subprocess.Popen(
                order["argv"],
                env=order["environment"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,
            )
    except OSError as error:
        return _tell(name=order["name"], error=str(error))
    started[process.pid] = (order["name"], process)
    return _tell(name=order["name"], pid=process.pid)


def _tell(**event: Any) -> None:
    with contextlib.suppress(OSError):  # the reader is gone; the next look at the input ends this process
        os.write(sys.stdout.fileno(), json.dumps(event).encode() + b"\n")


def _reap() -> list[tuple[int, int]]:
    """(pid, exit code or minus the signal) of every child that has ended."""
    ended = []
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append((found[0], os.waitstatus_to_exitcode(found[1])))
    return ended


def _childless() -> bool:
    """Whether this process has no child.

    The table of processes is read row by row: while a process ends, its children can be missed. The kernel's answer is
    exact, and a subreaper without children has no descendants.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def end_descendants() -> None:
    """End all processes below this one: SIGTERM, and SIGKILL for what is left after a few seconds."""
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_S)):
        limit, sent = time.monotonic() + patience_s, set[int]()
        while time.monotonic() < limit:
            _reap()
            living = descendants(os.getpid())
            if not living and _childless():
                return
            for pid in living - sent:  # new ones may have been started meanwhile
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            sent |= living
            time.sleep(0.02)


def descendants(root: int) -> set[int]:
    """The living processes below `root`."""
    children: dict[int, list[int]] = {}
    for pid, parent in _processes():
        children.setdefault(parent, []).append(pid)
    found, waiting = set[int](), list(children.get(root, ()))
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting += children.get(pid, ())
    return found


def _processes() -> list[tuple[int, int]]:
    """(pid, pid of its parent) of every process that has not ended; a zombie has."""
    if sys.platform == "linux":
        rows = [row for folder in Path("/proc").iterdir() if folder.name.isdigit() and (row := _stat(folder))]
    else:
        with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE, text=True) as ps:
            lines = [line.split() for line in ps.stdout or ()]
        rows = [(pid, parent, state) for pid, parent, state in lines if int(pid) != ps.pid]
    return [(int(pid), int(parent)) for pid, parent, state in rows if not state.startswith("Z")]


def _stat(folder: Path) -> tuple[str, str, str] | None:
    with contextlib.suppress(OSError):  # it has ended
        state, parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:2]
        return folder.name, parent.decode(), state.decode()
    return None


def _end_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # in case this guard is killed itself


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _libc.prctl(option, value, 0, 0, 0)


def _exit(*_: object) -> NoReturn:
    raise SystemExit


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
