"""Certificates and keys that are about to expire, do not match, or can be read by others fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dragfl.flower.certificates import make_authority, make_node_key, make_server_certificate
from dragfl.flower.deploy.key_checks import check_keys
from dragfl.flower.deploy.layout import read_settings


def _failures(folder: Path) -> dict[str, str]:
    found = check_keys(folder, read_settings(folder))
    return {finding.name: finding.text for finding in found if finding.status == "fail"}


def _renew(folder: Path, days: int, *hosts: str) -> None:
    for name in ("server.pem", "server.key"):
        (folder / "server" / name).unlink()
    names = hosts or read_settings(folder).certificate_names
    make_server_certificate(folder / "server", names, authority=folder / "authority", days=days)


@pytest.mark.parametrize(
    ("days", "text"), [(29, "expires on 20"), (1, "expires on 20"), (31, ""), (0, "server/server.pem: expire")]
)
def test_a_certificate_that_expires_within_30_days_fails(deployment: Path, days: int, text: str) -> None:
    _renew(deployment, days)
    found = _failures(deployment)
    assert set(found) == ({"certificates"} if text else set())
    assert not text or (text in found["certificates"] and "renew it: dragfl deploy renew" in found["certificates"])


def test_an_authority_that_expires_within_30_days_fails(deployment: Path) -> None:
    for path in deployment.glob("authority/*"):
        path.unlink()
    make_authority(deployment / "authority", days=29)
    for copy in [deployment / "server", *deployment.glob("nodes/*")]:
        shutil.copy(deployment / "authority" / "ca.crt", copy / "ca.crt")
    _renew(deployment, 365)
    found = _failures(deployment)
    assert set(found) == {"certificates"} and "authority/ca.crt: expires on" in found["certificates"]
    assert "every node needs the new ca.crt" in found["certificates"]


def test_a_host_that_is_not_in_the_certificate_fails(deployment: Path) -> None:
    _renew(deployment, 365, "localhost", "127.0.0.1", "::1", "server")
    assert _failures(deployment) == {
        "host names": "server/server.pem is not valid for fl.invalid; dragfl deploy renew DIR --host fl.invalid"
    }


def test_a_certificate_of_another_authority_fails(deployment: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    make_authority(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.crt", deployment / "authority" / "ca.crt")
    found = _failures(deployment)
    assert set(found) == {"certificates", "ca.crt"} and "was not signed by authority/ca.crt" in found["certificates"]


def test_a_node_with_another_authority_fails(deployment: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    make_authority(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.crt", deployment / "nodes" / "node1" / "ca.crt")
    assert _failures(deployment) == {"ca.crt": "nodes/node1/ca.crt: differs from authority/ca.crt; copy that one there"}


def test_another_server_key_fails(deployment: Path) -> None:
    shutil.copy(deployment / "authority" / "ca.key", deployment / "server" / "server.key")
    assert "is not the key of server/server.pem" in _failures(deployment)["server key"]
    (deployment / "server" / "server.key").write_text("x")
    assert "cannot be read" in _failures(deployment)["server key"]


def test_node_keys_must_match_and_differ(deployment: Path, tmp_path: Path) -> None:
    make_node_key(tmp_path, "other")
    nodes = deployment / "nodes"
    shutil.copy(tmp_path / "other.pub", nodes / "node1" / "node1.pub")
    assert "nodes/node1: private and public key do not match" in _failures(deployment)["node keys"]
    for end in ("", ".pub"):
        shutil.copy(nodes / "node0" / f"node0{end}", nodes / "node1" / f"node1{end}")
    assert _failures(deployment) == {"node keys": "node1 and node0 have the same key; make a new one for each"}
    (nodes / "node1" / "node1").write_text("x")
    assert "node1: the key cannot be read" in _failures(deployment)["node keys"]


@pytest.mark.parametrize(
    "path", ["authority/ca.key", "server/server.key", "server/superexec.secret", "nodes/node2/node2"]
)
@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_private_file_that_others_can_read_fails(deployment: Path, path: str, mode: int) -> None:
    (deployment / path).chmod(mode)
    assert _failures(deployment) == {"private files": f"others can read them; chmod 600 {path}"}


def test_private_files_that_were_moved_away_are_not_counted_as_checked(deployment: Path) -> None:
    (deployment / "authority" / "ca.key").unlink()
    (deployment / "nodes" / "node1" / "node1").unlink()
    (deployment / "server" / "server.key").unlink()
    found = {finding.name: finding.status for finding in check_keys(deployment, read_settings(deployment))}
    assert found["node keys"] == found["server key"] == "not checked" and "fail" not in found.values()
