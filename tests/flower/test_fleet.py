"""Starting and watching SuperLink and SuperNodes, with commands of the same names that do little else than fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dragfl.errors import DragflError, SpecError
from dragfl.flower import fleet
from dragfl.flower.fleet import Fleet
from tests.flower.processes import below, living, wait_until

LISTEN = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
time.sleep(600)
"""
# Fails at the first start, in FOLDER; later ones work.
TAKEN_ONCE = """
import sys
from pathlib import Path
if not Path("{mark}").exists():
    Path("{mark}").touch()
    sys.exit("[Errno 98] error while attempting to bind on address: address already in use")
"""
CONNECT = "import time\nprint('SuperNode ID: 1', flush=True)\ntime.sleep(600)"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of `flower-superlink` and `flower-supernode`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    real = fleet.environment
    monkeypatch.setattr(fleet, "environment", lambda private: real(private) | {"PATH": str(folder)})
    monkeypatch.setattr(fleet, "RESTART_S", 0.0)
    return folder


def write(commands: Path, name: str, code: str) -> None:
    path = commands / name
    path.write_text(f"#!{sys.executable}\n{code}")
    path.chmod(0o755)


def test_a_port_that_was_taken_is_replaced(commands: Path, tmp_path: Path) -> None:
    """Between the choice of a free port and its use another process may take it."""
    write(commands, "flower-superlink", TAKEN_ONCE.format(mark=tmp_path / "link") + LISTEN)
    write(commands, "flower-supernode", TAKEN_ONCE.format(mark=tmp_path / "node") + CONNECT)
    with Fleet(tmp_path / "logs", 1, secure=False) as running:
        running.start_nodes()
        wait_until(lambda: (running.check(), fleet.CONNECTED in running._output("node-0"))[1])
        assert "node-0" not in running.processes.poll()
        processes = below(os.getpid())
    assert not living(processes)


def test_a_superlink_that_does_not_start_is_an_error_with_its_log(commands: Path, tmp_path: Path) -> None:
    write(commands, "flower-superlink", "import sys\nsys.exit('no such certificate')")
    with pytest.raises(DragflError, match=r"SuperLink has not started; its log, .*\n  no such certificate"):
        Fleet(tmp_path / "logs", 1, secure=False).__enter__()


def test_a_superlink_that_ends_is_an_error(commands: Path, tmp_path: Path) -> None:
    write(commands, "flower-superlink", LISTEN)
    with Fleet(tmp_path / "logs", 1, secure=False) as running:
        running.check()
        os.kill(running.processes.pids["superlink"], 9)
        with pytest.raises(DragflError, match=r"SuperLink has ended \(signal 9\)"):
            wait_until(lambda: running.check() is not None)


def test_a_node_that_ends_is_started_again(commands: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(commands, "flower-superlink", LISTEN)
    write(commands, "flower-supernode", CONNECT)
    with Fleet(tmp_path / "logs", 1, secure=False) as running:
        running.start_nodes()
        first = running.processes.pids["node-0"]
        wait_until(lambda: fleet.CONNECTED in running._output("node-0"))
        os.kill(first, 9)
        wait_until(lambda: (running.check(), running.processes.pids["node-0"] != first)[1])
    assert caplog.messages == ["node-0: its SuperNode has ended (signal 9) and is started again"]


def test_a_node_that_never_connects_is_an_error_with_its_log(commands: Path, tmp_path: Path) -> None:
    write(commands, "flower-superlink", LISTEN)
    write(commands, "flower-supernode", "import sys\nsys.exit('Exit Code: 305')")
    with Fleet(tmp_path / "logs", 1, secure=False) as running:
        running.start_nodes()
        with pytest.raises(DragflError, match=r"node-0: its SuperNode has not connected; its log:\n  Exit Code: 305"):
            wait_until(lambda: running.check() is not None)


def test_commands_that_are_not_installed(commands: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"flower-superlink is not on PATH; install it: pip install 'dragfl\[flower\]'"):
        Fleet(tmp_path / "logs", 1).__enter__()


def test_the_environment_of_the_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This Python first, its modules, no proxy for the loopback address, all files in the private folder."""
    monkeypatch.setenv("no_proxy", "example.org")
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])
    found = fleet.environment(tmp_path)
    assert found["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert found["PYTHONPATH"] == f"{Path.cwd()}{os.pathsep}/somewhere"
    assert found["no_proxy"] == found["NO_PROXY"] == "example.org,127.0.0.1"
    assert found["FLWR_HOME"] == found["TMPDIR"] == str(tmp_path)
    assert found["OMP_NUM_THREADS"] == "1"


def test_no_more_nodes_are_started_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(Fleet, "_start_node", lambda self, name: started.append(name))
    Fleet(tmp_path / "f", 4, secure=False).start_nodes(lambda: len(started) == 2)
    assert started == ["node-0", "node-1"]
