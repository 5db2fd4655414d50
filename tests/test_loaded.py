"""`make test-loaded`: the busy processes end with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TIMEOUT_S
from tests.flower.processes import below, living
from tests.loaded import COUNT
from tests.runs.processes import wait_until

WAITS = """
def test_waits():
    with open("gate") as gate:
        gate.read()
"""


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGKILL])
def test_busy_processes_end_with_it(tmp_path: Path, number: signal.Signals | None) -> None:
    """A test waits at a pipe while they are counted; then it passes, or Ctrl-C or SIGKILL ends all of it."""
    (tmp_path / "test_waits.py").write_text(WAITS)
    os.mkfifo(tmp_path / "gate")
    words = [sys.executable, "-m", "tests.loaded", "-q", "-p", "no:cacheprovider", "test_waits.py"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    process = subprocess.Popen(words, cwd=tmp_path, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
    gate: list[int] = []

    def opened() -> bool:
        assert process.poll() is None, "it ended before its test"
        try:
            gate.append(os.open(tmp_path / "gate", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    wait_until(opened)
    found = below(process.pid)
    assert len(found) == COUNT + 1, "the busy processes and pytest"
    if number is not None:
        os.killpg(process.pid, number)
    os.close(gate[0])
    process.wait(timeout=TIMEOUT_S)
    assert process.returncode == {None: 0, signal.SIGINT: 2, signal.SIGKILL: -9}[number]
    wait_until(lambda: not living(found))
