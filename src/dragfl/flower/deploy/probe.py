"""Ask a running server what it answers: the control API, the fleet API, its certificate."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

CONTROL, FLEET = "/v1/control/list-runs", "/v1/fleet/get-run"  # neither changes anything
PROTOBUF = "application/protobuf"
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Answer:
    """The HTTP status of a request, or 0 and why there was no answer."""

    status: int
    reason: str = ""
    protobuf: bool = False  # the reply is a message of Flower

    @property
    def is_superlink(self) -> bool:
        """Whether this is what a SuperLink answers to a request of its control API."""
        return self.status == 200 and self.protobuf


def ask(host: str, port: int, path: str) -> Answer:
    """Send an empty request, over TLS or else without it.

    No certificate is verified here: the question is who answers, not whether to trust the answer.
    """
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        try:
            return _post(http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=trusting), path)
        except ssl.SSLError:
            return _post(http.client.HTTPConnection(host, port, timeout=TIMEOUT_S), path)
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, getattr(error, "strerror", None) or str(error) or type(error).__name__)


def expiry_of_server(host: str, port: int, authority: Path) -> datetime | str:
    """Until when the certificate that a server presents is valid for this host, or why it is refused."""
    context = ssl.create_default_context(cafile=authority)
    try:
        with (
            socket.create_connection((host, port), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            presented = secured.getpeercert() or {}
    except (OSError, ssl.CertificateError) as error:
        return getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(presented["notAfter"])), UTC)


def own_addresses() -> list[str]:
    """The addresses of this machine that others may reach."""
    found = set()
    with contextlib.suppress(OSError):
        found |= {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)}
    for family, outside in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((outside, 9))  # selects the address of this machine; a datagram socket sends nothing here
            found.add(str(probe.getsockname()[0]))
    return sorted(each for each in found if not _is_local(each))


def bound_addresses(port: int) -> list[str]:
    """The addresses on which this machine listens on a port, from /proc/net; empty where that does not exist."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                local, _, state = line.split()[1:4]
                if state == "0A" and int(local.partition(":")[2], 16) == port:
                    found.add(_address(local.partition(":")[0]))
    return sorted(found)


def _address(digits: str) -> str:
    """An address in the form of /proc/net: hexadecimal words of 4 bytes, each in the byte order of the machine."""
    words = [bytes.fromhex(digits[i : i + 8]) for i in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)))


def _is_local(text: str) -> bool:
    found = ipaddress.ip_address(text.partition("%")[0])
    return found.is_loopback or found.is_link_local


def _post(connection: http.client.HTTPConnection, path: str) -> Answer:
    try:
        connection.request("POST", path, body=b"", headers={"Content-Type": PROTOBUF})
        reply = connection.getresponse()
        return Answer(reply.status, protobuf=reply.getheader("Content-Type") == PROTOBUF)
    finally:
        connection.close()
