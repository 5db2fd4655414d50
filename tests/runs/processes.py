"""Commands in processes of their own, to be stopped in every way a process can be."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conftest import DIGITS, command

ROUNDS = 120
LONG = DIGITS.replace("rounds = 12", f"rounds = {ROUNDS}").replace("every = 4", "every = 1")


@contextmanager
def started(*arguments: str | Path, cwd: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A dragfl command that is running."""
    process = subprocess.Popen(
        command(*arguments), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def lines(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_round(process: subprocess.Popen[str], folder: Path, round: int) -> None:
    """Return when the log holds this round, or the process has ended."""
    limit = time.monotonic() + 60
    while lines(folder) < round and process.poll() is None:
        assert time.monotonic() < limit, "it takes too long"
        time.sleep(0.001)


def kill_at(folder: Path, round: int, delay_s: float, *arguments: str | Path) -> None:
    """Start a command and SIGKILL it a moment after it has logged a round; it may have ended before that."""
    with started(*arguments, "--quiet", cwd=folder.parent) as process:
        wait_for_round(process, folder, round)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
