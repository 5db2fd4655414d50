"""A deployment as written passes; each change that breaks it fails the check that is for it, and no other."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dragfl.errors import SpecError
from dragfl.flower import deploy
from dragfl.flower.deploy import file_checks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that flwr imports


def _failures(folder: Path) -> dict[str, str]:
    return {finding.name: finding.text for finding in deploy.check(folder) if finding.status == "fail"}


def _replace(path: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / path).read_text()
        assert old in text
        (folder / path).write_text(text.replace(old, new))

    return change


def _remove(path: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).unlink()


def test_a_deployment_as_written_passes_and_says_what_it_could_not_check(deployment: Path) -> None:
    found = deploy.check(deployment)
    assert not [finding for finding in found if finding.status == "fail"]
    unchecked = {finding.name for finding in found if finding.status == "not checked"}
    assert unchecked == {"control API", "fleet API", "served certificate", "SuperLink on this machine"}


CHANGES = {
    "no state-dir": (
        _replace("nodes/node1/node.toml", "state-dir", "# state-dir"),
        "state-dir",
        'node1: clients of scaffold keep state, and node.toml has no state-dir; add a path, such as state-dir = "/var',
    ),
    "relative state-dir": (
        _replace("nodes/node1/node.toml", '"/var', '"var'),
        "state-dir",
        "node1: clients of scaffold",
    ),
    "two nodes with one number": (
        _replace("nodes/node1/node.toml", "partition-id = 1", "partition-id = 0"),
        "nodes",
        "node1: partition-id = 0 is that of node0; give another",
    ),
    "number out of range": (
        _replace("nodes/node1/node.toml", "partition-id = 1", "partition-id = 3"),
        "nodes",
        "node1: partition-id = 3; give a number from 0 to 2",
    ),
    "node.toml is no TOML": (_replace("nodes/node1/node.toml", "=", "=="), "nodes", "node1/node.toml: cannot be read"),
    "spec": (_replace("app/dragfl_app/spec.toml", "scaffold", "scafold"), "spec", "did you mean 'scaffold'"),
    "no spec": (_remove("app/dragfl_app/spec.toml"), "spec", "no such file"),
    "app": (_replace("app/pyproject.toml", 'publisher = "dragfl"', ""), "app", 'Property "publisher" missing'),
    "module left out": (
        lambda folder: (folder / "app" / "test_x.py").touch(),
        "app",
        "test_x.py: Flower does not send it to the nodes",
    ),
    "relative run-dir": (_replace("app/pyproject.toml", '"/var/lib', '"lib'), "run-dir", "give an absolute path"),
    "no run-dir": (_replace("app/pyproject.toml", "run-dir", "rundir"), "run-dir", "no run-dir in"),
    "operator elsewhere": (
        _replace("operator/config.toml", "127.0.0.1", "fl.invalid"),
        "operator",
        "the control API is reached on the loopback address only, from elsewhere by: ssh -N -L",
    ),
    "no operator": (_remove("operator/config.toml"), "operator", "no connection prod"),
    "unit on all addresses": (
        _replace("server/dragfl-superlink.service", "--host 127.0.0.1", "--host 0.0.0.0"),
        "SuperLink settings",
        "server/dragfl-superlink.service: --host 0.0.0.0: the control API has no login",
    ),
    "unit with --host=": (
        _replace("server/dragfl-superlink.service", "--host 127.0.0.1", "--host=0.0.0.0"),
        "SuperLink settings",
        "--host 0.0.0.0",
    ),
    "unit without TLS": (
        _replace("server/dragfl-superlink.service", "--enable-supernode-auth", "--insecure"),
        "SuperLink settings",
        "--insecure: no TLS",
    ),
    "unit without node keys": (
        _replace("server/dragfl-superlink.service", "    --enable-supernode-auth \\\n", ""),
        "SuperLink settings",
        "no --enable-supernode-auth: any node may join",
    ),
    "containers on all addresses": (
        _replace("compose.yaml", '"--host", "127.0.0.1", "--port", "', '"--host", "0.0.0.0", "--port", "'),
        "SuperLink settings",
        "compose.yaml: --host 0.0.0.0",
    ),
    "unreadable compose": (
        _replace("compose.yaml", "services:", "s:"),
        "SuperLink settings",
        "compose.yaml: cannot be",
    ),
    "PATH of a unit": (
        _replace("nodes/node2/dragfl-node2.service", "PATH=/opt/dragfl/bin:", "PATH="),
        "PATH of units",
        "nodes/node2/dragfl-node2.service: Environment=PATH= lacks it; it starts flower-superexec by name",
    ),
    "proxy without its condition": (
        _replace("server/nginx.conf", "if ($request_uri", "# if ($request_uri"),
        "proxy settings",
        "the line that refuses all but the fleet API is gone",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_fails_its_check(deployment: Path, change: str) -> None:
    apply, name, text = CHANGES[change]
    apply(deployment)
    found = _failures(deployment)
    assert set(found) - {"app"} == {name} - {"app"} and text in found[name]


def test_a_moved_folder_is_noticed(deployment: Path) -> None:
    shutil.move(deployment, deployment.with_name("moved"))
    found = _failures(deployment.with_name("moved"))
    assert set(found) == {"operator"} and "was the folder moved?" in found["operator"]


def test_flower_superexec_must_be_on_path(deployment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = _failures(deployment)
    assert (
        set(found) == {"flower-superexec"} and "SuperLink and SuperNode start it by name" in found["flower-superexec"]
    )


def test_an_untested_flwr_fails(deployment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_checks, "version", lambda name: "1.99.0")
    assert _failures(deployment) == {"flwr": "1.99.0 was not tested with this dragfl; install version 1.41"}


def test_a_stateless_algorithm_needs_no_state_dir(deployment: Path) -> None:
    _replace("app/dragfl_app/spec.toml", "scaffold", "drag")(deployment)
    _replace("nodes/node1/node.toml", "state-dir", "# state-dir")(deployment)
    assert not _failures(deployment)


def test_an_insecure_deployment_passes_on_loopback_only(tmp_path: Path) -> None:
    folder = deploy.init(tmp_path / "d", nodes=1, insecure=True)
    assert not _failures(folder)
    _replace("deployment.toml", "127.0.0.1", "fl.example.org")(folder)
    assert set(_failures(folder)) == {"TLS"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("port = ", 'port = "x" # ', "port: expected `int`, got `str` (value 'x')"),
        ("port = ", "port = 70000 # ", "port: 70000; give a number from 1 to 65534"),
        ("secure = true", 'secure = "no"', "secure: expected `bool`, got `str` (value 'no')"),
        ("secure = true", "", "secure: missing"),
    ],
)
def test_damaged_settings_are_an_error(deployment: Path, old: str, new: str, problem: str) -> None:
    _replace("deployment.toml", old, new)(deployment)
    with pytest.raises(SpecError, match=re.escape(problem)):
        deploy.check(deployment)


def test_fewer_nodes_than_a_run_waits_for(deployment: Path) -> None:
    shutil.rmtree(deployment / "nodes" / "node1")
    found = {finding.name: finding for finding in deploy.check(deployment)}["nodes"]
    assert (found.status, found.text.split(";")[0]) == ("not checked", "2 nodes are here, and a run waits for 3")
