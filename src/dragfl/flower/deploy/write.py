"""Write a deployment, add a node to it, renew its certificate."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dragfl.config.spec import Experiment, load, read
from dragfl.data import FILE_KINDS
from dragfl.errors import DragflWarning, SpecError
from dragfl.flower.app_files import PACKAGE, app_name, write_app
from dragfl.flower.certificates import make_authority, make_node_key, make_server_certificate
from dragfl.flower.deploy import files
from dragfl.flower.deploy.layout import (
    LOOPBACK,
    STATE,
    Deployment,
    is_loopback,
    node_folders,
    read_settings,
    write_settings,
)
from dragfl.flower.deploy.own_modules import copy_modules, importable, local_modules, named_modules

EXAMPLE_NODES = 4
_NODE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")
_TAKEN = ("server", "superlink", "superexec", "proxy", "flwr", "data")  # names of services and folders


def init(
    folder: str | Path,
    spec: str | Path | None = None,
    *,
    nodes: int | None = None,
    hosts: Sequence[str] = (),
    port: int = 8443,
    insecure: bool = False,
) -> Path:
    """Write a deployment of a spec into a new folder, and return the folder.

    Without a spec, an example is written. `nodes` defaults to `clients.total`; `hosts` are the names and addresses of
    the server, of which nodes use the first one. A folder that is not empty is refused; after an error nothing is left.
    """
    target = Path(folder).resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SpecError(f"{folder}: exists and is not empty; give a new folder")
    _check_address(hosts, port, insecure)
    if nodes is not None and nodes < 1:
        raise SpecError(f"nodes: {nodes}; give at least 1")
    text = files.example_spec(nodes or EXAMPLE_NODES) if spec is None else _read_text(Path(spec))
    experiment, own = _check_spec(text, spec)
    total = experiment.clients.total
    count = total if nodes is None else nodes
    if count > total:
        raise SpecError(f"nodes: {count}, but the spec has clients.total = {total}; lower nodes or raise clients.total")
    if count < (waits := experiment.flower.min_nodes or total):
        advice = "add the others with `dragfl deploy add-node`, or set flower.min_nodes"
        warnings.warn(f"{count} nodes are written, and the run waits for {waits}; {advice}", DragflWarning, 2)
    deployment = Deployment(
        app_name(experiment.name), tuple(hosts) or (LOOPBACK if insecure else "localhost",), port, not insecure
    )
    state = f"{target}/state" if insecure else STATE
    modules = local_modules(own, Path(spec).parent) if spec is not None else {}
    with _new_folder(target) as new:
        write_settings(new, deployment)
        write_app(new / "app", text, experiment.name, run_dir=f"{state}/server/runs/{deployment.name}")
        copy_modules(modules, new / "app")
        files.write_operator_config(new, target, deployment)
        if deployment.secure:
            (new / "authority").mkdir()
            (new / "server").mkdir()
            make_authority(new / "authority")
            make_server_certificate(new / "server", deployment.certificate_names, authority=new / "authority")
            files.write_server_files(new, deployment)
        for number in range(count):
            _write_node(new, deployment, f"node{number}", number, state, experiment)
        installed = sorted(own - set(modules) - {"dragfl"})
        files.write_readme(new, target, deployment, experiment, sorted(modules), installed)
    return target


def add_node(folder: str | Path, name: str) -> Path:
    """Write the folder of one more node and its service in compose.yaml; returns the folder."""
    home = Path(folder).resolve()
    deployment = read_settings(home)
    if not _NODE_NAME.match(name) or name in _TAKEN:
        raise SpecError(
            f"node name {name!r}: use at most 63 lower-case letters, digits and '-', and none of {', '.join(_TAKEN)}"
        )
    if (home / "nodes" / name).exists():
        raise SpecError(f"{home / 'nodes' / name}: exists and is not overwritten; give another name")
    with importable(home / "app"):
        experiment = load(home / "app" / PACKAGE / "spec.toml")
    used = {tomllib.loads((node / "node.toml").read_text()).get("partition-id") for node in node_folders(home)}
    free = [number for number in range(experiment.clients.total) if number not in used]
    if not free:
        raise SpecError(
            f"{name}: all {experiment.clients.total} client numbers of the spec have a node; remove the folder of a "
            "node that left, or raise clients.total in app/dragfl_app/spec.toml and start a new run directory"
        )
    _write_node(home, deployment, name, free[0], f"{home}/state" if not deployment.secure else STATE, experiment)
    return home / "nodes" / name


def renew(folder: str | Path, *, hosts: Sequence[str] = ()) -> Path:
    """Replace the server's certificate and its key; `hosts` are further names of the server. Returns server.pem."""
    home = Path(folder).resolve()
    deployment = read_settings(home)
    if not deployment.secure:
        raise SpecError(f"{folder}: an insecure deployment has no certificate; nothing to renew")
    if not (home / "authority" / "ca.key").is_file():
        raise SpecError(f"{home}/authority/ca.key: not found; put it there for this command")
    deployment = replace(deployment, hosts=tuple(dict.fromkeys([*deployment.hosts, *hosts])))
    with tempfile.TemporaryDirectory(dir=home / "server") as temporary:
        pair = make_server_certificate(Path(temporary), deployment.certificate_names, authority=home / "authority")
        for path in pair:
            path.replace(home / "server" / path.name)
    write_settings(home, deployment)
    return home / "server" / "server.pem"


def _check_address(hosts: Sequence[str], port: int, insecure: bool) -> None:
    if not 1 <= port <= 65534:  # the next port is SuperLink's own
        raise SpecError(f"port: {port}; give a number from 1 to 65534")
    if insecure and (others := [host for host in hosts if not is_loopback(host)]):
        raise SpecError(
            f"host {others[0]!r}: an insecure deployment is for this machine only, since anyone who reaches it can run "
            "code on every node; leave out --insecure, or --host"
        )
    if unusable := [host for host in hosts if host in ("0.0.0.0", "::")]:
        raise SpecError(f"host {unusable[0]!r}: no address that nodes can connect to; give the name of the server")


def _read_text(spec: Path) -> str:
    read(spec)  # reports a missing or damaged file
    return spec.read_text()


def _check_spec(text: str, spec: str | Path | None) -> tuple[Experiment, set[str]]:
    """The experiment, and the names of the modules of the user's own that it needs."""
    if spec is None:
        return load(tomllib.loads(text)), set()
    with importable(Path(spec).parent.resolve()):
        experiment = load(spec)
    kind, _, path = str(experiment.dataset).partition(":")
    if kind in FILE_KINDS and not Path(path).is_absolute():
        raise SpecError(
            f"data.dataset: '{experiment.dataset}' is a relative path, and the services run in other folders; give an "
            "absolute path that is valid on the server and on every node"
        )
    return experiment, named_modules(read(spec))


def _write_node(
    folder: Path, deployment: Deployment, name: str, number: int, state: str, experiment: Experiment
) -> None:
    with _new_folder(folder / "nodes" / name) as node:
        files.write_node_files(node, deployment, name, number, f"{state}/{name}", experiment)
        if deployment.secure:
            make_node_key(node, name)
            shutil.copyfile(folder / "authority" / "ca.crt", node / "ca.crt")
    if deployment.secure:
        files.add_to_compose(folder, deployment, name)
    (folder / "state" / name).mkdir(parents=True, exist_ok=True)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` at the end, or is removed after an error. Mode 0700."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        os.rename(temporary, target)  # noqa: PTH104 (an empty folder is replaced)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
