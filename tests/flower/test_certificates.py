"""An authority, a server certificate and node keys that Python's TLS and flwr accept; nothing is overwritten."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from dragfl.errors import SpecError
from dragfl.flower.certificates import make_authority, make_node_key, make_server_certificate

HOSTS = ("fl.example.org", "localhost", "127.0.0.1", "::1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder)
    make_server_certificate(folder, HOSTS)
    return folder


def _handshake(folder: Path, name: str) -> None:
    """Connect to a TLS server with this certificate, under the strictest checks of Python's ssl."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem", folder / "server.key")
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as secured:
                secured.recv(1)
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=name) as secured:
            secured.send(b"x")
    finally:
        ours.close()
        thread.join()


@pytest.mark.parametrize("host", HOSTS)
def test_tls_accepts_the_certificate_for_each_host(folder: Path, host: str) -> None:
    _handshake(folder, host)


def test_tls_refuses_another_host(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        _handshake(folder, "other.example.org")


def test_terms_are_ten_years_and_one_year(folder: Path) -> None:
    for name, days in (("ca.crt", 3650), ("server.pem", 365)):
        certificate = x509.load_pem_x509_certificate((folder / name).read_bytes())
        assert round((certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds() / 86400) == days
        assert certificate.not_valid_before_utc < datetime.now(UTC)


def test_node_keys_are_openssh_keys_on_p384(tmp_path: Path) -> None:
    private, public = make_node_key(tmp_path, "node0")
    assert (private.name, public.name) == ("node0", "node0.pub")
    key = load_ssh_private_key(private.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp384r1"
    assert load_ssh_public_key(public.read_bytes()) == key.public_key()
    assert public.read_text().split()[0] == "ecdsa-sha2-nistp384" and public.read_text().endswith(" node0\n")


def test_only_the_owner_can_read_private_files(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_server_certificate(tmp_path, ["localhost"])
    make_node_key(tmp_path, "node0")
    for name in ("ca.key", "server.key", "node0"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    make_authority(tmp_path)
    make_server_certificate(tmp_path, ["localhost"])
    make_node_key(tmp_path, "node0")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for make in (
        lambda: make_authority(tmp_path),
        lambda: make_server_certificate(tmp_path, ["localhost"]),
        lambda: make_node_key(tmp_path, "node0"),
    ):
        with pytest.raises(SpecError, match="exists and is not overwritten"):
            make()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("host", ["https://fl.example.org", "fl.example.org:8443", "", "a b", "-a.org", "ü.org"])
def test_a_host_that_is_none_is_refused(folder: Path, tmp_path: Path, host: str) -> None:
    with pytest.raises(SpecError, match="neither a host name nor an IP address"):
        make_server_certificate(tmp_path, [host], authority=folder)
    assert not list(tmp_path.iterdir())


def test_a_certificate_without_hosts_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no host given"):
        make_server_certificate(tmp_path, [], authority=folder)
