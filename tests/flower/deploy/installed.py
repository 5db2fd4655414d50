"""A deployment installed as its README says, but below a temporary folder, and its services as processes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dragfl.flower.deploy import probe
from dragfl.flower.deploy.layout import node_folders, read_settings
from dragfl.flower.processes import GuardedProcesses, python_path, tail

BIN = Path(sys.executable).parent
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
DEADLINE_S = 1200  # guards against tests that hang


def two_free_ports() -> int:
    """A free port whose successor is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("", port + 1))
            except OSError:
                continue
            return int(port)


def wait_until(holds: Callable[[], bool], what: str, pause_s: float = 0.3) -> None:
    until = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(pause_s)


@dataclass(frozen=True)
class Installed:
    """A deployment, the root of the system it is installed in, and its processes."""

    folder: Path
    root: Path
    processes: GuardedProcesses

    @property
    def link_port(self) -> int:
        return read_settings(self.folder).link_port

    def start_unit(self, unit: Path) -> None:
        """What systemd does: the environment, the working folder and ExecStart of a unit."""
        text = unit.read_text().replace("\\\n", " ")
        pairs = [pair for line in re.findall(r"^Environment=(.*)$", text, re.M) for pair in shlex.split(line)]
        environment = dict(pair.split("=", 1) for pair in pairs) | {"PYTHONPATH": python_path()}
        environment["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"] = "0.1"
        Path(environment["HOME"]).mkdir(parents=True, exist_ok=True)
        (command,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
        self.processes.start(unit.stem, shlex.split(command), environment, self.log(unit.stem))

    def start_superlink(self, *changes: tuple[str, str]) -> None:
        """Start SuperLink, with words of its unit replaced, and wait until it answers."""
        unit = self.folder / "server" / "dragfl-superlink.service"
        for old, new in changes:
            assert old in unit.read_text()
            unit.write_text(unit.read_text().replace(old, new))
        self.start_unit(unit)
        wait_until(
            lambda: self._answers("dragfl-superlink", self.link_port), f"SuperLink:{self.tail('dragfl-superlink')}"
        )

    def start_proxy(self) -> None:
        """Start Debian's nginx with the file of the deployment as /etc/nginx/conf.d/dragfl.conf."""
        temporary = "".join(
            f"{kind}_temp_path {self.root}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        site = self.folder / "server" / "nginx.conf"
        main = f"daemon off; pid {self.root}/nginx.pid; error_log {self.root}/nginx.log;\nevents {{}}\n"
        conf = self.root / "nginx.conf"
        conf.write_text(f"{main}http {{\n{temporary}access_log off;\ninclude {site};\n}}\n")
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        subprocess.run([nginx, "-t", "-q", "-c", conf], check=True)
        self.processes.start("nginx", [nginx, "-c", str(conf)], {}, self.log("nginx-output"))
        wait_until(
            lambda: self._answers("nginx", read_settings(self.folder).port), f"nginx:{self.tail('nginx-output')}"
        )

    def _answers(self, name: str, port: int) -> bool:
        assert name not in self.processes.poll(), f"{name} ended:{self.tail(name)}"
        return probe.ask("127.0.0.1", port, probe.CONTROL).status > 0

    def flwr(self, *words: str | Path) -> str:
        """A command of the operator, typed in the folder of the deployment."""
        environment = os.environ | QUIET | {"FLWR_HOME": str(self.folder / "operator")}
        command = [str(BIN / "flwr"), *map(str, words)]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def tail(self, name: str) -> str:
        return tail(self.log(name))


def install(folder: Path, root: Path, processes: GuardedProcesses) -> Installed:
    """Copy what README.md copies, with the paths of the system below `root`."""
    moved = {"/etc/dragfl": f"{root}/etc", "/var/lib/dragfl": f"{root}/var", "/opt/dragfl/bin": str(BIN)}
    moved["/var/log/nginx"] = str(root)
    for path in [*folder.rglob("*.service"), *folder.rglob("*.toml"), folder / "server" / "nginx.conf"]:
        text = path.read_text()
        for old, new in moved.items():
            text = text.replace(old, new)
        path.write_text(text)
    for source in [folder / "server", *node_folders(folder)]:
        shutil.copytree(source, root / "etc" / source.name)
    return Installed(folder, root, processes)
