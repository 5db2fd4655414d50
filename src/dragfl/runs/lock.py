"""A lock that lets one process at a time write to a run directory. It ends with its process, even a killed one."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dragfl.errors import SpecError
from dragfl.runs.directory import LOCK


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory; `SpecError` names the process that holds it already."""
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SpecError(f"{folder}: in use by {_holder(folder)}; wait for it to end or stop it first") from None
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _holder(folder: Path) -> str:
    try:
        holder = json.loads((folder / LOCK).read_text())
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
