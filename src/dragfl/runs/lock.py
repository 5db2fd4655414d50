"""One process at a time in a run directory. The lock dies with its holder, so a killed run leaves none behind."""

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
def locked(folder: Path) -> Iterator[None]:
    """Hold the run directory, or say who does."""
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
        who = json.loads((folder / LOCK).read_text())
        return f"process {who['pid']} on {who['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
