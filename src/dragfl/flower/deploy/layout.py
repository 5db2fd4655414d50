"""The folder of a deployment: its settings, where its files are, and the commands that its services run.

    app/             the Flower app
    operator/        FLWR_HOME of the person who starts runs
    authority/       ca.crt, ca.key
    server/          all that the server needs; installed as /etc/dragfl/server
    nodes/NAME/      all that one node needs; installed as /etc/dragfl/NAME
    deployment.toml  the settings

Units and containers use the same paths: files in /etc/dragfl, state in /var/lib/dragfl, programs in /opt/dragfl/bin.
"""

from __future__ import annotations

import ipaddress
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

import tomli_w

from dragfl.atomic import write_text
from dragfl.config.convert import convert
from dragfl.errors import SpecError

INSTALLED, STATE = "/etc/dragfl", "/var/lib/dragfl"
SETTINGS = "deployment.toml"
LOOPBACK = "127.0.0.1"
COMPOSE_HOST = "server"  # name of the server among the containers of one machine
FIRST_NODE_PORT = 9100  # of a SuperNode's own API, on its loopback address


@dataclass(frozen=True)
class Deployment:
    """The settings of a deployment."""

    name: str
    hosts: tuple[str, ...]  # names and addresses of the server; nodes use the first one
    port: int  # that nodes connect to
    secure: bool  # TLS and node keys

    def __post_init__(self) -> None:
        if not self.hosts:
            raise SpecError("hosts: empty; give at least one name of the server")
        if not 1 <= self.port <= 65534:  # the next port is SuperLink's own
            raise SpecError(f"port: {self.port}; give a number from 1 to 65534")

    @property
    def link_port(self) -> int:
        """The port of SuperLink itself: behind the proxy, or the one port there is."""
        return self.port + 1 if self.secure else self.port

    @property
    def address(self) -> str:
        """What nodes connect to."""
        return address(self.hosts[0], self.port)

    @property
    def certificate_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.hosts, "localhost", LOOPBACK, "::1", COMPOSE_HOST]))


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def write_settings(folder: Path, deployment: Deployment) -> None:
    tables = asdict(deployment) | {"hosts": list(deployment.hosts)}
    write_text(
        folder / SETTINGS, "# Written by `dragfl deploy init`; read by `dragfl deploy`.\n" + tomli_w.dumps(tables)
    )


def read_settings(folder: Path) -> Deployment:
    path = folder / SETTINGS
    try:
        return convert("", tomllib.loads(path.read_text()), Deployment)
    except (FileNotFoundError, NotADirectoryError):
        raise SpecError(
            f"{folder}: no deployment, it has no {SETTINGS}; write one with: dragfl deploy init DIR"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, SpecError) as error:
        raise SpecError(f"{path}: cannot be read ({error}); restore it, or write a new deployment") from None


def node_folders(folder: Path) -> list[Path]:
    """The folders of the nodes, by name."""
    return sorted(path.parent for path in folder.glob("nodes/*/node.toml"))


def superlink_command(d: Deployment) -> list[str]:
    home = f"{INSTALLED}/server"
    return [
        *("flower-superlink", "--host", LOOPBACK, "--port", str(d.link_port)),
        *("--ssl-ca-certfile", f"{home}/ca.crt", "--ssl-certfile", f"{home}/server.pem"),
        *("--ssl-keyfile", f"{home}/server.key", "--enable-supernode-auth"),
        *("--isolation", "process", "--superexec-auth-secret-file", f"{home}/superexec.secret"),
        *("--database", f"{STATE}/server/superlink.db"),
    ]


def superexec_command(d: Deployment) -> list[str]:
    home = f"{INSTALLED}/server"
    return [
        *("flower-superexec", "--runtime-api-address", f"{LOOPBACK}:{d.link_port}"),
        *("--root-certificates", f"{home}/ca.crt", "--superexec-auth-secret-file", f"{home}/superexec.secret"),
    ]


def supernode_command(server: str, node: str, port: int) -> list[str]:
    home = f"{INSTALLED}/{node}"
    return [
        *("flower-supernode", "--superlink", server, "--root-certificates", f"{home}/ca.crt"),
        *("--auth-supernode-private-key", f"{home}/{node}", "--node-config", f"{home}/node.toml"),
        *("--host", LOOPBACK, "--port", str(port)),
    ]
