"""Checks of the running server: what it answers to whom. A server that does not run is "not checked", never OK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dragfl.flower.deploy import probe
from dragfl.flower.deploy.findings import Finding, expiry
from dragfl.flower.deploy.layout import LOOPBACK, Deployment, address, is_loopback

_EXPOSED = (
    "whoever reaches it can run code on the server and on every node, with ca.crt alone; let SuperLink listen on "
    f"{LOOPBACK} (--host {LOOPBACK}) behind the proxy of server/nginx.conf"
)


def check_server(home: Path, d: Deployment) -> Iterator[Finding]:
    for host in d.hosts if d.secure else ():
        where, answer = address(host, d.port), probe.ask(host, d.port, probe.FLEET)
        if not answer.status:
            text = f"{where}: no answer ({answer.reason}); start server and proxy, then repeat"
            for name in ("control API", "fleet API", "served certificate"):
                yield Finding(name, "not checked", text)
            continue
        yield _control_api(host, d.port)
        yield _fleet_api(where, answer.status)
        yield _served_certificate(home / "authority" / "ca.crt", host, d.port)
    yield _own_addresses(d)


def _control_api(host: str, port: int) -> Finding:
    """What the configured address of the server answers to a request of the control API."""
    name, where, answer = "control API", address(host, port), probe.ask(host, port, probe.CONTROL)
    if not answer.status:
        return Finding(name, "not checked", f"{where}: no answer ({answer.reason}); repeat")
    if answer.status in (401, 403, 404):
        return Finding(name, "ok", f"{where}: refused ({answer.status})")
    if is_loopback(host):
        return Finding(name, "ok", f"{where}: answers ({answer.status}), but on a loopback address only")
    if answer.is_superlink:
        return Finding(name, "fail", f"{where}: answers; {_EXPOSED}")
    return Finding(
        name, "fail", f"{where}: not refused (status {answer.status}), so a proxy may pass it on; {_EXPOSED}"
    )


def _fleet_api(where: str, status: int) -> Finding:
    """Whether nodes get through."""
    name = "fleet API"
    if status == 401:  # SuperLink's answer to a request that no node has signed
        return Finding(name, "ok", f"{where}: reached; a request without a node's signature is refused (401)")
    if status in (502, 503, 504):
        return Finding(name, "not checked", f"{where}: the proxy answers {status}; start SuperLink, then repeat")
    text = f"{where}: status {status}, so nodes cannot connect; let the proxy pass /v1/fleet/ on to SuperLink"
    return Finding(name, "fail", text)


def _served_certificate(authority: Path, host: str, port: int) -> Finding:
    name, where = "served certificate", address(host, port)
    if not authority.is_file():
        return Finding(name, "not checked", f"{where}: {authority} not found")
    until = probe.expiry_of_server(host, port, authority)
    if isinstance(until, str):
        advice = "install server/server.pem and server/server.key on the server and restart SuperLink and proxy"
        return Finding(name, "fail", f"{where}: not accepted with authority/ca.crt ({until}); {advice}")
    return expiry(name, where, until, "renew it (README.md) and restart SuperLink and proxy")


def _own_addresses(d: Deployment) -> Finding:
    """Whether a SuperLink on this machine can be reached from others."""
    name = "SuperLink on this machine"
    for own in probe.own_addresses():
        for port in sorted({d.port, d.link_port}):
            if probe.ask(own, port, probe.CONTROL).is_superlink:
                return Finding(name, "fail", f"the control API answers on {address(own, port)}; {_EXPOSED}")
    if not probe.ask(LOOPBACK, d.link_port, probe.CONTROL).is_superlink:
        text = f"no SuperLink on {LOOPBACK}:{d.link_port}; start it, then repeat on the machine of the server"
        return Finding(name, "not checked", text)
    if outside := [bound for bound in probe.bound_addresses(d.link_port) if not is_loopback(bound)]:
        return Finding(name, "fail", f"SuperLink listens on {address(outside[0], d.link_port)}; {_EXPOSED}")
    return Finding(name, "ok", f"listens on {LOOPBACK}:{d.link_port} only")
