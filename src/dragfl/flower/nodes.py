"""The nodes that are online. A new one is greeted: it says which part of the data it holds, then gets a number."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version

from dragfl.config.tables import Flower
from dragfl.errors import DragflError
from dragfl.flower.exchange import Exchange, read_from
from dragfl.flower.hello import Hello, hello_message, read_hello
from dragfl.flower.records import Refused
from dragfl.flower.refusals import Refusals
from dragfl.flower.roster import Member, Node, Roster

GRACE_S = 60.0  # a greeting can be answered this long after the wait for it

LOG = logging.getLogger("dragfl")


class Nodes:
    """Finds the nodes of a round."""

    def __init__(self, exchange: Exchange, roster: Roster, run: str, settings: Flower, refusals: Refusals) -> None:
        self.roster = roster
        self._exchange, self._run, self._settings, self._refusals = exchange, run, settings, refusals
        self._greeted: dict[str, tuple[Node, str]] = {}  # message -> (node, nonce), until it answers
        self._hellos: dict[int, Hello] = {}  # of nodes without a number, by id
        self._without: set[int] = set()  # those of which this was logged
        self._first = True

    def find(self, round: int) -> dict[int, Member]:
        """The members that are online, by client. New nodes are greeted and become members when they answer.

        Only the first call waits for answers: a node that comes during the run takes part from the next round on.
        """
        now = self._exchange.clock()
        first, self._first = self._first, False
        until = now + (self._settings.wait if first else 0.0)
        nodes = self._exchange.nodes(now + self._settings.deadline)
        if not self._settings.secure:  # SuperNodes without a key of their own make one at every start
            nodes = [replace(node, key="") for node in nodes]
        online, new = self.roster.connected(nodes)
        known = {node.id for node, _ in self._greeted.values()} | self._hellos.keys()
        self._greet([node for node in new if node.id not in known], now + self._settings.deadline)
        self._read_answers(until)
        for node in sorted(new, key=self._order):
            if member := self._admit(node, round, online):
                online[member.client] = member
        if first and nodes and not online:
            raise DragflError(f"none of {len(nodes)} nodes {self._why_none()}")
        return dict(sorted(online.items()))

    def _why_none(self) -> str:
        if self._hellos:
            return (
                "is a client of this run: its nodes.json has other nodes; connect those, or delete nodes.json, then "
                "the nodes are numbered again by their partition-id"
            )
        return (
            f"has answered ({self._refusals.last or 'no reply'}); see the logs of the SuperNodes, then start the app "
            "again with the same run-dir"
        )

    def _order(self, node: Node) -> tuple[bool, str, int]:
        """Nodes with a partition-id first, then by name: not in the order in which they have answered."""
        hello = self._hellos.get(node.id)
        return hello is None or hello.partition is None, node.name, node.id

    def _greet(self, nodes: Sequence[Node], until: float) -> None:
        ttl = max(self._settings.wait, self._settings.deadline) + GRACE_S
        nonces = [secrets.token_hex(16) for _ in nodes]
        messages = [hello_message(self._run, nonce, node.id, ttl) for node, nonce in zip(nodes, nonces, strict=True)]
        ids = self._exchange.push(messages, until)
        self._greeted |= {id: (node, nonce) for node, nonce, id in zip(nodes, nonces, ids, strict=True) if id}

    def _read_answers(self, until: float) -> None:
        for id, reply in self._exchange.replies(list(self._greeted), until):
            if id not in self._greeted:
                continue
            node, nonce = self._greeted.pop(id)
            try:
                hello = self._hellos[node.id] = read_from(reply, node.id, partial(read_hello, nonce=nonce))
            except Refused as refused:  # it is greeted again in the next round
                self._refusals.add(node.label, refused.reason, f"greeting: {refused.detail}")
                continue
            if hello.version != (mine := version("dragfl")):
                LOG.warning("node %s has dragfl %s, the server %s", node.label, hello.version, mine)

    def _admit(self, node: Node, round: int, online: dict[int, Member]) -> Member | None:
        """Give a node that has answered a number. Where none is free, it is tried again in every round."""
        if node.id not in self._hellos:
            return None
        member = self.roster.admit(node, self._hellos[node.id].partition, round, online)
        if member is not None:
            LOG.info("node %s is client %d", node.label, member.client)
            if member.partition not in (None, member.client) and self._settings.data == "partition":
                LOG.warning(
                    "node %s has partition-id %d, which is taken or too large, and is client %d; if two nodes train on "
                    "one part of the data, correct their node-config and start a new run",
                    *(node.label, member.partition, member.client),
                )
            del self._hellos[node.id]
        elif node.id not in self._without:
            LOG.warning(
                "node %s: every client has a node already, so it gets no work; if a node has a new key, stop the run "
                "and delete its old entry in nodes.json; without node authentication, set flower.secure = false",
                node.label,
            )
            self._without.add(node.id)
        return member
