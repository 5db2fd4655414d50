"""Checks of certificates, keys and their permissions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from dragfl.flower.deploy.findings import Finding, expiry
from dragfl.flower.deploy.layout import Deployment, node_folders

_UNREADABLE = (OSError, ValueError, TypeError)


def check_keys(home: Path, d: Deployment) -> Iterator[Finding]:
    yield from _certificates(home, d)
    yield _same_authority(home)
    yield _node_keys(home)
    yield _permissions(home)


def _certificates(home: Path, d: Deployment) -> Iterator[Finding]:
    name = "certificates"
    try:
        authority = x509.load_pem_x509_certificate((home / "authority" / "ca.crt").read_bytes())
        server = x509.load_pem_x509_certificate((home / "server" / "server.pem").read_bytes())
        server.verify_directly_issued_by(authority)
    except FileNotFoundError as error:
        yield Finding(name, "not checked", f"{error.filename}: not found")
        return
    except (*_UNREADABLE, InvalidSignature) as error:
        yield Finding(
            name,
            "fail",
            f"server/server.pem was not signed by authority/ca.crt ({error or 'wrong signature'}); dragfl deploy renew",
        )
        return
    yield expiry(name, "server/server.pem", server.not_valid_after_utc, "renew it: dragfl deploy renew")
    advice = "write a new deployment; every node needs the new ca.crt"
    yield expiry(name, "authority/ca.crt", authority.not_valid_after_utc, advice)
    yield _matching_key(home, server)
    yield _host_names(server, d)


def _matching_key(home: Path, server: x509.Certificate) -> Finding:
    name = "server key"
    try:
        key = load_pem_private_key((home / "server" / "server.key").read_bytes(), password=None)
    except FileNotFoundError:
        return Finding(name, "not checked", "server/server.key: not found")
    except _UNREADABLE as error:
        return Finding(name, "fail", f"server/server.key: cannot be read ({error}); dragfl deploy renew")
    if key.public_key() != server.public_key():
        return Finding(name, "fail", "server/server.key is not the key of server/server.pem; dragfl deploy renew")
    return Finding(name, "ok", "server/server.key belongs to server/server.pem")


def _host_names(server: x509.Certificate, d: Deployment) -> Finding:
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = {str(each.value) for each in names}
    if missing := [host for host in d.certificate_names if host not in known]:
        options = "".join(f" --host {host}" for host in missing if host in d.hosts)
        return Finding(
            "host names",
            "fail",
            f"server/server.pem is not valid for {', '.join(missing)}; dragfl deploy renew DIR{options}",
        )
    return Finding("host names", "ok", f"server/server.pem is valid for {', '.join(d.hosts)}")


def _same_authority(home: Path) -> Finding:
    name = "ca.crt"
    try:
        authority = (home / "authority" / "ca.crt").read_bytes()
    except OSError as error:
        return Finding(name, "not checked", f"authority/ca.crt: {error.strerror}")
    copies = [home / "server" / "ca.crt", *(node / "ca.crt" for node in node_folders(home))]
    if others := [path for path in copies if path.is_file() and path.read_bytes() != authority]:
        listed = ", ".join(str(path.relative_to(home)) for path in others)
        return Finding(name, "fail", f"{listed}: differs from authority/ca.crt; copy that one there")
    return Finding(name, "ok", "the same on the server and all nodes")


def _node_keys(home: Path) -> Finding:
    """Each private key belongs to its public key, and no two nodes share one."""
    name, owners, absent = "node keys", dict[bytes, str](), list[str]()
    for node in node_folders(home):
        private, public = node / node.name, node / f"{node.name}.pub"
        if not private.is_file() or not public.is_file():
            absent.append(node.name)
            continue
        try:
            pair = (
                load_ssh_private_key(private.read_bytes(), None).public_key(),
                load_ssh_public_key(public.read_bytes()),
            )
        except _UNREADABLE as error:
            return Finding(name, "fail", f"{node.name}: the key cannot be read ({error}); remove the folder and add it")
        if pair[0] != pair[1]:
            return Finding(name, "fail", f"nodes/{node.name}: private and public key do not match; make a new pair")
        known = b" ".join(public.read_bytes().split()[:2])
        if known in owners:
            return Finding(name, "fail", f"{node.name} and {owners[known]} have the same key; make a new one for each")
        owners[known] = node.name
    if absent:
        return Finding(name, "not checked", f"no key pair here of {', '.join(absent)}")
    return Finding(name, "ok", f"{len(owners)} pairs, all different")


def _permissions(home: Path) -> Finding:
    """Only the owner may read private files."""
    private = [home / "authority" / "ca.key", home / "server" / "server.key", home / "server" / "superexec.secret"]
    private += [node / node.name for node in node_folders(home)]
    readable = [str(path.relative_to(home)) for path in private if path.is_file() and path.stat().st_mode & 0o077]
    if readable:
        return Finding("private files", "fail", f"others can read them; chmod 600 {' '.join(readable)}")
    return Finding("private files", "ok", "only their owner can read them")
