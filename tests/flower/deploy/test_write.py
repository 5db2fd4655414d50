"""`init` writes all or nothing, never over anything; `add_node` and `renew` change only what they name."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from dragfl.errors import DragflWarning, SpecError
from dragfl.flower import deploy
from dragfl.flower.deploy import write
from tests.flower.deploy.conftest import SCAFFOLD

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that flwr imports


def _tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_all_files_are_written(deployment: Path) -> None:
    node = {f"nodes/node{i}/{name}" for i in range(3) for name in ("ca.crt", "node.toml")}
    node |= {
        f"nodes/node{i}/{name.format(i)}"
        for i in range(3)
        for name in ("node{}", "node{}.pub", "dragfl-node{}.service")
    }
    server = ("ca.crt", "server.pem", "server.key", "superexec.secret", "nginx.conf")
    units = ("dragfl-superlink.service", "dragfl-superexec.service")
    package = ("__init__.py", "server_app.py", "client_app.py", "spec.toml")
    assert _tree(deployment) == {
        *node,
        *(f"server/{name}" for name in (*server, *units)),
        *(f"app/dragfl_app/{name}" for name in package),
        *("app/pyproject.toml", "operator/config.toml", "authority/ca.crt", "authority/ca.key"),
        *("README.md", "deployment.toml", "compose.yaml", ".env", "docker/Dockerfile", "docker/wheels/README.md"),
    }
    assert (deployment / "app" / "dragfl_app" / "spec.toml").read_text() == SCAFFOLD
    app = tomllib.loads((deployment / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["config"]["run-dir"] == "/var/lib/dragfl/server/runs/small"
    settings = tomllib.loads((deployment / "nodes" / "node2" / "node.toml").read_text())
    assert settings == {"partition-id": 2, "state-dir": "/var/lib/dragfl/node2"}


def test_an_example_is_written_without_a_spec(tmp_path: Path) -> None:
    folder = deploy.init(tmp_path / "d", nodes=5)
    spec = tomllib.loads((folder / "app" / "dragfl_app" / "spec.toml").read_text())
    assert spec["clients"]["total"] == 5 and len(list((folder / "nodes").iterdir())) == 5
    assert "for nodes on other machines, write the deployment again with `--host`" in (folder / "README.md").read_text()


def test_an_insecure_deployment_has_no_keys_and_stays_on_loopback(tmp_path: Path) -> None:
    folder = deploy.init(tmp_path / "d", nodes=2, insecure=True, port=9999)
    assert {path.name for path in folder.iterdir()} == {
        "app",
        "deployment.toml",
        "nodes",
        "operator",
        "README.md",
        "state",
    }
    link = tomllib.loads((folder / "operator" / "config.toml").read_text())["superlink"]["prod"]
    assert link == {"address": "127.0.0.1:9999", "insecure": True}
    readme = (folder / "README.md").read_text()
    assert "flower-superlink --insecure --host 127.0.0.1 --port 9999" in readme
    assert "for this machine only" in readme and "0.0.0.0" not in readme
    node = tomllib.loads((folder / "nodes" / "node1" / "node.toml").read_text())
    assert node == {"partition-id": 1, "state-dir": f"{folder}/state/node1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"insecure": True, "hosts": ["fl.example.org"]}, "host 'fl.example.org': an insecure deployment is for this"),
        ({"hosts": ["0.0.0.0"]}, "host '0.0.0.0': no address that nodes can connect to"),
        ({"hosts": ["https://x"]}, "host 'https://x': neither a host name nor an IP address"),
        ({"port": 65535}, "port: 65535; give a number from 1 to 65534"),
        ({"nodes": 0}, "nodes: 0; give at least 1"),
        ({"nodes": 4}, "nodes: 4, but the spec has clients.total = 3"),
    ],
)
def test_wrong_options_leave_nothing_behind(tmp_path: Path, options: dict[str, object], message: str) -> None:
    (tmp_path / "spec.toml").write_text(SCAFFOLD)
    with pytest.raises(SpecError, match=message):
        deploy.init(tmp_path / "a" / "d", tmp_path / "spec.toml", **options)  # type: ignore[arg-type]
    assert _tree(tmp_path) == {"spec.toml"}


def test_a_spec_is_checked_first(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SCAFFOLD.replace("scaffold", "scafold"))
    with pytest.raises(SpecError, match="did you mean 'scaffold'"):
        deploy.init(tmp_path / "d", tmp_path / "spec.toml")
    with pytest.raises(SpecError, match="no such file"):
        deploy.init(tmp_path / "d", tmp_path / "other.toml")
    assert not (tmp_path / "d").exists()


def test_a_relative_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text('[data]\ndataset = "npz:train.npz"\n')
    with pytest.raises(SpecError, match=r"data\.dataset: 'npz:train\.npz' is a relative path"):
        deploy.init(tmp_path / "d", tmp_path / "spec.toml")


def test_fewer_nodes_than_the_run_waits_for_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SCAFFOLD)
    with pytest.warns(DragflWarning, match="2 nodes are written, and the run waits for 3"):
        deploy.init(tmp_path / "d", tmp_path / "spec.toml", nodes=2)
    (tmp_path / "spec.toml").write_text(SCAFFOLD + "[flower]\nmin_nodes = 2\n")
    deploy.init(tmp_path / "e", tmp_path / "spec.toml", nodes=2)


def test_nodes_with_data_of_their_own_get_a_line_to_fill_in(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SCAFFOLD + '[flower]\ndata = "own"\n')
    folder = deploy.init(tmp_path / "d", tmp_path / "spec.toml")
    assert '# dataset = "npz:/absolute/path.npz"' in (folder / "nodes" / "node0" / "node.toml").read_text()
    (finding,) = [finding for finding in deploy.check(folder) if finding.name == "nodes"]
    assert (
        finding.status == "fail"
        and 'node0: no dataset in node.toml, and the spec has flower.data = "own"' in finding.text
    )


def test_a_folder_with_files_is_not_touched_and_an_empty_one_is_used(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    deploy.init(tmp_path / "d", nodes=1)
    before = {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()}
    with pytest.raises(SpecError, match="exists and is not empty"):
        deploy.init(tmp_path / "d", nodes=1)
    assert {path: path.read_bytes() for path in (tmp_path / "d").rglob("*") if path.is_file()} == before
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="exists and is not empty"):
        deploy.init(tmp_path / "file")


def test_an_error_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(write.files, "write_readme", full)
    with pytest.raises(OSError, match="disk full"):
        deploy.init(tmp_path / "d", nodes=1)
    assert not list(tmp_path.iterdir())


def test_only_the_owner_can_enter_the_folder(deployment: Path, written: Path) -> None:
    assert written.stat().st_mode & 0o777 == 0o700
    assert (written / "server" / "superexec.secret").stat().st_mode & 0o777 == 0o600
    assert (written / ".env").read_text() == f"DRAGFL_UID={os.getuid()}\nDRAGFL_GID={os.getgid()}\n"


def test_a_node_is_added_with_the_lowest_free_number(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SCAFFOLD + "[flower]\nmin_nodes = 2\n")
    folder = deploy.init(tmp_path / "d", tmp_path / "spec.toml", nodes=2, hosts=["fl.example.org"])
    deploy.add_node(folder, "hospital-a")
    settings = tomllib.loads((folder / "nodes" / "hospital-a" / "node.toml").read_text())
    assert settings == {"partition-id": 2, "state-dir": "/var/lib/dragfl/hospital-a"}
    unit = (folder / "nodes" / "hospital-a" / "dragfl-hospital-a.service").read_text()
    assert "--superlink fl.example.org:8443" in unit and "--port 9102" in unit
    assert "  hospital-a:\n    <<: *dragfl\n" in (folder / "compose.yaml").read_text()
    with pytest.raises(SpecError, match="exists and is not overwritten"):
        deploy.add_node(folder, "hospital-a")
    with pytest.raises(SpecError, match="all 3 client numbers of the spec have a node"):
        deploy.add_node(folder, "hospital-b")
    for name in ("Hospital", "a/b", "server", ""):
        with pytest.raises(SpecError, match="node name"):
            deploy.add_node(folder, name)
    assert not [f for f in deploy.check(folder) if f.status == "fail"]


def test_renewing_makes_a_new_certificate_of_the_same_authority(deployment: Path) -> None:
    pem, key = deployment / "server" / "server.pem", deployment / "server" / "server.key"
    before = pem.read_bytes(), key.read_bytes(), (deployment / "authority" / "ca.crt").read_bytes()
    deploy.renew(deployment, hosts=["other.example.org"])
    after = pem.read_bytes(), key.read_bytes(), (deployment / "authority" / "ca.crt").read_bytes()
    assert after[0] != before[0] and after[1] != before[1] and after[2] == before[2]
    names = x509.load_pem_x509_certificate(after[0]).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert {"fl.invalid", "other.example.org"} <= set(names.value.get_values_for_type(x509.DNSName))
    assert key.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in (deployment / "server").iterdir()} >= {"server.pem", "server.key"}
    assert not [f for f in deploy.check(deployment) if f.status == "fail"]


def test_renewing_needs_the_key_of_the_authority(deployment: Path) -> None:
    before = (deployment / "server" / "server.pem").read_bytes()
    (deployment / "authority" / "ca.key").unlink()
    with pytest.raises(SpecError, match=r"authority/ca\.key: not found; put it there"):
        deploy.renew(deployment)
    assert (deployment / "server" / "server.pem").read_bytes() == before


def test_a_folder_that_is_no_deployment_is_an_error(tmp_path: Path) -> None:
    for call in (deploy.check, deploy.renew, lambda folder: deploy.add_node(folder, "a")):
        with pytest.raises(SpecError, match=r"no deployment, it has no deployment\.toml"):
            call(tmp_path)
    (tmp_path / "deployment.toml").write_text("name = 1\n")
    with pytest.raises(SpecError, match="cannot be read"):
        deploy.check(tmp_path)
