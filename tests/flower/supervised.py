"""A fleet of real processes whose SuperLink is supervised too, and whose nodes a test can hold in mid-round."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

import dragfl
from dragfl import atomic
from dragfl.errors import DragflError
from dragfl.flower.app_files import write_app
from dragfl.flower.fleet import CONNECTED, HOST, Fleet, _accepts_connections
from dragfl.runs.lock import is_locked
from tests.flower.gated_digits import ALLOWED, GATE
from tests.flower.processes import below, pid_of, wait_until_gone
from tests.runs.processes import count_lines

HANGS_S = 1800.0  # a limit for each wait; it only guards against tests that hang
POLL_S = 0.5
ALL = 1000  # visits


class SupervisedFleet(Fleet):
    """A fleet with TLS and node authentication. `check` starts every process again that has ended, as systemd does.

    With `process_isolation` the ServerApp is no child of the SuperLink: a `flower-superexec` of its own runs it.
    """

    def __init__(self, folder: Path, nodes: int = 4, *, process_isolation: bool = False) -> None:
        super().__init__(folder, nodes)
        self.names = [f"node-{m}" for m in range(nodes)]
        self._isolated = process_isolation
        self._commands: dict[str, list[str]] = {}
        for name in self.names:
            self._gate(name).mkdir(parents=True)
            self.allow(ALL, name)

    def __enter__(self) -> SupervisedFleet:
        super().__enter__()
        if self._isolated:
            command = ["flower-superexec", "--root-certificates", str(self.private / "ca.crt")]
            self._start("superexec", [*command, "--runtime-api-address", f"{HOST}:{self.port}", *self._secret()])
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes, and see that they have ended."""
        processes = below(os.getpid())
        super().__exit__(None, None, None)
        wait_until_gone(processes)

    def _start(self, name: str, command: list[str]) -> None:
        if name == "superlink" and self._isolated and "--isolation" not in command:
            command = [*command, "--isolation", "process", *self._secret()]
        self._commands[name] = command
        shared = self._environment
        self._environment = shared | ({GATE: str(self._gate(name))} if name in self.names else {})
        try:
            super()._start(name, command)
        finally:
            self._environment = shared

    def _secret(self) -> list[str]:
        path = self.private / "superexec.secret"
        if not path.exists():
            path.write_bytes(secrets.token_bytes(32))
        return ["--superexec-auth-secret-file", str(path)]

    def check(self) -> None:
        for name in {"superlink", "superexec"} & self.processes.poll().keys():
            self._start(name, self._commands[name])  # on the same port
        super().check()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Supervise until the condition holds."""
        limit = time.monotonic() + HANGS_S
        while not condition():
            assert time.monotonic() < limit, f"not within {HANGS_S} s; see {self.folder}"
            self.check()
            time.sleep(POLL_S)

    def kill(self, name: str) -> None:
        """`kill -9` of a process."""
        os.kill(self.processes.pids[name], signal.SIGKILL)
        while name not in self.processes.poll():
            time.sleep(POLL_S)

    def kill_client_app(self, name: str) -> None:
        """`kill -9` of the ClientApp that a node runs now, as the kernel does when memory is short."""
        os.kill(pid_of("flwr-clientapp", self.processes.pids[name]), signal.SIGKILL)

    def allow(self, visits: int, *names: str) -> None:
        """Let nodes train so many times since the start of the fleet; they wait at the next one."""
        for name in names or self.names:
            atomic.write_text(self._gate(name) / ALLOWED, str(visits))

    def wait_for_visit(self, visit: int, *names: str) -> None:
        """Until the ClientApps of nodes are at their gates, in mid-round."""
        for name in names or self.names:
            self.wait((self._gate(name) / f"visit-{visit}").exists)

    def visits(self) -> list[int]:
        """How often each node has trained or waited to train."""
        return [len(list(self._gate(name).glob("visit-*"))) for name in self.names]

    def wait_for_round(self, run: Path, round: int) -> None:
        self.wait(lambda: count_lines(run) >= round)

    def connections(self, name: str) -> int:
        """How often a node has connected."""
        return self._log(name).read_text().count(CONNECTED)

    def start_run(self, experiment: dragfl.Experiment, run: Path) -> str:
        """`flwr run`; returns the id of Flower."""
        app = run.parent / "app"
        if not app.exists():
            write_app(app, experiment.to_toml(), experiment.name)
        return self.submit(app, {"run-dir": str(run)})

    def outcome(self, id: str, run: Path) -> str:
        """The status of a run when it has ended and its run directory is free."""
        found: list[str] = []

        def ended() -> bool:
            if not _accepts_connections(self.port):  # the SuperLink is being started again
                return False
            try:
                found[:] = [self.status(id)[0]]
            except DragflError:
                return False
            return found[0].startswith("finished") and not is_locked(run)

        self.wait(ended)
        return found[0]

    def _gate(self, name: str) -> Path:
        return self.folder / "gates" / name


def missing(run: Path) -> set[tuple[int, int, str]]:
    """(round, client, reason) of every result that is missing."""
    return {
        (row["round"], client, reason)
        for row in dragfl.load_run(run).clients
        for client, reason in zip(row["client"], row.get("reason", []), strict=False)
        if reason
    }
