"""Deployments that run: the units' commands, the proxy of nginx, and SuperLinks that can be reached from outside."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

import dragfl
from dragfl.flower import deploy
from dragfl.flower.deploy import probe
from dragfl.flower.processes import GuardedProcesses
from tests.flower.deploy.installed import install, two_free_ports, wait_until

SPEC = """
name = "small"
rounds = 2
[data]
partition = { kind = "sorted_shards" }
[clients]
total = 2
local_steps = 2
[algorithm]
name = "scaffold"
[model]
name = "logistic"
[evaluation]
every = 1
"""
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that flwr imports
NOT_FLEET = [
    "/v1/control/list-runs",
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/..%2fcontrol/list-runs",
    "/v1/fleet/get-run/../../control/list-runs",
    "/v1/control/list-runs/../../fleet/get-run",
    "//v1/control/list-runs",
    "/v1/fleet//../control/list-runs",
    "/v1/fleet/get-run?/../../control/list-runs",
    "/v1/runtime/acquire-task",
    "/openapi.json",
    "/health",
    "/",
]


@pytest.fixture
def processes() -> Iterator[GuardedProcesses]:
    with GuardedProcesses() as processes:
        yield processes


def _found(folder: Path) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for finding in deploy.check(folder):
        found.setdefault(finding.name, []).append((finding.status, finding.text))
    return found


@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("nginx") and not Path("/usr/sbin/nginx").exists(),
    reason="nginx is not installed: apt-get install nginx",
)
def test_a_federation_runs_through_the_proxy_which_refuses_all_but_the_fleet_api(
    tmp_path: Path, processes: GuardedProcesses
) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    hosts = ["localhost", *probe.own_addresses()]
    port = two_free_ports()
    folder = deploy.init(tmp_path / "deployment", spec, hosts=hosts, port=port)
    installed = install(folder, tmp_path / "system", processes)
    installed.start_superlink()
    installed.start_unit(folder / "server" / "dragfl-superexec.service")
    installed.start_proxy()

    for path in NOT_FLEET:
        for method in ("GET", "POST"):
            connection = http.client.HTTPSConnection("localhost", port, context=_trusting(folder))
            connection.request(method, path, headers={"Content-Type": "application/protobuf"})
            assert connection.getresponse().status == 403, f"{method} {path}"
            connection.close()
    found = deploy.check(folder)
    assert {f.status for f in found} == {"ok"}, [f for f in found if f.status != "ok"]

    for name in ("node0", "node1"):
        installed.flwr("supernode", "register", f"nodes/{name}/{name}.pub", "prod", "--name", name)
        installed.start_unit(folder / "nodes" / name / f"dragfl-{name}.service")
    answer = json.loads(installed.flwr("run", "app", "prod", "--format", "json"))

    def finished() -> bool:
        (run,) = json.loads(installed.flwr("list", "prod", "--run-id", answer["run-id"], "--format", "json"))["runs"]
        assert "failed" not in run["status"], installed.flwr("log", answer["run-id"], "prod", "--show")
        return str(run["status"]) == "finished:completed"

    wait_until(finished, installed.tail("dragfl-superexec"), pause_s=5)
    run = dragfl.load_run(tmp_path / "system" / "var" / "server" / "runs" / "small")
    assert run.complete and [row["used"] for row in run.metrics] == [2, 2]
    assert {node["name"] for node in run.nodes.values()} == {"node0", "node1"}
    for number in (0, 1):  # SCAFFOLD's control variates
        assert list(tmp_path.glob(f"system/var/node{number}/*/client-{number}/round-2.safetensors"))


@pytest.mark.slow
def test_check_fails_where_the_control_api_answers_from_outside(tmp_path: Path, processes: GuardedProcesses) -> None:
    """SuperLink on all addresses; first on its own port, then also on the port that is meant for the proxy."""
    hosts = probe.own_addresses()[:1]
    if not hosts:
        pytest.skip("this machine has a loopback address only; it needs a network interface")
    folder = deploy.init(tmp_path / "deployment", nodes=1, hosts=hosts, port=two_free_ports())
    installed = install(folder, tmp_path / "system", processes)
    installed.start_superlink()
    found = _found(folder)
    assert found["SuperLink on this machine"] == [("ok", f"listens on 127.0.0.1:{installed.link_port} only")]
    assert found["control API"][0][0] == "not checked"

    installed.processes.close()
    with GuardedProcesses() as again:
        exposed = type(installed)(folder, installed.root, again)
        exposed.start_superlink(("--host 127.0.0.1", "--host 0.0.0.0"))
        found = _found(folder)
        assert found["SuperLink settings"][0][0] == "fail"
        status, text = found["SuperLink on this machine"][0]
        assert status == "fail" and "the control API answers on" in text and "can run code" in text
    with GuardedProcesses() as again:
        exposed = type(installed)(folder, installed.root, again)
        settings = (folder / "deployment.toml").read_text()
        shifted = settings.replace(f"port = {exposed.link_port - 1}", f"port = {exposed.link_port}")
        (folder / "deployment.toml").write_text(settings)
        exposed.start_superlink()
        (folder / "deployment.toml").write_text(shifted)
        status, text = _found(folder)["control API"][0]
        assert status == "fail" and "answers; whoever reaches it can run code" in text


def _trusting(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=folder / "authority" / "ca.crt")
