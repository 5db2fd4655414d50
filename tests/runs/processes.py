"""Commands in their own processes, for tests that stop or kill them.

`started_run` prints a line of JSON per round into a small pipe. The process blocks when the pipe is full, so it can be
at most a few rounds ahead of the test, however busy the machine is.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import DIGITS, TIMEOUT_S, command

ROUNDS = 120
AHEAD = 40  # more rounds than fit into the pipe
LONG = DIGITS.replace("rounds = 12", f"rounds = {ROUNDS}").replace("every = 4", "every = 1")


@contextmanager
def started_run(*arguments: str | Path, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A running `dragfl run` or `dragfl resume`; killed at the end if it still runs."""
    process = subprocess.Popen(
        command(*arguments, "--json"),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pipesize=4096,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def count_lines(folder: Path) -> int:
    """The rounds in the metrics log of a run."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_round(process: subprocess.Popen[str], folder: Path, round: int) -> None:
    """Return when the log holds this round; drains the output so that the process can get there."""
    assert process.stdout is not None
    while count_lines(folder) < round:
        assert process.stdout.readline(), f"the process ended before round {round}"


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds; the limit only guards against a test that hangs."""
    limit = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < limit, f"not within {TIMEOUT_S} s"
        time.sleep(0.005)


def kill_at(folder: Path, round: int, delay_s: float, *arguments: str | Path) -> None:
    """Start a command and SIGKILL it some time after it has logged a round."""
    with started_run(*arguments, cwd=folder.parent) as process:
        wait_for_round(process, folder, round)
        time.sleep(delay_s)  # only chooses the moment; nothing is expected of it
        process.send_signal(signal.SIGKILL)
        process.wait()
