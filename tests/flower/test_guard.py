"""No process of a federation outlives the process that started it, however that one ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragfl.errors import DragflError
from dragfl.flower import guard
from dragfl.flower.processes import GuardedProcesses, tail
from tests.conftest import TIMEOUT_S
from tests.flower.processes import below, living, wait_until, wait_until_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc: needs Linux")

# A child, and a grandchild that is detached from it and loses its parent. A stubborn one ignores SIGTERM.
CHILD = "(setsid sleep 600 & echo $! > orphan); while true; do sleep 0.1; done"
STUBBORN = f"trap '' TERM; {CHILD}"
PARENT = """
import os, sys, time
from pathlib import Path
from dragfl.flower.processes import GuardedProcesses
processes = GuardedProcesses()
processes.start("child", ["/bin/sh", "-c", {child!r}], dict(os.environ), Path("log"))
print(processes.folder, flush=True)
{then}
"""


@contextmanager
def started_parent(
    tmp_path: Path, child: str = CHILD, then: str = "time.sleep(600)"
) -> Iterator[subprocess.Popen[str]]:
    """A process with a guard below it; the orphan's pid is in the file `orphan`."""
    code = PARENT.format(child=child, then=then)
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def everything_below(process: subprocess.Popen[str], tmp_path: Path) -> set[tuple[int, str]]:
    """All descendants, when the orphan has been started and has lost its parent."""
    orphan, found = tmp_path / "orphan", set[tuple[int, str]]()

    def complete() -> bool:
        """An orphan stays below the guard. It can be missed while it loses its parent, so a look is repeated."""
        found.update(below(process.pid))
        return orphan.exists() and orphan.read_text().strip() in {str(pid) for pid, _ in found}

    wait_until(complete)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    with started_parent(tmp_path, STUBBORN if number == signal.SIGKILL else CHILD) as process:
        assert process.stdout is not None
        private = Path(process.stdout.readline().strip())
        found = everything_below(process, tmp_path)
        assert len(found) >= 3
        assert private.stat().st_mode & 0o777 == 0o700
        process.send_signal(number)
        process.wait(timeout=TIMEOUT_S)
        wait_until_gone(found)
        assert not private.exists(), "keys and databases are deleted"


def test_a_fork_that_holds_the_pipe_does_not_keep_the_processes(tmp_path: Path) -> None:
    """A forked worker of the parent has its files open too, so the pipe does not close."""
    fork = "child = os.fork()\nif child: Path('fork').write_text(str(child))\ntime.sleep(600)"
    with started_parent(tmp_path, then=fork) as p:
        wait_until(lambda: (tmp_path / "fork").exists() and (tmp_path / "fork").read_text() != "")
        forked = int((tmp_path / "fork").read_text())
        try:
            found = everything_below(p, tmp_path)
            p.kill()
            p.wait(timeout=TIMEOUT_S)
            wait_until_gone({process for process in found if process[0] != forked})
        finally:
            os.kill(forked, signal.SIGKILL)


def test_a_killed_guard_takes_its_children_with_it(tmp_path: Path) -> None:
    with GuardedProcesses() as processes:
        processes.start("sleep", ["/bin/sleep", "600"], {}, tmp_path / "log")
        found = below(os.getpid())
        child = {process for process in found if process[0] == processes.pids["sleep"]}
        os.kill(processes._guard.pid, signal.SIGKILL)
        wait_until_gone(child)
        with pytest.raises(DragflError, match="guards the federation has ended"):
            wait_until(lambda: bool(processes.poll()))
        with pytest.raises(DragflError, match="guards the federation has ended"):
            processes.start("another", ["/bin/sleep", "600"], {}, tmp_path / "log")
    assert not processes.folder.exists()


def test_processes_are_started_logged_and_reported(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with GuardedProcesses() as processes:
        processes.start("good", ["/bin/sh", "-c", "echo $WORD; exit 7"], {"WORD": "hello"}, log)
        processes.start("killed", ["/bin/sleep", "600"], {}, log)
        os.kill(processes.pids["killed"], signal.SIGKILL)
        wait_until(lambda: len(processes.poll()) == 2)
        assert processes.exits == {"good": 7, "killed": -signal.SIGKILL}
        assert tail(log) == "\n  hello"
        processes.start("good", ["/bin/sleep", "600"], {}, log)
        assert "good" not in processes.poll(), "started again"
        found = below(os.getpid())
    assert not living({process for process in found if process[0] == processes.pids["good"]})
    assert not processes.folder.exists()


MISSED = """
import subprocess
from dragfl.flower import guard
real, looks = guard.descendants, []
guard.descendants = lambda root: looks.append(root) or (set() if len(looks) == 1 else real(root))
child = subprocess.Popen(["/bin/sleep", "600"])
guard.end_descendants()
try:
    assert real(looks[0]) == set(), "the child still runs"
finally:
    child.kill()
"""


def test_a_process_that_the_table_misses_is_ended() -> None:
    """A process that loses its parent while the table is read is in no row below the guard."""
    subprocess.run([sys.executable, "-c", MISSED], check=True, timeout=TIMEOUT_S)


def test_a_command_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with GuardedProcesses() as processes, pytest.raises(DragflError, match=r"x: cannot be started .*nowhere"):
        processes.start("x", ["/nowhere/at/all"], {}, tmp_path / "log")


@pytest.mark.skipif(shutil.which("ps") is None, reason="ps is not installed: apt-get install procps")
def test_the_process_table_of_ps_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than on Linux the table comes from `ps`, which does not list itself."""
    with subprocess.Popen(["/bin/sleep", "600"]) as child:
        monkeypatch.setattr(guard.sys, "platform", "darwin")
        assert child.pid in guard.descendants(os.getpid())
        child.kill()
        wait_until(lambda: child.pid not in guard.descendants(os.getpid()))


def test_the_guard_imports_neither_torch_nor_flwr() -> None:
    code = "import sys, dragfl.flower.guard; assert not {'torch', 'flwr', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIMEOUT_S)
