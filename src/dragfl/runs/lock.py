"""A lock that lets one process at a time write to a run directory. It ends with its process, even a killed one."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from dragfl.errors import SpecError
from dragfl.runs.directory import LOCK

TRIES = 50  # 10 ms apart: the holder writes its name just after it takes the lock


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory; `SpecError` names the process that holds it already.

    A symbolic link is refused: in a folder from elsewhere it could lead the files of the run over those of the user.
    """
    for path in folder.iterdir():
        if path.is_symlink():
            raise SpecError(f"{path}: is a symbolic link; replace it by the file itself, since dragfl writes there")
    with (folder / LOCK).open("a+") as file:
        _lock(folder, file)
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})
        file.truncate(0)
        with suppress(OSError):  # on a full disk, which is reported for the files of the run
            os.write(file.fileno(), holder.encode())
        try:
            yield
        finally:
            file.truncate(0)


def refuse_if_locked(folder: Path) -> None:
    """Raise `SpecError` with the process that writes to this folder, if there is one."""
    if (folder / LOCK).is_file():
        with (folder / LOCK).open() as file:
            _lock(folder, file, fcntl.LOCK_SH)


def is_locked(folder: Path) -> bool:
    """Whether a process writes to this folder now."""
    if not (folder / LOCK).is_file():
        return False
    with (folder / LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _lock(folder: Path, file: IO[str], kind: int = fcntl.LOCK_EX) -> None:
    for _ in range(TRIES):
        try:
            return fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if holder := _holder(folder):
                raise SpecError(f"{folder}: in use by {holder}; wait for it to end or stop it first") from None
            time.sleep(0.01)
    raise SpecError(f"{folder}: in use by another process; wait for it to end or stop it first")


def _holder(folder: Path) -> str | None:
    """The process that holds the lock; None if it has not written its name."""
    try:
        holder = json.loads((folder / LOCK).read_text())
        since = f" since {holder['since']}" if "since" in holder else ""
        return f"process {holder['pid']} on {holder['host']}{since}"
    except (OSError, ValueError, KeyError, TypeError):
        return None
