"""`dragfl deploy init DIR`, `check`, `add-node`, `renew`: a federation on Flower as a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from dragfl.cli.options import add_safe_option


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "deploy",
        help="write and check a federation on Flower",
        description="Write a federation of a spec as a folder: Flower app, certificates, node keys, services, proxy "
        "and a README with all commands; check such a folder and its server.",
    )
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    new = actions.add_parser("init", help="write a deployment into a new folder")
    new.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    new.add_argument("--spec", type=Path, metavar="SPEC.toml", help="the experiment (default: an example)")
    new.add_argument("--nodes", type=int, metavar="N", help="nodes to prepare (default: clients.total of the spec)")
    new.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="HOST",
        help="name or IP address of the server; may be given several times, nodes use the first (default: localhost)",
    )
    new.add_argument("--port", type=int, default=8443, help="port that nodes connect to (default: 8443)")
    new.add_argument("--insecure", action="store_true", help="no TLS and no node keys: for tests on this machine only")
    add_safe_option(new)
    new.set_defaults(run=_init)
    check = actions.add_parser(
        "check",
        help="check a deployment and, if it runs, its server",
        description="Print OK, FAIL or not checked for every check. Exit code 2: at least one failed.",
    )
    check.add_argument("folder", type=Path, metavar="DIR")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    add_safe_option(check)
    check.set_defaults(run=_check)
    node = actions.add_parser("add-node", help="write the folder of one more node")
    node.add_argument("folder", type=Path, metavar="DIR")
    node.add_argument("name", metavar="NAME", help="lower-case letters, digits and '-'")
    add_safe_option(node)
    node.set_defaults(run=_add_node)
    renew = actions.add_parser("renew", help="replace the server's certificate by a new one")
    renew.add_argument("folder", type=Path, metavar="DIR")
    renew.add_argument("--host", action="append", default=[], metavar="HOST", help="one more name of the server")
    renew.set_defaults(run=_renew)


def _init(args: argparse.Namespace) -> int:
    from dragfl.flower import deploy

    options = {"nodes": args.nodes, "hosts": args.host, "port": args.port, "insecure": args.insecure}
    folder = deploy.init(args.folder, args.spec, **options)
    for name, what in _CONTENTS.items():
        if (folder / name).exists():
            print(f"  {name:<13} {what}")
    if args.insecure:
        print("insecure: no TLS and no node keys; for this machine only")
    print(f"written: {folder}\nnext: {folder / 'README.md'}")
    return 0


def _check(args: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict

    from dragfl.flower import deploy

    found = deploy.check(args.folder)
    count = {status: sum(f.status == status for f in found) for status in ("ok", "fail", "not checked")}
    if args.json:
        print(json.dumps({"passed": not count["fail"], "findings": [asdict(finding) for finding in found]}))
        return 2 if count["fail"] else 0
    width = max(len(finding.name) for finding in found)
    for finding in found:
        word = {"ok": "OK", "fail": "FAIL"}.get(finding.status, finding.status)
        print(f"  {word:<11}  {finding.name:<{width}}  {finding.text}")
    print(f"{count['ok']} OK, {count['fail']} FAIL, {count['not checked']} not checked")
    return 2 if count["fail"] else 0


def _add_node(args: argparse.Namespace) -> int:
    from dragfl.flower import deploy

    print(f"written: {deploy.add_node(args.folder, args.name)}; register and start it as README.md says")
    return 0


def _renew(args: argparse.Namespace) -> int:
    from dragfl.flower import deploy

    print(f"written: {deploy.renew(args.folder, hosts=args.host)}; install it and restart as README.md says")
    return 0


_CONTENTS = {
    "app": "the Flower app",
    "operator": "FLWR_HOME of whoever starts runs",
    "authority": "ca.crt, ca.key: store ca.key offline",
    "server": "certificate, services and proxy of the server",
    "nodes": "one folder for each node: key, settings, service",
    "compose.yaml": "the same with containers",
}
