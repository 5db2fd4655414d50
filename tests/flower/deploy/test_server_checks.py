"""What the check concludes from the answers of a server, here a small one with fixed answers.

A real SuperLink and a real proxy: test_federation.py.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dragfl.flower.certificates import make_server_certificate
from dragfl.flower.deploy import probe, server_checks
from dragfl.flower.deploy.layout import Deployment

REFUSED, ANSWERS = (403, "text/html"), (200, probe.PROTOBUF)


@contextmanager
def _server(
    control: tuple[int, str], fleet: int = 401, certificate: Path | None = None, host: str = "127.0.0.1"
) -> Iterator[int]:
    """Answers requests of the control API and of the fleet API, over TLS if there is a certificate; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, kind = control if self.path == probe.CONTROL else (fleet, "application/json")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "server.pem", certificate / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _check(home: Path, port: int, **changes: object) -> dict[str, tuple[str, str]]:
    deployment = Deployment(**({"name": "x", "hosts": ("127.0.0.1",), "port": port, "secure": True} | changes))  # type: ignore[arg-type]
    return {finding.name: (finding.status, finding.text) for finding in server_checks.check_server(home, deployment)}


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 counts as an address that others reach."""
    monkeypatch.setattr(server_checks, "is_loopback", lambda host: False)


def test_a_refused_control_api_and_an_open_fleet_api_are_ok(deployment: Path, outside: None) -> None:
    with _server(REFUSED, certificate=deployment / "server") as port:
        found = _check(deployment, port)
    assert found["control API"] == ("ok", f"127.0.0.1:{port}: refused (403)")
    assert found["fleet API"][0] == "ok"
    assert found["served certificate"] == ("ok", f"127.0.0.1:{port}: valid for 365 days")


def test_a_control_api_that_answers_fails_with_and_without_tls(deployment: Path, outside: None) -> None:
    for certificate in (deployment / "server", None):
        with _server(ANSWERS, certificate=certificate) as port:
            status, text = _check(deployment, port)["control API"]
        assert status == "fail" and "answers; whoever reaches it can run code on the server and on every node" in text


@pytest.mark.parametrize("status", [200, 405, 415, 502])
def test_a_control_api_that_is_not_refused_fails(deployment: Path, outside: None, status: int) -> None:
    with _server((status, "text/html"), certificate=deployment / "server") as port:
        found = _check(deployment, port)["control API"]
    assert found[0] == "fail" and f"not refused (status {status}), so a proxy may pass it on" in found[1]


def test_a_control_api_on_a_loopback_name_is_said(deployment: Path) -> None:
    with _server(ANSWERS, certificate=deployment / "server") as port:
        found = _check(deployment, port)["control API"]
    assert found == ("ok", f"127.0.0.1:{port}: answers (200), but on a loopback address only")


@pytest.mark.parametrize(("fleet", "status"), [(403, "fail"), (404, "fail"), (502, "not checked"), (401, "ok")])
def test_what_nodes_would_get(deployment: Path, fleet: int, status: str) -> None:
    with _server(REFUSED, fleet, deployment / "server") as port:
        assert _check(deployment, port)["fleet API"][0] == status


def test_a_server_with_another_certificate_fails(deployment: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    make_server_certificate(tmp_path / "other", ["elsewhere"], authority=deployment / "authority")
    with _server(REFUSED, certificate=tmp_path / "other") as port:
        status, text = _check(deployment, port)["served certificate"]
    assert status == "fail" and "not accepted with authority/ca.crt" in text and "mismatch" in text


def test_a_served_certificate_near_its_end_fails(deployment: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    make_server_certificate(tmp_path / "other", ["127.0.0.1"], authority=deployment / "authority", days=10)
    with _server(REFUSED, certificate=tmp_path / "other") as port:
        status, text = _check(deployment, port)["served certificate"]
    assert status == "fail" and "in 10 days; renew it" in text


def test_a_server_without_tls_fails(deployment: Path) -> None:
    with _server(REFUSED) as port:
        assert _check(deployment, port)["served certificate"][0] == "fail"


def test_nothing_is_ok_where_nothing_runs(deployment: Path) -> None:
    with _server(REFUSED) as port:
        pass
    found = _check(deployment, port)
    assert {status for status, _ in found.values()} == {"not checked"}
    assert (
        found["control API"][1]
        == f"127.0.0.1:{port}: no answer (Connection refused); start server and proxy, then repeat"
    )


def test_a_superlink_on_loopback_is_ok_and_one_on_all_addresses_fails(deployment: Path) -> None:
    """An insecure deployment has one port; the fixed answers are those of a SuperLink."""
    with _server(ANSWERS) as port:
        found = _check(deployment, port, secure=False)
    assert found == {"SuperLink on this machine": ("ok", f"listens on 127.0.0.1:{port} only")}
    with _server(ANSWERS, host="0.0.0.0") as port:
        status, text = _check(deployment, port, secure=False)["SuperLink on this machine"]
    assert status == "fail" and ("the control API answers on" in text or f"listens on 0.0.0.0:{port}" in text)


def test_the_addresses_of_listening_sockets_are_read() -> None:
    with _server(ANSWERS) as port:
        assert probe.bound_addresses(port) == ["127.0.0.1"]
    with _server(ANSWERS, host="0.0.0.0") as port:
        assert probe.bound_addresses(port) == ["0.0.0.0"]
    assert "127.0.0.1" not in probe.own_addresses()
