"""The text files of a deployment, from the templates in this folder."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import tomli_w

from dragfl.config.spec import Experiment
from dragfl.flower.certificates import AUTHORITY_DAYS, SERVER_DAYS, write_private
from dragfl.flower.deploy.layout import (
    COMPOSE_HOST,
    FIRST_NODE_PORT,
    LOOPBACK,
    STATE,
    Deployment,
    address,
    is_loopback,
    node_folders,
    superexec_command,
    superlink_command,
    supernode_command,
)

_PYTHON = ".".join(map(str, sys.version_info[:2]))


def example_spec(nodes: int) -> str:
    return _filled("spec.toml", NODES=str(nodes))


def is_stateful(experiment: Experiment) -> bool:
    """Whether clients keep state between rounds."""
    return bool(experiment.algorithm.correction.fields)


def write_operator_config(folder: Path, home: Path, d: Deployment) -> None:
    """`config.toml` of `flwr`: the connection `prod`, and `compose` for the containers. `home`: the final folder."""
    where = f"{LOOPBACK}:{d.link_port}"
    if d.secure:
        links = {
            "prod": {"address": where, "root-certificates": str(home / "authority" / "ca.crt")},
            "compose": {"address": where, "root-certificates": "/deployment/server/ca.crt"},
        }
    else:
        links = {"prod": {"address": where, "insecure": True}}  # type: ignore[dict-item]
    (folder / "operator").mkdir()
    (folder / "operator" / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": "prod", **links}}))


def write_server_files(folder: Path, d: Deployment) -> None:
    """Units, proxy, compose file and secret of a secure server; the certificates are there."""
    server, docker = folder / "server", folder / "docker"
    shutil.copyfile(folder / "authority" / "ca.crt", server / "ca.crt")
    write_private(server / "superexec.secret", secrets.token_bytes(32))
    superlink, superexec = superlink_command(d), superexec_command(d)
    for name, command in (("superlink", superlink), ("superexec", superexec)):
        text = _filled(f"{name}.service", NAME=d.name, **{name.upper(): _unit_line(command)})
        (server / f"dragfl-{name}.service").write_text(text)
    listen6 = f"\n    listen [::]:{d.port} ssl;" if any(":" in host for host in d.hosts) else ""
    ports = {"PORT": str(d.port), "LINK_PORT": str(d.link_port)}
    (server / "nginx.conf").write_text(_filled("nginx.conf", NAME=d.name, LISTEN6=listen6, **ports))
    compose = _filled(
        "compose.yaml",
        NAME=d.name,
        VERSION=version("dragfl"),
        PORT=str(d.port),
        SUPERLINK_LIST=json.dumps(superlink),
        SUPEREXEC_LIST=json.dumps(superexec),
    )
    (folder / "compose.yaml").write_text(compose)
    (folder / ".env").write_text(f"DRAGFL_UID={os.getuid()}\nDRAGFL_GID={os.getgid()}\n")
    (docker / "wheels").mkdir(parents=True)
    (docker / "wheels" / "README.md").write_text("Wheels that the image is built with, see ../Dockerfile.\n")
    (docker / "Dockerfile").write_text(_filled("Dockerfile", PYTHON=_PYTHON, REQUIREMENTS=_requirements()))
    (folder / "state" / "server").mkdir(parents=True)


def write_node_files(node: Path, d: Deployment, name: str, number: int, state: str, experiment: Experiment) -> None:
    """`node.toml` and, for a secure deployment, the unit of a node."""
    lines = [f"partition-id = {number}    # the client that this node is: 0 to {experiment.clients.total - 1}"]
    why = (
        f"needed by {experiment.algorithm.name}" if is_stateful(experiment) else "used by algorithms with client state"
    )
    lines.append(f"state-dir = {json.dumps(state, ensure_ascii=False)}    # {why}; it must survive restarts")
    if experiment.flower.data == "own":
        lines.append('# dataset = "npz:/absolute/path.npz"    # the data of this node; required by flower.data = "own"')
    (node / "node.toml").write_text("\n".join(lines) + "\n")
    if d.secure:
        command = supernode_command(d.address, name, FIRST_NODE_PORT + number)
        text = _filled("node.service", NAME=d.name, NODE=name, SUPERNODE=_unit_line(command))
        (node / f"dragfl-{name}.service").write_text(text)


def add_to_compose(folder: Path, d: Deployment, name: str) -> None:
    """Append the service of a node. In a container, a loopback name of the server is its service."""
    server = address(COMPOSE_HOST, d.port) if is_loopback(d.hosts[0]) else d.address
    command = json.dumps(supernode_command(server, name, FIRST_NODE_PORT))
    if not (folder / "compose.yaml").exists():
        return
    with (folder / "compose.yaml").open("a") as file:
        file.write(_filled("compose-node.yaml", NODE=name, SUPERNODE_LIST=command))


def write_readme(
    folder: Path, home: Path, d: Deployment, e: Experiment, copied: Sequence[str], installed: Sequence[str]
) -> None:
    nodes = [node.name for node in node_folders(folder)]
    state = STATE if d.secure else f"{home}/state"
    values = {
        "NAME": d.name,
        "SUMMARY": f"{e.algorithm.name}, {e.clients.total} clients, {e.rounds} rounds; {len(nodes)} nodes are written "
        f"and connect to {d.address}." + _only_here(d),
        "FOLDER": shlex.quote(str(home)),
        "PORT": str(d.port),
        "RUN_DIR": shlex.quote(f"{state}/server/runs/{d.name}"),
        "MODULES": _module_lines(copied, installed, e),
    }
    if not d.secure:
        start = "flower-supernode --insecure --superlink"
        lines = [
            f"    {start} {d.address} --port {FIRST_NODE_PORT + i} --node-config nodes/{node}/node.toml"
            for i, node in enumerate(nodes)
        ]
        text = _filled("README-insecure.md", START_NODES="\n".join(lines), **values)
    else:
        register = [f"    flwr supernode register nodes/{n}/{n}.pub prod --name {n}" for n in nodes]
        text = _filled(
            "README.md",
            LINK=f"{LOOPBACK}:{d.link_port}",
            LINK_PORT=str(d.link_port),
            REGISTER="\n".join(register),
            NODE=nodes[0],
            STATE=state,
            REQUIREMENTS=_requirements(),
            PYTHON=_PYTHON,
            SERVER_DAYS=str(SERVER_DAYS),
            AUTHORITY_DAYS=str(AUTHORITY_DAYS),
            **values,
        )
    (folder / "README.md").write_text(text)


def _only_here(d: Deployment) -> str:
    if not d.secure or not all(map(is_loopback, d.hosts)):
        return ""
    return (
        "\nThat is this machine: for nodes on other machines, write the deployment again with `--host` and the name "
        "of the server."
    )


def _module_lines(copied: Sequence[str], installed: Sequence[str], e: Experiment) -> str:
    lines = []
    if copied:
        lines.append(f"In the app, and sent to all nodes with it: your modules {', '.join(copied)} (only `.py` files).")
    if installed:
        lines.append(f"**Install your modules on the server and on every node: {', '.join(installed)}.**")
    if e.flower.data == "partition":
        lines.append(f"Every node and the server need the dataset `{e.dataset}`; each node trains on its part of it.")
    else:
        lines.append("Every node has data of its own: set `dataset` in its `node.toml`.")
    return "\n" + "\n".join(lines) + "\n"


def _requirements() -> str:
    return f"'dragfl[flower]=={version('dragfl')}' 'flwr=={version('flwr')}'"


def _unit_line(command: Sequence[str]) -> str:
    """A command over several lines, an option and its value on each; no word needs quotes."""
    return re.sub(r" (?=--)", " \\\n    ", " ".join(command))


def _filled(template: str, **values: str) -> str:
    """A template with `@KEY@` replaced."""
    text = (Path(__file__).parent / "templates" / template).read_text()
    return re.sub(r"@([A-Z0-9_]+)@", lambda found: values[found[1]], text)
