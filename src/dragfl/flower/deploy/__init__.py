"""Deployment: write a Flower federation of a spec as a folder, and check such a folder and its running server.

init(folder, spec, hosts=["fl.example.org"])    dragfl deploy init
check(folder) -> list[Finding]                  dragfl deploy check
add_node(folder, name)                          dragfl deploy add-node
renew(folder)                                   dragfl deploy renew
"""

from __future__ import annotations

from pathlib import Path

from dragfl.flower.deploy.file_checks import check_files
from dragfl.flower.deploy.findings import Finding
from dragfl.flower.deploy.layout import read_settings
from dragfl.flower.deploy.server_checks import check_server
from dragfl.flower.deploy.write import add_node, init, renew

__all__ = ["Finding", "add_node", "check", "init", "renew"]


def check(folder: str | Path) -> list[Finding]:
    """Check the files of a deployment, this machine's installation and the server, if it runs."""
    home = Path(folder).resolve()
    deployment = read_settings(home)
    return [*check_files(home, deployment), *check_server(home, deployment)]
