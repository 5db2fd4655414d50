"""A SuperLink and SuperNodes on the loopback address of this machine. They end with this process."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any

import tomli_w

from dragfl.errors import DragflError, SpecError
from dragfl.flower.certificates import make_authority, make_node_key, make_server_certificate
from dragfl.flower.commands import FlowerCommands
from dragfl.flower.processes import GuardedProcesses, python_path, tail

log = logging.getLogger("dragfl.flower")

HOST = "127.0.0.1"
LINK = "loopback"  # the name of the SuperLink in Flower's configuration
JSON = ("--format", "json")
CONNECTED = "SuperNode ID"  # in the log of a SuperNode that has been accepted
POLL_S = 0.1
RESTART_S = 5.0  # before a SuperNode that has ended is started again
TRIES = 5  # free ports to try: another process may take one before it is used


class Fleet:
    """A SuperLink and `nodes` SuperNodes: node `m` has partition-id `m` and keeps its client states in FOLDER/node-m.

    The logs of all processes are in `folder` too. With `secure` the connections use TLS, and a node proves its key.
    """

    def __init__(self, folder: Path, nodes: int, *, secure: bool = True) -> None:
        self.folder, self.nodes, self.secure = folder.absolute(), nodes, secure
        self._restarts: dict[str, float] = {}  # node -> when to start it again
        self._connected: set[str] = set()  # nodes that have ended after they had been connected
        self._before: dict[str, int] = {}  # process -> length of its log before it was started

    def __enter__(self) -> Fleet:
        with ExitStack() as stack:
            self.processes = stack.enter_context(GuardedProcesses())
            self.private = self.processes.folder
            self._environment = environment(self.private)
            self.flwr = stack.enter_context(FlowerCommands(self._environment))
            if self.secure:
                make_authority(self.private)
                make_server_certificate(self.private, [HOST, "localhost"])
            self._start_superlink()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def _start_superlink(self) -> None:
        """Start SuperLink and wait until it accepts connections."""
        certificates = ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key"]
        paths = [word if word.startswith("--") else str(self.private / word) for word in certificates]
        security = [*paths, "--enable-supernode-auth"] if self.secure else ["--insecure"]
        for _ in range(TRIES):
            self.port = free_port()
            command = ["flower-superlink", "--host", HOST, "--port", str(self.port), *security]
            command += ["--database", str(self.private / "link.db"), "--disable-runtime-dependency-installation"]
            self._start("superlink", command)
            while "superlink" not in self.processes.poll():
                if _accepts_connections(self.port):
                    return self._configure()
                time.sleep(POLL_S)
            if not self._port_was_taken("superlink"):
                break
        raise DragflError(
            f"SuperLink has not started; its log, {self._log('superlink')}:{tail(self._log('superlink'))}"
        )

    def _configure(self) -> None:
        """Write the configuration of the `flwr` commands."""
        trust = {"root-certificates": str(self.private / "ca.crt")} if self.secure else {"insecure": True}
        link = {"address": f"{HOST}:{self.port}", **trust}
        (self.private / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": LINK, LINK: link}}))

    def start_nodes(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Register the keys of all nodes, then start the nodes; they connect a few seconds later."""
        names = [f"node-{m}" for m in range(self.nodes)]
        for step, name in product([self._register, self._start_node] if self.secure else [self._start_node], names):
            if should_stop():
                return
            step(name)

    def _register(self, name: str) -> None:
        _, public = make_node_key(self.private, name)
        self.flwr("supernode", "register", str(public), LINK, "--name", name, *JSON)

    def _start_node(self, name: str) -> None:
        state = self.folder / name
        state.mkdir(parents=True, exist_ok=True)
        settings = self.private / f"{name}.toml"
        settings.write_text(tomli_w.dumps({"partition-id": int(name.removeprefix("node-")), "state-dir": str(state)}))
        trust = ["--root-certificates", str(self.private / "ca.crt")]
        key = ["--auth-supernode-private-key", str(self.private / name)]
        security = [*trust, *key] if self.secure else ["--insecure"]
        addresses = ["--superlink", f"{HOST}:{self.port}", "--host", HOST, "--port", str(free_port())]
        self._start(name, ["flower-supernode", *addresses, *security, "--node-config", str(settings)])

    def check(self) -> None:
        """Start nodes again that have ended; raises `DragflError` if the SuperLink has, or if a node cannot start."""
        for name, code in dict(self.processes.poll()).items():
            if name == "superlink":
                raise DragflError(f"SuperLink has ended ({_described(code)}){tail(self._log(name))}")
            if name not in self._restarts:
                self._restarts[name] = time.monotonic() + self._pause_before_restart(name, code)
            elif time.monotonic() > self._restarts[name]:
                del self._restarts[name]
                self._start_node(name)

    def _pause_before_restart(self, name: str, code: int) -> float:
        """Seconds until a node that has ended is started again; an error if it has never been connected."""
        if self._port_was_taken(name):
            return 0.0
        if CONNECTED in self._output(name):
            self._connected.add(name)
            log.warning("%s: its SuperNode has ended (%s) and is started again", name, _described(code))
        if name not in self._connected:  # SuperLink may refuse one that has been, for a minute
            raise DragflError(f"{name}: its SuperNode has not connected; its log:{tail(self._log(name))}")
        return RESTART_S

    def submit(self, app: Path, run_config: Mapping[str, Any]) -> str:
        """Start a run of an app; returns its id."""
        settings = self.private / "run.toml"
        settings.write_text(tomli_w.dumps(run_config))
        return str(self.flwr("run", str(app), LINK, "--run-config", str(settings), *JSON)["run-id"])

    def status(self, run: str) -> tuple[str, str]:
        """(pending, starting, running, finished:completed, finished:stopped or finished:failed; details)."""
        found = self.flwr("list", "--run-id", run, LINK, *JSON)["runs"][0]
        return found["status"], found["status-details"]

    def server_log(self, run: str) -> str:
        """What the ServerApp of a run has written; for a run that has ended."""
        return str(self.flwr("log", run, LINK, "--show")["text"])

    def stop(self, run: str) -> None:
        """End a run at once."""
        self.flwr("stop", run, LINK, *JSON)

    def _start(self, name: str, command: list[str]) -> None:
        path = shutil.which(command[0], path=self._environment["PATH"])
        if path is None:
            raise SpecError(f"engine.executor: {command[0]} is not on PATH; install it: pip install 'dragfl[flower]'")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._before[name] = self._log(name).stat().st_size if self._log(name).exists() else 0
        level = "WARNING" if name == "superlink" else "INFO"  # SuperLink logs every request
        environment = {"FLWR_LOG_LEVEL": level} | self._environment
        self.processes.start(name, [path, *command[1:]], environment, self._log(name))

    def _port_was_taken(self, name: str) -> bool:
        return "address already in use" in self._output(name).lower()

    def _output(self, name: str) -> str:
        """What a process has written since it was started."""
        with self._log(name).open("rb") as file:
            file.seek(self._before[name])
            return file.read().decode(errors="replace")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def environment(private: Path) -> dict[str, str]:
    """The environment of Flower's processes: this Python and its modules, no telemetry, one thread each."""
    local = [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), HOST]
    no_proxy = ",".join(filter(None, local))
    return os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": python_path(),
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(private),
        "FLWR_HOME": str(private),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
    }


def free_port() -> int:
    """A port that no process listens on."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def _accepts_connections(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def _described(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
