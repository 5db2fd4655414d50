"""Which Flower node is which client. Saved as `nodes.json` in the run directory, so a resumed run finds its clients.

Node ids are unsigned 64-bit numbers and may exceed 2^63, so they are strings in the file. With authentication a node
is known by its public key and keeps its client number whatever its id is; no other key can get that number. Without
authentication (`flower.secure = false`) id and key of a node are new after every restart, and it is known by its id.
Then a number is free again when its node has gone offline, and a node that names its `partition-id` gets it back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from flwr.proto.node_pb2 import NodeInfo

from dragfl import atomic
from dragfl.errors import DamagedRun
from dragfl.flower.records import one_line
from dragfl.runs.digests import MISMATCH, is_intact, with_digest

FORMAT = 1


@dataclass(frozen=True)
class Node:
    """A node that is connected."""

    id: int
    name: str  # as registered; empty without authentication
    key: str  # SHA-256 of its public key in hex; empty without authentication

    @staticmethod
    def of(info: NodeInfo) -> Node:
        key = hashlib.sha256(info.public_key).hexdigest() if info.public_key else ""
        return Node(info.node_id, one_line(info.name), key)

    @property
    def label(self) -> str:
        return self.name or str(self.id)


@dataclass(frozen=True)
class Member:
    """The node of a client number."""

    client: int
    node: int
    name: str
    key: str
    partition: int | None  # the partition-id of its node-config
    first_round: int  # the round in which it got its number, from 1


class Roster:
    """The members, by client number."""

    def __init__(self, clients: int, path: Path | None = None) -> None:
        """Read the roster at `path` if it is there; it is written at every change."""
        self._clients, self._path = clients, path
        self.members: dict[int, Member] = {}
        if path is not None and path.exists():
            self.members = read_members(path, clients)

    def name(self, client: int) -> str | None:
        """The name of a client's node; None if it never had one."""
        return self.members[client].name if client in self.members else None

    def connected(self, nodes: Iterable[Node]) -> tuple[dict[int, Member], list[Node]]:
        """(the members that are connected, the nodes without a number)."""
        by_key = {member.key: m for m, member in self.members.items() if member.key}
        by_id = {member.node: m for m, member in self.members.items() if not member.key}
        found: dict[int, Member] = {}
        new = []
        for node in nodes:
            client = by_key.get(node.key) if node.key else by_id.get(node.id)
            if client is None or client in found:
                new.append(node)
                continue
            member = self.members[client]
            found[client] = replace(member, node=node.id, name=node.name or member.name)
        if any(self.members[m] != member for m, member in found.items()):  # a new id after a restart
            self._save({**self.members, **found})
        return dict(sorted(found.items())), new

    def admit(self, node: Node, partition: int | None, round: int, online: Mapping[int, Member]) -> Member | None:
        """Give a new node a number: its partition-id if that is free, else the lowest free one. None: all are taken.

        Numbers that were never given come first.
        """
        free = [m for m in range(self._clients) if m not in self.members]
        gone = [m for m, member in sorted(self.members.items()) if not member.key and m not in online]
        order = [*([partition] if partition in {*free, *gone} else []), *free, *gone]
        client = next((m for m in order if m is not None), None)
        if client is None:
            return None
        member = Member(client, node.id, node.name or f"client-{client}", node.key, partition, round)
        self._save({**self.members, client: member})
        return member

    def _save(self, members: Mapping[int, Member]) -> None:
        self.members = dict(sorted(members.items()))
        if self._path is not None:
            rows = [{**asdict(member), "node": str(member.node)} for member in self.members.values()]
            atomic.write_json(self._path, with_digest({"format": FORMAT, "nodes": rows}))


def read_members(path: Path, clients: int) -> dict[int, Member]:
    """The members in a file; `DamagedRun` if it is not what `Roster` writes."""
    try:
        table = json.loads(path.read_text())
        if table["format"] != FORMAT:
            raise ValueError(f"format {table['format']!r}, this version of dragfl reads {FORMAT}")
        if not is_intact(table):
            raise ValueError(MISMATCH)
        members = [_member(row, clients) for row in table["nodes"]]
        for name, values in (
            ("client", [member.client for member in members]),
            ("node", [member.node for member in members]),
            ("key", [member.key for member in members if member.key]),
        ):
            if len(set(values)) != len(values):
                raise ValueError(f"the same {name} twice")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise DamagedRun(f"{path}: cannot be used ({reason}); restore the file, or run again with --fresh") from None
    return {member.client: member for member in members}


def _member(row: Mapping[str, Any], clients: int) -> Member:
    """One row of the file, checked."""
    values = {field.name: row[field.name] for field in fields(Member)}
    numbers = [values[name] for name in ("client", "first_round")]
    partition = values["partition"]
    if not all(type(number) is int for number in numbers) or not (partition is None or type(partition) is int):
        raise ValueError(f"client, partition and first_round of {row!r} must be whole numbers")
    if not 0 <= values["client"] < clients or values["first_round"] < 1:
        raise ValueError(f"client {values['client']} of round {values['first_round']} is out of range")
    if not re.fullmatch(r"[0-9]{1,20}", values["node"]) or int(values["node"]) >= 2**64:
        raise ValueError(f"{values['node']!r} is no node id")
    if not re.fullmatch(r"(?:[0-9a-f]{64})?", values["key"]) or not isinstance(values["name"], str):
        raise ValueError(f"key {values['key']!r} or name {values['name']!r} is malformed")
    return Member(**{**values, "node": int(values["node"])})
