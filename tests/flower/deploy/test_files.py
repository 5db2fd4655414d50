"""The generated files as the programs that read them see them: systemd, nginx, compose, flwr and the shell."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dragfl.flower import deploy
from dragfl.flower.deploy.layout import read_settings
from tests.flower.deploy.installed import BIN, install

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def _unit_command(unit: Path) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text().replace("\\\n", " "), re.M)
    return shlex.split(line.removeprefix("/opt/dragfl/bin/"))


def _compose(folder: Path) -> dict[str, Any]:
    yaml: Any = import_module("yaml")
    services: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    return services


def test_units_and_compose_run_the_same_commands(deployment: Path) -> None:
    services = _compose(deployment)
    for name in ("superlink", "superexec"):
        assert services[name]["command"] == _unit_command(deployment / "server" / f"dragfl-{name}.service")
    for name in ("node0", "node1", "node2"):
        unit = _unit_command(deployment / "nodes" / name / f"dragfl-{name}.service")
        assert services[name]["command"][:-1] == unit[:-1]  # in containers each node has ports of its own


def test_everything_is_restarted_but_the_operators_command(deployment: Path) -> None:
    services = _compose(deployment)
    assert {name for name, each in services.items() if each["restart"] != "unless-stopped"} == {"flwr"}
    for unit in [*deployment.glob("server/*.service"), *deployment.glob("nodes/*/*.service")]:
        assert {"Restart=always", "StartLimitIntervalSec=0"} <= set(unit.read_text().splitlines())


def test_containers_publish_the_proxys_port_only(deployment: Path) -> None:
    services, settings = _compose(deployment), read_settings(deployment)
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert published == {"server": [f"{settings.port}:{settings.port}"]}
    for name in ("superlink", "superexec", "proxy"):
        assert services[name]["network_mode"] == "service:server"
    assert "network_mode" not in services["node0"]


def test_containers_of_one_machine_find_the_server_by_its_service(tmp_path: Path) -> None:
    folder = deploy.init(tmp_path / "d", nodes=1)
    command = _compose(folder)["node0"]["command"]
    assert command[command.index("--superlink") + 1] == "server:8443"
    unit = _unit_command(folder / "nodes" / "node0" / "dragfl-node0.service")
    assert unit[unit.index("--superlink") + 1] == "localhost:8443"


def test_an_ipv6_address_is_written_in_brackets(tmp_path: Path) -> None:
    folder = deploy.init(tmp_path / "d", nodes=1, hosts=["2001:db8::7"])
    unit = _unit_command(folder / "nodes" / "node0" / "dragfl-node0.service")
    assert unit[unit.index("--superlink") + 1] == "[2001:db8::7]:8443"
    assert "listen [::]:8443 ssl;" in (folder / "server" / "nginx.conf").read_text()


def test_the_readme_names_every_file_that_it_uses_and_every_step(deployment: Path) -> None:
    text = (deployment / "README.md").read_text()
    assert not re.findall(r"@[A-Z_]+@", text)
    for part in re.findall(r"(?<![\w/])(?:server|nodes|app|authority|docker)/[\w./-]*\w", text):
        if "NAME" not in part:
            assert (deployment / part).exists(), part
    assert "SuperLink's control API has no login" in text
    for i in range(3):
        assert f"flwr supernode register nodes/node{i}/node{i}.pub prod --name node{i}" in text
    for step in (
        "flwr run app prod",
        "flwr stop",
        "flwr log",
        "add-node",
        "unregister",
        "deploy renew",
        "docker compose",
    ):
        assert step in text


def test_a_folder_with_a_space_is_quoted_in_the_readme(tmp_path: Path) -> None:
    folder = deploy.init(tmp_path / "my federation", nodes=1)
    assert f"    cd '{folder}'\n" in (folder / "README.md").read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed: apt-get install systemd")
def test_systemd_accepts_the_units(deployment: Path, tmp_path: Path) -> None:
    units = []
    for unit in [*deployment.glob("server/*.service"), deployment / "nodes" / "node0" / "dragfl-node0.service"]:
        units.append(tmp_path / unit.name)
        units[-1].write_text(unit.read_text().replace("/opt/dragfl/bin", str(BIN)))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not NGINX, reason="nginx is not installed: apt-get install nginx")
def test_nginx_accepts_the_proxy(deployment: Path, tmp_path: Path) -> None:
    install(deployment, tmp_path / "system", None)  # type: ignore[arg-type]
    main = tmp_path / "nginx.conf"
    site = deployment / "server" / "nginx.conf"
    main.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{ include {site}; }}\n")
    done = subprocess.run([str(NGINX), "-t", "-q", "-c", main], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    not shutil.which("docker-compose"), reason="docker-compose is not installed: apt-get install docker-compose"
)
def test_compose_accepts_the_file(deployment: Path) -> None:
    own = {"PATH": os.defpath}  # its Python must not import from the environment of the tests
    done = subprocess.run(["docker-compose", "config", "-q"], cwd=deployment, capture_output=True, text=True, env=own)
    assert done.returncode == 0, done.stderr
