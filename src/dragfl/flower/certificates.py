"""Certificates and keys of a federation: an authority, the server's certificate, and one key for each node.

Made with the package cryptography, which flwr installs; neither openssl nor ssh-keygen is needed. All keys are on the
curve P-384. Files with a private key have mode 0600, and no file is overwritten.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dragfl.errors import SpecError

AUTHORITY_DAYS = 3650
SERVER_DAYS = 365
_SKEW = timedelta(hours=1)  # a certificate is valid from this long before now: clocks differ
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*\Z")


def make_authority(folder: Path, days: int = AUTHORITY_DAYS) -> tuple[Path, Path]:
    """Write `ca.crt` and `ca.key`: the authority that signs the server's certificate."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dragfl federation authority")])
    builder = (
        _certificate(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _write_pair(builder.sign(key, hashes.SHA384()), key, folder / "ca.crt", folder / "ca.key")


def make_server_certificate(
    folder: Path, hosts: Sequence[str], *, authority: Path | None = None, days: int = SERVER_DAYS
) -> tuple[Path, Path]:
    """Write `server.pem` and `server.key`: a certificate for these host names and IP addresses.

    `authority` is the folder of `ca.crt` and `ca.key`; default: `folder`.
    """
    home = authority or folder
    ca = x509.load_pem_x509_certificate((home / "ca.crt").read_bytes())
    ca_key = load_pem_private_key((home / "ca.key").read_bytes(), password=None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)  # made by make_authority
    names = [_alternative_name(host) for host in dict.fromkeys(hosts)]
    if not names:
        raise SpecError("server certificate: no host given; give at least one host name or IP address")
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dragfl federation server")])
    builder = (
        _certificate(subject, ca.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    return _write_pair(builder.sign(ca_key, hashes.SHA384()), key, folder / "server.pem", folder / "server.key")


def make_node_key(folder: Path, name: str) -> tuple[Path, Path]:
    """Write the OpenSSH key pair of a node: `NAME` (private) and `NAME.pub`, which SuperLink must know."""
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = folder / name, folder / f"{name}.pub"
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + f" {name}\n".encode()
    write_private(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    _write_new(public, line, 0o644)
    return private, public


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read."""
    _write_new(path, content, 0o600)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if len(host) > 253 or not _HOST.match(host):
            raise SpecError(
                f"host {host!r}: neither a host name nor an IP address; give it without scheme and port, "
                "such as fl.example.org"
            ) from None
        return x509.DNSName(host)


def _write_pair(
    certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, public: Path, private: Path
) -> tuple[Path, Path]:
    write_private(private, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    _write_new(public, certificate.public_bytes(Encoding.PEM), 0o644)
    return public, private


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise SpecError(f"{path}: exists and is not overwritten; move it away first") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
