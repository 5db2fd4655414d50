"""Checks of a deployment's files and of this machine's installation."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dragfl.config.spec import Experiment, load
from dragfl.errors import DragflError
from dragfl.flower import TESTED
from dragfl.flower.app_files import PACKAGE, packed_files
from dragfl.flower.deploy import key_checks
from dragfl.flower.deploy.files import is_stateful
from dragfl.flower.deploy.findings import Finding
from dragfl.flower.deploy.layout import Deployment, is_loopback, node_folders

_GUARD = 'if ($request_uri !~ "^/v1/fleet/[a-z-]+$") { return 403; }'


def check_files(home: Path, d: Deployment) -> Iterator[Finding]:
    yield _flwr_version()
    yield _programs()
    experiment = None
    try:
        experiment = _load(home)
        yield Finding("spec", "ok", f"{experiment.algorithm.name}, {experiment.clients.total} clients")
    except (DragflError, OSError) as error:
        yield Finding("spec", "fail", f"app/{PACKAGE}/spec.toml: {error}")
    yield _app(home)
    yield _run_dir(home)
    yield from _nodes(home, experiment)
    yield _operator(home, d)
    if d.secure:
        yield from key_checks.check_keys(home, d)
        yield from _services(home)
        yield _proxy(home)
    else:
        yield _insecure(d)


def _flwr_version() -> Finding:
    installed = version("flwr")
    if ".".join(installed.split(".")[:2]) in TESTED:
        return Finding("flwr", "ok", f"{installed}")
    tested = " and ".join(TESTED)
    return Finding("flwr", "fail", f"{installed} was not tested with this dragfl; install version {tested}")


def _programs() -> Finding:
    if found := shutil.which("flower-superexec"):
        return Finding("flower-superexec", "ok", found)
    return Finding(
        "flower-superexec",
        "fail",
        "not on PATH, and SuperLink and SuperNode start it by name; add the folder of the environment to PATH, such as "
        "export PATH=/opt/dragfl/bin:$PATH",
    )


def _load(home: Path) -> Experiment:
    """The spec of the app, with the app's own modules."""
    with contextlib.chdir(home / "app"):
        return load(Path(PACKAGE) / "spec.toml")


def _app(home: Path) -> Finding:
    app = home / "app"
    if not (app / "pyproject.toml").is_file():
        return Finding("app", "fail", "app/pyproject.toml: not found; restore it, or write a new deployment")
    try:
        packed = packed_files(app)
    except DragflError as error:
        return Finding("app", "fail", str(error))
    except ImportError as error:  # Flower's packing is not part of its public API
        return Finding("app", "not checked", f"{error}; try: flwr build --app app")
    there = {str(path.relative_to(app)) for path in [*app.rglob("*.py"), app / PACKAGE / "spec.toml"]}
    if missing := sorted(there - packed):
        return Finding("app", "fail", f"{', '.join(missing)}: Flower does not send it to the nodes; rename or add it")
    return Finding("app", "ok", f"Flower packs it, {len(packed)} files")


def _run_dir(home: Path) -> Finding:
    try:
        app = tomllib.loads((home / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
        run_dir = app["config"]["run-dir"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        return Finding("run-dir", "fail", f"app/pyproject.toml: no run-dir in [tool.flwr.app.config] ({error}); add it")
    if not isinstance(run_dir, str) or not run_dir.startswith("/"):
        return Finding("run-dir", "fail", f"app/pyproject.toml: {run_dir!r}; give an absolute path on the server")
    return Finding("run-dir", "ok", run_dir)


def _nodes(home: Path, experiment: Experiment | None) -> Iterator[Finding]:
    """Client numbers, state folders and data of the nodes."""
    nodes = node_folders(home)
    if not nodes or experiment is None:
        reason = "the spec is invalid" if nodes else "there are none; dragfl deploy add-node"
        yield Finding("nodes", "not checked", reason)
        return
    total, owners, problems, lacking = experiment.clients.total, dict[int, str](), list[str](), list[str]()
    for node in nodes:
        try:
            settings = tomllib.loads((node / "node.toml").read_text())
        except (OSError, ValueError) as error:
            problems.append(f"nodes/{node.name}/node.toml: cannot be read ({error})")
            continue
        number = settings.get("partition-id")
        if type(number) is not int or not 0 <= number < total:
            problems.append(f"{node.name}: partition-id = {number!r}; give a number from 0 to {total - 1}")
        elif number in owners:
            problems.append(f"{node.name}: partition-id = {number} is that of {owners[number]}; give another")
        else:
            owners[number] = node.name
        if experiment.flower.data == "own" and not settings.get("dataset"):
            problems.append(f'{node.name}: no dataset in node.toml, and the spec has flower.data = "own"; add it')
        if not str(settings.get("state-dir", "")).startswith("/"):
            lacking.append(node.name)
    if problems:
        yield Finding("nodes", "fail", "; ".join(problems))
    elif len(nodes) < (waits := experiment.flower.min_nodes or total):
        text = f"{len(nodes)} nodes are here, and a run waits for {waits}; dragfl deploy add-node, or flower.min_nodes"
        yield Finding("nodes", "not checked", text)
    else:
        yield Finding("nodes", "ok", f"{len(nodes)} nodes for {total} clients")
    yield _state_dirs(experiment, lacking, len(nodes))


def _state_dirs(experiment: Experiment, lacking: list[str], nodes: int) -> Finding:
    name = experiment.algorithm.name
    if not is_stateful(experiment):
        return Finding("state-dir", "ok", f"not needed: clients of {name} keep no state")
    if lacking:
        return Finding(
            "state-dir",
            "fail",
            f"{', '.join(lacking)}: clients of {name} keep state, and node.toml has no state-dir; add a path, "
            f'such as state-dir = "/var/lib/dragfl/{lacking[0]}"',
        )
    return Finding("state-dir", "ok", f"set on all {nodes} nodes")


def _operator(home: Path, d: Deployment) -> Finding:
    """The connection that `flwr run app prod` uses."""
    try:
        link = tomllib.loads((home / "operator" / "config.toml").read_text())["superlink"]["prod"]
        host, authority = str(link["address"]).rpartition(":")[0].strip("[]"), link.get("root-certificates")
    except (OSError, KeyError, TypeError, ValueError) as error:
        return Finding("operator", "fail", f"operator/config.toml: no connection prod ({error}); restore it")
    if not is_loopback(host):
        return Finding(
            "operator",
            "fail",
            f"operator/config.toml: {link['address']}; the control API is reached on the loopback address only, from "
            f"elsewhere by: ssh -N -L {d.link_port}:127.0.0.1:{d.link_port} SERVER",
        )
    if d.secure and not (authority and Path(authority).is_file()):
        return Finding(
            "operator",
            "fail",
            f"operator/config.toml: root-certificates = {authority!r}: no such file; was the folder moved? "
            f"Write {str(home / 'authority' / 'ca.crt')!r}",
        )
    return Finding("operator", "ok", f"connects to {link['address']}")


def _services(home: Path) -> Iterator[Finding]:
    """The options of SuperLink in the unit and in the compose file, and the PATH of the units."""
    found: dict[str, list[str] | str] = {}
    for name, read in (("server/dragfl-superlink.service", _unit_command), ("compose.yaml", _compose_command)):
        try:
            found[name] = read(home / name)
        except FileNotFoundError:
            continue
        except Exception as error:
            found[name] = " ".join(str(error).split())
    for name, command in found.items():
        if isinstance(command, str):
            yield Finding("SuperLink settings", "fail", f"{name}: cannot be read ({command}); restore it")
        elif problem := _superlink_problem(command):
            yield Finding("SuperLink settings", "fail", f"{name}: {problem}")
        else:
            yield Finding("SuperLink settings", "ok", f"{name}: loopback address, TLS, node keys")
    if not found:
        yield Finding("SuperLink settings", "not checked", "neither server/dragfl-superlink.service nor compose.yaml")
    for unit in sorted([*home.glob("server/*.service"), *home.glob("nodes/*/*.service")]):
        lines = unit.read_text().splitlines()
        paths = [word for line in lines if line.startswith("Environment=PATH=") for word in line[17:].split(":")]
        program = next((line[10:].split()[0] for line in lines if line.startswith("ExecStart=")), "")
        if str(Path(program).parent) not in paths:
            advice = f"it starts flower-superexec by name; add the folder of {program or 'ExecStart'}"
            yield Finding("PATH of units", "fail", f"{unit.relative_to(home)}: Environment=PATH= lacks it; {advice}")
        elif Path(program).parent.is_dir() and not os.access(program, os.X_OK):
            yield Finding("PATH of units", "fail", f"{unit.relative_to(home)}: {program} does not exist; install it")


def _unit_command(path: Path) -> list[str]:
    text = path.read_text().replace("\\\n", " ")
    return shlex.split(next(line for line in text.splitlines() if line.startswith("ExecStart="))[10:])


def _compose_command(path: Path) -> list[str]:
    yaml: Any = import_module("yaml")  # flwr requires it
    return [str(word) for word in yaml.safe_load(path.read_text())["services"]["superlink"]["command"]]


def _superlink_problem(command: list[str]) -> str:
    options = dict(zip(command, [*command[1:], ""], strict=True)) | dict(
        word.split("=", 1) for word in command if word.startswith("--") and "=" in word
    )
    host = options.get("--host", "127.0.0.1")
    if not is_loopback(host):
        return (
            f"--host {host}: the control API has no login, so whoever reaches it can run code on every node; write "
            "--host 127.0.0.1 and let nodes come through the proxy"
        )
    if "--insecure" in options:
        return "--insecure: no TLS; remove it and give --ssl-ca-certfile, --ssl-certfile, --ssl-keyfile"
    if "--enable-supernode-auth" not in options:
        return "no --enable-supernode-auth: any node may join; add it"
    return ""


def _proxy(home: Path) -> Finding:
    path = home / "server" / "nginx.conf"
    if not path.is_file():
        return Finding("proxy settings", "not checked", "server/nginx.conf: not found")
    lines = [line.partition("#")[0] for line in path.read_text().splitlines()]
    if _GUARD in " ".join(" ".join(lines).split()):
        return Finding("proxy settings", "ok", "server/nginx.conf: lets the fleet API through and refuses all else")
    return Finding(
        "proxy settings",
        "fail",
        f"server/nginx.conf: the line that refuses all but the fleet API is gone; add {_GUARD}",
    )


def _insecure(d: Deployment) -> Finding:
    if others := [host for host in d.hosts if not is_loopback(host)]:
        return Finding("TLS", "fail", f"insecure, with the host {others[0]}; write a deployment without --insecure")
    return Finding("TLS", "ok", "off: this deployment is for this machine only")
